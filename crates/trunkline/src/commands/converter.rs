//! `trunkline converter`: the daemons of the bundle converter.
//!
//! | module | contents |
//! | --- | --- |
//! | [`config`] | flags from a TOML file |
//! | [`control`] | signals and status requests, in the daemon's event loop |
//! | [`replay`] | replay of the datagrams of a capture |
//! | [`rules`] | rules that map PDUs to message addresses, from a TOML file |
//! | [`status`] | the HTTP server of the status page |
//! | [`workload`] | the workload generator of a host |

pub mod config;
mod control;
mod replay;
mod rules;
mod status;
mod workload;

use std::net::{Ipv4Addr, SocketAddrV4};

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::central::{CentralConfig, MAX_LEVEL1};
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::Fanout;
use trunkline_bundle::socket::{
    CentralOptions, CentralSocket, DisOptions, Error, HostOptions, HostSocket, Level1Options, Level1Socket,
    SocketDriver, central, host, max_datagram_on,
};
use trunkline_bundle::wire::classic::{self, MAX_HOSTS, Source};
use trunkline_bundle::wire::format2::{self as wire, DEFAULT_DATAGRAM};
use trunkline_bundle::{Format, Format2, Settings};
use trunkline_io::Clock;

use self::control::Control;
use self::workload::Script;
use crate::failure::{Failure, print};
use crate::flags::converter::{
    self as flags, BASE, CENTRAL_TO_HOSTS, CENTRAL_TO_LEVEL1, Central, Common, Daemon, GROUPS,
    HOSTS_TO_CENTRAL, Host, LEVEL1_TO_CENTRAL, Level1, loopback,
};

/// Octets that 1 Gb/s Ethernet carries in 5 ms, in proportion to 6,000 octets for 10 Mb/s.
const CAPACITY: u64 = 600_000;

/// Runs a daemon.
pub fn converter(daemon: &Daemon) -> Result<(), Failure> {
    match daemon {
        Daemon::Level1(flags) => level1(config::complete(flags, flags.common.config.as_deref())?),
        Daemon::Central(flags) => central(config::complete(flags, flags.common.config.as_deref())?),
        Daemon::Host(flags) => host(config::complete(flags, flags.common.config.as_deref())?),
        Daemon::Replay(flags) => replay::replay(flags),
    }
}

fn level1(flags: Level1) -> Result<(), Failure> {
    let interface = flags.interface.unwrap_or(Ipv4Addr::LOCALHOST);
    let is_wide = flags.common.is_wide();
    let listen = flags.listen.unwrap_or_else(|| own_address(is_wide, interface, CENTRAL_TO_LEVEL1));
    let options = Level1Options {
        settings: settings(&flags.common, [*listen.ip(), interface])?,
        number: flags.number.unwrap_or(1),
        central: flags.central.unwrap_or(loopback(LEVEL1_TO_CENTRAL)),
        listen,
        interface,
        base: flags.base.unwrap_or(BASE),
        port: flags.port.unwrap_or(GROUPS),
        ttl: flags.ttl.unwrap_or(1),
    };
    serve(Level1Socket::open(&options, Clock::start()).map_err(open_error)?, &flags.common, |_| {})
}

/// Returns the default address to listen on: in the wide format a free port, because the address is announced.
fn own_address(is_wide: bool, interface: Ipv4Addr, port: u16) -> SocketAddrV4 {
    if is_wide { SocketAddrV4::new(interface, 0) } else { loopback(port) }
}

/// Returns the level-1 converters: their numbers, and their addresses if the format needs them.
fn converters(
    flags: Vec<(u16, Option<SocketAddrV4>)>,
    is_wide: bool,
) -> Result<(Vec<u16>, Vec<SocketAddrV4>), Failure> {
    if flags.is_empty() {
        return Ok(match is_wide {
            true => ((1..=MAX_LEVEL1 as u16).collect(), Vec::new()),
            false => (vec![1], vec![loopback(CENTRAL_TO_LEVEL1)]),
        });
    }
    if flags.len() > MAX_LEVEL1 {
        return Err(Failure::input(format!(
            "--level1: {} converters are given, at most {MAX_LEVEL1} are supported",
            flags.len()
        )));
    }
    if let (false, Some((number, _))) = (is_wide, flags.iter().find(|(_, at)| at.is_none())) {
        return Err(Failure::input(format!(
            "--level1 {number}: the classic format needs an address, such as {number}=127.0.0.1:{CENTRAL_TO_LEVEL1}"
        )));
    }
    let numbers: Vec<u16> = flags.iter().map(|(number, _)| *number).collect();
    let at = flags.into_iter().filter_map(|(_, at)| at).collect();
    if let Some(duplicate) =
        numbers.iter().enumerate().find_map(|(n, one)| numbers[..n].contains(one).then_some(one))
    {
        return Err(Failure::input(format!("--level1: number {duplicate} is given twice")));
    }
    Ok((numbers, at))
}

