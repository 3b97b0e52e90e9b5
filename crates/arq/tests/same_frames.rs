//! The same messages in the same order become the same frames on every path through the endpoint.
//!
//! | step | paths |
//! | --- | --- |
//! | a message is sent | by a command, or by the call for single messages |
//! | a frame leaves | copied to the caller's buffer, or from the send buffer |
//! | frames arrive | one by one, in batches, or by the call for an awaited message |
//! | a frame is processed | on the fast path where it applies, or on the general path |
//!
//! Messages that the endpoint owns share no frame with others, and messages encoded before the poll are divided among
//! frames in other ways. So every path sends the same messages owned, and the paths are compared for each setting: never
//! encode before the poll, with a frame in flight (as sockets do), or always.

use std::collections::VecDeque;

use trunkline_arq::{
    Buffer, Check, Command, Congestion, Event, EventKind, Node, Options, ReceiveStatus, Refusal,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Segment, Writable};
use trunkline_units::{Seed, Span, Stream};

use crate::support::manual_pair::{ADDRESSES, HOP, ManualPair};

const ROUNDS: usize = 40;
const SEEDS: u64 = 12;
const CHANNELS: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum SendBy {
    Command,
    MessageCall,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ReceiveBy {
    Frame,
    Batch,
    MessageCall,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    send: SendBy,
    receive: ReceiveBy,
    in_place: bool,
    general: bool,
}

impl Path {
    const REFERENCE: Path =
        Path { send: SendBy::Command, receive: ReceiveBy::Frame, in_place: false, general: true };

    fn all() -> Vec<Path> {
        let mut paths = Vec::new();
        for send in [SendBy::Command, SendBy::MessageCall] {
            for receive in [ReceiveBy::Frame, ReceiveBy::Batch, ReceiveBy::MessageCall] {
                for (in_place, general) in [(false, false), (true, false), (false, true), (true, true)] {
                    paths.push(Path { send, receive, in_place, general });
                }
            }
        }
        paths
    }
}

/// What passed between two ends: frames by their sender, and messages by their receiver.
#[derive(Debug, Default, PartialEq)]
struct Trace {
    frames: Vec<(usize, Vec<u8>)>,
    messages: Vec<(usize, u16, Vec<u8>)>,
}

struct Run {
    path: Path,
    pair: ManualPair,
    /// Frames on their way to each end.
    in_transit: [VecDeque<Vec<u8>>; 2],
    trace: Trace,
    /// Calls for messages that took effect, sent and received.
    calls: [usize; 2],
}

impl Run {
    fn new(path: Path, options: &Options, pre_encode_from: Option<u32>) -> Run {
        let prepare = |node: &mut Node| {
            pre_encode_from.into_iter().for_each(|from| node.enable_pre_encoding(from));
            if path.general {
                node.disable_fast_path();
            }
        };
        let pair = ManualPair::prepared(options, options, prepare).opened();
        Run { path, pair, in_transit: Default::default(), trace: Trace::default(), calls: [0; 2] }
    }

    fn node(&mut self, end: usize) -> &mut Node {
        self.pair.nodes[end].inner_mut(self.pair.now)
    }

    fn transmit(&mut self, end: usize, frame: Vec<u8>) {
        self.in_transit[1 - end].push_back(frame.clone());
        self.trace.frames.push((end, frame));
    }

    fn poll(&mut self, end: usize) {
        let (now, in_place, mut buffer) = (self.pair.now, self.path.in_place, vec![0; MAX_BATCH]);
        loop {
            let node = self.node(end);
            let output = match in_place {
                true => node.poll_in_place(now, Writable::ALL, &mut buffer),
                false => node.poll(now, Writable::ALL, &mut buffer),
            };
            match output {
                Output::Transmit(transmit) => {
                    let bytes = match in_place {
                        true => node.transmitted_bytes(&buffer, transmit.length),
                        false => &buffer[..transmit.length],
                    };
                    let frames: Vec<_> =
                        Segment::frames(transmit.segment, bytes).map(<[u8]>::to_vec).collect();
                    frames.into_iter().for_each(|frame| self.transmit(end, frame));
                }
                Output::Event(Event { kind: EventKind::Closed { .. }, .. }) => panic!("it stays open"),
                Output::Event(_) => {}
                Output::Idle(_) => return,
            }
        }
    }

    fn send(&mut self, end: usize, channel: u16, bytes: &[u8], is_owned: bool) {
        let (now, id) = (self.pair.now, self.pair.ids[end]);
        if self.path.send == SendBy::MessageCall && !is_owned {
            let mut buffer = vec![0; MAX_BATCH];
            if let Some((length, _)) = self.node(end).send_message(now, id, channel, bytes, &mut buffer) {
                self.calls[0] += 1;
                return self.transmit(end, buffer[..length].to_vec());
            }
        }
        let mut message = Buffer::from(bytes);
        let command = match is_owned {
            true => Command::SendOwned { id, channel, message: &mut message },
            false => Command::Send { id, channel, bytes },
        };
        let sent = self.node(end).handle(now, Input::Command(command));
        assert!(matches!(sent, Ok(()) | Err(Refusal::Full)), "{sent:?}");
        self.poll(end);
    }

    /// Delivers all frames on their way to an end, and takes the messages.
    fn deliver(&mut self, end: usize) {
        let (now, id) = (self.pair.now, self.pair.ids[end]);
        let mut frames = std::mem::take(&mut self.in_transit[end]);
        while let Some(mut bytes) = frames.pop_front() {
            let length = bytes.len();
            if self.path.receive == ReceiveBy::MessageCall && frames.is_empty() {
                let mut message = Buffer::new();
                if self.node(end).receive_message(now, &bytes, id, 0, &mut message) {
                    self.calls[1] += 1;
                    self.trace.messages.push((end, 0, message.to_vec()));
                    break;
                }
            }
            // In a batch all frames but the last are equally long.
            while self.path.receive == ReceiveBy::Batch
                && bytes.len() % length == 0
                && frames.front().is_some_and(|frame| frame.len() <= length)
            {
                bytes.extend(frames.pop_front().unwrap_or_default());
            }
            let segment = Segment::of(length, bytes.len());
            let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes: &bytes, segment };
            self.node(end).handle(now, input).expect("no frame is refused");
        }
        for channel in 0..CHANNELS {
            loop {
                let (mut message, mut status) = (Buffer::new(), ReceiveStatus::Empty);
                let command = Command::Receive { id, channel, buffer: &mut message, status: &mut status };
                self.node(end).handle(now, Input::Command(command)).expect("the connection is open");
                match status {
                    ReceiveStatus::Complete => self.trace.messages.push((end, channel, message.to_vec())),
                    _ => break,
                }
            }
        }
        // A call for messages leaves an acknowledgement that is due to the next poll.
        self.node(end).handle(now, Input::Wake).expect("a wake is never refused");
        self.poll(end);
    }

    fn exchange(&mut self) {
        while self.in_transit.iter().any(|frames| !frames.is_empty()) {
            self.pair.pass(HOP);
            (0..2).for_each(|end| self.deliver(end));
        }
    }
}

