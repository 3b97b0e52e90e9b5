//! Builds the record's entry of a connection from the reports of its ends, which the meters fill. All backends use it.
//!
//! What the author of a new field must know:
//!
//! - An end reports while it runs and when it has ended. Of an end that was killed, the record has the last report it sent.
//! - A receiver counts what arrives ([`Arrivals`](crate::receiver_meter::Arrivals)). It cannot count messages that are lost
//!   after the last one it received; only `lost_at` in this module knows the number of sent messages.
//! - Corrupted messages have no sequence number, so they are a count of their own, neither received nor lost.
//! - For an aborted repetition, losses count up to the highest sequence number received, because later messages may have
//!   been in flight.
//! - Over repetitions, counts are added, rates are averaged (aborted repetitions excluded, unless there is no other), and
//!   distributions contain every message. With several receivers, counts are added and rates are averaged.

use std::collections::BTreeMap;

use trunkline_experiment::{dscp_text, plan};
use trunkline_record::histogram::Counts;
use trunkline_record::schema::{
    Connection, Cpu, Distribution, Fit, Point, Receiver, Repetition, SendAccuracy, Worst,
};
use trunkline_record::{Histogram, repeats};
use trunkline_units::{Instant, Span};

use crate::describe;
use crate::receiver_meter::Trend;
use crate::reports::{ReceiverReport, ResponderCounts, SenderReport, rate_bps};
use crate::series::Series;
use crate::stages::STAGES;

/// The reports of one repetition of a connection. The report of an end that died is missing or partial.
#[derive(Clone, Debug, Default)]
pub struct RepetitionOutcome {
    /// When the first message was due.
    pub start: Instant,
    /// Report of the sender.
    pub sender: Option<SenderReport>,
    /// Reports of the receivers, by host.
    pub receivers: Vec<(String, Option<ReceiverReport>)>,
    /// Why the repetition was aborted, in one line; `None` if it was not.
    pub error: Option<String>,
    /// Maximum error of the one-way delays, if the ends have clocks of their own; [`Span::MAX`] if it is not known.
    pub delay_uncertainty: Option<Span>,
}

impl RepetitionOutcome {
    fn receiver_reports(&self) -> impl Iterator<Item = &ReceiverReport> {
        self.receivers.iter().filter_map(|(_, report)| report.as_ref())
    }

    /// Returns the number of messages sent, as far as known: a killed sender may have sent more than it had reported.
    fn messages_sent(&self) -> u64 {
        let seen = self.receiver_reports().map(|r| r.arrivals.next_sequence).max().unwrap_or(0);
        self.sender.as_ref().map_or(seen, |s| s.messages.max(seen))
    }

    /// Returns the time over which a receiver's rate is computed: from the start until the end of the sending time or the
    /// last arrival, whichever is later.
    fn receiving_time(&self, receiver: &ReceiverReport) -> Span {
        let sending_time = self.sender.as_ref().map_or(Span::ZERO, |s| s.sending_time);
        let until_last = receiver.arrivals.last.map_or(Span::ZERO, |last| last.since(self.start));
        sending_time.max(until_last)
    }

