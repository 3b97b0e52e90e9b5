//! LLC exchanges: retransmissions, response times, unanswered commands, priorities.
//!
//! A command of type 3 carries a one-bit number for each SAP, address and priority (IEEE 802.2 clause 8.5): the same
//! number again is the same message again. AC0 is answered by AC1 and back.

use std::collections::BTreeMap;

use trunkline_llc::wire::{CommandStatus, Kind, Pdu, Status};

use crate::name::{Station, stations};
use crate::packet::{Llc, Packet};
use crate::table::Count;

/// Most exchanges that are followed at a time.
pub const MOST: usize = 4096;
/// Priorities of LLC and of IEEE 802.1Q.
pub const PRIORITIES: usize = 8;

/// How exchanges are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// A command is unanswered when this has passed, in nanoseconds.
    pub patience_ns: u64,
    /// An answer that took longer is late, in nanoseconds; none: none is.
    pub deadline_ns: Option<u64>,
}

/// Answers within a second; no deadline.
impl Default for Judgement {
    fn default() -> Self {
        Judgement { patience_ns: 1_000_000_000, deadline_ns: None }
    }
}

/// Who sends commands to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parties {
    /// The station and SAP that sends.
    pub from: (Station, u8),
    /// The station and SAP that answers.
    pub to: (Station, u8),
    /// With which priority.
    pub priority: u8,
}

/// Times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Of all of them.
    pub sum_ns: u64,
    /// The last.
    pub last_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Times {
    pub(crate) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.last_ns = ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Their mean, none without any.
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }
}

/// What was seen of commands that want an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages: commands that were no repetition.
    pub messages: u64,
    /// Commands that repeat the number before them: further tries.
    pub repeats: u64,
    /// Messages whose answer was not seen in time, nor before the next.
    pub unanswered: u64,
    /// Answers that took longer than the deadline, and messages without any.
    pub late: u64,
    /// The most tries of a message.
    pub most_tries: u64,
    /// From the first try to the answer.
    pub answers: Times,
}

/// Kinds of commands that want an answer: XID, TEST and those of type 3.
const KINDS: usize = 3;

fn index(kind: Kind) -> usize {
    match kind {
        Kind::Xid | Kind::Ui => 0,
        Kind::Test => 1,
        Kind::Ac(_) => 2,
    }
}

/// What one pair of parties is at.
#[derive(Clone, Debug, Default)]
struct Exchange {
    tally: Tally,
    /// The number of the last message, of type 3.
    number: Option<bool>,
    /// How often that was sent.
    tries: u64,
    /// When the message that is not answered yet was first sent, of each kind: only its own kind answers it.
    open_ns: [Option<u64>; KINDS],
    seen_ns: u64,
}

/// Everything that is known of LLC.
#[derive(Clone, Debug, Default)]
pub struct Exchanges {
    judgement: Judgement,
    exchanges: BTreeMap<Parties, Exchange>,
    total: Tally,
    /// Commands of parties that had no room.
    untold: u64,
    priorities: [Count; PRIORITIES],
    /// PDUs that are of neither type 1 nor 3.
    strange: u64,
}

impl Exchanges {
    /// Nothing seen yet.
    pub fn new(judgement: Judgement) -> Exchanges {
        Exchanges { judgement, ..Exchanges::default() }
    }

    /// Sees a packet.
    pub fn see(&mut self, packet: &Packet<'_>) {
        if let Some(priority) = packet.priority() {
            self.priorities[usize::from(priority & 7)] += Count::one(packet.length);
        }
        let (Some(llc), (Some(from), Some(to))) = (packet.llc, stations(packet)) else { return };
        let Ok(pdu) = llc.pdu else {
            self.strange += 1;
            return;
        };
        if pdu.kind != Kind::Ui {
            if pdu.response {
                self.answer(from, to, &llc, &pdu, packet.at_ns);
            } else if pdu.dsap & 1 == 0 && to != Station::Number(255) {
                // No single station responds for a group.
                self.command(from, to, &llc, &pdu, packet.at_ns);
            }
        }
    }

