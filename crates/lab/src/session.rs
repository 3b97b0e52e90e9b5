//! Running labs of this user, so that another process can enter their hosts.
//!
//! A running lab has a file in the user's folder for such things, and holds its lock. The lock of a lab that has ended,
//! however it ended, is free, and its file is removed at the next look. The namespaces need no such care: they end with the
//! lab's process.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::laboratory::Lab;
use crate::namespace::mount_names;

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
    /// The descriptor of the namespace of its processes in that process.
    processes: i32,
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
        let _locked = lock(&folder)?;
        read_all(&folder)?; // removes the files of labs that were killed
        let hosts = lab.hosts().iter().map(|host| {
            let descriptor = host.namespace.as_fd().as_raw_fd();
            (host.name.clone(), RunningHost { address: host.address, descriptor })
        });
        let pid = std::process::id();
        let (path, names) = (folder.join(format!("{pid}.json")), folder.join(format!("{pid}.hosts")));
        fs::write(&names, host_file(lab))?;
        // Programs that are not this user's read it too.
        fs::set_permissions(&names, fs::Permissions::from_mode(0o644))?;
        let lab = RunningLab {
            names: names.clone(),
            name: name.to_owned(),
            pid,
            processes: lab.processes().descriptor(),
            hosts: hosts.collect(),
        };
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.lock()?;
        serde_json::to_writer(&file, &lab)?;
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
    let folder = folder()?;
    let _locked = lock(&folder)?;
    read_all(&folder)
}

/// Locks the folder, in which labs are added and removed one at a time, until the file is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    file.lock()?;
    Ok(file)
}

/// Reads the files of the labs that run now, and removes those of labs that have ended.
fn read_all(folder: &Path) -> io::Result<Vec<RunningLab>> {
    let mut labs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("json") => {}
            // Of a lab that was killed while it started.
            Some("hosts") if !path.with_extension("json").exists() => {
                let _ = fs::remove_file(&path);
                continue;
            }
            _ => continue,
        }
        let Ok(file) = File::open(&path) else { continue };
        match file.try_lock() {
            Ok(()) => {
                let _ = fs::remove_file(path.with_extension("hosts"));
                let _ = fs::remove_file(&path);
            }
            Err(TryLockError::WouldBlock) => labs.extend(read(&file)),
            Err(TryLockError::Error(error)) => return Err(error),
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
    /// Moves this thread, the only one of its process, to a host of the lab, and returns a command that runs a program there. What
    /// it starts ends with the lab, as the program does.
    ///
    /// # Errors
    /// If there is no such host, the lab has ended, or the system refuses.
    pub fn enter(&self, host: &str, program: &str) -> io::Result<Command> {
        let host = self.hosts.get(host).ok_or(io::ErrorKind::NotFound)?;
        let user = File::open(format!("/proc/{}/ns/user", self.pid))?;
        let open = |descriptor| File::open(format!("/proc/{}/fd/{descriptor}", self.pid));
        let (network, processes) = (open(host.descriptor)?, open(self.processes)?);
        if user.metadata()?.ino() != fs::metadata("/proc/self/ns/user")?.ino() {
            setns(user.as_fd(), CloneFlags::CLONE_NEWUSER)?;
        }
        setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
        // That of the processes that this one starts.
        setns(processes.as_fd(), CloneFlags::CLONE_NEWPID)?;
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure only makes a system call.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        mount_names(&mut command, &self.names)?;
        Ok(command)
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
