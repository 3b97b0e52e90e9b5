//! Flags of `trunkline llc`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use trunkline_llc::socket::Network;
use trunkline_llc::wire::{ALL, MAX_INFORMATION, MAX_PRIORITY};
use trunkline_units::{Rate, Span};

use super::values::{positive_span, span};

#[derive(Debug, Args)]
pub struct Llc {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Test every function of a station, one line each
    ///
    /// Runs against a second station in this process, or against `trunkline llc serve`. Exit status: 0 if all tests pass, 1
    /// if one fails.
    Test(Test),
    /// Measure the end-to-end delay of messages, user memory to user memory, by size and class
    ///
    /// Exit status: 0 if every acknowledged message arrived, 1 if one did not.
    Wrap(Wrap),
    /// Send messages at a given rate and measure packets/s and bits/s sent and received, by size
    Load(Load),
    /// Copy files to a station that runs `trunkline llc serve`; an interrupted copy resumes
    ///
    /// A rejected file does not delay the others. Exit status: 0 if every file was copied, 1 if one was not.
    Copy(Copy),
    /// Send TEST commands to a station, or XID commands, one per second
    ///
    /// Exit status: 0 if a station responded, 1 if none did.
    Ping(Ping),
    /// Compute the worst-case delay of reserved periodic messages in a token ring (admission control)
    ///
    /// Exit status: 0 if all deadlines can be met, 1 if one cannot.
    Admit(Admit),
    /// Run a station that echoes messages, counts them and receives files
    Serve(Serve),
}

/// The station that this command runs.
#[derive(Clone, Debug, Args)]
pub struct StationOptions {
    /// Network: eth:INTERFACE, udp:GROUP:PORT, or udp:GROUP:PORT@ADDRESS for an interface other than the loopback
    #[arg(long, value_name = "NETWORK", env = "LLC_NETWORK", default_value = "udp:239.192.82.0:48200")]
    pub network: Network,
    /// Number of this station, 1 to 254 [default: 1, for `serve` 2]
    #[arg(long, value_name = "N", env = "LLC_STATION", value_parser = station_number())]
    pub station: Option<u8>,
    /// Join a token ring and send only with the token; must be the same at all stations
    #[arg(long)]
    pub ring: bool,
}

/// The peer of a measurement.
#[derive(Clone, Debug, Args)]
pub struct PeerOptions {
    /// Number of a station that runs `trunkline llc serve` [default: a second station in this process]
    #[arg(long, value_name = "STATION", value_parser = station_number())]
    pub with: Option<u8>,
    /// Network of the second station, e.g. the other end of a veth pair [default: the same]
    #[arg(long, value_name = "NETWORK", conflicts_with = "with")]
    pub second: Option<Network>,
}

