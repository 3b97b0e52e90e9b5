//! Impairments of frames or cells on a line.

use trunkline_units::{Span, Stream};

/// Independent impairments of each frame, or of each cell on ATM. Probabilities lie between 0 and 1. For each frame a line
/// draws one number per nonzero probability, in the order of these fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Loss probability. A lost frame occupies the line and is reported when it would have arrived.
    pub loss: f64,
    /// Corruption probability. A damaged cell makes the CRC of its packet fail.
    pub corrupt: f64,
    /// Duplication probability; both copies arrive at the same time.
    pub duplicate: f64,
    /// Reordering probability: the frame is delayed until just after the next arriving frame, which is not delayed
    /// itself.
    pub reorder: f64,
    /// Maximum delay of a reordered frame if no other follows.
    pub hold: Span,
}

/// A perfect line; `hold` is 10 ms.
impl Default for Impairments {
    fn default() -> Self {
        Impairments { loss: 0.0, corrupt: 0.0, duplicate: 0.0, reorder: 0.0, hold: Span::from_ms(10) }
    }
}

/// The impairments of one frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameOutcome {
    pub(crate) lost: bool,
    pub(crate) damaged: bool,
    pub(crate) duplicated: bool,
    pub(crate) reordered: bool,
}

impl Impairments {
    pub(crate) fn any(&self) -> bool {
        [self.loss, self.corrupt, self.duplicate, self.reorder].iter().any(|probability| *probability > 0.0)
    }

    pub(crate) fn draw(&self, stream: &mut Stream) -> FrameOutcome {
        let mut draw = |probability: f64| probability > 0.0 && stream.chance(probability);
        FrameOutcome {
            lost: draw(self.loss),
            damaged: draw(self.corrupt),
            duplicated: draw(self.duplicate),
            reordered: draw(self.reorder),
        }
    }
}
