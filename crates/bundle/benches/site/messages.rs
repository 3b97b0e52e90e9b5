//! Messages that know when they were sent, and what is noted of those that come.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBufForce;
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

/// Octets of a message's body: with its address 150 bytes, the thesis's typical message. It is a PDU of DIS.
pub const BODY: usize = 148;
/// Where the moment stands, and whether it has priority.
const MOMENT: std::ops::Range<usize> = 16..24;
const PRIORITY: usize = 24;
/// Octets that may wait in a socket.
pub const BUFFER: usize = 16 << 20;
/// How often who sends looks at the clock at the least.
const PULSE: Duration = Duration::from_micros(500);

/// The body of a message that is sent now.
pub fn body(now: Instant, priority: bool) -> [u8; BODY] {
    let mut body = [0x55; BODY];
    // Version 7, exercise 1, Data (20), simulation management (5), and its length.
    body[..4].copy_from_slice(&[7, 1, 20, 5]);
    body[8..10].copy_from_slice(&(BODY as u16).to_be_bytes());
    body[MOMENT].copy_from_slice(&now.since(Instant::ZERO).as_ns().to_le_bytes());
    body[PRIORITY] = priority.into();
    body
}

/// Lets what is sent never wait for who receives, as on a wire: between namespaces what the other interface has not taken
/// yet fills the sender's buffer.
pub fn without_waiting(socket: UdpSocket) -> UdpSocket {
    setsockopt(&socket, SndBufForce, &BUFFER).expect("root may have any buffer");
    socket
}

/// Messages that may leave at once: who sends many is many, and when the machine has stood still they do not all speak at the
/// same moment. What is behind by more is sent later, and the rate told is the one that was.
const TOGETHER: u64 = 64;

/// Has a message sent whenever one is due, and something done at every look at the clock; how many were.
pub fn paced(rate: u32, time: Span, clock: Clock, mut each: impl FnMut(Option<Instant>)) -> u64 {
    // Messages of many are no bursts.
    trunkline_io::pace::no_slack();
    let (begun, mut sent) = (clock.now(), 0u64);
    // Messages given up while the machine stood still.
    let mut behind = 0;
    loop {
        let now = clock.now();
        if now >= begun + time {
            return sent;
        }
        let due = ((now.since(begun).as_s() * f64::from(rate)) as u64 + 1).saturating_sub(behind);
        let leaves = due.saturating_sub(sent).min(TOGETHER);
        (0..leaves).for_each(|_| each(Some(now)));
        sent += leaves;
        behind += due.saturating_sub(sent);
        each(None);
        let next = begun + Span::from_seconds((sent + behind) as f64 / f64::from(rate));
        let now = clock.now();
        thread::sleep(Duration::from(next.max(now).since(now)).min(PULSE));
    }
}

/// What came.
#[derive(Debug)]
pub struct Noted {
    clock: Clock,
    every: u64,
    pub messages: u64,
    /// Delays, in seconds: of ordinary messages, and of those with priority.
    pub delays: [Vec<f64>; 2],
}

impl Noted {
    /// Every so manieth message tells its delay: to look at the clock costs, too.
    pub fn new(clock: Clock, every: u64) -> Noted {
        Noted {
            clock,
            every,
            messages: 0,
            delays: [Vec::with_capacity(1 << 18), Vec::with_capacity(1 << 16)],
        }
    }

    /// Notes a message by its body.
    pub fn note(&mut self, body: &[u8]) {
        if body.len() != BODY {
            return;
        }
        self.messages += 1;
        if self.messages.is_multiple_of(self.every) {
            let sent = u64::from_le_bytes(body[MOMENT].try_into().expect("eight octets"));
            let delay = self.clock.now().since(Instant::from_ns(sent));
            self.delays[usize::from(body[PRIORITY])].push(delay.as_s());
        }
    }
}

/// The share of sorted figures that is at most this; 0 of none.
pub fn quantile(sorted: &[f64], of: f64) -> f64 {
    sorted.get((sorted.len() as f64 * of) as usize).copied().unwrap_or(0.0)
}
