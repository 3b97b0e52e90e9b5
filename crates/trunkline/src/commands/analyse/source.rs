//! A fitted source as the text of an experiment.

use trunkline_traffic::profile::on_off::Length;
use trunkline_traffic::profile::{Kind, Profile, stairs};
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::Seed;

use super::column::Loaded;
use super::input_error;
use crate::failure::Failure;
use crate::flags::analyse::{Analyse, Unit};

/// Number of rates per line of the text.
const RATES_PER_LINE: usize = 6;

/// Returns the text of an experiment with one connection whose `stairs` are generated from the fitted model.
pub fn experiment(flags: &Analyse, loaded: &Loaded, kind: Kind) -> Result<String, Failure> {
    let series = &loaded.series;
    let profile = Profile::fit(kind, series).map_err(|e| input_error(&flags.series, &e.to_string()))?;
    let intervals = flags.intervals.map_or(series.values().len().min(1000), |n| n as usize);
    let mut stream = Seed(flags.seed).stream("analyse / fit");
    let mut drawn =
        profile.draw(intervals, &mut stream).map_err(|e| input_error(&flags.series, &e.to_string()))?;
    let bytes = loaded.unit.unwrap_or(Unit::Bytes).bytes(flags.size);
    drawn.iter_mut().for_each(|v| *v *= bytes);
    let pattern = stairs(&drawn, series.grain(), flags.size);
    let Pattern::Stairs { rates_bps, .. } = &pattern else { unreachable!("stairs are stairs") };
    let rates: Vec<f64> = rates_bps.iter().map(constant).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most > 1e12 {
        return Err(input_error(&flags.series, "rates exceed 1 Tb/s: check --unit and --values"));
    }
    // The link is more than twice as fast as the highest rate: 1, 2 or 5 times a power of ten.
    let link = [1.0, 2.0, 5.0].iter().flat_map(|m| (3..13).map(move |p| m * 10f64.powi(p)));
    let link = link.filter(|rate| *rate > 2.0 * most).fold(1e13, f64::min);
    let lines: Vec<String> = rates
        .chunks(RATES_PER_LINE)
        .map(|rates| rates.iter().map(f64::to_string).collect::<Vec<_>>().join(" : "))
        .collect();
    let hold = series.grain().as_ns();
    let named = |text: &str| trunkline_report::sanitize(text).replace(['"', '\\'], "'");
    Ok(format!(
        "# {} {}, as fitted: {}\n# {intervals} intervals drawn with seed {}; {} bytes a message\n\
         experiment \"{}\" {{\n  network {{ host a, b; link a - b (rate = {link} b/s); }}\n  connection source {{\n    \
         xmt = a; rcv = b; protocol = udp;\n    \
         test = stairs (messagesize = {}, hold = {hold} ns, rates =\n      {});\n  }}\n}}\n",
        named(&flags.series),
        named(&loaded.name),
        describe_fit(&profile, series.grain().as_s()),
        flags.seed,
        flags.size,
        named(&loaded.name),
        flags.size,
        lines.join(" :\n      ")
    ))
}

fn constant(rate: &Variable) -> f64 {
    match rate {
        Variable::Constant(rate) => *rate,
        _ => unreachable!("the rates of drawn stairs are constants"),
    }
}

/// Describes a fit in words; amounts are in the unit of the series.
fn describe_fit(profile: &Profile, grain_s: f64) -> String {
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
            describe_length(p.on_lasts, grain_s),
            p.off,
            describe_length(p.off_lasts, grain_s),
            p.between * 100.0
        ),
        Profile::Poisson(p) => format!("Poisson, {:.6} an interval of {:.6} each", p.rate, p.amount),
        Profile::MgInf(p) => format!(
            "M/G/inf, {:.6} sessions at a time of {:.6} an interval each, Pareto durations with shape {:.3} from {:.6} s",
            p.sessions,
            p.amount,
            p.shape,
            p.min * grain_s
        ),
        Profile::Tes(p) => format!(
            "TES, steps {:.5} wide about {:.5}, stitched at {}; autocorrelation off by {:.3} over {} lags",
            p.width, p.center, p.stitch, p.off, p.lags
        ),
    }
}

fn describe_length(length: Length, grain_s: f64) -> String {
    match length {
        Length::Geometric { mean } => format!("{:.6} s (geometric)", mean * grain_s),
        Length::Pareto { shape, mean } => format!("{:.6} s (Pareto, shape {shape:.3})", mean * grain_s),
    }
}
