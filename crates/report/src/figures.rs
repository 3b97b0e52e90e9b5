//! A page of any plots, as one HTML file that opens offline.

use std::borrow::Cow;

use maud::html as page;

use crate::Unit;
use crate::html::plots::{Axis, Line, Plot, axis_unit, round};
use crate::html::{MADE_BY, PLOTS_HELP, document, figure};

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Title above the plot.
    pub title: String,
    /// Text below the plot; also its description for screen readers.
    pub description: String,
    /// Horizontal axis.
    pub x: Scale,
    /// Vertical axis.
    pub y: Scale,
    /// Curves.
    pub curves: Vec<Curve>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Label.
    pub label: String,
    /// Unit of its numbers.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
}

/// A line through points `(x, y)` with ascending x.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Its name.
    pub label: String,
    /// Whether the line is dashed: expected, not measured.
    pub dash: bool,
    /// Points; those that are not finite, or not positive on a logarithmic axis, are omitted.
    pub points: Vec<(f64, f64)>,
}

/// Returns a page of figures below a title and a table of facts `(name, value)`.
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
        let (x, y): (Vec<f64>, Vec<f64>) = points.map(|(x, y)| (round(*x), round(*y))).unzip();
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
    let (title, summary) = (figure.title.clone(), figure.description.clone());
    (!lines.is_empty()).then(|| Plot { title, summary, x: axis(&figure.x), y: axis(&figure.y), lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_omits_what_cannot_be_shown() {
        let scale = |label: &str, log| Scale { label: label.into(), unit: Unit::Number, log };
        let curve = |points| Curve { label: "a</script>".into(), dash: false, points };
        let figure = |title: &str, points| Figure {
            title: title.into(),
            description: "x & y".into(),
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