#[derive(Debug, Args)]
pub struct Test {
    #[command(flatten)]
    pub local: StationOptions,
    #[command(flatten)]
    pub other: PeerOptions,
    /// Print only the results, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Wrap {
    #[command(flatten)]
    pub local: StationOptions,
    /// Network of the second station, e.g. the other end of a veth pair [default: the same]
    #[arg(long, value_name = "NETWORK")]
    pub second: Option<Network>,
    /// Message sizes, in octets
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0,2,100,500,1000,1493",
          value_parser = octets())]
    pub size: Vec<u16>,
    /// Priorities; 7 is the highest
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,2,3,4,5,6,7",
          value_parser = clap::value_parser!(u8).range(0..=MAX_PRIORITY as i64))]
    pub priority: Vec<u8>,
    /// Messages per size, class and priority
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub messages: u32,
    /// Print only the results, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub local: StationOptions,
    #[command(flatten)]
    pub other: PeerOptions,
    /// Message sizes, in octets
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0,2,32,128,512,1024,1493",
          value_parser = octets())]
    pub size: Vec<u16>,
    /// Time to send each size
    #[arg(long, alias = "time", value_name = "DURATION", default_value = "1s", value_parser = positive_span)]
    pub duration: Span,
    /// Maximum number of messages per size
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: u64,
    /// Messages per second [default: as fast as possible]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// Message priority; 7 is the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=MAX_PRIORITY as i64))]
    pub priority: u8,
    /// Send acknowledged messages (type 3), one in flight at a time
    #[arg(long)]
    pub acknowledged: bool,
    /// Append a checksum to each message
    #[arg(long)]
    pub crc: bool,
    /// Maximum number of messages per system call
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: u16,
    /// Measure only the load, without the comparisons: same station, measurement, completion
    #[arg(long)]
    pub plain: bool,
    /// Print only the results, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Copy {
    #[command(flatten)]
    pub local: StationOptions,
    /// Files to copy, then the station or STATION:SAP
    #[arg(required = true, num_args = 1.., value_name = "FILE… STATION[:SAP]", value_hint = ValueHint::FilePath)]
    pub arguments: Vec<String>,
    /// Replace existing files
    #[arg(long)]
    pub force: bool,
    /// Message priority; 7 is the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=MAX_PRIORITY as i64))]
    pub priority: u8,
    /// Time to wait for a station that does not respond
    #[arg(long, alias = "patience", value_name = "DURATION", default_value = "30s", value_parser = positive_span)]
    pub timeout: Span,
    /// Print only the result, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ping {
    #[command(flatten)]
    pub local: StationOptions,
    /// Destination: a station or `all`, optionally with one of its SAPs
    #[arg(value_name = "STATION[:SAP]")]
    pub to: String,
    /// Number of commands to send [default: until Ctrl-C]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Interval between commands
    #[arg(long, short, value_name = "DURATION", default_value = "1s", value_parser = span)]
    pub interval: Span,
    /// Time to wait for a response
    #[arg(long, short = 'W', value_name = "DURATION", default_value = "1s", value_parser = positive_span)]
    pub timeout: Span,
    /// Size of the payload to echo, in octets
    #[arg(long, short, value_name = "OCTETS", default_value_t = 56, value_parser = octets())]
    pub size: u16,
    /// Message priority; 7 is the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=MAX_PRIORITY as i64))]
    pub priority: u8,
    /// Send XID commands, which ask for the supported classes
    #[arg(long)]
    pub xid: bool,
    /// Print only the responses, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Admit {
    /// Stations of the ring: their number, counted from 1, or a list, e.g. 1-16,20
    #[arg(long, value_name = "N|LIST", value_parser = stations)]
    pub stations: Stations,
    /// Periodic messages that a station, or each of `all`, may send, e.g. all:7:100:10ms; the deadline defaults to the period
    #[arg(long, value_name = "STATION:PRIORITY:OCTETS:PERIOD[:DEADLINE]", required = true, value_parser = promise)]
    pub promise: Vec<Promise>,
    /// Size of additional messages that every station sends at any rate, at priorities 0 to 3
    #[arg(long, value_name = "OCTETS", value_parser = octets())]
    pub background: Option<u16>,
    /// Rate of the link, in Mb/s
    #[arg(long, value_name = "MBPS", default_value = "10", value_parser = rate)]
    pub rate: Rate,
    /// Maximum time from the end of a frame on the link until the receiving station has processed it
    #[arg(long, value_name = "DURATION", default_value = "2us", value_parser = span)]
    pub hop: Span,
    /// The stations are connected by a switch
    #[arg(long)]
    pub switched: bool,
    /// Use the timers of `--ring`, for programs on a machine or a local network [default: the shortest that the link allows]
    #[arg(long)]
    pub programs: bool,
    /// Highest station number that is invited to join [default: the highest of the ring; with --programs 254]
    #[arg(long, value_name = "N", value_parser = station_number())]
    pub highest: Option<u8>,
    /// Stations that are invited to join in one window [default: 4; with --programs 8]
    #[arg(long, value_name = "N", value_parser = station_number())]
    pub invited: Option<u8>,
    /// Token losses to tolerate while a message waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub lost: u32,
    /// Station failures to tolerate while a message waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dead: u32,
    /// Print only the bounds, as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub local: StationOptions,
    /// Folder for received files [default: reject files]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub into: Option<PathBuf>,
    /// Maximum size of a received file, in octets
    #[arg(long, value_name = "OCTETS", default_value_t = 1 << 30)]
    pub largest: u64,
    /// Allow senders to replace existing files (`copy --force`)
    #[arg(long)]
    pub allow_force: bool,
    /// Print one JSON object per event
    #[arg(long)]
    pub json: bool,
}

