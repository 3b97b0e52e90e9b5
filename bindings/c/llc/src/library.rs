//! The station, its sockets, and the library's thread.
//!
//! A caller's thread begins operations, the library's thread ends them: it waits for events of the station, sets the
//! status, and calls the program's signal functions with no lock held. So an operation is busy until just before its
//! signal function is called, as it was until the interrupt in 1990.
//!
//! Bounds: a socket has at most one operation in each direction, and a queue of [`Options::queue`] packets that came and
//! were not asked for.

use std::cell::Cell;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{env, io};

use nix::errno::Errno;
use trunkline_io::Clock;
use trunkline_llc::socket::{self, Error, Network, Sap, StationSocket};
use trunkline_llc::wire::MAX_INFORMATION;
use trunkline_llc::{Address, Event, Options, Outcome, Ticket};
use trunkline_units::{Instant, Span};

use crate::memory::{Packet, Room, Signal, call};
use crate::words::{Answer, BUSY, Direction, FAIL, IO, LATE};

/// There are so many sockets: 2, 4 … 254.
const SOCKETS: usize = 127;
/// The unit of time limits.
const TICK: Span = Span::from_ms(10);
/// Bits of the class: the priority, acknowledged, with a CRC.
const PRIORITY: c_int = 0x07;
const ACKNOWLEDGED: c_int = 0x08;
const CRC: c_int = 0x10;

impl Direction {
    pub fn new(letter: c_char) -> Result<Direction, Answer> {
        match letter as u8 {
            b'x' => Ok(Direction::Transmit),
            b'r' => Ok(Direction::Receive),
            _ => Err(Answer::Argument),
        }
    }
}

/// What `LLCoption` sets beside the signal functions.
pub(crate) struct Settings {
    options: Options,
    rtime: Span,
}

impl Settings {
    pub fn new(xtime: c_int, rtime: c_int, cls: c_int, tries: c_int) -> Result<Settings, Answer> {
        let time = |units: c_int| u64::try_from(units).map(|units| TICK * units);
        let (Ok(xtime), Ok(rtime), Ok(tries)) = (time(xtime), time(rtime), u16::try_from(tries)) else {
            return Err(Answer::Argument);
        };
        if cls & !(PRIORITY | ACKNOWLEDGED | CRC) != 0 {
            return Err(Answer::Argument);
        }
        let options = Options {
            acknowledged: cls & ACKNOWLEDGED != 0,
            priority: (cls & PRIORITY) as u8,
            crc: cls & CRC != 0,
            tries: tries.max(1),
            send_limit: xtime,
            ..Options::default()
        };
        Ok(Settings { options, rtime })
    }
}

thread_local! {
    /// Whether this is the library's thread. (To ask by `thread::current` leaves memory behind in a C program's threads.)
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// The one that is on.
static LIBRARY: Mutex<Option<Arc<Library>>> = Mutex::new(None);
/// The thread of one that was turned off by its own signal function.
static LEAVING: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under a lock is a bug in the library; later callers may see it too.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library, if it is on.
pub(crate) fn current() -> Result<Arc<Library>, Answer> {
    lock(&LIBRARY).clone().ok_or(Answer::NoNetwork)
}

/// Turns it on, with so many sockets at most.
pub(crate) fn on(sockets: c_int) -> Result<(), Answer> {
    let limit = usize::try_from(sockets).ok().filter(|limit| *limit > 0).ok_or(Answer::Argument)?;
    if limit > SOCKETS {
        return Err(Answer::TooMany);
    }
    if !OWN.get() {
        let leaving = lock(&LEAVING).take();
        join(leaving);
    }
    let mut current = lock(&LIBRARY);
    if current.is_some() {
        return Err(Answer::Duplicate);
    }
    let library = attach().and_then(|station| Ok(Library::start(station, limit)?));
    *current = Some(library.map_err(|error| {
        // Which says more than the answer can.
        let code = if let Error::System(system) = &error { system.raw_os_error() } else { None };
        Errno::set_raw(code.unwrap_or(Errno::EINVAL as i32));
        Answer::NoNetwork
    })?);
    Ok(())
}

/// Waits for a thread to end; if it panicked it has gone too.
fn join(thread: Option<JoinHandle<()>>) {
    let _ = thread.map(JoinHandle::join);
}

/// Turns it off; when this returns no signal function is called any more, if it is not called from one.
pub(crate) fn off() -> Result<(), Answer> {
    let library = lock(&LIBRARY).take().ok_or(Answer::NoNetwork)?;
    library.stop();
    Ok(())
}

/// The station that the environment names.
fn attach() -> Result<StationSocket, Error> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let network: Network = env::var("LLC_NETWORK").map_err(|_| invalid())?.parse().map_err(|_| invalid())?;
    let station = env::var("LLC_STATION").map_err(|_| invalid())?.parse().map_err(|_| Error::Station)?;
    StationSocket::to(&network, station, &socket::Settings { events: true, ..socket::Settings::default() })
}

