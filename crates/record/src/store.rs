//! Records as files: `DIR/BACKEND/record.json`.

use std::fs::{self, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use serde::Deserialize;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::schema::{Record, VERSION};

/// The file's name.
const NAME: &str = "record.json";

/// Bytes reserved on disk before a run: a record without its series fits many times over.
const RESERVED: i64 = 1 << 20;

/// Why a record could not be written or read. Each says which file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder or the file could not be made, before anything was run.
    #[error("cannot prepare {}: {source}", path.display())]
    Prepare {
        /// The folder or file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The record could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The disk is full. The record stands at `path`, marked partial, without series and curves.
    #[error("the disk is full: {} holds the record without its series and curves", path.display())]
    Thinned {
        /// The file.
        path: PathBuf,
    },
    /// The record could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A folder without a record in it.
    #[error("no {NAME} in {} or in a folder inside it", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// The file is not a record.
    #[error("{} is not a record: {source}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The record was written by a later program.
    #[error("{} is a record of version {found}; this program reads up to version {VERSION}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// A place for a record, reserved before the run that will fill it.
///
/// Dropped without [`commit`](RecordFile::commit), it leaves an earlier record of the same place as it was.
#[derive(Debug)]
pub struct RecordFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl RecordFile {
    /// Makes `dir/backend` where needed and takes 1 MiB of disk there, so that a disk that fills during the run
    /// cannot lose what was measured.
    pub fn reserve(dir: &Path, backend: &str) -> Result<RecordFile, StoreError> {
        let folder = dir.join(backend);
        let prepare = |source| StoreError::Prepare { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(prepare)?;
        let file = tempfile::Builder::new()
            .prefix(".record-")
            .suffix(".part")
            .permissions(Permissions::from_mode(0o666)) // less the umask: results are there to be read
            .tempfile_in(&folder)
            .map_err(prepare)?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVED) {
            // A file system that cannot reserve is no reason not to measure.
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
            Err(errno) => return Err(prepare(errno.into())),
        }
        Ok(RecordFile { file, path: folder.join(NAME) })
    }

    /// Where the record will stand.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record and puts it in its place in one step; gives its path. An earlier record there is replaced.
    ///
    /// On [`StoreError::Thinned`] a record stands there all the same.
    pub fn commit(mut self, record: &Record) -> Result<PathBuf, StoreError> {
        let path = self.path;
        let write = |source| StoreError::Write { path: path.clone(), source };
        let thinned = write_or_thin(self.file.as_file_mut(), record).map_err(write)?;
        let end = self.file.as_file_mut().stream_position().map_err(write)?;
        self.file.as_file().set_len(end).map_err(write)?;
        self.file.as_file().sync_all().map_err(write)?;
        self.file.persist(&path).map_err(|e| write(e.error))?;
        sync_folder(&path).map_err(write)?;
        if thinned { Err(StoreError::Thinned { path }) } else { Ok(path) }
    }
}

/// Writes over the reserved blocks; where they and the disk do not suffice, writes what matters most. Tells whether
/// it had to.
fn write_or_thin(out: &mut (impl Write + Seek), record: &Record) -> io::Result<bool> {
    match write_json(out, record) {
        Err(e) if e.kind() == io::ErrorKind::StorageFull => {
            out.seek(SeekFrom::Start(0))?;
            write_json(out, &thin(record))?;
            Ok(true)
        }
        other => other.map(|()| false),
    }
}

fn write_json(out: &mut impl Write, record: &Record) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// The record without what takes most room.
fn thin(record: &Record) -> Record {
    let mut thin = record.clone();
    thin.partial = true;
    thin.trouble.push("the disk is full: series and curves were left out".into());
    thin.links.iter_mut().for_each(|link| link.ends.clear());
    for c in &mut thin.connections {
        c.series.clear();
        c.asked.variables.iter_mut().for_each(|v| v.curve.clear());
        let own = [&mut c.delay_us, &mut c.rtt_us, &mut c.gap_us, &mut c.sent_gap_us, &mut c.late_us];
        let theirs = c.receivers.iter_mut().map(|r| &mut r.delay_us);
        own.into_iter().chain(theirs).flatten().for_each(|d| d.curve.clear());
    }
    thin
}

/// A rename is safe from a power cut only when its folder is on disk.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// The records at `path`: a file with a record or an array of records, a folder with a `record.json`, or a folder
/// of such folders (`DIR` of a run on several backends), then in order of their names. Never an empty list.
pub fn load(path: &Path) -> Result<Vec<Record>, StoreError> {
    if !path.is_dir() {
        return load_file(path);
    }
    if path.join(NAME).is_file() {
        return load_file(&path.join(NAME));
    }
    let read = |source| StoreError::Read { path: path.to_owned(), source };
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(read)?;
    let mut files: Vec<PathBuf> =
        entries.iter().map(|e| e.path().join(NAME)).filter(|f| f.is_file()).collect();
    files.sort();
    if files.is_empty() {
        return Err(StoreError::Missing { path: path.to_owned() });
    }
    files.iter().try_fold(Vec::new(), |mut records, file| {
        records.extend(load_file(file)?);
        Ok(records)
    })
}

fn load_file(path: &Path) -> Result<Vec<Record>, StoreError> {
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|mut f| f.read_to_string(&mut text))
        .map_err(|source| StoreError::Read { path: path.to_owned(), source })?;
    parse(&text).map_err(|e| match e {
        ParseError::Foreign(source) => StoreError::Foreign { path: path.to_owned(), source },
        ParseError::Newer(found) => StoreError::Newer { path: path.to_owned(), found },
    })
}

/// Why a text is not a record.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// It is something else.
    Foreign(serde_json::Error),
    /// It is of this later version.
    Newer(u64),
}

