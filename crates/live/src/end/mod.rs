//! The ends of a connection: its sending side and its receiving sides. Each runs on its own thread.
//!
//! | module | contents |
//! | --- | --- |
//! | `datagram` | `udp` and `multicast`: paced, and at full speed with offload |
//! | `stream` | `tcp` |
//! | `guaranteed` | `guaranteed`: all tests |
//! | `stage_timer` | time of the processing stages of `guaranteed` |
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
mod datagram;
mod file;
mod guaranteed;
mod llc;
mod request;
mod sink;
mod stage_timer;
mod stamp;
mod stream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use trunkline_experiment::plan::{Checksum, Protocol};
use trunkline_io::socket::Options;
use trunkline_io::usage::CpuTime;
use trunkline_io::{Clock, SocketError};
use trunkline_run::message::{HEADER, MAX_MESSAGE, Payload};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::timeouts::LINGER;
use trunkline_run::{ReceiverMeter, Requester, Sender, SenderMeter};
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Pattern, Source, SourceError};
use trunkline_units::{Instant, Size, Span};

use crate::bundles::BundleWorker;
use crate::locked;
use crate::station::Station;
use crate::wire::{AgentMessage, AgentWriter, EndSpec, Report, Role};

/// Interval between snapshots of the measurements.
const SNAPSHOT_INTERVAL: Span = Span::from_ms(500);
/// Interval at which blocking calls check for a stop.
pub(crate) const STOP_CHECK_INTERVAL: Span = Span::from_ms(50);
/// How long an end waits for its peer.
pub(crate) const PEER_TIMEOUT: Span = Span::from_s(5);

/// Controls an end from the agent's thread.
#[derive(Default)]
pub struct EndControl {
    id: u32,
    start: Mutex<Option<Instant>>,
    started: Condvar,
    stop: AtomicBool,
    over: AtomicBool,
    /// One more than the number of messages sent; 0 while it is unknown.
    expected: AtomicU64,
    /// When that number became known, in picoseconds.
    finished_at_ps: AtomicU64,
    snapshot: Mutex<Option<Snapshot>>,
    /// What a stop calls, in addition to setting the flag.
    on_stop: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// Measurements of an end. The thread that sends them turns them into a report, so that the end's thread does not
/// have to.
enum Snapshot {
    Sender(Box<SenderMeter>),
    Receiver(Box<ReceiverMeter>),
}

impl EndControl {
    /// Sets the start of the end.
    pub fn start(&self, at: Instant) {
        *locked(&self.start) = Some(at);
        self.started.notify_all();
    }

