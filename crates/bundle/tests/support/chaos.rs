//! A life of joins, leaves, messages and restarts for a [`World`], and what must hold in it.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::{Command, From, Post};
use trunkline_bundle::settings::{Spread, Wide};
use trunkline_bundle::wire::wide::packet_of;
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Seed, Span, Stream};

use crate::world::{FAR, Line, Place, ROOMY, World};

/// What was sent, by number.
struct Sent {
    /// 0 the far host, or 1 + the host.
    sender: usize,
    address: u32,
}

pub struct Chaos {
    pub world: World,
    draw: Stream,
    level1: usize,
    hosts: usize,
    /// What hosts want, as first and last addresses of ranges out of few.
    wants: Vec<BTreeSet<(u32, u32)>>,
    sent: Vec<Sent>,
    /// What each host got.
    got: Vec<BTreeSet<u32>>,
    /// The highest number with priority by receiver and sender, since the central converter is there.
    highest: BTreeMap<(usize, u32), u32>,
    /// The first number since then. What was sent before is repeated to it, and who came to want it since gets it then.
    first: u32,
}

/// Ranges to choose from: near and far ones that share packet addresses, and a large one.
const RANGES: [(u32, u32); 12] = [
    (0, 0),
    (1, 7),
    (32, 95),
    (100, 100),
    (600, 700),
    (65_536, 65_540),
    (65_568, 65_568),
    (100_000, 100_400),
    (0x8000_0000, 0x8000_0fff),
    (u32::MAX - 3, u32::MAX),
    (7_000, 7_001),
    (7_040, 7_040),
];

