//! Days of simulated time in format 1 (classic) with restarts of all endpoints: no state remains except what the
//! format cannot know. The format has no keep-alive: after an immediate restart a host keeps its old interest at the
//! central converter until it refuses a bundle. Lost joins are refreshed periodically, lost leaves with the next
//! message.
#![cfg(feature = "soak")]

use std::collections::BTreeSet;

use crate::simulation::{Impairments, Node, Simulation, join, leave};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::drops::{DropCounts, DropReason};
use trunkline_bundle::host::{HostCommand, OutgoingMessage};
use trunkline_bundle::level::Medium;
use trunkline_bundle::wire::classic::packet_address as classic_packet_address;
use trunkline_bundle::{Settings, central};
use trunkline_units::{Seed, Span, Stream};

/// Message addresses: close ones that share a packet address or a pair, and distant ones.
const ADDRESSES: [u16; 14] = [0, 1, 7, 31, 32, 63, 64, 100, 333, 1_000, 2_048, 2_049, 40_000, 65_535];
/// The medium carries the refreshes of 16 hosts, but not a burst of messages.
const MEDIUM: Medium = Medium { capacity: 8_000, interval: Span::from_ms(5) };
/// Messages in a burst.
const BURST: usize = 80;

struct Day {
    sim: Simulation,
    draw: Stream,
    level1: usize,
    hosts: usize,
    joined: Vec<BTreeSet<u16>>,
    /// The addresses each host may still receive: those it joined at any time since the last check.
    allowed: Vec<BTreeSet<u16>>,
    /// The sender, 0 for the remote host or 1 + host, and the address of each message.
    sent: Vec<(usize, u16)>,
}

