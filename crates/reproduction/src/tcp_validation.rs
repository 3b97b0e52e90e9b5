//! The validation cases of ns-3's example `tcp-validation` (examples/tcp/tcp-validation.cc): one flow through a line of 50 Mb/s
//! under CoDel. There the flow starts at 5 s.
//!
//! Two choices of ns-3 are not standards: its CUBIC has no Reno-friendly region in these cases, and its slow start ends by the
//! acknowledgement train of HyStart (Ha and Rhee 2011), at about 505 segments. Options set both here; a case with the slow start
//! of RFC 5681 shows what the second one changes.

use trunkline_record::Record;
use trunkline_record::schema::Point;

/// The experiment of the case without changes.
pub const TEXT: &str = include_str!("../../../experiments/tcp-validation.ns");

/// Payload bytes of a segment.
const SEGMENT: f64 = 1448.0;
/// Shortest interval over which a throughput counts, in seconds, as in ns-3.
const INTERVAL_S: f64 = 0.199;

/// A case: an experiment, and the figures that ns-3 documents for it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Controller and round trip.
    pub name: &'static str,
    /// Overrides of the options in [`TEXT`].
    pub changes: &'static [(&'static str, &'static str)],
    rtt_s: f64,
    figures: &'static [Figure],
    /// Whether ours must agree.
    pub is_promised: bool,
}

/// A figure of a case.
#[derive(Clone, Copy, Debug)]
struct Figure {
    name: &'static str,
    quantity: Quantity,
    /// The time in which it is measured, in seconds of ns-3.
    within: (f64, f64),
    theirs: &'static str,
    /// What is accepted.
    range: (f64, f64),
}

#[derive(Clone, Copy, Debug)]
enum Quantity {
    /// The largest and the first congestion window, in segments.
    LargestWindow,
    FirstWindow,
    /// The least and the largest throughput, in Mb/s.
    LeastRate,
    LargestRate,
}

/// A figure beside ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// What is measured, and when.
    pub name: &'static str,
    /// What ns-3 has.
    pub theirs: &'static str,
    /// What the simulated run has.
    pub ours: f64,
    /// The relative deviation from a figure; from a range that it is in, 0.
    pub deviation: f64,
    /// Whether it is accepted: a window within 5 %, a throughput within ns-3's range.
    pub is_within: bool,
}

const fn window(
    name: &'static str,
    quantity: Quantity,
    within: (f64, f64),
    theirs: &'static str,
    segments: f64,
) -> Figure {
    Figure { name, quantity, within, theirs, range: (0.95 * segments, 1.05 * segments) }
}

const CUBIC: &[Figure] = &[
    window("window, largest at 5.4 s", Quantity::LargestWindow, (5.3, 5.7), "511", 511.0),
    window("window after three reductions, 5.8 s", Quantity::FirstWindow, (5.81, 6.0), "173", 173.0),
    window("window, largest at 14.3 s", Quantity::LargestWindow, (13.0, 15.5), "236", 236.0),
    window("window, largest at 18 s", Quantity::LargestWindow, (16.5, 18.6), "234", 234.0),
];

const fn rate(
    name: &'static str,
    quantity: Quantity,
    within: (f64, f64),
    theirs: &'static str,
    range: (f64, f64),
) -> Figure {
    Figure { name, quantity, within, theirs, range }
}

const DCTCP_10: &[Figure] = &[
    rate("Mb/s, least after 5.6 s", Quantity::LeastRate, (5.8, 20.0), "48 to 49", (48.0, 49.0)),
    rate("Mb/s, largest after 5.6 s", Quantity::LargestRate, (5.8, 20.0), "48 to 49", (48.0, 49.0)),
];

/// The first marks halve the window again and again, as the share of marks starts at 1; then it grows by a segment in a round
/// trip.
const DCTCP_80: &[Figure] = &[
    rate("Mb/s, largest before 14 s", Quantity::LargestRate, (5.3, 14.0), "below 20", (0.0, 20.0)),
    rate("Mb/s, largest before 30 s", Quantity::LargestRate, (5.3, 30.0), "below 48", (0.0, 48.0)),
    rate("Mb/s, least after 32 s", Quantity::LeastRate, (32.0, 39.9), "47.5 to 48.5", (47.5, 48.5)),
    rate("Mb/s, largest after 32 s", Quantity::LargestRate, (32.0, 39.9), "47.5 to 48.5", (47.5, 48.5)),
];

const MARKING: (&str, &str) = ("s-t.queue", "codel (ecn = on, ce_threshold = 1 ms)");

