//! Ends over datagrams: one message a datagram.
//!
//! At full speed, equal messages leave many at a time by segmentation offload, and the receiver tells the sender how
//! far it has come ([`Kind::Progress`]), so that a full socket buffer slows the sender instead of losing messages.
//! Paced messages leave one by one: offload would fake their gaps.

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use socket2::SockRef;
use trunkline_experiment::plan::Protocol;
use trunkline_io::batch::{BatchReceiver, BatchSender};
use trunkline_io::{Pacer, SocketError, socket};
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind, NotAHeader};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::{Limit, Step};
use trunkline_traffic::{Pattern, Source, Variable};
use trunkline_units::{Instant, Size, Span};

use super::file::Sink;
use super::{Bench, Broken, EndError, LOOK, buffer_counter, io};
use crate::wire::Report;

/// Room for any datagram.
const ROOM: usize = 1 << 16;
/// Socket buffers at full speed, if none were asked for: what an unprivileged process is granted by default is
/// less than a scheduler's time slice of traffic.
const FULL_BUFFER: Size = Size::from_bytes(4 << 20);
/// What a sender may have under way before it has heard from the receiver.
const FIRST_WINDOW: u64 = 128 << 10;
/// After this long without a word the receiver's share of what is under way is taken for lost.
const UNHEARD: Span = Span::from_ms(20);
/// What the kernel charges a receive buffer for a packet beyond its bytes, about.
pub(crate) const PACKET_COST: u64 = 1024;

/// The sending socket, connected to `peer`, or bound to the interface of its group.
pub(crate) fn open_sender(bench: &Bench, peer: SocketAddr, full: bool) -> Result<UdpSocket, EndError> {
    let mut options = bench.options();
    if full {
        options.send_buffer.get_or_insert(FULL_BUFFER);
    }
    let socket = match bench.spec.protocol {
        Protocol::Multicast { ttl, .. } => socket::multicast_sender(bench.spec.address, ttl, &options)?,
        _ => socket::udp(SocketAddr::new(bench.spec.address, 0), &options)?,
    };
    let unreached = |cause| SocketError { step: socket::Step::Connect, address: peer, cause };
    socket.connect(peer).map_err(unreached)?;
    socket::limit_blocking(&socket, LOOK).map_err(io("setting a time limit"))?;
    Ok(socket)
}

/// The receiving socket and the address that reaches it.
pub(crate) fn open_receiver(bench: &Bench, full: bool) -> Result<(UdpSocket, SocketAddr), EndError> {
    let mut options = bench.options();
    if full {
        options.receive_buffer.get_or_insert(FULL_BUFFER);
    }
    let port = bench.spec.port.unwrap_or(0);
    let socket = match bench.spec.protocol {
        Protocol::Multicast { group, .. } => {
            socket::multicast_receiver(SocketAddr::new(group, port), bench.spec.address, &options)?
        }
        _ => socket::udp(SocketAddr::new(bench.spec.address, port), &options)?,
    };
    socket::limit_blocking(&socket, LOOK).map_err(io("setting a time limit"))?;
    let address = socket.local_addr().map_err(io("asking for the address"))?;
    Ok((socket, address))
}

fn opened(socket: &UdpSocket) -> Result<SocketAddr, EndError> {
    socket.local_addr().map_err(io("asking for the address"))
}

/// A datagram as long as any, its payload in place.
fn filled(bench: &Bench, length: usize) -> Vec<u8> {
    let mut buffer = vec![0; length];
    buffer[HEADER..].copy_from_slice(bench.payload.piece(0, length - HEADER));
    buffer
}

/// Sends what could not be sent for now, for any of the reasons that pass. Whether it left.
pub(crate) fn send_patiently(
    bench: &Bench,
    trials: &mut Trials,
    mut send: impl FnMut() -> io::Result<usize>,
) -> Result<bool, EndError> {
    loop {
        trials.calls += 1;
        match send() {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                // An ICMP of an earlier message: nobody listens there just now. This one was not sent; try on.
                trials.refused += 1;
            }
            Err(e) if socket::is_timeout(&e) || e.raw_os_error() == Some(nix::libc::ENOBUFS) => {
                trials.full += 1
            }
            Err(e) => return Err(io("sending")(e)),
        }
        if bench.control.stopped() {
            return Ok(false);
        }
    }
}

