//! `trunkline analyse`: statistics of recorded traffic, and a fitted traffic source.
//!
//! | module | contents |
//! | --- | --- |
//! | [`read`] | selecting a series from files, runs and archives |
//! | [`mod@column`] | a column, and its conversion to a series |
//! | [`table`] | CSV files |
//! | [`capture`] | the packets of a capture |
//! | [`archived`] | archives of counters |
//! | [`text`] | the report as text |
//! | [`page`] | the report as plots |
//! | [`fit`] | which laws and models fit best |
//! | [`source`] | a fitted source as an experiment |

mod archived;
pub mod capture;
pub mod column;
mod fit;
mod page;
pub mod read;
mod source;
mod table;
mod text;

use std::path::Path;

use serde::Serialize;
use trunkline_counters::archive::Location;
use trunkline_counters::counter::Timestamp;
use trunkline_traffic::Series;
use trunkline_traffic::analysis::{self, Distribution, Inventory, Spectrum};
use trunkline_traffic::autocorrelation::{Autocorrelation, autocorrelation};
use trunkline_traffic::hurst::{self, Estimate, HurstError, Method};
use trunkline_traffic::series::{Correlation, SeriesError};

use self::column::{Column, Loaded, Reading};
use super::monitor::time::format_moment;
use super::report::{create_folder, terminal_width, write_atomically};
use crate::failure::{Failure, print};
use crate::flags::analyse::{Analyse, Fit, Unit};

/// Version of `analyse.json`, increased when the meaning of a field changes.
const VERSION: u32 = 1;

/// The contents of `analyse.json`. Rates are in `unit` per second, amounts in `unit`, times in seconds from the origin of
/// the series.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    series: String,
    column: String,
    /// Null if unknown.
    unit: Option<Unit>,
    grain_s: f64,
    start_s: f64,
    end_s: f64,
    /// Start and end as dates, if the times are dates.
    start: Option<String>,
    end: Option<String>,
    intervals: usize,
    gaps: usize,
    /// Amount that resampling left out, at the ends and next to gaps.
    left_out: f64,
    /// Number of values of a run that cover less than an interval.
    partial: usize,
    /// Distribution of the rate per interval.
    rate_per_s: Distribution,
    autocorrelation: Autocorrelation,
    bursts: Bursts,
    /// The longest sequence of intervals without a gap, the input of `spectrum` and `hurst`.
    stretch: Stretch,
    spectrum: Spectrum,
    hurst: Vec<HurstResult>,
    /// Correlation with the series of `--against`.
    correlation: Option<CorrelationReport>,
    #[serde(skip)]
    loaded: Loaded,
}

#[derive(Debug, Serialize)]
struct Stretch {
    start_s: f64,
    intervals: usize,
}

#[derive(Debug, Serialize)]
struct Bursts {
    significant: bool,
    threshold: f64,
    count: usize,
    share_of_time: f64,
    share_of_amount: f64,
    /// The largest bursts, in order of time.
    list: Vec<Burst>,
}

#[derive(Debug, Serialize)]
struct Burst {
    start_s: f64,
    end_s: f64,
    amount: f64,
    peak_per_s: f64,
}

/// An estimate of the Hurst exponent, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum HurstResult {
    Estimate(Box<Estimate>),
    Refused { method: Method, refused: String },
}

#[derive(Debug, Serialize)]
struct CorrelationReport {
    series: String,
    column: String,
    #[serde(flatten)]
    correlation: Correlation,
}

