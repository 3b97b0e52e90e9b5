//! The hosts at the central converter.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Seed, Span};

use crate::drops::DropReason;
use crate::outbox::{Outbox, QueuedMessage};
use crate::packet_set::PacketSet;
use crate::ranges::{Ranges, Segments};
use crate::regulator::{NO_LIMIT, SATURATION_BURST, TokenBucket};
use crate::reliable::ReliableReceiver;
use crate::sequence::Sessions;
use crate::session::{
    ACK_DELAY, ACK_EVERY, DuplicateNumber, Membership, PeerSession, PeerStatus, RETRY_INTERVAL,
};
use crate::settings::{Format2, Settings};
use crate::wire::format2::control::{Control, RangeChanges};
use crate::wire::format2::{BundleBuilder, Header, Role};

/// The burst allowed by the rate to a host.
const RATE_BURST: Span = Span::from_ms(25);

/// A host.
#[derive(Debug)]
pub struct Member {
    /// Its session.
    pub session: PeerSession,
    /// Reliable messages from it.
    pub receiver: ReliableReceiver<QueuedMessage>,
    ack_pending: bool,
    interest: Ranges,
    /// The number of confirmed changes of its interest.
    confirmed_changes: u32,
    confirm_pending: bool,
    /// The received and lost messages of its last report, and when that arrived.
    reported: (u32, u32),
    last_report: Instant,
    /// The rate of ordinary messages to it, in octets.
    rate: TokenBucket,
    /// Its receive limit for ordinary messages.
    pub(crate) saturation: TokenBucket,
    /// The messages received from it when the limits were last announced to it.
    received_at_limit: u32,
    /// Retransmissions already returned to the caller.
    retransmissions_taken: u64,
    /// Its entry in the event queue.
    scheduled: Option<Instant>,
}

/// The segments that changes of interest may visit per [`RETRY_INTERVAL`]; a single change may exceed it. Further
/// changes are deferred: the host repeats them.
pub const SEGMENT_BUDGET: i64 = 32_768;
/// The fixed cost of a change, in segments.
const CHANGE_COST: i64 = 8;
/// The largest debt, in multiples of [`SEGMENT_BUDGET`].
const MAX_DEBT: i64 = 8;

/// The remaining budget.
#[derive(Debug)]
struct WorkBudget {
    left: i64,
    until: Instant,
}

impl WorkBudget {
    fn is_left(&mut self, now: Instant) -> bool {
        if now >= self.until {
            let times = now.since(self.until).as_ps() / RETRY_INTERVAL.as_ps() + 1;
            self.until += Span::from_ps(RETRY_INTERVAL.as_ps().saturating_mul(times));
            self.left =
                (self.left + SEGMENT_BUDGET * times.min(2 * MAX_DEBT as u64) as i64).min(SEGMENT_BUDGET);
        }
        self.left > 0
    }

    fn spend(&mut self, pieces: usize) {
        self.left = (self.left - CHANGE_COST - pieces as i64).max(-MAX_DEBT * SEGMENT_BUDGET);
    }
}

impl Member {
    fn new(now: Instant, session: PeerSession, max_octets: usize) -> Member {
        Member {
            session,
            receiver: ReliableReceiver::default(),
            ack_pending: false,
            interest: Ranges::default(),
            confirmed_changes: 0,
            confirm_pending: false,
            reported: (0, 0),
            last_report: now,
            rate: TokenBucket::new(max_octets, RATE_BURST),
            saturation: TokenBucket::new(1, SATURATION_BURST),
            received_at_limit: 0,
            retransmissions_taken: 0,
            scheduled: None,
        }
    }

    /// Returns the ranges that it has joined.
    pub fn interest(&self) -> &Ranges {
        &self.interest
    }

    /// Returns the number of confirmed changes in its session.
    pub fn confirmed_changes(&self) -> u32 {
        self.confirmed_changes
    }

