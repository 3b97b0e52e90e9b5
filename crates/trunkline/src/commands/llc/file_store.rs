//! The file service: stores files that are copied to a station.
//!
//! The received part of a file is stored in `.partial/` of the folder under the file's digest, so an interrupted copy
//! resumes and never mixes two files. When the digest of the whole matches, the file gets its name in one step. It
//! replaces another file only if that is allowed.

use std::cmp::Ordering;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use trunkline_llc::Address;
use trunkline_units::{Instant, Span};

use super::copy_protocol::{DIGEST, Request, Response};

/// Folder of incomplete files.
const PARTIAL: &str = ".partial";
/// Maximum number of simultaneous copies; a new one removes the one that has been idle longest.
const MAX_COPIES: usize = 64;
/// Idle time after which another station may continue a copy.
const IDLE_TIME: Span = Span::from_s(30);

/// A folder for files.
pub struct FileStore {
    folder: PathBuf,
    largest: u64,
    may_replace: bool,
    copies: Vec<Copy>,
}

/// A copy in progress or done.
struct Copy {
    from: Address,
    number: u32,
    name: String,
    size: u64,
    digest: [u8; DIGEST],
    force: bool,
    /// `None` if the file is complete.
    part: Option<File>,
    at: u64,
    active: Instant,
}

/// The result of a message.
#[derive(Debug, Default)]
pub struct Reply {
    /// The reply to the sender.
    pub answer: Vec<u8>,
    /// The name and size of a completed file.
    pub stored: Option<(String, u64)>,
    /// The reason for a refusal.
    pub refused: Option<String>,
}

impl FileStore {
    /// Opens a folder, creating it if necessary.
    pub fn new(folder: &Path, largest: u64, may_replace: bool) -> io::Result<FileStore> {
        fs::create_dir_all(folder.join(PARTIAL))?;
        Ok(FileStore { folder: folder.into(), largest, may_replace, copies: Vec::new() })
    }

    /// Handles a message.
    pub fn handle(&mut self, now: Instant, from: Address, message: &[u8]) -> Reply {
        let mut reply = Reply::default();
        let Some(request) = Request::read(message) else { return reply };
        let copy = request.copy();
        let known = self.copies.iter_mut().find(|known| known.from == from && known.number == copy);
        let done = match (request, known) {
            (Request::Offer { force, size, digest, name, .. }, _) => {
                let (number, name) = (copy, name.into());
                let (part, at, active) = (None, 0, now);
                self.offer(now, Copy { from, number, name, size, digest, force, part, at, active })
            }
            (_, None) => Ok(Outcome::Unknown),
            (Request::Data { at, bytes, .. }, Some(known)) => known.append(now, at, bytes),
            (Request::End { .. }, Some(known)) => known.end(now, &self.folder),
        };
        let response = match done {
            Ok(Outcome::Nothing) => return reply,
            Ok(Outcome::Unknown) => Response::Unknown { copy },
            Ok(Outcome::From(at)) => Response::From { copy, at },
            Ok(Outcome::Complete(stored)) => {
                reply.stored = stored;
                Response::Done { copy }
            }
            Err(reason) => {
                self.copies.retain(|other| other.from != from || other.number != copy);
                Response::Refused { copy, why: reply.refused.insert(reason) }
            }
        };
        reply.answer = response.encode();
        reply
    }

    fn offer(&mut self, now: Instant, mut copy: Copy) -> Result<Outcome, String> {
        let name = check_name(&copy.name)?.to_owned();
        if copy.size > self.largest {
            return Err(format!("{name}: larger than {} octets", self.largest));
        }
        if copy.force && !self.may_replace {
            return Err(format!("{name}: this station does not replace files"));
        }
        let rival = |other: &Copy| {
            let same = other.digest == copy.digest && other.from != copy.from && other.part.is_some();
            same && now.since(other.active) < IDLE_TIME
        };
        if let Some(rival) = self.copies.iter().find(|other| rival(other)) {
            return Err(format!("{name}: station {} is copying this file", rival.from.station));
        }
        // A station copies one file at a time from one SAP.
        self.copies
            .retain(|other| other.from != copy.from && (other.digest != copy.digest || other.part.is_none()));
        if self.copies.len() >= MAX_COPIES
            && let Some(oldest) = (0..self.copies.len()).min_by_key(|at| self.copies[*at].active)
        {
            self.copies.remove(oldest);
        }
        match self.existing(&copy).map_err(|e| io_message(&name, &e))? {
            Some(true) => {
                self.copies.push(copy);
                return Ok(Outcome::Complete(None));
            }
            Some(false) if !copy.force => return Err(format!("{name}: another file of this name exists")),
            _ => {}
        }
        let (part, at) = open_part(&part_path(&self.folder, &copy.digest), copy.size)
            .map_err(|e| io_message(&name, &e))?;
        (copy.part, copy.at) = (Some(part), at);
        self.copies.push(copy);
        Ok(Outcome::From(at))
    }

