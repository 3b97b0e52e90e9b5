//! Lists of options: each known, given once, and read by its type.

use std::collections::BTreeMap;

use trunkline_units::{Rate, Size, Span};

use super::Context;
use super::quantity::{Dimension, number, quantity, single};
use crate::diagnostic::{Diagnostic, list, nearest};
use crate::parse::shorten;
use crate::plan::SourceRange;
use crate::tree::{Part, PartKind, Setting, Value};

/// Which options were given, and where.
pub(crate) type Given = BTreeMap<&'static str, SourceRange>;

/// Who takes which options.
pub(crate) struct Options<'a> {
    /// As it stands in a message: "`tcp`", "a connection".
    pub(crate) owner: &'a str,
    pub(crate) names: &'a [&'static str],
    /// Other spellings and the names they stand for.
    pub(crate) aliases: &'a [(&'static str, &'static str)],
}

impl<'a> Options<'a> {
    pub(crate) fn of(owner: &'a str, names: &'a [&'static str]) -> Self {
        Options { owner, names, aliases: &[] }
    }

    /// Hands each known setting to `set` once; reports the unknown, the nameless and the repeated.
    pub(crate) fn apply<'s>(
        &self,
        cx: &mut Context<'_>,
        settings: &'s [Setting],
        mut set: impl FnMut(&mut Context<'_>, &'static str, &'s Setting),
    ) -> Given {
        let mut given = Given::new();
        let mut meant = Given::new();
        for setting in settings {
            let Some(name) = self.known(cx, setting) else {
                let key = setting.key.as_ref().map_or("", |key| &key.text);
                meant.extend(nearest(key, self.names.iter().copied()).map(|name| (name, setting.place())));
                continue;
            };
            if let Some(first) = given.get(name) {
                let error = Diagnostic::error(setting.place(), format!("`{name}` is given twice"));
                cx.report(error.label("and again here").with(*first, "it is first given here"));
                continue;
            }
            given.insert(name, setting.place());
            if !setting.values.is_empty() {
                set(cx, name, setting);
            }
        }
        // What was misspelt is not missing.
        meant.append(&mut given);
        meant
    }

    fn known(&self, cx: &mut Context<'_>, setting: &Setting) -> Option<&'static str> {
        let Some(key) = &setting.key else {
            let error = Diagnostic::error(setting.place(), "this value has no name")
                .label("expected `OPTION = VALUE`");
            cx.report(self.list_into(error));
            return None;
        };
        let alias = self.aliases.iter().find(|(alias, _)| *alias == key.text).map(|(_, name)| *name);
        let name = alias.or_else(|| self.names.iter().find(|name| **name == key.text).copied());
        if name.is_none() {
            let message = format!("{} has no option `{}`", self.owner, shorten(&key.text));
            let error = Diagnostic::error(key.place, message).label("unknown option");
            cx.report(if self.names.is_empty() {
                error.help(format!("{} takes no options", self.owner))
            } else {
                error.suggest(&key.text, self.names.iter().copied())
            });
        }
        name
    }

    fn list_into(&self, error: Diagnostic) -> Diagnostic {
        if self.names.is_empty() {
            error
        } else {
            error.help(format!("expected one of {}", list(self.names)))
        }
    }

    /// Reports every one of `required` that was not given.
    pub(crate) fn require(&self, cx: &mut Context<'_>, place: SourceRange, given: &Given, required: &[&str]) {
        for name in required.iter().filter(|name| !given.contains_key(**name)) {
            let error = Diagnostic::error(place, format!("{} needs `{name}`", self.owner));
            cx.report(error.label(format!("expected `{name} = …`")));
        }
    }
}

/// Keeps what was read; what was not was reported, and the slot keeps its default.
pub(crate) fn put<T>(slot: &mut T, read: Option<T>) {
    if let Some(value) = read {
        *slot = value;
    }
}

/// The only value of a setting.
pub(crate) fn one<'s>(cx: &mut Context<'_>, setting: &'s Setting) -> Option<&'s Value> {
    if let [value] = &setting.values[..] {
        return Some(value);
    }
    let error = Diagnostic::error(setting.values[1].place, "several values where one is wanted");
    cx.report(error.label("only `rcv` takes a list"));
    None
}

/// A word, string or address without unit or options.
pub(crate) fn text<'v>(cx: &mut Context<'_>, value: &'v Value, what: &str) -> Option<&'v str> {
    let part = single(cx, value, what)?;
    plain(cx, part, what)
}

/// The text of a part that has neither unit nor options.
pub(crate) fn plain<'v>(cx: &mut Context<'_>, part: &'v Part, what: &str) -> Option<&'v str> {
    if let Some(arguments) = &part.arguments {
        let place = arguments.first().map_or(part.place, Setting::place);
        cx.report(
            Diagnostic::error(place, "no options are known here").label(format!("expected {what} alone")),
        );
        return None;
    }
    let name = part.unit.is_none() && (part.kind != PartKind::Word || !part.text.contains('/'));
    if !name || part.text.is_empty() {
        cx.report(
            Diagnostic::error(part.place, format!("expected {what}")).label(format!("expected {what}")),
        );
        return None;
    }
    Some(&part.text)
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(cx: &mut Context<'_>, value: &Value, choices: &[(&str, T)]) -> Option<T> {
    let written = text(cx, value, "a word")?;
    let found = choices.iter().find(|(word, _)| *word == written);
    if found.is_none() {
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let label =
            format!("expected {}", words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(" or "));
        let error = Diagnostic::error(value.place, format!("`{}` is not possible here", shorten(written)));
        let error = error.label(label);
        // Between words as short as `1` and `3` every other word is near.
        let meant = nearest(written, words.iter().copied().filter(|word| word.len() > 2));
        cx.report(match meant {
            Some(word) => error.help(format!("did you mean `{word}`?")),
            None => error,
        });
    }
    found.map(|(_, value)| *value)
}

/// `on` or `off`.
pub(crate) fn switch(cx: &mut Context<'_>, value: &Value) -> Option<bool> {
    choice(cx, value, &[("on", true), ("off", false)])
}

/// Nothing if the value is the word `none`, else what `read` makes of it.
pub(crate) fn optional<T>(
    cx: &mut Context<'_>,
    value: &Value,
    none: &str,
    read: impl FnOnce(&mut Context<'_>, &Value) -> Option<T>,
) -> Option<Option<T>> {
    if value.as_name() == Some(none) { Some(None) } else { read(cx, value).map(Some) }
}

/// A fixed size, at least a byte.
pub(crate) fn size(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    number(cx, value, Dimension::Size).map(|bytes| Size::from_bytes(bytes as u64))
}

/// A fixed rate above 0.
pub(crate) fn rate(cx: &mut Context<'_>, value: &Value) -> Option<Rate> {
    let bps = number(cx, value, Dimension::Rate)?;
    if bps < 1.0 {
        cx.report(Diagnostic::error(value.place, "this rate is too low").label("expected at least 1 b/s"));
        return None;
    }
    Some(Rate::from_bps(bps.round() as u64))
}

/// A fixed time, 0 or more, with its unit.
pub(crate) fn time(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    number(cx, value, Dimension::Time).map(Span::from_seconds)
}

/// A fixed time above 0, with its unit.
pub(crate) fn positive_time(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    let span = time(cx, value)?;
    if span.is_zero() {
        cx.report(Diagnostic::error(value.place, "this time is zero").label("expected a time above 0"));
        return None;
    }
    Some(span)
}

/// A whole number between `least` and `most`.
pub(crate) fn integer(cx: &mut Context<'_>, value: &Value, least: u64, most: u64) -> Option<u64> {
    let wanted = match (least, most) {
        (0, u64::MAX) => "a whole number".to_owned(),
        (least, m) if m >= u64::from(u32::MAX) => format!("a whole number of at least {least}"),
        _ => format!("a whole number from {least} to {most}"),
    };
    let part = single(cx, value, &wanted)?;
    let n = quantity(cx, part, Dimension::Plain)?;
    if n.fract() != 0.0 || n < least as f64 || n > most as f64 {
        let error = Diagnostic::error(value.place, format!("{n} is out of range"));
        cx.report(error.label(format!("expected {wanted}")));
        return None;
    }
    Some(n as u64)
}

/// A share from 0 to 1.
pub(crate) fn share(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let part = single(cx, value, "a share from 0 to 1")?;
    let n = quantity(cx, part, Dimension::Plain)?;
    if !(0.0..=1.0).contains(&n) {
        let error =
            Diagnostic::error(value.place, format!("{n} is no share")).label("expected a share from 0 to 1");
        cx.report(if (1.0..=100.0).contains(&n) {
            error.help(format!("{n} percent is `{}`", n / 100.0))
        } else {
            error
        });
        return None;
    }
    // Minus zero is zero, and prints so.
    Some(n + 0.0)
}
