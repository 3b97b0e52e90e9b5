//! HyStart++ (RFC 9406): slow start ends when the round-trip time rises, before the queue overflows.

use trunkline_units::{Instant, Span};

use crate::Acknowledgement;

/// Bounds of the rise in round-trip time that ends slow start, and its share of the round-trip time (RFC 9406 section 4.3).
const MIN_RISE: Span = Span::from_ms(4);
const MAX_RISE: Span = Span::from_ms(16);
const RISE_DIVISOR: u64 = 8;
/// Samples of a round before its minimum counts.
const SAMPLES: u32 = 8;
/// In conservative slow start the window grows by this part, and for this many rounds.
const CONSERVATIVE_DIVISOR: u32 = 4;
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Maximum growth in segments for one acknowledgement of a sender that does not pace.
const MAX_SEGMENTS: u32 = 8;

/// The state of slow start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyStart {
    /// Start of the round; it ends at the acknowledgement of data sent after it.
    round_started_at: Instant,
    /// Minimum round-trip time of the previous and of this round, and the samples of this round.
    last_min: Option<Span>,
    current_min: Option<Span>,
    samples: u32,
    /// In conservative slow start: the minimum round-trip time that began it, and its rounds.
    conservative: Option<(Span, u32)>,
}

/// What an acknowledgement means for slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowStart {
    /// The window grows by this amount.
    Grow(u32),
    /// Slow start is over.
    End,
}

impl HyStart {
    pub(crate) fn new() -> HyStart {
        HyStart {
            round_started_at: Instant::ZERO,
            last_min: None,
            current_min: None,
            samples: 0,
            conservative: None,
        }
    }

    pub(crate) fn on_ack(&mut self, acked: &Acknowledgement, segment: u32) -> SlowStart {
        if acked.sent_at >= self.round_started_at {
            self.round_started_at = acked.now;
            (self.last_min, self.current_min, self.samples) = (self.current_min, None, 0);
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    return SlowStart::End;
                }
            }
        }
        if let Some(round_trip) = acked.round_trip {
            self.current_min = Some(self.current_min.map_or(round_trip, |min| min.min(round_trip)));
            self.samples += 1;
        }
        if self.samples >= SAMPLES
            && let (Some(current), Some(last)) = (self.current_min, self.last_min)
        {
            match self.conservative {
                None if current >= last + (last / RISE_DIVISOR).max(MIN_RISE).min(MAX_RISE) => {
                    self.conservative = Some((current, 0));
                }
                // The rise was spurious.
                Some((baseline, _)) if current < baseline => self.conservative = None,
                _ => {}
            }
        }
        let growth = acked.amount.min(segment.saturating_mul(MAX_SEGMENTS));
        SlowStart::Grow(if self.conservative.is_some() { growth / CONSERVATIVE_DIVISOR } else { growth })
    }
}
