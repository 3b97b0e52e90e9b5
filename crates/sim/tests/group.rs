//! Requests and files to a group of receivers.

use std::path::Path;

use crate::common::{connection, run};
use trunkline_record::schema::Receiver;

/// `b` and `c` are 1 and 3 ms away; `c` loses a share of its packets, and so do its responses.
fn network(loss: f64) -> String {
    format!(
        "host a, b, c; switch s; link a - s (rate = 100 Mb/s, delay = 0);
         link s - b (rate = 100 Mb/s, delay = 1 ms); link s - c (rate = 100 Mb/s, delay = 3 ms, loss = {loss});"
    )
}

fn record(network: &str, test: &str) -> trunkline_record::Record {
    run(&format!(
        "experiment {{ network {{ {network} }}
             connection x {{ xmt = a; rcv = b, c; protocol = multicast (group = 239.1.1.1); test = {test}; }} }}"
    ))
}

fn answers(receivers: &[Receiver]) -> Vec<(u64, u64)> {
    receivers.iter().map(|r| (r.answers.unwrap(), r.unanswered.unwrap())).collect()
}

#[test]
fn every_receiver_answers_a_request_to_the_group() {
    let record = record(&network(0.0), "request (request = 64, response = 128); messages = 50");
    let x = connection(&record, "x");
    assert!(!record.partial, "{:?}", record.problems);
    assert_eq!((x.messages_sent, x.messages_received, x.lost), (50, 100, 0));
    assert_eq!(answers(&x.receivers), [(50, 0), (50, 0)]);
    let counters = ["answers", "answer_bytes", "unanswered"].map(|name| x.counters[name]);
    assert_eq!(counters, [100.0, 100.0 * 128.0, 0.0]);
    let rtt = x.rtt_us.as_ref().unwrap();
    assert_eq!(rtt.count, 100, "one round trip for each response");
    assert!((2_000.0..2_100.0).contains(&rtt.min) && (6_000.0..6_100.0).contains(&rtt.max), "{rtt:?}");
    // The next request waits for the farthest receiver.
    let gap = x.sent_gap_us.as_ref().unwrap();
    assert!(gap.min > 5_900.0, "{gap:?}");
}

#[test]
fn a_lost_request_or_response_is_one_of_its_receiver() {
    let record = record(&network(0.1), "request (request = 64, response = 64); messages = 500");
    let x = connection(&record, "x");
    let [b, c] = &x.receivers[..] else { panic!("two receivers") };
    assert_eq!((b.answers, b.unanswered, b.lost), (Some(500), Some(0), 0));
    let (answered, unanswered) = (c.answers.unwrap(), c.unanswered.unwrap());
    assert_eq!(answered + unanswered, 500);
    // 10 % of the requests are lost, and 10 % of the responses to the others.
    assert!((60..130).contains(&unanswered) && c.lost < unanswered && c.lost > 20, "{c:?}");
    assert_eq!(x.counters["unanswered"], unanswered as f64);
}

#[test]
fn an_incomplete_file_is_a_failure_of_its_receiver() {
    // This file, because it is there.
    let path = Path::new(file!()).file_name().unwrap().to_str().unwrap();
    let file = format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"));
    let test = format!("file (path = \"{file}\", messagesize = 100)");
    let complete = record(&network(0.0), &test);
    assert!(!complete.partial, "{:?}", complete.problems);
    let messages = connection(&complete, "x").messages_sent;
    assert!(messages > 50 && connection(&complete, "x").messages_received == 2 * messages);
    let record = record(&network(0.1), &test);
    let x = connection(&record, "x");
    let [b, c] = &x.receivers[..] else { panic!("two receivers") };
    assert_eq!((b.lost, &b.error), (0, &None));
    let error = format!("the file is incomplete: {} of {messages} messages did not arrive", c.lost);
    assert!(c.lost > 0 && c.error.as_ref() == Some(&error), "{c:?}");
    assert_eq!(x.error, Some(format!("host c: {error}")));
    assert!(x.partial && record.partial && record.problems == [format!("x: host c: {error}")]);
}
