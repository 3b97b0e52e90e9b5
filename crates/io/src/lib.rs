//! Real I/O: sockets, packet sockets, TUN devices, the clock, and the event loop that runs endpoints over them.
//!
//! ```
//! use trunkline_endpoint::echo::{Client, Command, Config, Event, Server};
//! use trunkline_io::driver::{Driver, DriverEvent, peer_of};
//! use trunkline_io::Clock;
//! use trunkline_units::Span;
//!
//! let clock = Clock::start();
//! let socket = || std::net::UdpSocket::bind("127.0.0.1:0");
//! let mut server = Driver::new(Server::new(), socket()?, clock)?;
//! let peer = peer_of(server.socket().local_addr()?);
//! let stopper = server.stopper();
//! let thread = std::thread::spawn(move || server.run(None));
//!
//! let (interval, timeout) = (Span::from_ms(1), Span::from_s(10));
//! let port = trunkline_endpoint::Port(0);
//! let client = Client::new(Config { port, peer, length: 64, interval, timeout, tries: 3 });
//! let mut client = Driver::new(client, socket()?, clock)?;
//! client.command(Command::Start { count: 1 }).unwrap();
//! assert!(matches!(client.run(None)?, DriverEvent::Endpoint(Event::Answered { number: 0, .. })));
//! stopper.stop();
//! assert!(matches!(thread.join().unwrap()?, DriverEvent::Stopped));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`clock`] | [`Clock`]: the monotonic clock of a run, shared by all processes of a machine |
//! | [`driver`] | [`Driver`]: the event loop that runs an endpoint over a UDP socket |
//! | [`groups`] | [`Groups`]: datagrams to and from several multicast groups on one port |
//! | [`icmp`] | ICMP echo requests and replies |
//! | [`memberships`] | [`Memberships`]: any number of multicast groups through one socket |
//! | [`packet`] | [`PacketSocket`]: Ethernet frames of an interface; a receive ring for high rates |
//! | [`must`] | skipping tests that a machine cannot run |
//! | [`pace`] | [`Pacer`]: precise waiting: sleep, then spin |
//! | [`ports`] | [`Ports`]: several UDP sockets with one wait |
//! | [`socket`] | opening UDP and TCP sockets; errors that name the address |
//! | [`batch`] | batches of datagrams: segmentation offload and receive coalescing |
//! | [`datagrams`] | [`Datagrams`]: a UDP socket shared by threads |
//! | [`tcp`] | kernel statistics of a TCP connection |
//! | [`tun`] | [`Tun`]: a network interface whose other end is this process |
//! | [`usage`] | processor time of threads, counters of interfaces |

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
