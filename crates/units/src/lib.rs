//! Units for all crates of Trunkline: time, size, rate, and named streams of random numbers.
//!
//! ```
//! use trunkline_units::{Rate, Seed, Size, Span};
//!
//! let time = Rate::from_bps(100_000_000).time_for(Size::from_bytes(1250));
//! assert_eq!(time, Span::from_us(100));
//!
//! let mut gaps = Seed(7).stream("B-A / gap");
//! assert!(gaps.unit() < 1.0);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`time`] | [`Instant`] and [`Span`], in picoseconds |
//! | [`amount`] | [`Size`] in bytes and [`Rate`] in bits per second |
//! | [`random`] | [`Seed`] and [`Stream`]: random numbers identified by name |
//!
//! This crate reads no clock and does not allocate on a hot path.

pub mod amount;
pub mod random;
pub mod time;

pub use amount::{Rate, Size};
pub use random::{Seed, Stream};
pub use time::{Instant, Span};
