//! The line of each interval, from what the ends report while they run.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use trunkline_experiment::Plan;
use trunkline_experiment::plan::Protocol;
use trunkline_record::Histogram;
use trunkline_record::histogram::Counts;
use trunkline_report::Unit;
use trunkline_run::ProgressObserver;
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::reports::{Metrics, ReceiverReport};
use trunkline_units::{Instant, Span};

/// How long a line waits for reports of both ends. After that it has what was reported so far.
const REPORT_TIMEOUT: Span = Span::from_ms(300);
/// Maximum interval between reports.
const MAX_REPORT_INTERVAL: Span = Span::from_ms(500);
/// Maximum interval between reports on a terminal, which shows them at once.
const STATUS_INTERVAL: Span = Span::from_ms(250);

/// Prints a line for each interval and connection.
pub struct Lines<'p> {
    plan: &'p Plan,
    /// Length of an interval; none: no lines.
    interval: Option<Span>,
    connections: Vec<Progress>,
    /// Intervals printed.
    printed: u64,
    /// On a terminal, what has arrived since the last line.
    status: ProgressBar,
}

impl<'p> Lines<'p> {
    /// Prints lines of a plan; without an interval, or if it is zero, none.
    pub fn new(plan: &'p Plan, interval: Option<Span>) -> Self {
        let connections = plan.connections.iter().map(|_| Progress::default()).collect();
        let interval = interval.filter(|interval| !interval.is_zero());
        let status = match interval {
            Some(_) if io::stdout().is_terminal() => ProgressBar::new_spinner(),
            _ => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{msg}").expect("the template is valid");
        Lines { plan, interval, connections, printed: 0, status: status.with_style(style) }
    }

    /// Shows what has arrived since the last line.
    fn show_status(&self) {
        let Some(interval) = self.interval.filter(|_| !self.status.is_hidden()) else { return };
        let from = interval * self.printed;
        let now = self.connections.iter().map(Progress::elapsed).max().unwrap_or_default();
        if now > from {
            let totals =
                self.connections.iter().map(|c| c.outcome.as_ref().map_or_else(Totals::default, Totals::of));
            let before = self.connections.iter().map(|c| c.totals.bytes).sum::<u64>();
            let bytes = totals.map(|totals| totals.bytes).sum::<u64>().saturating_sub(before) as f64;
            let (time, rate) = (now - from, Unit::BitsPerSecond.format(bytes * 8.0 / (now - from).as_s()));
            let bytes = Unit::Bytes.format(bytes);
            let time = format!("{:.2}-{:.2} s", from.as_s(), (from + time).as_s());
            self.status.set_message(format!("{time:>13}  {:<11}{bytes:>11}{rate:>12}", "..."));
            self.status.tick();
        }
    }

    /// Returns the last report of each connection.
    pub fn outcomes(&self) -> impl Iterator<Item = Option<&RepetitionOutcome>> {
        self.connections.iter().map(|connection| connection.outcome.as_ref())
    }

    /// Prints the intervals that are left after the run; the last one may be shorter.
    pub fn finish(&mut self) {
        self.status.finish_and_clear();
        let Some(interval) = self.interval else { return };
        let end = self.connections.iter().map(Progress::elapsed).max().unwrap_or_default();
        // An interval that lacks a twentieth is complete: the last message is sent before the end.
        let complete = (end + interval / 20).as_ps() / interval.as_ps();
        for connection in &mut self.connections {
            while connection.measured < complete {
                connection.measure(interval);
            }
        }
        self.print_measured();
        let rest = Span::from_ps(end.as_ps().saturating_sub((interval * complete).as_ps()));
        if rest > interval / 20 {
            self.connections.iter_mut().for_each(|connection| connection.measure(rest));
            self.print_measured();
        }
    }

    /// Prints the intervals that are measured of all connections.
    fn print_measured(&mut self) {
        let Some(interval) = self.interval else { return };
        while self.connections.iter().all(|connection| !connection.lines.is_empty()) {
            let lines: Vec<Line> =
                self.connections.iter_mut().filter_map(|connection| connection.lines.pop_front()).collect();
            let protocol = &self.plan.connections[0].protocol;
            let start = interval * self.printed;
            let mut text = String::new();
            if self.printed == 0 {
                text += &heading(protocol);
            }
            for (line, connection) in lines.iter().zip(&self.plan.connections) {
                text += &line.format(protocol, start, &connection.name);
            }
            // Forward and reverse traffic are no sum.
            if self.plan.connections.iter().all(|c| c.from.host == self.plan.connections[0].from.host) {
                text += &sum(&lines).map_or(String::new(), |sum| sum.format(protocol, start, "sum"));
            }
            // Without a reader, the run continues and is stored.
            self.status.suspend(|| drop(io::stdout().lock().write_all(text.as_bytes())));
            self.printed += 1;
        }
    }
}

impl ProgressObserver for Lines<'_> {
    fn progress(&mut self, elapsed: Span, _: Option<Span>) {
        let Some(interval) = self.interval else { return };
        let now = Instant::ZERO + elapsed;
        for connection in &mut self.connections {
            // A receiver that waits for lost messages after the last one adds no intervals.
            while !connection.has_sender_ended()
                && connection.end_of_next(interval).is_some_and(|end| now >= end + REPORT_TIMEOUT)
            {
                connection.measure(interval);
            }
        }
        self.print_measured();
    }

