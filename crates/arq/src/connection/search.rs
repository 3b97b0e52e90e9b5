//! Search for the path MTU, modelled on RFC 8899 (DPLPMTUD). This module decides what to probe; [`path`](super::path)
//! sends the probes.
//!
//! | clause of RFC 8899 | implementation |
//! | --- | --- |
//! | 5.1.1, `PROBE_TIMER`: at least 1 s | [`PathSearch::next_probe`] |
//! | 5.1.1, `PMTU_RAISE_TIMER`: 600 s | [`RAISE_INTERVAL`] |
//! | 5.1.2, `MAX_PROBES`: 3 | [`MAX_PROBES`] |
//! | 5.1.2, `BASE_PLPMTU`: 1,200 bytes | [`BASE`] |
//! | 5.3.2, sizes to try | the maximum, then common lengths, then binary search |
//! | 4.3, black holes | [`PathSearch::on_black_hole_sign`] |

use trunkline_units::{Instant, Span};

/// Frame length that every path is assumed to carry.
pub(super) const BASE: usize = 1200;
/// Common path MTUs less the headers of IPv6 or IPv4 and UDP: the minimum MTU of IPv6, tunnels, PPP over Ethernet,
/// Ethernet, FDDI, jumbo frames, ATM.
const COMMON_LENGTHS: [usize; 14] =
    [1232, 1252, 1392, 1432, 1444, 1452, 1464, 1472, 4304, 4324, 8952, 8972, 9132, 9152];
/// Precision of the search between common lengths, in bytes.
const RESOLUTION: usize = 32;
/// Unanswered probes before a length is considered too long.
const MAX_PROBES: u32 = 3;
/// Consecutive signs of a black hole before the path MTU is reduced.
const MAX_SIGNS: u32 = 3;
/// Interval between searches for a larger path MTU.
const RAISE_INTERVAL: Span = Span::from_s(600);
/// Delay of the search after a reduction, so that an unstable path is not probed continuously.
const REDUCED_INTERVAL: Span = Span::from_s(60);
/// Minimum time to wait for a reply.
const MIN_PROBE_TIMEOUT: Span = Span::from_s(1);
/// Bit that distinguishes tokens of path MTU probes from those of keep-alive probes.
const SEARCH_TOKEN: u32 = 1 << 31;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub token: u32,
    pub length: usize,
}

#[derive(Debug)]
pub(super) struct PathSearch {
    /// The current path MTU: the maximum length known, or assumed before any probe, to be carried.
    pub carried: usize,
    /// Minimum length known not to be carried, in this search.
    upper_bound: usize,
    /// Length that every path carries.
    pub base: usize,
    /// Upper limit of the search.
    max: usize,
    /// The probe that awaits a reply, and how often it was sent.
    probe: Option<Probe>,
    attempts: u32,
    /// Token of the last probe.
    token: u32,
    /// When to call [`next_probe`](PathSearch::next_probe); [`Instant::MAX`]: never.
    pub wake_at: Instant,
    searching: bool,
    /// Consecutive signs of a black hole.
    signs: u32,
}

impl PathSearch {
    /// Starts a search between `initial`, which the path is assumed to carry, and `max`.
    pub fn new(now: Instant, initial: usize, max: usize) -> PathSearch {
        PathSearch {
            carried: initial,
            upper_bound: max + 1,
            base: initial.min(BASE),
            max: max.max(initial),
            probe: None,
            attempts: 0,
            token: SEARCH_TOKEN,
            wake_at: if max > initial { now } else { Instant::MAX },
            searching: false,
            signs: 0,
        }
    }

