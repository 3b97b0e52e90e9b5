//! Texts in one layout: indentation, spaces and blank lines. Line breaks and comments stay where the author put them.
//!
//! Only white space between tokens changes, so the meaning of a text cannot.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parse::DEEPEST;
use crate::token::{Kind, Token, tokens};

/// Spaces for each level of brackets.
const INDENT: usize = 2;

/// A token or a comment, and the white space before it.
struct Item<'a> {
    text: &'a str,
    kind: ItemKind,
    /// Line breaks before it.
    breaks: usize,
    /// White space before it on its line.
    space: &'a str,
}

#[derive(Clone, Copy, PartialEq)]
enum ItemKind {
    Token(Kind),
    /// To the end of the line.
    LineComment,
    BlockComment,
}

/// Returns `text` in the layout of the language: two spaces for each level of brackets, no space before `;`, `,` and `)`, spaces
/// around `=`, and at most one blank line. The layout of the result is the same result.
///
/// # Errors
/// Returns the diagnostics of a text that cannot be divided into tokens. Grammar and names are not checked.
pub fn format(text: &str) -> Result<String, Vec<Diagnostic>> {
    let mut diagnostics = Diagnostics::default();
    let tokens = tokens(text, &mut diagnostics);
    let diagnostics = diagnostics.into_vec();
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let mut layout = Layout::default();
    items(text, &tokens).iter().for_each(|item| layout.add(item));
    if !layout.out.is_empty() {
        layout.out.push('\n');
    }
    Ok(layout.out)
}

/// Returns tokens and comments in the order of the text.
fn items<'a>(text: &'a str, tokens: &[Token]) -> Vec<Item<'a>> {
    let (mut items, mut at) = (Vec::new(), 0);
    for token in tokens {
        let mut gap = &text[at..token.location.start];
        loop {
            let is_blank = |c: char| c.is_whitespace() || c == '\u{feff}';
            let blank = gap.len() - gap.trim_start_matches(is_blank).len();
            let (space, rest) = gap.split_at(blank);
            let breaks = space.matches('\n').count();
            let end = match rest.starts_with("/*") {
                true => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
                false => rest.find('\n').unwrap_or(rest.len()),
            };
            if end == 0 {
                if token.kind != Kind::End {
                    let text = &text[token.location.start..token.location.end];
                    items.push(Item { text, kind: ItemKind::Token(token.kind), breaks, space });
                }
                break;
            }
            let kind = if rest.starts_with("/*") { ItemKind::BlockComment } else { ItemKind::LineComment };
            items.push(Item { text: rest[..end].trim_end(), kind, breaks, space });
            gap = &rest[end..];
        }
        at = token.location.end;
    }
    items
}

#[derive(Default)]
struct Layout {
    out: String,
    /// The brackets that are open.
    open: Vec<char>,
    /// The last item.
    last: Option<ItemKind>,
    /// The last token.
    last_token: Option<Kind>,
}

impl Layout {
    fn add(&mut self, item: &Item) {
        let sign = match item.kind {
            ItemKind::Token(Kind::Sign(sign)) => Some(sign),
            _ => None,
        };
        if matches!(sign, Some('}' | ')')) {
            self.open.pop();
        }
        if self.last.is_some() {
            match item.breaks {
                0 => self.out.push_str(self.space_before(item)),
                breaks => self.break_line(breaks, item.kind),
            }
        }
        self.out.push_str(item.text);
        self.open.extend(sign.filter(|sign| matches!(sign, '{' | '(')));
        self.last = Some(item.kind);
        if let ItemKind::Token(kind) = item.kind {
            self.last_token = Some(kind);
        }
    }

    /// Ends the line before an item, and indents its line.
    fn break_line(&mut self, breaks: usize, kind: ItemKind) {
        let begins_block = matches!(self.last, Some(ItemKind::Token(Kind::Sign('{' | '('))));
        let ends_block = matches!(kind, ItemKind::Token(Kind::Sign('}' | ')')));
        let blank_line = breaks > 1 && !begins_block && !ends_block;
        self.out.push_str(if blank_line { "\n\n" } else { "\n" });
        // A statement that continues on this line; in parentheses the level is enough.
        let ended = matches!(self.last_token, None | Some(Kind::Sign('{' | '}' | ';')));
        let is_block = matches!(kind, ItemKind::Token(Kind::Sign('{' | '}' | ')')));
        let continues = !ended && !is_block && self.open.last() != Some(&'(');
        // Deeper texts are no experiments, and their indentation would be far longer than they are.
        let levels = (self.open.len() + usize::from(continues)).min(DEEPEST);
        self.out.extend(std::iter::repeat_n(' ', levels * INDENT));
    }

