//! `trunkline llc`: tools for LLC stations.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@test`] | every function of a station |
//! | [`wrap`] | end-to-end delay by size and class |
//! | [`load`] | throughput and loss by size |
//! | [`copy`], [`file_store`] | copying files between stations: the client, and the service |
//! | [`copy_protocol`] | the messages of both |
//! | [`ping`] | TEST and XID |
//! | [`admit`] | delay bounds of a ring |
//! | [`serve`] | a station with echo, counter and file services |
//! | [`figures`] | processor time, distributions, tables |

mod admit;
mod copy;
mod copy_protocol;
pub(super) mod figures;
mod file_store;
mod load;
mod ping;
mod serve;
mod test;
mod wrap;

use std::io;
use std::time::Duration;

use trunkline_llc::socket::{Error, Network, Settings, StationSocket};
use trunkline_llc::wire::{ALL, GLOBAL_SAP};
use trunkline_llc::{Address, Options, token};
use trunkline_run::StopFlag;
use trunkline_units::Span;

use super::run::stop_on_signals;
use crate::failure::Failure;
use crate::flags::llc::{PeerOptions, StationOptions, Tool};

/// Version of the JSON output.
const VERSION: u32 = 1;

/// SAP of the file service.
const FILES: u8 = 0x60;
/// SAP of the echo service, which returns each message with its priority.
const ECHO: u8 = 0x64;
/// The same service with a checksum.
const CHECKED_ECHO: u8 = 0x68;
/// SAP of the sink, which counts messages.
const SINK: u8 = 0x6c;
/// The same service with a checksum.
const CHECKED_SINK: u8 = 0x70;
/// SAP of the counter service, which returns and resets a station's counts of the sinks.
const COUNT: u8 = 0x74;
/// SAP from which the tools send; the next one has a checksum.
const OWN: u8 = 0x78;
const CHECKED_OWN: u8 = 0x7c;
const GROUP: u8 = ECHO | 1;

/// Default number of the station of `serve`, and of the second station in a process.
const SERVING: u8 = 2;
const SECOND: u8 = 254;

/// Maximum number of checks whether the ring has formed.
const RING_CHECKS: u32 = 1_000;
/// Interval between these checks.
const RING_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Runs a tool.
pub fn llc(tool: &Tool) -> Result<(), Failure> {
    match tool {
        Tool::Admit(flags) => admit::admit(flags),
        Tool::Test(flags) => test::test(flags, &stop_on_signals()?),
        Tool::Wrap(flags) => wrap::wrap(flags, &stop_on_signals()?),
        Tool::Load(flags) => load::load(flags, &stop_on_signals()?),
        Tool::Copy(flags) => copy::copy(flags, &stop_on_signals()?),
        Tool::Ping(flags) => ping::ping(flags, &stop_on_signals()?),
        Tool::Serve(flags) => serve::serve(flags, &stop_on_signals()?),
    }
}

/// Returns options for acknowledged messages with many retries, because a busy machine or a ring under repair may not
/// respond for a while.
fn persistent(priority: u8) -> Options {
    Options { response_timeout: Span::from_ms(50), tries: 100, ..Options::acknowledged(priority) }
}

/// Returns the settings of the tools' stations.
fn settings(local: &StationOptions) -> Settings {
    Settings { ring: local.ring.then(token::Options::default), ..Settings::default() }
}

fn attach(network: &Network, number: u8, settings: &Settings) -> Result<StationSocket, Failure> {
    StationSocket::to(network, number, settings).map_err(|e| {
        let reason = match (&e, network) {
            (Error::System(e), Network::Ethernet { .. }) if e.kind() == io::ErrorKind::PermissionDenied => {
                "packet sockets need root or CAP_NET_RAW; udp:… needs neither".into()
            }
            (Error::System(e), _) if e.kind() == io::ErrorKind::AddrInUse => {
                format!(
                    "station {number} is already in use on this machine; select another number with --station"
                )
            }
            (Error::System(e), Network::Ethernet { .. }) if e.raw_os_error() == Some(NO_DEVICE) => {
                "no such interface".into()
            }
            _ => e.to_string(),
        };
        Failure::input(format!("{network}: {reason}"))
    })
}

