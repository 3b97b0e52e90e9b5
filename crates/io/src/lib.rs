//! Real I/O: the only room of the machine crates that touches sockets and the wall clock.
//!
//! | module | what |
//! | --- | --- |
//! | [`clock`] | [`Clock`], the monotonic clock of a run, shared by every process of a machine |
//! | [`driver`] | [`Driver`], runs an endpoint over a UDP socket |
//! | [`groups`] | [`Groups`], datagrams to and from several multicast groups through one port |
//! | [`icmp`] | echo requests and answers |
//! | [`memberships`] | [`Memberships`], very many multicast groups through one socket |
//! | [`packet`] | [`PacketSocket`], whole Ethernet frames of an interface; a ring for very many |
//! | [`must`] | tests that need what not every machine grants |
//! | [`pace`] | [`Pacer`], waits for a moment: sleep, then spin for the last stretch |
//! | [`ports`] | [`Ports`], several UDP sockets with one wait |
//! | [`socket`] | opening UDP and TCP sockets with buffers, groups and time limits; errors that name the address |
//! | [`batch`] | many datagrams a system call: segmentation offload and receive coalescing |
//! | [`datagrams`] | [`Datagrams`], a UDP socket that threads share: blocking, in batches, and to be woken |
//! | [`tcp`] | the kernel's own view of a TCP connection |
//! | [`tun`] | [`Tun`], a network interface whose other end is this process |
//! | [`usage`] | processor time of a thread, counters of an interface |

#![allow(clippy::disallowed_methods, reason = "this crate owns the clock")]

pub mod batch;
pub mod clock;
pub mod datagrams;
pub mod driver;
pub mod groups;
pub mod icmp;
pub mod memberships;
pub mod must;
pub mod pace;
pub mod packet;
pub mod ports;
pub mod socket;
pub mod tcp;
pub mod tun;
pub mod usage;

pub use clock::Clock;
pub use datagrams::Datagrams;
pub use driver::Driver;
pub use groups::Groups;
pub use memberships::Memberships;
pub use pace::Pacer;
pub use packet::PacketSocket;
pub use ports::Ports;
pub use socket::SocketError;
pub use tun::Tun;
