//! Requests and answers: one in flight. Over datagrams a request unanswered for a second is lost and the next goes
//! out; over a stream the answer is waited for, unless the peer is silent for so long that it is taken for gone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use trunkline_experiment::plan::Protocol;
use trunkline_io::socket;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Limit, Step};
use trunkline_units::{Instant, Span};

use super::stream::{self, STUCK, Writer};
use super::{Bench, Broken, EndError, buffer_counter, datagram, io};
use crate::wire::Report;

/// An answer that has not come by then is lost.
const UNANSWERED: Span = Span::from_s(1);
/// A message that one call reads or writes whole.
const ROOM: usize = 1 << 16;

/// What carries requests and answers.
enum Way {
    Stream(Box<Writer>, TcpStream),
    Datagrams(UdpSocket),
}

/// What one wait for a message brought.
enum Got {
    Message(Header),
    Nothing,
    Closed,
}

/// Messages as they come in, whole.
struct Mouth {
    buffer: Vec<u8>,
    have: usize,
    calls: u64,
    corrupted: u64,
}

impl Mouth {
    fn new() -> Self {
        Mouth { buffer: vec![0; ROOM], have: 0, calls: 0, corrupted: 0 }
    }

    /// One datagram.
    fn datagram(&mut self, bench: &Bench, socket: &UdpSocket) -> io::Result<(Got, Option<SocketAddr>)> {
        self.calls += 1;
        match socket.recv_from(&mut self.buffer) {
            Ok((length, peer)) => Ok((self.judge(bench, length), Some(peer))),
            Err(e) if socket::is_timeout(&e) || e.kind() == io::ErrorKind::ConnectionRefused => {
                Ok((Got::Nothing, None))
            }
            Err(e) => Err(e),
        }
    }

    fn judge(&mut self, bench: &Bench, length: usize) -> Got {
        let bytes = &self.buffer[..length];
        match Header::decode(bench.spec.token, bytes) {
            Ok(h) if h.length as usize == length && bench.payload.matches(0, &bytes[HEADER..]) => {
                Got::Message(h)
            }
            _ => {
                self.corrupted += 1;
                Got::Nothing
            }
        }
    }

    /// The next message of a stream. Only one is ever under way, so nothing beyond it is read.
    fn message(&mut self, bench: &Bench, stream: &mut TcpStream) -> Result<Got, EndError> {
        loop {
            let wanted = match self.buffer[..self.have].first_chunk::<HEADER>() {
                None => HEADER,
                Some(front) => match Header::decode(bench.spec.token, front) {
                    Ok(h) if h.length as usize == self.have => {
                        let got = self.judge(bench, self.have);
                        self.have = 0;
                        return Ok(got);
                    }
                    Ok(h) if h.length as usize > self.have => h.length as usize,
                    // Not a header, or more than the one message that may be under way.
                    _ => {
                        let peer = stream.peer_addr().map_err(io("asking for the peer"))?;
                        return Err(EndError::OutOfStep(peer));
                    }
                },
            };
            if self.buffer.len() < wanted {
                self.buffer.resize(wanted, 0);
            }
            self.calls += 1;
            // A first read may bring the whole message, for there is only one.
            let room = if self.have < HEADER { self.buffer.len() } else { wanted };
            match stream.read(&mut self.buffer[self.have..room]) {
                Ok(0) => return Ok(Got::Closed),
                Ok(n) => self.have += n,
                Err(e) if socket::is_timeout(&e) => return Ok(Got::Nothing),
                Err(e) => return Err(io("receiving")(e)),
            }
        }
    }
}

/// Lays a message out in `buffer`.
pub(crate) fn lay(bench: &Bench, buffer: &mut Vec<u8>, header: &Header) {
    let length = header.length as usize;
    if buffer.len() != length {
        buffer.resize(HEADER, 0);
        while buffer.len() < length {
            let offset = buffer.len() - HEADER;
            buffer.extend_from_slice(bench.payload.piece(offset, length - HEADER - offset));
        }
        buffer.truncate(length);
    }
    header.encode(bench.spec.token, buffer.first_chunk_mut().expect("a message has a header"));
}

/// What the asking side counts.
#[derive(Default)]
struct Tally {
    rtt: Histogram,
    answers: u64,
    answer_bytes: u64,
    unanswered: u64,
    calls: u64,
    corrupted: u64,
}

