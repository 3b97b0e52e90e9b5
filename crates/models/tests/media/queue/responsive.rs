//! Sources that react to losses and marks, for controllers that need a closed loop.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::{Ecn, MediumOutput};
use trunkline_models::media::Link;
use trunkline_units::{Instant, Span};

use super::super::common::{Packet, Testbed};
use super::packet;

const LENGTH: u32 = 1500;
const TICK: Span = Span::from_us(100);

/// A source with a window: it grows by a packet in a round trip.
struct Source {
    ecn: Ecn,
    window: f64,
    in_flight: u32,
    /// No second reaction of a classic source before this time.
    reacts_from: Instant,
}

impl Source {
    /// A classic source halves its window once in a round trip; a scalable one (Ect1) takes off half a packet for each mark.
    fn react(&mut self, now: Instant, rtt: Span, is_lost: bool) {
        if self.ecn == Ecn::Ect1 && !is_lost {
            self.window -= 0.5;
        } else if now >= self.reacts_from {
            self.window /= 2.0;
            self.reacts_from = now + rtt;
        }
        self.window = self.window.max(2.0);
    }
}

/// Sends from sources with these ECN fields through port 0 of a link; returns the sojourn times of each source's packets that
/// left after `warm_up`, sorted, and the share of packets that were marked.
pub fn run(
    link: Link<Packet>,
    sources: &[Ecn],
    rtt: Span,
    warm_up: Span,
    length: Span,
) -> Vec<(Vec<Span>, f64)> {
    let mut testbed = Testbed::new(link);
    let source = |ecn: &Ecn| Source { ecn: *ecn, window: 2.0, in_flight: 0, reacts_from: Instant::ZERO };
    let mut sources: Vec<Source> = sources.iter().map(source).collect();
    let mut results = vec![(Vec::new(), 0.0); sources.len()];
    // The times at which packets were sent, and the outcomes on their way back.
    let mut sent: BTreeMap<u32, Instant> = BTreeMap::new();
    let mut outcomes: VecDeque<(Instant, usize, bool, bool)> = VecDeque::new();
    let (mut now, mut id) = (Instant::ZERO, 0);
    while now < Instant::ZERO + length {
        testbed.until(now);
        for (at, output) in testbed.take() {
            let (frame, is_lost) = match output {
                MediumOutput::Transmit { frame, .. } => (frame, false),
                MediumOutput::Lost { frame, .. } => (frame, true),
                _ => continue,
            };
            let (at_source, is_marked) = (frame.flow as usize, frame.ecn == Ecn::Ce);
            outcomes.push_back((at + rtt, at_source, is_lost, is_marked));
            let Some(sent_at) = sent.remove(&frame.id) else { continue };
            if at > Instant::ZERO + warm_up && !is_lost {
                results[at_source].0.push(at.since(sent_at));
                results[at_source].1 += f64::from(u8::from(is_marked));
            }
        }
        while let Some((_, number, is_lost, is_marked)) =
            outcomes.front().filter(|(at, ..)| *at <= now).copied()
        {
            outcomes.pop_front();
            let source = &mut sources[number];
            source.in_flight -= 1;
            if is_lost || is_marked {
                source.react(now, rtt, is_lost);
            } else {
                source.window += 1.0 / source.window;
            }
        }
        for (number, source) in sources.iter_mut().enumerate() {
            while f64::from(source.in_flight) < source.window.min(2_000.0) {
                let frame = Packet { ecn: source.ecn, ..packet(id, LENGTH, number as u64) };
                sent.insert(id, now);
                testbed.send(now, 0, frame);
                (id, source.in_flight) = (id + 1, source.in_flight + 1);
            }
        }
        now += TICK;
    }
    for (sojourns, marked) in &mut results {
        *marked /= sojourns.len() as f64;
        sojourns.sort();
    }
    results
}

/// Returns a percentile of sorted times in milliseconds.
pub fn percentile_ms(sorted: &[Span], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100].as_us() / 1e3
}
