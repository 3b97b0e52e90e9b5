//! The line against a reference with explicit events, and the guarantees of a link.

use super::common;

use std::collections::{BTreeMap, VecDeque};

use common::{Log, Packet, Testbed, draw_bound, load, run, send_when_room};
use proptest::prelude::*;
use trunkline_endpoint::{
    Bound, Capacity, Destination, Frame, LossCause, MediumCounters, MediumOutput, Port,
};
use trunkline_models::media::{Framing, Impairments, LineOptions, Link};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// A straightforward line: a queue, a transmitter, an event when a frame has left and one when it
/// arrives. Times are exact fractions over the rate.
struct Reference {
    options: LineOptions,
    stream: Stream,
    port: u16,
    queue: VecDeque<Packet>,
    /// The frame on the transmitter: its start and end, and the end as a fraction.
    sending: Option<(Packet, u64, u64)>,
    /// When the transmitter was last free, in ps times the rate.
    free: u128,
    /// When the pacer lets the next one go, in ps times the pacing rate.
    paced: u128,
    flying: BTreeMap<(u64, u32), (Packet, [bool; 4])>,
    held: Option<(u64, Packet, [bool; 4])>,
    launched: u32,
    counters: MediumCounters,
    outputs: Vec<Log>,
}

impl Reference {
    fn new(port: u16, options: LineOptions, stream: Stream) -> Self {
        Reference {
            options,
            stream,
            port,
            queue: VecDeque::new(),
            sending: None,
            free: 0,
            paced: 0,
            flying: BTreeMap::new(),
            held: None,
            launched: 0,
            counters: MediumCounters::default(),
            outputs: Vec::new(),
        }
    }

    fn rate(&self) -> u128 {
        u128::from(self.options.rate.as_bps())
    }

    fn pace(&self) -> u128 {
        self.options.pacing.map_or(1, |pace| u128::from(pace.as_bps()))
    }

    /// When the first of the queue may begin, if the transmitter is free.
    fn may_begin(&self) -> Option<u64> {
        let free = self.free.div_ceil(self.rate()) as u64;
        let ready = free.max(self.paced.div_ceil(self.pace()) as u64);
        (self.sending.is_none() && !self.queue.is_empty()).then_some(ready)
    }

