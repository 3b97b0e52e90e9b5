//! The sender: messages at a rate, unbundled or in bundles.

use std::net::UdpSocket;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trunkline_bundle::bundler::{Bundler, Timing};
use trunkline_bundle::wire::classic::host_bit;
use trunkline_io::{Clock, socket};
use trunkline_units::{Instant, Span};

use crate::host::{CENTRAL, LISTEN};
use crate::link::ADDRESSES;
use crate::messages::{BODY, body, paced, with_large_send_buffer};
use crate::{GROUP, PORT};

/// Octets of a bundle.
const BUNDLE: usize = 16_384;
/// Time for messages in flight, and for those that the interface delays.
const DRAIN_TIME: Duration = Duration::from_millis(50);

/// Sends for a time after both sides are `ready`; returns the number of messages and the time taken. Then sets
/// `stop`, and wakes the receiver until it has `finished`.
pub fn send(
    bundles: Option<Timing>,
    rate: u32,
    time: Span,
    clock: Clock,
    (ready, stop, finished): (&Barrier, &AtomicBool, &AtomicBool),
) -> (u64, Span) {
    let socket = match bundles {
        // The host sends its own bundles here.
        Some(_) => UdpSocket::bind((ADDRESSES[0], CENTRAL)).expect("the port is free"),
        None => {
            socket::multicast_sender(ADDRESSES[0].into(), 1, &socket::Options::default()).expect("it sends")
        }
    };
    let socket = with_large_send_buffer(socket);
    let to = if bundles.is_some() { (ADDRESSES[1], LISTEN) } else { (GROUP, PORT) };
    socket.connect(to).expect("an address");
    ready.wait();
    let start = clock.now();
    let sent = match bundles {
        Some(timing) => send_bundles(&socket, timing, rate, time, clock),
        None => {
            let mut datagram = [0; BODY + 2];
            paced(rate, time, clock, |message| {
                if let Some(now) = message {
                    datagram[2..].copy_from_slice(&body(now, false));
                    // A message that the host's buffer cannot hold is lost, and counted there.
                    let _ = socket.send(&datagram);
                }
            })
        }
    };
    let elapsed = clock.now().since(start);
    thread::sleep(DRAIN_TIME);
    stop.store(true, Ordering::Relaxed);
    while !finished.load(Ordering::Relaxed) {
        let _ = socket.send(&[0]);
        thread::sleep(Duration::from_millis(5));
    }
    (sent, elapsed)
}

/// Sends bundles like a central converter.
fn send_bundles(socket: &UdpSocket, timing: Timing, rate: u32, time: Span, clock: Clock) -> u64 {
    let mut gather = Bundler::new(None, BUNDLE, timing);
    let mut buffer = vec![0; BUNDLE];
    let mut flush = |gather: &mut Bundler, now: Instant| {
        gather.close_if_due(now);
        while let Some(octets) = gather.write_next(now, &mut buffer) {
            let _ = socket.send(&buffer[..octets]);
        }
    };
    let sent = paced(rate, time, clock, |message| {
        let now = message.unwrap_or_else(|| clock.now());
        if message.is_some() {
            gather.push(now, host_bit(1), &body(now, false), false, None);
        }
        flush(&mut gather, now);
    });
    flush(&mut gather, clock.now() + Span::from_s(1));
    sent
}
