//! The whole converter in virtual time: every message arrives where it is wanted, once, in order, and nowhere else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use trunkline_bundle::central::{self, Central, Config};
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::{self, Host};
use trunkline_bundle::interest::packet;
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::{Settings, wire::classic::LONGEST};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

/// Who a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Level1(usize),
    Central(u16),
    Hosts,
    Wide(u16, usize),
}

/// A datagram is on its way for so long.
const HOP: Span = Span::from_us(50);

/// When a datagram lands, its number, whom it is for, and its bytes.
type Flying = (Instant, u64, To, Vec<u8>);

struct World {
    now: Instant,
    level1: Vec<Checked<Level1>>,
    central: Checked<Central>,
    hosts: Vec<Checked<Host>>,
    flying: BinaryHeap<Reverse<Flying>>,
    number: u64,
    /// Packet addresses that the wide area brings to a converter.
    joined: BTreeSet<(usize, u16)>,
    /// What reached the wide area.
    wide: Vec<Vec<u8>>,
    got: Vec<Vec<Vec<u8>>>,
    deadlines: BTreeSet<Instant>,
    buffer: Vec<u8>,
}

impl World {
    fn new(level1: u16, hosts: u8, settings: Settings, medium: Medium) -> World {
        let config = Config { settings, level1: (1..=level1).collect(), hosts, local: medium, wide: medium };
        World {
            now: Instant::ZERO,
            level1: (1..=level1).map(|n| Checked::new(Level1::new(n, settings))).collect(),
            central: Checked::new(Central::new(config)),
            hosts: (1..=hosts).map(|n| Checked::new(Host::new(n, settings))).collect(),
            flying: BinaryHeap::new(),
            number: 0,
            joined: BTreeSet::new(),
            wide: Vec::new(),
            got: vec![Vec::new(); usize::from(hosts)],
            deadlines: BTreeSet::new(),
            buffer: vec![0; MAX_BATCH],
        }
    }

    fn fly(&mut self, to: To, bytes: Vec<u8>) {
        self.number += 1;
        self.flying.push(Reverse((self.now + HOP, self.number, to, bytes)));
    }

