//! Samples the counters of the network interfaces that a run uses.
//!
//! The initial interval is 100 ms. When the limit is reached, every other sample is dropped and the interval doubles,
//! as in a simulated run.

use std::collections::BTreeSet;
use std::net::IpAddr;

use trunkline_io::usage;
use trunkline_record::schema::Interface;
use trunkline_units::{Instant, Span};

/// Maximum number of samples of all interfaces together.
const MAX_SAMPLES: usize = 600;
/// Interval between samples at first.
const INITIAL_INTERVAL: Span = Span::from_ms(100);
/// Sampled counters: octets, packets and drops, in and out.
const COUNTERS: [&str; 6] = ["rx_bytes", "rx_packets", "rx_dropped", "tx_bytes", "tx_packets", "tx_dropped"];

/// Counters of an interface at an instant.
type Counts = [u64; COUNTERS.len()];

/// Samples of the counters of several interfaces.
#[derive(Debug)]
pub struct InterfaceSampler {
    interfaces: Vec<SampledInterface>,
    interval: Span,
    next: Instant,
}

#[derive(Debug)]
struct SampledInterface {
    name: String,
    /// Never empty.
    counts: Vec<(Instant, Counts)>,
}

impl InterfaceSampler {
    /// Finds the interfaces that have these addresses and takes the first sample.
    pub fn new<'a>(addresses: impl Iterator<Item = &'a IpAddr>, now: Instant) -> InterfaceSampler {
        let names: BTreeSet<String> = addresses.filter_map(|address| usage::interface_of(*address)).collect();
        let sampled = |name: String| Some(SampledInterface { counts: vec![(now, counts(&name)?)], name });
        let interfaces = names.into_iter().filter_map(sampled).collect();
        InterfaceSampler { interfaces, interval: INITIAL_INTERVAL, next: now + INITIAL_INTERVAL }
    }

    /// Returns the time until the next sample is due.
    pub fn time_to_next(&self, now: Instant) -> Span {
        self.next.max(now).since(now)
    }

    /// Takes a sample if one is due.
    pub fn sample(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        if self.interfaces.iter().map(|one| one.counts.len() + 1).sum::<usize>() > MAX_SAMPLES {
            self.interfaces.iter_mut().for_each(SampledInterface::drop_every_other);
            self.interval = self.interval * 2;
        }
        self.interfaces.iter_mut().for_each(|one| one.sample(now));
        self.next = now + self.interval;
    }

    /// Takes a last sample and returns all samples, relative to the first.
    pub fn finish(mut self, now: Instant) -> Vec<Interface> {
        self.interfaces.iter_mut().for_each(|one| one.sample(now));
        self.interfaces.into_iter().map(SampledInterface::into_interface).collect()
    }
}

impl SampledInterface {
    fn sample(&mut self, now: Instant) {
        // An interface that has disappeared keeps its last values.
        let (_, last) = self.counts[self.counts.len() - 1];
        self.counts.push((now, counts(&self.name).unwrap_or(last)));
    }

    /// Drops every other sample; the first stays.
    fn drop_every_other(&mut self) {
        self.counts = self.counts.iter().step_by(2).copied().collect();
    }

    fn into_interface(self) -> Interface {
        let SampledInterface { name, counts } = self;
        let (_, first) = counts[0];
        let into_interface = |(at, counts): (Instant, Counts)| {
            let growth: Counts = std::array::from_fn(|index| counts[index].wrapping_sub(first[index]));
            (at.since(Instant::ZERO).as_s(), growth)
        };
        Interface { name, counts: counts.into_iter().map(into_interface).collect() }
    }
}

/// Returns the counters of an interface; `None` if it does not exist or lacks a counter.
fn counts(interface: &str) -> Option<Counts> {
    let all = usage::interface_counters(interface);
    let counts = COUNTERS.map(|name| all.get(name).copied());
    counts.iter().all(Option::is_some).then(|| counts.map(Option::unwrap_or_default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_thinned_and_relative_to_the_first() {
        let at = |ms| Instant::ZERO + Span::from_ms(ms);
        let lo: IpAddr = "127.0.0.1".parse().unwrap();
        let mut sampler = InterfaceSampler::new([lo, lo, "192.0.2.1".parse().unwrap()].iter(), at(50));
        assert_eq!(sampler.time_to_next(at(60)), Span::from_ms(90));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let numbers = 10_000;
        for number in 1..=numbers {
            socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
            sampler.sample(at(50 + 10 * number));
        }
        let interfaces = sampler.finish(at(200_000));
        let [one] = &interfaces[..] else { panic!("{interfaces:?}") };
        assert!((MAX_SAMPLES / 4..=MAX_SAMPLES + 1).contains(&one.counts.len()), "{}", one.counts.len());
        assert_eq!(one.counts[0], (0.05, [0; 6]));
        let (end, last) = one.counts.last().unwrap();
        assert_eq!(*end, 200.0);
        // Other processes may use the loopback as well.
        assert!(last[1] >= numbers && last[3] >= 100 * numbers, "{last:?}");
        assert!(one.counts.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
