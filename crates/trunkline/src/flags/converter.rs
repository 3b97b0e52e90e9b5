//! Flags of the bundle converter's daemons. None is asked for: what is not said is in a file, or as on the loopback.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use trunkline_bundle::wire::classic::LONGEST;
use trunkline_bundle::wire::wide::LEAST_PATH;
use trunkline_units::Span;

/// Where the central converter hears level 1.
pub const LEVEL1_TO_CENTRAL: u16 = 3450;
/// Where level 1 hears it.
pub const CENTRAL_TO_LEVEL1: u16 = 3457;
/// Where it hears hosts.
pub const HOSTS_TO_CENTRAL: u16 = 3458;
/// Where hosts hear it.
pub const CENTRAL_TO_HOSTS: u16 = 3459;
/// The port of groups.
pub const GROUPS: u16 = 3456;
/// The port of DIS.
pub const DIS: u16 = 3000;
/// The group of the first 32 message addresses.
pub const BASE: Ipv4Addr = Ipv4Addr::new(234, 5, 1, 1);

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Converter {
    #[command(subcommand)]
    pub daemon: Daemon,
}

/// The daemons may be started in any order, and each again. They end on SIGTERM or Ctrl-C with status 0, and say what they
/// counted on SIGUSR1. Status 1: it could not go on; 2: the input or the usage is wrong.
#[derive(Debug, Subcommand)]
pub enum Daemon {
    /// Between multicast groups of the wide area and the central converter
    ///
    /// One line says what it is bound to. It ends on SIGTERM or Ctrl-C, and says what it counted on SIGUSR1.
    Level1(Level1),
    /// Between level 1 and hosts: who wants what, who gets it, and how much may go
    ///
    /// One line says what it is bound to. It ends on SIGTERM or Ctrl-C, and says what it counted on SIGUSR1.
    Central(Central),
    /// At a simulation: plain DIS to and from programs of this host, or a workload of its own
    ///
    /// One line says what it is bound to. It ends on SIGTERM or Ctrl-C, and says what it counted on SIGUSR1.
    Host(Host),
    /// Send the datagrams of a capture of DIS once more, to --dis of a host or to programs, at their pace or faster
    ///
    /// What they carry leaves as it is, from an address and port of this machine. It ends with the capture, and says how many
    /// it sent.
    Replay(Replay),
}

/// What all of them have, the same at each.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// A TOML file whose keys are the names of flags; what is said here as well counts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Bundles of 1997, or wide ones. The same at all converters and hosts [default: classic]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Which site this is: hosts of one central converter. The same at all of it; each site has another. Of the wide format
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16))]
    pub site: Option<u16>,
    /// Most octets of a bundle, 512 to 65507 [default: 65507 of the classic format; of the wide one what the interfaces carry in a
    /// packet, less 28]
    #[arg(long, value_name = "OCTETS", value_parser = longest)]
    pub longest: Option<usize>,
    /// What is dropped when there is too much: by levels as in 1997, or by what is left of the medium. Of the wide format, and the
    /// same at all of a site [default: rates]
    #[arg(long, value_name = "HOW")]
    pub congestion: Option<Congestion>,
    /// When bundles leave: with a tick of 5 ms, for least processor time, or for least delay [default: classic]
    #[arg(long, value_name = "HOW")]
    pub timers: Option<Timers>,
    /// How long an ordinary message may wait for others in its bundle, up to 1s. Each may have its own; of --timers processor and
    /// delay, as the next [default: 20ms and 5ms]
    #[arg(long, value_name = "SPAN", value_parser = deadline)]
    pub deadline: Option<Span>,
    /// How long a priority message may; 0s: its bundle leaves at once [default: 0s]
    #[arg(long, value_name = "SPAN", value_parser = deadline)]
    pub priority_deadline: Option<Span>,
    /// How long an interval is, of --capacity and of what levels of congestion let go. The same at all [default: 5ms]
    #[arg(long, value_name = "SPAN", value_parser = interval)]
    pub interval: Option<Span>,
    /// Odd message addresses have priority, and are joined together with the even one before them. The same at all
    #[arg(long)]
    pub pairs: bool,
    /// A page of what it counted, and /metrics for Prometheus, by HTTP [default: none]
    #[arg(long, value_name = "ADDR:PORT")]
    pub status: Option<SocketAddrV4>,
}

/// What stands on the wire between converters and hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// 16 hosts, 65,536 addresses.
    Classic,
    /// Any number of hosts, 32-bit addresses.
    Wide,
}

/// What is dropped when there is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Congestion {
    /// Level 3 is none; from 4 on 7 − level ordinary messages go in 5 ms, at 6 none
    Levels,
    /// Ordinary messages share what priority messages leave of the medium, and get what gets through
    Rates,
}

/// When bundles leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Timers {
    /// With a free-running tick of 5 ms, as in 1997
    Classic,
    /// 20 ms after their first message, those with priority at once
    Processor,
    /// At once if the last left 0.5 ms ago
    Delay,
}