    /// Lets all of them say what they have to say.
    fn drain(&mut self) {
        for at in 0..self.level1.len() {
            loop {
                match self.level1[at].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Event(level1::Event::Join(packet)) => {
                        assert!(!self.joined.iter().any(|(_, other)| *other == packet), "two get {packet}");
                        self.joined.insert((at, packet));
                    }
                    Output::Event(level1::Event::Leave(packet)) => {
                        assert!(self.joined.remove(&(at, packet)));
                    }
                    Output::Transmit(Transmit { port: Level1::CENTRAL, length, .. }) => {
                        let bytes = self.buffer[..length].to_vec();
                        self.fly(To::Central(Central::LEVEL1.0), bytes);
                    }
                    Output::Transmit(Transmit { peer, length, .. }) => {
                        let bytes = self.buffer[..length].to_vec();
                        let address = u16::from_be_bytes([bytes[0], bytes[1]]);
                        assert_eq!(peer.as_bytes(), packet(address).to_be_bytes());
                        self.wide.push(bytes);
                    }
                    Output::Idle(idle) => {
                        self.deadlines.extend(idle.deadline);
                        break;
                    }
                }
            }
        }
        loop {
            match self.central.poll(self.now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(Transmit { port, peer, length, .. }) => {
                    let bytes = self.buffer[..length].to_vec();
                    let to = match port {
                        Central::HOSTS => To::Hosts,
                        _ => To::Level1(usize::from(peer.as_bytes()[1]) - 1),
                    };
                    self.fly(to, bytes);
                }
                Output::Idle(idle) => {
                    self.deadlines.extend(idle.deadline);
                    break;
                }
                Output::Event(never) => match never {},
            }
        }
        for at in 0..self.hosts.len() {
            loop {
                match self.hosts[at].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Event(host::Event::Readable) => {
                        let (mut into, mut taken) = (Vec::new(), true);
                        while taken {
                            let take = host::Command::Take { into: &mut into, taken: &mut taken };
                            self.hosts[at].handle(self.now, Input::Command(take)).unwrap();
                            if taken {
                                self.got[at].push(into.clone());
                            }
                        }
                    }
                    Output::Event(host::Event::Level(_)) => {}
                    Output::Transmit(Transmit { length, .. }) => {
                        let bytes = self.buffer[..length].to_vec();
                        self.fly(To::Central(Central::HOSTS.0), bytes);
                    }
                    Output::Idle(idle) => {
                        self.deadlines.extend(idle.deadline);
                        break;
                    }
                }
            }
        }
    }

    fn run(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            self.drain();
            let due = self.deadlines.iter().copied().find(|at| *at > self.now);
            let lands = self.flying.peek().map(|Reverse((at, ..))| *at);
            let next = due.into_iter().chain(lands).min().unwrap_or(until).min(until);
            if next >= until {
                self.now = until;
                return;
            }
            self.now = next;
            self.deadlines.retain(|at| *at > next);
            while let Some(Reverse((at, ..))) = self.flying.peek()
                && *at <= self.now
            {
                let Some(Reverse((_, _, to, bytes))) = self.flying.pop() else { break };
                let frame = |port| Input::Frame { port, peer: Peer::NONE, bytes: &bytes, segment: None };
                match to {
                    To::Level1(at) => self.level1[at].handle(self.now, frame(Level1::CENTRAL)).unwrap(),
                    To::Central(port) => self.central.handle(self.now, frame_central(port, &bytes)).unwrap(),
                    To::Hosts => {
                        for host in &mut self.hosts {
                            let frame = Input::Frame {
                                port: Host::CENTRAL,
                                peer: Peer::NONE,
                                bytes: &bytes,
                                segment: None,
                            };
                            host.handle(self.now, frame).unwrap();
                        }
                    }
                    To::Wide(_, at) => self.level1[at].handle(self.now, frame(Level1::WIDE)).unwrap(),
                }
            }
            for level1 in &mut self.level1 {
                level1.handle(self.now, Input::Wake).unwrap();
            }
            self.central.handle(self.now, Input::Wake).unwrap();
            for host in &mut self.hosts {
                host.handle(self.now, Input::Wake).unwrap();
            }
        }
    }

    /// A message from the wide area, heard by who gets its packet address.
    fn hear(&mut self, address: u16, body: &[u8]) {
        let holders: Vec<usize> =
            self.joined.iter().filter(|(_, at)| *at == packet(address)).map(|(at, _)| *at).collect();
        for at in holders {
            let bytes = [&address.to_be_bytes()[..], body].concat();
            self.fly(To::Wide(packet(address), at), bytes);
        }
    }

    fn command(&mut self, host: u8, command: host::Command<'_>) -> Result<(), host::Refusal> {
        self.hosts[usize::from(host) - 1].handle(self.now, Input::Command(command))
    }
}

fn frame_central(port: u16, bytes: &[u8]) -> Input<'_, central::Command> {
    Input::Frame { port: Port(port), peer: Peer::NONE, bytes, segment: None }
}

/// A body that says who sent it, to which address, and as which of his.
fn body(sender: u8, address: u16, number: u32, length: usize) -> Vec<u8> {
    let mut body = vec![sender];
    body.extend_from_slice(&address.to_be_bytes());
    body.extend_from_slice(&number.to_be_bytes());
    // Never as long as control.
    body.resize(if [20, 22].contains(&length) { 21 } else { length.max(7) }, 0xAB);
    body
}

const ROOMY: Medium = Medium { capacity: 100_000_000, interval: Span::from_ms(5) };

