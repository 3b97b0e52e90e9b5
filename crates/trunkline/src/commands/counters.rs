//! What goes into and out of an archive of counters.
//!
//! | module | what |
//! | --- | --- |
//! | [`list`] | what it holds |
//! | [`export`] | CSV and Parquet |
//! | [`import`] | CSV files, and runs of experiments |
//! | [`csv`] | a CSV file as responses |
//! | [`capture`] | packets, accounted by flow |
//! | [`forward`] | remote write to Prometheus |
//! | [`time`] | moments as people write them |

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

/// Opens an archive that should be there.
pub fn existing(archive: &Location) -> Result<Reader, Failure> {
    if !archive.may_exist() {
        return Err(Failure::input(format!("there is no archive at {archive}")));
    }
    Reader::open(archive).map_err(failed)
}

/// Opens an archive to write, and makes it where there is none.
pub fn writer(archive: &Location) -> Result<Writer, Failure> {
    Writer::open(archive).map_err(failed)
}

/// What is wrong with an archive: what was asked, or the machine.
pub fn failed(error: Error) -> Failure {
    match error {
        Error::Address { .. }
        | Error::Foreign { .. }
        | Error::Newer { .. }
        | Error::Older { .. }
        | Error::Spec { .. }
        | Error::None { .. }
        | Error::Disorder(_) => Failure::input(error),
        error => Failure::run(error),
    }
}

/// Which series were named.
pub fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::new(text)).collect()
}
