//! The experiment language: text → tokens → tree and [`Diagnostic`]s → [`Plan`].
//!
//! ```
//! use trunkline_experiment::{Source, parse, plan_text, render};
//!
//! let text = "experiment { connection { xmt = a; rcv = b; protocol = tcp; test = full; duraton = 5 s; } }";
//! let source = Source { name: "first.ns", text, folder: None };
//! let parsed = parse(&source);
//! assert!(parsed.plan.is_none());
//! assert!(render(&source, &parsed.diagnostics, false).contains("did you mean `duration`?"));
//!
//! let source = Source { text: &text.replace("duraton", "duration"), ..source };
//! let plan = parse(&source).plan.expect("a whole plan");
//! assert!(plan_text(&plan).contains("duration = 5 s;"));
//! ```
//!
//! | module | contents | uses |
//! | --- | --- | --- |
//! | [`plan`] | the meaning of an experiment as plain data; its hash | – |
//! | [`converters`] | the hosts on each side of the bundle converters | plan |
//! | [`diagnostic`] | errors and warnings as plain data | locations of the plan |
//! | `token` | text → words, strings, signs | diagnostics |
//! | `format` | texts in one layout | tokens, the depth limit of `parse` |
//! | `tree`, `parse` | tokens → one tree for both dialects; recovers from errors | tokens |
//! | `resolve` | tree → plan: names, defaults, units, checks | the tree |
//! | [`support`](mod@support) | which tests run over which protocols, and where | plan |
//! | `overrides` | `--set duration=2s`, `--set a-s.delay=5ms` on a plan | the readers of `resolve` |
//! | [`scenario`] | the measurement configurations of 1996 as experiments | tokens; `resolve` for names |
//! | [`vary`] | `--vary window=16kB..256kB`: the values of an option in a sweep | overrides |
//! | `show`, `print` | diagnostics and plans as text | plan and diagnostics |
//!
//! Invariants: no input makes it panic or run forever (`fuzz/fuzz_targets/experiment.rs`); a plan exists exactly
//! if no error was reported; [`plan_text`] is an experiment with the same meaning; files are read only through the
//! function given to [`parse_with`].

pub mod converters;
pub mod diagnostic;
pub mod plan;
pub mod scenario;
pub mod support;
pub mod vary;

mod format;
mod overrides;
mod parse;
mod print;
mod resolve;
mod show;
mod token;
mod tree;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

pub use diagnostic::{Diagnostic, Severity};
pub use format::format;
pub use overrides::{OverrideError, apply_override, apply_overrides};
pub use plan::Plan;
pub use print::plan_text;
pub use resolve::dscp::{dscp_of, dscp_text};
pub use resolve::expect::figures;
pub use resolve::pattern::{message_sizes, test_name};
pub use show::render;
pub use support::{Support, support};
pub use vary::Variation;

use diagnostic::Diagnostics;
use plan::SourceRange;
use resolve::Context;
use trunkline_traffic::{Recording, RecordingRequest};

/// Maximum length of a text in bytes.
const LARGEST_TEXT: usize = 4 << 20;
/// Maximum length of a file of numbers in bytes.
const LARGEST_FILE: u64 = 64 << 20;

/// An experiment as text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// File name for messages; its stem is the default name of the experiment.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// Folder of the files of `empirical("file.csv")`; none: such files cannot be read.
    pub folder: Option<&'a Path>,
}

/// The result of reading a text.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The plan; present exactly if no diagnostic is an error.
    pub plan: Option<Plan>,
    /// Errors and warnings, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// Error of a file of numbers that an experiment names; its text is a short clause.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The text has no folder.
    #[error("there is no folder to look for it in")]
    NoFolder,
    /// An override cannot name a file.
    #[error("no file can be named on the command line")]
    CommandLine,
    /// It is a folder, a pipe or a device.
    #[error("it is not a file")]
    NotAFile,
    /// It is longer than the maximum.
    #[error("it is larger than 64 MiB")]
    TooLarge,
    /// The operating system cannot read it, or it is not UTF-8.
    #[error("{}", describe(.0))]
    Io(#[from] io::Error),
    /// This line, counted from 1, is not a number.
    #[error("line {0} is not a number")]
    NotANumber(usize),
    /// The number of this line does not fit the quantity.
    #[error("line {0} is out of range")]
    OutOfRange(usize),
    /// The time of this line is not after that of the line before.
    #[error("line {0} is out of order")]
    NotAscending(usize),
    /// It has more lines than the maximum.
    #[error("it has more than {0} lines")]
    TooManyLines(usize),
    /// It has no number.
    #[error("it holds no number")]
    NoNumber,
    /// All numbers are 0, and the quantity must be above 0.
    #[error("it holds no number above 0")]
    AllZero,
}

fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "it may not be read".to_owned(),
        ErrorKind::InvalidData => "it is not text".to_owned(),
        _ => error.to_string(),
    }
}

/// Reads an experiment. Files it names are read from [`Source::folder`].
pub fn parse(source: &Source<'_>) -> Parsed {
    parse_with_recordings(source, &no_recordings)
}

/// Reads an experiment as [`parse`] does, with a reader of the recorded traffic that it names: captures, CSV files and archives,
/// which are read by others. Its error is a clause.
pub fn parse_with_recordings(
    source: &Source<'_>,
    recordings: &dyn Fn(&RecordingRequest) -> Result<Recording, String>,
) -> Parsed {
    let files = |file: &str| match source.folder {
        Some(folder) => read_file(&folder.join(file)),
        None => Err(FileError::NoFolder),
    };
    parse_all(source, &files, recordings)
}

/// Reads an experiment; `files` returns the text of a file that it names.
pub fn parse_with(source: &Source<'_>, files: &dyn Fn(&str) -> Result<String, FileError>) -> Parsed {
    parse_all(source, files, &no_recordings)
}

/// Refuses every recording.
fn no_recordings(_: &RecordingRequest) -> Result<Recording, String> {
    Err("recorded traffic cannot be read here".to_owned())
}

fn parse_all(
    source: &Source<'_>,
    files: &dyn Fn(&str) -> Result<String, FileError>,
    recordings: &dyn Fn(&RecordingRequest) -> Result<Recording, String>,
) -> Parsed {
    let mut diagnostics = Diagnostics::default();
    if source.text.len() > LARGEST_TEXT {
        let size = source.text.len();
        let error = Diagnostic::error(SourceRange::default(), format!("a text of {size} bytes is too large"));
        return Parsed {
            plan: None,
            diagnostics: vec![error.label(format!("expected at most {LARGEST_TEXT} bytes"))],
        };
    }
    let tokens = token::tokens(source.text, &mut diagnostics);
    let script = parse::script(source.text, &tokens, &mut diagnostics);
    let mut cx = Context { diagnostics, files, recordings };
    let plan = resolve::plan(&mut cx, &script, stem(source.name));
    let whole = cx.diagnostics.errors() == 0;
    Parsed { plan: whole.then_some(plan), diagnostics: cx.diagnostics.into_vec() }
}

/// Returns the default name of an experiment.
fn stem(file: &str) -> &str {
    Path::new(file)
        .file_stem()
        .and_then(|stem| stem.to_str())
        .filter(|stem| *stem != "-")
        .unwrap_or("experiment")
}

/// Reads a regular file up to the maximum length.
fn read_file(path: &Path) -> Result<String, FileError> {
    // Opening a pipe or a device could wait or never end.
    if !path.metadata()?.is_file() {
        return Err(FileError::NotAFile);
    }
    let mut text = String::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE { Err(FileError::TooLarge) } else { Ok(text) }
}
