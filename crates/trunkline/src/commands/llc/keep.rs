//! Who keeps files that are copied to a station.
//!
//! What has come of a file lies in `.partial/` of the folder, named by the file's digest, so that a copy goes on wherever
//! either end stopped, and never with the octets of another file. Only when the digest of the whole holds it gets its
//! name, in one step, and never in place of another unless that is allowed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use trunkline_llc::Address;
use trunkline_units::{Instant, Span};

use super::talk::{Asks, DIGEST, Says};

/// Where parts of files lie.
const PARTIAL: &str = ".partial";
/// Copies under way at once; of more, the one that has been quiet longest is left for later.
const MOST: usize = 64;
/// How long a copy must have been quiet until another station may go on with it.
const QUIET: Span = Span::from_s(30);

/// A folder for files.
pub struct Keeper {
    folder: PathBuf,
    largest: u64,
    may_replace: bool,
    copies: Vec<Copy>,
}

/// A copy under way, or done.
struct Copy {
    from: Address,
    number: u32,
    name: String,
    size: u64,
    digest: [u8; DIGEST],
    force: bool,
    /// None: the file is there.
    part: Option<File>,
    at: u64,
    active: Instant,
}

/// What is to be said of a message, and to the person who watches.
#[derive(Debug, Default)]
pub struct Said {
    /// The answer.
    pub answer: Vec<u8>,
    /// A file that is there now, and how large it is.
    pub kept: Option<(String, u64)>,
    /// Why one was refused.
    pub refused: Option<String>,
}

impl Keeper {
    /// Keeps files in a folder, which is made if it is not there.
    pub fn new(folder: &Path, largest: u64, may_replace: bool) -> io::Result<Keeper> {
        fs::create_dir_all(folder.join(PARTIAL))?;
        Ok(Keeper { folder: folder.into(), largest, may_replace, copies: Vec::new() })
    }

    /// What comes of a message.
    pub fn take(&mut self, now: Instant, from: Address, message: &[u8]) -> Said {
        let mut said = Said::default();
        let Some(asks) = Asks::read(message) else { return said };
        let (Asks::Offer { copy: number, .. } | Asks::Data { copy: number, .. } | Asks::End { copy: number }) =
            asks;
        let done = match asks {
            Asks::Offer { copy, force, size, digest, name } => self.offer(
                now,
                Copy {
                    from,
                    number: copy,
                    name: name.into(),
                    size,
                    digest,
                    force,
                    part: None,
                    at: 0,
                    active: now,
                },
            ),
            Asks::Data { at, bytes, .. } => self.data(now, from, number, at, bytes),
            Asks::End { .. } => self.end(now, from, number),
        };
        match done {
            Ok(Came::Nothing) => {}
            Ok(Came::Unknown) => Says::Unknown { copy: number }.write(&mut said.answer),
            Ok(Came::From(at)) => Says::From { copy: number, at }.write(&mut said.answer),
            Ok(Came::Kept(name, size)) => {
                Says::Done { copy: number }.write(&mut said.answer);
                said.kept = Some((name, size));
            }
            Ok(Came::There) => Says::Done { copy: number }.write(&mut said.answer),
            Err(why) => {
                self.copies.retain(|copy| copy.from != from || copy.number != number);
                Says::Refused { copy: number, why: &why }.write(&mut said.answer);
                said.refused = Some(why);
            }
        }
        said
    }

    fn offer(&mut self, now: Instant, mut copy: Copy) -> Result<Came, String> {
        let name = checked(&copy.name)?.to_owned();
        if copy.size > self.largest {
            return Err(format!("{name}: larger than the {} octets that are taken", self.largest));
        }
        if copy.force && !self.may_replace {
            return Err(format!("{name}: this station lets nobody replace files"));
        }
        let rival = |other: &Copy| {
            let same = other.digest == copy.digest && other.from != copy.from && other.part.is_some();
            same && now.since(other.active) < QUIET
        };
        if let Some(rival) = self.copies.iter().find(|other| rival(other)) {
            return Err(format!("{name}: station {} is copying it just now", rival.from.station));
        }
        // A station copies one file at a time from one SAP.
        self.copies
            .retain(|other| other.from != copy.from && (other.digest != copy.digest || other.part.is_none()));
        if self.copies.len() >= MOST
            && let Some(oldest) = (0..self.copies.len()).min_by_key(|at| self.copies[*at].active)
        {
            self.copies.remove(oldest);
        }
        match self.there(&copy).map_err(|e| told(&name, &e))? {
            Some(true) => {
                self.copies.push(copy);
                return Ok(Came::There);
            }
            Some(false) if !copy.force => return Err(format!("{name}: another file of this name is there")),
            _ => {}
        }
        let (part, at) = open_part(&self.part(&copy.digest), copy.size).map_err(|e| told(&name, &e))?;
        (copy.part, copy.at) = (Some(part), at);
        self.copies.push(copy);
        Ok(Came::From(at))
    }

