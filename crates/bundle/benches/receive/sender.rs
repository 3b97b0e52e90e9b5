//! Who sends: messages at a rate, each for itself or gathered in bundles.

use std::net::UdpSocket;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trunkline_bundle::gather::{Gather, Timing};
use trunkline_bundle::wire::classic::bit;
use trunkline_io::{Clock, socket};
use trunkline_units::{Instant, Span};

use crate::host::{CENTRAL, LISTEN};
use crate::line::ENDS;
use crate::messages::{BODY, body, paced, without_waiting};
use crate::{GROUP, PORT};

/// Octets of a bundle.
const BUNDLE: usize = 16_384;
/// Until what is on its way has come, and what the interface holds back.
const AFTER: Duration = Duration::from_millis(50);

/// Sends for a while from when both are `ready`; how many, and how long that took. Then it is `over`, and who receives is woken until that `ended`.
pub fn send(
    bundles: Option<Timing>,
    rate: u32,
    time: Span,
    clock: Clock,
    (ready, over, ended): (&Barrier, &AtomicBool, &AtomicBool),
) -> (u64, Span) {
    let socket = match bundles {
        // The host sends what it wants to here.
        Some(_) => UdpSocket::bind((ENDS[0], CENTRAL)).expect("the port is free"),
        None => socket::multicast_sender(ENDS[0].into(), 1, &socket::Options::default()).expect("it sends"),
    };
    let socket = without_waiting(socket);
    let to = if bundles.is_some() { (ENDS[1], LISTEN) } else { (GROUP, PORT) };
    socket.connect(to).expect("an address");
    ready.wait();
    let begun = clock.now();
    let sent = match bundles {
        Some(timing) => send_bundles(&socket, timing, rate, time, clock),
        None => {
            let mut datagram = [0; BODY + 2];
            paced(rate, time, clock, |message| {
                if let Some(now) = message {
                    datagram[2..].copy_from_slice(&body(now, false));
                    // What the host's buffer cannot hold is lost, and counted there.
                    let _ = socket.send(&datagram);
                }
            })
        }
    };
    let took = clock.now().since(begun);
    thread::sleep(AFTER);
    over.store(true, Ordering::Relaxed);
    while !ended.load(Ordering::Relaxed) {
        let _ = socket.send(&[0]);
        thread::sleep(Duration::from_millis(5));
    }
    (sent, took)
}

/// As a central converter does.
fn send_bundles(socket: &UdpSocket, timing: Timing, rate: u32, time: Span, clock: Clock) -> u64 {
    let mut gather = Gather::new(None, BUNDLE, timing);
    let mut buffer = vec![0; BUNDLE];
    let mut leave = |gather: &mut Gather, now: Instant| {
        gather.roll(now);
        while let Some(octets) = gather.leave(now, &mut buffer) {
            let _ = socket.send(&buffer[..octets]);
        }
    };
    let sent = paced(rate, time, clock, |message| {
        let now = message.unwrap_or_else(|| clock.now());
        if message.is_some() {
            gather.push(now, bit(1), &body(now, false), false);
        }
        leave(&mut gather, now);
    });
    leave(&mut gather, clock.now() + Span::from_s(1));
    sent
}
