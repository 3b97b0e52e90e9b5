//! Echo: numbered pings, answered by a stateless server.
//!
//! A frame is `kind u8 | try u8 | number u32 | padding`, big endian; kind 1 is a request, kind 2 an answer. The padding
//! of a request is zeros. An answer is the request with another kind.
//!
//! The [`Client`] has one ping in flight. It retransmits the ping after each timeout, and gives up after
//! [`Config::tries`] tries. The answer returns the number of the try, so a round trip is never measured against the
//! wrong transmission (the ambiguity of Karn and Partridge, SIGCOMM 1987).
//!
//! The [`Server`] answers to the source of a request. It queues at most [`QUEUE`] answers; further requests are lost
//! and counted ([`ServerEvent::Overrun`]).

use std::collections::VecDeque;
use std::convert::Infallible;

use thiserror::Error;
use trunkline_units::{Instant, Span};

use crate::{
    Endpoint, Idle, Input, MAX_BATCH, MAX_SEGMENTS, Output, Peer, Port, Reason, Segment, Transmit, Writable,
};

/// Minimum frame length in bytes: the header.
pub const HEADER: usize = 6;

/// Maximum frame length in bytes: the payload of a UDP datagram in one Ethernet frame.
pub const MAX_FRAME: usize = 1472;

/// Maximum number of answers in a server's queue.
pub const QUEUE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request = 1,
    Answer = 2,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: Kind,
    attempt: u8,
    number: u32,
}

impl Header {
    /// Parses the header; none if `frame` is not of this protocol.
    fn read(frame: &[u8]) -> Option<Header> {
        let (&[kind, attempt, a, b, c, d], _) = frame.split_first_chunk::<HEADER>()?;
        let kind = match kind {
            1 => Kind::Request,
            2 => Kind::Answer,
            _ => return None,
        };
        let whole = attempt > 0 && frame.len() <= MAX_FRAME;
        whole.then_some(Header { kind, attempt, number: u32::from_be_bytes([a, b, c, d]) })
    }

    fn write(self) -> [u8; HEADER] {
        let [a, b, c, d] = self.number.to_be_bytes();
        [self.kind as u8, self.attempt, a, b, c, d]
    }
}

/// Configuration of a [`Client`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The port to send through.
    pub port: Port,
    /// The server.
    pub peer: Peer,
    /// Frame length in bytes, clamped to [`HEADER`] through [`MAX_FRAME`].
    pub length: usize,
    /// Interval between pings. A ping that takes longer delays the next.
    pub interval: Span,
    /// Retransmission timeout, at least 1 ps.
    pub timeout: Span,
    /// Maximum number of transmissions of a ping, at least 1.
    pub tries: u8,
}

/// A command of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send this many pings, the first at once. Numbers continue from the last.
    Start {
        /// Number of pings, at least 1.
        count: u32,
    },
    /// Stop. A ping in flight is forgotten.
    Stop,
}

/// Why a [`Client`] refuses a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The client is sending pings already.
    #[error("pings are being sent already")]
    Busy,
    /// The count is 0.
    #[error("a count of 0 pings")]
    Nothing,
}

/// An event of a [`Client`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A ping was answered.
    Answered {
        /// Number of the ping.
        number: u32,
        /// Transmissions of the ping.
        tries: u8,
        /// Time since the transmission that was answered; none if a later one followed.
        round_trip: Option<Span>,
    },
    /// No try was answered. The client sends no further pings.
    GaveUp {
        /// Number of the ping.
        number: u32,
        /// Transmissions of the ping.
        tries: u8,
    },
    /// The last ping of a [`Command::Start`] was answered.
    Finished,
    /// Frames arrived that are no answers of the protocol, or that another peer sent.
    Malformed {
        /// Frames since the last such event.
        frames: u64,
    },
    /// Answers arrived to pings that were answered or given up before.
    Stray {
        /// Frames since the last such event.
        frames: u64,
    },
}

/// Sends numbered pings.
#[derive(Debug)]
pub struct Client {
    config: Config,
    phase: Phase,
    /// Number of the ping in flight, or of the next.
    number: u32,
    /// Transmissions of this ping so far.
    tries: u8,
    /// Pings left, this one included.
    left: u32,
    /// When this one was due, for the interval.
    due: Instant,
    /// A completed ping that has not been reported. One is enough: `poll` sends the next ping only after it
    /// reports this one.
    outcome: Option<Event>,
    finished: bool,
    malformed: u64,
    stray: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Stopped,
    Resting { until: Instant },
    Sending,
    Waiting { sent: Instant },
}

