//! The central converter in the wide format.

use trunkline_endpoint::{Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed};

use super::members::{Limit, Members};
use super::outbox::{Outbox, Parcel};
use super::sides::{Side, Sides};
use crate::central::{Central, Command, Config, Statistics};
use crate::drops::Why;
use crate::level::LEAST;
use crate::path::{Flow, Seen, Verdict};
use crate::ranges::Segments;
use crate::regulator::{Congestion, NO_LIMIT, Regulator};
use crate::settings::{Spread, Wide};
use crate::wire::wide::control::Control;
use crate::wire::wide::{Builder, Bundle, Header, Message, Role, is_too_long, packet_of};

/// The machine.
#[derive(Debug)]
pub struct Machine {
    wide: Wide,
    life: u32,
    members: Members,
    sides: Sides,
    /// For all hosts, if what is ordinary goes to all.
    all: Outbox,
    /// The hosts' medium, and the one to level 1.
    local: Regulator,
    far: Regulator,
    seen: Seen,
    /// What hosts and level 1 were last told of congestion.
    told_hosts: (u8, u32),
    told_level1: (u8, u32),
    /// The converter of level 1 that is asked first whether it has a bundle to send.
    turn: usize,
    /// Hosts that want a message.
    wanting: Vec<u16>,
    /// A host of this site that says it is of another, and of which.
    astray: Option<(u16, u16)>,
    statistics: Statistics,
}

