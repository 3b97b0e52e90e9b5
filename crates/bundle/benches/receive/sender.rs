//! Who sends: messages at a rate, each for itself or gathered in bundles.

use std::net::UdpSocket;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use trunkline_bundle::gather::{Gather, Timing};
use trunkline_bundle::wire::classic::bit;
use trunkline_units::{Instant, Span};

use crate::host::{CENTRAL, LISTEN};
use crate::{BODY, HOST, SENDER};

/// Octets of a bundle.
const BUNDLE: usize = 8_192;
/// How often it looks at the clock at the least.
const PULSE: Duration = Duration::from_micros(500);

/// Sends for a while; how many.
pub fn send(bundles: bool, rate: u32, time: Duration, ready: &Barrier, over: &AtomicBool) -> u64 {
    // The host sends what it wants to here.
    let socket = UdpSocket::bind((SENDER, CENTRAL)).expect("the port is free");
    socket.connect((HOST, LISTEN)).expect("an address");
    let message = [0x55; BODY + 2];
    let mut gather = Gather::new(None, BUNDLE, Timing::LEAST_PROCESSOR);
    let mut buffer = vec![0; BUNDLE];
    let mut leave = |gather: &mut Gather, now: Instant| {
        gather.roll(now);
        while let Some(octets) = gather.leave(now, &mut buffer) {
            let _ = socket.send(&buffer[..octets]);
        }
    };
    ready.wait();
    let (begun, mut sent) = (Clock::now(), 0u64);
    loop {
        let passed = begun.elapsed();
        let now = Instant::ZERO + Span::from(passed);
        if passed >= time {
            leave(&mut gather, now + Span::from_s(1));
            break;
        }
        let due = (passed.as_secs_f64() * f64::from(rate)) as u64 + 1;
        for _ in sent..due {
            if bundles {
                gather.push(now, bit(1), &message[..BODY], false);
                leave(&mut gather, now);
            } else {
                // What the host's buffer cannot hold is lost, and counted there.
                let _ = socket.send(&message);
            }
        }
        sent = sent.max(due);
        leave(&mut gather, now);
        let next = Duration::from_secs_f64(sent as f64 / f64::from(rate));
        thread::sleep(next.saturating_sub(begun.elapsed()).min(PULSE));
    }
    // What is on its way, and what the interface holds back.
    thread::sleep(Duration::from_millis(50));
    over.store(true, Ordering::Relaxed);
    sent
}
