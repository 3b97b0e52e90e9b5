//! What a connection counted: the variables of table 2 of the 1998 paper, and what has come since.

/// Counts since the connection opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Numbered frames sent, resends included.
    pub frames_sent: u64,
    /// Of these, sent again.
    pub frames_resent: u64,
    /// Bytes of all frames sent, without the headers below.
    pub bytes_sent: u64,
    /// Numbered frames that arrived and were taken.
    pub frames_received: u64,
    /// Acknowledgements sent alone.
    pub acks_forced: u64,
    /// Acknowledgements sent on data.
    pub acks_piggybacked: u64,
    /// Of either, those that are negative or tell of frames that are missing.
    pub nacks_sent: u64,
    /// Acknowledgements that came alone.
    pub acks_received_forced: u64,
    /// Acknowledgements that came on data.
    pub acks_received_piggybacked: u64,
    /// Of either, those that were negative or told of frames that are missing.
    pub nacks_received: u64,
    /// Frames whose check failed.
    pub bad_checksums: u64,
    /// Frames that came out of order and were ignored, as go-back-N does.
    pub framing_errors: u64,
    /// Frames that had arrived before.
    pub doubles: u64,
    /// Frames that passed their check and make no sense; or lie outside of the window.
    pub malformed: u64,
    /// Timeouts of data.
    pub timeouts: u64,
    /// Frames sent again to learn what became of the last ones, before a timeout.
    pub tail_probes: u64,
    /// Frames taken for lost.
    pub lost: u64,
    /// Repair frames sent.
    pub repairs_sent: u64,
    /// Repair frames that arrived.
    pub repairs_received: u64,
    /// Numbered frames that were lost, rebuilt and taken. They are not among those received.
    pub frames_rebuilt: u64,
}

/// How long the frames of a connection are that it sends, and how that was found (see
/// [`Options::probe_up_to`](crate::Options::probe_up_to)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Longest frame that is sent whole now, in bytes.
    pub frame: u16,
    /// Probes sent, to find that.
    pub probes: u64,
    /// Of these, answered.
    pub answered: u64,
    /// How often the path was found to carry less than it did.
    pub shrunk: u64,
}

impl Statistics {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, u64); 17] {
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
            ("doubles", self.doubles),
            ("malformed", self.malformed),
            ("timeouts", self.timeouts),
            ("tail_probes", self.tail_probes),
            ("lost", self.lost),
        ]
    }

    /// What only a connection with forward error correction counts, each with its name.
    pub fn named_repairs(&self) -> [(&'static str, u64); 3] {
        [
            ("repairs_sent", self.repairs_sent),
            ("repairs_received", self.repairs_received),
            ("frames_rebuilt", self.frames_rebuilt),
        ]
    }
}
