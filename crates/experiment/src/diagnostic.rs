//! Errors and warnings about a text, as plain data: the problem, its location, and suggestions.

use crate::plan::SourceRange;

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// There is no plan.
    Error,
    /// There is a plan, but perhaps not the one that was meant.
    Warning,
}

/// A problem of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The problem, as a sentence.
    pub message: String,
    /// Location of the words it is about.
    pub location: SourceRange,
    /// What was expected there; may be empty.
    pub label: String,
    /// Locations of other words that matter, such as the first of two, with descriptions.
    pub secondary: Vec<(SourceRange, String)>,
    /// A suggestion, such as "did you mean `duration`?".
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates an error at `location`.
    pub fn error(location: SourceRange, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, location, message.into())
    }

    /// Creates a warning at `location`.
    pub fn warning(location: SourceRange, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, location, message.into())
    }

    fn new(severity: Severity, location: SourceRange, message: String) -> Self {
        Diagnostic { severity, message, location, label: String::new(), secondary: Vec::new(), help: None }
    }

    /// Sets what was expected at the location.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a second location with a description.
    #[must_use]
    pub fn with(mut self, location: SourceRange, label: impl Into<String>) -> Self {
        self.secondary.push((location, label.into()));
        self
    }

    /// Sets the suggestion.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the diagnostic in one line, for messages without the text.
    pub fn line(&self) -> String {
        let known =
            self.label.is_empty() || self.label.starts_with("unknown ") || self.message.contains(&self.label);
        let label = (!known).then_some(&self.label);
        let parts: Vec<&str> = [Some(&self.message), label, self.help.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        parts.join("; ")
    }

    /// Suggests the name nearest to `written`; if none is near, lists the names.
    #[must_use]
    pub fn suggest<'n>(self, written: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        match nearest(written, names.iter().copied()) {
            Some(name) => self.help(format!("did you mean `{name}`?")),
            None if names.is_empty() || names.len() > LISTED => self,
            None if names.len() == 1 => self.help(format!("there is only `{}`", names[0])),
            None => self.help(format!("expected one of {}", list(&names))),
        }
    }
}

/// Of more names than this, a text of thousands of hosts, the others are not compared.
const COMPARED: usize = 1000;
/// More names than this are not listed in a help line.
const LISTED: usize = 24;

/// `a`, `b`, `c`
pub(crate) fn list(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}

/// The name that `written` most likely meant, if one is near enough.
pub(crate) fn nearest<'n>(written: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // A word this long is not a typing error, and the cost grows with its length squared.
    if written.len() > 80 {
        return None;
    }
    let wanted = written.to_lowercase();
    names
        .take(COMPARED)
        .filter(|name| *name != written && name.len() <= 80)
        .map(|name| {
            let near = name.to_lowercase();
            let distance = strsim::damerau_levenshtein(&wanted, &near);
            (distance, distance <= 1 + wanted.len().min(near.len()) / 4, name)
        })
        .filter(|(_, close, name)| *close || (wanted.len() >= 3 && name.to_lowercase().starts_with(&wanted)))
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., name)| name)
}

/// Past this many, further diagnostics of a text are only counted.
const MOST: usize = 100;

/// The diagnostics of one text, in the order they were found.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    kept: Vec<Diagnostic>,
    more: usize,
    errors: usize,
}

impl Diagnostics {
    /// Adds one.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        self.errors += usize::from(diagnostic.severity == Severity::Error);
        if self.kept.len() < MOST {
            self.kept.push(diagnostic);
        } else {
            self.more += 1;
        }
    }

    /// Whether further diagnostics are only counted.
    pub(crate) fn flooded(&self) -> bool {
        self.kept.len() == MOST
    }

    /// How many errors were found until now.
    pub(crate) fn errors(&self) -> usize {
        self.errors
    }

    /// Everything found, in the order of the text.
    pub(crate) fn into_vec(mut self) -> Vec<Diagnostic> {
        self.kept.sort_by_key(|d| (d.location.start, d.location.end));
        if self.more > 0 {
            let last = self.kept.last().map(|d| d.location).unwrap_or_default();
            // An error if an error may have been left out: the plan is missing, so a diagnostic must explain it.
            let severity = if self.errors > 0 { Severity::Error } else { Severity::Warning };
            self.kept.push(Diagnostic::new(
                severity,
                last,
                format!("{} more problems are not shown", self.more),
            ));
        }
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["duration", "delay", "protocol", "test", "xmt"];
        let of = |word| nearest(word, names.iter().copied());
        assert_eq!(of("duraton"), Some("duration"));
        assert_eq!(of("Delay"), Some("delay"));
        assert_eq!(of("proto"), Some("protocol"));
        assert_eq!(of("xtm"), Some("xmt"));
        assert_eq!(of("banana"), None);
        assert_eq!(of(&"x".repeat(1000)), None);
    }

    #[test]
    fn a_flood_is_counted() {
        let mut d = Diagnostics::default();
        for i in 0..250 {
            d.push(Diagnostic::error(SourceRange { start: i, end: i }, "no"));
        }
        let all = d.into_vec();
        assert_eq!(all.len(), MOST + 1);
        assert_eq!(all[MOST].message, "150 more problems are not shown");
    }
}
