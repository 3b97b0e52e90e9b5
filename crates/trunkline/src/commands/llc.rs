//! `trunkline llc`: the tools of 1990 by today's habits.
//!
//! | module | what |
//! | --- | --- |
//! | [`mod@test`] | all functions of a station, one line each |
//! | [`wrap`] | end to end delay by size and class |
//! | [`load`] | offered load: packets and bits a second, losses |
//! | [`copy`], [`keep`] | files between stations: who sends, who keeps |
//! | [`talk`] | what those two say to each other |
//! | [`ping`] | TEST and XID |
//! | [`admit`] | which promises a ring can keep |
//! | [`serve`] | a station for the others: echo, counts, files |
//! | [`figures`] | processor time, distributions, tables |

mod admit;
mod copy;
mod figures;
mod keep;
mod load;
mod ping;
mod serve;
mod talk;
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

/// Version of what `--json` prints.
const VERSION: u32 = 1;

/// Keeps files.
const FILES: u8 = 0x60;
/// Sends back what comes, with the priority that it came with.
const ECHO: u8 = 0x64;
/// The same, with a checksum.
const CHECKED_ECHO: u8 = 0x68;
/// Counts what comes.
const SINK: u8 = 0x6c;
/// The same, with a checksum.
const CHECKED_SINK: u8 = 0x70;
/// Tells what the sinks have counted of whoever asks, and begins anew.
const COUNT: u8 = 0x74;
/// From where the tools send, and with a checksum.
const OWN: u8 = 0x78;
const CHECKED_OWN: u8 = 0x7c;
/// The group of the echo.
const GROUP: u8 = ECHO | 1;

/// The station of `serve`, and the second one in a process, unless said.
const SERVING: u8 = 2;
const SECOND: u8 = 254;

/// How long a ring is waited for.
const FORMS: u32 = 1_000;
const LOOK: Duration = Duration::from_millis(10);

/// Does what was said.
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

/// Acknowledged messages that get through unless nobody is there: a busy machine, or a ring that is being mended, may be
/// silent for a while.
fn stubborn(priority: u8) -> Options {
    Options { response_timeout: Span::from_ms(50), tries: 100, ..Options::acknowledged(priority) }
}

/// How stations of these tools behave.
fn settings(place: &StationOptions) -> Settings {
    Settings { ring: place.ring.then(token::Options::default), ..Settings::default() }
}

/// Attaches a station.
fn attach(network: &Network, number: u8, settings: &Settings) -> Result<StationSocket, Failure> {
    StationSocket::to(network, number, settings).map_err(|e| {
        let why = match (&e, network) {
            (Error::System(e), Network::Ethernet { .. }) if e.kind() == io::ErrorKind::PermissionDenied => {
                "frames need the right to open packet sockets (root, or CAP_NET_RAW); udp:… needs none".into()
            }
            (Error::System(e), _) if e.kind() == io::ErrorKind::AddrInUse => {
                format!(
                    "this machine has a station {number} there already; give another number with --station"
                )
            }
            (Error::System(e), Network::Ethernet { .. }) if e.raw_os_error() == Some(NO_DEVICE) => {
                "there is no such interface".into()
            }
            _ => e.to_string(),
        };
        Failure::input(format!("{network}: {why}"))
    })
}

/// `ENODEV`.
const NO_DEVICE: i32 = 19;

/// What a station or the system did not do.
fn failed(e: Error) -> Failure {
    Failure::run(e)
}

/// A station of the user's, in its ring if there is one.
fn own(place: &StationOptions, settings: &Settings, stop: &StopFlag) -> Result<StationSocket, Failure> {
    let station = attach(&place.network, place.station.unwrap_or(1), settings)?;
    belongs(&station, settings, None, stop)?;
    Ok(station)
}

/// Waits until a station is in a ring, and another one too.
fn belongs(
    station: &StationSocket,
    settings: &Settings,
    other: Option<u8>,
    stop: &StopFlag,
) -> Result<(), Failure> {
    if settings.ring.is_none() {
        return Ok(());
    }
    for _ in 0..FORMS {
        let members = station.members();
        if members.has(station.number()) && other.is_none_or(|other| members.has(other)) {
            return Ok(());
        }
        if stop.is_requested() {
            return Err(stopped());
        }
        nap(LOOK);
    }
    Err(Failure::run(match other {
        Some(other) => format!("station {other} has come into no ring with station {}", station.number()),
        None => format!("station {} has come into no ring", station.number()),
    }))
}

#[expect(clippy::disallowed_methods, reason = "a tool waits in real time")]
fn nap(span: Duration) {
    std::thread::sleep(span);
}

fn stopped() -> Failure {
    Failure::run("stopped on request")
}

/// Who is measured with: a station that serves, or a second one in this process.
struct Pair {
    own: StationSocket,
    /// In this process.
    second: Option<StationSocket>,
    /// Its number.
    other: u8,
}

impl Pair {
    fn open(
        place: &StationOptions,
        other: &PeerOptions,
        settings: &Settings,
        stop: &StopFlag,
    ) -> Result<Pair, Failure> {
        let number = place.station.unwrap_or(1);
        let second = match other.with {
            Some(other) if other == number => {
                return Err(Failure::input(format!("--with {other} is this station itself")));
            }
            Some(_) => None,
            None => {
                let network = other.second.as_ref().unwrap_or(&place.network);
                let second = if number == SECOND { SECOND - 1 } else { SECOND };
                Some(attach(network, second, settings)?)
            }
        };
        let own = attach(&place.network, number, settings)?;
        let number = other.with.or_else(|| second.as_ref().map(StationSocket::number)).unwrap_or(SECOND);
        belongs(&own, settings, Some(number), stop)?;
        // Whoever does not hear itself says so at once, not after a minute of silence.
        let sap = own.open(OWN, &Options::default()).map_err(failed)?;
        let heard = (0..5).any(|_| sap.test(Address { sap: 0, station: number }, b"", ANSWERS).is_ok());
        match (heard, &second) {
            (true, _) => Ok(Pair { own, second, other: number }),
            (false, None) => {
                Err(Failure::run(format!("station {number} does not answer on {}", place.network)))
            }
            (false, Some(_)) => Err(Failure::input(format!(
                "two stations of this process do not hear each other on {}: name the interface of the second one \
                 with --second, or a station that serves with --with",
                place.network
            ))),
        }
    }
}

/// How long somebody who is there may take to answer a TEST.
const ANSWERS: Duration = Duration::from_millis(400);

/// `STATION` or `STATION:SAP`; `all` is all stations.
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
            "`{text}` is no station: expected 1 to 254 or all, and perhaps a SAP, 0 to {GLOBAL_SAP}: 7, 7:0x60"
        ))),
    }
}
