//! Hosts as the central converter sees them.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Seed, Span};

use super::outbox::{Outbox, Parcel};
use super::{ACKNOWLEDGE, ACKNOWLEDGED, AGAIN, LONELY, Newcomer, RATED, SATURATED, SILENCE, Stranger, Twins};
use crate::packets::Packets;
use crate::path::{Link, Sessions, is_later};
use crate::ranges::{Ranges, Segments};
use crate::regulator::{Bucket, NO_LIMIT};
use crate::reliable::Receiver;
use crate::settings::{Settings, Wide};
use crate::wire::wide::control::{Changes, Control};
use crate::wire::wide::{Header, Role};

/// One host.
#[derive(Debug)]
pub struct Member {
    /// Its number.
    pub number: u16,
    /// Where it was last heard from in its session; before it was in it, where it was last heard from.
    pub peer: Peer,
    life: u32,
    /// Its session, and when it was given that.
    pub session: u32,
    given: Instant,
    /// What it may be sent until it is heard in its session; none: it was.
    stranger: Option<Stranger>,
    /// Who says that he is it in a later life, if anybody did.
    newcomer: Option<Newcomer>,
    met: Instant,
    heard: Instant,
    /// What leaves for it.
    pub outbox: Outbox,
    /// Messages from it that are acknowledged.
    pub receiver: Receiver<Parcel>,
    acknowledge: bool,
    /// What came from it.
    pub link: Link,
    wants: Ranges,
    /// Changes of that which were heard of.
    told: u32,
    tell: bool,
    /// What it last said came, and when it last said so.
    reported: (u32, u32),
    /// Octets sent to it since.
    octets: u64,
    since: Instant,
    /// Octets of ordinary messages that get through to it.
    rate: Bucket,
    /// Ordinary messages that it takes.
    saturation: Bucket,
    /// What had come from it when it was last told how much it may send.
    limited: u32,
    /// Messages repeated, as far as was asked.
    repeated: u64,
}

/// Pieces of what hosts want that changes of it may look at in [`AGAIN`], and as a whole range is looked at in one go, one range
/// more. What is beyond that is put off: the host tells it again then.
pub const PIECES: i64 = 32_768;
/// What is looked at anyhow costs as much as so many.
const A_CHANGE: i64 = 8;
/// More than so many times [`PIECES`] is not owed.
const OWED: i64 = 8;

/// How much may still be looked at.
#[derive(Debug)]
struct Effort {
    left: i64,
    until: Instant,
}

impl Effort {
    fn is_left(&mut self, now: Instant) -> bool {
        if now >= self.until {
            let times = now.since(self.until).as_ps() / AGAIN.as_ps() + 1;
            self.until += Span::from_ps(AGAIN.as_ps().saturating_mul(times));
            self.left = (self.left + PIECES * times.min(2 * OWED as u64) as i64).min(PIECES);
        }
        self.left > 0
    }

    fn spend(&mut self, pieces: usize) {
        self.left = (self.left - A_CHANGE - pieces as i64).max(-OWED * PIECES);
    }
}

/// Why a host gets no more just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// What it got of late did not all get there.
    Lossy,
    /// It takes no more.
    Saturated,
}

impl Member {
    fn new(now: Instant, header: &Header, session: u32, settings: &Settings, wide: Wide) -> Member {
        let longest = wide.longest();
        Member {
            number: header.number,
            peer: Peer::NONE,
            life: header.life,
            session,
            given: now,
            stranger: Some(Stranger::default()),
            newcomer: None,
            met: now,
            heard: now,
            outbox: Outbox::new(longest, settings.timing, now),
            receiver: Receiver::default(),
            acknowledge: false,
            link: Link::default(),
            wants: Ranges::default(),
            told: 0,
            tell: false,
            reported: (0, 0),
            octets: 0,
            since: now,
            rate: Bucket::new(longest, RATED),
            saturation: Bucket::new(1, SATURATED),
            limited: 0,
            repeated: 0,
        }
    }

    /// What it wants.
    pub fn wants(&self) -> &Ranges {
        &self.wants
    }

    /// Changes of what it wants that were heard of in its session.
    pub fn told_of(&self) -> u32 {
        self.told
    }

