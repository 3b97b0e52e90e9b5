//! One end of a connection at work, on a thread of its own.
//!
//! | module | what |
//! | --- | --- |
//! | [`datagram`] | `udp` and `multicast`: paced, and at full speed with offload |
//! | [`stream`] | `tcp` |
//! | [`guaranteed`] | `guaranteed`: every test over it |
//! | `gauge` | where the time goes there |
//! | [`messages`] | `llc`: every test over it but files |
//! | [`bundled`] | `bundle`: tests with a pace |
//! | [`request`] | requests and answers over either |
//! | [`mod@file`] | a file, disk to disk, over either |
//!
//! An end opens its sockets, says that it is ready, waits for its start, works until its source is done or it is told
//! to stop, and reports. Twice a second it leaves a copy of what it has measured where the agent finds it, so that
//! what was measured survives its death.

pub mod bundled;
pub mod datagram;
pub mod file;
mod gauge;
pub mod guaranteed;
pub mod messages;
pub mod request;
pub mod stream;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use trunkline_experiment::plan::Protocol;
use trunkline_io::socket::Options;
use trunkline_io::usage::CpuTime;
use trunkline_io::{Clock, SocketError};
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, LARGEST, Payload};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Pattern, Source, SourceError};
use trunkline_units::{Instant, Size, Span};

use crate::agent::Voice;
use crate::bundles::Desk;
use crate::station::Station;
use crate::wire::{End, Report, Role, Word};

/// How often a copy of what was measured is left for the agent.
const COPY_EVERY: Span = Span::from_ms(500);
/// Blocking calls return this often to look for a stop.
pub(crate) const LOOK: Span = Span::from_ms(50);
/// How long an end waits for its peer.
pub(crate) const PATIENCE: Span = Span::from_s(5);
/// How long a receiver waits in silence for what is still under way once the sender has ended.
pub(crate) const LINGER: Span = Span::from_ms(250);

/// What an end is told while it works.
#[derive(Debug, Default)]
pub struct Control {
    id: u32,
    start: Mutex<Option<Instant>>,
    started: Condvar,
    stop: AtomicBool,
    over: AtomicBool,
    /// One more than the number of messages sent; 0 until that is known.
    expected: AtomicU64,
    /// When that became known, picoseconds.
    finished: AtomicU64,
    copy: Mutex<Option<Copy>>,
}

/// What an end had measured a moment ago. Turned into a report by whoever passes it on, not by the busy thread.
#[derive(Debug)]
enum Copy {
    Sender(Box<Ledger>),
    Receiver(Box<Meter>),
}

impl Control {
    /// Sets when the end begins.
    pub fn start(&self, at: Instant) {
        if let Ok(mut start) = self.start.lock() {
            *start = Some(at);
        }
        self.started.notify_all();
    }

    /// Tells a receiver, at `now`, how many messages were sent.
    pub fn finish(&self, messages: u64, now: Instant) {
        self.finished.store(now.as_ps(), Ordering::Relaxed);
        self.expected.store(messages + 1, Ordering::Release);
    }

    /// Tells the end to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.started.notify_all();
    }

    /// Whether the end has reported.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Sends on the latest copy, if there is a new one.
    pub fn pass_on(&self, voice: &Voice) {
        let copy = self.copy.lock().ok().and_then(|mut c| c.take());
        let report = match copy {
            Some(Copy::Sender(ledger)) => Report::Sender(Box::new(SenderReport::so_far(&ledger))),
            Some(Copy::Receiver(meter)) => Report::Receiver(Box::new(ReceiverReport::of(&meter))),
            None => return,
        };
        if !self.is_over() {
            voice.say(&Word::Progress(self.id, report));
        }
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop
    }

    /// How many messages were sent, once that is known.
    pub(crate) fn expected(&self) -> Option<u64> {
        self.expected.load(Ordering::Acquire).checked_sub(1)
    }

    fn await_start(&self) -> Option<Instant> {
        let mut start = self.start.lock().ok()?;
        loop {
            if self.stopped() {
                return None;
            }
            if let Some(at) = *start {
                return Some(at);
            }
            start = self.started.wait_timeout(start, LOOK.into()).ok()?.0;
        }
    }
}

