//! The processes of a lab: they end with it, whatever ends it.
//!
//! They have a process ID namespace of their own (`pid_namespaces(7)`). When the first process of such a namespace ends, its init,
//! the kernel kills all others, also those that have left their parent and their session. Here init only reads from a pipe, whose
//! other end the lab holds, and ends when that is closed: with the lab's process at the latest.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

/// How long to wait for the end of all processes. The namespace of one that has ended, and for which its parent outside has not
/// waited, stays.
const END: Duration = Duration::from_secs(1);
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The process ID namespace of a lab. All processes in it are killed when the last clone is dropped or the lab's process ends.
#[derive(Clone, Debug)]
pub struct Processes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    init: Pid,
    /// `None` when init may end.
    pipe: Option<OwnedFd>,
    namespace: File,
}

impl Processes {
    /// Creates the namespace. Needs root, or [`enter_user_namespace`](crate::enter_user_namespace) before.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start() -> io::Result<Processes> {
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
        // The namespace is that of the children of one thread.
        let create = || {
            unshare(CloneFlags::CLONE_NEWPID)?;
            // SAFETY: the child only makes system calls and never returns.
            let init = match unsafe { fork() }? {
                ForkResult::Parent { child } => child,
                ForkResult::Child => init(theirs.as_raw_fd()),
            };
            Ok((init, File::open("/proc/thread-self/ns/pid_for_children")?))
        };
        let created: io::Result<_> = thread::scope(|scope| scope.spawn(create).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (init, namespace) = created?;
        Ok(Processes(Arc::new(Inner { init, pipe: Some(ours), namespace })))
    }

    /// Spawns a command in the namespace.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let spawn = || {
            setns(self.0.namespace.as_fd(), CloneFlags::CLONE_NEWPID)?;
            command.spawn()
        };
        thread::scope(|scope| scope.spawn(spawn).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the descriptor that holds the namespace.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.namespace.as_raw_fd()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pipe = None;
        let deadline = Instant::now() + END;
        // Init is gone when all others are.
        while let Ok(status) = waitpid(self.init, Some(WaitPidFlag::WNOHANG))
            && status.pid().is_none()
            && Instant::now() < deadline
        {
            thread::sleep(CHECK_INTERVAL);
        }
    }
}

/// The first process of the namespace: ends when the other end of the pipe is closed.
fn init(pipe: i32) -> ! {
    // SAFETY: these are system calls, and those with pointers have ones to live values. The process is a copy of one that may have had
    // other threads, so nothing here allocates or locks.
    unsafe {
        // What the lab has open must end with the lab, its interfaces and the other end of the pipe among them.
        if libc::dup2(pipe, 0) < 0 || libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) < 0 {
            libc::_exit(1);
        }
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        // Orphans become children of init, and leave no zombies.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::prctl(libc::PR_SET_NAME, c"lab-init".as_ptr());
        let mut byte = 0u8;
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && Errno::last() == Errno::EINTR {}
        libc::_exit(0)
    }
}
