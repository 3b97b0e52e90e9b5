//! Shared Ethernet against theory: the published formula, the capture effect, and short frames, which the
//! formula does not describe. `soak_hub_theory.rs` is the same for more sizes, stations and delays, and
//! compares with what was measured.

use super::csma;

use csma::{FARTHEST, SLOT, many_stations, metcalfe_boggs, saturate, sending, taken, two_stations};

/// A segment of 500 m.
const SEGMENT: u64 = 2_165;
/// A frame longer than the longest backoff, so that every contention begins afresh.
const LONG: u32 = 66_018;

fn formula(stations: u16, size: u32) -> f64 {
    metcalfe_boggs(f64::from(stations), taken(size) as f64, SLOT as f64)
}

#[test]
fn the_formula_gives_the_published_table() {
    // Table I of the paper: 3 Mb/s, slots of 16 µs, packets of 4096, 1024, 512 and 48 bits.
    for (stations, efficiencies) in [
        (2.0, [0.9884, 0.9552, 0.9143, 0.5000]),
        (5.0, [0.9834, 0.9367, 0.8810, 0.4096]),
        (32.0, [0.9807, 0.9272, 0.8642, 0.3737]),
        (256.0, [0.9803, 0.9257, 0.8616, 0.3686]),
    ] {
        for (bits, expected) in [4096.0, 1024.0, 512.0, 48.0].into_iter().zip(efficiencies) {
            let found = metcalfe_boggs(stations, bits / 3e6, 16e-6);
            assert!((found - expected).abs() < 6e-5, "{stations} stations, {bits} bits: {found}");
        }
    }
}

#[test]
fn throughput_of_long_frames_is_that_of_the_formula() {
    // The formula wants all slots to be 512 bit times: stations as far apart as a slot allows. Its stations
    // try with the best probability and forget nothing; backoff lets few stations do better (capture) and
    // many worse.
    for stations in [2, 5, 10, 24] {
        for size in [1024, 1518] {
            let found = saturate(FARTHEST, stations, size, 4.0).efficiency;
            let theory = formula(stations, size);
            let off = found / theory - 1.0;
            assert!(off.abs() < 0.07, "{stations} stations, {size} bytes: {found}, in theory {theory}");
        }
    }
}

#[test]
fn throughput_falls_with_stations_and_rises_with_size() {
    let share = |stations, size| saturate(SEGMENT, stations, size, 2.0).efficiency;
    for size in [64, 512, 1518] {
        assert!(share(5, size) > share(24, size) && share(24, size) > share(64, size));
    }
    for stations in [24, 64] {
        assert!(share(stations, 64) < share(stations, 512) && share(stations, 512) < share(stations, 1518));
    }
    assert_eq!((share(1, 64) * 1e4).round(), 1e4, "one station wastes nothing");
}

#[test]
fn capture_effect_matches_the_backoff() {
    let found = saturate(SEGMENT, 2, LONG, 3_000.0);
    let theory = two_stations(sending(LONG), SEGMENT);
    assert!((theory.frames - 1.0).abs() < 1e-9, "a contention before every frame");
    assert!(theory.run > 3.0, "a fair medium has runs of 2, this one of {}", theory.run);
    let mean = found.mean_run();
    assert!((mean / theory.run - 1.0).abs() < 0.1, "runs of {mean}, in theory {}", theory.run);
    let first = found.sent.iter().filter(|sent| sent.station == 0).count() as f64 / found.sent.len() as f64;
    assert!((first - 0.5).abs() < 0.05, "in the long run each gets half, not {first}");
}

/// What the formula leaves out for short frames: the loser of a contention backs off for many frames of the
/// winner, which then contends with no station. A contention itself costs what the formula says.
#[test]
fn short_frames_contend_seldom_and_not_for_less() {
    for (size, at_least) in [(64, 180.0), (512, 29.0), (1518, 10.0)] {
        let theory = two_stations(sending(size), SEGMENT);
        assert!(theory.frames > at_least, "{size} bytes: {} frames a contention", theory.frames);
        let slots = theory.cost / SLOT as f64;
        assert!((slots - 1.0).abs() < 0.15, "two stations need a slot in the formula, here {slots}");
        // The formula, for all frames between two contentions at once.
        let together = metcalfe_boggs(2.0, theory.frames * taken(size) as f64, SLOT as f64);
        assert!((together / theory.efficiency - 1.0).abs() < 1e-3, "{together}, exactly {theory:?}");
        let found = saturate(SEGMENT, 2, size, 40.0);
        assert!((found.efficiency / theory.efficiency - 1.0).abs() < 5e-4, "{size}: {}", found.efficiency);
        let contended = found.contended(SEGMENT) * theory.frames;
        assert!((contended - 1.0).abs() < 0.1, "{size} bytes: {contended} contentions where 1 is due");
        let cost = found.cost(SEGMENT, size) / theory.cost;
        assert!((cost - 1.0).abs() < 0.02, "{size} bytes: a contention costs {cost} of what it should");
    }
    assert!(formula(2, 64) < 0.6, "frame by frame the formula is far off");
}

#[test]
fn losers_that_come_back_explain_short_frames_of_many_stations() {
    for stations in [3, 10, 24] {
        for size in [64, 256, 1518] {
            let found = saturate(SEGMENT, stations, size, 3.0).efficiency;
            let theory = many_stations(stations, sending(size), SEGMENT);
            let off = found / theory - 1.0;
            assert!(off.abs() < 0.025, "{stations} stations, {size} bytes: {found}, in theory {theory}");
        }
    }
}