/// A station with sockets.
pub(crate) struct Library {
    clock: Clock,
    state: Mutex<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    /// None if it is off.
    station: Option<StationSocket>,
    /// Whether its network failed.
    failed: bool,
    /// Most sockets.
    limit: usize,
    /// By half their number.
    sockets: Vec<Option<Socket>>,
    /// Who is looked at first.
    turn: usize,
    /// A packet on its way into a room.
    packet: Vec<u8>,
}

struct Socket {
    sap: Sap,
    rtime: Span,
    transmit: Side<Ticket>,
    receive: Side<Posted>,
}

/// A direction of a socket, and its operation `T`.
struct Side<T> {
    signal: Signal,
    pending: Option<T>,
    /// How the last operation ended, when none is pending.
    status: u32,
}

/// Room for a packet.
struct Posted {
    room: Room,
    /// When it is late.
    until: Instant,
    /// Whether a packet may be there already, of which there will be no event.
    fresh: bool,
}

impl<T> Side<T> {
    const IDLE: Side<T> = Side { signal: None, pending: None, status: 0 };

    /// Ends the operation; whom to tell.
    fn end(&mut self, status: u32) -> Signal {
        (self.pending, self.status) = (None, status);
        self.signal
    }

    fn idle(&self) -> Result<(), Answer> {
        self.pending.is_none().then_some(()).ok_or(Answer::Busy)
    }
}

impl Library {
    fn start(station: StationSocket, limit: usize) -> io::Result<Arc<Library>> {
        let state = State {
            station: Some(station.clone()),
            failed: false,
            limit,
            sockets: (0..=SOCKETS).map(|_| None).collect(),
            turn: 0,
            packet: Vec::new(),
        };
        let library =
            Arc::new(Library { clock: Clock::start(), state: Mutex::new(state), thread: Mutex::new(None) });
        let runs = library.clone();
        let thread = thread::Builder::new().name("llcio".into()).spawn(move || runs.run(station))?;
        *lock(&library.thread) = Some(thread);
        Ok(library)
    }

    fn stop(&self) {
        let station = {
            let mut state = lock(&self.state);
            state.sockets.fill_with(|| None);
            state.station.take()
        };
        let thread = lock(&self.thread).take();
        let Some(station) = station else { return };
        station.interrupt();
        match OWN.get() {
            true => *lock(&LEAVING) = thread,
            false => join(thread),
        }
        station.end();
    }

    /// Does something with an open socket.
    fn with<T>(
        &self,
        sock: c_int,
        operation: impl FnOnce(&mut Socket) -> Result<T, Answer>,
    ) -> Result<T, Answer> {
        operation(lock(&self.state).socket(sock)?)
    }

    /// The same, with something that the library's thread is to end: which goes when the network fails, and then ends what
    /// was begun before. So nothing may begin between a look at that and this.
    fn begin(
        &self,
        sock: c_int,
        operation: impl FnOnce(&mut Socket) -> Result<(), Answer>,
    ) -> Result<(), Answer> {
        let mut state = lock(&self.state);
        if state.failed {
            return Err(Answer::NoNetwork);
        }
        operation(state.socket(sock)?)
    }

