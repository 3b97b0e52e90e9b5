//! In full flow messages are laid out in frames when they are sent, and leave from there.

use trunkline_arq::{
    Buffer, Check, Command, Config, Congestion, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_units::{Instant, Seed, Span};

const PORT: Port = Port(0);
const PEERS: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];
/// What no frame of the tests is full of.
const UNTOUCHED: u8 = 0xEE;

/// Two nodes whose frames pass at once; those of the first are laid out, once so many are in flight.
struct Ends {
    nodes: [Node; 2],
    ids: [ConnectionId; 2],
    now: Instant,
    buffer: Vec<u8>,
    /// Batches of the first that lay elsewhere than in the buffer, as their frames; and all of its batches.
    in_place: Vec<usize>,
    batches: usize,
    got: Vec<(u16, Vec<u8>)>,
}

impl Ends {
    fn open(options: &Options, lays_from: u32) -> Ends {
        let node = |accept, place| {
            Node::new(Config { port: PORT, accept, max_connections: 2, random: Seed(3).stream(place) })
        };
        let mut nodes = [node(None, "a"), node(Some(options.clone()), "b")];
        nodes[0].enable_pre_encoding(lays_from);
        let mut id = ConnectionId::default();
        nodes[0]
            .handle(Instant::ZERO, Input::Command(Command::Open { peer: PEERS[1], options, id: &mut id }))
            .unwrap();
        let ids = [id, ConnectionId::default()];
        let (in_place, got) = Default::default();
        let buffer = vec![UNTOUCHED; MAX_BATCH];
        let mut ends = Ends { nodes, ids, now: Instant::ZERO, buffer, in_place, batches: 0, got };
        ends.run(|_| true);
        ends
    }

    fn send(&mut self, channel: u16, bytes: &[u8]) {
        let send = Command::Send { id: self.ids[0], channel, bytes };
        self.nodes[0].handle(self.now, Input::Command(send)).expect("there is room");
    }

    /// Runs until both ends are idle; only selected batches of the first end pass.
    fn run(&mut self, mut passes: impl FnMut(usize) -> bool) {
        loop {
            let mut said = false;
            for (end, peer) in PEERS.into_iter().enumerate() {
                let _ = self.nodes[end].handle(self.now, Input::Wake);
                loop {
                    self.buffer.fill(UNTOUCHED);
                    let (node, now) = (&mut self.nodes[end], self.now);
                    match node.poll_in_place(now, Writable::ALL, &mut self.buffer) {
                        Output::Transmit(t) => {
                            let bytes = node.transmitted_bytes(&self.buffer, t.length).to_vec();
                            if end == 0 {
                                self.batches += 1;
                                if self.buffer.iter().all(|byte| *byte == UNTOUCHED) {
                                    self.in_place.push(Segment::frames(t.segment, &bytes).count());
                                }
                                if !passes(self.batches) {
                                    continue;
                                }
                            }
                            let segment = t.segment;
                            let frame = Input::Frame { port: PORT, peer, bytes: &bytes, segment };
                            self.nodes[1 - end].handle(now, frame).unwrap();
                        }
                        Output::Event(Event { id, kind: EventKind::Opened { .. } }) => self.ids[end] = id,
                        Output::Event(Event { kind: EventKind::Readable { channel }, .. }) => {
                            self.take(channel)
                        }
                        Output::Event(Event { kind: EventKind::Closed { reason: end }, .. }) => {
                            panic!("{end}")
                        }
                        Output::Event(_) => {}
                        Output::Idle(_) => break,
                    }
                    said = true;
                }
            }
            if !said {
                return;
            }
        }
    }

    fn take(&mut self, channel: u16) {
        loop {
            let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
            let take = Command::Receive { id: self.ids[1], channel, buffer: &mut into, status: &mut taken };
            self.nodes[1].handle(self.now, Input::Command(take)).unwrap();
            match taken {
                ReceiveStatus::Complete => self.got.push((channel, into.to_vec())),
                ReceiveStatus::Partial => panic!("messages are short"),
                ReceiveStatus::Empty => return,
            }
        }
    }

    /// Runs for `time`, a step at a time.
    fn settle(&mut self, time: Span, mut passes: impl FnMut(usize) -> bool) {
        let end = self.now + time;
        while self.now < end {
            self.run(&mut passes);
            self.now += Span::from_us(100);
        }
    }
}

fn options() -> Options {
    Options { check: Check::Crc32c, congestion: Congestion::Fixed, window: 1024, ..Options::default() }
}

fn message(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at + 31 * number) as u8 & 0x7F).collect()
}