/// Runs `trunkline analyse`.
pub fn analyse(flags: &Analyse) -> Result<(), Failure> {
    let reading = Reading {
        time: flags.time.as_deref(),
        interval: flags.interval,
        values: flags.values,
        unit: flags.unit,
        column: flags.column.as_deref(),
        archive: &flags.archive,
    };
    match flags.fit {
        Some(Fit::Best) => return fit::best(flags, &reading),
        Some(Fit::Model(_)) if flags.json => {
            return Err(Failure::input("--json prints no experiment; it prints the evidence of --fit best"));
        }
        _ => {}
    }
    let columns = read::columns(&flags.series, &reading)?;
    // The address of a database may contain a password.
    let flags = &Analyse { series: display_name(&flags.series), ..flags.clone() };
    if flags.inventory {
        return inventory(flags, &columns, &reading);
    }
    let column = read::choose(&columns, flags.column.as_deref(), &flags.series)?;
    let mut loaded = column.load(&reading).map_err(|error| input_error(&flags.series, &error))?;
    let mut left_out = 0.0;
    if let Some(grain) = flags.grain {
        let found =
            loaded.series.resample(grain).map_err(|e| input_error(&flags.series, &resample_error(e)))?;
        (loaded.series, left_out) = (found.series, found.left_out);
        if loaded.series.known().next().is_none() {
            return Err(input_error(&flags.series, "no interval of that length is complete"));
        }
    }
    if let Some(Fit::Model(kind)) = flags.fit {
        return print(&source::experiment(flags, &loaded, kind)?);
    }
    let correlate = flags.against.as_deref().map(|other| against(flags, &loaded.series, other, &reading));
    let mut report = report(flags, loaded, correlate.transpose()?)?;
    report.left_out = left_out;
    let json = serde_json::to_string_pretty(&report).map_err(Failure::run)? + "\n";
    if let Some(out) = &flags.out {
        write(out, &report, &json)?;
    }
    if flags.json {
        print(&json)?;
        return report.check_length();
    }
    let mut text = text::text(&report, terminal_width());
    if let Some(out) = &flags.out {
        text += &format!("\nPlots: {}\n", out.join("analyse.html").display());
    }
    print(&text)?;
    report.check_length()
}

fn display_name(series: &str) -> String {
    Location::from(series).to_string()
}

fn input_error(series: &str, reason: &str) -> Failure {
    Failure::input(format!("{series}: {reason}"))
}

/// Describes why a series cannot be resampled.
fn resample_error(error: SeriesError) -> String {
    match error {
        SeriesError::Length => "it has no whole interval of that length, or too many".into(),
        error => error.to_string(),
    }
}

fn against(
    flags: &Analyse,
    series: &Series,
    other: &str,
    reading: &Reading<'_>,
) -> Result<CorrelationReport, Failure> {
    // The flags of the interval and the times apply to the first series only.
    let column = flags.against_column.as_deref();
    let reading = Reading { interval: None, time: None, values: None, unit: None, column, ..*reading };
    let columns = read::columns(other, &reading)?;
    let other = display_name(other);
    let column = read::choose(&columns, flags.against_column.as_deref(), &other)?;
    let loaded = column.load(&reading).map_err(|error| input_error(&other, &error))?;
    let correlation =
        series.correlate(&loaded.series).map_err(|e| input_error(&other, &resample_error(e)))?;
    Ok(CorrelationReport { series: other, column: loaded.name, correlation })
}

fn report(
    flags: &Analyse,
    loaded: Loaded,
    correlation: Option<CorrelationReport>,
) -> Result<Report, Failure> {
    let series = &loaded.series;
    let grain_s = series.grain().as_s();
    let seconds = |ns: i64| ns as f64 / 1e9;
    let calendar = |ns: i64| loaded.calendar.then(|| moment(ns));
    let rate_per_s = analysis::distribution(series.known().map(|v| v / grain_s))
        .ok_or_else(|| input_error(&flags.series, "it contains no numbers"))?;
    let threshold = flags.burst_above.unwrap_or_else(|| analysis::usual_threshold(series));
    let (from, stretch) = series.stretch();
    let rates: Vec<f64> = stretch.iter().map(|v| v / grain_s).collect();
    let estimate = |method| match hurst::estimate(method, &stretch) {
        Ok(estimate) => HurstResult::Estimate(Box::new(estimate)),
        Err(why) => HurstResult::Refused { method, refused: why.to_string() },
    };
    Ok(Report {
        version: VERSION,
        series: flags.series.clone(),
        column: loaded.name.clone(),
        unit: loaded.unit,
        grain_s,
        start_s: seconds(series.start_ns()),
        end_s: seconds(series.end_ns()),
        start: calendar(series.start_ns()),
        end: calendar(series.end_ns()),
        intervals: series.values().len(),
        gaps: series.gaps(),
        left_out: 0.0,
        partial: loaded.partial,
        rate_per_s,
        autocorrelation: autocorrelation(series.values(), flags.lags as usize),
        bursts: bursts(&analysis::bursts(series, threshold), grain_s),
        stretch: Stretch {
            start_s: seconds(series.start_ns()) + grain_s * from as f64,
            intervals: stretch.len(),
        },
        spectrum: analysis::spectrum(&rates, grain_s),
        hurst: Method::ALL.map(estimate).into(),
        correlation,
        loaded,
    })
}