    /// Returns whether a file of this name exists with the same content.
    fn existing(&self, copy: &Copy) -> io::Result<Option<bool>> {
        let path = self.folder.join(&copy.name);
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if !metadata.is_file() || metadata.len() != copy.size {
            return Ok(Some(false));
        }
        Ok(Some(digest(&mut File::open(&path)?)? == copy.digest))
    }
}

impl Copy {
    /// Appends the octets at an offset.
    fn append(&mut self, now: Instant, at: u64, bytes: &[u8]) -> Result<Outcome, String> {
        self.active = now;
        let Some(part) = &mut self.part else { return Ok(Outcome::Complete(None)) };
        match at.cmp(&self.at) {
            Ordering::Greater => return Ok(Outcome::From(self.at)),
            Ordering::Less => return Ok(Outcome::Nothing),
            Ordering::Equal => {}
        }
        if self.size - self.at < bytes.len() as u64 {
            return Err(format!("{}: more octets than offered", self.name));
        }
        part.write_all(bytes).map_err(|e| io_message(&self.name, &e))?;
        self.at += bytes.len() as u64;
        Ok(Outcome::Nothing)
    }

    /// Checks the whole file and gives it its name.
    fn end(&mut self, now: Instant, folder: &Path) -> Result<Outcome, String> {
        self.active = now;
        let Some(part) = &mut self.part else { return Ok(Outcome::Complete(None)) };
        if self.at < self.size {
            return Ok(Outcome::From(self.at));
        }
        let name = &self.name;
        let fail = |e: io::Error| io_message(name, &e);
        let path = part_path(folder, &self.digest);
        if digest(part).map_err(fail)? != self.digest {
            // Resuming would yield the same digest.
            let _ = fs::remove_file(&path);
            return Err(format!(
                "{name}: the received file has a wrong digest and is deleted; copy it again"
            ));
        }
        part.sync_all().map_err(fail)?;
        let target = folder.join(name);
        if self.force {
            fs::rename(&path, &target).map_err(fail)?;
        } else {
            // `hard_link` fails if the target exists; a rename would replace it.
            fs::hard_link(&path, &target).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => format!("{name}: another file of this name exists"),
                _ => fail(e),
            })?;
            let _ = fs::remove_file(&path);
        }
        self.part = None;
        Ok(Outcome::Complete(Some((name.clone(), self.size))))
    }
}

/// The outcome of a message.
enum Outcome {
    /// No reply.
    Nothing,
    /// The copy must be offered.
    Unknown,
    /// Continue from this offset.
    From(u64),
    /// The file is complete; its name and size unless it already was.
    Complete(Option<(String, u64)>),
}

/// Returns the path of an incomplete file.
fn part_path(folder: &Path, digest: &[u8; DIGEST]) -> PathBuf {
    let hex: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    folder.join(PARTIAL).join(hex)
}

/// Checks that a name has no path.
fn check_name(name: &str) -> Result<&str, String> {
    let bad = matches!(name, "" | "." | ".." | PARTIAL) || name.chars().any(|c| c == '/' || c.is_control());
    if bad { Err(format!("{name:?} is not a valid file name")) } else { Ok(name) }
}

fn io_message(name: &str, e: &io::Error) -> String {
    format!("{name}: {e}")
}

/// Opens an incomplete file for appending; returns it with its length.
fn open_part(path: &Path, size: u64) -> io::Result<(File, u64)> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(io::Error::other("the partial file is not a regular file"));
    }
    let mut part = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    let mut at = part.metadata()?.len();
    if at > size {
        part.set_len(0)?;
        at = 0;
    }
    part.seek(SeekFrom::Start(at))?;
    Ok((part, at))
}

