//! Where frames come from.
//!
//! | module | contents |
//! | --- | --- |
//! | [`live`] | an interface |
//! | [`file`](mod@file) | a capture file: pcap or pcapng |

pub mod file;
pub mod live;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::monitor::Monitor;
pub use file::CaptureFile;
pub use live::Live;

/// Where frames come from.
#[derive(Debug)]
pub enum Source {
    /// An interface.
    Live(Live),
    /// A file.
    File(CaptureFile),
}

/// Why there is no source.
#[derive(Debug, Error)]
pub enum NoSource {
    /// Neither the one nor the other.
    #[error("`{0}` is neither an interface nor a file or folder")]
    Unknown(String),
    /// No right to open packet sockets.
    #[error("to watch `{0}` needs the right to open packet sockets (CAP_NET_RAW): run it as root")]
    Forbidden(String),
    /// Its frames are of a kind that is not read.
    #[error("the frames of `{name}` are neither Ethernet nor IP ({what})")]
    Link {
        /// The interface or file.
        name: String,
        /// Which kind.
        what: String,
    },
    /// A folder without captures.
    #[error("no captures in {}: a simulated run makes them with `--trace NAME`", .0.display())]
    NoCapture(PathBuf),
    /// A folder with several, of which one must be named.
    #[error("several captures in {}: name one of {}", .folder.display(), .names.join(", "))]
    Several {
        /// Where.
        folder: PathBuf,
        /// Their names.
        names: Vec<String>,
    },
    /// What the system or the file says.
    #[error("{name}: {error}")]
    Io {
        /// The interface or file.
        name: String,
        /// What is wrong.
        error: io::Error,
    },
}

/// What a look for frames gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looked {
    /// There were some; perhaps there are more.
    Some,
    /// None just now.
    None,
    /// There will be no more.
    End,
}

impl Source {
    /// Opens an interface, if there is one of that name, else a capture file, or a run's folder or `record.json` with a
    /// capture beside it. `buffer`: octets of the ring of an interface.
    ///
    /// # Errors
    /// [`NoSource`].
    pub fn open(name: &str, buffer: usize) -> Result<Source, NoSource> {
        if trunkline_io::packet::exists(name) {
            return Live::open(name, buffer).map(Source::Live);
        }
        let path = Path::new(name);
        let is_record = path.extension().is_some_and(|e| e == "json");
        let file = match path.metadata() {
            Ok(about) if about.is_dir() => capture_in(path)?,
            Ok(_) if is_record => capture_in(path.parent().unwrap_or(Path::new(".")))?,
            Ok(_) => path.to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(NoSource::Unknown(name.into())),
            Err(error) => return Err(NoSource::Io { name: name.into(), error }),
        };
        CaptureFile::open(&file).map(Source::File)
    }

    /// Hands frames that are there to the monitor: those of a block or, of a file, up to `most` or the end of a sample.
    ///
    /// # Errors
    /// A file that cannot be read on; what was read stays counted.
    pub fn look(&mut self, monitor: &mut Monitor, most: usize) -> io::Result<Looked> {
        match self {
            Source::Live(live) => Ok(live.look(monitor)),
            Source::File(file) => file.look(monitor, most),
        }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Source::Live(live) => live.name(),
            Source::File(file) => file.name(),
        }
    }
}

/// The capture of a run: the only one in its folder, or in that of its simulation.
fn capture_in(folder: &Path) -> Result<PathBuf, NoSource> {
    let simulated = folder.join("sim");
    let folder = if simulated.is_dir() { simulated.as_path() } else { folder };
    let io = |error| NoSource::Io { name: folder.display().to_string(), error };
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|e| e == "pcapng" || e == "pcap") {
            found.push(path);
        }
    }
    found.sort();
    match found.len() {
        0 => Err(NoSource::NoCapture(folder.into())),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Err(NoSource::Several { folder: folder.into(), names: found.iter().map(name).collect() })
        }
    }
}
