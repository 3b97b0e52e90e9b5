//! The driver loop: one endpoint over one UDP socket and the monotonic clock.
//!
//! The wait costs what it must. It is a `poll` without timeout over the socket, a timer and a pipe that says stop;
//! the timer is set only when the deadline becomes earlier than it is set for. A deadline that moved later lets
//! the timer ring early, once, which costs less than setting it each time. `SO_RCVTIMEO` would turn half a
//! millisecond into eight, and `ppoll` with a timeout costs more than twice the receive itself.

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

/// Outputs before the socket is heard again.
const OUTPUTS: usize = 64;

/// Batches taken from the socket before the endpoint is polled again, each with room for what the kernel joins.
const BATCHES: usize = 4;
const ROOM: usize = 1 << 16;

/// Runs an [`Endpoint`] over a UDP socket, which is its port 0 and takes peers made by [`peer_of`].
///
/// The socket may be connected. What cannot be sent at once because its buffer is full waits here, one frame or
/// batch, and the port is not writable until it has left. The deadline of an endpoint is met when the clock
/// shows it, not before.
#[derive(Debug)]
pub struct Driver<E: Endpoint> {
    endpoint: E,
    clock: Clock,
    line: Line,
    idle: Idle,
    /// At most what one [`drain`] says, since nothing is drained before it is empty.
    said: VecDeque<Turn<E::Event>>,
    timer: Timer,
    stop: PipeReader,
    stopper: Stopper,
    output: Vec<u8>,
    input: Vec<u8>,
    /// Batches to ask the socket for.
    asked: usize,
    probe: Option<Box<dyn Probe>>,
}

/// Why [`Driver::run`] returned.
#[derive(Debug)]
pub enum Turn<V> {
    /// The endpoint reports something.
    Event(V),
    /// A frame or batch could not be sent, or an earlier one was refused, and is lost. To most endpoints that is a
    /// loss like any other; the user may know better.
    Trouble(Trouble),
    /// The time given has come.
    Until,
    /// [`Stopper::stop`] was called.
    Stopped,
}

/// What the system said about a peer.
#[derive(Debug, thiserror::Error)]
#[error("{peer}: {cause}")]
pub struct Trouble {
    /// To whom the frame was to go.
    pub peer: SocketAddr,
    /// Why it did not.
    #[source]
    pub cause: io::Error,
}

/// Which way a batch crosses the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrived.
    In,
    /// It leaves.
    Out,
}

/// Is told how long system calls took, and when frames arrived in the kernel: of the batches that it picks.
pub trait Probe: Debug + Send {
    /// Whether it wants to know of this batch, which is about to leave, or has been read.
    fn picks(&mut self, direction: Direction, frames: &[u8], segment: Option<Segment>) -> bool;
    /// The batch just picked has left, by a call that took from then to then.
    fn left(&mut self, call: (Instant, Instant));
    /// The batch just picked arrived in the kernel, if that tells, and was read by a call that took from then to then
    /// and may have read others as well.
    fn came(&mut self, arrived: Option<Instant>, call: (Instant, Instant));
}

/// Ends a [`Driver::run`] from another thread, and every later one.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<(AtomicBool, PipeWriter)>);

impl Stopper {
    /// Makes the driver return [`Turn::Stopped`] once it has told the events it had.
    pub fn stop(&self) {
        let (stopped, pipe) = &*self.0;
        // One byte is never read, so it says it for good; if the driver is gone there is nobody left to tell.
        if !stopped.swap(true, Ordering::Relaxed) {
            let _ = (&*pipe).write(&[0]);
        }
    }
}

