//! The Hurst exponent of self-similar aggregates, from the messages that left.

use trunkline_traffic::application::Application;
use trunkline_traffic::hurst::{self, Method, perturbed};
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
    Pattern::Application { model, variant: None, size_bytes: Variable::Constant(1_400.0), parameters }
}

fn pareto(shape: f64) -> Variable {
    Variable::Pareto { shape, min: 1.0 }
}

#[test]
#[ignore]
fn explore() {
    let env = |name: &str, default: f64| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let (log, seeds) = (env("LOG", 20.0), env("SEEDS", 10.0) as u64);
    let (rate, sources) = (env("RATE", 3.0), env("SOURCES", 20.0));
    for alpha in [1.2, 1.4, 1.6, 1.8] {
        for model in ["mginf", "onoff"] {
            let pattern = match model {
                "mginf" => pattern(model, &[
                    ("interarrival", Variable::Exponential { mean: 1.0 / rate }),
                    ("duration", pareto(alpha)),
                ]),
                _ => pattern(model, &[
                    ("sources", Variable::Constant(sources)), ("on", pareto(alpha)), ("off", pareto(alpha))]),
            };
            let begun = std::time::Instant::now();
            let want = (3.0 - alpha) / 2.0;
            let (mut all, mut lw, mut wav) = (Vec::new(), Vec::new(), Vec::new());
            let (mut sd, mut noise) = (0.0, 0.0);
            for seed in 0..seeds {
                let x = amounts(&pattern, Span::from_s(1), 1 << log as u32, seed);
                let e = perturbed::estimate(&x).unwrap();
                sd = e.sd;
                noise = e.noise;
                all.push(e.h - want);
                lw.push(hurst::estimate(Method::LocalWhittle, &x).unwrap().h - want);
                wav.push(hurst::estimate(Method::Wavelet, &x).unwrap().h - want);
            }
            let show = |v: &[f64]| {
                let n = v.len() as f64;
                let mean = v.iter().sum::<f64>() / n;
                let sd = (v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
                let worst = v.iter().map(|x| x.abs()).fold(0.0, f64::max);
                format!("mean {mean:+.4} sd {sd:.4} worst {worst:.4}")
            };
            println!("{model} {alpha}: perturbed {} (sd {sd:.4} noise {noise:.3}); lw {}; wavelet {}; {:.1} s", show(&all), show(&lw), show(&wav), begun.elapsed().as_secs_f64());
        }
    }
}
