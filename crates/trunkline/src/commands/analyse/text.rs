//! The report as text.

use trunkline_report::{Unit as Shown, sanitize};

use super::{HurstResult, Report};
use crate::flags::analyse::Unit;

/// Lags of the autocorrelation to print.
const LAGS: [usize; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// Number of bursts to print.
const BURSTS: usize = 10;

/// Returns the report, wrapped to the width of the terminal.
pub fn text(report: &Report, width: Option<u16>) -> String {
    let mut text = heading(report);
    text += &wrapped("Rate", &rate(report), width);
    text += &wrapped("Autocorrelation", &memory(report), width);
    text += &block("Periods", periods(report));
    text += &block("Bursts", bursts(report));
    text += &block("Hurst exponent, 95 % intervals", exponents(report));
    if let Some(a) = &report.correlation {
        let c = &a.correlation;
        let line = format!(
            "{} {}: r = {:.3}, {:.3} to {:.3}, over {} intervals of {}, effective sample size {:.0}",
            sanitize(&a.series),
            sanitize(&a.column),
            c.r,
            c.low,
            c.high,
            c.pairs,
            seconds(c.grain_s),
            c.effective
        );
        text += &block("Correlation", vec![line]);
    }
    text
}

fn heading(report: &Report) -> String {
    let Report { series, column, intervals, gaps, grain_s, .. } = report;
    let mut text = format!(
        "{}  {}  {} intervals of {}",
        sanitize(series),
        sanitize(column),
        Shown::Number.format(*intervals as f64),
        seconds(*grain_s)
    );
    if *gaps > 0 {
        text += &format!("  {} missing", Shown::Number.format(*gaps as f64));
    }
    match (&report.start, &report.end) {
        (Some(start), Some(end)) => text += &format!("\n{start} to {end}"),
        _ => text += &format!("\n{} s to {} s", report.start_s, report.end_s),
    }
    if report.left_out != 0.0 {
        text += &format!("\nleft out at the ends and next to gaps: {}", amount(report, report.left_out));
    }
    if report.partial > 0 {
        text += &format!("\npartial intervals left out: {}", report.partial);
    }
    text + "\n"
}

fn seconds(s: f64) -> String {
    Shown::Seconds.format(s)
}

/// Formats a rate; bytes and bits as bits per second.
pub fn rate_of(unit: Option<Unit>, per_s: f64) -> String {
    match unit {
        Some(Unit::Bits) => Shown::BitsPerSecond.format(per_s),
        Some(Unit::Bytes) => Shown::BitsPerSecond.format(per_s * 8.0),
        Some(Unit::Cells) => format!("{} cells/s", Shown::Number.format(per_s)),
        Some(Unit::Messages) => format!("{} messages/s", Shown::Number.format(per_s)),
        None => format!("{}/s", Shown::Number.format(per_s)),
    }
}

fn amount(report: &Report, amount: f64) -> String {
    match report.loaded.unit {
        Some(Unit::Bits) => Shown::Bytes.format(amount / 8.0),
        Some(Unit::Bytes) => Shown::Bytes.format(amount),
        Some(Unit::Cells) => format!("{} cells", Shown::Number.format(amount)),
        Some(Unit::Messages) => format!("{} messages", Shown::Number.format(amount)),
        None => Shown::Number.format(amount),
    }
}

fn rate(report: &Report) -> Vec<String> {
    let d = &report.rate_per_s;
    let show = |v| rate_of(report.loaded.unit, v);
    let mut parts = vec![format!("mean {}", show(d.mean)), format!("deviation {}", show(d.sd))];
    let named =
        [("min", d.min), ("p50", d.p50), ("p90", d.p90), ("p99", d.p99), ("p99.9", d.p999), ("max", d.max)];
    parts.extend(named.map(|(name, v)| format!("{name} {}", show(v))));
    parts.extend(d.peak_to_mean.map(|ratio| format!("peak to mean {}", Shown::Number.format(ratio))));
    parts
}

fn memory(report: &Report) -> Vec<String> {
    let a = &report.autocorrelation;
    let at = |lag: &usize| Some(format!("lag {lag}: {:.3}", a.r.get(*lag)?));
    let mut parts: Vec<String> = LAGS.iter().filter_map(at).collect();
    parts.push(format!("uncorrelated: ±{:.3}", a.band));
    parts
}

fn periods(report: &Report) -> Vec<String> {
    let line = |l: &trunkline_traffic::analysis::Line| {
        format!("every {}: {} of the variance", seconds(l.period_s), Shown::Share.format(l.share))
    };
    report.spectrum.lines.iter().map(line).collect()
}

fn bursts(report: &Report) -> Vec<String> {
    let b = &report.bursts;
    let above = format!("above {}", rate_of(report.loaded.unit, b.threshold / report.grain_s));
    if b.count == 0 {
        return vec![format!("no bursts {above}")];
    }
    let (time, of) = (Shown::Share.format(b.share_of_time), Shown::Share.format(b.share_of_amount));
    let count = Shown::Number.format(b.count as f64);
    let mut lines = vec![format!("{count} {above}, {time} of the time, {of} of the total")];
    let mut largest: Vec<_> = b.list.iter().collect();
    largest.sort_by(|x, y| y.amount.total_cmp(&x.amount));
    largest.truncate(BURSTS);
    largest.sort_by(|x, y| x.start_s.total_cmp(&y.start_s));
    if b.count > BURSTS {
        lines.push(format!("the {BURSTS} largest:"));
    }
    for burst in largest {
        let at = match report.loaded.calendar {
            true => super::moment((burst.start_s * 1e9) as i64),
            false => format!("{} s", burst.start_s),
        };
        lines.push(format!(
            "from {at} for {}: {}, up to {}",
            seconds(burst.end_s - burst.start_s),
            amount(report, burst.amount),
            rate_of(report.loaded.unit, burst.peak_per_s)
        ));
    }
    lines
}

fn exponents(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.gaps > 0 {
        lines.push(format!(
            "from {} intervals without a gap, starting at {} s",
            Shown::Number.format(report.stretch.intervals as f64),
            report.stretch.start_s
        ));
    }
    let mut refused: Vec<&String> = Vec::new();
    for hurst in &report.hurst {
        match hurst {
            HurstResult::Estimate(e) => {
                let raw = e.raw.map_or_else(String::new, |raw| format!("  uncorrected {raw:.3}"));
                let nonlinear = e.line_chance.filter(|p| *p < 0.01);
                let nonlinear = nonlinear.map_or("", |_| "  not linear over octaves");
                lines.push(format!(
                    "{:<14} {:.3}  {:.3} to {:.3}{raw}{nonlinear}",
                    e.method.name(),
                    e.h,
                    e.low,
                    e.high
                ));
            }
            HurstResult::Refused { refused: reason, .. } => refused.push(reason),
        }
    }
    refused.dedup();
    lines.extend(refused.into_iter().cloned());
    let highest_low = report.estimates().map(|e| e.low).fold(f64::NEG_INFINITY, f64::max);
    let lowest_high = report.estimates().map(|e| e.high).fold(f64::INFINITY, f64::min);
    if highest_low > lowest_high {
        lines.push(
            "the estimates disagree: the series has a trend, level shifts, periods or short-range correlation"
                .into(),
        );
    }
    lines
}

/// Formats a title and indented lines; empty if there are no lines.
fn block(title: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    lines.iter().fold(format!("\n{title}\n"), |text, line| text + "  " + line + "\n")
}

/// Formats a title and parts, several per line.
fn wrapped(title: &str, parts: &[String], width: Option<u16>) -> String {
    let width = usize::from(width.unwrap_or(110)).max(40);
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + part.chars().count() + 4 <= width => {
                *line += &format!(", {part}")
            }
            _ => lines.push(part.clone()),
        }
    }
    block(title, lines)
}