/// Stations of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stations(pub Vec<u8>);

/// Periodic messages that a station, or each station, may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The station; `None` means all of them.
    pub station: Option<u8>,
    pub priority: u8,
    pub octets: u16,
    pub period: Span,
    pub deadline: Span,
}

fn station_number() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(1..i64::from(ALL))
}

fn octets() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(0..=MAX_INFORMATION as i64)
}

/// Parses a rate in Mb/s, rounded to 1 b/s.
fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<f64>() {
        Ok(mbps) if (1e-3..=1e6).contains(&mbps) => Ok(Rate::from_bps((mbps * 1e6).round() as u64)),
        _ => Err("expected a rate from 0.001 to 1000000 Mb/s".into()),
    }
}

fn stations(text: &str) -> Result<Stations, String> {
    let error = || "expected a number of stations, or a list such as 1-16,20, of 1 to 254".to_owned();
    let station = |text: &str| match text.trim().parse() {
        Ok(station) if (1..ALL).contains(&station) => Ok(station),
        _ => Err(error()),
    };
    if !text.contains([',', '-']) {
        return Ok(Stations((1..=station(text)?).collect()));
    }
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) if station(first)? <= station(last)? => {
                all.extend(station(first)?..=station(last)?)
            }
            Some(_) => return Err(error()),
            None => all.push(station(part)?),
        }
    }
    all.sort_unstable();
    let has_duplicate = all.windows(2).any(|pair| pair[0] == pair[1]);
    if has_duplicate { Err("a station is listed twice".into()) } else { Ok(Stations(all)) }
}

fn promise(text: &str) -> Result<Promise, String> {
    const FORM: &str = "expected STATION:PRIORITY:OCTETS:PERIOD[:DEADLINE], such as all:7:100:10ms";
    let fields: Vec<&str> = text.split(':').collect();
    let (&[station, priority, octets, period], rest) = fields.split_first_chunk().ok_or(FORM)?;
    let station = match station {
        "all" => None,
        number => Some(number.parse().ok().filter(|n| (1..ALL).contains(n)).ok_or(FORM)?),
    };
    let priority = priority.parse().ok().filter(|p| *p <= MAX_PRIORITY).ok_or("a priority is 0 to 7")?;
    let octets = octets.parse().ok().filter(|n| usize::from(*n) <= MAX_INFORMATION);
    let octets = octets.ok_or(format!("a message has at most {MAX_INFORMATION} octets"))?;
    let period = positive_span(period)?;
    let deadline = match *rest {
        [] => period,
        [deadline] => positive_span(deadline)?,
        _ => return Err(FORM.into()),
    };
    Ok(Promise { station, priority, octets, period, deadline })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_and_promises_are_parsed() {
        assert_eq!(stations("3"), Ok(Stations(vec![1, 2, 3])));
        assert_eq!(stations("7,1-3"), Ok(Stations(vec![1, 2, 3, 7])));
        for wrong in ["0", "255", "3-1", "1,1", "a", "", "1-"] {
            assert!(stations(wrong).is_err(), "{wrong}");
        }
        let whole = promise("9:6:100:10ms:5ms").unwrap();
        assert_eq!((whole.station, whole.priority, whole.octets), (Some(9), 6, 100));
        assert_eq!((whole.period, whole.deadline), (Span::from_ms(10), Span::from_ms(5)));
        assert_eq!(promise("all:7:100:10ms").unwrap().deadline, Span::from_ms(10));
        for wrong in
            ["all:8:100:10ms", "all:7:1498:10ms", "all:7:100:0ms", "0:7:100:10ms", "all:7:100", "a:b:c:d:e:f"]
        {
            assert!(promise(wrong).is_err(), "{wrong}");
        }
    }
}
