//! Flags of `trunkline analyse`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;
use trunkline_traffic::profile::Kind;
use trunkline_units::Span;

use super::RunArchive;
use super::values::{long_span, one_of};

#[derive(Clone, Debug, Args)]
pub struct Analyse {
    /// A CSV file (`-` reads standard input); a run, by number, folder or record.json; or an archive of counters, a file or
    /// postgres://USER@HOST/NAME
    #[arg(value_hint = ValueHint::AnyPath)]
    pub series: String,
    /// Column to analyse; for a run CONNECTION.FIGURE, e.g. bulk.received_bps; for an archive of counters DEVICE:SERIES
    /// [default: the first with numbers]
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Column of times, in seconds or RFC 3339 [default: t_s, time or timestamp, else the first of several]
    #[arg(long, value_name = "NAME")]
    pub time: Option<String>,
    /// Interval between values, e.g. 15s, 15min [default: derived from the times; required without times]
    #[arg(long, alias = "every", value_name = "DURATION", value_parser = long_span)]
    pub interval: Option<Span>,
    /// Meaning of the values [default: rates if the name ends in _bps or _per_s, else amounts]
    #[arg(long, value_enum, value_name = "KIND")]
    pub values: Option<Values>,
    /// Unit of the values [default: derived from the name, else bytes]
    #[arg(long, value_enum)]
    pub unit: Option<Unit>,
    /// Resample the series to intervals of this length first
    #[arg(long, value_name = "DURATION", value_parser = long_span)]
    pub grain: Option<Span>,
    /// Largest lag of the autocorrelation, in intervals
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub lags: u32,
    /// Count intervals above this amount as bursts [default: the median plus five deviations, or plus half the median if that
    /// is more]
    #[arg(long, value_name = "AMOUNT")]
    pub burst_above: Option<f64>,
    /// Correlate with this series at the longer of both intervals; times must have the same origin
    #[arg(long, value_name = "SERIES", value_hint = ValueHint::AnyPath)]
    pub against: Option<String>,
    /// Column of the --against series
    #[arg(long, value_name = "NAME", requires = "against")]
    pub against_column: Option<String>,
    /// Only list the columns as CSV: time range, and whether the column has a significant burst
    #[arg(long, conflicts_with_all = ["column", "against", "fit", "json", "out"])]
    pub inventory: bool,
    /// Print which laws and models fit best; or fit one model to the series and print only an experiment with that source
    #[arg(long, value_parser = fit_kind(), value_name = "KIND", num_args = 0..=1, default_missing_value = "best")]
    pub fit: Option<Fit>,
    /// Intervals to generate [default: the length of the series, at most 1000]
    #[arg(long, value_name = "N", requires = "fit", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub intervals: Option<u32>,
    /// Seed of the generated intervals
    #[arg(long, value_name = "N", requires = "fit", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Message size of the fitted source, and of a message if the unit is messages
    #[arg(long, alias = "message", value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(32..=65_507))]
    pub size: u32,
    /// Folder for analyse.json and analyse.html [default: write no files]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print only analyse.json
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub archive: RunArchive,
}

/// The meaning of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Values {
    /// Total of the interval
    Amounts,
    /// Mean rate per second in the interval
    Rates,
}

/// The unit of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bits
    Bits,
    /// Bytes
    Bytes,
    /// ATM cells of 53 bytes
    Cells,
    /// Messages or packets
    Messages,
}

/// What `--fit` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The evidence of all laws and models.
    Best,
    /// An experiment with this model.
    Model(Kind),
}

/// Parses the model of a fitted source.
fn fit_kind() -> impl TypedValueParser<Value = Fit> {
    one_of([
        ("best", "Compare laws of gaps and sizes, and models of the series, the best first", Fit::Best),
        ("empirical", "Independent draws from the observed values", Fit::Model(Kind::Empirical)),
        ("on-off", "Alternating on and off periods", Fit::Model(Kind::OnOff)),
        ("fgn", "Fractional Gaussian noise: mean, variance, Hurst exponent", Fit::Model(Kind::Fgn)),
        (
            "poisson",
            "A Poisson number of equal amounts in each interval: mean, variance",
            Fit::Model(Kind::Poisson),
        ),
        (
            "mginf",
            "Sessions of M/G/inf with Pareto durations: mean, variance, Hurst exponent, first autocorrelation",
            Fit::Model(Kind::MgInf),
        ),
        (
            "tes",
            "Transform-expand-sample (TES): the observed values and their short-range autocorrelation",
            Fit::Model(Kind::Tes),
        ),
    ])
}
