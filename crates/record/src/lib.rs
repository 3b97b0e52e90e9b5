//! What was measured: the record, and where it is kept.
//!
//! | module | what |
//! | --- | --- |
//! | [`schema`] | [`Record`], as it stands in `record.json` and in the archive |
//! | [`histogram`] | [`Histogram`] of times, cheap enough for every message |
//! | [`figure`] | any number of a record by its name; expectations judged |
//! | [`repeats`] | mean, spread and confidence interval over the runs of a `repeat` |
//! | [`store`] | `DIR/BACKEND/record.json`: room reserved before the run, whole or absent after it |
//! | [`archive`] | every run ever made, in one SQLite file |
//! | [`export`] | CSV, JSON and, with the feature `parquet`, Parquet |
//!
//! A record is plain data: it knows neither the plan that asked for it nor the backend that made it, and nothing
//! here reads a clock.

pub mod archive;
pub mod export;
pub mod figure;
pub mod histogram;
pub mod repeats;
pub mod schema;
pub mod store;

pub use archive::{Archive, RunId};
pub use histogram::Histogram;
pub use schema::Record;
pub use store::RecordFile;
