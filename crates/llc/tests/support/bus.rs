//! A line that all stations hear, and stations on it that can be killed, paused and cut off. Time jumps; nothing is drawn
//! but from streams that a test names.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Reason, Writable};
use trunkline_llc::token::{Command, Event, Line, Members, Options, Ring, Statistics};
use trunkline_units::{Instant, Span};

use super::queue::{Queue, Send, Taken};

/// A frame on its way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    number: u64,
    from: usize,
    to: u8,
    group: u8,
    bytes: Rc<[u8]>,
}

struct Node {
    number: u8,
    ring: Checked<Ring<Queue>>,
    alive: bool,
    paused: bool,
    deaf: bool,
    missed: Vec<Rc<Flight>>,
    group: u8,
    deadline: Option<Instant>,
    blocked: bool,
    free_at: Instant,
    tokens: u64,
}

/// Messages that come again and again.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub from: u8,
    pub to: u8,
    pub priority: u8,
    pub octets: u32,
    pub period: Span,
    pub next: Instant,
    /// The longest delay seen, and how many came.
    pub worst: Span,
    pub sent: u64,
    pub came: u64,
}

/// Whether the line loses a frame, by its number and content.
type Loses = Box<dyn FnMut(u64, &[u8]) -> bool>;

pub struct Bus {
    pub line: Line,
    pub now: Instant,
    nodes: Vec<Node>,
    flights: BinaryHeap<Reverse<(Instant, u64, Rc<Flight>)>>,
    /// When the line of each group is free.
    free_at: [Instant; 4],
    /// Frames sent, and inputs given to stations.
    pub frames: u64,
    pub steps: u64,
    pub events: Vec<(Instant, u8, Event<Taken>)>,
    pub flows: Vec<Flow>,
    pub loses: Loses,
    /// Since when no station has received a token, and the longest such time.
    pub last_token: Instant,
    pub longest_gap: Span,
    buffer: Vec<u8>,
}

impl Bus {
    pub fn new(line: Line, options: &Options, stations: impl IntoIterator<Item = u8>) -> Bus {
        let node = |number| Node {
            number,
            ring: Checked::new(Ring::new(Queue::default(), number, options.clone())),
            alive: true,
            paused: false,
            deaf: false,
            missed: Vec::new(),
            group: 0,
            deadline: None,
            blocked: false,
            free_at: Instant::ZERO,
            tokens: 0,
        };
        Bus {
            line,
            now: Instant::ZERO,
            nodes: stations.into_iter().map(node).collect(),
            flights: BinaryHeap::new(),
            free_at: [Instant::ZERO; 4],
            frames: 0,
            steps: 0,
            events: Vec::new(),
            flows: Vec::new(),
            loses: Box::new(|_, _| false),
            last_token: Instant::ZERO,
            longest_gap: Span::ZERO,
            buffer: vec![0; MAX_BATCH],
        }
    }

    /// All join and are in one ring.
    pub fn formed(line: Line, options: &Options, stations: impl IntoIterator<Item = u8>) -> Bus {
        let mut bus = Bus::new(line, options, stations);
        bus.numbers().into_iter().for_each(|number| bus.join(number));
        let all: Members = bus.numbers().into_iter().collect();
        let most =
            options.listen(1) + (options.window_interval + options.window()) * (all.count() as u64 + 2);
        assert!(bus.run_until(most, |bus| bus.rings() == [all]), "no ring within {most}: {:?}", bus.rings());
        // The ring has come to rest.
        bus.run(options.window_interval * 2);
        bus.events.clear();
        bus.reset_gap();
        bus
    }

    pub fn numbers(&self) -> Vec<u8> {
        self.nodes.iter().filter(|node| node.alive).map(|node| node.number).collect()
    }

    fn index(&self, number: u8) -> usize {
        self.nodes.iter().position(|node| node.number == number).expect("a station of the test")
    }

