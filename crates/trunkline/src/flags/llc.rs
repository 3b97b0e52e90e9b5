//! What may be said of the tools of logical link control.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use trunkline_llc::face::Network;
use trunkline_llc::wire::{ALL, HIGHEST, MAX_INFORMATION};
use trunkline_units::{Rate, Span};

use super::span;

#[derive(Debug, Args)]
pub struct Llc {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Try all functions of a station, one line each
    ///
    /// Against a second station in this process, or against one that serves. Exit status 0 if all work, 1 if one does not.
    Test(Test),
    /// Measure the delay of messages end to end, from user memory to user memory, by size and class
    ///
    /// Exit status 0 if every acknowledged message came, 1 if one did not.
    Wrap(Wrap),
    /// Offer load: packets and bits a second sent and received, by size
    Load(Load),
    /// Copy files to a station that serves; what was interrupted goes on where it stopped
    ///
    /// A file that is refused holds up no other. Exit status 0 if every file is there, whole, 1 if one is not.
    Copy(Copy),
    /// Ask a station to send something back (TEST), or what it speaks (XID), once a second
    ///
    /// Exit status 0 if somebody answered, 1 if nobody did.
    Ping(Ping),
    /// Compute the longest delay of promised messages in a ring, and refuse promises that cannot be kept
    ///
    /// Exit status 0 if all can be kept, 1 if one cannot.
    Admit(Admit),
    /// Be a station for others: echo, count, and keep files
    Serve(Serve),
}

/// Where a station is.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// The network: eth:INTERFACE, udp:GROUP:PORT, or udp:GROUP:PORT@ADDRESS for another interface than the loopback
    #[arg(long, value_name = "NETWORK", env = "LLC_NETWORK", default_value = "udp:239.192.82.0:48200")]
    pub network: Network,
    /// The number of this station, 1 to 254 [default: 1, of `serve` 2]
    #[arg(long, value_name = "N", env = "LLC_STATION", value_parser = number())]
    pub station: Option<u8>,
    /// Take part in a ring: send with the token only. The same at all stations
    #[arg(long)]
    pub ring: bool,
}

/// The other end of a measurement.
#[derive(Clone, Debug, Args)]
pub struct Other {
    /// A station that serves (`trunkline llc serve`) [default: a second station in this process]
    #[arg(long, value_name = "STATION", value_parser = number())]
    pub with: Option<u8>,
    /// The network of the second station, e.g. the other end of a pair of virtual interfaces [default: the same]
    #[arg(long, value_name = "NETWORK", conflicts_with = "with")]
    pub second: Option<Network>,
}

#[derive(Debug, Args)]
pub struct Test {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub other: Other,
    /// Print what was found as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Wrap {
    #[command(flatten)]
    pub place: Place,
    /// The network of the second station, e.g. the other end of a pair of virtual interfaces [default: the same]
    #[arg(long, value_name = "NETWORK")]
    pub second: Option<Network>,
    /// Octets of the messages
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0,2,100,500,1000,1493",
          value_parser = octets())]
    pub size: Vec<u16>,
    /// Priorities, 7 the highest
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,1,2,3,4,5,6,7",
          value_parser = clap::value_parser!(u8).range(0..=HIGHEST as i64))]
    pub priority: Vec<u8>,
    /// Messages of each size, class and priority
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub messages: u32,
    /// Print the figures as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Load {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub other: Other,
    /// Octets of the messages
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "0,2,32,128,512,1024,1493",
          value_parser = octets())]
    pub size: Vec<u16>,
    /// How long each size is sent
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = positive)]
    pub time: Span,
    /// Most messages of each size
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub messages: u64,
    /// Offer so many messages a second [default: as many as go]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub rate: Option<u64>,
    /// Their priority, 7 the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=HIGHEST as i64))]
    pub priority: u8,
    /// Acknowledged messages (type 3), one under way at a time
    #[arg(long)]
    pub acknowledged: bool,
    /// A checksum at the end of each
    #[arg(long)]
    pub crc: bool,
    /// Most messages that leave in one call of the system
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub batch: u16,
    /// Only the load, without the effects: same station, measuring, completion
    #[arg(long)]
    pub plain: bool,
    /// Print the figures as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Copy {
    #[command(flatten)]
    pub place: Place,
    /// Files, and behind them the station, or STATION:SAP
    #[arg(required = true, num_args = 1.., value_name = "FILE… STATION[:SAP]", value_hint = ValueHint::FilePath)]
    pub words: Vec<String>,
    /// Replace files that are there
    #[arg(long)]
    pub force: bool,
    /// Their priority, 7 the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=HIGHEST as i64))]
    pub priority: u8,
    /// How long a station that does not answer is waited for
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = positive)]
    pub patience: Span,
    /// Print what came of it as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Ping {
    #[command(flatten)]
    pub place: Place,
    /// Whom: a station or `all`; a SAP of it, instead of the station itself
    #[arg(value_name = "STATION[:SAP]")]
    pub to: String,
    /// How often [default: until Ctrl-C]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// How long from one to the next
    #[arg(long, short, value_name = "SPAN", default_value = "1s", value_parser = span)]
    pub interval: Span,
    /// How long an answer is waited for
    #[arg(long, short = 'W', value_name = "SPAN", default_value = "1s", value_parser = positive)]
    pub timeout: Span,
    /// Octets that are to come back
    #[arg(long, short, value_name = "OCTETS", default_value_t = 56, value_parser = octets())]
    pub size: u16,
    /// Their priority, 7 the highest
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=HIGHEST as i64))]
    pub priority: u8,
    /// Ask what is spoken there (XID)
    #[arg(long)]
    pub xid: bool,
    /// Print what came back as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Admit {
    /// Stations of the ring: how many, numbered from 1, or which, e.g. 1-16,20
    #[arg(long, value_name = "N|LIST", value_parser = stations)]
    pub stations: Stations,
    /// What is promised, by a station or by `all` of them, e.g. all:7:100:10ms; the deadline is the period unless said
    #[arg(long, value_name = "STATION:PRIORITY:OCTETS:PERIOD[:DEADLINE]", required = true, value_parser = promise)]
    pub promise: Vec<Promise>,
    /// Octets of messages that every station sends besides, as often as it likes, at priorities 0 to 3
    #[arg(long, value_name = "OCTETS", value_parser = octets())]
    pub background: Option<u16>,
    /// What the line carries, in Mb/s
    #[arg(long, value_name = "MBPS", default_value = "10", value_parser = rate)]
    pub rate: Rate,
    /// The longest from a frame's end on the line until the station that hears it has done what it does
    #[arg(long, value_name = "SPAN", default_value = "2us", value_parser = span)]
    pub hop: Span,
    /// A switch stands between the stations
    #[arg(long)]
    pub switched: bool,
    /// Timers for programs on a machine or a local network, as `--ring` has them [default: as tight as the line allows]
    #[arg(long)]
    pub programs: bool,
    /// The highest number that is asked to join [default: the highest of the ring; with --programs 254]
    #[arg(long, value_name = "N", value_parser = number())]
    pub highest: Option<u8>,
    /// Stations that are asked to join in one window [default: 4; with --programs 8]
    #[arg(long, value_name = "N", value_parser = number())]
    pub invited: Option<u8>,
    /// Tokens that may be lost while a message waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub lost: u32,
    /// Stations that may die while a message waits
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub dead: u32,
    /// Print the bounds as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub place: Place,
    /// Keep files that are copied to this station in a folder [default: takes none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub into: Option<PathBuf>,
    /// The largest file that is taken, in octets
    #[arg(long, value_name = "OCTETS", default_value_t = 1 << 30)]
    pub largest: u64,
    /// Let senders replace files that are there (`copy --force`)
    #[arg(long)]
    pub allow_force: bool,
    /// Print what happens as JSON, a line each, to standard output
    #[arg(long)]
    pub json: bool,
}

