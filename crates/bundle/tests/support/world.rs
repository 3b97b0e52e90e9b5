//! A site and the wide area around it in virtual time, in either format: who is there, what is on its way, what arrived.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_bundle::balance::REBALANCE;
use trunkline_bundle::central::{self, Central, Config};
use trunkline_bundle::host::{self, From, Host};
use trunkline_bundle::level::Medium;
use trunkline_bundle::level1::{self, Level1};
use trunkline_bundle::wire::wide::{self, packet_of};
use trunkline_bundle::{Settings, interest::packet};
use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span, Stream};

/// A datagram is on its way for so long, at the least.
pub const HOP: Span = Span::from_us(50);
/// More than anybody sends.
pub const ROOMY: Medium = Medium { capacity: 100_000_000, interval: Span::from_ms(5) };
/// The site on the other side of the wide area, and its host.
pub const FAR: u32 = 9 << 16 | 1;

/// A place in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Central,
    /// From 0 on.
    Level1(usize),
    /// From 0 on.
    Host(usize),
}

/// Where it goes, by which port and from whom, and its octets.
type Datagram = (Place, Port, Peer, Vec<u8>);

enum Machine {
    Central(Checked<Central>),
    Level1(Checked<Level1>),
    Host(Checked<Host>),
}

/// What the medium does to datagrams. The wide area is never better.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub loss: f64,
    pub doubled: f64,
    pub jitter: Span,
}

/// A medium that all hosts and the central converter share: one frame after the other, and few may wait.
pub struct Shared {
    /// Octets a second, and of each frame beside its bundle.
    pub rate: u64,
    pub overhead: u64,
    /// Octets that may wait.
    pub queue: u64,
    free: Instant,
    /// Octets that it carried, and frames that found no room.
    pub carried: u64,
    pub lost: u64,
}

impl Shared {
    pub fn new(rate: u64, queue: u64) -> Shared {
        // Ethernet with preamble and gap, IPv4, UDP.
        Shared { rate, overhead: 66, queue, free: Instant::ZERO, carried: 0, lost: 0 }
    }

    /// When a frame that comes now has passed.
    fn pass(&mut self, now: Instant, octets: usize) -> Option<Instant> {
        let octets = octets as u64 + self.overhead;
        let time = |octets: u64| {
            Span::from_ps((u128::from(octets) * 1_000_000_000_000 / u128::from(self.rate)) as u64)
        };
        if self.free.since(now) > time(self.queue) {
            self.lost += 1;
            return None;
        }
        self.carried += octets;
        self.free = self.free.max(now) + time(octets);
        Some(self.free)
    }
}

pub struct World {
    pub now: Instant,
    pub settings: Settings,
    pub line: Line,
    config: Config,
    /// Whether who has forgotten is told again, where the format does not see to that.
    retells: bool,
    machines: BTreeMap<Place, (Machine, Option<Instant>)>,
    flying: BTreeMap<(Instant, u64), Datagram>,
    number: u64,
    life: u32,
    draw: Stream,
    /// Packet addresses that the wide area brings to a converter.
    pub joined: BTreeSet<(usize, u16)>,
    /// Whether two converters ever got the same.
    pub overlaps: u64,
    /// What reached the wide area: addresses and bodies.
    pub out: Vec<(u32, Vec<u8>)>,
    /// What hosts took since this was last emptied.
    pub got: Vec<(usize, From, Vec<u8>)>,
    /// Whether they take anything.
    pub takes: bool,
    /// When that was taken, if it is written down.
    pub arrived: Option<Vec<Instant>>,
    /// What lies between hosts and the central converter, if not only time.
    pub shared: Option<Shared>,
    /// Octets that the central converter sent to each.
    pub octets_to: BTreeMap<(Port, Peer), usize>,
    /// Numbers of what the far host sent, by packet address and class.
    sequences: BTreeMap<(u16, bool), u32>,
    buffer: Vec<u8>,
}

