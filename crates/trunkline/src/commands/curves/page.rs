//! All figures in one file that opens offline: the report's page of each, one below the other.

use trunkline_report::sweep::{self as report, Sweep};

use super::Figure;

const STYLE: &str = "\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; }
iframe { width: 100%; height: 46rem; border: 1px solid #8886; border-radius: 6px; }
p { max-width: 48rem; }";

const INTRODUCTION: &str = "\
<h1>Guaranteed ATM, 1998: the curves again</h1>
<p>Figures 13, 14 and 16 to 20 of the paper, run in the simulator on the network of \
<code>experiments/guaranteed-1998.ns</code>, with the transport of 1998 (go-back-N, folded sum, 3 s of timeout) and with \
that of today (selective repeat, CRC-32C, adaptive timeout, paced). All else is the same: frames of 9,152 bytes, a window of \
16, every third acknowledgement forced, but for what a figure varies.</p>
<p><strong>The paper prints no values of its figures.</strong> What its text says is one point in each plot; everything \
else here is ours. The network was fitted to the bare interface at two sizes, as that file says.</p>";

/// What stands above the first of our own figures.
const OWN: &str = "\
<h1>What forward error correction buys</h1>
<p>Not of the paper: a line of 20 Mb/s that loses frames at random, each way; selective repeat, frames of 1,472 bytes; \
without repair frames, with one for 20 or 10 frames, and with two for 10. A rebuilt frame costs no round trip; \
repair frames cost their share of the line.</p>";

/// The page.
pub fn html(figures: &[&Figure], sweeps: &[Sweep]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Guaranteed ATM, 1998: the curves again</title><style>{STYLE}</style></head><body>\n{INTRODUCTION}\n"
    );
    let own = figures.iter().position(|figure| figure.paper.is_none());
    for (at, (figure, sweep)) in figures.iter().zip(sweeps).enumerate() {
        if own == Some(at) {
            page += OWN;
        }
        let (title, note, inner) = (escape(figure.title), escape(figure.note), escape(&report::html(sweep)));
        page += &format!(
            "<section id=\"{}\"><h2>{title}</h2><p>{note}</p>\
             <iframe title=\"{title}\" srcdoc=\"{inner}\"></iframe></section>\n",
            figure.name
        );
    }
    page + "</body></html>\n"
}

/// Text as it stands in an attribute or between tags.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
