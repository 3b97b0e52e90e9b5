//! ATM as state machines: cells, AAL5, pacing, cell links.
//!
//! | module | what |
//! | --- | --- |
//! | [`cell`] | 53 bytes; how many cells a packet takes; what rates carry |
//! | [`frame`] | [`CellFrame`]: a frame that can be cut into cells and put together again |
//! | [`aal5`] | putting packets together: one gathering for each channel |
//! | [`pacing`] | [`Pacing`]: when an adapter lets its cells leave |
//! | [`train`] | [`Train`]: the cells of a packet, crossing in one step |
//! | `queue` | what waits at the sending end of a link: cells of a switch, packets of an adapter |
//! | `fine` | moments in fractions of a picosecond, in which a cell's time does not drift |
//! | [`link`] | [`CellLink`]: the medium; adapters and bare ports |
//!
//! Nothing here touches the network, reads a clock, or draws the system's randomness.

pub mod aal5;
pub mod cell;
mod fine;
pub mod frame;
pub mod link;
pub mod pacing;
mod queue;
pub mod train;

pub use cell::{Encapsulation, cells_of, payload_rate};
pub use frame::CellFrame;
pub use link::{CellLink, Config, End, Impairments, Mode};
pub use pacing::{Counts, Pacing};
pub use train::Train;
