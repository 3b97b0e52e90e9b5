//! Processor time of threads and counters of interfaces.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use trunkline_units::Span;

/// Processor time of a thread or process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user code.
    pub user: Span,
    /// In the kernel on its behalf.
    pub system: Span,
}

impl CpuTime {
    /// Returns the processor time of the calling thread since its start; on macOS all of it as user time.
    pub fn of_this_thread() -> Self {
        #[cfg(not(target_vendor = "apple"))]
        return Self::of(UsageWho::RUSAGE_THREAD, ClockId::CLOCK_THREAD_CPUTIME_ID);
        #[cfg(target_vendor = "apple")]
        return CpuTime { user: thread_cpu_time(), system: Span::ZERO };
    }

    /// Returns the processor time of this process since its start.
    pub fn of_this_process() -> Self {
        Self::of(UsageWho::RUSAGE_SELF, ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    fn of(who: UsageWho, clock: ClockId) -> Self {
        // The usage dates from the last context switch or tick; reading the clock updates it.
        let _ = clock_gettime(clock);
        let Ok(usage) = getrusage(who) else { return CpuTime::default() };
        let span = |t: nix::sys::time::TimeVal| {
            Span::from_s(t.tv_sec() as u64) + Span::from_us(u64::try_from(t.tv_usec()).unwrap_or(0))
        };
        CpuTime { user: span(usage.user_time()), system: span(usage.system_time()) }
    }

    /// Returns the time used between `earlier` and `self`.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime { user: self.user - earlier.user, system: self.system - earlier.system }
    }
}

/// Returns the calling thread's total processor time since its start, in nanoseconds resolution (see
/// [`CpuTime::of_this_thread`]).
#[inline]
pub fn thread_cpu_time() -> Span {
    let t = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every system has this clock");
    Span::from_s(t.tv_sec() as u64) + Span::from_ns(t.tv_nsec() as u64)
}

/// Returns the interface that has `address`; `None` if no interface has it. All of 127.0.0.0/8 belongs to loopback.
pub fn interface_of(address: IpAddr) -> Option<String> {
    let held = |have: IpAddr| match (have, address) {
        (IpAddr::V4(have), IpAddr::V4(want)) if want.is_loopback() => have.is_loopback(),
        (have, want) => have == want,
    };
    nix::ifaddrs::getifaddrs().ok()?.find_map(|entry| {
        let at = entry.address?;
        let ip = at
            .as_sockaddr_in()
            .map(|v4| IpAddr::V4(v4.ip()))
            .or_else(|| at.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))?;
        held(ip).then_some(entry.interface_name)
    })
}

/// Returns how long an interface defers its receive interrupts: `gro_flush_timeout` if `napi_defer_hard_irqs` is set.
/// `None` if the system does not report it.
pub fn interrupt_delay(interface: &str) -> Option<Span> {
    let read = |file: &str| read_number(interface, file);
    // /sys may show another network namespace's interfaces.
    let number = nix::net::if_::if_nametoindex(interface).ok()?;
    if read("ifindex")? != u64::from(number) {
        return None;
    }
    let delay = if read("napi_defer_hard_irqs")? > 0 { read("gro_flush_timeout")? } else { 0 };
    Some(Span::from_ns(delay))
}

/// Returns the kernel's counters of an interface: `rx_bytes`, `rx_packets`, `rx_errors`, `rx_dropped`, and the same
/// for `tx`; empty if the system does not report them.
pub fn interface_counters(interface: &str) -> BTreeMap<&'static str, u64> {
    const NAMES: [&str; 8] = [
        "rx_bytes",
        "rx_packets",
        "rx_errors",
        "rx_dropped",
        "tx_bytes",
        "tx_packets",
        "tx_errors",
        "tx_dropped",
    ];
    let read = |name: &'static str| Some((name, read_number(interface, &format!("statistics/{name}"))?));
    NAMES.into_iter().filter_map(read).collect()
}

/// Reads a number that the system reports about an interface.
fn read_number(interface: &str, file: &str) -> Option<u64> {
    fs::read_to_string(format!("/sys/class/net/{interface}/{file}")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_counted() {
        let lo = interface_of("127.0.0.9".parse().unwrap()).expect("a loopback interface");
        assert_eq!(interface_of("192.0.2.1".parse().unwrap()), None);
        let before = interface_counters(&lo);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 100], socket.local_addr().unwrap()).unwrap();
        let after = interface_counters(&lo);
        assert!(after["rx_packets"] > before["rx_packets"]);
    }

    #[test]
    fn processor_time_increases() {
        let before = CpuTime::of_this_thread();
        let mut x = 1u64;
        while CpuTime::of_this_thread().since(before).user < Span::from_ms(1) {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let (fine, thread) = (thread_cpu_time(), CpuTime::of_this_thread());
        assert!(fine <= thread_cpu_time());
        // Both report the same time; one of them splits it between user and system as the scheduler estimates.
        let coarse = thread.user + thread.system;
        assert!(fine <= coarse + Span::from_ms(20) && coarse <= fine + Span::from_ms(20));
        // The split may differ between a thread and its process.
        let process = CpuTime::of_this_process();
        assert!(process.user + process.system + Span::from_ms(1) >= coarse);
    }
}
