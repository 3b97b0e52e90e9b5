//! What controllers have in common that model the path: round trips and the aggregation of acknowledgements.

use trunkline_units::{Instant, Span};

use crate::{Acknowledgement, Loss};

/// A round trip: from an acknowledgement to the acknowledgement of data sent after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// When it started, and the amounts acknowledged and lost since then.
    pub started_at: Instant,
    pub acked: u64,
    pub lost: u64,
}

impl Round {
    /// Begins a round trip.
    pub fn start(now: Instant) -> Round {
        Round { started_at: now, ..Round::default() }
    }

    /// Counts acknowledged data; returns the round trip if it ends.
    #[inline]
    pub fn count(&mut self, acked: &Acknowledgement) -> Option<Round> {
        self.acked += u64::from(acked.amount);
        (acked.sent_at >= self.started_at).then(|| std::mem::replace(self, Round::start(acked.now)))
    }

    /// Counts lost data.
    #[inline]
    pub fn count_lost(&mut self, lost: &Loss) {
        self.lost += u64::from(lost.amount);
    }
}

/// Measures aggregation: how much more than expected is acknowledged at once (draft-ietf-ccwg-bbr section 5.5.9). The
/// receiver, its network card or the medium aggregates acknowledgements, and the window must cover what waits for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Surplus {
    /// Start of the count, and the amount acknowledged since then.
    pub started_at: Instant,
    pub amount: f64,
}

impl Surplus {
    /// Counts an acknowledged amount; returns the surplus over what `rate`, in amounts per second, lets expect.
    #[inline]
    pub fn count(&mut self, now: Instant, amount: f64, rate: f64) -> f64 {
        let mut expected = rate * now.since(self.started_at).as_s();
        if self.amount <= expected {
            (self.started_at, self.amount, expected) = (now, 0.0, 0.0);
        }
        self.amount += amount;
        self.amount - expected
    }
}

/// A minimum that is replaced once it is old, and when it was measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AgedMin {
    pub value: Option<Span>,
    pub at: Instant,
}

impl AgedMin {
    /// Returns whether the minimum is older than `age`.
    pub fn is_older(&self, now: Instant, age: Span) -> bool {
        self.value.is_some() && now.since(self.at) > age
    }

    /// Adds a sample; it replaces a minimum that is not below it or that is older than `age`.
    pub fn sample(&mut self, now: Instant, value: Span, age: Span) {
        if self.value.is_none_or(|min| value <= min) || self.is_older(now, age) {
            *self = AgedMin { value: Some(value), at: now };
        }
    }
}