/// The records of a text: one, or an array of at least one.
pub(crate) fn parse(text: &str) -> Result<Vec<Record>, ParseError> {
    /// One or more.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Versions {
        Many(Vec<Version>),
        One(Version),
    }
    #[derive(Deserialize)]
    struct Version {
        version: Option<Value>,
    }
    // The version first: of a later record nothing else need make sense.
    let versions = match serde_json::from_str(text) {
        Ok(Versions::Many(many)) => many,
        Ok(Versions::One(one)) => vec![one],
        Err(_) => Vec::new(), // told better below
    };
    let newest = versions.iter().filter_map(|v| v.version.as_ref()?.as_u64()).max();
    if let Some(found) = newest.filter(|&v| v > u64::from(VERSION)) {
        return Err(ParseError::Newer(found));
    }
    let records: Vec<Record> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(ParseError::Foreign)?,
        false => vec![serde_json::from_str(text).map_err(ParseError::Foreign)?],
    };
    match records.is_empty() {
        true => Err(ParseError::Foreign(serde::de::Error::custom("an empty array"))),
        false => Ok(records),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::schema::{Connection, Point};

    fn record(backend: &str, points: usize) -> Record {
        let series = (0..points).map(|i| Point { t_s: i as f64, ..Point::default() }).collect();
        let c = Connection { name: "B-A".into(), lost: 3, series, ..Connection::default() };
        Record { backend: backend.into(), connections: vec![c], ..Record::default() }
    }

    #[test]
    fn what_is_committed_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let (live, sim) = (record("live", 3), record("sim", 3));
        let path = RecordFile::reserve(dir.path(), "live").unwrap().commit(&live).unwrap();
        RecordFile::reserve(dir.path(), "sim").unwrap().commit(&sim).unwrap();

        assert_eq!(load(&path).unwrap(), std::slice::from_ref(&live));
        assert_eq!(load(&dir.path().join("sim")).unwrap(), std::slice::from_ref(&sim));
        assert_eq!(load(dir.path()).unwrap(), [live.clone(), sim.clone()]);
        let exported = dir.path().join("both.json");
        fs::write(&exported, serde_json::to_string(&[&live, &sim]).unwrap()).unwrap();
        assert_eq!(load(&exported).unwrap(), [live, sim]);
    }

    #[test]
    fn room_is_taken_before_the_run_and_given_back_after() {
        let dir = tempfile::tempdir().unwrap();
        let place = RecordFile::reserve(dir.path(), "live").unwrap();
        assert_eq!(place.file.as_file().metadata().unwrap().len(), RESERVED as u64);
        assert!(!place.path().exists());
        let path = place.commit(&record("live", 1)).unwrap();
        assert!(path.metadata().unwrap().len() < 4096);
        // Nothing but the record is left, also when a reservation was for nothing.
        drop(RecordFile::reserve(dir.path(), "live").unwrap());
        assert_eq!(fs::read_dir(dir.path().join("live")).unwrap().count(), 1);
        assert_eq!(load(&path).unwrap(), [record("live", 1)]);
    }

    /// A disk of fixed size.
    struct Disk(Cursor<Vec<u8>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1 - self.0.position() as usize;
            match room.min(bytes.len()) {
                0 => Err(io::ErrorKind::StorageFull.into()),
                n => self.0.write(&bytes[..n]),
            }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    #[test]
    fn a_full_disk_keeps_what_was_measured() {
        let big = record("live", 1000);
        let mut disk = Disk(Cursor::default(), 4096);
        assert!(write_or_thin(&mut disk, &big).unwrap());
        let end = disk.0.position() as usize;
        let kept = parse(std::str::from_utf8(&disk.0.get_ref()[..end]).unwrap()).unwrap().remove(0);
        assert!(kept.partial && kept.connections[0].lost == 3 && kept.connections[0].series.is_empty());
        assert_eq!(kept.trouble, ["the disk is full: series and curves were left out"]);
        // No room at all is an error, and enough room is no trouble.
        assert!(write_or_thin(&mut Disk(Cursor::default(), 10), &big).is_err());
        assert!(!write_or_thin(&mut Disk(Cursor::default(), 1 << 20), &big).unwrap());
    }

    #[test]
    fn errors_say_the_path_and_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            (load(&path).unwrap_err().to_string(), path.display().to_string())
        };
        let (error, path) = at("a.json", "{}");
        assert_eq!(error, format!("{path} is not a record: missing field `version` at line 1 column 2"));
        let (error, path) = at("b.json", r#"{"version": 99, "connections": "somewhere else"}"#);
        assert_eq!(error, format!("{path} is a record of version 99; this program reads up to version 1"));
        let (error, path) = at("c.json", "[]");
        assert_eq!(error, format!("{path} is not a record: an empty array"));
        let (error, path) = at("d.json", "[{\"version\": 2}, {}]");
        assert_eq!(error, format!("{path} is a record of version 2; this program reads up to version 1"));

        let inside = dir.path().join("a.json");
        let error = RecordFile::reserve(&inside, "live").unwrap_err().to_string();
        assert_eq!(error, format!("cannot prepare {}/live: Not a directory (os error 20)", inside.display()));
        let empty = tempfile::tempdir().unwrap();
        let error = load(empty.path()).unwrap_err().to_string();
        assert_eq!(error, format!("no record.json in {} or in a folder inside it", empty.path().display()));
        assert!(load(&dir.path().join("none")).unwrap_err().to_string().ends_with("(os error 2)"));
    }
}
