//! The command line: flags, arguments and their help. The man pages and shell completions are generated from it.
//!
//! | module | contents |
//! | --- | --- |
//! | [`values`] | parsers of flag values that several commands share |
//! | [`agents`] | `trunkline agent`, `trunkline keys` |
//! | [`analyse`] | `trunkline analyse` |
//! | [`lab`] | `trunkline lab` |
//! | [`llc`] | `trunkline llc` |
//! | [`converter`] | `trunkline converter` |
//! | [`monitor`] | `trunkline monitor` |
//! | [`scenario`] | `trunkline scenario` |
//! | [`schedule`] | `trunkline schedule` |
//! | [`stamp`] | `trunkline stamp` |
//! | [`mod@test`] | `trunkline test` |

pub mod agents;
pub mod analyse;
pub mod converter;
pub mod lab;
pub mod llc;
pub mod monitor;
pub mod scenario;
pub mod schedule;
pub mod stamp;
pub mod test;
pub mod values;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;
use trunkline_arq::torture::Blackhole;
use trunkline_arq::{Check as FrameCheck, Mode};
use trunkline_counters::archive::Location;
use trunkline_units::Span;

use values::{
    Placement, Word, blackhole, format_span, fraction, in_range, long_span, measurement_span, name_value,
    one_of, placement, shard, span, word_of,
};

