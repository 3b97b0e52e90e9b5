//! The level-1 converters at the central converter in format 1 (classic): each owns packet addresses.
//!
//! The format has no acknowledgements. A converter is sent a join or leave at once, and with refresh its joins again
//! from time to time. A converter that forwards a packet address without owning it is sent the leave again.

use std::collections::BTreeMap;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span};

use crate::balance::{Balance, MAX_MOVES, Move};
use crate::bundler::{Bundler, Timing};
use crate::interest::{Interest, InterestChange};
use crate::refresh::Refresh;
use crate::wire::classic::{
    ADDRESSES_PER_PACKET, ClassicControl, ClassicMessage, PACKET_ADDRESSES, packet_address,
};

/// Messages still in flight this long after a packet address changed its owner are not strays.
const STRAY_GRACE: Span = Span::from_ms(100);
/// The window in which the load of a level-1 converter is measured.
const LOAD_WINDOW: Span = Span::from_s(1);

/// The level-1 converters, and the subscribers for which they own packet addresses.
#[derive(Debug)]
pub(crate) struct Level1Owners {
    pub interest: Interest,
    owners: Vec<Level1Owner>,
    /// When each packet address last changed its owner; empty without refresh.
    changed_at: Box<[Instant]>,
    /// The index of the converter, counted from 1, that last carried a host's message to each packet address, and
    /// when.
    last_sender: Box<[(u8, Instant)]>,
    pub balance: Balance,
    /// When the new owner of a moved packet address joins it.
    joins_due: BTreeMap<u16, Instant>,
    /// The converter whose queue is checked first.
    next_turn: usize,
    /// Repeated requests to leave a packet address.
    pub stray_groups: u64,
}

/// A level-1 converter.
#[derive(Debug)]
struct Level1Owner {
    number: u16,
    bundler: Bundler,
    /// The number of packet addresses that it owns.
    packet_count: u32,
    /// Messages from it in the current and the previous [`LOAD_WINDOW`].
    load: u64,
    previous_load: u64,
    window_end: Instant,
    /// When it last sent a bundle.
    last_received: Option<Instant>,
    /// Whether joins or leaves found no room in the queue.
    joins_pending: bool,
    refresh: Refresh,
}

/// Returns the control message that joins or leaves a packet address.
fn membership(packet: u16, joins: bool) -> ClassicControl {
    ClassicControl::membership(packet * ADDRESSES_PER_PACKET, joins)
}

impl Level1Owner {
    /// Queues a control message for the converter.
    fn announce(&mut self, now: Instant, control: ClassicControl) {
        self.joins_pending |= !self.bundler.push_control(now, control);
    }

    /// Starts a new window if the current one has ended.
    fn advance_window(&mut self, now: Instant) {
        if now >= self.window_end {
            self.previous_load = if now < self.window_end + LOAD_WINDOW { self.load } else { 0 };
            (self.load, self.window_end) = (0, now + LOAD_WINDOW);
        }
    }
}

impl Level1Owners {
    /// Creates the converters with these numbers and bundles of at most `max_octets` octets.
    pub fn new(numbers: &[u16], pairs: bool, max_octets: usize, timing: Timing) -> Level1Owners {
        let owner = |number: &u16| Level1Owner {
            number: *number,
            bundler: Bundler::new(None, max_octets, timing),
            packet_count: 0,
            load: 0,
            previous_load: 0,
            window_end: Instant::ZERO + LOAD_WINDOW,
            last_received: None,
            joins_pending: false,
            refresh: Refresh::new(Span::ZERO),
        };
        Level1Owners {
            interest: Interest::new(pairs),
            owners: numbers.iter().map(owner).collect(),
            changed_at: Box::default(),
            last_sender: vec![(0, Instant::ZERO); PACKET_ADDRESSES].into(),
            balance: Balance::default(),
            joins_due: BTreeMap::new(),
            next_turn: 0,
            stray_groups: 0,
        }
    }

    /// Refreshes the joins at this interval; zero refreshes only on request.
    pub fn set_refresh(&mut self, every: Span) {
        self.changed_at = vec![Instant::ZERO; PACKET_ADDRESSES].into();
        self.owners.iter_mut().for_each(|owner| owner.refresh = Refresh::new(every));
    }

