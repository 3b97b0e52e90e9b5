//! Blocks to report, timestamps, and feedback of ECN; the options of sent and received segments.

use trunkline_congestion::Algorithm;
use trunkline_endpoint::Ecn;
use trunkline_units::{Instant, Span};

use crate::Content;
use crate::extensions::accurate::{self, AccurateEcn};
use crate::extensions::{Extensions, Timestamps};
use crate::options::{EcnFeedback, Options};
use crate::ranges::Ranges;
use crate::segment::{
    ACK, CWR, ECE, Header, MAX_BLOCKS, Offer, PSH, RST, SYN, SegmentOptions, Seq, TIMESTAMPS_LENGTH, ace,
    only_timestamps, set_ace, write_timestamps,
};
use crate::tcp::{MAX_PENDING_ACKS, Tcp};
use crate::time::OFF;

/// Age after which the last timestamp of the peer says nothing (RFC 7323 section 5.5).
const TIMESTAMP_LIFETIME: Span = Span::from_s(24 * 86_400);

/// Smallest maximum segment size with which segments carry data and blocks.
const MIN_MSS_FOR_BLOCKS: u32 = 256;

/// Returns the timestamp of a time, in milliseconds.
#[inline]
pub(crate) fn timestamp(now: Instant) -> u32 {
    (now.as_ns() / 1_000_000) as u32
}

impl Extensions {
    /// Returns the options of a segment that leaves now, with up to so many blocks. Byte counters of Accurate ECN are added to
    /// acknowledgements without data if there is room.
    fn segment_options(&self, now: Instant, ranges: &Ranges, blocks: u32, is_bare: bool) -> SegmentOptions {
        let mut options = SegmentOptions {
            timestamps: self.timestamps.map(|timestamps| (timestamp(now), timestamps.recent)),
            ..SegmentOptions::default()
        };
        let mut push = |range: (Seq, Seq)| {
            if options.block_count < blocks as usize && !options.blocks().contains(&range) {
                options.push_block(range.0, range.1);
            }
        };
        if blocks > 0 {
            self.recent_blocks.iter().flatten().filter_map(|seq| ranges.containing(*seq)).for_each(&mut push);
            ranges.iter().take(2 * MAX_BLOCKS).for_each(&mut push);
        }
        let most = MAX_BLOCKS - 1 - usize::from(options.timestamps.is_some());
        if is_bare && options.block_count <= most {
            options.ecn_bytes = self.accurate.as_ref().map(AccurateEcn::option);
        }
        options
    }

    /// Returns the ECN field of segments that may be marked: ECT(1) asks for the treatment of L4S (RFC 9331 section 4.1).
    fn capable(&self, options: &Options) -> Ecn {
        let is_l4s = self.accurate.is_some() && options.algorithm() == Algorithm::Prague;
        if is_l4s { Ecn::Ect1 } else { Ecn::Ect0 }
    }

    /// Notes that a segment has arrived out of order: its block is reported first (RFC 2018 section 4).
    pub(crate) fn add_recent_block(&mut self, start: Seq, ranges: &Ranges) {
        let known = ranges.containing(start).and_then(|range| {
            self.recent_blocks
                .iter()
                .position(|seq| seq.is_some_and(|seq| !seq.before(range.0) && seq.before(range.1)))
        });
        let slot = known.unwrap_or(self.recent_blocks.len() - 1);
        self.recent_blocks[..=slot].rotate_right(1);
        self.recent_blocks[0] = Some(start);
    }

    /// Checks and records the timestamps of a segment; returns whether it is acceptable (RFC 7323, sections 4.3 and 5).
    #[inline]
    fn accept_timestamps(&mut self, now: Instant, header: &Header, last_ack_sent: Seq) -> bool {
        let Some(timestamps) = &mut self.timestamps else { return true };
        let Some((value, _)) = self.received.timestamps else { return header.has(RST) };
        let is_older = (value.wrapping_sub(timestamps.recent) as i32) < 0;
        if is_older && now.since(timestamps.recent_at) < TIMESTAMP_LIFETIME {
            return header.has(RST);
        }
        if !header.seq.after(last_ack_sent) {
            *timestamps = Timestamps { recent: value, recent_at: now };
        }
        true
    }

    /// Processes the ECN field and the CWR flag of a segment with this much data.
    #[inline]
    fn process_ecn(&mut self, header: &Header, payload: u32) -> EcnAction {
        let is_marked = self.received_ecn == Ecn::Ce;
        if let Some(accurate) = &mut self.accurate {
            let begins = accurate.count(self.received_ecn, payload);
            return if begins { EcnAction::AcknowledgeThis } else { EcnAction::None };
        }
        match self.ecn.filter(|_| payload > 0) {
            Some(EcnFeedback::Exact) if self.congestion_seen != is_marked => {
                self.congestion_seen = is_marked;
                EcnAction::AcknowledgeEarlier
            }
            Some(EcnFeedback::Classic) => {
                self.congestion_seen = is_marked || self.congestion_seen && !header.has(CWR);
                EcnAction::None
            }
            _ => EcnAction::None,
        }
    }