    pub fn open(&self, sock: c_int) -> Result<(), Answer> {
        let at = socket_index(sock)?;
        let mut state = lock(&self.state);
        let station = state.station.as_ref().ok_or(Answer::NoNetwork)?;
        if state.sockets[at].is_some() {
            return Err(Answer::Duplicate);
        }
        if state.sockets.iter().flatten().count() >= state.limit {
            return Err(Answer::TooMany);
        }
        let sap = station.open((at * 2) as u8, &Options::default())?;
        state.sockets[at] =
            Some(Socket { sap, rtime: Span::ZERO, transmit: Side::IDLE, receive: Side::IDLE });
        Ok(())
    }

    pub fn close(&self, sock: c_int) -> Result<(), Answer> {
        let at = socket_index(sock)?;
        let mut state = lock(&self.state);
        state.station.as_ref().ok_or(Answer::NoNetwork)?;
        let socket = state.sockets[at].as_ref().ok_or(Answer::Invalid)?;
        socket.transmit.idle().and(socket.receive.idle())?;
        state.sockets[at] = None;
        Ok(())
    }

    pub fn set(&self, sock: c_int, signals: [Signal; 2], settings: Settings) -> Result<(), Answer> {
        self.with(sock, |socket| {
            socket.sap.configure(&settings.options)?;
            socket.rtime = settings.rtime;
            [socket.transmit.signal, socket.receive.signal] = signals;
            Ok(())
        })
    }

    pub fn xmit(&self, sock: c_int, packet: &Packet) -> Result<(), Answer> {
        self.begin(sock, |socket| {
            socket.transmit.idle()?;
            let [sap, station] = packet.address();
            let ticket = socket.sap.try_send(Address { sap, station }, packet.bytes(MAX_INFORMATION)?)?;
            socket.transmit.pending = Some(ticket);
            Ok(())
        })
    }

    pub fn recv(&self, sock: c_int, room: Room) -> Result<(), Answer> {
        self.begin(sock, |socket| {
            socket.receive.idle()?;
            let until = match socket.rtime.is_zero() {
                true => Instant::MAX,
                false => self.clock.now() + socket.rtime,
            };
            socket.receive.pending = Some(Posted { room, until, fresh: true });
            // The library's thread looks for packets that wait, and when this is late.
            socket.sap.station().interrupt();
            Ok(())
        })
    }

    pub fn reset(&self, sock: c_int, direction: Direction) -> Result<(), Answer> {
        self.with(sock, |socket| {
            match direction {
                Direction::Transmit => drop(socket.transmit.end(0)),
                Direction::Receive => drop(socket.receive.end(0)),
            }
            Ok(socket.sap.reset(direction == Direction::Transmit)?)
        })
    }

    pub fn status(&self, sock: c_int, direction: Direction) -> Result<u32, Answer> {
        let status = self.with(sock, |socket| {
            Ok(match direction {
                Direction::Transmit if socket.transmit.pending.is_some() => BUSY | IO,
                Direction::Transmit => socket.transmit.status,
                Direction::Receive if socket.receive.pending.is_some() => BUSY,
                Direction::Receive => socket.receive.status,
            })
        })?;
        if status & BUSY != 0 {
            // Programs ask again and again; the library's thread may want the processor, or the lock.
            thread::yield_now();
        }
        Ok(status)
    }

    /// The library's thread.
    fn run(&self, station: StationSocket) {
        OWN.set(true);
        loop {
            let (due, patience) = {
                let mut state = lock(&self.state);
                if state.station.is_none() {
                    break;
                }
                let now = self.clock.now();
                match state.due(now) {
                    None if state.failed => break,
                    None => (None, state.deadline().map(|at| at.since(now).into())),
                    // Received frames must not starve behind due timers.
                    due => (due, Some(Duration::ZERO)),
                }
            };
            call(due.flatten());
            match station.next_event(patience) {
                Ok(event) => {
                    let signal = lock(&self.state).received(event);
                    call(signal);
                }
                Err(Error::TimedOut) => {}
                Err(_) => lock(&self.state).failed = true,
            }
        }
        station.end();
    }
}

