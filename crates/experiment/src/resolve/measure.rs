//! `measure HOST, … (every = 100 ms, interface, tcp, kernel);`: counters of a host's kernel over time.

use trunkline_units::Span;

use super::Context;
use super::options::{self, Options, assign};
use crate::diagnostic::{Diagnostic, list};
use crate::parse::shorten;
use crate::plan::{Measure, Plan};
use crate::tree::{Declaration, Setting, Statement};

/// Interval between readings by default.
const EVERY: Span = Span::from_ms(100);
/// A shorter interval would disturb what is measured.
const SHORTEST: Span = Span::from_ms(10);
/// What can be measured.
const SUBJECTS: [&str; 3] = ["interface", "tcp", "kernel"];

/// Reads the statements of all blocks.
pub(super) fn measures(cx: &mut Context<'_>, statements: &[Statement]) -> Vec<Measure> {
    let mut measures = Vec::new();
    for statement in statements {
        match statement {
            Statement::Serial(body, _) | Statement::Parallel(body, _) | Statement::Repeat { body, .. } => {
                measures.extend(self::measures(cx, body));
            }
            Statement::Measure(declaration) => measures.extend(read(cx, declaration)),
            _ => {}
        }
    }
    measures
}

/// Reads a statement: a measure for each of its hosts.
fn read(cx: &mut Context<'_>, declaration: &Declaration) -> Vec<Measure> {
    let (subjects, named): (Vec<Setting>, Vec<Setting>) =
        declaration.arguments.iter().cloned().partition(|argument| argument.key.is_none());
    let (mut every, mut duration) = (EVERY, None);
    let names = ["every", "duration"];
    Options::of("`measure`", &names).apply(cx, &named, |cx, name, setting| match name {
        "every" => assign(&mut every, options::time(cx, &setting.values[0])),
        _ => assign(&mut duration, options::time(cx, &setting.values[0]).map(Some)),
    });
    if every < SHORTEST {
        let error = Diagnostic::error(declaration.keyword.location, "the interval is too short");
        cx.report(error.label(format!("expected `every` of at least {SHORTEST}")));
    }
    let mut wanted = [false; SUBJECTS.len()];
    for subject in &subjects {
        let text = subject.values.first().and_then(|value| value.as_name()).unwrap_or_default();
        match SUBJECTS.iter().position(|known| *known == text) {
            Some(at) => wanted[at] = true,
            None => {
                let error =
                    Diagnostic::error(subject.location(), format!("`{}` is not measured", shorten(text)));
                cx.report(error.label(format!("expected one of {}", list(&SUBJECTS))));
            }
        }
    }
    if subjects.is_empty() {
        wanted = [true; SUBJECTS.len()];
    }
    let [interface, tcp, kernel] = wanted;
    let measure = |host: &crate::tree::Word| {
        let (host, location) = (host.text.clone(), host.location);
        Measure { host, every, duration, interface, tcp, kernel, location }
    };
    declaration.names.iter().map(measure).collect()
}

/// Reports hosts that are measured twice, and measures without an end.
pub(super) fn check(cx: &mut Context<'_>, plan: &Plan) {
    for (at, measure) in plan.measures.iter().enumerate() {
        if let Some(first) = plan.measures[..at].iter().find(|first| first.host == measure.host) {
            let error = Diagnostic::error(measure.location, format!("`{}` is measured twice", measure.host));
            cx.report(error.label("and again here").with(first.location, "it is first measured here"));
        }
        if plan.connections.is_empty() && measure.duration.is_none() {
            let error =
                Diagnostic::error(measure.location, "without a connection this measurement has no end");
            cx.report(error.label("expected `duration = …` in the list"));
        }
    }
}
