//! When the timers of a station tick.

use trunkline_units::{Span, Stream};

/// Period of the fast timer of 4.3BSD's TCP, which sends delayed acknowledgements.
pub const FAST: Span = Span::from_ms(200);

/// Period of its slow timer, in whose ticks retransmissions are counted.
pub const SLOW: Span = Span::from_ms(500);

/// How long after the start of a run the timers of a station tick first. A station has one of each, not one for each
/// connection, so their phase is the station's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Of the fast timer, below [`FAST`].
    pub fast: Span,
    /// Of the slow timer, below [`SLOW`].
    pub slow: Span,
}

impl Phases {
    /// Phases drawn evenly, to the picosecond.
    pub fn draw(stream: &mut Stream) -> Self {
        let mut below = |period: Span| Span::from_ps(stream.below(period.as_ps()));
        Phases { fast: below(FAST), slow: below(SLOW) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn phases_fill_their_periods() {
        let mut stream = Seed(3).stream("phases");
        let drawn: Vec<Phases> = (0..1_000).map(|_| Phases::draw(&mut stream)).collect();
        assert!(drawn.iter().all(|p| p.fast < FAST && p.slow < SLOW));
        let mean = |of: fn(&Phases) -> Span| drawn.iter().map(|p| of(p).as_s()).sum::<f64>() / 1_000.0;
        assert!((mean(|p| p.fast) - 0.1).abs() < 0.01 && (mean(|p| p.slow) - 0.25).abs() < 0.02);
        assert!(drawn.iter().any(|p| p.fast.as_ps() % 1_000 != 0));
    }
}
