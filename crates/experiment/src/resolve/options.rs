//! Options of all kinds, and the readers of values by type.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use trunkline_traffic::Variable;
use trunkline_units::{Rate, Size, Span};

use super::quantity::{Dimension, number, quantity, single, variable};
use super::{Context, write};
use crate::diagnostic::{Diagnostic, list, nearest};
use crate::parse::shorten;
use crate::plan::{Amount, SourceRange};
use crate::tree::{Part, PartKind, Setting, Value};

/// Location of each option that was given.
pub(crate) type Given = BTreeMap<&'static str, SourceRange>;

/// The options of one owner.
pub(crate) struct Options<'a> {
    /// The owner, as messages name it: "`tcp`", "a connection".
    pub(crate) owner: &'a str,
    pub(crate) names: &'a [&'static str],
    /// Alternative spellings, each with the name it stands for.
    pub(crate) aliases: &'a [(&'static str, &'static str)],
}

impl<'a> Options<'a> {
    /// Creates a list without aliases.
    pub(crate) fn of(owner: &'a str, names: &'a [&'static str]) -> Self {
        Options { owner, names, aliases: &[] }
    }

    /// Calls `set` once for each known setting; reports settings that are unknown, repeated, or lack a name. Returns
    /// the options that were given, with those that were probably meant by misspelt names.
    pub(crate) fn apply<'s>(
        &self,
        cx: &mut Context<'_>,
        settings: &'s [Setting],
        mut set: impl FnMut(&mut Context<'_>, &'static str, &'s Setting),
    ) -> Given {
        let mut given = Given::new();
        let mut probably_meant = Given::new();
        for setting in settings {
            let Some(name) = self.known_name(cx, setting) else {
                let key = setting.key.as_ref().map_or("", |key| &key.text);
                let nearest = nearest(key, self.names.iter().copied());
                probably_meant.extend(nearest.map(|name| (name, setting.location())));
                continue;
            };
            if let Some(first) = given.get(name) {
                let error = Diagnostic::error(setting.location(), format!("`{name}` is given twice"));
                cx.report(error.label("and again here").with(*first, "it is first given here"));
                continue;
            }
            given.insert(name, setting.location());
            if !setting.values.is_empty() {
                set(cx, name, setting);
            }
        }
        // A misspelt option is not missing.
        probably_meant.append(&mut given);
        probably_meant
    }

    /// Returns the name of a setting; reports an unknown one.
    fn known_name(&self, cx: &mut Context<'_>, setting: &Setting) -> Option<&'static str> {
        let Some(key) = &setting.key else {
            let error = Diagnostic::error(setting.location(), "this value has no name")
                .label("expected `OPTION = VALUE`");
            return cx.refuse(error.help(format!("expected one of {}", list(self.names))));
        };
        let alias = self.aliases.iter().find(|(alias, _)| *alias == key.text).map(|(_, name)| *name);
        let name = alias.or_else(|| self.names.iter().find(|name| **name == key.text).copied());
        if name.is_none() {
            let message = format!("{} has no option `{}`", self.owner, shorten(&key.text));
            let error = Diagnostic::error(key.location, message).label("unknown option");
            cx.report(error.suggest(&key.text, self.names.iter().copied()));
        }
        name
    }

    /// Reports each of the `required` options that was not given.
    pub(crate) fn require(
        &self,
        cx: &mut Context<'_>,
        location: SourceRange,
        given: &Given,
        required: &[&str],
    ) {
        for name in required.iter().filter(|name| !given.contains_key(**name)) {
            let error = Diagnostic::error(location, format!("{} needs `{name}`", self.owner));
            cx.report(error.label(format!("expected `{name} = …`")));
        }
    }
}

/// What is done with the options of a protocol, test, node or link. One function for each of these presents all options
/// in their order.
pub(crate) enum Visit<'v, 'c> {
    /// Lists the names.
    Names(Vec<&'static str>),
    /// Sets the option of this name. A value that cannot be read is reported and leaves it as it was.
    Set(&'v mut Context<'c>, &'v str, &'v Value),
    /// Writes all values.
    Write(Vec<(&'static str, String)>),
}

/// Returns the names of the options that `present` presents.
pub(crate) fn names(present: impl FnOnce(&mut Visit<'_, '_>)) -> Vec<&'static str> {
    let mut visit = Visit::Names(Vec::new());
    present(&mut visit);
    let Visit::Names(names) = visit else { unreachable!("a visit stays what it is") };
    names
}

/// Returns the options that `present` presents, with their values as text.
pub(crate) fn values(present: impl FnOnce(&mut Visit<'_, '_>)) -> Vec<(&'static str, String)> {
    let mut visit = Visit::Write(Vec::new());
    present(&mut visit);
    let Visit::Write(options) = visit else { unreachable!("a visit stays what it is") };
    options
}

impl Visit<'_, '_> {
    /// Presents an option, whose values `read` reads and `write` writes.
    pub(crate) fn option<T>(
        &mut self,
        name: &'static str,
        target: &mut T,
        read: impl FnOnce(&mut Context<'_>, &Value) -> Option<T>,
        write: impl FnOnce(&T) -> String,
    ) {
        match self {
            Visit::Names(names) => names.push(name),
            Visit::Set(cx, wanted, value) if *wanted == name => assign(target, read(cx, value)),
            Visit::Set(..) => {}
            Visit::Write(options) => options.push((name, write(target))),
        }
    }

    /// One that may be the keyword `none`.
    pub(crate) fn optional<T>(
        &mut self,
        name: &'static str,
        target: &mut Option<T>,
        none: &str,
        read: impl FnOnce(&mut Context<'_>, &Value) -> Option<T>,
        write: impl FnOnce(&T) -> String,
    ) {
        let write = |value: &Option<T>| value.as_ref().map_or_else(|| none.to_owned(), write);
        self.option(name, target, |cx, value| optional(cx, value, none, read), write);
    }

    pub(crate) fn keyword<T: Copy + PartialEq>(
        &mut self,
        name: &'static str,
        target: &mut T,
        keywords: &[(&'static str, T)],
    ) {
        let write = |value: &T| keyword(keywords, value).to_owned();
        self.option(name, target, |cx, value| choice(cx, value, keywords), write);
    }

    pub(crate) fn on_off(&mut self, name: &'static str, target: &mut bool) {
        self.keyword(name, target, &[("on", true), ("off", false)]);
    }

    pub(crate) fn integer<T: TryFrom<u64> + ToString>(
        &mut self,
        name: &'static str,
        target: &mut T,
        range: RangeInclusive<u64>,
    ) {
        self.option(name, target, |cx, value| integer(cx, value, range), T::to_string);
    }

    pub(crate) fn variable(&mut self, name: &'static str, target: &mut Variable, dimension: Dimension) {
        let read = |cx: &mut Context<'_>, value: &Value| variable(cx, value, dimension);
        self.option(name, target, read, |value| write::variable(value, dimension));
    }

    pub(crate) fn time(&mut self, name: &'static str, target: &mut Span) {
        self.option(name, target, time, write::span);
    }

    pub(crate) fn rate(&mut self, name: &'static str, target: &mut Rate) {
        self.option(name, target, rate, write::rate);
    }

    pub(crate) fn share(&mut self, name: &'static str, target: &mut f64) {
        self.option(name, target, share, f64::to_string);
    }
}

/// Returns the keyword of `value` in a table.
pub(crate) fn keyword<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table
        .iter()
        .find(|(_, known)| known == value)
        .map(|(keyword, _)| *keyword)
        .expect("every value has a keyword")
}

/// Reads the options that `present` presents from `settings`; reports missing ones among `required`. Returns those given.
pub(crate) fn read(
    cx: &mut Context<'_>,
    owner: &str,
    location: SourceRange,
    settings: &[Setting],
    required: &[&str],
    mut present: impl FnMut(&mut Visit<'_, '_>),
) -> Given {
    let names = names(&mut present);
    let options = Options::of(owner, &names);
    let given = options.apply(cx, settings, |cx, name, setting| {
        present(&mut Visit::Set(cx, name, &setting.values[0]));
    });
    options.require(cx, location, &given, required);
    given
}

/// Stores the value if it was read. Otherwise the error has been reported and the default stays.
pub(crate) fn assign<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// Returns the value of a setting; reports several.
pub(crate) fn one<'s>(cx: &mut Context<'_>, setting: &'s Setting) -> Option<&'s Value> {
    if let [value] = &setting.values[..] {
        return Some(value);
    }
    let error = Diagnostic::error(setting.values[1].location, "several values where one is wanted");
    cx.refuse(error.label("only `rcv` takes a list"))
}

/// Reads a word, string or address without unit or options; `expected` describes it in messages.
pub(crate) fn text<'v>(cx: &mut Context<'_>, value: &'v Value, expected: &str) -> Option<&'v str> {
    let part = single(cx, value, expected)?;
    plain(cx, part, expected)
}

/// Returns the text of a part that has neither unit nor options; `expected` describes it in messages.
pub(crate) fn plain<'v>(cx: &mut Context<'_>, part: &'v Part, expected: &str) -> Option<&'v str> {
    if let Some(arguments) = &part.arguments {
        let location = arguments.first().map_or(part.location, Setting::location);
        return cx.refuse(
            Diagnostic::error(location, "no options are known here")
                .label(format!("expected {expected} alone")),
        );
    }
    let is_name = part.unit.is_none() && (part.kind != PartKind::Word || !part.text.contains('/'));
    if !is_name || part.text.is_empty() {
        return cx.refuse(
            Diagnostic::error(part.location, format!("expected {expected}"))
                .label(format!("expected {expected}")),
        );
    }
    Some(&part.text)
}

/// Reads one of a few keywords; returns its value.
pub(crate) fn choice<T: Copy>(cx: &mut Context<'_>, value: &Value, choices: &[(&str, T)]) -> Option<T> {
    let written = text(cx, value, "a word")?;
    let found = choices.iter().find(|(keyword, _)| *keyword == written);
    if found.is_none() {
        let keywords: Vec<_> = choices.iter().map(|(keyword, _)| *keyword).collect();
        let quoted: Vec<_> = keywords.iter().map(|keyword| format!("`{keyword}`")).collect();
        let label = format!("expected {}", quoted.join(" or "));
        let error = Diagnostic::error(value.location, format!("`{}` is not possible here", shorten(written)));
        let error = error.label(label);
        // Every word is near to keywords as short as `1` and `3`.
        let meant = nearest(written, keywords.iter().copied().filter(|keyword| keyword.len() > 2));
        cx.report(match meant {
            Some(keyword) => error.help(format!("did you mean `{keyword}`?")),
            None => error,
        });
    }
    found.map(|(_, value)| *value)
}

/// Returns `Some(None)` if the value is the keyword `none`, otherwise the result of `read`.
pub(crate) fn optional<T>(
    cx: &mut Context<'_>,
    value: &Value,
    none: &str,
    read: impl FnOnce(&mut Context<'_>, &Value) -> Option<T>,
) -> Option<Option<T>> {
    if value.as_name() == Some(none) { Some(None) } else { read(cx, value).map(Some) }
}

/// Reads a constant size of at least a byte.
pub(crate) fn size(cx: &mut Context<'_>, value: &Value) -> Option<Size> {
    number(cx, value, Dimension::Size).map(|bytes| Size::from_bytes(bytes as u64))
}

/// Room in a buffer: `256 cells`, `100 packets`, `64 kB`.
pub(crate) fn amount(cx: &mut Context<'_>, value: &Value) -> Option<Amount> {
    let part = single(cx, value, "room, such as `256 cells`, `100 packets` or `64 kB`")?;
    let digits = part.text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = part.unit.as_ref().map_or(&part.text[digits.len()..], |unit| unit.text.as_str());
    let make: fn(u64) -> Amount = match unit {
        "cells" | "cell" => Amount::Cells,
        "packets" | "packet" => Amount::Packets,
        _ if part.arguments.is_none() && !unit.is_empty() && !Dimension::Size.has_unit(unit) => {
            let location = part.unit.as_ref().map_or(part.location, |unit| unit.location);
            let error =
                Diagnostic::error(location, format!("`{}` is no unit of room in a buffer", shorten(unit)));
            return cx.refuse(error.label("expected `cells`, `packets` or a unit of size such as `kB`"));
        }
        _ => return size(cx, value).map(|size| Amount::Bytes(size.as_bytes())),
    };
    let mut count = part.clone();
    count.text.truncate(digits.len());
    count.unit = None;
    let count = Value { parts: vec![count], location: value.location };
    number(cx, &count, Dimension::Count).map(|n| make(n as u64))
}

/// Reads a constant rate above 0.
pub(crate) fn rate(cx: &mut Context<'_>, value: &Value) -> Option<Rate> {
    let bps = number(cx, value, Dimension::Rate)?;
    if bps < 1.0 {
        return cx.refuse(
            Diagnostic::error(value.location, "this rate is too low").label("expected at least 1 b/s"),
        );
    }
    Some(Rate::from_bps(bps.round() as u64))
}

/// Reads a constant time, 0 or more, with its unit.
pub(crate) fn time(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    number(cx, value, Dimension::Time).map(Span::from_seconds)
}

/// Reads a constant time above 0, with its unit.
pub(crate) fn positive_time(cx: &mut Context<'_>, value: &Value) -> Option<Span> {
    let span = time(cx, value)?;
    if span.is_zero() {
        return cx
            .refuse(Diagnostic::error(value.location, "this time is zero").label("expected a time above 0"));
    }
    Some(span)
}

/// Reads a whole number in `range`.
pub(crate) fn integer<T: TryFrom<u64>>(
    cx: &mut Context<'_>,
    value: &Value,
    range: RangeInclusive<u64>,
) -> Option<T> {
    let (min, max) = range.into_inner();
    let expected = match (min, max) {
        (min, max) if max >= u64::from(u32::MAX) => format!("a whole number of at least {min}"),
        _ => format!("a whole number from {min} to {max}"),
    };
    let part = single(cx, value, &expected)?;
    let n = quantity(cx, part, Dimension::Plain)?;
    if n.fract() != 0.0 || n < min as f64 || n > max as f64 {
        let error = Diagnostic::error(value.location, format!("{n} is out of range"));
        return cx.refuse(error.label(format!("expected {expected}")));
    }
    T::try_from(n as u64).ok()
}

/// Reads a share from 0 to 1.
pub(crate) fn share(cx: &mut Context<'_>, value: &Value) -> Option<f64> {
    let part = single(cx, value, "a share from 0 to 1")?;
    let n = quantity(cx, part, Dimension::Plain)?;
    if !(0.0..=1.0).contains(&n) {
        let error = Diagnostic::error(value.location, format!("{n} is no share"))
            .label("expected a share from 0 to 1");
        return cx.refuse(if (1.0..=100.0).contains(&n) {
            error.help(format!("{n} percent is `{}`", n / 100.0))
        } else {
            error
        });
    }
    // Turns minus zero into zero, which prints without a sign.
    Some(n + 0.0)
}
