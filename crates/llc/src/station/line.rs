//! Transmission and reception of frames.

use trunkline_endpoint::{MAX_BATCH, Peer, Port, Segment, Transmit};
use trunkline_units::Instant;

use super::acknowledged::Sequences;
use super::effect::{Coming, Effect, checked, ignored};
use super::queue::highest;
use super::{Message, MessageState, Station};
use crate::api::{Event, Outcome, Received, Refusal};
use crate::token::HasUrgency;
use crate::wire::{ALL, Address, HEADER, Kind, MAX_PRIORITY, NULL_SAP, Pdu};

// Transmission.
impl Station {
    /// Writes the next frame or batch of the highest priority.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let level = highest(self.turns.levels() | self.answers.levels())?;
        let answered = self.answered & 1 << level != 0;
        self.last = (0, 0);
        // Responses and messages alternate.
        if self.answers.has(level) && !(answered && self.turns.has(level)) {
            self.answered |= 1 << level;
            return self.transmit_answer(level, buffer);
        }
        self.answered &= !(1 << level);
        let number = self.turns.pop(level)?;
        let slot = self.next_of(number, level)?;
        let station = self.messages[slot].to.station;
        let first = self.put(now, slot, buffer);
        let (mut total, mut frames, mut length) = (first, 1, first);
        // Of a batch only the last is shorter.
        while frames < self.config.batch && length == first {
            let Some(slot) = self.peek(number, level) else { break };
            length = self.length(slot);
            if self.messages[slot].to.station != station || length > first || total + length > MAX_BATCH {
                break;
            }
            self.next_of(number, level);
            total += self.put(now, slot, &mut buffer[total..]);
            frames += 1;
        }
        if self.peek(number, level).is_some() {
            self.turns.push(level, number);
        }
        let (port, segment) = (self.config.port, Segment::of(first, total));
        Some(Transmit { port, peer: Peer::new(&[station]), length: total, segment })
    }

    #[inline]
    fn peek(&self, number: u8, level: u8) -> Option<u32> {
        self.saps[usize::from(number >> 1)].as_deref()?.outbox.first(level).copied()
    }

    #[inline]
    fn next_of(&mut self, number: u8, level: u8) -> Option<u32> {
        self.saps[usize::from(number >> 1)].as_deref_mut()?.outbox.pop(level)
    }

    /// Returns the kind and poll bit of a message's frame, and whether it is sent without information to
    /// resynchronize the sequence.
    #[inline]
    fn form(message: &Message, sequences: &Sequences) -> (Kind, bool, bool) {
        match message.kind {
            Kind::Ui => (Kind::Ui, false, false),
            Kind::Ac(_) => {
                let (number, agrees) = sequences.number(message.link);
                (Kind::Ac(number), agrees, agrees)
            }
            kind => (kind, true, false),
        }
    }

    /// Returns the length of a message's frame.
    #[inline]
    fn length(&self, slot: u32) -> usize {
        let message = &self.messages[slot];
        let (_, _, empty) = Station::form(message, &self.sequences);
        1 + HEADER + if empty { 0 } else { message.bytes.len() }
    }

    /// Writes the frame of a message and returns its length.
    #[inline(always)]
    pub(super) fn put(&mut self, now: Instant, slot: u32, into: &mut [u8]) -> usize {
        let message = &mut self.messages[slot];
        let (kind, poll, empty) = Station::form(message, &self.sequences);
        let (number, level) = (message.sap, message.priority);
        message.allocate = MessageState::Away;
        message.tried += 1;
        let information = if empty { &[][..] } else { &message.bytes };
        let pdu = Pdu { dsap: message.to.sap, ssap: number, response: false, kind, poll, information };
        into[0] = level;
        let length = 1 + pdu.write(&mut into[1..]);
        match message.tried {
            1 => self.statistics.agreements += u64::from(empty),
            _ => self.statistics.levels[usize::from(level)].retries += 1,
        }
        if let Kind::Ac(_) = kind {
            let at = message.await_answer(now, self.config.lifetime);
            self.schedule(slot, at);
        } else {
            self.last = (number, self.last.1 + usize::from(kind == Kind::Ui));
            self.end(now, slot, Outcome::Done);
        }
        self.count(kind, level);
        length
    }

    /// Counts a sent command.
    #[inline]
    pub(super) fn count(&mut self, kind: Kind, level: u8) {
        *self.statistics.sent.of(kind, false) += 1;
        self.statistics.levels[usize::from(level)].sent += 1;
    }
}

impl HasUrgency for Station {
    #[inline]
    fn urgency(&self) -> Option<u8> {
        highest(self.turns.levels() | self.answers.levels())
    }
}

// Reception.
impl Station {
    #[inline]
    pub(super) fn take_frame(&mut self, now: Instant, port: Port, peer: Peer, frame: &[u8]) {
        let station = match *peer.as_bytes() {
            [station] if (1..ALL).contains(&station) && port == self.config.port => station,
            _ => return self.statistics.bad_source += 1,
        };
        if station == self.config.station && !self.config.hears_itself {
            return self.statistics.bad_source += 1;
        }
        self.take_from(now, station, frame);
    }

