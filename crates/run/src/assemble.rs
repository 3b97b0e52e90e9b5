//! Builds the record's entry of a connection from the reports of its endpoints. All backends use it.

use std::collections::BTreeMap;

use trunkline_experiment::plan;
use trunkline_record::Histogram;
use trunkline_record::histogram::Counts;
use trunkline_record::schema::{Connection, Cpu, Distribution, Point, Receiver, Repetition};
use trunkline_units::{Instant, Span};

use crate::describe;
use crate::receiver_meter::Trend;
use crate::reports::{ReceiverReport, SenderReport, rate_bps};
use crate::series::Series;
use crate::stages::STAGES;

/// The reports of one run of a connection. The report of an endpoint that died is missing or partial.
#[derive(Clone, Debug, Default)]
pub struct RunOutcome {
    /// When the run began.
    pub start: Instant,
    /// Report of the sender.
    pub sender: Option<SenderReport>,
    /// Reports of the receivers, by host.
    pub receivers: Vec<(String, Option<ReceiverReport>)>,
    /// Why the run ended early, in one line; `None` if it did not.
    pub error: Option<String>,
}

impl RunOutcome {
    fn received(&self) -> impl Iterator<Item = &ReceiverReport> {
        self.receivers.iter().filter_map(|(_, r)| r.as_ref())
    }

    /// Returns the number of messages sent, as far as known.
    fn sent(&self) -> u64 {
        let seen = self.received().map(|r| r.arrivals.next_sequence).max().unwrap_or(0);
        self.sender.as_ref().map_or(seen, |s| s.messages.max(seen))
    }

    /// Returns the time over which a receiver's rate is computed: from the start until the sender ended or the last message
    /// arrived, whichever is later.
    fn receive_time(&self, receiver: &ReceiverReport) -> Span {
        let sending = self.sender.as_ref().map_or(Span::ZERO, |s| s.active);
        let until_last = receiver.arrivals.last.map_or(Span::ZERO, |last| last.since(self.start));
        sending.max(until_last)
    }