impl Machine {
    /// The central converter in its `life`, whose sessions nobody can guess who does not know the secret.
    pub fn new(secret: Seed, life: u32, config: &Config, wide: Wide) -> Machine {
        Machine {
            wide,
            life,
            members: Members::new(secret, life, &config.settings, wide),
            sides: Sides::new(secret, life, &config.level1, &config.settings, wide),
            all: Outbox::new(wide.longest(), config.settings.timing, Instant::ZERO),
            local: Regulator::new(wide.congestion, config.local),
            far: Regulator::new(wide.congestion, config.wide),
            seen: Seen::default(),
            told_hosts: (LEAST, NO_LIMIT),
            told_level1: (LEAST, NO_LIMIT),
            turn: 0,
            wanting: Vec::new(),
            astray: None,
            statistics: Statistics::default(),
        }
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    pub(crate) fn unsent(&mut self, port: Port, frame: &[u8]) {
        let Statistics { drops_to_hosts, drops_to_level1, .. } = &mut self.statistics;
        (if port == Central::HOSTS { drops_to_hosts } else { drops_to_level1 }).unsent(frame);
    }

    pub(crate) fn levels(&self) -> (u8, u8) {
        (self.local.level(), self.far.level())
    }

    /// The hosts that are there.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Who wants what.
    pub fn segments(&self) -> &Segments {
        self.members.segments()
    }

    /// A host that speaks here and names another site in what it sends, and that site: the first such.
    pub fn astray(&self) -> Option<(u16, u16)> {
        self.astray
    }

    /// Flows whose numbers are remembered.
    pub fn flows(&self) -> usize {
        self.seen.flows()
    }

    /// Octets a second of ordinary messages that hosts and converters of level 1 may send.
    pub fn rates(&self) -> (u32, u32) {
        (self.limit_hosts().1, self.limit_level1().1)
    }

    /// The converters of level 1.
    pub fn sides(&self) -> &Sides {
        &self.sides
    }

    fn take(&mut self, now: Instant, port: Port, peer: Peer, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        let header = bundle.header();
        match (port, header.role) {
            (Central::LEVEL1, Role::Level1) if header.to == 0 => {
                self.take_from_level1(now, peer, bytes.len(), &bundle)
            }
            (Central::HOSTS, Role::Host) if header.to == 0 => {
                self.take_from_host(now, peer, bytes.len(), &bundle);
            }
            _ => self.statistics.malformed += 1,
        }
    }

    fn take_from_level1(&mut self, now: Instant, peer: Peer, octets: usize, bundle: &Bundle<'_>) {
        let header = bundle.header();
        let Some((at, in_session)) = self.sides.hear(now, &header, peer, octets) else {
            self.statistics.stale += 1;
            return;
        };
        self.far.carry(now, octets, 0);
        self.statistics.bundles += 1;
        if in_session {
            self.statistics.lost += u64::from(self.sides.at(at).link.note(header.before, bundle.count()));
            for control in bundle.control() {
                match control {
                    Control::Holds(version) => self.sides.holds(now, at, version),
                    Control::Bye => self.sides.bye(now, at),
                    _ => self.statistics.malformed += 1,
                }
            }
        }
        for message in bundle.messages() {
            self.statistics.from_level1 += 1;
            if self.wide.is_own(message.source) {
                self.statistics.own += 1;
                continue;
            }
            match self.look(now, &message) {
                Verdict::New => {
                    self.sides.count(packet_of(message.address));
                    self.give_hosts(now, &Parcel::of(&message));
                }
                Verdict::Old => {}
                Verdict::Unknown => self.statistics.drops_to_hosts.count(Why::Full, message.priority),
            }
        }
    }

    fn take_from_host(&mut self, now: Instant, peer: Peer, octets: usize, bundle: &Bundle<'_>) {
        let header = bundle.header();
        let number = header.number;
        let Some(in_session) = self.members.hear(now, &header, peer, octets) else {
            self.statistics.stale += 1;
            return;
        };
        self.local.carry(now, octets, 0);
        self.statistics.bundles += 1;
        if in_session {
            if let Some(member) = self.members.get(number) {
                self.statistics.lost += u64::from(member.link.note(header.before, bundle.count()));
            }
            for control in bundle.control() {
                self.told_by_host(now, number, &control);
            }
        }
        for message in bundle.messages() {
            self.hear_host(now, &header, in_session, &message);
        }
        self.members.settle(now, number);
    }

    fn told_by_host(&mut self, now: Instant, number: u16, control: &Control<'_>) {
        let rates = self.wide.congestion == Congestion::Rates;
        let enough = self.local.capacity();
        match (control, self.members.get(number)) {
            (Control::Join(changes), _) => self.members.change(now, number, changes, true),
            (Control::Drop(changes), _) => self.members.change(now, number, changes, false),
            (Control::Ack { next, beyond }, Some(member)) => {
                member.outbox.reliable.acknowledge(*next, *beyond)
            }
            (Control::Report { received, lost }, Some(member)) if rates => {
                member.report(now, *received, *lost, enough);
            }
            (Control::Report { .. }, _) => {}
            (Control::Saturation(messages), Some(member)) => member.saturate(*messages),
            (Control::Bye, _) => self.members.lose(number),
            (_, None) => {}
            _ => self.statistics.malformed += 1,
        }
        self.statistics.control += u64::from(matches!(control, Control::Join(_) | Control::Drop(_)));
    }

    fn hear_host(&mut self, now: Instant, header: &Header, in_session: bool, message: &Message<'_>) {
        if message.source != self.wide.source(header.number) || message.life != header.life {
            if !self.wide.is_own(message.source) {
                self.astray.get_or_insert((header.number, (message.source >> 16) as u16));
            }
            return self.statistics.malformed += 1;
        }
        let Some(number) = message.reliable else {
            return self.give_on(now, header.number, &Parcel::of(message));
        };
        let member = match self.members.get(header.number) {
            Some(member) if in_session => member,
            // It is repeated in the session.
            _ => return,
        };
        member.acknowledge(now);
        member.receiver.take(number, || Parcel::of(message));
        while let Some(parcel) = self.members.get(header.number).and_then(|member| member.receiver.next()) {
            self.give_on(now, header.number, &parcel);
        }
    }

    /// A message of a host, for other hosts and the wide area.
    fn give_on(&mut self, now: Instant, number: u16, parcel: &Parcel) {
        self.statistics.from_hosts += 1;
        match self.look(now, &parcel.message(None)) {
            Verdict::New => {}
            Verdict::Old => return,
            Verdict::Unknown => return self.statistics.drops_to_level1.count(Why::Full, parcel.priority),
        }
        if self.members.segments().hosts(parcel.address).iter().any(|host| *host != number) {
            self.give_hosts(now, parcel);
        }
        let drops = &mut self.statistics.drops_to_level1;
        let Some(at) = self.sides.out(packet_of(parcel.address)) else {
            return drops.count(Why::Gone, parcel.priority);
        };
        if is_too_long(&parcel.body, self.wide.longest()) {
            // Its own path carries less than that of who sent it.
            return drops.count(Why::Unfit, parcel.priority);
        }
        if !self.far.admits(parcel.priority, parcel.octets()) {
            return drops.count(Why::Congestion, parcel.priority);
        }
        match self.sides.at(at).outbox.push(now, parcel.clone()) {
            true => self.statistics.to_level1 += 1,
            false => drops.count(Why::Full, parcel.priority),
        }
    }

    fn look(&mut self, now: Instant, message: &Message<'_>) -> Verdict {
        let Message { address, source, life, sequence, priority, .. } = *message;
        self.seen.take(now, Flow { source, packet: packet_of(address), priority }, life, sequence)
    }

    /// To the hosts that want it, but never back to its own.
    fn give_hosts(&mut self, now: Instant, parcel: &Parcel) {
        let own = self.wide.is_own(parcel.source).then_some(parcel.source as u16);
        self.wanting.clear();
        let hosts = self.members.segments().hosts(parcel.address).iter().copied();
        self.wanting.extend(hosts.filter(|host| Some(*host) != own));
        if self.wanting.is_empty() {
            return self.statistics.drops_to_hosts.count(Why::Nobody, parcel.priority);
        }
        if self.wide.spread == Spread::All && !parcel.priority {
            return self.give_all(now, parcel);
        }
        let wanting = std::mem::take(&mut self.wanting);
        for host in &wanting {
            match self.give_host(now, *host, parcel) {
                Ok(()) => self.statistics.to_hosts += 1,
                Err(why) => self.statistics.drops_to_hosts.count(why, parcel.priority),
            }
        }
        self.wanting = wanting;
    }

    fn give_all(&mut self, now: Instant, parcel: &Parcel) {
        let drops = &mut self.statistics.drops_to_hosts;
        if is_too_long(&parcel.body, self.wide.longest()) {
            return drops.count(Why::Unfit, false);
        }
        if !self.local.admits(false, parcel.octets()) {
            return drops.count(Why::Congestion, false);
        }
        match self.all.push(now, parcel.clone()) {
            true => self.statistics.to_hosts += 1,
            false => drops.count(Why::Full, false),
        }
    }

    fn give_host(&mut self, now: Instant, host: u16, parcel: &Parcel) -> Result<(), Why> {
        let Some(member) = self.members.get(host) else { return Err(Why::Gone) };
        if is_too_long(&parcel.body, self.wide.longest()) {
            return Err(Why::Unfit);
        }
        if !parcel.priority {
            member.admits(now, parcel.octets()).map_err(|limit| match limit {
                Limit::Lossy => Why::Congestion,
                Limit::Saturated => Why::Saturated,
            })?;
        }
        if !self.local.admits(parcel.priority, parcel.octets()) {
            return Err(Why::Congestion);
        }
        let pushed = match parcel.priority {
            true => member.outbox.push_reliable(now, parcel.clone()),
            false => member.outbox.push(now, parcel.clone()),
        };
        self.members.settle(now, host);
        pushed.then_some(()).ok_or(Why::Full)
    }

    /// Does what is due.
    fn roll(&mut self, now: Instant) {
        self.local.roll(now);
        self.far.roll(now);
        self.tell_limits(now);
        self.members.roll(now);
        if let Some(wanted) = self.members.wanted() {
            self.sides.want(now, wanted);
        }
        self.sides.roll(now);
        if self.speaks_to_all() {
            self.all.roll(now);
        }
        let [gone, urgent_gone] = self.members.dropped();
        self.statistics.drops_to_hosts.add(Why::Gone, false, gone);
        self.statistics.drops_to_hosts.add(Why::Gone, true, urgent_gone);
        let [gone, urgent_gone] = self.sides.dropped();
        self.statistics.drops_to_level1.add(Why::Gone, false, gone);
        self.statistics.drops_to_level1.add(Why::Gone, true, urgent_gone);
        self.statistics.path = self.seen.counts();
        (self.statistics.hosts_met, self.statistics.hosts_gone) = self.members.counts();
        self.statistics.sides = self.sides.counts();
        [self.statistics.changes_refused, self.statistics.changes_put_off] = self.members.refused();
    }

    /// Has those told at once who are to send less, or may send more. Levels change what all send, rates what those do who do.
    fn tell_limits(&mut self, now: Instant) {
        let rates = self.wide.congestion == Congestion::Rates;
        let level = |level| if rates { LEAST } else { level };
        let hosts = (level(self.local.level()), self.local.rate());
        if std::mem::replace(&mut self.told_hosts, hosts) != hosts {
            self.members.tell_limits(now, !rates);
            if self.speaks_to_all() {
                self.all.tell_by(now);
            }
        }
        let higher = self.local.level().max(self.far.level());
        let level1 = (level(higher), self.local.rate().min(self.far.rate()));
        if std::mem::replace(&mut self.told_level1, level1) != level1 {
            self.sides.tell_limits(now);
        }
    }

    fn speaks_to_all(&self) -> bool {
        self.wide.spread == Spread::All && !self.members.is_empty()
    }

    fn header(&self, to: u16, session: u32) -> Header {
        Header { role: Role::Central, number: 0, to, life: self.life, session, before: 0 }
    }

    /// What level 1 hears loads both media.
    fn limit_level1(&self) -> (u8, u32) {
        (self.local.level().max(self.far.level()), self.local.rate().min(self.far.rate()))
    }

    fn limit_hosts(&self) -> (u8, u32) {
        (self.local.level(), self.local.rate())
    }

    /// The next bundle for hosts: to all first, then to each in turn.
    fn leave_for_hosts(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let (level, rate) = self.limit_hosts();
        let port = Central::HOSTS;
        if self.speaks_to_all() && self.all.is_ready() {
            let header = self.header(0, 0);
            let limit = self.all.limit(now, level, rate);
            let tell = |builder: &mut Builder| limit.iter().for_each(|limit| _ = builder.tell(limit));
            let length = self.all.leave(now, header, tell, buffer);
            self.local.carry(now, length, self.all.admitted());
            return Some(Transmit { port, peer: Peer::NONE, length, segment: None });
        }
        let number = self.members.take_turn()?;
        let newcomer = self.header(number, 0);
        if let Some(told) = self.members.get(number)?.newcomer() {
            let (peer, length) = told.tell(now, newcomer, Control::Level { level, rate }, buffer);
            self.local.carry(now, length, 0);
            self.members.settle(now, number);
            return Some(Transmit { port, peer, length, segment: None });
        }
        let session = self.members.get(number)?.session;
        let header = self.header(number, session);
        let member = self.members.get(number)?;
        let limit = member.outbox.limit(now, level, rate);
        let told: Vec<Control<'_>> = member.told().chain(limit).collect();
        let tell = |builder: &mut Builder| told.iter().for_each(|control| _ = builder.tell(control));
        let length = member.outbox.leave(now, header, tell, buffer);
        member.sent(length);
        self.statistics.repeated += member.repeated();
        let (peer, admitted) = (member.peer, member.outbox.admitted());
        self.local.carry(now, length, admitted);
        self.members.settle(now, number);
        Some(Transmit { port, peer, length, segment: None })
    }

    /// The next bundle for level 1, of each converter in turn.
    fn leave_for_level1(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        let count = self.sides.len();
        let ready = |at: &usize| self.sides.iter().nth(*at).is_some_and(Side::is_ready);
        let at = (0..count).map(|n| (self.turn + n) % count).find(ready)?;
        self.turn = at + 1;
        let (level, rate) = self.limit_level1();
        let life = self.life;
        let side = self.sides.at(at);
        let (number, session) = (side.number, side.session());
        let header = Header { role: Role::Central, number: 0, to: number, life, session, before: 0 };
        if let Some(newcomer) = side.newcomer() {
            let (peer, length) = newcomer.tell(now, header, Control::Level { level, rate }, buffer);
            self.far.carry(now, length, 0);
            return Some(Transmit { port: Central::LEVEL1, peer, length, segment: None });
        }
        let (hold, limit) = (side.hold(now), side.outbox.limit(now, level, rate));
        let tell = |builder: &mut Builder| {
            limit.iter().for_each(|limit| _ = builder.tell(limit));
            if let Some((version, packets)) = hold {
                builder.tell(&Control::Hold { version, packets: &packets.write() });
            }
        };
        let length = side.outbox.leave(now, header, tell, buffer);
        side.tell_again(now);
        side.sent(length);
        let (peer, admitted) = (side.peer, side.outbox.admitted());
        self.far.carry(now, length, admitted);
        Some(Transmit { port: Central::LEVEL1, peer, length, segment: None })
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_, Command>) {
        self.roll(now);
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.take(now, port, peer, bundle));
            }
            Input::Wake => return,
            Input::Command(Command::HostRefused(number)) => self.members.lose(number.into()),
            // It is silent soon, or back.
            Input::Command(Command::Level1Refused(_)) => {}
        }
        self.roll(now);
    }

    pub(crate) fn poll<E>(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E> {
        let mut transmit = None;
        if writable.has(Central::HOSTS) {
            transmit = self.leave_for_hosts(now, buffer);
        }
        if transmit.is_none() && writable.has(Central::LEVEL1) {
            transmit = self.leave_for_level1(now, buffer);
        }
        if let Some(transmit) = transmit {
            self.statistics.bundles_sent += 1;
            return Output::Transmit(transmit);
        }
        let speaks = self.speaks_to_all();
        let all = speaks.then(|| self.all.deadline()).flatten();
        let media = [self.local.deadline(), self.far.deadline()];
        let others = [all, self.members.deadline(), self.sides.deadline()];
        let deadline = media.into_iter().chain(others).flatten().min();
        let level1 = self.sides.iter().any(Side::is_ready);
        let reason = if self.members.is_ready() || speaks && self.all.is_ready() {
            Reason::Port(Central::HOSTS)
        } else if level1 {
            Reason::Port(Central::LEVEL1)
        } else {
            Reason::Input
        };
        Output::Idle(Idle { deadline, reason })
    }
}
