//! Two nodes and a path that do what bytes say, and an oracle: what arrives is what was sent, in order, and once the path
//! is good again everything does.

use std::collections::VecDeque;

use trunkline_arq::{
    Buffer, Check, CloseReason, Command, Congestion, EventKind, Fec, Meter, Mode, Options, PresharedKey,
    ReceiveStatus, Refusal, Stage,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Port, Segment};
use trunkline_units::{Instant, Span};

use super::manual_pair::{ADDRESSES, HOP, ManualPair};

/// Frames that the path holds each way; the oldest is lost.
const MOST: usize = 64;
const CHANNELS: usize = 3;
/// Rounds of a good path within which everything arrives.
const ROUNDS: usize = 20_000;

/// A clock that stands, for who is measured.
#[derive(Debug)]
struct Still;

impl Meter for Still {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn record(&mut self, _: Stage, _: Span) {}
}

/// What a channel carries one way.
#[derive(Default)]
struct Line {
    /// Messages sent and not wholly received, and what was received of the first.
    messages: VecDeque<Vec<u8>>,
    received: usize,
    number: u64,
    partial: Buffer,
}

struct OperationTest {
    hand: ManualPair,
    /// Frames may be damaged.
    damages: bool,
    /// Frames on their way to each end.
    flying: [VecDeque<Vec<u8>>; 2],
    lines: [[Line; CHANNELS]; 2],
    reset: bool,
    closing: [bool; 2],
    closed: [Option<CloseReason>; 2],
}

/// Does what `bytes` say: four for the options, then three for each operation. Some of it with a key, if there is one.
pub fn operate(bytes: &[u8], key: Option<PresharedKey>) {
    let [a, b, c, d, operations @ ..] = bytes else { return };
    let mut world = OperationTest::new([*a, *b, *c, *d], key);
    for operation in operations.chunks_exact(3) {
        world.operate(operation[0], operation[1], operation[2]);
    }
    world.finish();
}

impl OperationTest {
    fn new([a, b, c, d]: [u8; 4], key: Option<PresharedKey>) -> OperationTest {
        let options = Options {
            mode: Mode::ALL[usize::from(a % 3)],
            congestion: Congestion::ALL[usize::from(a / 3) % Congestion::ALL.len()],
            check: [Check::Crc32c, Check::Crc64, Check::None][usize::from(a / 9 % 3)],
            key: key.filter(|_| d & 1 != 0),
            window: 1 + u16::from(b % 16),
            frame: 128 + u16::from(b / 16) * 16,
            ack_every: 1 + u16::from(c % 8),
            credit: if c & 8 == 0 { 256 } else { 4096 },
            channel_credit: if c & 16 == 0 { 256 } else { 4096 },
            send_buffer: if c & 32 == 0 { 100 } else { 4096 },
            coalesce_delay: if c & 64 == 0 { Span::ZERO } else { Span::from_us(300) },
            fec: (c & 128 != 0).then_some(Fec { frames: 1 + b % 5, repairs: 1 + b / 16 % 3 }),
            probe_up_to: (d & 2 != 0).then_some(1400),
            peer_timeout: Span::from_s(40 * 3600),
            ..Options::default()
        };
        // Some run over the bits of the numbers on the wire.
        let first = if d & 4 != 0 { ((1 << 24) - 20, (1 << 16) - 20) } else { (0, 0) };
        let lays_from = (d & 8 != 0).then_some(u32::from(d >> 4 & 3));
        let prepare = |node: &mut trunkline_arq::Node| {
            node.set_first_numbers(first.0, first.1);
            lays_from.into_iter().for_each(|from| node.enable_pre_encoding(from));
        };
        let mut world = OperationTest {
            // Without a check what is damaged is taken.
            damages: options.check != Check::None || options.key.is_some(),
            hand: ManualPair::prepared(&options, &options, prepare).opened(),
            flying: Default::default(),
            lines: Default::default(),
            reset: false,
            closing: [false; 2],
            closed: [None; 2],
        };
        for end in 0..2 {
            if d & 64 != 0 {
                let (id, every) = (world.hand.ids[end], 1 + u32::from(d >> 4 & 3) * 5);
                world.command(end, Command::Measure { id, every, meter: Box::new(Still) });
            }
        }
        world
    }

