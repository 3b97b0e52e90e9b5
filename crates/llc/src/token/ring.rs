//! A station of a ring: an endpoint around another one.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::token::frame::{Control, Key, Token};
use crate::token::{Command, Event, Members, Options, Repair, Statistics, Urgent};
use crate::wire::{ALL, HIGHEST};

/// The one port.
const PORT: Port = Port(0);
/// Events that may wait; what is more is counted and lost.
const EVENTS: usize = 32;

/// A station of a ring.
///
/// Frames that begin with a priority, 0 to 7, are the inner endpoint's: what comes is handed to it at once, whatever
/// the token does, and what it has to send leaves one a token. What begins with more keeps the ring. A
/// [`Peer`] is one octet, the station, or [`ALL`]. The inner endpoint has one port, `Port(0)`, and sends no batches:
/// one would leave as one packet.
///
/// It is off until it is told to [join](Command::Join).
///
/// Bounds: one frame of its own waits, and 32 events; events that find no room are counted
/// ([`Statistics::untold`]). The inner endpoint's queue is its own.
#[derive(Debug)]
pub struct Ring<E> {
    inner: E,
    me: u8,
    options: Options,
    /// Whether the user wants to be in a ring.
    wanted: bool,
    state: State,
    /// The newest token heard of, and who had or was to get it.
    newest: Option<Token>,
    holder: u8,
    /// The last that was taken.
    taken: Key,
    /// When that was, if nothing came between.
    arrived: Option<Instant>,
    /// The last sign of the token.
    heard: Instant,
    /// The token is being brought back.
    repair: Option<Repair>,
    next_window: Instant,
    /// From whom on the next window invites.
    invite: u8,
    /// Who asked to join.
    asked: Members,
    inner_deadline: Option<Instant>,
    events: VecDeque<Told>,
    statistics: Statistics,
}

/// An event of the ring itself.
type Told = Event<std::convert::Infallible>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In no ring, and wants none.
    Off,
    /// In no ring; begins one at `until`.
    Out { until: Instant, reply: Reply },
    /// A member that has not the token; makes a new one at `until`.
    Idle { until: Instant },
    /// It has the token, which came round in `rotation`, if that is known.
    Held { phase: Phase, rotation: Option<Span> },
    /// It has passed the token on, `sent` times, and is answerable for it; next at `until`, or as soon as it can.
    Passed { to: u8, sent: u8, until: Option<Instant> },
}

/// What an invited station does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    No,
    At(Instant, u8),
    Now(u8),
}

/// What a station does with the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Opens a window.
    Open,
    /// Listens until then who wants to join.
    Window(Instant),
    /// Sends a packet.
    Send,
    /// Had none, and waits until then for one.
    Rest(Instant),
    /// Passes it on.
    Pass,
}

impl<E: Urgent> Ring<E> {
    /// Station `me`, 1 to 254, around `inner`.
    ///
    /// # Panics
    /// If there is no such station, or an option that must not be zero is.
    pub fn new(inner: E, me: u8, options: Options) -> Ring<E> {
        assert!(me != 0 && me != ALL, "a station has a number from 1 to 254");
        let Options { highest, patience, tries, invited, slot, .. } = &options;
        assert!((1..ALL).contains(highest) && *tries > 0 && *invited > 0, "somebody is asked, once at least");
        assert!(!patience.is_zero() && !slot.is_zero(), "a token takes time");
        Ring {
            inner,
            me,
            options,
            wanted: false,
            state: State::Off,
            newest: None,
            holder: me,
            taken: Key::default(),
            arrived: None,
            heard: Instant::ZERO,
            repair: None,
            next_window: Instant::ZERO,
            invite: 1,
            asked: Members::default(),
            inner_deadline: None,
            events: VecDeque::with_capacity(EVENTS),
            statistics: Statistics::default(),
        }
    }

    /// The endpoint inside.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// Who is in its ring: nobody if it is in none.
    pub fn members(&self) -> Members {
        self.newest.map(|token| token.members).filter(|members| members.has(self.me)).unwrap_or_default()
    }