    pub fn ring(&self, number: u8) -> &Ring<Queue> {
        self.nodes[self.index(number)].ring.inner()
    }

    pub fn statistics(&self, number: u8) -> Statistics {
        self.ring(number).statistics()
    }

    /// The rings as the live stations see them, each once; stations that are in none do not count.
    pub fn rings(&self) -> Vec<Members> {
        let mut rings: Vec<Members> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.alive) {
            let members = node.ring.inner().members();
            if !members.is_empty() && !rings.contains(&members) {
                rings.push(members);
            }
        }
        rings
    }

    /// Live stations that think they have the token.
    pub fn holders(&self) -> usize {
        self.nodes.iter().filter(|node| node.alive && node.ring.inner().has_token()).count()
    }

    pub fn reset_gap(&mut self) {
        (self.last_token, self.longest_gap) = (self.now, Span::ZERO);
    }

    pub fn join(&mut self, number: u8) {
        self.command(number, Command::Join);
    }

    pub fn leave(&mut self, number: u8) {
        self.command(number, Command::Leave);
    }

    pub fn command(&mut self, number: u8, command: Command<'_, Send<'_>>) {
        let at = self.index(number);
        let _ = self.nodes[at].ring.handle(self.now, Input::Command(command));
        self.drain(at);
    }

    /// It is gone; what it was sending is damaged.
    pub fn kill(&mut self, number: u8) {
        let at = self.index(number);
        self.nodes[at].alive = false;
        let (now, hop) = (self.now, self.line.hop);
        let flights = std::mem::take(&mut self.flights);
        let whole = |f: &Reverse<(Instant, u64, Rc<Flight>)>| f.0.2.from != at || f.0.0 <= now + hop;
        self.flights = flights.into_iter().filter(whole).collect();
    }

    /// Its program does not run until it is resumed; what comes waits.
    pub fn pause(&mut self, number: u8) {
        let at = self.index(number);
        self.nodes[at].paused = true;
    }

    /// Resumes: processes its timers first, or received frames.
    pub fn resume(&mut self, number: u8, clock_first: bool) {
        let at = self.index(number);
        self.nodes[at].paused = false;
        if clock_first {
            self.give(at, Input::Wake);
        }
        for flight in std::mem::take(&mut self.nodes[at].missed) {
            self.hand(at, &flight);
        }
    }

    /// Is heard from now on, and hears nothing.
    pub fn deafen(&mut self, number: u8) {
        let at = self.index(number);
        self.nodes[at].deaf = true;
    }

    /// Hears from now on only who is in the same group, 0 to 3.
    pub fn group(&mut self, number: u8, group: u8) {
        let at = self.index(number);
        self.nodes[at].group = group;
    }

    pub fn flow(&mut self, from: u8, to: u8, priority: u8, octets: u32, period: Span, first: Span) {
        let next = self.now + first;
        let (worst, sent, came) = (Span::ZERO, 0, 0);
        self.flows.push(Flow { from, to, priority, octets, period, next, worst, sent, came });
    }

    /// It sends messages of so many octets at priority 0 as fast as it can.
    pub fn flood(&mut self, number: u8, to: u8, octets: u32) {
        let command = Command::Inner(Send::Flood { to, octets });
        self.command(number, command);
    }

    pub fn run(&mut self, time: Span) {
        self.run_until(time, |_| false);
    }

    /// Runs for `time`, or until `done`; whether it was.
    pub fn run_until(&mut self, time: Span, done: impl Fn(&Bus) -> bool) -> bool {
        let end = self.now + time;
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                self.now = end;
                return done(self);
            }
        }
    }

    /// The next thing that happens, up to `end`; false if there is none.
    pub fn step(&mut self, end: Instant) -> bool {
        let node = |node: &Node| {
            let runs = node.alive && !node.paused;
            let freed = node.blocked.then_some(node.free_at);
            node.deadline.into_iter().chain(freed).min().filter(|_| runs)
        };
        let first = (0..self.nodes.len()).filter_map(|at| Some((node(&self.nodes[at])?, at))).min();
        let flow = (0..self.flows.len()).map(|at| (self.flows[at].next, at)).min();
        let flight = self.flights.peek().map(|Reverse((at, ..))| *at);
        let times = [first.map(|f| f.0), flow.map(|f| f.0), flight];
        let Some(next) = times.into_iter().flatten().min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        if flight == Some(next) {
            let Some(Reverse((_, _, flight))) = self.flights.pop() else { return false };
            self.deliver(&flight);
        } else if let Some((_, at)) = flow.filter(|f| f.0 == next) {
            self.send(at);
        } else if let Some((_, at)) = first {
            self.give(at, Input::Wake);
        }
        true
    }

    fn send(&mut self, at: usize) {
        let Flow { from, to, priority, octets, period, .. } = self.flows[at];
        self.flows[at].next += period;
        self.flows[at].sent += 1;
        let stamp = (at as u32, self.now);
        self.command(from, Command::Inner(Send::Message { to, priority, octets, stamp, full: &mut false }));
    }

    fn deliver(&mut self, flight: &Rc<Flight>) {
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            let meant = flight.to == 255 || flight.to == node.number;
            if !meant || at == flight.from || node.group != flight.group || !node.alive || node.deaf {
                continue;
            }
            if node.paused {
                node.missed.push(Rc::clone(flight));
            } else {
                self.hand(at, flight);
            }
        }
    }

    fn hand(&mut self, at: usize, flight: &Flight) {
        let peer = Peer::new(&[self.nodes[flight.from].number]);
        self.give(at, Input::Frame { port: Port(0), peer, bytes: &flight.bytes, segment: None });
    }

    fn give(&mut self, at: usize, input: Input<'_, Command<'_, Send<'_>>>) {
        self.steps += 1;
        self.nodes[at].ring.handle(self.now, input).expect("only commands are refused");
        self.drain(at);
    }

    fn drain(&mut self, at: usize) {
        loop {
            let node = &mut self.nodes[at];
            let writable = if self.now >= node.free_at { Writable::ALL } else { Writable::NONE };
            match node.ring.poll(self.now, writable, &mut self.buffer) {
                Output::Idle(idle) => {
                    node.deadline = idle.deadline;
                    node.blocked = matches!(idle.reason, Reason::Port(_));
                    break;
                }
                Output::Event(Event::Inner(got)) => self.received(got),
                Output::Event(event) => self.events.push((self.now, node.number, event)),
                Output::Transmit(transmit) => {
                    let bytes: Rc<[u8]> = self.buffer[..transmit.length].into();
                    self.carry(at, transmit.peer, bytes);
                }
            }
        }
        let node = &mut self.nodes[at];
        let tokens = node.ring.inner().statistics().tokens;
        if tokens != node.tokens {
            node.tokens = tokens;
            self.longest_gap = self.longest_gap.max(self.now.since(self.last_token));
            self.last_token = self.now;
        }
    }

    fn carry(&mut self, at: usize, to: Peer, bytes: Rc<[u8]>) {
        let node = &mut self.nodes[at];
        let free = &mut self.free_at[usize::from(node.group)];
        *free = self.now.max(*free) + self.line.frame(bytes.len());
        node.free_at = *free;
        let number = self.frames;
        self.frames += 1;
        if !(self.loses)(number, &bytes) {
            let (arrives, to) = (*free + self.line.hop, to.as_bytes()[0]);
            let flight = Flight { at: arrives, number, from: at, to, group: node.group, bytes };
            self.flights.push(Reverse((arrives, number, Rc::new(flight))));
        }
    }

    fn received(&mut self, got: Taken) {
        if let Some(flow) = self.flows.get_mut(got.stamp.0 as usize) {
            flow.came += 1;
            flow.worst = flow.worst.max(self.now.since(got.stamp.1));
        }
    }
}