    fn received_bps(&self) -> f64 {
        let rates: Vec<f64> =
            self.received().map(|r| rate_bps(r.arrivals.bytes, self.receive_time(r))).collect();
        if rates.is_empty() { 0.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
    }

    /// Returns the number of messages lost on the way to a receiver. Corrupted messages are not lost. For a run that ended
    /// early, only messages before the last received one count: the others were in flight.
    fn lost_at(&self, receiver: &ReceiverReport) -> u64 {
        let sent = if self.error.is_some() { receiver.arrivals.next_sequence } else { self.sent() };
        sent.saturating_sub(receiver.arrivals.messages + receiver.arrivals.corrupted)
    }

    fn run(&self) -> Repetition {
        let sender = self.sender.clone().unwrap_or_default();
        let delay = merged(self.received().map(|r| &r.delay)).distribution_us();
        let rtt = Histogram::from_counts(&sender.rtt).distribution_us();
        Repetition {
            start_s: self.start.as_s(),
            duration_s: sender.active.as_s(),
            offered_bps: sender.offered_bps,
            sent_bps: sender.sent_bps(),
            received_bps: self.received_bps(),
            messages_sent: self.sent(),
            messages_received: self.received().map(|r| r.arrivals.messages).sum(),
            lost: self.received().map(|r| self.lost_at(r)).sum(),
            delay_p50_us: delay.as_ref().map(|d| d.p50),
            delay_p99_us: delay.as_ref().map(|d| d.p99),
            rtt_p50_us: rtt.map(|d| d.p50),
            partial: self.error.is_some(),
        }
    }
}

/// Builds the record's entry of a connection from all its runs.
pub fn connection(plan: &plan::Connection, outcomes: &[RunOutcome]) -> Connection {
    let runs: Vec<Repetition> = outcomes.iter().map(RunOutcome::run).collect();
    // A partial run would bias the mean rates, so it counts only if there is no complete run.
    let whole: Vec<&Repetition> = runs.iter().filter(|r| !r.partial).collect();
    let counted = if whole.is_empty() { runs.iter().collect() } else { whole };
    let senders: Vec<&SenderReport> = outcomes.iter().filter_map(|o| o.sender.as_ref()).collect();
    let receivers: Vec<&ReceiverReport> = outcomes.iter().flat_map(RunOutcome::received).collect();
    let sum = |f: fn(&ReceiverReport) -> u64| receivers.iter().map(|r| f(r)).sum::<u64>();
    let error = outcomes.iter().find_map(|o| o.error.clone());
    Connection {
        name: plan.name.clone(),
        transport: describe::transport(&plan.protocol).into(),
        test: describe::test(&plan.test),
        from: plan.from.host.clone(),
        to: plan.to.iter().map(|s| s.host.clone()).collect(),
        partial: error.is_some() || outcomes.is_empty(),
        error,
        offered_bps: mean(counted.iter().filter_map(|r| r.offered_bps)),
        sent_bps: mean(counted.iter().map(|r| r.sent_bps)).unwrap_or(0.0),
        received_bps: mean(counted.iter().map(|r| r.received_bps)).unwrap_or(0.0),
        messages_sent: runs.iter().map(|r| r.messages_sent).sum(),
        messages_received: sum(|r| r.arrivals.messages),
        lost: runs.iter().map(|r| r.lost).sum(),
        duplicated: sum(|r| r.arrivals.duplicated),
        reordered: sum(|r| r.arrivals.reordered),
        corrupted: sum(|r| r.arrivals.corrupted),
        delay_us: merged(receivers.iter().map(|r| &r.delay)).distribution_us(),
        rtt_us: merged(senders.iter().map(|s| &s.rtt)).distribution_us(),
        gap_us: merged(receivers.iter().map(|r| &r.gap)).distribution_us(),
        sent_gap_us: merged(senders.iter().map(|s| &s.gap)).distribution_us(),
        late_us: merged(senders.iter().map(|s| &s.lateness)).distribution_us(),
        // Of several runs, the one with the largest error.
        requested: senders
            .iter()
            .map(|s| &s.requested)
            .max_by(|a, b| worst_error(a).total_cmp(&worst_error(b)))
            .cloned()
            .unwrap_or_default(),
        repeats: if runs.len() > 1 { trunkline_record::repeats::summarize(&runs) } else { BTreeMap::new() },
        repetitions: runs,
        cpu: Cpu {
            sender_user_s: senders.iter().map(|s| s.cpu.0.as_s()).sum(),
            sender_system_s: senders.iter().map(|s| s.cpu.1.as_s()).sum(),
            receiver_user_s: receivers.iter().map(|r| r.cpu.0.as_s()).sum(),
            receiver_system_s: receivers.iter().map(|r| r.cpu.1.as_s()).sum(),
        },
        counters: merge_counters(&senders, &receivers),
        stages_us: stage_distributions(plan, outcomes),
        notes: senders
            .iter()
            .flat_map(|s| &s.notes)
            .chain(receivers.iter().flat_map(|r| &r.notes))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        receivers: if plan.to.len() > 1 { receiver_entries(plan, outcomes) } else { Vec::new() },
        series: merge_series(outcomes),
    }
}

fn worst_error(asked: &trunkline_record::schema::SendAccuracy) -> f64 {
    asked.gap_distance.or(asked.rate_error.map(f64::abs)).unwrap_or(0.0)
}

fn merged<'a>(parts: impl Iterator<Item = &'a Counts>) -> Histogram {
    let mut all = Histogram::default();
    parts.for_each(|p| all.merge(&Histogram::from_counts(p)));
    all
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u64, 0.0), |(n, sum), v| (n + 1, sum + v));
    (n > 0).then(|| sum / n as f64)
}

