//! What stands on the wire.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`classic`] | bundles of 1997, byte for byte |
//! | [`dis`] | PDUs of distributed simulation, found and not decoded |

pub mod classic;
pub mod dis;
