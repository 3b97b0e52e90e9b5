//! The loop: wakes places in order and carries frames from one to the next.
//!
//! A place is a medium, a station or an end. Each has one deadline at the most. The loop takes the first of
//! (time, place), wakes it, and follows every frame that it hands on to where it next waits; so what happens at one
//! instant happens in one order, on every machine.

use std::collections::VecDeque;

use trunkline_endpoint::{Arrival, Frame as _, Passage, Port};
use trunkline_models::host::{Cause, Output};
use trunkline_run::message::Kind;
use trunkline_units::Instant;
use xxhash_rust::xxh3::xxh3_64;

use crate::agenda::Agenda;
use crate::bundles::{self, Bundles};
use crate::flow::messages::Messages;
use crate::flow::{Flow, Said, Side};

use crate::frame::{Content, Frame, Kit, Packet};
use crate::medium::Medium;
use crate::network::{Network, Wire};
use crate::stations::{FLOW, Saying, Spot, Stations};
use crate::trace::Tracer;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Medium(u32),
    Station(u32),
    End {
        flow: u32,
        side: u32,
    },
    /// The LLC station of a host.
    Llc(u32),
    /// What bundles at a station.
    Bundles(u32),
}

/// A simulation under way.
pub struct Engine {
    now: Instant,
    agenda: Agenda,
    owners: Vec<Owner>,
    /// A number for each place that depends on its name alone, so that the trace hash does not change when a place
    /// is added.
    marks: Vec<u64>,
    network: Network,
    flows: Vec<Option<Box<Flow>>>,
    stations: Vec<Desk>,
    /// LLC stations, and whoever has to be asked on their account before the step is over.
    llc: Stations,
    bundles: Bundles,
    roused: VecDeque<Roused>,
    over: VecDeque<u32>,
    kit: Kit,
    hash: u64,
    crossed: Instant,
    steps: u64,
    /// Captures, if any are made.
    pub tracer: Option<Box<Tracer>>,
}

/// Who has to be asked what it has to say.
#[derive(Clone, Copy, Debug)]
enum Roused {
    Llc(u32),
    Bundles(u32),
    End { flow: u32, side: u32 },
}

/// What waits at a station for its interfaces.
#[derive(Debug, Default)]
struct Desk {
    /// Packets for which an interface's queue had no room, in order.
    held: Vec<VecDeque<Frame>>,
    /// Ends that have something to send, in the order in which they asked; the LLC station, as [`FLOW`], and what bundles
    /// here, as [`bundles::FLOW`], before all.
    waiting: VecDeque<(u32, u32)>,
}

impl Engine {
    /// A network at rest.
    pub fn new(network: Network) -> Engine {
        let mut engine = Engine {
            now: Instant::ZERO,
            agenda: Agenda::default(),
            owners: Vec::new(),
            marks: Vec::new(),
            flows: Vec::new(),
            stations: network
                .stations
                .iter()
                .map(|s| Desk { held: s.down.iter().map(|_| VecDeque::new()).collect(), ..Desk::default() })
                .collect(),
            llc: Stations::default(),
            bundles: Bundles::default(),
            roused: VecDeque::new(),
            over: VecDeque::new(),
            kit: Kit::default(),
            hash: 0,
            crossed: Instant::ZERO,
            steps: 0,
            tracer: None,
            network,
        };
        for m in 0..engine.network.media.len() {
            let mark = mark(&engine.network.media[m].name);
            engine.add(Owner::Medium(m as u32), mark);
        }
        for s in 0..engine.network.stations.len() {
            let mark = mark(&engine.network.stations[s].name);
            engine.add(Owner::Station(s as u32), mark);
        }
        engine
    }

