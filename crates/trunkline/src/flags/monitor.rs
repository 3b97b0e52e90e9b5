//! Flags of `trunkline monitor`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use trunkline_capture::flow::By;
use trunkline_counters::archive::Location;
use trunkline_counters::counter::{Timestamp, ValueKind};
use trunkline_units::Span;

use super::CountersArchive;
use super::values::{in_range, long_span, one_of};

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Monitor {
    #[command(subcommand)]
    pub tool: Tool,
}

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Poll devices by SNMP, interfaces of this machine and hosts by ping, and store their counters
    ///
    /// Stores readings in an archive of counters; with --no-archive, prints rates instead. Reports when a device fails and
    /// when it recovers, and continues with the others. SIGTERM or Ctrl-C writes all readings and stops. Exit status: 0 when
    /// interrupted, or with --once if every device answered; 1 if one did not, or if polling or writing fails; 2 if the
    /// configuration or the usage is wrong.
    Poll(Poll),
    /// List the contents of an archive of counters: devices, tables, series, time range, size
    List(List),
    /// Export readings or aggregates of series as CSV or Parquet
    ///
    /// Exit status: 0 on success, 1 if reading or writing fails, 2 if the usage is wrong or no series matches.
    Export(Export),
    /// Import a CSV file, or the runs of an experiment, into an archive of counters
    ///
    /// A file with an error anywhere is rejected as a whole. Exit status: 0 on success, 1 if writing fails, 2 if the input
    /// or the usage is wrong.
    Import(Import),
    /// Count the packets of an interface or a capture by flow, into an archive of counters
    ///
    /// Each flow has octets and packets in both directions; `out` is the direction of its first packet. Exit status: 0 when
    /// interrupted or at the end of the file, 1 if capturing or writing fails, 2 if the input or the usage is wrong.
    Capture(Capture),
    /// Forward new readings of an archive of counters to Prometheus (remote write 1.0)
    ///
    /// Continues where the last run stopped. Exit status: 0 when interrupted, 1 if reading or sending fails, 2 if the usage
    /// is wrong.
    Forward(Forward),
}

#[derive(Debug, Args)]
pub struct Poll {
    /// Configuration of devices, a TOML file (docs/reference/monitor.md)
    #[arg(value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    #[command(flatten)]
    pub archive: CountersArchive,
    /// Store nothing; print rates
    #[arg(long)]
    pub no_archive: bool,
    /// Poll every device once, print a table of devices and ports, and exit; stores readings only with --archive
    #[arg(long)]
    pub once: bool,
    /// Print only JSON, one object per line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// The archive; the older form of --archive.
    #[arg(hide = true, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub positional: Option<Location>,
    /// List the series that match instead of tables, e.g. sw1, sw1:port/eth0/in/octets or '*:port/*/in/*'
    #[arg(long, value_name = "DEVICE[:SERIES]")]
    pub series: Vec<String>,
    /// Print one JSON object per table or series
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// The archive; the older form of --archive.
    #[arg(hide = true, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub positional: Option<Location>,
    /// Series to export, e.g. sw1, sw1:port/eth0/in/octets or '*:port/*/in/*' [default: all]
    #[arg(long, value_name = "DEVICE[:SERIES]")]
    pub series: Vec<String>,
    /// Start of the time range: 2026-01-31T12:00:00Z, seconds since 1970, or relative to now, e.g. -3h [default: first
    /// reading]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub from: Option<Timestamp>,
    /// End of the time range, in the same form [default: last reading]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub to: Option<Timestamp>,
    /// Export sums, rates and events of intervals of this length instead of every reading, e.g. 15min
    #[arg(long, alias = "every", value_name = "DURATION", value_parser = long_span)]
    pub interval: Option<Span>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ExportFormat::Csv)]
    pub format: ExportFormat,
    /// Output file [default: standard output; required for Parquet]
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The older form of --format csv --output FILE; `-` is standard output.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["output", "parquet"])]
    pub csv: Option<PathBuf>,
    /// The older form of --format parquet --output FILE.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "output")]
    pub parquet: Option<PathBuf>,
}

/// The output formats of `monitor export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Comma-separated values
    Csv,
    /// Apache Parquet
    Parquet,
}

