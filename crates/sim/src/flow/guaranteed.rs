//! Messages over the guaranteed transport: the `arq` crate's, byte for byte as it runs on sockets.

use std::collections::VecDeque;

use trunkline_arq::{Buffer, Command, Config, ConnectionId, End, Event, News, Node, Taken};
use trunkline_endpoint::{Endpoint as _, Idle, Input, MAX_BATCH, Output, Peer, Port, Segment, To, Writable};
use trunkline_models::host::Disk;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::guaranteed::{self, Faulty};
use trunkline_run::message::{HEADER, Header, Kind, LARGEST};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_units::Instant;

use super::way::{self, Way, Ways};
use super::{Birth, Recipe, Said, UDP_IP, depart};
use crate::frame::{Content, Kit, Packet};

/// All messages go over this channel.
const CHANNEL: u16 = 0;
/// The ends as each other sees them.
const PEERS: [Peer; 2] = [Peer::new(b"sender"), Peer::new(b"receiver")];
/// Nobody here is a stranger: messages need no token.
const TOKEN: u32 = 0;

/// The ends of a connection over the guaranteed transport.
#[derive(Debug)]
pub struct Guaranteed {
    recipe: Recipe,
    ends: [Line; 2],
    source: Option<Source>,
    ledger: Ledger,
    meter: Meter,
    ways: Ways,
    /// The way of the last frame that the receiver got.
    way: Way,
    sequence: u64,
    asking: Option<Asking>,
    disk: Option<Disk>,
    read_until: Instant,
    trouble: Option<String>,
    over: bool,
    flow: u32,
    channels: [u16; 2],
    start: Instant,
}

#[derive(Debug, Default)]
struct Asking {
    waiting: Option<(u64, Instant)>,
    rtt: Histogram,
    answers: u64,
    answer_bytes: u64,
}

/// One end.
#[derive(Debug)]
struct Line {
    node: Faulty,
    id: Option<ConnectionId>,
    to: To,
    /// Frames of a batch that wait for room, and when they were made.
    leaving: VecDeque<(Instant, Box<[u8]>)>,
    /// A message that found no room.
    held: Option<Buffer>,
    readable: bool,
    closing: bool,
    over: Option<End>,
    /// A message as it comes in.
    message: Buffer,
}

impl Line {
    /// Hands over what it holds; whether it holds nothing any more.
    fn push(&mut self, now: Instant) -> bool {
        let (Some(id), Some(message)) = (self.id, &mut self.held) else { return self.held.is_none() };
        let sent = self.node.handle(now, Input::Command(Command::HandOver { id, channel: CHANNEL, message }));
        if sent.is_ok() {
            self.held = None;
        }
        sent.is_ok()
    }

    fn close(&mut self, now: Instant) {
        if let (Some(id), false) = (self.id, self.closing) {
            self.closing = true;
            // Refused only if it is over, and then it is closed.
            let _ = self.node.handle(now, Input::Command(Command::Close { id }));
        }
    }

    /// The next message that has arrived, if one is whole.
    fn take(&mut self, now: Instant) -> Option<Header> {
        let id = self.id?;
        loop {
            let mut taken = Taken::Nothing;
            let take = Command::Take { id, channel: CHANNEL, into: &mut self.message, taken: &mut taken };
            self.node.handle(now, Input::Command(take)).ok()?;
            match taken {
                Taken::Whole => {
                    let header = Header::decode(TOKEN, &self.message).ok();
                    self.message.clear();
                    return header;
                }
                Taken::Part => {}
                Taken::Nothing => {
                    self.readable = false;
                    return None;
                }
            }
        }
    }
}

/// A message of which nobody reads more than the header.
fn write(header: &Header) -> Buffer {
    let mut message = Buffer::with_capacity(header.length as usize);
    message.resize(header.length as usize, 0);
    if let Some(front) = message.first_chunk_mut::<HEADER>() {
        header.encode(TOKEN, front);
    }
    message
}

