//! ATM as state machines: cells, AAL5, pacing, cell links.

pub mod aal5;
pub mod cell;
mod fine;
pub mod frame;
pub mod link;
pub mod pacing;
mod queue;
pub mod train;

pub use crate::impairments::Impairments;
pub use cell::{Encapsulation, cells_of};
pub use frame::CellFrame;
pub use link::{CellLink, Config, End, Mode};
pub use pacing::{Pacing, PacingUnit};
pub use train::Train;
