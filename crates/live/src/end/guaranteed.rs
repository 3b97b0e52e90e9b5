//! Ends over the guaranteed transport: messages keep their bounds, and none is lost.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use trunkline_arq::{Buffer, Command, Config, ConnectionId, End, Event, News, Node, Refusal, Taken};
use trunkline_endpoint::Port;
use trunkline_io::driver::{Direction, Driver, Turn, peer_of};
use trunkline_io::socket;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::guaranteed::{self, Faulty};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::{Limit, Message, Step};
use trunkline_traffic::{Pattern, Source};
use trunkline_units::{Instant, Seed, Size, Span};

use super::file::{Sink, fill};
use super::gauge::Gauge;
use super::request::{answer_to, lay};
use super::{Bench, Broken, EndError, LOOK, PATIENCE, buffer_counter, file, io};
use crate::wire::Report;

/// All messages go over this channel.
const CHANNEL: u16 = 0;
/// Socket buffers, if none were asked for: a scheduler's time slice of traffic.
const BUFFER: Size = Size::from_bytes(4 << 20);
/// The longest datagram over Ethernet, where the system does not know better.
const ETHERNET: usize = 1472;
/// Messages handed over between two looks at the socket.
const AT_ONCE: u32 = 64;
/// How long an end waits for the other to say that it is done, too.
const FAREWELL: Span = Span::from_s(2);

/// A node on a socket, with its one connection.
struct Line {
    driver: Driver<Faulty>,
    gauge: Gauge,
    id: Option<ConnectionId>,
    peer: SocketAddr,
    readable: bool,
    writable: bool,
    finished: bool,
    over: Option<End>,
}

impl Line {
    fn new(bench: &Bench, peer: Option<SocketAddr>) -> Result<(Line, SocketAddr), EndError> {
        let mut sockets = bench.options();
        sockets.send_buffer.get_or_insert(BUFFER);
        sockets.receive_buffer.get_or_insert(BUFFER);
        let port = if peer.is_none() { bench.spec.port.unwrap_or(0) } else { 0 };
        let socket = socket::udp(SocketAddr::new(bench.spec.address, port), &sockets)?;
        let address = socket.local_addr().map_err(io("asking for the address"))?;
        // Nobody should guess the numbers by which connections are known; the clock at the start serves here, for a
        // test that lasts for as long as its plan says.
        let role = if peer.is_some() { "sender" } else { "receiver" };
        let random = Seed(u64::from(bench.spec.token)).stream(&format!("{} / {role}", bench.spec.place));
        let faults = bench.spec.seed.stream(&format!("{} / faults / {role}", bench.spec.place));
        let accept = match peer {
            None => options(bench, usize::MAX),
            Some(_) => None,
        };
        let node = Node::new(Config { port: Port(0), accept, connections: 1, random });
        let node = Faulty::new(node, &bench.spec.protocol, faults);
        let mut driver = Driver::new(node, socket, bench.clock).map_err(io("preparing the socket"))?;
        let way = if peer.is_some() { Direction::Out } else { Direction::In };
        let gauge = Gauge::new(bench.clock, way, &bench.spec.pattern);
        driver.measure(Box::new(gauge.clone()));
        let line = Line {
            driver,
            gauge,
            id: None,
            peer: peer.unwrap_or(address),
            readable: false,
            writable: true,
            finished: false,
            over: None,
        };
        Ok((line, address))
    }

    /// Runs until `until`, or until something has happened.
    fn run(&mut self, until: Instant) -> Result<(), EndError> {
        match self.driver.run(Some(until)).map_err(io("at the socket"))? {
            Turn::Event(Event { id, news }) => match news {
                News::Opened { .. } => self.opened(id),
                News::Readable { .. } => self.readable = true,
                News::Writable { .. } => self.writable = true,
                News::Finished => self.finished = true,
                News::Closed { end } => self.over = Some(end),
            },
            Turn::Trouble(_) | Turn::Until | Turn::Stopped => {}
        }
        Ok(())
    }

    fn opened(&mut self, id: ConnectionId) {
        self.id = Some(id);
        let measure = Command::Measure { id, every: self.gauge.every, meter: Box::new(self.gauge.clone()) };
        // Refused only if it is over already.
        let _ = self.driver.command(measure);
    }

    /// Waits for the connection to stand.
    fn open(&mut self, bench: &Bench, peer: SocketAddr) -> Result<(), EndError> {
        let longest = longest(self.driver.socket(), peer).unwrap_or(ETHERNET);
        let Some(options) = options(bench, longest) else { return Ok(()) };
        let mut id = ConnectionId::default();
        let open = Command::Open { peer: peer_of(peer), options: &options, id: &mut id };
        self.driver.command(open).expect("the first connection of a node is not refused");
        let patience = bench.clock.now() + PATIENCE;
        while self.id.is_none() {
            self.run((bench.clock.now() + LOOK).min(patience))?;
            if let Some(end) = self.over {
                return Err(EndError::Ended(peer, end));
            }
            if bench.control.stopped() {
                return Err(EndError::Stopped);
            }
            if bench.clock.now() >= patience {
                return Err(EndError::Ended(peer, End::NoAnswer));
            }
        }
        Ok(())
    }

