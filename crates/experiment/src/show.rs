//! Diagnostics as text: the line of the file, the words under it, what was expected.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Severity};
use crate::plan::SourceRange;
use crate::{Source, diagnostic};

/// Two places further apart than this many bytes are shown as two snippets.
const NEAR: usize = 600;
/// Of a longer line only this many bytes on either side of the words are shown.
const LONGEST_LINE: usize = 400;

/// Renders `diagnostics` for a terminal, one after another with an empty line between; coloured or plain.
pub fn render(source: &Source<'_>, diagnostics: &[Diagnostic], colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.decor_style(DecorStyle::Ascii);
    let one = |d: &Diagnostic| renderer.render(&[group(source, d)]) + "\n";
    diagnostics.iter().map(one).collect::<Vec<_>>().join("\n")
}

fn group<'a>(source: &Source<'a>, diagnostic: &'a diagnostic::Diagnostic) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = level.primary_title(diagnostic.message.as_str()).elements(snippets(source, diagnostic));
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    group
}

/// One snippet around the places near the first, and one for each that is far from it.
fn snippets<'a>(source: &Source<'a>, diagnostic: &'a Diagnostic) -> Vec<Snippet<'a, Annotation<'a>>> {
    let primary = (diagnostic.location, diagnostic.label.as_str(), AnnotationKind::Primary);
    let others = diagnostic
        .secondary
        .iter()
        .map(|(location, label)| (*location, label.as_str(), AnnotationKind::Context));
    let (near, far): (Vec<_>, Vec<_>) =
        others.partition(|(location, ..)| location.start.abs_diff(diagnostic.location.start) <= NEAR);
    let first: Vec<_> = [primary].into_iter().chain(near).collect();
    [snippet(source, &first)].into_iter().chain(far.iter().map(|mark| snippet(source, &[*mark]))).collect()
}

/// The lines of the text that hold the places. Only these are handed on, so that a large file costs no more.
fn snippet<'a>(
    source: &Source<'a>,
    marks: &[(SourceRange, &'a str, AnnotationKind)],
) -> Snippet<'a, Annotation<'a>> {
    let text = source.text;
    let start = marks.iter().map(|(location, ..)| location.start).min().unwrap_or(0).min(text.len());
    let end = marks.iter().map(|(location, ..)| location.end).max().unwrap_or(0).min(text.len());
    let line_start = text[..boundary(text, start)].rfind('\n').map_or(0, |at| at + 1);
    let line_end = text[boundary(text, end)..].find('\n').map_or(text.len(), |at| boundary(text, end) + at);
    let from = boundary(text, line_start.max(start.saturating_sub(LONGEST_LINE)));
    let to = boundary(text, line_end.min(end + LONGEST_LINE));
    let line = text[..from].bytes().filter(|byte| *byte == b'\n').count() + 1;
    let mut snippet = Snippet::source(&text[from..to]).line_start(line).path(source.name);
    for (location, label, kind) in marks {
        let range =
            boundary(text, location.start.min(end)) - from..boundary(text, location.end.min(end)) - from;
        let annotation = kind.span(range);
        snippet = snippet.annotation(if label.is_empty() { annotation } else { annotation.label(*label) });
    }
    snippet
}

/// The last boundary of a character at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