    fn until(&mut self, now: u64) {
        loop {
            let leaves = self.sending.as_ref().map(|(_, _, end)| *end);
            let begins = self.may_begin();
            let arrives = self.flying.keys().next().map(|(at, _)| *at);
            let released = self.held.as_ref().map(|(until, _, _)| *until);
            let next = [leaves, begins, arrives, released].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= now) else { return };
            if leaves == Some(at) {
                self.leave(at);
            } else if begins == Some(at) {
                self.begin(at);
            } else if arrives == Some(at) {
                self.arrive(at);
            } else if let Some((_, packet, outcome)) = self.held.take() {
                self.deliver(at, packet, outcome);
            }
        }
    }

    fn begin(&mut self, at: u64) {
        let Some(packet) = self.queue.pop_front() else { return };
        let (at128, bits) = (u128::from(at), 8_000_000_000_000);
        let rate = self.rate();
        if self.free.div_ceil(rate) != at128 {
            self.free = at128 * rate;
        }
        let padded = packet.length.max(self.options.framing.smallest) + self.options.framing.overhead;
        self.free += u128::from(padded) * bits;
        if self.options.pacing.is_some() {
            if self.paced.div_ceil(self.pace()) != at128 {
                self.paced = at128 * self.pace();
            }
            self.paced += u128::from(packet.length) * bits;
        }
        self.sending = Some((packet, at, self.free.div_ceil(rate) as u64));
    }

    fn leave(&mut self, at: u64) {
        let Some((packet, begun, end)) = self.sending.take() else { return };
        self.counters.frames += 1;
        self.counters.bytes += u64::from(packet.length);
        self.counters.busy += Span::from_ps(end - begun);
        let i = self.options.impairments;
        let mut outcome = [false; 4];
        for (outcome, share) in outcome.iter_mut().zip([i.loss, i.corrupt, i.duplicate, i.reorder]) {
            *outcome = share > 0.0 && self.stream.chance(share);
        }
        self.flying.insert((at + self.options.delay.as_ps(), self.launched), (packet, outcome));
        self.launched += 1;
    }

    fn arrive(&mut self, at: u64) {
        let Some((_, (packet, outcome))) = self.flying.pop_first() else { return };
        if outcome[0] {
            self.counters.other_losses += 1;
            let lost =
                MediumOutput::Lost { port: Port(self.port), frame: packet, cause: LossCause::LineError };
            return self.outputs.push((Instant::from_ps(at), lost));
        }
        if outcome[3] && self.held.is_none() {
            self.held = Some((at + self.options.impairments.hold.as_ps(), packet, outcome));
            return;
        }
        self.deliver(at, packet, outcome);
        if let Some((_, packet, outcome)) = self.held.take() {
            self.counters.reordered += 1;
            self.deliver(at, packet, outcome);
        }
    }

    fn deliver(&mut self, at: u64, mut packet: Packet, outcome: [bool; 4]) {
        packet.damaged = outcome[1];
        self.counters.damaged += u64::from(outcome[1]);
        self.counters.duplicated += u64::from(outcome[2]);
        for _ in 0..1 + usize::from(outcome[2]) {
            let arrived = MediumOutput::Transmit { port: Port(1 - self.port), frame: packet.clone() };
            self.outputs.push((Instant::from_ps(at), arrived));
        }
    }

    fn send(&mut self, at: Instant, packet: Packet) {
        self.until(at.as_ps());
        let bound = self.options.bound;
        let waits = self.queue.iter().chain(self.sending.iter().map(|(packet, _, _)| packet));
        let same: Vec<u32> =
            waits.filter(|p| !bound.per_channel || p.channel == packet.channel).map(Frame::length).collect();
        let bytes: u64 = same.iter().map(|length| u64::from(*length)).sum();
        if !bound.fits(same.len() as u64, bytes, packet.length) {
            self.counters.queue_drops += 1;
            let lost =
                MediumOutput::Lost { port: Port(self.port), frame: packet, cause: LossCause::QueueFull };
            return self.outputs.push((at, lost));
        }
        self.queue.push_back(packet);
        let waits = self.queue.iter().chain(self.sending.iter().map(|(packet, _, _)| packet));
        let all: u64 = waits.map(|packet| u64::from(packet.length)).sum();
        self.counters.queue_max = self.counters.queue_max.max(all);
        if self.may_begin().is_some_and(|ready| ready <= at.as_ps()) {
            self.begin(at.as_ps());
        }
    }
}

fn draw_options(stream: &mut Stream) -> LineOptions {
    let rates = [9_600, 10_000_000, 149_760_000, 155_520_000, 99_999_989];
    let rate = rates[stream.below(5) as usize];
    let mut share = |of: f64| if stream.chance(of) { stream.unit() / 2.0 } else { 0.0 };
    let (loss, corrupt, duplicate, reorder) = (share(0.3), share(0.3), share(0.3), share(0.3));
    let hold = Span::from_ps(stream.below(2 * packet_time(rate)));
    LineOptions {
        rate: Rate::from_bps(rate),
        framing: [Framing::ETHERNET, Framing::PPP, Framing::NONE][stream.below(3) as usize],
        delay: Span::from_ps(stream.below(3) * stream.below(3 * packet_time(rate))),
        bound: draw_bound(stream),
        pacing: stream.chance(0.3).then(|| Rate::from_bps(rate / 3 + stream.below(rate))),
        impairments: Impairments { loss, corrupt, duplicate, reorder, hold },
        queue: None,
    }
}

/// About what an average packet takes, in ps.
fn packet_time(rate: u64) -> u64 {
    6_000 * 1_000_000_000_000 / rate
}

