//! Explicit rates for the sources of an ATM network (available bit rate): who computes them, and how sources learn them.
//!
//! In the scheme of the AAI report (section 2.5.2) a controlling host stands beside each bottleneck switch. A source
//! announces itself with a resource-management cell before it starts and when it ends; the controller divides the line
//! among the sources that it knows and reports to each its rate in another such cell ([`controller`], [`source`]). For
//! comparison, [`erica`] computes rates in the switch from its measured load and the rates in passing cells.
//!
//! | module | contents |
//! | --- | --- |
//! | [`fair_share`] | max–min fair shares, of one link and of a network |
//! | [`controller`] | the controlling host of a link |
//! | [`source`] | a source and the answers of its controllers |
//! | [`erica`] | the algorithm ERICA in a switch |
//! | [`erica_source`] | a source that obeys its resource-management cells |
//! | [`signalling`] | all of them in a network with delays |
//! | [`convergence`] | how fast their rates reach the max–min shares |

pub mod controller;
pub mod convergence;
pub mod erica;
pub mod erica_source;
pub mod fair_share;
pub mod signalling;
pub mod source;

pub use controller::Controller;
pub use erica::{Erica, EricaPort};
pub use erica_source::EricaSource;
pub use fair_share::{max_min_shares, water_level};
pub use signalling::{Algorithm, FlowPath, Signalling};
pub use source::Source;

use trunkline_units::Rate;

/// A resource-management cell from a source to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The source is active and can use at most this rate, by its demand and by what other controllers allow it.
    Active {
        /// The limit.
        limit: Rate,
    },
    /// The source ends.
    Leave,
}
