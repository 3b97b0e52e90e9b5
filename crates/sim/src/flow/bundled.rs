//! Messages over bundles: what a sender and its receivers do. The converters carry for many flows and stand beside them, in
//! [`bundles`](crate::bundles).

use trunkline_bundle::host::Refusal;
use trunkline_run::bundle::Label;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_units::{Instant, Span};

use super::{Birth, LINGER, Recipe, Said, depart};

/// The ends of a connection over bundles.
#[derive(Debug)]
pub struct Bundled {
    recipe: Recipe,
    /// None before what its receivers want is known everywhere.
    source: Option<Source>,
    /// When that is no longer waited for.
    opened_by: Instant,
    ledger: Ledger,
    meters: Vec<Meter>,
    label: Label,
    /// Octets of the longest message.
    longest: u32,
    sequence: u64,
    congested: u64,
    full: u64,
    linger: Span,
    /// When the source was done, and when anything last arrived.
    done: Option<Instant>,
    last: Instant,
    trouble: Option<String>,
    over: bool,
    start: Instant,
}

impl Bundled {
    pub(super) fn begin(
        birth: &Birth<'_>,
        start: Instant,
        limit: Limit,
        (label, longest): (Label, u32),
    ) -> Self {
        Bundled {
            recipe: Recipe {
                test: birth.plan.test.clone(),
                limit,
                seed: birth.seed,
                place: birth.place.clone(),
                earliest: start,
            },
            source: None,
            opened_by: Instant::MAX,
            ledger: Ledger::new(start),
            meters: birth.plan.to.iter().map(|_| Meter::new(start)).collect(),
            label,
            longest,
            sequence: 0,
            congested: 0,
            full: 0,
            linger: LINGER + birth.longest_delay * 2,
            done: None,
            last: start,
            trouble: None,
            over: false,
            start,
        }
    }

    /// It sends when what is wanted is known everywhere, or at this moment.
    pub fn wait(&mut self, until: Instant) {
        self.opened_by = until;
    }

    /// It may send from now on.
    pub fn open(&mut self, now: Instant) {
        if self.source.is_some() {
            return;
        }
        let start = self.recipe.earliest.max(now);
        let Recipe { test, limit, seed, place, .. } = &self.recipe;
        let bounds = Bounds { smallest: HEADER as u32, largest: self.longest };
        match Source::new(test, *limit, bounds, start, *seed, place) {
            Ok(source) => self.source = Some(source),
            Err(e) => (self.trouble, self.over) = (Some(e.to_string()), true),
        }
        (self.start, self.last) = (start, start);
        self.ledger = Ledger::new(start);
        self.meters.iter_mut().for_each(|meter| *meter = Meter::new(start));
    }

    /// When the first message may have left.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// A message has come to a receiver.
    pub fn hear(&mut self, now: Instant, receiver: usize, header: &Header) {
        self.last = now;
        if let Some(meter) = self.meters.get_mut(receiver) {
            meter.arrive(header, now);
        }
    }

    /// The last message was not taken.
    pub fn refused(&mut self, why: Refusal) {
        match why {
            Refusal::Congested(_) => self.congested += 1,
            _ => self.full += 1,
        }
    }

    /// What the end at `side` has to say.
    pub fn poll(&mut self, now: Instant, side: usize) -> Said {
        let idle = |deadline| Said::Idle { deadline, blocked: false };
        if side > 0 || self.over {
            return idle(None);
        }
        if self.source.is_none() && now >= self.opened_by {
            self.open(now);
        }
        let Some(source) = self.source.as_mut().filter(|_| !self.over) else {
            return idle((!self.over).then_some(self.opened_by));
        };
        if self.done.is_some() {
            return idle(self.rest(now));
        }
        match source.next(now) {
            Step::Wait(until) => idle(Some(until)),
            Step::Done => {
                self.done = Some(now);
                idle(self.rest(now))
            }
            Step::Send(message) => {
                depart(source, &mut self.ledger, &message, now);
                let (sequence, length) = (self.sequence, message.size);
                self.sequence += 1;
                let header = Header { sequence, sent: now, length, response: 0, kind: Kind::Pattern };
                Said::Bundle { label: self.label, header }
            }
        }
    }

    /// Whether the source is done, and all has come that was taken.
    pub fn has_all(&self) -> bool {
        let taken = self.sequence - self.congested - self.full;
        self.done.is_some() && self.meters.iter().all(|meter| meter.arrivals().messages >= taken)
    }

    /// The source is done: when to look again whether all has come, or nothing has for a while.
    fn rest(&mut self, now: Instant) -> Option<Instant> {
        let since = self.last.max(self.done.unwrap_or(now));
        self.over = self.has_all() || now.since(since) >= self.linger;
        (!self.over).then_some(since + self.linger)
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
        let refused = [("bundle_congested", self.congested), ("bundle_full", self.full)];
        sender.counters.extend(refused.map(|(name, count)| (name.to_owned(), count as f64)));
        (sender, self.meters.iter().map(ReceiverReport::of).collect(), self.trouble)
    }
}
