//! What a sender measured, as text and JSON.

use std::net::SocketAddr;

use serde_json::{Value, json};
use trunkline_record::Histogram;
use trunkline_stamp::{Counts, Losses, Sample, Sender};
use trunkline_units::Span;

use super::VERSION;
use crate::commands::llc::figures;

/// The parameters of a session.
pub struct Session {
    pub peer: SocketAddr,
    pub size: usize,
    pub interval: Span,
    pub is_authenticated: bool,
    pub arrival_times: &'static str,
    pub ssid: u16,
}

/// Delays of a session.
#[derive(Default)]
pub struct Measurements {
    round_trip: Histogram,
    /// Round trips since the last line.
    recent: Histogram,
    forward: Histogram,
    backward: Histogram,
    /// The largest error of the one-way delays.
    uncertainty: Span,
    /// One-way delays below zero, which the histograms count as zero.
    negative: u64,
    /// Fewest and most hops to the reflector.
    hops: Option<(u8, u8)>,
}

impl Session {
    pub fn to_text(&self) -> String {
        format!(
            "STAMP to {}: {} octets every {}, {}, arrival times of the {}\n",
            self.peer,
            self.size,
            self.interval,
            if self.is_authenticated { "authenticated" } else { "unauthenticated" },
            self.arrival_times
        )
    }

    pub fn to_json(&self, sender: &Sender, measurements: &Measurements) -> String {
        let (counts, losses) = (sender.counts(), sender.losses());
        let has_one_way = measurements.forward.count() > 0;
        let object = json!({
            "version": VERSION, "tool": "stamp send", "peer": self.peer.to_string(), "size": self.size,
            "interval_us": self.interval.as_us(), "authenticated": self.is_authenticated, "ssid": self.ssid,
            "arrival_times": self.arrival_times, "sent": counts.sent, "answered": counts.answered,
            "lost": counts.sent - counts.answered, "lost_forward": losses.map(|losses| losses.forward),
            "lost_backward": losses.map(|losses| losses.backward), "lost_unknown": losses.map(|losses| losses.unknown),
            "duplicates": counts.duplicates, "reordered": counts.reordered, "unknown": counts.unknown,
            "forged": counts.forged, "inconsistent": counts.inconsistent, "hops_forward": hops(measurements.hops),
            "round_trip_us": figures::distribution(&measurements.round_trip),
            "forward_us": figures::distribution(&measurements.forward),
            "backward_us": figures::distribution(&measurements.backward),
            "one_way_uncertainty_us": has_one_way.then(|| measurements.uncertainty.as_us()),
            "one_way_negative": has_one_way.then_some(measurements.negative),
        });
        format!("{object:#}\n")
    }
}

fn hops(hops: Option<(u8, u8)>) -> Value {
    json!(hops.map(|(min, max)| json!({ "min": min, "max": max })))
}

impl Measurements {
    pub fn record(&mut self, sample: &Sample) {
        if let Some(round_trip) = sample.round_trip {
            self.round_trip.record(round_trip);
            self.recent.record(round_trip);
        }
        if let Some(one_way) = sample.one_way {
            for (histogram, ns) in
                [(&mut self.forward, one_way.forward_ns), (&mut self.backward, one_way.backward_ns)]
            {
                histogram.record(Span::from_ns(u64::try_from(ns).unwrap_or(0)));
                self.negative += u64::from(ns < 0);
            }
            self.uncertainty = self.uncertainty.max(one_way.uncertainty);
        }
        // A packet leaves with 255. A reflector that cannot see the TTL returns 0 or 255.
        if sample.ttl > 0 {
            let hops = u8::MAX - sample.ttl;
            let (min, max) = self.hops.unwrap_or((hops, hops));
            self.hops = Some((min.min(hops), max.max(hops)));
        }
    }

    /// Returns a line of progress, and begins the next interval.
    pub fn line(&mut self, since_start: Span, counts: Counts) -> String {
        let recent = std::mem::take(&mut self.recent).distribution_us();
        let delays = recent.map_or("no answer".to_owned(), |d| {
            format!("round trip min {:.1}, p50 {:.1}, max {:.1} us", d.min, d.p50, d.max)
        });
        format!(
            "{:>4.0} s: {} sent, {} answered; {delays}\n",
            since_start.as_s(),
            counts.sent,
            counts.answered
        )
    }

    pub fn to_text(&self, sender: &Sender) -> String {
        let counts = sender.counts();
        let lost = counts.sent - counts.answered;
        let share = figures::percent(lost as f64 / counts.sent.max(1) as f64);
        let mut text = format!(
            "\n{} sent, {} answered, {lost} lost ({share}), {} duplicates, {} reordered\n",
            counts.sent, counts.answered, counts.duplicates, counts.reordered
        );
        if lost > 0 {
            text += &match sender.losses() {
                Some(Losses { forward, backward, unknown }) => {
                    format!(
                        "lost: {forward} forward, {backward} backward, {unknown} in an unknown direction\n"
                    )
                }
                None => "the direction of the losses is unknown: the reflector may be stateless\n".into(),
            };
        }
        for (count, reason) in [
            (counts.unknown, "datagrams answer no packet of this session"),
            (counts.forged, "answers have a wrong HMAC"),
            (counts.inconsistent, "answers have impossible times, and are in no delay"),
        ] {
            if count > 0 {
                text += &format!("{count} {reason}\n");
            }
        }
        if counts.answered == 0 {
            return text;
        }
        match self.hops {
            Some((min, max)) if min == max => text += &format!("{min} hops to the reflector\n"),
            Some((min, max)) => text += &format!("{min} to {max} hops to the reflector\n"),
            None => {}
        }
        text += &format!("{:<10}{}\n", "", figures::heads());
        text += &format!("{:<10}{}\n", "round trip", figures::columns(&self.round_trip));
        if self.forward.count() == 0 {
            text += "one-way delays are unknown: not both clocks are synchronized to UTC, in one format\n";
            return text;
        }
        text += &format!("{:<10}{}\n", "forward", figures::columns(&self.forward));
        text += &format!("{:<10}{}\n", "backward", figures::columns(&self.backward));
        text += &format!("one-way delays are uncertain by ±{}, as both ends estimate\n", self.uncertainty);
        if self.negative > 0 {
            text += &format!("{} one-way delays below 0 count as 0\n", self.negative);
        }
        text
    }
}