    fn received_bps(&self) -> f64 {
        let rates: Vec<f64> =
            self.receiver_reports().map(|r| rate_bps(r.arrivals.bytes, self.receiving_time(r))).collect();
        if rates.is_empty() { 0.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
    }

    /// Returns the rate of messages handed to the transport over the time until the last arrival at any receiver.
    fn sent_until_last_bps(&self) -> Option<f64> {
        let time = self.receiver_reports().map(|receiver| self.receiving_time(receiver)).max()?;
        Some(rate_bps(self.sender.as_ref()?.bytes, time))
    }

    /// Returns the number of messages lost on the way to a receiver. Corrupted messages are not lost. In an aborted
    /// repetition only messages before the last received one count: later ones may have been in flight.
    fn lost_at(&self, receiver: &ReceiverReport) -> u64 {
        let sent = if self.error.is_some() { receiver.arrivals.next_sequence } else { self.messages_sent() };
        sent.saturating_sub(receiver.arrivals.messages + receiver.arrivals.corrupted)
    }

    /// Returns why the repetition failed: it was aborted, or receivers failed, all in one line.
    fn failure(&self) -> Option<String> {
        let failures = self.receivers.iter().filter_map(|(host, report)| {
            let error = report.as_ref()?.error.as_ref()?;
            Some(format!("host {host}: {error}"))
        });
        let of_receivers = || failures.reduce(|all, error| format!("{all}; {error}"));
        self.error.clone().or_else(of_receivers)
    }

    fn repetition(&self) -> Repetition {
        let sender = self.sender.clone().unwrap_or_default();
        let delay = merge_histograms(self.receiver_reports().map(|r| &r.delay)).distribution_us();
        let rtt = Histogram::from_counts(&sender.rtt).distribution_us();
        Repetition {
            start_s: self.start.as_s(),
            duration_s: sender.sending_time.as_s(),
            offered_bps: sender.offered_bps,
            sent_bps: sender.sent_bps(),
            sent_until_last_bps: self.sent_until_last_bps(),
            received_bps: self.received_bps(),
            messages_sent: self.messages_sent(),
            messages_received: self.receiver_reports().map(|r| r.arrivals.messages).sum(),
            lost: self.receiver_reports().map(|r| self.lost_at(r)).sum(),
            delay_p50_us: delay.as_ref().map(|d| d.p50),
            delay_p99_us: delay.as_ref().map(|d| d.p99),
            rtt_p50_us: rtt.map(|d| d.p50),
            partial: self.failure().is_some(),
        }
    }
}

/// Builds the record's entry of a connection from all its repetitions.
pub fn connection(plan: &plan::Connection, outcomes: &[RepetitionOutcome]) -> Connection {
    let repetitions: Vec<Repetition> = outcomes.iter().map(RepetitionOutcome::repetition).collect();
    // An aborted repetition would bias the mean rates, so it counts only if there is no complete one.
    let complete: Vec<&Repetition> = repetitions.iter().filter(|r| !r.partial).collect();
    let averaged = if complete.is_empty() { repetitions.iter().collect() } else { complete };
    let senders: Vec<&SenderReport> = outcomes.iter().filter_map(|o| o.sender.as_ref()).collect();
    let receivers: Vec<&ReceiverReport> =
        outcomes.iter().flat_map(RepetitionOutcome::receiver_reports).collect();
    let sum = |get: fn(&ReceiverReport) -> u64| receivers.iter().map(|r| get(r)).sum::<u64>();
    let error = outcomes.iter().find_map(RepetitionOutcome::failure);
    let delay_uncertainty = outcomes.iter().filter_map(|o| o.delay_uncertainty).max();
    let is_delay_known = delay_uncertainty != Some(Span::MAX);
    let delay = merge_histograms(receivers.iter().map(|r| &r.delay)).distribution_us();
    let mut notes: BTreeMap<String, String> = senders
        .iter()
        .flat_map(|s| &s.notes)
        .chain(receivers.iter().flat_map(|r| &r.notes))
        .map(|(k, v)| (k.clone(), v.clone()))
        .chain(plan.dscp.map(|dscp| ("dscp".to_owned(), dscp_text(dscp))))
        .collect();
    if !is_delay_known {
        notes.insert("delay".into(), "unknown: the offset of a clock is not known".into());
    }
    Connection {
        name: plan.name.clone(),
        transport: plan.protocol.name().into(),
        test: describe::test(&plan.test),
        from: plan.from.host.clone(),
        to: plan.to.iter().map(|s| s.host.clone()).collect(),
        partial: error.is_some() || outcomes.is_empty(),
        error,
        offered_bps: mean(averaged.iter().filter_map(|r| r.offered_bps)),
        sent_bps: mean(averaged.iter().map(|r| r.sent_bps)).unwrap_or(0.0),
        sent_until_last_bps: mean(averaged.iter().filter_map(|r| r.sent_until_last_bps)),
        received_bps: mean(averaged.iter().map(|r| r.received_bps)).unwrap_or(0.0),
        messages_sent: repetitions.iter().map(|r| r.messages_sent).sum(),
        messages_received: sum(|r| r.arrivals.messages),
        lost: repetitions.iter().map(|r| r.lost).sum(),
        duplicated: sum(|r| r.arrivals.duplicated),
        reordered: sum(|r| r.arrivals.reordered),
        corrupted: sum(|r| r.arrivals.corrupted),
        delay_us: delay.filter(|_| is_delay_known),
        delay_uncertainty_us: delay_uncertainty.filter(|_| is_delay_known).map(Span::as_us),
        rtt_us: merge_histograms(senders.iter().map(|s| &s.rtt)).distribution_us(),
        closed_loop_rtt_us: merge_histograms(senders.iter().map(|s| &s.closed_loop_rtt)).distribution_us(),
        gap_us: merge_histograms(receivers.iter().map(|r| &r.gap)).distribution_us(),
        sent_gap_us: merge_histograms(senders.iter().map(|s| &s.gap)).distribution_us(),
        late_us: merge_histograms(senders.iter().map(|s| &s.lateness)).distribution_us(),
        requested: requested(plan, outcomes),
        repeats: if repetitions.len() > 1 { repeats::summarize(&repetitions) } else { BTreeMap::new() },
        repetitions,
        cpu: Cpu {
            sender_user_s: senders.iter().map(|s| s.cpu.0.as_s()).sum(),
            sender_system_s: senders.iter().map(|s| s.cpu.1.as_s()).sum(),
            receiver_user_s: receivers.iter().map(|r| r.cpu.0.as_s()).sum(),
            receiver_system_s: receivers.iter().map(|r| r.cpu.1.as_s()).sum(),
        },
        counters: merge_counters(&senders, &receivers),
        stages_us: stage_distributions(plan, outcomes),
        notes,
        receivers: if plan.to.len() > 1 { receiver_entries(plan, outcomes) } else { Vec::new() },
        series: merge_series(outcomes),
    }
}

/// Returns the comparison of the repetition with the largest error, with the fits at the receivers.
fn requested(plan: &plan::Connection, outcomes: &[RepetitionOutcome]) -> SendAccuracy {
    let all =
        || outcomes.iter().enumerate().filter_map(|(index, o)| Some((index, &o.sender.as_ref()?.requested)));
    let Some((repetition, requested)) = all().max_by(|(_, a), (_, b)| error_of(a).total_cmp(&error_of(b)))
    else {
        return SendAccuracy::default();
    };
    let (of, mut requested) = (all().count() as u64, requested.clone());
    let worst = Worst { host: plan.from.host.clone(), repetition: repetition as u64, of };
    if of > 1 {
        requested.variables.iter_mut().for_each(|fit| fit.worst = Some(worst.clone()));
    }
    SendAccuracy { received: received_fits(outcomes), ..requested }
}

/// Returns the fit of each variable at the receivers, of the receiver and repetition where it is worst. A report has the distance of
/// a sample and not its values, so that those of several cannot be merged.
fn received_fits(outcomes: &[RepetitionOutcome]) -> Vec<Fit> {
    let mut names: Vec<&str> = Vec::new();
    let mut samples: Vec<(&Fit, &str, usize)> = Vec::new();
    for (repetition, outcome) in outcomes.iter().enumerate() {
        for (host, report) in &outcome.receivers {
            for fit in report.iter().flat_map(|report| &report.fits) {
                if !names.contains(&fit.name.as_str()) {
                    names.push(&fit.name);
                }
                samples.push((fit, host, repetition));
            }
        }
    }
    let worst = |name: &str| {
        let of_name = || samples.iter().filter(|(fit, ..)| fit.name == name);
        let (fit, host, repetition) = of_name().min_by(|(a, ..), (b, ..)| {
            let p = |fit: &Fit| fit.p_value.unwrap_or(1.0);
            p(a).total_cmp(&p(b)).then(b.distance.total_cmp(&a.distance))
        })?;
        let of = of_name().count() as u64;
        let worst = Worst { host: (*host).to_owned(), repetition: *repetition as u64, of };
        Some(Fit { worst: (of > 1).then_some(worst), ..(*fit).clone() })
    };
    names.into_iter().filter_map(worst).collect()
}

/// Returns the gap error, or the rate error of traffic without gaps.
fn error_of(requested: &SendAccuracy) -> f64 {
    requested.gap_distance.or(requested.rate_error.map(f64::abs)).unwrap_or(0.0)
}

fn merge_histograms<'a>(histograms: impl Iterator<Item = &'a Counts>) -> Histogram {
    let mut all = Histogram::default();
    histograms.for_each(|counts| all.merge(&Histogram::from_counts(counts)));
    all
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0u64, 0.0), |(n, sum), v| (n + 1, sum + v));
    (n > 0).then(|| sum / n as f64)
}