    /// Schedules an acknowledgement for a reliable message received in its session.
    pub fn request_ack(&mut self, now: Instant) {
        let wait = if self.receiver.unacknowledged() < ACK_EVERY { ACK_DELAY } else { Span::ZERO };
        if !std::mem::replace(&mut self.ack_pending, true) || wait.is_zero() {
            self.session.outbox.schedule_control(now + wait);
        }
    }

    /// Admits an ordinary message of this size, or returns why it is dropped: the host's receive limit, or recent
    /// losses.
    pub(crate) fn admit(&mut self, now: Instant, octets: usize) -> Result<(), DropReason> {
        if !self.saturation.admits(now, 1) {
            return Err(DropReason::Saturated);
        }
        self.rate.admits(now, octets).then_some(()).ok_or(DropReason::Congestion)
    }

    /// Returns the number of retransmissions since the last call.
    pub fn take_retransmissions(&mut self) -> u64 {
        let all = self.session.outbox.reliable.retransmissions();
        all - std::mem::replace(&mut self.retransmissions_taken, all)
    }

    /// Writes the next bundle of a central converter with this incarnation and these limits. Returns its destination,
    /// its length, and the octets already admitted to the medium.
    pub(crate) fn write_bundle(
        &mut self,
        now: Instant,
        incarnation: u32,
        limits: (u8, u32),
        buffer: &mut [u8],
    ) -> (Peer, usize, usize) {
        let Member { session, receiver, ack_pending, confirm_pending, confirmed_changes, .. } = self;
        let write_control = |builder: &mut BundleBuilder, limit: Option<Control<'_>>| {
            if std::mem::take(confirm_pending) {
                builder.push_control(&Control::Confirmed(*confirmed_changes));
            }
            if std::mem::take(ack_pending) {
                let (next, beyond) = receiver.acknowledgement();
                builder.push_control(&Control::Ack { next, beyond });
            }
            limit.iter().for_each(|limit| _ = builder.push_control(limit));
        };
        session.write_bundle(now, incarnation, limits, write_control, buffer)
    }

    /// Handles a receiver report. A loss of more than 2 % sets the rate to three quarters of the throughput.
    /// Otherwise the rate grows by a sixteenth per report, until it exceeds `enough` octets per second and the limit
    /// is lifted.
    pub fn apply_report(&mut self, now: Instant, received: u32, lost: u32, enough: u32) {
        let delta = (received.wrapping_sub(self.reported.0), lost.wrapping_sub(self.reported.1));
        let time = now.since(self.last_report);
        // Ignore reordered reports.
        if delta.0 > i32::MAX as u32 || time.is_zero() {
            return;
        }
        // Losses may turn out to be reordering.
        let missing = if delta.1 > i32::MAX as u32 { 0 } else { delta.1 };
        let throughput = u128::from(self.session.octets_sent) * u128::from(Span::from_s(1).as_ps())
            / u128::from(time.as_ps());
        let throughput = u32::try_from(throughput).unwrap_or(NO_LIMIT - 1);
        let rate = self.rate.rate();
        if u64::from(missing) * 50 > u64::from(delta.0) + u64::from(missing) {
            self.rate.set_rate((throughput.min(rate) / 4 * 3).max(enough / 128).max(1));
        } else if rate != NO_LIMIT {
            let increased = rate.saturating_add(rate / 16 + 1);
            self.rate.set_rate(if increased > enough { NO_LIMIT } else { increased });
        }
        (self.reported, self.session.octets_sent, self.last_report) = ((received, lost), 0, now);
    }
}