    /// Whether it may have taken leave of its session before it was heard in it: it does not come back to that.
    fn may_have_left(&self, now: Instant, header: &Header) -> bool {
        let outside = self.life == header.life && self.session != header.session;
        outside && self.stranger.is_some() && now >= self.given + LONELY
    }

    /// A message to be acknowledged came, in its session.
    pub fn acknowledge(&mut self, now: Instant) {
        let wait = if self.receiver.unacknowledged() < ACKNOWLEDGED { ACKNOWLEDGE } else { Span::ZERO };
        if !std::mem::replace(&mut self.acknowledge, true) || wait.is_zero() {
            self.outbox.tell_by(now + wait);
        }
    }

    /// Whether an ordinary message of so many octets may go to it.
    pub fn admits(&mut self, now: Instant, octets: usize) -> Result<(), Limit> {
        if !self.saturation.admits(now, 1) {
            return Err(Limit::Saturated);
        }
        if !self.rate.admits(now, octets) {
            return Err(Limit::Lossy);
        }
        Ok(())
    }

    /// It takes so many ordinary messages a second.
    pub fn saturate(&mut self, messages: u32) {
        self.saturation.set(messages);
    }

    /// Messages sent to it again since this was last asked.
    pub fn repeated(&mut self) -> u64 {
        let all = self.outbox.reliable.repeated();
        all - std::mem::replace(&mut self.repeated, all)
    }

    /// A bundle of so many octets leaves for it.
    pub fn sent(&mut self, octets: usize) {
        self.octets += octets as u64;
        self.stranger.iter_mut().for_each(|stranger| stranger.sent(octets));
    }

    /// Whether a bundle is to leave for it, and may; or for who says that he is it.
    fn is_ready(&self) -> bool {
        let own = self.outbox.is_ready() && self.stranger.is_none_or(Stranger::may_be_sent);
        own || self.newcomer.is_some_and(|newcomer| newcomer.is_to_be_told())
    }

    /// Who is to be told his session before anything else leaves.
    pub(super) fn newcomer(&mut self) -> Option<&mut Newcomer> {
        self.newcomer.as_mut().filter(|newcomer| newcomer.is_to_be_told())
    }

    /// It says what came. If more than a fiftieth did not, it gets three quarters of what it got; else a sixteenth more each
    /// time, until that is more than `enough`, octets a second.
    pub fn report(&mut self, now: Instant, received: u32, lost: u32, enough: u32) {
        let news = (received.wrapping_sub(self.reported.0), lost.wrapping_sub(self.reported.1));
        let time = now.since(self.since);
        // Reports that overtook each other tell nothing.
        if news.0 > i32::MAX as u32 || time.is_zero() {
            return;
        }
        // What was missing may have come since.
        let missing = if news.1 > i32::MAX as u32 { 0 } else { news.1 };
        let got = u128::from(self.octets) * u128::from(Span::from_s(1).as_ps()) / u128::from(time.as_ps());
        let got = u32::try_from(got).unwrap_or(NO_LIMIT - 1);
        let rate = self.rate.rate();
        if u64::from(missing) * 50 > u64::from(news.0) + u64::from(missing) {
            self.rate.set((got.min(rate) / 4 * 3).max(enough / 128).max(1));
        } else if rate != NO_LIMIT {
            let more = rate.saturating_add(rate / 16 + 1);
            self.rate.set(if more > enough { NO_LIMIT } else { more });
        }
        (self.reported, self.octets, self.since) = ((received, lost), 0, now);
    }

    /// What is told it beside messages, but for the congestion.
    pub fn told(&mut self) -> impl Iterator<Item = Control<'static>> + use<> {
        let told = std::mem::take(&mut self.tell).then_some(Control::Told(self.told));
        let acknowledgement = std::mem::take(&mut self.acknowledge).then(|| self.receiver.acknowledgement());
        told.into_iter().chain(acknowledgement.map(|(next, beyond)| Control::Ack { next, beyond }))
    }

    /// When something is due.
    fn deadline(&self) -> Instant {
        let silent = self.heard + SILENCE;
        self.outbox.deadline().map_or(silent, |due| due.min(silent))
    }
}