    fn add(&mut self, owner: Owner, mark: u64) -> u32 {
        self.owners.push(owner);
        self.marks.push(mark);
        self.agenda.add()
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// When anything last crossed a medium: what follows is silence.
    pub fn last_crossing(&self) -> Instant {
        self.crossed
    }

    /// Places woken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What happened so far, and when, as one number: the same for the same plan and seed.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The network, to read its counters.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The number that the next flow will have.
    pub fn next_flow(&self) -> u32 {
        self.flows.len() as u32
    }

    /// Gives an end a place on the agenda.
    pub fn seat(&mut self, station: u32, port: Port, name: &str, side: u32) -> Side {
        let flow = self.next_flow();
        let down = self.network.stations[station as usize].down[port.0 as usize];
        Side { station, port, down, place: self.add(Owner::End { flow, side }, mark(name)) }
    }

    /// Gives the LLC station of a host its place.
    pub fn stand(&mut self, station: u32, port: Port, name: &str, ethernet: bool) -> Spot {
        let down = self.network.stations[station as usize].down[port.0 as usize];
        Spot { port, down, place: self.add(Owner::Llc(station), mark(name)), ethernet }
    }

    /// Sets the LLC stations going.
    pub fn open(&mut self, llc: Stations) {
        self.roused.extend(llc.hosts().iter().map(|host| Roused::Llc(*host)));
        self.llc = llc;
        self.ask();
    }

    /// Sets what bundles going.
    pub fn bundle(&mut self, mut bundles: Bundles) {
        for station in bundles.stations().to_vec() {
            let name = format!("{} / bundles", self.network.stations[station as usize].name);
            let place = self.add(Owner::Bundles(station), mark(&name));
            bundles.seat(station, place);
            self.roused.push_back(Roused::Bundles(station));
        }
        self.bundles = bundles;
        self.ask();
    }

    /// What bundles, to read what it counted.
    pub fn bundles(&self) -> &Bundles {
        &self.bundles
    }

    /// The LLC stations, to read what they counted.
    pub fn llc(&self) -> &Stations {
        &self.llc
    }

    /// Sets a flow going.
    pub fn begin(&mut self, mut flow: Flow) {
        if self.next_flow() == 0 && self.tracer.is_none() {
            self.network.fuse();
        }
        let (number, sides) = (self.next_flow(), flow.sides.len());
        if let Some(messages) = flow.messages() {
            match self.llc.forms_within() {
                Some(span) => messages.await_ring(self.now + span),
                None => messages.open(self.now),
            }
        }
        if let Some(bundled) = flow.bundled() {
            match self.bundles.settles_within() {
                Some(span) => bundled.wait(self.now + span),
                None => bundled.open(self.now),
            }
        }
        self.flows.push(Some(Box::new(flow)));
        (0..sides as u32).for_each(|side| self.drain_end(number, side));
        self.ask();
    }

    /// Flows that have ended since this was last asked.
    pub fn take_over(&mut self) -> Option<(u32, Box<Flow>)> {
        let number = self.over.pop_front()?;
        self.take(number)
    }

    /// Ends any flow that is still under way.
    pub fn take_any(&mut self) -> Option<(u32, Box<Flow>)> {
        let number = self.flows.iter().position(Option::is_some)?;
        self.take(number as u32)
    }

    fn take(&mut self, number: u32) -> Option<(u32, Box<Flow>)> {
        let flow = self.flows[number as usize].take()?;
        for side in &flow.sides {
            self.agenda.set(side.place, Instant::MAX);
            self.stations[side.station as usize].waiting.retain(|(flow, _)| *flow != number);
        }
        Some((number, flow))
    }

    /// Takes one step; whether there was one. Stops short once a flow is over, so that the next may begin.
    #[inline]
    pub fn step(&mut self) -> bool {
        let Some((at, place)) = self.agenda.first() else { return false };
        self.now = at;
        self.steps += 1;
        match self.owners[place as usize] {
            Owner::Medium(m) => self.wake_medium(m),
            Owner::Station(s) => {
                self.mix(self.marks[place as usize]);
                self.network.stations[s as usize].station.wake(at);
                self.drain_station(s);
            }
            Owner::End { flow, side } => {
                self.mix(self.marks[place as usize]);
                if let Some(f) = &mut self.flows[flow as usize] {
                    f.wake(at, side as usize);
                    self.drain_end(flow, side);
                }
            }
            Owner::Llc(s) => {
                self.mix(self.marks[place as usize]);
                self.llc.wake(at, s);
                self.roused.push_back(Roused::Llc(s));
            }
            Owner::Bundles(s) => {
                self.mix(self.marks[place as usize]);
                self.bundles.wake(at, s);
                self.roused.push_back(Roused::Bundles(s));
            }
        }
        self.ask();
        true
    }

    /// Asks whoever was roused, until nobody has anything to say.
    #[inline(always)]
    fn ask(&mut self) {
        if !self.roused.is_empty() {
            self.ask_all();
        }
    }

    #[inline(never)]
    fn ask_all(&mut self) {
        while let Some(roused) = self.roused.pop_front() {
            match roused {
                Roused::Llc(s) => self.drain_llc(s),
                Roused::Bundles(s) => self.drain_bundles(s),
                Roused::End { flow, side } => self.drain_end(flow, side),
            }
        }
    }

    /// Notes for the trace hash that something happens now. Media are not heard, but what they bring to ends is: how many
    /// steps it takes them is no result.
    #[inline(always)]
    fn mix(&mut self, what: u64) {
        // xxHash's odd constant: any that mixes well will do.
        let word = self.hash.rotate_left(23) ^ self.now.as_ps() ^ what;
        self.hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
    }

    /// Whether a flow has ended and waits to be taken.
    #[inline]
    pub fn has_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// Wakes a medium. What links and switches mostly do, hand on what has arrived, takes a short way, on which a link goes
    /// on to its next arrivals; when something else is due it is woken and polled as every medium is.
    #[inline(always)]
    fn wake_medium(&mut self, m: u32) {
        while let Medium::Link(link) = &mut self.network.media[m as usize].medium
            && let Some((port, frame)) = link.arrival(self.now)
        {
            self.pass(m, port, frame);
            let Medium::Link(link) = &self.network.media[m as usize].medium else { return };
            let next = link.deadline();
            if next <= self.now {
                continue;
            }
            if next == Instant::MAX
                || next >= self.agenda.rival(m)
                || self.has_over()
                || !self.roused.is_empty()
            {
                return self.agenda.set(m, next);
            }
            // Nobody comes before the next arrival: the agenda need not be asked.
            self.now = next;
            self.steps += 1;
        }
        while let Some(settled) = self.hand_on(m) {
            if settled {
                return;
            }
        }
        self.network.media[m as usize].medium.handle(self.now, Arrival::Wake);
        self.drain_medium(m);
    }

    /// Hands on what has come out of a switch or a link of cells, if nothing else is due; whether that was all for now.
    #[inline(never)]
    fn hand_on(&mut self, m: u32) -> Option<bool> {
        let ((port, frame), next) = match &mut self.network.media[m as usize].medium {
            Medium::Cells(link) => (link.arrival(self.now)?, link.deadline()),
            Medium::Switch(switch) => (switch.exit(self.now)?, switch.deadline()),
            _ => return None,
        };
        let settled = self.settle_by(m, next);
        self.pass(m, port, frame);
        Some(settled)
    }

    /// If a medium has nothing more to say now, notes when it will.
    #[inline(always)]
    fn settle(&mut self, m: u32) -> bool {
        let deadline = match &self.network.media[m as usize].medium {
            Medium::Link(link) => link.deadline(),
            Medium::Cells(link) => link.deadline(),
            Medium::Switch(switch) => switch.deadline(),
            Medium::Hub(_) | Medium::Ring(_) => self.now,
        };
        self.settle_by(m, deadline)
    }

    /// As [`settle`](Self::settle), for a medium whose deadline is known.
    #[inline(always)]
    fn settle_by(&mut self, m: u32, deadline: Instant) -> bool {
        let settled = deadline > self.now;
        if settled {
            self.agenda.set(m, deadline);
        }
        settled
    }

    fn drain_medium(&mut self, m: u32) {
        loop {
            match self.network.media[m as usize].medium.poll(self.now) {
                Passage::Transmit { port, frame } => self.pass_one(m, port, frame),
                Passage::Lost { frame, .. } => self.lose(frame),
                Passage::Room { port } => {
                    if let Wire::Station(s, port) = self.network.media[m as usize].wires[port.0 as usize] {
                        self.make_room(s, port);
                    }
                }
                Passage::Idle { deadline } => {
                    return self.agenda.set(m, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// As [`pass`](Self::pass), apart from what is inlined for links.
    #[inline(never)]
    fn pass_one(&mut self, m: u32, port: Port, frame: Frame) {
        self.pass(m, port, frame);
    }

    /// Hands a frame that a medium gives out at `port` to whatever stands there, through switches that take no time,
    /// to where it next waits.
    #[inline(always)]
    fn pass(&mut self, mut m: u32, mut port: Port, frame: Frame) {
        self.crossed = self.now;
        let mut seat = &mut self.network.media[m as usize];
        loop {
            if let Some(tracer) = &mut self.tracer {
                tracer.passed(self.now, m, port, &frame);
            }
            let (next, at) = match seat.wires[port.0 as usize] {
                Wire::Medium(next, at) => (next, at),
                Wire::Station(s, port) => return self.arrive(s, port, frame),
                Wire::Nothing => return,
            };
            seat = &mut self.network.media[next as usize];
            if let Medium::Switch(switch) = &mut seat.medium
                && let Some(out) = switch.direct(at, &frame)
            {
                (m, port) = (next, out);
                continue;
            }
            return self.enter(next, at, frame);
        }
    }

    /// Puts a frame on a medium. What a link or a switch takes comes out later, unless there was no room.
    #[inline(always)]
    fn enter(&mut self, m: u32, port: Port, frame: Frame) {
        let now = self.now;
        match &mut self.network.media[m as usize].medium {
            Medium::Link(link) => {
                if let Some(arrives) = link.send(now, port, frame) {
                    return self.agenda.hasten(m, arrives);
                }
            }
            Medium::Cells(link) => link.send(now, port, frame),
            Medium::Switch(switch) => switch.send(now, port, frame),
            medium => medium.handle(now, Arrival::Frame { port, frame }),
        }
        if !self.settle(m) {
            self.drain_medium(m);
        }
    }

    /// Brings a frame to a station.
    #[inline(always)]
    fn arrive(&mut self, s: u32, port: Port, mut frame: Frame) {
        if let Some(tracer) = &mut self.tracer {
            tracer.crossed(self.now, s, port, &frame);
        }
        let station = &mut self.network.stations[s as usize].station;
        if station.is_free() {
            if station.pass_in(&frame) {
                self.deliver(s, frame);
            } else if frame.is_damaged() {
                self.lose(frame);
            }
        } else {
            if let Some(way) = frame.way() {
                way.came = self.now;
            }
            station.arrive(self.now, port, frame);
            self.drain_station(s);
        }
    }

    fn drain_station(&mut self, s: u32) {
        loop {
            match self.network.stations[s as usize].station.poll(self.now) {
                Output::Transmit { port, frame } => self.launch(s, port, frame),
                Output::Deliver { frame, .. } => self.deliver(s, frame),
                Output::Lost { cause: Cause::Foreign, .. } => {}
                Output::Lost { frame, .. } => self.lose(frame),
                Output::Room => self.invite(s),
                Output::Idle { deadline } => {
                    let place = self.network.media.len() as u32 + s;
                    return self.agenda.set(place, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Puts a packet on an interface, or keeps it until there is room: a host loses nothing of its own.
    #[inline]
    fn launch(&mut self, s: u32, port: Port, frame: Frame) {
        let (m, at) = self.network.stations[s as usize].down[port.0 as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let held = &mut self.stations[s as usize].held[port.0 as usize];
        if !held.is_empty() || !medium.room(self.now, at, frame.length()) {
            held.push_back(frame);
            medium.handle(self.now, Arrival::Ask { port: at });
            return self.drain_medium(m);
        }
        self.launch_now(s, port, frame);
    }

    /// Puts a packet on an interface that has room.
    #[inline]
    fn launch_now(&mut self, s: u32, port: Port, mut frame: Frame) {
        if let Some(way) = frame.way() {
            way.left = self.now;
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.crossed(self.now, s, port, &frame);
        }
        let (m, at) = self.network.stations[s as usize].down[port.0 as usize];
        self.enter(m, at, frame);
    }

    /// An interface has room again.
    fn make_room(&mut self, s: u32, port: Port) {
        let (m, at) = self.network.stations[s as usize].down[port.0 as usize];
        while let Some(frame) = self.stations[s as usize].held[port.0 as usize].pop_front() {
            let medium = &mut self.network.media[m as usize].medium;
            if !medium.room(self.now, at, frame.length()) {
                self.stations[s as usize].held[port.0 as usize].push_front(frame);
                return medium.handle(self.now, Arrival::Ask { port: at });
            }
            self.launch_now(s, port, frame);
        }
        self.invite(s);
    }

    /// Lets the ends that wait at a station send, each in its turn.
    fn invite(&mut self, s: u32) {
        for _ in 0..self.stations[s as usize].waiting.len() {
            let Some((flow, side)) = self.stations[s as usize].waiting.pop_front() else { return };
            match flow {
                FLOW => self.drain_llc(s),
                bundles::FLOW => self.drain_bundles(s),
                _ => self.drain_end(flow, side),
            }
        }
    }

    /// A frame is no more. Of the cells of a packet only the last tells.
    fn lose(&mut self, frame: Frame) {
        self.crossed = self.now;
        let Some(packet) = frame.open() else { return };
        if let Some(flow) = self.flows.get_mut(packet.flow as usize).and_then(Option::as_mut) {
            flow.lose(&packet);
        }
        self.kit.keep(packet);
    }

    /// Gives a frame to the end for which a station has it.
    #[inline(always)]
    fn deliver(&mut self, s: u32, frame: Frame) {
        self.crossed = self.now;
        let Some(packet) = frame.open() else { return };
        if let Content::Pdu { from, bytes, .. } = &packet.content {
            self.mix(u64::from(packet.length) << 32 | u64::from(packet.flow));
            self.llc.arrive(self.now, s, *from, bytes);
            self.roused.push_back(Roused::Llc(s));
            return self.kit.keep(packet);
        }
        if let Content::Bundle { .. } = &packet.content {
            self.mix(u64::from(packet.length) << 32 | u64::from(packet.flow));
            if self.bundles.arrive(self.now, s, &packet) {
                self.roused.push_back(Roused::Bundles(s));
            }
            return self.kit.keep(packet);
        }
        let talk = self.hear(s, &packet);
        let number = packet.flow;
        self.kit.keep(packet);
        let Some(side) = talk else { return };
        self.drain_end(number, side);
        // A sender may have waited for this: its peer's share of the flow has changed.
        if side > 0 && self.flows[number as usize].as_ref().is_some_and(|f| f.is_over()) {
            self.drain_end(number, 0);
        }
    }

    /// Gives a packet to its end at a station, which is told if it may have something to say to that.
    #[inline(always)]
    fn hear(&mut self, s: u32, packet: &Packet) -> Option<u32> {
        let number = packet.flow;
        // None: a straggler of a run that is over.
        let flow = self.flows.get_mut(number as usize)?.as_mut()?;
        let side = match packet.is_back {
            true => 0,
            false if flow.sides.len() == 2 && flow.sides[1].station == s => 1,
            false => flow.sides.iter().skip(1).position(|side| side.station == s)? + 1,
        };
        let what = u64::from(packet.length) << 32 | u64::from(number);
        // `mix`, which a borrowed flow does not allow.
        let word = self.hash.rotate_left(23) ^ self.now.as_ps() ^ what;
        self.hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
        flow.arrive(self.now, side, packet, &mut self.kit.scratch).then_some(side as u32)
    }

    #[inline(never)]
    fn drain_end(&mut self, number: u32, side: u32) {
        while self.listen(number, side) {}
    }

    /// Asks an end for one thing that it has to say; whether there may be more.
    #[inline(always)]
    fn listen(&mut self, number: u32, side: u32) -> bool {
        let Some(flow) = &mut self.flows[number as usize] else { return false };
        let Side { station: s, port, place, down: (m, at) } = flow.sides[side as usize];
        let host = &mut self.network.stations[s as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let now = self.now;
        let line = self.stations[s as usize].held[port.0 as usize].is_empty() && medium.room(now, at, 1);
        let room = line && host.station.room();
        match flow.poll(now, side as usize, room, &mut self.kit) {
            Said::Send { frame, resume } => {
                if host.station.is_free() {
                    host.station.pass_out();
                    if let Some(tracer) = &mut self.tracer {
                        tracer.crossed(now, s, port, &frame);
                    }
                    self.enter(m, at, frame);
                } else {
                    let refused = host.station.send(now, port, frame);
                    debug_assert!(refused.is_ok(), "it had room");
                    self.drain_station(s);
                }
                if let Some(resume) = resume {
                    self.agenda.set(place, resume);
                }
                resume.is_none()
            }
            Said::Message(sending) => {
                self.llc.send(now, s, (number, side), &sending);
                self.roused.push_back(Roused::Llc(s));
                true
            }
            Said::Bundle { label, header } => {
                if let Err(why) = self.bundles.send(now, s, number, &label, &header)
                    && let Some(bundled) = flow.bundled()
                {
                    bundled.refused(why);
                }
                self.roused.push_back(Roused::Bundles(s));
                true
            }
            Said::Idle { deadline, blocked } => {
                let is_over = flow.is_over();
                self.agenda.set(place, deadline.unwrap_or(Instant::MAX));
                if blocked {
                    self.wait(number, side, line);
                }
                if is_over && !self.over.contains(&number) {
                    self.over.push_back(number);
                }
                false
            }
        }
    }

    /// Hands on what the LLC station of a host has to say.
    fn drain_llc(&mut self, s: u32) {
        let Some(Spot { port, down: (m, at), place, .. }) = self.llc.spot(s) else { return };
        loop {
            let now = self.now;
            let host = &self.network.stations[s as usize].station;
            let medium = &mut self.network.media[m as usize].medium;
            let line = self.stations[s as usize].held[port.0 as usize].is_empty() && medium.room(now, at, 1);
            let room = line && host.room();
            match self.llc.poll(now, s, room, &mut self.kit) {
                Saying::Send(packet) => {
                    let frame = self.kit.frame(packet);
                    self.post(s, port, frame);
                }
                Saying::Heard { flow, header } => {
                    let side = u32::from(header.kind != Kind::Answer);
                    self.rouse(flow, side, |messages| messages.hear(now, side as usize, &header));
                }
                Saying::Told { flow, side, told } => {
                    self.rouse(flow, side, |messages| messages.told(now, side as usize, told));
                }
                Saying::Formed => {
                    (0..self.next_flow()).for_each(|flow| self.rouse(flow, 0, |messages| messages.open(now)));
                }
                Saying::Idle { deadline, blocked } => {
                    self.agenda.set(place, deadline.unwrap_or(Instant::MAX));
                    if blocked {
                        self.queue(s, (FLOW, s), line, (m, at));
                    }
                    return;
                }
            }
        }
    }

    /// Hands on what bundles at a station has to say.
    fn drain_bundles(&mut self, s: u32) {
        let Some(place) = self.bundles.place(s) else { return };
        loop {
            let now = self.now;
            if let Some((port, (m, at))) = self.bundles.leaving(s) {
                let medium = &mut self.network.media[m as usize].medium;
                let line =
                    self.stations[s as usize].held[port.0 as usize].is_empty() && medium.room(now, at, 1);
                if line && self.network.stations[s as usize].station.room() {
                    if let Some(packet) = self.bundles.take(s) {
                        let frame = self.kit.frame(packet);
                        self.post(s, port, frame);
                    }
                    continue;
                }
                self.queue(s, (bundles::FLOW, s), line, (m, at));
            }
            match self.bundles.poll(now, s, &mut self.kit) {
                bundles::Saying::Leaving => {}
                bundles::Saying::Heard { flow, header } => {
                    let Some(heard) = self.flows.get_mut(flow as usize).and_then(Option::as_mut) else {
                        continue;
                    };
                    let receiver = heard.sides.iter().skip(1).position(|side| side.station == s);
                    if let (Some(receiver), Some(bundled)) = (receiver, heard.bundled()) {
                        bundled.hear(now, receiver, &header);
                        if bundled.has_all() {
                            self.roused.push_back(Roused::End { flow, side: 0 });
                        }
                    }
                }
                bundles::Saying::Join { group, joins } => {
                    self.network.join(s, self.bundles.switches(s), group, joins);
                }
                bundles::Saying::Settled => {
                    for flow in 0..self.next_flow() {
                        if let Some(bundled) =
                            self.flows[flow as usize].as_mut().and_then(|flow| flow.bundled())
                        {
                            bundled.open(now);
                            self.roused.push_back(Roused::End { flow, side: 0 });
                        }
                    }
                }
                bundles::Saying::Idle { deadline } => {
                    return self.agenda.set(place, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Tells a flow over LLC something, after which its ends may have something to say.
    fn rouse(&mut self, flow: u32, side: u32, tell: impl FnOnce(&mut Messages)) {
        // None: a straggler of a run that is over.
        let Some(messages) = self.flows.get_mut(flow as usize).and_then(|f| f.as_mut()?.messages()) else {
            return;
        };
        tell(messages);
        self.roused.push_back(Roused::End { flow, side });
        if side > 0 && messages.is_over() {
            self.roused.push_back(Roused::End { flow, side: 0 });
        }
    }

    /// Hands a frame to a station that has room for it.
    fn post(&mut self, s: u32, port: Port, frame: Frame) {
        let station = &mut self.network.stations[s as usize].station;
        if station.is_free() {
            station.pass_out();
            return self.launch_now(s, port, frame);
        }
        let refused = station.send(self.now, port, frame);
        debug_assert!(refused.is_ok(), "it had room");
        self.drain_station(s);
    }

    /// Notes that an end waits for room at its station, because the `line` has some or none.
    #[cold]
    fn wait(&mut self, number: u32, side: u32, line: bool) {
        let Some(flow) = &self.flows[number as usize] else { return };
        let Side { station: s, down, .. } = flow.sides[side as usize];
        self.queue(s, (number, side), line, down);
    }

    /// Lets somebody wait for room at a station.
    fn queue(&mut self, s: u32, who: (u32, u32), line: bool, (m, at): (u32, Port)) {
        let waiting = &mut self.stations[s as usize].waiting;
        if waiting.contains(&who) {
            return;
        }
        match who.0 {
            FLOW | bundles::FLOW => waiting.push_front(who),
            _ => waiting.push_back(who),
        }
        // Without room on the line the medium will say when; without room at the processor, the station will.
        if !line {
            self.network.media[m as usize].medium.handle(self.now, Arrival::Ask { port: at });
            self.drain_medium(m);
        }
    }
}

/// A number from a name.
fn mark(name: &str) -> u64 {
    xxh3_64(name.as_bytes())
}
