//! The fast path for single frames has the same result as the general path: after each operation the output, the events and the
//! counters of two ends are compared with those of two others whose fast path is disabled.

use std::collections::VecDeque;

use trunkline_arq::{Buffer, Check, Command, Congestion, EventKind, Mode, Node, Options, ReceiveStatus};
use trunkline_endpoint::{Endpoint, Input};
use trunkline_units::{Seed, Span, Stream};

use crate::support::manual_pair::{ADDRESSES, ManualPair};

const OPERATIONS: usize = 400;

/// Two ends with the fast path, two without, and the frames in transit to each end, which are the same.
struct Twins {
    pairs: [ManualPair; 2],
    in_transit: [VecDeque<Vec<u8>>; 2],
}

impl Twins {
    fn new(options: &Options) -> Twins {
        let pair = |prepare: fn(&mut Node)| ManualPair::prepared(options, options, prepare).opened();
        Twins { pairs: [pair(|_| {}), pair(Node::disable_fast_path)], in_transit: Default::default() }
    }

    /// Does the same to both, and compares operation both answer.
    fn both<T: PartialEq + std::fmt::Debug>(&mut self, mut operation: impl FnMut(&mut ManualPair) -> T) -> T {
        let [fast, general] = self.pairs.each_mut().map(&mut operation);
        assert_eq!(fast, general);
        fast
    }

    fn send(&mut self, end: usize, channel: u16, bytes: &[u8]) {
        let _ = self.both(|pair| {
            let command = Command::Send { id: pair.ids[end], channel, bytes };
            pair.nodes[end].handle(pair.now, Input::Command(command))
        });
    }

    fn hand_over(&mut self, end: usize, channel: u16, bytes: &[u8]) {
        let _ = self.both(|pair| {
            let command =
                Command::SendOwned { id: pair.ids[end], channel, message: &mut Buffer::from(bytes) };
            pair.nodes[end].handle(pair.now, Input::Command(command))
        });
    }

    fn take(&mut self, end: usize, channel: u16) -> bool {
        let taken = self.both(|pair| {
            let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
            let command =
                Command::Receive { id: pair.ids[end], channel, buffer: &mut into, status: &mut taken };
            let done = pair.nodes[end].handle(pair.now, Input::Command(command));
            (done, taken, into.to_vec())
        });
        taken.1 != ReceiveStatus::Empty
    }

    fn give(&mut self, end: usize, frame: &[u8]) {
        let _ = self.both(|pair| {
            let peer = ADDRESSES[1 - end];
            let input = Input::Frame { port: trunkline_endpoint::Port(0), peer, bytes: frame, segment: None };
            pair.nodes[end].handle(pair.now, input)
        });
    }

    fn wake(&mut self, end: usize) {
        self.both(|pair| {
            if let Some(deadline) = pair.deadlines[end] {
                pair.now = pair.now.max(deadline);
                pair.nodes[end].handle(pair.now, Input::Wake).expect("a wake is never refused");
            }
        });
    }

    /// Exchanges the pending output of both ends.
    fn receive(&mut self) {
        for end in 0..2 {
            let (frames, _, _) = self.both(|pair| {
                let frames = pair.outputs(end);
                let events: Vec<(usize, EventKind)> = std::mem::take(&mut pair.events);
                (frames, events, pair.deadlines[end])
            });
            self.in_transit[1 - end].extend(frames);
        }
        for end in 0..2 {
            self.both(|pair| {
                let (node, id) = (pair.nodes[end].inner(), pair.ids[end]);
                let counts = (node.statistics(id), node.in_flight(id), node.unknown_peers());
                (counts, node.round_trip(id), node.is_flushed(id), node.unread_bytes(id, 0))
            });
        }
    }
}

