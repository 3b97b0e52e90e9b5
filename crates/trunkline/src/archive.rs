//! The locations of the archives and of other files, and records by path or run number.

use std::env;
use std::path::{Path, PathBuf};

use trunkline_counters::archive::Location;
use trunkline_record::{Archive, Record, RunId, store};

use crate::failure::Failure;
use crate::flags::schedule::StateFile;
use crate::flags::{CountersArchive, RunArchive};

/// Returns the file of the archive of runs: the one given, or the default.
pub fn run_archive_path(flags: &RunArchive) -> Result<PathBuf, Failure> {
    match &flags.archive {
        Some(path) => Ok(path.clone()),
        None => default_path("archive.sqlite"),
    }
}

/// Returns the archive of counters: the positional argument, `--archive`, or the default file.
pub fn counters_archive(flags: &CountersArchive, positional: Option<&Location>) -> Result<Location, Failure> {
    match positional.or(flags.archive.as_ref()) {
        Some(archive) => Ok(archive.clone()),
        None => default_path("counters.sqlite").map(Location::from),
    }
}

/// Returns the file of the state of a schedule: the one given, or the default.
pub fn schedule_state(flags: &StateFile) -> Result<PathBuf, Failure> {
    match &flags.state {
        Some(path) => Ok(path.clone()),
        None => default_path("schedule.sqlite"),
    }
}

/// Returns the path of a file in the data folder of the user.
fn default_path(name: &str) -> Result<PathBuf, Failure> {
    let path = user_path("XDG_DATA_HOME", ".local/share", name);
    path.ok_or_else(|| {
        Failure::input("no home folder for the archive or state: give --archive FILE or --state FILE")
    })
}

/// Returns the path of a file in the state folder of the user, or `None` if the user has no home folder.
#[cfg(feature = "agents")]
pub fn state_path(name: &str) -> Option<PathBuf> {
    user_path("XDG_STATE_HOME", ".local/state", name)
}

/// Returns the path of a file in a folder of the user (XDG Base Directory Specification).
fn user_path(variable: &str, default: &str, name: &str) -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = absolute(variable).or_else(|| Some(absolute("HOME")?.join(default)));
    Some(folder?.join("trunkline").join(name))
}

/// Opens the archive of runs, and creates it if it does not exist.
pub fn open(flags: &RunArchive) -> Result<Archive, Failure> {
    Archive::open(&run_archive_path(flags)?).map_err(Failure::run)
}

/// Opens the archive of runs; it is an error if it does not exist.
pub fn open_existing(flags: &RunArchive) -> Result<Archive, Failure> {
    let path = run_archive_path(flags)?;
    if !path.exists() {
        return Err(Failure::input(format!("there is no archive at {}", path.display())));
    }
    Archive::open(&path).map_err(Failure::run)
}

/// Loads records by path or by run number of the archive.
pub fn records(names: &[String], flags: &RunArchive) -> Result<Vec<Record>, Failure> {
    let mut records = Vec::new();
    for name in names {
        let number = name.trim_start_matches('#').parse::<i64>().ok();
        match number {
            Some(id) if !Path::new(name).exists() => {
                records.push(open_existing(flags)?.get(RunId(id)).map_err(Failure::input)?);
            }
            _ => records.extend(store::load(Path::new(name)).map_err(Failure::input)?),
        }
    }
    Ok(records)
}
