//! The driver loop: one endpoint over one UDP socket and the monotonic clock.
//!
//! The loop blocks in one `poll` without a timeout over the socket, a timer and a stop pipe. The timer is set only
//! when a deadline becomes earlier than the one it is set for; a deadline that moves later costs one early wakeup,
//! which is cheaper than setting the timer each time. `SO_RCVTIMEO` would round half a millisecond up to eight, and
//! `ppoll` with a timeout costs more than twice the receive itself.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::{self, IoSliceMut, PipeReader, PipeWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use quinn_udp::{RecvMeta, UdpSocketState};
use trunkline_endpoint::{
    Endpoint, Idle, Input, MAX_BATCH, Peer, Port, Reason, Segment, Sink, Transmit, Writable, drain,
};
use trunkline_units::Instant;

use crate::Clock;

/// The port of a driver's socket.
const SOCKET: Port = Port(0);

/// Outputs sent before the next receive.
const OUTPUTS: usize = 64;

/// Batches received before the endpoint is polled again; each has a buffer for one coalesced datagram.
const BATCHES: usize = 4;
const BUFFER_SIZE: usize = 1 << 16;

/// Runs an [`Endpoint`] over a UDP socket, which is its port 0 and takes peers made by [`peer_of`].
///
/// The socket may be connected. A frame or batch that finds the send buffer full is kept, and the port is not
/// writable until it has left. The endpoint is woken at its deadline, never before.
#[derive(Debug)]
pub struct Driver<E: Endpoint> {
    endpoint: E,
    clock: Clock,
    transmitter: Transmitter,
    idle: Idle,
    /// Bounded by the events of one [`drain`]: nothing is drained before the queue is empty.
    events: VecDeque<DriverEvent<E::Event>>,
    timer: Timer,
    stop: PipeReader,
    stopper: Stopper,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Batches to request in the next receive call.
    batch_count: usize,
    probe: Option<Box<dyn Probe>>,
}

/// Why [`Driver::run`] returned.
#[derive(Debug)]
pub enum DriverEvent<V> {
    /// An event of the endpoint.
    Endpoint(V),
    /// A frame or batch is lost because it could not be sent, or because an earlier one was refused. Most endpoints
    /// treat this as any other loss.
    SendFailed(SendError),
    /// The `until` of [`Driver::run`] has passed.
    Deadline,
    /// [`Stopper::stop`] was called.
    Stopped,
}

/// A system error about one peer.
#[derive(Debug, thiserror::Error)]
#[error("{peer}: {cause}")]
pub struct SendError {
    /// Destination of the frame.
    pub peer: SocketAddr,
    /// Cause.
    #[source]
    pub cause: io::Error,
}

/// Direction of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// Observes the system calls of selected batches: their duration and the kernel's receive timestamps.
pub trait Probe: Debug + Send {
    /// Returns whether to observe this batch, which is about to be sent or has just been received.
    fn selects(&mut self, direction: Direction, frames: &[u8], segment: Option<Segment>) -> bool;
    /// Reports that the selected batch was sent by a call with this start and end.
    fn sent(&mut self, call: (Instant, Instant));
    /// Reports that the selected batch arrived in the kernel at `arrived`, if known, and was received by a call with
    /// this start and end, which may have received other batches too.
    fn received(&mut self, arrived: Option<Instant>, call: (Instant, Instant));
}

/// Stops a driver from another thread, for good.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<(AtomicBool, PipeWriter)>);

impl Stopper {
    /// Makes [`Driver::run`] return [`DriverEvent::Stopped`] after its queued events.
    pub fn stop(&self) {
        let (stopped, pipe) = &*self.0;
        // The byte is never read, so the stop persists. A write error means that the driver is gone.
        if !stopped.swap(true, Ordering::Relaxed) {
            let _ = (&*pipe).write(&[0]);
        }
    }
}

