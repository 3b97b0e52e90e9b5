//! Five estimators against exact fractional Gaussian noise. Run with
//! `cargo test --release -p trunkline-traffic --features soak --test soak_hurst -- --nocapture`, which also prints the
//! tables of docs/reference/analyse.md; with `HURST=0.9` and `VALUES=16384` only of that exponent and length.
#![cfg(feature = "soak")]

use trunkline_traffic::hurst::{Estimate, Method, estimate};
use trunkline_traffic::noise::Noise;
use trunkline_units::Seed;

/// Exponents that are claimed.
const CLAIMED: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// These, or what a variable of the environment says instead, with commas between.
fn from_env<T: std::str::FromStr<Err: std::fmt::Debug> + Copy>(variable: &str, usual: &[T]) -> Vec<T> {
    match std::env::var(variable) {
        Ok(text) => text.split(',').map(|one| one.trim().parse().expect(variable)).collect(),
        Err(_) => usual.to_vec(),
    }
}

/// What each method says of so many series.
fn all(methods: &[Method], hurst: f64, length: usize, series: usize, place: &str) -> Vec<Vec<Estimate>> {
    let noise = Noise::new(hurst, length).unwrap();
    let mut stream = Seed::default().stream(&format!("{place} / {hurst} / {length}"));
    let mut found = vec![Vec::new(); methods.len()];
    for _ in 0..series / 2 {
        let (a, b) = noise.pair(&mut stream);
        for (found, method) in found.iter_mut().zip(methods) {
            found.extend([&a, &b].map(|x| estimate(*method, x).unwrap()));
        }
    }
    found
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
    for hurst in from_env("HURST", &CLAIMED) {
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

/// 1,000 series for each exponent and length; a share of them has a standard deviation of 0.7 %.
#[test]
fn intervals_hold_what_they_claim() {
    println!("| values | H | {} |", Method::ALL.map(Method::name).join(" | "));
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for length in from_env("VALUES", &[1_000, 4_096, 1 << 14, 1 << 16]) {
        for hurst in from_env("HURST", &CLAIMED) {
            let found = all(&Method::ALL, hurst, length, 1000, "coverage");
            let held = |e: &&Estimate| e.low <= hurst && hurst <= e.high;
            let shares: Vec<f64> =
                found.iter().map(|found| found.iter().filter(held).count() as f64 / 1000.0).collect();
            let row: Vec<String> = shares.iter().map(|s| format!("{:.1} %", s * 100.0)).collect();
            println!("| {length} | {hurst} | {} |", row.join(" | "));
            for (share, method) in shares.iter().zip(Method::ALL) {
                assert!((0.925..=0.975).contains(share), "{method:?}, H = {hurst}, {length}: {share}");
            }
        }
    }
}

/// Draws the tables of `hurst/calibration.rs` anew (with `POWERS=16` only of 2^16 values) and holds them against those that are there.
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
                // Read against the table, the exponent is that of the noise.
                let (off, spread) = mean_and_sd(found.iter().map(|e| e.h - hurst));
                let far = 0.002 + 4.0 * spread / (series as f64).sqrt();
                let holds = std::env::var_os("TABLES").is_some() || off.abs() < far;
                assert!(holds, "{method:?}, H = {hurst}, 2^{power} values: off by {off}");
            }
        }
        for (table, row) in tables.iter_mut().zip(rows) {
            *table += &format!("    [{}],\n", row.join(", "));
        }
    }
    println!("{}\n{}", tables[0], tables[1]);
}
