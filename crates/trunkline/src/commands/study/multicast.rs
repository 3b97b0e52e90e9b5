//! `trunkline study multicast`: the cost of multicast groups on a host.

use serde_json::json;
use trunkline_live::study::multicast::{
    self, GROUPS, GROUPS_PER_SOCKET, JOINED_GROUPS, Multicast, RATE, SHARES, SIZE,
};
use trunkline_report::Sweep;
use trunkline_units::Span;

use super::{finish, grid, known, middle, point, sweep, varied, watched};
use crate::failure::Failure;
use crate::flags::MeasurementOptions;

/// Measures, writes the files and prints the tables.
pub fn study(budget: Span, repeated: &MeasurementOptions) -> Result<(), Failure> {
    let runs = repeated.runs.unwrap_or(5);
    let found = watched("multicast", |show| multicast::multicast(runs.into(), budget, show))?;
    finish(repeated, json!({ "multicast": found }), &table(&found), &[("multicast", shares(&found))])
}

fn shares(found: &Multicast) -> Sweep {
    let vary = vec![
        varied("groups", "", true, GROUPS.map(|groups| groups as f64)),
        varied("joined_percent", "", false, SHARES.map(f64::from)),
    ];
    let points = found.cells.iter().enumerate().map(|(at, cell)| {
        let samples = vec![cell.receiver_percent.clone(), cell.taken_percent.clone()];
        point(&[at / SHARES.len(), at % SHARES.len()], &vary, samples)
    });
    let points = points.collect();
    let figures = ["receiver.processor_percent", "machine.processor_percent"];
    sweep("Cost of multicast groups", found.runs as u64, vary, &figures, points)
}

fn table(found: &Multicast) -> String {
    let Multicast { runs, cells, join } = found;
    let columns = GROUPS.map(|groups| format!("{groups} groups"));
    let shares = |samples: fn(&multicast::Cell) -> &Vec<Option<f64>>| {
        let row = |(at, share): (usize, &u32)| {
            let cell = |groups: usize| known(samples(&cells[groups * SHARES.len() + at]));
            (format!("{share} %"), (0..GROUPS.len()).map(cell).collect())
        };
        let rows: Vec<_> = SHARES.iter().enumerate().map(row).collect();
        grid("joined", &columns, &rows)
    };
    let each = |figure: fn(&multicast::JoinCost) -> f64| middle(&join.iter().map(figure).collect::<Vec<_>>());
    format!(
        "{RATE} packets of {SIZE} B per second over the loopback interface, to all groups in turn, {runs} runs: median ± half \
         the range.\n\n\
         Processor share of the receiving thread, %:\n\n{}\n\
         Total load: the time that a loop on each processor lost to sender, receiver and kernel, % of one processor:\n\n{}\n\
         {JOINED_GROUPS} groups, {GROUPS_PER_SOCKET} per socket, us per group: join {} (processor time {}), leave {}.\n",
        shares(|cell| &cell.receiver_percent),
        shares(|cell| &cell.taken_percent),
        each(|join| join.join_us),
        each(|join| join.join_cpu_us),
        each(|join| join.leave_us),
    )
}
