//! IPv6 in a lab: the second address of each host, and the settings of its kernel.
//!
//! The interfaces have no link-local addresses and discover no neighbours, as point-to-point interfaces need neither; so the kernels
//! send nothing by themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// The network of all hosts, unique local (RFC 4193). It is never seen outside of a lab, so its identifier is not random.
const NETWORK: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);
/// The prefix length of a host with one interface.
pub const PREFIX: u8 = 64;
/// The shortest MTU with which an interface has IPv6 (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1280;
/// Settings of each namespace: no link-local addresses, no routers that would advertise anything.
pub const SETTINGS: [(&str, &str); 3] = [
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
];
/// The setting of a router.
pub const FORWARDING: &str = "net/ipv6/conf/all/forwarding";

/// Returns the IPv6 address of a host: that with the number of its IPv4 address, fd00::3 for 10.0.0.3.
pub fn address(of: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(NETWORK.to_bits() | u128::from(of.to_bits() & 0x00ff_ffff))
}

/// Returns both addresses of a host.
pub fn both(of: Ipv4Addr) -> [IpAddr; 2] {
    [of.into(), address(of).into()]
}

/// Returns whether this kernel has IPv6.
pub fn is_available() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
