//! Warnings for the operator about conditions that metrics show too quietly. Each kind is reported once.

use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};

use trunkline_io::Clock;
use trunkline_units::{Instant, Span};

use crate::settings::Settings;
use crate::wire::{classic, format2};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WarningKind {
    /// A peer uses the other format.
    FormatMismatch,
    /// An unknown peer sends bundles of a central converter.
    UnknownPeer,
    /// Two hosts or level-1 converters have the same number.
    DuplicateHost,
    DuplicateLevel1,
    /// A multicast group could not be joined.
    JoinFailed,
    /// The central converter has not answered.
    CentralUnreachable,
    /// The central converter no longer answers.
    CentralLost,
    /// A host uses another site number.
    SiteMismatch,
}

/// The largest number of unread warnings.
const MAX_LINES: usize = 16;

/// Unread warnings.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    reported: Vec<WarningKind>,
    lines: VecDeque<String>,
}

impl Warnings {
    /// Returns the next warning.
    pub fn next_line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// Adds a warning.
    pub fn push(&mut self, line: String) {
        if self.lines.len() < MAX_LINES {
            self.lines.push_back(line);
        }
    }

    /// Adds a warning unless its kind was reported before.
    pub fn once(&mut self, kind: WarningKind, line: impl FnOnce() -> String) {
        if !self.reported.contains(&kind) {
            self.reported.push(kind);
            self.push(line());
        }
    }

    /// Reports two peers with the same number.
    pub fn duplicate_number(&mut self, kind: WarningKind, number: u16, at: [SocketAddr; 2]) {
        let role = if kind == WarningKind::DuplicateHost { "hosts" } else { "level-1 converters" };
        self.once(kind, || {
            format!(
                "two {role} use number {number}: {} and {}; each needs a unique number (--number)",
                at[0], at[1]
            )
        });
    }

    /// Reports a datagram that is a bundle of the other format. Bundles to the central converter have a mask.
    pub fn check_format(&mut self, settings: &Settings, from: SocketAddr, datagram: &[u8], has_mask: bool) {
        let is_classic = || match has_mask {
            true => classic::ClassicBundle::read_with_mask(datagram).is_ok(),
            false => classic::ClassicBundle::read(datagram).is_ok(),
        };
        let (received, configured) = match (settings.format2().is_some(), format2::has_magic(datagram)) {
            (false, true) => ("wide", "classic"),
            (true, false) if !self.reported.contains(&WarningKind::FormatMismatch) && is_classic() => {
                ("classic", "wide")
            }
            _ => return,
        };
        self.once(WarningKind::FormatMismatch, || {
            format!("received bundles of the {received} format from {from}; this converter uses the {configured} format (--format)")
        });
    }
}

/// The time in which a central converter of format 2 answers.
pub(super) const ANSWER_TIMEOUT: Span = Span::from_s(2);

/// The central converter as a host or level-1 converter sees it, and the warnings of that endpoint.
#[derive(Debug)]
pub(super) struct CentralWatch {
    settings: Settings,
    central: SocketAddrV4,
    /// Bundles from unknown peers.
    pub unknown_peers: u64,
    pub warnings: Warnings,
    /// When to check whether the central converter has answered: once, after something was sent. [`Instant::MAX`]
    /// after that, or without a check.
    answer_due: Option<Instant>,
}

impl CentralWatch {
    pub fn new(settings: Settings, central: SocketAddrV4) -> CentralWatch {
        CentralWatch { settings, central, unknown_peers: 0, warnings: Warnings::default(), answer_due: None }
    }

    /// Returns whether a bundle comes from the central converter. In format 1 (classic) it may send from another port.
    pub fn accepts(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        self.warnings.check_format(&self.settings, from, bytes, false);
        let central = self.central;
        let is_central = match self.settings.format2() {
            Some(_) => from == SocketAddr::V4(central),
            None => from.ip() == *central.ip(),
        };
        if !is_central {
            self.unknown_peers += 1;
            self.warnings.once(WarningKind::UnknownPeer, || {
                format!("ignored bundles from {from}, which is not the central converter {central}")
            });
        }
        is_central
    }

    /// Expects an answer after something was sent.
    pub fn expect_answer(&mut self, now: Instant, timeout: Span) {
        self.answer_due.get_or_insert(now + timeout);
    }

    /// Returns when the answer is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.answer_due.filter(|due| *due < Instant::MAX)
    }

    /// Warns, after all input was handled, if the central converter has not answered in time, with the options to
    /// check, or has timed out.
    pub fn check(&mut self, clock: Clock, has_answered: bool, flags: &str, timeouts: u64) {
        let central = self.central;
        if self.deadline().is_some_and(|due| clock.now() >= due) {
            self.answer_due = Some(Instant::MAX);
            if !has_answered {
                self.warnings.once(WarningKind::CentralUnreachable, || {
                    format!("no answer from a central converter at {central} so far ({flags}); retrying")
                });
            }
        }
        if timeouts > 0 {
            self.warnings.once(WarningKind::CentralLost, || {
                format!("lost the central converter at {central}; retrying")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Format, Format2};

    #[test]
    fn a_format_mismatch_is_reported_once() {
        let from: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut builder = classic::ClassicBuilder::new(Some(classic::Source::Host(1)), 1_000);
        builder.push(7, b"a classic message");
        let mut classic = vec![0; builder.octets()];
        builder.finish(&mut classic);
        let header = format2::Header::from_central(1, 0, 0);
        let mut format2 = vec![0; format2::HEADER];
        format2::BundleBuilder::new(1_000).finish(&header, &mut format2);
        for (format, right, wrong, line) in [
            (
                Format::Classic,
                &classic,
                &format2,
                "received bundles of the wide format from 127.0.0.1:9; this converter uses the classic",
            ),
            (
                Format::Format2(Format2::default()),
                &format2,
                &classic,
                "received bundles of the classic format from 127.0.0.1:9; this",
            ),
        ] {
            let (settings, mut warnings) = (Settings { format, ..Settings::default() }, Warnings::default());
            for bytes in [right, &vec![], &vec![7; 40]] {
                warnings.check_format(&settings, from, bytes, true);
            }
            assert_eq!(warnings.next_line(), None);
            (0..3).for_each(|_| warnings.check_format(&settings, from, wrong, true));
            let reported = warnings.next_line().unwrap();
            assert!(reported.starts_with(line) && warnings.next_line().is_none(), "{reported}");
        }
    }

    #[test]
    fn unread_warnings_are_bounded() {
        let mut warnings = Warnings::default();
        (0..100).for_each(|n| warnings.push(n.to_string()));
        assert_eq!(std::iter::from_fn(|| warnings.next_line()).count(), MAX_LINES);
    }

    #[test]
    fn the_central_converter_is_recognized_by_its_address() {
        let central: SocketAddrV4 = "10.0.0.1:3458".parse().unwrap();
        let format2 = Settings { format: Format::Format2(Format2::default()), ..Settings::default() };
        for (from, in_classic, in_format2) in
            [("10.0.0.1:3458", true, true), ("10.0.0.1:4000", true, false), ("10.0.0.2:3458", false, false)]
        {
            let from = from.parse().unwrap();
            for (settings, is_central) in [(Settings::default(), in_classic), (format2, in_format2)] {
                assert_eq!(CentralWatch::new(settings, central).accepts(from, &[]), is_central, "{from}");
            }
        }
    }
}
