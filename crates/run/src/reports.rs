//! Reports of the endpoints of a connection. They are serialised between processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_record::histogram::Counts;
use trunkline_record::schema::{Fit, SendAccuracy};
use trunkline_traffic::Source;
use trunkline_units::{Instant, Span};

use crate::receiver_meter::{Arrivals, ReceiverMeter, Trend};
use crate::sender_meter::SenderMeter;
use crate::series::Series;
use crate::stages::{FrameTimestamps, Stages};

/// Figures by name, with the unit last in the name.
pub type Figures = BTreeMap<String, f64>;
/// Notes by name.
pub type Notes = BTreeMap<String, String>;

/// The measurements of a sender, final or so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// When the first message was due.
    pub start: Instant,
    /// The time that its messages cover.
    pub active: Span,
    /// Messages handed to the transport.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Rate that the pattern requests, b/s.
    pub offered_bps: Option<f64>,
    /// Gaps between departures.
    pub gap: Counts,
    /// Delays of departures behind schedule.
    #[serde(rename = "late")]
    pub lateness: Counts,
    /// Round-trip times.
    pub rtt: Counts,
    /// Bytes over time.
    pub series: Series,
    /// Other figures over time: seconds since the start, figures.
    pub samples: Vec<(f64, Figures)>,
    /// Requested against actual traffic; empty while running.
    #[serde(rename = "asked")]
    pub requested: SendAccuracy,
    /// Processor time in user mode and in the kernel.
    pub cpu: (Span, Span),
    /// Counters of the transport.
    pub counters: Figures,
    /// Durations of the sender's stages of a message's delay.
    #[serde(default)]
    pub stages: Stages,
    /// Departure times of frames.
    #[serde(default, rename = "left")]
    pub departures: FrameTimestamps,
    /// Notes about the measurement.
    pub notes: Notes,
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
    /// Counters of the transport.
    pub counters: Figures,
    /// Durations of the receiver's stages of a message's delay.
    #[serde(default)]
    pub stages: Stages,
    /// Arrival times of frames.
    #[serde(default, rename = "came")]
    pub frame_arrivals: FrameTimestamps,
    /// Notes about the measurement.
    pub notes: Notes,
}

impl SenderReport {
    /// Returns the report while the source is still running.
    pub fn partial(meter: &SenderMeter) -> Self {
        SenderReport {
            start: meter.start(),
            active: meter.last().since(meter.start()),
            messages: meter.messages(),
            bytes: meter.bytes(),
            gap: meter.gap().counts(),
            lateness: meter.lateness().counts(),
            series: meter.series().clone(),
            ..SenderReport::default()
        }
    }

    /// Returns the report after the source has ended or was stopped.
    pub fn complete(meter: &SenderMeter, source: &Source) -> Self {
        let mut report = Self::partial(meter);
        report.active = source.sending_time(meter.last());
        report.offered_bps = source.offered_bps();
        report.requested = compare_requested(source, report.sent_bps());
        report
    }

    /// Returns the bits of messages handed over per second of active time.
    pub fn sent_bps(&self) -> f64 {
        rate_bps(self.bytes, self.active)
    }
}

impl ReceiverReport {
    /// Returns the report of a meter.
    pub fn from_meter(meter: &ReceiverMeter) -> Self {
        ReceiverReport {
            arrivals: *meter.arrivals(),
            delay: meter.delay().counts(),
            gap: meter.gap().counts(),
            series: meter.series().clone(),
            trend: meter.trend().clone(),
            ..ReceiverReport::default()
        }
    }
}

pub(crate) fn rate_bps(bytes: u64, time: Span) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / time.as_s() }
}

/// Compares the requested traffic of a source with the traffic that was sent.
fn compare_requested(source: &Source, sent_bps: f64) -> SendAccuracy {
    let variables: Vec<Fit> = source
        .fits()
        .into_iter()
        .map(|fit| Fit {
            name: fit.name.into(),
            law: fit.law,
            unit: fit.unit.into(),
            requested_mean: fit.requested_mean,
            sent_mean: fit.sent_mean,
            distance: fit.goodness_of_fit.distance,
            p_value: fit.goodness_of_fit.p_value,
            samples: fit.goodness_of_fit.samples,
            curve: fit.goodness_of_fit.curve,
        })
        .collect();
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
    }
}
