//! `trunkline analyse`: what recorded traffic is like, and a source that is like it.
//!
//! | module | what |
//! | --- | --- |
//! | [`read`] | series from CSV files and runs |
//! | [`archived`] | series from an archive of counters |
//! | [`tell`] | the report as text |
//! | [`page`] | the report as plots |
//! | [`source`] | a fitted source as an experiment |

mod archived;
mod page;
mod read;
mod source;
mod tell;

use std::path::Path;

use serde::Serialize;
use trunkline_counters::archive::Location;
use trunkline_traffic::Series;
use trunkline_traffic::analysis::{self, Autocorrelation, Distribution, Inventory, Spectrum};
use trunkline_traffic::hurst::{self, Estimate, Method};
use trunkline_traffic::series::{Correlation, SeriesError};

use self::read::{Column, Loaded, Reading};
use super::report::{width, write_whole};
use crate::failure::{Failure, say};
use crate::flags::analyse::{Analyse, Unit};

/// The version of `analyse.json`; it grows when a field changes its meaning.
const VERSION: u32 = 1;

/// What was found: `analyse.json`. Rates are in `unit` a second, amounts in `unit`, times in seconds from the series'
/// origin.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    series: String,
    column: String,
    /// `bits`, `bytes`, `cells`, `messages`; null where nobody said.
    unit: Option<&'static str>,
    grain_s: f64,
    start_s: f64,
    end_s: f64,
    /// The same by the calendar, where the times are of it.
    start: Option<String>,
    end: Option<String>,
    intervals: usize,
    gaps: usize,
    /// What of the amounts another grain left out, at ends and beside gaps.
    left_out: f64,
    /// Values of a run that stood for less than an interval.
    partial: usize,
    /// Of the rate, interval by interval.
    rate_per_s: Distribution,
    autocorrelation: Autocorrelation,
    bursts: Bursts,
    /// The longest run of intervals without a gap, on which what follows stands.
    stretch: Stretch,
    spectrum: Spectrum,
    hurst: Vec<Told>,
    /// With the series of `--against`.
    correlation: Option<Against>,
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
    /// The largest, in the order of time.
    list: Vec<Burst>,
}

#[derive(Debug, Serialize)]
struct Burst {
    start_s: f64,
    end_s: f64,
    amount: f64,
    peak_per_s: f64,
}

/// An estimate, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Told {
    Estimate(Box<Estimate>),
    Refused { method: Method, refused: String },
}

#[derive(Debug, Serialize)]
struct Against {
    series: String,
    column: String,
    #[serde(flatten)]
    correlation: Correlation,
}

/// Does what was said.
pub fn analyse(flags: &Analyse) -> Result<(), Failure> {
    let reading = Reading {
        time: flags.time.as_deref(),
        every: flags.every,
        values: flags.values,
        unit: flags.unit,
        column: flags.column.as_deref(),
        archive: &flags.archive,
    };
    let columns = read::columns(&flags.series, &reading)?;
    // The address of a database may hold what nobody else is to see.
    let flags = &Analyse { series: shown(&flags.series), ..flags.clone() };
    if flags.inventory {
        return inventory(flags, &columns, &reading);
    }
    let column = read::choose(&columns, flags.column.as_deref(), &flags.series)?;
    let mut loaded = column.load(&reading).map_err(|why| wrong(&flags.series, &why))?;
    let mut left_out = 0.0;
    if let Some(grain) = flags.grain {
        let found = loaded.series.resample(grain).map_err(|e| wrong(&flags.series, &told(e)))?;
        (loaded.series, left_out) = (found.series, found.left_out);
        if loaded.series.known().next().is_none() {
            return Err(wrong(&flags.series, "no interval of that length is known whole"));
        }
    }
    if let Some(kind) = flags.fit {
        return say(&source::experiment(flags, &loaded, kind)?);
    }
    let against = flags.against.as_deref().map(|other| against(flags, &loaded.series, other, &reading));
    let mut report = report(flags, loaded, against.transpose()?)?;
    report.left_out = left_out;
    let json = serde_json::to_string_pretty(&report).map_err(Failure::run)? + "\n";
    if let Some(out) = &flags.out {
        write(out, &report, &json)?;
    }
    if flags.json {
        return say(&json);
    }
    let mut text = tell::text(&report, width());
    if let Some(out) = &flags.out {
        text += &format!("\nPlots: {}\n", out.join("analyse.html").display());
    }
    say(&text)
}

fn shown(series: &str) -> String {
    Location::from(series).to_string()
}

fn wrong(series: &str, why: &str) -> Failure {
    Failure::input(format!("{series}: {why}"))
}

/// Why a series cannot be had in another grain.
fn told(error: SeriesError) -> String {
    match error {
        SeriesError::Length => "it has no whole interval of that length, or too many".into(),
        error => error.to_string(),
    }
}

