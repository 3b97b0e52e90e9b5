//! Frames, as they come and as they go.

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_units::{Instant, Size, Span};

use super::{Connection, Correction, Errand, control};
use crate::End;
use crate::congestion::Sent;
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::send::sheets::{self, Laid};
use crate::stages::{Of, Stage};
use crate::wire::check::Unopened;
use crate::wire::data::{self, ACK, ASK, CONTROL, Chunks, Head, NACK};
use crate::wire::{KIND_ACK, KIND_CONTROL, KIND_PART, KIND_REPAIR, epoch, expand, kind, open};

/// A batch holds no more than leaves within this at the pace, and two frames at the least.
const QUANTUM: Span = Span::from_ms(1);
/// How far behind its pace a connection may be and catch up.
pub(super) const CATCH_UP: Span = Span::from_us(500);
/// Most errands that wait: questions of the peer that find more are not answered.
pub(super) const ERRANDS: usize = 8;

/// What tells the last frames sent from all others, to know an answer to them.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    last: [[u8; 16]; 8],
    at: usize,
}

impl Echoes {
    #[inline]
    pub(super) fn note(&mut self, frame: &[u8]) {
        if let Some(echo) = open::echo(frame) {
            self.last[self.at % 8] = echo;
            self.at += 1;
        }
    }

    fn knows(&self, echo: &[u8; 16]) -> bool {
        self.last[..self.at.min(8)].contains(echo)
    }
}

impl Connection {
    /// Takes a frame of the peer.
    #[inline]
    pub fn take_frame(&mut self, now: Instant, frame: &[u8]) {
        if self.plain && self.take_next(now, frame) {
            return;
        }
        let Some(&first) = frame.first() else { return self.statistics.bad_checksums += 1 };
        match kind(first) {
            KIND_ACK => self.take_ack(now, frame),
            KIND_CONTROL => self.take_errand(now, frame),
            KIND_PART => self.take_part(now, frame),
            KIND_REPAIR if self.correction.is_some() => self.take_repair(now, frame),
            _ => self.take_numbered(now, frame),
        }
    }

