//! What is sent and taken at once comes to the same as by commands, frames and polls: two ends that do both where they can
//! are compared, after each operation, with two others that never do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use trunkline_arq::{
    Buffer, Check, Command, Config, Congestion, ConnectionId, Event, EventKind, Meter, Mode, Node, Options,
    ReceiveStatus, Stage,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

const OPERATIONS: usize = 300;
const ADDRESSES: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];

/// The output of a node until it is idle: frames, events and the deadline.
type RecordedOutput = (Vec<Vec<u8>>, Vec<EventKind>, Option<Instant>);

/// Counts the samples of each stage.
#[derive(Clone, Debug, Default)]
struct SampleCounts(Arc<Mutex<BTreeMap<Stage, u64>>>);

impl Meter for SampleCounts {
    fn now(&mut self) -> Instant {
        Instant::ZERO
    }

    fn record(&mut self, stage: Stage, _: Span) {
        *self.0.lock().unwrap().entry(stage).or_default() += 1;
    }
}

/// Two pairs of ends: one uses the message calls, the other commands and polls.
struct Twins {
    nodes: [[Node; 2]; 2],
    ids: [ConnectionId; 2],
    now: Instant,
    flying: [VecDeque<Vec<u8>>; 2],
    deadlines: [Option<Instant>; 2],
    /// Messages are taken before the next frame arrives.
    eager: bool,
    /// A frame was received by a message call without a poll since. A later call learns at its first poll, not only
    /// when it is woken, that the acknowledgement is due.
    unpolled: [bool; 2],
    /// Number of messages sent and received by message calls.
    went: [u32; 2],
    samples: [[SampleCounts; 2]; 2],
}

fn receive(node: &mut Node, now: Instant) -> (RecordedOutput, Option<ConnectionId>) {
    let (mut frames, mut news, mut opened) = (Vec::new(), Vec::new(), None);
    let mut buffer = vec![0; MAX_BATCH];
    loop {
        match node.poll(now, Writable::ALL, &mut buffer) {
            Output::Transmit(t) => {
                frames.extend(Segment::frames(t.segment, &buffer[..t.length]).map(<[u8]>::to_vec));
            }
            Output::Event(Event { id, kind: one }) => {
                opened = opened.or(matches!(one, EventKind::Opened { .. }).then_some(id));
                news.push(one);
            }
            Output::Idle(idle) => return ((frames, news, idle.deadline), opened),
        }
    }
}

fn take(node: &mut Node, now: Instant, id: ConnectionId, channel: u16) -> (ReceiveStatus, Vec<u8>) {
    let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
    let command = Command::Receive { id, channel, buffer: &mut into, status: &mut taken };
    node.handle(now, Input::Command(command)).expect("the connection is kept");
    (taken, into.to_vec())
}

impl Twins {
    fn new(options: &Options, random: &mut Stream) -> Twins {
        let first = [0, 0, (1 << 24) - 20, (1 << 16) - 20][random.below(4) as usize];
        let lays = random.chance(0.3).then(|| random.below(3) as u32);
        let node = |accept, place: &str| {
            let random = Seed(1998).stream(place);
            let mut node = Node::new(Config { port: Port(0), accept, max_connections: 2, random });
            node.set_first_numbers(first, first);
            lays.into_iter().for_each(|from| node.enable_pre_encoding(from));
            node
        };
        let ends = || [node(None, "a"), node(Some(options.clone()), "b")];
        let mut twins = Twins {
            nodes: [ends(), ends()],
            ids: Default::default(),
            now: Instant::ZERO,
            flying: Default::default(),
            deadlines: [None; 2],
            // How packs that wait are put together, and with that when credit for them is granted, depends on buffers that were
            // used before. So the comparison does not wait for that event.
            eager: options.credit.min(options.channel_credit) < 1 << 20,
            unpolled: [false; 2],
            went: [0; 2],
            samples: Default::default(),
        };
        for nodes in &mut twins.nodes {
            let command = Command::Open { peer: ADDRESSES[1], options, id: &mut ConnectionId::default() };
            nodes[0].handle(twins.now, Input::Command(command)).expect("it may open");
        }
        for _ in 0..8 {
            twins.receive();
            for end in 0..2 {
                while let Some(frame) = twins.flying[end].pop_front() {
                    twins.give(end, &frame);
                }
            }
            twins.now += Span::from_us(20);
        }
        if random.chance(0.5) {
            let every = 1 + random.below(8) as u32;
            for (nodes, samples) in twins.nodes.iter_mut().zip(&twins.samples) {
                for ((node, id), samples) in nodes.iter_mut().zip(twins.ids).zip(samples) {
                    let command = Command::Measure { id, every, meter: Box::new(samples.clone()) };
                    node.handle(twins.now, Input::Command(command)).expect("the connection is open");
                }
            }
        }
        twins
    }