/// Merges counters of repetitions and receivers: counts are added, gauges keep their maximum, and means are averaged.
fn merge_counters(senders: &[&SenderReport], receivers: &[&ReceiverReport]) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let reported = senders.iter().map(|s| &s.counters).chain(receivers.iter().map(|r| &r.counters));
    for (name, value) in reported.flatten() {
        let entry = all.entry(name.clone()).or_insert(0.0);
        *entry = if is_gauge(name) { f64::max(*entry, *value) } else { *entry + *value };
    }
    for (name, sum) in all.iter_mut().filter(|(name, _)| name.starts_with("mean_")) {
        *sum /= senders.iter().filter(|sender| sender.counters.contains_key(name)).count().max(1) as f64;
    }
    all.insert("strangers".into(), receivers.iter().map(|r| r.arrivals.unknown_peers).sum::<u64>() as f64);
    all
}

/// Merges the stages of all repetitions; stages without measurements are null. Only the guaranteed transport has stages.
fn stage_distributions(
    plan: &plan::Connection,
    outcomes: &[RepetitionOutcome],
) -> BTreeMap<String, Option<Distribution>> {
    if !matches!(plan.protocol, plan::Protocol::Guaranteed { .. }) {
        return BTreeMap::new();
    }
    let mut all: BTreeMap<&str, Histogram> = BTreeMap::new();
    for outcome in outcomes {
        let of_receivers = outcome.receiver_reports().map(|r| &r.stages);
        for (name, counts) in outcome.sender.iter().map(|s| &s.stages).chain(of_receivers).flatten() {
            all.entry(name).or_default().merge(&Histogram::from_counts(counts));
        }
        // The network stage follows from the timestamps of frames at both ends.
        for (sender, receiver) in outcome.sender.iter().zip(outcome.receiver_reports()) {
            all.entry("network")
                .or_default()
                .merge(&sender.frame_departures.delays_to(&receiver.frame_arrivals));
        }
    }
    let stage = |name: &str| (name.to_owned(), all.get(name).and_then(Histogram::distribution_us));
    STAGES.into_iter().map(stage).collect()
}

