//! The experiments of four papers of the 1990s, and the comparison of their tables with simulated runs; validation cases of
//! ns-3.
//!
//! ```
//! let study = trunkline_reproduction::studies().find(|study| study.table == "ftp-cells").unwrap();
//! assert_eq!((study.paper, study.cells[0].paper), ("aai", 297_375.0));
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`table`] | studies, cells, tolerances; comparisons as text and JSON |
//! | `aai` | NetSpec over ATM networks (1996) |
//! | `airnet` | AirNET, the LLC network for aircraft (1990) |
//! | `bundle_1997` | the bundle converter (1997) |
//! | `guaranteed_1998` | Guaranteed ATM (1998) |
//! | [`lab`] | experiments in the simulator and in the lab |
//! | [`tcp_validation`] | CUBIC and DCTCP of ns-3 |

mod aai;
mod airnet;
mod bundle_1997;
mod guaranteed_1998;
pub mod lab;
pub mod table;
pub mod tcp_validation;

use table::Study;

/// The papers, each with its names; the first is the one of its studies.
pub const PAPERS: [&[&str]; 4] = [
    &["aai", "1996", "netspec"],
    &["guaranteed", "1998"],
    &["airnet", "1990"],
    &["bundle", "1997", "converter"],
];

/// Returns the studies of all papers.
pub fn studies() -> impl Iterator<Item = &'static Study> {
    [aai::STUDIES, guaranteed_1998::STUDIES, airnet::STUDIES, bundle_1997::STUDIES].into_iter().flatten()
}
