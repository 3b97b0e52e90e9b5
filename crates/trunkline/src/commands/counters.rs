//! The `trunkline monitor` commands that read or write an archive of counters.
//!
//! | module | contents |
//! | --- | --- |
//! | [`list`] | `list`: devices, tables and series |
//! | [`export`] | `export`: CSV and Parquet |
//! | [`import`] | `import`: CSV files and runs of experiments |
//! | [`csv`] | rows of a CSV file as readings |
//! | [`capture`] | `capture`: packets counted by flow |
//! | [`forward`] | `forward`: Prometheus remote write |
//! | [`time`] | parsing and formatting of times |

pub mod capture;
pub mod csv;
pub mod export;
#[cfg(feature = "forward")]
pub mod forward;
pub mod import;
pub mod list;
pub mod time;

use trunkline_counters::archive::{Error, Location, Pattern, Reader, Writer};

use crate::failure::Failure;

/// Opens an archive for reading; it is an error if it does not exist.
pub fn open_reader(archive: &Location) -> Result<Reader, Failure> {
    if !archive.may_exist() {
        return Err(Failure::input(format!("there is no archive at {archive}")));
    }
    Reader::open(archive).map_err(failure)
}

/// Opens an archive for writing, and creates it if it does not exist.
pub fn open_writer(archive: &Location) -> Result<Writer, Failure> {
    Writer::open(archive).map_err(failure)
}

/// Converts an error of the archive to a failure of the input or of the system.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::InvalidAddress { .. }
        | Error::NotAnArchive { .. }
        | Error::VersionTooNew { .. }
        | Error::VersionTooOld { .. }
        | Error::InvalidTable { .. }
        | Error::NotFound { .. }
        | Error::OutOfOrder(_) => Failure::input(error),
        error => Failure::run(error),
    }
}

/// Parses patterns of series names.
pub fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}
