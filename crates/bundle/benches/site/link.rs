//! Two network namespaces joined by a pair of virtual interfaces, with the kernel thread of each end on its own
//! processor.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use trunkline_units::Span;

use crate::spaces::{DEVICE, Spaces};

/// The addresses of the two ends. Each end runs on the processor with its index.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// A thread whose priority is set.
#[derive(Clone, Copy, Debug)]
pub enum Thread {
    /// The kernel thread of the interface of an end.
    Kernel(usize),
    /// The calling thread.
    This,
}

/// The link. Its packets are at most an MTU of 1,500 octets, as on a wire.
pub struct TestLink {
    pub spaces: Spaces,
    /// The kernel threads that take packets from the interfaces (threaded NAPI).
    napi: [u32; 2],
}

impl TestLink {
    /// # Errors
    /// The system lacks network namespaces, a program, or threaded NAPI.
    pub fn new() -> Result<TestLink, String> {
        let spaces = Spaces::new()?;
        let mut napi = [0; 2];
        for (end, ip) in ADDRESSES.into_iter().enumerate() {
            spaces.run(
                end,
                &format!(
                    "ip link set lo up; ip address add {ip}/24 dev {DEVICE}; ip route add 224.0.0.0/4 dev {DEVICE}
                     ethtool -K {DEVICE} tso off gso off tx-udp-segmentation off >/dev/null 2>&1 || true
                     ethtool -K {DEVICE} gro on; echo 1 >/sys/class/net/{DEVICE}/threaded"
                ),
            )?;
            // The newest thread of this name belongs to this interface.
            let thread = napi_threads().max().filter(|pid| !napi.contains(pid));
            napi[end] = thread.ok_or("the kernel has no thread for an interface (threaded NAPI)")?;
            spaces.run(end, &format!("taskset -pc {end} {} >/dev/null", napi[end]))?;
        }
        Ok(TestLink { spaces, napi })
    }

    /// Makes an interface delay its interrupts (NAPI deferral); zero disables the delay.
    pub fn set_coalescing(&self, end: usize, time: Span) {
        let (deferred_irqs, timeout) = (if time.is_zero() { 0 } else { 50 }, time.as_ns());
        let set = format!(
            "cd /sys/class/net/{DEVICE}; echo {deferred_irqs} >napi_defer_hard_irqs; echo {timeout} >gro_flush_timeout"
        );
        self.spaces.run(end, &set).expect("the interface accepts the coalescing settings");
    }

    /// Sets the real-time priority (`SCHED_FIFO`) of a thread.
    pub fn set_priority(&self, thread: Thread, priority: u32) {
        let thread = match thread {
            Thread::Kernel(end) => self.napi[end],
            Thread::This => nix::unistd::gettid().as_raw() as u32,
        };
        let done = Command::new("chrt")
            .args(["-f", "-p"])
            .arg(priority.to_string())
            .arg(thread.to_string())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "chrt gives precedence");
    }

    /// Returns the processor time of the kernel thread of an end.
    pub fn kernel_time(&self, end: usize) -> Span {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.napi[end])).unwrap_or_default();
        let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
        Span::from_ns(ns.expect("the kernel reports the processor time"))
    }
}

/// Returns the kernel threads of interfaces with this name.
fn napi_threads() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with(&format!("napi/{DEVICE}-"))
    })
}
