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
//! | [`counter`] | readings of somebody else's counters: growth with bounds, or the event that forbids it |
//! | [`series`] | the archive of the flow monitor: every reading kept, compressed; views that lose no peak |
//! | [`export`] | CSV, JSON and, with the feature `parquet`, Parquet |
//!
//! A record is plain data: it knows neither the plan that asked for it nor the backend that made it, and nothing
//! here reads a clock.

pub mod archive;
pub mod counter;
pub mod export;
pub mod figure;
pub mod histogram;
pub mod repeats;
pub mod schema;
pub mod series;
pub mod store;

pub use archive::{Archive, RunId};
pub use histogram::Histogram;
pub use schema::Record;
pub use store::RecordFile;
