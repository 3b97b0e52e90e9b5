//! A page of arbitrary plots, as one HTML file that opens offline.

use std::borrow::Cow;

use maud::html as page;

use crate::Unit;
use crate::html::plots::{Axis, Line, PlotData, axis_unit, round};
use crate::html::{MADE_BY, PLOTS_HELP, document, plot_element};

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
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

/// Returns a page of plots below a title and a table of facts `(name, value)`. Plots without a curve are omitted.
pub fn plot_page(title: &str, facts: &[(String, String)], plots: &[Plot]) -> String {
    let mut data = Vec::new();
    let body = page! {
        header {
            h1 { (title) }
            div.scroll { table.facts { tbody {
                @for (name, value) in facts { tr { th scope="row" { (name) } td { (value) } } }
            } } }
        }
        main {
            @for plot in plots.iter().filter_map(plot_data) { section { (plot_element(plot, "wide", &mut data)) } }
        }
        footer { p { (PLOTS_HELP) } p { (MADE_BY) } }
    };
    document(title, &body, &data).into_string()
}

/// Returns the data of a plot; `None` if no curve has two points.
fn plot_data(plot: &Plot) -> Option<PlotData> {
    let axis = |scale: &Scale| Axis {
        label: Cow::Owned(scale.label.clone()),
        unit: axis_unit(scale.unit),
        log: scale.log,
        categories: Vec::new(),
    };
    let is_shown = |v: f64, scale: &Scale| v.is_finite() && (!scale.log || v > 0.0);
    let line = |(color, curve): (usize, &Curve)| {
        let points = curve.points.iter().filter(|(x, y)| is_shown(*x, &plot.x) && is_shown(*y, &plot.y));
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
    let lines: Vec<Line> = plot.curves.iter().enumerate().filter_map(line).collect();
    let (title, description) = (plot.title.clone(), plot.description.clone());
    (!lines.is_empty()).then(|| PlotData { title, description, x: axis(&plot.x), y: axis(&plot.y), lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_and_plots_that_cannot_be_drawn_are_omitted() {
        let scale = |label: &str, log| Scale { label: label.into(), unit: Unit::Number, log };
        let curve = |points| Curve { label: "a</script>".into(), dash: false, points };
        let plot = |title: &str, points| Plot {
            title: title.into(),
            description: "x & y".into(),
            x: scale("x", true),
            y: scale("y", false),
            curves: vec![curve(points)],
        };
        let drawn = plot("drawn", vec![(0.0, 7.5), (1.0, 2.5), (2.0, f64::NAN), (4.0, 8.25)]);
        let omitted = plot("omitted", vec![(0.0, 1.0), (1.0, 2.0)]);
        let html = plot_page("<b>", &[("fact".into(), "<i>".into())], &[drawn, omitted]);
        assert!(html.contains("&lt;b&gt;") && html.contains("&lt;i&gt;") && html.contains("x &amp; y"));
        assert!(html.contains("[1.0,4.0]") && html.contains("[2.5,8.25]") && !html.contains("omitted"));
        assert!(!html.contains("a</script>"));
    }
}
