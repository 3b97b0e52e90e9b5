//! The units every room of Trunkline speaks: time, rate, size, and named random streams.
//!
//! | module | what |
//! | --- | --- |
//! | [`time`] | [`Instant`] and [`Span`], picoseconds since the run began |
//! | [`amount`] | [`Size`] in bytes and [`Rate`] in bits per second |
//! | [`random`] | [`Seed`] and [`Stream`], random numbers named by their place in the plan |
//!
//! Nothing here reads a clock, allocates on a hot path, or knows what the numbers are for.

pub mod amount;
pub mod random;
pub mod time;

pub use amount::{Rate, Size};
pub use random::{Seed, Stream};
pub use time::{Instant, Span};
