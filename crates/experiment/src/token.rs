//! Text → tokens: words, strings, addresses and signs, each with its place. Comments end here.

use std::net::Ipv6Addr;

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::plan::SourceRange;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name, keyword, number or number with unit.
    Word,
    /// `"…"`, quotes included in its place.
    Text,
    /// An IPv6 address, with or without its brackets.
    Address,
    /// `{ } ( ) ; , : -` and the like.
    Sign(char),
    /// `= == != < <= > >=`
    Relation,
    /// The end of the text; always the last token.
    End,
}

/// A token and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) location: SourceRange,
}

/// Letters and digits of any script begin a word, so that a stray `é` is one wrong name and not an odd character.
fn begins_word(c: char) -> bool {
    c.is_alphanumeric()
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Whether `text` can stand as a name without quotes.
pub(crate) fn is_word(text: &str) -> bool {
    text.starts_with(begins_word) && text.chars().all(continues_word)
}

/// Cuts `text` into tokens. The result ends with exactly one [`Kind::End`].
pub(crate) fn tokens(text: &str, diagnostics: &mut Diagnostics) -> Vec<Token> {
    let mut lexer = Lexer { text, at: 0, diagnostics };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next();
        tokens.push(token);
        if token.kind == Kind::End {
            return tokens;
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    diagnostics: &'a mut Diagnostics,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Steps over every leading character that `wanted` accepts.
    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.at += rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    }

    fn since(&self, start: usize) -> SourceRange {
        SourceRange { start, end: self.at }
    }

    /// The next token. Every pass of the loop consumes at least one byte, so it ends.
    fn next(&mut self) -> Token {
        loop {
            self.skip_blank();
            let start = self.at;
            let Some(c) = self.peek() else {
                return Token { kind: Kind::End, location: self.since(start) };
            };
            let kind = match c {
                '"' => self.string(),
                '[' => self.bracketed(),
                ':' if self.rest().starts_with("::") && self.bare_address() => Kind::Address,
                c if begins_word(c) => self.word(),
                '+' | '-' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => self.word(),
                '/' if self.rest()[1..].starts_with(|c: char| c.is_ascii_alphabetic()) => self.word(),
                '=' | '<' | '>' | '!' => self.relation(c),
                '{' | '}' | '(' | ')' | ';' | ',' | ':' | '-' => {
                    self.at += 1;
                    Kind::Sign(c)
                }
                _ => {
                    self.unknown();
                    continue;
                }
            };
            return Token { kind, location: self.since(start) };
        }
    }

    /// Steps over white space, comments and a byte-order mark.
    fn skip_blank(&mut self) {
        loop {
            self.skip_while(|c| c.is_whitespace() || c == '\u{feff}');
            let start = self.at;
            if self.rest().starts_with('#') || self.rest().starts_with("//") {
                self.skip_while(|c| c != '\n');
            } else if self.rest().starts_with("/*") {
                match self.rest()[2..].find("*/") {
                    Some(end) => self.at += 2 + end + 2,
                    None => {
                        self.at = self.text.len();
                        let location = SourceRange { start, end: start + 2 };
                        let error = Diagnostic::error(location, "this comment never ends")
                            .label("expected `*/` after this");
                        self.diagnostics.push(error);
                    }
                }
            } else {
                return;
            }
        }
    }

    /// A word, and what may be stuck to it: `+4` after `1e`, `/s` after `Mb`.
    fn word(&mut self) -> Kind {
        if self.bare_address() {
            return Kind::Address;
        }
        let start = self.at;
        if self.rest().starts_with(['+', '-']) {
            self.at += 1;
        }
        self.skip_while(continues_word);
        let exponent =
            self.text[start..self.at].strip_suffix(['e', 'E']).is_some_and(|n| n.parse::<f64>().is_ok());
        if exponent
            && self.rest().starts_with('+')
            && self.rest()[1..].starts_with(|c: char| c.is_ascii_digit())
        {
            self.at += 1;
            self.skip_while(continues_word);
        }
        // A slash joins a unit; before another slash or a star it begins a comment.
        if self.rest().starts_with('/') && self.rest()[1..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            self.at += 1;
            self.skip_while(|c| c.is_ascii_alphabetic());
        }
        Kind::Word
    }

    /// Reads an IPv6 address without brackets. Only one with `::` differs from `SIZE:COUNT`.
    fn bare_address(&mut self) -> bool {
        let rest = self.rest();
        let inside = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        // The longest textual IPv6 address has 45 characters; to look no further keeps a long run linear.
        let end = rest.bytes().take(46).take_while(inside).count();
        let run = &rest[..end];
        if rest[end..].starts_with(continues_word) || !run.contains("::") || run.parse::<Ipv6Addr>().is_err()
        {
            return false;
        }
        self.at += end;
        true
    }

    /// `[ff02::1]`, with a zone if it has one: `[fe80::1%eth0]`.
    fn bracketed(&mut self) -> Kind {
        let start = self.at;
        self.at += 1;
        self.skip_while(|c| continues_word(c) || matches!(c, ':' | '%'));
        let inner = &self.text[start + 1..self.at];
        let address = inner.split_once('%').map_or(inner, |(address, _)| address);
        let valid = address.parse::<Ipv6Addr>().is_ok();
        let closed = self.rest().starts_with(']');
        if closed {
            self.at += 1;
        }
        if !(valid && closed) {
            let error = Diagnostic::error(self.since(start), "this is not an IPv6 address")
                .label("expected an address in brackets, such as `[2001:db8::1]`");
            self.diagnostics.push(error);
        }
        Kind::Address
    }

    /// A string; it ends on its line.
    fn string(&mut self) -> Kind {
        let start = self.at;
        self.at += 1;
        loop {
            self.skip_while(|c| !matches!(c, '"' | '\\' | '\n'));
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Kind::Text;
                }
                Some('\\') => self.escape(),
                _ => {
                    // What follows was hardly meant to be inside.
                    self.at = start + 1;
                    self.skip_while(|c| !matches!(c, '{' | '}' | ';' | ',' | ')' | '\n'));
                    let end = self.text[..self.at].trim_end().len();
                    self.at = end.max(start + 1);
                    let error = Diagnostic::error(self.since(start), "this string never ends")
                        .label("expected a closing `\"` on this line");
                    self.diagnostics.push(error);
                    return Kind::Text;
                }
            }
        }
    }

    fn escape(&mut self) {
        let start = self.at;
        self.at += 1;
        let escaped = self.peek();
        if !matches!(escaped, None | Some('\n')) {
            self.at += escaped.map_or(0, char::len_utf8);
        }
        if !matches!(escaped, Some('"' | '\\')) {
            let error = Diagnostic::error(self.since(start), "unknown escape in a string")
                .label("expected `\\\"` or `\\\\`");
            self.diagnostics.push(error);
        }
    }

    fn relation(&mut self, first: char) -> Kind {
        self.at += 1;
        if self.rest().starts_with('=') {
            self.at += 1;
        } else if first == '!' {
            let location = SourceRange { start: self.at - 1, end: self.at };
            self.diagnostics
                .push(Diagnostic::error(location, "unexpected character `!`").label("expected `!=`"));
        }
        Kind::Relation
    }

    /// One diagnostic for a run of characters that begin nothing.
    fn unknown(&mut self) {
        let start = self.at;
        self.skip_while(|c| !c.is_whitespace() && !continues_word(c) && !"\"[{}();,:=<>!#/+-".contains(c));
        if self.at == start {
            // A sign that begins nothing here, such as a lone `/` or `+`.
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        let location = self.since(start);
        let written: String =
            self.text[start..self.at].chars().take(12).flat_map(char::escape_debug).collect();
        let error = Diagnostic::error(location, format!("unexpected character `{written}`"));
        self.diagnostics.push(match written.as_str() {
            "“" | "”" | "„" | "‘" | "’" | "'" | "`" => {
                error.help("strings stand in straight double quotes: \"…\"")
            }
            "%" => error.help("a share is a number from 0 to 1"),
            _ => error,
        });
    }
}