#[derive(Clone, Debug, Args)]
pub struct Level1 {
    /// Which converter of level 1 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=0x3fff))]
    pub number: Option<u16>,
    /// Where the central converter hears level 1 [default: 127.0.0.1:3450]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, LEVEL1_TO_CENTRAL))]
    pub central: Option<SocketAddrV4>,
    /// Where to hear the central converter [default: 127.0.0.1:3457; wide: a free port of --interface]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, CENTRAL_TO_LEVEL1))]
    pub listen: Option<SocketAddrV4>,
    /// The address of the interface that has the groups [default: 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = interface)]
    pub interface: Option<Ipv4Addr>,
    /// The group of message addresses 0 to 31; the 2,047 that follow are those of the others [default: 234.5.1.1]
    #[arg(long, value_name = "GROUP")]
    pub base: Option<Ipv4Addr>,
    /// The port of the groups [default: 3456]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// How far messages to groups go: 1 is as far as there is no router between [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Central {
    /// Converters of level 1, and where they hear this one, such as 1=10.0.0.11: up to 6. In the wide format they say where they
    /// are, and this says which there may be, such as 7 [default: 1=127.0.0.1:3457; wide: numbers 1 to 6]
    #[arg(long, value_name = "N=ADDR:PORT", value_delimiter = ',', value_parser = level1)]
    pub level1: Vec<(u16, Option<SocketAddrV4>)>,
    /// Where to hear level 1 [default: 127.0.0.1:3450]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, LEVEL1_TO_CENTRAL))]
    pub listen_level1: Option<SocketAddrV4>,
    /// Where to hear hosts [default: 127.0.0.1:3458]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, HOSTS_TO_CENTRAL))]
    pub listen_hosts: Option<SocketAddrV4>,
    /// Where bundles for hosts go: one broadcast or multicast address, or a list of hosts. In the wide format hosts say where they
    /// are, and get bundles of their own unless this is an address that all of them hear [default: 127.0.0.1:3459; wide: none]
    #[arg(long, value_name = "ADDR:PORT", value_delimiter = ',',
          value_parser = |text: &str| address(text, CENTRAL_TO_HOSTS))]
    pub hosts: Vec<SocketAddrV4>,
    /// What the hosts' medium carries in an interval, in octets: 6000 is 10 Mb/s Ethernet, 60000 is 100 Mb/s
    /// [default: 600000]
    #[arg(long, value_name = "OCTETS", value_parser = capacity())]
    pub capacity: Option<u64>,
    /// The same between this converter and level 1 [default: as --capacity]
    #[arg(long, value_name = "OCTETS", value_parser = capacity())]
    pub wide_capacity: Option<u64>,
    /// How often level 1 is told again what it gets, also without a reason; 0s: never [default: 10s]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub retell: Option<Span>,
    /// How often groups may move from the converter of level 1 that hears most to the one that hears least; 0s: never. Of the
    /// classic format, in which nobody gets a group for 100 ms when it moves [default: 5s]
    #[arg(long, value_name = "SPAN", value_parser = rebalance)]
    pub rebalance: Option<Span>,
    /// How far bundles to a multicast address of --hosts go [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub ttl: Option<u8>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Host {
    /// Which host, up to 16; in the wide format up to 65535 [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    pub number: Option<u16>,
    /// Where the central converter hears hosts [default: 127.0.0.1:3458]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, HOSTS_TO_CENTRAL))]
    pub central: Option<SocketAddrV4>,
    /// Where bundles for hosts come: an address of this host, or the broadcast or multicast address that all have
    /// [default: 127.0.0.1:3459; wide: a free port of --interface]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, CENTRAL_TO_HOSTS))]
    pub listen: Option<SocketAddrV4>,
    /// The address of the interface on which multicast addresses are joined, and in the wide format of this host [default:
    /// 127.0.0.1]
    #[arg(long, value_name = "ADDR", value_parser = interface)]
    pub interface: Option<Ipv4Addr>,
    /// Speak plain DIS (IEEE 1278.1) with programs that send there: an address of this host, or a broadcast or multicast
    /// address that all of them hear [default: none]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| listening(text, DIS))]
    pub dis: Option<SocketAddrV4>,
    /// Where PDUs for the programs go [default: the broadcast or multicast address of --dis, or who last spoke]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, DIS))]
    pub dis_to: Option<SocketAddrV4>,
    /// Which PDUs go to which message address, and which addresses are wanted: TOML, see docs/bundle.md [default:
    /// everything to address 0, which is wanted]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub rules: Option<PathBuf>,
    /// Play a workload in place of a simulation, and print messages a second and delays: TOML, see docs/bundle.md
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub script: Option<PathBuf>,
    /// Play a workload: want these addresses
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    pub join: Vec<RangeInclusive<u32>>,
    /// Play a workload: send to these addresses in turn
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = range)]
    pub send: Vec<RangeInclusive<u32>>,
    /// Messages a second [default: 1000]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub rate: Option<u32>,
    /// Octets of a message without its address, 24 to 65500, or a range of which each size is as likely [default: 150]
    #[arg(long, value_name = "OCTETS", value_parser = size)]
    pub size: Option<RangeInclusive<usize>>,
    /// The messages have priority; of the wide format
    #[arg(long)]
    pub priority: bool,
    /// How long each message with priority may wait in a converter, whatever its deadlines; in the classic format only this host
    /// knows [default: as they say]
    #[arg(long, value_name = "SPAN", value_parser = deadline)]
    pub within: Option<Span>,
    /// Take no more than so many ordinary messages a second, 1 or more: the others are dropped and counted where they would
    /// leave. Of the wide format [default: any]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub saturate: Option<u32>,
    /// How long the workload is played [default: until all is sent; until it is ended]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub time: Option<Span>,
    /// How often the central converter is told again what this host wants; 0s: only when it refused [default: 1s]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub retell: Option<Span>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// A capture: pcap, of Ethernet, IP or Linux's `any`
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub capture: PathBuf,
    /// Where to send to [default: 127.0.0.1:3000]
    #[arg(long, value_name = "ADDR:PORT", value_parser = |text: &str| address(text, DIS))]
    pub to: Option<SocketAddrV4>,
    /// How many times faster than it was captured, up to 1000000 [default: 1]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub speed: Option<u32>,
    /// The port that the datagrams of the capture went to; all others are passed over [default: 3000]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