/// `ENODEV` of errno(3).
const NO_DEVICE: i32 = 19;

/// Converts an error of a station or of the system.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::run(error)
    }
}

/// Attaches the tool's station, and waits for its ring if there is one.
fn attach_own(local: &StationOptions, stop: &StopFlag) -> Result<StationSocket, Failure> {
    let settings = settings(local);
    let station = attach(&local.network, local.station.unwrap_or(1), &settings)?;
    wait_for_ring(&station, &settings, None, stop)?;
    Ok(station)
}

/// Waits until this station and another one are in the ring.
fn wait_for_ring(
    station: &StationSocket,
    settings: &Settings,
    other: Option<u8>,
    stop: &StopFlag,
) -> Result<(), Failure> {
    if settings.ring.is_none() {
        return Ok(());
    }
    for _ in 0..RING_CHECKS {
        let members = station.members();
        if members.has(station.number()) && other.is_none_or(|other| members.has(other)) {
            return Ok(());
        }
        if stop.is_requested() {
            return Err(stopped());
        }
        pause(RING_CHECK_INTERVAL);
    }
    Err(Failure::run(match other {
        Some(other) => format!("station {other} did not join a ring with station {}", station.number()),
        None => format!("station {} did not join a ring", station.number()),
    }))
}

#[expect(clippy::disallowed_methods, reason = "a tool waits in real time")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}

fn stopped() -> Failure {
    Failure::run("stopped on request")
}

/// The stations of a measurement: its own, and one that serves on the network or in this process.
struct Pair {
    own: StationSocket,
    /// The second station in this process.
    second: Option<StationSocket>,
    /// Number of the other station.
    other: u8,
}

impl Pair {
    fn open(
        local: &StationOptions,
        other: &PeerOptions,
        settings: &Settings,
        stop: &StopFlag,
    ) -> Result<Pair, Failure> {
        let number = local.station.unwrap_or(1);
        let second = match other.with {
            Some(other) if other == number => {
                return Err(Failure::input(format!("--with {other} is the number of this station")));
            }
            Some(_) => None,
            None => {
                let network = other.second.as_ref().unwrap_or(&local.network);
                let second = if number == SECOND { SECOND - 1 } else { SECOND };
                Some(attach(network, second, settings)?)
            }
        };
        let own = attach(&local.network, number, settings)?;
        let number = other.with.or_else(|| second.as_ref().map(StationSocket::number)).unwrap_or(SECOND);
        wait_for_ring(&own, settings, Some(number), stop)?;
        // A station that does not receive its own broadcast fails immediately, not after a minute of silence.
        let sap = own.open(OWN, &Options::default())?;
        let has_response =
            (0..5).any(|_| sap.test(Address { sap: 0, station: number }, b"", RESPONSE_TIMEOUT).is_ok());
        match (has_response, &second) {
            (true, _) => Ok(Pair { own, second, other: number }),
            (false, None) => {
                Err(Failure::run(format!("station {number} does not answer on {}", local.network)))
            }
            (false, Some(_)) => Err(Failure::input(format!(
                "the two stations of this process cannot reach each other on {}: select the interface of the second one \
                 with --second, or a serving station with --with",
                local.network
            ))),
        }
    }
}

/// Time limit of a response to TEST.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(400);

/// Parses `STATION` or `STATION:SAP`; `all` means all stations.
fn address(text: &str, sap: u8) -> Result<Address, Failure> {
    let (station, of) = text.split_once(':').map_or((text, None), |(station, sap)| (station, Some(sap)));
    let station = match station {
        "all" => Some(ALL),
        number => number.parse().ok().filter(|n| (1..ALL).contains(n)),
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u8::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match (station, of.map_or(Some(sap), number)) {
        (Some(station), Some(sap)) => Ok(Address { sap, station }),
        _ => Err(Failure::input(format!(
            "`{text}` is not a station: expected 1 to 254 or all, optionally with a SAP from 0 to {GLOBAL_SAP}, such as 7 or 7:0x60"
        ))),
    }
}