/// Merges counters of runs and receivers: counts are added, gauges keep their maximum.
fn merge_counters(senders: &[&SenderReport], receivers: &[&ReceiverReport]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let parts = senders.iter().map(|s| &s.counters).chain(receivers.iter().map(|r| &r.counters));
    for (name, value) in parts.flatten() {
        let entry = all.entry(name.clone()).or_insert(0.0);
        *entry = if is_gauge(name) { f64::max(*entry, *value) } else { *entry + *value };
    }
    all.insert("strangers".into(), receivers.iter().map(|r| r.arrivals.unknown_peers).sum::<u64>() as f64);
    all
}

/// Merges the stages of all runs; stages without measurements are null. Only the guaranteed transport has stages.
fn stage_distributions(
    plan: &plan::Connection,
    outcomes: &[RunOutcome],
) -> BTreeMap<String, Option<Distribution>> {
    if !matches!(plan.protocol, plan::Protocol::Guaranteed { .. }) {
        return BTreeMap::new();
    }
    let mut all: BTreeMap<&str, Histogram> = BTreeMap::new();
    for outcome in outcomes {
        let receivers = outcome.received().map(|r| &r.stages);
        for (name, counts) in outcome.sender.iter().map(|s| &s.stages).chain(receivers).flatten() {
            all.entry(name).or_default().merge(&Histogram::from_counts(counts));
        }
        // The network stage follows from frames recorded at both ends.
        for (sender, receiver) in outcome.sender.iter().zip(outcome.received()) {
            all.entry("network").or_default().merge(&sender.departures.delays_to(&receiver.frame_arrivals));
        }
    }
    let of = |name: &str| (name.to_owned(), all.get(name).and_then(Histogram::distribution_us));
    STAGES.into_iter().map(of).collect()
}

fn is_gauge(name: &str) -> bool {
    name.ends_with("_buffer_bytes")
        || name.ends_with("_mss_bytes")
        || name.ends_with("_percent")
        || name.starts_with("token_")
        || matches!(name, "llc_priority" | "llc_tries_max")
}

fn receiver_entries(plan: &plan::Connection, outcomes: &[RunOutcome]) -> Vec<Receiver> {
    let of = |host: &str| {
        let mine: Vec<(&RunOutcome, &ReceiverReport)> = outcomes
            .iter()
            .flat_map(|o| o.receivers.iter().map(move |(h, r)| (o, h, r)))
            .filter(|(_, h, _)| *h == host)
            .filter_map(|(o, _, r)| Some((o, r.as_ref()?)))
            .collect();
        Receiver {
            host: host.into(),
            received_bps: mean(mine.iter().map(|(o, r)| rate_bps(r.arrivals.bytes, o.receive_time(r))))
                .unwrap_or(0.0),
            messages_received: mine.iter().map(|(_, r)| r.arrivals.messages).sum(),
            lost: mine.iter().map(|(o, r)| o.lost_at(r)).sum(),
            delay_us: merged(mine.iter().map(|(_, r)| &r.delay)).distribution_us(),
        }
    };
    plan.to.iter().map(|s| of(&s.host)).collect()
}

/// Merges the series of both directions of all runs on one time axis: seconds since the first run began.
fn merge_series(outcomes: &[RunOutcome]) -> Vec<Point> {
    let origin = outcomes.first().map_or(Instant::ZERO, |o| o.start);
    let mut points: Vec<Point> = Vec::new();
    for outcome in outcomes {
        let offset_s = outcome.start.since(origin).as_s();
        // Add a point of zero between two runs; otherwise a plot would draw a line through the pause.
        if points.last().is_some_and(|last| last.t_s < offset_s) {
            points.push(Point { t_s: offset_s, ..Point::default() });
        }
        points.extend(run_series(outcome, offset_s));
    }
    points
}