/// What sending met with.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    pub calls: u64,
    pub refused: u64,
    pub full: u64,
}

impl Trials {
    pub fn add_to(&self, report: &mut SenderReport) {
        let counts = [
            ("sender_system_calls", self.calls),
            ("sender_refused", self.refused),
            ("sender_buffer_full", self.full),
        ];
        report.counters.extend(counts.map(|(k, v)| (k.to_string(), v as f64)));
    }
}

/// Sends paced messages, one by one.
pub(crate) fn send_paced(mut bench: Bench, peer: SocketAddr, limit: Limit) -> Result<Report, Broken> {
    let socket = open_sender(&bench, peer, false)?;
    let start = bench.ready(opened(&socket)?)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let (mut ledger, mut trials) = (Ledger::new(start), Trials::default());
    let send = |bench: &Bench, datagram: &[u8]| send_patiently(bench, &mut trials, || socket.send(datagram));
    let result = pace(&mut bench, &mut source, &mut ledger, &[], send);
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    report.counters.extend([buffer_counter(&socket, true)]);
    report.notes.insert("pacing".into(), "sleep, then spin; one message a system call, no offload".into());
    match result {
        Ok(()) => trials.add_to(&mut report),
        Err(error) => return Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
    Ok(Report::Sender(Box::new(report)))
}

/// Sends a source's messages, each at its time and with `front` before it, until it is done, stopped, or `send` says that one
/// did not leave.
pub(crate) fn pace(
    bench: &mut Bench,
    source: &mut Source,
    ledger: &mut Ledger,
    front: &[u8],
    mut send: impl FnMut(&Bench, &[u8]) -> Result<bool, EndError>,
) -> Result<(), EndError> {
    let mut buffer = [front, &filled(bench, bench.largest() as usize)].concat();
    let (mut pacer, mut sequence) = (Pacer::new(bench.clock), 0);
    let control = bench.control.clone();
    let mut now = bench.clock.now();
    loop {
        match source.next(now) {
            Step::Wait(until) => {
                // Copying takes some 50 µs: better in a long wait, but once a second in any case.
                if until.since(now) > Span::from_us(500) || bench.is_overdue(now) {
                    bench.copy_ledger(ledger, now);
                }
                now = pacer.wait(until, control.stop_flag());
            }
            Step::Send(message) => {
                now = bench.clock.now();
                let length = message.size;
                let header = Header { sequence, sent: now, length, response: 0, kind: Kind::Pattern };
                let (_, message_at) = buffer.split_at_mut(front.len());
                header.encode(bench.spec.token, message_at.first_chunk_mut().expect("room for a header"));
                if !send(bench, &buffer[..front.len() + length as usize])? {
                    return Ok(());
                }
                sequence += 1;
                ledger.depart(&message, now);
                if message.first {
                    source.departed(now);
                }
            }
            Step::Done => return Ok(()),
        }
        if control.stopped() {
            return Ok(());
        }
    }
}

/// What is under way between a sender at full speed and its receiver.
pub(crate) struct Flight {
    on: bool,
    /// Cost of one message in the receiver's buffer.
    cost: u64,
    sent: u64,
    acknowledged: u64,
    window: u64,
    heard: Instant,
}

impl Flight {
    pub fn new(bench: &Bench) -> Self {
        Flight {
            on: matches!(bench.spec.protocol, Protocol::Udp { flow: true }),
            cost: 1,
            sent: 0,
            acknowledged: 0,
            window: FIRST_WINDOW,
            heard: bench.clock.now(),
        }
    }

    /// Notes that `count` messages left, each of which costs the receiver's buffer `cost` bytes at the most.
    pub fn left(&mut self, count: u64, cost: u64) {
        self.cost = self.cost.max(cost);
        self.sent += count;
    }

    /// Whether more may leave. If not, it has waited a moment for the receiver to say so.
    pub fn room(&mut self, bench: &Bench, socket: &UdpSocket, calls: &mut u64) -> Result<bool, EndError> {
        let now = bench.clock.now();
        if !self.is_half_full() {
            if self.sent == self.acknowledged {
                self.heard = now;
            }
            return Ok(true);
        }
        self.listen(socket, bench.spec.token, now, calls);
        if !self.is_full() {
            return Ok(true);
        }
        if now.since(self.heard) > UNHEARD {
            self.acknowledged = self.sent;
            self.heard = now;
            return Ok(true);
        }
        *calls += 1;
        socket::readable(socket, Span::from_ms(5)).map_err(io("waiting for the receiver"))?;
        Ok(false)
    }

    fn is_full(&self) -> bool {
        self.on && (self.sent - self.acknowledged) * self.cost >= self.window
    }

    fn is_half_full(&self) -> bool {
        self.on && (self.sent - self.acknowledged) * self.cost * 2 >= self.window
    }

    /// Takes in whatever the receiver has said.
    fn listen(&mut self, socket: &UdpSocket, token: u32, now: Instant, calls: &mut u64) {
        let mut buffer = [MaybeUninit::new(0u8); HEADER];
        loop {
            *calls += 1;
            let Ok(length) = SockRef::from(socket).recv_with_flags(&mut buffer, nix::libc::MSG_DONTWAIT)
            else {
                return;
            };
            // SAFETY: every byte was initialised when the buffer was made; the kernel only overwrites.
            let bytes: [u8; HEADER] = buffer.map(|b| unsafe { b.assume_init() });
            match Header::decode(token, &bytes[..length.min(HEADER)]) {
                Ok(h) if h.kind == Kind::Progress && h.sequence <= self.sent => {
                    self.acknowledged = self.acknowledged.max(h.sequence);
                    self.window = u64::from(h.response).max(FIRST_WINDOW);
                    self.heard = now;
                }
                _ => {}
            }
        }
    }
}

/// Sends as fast as it goes.
pub(crate) fn send_full(mut bench: Bench, peer: SocketAddr, limit: Limit) -> Result<Report, Broken> {
    let socket = open_sender(&bench, peer, true)?;
    let start = bench.ready(opened(&socket)?)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let mut ledger = Ledger::new(start);
    let granted = buffer_counter(&socket, true);
    let sender = BatchSender::new(socket, peer).map_err(io("asking for offload"))?;
    let mut pacer = Pacer::new(bench.clock);
    pacer.wait(start, bench.control.clone().stop_flag());
    let result = blast(&mut bench, &sender, &mut source, &mut ledger);
    let mut report = SenderReport::whole(&ledger, &source);
    report.cpu = bench.cpu();
    report.counters.extend([granted]);
    match result {
        Ok((trials, most)) => {
            trials.add_to(&mut report);
            let offload = match most {
                0 | 1 => "none: one message a system call".into(),
                n => format!("segmentation: up to {n} messages a system call"),
            };
            report.notes.insert("sender_offload".into(), offload);
        }
        Err(error) => return Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
    Ok(Report::Sender(Box::new(report)))
}

/// Sends all; what it met with, and how many messages went in the largest batch.
fn blast(
    bench: &mut Bench,
    sender: &BatchSender,
    source: &mut Source,
    ledger: &mut Ledger,
) -> Result<(Trials, u64), EndError> {
    let control = bench.control.clone();
    let token = bench.spec.token;
    let (mut trials, mut most) = (Trials::default(), 0);
    let mut batch = vec![0; 0];
    let mut single = filled(bench, bench.largest() as usize);
    let mut flight = Flight::new(bench);
    while !control.stopped() {
        if !flight.room(bench, sender.socket(), &mut trials.calls)? {
            continue;
        }
        let now = bench.clock.now();
        // As many as one call carries, or the one that `next` says.
        let (size, count) = match source.batch(now, most.max(1)) {
            Some((size, count)) if most > 0 => (size, count),
            Some((size, _)) => {
                // The first message tells the size, and so how many go at once from now on.
                most = sender.capacity(size as usize) as u64;
                batch = filled(bench, size as usize).repeat(most as usize);
                (size, 1)
            }
            None => match source.next(now) {
                Step::Send(m) => (m.size, 1),
                Step::Wait(_) => continue,
                Step::Done => break,
            },
        };
        let length = size as usize;
        let datagrams =
            if batch.len() >= length * count as usize && count > 1 { &mut batch } else { &mut single };
        let datagrams = &mut datagrams[..length * count as usize];
        for (i, datagram) in datagrams.chunks_exact_mut(length).enumerate() {
            let sequence = flight.sent + i as u64;
            let header = Header { sequence, sent: now, length: size, response: 0, kind: Kind::Pattern };
            header.encode(token, datagram.first_chunk_mut().expect("a message has a header"));
        }
        if most > 1 && sender.capacity(length) == 1 {
            most = 1; // the system has withdrawn its offer
        }
        if !send_patiently(bench, &mut trials, || sender.send(datagrams, length).map(|()| 0))? {
            break;
        }
        flight.left(count, u64::from(size) + PACKET_COST / most.max(1));
        ledger.depart_batch(size, count, now);
        bench.copy_ledger(ledger, now);
    }
    Ok((trials, most))
}

/// Takes one datagram into the meter.
#[inline]
fn take(
    bench: &Bench,
    meter: &mut Meter,
    datagram: &[u8],
    now: Instant,
    sink: &mut Option<Sink>,
) -> Result<(), EndError> {
    match Header::decode(bench.spec.token, datagram) {
        Ok(header) if header.length as usize == datagram.len() => {
            let body = &datagram[HEADER..];
            let intact = match header.kind {
                Kind::Pattern => bench.payload.matches(0, body),
                Kind::Checked => Header::holds(datagram.first_chunk().expect("a header was decoded"), body),
                Kind::Answer | Kind::Progress => false,
            };
            if !intact {
                meter.corrupted();
                return Ok(());
            }
            if let Some(sink) = sink {
                sink.write_at(header.sequence * bench.file_piece(), body)?;
            }
            meter.arrive(&header, now);
        }
        Err(NotAHeader::Stranger | NotAHeader::Short) => meter.stranger(),
        // Cut short, or damaged in its header.
        Ok(_) | Err(NotAHeader::Damaged) => meter.corrupted(),
    }
    Ok(())
}

/// Receives message by message.
pub(crate) fn receive(mut bench: Bench, file: Option<&Path>) -> Result<Report, Broken> {
    let (socket, address) = open_receiver(&bench, file.is_some())?;
    let mut sink = file.map(Sink::create).transpose()?;
    let start = bench.ready(address)?;
    let mut meter = Meter::new(start);
    let mut calls = 0u64;
    let mut buffer = vec![0; ROOM];
    let mut error = None;
    let mut teller = Teller::new(&bench, &socket, file.is_some());
    let mut sender = None;
    while error.is_none() && !bench.control.stopped() {
        calls += 1;
        let got = socket.recv_from(&mut buffer).map(|(length, peer)| {
            sender = Some(peer);
            length
        });
        let now = bench.clock.now();
        teller.tell(&bench, &socket, sender, &meter, got.is_err(), &mut calls);
        error = match got {
            Ok(length) => take(&bench, &mut meter, &buffer[..length], now, &mut sink).err(),
            Err(e) if socket::is_timeout(&e) => None,
            Err(e) => Some(io("receiving")(e)),
        };
        bench.copy_meter(&meter, now);
        if bench.is_complete(&meter, now) {
            break;
        }
    }
    if error.is_none()
        && let Some(sink) = sink
    {
        error = sink.finish().err().or(not_whole(&bench, &meter));
    }
    let report = whole(&bench, &meter, calls, &socket, "none: one message a system call".into());
    match error {
        Some(error) => Err(Broken { error, report: Some(report) }),
        None => Ok(report),
    }
}

/// A file that lacks a message is no file.
fn not_whole(bench: &Bench, meter: &Meter) -> Option<EndError> {
    let sent = bench.control.expected()?;
    let missing = sent.saturating_sub(meter.arrivals().messages);
    (missing > 0).then_some(EndError::FileNotWhole { missing, sent })
}

fn whole(bench: &Bench, meter: &Meter, calls: u64, socket: &UdpSocket, offload: String) -> Report {
    let mut report = ReceiverReport::of(meter);
    if let Some(dropped) = socket::dropped(socket) {
        report.counters.insert("receiver_socket_drops".into(), dropped as f64);
    }
    report.cpu = bench.cpu();
    report.counters.insert("receiver_system_calls".into(), calls as f64);
    report.counters.extend([buffer_counter(socket, false)]);
    report.notes.insert("receiver_offload".into(), offload);
    Report::Receiver(Box::new(report))
}

/// Receives as fast as it goes, and tells the sender how far it has come.
pub(crate) fn receive_full(mut bench: Bench) -> Result<Report, Broken> {
    let (socket, address) = open_receiver(&bench, true)?;
    let start = bench.ready(address)?;
    trunkline_io::pace::no_slack();
    let mut teller = Teller::new(&bench, &socket, true);
    let mut receiver = BatchReceiver::new(socket).map_err(io("asking for coalescing"))?;
    let mut meter = Meter::new(start);
    let (mut calls, mut error) = (0u64, None);
    let mut sender = None;
    while error.is_none() && !bench.control.stopped() {
        calls += 1;
        let mut broken = None;
        let got = receiver.receive(LOOK, |batch| {
            let now = bench.clock.now();
            sender = Some(batch.peer);
            for datagram in batch.datagrams() {
                if let Err(e) = take(&bench, &mut meter, datagram, now, &mut None) {
                    broken = Some(e);
                }
            }
        });
        let now = bench.clock.now();
        error = broken.or(got.as_ref().err().map(|e| io("receiving")(io::Error::from(e.kind()))));
        teller.tell(&bench, receiver.socket(), sender, &meter, got.is_ok_and(|n| n == 0), &mut calls);
        bench.copy_meter(&meter, now);
        if bench.is_complete(&meter, now) {
            break;
        }
    }
    let offload = if receiver.coalesces() { "coalescing: many messages a system call" } else { "none" };
    let report = whole(&bench, &meter, calls, receiver.socket(), offload.into());
    match error {
        Some(error) => Err(Broken { error, report: Some(report) }),
        None => Ok(report),
    }
}

/// Tells the sender how far the receiver has come. Best effort: the next word says it again.
struct Teller {
    on: bool,
    window: u32,
    told: u64,
}

impl Teller {
    fn new(bench: &Bench, socket: &UdpSocket, wanted: bool) -> Self {
        let on = wanted && matches!(bench.spec.protocol, Protocol::Udp { flow: true });
        // Half of the buffer is for the kernel's own overhead.
        let window = (buffer_counter(socket, false).1 as u64 / 2).min(u64::from(u32::MAX)) as u32;
        Teller { on, window, told: 0 }
    }

    /// When the queue is `empty` the sender may be waiting; before that, four times a window.
    #[inline]
    fn tell(
        &mut self,
        bench: &Bench,
        socket: &UdpSocket,
        sender: Option<SocketAddr>,
        meter: &Meter,
        empty: bool,
        calls: &mut u64,
    ) {
        let news = meter.arrivals().bytes - self.told;
        let Some(sender) = sender.filter(|_| self.on && news > 0) else { return };
        if !empty && news <= u64::from(self.window) / 4 {
            return;
        }
        self.told += news;
        *calls += 1;
        let mut word = [0; HEADER];
        let header = Header {
            sequence: meter.arrivals().next_sequence,
            sent: bench.clock.now(),
            length: HEADER as u32,
            response: self.window,
            kind: Kind::Progress,
        };
        header.encode(bench.spec.token, &mut word);
        let _ = socket.send_to(&word, sender);
    }
}

impl Bench {
    /// Payload bytes of every message of a file but its last: over datagrams they are of one size.
    fn file_piece(&self) -> u64 {
        match &self.spec.pattern {
            Pattern::File { size_bytes: Variable::Constant(size), .. } => {
                (*size as u64).saturating_sub(HEADER as u64)
            }
            _ => 0,
        }
    }
}
