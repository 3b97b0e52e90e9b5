//! Two nodes between which every frame passes by hand.

use trunkline_arq::{
    Buffer, Command, Config, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus, Statistics,
};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_units::{Instant, Seed, Span};

/// One way.
pub const HOP: Span = Span::from_ms(1);

pub const ADDRESSES: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];

pub struct ManualPair {
    pub nodes: [Checked<Node>; 2],
    pub ids: [ConnectionId; 2],
    pub now: Instant,
    pub deadlines: [Option<Instant>; 2],
    pub events: Vec<(usize, EventKind)>,
    buffer: Vec<u8>,
}

impl ManualPair {
    /// Two ends, of which the first has been asked to open a connection.
    pub fn new(options: &Options) -> ManualPair {
        ManualPair::between(options, options)
    }

    /// The same, each with its own options.
    pub fn between(options: &Options, accept: &Options) -> ManualPair {
        ManualPair::prepared(options, accept, |_| {})
    }

    /// The same, of nodes to which something was done before.
    pub fn prepared(options: &Options, accept: &Options, prepare: impl Fn(&mut Node)) -> ManualPair {
        let node = |accept, place: &str| {
            let random = Seed(1998).stream(place);
            let mut node = Node::new(Config { port: Port(0), accept, max_connections: 2, random });
            prepare(&mut node);
            Checked::new(node)
        };
        let nodes = [node(None, "a"), node(Some(accept.clone()), "b")];
        let (ids, deadlines) = ([ConnectionId::default(); 2], [None; 2]);
        let buffer = vec![0; MAX_BATCH];
        let mut hand = ManualPair { nodes, ids, now: Instant::ZERO, deadlines, events: Vec::new(), buffer };
        let mut id = ConnectionId::default();
        hand.command(0, Command::Open { peer: ADDRESSES[1], options, id: &mut id });
        hand
    }

    /// Two ends of an open connection.
    pub fn open(options: &Options) -> ManualPair {
        ManualPair::new(options).opened()
    }

    /// The same two once their connection is open.
    pub fn opened(mut self) -> ManualPair {
        self.exchange();
        let opened = self.events.iter().filter(|(_, news)| matches!(news, EventKind::Opened { .. })).count();
        assert_eq!(opened, 2, "it opens");
        self.events.clear();
        self
    }

    pub fn command(&mut self, end: usize, command: Command<'_>) {
        self.nodes[end].handle(self.now, Input::Command(command)).expect("nothing is refused");
    }

    pub fn send(&mut self, end: usize, bytes: &[u8]) {
        let id = self.ids[end];
        self.command(end, Command::Send { id, channel: 0, bytes });
    }

    /// Polls an end until it is idle; returns its frames.
    pub fn outputs(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        loop {
            match self.nodes[end].poll(self.now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(t) => {
                    let frames = Segment::frames(t.segment, &self.buffer[..t.length]);
                    said.extend(frames.map(<[u8]>::to_vec));
                }
                Output::Event(Event { id, kind: news }) => {
                    if let EventKind::Opened { .. } = news {
                        self.ids[end] = id;
                    }
                    self.events.push((end, news));
                }
                Output::Idle(idle) => {
                    self.deadlines[end] = idle.deadline;
                    return said;
                }
            }
        }
    }

    /// Gives frames to an end, each heard before the next; what it answers.
    pub fn give(&mut self, end: usize, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut answers = Vec::new();
        for bytes in frames {
            let input = Input::Frame { port: Port(0), peer: ADDRESSES[1 - end], bytes, segment: None };
            self.nodes[end].handle(self.now, input).expect("a frame is never refused");
            answers.extend(self.outputs(end));
        }
        answers
    }

    pub fn pass(&mut self, span: Span) {
        self.now += span;
    }

    /// Carries everything to and fro, until neither end has more to say.
    pub fn exchange(&mut self) {
        let mut said = [self.outputs(0), self.outputs(1)];
        while said.iter().any(|said| !said.is_empty()) {
            self.pass(HOP);
            let [a, b] = said;
            said = [self.give(0, &b), self.give(1, &a)];
        }
    }

    /// Lets an end's deadline come; what it says then.
    pub fn wake(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut said = self.outputs(end);
        let Some(deadline) = self.deadlines[end] else { return said };
        self.now = self.now.max(deadline);
        self.nodes[end].handle(self.now, Input::Wake).expect("a wake is never refused");
        said.extend(self.outputs(end));
        said
    }

    pub fn take(&mut self, end: usize) -> Vec<Vec<u8>> {
        let (id, mut all) = (self.ids[end], Vec::new());
        loop {
            let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
            self.command(end, Command::Receive { id, channel: 0, buffer: &mut into, status: &mut taken });
            match taken {
                ReceiveStatus::Complete => all.push(into.to_vec()),
                _ => return all,
            }
        }
    }

    pub fn statistics(&self, end: usize) -> Statistics {
        self.nodes[end].inner().statistics(self.ids[end]).expect("it stands")
    }
}
