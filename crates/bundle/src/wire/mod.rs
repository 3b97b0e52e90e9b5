//! What stands on the wire.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`classic`] | bundles of 1997, byte for byte |
//! | [`wide`] | bundles for any number of hosts, legal DIS |
//! | [`dis`] | PDUs of distributed simulation, found and not decoded |

pub mod classic;
pub mod dis;
pub mod wide;