/// All present hosts. Their interest is bounded by [`Segments`] and each host's [`Ranges`]. A join without room is
/// confirmed but not applied, as is a leave that would split a range without room.
#[derive(Debug)]
pub struct Members {
    settings: Settings,
    options: Format2,
    members: BTreeMap<u16, Member>,
    segments: Segments,
    /// The next timer of each host; and the hosts with a bundle to send.
    event_queue: BTreeSet<(Instant, u16)>,
    ready: BTreeSet<u16>,
    /// The host served last.
    last_turn: u16,
    sessions: Sessions,
    duplicate: Option<DuplicateNumber>,
    /// Sessions started, and sessions ended.
    pub(crate) counts: (u64, u64),
    /// Messages discarded with ended sessions: ordinary and priority.
    pub(crate) dropped: [u64; 2],
    /// Whether the interest changed.
    changed: bool,
    budget: WorkBudget,
    /// Changes without room, and times that changes were deferred.
    pub(crate) changes_refused: [u64; 2],
}

impl Members {
    /// Creates an empty table, with the sessions for an incarnation of the central converter.
    pub fn new(secret: Seed, incarnation: u32, settings: &Settings, format2: Format2) -> Members {
        Members {
            settings: *settings,
            options: format2,
            members: BTreeMap::new(),
            segments: Segments::default(),
            event_queue: BTreeSet::new(),
            ready: BTreeSet::new(),
            last_turn: 0,
            sessions: Sessions::new(secret, incarnation, Role::Host),
            duplicate: None,
            counts: (0, 0),
            dropped: [0; 2],
            changed: false,
            budget: WorkBudget { left: 0, until: Instant::ZERO },
            changes_refused: [0; 2],
        }
    }