/// Returns the addresses for bundles to all hosts.
fn to_hosts(flags: Vec<SocketAddrV4>, is_wide: bool) -> Result<Vec<SocketAddrV4>, Failure> {
    if is_wide {
        let is_for_all = |to: &SocketAddrV4| host::is_shared(*to.ip());
        return match &flags[..] {
            [] => Ok(flags),
            [to] if is_for_all(to) => Ok(flags),
            _ => Err(Failure::input(
                "--hosts: with --format wide, expected one broadcast or multicast address; hosts announce their own addresses",
            )),
        };
    }
    if flags.len() > usize::from(MAX_HOSTS) {
        return Err(Failure::input(format!(
            "--hosts: {} hosts are given, at most {MAX_HOSTS} are supported",
            flags.len()
        )));
    }
    Ok(if flags.is_empty() { vec![loopback(CENTRAL_TO_HOSTS)] } else { flags })
}

fn central(flags: Central) -> Result<(), Failure> {
    let is_wide = flags.common.is_wide();
    if is_wide && flags.rebalance.is_some() {
        return Err(Failure::input("--rebalance needs --format classic; the wide format always rebalances"));
    }
    let (numbers, at) = converters(flags.level1, is_wide)?;
    let hosts = to_hosts(flags.hosts, is_wide)?;
    let listen_level1 = flags.listen_level1.unwrap_or(loopback(LEVEL1_TO_CENTRAL));
    let listen_hosts = flags.listen_hosts.unwrap_or(loopback(HOSTS_TO_CENTRAL));
    let mut settings = settings(&flags.common, [*listen_level1.ip(), *listen_hosts.ip()])?;
    if let (Format::Format2(wide), false) = (&mut settings.format, hosts.is_empty()) {
        wide.fanout = Fanout::Broadcast;
    }
    let capacity = flags.capacity.unwrap_or(CAPACITY);
    let medium = |capacity| Medium { capacity, interval: settings.interval };
    let options = CentralOptions {
        config: CentralConfig {
            settings,
            level1: numbers,
            hosts: MAX_HOSTS,
            local: medium(capacity),
            wide_area: medium(flags.wide_capacity.unwrap_or(capacity)),
        },
        level1: at,
        listen_level1,
        listen_hosts,
        hosts,
        ttl: flags.ttl.unwrap_or(1),
        refresh: flags.retell.unwrap_or(central::REFRESH_INTERVAL),
        rebalance: flags.rebalance.unwrap_or(central::REBALANCE_INTERVAL),
    };
    serve(CentralSocket::open(&options, Clock::start()).map_err(open_error)?, &flags.common, |_| {})
}

fn host(flags: Host) -> Result<(), Failure> {
    let is_wide = flags.common.is_wide();
    let number = flags.number.unwrap_or(1);
    if !is_wide && number > MAX_HOSTS.into() {
        return Err(Failure::input(format!(
            "--number {number}: the classic format supports hosts 1 to {MAX_HOSTS}; use --format wide for more"
        )));
    }
    if !is_wide && (flags.priority || flags.saturate.is_some()) {
        return Err(Failure::input("--priority and --saturate need --format wide"));
    }
    for (flag, is_given) in [("--rules", flags.rules.is_some()), ("--dis-to", flags.dis_to.is_some())] {
        if is_given && flags.dis.is_none() {
            return Err(Failure::input(format!("{flag} needs --dis, the address that DIS programs send to")));
        }
    }
    let script = Script::from_flags(&flags, is_wide)?;
    let dis = |listen| {
        let rules = rules::read(flags.rules.as_deref(), is_wide, flags.common.pairs)?;
        Ok::<_, Failure>(DisOptions { listen, destination: flags.dis_to, rules })
    };
    let interface = flags.interface.unwrap_or(Ipv4Addr::LOCALHOST);
    let listen = flags.listen.unwrap_or_else(|| own_address(is_wide, interface, CENTRAL_TO_HOSTS));
    let sends_by = if host::is_shared(*listen.ip()) { interface } else { *listen.ip() };
    let options = HostOptions {
        settings: settings(&flags.common, [sends_by; 2])?,
        number,
        central: flags.central.unwrap_or(loopback(HOSTS_TO_CENTRAL)),
        listen,
        interface,
        refresh: flags.retell.unwrap_or(host::REFRESH_INTERVAL),
        dis: flags.dis.map(dis).transpose()?,
    };
    let longest = longest_body(&options.settings);
    if let Some(size) = script.as_ref().and_then(Script::longest).filter(|size| *size > longest) {
        return Err(Failure::input(format!(
            "a body of {size} octets is too long; the maximum is {longest} (--longest)"
        )));
    }
    let clock = Clock::start();
    let mut socket = HostSocket::open(&options, clock).map_err(open_error)?;
    if flags.saturate.is_some() {
        socket.saturate(flags.saturate).map_err(Failure::run)?;
    }
    let Some(script) = script else {
        // Without DIS programs received messages are only counted.
        let (discards, mut body) = (flags.dis.is_none(), Vec::new());
        return serve(
            socket,
            &flags.common,
            |socket| while discards && socket.receive(&mut body).is_some() {},
        );
    };
    let mut control = Control::new(&mut socket, flags.common.status)?;
    print(&format!("{}\n", socket.local_addresses()))?;
    workload::play(&script, &mut socket, &mut control, options.settings, options.number, clock)?;
    let has_answer = socket.has_central_answered();
    socket.shutdown().map_err(Failure::run)?;
    match has_answer {
        true => Ok(()),
        false => Err(Failure::run(format!("no central converter answered at {}", options.central))),
    }
}

