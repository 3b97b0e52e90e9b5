//! `trunkline study host --rates`: processor time by packet size and rate, and the break-even rate of bundling.

use serde_json::json;
use trunkline_live::study::rates::{self, BUNDLE, LOADS, MAX_DATAGRAM, MESSAGE, RATES, Rates, SIZES};
use trunkline_report::Sweep;
use trunkline_units::Span;

use super::{finish, grid, known, middle, point, sweep, varied, watched};
use crate::failure::Failure;
use crate::flags::MeasurementOptions;

/// Names of the figures; they end in their unit.
const RECEIVER: &str = "receiver.processor_percent";
const TAKEN: &str = "machine.processor_percent";

/// Measures, writes the files and prints the tables.
pub fn study(budget: Span, repeated: &MeasurementOptions) -> Result<(), Failure> {
    let runs = repeated.runs.unwrap_or(5);
    let found = watched("host", |show| rates::rates(runs.into(), budget, show))?;
    let sweeps = [("host", shares(&found)), ("bundling", bundling(&found))];
    finish(repeated, json!({ "rates": found }), &table(&found), &sweeps)
}

fn shares(found: &Rates) -> Sweep {
    let vary = vec![
        varied("packets_per_s", "", true, RATES.map(f64::from)),
        varied("size", "bytes", false, SIZES.map(|size| size as f64)),
    ];
    let points = found.cells.iter().enumerate().map(|(at, cell)| {
        let samples = vec![cell.receiver_percent.clone(), cell.taken_percent.clone()];
        point(&[at % RATES.len(), at / RATES.len()], &vary, samples)
    });
    let points = points.collect();
    sweep("Cost of packets", found.runs as u64, vary, &[RECEIVER, TAKEN], points)
}

fn bundling(found: &Rates) -> Sweep {
    let mut transfer = varied("messages", "", false, [0.0, 1.0]);
    (transfer.values, transfer.numbers) = (["plain", "bundled"].map(String::from).to_vec(), vec![None; 2]);
    let vary = vec![varied("messages_per_s", "", true, LOADS.map(f64::from)), transfer];
    let mut points = Vec::new();
    for transfer in 0..2 {
        for (at, load) in found.bundling.iter().enumerate() {
            let samples = if transfer == 0 { &load.plain_percent } else { &load.bundled_percent };
            points.push(point(&[at, transfer], &vary, vec![samples.clone()]));
        }
    }
    sweep("Break-even of bundling", found.runs as u64, vary, &[RECEIVER], points)
}

fn table(found: &Rates) -> String {
    let Rates { runs, cells, limits, loopback_bps, bundling, break_even_per_s } = found;
    let columns = SIZES.map(|size| format!("{size} B"));
    let shares = |samples: fn(&rates::Cell) -> &Vec<Option<f64>>| {
        let row = |(at, rate): (usize, &u32)| {
            let cell = |size: usize| known(samples(&cells[size * RATES.len() + at]));
            (rate.to_string(), (0..SIZES.len()).map(cell).collect())
        };
        let rows: Vec<_> = RATES.iter().enumerate().map(row).collect();
        grid("packets/s", &columns, &rows)
    };
    let mut text = format!(
        "UDP over the loopback interface, one packet per system call, {runs} runs: median ± half the range; –: not reached.\n\n\
         Processor share of the receiving thread, %:\n\n{}\n\
         Total load: the time that a loop on each processor lost to sender, receiver and kernel, % of one processor:\n\n{}\n",
        shares(|cell| &cell.receiver_percent),
        shares(|cell| &cell.taken_percent),
    );
    let highest = |size: usize| {
        let reached = |cell: &&rates::Cell| {
            cell.size_bytes == SIZES[size] && cell.receiver_percent.iter().all(Option::is_some)
        };
        cells.iter().rev().find(reached).map_or_else(|| "–".to_owned(), |cell| cell.rate_per_s.to_string())
    };
    let per_size = |figure: &dyn Fn(usize) -> String| {
        let cells: String = (0..SIZES.len()).map(|size| format!("  {:>15}", figure(size))).collect();
        cells + "\n"
    };
    let thousands = |samples: &[f64]| middle(&samples.iter().map(|x| x / 1e3).collect::<Vec<_>>());
    text += "Highest rates, in thousands of packets/s unless stated otherwise:\n\n";
    text += &format!("{:<22}{}", "", per_size(&|size| columns[size].clone()));
    text += &format!("{:<22}{}", "paced, packets/s", per_size(&highest));
    text += &format!("{:<22}{}", "unpaced, sent", per_size(&|size| thousands(&limits[size].sent_per_s)));
    text +=
        &format!("{:<22}{}", "unpaced, received", per_size(&|size| thousands(&limits[size].received_per_s)));
    let gigabits: Vec<f64> = loopback_bps.iter().map(|bps| bps / 1e9).collect();
    text += &format!(
        "\nThe loopback interface carries {} Gb/s in datagrams of {MAX_DATAGRAM} B.\n",
        middle(&gigabits)
    );
    text += &format!(
        "\nMessages of {MESSAGE} B, in separate datagrams and in bundles of {BUNDLE} B or 5 ms; processor share of the receiver, %:\n\n"
    );
    let rows: Vec<_> = bundling
        .iter()
        .map(|load| {
            let (plain, bundled) = (known(&load.plain_percent), known(&load.bundled_percent));
            let ratios: Vec<f64> =
                plain.iter().zip(&bundled).map(|(plain, bundled)| plain / bundled).collect();
            (load.rate_per_s.to_string(), vec![plain, bundled, ratios])
        })
        .collect();
    text += &grid("messages", &["plain", "bundled", "ratio"].map(String::from), &rows);
    text + &match break_even_per_s {
        Some(rate) => format!("\nBundling pays off above {rate:.0} messages/s.\n"),
        None => "\nBundling does not pay off at these rates.\n".into(),
    }
}
