//! What may be said on the command line. Help, the man page and the completions come from here.
//!
//! | module | what |
//! | --- | --- |
//! | [`analyse`] | what is asked of a series |
//! | [`serve`] | the page over the archive of counters |
//! | [`llc`] | the tools of logical link control |
//! | [`converter`] | the daemons of the bundle converter |
//! | [`monitor`] | the flow monitor |
//! | [`counters`] | what goes into and out of its archive |

pub mod analyse;
pub mod converter;
pub mod counters;
pub mod llc;
pub mod monitor;
#[cfg(feature = "web")]
pub mod serve;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use trunkline_arq::torture::Blackhole;
use trunkline_arq::{Check as ArqCheck, Mode as ArqMode};
use trunkline_counters::archive::Location;
use trunkline_units::Span;

/// A workbench for message networks.
///
/// Describe hosts, links, transports and traffic once; run the description for real or simulated; read one report.
#[derive(Debug, Parser)]
#[command(name = "trunkline", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Read an experiment and print the plan it means
    ///
    /// Diagnostics point into the text. Exit status 2 if there is an error.
    Check(Check),
    /// Run an experiment, keep its record and show its report
    ///
    /// Exit status 0 if all went well, 1 if the run failed or an expectation did not hold, 2 if the input or the
    /// usage is wrong.
    Run(Run),
    /// Run an experiment in the simulator at many points and with many seeds, and show curves
    ///
    /// Exit status 0 if all went well, 1 if a run failed or the sweep was stopped, 2 if the input or the usage is
    /// wrong.
    Sweep(Sweep),
    /// Run the papers' experiments in the simulator: paper, ours and the deviation, cell by cell
    ///
    /// Exit status 0 if every figure is as near as promised, 1 if one is not or a run failed, 2 if the usage is wrong.
    Reproduce(Reproduce),
    /// Exchange messages over the guaranteed transport while frames are lost, damaged, doubled and held back
    ///
    /// What is not given is drawn from the seed of each exchange. Exit status 0 if nothing was lost, twice, out of order
    /// or wrong, 1 if something was or it was stopped, 2 if the usage is wrong.
    Torture(Torture),
    /// Watch the traffic of an interface, a capture or a simulated run: by station, SAP and connection
    ///
    /// On a terminal a screen, elsewhere a line an interval. `?` shows the keys. Exit status 0 if it was ended, or the file
    /// was read, 1 if it cannot watch, 2 if the input or the usage is wrong.
    Top(Top),
    /// Tools of logical link control (IEEE 802.2): test, delay, load, files, ping, and the bound of a ring
    Llc(llc::Llc),
    /// Daemons of the bundle converter: many small simulation messages in few packets, each host only what it wants
    Converter(converter::Converter),
    /// The flow monitor: counters of switches, hosts and this machine, polled and kept
    Monitor(monitor::Monitor),
    /// Tell what recorded traffic is like: rates, memory, periods, bursts, Hurst exponent; and fit a source to it
    ///
    /// Exit status 0 if all went well, 1 if something could not be written, 2 if the input or the usage is wrong.
    Analyse(analyse::Analyse),
    /// Show an archive of counters in a browser: plots, live, status of hosts, switches and channels
    ///
    /// Listens on this machine only, unless told otherwise; then a token is needed, which is made and printed. Ctrl-C ends
    /// it. Exit status 0 if it was ended, 1 if it cannot serve, 2 if the input or the usage is wrong.
    #[cfg(feature = "web")]
    Serve(serve::Serve),
    /// Put records side by side
    Compare(Compare),
    /// Report an old record again, without running anything
    Report(Report),
    /// List, show, export and delete what the archive keeps
    Records(Records),
    /// Measure what a simulation must be told
    Study(Study),
    /// Serve a controller as the agent of one host (internal)
    #[command(hide = true)]
    Agent(Agent),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the man page, or write one for each command into a folder
    Man {
        /// Folder for trunkline.1, trunkline-run.1, …
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// Where the archive is.
#[derive(Debug, Clone, Args)]
pub struct ArchivePlace {
    /// The archive file [default: trunkline/archive.sqlite in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_ARCHIVE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
}

/// Changes to an experiment from the command line.
#[derive(Debug, Args)]
pub struct Changes {
    /// Override an option: of every connection that has it (duration=2s), or of one connection, link or node by its
    /// name (a-s.delay=5ms)
    #[arg(long = "set", value_name = "[NAME.]OPTION=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
}

impl Changes {
    /// As they were said: `duration=2s window=64kB`.
    pub fn said(&self) -> String {
        let said: Vec<String> = self.set.iter().map(|(option, value)| format!("{option}={value}")).collect();
        said.join(" ")
    }
}

#[derive(Debug, Args)]
pub struct Check {
    /// The experiment; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub changes: Changes,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The experiment; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Where to run it; several give one comparison
    #[arg(long, value_name = "BACKEND", value_delimiter = ',', default_value = "live")]
    pub on: Vec<String>,
    /// Put a host at an address of this machine; hosts without one are on its loopback
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = host_at)]
    pub at: Vec<(String, IpAddr)>,
    /// Capture a link or host of a simulated run as pcapng, beside its record
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub trace: Vec<String>,
    #[command(flatten)]
    pub changes: Changes,
    /// What all random numbers are drawn from
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Folder for the record and the report [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print the record as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
    /// Write the expectations as a JUnit report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub archive: ArchivePlace,
    /// Keep this run out of the archive
    #[arg(long)]
    pub no_archive: bool,
    /// Put what the run counted over time into this archive of counters, beside those of switches: a file, or
    /// postgres://USER@HOST/NAME
    #[arg(long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub counters: Option<Location>,
}

