//! The directory with the own key and the list of peers.
//!
//! | file | contents |
//! | --- | --- |
//! | `key.pem` | the own key, PKCS#8 in PEM |
//! | `peers.json` | the list of peers |
//! | `lock` | locked while a file is changed; empty |
//! | `agent.socket` | the [socket](crate::join_socket) of a running agent |
//!
//! The directory has mode 0700 and its files have mode 0600; anything else is refused. Files are replaced by renaming a
//! complete, synchronised file, so readers need no lock and a crash leaves the old or the new file. Writers of all
//! processes take turns with a file lock.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::unistd::geteuid;

use crate::fingerprint::Fingerprint;
use crate::identity::{Identity, IdentityError};
use crate::peers::{ChangeError, Name, ParseError, Peer, PeerList};

/// Maximum size of a file in octets.
pub const MAX_FILE: u64 = 1 << 20;

const KEY_FILE: &str = "key.pem";
const PEERS_FILE: &str = "peers.json";
const LOCK_FILE: &str = "lock";
/// Time that a writer waits for others. A change takes milliseconds; a request to an agent may take 10 s.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to lock.
const LOCK_INTERVAL: Duration = Duration::from_millis(5);
/// The prefix of files that are not complete yet.
const TEMPORARY: &str = ".new-";

/// Why the key store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the operating system.
    #[error("cannot {action} {}: {reason}", .path.display())]
    System {
        /// What failed: `read`, `write`, …
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason given by the system.
        reason: io::Error,
    },
    /// It is not a directory or not a regular file.
    #[error("{} is not a {expected}", .path.display())]
    WrongType {
        /// The path.
        path: PathBuf,
        /// `directory` or `regular file`.
        expected: &'static str,
    },
    /// Other users have access.
    #[error("other users have access to {path} (mode {mode:04o}): run chmod {required:04o} {path}", path = .path.display())]
    WrongMode {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The mode that it must have.
        required: u32,
    },
    /// Another user owns it.
    #[error("{} belongs to another user (user id {owner})", .path.display())]
    WrongOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file is too large.
    #[error("{} is damaged: larger than {MAX_FILE} octets", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The own key is damaged.
    #[error("{} is damaged: {reason}", .path.display())]
    DamagedKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: IdentityError,
    },
    /// The list of peers is damaged.
    #[error("{} is damaged: {reason}", .path.display())]
    DamagedList {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: ParseError,
    },
    /// Another process is changing the key store, or was stopped while it did.
    #[error("another process has locked {} for {} s: end it or try again", .path.display(), LOCK_TIMEOUT.as_secs())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// No key can be generated.
    #[error(transparent)]
    Generate(IdentityError),
    /// The change is not possible.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

/// What identifies a state of the list of peers without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileVersion {
    /// Returns whether the file last changed at least two seconds before `now`. A younger file could change again
    /// without a visible difference, because file systems have coarse clocks and reuse inodes.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let newest = self.modified.0.max(self.changed.0);
        newest.saturating_add(2) <= now.as_second()
    }
}

/// A directory with keys.
#[derive(Clone, Debug)]
pub struct KeyStore {
    directory: PathBuf,
}

impl KeyStore {
    /// Opens a key store; creates the directory and its parents if there is none.
    pub fn open(directory: &Path) -> Result<KeyStore, Error> {
        let created = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        match created {
            // A file in its place is reported below.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(system("create", directory)(error));
            }
            _ => {}
        }
        let metadata = fs::metadata(directory).map_err(system("read", directory))?;
        if !metadata.is_dir() {
            return Err(Error::WrongType { path: directory.into(), expected: "directory" });
        }
        check_access(directory, &metadata, 0o700)?;
        Ok(KeyStore { directory: directory.into() })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the own key; generates it if there is none.
    pub fn identity(&self) -> Result<Identity, Error> {
        if let Some(identity) = self.read_identity()? {
            return Ok(identity);
        }
        let _lock = self.lock()?;
        // Another process may have generated it in the meantime.
        if let Some(identity) = self.read_identity()? {
            return Ok(identity);
        }
        let identity = Identity::generate().map_err(Error::Generate)?;
        self.replace(KEY_FILE, identity.to_pem().as_bytes())?;
        Ok(identity)
    }