impl<E: Endpoint> Driver<E> {
    /// Drives `endpoint` over `socket`, which it makes non-blocking, in the time of `clock`.
    ///
    /// # Errors
    /// What the system says to a timer, a pipe, or the socket's options.
    pub fn new(endpoint: E, socket: UdpSocket, clock: Clock) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        let (stop, stopper) = io::pipe()?;
        Ok(Driver {
            endpoint,
            clock,
            line: Line { socket, state, held: Vec::new(), held_for: None },
            idle: Idle { deadline: None, reason: Reason::Input },
            said: VecDeque::with_capacity(OUTPUTS + 1),
            timer: Timer::new(clock)?,
            stop,
            stopper: Stopper(Arc::new((AtomicBool::new(false), stopper))),
            output: vec![0; MAX_BATCH],
            input: vec![0; BATCHES * ROOM],
            asked: 1,
            probe: None,
        })
    }

    /// The endpoint, to ask it something.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// Its socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.line.socket
    }

    /// Tells `probe` from now on what it wants to know.
    pub fn measure(&mut self, probe: Box<dyn Probe>) {
        self.probe = Some(probe);
    }

    /// What ends a run from outside.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Gives the endpoint a command; the next [`run`](Driver::run) sends what comes of it.
    ///
    /// # Errors
    /// The endpoint's refusal.
    pub fn command(&mut self, command: E::Command<'_>) -> Result<(), E::Refusal> {
        self.endpoint.handle(self.clock.now(), Input::Command(command))
    }

    /// Runs until the endpoint reports something, the time is `until`, or a stop; whichever comes first. Without
    /// `until` it may run for ever.
    ///
    /// # Errors
    /// If the socket no longer receives or the system no longer waits. Trouble with one peer is a [`Turn`].
    pub fn run(&mut self, until: Option<Instant>) -> io::Result<Turn<E::Event>> {
        let mut over = false;
        loop {
            if let Some(turn) = self.said.pop_front() {
                return Ok(turn);
            }
            let now = self.clock.now();
            if self.idle.deadline.is_some_and(|at| at <= now) {
                self.wake(now);
            }
            let quiet = self.drain(now);
            if !self.said.is_empty() {
                continue;
            }
            if over {
                return Ok(Turn::Until);
            }
            // The socket is heard once more: a caller whose time is always up shall not make it deaf.
            over = until.is_some_and(|at| at <= now);
            let ready = self.wait(until, quiet && !over)?;
            if ready.stop {
                return Ok(Turn::Stopped);
            }
            if ready.writable {
                self.said.extend(self.line.send_held().err().map(Turn::Trouble));
            }
            if ready.readable {
                self.receive()?;
            }
        }
    }

    fn wake(&mut self, now: Instant) {
        self.endpoint.handle(now, Input::Wake).expect("only commands are refused");
    }

    /// Whether all was said; else there is more at once.
    fn drain(&mut self, now: Instant) -> bool {
        let (line, said, probe) = (&mut self.line, &mut self.said, &mut self.probe);
        let mut sink = Outlet { line, said, clock: self.clock, probe };
        match drain(&mut self.endpoint, now, OUTPUTS, &mut self.output, &mut sink) {
            Some(idle) => {
                self.idle = idle;
                true
            }
            None => false,
        }
    }

    /// Sleeps until there is something to do; not at all unless all was `quiet`.
    fn wait(&mut self, until: Option<Instant>, quiet: bool) -> io::Result<Ready> {
        let timeout = if quiet { PollTimeout::NONE } else { PollTimeout::ZERO };
        if let (true, Some(at)) = (quiet, self.idle.deadline.into_iter().chain(until).min()) {
            self.timer.ring_by(at)?;
        }
        let full = if self.line.held_for.is_some() { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(self.line.socket.as_fd(), PollFlags::POLLIN | full),
            PollFd::new(self.timer.fd.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [socket, timer, stop] = fds.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if !timer.is_empty() {
            self.timer.rang()?;
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
        let mut rooms = self.input.chunks_exact_mut(ROOM);
        let mut slices: [IoSliceMut<'_>; BATCHES] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().expect("a room for each")));
        let asked = &mut slices[..self.asked];
        let began = self.probe.as_ref().map(|_| self.clock.now());
        let count = match self.line.state.recv((&self.line.socket).into(), asked, &mut metas) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(cause) if is_of_network(&cause) => {
                // Only a connected socket is told, so the trouble is with its peer.
                let peer = self.line.socket.peer_addr()?;
                self.said.push_back(Turn::Trouble(Trouble { peer, cause }));
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        // To ask for more than there is costs a look in vain.
        self.asked = if count == self.asked { BATCHES.min(2 * count) } else { 1 };
        let now = self.clock.now();
        for (meta, bytes) in metas.iter().zip(&slices).take(count) {
            if let (Some(probe), Some(began)) = (&mut self.probe, began) {
                let frames = &bytes[..meta.len];
                if probe.picks(Direction::In, frames, Segment::of(meta.stride, meta.len)) {
                    let arrived = meta.timestamp.map(|unix| self.clock.when(unix));
                    probe.came(arrived, (began, now));
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
            // IPv6 carries up to 20 bytes more than a batch has.
            let frames = Segment::frames(segment, bytes).filter(|frame| frame.len() <= MAX_BATCH);
            frames.for_each(|frame| give(frame, None));
        }
        Ok(())
    }
}

/// What a wait found.
struct Ready {
    readable: bool,
    writable: bool,
    stop: bool,
}

/// The way out: the socket, and what it would not take yet.
#[derive(Debug)]
struct Line {
    socket: UdpSocket,
    state: UdpSocketState,
    /// What finds the socket full, and where it is to go.
    held: Vec<u8>,
    held_for: Option<(SocketAddr, Option<Segment>)>,
}

impl Line {
    /// Sends a frame or batch; holds what finds the socket full.
    fn send(&mut self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) -> Result<(), Trouble> {
        let mut sent = 0;
        let mut earlier = Ok(());
        loop {
            let most = self.state.max_gso_segments().max(1);
            let take = segment.map_or(usize::MAX, |s| s.length() * most).min(bytes.len() - sent);
            match self.send_once(to, &bytes[sent..sent + take], segment) {
                Ok(()) => sent += take,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.hold(to, &bytes[sent..], segment);
                    return earlier;
                }
                // The interface has just turned out not to split batches: frame by frame from now on.
                Err(_) if self.state.max_gso_segments() < most => {}
                // What became of an earlier frame, told once, in place of sending this one.
                Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused && earlier.is_ok() => {
                    earlier = Err(Trouble { peer: to, cause });
                }
                Err(cause) => return Err(Trouble { peer: to, cause }),
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

    fn hold(&mut self, to: SocketAddr, bytes: &[u8], segment: Option<Segment>) {
        self.held.clear();
        self.held.extend_from_slice(bytes);
        self.held_for = Some((to, segment));
    }

    fn send_held(&mut self) -> Result<(), Trouble> {
        let Some((to, segment)) = self.held_for.take() else { return Ok(()) };
        let bytes = std::mem::take(&mut self.held);
        self.send(to, &bytes, segment)
    }
}

/// Where the endpoint's output goes.
struct Outlet<'a, V> {
    line: &'a mut Line,
    said: &'a mut VecDeque<Turn<V>>,
    clock: Clock,
    probe: &'a mut Option<Box<dyn Probe>>,
}

impl<V> Sink<V> for Outlet<'_, V> {
    fn writable(&self) -> Writable<'_> {
        if self.line.held_for.is_none() { Writable::ALL } else { Writable::NONE }
    }

    fn transmit(&mut self, transmit: &Transmit, bytes: &[u8]) {
        assert_eq!(transmit.port, SOCKET, "this driver has one socket");
        let to = address_of(transmit.peer).expect("an endpoint answers peers it was told");
        let picks = |probe: &mut Box<dyn Probe>| probe.picks(Direction::Out, bytes, transmit.segment);
        let picked = self.probe.as_mut().and_then(|probe| picks(probe).then_some(probe));
        let began = picked.as_ref().map(|_| self.clock.now());
        let sent = self.line.send(to, bytes, transmit.segment);
        // What found the socket full has not left yet.
        if let (Some(probe), Some(began)) = (picked, began)
            && sent.is_ok()
            && self.line.held_for.is_none()
        {
            probe.left((began, self.clock.now()));
        }
        self.said.extend(sent.err().map(Turn::Trouble));
    }

    fn event(&mut self, event: V) {
        self.said.push_back(Turn::Event(event));
    }
}

/// A timer of the system that is set only when it must ring earlier than it would.
#[derive(Debug)]
pub struct Timer {
    fd: TimerFd,
    clock: Clock,
    set_for: Option<Instant>,
}

impl Timer {
    /// A timer that is not set. It is readable once it has rung.
    ///
    /// # Errors
    /// If the system has no more.
    pub fn new(clock: Clock) -> io::Result<Timer> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Timer { fd: TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?, clock, set_for: None })
    }

    /// Rings at `at` or before.
    ///
    /// # Errors
    /// What the system says.
    pub fn ring_by(&mut self, at: Instant) -> io::Result<()> {
        if self.set_for.is_some_and(|set| set <= at) {
            return Ok(());
        }
        // Rounded up: at the nanosecond that it rings the clock shows `at`.
        let ns = self.clock.epoch_ns() + at.as_ps().div_ceil(1_000);
        let time = TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64);
        self.fd.set(Expiration::OneShot(time), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        self.set_for = Some(at);
        Ok(())
    }

    /// It has rung, or may have: it is to be set anew.
    ///
    /// # Errors
    /// What the system says.
    pub fn rang(&mut self) -> io::Result<()> {
        self.set_for = None;
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

/// Whether an error of receiving tells what became of something sent, rather than that receiving is over.
pub(crate) fn is_of_network(error: &io::Error) -> bool {
    use Errno::{
        EACCES, ECONNREFUSED, EHOSTDOWN, EHOSTUNREACH, EMSGSIZE, ENETUNREACH, ENONET, ENOPROTOOPT,
        EOPNOTSUPP, EPROTO,
    };
    // All that the kernel makes of an ICMP message: anybody may send one.
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

/// A socket address as endpoints carry it: IPv4 address and port in 6 bytes, or IPv6 address, port and scope in 22,
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

/// The socket address that [`peer_of`] made this peer from; none if another driver made it.
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
    fn an_address_survives_as_a_peer() {
        for text in ["127.0.0.1:3450", "[::1]:65535", "[fe80::1%7]:1", "[::ffff:10.0.0.1]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(peer_of(address)), Some(address), "{text}");
        }
        for foreign in [&b""[..], b"b", &[2, 0, 0, 0, 0, 0, 1], &[0; 23]] {
            assert_eq!(address_of(Peer::new(foreign)), None);
        }
    }

    #[test]
    fn time_ends_a_run_and_so_does_a_stop() {
        let clock = Clock::start();
        let mut driver = Driver::new(Server::new(), socket(), clock).unwrap();
        for ms in [3, 1, 5] {
            let until = clock.now() + Span::from_ms(ms);
            assert!(matches!(driver.run(Some(until)), Ok(Turn::Until)));
            assert!(clock.now() >= until);
        }
        let stopper = driver.stopper();
        let waiting = std::thread::spawn(move || driver.run(None).map(|turn| (turn, driver)));
        stopper.stop();
        let (turn, mut driver) = waiting.join().unwrap().unwrap();
        assert!(matches!(turn, Turn::Stopped));
        assert!(matches!(driver.run(None), Ok(Turn::Stopped)), "a stop holds");
    }

    #[test]
    fn a_batch_goes_out_as_its_frames_and_garbage_is_an_event() {
        let mut driver = Driver::new(Server::new(), socket(), Clock::start()).unwrap();
        let to = driver.socket().local_addr().unwrap();
        let asker = socket();
        for number in 0..10 {
            asker.send_to(&[1, 1, 0, 0, 0, number, 7], to).unwrap();
        }
        asker.send_to(b"garbage", to).unwrap();
        // All of it is there before the driver looks, which takes several at a time: answers leave in batches.
        let Ok(Turn::Event(ServerEvent::Malformed { frames: 1 })) = driver.run(None) else { panic!() };
        // Time that is up all along does not make it deaf.
        asker.send_to(&[1, 1, 0, 0, 0, 10, 7], to).unwrap();
        let until = Some(Instant::ZERO);
        assert!(matches!(driver.run(until), Ok(Turn::Until)));
        for number in 0..11 {
            let mut answer = [0; 16];
            assert_eq!(asker.recv(&mut answer).unwrap(), 7);
            assert_eq!(answer[..7], [2, 1, 0, 0, 0, number, 7]);
        }
        assert_eq!(driver.endpoint().answered(), 11);
    }

    /// Picks every other frame, and notes when it crossed.
    #[derive(Debug, Default, Clone)]
    struct Notes(Arc<std::sync::Mutex<Vec<Note>>>);

    type Note = (Direction, Option<Instant>, (Instant, Instant));

    impl Probe for Notes {
        fn picks(&mut self, _: Direction, frames: &[u8], segment: Option<Segment>) -> bool {
            assert!(frames.len() >= 7 && Segment::fits(segment, frames.len()));
            frames[5].is_multiple_of(2)
        }

        fn left(&mut self, call: (Instant, Instant)) {
            self.0.lock().unwrap().push((Direction::Out, None, call));
        }

        fn came(&mut self, arrived: Option<Instant>, call: (Instant, Instant)) {
            self.0.lock().unwrap().push((Direction::In, arrived, call));
        }
    }

    #[test]
    fn a_probe_is_told_of_the_batches_that_it_picks_and_in_order_of_time() {
        let clock = Clock::start();
        let mut driver = Driver::new(Server::new(), socket(), clock).unwrap();
        let notes = Notes::default();
        driver.measure(Box::new(notes.clone()));
        let (to, asker) = (driver.socket().local_addr().unwrap(), socket());
        for number in 0..10 {
            asker.send_to(&[1, 1, 0, 0, 0, number, 7], to).unwrap();
            while driver.endpoint().answered() <= u64::from(number) {
                assert!(matches!(driver.run(Some(clock.now() + Span::from_ms(1))), Ok(Turn::Until)));
            }
            let mut answer = [0; 16];
            asker.recv(&mut answer).unwrap();
        }
        let notes = notes.0.lock().unwrap();
        let ways: Vec<Direction> = notes.iter().map(|(direction, ..)| *direction).collect();
        assert_eq!(ways, [Direction::In, Direction::Out].repeat(5));
        // The kernel's mark is of another clock, which may be set meanwhile: only that there is one is certain.
        assert!(notes.iter().all(|(way, arrived, _)| arrived.is_some() == (*way == Direction::In)));
        assert!(notes.iter().all(|(_, _, (began, ended))| began <= ended && *ended <= clock.now()));
    }

    #[test]
    fn a_refusal_of_the_network_is_told_and_the_endpoint_goes_on() {
        let gone = socket().local_addr().unwrap();
        let from = socket();
        from.connect(gone).unwrap();
        let mut driver = Driver::new(client(gone, 3), from, Clock::start()).unwrap();
        driver.command(Command::Start { count: 1 }).unwrap();
        let mut refusals = 0;
        loop {
            match driver.run(None).unwrap() {
                Turn::Trouble(Trouble { peer, cause }) => {
                    assert_eq!((peer, cause.kind()), (gone, io::ErrorKind::ConnectionRefused));
                    refusals += 1;
                }
                Turn::Event(event) => break assert_eq!(event, Event::GaveUp { number: 0, tries: 3 }),
                Turn::Until | Turn::Stopped => unreachable!("neither was asked"),
            }
        }
        assert!(refusals > 0);
    }

    #[test]
    fn what_may_not_be_sent_is_told() {
        // A broadcast without the right to: EACCES at once.
        let everybody = "255.255.255.255:9".parse().unwrap();
        let mut driver = Driver::new(client(everybody, 1), socket(), Clock::start()).unwrap();
        driver.command(Command::Start { count: 1 }).unwrap();
        let Ok(Turn::Trouble(trouble)) = driver.run(None) else { panic!("it was sent") };
        assert!(trouble.to_string().starts_with("255.255.255.255:9: "), "{trouble}");
        assert!(matches!(driver.run(None), Ok(Turn::Event(Event::GaveUp { .. }))));
    }

    #[test]
    fn while_a_frame_is_held_the_port_is_closed_and_then_it_leaves_first() {
        // Loopback never fills a send buffer, so the frames are put where those that find it full are put.
        let (from, to) = (socket(), socket());
        let address = to.local_addr().unwrap();
        let mut driver = Driver::new(client(address, 1), from, Clock::start()).unwrap();
        driver.line.hold(address, b"firstsecondlast", Segment::of(6, 15));
        driver.command(Command::Start { count: 1 }).unwrap();
        assert!(matches!(driver.run(None), Ok(Turn::Event(Event::GaveUp { .. }))));
        let mut frame = [0; 100];
        for want in [&b"firsts"[..], b"econdl", b"ast"] {
            let length = to.recv(&mut frame).unwrap();
            assert_eq!(frame[..length], *want);
        }
        assert_eq!(to.recv(&mut frame).unwrap(), 64, "the ping comes last");
    }
}