impl<E: Endpoint> Driver<E> {
    /// Creates a driver of `endpoint` over `socket`, which becomes non-blocking, with the time of `clock`.
    ///
    /// # Errors
    /// System errors from the timer, the pipe, or the socket options.
    pub fn new(endpoint: E, socket: UdpSocket, clock: Clock) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let (stop, stopper) = io::pipe()?;
        Ok(Driver {
            endpoint,
            clock,
            transmitter: Transmitter { socket, state, pending: Vec::new(), pending_to: None },
            idle: Idle { deadline: None, reason: Reason::Input },
            events: VecDeque::with_capacity(OUTPUTS + 1),
            timer: Timer::new(clock)?,
            stop,
            stopper: Stopper(Arc::new((AtomicBool::new(false), stopper))),
            output: vec![0; MAX_BATCH],
            input: vec![0; BATCHES * BUFFER_SIZE],
            batch_count: 1,
            probe: None,
        })
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// Returns the socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.transmitter.socket
    }

    /// Observes batches with `probe` from now on.
    pub fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.probe = Some(probe);
    }

    /// Returns a handle that stops the driver.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Passes a command to the endpoint; the next [`run`](Driver::run) sends the result.
    ///
    /// # Errors
    /// The endpoint's refusal of the command.
    pub fn command(&mut self, command: E::Command<'_>) -> Result<(), E::Refusal> {
        self.endpoint.handle(self.clock.now(), Input::Command(command))
    }

    /// Runs until the endpoint has an event, `until` has passed, or the driver is stopped, whichever comes first.
    /// Without `until` it may run forever.
    ///
    /// # Errors
    /// System errors of the receive call or of `poll`. An error about one peer is a [`DriverEvent`].
    pub fn run(&mut self, until: Option<Instant>) -> io::Result<DriverEvent<E::Event>> {
        let mut over = false;
        loop {
            if let Some(turn) = self.events.pop_front() {
                return Ok(turn);
            }
            let now = self.clock.now();
            if self.idle.deadline.is_some_and(|at| at <= now) {
                self.wake(now);
            }
            let quiet = self.drain(now);
            if !self.events.is_empty() {
                continue;
            }
            if over {
                return Ok(DriverEvent::Deadline);
            }
            // Receive once more, so that a caller whose deadline has always passed still receives.
            over = until.is_some_and(|at| at <= now);
            let ready = self.wait(until, quiet && !over)?;
            if ready.stop {
                return Ok(DriverEvent::Stopped);
            }
            if ready.writable {
                self.events.extend(self.transmitter.send_pending().err().map(DriverEvent::SendFailed));
            }
            if ready.readable {
                self.receive()?;
            }
        }
    }

    fn wake(&mut self, now: Instant) {
        self.endpoint.handle(now, Input::Wake).expect("only commands are refused");
    }

    /// Returns whether the endpoint is idle; if not, more output is ready.
    fn drain(&mut self, now: Instant) -> bool {
        let (line, said, probe) = (&mut self.transmitter, &mut self.events, &mut self.probe);
        let mut sink = DriverSink { transmitter: line, events: said, clock: self.clock, probe };
        match drain(&mut self.endpoint, now, OUTPUTS, &mut self.output, &mut sink) {
            Some(idle) => {
                self.idle = idle;
                true
            }
            None => false,
        }
    }

    /// Blocks until there is work; returns at once unless the endpoint is `quiet`.
    fn wait(&mut self, until: Option<Instant>, quiet: bool) -> io::Result<Ready> {
        let timeout = if quiet { PollTimeout::NONE } else { PollTimeout::ZERO };
        if let (true, Some(at)) = (quiet, self.idle.deadline.into_iter().chain(until).min()) {
            self.timer.arm(at)?;
        }
        let full =
            if self.transmitter.pending_to.is_some() { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(self.transmitter.socket.as_fd(), PollFlags::POLLIN | full),
            PollFd::new(self.timer.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [socket, timer, stop] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if !timer.is_empty() {
            self.timer.acknowledge()?;
        }
        let failed = socket.contains(PollFlags::POLLERR);
        Ok(Ready {
            readable: socket.contains(PollFlags::POLLIN) || failed,
            writable: socket.contains(PollFlags::POLLOUT),
            stop: !stop.is_empty(),
        })
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut metas = [RecvMeta::default(); BATCHES];
        let mut rooms = self.input.chunks_exact_mut(BUFFER_SIZE);
        let mut slices: [IoSliceMut<'_>; BATCHES] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().expect("a room for each")));
        let asked = &mut slices[..self.batch_count];
        let began = self.probe.as_ref().map(|_| self.clock.now());
        let count = match self.transmitter.state.recv((&self.transmitter.socket).into(), asked, &mut metas) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(cause) if is_icmp_error(&cause) => {
                // Only a connected socket gets this error, so it concerns its peer.
                let peer = self.transmitter.socket.peer_addr()?;
                self.events.push_back(DriverEvent::SendFailed(SendError { peer, cause }));
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        // A request for more batches than are queued costs an extra check.
        self.batch_count = if count == self.batch_count { BATCHES.min(2 * count) } else { 1 };
        let now = self.clock.now();
        for (meta, bytes) in metas.iter().zip(&slices).take(count) {
            if let (Some(probe), Some(began)) = (&mut self.probe, began) {
                let frames = &bytes[..meta.len];
                if probe.selects(Direction::In, frames, Segment::of(meta.stride, meta.len)) {
                    let arrived = meta.timestamp.map(|unix| self.clock.instant_of_unix(unix));
                    probe.received(arrived, (began, now));
                }
            }
            let mut give = |bytes, segment| {
                let frame = Input::Frame { port: SOCKET, peer: peer_of(meta.addr), bytes, segment };
                self.endpoint.handle(now, frame).expect("only commands are refused");
            };
            let bytes = &bytes[..meta.len];
            let segment = Segment::of(meta.stride, meta.len);
            if Segment::fits(segment, bytes.len()) {
                give(bytes, segment);
                continue;
            }
            // An IPv6 datagram can exceed a batch by 20 bytes.
            let frames = Segment::frames(segment, bytes).filter(|frame| frame.len() <= MAX_BATCH);
            frames.for_each(|frame| give(frame, None));
        }
        Ok(())
    }
}

/// Result of a wait.
struct Ready {
    readable: bool,
    writable: bool,
    stop: bool,
}

/// The sending side: the socket, and the batch that waits for buffer space.
#[derive(Debug)]
struct Transmitter {
    socket: UdpSocket,
    state: UdpSocketState,
    /// A batch that found the send buffer full, and its destination.
    pending: Vec<u8>,
    pending_to: Option<(SocketAddr, Option<Segment>)>,
}

impl Transmitter {
    /// Sends a frame or batch; keeps the rest if the send buffer is full.
    fn send(&mut self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) -> Result<(), SendError> {
        let mut sent = 0;
        let mut earlier = Ok(());
        loop {
            let most = self.state.max_gso_segments().max(1);
            let take = segment.map_or(usize::MAX, |s| s.length() * most).min(bytes.len() - sent);
            match self.send_once(to, &bytes[sent..sent + take], segment) {
                Ok(()) => sent += take,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.defer(to, &bytes[sent..], segment);
                    return earlier;
                }
                // The interface does not support segmentation offload: send frame by frame from now on.
                Err(_) if self.state.max_gso_segments() < most => {}
                // The error concerns an earlier frame; this frame was not sent.
                Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused && earlier.is_ok() => {
                    earlier = Err(SendError { peer: to, cause });
                }
                Err(cause) => return Err(SendError { peer: to, cause }),
            }
            if sent == bytes.len() {
                return earlier;
            }
        }
    }

    fn send_once(&self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) -> io::Result<()> {
        let segment_size = segment.map(Segment::length).filter(|length| *length < bytes.len());
        let transmit =
            quinn_udp::Transmit { destination: to, ecn: None, contents: bytes, segment_size, src_ip: None };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    fn defer(&mut self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) {
        self.pending.clear();
        self.pending.extend_from_slice(bytes);
        self.pending_to = Some((to, segment));
    }

    fn send_pending(&mut self) -> Result<(), SendError> {
        let Some((to, segment)) = self.pending_to.take() else { return Ok(()) };
        let bytes = std::mem::take(&mut self.pending);
        self.send(to, &bytes, segment)
    }
}

/// Sink for the endpoint's output.
struct DriverSink<'a, V> {
    transmitter: &'a mut Transmitter,
    events: &'a mut VecDeque<DriverEvent<V>>,
    clock: Clock,
    probe: &'a mut Option<Box<dyn Probe>>,
}

impl<V> Sink<V> for DriverSink<'_, V> {
    fn writable(&self) -> Writable<'_> {
        if self.transmitter.pending_to.is_none() { Writable::ALL } else { Writable::NONE }
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) {
        assert_eq!(transmit.port, SOCKET, "this driver has one socket");
        let to = address_of(transmit.peer).expect("an endpoint sends only to known peers");
        let picks = |probe: &mut Box<dyn Probe>| probe.selects(Direction::Out, bytes, transmit.segment);
        let picked = self.probe.as_mut().and_then(|probe| picks(probe).then_some(probe));
        let began = picked.as_ref().map(|_| self.clock.now());
        let sent = self.transmitter.send(to, bytes, transmit.segment);
        // A deferred batch has not been sent yet.
        if let (Some(probe), Some(began)) = (picked, began)
            && sent.is_ok()
            && self.transmitter.pending_to.is_none()
        {
            probe.sent((began, self.clock.now()));
        }
        self.events.extend(sent.err().map(DriverEvent::SendFailed));
    }

    fn event(&mut self, event: V) {
        self.events.push_back(DriverEvent::Endpoint(event));
    }
}

