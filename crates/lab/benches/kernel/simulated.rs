//! Transfers in the simulator.

use trunkline_record::Record;
use trunkline_run::{Backend as _, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use crate::cells::{self, Cell, plan};
use crate::{Outcome, Transfer, table};

/// The simulator's options for the kernel's controller.
fn options(congestion: &str) -> &str {
    match congestion {
        "reno" => "newreno, variant = linux",
        "cubic" => "cubic, variant = linux",
        "bbr" => "bbr, variant = linux",
        other => other,
    }
}

/// Returns why the simulator does not have a controller, if it does not.
pub fn refusal(congestion: &str) -> Option<String> {
    let cells = cells::all();
    match plan(&[&cells[0]], options(congestion), 1) {
        Err(why) => Some(why),
        Ok(plan) => Sim::default().refuse(&plan).into_iter().next().map(|refusal| refusal.text),
    }
}

/// Runs a transfer.
pub fn transfer(cell: &Cell, congestion: &str, seed: Seed, seconds: u64) -> Outcome<Transfer> {
    let plan = plan(&[cell], options(congestion), seconds)?;
    let run_options = RunOptions {
        seed,
        text: String::new(),
        started_at: String::new(),
        folder: ".".into(),
        out: std::env::temp_dir(),
        stop: StopFlag::default(),
    };
    let record = Sim::default().run(&plan, &run_options, &mut NoProgress);
    Ok(read(&record, seconds as f64))
}

/// Reads what arrived until the end of the transfer.
fn read(record: &Record, seconds: f64) -> Transfer {
    let connection = &record.connections[0];
    let (mut series, mut bits, mut before) = (Vec::new(), 0.0, 0.0);
    for point in &connection.series {
        // The part of the last interval that belongs to the transfer.
        let until = point.t_s.min(seconds);
        if until <= before {
            break;
        }
        bits += point.received_bps * (until - before);
        let extra = |name: &str| point.extra.get(name).copied().unwrap_or_default();
        series.push([
            point.t_s,
            point.received_bps,
            extra("cwnd_bytes"),
            extra("rtt_us"),
            extra("retransmissions"),
        ]);
        before = until;
    }
    Transfer {
        goodput_bps: bits / seconds,
        rtt_us: table::median(series.iter().map(|point| point[3]).filter(|rtt| *rtt > 0.0).collect()),
        // A point in whose time nothing happened has no values.
        retransmissions: series.iter().fold(0.0, |most, point| point[4].max(most)),
        timeouts: connection.counters.get("timeouts").copied().unwrap_or_default(),
        series,
    }
}
