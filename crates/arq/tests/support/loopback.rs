//! The loopback as a stage: real sockets and a real clock, which runs faster than others so that timeouts take no ages.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use trunkline_arq::{Event, Refusal};
use trunkline_endpoint::pair::{Ended, PEER_A, PEER_B};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Port, Writable};
use trunkline_io::datagrams::BUFFER_SIZE;
use trunkline_io::{Clock, Datagrams, socket};
use trunkline_units::{Instant, Span};

use super::host::{Host, Order};
use super::plan::Plan;
use super::scenario::{self, Stage};

/// Seconds of the ends in one of the world.
const HASTE: u64 = 20;
/// What a look at both sockets costs, nearly: less of a rest than this is none.
const LOOK: Span = Span::from_us(100);

struct Side {
    host: Host,
    socket: Datagrams,
    deadline: Option<Instant>,
    events: Vec<(Instant, Event)>,
}

pub struct Loopback {
    sides: [Side; 2],
    clock: Clock,
    buffer: Vec<u8>,
    room: Vec<u8>,
    /// Nothing was on its way when it was last looked at.
    quiet: bool,
}

impl Loopback {
    pub fn new(plan: &Plan) -> Loopback {
        let sides = scenario::hosts(plan).map(|host| {
            let at = "127.0.0.1:0".parse().expect("an address");
            let socket = Datagrams::bind(at, &socket::Options::default()).expect("a socket");
            socket.socket().set_nonblocking(true).expect("a socket");
            Side { host, socket, deadline: None, events: Vec::new() }
        });
        let (buffer, room) = (vec![0; MAX_BATCH], vec![0; BUFFER_SIZE]);
        Loopback { sides, clock: Clock::start(), buffer, room, quiet: false }
    }

    fn drain(&mut self, end: usize, now: Instant) {
        let to = self.sides[1 - end].socket.local();
        let Side { host, socket, deadline, events } = &mut self.sides[end];
        loop {
            match host.poll(now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(t) => {
                    // A full socket loses it.
                    let _ = socket.send(to, &self.buffer[..t.length], t.segment);
                    self.quiet = false;
                }
                Output::Event(event) => events.push((now, event)),
                Output::Idle(idle) => break *deadline = idle.deadline,
            }
        }
    }

    /// Takes what has come and does what is due.
    fn look(&mut self, end: usize) {
        let now = self.now();
        while let Ok(Some(arrived)) = self.sides[end].socket.receive(&mut self.room, false) {
            let (bytes, segment) = (&self.room[..arrived.length], arrived.segment());
            if bytes.is_empty() {
                continue;
            }
            self.quiet = false;
            let peer = [PEER_B, PEER_A][end];
            let frame = Input::Frame { port: Port(0), peer, bytes, segment };
            self.sides[end].host.handle(now, frame).expect("only commands are refused");
        }
        if self.sides[end].deadline.is_some_and(|at| at <= now) {
            self.sides[end].host.handle(now, Input::Wake).expect("only commands are refused");
        }
        self.drain(end, now);
    }
    /// Until something comes or the time is up.
    fn wait(&self, time: Span) {
        let mut fds = [0, 1].map(|end| PollFd::new(self.sides[end].socket.as_fd(), PollFlags::POLLIN));
        ppoll(&mut fds, Some(TimeSpec::from_duration(time.into())), None).expect("sockets can be waited for");
    }
}

impl Stage for Loopback {
    fn order(&mut self, end: usize, order: Order<'_>) -> Result<(), Refusal> {
        let now = self.now();
        self.sides[end].host.handle(now, Input::Command(order))
    }

    fn host(&self, end: usize) -> &Host {
        &self.sides[end].host
    }

    fn take_events(&mut self, end: usize) -> Vec<(Instant, Event)> {
        std::mem::take(&mut self.sides[end].events)
    }

    fn run(&mut self, span: Span) -> Ended {
        let end = self.now() + span;
        loop {
            self.quiet = true;
            self.look(0);
            self.look(1);
            let now = self.now();
            let next = self.sides.iter().filter_map(|side| side.deadline).min();
            if self.quiet && next.is_none() {
                return Ended::Quiet;
            }
            if now >= end {
                return Ended::Limit;
            }
            let until = next.unwrap_or(end).min(end);
            if self.quiet && until > now + LOOK * HASTE {
                self.wait(until.since(now) / HASTE);
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.clock.now().as_ps() * HASTE)
    }
}
