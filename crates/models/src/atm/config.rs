//! The configuration of a link of cells.

use trunkline_endpoint::Bound;
use trunkline_units::{Rate, Span};

use crate::atm::cell::Encapsulation;
use crate::atm::pacing::Pacing;
use crate::impairments::Impairments;

/// Configuration of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Rate of whole cells: the line rate without the overhead of SONET or PLCP; zero counts as 1 b/s.
    pub payload: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// The devices at port 0 and port 1.
    pub ends: [End; 2],
    /// Impairments of cells sent from port 0 and port 1.
    pub impairments: [Impairments; 2],
    /// Whether packets cross cell by cell or as trains.
    pub mode: Mode,
}

/// The device at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A host adapter: its station sends and receives packets. Segmentation and reassembly take no time here; the
    /// host model accounts for them.
    Adapter {
        /// Pacing of its cells.
        pacing: Pacing,
        /// Limit of its send queue: [`Capacity::Frames`](trunkline_endpoint::Capacity) counts packets, `Bytes` the 53
        /// bytes of each cell. A packet counts in full until its last bit has left.
        queue: Bound,
        /// Encapsulation.
        encapsulation: Encapsulation,
    },
    /// A port of a cell switch, which sends and receives cells and trains.
    SwitchPort {
        /// Limit of its queue in cells (`Bytes`: 53 each).
        queue: Bound,
    },
}

impl End {
    /// An adapter without pacing or loss, with LLC/SNAP.
    pub const ADAPTER: End =
        End::Adapter { pacing: Pacing::None, queue: Bound::NONE, encapsulation: Encapsulation::LlcSnap };
}

/// How a packet crosses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Cell by cell: exact always.
    #[default]
    Cells,
    /// All its cells in one step; exact under the conditions of [`Train`](crate::atm::Train). A line that duplicates or reorders cells
    /// still carries them one by one.
    Trains,
}
