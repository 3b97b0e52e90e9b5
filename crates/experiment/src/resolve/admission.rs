//! What a connection declares about its traffic to lines that admit connections: `peak`, `mean`, `burst`.

use trunkline_units::{Rate, Span};

use super::Context;
use super::options::{Given, assign, rate, time};
use crate::diagnostic::Diagnostic;
use crate::plan::{Admission, Declared, SourceRange};
use crate::tree::Value;

/// Words for how a link admits connections.
pub(crate) const METHODS: &[(&str, Admission)] = &[
    ("none", Admission::None),
    ("peak", Admission::Peak),
    ("equivalent", Admission::Equivalent),
    ("measured", Admission::Measured),
];

/// The settings as they were given.
#[derive(Default)]
pub(crate) struct Settings {
    peak: Option<Rate>,
    mean: Option<Rate>,
    burst: Option<Span>,
}

impl Settings {
    /// Reads one of the settings.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, name: &str, value: &Value) {
        match name {
            "peak" => assign(&mut self.peak, rate(cx, value).map(Some)),
            "mean" => assign(&mut self.mean, rate(cx, value).map(Some)),
            _ => assign(&mut self.burst, time(cx, value).map(Some)),
        }
    }

    /// Returns the declaration, or none without settings. The mean is the peak unless it is given.
    pub(crate) fn declared(
        self,
        cx: &mut Context<'_>,
        given: &Given,
        location: SourceRange,
    ) -> Option<Declared> {
        let at = |name: &str| given.get(name).copied().unwrap_or(location);
        let Some(peak) = self.peak else {
            if let Some(name) = ["mean", "burst"].into_iter().find(|name| given.contains_key(name)) {
                let error = Diagnostic::error(at(name), format!("`{name}` needs the peak rate"));
                cx.report(error.label("expected `peak = …` in this connection"));
            }
            return None;
        };
        let mean = self.mean.unwrap_or(peak);
        if mean > peak {
            let error = Diagnostic::error(at("mean"), format!("the mean exceeds the peak rate of {peak}"));
            cx.report(error.label("expected at most the peak rate"));
        }
        if mean < peak && self.burst.is_none() {
            let error =
                Diagnostic::error(at("mean"), "a mean below the peak rate needs the length of a burst");
            cx.report(error.label("expected `burst = …`, the mean time at the peak rate"));
        }
        Some(Declared { peak, mean, burst: self.burst.unwrap_or_default() })
    }
}
