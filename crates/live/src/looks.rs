//! What the interfaces of a run counted, against time.
//!
//! Looks begin 100 ms apart; when there are too many, every other one is forgotten and they are twice as far apart, as in
//! a simulated run.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trunkline_io::usage;
use trunkline_record::schema::Interface;
use trunkline_units::{Instant, Span};

/// Looks that are kept at the most, of all interfaces together.
const MOST: usize = 600;
/// Between looks, at first.
const FINEST: Span = Span::from_ms(100);
/// What is looked at: octets, packets and dropped, in and out.
const COUNTERS: [&str; 6] = ["rx_bytes", "rx_packets", "rx_dropped", "tx_bytes", "tx_packets", "tx_dropped"];

/// Counters of an interface at a moment.
type Counts = [u64; COUNTERS.len()];

/// Looks, one after the other.
#[derive(Debug)]
pub struct Looks {
    interfaces: Vec<Watched>,
    between: Span,
    next: Instant,
}

#[derive(Debug)]
struct Watched {
    name: String,
    first: Counts,
    counts: Vec<(Instant, Counts)>,
}

impl Looks {
    /// At the interfaces that hold these addresses, for a first time.
    pub fn new<'a>(addresses: impl Iterator<Item = &'a IpAddr>, now: Instant) -> Looks {
        let names: BTreeSet<String> = addresses.filter_map(|address| usage::interface_of(*address)).collect();
        let watched = |name: String| Some(Watched { first: counts(&name)?, name, counts: Vec::new() });
        let interfaces = names.into_iter().filter_map(watched).collect();
        let mut looks = Looks { interfaces, between: FINEST, next: now };
        looks.look(now);
        looks
    }

    /// How long it is until the next.
    pub fn wait(&self, now: Instant) -> Span {
        self.next.max(now).since(now)
    }

    /// Looks, if it is time.
    pub fn look(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        if self.interfaces.iter().map(|one| one.counts.len() + 1).sum::<usize>() > MOST {
            self.interfaces.iter_mut().for_each(Watched::thin);
            self.between = self.between * 2;
        }
        self.interfaces.iter_mut().for_each(|one| one.look(now));
        self.next = now + self.between;
    }

    /// Looks a last time.
    pub fn finish(mut self, now: Instant) -> Vec<Interface> {
        self.interfaces.iter_mut().for_each(|one| one.look(now));
        self.interfaces.into_iter().map(Watched::told).collect()
    }
}

impl Watched {
    fn look(&mut self, now: Instant) {
        // One that is gone has counted what it had.
        let last = self.counts.last().map_or(self.first, |(_, counts)| *counts);
        self.counts.push((now, counts(&self.name).unwrap_or(last)));
    }

    /// Forgets every other look; the first stays.
    fn thin(&mut self) {
        self.counts = self.counts.iter().step_by(2).copied().collect();
    }

    fn told(self) -> Interface {
        let Watched { name, first, counts } = self;
        let told = |(at, counts): (Instant, Counts)| {
            let grew: Counts = std::array::from_fn(|which| counts[which].wrapping_sub(first[which]));
            (at.since(Instant::ZERO).as_s(), grew)
        };
        Interface { name, counts: counts.into_iter().map(told).collect() }
    }
}

/// None if there is no such interface, or it does not tell.
fn counts(interface: &str) -> Option<Counts> {
    let all = usage::interface_counters(interface);
    let counts = COUNTERS.map(|name| all.get(name).copied());
    counts.iter().all(Option::is_some).then(|| counts.map(Option::unwrap_or_default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_thinned_and_told_from_the_first_on() {
        let at = |ms| Instant::ZERO + Span::from_ms(ms);
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let mut looks = Looks::new([lo, lo, "192.0.2.1".parse().unwrap()].iter(), at(50));
        assert_eq!(looks.wait(at(60)), Span::from_ms(90));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let rounds = 10_000;
        for round in 1..=rounds {
            socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
            looks.look(at(50 + 10 * round));
        }
        let told = looks.finish(at(200_000));
        let [one] = &told[..] else { panic!("{told:?}") };
        assert!((MOST / 4..=MOST + 1).contains(&one.counts.len()), "{}", one.counts.len());
        assert_eq!(one.counts[0], (0.05, [0; 6]));
        let (end, last) = one.counts.last().unwrap();
        assert_eq!(*end, 200.0);
        // Others may use it as well.
        assert!(last[1] >= rounds && last[3] >= 100 * rounds, "{last:?}");
        assert!(one.counts.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