/// Asks.
pub(crate) fn ask(mut bench: Bench, peer: SocketAddr, limit: Limit) -> Result<Report, Broken> {
    let (mut way, address) = match bench.spec.protocol {
        Protocol::Tcp { .. } => {
            let stream = stream::connect(&bench, peer)?;
            let address = stream.local_addr().map_err(io("asking for the address"))?;
            let reading = stream.try_clone().map_err(io("sharing the socket"))?;
            (Way::Stream(Box::new(Writer::new(stream, peer)), reading), address)
        }
        _ => {
            let socket = datagram::open_sender(&bench, peer, false)?;
            let address = socket.local_addr().map_err(io("asking for the address"))?;
            (Way::Datagrams(socket), address)
        }
    };
    let start = bench.ready(address)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let mut ledger = Ledger::new(start);
    let mut tally = Tally::default();
    let result = converse(&mut bench, &mut way, &mut source, &mut ledger, &mut tally);
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    match &mut way {
        Way::Stream(writer, _) => {
            writer.close();
            writer.add_to(&mut report);
        }
        Way::Datagrams(socket) => report.counters.extend([buffer_counter(socket, true)]),
    }
    // The round trip of a request, not the kernel's estimate.
    report.rtt = tally.rtt.counts();
    let counts = [
        ("answers", tally.answers),
        ("answer_bytes", tally.answer_bytes),
        ("unanswered", tally.unanswered),
        ("answers_corrupted", tally.corrupted),
    ];
    report.counters.extend(counts.map(|(k, v)| (k.to_string(), v as f64)));
    *report.counters.entry("sender_system_calls".into()).or_default() += tally.calls as f64;
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

fn converse(
    bench: &mut Bench,
    way: &mut Way,
    source: &mut Source,
    ledger: &mut Ledger,
    tally: &mut Tally,
) -> Result<(), EndError> {
    let mut pacer = trunkline_io::Pacer::new(bench.clock);
    let control = bench.control.clone();
    let (mut mouth, mut request, mut sequence) = (Mouth::new(), Vec::new(), 0);
    while !control.stopped() {
        let message = match source.next(bench.clock.now()) {
            Step::Send(message) => message,
            Step::Wait(until) => {
                pacer.wait(until, control.stop_flag());
                continue;
            }
            Step::Done => break,
        };
        let now = bench.clock.now();
        let (length, response) = (message.size, message.response);
        lay(bench, &mut request, &Header { sequence, sent: now, length, response, kind: Kind::Pattern });
        match way {
            Way::Stream(writer, _) => {
                if !writer.write(bench, &request)? {
                    break;
                }
            }
            Way::Datagrams(socket) => {
                tally.calls += 1;
                match socket.send(&request) {
                    Err(e) if e.kind() != io::ErrorKind::ConnectionRefused => return Err(io("sending")(e)),
                    _ => {}
                }
            }
        }
        ledger.depart(&message, now);
        if !await_answer(bench, way, &mut mouth, sequence, now, tally)? {
            break;
        }
        sequence += 1;
        if let Way::Stream(writer, _) = way {
            writer.sample(ledger.start(), now);
        }
        bench.copy_ledger(ledger, now);
    }
    tally.calls += mouth.calls;
    tally.corrupted = mouth.corrupted;
    Ok(())
}

/// Waits for the answer to `sequence`. False if the conversation is over.
fn await_answer(
    bench: &Bench,
    way: &mut Way,
    mouth: &mut Mouth,
    sequence: u64,
    asked: Instant,
    tally: &mut Tally,
) -> Result<bool, EndError> {
    loop {
        let got = match way {
            Way::Stream(_, stream) => mouth.message(bench, stream)?,
            Way::Datagrams(socket) => mouth.datagram(bench, socket).map_err(io("receiving"))?.0,
        };
        let now = bench.clock.now();
        match got {
            Got::Message(h) if h.kind == Kind::Answer && h.sequence == sequence => {
                tally.rtt.record(now.since(asked));
                tally.answers += 1;
                tally.answer_bytes += u64::from(h.length);
                return Ok(true);
            }
            // The answer to a request given up on.
            Got::Message(_) => {}
            Got::Nothing if bench.control.stopped() => return Ok(false),
            Got::Nothing => match way {
                Way::Datagrams(_) if now.since(asked) >= UNANSWERED => {
                    tally.unanswered += 1;
                    return Ok(true);
                }
                Way::Stream(_, stream) if now.since(asked) >= STUCK => {
                    let peer = stream.peer_addr().map_err(io("asking for the peer"))?;
                    return Err(EndError::Stuck(peer, STUCK));
                }
                _ => {}
            },
            Got::Closed => {
                let Way::Stream(_, stream) = way else { return Ok(false) };
                return Err(EndError::ClosedEarly(stream.peer_addr().map_err(io("asking for the peer"))?));
            }
        }
    }
}

/// Answers.
pub(crate) fn answer(bench: Bench) -> Result<Report, Broken> {
    match bench.spec.protocol {
        Protocol::Tcp { .. } => answer_stream(bench),
        _ => answer_datagrams(bench),
    }
}

fn answer_stream(mut bench: Bench) -> Result<Report, Broken> {
    let (listener, address) = stream::listen(&bench)?;
    let (mut stream, start) = stream::accept(&mut bench, &listener, address)?;
    let mut meter = Meter::new(start);
    let (mut mouth, mut reply, mut error) = (Mouth::new(), Vec::new(), None);
    while error.is_none() && !bench.control.stopped() {
        let got = mouth.message(&bench, &mut stream);
        let now = bench.clock.now();
        match got {
            Ok(Got::Message(h)) => {
                meter.arrive(&h, now);
                lay(&bench, &mut reply, &answer_to(&h, now));
                mouth.calls += 1;
                error = write_all(&mut stream, &bench, &reply).err();
            }
            Ok(Got::Nothing) => {}
            Ok(Got::Closed) => break,
            Err(e) => error = Some(e),
        }
        bench.copy_meter(&meter, now);
    }
    told(&bench, meter, &mouth, buffer_counter(&stream, false), error)
}

fn write_all(stream: &mut TcpStream, bench: &Bench, mut bytes: &[u8]) -> Result<(), EndError> {
    while !bytes.is_empty() && !bench.control.stopped() {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if socket::is_timeout(&e) => {}
            Err(e) => return Err(io("answering")(e)),
        }
    }
    Ok(())
}

