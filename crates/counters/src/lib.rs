//! Counters of network devices: growth between readings, and an archive that stores every reading.
//!
//! ```
//! use std::time::Duration;
//!
//! use trunkline_counters::archive::{Reader, SeriesSpec, TableSpec, Writer};
//! use trunkline_counters::counter::{Answer, RawValue, Response, Timestamp, ValueKind};
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join("counters.sqlite");
//! let mut writer = Writer::open(&path)?;
//! let layout = writer.open_table(&TableSpec {
//!     device: "sw1".into(),
//!     name: "interfaces".into(),
//!     period: Duration::from_secs(1),
//!     refresh: Some(Duration::ZERO),
//!     series: vec![SeriesSpec::new("port/eth0/in/octets", ValueKind::Counter64, "octets")],
//! })?;
//! for second in 0..10 {
//!     let at = Timestamp(second * 1_000_000_000);
//!     let values = vec![Some(RawValue(1_000 * second as u64))];
//!     let answer = Answer { answered_at: Timestamp(at.0 + 1_000_000), uptime: None, values };
//!     writer.append(layout.table, &Response { due_at: at, requested_at: at, answer: Some(answer) })?;
//! }
//! writer.flush()?;
//!
//! let view = Reader::open(&path)?.view(layout.series[0], Timestamp(0), Timestamp::MAX, 1)?;
//! assert_eq!(view.buckets.buckets[0].sum, 9_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`counter`] | readings of counters: growth with bounds, or the event that makes growth unknown |
//! | [`archive`] | every reading, compressed, in SQLite or PostgreSQL; views that lose no peak |

pub mod archive;
pub mod counter;