/// Why an end failed. Its text is one line that a person can act on.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A socket failed at work.
    #[error("{doing}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A file.
    #[error("{doing} {}: {cause}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// Which file.
        path: std::path::PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The pattern gives no source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Part of a file is missing.
    #[error("the file is not whole: {missing} of {sent} messages did not arrive")]
    FileNotWhole {
        /// Messages that did not arrive.
        missing: u64,
        /// Messages that were sent.
        sent: u64,
    },
    /// Nobody connected.
    #[error("nobody connected to {0} within {PATIENCE}")]
    Lonely(SocketAddr),
    /// The stream cannot be read on.
    #[error("the stream from {0} is out of step: a header was damaged")]
    OutOfStep(SocketAddr),
    /// The peer closed before it had sent all.
    #[error("{0} closed the connection early")]
    ClosedEarly(SocketAddr),
    /// The peer does not take what it is sent.
    #[error("{0} has taken nothing for {1}")]
    Stuck(SocketAddr, Span),
    /// The guaranteed transport gave up.
    #[error("{0}: {1}")]
    Ended(SocketAddr, trunkline_arq::End),
    /// The LLC station of its host.
    #[error("its station: {0}")]
    Station(String),
    /// Nothing bundles at its host.
    #[error("nothing bundles at this host")]
    Unbundled,
    /// Stopped before it began.
    #[error("stopped before it began")]
    Stopped,
}

pub(crate) fn io(doing: &'static str) -> impl Fn(std::io::Error) -> EndError {
    move |cause| EndError::Io { doing, cause }
}

