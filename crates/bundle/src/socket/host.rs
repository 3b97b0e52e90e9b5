//! [`HostSocket`]: the endpoint of a host on its sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use trunkline_endpoint::{Endpoint, Input, Port, Segment};
use trunkline_io::event_loop::LoopOutput;
use trunkline_io::ports::{Ready, Received};
use trunkline_io::{Clock, EventLoop};
use trunkline_units::{Instant, Span};

use super::dis::{DisGateway, DisOptions};
use super::metrics::{
    BUNDLES, JOINED_ADDRESSES, LEVEL, LOST, MALFORMED, MESSAGES, RETRANSMISSIONS, SESSIONS, TIMEOUTS,
    UNKNOWN_PEERS, add_coalescing, add_overflows, add_send_errors, add_sequence_counts,
};
pub use super::receiver::is_shared;
use super::receiver::{bind_exclusive, open_receiver, shared_interface};
use super::warnings::{ANSWER_TIMEOUT, CentralWatch};
use super::{Error, Metrics, SocketDriver, incarnation_at};
use crate::drops::CountUnsent as _;
use crate::host::{CommandError, Host, HostCommand, MessageInfo, OutgoingMessage};
use crate::regions::Regions;
use crate::settings::Settings;

/// The default interval of refreshes to the central converter.
pub const REFRESH_INTERVAL: Span = Span::from_s(1);

/// The batches of bundles received per turn. The inbox has room for their messages.
const BATCHES_PER_TURN: usize = 16;

/// The options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Settings that all endpoints of the site share.
    pub settings: Settings,
    /// The number of the host, from 1 on; at most 16 in format 1 (classic).
    pub number: u16,
    /// The address of the central converter, to which the host sends. In format 1 (classic) its bundles may come from
    /// any port of that machine.
    pub central: SocketAddrV4,
    /// The address that receives bundles: of this machine, or a broadcast or multicast address. In format 2 it
    /// receives broadcast bundles; unicast bundles arrive at the sending socket, on a separate port of `interface`.
    pub listen: SocketAddrV4,
    /// The address of the interface for multicast.
    pub interface: Ipv4Addr,
    /// The interval of refreshes to the central converter.
    pub refresh: Span,
    /// Plain DIS. With `None`, messages are read with [`receive`](HostSocket::receive).
    pub dis: Option<DisOptions>,
}

/// A host on its sockets. It sends from its receiving address, so that the central converter can attribute refusals.
///
/// Received messages wait for [`receive`](HostSocket::receive), go to DIS programs, or are passed to a callback by
/// [`turn_with`](HostSocket::turn_with). This example runs two hosts and a central converter in format 2, on free
/// ports of the loopback interface, in one thread:
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddrV4};
/// use trunkline_bundle::socket::{CentralOptions, CentralSocket, HostOptions, HostSocket, SocketDriver};
/// use trunkline_bundle::{Format, Format2, Settings};
/// use trunkline_io::Clock;
/// use trunkline_units::Span;
///
/// let clock = Clock::start();
/// let settings = Settings { format: Format::Format2(Format2::default()), ..Settings::default() };
/// let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// let mut central = CentralSocket::open(&CentralOptions::on_loopback(settings, any, any), clock)?;
/// let mut host = |number| {
///     let options = HostOptions::on_loopback(settings, number, central.hosts_address()?);
///     HostSocket::open(&options, clock).map_err(Box::<dyn std::error::Error>::from)
/// };
/// let (mut sender, mut receiver) = (host(1)?, host(2)?);
///
/// receiver.join_range(100_000, 100_999)?;
/// let (mut received, mut sent) = (Vec::new(), 0);
/// while received.len() < 3 {
///     // The central converter drops messages until it knows the join.
///     if central.machine().statistics().control_messages > 0 && sent < 3 {
///         sent += 1;
///         sender.send(100_000 + sent, b"a message")?;
///     }
///     let soon = Some(clock.now() + Span::from_ms(1));
///     central.turn(soon)?;
///     sender.turn(soon)?;
///     receiver.turn_with(soon, |info, body| received.push((info.address, info.source, body.to_vec())))?;
/// }
/// // Host 1 of site 1.
/// let source = 1 << 16 | 1;
/// assert_eq!(received[0], (100_001, source, b"a message".to_vec()));
/// assert_eq!(received.iter().map(|(address, ..)| *address).collect::<Vec<_>>(), [100_001, 100_002, 100_003]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostSocket {
    event_loop: EventLoop<Host>,
    options: HostOptions,
    /// The socket for broadcast bundles, if separate.
    broadcast_socket: Option<usize>,
    dis: Option<DisGateway>,
    central: CentralWatch,
    pub(super) regions: Regions,
    refused: u64,
    unsent: u64,
    reachability: CentralReachability,
}