    /// Hands a message over; false if that was stopped.
    fn send(&mut self, bench: &Bench, bytes: &[u8]) -> Result<bool, EndError> {
        let Some(id) = self.id else { return Ok(false) };
        loop {
            match self.driver.command(Command::Send { id, channel: CHANNEL, bytes }) {
                Ok(()) => return Ok(true),
                Err(Refusal::Full) => self.writable = false,
                Err(_) => return Err(EndError::Ended(self.peer, self.over.unwrap_or(End::Here))),
            }
            while !self.writable {
                self.run(bench.clock.now() + LOOK)?;
                if let Some(end) = self.over {
                    return Err(EndError::Ended(self.peer, end));
                }
                if bench.control.stopped() {
                    return Ok(false);
                }
            }
        }
    }

    /// The next message that has arrived, appended to `into`; whether it is whole.
    fn take(&mut self, into: &mut Buffer) -> bool {
        let Some(id) = self.id else { return false };
        loop {
            let mut taken = Taken::Nothing;
            let take = Command::Take { id, channel: CHANNEL, into, taken: &mut taken };
            if self.driver.command(take).is_err() {
                return false;
            }
            match taken {
                Taken::Whole => return true,
                Taken::Part => {}
                Taken::Nothing => {
                    self.readable = false;
                    return false;
                }
            }
        }
    }

    /// Says that no more comes, and waits until all has arrived and the peer has said so too.
    fn close(&mut self, bench: &Bench) -> Result<(), EndError> {
        let Some(id) = self.id else { return Ok(()) };
        let _ = self.driver.command(Command::Close { id });
        let mut stopped = None;
        while self.over.is_none() {
            let now = bench.clock.now();
            self.run(now + LOOK)?;
            // Nothing promised is dropped at a stop; but nobody waits for a peer that is gone.
            if bench.control.stopped() && now.since(*stopped.get_or_insert(now)) > FAREWELL {
                return Ok(());
            }
        }
        match self.over {
            Some(End::Done) | None => Ok(()),
            Some(end) => Err(EndError::Ended(self.peer, end)),
        }
    }

    fn counters(&self, side: &str) -> trunkline_run::ends::Figures {
        guaranteed::counters(self.driver.endpoint(), self.id.as_slice(), side)
    }
}

fn options(bench: &Bench, path: usize) -> Option<trunkline_arq::Options> {
    let asked = bench.spec.buffer;
    guaranteed::options(&bench.spec.protocol, asked, asked, path)
}

/// The longest datagram that reaches `peer` in one piece, as far as the system knows.
fn longest(socket: &UdpSocket, peer: SocketAddr) -> Option<usize> {
    let probe = UdpSocket::bind(SocketAddr::new(socket.local_addr().ok()?.ip(), 0)).ok()?;
    probe.connect(peer).ok()?;
    socket::allow_fragments(&probe, peer).ok()?
}