/// All hosts that are there. What they want has room in [`Segments`] and each host's [`Ranges`]; a join for which there is none is
/// heard and refused, and so is a drop that would cut a range in two.
#[derive(Debug)]
pub struct Members {
    settings: Settings,
    wide: Wide,
    members: BTreeMap<u16, Member>,
    segments: Segments,
    /// When each is due; and which have a bundle ready.
    agenda: BTreeSet<(Instant, u16)>,
    dues: BTreeMap<u16, Instant>,
    ready: BTreeSet<u16>,
    /// The one whose turn it was.
    turn: u16,
    sessions: Sessions,
    twins: Option<Twins>,
    /// Hosts met, and hosts that went.
    counts: (u64, u64),
    /// Messages that waited for who went: ordinary ones, and those with priority.
    dropped: [u64; 2],
    /// Whether what is wanted changed.
    changed: bool,
    effort: Effort,
    /// Changes for which there was no room, and times that some were put off.
    refused: [u64; 2],
}

impl Members {
    /// Nobody is there in this life of the central converter, whose secret makes sessions.
    pub fn new(secret: Seed, life: u32, settings: &Settings, wide: Wide) -> Members {
        Members {
            settings: *settings,
            wide,
            members: BTreeMap::new(),
            segments: Segments::default(),
            agenda: BTreeSet::new(),
            dues: BTreeMap::new(),
            ready: BTreeSet::new(),
            turn: 0,
            sessions: Sessions::new(secret, life, Role::Host),
            twins: None,
            counts: (0, 0),
            dropped: [0; 2],
            changed: false,
            effort: Effort { left: 0, until: Instant::ZERO },
            refused: [0; 2],
        }
    }

    /// Who is there.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Who wants what.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Hosts that were met, and hosts that went.
    pub fn counts(&self) -> (u64, u64) {
        self.counts
    }

