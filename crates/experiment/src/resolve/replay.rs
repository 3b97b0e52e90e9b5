//! `replay`: recorded traffic.

use trunkline_traffic::recording::RecordedValues;
use trunkline_traffic::{Pattern, Recording, RecordingRequest, Variable};

use super::options::{Visit, choice, text};
use super::quantity::{Dimension, number};
use super::{Context, write};
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::token::quoted;
use crate::tree::Value;

/// The factors of time.
const SCALES: (f64, f64) = (1e-6, 1e6);

/// The first column, and all packets.
const AUTO: &str = "auto";

const VALUES: [(&str, RecordedValues); 2] =
    [("sizes", RecordedValues::Sizes), ("amounts", RecordedValues::Amounts)];

pub(crate) fn default() -> Pattern {
    Pattern::Replay {
        request: RecordingRequest {
            path: String::new(),
            column: String::new(),
            filter: String::new(),
            values: RecordedValues::Sizes,
            message_bytes: 1_400.0,
        },
        recording: Recording::default(),
        scale: 1.0,
        size_bytes: Variable::Constant(0.0),
    }
}

/// Presents the options. Reading the path reads the recording, so it comes last.
pub(crate) fn present(
    v: &mut Visit<'_, '_>,
    request: &mut RecordingRequest,
    recording: &mut Recording,
    scale: &mut f64,
    size_bytes: &mut Variable,
) {
    let is_read = !recording.messages().is_empty();
    // The options of a recording that has been read.
    let settled = |cx: &mut Context<'_>, value: &Value| {
        if is_read {
            let error = Diagnostic::error(value.location, "the recording has been read already");
            cx.report(error.label("expected in the experiment, not on the command line"));
        }
        !is_read
    };
    let before = request.clone();
    let mut read = None;
    v.option(
        "path",
        &mut request.path,
        |cx, value| {
            let path = text(cx, value, "a file name, such as `\"traffic.pcap\"`")?.to_owned();
            read = Some(load(cx, value, &RecordingRequest { path: path.clone(), ..before })?);
            Some(path)
        },
        |path| quoted(path),
    );
    if let Some(read) = read {
        *size_bytes = Variable::Constant(read.largest().into());
        *recording = read;
    }
    v.option("scale", scale, factor, |scale| scale.to_string());
    let words = |cx: &mut Context<'_>, value: &Value| {
        let words = text(cx, value, "`auto` or words in quotes")?;
        settled(cx, value).then(|| if words == AUTO { String::new() } else { words.to_owned() })
    };
    let written = |words: &String| if words.is_empty() { AUTO.to_owned() } else { quoted(words) };
    v.option("column", &mut request.column, words, written);
    v.option("filter", &mut request.filter, words, written);
    v.option(
        "values",
        &mut request.values,
        |cx, value| settled(cx, value).then(|| choice(cx, value, &VALUES))?,
        |values| if *values == RecordedValues::Sizes { "sizes".into() } else { "amounts".into() },
    );
    v.option(
        "messagesize",
        &mut request.message_bytes,
        |cx, value| settled(cx, value).then(|| number(cx, value, Dimension::Size))?,
        |bytes| write::variable(&Variable::Constant(*bytes), Dimension::Size),
    );
}

fn factor(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let scale = number(cx, value, Dimension::Plain)?;
    let (low, high) = SCALES;
    if (low..=high).contains(&scale) {
        return Some(scale);
    }
    let error = Diagnostic::error(value.location, "the factor of time is out of range");
    cx.refuse(error.label(format!("expected {low:e} to {high:e}; 10 is ten times as fast")))
}

fn load(cx: &mut Context<'_>, value: &Value, request: &RecordingRequest) -> Option<Recording> {
    match (cx.recordings)(request) {
        Ok(recording) => Some(recording),
        Err(cause) => {
            let message = format!("cannot replay `{}`: {cause}", shorten(&request.path));
            cx.refuse(Diagnostic::error(value.location, message).label("expected recorded traffic"))
        }
    }
}
