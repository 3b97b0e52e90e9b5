//! Two nodes at a line as between the namespaces of the bench `line`, in simulated time: a rate behind a token bucket, a
//! short queue, loss, timers that fire late, and ends that do not get to run now and then.

use std::collections::VecDeque;

use trunkline_arq::{
    Buffer, Command, Config, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus, Statistics,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_units::{Instant, Rate, Seed, Size, Span, Stream};

const ENDS: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];
/// Headers of Ethernet, IP and UDP.
const HEADERS: u64 = 14 + 20 + 8;
const MESSAGE: usize = 8192;

/// What the line is like.
#[derive(Clone, Debug)]
pub struct Line {
    pub rate: Rate,
    /// What crosses at once after a pause, and what may wait behind it, in bytes.
    pub bucket: u64,
    pub queue: u64,
    /// One way, without waiting.
    pub delay: Span,
    pub loss: f64,
    /// How much later than asked ends are woken at the most.
    pub slack: Span,
    /// How often, and how long, an end does not get to run.
    pub stalls: [Option<Stalls>; 2],
    pub seed: u64,
}

/// When an end does not get to run: once in every period, from a random moment of it on, for a random time.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    pub every: Span,
    pub least: Span,
    /// Below `every`.
    pub most: Span,
}

impl Default for Line {
    /// As the bench makes it.
    fn default() -> Line {
        Line {
            rate: Rate::from_bps(121_800_000),
            bucket: 30_000,
            queue: 152_250,
            delay: Span::from_us(15),
            loss: 0.0,
            slack: Span::from_us(60),
            stalls: [None; 2],
            seed: 1998,
        }
    }
}

/// The result of a run.
pub struct Run {
    /// Bits of messages a second that arrived, by the end that sent them, of what datagrams of 1,472 bytes would carry if
    /// the line lost none.
    pub fill: [f64; 2],
    pub statistics: [Statistics; 2],
    /// Of the frames that crossed, by the end that sent them, the share that the line lost.
    pub lost: [f64; 2],
    /// Frames that found the queue full.
    pub overflowed: u64,
}

impl Run {
    /// The part of what loss leaves, by the end that sends.
    pub fn of_what_is_left(&self) -> [f64; 2] {
        [0, 1].map(|end: usize| self.fill[end] / (1.0 - self.lost[end]))
    }
}

/// One direction.
struct LineDirection {
    /// When all that was sent will have crossed.
    busy_until: Instant,
    arriving: VecDeque<(Instant, Vec<u8>)>,
    crossed: u64,
    lost: u64,
    overflowed: u64,
}

struct End {
    node: Node,
    id: ConnectionId,
    deadline: Instant,
    sends: bool,
    /// Bytes of messages taken since the warm-up.
    taken: u64,
}

impl Line {
    /// Sends all that goes, from the first end to the second or both ways, for so long after a second to warm up.
    pub fn run(&self, options: &Options, both: bool, time: Span) -> Run {
        let node = |accept, place: &str| {
            Node::new(Config {
                port: Port(0),
                accept,
                max_connections: 2,
                random: Seed(self.seed).stream(place),
            })
        };
        let nodes = [node(None, "a"), node(Some(options.clone()), "b")];
        let end =
            |node| End { node, id: ConnectionId::default(), deadline: Instant::MAX, sends: false, taken: 0 };
        let way = || LineDirection {
            busy_until: Instant::ZERO,
            arriving: VecDeque::new(),
            crossed: 0,
            lost: 0,
            overflowed: 0,
        };
        let random = Seed(self.seed).stream("line");
        let mut world = LineTest { line: self, random, ends: nodes.map(end), ways: [way(), way()] };
        world.open(options);
        let warm = Instant::ZERO + Span::from_s(1);
        world.until(warm, both);
        world.ends.iter_mut().for_each(|end| end.taken = 0);
        world.ways.iter_mut().for_each(|way| (way.crossed, way.lost) = (0, 0));
        world.until(warm + time, both);
        let raw = self.rate.as_bps() as f64 * 1472.0 / (1472 + HEADERS) as f64;
        let fill = |from: usize| 8.0 * world.ends[1 - from].taken as f64 / time.as_s() / raw;
        Run {
            fill: [fill(0), fill(1)],
            statistics: [0, 1].map(|end: usize| {
                let end = &world.ends[end];
                end.node.statistics(end.id).expect("it stands")
            }),
            lost: [0, 1].map(|end: usize| world.ways[end].lost as f64 / world.ways[end].crossed as f64),
            overflowed: world.ways.iter().map(|way| way.overflowed).sum(),
        }
    }
}