impl Client {
    /// Creates a client that has not started.
    pub fn new(config: Config) -> Client {
        let config = Config {
            length: config.length.clamp(HEADER, MAX_FRAME),
            timeout: config.timeout.max(Span::from_ps(1)),
            tries: config.tries.max(1),
            ..config
        };
        Client {
            config,
            phase: Phase::Stopped,
            number: 0,
            tries: 0,
            left: 0,
            due: Instant::ZERO,
            outcome: None,
            finished: false,
            malformed: 0,
            stray: 0,
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), Refusal> {
        match command {
            Command::Start { .. } if self.phase != Phase::Stopped => Err(Refusal::Busy),
            Command::Start { count: 0 } => Err(Refusal::Nothing),
            Command::Start { count } => {
                self.left = count;
                self.begin(now);
                Ok(())
            }
            Command::Stop => {
                if matches!(self.phase, Phase::Sending | Phase::Waiting { .. }) {
                    self.number = self.number.wrapping_add(1);
                }
                self.phase = Phase::Stopped;
                Ok(())
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        self.due = now;
        self.tries = 0;
        self.phase = Phase::Sending;
    }

    fn frame(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        let header = Header::read(frame).filter(|h| h.kind == Kind::Answer && peer == self.config.peer);
        let Some(header) = header else { return self.malformed += 1 };
        // While a retransmission waits for the port, the answer to an earlier try is still accepted.
        let sent = match self.phase {
            Phase::Waiting { sent } => Some(sent),
            Phase::Sending if self.tries > 0 => None,
            _ => return self.stray += 1,
        };
        if header.number != self.number || header.attempt > self.tries {
            return self.stray += 1;
        }
        let round_trip = sent.filter(|_| header.attempt == self.tries).map(|sent| now.since(sent));
        self.outcome = Some(Event::Answered { number: self.number, tries: self.tries, round_trip });
        self.advance(now);
    }

    /// Continues with the next ping, or finishes.
    fn advance(&mut self, now: Instant) {
        self.number = self.number.wrapping_add(1);
        self.left -= 1;
        let next = self.due + self.config.interval;
        if self.left == 0 {
            self.finished = true;
            self.phase = Phase::Stopped;
        } else if next > now {
            self.phase = Phase::Resting { until: next };
        } else {
            self.begin(now);
        }
    }

    fn wake(&mut self, now: Instant) {
        match self.phase {
            Phase::Resting { until } if now >= until => self.begin(until),
            Phase::Waiting { sent } if now >= sent + self.config.timeout => {
                if self.tries < self.config.tries {
                    self.phase = Phase::Sending;
                    return;
                }
                self.outcome = Some(Event::GaveUp { number: self.number, tries: self.tries });
                self.number = self.number.wrapping_add(1);
                self.phase = Phase::Stopped;
            }
            _ => {}
        }
    }

    fn event(&mut self) -> Option<Event> {
        if let Some(outcome) = self.outcome.take() {
            return Some(outcome);
        }
        if std::mem::take(&mut self.finished) {
            return Some(Event::Finished);
        }
        let malformed = take_count(&mut self.malformed).map(|frames| Event::Malformed { frames });
        malformed.or_else(|| take_count(&mut self.stray).map(|frames| Event::Stray { frames }))
    }

    fn send(&mut self, now: Instant, buffer: &mut [u8]) -> Transmit {
        self.tries += 1;
        self.phase = Phase::Waiting { sent: now };
        let Config { port, peer, length, .. } = self.config;
        let (header, padding) = buffer[..length].split_at_mut(HEADER);
        header.copy_from_slice(
            &Header { kind: Kind::Request, attempt: self.tries, number: self.number }.write(),
        );
        padding.fill(0);
        Transmit { port, peer, length, segment: None }
    }

    fn idle(&self) -> Idle {
        let (deadline, reason) = match self.phase {
            Phase::Stopped => (None, Reason::Input),
            Phase::Resting { until } => (Some(until), Reason::Time),
            Phase::Sending => (None, Reason::Port(self.config.port)),
            Phase::Waiting { sent } => (Some(sent + self.config.timeout), Reason::Input),
        };
        Idle { deadline, reason }
    }
}

impl Endpoint for Client {
    type Command<'a> = Command;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Command>) -> Result<(), Refusal> {
        match input {
            Input::Frame { peer, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|frame| self.frame(now, peer, frame));
            }
            Input::Command(command) => self.command(now, command)?,
            Input::Wake => self.wake(now),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if let Some(event) = self.event() {
            return Output::Event(event);
        }
        if self.phase == Phase::Sending && writable.has(self.config.port) {
            return Output::Transmit(self.send(now, buffer));
        }
        Output::Idle(self.idle())
    }
}

/// Resets a counter; returns its value unless that is 0.
fn take_count(counter: &mut u64) -> Option<u64> {
    Some(std::mem::take(counter)).filter(|count| *count > 0)
}

/// An event of a [`Server`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Frames arrived that are no requests of the protocol.
    Malformed {
        /// Frames since the last such event.
        frames: u64,
    },
    /// Requests were lost because the queue was full.
    Overrun {
        /// Frames since the last such event.
        frames: u64,
    },
}

/// Answers pings. It takes no commands, stores no state about clients, and has no timer.
#[derive(Debug, Default)]
pub struct Server {
    waiting: VecDeque<Answer>,
    /// Buffers of answers that were sent, for reuse.
    spare: Vec<Vec<u8>>,
    answered: u64,
    malformed: u64,
    overrun: u64,
}

#[derive(Debug)]
struct Answer {
    port: Port,
    peer: Peer,
    bytes: Vec<u8>,
}

impl Server {
    /// Creates a server.
    pub fn new() -> Server {
        Server::default()
    }

