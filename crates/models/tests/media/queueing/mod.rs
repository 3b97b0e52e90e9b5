//! A link as a queue of theory: Poisson arrivals, constant or exponential service.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Destination, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::media::{Framing, LineOptions, Link};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

use super::common::Packet;

/// Bytes of a mean frame: so many that rounding to bytes does not show.
const MEAN: f64 = 100_000.0;
/// A byte takes 1 ns.
const RATE: Rate = Rate::from_bps(8_000_000_000);

#[derive(Clone, Copy, Debug)]
pub enum Service {
    /// M/D/1.
    Constant,
    /// M/M/1.
    Exponential,
}

/// Mean wait in the queue before service, in mean service times, at load `rho`: Pollaczek and Khinchine.
pub fn theory(service: Service, rho: f64) -> f64 {
    match service {
        Service::Constant => rho / (2.0 * (1.0 - rho)),
        Service::Exponential => rho / (1.0 - rho),
    }
}

fn exponential(stream: &mut Stream, mean: f64) -> f64 {
    -libm::log(stream.unit()) * mean
}

/// Mean wait of `frames` frames before their first bit leaves, in mean service times.
pub fn mean_wait(service: Service, rho: f64, frames: u64) -> f64 {
    let seed = Seed(1996);
    let (mut gaps, mut sizes) = (seed.stream("gap"), seed.stream("size"));
    let options =
        LineOptions { rate: RATE, framing: Framing::NONE, bound: Bound::NONE, ..LineOptions::default() };
    let mut link: Link<Packet> = Link::new([options.clone(), options], [seed.stream("a"), seed.stream("b")]);
    let (mut now, mut deadline, mut waited) = (Instant::ZERO, None, 0.0);
    let mut sent: VecDeque<Instant> = VecDeque::new();
    for id in 0..=frames {
        // After the last frame, for as long as it takes.
        now = if id < frames {
            now + Span::from_ps(exponential(&mut gaps, MEAN / rho * 1e3) as u64)
        } else {
            Instant::MAX
        };
        while let Some(at) = deadline.filter(|at| *at <= now) {
            link.handle(at, MediumInput::Wake);
            deadline = loop {
                match link.poll(at) {
                    MediumOutput::Transmit { frame, .. } => {
                        let spent = sent.pop_front().map_or(Span::ZERO, |sent| at.since(sent));
                        waited += spent.as_ps() as f64 - f64::from(frame.length) * 1e3;
                    }
                    MediumOutput::Idle { deadline } => break deadline,
                    other => panic!("{other:?} on a perfect link"),
                }
            };
        }
        if id == frames {
            break;
        }
        let length = match service {
            Service::Constant => MEAN,
            Service::Exponential => exponential(&mut sizes, MEAN),
        };
        sent.push_back(now);
        link.handle(
            now,
            MediumInput::Frame { port: Port(0), frame: Packet::new(0, length as u32, Destination::All) },
        );
        if let MediumOutput::Idle { deadline: next } = link.poll(now) {
            deadline = next;
        }
    }
    assert!(sent.is_empty());
    waited / frames as f64 / (MEAN * 1e3)
}

/// Holds the measured wait against theory.
pub fn check(service: Service, rho: f64, frames: u64, tolerance: f64) {
    let (found, expected) = (mean_wait(service, rho, frames), theory(service, rho));
    let off = found / expected - 1.0;
    println!("{service:?} at {rho}: {found:.4}, in theory {expected:.4}, off by {:.3} %", off * 100.0);
    assert!(off.abs() < tolerance, "{service:?} at {rho}: {found}, in theory {expected}");
}