    /// Returns the feedback of a connection whose SYN and answer are known: what this end asks for, as far as the peer's header
    /// agrees (RFC 9768, table 2).
    fn negotiate_ecn(&mut self, requested: Option<EcnFeedback>, header: &Header) -> Option<EcnFeedback> {
        let (requested, is_answer) = (requested?, header.has(ACK));
        self.accurate = match (requested, is_answer, self.received_ace) {
            (EcnFeedback::Accurate, false, 0b111) => Some(AccurateEcn::new(None)),
            (EcnFeedback::Accurate, true, 0b010 | 0b011 | 0b100 | 0b110) => {
                Some(AccurateEcn::new(Some(self.received_ecn)))
            }
            _ => None,
        };
        if self.accurate.is_some() {
            return Some(requested);
        }
        let is_classic = self.received_ace & 0b011 == if is_answer { 0b001 } else { 0b011 };
        let feedback = if requested == EcnFeedback::Exact { requested } else { EcnFeedback::Classic };
        is_classic.then_some(feedback)
    }
}

/// What the ECN field of a segment asks of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EcnAction {
    None,
    /// Acknowledge at once what arrived before.
    AcknowledgeEarlier,
    /// Acknowledge at once, with the segment.
    AcknowledgeThis,
}

impl<C: Content> Tcp<C> {
    /// Records the field ACE of a segment, whose flag AE the header does not include.
    #[inline]
    pub(crate) fn note_ace(&mut self, segment: &[u8]) {
        if let Some(extensions) = &mut self.extensions {
            extensions.received_ace = ace(segment);
        }
    }

    /// Extends the offer of a SYN; returns its field ACE (RFC 3168 section 6.1.1, RFC 9768 section 3.1).
    pub(crate) fn extend_offer(&self, now: Instant, answers: bool, offer: &mut Offer) -> u8 {
        let Some(extensions) = &self.extensions else { return 0 };
        let (timestamps, ecn) = if answers {
            offer.sack_permitted = extensions.sack;
            (extensions.timestamps.is_some(), extensions.ecn.is_some())
        } else {
            offer.sack_permitted = self.options.sack;
            (self.options.timestamps, self.options.ecn.is_some())
        };
        let echo = extensions.timestamps.map_or(0, |timestamps| timestamps.recent);
        offer.timestamps = timestamps.then(|| (timestamp(now), echo));
        match (ecn, answers) {
            (false, _) => 0,
            (true, true) if extensions.accurate.is_some() => accurate::handshake(extensions.syn_ecn),
            (true, true) => 0b001,
            (true, false) if self.options.ecn == Some(EcnFeedback::Accurate) => 0b111,
            (true, false) => 0b011,
        }
    }

    /// Negotiates the extensions with the options of the peer's SYN, and creates the congestion controller.
    #[cold]
    pub(crate) fn negotiate_extensions(&mut self, now: Instant, header: &Header, offer: &Offer) {
        let Some(extensions) = self.extensions.as_deref_mut() else { return };
        extensions.sack = self.options.sack && offer.sack_permitted;
        extensions.timestamps = offer
            .timestamps
            .filter(|_| self.options.timestamps)
            .map(|(recent, _)| Timestamps { recent, recent_at: now });
        extensions.ecn = extensions.negotiate_ecn(self.options.ecn, header);
        extensions.syn_ecn = extensions.received_ecn;
        if extensions.timestamps.is_some() {
            // The maximum segment size does not count options (RFC 6691).
            self.maxseg = self.maxseg.saturating_sub(TIMESTAMPS_LENGTH).max(1);
        }
        let max = (0xffff << self.snd_scale).max(self.maxseg);
        extensions.negotiated(&self.options, self.maxseg, max);
    }