    /// Returns whether joins are refreshed.
    pub fn refreshes(&self) -> bool {
        !self.changed_at.is_empty()
    }

    /// Returns the index of the converter with a number.
    pub fn position(&self, number: u16) -> Option<usize> {
        self.owners.iter().position(|owner| owner.number == number)
    }

    /// Refreshes the joins of a converter from this time on.
    pub fn refresh_at(&mut self, at: usize, time: Instant) {
        self.owners[at].refresh.restart_at(time);
    }

    /// Counts a bundle of messages from a converter.
    pub fn record_bundle(&mut self, now: Instant, at: usize, messages: usize) {
        let owner = &mut self.owners[at];
        owner.advance_window(now);
        owner.load += messages as u64;
        owner.last_received = Some(now);
    }

    /// Returns whether a converter may forward a packet address, and counts the message. It may unless another one
    /// owns the address, which forwards the message, too; and a host's own message must not return to it by another
    /// converter. With refresh, a converter that does not own the address is made to leave it.
    pub fn forwards(&mut self, now: Instant, at: usize, packet: u16) -> bool {
        let (owner, number) = (self.interest.owner(packet), self.owners[at].number);
        if owner != Some(number)
            && let Some(changed) = self.changed_at.get_mut(usize::from(packet))
            && now >= *changed + STRAY_GRACE
        {
            *changed = now;
            self.stray_groups += 1;
            self.owners[at].announce(now, membership(packet, false));
        }
        let forwards = owner.is_none_or(|owner| owner == number);
        if forwards {
            self.balance.loads.count(packet);
        }
        forwards
    }

    /// Queues a host's message for the converter that sends to its packet address: the owner, or else number 1.
    /// Returns whether there was room.
    pub fn send(&mut self, now: Instant, message: ClassicMessage<'_>, priority: bool) -> bool {
        let packet = packet_address(message.address);
        let owner = self.interest.owner(packet).and_then(|number| self.position(number));
        let at = owner.or_else(|| self.position(1)).unwrap_or(0);
        let pushed = self.owners[at].bundler.push(now, message.address, message.body, priority, None);
        if pushed {
            self.last_sender[usize::from(packet)] = (at as u8 + 1, now);
        }
        pushed
    }

    /// Queues a control message for all converters.
    pub fn announce_to_all(&mut self, now: Instant, control: ClassicControl) {
        self.owners.iter_mut().for_each(|owner| owner.announce(now, control));
    }

    /// Joins or leaves an address for a host, and its packet address at level 1.
    pub fn change_interest(&mut self, now: Instant, host: u8, address: u16, joins: bool) {
        let change = match joins {
            true => self.interest.join(host, address),
            false => self.interest.drop(host, address),
        };
        let packet = match change {
            InterestChange::None => return,
            InterestChange::Joined(packet) => {
                self.owners.iter_mut().for_each(|owner| owner.advance_window(now));
                // Another converter would receive the message that this one just sent, and reflect it.
                let (at, when) = self.last_sender[usize::from(packet)];
                let recent_sender = if now < when + STRAY_GRACE { usize::from(at) } else { 0 };
                let load = |(at, owner): &(usize, &mut Level1Owner)| {
                    (*at != recent_sender, owner.load + owner.previous_load, owner.packet_count)
                };
                let Some((_, owner)) = (1..).zip(&mut self.owners).min_by_key(load) else { return };
                owner.packet_count += 1;
                owner.announce(now, membership(packet, true));
                owner.refresh.schedule(now);
                self.interest.set_owner(packet, owner.number);
                packet
            }
            InterestChange::Left(packet, number) => {
                self.joins_due.remove(&packet);
                self.balance.retain_moves(|moving| moving != packet);
                if let Some(at) = self.position(number) {
                    self.owners[at].packet_count -= 1;
                    self.owners[at].announce(now, membership(packet, false));
                }
                packet
            }
        };
        self.record_change(now, packet);
    }

