//! A station of a ring: an endpoint that wraps another one.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::token::frame::{Control, Key, Token};
use crate::token::{Command, Event, HasUrgency, Members, Options, Repair, Statistics};
use crate::wire::{ALL, MAX_PRIORITY};

const PORT: Port = Port(0);
/// Maximum pending events; further ones are counted and dropped.
const MAX_EVENTS: usize = 32;

/// A station of a ring.
///
/// Frames that begin with a priority, 0 to 7, belong to the inner endpoint: received ones are passed to it at once,
/// its own are sent one per token. Other frames control the ring. A [`Peer`] is one octet: the station, or [`ALL`].
/// The inner endpoint has one port, `Port(0)`, and sends no batches, because a batch would be sent as one packet.
///
/// It is inactive until the command [join](Command::Join).
///
/// Bounds: one control frame and 32 events; further events are counted ([`Statistics::lost_events`]). The inner
/// endpoint bounds its own queue.
#[derive(Debug)]
pub struct Ring<E> {
    inner: E,
    me: u8,
    options: Options,
    /// Whether the user has requested membership.
    wanted: bool,
    state: State,
    /// The newest known token and its holder or destination.
    newest: Option<Token>,
    holder: u8,
    /// The last accepted token.
    taken: Key,
    /// When it was accepted, if nothing intervened.
    arrived: Option<Instant>,
    /// Time of the last sign of the token.
    heard: Instant,
    /// Ongoing repair of the token.
    repair: Option<Repair>,
    next_window: Instant,
    /// First station that the next window invites.
    invite: u8,
    /// Stations that asked to join.
    asked: Members,
    inner_deadline: Option<Instant>,
    events: VecDeque<RingEvent>,
    statistics: Statistics,
}

/// An event of the ring itself.
type RingEvent = Event<std::convert::Infallible>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In no ring, and not requested.
    Off,
    /// In no ring; starts one at `until`.
    Out { until: Instant, reply: Reply },
    /// A member without the token; issues a new one at `until`.
    Idle { until: Instant },
    /// Holds the token, with its `rotation` time if known.
    Held { phase: Phase, rotation: Option<Span> },
    /// Has passed the token `sent` times and is responsible for it; acts next at `until`, or as soon as it can.
    Passed { to: u8, sent: u8, until: Option<Instant> },
}

/// Reply of an invited station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    No,
    At(Instant, u8),
    Now(u8),
}

/// What the holder of the token does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Opening a window.
    Open,
    /// Waiting until then for stations to join.
    Window(Instant),
    /// Sending a packet.
    Send,
    /// Idle; waiting until then for a packet.
    Rest(Instant),
    /// Passing the token.
    Pass,
}