/// What a string token says: without its quotes, escapes resolved.
pub(crate) fn unescape(written: &str) -> String {
    let inner = written.strip_prefix('"').unwrap_or(written);
    let mut said = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            '\\' => said.extend(chars.next()),
            c => said.push(c),
        }
    }
    said
}

/// A name as it must be written: bare, in brackets or in quotes.
pub(crate) fn written(name: &str) -> String {
    let address = name.split_once('%').map_or(name, |(address, _)| address);
    if is_word(name) {
        name.to_owned()
    } else if address.parse::<Ipv6Addr>().is_ok() && is_zone(name) {
        format!("[{name}]")
    } else {
        quoted(name)
    }
}

/// A string as it must be written.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Whether what follows `%` can stand in brackets.
fn is_zone(name: &str) -> bool {
    name.split_once('%').is_none_or(|(_, zone)| is_word(zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let mut diagnostics = Diagnostics::default();
        let found: Vec<_> =
            tokens(text, &mut diagnostics).iter().map(|t| &text[t.location.start..t.location.end]).collect();
        assert_eq!(found[..found.len() - 1], *expected, "{text}");
        assert_eq!(found.last(), Some(&""));
        assert_eq!(diagnostics.into_vec(), [], "{text}");
    }

    #[test]
    fn words_end_where_the_language_reference_defines() {
        check("a-b a - b", &["a-b", "a", "-", "b"]);
        check("10Mb/s 10 Mb/s 1000 /s", &["10Mb/s", "10", "Mb/s", "1000", "/s"]);
        check("1e-4 1e+4 -5 +3 18432:5", &["1e-4", "1e+4", "-5", "+3", "18432", ":", "5"]);
        check("204.235.71.130(xmtbuf=51200)", &["204.235.71.130", "(", "xmtbuf", "=", "51200", ")"]);
        check(
            "[2001:db8::1]:5000 ::1 fe80::a, 1:2",
            &["[2001:db8::1]", ":", "5000", "::1", "fe80::a", ",", "1", ":", "2"],
        );
        check("a // b\n# c\nd /* e \n /* f */ g", &["a", "d", "g"]);
        check("5// x", &["5"]);
        check("< <= > >= == = !=", &["<", "<=", ">", ">=", "==", "=", "!="]);
        check("\"a \\\" b\\\\\" c", &["\"a \\\" b\\\\\"", "c"]);
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(unescape("\"a \\\" b\\\\\""), "a \" b\\");
        assert_eq!(unescape("\"never ends"), "never ends");
    }
}
