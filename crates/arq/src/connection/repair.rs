//! Forward error correction: repair frames, as they come and as they go.
//!
//! Repair frames are neither numbered nor acknowledged. They use up window and pace like others: the policy rules over all
//! that leaves, and data has its share of that. What is rebuilt is told, and counts as lost for the policy: to hide a loss
//! from it would be unfair to others on the path (RFC 9265).

use trunkline_endpoint::{MAX_BATCH, Segment};
use trunkline_units::{Instant, Rate, Size, Span};

use super::{Connection, REORDERING};
use crate::End;
use crate::congestion::Lost;
use crate::options::Fec;
use crate::receive::arrivals::Arrival;
use crate::receive::repair::{Block, Outcome, Rebuilder, Rebuilt};
use crate::send::flight::News;
use crate::send::repair::Repairs;
use crate::wire::data::{Chunks, Head};
use crate::wire::repair::{self, EXCESS, Repair};
use crate::wire::{epoch, expand, kind};

/// A block is closed when its sender had nothing to send for a quarter of a round trip: that is little beside the whole one
/// that a resend takes. But no sooner than this, for timers that fire later.
const LEAST_SILENCE: Span = Span::from_us(200);

/// Both halves of it.
#[derive(Debug)]
pub(super) struct Correction {
    fec: Fec,
    repairs: Repairs,
    rebuilder: Rebuilder,
    /// Frames were rebuilt of which the peer has not been told.
    tells: bool,
    /// Frames that the peer said that it had rebuilt, modulo 65,536.
    told: u16,
}

impl Correction {
    /// What comes of what both ends want.
    pub fn agreed(ours: Option<Fec>, theirs: Option<Fec>) -> Option<Box<Correction>> {
        let fec = Fec::agreed(ours, theirs)?;
        let (repairs, rebuilder) = (Repairs::new(fec), Rebuilder::new(fec));
        Some(Box::new(Correction { fec, repairs, rebuilder, tells: false, told: 0 }))
    }

    /// Bytes by which data frames stay below the longest, so that repair frames need not exceed it.
    #[inline]
    pub fn room(correction: &Option<Box<Correction>>) -> usize {
        if correction.is_some() { EXCESS } else { 0 }
    }

    /// Transmissions that pass before a frame is taken for lost: those of its block, or it would be sent again before its
    /// repair frames can have come.
    pub fn reordering(correction: &Option<Box<Correction>>) -> u64 {
        correction.as_ref().map_or(REORDERING, |own| REORDERING + u64::from(own.fec.frames))
    }
}

/// As a sender.
impl Connection {
    /// A frame leaves, for the first time or again; its check is not written yet.
    pub(super) fn protect(&mut self, now: Instant, number: u64, frame: &[u8]) {
        let silence = self.silence();
        let first_time = self.sender.flights.get(number).is_some_and(|flight| flight.transmissions == 0);
        if let Some(own) = &mut self.correction
            && first_time
        {
            let body = &frame[..frame.len() - self.options.check.bytes()];
            own.repairs.add(number, body, now + silence);
        }
    }

    /// Whether repair frames are to leave before any more data.
    #[inline]
    pub(super) fn repairs_are_due(&self) -> bool {
        self.correction.as_ref().is_some_and(|own| own.repairs.is_due())
    }

    /// When repair frames leave, or a block is closed for want of more.
    #[inline]
    pub(super) fn repair_at(&self) -> Instant {
        match &self.correction {
            None => Instant::MAX,
            Some(own) if own.repairs.is_due() && self.pace.is_some() => self.pace_at,
            Some(own) if own.repairs.is_due() => Instant::ZERO,
            Some(own) => own.repairs.close_at(),
        }
    }

    fn silence(&self) -> Span {
        let round_trip = self.round_trip.smoothed().unwrap_or(self.options.timeout.initial);
        (round_trip / 4).max(LEAST_SILENCE)
    }

