//! `trunkline report` and `trunkline compare`: reports of stored records.

use std::path::Path;

use trunkline_record::Record;

use crate::archive;
use crate::failure::{Failure, print};
use crate::flags::{Compare, Report};

/// Returns the width of the terminal in columns, `None` if standard output is not a terminal.
pub fn terminal_width() -> Option<u16> {
    terminal_size::terminal_size().map(|(columns, _)| columns.0)
}

/// Prints the report of records.
pub fn report(flags: &Report) -> Result<(), Failure> {
    let records = archive::records(&flags.records, &flags.archive)?;
    write_files(&records, flags.html.as_deref(), flags.junit.as_deref())?;
    print(&trunkline_report::terminal(&records, terminal_width()))
}

/// Prints the comparison of records.
pub fn compare(flags: &Compare) -> Result<(), Failure> {
    let records = archive::records(&flags.records, &flags.archive)?;
    write_files(&records, flags.html.as_deref(), None)?;
    let comparison = trunkline_report::compare(&records);
    print(&trunkline_report::terminal::comparison(&comparison, terminal_width()))
}

/// Writes the HTML report and the JUnit results, if requested.
pub fn write_files(records: &[Record], html: Option<&Path>, junit: Option<&Path>) -> Result<(), Failure> {
    let write = |path: &Path, text: String| write_atomically(path, text.as_bytes());
    if let Some(path) = html {
        write(path, trunkline_report::html(records))?;
    }
    if let Some(path) = junit {
        write(path, trunkline_report::junit(records))?;
    }
    Ok(())
}

/// Writes a file atomically: through a temporary file that replaces it. Devices and pipes are written directly.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
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
