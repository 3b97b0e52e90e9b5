//! `trunkline reproduce congestion curves`: throughput against credits, explicit rates over time, loss against load.

use serde_json::json;
use trunkline_experiment::plan::{Connection, ExplicitRate, Plan, Stop};
use trunkline_models::atm::abr::max_min_shares;
use trunkline_models::atm::admission::onoff::{self, LINE, PROFILES, Profile};
use trunkline_record::Record;
use trunkline_report::Unit;
use trunkline_report::plot_page::{Curve, Plot, Scale, plot_page};
use trunkline_run::StopFlag;
use trunkline_traffic::Variable;
use trunkline_units::{Rate, Seed};

use super::{BURSTS, CREDITS, METHODS, closed_form, finished, plan, pool, simulate, throughput};
use crate::commands::report::{create_folder, write_atomically};
use crate::commands::run::stop_on_signals;
use crate::failure::{Failure, print};
use crate::flags::Reproduce;

/// Version of `curves.json`.
const VERSION: u32 = 1;
/// Sources that join and leave.
const RATES: &str = include_str!("../../../../../experiments/explicit-rates.ns");
/// Who computes the rates: titles, and overrides of the experiment.
const CONTROLS: [(&str, &[(&str, &str)]); 2] =
    [("a controlling host", &[]), ("ERICA in the switch", &[("s-t.explicit_rate", "erica")])];
/// Profile of the sources of which loss is drawn against load; its numbers of connections, and the most rows of a table.
const PROFILE: &Profile = &PROFILES[0];
const CONNECTIONS: [usize; 12] = [80, 86, 92, 98, 104, 110, 116, 122, 128, 136, 144, 152];
const MAX_ROWS: usize = 24;

/// A figure and its name in the files.
struct Figure {
    name: &'static str,
    plot: Plot,
}

/// Draws all figures, writes their files if a folder is given, and prints their tables.
pub fn draw(flags: &Reproduce) -> Result<(), Failure> {
    let stop = stop_on_signals()?;
    let threads = pool::threads(flags.threads);
    flags.out.as_deref().map_or(Ok(()), create_folder)?;
    let mut figures = vec![credits(&CREDITS, threads, &stop)?];
    for (title, changes) in CONTROLS {
        figures.push(rates(title, changes, &stop)?);
    }
    figures.push(loss(&CONNECTIONS, BURSTS, threads, &stop)?);
    let json = json(&figures);
    if let Some(out) = &flags.out {
        let facts = [("experiments".into(), "experiments/credits.ns, experiments/explicit-rates.ns".into())];
        let plots: Vec<Plot> = figures.iter().map(|figure| figure.plot.clone()).collect();
        let page = plot_page("Congestion control on ATM: credits, explicit rates, admission", &facts, &plots);
        write_atomically(&out.join("curves.html"), page.as_bytes())?;
        write_atomically(&out.join("curves.json"), json.as_bytes())?;
        write_atomically(&out.join("curves.csv"), csv(&figures).as_bytes())?;
    }
    if flags.json {
        return print(&json);
    }
    let mut text: String = figures.iter().map(|figure| table(figure) + "\n").collect();
    if let Some(out) = &flags.out {
        text += &format!("Curves: {}\n", out.join("curves.html").display());
    }
    print(&text)
}

fn scale(label: &str, unit: Unit, log: bool) -> Scale {
    Scale { label: label.into(), unit, log }
}

fn curve(label: impl Into<String>, dash: bool, points: Vec<(f64, f64)>) -> Curve {
    Curve { label: label.into(), dash, points }
}

/// A vertical line.
fn mark(label: impl Into<String>, at: f64, (low, high): (f64, f64)) -> Curve {
    curve(label, true, vec![(at, low), (at, high)])
}