/// The time in which a refusal of a bundle arrives: Linux sends one ICMP error per second.
const REFUSAL_DELAY: Span = Span::from_ms(1_500);
/// The time that a classic central converter may take to start: longer than refusals are delayed.
const START_GRACE: Span = Span::from_s(4);

/// Tracks whether a classic central converter, which sends no replies, is reachable: bundles to it are not refused.
#[derive(Clone, Copy, Debug, Default)]
struct CentralReachability {
    /// When the last bundle left, and the first one that the last refusal cannot concern.
    last_sent: Option<Instant>,
    first_unrefused: Option<Instant>,
    last_refused: Option<Instant>,
    /// Whether bundles stayed unrefused for the whole refusal delay at some time.
    was_reachable: bool,
}

impl CentralReachability {
    fn record_sent(&mut self, now: Instant) {
        self.last_sent = Some(now);
        if self.is_after_refusals(now) {
            self.first_unrefused.get_or_insert(now);
        }
    }

    fn record_refused(&mut self, now: Instant) {
        // Compares with the last bundle sent, since a refusal may be read late.
        let is_known = |first| self.last_sent.is_some_and(|sent| sent >= first + REFUSAL_DELAY);
        self.was_reachable |= self.first_unrefused.is_some_and(is_known);
        self.first_unrefused = None;
        self.last_refused = Some(now);
    }

    fn is_after_refusals(&self, sent: Instant) -> bool {
        self.last_refused.is_none_or(|refused| sent > refused + REFUSAL_DELAY)
    }

    /// Returns whether a central converter is or was reachable; `None` if no bundle was sent.
    fn is_reachable(&self) -> Option<bool> {
        self.last_sent.map(|sent| self.was_reachable || self.is_after_refusals(sent))
    }
}

impl HostOptions {
    /// Returns options without DIS, on a free port of the loopback interface.
    pub fn on_loopback(settings: Settings, number: u16, central: SocketAddrV4) -> HostOptions {
        let (listen, interface) = (SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Ipv4Addr::LOCALHOST);
        HostOptions { settings, number, central, listen, interface, refresh: REFRESH_INTERVAL, dis: None }
    }
}

