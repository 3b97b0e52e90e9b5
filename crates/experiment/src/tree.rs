//! The syntax tree, one for both dialects: what was written and where, before any name or unit is resolved.

use crate::plan::SourceRange;

/// A word and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) location: SourceRange,
}

/// What stands on the right of `=`: parts joined by `:`, as in `18432:5` or `host:5000`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) parts: Vec<Part>,
    pub(crate) location: SourceRange,
}

/// A word, a number with its unit, a string or an address, perhaps with a parenthesised list behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) kind: PartKind,
    /// The word, number, string (unescaped) or address (without brackets).
    pub(crate) text: String,
    /// A unit that is a separate word: the `ms` of `10 ms`.
    pub(crate) unit: Option<Word>,
    /// Without the arguments.
    pub(crate) location: SourceRange,
    pub(crate) arguments: Option<Vec<Setting>>,
}

/// How a part was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Word,
    Text,
    Address,
}

/// `KEY = VALUE, VALUE` or, in parentheses, a VALUE alone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) key: Option<Word>,
    /// Several only for receivers; empty if the value is invalid, so that it is not reported as missing.
    pub(crate) values: Vec<Value>,
}

/// `host a, b (…);`
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Declaration {
    pub(crate) keyword: Word,
    pub(crate) names: Vec<Word>,
    pub(crate) arguments: Vec<Setting>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Statement {
    /// `serial { … }`
    Serial(Vec<Statement>, SourceRange),
    /// `parallel { … }`, `cluster { … }`
    Parallel(Vec<Statement>, SourceRange),
    /// `repeat 3 every 30 min { … }`
    Repeat { count: Value, every: Option<Value>, body: Vec<Statement>, location: SourceRange },
    /// `connection NAME { … }`
    Connection { name: Option<Word>, settings: Vec<Setting>, location: SourceRange },
    /// `test HOST { … }` of the 1999 dialect
    Test { host: Option<Value>, settings: Vec<Setting>, location: SourceRange },
    /// `network { … }`
    Network(Vec<Declaration>, SourceRange),
    /// `measure HOST, HOST (…);`
    Measure(Declaration),
    /// `at TIME set link A - B (…);`
    Change { at: Value, link: Declaration, location: SourceRange },
    /// `expect SUBJECT.FIGURE > VALUE;`
    Expect { path: Word, relation: Word, value: Value, location: SourceRange },
}

/// A whole text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Script {
    pub(crate) name: Option<Word>,
    pub(crate) statements: Vec<Statement>,
}

impl Setting {
    /// Where the whole setting stands.
    pub(crate) fn location(&self) -> SourceRange {
        let first = self
            .key
            .as_ref()
            .map(|k| k.location)
            .or(self.values.first().map(|v| v.location))
            .unwrap_or_default();
        SourceRange { start: first.start, end: self.values.last().map_or(first.end, |v| v.location.end) }
    }
}

impl Value {
    /// The value as one plain word, string or address; none if it is anything more.
    pub(crate) fn as_name(&self) -> Option<&str> {
        match &self.parts[..] {
            [Part { unit: None, arguments: None, text, .. }] => Some(text),
            _ => None,
        }
    }
}