impl<E: HasUrgency> Ring<E> {
    /// Creates station `me`, 1 to 254, around `inner`.
    ///
    /// # Panics
    /// If the number is invalid, or an option that must not be zero is zero.
    pub fn new(inner: E, me: u8, options: Options) -> Ring<E> {
        assert!(me != 0 && me != ALL, "a station has a number from 1 to 254");
        assert!(
            (1..ALL).contains(&options.highest_station)
                && options.tries > 0
                && options.invited_per_window > 0,
            "at least one station is invited, and at least one try is made"
        );
        assert!(!options.pass_timeout.is_zero() && !options.slot.is_zero(), "a token takes time");
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
            events: VecDeque::with_capacity(MAX_EVENTS),
            statistics: Statistics::default(),
        }
    }

    /// Returns the inner endpoint.
    pub fn inner(&self) -> &E {
        &self.inner
    }

    /// Returns the members of its ring; empty outside of a ring.
    pub fn members(&self) -> Members {
        self.newest.map(|token| token.members).filter(|members| members.has(self.me)).unwrap_or_default()
    }

    /// Returns whether it holds the token.
    pub fn has_token(&self) -> bool {
        matches!(self.state, State::Held { .. })
    }

    /// Returns the counters.
    pub fn statistics(&self) -> Statistics {
        Statistics { stations: self.members().count() as u8, ..self.statistics }
    }

    fn push_event(&mut self, event: RingEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.statistics.lost_events += 1;
        }
    }

    // --- Reception

    fn process_frame(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        let from = match peer.as_bytes() {
            [from] if *from != 0 && *from != ALL => *from,
            _ => return self.statistics.malformed += 1,
        };
        let Some(control) = Control::read(frame) else { return self.statistics.malformed += 1 };
        if from == self.me || self.state == State::Off {
            return;
        }
        match control {
            Control::Token { token, to } => self.process_token(now, token, to),
            Control::Window { token, first } => self.process_window(now, token, from, first),
            Control::Join => {
                if let State::Held { phase: Phase::Window(_), .. } = self.state {
                    self.asked.insert(from);
                }
            }
        }
    }

    fn process_token(&mut self, now: Instant, token: Token, to: u8) {
        if self.is_newer(token.key) {
            self.adopt(now, token, to);
            if to == self.me && matches!(self.state, State::Idle { .. }) {
                self.take(now);
            }
        } else {
            self.refresh(now, token.key, Span::ZERO);
            // Retransmitted by a sender that missed this station's pass, or else a second token.
            if to == self.me && token.key != self.taken {
                self.doubled();
            }
        }
    }

    fn process_window(&mut self, now: Instant, token: Token, from: u8, first: u8) {
        let window = self.options.window();
        if self.is_newer(token.key) {
            self.adopt(now, token, from);
        }
        if self.newest != Some(token) {
            return;
        }
        if matches!(self.state, State::Passed { .. }) && !token.members.has(self.me) {
            return self.leave_ring(now);
        }
        self.refresh(now, token.key, window);
        // The next window is a full interval away, whichever station opens it.
        self.next_window = now + self.options.window_interval;
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

    /// Records a sign of the newest token, whose holder keeps it for `wait`.
    fn refresh(&mut self, now: Instant, key: Key, wait: Span) {
        if self.newest.is_none_or(|newest| newest.key != key) {
            return;
        }
        self.heard = now;
        let claim_token = self.claims_at(now + wait);
        match &mut self.state {
            State::Idle { until } => *until = claim_token,
            State::Out { until, .. } => *until = now + wait + self.options.listen(self.me),
            // Only a window proves that the token has arrived.
            State::Passed { until, .. } if !wait.is_zero() => {
                *until = Some(now + wait + self.options.pass_timeout)
            }
            _ => {}
        }
    }

    /// Adopts a newer token at `holder` and gives up the one held here.
    fn adopt(&mut self, now: Instant, token: Token, holder: u8) {
        if self.has_token() {
            self.doubled();
        }
        if let Some(how) = self.repair.take() {
            self.push_event(Event::Repaired { how, took: now.since(self.heard) });
        }
        let was_member = !self.members().is_empty();
        (self.newest, self.holder, self.heard) = (Some(token), holder, now);
        if token.members.has(self.me) {
            if !was_member {
                self.push_event(Event::Joined { stations: token.members.count() as u8 });
                self.next_window = now + self.options.window_interval;
                self.arrived = None;
            }
            self.state = State::Idle { until: self.claims_at(now) };
        } else if self.wanted {
            if was_member {
                self.push_event(Event::Dropped);
            }
            self.state = self.outside(now);
        } else {
            self.leave_ring(now);
        }
    }

    fn doubled(&mut self) {
        self.statistics.doubled += 1;
        self.push_event(Event::Doubled);
    }

    /// Returns when this station issues a new token, given the last sign of the old one.
    fn claims_at(&self, heard: Instant) -> Instant {
        let rank = self.newest.map_or(0, |newest| newest.members.passes(self.holder, self.me));
        heard + self.options.silence() + self.options.slot * rank as u64
    }

    // --- The token

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

    /// Returns the first station that the next window invites.
    fn invites(&self) -> Option<u8> {
        invited(&self.options, self.members(), self.invite).next()
    }

    /// Returns whether the inner endpoint may send its next frame.
    fn may_send(&self) -> bool {
        let State::Held { phase: Phase::Send | Phase::Rest(_), rotation } = self.state else { return false };
        let Some(priority) = self.inner.urgency() else { return false };
        let target = self.options.rotation_targets[usize::from(priority.min(MAX_PRIORITY))];
        target == Span::MAX || rotation.is_some_and(|rotation| rotation < target)
    }

    /// Records a frame sent by the inner endpoint.
    fn sent(&mut self) {
        self.statistics.frames += 1;
        let hold_alone = self.is_alone();
        if let State::Held { phase, .. } = &mut self.state
            && !hold_alone
        {
            *phase = Phase::Pass;
        }
    }

    /// Ends the visit without a frame.
    fn finish(&mut self, now: Instant) {
        let State::Held { phase: Phase::Send, rotation } = self.state else { return };
        if self.is_alone() {
            return;
        }
        let waits = self.inner.urgency().is_some();
        let rests = !waits && !self.options.idle_hold.is_zero() && self.is_first();
        let phase = if rests { Phase::Rest(now + self.options.idle_hold) } else { Phase::Pass };
        self.state = State::Held { phase, rotation };
        self.statistics.withheld += u64::from(waits);
    }

    /// Passes the token to the next member. A leaving station is then removed.
    fn pass(&mut self, now: Instant) {
        let Some(mut token) = self.newest else { return self.leave_ring(now) };
        if !self.wanted {
            token.members.remove(self.me);
        }
        token.key.sequence = token.key.sequence.wrapping_add(1);
        self.newest = Some(token);
        match token.members.after(self.me) {
            None => self.leave_ring(now),
            Some(next) if next == self.me => self.hold_alone(now),
            Some(next) => {
                self.holder = next;
                self.state = State::Passed { to: next, sent: 0, until: None };
            }
        }
    }

    /// Holds the token of a ring of one station.
    fn hold_alone(&mut self, now: Instant) {
        if let Some(how) = self.repair.take() {
            self.push_event(Event::Repaired { how, took: now.since(self.heard) });
        }
        (self.holder, self.arrived) = (self.me, None);
        self.state = State::Held { phase: self.begin(now), rotation: Some(Span::ZERO) };
    }

    /// Leaves the ring as requested; the request may have changed since.
    fn leave_ring(&mut self, now: Instant) {
        (self.newest, self.repair, self.arrived) = (None, None, None);
        self.state = if self.wanted { self.outside(now) } else { State::Off };
        self.push_event(Event::Left);
    }

    /// Returns the state of a station that looks for a ring.
    fn outside(&self, now: Instant) -> State {
        State::Out { until: now + self.options.listen(self.me), reply: Reply::No }
    }

    // --- Timers

    fn wake(&mut self, now: Instant) {
        // A timer this late follows a pause: process frames received meanwhile first.
        let paused = |until: Instant| now.since(until) > self.options.pass_timeout;
        let alone = self.has_token() && self.is_alone();
        match &mut self.state {
            State::Out { until, .. } | State::Idle { until } | State::Passed { until: Some(until), .. }
                if paused(*until) =>
            {
                *until = now + self.options.slot;
            }
            State::Out { until, .. } if now >= *until => self.start_ring(now),
            State::Out { reply, .. } => {
                if let Reply::At(at, to) = *reply
                    && now >= at
                {
                    let in_time = now <= at + self.options.slot;
                    *reply = if in_time { Reply::Now(to) } else { Reply::No };
                }
            }
            State::Idle { until } if now >= *until => self.claim_token(now),
            State::Passed { until: Some(until), .. } if now >= *until => self.handle_lost_pass(now),
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

    /// Starts a ring.
    fn start_ring(&mut self, now: Instant) {
        if !self.wanted {
            return self.leave_ring(now);
        }
        let key = Key { generation: 0, owner: self.me, sequence: 0 };
        self.newest = Some(Token { key, members: Members::only(self.me) });
        self.next_window = now;
        self.push_event(Event::Joined { stations: 1 });
        self.hold_alone(now);
    }

    /// Issues a new token.
    fn claim_token(&mut self, now: Instant) {
        let Some(token) = self.newest.as_mut().filter(|_| self.wanted) else { return self.leave_ring(now) };
        let generation = token.key.generation.wrapping_add(1);
        token.key = Key { generation, owner: self.me, sequence: 0 };
        self.statistics.claimed += 1;
        self.repair = Some(Repair::Claimed);
        self.arrived = None;
        self.pass(now);
    }

    /// Handles a passed token without a sign.
    fn handle_lost_pass(&mut self, now: Instant) {
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
        self.push_event(Event::Died { station });
        if self.repair != Some(Repair::Claimed) {
            self.repair = Some(Repair::Skipped);
        }
        self.pass(now);
    }

    /// Closes the window and admits the stations that asked.
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
            // A ring of several stations is newer than any single station.
            let generation = token.key.generation.wrapping_add(1);
            token.key = Key { generation, owner: self.me, sequence: 0 };
        }
    }

    /// Returns the next deadline.
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

    // --- Transmission

    /// Returns whether a control frame is ready.
    fn has_control_frame(&self) -> bool {
        match self.state {
            State::Out { reply, .. } => matches!(reply, Reply::Now(_)),
            State::Held { phase, .. } => matches!(phase, Phase::Open | Phase::Pass),
            State::Passed { until, .. } => until.is_none(),
            State::Off | State::Idle { .. } => false,
        }
    }

    /// Returns whether it waits for the port.
    fn needs_port(&self) -> bool {
        let to_pass = matches!(self.state, State::Held { phase: Phase::Send, .. }) && !self.is_alone();
        to_pass || self.has_control_frame() || self.may_send()
    }

    /// Writes a control frame, if one is ready.
    fn write_control(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
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
                *until = Some(now + self.options.pass_timeout);
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
        self.invite = last.map_or(1, |last| last % self.options.highest_station + 1);
        self.next_window = now + self.options.window_interval;
        self.asked = Members::default();
        self.statistics.windows += 1;
        Some(Control::Window { token, first })
    }
}