    /// Does the same to both, and compares what both answer.
    fn both<T: PartialEq + std::fmt::Debug>(
        &mut self,
        end: usize,
        mut what: impl FnMut(&mut Node, Instant, ConnectionId) -> T,
    ) -> T {
        let (now, id) = (self.now, self.ids[end]);
        let [once, long] = self.nodes.each_mut().map(|nodes| what(&mut nodes[end], now, id));
        assert_eq!(once, long);
        once
    }

    fn give(&mut self, end: usize, bytes: &[u8]) {
        let peer = ADDRESSES[1 - end];
        let _ = self.both(end, |node, now, _| {
            node.handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None })
        });
    }

    /// Exchanges the pending output of both ends, and compares all observable state.
    fn receive(&mut self) {
        for end in 0..2 {
            if std::mem::take(&mut self.unpolled[end]) {
                self.nodes[0][end].handle(self.now, Input::Wake).expect("it may wake");
            }
            let ((frames, _, deadline), opened) = self.both(end, |node, now, _| receive(node, now));
            self.ids[end] = opened.unwrap_or(self.ids[end]);
            self.deadlines[end] = deadline;
            self.flying[1 - end].extend(frames);
            self.both(end, |node, _, id| {
                let counts = (node.statistics(id), node.in_flight(id), node.unknown_peers());
                let held = [0, 1, 2].map(|channel| node.unread_bytes(id, channel));
                (counts, node.round_trip(id), node.is_flushed(id), held)
            });
            let [direct, general] = [0, 1].map(|way| self.samples[way][end].0.lock().unwrap().clone());
            assert_eq!(direct, general, "the same messages and frames are sampled");
        }
    }

    /// Sends at once if that goes, and so that others do the same.
    fn send(&mut self, end: usize, channel: u16, bytes: &[u8]) {
        let (now, id) = (self.now, self.ids[end]);
        let mut buffer = vec![0; MAX_BATCH];
        let sent =
            self.nodes[0][end].send_message(now, id, channel, bytes, &mut buffer).map(|(length, _)| length);
        let Some(length) = sent else {
            let _ = self.both(end, |node, now, id| {
                node.handle(now, Input::Command(Command::Send { id, channel, bytes }))
            });
            return;
        };
        (self.unpolled[end], self.went[0]) = (false, self.went[0] + 1);
        let long = &mut self.nodes[1][end];
        long.handle(now, Input::Command(Command::Send { id, channel, bytes })).expect("it was sent at once");
        let ((frames, news, deadline), _) = receive(long, now);
        assert_eq!((&frames[..], &news[..]), (&[buffer[..length].to_vec()][..], &[][..]));
        // There is nothing left to say.
        let ((more, news, also), _) = receive(&mut self.nodes[0][end], now);
        assert_eq!((more.len(), news.len(), also), (0, 0, deadline));
        self.flying[1 - end].extend(frames);
    }

    /// Gives a frame to an end that waits for a message of a channel, and takes what is there.
    fn give_awaited(&mut self, end: usize, frame: &[u8], channel: u16) {
        let (now, id) = (self.now, self.ids[end]);
        // Whatever it holds.
        let held = [7; 21];
        let mut into = Buffer::from(&held[..now.as_ps() as usize % 22]);
        let before = into.to_vec();
        if !self.nodes[0][end].receive_message(now, frame, id, channel, &mut into) {
            assert_eq!(into.to_vec(), before);
            self.give(end, frame);
            return if self.eager {
                (0..3).for_each(|channel| self.take_all(end, channel))
            };
        }
        (self.unpolled[end], self.went[1]) = (true, self.went[1] + 1);
        let long = &mut self.nodes[1][end];
        let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes: frame, segment: None };
        long.handle(now, input).expect("no frame is refused");
        assert_eq!(take(long, now, id, channel), (ReceiveStatus::Complete, into.to_vec()));
    }

    fn take_all(&mut self, end: usize, channel: u16) {
        while self.both(end, |node, now, id| take(node, now, id, channel)).0 != ReceiveStatus::Empty {}
    }
}

