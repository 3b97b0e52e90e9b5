//! Reports of records: terminal text, comparisons, HTML with plots, JUnit, sweeps.
//!
//! ```
//! use trunkline_record::Record;
//! use trunkline_record::schema::Connection;
//!
//! let connection = Connection { name: "B-A".into(), received_bps: 36.9e6, ..Connection::default() };
//! let record = Record { backend: "live".into(), connections: vec![connection], ..Record::default() };
//! let text = trunkline_report::terminal(&[record], Some(80));
//! assert!(text.contains("B-A") && text.contains("36.9 Mb/s"));
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`terminal`](mod@terminal) | the report as text; tables fit the terminal |
//! | [`compare`](mod@compare) | records side by side: each metric and its ratio to the first record |
//! | [`html`](mod@html) | the report as one HTML file that opens offline, with plots that zoom |
//! | [`junit`](mod@junit) | expectations as test cases for CI |
//! | [`sweep`](mod@sweep) | metrics over points and seeds: text, JSON, CSV, an HTML file of curves |
//! | [`plot_page`](mod@plot_page) | arbitrary plots on one HTML page |
//! | `summary` | the table of connections, shared by terminal and HTML |
//! | `applications` | lines about latency, video and pages |
//! | `fits` | lines of random variables, and the statement about all of them, shared by terminal and HTML |
//! | `stages` | the table of processing stages, shared by terminal and HTML |
//! | `measured` | what was read of the hosts' kernels, shared by terminal and HTML |
//! | `format` | [`Unit`]: formatting of numbers; [`sanitize`]: texts without control characters |
//!
//! A report reads only records: an old record can be reported again without running anything. A new field of the record
//! becomes a column of `summary`, a row of [`compare`](mod@compare), or a plot or table of [`html`](mod@html); its unit
//! follows from its name.
//!
//! The texts of a record are untrusted: HTML is written through `maud`, which escapes by construction, and texts for a
//! terminal pass [`sanitize`].

mod applications;
pub mod compare;
mod fits;
mod format;
pub mod html;
pub mod junit;
mod measured;
pub mod plot_page;
mod stages;
mod summary;
pub mod sweep;
pub mod terminal;

pub use compare::{Comparison, compare};
pub use format::{Unit, sanitize};
pub use html::html;
pub use junit::junit;
pub use plot_page::plot_page;
pub use sweep::Sweep;
pub use terminal::terminal;

use trunkline_record::Record;

/// Returns the label of each record: its backend, with a number where several records share one.
pub(crate) fn labels(records: &[Record]) -> Vec<String> {
    let shared = |backend: &str| records.iter().filter(|r| r.backend == backend).count() > 1;
    let label = |(i, r): (usize, &Record)| match shared(&r.backend) {
        true => format!("{} {}", r.backend, i + 1),
        false => r.backend.clone(),
    };
    records.iter().enumerate().map(label).collect()
}

/// Returns the start of a plan's hash, which is enough to distinguish plans.
pub(crate) fn short_hash(hash: &str) -> String {
    hash.chars().take(12).collect()
}

/// Returns whether a record measured the real network although its experiment describes another one.
fn ignores_network(record: &Record) -> bool {
    record.environment.contains_key("network")
}

fn is_simulated(record: &Record) -> bool {
    record.backend == "sim"
}

/// Returns whether the ratio of a metric of two records is meaningful: not between a run on the real network and the
/// simulation of the network that the experiment describes.
pub(crate) fn are_comparable(a: &Record, b: &Record) -> bool {
    !(ignores_network(a) && is_simulated(b) || is_simulated(a) && ignores_network(b))
}

/// Returns a sentence that explains missing ratios, if some records are not comparable to the first.
pub(crate) fn network_note(records: &[Record]) -> Option<String> {
    let first = records.first()?;
    if records.iter().all(|record| are_comparable(first, record)) {
        return None;
    }
    let labels = labels(records);
    let names = |is_selected: fn(&Record) -> bool| {
        let names = records
            .iter()
            .zip(&labels)
            .filter(|(record, _)| is_selected(record))
            .map(|(_, label)| label.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    Some(format!(
        "Not comparable: {} measured the real network, {} the simulated one.",
        names(ignores_network),
        names(is_simulated)
    ))
}
