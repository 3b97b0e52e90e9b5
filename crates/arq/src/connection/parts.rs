//! Transmission and reception of frames in parts.

use trunkline_congestion::Transmission;
use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_units::{Instant, Span};

use super::Connection;
use super::timers::Timer;
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::receive::partials::FrameTooLong;
use crate::wire::check::OpenError;
use crate::wire::data::ACK_REQUEST;
use crate::wire::part::{self, Part};
use crate::wire::{expand, get24};

/// A frame of which some parts were sent.
#[derive(Debug)]
pub(super) struct SplitFrame {
    number: u64,
    /// The frame without its check.
    body: Vec<u8>,
    /// Bytes sent so far.
    sent: usize,
}

impl Connection {
    /// Writes a batch of parts if the next frame is longer than the path MTU.
    #[inline]
    pub(super) fn send_parts(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        self.path.as_ref()?;
        if self.is_paced(now) && self.tail_probe.is_none() {
            return None;
        }
        let current = self.path.as_mut().and_then(|path| path.split_frame.take());
        // An earlier transmission may have been acknowledged in the meantime.
        let current = current.filter(|split| self.sender.flights.is_unacknowledged(split.number));
        let split = current.or_else(|| self.start_parts())?;
        Some(self.write_parts(now, split, buffer))
    }

    pub(super) fn is_sending_parts(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.split_frame.is_some())
    }

    /// Writes the next frame if it is longer than the path MTU.
    fn start_parts(&mut self) -> Option<SplitFrame> {
        let flights = &self.sender.flights;
        let number = match self.tail_probe {
            Some(probe) if flights.sent_at(probe).is_some() => probe,
            _ if u64::from(flights.in_flight()) < self.effective_window => flights.next_to_send()?,
            _ => return None,
        };
        let length = self.sender.frame_length(number, false);
        if length + self.check_length <= self.max_frame {
            return None;
        }
        let is_tail_probe = self.tail_probe.take_if(|probe| *probe == number).is_some();
        let flags =
            if is_tail_probe || self.fills_window(self.effective_window, 1) { ACK_REQUEST } else { 0 };
        let mut body = vec![0; length];
        self.sender.write_frame(number, flags, None, &mut body);
        Some(SplitFrame { number, body, sent: 0 })
    }

    /// Writes a batch of parts of a frame, and records the frame's transmission with its last part.
    fn write_parts(
        &mut self,
        now: Instant,
        mut split: SplitFrame,
        buffer: &mut [u8],
    ) -> (usize, Option<Segment>) {
        let (check, number) = (self.check_length, split.number);
        let capacity = self.max_frame - part::HEADER - check;
        let segment = capacity.min(split.body.len() - split.sent) + part::HEADER + check;
        let mut at = 0;
        for _ in 0..MAX_SEGMENTS.min(MAX_BATCH / segment) {
            let remaining = &split.body[split.sent..];
            let bytes = &remaining[..capacity.min(remaining.len())];
            let frame = &mut buffer[at..at + part::HEADER + bytes.len() + check];
            let is_last = bytes.len() == remaining.len();
            Part::write_head(number, split.sent as u16, is_last, frame);
            frame[part::HEADER..part::HEADER + bytes.len()].copy_from_slice(bytes);
            self.protection.seal_body(number, part::HEADER, frame);
            at += frame.len();
            split.sent += bytes.len();
            if is_last {
                break;
            }
        }
        self.recent_frames.record(&buffer[..segment]);
        self.statistics.bytes_sent += at as u64;
        let is_complete = split.sent == split.body.len();
        if is_complete {
            let is_retransmission =
                self.sender.flights.get(number).is_some_and(|flight| flight.transmissions > 0);
            self.statistics.frames_sent += 1;
            self.statistics.frames_resent += u64::from(is_retransmission);
            self.sender.flights.send(now, number, split.body.len() + check);
            if !self.timers.is_set(Timer::Retransmit) {
                self.arm_retransmit_timer(now);
            }
        } else if let Some(path) = &mut self.path {
            path.split_frame = Some(split);
        }
        self.advance_pace(now, Span::ZERO, at);
        let in_flight = self.sender.flights.in_flight();
        let frames = u32::from(is_complete);
        self.controller.on_sent(&Transmission { now, amount: frames, bytes: at as u64, in_flight });
        (at, Segment::of(segment, at))
    }

    pub(super) fn receive_part(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(get24) else { return self.process_damaged(now) };
        let number = expand(low, self.arrivals.next());
        match self.protection.open_body(number, part::HEADER, frame) {
            Ok(body) => {
                self.process_part(now, number, &body);
                self.protection.recycle(body);
            }
            Err(OpenError::Damaged) => self.process_damaged(now),
            Err(error) => self.count_rejected(error),
        }
    }

    /// Processes the contents of a part without its check.
    fn process_part(&mut self, now: Instant, number: u64, body: &[u8]) {
        let (Some(part), Some(path)) = (Part::read(body), self.path.as_mut()) else {
            return self.statistics.malformed += 1;
        };
        let is_last = part.last;
        match self.arrivals.classify(number) {
            Arrival::OutsideWindow => return self.statistics.malformed += 1,
            // Only the last part counts as a duplicate of the frame.
            Arrival::Duplicate if is_last => self.process_duplicate(now),
            Arrival::AfterGap | Arrival::OpensGap if self.options.mode != Mode::Selective => {
                if is_last {
                    self.process_out_of_order(now);
                }
            }
            Arrival::Duplicate => {}
            _ => match path.partials.add(self.arrivals.next(), number, &part) {
                Ok(None) => {}
                Ok(Some(body)) => return self.process_body(now, number, &body, None),
                Err(FrameTooLong) => return self.statistics.malformed += 1,
            },
        }
        self.record_activity(now);
    }
}
