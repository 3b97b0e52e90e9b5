//! Stations that always have something to send, and what theory says of them.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::{Bound, Destination, MediumOutput};
use trunkline_models::media::{Hub, HubOptions};
use trunkline_units::{Instant, Rate, Seed, Span};

use super::common::{Packet, Testbed};

/// A bit at 10 Mb/s, in ns.
pub const BIT: u64 = 100;
/// Interframe gap, slot, jam, and preamble with delimiter, in ns (clause 4.4.2).
pub const GAP: u64 = 96 * BIT;
pub const SLOT: u64 = 512 * BIT;
const JAM: u64 = 32 * BIT;
const PREAMBLE: u64 = 64 * BIT;
/// Header and check sequence: what a frame is longer than what it carries.
pub const HEADER: u32 = 18;
/// Stations as far apart as a slot allows, in ns.
pub const FARTHEST: u64 = SLOT / 2;

/// For how long a frame of `size` bytes, header and check sequence included, is sent, in ns.
pub fn sending(size: u32) -> u64 {
    u64::from(size) * 8 * BIT + PREAMBLE
}

/// A frame of `size` bytes and its gap, in ns: what one frame takes of the medium at best.
pub fn taken(size: u32) -> u64 {
    sending(size) + GAP
}

pub fn hub(delay: u64, stations: u16, seed: Seed) -> Hub<Packet> {
    let options =
        HubOptions { rate: Rate::from_bps(10_000_000), delay: Span::from_ns(delay), max_length: 70_000 };
    let ports = stations.max(2);
    let streams = (0..ports).map(|station| seed.stream(&format!("station {station}"))).collect();
    Hub::new(options, &vec![Bound::NONE; usize::from(ports)], streams)
}

/// Stations that load the medium.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// From any station to any other, in ns.
    pub delay: u64,
    pub stations: u16,
    /// How long a station needs for its next frame after the last one was received, on average, in ns: drawn
    /// uniformly from nothing to twice that. With 0 the next frame waits already.
    pub pause: u64,
    pub seconds: f64,
    pub seed: Seed,
}

/// A frame that got through.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub station: u16,
    pub size: u32,
    /// When, in seconds.
    pub received: f64,
}

/// Result of a [`Load`].
pub struct Run {
    /// In order.
    pub sent: Vec<Sent>,
    /// Frames that collided too often.
    pub given_up: usize,
    /// The share of time that the frames and their gaps took.
    pub efficiency: f64,
}

impl Run {
    /// Mean number of frames that one station sends without another getting through.
    pub fn mean_run(&self) -> f64 {
        let runs = self.sent.chunk_by(|a, b| a.station == b.station).count();
        self.sent.len() as f64 / runs as f64
    }

    /// Of the frames that were sent, how many waited longer for the medium than the gap and the delay.
    pub fn contended(&self, delay: u64) -> f64 {
        let waits = |pair: &[Sent]| pair[1].received - pair[0].received - taken(pair[1].size) as f64 / 1e9;
        let contended = self.sent.windows(2).filter(|pair| waits(pair) > (delay + 1) as f64 / 1e9).count();
        contended as f64 / self.sent.len() as f64
    }

    /// What a contention cost, less the gap that would be there anyway: mean, in ns, if all frames have `size`.
    pub fn cost(&self, delay: u64, size: u32) -> f64 {
        (1.0 / self.efficiency - 1.0) * taken(size) as f64 / self.contended(delay)
    }

    /// Standard deviation of what the stations sent after `from` seconds, in Mb/s.
    pub fn spread(&self, stations: u16, from: f64) -> f64 {
        let mut bits = vec![0.0; usize::from(stations)];
        let late = self.sent.iter().filter(|sent| sent.received > from);
        late.for_each(|sent| bits[usize::from(sent.station)] += taken(sent.size) as f64 / BIT as f64);
        let seconds = self.sent.last().map_or(0.0, |sent| sent.received) - from;
        deviation(&bits) / seconds / 1e6
    }
}

fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    libm::sqrt(values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64)
}

