//! What a station counted.

use crate::wire::Kind;

/// PDUs by what they are.
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
    /// Acknowledged commands, each try and each agreement on a number among them.
    pub ac: u64,
    /// Their responses.
    pub ac_responses: u64,
}

impl Kinds {
    /// The counter of a kind.
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

    /// All of them.
    pub fn total(&self) -> u64 {
        let Kinds { ui, xid, xid_responses, test, test_responses, ac, ac_responses } = *self;
        ui + xid + xid_responses + test + test_responses + ac + ac_responses
    }
}

/// What happened at one priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Frames sent, answers among them.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Tries after the first.
    pub again: u64,
    /// Messages given up because they took too long.
    pub late: u64,
    /// Unacknowledged messages that found no room in a SAP.
    pub dropped: u64,
}

/// Counts since a station began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// PDUs sent.
    pub sent: Kinds,
    /// PDUs received that are well formed and from another station.
    pub received: Kinds,
    /// By priority, 0 to 7.
    pub levels: [Level; 8],
    /// Frames whose first octet is no priority: a token's, for example.
    pub foreign: u64,
    /// Frames from no station, or from this station's own number.
    pub bad_source: u64,
    /// Frames that hold no PDU that makes sense.
    pub malformed: u64,
    /// PDUs to a SAP that is not open, or to a group without a member here.
    pub nobody: u64,
    /// Messages whose checksum failed.
    pub bad_crc: u64,
    /// Acknowledged messages that had come before.
    pub duplicates: u64,
    /// Acknowledged messages that found no room, neither in the SAP nor in the memory of sequences.
    pub unavailable: u64,
    /// Responses to nothing that was asked.
    pub strays: u64,
    /// Answers that were not sent because too many waited.
    pub unanswering: u64,
    /// Answers to questions that nobody heard of because too many waited.
    pub unheard: u64,
    /// Times the number of a sequence had to be agreed on.
    pub agreements: u64,
    /// Messages that left, and if acknowledged were answered well.
    pub done: u64,
    /// Acknowledged messages that nobody answered.
    pub unanswered: u64,
    /// Acknowledged messages that were refused.
    pub refused: u64,
}

impl Statistics {
    /// Each with its name, those by priority summed up.
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
            ("again", sum(|level| level.again)),
            ("late", sum(|level| level.late)),
            ("dropped", sum(|level| level.dropped)),
            ("foreign", self.foreign),
            ("bad_source", self.bad_source),
            ("malformed", self.malformed),
            ("nobody", self.nobody),
            ("bad_crc", self.bad_crc),
            ("duplicates", self.duplicates),
            ("unavailable", self.unavailable),
            ("strays", self.strays),
            ("unanswering", self.unanswering),
            ("unheard", self.unheard),
            ("agreements", self.agreements),
            ("done", self.done),
            ("unanswered", self.unanswered),
            ("refused", self.refused),
        ]
    }
}
