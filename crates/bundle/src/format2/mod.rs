//! The central converter in bundle format 2 (docs/reference/bundle-wire.md).
//!
//! | module | contents |
//! | --- | --- |
//! | [`central`] | the central converter |
//! | [`level1_peers`] | the level-1 converters at the central converter, and the assignment of packet addresses |
//! | [`members`] | the hosts at the central converter |

pub mod central;
pub mod level1_peers;
pub mod members;
