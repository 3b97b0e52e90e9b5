//! Counters of a station.

use crate::wire::Kind;

/// PDUs by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Unnumbered information.
    pub ui: u64,
    /// XID commands.
    pub xid: u64,
    /// XID responses.
    pub xid_responses: u64,
    /// TEST commands.
    pub test: u64,
    /// TEST responses.
    pub test_responses: u64,
    /// Acknowledged commands, including retries and sequence resynchronizations.
    pub ac: u64,
    /// Acknowledged responses.
    pub ac_responses: u64,
}

impl Kinds {
    /// Returns the counter of a kind.
    #[inline]
    pub(crate) fn of(&mut self, kind: Kind, response: bool) -> &mut u64 {
        match (kind, response) {
            (Kind::Ui, _) => &mut self.ui,
            (Kind::Xid, false) => &mut self.xid,
            (Kind::Xid, true) => &mut self.xid_responses,
            (Kind::Test, false) => &mut self.test,
            (Kind::Test, true) => &mut self.test_responses,
            (Kind::Ac(_), false) => &mut self.ac,
            (Kind::Ac(_), true) => &mut self.ac_responses,
        }
    }

    /// Returns the sum.
    pub fn total(&self) -> u64 {
        let Kinds { ui, xid, xid_responses, test, test_responses, ac, ac_responses } = *self;
        ui + xid + xid_responses + test + test_responses + ac + ac_responses
    }
}

/// Counters of one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Frames sent, including responses.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Retransmissions.
    pub retries: u64,
    /// Messages whose time limit passed.
    pub deadline_misses: u64,
    /// Unacknowledged messages dropped at a full receive queue.
    pub dropped: u64,
}

/// Counters since the station started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// PDUs sent.
    pub sent: Kinds,
    /// Well-formed PDUs received from other stations.
    pub received: Kinds,
    /// By priority, 0 to 7.
    pub levels: [Level; 8],
    /// Frames whose first octet is not a priority, such as tokens.
    pub foreign: u64,
    /// Frames from an invalid station number or this station's own.
    pub bad_source: u64,
    /// Frames without a valid PDU.
    pub malformed: u64,
    /// PDUs to a closed SAP or to a group without a member here.
    pub no_receiver: u64,
    /// Messages whose checksum failed.
    pub bad_crc: u64,
    /// Duplicate acknowledged messages.
    pub duplicates: u64,
    /// Acknowledged messages refused because the receive queue or the sequence table was full.
    pub unavailable: u64,
    /// Unexpected responses.
    pub unexpected_responses: u64,
    /// Responses not sent because too many were queued.
    pub dropped_responses: u64,
    /// TEST and XID responses dropped because too many were queued.
    pub dropped_answers: u64,
    /// Sequence resynchronizations.
    pub agreements: u64,
    /// Messages sent and, if acknowledged, accepted.
    pub done: u64,
    /// Acknowledged messages without a response.
    pub unanswered: u64,
    /// Acknowledged messages refused by the peer.
    pub refused: u64,
}

impl Statistics {
    /// Returns all counters with their names; per-priority counters are summed.
    pub fn named(&self) -> [(&'static str, u64); 33] {
        let sum = |one: fn(&Level) -> u64| self.levels.iter().map(one).sum();
        [
            ("sent", self.sent.total()),
            ("sent_ui", self.sent.ui),
            ("sent_xid", self.sent.xid),
            ("sent_xid_responses", self.sent.xid_responses),
            ("sent_test", self.sent.test),
            ("sent_test_responses", self.sent.test_responses),
            ("sent_ac", self.sent.ac),
            ("sent_ac_responses", self.sent.ac_responses),
            ("received", self.received.total()),
            ("received_ui", self.received.ui),
            ("received_xid", self.received.xid),
            ("received_xid_responses", self.received.xid_responses),
            ("received_test", self.received.test),
            ("received_test_responses", self.received.test_responses),
            ("received_ac", self.received.ac),
            ("received_ac_responses", self.received.ac_responses),
            ("again", sum(|level| level.retries)),
            ("late", sum(|level| level.deadline_misses)),
            ("dropped", sum(|level| level.dropped)),
            ("foreign", self.foreign),
            ("bad_source", self.bad_source),
            ("malformed", self.malformed),
            ("nobody", self.no_receiver),
            ("bad_crc", self.bad_crc),
            ("duplicates", self.duplicates),
            ("unavailable", self.unavailable),
            ("strays", self.unexpected_responses),
            ("unanswering", self.dropped_responses),
            ("unheard", self.dropped_answers),
            ("agreements", self.agreements),
            ("done", self.done),
            ("unanswered", self.unanswered),
            ("refused", self.refused),
        ]
    }
}
