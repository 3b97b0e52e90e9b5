//! Networks of links with credits: over random topologies at any load no cell is lost, no channel stops.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Frame as _, LossCause, Medium as _, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{
    CellFrame as _, Config, CreditLink, CreditOptions, Encapsulation, End, Impairments, Mode, Pacing,
};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

use super::common::Packet;

/// Random topologies of each property.
const TOPOLOGIES: u64 = 1_000;
/// Packets in the queue of an adapter.
const SEND_QUEUE: u64 = 4;

/// What a link ends at.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Node {
    Host(usize),
    Switch(usize),
}

struct NetworkLink {
    link: CreditLink<Packet>,
    ends: [Node; 2],
    window: u64,
    /// Cells of each flow in the buffers of the switch at each end.
    stored: [Vec<u64>; 2],
}

/// Packets from one host to another, by one channel.
struct TestFlow {
    /// Links from the sender to the receiver, each with the port at which the flow enters it.
    path: Vec<(usize, usize)>,
    unsent: VecDeque<Packet>,
    delivered: Vec<u32>,
    lost: u64,
}

struct Network {
    links: Vec<NetworkLink>,
    flows: Vec<TestFlow>,
    now: Instant,
    queue_losses: u64,
}

/// Losses on the lines of a network.
#[derive(Clone, Copy, Debug)]
struct Losses {
    credits: f64,
    cells: f64,
}

impl Network {
    /// Draws a tree of switches with hosts, windows, delays and rates, and the packets of some flows.
    fn draw(stream: &mut Stream, losses: Losses) -> Network {
        let switches = 1 + stream.below(5) as usize;
        let hosts = 2 + stream.below(6) as usize;
        let mut joints: Vec<[Node; 2]> =
            (1..switches).map(|s| [Node::Switch(s), Node::Switch(stream.below(s as u64) as usize)]).collect();
        joints.extend(
            (0..hosts).map(|h| [Node::Host(h), Node::Switch(stream.below(switches as u64) as usize)]),
        );
        let flows = 1 + stream.below(8) as usize;
        let links: Vec<NetworkLink> =
            joints.iter().map(|ends| draw_link(stream, *ends, losses, flows)).collect();
        let flows = (0..flows)
            .map(|flow| {
                let from = stream.below(hosts as u64) as usize;
                let to = (from + 1 + stream.below(hosts as u64 - 1) as usize) % hosts;
                let count = 1 + stream.below(16) as u32;
                let packets =
                    (0..count).map(|n| Packet::new(n, 40 + stream.below(800) as u32, flow as u16)).collect();
                let path = path(&joints, Node::Host(from), Node::Host(to)).expect("a tree joins all hosts");
                TestFlow { path, unsent: packets, delivered: Vec::new(), lost: 0 }
            })
            .collect();
        Network { links, flows, now: Instant::ZERO, queue_losses: 0 }
    }

    /// Runs until nothing is due.
    fn run(&mut self) {
        for events in 0.. {
            assert!(events < 200_000, "the network never comes to rest");
            self.offer();
            let next = self.links.iter().map(|l| l.link.deadline()).min().unwrap_or(Instant::MAX);
            if next == Instant::MAX {
                return;
            }
            self.now = self.now.max(next);
            for at in 0..self.links.len() {
                if self.links[at].link.deadline() <= self.now {
                    self.links[at].link.handle(self.now, MediumInput::Wake);
                    self.drain(at);
                }
            }
        }
    }

    /// Gives packets to the adapters of the senders as long as there is room: full load from the start.
    fn offer(&mut self) {
        for flow in 0..self.flows.len() {
            while let Some(packet) = self.flows[flow].unsent.front() {
                let (link, port) = self.flows[flow].path[0];
                if !self.links[link].link.has_room(self.now, Port(port as u16), packet.bytes) {
                    break;
                }
                let frame = self.flows[flow].unsent.pop_front().expect("it is the first");
                let input = MediumInput::Frame { port: Port(port as u16), frame };
                self.links[link].link.handle(self.now, input);
                self.drain(link);
            }
        }
    }

    fn drain(&mut self, at: usize) {
        loop {
            match self.links[at].link.poll(self.now) {
                MediumOutput::Transmit { port, frame } => self.receive(at, usize::from(port.0), frame),
                MediumOutput::Lost { frame, cause, .. } => {
                    self.queue_losses += u64::from(cause == LossCause::QueueFull);
                    if frame.is_packet() {
                        self.flows[usize::from(frame.channel())].lost += 1;
                    }
                }
                MediumOutput::Room { .. } => {}
                MediumOutput::Idle { .. } => break,
            }
        }
        while let Some((port, channel)) = self.links[at].link.take_freed() {
            let path = &self.flows[usize::from(channel)].path;
            let hop = path.iter().position(|(link, from)| (*link, *from) == (at, usize::from(port.0)));
            let (before, entry) = path[hop.expect("the flow leaves by this link") - 1];
            let link = &mut self.links[before];
            link.stored[entry ^ 1][usize::from(channel)] -= 1;
            link.link.release(self.now, Port(entry as u16 ^ 1), channel);
        }
    }