fn against(flags: &Analyse, series: &Series, other: &str, reading: &Reading<'_>) -> Result<Against, Failure> {
    // How long an interval is, and which column has the times, was said of the first.
    let column = flags.against_column.as_deref();
    let reading = Reading { every: None, time: None, values: None, unit: None, column, ..*reading };
    let columns = read::columns(other, &reading)?;
    let other = shown(other);
    let column = read::choose(&columns, flags.against_column.as_deref(), &other)?;
    let loaded = column.load(&reading).map_err(|why| wrong(&other, &why))?;
    let correlation = series.correlate(&loaded.series).map_err(|e| wrong(&other, &told(e)))?;
    Ok(Against { series: other, column: loaded.name, correlation })
}

fn report(flags: &Analyse, loaded: Loaded, correlation: Option<Against>) -> Result<Report, Failure> {
    let series = &loaded.series;
    let grain_s = series.grain().as_s();
    let seconds = |ns: i64| ns as f64 / 1e9;
    let calendar = |ns: i64| loaded.calendar.then(|| moment(ns));
    let rate_per_s = analysis::distribution(series.known().map(|v| v / grain_s))
        .ok_or_else(|| wrong(&flags.series, "it holds no number"))?;
    let threshold = flags.burst_above.unwrap_or_else(|| analysis::usual_threshold(series));
    let (from, stretch) = series.stretch();
    let rates: Vec<f64> = stretch.iter().map(|v| v / grain_s).collect();
    let told = |method| match hurst::estimate(method, &stretch) {
        Ok(estimate) => Told::Estimate(Box::new(estimate)),
        Err(why) => Told::Refused { method, refused: why.to_string() },
    };
    Ok(Report {
        version: VERSION,
        series: flags.series.clone(),
        column: loaded.name.clone(),
        unit: loaded.unit.map(Unit::name),
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
        autocorrelation: analysis::autocorrelation(series.values(), flags.lags as usize),
        bursts: bursts(&analysis::bursts(series, threshold), grain_s),
        stretch: Stretch {
            start_s: seconds(series.start_ns()) + grain_s * from as f64,
            intervals: stretch.len(),
        },
        spectrum: analysis::spectrum(&rates, grain_s),
        hurst: Method::ALL.map(told).into(),
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
    fn name(self) -> &'static str {
        match self {
            Unit::Bits => "bits",
            Unit::Bytes => "bytes",
            Unit::Cells => "cells",
            Unit::Messages => "messages",
        }
    }

    /// Bytes of one, if a message has so many.
    fn bytes(self, message: u32) -> f64 {
        match self {
            Unit::Bits => 0.125,
            Unit::Bytes => 1.0,
            Unit::Cells => 53.0,
            Unit::Messages => f64::from(message),
        }
    }
}

/// A moment of the calendar, UTC.
fn moment(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(ns.into()).map_or_else(|_| ns.to_string(), |t| t.to_string())
}

/// As table 15 of the 1996 report: a row for each column.
fn inventory(flags: &Analyse, columns: &[Column], reading: &Reading<'_>) -> Result<(), Failure> {
    let mut rows = vec![["series", "start", "end", "significant_burst", "bursts", "gaps"].map(String::from)];
    for column in columns.iter().filter(|c| c.is_numbers()) {
        let Loaded { name, mut series, calendar, .. } =
            column.load(reading).map_err(|why| wrong(&flags.series, &why))?;
        if let Some(grain) = flags.grain {
            series = series.resample(grain).map_err(|e| wrong(&flags.series, &told(e)))?.series;
        }
        let threshold = flags.burst_above.unwrap_or_else(|| analysis::usual_threshold(&series));
        let found = analysis::bursts(&series, threshold);
        let time = |ns: i64| if calendar { moment(ns) } else { (ns as f64 / 1e9).to_string() };
        let significant = if found.significant() { "yes" } else { "" };
        let (start, end) = (time(found.start_ns), time(found.end_ns));
        let counts = [found.count, series.gaps()].map(|n| n.to_string());
        let [bursts, gaps] = counts;
        rows.push([trunkline_report::plain(&name), start, end, significant.into(), bursts, gaps]);
    }
    if rows.len() == 1 {
        read::choose(&[], None, &flags.series)?;
    }
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in rows {
        csv.write_record(row).map_err(Failure::run)?;
    }
    say(&String::from_utf8_lossy(&csv.into_inner().map_err(Failure::run)?))
}

fn write(out: &Path, report: &Report, json: &str) -> Result<(), Failure> {
    std::fs::create_dir_all(out)
        .map_err(|e| Failure::run(format!("cannot make the folder {}: {e}", out.display())))?;
    write_whole(&out.join("analyse.json"), json.as_bytes())?;
    write_whole(&out.join("analyse.html"), page::html(report).as_bytes())
}
