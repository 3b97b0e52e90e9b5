//! The search for the longest frame that a path carries, in the spirit of RFC 8899 (DPLPMTUD). It only counts and
//! decides; who sends the probes is [`path`](super::path)'s business.
//!
//! | clause of RFC 8899 | here |
//! | --- | --- |
//! | 5.1.1, `PROBE_TIMER`: at least 1 s | [`Search::wake`] |
//! | 5.1.1, `PMTU_RAISE_TIMER`: 600 s | [`RAISE`] |
//! | 5.1.2, `MAX_PROBES`: 3 | [`TRIES`] |
//! | 5.1.2, `BASE_PLPMTU`: 1,200 bytes | [`FLOOR`] |
//! | 5.3.2, sizes to try | the longest, then the usual ones, then halves of what is left |
//! | 4.3, black holes | [`Search::suspect`] |

use trunkline_units::{Instant, Span};

/// What every path is taken to carry.
pub(super) const FLOOR: usize = 1200;
/// Lengths that usual paths carry, less the headers of IPv6 or IPv4 and UDP: the least packet of IPv6, tunnels,
/// PPP over Ethernet, Ethernet, FDDI, jumbo frames, ATM.
const USUAL: [usize; 14] =
    [1232, 1252, 1392, 1432, 1444, 1452, 1464, 1472, 4304, 4324, 8952, 8972, 9132, 9152];
/// What is not a usual length is found to within so many bytes.
const GRAIN: usize = 32;
/// Probes of one length that must go unanswered.
const TRIES: u32 = 3;
/// Signs in a row that long frames vanish.
const SIGNS: u32 = 3;
/// A path that was searched may carry more after this long.
const RAISE: Span = Span::from_s(600);
/// A path that became shorter is searched after this long, not to probe all the time on one that comes and goes.
const REST: Span = Span::from_s(60);
/// The least time to wait for an answer.
const PATIENCE: Span = Span::from_s(1);
/// Tokens of probes that search have this bit; those that ask whether the peer is there do not.
const SEARCHES: u32 = 1 << 31;

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    pub token: u32,
    pub length: usize,
}

/// What is known of the path.
#[derive(Debug)]
pub(super) struct Search {
    /// Longest frame known to be carried, or believed to be as nothing was tried.
    carried: usize,
    /// Shortest known not to be, in this search.
    fails: usize,
    floor: usize,
    /// Longest that may be.
    most: usize,
    trial: Option<Trial>,
    tries: u32,
    token: u32,
    /// When to do something.
    at: Instant,
    searching: bool,
    signs: u32,
}

impl Search {
    /// Of a path that is taken to carry `base` bytes, up to `most`.
    pub fn new(now: Instant, base: usize, most: usize) -> Search {
        Search {
            carried: base,
            fails: most + 1,
            floor: base.min(FLOOR),
            most: most.max(base),
            trial: None,
            tries: 0,
            token: SEARCHES,
            at: if most > base { now } else { Instant::MAX },
            searching: false,
            signs: 0,
        }
    }

    /// Longest frame that the path is taken to carry.
    pub fn carried(&self) -> usize {
        self.carried
    }

    /// What it carries whatever happens.
    pub fn floor(&self) -> usize {
        self.floor
    }

    /// When to [wake](Search::wake) it; [`Instant::MAX`]: never.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// The next probe, if there is one; its answer may take `patience`, a second at least.
    pub fn wake(&mut self, now: Instant, patience: Span) -> Option<Trial> {
        if now < self.at {
            return None;
        }
        if let Some(trial) = self.trial
            && self.tries >= TRIES
        {
            self.fails = trial.length;
            self.trial = None;
        }
        if !self.searching {
            (self.searching, self.fails) = (true, self.most + 1);
        }
        if self.trial.is_none() {
            self.trial = self.next_length().map(|length| {
                self.token = self.token.wrapping_add(1) | SEARCHES;
                Trial { token: self.token, length }
            });
            self.tries = 0;
        }
        if self.trial.is_none() {
            self.searching = false;
            self.at = if self.carried < self.most { now + RAISE } else { Instant::MAX };
            return None;
        }
        self.tries += 1;
        self.at = now + patience.max(PATIENCE);
        self.trial
    }

    /// Not now.
    pub fn postpone(&mut self, at: Instant) {
        self.at = at;
    }

    /// A probe was answered. Whether longer frames may be sent now.
    pub fn answered(&mut self, now: Instant, token: u32, length: usize) -> bool {
        if self.trial != Some(Trial { token, length }) {
            return false;
        }
        self.trial = None;
        self.carried = length;
        self.at = now;
        true
    }

    fn next_length(&self) -> Option<usize> {
        let open = self.carried + 1..self.fails;
        if open.contains(&self.most) {
            return Some(self.most);
        }
        let mut usual = USUAL.iter().filter(|length| open.contains(length));
        let count = usual.clone().count();
        let half = self.carried.midpoint(self.fails);
        usual.nth(count / 2).copied().or((self.fails - self.carried > GRAIN).then_some(half))
    }

    /// Whether a frame of this length was sent whole because probes say that it may be.
    pub fn is_long(&self, length: usize) -> bool {
        (self.floor + 1..=self.carried).contains(&length)
    }

    /// A long frame has arrived.
    pub fn arrived(&mut self) {
        self.signs = 0;
    }

