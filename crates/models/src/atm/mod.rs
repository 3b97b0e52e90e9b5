//! ATM as state machines: cells, AAL5, pacing, cell links, credits.

pub mod aal5;
pub mod abr;
pub mod admission;
pub mod cell;
pub mod config;
pub mod credit_link;
mod credit_queue;
pub mod credits;
mod fine;
pub mod frame;
pub mod link;
pub mod pacing;
pub mod port;
mod queue;
pub mod train;

pub use crate::impairments::Impairments;
pub use cell::{Encapsulation, cells_of};
pub use config::{Config, End, Mode};
pub use credit_link::{CreditCounters, CreditLink};
pub use credits::CreditOptions;
pub use frame::CellFrame;
pub use link::CellLink;
pub use pacing::{Pacing, PacingUnit};
pub use port::QueueUnit;
pub use train::Train;