impl Common {
    fn is_wide(&self) -> bool {
        self.format == Some(flags::Format::Wide)
    }
}

/// Returns the settings that all converters and hosts share. Unless given, the bundle length is what the interfaces
/// of these addresses carry.
fn settings(common: &Common, interfaces: [Ipv4Addr; 2]) -> Result<Settings, Failure> {
    let format = match common.is_wide() {
        true => {
            // If the interface is unknown, use a length that every path carries.
            let carried = interfaces.map(|interface| max_datagram_on(interface).unwrap_or(DEFAULT_DATAGRAM));
            Format::Format2(Format2 {
                site: common.site.unwrap_or(1),
                max_datagram: common.longest.unwrap_or(carried[0].min(carried[1])),
                congestion: common.congestion.unwrap_or(Congestion::Rates),
                ..Format2::default()
            })
        }
        false if common.site.is_some() || common.congestion.is_some() => {
            return Err(Failure::input("--site and --congestion need --format wide"));
        }
        false => Format::Classic,
    };
    let timing = common.timers.unwrap_or(Timing::CLASSIC);
    let timing = timing.with_deadlines(common.deadline, common.priority_deadline).ok_or_else(|| {
        Failure::input("--deadline and --priority-deadline need --timers processor or delay")
    })?;
    let defaults = Settings::default();
    let interval = common.interval.unwrap_or(defaults.interval);
    let longest = common.longest.unwrap_or(defaults.max_bundle);
    Ok(Settings { timing, pairs: common.pairs, interval, max_bundle: longest, format })
}

/// Returns the maximum length of a message body, in octets, if it is not a PDU.
fn longest_body(settings: &Settings) -> usize {
    match settings.format2() {
        Some(wide) => wire::max_body(wide.max_datagram_octets()),
        None => classic::ClassicBuilder::new(Some(Source::Host(1)), settings.max_bundle).max_body(),
    }
}

/// Converts an error of opening a socket: a wrong or used address is an input error.
fn open_error(error: Error) -> Failure {
    match error {
        Error::System(_) => Failure::run(error),
        Error::Socket(_) | Error::Base(_) => Failure::input(error),
    }
}

/// Serves until it is stopped; calls `after` at the end of each turn.
fn serve<F: SocketDriver>(
    mut socket: F,
    common: &Common,
    mut after: impl FnMut(&mut F),
) -> Result<(), Failure> {
    let mut control = Control::new(&mut socket, common.status)?;
    print(&format!("{}\n", socket.local_addresses()))?;
    loop {
        let ready = socket.turn(None).map_err(Failure::run)?;
        after(&mut socket);
        if control.serve(ready, &mut socket)? {
            return socket.shutdown().map_err(Failure::run);
        }
    }
}

/// The flags of docs/reference/bundle.md.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_the_documents_are_valid() {
        let text = include_str!("../../../../docs/reference/bundle.md");
        let blocks: Vec<&str> =
            text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        let [config, rules, script] = blocks[..] else { panic!("{} blocks", blocks.len()) };
        let central: Central = config::parse(config).unwrap();
        assert_eq!((central.level1.len(), central.capacity), (2, Some(60_000)));
        let rules = rules::parse(rules).unwrap();
        assert_eq!((rules.rules.len(), rules.default_address), (3, Some(100)));
        assert_eq!(rules.subscribed, [100..=100, 101..=103]);
        assert_eq!(rules.around_entities, [([7, 8, 256], 1)].into());
        workload::parse(script).unwrap();
    }
}
