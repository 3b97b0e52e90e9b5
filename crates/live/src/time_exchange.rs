//! Exchanges of time over UDP, between a controller and the process of a run on another machine.
//!
//! They are shorter than exchanges over TLS, and have arrival times of the kernel, so the offset of the clocks is known to
//! half of a short round trip. A request and its answer have the same length, [`LENGTH`] (72 bytes). Numbers are in
//! network byte order; times are readings of `CLOCK_MONOTONIC_RAW` in nanoseconds.
//!
//! | offset | length | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic: `TLTM` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | kind: 1 request, 2 answer |
//! | 6 | 2 | reserved: 0 |
//! | 8 | 8 | run |
//! | 16 | 8 | number of the request: the first is 1, each later one is higher |
//! | 24 | 8 | answer: when the request arrived |
//! | 32 | 8 | answer: when the answer left |
//! | 40 | 8 | answer: reading of `CLOCK_MONOTONIC` minus that of `CLOCK_MONOTONIC_RAW`, signed |
//! | 48 | 8 | reserved: 0 |
//! | 56 | 16 | HMAC-SHA-256 over bytes 0 to 55, its first 16 bytes |
//!
//! The responder answers each number once, only the controller's address, and at most 100 requests in a second.

use std::io;
use std::net::{IpAddr, SocketAddr};

use hmac::Mac;
use serde::{Deserialize, Serialize};
pub use trunkline_io::clock::raw_ns;
use trunkline_io::clock::{monotonic_ns, wall_clock_ns};
use trunkline_io::timestamped::{Received, TimestampedSocket};
use trunkline_io::{SocketError, socket};
use trunkline_units::{Instant, Span};

use crate::consent::{RunId, RunKey};

/// Length of a request and of an answer in bytes.
pub const LENGTH: usize = 72;

const MAGIC: [u8; 4] = *b"TLTM";
const VERSION: u8 = 1;
const KIND_AT: usize = 5;
const MAC_AT: usize = 56;
const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
/// Mean time between answers, if there are more requests, and how far answers may run ahead of it.
const ANSWER_INTERVAL: Span = Span::from_ms(10);
const ANSWER_TOLERANCE: Span = Span::from_ms(200);

/// What an agent knows about the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeAnswer {
    /// When the request arrived, by the clock `CLOCK_MONOTONIC_RAW` in nanoseconds.
    pub received_ns: u64,
    /// When the answer left.
    pub replied_ns: u64,
    /// The reading of `CLOCK_MONOTONIC` minus that of `CLOCK_MONOTONIC_RAW`.
    pub monotonic_minus_raw_ns: i64,
}

/// Permission to ask for the time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeGrant {
    /// Identifies the run.
    pub run: RunId,
    /// The key that requests and answers have.
    pub key: RunKey,
    /// The address of the controller.
    pub source: IpAddr,
}

/// Returns the reading of `CLOCK_MONOTONIC` minus that of `CLOCK_MONOTONIC_RAW`.
pub fn monotonic_minus_raw_ns() -> i64 {
    difference_to_raw(monotonic_ns)
}

/// Returns the reading of a clock minus that of `CLOCK_MONOTONIC_RAW`.
fn difference_to_raw(clock_ns: fn() -> u64) -> i64 {
    // The shorter of two attempts: an interruption between the readings would be an error.
    let attempt = || {
        let before = raw_ns();
        let other = clock_ns();
        let after = raw_ns();
        (after - before, other.wrapping_sub(before + (after - before) / 2) as i64)
    };
    let (first, second) = (attempt(), attempt());
    if first.0 <= second.0 { first.1 } else { second.1 }
}

/// Returns when a datagram arrived, by `CLOCK_MONOTONIC_RAW`.
fn arrival_ns(received: &Received) -> u64 {
    let now = raw_ns();
    let Some(unix) = received.unix else { return now };
    let unix_ns = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
    // A wall clock that was set in between must not give times that are not yet.
    let arrival = unix_ns.wrapping_sub(difference_to_raw(wall_clock_ns) as u64);
    if now.wrapping_sub(arrival) < 100_000_000 { arrival } else { now }
}

