//! How Trunkline's pages draw plots: [uPlot] 1.6.32 and our options for it, as text to embed or to serve.
//!
//! | file in `assets/` | contents |
//! | --- | --- |
//! | `chart.js` | the class `Chart`: lines with bands over linear, logarithmic and time axes; zoom, cursor, keys, formats |
//! | `chart.css` | the colours of both pages, light and dark, and the look of plots |
//! | `uplot/` | uPlot, unchanged, with its licence |
//!
//! The report embeds these texts in its file and the web server serves them as files; neither loads anything from a
//! network.
//!
//! ```
//! assert!(trunkline_chart::SCRIPT.contains("class Chart") && trunkline_chart::STYLE.contains("--paper"));
//! ```
//!
//! [uPlot]: https://github.com/leeoniya/uPlot

/// A classic script that defines `uPlot`, `Chart` and `formatValue`.
pub const SCRIPT: &str =
    concat!(include_str!("../assets/uplot/uPlot.iife.min.js"), "\n", include_str!("../assets/chart.js"));

/// The style sheet.
pub const STYLE: &str =
    concat!(include_str!("../assets/uplot/uPlot.min.css"), "\n", include_str!("../assets/chart.css"));
