//! Real I/O: sockets, packet sockets, TUN devices, the clock, and the event loop that runs endpoints over them.
//!
//! ```
//! use trunkline_endpoint::Port;
//! use trunkline_endpoint::echo::{Client, Command, Config, Event, Server};
//! use trunkline_io::peer::peer_of;
//! use trunkline_io::{Clock, EventLoop};
//! use trunkline_units::Span;
//!
//! let clock = Clock::start();
//! let socket = || std::net::UdpSocket::bind("127.0.0.1:0");
//! let mut server = EventLoop::over(Server::new(), socket()?, clock)?;
//! let peer = peer_of(server.ports.socket(0).local_addr()?);
//! let (interval, timeout) = (Span::from_ms(1), Span::from_s(10));
//! let config = Config { port: Port(0), peer, length: 64, interval, timeout, tries: 3 };
//! let mut client = EventLoop::over(Client::new(config), socket()?, clock)?;
//!
//! client.command(Command::Start { count: 1 }).unwrap();
//! let mut events = Vec::new();
//! while events.is_empty() {
//!     let soon = Some(clock.now() + Span::from_ms(1));
//!     client.turn(soon, |event| events.push(event))?;
//!     server.turn(soon, |_| {})?;
//! }
//! assert!(matches!(events[0], Event::Answered { number: 0, .. }));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`clock`] | [`Clock`]: the monotonic clock of a run, shared by all processes of a machine |
//! | [`event_loop`] | [`EventLoop`]: runs an endpoint over UDP sockets and the clock |
//! | [`groups`] | [`Groups`]: datagrams to and from several multicast groups on one port |
//! | [`icmp`] | ICMP echo requests and replies |
//! | [`memberships`] | [`Memberships`]: any number of multicast groups through one socket |
//! | [`packet`] | [`PacketSocket`]: Ethernet frames of an interface; a receive ring for high rates |
//! | [`must`] | skipping tests that a machine cannot run |
//! | [`pace`] | [`Pacer`]: precise waiting: sleep, then spin |
//! | [`peer`] | socket addresses as peers of endpoints |
//! | [`platform`] | [`missing`](platform::missing): the measures that this system lacks |
//! | `poller` | several descriptors with one wait, on each system |
//! | [`ports`] | [`Ports`]: several UDP sockets with one wait |
//! | [`probe`] | [`Probe`]: durations and kernel timestamps of selected batches |
//! | [`shared_loop`] | [`SharedLoop`]: runs an endpoint on a link, shared by threads |
//! | `fair_mutex` | the lock of a shared loop |
//! | [`socket`] | opening UDP and TCP sockets; errors that name the address |
//! | [`batch`] | batches of datagrams: segmentation offload and receive coalescing |
//! | [`datagrams`] | [`Datagrams`]: a UDP socket shared by threads |
//! | [`tcp`] | kernel statistics of a TCP connection |
//! | [`timestamped`] | [`TimestampedSocket`]: arrival times of the kernel and TTLs of datagrams |
//! | [`timer`] | [`Timer`](timer::Timer): a deadline as a file descriptor |
//! | `tun` | `Tun`: a network interface whose other end is this process; only on Linux |
//! | [`kernel_counters`] | counters of the kernel: interfaces, protocols, processors |
//! | [`usage`] | processor time of threads, counters of interfaces |

#![allow(clippy::disallowed_methods, reason = "this crate owns the clock")]

#[cfg(not(unix))]
compile_error!("Trunkline measures on Linux, FreeBSD and macOS; it has no sockets for Windows");

pub mod batch;
pub mod clock;
pub mod datagrams;
pub mod event_loop;
mod fair_mutex;
pub mod groups;
pub mod icmp;
pub mod kernel_counters;
pub mod memberships;
pub mod must;
pub mod pace;
pub mod packet;
pub mod peer;
pub mod platform;
mod poller;
pub mod ports;
pub mod probe;
pub mod shared_loop;
pub mod socket;
pub mod tcp;
pub mod timer;
pub mod timestamped;
#[cfg(target_os = "linux")]
pub mod tun;
pub mod usage;

pub use clock::Clock;
pub use datagrams::Datagrams;
pub use event_loop::EventLoop;
pub use groups::Groups;
pub use memberships::Memberships;
pub use pace::Pacer;
pub use packet::PacketSocket;
pub use ports::Ports;
pub use probe::Probe;
pub use shared_loop::SharedLoop;
pub use socket::SocketError;
pub use timestamped::TimestampedSocket;
#[cfg(target_os = "linux")]
pub use tun::Tun;
