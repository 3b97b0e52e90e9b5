//! Messages over LLC: what two users of the stations at their hosts do. The stations carry for many flows and stand
//! beside them, in [`stations`](crate::stations).

use std::collections::VecDeque;

use trunkline_experiment::plan::Protocol;
use trunkline_llc::Outcome;
use trunkline_models::host::Disk;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::llc::{self, Ends};
use trunkline_run::message::{Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_units::{Instant, Span};

use super::{Birth, LINGER, Recipe, Said, UNANSWERED, depart};

/// A run whose station tells nothing of its messages for so long has ended: they wait for a token that never comes
/// round quickly enough for their priority.
const STUCK: Span = Span::from_s(60);
/// Answers that may wait to be handed over.
const ANSWERS: usize = 16;

/// A message for a station to send, of which only the header is bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// From and to this SAP.
    pub sap: u8,
    /// 0 to 7.
    pub priority: u8,
    /// To the station at this host.
    pub to: u32,
    /// What it says of itself.
    pub header: Header,
}

/// What became of a message.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// What.
    pub outcome: Outcome,
    /// How often it was sent.
    pub tries: u16,
    /// From the call until now.
    pub took: Span,
}

/// The ends of a connection over LLC.
#[derive(Debug)]
pub struct Messages {
    recipe: Recipe,
    bounds: Bounds,
    /// None before its station may send.
    source: Option<Source>,
    /// When it is given up that the stations form a ring.
    formed_by: Instant,
    ledger: Ledger,
    meter: Meter,
    sap: u8,
    priority: u8,
    acknowledged: bool,
    /// The hosts of both ends.
    hosts: [u32; 2],
    sequence: u64,
    /// Messages whose end has not been told, and how many there may be.
    waiting: u16,
    most: u16,
    ends: Ends,
    /// Until an acknowledged message was answered, or a request by the other user.
    rtt: Histogram,
    asking: Option<Asking>,
    answers: VecDeque<Header>,
    disk: Option<Disk>,
    read_until: Instant,
    linger: Span,
    stuck: Span,
    /// When the source was done, and when anything was last told or arrived.
    done: Option<Instant>,
    last: Instant,
    trouble: Option<String>,
    over: bool,
    start: Instant,
}

/// The asking side of requests: one in flight.
#[derive(Debug, Default)]
struct Asking {
    request: Option<(u64, Instant)>,
    answers: u64,
    answer_bytes: u64,
    unanswered: u64,
}

