//! The page of a sweep: for each metric a plot of curves with confidence bands, and a table.

use std::borrow::Cow;

use maud::{Markup, html as page};

use super::{Parameter, Spread, Sweep, columns, titles};
use crate::format::Unit;
use crate::html::plots::{Axis, Band, Line, PlotData, axis_unit, known_unit, round};
use crate::html::{MADE_BY, PLOTS_HELP, document, plot_element, scroll, typeset};
use crate::short_hash;

/// Returns the sweep as one HTML file that opens offline.
pub fn html(sweep: &Sweep) -> String {
    let mut plots = Vec::new();
    let body = page! {
        header { h1 { (sweep.experiment.name) } (facts(sweep)) }
        (problems(sweep))
        main {
            @if sweep.points.is_empty() { p { "No point is complete." } }
            @for index in 0..sweep.metrics.len() {
                @if !sweep.points.is_empty() { (section(sweep, index, &mut plots)) }
            }
            @if !sweep.experiment.text.is_empty() {
                section { h2 { "Experiment" } pre tabindex="0" { code { (sweep.experiment.text) } } }
            }
        }
        footer {
            p { "Lines go through the means over the " (sweep.seeds.noun()) "; the band is the 95 % confidence interval of "
                "the mean (Student's t). Points without a measurement are gaps." }
            p { "Rates count message bytes only. " (PLOTS_HELP) }
            p { (MADE_BY) }
        }
    };
    document(&sweep.experiment.name, &body, &plots).into_string()
}

fn facts(sweep: &Sweep) -> Markup {
    let values = |parameter: &Parameter| {
        let ends = [parameter.values.first(), parameter.values.last()];
        match ends {
            [Some(first), Some(last)] if first != last => {
                format!("{}: {} values, {first} to {last}", parameter.key, parameter.values.len())
            }
            _ => format!("{}: {}", parameter.key, parameter.values.join(", ")),
        }
    };
    let row = |title: &str, value: String| page! { tr { th scope="row" { (title) } td { (value) } } };
    let hash = short_hash(&sweep.experiment.hash);
    page! {
        div.scroll { table.facts { tbody {
            (row("backend", sweep.backend.clone()))
            @for v in &sweep.parameters { (row("varied", values(v))) }
            @for set in &sweep.overrides { (row("set", set.clone())) }
            (row(sweep.seeds.noun(), sweep.seeds.to_text()))
            @if !hash.is_empty() { (row("plan", hash)) }
        } } }
    }
}

fn problems(sweep: &Sweep) -> Markup {
    page! {
        @if sweep.partial || !sweep.problems.is_empty() {
            aside.problems role="alert" {
                strong { @if sweep.partial { "This sweep is partial" } @else { "The sweep had problems" } }
                @if !sweep.problems.is_empty() { ul { @for line in &sweep.problems { li { (line) } } } }
            }
        }
    }
}

/// Returns plot and table of the metric at `index`.
fn section(sweep: &Sweep, index: usize, plots: &mut Vec<PlotData>) -> Markup {
    let name = &sweep.metrics[index];
    let unit = Unit::of(name);
    let table = page! {
        table {
            thead { tr {
                @for parameter in &sweep.parameters { th.number scope="col" { (parameter.key) } }
                @for title in titles(sweep) { th.number scope="col" { (title) } }
            } }
            tbody { @for point in &sweep.points { tr {
                @for value in &point.values { th.number scope="row" { (typeset(value, true)) } }
                @for text in columns(&point.spreads[index], unit) { td.number { (typeset(&text, true)) } }
            } } }
        }
    };
    page! {
        section {
            h2 { (name) }
            @if let Some(plot) = curves(sweep, index) { (plot_element(plot, "wide", plots)) }
            details open[sweep.points.len() <= 30] { summary { "All points" } (scroll(name, &table)) }
        }
    }
}

/// Returns the plot of the metric at `index`: curves over the first parameter, one for each value of the second.
fn curves(sweep: &Sweep, index: usize) -> Option<PlotData> {
    let axis = sweep.parameters.first()?;
    let has_categories = axis.numbers.iter().any(Option::is_none);
    let curve_parameter = sweep.parameters.get(1);
    let curve_count = curve_parameter.map_or(1, |parameter| parameter.values.len());
    let lines: Vec<Line> = (0..curve_count)
        .map(|curve| {
            let is_on_curve = |indices: &[usize]| indices.get(1).is_none_or(|at| *at == curve);
            let points = sweep.points.iter().filter(|p| is_on_curve(&p.indices));
            let label = curve_parameter
                .map_or_else(|| "mean".to_owned(), |p| format!("{} {}", p.key, p.values[curve]));
            let position = |at: usize| axis.numbers[at].filter(|_| !has_categories).unwrap_or(at as f64);
            line(label, curve, points.map(|p| (position(p.indices[0]), &p.spreads[index])).collect())
        })
        .collect();
    let unit = Unit::of(&sweep.metrics[index]);
    let log = axis.log && needs_log_axis(&lines);
    let (name, key) = (sweep.metrics[index].clone(), &axis.key);
    Some(PlotData {
        description: format!("{name} against {key}: {}", extremes(sweep, index, unit)),
        title: name.clone(),
        x: Axis {
            label: Cow::Owned(axis.key.clone()),
            categories: if has_categories { axis.values.clone() } else { Vec::new() },
            ..Axis::new("", known_unit(&axis.unit), axis.log && !has_categories)
        },
        y: Axis { label: Cow::Owned(name), ..Axis::new("", axis_unit(unit), log) },
        lines,
    })
}

/// Returns the line through these points `(x, spread)`, with its confidence band.
fn line(label: String, color: usize, mut points: Vec<(f64, &Spread)>) -> Line {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let values = |get: fn(&Spread) -> Option<f64>| {
        points.iter().map(|(_, s)| get(s).map_or(f64::NAN, round)).collect()
    };
    Line {
        label,
        color,
        x: points.iter().map(|(x, _)| *x).collect(),
        y: values(|s| s.mean),
        band: Some(Band { low: values(|s| s.low), high: values(|s| s.high) }),
        ..Line::default()
    }
}

/// Returns whether a linear axis would flatten the lower curves and a logarithmic one can show all values.
fn needs_log_axis(lines: &[Line]) -> bool {
    let values = || {
        let of_line =
            |l: &Line| l.band.iter().flat_map(|b| b.low.clone()).chain(l.y.clone()).collect::<Vec<_>>();
        lines.iter().flat_map(of_line).filter(|y| !y.is_nan())
    };
    let (min, max) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    min > 0.0 && max > 30.0 * min
}

/// Describes the smallest and the largest mean of the metric at `index`.
fn extremes(sweep: &Sweep, index: usize, unit: Unit) -> String {
    let means = || sweep.points.iter().filter_map(|p| Some((p.spreads[index].mean?, p)));
    let text = |(mean, point): (f64, &super::Point)| {
        format!("{} at {}", crate::html::format_value(unit, mean), point.values.join(", "))
    };
    let smallest = means().min_by(|a, b| a.0.total_cmp(&b.0)).map(text);
    let largest = means().max_by(|a, b| a.0.total_cmp(&b.0)).map(text);
    match (smallest, largest) {
        (Some(smallest), Some(largest)) => format!("smallest {smallest}, largest {largest}"),
        _ => "no measurements".to_owned(),
    }
}