fn perfect(rate: u64, bound: Bound) -> LineOptions {
    LineOptions { rate: Rate::from_bps(rate), framing: Framing::NONE, bound, ..LineOptions::default() }
}

fn streams(seed: Seed) -> [Stream; 2] {
    [seed.stream("a"), seed.stream("b")]
}

/// A link with two equal lines.
fn link(options: LineOptions) -> Link<Packet> {
    Link::new([options.clone(), options], streams(Seed(1)))
}

fn packet(id: u32, length: u32) -> Packet {
    Packet::new(id, length, Destination::Station(0))
}

/// Returns the outputs that concern frames from `port`.
fn of_port(outputs: &[Log], port: u16) -> Vec<Log> {
    let concerns = |(_, output): &&Log| match output {
        MediumOutput::Transmit { port: to, .. } => to.0 != port,
        MediumOutput::Lost { port: from, .. } | MediumOutput::Room { port: from } => from.0 == port,
        MediumOutput::Idle { .. } => false,
    };
    outputs.iter().filter(concerns).cloned().collect()
}

proptest! {
    /// Same arrivals, same losses, same counters, at every moment.
    #[test]
    fn line_and_reference_agree(seed in any::<u64>()) {
        let seed = Seed(seed);
        let mut draw = seed.stream("scene");
        let options = [draw_options(&mut draw), draw_options(&mut draw)];
        let gap = Span::from_ps(packet_time(options[0].rate.as_bps()) * (1 + draw.below(4)) / 4);
        let load = load(&mut draw, 300, 2, gap, |_| Destination::All);

        let [a, b] = streams(seed);
        let mut reference = [Reference::new(0, options[0].clone(), a), Reference::new(1, options[1].clone(), b)];
        let mut testbed = Testbed::with_early_wakes(Link::new(options, streams(seed)), seed);
        for (at, port, packet) in &load {
            testbed.send(*at, *port, packet.clone());
            reference[usize::from(*port)].send(*at, packet.clone());
            prop_assert_eq!(&testbed.counters(*port), &reference[usize::from(*port)].counters);
        }
        testbed.finish();
        for (port, mut reference) in (0..2).zip(reference) {
            reference.until(u64::MAX);
            prop_assert_eq!(of_port(&testbed.outputs, port), reference.outputs);
            prop_assert_eq!(testbed.counters(port), reference.counters);
        }
    }

    /// Every frame taken comes out: once, twice if it was duplicated, or lost.
    #[test]
    fn nothing_vanishes(seed in any::<u64>()) {
        let mut draw = Seed(seed).stream("scene");
        let options = [draw_options(&mut draw), draw_options(&mut draw)];
        let load = load(&mut draw, 200, 2, Span::from_ps(packet_time(10_000_000)), |_| Destination::All);
        let testbed = run(Testbed::new(Link::new(options, streams(Seed(seed)))), &load);
        let outcomes = common::outcomes(&testbed.outputs);
        prop_assert_eq!(outcomes.len(), load.len());
        let mut duplicated = 0;
        for (_, from, packet) in &load {
            let outcome = &outcomes[&packet.id];
            prop_assert_eq!(outcome.lost.len() + outcome.received.len().min(1), 1);
            prop_assert!(outcome.received.len() <= 2 && outcome.received.iter().all(|port| port != from));
            prop_assert!(outcome.lost.iter().all(|(port, _)| port == from));
            duplicated += outcome.received.len().saturating_sub(1) as u64;
        }
        let (a, b) = (testbed.counters(0), testbed.counters(1));
        prop_assert_eq!(duplicated, a.duplicated + b.duplicated);
        prop_assert_eq!(a.frames + b.frames + a.queue_drops + b.queue_drops, load.len() as u64);
    }
}

