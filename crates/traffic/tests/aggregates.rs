//! The Hurst exponent of self-similar aggregates, from the messages that left.

mod common;

use std::ops::Range;

use trunkline_traffic::application::{Application, long_memory};
use trunkline_traffic::hurst::{self, Method};
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_traffic::{Pattern, Source, Variable};
use trunkline_units::{Instant, Seed, Span};

const BOUNDS: Bounds = Bounds::new(32, 65_507);

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

/// A case of the table in docs/reference/traffic-models.md: the shape, the period of messages, and their standard deviation as a
/// share of the mean.
type Case = (f64, f64, f64);

/// For sessions of M/G/∞, and for on-off sources. Durations begin at 1 s, which is the interval.
const SESSIONS: [Case; 4] = [(1.2, 1.0, 0.0), (1.4, 1.0, 0.0), (1.6, 2.0, 0.0), (1.8, 3.5, 0.0)];
const SOURCES: [Case; 4] = [(1.2, 4.0, 0.0), (1.4, 6.0, 0.0), (1.6, 8.0, 0.25), (1.8, 4.0, 0.65)];

/// Intervals of 1 s of a series.
const INTERVALS: usize = if cfg!(feature = "soak") { 1 << 19 } else { 1 << 17 };
/// Time between sessions, seconds. With fewer sessions, estimates vary more.
const INTERARRIVAL_S: f64 = if cfg!(feature = "soak") { 0.5 } else { 2.0 };
/// Others than those by which the cases were chosen.
const SEEDS: Range<u64> = if cfg!(feature = "soak") { 2_000..2_100 } else { 0..3 };
/// The estimate of a shorter series has twice the standard deviation.
const TOLERANCE: f64 = if cfg!(feature = "soak") { 0.03 } else { 0.05 };

fn size(share: f64) -> Variable {
    match share {
        0.0 => Variable::Constant(1_000.0),
        share => Variable::Lognormal { mean: 1_000.0, sd: 1_000.0 * share },
    }
}

fn sessions((shape, period, share): Case) -> Pattern {
    pattern(
        "mginf",
        &[
            ("interarrival", Variable::Exponential { mean: INTERARRIVAL_S }),
            ("duration", pareto(shape)),
            ("period", Variable::Constant(period)),
            ("message", size(share)),
        ],
    )
}

fn sources((shape, period, share): Case) -> Pattern {
    pattern(
        "onoff",
        &[
            ("sources", Variable::Constant(10.0)),
            ("on", pareto(shape)),
            ("off", pareto(shape)),
            ("period", Variable::Constant(period)),
            ("message", size(share)),
        ],
    )
}

/// The local Whittle estimate of the bytes that left in each second. `SEEDS=1000..1100` and `SHAPE=1.8` change what is run.
fn check(name: &str, cases: [Case; 4], pattern: impl Fn(Case) -> Pattern) {
    let seeds = common::seeds(SEEDS);
    let only = std::env::var("SHAPE").ok().map(|shape| shape.parse::<f64>().expect("SHAPE"));
    let mut failed = Vec::new();
    for case in cases.into_iter().filter(|case| only.is_none_or(|shape| case.0 == shape)) {
        let pattern = pattern(case);
        let want = (3.0 - case.0) / 2.0;
        let Pattern::Application { model, parameters, .. } = &pattern else { panic!("a model") };
        let (stated, _) = long_memory::hurst(*model, parameters).expect("long memory");
        assert!((stated - want).abs() < 1e-12);
        let error = |seed| {
            let series = amounts(&pattern, Span::from_s(1), INTERVALS, seed);
            hurst::estimate(Method::LocalWhittle, &series).expect("an estimate").h - want
        };
        let errors: Vec<f64> = seeds.clone().map(error).collect();
        let n = errors.len() as f64;
        let mean = errors.iter().sum::<f64>() / n;
        let sd = (errors.iter().map(|e| (e - mean) * (e - mean)).sum::<f64>() / n).sqrt();
        let worst = errors.iter().map(|e| e.abs()).fold(0.0, f64::max);
        let near = errors.iter().filter(|e| e.abs() <= TOLERANCE).count();
        eprintln!("| {name} | {case:?} | {want:.2} | {mean:+.4} | {sd:.4} | {worst:.4} | {near} of {n} |");
        if near != errors.len() {
            failed.push(case);
        }
    }
    assert!(failed.is_empty(), "{name}: {failed:?}");
}

