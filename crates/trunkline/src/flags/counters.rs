//! Flags of what goes into and out of an archive of counters.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use trunkline_counters::archive::Location;
use trunkline_counters::counter::{Kind, Moment};
use trunkline_units::Span;

use super::analyse::grain;

#[derive(Debug, Args)]
pub struct List {
    /// The archive of counters: a file, or postgres://USER@HOST/NAME
    #[arg(value_hint = ValueHint::FilePath)]
    pub archive: Location,
    /// Name the series that are meant instead, e.g. sw1, sw1:port/eth0/in/octets or '*:port/*/in/*'
    #[arg(long, value_name = "DEVICE[:SERIES]")]
    pub series: Vec<String>,
    /// As JSON, a table or series a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("format").required(true)))]
pub struct Export {
    /// The archive of counters: a file, or postgres://USER@HOST/NAME
    #[arg(value_hint = ValueHint::FilePath)]
    pub archive: Location,
    /// Which series, e.g. sw1, sw1:port/eth0/in/octets or '*:port/*/in/*' [default: all]
    #[arg(long, value_name = "DEVICE[:SERIES]")]
    pub series: Vec<String>,
    /// From when on: 2026-01-31T12:00:00Z, seconds since 1970, or so long ago, e.g. -3h [default: the beginning]
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Until when, likewise [default: the end]
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Sums, rates and events of intervals of this length instead of every reading, e.g. 15min
    #[arg(long, value_name = "SPAN", value_parser = grain)]
    pub every: Option<Span>,
    /// Write comma-separated values; `-` is standard output
    #[arg(long, value_name = "FILE", group = "format", value_hint = ValueHint::FilePath)]
    pub csv: Option<PathBuf>,
    /// Write Apache Parquet
    #[arg(long, value_name = "FILE", group = "format", value_hint = ValueHint::FilePath)]
    pub parquet: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The archive of counters, a file or postgres://USER@HOST/NAME; it is made where there is none
    #[arg(value_hint = ValueHint::FilePath)]
    pub archive: Location,
    /// A CSV file with a row of names; or a run: its folder or record.json
    #[arg(value_hint = ValueHint::AnyPath)]
    pub file: PathBuf,
    /// The device that it is of; needed for a CSV file
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Its table [default: the file's name without its end]
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// The column of times, in seconds since 1970 or RFC 3339 [default: time, timestamp or t_s, else the first]
    #[arg(long, value_name = "COLUMN")]
    pub time: Option<String>,
    /// From row to row [default: as the first two]
    #[arg(long, value_name = "SPAN", value_parser = grain)]
    pub period: Option<Span>,
    /// What columns hold where nothing else is said
    #[arg(long, value_enum, value_name = "KIND", default_value_t = CsvKind::Counter64)]
    pub kind: CsvKind,
    /// Read this column, as a series of this name and kind, e.g. in=port/eth0/in/octets or
    /// speed=gauge:port/eth0/speed [default: every column, as other/TABLE/COLUMN]
    #[arg(long = "column", value_name = "COLUMN[=[KIND:]SERIES]")]
    pub columns: Vec<String>,
}

/// What a column of a CSV file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CsvKind {
    /// A count that goes up and wraps at 2^32
    Counter32,
    /// A count that goes up
    Counter64,
    /// A whole number that goes up and down
    Gauge,
    /// Any number
    Real,
    /// What was counted in the interval that ends at the row's time, a whole number; counted up on the way in
    Amount,
}

impl CsvKind {
    /// As it is kept.
    pub fn kind(self) -> Kind {
        match self {
            CsvKind::Counter32 => Kind::Counter32,
            CsvKind::Counter64 | CsvKind::Amount => Kind::Counter64,
            CsvKind::Gauge => Kind::Gauge,
            CsvKind::Real => Kind::Real,
        }
    }
}

#[derive(Debug, Args)]
pub struct Capture {
    /// An interface; or a pcap or pcapng file
    #[arg(value_hint = ValueHint::FilePath)]
    pub source: String,
    /// The archive of counters, a file or postgres://USER@HOST/NAME; it is made where there is none
    #[arg(long, value_name = "ARCHIVE", value_hint = ValueHint::FilePath)]
    pub archive: Location,
    /// Only packets that this filter passes, e.g. 'tcp port 80'; @FILE reads it from a file
    #[arg(long, value_name = "FILTER", default_value = "")]
    pub filter: String,
    /// How often flows are written down
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = period)]
    pub every: Span,
    /// Flows that are told apart, ever; what others pass is `flow/other`
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=4000))]
    pub flows: u32,
    /// What makes a flow
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = By::Ports)]
    pub by: By,
    /// The device [default: this machine's name, or the file's name without its end]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// End after this time
    #[arg(long, value_name = "SPAN", value_parser = grain)]
    pub duration: Option<Span>,
    /// Room for packets that wait to be counted, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub buffer: u32,
}

/// What makes a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Both stations and both ports
    Ports,
    /// Both stations and the lower port, which is the server's more likely
    Service,
    /// Both stations
    Stations,
}

#[cfg(feature = "forward")]
#[derive(Debug, Args)]
pub struct Forward {
    /// The archive of counters: a file, or postgres://USER@HOST/NAME
    #[arg(value_hint = ValueHint::FilePath)]
    pub archive: Location,
    /// Where to, e.g. http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub to: String,
    /// Where to begin what was never sent: as of `export` [default: an hour ago]
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// How often to look for news
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = grain)]
    pub every: Span,
    /// End when all that is there has been sent
    #[arg(long)]
    pub once: bool,
    /// Where it is kept how far it came [default: beside the archive, ARCHIVE-forward, or in its database]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
}

/// From 100 ms on: what is written more often tells no more.
fn period(text: &str) -> Result<Span, String> {
    match grain(text)? {
        span if span >= Span::from_ms(100) => Ok(span),
        _ => Err("expected at least 100ms".into()),
    }
}

/// A moment: RFC 3339, seconds since 1970, or `-` and how long ago.
fn moment(text: &str) -> Result<Moment, String> {
    if let Some(ago) = text.strip_prefix('-') {
        let ns = grain(ago)?.as_ns();
        return Ok(crate::commands::now().before(std::time::Duration::from_nanos(ns)));
    }
    crate::commands::moment(text)
        .ok_or_else(|| "expected 2026-01-31T12:00:00Z, seconds since 1970, or -3h".into())
}