impl Day {
    fn new(seed: u64) -> Day {
        let mut draw = Seed(seed).stream("day");
        let timing = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY][draw.below(3) as usize];
        let settings = Settings { timing, pairs: draw.chance(0.5), ..Settings::default() };
        let (level1, hosts) = (1 + draw.below(6) as usize, 2 + draw.below(15) as usize);
        Day {
            sim: Simulation::new(level1 as u16, hosts as u16, settings, MEDIUM).seed(seed).with_refresh(),
            draw,
            level1,
            hosts,
            joined: vec![BTreeSet::new(); hosts],
            allowed: vec![BTreeSet::new(); hosts],
            sent: Vec::new(),
        }
    }

    /// Returns the addresses joined together with one.
    fn pair(&self, address: u16) -> Vec<u16> {
        if self.sim.settings.pairs { vec![address & !1, address | 1] } else { vec![address] }
    }

    fn pick_address(&mut self) -> u16 {
        ADDRESSES[self.draw.below(ADDRESSES.len() as u64) as usize]
    }

    /// Changes the interest of a random host.
    fn change(&mut self) {
        let (host, address) = (self.draw.below(self.hosts as u64) as usize, self.pick_address());
        let pair = self.pair(address);
        let joins = !self.joined[host].contains(&address);
        let command = if joins { join(address) } else { leave(address) };
        if self.sim.command(host, command).is_err() {
            return; // without room nothing changes
        }
        for address in pair {
            if joins {
                self.joined[host].insert(address);
                self.allowed[host].insert(address);
            } else {
                self.joined[host].remove(&address);
            }
        }
    }

    /// Sends a message from a random sender.
    fn send(&mut self) {
        let sender = self.draw.below(self.hosts as u64 + 1) as usize;
        self.send_by(sender);
    }

    /// Sends a message from the remote host, 0, or 1 + host; returns whether it was admitted.
    fn send_by(&mut self, sender: usize) -> bool {
        let address = self.pick_address();
        let mut body = (self.sent.len() as u32).to_be_bytes().to_vec();
        // Longer than a control message.
        body.resize(30 + self.draw.below(200) as usize, 0xAB);
        let taken = match sender.checked_sub(1) {
            None => {
                self.sim.inject(address.into(), false, &body);
                Ok(())
            }
            Some(host) => {
                let message = OutgoingMessage::new(&self.sim.settings, address.into(), &body);
                self.sim.command(host, HostCommand::Send(message))
            }
        };
        // Ignore messages refused for congestion.
        if taken.is_ok() {
            self.sent.push((sender, address));
        }
        taken.is_ok()
    }

    /// Checks and returns the received messages: host and message number.
    fn take_received(&mut self, label: &str) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (host, _, body) in std::mem::take(&mut self.sim.received) {
            let number = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
            let (sender, address) = self.sent[number];
            assert_ne!(sender, host + 1, "{label}: {number} is reflected");
            assert!(self.allowed[host].contains(&address), "{label}: {number} to {address} at host {host}");
            all.push((host, number));
        }
        self.sim.out.clear();
        all
    }

    /// Runs two seconds of joins, leaves, messages and restarts.
    fn round(&mut self, label: &str) {
        self.sim.impairments = Impairments {
            loss: [0.0, 0.02, 0.2][self.draw.below(3) as usize],
            duplication: 0.05,
            jitter: Span::from_us(self.draw.below(3_000)),
        };
        let until = self.sim.now + Span::from_s(2);
        while self.sim.now < until {
            match self.draw.below(12) {
                0 => self.change(),
                1 if self.draw.chance(0.04) => self.restart(label),
                2..=9 => self.send(),
                10 if self.draw.chance(0.05) => (0..BURST).for_each(|_| self.send()),
                _ => {}
            }
            let pause = Span::from_us(self.draw.below(2_000));
            self.sim.run(pause);
        }
        self.take_received(label);
    }

    fn restart(&mut self, label: &str) {
        self.take_received(label);
        let node = match self.draw.below(4) {
            0 => Node::Central,
            1 | 2 => Node::Level1(self.draw.below(self.level1 as u64) as usize),
            _ => Node::Host(self.draw.below(self.hosts as u64) as usize),
        };
        if let Node::Host(host) = node {
            self.joined[host].clear();
        }
        if self.draw.chance(0.5) {
            return self.sim.start(node);
        }
        self.sim.stop(node);
        let away = Span::from_ms(1 + self.draw.below(1_500));
        self.sim.run(Span::from_ms(1));
        self.refuse(node);
        self.sim.run(away);
        self.sim.start(node);
    }

    /// Reports that a node refuses bundles, to those that send to it.
    fn refuse(&mut self, node: Node) {
        match node {
            Node::Central => {
                (0..self.hosts).for_each(|host| self.sim.command(host, HostCommand::CentralRefused).unwrap());
            }
            Node::Level1(at) => {
                self.sim.command_central(central::CentralCommand::Level1Refused(at as u16 + 1));
            }
            Node::Host(host) => {
                self.sim.command_central(central::CentralCommand::HostRefused(host as u8 + 1))
            }
        }
    }

    /// Sends two messages on every packet address from the wide area, so that stray groups are left.
    fn find_strays(&mut self) {
        for _ in 0..2 {
            for address in ADDRESSES {
                let body = [&(self.sent.len() as u32).to_be_bytes()[..], &[0; 60]].concat();
                self.sent.push((0, address));
                self.sim.inject(address.into(), false, &body);
                self.sim.run(Span::from_ms(20));
            }
            self.sim.run(Span::from_s(3));
        }
    }

    /// Every host refuses once and refreshes its joins on a good network; afterwards the state is correct.
    fn heal(&mut self, label: &str) {
        self.sim.impairments = Impairments::default();
        self.sim.run(Span::from_s(3));
        (0..self.hosts).for_each(|host| self.refuse(Node::Host(host)));
        // A full refresh cycle and more.
        self.sim.run(Span::from_s(25));
        self.find_strays();
        self.take_received(label);
        self.check_state(label);
        self.allowed.clone_from(&self.joined);
        let from = self.sent.len();
        // No congestion level remains at senders or at their receivers.
        for sender in (0..=self.hosts).chain(0..=self.hosts) {
            assert!(self.send_by(sender), "{label}: {sender} is refused");
            self.sim.run(Span::from_ms(15));
        }
        self.sim.run(Span::from_ms(100));
        assert_eq!(self.sim.out.len(), 2 * self.hosts, "{label}: what went out");
        let mut take_received = self.take_received(label);
        take_received.sort_unstable();
        let wanted = |host: usize, (sender, address): (usize, u16)| {
            sender != host + 1 && self.joined[host].contains(&address)
        };
        let sent = |host: usize| (from..self.sent.len()).map(move |number| (host, number));
        let all = (0..self.hosts).flat_map(sent).filter(|(host, number)| wanted(*host, self.sent[*number]));
        // Each arrives once, and no earlier message arrives.
        assert_eq!(take_received, all.collect::<Vec<_>>(), "{label}");
    }

    /// Checks that the state of all endpoints matches the interest of the hosts.
    fn check_state(&self, label: &str) {
        let interest = self.sim.central().subscriptions().unwrap();
        for (host, joined) in (0..).zip(&self.joined) {
            let known: BTreeSet<u16> = interest.addresses_of(host + 1).collect();
            assert_eq!(known, *joined, "{label}: host {host}");
        }
        let packets: BTreeSet<u16> =
            self.joined.iter().flatten().map(|address| classic_packet_address(*address)).collect();
        let joined: Vec<u16> = self.sim.joined.iter().map(|(_, packet)| *packet).collect();
        assert_eq!(joined.iter().copied().collect::<BTreeSet<_>>(), packets, "{label}: what level 1 gets");
        assert_eq!(joined.len(), packets.len(), "{label}: two get the same");
        assert_eq!(self.sim.central().levels(), (3, 3), "{label}");
    }

    /// All hosts leave, some without announcing it: no state remains.
    fn end(&mut self, label: &str) {
        for host in 0..self.hosts {
            if host % 2 == 0 {
                self.sim.command(host, HostCommand::DropAll).unwrap();
            }
            self.joined[host].clear();
        }
        self.sim.run(Span::from_ms(200));
        for host in (0..self.hosts).filter(|host| host % 2 == 1) {
            self.sim.stop(Node::Host(host));
            self.refuse(Node::Host(host));
        }
        self.sim.run(Span::from_s(15));
        assert_eq!(self.sim.joined, BTreeSet::new(), "{label}");
        let interest = self.sim.central().subscriptions().unwrap();
        assert!((1..=16).all(|host| interest.addresses_of(host).count() == 0), "{label}");
        assert!((1..=6).all(|number| interest.owned_by(number).count() == 0), "{label}");
    }
}

#[test]
fn a_day_of_restarts_leaves_no_state_behind() {
    for seed in [1996, 1997, 1998] {
        let mut day = Day::new(seed);
        let (mut round, mut totals) = (0, [0; 4]);
        while day.sim.now.as_s() < 24.0 * 3600.0 {
            let label = format!("seed {seed}, round {round}");
            day.round(&label);
            day.heal(&label);
            // Silence does not end an interest.
            day.sim.run(Span::from_s(250));
            day.check_state(&label);
            // A restarted central converter counts from 0: add up the counters of all rounds.
            let s = day.sim.central().statistics();
            let cut = |drops: &DropCounts| drops.get(DropReason::Congestion, false);
            let cut = cut(&s.drops_to_hosts) + cut(&s.drops_to_level1);
            for (all, pick_address) in
                totals.iter_mut().zip([s.stray_groups, s.hosts_removed, s.joins_refreshed, cut])
            {
                *all += pick_address;
            }
            round += 1;
        }
        println!("seed {seed}: {round} rounds; strays, removed, refreshed, cut: {totals:?}");
        assert!(totals.into_iter().all(|count| count > 0), "seed {seed}: {totals:?}");
        day.end(&format!("seed {seed}"));
    }
}
