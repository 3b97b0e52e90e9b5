//! Two namespaces joined by a pair of virtual interfaces, with the kernel's thread of either end on a processor of its own.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use trunkline_units::Span;

use crate::spaces::{DEVICE, Spaces};

/// The ends of the line; each is on the processor of its number.
pub const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// Whose precedence.
#[derive(Clone, Copy, Debug)]
pub enum Thread {
    /// The kernel's for the interface of an end.
    Kernel(usize),
    /// The one that asks.
    This,
}

/// The line. Its longest packets, MTU 1500, stay what they are, as on a wire.
pub struct Line {
    pub spaces: Spaces,
    /// The kernel's threads that take packets from the interfaces (threaded NAPI).
    napi: [u32; 2],
}

impl Line {
    /// # Errors
    /// The system allows no namespaces, a program is missing, or the kernel has no such threads.
    pub fn new() -> Result<Line, String> {
        let spaces = Spaces::new()?;
        let mut napi = [0; 2];
        for (end, ip) in ENDS.into_iter().enumerate() {
            spaces.run(
                end,
                &format!(
                    "ip link set lo up; ip address add {ip}/24 dev {DEVICE}; ip route add 224.0.0.0/4 dev {DEVICE}
                     ethtool -K {DEVICE} tso off gso off tx-udp-segmentation off >/dev/null 2>&1 || true
                     ethtool -K {DEVICE} gro on; echo 1 >/sys/class/net/{DEVICE}/threaded"
                ),
            )?;
            // The youngest of this name is the one that has just begun.
            let thread = napi_threads().max().filter(|pid| !napi.contains(pid));
            napi[end] = thread.ok_or("the kernel has no thread for an interface (threaded NAPI)")?;
            spaces.run(end, &format!("taskset -pc {end} {} >/dev/null", napi[end]))?;
        }
        Ok(Line { spaces, napi })
    }

    /// Has an interface wait so long before it says that something came (NAPI deferral), or not at all.
    pub fn wait(&self, end: usize, time: Span) {
        let (defers, timeout) = (if time.is_zero() { 0 } else { 50 }, time.as_ns());
        let set = format!(
            "cd /sys/class/net/{DEVICE}; echo {defers} >napi_defer_hard_irqs; echo {timeout} >gro_flush_timeout"
        );
        self.spaces.run(end, &set).expect("the interface waits as it is told");
    }

    /// Gives a thread, or that of the kernel for an end, precedence before all that has less (`SCHED_FIFO`).
    pub fn precede(&self, thread: Thread, precedence: u32) {
        let thread = match thread {
            Thread::Kernel(end) => self.napi[end],
            Thread::This => nix::unistd::gettid().as_raw() as u32,
        };
        let done = Command::new("chrt")
            .args(["-f", "-p"])
            .arg(precedence.to_string())
            .arg(thread.to_string())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "chrt gives precedence");
    }

    /// What the kernel's thread of an end has used.
    pub fn kernel_time(&self, end: usize) -> Span {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.napi[end])).unwrap_or_default();
        let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
        Span::from_ns(ns.expect("the kernel says what a thread has used"))
    }
}

/// The kernel's threads for interfaces of this name.
fn napi_threads() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(&format!("napi/{DEVICE}-"))
    })
}