    /// Processes a frame of a station, 1 to 254.
    #[inline]
    pub(crate) fn take_from(&mut self, now: Instant, station: u8, frame: &[u8]) {
        match self.process_frame(now, station, frame, None) {
            Effect::Nothing => {}
            Effect::Ends(slot, outcome) => self.end(now, slot, outcome),
            Effect::Comes(sap, coming) => self.push_coming(sap, coming),
            Effect::Answers(answer, coming) => {
                self.push_coming(answer.ssap, coming);
                self.acknowledge(answer);
            }
        }
    }

    #[inline]
    fn push_coming(&mut self, sap: u8, coming: Coming) {
        if let Coming::First = coming {
            self.push_event(Event::Readable { sap });
        }
    }

    /// Processes a frame of a station and returns its direct result. The only message of the SAP that is `wanted` is
    /// not queued.
    #[inline(always)]
    pub(super) fn process_frame(
        &mut self,
        now: Instant,
        station: u8,
        frame: &[u8],
        wanted: Option<u8>,
    ) -> Effect {
        let (level, pdu) = match *frame {
            [level @ 0..=MAX_PRIORITY, ref pdu @ ..] => (level, pdu),
            [] => return ignored(&mut self.statistics.malformed),
            _ => return ignored(&mut self.statistics.foreign),
        };
        let Ok(pdu) = Pdu::read(pdu) else { return ignored(&mut self.statistics.malformed) };
        // The null SAP sends no messages, and an acknowledged message has one receiver.
        let (from_nobody, to_many) = (pdu.ssap == NULL_SAP, pdu.dsap & 1 == 1);
        let bad = match pdu.kind {
            Kind::Ac(_) => from_nobody || to_many || pdu.dsap == NULL_SAP,
            Kind::Ui => from_nobody,
            Kind::Xid | Kind::Test => to_many && pdu.response,
        };
        if bad {
            return ignored(&mut self.statistics.malformed);
        }
        self.statistics.levels[usize::from(level)].received += 1;
        let received = &mut self.statistics.received;
        match (pdu.kind, pdu.response) {
            (Kind::Ac(number), false) => {
                received.ac += 1;
                return self.take_acknowledged(now, level, station, number, &pdu, wanted);
            }
            (Kind::Ac(number), true) => {
                received.ac_responses += 1;
                return self.take_acknowledgement(level, station, number, &pdu);
            }
            (Kind::Ui, _) => {
                received.ui += 1;
                return self.take_datagram(now, level, station, &pdu, wanted);
            }
            (kind, response) => {
                *received.of(kind, response) += 1;
                match response {
                    false => self.take_question(level, station, &pdu),
                    true => self.take_reply(station, &pdu),
                }
            }
        }
        Effect::Nothing
    }

    /// Processes unnumbered information to a SAP or a group.
    #[inline]
    fn take_datagram(
        &mut self,
        now: Instant,
        level: u8,
        station: u8,
        pdu: &Pdu<'_>,
        wanted: Option<u8>,
    ) -> Effect {
        let from = Address { sap: pdu.ssap, station };
        let received = Received { from, to: pdu.dsap, priority: level, acknowledged: false, at: now };
        if pdu.dsap & 1 == 0 {
            return match self.offer(pdu.dsap, received, pdu.information, wanted) {
                Ok(coming) => Effect::Comes(pdu.dsap, coming),
                Err(_) => ignored(&mut self.statistics.no_receiver),
            };
        }
        let mut members = 0;
        for at in 0..self.open.len() {
            let number = self.open[at];
            if self.sap(number).is_ok_and(|sap| sap.is_member(pdu.dsap)) {
                members += 1;
                if let Ok(coming) = self.offer(number, received, pdu.information, None) {
                    self.push_coming(number, coming);
                }
            }
        }
        self.statistics.no_receiver += u64::from(members == 0);
        Effect::Nothing
    }

    /// Delivers a datagram to a SAP if its checksum is valid and there is space.
    #[inline]
    fn offer(
        &mut self,
        number: u8,
        received: Received,
        information: &[u8],
        wanted: Option<u8>,
    ) -> Result<Coming, Refusal> {
        let sap = self.sap(number)?;
        match checked(sap.options.crc, information) {
            None => self.statistics.bad_crc += 1,
            Some(_) if !sap.has_receive_space() => {
                self.statistics.levels[usize::from(received.priority)].dropped += 1;
            }
            Some(message) => return Ok(self.deliver(number, received, message, wanted)),
        }
        Ok(Coming::Nothing)
    }

    /// Queues a message in a SAP with space, except the only message of the SAP that is wanted.
    #[inline(always)]
    pub(super) fn deliver(
        &mut self,
        number: u8,
        received: Received,
        bytes: &[u8],
        wanted: Option<u8>,
    ) -> Coming {
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return Coming::Nothing };
        if wanted == Some(number) && sap.held == 0 {
            self.handed = received;
            return Coming::Handed(bytes.len() as u16);
        }
        let slot = self.arrivals.take();
        let arrival = &mut self.arrivals[slot];
        arrival.received = received;
        arrival.bytes.clear();
        arrival.bytes.extend_from_slice(bytes);
        sap.inbox.push(received.priority, slot);
        sap.held += 1;
        if sap.held == 1 { Coming::First } else { Coming::Nothing }
    }
}
