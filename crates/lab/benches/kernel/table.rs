//! What is printed.

use crate::Transfer;
use crate::cells::Cell;

/// Largest deviation of throughput and of the median round-trip time.
const THROUGHPUT: f64 = 0.05;
const ROUND_TRIP: f64 = 0.10;

/// A link and a controller.
#[derive(Debug)]
pub struct Row {
    name: String,
    congestion: String,
    goodput_bps: [f64; 2],
    rtt_us: [f64; 2],
    retransmissions: [f64; 2],
    timeouts: [f64; 2],
}

impl Row {
    /// Takes the medians of the transfers of all seeds.
    pub fn new(cell: &Cell, congestion: &str, real: &[Transfer], simulated: &[Transfer]) -> Row {
        let medians =
            |of: fn(&Transfer) -> f64| [real, simulated].map(|all| median(all.iter().map(of).collect()));
        Row {
            name: cell.name(),
            congestion: congestion.to_owned(),
            goodput_bps: medians(|transfer| transfer.goodput_bps),
            rtt_us: medians(|transfer| transfer.rtt_us),
            retransmissions: medians(|transfer| transfer.retransmissions),
            timeouts: medians(|transfer| transfer.timeouts),
        }
    }

    fn deviations(&self) -> [f64; 2] {
        [self.goodput_bps, self.rtt_us].map(|[real, simulated]| simulated / real - 1.0)
    }

    fn passes(&self) -> [bool; 2] {
        let [throughput, rtt] = self.deviations();
        [throughput.abs() <= THROUGHPUT, rtt.abs() <= ROUND_TRIP]
    }
}

/// Prints the rows, and how many pass.
pub fn print(rows: &[Row]) {
    println!(
        "\n{:30} {:6} {:>23} {:>7}  {:>21} {:>7}  {:>13} {:>13}",
        "link", "", "goodput Mb/s", "", "median rtt ms", "", "retransmitted", "timeouts"
    );
    println!(
        "{:30} {:6} {:>11} {:>11} {:>7}  {:>10} {:>10} {:>7}  {:>6} {:>6} {:>6} {:>6}",
        "", "", "kernel", "sim", "", "kernel", "sim", "", "kernel", "sim", "kernel", "sim"
    );
    for row in rows {
        let ([throughput, rtt], passes) = (row.deviations(), row.passes());
        println!(
            "{:30} {:6} {:11.3} {:11.3} {:+6.1}%{} {:10.1} {:10.1} {:+6.1}%{} {:6} {:6} {:6} {:6}",
            row.name,
            row.congestion,
            row.goodput_bps[0] / 1e6,
            row.goodput_bps[1] / 1e6,
            throughput * 100.0,
            if passes[0] { ' ' } else { '!' },
            row.rtt_us[0] / 1e3,
            row.rtt_us[1] / 1e3,
            rtt * 100.0,
            if passes[1] { ' ' } else { '!' },
            row.retransmissions[0],
            row.retransmissions[1],
            row.timeouts[0],
            row.timeouts[1],
        );
    }
    let count = |of: usize| rows.iter().filter(|row| row.passes()[of]).count();
    println!(
        "\nthroughput within {} %: {} of {}; median round trip within {} %: {} of {}",
        THROUGHPUT * 100.0,
        count(0),
        rows.len(),
        ROUND_TRIP * 100.0,
        count(1),
        rows.len()
    );
}

/// Prints rate, window and round-trip time of both over time, every half a second.
pub fn print_series(cell: &Cell, real: &Transfer, simulated: &Transfer) {
    println!("\n{}\n{:>6}  {:>32}  {:>32}", cell.name(), "s", "kernel: Mb/s, kB, ms, retransmitted", "sim");
    let mut at = 0.0;
    for point in &real.series {
        if point[0] < at {
            continue;
        }
        at = point[0] + if at < 2.0 { 0.1 } else { 0.49 };
        let text =
            |p: &[f64; 5]| format!("{:8.2} {:8.1} {:8.2} {:6}", p[1] / 1e6, p[2] / 1e3, p[3] / 1e3, p[4]);
        let other = simulated.series.iter().find(|other| other[0] >= point[0]).map(text).unwrap_or_default();
        println!("{:6.2}  {}  {other}", point[0], text(point));
    }
}

/// Returns the median; NaN of nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
