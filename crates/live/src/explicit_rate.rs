//! Explicit rates of a link in a lab: its controller on a host, and the sources of senders.
//!
//! The state machines are those of `trunkline_models::atm::abr`, as in the simulator. Requests and answers are measurement
//! messages of the kind [`MessageKind::Progress`] between a socket of the source and one of the controller: the token names the
//! source, and the sequence number is a rate in b/s. A request of zero ends the source.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use trunkline_io::{Clock, socket};
use trunkline_models::atm::abr::signalling::{LIFETIME, REPEAT};
use trunkline_models::atm::abr::{Controller, Request, Source};
use trunkline_run::RateLimit;
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::rate_series::RateSeries;
use trunkline_units::{Instant, Rate, Span};

use crate::locked;

/// How long a thread waits for a message before it looks whether it must stop.
const WAIT: Span = Span::from_ms(20);
/// Most sources of a controller; others are not answered.
const MAX_SOURCES: usize = 64;
/// The rate that a source asks for: more than any link of a lab has. 48 bits.
const DEMAND: Rate = Rate::from_bps(1 << 47);
/// Bytes of the headers of a message in an AAL5 packet: IPv4 and UDP, 28, and LLC/SNAP, 8.
const UDP_HEADERS: u64 = 28 + 8;
/// The same with the headers of a frame of `guaranteed`, at most.
const GUARANTEED_HEADERS: u64 = UDP_HEADERS + 64;

fn message(token: u32, rate: Rate, now: Instant) -> [u8; HEADER] {
    let mut message = [0; HEADER];
    let header = Header { kind: MessageKind::Progress, ..Header::pattern(rate.as_bps(), now, HEADER as u32) };
    header.encode(token, &mut message);
    message
}

/// Returns the token and the rate of a valid message.
fn decode(bytes: &[u8]) -> Option<(u32, Rate)> {
    let (token, _) = Header::peek(bytes)?;
    let header = Header::decode(token, bytes).ok()?;
    (header.kind == MessageKind::Progress).then_some((token, Rate::from_bps(header.sequence)))
}

/// Divides `capacity` among the sources that ask at a socket, until a stop is requested.
fn control(capacity: Rate, socket: &UdpSocket, clock: Clock, stop: &AtomicBool) {
    let mut controller = Controller::new(capacity, LIFETIME);
    // With the time of the last request: a source that repeats none for as long as its rate lives makes room for others.
    let mut sources: BTreeMap<u32, (SocketAddr, Instant)> = BTreeMap::new();
    let mut buffer = [0; 2 * HEADER];
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let Some((source, limit)) = decode(&buffer[..length]) else { continue };
        let now = clock.now();
        sources.retain(|_, (_, at)| now.since(*at) <= LIFETIME);
        if sources.len() >= MAX_SOURCES && !sources.contains_key(&source) {
            continue;
        }
        let request = match limit == Rate::default() {
            true => {
                sources.remove(&source);
                Request::Leave
            }
            false => {
                sources.insert(source, (from, now));
                Request::Active { limit }
            }
        };
        controller.receive(now, source, request);
        while let Some((source, rate)) = controller.poll() {
            if let Some((to, _)) = sources.get(&source) {
                // Best effort: sources repeat their requests.
                let _ = socket.send_to(&message(source, rate, now), to);
            }
        }
    }
}

/// The controller of a line, on a separate thread. It ends when it is dropped.
#[derive(Debug)]
pub struct RateController {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RateController {
    /// Divides `capacity` among the sources that send to a socket.
    ///
    /// # Errors
    /// System errors.
    pub fn start(capacity: Rate, socket: UdpSocket, clock: Clock) -> io::Result<RateController> {
        socket::limit_blocking(&socket, WAIT)?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("rate controller".into())
            .spawn(move || control(capacity, &socket, clock, &stopped))?;
        Ok(RateController { stop, thread: Some(thread) })
    }
}

impl Drop for RateController {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// The source of a sender, on a separate thread. It ends when it is dropped.
pub(crate) struct RateSource {
    limit: RateLimit,
    series: Arc<Mutex<RateSeries>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RateSource {
    /// Starts a source that obeys a controller, at `start`. Until the controller answers, its rate is zero.
    pub fn start(
        controller: SocketAddr,
        token: u32,
        is_guaranteed: bool,
        (clock, start): (Clock, Instant),
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect(controller)?;
        socket::limit_blocking(&socket, WAIT)?;
        let headers = if is_guaranteed { GUARANTEED_HEADERS } else { UDP_HEADERS };
        let limit = RateLimit::in_cells(Rate::default(), headers);
        let (series, stop) = (Arc::new(Mutex::new(RateSeries::new(start))), Arc::<AtomicBool>::default());
        let thread = std::thread::Builder::new().name("explicit rate".into()).spawn({
            let (limit, series, stop) = (limit.clone(), series.clone(), stop.clone());
            move || obey(&socket, (token, clock, start), &limit, &series, &stop)
        })?;
        Ok(RateSource { limit, series, stop, thread: Some(thread) })
    }

    /// Returns the limit of the sender, which follows the answers.
    pub fn limit(&self) -> RateLimit {
        self.limit.clone()
    }

    /// Returns the rate until now as samples of a report.
    pub fn samples(&self, now: Instant) -> Vec<(f64, trunkline_run::reports::Metrics)> {
        locked(&self.series).clone().points(now)
    }
}

impl Drop for RateSource {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Sends the requests of a source and follows the answers, until a stop is requested.
fn obey(
    socket: &UdpSocket,
    (token, clock, start): (u32, Clock, Instant),
    limit: &RateLimit,
    series: &Mutex<RateSeries>,
    stop: &AtomicBool,
) {
    let mut source = Source::new(DEMAND, 1, REPEAT);
    let mut has_started = false;
    let mut buffer = [0; 2 * HEADER];
    loop {
        let now = clock.now();
        if stop.load(Ordering::Relaxed) {
            source.stop();
        } else if !has_started && now >= start {
            has_started = true;
            source.start(now);
        }
        source.wake(now);
        while let Some((_, request)) = source.poll() {
            let rate = match request {
                Request::Active { limit } => limit,
                Request::Leave => Rate::default(),
            };
            // Best effort: requests are repeated, and the controller forgets a silent source.
            let _ = socket.send(&message(token, rate, now));
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Some((_, rate)) = socket.recv(&mut buffer).ok().and_then(|length| decode(&buffer[..length]))
        else {
            continue;
        };
        let now = clock.now();
        source.receive(0, rate);
        if limit.bps() != source.rate().as_bps() {
            limit.set_rate(source.rate(), now);
            locked(series).record(now, source.rate());
        }
    }
}
