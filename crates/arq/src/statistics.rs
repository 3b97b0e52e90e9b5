//! Counters of a connection: the variables of table 2 of the 1998 paper, and later additions.

/// Counters since the connection opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Numbered frames sent, including retransmissions.
    pub frames_sent: u64,
    /// Retransmissions.
    pub frames_resent: u64,
    /// Bytes of all frames sent, without the headers of lower layers.
    pub bytes_sent: u64,
    /// Numbered frames received and accepted.
    pub frames_received: u64,
    /// Acknowledgements sent in frames without data.
    pub acks_forced: u64,
    /// Acknowledgements sent in data frames.
    pub acks_piggybacked: u64,
    /// Of both, those that report missing frames.
    pub nacks_sent: u64,
    /// Acknowledgements received in frames without data.
    pub acks_received_forced: u64,
    /// Acknowledgements received in data frames.
    pub acks_received_piggybacked: u64,
    /// Of both received kinds, those that reported missing frames.
    pub nacks_received: u64,
    /// Frames with a failed checksum.
    pub bad_checksums: u64,
    /// Out-of-order frames ignored by go-back-N.
    pub framing_errors: u64,
    /// Duplicate frames.
    pub duplicates: u64,
    /// Malformed frames with a valid checksum, and frames outside of the window.
    pub malformed: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Frames considered lost.
    pub lost: u64,
    /// Repair frames sent.
    pub repairs_sent: u64,
    /// Repair frames received.
    pub repairs_received: u64,
    /// Lost frames that were rebuilt; not counted as received.
    pub frames_rebuilt: u64,
}

/// Current frame length of a connection and its path discovery (see
/// [`Options::probe_up_to`](crate::Options::probe_up_to)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// Longest frame currently sent whole, in bytes.
    pub max_frame: u16,
    /// Probes sent.
    pub probes_sent: u64,
    /// Probes answered.
    pub probes_answered: u64,
    /// Times the path was found to carry shorter frames than before.
    pub reductions: u64,
}

impl Statistics {
    /// Returns all counters with their names, which docs/reference/guaranteed.md explains.
    pub fn counters(&self) -> [(&'static str, u64); 17] {
        [
            ("frames_sent", self.frames_sent),
            ("frames_resent", self.frames_resent),
            ("bytes_sent", self.bytes_sent),
            ("frames_received", self.frames_received),
            ("acks_forced", self.acks_forced),
            ("acks_piggybacked", self.acks_piggybacked),
            ("nacks_sent", self.nacks_sent),
            ("acks_received_forced", self.acks_received_forced),
            ("acks_received_piggybacked", self.acks_received_piggybacked),
            ("nacks_received", self.nacks_received),
            ("bad_checksums", self.bad_checksums),
            ("framing_errors", self.framing_errors),
            ("doubles", self.duplicates),
            ("malformed", self.malformed),
            ("timeouts", self.timeouts),
            ("tail_probes", self.tail_probes),
            ("lost", self.lost),
        ]
    }

    /// Returns the counters of forward error correction with their names, as above.
    pub fn repair_counters(&self) -> [(&'static str, u64); 3] {
        [
            ("repairs_sent", self.repairs_sent),
            ("repairs_received", self.repairs_received),
            ("frames_rebuilt", self.frames_rebuilt),
        ]
    }
}
