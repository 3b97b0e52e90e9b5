//! `trunkline llc ping`: TEST and XID, like ping(8).

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_io::Clock;
use trunkline_llc::socket::Error;
use trunkline_llc::wire::{ALL, NULL_SAP};
use trunkline_llc::{Address, Event, Options};
use trunkline_record::Histogram;
use trunkline_run::StopFlag;
use trunkline_units::Span;

use super::{OWN, VERSION, address, attach_own, figures, pause};
use crate::failure::{Failure, print};
use crate::flags::llc::Ping;

/// Counts of requests and responses.
#[derive(Default)]
struct Tally {
    sent: u64,
    /// Requests with at least one response.
    answered: u64,
    answers: u64,
    /// Responses that were damaged or late.
    damaged: u64,
    took: Histogram,
    each: Vec<Value>,
}

/// Responses that `--json` lists individually.
const MAX_LISTED: usize = 10_000;
/// Interval between checks for Ctrl-C.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Sends requests periodically.
pub fn ping(flags: &Ping, stop: &StopFlag) -> Result<(), Failure> {
    let to = address(&flags.to, NULL_SAP)?;
    let station = attach_own(&flags.local, stop)?;
    let options = Options { priority: flags.priority, ..Options::default() };
    let sap = station.open(OWN, &options)?;
    let clock = Clock::start();
    let what = if flags.xid { "XID".into() } else { format!("TEST of {} octets", flags.size) };
    let print_text = |text: &str| if flags.json { Ok(()) } else { print(text) };
    print_text(&format!("{what} to {} on {}\n", named(to), flags.local.network))?;
    let mut tally = Tally::default();
    let mut due = clock.now();
    let goes_on = |sent: u64| !stop.is_requested() && flags.count.is_none_or(|count| sent < count);
    while goes_on(tally.sent) {
        tally.sent += 1;
        let answers = ask(flags, &sap, to, &pattern(tally.sent, flags.size), clock)?;
        let answered = answers.iter().any(Answer::is_match);
        if !answered {
            print_text(&format!("no answer to {} within {}\n", tally.sent, flags.timeout))?;
        }
        tally.answered += u64::from(answered);
        for answer in answers {
            print_text(&answer.text(tally.sent))?;
            tally.count(&answer);
        }
        due += flags.interval;
        while goes_on(tally.sent) && clock.now() < due {
            pause(CHECK_INTERVAL.min(due.since(clock.now()).into()));
        }
    }
    print(&if flags.json { tally.json(flags, to) } else { tally.text() })?;
    match tally.answered {
        0 => Err(Failure::run(format!("{} does not answer", named(to)))),
        _ => Ok(()),
    }
}

/// Returns the content of request `number`. It begins with the number, as far as it fits, so that a response to
/// another request differs.
fn pattern(number: u64, size: u16) -> Vec<u8> {
    let mut pattern: Vec<u8> = (0..size).map(|n| n as u8).collect();
    for (octet, number) in pattern.iter_mut().zip(&number.to_le_bytes()[..4]) {
        *octet = *number;
    }
    pattern
}

fn named(to: Address) -> String {
    let station = if to.station == ALL { "all stations".into() } else { format!("station {}", to.station) };
    if to.sap == NULL_SAP { station } else { format!("{station} SAP {:#04x}", to.sap) }
}

/// A response.
struct Answer {
    from: Address,
    took: Span,
    /// The returned octets and whether they are correct, or the supported types.
    what: Result<(u16, bool), [bool; 3]>,
}