/// Half the number of a socket.
fn socket_index(sock: c_int) -> Result<usize, Answer> {
    match sock {
        2..=254 if sock % 2 == 0 => Ok(sock as usize / 2),
        _ => Err(Answer::Invalid),
    }
}

impl State {
    /// An open socket.
    fn socket(&mut self, sock: c_int) -> Result<&mut Socket, Answer> {
        let at = socket_index(sock)?;
        if self.station.is_none() {
            return Err(Answer::NoNetwork);
        }
        self.sockets[at].as_mut().ok_or(Answer::Invalid)
    }
}

// What the library's thread does.
impl State {
    /// Ends one operation that ends without an event; whom to tell, if there was one.
    fn due(&mut self, now: Instant) -> Option<Signal> {
        for _ in 0..self.sockets.len() {
            self.turn = (self.turn + 1) % self.sockets.len();
            let Some(socket) = &mut self.sockets[self.turn] else { continue };
            if self.failed && socket.transmit.pending.is_some() {
                return Some(socket.transmit.end(FAIL));
            }
            let Some(posted) = &mut socket.receive.pending else { continue };
            let (fresh, late) = (std::mem::take(&mut posted.fresh), posted.until <= now);
            if fresh && let Some(signal) = socket.take(&mut self.packet) {
                return Some(signal);
            }
            if self.failed || late {
                return Some(socket.receive.end(if late { FAIL | LATE } else { FAIL }));
            }
        }
        None
    }

    /// When the next operation is late.
    fn deadline(&self) -> Option<Instant> {
        let posted = self.sockets.iter().flatten().filter_map(|socket| socket.receive.pending.as_ref());
        posted.map(|posted| posted.until).min().filter(|until| *until < Instant::MAX)
    }

    /// Handles an event; returns the signal function to call.
    fn received(&mut self, event: Event) -> Signal {
        match event {
            Event::Sent { sap, ticket, outcome, .. } => {
                let socket = self.sockets[usize::from(sap / 2)].as_mut()?;
                // It may have been reset.
                socket.transmit.pending.take_if(|pending| *pending == ticket)?;
                socket.transmit.end(match outcome {
                    Outcome::Done => 0,
                    Outcome::Late => FAIL | LATE,
                    Outcome::Unanswered | Outcome::Refused(_) | Outcome::Reset | Outcome::Failed => FAIL,
                })
            }
            Event::Readable { sap } => self.sockets[usize::from(sap / 2)].as_mut()?.take(&mut self.packet)?,
            Event::Writable { .. } | Event::Tested { .. } | Event::Identified { .. } => None,
        }
    }
}

impl Socket {
    /// Ends the receive operation with a packet, if both are there; whom to tell.
    fn take(&mut self, packet: &mut Vec<u8>) -> Option<Signal> {
        self.receive.pending.as_ref()?;
        let received = self.sap.try_receive(packet).ok()?;
        let posted = self.receive.pending.take()?;
        let whole = posted.room.fill([received.from.sap, received.from.station], packet);
        Some(self.receive.end(if whole { 0 } else { FAIL }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes an operation that has not begun when the network fails; otherwise it would never end.
    #[test]
    fn nothing_begins_on_a_network_that_has_failed() {
        let network = "udp:239.77.9.0:31000".parse().unwrap();
        let station = StationSocket::to(&network, 1, &socket::Settings::default()).unwrap();
        let library = Library::start(station, 1).unwrap();
        library.open(4).unwrap();
        lock(&library.state).failed = true;
        let begun = library.begin(4, |_| panic!("it begins"));
        assert_eq!(begun, Err(Answer::NoNetwork));
        assert_eq!(library.status(4, Direction::Transmit), Ok(0));
        library.stop();
    }
}
