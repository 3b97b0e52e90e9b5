//! Type 3: acknowledged messages, one outstanding per sequence (IEEE 802.2 clauses 5.4.3 and 8).
//!
//! A sequence belongs to a local SAP, a remote SAP and a priority. Its sender numbers messages 0 and 1 in turn,
//! V(SI), and sends one until it is answered; its receiver accepts the expected number, V(RI), and answers all.
//!
//! The receiver forgets V(RI) after a lifetime and then takes any number. The sender must be sure what V(RI) is, or its next
//! message is taken for a double, answered and lost. It is not after it was restarted, has forgotten the sequence, or has
//! given up a message that may have arrived. Waiting until every receiver has forgotten takes too long. So then it first
//! sends a command without information and with the poll bit, which delivers nothing: whether that is new to the receiver
//! or a double, once it is answered the receiver expects the other number.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use super::answers::Acknowledgement;
use super::effect::{Coming, Effect, checked, ignored};
use super::queue::KeyedSlots;
use super::{Message, MessageState, Station};
use crate::api::{Outcome, Received};
use crate::wire::{Address, CommandStatus, Pdu, ResponseStatus, Status};

const NONE: u32 = u32::MAX;

/// Sending side of a sequence.
#[derive(Debug)]
pub(super) struct SendSequence {
    /// V(SI): the number of the outstanding or next message.
    number: bool,
    /// Whether the receiver is known to expect it.
    agreed: bool,
    /// The outstanding message, or the next one.
    current: u32,
    waiting: VecDeque<u32>,
}

/// Receiving side of a sequence.
#[derive(Debug)]
pub(super) struct ReceiveSequence {
    /// V(RI): the number of the next message.
    expects: bool,
    at: Instant,
}

/// Table of sequences.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    links: KeyedSlots<SendSequence>,
    /// Next candidate for removal.
    hand: u32,
    heard: KeyedSlots<ReceiveSequence>,
    /// No receive sequence expires before this time.
    all_kept_until: Instant,
}

/// Returns the key of a sequence at either end.
#[inline]
fn key(own: u8, other: Address, level: u8) -> u32 {
    u32::from_be_bytes([own, other.station, other.sap, level])
}

impl Sequences {
    /// Returns the numbers of sending and receiving sequences.
    pub fn remembered(&self) -> (usize, usize) {
        (self.links.len(), self.heard.len())
    }

    /// Returns the number of a sequence's next message, and whether it must be resynchronized first.
    #[inline]
    pub fn number(&self, link: u32) -> (bool, bool) {
        let SendSequence { number, agreed, .. } = self.links[link];
        (number, !agreed)
    }

    /// Returns the sequence with this key. At the limit `most`, an idle sequence is replaced; without an idle one the
    /// table grows with the number of messages.
    #[inline]
    fn link(&mut self, key: u32, most: usize) -> u32 {
        match self.links.find(key) {
            Some(slot) => slot,
            None => self.new_link(key, most),
        }
    }

    fn new_link(&mut self, key: u32, most: usize) -> u32 {
        let link = SendSequence { number: false, agreed: false, current: NONE, waiting: VecDeque::new() };
        let there = self.links.len();
        if there >= most {
            for _ in 0..there {
                let slot = self.hand % there as u32;
                self.hand = slot + 1;
                if self.links[slot].current == NONE {
                    self.links.replace(slot, key, link);
                    return slot;
                }
            }
        }
        self.links.add(key, link)
    }

    /// Allocates a receive sequence; `None` if `most` sequences are within their lifetime.
    fn room(&mut self, now: Instant, key: u32, most: usize, lifetime: Span) -> Option<u32> {
        let heard = ReceiveSequence { expects: false, at: now };
        if self.heard.len() < most {
            return Some(self.heard.add(key, heard));
        }
        if now <= self.all_kept_until {
            return None;
        }
        let (slot, oldest) = self.heard.iter().map(|heard| heard.at).enumerate().min_by_key(|(_, at)| *at)?;
        if now.since(oldest) <= lifetime {
            self.all_kept_until = oldest + lifetime;
            return None;
        }
        self.heard.replace(slot as u32, key, heard);
        Some(slot as u32)
    }
}

// Sending.
impl Message {
    /// Records the transmission of the message, or of its resynchronization; returns its next deadline.
    #[inline]
    pub(super) fn await_answer(&mut self, now: Instant, lifetime: Span) -> Instant {
        if self.tried == 1 {
            // Before the receiver's sequence state expires.
            self.until = self.limit.min(now + lifetime / 2);
        }
        (now + self.patience).min(self.until)
    }
}

impl Station {
    /// Adds a message to its sequence; returns whether it may be sent now.
    #[inline(always)]
    pub(super) fn enter_sequence(&mut self, slot: u32) -> bool {
        let message = &mut self.messages[slot];
        let key = key(message.sap, message.to, message.priority);
        message.link = self.sequences.link(key, self.config.sequences);
        let link = &mut self.sequences.links[message.link];
        if link.current != NONE {
            message.allocate = MessageState::Behind;
            link.waiting.push_back(slot);
            return false;
        }
        link.current = slot;
        true
    }

    /// Handles the deadline of a message.
    pub(super) fn expire(&mut self, now: Instant, slot: u32) {
        let message = &self.messages[slot];
        if now >= message.limit {
            return self.end(now, slot, Outcome::Late);
        }
        if now >= message.until || message.tried >= message.tries {
            let outcome = message.refused.map_or(Outcome::Unanswered, Outcome::Refused);
            return self.end(now, slot, outcome);
        }
        self.enqueue(slot, true);
        self.schedule(slot, self.messages[slot].until);
    }

