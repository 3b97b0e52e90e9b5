//! What ends of links sent, against time: counters of the media, looked at every so often.
//!
//! Looks begin 10 ms apart; when there are too many, every other one is forgotten and they are twice as far apart. What is
//! counted is not changed by being looked at: it counts from the run's begin on. A line counts what has left it when it is
//! next woken.

use trunkline_endpoint::Port;
use trunkline_record::schema::{Link, LinkEnd};
use trunkline_units::{Instant, Span};

use crate::medium::Medium;
use crate::network::Network;

/// Looks that are kept at the most.
const MOST: usize = 600;
/// Counts that are kept at the most, of all ends together; a few looks are kept of however many ends.
const MOST_COUNTS: usize = 20_000;
/// Between looks, at first.
const FINEST: Span = Span::from_ms(10);

/// Looks, one after the other.
#[derive(Debug)]
pub struct Counts {
    between: Span,
    next: Instant,
    most: usize,
    ends: usize,
    times: Vec<Instant>,
    /// Octets, frames and dropped of each end, look by look.
    counted: Vec<[u64; 3]>,
}

impl Counts {
    /// Of a network in which nothing has happened.
    pub fn new(network: &Network) -> Counts {
        let ends: usize = network.lines().map(|seat| seat.wires.len()).sum();
        let most = (MOST_COUNTS / ends.max(1)).clamp(8, MOST);
        let (times, counted) = (Vec::new(), Vec::new());
        let mut counts = Counts { between: FINEST, next: Instant::ZERO, most, ends, times, counted };
        counts.look(network, Instant::ZERO);
        counts
    }

    /// Looks, if it is time.
    #[inline]
    pub fn look(&mut self, network: &Network, now: Instant) {
        if now >= self.next {
            self.take(network, now);
        }
    }

    #[cold]
    fn take(&mut self, network: &Network, now: Instant) {
        if self.times.len() >= self.most {
            self.thin();
        }
        self.times.push(now);
        for seat in network.lines() {
            let ports = 0..seat.wires.len() as u16;
            self.counted.extend(ports.map(|port| {
                let c = seat.medium.counters(Port(port));
                [c.bytes, c.frames, c.full + c.lost]
            }));
        }
        let passed = now.since(Instant::ZERO).as_ps() / self.between.as_ps();
        self.next = Instant::ZERO + self.between * (passed + 1);
    }

    /// Forgets every other look; the first stays.
    fn thin(&mut self) {
        let looks = self.counted.chunks(self.ends.max(1));
        self.counted = looks.step_by(2).flatten().copied().collect();
        self.times = self.times.iter().step_by(2).copied().collect();
        self.between = self.between * 2;
    }

    /// Looks a last time, at the end, and gives each link what its ends sent.
    pub fn finish(mut self, network: &Network, end: Instant, links: &mut [Link]) {
        self.times.retain(|at| *at < end);
        self.counted.truncate(self.times.len() * self.ends);
        self.take(network, end);
        let mut at = 0;
        for (seat, link) in network.lines().zip(links) {
            let unit = if matches!(seat.medium, Medium::Cells(_)) { "cells" } else { "frames" };
            for port in 0..seat.wires.len() as u16 {
                let looks = self.times.iter().zip(self.counted.chunks(self.ends.max(1)));
                let count = |(time, counted): (&Instant, &[[u64; 3]])| {
                    let [octets, frames, dropped] = counted[at];
                    (time.since(Instant::ZERO).as_s(), octets, frames, dropped)
                };
                link.ends.push(LinkEnd {
                    node: network.beyond_port(seat, Port(port)).to_owned(),
                    unit: unit.into(),
                    counts: looks.map(count).collect(),
                });
                at += 1;
            }
        }
    }
}
