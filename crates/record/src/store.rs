//! Records as files: `DIR/BACKEND/record.json`.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::schema::{Record, VERSION};

const FILE_NAME: &str = "record.json";

/// Bytes reserved on disk before a run; a record without its series is much smaller.
const RESERVED_BYTES: u64 = 1 << 20;

/// An error of a record file or its directory, which every variant names first.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory or the file could not be created before the run.
    #[error("cannot prepare {path}: {1}", path = .0.display())]
    Prepare(PathBuf, #[source] io::Error),
    /// The record could not be written.
    #[error("cannot write {path}: {1}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// The disk is full. The file holds the record, marked partial, without series and curves.
    #[error("the disk is full: {} holds the record without its series and curves", .0.display())]
    Reduced(PathBuf),
    /// The record could not be read.
    #[error("cannot read {path}: {1}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The directory contains no record.
    #[error("no {FILE_NAME} in {path} or in a folder inside it", path = .0.display())]
    Missing(PathBuf),
    /// The file is not a record.
    #[error("{path} is not a record: {1}", path = .0.display())]
    NotARecord(PathBuf, #[source] serde_json::Error),
    /// A later version of the program wrote the record, of which this is the version.
    #[error("{path} is a record of version {1}; this program reads up to version {VERSION}", path = .0.display())]
    VersionTooNew(PathBuf, u64),
}

/// A file for a record, reserved before the run.
///
/// If dropped without [`commit`](RecordFile::commit), an earlier record with the same path stays unchanged.
#[derive(Debug)]
pub struct RecordFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl RecordFile {
    /// Creates `dir/backend` if necessary and reserves 1 MiB of disk space, so that a disk that fills during the run
    /// does not lose the measurements.
    pub fn reserve(dir: &Path, backend: &str) -> Result<RecordFile, StoreError> {
        let folder = dir.join(backend);
        let prepare = |source| StoreError::Prepare(folder.clone(), source);
        fs::create_dir_all(&folder).map_err(prepare)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".record-").suffix(".part");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Minus the umask, so that other users can read results.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(&folder).map_err(prepare)?;
        allocate(file.as_file(), RESERVED_BYTES).map_err(prepare)?;
        Ok(RecordFile { file, path: folder.join(FILE_NAME) })
    }

    /// Returns the path of the record.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the record, replaces an earlier one atomically, and returns its path.
    ///
    /// With [`StoreError::Reduced`] a record is written as well.
    pub fn commit(mut self, record: &Record) -> Result<PathBuf, StoreError> {
        let path = self.path;
        let write = |source| StoreError::Write(path.clone(), source);
        let is_reduced = write_or_reduce(self.file.as_file_mut(), record).map_err(write)?;
        let end = self.file.as_file_mut().stream_position().map_err(write)?;
        self.file.as_file().set_len(end).map_err(write)?;
        self.file.as_file().sync_all().map_err(write)?;
        self.file.persist(&path).map_err(|e| write(e.error))?;
        sync_folder(&path).map_err(write)?;
        if is_reduced { Err(StoreError::Reduced(path)) } else { Ok(path) }
    }
}

/// Reserves space for a file, where the file system supports it.
#[cfg(target_os = "linux")]
fn allocate(file: &fs::File, bytes: u64) -> io::Result<()> {
    use nix::errno::Errno;
    use nix::fcntl::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes as i64) {
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets the length of a file: other systems reserve no space in a way that all their file systems have.
#[cfg(not(target_os = "linux"))]
fn allocate(file: &fs::File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)
}

