//! The bundle worker of a host: a thread that runs a converter, or the interface that all ends of a host share.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use trunkline_bundle::host::CommandError;
use trunkline_bundle::single_message::WideAreaSender;
use trunkline_bundle::socket::{
    CentralOptions, CentralSocket, HostOptions, HostSocket, Level1Options, Level1Socket, Metrics,
    SocketDriver,
};
use trunkline_experiment::plan::BundleFormat;
use trunkline_io::Clock;
use trunkline_run::ReceiverMeter;
use trunkline_run::bundle::{self, Counts, MessageOptions};
use trunkline_run::message::{HEADER, Header, HeaderError, MessageKind, Payload};
use trunkline_units::{Instant, Span};

use super::{BundleNode, NodeRole};
use crate::locked;
use crate::wire::{AgentMessage, AgentWriter};

/// How often the thread checks whether to stop.
const STOP_CHECK_INTERVAL: Span = Span::from_ms(50);
/// Limits of the outbox that all ends of a host share, in bytes and messages; further messages are refused.
pub(crate) const OUTBOX_LIMITS: (usize, usize) = (4 << 20, 4_096);
/// Messages stored for a receiver that does not know its start yet; further messages are lost.
const MAX_EARLY_MESSAGES: usize = 4_096;
/// Groups do not leave this machine.
const TTL: u8 = 1;

/// Handle to the bundle worker of a host. The thread ends when the worker is [closed](BundleWorker::close), or with
/// the last handle.
#[derive(Clone)]
pub(crate) struct BundleWorker(Arc<WorkerInner>);

struct WorkerInner {
    node: BundleNode,
    shared: Arc<Shared>,
    /// Numbers the messages of all ends of a host in the wide area, in format 2.
    wide_area_sender: Mutex<Option<WideAreaSender>>,
    thread: Mutex<Option<JoinHandle<Counts>>>,
}

/// State that the thread shares with the ends.
#[derive(Debug)]
struct Shared {
    is_stopping: AtomicBool,
    /// A byte is written to it when a message enters the empty outbox, and to stop the thread.
    waker: UnixStream,
    outbox: Mutex<Outbox>,
    /// Receivers by the token of their messages.
    receivers: Mutex<BTreeMap<u32, MessageReceiver>>,
}

#[derive(Debug, Default)]
struct Outbox {
    messages: VecDeque<QueuedMessage>,
    bytes: usize,
}

#[derive(Debug)]
struct QueuedMessage {
    options: MessageOptions,
    body: Vec<u8>,
    counters: Arc<SendCounters>,
}

/// Counters of what happened to a sender's messages.
#[derive(Debug, Default)]
pub(crate) struct SendCounters {
    /// Taken from the outbox.
    pub taken: AtomicU64,
    /// Of these, not sent because the level of congestion was too high.
    pub congested: AtomicU64,
    /// Of these, not sent because the queue was full.
    pub full: AtomicU64,
}

/// Result of checking a received message.
pub(crate) enum MessageCheck {
    OtherConnection,
    /// It belongs to this connection and is corrupt.
    Corrupt,
    /// It belongs to this connection and is intact.
    Intact(Header),
}

impl MessageCheck {
    /// Checks the bytes of a message that follow the address.
    pub fn read(token: u32, payload: &Payload, bytes: &[u8]) -> MessageCheck {
        match Header::decode(token, bytes) {
            Err(HeaderError::UnknownToken | HeaderError::TooShort) => MessageCheck::OtherConnection,
            Ok(header)
                if header.kind == MessageKind::Pattern
                    && header.length as usize == bytes.len()
                    && payload.matches(0, &bytes[HEADER..]) =>
            {
                MessageCheck::Intact(header)
            }
            Ok(_) | Err(HeaderError::Corrupt) => MessageCheck::Corrupt,
        }
    }