/// Sends whatever the pattern asks for.
pub(crate) fn send(
    mut bench: Bench,
    peer: SocketAddr,
    limit: Limit,
    path: Option<&Path>,
) -> Result<Report, Broken> {
    let mut from = path.map(|path| File::open(path).map_err(file("opening", path))).transpose()?;
    let (mut line, address) = Line::new(&bench, Some(peer))?;
    let start = bench.ready(address)?;
    line.open(&bench, peer)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let mut ledger = Ledger::new(start);
    let mut answers = Answers::default();
    let file = from.as_mut().zip(path);
    let result = pump(&mut bench, &mut line, &mut source, &mut ledger, file, &mut answers);
    let result = result.and_then(|()| line.close(&bench));
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    report.counters.extend([buffer_counter(line.driver.socket(), true)]);
    report.counters.extend(line.counters("sender"));
    (report.stages, report.left) = line.gauge.report();
    report.notes.insert("stages".into(), line.gauge.says());
    if path.is_some() {
        let file_bytes = ledger.bytes() - ledger.messages() * HEADER as u64;
        report.counters.insert("file_bytes".into(), file_bytes as f64);
    }
    if matches!(bench.spec.pattern, Pattern::Request { .. }) {
        report.rtt = answers.rtt.counts();
        report.counters.insert("answers".into(), answers.count as f64);
        report.counters.insert("answer_bytes".into(), answers.bytes as f64);
    }
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

/// Answers to requests.
#[derive(Default)]
struct Answers {
    rtt: Histogram,
    count: u64,
    bytes: u64,
}

fn pump(
    bench: &mut Bench,
    line: &mut Line,
    source: &mut Source,
    ledger: &mut Ledger,
    mut from: Option<(&mut File, &Path)>,
    answers: &mut Answers,
) -> Result<(), EndError> {
    let asks = matches!(bench.spec.pattern, Pattern::Request { .. });
    let (mut image, mut sequence, mut unseen) = (Vec::new(), 0, 0);
    while !bench.control.stopped() {
        let now = bench.clock.now();
        let message = match source.next(now) {
            Step::Send(message) => message,
            Step::Wait(until) => {
                unseen = 0;
                line.run(until.min(now + LOOK))?;
                continue;
            }
            Step::Done => break,
        };
        let Some(message) = prepare(bench, &mut from, message, sequence, now, &mut image)? else { break };
        if !line.send(bench, &image)? {
            break;
        }
        sequence += 1;
        ledger.depart(&message, now);
        if message.first {
            source.departed(now);
        }
        if asks {
            if !await_answer(bench, line, sequence - 1, now, answers)? {
                break;
            }
            continue;
        }
        // Several share frames; but a message with a gap behind it leaves at once.
        unseen += 1;
        if unseen >= AT_ONCE || source.due_after(now).is_some() {
            unseen = 0;
            line.run(now)?;
        }
        bench.copy_ledger(ledger, now);
    }
    Ok(())
}

/// Lays a message out; none if the file has ended.
fn prepare(
    bench: &Bench,
    from: &mut Option<(&mut File, &Path)>,
    mut message: Message,
    sequence: u64,
    now: Instant,
    image: &mut Vec<u8>,
) -> Result<Option<Message>, EndError> {
    let (length, response) = (message.size, message.response);
    let Some((from, path)) = from else {
        lay(bench, image, &Header { sequence, sent: now, length, response, kind: Kind::Pattern });
        return Ok(Some(message));
    };
    image.resize(length as usize, 0);
    let got = fill(from, &mut image[HEADER..]).map_err(file("reading", path))?;
    if got == 0 {
        return Ok(None);
    }
    image.truncate(HEADER + got);
    message.size = image.len() as u32;
    let header = Header { sequence, sent: now, length: message.size, response: 0, kind: Kind::Checked };
    let (front, body) = image.split_first_chunk_mut::<HEADER>().expect("a message has a header");
    header.encode_checked(bench.spec.token, body, front);
    Ok(Some(message))
}

/// Waits for the answer to `sequence`; false if stopped.
fn await_answer(
    bench: &Bench,
    line: &mut Line,
    sequence: u64,
    asked: Instant,
    answers: &mut Answers,
) -> Result<bool, EndError> {
    let mut answer = Buffer::new();
    loop {
        while !line.take(&mut answer) {
            if let Some(end) = line.over {
                return Err(EndError::Ended(line.peer, end));
            }
            if bench.control.stopped() {
                return Ok(false);
            }
            line.run(bench.clock.now() + LOOK)?;
        }
        let header = Header::decode(bench.spec.token, &answer);
        answer.clear();
        if header.is_ok_and(|h| h.kind == Kind::Answer && h.sequence == sequence) {
            let length = header.map_or(0, |h| h.length);
            answers.rtt.record(bench.clock.now().since(asked));
            answers.count += 1;
            answers.bytes += u64::from(length);
            return Ok(true);
        }
    }
}

/// Receives whatever comes, and answers what asks for it.
pub(crate) fn receive(mut bench: Bench, path: Option<&Path>) -> Result<Report, Broken> {
    let (mut line, address) = Line::new(&bench, None)?;
    let mut sink = path.map(Sink::create).transpose()?;
    let start = bench.ready(address)?;
    let mut meter = Meter::new(start);
    let result = listen(&mut bench, &mut line, &mut meter, &mut sink);
    let mut report = ReceiverReport::of(&meter);
    report.cpu = bench.cpu();
    report.counters.extend([buffer_counter(line.driver.socket(), false)]);
    report.counters.extend(line.counters("receiver"));
    (report.stages, report.came) = line.gauge.report();
    let report = Report::Receiver(Box::new(report));
    match result.and_then(|()| sink.map_or(Ok(()), Sink::finish)) {
        Ok(()) => Ok(report),
        Err(error) => Err(Broken { error, report: Some(report) }),
    }
}

fn listen(
    bench: &mut Bench,
    line: &mut Line,
    meter: &mut Meter,
    sink: &mut Option<Sink>,
) -> Result<(), EndError> {
    let (mut message, mut reply) = (Buffer::new(), Vec::new());
    while !line.finished && line.over.is_none() && !bench.control.stopped() {
        line.run(bench.clock.now() + LOOK)?;
        while line.readable && line.take(&mut message) {
            let now = bench.clock.now();
            let header = Header::decode(bench.spec.token, &message);
            let intact = |h: &Header| match message.split_first_chunk::<HEADER>() {
                Some((front, body)) if h.length as usize == message.len() => match h.kind {
                    Kind::Checked => Header::holds(front, body),
                    _ => bench.payload.matches(0, body),
                },
                _ => false,
            };
            match header {
                Ok(header) if intact(&header) => {
                    meter.arrive(&header, now);
                    if let Some(sink) = sink {
                        sink.append(&message[HEADER..])?;
                    }
                    if header.response > 0 {
                        lay(bench, &mut reply, &answer_to(&header, now));
                        line.send(bench, &reply)?;
                    }
                }
                _ => meter.corrupted(),
            }
            message.clear();
            bench.copy_meter(meter, now);
            if bench.control.stopped() {
                break;
            }
        }
    }
    line.close(bench)
}