    /// Forwards a cell at a switch, or accepts a packet at a host.
    fn receive(&mut self, at: usize, port: usize, frame: Packet) {
        let flow = usize::from(frame.channel());
        if let Node::Host(_) = self.links[at].ends[port] {
            self.flows[flow].delivered.push(frame.serial());
            return;
        }
        let NetworkLink { stored, window, .. } = &mut self.links[at];
        stored[port][flow] += 1;
        assert!(stored[port][flow] <= *window, "{} cells in {window} buffers", stored[port][flow]);
        let path = &self.flows[flow].path;
        let hop = path.iter().position(|(link, _)| *link == at).expect("the flow takes this link");
        let (next, entry) = path[hop + 1];
        self.links[next].link.send_reserved(self.now, Port(entry as u16), frame);
        self.drain(next);
    }

    fn check(&self, losses: Losses) {
        assert_eq!(self.queue_losses, 0, "cells were lost at a full queue");
        for flow in &self.flows {
            assert!(flow.unsent.is_empty(), "{} packets wait for ever", flow.unsent.len());
            assert!(flow.delivered.windows(2).all(|pair| pair[0] < pair[1]), "packets overtook each other");
            assert!(flow.lost == 0 || losses.cells > 0.0, "{} packets were lost", flow.lost);
        }
        for link in &self.links {
            assert_eq!(link.stored.iter().flatten().sum::<u64>(), 0, "cells wait in a switch for ever");
        }
    }
}

fn draw_link(stream: &mut Stream, ends: [Node; 2], losses: Losses, flows: usize) -> NetworkLink {
    let adapter = End::Adapter {
        pacing: match stream.below(4) {
            0 => Pacing::Slots { send: 1 + stream.below(3) as u32, of: 3 },
            1 => Pacing::Rate { rate: Rate::from_bps(20_000_000), unit: Default::default() },
            _ => Pacing::None,
        },
        queue: Bound::frames(SEND_QUEUE),
        encapsulation: Encapsulation::LlcSnap,
    };
    // The queue holds nothing without credits: each cell in it must have a buffer.
    let switch_port = End::SwitchPort { queue: Bound::frames(0) };
    let config = Config {
        payload: Rate::from_bps(10_000_000 + stream.below(140_000_000)),
        delay: Span::from_us(stream.below(2_000)),
        ends: ends.map(|end| if matches!(end, Node::Host(_)) { adapter } else { switch_port }),
        impairments: [Impairments { loss: losses.cells, ..Impairments::default() }; 2],
        mode: Mode::Cells,
    };
    let most = if stream.chance(0.5) { 5 } else { 400 };
    let window = 1 + stream.below(most);
    let mut options = CreditOptions::new(window, config.delay * 2);
    options.loss = losses.credits;
    let seed = Seed(stream.below(u64::MAX));
    let link = CreditLink::new(&config, Some(options), [seed.stream("there"), seed.stream("back")]);
    NetworkLink { link, ends, window, stored: [vec![0; flows], vec![0; flows]] }
}

/// Returns the links from one node to another, each with the port at which it is entered.
fn path(joints: &[[Node; 2]], from: Node, to: Node) -> Option<Vec<(usize, usize)>> {
    fn search(joints: &[[Node; 2]], at: Node, to: Node, used: Option<usize>) -> Option<Vec<(usize, usize)>> {
        if at == to {
            return Some(Vec::new());
        }
        joints.iter().enumerate().filter(|(link, _)| Some(*link) != used).find_map(|(link, ends)| {
            let entry = ends.iter().position(|end| *end == at)?;
            let rest = search(joints, ends[entry ^ 1], to, Some(link))?;
            Some([vec![(link, entry)], rest].concat())
        })
    }
    search(joints, from, to, None)
}

fn check_topologies(name: &str, count: u64, losses: fn(u64) -> Losses) {
    for number in 0..count {
        let mut stream = Seed(number).stream(name);
        let losses = losses(number);
        let mut network = Network::draw(&mut stream, losses);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            network.run();
            network.check(losses);
        }));
        assert!(result.is_ok(), "{name}, topology {number}, {losses:?}");
    }
}

#[test]
fn no_cell_is_lost_and_no_channel_stops_in_a_thousand_topologies() {
    check_topologies("credits", TOPOLOGIES, |number| Losses {
        credits: [0.0, 0.0, 0.05, 0.2, 0.5][(number % 5) as usize],
        cells: 0.0,
    });
}

#[test]
fn no_channel_stops_when_lines_lose_cells() {
    check_topologies("lossy lines", 200, |number| Losses {
        credits: 0.0,
        cells: [0.001, 0.02, 0.2][(number % 3) as usize],
    });
}