    /// Returns the next probe, if any. A reply is expected within `timeout`, at least one second.
    pub fn next_probe(&mut self, now: Instant, timeout: Span) -> Option<Probe> {
        if now < self.wake_at {
            return None;
        }
        if let Some(probe) = self.probe
            && self.attempts >= MAX_PROBES
        {
            self.upper_bound = probe.length;
            self.probe = None;
        }
        if !self.searching {
            (self.searching, self.upper_bound) = (true, self.max + 1);
        }
        if self.probe.is_none() {
            self.probe = self.next_length().map(|length| {
                self.token = self.token.wrapping_add(1) | SEARCH_TOKEN;
                Probe { token: self.token, length }
            });
            self.attempts = 0;
        }
        if self.probe.is_none() {
            self.searching = false;
            self.wake_at = if self.carried < self.max { now + RAISE_INTERVAL } else { Instant::MAX };
            return None;
        }
        self.attempts += 1;
        self.wake_at = now + timeout.max(MIN_PROBE_TIMEOUT);
        self.probe
    }

    /// Processes the reply to a probe; returns whether the path MTU has increased.
    pub fn on_reply(&mut self, now: Instant, token: u32, length: usize) -> bool {
        if self.probe != Some(Probe { token, length }) {
            return false;
        }
        self.probe = None;
        self.carried = length;
        self.wake_at = now;
        true
    }

    /// Returns the next length to probe, none if the search is complete.
    fn next_length(&self) -> Option<usize> {
        let candidates = self.carried + 1..self.upper_bound;
        if candidates.contains(&self.max) {
            return Some(self.max);
        }
        let mut common = COMMON_LENGTHS.iter().filter(|length| candidates.contains(length));
        let count = common.clone().count();
        let middle = self.carried.midpoint(self.upper_bound);
        common.nth(count / 2).copied().or((self.upper_bound - self.carried > RESOLUTION).then_some(middle))
    }

    /// Returns whether a frame of this length depends on the result of probes.
    pub fn is_long(&self, length: usize) -> bool {
        (self.base + 1..=self.carried).contains(&length)
    }

    pub fn on_long_frame_acked(&mut self) {
        self.signs = 0;
    }

