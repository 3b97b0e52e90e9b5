//! Which converter of level 1 gets which packet addresses, as the central converter sees it.
//!
//! Each is told all that it is to get, and answers when that is so. What one may still get is given to no other: so no two
//! get the same, but for one that is taken for dead and is not.

use std::collections::BTreeMap;

use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Seed, Span};

use super::outbox::Outbox;
use super::{AGAIN, LONELY, Newcomer, SILENCE, Stranger, Twins};
use crate::balance::{Loads, MOVES, Move, REBALANCE, next};
use crate::packets::Packets;
use crate::path::{Link, Sessions, is_later};
use crate::settings::{Settings, Wide};
use crate::wire::wide::{Header, Role};

/// Most converters of level 1.
pub const MOST: usize = crate::central::MOST_LEVEL_1;
/// So long what was sent before may be on its way.
const STRAGGLE: Span = Span::from_ms(100);

/// What was counted of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that one was heard of first, or anew after it had been taken leave of.
    pub met: u64,
    /// Times that one fell silent, or said that it ends.
    pub gone: u64,
    /// Packet addresses that moved from one to another, while somebody wanted them.
    pub moved: u64,
    /// All the time that they had nobody on their way, and the longest.
    pub gaps: Span,
    /// The longest.
    pub longest_gap: Span,
}

/// One converter of level 1.
#[derive(Debug)]
pub struct Side {
    /// Its number.
    pub number: u16,
    /// Where it was last heard from in its session; before it was in it, where it was last heard from.
    pub peer: Peer,
    /// What leaves for it.
    pub outbox: Outbox,
    /// What came from it.
    pub link: Link,
    /// Its life and session, if it is there.
    alive: Option<(u32, u32)>,
    heard: Instant,
    met: Instant,
    /// When its session was given.
    given: Instant,
    /// Since when it is in its session; until then it gets nothing but that.
    since: Option<Instant>,
    stranger: Stranger,
    /// Who says that he is it in a later life, if anybody did.
    newcomer: Option<Newcomer>,
    /// What it is to get.
    wants: Packets,
    /// What it was last told to get, and with which version; which version is so.
    told: Packets,
    version: u32,
    holds: u32,
    /// What it may get: what it was told since what is so.
    may: Packets,
    /// When it is told (again).
    tell: Instant,
}

/// All of them.
#[derive(Debug)]
pub struct Sides {
    sides: Vec<Side>,
    wide: Wide,
    /// What hosts want.
    wanted: Packets,
    loads: Loads,
    rebalance: Instant,
    /// Since when what moves has nobody.
    moving: BTreeMap<u16, Instant>,
    sessions: Sessions,
    twins: Option<Twins>,
    counts: Counts,
    dropped: [u64; 2],
}

impl Side {
    fn new(number: u16, settings: &Settings, wide: Wide) -> Side {
        Side {
            number,
            peer: Peer::NONE,
            outbox: Outbox::new(wide.longest(), settings.timing, Instant::ZERO),
            link: Link::default(),
            alive: None,
            heard: Instant::ZERO,
            met: Instant::ZERO,
            given: Instant::ZERO,
            since: None,
            stranger: Stranger::default(),
            newcomer: None,
            wants: Packets::NONE,
            told: Packets::NONE,
            version: 0,
            holds: 0,
            may: Packets::NONE,
            tell: Instant::ZERO,
        }
    }

    /// Whether it took leave of a session that it was in, having heard nothing for too long. What it said before it was in it
    /// may still be on its way, but not for long.
    fn forgot(&self, now: Instant, header: &Header, peer: Peer) -> bool {
        header.session == 0 && peer == self.peer && self.since.is_some_and(|since| now >= since + STRAGGLE)
    }

    /// Whether it may have taken leave of a session before it was heard in it, to which it then does not come back.
    fn may_have_left(&self, now: Instant, header: &Header) -> bool {
        header.session == 0 && self.since.is_none() && now >= self.given + LONELY
    }

