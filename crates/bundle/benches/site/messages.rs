//! Messages with a timestamp, and the samples of received ones.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::SndBufForce;
use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

/// Octets of a message body: with its address 150 bytes, the typical message of the thesis. It is a DIS PDU.
pub const BODY: usize = 148;
/// The offsets of timestamp and priority.
const TIMESTAMP: std::ops::Range<usize> = 16..24;
const PRIORITY: usize = 24;
/// Octets of socket buffers.
pub const BUFFER: usize = 16 << 20;
/// The longest time between two looks of the sender at the clock.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Returns the body of a message sent now.
pub fn body(now: Instant, priority: bool) -> [u8; BODY] {
    let mut body = [0x55; BODY];
    // Version 7, exercise 1, Data PDU (20), simulation management (5), and the length.
    body[..4].copy_from_slice(&[7, 1, 20, 5]);
    body[8..10].copy_from_slice(&(BODY as u16).to_be_bytes());
    body[TIMESTAMP].copy_from_slice(&now.since(Instant::ZERO).as_ns().to_le_bytes());
    body[PRIORITY] = priority.into();
    body
}

/// Sets a send buffer that never blocks the sender, as on a wire: between namespaces, packets that the other
/// interface has not taken yet fill the sender's buffer.
pub fn with_large_send_buffer(socket: UdpSocket) -> UdpSocket {
    setsockopt(&socket, SndBufForce, &BUFFER).expect("root may have any buffer");
    socket
}

/// The largest burst. It stands for many senders, which would not send at the same moment after a pause of the
/// machine. Messages beyond it are skipped, and the actual rate is reported.
const MAX_BURST: u64 = 64;

/// Calls `each` with the time for every due message, and with `None` after every look at the clock; returns the
/// number of messages.
pub fn paced(rate: u32, time: Span, clock: Clock, mut each: impl FnMut(Option<Instant>)) -> u64 {
    // Timer slack would cause bursts.
    trunkline_io::pace::minimize_timer_slack();
    let (start, mut sent) = (clock.now(), 0u64);
    // Messages skipped after pauses of the machine.
    let mut skipped = 0;
    loop {
        let now = clock.now();
        if now >= start + time {
            return sent;
        }
        let due = ((now.since(start).as_s() * f64::from(rate)) as u64 + 1).saturating_sub(skipped);
        let batch = due.saturating_sub(sent).min(MAX_BURST);
        (0..batch).for_each(|_| each(Some(now)));
        sent += batch;
        skipped += due.saturating_sub(sent);
        each(None);
        let next = start + Span::from_seconds((sent + skipped) as f64 / f64::from(rate));
        let now = clock.now();
        thread::sleep(Duration::from(next.max(now).since(now)).min(POLL_INTERVAL));
    }
}

/// The received messages.
#[derive(Debug)]
pub struct Samples {
    clock: Clock,
    sample_every: u64,
    pub messages: u64,
    /// Delays in seconds, of ordinary and of priority messages.
    pub delays: [Vec<f64>; 2],
}

impl Samples {
    /// Samples the delay of one in `sample_every` messages, since reading the clock costs time, too.
    pub fn new(clock: Clock, sample_every: u64) -> Samples {
        Samples {
            clock,
            sample_every,
            messages: 0,
            delays: [Vec::with_capacity(1 << 18), Vec::with_capacity(1 << 16)],
        }
    }

    /// Records a message.
    pub fn record(&mut self, body: &[u8]) {
        if body.len() != BODY {
            return;
        }
        self.messages += 1;
        if self.messages.is_multiple_of(self.sample_every) {
            let sent = u64::from_le_bytes(body[TIMESTAMP].try_into().expect("eight octets"));
            let delay = self.clock.now().since(Instant::from_ns(sent));
            self.delays[usize::from(body[PRIORITY])].push(delay.as_s());
        }
    }
}

/// Returns a quantile of sorted values, or 0 if there are none.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}