impl Messages {
    pub(super) fn begin(birth: &Birth<'_>, start: Instant, limit: Limit) -> Self {
        let (sap, priority, acknowledged, patience) = match birth.plan.protocol {
            Protocol::Llc { sap, priority, r#type, timeout, tries, .. } => {
                (sap, priority, r#type == 3, timeout * (u64::from(tries) + 1) * 2)
            }
            _ => (0, 0, false, Span::ZERO),
        };
        Messages {
            recipe: Recipe {
                test: birth.plan.test.clone(),
                limit,
                seed: birth.seed,
                place: birth.place.clone(),
                earliest: start,
            },
            bounds: Bounds { smallest: 1, largest: llc::longest(&birth.plan.protocol, birth.mtu) },
            source: None,
            formed_by: Instant::MAX,
            ledger: Ledger::new(start),
            meter: Meter::new(start),
            sap,
            priority,
            acknowledged,
            hosts: [birth.sides[0].station, birth.sides[1].station],
            sequence: 0,
            waiting: 0,
            most: llc::waiting(&birth.plan.test),
            ends: Ends::default(),
            rtt: Histogram::default(),
            asking: birth.asks().then(Asking::default),
            answers: VecDeque::new(),
            disk: birth.file_bytes.and(birth.disks[0]).map(Disk::new),
            read_until: start,
            linger: LINGER + birth.longest_delay * 2,
            stuck: STUCK + patience,
            done: None,
            last: start,
            trouble: None,
            over: false,
            start,
        }
    }

    /// Its stations send only in a ring, and it is given up that they form one at this moment.
    pub fn await_ring(&mut self, until: Instant) {
        self.formed_by = until;
    }

    /// Its station may send from now on.
    pub fn open(&mut self, now: Instant) {
        let start = self.recipe.earliest.max(now);
        let Recipe { test, limit, seed, place, .. } = &self.recipe;
        match Source::new(test, *limit, self.bounds, start, *seed, place) {
            Ok(source) => self.source = Some(source),
            Err(e) => self.fail(e.to_string()),
        }
        (self.start, self.last, self.read_until) = (start, start, start);
        (self.ledger, self.meter) = (Ledger::new(start), Meter::new(start));
    }

    fn fail(&mut self, why: String) {
        self.trouble.get_or_insert(why);
        self.over = true;
    }

    /// When the first message may have left.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// A message has come to the user at `side`.
    pub fn hear(&mut self, now: Instant, side: usize, header: &Header) {
        self.last = now;
        if side == 1 {
            self.meter.arrive(header, now);
            if header.response > 0 && self.answers.len() < ANSWERS {
                let (sequence, length) = (header.sequence, header.response);
                self.answers.push_back(Header {
                    sequence,
                    sent: now,
                    length,
                    response: 0,
                    kind: Kind::Answer,
                });
            }
        } else if let Some(asking) = &mut self.asking
            && let Some((_, asked)) = asking.request.take_if(|(sequence, _)| *sequence == header.sequence)
        {
            self.rtt.record(now.since(asked));
            asking.answers += 1;
            asking.answer_bytes += u64::from(header.length);
        }
    }

    /// A message of the user at `side` has come to its end.
    pub fn told(&mut self, now: Instant, side: usize, told: Told) {
        self.last = now;
        if side > 0 {
            return;
        }
        self.waiting -= 1;
        self.ends.count(told.outcome, told.tries);
        if self.acknowledged && self.asking.is_none() && told.outcome == Outcome::Done {
            self.rtt.record(told.took);
        }
    }

    /// What the user at `side` has to say.
    pub fn poll(&mut self, now: Instant, side: usize) -> Said {
        if side > 0 {
            return match self.answers.pop_front() {
                Some(header) => self.sending(1, header),
                None => Said::Idle { deadline: None, blocked: false },
            };
        }
        match self.next(now) {
            Ok(header) => self.sending(0, header),
            Err(deadline) => Said::Idle { deadline, blocked: false },
        }
    }

    fn sending(&self, from: usize, header: Header) -> Said {
        let (sap, priority) = (self.sap, self.priority);
        Said::Message(Sending { sap, priority, to: self.hosts[1 - from], header })
    }

    /// The next message, if it is due and may wait in the station; else when to ask again.
    fn next(&mut self, now: Instant) -> Result<Header, Option<Instant>> {
        if self.over {
            return Err(None);
        }
        if self.source.is_none() {
            if now >= self.formed_by {
                self.fail("its stations formed no ring".into());
            }
            return Err((!self.over).then_some(self.formed_by));
        }
        if self.done.is_some() {
            return Err(self.rest(now));
        }
        if self.waiting >= self.most {
            self.look(now);
            return Err((!self.over).then_some(self.last + self.stuck));
        }
        if let Some(asking) = &mut self.asking
            && let Some((_, asked)) = asking.request
        {
            let until = asked + UNANSWERED + self.linger;
            if now < until {
                return Err(Some(until));
            }
            asking.request = None;
            asking.unanswered += 1;
        }
        if now < self.read_until {
            return Err(Some(self.read_until));
        }
        let Some(source) = &mut self.source else { return Err(None) };
        let message = match source.next(now) {
            Step::Wait(until) => return Err(Some(until)),
            Step::Done => {
                self.done = Some(now);
                return Err(self.rest(now));
            }
            Step::Send(message) => message,
        };
        depart(source, &mut self.ledger, &message, now);
        let (sequence, length, response) = (self.sequence, message.size, message.response);
        self.sequence += 1;
        self.waiting += 1;
        self.last = now;
        if let Some(asking) = &mut self.asking {
            asking.request = Some((sequence, now));
        }
        if let Some(disk) = &mut self.disk {
            self.read_until = disk.take(now, length.into());
        }
        Ok(Header { sequence, sent: now, length, response, kind: Kind::Pattern })
    }

    /// The source is done: when to look again whether all is.
    fn rest(&mut self, now: Instant) -> Option<Instant> {
        self.look(now);
        let patience = if self.waiting > 0 { self.stuck } else { self.linger };
        (!self.over).then_some(self.last.max(self.done.unwrap_or(now)) + patience)
    }

    /// It is over when the end of every message has been told and all have come, or nothing has for a while.
    fn look(&mut self, now: Instant) {
        let silent = now.since(self.last.max(self.done.unwrap_or(self.last)));
        let asked = self.asking.as_ref().is_some_and(|asking| asking.request.is_some());
        self.over = match self.waiting {
            0 if self.done.is_some() => {
                let all = self.meter.arrivals().messages >= self.sequence && !asked;
                all || silent >= self.linger
            }
            _ => silent >= self.stuck,
        };
    }

    /// Whether the run is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn reports(self) -> (SenderReport, Vec<ReceiverReport>, Option<String>) {
        let mut sender = match &self.source {
            Some(source) => SenderReport::whole(&self.ledger, source),
            None => SenderReport::so_far(&self.ledger),
        };
        sender.rtt = self.rtt.counts();
        sender.counters = self.ends.figures();
        sender.counters.insert("llc_priority".into(), f64::from(self.priority));
        if let Some(Asking { answers, answer_bytes, unanswered, .. }) = self.asking {
            let counts = [("answers", answers), ("answer_bytes", answer_bytes), ("unanswered", unanswered)];
            sender.counters.extend(counts.map(|(name, count)| (name.to_string(), count as f64)));
        }
        (sender, vec![ReceiverReport::of(&self.meter)], self.trouble)
    }
}
