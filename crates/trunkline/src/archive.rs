//! Where the archive is, and records by path or number.

use std::env;
use std::path::{Path, PathBuf};

use trunkline_record::{Archive, Record, RunId, store};

use crate::failure::Failure;
use crate::flags::ArchivePlace;

/// The archive file: as said, else in the user's data folder.
pub fn path(place: &ArchivePlace) -> Result<PathBuf, Failure> {
    match &place.archive {
        Some(path) => Ok(path.clone()),
        None => default("archive.sqlite"),
    }
}

/// A file in the user's data folder.
pub fn default(name: &str) -> Result<PathBuf, Failure> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    data.map(|d| d.join("trunkline").join(name))
        .ok_or_else(|| Failure::input("there is no home folder for the archive: give --archive FILE"))
}

/// Opens it; makes it where there is none.
pub fn open(place: &ArchivePlace) -> Result<Archive, Failure> {
    Archive::open(&path(place)?).map_err(Failure::run)
}

/// Opens an archive that should be there already.
pub fn existing(place: &ArchivePlace) -> Result<Archive, Failure> {
    let path = path(place)?;
    if !path.exists() {
        return Err(Failure::input(format!("there is no archive at {}", path.display())));
    }
    Archive::open(&path).map_err(Failure::run)
}

/// Records by path or by number of the archive.
pub fn records(names: &[String], place: &ArchivePlace) -> Result<Vec<Record>, Failure> {
    let mut all = Vec::new();
    for name in names {
        let number = name.trim_start_matches('#').parse::<i64>().ok();
        match number {
            Some(id) if !Path::new(name).exists() => {
                all.push(existing(place)?.get(RunId(id)).map_err(Failure::input)?);
            }
            _ => all.extend(store::load(Path::new(name)).map_err(Failure::input)?),
        }
    }
    Ok(all)
}
