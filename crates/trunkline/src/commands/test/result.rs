//! The result of both ends, in at most ten lines.

use trunkline_record::Histogram;
use trunkline_record::schema::{Connection, Distribution, Record};
use trunkline_report::Unit;
use trunkline_run::assemble::RepetitionOutcome;

/// Returns the result of a test: of each direction the sender, the receiver, the delay and the processor time.
pub fn result<'o>(record: &Record, outcomes: impl Iterator<Item = Option<&'o RepetitionOutcome>>) -> String {
    let connections: Vec<_> = record.connections.iter().zip(outcomes).collect();
    let hosts = ["here", "there"].map(|host| {
        let sent_by =
            |(c, _): &&(&Connection, Option<&RepetitionOutcome>)| (c.from == "here") == (host == "here");
        connections.iter().filter(sent_by).copied().collect::<Vec<_>>()
    });
    let names = ["forward", "reverse"];
    hosts
        .iter()
        .zip(names)
        .filter(|(all, _)| !all.is_empty())
        .map(|(all, name)| direction(name, all))
        .collect()
}

/// Returns the lines of the connections of one direction.
fn direction(name: &str, connections: &[(&Connection, Option<&RepetitionOutcome>)]) -> String {
    let total = |get: fn(&Connection) -> f64| connections.iter().map(|(c, _)| get(c)).sum::<f64>();
    let counter = |name: &str| connections.iter().filter_map(|(c, _)| c.counters.get(name)).sum::<f64>();
    let outcomes = || connections.iter().filter_map(|(_, outcome)| *outcome);
    let bytes_sent = outcomes().filter_map(|o| o.sender.as_ref()).map(|s| s.bytes).sum::<u64>();
    let receivers = || outcomes().flat_map(|o| o.receivers.iter().filter_map(|(_, report)| report.as_ref()));
    let bytes_received = receivers().map(|r| r.arrivals.bytes).sum::<u64>();
    let count = |n: f64| Unit::Number.format(n);
    let of_sender = match connections.first().map(|(c, _)| c.transport.as_str()) {
        Some("tcp") => format!("{} retransmissions", count(counter("retransmissions"))),
        Some("guaranteed") => format!("{} frames resent", count(counter("sender_frames_resent"))),
        _ => format!("{} messages", count(total(|c| c.messages_sent as f64))),
    };
    let (sent, lost) = (total(|c| c.messages_sent as f64), total(|c| c.lost as f64));
    let share = if sent > 0.0 { lost / sent } else { 0.0 };
    let of_receiver =
        format!("{} of {} messages lost ({})", count(lost), count(sent), Unit::Share.format(share));
    let row = |end: &str, bytes: u64, bps: f64, rest: &str| {
        let (bytes, rate) = (Unit::Bytes.format(bytes as f64), Unit::BitsPerSecond.format(bps));
        format!("{name} {end:<9}{bytes:>11}{rate:>12}   {rest}\n")
    };
    let mut delay = Histogram::default();
    receivers().for_each(|r| delay.merge(&Histogram::from_counts(&r.delay)));
    let mut text = String::from("\n");
    text += &row("sender", bytes_sent, total(|c| c.sent_bps), &of_sender);
    text += &row("receiver", bytes_received, total(|c| c.received_bps), &of_receiver);
    let uncertainty = connections.iter().filter_map(|(c, _)| c.delay_uncertainty_us).reduce(f64::max);
    text += &delay.distribution_us().map_or(String::new(), |delay| delay_line(&delay, uncertainty));
    if let Some(note) = connections.iter().find_map(|(c, _)| c.notes.get("rate_limit")) {
        text += &format!("  {note}\n");
    }
    text + &processor_line(connections, total(|c| c.repetitions.iter().map(|r| r.duration_s).sum()))
}

fn delay_line(delay: &Distribution, uncertainty: Option<f64>) -> String {
    let us = |value: f64| Unit::Microseconds.format(value);
    let points = [("p50", delay.p50), ("p90", delay.p90), ("p99", delay.p99), ("p99.9", delay.p999)];
    let points: String = points.iter().map(|(name, value)| format!(", {name} {}", us(*value))).collect();
    let (min, max, jitter) = (us(delay.min), us(delay.max), us(delay.p99 - delay.min));
    let uncertainty = uncertainty.map(|error| format!(" (± {})", us(error))).unwrap_or_default();
    format!("  one-way delay{uncertainty}: min {min}{points}, max {max}; jitter (p99 - min) {jitter}\n")
}

/// Returns the processor time of both ends, as a share of a processor over the sending time.
fn processor_line(connections: &[(&Connection, Option<&RepetitionOutcome>)], sending_s: f64) -> String {
    // Connections run at the same time.
    let duration_s = sending_s / connections.len().max(1) as f64;
    let percent = |get: fn(&Connection) -> f64| {
        let cpu_s: f64 = connections.iter().map(|(c, _)| get(c)).sum();
        if duration_s > 0.0 { cpu_s / duration_s * 100.0 } else { 0.0 }
    };
    let [sender_user, sender_system] = [percent(|c| c.cpu.sender_user_s), percent(|c| c.cpu.sender_system_s)];
    let [receiver_user, receiver_system] =
        [percent(|c| c.cpu.receiver_user_s), percent(|c| c.cpu.receiver_system_s)];
    format!(
        "  processor: sender {:.1} % (user {sender_user:.1}, system {sender_system:.1}), receiver {:.1} % (user \
         {receiver_user:.1}, system {receiver_system:.1})\n",
        sender_user + sender_system,
        receiver_user + receiver_system
    )
}
