//! Flags of `trunkline converter`. Every flag is optional: its value comes from `--config`, or a default that works on the
//! loopback interface.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use trunkline_bundle::bundler::Timing;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::wire::classic::MAX_BUNDLE;
use trunkline_bundle::wire::format2::MIN_DATAGRAM;
use trunkline_units::Span;

pub use super::values::span;
use super::values::{in_range, one_of};

/// Port on which the central converter receives from level 1.
pub const LEVEL1_TO_CENTRAL: u16 = 3450;
/// Port on which level 1 receives from the central converter.
pub const CENTRAL_TO_LEVEL1: u16 = 3457;
/// Port on which the central converter receives from hosts.
pub const HOSTS_TO_CENTRAL: u16 = 3458;
/// Port on which hosts receive from the central converter.
pub const CENTRAL_TO_HOSTS: u16 = 3459;
/// Port of the multicast groups.
pub const GROUPS: u16 = 3456;
/// Port of DIS.
pub const DIS: u16 = 3000;
/// Multicast group of the first 32 message addresses.
pub const BASE: Ipv4Addr = Ipv4Addr::new(234, 5, 1, 1);

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Converter {
    #[command(subcommand)]
    pub daemon: Daemon,
}

/// The daemons start and restart in any order. SIGTERM or Ctrl-C stops a daemon with status 0; SIGUSR1 prints its counters.
/// Exit status: 1 if a daemon fails, 2 if the input or the usage is wrong.
#[derive(Debug, Subcommand)]
pub enum Daemon {
    /// Run a level-1 converter, between the multicast groups of the wide area and the central converter
    ///
    /// Prints the bound addresses in one line. SIGTERM or Ctrl-C stops it; SIGUSR1 prints its counters.
    Level1(Level1),
    /// Run the central converter, between level 1 and the hosts: subscriptions, distribution, congestion control
    ///
    /// Prints the bound addresses in one line. SIGTERM or Ctrl-C stops it; SIGUSR1 prints its counters.
    Central(Central),
    /// Run the host side of a simulation: exchange plain DIS with programs of this host, or generate a workload
    ///
    /// Prints the bound addresses in one line. SIGTERM or Ctrl-C stops it; SIGUSR1 prints its counters.
    Host(Host),
    /// Replay the DIS datagrams of a capture, to --dis of a host or to programs, at the original speed or faster
    ///
    /// Payloads are sent unchanged, from an address and port of this machine. At the end of the capture, prints the number
    /// of datagrams sent and exits.
    Replay(Replay),
}

/// Flags that all daemons share.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// TOML file whose keys are names of flags; flags on the command line take precedence
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Bundle format; must be the same at all converters and hosts [default: classic]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Number of the site, the hosts of one central converter; different for each site. Wide format only [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16))]
    pub site: Option<u16>,
    /// Maximum size of a bundle, in octets, 512 to 65507 [default: classic: 65507; wide: the MTU of the interfaces minus 28]
    #[arg(long, value_name = "OCTETS", value_parser = bundle_size)]
    pub longest: Option<usize>,
    /// Congestion control: by levels as in 1997, or by rates from the remaining capacity. Wide format only; must be the same
    /// at the whole site [default: rates]
    #[arg(long, value_name = "METHOD", value_parser = congestion())]
    pub congestion: Option<Congestion>,
    /// When to send bundles: at a 5 ms tick, for minimum processor time, or for minimum delay [default: classic]
    #[arg(long, value_name = "METHOD", value_parser = timers())]
    pub timers: Option<Timing>,
    /// Maximum time that an ordinary message waits in a bundle, up to 1s; with --timers processor or delay; may differ per
    /// daemon [default: processor: 20ms; delay: 5ms]
    #[arg(long, value_name = "DURATION", value_parser = deadline)]
    pub deadline: Option<Span>,
    /// Maximum time that a priority message waits in a bundle; 0s sends the bundle immediately. With --timers processor or
    /// delay [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = deadline)]
    pub priority_deadline: Option<Span>,
    /// Interval of --capacity and of the levels of congestion; must be the same at all daemons [default: 5ms]
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub interval: Option<Span>,
    /// Give odd message addresses priority, and subscribe to them together with the even address before; must be the same
    /// at all daemons
    #[arg(long)]
    pub pairs: bool,
    /// Serve a status page and /metrics for Prometheus over HTTP at this address [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub status: Option<SocketAddrV4>,
}

/// The wire format between converters and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Format 1, of 1997: 16 hosts, 16-bit message addresses
    Classic,
    /// Format 2: up to 65,535 hosts, 32-bit message addresses
    Wide,
}

/// Parses the congestion control.
fn congestion() -> impl TypedValueParser<Value = Congestion> {
    one_of([
        (
            "levels",
            "Level 3 means no congestion; from level 4 on, 7 − level ordinary messages pass per interval, at level 6 none",
            Congestion::Levels,
        ),
        ("rates", "Ordinary messages share the capacity that priority messages leave", Congestion::Rates),
    ])
}