/// Stations of a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stations(pub Vec<u8>);

/// Messages that a station, or each of them, promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    /// None: all of them.
    pub station: Option<u8>,
    pub priority: u8,
    pub octets: u16,
    pub period: Span,
    pub deadline: Span,
}

fn number() -> clap::builder::RangedI64ValueParser<u8> {
    clap::value_parser!(u8).range(1..i64::from(ALL))
}

fn octets() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(0..=MAX_INFORMATION as i64)
}

fn positive(text: &str) -> Result<Span, String> {
    let some = span(text)?;
    if some.is_zero() { Err("expected more than nothing".into()) } else { Ok(some) }
}

/// In Mb/s, to the bit a second.
fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<f64>() {
        Ok(mbps) if (1e-3..=1e6).contains(&mbps) => Ok(Rate::from_bps((mbps * 1e6).round() as u64)),
        _ => Err("expected Mb/s, 0.001 to 1000000".into()),
    }
}

fn stations(text: &str) -> Result<Stations, String> {
    let wrong = || "expected a number of stations, or a list such as 1-16,20, of 1 to 254".to_owned();
    let one = |word: &str| match word.trim().parse() {
        Ok(station) if (1..ALL).contains(&station) => Ok(station),
        _ => Err(wrong()),
    };
    if !text.contains([',', '-']) {
        return Ok(Stations((1..=one(text)?).collect()));
    }
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) if one(first)? <= one(last)? => all.extend(one(first)?..=one(last)?),
            Some(_) => return Err(wrong()),
            None => all.push(one(part)?),
        }
    }
    all.sort_unstable();
    let twice = all.windows(2).any(|pair| pair[0] == pair[1]);
    if twice { Err("a station stands there twice".into()) } else { Ok(Stations(all)) }
}

fn promise(text: &str) -> Result<Promise, String> {
    const FORM: &str = "expected STATION:PRIORITY:OCTETS:PERIOD[:DEADLINE], such as all:7:100:10ms";
    let words: Vec<&str> = text.split(':').collect();
    let (&[station, priority, octets, period], rest) = words.split_first_chunk().ok_or(FORM)?;
    let station = match station {
        "all" => None,
        number => Some(number.parse().ok().filter(|n| (1..ALL).contains(n)).ok_or(FORM)?),
    };
    let priority = priority.parse().ok().filter(|p| *p <= HIGHEST).ok_or("a priority is 0 to 7")?;
    let octets = octets.parse().ok().filter(|n| usize::from(*n) <= MAX_INFORMATION);
    let octets = octets.ok_or(format!("a message has at most {MAX_INFORMATION} octets"))?;
    let period = positive(period)?;
    let deadline = match *rest {
        [] => period,
        [deadline] => positive(deadline)?,
        _ => return Err(FORM.into()),
    };
    Ok(Promise { station, priority, octets, period, deadline })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stations_and_promises_are_read() {
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
