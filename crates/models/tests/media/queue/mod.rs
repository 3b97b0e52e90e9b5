//! Queue disciplines, shapers, changing links and links from traces.

mod changing;
mod codel;
mod conservation;
mod controllers;
mod drop_tail;
mod fq_codel;
mod responsive;
mod shares;

use trunkline_endpoint::{Bound, Destination, MediumOutput};
use trunkline_models::media::queue::{DisciplineOptions, QueueOptions};
use trunkline_models::media::{Framing, LineOptions, Link};
use trunkline_units::{Rate, Seed, Span};

use super::common::{Log, Packet};

/// An explicit queue with a discipline and nothing else.
pub fn queue_of(discipline: DisciplineOptions) -> QueueOptions {
    QueueOptions {
        discipline,
        shaper: None,
        policer: None,
        trace: None,
        changes: Vec::new(),
        stream: Seed(7).stream("queue"),
    }
}

/// A line without framing, with an explicit queue.
fn line(bps: u64, bound: Bound, queue: QueueOptions) -> LineOptions {
    LineOptions {
        rate: Rate::from_bps(bps),
        framing: Framing::NONE,
        delay: Span::ZERO,
        bound,
        queue: Some(Box::new(queue)),
        ..LineOptions::default()
    }
}

/// A link with two equal lines.
fn link(options: LineOptions) -> Link<Packet> {
    Link::new([options.clone(), options], [Seed(1).stream("a"), Seed(1).stream("b")])
}

/// A packet of a flow.
fn packet(id: u32, length: u32, flow: u64) -> Packet {
    Packet { flow, ..Packet::new(id, length, Destination::Station(0)) }
}

/// Returns the frames that arrived, in order.
fn arrivals(outputs: &[Log]) -> impl Iterator<Item = (trunkline_units::Instant, &Packet)> {
    outputs.iter().filter_map(|(at, output)| match output {
        MediumOutput::Transmit { frame, .. } => Some((*at, frame)),
        _ => None,
    })
}

/// Jain's index of fairness (1984): 1 if all are equal, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|x| x * x).sum::<f64>())
}