    fn report_interval(&self) -> Option<Span> {
        let max = if self.status.is_hidden() { MAX_REPORT_INTERVAL } else { STATUS_INTERVAL };
        let interval = self.interval.unwrap_or(max);
        Some(interval / interval.as_ps().div_ceil(max.as_ps()))
    }

    fn report(&mut self, connection: usize, outcome: &RepetitionOutcome) {
        let Some(progress) = self.connections.get_mut(connection) else { return };
        let is_stream = !matches!(self.plan.connections[connection].protocol, Protocol::Udp { .. });
        progress.outcome = Some(outcome.clone());
        if let Some(metrics) = latest_metrics(outcome) {
            progress.metrics = metrics.clone();
        }
        self.show_status();
        let progress = &mut self.connections[connection];
        let Some(interval) = self.interval else { return };
        while progress.end_of_next(interval).is_some_and(|end| has_reached(outcome, end, is_stream)) {
            progress.measure(interval);
        }
        self.print_measured();
    }
}

/// Returns whether the reports include everything before `end`: of the receiver, and of the sender if its transport has
/// something to show.
fn has_reached(outcome: &RepetitionOutcome, end: Instant, needs_sender: bool) -> bool {
    let received = receiver(outcome).and_then(|r| r.arrivals.last).is_some_and(|last| last >= end);
    let sent = outcome.sender.as_ref().is_some_and(|s| s.start + s.sending_time >= end);
    received && (sent || !needs_sender)
}

fn receiver(outcome: &RepetitionOutcome) -> Option<&ReceiverReport> {
    outcome.receivers.iter().find_map(|(_, report)| report.as_ref())
}

/// Returns the latest metrics of the sender's transport.
fn latest_metrics(outcome: &RepetitionOutcome) -> Option<&Metrics> {
    outcome.sender.as_ref()?.samples.last().map(|(_, metrics)| metrics)
}

/// What a connection has reported, and its intervals that are not printed yet.
#[derive(Default)]
struct Progress {
    outcome: Option<RepetitionOutcome>,
    /// Intervals measured.
    measured: u64,
    lines: VecDeque<Line>,
    /// Totals at the end of the last interval.
    totals: Totals,
    /// The latest metrics of the transport. The final report of `guaranteed` has none.
    metrics: Metrics,
}

impl Progress {
    /// Returns the end of the interval that follows those measured.
    fn end_of_next(&self, interval: Span) -> Option<Instant> {
        self.outcome.as_ref().map(|outcome| outcome.start + interval * (self.measured + 1))
    }

    /// Returns whether the sender has sent its final report: only that has counters.
    fn has_sender_ended(&self) -> bool {
        let sender = self.outcome.as_ref().and_then(|outcome| outcome.sender.as_ref());
        sender.is_some_and(|sender| !sender.counters.is_empty())
    }

    /// Returns the time from the start until the last departure or arrival.
    fn elapsed(&self) -> Span {
        let Some(outcome) = &self.outcome else { return Span::ZERO };
        let received = receiver(outcome).and_then(|r| r.arrivals.last).map(|last| last.since(outcome.start));
        // A message that is in flight at the end belongs to the last interval.
        outcome.sender.as_ref().map(|s| s.sending_time).or(received).unwrap_or_default()
    }

    /// Adds an interval of this length, which ends with the latest report.
    fn measure(&mut self, length: Span) {
        let totals = self.outcome.as_ref().map_or_else(Totals::default, Totals::of);
        self.lines.push_back(Line { metrics: self.metrics.clone(), ..totals.since(&self.totals, length) });
        self.totals = totals;
        self.measured += 1;
    }
}

