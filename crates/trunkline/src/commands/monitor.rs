//! `trunkline monitor`: polling, and the archive of counters.
//!
//! | module | contents |
//! | --- | --- |
//! | `poll` | `poll`: the daemon that polls devices |
//! | `show` | its output: lines, a table or JSON |
//! | [`list`] | `list`: devices, tables and series |
//! | [`export`] | `export`: CSV and Parquet |
//! | [`import`] | `import`: CSV files and runs of experiments |
//! | [`csv`] | rows of a CSV file as readings |
//! | [`capture`] | `capture`: packets counted by flow |
//! | `forward` | `forward`: Prometheus remote write |
//! | [`time`] | parsing and formatting of times |

mod capture;
pub mod csv;
mod export;
#[cfg(feature = "forward")]
mod forward;
pub mod import;
mod list;
#[cfg(feature = "snmp")]
mod poll;
#[cfg(feature = "snmp")]
mod show;
pub mod time;

use trunkline_counters::archive::{Error, Location, Pattern, Reader};

use crate::failure::Failure;
use crate::flags::monitor::Tool;

/// Runs a monitor command.
pub fn monitor(tool: &Tool) -> Result<(), Failure> {
    match tool {
        #[cfg(feature = "snmp")]
        Tool::Poll(flags) => poll::poll(flags),
        #[cfg(not(feature = "snmp"))]
        Tool::Poll(_) => Err(Failure::missing_feature("trunkline monitor poll", "snmp")),
        Tool::List(flags) => list::list(flags),
        Tool::Export(flags) => export::export(flags),
        Tool::Import(flags) => import::import(flags),
        Tool::Capture(flags) => capture::capture(flags),
        #[cfg(feature = "forward")]
        Tool::Forward(flags) => forward::forward(flags),
        #[cfg(not(feature = "forward"))]
        Tool::Forward(_) => Err(Failure::missing_feature("trunkline monitor forward", "forward")),
    }
}

/// Opens an archive for reading; it is an error if it does not exist.
pub fn open_reader(archive: &Location) -> Result<Reader, Failure> {
    if !archive.may_exist() {
        return Err(Failure::input(format!("there is no archive at {archive}")));
    }
    Ok(Reader::open(archive)?)
}

/// Converts an error of the archive to a failure of the input or of the system.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::InvalidAddress { .. }
            | Error::NotAnArchive { .. }
            | Error::VersionTooNew { .. }
            | Error::VersionTooOld { .. }
            | Error::InvalidTable(..)
            | Error::NotFound { .. }
            | Error::OutOfOrder(_) => Failure::input(error),
            error => Failure::run(error),
        }
    }
}

/// Parses patterns of series names.
pub fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}