impl HostSocket {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Returns the first socket error.
    pub fn open(options: &HostOptions, clock: Clock) -> Result<HostSocket, Error> {
        let HostOptions { settings, listen: at, interface, .. } = options;
        let machine =
            Host::new(options.number, incarnation_at(clock.unix()), *settings).with_refresh(options.refresh);
        let mut event_loop = EventLoop::new(machine, clock)?;
        let needs_broadcast_socket =
            settings.format2().is_some() && shared_interface(*at.ip(), *interface).is_some();
        if needs_broadcast_socket {
            event_loop.ports.add(bind_exclusive(SocketAddrV4::new(*interface, 0))?)?;
        }
        let receiver = event_loop.ports.add(open_receiver(*at, *interface)?)?;
        let dis = options.dis.as_ref();
        let dis =
            dis.map(|dis| DisGateway::open(dis, settings, *interface, &mut event_loop.ports)).transpose()?;
        let broadcast_socket = needs_broadcast_socket.then_some(receiver);
        Ok(HostSocket {
            event_loop,
            options: options.clone(),
            broadcast_socket,
            dis,
            central: CentralWatch::new(*settings, options.central),
            regions: Regions::default(),
            refused: 0,
            unsent: 0,
            reachability: CentralReachability::default(),
        })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns why the message is refused.
    pub fn send(&mut self, address: u32, body: &[u8]) -> Result<(), CommandError> {
        self.send_message(OutgoingMessage::new(&self.options.settings, address, body))
    }

    /// Sends a message with priority and deadline.
    ///
    /// # Errors
    /// Returns why the message is refused.
    pub fn send_message(&mut self, post: OutgoingMessage<'_>) -> Result<(), CommandError> {
        self.event_loop.command(HostCommand::Send(post))
    }

    /// Joins an address.
    ///
    /// # Errors
    /// [`CommandError::Full`].
    pub fn join(&mut self, address: u32) -> Result<(), CommandError> {
        self.join_range(address, address)
    }

    /// Leaves an address.
    ///
    /// # Errors
    /// [`CommandError::Full`].
    pub fn leave(&mut self, address: u32) -> Result<(), CommandError> {
        self.leave_range(address, address)
    }

    /// Joins a range of addresses. In format 1 (classic) each address needs a control message; addresses of a range
    /// that are already joined are skipped, a single address never.
    ///
    /// # Errors
    /// [`CommandError::Full`]: in format 1 (classic) part of the range was joined; call it again with the same range
    /// after a [`flush`](HostSocket::flush). An empty queue has room for 16,575 addresses. [`CommandError::Format`]:
    /// format 1 (classic) lacks some of the addresses, and none is joined. [`CommandError::Range`].
    pub fn join_range(&mut self, first: u32, last: u32) -> Result<(), CommandError> {
        self.event_loop.command(HostCommand::Join { first, last })
    }

    /// Leaves a range of addresses. In format 1 (classic), which has no acknowledgements, the leave is repeated
    /// within a second, and again each time that a left range is left again.
    ///
    /// # Errors
    /// As [`HostSocket::join_range`].
    pub fn leave_range(&mut self, first: u32, last: u32) -> Result<(), CommandError> {
        self.event_loop.command(HostCommand::Drop { first, last })
    }

    /// Limits the ordinary messages that the host receives, per second; `None` removes the limit. Format 2 only.
    ///
    /// # Errors
    /// [`CommandError::Format`].
    pub fn saturate(&mut self, messages: Option<u32>) -> Result<(), CommandError> {
        self.event_loop.command(HostCommand::Saturate(messages))
    }

    /// Takes the oldest received message: moves its body into `into` and returns its metadata.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> Option<MessageInfo> {
        let mut from = None;
        let receive = HostCommand::Receive { into, from: &mut from };
        // This command is never refused and has no effect to handle.
        let _ = self.event_loop.endpoint.handle(self.event_loop.clock.now(), Input::Command(receive));
        from
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// Returns when the next [`turn`](SocketDriver::turn) is due even without input, or `None`. A command since the
    /// last turn without a [`flush`](HostSocket::flush) makes a turn due at once.
    pub fn deadline(&self) -> Option<Instant> {
        self.event_loop.deadline()
    }

    /// Returns whether the central converter has ever been reachable. In format 2 it has issued a session. In format
    /// 1 (classic), which sends no replies, a bundle arrived or a sent bundle was not refused.
    pub fn has_central_answered(&self) -> bool {
        let statistics = self.event_loop.endpoint.statistics();
        if self.is_format2() {
            return statistics.sessions > 0;
        }
        statistics.bundles_received > 0 || self.reachability.is_reachable().unwrap_or(self.unsent == 0)
    }

    fn is_format2(&self) -> bool {
        self.options.settings.format2().is_some()
    }

    /// Returns the clock.
    pub fn clock(&self) -> Clock {
        self.event_loop.clock
    }

    /// Returns the endpoint.
    pub fn machine(&self) -> &Host {
        &self.event_loop.endpoint
    }

    /// Runs a [`turn`](SocketDriver::turn) that passes each received message to `deliver` at once, with its metadata
    /// and the body borrowed from the datagram. These messages bypass the inbox and DIS programs. Messages left in
    /// the inbox by earlier turns come first. All counters are the same as for other turns.
    ///
    /// # Errors
    /// As [`SocketDriver::turn`].
    pub fn turn_with(
        &mut self,
        until: Option<Instant>,
        mut deliver: impl FnMut(MessageInfo, &[u8]),
    ) -> io::Result<Ready> {
        let mut body = Vec::new();
        while let Some(from) = self.receive(&mut body) {
            deliver(from, &body);
        }
        let ready = self.wait(until)?;
        for socket in self.ready_sockets(ready) {
            let (machine, clock) = (&mut self.event_loop.endpoint, self.event_loop.clock);
            let (central, mut now) = (&mut self.central, None);
            self.event_loop.ports.receive(socket, BATCHES_PER_TURN, |datagram, bytes| {
                let now = *now.get_or_insert_with(|| clock.now());
                let bundles = Segment::frames(datagram.segment, bytes);
                bundles
                    .filter(|bytes| central.accepts(datagram.from, bytes))
                    .for_each(|bytes| machine.receive(now, bytes, &mut deliver));
            })?;
        }
        self.finish_turn(ready, false)
    }

    /// Waits for input, and handles refusals.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        const CENTRAL: Port = Host::CENTRAL;
        let until = until.into_iter().chain(self.central.deadline()).min();
        let ready = self.event_loop.wait(until)?;
        if ready.refused(usize::from(CENTRAL.0)) {
            let refused = self.event_loop.refusals(CENTRAL).count() as u64;
            self.refused += refused;
            if refused > 0 {
                self.reachability.record_refused(self.event_loop.clock.now());
                // This command is never refused.
                let _ = self.event_loop.command(HostCommand::CentralRefused);
            }
        }
        if let Some(all) = self.broadcast_socket.filter(|all| ready.refused(*all)) {
            // Nothing is sent from this socket, but an unread error would wake this thread repeatedly.
            while self.event_loop.ports.refused(all).is_some() {}
        }
        Ok(ready)
    }

