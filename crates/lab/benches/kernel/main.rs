//! The simulated TCP senders beside this machine's kernel, over the same links:
//! `cargo bench -p trunkline-lab --bench kernel -- [--only TEXT]… [--congestion NAME]… [--seconds N] [--seeds N] [--series]`.
//!
//! | module | contents |
//! | --- | --- |
//! | [`cells`] | the links |
//! | [`real`] | transfers of the kernel, several links in one lab |
//! | [`simulated`] | the same transfers in the simulator |
//! | [`table`] | what is printed |
//!
//! A link that loses packets at random loses the same ones in both: the random numbers are those of the simulation. With
//! several seeds, medians are printed.

#![allow(clippy::disallowed_methods, reason = "a bench measures in real time")]

mod cells;
mod real;
mod simulated;
mod table;

use std::process::ExitCode;

use cells::Cell;
use trunkline_units::Seed;

/// Why there is no result: one line.
type Outcome<T> = Result<T, String>;

/// Sum of the rates of the links of one lab, Mb/s: what one thread carries beside the senders on a machine of two processors.
const GROUP_MBPS: u64 = 130;

/// What a transfer has reached.
#[derive(Clone, Debug, Default)]
pub struct Transfer {
    /// Bytes received in the time of the transfer, b/s.
    pub goodput_bps: f64,
    /// Median of the round-trip times, sampled every 50 ms.
    pub rtt_us: f64,
    /// Retransmitted segments.
    pub retransmissions: f64,
    /// Retransmission timeouts.
    pub timeouts: f64,
    /// Seconds, b/s received since the previous point, window in bytes, round-trip time in µs, retransmissions so far.
    pub series: Vec<[f64; 5]>,
}

/// What is asked for on the command line.
#[derive(Debug)]
struct Options {
    only: Vec<String>,
    congestion: Vec<String>,
    seconds: u64,
    seeds: u64,
    series: bool,
}

const USAGE: &str = "usage: kernel [--only TEXT]… [--congestion NAME]… [--seconds N] [--seeds N] [--series]";

fn main() -> ExitCode {
    // Before there is a second thread.
    let done = trunkline_lab::enter_user_namespace().map_err(|error| error.to_string());
    match done.and_then(|()| options()).and_then(|options| compare(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("kernel: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Outcome<Options> {
    let mut options =
        Options { only: Vec::new(), congestion: Vec::new(), seconds: 15, seeds: 3, series: false };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value; {USAGE}"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is not a number; {USAGE}"));
        match word.as_str() {
            "--only" => options.only.push(value()?),
            "--congestion" => options.congestion.push(value()?),
            "--seconds" => options.seconds = number(value()?)?,
            "--seeds" => options.seeds = number(value()?)?,
            "--series" => options.series = true,
            _ => return Err(format!("unknown flag {word}; {USAGE}")),
        }
    }
    if options.congestion.is_empty() {
        options.congestion = ["reno", "cubic", "bbr"].map(str::to_owned).into();
    }
    Ok(options)
}

fn compare(options: &Options) -> Outcome<()> {
    let wanted =
        |cell: &Cell| options.only.is_empty() || options.only.iter().any(|o| cell.name().contains(o));
    let cells: Vec<Cell> = cells::all().into_iter().filter(wanted).collect();
    let mut rows = Vec::new();
    for congestion in &options.congestion {
        if let Some(reason) = simulated::refusal(congestion) {
            println!("{congestion}: not simulated: {reason}");
            continue;
        }
        let mut results: Vec<(Vec<Transfer>, Vec<Transfer>)> = vec![Default::default(); cells.len()];
        for seed in 1..=options.seeds {
            // Without loss nothing is random.
            let due: Vec<usize> =
                (0..cells.len()).filter(|index| seed == 1 || cells[*index].loss > 0.0).collect();
            for group in groups(&cells, &due) {
                let links: Vec<&Cell> = group.iter().map(|index| &cells[*index]).collect();
                let real = real::transfers(&links, congestion, Seed(seed), options.seconds)?;
                for (index, transfer) in group.iter().zip(real) {
                    results[*index].0.push(transfer);
                    let simulated =
                        simulated::transfer(&cells[*index], congestion, Seed(seed), options.seconds)?;
                    results[*index].1.push(simulated);
                }
            }
        }
        for (cell, (real, simulated)) in cells.iter().zip(&results) {
            if options.series {
                table::print_series(cell, &real[0], &simulated[0]);
            }
            rows.push(table::Row::new(cell, congestion, real, simulated));
        }
    }
    table::print(&rows);
    Ok(())
}

/// Divides links into groups that one lab carries at once.
fn groups(cells: &[Cell], indexes: &[usize]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(u64, Vec<usize>)> = Vec::new();
    let mut sorted = indexes.to_vec();
    sorted.sort_by_key(|index| std::cmp::Reverse(cells[*index].mbps));
    for index in sorted {
        let mbps = cells[index].mbps;
        match groups.iter_mut().find(|(sum, _)| *sum + mbps <= GROUP_MBPS) {
            Some((sum, group)) => {
                *sum += mbps;
                group.push(index);
            }
            None => groups.push((mbps, vec![index])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}