    /// Processes a segment of an end with extensions, once the peer's sequence number is known.
    #[inline(never)]
    pub(crate) fn process_with_options(
        &mut self,
        now: Instant,
        header: Header,
        options: &[u8],
        payload: &[u8],
    ) {
        self.last_received_at = now;
        let Some(extensions) = self.extensions.as_deref_mut() else { return };
        match only_timestamps(options) {
            Some(both) => {
                let received = &mut extensions.received;
                (received.timestamps, received.block_count, received.ecn_bytes) = (Some(both), 0, None);
            }
            None => extensions.received = SegmentOptions::parse(options),
        }
        extensions.received_echo = header.has(ECE) && !header.has(SYN) && extensions.ecn.is_some();
        if !header.has(SYN) && !extensions.accept_timestamps(now, &header, self.last_ack_sent) {
            self.counts.outside_window += 1;
            return self.request_ack();
        }
        if header.has(RST) {
            return self.process_reset(&header);
        }
        match extensions.process_ecn(&header, payload.len() as u32) {
            EcnAction::AcknowledgeEarlier if self.rcv_nxt != self.last_ack_sent => {
                if extensions.early_acks.len() < usize::from(MAX_PENDING_ACKS) {
                    extensions.early_acks.push_back((self.rcv_nxt, !extensions.congestion_seen));
                }
                self.last_ack_sent = self.rcv_nxt;
                self.request_output();
            }
            EcnAction::AcknowledgeThis => self.request_ack(),
            EcnAction::AcknowledgeEarlier | EcnAction::None => {}
        }
        if self.is_expected(&header, payload) && self.expects_no_ack() {
            if self.snd_wl1.before(header.seq) || self.snd_wl1 == header.seq {
                (self.snd_wl1, self.snd_wl2) = (header.seq, header.ack);
            }
            (self.dupacks, self.timing) = (0, false);
            // As after any acknowledgement: an end without room waits for it, even if it will have nothing to send.
            self.request_output();
            self.receive(now, header.seq, false, payload);
            if self.options.linux {
                self.acknowledge_quickly(now, payload.len() as u32, header.has(PSH));
            }
            return;
        }
        self.process_in_window::<true>(now, header, payload);
    }

    /// Returns the number of blocks in the header of a segment, which carries data or not.
    fn block_count(&self, with_data: bool) -> u32 {
        let Some(extensions) = &self.extensions else { return 0 };
        if !extensions.sack || with_data && self.maxseg < MIN_MSS_FOR_BLOCKS {
            return 0;
        }
        let most = MAX_BLOCKS - usize::from(extensions.timestamps.is_some());
        self.ranges.len().min(most) as u32
    }

    /// Returns the payload that a segment holds beside its blocks.
    #[inline]
    pub(crate) fn segment_size(&self) -> u32 {
        if self.extensions.is_none() || self.ranges.is_empty() {
            return self.maxseg;
        }
        match self.block_count(true) {
            0 => self.maxseg,
            count => self.maxseg - 4 - 8 * count,
        }
    }

    /// Writes the options of a segment behind its header, and its flags of ECN; returns the length of both.
    #[cold]
    pub(crate) fn write_options(&mut self, now: Instant, seq: Seq, length: u32, buffer: &mut [u8]) -> usize {
        let blocks = self.block_count(length > 0);
        let Some(extensions) = self.extensions.as_deref_mut() else { return 0 };
        let is_new = length > 0 && !seq.before(self.snd_max);
        // RFC 3168, sections 6.1.4 to 6.1.6: neither acknowledgements nor retransmissions nor window probes.
        let is_probe = self.snd_wnd == 0 && self.deadlines.persist != OFF;
        extensions.sent_ecn = match extensions.ecn {
            Some(_) if is_new && !is_probe => extensions.capable(&self.options),
            _ => Ecn::NotEct,
        };
        let mut ace = u8::from(extensions.congestion_seen);
        if let Some(accurate) = &mut extensions.accurate {
            ace = accurate.next_ace();
        } else if is_new && std::mem::take(&mut extensions.confirm_reduction) {
            ace |= 0b010;
        }
        let is_used = extensions.ecn.is_some();
        let length = match extensions.timestamps {
            Some(Timestamps { recent, .. }) if blocks == 0 && extensions.accurate.is_none() => {
                write_timestamps(timestamp(now), recent, buffer)
            }
            _ => extensions.segment_options(now, &self.ranges, blocks, length == 0).write(buffer),
        };
        if is_used {
            set_ace(buffer, ace);
        }
        length
    }

    /// Writes an acknowledgement of what arrived before a change of the marks (RFC 8257 section 3.2), if one is pending.
    #[inline]
    pub(crate) fn write_early_ack(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        let early = self.extensions.as_deref_mut()?.early_acks.pop_front()?;
        self.write_ack_of(now, early, buffer)
    }

    #[cold]
    fn write_ack_of(&mut self, now: Instant, early: (Seq, bool), buffer: &mut [u8]) -> Option<usize> {
        let ((ack, was_marked), extensions) = (early, self.extensions.as_deref_mut()?);
        let window = self.rcv_adv.since(ack) >> self.rcv_scale;
        let header = Header {
            source: self.options.local,
            destination: self.remote,
            seq: self.snd_max,
            ack,
            flags: ACK | if was_marked { ECE } else { 0 },
            window: window.min(0xffff) as u16,
        };
        header.write(None, buffer);
        extensions.sent_ecn = Ecn::NotEct;
        self.counts.segments_sent += 1;
        self.counts.acks_sent += 1;
        Some(extensions.segment_options(now, &self.ranges, 0, true).write(buffer))
    }
}