    /// Returns the space between the last item and this one on the same line.
    fn space_before<'a>(&self, item: &Item<'a>) -> &'a str {
        let written = if item.space.is_empty() { "" } else { " " };
        // Comments may be aligned.
        let aligned = if item.space.chars().all(|c| c == ' ') { item.space } else { " " };
        let token = |kind: Option<ItemKind>| match kind {
            Some(ItemKind::Token(kind)) => Some(kind),
            _ => None,
        };
        match (token(self.last), token(Some(item.kind))) {
            _ if item.kind == ItemKind::LineComment => {
                if aligned.is_empty() {
                    " "
                } else {
                    aligned
                }
            }
            (Some(Kind::Sign('{')), Some(Kind::Sign('}'))) => "",
            (_, Some(Kind::Sign(';' | ',' | ')'))) | (Some(Kind::Sign('(')), _) => "",
            (Some(Kind::Sign('{' | '}' | ';' | ',' | '-') | Kind::Relation), _) => " ",
            (_, Some(Kind::Sign('{' | '}' | '-') | Kind::Relation)) => " ",
            _ => written,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::{Source, parse};

    #[test]
    fn layout() {
        for (text, expected) in [
            ("", ""),
            ("\n\n# only a comment", "# only a comment\n"),
            ("a{b=1;c (d=2 ,e = 3) ;}", "a { b = 1; c (d = 2, e = 3); }\n"),
            ("a{\n\n\nb=1;\n\n\n\nc=2;\n\n}", "a {\n  b = 1;\n\n  c = 2;\n}\n"),
            ("a { }\r\nb\t=\t2;\r\n", "a {}\nb = 2;\n"),
            ("link a-b -s (rate = 10 Mb/s);", "link a-b - s (rate = 10 Mb/s);\n"),
            ("x = f(\na = 1,\n b = 2\n);", "x = f(\n  a = 1,\n  b = 2\n);\n"),
            ("x = 1\n  -5;\n# c\ny = 2;", "x = 1\n  -5;\n# c\ny = 2;\n"),
            (
                "a {   # why\n  b; // because\n/* two\n   lines */ c;}",
                "a {   # why\n  b; // because\n  /* two\n   lines */ c; }\n",
            ),
            ("a = 18432:5; b = 10Mb/s /* c */ ;", "a = 18432:5; b = 10Mb/s /* c */;\n"),
            ("connection\n{ x; }", "connection\n{ x; }\n"),
        ] {
            assert_eq!(format(text).as_deref(), Ok(expected), "{text:?}");
        }
        assert!(format("a = \"never ends").is_err() && format("a /* never ends").is_err());
    }

    #[test]
    fn indentation_has_a_bound() {
        let formatted = format(&"{\n".repeat(10_000)).expect("tokens");
        assert!(formatted.len() < 10_000 * (2 * DEEPEST + 2), "{} bytes", formatted.len());
        assert!(format(&formatted) == Ok(formatted));
    }

    /// Every experiment of the project.
    fn experiments() -> Vec<(String, String)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut found = Vec::new();
        for folder in ["../../experiments", "tests/good", "tests/bad"] {
            for entry in root.join(folder).read_dir().expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.extension().is_some_and(|extension| extension == "ns") {
                    let text = std::fs::read_to_string(&path).expect("text");
                    found.push((path.display().to_string(), text));
                }
            }
        }
        found
    }

    fn plan_hash(text: &str) -> Option<String> {
        parse(&Source { name: "x.ns", text, folder: None }).plan.map(|plan| plan.hash())
    }

    /// Tokens and comments without the space around them.
    fn content(text: &str) -> Vec<String> {
        let tokens = tokens(text, &mut Diagnostics::default());
        items(text, &tokens).iter().map(|item| item.text.to_owned()).collect()
    }

    fn assert_formatted(name: &str, text: &str) {
        let Ok(formatted) = format(text) else { return };
        assert_eq!(format(&formatted).as_deref(), Ok(formatted.as_str()), "{name}: not idempotent");
        assert_eq!(content(&formatted), content(text), "{name}: tokens or comments changed");
        assert_eq!(plan_hash(&formatted), plan_hash(text), "{name}: the plan changed");
        let blank = |line: &&str| line.ends_with(char::is_whitespace);
        if !text.contains("/*") {
            assert_eq!(formatted.lines().find(blank), None, "{name}: space at the end of a line");
        }
    }

    #[test]
    fn every_experiment_retains_its_plan_and_comments() {
        let found = experiments();
        assert!(found.len() > 100, "{}", found.len());
        found.iter().for_each(|(name, text)| assert_formatted(name, text));
    }

    proptest! {
        // 256 texts; `PROPTEST_CASES=10000` generates more.
        #[test]
        fn other_white_space_and_comments_change_nothing(
            index in 0usize..1000,
            gaps in proptest::collection::vec("[ \t]{0,3}(#[a-z;{}\"]{0,8}\n|//[a-z ]{0,5}\r\n|/\\*[a-z;\n]{0,9}\\*/|\n{0,3})[ ]{0,2}", 1..40),
        ) {
            let experiments = experiments();
            let (name, text) = &experiments[index % experiments.len()];
            let mut diagnostics = Diagnostics::default();
            let tokens = tokens(text, &mut diagnostics);
            if diagnostics.into_vec().is_empty() {
                // Between tokens that white space separates there must remain some.
                let (mut generated, mut at) = (String::new(), 0);
                for (number, token) in tokens.iter().enumerate() {
                    let gap = &gaps[number % gaps.len()];
                    if token.location.start > at {
                        generated.extend([" ", gap, " "]);
                    }
                    generated.push_str(&text[token.location.start..token.location.end]);
                    at = token.location.end;
                }
                prop_assert_eq!(plan_hash(&generated), plan_hash(text), "{}: the test changes the text", name);
                assert_formatted(name, &generated);
            }
        }
    }
}