    /// Closes a block that nothing was added to for long, once there is nothing more to send: what waits only for the pace
    /// or the window will be added to it.
    #[inline]
    pub(super) fn close_block(&mut self, now: Instant) {
        if self.correction.as_ref().is_none_or(|own| own.repairs.close_at() > now) {
            return;
        }
        let flights = &self.sender.flights;
        let (acknowledged, dry) = (flights.base(), !self.sender.can_cut() && flights.due().is_none());
        let later = now + self.silence();
        let Some(own) = &mut self.correction else { return };
        if dry {
            own.repairs.close(acknowledged);
        } else {
            own.repairs.put_off(later);
        }
    }

    /// Writes the repair frames that are due and may leave now, which are equally long.
    #[inline]
    pub(super) fn send_repairs(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
    ) -> Option<(usize, Option<Segment>)> {
        let own = self.correction.as_mut()?;
        if !own.repairs.is_due() || self.pace.is_some() && self.pace_at > now {
            return None;
        }
        let check = self.options.check;
        let (mut at, mut segment) = (0, 0);
        while let Some((first, length)) = own.repairs.next()
            && at + length + check.bytes() <= MAX_BATCH
        {
            segment = length + check.bytes();
            let frame = &mut buffer[at..at + segment];
            own.repairs.write(frame);
            self.guard.seal_repair(first, frame);
            self.statistics.repairs_sent += 1;
            at += segment;
        }
        if let Some(rate) = self.pace {
            let most = self.round_trip.timeout(self.peer_ack_delay);
            self.pace_at = self.pace_at.max(now) + rate.time_for(Size::from_bytes(at as u64)).min(most);
        }
        self.statistics.bytes_sent += at as u64;
        Some((at, Segment::of(segment, at)))
    }

    /// Of so many frames that the policy lets be in flight, those that may be data.
    #[inline]
    pub(super) fn without_repairs(&self, frames: u32) -> u64 {
        match &self.correction {
            None => frames.into(),
            Some(own) => {
                let (data, repairs) = (u64::from(own.fec.frames), u64::from(own.fec.repairs));
                (u64::from(frames) * data / (data + repairs)).max(1)
            }
        }
    }

    /// The rate at which everything arrives, if data does at `rate`.
    pub(super) fn with_repairs(&self, rate: Rate) -> Rate {
        match &self.correction {
            None => rate,
            Some(own) => {
                let (data, repairs) = (u128::from(own.fec.frames), u128::from(own.fec.repairs));
                let bps = u128::from(rate.as_bps()) * (data + repairs) / data;
                Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
            }
        }
    }

    /// The peer told how many frames it has rebuilt, ever; how many since it last did. Their bytes are not among those that
    /// the path delivered.
    pub(super) fn hear_rebuilt(&mut self, count: u16, news: &mut News) -> u32 {
        let Some(own) = &mut self.correction else { return 0 };
        // An acknowledgement that was overtaken tells less.
        let more = (count.wrapping_sub(own.told) as i16).max(0) as u16;
        own.told = own.told.wrapping_add(more);
        news.rebuilt = news.frames.min(more.into());
        news.bytes -= news.bytes * u64::from(news.rebuilt) / u64::from(news.frames.max(1));
        more.into()
    }

    /// So many frames were lost and rebuilt, of those or just before those of which there is news.
    pub(super) fn report_rebuilt(&mut self, now: Instant, frames: u32, news: &News) {
        let sent_at = news.sent_at().unwrap_or(now);
        let (bytes, in_flight) = (u64::from(frames) * self.frame as u64, self.sender.flights.in_flight());
        self.policy.lost(&Lost { now, frames, bytes, sent_at, in_flight, timeout: false });
        self.consult();
    }
}

