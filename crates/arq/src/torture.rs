//! Seeded faults for any path, as in section 4.2.1 of the 1998 paper: frames are lost or damaged when they are sent.
//!
//! A [`Torturer`] applies faults to single frames, at any point between an engine and its socket. [`Tortured`] is an
//! endpoint that applies one to the frames of another endpoint, with any driver.

use std::collections::BTreeMap;

use trunkline_endpoint::pair::Counts;
use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span, Stream};

use crate::wire::check::mix;

/// Maximum number of frames that a [`Tortured`] endpoint delays; further ones are lost.
pub const MAX_DELAYED: usize = 1 << 16;

/// Faults, independent for each frame. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Probability of loss, 0 to 1.
    pub drop: f64,
    /// Probability of damage: up to three bits flipped, or the end truncated.
    pub damage: f64,
    /// Probability of duplication.
    pub duplicate: f64,
    /// Probability of an extra delay by [`late`](Faults::late), so that other frames overtake this one.
    pub reorder: f64,
    /// The extra delay of reordered frames.
    pub late: Span,
    /// The delay of every frame.
    pub delay: Span,
    /// Maximum of a uniform additional delay.
    pub jitter: Span,
    /// Outages of the path.
    pub blackhole: Option<Blackhole>,
}

/// Repeated outages: one in each period from the second on, at a different point each time, so that no timer is in
/// step with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blackhole {
    /// The period.
    pub every: Span,
    /// The length of an outage; if it equals the period, the outage is permanent.
    pub lasts: Span,
}

impl Blackhole {
    /// Returns whether there is an outage.
    pub fn is_outage(&self, now: Instant) -> bool {
        let (now, every, lasts) = (now.as_ps(), self.every.as_ps().max(1), self.lasts.as_ps());
        let period = now / every;
        let within = |period: u64| {
            let begin = period * every + ((u128::from(mix(period)) * u128::from(every)) >> 64) as u64;
            period > 0 && (begin..begin.saturating_add(lasts)).contains(&now)
        };
        period > 0 && (lasts >= every || within(period) || within(period - 1))
    }
}

/// Applies faults to frames. Equal streams and frames give equal faults.
#[derive(Clone, Debug)]
pub struct Torturer {
    faults: Faults,
    stream: Stream,
    counts: Counts,
    damaged: Vec<u8>,
}