    /// It is heard of first, or anew, in this life.
    fn meet(&mut self, now: Instant, life: u32, session: u32) {
        self.give(now, life, session);
        (self.link, self.since, self.stranger) = (Link::default(), None, Stranger::default());
        self.newcomer = None;
        (self.told, self.may, self.version, self.holds) = (Packets::NONE, Packets::NONE, 1, 0);
        (self.met, self.heard) = (now, now);
        self.outbox.tell_by(now);
    }

    /// It is to have this session.
    fn give(&mut self, now: Instant, life: u32, session: u32) {
        (self.alive, self.given) = (Some((life, session)), now);
        self.outbox.restart(now, false);
    }

    /// So many octets came from it, not in its session as yet.
    fn knock(&mut self, now: Instant, peer: Peer, octets: usize) {
        if std::mem::replace(&mut self.peer, peer) != peer {
            self.stranger = Stranger::default();
        }
        self.stranger.heard(octets);
        self.heard = now;
    }

    /// It is in its session. What it still gets of before nobody knows, until it says that it gets what it was told.
    fn enter(&mut self, now: Instant) {
        (self.since, self.may, self.tell) = (Some(now), Packets::ALL, now);
        self.outbox.tell_by(now);
    }

    /// Whether it was heard of.
    pub fn is_alive(&self) -> bool {
        self.alive.is_some()
    }

    /// Whether it is there, and in its session.
    fn is_in(&self) -> bool {
        self.is_alive() && self.since.is_some()
    }

    /// Whether a bundle is to leave for it, and may; or for who says that he is it.
    pub fn is_ready(&self) -> bool {
        let own = self.outbox.is_ready() && (self.is_in() || self.stranger.may_be_sent());
        self.is_alive() && (own || self.newcomer.is_some_and(|newcomer| newcomer.is_to_be_told()))
    }

    /// Who is to be told his session before anything else leaves.
    pub(super) fn newcomer(&mut self) -> Option<&mut Newcomer> {
        self.newcomer.as_mut().filter(|newcomer| newcomer.is_to_be_told())
    }

    /// A bundle of so many octets leaves for it.
    pub fn sent(&mut self, octets: usize) {
        if !self.is_in() {
            self.stranger.sent(octets);
        }
    }

    /// Its session; 0: none.
    pub fn session(&self) -> u32 {
        self.alive.map_or(0, |(_, session)| session)
    }

    /// What it is to get.
    pub fn wants(&self) -> &Packets {
        &self.wants
    }

    /// The hold that is to be told now, if there is one.
    pub fn hold(&mut self, now: Instant) -> Option<(u32, Packets)> {
        let due = self.is_in() && self.version != self.holds && now >= self.tell;
        if due {
            self.tell = now + AGAIN;
        }
        due.then_some((self.version, self.told))
    }

    /// Has it told again soon, if it is not so.
    pub fn tell_again(&mut self, now: Instant) {
        if self.is_in() && self.version != self.holds {
            self.outbox.tell_by(self.tell.max(now));
        }
    }
}

