//! The plot of a recording: packets/s and bits/s over time, as SVG.

use std::fmt::Write;

use trunkline_capture::load::Sample;
use trunkline_capture::table::Count;

use super::rank::{format_time_of_day, group_digits, with_prefix};

/// Maximum number of columns. Beyond it, pairs of columns are merged, so a recording may have any length.
const COLUMNS: usize = 800;
/// Size of a panel and positions of both panels, in pixels.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 180.0;
const LEFT: f64 = 90.0;
const TOPS: [f64; 2] = [70.0, 290.0];

/// Samples in at most [`COLUMNS`] columns.
#[derive(Debug)]
pub struct Graph {
    interval_ns: u64,
    /// Number of samples per full column.
    samples_per_column: u64,
    columns: Vec<Column>,
}

/// Consecutive samples.
#[derive(Clone, Copy, Debug)]
struct Column {
    at_ns: u64,
    samples: u64,
    sum: Count,
    /// Maximum packets and maximum bytes of a sample.
    max: Count,
}

impl Graph {
    /// Creates an empty graph of samples of `interval_ns`, at least 1.
    pub fn new(interval_ns: u64) -> Graph {
        Graph { interval_ns, samples_per_column: 1, columns: Vec::new() }
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: &Sample) {
        let one = Column { at_ns: sample.at_ns, samples: 1, sum: sample.shown, max: sample.shown };
        let end_ns = |column: &Column| column.at_ns.saturating_add(column.samples * self.interval_ns);
        match self.columns.last_mut() {
            // Start a new column after a pause without samples.
            Some(last) if last.samples < self.samples_per_column && end_ns(last) == one.at_ns => {
                last.join(&one)
            }
            _ => self.columns.push(one),
        }
        if self.columns.len() > COLUMNS {
            self.samples_per_column *= 2;
            let pairs = self.columns.chunks(2).map(|pair| {
                let mut first = pair[0];
                pair[1..].iter().for_each(|second| first.join(second));
                first
            });
            self.columns = pairs.collect();
        }
    }

    /// Returns the date of the first sample in UTC; empty without samples.
    fn day(&self) -> String {
        let first = self.columns.first().and_then(|c| jiff::Timestamp::from_nanosecond(c.at_ns.into()).ok());
        first.map(|at| format!("{}, ", at.strftime("%F"))).unwrap_or_default()
    }

    /// Returns the SVG: the mean of each column as a bar, its largest sample as a line.
    pub fn svg(&self, title: &str, note: &str) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} 510\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            LEFT + WIDTH + 30.0
        );
        text(&mut svg, LEFT, 22.0, "start", "font-size=\"15\" font-weight=\"bold\"", title);
        text(&mut svg, LEFT, 42.0, "start", "fill=\"#555\"", &format!("{}{note}", self.day()));
        self.panel(&mut svg, TOPS[0], "bits/s", "#2a7ab0", |count| count.bytes as f64 * 8.0);
        self.panel(&mut svg, TOPS[1], "packets/s", "#3c8c40", |count| count.packets as f64);
        svg + "</svg>\n"
    }

    fn panel(&self, svg: &mut String, top: f64, unit: &str, colour: &str, value: fn(Count) -> f64) {
        let seconds = self.interval_ns as f64 / 1e9;
        let largest = self.columns.iter().map(|c| value(c.max) / seconds).fold(0.0, f64::max);
        let ceiling = round_up(largest);
        for step in 0..=4 {
            let (share, y) = (f64::from(step) / 4.0, top + HEIGHT * (1.0 - f64::from(step) / 4.0));
            let right = LEFT + WIDTH;
            let _ = writeln!(svg, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>");
            text(svg, LEFT - 8.0, y + 4.0, "end", "", &with_prefix(ceiling * share, ""));
        }
        text(svg, LEFT, top - 8.0, "start", "font-weight=\"bold\"", unit);
        let (Some(first), Some(last)) = (self.columns.first(), self.columns.last()) else { return };
        let begin = first.at_ns;
        let length_ns = (last.at_ns - begin) as f64 + (last.samples * self.interval_ns) as f64;
        let x = |ns: u64| LEFT + WIDTH * (ns.saturating_sub(begin) as f64 / length_ns);
        let y = |rate: f64| top + HEIGHT * (1.0 - rate / ceiling);
        let (mut bars, mut line) = (String::new(), String::new());
        for column in &self.columns {
            let long_ns = column.samples * self.interval_ns;
            let (from, to) = (x(column.at_ns), x(column.at_ns.saturating_add(long_ns)));
            let mean = y(value(column.sum) / (long_ns as f64 / 1e9));
            let _ = write!(bars, "M{from:.2} {:.1}V{mean:.1}H{to:.2}V{:.1}Z", top + HEIGHT, top + HEIGHT);
            let _ = write!(line, "M{from:.2} {:.1}H{to:.2}", y(value(column.max) / seconds));
        }
        let _ = writeln!(svg, "<path d=\"{bars}\" fill=\"{colour}\" fill-opacity=\"0.6\"/>");
        let _ = writeln!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"{colour}\"/>");
        for step in 0..=4u64 {
            let ns = begin.saturating_add((length_ns * (step as f64 / 4.0)) as u64);
            text(svg, x(ns), top + HEIGHT + 16.0, "middle", "fill=\"#555\"", &format_time_of_day(ns, 0));
        }
    }
}