fn options(random: &mut Stream) -> Options {
    let mut one_of = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    Options {
        check: [Check::Crc32c, Check::Crc64, Check::None][one_of(&[0, 1, 2]) as usize],
        congestion: [Congestion::Fixed, Congestion::Reno][one_of(&[0, 1]) as usize],
        window: one_of(&[4, 64]) as u16,
        frame: one_of(&[128, 300, 1472]) as u16,
        ack_every: one_of(&[1, 3, 16]) as u16,
        ..Options::default()
    }
}

/// Exchanges drawn messages; the draws do not depend on the path.
fn run(path: Path, pre_encode_from: Option<u32>, seed: u64) -> (Trace, [usize; 2]) {
    let mut random = Seed(seed).stream("messages");
    let mut run = Run::new(path, &options(&mut random), pre_encode_from);
    for round in 0..ROUNDS {
        // Mostly a request, a response or a few messages one way.
        let end = if random.chance(0.8) { round % 2 } else { random.below(2) as usize };
        let count = if random.chance(0.8) { 1 } else { 5 };
        for _ in 0..count {
            let channel = if random.chance(0.9) { 0 } else { 1 };
            let length = if random.chance(0.8) { random.below(100) } else { random.below(5000) };
            let message = vec![random.bits() as u8; length as usize];
            run.send(end, channel, &message, random.chance(0.1));
        }
        if random.chance(0.8) {
            run.exchange();
        }
        run.pair.pass(Span::from_us(random.below(300)));
    }
    run.exchange();
    (run.trace, run.calls)
}

#[test]
fn the_same_messages_become_the_same_frames_on_every_path() {
    let mut calls = [0; 2];
    for (seed, pre_encode_from) in
        (0..SEEDS).flat_map(|seed| [None, Some(0), Some(1)].map(|from| (seed, from)))
    {
        let (reference, _) = run(Path::REFERENCE, pre_encode_from, seed);
        assert!(reference.frames.len() > ROUNDS && reference.messages.len() > ROUNDS, "seed {seed}");
        for path in Path::all() {
            let (trace, done) = run(path, pre_encode_from, seed);
            let first = trace.frames.iter().zip(&reference.frames).position(|(a, b)| a != b);
            assert!(trace == reference, "seed {seed}, {pre_encode_from:?}, {path:?}, from frame {first:?}");
            (calls[0], calls[1]) = (calls[0] + done[0], calls[1] + done[1]);
        }
    }
    assert!(calls.iter().all(|calls| *calls > 500), "{calls:?}");
}