/// Returns whether a counter is a level, such as a size or a priority, of which a sum is meaningless.
fn is_gauge(name: &str) -> bool {
    name.ends_with("_buffer_bytes")
        || name.ends_with("_mss_bytes")
        || name.ends_with("_mtu_bytes")
        || name.ends_with("_percent")
        || name.starts_with("token_")
        || matches!(name, "llc_priority" | "llc_tries_max" | "handshake_us")
}

/// Returns the entries of the receivers, one for each receiving host of the plan.
fn receiver_entries(plan: &plan::Connection, outcomes: &[RepetitionOutcome]) -> Vec<Receiver> {
    let entry = |(index, host): (usize, &str)| {
        let reports: Vec<(&RepetitionOutcome, &ReceiverReport)> = outcomes
            .iter()
            .flat_map(|outcome| outcome.receivers.iter().map(move |(name, report)| (outcome, name, report)))
            .filter(|(_, name, _)| *name == host)
            .filter_map(|(outcome, _, report)| Some((outcome, report.as_ref()?)))
            .collect();
        let is_group = matches!(plan.protocol, plan::Protocol::Multicast { .. });
        let sum = |count: fn(&ResponderCounts) -> u64| {
            let senders = outcomes.iter().filter(|_| is_group).filter_map(|outcome| outcome.sender.as_ref());
            senders.filter_map(|sender| sender.responders.get(index)).map(count).reduce(|a, b| a + b)
        };
        let rates = reports.iter().map(|(o, r)| rate_bps(r.arrivals.bytes, o.receiving_time(r)));
        Receiver {
            host: host.into(),
            received_bps: mean(rates).unwrap_or(0.0),
            messages_received: reports.iter().map(|(_, r)| r.arrivals.messages).sum(),
            lost: reports.iter().map(|(o, r)| o.lost_at(r)).sum(),
            delay_us: merge_histograms(reports.iter().map(|(_, r)| &r.delay)).distribution_us(),
            answers: sum(|counts| counts.responses),
            unanswered: sum(|counts| counts.unanswered),
            error: reports.iter().find_map(|(_, r)| r.error.clone()),
        }
    };
    plan.to.iter().map(|s| s.host.as_str()).enumerate().map(entry).collect()
}