/// Sends one request; returns all responses. There are several only if several stations were addressed, or if some do
/// not match.
fn ask(
    flags: &Ping,
    sap: &trunkline_llc::socket::Sap,
    to: Address,
    pattern: &[u8],
    clock: Clock,
) -> Result<Vec<Answer>, Failure> {
    let limit: Duration = flags.timeout.into();
    let begun = clock.now();
    let first = match flags.xid {
        true => sap.identify(to, limit).map(|((from, types), took)| Answer { from, took, what: Err(types) }),
        false => sap.test(to, pattern, limit).map(|(t, took)| Answer {
            from: t.from,
            took,
            what: Ok((t.length, t.intact)),
        }),
    };
    let mut answers = match first {
        Ok(first) => vec![first],
        Err(Error::TimedOut) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let several = to.station == ALL || to.sap & 1 == 1;
    while (several || !answers.iter().any(Answer::is_match)) && answers.len() < 1 + usize::from(ALL) * 127 {
        let left = flags.timeout.as_ps().saturating_sub(clock.now().since(begun).as_ps());
        let what = match sap.next_answer(Span::from_ps(left).into()) {
            Ok(Event::Tested { from, length, intact, .. }) => (from, Ok((length, intact))),
            Ok(Event::Identified { from, types, .. }) => (from, Err(types)),
            Ok(_) => continue,
            Err(_) => break,
        };
        answers.push(Answer { from: what.0, took: clock.now().since(begun), what: what.1 });
    }
    Ok(answers)
}

impl Answer {
    /// Returns whether the response matches the last request; XID has no content to compare.
    fn is_match(&self) -> bool {
        !matches!(self.what, Ok((_, false)))
    }

    fn text(&self, number: u64) -> String {
        let Answer { from, took, what } = self;
        let what = match what {
            Ok((octets, true)) => format!("{octets} octets"),
            Ok((octets, false)) => format!("{octets} octets, DAMAGED OR LATE"),
            Err(types) => format!("supports {}", type_names(types)),
        };
        format!("{what} from {}: seq={number} time={:.1} us\n", named(*from), took.as_us())
    }
}

fn type_names(types: &[bool; 3]) -> String {
    let types: Vec<String> =
        (1..=3).zip(types).filter(|(_, supported)| **supported).map(|(n, _)| n.to_string()).collect();
    if types.is_empty() { "no type".into() } else { format!("type {}", types.join(" and ")) }
}

impl Tally {
    fn count(&mut self, answer: &Answer) {
        if answer.is_match() {
            self.answers += 1;
            self.took.record(answer.took);
        }
        let mut one = json!({
            "seq": self.sent, "station": answer.from.station, "sap": answer.from.sap, "took_us": answer.took.as_us(),
        });
        match answer.what {
            Ok((octets, intact)) => {
                self.damaged += u64::from(!intact);
                (one["octets"], one["intact"]) = (octets.into(), intact.into());
            }
            Err(types) => one["types"] = (1..=3).zip(types).filter(|(_, t)| *t).map(|(n, _)| n).collect(),
        }
        if self.each.len() < MAX_LISTED {
            self.each.push(one);
        }
    }

    fn lost(&self) -> f64 {
        1.0 - self.answered as f64 / self.sent.max(1) as f64
    }

    fn text(&self) -> String {
        let mut text = format!(
            "\n{} sent, {} answered, {} unanswered\n",
            self.sent,
            self.answered,
            figures::percent(self.lost())
        );
        if self.answers > self.answered {
            text += &format!("{} answers\n", self.answers);
        }
        if self.damaged > 0 {
            text += &format!("{} answers were damaged or late\n", self.damaged);
        }
        if let Some(d) = self.took.distribution_us() {
            text += &format!("min/mean/max/sd = {:.1}/{:.1}/{:.1}/{:.1} us\n", d.min, d.mean, d.max, d.sd);
        }
        text
    }

    fn json(&self, flags: &Ping, to: Address) -> String {
        let whole = json!({
            "version": VERSION, "tool": "ping", "network": flags.local.network.to_string(),
            "station": to.station, "sap": to.sap, "xid": flags.xid, "sent": self.sent, "answered": self.answered,
            "answers": self.answers, "damaged": self.damaged, "took_us": figures::distribution(&self.took),
            "each": self.each,
        });
        format!("{whole:#}\n")
    }
}
