//! `trunkline report` and `trunkline compare`: records again, without running anything.

use std::path::Path;

use trunkline_record::Record;

use crate::archive;
use crate::failure::{Failure, say};
use crate::flags::{Compare, Report};

/// Columns of the terminal; none on a pipe.
pub fn width() -> Option<u16> {
    terminal_size::terminal_size().map(|(columns, _)| columns.0)
}

/// Reports records again.
pub fn report(flags: &Report) -> Result<(), Failure> {
    let records = archive::records(&flags.records, &flags.archive)?;
    write_files(&records, flags.html.as_deref(), flags.junit.as_deref())?;
    say(&trunkline_report::terminal(&records, width()))
}

/// Puts records side by side.
pub fn compare(flags: &Compare) -> Result<(), Failure> {
    let records = archive::records(&flags.records, &flags.archive)?;
    write_files(&records, flags.html.as_deref(), None)?;
    let comparison = trunkline_report::compare(&records);
    say(&trunkline_report::terminal::comparison(&comparison, width()))
}

/// Writes the report and the test results, where they were asked for.
pub fn write_files(records: &[Record], html: Option<&Path>, junit: Option<&Path>) -> Result<(), Failure> {
    let write = |path: &Path, text: String| write_whole(path, text.as_bytes());
    if let Some(path) = html {
        write(path, trunkline_report::html(records))?;
    }
    if let Some(path) = junit {
        write(path, trunkline_report::junit(records))?;
    }
    Ok(())
}

/// Writes a file whole or not at all, but for devices and pipes, which take what they are given.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let fail = |e: std::io::Error| Failure::run(format!("cannot write {}: {e}", path.display()));
    if path.exists() && !path.is_file() {
        return std::fs::write(path, bytes).map_err(fail);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)) // less the umask
        .tempfile_in(folder)
        .map_err(fail)?;
    std::io::Write::write_all(&mut file, bytes).map_err(fail)?;
    file.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}
