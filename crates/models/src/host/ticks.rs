//! Timer phases of a host.

use trunkline_units::{Span, Stream};

/// Period of the fast timer of 4.3BSD TCP, which sends delayed acknowledgements.
pub const FAST: Span = Span::from_ms(200);

/// Period of its slow timer, which counts retransmission timeouts.
pub const SLOW: Span = Span::from_ms(500);

/// First timer ticks after the start of a run. The timers are per host, not per connection, and so are their phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Phase of the fast timer, below [`FAST`].
    pub fast: Span,
    /// Phase of the slow timer, below [`SLOW`].
    pub slow: Span,
}

impl Phases {
    /// Draws uniform phases with picosecond resolution.
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