    fn command(&mut self, from: Station, to: Station, llc: &Llc<'_>, pdu: &Pdu<'_>, at_ns: u64) {
        let parties = Parties { from: (from, pdu.ssap), to: (to, pdu.dsap), priority: llc.priority };
        let full = self.exchanges.len() >= MOST;
        let exchange = match self.exchanges.get_mut(&parties) {
            Some(exchange) => exchange,
            None if full => {
                self.untold += 1;
                return;
            }
            None => self.exchanges.entry(parties).or_default(),
        };
        exchange.seen_ns = at_ns;
        let number = match pdu.kind {
            Kind::Ac(number) => Some(number),
            // TEST and XID have no number: each unanswered one is a separate message.
            _ => None,
        };
        // It agrees on a number and carries no message (docs/wire.md, LLC).
        let agrees = number.is_some() && pdu.poll && pdu.information.is_empty();
        if number.is_some() && exchange.number == number && !agrees {
            // After an answer it means that the answer was lost.
            exchange.tries += 1;
            for tally in [&mut exchange.tally, &mut self.total] {
                tally.repeats += 1;
                tally.most_tries = tally.most_tries.max(exchange.tries);
            }
            return;
        }
        let open_ns = &mut exchange.open_ns[index(pdu.kind)];
        if open_ns.replace(at_ns).is_some() {
            missed(&mut [&mut exchange.tally, &mut self.total], self.judgement);
        }
        if number.is_some() {
            (exchange.number, exchange.tries) = (number, 1);
        }
        if agrees {
            *open_ns = None;
            return;
        }
        for tally in [&mut exchange.tally, &mut self.total] {
            tally.messages += 1;
            tally.most_tries = tally.most_tries.max(1);
        }
    }

    fn answer(&mut self, from: Station, to: Station, llc: &Llc<'_>, pdu: &Pdu<'_>, at_ns: u64) {
        let parties = Parties { from: (to, pdu.dsap), to: (from, pdu.ssap), priority: llc.priority };
        let Some(exchange) = self.exchanges.get_mut(&parties) else { return };
        if let (Kind::Ac(answered), Some(number)) = (pdu.kind, exchange.number)
            && answered == number
        {
            return; // it answers the message before
        }
        let status = pdu.information.first().and_then(|octet| Status::read(*octet));
        if matches!(pdu.kind, Kind::Ac(_))
            && status
                .is_some_and(|s| matches!(s.command, CommandStatus::Unavailable | CommandStatus::Temporary))
        {
            return; // no room: the message is to come again
        }
        let Some(open_ns) = exchange.open_ns[index(pdu.kind)].take() else { return };
        let took_ns = at_ns.saturating_sub(open_ns);
        for tally in [&mut exchange.tally, &mut self.total] {
            tally.answers.add(took_ns);
            tally.late += u64::from(self.judgement.deadline_ns.is_some_and(|deadline| took_ns > deadline));
        }
    }

    /// It is `now_ns`: gives up waiting for what should have been answered, and forgets parties that are long silent if
    /// many are known.
    pub fn advance(&mut self, now_ns: u64) {
        const SILENT: u64 = 60;
        for exchange in self.exchanges.values_mut() {
            for open_ns in &mut exchange.open_ns {
                if open_ns.is_some_and(|at| now_ns.saturating_sub(at) > self.judgement.patience_ns) {
                    *open_ns = None;
                    missed(&mut [&mut exchange.tally, &mut self.total], self.judgement);
                }
            }
        }
        if self.exchanges.len() > MOST / 4 * 3 {
            let silent_ns = self.judgement.patience_ns.saturating_mul(SILENT);
            self.exchanges.retain(|_, e| {
                e.open_ns.iter().any(Option::is_some) || now_ns.saturating_sub(e.seen_ns) < silent_ns
            });
        }
    }

    /// Over all parties, also those that are forgotten.
    pub fn total(&self) -> Tally {
        self.total
    }

    /// Of each pair of parties, in their order.
    pub fn tallies(&self) -> impl Iterator<Item = (&Parties, &Tally)> {
        self.exchanges.iter().map(|(parties, exchange)| (parties, &exchange.tally))
    }

    /// Commands of parties that had no room.
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// PDUs of neither type 1 nor 3.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// What passed with each priority, of PDUs and of tagged frames.
    pub fn priorities(&self) -> &[Count; PRIORITIES] {
        &self.priorities
    }
}

/// A message has no answer: with a deadline, it has missed it too.
fn missed(tallies: &mut [&mut Tally; 2], judgement: Judgement) {
    for tally in tallies {
        tally.unanswered += 1;
        tally.late += u64::from(judgement.deadline_ns.is_some());
    }
}