impl World {
    pub fn new(level1: u16, hosts: u16, settings: Settings, medium: Medium) -> World {
        let config = Config {
            settings,
            level1: (1..=level1).collect(),
            hosts: hosts.min(16) as u8,
            local: medium,
            wide: medium,
        };
        let mut world = World {
            now: Instant::ZERO,
            settings,
            line: Line::default(),
            config,
            retells: false,
            machines: BTreeMap::new(),
            flying: BTreeMap::new(),
            number: 0,
            life: 0,
            draw: Seed(1).stream("world"),
            joined: BTreeSet::new(),
            overlaps: 0,
            out: Vec::new(),
            got: Vec::new(),
            takes: true,
            arrived: None,
            shared: None,
            octets_to: BTreeMap::new(),
            sequences: BTreeMap::new(),
            buffer: vec![0; MAX_BATCH],
        };
        world.start(Place::Central);
        (0..usize::from(level1)).for_each(|at| world.start(Place::Level1(at)));
        (0..usize::from(hosts)).for_each(|at| world.start(Place::Host(at)));
        world
    }

    pub fn seed(mut self, seed: u64) -> World {
        self.draw = Seed(seed).stream("world");
        self
    }

    /// Everybody tells again what others may have forgotten, as daemons do.
    pub fn retelling(mut self) -> World {
        self.retells = true;
        let all: Vec<Place> = self.machines.keys().copied().collect();
        all.into_iter().for_each(|place| self.start(place));
        self
    }

    /// The central converter learns something of somebody.
    pub fn tell_central(&mut self, command: central::Command) {
        if let Some((Machine::Central(central), _)) = self.machines.get_mut(&Place::Central) {
            central.handle(self.now, Input::Command(command)).unwrap();
            self.drain(Place::Central);
        }
    }

    /// Starts somebody, who knows nothing of what was.
    pub fn start(&mut self, place: Place) {
        self.stop(place);
        self.life += 1;
        let (life, settings) = (self.life, self.settings);
        // Those of the daemons.
        let every = |seconds| if self.retells { Span::from_s(seconds) } else { Span::ZERO };
        let machine = match place {
            Place::Central => {
                let central = Central::with_life(life, self.config.clone());
                Machine::Central(Checked::new(if self.retells {
                    central.retelling(every(10)).rebalancing(REBALANCE)
                } else {
                    central
                }))
            }
            Place::Level1(at) => {
                let level1 = Level1::with_life(at as u16 + 1, life, settings);
                let asks = self.now + every(1);
                Machine::Level1(Checked::new(if self.retells { level1.asking(asks) } else { level1 }))
            }
            Place::Host(at) => {
                let host = Host::with_life(at as u16 + 1, life, settings);
                Machine::Host(Checked::new(if self.retells { host.retelling(every(1)) } else { host }))
            }
        };
        // It is told the time at once.
        self.machines.insert(place, (machine, Some(self.now)));
    }

    /// Has somebody disappear.
    pub fn stop(&mut self, place: Place) {
        self.machines.remove(&place);
        if let Place::Level1(at) = place {
            self.joined.retain(|(other, _)| *other != at);
        }
    }

    pub fn central(&self) -> &Central {
        match self.machines.get(&Place::Central) {
            Some((Machine::Central(central), _)) => central.inner(),
            _ => panic!("it is not there"),
        }
    }

    pub fn level1(&self, at: usize) -> &Level1 {
        match self.machines.get(&Place::Level1(at)) {
            Some((Machine::Level1(level1), _)) => level1.inner(),
            _ => panic!("it is not there"),
        }
    }

    pub fn host(&self, at: usize) -> &Host {
        match self.machines.get(&Place::Host(at)) {
            Some((Machine::Host(host), _)) => host.inner(),
            _ => panic!("it is not there"),
        }
    }

    /// Between a host and the central converter, or from that to all hosts.
    fn cross(&mut self, to: &[Place], port: Port, from: Peer, bytes: &[u8]) {
        let now = self.now;
        if let Some(shared) = &mut self.shared {
            let Some(passed) = shared.pass(now, bytes.len()) else { return };
            for to in to {
                self.number += 1;
                self.flying.insert((passed, self.number), (*to, port, from, bytes.to_vec()));
            }
            return;
        }
        to.iter().for_each(|to| self.fly(*to, port, from, bytes));
    }

    fn fly(&mut self, to: Place, port: Port, from: Peer, bytes: &[u8]) {
        let copies = 1 + u32::from(self.draw.chance(self.line.doubled));
        for _ in 0..copies {
            if !self.draw.chance(self.line.loss) {
                let late = Span::from_ps(self.draw.below(self.line.jitter.as_ps().max(1)));
                self.number += 1;
                self.flying.insert((self.now + HOP + late, self.number), (to, port, from, bytes.to_vec()));
            }
        }
    }