/// The cases.
pub const CASES: &[Case] = &[
    Case {
        name: "CUBIC, 50 ms",
        changes: &[("x.initial_ssthresh", "731240 B")],
        rtt_s: 0.05,
        figures: CUBIC,
        is_promised: true,
    },
    Case {
        name: "CUBIC, 50 ms, slow start of RFC 5681",
        changes: &[],
        rtt_s: 0.05,
        figures: CUBIC,
        is_promised: false,
    },
    Case {
        name: "DCTCP, 10 ms",
        changes: &[
            ("x.hystart", "auto"),
            ("x.reno_friendly", "auto"),
            ("x.congestion", "dctcp"),
            ("x.window", "4 MB"),
            ("s-t.delay", "5 ms"),
            MARKING,
        ],
        rtt_s: 0.01,
        figures: DCTCP_10,
        is_promised: true,
    },
    Case {
        name: "DCTCP, 80 ms",
        changes: &[
            ("x.hystart", "auto"),
            ("x.reno_friendly", "auto"),
            ("x.congestion", "dctcp"),
            ("x.window", "4 MB"),
            ("x.duration", "35 s"),
            ("s-t.delay", "40 ms"),
            MARKING,
        ],
        rtt_s: 0.08,
        figures: DCTCP_80,
        is_promised: true,
    },
];

impl Case {
    /// Returns the figures beside those of a run; `NaN` for what the run does not have.
    pub fn compare(&self, record: &Record) -> Vec<Row> {
        let mut series = record.connections.first().map_or(Vec::new(), |c| c.series.clone());
        // The series begins with the first message, after the handshake.
        series.iter_mut().for_each(|point| point.t_s += 5.0 + self.rtt_s);
        self.figures.iter().map(|figure| figure.compare(&series)).collect()
    }
}

impl Figure {
    fn compare(&self, series: &[Point]) -> Row {
        let (from, to) = self.within;
        let is_within = |t_s: f64| (from..to).contains(&t_s);
        let windows = series.iter().filter(|point| is_within(point.t_s));
        let mut windows =
            windows.filter_map(|point| point.extra.get("cwnd_bytes")).map(|bytes| bytes / SEGMENT);
        let rates = rates(series).into_iter().filter(|(t_s, _)| is_within(*t_s)).map(|(_, rate)| rate);
        let ours = match self.quantity {
            Quantity::LargestWindow => windows.fold(f64::NAN, f64::max),
            Quantity::FirstWindow => windows.next().unwrap_or(f64::NAN),
            Quantity::LeastRate => rates.fold(f64::NAN, f64::min),
            Quantity::LargestRate => rates.fold(f64::NAN, f64::max),
        };
        let (least, most) = self.range;
        let is_within = (least..=most).contains(&ours);
        let reference = match self.theirs.parse::<f64>() {
            Ok(figure) => figure,
            Err(_) => ours.clamp(least, most),
        };
        Row { name: self.name, theirs: self.theirs, ours, deviation: ours / reference - 1.0, is_within }
    }
}

/// Returns the throughputs in intervals, with the end of each.
fn rates(series: &[Point]) -> Vec<(f64, f64)> {
    let (mut rates, mut bits, mut length) = (Vec::new(), 0.0, 0.0);
    for pair in series.windows(2) {
        let step = pair[1].t_s - pair[0].t_s;
        (bits, length) = (bits + pair[1].received_bps * step, length + step);
        if length > INTERVAL_S {
            rates.push((pair[1].t_s, bits / length / 1e6));
            (bits, length) = (0.0, 0.0);
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_record::schema::Connection;

    #[test]
    fn figures_are_those_of_their_time() {
        let point = |n: u32| Point {
            t_s: f64::from(n) * 0.05,
            received_bps: if n < 120 { 10e6 } else { 48e6 },
            extra: [("cwnd_bytes".to_owned(), SEGMENT * f64::from(n))].into(),
            ..Point::default()
        };
        let series = (0..800).map(point).collect();
        let record =
            Record { connections: vec![Connection { series, ..Connection::default() }], ..Record::default() };
        let rows = CASES[0].compare(&record);
        // Window n at 5.05 s + n · 50 ms.
        let windows: Vec<f64> = rows.iter().map(|row| row.ours.round()).collect();
        assert_eq!(windows, [12.0, 16.0, 208.0, 270.0]);
        assert!(rows.iter().all(|row| !row.is_within), "{rows:?}");
        assert!((rows[0].deviation - (12.0 / 511.0 - 1.0)).abs() < 1e-9);
        let rows = CASES[2].compare(&record);
        assert_eq!(rows.iter().map(|row| row.is_within).collect::<Vec<_>>(), [false, true]);
        assert!(
            (rows[0].deviation - (10.0 / 48.0 - 1.0)).abs() < 1e-9 && rows[1].deviation == 0.0,
            "{rows:?}"
        );
        // A run without the time of a figure has none.
        assert!(CASES[3].compare(&Record::default()).iter().all(|row| row.ours.is_nan() && !row.is_within));
    }
}
