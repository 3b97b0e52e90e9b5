//! All figures in one HTML file without external resources: the page of each figure, in a frame.

use trunkline_report::sweep::{self as report, Sweep};

use super::Figure;

const STYLE: &str = "\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 0 auto; padding: 1rem; }
iframe { width: 100%; height: 46rem; border: 1px solid #8886; border-radius: 6px; }
p { max-width: 48rem; }";

const INTRODUCTION: &str = "\
<h1>Guaranteed ATM, 1998: the curves reproduced</h1>
<p>Figures 13, 14 and 16 to 20 of the paper, run in the simulator on the network of \
<code>experiments/guaranteed-1998.ns</code>, with the transport of 1998 (go-back-N, folded sum, timeout of 3 s) and with \
that of today (selective repeat, CRC-32C, adaptive timeout, paced). Both use frames of 9,152 bytes, a window of 16, and an \
acknowledgement for every third frame, except where a figure varies these.</p>
<p><strong>The paper prints no values of its figures.</strong> One point in each plot is a value that its text states; \
all curves are simulated. The simulated network is fitted to measurements of the bare interface at two sizes; see that \
file.</p>";

/// Introduction to the figures of forward error correction.
const FEC: &str = "\
<h1>The effect of forward error correction</h1>
<p>These figures are not in the paper. A link of 20 Mb/s loses frames at random in both directions. The transport uses \
selective repeat and frames of 1,472 bytes, without repair frames, with one per 20 or 10 frames, or with two per 10. \
Reconstructing a frame needs no round trip; repair frames use capacity of the link.</p>";

/// Returns the page.
pub fn html(figures: &[&Figure], sweeps: &[Sweep]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Guaranteed ATM, 1998: the curves reproduced</title><style>{STYLE}</style></head><body>\n{INTRODUCTION}\n"
    );
    let first_fec = figures.iter().position(|figure| figure.paper.is_none());
    for (at, (figure, sweep)) in figures.iter().zip(sweeps).enumerate() {
        if first_fec == Some(at) {
            page += FEC;
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

/// Escapes text for an attribute or an element.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