fn exchange(seed: u64, timing: Timing) {
    let mut draw: Stream = Seed(seed).stream("exchange");
    let (level1, hosts) = (1 + draw.below(6) as u16, 1 + draw.below(16) as u8);
    let settings = Settings { timing, pairs: draw.chance(0.5), longest: LONGEST, ..Settings::default() };
    let mut world = World::new(level1, hosts, settings, ROOMY);
    let mut wants: BTreeSet<(u8, u16)> = BTreeSet::new();
    let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); usize::from(hosts)];
    let (mut sent, mut number) = (Vec::new(), 0);
    for _ in 0..40 {
        for _ in 0..draw.below(6) {
            let (host, address) = (1 + draw.below(u64::from(hosts)) as u8, draw.below(300) as u16);
            let both = if settings.pairs { vec![address & !1, address | 1] } else { vec![address] };
            if draw.chance(0.7) {
                world.command(host, host::Command::Join(address)).unwrap();
                wants.extend(both.into_iter().map(|address| (host, address)));
            } else {
                world.command(host, host::Command::Drop(address)).unwrap();
                both.into_iter().for_each(|address| _ = wants.remove(&(host, address)));
            }
        }
        // Until it has been heard of everywhere.
        world.run(Span::from_ms(40));
        let packets: BTreeSet<u16> = wants.iter().map(|(_, address)| packet(*address)).collect();
        assert_eq!(world.joined.iter().map(|(_, packet)| *packet).collect::<BTreeSet<_>>(), packets);
        for _ in 0..draw.below(60) {
            let address = draw.below(300) as u16;
            number += 1;
            let sender = draw.below(u64::from(hosts) + 1) as u8;
            let body = body(sender, address, number, draw.below(400) as usize);
            if sender == 0 {
                world.hear(address, &body);
            } else {
                world.command(sender, host::Command::Send { address, body: &body }).unwrap();
                sent.push([&address.to_be_bytes()[..], &body].concat());
            }
            for host in (1..=hosts).filter(|host| *host != sender && wants.contains(&(*host, address))) {
                expected[usize::from(host) - 1].push(body.clone());
            }
            world.run(Span::from_us(draw.below(400)));
        }
        world.run(Span::from_ms(40));
    }
    // All of it, and of each sender in order. Priority messages overtake none of their own bundle.
    let by_sender = |got: &[Vec<u8>]| {
        let mut senders: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
        got.iter().for_each(|body| senders.entry(body[0]).or_default().push(body.clone()));
        senders
    };
    for (host, (got, expected)) in world.got.iter().zip(&expected).enumerate() {
        let (mut got, mut expected) = (by_sender(got), by_sender(expected));
        // The wide area keeps no order among several converters.
        for messages in [&mut got, &mut expected] {
            messages.entry(0).or_default().sort();
        }
        assert_eq!(got, expected, "seed {seed}, host {}", host + 1);
    }
    world.wide.sort();
    sent.sort();
    assert_eq!(world.wide, sent, "seed {seed}");
    assert!(world.level1.iter().all(|level1| level1.inner().statistics().drops.total() == 0));
}

#[test]
fn every_message_arrives_where_it_is_wanted_and_nowhere_else() {
    for seed in 0..12 {
        exchange(seed, Timing::CLASSIC);
        exchange(seed, Timing::LEAST_PROCESSOR);
        exchange(seed, Timing::LEAST_DELAY);
    }
}

/// At three times what the medium carries all priority messages arrive and the others are counted.
#[test]
fn priority_messages_survive_congestion() {
    let settings = Settings { pairs: true, ..Settings::default() };
    let mut world = World::new(2, 3, settings, Medium::default());
    for host in 1..=3 {
        world.command(host, host::Command::Join(64)).unwrap();
        world.command(host, host::Command::Join(640)).unwrap();
    }
    world.run(Span::from_ms(50));
    let (mut ordinary, mut urgent) = (0u64, 0u64);
    let mut levels = BTreeSet::new();
    for n in 0..4_000u32 {
        let address = [64, 640][n as usize % 2] + u16::from(n % 20 == 0);
        let priority = n % 20 == 0;
        *(if priority { &mut urgent } else { &mut ordinary }) += 1;
        world.hear(address, &body(u8::from(priority), address, n, 150));
        world.run(Span::from_us(50));
        levels.insert(world.central.inner().levels().0);
    }
    world.run(Span::from_ms(100));
    let central = *world.central.inner().statistics();
    let dropped: u64 =
        world.level1.iter().map(|level1| level1.inner().statistics().drops.total()).sum::<u64>()
            + central.drops_to_hosts.total();
    for got in &world.got {
        let priority = got.iter().filter(|body| body[0] == 1).count() as u64;
        assert_eq!(priority, urgent);
        assert_eq!(got.len() as u64 - priority + dropped, ordinary);
    }
    assert!(dropped > ordinary / 3, "{dropped} of {ordinary}");
    assert!(levels.last() >= Some(&5), "{levels:?}");
    world.run(Span::from_ms(100));
    assert_eq!(world.central.inner().levels(), (3, 3));
    assert!(world.level1.iter().all(|level1| level1.inner().level() == 3), "all are told that it is over");
    assert!(world.hosts.iter().all(|host| host.inner().level() == 3));
}