    fn data(
        &mut self,
        now: Instant,
        from: Address,
        number: u32,
        at: u64,
        bytes: &[u8],
    ) -> Result<Came, String> {
        let Some(copy) = self.copies.iter_mut().find(|copy| copy.from == from && copy.number == number)
        else {
            return Ok(Came::Unknown);
        };
        copy.active = now;
        let Some(part) = &mut copy.part else { return Ok(Came::There) };
        match at {
            at if at > copy.at => return Ok(Came::From(copy.at)),
            at if at < copy.at => return Ok(Came::Nothing),
            _ => {}
        }
        if copy.size - copy.at < bytes.len() as u64 {
            return Err(format!("{}: more octets than were offered", copy.name));
        }
        part.write_all(bytes).map_err(|e| told(&copy.name, &e))?;
        copy.at += bytes.len() as u64;
        Ok(Came::Nothing)
    }

    fn end(&mut self, now: Instant, from: Address, number: u32) -> Result<Came, String> {
        let Some(place) = self.copies.iter().position(|copy| copy.from == from && copy.number == number)
        else {
            return Ok(Came::Unknown);
        };
        let copy = &mut self.copies[place];
        copy.active = now;
        let Some(part) = &mut copy.part else { return Ok(Came::There) };
        if copy.at < copy.size {
            return Ok(Came::From(copy.at));
        }
        let name = copy.name.clone();
        let sound = sum(part).map_err(|e| told(&name, &e))? == copy.digest;
        let path = self.part(&self.copies[place].digest);
        if !sound {
            // It would be as wrong the next time.
            let _ = fs::remove_file(&path);
            return Err(format!("{name}: what came is not what was offered; it is forgotten, copy it again"));
        }
        let copy = &mut self.copies[place];
        if let Some(part) = &copy.part {
            part.sync_all().map_err(|e| told(&name, &e))?;
        }
        let target = self.folder.join(&name);
        if copy.force {
            fs::rename(&path, &target).map_err(|e| told(&name, &e))?;
        } else {
            // A link is made only where nothing is; a rename would replace it.
            fs::hard_link(&path, &target).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => format!("{name}: another file of this name is there"),
                _ => told(&name, &e),
            })?;
            let _ = fs::remove_file(&path);
        }
        copy.part = None;
        Ok(Came::Kept(name, copy.size))
    }

    fn part(&self, digest: &[u8; DIGEST]) -> PathBuf {
        let hex: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
        self.folder.join(PARTIAL).join(hex)
    }

    /// Whether a file of this name is there, and is the same.
    fn there(&self, copy: &Copy) -> io::Result<Option<bool>> {
        let path = self.folder.join(&copy.name);
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        if !about.is_file() || about.len() != copy.size {
            return Ok(Some(false));
        }
        Ok(Some(sum(&mut File::open(&path)?)? == copy.digest))
    }
}

/// What came of a message.
enum Came {
    Nothing,
    Unknown,
    From(u64),
    Kept(String, u64),
    There,
}

/// A name that stays in its folder.
fn checked(name: &str) -> Result<&str, String> {
    let bad = matches!(name, "" | "." | ".." | PARTIAL) || name.chars().any(|c| c == '/' || c.is_control());
    if bad { Err(format!("{name:?} is no name for a file")) } else { Ok(name) }
}

fn told(name: &str, e: &io::Error) -> String {
    format!("{name}: {e}")
}

/// What has come of a file, ready for more; and how much that is.
fn open_part(path: &Path, size: u64) -> io::Result<(File, u64)> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("what lies in the way of its parts is no file"));
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