#[test]
fn long_messages_are_sent_from_their_encoded_frames() {
    let mut ends = Ends::open(&options(), 0);
    ends.in_place.clear();
    let messages: Vec<_> = (0..64).map(|number| message(number, 8192)).collect();
    messages.iter().for_each(|message| ends.send(5, message));
    ends.settle(Span::from_ms(50), |_| true);
    assert!(ends.got.iter().map(|(_, message)| message).eq(&messages));
    // 64 × 8 KiB are 360 frames: eight whole batches of 44, and the rest.
    assert_eq!(ends.in_place.iter().sum::<usize>(), 360, "{:?}", ends.in_place);
    assert_eq!(ends.in_place[..8], [44; 8], "{:?}", ends.in_place);
}

#[test]
fn messages_that_wait_when_full_flow_begins_are_encoded_too() {
    let late = Options { ack_every: 512, ack_delay: Span::from_ms(5), ..options() };
    let mut ends = Ends::open(&late, 128);
    ends.in_place.clear();
    let messages: Vec<_> = (0..400).map(|number| message(number, 8192)).collect();
    for message in &messages {
        ends.send(0, message);
        ends.now += Span::from_us(3);
        ends.run(|_| true);
    }
    ends.settle(Span::from_ms(50), |_| true);
    assert!(ends.got.iter().map(|(_, message)| message).eq(&messages));
    // Of 512 frames that are acknowledged together all but the first 128 and what they leave.
    let (laid, all) = (ends.in_place.iter().sum::<usize>(), 400 * 8192 / 1460);
    assert!(laid * 10 > all * 6, "{laid} of {all}");
}

#[test]
fn what_is_lost_is_sent_again() {
    let mut ends = Ends::open(&options(), 0);
    let mut sent = Vec::new();
    for round in 0..40 {
        for number in 0..8 {
            let message = message(sent.len(), 3000 + 997 * number + round);
            ends.send(0, &message);
            sent.push(message);
        }
        ends.settle(Span::from_us(500), |batch| batch % 3 != 0);
    }
    ends.settle(Span::from_s(10), |_| true);
    assert!(ends.got.iter().map(|(_, message)| message).eq(&sent));
    let statistics = ends.nodes[0].statistics(ends.ids[0]).unwrap();
    assert!(statistics.frames_resent > 300, "{statistics:?}");
}

#[test]
fn order_holds_among_encoded_and_other_messages() {
    let mut ends = Ends::open(&Options { frame: 700, window: 60, ..options() }, 0);
    let (mut sent, mut draw) = (Vec::new(), Seed(5).stream("sizes"));
    for number in 0..600 {
        // Small ones share packs, some are handed over, some go by another channel.
        let size = [0, 1, 40, 300, 700, 5000, 20_000][draw.below(7) as usize] + draw.below(40) as usize;
        let (channel, bytes) = (u16::from(draw.chance(0.2)), message(number, size));
        if draw.chance(0.2) {
            let mut message = Buffer::from(&bytes[..]);
            let hand = Command::SendOwned { id: ends.ids[0], channel, message: &mut message };
            ends.nodes[0].handle(ends.now, Input::Command(hand)).expect("there is room");
        } else {
            ends.send(channel, &bytes);
        }
        sent.push((channel, bytes));
        if draw.chance(0.3) {
            ends.settle(Span::from_us(300), |batch| batch % 5 != 0);
        }
    }
    ends.settle(Span::from_s(20), |_| true);
    for channel in 0..2 {
        let of = |all: &[(u16, Vec<u8>)]| -> Vec<Vec<u8>> {
            all.iter().filter(|(on, _)| *on == channel).map(|(_, message)| message.clone()).collect()
        };
        assert!(of(&ends.got) == of(&sent), "channel {channel}");
    }
    assert!(ends.in_place.len() > 20, "{:?}", ends.in_place.len());
}

#[test]
fn a_plain_poll_has_the_bytes_in_its_buffer() {
    let mut ends = Ends::open(&options(), 0);
    ends.send(0, &message(1, 60_000));
    let mut length = 0;
    loop {
        ends.buffer.fill(UNTOUCHED);
        match ends.nodes[0].poll(ends.now, Writable::ALL, &mut ends.buffer) {
            Output::Transmit(t) => {
                assert!(!ends.buffer[..t.length].windows(20).any(|bytes| bytes == [UNTOUCHED; 20]));
                length += t.length;
            }
            Output::Event(_) => {}
            Output::Idle(_) => break,
        }
    }
    assert!(length > 60_000);
}
