//! Five estimators against exact fractional Gaussian noise. Run with
//! `cargo test --release -p trunkline-traffic --features soak --test soak_hurst -- --nocapture`, which also prints the
//! tables of docs/reference/analyse.md; with `HURST=0.9` and `VALUES=16384` only of that exponent and length.
#![cfg(feature = "soak")]

use trunkline_traffic::hurst::{Estimate, Method, estimate};
use trunkline_traffic::noise::Noise;
use trunkline_units::Seed;

/// Exponents for which docs/reference/analyse.md states the accuracy.
const EXPONENTS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// Returns the values of an environment variable, separated by commas, or the default.
fn from_env<T: std::str::FromStr<Err: std::fmt::Debug> + Copy>(variable: &str, default: &[T]) -> Vec<T> {
    match std::env::var(variable) {
        Ok(text) => text.split(',').map(|value| value.trim().parse().expect(variable)).collect(),
        Err(_) => default.to_vec(),
    }
}

/// Returns the estimates of each method for `count` series.
fn all(methods: &[Method], hurst: f64, length: usize, count: usize, test: &str) -> Vec<Vec<Estimate>> {
    let noise = Noise::new(hurst, length).unwrap();
    let mut stream = Seed::default().stream(&format!("{test} / {hurst} / {length}"));
    let mut estimates = vec![Vec::new(); methods.len()];
    for _ in 0..count / 2 {
        let (a, b) = noise.pair(&mut stream);
        for (estimates, method) in estimates.iter_mut().zip(methods) {
            estimates.extend([&a, &b].map(|x| estimate(*method, x).unwrap()));
        }
    }
    estimates
}

fn mean_and_sd(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0)).sqrt())
}

/// 100 series of 2^16 values for each exponent.
#[test]
fn a_hundred_estimates_are_within_three_hundredths() {
    println!("| estimator | H | mean error | worst | spread | within 0.03 | mean error, raw |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for hurst in from_env("HURST", &EXPONENTS) {
        let found = all(&Method::ALL, hurst, 1 << 16, 100, "a hundred");
        for (found, method) in found.iter().zip(Method::ALL) {
            let (mean, sd) = mean_and_sd(found.iter().map(|e| e.h - hurst));
            let worst = found.iter().map(|e| (e.h - hurst).abs()).fold(0.0, f64::max);
            let near = found.iter().filter(|e| (e.h - hurst).abs() <= 0.03).count();
            let raw: Vec<f64> = found.iter().filter_map(|e| Some(e.raw? - hurst)).collect();
            let raw = if raw.is_empty() {
                String::new()
            } else {
                format!("{:+.4}", mean_and_sd(raw.into_iter()).0)
            };
            println!("| {} | {hurst} | {mean:+.4} | {worst:.4} | {sd:.4} | {near} | {raw} |", method.name());
            if matches!(method, Method::LocalWhittle | Method::Wavelet) {
                assert_eq!(near, 100, "{method:?}, H = {hurst}: the worst is off by {worst}");
            }
        }
    }
}

/// 1,000 series for each exponent and length; the measured coverage has a standard deviation of 0.7 %.
#[test]
fn intervals_cover_the_exponent_at_their_level() {
    println!("| values | H | {} |", Method::ALL.map(Method::name).join(" | "));
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for length in from_env("VALUES", &[1_000, 4_096, 1 << 14, 1 << 16]) {
        for hurst in from_env("HURST", &EXPONENTS) {
            let found = all(&Method::ALL, hurst, length, 1000, "coverage");
            let is_covered = |e: &&Estimate| e.low <= hurst && hurst <= e.high;
            let shares: Vec<f64> =
                found.iter().map(|found| found.iter().filter(is_covered).count() as f64 / 1000.0).collect();
            let row: Vec<String> = shares.iter().map(|s| format!("{:.1} %", s * 100.0)).collect();
            println!("| {length} | {hurst} | {} |", row.join(" | "));
            for (share, method) in shares.iter().zip(Method::ALL) {
                assert!((0.925..=0.975).contains(share), "{method:?}, H = {hurst}, {length}: {share}");
            }
        }
    }
}

/// Computes the tables of `hurst/calibration.rs` (with `POWERS=16` only for 2^16 values) and compares them with the stored ones.
#[test]
fn tables_follow_from_noise() {
    let methods = [Method::VarianceTime, Method::RescaledRange];
    let mut tables = [String::new(), String::new()];
    for hurst in [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95] {
        let mut rows = [Vec::new(), Vec::new()];
        for power in from_env("POWERS", &[8, 10, 12, 14, 16]) {
            let series = if power == 8 { 4000 } else { 2000 };
            let found = all(&methods, hurst, 1 << power, series, "tables");
            for ((found, row), method) in found.iter().zip(&mut rows).zip(methods) {
                let (mean, sd) = mean_and_sd(found.iter().filter_map(|e| e.raw));
                row.push(format!("({mean:.5}, {sd:.5})"));
                // With the stored table, the mean estimate is the exponent of the noise.
                let (bias, spread) = mean_and_sd(found.iter().map(|e| e.h - hurst));
                let tolerance = 0.002 + 4.0 * spread / (series as f64).sqrt();
                let is_unbiased = std::env::var_os("TABLES").is_some() || bias.abs() < tolerance;
                assert!(is_unbiased, "{method:?}, H = {hurst}, 2^{power} values: a bias of {bias}");
            }
        }
        for (table, row) in tables.iter_mut().zip(rows) {
            *table += &format!("    [{}],\n", row.join(", "));
        }
    }
    println!("{}\n{}", tables[0], tables[1]);
}