struct LineTest<'a> {
    line: &'a Line,
    random: Stream,
    ends: [End; 2],
    /// By the end that sends.
    ways: [LineDirection; 2],
}

impl LineTest<'_> {
    fn open(&mut self, options: &Options) {
        let mut id = ConnectionId::default();
        let open = Command::Open { peer: ENDS[1], options, id: &mut id };
        self.ends[0].node.handle(Instant::ZERO, Input::Command(open)).expect("it may open");
        self.speak(0, Instant::ZERO);
    }

    fn until(&mut self, moment: Instant, both: bool) {
        loop {
            let next = [0, 1].map(|end| self.next(end));
            let end = usize::from(next[1] < next[0]);
            let now = next[end];
            if now > moment {
                return;
            }
            self.act(end, now, end == 0 || both);
        }
    }

    /// When an end next runs.
    fn next(&mut self, end: usize) -> Instant {
        let comes = self.ways[1 - end].arriving.front().map_or(Instant::MAX, |(at, _)| *at);
        let at = comes.min(self.ends[end].deadline);
        let Some(stalls) = self.line.stalls[end] else { return at };
        if at == Instant::MAX {
            return at;
        }
        let every = stalls.every.as_ps();
        let (period, into) = (at.as_ps() / every, at.as_ps() % every);
        let mut random = Seed(self.line.seed).stream(&format!("{end} {period}"));
        let stall = stalls.least.as_ps() + random.below((stalls.most - stalls.least).as_ps() + 1);
        let from = random.below(every - stall);
        if (from..from + stall).contains(&into) { at + Span::from_ps(from + stall - into) } else { at }
    }

    fn act(&mut self, end: usize, now: Instant, sends: bool) {
        let Self { ends, ways, .. } = self;
        let this = &mut ends[end];
        let arriving = &mut ways[1 - end].arriving;
        while arriving.front().is_some_and(|(at, _)| *at <= now) {
            let (_, frame) = arriving.pop_front().expect("a front");
            let input = Input::Frame { port: Port(0), peer: ENDS[1 - end], bytes: &frame, segment: None };
            this.node.handle(now, input).expect("a frame is never refused");
        }
        if this.deadline <= now {
            this.node.handle(now, Input::Wake).expect("a wake is never refused");
        }
        // The user sends and takes whatever goes. What that changes is said, and may change more.
        for _ in 0..2 {
            self.speak(end, now);
            let this = &mut self.ends[end];
            let id = this.id;
            while this.sends && sends {
                let send = Command::Send { id, channel: 0, bytes: &[7; MESSAGE] };
                this.sends = this.node.handle(now, Input::Command(send)).is_ok();
            }
            let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Partial);
            while taken != ReceiveStatus::Empty {
                let take = Command::Receive { id, channel: 0, buffer: &mut into, status: &mut taken };
                if this.node.handle(now, Input::Command(take)).is_err() {
                    break;
                }
            }
            this.taken += into.len() as u64;
        }
    }

    fn speak(&mut self, end: usize, now: Instant) {
        let mut buffer = vec![0; MAX_BATCH];
        loop {
            match self.ends[end].node.poll(now, Writable::ALL, &mut buffer) {
                Output::Transmit(t) => {
                    for frame in Segment::frames(t.segment, &buffer[..t.length]) {
                        self.cross(end, now, frame);
                    }
                }
                Output::Event(Event { id, kind: news }) => match news {
                    EventKind::Opened { .. } => (self.ends[end].id, self.ends[end].sends) = (id, true),
                    EventKind::Writable { .. } => self.ends[end].sends = true,
                    _ => {}
                },
                Output::Idle(idle) => {
                    let late = Span::from_ps(self.random.below(self.line.slack.as_ps() + 1));
                    let asked = idle.deadline.map_or(Instant::MAX, |at| at + late);
                    break self.ends[end].deadline = asked;
                }
            }
        }
    }

    fn cross(&mut self, from: usize, now: Instant, frame: &[u8]) {
        let Line { rate, bucket, queue, delay, loss, .. } = *self.line;
        let way = &mut self.ways[from];
        let time = |bytes| rate.time_for(Size::from_bytes(bytes));
        if way.busy_until.since(now) > time(queue) {
            return way.overflowed += 1;
        }
        // A bucket that is full is a line that was idle for as long.
        let full = Instant::from_ps(now.as_ps().saturating_sub(time(bucket).as_ps()));
        way.busy_until = way.busy_until.max(full) + time(frame.len() as u64 + HEADERS);
        way.crossed += 1;
        if self.random.chance(loss) {
            return way.lost += 1;
        }
        way.arriving.push_back((way.busy_until.max(now) + delay, frame.to_vec()));
    }
}