#[derive(Debug, Args)]
pub struct Sweep {
    /// The experiment; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// What takes which values, e.g. window=16kB..256kB or a-s.loss=0,1e-3,1e-2; a second one gives a family of
    /// curves
    #[arg(long, required = true, value_name = "[NAME.]OPTION=VALUES", value_parser = pair)]
    pub vary: Vec<(String, String)>,
    /// Points from one end to the other
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub points: usize,
    /// From point to point, instead of a number of points
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["points", "log"])]
    pub step: Option<String>,
    /// Each point the same multiple of the last, and logarithmic axes
    #[arg(long)]
    pub log: bool,
    /// Runs of each point, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// The first seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Show this number of the record, e.g. delay_us.p99 or a-s.utilization [default: received_bps]
    #[arg(long, value_name = "FIGURE", value_delimiter = ',')]
    pub show: Vec<String>,
    #[command(flatten)]
    pub changes: Changes,
    /// Runs side by side [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Folder for sweep.json, sweep.csv and sweep.html [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print sweep.json, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
    /// Print sweep.csv, and nothing else, to standard output
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

#[derive(Debug, Args)]
pub struct Reproduce {
    /// The paper: `aai`, also `1996` or `netspec`; `guaranteed`, also `1998`; `airnet`, also `1990`; `bundle`, also `1997`
    /// or `converter` [default: all that there is]
    pub paper: Option<String>,
    /// One of its tables or figures: 12, 17, 18, figure-1, figure-2, ftp-cells; of `guaranteed` 6, or its curves:
    /// curves (all), figure-13, …, figure-20, fec (forward error correction) [default: all but curves]
    pub table: Option<String>,
    /// Runs of each experiment, each with a seed of its own [default: 100 where timer phases matter, else 1 to 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: Option<u64>,
    /// Runs side by side [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Folder for reproduce.json and reproduce.txt, or curves.html, .json and .csv [default: nothing is written]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print reproduce.json, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

/// Where an exchange takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// In simulated time
    Memory,
    /// Over UDP sockets of 127.0.0.1
    Loopback,
}

/// How lost frames are made good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Everything from the lost frame on
    Gobackn,
    /// The lost frame only
    Selective,
    /// One frame in flight
    Stopandwait,
}

/// How frames are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checksum {
    /// CRC-32C
    Crc32c,
    /// CRC-64
    Crc64,
    /// The folded sum of 1998, which misses some damage
    Folded,
    /// None: every damage is missed
    None,
}

#[derive(Clone, Debug, Args)]
pub struct Torture {
    /// Exchanges, each with a seed of its own [default: 1000 in memory, 10 on the loopback]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// The first seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Where the frames go
    #[arg(long, value_enum, value_name = "PLACE", default_value_t = Place::Memory)]
    pub on: Place,
    /// How lost frames are made good
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// How frames are checked [default: crc32c or crc64]
    #[arg(long, value_enum)]
    pub check: Option<Checksum>,
    /// Share of frames lost
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub drop: Option<f64>,
    /// Share of frames damaged: bits flipped, or the end cut off
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub damage: Option<f64>,
    /// Share of frames that go on twice
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub duplicate: Option<f64>,
    /// Share of frames held back, so that others overtake them
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub reorder: Option<f64>,
    /// How long every frame is held back, e.g. 20ms
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub delay: Option<Span>,
    /// Nothing passes once in every so long for so long, e.g. 1s:200ms
    #[arg(long, value_name = "EVERY:FOR", value_parser = blackhole)]
    pub blackhole: Option<Blackhole>,
    /// Messages of each end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub messages: Option<u64>,
    /// The longest message, in bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub size: Option<u64>,
    /// Channels of each end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub channels: Option<u64>,
    /// Whether an end dies in the middle of it all, and comes back without memory [default: in one of five]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub deaths: Option<Deaths>,
    /// Both ends send at once
    #[arg(long, conflicts_with = "half_duplex")]
    pub full_duplex: bool,
    /// The ends take turns
    #[arg(long)]
    pub half_duplex: bool,
    /// Exchanges side by side, in memory [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print what came of it as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

/// Whether ends die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Deaths {
    /// In every exchange that has time for it
    Always,
    /// In none
    Never,
}

