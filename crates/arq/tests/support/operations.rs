//! Two nodes and a path that do what bytes say, and an oracle: what arrives is what was sent, in order, and once the path
//! is good again everything does.

use std::collections::VecDeque;

use trunkline_arq::{Buffer, Check, Command, Congestion, End, Fec, Mode, News, Options, Refusal, Taken};
use trunkline_endpoint::{Endpoint, Input};
use trunkline_units::Span;

use crate::hand::{HOP, Hand};

/// Frames that the path holds each way; the oldest is lost.
const MOST: usize = 64;
const CHANNELS: usize = 3;
/// Rounds of a good path within which everything arrives.
const ROUNDS: usize = 20_000;

/// What a channel carries one way.
#[derive(Default)]
struct Line {
    /// Messages sent and not wholly received, and what was received of the first.
    messages: VecDeque<Vec<u8>>,
    received: usize,
    number: u64,
    partial: Buffer,
}

struct World {
    hand: Hand,
    /// Frames on their way to each end.
    flying: [VecDeque<Vec<u8>>; 2],
    lines: [[Line; CHANNELS]; 2],
    reset: bool,
    closing: [bool; 2],
    closed: [Option<End>; 2],
}

/// Does what `bytes` say: three for the options, then three for each operation.
pub fn operate(bytes: &[u8]) {
    let [a, b, c, operations @ ..] = bytes else { return };
    let mut world = World::new(*a, *b, *c);
    for operation in operations.chunks_exact(3) {
        world.operate(operation[0], operation[1], operation[2]);
    }
    world.finish();
}

impl World {
    fn new(a: u8, b: u8, c: u8) -> World {
        let options = Options {
            mode: [Mode::Selective, Mode::GoBackN, Mode::StopAndWait][usize::from(a % 3)],
            congestion: [Congestion::Fixed, Congestion::Reno, Congestion::Paced][usize::from(a / 3 % 3)],
            check: [Check::Crc32c, Check::Crc64][usize::from(a / 9 % 2)],
            window: 1 + u16::from(b % 16),
            frame: 128 + u16::from(b / 16) * 16,
            ack_every: 1 + u16::from(c % 8),
            credit: if c & 8 == 0 { 256 } else { 4096 },
            channel_credit: if c & 16 == 0 { 256 } else { 4096 },
            send_buffer: if c & 32 == 0 { 100 } else { 4096 },
            share: if c & 64 == 0 { Span::ZERO } else { Span::from_us(300) },
            fec: (c & 128 != 0).then_some(Fec { frames: 1 + b % 5, repairs: 1 + b / 16 % 3 }),
            patience: Span::from_s(40 * 3600),
            ..Options::default()
        };
        World {
            hand: Hand::open(&options),
            flying: Default::default(),
            lines: Default::default(),
            reset: false,
            closing: [false; 2],
            closed: [None; 2],
        }
    }

    fn operate(&mut self, what: u8, which: u8, much: u8) {
        let (end, channel) = (usize::from(which & 1), usize::from(which / 2) % CHANNELS);
        match what % 12 {
            0 | 1 => self.send(end, channel, 1 + usize::from(much) * if what & 128 == 0 { 1 } else { 8 }),
            2 | 3 => self.deliver(end, usize::from(much)),
            4 => drop(self.pick(end, usize::from(much))),
            5 => {
                if let Some(frame) = self.pick(end, usize::from(much)) {
                    self.flying[end].extend([frame.clone(), frame]);
                }
            }
            6 => {
                if let Some(mut frame) = self.pick(end, usize::from(much)) {
                    let bit = usize::from(which) % (frame.len() * 8);
                    frame[bit / 8] ^= 1 << (bit % 8);
                    self.flying[end].push_back(frame);
                }
            }
            7 => drop(self.take(end, channel, much & 1 == 0, usize::from(much))),
            8 => {
                let said = self.hand.wake(end);
                self.fly(end, said);
            }
            9 => self.hand.pass(Span::from_us(1 << (much % 24))),
            10 => {
                let (id, priority) = (self.hand.ids[end], much);
                self.command(end, Command::Prioritize { id, channel: channel as u16, priority });
            }
            _ if much < 16 => self.close(end),
            _ if much > 252 => {
                self.command(end, Command::Reset { id: self.hand.ids[end] });
                self.reset = true;
            }
            _ => {}
        }
        for end in 0..2 {
            let said = self.hand.hear(end);
            self.fly(end, said);
        }
        self.listen();
    }

    /// What an end said is on its way.
    fn fly(&mut self, from: usize, said: Vec<Vec<u8>>) {
        let to = &mut self.flying[1 - from];
        to.extend(said);
        to.drain(..to.len().saturating_sub(MOST));
    }

    fn pick(&mut self, end: usize, at: usize) -> Option<Vec<u8>> {
        let count = self.flying[end].len().max(1);
        self.flying[end].remove(at % count)
    }