#[test]
fn a_frame_takes_its_time() {
    // 1000 bytes of Ethernet at 10 Mb/s, 5 µs of cable.
    let options = LineOptions { delay: Span::from_us(5), ..LineOptions::default() };
    let mut testbed = Testbed::new(link(options));
    testbed.send(Instant::from_ns(100), 1, packet(7, 1000));
    testbed.finish();
    let arrived = MediumOutput::Transmit { port: Port(0), frame: packet(7, 1000) };
    assert_eq!(testbed.outputs, [(Instant::from_ns(100 + 8 * 103_800 + 5_000), arrived)]);
    assert_eq!(testbed.counters(1).busy, Span::from_ns(8 * 103_800));
}

#[test]
fn full_queue_drops_and_reports() {
    for (bound, lengths, full) in [
        (Bound::frames(3), &[100, 100, 100, 100, 100][..], 2),
        (Bound::bytes(300), &[100, 150, 51, 50], 1),
        (Bound::bytes(300), &[301], 1),
        (Bound::frames(0), &[1], 1),
        (Bound::NONE, &[1000; 500], 0),
    ] {
        let mut testbed = Testbed::new(link(perfect(1_000_000, bound)));
        for (id, length) in (0..).zip(lengths) {
            testbed.send(Instant::ZERO, 0, packet(id, *length));
        }
        assert_eq!(testbed.counters(0).queue_drops, full, "{bound:?}");
        testbed.finish();
        assert_eq!(testbed.counters(0).frames, lengths.len() as u64 - full);
    }
}

#[test]
fn each_channel_may_have_a_bound_of_its_own() {
    let bound = Bound { capacity: Capacity::Frames(1), per_channel: true };
    let mut testbed = Testbed::new(link(perfect(1_000_000, bound)));
    for (id, channel) in [(0, 5), (1, 5), (2, 9)] {
        testbed.send(Instant::ZERO, 0, Packet { channel, ..packet(id, 100) });
    }
    let lost: Vec<u32> = common::outcomes(&testbed.outputs).keys().copied().collect();
    assert_eq!(lost, [1]);
    assert!(!testbed.has_room(0, 1), "room is room in every channel");
    testbed.finish();
    assert!(testbed.has_room(0, 1));
}

#[test]
fn a_frame_counts_until_its_last_bit_has_left() {
    let mut testbed =
        Testbed::new(link(LineOptions { delay: Span::from_s(1), ..perfect(8_000_000, Bound::frames(1)) }));
    testbed.send(Instant::ZERO, 0, packet(0, 100));
    testbed.until(Instant::from_ps(99_999_999));
    assert!(!testbed.has_room(0, 1));
    testbed.until(Instant::from_ns(100_000));
    assert!(testbed.has_room(0, 1), "a frame in flight takes no room");
}

#[test]
fn waiting_sender_is_notified_as_soon_as_there_is_space() {
    let mut testbed = Testbed::new(link(perfect(8_000_000, Bound::bytes(300))));
    for id in 0..3 {
        testbed.send(Instant::ZERO, 0, packet(id, 100));
    }
    assert!(!testbed.has_room(0, 150));
    testbed.request_room(0);
    testbed.request_room(0);
    testbed.finish();
    // A byte takes 1 µs; two frames must have left before 150 bytes fit.
    let notified: Vec<Log> =
        testbed.take().into_iter().filter(|(_, p)| matches!(p, MediumOutput::Room { .. })).collect();
    assert_eq!(notified, [(Instant::from_ns(200_000), MediumOutput::Room { port: Port(0) })]);
    testbed.request_room(0);
    assert_eq!(
        testbed.take(),
        [(testbed.now, MediumOutput::Room { port: Port(0) })],
        "there is room already"
    );
}

#[test]
fn a_polite_sender_fills_the_line_and_loses_nothing() {
    let testbed = send_when_room(link(perfect(8_000_000, Bound::frames(2))), 2, 500, |_| Destination::All);
    assert_eq!(testbed.counters(0).queue_drops + testbed.counters(1).queue_drops, 0);
    assert_eq!(testbed.now, Instant::from_ns(500 * 1_000_000), "no gap in 500 frames of 1 ms");
}