fn answer_datagrams(mut bench: Bench) -> Result<Report, Broken> {
    let (socket, address) = datagram::open_receiver(&bench, false)?;
    let start = bench.ready(address)?;
    let mut meter = Meter::new(start);
    let (mut mouth, mut reply, mut error) = (Mouth::new(), Vec::new(), None);
    while error.is_none() && !bench.control.stopped() {
        let got = mouth.datagram(&bench, &socket);
        let now = bench.clock.now();
        match got {
            Ok((Got::Message(h), Some(peer))) => {
                meter.arrive(&h, now);
                lay(&bench, &mut reply, &answer_to(&h, now));
                mouth.calls += 1;
                // An answer that cannot be sent is a lost answer; the asker counts it.
                let _ = socket.send_to(&reply, peer);
            }
            Ok(_) => {}
            Err(e) => error = Some(io("receiving")(e)),
        }
        bench.copy_meter(&meter, now);
        if bench.is_complete(&meter, now) {
            break;
        }
    }
    told(&bench, meter, &mouth, buffer_counter(&socket, false), error)
}

pub(crate) fn answer_to(request: &Header, now: Instant) -> Header {
    let length = request.response.max(HEADER as u32);
    Header { sequence: request.sequence, sent: now, length, response: 0, kind: Kind::Answer }
}

fn told(
    bench: &Bench,
    mut meter: Meter,
    mouth: &Mouth,
    granted: (String, f64),
    error: Option<EndError>,
) -> Result<Report, Broken> {
    (0..mouth.corrupted).for_each(|_| meter.corrupted());
    let mut report = ReceiverReport::of(&meter);
    report.cpu = bench.cpu();
    report.counters.insert("receiver_system_calls".into(), mouth.calls as f64);
    report.counters.extend([granted]);
    let report = Report::Receiver(Box::new(report));
    match error {
        Some(error) => Err(Broken { error, report: Some(report) }),
        None => Ok(report),
    }
}
