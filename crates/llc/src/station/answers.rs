//! Responses that the standard requires (XID, TEST, acknowledgements), and responses to this station's own commands.
//!
//! TEST and XID to the null SAP are answered by the station, others by the addressed SAP; each open member of a
//! group, or of the global SAP, responds under its own number, so the sender learns the members (IEEE 802.2 clauses
//! 6.6 and 6.7).

use trunkline_endpoint::{Peer, Transmit};

use super::Station;
use super::sap::MAX_ANSWERS;
use crate::api::Event;
use crate::wire::{Address, IDENTITY, Kind, NULL_SAP, Pdu, Status};

/// Maximum queued XID and TEST responses: as many as SAPs can be addressed at once. Further commands get no response.
pub(super) const ECHOES: usize = 128;
/// Maximum queued acknowledgements; a further one is dropped, and its command will be repeated.
pub(super) const ACKS: usize = 256;

#[derive(Debug)]
pub(super) struct Answer {
    pub station: u8,
    pub dsap: u8,
    pub ssap: u8,
    pub kind: Kind,
    pub last: bool,
    pub body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Status(Status),
    Identity,
    Echo(Vec<u8>),
}

/// The response to an acknowledged command.
#[derive(Clone, Copy)]
pub(super) struct Acknowledgement {
    pub level: u8,
    pub station: u8,
    pub dsap: u8,
    pub ssap: u8,
    pub number: bool,
    pub last: bool,
    pub status: Status,
}

impl Station {
    /// Responds to an XID or TEST command with the same poll bit and priority.
    pub(super) fn take_question(&mut self, level: u8, station: u8, pdu: &Pdu<'_>) {
        let from = Address { sap: pdu.ssap, station };
        if pdu.dsap == NULL_SAP {
            self.echo(level, from, NULL_SAP, pdu);
        } else if pdu.dsap & 1 == 0 {
            match self.sap(pdu.dsap) {
                Ok(_) => self.echo(level, from, pdu.dsap, pdu),
                Err(_) => self.statistics.no_receiver += 1,
            }
        } else {
            let mut members = 0;
            for at in 0..self.open.len() {
                let number = self.open[at];
                if self.sap(number).is_ok_and(|sap| sap.is_member(pdu.dsap)) {
                    members += 1;
                    self.echo(level, from, number, pdu);
                }
            }
            self.statistics.no_receiver += u64::from(members == 0);
        }
    }

    fn echo(&mut self, level: u8, to: Address, ssap: u8, pdu: &Pdu<'_>) {
        if self.echoes >= ECHOES {
            self.statistics.dropped_responses += 1;
            return;
        }
        self.echoes += 1;
        let body = match pdu.kind {
            Kind::Test => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.extend_from_slice(pdu.information);
                Body::Echo(bytes)
            }
            _ => Body::Identity,
        };
        let answer = Answer { station: to.station, dsap: to.sap, ssap, kind: pdu.kind, last: pdu.poll, body };
        self.answers.push(level, answer);
    }

    #[inline]
    pub(super) fn acknowledge(&mut self, answer: Acknowledgement) {
        if self.acks >= ACKS {
            self.statistics.dropped_responses += 1;
            return;
        }
        self.acks += 1;
        let Acknowledgement { level, station, dsap, ssap, number, last, status } = answer;
        let (kind, body) = (Kind::Ac(number), Body::Status(status));
        self.answers.push(level, Answer { station, dsap, ssap, kind, last, body });
    }

    /// Writes the first response of a priority.
    #[inline]
    pub(super) fn transmit_answer(&mut self, level: u8, buffer: &mut [u8]) -> Option<Transmit> {
        let Answer { station, dsap, ssap, kind, last, body } = self.answers.pop(level)?;
        let status;
        let information = match &body {
            Body::Status(answer) => {
                status = [answer.octet()];
                &status[..]
            }
            Body::Identity => &IDENTITY,
            Body::Echo(bytes) => bytes,
        };
        let pdu = Pdu { dsap, ssap, response: true, kind, poll: last, information };
        let length = self.respond(level, &pdu, buffer);
        match body {
            Body::Status(_) => self.acks -= 1,
            Body::Identity => self.echoes -= 1,
            Body::Echo(mut bytes) => {
                self.echoes -= 1;
                bytes.clear();
                self.spare.push(bytes);
            }
        }
        Some(Transmit { port: self.config.port, peer: Peer::new(&[station]), length, segment: None })
    }

    /// Writes the frame of an acknowledgement and returns its length.
    #[cfg(any(feature = "sockets", test))]
    #[inline]
    pub(super) fn write_acknowledgement(&mut self, answer: &Acknowledgement, buffer: &mut [u8]) -> usize {
        let &Acknowledgement { level, dsap, ssap, number, last, status, .. } = answer;
        let information = &[status.octet()];
        let pdu = Pdu { dsap, ssap, response: true, kind: Kind::Ac(number), poll: last, information };
        self.respond(level, &pdu, buffer)
    }

    #[inline(always)]
    fn respond(&mut self, level: u8, pdu: &Pdu<'_>, buffer: &mut [u8]) -> usize {
        *self.statistics.sent.of(pdu.kind, true) += 1;
        self.statistics.levels[usize::from(level)].sent += 1;
        buffer[0] = level;
        1 + pdu.write(&mut buffer[1..])
    }

    /// Processes a TEST or XID response to a SAP that is waiting for one.
    pub(super) fn take_reply(&mut self, station: u8, pdu: &Pdu<'_>) {
        let from = Address { sap: pdu.ssap, station };
        let asked = self.sap(pdu.dsap).ok().and_then(|sap| match pdu.kind {
            Kind::Test => sap.tests,
            _ => sap.identifies,
        });
        // Its commands carried the poll bit.
        if !pdu.poll || !asked.is_some_and(|asked| may_answer(asked, from)) {
            self.statistics.unexpected_responses += 1;
            return;
        }
        let types = match pdu.information {
            [format, types, ..] if *format == IDENTITY[0] => *types,
            _ if pdu.kind == Kind::Test => 0,
            _ => return self.statistics.malformed += 1,
        };
        let Some(sap) = self.saps[usize::from(pdu.dsap >> 1)].as_deref_mut() else { return };
        if sap.heard >= MAX_ANSWERS {
            self.statistics.dropped_answers += 1;
            return;
        }
        sap.heard += 1;
        sap.news.push_back(match pdu.kind {
            Kind::Test => Event::Tested {
                sap: pdu.dsap,
                from,
                length: pdu.information.len() as u16,
                intact: sap.test == pdu.information,
            },
            _ => {
                let types = [1, 2, 4].map(|bit| types & bit != 0);
                Event::Identified { sap: pdu.dsap, from, types }
            }
        });
        self.schedule_event_poll(pdu.dsap);
    }
}

/// Returns whether the addressed station or SAP may respond under this address: members of a group, and all stations,
/// respond under their own.
fn may_answer(asked: Address, from: Address) -> bool {
    (asked.station == crate::wire::ALL || asked.station == from.station)
        && (asked.sap & 1 == 1 || asked.sap == from.sap)
}