    pub fn record_in(&self, meter: &mut ReceiverMeter, at: Instant) {
        match self {
            MessageCheck::OtherConnection => {}
            MessageCheck::Corrupt => meter.record_corrupted(),
            MessageCheck::Intact(header) => meter.record(header, at),
        }
    }
}

/// A receiving end.
#[derive(Debug)]
struct MessageReceiver {
    payload: Payload,
    /// `None` before the start.
    meter: Option<ReceiverMeter>,
    early_messages: Vec<(Instant, Header)>,
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Records a message in the meter of its receiver.
    fn record_message(&self, now: Instant, bytes: &[u8]) {
        let Some((token, _)) = Header::peek(bytes) else { return };
        let mut receivers = locked(&self.receivers);
        let Some(receiver) = receivers.get_mut(&token) else { return };
        let message = MessageCheck::read(token, &receiver.payload, bytes);
        match (&mut receiver.meter, &message) {
            (Some(meter), _) => message.record_in(meter, now),
            (None, MessageCheck::Intact(header)) if receiver.early_messages.len() < MAX_EARLY_MESSAGES => {
                receiver.early_messages.push((now, *header))
            }
            (None, _) => {}
        }
    }

    /// Sends the messages of the outbox.
    fn send_queued(&self, socket: &mut HostSocket) {
        let messages = std::mem::take(&mut *locked(&self.outbox)).messages;
        if messages.is_empty() {
            return;
        }
        for QueuedMessage { options, body, counters } in messages {
            match socket.send_message(options.to_outgoing(&body)) {
                Ok(()) => {}
                Err(CommandError::Congested(_)) => _ = counters.congested.fetch_add(1, Ordering::Relaxed),
                Err(_) => _ = counters.full.fetch_add(1, Ordering::Relaxed),
            }
            counters.taken.fetch_add(1, Ordering::Release);
        }
        socket.flush();
    }
}