/// Measurements since the start of a connection.
#[derive(Clone, Default)]
struct Totals {
    bytes: u64,
    /// Messages that arrived, and one more than the highest sequence number.
    messages: u64,
    next_sequence: u64,
    delay: Counts,
    /// Segments or frames sent again.
    resent: f64,
}

impl Totals {
    fn of(outcome: &RepetitionOutcome) -> Totals {
        let counters = outcome.sender.as_ref().map(|s| &s.counters);
        let counter = |name: &str| counters.and_then(|counters| counters.get(name));
        let metric = |name: &str| latest_metrics(outcome).and_then(|metrics| metrics.get(name));
        // The counters of the final report; before, the metrics of a snapshot.
        let resent = counter("retransmissions").or_else(|| counter("sender_frames_resent"));
        let resent = resent.or_else(|| metric("retransmissions")).or_else(|| metric("frames_resent"));
        let received = receiver(outcome).cloned().unwrap_or_default();
        Totals {
            bytes: received.arrivals.bytes,
            messages: received.arrivals.messages + received.arrivals.corrupted,
            next_sequence: received.arrivals.next_sequence,
            delay: received.delay,
            resent: resent.copied().unwrap_or(0.0),
        }
    }

    /// Returns the line of an interval between two totals.
    fn since(&self, before: &Totals, length: Span) -> Line {
        let sent = self.next_sequence - before.next_sequence.min(self.next_sequence);
        let received = self.messages - before.messages.min(self.messages);
        Line {
            length,
            bytes: self.bytes - before.bytes.min(self.bytes),
            sent,
            lost: sent.saturating_sub(received),
            delay: Histogram::from_counts(&self.delay.since(&before.delay)),
            resent: (self.resent - before.resent).max(0.0),
            metrics: Metrics::new(),
        }
    }
}

/// The measurements of an interval.
struct Line {
    length: Span,
    bytes: u64,
    sent: u64,
    lost: u64,
    delay: Histogram,
    resent: f64,
    metrics: Metrics,
}

/// Width of the columns of the transport.
const COLUMN: usize = 12;

fn heading(protocol: &Protocol) -> String {
    let columns: &[&str] = match protocol {
        Protocol::Tcp { .. } => &["resent", "cwnd", "rtt"],
        Protocol::Guaranteed { .. } => &["resent", "rtt"],
        _ => &["lost", "of", "jitter"],
    };
    let columns: String = columns.iter().map(|name| format!("{name:>COLUMN$}")).collect();
    format!("{:>13}  {:<11}{:>11}{:>12}{columns}{:>COLUMN$}\n", "time", "", "received", "rate", "delay p50")
}

impl Line {
    fn format(&self, protocol: &Protocol, start: Span, name: &str) -> String {
        let count = |n: f64| Unit::Number.format(n);
        let metric = |name: &str, unit: Unit| {
            self.metrics.get(name).map_or_else(|| "-".to_owned(), |value| unit.format(*value))
        };
        let delay = self.delay.distribution_us();
        let us =
            |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| Unit::Microseconds.format(us));
        let mut columns = match protocol {
            Protocol::Tcp { .. } => vec![
                count(self.resent),
                metric("cwnd_bytes", Unit::Bytes),
                metric("rtt_us", Unit::Microseconds),
            ],
            Protocol::Guaranteed { .. } => vec![count(self.resent), metric("rtt_us", Unit::Microseconds)],
            _ => vec![
                count(self.lost as f64),
                count(self.sent as f64),
                us(delay.as_ref().map(|d| d.p99 - d.min)),
            ],
        };
        columns.push(us(delay.map(|d| d.p50)));
        let columns: String = columns.iter().map(|text| format!("{text:>COLUMN$}")).collect();
        let time = format!("{:.2}-{:.2} s", start.as_s(), (start + self.length).as_s());
        let rate = Unit::BitsPerSecond.format(self.bytes as f64 * 8.0 / self.length.as_s());
        let bytes = Unit::Bytes.format(self.bytes as f64);
        format!("{time:>13}  {name:<11}{bytes:>11}{rate:>12}{columns}\n")
    }
}

/// Adds the lines of several connections.
fn sum(lines: &[Line]) -> Option<Line> {
    let [first, _, ..] = lines else { return None };
    let mut sum = Line {
        delay: Histogram::default(),
        metrics: BTreeMap::new(),
        bytes: 0,
        sent: 0,
        lost: 0,
        resent: 0.0,
        ..*first
    };
    for line in lines {
        sum.bytes += line.bytes;
        sum.sent += line.sent;
        sum.lost += line.lost;
        sum.resent += line.resent;
        sum.delay.merge(&line.delay);
    }
    Some(sum)
}