    /// Whether it has the token.
    pub fn has_token(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// What it counted.
    pub fn statistics(&self) -> Statistics {
        Statistics { stations: self.members().count() as u8, ..self.statistics }
    }

    fn tell(&mut self, event: Told) {
        if self.events.len() < EVENTS {
            self.events.push_back(event);
        } else {
            self.statistics.untold += 1;
        }
    }

    // --- what is heard

    fn hear(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        let from = match peer.as_bytes() {
            [from] if *from != 0 && *from != ALL => *from,
            _ => return self.statistics.malformed += 1,
        };
        let Some(control) = Control::read(frame) else { return self.statistics.malformed += 1 };
        if from == self.me || self.state == State::Off {
            return;
        }
        match control {
            Control::Token { token, to } => self.hear_token(now, token, to),
            Control::Window { token, first } => self.hear_window(now, token, from, first),
            Control::Join => {
                if let State::Held { phase: Phase::Window(_), .. } = self.state {
                    self.asked.insert(from);
                }
            }
        }
    }

    fn hear_token(&mut self, now: Instant, token: Token, to: u8) {
        if self.is_newer(token.key) {
            self.adopt(now, token, to);
            if to == self.me && matches!(self.state, State::Idle { .. }) {
                self.take(now);
            }
        } else {
            self.refresh(now, token.key, Span::ZERO);
            // Sent again by who did not hear me pass it on, or else a second one.
            if to == self.me && token.key != self.taken {
                self.doubled();
            }
        }
    }

    fn hear_window(&mut self, now: Instant, token: Token, from: u8, first: u8) {
        let window = self.options.window();
        if self.is_newer(token.key) {
            self.adopt(now, token, from);
        }
        if self.newest != Some(token) {
            return;
        }
        if matches!(self.state, State::Passed { .. }) && !token.members.has(self.me) {
            return self.off(now);
        }
        self.refresh(now, token.key, window);
        // Whoever opens the next leaves as much time as this one would.
        self.next_window = now + self.options.every;
        if let (State::Out { reply, .. }, true) = (&mut self.state, self.wanted) {
            let slot = invited(&self.options, token.members, first).position(|station| station == self.me);
            *reply = match slot {
                None => Reply::No,
                Some(0) => Reply::Now(from),
                Some(slot) => Reply::At(now + self.options.slot * slot as u64, from),
            };
        }
    }

    fn is_newer(&self, key: Key) -> bool {
        self.newest.is_none_or(|newest| key.is_newer(newest.key))
    }

    /// The newest token shows again that it is there; who has it keeps it for `wait`.
    fn refresh(&mut self, now: Instant, key: Key, wait: Span) {
        if self.newest.is_none_or(|newest| newest.key != key) {
            return;
        }
        self.heard = now;
        let claim = self.claims_at(now + wait);
        match &mut self.state {
            State::Idle { until } => *until = claim,
            State::Out { until, .. } => *until = now + wait + self.options.listen(self.me),
            // Only a window is news: it has arrived.
            State::Passed { until, .. } if !wait.is_zero() => {
                *until = Some(now + wait + self.options.patience)
            }
            _ => {}
        }
    }

    /// A newer token is about, at `holder`. The one that was held here is no more.
    fn adopt(&mut self, now: Instant, token: Token, holder: u8) {
        if self.has_token() {
            self.doubled();
        }
        if let Some(how) = self.repair.take() {
            self.tell(Event::Repaired { how, took: now.since(self.heard) });
        }
        let was_member = !self.members().is_empty();
        (self.newest, self.holder, self.heard) = (Some(token), holder, now);
        if token.members.has(self.me) {
            if !was_member {
                self.tell(Event::Joined { stations: token.members.count() as u8 });
                self.next_window = now + self.options.every;
                self.arrived = None;
            }
            self.state = State::Idle { until: self.claims_at(now) };
        } else if self.wanted {
            if was_member {
                self.tell(Event::Dropped);
            }
            self.state = self.outside(now);
        } else {
            self.off(now);
        }
    }

    fn doubled(&mut self) {
        self.statistics.doubled += 1;
        self.tell(Event::Doubled);
    }

    /// When it makes a new token, if the last sign of the old is from `heard`.
    fn claims_at(&self, heard: Instant) -> Instant {
        let rank = self.newest.map_or(0, |newest| newest.members.passes(self.holder, self.me));
        heard + self.options.silence() + self.options.slot * rank as u64
    }

    // --- what is done with the token

    fn take(&mut self, now: Instant) {
        self.taken = self.newest.map(|token| token.key).unwrap_or_default();
        let rotation = self.arrived.replace(now).map(|before| now.since(before));
        let statistics = &mut self.statistics;
        statistics.tokens += 1;
        if let Some(rotation) = rotation {
            statistics.rotations += 1;
            statistics.rotation_sum += rotation;
            statistics.rotation_max = statistics.rotation_max.max(rotation);
            statistics.rotation = rotation;
        }
        let phase = match self.wanted {
            true if self.is_alone() => Phase::Open, // who left hears so that the token has arrived
            true => self.begin(now),
            false => Phase::Pass,
        };
        self.state = State::Held { phase, rotation };
    }

    fn begin(&self, now: Instant) -> Phase {
        let due = self.is_first() && now >= self.next_window && self.invites().is_some();
        if due { Phase::Open } else { Phase::Send }
    }

    fn is_first(&self) -> bool {
        self.members().first() == Some(self.me)
    }

    fn is_alone(&self) -> bool {
        self.members() == Members::only(self.me)
    }

    /// Whom the next window invites first.
    fn invites(&self) -> Option<u8> {
        invited(&self.options, self.members(), self.invite).next()
    }

    /// Whether the inner endpoint may send its next frame.
    fn may_send(&self) -> bool {
        let State::Held { phase: Phase::Send | Phase::Rest(_), rotation } = self.state else { return false };
        let Some(priority) = self.inner.urgency() else { return false };
        let target = self.options.targets[usize::from(priority.min(HIGHEST))];
        target == Span::MAX || rotation.is_some_and(|rotation| rotation < target)
    }

    /// The inner endpoint has sent a frame.
    fn sent(&mut self) {
        self.statistics.frames += 1;
        let alone = self.is_alone();
        if let State::Held { phase, .. } = &mut self.state
            && !alone
        {
            *phase = Phase::Pass;
        }
    }

    /// The inner endpoint has nothing that may leave.
    fn finish(&mut self, now: Instant) {
        let State::Held { phase: Phase::Send, rotation } = self.state else { return };
        if self.is_alone() {
            return;
        }
        let waits = self.inner.urgency().is_some();
        let rests = !waits && !self.options.rest.is_zero() && self.is_first();
        let phase = if rests { Phase::Rest(now + self.options.rest) } else { Phase::Pass };
        self.state = State::Held { phase, rotation };
        self.statistics.withheld += u64::from(waits);
    }

    /// Gives the token to the next. Who leaves is then no more in the ring.
    fn pass(&mut self, now: Instant) {
        let Some(mut token) = self.newest else { return self.off(now) };
        if !self.wanted {
            token.members.remove(self.me);
        }
        token.key.sequence = token.key.sequence.wrapping_add(1);
        self.newest = Some(token);
        match token.members.after(self.me) {
            None => self.off(now),
            Some(next) if next == self.me => self.alone(now),
            Some(next) => {
                self.holder = next;
                self.state = State::Passed { to: next, sent: 0, until: None };
            }
        }
    }

    /// Holds the token of a ring of one.
    fn alone(&mut self, now: Instant) {
        if let Some(how) = self.repair.take() {
            self.tell(Event::Repaired { how, took: now.since(self.heard) });
        }
        (self.holder, self.arrived) = (self.me, None);
        self.state = State::Held { phase: self.begin(now), rotation: Some(Span::ZERO) };
    }

    /// Is in no ring any more, as it wanted; it may have changed its mind since.
    fn off(&mut self, now: Instant) {
        (self.newest, self.repair, self.arrived) = (None, None, None);
        self.state = if self.wanted { self.outside(now) } else { State::Off };
        self.tell(Event::Left);
    }

    /// In no ring, and wants one.
    fn outside(&self, now: Instant) -> State {
        State::Out { until: now + self.options.listen(self.me), reply: Reply::No }
    }

    // --- time

    fn wake(&mut self, now: Instant) {
        let late = now + self.options.slot;
        // What comes so late comes after a pause: what was sent meanwhile is heard first.
        let paused = |until: Instant| now.since(until) > self.options.patience;
        let alone = self.has_token() && self.is_alone();
        match &mut self.state {
            State::Out { until, .. } if now >= *until => {
                if paused(*until) {
                    *until = late;
                } else {
                    self.found(now);
                }
            }
            State::Out { reply: reply @ Reply::At(..), .. } => {
                if let Reply::At(at, to) = *reply
                    && now >= at
                {
                    let in_time = now <= at + self.options.slot;
                    *reply = if in_time { Reply::Now(to) } else { Reply::No };
                }
            }
            State::Idle { until } if now >= *until => {
                if paused(*until) {
                    *until = late;
                } else {
                    self.claim(now);
                }
            }
            State::Passed { until: Some(until), .. } if now >= *until => {
                if paused(*until) {
                    *until = late;
                } else {
                    self.unheard(now);
                }
            }
            State::Held { phase, .. } => match *phase {
                Phase::Window(until) if now >= until => self.close(),
                Phase::Rest(until) if now >= until => *phase = Phase::Pass,
                Phase::Send if alone => {
                    let phase = self.begin(now);
                    self.state = State::Held { phase, rotation: Some(Span::ZERO) };
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Begins a ring of its own.
    fn found(&mut self, now: Instant) {
        if !self.wanted {
            return self.off(now);
        }
        let key = Key { generation: 0, owner: self.me, sequence: 0 };
        self.newest = Some(Token { key, members: Members::only(self.me) });
        self.next_window = now;
        self.tell(Event::Joined { stations: 1 });
        self.alone(now);
    }

    /// Nobody seems to have the token: makes a new one.
    fn claim(&mut self, now: Instant) {
        let Some(token) = self.newest.as_mut().filter(|_| self.wanted) else { return self.off(now) };
        let generation = token.key.generation.wrapping_add(1);
        token.key = Key { generation, owner: self.me, sequence: 0 };
        self.statistics.claimed += 1;
        self.repair = Some(Repair::Claimed);
        self.arrived = None;
        self.pass(now);
    }

    /// The token was passed on and is not heard of.
    fn unheard(&mut self, now: Instant) {
        let State::Passed { to, sent, until } = &mut self.state else { return };
        if *sent < self.options.tries {
            *until = None;
            self.repair.get_or_insert(Repair::Resent);
            return;
        }
        let station = *to;
        if let Some(token) = &mut self.newest {
            token.members.remove(station);
        }
        self.statistics.died += 1;
        self.tell(Event::Died { station });
        if self.repair != Some(Repair::Claimed) {
            self.repair = Some(Repair::Skipped);
        }
        self.pass(now);
    }

    /// The window closes: who asked is in.
    fn close(&mut self) {
        let alone = self.is_alone();
        let State::Held { phase, .. } = &mut self.state else { return };
        *phase = Phase::Send;
        let Some(token) = &mut self.newest else { return };
        let before = token.members.count();
        token.members.join(std::mem::take(&mut self.asked));
        let joined = token.members.count() - before;
        self.statistics.admitted += joined as u64;
        if alone && joined > 0 {
            // A ring of several is newer than any station alone.
            let generation = token.key.generation.wrapping_add(1);
            token.key = Key { generation, owner: self.me, sequence: 0 };
        }
    }

    /// When it next has something to do by itself.
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Out { until, reply: Reply::At(at, _) } => Some(until.min(at)),
            State::Out { until, .. } | State::Idle { until } => Some(until),
            State::Held { phase: Phase::Window(until) | Phase::Rest(until), .. } => Some(until),
            State::Held { phase: Phase::Send, .. } if self.is_alone() => {
                self.invites().map(|_| self.next_window)
            }
            State::Passed { until, .. } => until,
            State::Off | State::Held { .. } => None,
        }
    }

    // --- what is said

    /// Whether a frame of its own waits to leave.
    fn speaks(&self) -> bool {
        match self.state {
            State::Out { reply, .. } => matches!(reply, Reply::Now(_)),
            State::Held { phase, .. } => matches!(phase, Phase::Open | Phase::Pass),
            State::Passed { until, .. } => until.is_none(),
            State::Off | State::Idle { .. } => false,
        }
    }

    /// Whether it would go on if the port were free.
    fn wants_port(&self) -> bool {
        let to_pass = matches!(self.state, State::Held { phase: Phase::Send, .. }) && !self.is_alone();
        to_pass || self.speaks() || self.may_send()
    }

    /// Writes a frame that keeps the ring, if there is one to send.
    fn speak(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if let State::Held { phase: Phase::Pass, .. } = self.state {
            self.pass(now);
        }
        let (control, to) = match &mut self.state {
            State::Out { reply, .. } => {
                let Reply::Now(to) = *reply else { return None };
                *reply = Reply::No;
                (Control::Join, to)
            }
            State::Held { phase: phase @ Phase::Open, .. } => {
                *phase = Phase::Window(now + self.options.window());
                (self.open(now)?, ALL)
            }
            State::Passed { to, sent, until: until @ None } => {
                *until = Some(now + self.options.patience);
                *sent += 1;
                if self.repair.is_none() {
                    self.heard = now;
                }
                self.statistics.resent += u64::from(*sent > 1);
                (Control::Token { token: self.newest?, to: *to }, ALL)
            }
            _ => return None,
        };
        let length = control.write(buffer);
        Some(Transmit { port: PORT, peer: Peer::new(&[to]), length, segment: None })
    }

    fn open(&mut self, now: Instant) -> Option<Control> {
        let (token, first) = (self.newest?, self.invites().unwrap_or(1));
        let last = invited(&self.options, token.members, first).last();
        self.invite = last.map_or(1, |last| last % self.options.highest + 1);
        self.next_window = now + self.options.every;
        self.asked = Members::default();
        self.statistics.windows += 1;
        Some(Control::Window { token, first })
    }
}

/// Whom a window invites: the stations that are not members, from `first` on, going round.
fn invited(options: &Options, members: Members, first: u8) -> impl Iterator<Item = u8> {
    let (highest, most) = (options.highest, usize::from(options.invited));
    let first = if first > highest { 1 } else { first };
    (first..=highest).chain(1..first).filter(move |station| !members.has(*station)).take(most)
}

impl<E: Urgent> Endpoint for Ring<E> {
    type Command<'a> = Command<'a, E::Command<'a>>;
    type Event = Event<E::Event>;
    /// The inner endpoint's; the ring refuses nothing.
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Self::Command<'_>>) -> Result<(), E::Refusal> {
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                for bytes in Segment::frames(segment, bytes) {
                    match bytes.first() {
                        Some(&first) if first > HIGHEST && port == PORT => self.hear(now, peer, bytes),
                        Some(&first) if first > HIGHEST => self.statistics.malformed += 1,
                        _ => self.inner.handle(now, Input::Frame { port, peer, bytes, segment: None })?,
                    }
                }
            }
            Input::Command(Command::Inner(command)) => self.inner.handle(now, Input::Command(command))?,
            Input::Command(Command::Count(into)) => *into = self.statistics(),
            Input::Command(Command::Join) => {
                self.wanted = true;
                if self.state == State::Off {
                    self.state = self.outside(now);
                }
            }
            Input::Command(Command::Leave) => {
                self.wanted = false;
                match &mut self.state {
                    // It may have asked already: who then gets the token passes it on first.
                    State::Out { reply, .. } if self.newest.is_some() => *reply = Reply::No,
                    State::Out { .. } => self.off(now),
                    State::Held { phase, .. } => *phase = Phase::Pass,
                    State::Off | State::Idle { .. } | State::Passed { .. } => {}
                }
            }
            Input::Wake => {
                self.wake(now);
                self.inner.handle(now, Input::Wake)?;
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event> {
        let free = writable.has(PORT);
        loop {
            if let Some(event) = self.events.pop_front() {
                return Output::Event(outer(event));
            }
            if free && let Some(transmit) = self.speak(now, buffer) {
                return Output::Transmit(transmit);
            }
            let open = if free && self.may_send() { writable } else { Writable::NONE };
            match self.inner.poll(now, open, buffer) {
                Output::Transmit(transmit) => {
                    self.sent();
                    return Output::Transmit(transmit);
                }
                Output::Event(event) => return Output::Event(Event::Inner(event)),
                Output::Idle(idle) => self.inner_deadline = idle.deadline,
            }
            if free {
                self.finish(now);
            }
            if self.events.is_empty() && !(free && self.speaks()) {
                break;
            }
        }
        let deadline = self.deadline().into_iter().chain(self.inner_deadline).min();
        let reason = if !free && self.wants_port() { Reason::Port(PORT) } else { Reason::Input };
        Output::Idle(Idle { deadline, reason })
    }
}

/// An event of the ring, as one of any inner endpoint.
fn outer<V>(event: Told) -> Event<V> {
    match event {
        Event::Inner(never) => match never {},
        Event::Joined { stations } => Event::Joined { stations },
        Event::Left => Event::Left,
        Event::Dropped => Event::Dropped,
        Event::Died { station } => Event::Died { station },
        Event::Repaired { how, took } => Event::Repaired { how, took },
        Event::Doubled => Event::Doubled,
    }
}
