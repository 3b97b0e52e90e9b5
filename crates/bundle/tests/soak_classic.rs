//! A day of simulated time in the classic format, with restarts of everybody at any time: nothing is left behind but what the
//! format cannot know. Silence removes nobody: a host that restarts at once has in the central converter's eyes what it wanted
//! before, until it refuses; what was not heard is told again, joins by a clock and leaves by the next message.
#![cfg(feature = "soak")]

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/world.rs"]
mod world;

use std::collections::BTreeSet;

use trunkline_bundle::drops::{Drops, Why};
use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::Command;
use trunkline_bundle::interest::packet;
use trunkline_bundle::level::Medium;
use trunkline_bundle::{Settings, central};
use trunkline_units::{Seed, Span, Stream};
use world::{Line, Place, World};

/// Message addresses to choose from: near ones that share a packet address or a pair, and far ones.
const ADDRESSES: [u16; 14] = [0, 1, 7, 31, 32, 63, 64, 100, 333, 1_000, 2_048, 2_049, 40_000, 65_535];
/// What 16 hosts tell again at once has room, and no burst of messages.
const MEDIUM: Medium = Medium { capacity: 8_000, interval: Span::from_ms(5) };
/// Messages of a burst.
const BURST: usize = 80;

struct Day {
    world: World,
    draw: Stream,
    level1: usize,
    hosts: usize,
    wants: Vec<BTreeSet<u16>>,
    /// What each may still get: what it wanted at any time since all was known to be right.
    may_get: Vec<BTreeSet<u16>>,
    /// Of each message who sent it, 0 the far host or 1 + the host, and its address.
    sent: Vec<(usize, u16)>,
}

impl Day {
    fn new(seed: u64) -> Day {
        let mut draw = Seed(seed).stream("day");
        let timing = [Timing::CLASSIC, Timing::LEAST_PROCESSOR, Timing::LEAST_DELAY][draw.below(3) as usize];
        let settings = Settings { timing, pairs: draw.chance(0.5), ..Settings::default() };
        let (level1, hosts) = (1 + draw.below(6) as usize, 2 + draw.below(15) as usize);
        Day {
            world: World::new(level1 as u16, hosts as u16, settings, MEDIUM).seed(seed).retelling(),
            draw,
            level1,
            hosts,
            wants: vec![BTreeSet::new(); hosts],
            may_get: vec![BTreeSet::new(); hosts],
            sent: Vec::new(),
        }
    }

    /// The addresses that are wanted with one.
    fn pair(&self, address: u16) -> Vec<u16> {
        if self.world.settings.pairs { vec![address & !1, address | 1] } else { vec![address] }
    }

    fn one(&mut self) -> u16 {
        ADDRESSES[self.draw.below(ADDRESSES.len() as u64) as usize]
    }

    /// Changes what a host wants.
    fn change(&mut self) {
        let (host, address) = (self.draw.below(self.hosts as u64) as usize, self.one());
        let pair = self.pair(address);
        let joins = !self.wants[host].contains(&address);
        let command = if joins { Command::Join(address) } else { Command::Drop(address) };
        if self.world.command(host, command).is_err() {
            return; // no room: nothing has changed
        }
        for address in pair {
            if joins {
                self.wants[host].insert(address);
                self.may_get[host].insert(address);
            } else {
                self.wants[host].remove(&address);
            }
        }
    }

    /// Whoever it is sends something.
    fn send(&mut self) {
        let sender = self.draw.below(self.hosts as u64 + 1) as usize;
        self.send_by(sender);
    }

    /// The far host, 0, or 1 + a host sends something; whether it may.
    fn send_by(&mut self, sender: usize) -> bool {
        let address = self.one();
        let mut body = (self.sent.len() as u32).to_be_bytes().to_vec();
        // Longer than control is.
        body.resize(30 + self.draw.below(200) as usize, 0xAB);
        let taken = match sender.checked_sub(1) {
            None => {
                self.world.hear(address.into(), false, &body);
                Ok(())
            }
            Some(host) => self.world.command(host, Command::Send { address, body: &body }),
        };
        // One that congestion refuses is nobody's.
        if taken.is_ok() {
            self.sent.push((sender, address));
        }
        taken.is_ok()
    }

    /// What hosts got, who and which message, all of which they may get.
    fn got(&mut self, place: &str) -> Vec<(usize, usize)> {
        let mut all = Vec::new();
        for (host, _, body) in std::mem::take(&mut self.world.got) {
            let number = u32::from_be_bytes(body[..4].try_into().unwrap()) as usize;
            let (sender, address) = self.sent[number];
            assert_ne!(sender, host + 1, "{place}: {number} is reflected");
            assert!(self.may_get[host].contains(&address), "{place}: {number} to {address} at host {host}");
            all.push((host, number));
        }
        self.world.out.clear();
        all
    }

    /// Two seconds of joins, leaves, messages and restarts.
    fn round(&mut self, place: &str) {
        self.world.line = Line {
            loss: [0.0, 0.02, 0.2][self.draw.below(3) as usize],
            doubled: 0.05,
            jitter: Span::from_us(self.draw.below(3_000)),
        };
        let until = self.world.now + Span::from_s(2);
        while self.world.now < until {
            match self.draw.below(12) {
                0 => self.change(),
                1 if self.draw.chance(0.04) => self.restart(place),
                2..=9 => self.send(),
                10 if self.draw.chance(0.05) => (0..BURST).for_each(|_| self.send()),
                _ => {}
            }
            let pause = Span::from_us(self.draw.below(2_000));
            self.world.run(pause);
        }
        self.got(place);
    }

