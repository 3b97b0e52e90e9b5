//! Two network namespaces with a pair of virtual interfaces between them. Benches of several crates have it as a module of
//! theirs.
//!
//! The namespaces have no names: nothing but this process holds them, so they go when it does, whatever ends it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread::{self, Scope, ScopedJoinHandle};

use nix::sched::{CloneFlags, setns, unshare};

/// What the interface at either end is called.
pub const DEVICE: &str = "line";

/// Both ends.
pub struct Spaces([File; 2]);

impl Spaces {
    /// # Errors
    /// The system allows no namespaces, or a program is missing.
    pub fn new() -> Result<Spaces, String> {
        let spaces = Spaces([space()?, space()?]);
        let east = format!("/proc/{}/fd/{}", std::process::id(), spaces.0[1].as_raw_fd());
        // Nothing that the system says of itself shall cross.
        for end in 0..2 {
            spaces.run(end, "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")?;
        }
        spaces.run(0, &format!("ip link add {DEVICE} type veth peer name {DEVICE} netns {east}"))?;
        for end in 0..2 {
            spaces.run(end, &format!("ip link set {DEVICE} up"))?;
        }
        // What is sent before both are ready is lost.
        for end in 0..2 {
            let ready = format!("ip link show {DEVICE} | grep -q 'state UP' && exit 0");
            spaces.run(end, &format!("for try in $(seq 500); do {ready}; sleep 0.02; done; exit 1"))?;
        }
        Ok(spaces)
    }

    /// A thread at one end: its sockets, and those of threads that it starts, are there.
    pub fn spawn<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        end: usize,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        scope.spawn(move || {
            setns(&self.0[end], CloneFlags::CLONE_NEWNET).expect("a namespace of ours");
            work()
        })
    }

    /// What a shell says at one end; the devices of that end are in its `/sys`.
    ///
    /// # Errors
    /// What it says if it fails.
    pub fn run(&self, end: usize, script: &str) -> Result<String, String> {
        thread::scope(|scope| {
            let there = format!("mount -t sysfs sysfs /sys && {script}");
            let run = move || Command::new("unshare").args(["-m", "sh", "-ec", &there]).output();
            let out = self.spawn(scope, end, run).join().expect("a command").map_err(|e| e.to_string())?;
            match out.status.success() {
                true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
                false => Err(format!("{script}: {}", String::from_utf8_lossy(&out.stderr).trim())),
            }
        })
    }
}

/// A new namespace.
fn space() -> Result<File, String> {
    let new = || {
        unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from)?;
        File::open("/proc/thread-self/ns/net")
    };
    thread::scope(|scope| scope.spawn(new).join().expect("no panic")).map_err(|e| format!("a namespace: {e}"))
}
