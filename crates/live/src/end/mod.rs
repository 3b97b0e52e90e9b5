//! The ends of a connection: its sending side and its receiving sides. Each runs on its own thread.
//!
//! | module | contents |
//! | --- | --- |
//! | `datagram` | `udp` and `multicast`: paced, and at full speed with offload |
//! | `credit` | `udp (control = credit)` |
//! | `stream` | `tcp` |
//! | `guaranteed` | `guaranteed`: all tests |
//! | `stage_timer` | time of the processing stages of `guaranteed` |
//! | `quic` | `quic`: all tests; with the feature `quic` |
//! | `llc` | `llc`: all tests except `file` |
//! | `bundle` | `bundle`: paced tests |
//! | `stamp` | `stamp`: paced tests |
//! | `request` | requests and responses over UDP or TCP |
//! | `sink` | the destination of a received file |
//! | `file` | a file from disk to disk over UDP or TCP |
//!
//! An end opens its sockets, reports that it is ready, waits for its start, sends or receives until its source is done or a
//! stop is requested, and reports. Twice a second it stores a snapshot of its measurements, which the agent sends to the
//! controller. So the controller has measurements even if the agent is killed.

mod bundle;
mod credit;
mod datagram;
mod file;
mod guaranteed;
mod llc;
#[cfg(feature = "quic")]
mod quic;
mod request;
mod sink;
mod stage_timer;
mod stamp;
mod stream;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use trunkline_experiment::plan::{Checksum, MAX_QUIC_DATAGRAM, Protocol};
use trunkline_io::socket::{BUFFER_PER_WINDOW, Options};
use trunkline_io::usage::CpuTime;
use trunkline_io::{Clock, Pacer, SocketError};
use trunkline_run::message::{HEADER, MAX_MESSAGE, Payload};
use trunkline_run::reports::{Metrics, ReceiverReport, SenderReport};
use trunkline_run::timeouts::LINGER;
use trunkline_run::{RateLimit, ReceiverMeter, Requester, Sender};
use trunkline_traffic::application::ReceivedItems;
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Pattern, Source, SourceError};
use trunkline_units::{Instant, Size, Span};

use crate::bundles::BundleWorker;
use crate::consent::{CONTROLLER_SILENCE, Consent, ConsentService, Lapse, ServiceError};
use crate::explicit_rate::RateSource;
use crate::limits::{self, LimitError, PortError};
use crate::locked;
use crate::station::Station;
use crate::wire::{AgentMessage, AgentWriter, EndConsent, EndSpec, Report, Role};

/// Interval between snapshots of the measurements, unless an observer of the run requests another.
const SNAPSHOT_INTERVAL: Span = Span::from_ms(500);
/// Interval at which blocking calls check for a stop.
pub(crate) const STOP_CHECK_INTERVAL: Span = Span::from_ms(50);
/// How long an end waits for its peer.
pub(crate) const PEER_TIMEOUT: Span = Span::from_s(5);

/// Start of the names of the threads of ends.
pub(crate) const THREAD_NAME: &str = "end ";
/// Bytes of a response that are sent at once if the rate is limited.
const RESPONSE_PIECE: usize = 16 << 10;
/// The same if it is not.
const UNLIMITED_PIECE: usize = 128 << 10;

/// How long an end waits for consent before it sends.
const CONSENT_TIMEOUT: Span = Span::from_s(3);
/// How long a requester agrees to responses after its end.
const RESPONSES_AFTER_END: Span = Span::from_s(1);