/// Runs `load`, with frames of the sizes that `size` draws.
pub fn run(load: &Load, mut size: impl FnMut() -> u32) -> Run {
    let mut testbed = Testbed::new(hub(load.delay, load.stations, load.seed));
    // When which station has its next frame.
    let mut next: BTreeSet<(Instant, u16, u32)> = BTreeSet::new();
    let waiting = if load.pause == 0 { 2 } else { 1 };
    (0..load.stations).for_each(|port| (0..waiting).for_each(|n| _ = next.insert((Instant::ZERO, port, n))));
    let mut pauses = load.seed.stream("pauses");
    let (mut id, mut used) = (0, 0);
    let mut run = Run { sent: Vec::new(), given_up: 0, efficiency: 0.0 };
    while testbed.now.as_s() < load.seconds {
        match next.first().copied() {
            Some(first) if testbed.deadline.is_none_or(|deadline| first.0 <= deadline) => {
                next.remove(&first);
                id += 1;
                let packet = Packet::new(id, size() - HEADER, Destination::All);
                testbed.send(first.0, first.1, Packet { channel: first.1, ..packet });
            }
            _ => testbed.until(testbed.deadline.expect("stations have frames")),
        }
        let mut last = None;
        for (_, output) in testbed.take() {
            let station = match output {
                MediumOutput::Transmit { frame, .. } if last != Some(frame.id) => {
                    last = Some(frame.id);
                    let (station, size) = (frame.channel, frame.length + HEADER);
                    run.sent.push(Sent { station, size, received: testbed.now.as_s() });
                    used += taken(size);
                    station
                }
                MediumOutput::Lost { port, .. } => {
                    run.given_up += 1;
                    port.0
                }
                _ => continue,
            };
            let pause = if load.pause == 0 { 0 } else { pauses.below(2 * load.pause) };
            next.insert((testbed.now + Span::from_ns(pause), station, 0));
        }
    }
    run.efficiency = used as f64 / 1e9 / testbed.now.as_s();
    run
}

/// Stations that always have frames of `size` bytes.
pub fn saturate(delay: u64, stations: u16, size: u32, seconds: f64) -> Run {
    run(&Load { delay, stations, pause: 0, seconds, seed: Seed(9) }, || size)
}

/// Metcalfe and Boggs, Ethernet: Distributed Packet Switching for Local Computer Networks (CACM 19(7), 1976),
/// section 6: the share of time in which `stations` that always have something to send send packets that take
/// `packet`, with a slot of `slot`, if in each slot each tries with probability 1 / stations.
pub fn metcalfe_boggs(stations: f64, packet: f64, slot: f64) -> f64 {
    let a = libm::pow(1.0 - 1.0 / stations, stations - 1.0);
    packet / (packet + (1.0 - a) / a * slot)
}

/// What theory says of two stations.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The share of time that frames and their gaps take.
    pub efficiency: f64,
    /// Mean number of frames that one station sends before the other gets through.
    pub run: f64,
    /// Frames for each contention; more than 1 are sent while the loser still backs off.
    pub frames: f64,
    /// What a contention costs, less the gap that would be there anyway: mean, in ns.
    pub cost: f64,
}

/// The share of time that `stations` frames and gaps take, each frame sent for `frame` ns; an approximation.
///
/// A station that has lost often goes through its sixteen attempts with hardly a chance: its competitor has
/// a new frame and draws from fewer slots. So it comes back sixteen times in the sum of its fifteen mean
/// backoffs, whatever the others do, and all losers together come back like a Poisson process. A frame is
/// followed by a contention if a station came back meanwhile, and that costs as much as for two
/// stations.
pub fn many_stations(stations: u16, frame: u64, delay: u64) -> f64 {
    let backoffs: f64 = (1..16).map(|n: u32| f64::from((1u32 << n.min(10)) - 1) / 2.0).sum();
    let between = backoffs * SLOT as f64 / 16.0;
    let taken = (frame + GAP) as f64;
    let contended = 1.0 - libm::exp(-f64::from(stations - 1) * taken / between);
    taken / (taken + contended * two_stations(frame, delay).cost)
}

/// What one contention leads to, on average.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// From the end of the frame before to the end of the last frame before the next contention, in ns.
    time: f64,
    frames: f64,
    /// The other station gets through.
    changes: f64,
    /// The loser's collisions when the next contention begins.
    left: [f64; 16],
}