impl Torturer {
    /// Creates a torturer with this random stream.
    pub fn new(faults: Faults, stream: Stream) -> Torturer {
        Torturer { faults, stream, counts: Counts::default(), damaged: Vec::new() }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Passes each surviving copy of `frame`, sent at `now`, to `pass` with its departure time: none, one or two
    /// copies.
    pub fn torture(&mut self, now: Instant, frame: &[u8], mut pass: impl FnMut(Instant, &[u8])) {
        let Faults { drop, damage, duplicate, reorder, late, delay, jitter, blackhole } = self.faults;
        // Draw the same number of values for each frame, so that one fault does not change the later ones.
        let [dropped, damaged, duplicated, reordered] =
            [drop, damage, duplicate, reorder].map(|share| self.stream.chance(share));
        let [first, second] = [(); 2].map(|()| Span::from_ps(self.stream.below(jitter.as_ps())));
        let in_outage = blackhole.is_some_and(|hole| hole.is_outage(now));
        self.counts.sent += 1;
        if dropped || in_outage {
            self.counts.dropped += 1;
            return;
        }
        self.counts.corrupted += u64::from(damaged);
        self.counts.duplicated += u64::from(duplicated);
        self.counts.reordered += u64::from(reordered);
        let at = now + delay + if reordered { late } else { Span::ZERO };
        let mut bytes = frame;
        if damaged {
            self.damage(frame);
            bytes = &self.damaged;
        }
        pass(at + first, bytes);
        if duplicated {
            pass(at + second, bytes);
        }
    }

    fn damage(&mut self, frame: &[u8]) {
        self.damaged.clear();
        self.damaged.extend_from_slice(frame);
        let stream = &mut self.stream;
        if stream.chance(0.2) {
            self.damaged.truncate(stream.below(frame.len() as u64) as usize);
            return;
        }
        let bits = frame.len() as u64 * 8;
        let first = stream.below(bits);
        // Further bits follow the first closely, and never flip it back.
        for bit in (0..1 + stream.below(3)).map(|further| first + further * (1 + stream.below(40))) {
            if let Some(byte) = self.damaged.get_mut((bit / 8) as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

/// An endpoint with faults on its sent frames.
///
/// Queue: at most [`MAX_DELAYED`] frames are delayed; further ones are lost and counted as dropped.
#[derive(Debug)]
pub struct Tortured<E> {
    inner: E,
    torturer: Torturer,
    delayed: BTreeMap<(Instant, u64), (Port, Peer, Vec<u8>)>,
    sequence: u64,
}

impl<E: Endpoint> Tortured<E> {
    /// Applies `torturer` to the frames of `inner`.
    pub fn new(inner: E, torturer: Torturer) -> Self {
        Tortured { inner, torturer, delayed: BTreeMap::new(), sequence: 0 }
    }

    /// Returns the inner endpoint.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// Returns the inner endpoint, to modify it between calls.
    pub fn inner_mut(&mut self) -> &mut E {
        &mut self.inner
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        self.torturer.counts()
    }

    fn apply_faults(&mut self, now: Instant, transmit: &Transmit, bytes: &[u8]) {
        let Tortured { torturer, delayed, sequence, .. } = self;
        let mut overflow = 0;
        for frame in Segment::frames(transmit.segment, bytes) {
            torturer.torture(now, frame, |at, bytes| {
                if delayed.len() == MAX_DELAYED {
                    overflow += 1;
                    return;
                }
                delayed.insert((at, *sequence), (transmit.port, transmit.peer, bytes.to_vec()));
                *sequence += 1;
            });
        }
        torturer.counts.dropped += overflow;
    }

    /// Returns the first due frame whose port is writable; otherwise the port of the first due frame, if there is one.
    fn due(
        &mut self,
        now: Instant,
        writable: Writable<'_>,
        buffer: &mut [u8],
    ) -> Result<Transmit, Option<Port>> {
        let mut blocked = None;
        let due = self.delayed.range(..=(now, u64::MAX));
        let ready = due.map(|(at, delayed)| (*at, delayed.0)).find(|(_, port)| {
            let takes = writable.has(*port);
            blocked = blocked.or((!takes).then_some(*port));
            takes
        });
        let (at, port) = ready.ok_or(blocked)?;
        let (_, peer, bytes) = self.delayed.remove(&at).ok_or(None)?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(Transmit { port, peer, length: bytes.len(), segment: None })
    }
}

impl<E: Endpoint> Endpoint for Tortured<E> {
    type Command<'a> = E::Command<'a>;
    type Event = E::Event;
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Self::Command<'_>>) -> Result<(), Self::Refusal> {
        self.inner.handle(now, input)
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E::Event> {
        loop {
            let blocked = match self.due(now, writable, buffer) {
                Ok(transmit) => return Output::Transmit(transmit),
                Err(blocked) => blocked,
            };
            match self.inner.poll(now, writable, buffer) {
                Output::Transmit(transmit) => self.apply_faults(now, &transmit, &buffer[..transmit.length]),
                Output::Event(event) => return Output::Event(event),
                Output::Idle(idle) => {
                    let next = self.delayed.range((now, u64::MAX)..).next().map(|((at, _), _)| *at);
                    let deadline = idle.deadline.into_iter().chain(next).min();
                    let reason = blocked.map_or(idle.reason, Reason::Port);
                    return Output::Idle(Idle { deadline, reason });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_endpoint::MAX_BATCH;
    use trunkline_endpoint::echo::Server;
    use trunkline_endpoint::laws::check_laws;
    use trunkline_units::Seed;

    const NOW: Instant = Instant::from_ns(7000);

    /// Applies faults to `frame` `count` times.
    fn apply_faults(faults: Faults, frame: &[u8], count: u64) -> (Counts, Vec<(Instant, Vec<u8>)>) {
        let mut torturer = Torturer::new(faults, Seed(1).stream("torture"));
        let mut passed = Vec::new();
        for _ in 0..count {
            torturer.torture(NOW, frame, |at, bytes| passed.push((at, bytes.to_vec())));
        }
        (torturer.counts(), passed)
    }

    #[test]
    fn the_default_has_no_faults() {
        let (counts, passed) = apply_faults(Faults::default(), b"whole", 100);
        assert_eq!(passed, vec![(NOW, b"whole".to_vec()); 100]);
        assert_eq!(counts, Counts { sent: 100, ..Counts::default() });
    }

    #[test]
    fn faults_occur_with_their_probabilities() {
        let faults = Faults { drop: 0.2, damage: 0.1, duplicate: 0.3, reorder: 0.05, ..Faults::default() };
        let (counts, passed) = apply_faults(faults, &[7; 50], 100_000);
        let arrived = 80_000.0;
        // Six standard deviations of a binomial, rounded up.
        let near = |count: u64, expected: f64| (count as f64 - expected).abs() < 6.0 * expected.sqrt();
        assert!(near(counts.dropped, 20_000.0) && near(counts.corrupted, 0.1 * arrived), "{counts:?}");
        assert!(
            near(counts.duplicated, 0.3 * arrived) && near(counts.reordered, 0.05 * arrived),
            "{counts:?}"
        );
        assert_eq!(passed.len() as u64, counts.sent - counts.dropped + counts.duplicated);
    }

    #[test]
    fn damage_always_changes_the_frame() {
        let faults = Faults { damage: 1.0, ..Faults::default() };
        for length in [1, 2, 5, 100, 1472] {
            let frame = vec![0x5A; length];
            let (_, passed) = apply_faults(faults, &frame, 5000);
            assert!(passed.iter().all(|(_, bytes)| *bytes != frame && bytes.len() <= length), "{length}");
        }
        assert_eq!(
            apply_faults(faults, b"", 10).1,
            vec![(NOW, Vec::new()); 10],
            "an empty frame has nothing to damage"
        );
    }

    #[test]
    fn delays_are_within_their_bounds() {
        let (delay, jitter, late) = (Span::from_us(10), Span::from_us(3), Span::from_us(100));
        let faults = Faults { delay, jitter, late, reorder: 0.5, duplicate: 0.5, ..Faults::default() };
        let (_, passed) = apply_faults(faults, b"any", 10_000);
        let (late_times, plain): (Vec<_>, Vec<_>) =
            passed.iter().map(|(at, _)| *at).partition(|at| *at >= NOW + late);
        assert!(plain.iter().all(|at| (NOW + delay..NOW + delay + jitter).contains(at)));
        assert!(late_times.iter().all(|at| (NOW + delay + late..NOW + delay + late + jitter).contains(at)));
        assert!(late_times.len() > 6000 && plain.len() > 6000);
        assert!(plain.iter().max() > Some(&(NOW + delay + jitter * 9 / 10)));
    }

    #[test]
    fn a_blackhole_begins_and_ends() {
        let hole = |every, lasts| Blackhole { every: Span::from_ms(every), lasts: Span::from_ms(lasts) };
        let away = |hole: Blackhole| {
            let times = (0..100_000).map(|ms| Instant::ZERO + Span::from_ms(ms));
            times.filter(|at| hole.is_outage(*at)).collect::<Vec<_>>()
        };
        let some = away(hole(1000, 100));
        // Two faults may coincide.
        assert!((9500..=9900).contains(&some.len()), "{}", some.len());
        assert!(some.iter().all(|at| *at >= Instant::ZERO + Span::from_s(1)));
        assert_eq!(away(hole(1000, 1000)).len(), 99_000, "the outage is permanent");
        assert_eq!(away(hole(1000, 0)).len(), 0);
    }

    #[test]
    fn a_tortured_endpoint_satisfies_the_contract() {
        let faults = Faults {
            drop: 0.1,
            damage: 0.1,
            duplicate: 0.3,
            reorder: 0.3,
            late: Span::from_us(300),
            delay: Span::from_us(50),
            jitter: Span::from_us(200),
            blackhole: Some(Blackhole { every: Span::from_ms(5), lasts: Span::from_ms(1) }),
        };
        for seed in 0..20 {
            let torturer = || Torturer::new(faults, Seed(seed).stream("torture"));
            check_laws(Seed(seed), || Tortured::new(Server::new(), torturer()), |_, _, _| {});
        }
    }

    #[test]
    fn the_number_of_delayed_frames_is_bounded() {
        let faults = Faults { delay: Span::from_s(1), duplicate: 1.0, ..Faults::default() };
        let mut tortured = Tortured::new(Server::new(), Torturer::new(faults, Seed(1).stream("torture")));
        let transmit = Transmit { port: Port(0), peer: Peer::NONE, length: 1, segment: None };
        for _ in 0..MAX_DELAYED {
            tortured.apply_faults(NOW, &transmit, &[1]);
        }
        assert_eq!(tortured.counts().dropped, MAX_DELAYED as u64);
        let mut buffer = vec![0; MAX_BATCH];
        let at = NOW + Span::from_s(1);
        let mut passed = 0;
        while let Output::Transmit(_) = tortured.poll(at, Writable::ALL, &mut buffer) {
            passed += 1;
        }
        assert_eq!(passed, MAX_DELAYED);
    }
}