    fn handle(&mut self, place: Place, input: Input<'_, ()>) {
        let now = self.now;
        fn with<C>(input: Input<'_, ()>) -> Option<Input<'_, C>> {
            match input {
                Input::Frame { port, peer, bytes, segment } => {
                    Some(Input::Frame { port, peer, bytes, segment })
                }
                Input::Wake => Some(Input::Wake),
                Input::Command(()) => None,
            }
        }
        match self.machines.get_mut(&place) {
            Some((Machine::Central(central), _)) => {
                if let Some(input) = with::<central::Command>(input) {
                    central.handle(now, input).unwrap();
                }
            }
            Some((Machine::Level1(level1), _)) => {
                if let Some(input) = with::<level1::Command>(input) {
                    level1.handle(now, input).unwrap();
                }
            }
            Some((Machine::Host(host), _)) => {
                if let Some(input) = with::<host::Command<'_>>(input) {
                    host.handle(now, input).unwrap();
                }
            }
            None => return,
        }
        self.drain(place);
    }

    /// Lets somebody say what there is to say.
    fn drain(&mut self, place: Place) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some((mut machine, _)) = self.machines.remove(&place) else { return };
        let deadline = loop {
            let (transmit, deadline) = match &mut machine {
                Machine::Central(central) => match central.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(never) => match never {},
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
                Machine::Level1(level1) => match level1.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(event) => {
                        self.change(place, event);
                        (None, None)
                    }
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
                Machine::Host(host) => match host.poll(self.now, Writable::ALL, &mut buffer) {
                    Output::Transmit(transmit) => (Some(transmit), None),
                    Output::Event(host::Event::Readable) => {
                        self.take(place, host);
                        (None, None)
                    }
                    Output::Event(host::Event::Level(_)) => (None, None),
                    Output::Idle(idle) => (None, Some(idle.deadline)),
                },
            };
            if let Some(transmit) = transmit {
                self.transmit(place, &transmit, &buffer);
            }
            if let Some(deadline) = deadline {
                break deadline;
            }
        };
        self.machines.insert(place, (machine, deadline));
        self.buffer = buffer;
    }

    /// A host takes again.
    pub fn takes_again(&mut self, host: usize) {
        self.takes = true;
        let place = Place::Host(host);
        let Some((mut machine, deadline)) = self.machines.remove(&place) else { return };
        if let Machine::Host(host) = &mut machine {
            self.take(place, host);
        }
        self.machines.insert(place, (machine, deadline));
        self.drain(place);
    }

    fn change(&mut self, place: Place, event: level1::Event) {
        let Place::Level1(at) = place else { return };
        match event {
            level1::Event::Join(packet) => {
                self.overlaps += u64::from(self.joined.iter().any(|(_, other)| *other == packet));
                assert!(self.joined.insert((at, packet)), "joined twice");
            }
            level1::Event::Leave(packet) => assert!(self.joined.remove(&(at, packet)), "never joined"),
        }
    }

    fn take(&mut self, place: Place, host: &mut Checked<Host>) {
        let Place::Host(at) = place else { return };
        while self.takes {
            let (mut into, mut from) = (Vec::new(), None);
            let receive = host::Command::Receive { into: &mut into, from: &mut from };
            host.handle(self.now, Input::Command(receive)).unwrap();
            let Some(from) = from else { return };
            self.got.push((at, from, into));
            if let Some(arrived) = &mut self.arrived {
                arrived.push(self.now);
            }
        }
    }

    fn transmit(&mut self, place: Place, transmit: &Transmit, buffer: &[u8]) {
        let bytes = &buffer[..transmit.length];
        if let Some(wide) = self.settings.wide() {
            assert!(bytes.len() <= wide.longest(), "longer than the path carries");
        }
        let number = transmit.peer.as_bytes();
        if place == Place::Central {
            *self.octets_to.entry((transmit.port, transmit.peer)).or_default() += bytes.len();
        }
        match (place, transmit.port) {
            (Place::Host(at), _) => {
                self.cross(&[Place::Central], Central::HOSTS, Peer::new(&[at as u8]), bytes);
            }
            (Place::Central, Central::HOSTS) if number.is_empty() => {
                let all = self.machines.keys().copied();
                let hosts: Vec<Place> = all.filter(|place| matches!(place, Place::Host(_))).collect();
                self.cross(&hosts, Host::CENTRAL, Peer::NONE, bytes);
            }
            (Place::Central, Central::HOSTS) => {
                self.cross(&[Place::Host(number[0].into())], Host::CENTRAL, Peer::NONE, bytes);
            }
            // Where nobody is.
            (Place::Central, _) if number.is_empty() => {}
            (Place::Central, _) => {
                self.fly(Place::Level1(usize::from(number[1]) - 1), Level1::CENTRAL, Peer::NONE, bytes);
            }
            (Place::Level1(at), Level1::CENTRAL) => {
                let number = at as u16 + 1;
                self.fly(Place::Central, Central::LEVEL1, Peer::new(&number.to_be_bytes()), bytes)
            }
            (Place::Level1(_), _) => {
                let (address, body) = self.read_far(bytes);
                assert_eq!(number, packet_of(address).to_be_bytes());
                self.out.push((address, body));
                // The wide area gives it to whoever gets its packet address, and so to this site, too: in the classic format
                // not to who said it, of which the driver takes care.
                self.cast(packet_of(address), bytes, self.settings.wide().is_none().then_some(place));
            }
        }
    }

    /// What stands in a datagram of the wide area.
    fn read_far(&self, bytes: &[u8]) -> (u32, Vec<u8>) {
        if self.settings.wide().is_none() {
            return (u16::from_be_bytes([bytes[0], bytes[1]]).into(), bytes[2..].to_vec());
        }
        let bundle = wide::Bundle::read(bytes).expect("a bundle");
        assert_eq!((bundle.count(), bundle.control().count()), (1, 0));
        bundle.messages().next().map(|message| (message.address, message.body.to_vec())).expect("a message")
    }

    fn cast(&mut self, packet: u16, bytes: &[u8], but: Option<Place>) {
        let holders = self.joined.iter().filter(|(_, at)| *at == packet).map(|(at, _)| Place::Level1(*at));
        let holders: Vec<Place> = holders.filter(|at| Some(*at) != but).collect();
        for at in holders {
            self.fly(at, Level1::WIDE, Peer::NONE, bytes);
        }
    }

    /// A message from the wide area, heard by who gets its packet address.
    pub fn hear(&mut self, address: u32, priority: bool, body: &[u8]) {
        if self.settings.wide().is_none() {
            let address = address as u16;
            let bytes = [&address.to_be_bytes()[..], body].concat();
            return self.cast(packet(address), &bytes, None);
        }
        let to = packet_of(address);
        let next = self.sequences.entry((to, priority)).or_default();
        let sequence = *next;
        *next += 1;
        let (life, within) = (1, wide::NO_LIMIT);
        let message =
            wide::Message { address, source: FAR, life, sequence, within, priority, reliable: None, body };
        let mut builder = wide::Builder::new(MAX_BATCH);
        assert!(builder.push(&message));
        let header = wide::Header { role: wide::Role::Level1, number: 1, to, life, session: 0, before: 0 };
        let mut bytes = vec![0; builder.octets()];
        builder.finish(&header, &mut bytes);
        self.cast(to, &bytes, None);
    }

    pub fn command(&mut self, at: usize, command: host::Command<'_>) -> Result<(), host::Refusal> {
        let Some((Machine::Host(host), _)) = self.machines.get_mut(&Place::Host(at)) else { return Ok(()) };
        let done = host.handle(self.now, Input::Command(command));
        self.drain(Place::Host(at));
        done
    }

    /// Something foreign arrives.
    pub fn give(&mut self, place: Place, port: Port, bytes: &[u8]) {
        self.give_from(place, port, Peer::NONE, bytes);
    }

    /// Something arrives from somebody.
    pub fn give_from(&mut self, place: Place, port: Port, peer: Peer, bytes: &[u8]) {
        self.handle(place, Input::Frame { port, peer, bytes, segment: None });
    }

    /// Until so much later.
    pub fn run(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            let due = self.machines.iter().filter_map(|(place, (_, due))| Some(((*due)?, *place))).min();
            let lands = self.flying.first_key_value().map(|((at, _), _)| *at);
            match (due, lands) {
                (Some((at, place)), lands) if at <= until && lands.is_none_or(|lands| at <= lands) => {
                    self.now = self.now.max(at);
                    self.handle(place, Input::Wake);
                }
                (_, Some(at)) if at <= until => {
                    self.now = at;
                    let Some((_, (place, port, peer, bytes))) = self.flying.pop_first() else { return };
                    self.handle(place, Input::Frame { port, peer, bytes: &bytes, segment: None });
                }
                _ => return self.now = until,
            }
        }
    }
}