/// A workbench for message networks.
///
/// Describe hosts, links, transports and traffic once, run the description live or simulated, and read one report.
#[derive(Debug, Parser)]
#[command(name = "trunkline", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Flags {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Parse an experiment and print its plan
    ///
    /// Diagnostics point into the text. Exit status: 2 if there is an error.
    Check(Check),
    /// Format experiments: indentation, spaces and blank lines, never the meaning
    ///
    /// Line breaks and comments stay. Exit status: 0 on success, 1 if --check found a file in another format or a file cannot be
    /// written, 2 if a text cannot be read.
    Fmt(Fmt),
    /// Run an experiment, store its record and show its report
    ///
    /// Exit status: 0 on success, 1 if the run or an expectation failed, 2 if the input or the usage is wrong.
    Run(Run),
    /// Open the network of an experiment on this machine, with a kernel for each host, and enter its hosts
    ///
    /// Builds the network in namespaces, without its connections, and starts the programs of its hosts. On a terminal a line
    /// shows the links that carry most. Ctrl-C removes everything. Exit status: 0 when interrupted, 1 if the network cannot
    /// be built or a program failed, 2 if the input or the usage is wrong.
    Lab(lab::Lab),
    /// Write an experiment: one of the five measurement configurations of the AAI report (1996)
    ///
    /// Exit status: 2 if the number of hosts, a name or an option is wrong.
    Scenario(scenario::Scenario),
    /// Run experiments at planned times
    Schedule(schedule::Schedule),
    /// Test the connection to a host for some seconds, without a file: rates, losses and delays
    ///
    /// Writes an experiment and runs it live; --print shows its text. Prints a line per interval, then the result of both
    /// ends. Ctrl-C ends the test and keeps its results. Exit status: 0 on success, 1 if the run failed or was
    /// interrupted, 2 if the usage is wrong.
    Test(test::Test),
    /// Simulate an experiment over ranges of its options, with several seeds each, and plot curves
    ///
    /// Every run is stored when it ends, so that the same command continues after an interruption. Exit status: 0 on success, 1 if
    /// a run failed or the sweep was interrupted, 2 if the input or the usage is wrong.
    Sweep(SweepCommand),
    /// Simulate the experiments of the papers and compare every figure with the published one
    ///
    /// Exit status: 0 if every figure is within its tolerance, 1 if one is not or a run failed, 2 if the usage is wrong.
    Reproduce(Reproduce),
    /// Test the guaranteed transport while frames are lost, corrupted, duplicated and delayed
    ///
    /// Options that are not given are drawn at random from the seed of each exchange. Exit status: 0 if every message
    /// arrived once, intact and in order; 1 if not, or if the test was interrupted; 2 if the usage is wrong.
    Torture(Torture),
    /// Show the traffic of an interface, a capture or a simulated run by station, SAP and connection
    ///
    /// Shows a full-screen display on a terminal (`?` lists the keys) and prints one line per interval otherwise. Exit
    /// status: 0 when interrupted or at the end of the file, 1 if it cannot capture, 2 if the input or the usage is wrong.
    Top(Top),
    /// Logical link control (IEEE 802.2): test, measure, load, copy files, ping, compute ring delays
    Llc(llc::Llc),
    /// Measure delay and loss of a path with STAMP (RFC 8762): send test packets, or reflect them
    Stamp(stamp::Stamp),
    /// Bundle converter: carry many small simulation messages in few packets, filtered by subscription
    Converter(converter::Converter),
    /// Poll counters of switches, hosts and this machine, and store, export and forward them
    Monitor(monitor::Monitor),
    /// Analyse recorded traffic: rates, autocorrelation, periods, bursts, Hurst exponent; fit a traffic source
    ///
    /// Exit status: 0 on success, 1 if a file cannot be written, 2 if the input or the usage is wrong.
    Analyse(analyse::Analyse),
    /// Serve a web page over an archive of counters: plots, live updates, state of hosts, switches and channels
    ///
    /// Listens on the loopback address by default. On any other address clients need a token, which is generated and
    /// printed. If the archive does not exist yet, waits for `trunkline monitor poll` to create it. Ctrl-C stops it. Exit
    /// status: 0 when interrupted, 1 if it cannot serve, 2 if the input or the usage is wrong.
    Serve(Serve),
    /// Compare records side by side
    Compare(Compare),
    /// Show the report of a stored record
    Report(Report),
    /// List, show, export and delete archived runs
    Records(Records),
    /// Measure the parameters of this machine that a simulation needs
    Study(Study),
    /// Run the agent of this host, which controllers on other hosts may use
    ///
    /// Prints a join string, with which one controller can enrol (`trunkline keys add`), and log lines on standard error.
    /// Ctrl-C stops it. Exit status: 0 when interrupted, 1 if it cannot serve, 2 if the input or the usage is wrong.
    Agent(agents::Agent),
    /// The keys that agents and controllers trust: add, list, revoke, show
    Keys(agents::Keys),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page, or write one per command into a folder
    Man {
        /// Folder for trunkline.1, trunkline-run.1, …
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

/// The archive of runs.
#[derive(Debug, Clone, Args)]
pub struct RunArchive {
    /// The archive of runs, a file [default: trunkline/archive.sqlite in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "FILE", env = "TRUNKLINE_ARCHIVE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<PathBuf>,
}

/// The archive of counters.
#[derive(Debug, Clone, Args)]
pub struct CountersArchive {
    /// The archive of counters, a file or postgres://USER@HOST/NAME [default: trunkline/counters.sqlite in
    /// $XDG_DATA_HOME or ~/.local/share]
    // The value may contain a password, which the help must not show.
    #[arg(long, value_name = "ARCHIVE", env = "TRUNKLINE_COUNTERS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub archive: Option<Location>,
}

/// Options of an experiment that the command line overrides.
#[derive(Debug, Args)]
pub struct Overrides {
    /// Override an option of every connection that has it (duration=2s), or of one named connection, link or node
    /// (a-s.delay=5ms)
    #[arg(long = "set", value_name = "[NAME.]OPTION=VALUE", value_parser = name_value)]
    pub set: Vec<(String, String)>,
}

impl Overrides {
    /// Returns the overrides as typed: `duration=2s window=64kB`.
    pub fn to_text(&self) -> String {
        let texts: Vec<String> = self.set.iter().map(|(option, value)| format!("{option}={value}")).collect();
        texts.join(" ")
    }
}

#[derive(Debug, Args)]
pub struct Check {
    /// The experiment file; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub overrides: Overrides,
    #[command(flatten)]
    pub keys: agents::KeyDirectory,
}

#[derive(Debug, Args)]
pub struct Run {
    /// The experiment file; `-` reads standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Backends to run on: live, lab, sim; several give one comparison
    #[arg(long, value_name = "BACKEND", value_delimiter = ',', default_value = "live")]
    pub on: Vec<String>,
    /// Run a host at an address of this machine, or on an agent (NAME=agent:AGENT) [default: a loopback address]
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = placement)]
    pub at: Vec<(String, Placement)>,
    /// Run a lab even if its connections ask for more packets per second than this machine carries
    #[arg(long)]
    pub overload: bool,
    #[command(flatten)]
    pub keys: agents::KeyDirectory,
    /// Capture the packets of a link, one direction of it (LINK:NODE) or a host as pcapng, next to the record; in sim and lab
    #[arg(long, visible_alias = "capture", value_name = "NAME", value_delimiter = ',')]
    pub trace: Vec<String>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Folder for the record and the report [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print only the record, as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the expectations to this file as a JUnit report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Store this text with the record, as `note` of its environment
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    #[command(flatten)]
    pub archive: RunArchive,
    /// Do not store the run in the archive
    #[arg(long)]
    pub no_archive: bool,
    /// Also store the time series of the run in this archive of counters, a file or postgres://USER@HOST/NAME
    #[arg(long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub counters: Option<Location>,
}

