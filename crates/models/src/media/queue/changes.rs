//! Changes of a link at given times.

use trunkline_units::{Instant, Rate, Span};

use crate::impairments::Impairments;

/// A change of one direction of a link. It applies to frames whose transmission begins at or after its time; what it does
/// not name stays as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkChange {
    /// When.
    pub at: Instant,
    /// Bit rate; not zero.
    pub rate: Option<Rate>,
    /// Propagation delay. A frame never overtakes an earlier one.
    pub delay: Option<Span>,
    /// Whether frames are sent; otherwise they wait in the queue.
    pub is_up: Option<bool>,
    /// See [`Impairments`].
    pub loss: Option<f64>,
    /// See [`Impairments`].
    pub corrupt: Option<f64>,
    /// See [`Impairments`].
    pub duplicate: Option<f64>,
    /// See [`Impairments`].
    pub reorder: Option<f64>,
}

impl LinkChange {
    /// Changes the impairments that it names.
    pub(crate) fn apply_to(&self, impairments: &mut Impairments) {
        for (target, new) in [
            (&mut impairments.loss, self.loss),
            (&mut impairments.corrupt, self.corrupt),
            (&mut impairments.duplicate, self.duplicate),
            (&mut impairments.reorder, self.reorder),
        ] {
            *target = new.unwrap_or(*target);
        }
    }
}