/// Iterates over the stations that a window invites: nonmembers from `first` on, cyclically.
fn invited(options: &Options, members: Members, first: u8) -> impl Iterator<Item = u8> {
    let (highest, most) = (options.highest_station, usize::from(options.invited_per_window));
    let first = if first > highest { 1 } else { first };
    (first..=highest).chain(1..first).filter(move |station| !members.has(*station)).take(most)
}

impl<E: HasUrgency> Endpoint for Ring<E> {
    type Command<'a> = Command<'a, E::Command<'a>>;
    type Event = Event<E::Event>;
    /// The inner endpoint's refusal; the ring refuses nothing.
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Self::Command<'_>>) -> Result<(), E::Refusal> {
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                for bytes in Segment::frames(segment, bytes) {
                    match bytes.first() {
                        Some(&first) if first > MAX_PRIORITY && port == PORT => {
                            self.process_frame(now, peer, bytes)
                        }
                        Some(&first) if first > MAX_PRIORITY => self.statistics.malformed += 1,
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
                    // It may have asked already; the token's next holder passes it on first.
                    State::Out { reply, .. } if self.newest.is_some() => *reply = Reply::No,
                    State::Out { .. } => self.leave_ring(now),
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
                return Output::Event(event.map(|never| match never {}));
            }
            if free && let Some(transmit) = self.write_control(now, buffer) {
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
            if self.events.is_empty() && !(free && self.has_control_frame()) {
                break;
            }
        }
        let deadline = self.deadline().into_iter().chain(self.inner_deadline).min();
        let reason = if !free && self.needs_port() { Reason::Port(PORT) } else { Reason::Input };
        Output::Idle(Idle { deadline, reason })
    }
}