    /// Returns the number of answers sent.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    fn frame(&mut self, port: Port, peer: Peer, frame: &[u8]) {
        let header = Header::read(frame).filter(|h| h.kind == Kind::Request);
        let Some(header) = header else { return self.malformed += 1 };
        if self.waiting.len() == QUEUE {
            return self.overrun += 1;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        bytes[..HEADER].copy_from_slice(&Header { kind: Kind::Answer, ..header }.write());
        self.waiting.push_back(Answer { port, peer, bytes });
    }

    fn event(&mut self) -> Option<ServerEvent> {
        let malformed = take_count(&mut self.malformed).map(|frames| ServerEvent::Malformed { frames });
        malformed.or_else(|| take_count(&mut self.overrun).map(|frames| ServerEvent::Overrun { frames }))
    }

    /// Moves the answer at `at` from the queue to the buffer, together with those directly behind it that fit the batch.
    fn send(&mut self, at: usize, buffer: &mut [u8]) -> Transmit {
        let Answer { port, peer, ref bytes } = self.waiting[at];
        let length = bytes.len();
        let mut total = 0;
        for _ in 0..MAX_SEGMENTS {
            let fits = |next: &Answer| {
                next.port == port
                    && next.peer == peer
                    && next.bytes.len() == length
                    && total + length <= MAX_BATCH
            };
            if !self.waiting.get(at).is_some_and(fits) {
                break;
            }
            let answer = self.waiting.remove(at).expect("it was just seen");
            buffer[total..total + length].copy_from_slice(&answer.bytes);
            total += length;
            self.answered += 1;
            self.spare.push(answer.bytes);
        }
        Transmit { port, peer, length: total, segment: Segment::of(length, total) }
    }
}

impl Endpoint for Server {
    type Command<'a> = Infallible;
    type Event = ServerEvent;
    type Refusal = Infallible;

    fn handle(&mut self, _: Instant, input: Input<'_, Infallible>) -> Result<(), Infallible> {
        if let Input::Frame { port, peer, bytes, segment } = input {
            Segment::frames(segment, bytes).for_each(|frame| self.frame(port, peer, frame));
        }
        Ok(())
    }

    fn poll(&mut self, _: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<ServerEvent> {
        if let Some(event) = self.event() {
            return Output::Event(event);
        }
        // A port that is not writable does not delay frames of other ports.
        if let Some(at) = self.waiting.iter().position(|answer| writable.has(answer.port)) {
            return Output::Transmit(self.send(at, buffer));
        }
        let reason = self.waiting.front().map_or(Reason::Input, |answer| Reason::Port(answer.port));
        Output::Idle(Idle { deadline: None, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encoding() {
        let header = Header { kind: Kind::Request, attempt: 3, number: 0x0102_0304 };
        assert_eq!(header.write(), [1, 3, 1, 2, 3, 4]);
        assert_eq!(Header::read(&header.write()), Some(header));
        for bad in [&[1, 3, 1, 2, 3][..], &[3, 1, 0, 0, 0, 0], &[1, 0, 0, 0, 0, 0], &[1; MAX_FRAME + 1]] {
            assert_eq!(Header::read(bad), None);
        }
    }

    #[test]
    fn a_full_server_counts_lost_requests() {
        let mut server = Server::new();
        let mut buffer = vec![0; MAX_BATCH];
        let frame = Header { kind: Kind::Request, attempt: 1, number: 0 }.write();
        for _ in 0..QUEUE + 3 {
            let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &frame, segment: None };
            server.handle(Instant::ZERO, input).unwrap();
        }
        let mut poll = |server: &mut Server, writable| server.poll(Instant::ZERO, writable, &mut buffer);
        assert_eq!(poll(&mut server, Writable::NONE), Output::Event(ServerEvent::Overrun { frames: 3 }));
        let blocked = Output::Idle(Idle { deadline: None, reason: Reason::Port(Port(0)) });
        assert_eq!(poll(&mut server, Writable::NONE), blocked);
        let Output::Transmit(transmit) = poll(&mut server, Writable::ALL) else { panic!() };
        assert_eq!(
            (transmit.length, transmit.segment),
            (QUEUE * HEADER, Segment::of(HEADER, QUEUE * HEADER))
        );
        assert_eq!(server.answered(), QUEUE as u64);
    }

    #[test]
    fn a_busy_client_refuses_a_second_start() {
        let mut client = Client::new(Config {
            port: Port(0),
            peer: Peer::NONE,
            length: HEADER,
            interval: Span::from_ms(1),
            timeout: Span::from_ms(1),
            tries: 1,
        });
        let mut command = |command| client.handle(Instant::ZERO, Input::Command(command));
        assert_eq!(command(Command::Start { count: 0 }), Err(Refusal::Nothing));
        assert_eq!(command(Command::Start { count: 1 }), Ok(()));
        assert_eq!(command(Command::Start { count: 1 }), Err(Refusal::Busy));
        assert_eq!(command(Command::Stop), Ok(()));
        assert_eq!(command(Command::Start { count: 1 }), Ok(()));
    }
}