/// The digest of a whole file; it then stands at its end.
pub fn sum(file: &mut File) -> io::Result<[u8; DIGEST]> {
    let (mut sum, mut room) = (Sha256::new(), vec![0; 1 << 16]);
    file.seek(SeekFrom::Start(0))?;
    loop {
        match file.read(&mut room) {
            Ok(0) => return Ok(sum.finalize().into()),
            Ok(got) => sum.update(&room[..got]),
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
        let mut message = Vec::new();
        Asks::Offer { copy: number, force, size, digest, name }.write(&mut message);
        message
    }

    fn message(asks: Asks<'_>) -> Vec<u8> {
        let mut message = Vec::new();
        asks.write(&mut message);
        message
    }

    fn says(said: &Said) -> Option<Says<'_>> {
        Says::read(&said.answer)
    }

    #[test]
    fn names_stay_in_their_folder() {
        let desk = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::new(desk.path(), 100, true).unwrap();
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b", "a\nb", ".partial"] {
            let said = keeper.take(Instant::ZERO, ME, &offer(1, name, b"x", true));
            assert!(matches!(says(&said), Some(Says::Refused { copy: 1, .. })), "{name:?}: {said:?}");
        }
        assert_eq!(fs::read_dir(desk.path()).unwrap().count(), 1, "only the folder of parts");
        let said = keeper.take(Instant::ZERO, ME, &offer(1, "large", &[0; 101], false));
        assert!(said.refused.unwrap().contains("larger"));
    }

    #[test]
    fn a_copy_goes_on_where_either_end_stopped() {
        let desk = tempfile::tempdir().unwrap();
        let bytes = b"some octets of a file";
        let mut keeper = Keeper::new(desk.path(), 100, false).unwrap();
        let first = offer(1, "file", bytes, false);
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &first)), Some(Says::From { copy: 1, at: 0 }));
        let part = message(Asks::Data { copy: 1, at: 0, bytes: &bytes[..8] });
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &part)), None);
        // Twice is once, and a gap is told.
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &part)), None);
        let gap = message(Asks::Data { copy: 1, at: 9, bytes: &bytes[9..] });
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &gap)), Some(Says::From { copy: 1, at: 8 }));
        // It begins anew and knows nothing; then it is offered again.
        let mut keeper = Keeper::new(desk.path(), 100, false).unwrap();
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &gap)), Some(Says::Unknown { copy: 1 }));
        let again = offer(2, "file", bytes, false);
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &again)), Some(Says::From { copy: 2, at: 8 }));
        // Another station may not write into it meanwhile, unless this one has long been quiet.
        let other = Address { sap: 124, station: 9 };
        assert!(keeper.take(Instant::ZERO, other, &offer(5, "file", bytes, false)).refused.is_some());
        let end = message(Asks::End { copy: 2 });
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &end)), Some(Says::From { copy: 2, at: 8 }));
        keeper.take(Instant::ZERO, ME, &message(Asks::Data { copy: 2, at: 8, bytes: &bytes[8..] }));
        assert!(!desk.path().join("file").exists());
        let done = keeper.take(Instant::ZERO, ME, &end);
        assert_eq!((says(&done), done.kept.is_some()), (Some(Says::Done { copy: 2 }), true));
        assert_eq!(fs::read(desk.path().join("file")).unwrap(), bytes);
        assert_eq!(fs::read_dir(desk.path().join(PARTIAL)).unwrap().count(), 0);
        // The answer may have been lost, and the same file may be offered again.
        assert_eq!(says(&keeper.take(Instant::ZERO, ME, &end)), Some(Says::Done { copy: 2 }));
        let third = keeper.take(Instant::ZERO, ME, &offer(3, "file", bytes, false));
        assert_eq!(says(&third), Some(Says::Done { copy: 3 }));
    }

    #[test]
    fn nothing_is_replaced_unasked_and_nothing_wrong_is_kept() {
        let desk = tempfile::tempdir().unwrap();
        fs::write(desk.path().join("file"), "old").unwrap();
        let mut keeper = Keeper::new(desk.path(), 100, false).unwrap();
        assert!(keeper.take(Instant::ZERO, ME, &offer(1, "file", b"new", false)).refused.is_some());
        assert!(keeper.take(Instant::ZERO, ME, &offer(1, "file", b"new", true)).refused.is_some());
        let mut keeper = Keeper::new(desk.path(), 100, true).unwrap();
        for (number, sent, is) in [(2, b"nex", "old"), (3, b"new", "new")] {
            keeper.take(Instant::ZERO, ME, &offer(number, "file", b"new", true));
            keeper.take(Instant::ZERO, ME, &message(Asks::Data { copy: number, at: 0, bytes: sent }));
            let said = keeper.take(Instant::ZERO, ME, &message(Asks::End { copy: number }));
            assert_eq!(said.kept.is_some(), is == "new", "{said:?}");
            assert_eq!(fs::read_to_string(desk.path().join("file")).unwrap(), is);
        }
        // One that appears meanwhile stays.
        let mut keeper = Keeper::new(desk.path(), 100, false).unwrap();
        keeper.take(Instant::ZERO, ME, &offer(4, "late", b"mine", false));
        keeper.take(Instant::ZERO, ME, &message(Asks::Data { copy: 4, at: 0, bytes: b"mine" }));
        fs::write(desk.path().join("late"), "theirs").unwrap();
        assert!(keeper.take(Instant::ZERO, ME, &message(Asks::End { copy: 4 })).refused.is_some());
        assert_eq!(fs::read_to_string(desk.path().join("late")).unwrap(), "theirs");
        let more = keeper.take(Instant::ZERO, ME, &offer(5, "more", b"1", false));
        assert_eq!(says(&more), Some(Says::From { copy: 5, at: 0 }));
        assert!(
            keeper
                .take(Instant::ZERO, ME, &message(Asks::Data { copy: 5, at: 0, bytes: b"12" }))
                .refused
                .is_some()
        );
    }

    #[test]
    fn copies_under_way_are_bounded() {
        let desk = tempfile::tempdir().unwrap();
        let mut keeper = Keeper::new(desk.path(), 100, false).unwrap();
        for station in 1..=200 {
            let from = Address { sap: 124, station };
            let now = Instant::from_ns(u64::from(station));
            assert!(keeper.take(now, from, &offer(1, "file", &[station], false)).refused.is_none());
            assert!(keeper.copies.len() <= MOST);
        }
    }
}