    /// Records that only long frames were lost or unanswered. Returns whether the signs suffice for a black hole:
    /// then the path MTU is the base until the next search.
    pub fn on_black_hole_sign(&mut self, now: Instant) -> bool {
        self.signs += 1;
        if self.signs < MAX_SIGNS || self.carried == self.base {
            return false;
        }
        (self.carried, self.signs, self.probe, self.searching) = (self.base, 0, None, false);
        self.wake_at = now + REDUCED_INTERVAL;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Maximum number of probes of a search: the maximum, four common lengths, and a binary search of the widest gap.
    const MAX_SEARCH_PROBES: u32 = MAX_PROBES * (1 + 4 + 11);

    /// Runs a search over a path that carries `path_mtu` bytes; returns the number of probes and the end time.
    fn search(search: &mut PathSearch, mut now: Instant, path_mtu: usize) -> (u32, Instant) {
        let mut probes = 0;
        while search.wake_at < Instant::MAX {
            let is_searching = search.searching || probes == 0;
            now = now.max(search.wake_at);
            let Some(probe) = search.next_probe(now, Span::from_ms(10)) else { break };
            assert!(is_searching && (BASE.min(search.base)..=search.max).contains(&probe.length));
            assert!(probe.token & SEARCH_TOKEN != 0);
            probes += 1;
            if probe.length <= path_mtu {
                assert!(search.on_reply(now, probe.token, probe.length));
                assert!(!search.on_reply(now, probe.token, probe.length), "once");
            }
        }
        (probes, now)
    }

    fn assert_found(search: &PathSearch, path_mtu: usize) {
        let found = search.carried;
        assert!(
            found <= path_mtu.min(search.max) && found + RESOLUTION > path_mtu.min(search.max),
            "{search:?}"
        );
        assert!(
            !COMMON_LENGTHS.contains(&path_mtu) || path_mtu > search.max || found == path_mtu,
            "{search:?}"
        );
    }

    proptest! {
        #[test]
        fn search_finds_the_path_mtu(
            base in 128usize..3000,
            more in 0usize..65_507,
            path_mtu in 0usize..70_000,
        ) {
            let max = (base + more).min(65_507);
            let path_mtu = path_mtu.max(base);
            let mut path = PathSearch::new(Instant::ZERO, base, max);
            let (probes, ended_at) = search(&mut path, Instant::ZERO, path_mtu);
            prop_assert!(probes <= MAX_SEARCH_PROBES, "{probes} probes");
            assert_found(&path, path_mtu);
            // A path that carries the maximum is not searched again; any other is, after the interval.
            if path.carried == max {
                prop_assert_eq!(path.wake_at, Instant::MAX);
            } else {
                prop_assert_eq!(path.wake_at, ended_at + RAISE_INTERVAL);
                let (probes, _) = search(&mut path, ended_at, 70_000);
                prop_assert_eq!((probes, path.carried), (1, max));
            }
        }

        #[test]
        fn search_follows_a_reduced_path_mtu(
            max in 1472usize..65_507,
            path_mtu in BASE..65_507,
            later_s in 0u64..1000,
        ) {
            let mut path = PathSearch::new(Instant::ZERO, 1472, max);
            let (_, mut now) = search(&mut path, Instant::ZERO, max);
            prop_assert_eq!(path.carried, max);
            now += Span::from_s(later_s);
            prop_assert!(!path.on_black_hole_sign(now) && !path.on_black_hole_sign(now));
            path.on_long_frame_acked();
            prop_assert!(!path.on_black_hole_sign(now) && !path.on_black_hole_sign(now) && path.on_black_hole_sign(now));
            prop_assert_eq!((path.carried, path.wake_at), (BASE, now + REDUCED_INTERVAL));
            prop_assert!(path.next_probe(now, Span::ZERO).is_none());
            prop_assert!((0..10).all(|_| !path.on_black_hole_sign(now)), "the base is the minimum");
            let (probes, _) = search(&mut path, now, path_mtu);
            prop_assert!(probes <= MAX_SEARCH_PROBES);
            assert_found(&path, path_mtu);
        }
    }

    #[test]
    fn common_lengths_are_found_exactly() {
        for path_mtu in COMMON_LENGTHS.into_iter().chain([65_507]) {
            let mut path = PathSearch::new(Instant::ZERO, 512, 65_507);
            search(&mut path, Instant::ZERO, path_mtu);
            assert_eq!(path.carried, path_mtu);
        }
    }

    #[test]
    fn probes_per_minute_are_bounded() {
        // The path carries everything until the length grows, and then nothing long.
        let (mut path, mut now) = (PathSearch::new(Instant::ZERO, 1472, 9000), Instant::ZERO);
        let mut sent = Vec::new();
        for _ in 0..5000 {
            now = now.max(path.wake_at);
            if let Some(probe) = path.next_probe(now, Span::ZERO) {
                sent.push(now);
                if sent.len() % 7 != 0 {
                    path.on_reply(now, probe.token, probe.length);
                    while path.carried > 1200 && !path.on_black_hole_sign(now) {}
                }
            }
        }
        let minute = |from: Instant| from..from + Span::from_s(60);
        let counts = sent.iter().map(|from| sent.iter().filter(|at| minute(*from).contains(at)).count());
        assert!(counts.max() <= Some(MAX_SEARCH_PROBES as usize) && sent.len() > 1000);
    }

    #[test]
    fn stale_replies_are_ignored() {
        let mut path = PathSearch::new(Instant::ZERO, 1472, 9000);
        let probe = path.next_probe(Instant::ZERO, Span::ZERO).unwrap();
        assert_eq!(probe.length, 9000);
        for (token, length) in [(probe.token, 8999), (probe.token ^ 1, 9000), (0, 9000)] {
            assert!(!path.on_reply(Instant::ZERO, token, length));
        }
        // A late reply is valid.
        let repeated = path.next_probe(path.wake_at, Span::ZERO).unwrap();
        assert_eq!(repeated, probe);
        assert!(path.on_reply(path.wake_at, probe.token, 9000) && path.carried == 9000);
    }
}