/// A system timer that is set only to fire earlier than it would.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    clock: Clock,
    armed_for: Option<Instant>,
}

impl Timer {
    /// Creates a timer that is not set. Its descriptor is readable after it fires.
    ///
    /// # Errors
    /// If no timer is available.
    pub fn new(clock: Clock) -> io::Result<Timer> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Timer { fd: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, clock, armed_for: None })
    }

    /// Makes the timer fire at `at` or earlier.
    ///
    /// # Errors
    /// System errors.
    pub fn arm(&mut self, at: Instant) -> io::Result<()> {
        if self.armed_for.is_some_and(|set| set <= at) {
            return Ok(());
        }
        // Rounded up, so that the clock shows `at` when the timer fires.
        let ns = self.clock.epoch_ns() + at.as_ps().div_ceil(1_000);
        let time = TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64);
        self.fd.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.armed_for = Some(at);
        Ok(())
    }

    /// Clears the timer after it has fired, so that it can be set again.
    ///
    /// # Errors
    /// System errors.
    pub fn acknowledge(&mut self) -> io::Result<()> {
        self.armed_for = None;
        match self.fd.wait() {
            Ok(()) | Err(Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns whether a receive error reports the fate of an earlier datagram, rather than a failed socket.
pub(crate) fn is_icmp_error(error: &io::Error) -> bool {
    use Errno::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENONET, ENOPROTOOPT,
        EOPNOTSUPP, EPROTO,
    };
    // The errors that the kernel derives from ICMP messages, which anyone can send.
    let of_network = [
        EACCES,
        ECONNREFUSED,
        EHOSTDOWN,
        EHOSTUNREACH,
        EMSGSIZE,
        ENETUNREACH,
        ENONET,
        ENOPROTOOPT,
        EOPNOTSUPP,
        EPROTO,
    ];
    error.raw_os_error().is_some_and(|raw| of_network.contains(&Errno::from_raw(raw)))
}

/// Encodes a socket address as a [`Peer`]: IPv4 address and port in 6 bytes, or IPv6 address, port and scope in 22,
/// big endian.
pub fn peer_of(address: SocketAddr) -> Peer {
    let mut bytes = [0; 22];
    let (ip, rest) = bytes.split_at_mut(if address.is_ipv4() { 4 } else { 16 });
    rest[..2].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            ip.copy_from_slice(&v4.ip().octets());
            Peer::new(&bytes[..6])
        }
        SocketAddr::V6(v6) => {
            ip.copy_from_slice(&v6.ip().octets());
            rest[2..].copy_from_slice(&v6.scope_id().to_be_bytes());
            Peer::new(&bytes)
        }
    }
}