impl Chaos {
    pub fn new(seed: u64, spread: Spread) -> Chaos {
        let mut draw = Seed(seed).stream("chaos");
        let timing = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY][draw.below(3) as usize];
        let wide = Wide { spread, path: 512 + draw.below(3_000) as usize, ..Wide::default() };
        let settings = Settings { timing, format: Format::Wide(wide), ..Settings::default() };
        let (level1, hosts) = (1 + draw.below(4) as usize, 2 + draw.below(8) as usize);
        Chaos {
            world: World::new(level1 as u16, hosts as u16, settings, ROOMY).seed(seed),
            draw,
            level1,
            hosts,
            wants: vec![BTreeSet::new(); hosts],
            sent: Vec::new(),
            got: vec![BTreeSet::new(); hosts],
            highest: BTreeMap::new(),
            first: 0,
        }
    }

    fn wants(&self, host: usize, address: u32) -> bool {
        self.wants[host].iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    fn address(&mut self) -> u32 {
        let (first, last) = RANGES[self.draw.below(RANGES.len() as u64) as usize];
        first + self.draw.below(u64::from(last - first) + 1) as u32
    }

    /// Changes what a host wants.
    fn change(&mut self) {
        let host = self.draw.below(self.hosts as u64) as usize;
        let range = RANGES[self.draw.below(RANGES.len() as u64) as usize];
        let (first, last) = range;
        let command = if self.wants[host].contains(&range) {
            self.wants[host].remove(&range);
            Command::DropRange { first, last }
        } else {
            self.wants[host].insert(range);
            Command::JoinRange { first, last }
        };
        self.world.command(host, command).unwrap();
    }

    /// Sends something; its number.
    fn send(&mut self, priority: bool) -> u32 {
        let (sender, address) = (self.draw.below(self.hosts as u64 + 1) as usize, self.address());
        let number = self.sent.len() as u32;
        let mut body = number.to_be_bytes().to_vec();
        body.resize(4 + self.draw.below(250) as usize, 0xAB);
        self.sent.push(Sent { sender, address });
        match sender.checked_sub(1) {
            None => self.world.hear(address, priority, &body),
            Some(host) => {
                let post = Post { address, priority, within: None, body: &body };
                // So many wait only where the central converter is away.
                let _ = self.world.command(host, Command::Post(post));
            }
        }
        number
    }

    /// What arrived is right, whatever happened.
    fn check(&mut self, place: &str) {
        for (host, From { address, source, priority }, body) in std::mem::take(&mut self.world.got) {
            let number = u32::from_be_bytes(body[..4].try_into().unwrap());
            let sent = &self.sent[number as usize];
            let of = if sent.sender == 0 { FAR } else { 1 << 16 | sent.sender as u32 };
            assert_eq!((address, source), (sent.address, of), "{place}: message {number}");
            assert_ne!(sent.sender, host + 1, "{place}: reflected");
            assert!(self.got[host].insert(number), "{place}: {number} twice at host {host}");
            if priority && sent.sender > 0 {
                let highest = self.highest.entry((host, source)).or_default();
                assert!(
                    number > *highest || *highest == 0,
                    "{place}: {number} after {highest} at host {host}"
                );
                *highest = if number >= self.first { number } else { *highest };
            }
        }
    }

    /// So long anything happens, restarts so many times a second on average.
    pub fn round(&mut self, span: Span, restarts: f64) {
        self.world.line = Line {
            loss: [0.0, 0.02, 0.2][self.draw.below(3) as usize],
            doubled: 0.05,
            jitter: Span::from_us(self.draw.below(3_000)),
        };
        let until = self.world.now + span;
        while self.world.now < until {
            match self.draw.below(12) {
                0 => self.change(),
                1 if self.draw.chance(0.02 * restarts) => self.restart(),
                2..=8 => _ = self.send(false),
                9 => _ = self.send(true),
                _ => {}
            }
            let pause = Span::from_us(self.draw.below(2_000));
            self.world.run(pause);
        }
        self.check("in a round");
    }

    fn restart(&mut self) {
        let place = match self.draw.below(4) {
            0 => Place::Central,
            1 | 2 => Place::Level1(self.draw.below(self.level1 as u64) as usize),
            _ => Place::Host(self.draw.below(self.hosts as u64) as usize),
        };
        self.check("before a restart");
        if let Place::Host(host) = place {
            self.wants[host].clear();
            // What it had before it restarted it may get again: it knows nothing of it.
            self.got[host].clear();
            self.highest.retain(|(at, _), _| *at != host);
        }
        if place == Place::Central {
            self.highest.clear();
            self.first = self.sent.len() as u32;
        }
        match self.draw.chance(0.5) {
            true => self.world.start(place),
            false => {
                self.world.stop(place);
                let away = Span::from_ms(self.draw.below(1_500));
                self.world.run(away);
                self.world.start(place);
            }
        }
    }

    /// The network is good again: soon all is as it is to be, and who wants something gets it.
    pub fn heal(&mut self, place: &str) {
        self.world.line = Line::default();
        self.world.run(Span::from_s(3));
        self.check(place);
        let packets: BTreeSet<u16> = (0..self.hosts)
            .flat_map(|host| self.wants[host].iter().copied())
            .flat_map(|(first, last)| (first / 32..=last / 32).map(|packet| packet_of(packet * 32)))
            .collect();
        let joined: Vec<u16> = self.world.joined.iter().map(|(_, packet)| *packet).collect();
        assert_eq!(joined.iter().copied().collect::<BTreeSet<_>>(), packets, "{place}: what level 1 gets");
        assert_eq!(joined.len(), packets.len(), "{place}: two get the same");
        let machine = self.world.central().wide().expect("it speaks wide");
        assert_eq!(machine.members().len(), self.hosts, "{place}: all hosts are there");
        let from = self.sent.len() as u32;
        for _ in 0..60 {
            let priority = self.draw.chance(0.3);
            self.send(priority);
            self.world.run(Span::from_us(300));
        }
        self.world.run(Span::from_ms(100));
        self.check(place);
        self.check_all(from, place);
    }

    /// Who wanted what was sent since got it.
    fn check_all(&self, from: u32, place: &str) {
        for number in from..self.sent.len() as u32 {
            let sent = &self.sent[number as usize];
            for host in (0..self.hosts).filter(|host| host + 1 != sent.sender) {
                let wanted = self.wants(host, sent.address);
                let got = self.got[host].contains(&number);
                let Sent { sender, address } = sent;
                assert_eq!(got, wanted, "{place}: {number} of {sender} to {address} at host {host}");
            }
        }
    }

    /// Hosts send with priority over a bad network.
    pub fn send_priority(&mut self, place: &str, messages: usize) {
        for _ in 0..30 {
            self.change();
        }
        self.world.run(Span::from_s(1));
        self.world.line = Line { loss: 0.15, doubled: 0.1, jitter: Span::from_ms(2) };
        let from = self.sent.len();
        for _ in 0..messages {
            self.send(true);
            self.world.run(Span::from_ms(2));
        }
        self.world.line = Line::default();
        self.world.run(Span::from_s(2));
        self.check(place);
        assert!((0..self.hosts).any(|host| self.world.host(host).statistics().repeated > 0));
        for (number, sent) in self.sent.iter().enumerate().skip(from).filter(|(_, sent)| sent.sender > 0) {
            for host in (0..self.hosts).filter(|host| host + 1 != sent.sender) {
                let wanted = self.wants(host, sent.address);
                let got = self.got[host].contains(&(number as u32));
                assert_eq!(got, wanted, "{place}: {number} at host {host}");
            }
        }
    }

    /// After a pause little is kept.
    pub fn small(&mut self, place: &str) {
        let machine = self.world.central().wide().expect("it speaks wide");
        for member in machine.members().iter() {
            let waiting = (member.outbox.waiting(), member.receiver.held());
            assert_eq!(
                waiting,
                ((0, 0), 0),
                "{place}: {member:?} and {:?}",
                self.world.host(usize::from(member.number) - 1)
            );
        }
        assert_eq!(machine.sides().moving(), 0, "{place}");
        let ranges: usize = machine.members().iter().map(|member| member.wants().len()).sum();
        assert!(machine.segments().len() <= 1 + 2 * ranges && ranges <= self.hosts * RANGES.len(), "{place}");
        // Two classes of about 160 packet addresses.
        assert!(machine.flows() <= 2 * 160 * (1 + self.hosts), "{place}: {} flows", machine.flows());
        assert_eq!(self.world.central().levels(), (3, 3), "{place}");
        // What was sent long ago is not needed any more.
        self.check(place);
    }

    /// All leave, some with a word: nothing is left.
    pub fn end(&mut self, place: &str) {
        for host in 0..self.hosts {
            match host % 3 {
                0 => self.world.command(host, Command::DropAll).unwrap(),
                1 => self.world.command(host, Command::Bye).unwrap(),
                _ => {}
            }
        }
        self.world.run(Span::from_ms(500));
        assert!(!self.world.host(0).is_saying(), "{place}");
        (0..self.hosts).for_each(|host| self.world.stop(Place::Host(host)));
        self.world.run(Span::from_s(15));
        assert_eq!(self.world.joined, BTreeSet::new(), "{place}");
        let central = self.world.central();
        assert_eq!(central.levels(), (3, 3));
        let machine = central.wide().expect("it speaks wide");
        assert!(machine.members().is_empty() && machine.segments().is_empty(), "{place}");
        let waiting: usize = machine.sides().iter().map(|side| side.outbox.waiting().0).sum();
        assert_eq!(waiting, 0, "{place}");
        assert!(machine.sides().iter().all(|side| side.wants().count() == 0), "{place}");
        let counts = machine.sides().counts();
        assert_eq!(machine.sides().moving(), 0, "{place}: {counts:?}");
    }
}
