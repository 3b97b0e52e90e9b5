//! Reports: what records look like to people and to other programs.
//!
//! | module | what |
//! | --- | --- |
//! | [`terminal`](mod@terminal) | tables as wide as the terminal |
//! | [`compare`](mod@compare) | records side by side: each figure and its ratio to the first |
//! | [`html`](mod@html) | one file that opens offline, with plots that zoom |
//! | [`junit`](mod@junit) | expectations as test cases for somebody's CI |
//! | [`sweep`](mod@sweep) | figures over points and seeds: table, JSON, CSV, one HTML file of curves |
//! | [`figures`](mod@figures) | plots of anything on one HTML page |
//! | `summary` | the table of connections that terminal and HTML share |
//! | `stages` | where the time goes: the table that terminal and HTML share |
//! | `human` | [`Unit`]: numbers as people read them; [`plain`]: text made safe to show |
//!
//! A report reads records and nothing else: an old record can be reported again without running anything. Every
//! text in a record may come from a stranger. HTML is written through `maud`, which escapes by construction, and
//! what goes to a terminal passes [`plain`].

pub mod compare;
pub mod figures;
pub mod html;
mod human;
pub mod junit;
mod stages;
mod summary;
pub mod sweep;
pub mod terminal;

pub use compare::{Comparison, compare};
pub use figures::figures;
pub use html::html;
pub use human::{Unit, plain};
pub use junit::junit;
pub use sweep::Sweep;
pub use terminal::terminal;

use trunkline_record::Record;

/// What to call each record beside the others: its backend; with its place where several share one.
pub(crate) fn labels(records: &[Record]) -> Vec<String> {
    let shared = |backend: &str| records.iter().filter(|r| r.backend == backend).count() > 1;
    let label = |(i, r): (usize, &Record)| match shared(&r.backend) {
        true => format!("{} {}", r.backend, i + 1),
        false => r.backend.clone(),
    };
    records.iter().enumerate().map(label).collect()
}