/// Controls an end from the agent's thread.
pub struct EndControl {
    id: u32,
    clock: Clock,
    start: Mutex<Option<Instant>>,
    started: Condvar,
    stop: AtomicBool,
    over: AtomicBool,
    /// Why the load of this end had to end, after it had consent.
    lapse: OnceLock<Lapse>,
    /// The estimate of its memory, see [`limits::memory`].
    memory: u64,
    /// Bytes of responses.
    responded: AtomicU64,
    /// Whether responses have exceeded a limit of the host's owner.
    exceeds_limit: AtomicBool,
    /// One more than the number of messages sent; 0 while it is unknown.
    expected: AtomicU64,
    /// When that number became known, in picoseconds.
    finished_at_ps: AtomicU64,
    /// What the end has measured so far.
    snapshot: Mutex<Option<Report>>,
    /// What a stop calls, in addition to setting the flag.
    on_stop: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl EndControl {
    fn new(id: u32, clock: Clock, memory: u64) -> EndControl {
        EndControl {
            id,
            clock,
            memory,
            start: Mutex::default(),
            started: Condvar::default(),
            stop: AtomicBool::default(),
            over: AtomicBool::default(),
            lapse: OnceLock::new(),
            responded: AtomicU64::default(),
            exceeds_limit: AtomicBool::default(),
            expected: AtomicU64::default(),
            finished_at_ps: AtomicU64::default(),
            snapshot: Mutex::default(),
            on_stop: Mutex::default(),
        }
    }

    /// Sets the start of the end.
    pub fn start(&self, at: Instant) {
        *locked(&self.start) = Some(at);
        self.started.notify_all();
    }

    /// Sets the number of messages sent, known now.
    pub fn finish(&self, messages: u64) {
        self.finished_at_ps.store(self.clock.now().as_ps(), Ordering::Relaxed);
        self.expected.store(messages.saturating_add(1), Ordering::Release);
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.started.notify_all();
        if let Some(call) = &*locked(&self.on_stop) {
            call();
        }
    }

    /// Sets what a stop calls, such as the interruption of a waiting call. The flag is set before.
    pub(crate) fn on_stop(&self, call: impl Fn() + Send + 'static) {
        *locked(&self.on_stop) = Some(Box::new(call));
    }

    /// Returns about how many bytes of memory the end needs.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns whether the end has reported.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sends the latest snapshot if there is a new one.
    pub fn send_snapshot(&self, writer: &AgentWriter) {
        let Some(report) = locked(&self.snapshot).take() else { return };
        if !self.is_over() {
            writer.send(&AgentMessage::Progress(self.id, report));
        }
    }

    /// Returns whether the load of this end had to end, after it had consent.
    pub(crate) fn has_lost_consent(&self) -> bool {
        self.lapse.get().is_some()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// Returns the number of messages sent, once it is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.expected.load(Ordering::Acquire).checked_sub(1)
    }

    fn await_start(&self) -> Option<Instant> {
        let mut start = locked(&self.start);
        loop {
            if self.is_stopped() {
                return None;
            }
            if let Some(at) = *start {
                return Some(at);
            }
            start = self.started.wait_timeout(start, STOP_CHECK_INTERVAL.into()).ok()?.0;
        }
    }
}

/// Error of an end. The text is one line that a user can act on.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error("{doing}: {cause}")]
    Io { doing: &'static str, cause: std::io::Error },
    #[error("{doing} {}: {cause}", path.display())]
    File { doing: &'static str, path: std::path::PathBuf, cause: std::io::Error },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the file is longer than the {0} bytes that are permitted")]
    FileTooLong(u64),
    #[error("no peer connected to {0} within {PEER_TIMEOUT}")]
    NoPeer(SocketAddr),
    #[error("lost message boundaries in the stream from {0}: corrupt header")]
    LostSync(SocketAddr),
    #[error("{0} closed the connection early")]
    ClosedEarly(SocketAddr),
    #[error("{0} has accepted no data for {1}")]
    PeerStalled(SocketAddr, Span),
    #[error("{0}: {1}")]
    ConnectionEnded(SocketAddr, trunkline_arq::CloseReason),
    #[cfg(feature = "quic")]
    #[error("{0}: {1}")]
    QuicEnded(SocketAddr, trunkline_quic::CloseReason),
    #[cfg(feature = "quic")]
    #[error("the receiver has reported no key")]
    NoKey,
    #[cfg(not(feature = "quic"))]
    #[error("{}", trunkline_run::backend::NO_QUIC)]
    NoQuic,
    #[error("LLC station: {0}")]
    Station(String),
    #[error("this host has no bundle interface")]
    NoBundleNode,
    #[error(transparent)]
    Consent(#[from] ServiceError),
    #[error("the agent exchanges no consent, which the load of this connection needs")]
    NoConsentService,
    #[error("consent would come from {0}, but the load goes to {1}")]
    OtherHost(SocketAddr, SocketAddr),
    #[error("{0} has not proved within {CONSENT_TIMEOUT} that it agrees to receive load")]
    NoConsent(SocketAddr),
    #[error("stopped sending: {0} no longer proves that it agrees to receive load")]
    ConsentLapsed(SocketAddr),
    #[error("stopped sending: the controller has been silent for {CONTROLLER_SILENCE}")]
    ControllerSilent,
    #[error("{0} has sent a message that is longer than this agent receives")]
    LongMessage(SocketAddr),
    #[error("a request asks for a response of {0} B, longer than this agent sends")]
    LongResponse(u32),
    #[error("internal error: {0}")]
    Internal(String),
    #[error("stopped before the start")]
    Stopped,
}

pub(crate) fn io_error(doing: &'static str) -> impl Fn(std::io::Error) -> EndError {
    move |cause| EndError::Io { doing, cause }
}

pub(crate) fn file_error(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> EndError {
    let path = path.to_owned();
    move |cause| EndError::File { doing, path: path.clone(), cause }
}

/// State that every end needs.
pub(crate) struct EndContext {
    pub spec: EndSpec,
    pub clock: Clock,
    pub control: Arc<EndControl>,
    pub writer: AgentWriter,
    pub payload: Payload,
    pub services: Services,
    consent: Option<Consent>,
    /// The source of explicit rates that the sender obeys.
    rate_source: Option<RateSource>,
    cpu: CpuTime,
    start: Instant,
    next_snapshot: Instant,
    /// The latest metrics of the transport, with the time in seconds since the start.
    sample: Option<(f64, Metrics)>,
}

/// What the ends of a host share.
pub(crate) struct Services {
    /// The LLC station of the host, or why there is none.
    pub station: Result<Station, String>,
    /// The bundle worker of the host, if there is one.
    pub bundle_worker: Option<BundleWorker>,
    /// Consent, if one of the hosts is not this machine.
    pub consent: Option<ConsentService>,
    /// Ports of receivers; none: the system chooses.
    pub ports: Option<RangeInclusive<u16>>,
    /// Limit of the rate of all ends.
    pub rate_limit: Option<RateLimit>,
}

impl EndContext {
    /// Requests the consent that the end needs. A sender waits for it; a receiver responds to requests later.
    fn request_consent(&mut self) -> Result<(), EndError> {
        let EndConsent { needs, gives } = &self.spec.consent;
        if needs.is_none() && gives.is_none() {
            return Ok(());
        }
        let service = self.services.consent.as_ref().ok_or(EndError::NoConsentService)?;
        let consent = self.consent.insert(service.consent());
        let Some(needs) = needs else { return Ok(()) };
        let port = match self.spec.role {
            // Agents report both addresses: load goes only to the host that consents.
            Role::Sender { peer, .. }
                if peer.ip().to_canonical() != needs.destination.ip().to_canonical() =>
            {
                return Err(EndError::OtherHost(needs.destination, peer));
            }
            Role::Sender { peer, .. } => peer.port(),
            Role::Receiver { .. } => 0,
        };
        let key = needs.key.for_port(port);
        let control = self.control.clone();
        let on_lapse = move |lapse| {
            let _ = control.lapse.set(lapse);
            control.stop();
        };
        consent.request(needs.destination, (needs.run, &key), on_lapse)?;
        match self.spec.role {
            Role::Sender { .. } => self.await_consent(),
            Role::Receiver { .. } => Ok(()),
        }
    }

    /// Waits until the destination has agreed to receive load, if that is needed.
    pub fn await_consent(&self) -> Result<(), EndError> {
        let (Some(consent), Some(needs)) = (&self.consent, &self.spec.consent.needs) else { return Ok(()) };
        match consent.wait(CONSENT_TIMEOUT, || self.control.is_stopped()) {
            true => Ok(()),
            false if self.control.is_stopped() => Err(EndError::Stopped),
            false => Err(EndError::NoConsent(needs.destination)),
        }
    }

    /// Returns whether the end accepts messages from this host.
    pub fn accepts(&self, host: IpAddr) -> bool {
        let gives = self.spec.consent.gives.as_ref();
        gives.is_none_or(|gives| gives.source.to_canonical() == host.to_canonical())
    }

    /// Reports that the sockets are open, then waits for the start and returns it.
    pub fn ready(&mut self, address: SocketAddr) -> Result<Instant, EndError> {
        self.report_ready(address, None)?;
        let start = self.control.await_start().ok_or(EndError::Stopped)?;
        self.begin(start)
    }

    /// Reports that the sockets are open, with the hash of the receiver's key if the sender must know it.
    pub fn report_ready(&mut self, address: SocketAddr, key: Option<[u8; 32]>) -> Result<(), EndError> {
        if let (Some(consent), Some(gives)) = (&mut self.consent, &self.spec.consent.gives) {
            let (port, after) = match self.spec.role {
                // The other end may learn later that the test is over.
                Role::Sender { .. } => (0, RESPONSES_AFTER_END),
                Role::Receiver { .. } => (address.port(), Span::ZERO),
            };
            consent.grant(gives.source, (gives.run, &gives.key.for_port(port)), after)?;
        }
        self.writer.send(&AgentMessage::Ready(self.spec.id, address, key));
        Ok(())
    }

    /// Returns the start if it is known.
    #[cfg(feature = "quic")]
    pub fn poll_start(&mut self) -> Result<Option<Instant>, EndError> {
        if self.control.is_stopped() {
            return Err(EndError::Stopped);
        }
        let start = *locked(&self.control.start);
        start.map(|start| self.begin(start)).transpose()
    }

    fn begin(&mut self, start: Instant) -> Result<Instant, EndError> {
        if let Some(controller) = self.spec.rate_controller {
            let is_guaranteed = matches!(self.spec.protocol, Protocol::Guaranteed { .. });
            let source = RateSource::start(controller, self.spec.token, is_guaranteed, (self.clock, start))
                .map_err(io_error("opening the source of explicit rates"))?;
            self.services.rate_limit = Some(source.limit());
            self.rate_source = Some(source);
        }
        self.cpu = CpuTime::of_this_thread();
        self.start = start;
        self.next_snapshot = start + self.snapshot_interval();
        Ok(start)
    }

    /// Opens the socket of a receiver at the port of the plan, at one that the host's owner permits, or at any port.
    pub fn open_at_port<T>(&self, open: impl FnMut(u16) -> Result<T, SocketError>) -> Result<T, PortError> {
        limits::open_at_port(self.spec.port, &self.services.ports, open)
    }

    /// Returns whether the end accepts messages from this source: those of a session have one address and port, that of its
    /// first message, which is set in `session`.
    pub fn accepts_source(&self, source: SocketAddr, session: &mut Option<SocketAddr>) -> bool {
        self.accepts(source.ip()) && *session.get_or_insert(source) == source
    }

    /// Counts a response of `length` bytes that is sent next. Returns false if the limits do not permit it.
    pub fn begin_response(&self, length: u32) -> bool {
        let length = u64::from(length);
        let responded = self.control.responded.fetch_add(length, Ordering::Relaxed) + length;
        if self.spec.cut.bytes.is_some_and(|max| responded > max) {
            self.exceed_limit();
        }
        self.may_respond()
    }

    /// Waits until the limits permit `length` more bytes of a response. Returns false if they never do, or a stop was requested.
    pub fn limit_response(&self, length: usize) -> bool {
        while let Some(until) = self.response_delay().filter(|_| !self.control.is_stopped()) {
            Pacer::new(self.clock).wait(until, self.control.stop_flag());
        }
        self.record_response(length)
    }

    /// Returns until when the rate limit forbids to send more of a response.
    pub fn response_delay(&self) -> Option<Instant> {
        self.services.rate_limit.as_ref()?.wait(self.clock.now())
    }

    /// Counts `length` bytes of a response in the rate limit. Returns false if a stop was requested or is due.
    pub fn record_response(&self, length: usize) -> bool {
        if let Some(limit) = &self.services.rate_limit {
            limit.record(length as u64, self.clock.now());
        }
        self.may_respond()
    }

    fn may_respond(&self) -> bool {
        let elapsed = self.clock.now().since(self.start);
        if self.spec.cut.time.is_some_and(|max| elapsed > max) {
            self.exceed_limit();
        }
        !self.control.is_stopped()
    }

    fn exceed_limit(&self) {
        self.control.exceeds_limit.store(true, Ordering::Relaxed);
        self.control.stop();
    }

    /// Returns how many bytes of a response are sent at once.
    pub fn response_piece(&self) -> usize {
        if self.services.rate_limit.is_some() { RESPONSE_PIECE } else { UNLIMITED_PIECE }
    }

    fn snapshot_interval(&self) -> Span {
        self.spec.report_interval.unwrap_or(SNAPSHOT_INTERVAL)
    }

    /// Returns whether the next snapshot is due.
    #[inline]
    pub fn is_snapshot_due(&self, now: Instant) -> bool {
        now >= self.next_snapshot
    }

    /// Sets the metrics of the transport at `now` that the next snapshot reports.
    pub fn set_sample(&mut self, now: Instant, metrics: Metrics) {
        self.sample = Some((now.since(self.start).as_s(), metrics));
    }

    /// Returns the limit of the receive window of a TCP receiver, if the plan gives the window and no buffer.
    pub fn receive_window(&self) -> Option<u32> {
        let Protocol::Tcp { window, .. } = &self.spec.protocol else { return None };
        let window = window.filter(|_| self.spec.buffer.is_none())?;
        Some(u32::try_from(window.as_bytes()).unwrap_or(u32::MAX))
    }

    /// Returns the receive buffer that holds such a window.
    fn receive_buffer(&self) -> Option<Size> {
        self.receive_window().map(|window| Size::from_bytes(u64::from(window) * BUFFER_PER_WINDOW))
    }

    /// Returns the options of the end's socket.
    pub fn options(&self) -> Options {
        let (window, congestion, nodelay) = match &self.spec.protocol {
            Protocol::Tcp { window, congestion, nodelay, .. } => (*window, congestion.clone(), *nodelay),
            _ => (None, None, false),
        };
        // The buffer of the plan is for the direction of the messages.
        let (message_buffer, other_buffer) = (self.spec.buffer.or(window), window);
        let (send_buffer, receive_buffer) = match self.spec.role {
            Role::Sender { .. } => (message_buffer, other_buffer),
            Role::Receiver { .. } => (other_buffer, self.receive_buffer().or(message_buffer)),
        };
        Options { send_buffer, receive_buffer, congestion, nodelay, dscp: self.spec.dscp }
    }

    /// Returns the sender of the pattern's messages, which starts at `start`.
    pub fn sender(
        &self,
        start: Instant,
        limit: Limit,
        requester: Option<Requester>,
    ) -> Result<Sender, EndError> {
        let smallest = match self.spec.protocol {
            Protocol::Stamp => trunkline_stamp::packet::UNAUTHENTICATED,
            _ => HEADER,
        };
        let bounds = Bounds {
            smallest: smallest as u32,
            largest: self.max_message(),
            largest_response: self.max_response(),
        };
        let EndSpec { pattern, seed, repetition_name, .. } = &self.spec;
        let source = Source::new(pattern, limit, bounds, start, *seed, repetition_name)?;
        let mut sender = Sender::new(start, requester);
        sender.start(source, start);
        sender.limit_rate(self.services.rate_limit.clone());
        Ok(sender)
    }

    /// Returns whether messages request responses.
    pub fn is_request_test(&self) -> bool {
        self.spec.pattern.has_responses()
    }

    /// Returns the requester of a test with responses; a response is lost after `timeout`.
    pub fn requester(&self, timeout: Option<Span>) -> Option<Requester> {
        let Role::Sender { receivers, .. } = self.spec.role else { return None };
        Requester::of_pattern(&self.spec.pattern, timeout, receivers)
    }

    /// Returns the meter of a receiver, which compares application models with their laws.
    pub fn receiver_meter(&self, start: Instant) -> ReceiverMeter {
        let bounds = Bounds::new(HEADER as u32, self.max_message());
        let EndSpec { pattern, seed, repetition_name, .. } = &self.spec;
        let mut meter = ReceiverMeter::new(start);
        meter.compare(ReceivedItems::new(pattern, bounds, *seed, repetition_name));
        meter
    }

    /// Returns the interval of payload comparison: every message, or one in 16 at full speed if the transport's checksum
    /// protects the payload. That detects errors without slowing the receiver down.
    pub fn payload_interval(&self) -> u64 {
        let is_protected = match self.spec.protocol {
            Protocol::Guaranteed { checksum, .. } => checksum != Checksum::None,
            _ => true,
        };
        if is_protected && matches!(self.spec.pattern, Pattern::Full { .. }) { 16 } else { 1 }
    }

    /// Returns the note of a report that says which payloads were compared.
    pub fn payload_note(&self) -> (String, String) {
        let description = match self.payload_interval() {
            1 => "every message".to_owned(),
            n => format!("every {n}th message; headers of all"),
        };
        ("payload_compared".to_owned(), description)
    }

    /// Returns the maximum message length of the protocol.
    pub fn max_message(&self) -> u32 {
        match self.spec.protocol {
            Protocol::Quic { datagrams: true, .. } => MAX_QUIC_DATAGRAM,
            // A limited rate is one between messages.
            Protocol::Tcp { .. } | Protocol::Guaranteed { .. } | Protocol::Quic { .. }
                if self.services.rate_limit.is_some() =>
            {
                limits::MAX_MESSAGE
            }
            Protocol::Tcp { .. } | Protocol::Guaranteed { .. } | Protocol::Quic { .. } => MAX_MESSAGE,
            Protocol::Bundle { .. } => {
                let max_message = self
                    .services
                    .bundle_worker
                    .as_ref()
                    .map(|bundle_worker| bundle_worker.node().max_message());
                max_message.unwrap_or(trunkline_run::bundle::MAX_CLASSIC_MESSAGE)
            }
            Protocol::Llc { .. } => {
                trunkline_run::llc::max_message(&self.spec.protocol, crate::station::MAX_PDU)
            }
            _ => trunkline_io::batch::MAX_DATAGRAM as u32,
        }
    }

    /// Returns the maximum length of a response over the protocol. A stream carries a long one in pieces, so its rate can be
    /// limited.
    pub fn max_response(&self) -> u32 {
        match self.spec.protocol {
            Protocol::Tcp { .. } | Protocol::Quic { datagrams: false, .. } => MAX_MESSAGE,
            _ => self.max_message(),
        }
    }

    /// Returns whether the next snapshot is late by a whole interval.
    #[inline]
    pub fn is_overdue(&self, now: Instant) -> bool {
        now >= self.next_snapshot + self.snapshot_interval()
    }

    /// Stores a snapshot of the sender's measurements if one is due.
    #[inline]
    pub fn snapshot_sender(&mut self, sender: &Sender, now: Instant) {
        if self.is_snapshot_due(now) {
            let sample = self.sample.take();
            let report =
                SenderReport { samples: Vec::from_iter(sample), ..SenderReport::partial(sender.meter()) };
            self.store_snapshot(report.into(), now);
        }
    }

    /// Stores a snapshot of the receiver's measurements if one is due.
    #[inline]
    pub fn snapshot_receiver(&mut self, meter: &ReceiverMeter, now: Instant) {
        if self.is_snapshot_due(now) {
            self.store_snapshot(ReceiverReport::from_meter(meter).into(), now);
        }
    }

    #[cold]
    fn store_snapshot(&mut self, snapshot: Report, now: Instant) {
        // At multiples of the interval after the start, so that observers see the same instants of both ends.
        let interval = self.snapshot_interval();
        self.next_snapshot = self.start + interval * (now.since(self.start).as_ps() / interval.as_ps() + 1);
        // Never blocks: if the agent is reading, the next snapshot replaces this one.
        if let Ok(mut slot) = self.control.snapshot.try_lock() {
            *slot = Some(snapshot);
        }
    }

    /// Returns the report of a sender, with the processor time.
    pub fn sender_report(&self, sender: &Sender) -> SenderReport {
        let mut report = sender.report();
        report.cpu = self.cpu();
        if let Some(source) = &self.rate_source {
            report.samples.extend(source.samples(self.clock.now()));
        } else if let Some(limit) = self.services.rate_limit.as_ref().filter(|limit| limit.has_delayed()) {
            let note = format!("the owner of the sender's agent permits {} b/s", limit.bps());
            report.notes.insert("rate_limit".into(), note);
        }
        report
    }

    /// Returns the report of a receiver, with the processor time.
    pub fn receiver_report(&self, meter: &ReceiverMeter) -> ReceiverReport {
        let mut report = ReceiverReport::complete(meter);
        report.cpu = self.cpu();
        report
    }

    /// Returns the processor time since the start, user and system.
    pub fn cpu(&self) -> (Span, Span) {
        let used = CpuTime::of_this_thread().since(self.cpu);
        (used.user, used.system)
    }

    /// Returns whether a receiver is done: everything sent has arrived, or nothing has arrived for [`LINGER`].
    pub fn is_complete(&self, meter: &ReceiverMeter, now: Instant) -> bool {
        let Some(expected) = self.control.expected() else { return false };
        let finished_at = Instant::from_ps(self.control.finished_at_ps.load(Ordering::Relaxed));
        let idle_time = meter.idle_time(now).min(now.since(finished_at));
        meter.arrivals().is_complete(expected) || idle_time >= LINGER
    }
}

/// An error and what had been measured before it.
pub(crate) struct EndFailure {
    pub error: EndError,
    pub report: Option<Report>,
}

impl EndFailure {
    /// Returns the report, or the error with the report of what had been measured before.
    fn after(result: Result<(), EndError>, report: impl Into<Report>) -> Result<Report, EndFailure> {
        match result {
            Ok(()) => Ok(report.into()),
            Err(error) => Err(EndFailure { error, report: Some(report.into()) }),
        }
    }
}

impl<E: Into<EndError>> From<E> for EndFailure {
    fn from(error: E) -> Self {
        EndFailure { error: error.into(), report: None }
    }
}

/// Starts an end on its own thread.
pub(crate) fn prepare(
    spec: EndSpec,
    clock: Clock,
    writer: AgentWriter,
    services: Services,
) -> Arc<EndControl> {
    let control = Arc::new(EndControl::new(spec.id, clock, limits::memory(&spec)));
    let shared = control.clone();
    let (id, spawn_writer) = (spec.id, writer.clone());
    let run_end = move || {
        let payload = Payload::new(spec.seed, &spec.repetition_name);
        let (id, reporter) = (spec.id, writer.clone());
        let cpu = CpuTime::default();
        let mut context = EndContext {
            spec,
            clock,
            control: shared.clone(),
            writer,
            payload,
            services,
            consent: None,
            rate_source: None,
            cpu,
            start: Instant::ZERO,
            next_snapshot: Instant::ZERO,
            sample: None,
        };
        let cut = context.spec.cut;
        let destination = context.spec.consent.needs.as_ref().map(|needs| needs.destination);
        let result = catch(&shared, || {
            context.request_consent().map_err(EndFailure::from).and_then(|()| run(context))
        });
        // A receiver whose sender has ended has no consent to respond any more.
        let elapsed = locked(&shared.start).map_or(Span::ZERO, |start| clock.now().since(start));
        let lapse = shared.lapse.get().filter(|_| shared.expected().is_none());
        let lapse = destination.zip(lapse).map(|(destination, lapse)| match lapse {
            Lapse::Consent => EndError::ConsentLapsed(destination),
            Lapse::Controller => EndError::ControllerSilent,
        });
        let message = match (result, lapse) {
            (Ok(report), Some(error)) => AgentMessage::Failed(id, error.to_string(), Some(report)),
            (Ok(report), None) => {
                let limit = match &report {
                    Report::Sender(sent) => limits::reached(cut, sent, elapsed),
                    Report::Receiver(_) if shared.exceeds_limit.load(Ordering::Relaxed) => {
                        Some(LimitError::Responses)
                    }
                    Report::Receiver(_) => None,
                };
                match limit {
                    Some(limit) => AgentMessage::Failed(id, limit.to_string(), Some(report)),
                    None => AgentMessage::Done(id, report),
                }
            }
            (Err(failure), lapse) => {
                AgentMessage::Failed(id, lapse.unwrap_or(failure.error).to_string(), failure.report)
            }
        };
        shared.over.store(true, Ordering::Relaxed);
        // What a stop calls may own a connection.
        *locked(&shared.on_stop) = None;
        reporter.send(&message);
    };
    // Detached: an end reports by itself.
    if let Err(e) = std::thread::Builder::new().name(format!("{THREAD_NAME}{id}")).spawn(run_end) {
        control.over.store(true, Ordering::Relaxed);
        spawn_writer.send(&AgentMessage::Failed(id, format!("cannot start a thread: {e}"), None));
    }
    control
}

/// Runs an end. If it panics, it has failed with what it had measured.
fn catch(
    control: &EndControl,
    run: impl FnOnce() -> Result<Report, EndFailure>,
) -> Result<Report, EndFailure> {
    // What a panic leaves behind are the end's own values, which are dropped, and counters.
    std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let report = locked(&control.snapshot).take();
        Err(EndFailure { error: EndError::Internal(text.to_owned()), report })
    })
}

fn run(context: EndContext) -> Result<Report, EndFailure> {
    let EndSpec { protocol, pattern, role, .. } = &context.spec;
    match (protocol, pattern, role.clone()) {
        (Protocol::Guaranteed { .. }, _, Role::Sender { peer, limit, file, .. }) => {
            guaranteed::send(context, peer, limit, file.as_deref())
        }
        (Protocol::Guaranteed { .. }, _, Role::Receiver { file }) => {
            guaranteed::receive(context, file.as_deref())
        }
        #[cfg(feature = "quic")]
        (Protocol::Quic { .. }, _, Role::Sender { peer, limit, file, .. }) => {
            quic::send(context, peer, limit, file.as_deref())
        }
        #[cfg(feature = "quic")]
        (Protocol::Quic { .. }, _, Role::Receiver { file }) => quic::receive(context, file.as_deref()),
        #[cfg(not(feature = "quic"))]
        (Protocol::Quic { .. }, ..) => Err(EndError::NoQuic.into()),
        (Protocol::Llc { .. }, _, Role::Sender { peer, limit, .. }) => llc::send(context, peer, limit),
        (Protocol::Llc { .. }, _, Role::Receiver { .. }) => llc::receive(context),
        (Protocol::Bundle { .. }, _, Role::Sender { limit, .. }) => bundle::send(context, limit),
        (Protocol::Bundle { .. }, _, Role::Receiver { .. }) => bundle::receive(context),
        (Protocol::Stamp, _, Role::Sender { peer, limit, .. }) => stamp::send(context, peer, limit),
        (Protocol::Stamp, _, Role::Receiver { .. }) => stamp::reflect(context),
        (_, pattern, Role::Sender { peer, limit, .. }) if pattern.has_responses() => {
            request::send_requests(context, peer, limit)
        }
        (_, pattern, Role::Receiver { .. }) if pattern.has_responses() => request::send_responses(context),
        (_, Pattern::File { .. }, Role::Sender { peer, limit, file: Some(path), .. }) => {
            file::send(context, peer, limit, &path)
        }
        (Protocol::Tcp { .. }, _, Role::Sender { peer, limit, .. }) => stream::send(context, peer, limit),
        (Protocol::Tcp { .. }, _, Role::Receiver { file }) => stream::receive(context, file.as_deref()),
        (_, Pattern::Full { .. }, Role::Sender { peer, limit, .. }) => {
            datagram::send_full(context, peer, limit)
        }
        (_, Pattern::Full { .. }, Role::Receiver { .. }) => datagram::receive_full(context),
        (_, _, Role::Sender { peer, limit, .. }) => datagram::send_paced(context, peer, limit),
        (_, _, Role::Receiver { file }) => datagram::receive(context, file.as_deref()),
    }
}

/// Returns the address of a socket of any type.
pub(crate) fn local_address(address: std::io::Result<SocketAddr>) -> Result<SocketAddr, EndError> {
    address.map_err(io_error("reading the local address"))
}

/// Returns the counter of the granted size of a socket's send buffer, or of its receive buffer.
pub(crate) fn buffer_counter(socket: &impl std::os::fd::AsFd, is_sender: bool) -> (String, f64) {
    let (send, receive) = trunkline_io::socket::granted_buffers(socket);
    let bytes = |s: Size| s.as_bytes() as f64;
    match is_sender {
        true => ("sender_buffer_bytes".into(), bytes(send)),
        false => ("receiver_buffer_bytes".into(), bytes(receive)),
    }
}

#[cfg(test)]
mod tests;
