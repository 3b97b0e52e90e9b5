//! The machines over UDP: each a daemon of one thread, with one wait for all its sockets.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`level1`] | [`Level1Face`]: between multicast groups and the central converter |
//! | [`central`] | [`CentralFace`]: in the middle |
//! | [`host`] | [`HostFace`]: at a simulation |
//! | [`regions`] | publish and subscribe by named region at a host |
//! | [`dis`] | plain DIS at a host |
//! | [`figures`] | what they counted, as text and for Prometheus |
//! | [`engine`] | a machine, its sockets and its clock |
//! | `notices` | what a person is to be told at once |
//! | `rejoin` | groups that could not be joined |
//!
//! A face is driven by [`turn`](Serve::turn): it waits for a datagram, a deadline or something [watched](Serve::watch), and
//! does what is to be done. What a peer says never ends it, nor does a refusal.

#![allow(clippy::disallowed_methods, reason = "a face has a clock and sockets")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use thiserror::Error;
use trunkline_io::ports::Ready;
use trunkline_io::usage::{interface_of, interface_waits};
use trunkline_io::{SocketError, socket};
use trunkline_units::{Instant, Size};

pub mod central;
pub mod dis;
pub mod engine;
pub mod figures;
pub mod host;
pub mod level1;
mod notices;
pub mod regions;
mod rejoin;

pub use central::{CentralFace, CentralOptions};
pub use dis::DisOptions;
pub use figures::Figures;
pub use host::{HostFace, HostOptions};
pub use level1::{Level1Face, Level1Options};
pub use regions::RegionError;

/// Why a face did not open.
#[derive(Debug, Error)]
pub enum Error {
    /// A socket did not.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// What the system said to something else.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The groups from this one on are not all multicast.
    #[error(
        "{0} is no base for 2,048 multicast groups: the first and the last must be within 224.0.0.0 to 239.255.255.255"
    )]
    Base(Ipv4Addr),
}

/// What every face does.
pub trait Serve {
    /// Watches something else in the same wait; its number in [`Ready`].
    ///
    /// # Errors
    /// What the system says.
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize>;

    /// Waits until there is something to do, and does it. At `until` it returns in any case.
    ///
    /// # Errors
    /// If the system no longer waits or receives.
    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready>;

    /// Says what is to be said before it goes.
    ///
    /// # Errors
    /// As a turn.
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What it is bound to.
    fn bound(&self) -> String;

    /// A line that a person is to be told, if there is one: such as that somebody speaks the other format. Each is told once.
    fn notice(&mut self) -> Option<String> {
        None
    }

    /// What it counted.
    fn figures(&self, into: &mut Figures);
}

/// Most octets of a datagram that the interface which has an address carries in one packet: its MTU less the headers of IPv4
/// and UDP. None if the address is that of no one interface.
pub fn carried_by(interface: Ipv4Addr) -> Option<usize> {
    let all = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 9);
    if interface.is_unspecified() {
        return None;
    }
    // Nothing is sent: a connected socket knows its path.
    let asks = own(SocketAddrV4::new(interface, 0)).ok()?;
    socket::multicast_by(&asks, interface).ok()?;
    asks.connect(all).ok()?;
    socket::allow_fragments(&asks, all.into()).ok().flatten()
}

/// The life of a machine that starts at this time of day, of the wide format: hundredths of a second since 1970, in a circle of
/// 2³². The monotonic clock will not do: it begins anew with the machine, whose hosts would be taken for stragglers.
fn life(unix: Duration) -> u32 {
    (unix.as_millis() / 10) as u32
}

/// A socket that only its owner has.
fn own(at: SocketAddrV4) -> Result<std::net::UdpSocket, SocketError> {
    socket::udp(at.into(), &options())
}

/// What a socket of the converter is asked to be. What comes while its process does not run waits in the system: 4 MiB are
/// half a second of 200,000 messages; the system may grant less (`net.core.rmem_max`).
fn options() -> socket::Options {
    socket::Options { receive_buffer: Some(Size::from_bytes(4 << 20)), ..socket::Options::default() }
}

const BUNDLES: &str = "trunkline_converter_bundles_total";
const OF_BUNDLES: &str = "Bundles, by where they came from or went.";
const MESSAGES: &str = "trunkline_converter_messages_total";
const OF_MESSAGES: &str = "Messages, by where they came from or went.";
const MALFORMED: &str = "trunkline_converter_malformed_total";
const OF_MALFORMED: &str = "Bundles that are none or come from nobody, and control that makes no sense.";
const STRANGERS: &str = "trunkline_converter_strangers_total";
const OF_STRANGERS: &str = "Bundles that did not come from the central converter, passed over.";
const LEVEL: &str = "trunkline_converter_congestion_level";
const OF_LEVEL: &str = "Level of congestion, 3 (none) to 6.";

