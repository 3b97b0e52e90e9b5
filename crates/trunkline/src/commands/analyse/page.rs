//! The report as plots.

use trunkline_report::Unit as Shown;
use trunkline_report::plot_page::{Curve, Plot, Scale, plot_page};
use trunkline_traffic::analysis::noise_shape;
use trunkline_traffic::hurst::{Estimate, Method};

use super::Report;
use super::text::rate_of;
use crate::flags::analyse::Unit;

/// Number of segments of the plotted series; each is drawn by its minimum and maximum.
const PARTS: usize = 1500;

/// Returns the page.
pub fn html(report: &Report) -> String {
    let title = format!("{} {}", report.series, report.column);
    let mut plots = vec![series(report), distribution(report), memory(report), spectrum(report)];
    plots.extend(report.estimates().map(exponent));
    plot_page(&title, &facts(report), &plots)
}

fn facts(report: &Report) -> Vec<(String, String)> {
    let rate = |v| rate_of(report.loaded.unit, v);
    let known = report.intervals - report.gaps;
    let mut facts = vec![
        (
            "intervals".into(),
            format!("{known} of {}, {} each", report.intervals, Shown::Seconds.format(report.grain_s)),
        ),
        ("mean".into(), rate(report.rate_per_s.mean)),
        ("bursts".into(), report.bursts.count.to_string()),
    ];
    for e in report.estimates() {
        let value = format!("{:.3}, {:.3} to {:.3}", e.h, e.low, e.high);
        facts.push((format!("Hurst, {}", e.method.name()), value));
    }
    facts
}

fn scale(label: &str, unit: Shown, log: bool) -> Scale {
    Scale { label: label.into(), unit, log }
}

fn curve(label: &str, points: Vec<(f64, f64)>) -> Curve {
    Curve { label: label.into(), dash: false, points }
}

/// Returns the unit of plotted rates, and the factor from the unit of the series.
fn drawn_in(report: &Report) -> (Shown, f64) {
    match report.loaded.unit {
        Some(Unit::Bits) => (Shown::BitsPerSecond, 1.0),
        Some(Unit::Bytes) => (Shown::BitsPerSecond, 8.0),
        _ => (Shown::Number, 1.0),
    }
}

fn series(report: &Report) -> Plot {
    let (unit, times) = drawn_in(report);
    let values = report.loaded.series.values();
    let rate = |v: f64| v / report.grain_s * times;
    let part = values.len().div_ceil(PARTS);
    let mut points = Vec::new();
    for (i, values) in values.chunks(part).enumerate() {
        let at = report.grain_s * ((i * part) as f64 + part as f64 / 2.0);
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let most = known.iter().copied().reduce(f64::max);
        let least = known.iter().copied().reduce(f64::min);
        points.extend(least.filter(|_| part > 1).map(|v| (at, rate(v))));
        points.extend(most.map(|v| (at + report.grain_s * part as f64 / 4.0, rate(v))));
    }
    Plot {
        title: "Rate".into(),
        description: format!(
            "Mean {}, at most {}; {}",
            rate_of(report.loaded.unit, report.rate_per_s.mean),
            rate_of(report.loaded.unit, report.rate_per_s.max),
            if part > 1 { "minimum and maximum of every segment" } else { "every interval" }
        ),
        x: scale("time since the first interval", Shown::Seconds, false),
        y: scale("rate", unit, false),
        curves: vec![curve("rate", points)],
    }
}

fn distribution(report: &Report) -> Plot {
    let (unit, times) = drawn_in(report);
    let d = &report.rate_per_s;
    let points = d.curve.iter().map(|(share, v)| (v * times, *share)).collect();
    let show = |v| rate_of(report.loaded.unit, v);
    Plot {
        title: "Distribution of the rate".into(),
        description: format!("Median {}, 99th percentile {}", show(d.p50), show(d.p99)),
        x: scale("rate", unit, false),
        y: scale("share at or below", Shown::Share, false),
        curves: vec![curve("rate", points)],
    }
}

fn memory(report: &Report) -> Plot {
    let a = &report.autocorrelation;
    let points: Vec<(f64, f64)> = a.r.iter().enumerate().map(|(lag, r)| (lag as f64, *r)).collect();
    let end = points.len().saturating_sub(1) as f64;
    let bound =
        |label: &str, at: f64| Curve { label: label.into(), dash: true, points: vec![(0.0, at), (end, at)] };
    Plot {
        title: "Autocorrelation".into(),
        description: format!("95 % of the values of uncorrelated noise lie within ±{:.3}", a.band),
        x: scale("lag, intervals", Shown::Number, false),
        y: scale("autocorrelation", Shown::Number, false),
        curves: vec![curve("series", points), bound("uncorrelated", a.band), bound("uncorrelated", -a.band)],
    }
}

/// The spectrum, compared with fractional Gaussian noise of the same power and the exponent of the local Whittle estimate.
fn spectrum(report: &Report) -> Plot {
    let density = &report.spectrum.density;
    let mut curves = vec![curve("series", density.clone())];
    let whittle = report.estimates().find(|e| e.method == Method::LocalWhittle);
    if let Some(e) = whittle.filter(|e| e.h > 0.0 && e.h < 1.0) {
        let shape: Vec<(f64, f64)> =
            density.iter().map(|(f, _)| (*f, noise_shape(e.h, f * report.grain_s))).collect();
        let ratio = |((_, a), (_, b)): (&(f64, f64), &(f64, f64))| (*a > 0.0).then(|| (a / b).ln());
        let ratios: Vec<f64> = density.iter().zip(&shape).filter_map(ratio).collect();
        let factor = (ratios.iter().sum::<f64>() / ratios.len().max(1) as f64).exp();
        let points = shape.into_iter().map(|(f, s)| (f, s * factor)).collect();
        curves.push(Curve { label: format!("noise of H = {:.2}", e.h), dash: true, points });
    }
    let lines = report.spectrum.lines.len();
    Plot {
        title: "Spectrum".into(),
        description: match lines {
            0 => "No significant period".into(),
            1 => format!(
                "A significant period of {}",
                Shown::Seconds.format(report.spectrum.lines[0].period_s)
            ),
            n => format!("{n} significant periods"),
        },
        x: scale("frequency, Hz", Shown::Number, true),
        y: scale("power density", Shown::Number, true),
        curves,
    }
}

fn exponent(e: &Estimate) -> Plot {
    let (x, y) = match e.method {
        Method::LocalWhittle | Method::Periodogram => {
            ("log₂ of the frequency, cycles per interval", "log₂ of the power")
        }
        Method::Wavelet => ("octave", "log₂ of the energy"),
        Method::VarianceTime => ("log₂ of the block, intervals", "log₂ of the variance of means"),
        Method::RescaledRange => ("log₂ of the block, intervals", "log₂ of R/S"),
    };
    Plot {
        title: format!("Hurst exponent by {}", e.method.name()),
        description: format!("{:.3}, 95 % interval {:.3} to {:.3}", e.h, e.low, e.high),
        x: scale(x, Shown::Number, false),
        y: scale(y, Shown::Number, false),
        curves: vec![curve("series", e.points.clone())],
    }
}