/// Writes into the reserved blocks. If the disk is full, writes the record without series and curves and returns
/// true.
fn write_or_reduce(out: &mut (impl Write + Seek), record: &Record) -> io::Result<bool> {
    match write_json(out, record) {
        Err(e) if e.kind() == io::ErrorKind::StorageFull => {
            out.seek(SeekFrom::Start(0))?;
            write_json(out, &without_series(record))?;
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

/// Returns the record without its largest parts: every time series, and the curves of every distribution.
fn without_series(record: &Record) -> Record {
    let mut reduced = record.clone();
    reduced.partial = true;
    reduced.problems.push("the disk is full: series and curves were left out".into());
    reduced.interfaces.clear();
    reduced.links.iter_mut().for_each(|link| link.ends.clear());
    for c in &mut reduced.connections {
        c.series.clear();
        c.requested.variables.iter_mut().for_each(|v| v.curve.clear());
        let of_connection = [
            &mut c.delay_us,
            &mut c.rtt_us,
            &mut c.closed_loop_rtt_us,
            &mut c.gap_us,
            &mut c.sent_gap_us,
            &mut c.late_us,
        ];
        let of_receivers = c.receivers.iter_mut().map(|r| &mut r.delay_us);
        let distributions = of_connection.into_iter().chain(of_receivers).chain(c.stages_us.values_mut());
        distributions.flatten().for_each(|d| d.curve.clear());
    }
    reduced
}

/// A rename survives a power failure only if the directory is on disk; Windows cannot open one as a file.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().filter(|_| cfg!(unix)).map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

/// Reads the records at `path`: a file with a record or an array of records, a directory with a `record.json`, or a
/// directory of such directories (`DIR` of a run on several backends) in order of their names. The list is never
/// empty.
pub fn load(path: &Path) -> Result<Vec<Record>, StoreError> {
    if !path.is_dir() {
        return load_file(path);
    }
    if path.join(FILE_NAME).is_file() {
        return load_file(&path.join(FILE_NAME));
    }
    let read = |source| StoreError::Read(path.to_owned(), source);
    let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>).map_err(read)?;
    let mut files: Vec<PathBuf> =
        entries.iter().map(|e| e.path().join(FILE_NAME)).filter(|f| f.is_file()).collect();
    files.sort();
    if files.is_empty() {
        return Err(StoreError::Missing(path.to_owned()));
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
        .map_err(|source| StoreError::Read(path.to_owned(), source))?;
    parse(&text).map_err(|e| match e {
        ParseError::NotARecord(source) => StoreError::NotARecord(path.to_owned(), source),
        ParseError::VersionTooNew(found) => StoreError::VersionTooNew(path.to_owned(), found),
    })
}

/// Why a text is not a record.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The text is not a record.
    NotARecord(serde_json::Error),
    /// The record has this later version.
    VersionTooNew(u64),
}

/// Parses a text with one record or an array of at least one.
pub(crate) fn parse(text: &str) -> Result<Vec<Record>, ParseError> {
    /// One or more records.
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
    // Check the version first: the rest of a later record may be unreadable.
    let versions = match serde_json::from_str(text) {
        Ok(Versions::Many(many)) => many,
        Ok(Versions::One(one)) => vec![one],
        Err(_) => Vec::new(), // parsing the records below returns the better error
    };
    let highest = versions.iter().filter_map(|v| v.version.as_ref()?.as_u64()).max();
    if let Some(found) = highest.filter(|&v| v > u64::from(VERSION)) {
        return Err(ParseError::VersionTooNew(found));
    }
    let records: Vec<Record> = match text.trim_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(ParseError::NotARecord)?,
        false => vec![serde_json::from_str(text).map_err(ParseError::NotARecord)?],
    };
    match records.is_empty() {
        true => Err(ParseError::NotARecord(serde::de::Error::custom("an empty array"))),
        false => Ok(records),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::schema::{Connection, Distribution, Interface, Point};

    fn record(backend: &str, points: usize) -> Record {
        let series = (0..points).map(|i| Point { t_s: i as f64, ..Point::default() }).collect();
        let c = Connection { name: "B-A".into(), lost: 3, series, ..Connection::default() };
        Record { backend: backend.into(), connections: vec![c], ..Record::default() }
    }

    #[test]
    fn committed_records_can_be_loaded() {
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
    fn space_is_reserved_before_the_run_and_released_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let record_file = RecordFile::reserve(dir.path(), "live").unwrap();
        assert_eq!(record_file.file.as_file().metadata().unwrap().len(), RESERVED_BYTES);
        assert!(!record_file.path().exists());
        let path = record_file.commit(&record("live", 1)).unwrap();
        assert!(path.metadata().unwrap().len() < 4096);
        // Only the record remains, even after an unused reservation.
        drop(RecordFile::reserve(dir.path(), "live").unwrap());
        assert_eq!(fs::read_dir(dir.path().join("live")).unwrap().count(), 1);
        assert_eq!(load(&path).unwrap(), [record("live", 1)]);
    }

    /// A disk with a capacity in bytes.
    struct Disk(Cursor<Vec<u8>>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let free = self.1 - self.0.position() as usize;
            match free.min(bytes.len()) {
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
    fn on_a_full_disk_a_record_loses_only_series_and_curves() {
        let mut large = record("live", 1000);
        let stage = Distribution { p50: 2.5, curve: vec![(1.0, 2.5)], ..Distribution::default() };
        large.connections[0].stages_us = [("seal".to_owned(), Some(stage))].into();
        large.interfaces = vec![Interface { name: "lo".into(), counts: vec![(0.0, [0; 6])] }];
        let mut disk = Disk(Cursor::default(), 4096);
        assert!(write_or_reduce(&mut disk, &large).unwrap());
        let length = disk.0.position() as usize;
        let stored = parse(std::str::from_utf8(&disk.0.get_ref()[..length]).unwrap()).unwrap().remove(0);
        assert!(stored.partial && stored.connections[0].lost == 3 && stored.connections[0].series.is_empty());
        let stage = stored.connections[0].stages_us["seal"].as_ref().unwrap();
        assert!(stage.p50 == 2.5 && stage.curve.is_empty() && stored.interfaces.is_empty());
        assert_eq!(stored.problems, ["the disk is full: series and curves were left out"]);
        // Without any space, writing fails; with enough space, it succeeds.
        assert!(write_or_reduce(&mut Disk(Cursor::default(), 10), &large).is_err());
        assert!(!write_or_reduce(&mut Disk(Cursor::default(), 1 << 20), &large).unwrap());
    }

    #[test]
    fn errors_contain_the_path_and_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let load_text = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            (load(&path).unwrap_err().to_string(), path.display().to_string())
        };
        let (error, path) = load_text("a.json", "{}");
        assert_eq!(error, format!("{path} is not a record: missing field `version` at line 1 column 2"));
        let (error, path) = load_text("b.json", r#"{"version": 99, "connections": "somewhere else"}"#);
        assert_eq!(error, format!("{path} is a record of version 99; this program reads up to version 1"));
        let (error, path) = load_text("c.json", "[]");
        assert_eq!(error, format!("{path} is not a record: an empty array"));
        let (error, path) = load_text("d.json", "[{\"version\": 2}, {}]");
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