#[test]
fn sessions_have_the_hurst_exponent_of_their_durations() {
    check("mginf", SESSIONS, sessions);
}

#[test]
fn sources_have_the_hurst_exponent_of_their_periods() {
    check("onoff", SOURCES, sources);
}

#[test]
fn noise_has_its_hurst_exponent_and_amounts() {
    for hurst in [0.6, 0.9] {
        for jitter in [0.0, 1.0] {
            let pattern = pattern(
                "fgn",
                &[
                    ("hurst", Variable::Constant(hurst)),
                    ("interval", Variable::Constant(1.0)),
                    ("mean", Variable::Constant(20_000.0)),
                    ("sd", Variable::Constant(4_000.0)),
                    ("jitter", Variable::Constant(jitter)),
                    ("message", Variable::Constant(100.0)),
                ],
            );
            let series = amounts(&pattern, Span::from_s(1), 1 << 16, 1);
            let estimate = hurst::estimate(Method::LocalWhittle, &series).unwrap().h;
            assert!((estimate - hurst).abs() < 0.02, "{estimate} for {hurst}");
            let n = series.len() as f64;
            let mean = series.iter().sum::<f64>() / n;
            let sd = (series.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt();
            // The mean of long memory varies with n^(H − 1).
            let tolerance = 4.5 * 4_000.0 * n.powf(hurst - 1.0);
            assert!((mean - 20_000.0).abs() < tolerance && (sd / 4_000.0 - 1.0).abs() < 0.1, "{mean} {sd}");
        }
    }
}

/// Amounts below 0 send nothing, and the rate that a source states includes this.
#[test]
fn noise_below_0_raises_the_mean_as_stated() {
    let pattern = pattern(
        "fgn",
        &[
            ("hurst", Variable::Constant(0.5)),
            ("interval", Variable::Constant(1.0)),
            ("mean", Variable::Constant(10_000.0)),
            ("sd", Variable::Constant(10_000.0)),
            ("message", Variable::Constant(100.0)),
        ],
    );
    let series = amounts(&pattern, Span::from_s(1), 1 << 15, 1);
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let source = Source::new(&pattern, Limit::default(), BOUNDS, Instant::ZERO, Seed(1), "a-b").unwrap();
    let stated = source.offered_bps().unwrap() / 8.0;
    // Φ(1) + φ(1) of the mean.
    assert!((stated / 10_833.2 - 1.0).abs() < 1e-4, "{stated}");
    assert!((mean / stated - 1.0).abs() < 0.02, "{mean} for {stated}");
}

/// The first part of a run has the mean of the rest: sessions and sources begin in the stationary state.
#[test]
fn aggregates_begin_in_the_stationary_state() {
    for (name, pattern) in [("mginf", sessions((1.5, 1.0, 0.0))), ("onoff", sources((1.5, 1.0, 0.0)))] {
        let source = Source::new(&pattern, Limit::default(), BOUNDS, Instant::ZERO, Seed(1), "a-b").unwrap();
        let stated = source.offered_bps().unwrap() / 8.0;
        let runs = 2_000;
        let (mut first, mut last) = (0.0, 0.0);
        for seed in 0..runs {
            let series = amounts(&pattern, Span::from_s(1), 40, seed);
            first += series[..4].iter().sum::<f64>() / 4.0 / runs as f64;
            last += series[36..].iter().sum::<f64>() / 4.0 / runs as f64;
        }
        assert!((first / stated - 1.0).abs() < 0.06, "{name}: {first} at first, {stated} stated");
        assert!((last / stated - 1.0).abs() < 0.06, "{name}: {last} later, {stated} stated");
    }
}