    fn operate(&mut self, what: u8, which: u8, much: u8) {
        let (end, channel) = (usize::from(which & 1), usize::from(which / 2) % CHANNELS);
        match what % 16 {
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
                    if self.damages {
                        let bit = usize::from(which) % (frame.len() * 8);
                        frame[bit / 8] ^= 1 << (bit % 8);
                    }
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
            11 if much < 16 => self.close(end),
            11 if much > 252 => {
                self.command(end, Command::Reset { id: self.hand.ids[end] });
                self.reset = true;
            }
            11 => {}
            12 | 13 if what & 128 != 0 => {
                self.calm();
                self.send_at_once(1 - end, channel, 1 + usize::from(much));
                self.take_at_once(end, channel, 0);
            }
            12 => self.send_at_once(end, channel, 1 + usize::from(much)),
            13 => self.take_at_once(end, channel, usize::from(much)),
            _ => self.deliver_batch(end, 2 + usize::from(much % 64)),
        }
        for end in 0..2 {
            let said = self.hand.outputs(end);
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

    /// Everything on its way arrives and is taken, and so are the answers.
    fn calm(&mut self) {
        for _ in 0..4 {
            for end in 0..2 {
                let frames: Vec<Vec<u8>> = self.flying[end].drain(..).collect();
                let said = self.hand.give(end, &frames);
                (0..CHANNELS).for_each(|channel| while self.take(end, channel, true, 0) {});
                self.fly(end, said);
                let said = self.hand.outputs(end);
                self.fly(end, said);
            }
        }
    }

    /// Frames that come in one piece, as the system joins them: as long as the first, and the last may be shorter.
    fn deliver_batch(&mut self, end: usize, most: usize) {
        let flying = &mut self.flying[end];
        let Some(length) = flying.front().map(Vec::len) else { return };
        let mut bytes = Vec::new();
        while let Some(frame) = flying.front()
            && bytes.len() < most * length
            && bytes.len().is_multiple_of(length)
            && frame.len() <= length
            && bytes.len() + frame.len() <= MAX_BATCH
        {
            bytes.append(&mut flying.pop_front().unwrap_or_default());
        }
        let segment = Segment::of(length, bytes.len());
        let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes: &bytes, segment };
        self.hand.nodes[end].handle(self.hand.now, input).expect("a frame is never refused");
    }

    /// Sends a message whose next frame arrives at once, if both ends are otherwise idle.
    fn send_at_once(&mut self, end: usize, channel: usize, length: usize) {
        let message = self.message(end, channel, length);
        let (now, id, mut room) = (self.hand.now, self.hand.ids[end], vec![0; MAX_BATCH]);
        let node = self.hand.nodes[end].inner_mut(now);
        if let Some((length, _)) = node.send_message(now, id, channel as u16, &message, &mut room) {
            self.sent(end, channel, message);
            self.fly(end, vec![room[..length].to_vec()]);
        }
    }

    /// Delivers a frame to a reader that waits for a message of that channel.
    fn take_at_once(&mut self, end: usize, channel: usize, at: usize) {
        let Some(frame) = self.pick(end, at) else { return };
        let (now, id, mut into) = (self.hand.now, self.hand.ids[end], Buffer::from(&b"before"[..]));
        let node = self.hand.nodes[end].inner_mut(now);
        if !node.receive_message(now, &frame, id, channel as u16, &mut into) {
            let said = self.hand.give(end, &[frame]);
            return self.fly(end, said);
        }
        let line = &mut self.lines[1 - end][channel];
        assert!(line.partial.is_empty() && line.received == 0, "a message begins where one ended");
        assert!(line.messages.pop_front().is_some_and(|message| into[..] == message), "it is what was sent");
    }

    fn command(&mut self, end: usize, command: Command<'_>) -> Option<Refusal> {
        self.hand.nodes[end].handle(self.hand.now, Input::Command(command)).err()
    }

    /// The next message of a channel.
    fn message(&self, end: usize, channel: usize, length: usize) -> Vec<u8> {
        let number = self.lines[end][channel].number;
        let of_byte = |at: usize| (number as u8).wrapping_mul(31) ^ (at as u8).wrapping_add((at >> 8) as u8);
        (0..length).map(|at| of_byte(at) ^ (channel as u8) << 6).collect()
    }

    fn sent(&mut self, end: usize, channel: usize, message: Vec<u8>) {
        let line = &mut self.lines[end][channel];
        line.messages.push_back(message);
        line.number += 1;
    }

    fn send(&mut self, end: usize, channel: usize, length: usize) {
        let message = self.message(end, channel, length);
        let id = self.hand.ids[end];
        let refusal = self.command(end, Command::Send { id, channel: channel as u16, bytes: &message });
        match refusal {
            None => self.sent(end, channel, message),
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
            let mut taken = ReceiveStatus::Empty;
            let refusal = self.command(
                end,
                Command::Receive { id, channel: number, buffer: &mut into, status: &mut taken },
            );
            assert_eq!(refusal, None);
            let line = &mut self.lines[1 - end][channel];
            match taken {
                ReceiveStatus::Complete => {
                    let message = line.messages.pop_front().expect("no other message was sent");
                    assert!(into[..] == message[line.received..], "a message is what was sent");
                    line.received = 0;
                }
                ReceiveStatus::Partial | ReceiveStatus::Empty => line.partial = into,
            }
            return taken != ReceiveStatus::Empty;
        }
        let mut into = vec![0; most];
        let mut read = 0;
        let refusal =
            self.command(end, Command::Read { id, channel: number, buffer: &mut into, read: &mut read });
        assert_eq!(refusal, None);
        let line = &mut self.lines[1 - end][channel];
        for byte in &into[..read] {
            let message = line.messages.front().expect("no other byte was sent");
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
            if let EventKind::Closed { reason: why } = news {
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
                let said = self.hand.outputs(end);
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
            (0, [Some(CloseReason::Completed); 2]),
            "a good path brings everything: {:?}",
            said()
        );
    }
}