struct Datagram {
    kind: u8,
    run: RunId,
    number: u64,
    fields: [u64; 3],
}

impl Datagram {
    fn encode(&self, key: &RunKey) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[KIND_AT] = self.kind;
        bytes[8..16].copy_from_slice(&self.run.0);
        let numbers = [&[self.number], &self.fields[..]].concat();
        for (number, at) in numbers.iter().zip((16..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&number.to_be_bytes());
        }
        let mac = mac(key, &bytes[..MAC_AT]).finalize().into_bytes();
        bytes[MAC_AT..].copy_from_slice(&mac[..LENGTH - MAC_AT]);
        bytes
    }

    fn decode(key: &RunKey, bytes: &[u8]) -> Option<Datagram> {
        let bytes: &[u8; LENGTH] = bytes.try_into().ok()?;
        let head = [&MAGIC[..], &[VERSION, bytes[KIND_AT], 0, 0]].concat();
        if bytes[..8] != head || bytes[48..MAC_AT] != [0; 8] {
            return None;
        }
        mac(key, &bytes[..MAC_AT]).verify_truncated_left(&bytes[MAC_AT..]).ok()?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let run = RunId(std::array::from_fn(|i| bytes[8 + i]));
        Some(Datagram {
            kind: bytes[KIND_AT],
            run,
            number: number(16),
            fields: [number(24), number(32), number(40)],
        })
    }
}

fn mac(key: &RunKey, bytes: &[u8]) -> hmac::Hmac<sha2::Sha256> {
    key.keyed(b"trunkline time").chain_update(bytes)
}

/// Answers requests for the time.
pub(crate) struct TimeResponder {
    grant: TimeGrant,
    last_number: u64,
    /// When the next answer is due at the mean rate (GCRA, ITU-T I.371: theoretical arrival time).
    theoretical_at: Instant,
}

impl TimeResponder {
    pub fn new(grant: TimeGrant) -> TimeResponder {
        TimeResponder { grant, last_number: 0, theoretical_at: Instant::ZERO }
    }

    /// Returns the answer to a datagram, if it is a request to be answered.
    pub fn answer(&mut self, received: &Received, bytes: &[u8]) -> Option<[u8; LENGTH]> {
        let arrival = arrival_ns(received);
        self.answer_at(Instant::from_ns(arrival % (u64::MAX / 1_000)), arrival, received.from.ip(), bytes)
    }

    fn answer_at(&mut self, now: Instant, arrival: u64, from: IpAddr, bytes: &[u8]) -> Option<[u8; LENGTH]> {
        let request = Datagram::decode(&self.grant.key, bytes)?;
        let is_expected = request.kind == REQUEST
            && request.run == self.grant.run
            && request.number > self.last_number
            && from.to_canonical() == self.grant.source.to_canonical()
            && self.theoretical_at <= now + ANSWER_TOLERANCE;
        if !is_expected {
            return None;
        }
        self.theoretical_at = self.theoretical_at.max(now) + ANSWER_INTERVAL;
        self.last_number = request.number;
        let difference = monotonic_minus_raw_ns();
        let fields = [arrival, raw_ns(), difference as u64];
        Some(Datagram { kind: ANSWER, fields, ..request }.encode(&self.grant.key))
    }
}

/// Asks for the time.
#[derive(Debug)]
pub struct TimeRequester {
    socket: TimestampedSocket,
    agent: SocketAddr,
    run: RunId,
    key: RunKey,
    last_number: u64,
    /// When the last request was sent.
    sent_ns: u64,
}

impl TimeRequester {
    /// Opens a socket at the own address, which the agent has been given.
    pub fn open(agent: SocketAddr, grant: &TimeGrant) -> Result<TimeRequester, SocketError> {
        let socket = TimestampedSocket::open(SocketAddr::new(grant.source, 0), &socket::Options::default())?;
        let TimeGrant { run, key, .. } = grant.clone();
        Ok(TimeRequester { socket, agent, run, key, last_number: 0, sent_ns: 0 })
    }

