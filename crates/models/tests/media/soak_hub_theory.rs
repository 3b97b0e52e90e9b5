//! Shared Ethernet against theory and against what was measured, with runs as long as those of 1988. Run with
//! `cargo test --release -p trunkline-media --features soak --test soak_hub_theory -- --nocapture`, which also
//! prints the table of docs/benchmarks/simulator.md.
#![cfg(feature = "soak")]

use super::csma;

use csma::{
    FARTHEST, Load, Run, SLOT, many_stations, metcalfe_boggs, run, saturate, sending, taken, two_stations,
};
use trunkline_units::Seed;

/// 3000 feet of coaxial cable at 0.77 of the speed of light, in ns. Boggs, Mogul and Kent had four clusters of
/// hosts along it; a hub knows one delay only, so here every two hosts are as far apart as the farthest.
const LONG_NET: u64 = 3_960;
const SIZES: [u32; 10] = [64, 128, 256, 512, 768, 1024, 1518, 2048, 3072, 4000];

#[test]
fn two_stations_are_exact() {
    for delay in [1_650, LONG_NET, 8_000, FARTHEST] {
        for size in SIZES {
            let theory = two_stations(sending(size), delay);
            let found = saturate(delay, 2, size, 400.0);
            let off = |found: f64, theory: f64| (found / theory - 1.0).abs();
            let efficiency = off(found.efficiency, theory.efficiency);
            let cost = off(found.cost(delay, size), theory.cost);
            // Some thousand runs, of very different lengths.
            let run = off(found.mean_run(), theory.run);
            let holds = efficiency < 3e-4 && cost < 0.01 && run < 0.03;
            assert!(holds, "{delay} ns, {size} bytes: off by {efficiency}, {cost}, {run}");
        }
    }
}

#[test]
fn many_stations_are_as_losers_come_back() {
    println!("| bytes | {} |", [1, 2, 3, 5, 10, 15, 24].map(|n| n.to_string()).join(" | "));
    for size in SIZES {
        let mut row = vec![String::from("1.000")];
        assert!((saturate(LONG_NET, 1, size, 1.0).efficiency - 1.0).abs() < 1e-3);
        for stations in [2, 3, 5, 10, 15, 24] {
            for (delay, most) in [(LONG_NET, 0.02), (FARTHEST, 0.03)] {
                let found = saturate(delay, stations, size, 15.0).efficiency;
                let theory = many_stations(stations, sending(size), delay);
                let formula = metcalfe_boggs(f64::from(stations), taken(size) as f64, SLOT as f64);
                let off = found / theory - 1.0;
                assert!(off.abs() < most, "{stations} stations, {size} bytes: {found}, in theory {theory}");
                if delay == LONG_NET {
                    row.push(format!("{found:.3} / {theory:.3} / {formula:.3}"));
                }
            }
        }
        println!("| {size} | {} |", row.join(" | "));
    }
}

/// 24 hosts whose frames have 64 bytes `short` times out of eight, otherwise 1536.
fn mix(short: u64, pause: u64) -> f64 {
    let load = Load { delay: LONG_NET, stations: 24, pause, seconds: 60.0, seed: Seed(9) };
    let mut draw = Seed(1).stream("size");
    run(&load, || if draw.below(8) < short { 64 } else { 1536 }).efficiency * 10.0
}

/// Boggs, Mogul and Kent, Measured Capacity of an Ethernet: Myths and Reality (SIGCOMM 1988), figure 12: total
/// bit rate for short and long packets mixed. Not values, but between which marks of the axis a curve's label
/// stands: that is what the order of labels and marks in a text copy of the figure says.
#[test]
fn mixes_of_short_and_long_frames_frame_those_measured() {
    let mut rates = [[0.0; 9]; 2];
    for short in 0..=8 {
        let (least, most) = match short {
            8 => (8.0, 8.5),
            7 => (8.5, 9.0),
            3..=6 => (9.0, 9.5),
            _ => (9.5, 10.0),
        };
        // Hosts that have the next frame at once, and hosts that need a while for it, so that they seldom
        // capture the medium. How long those of 1988 needed is not known.
        let (ready, slow) = (mix(short, 0), mix(short, 100_000));
        let mix = format!("{short}/{}", 8 - short);
        println!("| {mix} | {ready:.2} | {least} to {most} | {slow:.2} |");
        assert!((least..most + 0.6).contains(&ready), "{mix}: {ready} Mb/s, measured {least} to {most}");
        assert!((least - 1.4..most).contains(&slow), "{mix}: {slow} Mb/s, measured {least} to {most}");
        (rates[0][short as usize], rates[1][short as usize]) = (ready, slow);
    }
    for rates in rates {
        assert!(rates.is_sorted_by(|a, b| a > b), "more long frames carry more: {rates:?}");
        let (one, all) = (rates[7] - rates[8], rates[0] - rates[8]);
        assert!(one > 0.5 * all, "the first long frame in eight gains most: {one} of {all}");
    }
}

/// The paper's other results in words, as reviews of it give them: longer packets, more bits and fewer packets;
/// more hosts, smaller differences between them.
#[test]
fn sizes_and_hosts_act_as_measured() {
    let many: Vec<Run> = SIZES.map(|size| saturate(LONG_NET, 24, size, 15.0)).into();
    assert!(many.is_sorted_by(|a, b| a.efficiency < b.efficiency && a.sent.len() > b.sent.len()));
    let spread = |stations: u16| -> f64 {
        let load = |seed| Load { delay: LONG_NET, stations, pause: 0, seconds: 15.0, seed: Seed(seed) };
        // Ten seconds after the first five.
        let spreads = (0..40).map(|seed| run(&load(seed), || 1024).spread(stations, 5.0));
        spreads.sum::<f64>() / 40.0
    };
    let spreads = [5, 10, 24].map(spread);
    println!("standard deviation between 5, 10 and 24 hosts: {spreads:.3?} Mb/s");
    assert!(spreads.is_sorted_by(|a, b| *a > 1.2 * b), "{spreads:?}");
}

/// Tanenbaum and Wetherall, Computer Networks, section 4.3.3: frames of 1024 bytes reach 85 % among many
/// stations, whose contentions last e slots. So they do, as long as the slots of a backoff are enough for all.
#[test]
fn a_crowd_reaches_the_textbook_value_until_backoff_has_too_few_slots() {
    let [some, many] = [64, 256].map(|stations| saturate(FARTHEST, stations, 1024, 20.0).efficiency);
    println!("1024 bytes, 64 stations: {some:.3}, 256: {many:.3}");
    assert!((some - 0.85).abs() < 0.03, "64 stations: {some}");
    assert!(many < 0.7, "256 stations: {many}");
}