impl Guaranteed {
    pub(super) fn begin(birth: &Birth<'_>, start: Instant, limit: Limit) -> Self {
        let protocol = &birth.plan.protocol;
        let longest = birth.mtu.saturating_sub(UDP_IP) as usize;
        let buffer = |side: usize| match side {
            0 => birth.plan.from.buffer,
            _ => birth.plan.to.first().and_then(|to| to.buffer),
        };
        let options = |side: usize| guaranteed::options(protocol, buffer(side), buffer(side), longest);
        let end = |side: usize, to: To| {
            let accept = if side == 1 { options(side) } else { None };
            let name = |what: &str| format!("{} / {what} {side}", birth.place);
            let random = birth.seed.stream(&name("numbers"));
            let node = Node::new(Config { port: Port(0), accept, connections: 1, random });
            let node = Faulty::new(node, protocol, birth.seed.stream(&name("faults")));
            let (leaving, message) = (VecDeque::new(), Buffer::new());
            Line {
                node,
                id: None,
                to,
                leaving,
                held: None,
                readable: false,
                closing: false,
                over: None,
                message,
            }
        };
        let mut ends = [end(0, birth.to), end(1, birth.back)];
        if let Some(options) = options(0) {
            let mut id = ConnectionId::default();
            let open = Command::Open { peer: PEERS[1], options: &options, id: &mut id };
            let opened = ends[0].node.handle(birth.now, Input::Command(open));
            debug_assert!(opened.is_ok(), "the first connection of a node");
        }
        Guaranteed {
            recipe: Recipe {
                test: birth.plan.test.clone(),
                limit,
                seed: birth.seed,
                place: birth.place.clone(),
                earliest: start,
            },
            ends,
            source: None,
            ledger: Ledger::new(start),
            meter: Meter::new(start),
            ways: Ways::default(),
            way: Way::new(start, start),
            sequence: 0,
            asking: birth.asks().then(Asking::default),
            disk: birth.file_bytes.and(birth.disks[0]).map(Disk::new),
            read_until: start,
            trouble: None,
            over: false,
            flow: birth.flow,
            channels: [birth.channel(0), birth.channel(1)],
            start,
        }
    }