    /// Returns the sockets with bundles.
    fn ready_sockets(&self, ready: Ready) -> impl Iterator<Item = usize> + use<> {
        let all = [Some(usize::from(Host::CENTRAL.0)), self.broadcast_socket];
        all.into_iter().flatten().filter(move |socket| ready.has(*socket))
    }

    /// Serves the DIS programs, which get received messages if `delivers`; then sends what is due.
    fn finish_turn(&mut self, ready: Ready, delivers: bool) -> io::Result<Ready> {
        let EventLoop { endpoint, ports, clock, .. } = &mut self.event_loop;
        if let Some(dis) = &mut self.dis {
            for port in [dis.receive_socket(), dis.send_socket()] {
                while ready.refused(port) && ports.refused(port).is_some() {
                    self.refused += 1;
                }
            }
            if ready.has(dis.receive_socket()) {
                dis.receive(ports, endpoint, *clock)?;
            }
            let now = clock.now();
            if delivers {
                dis.deliver(ports, endpoint, now);
            }
            dis.update_interest(endpoint, now);
        }
        let flags = if self.is_format2() { "--central, --site" } else { "--central" };
        let timeouts = self.event_loop.endpoint.statistics().central_timeouts;
        self.central.check(self.event_loop.clock, self.has_central_answered(), flags, timeouts);
        self.flush();
        Ok(ready)
    }

    /// Sends what is due.
    pub fn flush(&mut self) {
        let grace = if self.is_format2() { ANSWER_TIMEOUT } else { START_GRACE };
        let HostSocket { event_loop, options, unsent, reachability, central, .. } = self;
        let now = event_loop.clock.now();
        event_loop.drain(|endpoint, ports, output| {
            let LoopOutput::Frame(transmit, bytes) = output else { return };
            let sent = ports.send(usize::from(transmit.port.0), options.central.into(), bytes);
            if sent {
                reachability.record_sent(now);
                central.expect_answer(now, grace);
            } else {
                *unsent += 1;
                endpoint.count_unsent(transmit.port, bytes);
            }
        });
    }
}

/// The file descriptor is readable when a [`turn`](SocketDriver::turn) has input. Callers may poll it themselves,
/// until the [`deadline`](HostSocket::deadline).
impl AsFd for HostSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_loop.ports.as_fd()
    }
}