    /// Long frames, and only such, were lost, or have long gone without an answer. Whether the path no longer carries
    /// them: then the least length holds until it is searched again.
    pub fn suspect(&mut self, now: Instant) -> bool {
        self.signs += 1;
        if self.signs < SIGNS || self.carried == self.floor {
            return false;
        }
        (self.carried, self.signs, self.trial, self.searching) = (self.floor, 0, None, false);
        self.at = now + REST;
        true
    }

    /// Nothing more is probed.
    pub fn stop(&mut self) {
        self.at = Instant::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most probes of a search: the longest, four usual lengths, and halves of the widest gap.
    const MOST_PROBES: u32 = TRIES * (1 + 4 + 11);

    /// Lets it search a path that carries `carries` bytes until it rests; how many probes that took, and until when.
    fn search(search: &mut Search, mut now: Instant, carries: usize) -> (u32, Instant) {
        let mut probes = 0;
        while search.at() < Instant::MAX {
            let begun = search.searching || probes == 0;
            now = now.max(search.at());
            let Some(trial) = search.wake(now, Span::from_ms(10)) else { break };
            assert!(begun && (FLOOR.min(search.floor)..=search.most).contains(&trial.length));
            assert!(trial.token & SEARCHES != 0);
            probes += 1;
            if trial.length <= carries {
                assert!(search.answered(now, trial.token, trial.length));
                assert!(!search.answered(now, trial.token, trial.length), "once");
            }
        }
        (probes, now)
    }

    fn assert_found(search: &Search, carries: usize) {
        let found = search.carried();
        assert!(found <= carries.min(search.most) && found + GRAIN > carries.min(search.most), "{search:?}");
        assert!(!USUAL.contains(&carries) || carries > search.most || found == carries, "{search:?}");
    }

    proptest! {
        #[test]
        fn it_finds_what_the_path_carries(base in 128usize..3000, more in 0usize..65_507, carries in 0usize..70_000) {
            let most = (base + more).min(65_507);
            let carries = carries.max(base);
            let mut path = Search::new(Instant::ZERO, base, most);
            let (probes, ended) = search(&mut path, Instant::ZERO, carries);
            prop_assert!(probes <= MOST_PROBES, "{probes} probes");
            assert_found(&path, carries);
            // What is all that may be is not searched again; else it is, not before its time.
            if path.carried() == most {
                prop_assert_eq!(path.at(), Instant::MAX);
            } else {
                prop_assert_eq!(path.at(), ended + RAISE);
                let (probes, _) = search(&mut path, ended, 70_000);
                prop_assert_eq!((probes, path.carried()), (1, most));
            }
        }

        #[test]
        fn it_finds_the_way_down(most in 1472usize..65_507, carries in FLOOR..65_507, late in 0u64..1000) {
            let mut path = Search::new(Instant::ZERO, 1472, most);
            let (_, mut now) = search(&mut path, Instant::ZERO, most);
            prop_assert_eq!(path.carried(), most);
            now += Span::from_s(late);
            prop_assert!(!path.suspect(now) && !path.suspect(now));
            path.arrived();
            prop_assert!(!path.suspect(now) && !path.suspect(now) && path.suspect(now));
            prop_assert_eq!((path.carried(), path.at()), (FLOOR, now + REST));
            prop_assert!(path.wake(now, Span::ZERO).is_none());
            prop_assert!((0..10).all(|_| !path.suspect(now)), "it is at the bottom");
            let (probes, _) = search(&mut path, now, carries);
            prop_assert!(probes <= MOST_PROBES);
            assert_found(&path, carries);
        }
    }

    #[test]
    fn every_usual_length_is_found_to_the_byte() {
        for carries in USUAL.into_iter().chain([65_507]) {
            let mut path = Search::new(Instant::ZERO, 512, 65_507);
            search(&mut path, Instant::ZERO, carries);
            assert_eq!(path.carried(), carries);
        }
    }

    #[test]
    fn a_minute_sees_no_more_probes_than_a_search() {
        // Of a path that carries anything until it is trusted, and then nothing.
        let (mut path, mut now) = (Search::new(Instant::ZERO, 1472, 9000), Instant::ZERO);
        let mut sent = Vec::new();
        for _ in 0..5000 {
            now = now.max(path.at());
            if let Some(trial) = path.wake(now, Span::ZERO) {
                sent.push(now);
                if sent.len() % 7 != 0 {
                    path.answered(now, trial.token, trial.length);
                    while path.carried() > 1200 && !path.suspect(now) {}
                }
            }
        }
        let minute = |from: Instant| from..from + Span::from_s(60);
        let most = sent.iter().map(|from| sent.iter().filter(|at| minute(*from).contains(at)).count());
        assert!(most.max() <= Some(MOST_PROBES as usize) && sent.len() > 1000);
    }

    #[test]
    fn others_answers_tell_nothing() {
        let mut path = Search::new(Instant::ZERO, 1472, 9000);
        let trial = path.wake(Instant::ZERO, Span::ZERO).unwrap();
        assert_eq!(trial.length, 9000);
        for (token, length) in [(trial.token, 8999), (trial.token ^ 1, 9000), (0, 9000)] {
            assert!(!path.answered(Instant::ZERO, token, length));
        }
        // A late answer is one.
        let again = path.wake(path.at(), Span::ZERO).unwrap();
        assert_eq!(again, trial);
        assert!(path.answered(path.at(), trial.token, 9000) && path.carried() == 9000);
    }
}
