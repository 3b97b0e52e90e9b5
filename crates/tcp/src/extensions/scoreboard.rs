//! The segments in flight, and what is known of each: sent when, acknowledged selectively, lost, sent again (RFC 6675).

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use crate::extensions::rate::{DeliveryRate, SendState};
use crate::segment::Seq;

/// Maximum number of segments in flight; more wait, whatever the window.
pub(crate) const MAX_RECORDS: usize = 1 << 18;

/// Segments acknowledged selectively behind a missing one that make it a lost one (RFC 6675 section 2, `DupThresh`).
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;

/// Blocks of earlier acknowledgements, which need no second look.
const SEEN_BLOCKS: usize = 4;

/// A segment in flight.
#[derive(Clone, Copy, Debug)]
struct Record {
    start: Seq,
    end: Seq,
    /// When it was last sent.
    sent_at: Instant,
    /// Acknowledged selectively.
    sacked: bool,
    /// Considered lost. If it was sent again since, `retransmitted` is set too.
    lost: bool,
    retransmitted: bool,
    /// It was sent more than once: its round-trip time is ambiguous (Karn).
    ambiguous: bool,
    /// State of the connection when it was last sent.
    state: SendState,
}

impl Record {
    fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// Returns whether it is in the network, as far as is known.
    fn in_network(&self) -> bool {
        !self.sacked && (!self.lost || self.retransmitted)
    }

    fn awaits_retransmission(&self) -> bool {
        !self.sacked && self.lost && !self.retransmitted
    }
}

/// What an acknowledgement reports for the first time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes delivered, cumulatively or selectively.
    pub bytes: u32,
    /// The segment of them that was sent last.
    pub newest: Option<Newest>,
    /// When the last of those was sent that were sent only once.
    pub unambiguous: Option<Instant>,
    /// When the first of those was sent.
    pub first_unambiguous: Option<Instant>,
    /// End of the highest block that was acknowledged selectively before, and whether a segment below it that was sent once
    /// has arrived only now (RFC 8985 section 6.2, step 3).
    pub highest_before: Option<Seq>,
    pub reordered: bool,
}

/// The segment that was sent last among those that an acknowledgement reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Newest {
    pub sent_at: Instant,
    pub end: Seq,
    pub ambiguous: bool,
    pub state: SendState,
}

impl Delivery {
    #[inline]
    fn add(&mut self, record: &Record, bytes: u32) {
        self.bytes += bytes;
        let &Record { sent_at, end, ambiguous, state, .. } = record;
        let is_newest = |n: &Newest| sent_at > n.sent_at || sent_at == n.sent_at && end.after(n.end);
        if self.newest.as_ref().is_none_or(is_newest) {
            self.newest = Some(Newest { sent_at, end, ambiguous, state });
        }
        self.reordered |= !ambiguous && self.highest_before.is_some_and(|highest| !end.after(highest));
        if !ambiguous {
            self.unambiguous = self.unambiguous.max(Some(sent_at));
            self.first_unambiguous = Some(self.first_unambiguous.map_or(sent_at, |first| first.min(sent_at)));
        }
    }

    /// Returns when the last of them was sent.
    #[inline]
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.newest.as_ref().map(|newest| newest.sent_at)
    }
}

/// Bytes declared lost, and when the last of them was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Losses {
    pub bytes: u32,
    pub sent_at: Instant,
    /// State of the connection when it was sent; none for losses without a segment.
    pub state: Option<SendState>,
}

impl Losses {
    /// Adds other losses.
    #[inline]
    pub(crate) fn join(&mut self, other: Losses) {
        self.bytes += other.bytes;
        if self.state.is_none() || other.sent_at >= self.sent_at {
            (self.sent_at, self.state) = (self.sent_at.max(other.sent_at), other.state.or(self.state));
        }
    }

    fn add(&mut self, record: &Record) {
        self.join(Losses { bytes: record.len(), sent_at: record.sent_at, state: Some(record.state) });
    }
}

/// The segments in flight, contiguous and in order.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    /// Bytes in the network (`pipe` of RFC 6675).
    pipe: u32,
    /// Bytes that are lost and not sent again.
    awaiting: u32,
    /// Segments acknowledged selectively, and the end of the highest.
    sacked: u32,
    highest_sacked: Option<Seq>,
    /// Everything below that is not acknowledged was declared lost.
    lost_edge: Option<Seq>,
    /// Nothing below awaits retransmission.
    retransmit_from: Option<Seq>,
    /// Retransmissions in the order of their sending.
    retransmissions: VecDeque<(Seq, Instant)>,
    seen: [(Seq, Seq); SEEN_BLOCKS],
    pub(crate) rate: DeliveryRate,
}