    /// Sets the number of messages sent, known at `now`.
    pub fn finish(&self, messages: u64, now: Instant) {
        self.finished_at_ps.store(now.as_ps(), Ordering::Relaxed);
        self.expected.store(messages + 1, Ordering::Release);
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

    /// Returns whether the end has reported.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sends the latest snapshot if there is a new one.
    pub fn send_snapshot(&self, writer: &AgentWriter) {
        let snapshot = locked(&self.snapshot).take();
        let report = match snapshot {
            Some(Snapshot::Sender(meter)) => SenderReport::partial(&meter).into(),
            Some(Snapshot::Receiver(meter)) => ReceiverReport::from_meter(&meter).into(),
            None => return,
        };
        if !self.is_over() {
            writer.send(&AgentMessage::Progress(self.id, report));
        }
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
    #[error("{doing}: {cause}")]
    Io { doing: &'static str, cause: std::io::Error },
    #[error("{doing} {}: {cause}", path.display())]
    File { doing: &'static str, path: std::path::PathBuf, cause: std::io::Error },
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the file is incomplete: {missing} of {sent} messages did not arrive")]
    FileIncomplete { missing: u64, sent: u64 },
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
    #[error("LLC station: {0}")]
    Station(String),
    #[error("this host has no bundle interface")]
    NoBundleNode,
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
    /// The LLC station of the host, or why there is none.
    pub station: Result<Station, String>,
    /// The bundle worker of the host, if there is one.
    pub bundle_worker: Option<BundleWorker>,
    cpu: CpuTime,
    next_snapshot: Instant,
}

impl EndContext {
    /// Reports that the sockets are open, then waits for the start and returns it.
    pub fn ready(&mut self, address: SocketAddr) -> Result<Instant, EndError> {
        self.writer.send(&AgentMessage::Ready(self.spec.id, address));
        let start = self.control.await_start().ok_or(EndError::Stopped)?;
        self.cpu = CpuTime::of_this_thread();
        self.next_snapshot = start + SNAPSHOT_INTERVAL;
        Ok(start)
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
            Role::Receiver { .. } => (other_buffer, message_buffer),
        };
        Options { send_buffer, receive_buffer, congestion, nodelay }
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
        let bounds = Bounds { smallest: smallest as u32, largest: self.max_message() };
        let EndSpec { pattern, seed, repetition_name, .. } = &self.spec;
        let source = Source::new(pattern, limit, bounds, start, *seed, repetition_name)?;
        let mut sender = Sender::new(start, requester);
        sender.start(source, start);
        Ok(sender)
    }

    /// Returns whether the pattern is requests.
    pub fn is_request_test(&self) -> bool {
        matches!(self.spec.pattern, Pattern::Request { .. })
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
            Protocol::Tcp { .. } | Protocol::Guaranteed { .. } => MAX_MESSAGE,
            Protocol::Bundle { .. } => {
                let max_message =
                    self.bundle_worker.as_ref().map(|bundle_worker| bundle_worker.node().max_message());
                max_message.unwrap_or(trunkline_run::bundle::MAX_CLASSIC_MESSAGE)
            }
            Protocol::Llc { .. } => {
                trunkline_run::llc::max_message(&self.spec.protocol, crate::station::MAX_PDU)
            }
            _ => trunkline_io::batch::MAX_DATAGRAM as u32,
        }
    }

    /// Returns whether the next snapshot is late by a whole interval.
    #[inline]
    pub fn is_overdue(&self, now: Instant) -> bool {
        now >= self.next_snapshot + SNAPSHOT_INTERVAL
    }

    /// Stores a snapshot of the sender's measurements if one is due.
    #[inline]
    pub fn snapshot_sender(&mut self, sender: &Sender, now: Instant) {
        if now >= self.next_snapshot {
            self.store_snapshot(Snapshot::Sender(Box::new(sender.meter().clone())), now);
        }
    }

    /// Stores a snapshot of the receiver's measurements if one is due.
    #[inline]
    pub fn snapshot_receiver(&mut self, meter: &ReceiverMeter, now: Instant) {
        if now >= self.next_snapshot {
            self.store_snapshot(Snapshot::Receiver(Box::new(meter.clone())), now);
        }
    }

    #[cold]
    fn store_snapshot(&mut self, snapshot: Snapshot, now: Instant) {
        self.next_snapshot = now + SNAPSHOT_INTERVAL;
        // Never blocks: if the agent is reading, the next snapshot replaces this one.
        if let Ok(mut slot) = self.control.snapshot.try_lock() {
            *slot = Some(snapshot);
        }
    }

    /// Returns the report of a sender, with the processor time.
    pub fn sender_report(&self, sender: &Sender) -> SenderReport {
        let mut report = sender.report();
        report.cpu = self.cpu();
        report
    }

    /// Returns the report of a receiver, with the processor time.
    pub fn receiver_report(&self, meter: &ReceiverMeter) -> ReceiverReport {
        let mut report = ReceiverReport::from_meter(meter);
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
    (station, bundle_worker): (Result<Station, String>, Option<BundleWorker>),
) -> Arc<EndControl> {
    let control = Arc::new(EndControl { id: spec.id, ..EndControl::default() });
    let shared = control.clone();
    let (id, spawn_writer) = (spec.id, writer.clone());
    let run_end = move || {
        let payload = Payload::new(spec.seed, &spec.repetition_name);
        let (id, reporter) = (spec.id, writer.clone());
        let cpu = CpuTime::default();
        let context = EndContext {
            spec,
            clock,
            control: shared.clone(),
            writer,
            payload,
            station,
            bundle_worker,
            cpu,
            next_snapshot: Instant::ZERO,
        };
        let message = match run(context) {
            Ok(report) => AgentMessage::Done(id, report),
            Err(failure) => AgentMessage::Failed(id, failure.error.to_string(), failure.report),
        };
        shared.over.store(true, Ordering::Relaxed);
        // What a stop calls may own a connection.
        *locked(&shared.on_stop) = None;
        reporter.send(&message);
    };
    // Detached: an end reports by itself.
    if let Err(e) = std::thread::Builder::new().name(format!("end {id}")).spawn(run_end) {
        spawn_writer.send(&AgentMessage::Failed(id, format!("cannot start a thread: {e}"), None));
    }
    control
}

fn run(context: EndContext) -> Result<Report, EndFailure> {
    let EndSpec { protocol, pattern, role, .. } = &context.spec;
    match (protocol, pattern, role.clone()) {
        (Protocol::Guaranteed { .. }, _, Role::Sender { peer, limit, file }) => {
            guaranteed::send(context, peer, limit, file.as_deref())
        }
        (Protocol::Guaranteed { .. }, _, Role::Receiver { file }) => {
            guaranteed::receive(context, file.as_deref())
        }
        (Protocol::Llc { .. }, _, Role::Sender { peer, limit, .. }) => llc::send(context, peer, limit),
        (Protocol::Llc { .. }, _, Role::Receiver { .. }) => llc::receive(context),
        (Protocol::Bundle { .. }, _, Role::Sender { limit, .. }) => bundle::send(context, limit),
        (Protocol::Bundle { .. }, _, Role::Receiver { .. }) => bundle::receive(context),
        (Protocol::Stamp, _, Role::Sender { peer, limit, .. }) => stamp::send(context, peer, limit),
        (Protocol::Stamp, _, Role::Receiver { .. }) => stamp::reflect(context),
        (_, Pattern::Request { .. }, Role::Sender { peer, limit, .. }) => {
            request::send_requests(context, peer, limit)
        }
        (_, Pattern::Request { .. }, Role::Receiver { .. }) => request::send_responses(context),
        (_, Pattern::File { .. }, Role::Sender { peer, limit, file: Some(path) }) => {
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