    /// Sends a request and waits for its answer. Returns the own readings at the departure and at the arrival with it; none
    /// if there is none within `limit`.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn exchange(&mut self, limit: Span) -> io::Result<Option<(u64, u64, TimeAnswer)>> {
        self.last_number += 1;
        let request = Datagram { kind: REQUEST, run: self.run, number: self.last_number, fields: [0; 3] };
        let request = request.encode(&self.key);
        self.sent_ns = raw_ns();
        // A request that cannot be sent is one that is lost.
        let _ = self.socket.socket().send_to(&request, self.agent);
        let deadline = self.sent_ns.saturating_add(limit.as_ns());
        let mut buffer = [0; LENGTH + 1];
        loop {
            let left = deadline.saturating_sub(raw_ns());
            if left == 0 {
                return Ok(None);
            }
            socket::readable(self.socket.socket(), Span::from_ns(left))?;
            while let Some(received) = self.socket.receive(&mut buffer)? {
                let arrival = arrival_ns(&received);
                if let Some(answer) = self.accept(&received, &buffer[..received.length]) {
                    return Ok(Some((self.sent_ns, arrival, answer)));
                }
            }
        }
    }

    /// Returns the times of an answer, if a datagram is the one to the last request.
    fn accept(&self, received: &Received, bytes: &[u8]) -> Option<TimeAnswer> {
        let answer = Datagram::decode(&self.key, bytes)?;
        let is_expected = answer.kind == ANSWER
            && answer.run == self.run
            && answer.number == self.last_number
            && received.from.ip().to_canonical() == self.agent.ip().to_canonical();
        let [received_ns, replied_ns, difference] = answer.fields;
        let monotonic_minus_raw_ns = difference as i64;
        is_expected.then_some(TimeAnswer { received_ns, replied_ns, monotonic_minus_raw_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn grant() -> TimeGrant {
        TimeGrant { run: RunId([1; 8]), key: RunKey::new([2; 32]), source: HOST }
    }

    fn request(number: u64) -> [u8; LENGTH] {
        Datagram { kind: REQUEST, run: grant().run, number, fields: [0; 3] }.encode(&grant().key)
    }

    #[test]
    fn each_request_of_the_controller_is_answered_once() {
        let mut responder = TimeResponder::new(grant());
        let at = |ms| Instant::ZERO + Span::from_ms(ms);
        let mut ask = |ms, from: IpAddr, bytes: &[u8]| responder.answer_at(at(ms), 77, from, bytes);
        assert!(ask(1_000, "127.0.0.2".parse().unwrap(), &request(1)).is_none(), "another host");
        let answer = ask(1_000, HOST, &request(1)).expect("an answer");
        let decoded = Datagram::decode(&grant().key, &answer).unwrap();
        assert_eq!((decoded.kind, decoded.number, decoded.fields[0]), (ANSWER, 1, 77));
        assert!(ask(1_000, HOST, &request(1)).is_none(), "a repetition");
        assert!(ask(1_000, HOST, &answer).is_none(), "an answer");
        for at in 0..LENGTH {
            let mut altered = request(2);
            altered[at] ^= 1;
            assert!(ask(1_000, HOST, &altered).is_none(), "byte {at}");
            assert!(ask(1_000, HOST, &request(2)[..at]).is_none(), "{at} bytes");
        }
        // A burst of 20, then 100 a second.
        let answered = (3..200).filter(|number| ask(1_000, HOST, &request(*number)).is_some()).count();
        assert!((18..=21).contains(&answered), "{answered}");
        assert!(ask(3_000, HOST, &request(1_000)).is_some());
    }

    #[test]
    fn arrival_times_do_not_follow_a_clock_that_was_set() {
        let from = SocketAddr::new(HOST, 1);
        let received = |unix| Received { from, length: 1, ttl: None, unix };
        let now = raw_ns();
        for unix in [None, Some(std::time::Duration::ZERO), Some(std::time::Duration::MAX)] {
            assert!(arrival_ns(&received(unix)) >= now, "{unix:?}");
        }
    }
}