/// What the numbers of messages told, and what of bundles was not taken: of the wide format.
fn of_numbers(into: &mut Figures, path: &crate::path::Counts, stale: u64) {
    let what = "Messages by what their numbers told: missing, here before, overtaken, too old, or of too many flows to know.";
    for (told, count) in [
        ("missing", path.missing),
        ("doubled", path.doubled),
        ("reordered", path.reordered),
        ("stale", path.stale),
        ("unknown", path.unknown),
    ] {
        into.count("trunkline_converter_numbers_total", what, &[("told", told)], count);
    }
    into.count(STALE, OF_STALE, &[], stale);
}

const STALE: &str = "trunkline_converter_stale_total";
const OF_STALE: &str = "Bundles of an earlier life or session, or of somebody for whom there is no room.";
const OWN: &str = "trunkline_converter_own_total";
const OF_OWN: &str = "Messages of this site's hosts that came back from the wide area.";
const SESSIONS: &str = "trunkline_converter_sessions_total";
const OF_SESSIONS: &str = "Sessions that began, of hosts, of level 1, or with the central converter.";
const LOST: &str = "trunkline_converter_lost_total";
const OF_LOST: &str =
    "Messages of bundles that did not come, or came late, by who sent them; of those that are there.";
const RESENT: &str = "trunkline_converter_resent_total";
const OF_RESENT: &str = "Priority messages sent again until they were acknowledged.";
const SILENT: &str = "trunkline_converter_silent_total";
const OF_SILENT: &str = "Times that somebody was silent for too long, or said that it ends.";

/// What the system said to what was sent.
fn of_system(into: &mut Figures, refused: u64, unsent: u64) {
    let what = "Datagrams that were refused where they were sent to.";
    into.count("trunkline_converter_refused_total", what, &[], refused);
    let what = "Datagrams that the system would not send.";
    into.count("trunkline_converter_unsent_total", what, &[], unsent);
}

/// What came and found the buffers of the first sockets full.
fn of_buffers(into: &mut Figures, ports: &trunkline_io::Ports, names: &[&str]) {
    let what = "Datagrams that came and found the socket's buffer full, by the socket.";
    for (port, name) in names.iter().enumerate() {
        let lost = socket::dropped(ports.socket(port)).unwrap_or(0);
        into.count("trunkline_converter_overflow_total", what, &[("socket", name)], lost);
    }
}

/// How that is gathered on the way in. What is bound to no address is heard by the interface that has this one.
fn of_gathering(into: &mut Figures, ports: &trunkline_io::Ports, names: &[&str], else_at: Ipv4Addr) {
    let what = "Whether the system may hand over datagrams of one sender in one piece (GRO), by the socket.";
    for (port, name) in names.iter().enumerate() {
        let joins = ports.coalesces(port).into();
        into.gauge("trunkline_converter_coalescing", what, &[("socket", name)], joins);
    }
    let what = "Microseconds that the socket's interface waits before it says that something came.";
    for (port, name) in names.iter().enumerate() {
        let at = ports.socket(port).local_addr().map_or(else_at.into(), |at| at.ip());
        let at = if at.is_unspecified() { else_at.into() } else { at };
        let Some(interface) = interface_of(at) else { continue };
        let Some(waits) = interface_waits(&interface) else { continue };
        let labels = [("socket", *name), ("interface", &interface)];
        into.gauge("trunkline_converter_interface_wait_microseconds", what, &labels, waits.as_ns() / 1_000);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_the_time_of_day_in_hundredths_of_a_second() {
        assert_eq!(life(Duration::from_millis(12_349)), 1_234);
        // It goes round after 497 days, and on from there.
        let before = life(Duration::from_millis(((1 << 32) - 1) * 10));
        assert_eq!((before, life(Duration::from_millis((1 << 32) * 10))), (u32::MAX, 0));
    }

    #[test]
    fn what_an_interface_carries_is_known_of_those_that_are_here() {
        assert_eq!(carried_by(Ipv4Addr::UNSPECIFIED), None);
        assert_eq!(carried_by(Ipv4Addr::new(192, 0, 2, 1)), None);
        // The loopback's MTU is what it is set to, commonly 65,536.
        assert!(carried_by(Ipv4Addr::LOCALHOST).is_some_and(|octets| octets > 500));
    }
}
