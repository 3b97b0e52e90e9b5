//! Which frame is next, and what comes of one that arrives.

use crc_fast::{CrcAlgorithm, checksum};
use trunkline_endpoint::{MAX_BATCH, Peer, Port, Segment, Transmit};
use trunkline_units::Instant;

use super::answers::Acknowledgement;
use super::queue::highest;
use super::{Place, Station};
use crate::talk::{Event, Outcome, Received, Refusal};
use crate::token::Urgent;
use crate::wire::{ALL, Address, CRC, HEADER, HIGHEST, Kind, NULL_SAP, Pdu};

/// The optional checksum of a message.
#[inline]
pub(super) fn crc_of(message: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, message) as u32
}

/// The message in an information field, without the checksum that there is if `crc`; none if that fails.
#[inline]
pub(super) fn checked(crc: bool, information: &[u8]) -> Option<&[u8]> {
    if !crc {
        return Some(information);
    }
    let (message, check) = information.split_last_chunk::<CRC>()?;
    (u32::from_be_bytes(*check) == crc_of(message)).then_some(message)
}

/// What comes of a frame at the most, beside what is kept.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    Nothing,
    /// A message of ours, in its slot, comes to its end.
    Ends(u32, Outcome),
    /// A SAP has a message that can be taken, where there was none.
    Readable(u8),
    /// An acknowledgement, and whether that SAP now has such a message.
    Answers(Acknowledgement, bool),
}

// Out.
impl Station {
    /// The next frame, or batch, of the highest priority.
    #[inline]
    pub(crate) fn transmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let level = highest(self.turns.some() | self.answers.some())?;
        let answered = self.answered & 1 << level != 0;
        self.last = (0, 0);
        // Answers and messages take turns.
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

    /// What a message leaves as: its kind, the poll bit, and whether without its information, to agree on a number.
    #[inline]
    fn form(&self, slot: u32) -> (Kind, bool, bool) {
        let message = &self.messages[slot];
        match message.kind {
            Kind::Ui => (Kind::Ui, false, false),
            Kind::Ac(_) => {
                let (number, agrees) = self.number(message.link);
                (Kind::Ac(number), agrees, agrees)
            }
            kind => (kind, true, false),
        }
    }

    /// Octets of the frame that a message leaves in.
    #[inline]
    fn length(&self, slot: u32) -> usize {
        let (_, _, empty) = self.form(slot);
        1 + HEADER + if empty { 0 } else { self.messages[slot].bytes.len() }
    }

    /// Writes the frame of a message that leaves; how many octets.
    #[inline]
    pub(super) fn put(&mut self, now: Instant, slot: u32, into: &mut [u8]) -> usize {
        let (kind, poll, empty) = self.form(slot);
        let message = &mut self.messages[slot];
        let number = message.sap;
        message.place = Place::Away;
        message.tried += 1;
        let tried = message.tried;
        let information = if empty { &[][..] } else { &message.bytes };
        let pdu = Pdu { dsap: message.to.sap, ssap: message.sap, response: false, kind, poll, information };
        into[0] = message.priority;
        let length = 1 + pdu.write(&mut into[1..]);
        let level = message.priority;
        self.statistics.levels[usize::from(level)].again += u64::from(tried > 1);
        self.statistics.agreements += u64::from(empty && tried == 1);
        self.count(kind, level);
        match kind {
            Kind::Ac(_) => self.await_answer(now, slot),
            _ => {
                self.last = (number, self.last.1 + usize::from(kind == Kind::Ui));
                self.end(now, slot, Outcome::Done);
            }
        }
        length
    }

    /// A command leaves.
    #[inline]
    pub(super) fn count(&mut self, kind: Kind, level: u8) {
        *self.statistics.sent.of(kind, false) += 1;
        self.statistics.levels[usize::from(level)].sent += 1;
    }
}

impl Urgent for Station {
    #[inline]
    fn urgency(&self) -> Option<u8> {
        highest(self.turns.some() | self.answers.some())
    }
}