impl Place {
    /// As it is said.
    pub fn name(self) -> &'static str {
        match self {
            Place::Memory => "memory",
            Place::Loopback => "loopback",
        }
    }
}

impl From<Mode> for ArqMode {
    fn from(mode: Mode) -> ArqMode {
        match mode {
            Mode::Gobackn => ArqMode::GoBackN,
            Mode::Selective => ArqMode::Selective,
            Mode::Stopandwait => ArqMode::StopAndWait,
        }
    }
}

impl From<Checksum> for ArqCheck {
    fn from(check: Checksum) -> ArqCheck {
        match check {
            Checksum::Crc32c => ArqCheck::Crc32c,
            Checksum::Crc64 => ArqCheck::Crc64,
            Checksum::Folded => ArqCheck::Folded,
            Checksum::None => ArqCheck::None,
        }
    }
}

impl Torture {
    /// The command that repeats the exchange of one seed.
    pub fn repeat(&self, seed: u64) -> String {
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let said = [
            ("mode", self.mode.map(|mode| word(&mode))),
            ("check", self.check.map(|check| word(&check))),
            ("drop", self.drop.map(|share| share.to_string())),
            ("damage", self.damage.map(|share| share.to_string())),
            ("duplicate", self.duplicate.map(|share| share.to_string())),
            ("reorder", self.reorder.map(|share| share.to_string())),
            ("delay", self.delay.map(written)),
            (
                "blackhole",
                self.blackhole.map(|hole| format!("{}:{}", written(hole.every), written(hole.lasts))),
            ),
            ("messages", self.messages.map(|n| n.to_string())),
            ("size", self.size.map(|n| n.to_string())),
            ("channels", self.channels.map(|n| n.to_string())),
            ("deaths", self.deaths.map(|deaths| word(&deaths))),
            ("full-duplex", self.full_duplex.then(String::new)),
            ("half-duplex", self.half_duplex.then(String::new)),
        ];
        let said = said.into_iter().filter_map(|(name, value)| Some(format!(" --{name} {}", value?)));
        let said: String = said.map(|said| format!(" {}", said.trim())).collect();
        format!("trunkline torture --on {} --seed {seed} --seeds 1{said}", self.on.name())
    }
}

#[derive(Debug, Args)]
pub struct Compare {
    /// Records: a file, a folder of `run --out`, or a number of the archive
    #[arg(required = true, num_args = 2.., value_name = "RECORD", value_hint = ValueHint::AnyPath)]
    pub records: Vec<String>,
    /// Write the comparison as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub archive: ArchivePlace,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Records: a file, a folder of `run --out`, or a number of the archive
    #[arg(required = true, value_name = "RECORD", value_hint = ValueHint::AnyPath)]
    pub records: Vec<String>,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write the expectations as a JUnit report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub archive: ArchivePlace,
}

#[derive(Debug, Args)]
pub struct Records {
    #[command(subcommand)]
    pub action: RecordsAction,
}

#[derive(Debug, Subcommand)]
pub enum RecordsAction {
    /// List the runs, the latest first
    List {
        /// Only experiments whose name holds this
        #[arg(long)]
        name: Option<String>,
        /// Only of this backend
        #[arg(long)]
        backend: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// As JSON, a run a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        archive: ArchivePlace,
    },
    /// Show a run: its report, or the text it ran
    Show {
        /// Its number
        id: i64,
        /// Print the experiment's text instead
        #[arg(long)]
        text: bool,
        #[command(flatten)]
        archive: ArchivePlace,
    },
    /// Write runs as CSV, Parquet or JSON
    Export {
        /// Their numbers
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Which format
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// The series (a row for each number) instead of a row for each connection; not for JSON, which has both
        #[arg(long)]
        series: bool,
        /// Where to [default: standard output]
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
        #[command(flatten)]
        archive: ArchivePlace,
    },
    /// Delete runs
    Delete {
        /// Their numbers
        #[arg(required = true)]
        ids: Vec<i64>,
        #[command(flatten)]
        archive: ArchivePlace,
    },
}

/// Formats of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values
    Csv,
    /// Apache Parquet
    Parquet,
    /// The whole record
    Json,
}