    fn restart(&mut self, place: &str) {
        self.got(place);
        let who = match self.draw.below(4) {
            0 => Place::Central,
            1 | 2 => Place::Level1(self.draw.below(self.level1 as u64) as usize),
            _ => Place::Host(self.draw.below(self.hosts as u64) as usize),
        };
        if let Place::Host(host) = who {
            self.wants[host].clear();
        }
        if self.draw.chance(0.5) {
            return self.world.start(who);
        }
        self.world.stop(who);
        let away = Span::from_ms(1 + self.draw.below(1_500));
        self.world.run(Span::from_ms(1));
        self.refuse(who);
        self.world.run(away);
        self.world.start(who);
    }

    /// Who sends to somebody who is not there learns it.
    fn refuse(&mut self, who: Place) {
        match who {
            Place::Central => {
                (0..self.hosts).for_each(|host| self.world.command(host, Command::Refused).unwrap());
            }
            Place::Level1(at) => {
                self.world.tell_central(central::Command::Level1Refused(at as u16 + 1));
            }
            Place::Host(host) => self.world.tell_central(central::Command::HostRefused(host as u8 + 1)),
        }
    }

    /// Something comes from the wide area on every packet address, twice: converters that should not bring it leave.
    fn find_strays(&mut self) {
        for _ in 0..2 {
            for address in ADDRESSES {
                let body = [&(self.sent.len() as u32).to_be_bytes()[..], &[0; 60]].concat();
                self.sent.push((0, address));
                self.world.hear(address.into(), false, &body);
                self.world.run(Span::from_ms(20));
            }
            self.world.run(Span::from_s(3));
        }
    }

    /// Each is refused once and tells again what it wants, on a good network: all is as it is to be.
    fn heal(&mut self, place: &str) {
        self.world.line = Line::default();
        self.world.run(Span::from_s(3));
        (0..self.hosts).for_each(|host| self.refuse(Place::Host(host)));
        // A circle of those who tell again, and one more.
        self.world.run(Span::from_s(25));
        self.find_strays();
        self.got(place);
        self.is_right(place);
        self.may_get.clone_from(&self.wants);
        let from = self.sent.len();
        // No level of congestion has stayed, neither with those who send nor with those who let it out.
        for sender in (0..=self.hosts).chain(0..=self.hosts) {
            assert!(self.send_by(sender), "{place}: {sender} is refused");
            self.world.run(Span::from_ms(15));
        }
        self.world.run(Span::from_ms(100));
        assert_eq!(self.world.out.len(), 2 * self.hosts, "{place}: what went out");
        let mut got = self.got(place);
        got.sort_unstable();
        let wanted = |host: usize, (sender, address): (usize, u16)| {
            sender != host + 1 && self.wants[host].contains(&address)
        };
        let sent = |host: usize| (from..self.sent.len()).map(move |number| (host, number));
        let all = (0..self.hosts).flat_map(sent).filter(|(host, number)| wanted(*host, self.sent[*number]));
        // Each once, and nothing of what was sent before.
        assert_eq!(got, all.collect::<Vec<_>>(), "{place}");
    }

    /// What all know is what hosts want.
    fn is_right(&self, place: &str) {
        let interest = self.world.central().interest();
        for (host, wants) in (0..).zip(&self.wants) {
            let known: BTreeSet<u16> = interest.of_host(host + 1).collect();
            assert_eq!(known, *wants, "{place}: host {host}");
        }
        let packets: BTreeSet<u16> = self.wants.iter().flatten().map(|address| packet(*address)).collect();
        let joined: Vec<u16> = self.world.joined.iter().map(|(_, packet)| *packet).collect();
        assert_eq!(joined.iter().copied().collect::<BTreeSet<_>>(), packets, "{place}: what level 1 gets");
        assert_eq!(joined.len(), packets.len(), "{place}: two get the same");
        assert_eq!(self.world.central().levels(), (3, 3), "{place}");
    }

    /// All leave, some with a word: nothing is left.
    fn end(&mut self, place: &str) {
        for host in 0..self.hosts {
            if host % 2 == 0 {
                self.world.command(host, Command::DropAll).unwrap();
            }
            self.wants[host].clear();
        }
        self.world.run(Span::from_ms(200));
        for host in (0..self.hosts).filter(|host| host % 2 == 1) {
            self.world.stop(Place::Host(host));
            self.refuse(Place::Host(host));
        }
        self.world.run(Span::from_s(15));
        assert_eq!(self.world.joined, BTreeSet::new(), "{place}");
        let interest = self.world.central().interest();
        assert!((1..=16).all(|host| interest.of_host(host).count() == 0), "{place}");
        assert!((1..=6).all(|number| interest.held(number).count() == 0), "{place}");
    }
}

#[test]
fn a_day_of_restarts_leaves_nothing_behind() {
    for seed in [1996, 1997, 1998] {
        let mut day = Day::new(seed);
        let (mut round, mut happened) = (0, [0; 4]);
        while day.world.now.as_s() < 24.0 * 3600.0 {
            let place = format!("seed {seed}, round {round}");
            day.round(&place);
            day.heal(&place);
            // Nobody who is silent is forgotten.
            day.world.run(Span::from_s(250));
            day.is_right(&place);
            // Of the central converters that there are after each round.
            let s = day.world.central().statistics();
            let cut = |drops: &Drops| drops.get(Why::Congestion, false);
            let cut = cut(&s.drops_to_hosts) + cut(&s.drops_to_level1);
            for (all, one) in happened.iter_mut().zip([s.strays, s.removed, s.retold, cut]) {
                *all += one;
            }
            round += 1;
        }
        println!("seed {seed}: {round} rounds; strays, removed, retold, cut: {happened:?}");
        assert!(happened.into_iter().all(|count| count > 0), "seed {seed}: {happened:?}");
        day.end(&format!("seed {seed}"));
    }
}