#[derive(Debug, Args)]
pub struct Fmt {
    /// The experiment files; `-` formats standard input to standard output
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Change no file; print the names of those that are not formatted
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct SweepCommand {
    #[command(subcommand)]
    pub action: Option<SweepAction>,
    #[command(flatten)]
    pub sweep: Sweep,
}

#[derive(Debug, Subcommand)]
pub enum SweepAction {
    /// Put the shards of a sweep together and plot the curves
    ///
    /// Exit status: 0 on success, 1 if runs failed or are missing, 2 if the input or the usage is wrong.
    Merge(Merge),
}

#[derive(Debug, Args)]
pub struct Merge {
    /// Folders that shards have written to with --out, or files below their `runs`
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::AnyPath)]
    pub places: Vec<PathBuf>,
    /// Folder for sweep.json, sweep.csv and sweep.html [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub printed: Printed,
}

/// What a sweep prints instead of tables.
#[derive(Clone, Copy, Debug, Args)]
pub struct Printed {
    /// Print only sweep.json
    #[arg(long)]
    pub json: bool,
    /// Print only sweep.csv
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// One of several parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    /// Number of parts.
    pub count: usize,
}

#[derive(Debug, Args)]
pub struct Sweep {
    /// The experiment file; `-` reads standard input
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// The option to vary and its values, e.g. window=16kB..256kB or a-s.loss=0,1e-3,1e-2; a second one gives a
    /// family of curves
    #[arg(long, required = true, value_name = "[NAME.]OPTION=VALUES", value_parser = name_value)]
    pub vary: Vec<(String, String)>,
    /// Number of points in a range
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub points: usize,
    /// Distance between points, instead of their number
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["points", "log"])]
    pub step: Option<String>,
    /// Space the points and the axes logarithmically
    #[arg(long)]
    pub log: bool,
    /// Runs per point, each with a different seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// First seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Plot this number of the record, e.g. delay_us.p99 or a-s.utilization [default: received_bps]
    #[arg(long, value_name = "FIGURE", value_delimiter = ',')]
    pub show: Vec<String>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Parallel runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Give a point no further seeds when the 95 % interval of each figure is within this share of its mean, e.g. 0.01; at least
    /// 3 and at most --seeds
    #[arg(long, value_name = "SHARE", value_parser = fraction)]
    pub until: Option<f64>,
    /// Simulate and store only the runs of part I of N, from 1; `trunkline sweep merge` puts the parts together
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub shard: Option<Shard>,
    /// Simulate again what is stored
    #[arg(long)]
    pub fresh: bool,
    /// Folder for sweep.json, sweep.csv, sweep.html and the stored runs [default: trunkline-results/NAME]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub printed: Printed,
}

