//! Rates of channels at an adapter.

use trunkline_endpoint::{Bound, Frame as _, Medium as _, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{Config, CreditLink, Encapsulation, End, Impairments, Mode, Pacing};
use trunkline_units::{Instant, Rate, Seed, Span};

use super::common::{Packet, mbps};

/// An adapter with 4 packets in the queue of each channel, and a switch port.
fn link() -> CreditLink<Packet> {
    let adapter =
        End::Adapter { pacing: Pacing::None, queue: Bound::NONE, encapsulation: Encapsulation::LlcSnap };
    let config = Config {
        payload: mbps(149.76),
        delay: Span::from_us(10),
        ends: [adapter, End::SwitchPort { queue: Bound::NONE }],
        impairments: [Impairments::default(); 2],
        mode: Mode::Cells,
    };
    let mut link = CreditLink::new(&config, None, ["a", "b"].map(|name| Seed(1).stream(name)));
    link.limit_channels(Port(0), 4);
    link
}

/// Fills the queues of two channels until `end`; returns the arrivals of their cells.
fn fill(link: &mut CreditLink<Packet>, from: Instant, end: Instant) -> [Vec<Instant>; 2] {
    let (mut now, mut serial, mut arrivals) = (from, 0, [Vec::new(), Vec::new()]);
    loop {
        for channel in 0..2 {
            while link.channel_has_room(Port(0), channel) {
                serial += 1;
                let frame = Packet::new(serial, 1500, channel);
                link.handle(now, MediumInput::Frame { port: Port(0), frame });
            }
        }
        match link.poll(now) {
            MediumOutput::Transmit { frame, .. } => arrivals[usize::from(frame.channel())].push(now),
            MediumOutput::Lost { cause, .. } => panic!("{cause:?}"),
            MediumOutput::Room { .. } => {}
            MediumOutput::Idle { deadline } => match deadline.filter(|at| *at <= end) {
                Some(at) => {
                    assert!(at > now, "a deadline at {at:?} that does nothing");
                    now = at;
                    link.handle(now, MediumInput::Wake);
                }
                None => return arrivals,
            },
        }
    }
}

#[test]
fn each_channel_has_its_rate_and_none_waits_behind_another() {
    let mut link = link();
    let at = |ms| Instant::ZERO + Span::from_ms(ms);
    link.set_rate(at(0), Port(0), 0, mbps(10.0));
    link.set_rate(at(0), Port(0), 1, Rate::default());
    let [first, second] = fill(&mut link, at(0), at(100));
    assert_eq!(second, [], "a rate of zero stops a channel");
    assert!(first.len().abs_diff(100_000 * 10 / 424) < 3, "{}", first.len());
    let gaps = first.windows(2).map(|pair| pair[1].since(pair[0]));
    assert!(gaps.min().unwrap() > Span::from_us(42), "cells are evenly spaced");
    // New rates hold for cells that wait already; the line has less than both together.
    link.set_rate(at(100), Port(0), 0, mbps(40.0));
    link.set_rate(at(100), Port(0), 1, mbps(109.76));
    let [first, second] = fill(&mut link, at(100), at(200));
    assert!(first.len().abs_diff(100_000 * 40 / 424) < 10, "{}", first.len());
    assert!(second.len().abs_diff(109_760 * 100 / 424) < 10, "{}", second.len());
    link.set_rate(at(200), Port(0), 1, mbps(10.0));
    link.set_rate(at(200), Port(0), 0, mbps(149.76));
    let [first, second] = fill(&mut link, at(200), at(300));
    assert!(first.len().abs_diff(139_760 * 100 / 424) < 10, "{}", first.len());
    assert!(second.len().abs_diff(10_000 * 100 / 424) < 10, "{}", second.len());
}
