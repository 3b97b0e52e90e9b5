//! Time series of the counters of link ends.
//!
//! The sampling interval starts at 10 ms. When there are too many samples, every second one is discarded and the
//! interval doubles. Sampling does not change the counters, which count from the start of the run. A link counts a frame when
//! the link is next woken after the frame has left.

use trunkline_endpoint::Port;
use trunkline_models::atm::CellFrame;
use trunkline_record::schema::{Link, LinkEnd};
use trunkline_units::{Instant, Span};

use crate::network::Network;

/// Maximum number of samples per link end.
const MAX_SAMPLES: usize = 600;
/// Maximum number of values of all link ends together. Each end keeps at least a few samples.
const MAX_COUNTS: usize = 20_000;
/// The first sampling interval.
const INITIAL_INTERVAL: Span = Span::from_ms(10);

/// Samples of the counters of all link ends.
#[derive(Debug)]
pub struct LinkSeries {
    interval: Span,
    /// Time of the next sample.
    next: Instant,
    max_samples: usize,
    /// Number of link ends.
    ends: usize,
    times: Vec<Instant>,
    /// Octets, frames and drops of each end, sample by sample.
    samples: Vec<[u64; 3]>,
}

impl LinkSeries {
    /// Takes the first sample, of a network in which nothing has happened.
    pub fn new<F: CellFrame>(network: &Network<F>) -> LinkSeries {
        let ends: usize = network.transmission_media().map(|medium_node| medium_node.attachments.len()).sum();
        let max_samples = (MAX_COUNTS / ends.max(1)).clamp(8, MAX_SAMPLES);
        let (times, samples) = (Vec::new(), Vec::new());
        let mut series =
            LinkSeries { interval: INITIAL_INTERVAL, next: Instant::ZERO, max_samples, ends, times, samples };
        series.sample_if_due(network, Instant::ZERO);
        series
    }

    /// Takes a sample if one is due.
    #[inline]
    pub fn sample_if_due<F: CellFrame>(&mut self, network: &Network<F>, now: Instant) {
        if now >= self.next {
            self.sample(network, now);
        }
    }

    #[cold]
    fn sample<F: CellFrame>(&mut self, network: &Network<F>, now: Instant) {
        if self.times.len() >= self.max_samples {
            self.halve();
        }
        self.times.push(now);
        for medium_node in network.transmission_media() {
            let ports = 0..medium_node.attachments.len() as u16;
            self.samples.extend(ports.map(|port| {
                let counters = medium_node.medium.counters(Port(port));
                [counters.bytes, counters.frames, counters.queue_drops + counters.other_losses]
            }));
        }
        let elapsed = now.since(Instant::ZERO).as_ps() / self.interval.as_ps();
        self.next = Instant::ZERO + self.interval * (elapsed + 1);
    }

    /// Discards every second sample and keeps the first.
    fn halve(&mut self) {
        let samples = self.samples.chunks(self.ends.max(1));
        self.samples = samples.step_by(2).flatten().copied().collect();
        self.times = self.times.iter().step_by(2).copied().collect();
        self.interval = self.interval * 2;
    }

    /// Takes the last sample and stores the samples of each link in its record.
    pub fn finish<F: CellFrame>(mut self, network: &Network<F>, end: Instant, links: &mut [Link]) {
        self.times.retain(|time| *time < end);
        self.samples.truncate(self.times.len() * self.ends);
        self.sample(network, end);
        let mut end_index = 0;
        for (medium_node, link) in network.transmission_media().zip(links) {
            for port in 0..medium_node.attachments.len() as u16 {
                let samples = self.times.iter().zip(self.samples.chunks(self.ends.max(1)));
                let point = |(time, samples): (&Instant, &[[u64; 3]])| {
                    let [octets, frames, dropped] = samples[end_index];
                    (time.since(Instant::ZERO).as_s(), octets, frames, dropped)
                };
                link.ends.push(LinkEnd {
                    node: network.neighbor_name(medium_node, Port(port)).to_owned(),
                    unit: medium_node.medium.unit().to_owned(),
                    counts: samples.map(point).collect(),
                });
                end_index += 1;
            }
        }
    }
}
