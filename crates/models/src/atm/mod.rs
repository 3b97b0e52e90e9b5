//! ATM as state machines: cells, AAL5, pacing, cell links.
//!
//! | module | contents |
//! | --- | --- |
//! | [`cell`] | sizes of cells and packets |
//! | [`frame`] | [`CellFrame`]: a frame that can be segmented and reassembled |
//! | [`aal5`] | reassembly per channel |
//! | [`pacing`] | [`Pacing`]: when an adapter sends its cells |
//! | [`train`] | [`Train`]: the cells of a packet, processed in one step |
//! | `queue` | output queues: cells of a switch, packets of an adapter |
//! | `fine` | times in fractions of a picosecond, so that sums of cell times do not drift |
//! | [`link`] | [`CellLink`]: the medium, with adapters or switch ports at its ends |

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
