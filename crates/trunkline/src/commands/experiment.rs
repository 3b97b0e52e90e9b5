//! Reading an experiment from a file and applying the overrides of the command line.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use trunkline_experiment::{Diagnostic, Plan, Source, apply_overrides, parse_with_recordings, render};

use super::recording::read_recording;
use crate::failure::Failure;
use crate::flags::Overrides;

/// A parsed experiment.
pub struct Experiment {
    /// The name of its file, for messages.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The folder that paths in the text are relative to.
    pub folder: PathBuf,
    /// The plan.
    pub plan: Plan,
}

impl Experiment {
    /// Reads and parses `file`, or standard input for `-`, and prints diagnostics to standard error.
    pub fn read(file: &Path, overrides: &Overrides) -> Result<Experiment, Failure> {
        let (name, text) = read_text(file)?;
        let folder = file.parent().map(Path::to_path_buf).unwrap_or_default();
        let source = Source { name: &name, text: &text, folder: Some(&folder) };
        let parsed = parse_with_recordings(&source, &|request| read_recording(&folder, request));
        print_diagnostics(&name, &text, &parsed.diagnostics);
        let mut plan = parsed.plan.ok_or(Failure::AlreadyReported)?;
        let set = overrides.set.iter().map(|(option, value)| (option.as_str(), value.as_str()));
        apply_overrides(&mut plan, set)
            .map_err(|e| Failure::input(format!("--set {}: {e}", overrides.to_text())))?;
        Ok(Experiment { name, text, folder, plan })
    }
}

/// Returns the name and the text of a file, or of standard input for `-`.
pub fn read_text(file: &Path) -> Result<(String, String), Failure> {
    let name = file.display().to_string();
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = bytes.map_err(|e| Failure::input(format!("cannot read {name}: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        Failure::input(format!("{name} is not UTF-8 text: byte {}", e.utf8_error().valid_up_to()))
    })?;
    Ok((name, text))
}

/// Prints diagnostics to standard error, in colour on a terminal.
pub fn print_diagnostics(name: &str, text: &str, diagnostics: &[Diagnostic]) {
    if !diagnostics.is_empty() {
        let source = Source { name, text, folder: None };
        let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let rendered = render(&source, diagnostics, colour);
        let _ = writeln!(io::stderr(), "{}", rendered.trim_end());
    }
}
