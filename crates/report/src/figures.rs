//! Plots of anything: a page of them, in one HTML file that opens offline.

use std::borrow::Cow;

use maud::html as page;

use crate::Unit;
use crate::html::plots::{Axis, Line, Plot, axis_unit, short};
use crate::html::{MADE_BY, PLOTS_HELP, document, figure};

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What stands above it.
    pub title: String,
    /// What it shows, in words, for those who cannot see it too.
    pub says: String,
    /// The axis from left to right.
    pub x: Scale,
    /// The axis upwards.
    pub y: Scale,
    /// What is drawn.
    pub curves: Vec<Curve>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// What stands beside it.
    pub label: String,
    /// What its numbers count.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// A line through points, `[x, y]`, x ascending.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Dashed: what is expected, not what was seen.
    pub dash: bool,
    /// What a logarithmic axis cannot show, and what is not finite, is left out.
    pub points: Vec<(f64, f64)>,
}

/// A page of figures below a title and a table of facts, `[name, value]`.
pub fn figures(title: &str, facts: &[(String, String)], figures: &[Figure]) -> String {
    let mut plots = Vec::new();
    let body = page! {
        header {
            h1 { (title) }
            div.scroll { table.facts { tbody {
                @for (name, value) in facts { tr { th scope="row" { (name) } td { (value) } } }
            } } }
        }
        main {
            @for plot in figures.iter().filter_map(plot) { section { (figure(plot, "wide", &mut plots)) } }
        }
        footer { p { (PLOTS_HELP) } p { (MADE_BY) } }
    };
    document(title, &body, &plots).into_string()
}

fn plot(figure: &Figure) -> Option<Plot> {
    let axis = |scale: &Scale| Axis {
        label: Cow::Owned(scale.label.clone()),
        unit: axis_unit(scale.unit),
        log: scale.log,
        words: Vec::new(),
    };
    let shown = |v: f64, scale: &Scale| v.is_finite() && (!scale.log || v > 0.0);
    let line = |(color, curve): (usize, &Curve)| {
        let points = curve.points.iter().filter(|(x, y)| shown(*x, &figure.x) && shown(*y, &figure.y));
        let (x, y): (Vec<f64>, Vec<f64>) = points.map(|(x, y)| (short(*x), short(*y))).unzip();
        (x.len() > 1).then(|| Line {
            label: curve.label.clone(),
            color,
            dash: curve.dash,
            x,
            y,
            ..Line::default()
        })
    };
    let lines: Vec<Line> = figure.curves.iter().enumerate().filter_map(line).collect();
    let (title, summary) = (figure.title.clone(), figure.says.clone());
    (!lines.is_empty()).then(|| Plot { title, summary, x: axis(&figure.x), y: axis(&figure.y), lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_holds_what_can_be_shown() {
        let scale = |label: &str, log| Scale { label: label.into(), unit: Unit::Number, log };
        let curve = |points| Curve { label: "a</script>".into(), dash: false, points };
        let figure = |title: &str, points| Figure {
            title: title.into(),
            says: "x & y".into(),
            x: scale("x", true),
            y: scale("y", false),
            curves: vec![curve(points)],
        };
        let shown = figure("seen", vec![(0.0, 7.5), (1.0, 2.5), (2.0, f64::NAN), (4.0, 8.25)]);
        let empty = figure("unseen", vec![(0.0, 1.0), (1.0, 2.0)]);
        let html = figures("<b>", &[("fact".into(), "<i>".into())], &[shown, empty]);
        assert!(html.contains("&lt;b&gt;") && html.contains("&lt;i&gt;") && html.contains("x &amp; y"));
        assert!(html.contains("[1.0,4.0]") && html.contains("[2.5,8.25]") && !html.contains("unseen"));
        assert!(!html.contains("a</script>"));
    }
}