fn options(random: &mut Stream) -> Options {
    // `Paced` has its own fast path, so it is drawn twice as often.
    let policy_indices: Vec<u32> = (0..Congestion::ALL.len() as u32).collect();
    let mut one_of = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    let mode = [Mode::Selective, Mode::GoBackN, Mode::StopAndWait][one_of(&[0, 0, 1, 2]) as usize];
    // What comes early waits in any case.
    let credits: &[u32] = if mode == Mode::Selective { &[1 << 20] } else { &[512, 4096, 1 << 20] };
    Options {
        mode,
        congestion: Congestion::ALL[one_of(&policy_indices) as usize],
        check: [Check::Crc32c, Check::Crc64, Check::Folded, Check::None][one_of(&[0, 0, 1, 2, 3]) as usize],
        window: one_of(&[1, 3, 64]) as u16,
        frame: one_of(&[128, 300, 1472]) as u16,
        ack_every: one_of(&[1, 2, 16]) as u16,
        credit: one_of(credits),
        channel_credit: one_of(credits),
        send_buffer: one_of(&[1, 100, 1 << 20]) as usize,
        coalesce_delay: Span::from_us(one_of(&[0, 0, 300]).into()),
        keep_alive: Span::from_ms(one_of(&[0, 50]).into()),
        ..Options::default()
    }
}

/// Question and answer, and now and then something else; how often something went at once.
fn run(seed: u64) -> [u32; 2] {
    let mut random = Seed(seed).stream("at once");
    let mut twins = Twins::new(&options(&mut random), &mut random);
    let calm = 1 + random.below(60);
    let mut asks = 0;
    for _ in 0..OPERATIONS {
        let end = if random.chance(0.9) { asks } else { random.below(2) as usize };
        asks = 1 - end;
        twins.now += Span::from_ns(random.below(100_000));
        let channel = if random.chance(0.9) { 0 } else { random.below(3) as u16 };
        let other = if random.chance(0.9) { channel } else { random.below(3) as u16 };
        let length = random.below(if seed.is_multiple_of(4) { 400 } else { 70 }) as usize;
        let message = vec![random.bits() as u8; length];
        if random.below(calm) > 0 {
            if random.chance(0.2) {
                let _ = twins.both(end, |node, now, id| {
                    let message = &mut Buffer::from(&message[..]);
                    node.handle(now, Input::Command(Command::SendOwned { id, channel, message }))
                });
            } else {
                twins.send(end, channel, &message);
            }
            // Some speak late.
            if random.chance(0.8) {
                twins.receive();
            }
            twins.now += Span::from_us(5);
            while let Some(frame) = twins.flying[1 - end].pop_front() {
                twins.give_awaited(1 - end, &frame, other);
            }
            if random.chance(0.8) {
                twins.receive();
            }
            twins.take_all(1 - end, other);
            continue;
        }
        match random.below(9) {
            0 => twins.send(end, channel, &vec![5; random.below(4000) as usize]),
            1 => (0..random.below(6)).for_each(|_| twins.send(end, channel, &[6; 40])),
            2 => drop(twins.flying[end].pop_front()),
            3 => {
                if let Some(frame) = twins.flying[end].front().cloned() {
                    twins.flying[end].push_back(frame);
                }
            }
            4 => {
                if let Some(frame) = twins.flying[end].front_mut() {
                    let bit = random.below(8 * frame.len() as u64) as usize;
                    frame[bit / 8] ^= 1 << (bit % 8);
                }
            }
            5 | 6 => {
                twins.now = twins.now.max(twins.deadlines[end].unwrap_or(twins.now));
                twins.both(end, |node, now, _| node.handle(now, Input::Wake)).expect("it may wake");
            }
            7 => twins.take_all(end, channel),
            _ if random.below(8) == 0 => {
                let _ =
                    twins.both(end, |node, now, id| node.handle(now, Input::Command(Command::Close { id })));
            }
            _ => {}
        }
        twins.receive();
        if random.below(3) > 0
            && let Some(frame) = twins.flying[end].pop_front()
        {
            twins.give_awaited(end, &frame, channel);
        }
    }
    twins.went
}

#[test]
fn at_once_comes_to_the_same() {
    let mut went = [0; 2];
    for seed in 0..300 {
        let done = std::panic::catch_unwind(|| run(seed));
        let Ok([sent, taken]) = done else { panic!("seed {seed}") };
        (went[0], went[1]) = (went[0] + sent, went[1] + taken);
    }
    assert!(went.iter().all(|went| *went > 10_000), "{went:?}");
}