#[derive(Debug, Args)]
pub struct Reproduce {
    /// The paper: `aai` (alias `1996`, `netspec`), `guaranteed` (`1998`), `airnet` (`1990`) or `bundle` (`1997`,
    /// `converter`) [default: all]; `congestion` checks credits, explicit rates and admission on ATM,
    /// TCP controllers and queue disciplines; `lab` compares the lab with the simulator, on a machine without other load
    pub paper: Option<String>,
    /// A table or figure of the paper: 12, 17, 18, 20, 21, 22, figure-1, figure-2, ftp-cells; for `guaranteed` 6, or its curves:
    /// curves (all), figure-13, …, figure-20, fec (forward error correction); for `congestion` credits, rates, admission,
    /// controllers, queues or curves; for `lab` the name of an experiment [default: all but the curves]
    pub table: Option<String>,
    /// Runs per experiment, each with a different seed [default: 100 where timer phases matter, else 1 to 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub seeds: Option<u64>,
    /// Parallel runs [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Folder for reproduce.json and reproduce.txt, or curves.html, .json and .csv [default: write no files]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print only reproduce.json
    #[arg(long)]
    pub json: bool,
}

/// The network that carries an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExchangeMedium {
    /// Simulated network and time
    Memory,
    /// UDP sockets on 127.0.0.1
    Loopback,
}

/// How lost frames are recovered.
const MODES: [Word<Mode>; 3] = [
    ("gobackn", "Retransmit the lost frame and all later ones", Mode::GoBackN),
    ("selective", "Retransmit only the lost frame", Mode::Selective),
    ("stopandwait", "Keep one frame in flight", Mode::StopAndWait),
];

/// Checksums of frames.
const CHECKS: [Word<FrameCheck>; 4] = [
    ("crc32c", "CRC-32C", FrameCheck::Crc32c),
    ("crc64", "CRC-64", FrameCheck::Crc64),
    ("folded", "The folded sum of 1998, which misses some errors", FrameCheck::Folded),
    ("none", "No checksum; all errors pass", FrameCheck::None),
];

#[derive(Clone, Debug, Args)]
pub struct Torture {
    /// Number of exchanges, each with a different seed [default: 1000 in memory, 10 on the loopback]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: Option<u64>,
    /// First seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// The network that carries the frames
    #[arg(long, value_enum, value_name = "NETWORK", default_value_t = ExchangeMedium::Memory)]
    pub on: ExchangeMedium,
    /// Retransmission mode
    #[arg(long, value_parser = one_of(MODES))]
    pub mode: Option<Mode>,
    /// Checksum of frames [default: crc32c or crc64]
    #[arg(long, value_parser = one_of(CHECKS))]
    pub check: Option<FrameCheck>,
    /// Fraction of frames to drop
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub drop: Option<f64>,
    /// Fraction of frames to corrupt by flipped bits or truncation
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub damage: Option<f64>,
    /// Fraction of frames to duplicate
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub duplicate: Option<f64>,
    /// Fraction of frames to delay until others have overtaken them
    #[arg(long, value_name = "FRACTION", value_parser = fraction)]
    pub reorder: Option<f64>,
    /// Delay of every frame, e.g. 20ms
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub delay: Option<Span>,
    /// Periodic outage, e.g. 1s:200ms for 200 ms in every second
    #[arg(long, value_name = "PERIOD:LENGTH", value_parser = blackhole)]
    pub blackhole: Option<Blackhole>,
    /// Messages that each end sends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub messages: Option<u64>,
    /// Size of the largest message, in bytes
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub size: Option<u64>,
    /// Channels that each end opens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16))]
    pub channels: Option<u64>,
    /// Let an end crash during the exchange and restart without state [default: in one exchange of five]
    #[arg(long = "deaths", value_enum, value_name = "WHEN")]
    pub deaths: Option<Crashes>,
    /// Let both ends send at the same time
    #[arg(long, conflicts_with = "half_duplex")]
    pub full_duplex: bool,
    /// Let the ends take turns
    #[arg(long)]
    pub half_duplex: bool,
    /// Parallel exchanges, in memory [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Print only the result, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Whether ends crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Crashes {
    /// In every exchange that is long enough
    Always,
    /// In no exchange
    Never,
}

