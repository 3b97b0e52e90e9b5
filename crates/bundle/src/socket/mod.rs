//! The endpoints on UDP sockets: each a daemon with one thread, which waits for all its sockets at once.
//!
//! | module | contents |
//! | --- | --- |
//! | [`level1`] | [`Level1Socket`]: between multicast groups and the central converter |
//! | [`central`] | [`CentralSocket`]: the central converter |
//! | [`host`] | [`HostSocket`]: at a simulation |
//! | [`regions`] | publish and subscribe by named region at a host |
//! | [`dis`] | plain DIS at a host |
//! | [`metrics`] | metrics as text and in the format of Prometheus |
//! | `receiver` | receiving sockets |
//! | `warnings` | warnings for the operator |
//! | `group_retry` | retries of failed multicast joins |
//!
//! [`turn`](SocketDriver::turn) drives an endpoint: it waits for a datagram, a deadline or a
//! [watched](SocketDriver::watch) file descriptor, and handles it. Neither input from peers nor refused datagrams
//! cause an error.

#![allow(clippy::disallowed_methods, reason = "socket drivers use a clock and sockets")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use thiserror::Error;
use trunkline_io::ports::Ready;
use trunkline_io::{SocketError, socket};
use trunkline_units::Instant;

use receiver::bind_exclusive;

pub mod central;
pub mod dis;
mod group_retry;
pub mod host;
pub mod level1;
pub mod metrics;
mod receiver;
pub mod regions;
mod warnings;

pub use central::{CentralOptions, CentralSocket};
pub use dis::DisOptions;
pub use host::{HostOptions, HostSocket};
pub use level1::{Level1Options, Level1Socket};
pub use metrics::Metrics;
pub use regions::RegionError;

/// The reason why an endpoint could not be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// A socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Another error of the operating system.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The 2,048 groups from this address on are not all multicast addresses.
    #[error(
        "{0} is not a base for 2,048 multicast groups: the first and the last must be within 224.0.0.0 to 239.255.255.255"
    )]
    Base(Ipv4Addr),
}

/// The operations of every endpoint on sockets.
pub trait SocketDriver {
    /// Adds a file descriptor to the wait; returns its index in [`Ready`].
    ///
    /// # Errors
    /// Returns an error of the operating system.
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize>;

    /// Waits for input, a deadline or `until`, and handles it.
    ///
    /// # Errors
    /// Returns an error of the operating system while waiting or receiving.
    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready>;

    /// Announces that the endpoint closes.
    ///
    /// # Errors
    /// As [`turn`](SocketDriver::turn).
    fn shutdown(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Describes the local addresses and peers, for logs.
    fn local_addresses(&self) -> String;

    /// Returns the next warning for the operator, such as a peer with another format. Each kind of warning occurs
    /// once.
    fn next_warning(&mut self) -> Option<String>;

    /// Adds the metrics of the endpoint.
    fn collect_metrics(&self, into: &mut Metrics);
}

/// Returns the largest UDP payload in octets that fits into one packet on the interface with this address: its MTU
/// less the headers of IPv4 and UDP. Returns `None` if the address belongs to no interface.
pub fn max_datagram_on(interface: Ipv4Addr) -> Option<usize> {
    let all = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 9);
    if interface.is_unspecified() {
        return None;
    }
    // Nothing is sent: a connected socket knows its path MTU.
    let probe = bind_exclusive(SocketAddrV4::new(interface, 0)).ok()?;
    socket::set_multicast_interface(&probe, interface).ok()?;
    probe.connect(all).ok()?;
    socket::allow_fragments(&probe, all.into()).ok().flatten()
}

/// Returns the incarnation of an endpoint that starts at this time of day: hundredths of a second since 1970, modulo
/// 2³². A monotonic clock is unsuitable, because it restarts with the machine and would yield an earlier incarnation.
fn incarnation_at(unix: Duration) -> u32 {
    (unix.as_millis() / 10) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_incarnation_is_the_time_in_hundredths_of_a_second() {
        assert_eq!(incarnation_at(Duration::from_millis(12_349)), 1_234);
        // It wraps after 497 days.
        let before = incarnation_at(Duration::from_millis(((1 << 32) - 1) * 10));
        assert_eq!((before, incarnation_at(Duration::from_millis((1 << 32) * 10))), (u32::MAX, 0));
    }

    #[test]
    fn the_datagram_size_of_a_local_interface_is_known() {
        assert_eq!(max_datagram_on(Ipv4Addr::UNSPECIFIED), None);
        assert_eq!(max_datagram_on(Ipv4Addr::new(192, 0, 2, 1)), None);
        // The MTU of the loopback interface is configurable, by default 65,536.
        assert!(max_datagram_on(Ipv4Addr::LOCALHOST).is_some_and(|octets| octets > 500));
    }
}