// In.
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

    /// A frame of a station, 1 to 254.
    #[inline]
    pub(crate) fn take_from(&mut self, now: Instant, station: u8, frame: &[u8]) {
        match self.hear(now, station, frame) {
            Effect::Nothing => {}
            Effect::Ends(slot, outcome) => self.end(now, slot, outcome),
            Effect::Readable(sap) => self.tell(Event::Readable { sap }),
            Effect::Answers(answer, readable) => {
                if readable {
                    self.tell(Event::Readable { sap: answer.ssap });
                }
                self.acknowledge(answer);
            }
        }
    }

    /// A frame of a station: what comes of it that is not kept here already.
    #[inline(always)]
    pub(super) fn hear(&mut self, now: Instant, station: u8, frame: &[u8]) -> Effect {
        let (level, pdu) = match *frame {
            [level @ 0..=HIGHEST, ref pdu @ ..] => (level, pdu),
            [] => {
                self.statistics.malformed += 1;
                return Effect::Nothing;
            }
            _ => {
                self.statistics.foreign += 1;
                return Effect::Nothing;
            }
        };
        let Ok(pdu) = Pdu::read(pdu) else {
            self.statistics.malformed += 1;
            return Effect::Nothing;
        };
        // The station itself asks and answers, but sends nothing; and one message has one receiver's acknowledgement.
        let acknowledged = matches!(pdu.kind, Kind::Ac(_));
        let from_nobody = pdu.ssap == NULL_SAP && (acknowledged || pdu.kind == Kind::Ui);
        let to_many = pdu.dsap & 1 == 1 && (acknowledged || pdu.response);
        if from_nobody || to_many || acknowledged && pdu.dsap == NULL_SAP {
            self.statistics.malformed += 1;
            return Effect::Nothing;
        }
        *self.statistics.received.of(pdu.kind, pdu.response) += 1;
        self.statistics.levels[usize::from(level)].received += 1;
        match (pdu.kind, pdu.response) {
            (Kind::Ac(_), false) => return self.take_acknowledged(now, level, station, &pdu),
            (Kind::Ac(_), true) => return self.take_acknowledgement(level, station, &pdu),
            (Kind::Ui, _) => return self.take_datagram(now, level, station, &pdu),
            (Kind::Xid | Kind::Test, false) => self.take_question(level, station, &pdu),
            (Kind::Xid | Kind::Test, true) => self.take_reply(station, &pdu),
        }
        Effect::Nothing
    }

    /// Unnumbered information, to a SAP or a group of them.
    #[inline]
    fn take_datagram(&mut self, now: Instant, level: u8, station: u8, pdu: &Pdu<'_>) -> Effect {
        let from = Address { sap: pdu.ssap, station };
        let received = Received { from, to: pdu.dsap, priority: level, acknowledged: false, at: now };
        if pdu.dsap & 1 == 0 {
            let offered = self.offer(pdu.dsap, received, pdu.information);
            self.statistics.nobody += u64::from(offered.is_err());
            return if offered == Ok(true) { Effect::Readable(pdu.dsap) } else { Effect::Nothing };
        }
        let mut members = 0;
        for at in 0..self.open.len() {
            let number = self.open[at];
            if self.sap(number).is_ok_and(|sap| sap.is_member(pdu.dsap)) {
                members += 1;
                if self.offer(number, received, pdu.information) == Ok(true) {
                    self.tell(Event::Readable { sap: number });
                }
            }
        }
        self.statistics.nobody += u64::from(members == 0);
        Effect::Nothing
    }

    /// Gives a SAP a datagram if its checksum holds and there is room; whether it is the only one there.
    #[inline]
    fn offer(&mut self, number: u8, received: Received, information: &[u8]) -> Result<bool, Refusal> {
        let sap = self.sap(number)?;
        match checked(sap.options.crc, information) {
            None => self.statistics.bad_crc += 1,
            Some(_) if !sap.has_room() => {
                self.statistics.levels[usize::from(received.priority)].dropped += 1;
            }
            Some(message) => return Ok(self.deliver(number, received, message)),
        }
        Ok(false)
    }

    /// Puts a message into the inbox of a SAP that has room for it; whether it is the only one there.
    #[inline]
    pub(super) fn deliver(&mut self, number: u8, received: Received, bytes: &[u8]) -> bool {
        let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() else { return false };
        let slot = self.arrivals.take();
        let arrival = &mut self.arrivals[slot];
        arrival.received = received;
        arrival.bytes.clear();
        arrival.bytes.extend_from_slice(bytes);
        sap.inbox.push(received.priority, slot);
        sap.held += 1;
        sap.held == 1
    }
}
