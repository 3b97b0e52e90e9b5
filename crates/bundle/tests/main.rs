//! The integration tests of the bundle converter.
//!
//! | module | subject |
//! | --- | --- |
//! | `callback` | messages delivered to a callback |
//! | `congestion` | more load than the medium carries |
//! | `exchange` | whole sites in virtual time, in both formats |
//! | `format2` | the guarantees of bundle format 2, one by one |
//! | `laws` | the laws of endpoints |
//! | `lossy` | bundle format 2 on a lossy network with restarts |
//! | `restart` | restarts and refusals in format 1 (classic) |
//! | `socket` | the socket API against plain sockets |
//! | `soak_classic`, `soak_format2` | days of simulated time, with the feature `soak` |
//! | `simulation`, `chaos`, `overload` | the simulated site and its workloads |

#[cfg(feature = "sockets")]
mod callback;
#[cfg_attr(not(feature = "soak"), allow(dead_code, reason = "the soak tests use all of it"))]
#[path = "support/chaos.rs"]
mod chaos;
mod congestion;
mod exchange;
mod format2;
mod laws;
mod lossy;
#[path = "support/overload.rs"]
mod overload;
mod restart;
#[cfg_attr(not(feature = "soak"), allow(dead_code, reason = "the soak tests use all of it"))]
#[path = "support/simulation.rs"]
mod simulation;
mod soak_classic;
mod soak_format2;
#[cfg(feature = "sockets")]
mod socket;