/// Throughput of one stream against the credits of its channel.
fn credits(windows: &[u64], threads: usize, stop: &StopFlag) -> Result<Figure, Failure> {
    let measured = pool::run_all("credits", windows.len(), threads, stop, |at| {
        Some(throughput(windows[at], stop).map_err(|error| format!("{} credits: {error}", windows[at])))
    });
    let mut simulated = Vec::new();
    for (window, measured) in windows.iter().zip(measured) {
        simulated.push((*window as f64, finished(measured, stop)? * 1e6));
    }
    let expected = windows.iter().map(|window| (*window as f64, closed_form(*window) * 1e6)).collect();
    let highest = simulated.iter().map(|(_, bps)| *bps).fold(0.0, f64::max);
    let plot = Plot {
        title: "Throughput against credits".into(),
        description: "One stream over about 100 km of OC-3c, by the cell buffers of its channel. The report found 319 by \
                      experiments."
            .into(),
        x: scale("credits for each channel", Unit::Number, false),
        y: scale("throughput", Unit::BitsPerSecond, false),
        curves: vec![
            curve("simulated", false, simulated),
            curve("closed form", true, expected),
            mark("319, the report's choice", 319.0, (0.0, highest)),
        ],
    };
    Ok(Figure { name: "credits", plot })
}

/// Explicit rates over time, and the max–min shares of the sources that are active.
fn rates(title: &str, changes: &[(&str, &str)], stop: &StopFlag) -> Result<Figure, Failure> {
    let plan = plan(RATES, changes);
    let record = finished(Some(simulate(&plan, stop)), stop)?;
    let mut curves: Vec<Curve> = plan
        .connections
        .iter()
        .map(|c| curve(format!("{}, allowed", c.name), false, allowed(&record, c)))
        .collect();
    curves.extend(
        plan.connections.iter().map(|c| curve(format!("{}, max–min share", c.name), true, shares(&plan, c))),
    );
    let name = if changes.is_empty() { "controller" } else { "erica" };
    let plot = Plot {
        title: format!("Explicit rates by {title}"),
        description: "Three sources join and leave on a DS3 line; one of them declares 5 Mb/s. Dashed: the max–min shares of \
                      what the computation uses of the line."
            .into(),
        x: scale("time", Unit::Seconds, false),
        y: scale("rate of cells", Unit::BitsPerSecond, false),
        curves,
    };
    Ok(Figure { name, plot })
}

fn seconds(variable: &Variable) -> f64 {
    match variable {
        Variable::Constant(seconds) => *seconds,
        _ => f64::NAN,
    }
}

/// Returns when a connection starts and when its source ends.
fn period(c: &Connection) -> (f64, f64) {
    let start = seconds(&c.delay_s);
    match &c.stop {
        Stop::DurationS(duration) => (start, start + seconds(duration)),
        _ => (start, f64::INFINITY),
    }
}

fn allowed(record: &Record, c: &Connection) -> Vec<(f64, f64)> {
    let (start, _) = period(c);
    let found = record.connections.iter().find(|other| other.name == c.name);
    let points = found.into_iter().flat_map(|found| &found.series);
    points.filter_map(|point| Some((start + point.t_s, *point.extra.get("allowed_bps")?))).collect()
}

/// Returns the share of a connection between all times at which one starts or ends.
fn shares(plan: &Plan, c: &Connection) -> Vec<(f64, f64)> {
    let links = plan.network.iter().flat_map(|network| &network.links);
    let Some((line, rates)) = links.clone().find_map(|link| Some((link, link.explicit_rate.as_ref()?)))
    else {
        return Vec::new();
    };
    let used = match rates {
        ExplicitRate::Erica { utilization, .. } => *utilization,
        ExplicitRate::Controller { .. } => 1.0,
    };
    let capacity = Rate::from_bps((line.payload.as_bps() as f64 * used) as u64);
    let demand = |c: &Connection| {
        let first = links.clone().find(|link| link.a == c.from.host || link.b == c.from.host);
        let sent = first.map_or(capacity, |link| link.payload);
        c.declared.map_or(sent, |declared| declared.peak.min(sent))
    };
    let mut times: Vec<f64> = plan.connections.iter().flat_map(|c| <[f64; 2]>::from(period(c))).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    let mut points = Vec::new();
    for pair in times.windows(2) {
        let is_active = |other: &&Connection| period(other).0 <= pair[0] && period(other).1 >= pair[1];
        let active: Vec<&Connection> = plan.connections.iter().filter(is_active).collect();
        let flows: Vec<(Rate, Vec<usize>)> = active.iter().map(|c| (demand(c), vec![0])).collect();
        if let Some(at) = active.iter().position(|other| other.name == c.name) {
            let share = max_min_shares(&[capacity], &flows)[at];
            points.extend([(pair[0], share), (pair[1], share)]);
        }
    }
    points
}