#[test]
fn pacing_spaces_frames_and_does_not_drift() {
    let pacing = Some(Rate::from_bps(7_000_000));
    let mut testbed = Testbed::new(link(LineOptions { pacing, ..perfect(100_000_000, Bound::NONE) }));
    for id in 0..7_001 {
        testbed.send(Instant::ZERO, 0, packet(id, 125));
    }
    testbed.finish();
    // 7000 frames of 1000 bits paced at 7 Mb/s take a second; the last one takes 10 µs on the line.
    assert_eq!(testbed.now, Instant::from_ns(1_000_010_000));
}

#[test]
fn a_reordered_frame_follows_the_next_or_departs_alone() {
    let impairments = Impairments { reorder: 1.0, hold: Span::from_us(250), ..Impairments::default() };
    let mut testbed = Testbed::new(link(LineOptions { impairments, ..perfect(8_000_000, Bound::NONE) }));
    for (id, at) in [(0, 0), (1, 0), (2, 0), (3, 1_000_000)] {
        testbed.send(Instant::from_ns(at), 0, packet(id, 100));
    }
    testbed.finish();
    let received: Vec<(u64, u32)> = testbed
        .outputs
        .iter()
        .filter_map(|(at, output)| match output {
            MediumOutput::Transmit { frame, .. } => Some((at.as_ns() / 1000, frame.id)),
            _ => None,
        })
        .collect();
    assert_eq!(received, [(200, 1), (200, 0), (550, 2), (1350, 3)]);
    assert_eq!(testbed.counters(0).reordered, 1);

    // Who arrives when the time is just up still overtakes.
    let impairments = Impairments { hold: Span::from_us(100), ..impairments };
    let mut testbed = Testbed::new(link(LineOptions { impairments, ..perfect(8_000_000, Bound::NONE) }));
    (0..2).for_each(|id| testbed.send(Instant::ZERO, 0, packet(id, 100)));
    testbed.finish();
    assert_eq!(testbed.counters(0).reordered, 1);
}

#[test]
fn impairment_probabilities_hold_and_zero_draws_nothing() {
    let impairments = Impairments { loss: 0.1, corrupt: 0.2, duplicate: 0.3, ..Impairments::default() };
    let options = LineOptions { impairments, ..perfect(8_000_000, Bound::NONE) };
    let mut testbed = Testbed::new(link(options));
    (0..20_000).for_each(|id| testbed.send(Instant::ZERO, 0, packet(id, 1)));
    testbed.finish();
    let c = testbed.counters(0);
    // Five standard deviations of a binomial count.
    let near = |count: u64, of: f64, share: f64| {
        let off = (count as f64 - of * share).abs();
        assert!(off < 5.0 * libm::sqrt(of * share * (1.0 - share)), "{count} of {of} is not {share}");
    };
    near(c.other_losses, 20_000.0, 0.1);
    near(c.damaged, 18_000.0, 0.2);
    near(c.duplicated, 18_000.0, 0.3);

    // With loss alone the second number of the stream decides about the second frame.
    let stream = Seed(3).stream("x");
    let expected: Vec<bool> = (0..100).scan(stream.clone(), |s, _| Some(s.chance(0.5))).collect();
    let impairments = Impairments { loss: 0.5, ..Impairments::default() };
    let options = LineOptions { impairments, ..perfect(8_000_000, Bound::NONE) };
    let mut testbed = Testbed::new(Link::new([options.clone(), options], [stream.clone(), stream]));
    (0..100).for_each(|id| testbed.send(Instant::ZERO, 0, packet(id, 1)));
    testbed.finish();
    let lost: Vec<bool> =
        common::outcomes(&testbed.outputs).values().map(|outcome| !outcome.lost.is_empty()).collect();
    assert_eq!(lost, expected);
}