/// Parses when a bundle is sent.
fn timers() -> impl TypedValueParser<Value = Timing> {
    one_of([
        ("classic", "At a free-running tick of 5 ms, as in 1997", Timing::CLASSIC),
        (
            "processor",
            "20 ms after its first message; immediately with a priority message",
            Timing::LEAST_PROCESSOR,
        ),
        ("delay", "Immediately if the last bundle was sent at least 0.5 ms ago", Timing::LEAST_DELAY),
    ])
}

#[derive(Clone, Debug, Args)]
pub struct Level1 {
    /// Number of this level-1 converter [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=0x3fff))]
    pub number: Option<u16>,
    /// Address on which the central converter receives from level 1 [default: 127.0.0.1:3450]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, LEVEL1_TO_CENTRAL))]
    pub central: Option<SocketAddrV4>,
    /// Address on which to receive from the central converter [default: 127.0.0.1:3457; wide: a free port of --interface]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, CENTRAL_TO_LEVEL1))]
    pub listen: Option<SocketAddrV4>,
    /// Address of the interface for the multicast groups [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = interface)]
    pub interface: Option<Ipv4Addr>,
    /// Multicast group of message addresses 0 to 31; the other addresses use the 2,047 groups after it [default: 234.5.1.1]
    #[arg(long, value_name = "GROUP")]
    pub base: Option<Ipv4Addr>,
    /// Port of the multicast groups [default: 3456]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Time to live of packets to the groups; 1 does not cross a router [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Central {
    /// Level-1 converters and their addresses, e.g. 1=10.0.0.11, up to 6. In the wide format converters announce their
    /// addresses, and this lists the permitted numbers, e.g. 7 [default: 1=127.0.0.1:3457; wide: numbers 1 to 6]
    #[arg(long, value_name = "N=ADDR:PORT", value_delimiter = ',', value_parser = level1_peer)]
    pub level1: Vec<(u16, Option<SocketAddrV4>)>,
    /// Address on which to receive from level 1 [default: 127.0.0.1:3450]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, LEVEL1_TO_CENTRAL))]
    pub listen_level1: Option<SocketAddrV4>,
    /// Address on which to receive from hosts [default: 127.0.0.1:3458]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, HOSTS_TO_CENTRAL))]
    pub listen_hosts: Option<SocketAddrV4>,
    /// Destination of bundles for hosts: one broadcast or multicast address, or a list of hosts. In the wide format hosts
    /// announce their addresses and get separate bundles, unless this is an address on which all hosts receive [default:
    /// 127.0.0.1:3459; wide: none]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',',
          value_parser = |text: &str| address(text, CENTRAL_TO_HOSTS))]
    pub hosts: Vec<SocketAddrV4>,
    /// Capacity of the network of the hosts in octets per interval: 6000 for 10 Mb/s Ethernet, 60000 for 100 Mb/s [default:
    /// 600000]
    #[arg(long, value_name = "OCTETS", value_parser = capacity())]
    pub capacity: Option<u64>,
    /// Capacity between this converter and level 1 in octets per interval [default: --capacity]
    #[arg(long, value_name = "OCTETS", value_parser = capacity())]
    pub wide_capacity: Option<u64>,
    /// Interval of subscription refreshes to level 1; 0s disables them [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub retell: Option<Span>,
    /// Interval at which groups may move from the most to the least loaded level-1 converter; 0s disables moves. Classic
    /// format only; a group is not received for 100 ms while it moves [default: 5s]
    #[arg(long, value_name = "DURATION", value_parser = rebalance)]
    pub rebalance: Option<Span>,
    /// Time to live of bundles to a multicast address of --hosts [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Host {
    /// Number of this host, up to 16, in the wide format up to 65535 [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub number: Option<u16>,
    /// Address on which the central converter receives from hosts [default: 127.0.0.1:3458]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, HOSTS_TO_CENTRAL))]
    pub central: Option<SocketAddrV4>,
    /// Address on which to receive bundles: of this host, or the broadcast or multicast address of all hosts [default:
    /// 127.0.0.1:3459; wide: a free port of --interface]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, CENTRAL_TO_HOSTS))]
    pub listen: Option<SocketAddrV4>,
    /// Address of the interface on which to join multicast groups; in the wide format also the address of this host
    /// [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = interface)]
    pub interface: Option<Ipv4Addr>,
    /// Exchange plain DIS (IEEE 1278.1) with programs that send to this address: of this host, or a broadcast or multicast
    /// address [default: none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, DIS))]
    pub dis: Option<SocketAddrV4>,
    /// Destination of PDUs for the programs [default: the broadcast or multicast address of --dis, or the last sender]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, DIS))]
    pub dis_to: Option<SocketAddrV4>,
    /// TOML file that maps PDUs to message addresses and lists subscriptions, see docs/reference/bundle.md [default: send
    /// everything to address 0 and subscribe to it]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// Generate the workload of this TOML file instead of a simulation, and print messages/s and delays, see
    /// docs/reference/bundle.md
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub script: Option<PathBuf>,
    /// Generate a workload: subscribe to these addresses
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    pub join: Vec<RangeInclusive<u32>>,
    /// Generate a workload: send to these addresses in turn
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    pub send: Vec<RangeInclusive<u32>>,
    /// Messages per second [default: 1000]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub rate: Option<u32>,
    /// Size of a message without its address, in octets, 24 to 65500, or a range of uniformly distributed sizes [default:
    /// 150]
    #[arg(long, value_name = "OCTETS", value_parser = size)]
    pub size: Option<RangeInclusive<usize>>,
    /// Send priority messages; wide format only
    #[arg(long)]
    pub priority: bool,
    /// Maximum time that each priority message waits in a converter, regardless of the deadlines of the converter; in the
    /// classic format only this host applies it [default: the deadlines]
    #[arg(long, value_name = "DURATION", value_parser = deadline)]
    pub within: Option<Span>,
    /// Accept at most this many ordinary messages per second; the converter drops and counts the others before it sends
    /// them. Wide format only [default: unlimited]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub saturate: Option<u32>,
    /// Length of the workload [default: until everything is sent, or until interrupted]
    #[arg(long = "duration", alias = "time", value_name = "DURATION", value_parser = span)]
    pub time: Option<Span>,
    /// Interval of subscription refreshes to the central converter; 0s refreshes only after a refusal [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub retell: Option<Span>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// Capture file: pcap, with Ethernet, IP or Linux cooked headers
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub capture: PathBuf,
    /// Destination of the datagrams [default: 127.0.0.1:3000]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, DIS))]
    pub to: Option<SocketAddrV4>,
    /// Speed as a multiple of the original, up to 1000000 [default: 1]
    #[arg(long, value_name = "FACTOR", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub speed: Option<u32>,
    /// Destination port of the datagrams to replay; others are skipped [default: 3000]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