impl Scoreboard {
    /// Returns the bytes in the network.
    #[inline]
    pub(crate) fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Returns the bytes that are lost and not sent again.
    #[inline]
    pub(crate) fn awaiting(&self) -> u32 {
        self.awaiting
    }

    /// Returns the bytes that are lost and not acknowledged, sent again or not.
    pub(crate) fn lost(&self) -> u32 {
        self.records.iter().filter(|record| record.lost && !record.sacked).map(Record::len).sum()
    }

    /// Returns whether no further segment may be sent.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= MAX_RECORDS
    }

    /// Returns when the last segment was sent.
    pub(crate) fn last_sent_at(&self) -> Instant {
        let last = self.records.back().map_or(Instant::ZERO, |record| record.sent_at);
        last.max(self.retransmissions.back().map_or(Instant::ZERO, |retransmission| retransmission.1))
    }

    /// Returns when the first segment was last sent.
    pub(crate) fn first_sent_at(&self) -> Option<Instant> {
        self.records.front().map(|first| first.sent_at)
    }

    /// Returns the index of the first record that ends behind `seq`.
    fn index(&self, seq: Seq) -> usize {
        self.records.partition_point(|record| !record.end.after(seq))
    }

    /// Records new data.
    #[inline]
    pub(crate) fn sent(&mut self, start: Seq, end: Seq, now: Instant) {
        let length = end.since(start);
        let state = self.rate.on_sent(now, length, self.pipe);
        self.pipe += length;
        self.records.push_back(Record {
            start,
            end,
            sent_at: now,
            sacked: false,
            lost: false,
            retransmitted: false,
            ambiguous: false,
            state,
        });
    }

    /// Records new data that is lost at once: a window probe, which the peer need not accept.
    pub(crate) fn sent_probe(&mut self, start: Seq, end: Seq, now: Instant) {
        self.sent(start, end, now);
        if let Some(last) = self.records.back_mut().filter(|last| last.start == start) {
            (last.lost, last.ambiguous) = (true, true);
            self.pipe -= last.len();
            self.awaiting += last.len();
            self.retransmit_from.get_or_insert(start);
        }
    }

    /// Records a retransmission of `start..end`. A record that is not sent as a whole is split.
    pub(crate) fn retransmitted(&mut self, start: Seq, end: Seq, now: Instant) {
        let mut index = self.index(start);
        while let Some(record) = self.records.get(index).copied().filter(|record| record.start.before(end)) {
            if record.end.after(end) {
                self.records[index].end = end;
                self.records.insert(index + 1, Record { start: end, ..record });
            }
            let record = &mut self.records[index];
            if record.awaits_retransmission() {
                self.awaiting -= record.len();
                self.pipe += record.len();
                record.retransmitted = true;
            }
            let others = self.pipe.saturating_sub(record.len());
            record.state = self.rate.on_sent(now, record.len(), others);
            (record.sent_at, record.ambiguous) = (now, true);
            self.retransmissions.push_back((record.start, now));
            index += 1;
        }
        if self.retransmit_from == Some(start) {
            self.retransmit_from = Some(end);
        }
    }

    /// Removes everything below `ack`.
    pub(crate) fn acknowledge(&mut self, ack: Seq, delivery: &mut Delivery) {
        while let Some(first) = self.records.front_mut().filter(|first| first.start.before(ack)) {
            let bytes = if first.end.after(ack) { ack.since(first.start) } else { first.len() };
            if !first.sacked {
                delivery.add(first, bytes);
                if first.in_network() {
                    self.pipe -= bytes;
                } else {
                    self.awaiting -= bytes;
                }
            }
            if first.end.after(ack) {
                first.start = ack;
                break;
            }
            self.sacked -= u32::from(first.sacked);
            self.records.pop_front();
        }
        // No number may stay that is so old that comparisons with it wrap.
        for edge in [&mut self.highest_sacked, &mut self.lost_edge] {
            *edge = edge.filter(|edge| edge.after(ack));
        }
        if self.highest_sacked.is_none() {
            self.seen = Default::default();
        }
        if self.awaiting == 0 {
            self.retransmit_from = None;
        }
        while self.retransmissions.front().is_some_and(|(start, _)| start.before(ack)) {
            self.retransmissions.pop_front();
        }
    }

    /// Records a block that the peer acknowledges selectively, within the data in flight. Only whole records count.
    pub(crate) fn sack(&mut self, start: Seq, end: Seq, delivery: &mut Delivery) {
        let is_part = |seen: &(Seq, Seq)| {
            seen.0 != seen.1 && !seen.0.before(start) && !seen.1.after(end) && seen.0.before(end)
        };
        let slot = self.seen.iter().position(is_part);
        match slot.map(|slot| self.seen[slot]) {
            None => self.sack_unseen(start, end, delivery),
            Some(seen) => {
                self.sack_unseen(start, seen.0, delivery);
                self.sack_unseen(seen.1, end, delivery);
            }
        }
        self.seen[..=slot.unwrap_or(SEEN_BLOCKS - 1)].rotate_right(1);
        self.seen[0] = (start, end);
        if self.highest_sacked.is_none_or(|highest| end.after(highest)) {
            self.highest_sacked = Some(end);
        }
    }

    fn sack_unseen(&mut self, start: Seq, end: Seq, delivery: &mut Delivery) {
        if !start.before(end) {
            return;
        }
        let mut index = self.records.partition_point(|record| record.start.before(start));
        while let Some(record) = self.records.get_mut(index).filter(|record| !record.end.after(end)) {
            if !record.sacked {
                if record.in_network() {
                    self.pipe -= record.len();
                } else {
                    self.awaiting -= record.len();
                }
                record.sacked = true;
                self.sacked += 1;
                delivery.add(record, record.len());
            }
            index += 1;
        }
    }

    fn mark_lost(&mut self, index: usize, losses: &mut Losses) {
        let record = &mut self.records[index];
        if record.in_network() {
            self.pipe -= record.len();
            self.awaiting += record.len();
            losses.add(record);
            (record.lost, record.retransmitted) = (true, false);
            let start = record.start;
            if self.retransmit_from.is_none_or(|from| start.before(from)) {
                self.retransmit_from = Some(start);
            }
        }
    }

    /// Declares segments lost that have enough data acknowledged selectively behind them: three segments, or more than two
    /// of the maximum size (RFC 6675 section 4, `IsLost`).
    pub(crate) fn detect_losses(&mut self, mss: u32, losses: &mut Losses) {
        let Some(highest) = self.highest_sacked else { return };
        let (mut segments, mut bytes) = (0, 0);
        let mut edge = self.records.partition_point(|record| !record.end.after(highest));
        while edge > 0 && segments < DUPLICATE_THRESHOLD && bytes <= (DUPLICATE_THRESHOLD - 1) * mss {
            edge -= 1;
            if self.records[edge].sacked {
                (segments, bytes) = (segments + 1, bytes + self.records[edge].len());
            }
        }
        if segments < DUPLICATE_THRESHOLD && bytes <= (DUPLICATE_THRESHOLD - 1) * mss {
            return;
        }
        let first = self.lost_edge.map_or(0, |edge| self.index(edge));
        for index in first..edge {
            if !self.records[index].lost {
                self.mark_lost(index, losses);
            }
        }
        let edge = self.records[edge].start;
        if self.lost_edge.is_none_or(|old| edge.after(old)) {
            self.lost_edge = Some(edge);
        }
    }

    /// Declares retransmissions lost that were sent before data that has arrived, `delivered_sent_at` (RFC 8985 section 6.2).
    pub(crate) fn detect_lost_retransmissions(&mut self, delivered_sent_at: Instant, losses: &mut Losses) {
        while let Some(&(start, sent_at)) = self.retransmissions.front() {
            if sent_at >= delivered_sent_at {
                break;
            }
            self.retransmissions.pop_front();
            let index = self.index(start);
            // It was delivered, or sent once more.
            let is_current = self.records.get(index).is_some_and(|record| {
                record.start == start && record.sent_at == sent_at && record.retransmitted && !record.sacked
            });
            if is_current {
                self.mark_lost(index, losses);
            }
        }
    }

    /// Declares lost what was sent before `newest`, a segment that has arrived, and at least `wait` before `now` (RFC 8985
    /// section 6.2, step 5). Returns when the first of the others was sent.
    pub(crate) fn detect_overdue(
        &mut self,
        newest: (Instant, Seq),
        (now, wait): (Instant, Span),
        losses: &mut Losses,
    ) -> Option<Instant> {
        if self.highest_sacked.is_none() && self.retransmissions.is_empty() {
            return None;
        }
        let mut pending = None;
        while let Some(&(start, sent_at)) = self.retransmissions.front() {
            let index = self.index(start);
            if self.is_retransmission(index, start, sent_at) {
                if sent_at >= newest.0 {
                    break;
                }
                if now.since(sent_at) < wait {
                    pending = Some(sent_at);
                    break;
                }
                self.mark_lost(index, losses);
            }
            self.retransmissions.pop_front();
        }
        let mut index = self.lost_edge.map_or(0, |edge| self.index(edge));
        while let Some(&Record { start, end, sent_at, sacked, ambiguous, .. }) = self.records.get(index) {
            // Retransmissions were judged before.
            if !ambiguous {
                let is_before = sent_at < newest.0 || sent_at == newest.0 && newest.1.after(end);
                let is_pending = is_before && !sacked && now.since(sent_at) < wait;
                if is_pending {
                    pending = Some(pending.map_or(sent_at, |earlier: Instant| earlier.min(sent_at)));
                }
                if is_pending || !is_before {
                    self.lost_edge = Some(start);
                    return pending;
                }
                if !sacked {
                    self.mark_lost(index, losses);
                }
            }
            index += 1;
        }
        self.lost_edge = self.records.back().map(|last| last.end);
        pending
    }

    /// Returns whether a record is a retransmission of this time that is in the network.
    fn is_retransmission(&self, index: usize, start: Seq, sent_at: Instant) -> bool {
        self.records
            .get(index)
            .is_some_and(|record| record.start == start && record.sent_at == sent_at && record.in_network())
    }

    /// Declares the first segment lost.
    pub(crate) fn lose_first(&mut self, losses: &mut Losses) {
        if !self.records.is_empty() {
            self.mark_lost(0, losses);
        }
    }

    /// Declares everything lost that is not acknowledged. If the peer has acknowledged the first segment only selectively, it
    /// has discarded what it acknowledged so (RFC 2018 section 8), and all of that is forgotten.
    pub(crate) fn lose_all(&mut self, losses: &mut Losses) {
        if self.records.front().is_some_and(|first| first.sacked) {
            for record in self.records.iter_mut().filter(|record| record.sacked) {
                (record.sacked, record.lost, record.retransmitted) = (false, false, false);
                self.pipe += record.len();
            }
            (self.sacked, self.highest_sacked, self.seen) = (0, None, Default::default());
        }
        for index in 0..self.records.len() {
            self.mark_lost(index, losses);
        }
        self.retransmissions.clear();
        self.lost_edge = self.records.back().map(|last| last.end);
        self.retransmit_from = self.records.front().map(|first| first.start);
    }

    /// Returns the number of segments that are acknowledged selectively.
    #[inline]
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Returns the end of the highest block that is acknowledged selectively.
    #[inline]
    pub(crate) fn highest_sacked(&self) -> Option<Seq> {
        self.highest_sacked
    }

    /// Returns whether anything is acknowledged selectively.
    #[inline]
    pub(crate) fn has_sacked(&self) -> bool {
        self.highest_sacked.is_some()
    }

    /// Returns start and length of the last segment.
    pub(crate) fn last(&self) -> Option<(Seq, u32)> {
        self.records.back().map(|last| (last.start, last.len()))
    }

    /// Declares everything lost that was sent before this time and is not acknowledged.
    pub(crate) fn detect_older(&mut self, sent_before: Instant, losses: &mut Losses) {
        for index in 0..self.records.len() {
            if self.records[index].sent_at < sent_before {
                self.mark_lost(index, losses);
            }
        }
    }

    /// Considers nothing lost any more but what was sent again.
    pub(crate) fn revive(&mut self) {
        for record in self.records.iter_mut().filter(|record| record.awaits_retransmission()) {
            record.lost = false;
            self.awaiting -= record.len();
            self.pipe += record.len();
        }
        self.lost_edge = None;
    }

    /// Returns the next lost data to send again, contiguous and no longer than `most`.
    pub(crate) fn next_lost(&mut self, most: u32) -> Option<(Seq, u32)> {
        if self.awaiting == 0 {
            return None;
        }
        let mut index = self.retransmit_from.map_or(0, |from| self.index(from));
        while !self.records.get(index)?.awaits_retransmission() {
            index += 1;
        }
        let start = self.records[index].start;
        self.retransmit_from = Some(start);
        let mut length = 0;
        for record in self.records.range(index..).take_while(|record| record.awaits_retransmission()) {
            length += record.len();
            if length >= most {
                break;
            }
        }
        Some((start, length.min(most)))
    }

    /// Checks the counters against the records.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self, snd_una: Seq, snd_max: Seq) {
        if let (Some(first), Some(last)) = (self.records.front(), self.records.back()) {
            assert!(first.start == snd_una && last.end == snd_max, "{snd_una:?} {snd_max:?} {self:?}");
        }
        if self.records.len() < 64 {
            assert_eq!(self.records.iter().filter(|record| record.sacked).count(), self.sacked as usize);
            let sum = |filter: fn(&Record) -> bool| -> u32 {
                self.records.iter().filter(|record| filter(record)).map(Record::len).sum()
            };
            assert_eq!(
                (sum(Record::in_network), sum(Record::awaits_retransmission)),
                (self.pipe, self.awaiting)
            );
            assert!(self.records.iter().zip(self.records.iter().skip(1)).all(|(a, b)| a.end == b.start));
        }
        assert!(self.records.len() <= 2 * MAX_RECORDS);
    }
}

#[cfg(test)]
mod tests;
