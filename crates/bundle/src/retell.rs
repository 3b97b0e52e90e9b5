//! What was told is told again, a handful at a time: the classic format acknowledges nothing, and who restarts has forgotten.

use trunkline_units::{Instant, Span};

/// So many are told in one go: 384 octets of joins, 6 % of what 10 Mb/s Ethernet carries in 5 ms.
pub const HANDFUL: usize = 16;
/// Between two handfuls.
pub const PACE: Span = Span::from_ms(10);
/// So long after a refusal everything is told again.
pub const REFUSED: Span = Span::from_ms(100);

/// A circle through numbered things that somebody else keeps.
#[derive(Debug)]
pub struct Retell {
    /// Between the beginnings of two circles; zero: none begins by itself.
    every: Span,
    /// Where the circle is, and when it began.
    at: usize,
    began: Instant,
    due: Option<Instant>,
}

impl Retell {
    /// A circle every so often; zero: only when it is asked for.
    pub fn new(every: Span) -> Retell {
        Retell { every, at: 0, began: Instant::ZERO, due: None }
    }

    /// There is something to tell, which has just been told.
    pub fn keep(&mut self, now: Instant) {
        if self.due.is_none() && !self.every.is_zero() {
            self.due = Some(now + self.every);
        }
    }

    /// There is something to tell now: in the circle that is under way, or in a new one.
    pub fn soon(&mut self, now: Instant) {
        self.due = Some(self.due.map_or(now, |due| due.min(now + PACE)));
    }

    /// Begins a new circle then, wherever this one is.
    pub fn anew(&mut self, at: Instant) {
        (self.at, self.due) = (0, Some(at));
    }

    /// When the next handful is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Tells a handful if it is due; `next` is the first thing that there is from a number on.
    pub fn tell(&mut self, now: Instant, next: impl Fn(usize) -> Option<usize>, mut tell: impl FnMut(usize)) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        if self.at == 0 {
            self.began = now;
        }
        for _ in 0..HANDFUL {
            let Some(thing) = next(self.at) else {
                // Where there was nothing nothing is waited for.
                let goes_on = self.at > 0 && !self.every.is_zero();
                self.due = goes_on.then(|| (self.began + self.every).max(now + PACE));
                self.at = 0;
                return;
            };
            tell(thing);
            self.at = thing + 1;
        }
        self.due = Some(now + PACE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// When what is told, until `end`.
    fn told(retell: &mut Retell, things: &[usize], end: u64) -> Vec<(u64, usize)> {
        let mut told = Vec::new();
        while let Some(due) = retell.deadline().filter(|due| *due < at(end)) {
            let ms = due.since(Instant::ZERO).as_ns() / 1_000_000;
            let next = |from| things.iter().copied().find(|thing| *thing >= from);
            retell.tell(due, next, |thing| told.push((ms, thing)));
            assert!(retell.deadline().is_none_or(|next| next > due));
        }
        told
    }

    #[test]
    fn everything_is_told_in_a_circle() {
        let mut retell = Retell::new(Span::from_s(1));
        assert_eq!(retell.deadline(), None);
        retell.keep(at(0));
        retell.keep(at(500));
        assert_eq!(
            told(&mut retell, &[0, 7, 2_047], 2_500),
            [(1_000, 0), (1_000, 7), (1_000, 2_047), (2_000, 0), (2_000, 7), (2_000, 2_047)]
        );
        assert_eq!(told(&mut retell, &[], 9_000), [], "and nothing when there is nothing");
        assert_eq!(retell.deadline(), None);
    }

    #[test]
    fn a_long_circle_takes_its_time() {
        let things: Vec<usize> = (0..200).collect();
        let mut retell = Retell::new(Span::from_ms(50));
        retell.keep(at(0));
        let told = told(&mut retell, &things, 360);
        let (first, second) = told.split_at(200);
        assert!(first.iter().map(|(_, thing)| *thing).eq(0..200));
        assert_eq!((first[0], first[16], first[199]), ((50, 0), (60, 16), (170, 199)));
        assert_eq!(second[0], (180, 0));
    }

    #[test]
    fn it_begins_anew_where_it_is_asked_to() {
        let mut retell = Retell::new(Span::ZERO);
        retell.keep(at(0));
        assert_eq!(retell.deadline(), None, "never by itself");
        let things: Vec<usize> = (0..17).collect();
        retell.anew(at(3));
        retell.tell(at(3), |from| things.get(from).copied(), |_| {});
        retell.anew(at(5));
        assert_eq!(told(&mut retell, &things, 1_000).len(), 17);
        assert_eq!(retell.deadline(), None);
    }
}
