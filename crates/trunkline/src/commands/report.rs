//! `trunkline report` and `trunkline compare`: reports of stored records.

use std::fs::File;
use std::io::{self, Write};
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
    if let Some(path) = html {
        write_atomically(path, trunkline_report::html(records).as_bytes())?;
    }
    junit.map_or(Ok(()), |path| write_atomically(path, trunkline_report::junit(records).as_bytes()))
}

/// Creates a folder for output, if it does not exist.
pub fn create_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|e| Failure::run(format!("cannot create the folder {}: {e}", path.display())))
}

/// Writes a file atomically: through a temporary file that replaces it. Devices and pipes are written directly.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    replace_file(path, |mut file| file.write_all(bytes).map_err(|e| write_error(path, e)))
}

/// Like [`write_atomically`], with the output of `write`; the file is replaced only if `write` succeeds.
pub fn replace_file<T>(path: &Path, write: impl FnOnce(&File) -> Result<T, Failure>) -> Result<T, Failure> {
    let fail = |e| write_error(path, e);
    if path.exists() && !path.is_file() {
        return write(&File::options().write(true).open(path).map_err(fail)?);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)) // less the umask
        .tempfile_in(folder)
        .map_err(fail)?;
    let written = write(file.as_file())?;
    file.persist(path).map_err(|e| fail(e.error))?;
    Ok(written)
}

fn write_error(path: &Path, error: io::Error) -> Failure {
    Failure::run(format!("cannot write {}: {error}", path.display()))
}
