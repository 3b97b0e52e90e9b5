//! Reports of the ends of a connection: what the meters have measured, and counters of the transport.
//!
//! In live runs they are serialised between the agents and the controller, which are processes of one program; so their
//! names in JSON are no contract.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_record::histogram::Counts;
use trunkline_record::schema::{Fit, FitOutcome, SendAccuracy};
use trunkline_traffic::Source;
use trunkline_traffic::source::LawFit;
use trunkline_units::{Instant, Span};

use crate::receiver_meter::{Arrivals, ReceiverMeter, Trend};
use crate::sender_meter::SenderMeter;
use crate::series::Series;
use crate::stages::{FrameTimestamps, Stages};

/// Metrics by name; a unit is last in the name.
pub type Metrics = BTreeMap<String, f64>;
/// Notes about the measurement, by name.
pub type Notes = BTreeMap<String, String>;

/// The measurements of a sender, final or so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// When the first message was due.
    pub start: Instant,
    /// The sending time, see [`Source::sending_time`]; until the last departure while the sender is running.
    pub sending_time: Span,
    /// Messages handed to the transport.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Rate that the pattern requests, b/s.
    pub offered_bps: Option<f64>,
    /// Gaps between departures.
    pub gap: Counts,
    /// Delays of departures after their due time.
    pub lateness: Counts,
    /// Round-trip times.
    pub rtt: Counts,
    /// What a closed loop would have measured instead, of open-loop requests.
    pub closed_loop_rtt: Counts,
    /// Responses of each receiver, if the test has responses.
    pub responders: Vec<ResponderCounts>,
    /// Bytes over time.
    pub series: Series,
    /// Metrics of the transport and of an application model over time: seconds since the start, metrics.
    pub samples: Vec<(f64, Metrics)>,
    /// Requested versus sent traffic; empty while the sender is running.
    pub requested: SendAccuracy,
    /// Processor time in user mode and in the kernel.
    pub cpu: (Span, Span),
    /// Counters of the transport.
    pub counters: Metrics,
    /// Durations of the sender's stages of a message's delay.
    pub stages: Stages,
    /// When sampled frames departed.
    pub frame_departures: FrameTimestamps,
    /// Notes about the measurement.
    pub notes: Notes,
}

/// Responses of one receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderCounts {
    /// Responses in time.
    pub responses: u64,
    /// Requests without a response in time.
    pub unanswered: u64,
}

/// The measurements of a receiver, final or so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Counts of arrivals.
    pub arrivals: Arrivals,
    /// One-way delays.
    pub delay: Counts,
    /// Gaps between arrivals.
    pub gap: Counts,
    /// Bytes over time.
    pub series: Series,
    /// Delay and gap over time.
    pub trend: Trend,
    /// Processor time in user mode and in the kernel.
    pub cpu: (Span, Span),
    /// What arrived, compared with the laws of an application model.
    pub fits: Vec<Fit>,
    /// Counters of the transport.
    pub counters: Metrics,
    /// Durations of the receiver's stages of a message's delay.
    pub stages: Stages,
    /// When sampled frames arrived.
    pub frame_arrivals: FrameTimestamps,
    /// Notes about the measurement.
    pub notes: Notes,
    /// Why the receiver failed although all ends have ended, in one line: a file is incomplete.
    pub error: Option<String>,
}

impl SenderReport {
    /// Returns the report of a sender that is still running.
    pub fn partial(meter: &SenderMeter) -> Self {
        SenderReport {
            start: meter.start(),
            sending_time: meter.last_departure().since(meter.start()),
            messages: meter.messages,
            bytes: meter.bytes,
            gap: meter.gap.counts(),
            lateness: meter.lateness.counts(),
            series: meter.series.clone(),
            ..SenderReport::default()
        }
    }

    /// Returns the report of a sender that has ended or was stopped.
    pub fn complete(meter: &SenderMeter, source: &Source) -> Self {
        let mut report = Self::partial(meter);
        report.sending_time = source.sending_time(meter.last_departure());
        report.offered_bps = source.offered_bps();
        report.requested = compare_requested(source, report.sent_bps());
        report.counters.extend(source.counters().into_iter().map(|(name, value)| (name.to_owned(), value)));
        report
    }

    /// Returns the rate of messages handed to the transport, over the sending time.
    pub fn sent_bps(&self) -> f64 {
        rate_bps(self.bytes, self.sending_time)
    }
}

impl ReceiverReport {
    /// Returns the report of a receiver that has ended, without counters, stages and notes.
    pub fn complete(meter: &ReceiverMeter) -> Self {
        let mut report = Self::from_meter(meter);
        let Some(items) = meter.items() else { return report };
        report.fits = items.fits().into_iter().map(fit).collect();
        report.counters.insert("items_differing".into(), items.differing() as f64);
        if let Some(sequence) = items.stopped_at() {
            let text = format!("messages before number {sequence}: too many before it are missing");
            report.notes.insert("received_compared".into(), text);
        }
        report
    }

    /// States as error of a receiver of a file that some of `sent` messages are missing.
    pub fn check_file(&mut self, sent: u64) {
        let missing = sent.saturating_sub(self.arrivals.messages);
        if missing > 0 {
            self.error = Some(format!("the file is incomplete: {missing} of {sent} messages did not arrive"));
        }
    }

    /// Returns the report of a receiver that is still running.
    pub fn from_meter(meter: &ReceiverMeter) -> Self {
        ReceiverReport {
            arrivals: *meter.arrivals(),
            delay: meter.delay.counts(),
            gap: meter.gap.counts(),
            series: meter.series.clone(),
            trend: meter.trend.clone(),
            ..ReceiverReport::default()
        }
    }
}

/// Returns the rate of `bytes` in `time`; 0 if the time is 0.
pub(crate) fn rate_bps(bytes: u64, time: Span) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_s() }
}

/// Compares the requested traffic of a source with the traffic that was sent.
fn compare_requested(source: &Source, sent_bps: f64) -> SendAccuracy {
    let variables: Vec<Fit> = source.fits().into_iter().map(fit).collect();
    let gap = variables.iter().find(|f| f.name == "gap" && f.samples > 0);
    let (bursts_skipped, bursts_late) = source.skipped_and_late();
    SendAccuracy {
        rate_error: source.offered_bps().filter(|o| *o > 0.0).map(|offered| sent_bps / offered - 1.0),
        gap_distance: gap.map(|g| g.distance),
        gap_p_value: gap.and_then(|g| g.p_value),
        gap_samples: gap.map_or(0, |g| g.samples),
        bursts_skipped,
        bursts_late,
        variables,
        due_error: source.due_error(),
        received: Vec::new(),
    }
}

/// Converts a fit to its form in the record.
fn fit(fit: LawFit) -> Fit {
    Fit {
        name: fit.name.into(),
        law: fit.law,
        unit: fit.unit.into(),
        requested_mean: fit.requested_mean,
        sent_mean: fit.sent_mean,
        distance: fit.goodness_of_fit.distance,
        p_value: fit.goodness_of_fit.p_value,
        outcome: fit.goodness_of_fit.follows().map(|follows| match follows {
            true => FitOutcome::Follows,
            false => FitOutcome::Differs,
        }),
        samples: fit.goodness_of_fit.samples,
        worst: None,
        curve: fit.goodness_of_fit.curve,
    }
}