impl BundleWorker {
    /// Opens the sockets of a node and starts its thread.
    ///
    /// # Errors
    /// Returns why a socket cannot be opened; its text is one line.
    pub fn open(
        node: BundleNode,
        clock: Clock,
        writer: &AgentWriter,
    ) -> Result<BundleWorker, Box<dyn Error>> {
        let (wake_receiver, waker) = UnixStream::pair()?;
        wake_receiver.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            is_stopping: AtomicBool::new(false),
            waker,
            outbox: Mutex::default(),
            receivers: Mutex::default(),
        });
        let mut worker_thread =
            WorkerThread { shared: shared.clone(), clock, writer: writer.clone(), last_reported: None };
        let (addresses, own) = (node.addresses.clone(), SocketAddrV4::new(node.own, 0));
        let is_format2 = node.format() == BundleFormat::Wide;
        // In format 2, hosts and level-1 converters are identified by the source address of their bundles.
        let mut wide_area_sender = None;
        let thread: Option<Box<dyn FnOnce() -> Counts + Send>> = match node.role.clone() {
            NodeRole::WideArea { config, index } => {
                wide_area_sender = config.wide_area_sender(index);
                None
            }
            NodeRole::Central { central, subscriptions } => {
                let config = central.to_state_machine_config();
                let level1 = (0..central.level1.len() as u8).map(|index| addresses.level1(index));
                let options = CentralOptions {
                    level1: if is_format2 { Vec::new() } else { level1.collect() },
                    hosts: if is_format2 { Vec::new() } else { vec![addresses.hosts()] },
                    ttl: TTL,
                    // As in the simulator, assigned subscriptions are not moved, so that no message is lost by a
                    // move.
                    rebalance: Span::ZERO,
                    ..CentralOptions::on_loopback(
                        config.settings,
                        addresses.central_listens(addresses.central_for_level1()),
                        addresses.central_listens(addresses.central_for_hosts()),
                    )
                };
                let socket = CentralSocket::open(&CentralOptions { config, ..options }, clock)?;
                Some(Box::new(move || worker_thread.central(socket, &subscriptions)))
            }
            NodeRole::Level1 { index, number, config } => {
                let options = Level1Options {
                    settings: config.settings(),
                    number,
                    central: addresses.central_for_level1(),
                    listen: if is_format2 { own } else { addresses.level1(index) },
                    interface: addresses.interface(),
                    base: addresses.base,
                    port: addresses.port,
                    ttl: TTL,
                };
                let socket = Level1Socket::open(&options, clock)?;
                Some(Box::new(move || worker_thread.level1(socket)))
            }
            NodeRole::Host { number, config, subscriptions } => {
                let (settings, central) = (config.settings(), addresses.central_for_hosts());
                let options = HostOptions {
                    listen: if is_format2 { own } else { addresses.hosts() },
                    interface: addresses.interface(),
                    ..HostOptions::on_loopback(settings, number, central)
                };
                let mut socket = HostSocket::open(&options, clock)?;
                let index = socket.watch(&wake_receiver)?;
                Some(Box::new(move || worker_thread.host(socket, (&wake_receiver, index), &subscriptions)))
            }
        };
        let thread = match thread {
            Some(run) => Some(std::thread::Builder::new().name("bundles".into()).spawn(run)?),
            None => None,
        };
        let (wide_area_sender, thread) = (Mutex::new(wide_area_sender), Mutex::new(thread));
        Ok(BundleWorker(Arc::new(WorkerInner { node, shared, wide_area_sender, thread })))
    }

    /// Stops the thread; returns its counters if a thread was running.
    pub fn close(&self) -> Option<Counts> {
        self.0.close()
    }

    pub fn node(&self) -> &BundleNode {
        &self.0.node
    }

    /// Puts a message into the outbox. Returns false if the outbox is full.
    pub fn send(&self, options: MessageOptions, body: &[u8], counters: &Arc<SendCounters>) -> bool {
        let shared = &self.0.shared;
        let mut outbox = locked(&shared.outbox);
        let was_empty = outbox.messages.is_empty();
        if outbox.messages.len() >= OUTBOX_LIMITS.1 || outbox.bytes + body.len() > OUTBOX_LIMITS.0 {
            return false;
        }
        outbox.bytes += body.len();
        outbox.messages.push_back(QueuedMessage { options, body: body.to_vec(), counters: counters.clone() });
        drop(outbox);
        if was_empty {
            // A full pipe already wakes the thread.
            let _ = (&shared.waker).write(&[0]);
        }
        true
    }

    /// Writes the datagram of a message for the wide area in format 2; returns its length, or `None` if it is too
    /// long.
    pub fn encode_single(&self, options: &MessageOptions, body: &[u8], buffer: &mut [u8]) -> Option<usize> {
        locked(&self.0.wide_area_sender).as_mut()?.encode(&options.to_outgoing(body), buffer)
    }

    /// Registers a receiver of the messages with this token.
    pub fn register(&self, token: u32, payload: Payload) -> Registration {
        locked(&self.0.shared.receivers)
            .insert(token, MessageReceiver { payload, meter: None, early_messages: Vec::new() });
        Registration { worker: self.clone(), token }
    }
}

impl WorkerInner {
    fn close(&self) -> Option<Counts> {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        let _ = (&self.shared.waker).write(&[0]);
        locked(&self.thread).take()?.join().ok()
    }
}

impl Drop for WorkerInner {
    fn drop(&mut self) {
        self.close();
    }
}

/// A registered receiver; dropping it unregisters the receiver.
pub(crate) struct Registration {
    worker: BundleWorker,
    token: u32,
}

impl Registration {
    /// Sets the meter at the start and records the messages received before.
    pub fn start(&self, mut meter: ReceiverMeter) {
        if let Some(receiver) = locked(&self.worker.0.shared.receivers).get_mut(&self.token) {
            receiver.early_messages.drain(..).for_each(|(at, header)| meter.record(&header, at));
            receiver.meter = Some(meter);
        }
    }

