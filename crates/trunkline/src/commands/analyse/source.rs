//! A fitted source, as an experiment in the language.

use trunkline_traffic::profile::on_off::Length;
use trunkline_traffic::profile::{Profile, stairs};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Seed;

use super::read::Loaded;
use super::wrong;
use crate::failure::Failure;
use crate::flags::analyse::{Analyse, FitKind, Unit};

/// Rates on a line of the text.
const A_LINE: usize = 6;

/// An experiment with one connection whose `stairs` are drawn from a fit: any backend runs it.
pub fn experiment(flags: &Analyse, loaded: &Loaded, kind: FitKind) -> Result<String, Failure> {
    let series = &loaded.series;
    let profile = Profile::fit(kind.kind(), series).map_err(|e| wrong(&flags.series, &e.to_string()))?;
    let intervals = flags.intervals.map_or(series.values().len().min(1000), |n| n as usize);
    let mut stream = Seed(flags.seed).stream("analyse / fit");
    let mut drawn = profile.draw(intervals, &mut stream).map_err(|e| wrong(&flags.series, &e.to_string()))?;
    let bytes = loaded.unit.unwrap_or(Unit::Bytes).bytes(flags.message);
    drawn.iter_mut().for_each(|v| *v *= bytes);
    let pattern = stairs(&drawn, series.grain(), flags.message);
    let Pattern::Stairs { rates_bps, .. } = &pattern else { unreachable!("stairs are stairs") };
    let rates: Vec<f64> = rates_bps.iter().map(constant).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most > 1e12 {
        return Err(wrong(
            &flags.series,
            "rates above 1 Tb/s are no source: --unit and --values say what values are",
        ));
    }
    // A link that is never full: 1, 2 or 5 times a power of ten.
    let link = [1.0, 2.0, 5.0].iter().flat_map(|m| (3..13).map(move |p| m * 10f64.powi(p)));
    let link = link.filter(|rate| *rate > 2.0 * most).fold(1e13, f64::min);
    let lines: Vec<String> = rates
        .chunks(A_LINE)
        .map(|rates| rates.iter().map(f64::to_string).collect::<Vec<_>>().join(" : "))
        .collect();
    let hold = series.grain().as_ns();
    let named = |text: &str| trunkline_report::plain(text).replace(['"', '\\'], "'");
    Ok(format!(
        "# {} {}, as fitted: {}\n# {intervals} intervals drawn with seed {}; {} bytes a message\n\
         experiment \"{}\" {{\n  network {{ host a, b; link a - b (rate = {link} b/s); }}\n  connection source {{\n    \
         xmt = a; rcv = b; protocol = udp;\n    \
         test = stairs (messagesize = {}, hold = {hold} ns, rates =\n      {});\n  }}\n}}\n",
        named(&flags.series),
        named(&loaded.name),
        described(&profile, series.grain().as_s()),
        flags.seed,
        flags.message,
        named(&loaded.name),
        flags.message,
        lines.join(" :\n      ")
    ))
}

fn constant(rate: &Variable) -> f64 {
    match rate {
        Variable::Constant(rate) => *rate,
        _ => unreachable!("the rates of drawn stairs are constants"),
    }
}

/// The fit in words, amounts in the unit of the series.
fn described(profile: &Profile, grain_s: f64) -> String {
    match profile {
        Profile::Empirical(p) => format!("empirical, mean {:.6} an interval, no memory", p.mean),
        Profile::Fgn(p) => format!(
            "fractional Gaussian noise, mean {:.6} and deviation {:.6} an interval, H = {:.3}; {:.3} % below 0 raised to it",
            p.mean,
            p.sd,
            p.hurst,
            p.below_zero * 100.0
        ),
        Profile::OnOff(p) => format!(
            "{:.6} an interval on for {}, {:.6} off for {}; {:.1} % of the variance lies between the two",
            p.on,
            lasting(p.on_lasts, grain_s),
            p.off,
            lasting(p.off_lasts, grain_s),
            p.between * 100.0
        ),
        Profile::Tes(p) => format!(
            "TES, steps {:.5} wide about {:.5}, stitched at {}; autocorrelation off by {:.3} over {} lags",
            p.width, p.center, p.stitch, p.off, p.lags
        ),
    }
}

fn lasting(length: Length, grain_s: f64) -> String {
    match length {
        Length::Geometric { mean } => format!("{:.6} s (geometric)", mean * grain_s),
        Length::Pareto { shape, mean } => format!("{:.6} s (Pareto, shape {shape:.3})", mean * grain_s),
    }
}
