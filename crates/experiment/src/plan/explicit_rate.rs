//! Explicit rates of a link.

use serde::{Deserialize, Serialize};
use trunkline_units::Span;

/// Who computes the rates of the virtual channels that cross a link, in each direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplicitRate {
    /// A controlling host beside a switch of the link (AAI report, section 2.5.2).
    Controller {
        /// Its name; a host with an ATM link to an end of the link.
        host: String,
    },
    /// The switches that send into the link, by ERICA.
    Erica {
        /// Share of the link to be used, above 0, up to 1.
        utilization: f64,
        /// Averaging interval, at least 1 us.
        interval: Span,
    },
}

impl ExplicitRate {
    /// Returns its name in the language.
    pub fn name(&self) -> &'static str {
        match self {
            ExplicitRate::Controller { .. } => "controller",
            ExplicitRate::Erica { .. } => "erica",
        }
    }
}
