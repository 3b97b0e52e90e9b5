//! Received batches have the same effect as single frames: the output, events and statistics of a receiver of batches
//! are compared with those of a receiver of single frames on the general path.

use std::collections::VecDeque;

use trunkline_arq::{Buffer, Check, Command, Congestion, EventKind, Node, Options, ReceiveStatus};
use trunkline_endpoint::{Endpoint, Input, Port, Segment};
use trunkline_units::{Seed, Span, Stream};

use crate::support::manual_pair::{ADDRESSES, ManualPair};

/// A sender and a receiver, twice: the second gets each frame alone.
struct Twins {
    hands: [ManualPair; 2],
    /// On their way to the receivers, and back.
    flying: [VecDeque<Vec<u8>>; 2],
}

impl Twins {
    fn new(options: &Options, lays: bool, first: (u64, u64)) -> Twins {
        let hand = |long: bool| {
            let prepare = |node: &mut Node| {
                node.set_first_numbers(first.0, first.1);
                if lays {
                    node.enable_pre_encoding(1);
                }
                if long {
                    node.disable_fast_path();
                }
            };
            ManualPair::prepared(options, options, prepare).opened()
        };
        Twins { hands: [hand(false), hand(true)], flying: Default::default() }
    }

    fn both<T: PartialEq + std::fmt::Debug>(&mut self, mut what: impl FnMut(&mut ManualPair) -> T) -> T {
        let [batch, single] = self.hands.each_mut().map(&mut what);
        assert_eq!(batch, single);
        batch
    }

    /// Exchanges the pending output of both ends.
    fn receive(&mut self) {
        for end in 0..2 {
            let (said, ..) = self.both(|hand| {
                let said = hand.outputs(end);
                let events: Vec<(usize, EventKind)> = std::mem::take(&mut hand.events);
                let (node, id) = (hand.nodes[end].inner(), hand.ids[end]);
                let counts = (
                    node.statistics(id),
                    node.in_flight(id),
                    node.unread_bytes(id, 0),
                    node.unread_bytes(id, 1),
                );
                (said, events, hand.deadlines[end], counts)
            });
            self.flying[1 - end].extend(said);
        }
    }

    /// Gives the receiver what flies to it first, as long as the first frame and the last shorter: at once, or each alone.
    fn give_batch(&mut self, most: usize) {
        let Some(length) = self.flying[1].front().map(Vec::len) else { return };
        let (mut bytes, mut frames) = (Vec::new(), 0);
        while let Some(frame) = self.flying[1].front()
            && frames < most
            && frame.len() <= length
            && bytes.len() == frames * length
            && bytes.len() + frame.len() <= 60_000
        {
            bytes.extend(self.flying[1].pop_front().unwrap_or_default());
            frames += 1;
        }
        let (port, peer) = (Port(0), ADDRESSES[0]);
        let segment = Segment::of(length, bytes.len());
        let [batch, single] = &mut self.hands;
        let whole = Input::Frame { port, peer, bytes: &bytes, segment };
        batch.nodes[1].handle(batch.now, whole).unwrap();
        for bytes in Segment::frames(segment, &bytes) {
            let frame = Input::Frame { port, peer, bytes, segment: None };
            single.nodes[1].handle(single.now, frame).unwrap();
        }
    }

    fn take(&mut self, channel: u16) -> bool {
        let (_, taken, _) = self.both(|hand| {
            let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
            let command =
                Command::Receive { id: hand.ids[1], channel, buffer: &mut into, status: &mut taken };
            let done = hand.nodes[1].handle(hand.now, Input::Command(command));
            (done, taken, into.to_vec())
        });
        taken != ReceiveStatus::Empty
    }
}

fn options(random: &mut Stream) -> Options {
    let mut one_of = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    Options {
        congestion: [Congestion::Fixed, Congestion::Paced][one_of(&[0, 0, 1]) as usize],
        check: [Check::Crc32c, Check::Crc64, Check::None][one_of(&[0, 1, 2, 2]) as usize],
        window: one_of(&[16, 256, 1024]) as u16,
        frame: one_of(&[128, 300, 1472]) as u16,
        ack_every: one_of(&[2, 16, 64]) as u16,
        credit: one_of(&[4096, 1 << 16, 1 << 20]),
        channel_credit: one_of(&[4096, 1 << 16, 1 << 20]),
        ..Options::default()
    }
}

fn run(seed: u64) {
    let mut random = Seed(seed).stream("runs");
    let options = options(&mut random);
    // Some run over the bits of the numbers on the wire.
    let first = if seed.is_multiple_of(3) { ((1 << 24) - 90, (1 << 16) - 90) } else { (0, 0) };
    let mut twins = Twins::new(&options, seed.is_multiple_of(2), first);
    let calm = 1 + random.below(30);
    for _ in 0..250 {
        let pause = Span::from_us(random.below(200));
        twins.both(|hand| hand.pass(pause));
        let others = random.below(calm) == 0;
        let channel = if others { random.below(3) as u16 } else { 0 };
        let size = random.below(if others { 60 } else { 9000 }) as usize;
        for _ in 0..random.below(8) {
            let message = vec![random.bits() as u8; size];
            let _ = twins.both(|hand| {
                let command = Command::Send { id: hand.ids[0], channel, bytes: &message };
                hand.nodes[0].handle(hand.now, Input::Command(command))
            });
        }
        twins.receive();
        let flying = &mut twins.flying[1];
        match random.below(6 * calm) {
            0 => drop(flying.pop_front()),
            1 => flying.extend(flying.front().cloned()),
            2 => flying.rotate_left(usize::from(flying.len() > 1)),
            3 => {
                let at = random.below(1 + flying.len() as u64) as usize;
                if let Some(frame) = flying.get_mut(at) {
                    let bit = random.below(8 * frame.len() as u64) as usize;
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
            4 => {
                let at = random.below(1 + flying.len() as u64) as usize;
                if let Some(frame) = flying.get_mut(at) {
                    frame.truncate(random.below(20) as usize);
                }
            }
            5 => {
                let message = vec![9; 300];
                let _ = twins.both(|hand| {
                    let command = Command::Send { id: hand.ids[1], channel: 0, bytes: &message };
                    hand.nodes[1].handle(hand.now, Input::Command(command))
                });
            }
            6 => {
                let _ = twins.both(|hand| {
                    let command = Command::Close { id: hand.ids[0] };
                    hand.nodes[0].handle(hand.now, Input::Command(command))
                });
            }
            _ => {}
        }
        let most = 1 + random.below(44) as usize;
        while !twins.flying[1].is_empty() {
            twins.give_batch(most);
            if random.below(4) == 0 {
                twins.receive();
            }
        }
        twins.receive();
        if random.below(3) > 0 {
            for channel in 0..3 {
                while twins.take(channel) {}
            }
        }
        while let Some(frame) = twins.flying[0].pop_front() {
            twins
                .both(|hand| {
                    let (port, peer) = (Port(0), ADDRESSES[1]);
                    let input = Input::Frame { port, peer, bytes: &frame, segment: None };
                    hand.nodes[0].handle(hand.now, input)
                })
                .unwrap();
        }
        for end in 0..2 {
            twins.both(|hand| {
                if hand.deadlines[end].is_some_and(|deadline| deadline <= hand.now) {
                    hand.nodes[end].handle(hand.now, Input::Wake).unwrap();
                }
            });
        }
    }
}

#[test]
fn a_batch_comes_to_the_same_as_its_frames() {
    for seed in 0..40 {
        let done = std::panic::catch_unwind(|| run(seed));
        assert!(done.is_ok(), "seed {seed}");
    }
}