impl ExchangeMedium {
    /// Returns the name as typed on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ExchangeMedium::Memory => "memory",
            ExchangeMedium::Loopback => "loopback",
        }
    }
}

impl Torture {
    /// Returns the command that repeats the exchange with this seed.
    pub fn repeat(&self, seed: u64) -> String {
        let word = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
        let flags = [
            ("mode", self.mode.map(|mode| word_of(&MODES, mode))),
            ("check", self.check.map(|check| word_of(&CHECKS, check))),
            ("drop", self.drop.map(|share| share.to_string())),
            ("damage", self.damage.map(|share| share.to_string())),
            ("duplicate", self.duplicate.map(|share| share.to_string())),
            ("reorder", self.reorder.map(|share| share.to_string())),
            ("delay", self.delay.map(format_span)),
            (
                "blackhole",
                self.blackhole.map(|hole| format!("{}:{}", format_span(hole.every), format_span(hole.lasts))),
            ),
            ("messages", self.messages.map(|n| n.to_string())),
            ("size", self.size.map(|n| n.to_string())),
            ("channels", self.channels.map(|n| n.to_string())),
            ("deaths", self.deaths.map(|deaths| word(&deaths))),
            ("full-duplex", self.full_duplex.then(String::new)),
            ("half-duplex", self.half_duplex.then(String::new)),
        ];
        let flags = flags.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", value?)));
        let flags: String = flags.map(|flag| format!(" {}", flag.trim())).collect();
        format!("trunkline torture --on {} --seed {seed} --seeds 1{flags}", self.on.name())
    }
}

#[derive(Debug, Args)]
pub struct Serve {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// Address to listen on; port 0 selects a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:1996")]
    pub listen: SocketAddr,
    /// Require the token in this file from clients; the file is created, readable only by you, if it does not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Compare {
    /// Records: a file, a folder written by `run --out`, or a run number of the archive
    #[arg(required = true, num_args = 2.., value_name = "RECORD", value_hint = ValueHint::AnyPath)]
    pub records: Vec<String>,
    /// Write the comparison to this HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub archive: RunArchive,
}

#[derive(Debug, Args)]
pub struct Report {
    /// Records: a file, a folder written by `run --out`, or a run number of the archive
    #[arg(required = true, value_name = "RECORD", value_hint = ValueHint::AnyPath)]
    pub records: Vec<String>,
    /// Write the report to this HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Write the expectations to this file as a JUnit report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    #[command(flatten)]
    pub archive: RunArchive,
}

#[derive(Debug, Args)]
pub struct Records {
    #[command(subcommand)]
    pub action: RecordsAction,
}

#[derive(Debug, Subcommand)]
pub enum RecordsAction {
    /// List runs, the latest first
    List {
        /// Only experiments whose name contains this text
        #[arg(long)]
        name: Option<String>,
        /// Only runs of this backend
        #[arg(long)]
        backend: Option<String>,
        /// Maximum number of runs to list
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// Print one JSON object per run
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        archive: RunArchive,
    },
    /// Show the report of a run, or the text of its experiment
    Show {
        /// Run number
        id: i64,
        /// Print the text of the experiment instead of the report
        #[arg(long)]
        text: bool,
        #[command(flatten)]
        archive: RunArchive,
    },
    /// Write runs as CSV, Parquet or JSON
    Export {
        /// Run numbers
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Output format
        #[arg(long, value_enum, default_value_t = Format::Json)]
        format: Format,
        /// Export time series (one row per value) instead of one row per connection; JSON always contains both
        #[arg(long)]
        series: bool,
        /// Output file [default: standard output]
        #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
        output: Option<PathBuf>,
        #[command(flatten)]
        archive: RunArchive,
    },
    /// Delete runs
    Delete {
        /// Run numbers
        #[arg(required = true)]
        ids: Vec<i64>,
        #[command(flatten)]
        archive: RunArchive,
    },
}

