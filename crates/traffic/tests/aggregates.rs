//! The Hurst exponent of self-similar aggregates, from the messages that left.

use trunkline_traffic::application::Application;
use trunkline_traffic::hurst::{self, Method};
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_traffic::{Pattern, Source, Variable};
use trunkline_units::{Instant, Seed, Span};

const BOUNDS: Bounds = Bounds { smallest: 32, largest: 65_507 };

/// Returns the bytes that leave in each interval of a source whose sender is never late.
fn amounts(pattern: &Pattern, interval: Span, intervals: usize, seed: u64) -> Vec<f64> {
    let limit = Limit { time: Some(interval * intervals as u64), ..Limit::default() };
    let mut source = Source::new(pattern, limit, BOUNDS, Instant::ZERO, Seed(seed), "a-b").unwrap();
    let mut amounts = vec![0.0; intervals];
    let mut now = Instant::ZERO;
    loop {
        match source.next(now) {
            Step::Send(message) => {
                if message.first {
                    source.departed(now);
                }
                let at = now.as_ps() / interval.as_ps();
                amounts[at as usize] += f64::from(message.size);
            }
            Step::Wait(until) => now = until,
            Step::Done => return amounts,
        }
    }
}

fn pattern(model: &str, set: &[(&str, Variable)]) -> Pattern {
    let model = Application::named(model).unwrap();
    let mut parameters = model.defaults(None);
    for (name, value) in set {
        parameters.iter_mut().find(|(other, _)| other == name).unwrap().1 = value.clone();
    }
    Pattern::Application { model, variant: None, size_bytes: Variable::Constant(65_507.0), parameters }
}

fn pareto(shape: f64) -> Variable {
    Variable::Pareto { shape, min: 1.0 }
}

#[test]
#[ignore]
fn explore() {
    let env = |name: &str, default: f64| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let (log, seeds) = (env("LOG", 20.0), env("SEEDS", 10.0) as u64);
    let c = Variable::Constant;
    let mut cases: Vec<(String, f64, Pattern)> = Vec::new();
    let exp = Variable::Exponential { mean: 1_000.0 };
    let log = |sd| Variable::Lognormal { mean: 1_000.0, sd };
    let _ = &exp;
    for (alpha, period, size) in [(1.6, 8.0, log(450.0)), (1.6, 8.0, log(550.0)), (1.8, 4.0, log(750.0)), (1.8, 4.0, log(850.0)), (1.2, 4.0, c(1_000.0)), (1.4, 6.0, c(1_000.0))] {
            cases.push((format!("onoff {alpha} p{period} {size:?}"), alpha, pattern("onoff", &[
                ("sources", c(20.0)), ("on", pareto(alpha)), ("off", pareto(alpha)), ("period", c(period)), ("message", size)])));
    }
    let log = env("LOG", 20.0);
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, alpha, pattern) in cases.iter().filter(|c| c.0.starts_with(&only)) {
        let begun = std::time::Instant::now();
        let want = (3.0 - alpha) / 2.0;
        let mut found: std::collections::BTreeMap<usize, Vec<(f64, f64)>> = Default::default();
        for seed in 0..seeds {
            let x = amounts(pattern, Span::from_s(1), 1 << log as u32, seed);
            for g in [1, 4, 16, 64] {
                let y: Vec<f64> = x.chunks(g).map(|c| c.iter().sum()).collect();
                found.entry(g).or_default().push((
                    hurst::estimate(Method::LocalWhittle, &y).unwrap().h - want,
                    hurst::estimate(Method::Wavelet, &y).unwrap().h - want,
                ));
            }
        }
        let show = |v: Vec<f64>| {
            let n = v.len() as f64;
            let mean = v.iter().sum::<f64>() / n;
            let sd = (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
            format!("{mean:+.3}±{sd:.3}")
        };
        let text: Vec<String> = found.iter().map(|(g, v)| format!("{g}: {} {}", show(v.iter().map(|p| p.0).collect()), show(v.iter().map(|p| p.1).collect()))).collect();
        println!("{name}: {} | {:.1} s", text.join(" | "), begun.elapsed().as_secs_f64());
    }
}