fn bursts(found: &Inventory, grain_s: f64) -> Bursts {
    let burst = |b: &analysis::Burst| Burst {
        start_s: b.start_ns as f64 / 1e9,
        end_s: b.end_ns as f64 / 1e9,
        amount: b.amount,
        peak_per_s: b.peak / grain_s,
    };
    Bursts {
        significant: found.significant(),
        threshold: found.threshold,
        count: found.count,
        share_of_time: found.share_of_time,
        share_of_amount: found.share_of_amount,
        list: found.bursts.iter().map(burst).collect(),
    }
}

impl Unit {
    /// Returns the bytes per unit, for messages of `message` bytes.
    pub fn bytes(self, message: u32) -> f64 {
        match self {
            Unit::Bits => 0.125,
            Unit::Bytes => 1.0,
            Unit::Cells => 53.0,
            Unit::Messages => f64::from(message),
        }
    }
}

/// Formats a time as a date in UTC.
fn moment(ns: i64) -> String {
    format_moment(Timestamp(ns))
}

impl Report {
    /// Fails if the series is too short for a Hurst exponent. Everything else has been printed.
    fn check_length(&self) -> Result<(), Failure> {
        let length = self.stretch.intervals;
        if length >= hurst::SHORTEST {
            return Ok(());
        }
        let reason = HurstError::Short(length);
        // The series of a run has 120 to 600 intervals.
        let remedy = "measure for longer or at shorter intervals: of a capture with `--interval`; for a series of 500 intervals \
                      run for 25 s, 50 s, 250 s or 500 s";
        Err(input_error(&self.series, &format!("{reason}; {remedy}")))
    }

    fn estimates(&self) -> impl Iterator<Item = &Estimate> {
        self.hurst.iter().filter_map(|result| match result {
            HurstResult::Estimate(estimate) => Some(&**estimate),
            HurstResult::Refused { .. } => None,
        })
    }
}

/// Prints one row per column, as in table 15 of the report of 1996.
fn inventory(flags: &Analyse, columns: &[Column], reading: &Reading<'_>) -> Result<(), Failure> {
    let mut rows = vec![["series", "start", "end", "significant_burst", "bursts", "gaps"].map(String::from)];
    for column in columns.iter().filter(|c| c.is_numbers()) {
        let Loaded { name, mut series, calendar, .. } =
            column.load(reading).map_err(|error| input_error(&flags.series, &error))?;
        if let Some(grain) = flags.grain {
            series =
                series.resample(grain).map_err(|e| input_error(&flags.series, &resample_error(e)))?.series;
        }
        let threshold = flags.burst_above.unwrap_or_else(|| analysis::usual_threshold(&series));
        let found = analysis::bursts(&series, threshold);
        let time = |ns: i64| if calendar { moment(ns) } else { (ns as f64 / 1e9).to_string() };
        let significant = if found.significant() { "yes" } else { "" };
        let (start, end) = (time(found.start_ns), time(found.end_ns));
        let counts = [found.count, series.gaps()].map(|n| n.to_string());
        let [bursts, gaps] = counts;
        rows.push([trunkline_report::sanitize(&name), start, end, significant.into(), bursts, gaps]);
    }
    if rows.len() == 1 {
        read::choose(&[], None, &flags.series)?;
    }
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.write_record(row).map_err(Failure::run)?;
    }
    print(&csv.into_inner().map_err(Failure::run)?)
}

fn write(out: &Path, report: &Report, json: &str) -> Result<(), Failure> {
    create_folder(out)?;
    write_atomically(&out.join("analyse.json"), json.as_bytes())?;
    write_atomically(&out.join("analyse.html"), page::html(report).as_bytes())
}
