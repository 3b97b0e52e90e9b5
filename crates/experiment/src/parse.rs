//! Tokens → tree, by recursive descent that recovers at `;` and `}` and reports several errors at once.
//!
//! It ends on every input: each loop consumes a token or leaves, and blocks and lists nest at most [`DEEPEST`].

use crate::diagnostic::{Diagnostic, Diagnostics, list};
use crate::plan::SourceRange;
use crate::token::{Kind, Token, unescape};
use crate::tree::{Declaration, Part, PartKind, Script, Setting, Statement, Value, Word};

/// How deep blocks and lists may nest.
pub(crate) const DEEPEST: usize = 64;

/// What can begin a statement.
const STATEMENTS: &[&str] = &[
    "connection",
    "serial",
    "parallel",
    "cluster",
    "repeat",
    "network",
    "test",
    "measure",
    "at",
    "expect",
    "experiment",
];
/// What can begin a declaration of a network.
const DECLARATIONS: &[&str] = &["host", "switch", "hub", "ring", "converter", "link"];

/// An error was reported; the caller recovers.
struct Failed;

type Parsed<T> = Result<T, Failed>;

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    gave_up: bool,
    diagnostics: &'a mut Diagnostics,
    experiments: Vec<SourceRange>,
    name: Option<Word>,
}

/// Reads a whole text.
pub(crate) fn script(text: &str, tokens: &[Token], diagnostics: &mut Diagnostics) -> Script {
    let mut parser = Parser::new(text, tokens, diagnostics);
    let mut statements = Vec::new();
    while parser.peek().kind != Kind::End {
        if parser.is_sign('}') {
            let location = parser.next().location;
            parser
                .report(Diagnostic::error(location, "this `}` closes nothing").label("expected a statement"));
            continue;
        }
        parser.statements(&mut statements);
    }
    Script { name: parser.name, statements }
}

