//! The record of a run, and its storage.
//!
//! ```
//! use trunkline_record::Histogram;
//! use trunkline_units::Span;
//!
//! let mut delays = Histogram::default();
//! (1..=100).for_each(|us| delays.record(Span::from_us(us)));
//! let distribution = delays.distribution_us().unwrap();
//! assert_eq!(delays.count(), 100);
//! assert!((distribution.p99 - 99.0).abs() < 1.0);
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`schema`] | [`Record`]: the contents of `record.json` and of the archive |
//! | [`histogram`] | [`Histogram`] of times, with one entry per message |
//! | [`metric`] | numbers of a record by name; evaluation of expectations |
//! | [`repeats`] | mean, spread and confidence interval over the repetitions of a `repeat` |
//! | [`store`] | `DIR/BACKEND/record.json`: space reserved before the run, complete or absent after it |
//! | [`archive`] | all runs, in one SQLite file |
//! | [`export`] | CSV, JSON and, with the feature `parquet`, Parquet |
//!
//! A record is plain data, independent of the plan and of the backend. The crate reads no clock.

pub mod archive;
pub mod export;
pub mod histogram;
pub mod metric;
pub mod repeats;
pub mod schema;
pub mod store;

pub use archive::{Archive, RunId};
pub use histogram::Histogram;
pub use schema::Record;
pub use store::RecordFile;