    #[inline]
    fn take_numbered(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]])) else {
            return self.take_damaged(now);
        };
        let number = expand(low, self.arrivals.next());
        let began = self.stages.begin(Of::FramesIn);
        if self.guard.is_sealed() {
            return self.take_sealed(now, number, frame, began);
        }
        let body = self.guard.open(epoch(number), frame);
        let opened = self.stages.next(Stage::Open, began);
        match body {
            Ok(body) => self.take_body(now, number, body, opened),
            Err(_) => self.take_damaged(now),
        }
    }

    /// Takes a numbered frame that is encrypted.
    fn take_sealed(&mut self, now: Instant, number: u64, frame: &[u8], began: Option<Instant>) {
        let body = self.guard.decrypt(self.sender.flights.base(), frame);
        let opened = self.stages.next(Stage::Open, began);
        match body {
            Ok(body) => {
                self.take_body(now, number, &body, opened);
                self.guard.keep(body);
            }
            Err(Unopened::Damaged) => self.take_damaged(now),
            Err(again) => self.refuse(again),
        }
    }

    /// Takes what a numbered frame held before its check; `opened`: when that was measured to have been known.
    #[inline]
    pub(super) fn take_body(&mut self, now: Instant, number: u64, body: &[u8], opened: Option<Instant>) {
        let Some((head, rest)) = Head::read(body) else { return self.statistics.malformed += 1 };
        let Some(chunks) = Chunks::read(&head, rest) else { return self.statistics.malformed += 1 };
        self.hear(now);
        if self.over.is_some_and(|end| end != End::Done) {
            return;
        }
        let arrival = self.arrivals.judge(number);
        match arrival {
            Arrival::Outside => return self.statistics.malformed += 1,
            Arrival::Double => self.take_double(now),
            Arrival::Early | Arrival::OpensGap if self.options.mode != Mode::Selective => {
                self.take_disordered(now);
            }
            _ => {
                self.arrivals.note(number);
                self.statistics.frames_received += 1;
                self.owe(now, arrival, head.flags & ASK != 0);
                self.take_chunks(number, chunks);
                if self.correction.is_some() {
                    self.keep(now, number, body[0], rest);
                }
                self.stages.end(Stage::Join, opened);
            }
        }
        if let Some(acknowledged) = head.acknowledged {
            self.take_piggybacked(now, acknowledged, head.flags & NACK != 0);
        }
        if self.closing.peer.is_some() {
            // The peer waits for this before it goes.
            self.owed.at = now;
            self.move_on();
        }
    }

    /// A frame has been taken: its acknowledgement is owed.
    #[inline]
    pub(super) fn owe(&mut self, now: Instant, arrival: Arrival, asked: bool) {
        self.owe_for(now, 1, asked || matches!(arrival, Arrival::OpensGap | Arrival::Filled));
    }

    /// So many frames have been taken: their acknowledgement is owed, and if it is `wanted` at once.
    #[inline]
    pub(super) fn owe_for(&mut self, now: Instant, frames: u32, wanted: bool) {
        self.came = self.came.saturating_add(frames);
        self.owed.frames += frames;
        self.owed.told = false;
        self.owed.last = now;
        let counted = self.owed.frames >= u32::from(self.options.ack_every);
        if wanted || counted {
            self.owed.at = now;
        } else if self.owed.at == Instant::MAX {
            self.owed.at = now + self.options.ack_delay;
        }
    }

    /// A frame came that had arrived before.
    pub(super) fn take_double(&mut self, now: Instant) {
        self.statistics.doubles += 1;
        self.owed.doubles = self.owed.doubles.wrapping_add(1);
        // Its sender missed the acknowledgement (table 1: "send a nack for the next frame").
        self.owed.again |= self.options.mode != Mode::Selective;
        self.owed.at = now;
    }

    /// A frame came that is not the next, and is not kept.
    pub(super) fn take_disordered(&mut self, now: Instant) {
        self.statistics.framing_errors += 1;
        self.ask_for_missing(now);
    }

    fn ask_for_missing(&mut self, now: Instant) {
        if !self.owed.told {
            (self.owed.told, self.owed.negative, self.owed.at) = (true, true, now);
        }
    }

    #[cold]
    pub(super) fn take_damaged(&mut self, now: Instant) {
        self.statistics.bad_checksums += 1;
        // It may be anybody's; but if it was the peer's, it is missed. Asked for once a round trip at the most, so that
        // nobody makes the peer repeat itself by sending rubbish.
        let round_trip = self.round_trip.smoothed().unwrap_or(Span::ZERO);
        if self.damaged_at.is_none_or(|last| now >= last + round_trip) {
            self.damaged_at = Some(now);
            self.ask_for_missing(now);
        }
    }

    #[inline]
    pub(super) fn take_chunks(&mut self, number: u64, chunks: Chunks<'_>) {
        for chunk in chunks {
            let taken = match chunk.channel {
                CONTROL => self.take_control(number, chunk.bytes),
                _ => self.receiver.take_chunk(&chunk).is_ok(),
            };
            if !taken {
                return self.end_for_violation();
            }
        }
    }

    /// The peer did what no peer may.
    #[cold]
    pub(super) fn end_for_violation(&mut self) {
        self.statistics.malformed += 1;
        self.errands.clear();
        self.errands.push_back(Errand::Reset);
        self.end(End::Violation);
    }

    /// What the peer tells; whether that makes sense.
    fn take_control(&mut self, number: u64, told: &[u8]) -> bool {
        match *told {
            [control::CREDIT, ref limit @ ..] => {
                let Ok(limit) = limit.try_into() else { return false };
                self.sender.raise_limit(u64::from_be_bytes(limit));
            }
            [control::CHANNEL_CREDIT, a, b, ref limit @ ..] => {
                let Ok(limit) = limit.try_into() else { return false };
                self.sender.raise_channel_limit(u16::from_be_bytes([a, b]), u64::from_be_bytes(limit));
            }
            [control::FINISH] => {
                self.closing.peer.get_or_insert(number);
            }
            _ => return false,
        }
        true
    }

    /// A frame outside of the count, by the connection's own check.
    fn take_errand(&mut self, now: Instant, frame: &[u8]) {
        let body = match self.guard.open(0, frame) {
            Ok(body) => body,
            Err(why) => return self.refuse(why),
        };
        self.hear(now);
        match *body {
            [open::RESET, _] => self.end(End::Peer),
            [open::PROBE, a, b, c, d, ..] if self.errands.len() < ERRANDS => {
                let (token, length) = (u32::from_be_bytes([a, b, c, d]), frame.len() as u16);
                self.errands.push_back(Errand::Heard { token, length });
            }
            [open::HEARD, a, b, c, d, e, f] => {
                self.take_heard(now, u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
            }
            [open::PROBE | open::HEARD, ..] => {}
            _ => self.statistics.malformed += 1,
        }
    }

    /// Somebody at the peer's address does not know a frame that was sent there. If it was ours, the peer has
    /// forgotten everything. Whoever sees a frame can say so, which ends no connection that is encrypted.
    pub fn take_unknown(&mut self, echo: &[u8; 16]) {
        if !self.guard.is_sealed() && self.echoes.knows(echo) {
            // Who has said goodbye may have gone.
            let done = self.closing.finished && self.closing.told && self.sender.has_only_told();
            self.end(if done { End::Done } else { End::Forgotten });
        }
    }

    #[inline]
    pub(super) fn hear(&mut self, now: Instant) {
        (self.heard, self.unanswered, self.unheard) = (now, 0, false);
        if self.ask_at != Instant::MAX {
            self.ask_at = now + self.options.keep_alive;
        }
    }

    /// Writes the next frame or batch into `buffer`, or tells where [it lies](Connection::placed_bytes).
    #[inline]
    pub fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        self.placed = None;
        if self.plain
            && let Some(length) = self.send_alone(now, buffer)
        {
            return Some((length, None));
        }
        if let Some(errand) = self.errands.pop_front() {
            return Some((self.run_errand(errand, buffer), None));
        }
        let due = self.owed.at <= now;
        // An acknowledgement that says more than how far all has come needs a frame of its own.
        // So does one that might have to wait for many full frames that are sent again.
        let gap = self.options.mode == Mode::Selective && self.arrivals.has_gap();
        // Nor does a frame that was laid out take one along.
        let laid = due && self.sender.is_next_laid();
        let own = due && (gap || self.sender.flights.has_lost() || self.tells_of_repair() || laid);
        if !own
            && self.is_active()
            && let Some(batch) = self
                .send_parts(now, buffer)
                .or_else(|| self.send_repairs(now, buffer))
                .or_else(|| self.send_laid(now))
                .or_else(|| self.send_batch(now, buffer))
        {
            return Some(batch);
        }
        if due {
            let length = self.write_ack(now, buffer);
            self.statistics.bytes_sent += length as u64;
            self.echoes.note(&buffer[..length]);
            return Some((length, None));
        }
        None
    }

    fn run_errand(&mut self, errand: Errand, frame: &mut [u8]) -> usize {
        let body = match errand {
            Errand::Probe | Errand::Search(_) => {
                let token = if let Errand::Search(trial) = errand { trial.token } else { self.unanswered };
                frame[0] = open::PROBE;
                frame[1..5].copy_from_slice(&token.to_be_bytes());
                5
            }
            Errand::Heard { token, length } => {
                frame[0] = open::HEARD;
                frame[1..5].copy_from_slice(&token.to_be_bytes());
                frame[5..7].copy_from_slice(&length.to_be_bytes());
                7
            }
            Errand::Reset => {
                frame[..2].copy_from_slice(&[open::RESET, 0]);
                2
            }
        };
        // Long enough to be answered by a peer that has forgotten.
        let length = (body + self.options.check.bytes()).max(match errand {
            Errand::Probe => open::UNKNOWN_BYTES,
            Errand::Search(trial) => trial.length,
            _ => 0,
        });
        frame[body..length].fill(0);
        self.guard.seal(0, &mut frame[..length]);
        self.statistics.bytes_sent += length as u64;
        self.echoes.note(&frame[..length]);
        length
    }

    /// Writes as many frames as may leave now and make a batch.
    #[inline]
    fn send_batch(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        let budget = self.budget(now)?;
        let window = self.allowed;
        let check = self.options.check.bytes();
        let (mut at, mut segment, mut frames) = (0, 0, 0);
        while frames < MAX_SEGMENTS as u32 && at + segment <= budget {
            // The last word of an end says how much it has heard: it may be all that the other gets to hear.
            let owes = self.owed.frames > 0 || self.owed.at <= now || self.closing.wanted;
            let piggyback = frames == 0 && owes;
            // What follows a full frame of a batch may be short of one, what begins a batch short of a batch.
            let enough = if frames == 0 { self.enough() } else { self.room() };
            let Some(number) = self.next_number(now, window, piggyback, enough) else { break };
            let mut acknowledges = piggyback;
            let mut length = self.sender.length(number, acknowledges) + check;
            if length > self.frame && acknowledges {
                acknowledges = false;
                length -= data::PIGGYBACK;
            }
            if frames > 0 && length > segment || at + length > MAX_BATCH {
                break;
            }
            let asks = self.probe.take() == Some(number) || self.is_last_for_now(window);
            let frame = &mut buffer[at..at + length];
            self.write_frame(now, number, asks, acknowledges, frame);
            frames += 1;
            at += length;
            if frames == 1 {
                segment = length;
                self.echoes.note(frame);
            } else if length < segment {
                break;
            }
        }
        if frames == 0 {
            return None;
        }
        self.note_left(now, frames, at);
        Some((at, Segment::of(segment, at)))
    }

    /// Bytes that may leave now in a batch; none if the pace lets nothing leave.
    #[inline]
    fn budget(&self, now: Instant) -> Option<usize> {
        let Some(rate) = self.pace else { return Some(MAX_BATCH) };
        if self.pace_at > now && self.probe.is_none() {
            return None;
        }
        let quantum = (u128::from(rate.as_bps()) * u128::from(QUANTUM.as_ps()) / 8_000_000_000_000) as usize;
        Some(quantum.clamp((2 * self.frame).min(MAX_BATCH), MAX_BATCH))
    }

    /// A batch of so many frames has left, `bytes` long.
    #[inline]
    fn note_left(&mut self, now: Instant, frames: u32, bytes: usize) {
        if let Some(rate) = self.pace {
            let from = self.pace_at.max(Instant::from_ps(now.as_ps().saturating_sub(CATCH_UP.as_ps())));
            // A rate measured across a leap of the clock must not silence the connection for hours.
            let most = self.round_trip.timeout(self.peer_ack_delay);
            self.pace_at = from + rate.time_for(Size::from_bytes(bytes as u64)).min(most);
        }
        if self.sender.waiting() > 0 {
            self.hold_until = now + self.share();
        }
        let in_flight = self.sender.flights.in_flight();
        if self.retransmit_at == Instant::MAX {
            self.arm(now);
        }
        self.policy.sent(&Sent { now, frames, bytes: bytes as u64, in_flight });
        self.statistics.bytes_sent += bytes as u64;
        if self.closing.wanted {
            self.move_on();
        }
    }

    /// Completes frames that were laid out, as many as may leave now for the first time and lie side by side: the batch
    /// is where they [lie](Connection::placed_bytes).
    fn send_laid(&mut self, now: Instant) -> Option<(usize, Option<Segment>)> {
        let flights = &self.sender.flights;
        if self.lays_from == u32::MAX || self.probe.is_some() || flights.due().is_some() {
            return None;
        }
        let (holds, window) = (now < self.hold_until, self.allowed);
        let ahead = flights.next() - flights.base();
        let may = window.saturating_sub(flights.in_flight().into()).min(self.window.saturating_sub(ahead));
        if may == 0 || holds && self.sender.waiting() < self.enough() {
            return None;
        }
        let budget = self.budget(now)?;
        // One that is not full yet waits as long as any.
        let first = self.sender.next_laid(!holds)?;
        let (begin, mut sheet) = (first.at as usize, self.sender.lend(first.sheet));
        let segment = usize::from(first.length);
        let (mut at, mut frames, most) = (0, 0, may.min(MAX_SEGMENTS as u64) as u16);
        let mut next = Some(first);
        while let Some(laid) = next
            && (laid.sheet, laid.at as usize) == (first.sheet, begin + at)
            && usize::from(laid.length) <= segment
        {
            let length = usize::from(laid.length);
            // What is shorter ends the batch.
            let room = if length < segment { 1 } else { ((budget - at) / length).max(1) as u16 };
            let count = laid.count.min(room).min(most - frames);
            let end = at + usize::from(count) * length;
            self.send_run(now, Laid { count, ..laid }, window, &mut sheet[begin + at..begin + end]);
            (at, frames) = (end, frames + count);
            if length < segment || frames == most || at + segment > budget {
                break;
            }
            next = self.sender.next_laid(!holds);
        }
        self.echoes.note(&sheet[begin..begin + segment]);
        self.sender.give_back(first.sheet, sheet);
        self.placed = Some((first.sheet, begin));
        self.statistics.frames_sent += u64::from(frames);
        self.note_left(now, frames.into(), at);
        Some((at, Segment::of(segment, at)))
    }

    /// Completes frames that were laid out, where they lie, and has them leave.
    #[inline]
    fn send_run(&mut self, now: Instant, laid: Laid, window: u64, frames: &mut [u8]) {
        let length = usize::from(laid.length);
        let mut number = self.sender.flights.next();
        if self.fills(window, laid.count.into()) {
            frames[usize::from(laid.count - 1) * length] |= ASK;
        }
        let (mut bytes, mut rest) = (0, frames);
        while !rest.is_empty() {
            // One that is to be measured goes alone.
            let together = (rest.len() / length).min(self.stages.unmeasured(Of::FramesOut));
            let (run, more) = rest.split_at_mut(together.max(1) * length);
            let began = if together == 0 { self.stages.begin(Of::FramesOut) } else { None };
            self.stages.pass(Of::FramesOut, together as u64);
            bytes += sheets::number(run, length, number);
            let written = self.stages.next(Stage::Frame, began);
            self.guard.seal_run(number, run, length);
            self.stages.end(Stage::Seal, written);
            (number, rest) = (number + together.max(1) as u64, more);
        }
        self.sender.leave_laid(now, Laid { bytes, ..laid });
    }

    #[inline]
    fn write_frame(&mut self, now: Instant, number: u64, asks: bool, acknowledges: bool, frame: &mut [u8]) {
        let mut flags = if asks { ASK } else { 0 };
        let acknowledged = acknowledges.then(|| self.arrivals.next());
        if acknowledges {
            flags |= ACK | if self.owed.negative { NACK } else { 0 };
            self.statistics.acks_piggybacked += 1;
            self.statistics.nacks_sent += u64::from(self.owed.negative);
            self.owed.settle();
        }
        let began = self.stages.begin(Of::FramesOut);
        self.sender.write(number, flags, acknowledged, frame);
        if self.correction.is_some() {
            self.protect(now, number, frame);
        }
        let written = self.stages.next(Stage::Frame, began);
        self.guard.seal_numbered(number, acknowledged, frame);
        self.stages.end(Stage::Seal, written);
        self.statistics.frames_sent += 1;
        self.statistics.frames_resent +=
            u64::from(self.sender.flights.get(number).is_some_and(|f| f.transmissions > 0));
        self.sender.flights.leave(now, number, frame.len());
    }

    /// The frame that may leave next; a new one only if `enough` bytes wait, or have waited for long.
    #[inline]
    fn next_number(&mut self, now: Instant, window: u64, piggyback: bool, enough: usize) -> Option<u64> {
        if let Some(probe) = self.probe {
            if self.sender.flights.sent_at(probe).is_some() {
                return Some(probe);
            }
            self.probe = None;
        }
        if self.repairs_are_due() {
            return None;
        }
        if u64::from(self.sender.flights.in_flight()) >= window {
            return None;
        }
        if let Some(number) = self.sender.flights.due() {
            return Some(number);
        }
        let ahead = self.sender.flights.next() - self.sender.flights.base();
        if !self.sender.can_cut() || ahead >= self.window {
            return None;
        }
        if now < self.hold_until && self.sender.waiting() < enough {
            return None;
        }
        let room = self.room();
        self.sender.cut(if piggyback { room - data::PIGGYBACK } else { room })
    }

    /// Bytes of a frame for chunks.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.frame - data::HEADER - self.options.check.bytes() - Correction::room(&self.correction)
    }

    /// Whether the frame about to leave fills a window so small that the peer's count of acknowledgements would not
    /// reach it.
    #[inline]
    pub(super) fn is_last_for_now(&self, window: u64) -> bool {
        self.fills(window, 1)
    }

    /// The same of the last of so many frames.
    #[inline]
    fn fills(&self, window: u64, frames: u64) -> bool {
        window <= self.peer_ack_every && u64::from(self.sender.flights.in_flight()) + frames >= window
    }
}