/// Two stations, `delay` ns apart, with frames that are sent for `frame` ns: exact.
///
/// When a frame ends, its sender is ready again. The other, the loser of the last contention, may still back
/// off; then the sender has the medium to itself once more. Otherwise both start, the loser a delay later, and
/// collide. Both draw (clause 4.2.3.2.5), until they start more than a delay apart. All that is remembered from
/// one contention to the next is how often the loser's frame has collided, so this is a Markov chain with 16
/// states.
pub fn two_stations(frame: u64, delay: u64) -> Pair {
    let duel = Duel { frame: frame as i64, delay: delay as i64 };
    let outcomes: Vec<Outcome> = (0..16).map(|collisions| duel.contention(collisions)).collect();
    let mut state = [1.0 / 16.0; 16];
    for _ in 0..20_000 {
        let mut next = [0.0; 16];
        for (share, outcome) in state.iter().zip(&outcomes) {
            next.iter_mut().zip(outcome.left).for_each(|(n, left)| *n += share * left);
        }
        let sum: f64 = next.iter().sum();
        state = next.map(|share| share / sum);
    }
    let mean = |what: fn(&Outcome) -> f64| -> f64 {
        state.iter().zip(&outcomes).map(|(share, outcome)| share * what(outcome)).sum()
    };
    let (frames, time) = (mean(|o| o.frames), mean(|o| o.time));
    let used = frames * (frame + GAP) as f64;
    Pair { efficiency: used / time, run: frames / mean(|o| o.changes), frames, cost: time - used }
}

/// The station that sent the last frame, and how often the current one has collided; times in ns.
struct Duel {
    frame: i64,
    delay: i64,
}

impl Duel {
    fn contention(&self, loser: u32) -> Outcome {
        let mut outcome = Outcome { time: GAP as f64, ..Outcome::default() };
        self.collide(self.delay, [0, loser], 1.0, &mut outcome);
        outcome
    }

    /// Both collide, the second station starting `later` than the first, which may be negative.
    fn collide(&self, later: i64, collisions: [u32; 2], weight: f64, outcome: &mut Outcome) {
        if weight < 1e-13 {
            return;
        }
        let starts = [0, later];
        // Each sends until it has sensed the other and sent its preamble, and then jams.
        let ends = [0, 1].map(|me| {
            let senses = starts[1 - me] + self.delay;
            senses.max(starts[me] + PREAMBLE as i64) + JAM as i64
        });
        let clear = [0, 1].map(|me| ends[me].max(ends[1 - me] + self.delay) + GAP as i64);
        // The sixteenth collision is the last of its frame; the next frame has none, and starts when it may.
        let collisions = collisions.map(|n| (n + 1) % 16);
        let slots = collisions.map(|n| 1i64 << n.min(10));
        let chance = weight / (slots[0] * slots[1]) as f64;
        let mut again: BTreeMap<i64, f64> = BTreeMap::new();
        for first in 0..slots[0] {
            let ready = ends[0] + first * SLOT as i64;
            let starts_first = ready.max(clear[0]);
            for second in 0..slots[1] {
                let ready = [ready, ends[1] + second * SLOT as i64];
                let starts = [starts_first, ready[1].max(clear[1])];
                if (starts[1] - starts[0]).abs() <= self.delay {
                    outcome.time += chance * starts[0] as f64;
                    *again.entry(starts[1] - starts[0]).or_default() += chance;
                    continue;
                }
                let winner = usize::from(starts[1] < starts[0]);
                let end = starts[winner] + self.frame;
                // For how long the loser backs off after it has received the frame and the gap.
                let round = self.frame + GAP as i64;
                let backs_off = ready[1 - winner] - (end + self.delay + GAP as i64);
                let more = if backs_off > 0 { (backs_off + round - 1) / round } else { 0 };
                outcome.time += chance * (end + more * round) as f64;
                outcome.frames += chance * (1 + more) as f64;
                outcome.changes += chance * winner as f64;
                outcome.left[collisions[1 - winner] as usize] += chance;
            }
        }
        for (later, chance) in again {
            self.collide(later, collisions, chance, outcome);
        }
    }
}
