//! What a person is to be told at once, since no figure says it loudly enough: by a line, and once each.

use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};

use trunkline_units::{Instant, Span};

use crate::settings::Settings;
use crate::wire::{classic, wide};

/// What is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Somebody speaks the other format.
    Format,
    /// Somebody else sends what only the central converter may say.
    Stranger,
    /// Two say that they are the same host, or level 1.
    Hosts,
    Level1,
    /// A group could not be joined.
    Group,
    /// The central converter has not answered.
    Alone,
    /// It did, and does no longer.
    Silent,
    /// A host names another site.
    Site,
}

/// Lines that nobody has taken yet, at the most.
const MOST: usize = 16;

/// Lines to be told.
#[derive(Debug, Default)]
pub(super) struct Notices {
    told: Vec<Kind>,
    lines: VecDeque<String>,
}

impl Notices {
    /// The next line.
    pub fn take(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// Tells a line.
    pub fn say(&mut self, line: String) {
        if self.lines.len() < MOST {
            self.lines.push_back(line);
        }
    }

    /// Tells a line if none of its kind was told before.
    pub fn once(&mut self, kind: Kind, line: impl FnOnce() -> String) {
        if !self.told.contains(&kind) {
            self.told.push(kind);
            self.say(line());
        }
    }

    /// Two say that they are the same.
    pub fn twins(&mut self, kind: Kind, number: u16, at: [SocketAddr; 2]) {
        let what = if kind == Kind::Hosts { "hosts" } else { "converters of level 1" };
        self.once(kind, || {
            format!(
                "two {what} say that they are number {number}: {} and {}; each needs its own (--number)",
                at[0], at[1]
            )
        });
    }

    /// Looks whether a datagram that came is a bundle of the other format; with a mask it goes to the central converter.
    pub fn look(&mut self, settings: &Settings, from: SocketAddr, datagram: &[u8], has_mask: bool) {
        let is_classic = || match has_mask {
            true => classic::Bundle::read_with_mask(datagram).is_ok(),
            false => classic::Bundle::read(datagram).is_ok(),
        };
        let (theirs, ours) = match (settings.wide().is_some(), wide::is_ours(datagram)) {
            (false, true) => ("wide", "classic"),
            (true, false) if !self.told.contains(&Kind::Format) && is_classic() => ("classic", "wide"),
            _ => return,
        };
        self.once(Kind::Format, || {
            format!("bundles of the {theirs} format come from {from}; here it is the {ours} one (--format)")
        });
    }
}

/// Whether what comes from an address may be the central converter's. One of the classic format need not send from the port on
/// which it hears.
pub(super) fn is_central(settings: &Settings, central: SocketAddrV4, from: SocketAddr) -> bool {
    match settings.wide() {
        Some(_) => from == SocketAddr::V4(central),
        None => from.ip() == *central.ip(),
    }
}

/// Whether it is still to be told that no central converter has answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Doubts {
    /// Nothing was said to it.
    #[default]
    Unasked,
    /// Then, if it has not.
    Until(Instant),
    Over,
}

impl Doubts {
    /// Something was said to it, and may be answered for so long.
    pub fn asked(&mut self, now: Instant, patience: Span) {
        if matches!(self, Doubts::Unasked) {
            *self = Doubts::Until(now + patience);
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Doubts::Until(at) => Some(*at),
            Doubts::Unasked | Doubts::Over => None,
        }
    }

    /// Whether it is time to look, once.
    pub fn are_due(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let due = self.deadline().is_some_and(|at| now() >= at);
        if due {
            *self = Doubts::Over;
        }
        due
    }
}

/// So long a central converter of the wide format may take to answer.
pub(super) const ANSWERS: Span = Span::from_s(2);

/// A line about a central converter that has not answered, with what may be wrong.
pub(super) fn alone(central: SocketAddrV4, flags: &str) -> String {
    format!("no central converter has answered at {central} as yet ({flags}); it is asked again")
}

/// A line about a central converter that was there.
pub(super) fn silent(central: SocketAddrV4) -> String {
    format!("nothing comes from the central converter at {central} any more; it is asked again")
}

/// A line about bundles of a stranger.
pub(super) fn stranger(central: SocketAddrV4, from: SocketAddr) -> String {
    format!("bundles come from {from}, which is not the central converter {central}: they are not taken")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Format, Wide};

    #[test]
    fn the_other_format_is_told_once() {
        let from: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut builder = classic::Builder::new(Some(classic::Source::Host(1)), 1_000);
        builder.push(7, b"a classic message");
        let mut classic = vec![0; builder.octets()];
        builder.finish(&mut classic);
        let header =
            wide::Header { role: wide::Role::Host, number: 1, to: 0, life: 1, session: 0, before: 0 };
        let mut wide = vec![0; wide::HEADER];
        wide::Builder::new(1_000).finish(&header, &mut wide);
        for (format, right, wrong, line) in [
            (
                Format::Classic,
                &classic,
                &wide,
                "bundles of the wide format come from 127.0.0.1:9; here it is the classic",
            ),
            (
                Format::Wide(Wide::default()),
                &wide,
                &classic,
                "bundles of the classic format come from 127.0.0.1:9; here",
            ),
        ] {
            let (settings, mut notices) = (Settings { format, ..Settings::default() }, Notices::default());
            for bytes in [right, &vec![], &vec![7; 40]] {
                notices.look(&settings, from, bytes, true);
            }
            assert_eq!(notices.take(), None);
            (0..3).for_each(|_| notices.look(&settings, from, wrong, true));
            let said = notices.take().unwrap();
            assert!(said.starts_with(line) && notices.take().is_none(), "{said}");
        }
    }

    #[test]
    fn lines_that_nobody_takes_are_bounded() {
        let mut notices = Notices::default();
        (0..100).for_each(|n| notices.say(n.to_string()));
        assert_eq!(std::iter::from_fn(|| notices.take()).count(), MOST);
    }

    #[test]
    fn the_central_converter_is_where_it_was_said_to_be() {
        let central: SocketAddrV4 = "10.0.0.1:3458".parse().unwrap();
        let wide = Settings { format: Format::Wide(Wide::default()), ..Settings::default() };
        for (from, in_classic, in_wide) in
            [("10.0.0.1:3458", true, true), ("10.0.0.1:4000", true, false), ("10.0.0.2:3458", false, false)]
        {
            let from = from.parse().unwrap();
            assert_eq!(is_central(&Settings::default(), central, from), in_classic, "{from}");
            assert_eq!(is_central(&wide, central, from), in_wide, "{from}");
        }
    }
}
