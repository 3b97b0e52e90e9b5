//! Facts about the machine and the system that a measurement ran on.

use std::collections::BTreeMap;
use std::fs;

/// Returns the facts by their names in the record. Facts that the system does not provide are missing.
pub fn describe() -> BTreeMap<String, String> {
    let value_of = |path: &str, key: &str| -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line.split_once([':', '='])?.1.trim().trim_matches('"').to_string())
    };
    let read = |path: &str| Some(fs::read_to_string(path).ok()?.trim().to_string());
    let facts = [
        ("system", value_of("/etc/os-release", "PRETTY_NAME").or(Some(std::env::consts::OS.into()))),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("machine", Some(std::env::consts::ARCH.to_string())),
        ("processor", value_of("/proc/cpuinfo", "model name")),
        ("processors", std::thread::available_parallelism().ok().map(|n| n.to_string())),
        ("memory", value_of("/proc/meminfo", "MemTotal")),
        ("clock", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        ("load_before", read("/proc/loadavg")),
    ];
    facts.into_iter().filter_map(|(name, fact)| Some((name.to_string(), fact?))).collect()
}

/// Returns the TCP congestion controls that this process may use; empty if the kernel does not report them.
pub fn congestion_controls() -> Vec<String> {
    let list = if has_net_admin() { "available" } else { "allowed" };
    fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control"))
        .map(|text| text.split_whitespace().map(String::from).collect())
        .unwrap_or_default()
}

/// Returns whether this process has `CAP_NET_ADMIN`, bit 12 of its effective capabilities.
fn has_net_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|mask| mask >> 12 & 1 == 1)
}
