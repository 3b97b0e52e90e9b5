//! Ends over TCP. Messages follow each other in the stream; the receiver cuts them apart again.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use trunkline_io::tcp::TcpInfo;
use trunkline_io::{Pacer, socket};
use trunkline_record::Histogram;
use trunkline_run::deframe::{Deframer, Part};
use trunkline_run::ends::{Figures, ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::{Limit, Message, Step};
use trunkline_traffic::{Pattern, Source};
use trunkline_units::{Instant, Span};

use super::file::Sink;
use super::{Bench, Broken, EndError, LOOK, PATIENCE, buffer_counter, io};
use crate::wire::Report;

/// Most bytes handed over in one call when messages are small; also how much of a message is kept ready.
const CALL: usize = 128 << 10;
/// What a receiver reads at once.
const READ: usize = 128 << 10;
/// How often the kernel is asked for its view, and how many answers are kept.
const SAMPLE_EVERY: Span = Span::from_ms(50);
const SAMPLES: usize = 2048;
/// A sender whose peer takes nothing for this long gives up.
pub(crate) const STUCK: Span = Span::from_s(30);

/// Connects to `peer`.
pub(crate) fn connect(bench: &Bench, peer: SocketAddr) -> Result<TcpStream, EndError> {
    let local = SocketAddr::new(bench.spec.address, 0);
    let stream = socket::tcp_connect(local, peer, PATIENCE, &bench.options())?;
    socket::limit_blocking(&stream, LOOK).map_err(io("setting a time limit"))?;
    Ok(stream)
}

/// Listens where the peer will connect.
pub(crate) fn listen(bench: &Bench) -> Result<(TcpListener, SocketAddr), EndError> {
    let local = SocketAddr::new(bench.spec.address, bench.spec.port.unwrap_or(0));
    let listener = socket::tcp_listen(local, &bench.options())?;
    let address = listener.local_addr().map_err(io("asking for the address"))?;
    Ok((listener, address))
}

/// Waits for the peer, then for the start.
pub(crate) fn accept(
    bench: &mut Bench,
    listener: &TcpListener,
    address: SocketAddr,
) -> Result<(TcpStream, Instant), EndError> {
    let start = bench.ready(address)?;
    let stream = socket::tcp_accept(listener, PATIENCE, &bench.options())
        .map_err(io("accepting"))?
        .ok_or(EndError::Lonely(address))?;
    socket::limit_blocking(&stream, LOOK).map_err(io("setting a time limit"))?;
    Ok((stream, start))
}

/// The sending side of a stream.
#[derive(Debug)]
pub(crate) struct Writer {
    stream: TcpStream,
    peer: SocketAddr,
    calls: u64,
    full: u64,
    samples: Vec<(Span, TcpInfo)>,
    every: Span,
    next_sample: Instant,
    rtt: Histogram,
}

impl Writer {
    pub fn new(stream: TcpStream, peer: SocketAddr) -> Self {
        Writer {
            stream,
            peer,
            calls: 0,
            full: 0,
            samples: Vec::with_capacity(SAMPLES),
            every: SAMPLE_EVERY,
            next_sample: Instant::ZERO,
            rtt: Histogram::default(),
        }
    }

    /// Writes all of it. False if told to stop on the way.
    #[inline]
    pub fn write(&mut self, bench: &Bench, mut bytes: &[u8]) -> Result<bool, EndError> {
        let mut waiting_since = None;
        while !bytes.is_empty() {
            self.calls += 1;
            match self.stream.write(bytes) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    waiting_since = None;
                }
                Err(e) if socket::is_timeout(&e) => {
                    self.full += 1;
                    let now = bench.clock.now();
                    if now.since(*waiting_since.get_or_insert(now)) > STUCK {
                        return Err(EndError::Stuck(self.peer, STUCK));
                    }
                }
                Err(e) if is_closed(&e) => return Err(EndError::ClosedEarly(self.peer)),
                Err(e) => return Err(io("sending")(e)),
            }
            if bench.control.stopped() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks the kernel for its view, when it is time.
    #[inline]
    pub fn sample(&mut self, start: Instant, now: Instant) {
        if now >= self.next_sample {
            self.ask(start, now);
        }
    }

    #[cold]
    fn ask(&mut self, start: Instant, now: Instant) {
        self.next_sample = now + self.every;
        let Some(info) = TcpInfo::of(&self.stream) else { return };
        self.rtt.record(info.rtt);
        self.samples.push((now.since(start), info));
        if self.samples.len() == SAMPLES {
            // Long runs keep every second answer, and ask half as often.
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = self.every * 2;
        }
    }

    /// Says that no more will come.
    pub fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub fn add_to(&self, report: &mut SenderReport) {
        report.rtt = self.rtt.counts();
        report.counters.extend([
            buffer_counter(&self.stream, true),
            ("sender_system_calls".into(), self.calls as f64),
            ("sender_buffer_full".into(), self.full as f64),
        ]);
        if let Some(last) = TcpInfo::of(&self.stream) {
            report.counters.insert("retransmissions".into(), last.retransmissions as f64);
            report.counters.insert("tcp_mss_bytes".into(), last.mss_bytes as f64);
            report.counters.insert("packets_sent".into(), last.segments_sent as f64);
            report.counters.insert("packets_received".into(), last.segments_received as f64);
        }
        report.notes.insert("congestion".into(), congestion(&self.stream));
        let nodelay = socket2::SockRef::from(&self.stream).tcp_nodelay().unwrap_or(false);
        report.notes.insert("nodelay".into(), if nodelay { "on" } else { "off" }.into());
        report.samples = self.samples.iter().map(|(t, info)| (t.as_s(), figures(info))).collect();
    }
}

fn figures(info: &TcpInfo) -> Figures {
    [
        ("cwnd_bytes", info.cwnd_bytes as f64),
        ("rtt_us", info.rtt.as_us()),
        ("retransmissions", info.retransmissions as f64),
    ]
    .map(|(k, v)| (k.to_string(), v))
    .into()
}

fn congestion(stream: &TcpStream) -> String {
    let name = socket2::SockRef::from(stream).tcp_congestion().unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\0').to_string()
}

fn is_closed(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(e.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

/// Sends messages: paced, or as fast as they are taken.
pub(crate) fn send(mut bench: Bench, peer: SocketAddr, limit: Limit) -> Result<Report, Broken> {
    let stream = connect(&bench, peer)?;
    let address = stream.local_addr().map_err(io("asking for the address"))?;
    let mut writer = Writer::new(stream, peer);
    let start = bench.ready(address)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let mut ledger = Ledger::new(start);
    let result = pump(&mut bench, &mut writer, &mut source, &mut ledger);
    writer.close();
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    writer.add_to(&mut report);
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

fn pump(
    bench: &mut Bench,
    writer: &mut Writer,
    source: &mut Source,
    ledger: &mut Ledger,
) -> Result<(), EndError> {
    let control = bench.control.clone();
    let mut pacer = Pacer::new(bench.clock);
    let mut sequence = 0;
    let mut image = Image::default();
    let start = ledger.start();
    while !control.stopped() {
        let now = bench.clock.now();
        let most = image.capacity();
        if let Some((size, count)) = source.batch(now, most) {
            image.prepare(bench, size, count);
            image.stamp(bench.spec.token, sequence, now);
            if !writer.write(bench, image.bytes())? || !image.write_rest(bench, writer)? {
                break;
            }
            sequence += count;
            ledger.depart_batch(size, count, now);
        } else {
            match source.next(now) {
                Step::Wait(until) => {
                    pacer.wait(until, control.stop_flag());
                    continue;
                }
                Step::Send(message) => {
                    image.prepare(bench, message.size, 1);
                    image.stamp(bench.spec.token, sequence, now);
                    if !writer.write(bench, image.bytes())? || !image.write_rest(bench, writer)? {
                        break;
                    }
                    sequence += 1;
                    depart(source, ledger, &message, now);
                }
                Step::Done => break,
            }
        }
        writer.sample(start, now);
        bench.copy_ledger(ledger, now);
    }
    Ok(())
}

#[inline]
fn depart(source: &mut Source, ledger: &mut Ledger, message: &Message, now: Instant) {
    ledger.depart(message, now);
    if message.first {
        source.departed(now);
    }
}

/// Messages ready to be written: equal ones end to end, or the front of a long one.
#[derive(Debug, Default)]
struct Image {
    bytes: Vec<u8>,
    size: u32,
    count: u64,
}

impl Image {
    /// How many messages of the last size go in one call; 1 before the first.
    fn capacity(&self) -> u64 {
        (CALL as u64 / u64::from(self.size.max(1))).max(1).min(if self.size == 0 { 1 } else { u64::MAX })
    }

    /// Lays out `count` messages of `size` bytes. Every payload begins alike, so one message needs only to be long
    /// enough; several are laid out anew when their size or number changes.
    fn prepare(&mut self, bench: &Bench, size: u32, count: u64) {
        let length = (size as usize).min(CALL);
        if count == 1 || self.size != size || self.count < count {
            if self.count > 1 {
                // Behind the first message stand the headers of others.
                self.bytes.truncate((self.size as usize).min(CALL));
            }
            if count > 1 {
                self.bytes.truncate(length);
            }
            while self.bytes.len() < length {
                let have = self.bytes.len().max(HEADER);
                self.bytes.resize(have, 0);
                self.bytes.extend_from_slice(bench.payload.piece(have - HEADER, length - have));
            }
            for _ in 1..count {
                self.bytes.extend_from_within(..length);
            }
        }
        (self.size, self.count) = (size, count);
    }

    /// Writes the headers.
    fn stamp(&mut self, token: u32, sequence: u64, now: Instant) {
        let length = (self.size as usize).min(CALL);
        let messages = self.bytes[..length * self.count as usize].chunks_exact_mut(length);
        for (i, message) in messages.enumerate() {
            let sequence = sequence + i as u64;
            let header = Header { sequence, sent: now, length: self.size, response: 0, kind: Kind::Pattern };
            header.encode(token, message.first_chunk_mut().expect("a message has a header"));
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.size as usize).min(CALL) * self.count as usize]
    }

    /// Writes what of a long message is not in the image.
    fn write_rest(&self, bench: &Bench, writer: &mut Writer) -> Result<bool, EndError> {
        let body = self.size as usize - HEADER;
        let mut offset = CALL - HEADER;
        while offset < body {
            let piece = bench.payload.piece(offset, body - offset);
            offset += piece.len();
            if !writer.write(bench, piece)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Receives messages until the sender has closed.
pub(crate) fn receive(mut bench: Bench, file: Option<&Path>) -> Result<Report, Broken> {
    let (listener, address) = listen(&bench)?;
    let mut sink = file.map(Sink::create).transpose()?;
    let (mut stream, start) = accept(&mut bench, &listener, address)?;
    drop(listener);
    let mut meter = Meter::new(start);
    let mut calls = 0;
    let result = drain(&mut bench, &mut stream, &mut meter, &mut sink, &mut calls);
    let mut report = ReceiverReport::of(&meter);
    report.cpu = bench.cpu();
    report.counters.insert("receiver_system_calls".into(), calls as f64);
    report.counters.extend([buffer_counter(&stream, false)]);
    let compared = match compare_every(&bench) {
        1 => "every message".to_string(),
        n => format!("every {n}th message; headers of all"),
    };
    report.notes.insert("payload_compared".into(), compared);
    let report = Report::Receiver(Box::new(report));
    match result.and_then(|()| sink.map_or(Ok(()), Sink::finish)) {
        Ok(()) => Ok(report),
        Err(error) => Err(Broken { error, report: Some(report) }),
    }
}

/// Which messages have their payload compared: all that are paced; at full speed over TCP, which has a checksum of its
/// own, enough to notice and few enough not to slow the receiver.
fn compare_every(bench: &Bench) -> u64 {
    if matches!(bench.spec.pattern, Pattern::Full { .. }) { 16 } else { 1 }
}

fn drain(
    bench: &mut Bench,
    stream: &mut TcpStream,
    meter: &mut Meter,
    sink: &mut Option<Sink>,
    calls: &mut u64,
) -> Result<(), EndError> {
    let peer = stream.peer_addr().map_err(io("asking for the peer"))?;
    let mut deframer = Deframer::new(bench.spec.token, bench.payload.clone(), compare_every(bench));
    let mut buffer = vec![0; READ];
    while !bench.control.stopped() {
        *calls += 1;
        let got = match stream.read(&mut buffer) {
            Ok(0) if deframer.is_between() => return Ok(()),
            Ok(0) => return Err(EndError::ClosedEarly(peer)),
            Ok(n) => n,
            Err(e) if socket::is_timeout(&e) => 0,
            Err(e) if is_closed(&e) => return Err(EndError::ClosedEarly(peer)),
            Err(e) => return Err(io("receiving")(e)),
        };
        let now = bench.clock.now();
        let mut broken = None;
        let fed = deframer.feed(&buffer[..got], |part| match part {
            Part::Message { header, intact: true } => meter.arrive(&header, now),
            Part::Message { intact: false, .. } => meter.corrupted(),
            Part::Piece(bytes) => {
                // Nothing may follow a gap: what is on the disk is the front of the file.
                if broken.is_none() {
                    broken = sink.as_mut().and_then(|s| s.append(bytes).err());
                }
            }
        });
        if let Some(error) = broken {
            return Err(error);
        }
        fed.map_err(|_| EndError::OutOfStep(peer))?;
        bench.copy_meter(meter, now);
    }
    Ok(())
}