    /// Messages that waited for who went, since this was last asked: ordinary ones, and those with priority.
    pub fn dropped(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.dropped)
    }

    /// Joins and drops for which there was no room, and times that some were put off since much had to be looked at.
    pub fn refused(&self) -> [u64; 2] {
        self.refused
    }

    /// The packet addresses that are wanted, if what is wanted changed since this was last asked.
    pub fn wanted(&mut self) -> Option<Packets> {
        let changed = std::mem::take(&mut self.changed);
        changed.then(|| {
            self.effort.spend(self.segments.len() / 8);
            self.segments.packets()
        })
    }

    /// Two that say that they are the same host, if there ever were: the last ones.
    pub fn twins(&self) -> Option<Twins> {
        self.twins
    }

    /// A bundle of so many octets came from a host: whether in its session. None: it is a straggler, or there are as many hosts
    /// as may be, or its host is there in an earlier life and it has not said its session yet.
    pub fn hear(&mut self, now: Instant, header: &Header, peer: Peer, octets: usize) -> Option<bool> {
        let number = header.number;
        match self.members.get_mut(&number) {
            Some(member) if is_later(member.life, header.life) => {
                let (last, since) = (member.peer, member.met);
                self.twins = Twins::of(now, number, since, [last, peer]).or(self.twins);
                return None;
            }
            Some(member) if member.newcomer.is_some_and(|newcomer| newcomer.session == header.session) => {
                self.lose(number);
                self.meet(now, header, header.session);
            }
            Some(member) if member.life == header.life => {
                if member.may_have_left(now, header) {
                    (member.session, member.given) = (self.sessions.give(), now);
                    member.outbox.restart(now, false);
                }
            }
            Some(member) if member.stranger.is_none() => {
                let newcomer =
                    member.newcomer.get_or_insert_with(|| Newcomer::new(now, self.sessions.give()));
                newcomer.knock(now, peer, octets);
                self.settle(now, number);
                return None;
            }
            other => {
                if other.is_some() {
                    self.lose(number);
                } else if self.members.len() >= usize::from(self.wide.most_hosts) {
                    return None;
                }
                let session = self.sessions.give();
                self.meet(now, header, session);
            }
        }
        let member = self.members.get_mut(&number)?;
        let in_session = header.session == member.session;
        if in_session {
            (member.heard, member.peer, member.stranger) = (now, peer, None);
            if !member.outbox.is_open() {
                member.outbox.open(now);
            }
            return Some(true);
        }
        if let Some(stranger) = &mut member.stranger {
            // Nobody knows yet which of them it is.
            if std::mem::replace(&mut member.peer, peer) != peer {
                *stranger = Stranger::default();
            }
            stranger.heard(octets);
            member.heard = now;
        }
        member.outbox.tell_by(now + AGAIN);
        Some(false)
    }

    /// A host is there from now on, and is to have this session.
    fn meet(&mut self, now: Instant, header: &Header, session: u32) {
        let member = Member::new(now, header, session, &self.settings, self.wide);
        self.members.insert(header.number, member);
        self.counts.0 += 1;
    }

    /// All, or those from which messages came since the last time, are to be told how much they may send.
    pub fn tell_limits(&mut self, now: Instant, all: bool) {
        for number in self.members.keys().copied().collect::<Vec<u16>>() {
            let Some(member) = self.members.get_mut(&number) else { continue };
            if std::mem::replace(&mut member.limited, member.link.received) != member.link.received || all {
                member.outbox.tell_by(now);
                self.settle(now, number);
            }
        }
    }

    /// A host.
    pub fn get(&mut self, number: u16) -> Option<&mut Member> {
        self.members.get_mut(&number)
    }

    /// After something was done with a host: when it is due, and whether it has something to send.
    pub fn settle(&mut self, now: Instant, number: u16) {
        let member = self.members.get_mut(&number);
        let due = member.map(|member| {
            member.outbox.roll(now);
            (member.deadline(), member.is_ready())
        });
        let before = self.dues.get(&number).copied();
        let next = due.map(|(due, _)| due);
        if before != next {
            before.map(|due| self.agenda.remove(&(due, number)));
            match next {
                Some(due) => _ = (self.agenda.insert((due, number)), self.dues.insert(number, due)),
                None => _ = self.dues.remove(&number),
            }
        }
        match due {
            Some((_, true)) => _ = self.ready.insert(number),
            _ => _ = self.ready.remove(&number),
        }
    }

    /// Changes of what a host wants, in its session.
    pub fn change(&mut self, now: Instant, number: u16, changes: &Changes<'_>, joins: bool) {
        let Some(member) = self.members.get_mut(&number) else { return };
        member.tell = true;
        member.outbox.tell_by(now);
        let known = member.told.wrapping_sub(changes.from);
        if known > i32::MAX as u32 {
            // Something before it is missing, and will be told again.
            return;
        }
        for (first, last) in changes.ranges().skip(known as usize) {
            if !self.effort.is_left(now) {
                self.refused[1] += 1;
                return;
            }
            member.told = member.told.wrapping_add(1);
            if member.wants.is_already(first, last, joins) {
                self.effort.spend(0);
                continue;
            }
            let room = member.wants.has_room(first, last, joins);
            let change = room.then(|| self.segments.set(number, first, last, joins));
            self.effort.spend(change.map_or(0, |change| change.pieces));
            if change.is_none_or(|change| !change.done) {
                self.refused[0] += 1;
                continue;
            }
            let _ = if joins { member.wants.add(first, last) } else { member.wants.remove(first, last) };
            self.changed = true;
        }
    }

    /// A host goes.
    pub fn lose(&mut self, number: u16) {
        let Some(member) = self.members.remove(&number) else { return };
        for (first, last) in member.wants.iter() {
            let change = self.segments.set(number, first, last, false);
            debug_assert!(change.done, "what takes a whole range away needs no room");
            self.effort.spend(change.pieces);
            self.changed = true;
        }
        let (ordinary, urgent) = member.outbox.waiting();
        self.dropped = [self.dropped[0] + ordinary as u64, self.dropped[1] + urgent as u64];
        self.counts.1 += 1;
        self.ready.remove(&number);
        if let Some(due) = self.dues.remove(&number) {
            self.agenda.remove(&(due, number));
        }
    }

    /// Does what is due.
    pub fn roll(&mut self, now: Instant) {
        while let Some((due, number)) = self.agenda.first().copied()
            && due <= now
        {
            match self.members.get(&number) {
                Some(member) if now >= member.heard + SILENCE => self.lose(number),
                _ => self.settle(now, number),
            }
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// Whether a bundle is ready.
    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next in turn of those whose bundles are ready.
    pub fn take_turn(&mut self) -> Option<u16> {
        let behind = self.ready.range(self.turn.saturating_add(1)..).next();
        let number = behind.or_else(|| self.ready.first()).copied()?;
        self.turn = number;
        Some(number)
    }
}