/// A port of the loopback.
pub fn loopback(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

/// Where to listen: `ADDR:PORT`, or `ADDR` with the port that is usual there; 0: any.
fn listening(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    let alone = || text.parse().map(|ip| SocketAddrV4::new(ip, port)).ok();
    let found = text.parse().ok().or_else(alone);
    found.ok_or_else(|| format!("expected an IPv4 address and perhaps a port, such as 127.0.0.1:{port}"))
}

/// Where to send.
fn address(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    match listening(text, port)? {
        at if at.port() == 0 || at.ip().is_unspecified() => Err("nobody can be there".into()),
        at => Ok(at),
    }
}

/// As everywhere.
pub fn span(text: &str) -> Result<Span, String> {
    super::span(text)
}

/// `7` or `100-199`.
pub fn range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("expected one or two numbers from 0 to 65535 (wide: 4294967295), such as 100-199".into()),
    }
}

/// Messages a second.
pub fn rate(text: &str) -> Result<u32, String> {
    let found = text.parse().ok().filter(|rate| (1..=10_000_000).contains(rate));
    found.ok_or_else(|| "expected a number of messages a second, 1 to 10000000".into())
}

/// Octets of a bundle.
fn longest(text: &str) -> Result<usize, String> {
    let found = text.parse().ok().filter(|octets| (LEAST_PATH..=LONGEST).contains(octets));
    found.ok_or_else(|| format!("expected {LEAST_PATH} to {LONGEST} octets"))
}

/// Octets of a message of the workload: 24 of them say what it is.
pub fn size(text: &str) -> Result<RangeInclusive<usize>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 24 <= first && first <= last && last <= 65_500 => Ok(first..=last),
        _ => Err("expected 24 to 65500 octets, or a range of them such as 100-200".into()),
    }
}

/// `N=ADDR:PORT`, or `N`, which is enough in the wide format.
fn level1(text: &str) -> Result<(u16, Option<SocketAddrV4>), String> {
    let (number, at) = text.split_once('=').map_or((text, None), |(number, at)| (number, Some(at)));
    let number = number.parse().ok().filter(|number| (1..=0x3fff).contains(number));
    let number = number.ok_or_else(|| {
        format!("expected a number and an address, such as 1=127.0.0.1:{CENTRAL_TO_LEVEL1}; wide: a number, such as 1")
    })?;
    Ok((number, at.map(|at| address(at, CENTRAL_TO_LEVEL1)).transpose()?))
}

/// An address that an interface may have.
fn interface(text: &str) -> Result<Ipv4Addr, String> {
    let found = text.parse().ok().filter(|ip: &Ipv4Addr| !ip.is_unspecified() && !ip.is_multicast());
    found.ok_or_else(|| "expected the IPv4 address of an interface".into())
}

fn capacity() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..=1_000_000_000_000)
}

/// How long a message may wait.
pub fn deadline(text: &str) -> Result<Span, String> {
    let some = span(text)?;
    if some <= Span::from_s(1) { Ok(some) } else { Err("expected 0s to 1s".into()) }
}

/// How often groups may move: each time costs messages.
fn rebalance(text: &str) -> Result<Span, String> {
    match span(text)? {
        some if some.is_zero() || some >= Span::from_s(1) => Ok(some),
        _ => Err("expected 0s, or 1s or more".into()),
    }
}

fn interval(text: &str) -> Result<Span, String> {
    let some = span(text)?;
    match (Span::from_us(100)..=Span::from_s(3_600)).contains(&some) {
        true => Ok(some),
        false => Err("expected 100us to 1h".into()),
    }
}
