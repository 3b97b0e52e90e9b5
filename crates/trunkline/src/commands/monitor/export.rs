//! `trunkline monitor export`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use trunkline_counters::archive::Reader;
use trunkline_counters::archive::export::{CsvWriter, ExportError, ExportQuery, ExportStats};
use trunkline_counters::counter::Timestamp;

use super::{open_reader, patterns};
use crate::archive::counters_archive;
use crate::commands::report::replace_file;
use crate::failure::{Failure, print};
use crate::flags::monitor::{Export, ExportFormat};

/// Exports the selected series.
pub fn export(flags: &Export) -> Result<(), Failure> {
    let archive = counters_archive(&flags.archive, flags.positional.as_ref())?;
    let reader = open_reader(&archive)?;
    let wanted = ExportQuery {
        patterns: patterns(&flags.series),
        from: flags.from.unwrap_or(Timestamp::MIN),
        to: flags.to.unwrap_or(Timestamp::MAX),
        bucket_length: flags.interval.map(Duration::from),
    };
    if wanted.from > wanted.to {
        return Err(Failure::input("--from is after --to"));
    }
    let (format, output) = match (&flags.csv, &flags.parquet) {
        (Some(path), _) => (ExportFormat::Csv, Some(path)),
        (None, Some(path)) => (ExportFormat::Parquet, Some(path)),
        (None, None) => (flags.format, flags.output.as_ref()),
    };
    let output = output.filter(|path| format != ExportFormat::Csv || path.as_path() != Path::new("-"));
    let Some(path) = output else {
        if format == ExportFormat::Parquet {
            return Err(Failure::input("--format parquet needs --output FILE"));
        }
        let written = write_csv(&reader, &wanted, BufWriter::new(io::stdout().lock()))?;
        return warn_about_gaps(&written);
    };
    let written = replace_file(path, |file| {
        let written = match format {
            ExportFormat::Csv => write_csv(&reader, &wanted, BufWriter::new(file))?,
            ExportFormat::Parquet => write_parquet(&reader, &wanted, file)?,
        };
        warn_about_gaps(&written)?;
        Ok(written)
    })?;
    print(&format!("{} rows of {} series: {}\n", written.rows, written.series, path.display()))
}

fn write_csv(reader: &Reader, wanted: &ExportQuery, out: impl Write) -> Result<ExportStats, Failure> {
    let mut csv = CsvWriter::new(out, wanted.bucket_length.is_some())?;
    let written = reader.export(wanted, |line| csv.write_row(line)).map_err(flat_error)?;
    csv.finish()?;
    Ok(written)
}

#[cfg(feature = "parquet")]
fn write_parquet(reader: &Reader, wanted: &ExportQuery, out: &File) -> Result<ExportStats, Failure> {
    use trunkline_counters::archive::export::parquet::ParquetWriter;
    let mut table =
        ParquetWriter::new(BufWriter::new(out), wanted.bucket_length.is_some()).map_err(Failure::run)?;
    let written = reader
        .export(wanted, |line| table.write_row(line).map_err(std::io::Error::other))
        .map_err(flat_error)?;
    table.finish().map_err(Failure::run)?;
    Ok(written)
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &Reader, _: &ExportQuery, _: &File) -> Result<ExportStats, Failure> {
    Err(Failure::missing_feature("--format parquet", "parquet"))
}

fn flat_error(error: ExportError) -> Failure {
    match error {
        ExportError::Archive(error) => error.into(),
        ExportError::Write(error) => error.into(),
        error @ ExportError::TooManyBuckets(_) => Failure::input(error),
    }
}

/// Warns about missing readings. An empty result is a usage error.
fn warn_about_gaps(written: &ExportStats) -> Result<(), Failure> {
    let ExportStats { removed, damaged, .. } = written;
    let mut err = io::stderr();
    if *removed > 0 {
        let _ = writeln!(err, "warning: {removed} chunks of readings were removed because of age or size");
    }
    if *damaged > 0 {
        let _ = writeln!(err, "warning: {damaged} chunks cannot be read");
    }
    match written.rows {
        0 => Err(Failure::input("the archive has no readings of these series in that time range")),
        _ => Ok(()),
    }
}