/// As a receiver.
impl Connection {
    /// A frame has arrived that had not before: it may help to rebuild another.
    pub(super) fn keep(&mut self, now: Instant, number: u64, first: u8, chunks: &[u8]) {
        let Some(own) = &mut self.correction else { return };
        own.rebuilder.keep(number, first, chunks);
        if own.rebuilder.waits() {
            self.rebuild(now);
        }
    }

    /// Takes a repair frame.
    pub(super) fn take_repair(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]])) else {
            return self.statistics.bad_checksums += 1;
        };
        let first = expand(low, self.arrivals.next());
        // Nothing is asked for if it is damaged: it is not sent again.
        if !self.guard.is_sealed() {
            return match self.guard.open(epoch(first), frame) {
                Ok(body) => self.take_repair_of(now, first, body),
                Err(why) => self.refuse(why),
            };
        }
        match self.guard.decrypt_repair(frame) {
            Ok(body) => {
                self.take_repair_of(now, first, &body);
                self.guard.keep(body);
            }
            Err(why) => self.refuse(why),
        }
    }

    /// Takes what a repair frame of the block from `first` on held before its check.
    fn take_repair_of(&mut self, now: Instant, first: u64, body: &[u8]) {
        let Some((Repair { row, frames, .. }, sum)) = Repair::read(body) else {
            return self.statistics.malformed += 1;
        };
        self.hear(now);
        if self.over.is_some_and(|end| end != End::Done) {
            return;
        }
        // No frame that can have been sent is outside of the window.
        let last = first.checked_add(u64::from(frames) - 1);
        let inside = last.is_some_and(|last| self.arrivals.judge(last) != Arrival::Outside);
        let Some(own) = self.correction.as_mut().filter(|_| inside) else {
            return self.statistics.malformed += 1;
        };
        if !own.rebuilder.hold(Block { first, frames }, row, sum) {
            return self.statistics.malformed += 1;
        }
        self.statistics.repairs_received += 1;
        self.rebuild(now);
    }

    /// Rebuilds what can be, and takes it as if it had arrived.
    fn rebuild(&mut self, now: Instant) {
        while let Some(own) = &mut self.correction {
            match own.rebuilder.rebuild(&self.arrivals) {
                Outcome::Nothing => return,
                Outcome::Nonsense => self.statistics.malformed += 1,
                Outcome::Frames(frames) => frames.into_iter().for_each(|frame| self.take_rebuilt(now, frame)),
            }
        }
    }

    fn take_rebuilt(&mut self, now: Instant, rebuilt: Rebuilt) {
        let Rebuilt { number, first, chunks } = rebuilt;
        let flags = first & !repair::CHANGING & 31;
        let head = Head { kind: kind(first), flags, number: number as u32 & 0xFF_FFFF, acknowledged: None };
        let Some(chunks) = Chunks::read(&head, &chunks).filter(|_| head.is_numbered()) else {
            return self.statistics.malformed += 1;
        };
        if self.over.is_some_and(|end| end != End::Done) {
            return;
        }
        let arrival = self.arrivals.judge(number);
        if matches!(arrival, Arrival::Double | Arrival::Outside) {
            return;
        }
        self.arrivals.note(number);
        self.statistics.frames_rebuilt += 1;
        if let Some(own) = &mut self.correction {
            own.tells = true;
        }
        self.owe(now, arrival, true);
        self.take_chunks(number, chunks);
        if self.closing.peer.is_some() {
            self.move_on();
        }
    }

    /// Whether an acknowledgement that goes alone has more to tell than one on data.
    #[inline]
    pub(super) fn tells_of_repair(&self) -> bool {
        self.correction.as_ref().is_some_and(|own| own.tells)
    }

    /// The count of frames that were rebuilt, for an acknowledgement, once there are any.
    pub(super) fn tell_rebuilt(&mut self) -> Option<u16> {
        let own = self.correction.as_mut()?;
        own.tells = false;
        (self.statistics.frames_rebuilt > 0).then_some(self.statistics.frames_rebuilt as u16)
    }
}
