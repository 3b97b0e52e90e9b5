//! The central converter in bundle format 2 (docs/reference/bundle-wire.md).
//!
//! | module | contents |
//! | --- | --- |
//! | [`central`] | the central converter |

pub mod central;