/// Returns the digest of a whole file, and leaves the position at its end.
pub fn digest(file: &mut File) -> io::Result<[u8; DIGEST]> {
    let (mut sum, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    file.seek(SeekFrom::Start(0))?;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(sum.finalize().into()),
            Ok(got) => sum.update(&buffer[..got]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Address = Address { sap: 124, station: 1 };

    fn offer(number: u32, name: &str, bytes: &[u8], force: bool) -> Vec<u8> {
        let (digest, size) = (Sha256::digest(bytes).into(), bytes.len() as u64);
        Request::Offer { copy: number, force, size, digest, name }.encode()
    }

    /// Handles a message of [`ME`].
    fn reply_of(store: &mut FileStore, message: &[u8]) -> Reply {
        store.handle(Instant::ZERO, ME, message)
    }

    fn response(reply: &Reply) -> Option<Response<'_>> {
        Response::read(&reply.answer)
    }

    #[test]
    fn names_stay_in_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::new(dir.path(), 100, true).unwrap();
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "a\nb", ".partial"] {
            let reply = reply_of(&mut store, &offer(1, name, b"x", true));
            assert!(
                matches!(response(&reply), Some(Response::Refused { copy: 1, .. })),
                "{name:?}: {reply:?}"
            );
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the folder of parts");
        let reply = reply_of(&mut store, &offer(1, "large", &[0; 101], false));
        assert!(reply.refused.unwrap().contains("larger"));
    }

    #[test]
    fn an_interrupted_copy_resumes() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = b"some octets of a file";
        let mut store = FileStore::new(dir.path(), 100, false).unwrap();
        let first = offer(1, "file", bytes, false);
        assert_eq!(response(&reply_of(&mut store, &first)), Some(Response::From { copy: 1, at: 0 }));
        let part = Request::Data { copy: 1, at: 0, bytes: &bytes[..8] }.encode();
        assert_eq!(response(&reply_of(&mut store, &part)), None);
        // A repeated part has no effect, and a gap is reported.
        assert_eq!(response(&reply_of(&mut store, &part)), None);
        let gap = Request::Data { copy: 1, at: 9, bytes: &bytes[9..] }.encode();
        assert_eq!(response(&reply_of(&mut store, &gap)), Some(Response::From { copy: 1, at: 8 }));
        // After a restart the copy is unknown and must be offered again.
        let mut store = FileStore::new(dir.path(), 100, false).unwrap();
        assert_eq!(response(&reply_of(&mut store, &gap)), Some(Response::Unknown { copy: 1 }));
        let again = offer(2, "file", bytes, false);
        assert_eq!(response(&reply_of(&mut store, &again)), Some(Response::From { copy: 2, at: 8 }));
        // Another station may continue it only after this one has been idle for long.
        let other = Address { sap: 124, station: 9 };
        assert!(store.handle(Instant::ZERO, other, &offer(5, "file", bytes, false)).refused.is_some());
        let end = Request::End { copy: 2 }.encode();
        assert_eq!(response(&reply_of(&mut store, &end)), Some(Response::From { copy: 2, at: 8 }));
        reply_of(&mut store, &Request::Data { copy: 2, at: 8, bytes: &bytes[8..] }.encode());
        assert!(!dir.path().join("file").exists());
        let done = reply_of(&mut store, &end);
        assert_eq!((response(&done), done.stored.is_some()), (Some(Response::Done { copy: 2 }), true));
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), bytes);
        assert_eq!(fs::read_dir(dir.path().join(PARTIAL)).unwrap().count(), 0);
        // The reply may have been lost: the same file may be offered again.
        assert_eq!(response(&reply_of(&mut store, &end)), Some(Response::Done { copy: 2 }));
        let third = reply_of(&mut store, &offer(3, "file", bytes, false));
        assert_eq!(response(&third), Some(Response::Done { copy: 3 }));
    }

    #[test]
    fn nothing_is_replaced_without_permission_and_no_wrong_file_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "old").unwrap();
        let mut store = FileStore::new(dir.path(), 100, false).unwrap();
        assert!(reply_of(&mut store, &offer(1, "file", b"new", false)).refused.is_some());
        assert!(reply_of(&mut store, &offer(1, "file", b"new", true)).refused.is_some());
        let mut store = FileStore::new(dir.path(), 100, true).unwrap();
        for (number, sent, is) in [(2, b"nex", "old"), (3, b"new", "new")] {
            reply_of(&mut store, &offer(number, "file", b"new", true));
            reply_of(&mut store, &Request::Data { copy: number, at: 0, bytes: sent }.encode());
            let reply = reply_of(&mut store, &Request::End { copy: number }.encode());
            assert_eq!(reply.stored.is_some(), is == "new", "{reply:?}");
            assert_eq!(fs::read_to_string(dir.path().join("file")).unwrap(), is);
        }
        // A file that appears in the meantime is not replaced.
        let mut store = FileStore::new(dir.path(), 100, false).unwrap();
        reply_of(&mut store, &offer(4, "late", b"mine", false));
        reply_of(&mut store, &Request::Data { copy: 4, at: 0, bytes: b"mine" }.encode());
        fs::write(dir.path().join("late"), "theirs").unwrap();
        assert!(reply_of(&mut store, &Request::End { copy: 4 }.encode()).refused.is_some());
        assert_eq!(fs::read_to_string(dir.path().join("late")).unwrap(), "theirs");
        let more = reply_of(&mut store, &offer(5, "more", b"1", false));
        assert_eq!(response(&more), Some(Response::From { copy: 5, at: 0 }));
        assert!(
            reply_of(&mut store, &Request::Data { copy: 5, at: 0, bytes: b"12" }.encode()).refused.is_some()
        );
    }

    #[test]
    fn the_number_of_copies_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::new(dir.path(), 100, false).unwrap();
        for station in 1..=200 {
            let from = Address { sap: 124, station };
            let now = Instant::from_ns(u64::from(station));
            assert!(store.handle(now, from, &offer(1, "file", &[station], false)).refused.is_none());
            assert!(store.copies.len() <= MAX_COPIES);
        }
    }
}
