//! `trunkline fmt`: experiments in one layout.

use std::path::Path;

use trunkline_experiment::format;

use super::experiment::{print_diagnostics, read_text};
use super::report::write_atomically;
use crate::failure::{Failure, print};
use crate::flags::Fmt;

/// Formats files in place, or names those that are not formatted. A file with an error is unchanged, and the others are
/// formatted.
pub fn fmt(flags: &Fmt) -> Result<(), Failure> {
    let (mut unformatted, mut failure) = (0, None);
    for file in &flags.files {
        let result = read_text(file).and_then(|(name, text)| {
            let formatted = format(&text).map_err(|diagnostics| {
                print_diagnostics(&name, &text, &diagnostics);
                Failure::AlreadyReported
            })?;
            match (flags.check, name.as_str()) {
                (true, _) if formatted == text => Ok(()),
                (true, _) => {
                    unformatted += 1;
                    print(&format!("{name}\n"))
                }
                (false, "-") => print(&formatted),
                (false, _) if formatted == text => Ok(()),
                (false, _) => replace(file, &formatted),
            }
        });
        if let Err(error) = result {
            // The first error decides the status; each has its line.
            match &failure {
                None => failure = Some(error),
                Some(_) => drop(error.report()),
            }
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None if unformatted > 0 => {
            Err(Failure::run(format!("{unformatted} of {} files are not formatted", flags.files.len())))
        }
        None => Ok(()),
    }
}

/// Replaces the text of a file, also behind a symbolic link, and retains its permissions.
fn replace(file: &Path, text: &str) -> Result<(), Failure> {
    let fail = |error| Failure::run(format!("cannot write {}: {error}", file.display()));
    let path = file.canonicalize().map_err(fail)?;
    let permissions = path.metadata().map_err(fail)?.permissions();
    write_atomically(&path, text.as_bytes())?;
    std::fs::set_permissions(&path, permissions).map_err(fail)
}