fn options(random: &mut Stream) -> Options {
    // `Paced` has its own fast path, so it is drawn twice as often.
    let policies = [&Congestion::ALL[..], &[Congestion::Paced]].concat();
    let policy_indices: Vec<u32> = (0..policies.len() as u32).collect();
    let mut one_of = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    Options {
        mode: [Mode::Selective, Mode::Selective, Mode::GoBackN, Mode::StopAndWait]
            [one_of(&[0, 1, 2, 3]) as usize],
        congestion: policies[one_of(&policy_indices) as usize],
        check: [Check::Crc32c, Check::Crc64, Check::Folded, Check::None][one_of(&[0, 0, 1, 2, 3]) as usize],
        window: one_of(&[1, 3, 64]) as u16,
        frame: one_of(&[128, 300, 1472]) as u16,
        ack_every: one_of(&[1, 2, 16]) as u16,
        credit: one_of(&[512, 4096, 1 << 20]),
        channel_credit: one_of(&[512, 4096, 1 << 20]),
        send_buffer: one_of(&[100, 1 << 20]) as usize,
        coalesce_delay: Span::from_us(one_of(&[0, 0, 300]).into()),
        keep_alive: Span::from_ms(one_of(&[0, 50]).into()),
        ..Options::default()
    }
}

/// Question and answer, and now and then something else.
fn run(seed: u64) {
    let mut random = Seed(seed).stream("short ways");
    let mut twins = Twins::new(&options(&mut random));
    // Some of the exchanges are hardly ever disturbed.
    let calm = 1 + random.below(60);
    for _ in 0..OPERATIONS {
        let end = random.below(2) as usize;
        let pause = Span::from_ns(random.below(200_000));
        twins.both(|pair| pair.pass(pause));
        if random.below(calm) > 0 {
            let message = vec![
                random.bits() as u8;
                random.below(if seed.is_multiple_of(4) { 200 } else { 70 }) as usize
            ];
            match seed % 3 {
                0 => twins.hand_over(end, 0, &message),
                _ => twins.send(end, 0, &message),
            }
            twins.receive();
            twins.both(|pair| pair.pass(Span::from_us(5)));
            while let Some(frame) = twins.in_transit[1 - end].pop_front() {
                twins.give(1 - end, &frame);
                // Some take messages before the event.
                if seed.is_multiple_of(2) {
                    while twins.take(1 - end, 0) {}
                }
            }
            twins.receive();
            while twins.take(1 - end, 0) {}
            continue;
        }
        let channel = random.below(3) as u16;
        match random.below(10) {
            0 => twins.send(end, channel, &vec![5; random.below(4000) as usize]),
            1 => (0..random.below(6)).for_each(|_| twins.send(end, channel, &[6; 40])),
            2 => drop(twins.in_transit[end].pop_front()),
            3 => {
                if let Some(frame) = twins.in_transit[end].front().cloned() {
                    twins.in_transit[end].push_back(frame);
                }
            }
            4 => {
                if let Some(frame) = twins.in_transit[end].front_mut() {
                    let bit = random.below(8 * frame.len() as u64) as usize;
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
            5 => twins.in_transit[end].rotate_left(usize::from(twins.in_transit[end].len() > 1)),
            6 | 7 => twins.wake(end),
            8 => {
                let priority = random.below(8) as u8;
                let _ = twins.both(|pair| {
                    let command = Command::Prioritize { id: pair.ids[end], channel, priority };
                    pair.nodes[end].handle(pair.now, Input::Command(command))
                });
            }
            _ if random.below(8) == 0 => {
                let _ = twins.both(|pair| {
                    let command = Command::Close { id: pair.ids[end] };
                    pair.nodes[end].handle(pair.now, Input::Command(command))
                });
            }
            _ => while twins.take(end, channel) {},
        }
        twins.receive();
        if random.below(3) > 0
            && let Some(frame) = twins.in_transit[end].pop_front()
        {
            twins.give(end, &frame);
            twins.receive();
        }
    }
}

#[test]
fn the_fast_path_has_the_result_of_the_general_path() {
    for seed in 0..240 {
        let done = std::panic::catch_unwind(|| run(seed));
        assert!(done.is_ok(), "seed {seed}");
    }
}