pub(crate) fn file(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> EndError {
    let path = path.to_owned();
    move |cause| EndError::File { doing, path: path.clone(), cause }
}

/// What every end has at hand.
pub(crate) struct Bench {
    pub spec: End,
    pub clock: Clock,
    pub control: Arc<Control>,
    pub voice: Voice,
    pub payload: Payload,
    /// The LLC station of its host, or why there is none.
    pub station: Result<Station, String>,
    /// What bundles at its host, if anything does.
    pub desk: Option<Desk>,
    cpu: CpuTime,
    next_copy: Instant,
}

impl Bench {
    /// Says that the sockets are open, then waits for the start.
    pub fn ready(&mut self, address: SocketAddr) -> Result<Instant, EndError> {
        self.voice.say(&Word::Ready(self.spec.id, address));
        let start = self.control.await_start().ok_or(EndError::Stopped)?;
        self.cpu = CpuTime::of_this_thread();
        self.next_copy = start + COPY_EVERY;
        Ok(start)
    }

    pub fn options(&self) -> Options {
        let (window, congestion, nodelay) = match &self.spec.protocol {
            Protocol::Tcp { window, congestion, nodelay, .. } => (*window, congestion.clone(), *nodelay),
            _ => (None, None, false),
        };
        let sender = matches!(self.spec.role, Role::Sender { .. });
        let own = |mine: bool| if mine { self.spec.buffer.or(window) } else { window };
        Options { send_buffer: own(sender), receive_buffer: own(!sender), congestion, nodelay }
    }

    pub fn source(&self, start: Instant, limit: Limit, largest: u32) -> Result<Source, EndError> {
        let bounds = Bounds { smallest: HEADER as u32, largest };
        Ok(Source::new(&self.spec.pattern, limit, bounds, start, self.spec.seed, &self.spec.place)?)
    }

    /// The longest message of this protocol.
    pub fn largest(&self) -> u32 {
        match self.spec.protocol {
            Protocol::Tcp { .. } | Protocol::Guaranteed { .. } => LARGEST,
            Protocol::Bundle { .. } => {
                let longest = self.desk.as_ref().map(|desk| desk.place().longest());
                longest.unwrap_or(trunkline_run::bundle::LONGEST)
            }
            Protocol::Llc { .. } => trunkline_run::llc::longest(&self.spec.protocol, crate::station::PDU),
            _ => trunkline_io::batch::LARGEST as u32,
        }
    }

    /// Whether a copy should have been left half a second ago.
    #[inline]
    pub fn is_overdue(&self, now: Instant) -> bool {
        now >= self.next_copy + COPY_EVERY
    }

    /// Leaves a copy of the ledger for the agent, when it is time.
    #[inline]
    pub fn copy_ledger(&mut self, ledger: &Ledger, now: Instant) {
        if now >= self.next_copy {
            self.leave(Copy::Sender(Box::new(ledger.clone())), now);
        }
    }

    /// Leaves a copy of the meter for the agent, when it is time.
    #[inline]
    pub fn copy_meter(&mut self, meter: &Meter, now: Instant) {
        if now >= self.next_copy {
            self.leave(Copy::Receiver(Box::new(meter.clone())), now);
        }
    }

    #[cold]
    fn leave(&mut self, copy: Copy, now: Instant) {
        self.next_copy = now + COPY_EVERY;
        // Never waits: if the agent is reading just now, the next copy serves.
        if let Ok(mut place) = self.control.copy.try_lock() {
            *place = Some(copy);
        }
    }

    /// Processor time since the start.
    pub fn cpu(&self) -> (Span, Span) {
        let used = CpuTime::of_this_thread().since(self.cpu);
        (used.user, used.system)
    }

    /// Whether a receiver has all that it will get: everything sent has come, or nothing has for a while.
    pub fn is_complete(&self, meter: &Meter, now: Instant) -> bool {
        let Some(expected) = self.control.expected() else { return false };
        let a = meter.arrivals();
        let told = now.since(Instant::from_ps(self.control.finished.load(Ordering::Relaxed)));
        a.messages + a.corrupted >= expected || meter.quiet(now).min(told) > LINGER
    }
}

/// What went wrong, and what had been measured by then.
pub(crate) struct Broken {
    pub error: EndError,
    pub report: Option<Report>,
}

impl<E: Into<EndError>> From<E> for Broken {
    fn from(error: E) -> Self {
        Broken { error: error.into(), report: None }
    }
}

/// Opens an end on a thread of its own.
pub(crate) fn prepare(
    spec: End,
    clock: Clock,
    voice: Voice,
    (station, desk): (Result<Station, String>, Option<Desk>),
) -> (Arc<Control>, Option<JoinHandle<()>>) {
    let control = Arc::new(Control { id: spec.id, ..Control::default() });
    let shared = control.clone();
    let (id, failed) = (spec.id, voice.clone());
    let work = move || {
        let payload = Payload::new(spec.seed, &spec.place);
        let (id, teller) = (spec.id, voice.clone());
        let cpu = CpuTime::default();
        let bench = Bench {
            spec,
            clock,
            control: shared.clone(),
            voice,
            payload,
            station,
            desk,
            cpu,
            next_copy: Instant::ZERO,
        };
        let word = match run(bench) {
            Ok(report) => Word::Done(id, report),
            Err(broken) => Word::Failed(id, broken.error.to_string(), broken.report),
        };
        shared.over.store(true, Ordering::Relaxed);
        teller.say(&word);
    };
    let name = format!("end {id}");
    match std::thread::Builder::new().name(name).spawn(work) {
        Ok(handle) => (control, Some(handle)),
        Err(e) => {
            failed.say(&Word::Failed(id, format!("cannot start a thread: {e}"), None));
            (control, None)
        }
    }
}

fn run(bench: Bench) -> Result<Report, Broken> {
    let tcp = matches!(bench.spec.protocol, Protocol::Tcp { .. });
    let role = bench.spec.role.clone();
    if matches!(bench.spec.protocol, Protocol::Guaranteed { .. }) {
        return match role {
            Role::Sender { peer, limit, file } => guaranteed::send(bench, peer, limit, file.as_deref()),
            Role::Receiver { file } => guaranteed::receive(bench, file.as_deref()),
        };
    }
    if matches!(bench.spec.protocol, Protocol::Llc { .. }) {
        return match role {
            Role::Sender { peer, limit, .. } => messages::send(bench, peer, limit),
            Role::Receiver { .. } => messages::receive(bench),
        };
    }
    if let Protocol::Bundle { .. } = bench.spec.protocol {
        return match role {
            Role::Sender { limit, .. } => bundled::send(bench, limit),
            Role::Receiver { .. } => bundled::receive(bench),
        };
    }
    match (&bench.spec.pattern, role) {
        (Pattern::Request { .. }, Role::Sender { peer, limit, .. }) => request::ask(bench, peer, limit),
        (Pattern::Request { .. }, Role::Receiver { .. }) => request::answer(bench),
        (Pattern::File { .. }, Role::Sender { peer, limit, file: Some(path) }) => {
            file::send(bench, peer, limit, &path)
        }
        (Pattern::Full { .. }, Role::Sender { peer, limit, .. }) if !tcp => {
            datagram::send_full(bench, peer, limit)
        }
        (Pattern::Full { .. }, Role::Receiver { .. }) if !tcp => datagram::receive_full(bench),
        (_, Role::Sender { peer, limit, .. }) if tcp => stream::send(bench, peer, limit),
        (_, Role::Sender { peer, limit, .. }) => datagram::send_paced(bench, peer, limit),
        (_, Role::Receiver { file }) if tcp => stream::receive(bench, file.as_deref()),
        (_, Role::Receiver { file }) => datagram::receive(bench, file.as_deref()),
    }
}

/// The two granted socket buffers, as counters.
pub(crate) fn buffer_counter(socket: &impl std::os::fd::AsFd, sender: bool) -> (String, f64) {
    let (send, receive) = trunkline_io::socket::granted_buffers(socket);
    let bytes = |s: Size| s.as_bytes() as f64;
    match sender {
        true => ("sender_buffer_bytes".into(), bytes(send)),
        false => ("receiver_buffer_bytes".into(), bytes(receive)),
    }
}
