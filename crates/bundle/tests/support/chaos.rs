//! A random workload of joins, leaves, messages and restarts for a [`Simulation`], with its invariants.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::host::{HostCommand, MessageInfo, OutgoingMessage};
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::wire::format2::packet_address;
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Seed, Span, Stream};

use crate::simulation::{Impairments, Node, REMOTE_HOST, ROOMY, Simulation};

/// A message, by number.
struct Sent {
    /// The sender: 0 for the remote host, or 1 + host.
    sender: usize,
    address: u32,
}

pub struct Chaos {
    pub sim: Simulation,
    draw: Stream,
    level1: usize,
    hosts: usize,
    /// The joined ranges of each host, out of few.
    interest: Vec<BTreeSet<(u32, u32)>>,
    sent: Vec<Sent>,
    /// The messages received by each host.
    received: Vec<BTreeSet<u32>>,
    /// The highest received number of priority messages, by receiver and sender, since the central converter's last
    /// start.
    highest: BTreeMap<(usize, u32), u32>,
    /// The first message since then. Earlier messages are retransmitted to it, and reach hosts that joined in the
    /// meantime.
    first: u32,
}

/// Ranges: close and distant ones that share packet addresses, and a large one.
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
    pub fn new(seed: u64, fanout: Fanout) -> Chaos {
        let mut draw = Seed(seed).stream("chaos");
        let timing = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY][draw.below(3) as usize];
        let format2 =
            Format2 { fanout, max_datagram: 512 + draw.below(3_000) as usize, ..Format2::default() };
        let settings = Settings { timing, format: Format::Format2(format2), ..Settings::default() };
        let (level1, hosts) = (1 + draw.below(4) as usize, 2 + draw.below(8) as usize);
        Chaos {
            sim: Simulation::new(level1 as u16, hosts as u16, settings, ROOMY).seed(seed),
            draw,
            level1,
            hosts,
            interest: vec![BTreeSet::new(); hosts],
            sent: Vec::new(),
            received: vec![BTreeSet::new(); hosts],
            highest: BTreeMap::new(),
            first: 0,
        }
    }

    fn interest(&self, host: usize, address: u32) -> bool {
        self.interest[host].iter().any(|(first, last)| (*first..=*last).contains(&address))
    }

    fn address(&mut self) -> u32 {
        let (first, last) = RANGES[self.draw.below(RANGES.len() as u64) as usize];
        first + self.draw.below(u64::from(last - first) + 1) as u32
    }

    /// Changes the interest of a random host.
    fn change(&mut self) {
        let host = self.draw.below(self.hosts as u64) as usize;
        let range = RANGES[self.draw.below(RANGES.len() as u64) as usize];
        let (first, last) = range;
        let command = if self.interest[host].contains(&range) {
            self.interest[host].remove(&range);
            HostCommand::Drop { first, last }
        } else {
            self.interest[host].insert(range);
            HostCommand::Join { first, last }
        };
        self.sim.command(host, command).unwrap();
    }

    /// Sends a random message and returns its number.
    fn send(&mut self, priority: bool) -> u32 {
        let (sender, address) = (self.draw.below(self.hosts as u64 + 1) as usize, self.address());
        let number = self.sent.len() as u32;
        let mut body = number.to_be_bytes().to_vec();
        body.resize(4 + self.draw.below(250) as usize, 0xAB);
        self.sent.push(Sent { sender, address });
        match sender.checked_sub(1) {
            None => self.sim.inject(address, priority, &body),
            Some(host) => {
                let message = OutgoingMessage { address, priority, max_wait: None, body: &body };
                // The queue is full only while the central converter is down.
                let _ = self.sim.command(host, HostCommand::Send(message));
            }
        }
        number
    }

    /// Checks the received messages.
    fn check(&mut self, label: &str) {
        for (host, MessageInfo { address, source, priority }, body) in std::mem::take(&mut self.sim.received)
        {
            let number = u32::from_be_bytes(body[..4].try_into().unwrap());
            let sent = &self.sent[number as usize];
            let expected_source = if sent.sender == 0 { REMOTE_HOST } else { 1 << 16 | sent.sender as u32 };
            assert_eq!((address, source), (sent.address, expected_source), "{label}: message {number}");
            assert_ne!(sent.sender, host + 1, "{label}: reflected");
            assert!(self.received[host].insert(number), "{label}: {number} twice at host {host}");
            if priority && sent.sender > 0 {
                let highest = self.highest.entry((host, source)).or_default();
                assert!(
                    number > *highest || *highest == 0,
                    "{label}: {number} after {highest} at host {host}"
                );
                *highest = if number >= self.first { number } else { *highest };
            }
        }
    }

    /// Runs random events for a time, with this average number of restarts per second.
    pub fn round(&mut self, span: Span, restarts: f64) {
        self.sim.impairments = Impairments {
            loss: [0.0, 0.02, 0.2][self.draw.below(3) as usize],
            duplication: 0.05,
            jitter: Span::from_us(self.draw.below(3_000)),
        };
        let until = self.sim.now + span;
        while self.sim.now < until {
            match self.draw.below(12) {
                0 => self.change(),
                1 if self.draw.chance(0.02 * restarts) => self.restart(),
                2..=8 => _ = self.send(false),
                9 => _ = self.send(true),
                _ => {}
            }
            let pause = Span::from_us(self.draw.below(2_000));
            self.sim.run(pause);
        }
        self.check("in a round");
    }

    fn restart(&mut self) {
        let label = match self.draw.below(4) {
            0 => Node::Central,
            1 | 2 => Node::Level1(self.draw.below(self.level1 as u64) as usize),
            _ => Node::Host(self.draw.below(self.hosts as u64) as usize),
        };
        self.check("before a restart");
        if let Node::Host(host) = label {
            self.interest[host].clear();
            // A restarted host has no history, and may receive old messages again.
            self.received[host].clear();
            self.highest.retain(|(at, _), _| *at != host);
        }
        if label == Node::Central {
            self.highest.clear();
            self.first = self.sent.len() as u32;
        }
        match self.draw.chance(0.5) {
            true => self.sim.start(label),
            false => {
                self.sim.stop(label);
                let away = Span::from_ms(self.draw.below(1_500));
                self.sim.run(away);
                self.sim.start(label);
            }
        }
    }

    /// Restores the network: the state becomes correct, and messages reach their subscribers.
    pub fn heal(&mut self, label: &str) {
        self.sim.impairments = Impairments::default();
        self.sim.run(Span::from_s(3));
        self.check(label);
        let packets: BTreeSet<u16> = (0..self.hosts)
            .flat_map(|host| self.interest[host].iter().copied())
            .flat_map(|(first, last)| (first / 32..=last / 32).map(|packet| packet_address(packet * 32)))
            .collect();
        let joined: Vec<u16> = self.sim.joined.iter().map(|(_, packet)| *packet).collect();
        assert_eq!(joined.iter().copied().collect::<BTreeSet<_>>(), packets, "{label}: what level 1 gets");
        assert_eq!(joined.len(), packets.len(), "{label}: two get the same");
        let machine = self.sim.central().format2().expect("it uses format 2");
        assert_eq!(machine.members().len(), self.hosts, "{label}: all hosts are there");
        let from = self.sent.len() as u32;
        for _ in 0..60 {
            let priority = self.draw.chance(0.3);
            self.send(priority);
            self.sim.run(Span::from_us(300));
        }
        self.sim.run(Span::from_ms(100));
        self.check(label);
        self.check_all(from, label);
    }

    /// Checks that exactly the subscribers received each message from number `from` on.
    fn check_all(&self, from: u32, label: &str) {
        for number in from..self.sent.len() as u32 {
            let sent = &self.sent[number as usize];
            for host in (0..self.hosts).filter(|host| host + 1 != sent.sender) {
                let wanted = self.interest(host, sent.address);
                let received = self.received[host].contains(&number);
                let Sent { sender, address } = sent;
                assert_eq!(received, wanted, "{label}: {number} of {sender} to {address} at host {host}");
            }
        }
    }

    /// Sends priority messages of hosts over a bad network.
    pub fn send_priority(&mut self, label: &str, messages: usize) {
        for _ in 0..30 {
            self.change();
        }
        self.sim.run(Span::from_s(1));
        self.sim.impairments = Impairments { loss: 0.15, duplication: 0.1, jitter: Span::from_ms(2) };
        let from = self.sent.len();
        for _ in 0..messages {
            self.send(true);
            self.sim.run(Span::from_ms(2));
        }
        self.sim.impairments = Impairments::default();
        self.sim.run(Span::from_s(2));
        self.check(label);
        assert!((0..self.hosts).any(|host| self.sim.host(host).statistics().retransmissions > 0));
        for (number, sent) in self.sent.iter().enumerate().skip(from).filter(|(_, sent)| sent.sender > 0) {
            for host in (0..self.hosts).filter(|host| host + 1 != sent.sender) {
                let wanted = self.interest(host, sent.address);
                let received = self.received[host].contains(&(number as u32));
                assert_eq!(received, wanted, "{label}: {number} at host {host}");
            }
        }
    }

    /// Checks that little state remains after a pause.
    pub fn check_idle(&mut self, label: &str) {
        let machine = self.sim.central().format2().expect("it uses format 2");
        for member in machine.members().iter() {
            let waiting = (member.session.outbox.waiting(), member.receiver.out_of_order());
            assert_eq!(
                waiting,
                ((0, 0), 0),
                "{label}: {member:?} and {:?}",
                self.sim.host(usize::from(member.session.number) - 1)
            );
        }
        assert_eq!(machine.level1_peers().moving(), 0, "{label}");
        let ranges: usize = machine.members().iter().map(|member| member.interest().len()).sum();
        assert!(machine.segments().len() <= 1 + 2 * ranges && ranges <= self.hosts * RANGES.len(), "{label}");
        // Two classes of about 160 packet addresses.
        assert!(machine.flows() <= 2 * 160 * (1 + self.hosts), "{label}: {} flows", machine.flows());
        assert_eq!(self.sim.central().levels(), (3, 3), "{label}");
        // Forget the messages received so far.
        self.check(label);
    }

    /// All hosts leave, some without announcing it: no state remains.
    pub fn end(&mut self, label: &str) {
        for host in 0..self.hosts {
            match host % 3 {
                0 => self.sim.command(host, HostCommand::DropAll).unwrap(),
                1 => self.sim.command(host, HostCommand::Bye).unwrap(),
                _ => {}
            }
        }
        self.sim.run(Span::from_ms(500));
        assert!(!self.sim.host(0).has_pending(), "{label}");
        (0..self.hosts).for_each(|host| self.sim.stop(Node::Host(host)));
        self.sim.run(Span::from_s(15));
        assert_eq!(self.sim.joined, BTreeSet::new(), "{label}");
        let central = self.sim.central();
        assert_eq!(central.levels(), (3, 3));
        let machine = central.format2().expect("it uses format 2");
        assert!(machine.members().is_empty() && machine.segments().is_empty(), "{label}");
        let waiting: usize = machine
            .level1_peers()
            .iter()
            .map(|converter| converter.session().map_or(0, |session| session.outbox.waiting().0))
            .sum();
        assert_eq!(waiting, 0, "{label}");
        assert!(machine.level1_peers().iter().all(|converter| converter.target().count() == 0), "{label}");
        let counts = machine.level1_peers().counts();
        assert_eq!(machine.level1_peers().moving(), 0, "{label}: {counts:?}");
    }
}
