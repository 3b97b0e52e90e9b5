//! The page of a sweep: for each figure a plot of curves with confidence bands, and a table.

use std::borrow::Cow;

use maud::{Markup, html as page};

use super::{Parameter, Spread, Sweep, columns, titles};
use crate::format::Unit;
use crate::html::plots::{Axis, Band, Line, Plot, axis_unit, round};
use crate::html::{MADE_BY, PLOTS_HELP, document, figure, scroll, typeset};

/// Returns the sweep as one HTML file that opens offline.
pub fn html(sweep: &Sweep) -> String {
    let mut plots = Vec::new();
    let body = page! {
        header { h1 { (sweep.experiment.name) } (facts(sweep)) }
        (problems(sweep))
        main {
            @if sweep.points.is_empty() { p { "No point is complete." } }
            @for index in 0..sweep.figures.len() {
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
    let hash: String = sweep.experiment.hash.chars().take(12).collect();
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

fn section(sweep: &Sweep, index: usize, plots: &mut Vec<Plot>) -> Markup {
    let name = &sweep.figures[index];
    let unit = Unit::of(name);
    let table = page! {
        table {
            thead { tr {
                @for parameter in &sweep.parameters { th.number scope="col" { (parameter.key) } }
                @for title in titles(sweep) { th.number scope="col" { (title) } }
            } }
            tbody { @for point in &sweep.points { tr {
                @for value in &point.values { th.number scope="row" { (typeset(value, true)) } }
                @for text in columns(&point.figures[index], unit) { td.number { (typeset(&text, true)) } }
            } } }
        }
    };
    page! {
        section {
            h2 { (name) }
            @if let Some(plot) = curves(sweep, index) { (figure(plot, "wide", plots)) }
            details open[sweep.points.len() <= 30] { summary { "All points" } (scroll(name, &table)) }
        }
    }
}

/// Returns curves over the first parameter, one for each value of the second.
fn curves(sweep: &Sweep, figure: usize) -> Option<Plot> {
    let axis = sweep.parameters.first()?;
    let has_words = axis.numbers.iter().any(Option::is_none);
    let family = sweep.parameters.get(1);
    let several = family.map_or(1, |f| f.values.len());
    let lines: Vec<Line> = (0..several)
        .map(|curve| {
            let on = |at: &[usize]| at.get(1).is_none_or(|at| *at == curve);
            let points =
                sweep.points.iter().filter(|p| on(&p.indices)).map(|p| (p.indices[0], &p.figures[figure]));
            let label =
                family.map_or_else(|| "mean".to_owned(), |f| format!("{} {}", f.key, f.values[curve]));
            let position = |at: usize| axis.numbers[at].filter(|_| !has_words).unwrap_or(at as f64);
            line(label, curve, points.map(|(at, spread)| (position(at), spread)).collect())
        })
        .collect();
    let unit = Unit::of(&sweep.figures[figure]);
    let log = axis.log && needs_log_axis(&lines);
    let (name, of) = (sweep.figures[figure].clone(), &axis.key);
    Some(Plot {
        summary: format!("{name} against {of}: {}", extremes(sweep, figure, unit)),
        title: name.clone(),
        x: Axis {
            label: Cow::Owned(axis.key.clone()),
            words: if has_words { axis.values.clone() } else { Vec::new() },
            ..Axis::new("", x_unit(&axis.unit), axis.log && !has_words)
        },
        y: Axis { label: Cow::Owned(name), ..Axis::new("", axis_unit(unit), log) },
        lines,
    })
}

/// Returns the unit of an axis if `plots.js` has it.
fn x_unit(unit: &str) -> &'static str {
    ["bytes", "s", "bps"].into_iter().find(|known| *known == unit).unwrap_or("")
}

fn line(label: String, color: usize, mut points: Vec<(f64, &Spread)>) -> Line {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let of = |get: fn(&Spread) -> Option<f64>| {
        points.iter().map(|(_, s)| get(s).map_or(f64::NAN, round)).collect()
    };
    Line {
        label,
        color,
        x: points.iter().map(|(x, _)| *x).collect(),
        y: of(|s| s.mean),
        band: Some(Band { low: of(|s| s.low), high: of(|s| s.high) }),
        ..Line::default()
    }
}

/// Returns whether a linear axis would flatten the lower curves and a logarithmic one can show all values.
fn needs_log_axis(lines: &[Line]) -> bool {
    let shown = || {
        let of = |l: &Line| l.band.iter().flat_map(|b| b.low.clone()).chain(l.y.clone()).collect::<Vec<_>>();
        lines.iter().flat_map(of).filter(|y| !y.is_nan())
    };
    let (least, most) = (shown().fold(f64::INFINITY, f64::min), shown().fold(0.0, f64::max));
    least > 0.0 && most > 30.0 * least
}

/// Describes the least and the greatest mean.
fn extremes(sweep: &Sweep, figure: usize, unit: Unit) -> String {
    let means = || sweep.points.iter().filter_map(|p| Some((p.figures[figure].mean?, p)));
    let text = |(mean, point): (f64, &super::Point)| {
        format!("{} at {}", crate::html::format_value(unit, mean), point.values.join(", "))
    };
    let least = means().min_by(|a, b| a.0.total_cmp(&b.0)).map(text);
    let most = means().max_by(|a, b| a.0.total_cmp(&b.0)).map(text);
    match (least, most) {
        (Some(least), Some(most)) => format!("least {least}, most {most}"),
        _ => "nothing was measured".to_owned(),
    }
}