/// Loss against the load, and the load that each method admits.
fn loss(connections: &[usize], bursts: u64, threads: usize, stop: &StopFlag) -> Result<Figure, Failure> {
    let count = connections.len();
    let outcomes = pool::run_all("loss", count + METHODS.len(), threads, stop, |at| {
        Some(match at.checked_sub(count) {
            None => onoff::simulate(&LINE, PROFILE, connections[at], bursts, Seed::default()),
            Some(method) => onoff::compare(&LINE, METHODS[method].1, PROFILE, bursts, Seed::default()),
        })
    });
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    let outcomes = outcomes.ok_or_else(|| Failure::run("stopped on request"))?;
    let load = |connections: usize| {
        connections as f64 * PROFILE.actual.mean.as_bps() as f64 / LINE.capacity.as_bps() as f64
    };
    let lost = |outcome: &onoff::Outcome| (load(outcome.connections), outcome.loss);
    let simulated: Vec<(f64, f64)> = outcomes[..count].iter().map(lost).collect();
    let least = simulated.iter().map(|(_, loss)| *loss).filter(|loss| *loss > 0.0).fold(LINE.loss, f64::min);
    let mut curves = vec![
        curve("simulated", false, simulated),
        curve("target", true, connections.iter().map(|count| (load(*count), LINE.loss)).collect()),
    ];
    for ((name, _), outcome) in METHODS.iter().zip(&outcomes[count..]) {
        curves.push(mark(
            format!("{name} admits {}", outcome.connections),
            load(outcome.connections),
            (least, 1.0),
        ));
    }
    let plot = Plot {
        title: "Loss against load, and what each method of admission admits".into(),
        description: format!(
            "Sources of the kind `{}` on {} with a buffer of 2,000 cells. A method is right if its line stands where the \
             loss is below the target, and efficient if it stands far to the right.",
            PROFILE.name, LINE.capacity
        ),
        x: scale("mean offered load, share of the line", Unit::Share, false),
        y: scale("share lost", Unit::Number, true),
        curves,
    };
    Ok(Figure { name: "loss", plot })
}

/// Returns the curves of a figure as a table, by the points of the first; marks are named below it.
fn table(figure: &Figure) -> String {
    let Plot { title, x, curves, y, .. } = &figure.plot;
    let is_mark = |curve: &&Curve| curve.points.len() == 2 && curve.points[0].0 == curve.points[1].0;
    let drawn: Vec<&Curve> = curves.iter().filter(|curve| !is_mark(curve)).collect();
    let labels: Vec<&str> = drawn.iter().map(|curve| curve.label.as_str()).collect();
    let width = |label: &str| label.chars().count().max(12);
    let mut text = format!("{title}\n{:>12}", short(&x.label));
    labels.iter().for_each(|label| text += &format!("  {label:>width$}", width = width(label)));
    text += "\n";
    let rows = drawn.first().map_or(&[][..], |curve| &curve.points);
    for (at, _) in rows.iter().step_by(rows.len().div_ceil(MAX_ROWS).max(1)) {
        text += &format!("{:>12}", x.unit.format(*at));
        for (curve, label) in drawn.iter().zip(&labels) {
            let value = value_at(curve, *at).map_or_else(|| "-".into(), |value| format_value(y, value));
            text += &format!("  {value:>width$}", width = width(label));
        }
        text += "\n";
    }
    for mark in curves.iter().filter(is_mark) {
        text += &format!("{}: at {}\n", mark.label, x.unit.format(mark.points[0].0));
    }
    text
}

/// Returns the words of a label before a comma.
fn short(label: &str) -> &str {
    label.split(',').next().unwrap_or(label)
}