    /// Removes a message from its sequence and starts the next one.
    #[inline]
    pub(super) fn leave_sequence(&mut self, slot: u32, done: bool) {
        let message = &self.messages[slot];
        let link = &mut self.sequences.links[message.link];
        if link.current != slot {
            link.waiting.retain(|other| *other != slot);
            return;
        }
        if done {
            link.number = !link.number;
        } else if message.tried > 0 {
            // It is unknown whether it arrived.
            link.agreed = false;
        }
        match link.waiting.pop_front() {
            None => link.current = NONE,
            Some(next) => {
                link.current = next;
                self.enqueue(next, false);
            }
        }
    }

    /// The answer to an acknowledged command.
    #[inline(always)]
    pub(super) fn take_acknowledgement(
        &mut self,
        level: u8,
        station: u8,
        number: bool,
        pdu: &Pdu<'_>,
    ) -> Effect {
        let Some(status) = pdu.information.first().and_then(|octet| Status::read(*octet)) else {
            return ignored(&mut self.statistics.malformed);
        };
        let from = Address { sap: pdu.ssap, station };
        let Some(at) = self.sequences.links.find(key(pdu.dsap, from, level)) else {
            return ignored(&mut self.statistics.unexpected_responses);
        };
        let link = &mut self.sequences.links[at];
        let slot = link.current;
        let answers = slot != NONE && number != link.number && pdu.poll != link.agreed;
        if !answers || self.messages[slot].tried == 0 {
            return ignored(&mut self.statistics.unexpected_responses);
        }
        let message = &mut self.messages[slot];
        match status.command {
            CommandStatus::Ok if link.agreed => return Effect::Ends(slot, Outcome::Done),
            CommandStatus::Ok => {
                (link.agreed, link.number) = (true, !link.number);
                (message.tried, message.refused, message.until) = (0, None, message.limit);
                if message.allocate != MessageState::Ready {
                    self.enqueue(slot, true);
                }
                self.schedule(slot, self.messages[slot].until);
            }
            // It is tried again when its time has come.
            refused @ (CommandStatus::Unavailable | CommandStatus::Temporary)
                if message.tried < message.tries =>
            {
                message.refused = Some(refused);
            }
            refused => return Effect::Ends(slot, Outcome::Refused(refused)),
        }
        Effect::Nothing
    }
}

// Receiving.
impl Station {
    /// An acknowledged command.
    #[inline(always)]
    pub(super) fn take_acknowledged(
        &mut self,
        now: Instant,
        level: u8,
        station: u8,
        number: bool,
        pdu: &Pdu<'_>,
        wanted: Option<u8>,
    ) -> Effect {
        let Some((command, coming)) = self.receive(now, level, station, number, pdu, wanted) else {
            return Effect::Nothing;
        };
        let response = if pdu.poll { ResponseStatus::NeverSubmitted } else { ResponseStatus::NotRequested };
        let status = Status { command, response };
        let (dsap, ssap, number, last) = (pdu.ssap, pdu.dsap, !number, pdu.poll);
        Effect::Answers(Acknowledgement { level, station, dsap, ssap, number, last, status }, coming)
    }

    /// What becomes of it, and what its SAP has got; none if it is as if it had not come.
    #[inline(always)]
    fn receive(
        &mut self,
        now: Instant,
        level: u8,
        station: u8,
        number: bool,
        pdu: &Pdu<'_>,
        wanted: Option<u8>,
    ) -> Option<(CommandStatus, Coming)> {
        let Some(sap) = self.saps[usize::from(pdu.dsap >> 1)].as_deref() else {
            self.statistics.no_receiver += 1;
            return Some((CommandStatus::Unimplemented, Coming::Nothing));
        };
        let from = Address { sap: pdu.ssap, station };
        let message = match pdu.information {
            [] if pdu.poll => None,
            information => match checked(sap.options.crc, information) {
                Some(message) => Some(message),
                None => {
                    self.statistics.bad_crc += 1;
                    return None;
                }
            },
        };
        let (has_room, lifetime) = (sap.has_receive_space(), self.config.lifetime);
        let key = key(pdu.dsap, from, level);
        let known = self.sequences.heard.find(key);
        if let Some(slot) = known {
            let heard = &mut self.sequences.heard[slot];
            if now.since(heard.at) <= lifetime && heard.expects != number {
                heard.at = now;
                self.statistics.duplicates += 1;
                return Some((CommandStatus::Ok, Coming::Nothing));
            }
        }
        let room = match known {
            _ if message.is_some() && !has_room => None,
            Some(slot) => Some(slot),
            None => self.sequences.room(now, key, self.config.sequences, lifetime),
        };
        let Some(slot) = room else {
            self.statistics.unavailable += 1;
            return Some((CommandStatus::Unavailable, Coming::Nothing));
        };
        let received = Received { from, to: pdu.dsap, priority: level, acknowledged: true, at: now };
        #[cfg(any(feature = "sockets", test))]
        self.expected.command_after(&received, number, slot);
        Some((CommandStatus::Ok, self.accept(slot, number, received, message, wanted)))
    }

    /// A command has the number that its sequence expects, or may have any: takes it, and its message if it has one.
    #[inline(always)]
    pub(super) fn accept(
        &mut self,
        slot: u32,
        number: bool,
        received: Received,
        message: Option<&[u8]>,
        wanted: Option<u8>,
    ) -> Coming {
        self.sequences.heard[slot] = ReceiveSequence { expects: !number, at: received.at };
        match message {
            Some(bytes) => self.deliver(received.to, received, bytes, wanted),
            None => Coming::Nothing,
        }
    }
}