#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct Import {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// The archive; the older form of --archive.
    #[arg(hide = true, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub positional: Option<Location>,
    /// A CSV file with a header row, or a run: its folder or record.json
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    pub file: PathBuf,
    /// Device to import into; required for a CSV file
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Table to import into [default: the file name without its extension]
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// Column of times, in seconds since 1970 or RFC 3339 [default: time, timestamp or t_s, else the first]
    #[arg(long, value_name = "NAME")]
    pub time: Option<String>,
    /// Interval between rows [default: derived from the first two rows]
    #[arg(long, alias = "period", value_name = "DURATION", value_parser = long_span)]
    pub interval: Option<Span>,
    /// Kind of the columns for which --column gives none
    #[arg(long, value_enum, value_name = "KIND", default_value_t = CsvKind::Counter64)]
    pub kind: CsvKind,
    /// Import this column as a series of this name and kind, e.g. in=port/eth0/in/octets or speed=gauge:port/eth0/speed
    /// [default: every column, as other/TABLE/COLUMN]
    #[arg(long = "column", value_name = "COLUMN[=[KIND:]SERIES]")]
    pub columns: Vec<String>,
}

/// The kind of a column of a CSV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CsvKind {
    /// Monotonic counter that wraps at 2^32
    Counter32,
    /// Monotonic 64-bit counter
    Counter64,
    /// Integer that rises and falls
    Gauge,
    /// Floating-point number
    Real,
    /// Integer count of the interval that ends at the time of the row; accumulated on import
    Amount,
}

impl CsvKind {
    /// Returns the kind of the stored series.
    pub fn kind(self) -> ValueKind {
        match self {
            CsvKind::Counter32 => ValueKind::Counter32,
            CsvKind::Counter64 | CsvKind::Amount => ValueKind::Counter64,
            CsvKind::Gauge => ValueKind::Gauge,
            CsvKind::Real => ValueKind::Real,
        }
    }
}

#[derive(Debug, Args)]
pub struct Capture {
    /// An interface, or a pcap or pcapng file
    #[arg(value_hint = ValueHint::FilePath)]
    pub source: String,
    /// Only packets that match this filter, e.g. tcp port 80; @FILE reads the filter from a file
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
    /// The older form of FILTER.
    #[arg(long = "filter", hide = true, value_name = "FILTER", conflicts_with = "filter")]
    pub filter_flag: Option<String>,
    #[command(flatten)]
    pub archive: CountersArchive,
    /// Interval between readings
    #[arg(long, alias = "every", value_name = "DURATION", default_value = "10s", value_parser = capture_interval)]
    pub interval: Span,
    /// Maximum number of flows; packets of later flows are counted in `flow/other`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub flows: u32,
    /// Fields that identify a flow
    #[arg(long, value_parser = flow_key(), value_name = "FIELDS", default_value = "ports")]
    pub by: By,
    /// Device to store flows under [default: the host name, or the file name without its extension]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = long_span)]
    pub duration: Option<Span>,
    /// Size of the capture buffer, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub buffer: u32,
}

/// Parses the fields that identify a flow.
fn flow_key() -> impl TypedValueParser<Value = By> {
    one_of([
        ("ports", "Both addresses and both ports", By::Ports),
        (
            "service",
            "Both addresses and the lower port, which is usually the port of the server",
            By::Service,
        ),
        ("stations", "Both addresses", By::Stations),
    ])
}

#[derive(Debug, Args)]
pub struct Forward {
    #[command(flatten)]
    pub archive: CountersArchive,
    /// The archive; the older form of --archive.
    #[arg(hide = true, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub positional: Option<Location>,
    /// URL of the receiver, e.g. http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub to: String,
    /// Start time of series that were never sent, in the form of `export --from` [default: one hour ago]
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub from: Option<Timestamp>,
    /// Interval between checks for new readings
    #[arg(long, alias = "every", value_name = "DURATION", default_value = "10s", value_parser = long_span)]
    pub interval: Span,
    /// Exit when all readings are sent
    #[arg(long)]
    pub once: bool,
    /// File that stores how far each table was sent [default: ARCHIVE-forward next to the archive, or its database]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
}

/// Parses an interval of at least 100 ms.
fn capture_interval(text: &str) -> Result<Span, String> {
    in_range(long_span(text)?, Span::from_ms(100).., "expected at least 100ms")
}

/// Parses a time: RFC 3339, seconds since 1970, or a negative duration relative to now.
fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = text.strip_prefix('-') {
        let ns = long_span(ago)?.as_ns();
        return Ok(crate::commands::now().saturating_sub(std::time::Duration::from_nanos(ns)));
    }
    crate::commands::parse_moment(text)
        .ok_or_else(|| "expected 2026-01-31T12:00:00Z, seconds since 1970, or -3h".into())
}