fn format_value(y: &Scale, value: f64) -> String {
    if y.log { format!("{value:.1e}") } else { y.unit.format(value) }
}

/// Returns the value of a curve at or before x; `None` outside its points.
fn value_at(curve: &Curve, x: f64) -> Option<f64> {
    let after = curve.points.partition_point(|(at, _)| *at <= x);
    let inside = after > 0 && curve.points.last().is_some_and(|(last, _)| x <= *last);
    inside.then(|| curve.points[after - 1].1)
}

fn json(figures: &[Figure]) -> String {
    let one = |figure: &Figure| {
        let Plot { title, description, x, y, curves } = &figure.plot;
        let curves: Vec<_> = curves.iter().map(|c| json!({ "label": c.label, "points": c.points })).collect();
        json!({ "figure": figure.name, "title": title, "note": description, "x": x.label, "y": y.label, "curves": curves })
    };
    let all = json!({ "version": VERSION, "figures": figures.iter().map(one).collect::<Vec<_>>() });
    serde_json::to_string_pretty(&all).expect("text keys only") + "\n"
}

/// Returns one row per point.
fn csv(figures: &[Figure]) -> String {
    let mut text = "figure,curve,x,y\n".to_owned();
    for figure in figures {
        for curve in &figure.plot.curves {
            let label = curve.label.replace(',', "");
            curve.points.iter().for_each(|(x, y)| text += &format!("{},{label},{x},{y}\n", figure.name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a column of a table by its number; 0 is that of the axis.
    fn column(table: &str, number: usize) -> Vec<&str> {
        let rows = table.lines().skip(2).filter(|line| line.starts_with(' '));
        rows.map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).nth(number).unwrap())
            .collect()
    }

    #[test]
    fn the_table_of_credits_has_the_choice_of_the_report() {
        let figure = credits(&[40, 319, 420], 1, &StopFlag::default()).expect("the runs succeed");
        let table = table(&figure);
        assert_eq!(column(&table, 0), ["40", "319", "420"]);
        assert_eq!(column(&table, 1), ["14.7 Mb/s", "117 Mb/s", "135 Mb/s"], "{table}");
        assert!(table.ends_with("319, the report's choice: at 319\n"), "{table}");
        assert_eq!(csv(&[figure]).lines().count(), 1 + 3 + 3 + 2);
    }

    #[test]
    fn the_rates_of_a_controlling_host_are_their_shares() {
        let figure = rates(CONTROLS[0].0, CONTROLS[0].1, &StopFlag::default()).expect("the run succeeds");
        for source in 0..3 {
            let [allowed, share] = [source, source + 3].map(|curve| &figure.plot.curves[curve]);
            let at = |t_s| [allowed, share].map(|curve| value_at(curve, t_s));
            for (t_s, is_active) in
                [(0.15, [true, false, false]), (0.35, [true, true, false]), (0.55, [true; 3])]
            {
                let [rate, share] = at(t_s);
                assert_eq!(share.is_some(), is_active[source], "{} at {t_s} s", share.unwrap_or_default());
                if let (Some(rate), Some(share)) = (rate, share) {
                    assert!((rate / share - 1.0).abs() < 0.05, "source {source}, {t_s} s: {rate} {share}");
                }
            }
        }
        let table = table(&figure);
        assert!(column(&table, 0).len() <= MAX_ROWS && column(&table, 3).contains(&"5 Mb/s"), "{table}");
    }

    #[test]
    fn the_table_of_losses_names_what_each_method_admits() {
        let figure = loss(&[110, 152], 20_000, 1, &StopFlag::default()).expect("the runs succeed");
        let table = table(&figure);
        assert_eq!(column(&table, 2), ["1.0e-3"; 2], "{table}");
        let lost = &figure.plot.curves[0].points;
        assert!(lost[0].1 < lost[1].1 && lost[1].1 > 1e-2, "{lost:?}");
        let marks: Vec<&str> = table.lines().filter(|line| line.contains(" admits ")).collect();
        assert_eq!(marks.len(), METHODS.len(), "{table}");
        assert!(marks[0].starts_with("peak admits 37: at 24.7 %"), "{table}");
    }
}
