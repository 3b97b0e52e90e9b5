//! Network namespaces that only this process holds: they end with it, whatever ends it.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getegid, geteuid};
use thiserror::Error;

/// Kernel settings that forbid user namespaces to ordinary users, with the value that does: that of Ubuntu (AppArmor), that of
/// Debian, and the limit of every kernel.
const SETTINGS: [(&str, &str); 3] = [
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/user/max_user_namespaces", "0"),
];
/// The limit of network namespaces of a user.
const MAX_NETWORKS: &str = "/proc/sys/user/max_net_namespaces";

/// Why there is no namespace.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// The kernel refuses a user namespace.
    #[error("this user may not create network namespaces{}: {error}", forbidden_by(setting))]
    User {
        /// The setting that forbids it, if one is known to.
        setting: Option<String>,
        /// The system error.
        error: io::Error,
    },
    /// The kernel refuses a network namespace.
    #[error("cannot create a network namespace{}: {error}", forbidden_by(setting))]
    Network {
        /// The setting that forbids it, if one is known to.
        setting: Option<String>,
        /// The system error.
        error: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter a network namespace: {0}")]
    Enter(io::Error),
    /// A setting of a namespace.
    #[error("cannot set {setting} in a network namespace: {error}")]
    Setting {
        /// The setting and its value.
        setting: String,
        /// The system error.
        error: io::Error,
    },
}

fn forbidden_by(setting: &Option<String>) -> String {
    setting.as_ref().map(|setting| format!(" (the kernel forbids it: {setting})")).unwrap_or_default()
}

/// Moves this process to a new mount namespace, in which the file `names` is `/etc/hosts` and `/proc` shows the processes of its
/// process ID namespace. Makes system calls only.
pub(crate) fn set_mounts(names: &CStr) -> io::Result<()> {
    let none = None::<&CStr>;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    mount(Some(names), c"/etc/hosts", none, MsFlags::MS_BIND, none)?;
    // A container that hides parts of its /proc permits no other; programs see the numbers of all processes there.
    let _ = mount(Some(c"proc"), c"/proc", Some(c"proc"), MsFlags::empty(), none);
    Ok(())
}

/// Makes the file `names` the `/etc/hosts` of a command's program, and its `/proc` that of its process ID namespace.
///
/// # Errors
/// If the path has a zero byte.
pub(crate) fn mount_names(command: &mut Command, names: &Path) -> io::Result<()> {
    let names = CString::new(names.as_os_str().as_bytes())?;
    // SAFETY: between fork and exec the closure only makes system calls, with strings that it keeps.
    unsafe { command.pre_exec(move || set_mounts(&names)) };
    Ok(())
}

/// Writes a setting of the network namespace of this thread, for example `net/ipv4/tcp_rmem`.
///
/// # Errors
/// If the system refuses the name or the value.
pub(crate) fn set(name: &str, value: &str) -> Result<(), NamespaceError> {
    fs::write(format!("/proc/sys/{name}"), value)
        .map_err(|error| NamespaceError::Setting { setting: format!("{name} = {value}"), error })
}

/// Enters a user namespace in which an ordinary user may create network namespaces; root stays where it is. Call it before the
/// process has a second thread.
///
/// # Errors
/// If the kernel refuses, with the setting that forbids it if one of the known ones does; also if there are threads.
pub fn enter_user_namespace() -> Result<(), NamespaceError> {
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    let enter = || {
        unshare(CloneFlags::CLONE_NEWUSER)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))
    };
    enter().map_err(|error| NamespaceError::User { setting: forbidding_setting(read), error })
}

/// Returns the first setting that forbids user namespaces. `read` returns the value of one, if the kernel has it.
fn forbidding_setting(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_set = |(path, value): &&(&str, &str)| read(path).is_some_and(|text| text == *value);
    SETTINGS.iter().find(is_set).map(|(path, value)| format!("{path} is {value}"))
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Describes why there is no network namespace. AppArmor lets a user namespace be created and then forbids what it is for.
fn network_error(error: io::Error) -> NamespaceError {
    let setting = match error.raw_os_error() {
        Some(libc::EPERM) if !is_first_user_namespace() => forbidding_setting(read),
        // Of this user namespace or of one around it, whose value cannot be read here.
        Some(libc::ENOSPC) => Some(format!("the limit {MAX_NETWORKS} is reached")),
        _ => None,
    };
    NamespaceError::Network { setting, error }
}

/// Whether this process is in the user namespace of the machine, whose map has all users.
fn is_first_user_namespace() -> bool {
    read("/proc/self/uid_map").is_some_and(|map| map.ends_with("4294967295"))
}

/// A network namespace, without a name and without a file. It ends when this is dropped and its last process has ended.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
}

impl Namespace {
    /// Creates a namespace whose loopback interface is up. Needs root, or [`enter_user_namespace`] before.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> Result<Namespace, NamespaceError> {
        Namespace::with(|| ()).map(|(namespace, ())| namespace)
    }

    /// Creates a namespace as [`Namespace::new`] does, and runs a function on a thread in it.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn with<T: Send>(set_up: impl FnOnce() -> T + Send) -> Result<(Namespace, T), NamespaceError> {
        // Only this thread enters the new namespace.
        let create = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            trunkline_io::tun::bring_up("lo")?;
            let file = File::open("/proc/thread-self/ns/net")?;
            Ok((Namespace { file: Arc::new(file) }, set_up()))
        };
        let created = thread::scope(|scope| scope.spawn(create).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        created.map_err(network_error)
    }

    /// Runs a function on a thread in the namespace. What it opens stays in the namespace.
    ///
    /// # Errors
    /// If the thread cannot enter the namespace, or of the function.
    pub fn run<T: Send>(&self, function: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let inside = || {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            function()
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Writes a setting of the namespace, for example `net/ipv4/tcp_rmem`.
    ///
    /// # Errors
    /// If the system refuses the name or the value.
    pub fn set(&self, name: &str, value: &str) -> Result<(), NamespaceError> {
        let set = self.run(|| Ok(set(name, value)));
        set.unwrap_or_else(|error| Err(NamespaceError::Enter(error)))
    }

    /// Returns a command that runs a program in the namespace. The program is killed when the thread that starts it ends; what it
    /// starts itself is not.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // SAFETY: between fork and exec the closure only makes a system call.
        unsafe { command.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        self.enter(&mut command);
        command
    }

    /// Makes the program of a command run in the namespace.
    pub(crate) fn enter(&self, command: &mut Command) {
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec the closure only makes a system call, with a descriptor that it keeps open.
        unsafe { command.pre_exec(move || Ok(setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?)) };
    }

    /// Returns the descriptor that holds the namespace.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the number of the namespace in the kernel (its inode).
    ///
    /// # Errors
    /// System errors.
    pub fn number(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named() {
        let forbidding = |values: &[(&str, &str)]| {
            forbidding_setting(|path| {
                let found = values.iter().find(|(name, _)| path.ends_with(name));
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let apparmor = "apparmor_restrict_unprivileged_userns";
        assert_eq!(forbidding(&[]), None);
        assert_eq!(forbidding(&[(apparmor, "0"), ("max_user_namespaces", "96365")]), None);
        for (name, value, path) in [
            (apparmor, "1", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns is 1"),
            ("unprivileged_userns_clone", "0", "/proc/sys/kernel/unprivileged_userns_clone is 0"),
            ("max_user_namespaces", "0", "/proc/sys/user/max_user_namespaces is 0"),
        ] {
            assert_eq!(forbidding(&[(name, value)]).as_deref(), Some(path));
        }
    }
}