impl Column {
    /// Merges the next column into this one; a pause between them is left out.
    fn join(&mut self, next: &Column) {
        self.samples += next.samples;
        self.sum += next.sum;
        self.max = self.max.max(next.max);
    }
}

/// Returns the line below the title: the total.
pub fn note(total: Count, kernel: Option<(u64, u64)>) -> String {
    let mut note = format!("{} packets, {} octets", group_digits(total.packets), group_digits(total.bytes));
    if let Some((frames, dropped)) = kernel {
        note += &format!(
            "; the kernel received {} frames and dropped {}",
            group_digits(frames),
            group_digits(dropped)
        );
    }
    note + "; times in UTC"
}

/// Rounds up to 1, 2, 4 or 8 times a power of ten, which divides into four steps.
fn round_up(value: f64) -> f64 {
    let mut ceiling = 1.0;
    while ceiling < value {
        let next = [2.0, 4.0, 8.0].into_iter().map(|factor| ceiling * factor).find(|next| *next >= value);
        ceiling = next.unwrap_or(ceiling * 10.0);
    }
    ceiling
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, attributes: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {attributes}>{content}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: u64, packets: u64) -> Sample {
        let shown = Count { packets, bytes: 100 * packets };
        Sample { at_ns: n * 1_000_000_000, all: shown, shown }
    }

    #[test]
    fn columns_are_bounded_and_complete() {
        let mut graph = Graph::new(1_000_000_000);
        let mut packets = 0;
        for n in 0..10_000 {
            // An occasional pause without samples.
            let at = n + n / 3_000 * 1_000;
            graph.add(&sample(at, n % 7));
            packets += n % 7;
            assert!(graph.columns.len() <= COLUMNS);
        }
        assert_eq!(graph.columns.iter().map(|c| c.sum.packets).sum::<u64>(), packets);
        assert_eq!(graph.columns.iter().map(|c| c.samples).sum::<u64>(), 10_000);
        assert!(graph.columns.len() > COLUMNS / 2 - 1);
        assert!(graph.columns.iter().all(|c| c.max.packets <= 6 && c.samples <= graph.samples_per_column));
    }

    #[test]
    fn the_scale_ends_above_the_largest() {
        let ends = [0.0, 1.0, 1.5, 3.0, 7.0, 9.0, 10.0, 45.0, 200_000.0].map(round_up);
        assert_eq!(ends, [1.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 80.0, 200_000.0]);
    }

    #[test]
    fn empty_and_small_graphs_are_drawn() {
        let mut graph = Graph::new(1_000_000_000);
        assert!(graph.svg("a < b & c", "").contains("a &lt; b &amp; c"));
        graph.add(&sample(3_661, 4));
        graph.add(&sample(3_662, 2));
        let svg = graph.svg("eth0", "");
        // The second of two bars of packets/s is half as high, to the baseline.
        assert!(svg.contains("M490.00 470.0V380.0H890.00V470.0Z"), "{svg}");
        assert!(svg.contains(">1970-01-01, "), "{svg}");
        assert!(svg.contains(">01:01:01<") && svg.contains(">01:01:03<"), "{svg}");
    }
}