/// The output formats of `records export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Comma-separated values
    Csv,
    /// Apache Parquet
    Parquet,
    /// The whole record as JSON
    Json,
}

#[derive(Debug, Default, Args)]
pub struct Top {
    /// An interface, a pcap or pcapng file, or the folder or record.json of a simulated run with one capture
    #[arg(value_hint = ValueHint::FilePath)]
    pub source: String,
    /// Only packets that match this filter, e.g. tcp port 80 or sap 4; @FILE reads the filter from a file
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Length of a sample
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = sample_interval)]
    pub interval: Span,
    /// Decode UDP datagrams from or to this port as LLC PDUs
    #[arg(long, value_name = "PORT")]
    pub llc_udp: Option<u16>,
    /// Count LLC responses that take longer as late
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub deadline: Option<Span>,
    /// Count LLC commands without a response after this time as unanswered
    #[arg(long, alias = "patience", value_name = "DURATION", default_value = "1s", value_parser = span)]
    pub timeout: Span,
    /// Number of packets in the trace
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub events: u32,
    /// Print one line per interval, even on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Print only one JSON object per interval
    #[arg(long, conflicts_with = "plain")]
    pub json: bool,
    /// Write every sample and the totals to this file as CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
    /// At the end, plot packets/s and bits/s over time to this file as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub graph: Option<PathBuf>,
    /// At the end, write the packets of the trace to this new file as pcapng
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = long_span)]
    pub duration: Option<Span>,
    /// Size of the capture buffer, in MiB
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
    /// Measure the processor time per packet and per byte, and print it as a `host` line for a network
    ///
    /// Sends and receives UDP datagrams over the loopback interface, one per system call, without a network card, driver
    /// or interrupt. With --rates, measures the processor load of a receiver by packet size and rate instead, the highest
    /// rates, and the load above which bundling pays off.
    Host {
        /// Measure processor load by packet size and rate, up to the collapse of throughput
        #[arg(long)]
        rates: bool,
        /// Approximate length of the measurement [default: 5s, with --rates 120s]
        #[arg(long, alias = "seconds", value_name = "DURATION", value_parser = measurement_span)]
        duration: Option<Span>,
        #[command(flatten)]
        repeated: MeasurementOptions,
    },
    /// Measure the processor time of multicast packets, of joined and other groups, and of joining a group
    ///
    /// Sends 2,000 packets per second over the loopback interface to 10 to 2,000 groups, some of which are joined.
    Multicast {
        /// Approximate length of the measurement
        #[arg(long, alias = "seconds", value_name = "DURATION", default_value = "60s", value_parser = measurement_span)]
        duration: Span,
        #[command(flatten)]
        repeated: MeasurementOptions,
    },
}

/// How often a measurement is repeated, and where its results go.
#[derive(Debug, Args)]
pub struct MeasurementOptions {
    /// Repetitions of the measurement of rates or groups [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub runs: Option<u8>,
    /// Folder for tables as CSV and plots as HTML [default: write no files]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print only the results, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses the length of a sample: at least 10 ms, because shorter samples contain mostly noise.
fn sample_interval(text: &str) -> Result<Span, String> {
    in_range(long_span(text)?, Span::from_ms(10).., "expected at least 10ms")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Flags::command().debug_assert();
    }
}