    /// Calls `read` with the meter after the start.
    pub fn with_meter<T>(&self, read: impl FnOnce(&ReceiverMeter) -> T) -> Option<T> {
        let receivers = locked(&self.worker.0.shared.receivers);
        receivers.get(&self.token)?.meter.as_ref().map(read)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        locked(&self.worker.0.shared.receivers).remove(&self.token);
    }
}

/// State of the worker's thread.
struct WorkerThread {
    shared: Arc<Shared>,
    clock: Clock,
    writer: AgentWriter,
    last_reported: Option<u64>,
}

impl WorkerThread {
    /// Calls `turn` until the worker is stopped; reports an error to the controller.
    fn run_until_stopped<F: SocketDriver>(
        &mut self,
        socket: &mut F,
        mut turn: impl FnMut(&mut WorkerThread, &mut F) -> io::Result<()>,
    ) {
        while !self.shared.is_stopping() {
            if let Err(e) = turn(self, socket) {
                return self.writer.send(&AgentMessage::ConverterFailed(e.to_string()));
            }
        }
    }

    /// Returns the deadline of a turn.
    fn next_stop_check(&self) -> Option<Instant> {
        Some(self.clock.now() + STOP_CHECK_INTERVAL)
    }

    /// Reports the number of known subscriptions if it has changed.
    fn report_known(&mut self, count: u64) {
        if self.last_reported != Some(count) {
            self.last_reported = Some(count);
            self.writer.send(&AgentMessage::KnownSubscriptions(count));
        }
    }

    fn central(&mut self, mut socket: CentralSocket, subscriptions: &[(u16, u32)]) -> Counts {
        self.run_until_stopped(&mut socket, |thread, socket| {
            socket.turn(thread.next_stop_check())?;
            if thread.last_reported != Some(subscriptions.len() as u64) {
                let is_known =
                    |(host, address): &&(u16, u32)| socket.machine().is_subscribed(*host, *address);
                thread.report_known(subscriptions.iter().filter(is_known).count() as u64);
            }
            Ok(())
        });
        with_sockets(bundle::central_counts(socket.machine()), &socket)
    }

    fn level1(&mut self, mut socket: Level1Socket) -> Counts {
        let (mut joins, mut joined) = (0, 0);
        self.run_until_stopped(&mut socket, |thread, socket| {
            socket.turn(thread.next_stop_check())?;
            let memberships = socket.memberships().len() as u64;
            joins += memberships.saturating_sub(joined);
            joined = memberships;
            thread.report_known(memberships);
            Ok(())
        });
        with_sockets(bundle::level1_counts(socket.machine(), self.clock.now(), joins, joined), &socket)
    }

    fn host(
        &mut self,
        mut socket: HostSocket,
        (wake_receiver, index): (&UnixStream, usize),
        subscriptions: &[u32],
    ) -> Counts {
        let mut subscriptions = subscriptions.iter().peekable();
        self.run_until_stopped(&mut socket, |thread, socket| {
            // Subscriptions that do not fit are retried in the next turn.
            while subscriptions.next_if(|address| socket.join(**address).is_ok()).is_some() {}
            let (shared, clock) = (&thread.shared, thread.clock);
            let ready = socket
                .turn_with(thread.next_stop_check(), |_, body| shared.record_message(clock.now(), body))?;
            if ready.watched(index) {
                let mut bytes = [0; 64];
                while (&mut &*wake_receiver).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
            }
            shared.send_queued(socket);
            Ok(())
        });
        with_sockets(bundle::host_counts(socket.machine(), self.clock.now()), &socket)
    }
}