    fn read_identity(&self) -> Result<Option<Identity>, Error> {
        let Some((text, _)) = self.read(KEY_FILE)? else { return Ok(None) };
        let damaged = |reason| Error::DamagedKey { path: self.directory.join(KEY_FILE), reason };
        Identity::from_pem(&text).map(Some).map_err(damaged)
    }

    /// Returns the list of peers.
    pub fn peers(&self) -> Result<PeerList, Error> {
        self.peers_with_version().map(|(peers, _)| peers)
    }

    /// Returns the list of peers and the version of its file.
    pub fn peers_with_version(&self) -> Result<(PeerList, Option<FileVersion>), Error> {
        let Some((text, version)) = self.read(PEERS_FILE)? else { return Ok((PeerList::default(), None)) };
        let damaged = |reason| Error::DamagedList { path: self.directory.join(PEERS_FILE), reason };
        PeerList::parse(&text).map(|peers| (peers, Some(version))).map_err(damaged)
    }

    /// Returns the version of the list of peers.
    pub fn peers_version(&self) -> Result<Option<FileVersion>, Error> {
        let path = self.directory.join(PEERS_FILE);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(version(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("read", &path)(error)),
        }
    }

    /// Adds a peer to the list ([`PeerList::add`]).
    pub fn add(&self, peer: Peer, now: Timestamp) -> Result<(), Error> {
        self.change(|peers| peers.add(peer, now))
    }

    /// Revokes every peer with this name and returns their keys ([`PeerList::revoke`]).
    pub fn revoke(&self, name: &Name, now: Timestamp) -> Result<Vec<Fingerprint>, Error> {
        self.change(|peers| peers.revoke(name, now))
    }

    fn change<T>(&self, change: impl FnOnce(&mut PeerList) -> Result<T, ChangeError>) -> Result<T, Error> {
        let _lock = self.lock()?;
        let mut peers = self.peers()?;
        let result = change(&mut peers)?;
        self.replace(PEERS_FILE, peers.to_json().as_bytes())?;
        Ok(result)
    }

    /// Waits up to [`LOCK_TIMEOUT`] for the lock, which is released when the file is dropped.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let path = self.directory.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(system("open", &path))?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(system("lock", &path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(Error::Locked { path });
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_INTERVAL),
            }
        }
    }

    /// Replaces a file, or creates it. The caller has the lock.
    fn replace(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        self.remove_unfinished();
        let path = self.directory.join(name);
        let error = || system("write", &path);
        // Temporary files have mode 0600.
        let temporary = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.directory);
        let mut temporary = temporary.map_err(error())?;
        temporary.write_all(contents).map_err(error())?;
        temporary.as_file().sync_all().map_err(error())?;
        temporary.persist(&path).map_err(|failed| error()(failed.error))?;
        // Without this the new name may be lost with the power.
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(error())
    }

    /// Removes files that another process left when it was killed. With the lock, no other process writes one. Failing
    /// is harmless.
    fn remove_unfinished(&self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Reads a file, or returns `None` if there is none.
    fn read(&self, name: &str) -> Result<Option<(Vec<u8>, FileVersion)>, Error> {
        let path = self.directory.join(name);
        // Opening a named pipe would block.
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(Error::WrongType { path, expected: "regular file" }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(system("read", &path)(error)),
        }
        let file = File::open(&path).map_err(system("read", &path))?;
        let metadata = file.metadata().map_err(system("read", &path))?;
        check_access(&path, &metadata, 0o600)?;
        let mut contents = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut contents).map_err(system("read", &path))?;
        if contents.len() as u64 > MAX_FILE {
            return Err(Error::TooLarge { path });
        }
        Ok(Some((contents, version(&metadata))))
    }
}

fn system(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |reason| Error::System { action, path: path.into(), reason }
}

fn version(metadata: &Metadata) -> FileVersion {
    FileVersion {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Returns an error if another user owns the file or has access to it.
fn check_access(path: &Path, metadata: &Metadata, required: u32) -> Result<(), Error> {
    let mode = metadata.mode() & 0o7777;
    if metadata.uid() != geteuid().as_raw() {
        return Err(Error::WrongOwner { path: path.into(), owner: metadata.uid() });
    }
    if mode & 0o077 != 0 {
        return Err(Error::WrongMode { path: path.into(), mode, required });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