fn run_series(outcome: &RunOutcome, offset_s: f64) -> Vec<Point> {
    let mut sent = outcome.sender.as_ref().map(|s| s.series.clone()).unwrap_or_default();
    let mut received = Series::default();
    outcome.received().for_each(|r| received.merge(r.series.clone()));
    sent.align(&mut received);
    let mut received_series = received.clone();
    let step = sent.interval().as_s();
    let share = 1.0 / outcome.received().count().max(1) as f64;
    let end =
        outcome.received().map(|r| outcome.receive_time(r)).chain(outcome.sender.as_ref().map(|s| s.active));
    let end = end.max().unwrap_or_default().as_s();
    let bits = |series: &Series| series.bytes().iter().map(|b| *b as f64 * 8.0).collect::<Vec<_>>();
    let (sent, received) = (bits(&sent), bits(&received));
    let mut points: Vec<Point> = Vec::new();
    let mut from = 0.0;
    let (mut sent_bits, mut received_bits) = (0.0, 0.0);
    let count = sent.len().max(received.len());
    for i in 0..count {
        sent_bits += sent.get(i).copied().unwrap_or(0.0);
        received_bits += received.get(i).copied().unwrap_or(0.0) * share;
        // The last interval ends with the traffic, so its rate is over a shorter time.
        let until = if i + 1 == count { end.clamp(from, step * count as f64) } else { step * (i + 1) as f64 };
        match points.last_mut() {
            // Merge a very short last interval into the previous one.
            Some(last) if until - from < step / 10.0 => {
                let width = last.t_s - offset_s - (from - step);
                let grown = width + until - from;
                last.sent_bps = (last.sent_bps * width + sent_bits) / grown;
                last.received_bps = (last.received_bps * width + received_bits) / grown;
                last.t_s = offset_s + until;
            }
            _ => {
                let width = if until > from { until - from } else { step };
                points.push(Point {
                    t_s: offset_s + from + width,
                    sent_bps: sent_bits / width,
                    received_bps: received_bits / width,
                    extra: BTreeMap::new(),
                });
            }
        }
        (from, sent_bits, received_bits) = (until, 0.0, 0.0);
    }
    let mut trend = Trend::default();
    for r in outcome.received() {
        trend.messages.merge(r.trend.messages.clone());
        trend.delay_ns.merge(r.trend.delay_ns.clone());
    }
    trend.messages.align(&mut received_series);
    trend.delay_ns.align(&mut received_series);
    let means =
        trend.messages.bytes().iter().zip(trend.delay_ns.bytes()).map(|(n, ns)| (*n as f64, *ns as f64));
    for (point, (n, ns)) in points.iter_mut().zip(means).filter(|(_, (n, _))| *n > 0.0) {
        point.extra.insert("delay_us".into(), ns / n / 1e3);
        point.extra.insert("gap_us".into(), step * 1e6 / (n * share));
    }
    for (t, figures) in outcome.sender.iter().flat_map(|s| &s.samples) {
        if let Some(point) = points.get_mut((t / step) as usize) {
            point.extra.extend(figures.clone());
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::plan::{Protocol, Station, Stop};
    use trunkline_record::schema::SendAccuracy;
    use trunkline_traffic::{Pattern, Variable};

    use super::*;
    use crate::message::{Header, MessageKind};
    use crate::receiver_meter::ReceiverMeter;

    fn station(host: &str) -> Station {
        Station { host: host.into(), buffer: None, port: None, place: Default::default() }
    }

    fn plan(receivers: &[&str]) -> plan::Connection {
        plan::Connection {
            name: "a-b".into(),
            from: station("a"),
            to: receivers.iter().map(|r| station(r)).collect(),
            xmtcntl: "a".into(),
            rcvcntl: "b".into(),
            rep: "a".into(),
            protocol: Protocol::Udp { flow: true },
            test: Pattern::Full { size_bytes: Variable::Constant(1000.0) },
            delay_s: Variable::Constant(0.0),
            stop: Stop::DurationS(Variable::Constant(1.0)),
            place: Default::default(),
            asks: Default::default(),
        }
    }

    /// One second of 1000-byte messages, one per millisecond. Every `keep`-th message arrives, 2 ms later.
    fn outcome(start: Instant, hosts: &[&str], keep: u64) -> RunOutcome {
        let mut series = Series::default();
        let mut meter = ReceiverMeter::new(start);
        for sequence in 0..1000 {
            let sent = start + Span::from_ms(sequence);
            series.add(sent.since(start), 1000);
            if sequence % keep == 0 {
                let header = Header {
                    sequence,
                    sent_at: sent,
                    length: 1000,
                    response_length: 0,
                    kind: MessageKind::Pattern,
                };
                meter.record(&header, sent + Span::from_ms(2));
            }
        }
        let sender = SenderReport {
            start,
            active: Span::from_s(1),
            messages: 1000,
            bytes: 1_000_000,
            series,
            requested: SendAccuracy { gap_distance: Some(1.0 / keep as f64), ..SendAccuracy::default() },
            counters: [("sender_system_calls".into(), 1000.0), ("sender_buffer_bytes".into(), 4096.0)].into(),
            ..SenderReport::default()
        };
        let report = ReceiverReport::from_meter(&meter);
        let receivers = hosts.iter().map(|h| (h.to_string(), Some(report.clone()))).collect();
        RunOutcome { start, sender: Some(sender), receivers, error: None }
    }

    #[test]
    fn figures_add_up_over_runs_and_receivers() {
        let runs = [
            outcome(Instant::ZERO, &["b", "c"], 1),
            outcome(Instant::from_ns(5_000_000_000), &["b", "c"], 2),
        ];
        let c = connection(&plan(&["b", "c"]), &runs);
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (2000, 2 * 1500, 2 * 500));
        assert_eq!((c.sent_bps, c.repetitions[0].received_bps), (8e6, 8e6 / 1.001));
        assert_eq!(c.repetitions[1].start_s, 5.0);
        assert!((c.delay_us.unwrap().p50 - 2000.0).abs() < 3.0);
        assert_eq!((c.receivers.len(), c.receivers[1].lost), (2, 500));
        assert_eq!(c.repeats["sent_bps"].mean, 8e6);
        assert_eq!((c.counters["sender_system_calls"], c.counters["sender_buffer_bytes"]), (2000.0, 4096.0));
        // The run with the largest error.
        assert_eq!(c.requested.gap_distance, Some(1.0));
        assert!(!c.partial);
    }

    #[test]
    fn a_series_contains_every_byte() {
        let c = connection(&plan(&["b"]), &[outcome(Instant::ZERO, &["b"], 1)]);
        let mut from = 0.0;
        let (mut sent, mut received) = (0.0, 0.0);
        let delays: Vec<f64> = c.series.iter().filter_map(|p| p.extra.get("delay_us").copied()).collect();
        assert!(delays.len() > 90 && delays.iter().all(|d| (d - 2000.0).abs() < 1.0), "{delays:?}");
        for p in &c.series {
            assert!(p.t_s > from && p.sent_bps < 9e6, "{p:?}");
            sent += p.sent_bps * (p.t_s - from) / 8.0;
            received += p.received_bps * (p.t_s - from) / 8.0;
            from = p.t_s;
        }
        assert!((sent - 1e6).abs() < 1.0 && (received - 1e6).abs() < 1.0, "{sent} {received}");
        assert!((from - 1.001).abs() < 1e-9, "{from}");
    }

    #[test]
    fn a_dead_sender_gives_a_partial_result() {
        let mut dead = outcome(Instant::ZERO, &["b"], 2);
        dead.sender = None;
        dead.error = Some("host a: its agent was killed by signal 9".into());
        let c = connection(&plan(&["b"]), &[dead]);
        assert!(c.partial && c.error.unwrap().contains("signal 9"));
        // 999 is the highest sequence number sent, 998 the highest seen.
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (999, 500, 499));
        let nothing = connection(&plan(&["b"]), &[]);
        assert!(nothing.partial && nothing.delay_us.is_none() && nothing.series.is_empty());
    }
}
