//! Running labs of this user, so that another process can enter their hosts.
//!
//! A running lab has a file in the user's folder for such things, and holds its lock. The lock of a lab that has ended,
//! however it ended, is free, and its file is removed at the next look. The namespaces need no such care: they end with the
//! lab's process.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::laboratory::Lab;
use crate::namespace::set_names;

/// Longest file of a lab that is read, bytes.
const MAX_LENGTH: u64 = 16 << 20;

/// A lab that runs now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningLab {
    /// The file with the names and addresses of its hosts, in the format of `/etc/hosts`.
    names: PathBuf,
    /// The name of its experiment.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its hosts, by name.
    pub hosts: BTreeMap<String, RunningHost>,
}

/// A host of a running lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningHost {
    /// Its address.
    pub address: Ipv4Addr,
    /// The descriptor of its namespace in the lab's process.
    descriptor: i32,
}

/// Makes a lab known to other processes of the user until it is dropped.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    names: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl Session {
    /// Makes a running lab known.
    ///
    /// # Errors
    /// System errors, or if the folder belongs to another user.
    pub fn start(name: &str, lab: &Lab) -> io::Result<Session> {
        let folder = folder()?;
        running()?; // removes the files of labs that were killed
        let hosts = lab.hosts().iter().map(|host| {
            let descriptor = host.namespace.as_fd().as_raw_fd();
            (host.name.clone(), RunningHost { address: host.address, descriptor })
        });
        let pid = std::process::id();
        let (path, names) = (folder.join(format!("{pid}.json")), folder.join(format!("{pid}.hosts")));
        fs::write(&names, host_file(lab))?;
        // Programs that are not this user's read it too.
        fs::set_permissions(&names, fs::Permissions::from_mode(0o644))?;
        let lab = RunningLab { names: names.clone(), name: name.to_owned(), pid, hosts: hosts.collect() };
        // Others see the file when it is complete and locked; one that is not locked they remove.
        let new = path.with_extension("new");
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.lock()?;
        serde_json::to_writer(&file, &lab)?;
        fs::rename(&new, &path)?;
        Ok(Session { path, names, _file: file })
    }

    /// Returns the file with the names and addresses of the hosts, in the format of `/etc/hosts`.
    pub fn names(&self) -> &Path {
        &self.names
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next lab.
        let _ = fs::remove_file(&self.names);
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the labs of this user that run now, and removes the files of those that have ended.
///
/// # Errors
/// System errors, or if the folder belongs to another user.
pub fn running() -> io::Result<Vec<RunningLab>> {
    let mut labs = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json")
            && let Ok(file) = File::open(&path)
        {
            match file.try_lock() {
                Ok(()) => {
                    let _ = fs::remove_file(path.with_extension("hosts"));
                    let _ = fs::remove_file(&path);
                }
                Err(TryLockError::WouldBlock) => labs.extend(read(&file)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
    labs.sort_by_key(|lab: &RunningLab| lab.pid);
    Ok(labs)
}

/// Reads the file of a running lab; `None` for one of another version.
fn read(file: &File) -> Option<RunningLab> {
    serde_json::from_reader(io::Read::take(file, MAX_LENGTH)).ok()
}

impl RunningLab {
    /// Moves this thread, the only one of its process, to a host of the lab.
    ///
    /// # Errors
    /// If there is no such host, the lab has ended, or the system refuses.
    pub fn enter(&self, host: &str) -> io::Result<()> {
        let host = self.hosts.get(host).ok_or(io::ErrorKind::NotFound)?;
        let user = File::open(format!("/proc/{}/ns/user", self.pid))?;
        let network = File::open(format!("/proc/{}/fd/{}", self.pid, host.descriptor))?;
        if user.metadata()?.ino() != fs::metadata("/proc/self/ns/user")?.ino() {
            setns(user.as_fd(), CloneFlags::CLONE_NEWUSER)?;
        }
        setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
        set_names(&CString::new(self.names.as_os_str().as_bytes())?)
    }
}

/// Returns the names and addresses of the hosts of a lab in the format of `/etc/hosts`.
fn host_file(lab: &Lab) -> String {
    let hosts = lab.hosts().iter();
    let lines = hosts.map(|host| format!("{}\t{2}\n{}\t{2}\n", host.address, host.ipv6_address(), host.name));
    ["127.0.0.1\tlocalhost\n::1\tlocalhost\n".to_owned()].into_iter().chain(lines).collect()
}

/// Returns the folder of the user's running labs, and creates it.
fn folder() -> io::Result<PathBuf> {
    let user = user()?;
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = match runtime {
        Some(runtime) => runtime.join("trunkline-labs"),
        None => std::env::temp_dir().join(format!("trunkline-labs-{user}")),
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_owner(&folder)?,
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
    }
    Ok(folder)
}

/// Returns the user of this process outside a user namespace that a lab has entered.
fn user() -> io::Result<u32> {
    let map = fs::read_to_string("/proc/self/uid_map")?;
    let mut words = map.split_whitespace().map(str::parse::<u32>);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(0)), Some(Ok(outside)), Some(Ok(1))) => Ok(outside),
        _ => Ok(geteuid().as_raw()),
    }
}

fn check_owner(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
        let text = format!("{} is not a folder that only this user may use", folder.display());
        return Err(io::Error::other(text));
    }
    Ok(())
}
