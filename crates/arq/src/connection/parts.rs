//! Frames in parts, as they go and as they come.

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_units::{Instant, Size};

use super::Connection;
use crate::congestion::Sent;
use crate::options::Mode;
use crate::receive::arrivals::Arrival;
use crate::receive::partials::TooLong;
use crate::wire::check::Unopened;
use crate::wire::data::ASK;
use crate::wire::part::{self, Part};
use crate::wire::{epoch, expand};

/// A frame some of whose parts have left.
#[derive(Debug)]
pub(super) struct Parting {
    number: u64,
    /// All of it but the check.
    body: Vec<u8>,
    /// How much has left.
    at: usize,
}

impl Connection {
    /// Writes parts of the frame that is to leave next, if that is longer than the path carries: as many as make a batch.
    #[inline]
    pub(super) fn send_parts(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(usize, Option<Segment>)> {
        self.path.as_ref()?;
        if self.pace.is_some() && self.pace_at > now && self.probe.is_none() {
            return None;
        }
        let begun = self.path.as_mut().and_then(|path| path.parting.take());
        // It may have arrived whole in the meantime.
        let parting = begun.filter(|begun| self.sender.flights.is_wanted(begun.number));
        let parting = parting.or_else(|| self.begin_parts())?;
        Some(self.write_parts(now, parting, buffer))
    }

    /// Whether parts of a frame have left and others have not.
    pub(super) fn is_parting(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.parting.is_some())
    }

    fn begin_parts(&mut self) -> Option<Parting> {
        let flights = &self.sender.flights;
        let number = match self.probe {
            Some(probe) if flights.sent_at(probe).is_some() => probe,
            _ if u64::from(flights.in_flight()) < self.allowed => flights.due()?,
            _ => return None,
        };
        let length = self.sender.length(number, false);
        if length + self.options.check.bytes() <= self.frame {
            return None;
        }
        let probes = self.probe.take_if(|probe| *probe == number).is_some();
        let flags = if probes || self.is_last_for_now(self.allowed) { ASK } else { 0 };
        let mut body = vec![0; length];
        self.sender.write(number, flags, None, &mut body);
        Some(Parting { number, body, at: 0 })
    }

    fn write_parts(
        &mut self,
        now: Instant,
        mut parting: Parting,
        buffer: &mut [u8],
    ) -> (usize, Option<Segment>) {
        let (check, number) = (self.options.check, parting.number);
        let room = self.frame - part::HEADER - check.bytes();
        let segment = room.min(parting.body.len() - parting.at) + part::HEADER + check.bytes();
        let mut at = 0;
        for _ in 0..MAX_SEGMENTS.min(MAX_BATCH / segment) {
            let left = &parting.body[parting.at..];
            let bytes = &left[..room.min(left.len())];
            let frame = &mut buffer[at..at + part::HEADER + bytes.len() + check.bytes()];
            let last = bytes.len() == left.len();
            Part::write_head(number, parting.at as u16, last, frame);
            frame[part::HEADER..part::HEADER + bytes.len()].copy_from_slice(bytes);
            self.guard.seal_part(number, frame);
            at += frame.len();
            parting.at += bytes.len();
            if last {
                break;
            }
        }
        self.echoes.note(&buffer[..segment]);
        self.statistics.bytes_sent += at as u64;
        let done = parting.at == parting.body.len();
        if done {
            let again = self.sender.flights.get(number).is_some_and(|flight| flight.transmissions > 0);
            self.statistics.frames_sent += 1;
            self.statistics.frames_resent += u64::from(again);
            self.sender.flights.leave(now, number, parting.body.len() + check.bytes());
            if self.retransmit_at == Instant::MAX {
                self.arm(now);
            }
        } else if let Some(path) = &mut self.path {
            path.parting = Some(parting);
        }
        if let Some(rate) = self.pace {
            let most = self.round_trip.timeout(self.peer_ack_delay);
            self.pace_at = self.pace_at.max(now) + rate.time_for(Size::from_bytes(at as u64)).min(most);
        }
        let in_flight = self.sender.flights.in_flight();
        self.policy.sent(&Sent { now, frames: u32::from(done), bytes: at as u64, in_flight });
        (at, Segment::of(segment, at))
    }

    /// Takes a part of a frame.
    pub(super) fn take_part(&mut self, now: Instant, frame: &[u8]) {
        let Some(low) = frame.get(1..4).map(|b| u32::from_be_bytes([0, b[0], b[1], b[2]])) else {
            return self.take_damaged(now);
        };
        let number = expand(low, self.arrivals.next());
        if !self.guard.is_sealed() {
            return match self.guard.open(epoch(number), frame) {
                Ok(body) => self.take_part_of(now, number, body),
                Err(_) => self.take_damaged(now),
            };
        }
        match self.guard.decrypt_part(frame) {
            Ok(body) => {
                self.take_part_of(now, number, &body);
                self.guard.keep(body);
            }
            Err(Unopened::Damaged) => self.take_damaged(now),
            Err(again) => self.refuse(again),
        }
    }

    /// Takes what a part held before its check.
    fn take_part_of(&mut self, now: Instant, number: u64, body: &[u8]) {
        let (Some(part), Some(path)) = (Part::read(body), self.path.as_mut()) else {
            return self.statistics.malformed += 1;
        };
        let ends = part.last;
        match self.arrivals.judge(number) {
            Arrival::Outside => return self.statistics.malformed += 1,
            // The last part speaks for the frame.
            Arrival::Double if ends => self.take_double(now),
            Arrival::Early | Arrival::OpensGap if self.options.mode != Mode::Selective => {
                if ends {
                    self.take_disordered(now);
                }
            }
            Arrival::Double => {}
            _ => match path.partials.add(self.arrivals.next(), number, &part) {
                Ok(None) => {}
                Ok(Some(body)) => return self.take_body(now, number, &body, None),
                Err(TooLong) => return self.statistics.malformed += 1,
            },
        }
        self.hear(now);
    }
}
