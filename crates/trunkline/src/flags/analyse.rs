//! Flags of `trunkline analyse`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use trunkline_traffic::profile::Kind;
use trunkline_units::Span;

use super::ArchivePlace;

#[derive(Clone, Debug, Args)]
pub struct Analyse {
    /// A CSV file (`-`: standard input); a run: its number in the archive, its folder or its record.json; or an archive of
    /// counters, a file or postgres://USER@HOST/NAME
    #[arg(value_hint = ValueHint::AnyPath)]
    pub series: String,
    /// The column; of a run CONNECTION.FIGURE, e.g. bulk.received_bps; of an archive of counters DEVICE:SERIES [default:
    /// the first of numbers]
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// The column of times, in seconds or RFC 3339 [default: t_s, time or timestamp, else the first of several]
    #[arg(long, value_name = "NAME")]
    pub time: Option<String>,
    /// How long an interval is, e.g. 15s, 15min [default: as the times tell; needed without]
    #[arg(long, value_name = "SPAN", value_parser = grain)]
    pub every: Option<Span>,
    /// What a value says [default: a rate if the name ends in _bps or _per_s, else an amount]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub values: Option<Values>,
    /// What is counted [default: as the name tells, else bytes]
    #[arg(long, value_enum)]
    pub unit: Option<Unit>,
    /// Look at it in intervals of this length instead
    #[arg(long, value_name = "SPAN", value_parser = grain)]
    pub grain: Option<Span>,
    /// Autocorrelation up to this lag, in intervals
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub lags: u32,
    /// An interval with more than this is a burst [default: the median and five deviations, or half of it if that is more]
    #[arg(long, value_name = "AMOUNT")]
    pub burst_above: Option<f64>,
    /// Correlate with this series, at the coarser of both grains; times have the same origin
    #[arg(long, value_name = "SERIES", value_hint = ValueHint::AnyPath)]
    pub against: Option<String>,
    /// Its column
    #[arg(long, value_name = "NAME", requires = "against")]
    pub against_column: Option<String>,
    /// Only list every column: from when to when, and whether it has a significant burst, as CSV
    #[arg(long, conflicts_with_all = ["column", "against", "fit", "json", "out"])]
    pub inventory: bool,
    /// Print an experiment whose source is drawn from a fit to the series, and nothing else
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "json")]
    pub fit: Option<FitKind>,
    /// Intervals to draw [default: as many as the series has, at most 1000]
    #[arg(long, value_name = "N", requires = "fit", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub intervals: Option<u32>,
    /// What they are drawn from
    #[arg(long, value_name = "N", requires = "fit", default_value_t = trunkline_units::Seed::default().0)]
    pub seed: u64,
    /// Bytes of a message of that source, and of a message where messages are counted
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u32).range(32..=65_507))]
    pub message: u32,
    /// Folder for analyse.json and analyse.html [default: nothing is written]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Print analyse.json, and nothing else, to standard output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub archive: ArchivePlace,
}

/// What a value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Values {
    /// How much there was in the interval
    Amounts,
    /// How much there was a second, in the mean of the interval
    Rates,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// Which law is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FitKind {
    /// The values, each as likely as the others, without memory
    Empirical,
    /// On or off, and how long each time
    OnOff,
    /// Fractional Gaussian noise: mean, variance, Hurst exponent
    Fgn,
    /// Transform–expand–sample: the values and their short memory
    Tes,
}

impl FitKind {
    /// As the library has it.
    pub fn kind(self) -> Kind {
        match self {
            FitKind::Empirical => Kind::Empirical,
            FitKind::OnOff => Kind::OnOff,
            FitKind::Fgn => Kind::Fgn,
            FitKind::Tes => Kind::Tes,
        }
    }
}

/// The units of a grain, the longest name first, and their nanoseconds.
const GRAINS: [(&str, u64); 7] = [
    ("min", 60_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("s", 1_000_000_000),
];

/// From a nanosecond to 200 days: `15min`.
pub(super) fn grain(text: &str) -> Result<Span, String> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = GRAINS.iter().find(|(name, _)| *name == unit.trim());
    let ns = match (number.trim().parse::<f64>(), unit) {
        (Ok(number), Some((_, ns))) => (number * *ns as f64).round(),
        _ => f64::NAN,
    };
    if (1.0..=1.728e16).contains(&ns) {
        return Ok(Span::from_ns(ns as u64));
    }
    Err("expected a span such as 15s, 15min or 1h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grains_are_read() {
        assert_eq!(grain("15min"), Ok(Span::from_s(900)));
        assert_eq!(grain("0.5 s"), Ok(Span::from_ms(500)));
        assert_eq!(grain("1h"), Ok(Span::from_s(3600)));
        for wrong in ["", "15", "s", "0s", "-1s", "1 fortnight", "1e40s", "nan s"] {
            assert!(grain(wrong).is_err(), "{wrong}");
        }
    }
}