/// Reads one value that is the whole text, as on the command line.
pub(crate) fn value(text: &str, tokens: &[Token], diagnostics: &mut Diagnostics) -> Option<Value> {
    let mut parser = Parser::new(text, tokens, diagnostics);
    let value = parser.value().ok()?;
    if parser.peek().kind != Kind::End {
        parser.expected("the end of the value");
        return None;
    }
    Some(value)
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, tokens: &'a [Token], diagnostics: &'a mut Diagnostics) -> Self {
        Parser {
            text,
            tokens,
            at: 0,
            depth: 0,
            gave_up: false,
            diagnostics,
            experiments: Vec::new(),
            name: None,
        }
    }

    // --- tokens

    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token {
        // The last token is `End`, and one step past it is still `End`.
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn text_of(&self, token: Token) -> &'a str {
        &self.text[token.location.start..token.location.end]
    }

    fn is_sign(&self, sign: char) -> bool {
        self.peek().kind == Kind::Sign(sign)
    }

    fn is_assignment(&self, ahead: usize) -> bool {
        let token = self.peek_at(ahead);
        token.kind == Kind::Relation && self.text_of(token) == "="
    }

    fn take_sign(&mut self, sign: char) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// How a token reads in a message.
    fn describe(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "the end of the file".into(),
            _ => format!("`{}`", self.text_of(token).chars().take(40).collect::<String>()),
        }
    }

    fn expected(&mut self, what: &str) -> Failed {
        let token = self.peek();
        let message = format!("expected {what}, found {}", self.describe(token));
        self.report(Diagnostic::error(token.location, message).label(format!("expected {what}")));
        Failed
    }

    fn expect_sign(&mut self, sign: char, what: &str) -> Parsed<SourceRange> {
        if self.is_sign(sign) { Ok(self.next().location) } else { Err(self.expected(what)) }
    }

    /// A name: a word, a string or an address.
    fn name(&mut self, what: &str) -> Parsed<Word> {
        let token = self.peek();
        let text = match token.kind {
            Kind::Word => self.text_of(token).to_owned(),
            Kind::Text => unescape(self.text_of(token)),
            Kind::Address => unbracketed(self.text_of(token)).to_owned(),
            _ => return Err(self.expected(what)),
        };
        self.next();
        Ok(Word { text, location: token.location })
    }

    /// Steps past the next `;`, or up to the `}` that ends the block. Braces on the way are skipped in pairs.
    fn recover(&mut self) {
        let mut open = 0usize;
        loop {
            match self.peek().kind {
                Kind::End => return,
                Kind::Sign('}') if open == 0 => return,
                Kind::Sign('}') => {
                    open -= 1;
                    if open == 0 {
                        self.next();
                        return;
                    }
                }
                Kind::Sign('{') => open += 1,
                Kind::Sign(';') if open == 0 => {
                    self.next();
                    return;
                }
                _ => {}
            }
            self.next();
        }
    }

    /// Runs `inner` one level deeper, or reports that it is too deep and gives up on the text.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEEPEST {
            let location = self.peek().location;
            let error = Diagnostic::error(location, format!("nested more than {DEEPEST} deep"));
            self.report(error.label("the rest of the file was not read"));
            self.at = self.tokens.len() - 1;
            self.gave_up = true;
            return Err(Failed);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    // --- statements

    /// `{` … `}` around what `inner` reads again and again.
    fn braced(&mut self, owner: SourceRange, mut inner: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<()> {
        let open = self.expect_sign('{', "`{`")?;
        self.deeper(|p| {
            loop {
                match p.peek().kind {
                    Kind::Sign('}') => {
                        p.next();
                        return Ok(());
                    }
                    Kind::End => {
                        // Past the depth bound everything is unclosed, and that was said already.
                        if !p.gave_up {
                            let error = Diagnostic::error(open, "this `{` is never closed")
                                .label("expected a `}` for this")
                                .with(owner, "the block that it opens");
                            p.report(error);
                        }
                        // What was read still says something about the names in it.
                        return Ok(());
                    }
                    Kind::Sign(';') => {
                        p.next();
                    }
                    _ => {
                        if inner(p).is_err() {
                            p.recover();
                        }
                    }
                }
            }
        })
    }

    fn block(&mut self, owner: SourceRange) -> Parsed<Vec<Statement>> {
        let mut statements = Vec::new();
        self.braced(owner, |p| {
            p.statements(&mut statements);
            Ok(())
        })?;
        Ok(statements)
    }

    /// One statement, or the statements of an `experiment`, appended to `into`.
    fn statements(&mut self, into: &mut Vec<Statement>) {
        if self.take_sign(';') {
            return;
        }
        if self.statement(into).is_err() {
            self.recover();
        }
    }

    fn statement(&mut self, into: &mut Vec<Statement>) -> Parsed<()> {
        let token = self.peek();
        if token.kind != Kind::Word {
            return Err(self.expected("a statement"));
        }
        let location = token.location;
        let keyword = self.text_of(token);
        if !STATEMENTS.contains(&keyword) {
            return Err(self.unknown_statement(token));
        }
        self.next();
        into.push(match keyword {
            "experiment" => return self.experiment(location, into),
            "serial" => Statement::Serial(self.block(location)?, location),
            "parallel" | "cluster" => Statement::Parallel(self.block(location)?, location),
            "repeat" => self.repeat(location)?,
            "network" => return self.network(location, into),
            "at" => self.change(location)?,
            "expect" => self.expectation(location)?,
            "measure" => self.measure(Word { text: keyword.to_owned(), location })?,
            "connection" => {
                let name = if self.is_sign('{') { None } else { Some(self.name("a name or `{`")?) };
                Statement::Connection { name, settings: self.settings(location, false)?, location }
            }
            _ => {
                let host = if self.is_sign('{') { None } else { Some(self.plain_value("a host or `{`")?) };
                Statement::Test { host, settings: self.settings(location, true)?, location }
            }
        });
        Ok(())
    }

    fn unknown_statement(&mut self, token: Token) -> Failed {
        let written = self.text_of(token);
        let setting = self.is_assignment(1);
        let error = Diagnostic::error(token.location, format!("`{}` is no statement", shorten(written)));
        self.report(if setting {
            error.label("a setting stands inside `connection { … }` or `test HOST { … }`")
        } else {
            error.label("expected a statement").suggest(written, STATEMENTS.iter().copied())
        });
        Failed
    }

    fn experiment(&mut self, location: SourceRange, into: &mut Vec<Statement>) -> Parsed<()> {
        if let Some(first) = self.experiments.first() {
            let error =
                Diagnostic::error(location, "a second `experiment`").label("one file holds one experiment");
            let error = error.with(*first, "the first is here");
            self.report(error);
        }
        self.experiments.push(location);
        if !self.is_sign('{') {
            let name = self.name("the experiment's name or `{`")?;
            self.name.get_or_insert(name);
        }
        into.extend(self.block(location)?);
        Ok(())
    }

    fn repeat(&mut self, location: SourceRange) -> Parsed<Statement> {
        if self.text_of(self.peek()) == "every" {
            return Err(self.expected("how many times"));
        }
        let count = self.plain_value("how many times")?;
        let token = self.peek();
        let every = match (token.kind, self.text_of(token)) {
            (Kind::Word, "every") => {
                self.next();
                Some(self.value()?)
            }
            (Kind::Sign('{'), _) => None,
            _ => return Err(self.expected("`every` or `{`")),
        };
        Ok(Statement::Repeat { count, every, body: self.block(location)?, location })
    }

    fn measure(&mut self, keyword: Word) -> Parsed<Statement> {
        let declaration = self.names(keyword)?;
        self.terminator();
        Ok(Statement::Measure(declaration))
    }

    fn expectation(&mut self, location: SourceRange) -> Parsed<Statement> {
        let path = self.name("what is expected, such as `A-B.received_bps`")?;
        let token = self.peek();
        if token.kind != Kind::Relation {
            return Err(self.expected("`<`, `<=`, `>`, `>=`, `=` or `!=`"));
        }
        let relation = Word { text: self.text_of(token).to_owned(), location: token.location };
        self.next();
        let value = self.value()?;
        let location = SourceRange { start: location.start, end: value.location.end };
        self.terminator();
        Ok(Statement::Expect { path, relation, value, location })
    }

    /// Parses the `;` after a setting. If it is missing, parsing continues where the next setting starts on a new line.
    fn terminator(&mut self) {
        self.setting_terminator(false);
    }

    fn setting_terminator(&mut self, is_lenient: bool) {
        if self.take_sign(';') {
            return;
        }
        let previous = self.tokens[self.at.saturating_sub(1)].location.end;
        let location = SourceRange { start: previous.saturating_sub(1), end: previous };
        let found = self.describe(self.peek());
        let next = self.peek();
        let message = format!("expected `;`, found {found}");
        let is_setting = is_lenient && next.kind == Kind::Word && self.is_assignment(1);
        let diagnostic = match is_setting {
            true => Diagnostic::warning(location, message),
            false => Diagnostic::error(location, message),
        };
        self.report(diagnostic.label("expected `;` after this"));
        let begins_line = next.kind == Kind::Word
            && (self.is_assignment(1)
                || STATEMENTS.contains(&self.text_of(next))
                || DECLARATIONS.contains(&self.text_of(next)));
        if !begins_line && !self.is_sign('}') {
            self.recover();
        }
    }

    // --- settings

    /// `{ KEY = VALUE; … }`, where a list after a stray `;` still belongs to the line above (figure 8).
    /// With `is_lenient`, a missing `;` before the next setting is only a warning: examples of NetSpec 3 lack it.
    fn settings(&mut self, owner: SourceRange, is_lenient: bool) -> Parsed<Vec<Setting>> {
        let mut settings: Vec<Setting> = Vec::new();
        self.braced(owner, |p| {
            if p.is_sign('(') {
                return p.stray_arguments(settings.last_mut());
            }
            let setting = p.setting()?;
            let whole = !setting.values.is_empty();
            settings.push(setting);
            if !whole {
                return Err(Failed);
            }
            p.setting_terminator(is_lenient);
            Ok(())
        })?;
        Ok(settings)
    }

    fn setting(&mut self) -> Parsed<Setting> {
        let token = self.peek();
        if token.kind != Kind::Word {
            return Err(self.expected("a setting"));
        }
        if !self.is_assignment(1) {
            self.next();
            let error = self.expected(&format!("`=` after `{}`", shorten(self.text_of(token))));
            return Err(error);
        }
        self.next();
        self.next();
        let key = Word { text: self.text_of(token).to_owned(), location: token.location };
        let values = self.values().unwrap_or_default();
        Ok(Setting { key: Some(key), values })
    }

    /// `VALUE, VALUE`
    fn values(&mut self) -> Parsed<Vec<Value>> {
        let mut values = vec![self.value()?];
        while self.take_sign(',') {
            values.push(self.value()?);
        }
        Ok(values)
    }

    fn stray_arguments(&mut self, above: Option<&mut Setting>) -> Parsed<()> {
        // `braced` steps over `;` itself, so the token before `(` is the stray one.
        let stray = self.tokens[self.at.saturating_sub(1)];
        let part = above.and_then(|s| s.values.last_mut()).and_then(|v| v.parts.last_mut());
        let Some(part) = part.filter(|_| stray.kind == Kind::Sign(';')) else {
            return Err(self.expected("a setting"));
        };
        let warning = Diagnostic::warning(stray.location, "stray `;` before a list of options")
            .label("the list behind it belongs to the line above")
            .with(part.location, "its options are read as this one's");
        self.report(warning);
        let mut more = self.arguments()?;
        part.arguments.get_or_insert_default().append(&mut more);
        self.terminator();
        Ok(())
    }

    /// `(` … `)`.
    fn arguments(&mut self) -> Parsed<Vec<Setting>> {
        let open = self.expect_sign('(', "`(`")?;
        self.deeper(|p| {
            let mut arguments = Vec::new();
            loop {
                if p.take_sign(')') {
                    return Ok(arguments);
                }
                arguments.push(p.argument()?);
                if !p.is_sign(')') && !p.take_sign(',') {
                    let found = p.describe(p.peek());
                    let error =
                        Diagnostic::error(p.peek().location, format!("expected `,` or `)`, found {found}"))
                            .label("expected `,` or `)`")
                            .with(open, "the list opens here");
                    p.report(error);
                    return Err(Failed);
                }
            }
        })
    }

    fn argument(&mut self) -> Parsed<Setting> {
        let token = self.peek();
        let key = (token.kind == Kind::Word && self.is_assignment(1))
            .then(|| Word { text: self.text_of(token).to_owned(), location: token.location });
        if key.is_some() {
            self.next();
            self.next();
        }
        Ok(Setting { key, values: vec![self.value()?] })
    }

    // --- values

    fn value(&mut self) -> Parsed<Value> {
        self.parts(true, "a value")
    }

    /// A value in whose words no unit and behind which no list can follow: a host, a count.
    fn plain_value(&mut self, what: &str) -> Parsed<Value> {
        self.parts(false, what)
    }

    fn parts(&mut self, full: bool, what: &str) -> Parsed<Value> {
        let mut parts = vec![self.part(full, what)?];
        while self.take_sign(':') {
            parts.push(self.part(full, what)?);
        }
        let location = SourceRange {
            start: parts[0].location.start,
            end: self.tokens[self.at.saturating_sub(1)].location.end,
        };
        Ok(Value { parts, location })
    }

    fn part(&mut self, full: bool, what: &str) -> Parsed<Part> {
        let token = self.peek();
        let kind = match token.kind {
            Kind::Word => PartKind::Word,
            Kind::Text => PartKind::Text,
            _ => PartKind::Address,
        };
        let Word { text, mut location } = self.name(what)?;
        let unit = if full && kind == PartKind::Word { self.unit_after(&text) } else { None };
        if let Some(unit) = &unit {
            location.end = unit.location.end;
        }
        let arguments = if full && self.is_sign('(') { Some(self.arguments()?) } else { None };
        Ok(Part { kind, text, unit, location, arguments })
    }

    /// Parses a unit that is a separate word after a number.
    fn unit_after(&mut self, number: &str) -> Option<Word> {
        let next = self.peek();
        let is_number = number.starts_with(['+', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
            && number.parse::<f64>().is_ok();
        // `duration = 5 delay = 0;` forgot its `;`: the word before `=` begins a setting.
        // In `at 0 set link …` the word behind the number is no unit.
        if !is_number || next.kind != Kind::Word || self.is_assignment(1) || self.text_of(next) == "set" {
            return None;
        }
        self.next();
        Some(Word { text: self.text_of(next).to_owned(), location: next.location })
    }

    // --- network

    /// The declarations of a network, and the changes of links in it, which are statements of their own.
    fn network(&mut self, location: SourceRange, into: &mut Vec<Statement>) -> Parsed<()> {
        let mut declarations = Vec::new();
        self.braced(location, |p| {
            let token = p.peek();
            if token.kind == Kind::Word && p.text_of(token) == "at" {
                p.next();
                into.push(p.change(token.location)?);
                return Ok(());
            }
            let declaration = p.declaration()?;
            declarations.push(declaration);
            p.terminator();
            Ok(())
        })?;
        into.push(Statement::Network(declarations, location));
        Ok(())
    }

    /// `TIME set link A - B (…);`, after `at`
    fn change(&mut self, location: SourceRange) -> Parsed<Statement> {
        let at = self.value()?;
        let keyword = |p: &mut Self, wanted: &str| {
            let token = p.peek();
            if token.kind != Kind::Word || p.text_of(token) != wanted {
                return Err(p.expected(&format!("`{wanted}`, as in `at 10 s set link a - b (down)`")));
            }
            p.next();
            Ok(Word { text: wanted.to_owned(), location: token.location })
        };
        keyword(self, "set")?;
        let link = keyword(self, "link")?;
        let link = self.names(link)?;
        let end = self.tokens[self.at.saturating_sub(1)].location.end;
        self.terminator();
        Ok(Statement::Change { at, link, location: SourceRange { start: location.start, end } })
    }

    fn declaration(&mut self) -> Parsed<Declaration> {
        let token = self.peek();
        let written = self.text_of(token);
        if token.kind != Kind::Word {
            return Err(self.expected(&format!("one of {}", list(DECLARATIONS))));
        }
        if !DECLARATIONS.contains(&written) {
            let error = Diagnostic::error(token.location, format!("`{}` declares nothing", shorten(written)));
            self.report(error.label("expected a declaration").suggest(written, DECLARATIONS.iter().copied()));
            return Err(Failed);
        }
        self.next();
        self.names(Word { text: written.to_owned(), location: token.location })
    }

    /// `NAME, NAME (…)`, of a link `NAME - NAME (…)`
    fn names(&mut self, keyword: Word) -> Parsed<Declaration> {
        let mut names = vec![self.name("a name")?];
        if keyword.text == "link" {
            let dash = Diagnostic::error(self.peek().location, "expected `-` between the ends of a link")
                .label("expected `-`")
                .help("the dash of a link stands between spaces: `link a - b`");
            if !self.take_sign('-') {
                self.report(dash);
                return Err(Failed);
            }
            names.push(self.name("the other end of the link")?);
        } else {
            while self.take_sign(',') {
                names.push(self.name("a name")?);
            }
        }
        let arguments = if self.is_sign('(') { self.arguments()? } else { Vec::new() };
        Ok(Declaration { keyword, names, arguments })
    }
}

fn unbracketed(address: &str) -> &str {
    address.strip_prefix('[').map_or(address, |a| a.strip_suffix(']').unwrap_or(a))
}

/// A word as it goes into a message: not too long.
pub(crate) fn shorten(word: &str) -> String {
    if word.chars().count() <= 40 { word.to_owned() } else { word.chars().take(39).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::tokens;

    fn read(text: &str) -> (Script, Vec<Diagnostic>) {
        let mut diagnostics = Diagnostics::default();
        let tokens = tokens(text, &mut diagnostics);
        let script = script(text, &tokens, &mut diagnostics);
        (script, diagnostics.into_vec())
    }

    #[test]
    fn a_parse_error_costs_one_line_only() {
        let (script, diagnostics) =
            read("connection a { x y z; duration = 5 s; = 3; delay = 1; } connection b { }");
        assert_eq!(diagnostics.len(), 2);
        let Statement::Connection { settings, .. } = &script.statements[0] else { panic!("{script:?}") };
        let keys: Vec<_> = settings.iter().filter_map(|s| s.key.as_ref()).map(|k| &k.text).collect();
        assert_eq!(keys, ["duration", "delay"]);
        assert_eq!(script.statements.len(), 2);
    }

    #[test]
    fn depth_is_bounded() {
        for text in
            ["serial{".repeat(100_000), "connection{a=".to_owned() + &"b(".repeat(100_000), "(".repeat(9)]
        {
            let (_, diagnostics) = read(&text);
            assert!((1..=110).contains(&diagnostics.len()), "{}", diagnostics.len());
        }
    }

    #[test]
    fn a_stray_semicolon_keeps_its_options() {
        let (script, diagnostics) = read("connection { xmt = 1.2.3.4; (xmtbuf = 51200); }");
        assert_eq!(diagnostics.len(), 1);
        assert_eq!(diagnostics[0].location, SourceRange { start: 26, end: 27 });
        let Statement::Connection { settings, .. } = &script.statements[0] else { panic!("{script:?}") };
        assert!(settings[0].values[0].parts[0].arguments.is_some());
    }
}