/// Adds the counters of the sockets to those of the state machine.
fn with_sockets(mut counts: Counts, socket: &impl SocketDriver) -> Counts {
    let mut metrics = Metrics::default();
    socket.collect_metrics(&mut metrics);
    for (name, metric) in [
        ("overflow", "trunkline_converter_overflow_total"),
        ("refused", "trunkline_converter_refused_total"),
        ("unsent", "trunkline_converter_unsent_total"),
    ] {
        counts.insert(format!("bundle.{name}"), metrics.total(metric));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::super::BundleAddresses;
    use std::net::Ipv4Addr;

    use super::*;
    use trunkline_experiment::plan::BundleTimers;
    use trunkline_run::bundle::ConverterConfig;
    use trunkline_units::Seed;

    /// Returns a worker without a thread, and the socket that its wake-ups arrive at.
    fn idle_worker() -> (BundleWorker, UnixStream) {
        let (waker, wake_receiver) = UnixStream::pair().unwrap();
        waker.set_nonblocking(true).unwrap();
        let shared = Shared {
            is_stopping: AtomicBool::new(false),
            waker,
            outbox: Mutex::default(),
            receivers: Mutex::default(),
        };
        let addresses = BundleAddresses {
            central: Ipv4Addr::LOCALHOST,
            level1: Vec::new(),
            base: Ipv4Addr::new(239, 1, 0, 0),
            port: 20_000,
            interface: Ipv4Addr::LOCALHOST,
        };
        let (format, timers, deadlines) = (BundleFormat::Classic, BundleTimers::Classic, Default::default());
        let config = ConverterConfig { format, timers, deadlines, path_mtu: 1_472 };
        let node =
            BundleNode { addresses, own: Ipv4Addr::LOCALHOST, role: NodeRole::WideArea { config, index: 0 } };
        let (shared, wide_area_sender) = (Arc::new(shared), Mutex::new(None));
        (
            BundleWorker(Arc::new(WorkerInner { node, shared, wide_area_sender, thread: Mutex::new(None) })),
            wake_receiver,
        )
    }

    #[test]
    fn a_full_outbox_refuses_messages() {
        let counters = Arc::<SendCounters>::default();
        let accepted_messages = |size: usize| {
            let (worker, mut wake_receiver) = idle_worker();
            let options = MessageOptions { address: 7, priority: true, within: None };
            let accepted =
                (0..10_000).take_while(|_| worker.send(options, &vec![0; size], &counters)).count();
            drop(worker);
            // One wake-up for the first message, and one at the end.
            let mut bytes = Vec::new();
            wake_receiver.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 2);
            accepted
        };
        assert_eq!(
            (accepted_messages(100), accepted_messages(65_500)),
            (OUTBOX_LIMITS.1, OUTBOX_LIMITS.0 / 65_500)
        );
    }

    #[test]
    fn early_messages_are_stored_up_to_a_limit() {
        let (worker, _wake_receiver) = idle_worker();
        let payload = Payload::new(Seed(1), "a");
        let message = |token: u32, sequence: u64| {
            let header = Header::pattern(sequence, Instant::ZERO, 40);
            let mut bytes = [&[0; HEADER][..], payload.piece(0, 8)].concat();
            header.encode(token, bytes.first_chunk_mut().unwrap());
            bytes
        };
        let registration = worker.register(5, payload.clone());
        let shared = &worker.0.shared;
        let count = MAX_EARLY_MESSAGES as u64 + 10;
        (0..count).for_each(|n| shared.record_message(Instant::ZERO, &message(5, n)));
        assert!(registration.with_meter(|_| ()).is_none());
        registration.start(ReceiverMeter::new(Instant::ZERO));
        // One more, one of another connection, and a corrupt one.
        shared.record_message(Instant::ZERO, &message(5, count));
        shared.record_message(Instant::ZERO, &message(6, 0));
        let mut damaged = message(5, count + 1);
        damaged[HEADER + 3] ^= 1;
        shared.record_message(Instant::ZERO, &damaged);
        let arrivals = registration.with_meter(|meter| *meter.arrivals()).unwrap();
        assert_eq!(
            (arrivals.messages, arrivals.corrupted, arrivals.unknown_peers),
            (MAX_EARLY_MESSAGES as u64 + 1, 1, 0)
        );
        drop(registration);
        assert!(locked(&shared.receivers).is_empty());
    }
}