impl Sides {
    /// Those with these numbers, none of which is there in this life of the central converter, whose secret makes sessions.
    pub fn new(secret: Seed, life: u32, numbers: &[u16], settings: &Settings, wide: Wide) -> Sides {
        Sides {
            sides: numbers.iter().map(|number| Side::new(*number, settings, wide)).collect(),
            wide,
            wanted: Packets::NONE,
            loads: Loads::default(),
            rebalance: Instant::ZERO + REBALANCE,
            moving: BTreeMap::new(),
            sessions: Sessions::new(secret, life, Role::Level1),
            twins: None,
            counts: Counts::default(),
            dropped: [0; 2],
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Packet addresses that are on their way from one to another.
    pub fn moving(&self) -> usize {
        self.moving.len()
    }

    /// Messages that waited for who is gone, since this was last asked: ordinary ones, and those with priority.
    pub fn dropped(&mut self) -> [u64; 2] {
        std::mem::take(&mut self.dropped)
    }

    /// Each.
    pub fn iter(&self) -> impl Iterator<Item = &Side> {
        self.sides.iter()
    }

    /// The one at a place.
    pub fn at(&mut self, at: usize) -> &mut Side {
        &mut self.sides[at]
    }

    /// How many there may be.
    pub fn len(&self) -> usize {
        self.sides.len()
    }

    /// Whether there can be none.
    pub fn is_empty(&self) -> bool {
        self.sides.is_empty()
    }

    /// Where what is sent to a packet address leaves: by who gets it, or the first that is there.
    pub fn out(&self, packet: u16) -> Option<usize> {
        let holder = self.sides.iter().position(|side| side.is_in() && side.wants.has(packet));
        holder.or_else(|| self.sides.iter().position(Side::is_in))
    }

    /// Two that say that they are the same, if there ever were: the last ones.
    pub fn twins(&self) -> Option<Twins> {
        self.twins
    }

    /// A bundle of so many octets came from one; where it is, and whether in its session. None: there is no such, or it is a
    /// straggler, or it is there in an earlier life and this has not said its session yet.
    pub fn hear(
        &mut self,
        now: Instant,
        header: &Header,
        peer: Peer,
        octets: usize,
    ) -> Option<(usize, bool)> {
        let at = self.sides.iter().position(|side| side.number == header.number)?;
        let side = &mut self.sides[at];
        match side.alive {
            Some((life, _)) if is_later(life, header.life) => {
                self.twins = Twins::of(now, side.number, side.met, [side.peer, peer]).or(self.twins);
                return None;
            }
            Some(_) if side.newcomer.is_some_and(|newcomer| newcomer.session == header.session) => {
                self.lose(now, at);
                self.sides[at].meet(now, header.life, header.session);
                self.counts.met += 1;
            }
            Some((life, _)) if life == header.life && side.may_have_left(now, header) => {
                side.give(now, life, self.sessions.give());
            }
            Some((life, _)) if life == header.life && !side.forgot(now, header, peer) => {}
            Some((life, _)) if life != header.life && side.is_in() => {
                let newcomer = side.newcomer.get_or_insert_with(|| Newcomer::new(now, self.sessions.give()));
                newcomer.knock(now, peer, octets);
                return None;
            }
            other => {
                if other.is_some() {
                    self.lose(now, at);
                }
                let session = self.sessions.give();
                self.sides[at].meet(now, header.life, session);
                self.counts.met += 1;
                if other.is_some() {
                    self.assign(now);
                }
            }
        }
        let side = &mut self.sides[at];
        let in_session = header.session == side.session();
        if in_session {
            (side.heard, side.peer) = (now, peer);
            if side.since.is_none() {
                side.enter(now);
                self.assign(now);
            }
        } else {
            if !side.is_in() {
                side.knock(now, peer, octets);
            }
            side.outbox.tell_by(now + AGAIN);
        }
        Some((at, in_session))
    }

    /// All are to be told how much they may send.
    pub fn tell_limits(&mut self, now: Instant) {
        self.sides.iter_mut().filter(|side| side.is_alive()).for_each(|side| side.outbox.tell_by(now));
    }

    /// One ends.
    pub fn bye(&mut self, now: Instant, at: usize) {
        self.lose(now, at);
        self.assign(now);
    }

    /// A message of a packet address came.
    pub fn count(&mut self, packet: u16) {
        self.loads.count(packet);
    }

    /// Hosts want these packet addresses, and no others.
    pub fn want(&mut self, now: Instant, wanted: Packets) {
        if wanted != self.wanted {
            self.wanted = wanted;
            self.assign(now);
        }
    }

    /// A version of its hold is so.
    pub fn holds(&mut self, now: Instant, at: usize, version: u32) {
        let side = &mut self.sides[at];
        if version != side.version || side.holds == version {
            return;
        }
        side.holds = version;
        side.may = side.told;
        let told = side.told;
        self.moving.retain(|packet, since| {
            let arrived = told.has(*packet);
            if arrived {
                let gap = now.since(*since);
                self.counts.gaps += gap;
                self.counts.longest_gap = self.counts.longest_gap.max(gap);
            }
            !arrived
        });
        self.tell(now);
    }

    /// The load of one, and how many it gets.
    fn load(&self, at: usize) -> (u64, usize) {
        let wants = &self.sides[at].wants;
        (wants.iter().map(|packet| self.loads.of(packet)).sum(), wants.count())
    }

    /// Gives what is wanted to who has least to do, and takes what is not.
    fn assign(&mut self, now: Instant) {
        let mut held = Packets::NONE;
        for side in &mut self.sides {
            let gone = side.wants.without(&self.wanted);
            side.wants = side.wants.without(&gone);
            held = held.or(&side.wants);
        }
        self.moving.retain(|packet, _| self.wanted.has(*packet));
        let mut loads: Vec<(u64, usize, usize)> = (0..self.sides.len())
            .filter(|at| self.sides[*at].is_in())
            .map(|at| (self.load(at).0, self.load(at).1, at))
            .collect();
        for packet in self.wanted.without(&held).iter() {
            let Some(least) = loads.iter_mut().min() else { break };
            *least = (least.0 + self.loads.of(packet), least.1 + 1, least.2);
            self.sides[least.2].wants.set(packet, true);
        }
        self.tell(now);
    }

    /// Has each told what it is to get, as far as no other may still get it.
    fn tell(&mut self, now: Instant) {
        for at in 0..self.sides.len() {
            let others = self.sides.iter().enumerate().filter(|(other, _)| *other != at);
            let taken = others.fold(Packets::NONE, |all, (_, side)| all.or(&side.may));
            let side = &mut self.sides[at];
            let told = side.wants.without(&taken.without(&side.may));
            if side.is_in() && told != side.told {
                side.told = told;
                side.may = side.may.or(&told);
                side.version = side.version.wrapping_add(1);
                side.tell = now;
                side.outbox.tell_by(now);
            }
        }
    }

    /// One is no longer there.
    fn lose(&mut self, now: Instant, at: usize) {
        let side = &mut self.sides[at];
        side.newcomer = None;
        if side.alive.take().is_none() {
            return;
        }
        for packet in side.wants.iter() {
            self.moving.entry(packet).or_insert(side.heard);
            self.counts.moved += 1;
        }
        (side.wants, side.told, side.may) = (Packets::NONE, Packets::NONE, Packets::NONE);
        let (ordinary, urgent) = side.outbox.waiting();
        self.dropped = [self.dropped[0] + ordinary as u64, self.dropped[1] + urgent as u64];
        side.outbox = Outbox::new(self.wide.longest(), side.outbox.timing(), now);
        self.counts.gone += 1;
    }

    /// Takes leave of who is silent, and moves what may move.
    pub fn roll(&mut self, now: Instant) {
        let silent = |side: &Side| side.is_alive() && now >= side.heard + SILENCE;
        let lost: Vec<usize> = (0..self.sides.len()).filter(|at| silent(&self.sides[*at])).collect();
        for at in &lost {
            self.lose(now, *at);
        }
        if !lost.is_empty() {
            self.assign(now);
        }
        self.loads.roll(now);
        if now >= self.rebalance {
            self.rebalance = next(self.rebalance, REBALANCE, now);
            self.move_some(now);
        }
        self.sides.iter_mut().filter(|side| side.is_alive()).for_each(|side| side.outbox.roll(now));
    }

    /// Moves some packet addresses, so that all have alike to do.
    fn move_some(&mut self, now: Instant) {
        for _ in 0..MOVES {
            let there = (0..self.sides.len()).filter(|at| self.sides[*at].is_in());
            let best = self.loads.best(there, |at| self.sides[at].wants.iter());
            let Some(Move { packet, from, to }) = best else { break };
            self.sides[from].wants.set(packet, false);
            self.sides[to].wants.set(packet, true);
            self.moving.entry(packet).or_insert(now);
            self.counts.moved += 1;
        }
        self.tell(now);
    }

    /// When something is due that no input brings.
    pub fn deadline(&self) -> Option<Instant> {
        let alive = self.sides.iter().filter(|side| side.is_alive());
        let each = alive.flat_map(|side| [Some(side.heard + SILENCE), side.outbox.deadline()]).flatten();
        // Loads matter only where there are two.
        let two = self.sides.iter().filter(|side| side.is_in()).count() > 1;
        each.chain(two.then_some(self.rebalance)).min()
    }
}
