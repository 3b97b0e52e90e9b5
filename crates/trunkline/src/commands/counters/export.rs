//! `trunkline monitor export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use tempfile::NamedTempFile;
use trunkline_counters::archive::Reader;
use trunkline_counters::archive::flat::{Csv, FlatError, Wanted, Written};
use trunkline_counters::counter::Moment;

use super::{existing, failed, patterns};
use crate::failure::{Failure, say};
use crate::flags::counters::Export;

/// Writes what is wanted.
pub fn export(flags: &Export) -> Result<(), Failure> {
    let reader = existing(&flags.archive)?;
    let wanted = Wanted {
        patterns: patterns(&flags.series),
        from: flags.from.unwrap_or(Moment::FIRST),
        to: flags.to.unwrap_or(Moment::LAST),
        every: flags.every.map(|every| Duration::from_nanos(every.as_ns())),
    };
    if wanted.from > wanted.to {
        return Err(Failure::input("--from is after --to"));
    }
    if flags.csv.as_deref() == Some(Path::new("-")) {
        let written = csv(&reader, &wanted, BufWriter::new(io::stdout().lock()))?;
        return complain(&written);
    }
    let Some(path) = flags.csv.as_deref().or(flags.parquet.as_deref()) else {
        return Err(Failure::input("say --csv FILE or --parquet FILE"));
    };
    let place = Place::new(path)?;
    let out = place.out()?;
    let written = if flags.csv.is_some() {
        csv(&reader, &wanted, BufWriter::new(out))?
    } else {
        parquet(&reader, &wanted, out)?
    };
    complain(&written)?;
    place.keep()?;
    say(&format!("{} rows of {} series: {}\n", written.rows, written.series, path.display()))
}

fn csv(reader: &Reader, wanted: &Wanted, out: impl Write) -> Result<Written, Failure> {
    let mut csv = Csv::new(out, wanted.every.is_some())?;
    let written = reader.flat(wanted, |line| csv.row(line)).map_err(wrong)?;
    csv.finish()?;
    Ok(written)
}

#[cfg(feature = "parquet")]
fn parquet(reader: &Reader, wanted: &Wanted, out: File) -> Result<Written, Failure> {
    use trunkline_counters::archive::flat::parquet::{Sheet, io};
    let mut sheet = Sheet::new(BufWriter::new(out), wanted.every.is_some()).map_err(Failure::run)?;
    let written = reader.flat(wanted, |line| sheet.row(line).map_err(io)).map_err(wrong)?;
    sheet.finish().map_err(Failure::run)?;
    Ok(written)
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: &Reader, _: &Wanted, _: File) -> Result<Written, Failure> {
    Err(Failure::input("this trunkline was built without Parquet"))
}

fn wrong(error: FlatError) -> Failure {
    match error {
        FlatError::Archive(error) => failed(error),
        FlatError::Write(error) => error.into(),
        error @ FlatError::Many(_) => Failure::input(error),
    }
}

/// Says what is missing; nothing at all is wrong usage.
fn complain(written: &Written) -> Result<(), Failure> {
    let mut err = io::stderr();
    if written.gone > 0 {
        let _ = writeln!(err, "warning: readings of {} chunks were removed by age or size", written.gone);
    }
    if written.damaged > 0 {
        let _ = writeln!(err, "warning: {} chunks cannot be read", written.damaged);
    }
    match written.rows {
        0 => Err(Failure::input("the archive has nothing of these series in that time")),
        _ => Ok(()),
    }
}

/// A file that appears when it is whole; devices and pipes take what comes.
enum Place<'a> {
    Beside(&'a Path, NamedTempFile),
    There(&'a Path),
}

impl<'a> Place<'a> {
    fn new(path: &'a Path) -> Result<Place<'a>, Failure> {
        if path.exists() && !path.is_file() {
            return Ok(Place::There(path));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)) // less the umask
            .tempfile_in(folder)
            .map_err(|e| cannot(path, &e))?;
        Ok(Place::Beside(path, file))
    }

    fn out(&self) -> Result<File, Failure> {
        match self {
            Place::Beside(path, file) => file.as_file().try_clone().map_err(|e| cannot(path, &e)),
            Place::There(path) => File::options().write(true).open(path).map_err(|e| cannot(path, &e)),
        }
    }

    fn keep(self) -> Result<(), Failure> {
        match self {
            Place::Beside(path, file) => file.persist(path).map(drop).map_err(|e| cannot(path, &e.error)),
            Place::There(_) => Ok(()),
        }
    }
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::run(format!("cannot write {}: {error}", path.display()))
}