/// Returns the loopback address with this port.
pub fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Parses an address to listen on: `ADDR:PORT`, or `ADDR` with the default port; port 0 selects a free port.
fn listening(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    let without_port = || text.parse().map(|ip| SocketAddrV4::new(ip, port)).ok();
    let found = text.parse().ok().or_else(without_port);
    found.ok_or_else(|| format!("expected an IPv4 address, optionally with a port, such as 127.0.0.1:{port}"))
}

/// Parses a destination address; port 0 and 0.0.0.0 are errors.
fn address(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    match listening(text, port)? {
        at if at.port() == 0 || at.ip().is_unspecified() => {
            Err("a destination needs an address and a port other than 0".into())
        }
        at => Ok(at),
    }
}

/// Parses a message address or a range: `7` or `100-199`.
pub fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("expected one or two numbers from 0 to 65535 (wide: 4294967295), such as 100-199".into()),
    }
}

/// Parses a rate in messages per second.
pub fn rate(text: &str) -> Result<u32, String> {
    let found = text.parse().ok().filter(|rate| (1..=10_000_000).contains(rate));
    found.ok_or_else(|| "expected messages per second, 1 to 10000000".into())
}

/// Parses the maximum size of a bundle, in octets.
fn bundle_size(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|octets| (MIN_DATAGRAM..=MAX_BUNDLE).contains(octets));
    found.ok_or_else(|| format!("expected {MIN_DATAGRAM} to {MAX_BUNDLE} octets"))
}

/// Parses the size of a workload message in octets, of which 24 are its header.
pub fn size(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 24 <= first && first <= last && last <= 65_500 => Ok(first..=last),
        _ => Err("expected 24 to 65500 octets, or a range of them such as 100-200".into()),
    }
}

/// Parses `N=ADDR:PORT`, or `N` in the wide format.
fn level1_peer(text: &str) -> Result<(u16, Option<SocketAddrV4>), String> {
    let (number, at) = text.split_once('=').map_or((text, None), |(number, at)| (number, Some(at)));
    let number = number.parse().ok().filter(|number| (1..=0x3fff).contains(number));
    let number = number.ok_or_else(|| {
        format!("expected a number and an address, such as 1=127.0.0.1:{CENTRAL_TO_LEVEL1}; wide: a number, such as 1")
    })?;
    Ok((number, at.map(|at| address(at, CENTRAL_TO_LEVEL1)).transpose()?))
}

/// Parses a unicast address of an interface.
fn interface(text: &str) -> Result<Ipv4Addr, String> {
    let found = text.parse().ok().filter(|ip: &Ipv4Addr| !ip.is_unspecified() && !ip.is_multicast());
    found.ok_or_else(|| "expected the IPv4 address of an interface".into())
}

fn capacity() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=1_000_000_000_000)
}

/// Parses the maximum time that a message waits.
pub fn deadline(text: &str) -> Result<Span, String> {
    in_range(span(text)?, ..=Span::from_s(1), "expected 0s to 1s")
}

/// Parses the interval of moves of groups; each move loses messages.
fn rebalance(text: &str) -> Result<Span, String> {
    match span(text)? {
        interval if interval.is_zero() || interval >= Span::from_s(1) => Ok(interval),
        _ => Err("expected 0s, or 1s or more".into()),
    }
}

/// Parses the interval of the capacity, 100 µs to one hour.
fn interval(text: &str) -> Result<Span, String> {
    in_range(span(text)?, Span::from_us(100)..=Span::from_s(3_600), "expected 100us to 1h")
}