    /// When the first message may have left: not before the connection was open.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Takes a frame.
    pub fn arrive(&mut self, now: Instant, side: usize, packet: &Packet) {
        let Content::Frame(frame) = &packet.content else { return };
        let (way, bytes) = &**frame;
        if side == 1 {
            self.way = *way;
        }
        let peer = PEERS[1 - side];
        // Only a command can be refused.
        let _ = self.ends[side].node.handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None });
    }

    /// Its deadline may have come.
    pub fn wake(&mut self, now: Instant, side: usize) {
        let _ = self.ends[side].node.handle(now, Input::Wake);
    }

    /// What an end has to say.
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, kit: &mut Kit) -> Said {
        loop {
            let own = self.work(now, side);
            if room && let Some((made, frame)) = self.ends[side].leaving.pop_front() {
                let packet = self.packet(side, Way::new(made, now), frame);
                return Said::Send { frame: kit.frame(packet), resume: None };
            }
            let writable = room && self.ends[side].leaving.is_empty();
            let ports = if writable { Writable::ALL } else { Writable::NONE };
            let end = &mut self.ends[side];
            match end.node.poll(now, ports, &mut kit.scratch[..MAX_BATCH]) {
                Output::Transmit(t) => {
                    let frames = Segment::frames(t.segment, &kit.scratch[..t.length]);
                    end.leaving.extend(frames.map(|frame| (now, frame.into())));
                }
                Output::Event(Event { id, news }) => self.hear(now, side, id, news),
                Output::Idle(Idle { deadline, .. }) => {
                    let deadline = own.into_iter().chain(deadline).min();
                    // Whatever there may be to send is asked for when there is room.
                    return Said::Idle { deadline, blocked: !room };
                }
            }
        }
    }

    fn packet(&self, side: usize, way: Way, frame: Box<[u8]>) -> Packet {
        let length = frame.len() as u32 + UDP_IP;
        let (channel, to) = (self.channels[side], self.ends[side].to);
        Packet::new(Content::Frame(Box::new((way, frame))), length, self.flow, channel, to, side == 1)
    }

    fn hear(&mut self, now: Instant, side: usize, id: ConnectionId, news: News) {
        let end = &mut self.ends[side];
        match news {
            News::Opened { .. } => {
                end.id = Some(id);
                if side == 0 {
                    self.open(now);
                }
            }
            News::Readable { .. } => end.readable = true,
            News::Writable { .. } => {}
            News::Finished => end.close(now),
            News::Closed { end: why } => {
                end.over = Some(why);
                if why != End::Done {
                    self.trouble.get_or_insert_with(|| why.to_string());
                    self.over = true;
                }
                self.over |= self.ends.iter().all(|end| end.over.is_some());
            }
        }
    }

    fn open(&mut self, now: Instant) {
        let start = self.recipe.earliest.max(now);
        let bounds = Bounds { smallest: HEADER as u32, largest: LARGEST };
        let recipe = &self.recipe;
        match Source::new(&recipe.test, recipe.limit, bounds, start, recipe.seed, &recipe.place) {
            Ok(source) => self.source = Some(source),
            Err(e) => {
                self.trouble.get_or_insert_with(|| e.to_string());
                self.over = true;
            }
        }
        self.start = start;
        self.ledger = Ledger::new(start);
        self.meter = Meter::new(start);
        self.read_until = start;
    }

    /// Lets the user of an end read and write; when it goes on by itself.
    fn work(&mut self, now: Instant, side: usize) -> Option<Instant> {
        while self.ends[side].readable
            && self.ends[side].held.is_none()
            && let Some(header) = self.ends[side].take(now)
        {
            if side == 1 {
                self.receive(now, &header);
            } else {
                self.answered(now, &header);
            }
        }
        if !self.ends[side].push(now) || side == 1 {
            return None;
        }
        self.feed(now)
    }

    fn receive(&mut self, now: Instant, header: &Header) {
        self.meter.arrive(header, now);
        self.ways.count(&self.way, header.sent, now);
        if header.response > 0 {
            let length = header.response.max(HEADER as u32);
            let sequence = header.sequence;
            let answer = Header { sequence, sent: now, length, response: 0, kind: Kind::Answer };
            self.ends[1].held = Some(write(&answer));
            self.ends[1].push(now);
        }
    }

    fn answered(&mut self, now: Instant, header: &Header) {
        let Some(asking) = &mut self.asking else { return };
        if let Some((_, asked)) = asking.waiting.take_if(|(sequence, _)| *sequence == header.sequence) {
            asking.rtt.record(now.since(asked));
            asking.answers += 1;
            asking.answer_bytes += u64::from(header.length);
        }
    }

    /// Draws messages and hands them over, as far as there is room; when to go on.
    fn feed(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.ends[0].closing || self.asking.as_ref().is_some_and(|asking| asking.waiting.is_some()) {
                return None;
            }
            if now < self.read_until {
                return Some(self.read_until);
            }
            let message = match self.source.as_mut()?.next(now) {
                Step::Wait(until) => return Some(until),
                Step::Done => {
                    self.ends[0].close(now);
                    return None;
                }
                Step::Send(message) => message,
            };
            if let Some(source) = &mut self.source {
                depart(source, &mut self.ledger, &message, now);
            }
            let (sequence, response) = (self.sequence, message.response);
            let header = Header { sequence, sent: now, length: message.size, response, kind: Kind::Pattern };
            self.sequence += 1;
            if let Some(asking) = &mut self.asking {
                asking.waiting = Some((sequence, now));
            }
            if let Some(disk) = &mut self.disk {
                self.read_until = disk.take(now, message.size.into());
            }
            self.ends[0].held = Some(write(&header));
            if !self.ends[0].push(now) {
                return None;
            }
        }
    }

    /// Whether the run is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn reports(self) -> (SenderReport, Vec<ReceiverReport>, Option<String>) {
        let mut sender = match &self.source {
            Some(source) => SenderReport::whole(&self.ledger, source),
            None => SenderReport::so_far(&self.ledger),
        };
        if let Some(asking) = &self.asking {
            sender.rtt = asking.rtt.counts();
            sender.counters.insert("answers".into(), asking.answers as f64);
            sender.counters.insert("answer_bytes".into(), asking.answer_bytes as f64);
        }
        sender.notes.insert("stages".into(), way::SAYS.into());
        let mut receiver = ReceiverReport::of(&self.meter);
        receiver.stages = self.ways.stages();
        let counters = |end: &Line, side| guaranteed::counters(&end.node, end.id.as_slice(), side);
        sender.counters.extend(counters(&self.ends[0], "sender"));
        receiver.counters.extend(counters(&self.ends[1], "receiver"));
        (sender, vec![receiver], self.trouble)
    }
}