#[derive(Debug, Args)]
pub struct Top {
    /// An interface; a pcap or pcapng file; or the folder or record.json of a simulated run with one capture
    #[arg(value_hint = ValueHint::FilePath)]
    pub source: String,
    /// Only packets that this filter passes, e.g. tcp port 80 or sap 4; @FILE reads it from a file
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Length of a sample
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = sample)]
    pub interval: Span,
    /// UDP datagrams from or to this port carry PDUs of LLC
    #[arg(long, value_name = "PORT")]
    pub llc_udp: Option<u16>,
    /// An answer of LLC that takes longer is late
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub deadline: Option<Span>,
    /// A command of LLC without answer for so long is unanswered
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    pub patience: Span,
    /// Packets that the trace keeps
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub events: u32,
    /// A line an interval, also on a terminal
    #[arg(long)]
    pub plain: bool,
    /// A JSON object an interval, and nothing else, to standard output
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// Write every sample and the totals into this file, as CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// When it ends, draw packets/s and bits/s against time into this file, as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub graph: Option<PathBuf>,
    /// When it ends, write the packets that the trace keeps into this new file, as pcapng
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// End after this time
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub duration: Option<Span>,
    /// Room for packets that wait to be counted, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub buffer: u32,
}

#[derive(Debug, Args)]
pub struct Study {
    #[command(subcommand)]
    pub subject: StudySubject,
}

#[derive(Debug, Subcommand)]
pub enum StudySubject {
    /// What a packet and a byte cost this machine, as a `host` line to paste into a network
    ///
    /// Processor time of sending and receiving UDP datagrams over the loopback, one a system call. No card, driver or
    /// interrupt takes part. With --rates instead: the processor share of a host that receives, by packet size and rate,
    /// the highest rates, and the load from which bundling pays.
    Host {
        /// Measure shares by packet size and rate, up to where throughput collapses
        #[arg(long)]
        rates: bool,
        /// How long to measure, about [default: 5, with --rates 120]
        #[arg(long, value_name = "N", value_parser = seconds)]
        seconds: Option<Span>,
        #[command(flatten)]
        repeated: Repeated,
    },
    /// What multicast groups cost this machine: those it wants, those it refuses, and joining them
    ///
    /// 2,000 packets a second over the loopback to 10 to 2,000 groups, of which a share is joined.
    Multicast {
        /// How long to measure, about
        #[arg(long, value_name = "N", default_value = "60", value_parser = seconds)]
        seconds: Span,
        #[command(flatten)]
        repeated: Repeated,
    },
}

/// How a measurement is repeated, and told.
#[derive(Debug, Args)]
pub struct Repeated {
    /// How often everything is measured with --rates or over groups [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub runs: Option<u8>,
    /// Folder for tables as CSV and plots as HTML [default: nothing is written]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the figures as JSON, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Agent {
    /// Serve over standard input, which is a socket
    #[arg(long, required = true)]
    pub stdio: bool,
    /// The host it stands for, to be told apart in a list of processes
    pub host: String,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.trim().is_empty() {
        return Err("expected a name before `=`".into());
    }
    Ok((name.trim().into(), value.trim().into()))
}

/// Up to ten minutes: more tells no more.
fn seconds(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 600.0 => Ok(Span::from_seconds(seconds)),
        _ => Err("expected a number of seconds above 0, at most 600".into()),
    }
}

/// A share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1".into()),
    }
}

/// The units of a span, the longest first, and their nanoseconds.
const SPANS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Up to an hour: `20ms`.
fn span(text: &str) -> Result<Span, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = SPANS.iter().find(|(name, _)| *name == unit.trim());
    match (number.trim().parse::<f64>(), unit) {
        (Ok(number), Some((_, ns))) if (0.0..=3.6e12).contains(&(number * *ns as f64)) => {
            Ok(Span::from_ns((number * *ns as f64).round() as u64))
        }
        _ => Err("expected a span such as 20ms, at most 3600s".into()),
    }
}

/// From 10 ms on: less is noise.
fn sample(text: &str) -> Result<Span, String> {
    match span(text)? {
        span if span >= Span::from_ms(10) => Ok(span),
        _ => Err("expected at least 10ms".into()),
    }
}

/// A span as [`span`] reads it.
fn written(span: Span) -> String {
    let ns = span.as_ns();
    let (unit, of) = SPANS.into_iter().find(|(_, of)| ns.is_multiple_of(*of)).unwrap_or(("ns", 1));
    format!("{}{unit}", ns / of)
}

fn blackhole(text: &str) -> Result<Blackhole, String> {
    let (every, lasts) = text.split_once(':').ok_or("expected EVERY:FOR, such as 1s:200ms")?;
    let (every, lasts) = (span(every)?, span(lasts)?);
    if every.is_zero() { Err("it must have a period".into()) } else { Ok(Blackhole { every, lasts }) }
}

fn host_at(text: &str) -> Result<(String, IpAddr), String> {
    let (name, address) = pair(text)?;
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse().map_err(|_| format!("`{address}` is not an IPv4 or IPv6 address"))?;
    Ok((name, address))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_sound() {
        super::Flags::command().debug_assert();
    }
}