    /// Iterates over the present hosts.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// Returns the number of present hosts.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether no host is present.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the subscribers of all addresses.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Returns the packet addresses with a subscriber if they may have changed since the last call.
    pub fn take_packet_addresses(&mut self) -> Option<PacketSet> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| {
            self.budget.spend(self.segments.len() / 8);
            self.segments.packet_addresses()
        })
    }

    /// Returns the last detected duplicate number.
    pub fn duplicate(&self) -> Option<DuplicateNumber> {
        self.duplicate
    }

    /// Handles the header of a bundle and returns whether it belongs to the host's session. Returns `None` for an
    /// earlier incarnation, a full table, or a later incarnation that has not confirmed its session.
    pub fn receive(&mut self, now: Instant, header: &Header, peer: Peer, octets: usize) -> Option<bool> {
        let number = header.number;
        let present = self.members.get_mut(&number).map(|member| &mut member.session);
        let status = present.map(|session| session.identify(now, header, peer, octets, &mut self.sessions));
        match status {
            Some(PeerStatus::Present) => {}
            Some(PeerStatus::Outdated) => {
                let duplicate = self.members[&number].session.duplicate(now, peer);
                self.duplicate = duplicate.or(self.duplicate);
                return None;
            }
            Some(PeerStatus::Unconfirmed) => {
                self.reschedule(now, number);
                return None;
            }
            None if self.members.len() >= usize::from(self.options.max_hosts) => return None,
            None => self.add(now, header, None),
            Some(PeerStatus::Restarted(id)) => {
                self.remove(number);
                self.add(now, header, id);
            }
        }
        let session = &mut self.members.get_mut(&number)?.session;
        let membership = session.receive(now, header, peer, octets);
        if membership == Membership::Confirming {
            session.outbox.open(now);
        }
        Some(membership != Membership::Outside)
    }

    /// Adds a host with a session.
    fn add(&mut self, now: Instant, header: &Header, id: Option<u32>) {
        let id = id.unwrap_or_else(|| self.sessions.issue());
        let max_octets = self.options.max_datagram_octets();
        let outbox = Outbox::new(max_octets, self.settings.timing, now);
        let session = PeerSession::new(now, header, id, outbox);
        self.members.insert(header.number, Member::new(now, session, max_octets));
        self.counts.0 += 1;
    }

    /// Announces new limits to all hosts, or to those that sent messages since the last announcement.
    pub fn announce_limits(&mut self, now: Instant, all: bool) {
        for number in self.members.keys().copied().collect::<Vec<u16>>() {
            let Some(member) = self.members.get_mut(&number) else { continue };
            if std::mem::replace(&mut member.received_at_limit, member.session.link.received)
                != member.session.link.received
                || all
            {
                member.session.outbox.schedule_control(now);
                self.reschedule(now, number);
            }
        }
    }

    /// Returns a host.
    pub fn get(&mut self, number: u16) -> Option<&mut Member> {
        self.members.get_mut(&number)
    }

    /// Updates the timer and the send queue after a change of a host.
    pub fn reschedule(&mut self, now: Instant, number: u16) {
        let Some(member) = self.members.get_mut(&number) else { return };
        member.session.outbox.update_ready(now);
        let due = member.session.deadline();
        let before = member.scheduled.replace(due);
        if before != Some(due) {
            before.map(|before| self.event_queue.remove(&(before, number)));
            self.event_queue.insert((due, number));
        }
        let _ = match member.session.is_ready() {
            true => self.ready.insert(number),
            false => self.ready.remove(&number),
        };
    }

    /// Applies changes of a host's interest, in its session.
    pub fn apply_changes(&mut self, now: Instant, number: u16, changes: &RangeChanges<'_>, joins: bool) {
        let Some(member) = self.members.get_mut(&number) else { return };
        member.confirm_pending = true;
        member.session.outbox.schedule_control(now);
        let known = member.confirmed_changes.wrapping_sub(changes.first_change);
        if known > i32::MAX as u32 {
            // Earlier changes are missing and will be repeated.
            return;
        }
        for (first, last) in changes.ranges().skip(known as usize) {
            if !self.budget.is_left(now) {
                self.changes_refused[1] += 1;
                return;
            }
            member.confirmed_changes = member.confirmed_changes.wrapping_add(1);
            if member.interest.is_unchanged_by(first, last, joins) {
                self.budget.spend(0);
                continue;
            }
            let has_room = member.interest.has_room(first, last, joins);
            let change = has_room.then(|| self.segments.set(number, first, last, joins));
            self.budget.spend(change.map_or(0, |change| change.segments_visited));
            if change.is_none_or(|change| !change.applied) {
                self.changes_refused[0] += 1;
                continue;
            }
            let _ =
                if joins { member.interest.insert(first, last) } else { member.interest.remove(first, last) };
            self.changed = true;
        }
    }

    /// Ends the session of a host.
    pub fn remove(&mut self, number: u16) {
        let Some(member) = self.members.remove(&number) else { return };
        for (first, last) in member.interest.iter() {
            let change = self.segments.set(number, first, last, false);
            debug_assert!(change.applied, "removing a whole range needs no room");
            self.budget.spend(change.segments_visited);
            self.changed = true;
        }
        let (ordinary, urgent) = member.session.outbox.waiting();
        self.dropped = [self.dropped[0] + ordinary as u64, self.dropped[1] + urgent as u64];
        self.counts.1 += 1;
        self.ready.remove(&number);
        member.scheduled.map(|due| self.event_queue.remove(&(due, number)));
    }

    /// Handles all due timers.
    pub fn handle_timers(&mut self, now: Instant) {
        while let Some((due, number)) = self.event_queue.first().copied()
            && due <= now
        {
            match self.members.get(&number) {
                Some(member) if member.session.has_timed_out(now) => self.remove(number),
                _ => self.reschedule(now, number),
            }
        }
    }

    /// Returns when the next timer is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.event_queue.first().map(|(due, _)| *due)
    }

    /// Returns whether a bundle is due.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next host with a due bundle, in turn.
    pub fn next_ready(&mut self) -> Option<u16> {
        let behind = self.ready.range(self.last_turn.saturating_add(1)..).next();
        let number = behind.or_else(|| self.ready.first()).copied()?;
        self.last_turn = number;
        Some(number)
    }
}