    fn deliver(&mut self, end: usize, at: usize) {
        if let Some(frame) = self.pick(end, at) {
            let said = self.hand.give(end, &[frame]);
            self.fly(end, said);
        }
    }

    fn command(&mut self, end: usize, command: Command<'_>) -> Option<Refusal> {
        self.hand.nodes[end].handle(self.hand.now, Input::Command(command)).err()
    }

    fn send(&mut self, end: usize, channel: usize, length: usize) {
        let number = self.lines[end][channel].number;
        let of_byte = |at: usize| (number as u8).wrapping_mul(31) ^ (at as u8).wrapping_add((at >> 8) as u8);
        let message: Vec<u8> = (0..length).map(|at| of_byte(at) ^ (channel as u8) << 6).collect();
        let id = self.hand.ids[end];
        let refusal = self.command(end, Command::Send { id, channel: channel as u16, bytes: &message });
        match refusal {
            None => {
                let line = &mut self.lines[end][channel];
                line.messages.push_back(message);
                line.number += 1;
            }
            Some(Refusal::Full | Refusal::Closed) => {}
            Some(other) => panic!("a message was refused: {other}"),
        }
    }

    fn close(&mut self, end: usize) {
        self.command(end, Command::Close { id: self.hand.ids[end] });
        self.closing[end] = true;
    }

    /// Takes a message or, as bytes, at most `most`; whether there was something.
    fn take(&mut self, end: usize, channel: usize, whole: bool, most: usize) -> bool {
        let id = self.hand.ids[end];
        let number = channel as u16;
        let mut into = std::mem::take(&mut self.lines[1 - end][channel].partial);
        if whole || !into.is_empty() {
            let mut taken = Taken::Nothing;
            let refusal =
                self.command(end, Command::Take { id, channel: number, into: &mut into, taken: &mut taken });
            assert_eq!(refusal, None);
            let line = &mut self.lines[1 - end][channel];
            match taken {
                Taken::Whole => {
                    let message = line.messages.pop_front().expect("nobody sent another message");
                    assert!(into[..] == message[line.received..], "a message is what was sent");
                    line.received = 0;
                }
                Taken::Part | Taken::Nothing => line.partial = into,
            }
            return taken != Taken::Nothing;
        }
        let mut into = vec![0; most];
        let mut read = 0;
        let refusal =
            self.command(end, Command::Read { id, channel: number, into: &mut into, read: &mut read });
        assert_eq!(refusal, None);
        let line = &mut self.lines[1 - end][channel];
        for byte in &into[..read] {
            let message = line.messages.front().expect("nobody sent another byte");
            assert_eq!(*byte, message[line.received], "a byte is what was sent");
            line.received += 1;
            if line.received == message.len() {
                line.messages.pop_front();
                line.received = 0;
            }
        }
        read > 0
    }

    fn listen(&mut self) {
        for (end, news) in std::mem::take(&mut self.hand.events) {
            if let News::Closed { end: why } = news {
                assert_eq!(self.closed[end].replace(why), None, "it ends once");
            }
        }
    }

    /// From now on the path is good and both ends read: everything arrives, and both ends come to their end.
    fn finish(mut self) {
        for end in 0..2 {
            if !self.closing[end] {
                self.close(end);
            }
        }
        // Who was reset may have to wait for the end of its peer's patience.
        let rounds = if self.reset { 100 } else { ROUNDS };
        for _ in 0..rounds {
            if self.closed.iter().all(Option::is_some) {
                break;
            }
            for end in 0..2 {
                let said = self.hand.hear(end);
                self.fly(end, said);
            }
            self.hand.pass(HOP);
            for end in 0..2 {
                for _ in 0..self.flying[end].len() {
                    self.deliver(end, 0);
                }
                (0..CHANNELS).for_each(|channel| while self.take(end, channel, true, 0) {});
            }
            if self.flying.iter().all(VecDeque::is_empty) {
                let first = usize::from(self.hand.deadlines[1] < self.hand.deadlines[0]);
                let wakes = [first, 1 - first].into_iter().find(|end| self.hand.deadlines[*end].is_some());
                if let Some(end) = wakes {
                    let said = self.hand.wake(end);
                    self.fly(end, said);
                }
            }
            self.listen();
        }
        if self.reset {
            assert!(self.closed.iter().any(Option::is_some), "an end that was reset is over");
            return;
        }
        for end in 0..2 {
            (0..CHANNELS).for_each(|channel| while self.take(end, channel, true, 0) {});
        }
        let left: usize = self.lines.iter().flatten().map(|line| line.messages.len()).sum();
        let said = || [0, 1].map(|end| self.hand.statistics(end));
        assert_eq!(
            (left, self.closed),
            (0, [Some(End::Done); 2]),
            "a good path brings everything: {:?}",
            said()
        );
    }
}
