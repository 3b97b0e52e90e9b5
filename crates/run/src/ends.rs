//! What each end of a connection reports, in a form that crosses processes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use trunkline_record::histogram::Counts;
use trunkline_record::schema::{Asked, Fit};
use trunkline_traffic::Source;
use trunkline_units::{Instant, Span};

use crate::ledger::Ledger;
use crate::meter::{Arrivals, Meter, Trend};
use crate::series::Series;
use crate::stages::{Passages, Stages};

/// Figures by name, units last.
pub type Figures = BTreeMap<String, f64>;
/// Facts by name.
pub type Notes = BTreeMap<String, String>;

/// What a sending end measured, whole or until now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// When its first message was due.
    pub start: Instant,
    /// The time its messages stand for.
    pub active: Span,
    /// Messages handed to the transport.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the pattern asks for, bits per second.
    pub offered_bps: Option<f64>,
    /// Gaps between departures.
    pub gap: Counts,
    /// Lateness.
    pub late: Counts,
    /// Round trips.
    pub rtt: Counts,
    /// Bytes against time.
    pub series: Series,
    /// More figures against time: seconds since the start, figures.
    pub samples: Vec<(f64, Figures)>,
    /// Asked against sent; empty while running.
    pub asked: Asked,
    /// Processor time in user code and in the kernel.
    pub cpu: (Span, Span),
    /// The transport's own counts.
    pub counters: Figures,
    /// How long the stages of a message's way took that are the sender's.
    #[serde(default)]
    pub stages: Stages,
    /// When frames left.
    #[serde(default)]
    pub left: Passages,
    /// What was true of the measurement.
    pub notes: Notes,
}

/// What a receiving end measured, whole or until now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Counts.
    pub arrivals: Arrivals,
    /// One-way delays.
    pub delay: Counts,
    /// Gaps between arrivals.
    pub gap: Counts,
    /// Bytes against time.
    pub series: Series,
    /// Delay and gap against time.
    pub trend: Trend,
    /// Processor time in user code and in the kernel.
    pub cpu: (Span, Span),
    /// The transport's own counts.
    pub counters: Figures,
    /// How long the stages of a message's way took that are the receiver's.
    #[serde(default)]
    pub stages: Stages,
    /// When frames arrived.
    #[serde(default)]
    pub came: Passages,
    /// What was true of the measurement.
    pub notes: Notes,
}

impl SenderReport {
    /// What a ledger shows while its source still runs.
    pub fn so_far(ledger: &Ledger) -> Self {
        SenderReport {
            start: ledger.start(),
            active: ledger.last().since(ledger.start()),
            messages: ledger.messages(),
            bytes: ledger.bytes(),
            gap: ledger.gap().counts(),
            late: ledger.late().counts(),
            series: ledger.series().clone(),
            ..SenderReport::default()
        }
    }

    /// What a ledger shows when its source has ended, or was stopped.
    pub fn whole(ledger: &Ledger, source: &Source) -> Self {
        let mut report = Self::so_far(ledger);
        report.active = source.active(ledger.last());
        report.offered_bps = source.offered_bps();
        report.asked = asked(source, report.sent_bps());
        report
    }

    /// Bits of messages handed over, per second of active time.
    pub fn sent_bps(&self) -> f64 {
        rate_bps(self.bytes, self.active)
    }
}

impl ReceiverReport {
    /// What a meter shows.
    pub fn of(meter: &Meter) -> Self {
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

/// Judges what a source sent.
fn asked(source: &Source, sent_bps: f64) -> Asked {
    let variables: Vec<Fit> = source
        .verdicts()
        .into_iter()
        .map(|v| Fit {
            name: v.name.into(),
            law: v.law,
            unit: v.unit.into(),
            asked_mean: v.asked_mean,
            sent_mean: v.sent_mean,
            distance: v.fitness.distance,
            p_value: v.fitness.p_value,
            samples: v.fitness.samples,
            curve: v.fitness.curve,
        })
        .collect();
    let gap = variables.iter().find(|f| f.name == "gap" && f.samples > 0);
    let (bursts_skipped, bursts_late) = source.skipped_and_late();
    Asked {
        rate_error: source.offered_bps().filter(|o| *o > 0.0).map(|offered| sent_bps / offered - 1.0),
        gap_distance: gap.map(|g| g.distance),
        gap_p_value: gap.and_then(|g| g.p_value),
        gap_samples: gap.map_or(0, |g| g.samples),
        bursts_skipped,
        bursts_late,
        variables,
    }
}