/// Decodes a peer made by [`peer_of`]; `None` for any other.
pub fn address_of(peer: Peer) -> Option<SocketAddr> {
    match *peer.as_bytes() {
        [a, b, c, d, p, q] => Some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([p, q])).into()),
        [ref ip @ .., p, q, s, t, u, v] => {
            let ip = Ipv6Addr::from(<[u8; 16]>::try_from(ip).ok()?);
            let scope = u32::from_be_bytes([s, t, u, v]);
            Some(SocketAddrV6::new(ip, u16::from_be_bytes([p, q]), 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_endpoint::echo::{Client, Command, Config, Event, Server, ServerEvent};
    use trunkline_units::Span;

    use super::*;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        socket
    }

    fn client(to: SocketAddr, tries: u8) -> Client {
        let (interval, timeout) = (Span::from_ms(1), Span::from_ms(1));
        Client::new(Config { port: SOCKET, peer: peer_of(to), length: 64, interval, timeout, tries })
    }

    #[test]
    fn address_round_trips_through_peer() {
        for text in ["127.0.0.1:3450", "[::1]:65535", "[fe80::1%7]:1", "[::ffff:10.0.0.1]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(peer_of(address)), Some(address), "{text}");
        }
        for foreign in [&b""[..], b"b", &[2, 0, 0, 0, 0, 0, 1], &[0; 23]] {
            assert_eq!(address_of(Peer::new(foreign)), None);
        }
    }

    #[test]
    fn run_ends_at_the_deadline_and_on_stop() {
        let clock = Clock::start();
        let mut driver = Driver::new(Server::new(), socket(), clock).unwrap();
        for ms in [3, 1, 5] {
            let until = clock.now() + Span::from_ms(ms);
            assert!(matches!(driver.run(Some(until)), Ok(DriverEvent::Deadline)));
            assert!(clock.now() >= until);
        }
        let stopper = driver.stopper();
        let waiting = std::thread::spawn(move || driver.run(None).map(|turn| (turn, driver)));
        stopper.stop();
        let (turn, mut driver) = waiting.join().unwrap().unwrap();
        assert!(matches!(turn, DriverEvent::Stopped));
        assert!(matches!(driver.run(None), Ok(DriverEvent::Stopped)), "a stop holds");
    }

    #[test]
    fn batches_are_sent_and_malformed_frames_reported() {
        let mut driver = Driver::new(Server::new(), socket(), Clock::start()).unwrap();
        let to = driver.socket().local_addr().unwrap();
        let asker = socket();
        for number in 0..10 {
            asker.send_to(&[1, 1, 0, 0, 0, number, 7], to).unwrap();
        }
        asker.send_to(b"garbage", to).unwrap();
        // All requests are queued before the driver runs, and it receives several at a time, so the answers leave in
        // batches.
        let Ok(DriverEvent::Endpoint(ServerEvent::Malformed { frames: 1 })) = driver.run(None) else {
            panic!()
        };
        // A deadline that has always passed does not stop the driver from receiving.
        asker.send_to(&[1, 1, 0, 0, 0, 10, 7], to).unwrap();
        let until = Some(Instant::ZERO);
        assert!(matches!(driver.run(until), Ok(DriverEvent::Deadline)));
        for number in 0..11 {
            let mut answer = [0; 16];
            assert_eq!(asker.recv(&mut answer).unwrap(), 7);
            assert_eq!(answer[..7], [2, 1, 0, 0, 0, number, 7]);
        }
        assert_eq!(driver.endpoint().answered(), 11);
    }

    /// Selects every other frame and records its direction and times.
    #[derive(Debug, Default, Clone)]
    struct Notes(Arc<std::sync::Mutex<Vec<Note>>>);

    type Note = (Direction, Option<Instant>, (Instant, Instant));

    impl Probe for Notes {
        fn selects(&mut self, _: Direction, frames: &[u8], segment: Option<Segment>) -> bool {
            assert!(frames.len() >= 7 && Segment::fits(segment, frames.len()));
            frames[5].is_multiple_of(2)
        }

        fn sent(&mut self, call: (Instant, Instant)) {
            self.0.lock().unwrap().push((Direction::Out, None, call));
        }

        fn received(&mut self, arrived: Option<Instant>, call: (Instant, Instant)) {
            self.0.lock().unwrap().push((Direction::In, arrived, call));
        }
    }

    #[test]
    fn probe_observes_selected_batches_in_time_order() {
        let clock = Clock::start();
        let mut driver = Driver::new(Server::new(), socket(), clock).unwrap();
        let notes = Notes::default();
        driver.set_probe(Box::new(notes.clone()));
        let (to, asker) = (driver.socket().local_addr().unwrap(), socket());
        for number in 0..10 {
            asker.send_to(&[1, 1, 0, 0, 0, number, 7], to).unwrap();
            while driver.endpoint().answered() <= u64::from(number) {
                assert!(matches!(
                    driver.run(Some(clock.now() + Span::from_ms(1))),
                    Ok(DriverEvent::Deadline)
                ));
            }
            let mut answer = [0; 16];
            asker.recv(&mut answer).unwrap();
        }
        let notes = notes.0.lock().unwrap();
        let ways: Vec<Direction> = notes.iter().map(|(direction, ..)| *direction).collect();
        assert_eq!(ways, [Direction::In, Direction::Out].repeat(5));
        // The kernel's timestamp uses another clock, which may be set meanwhile, so only its presence is certain.
        assert!(notes.iter().all(|(way, arrived, _)| arrived.is_some() == (*way == Direction::In)));
        assert!(notes.iter().all(|(_, _, (began, ended))| began <= ended && *ended <= clock.now()));
    }

    #[test]
    fn connection_refused_is_reported_and_the_endpoint_continues() {
        let gone = socket().local_addr().unwrap();
        let from = socket();
        from.connect(gone).unwrap();
        let mut driver = Driver::new(client(gone, 3), from, Clock::start()).unwrap();
        driver.command(Command::Start { count: 1 }).unwrap();
        let mut refusals = 0;
        loop {
            match driver.run(None).unwrap() {
                DriverEvent::SendFailed(SendError { peer, cause }) => {
                    assert_eq!((peer, cause.kind()), (gone, io::ErrorKind::ConnectionRefused));
                    refusals += 1;
                }
                DriverEvent::Endpoint(event) => {
                    break assert_eq!(event, Event::GaveUp { number: 0, tries: 3 });
                }
                DriverEvent::Deadline | DriverEvent::Stopped => unreachable!("neither was asked"),
            }
        }
        assert!(refusals > 0);
    }

    #[test]
    fn forbidden_broadcast_is_reported() {
        // Broadcast without permission: EACCES.
        let everybody = "255.255.255.255:9".parse().unwrap();
        let mut driver = Driver::new(client(everybody, 1), socket(), Clock::start()).unwrap();
        driver.command(Command::Start { count: 1 }).unwrap();
        let Ok(DriverEvent::SendFailed(trouble)) = driver.run(None) else { panic!("it was sent") };
        assert!(trouble.to_string().starts_with("255.255.255.255:9: "), "{trouble}");
        assert!(matches!(driver.run(None), Ok(DriverEvent::Endpoint(Event::GaveUp { .. }))));
    }

    #[test]
    fn deferred_frames_close_the_port_and_leave_first() {
        // Loopback never fills a send buffer, so the test defers the frames directly.
        let (from, to) = (socket(), socket());
        let address = to.local_addr().unwrap();
        let mut driver = Driver::new(client(address, 1), from, Clock::start()).unwrap();
        driver.transmitter.defer(address, b"firstsecondlast", Segment::of(6, 15));
        driver.command(Command::Start { count: 1 }).unwrap();
        assert!(matches!(driver.run(None), Ok(DriverEvent::Endpoint(Event::GaveUp { .. }))));
        let mut frame = [0; 100];
        for want in [&b"firsts"[..], b"econdl", b"ast"] {
            let length = to.recv(&mut frame).unwrap();
            assert_eq!(frame[..length], *want);
        }
        assert_eq!(to.recv(&mut frame).unwrap(), 64, "the ping comes last");
    }
}