/// Merges the series of both directions of all repetitions on one time axis: seconds since the first repetition began.
fn merge_series(outcomes: &[RepetitionOutcome]) -> Vec<Point> {
    let origin = outcomes.first().map_or(Instant::ZERO, |o| o.start);
    let mut points: Vec<Point> = Vec::new();
    for outcome in outcomes {
        let offset_s = outcome.start.since(origin).as_s();
        // Add a point of zero between two repetitions; otherwise a plot would draw a line through the pause.
        if points.last().is_some_and(|last| last.t_s < offset_s) {
            points.push(Point { t_s: offset_s, ..Point::default() });
        }
        points.extend(repetition_series(outcome, offset_s));
    }
    points
}

/// Returns the series of one repetition, whose first message was due at `offset_s`.
fn repetition_series(outcome: &RepetitionOutcome, offset_s: f64) -> Vec<Point> {
    let mut sent = outcome.sender.as_ref().map(|s| s.series.clone()).unwrap_or_default();
    let mut received = Series::default();
    outcome.receiver_reports().for_each(|r| received.merge(r.series.clone()));
    sent.align(&mut received);
    let step = sent.interval().as_s();
    let receiver_count = outcome.receiver_reports().count();
    // With several receivers a point has their mean.
    let per_receiver = 1.0 / receiver_count.max(1) as f64;
    let receiving_times = outcome.receiver_reports().map(|r| outcome.receiving_time(r));
    let traffic_ends = receiving_times.chain(outcome.sender.as_ref().map(|s| s.sending_time)).max();
    let traffic_ends = traffic_ends.unwrap_or_default().as_s();
    let bits = |series: &Series| series.sums().iter().map(|bytes| *bytes as f64 * 8.0).collect::<Vec<_>>();
    let (bits_sent, bits_received) = (bits(&sent), bits(&received));
    let mut points: Vec<Point> = Vec::new();
    let mut from = 0.0;
    let count = bits_sent.len().max(bits_received.len());
    for i in 0..count {
        let interval_sent = bits_sent.get(i).copied().unwrap_or(0.0);
        let interval_received = bits_received.get(i).copied().unwrap_or(0.0) * per_receiver;
        // The last interval ends with the traffic, so its rate is over a shorter time.
        let is_last = i + 1 == count;
        let to = if is_last { traffic_ends.clamp(from, step * count as f64) } else { step * (i + 1) as f64 };
        match points.last_mut() {
            // Merge a very short last interval into the previous one.
            Some(previous) if to - from < step / 10.0 => {
                let width = previous.t_s - offset_s - (from - step);
                let merged_width = width + to - from;
                previous.sent_bps = (previous.sent_bps * width + interval_sent) / merged_width;
                previous.received_bps = (previous.received_bps * width + interval_received) / merged_width;
                previous.t_s = offset_s + to;
            }
            _ => {
                let width = if to > from { to - from } else { step };
                points.push(Point {
                    t_s: offset_s + from + width,
                    sent_bps: interval_sent / width,
                    received_bps: interval_received / width,
                    extra: BTreeMap::new(),
                });
            }
        }
        from = to;
    }
    let mut trend = Trend::default();
    for r in outcome.receiver_reports() {
        trend.messages.merge(r.trend.messages.clone());
        trend.delay_ns.merge(r.trend.delay_ns.clone());
    }
    trend.messages.align(&mut received);
    trend.delay_ns.align(&mut received);
    let sums = trend.messages.sums().iter().zip(trend.delay_ns.sums());
    let sums = sums.map(|(messages, delay_ns)| (*messages as f64, *delay_ns as f64));
    for (point, (messages, delay_ns)) in points.iter_mut().zip(sums).filter(|(_, (n, _))| *n > 0.0) {
        point.extra.insert("delay_us".into(), delay_ns / messages / 1e3);
        point.extra.insert("gap_us".into(), step * 1e6 / (messages * per_receiver));
    }
    for (t_s, metrics) in outcome.sender.iter().flat_map(|s| &s.samples) {
        if let Some(point) = points.get_mut((t_s / step) as usize) {
            point.extra.extend(metrics.clone());
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::plan::{ConnectionEnd, Protocol, Stop};
    use trunkline_traffic::{Pattern, Variable};

    use super::*;
    use crate::message::Header;
    use crate::receiver_meter::ReceiverMeter;

    fn connection_end(host: &str) -> ConnectionEnd {
        ConnectionEnd { host: host.into(), buffer: None, port: None, location: Default::default() }
    }

    fn plan(receivers: &[&str]) -> plan::Connection {
        plan::Connection {
            name: "a-b".into(),
            from: connection_end("a"),
            to: receivers.iter().map(|r| connection_end(r)).collect(),
            xmtcntl: "a".into(),
            rcvcntl: "b".into(),
            rep: "a".into(),
            protocol: Protocol::Udp { flow_control: true, credit_window: None },
            test: Pattern::Full { size_bytes: Variable::Constant(1000.0) },
            dscp: None,
            declared: None,
            delay_s: Variable::Constant(0.0),
            stop: Stop::DurationS(Variable::Constant(1.0)),
            location: Default::default(),
            protocol_location: Default::default(),
            test_location: Default::default(),
        }
    }

    /// One second of 1000-byte messages, one per millisecond. One in `one_in` messages arrives, 2 ms later.
    fn outcome(start: Instant, hosts: &[&str], one_in: u64) -> RepetitionOutcome {
        let mut series = Series::default();
        let mut meter = ReceiverMeter::new(start);
        for sequence in 0..1000 {
            let sent = start + Span::from_ms(sequence);
            series.add(sent.since(start), 1000);
            if sequence % one_in == 0 {
                meter.record(&Header::pattern(sequence, sent, 1000), sent + Span::from_ms(2));
            }
        }
        let sender = SenderReport {
            start,
            sending_time: Span::from_s(1),
            messages: 1000,
            bytes: 1_000_000,
            series,
            requested: SendAccuracy {
                gap_distance: Some(1.0 / one_in as f64),
                variables: vec![Fit::default()],
                ..SendAccuracy::default()
            },
            counters: [("sender_system_calls".into(), 1000.0), ("sender_buffer_bytes".into(), 4096.0)].into(),
            ..SenderReport::default()
        };
        let report = ReceiverReport::from_meter(&meter);
        let receivers = hosts.iter().map(|h| (h.to_string(), Some(report.clone()))).collect();
        RepetitionOutcome { start, sender: Some(sender), receivers, ..RepetitionOutcome::default() }
    }

    #[test]
    fn repetitions_and_receivers_are_combined() {
        let outcomes = [
            outcome(Instant::ZERO, &["b", "c"], 1),
            outcome(Instant::from_ns(5_000_000_000), &["b", "c"], 2),
        ];
        let c = connection(&plan(&["b", "c"]), &outcomes);
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (2000, 2 * 1500, 2 * 500));
        assert_eq!((c.sent_bps, c.repetitions[0].received_bps), (8e6, 8e6 / 1.001));
        assert_eq!(c.repetitions[1].start_s, 5.0);
        assert!((c.delay_us.unwrap().p50 - 2000.0).abs() < 3.0);
        assert_eq!((c.receivers.len(), c.receivers[1].lost), (2, 500));
        assert_eq!(c.repeats["sent_bps"].mean, 8e6);
        // All messages arrived in the first repetition: over one time both rates are equal.
        assert_eq!(c.repetitions[0].sent_until_last_bps, Some(c.repetitions[0].received_bps));
        assert_eq!(c.repetitions[1].sent_until_last_bps.map(f64::round), Some(8e6));
        assert_eq!((c.counters["sender_system_calls"], c.counters["sender_buffer_bytes"]), (2000.0, 4096.0));
        // The repetition with the largest error.
        assert_eq!(c.requested.gap_distance, Some(1.0));
        let worst = Worst { host: "a".into(), repetition: 0, of: 2 };
        assert_eq!(c.requested.variables[0].worst, Some(worst));
        assert!(!c.partial);
    }

    #[test]
    fn the_worst_sample_of_all_receivers_and_repetitions_is_shown() {
        let fit =
            |name: &str, p_value, distance| Fit { name: name.into(), p_value, distance, ..Fit::default() };
        let mut outcomes = [0, 5].map(|s| outcome(Instant::from_ns(s * 1_000_000_000), &["b", "c"], 1));
        let mut set = |repetition: usize, receiver: usize, fits| {
            outcomes[repetition].receivers[receiver].1.as_mut().unwrap().fits = fits;
        };
        set(0, 0, vec![fit("talk", Some(0.5), 0.01), fit("period", None, 0.2)]);
        set(0, 1, vec![fit("talk", Some(0.4), 0.01), fit("period", None, 0.1)]);
        set(1, 1, vec![fit("talk", Some(0.002), 0.03), fit("period", None, 0.1)]);
        let received = connection(&plan(&["b", "c"]), &outcomes).requested.received;
        let found: Vec<_> =
            received.iter().map(|fit| (fit.name.as_str(), fit.worst.clone().unwrap())).collect();
        let worst = |host: &str, repetition| Worst { host: host.into(), repetition, of: 3 };
        assert_eq!(found, [("talk", worst("c", 1)), ("period", worst("b", 0))]);
        assert_eq!((received[0].p_value, received[1].distance), (Some(0.002), 0.2));
        // One receiver and one repetition: nothing was selected.
        let mut one = outcome(Instant::ZERO, &["b"], 1);
        one.receivers[0].1.as_mut().unwrap().fits = vec![fit("talk", Some(0.5), 0.01)];
        let received = connection(&plan(&["b"]), &[one]).requested.received;
        assert_eq!((received.len(), &received[0].worst), (1, &None));
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
    fn a_killed_sender_gives_a_partial_result() {
        let mut killed = outcome(Instant::ZERO, &["b"], 2);
        killed.sender = None;
        killed.error = Some("host a: its agent was killed by signal 9".into());
        let c = connection(&plan(&["b"]), &[killed]);
        assert!(c.partial && c.error.unwrap().contains("signal 9"));
        // 999 is the highest sequence number sent, 998 the highest seen.
        assert_eq!((c.messages_sent, c.messages_received, c.lost), (999, 500, 499));
        let empty = connection(&plan(&["b"]), &[]);
        assert!(empty.partial && empty.delay_us.is_none() && empty.series.is_empty());
    }
}