impl SocketDriver for HostSocket {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.event_loop.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let ready = self.wait(until)?;
        for socket in self.ready_sockets(ready) {
            let central = &mut self.central;
            let accept = |datagram: &Received, bytes: &[u8]| central.accepts(datagram.from, bytes);
            self.event_loop.receive_from_socket(Host::CENTRAL, socket, BATCHES_PER_TURN, accept)?;
        }
        self.finish_turn(ready, true)
    }

    /// Leaves all addresses, since no timeout removes them in format 1 (classic). In format 2 also announces that the
    /// host closes, once all changes are confirmed or the central converter has timed out.
    fn shutdown(&mut self) -> io::Result<()> {
        self.dis = None;
        if self.is_format2() {
            let until = self.event_loop.clock.now() + crate::session::CENTRAL_TIMEOUT;
            while self.event_loop.endpoint.has_pending() && self.event_loop.clock.now() < until {
                self.turn(Some(until))?;
            }
            // This command is never refused.
            let _ = self.event_loop.command(HostCommand::Bye);
            self.flush();
            return Ok(());
        }
        while self.event_loop.command(HostCommand::DropAll).is_err() {
            self.turn(None)?;
        }
        while self.event_loop.endpoint.has_pending() {
            self.turn(None)?;
        }
        Ok(())
    }

    fn local_addresses(&self) -> String {
        let HostOptions { number, central, listen, .. } = &self.options;
        let at = self.event_loop.ports.socket(usize::from(Host::CENTRAL.0)).local_addr();
        let at = at.map_or_else(|_| listen.to_string(), |at| at.to_string());
        let dis = self.dis.as_ref().map(|dis| format!(", {}", dis.local_addresses(&self.event_loop.ports)));
        format!("host {number} on {at}, central {central}{}", dis.unwrap_or_default())
    }

    fn next_warning(&mut self) -> Option<String> {
        self.central.warnings.next_line()
    }

    fn collect_metrics(&self, into: &mut Metrics) {
        let machine = &self.event_loop.endpoint;
        let statistics = machine.statistics();
        into.add_counter(BUNDLES, &[("way", "from_central")], statistics.bundles_received);
        into.add_counter(BUNDLES, &[("way", "to_central")], statistics.bundles_sent);
        into.add_counter(MESSAGES, &[("way", "received")], statistics.received);
        into.add_counter(MESSAGES, &[("way", "sent")], statistics.sent);
        into.add_counter(MESSAGES, &[("way", "for_others")], statistics.for_others);
        into.add_counter(MALFORMED, &[("way", "from_central")], statistics.malformed);
        into.add_counter(UNKNOWN_PEERS, &[], self.central.unknown_peers);
        into.add_drops("host", &statistics.drops);
        let metric = ("trunkline_converter_retold_total", "Joins and drops sent again as a refresh.");
        into.add_counter(metric, &[], statistics.refreshed);
        add_send_errors(into, self.refused, self.unsent);
        add_overflows(into, &self.event_loop.ports, &["central"]);
        into.add_gauge(LEVEL, &[("side", "told")], machine.level(self.event_loop.clock.now()).into());
        let host = self.options.number.to_string();
        into.add_gauge(JOINED_ADDRESSES, &[("host", &host)], machine.joined() as u64);
        if self.is_format2() {
            into.add_counter(SESSIONS, &[("of", "central")], statistics.sessions);
            into.add_counter(TIMEOUTS, &[("of", "central")], statistics.central_timeouts);
            into.add_counter(LOST, &[("from", "central")], statistics.lost);
            into.add_counter(RETRANSMISSIONS, &[], statistics.retransmissions);
            add_sequence_counts(into, &statistics.sequence, statistics.stale);
        }
        if let Some(dis) = &self.dis {
            dis.collect_metrics(into);
        }
        add_coalescing(into, &self.event_loop.ports, &["central"], self.options.interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reachability after bundles sent and refused at these times in milliseconds.
    fn reachable_after(sent: &[u64], refused: &[u64]) -> Option<bool> {
        let at = |ms: u64| Instant::ZERO + Span::from_ms(ms);
        let mut events: Vec<(u64, bool)> = sent.iter().map(|ms| (*ms, false)).collect();
        events.extend(refused.iter().map(|ms| (*ms, true)));
        events.sort_unstable();
        let mut reachability = CentralReachability::default();
        for (ms, refused) in events {
            if refused { reachability.record_refused(at(ms)) } else { reachability.record_sent(at(ms)) }
        }
        reachability.is_reachable()
    }

    #[test]
    fn an_unrefused_bundle_shows_that_a_central_converter_was_there() {
        let every_100_ms: Vec<u64> = (0..50).map(|n| n * 100).collect();
        assert_eq!(reachable_after(&[], &[]), None);
        assert_eq!(reachable_after(&every_100_ms, &[]), Some(true));
        assert_eq!(reachable_after(&[0], &[2_000]), Some(false), "a refusal read late");
        assert_eq!(reachable_after(&every_100_ms, &[1, 1_001, 2_001, 3_001, 4_001]), Some(false));
        assert_eq!(reachable_after(&every_100_ms, &[1, 1_001]), Some(true), "the converter started later");
        assert_eq!(
            reachable_after(&every_100_ms, &[4_001]),
            Some(true),
            "the converter stopped before the host"
        );
        assert_eq!(
            reachable_after(&every_100_ms, &[1, 4_001]),
            Some(true),
            "the converter started later and stopped before the host"
        );
        assert_eq!(
            reachable_after(&[0, 5_000, 10_000], &[1, 5_001, 10_001]),
            Some(false),
            "rare bundles, each refused"
        );
    }
}