    fn record_change(&mut self, now: Instant, packet: u16) {
        if let Some(changed) = self.changed_at.get_mut(usize::from(packet)) {
            *changed = now;
        }
    }

    /// Moves packet addresses if a round of rebalancing is due, and joins those that are due at their new owners.
    pub fn handle_timers(&mut self, now: Instant) {
        self.balance.loads.advance(now);
        if let Some(every) = self.balance.take_round(now) {
            self.rebalance(now, every);
        }
        while let Some(packet) =
            self.joins_due.iter().find(|(_, due)| **due <= now).map(|(packet, _)| *packet)
        {
            self.joins_due.remove(&packet);
            self.balance.finish_moves(now, |moving| moving == packet);
            if let Some(at) = self.interest.owner(packet).and_then(|number| self.position(number)) {
                self.owners[at].announce(now, membership(packet, true));
                self.owners[at].refresh.schedule(now);
            }
        }
    }

    fn rebalance(&mut self, now: Instant, every: Span) {
        for _ in 0..MAX_MOVES {
            // The idlest converter may be down: skip those that sent nothing in the last round.
            let is_active =
                |at: &usize| self.owners[*at].last_received.is_some_and(|received| now <= received + every);
            let active = (0..self.owners.len()).filter(is_active);
            let best =
                self.balance.loads.best_move(active, |at| self.interest.owned_by(self.owners[at].number));
            let Some(Move { packet, from, to }) = best else { return };
            self.interest.set_owner(packet, self.owners[to].number);
            self.owners[from].packet_count -= 1;
            self.owners[to].packet_count += 1;
            self.owners[from].announce(now, membership(packet, false));
            // A leave is not confirmed: the old owner gets time to follow it.
            self.joins_due.insert(packet, now + STRAY_GRACE);
            self.balance.start_move(now, packet);
            self.record_change(now, packet);
        }
    }

    /// Sends the refreshes that are due; returns their number. A refresh without room is sent in the next cycle.
    pub fn send_refresh(&mut self, now: Instant) -> u64 {
        let mut sent = 0;
        for Level1Owner { number, bundler, refresh, .. } in &mut self.owners {
            let (interest, joins_due) = (&self.interest, &self.joins_due);
            let next = |from| {
                let mut owned = interest.owned_by(*number).skip_while(|packet| usize::from(*packet) < from);
                owned.find(|packet| !joins_due.contains_key(packet)).map(usize::from)
            };
            refresh.send_due(now, next, |packet| {
                sent += u64::from(bundler.push_control(now, membership(packet as u16, true)));
            });
        }
        sent
    }

    /// Closes the bundles that are due.
    pub fn close_if_due(&mut self, now: Instant) {
        self.owners.iter_mut().for_each(|owner| owner.bundler.close_if_due(now));
    }

    /// Returns whether a bundle is ready.
    pub fn is_ready(&self) -> bool {
        self.owners.iter().any(|owner| owner.bundler.is_ready())
    }

    /// Returns when the next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        let each = self.owners.iter().flat_map(|owner| [owner.bundler.deadline(), owner.refresh.deadline()]);
        // Balancing needs two converters.
        let round = self.balance.next_round().filter(|_| self.owners.len() > 1);
        each.chain([round, self.joins_due.values().min().copied()]).flatten().min()
    }

    /// Writes the next bundle, serving converters in turn; returns its destination and length.
    pub fn write_bundle(&mut self, now: Instant, buffer: &mut [u8]) -> Option<(Peer, usize)> {
        let count = self.owners.len();
        let at = (0..count)
            .map(|n| (self.next_turn + n) % count)
            .find(|at| self.owners[*at].bundler.is_ready())?;
        self.next_turn = at + 1;
        let owner = &mut self.owners[at];
        let length = owner.bundler.write_next(now, buffer)?;
        if std::mem::take(&mut owner.joins_pending) {
            let owned = self.interest.owned_by(owner.number);
            for packet in owned.filter(|packet| !self.joins_due.contains_key(packet)) {
                owner.announce(now, membership(packet, true));
            }
        }
        Some((Peer::new(&owner.number.to_be_bytes()), length))
    }
}
