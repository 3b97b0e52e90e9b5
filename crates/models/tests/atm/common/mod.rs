//! A packet for tests, and a chain of links to send packets along.
#![allow(dead_code)] // every test uses a part

use trunkline_endpoint::{Bound, Destination, Frame, LossCause, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{
    CellFrame, CellLink, Config, Encapsulation, End, Impairments, Mode, Pacing, Train,
};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// A packet, a cell or a train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub serial: u32,
    pub bytes: u32,
    pub channel: u16,
    pub damaged: bool,
    pub cell: Option<(u16, u16)>,
    pub train: Option<Box<Train>>,
}

impl Packet {
    pub fn new(serial: u32, bytes: u32, channel: u16) -> Self {
        Packet { serial, bytes, channel, damaged: false, cell: None, train: None }
    }

    /// Returns whether this frame carries the packet: it is not a cell before the last.
    pub fn is_packet(&self) -> bool {
        self.cell.is_none_or(|(index, count)| index + 1 == count)
    }
}

impl Frame for Packet {
    fn length(&self) -> u32 {
        if self.cell.is_some() { 53 } else { self.bytes }
    }
    fn destination(&self) -> Destination {
        Destination::All
    }
    fn channel(&self) -> u16 {
        self.channel
    }
    fn damage(&mut self) {
        self.damaged = true;
    }
    fn is_damaged(&self) -> bool {
        self.damaged
    }
}

impl CellFrame for Packet {
    fn cell(&self, index: u16, count: u16) -> Self {
        assert!(index + 1 < count, "the last cell carries the packet");
        Packet { cell: Some((index, count)), train: None, ..*self }
    }
    fn last_cell(self, index: u16, count: u16) -> Self {
        Packet { cell: Some((index, count)), ..self }
    }
    fn as_cell(&self) -> Option<(u16, u16)> {
        self.cell
    }
    fn serial(&self) -> u32 {
        self.serial
    }
    fn into_packet(self) -> Self {
        Packet { cell: None, ..self }
    }
    fn into_train(self, train: Box<Train>) -> Self {
        Packet { train: Some(train), ..self }
    }
    fn take_train(&mut self) -> Option<Box<Train>> {
        self.train.take()
    }
}

pub const RIGHT: Port = Port(0);
pub const LEFT: Port = Port(1);

pub fn mbps(rate: f64) -> Rate {
    Rate::from_bps((rate * 1e6) as u64)
}

/// An adapter with this pacing and queue.
pub fn adapter(pacing: Pacing, queue: Bound) -> End {
    End::Adapter { pacing, queue, encapsulation: Encapsulation::LlcSnap }
}

/// A switch port with a queue of this many cells.
pub fn switch_port(cells: u64) -> End {
    End::SwitchPort { queue: Bound::frames(cells) }
}

/// A perfect link.
pub fn config(rate: f64, delay: Span, ends: [End; 2]) -> Config {
    Config {
        payload: mbps(rate),
        delay,
        ends,
        impairments: [Impairments::default(); 2],
        mode: Mode::default(),
    }
}

pub fn link(config: &Config) -> CellLink<Packet> {
    let stream = |name: &str| Seed(11).stream(name);
    CellLink::new(config, [stream("right"), stream("left")])
}

/// Results of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// The packets that arrived at the end, with their times.
    pub arrived: Vec<(Instant, u32)>,
    /// The packets that were lost, in order of their numbers.
    pub lost: Vec<u32>,
    /// Number of steps.
    pub steps: u64,
}

/// A chain of links, with a switch between each two of them.
pub struct Chain {
    pub links: Vec<CellLink<Packet>>,
    latency: Span,
    /// Frames inside switches: when they leave, and to which link.
    inside: Vec<(Instant, usize, Packet)>,
    outcomes: Outcomes,
    now: Instant,
}

impl Chain {
    pub fn new(configs: &[Config], seed: Seed, latency: Span) -> Self {
        let streams = |at: usize| -> [Stream; 2] {
            ["right", "left"].map(|direction| seed.stream(&format!("link {at} / {direction}")))
        };
        let links = configs.iter().enumerate().map(|(at, config)| CellLink::new(config, streams(at)));
        Chain {
            links: links.collect(),
            latency,
            inside: Vec::new(),
            outcomes: Outcomes::default(),
            now: Instant::ZERO,
        }
    }

    /// Sends packets at their times and returns their outcomes.
    pub fn run(&mut self, packets: &[(Instant, Packet)]) -> Outcomes {
        for (at, packet) in packets {
            self.run_until(*at);
            self.now = *at;
            self.send(0, packet.clone());
        }
        self.run_until(Instant::MAX);
        self.outcomes.lost.sort_unstable();
        std::mem::take(&mut self.outcomes)
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let due = (0..self.links.len()).filter_map(|at| Some((self.drain(at)?, at))).min();
            let inside = self.inside.iter().map(|(at, link, _)| (*at, *link)).min();
            let Some(next) = due.into_iter().map(|(at, _)| at).chain(inside.map(|(at, _)| at)).min() else {
                return;
            };
            if next > end {
                return;
            }
            assert!(next >= self.now, "time never goes back");
            self.now = next;
            self.outcomes.steps += 1;
            match (inside, due) {
                (Some((at, _)), _) if at == next => {
                    let place = self.inside.iter().position(|(at, ..)| *at == next).unwrap();
                    let (_, link, packet) = self.inside.remove(place);
                    self.send(link, packet);
                }
                (_, Some((_, link))) => {
                    self.links[link].handle(next, MediumInput::Wake);
                    let later = self.drain(link);
                    assert!(later.is_none_or(|later| later > next), "a wake makes progress");
                }
                _ => unreachable!("something was due"),
            }
        }
    }

    fn send(&mut self, link: usize, frame: Packet) {
        self.links[link].handle(self.now, MediumInput::Frame { port: RIGHT, frame });
        self.drain(link);
    }

    fn drain(&mut self, link: usize) -> Option<Instant> {
        loop {
            match self.links[link].poll(self.now) {
                MediumOutput::Transmit { port, frame } => {
                    assert_eq!(port, LEFT);
                    if link + 1 == self.links.len() {
                        assert!(frame.cell.is_none() && frame.train.is_none());
                        self.outcomes.arrived.push((self.now, frame.serial));
                    } else if self.latency.is_zero() {
                        self.send(link + 1, frame);
                    } else {
                        self.inside.push((self.now + self.latency, link + 1, frame));
                    }
                }
                MediumOutput::Lost { port, frame, cause } => {
                    assert_eq!(port, RIGHT);
                    assert_ne!(cause, LossCause::NoRoute);
                    if frame.is_packet() {
                        self.outcomes.lost.push(frame.serial);
                    }
                }
                MediumOutput::Room { .. } => unreachable!("no sender waits"),
                MediumOutput::Idle { deadline } => return deadline,
            }
        }
    }
}
