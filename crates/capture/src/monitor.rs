//! Everything together: a frame is read, filtered, counted and kept.

use crate::exchange::{Exchanges, Judgement};
use crate::filter::Filter;
use crate::flow::{self, Flows};
use crate::load::Load;
use crate::name::{Connection, Names, Service, Station};
use crate::packet::{Captured, Packet};
use crate::table::{Count, Table, WINDOW};
use crate::token::Ring;
use crate::trace::Trace;

/// How long a key is silent before its row may make room, in nanoseconds.
pub const SILENCE_NS: u64 = 60_000_000_000;

/// How large everything may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of stations.
    pub stations: usize,
    /// Maximum number of services.
    pub services: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of flows of a session.
    pub flows: usize,
    /// Packets kept.
    pub trace: usize,
}

/// About 7 MB, and 2 MB of packets.
impl Default for Limits {
    fn default() -> Self {
        Limits { stations: 1024, services: 512, connections: 4096, flows: 0, trace: 1000 }
    }
}

/// What a monitor looks at, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// Length of a sample, in nanoseconds.
    pub interval_ns: u64,
    /// Which packets; all without one.
    pub filter: Option<Filter>,
    /// UDP datagrams of this port carry PDUs.
    pub llc_port: Option<u16>,
    /// When answers are late or missing.
    pub judgement: Judgement,
    /// How large everything may grow.
    pub limits: Limits,
    /// What makes a flow.
    pub flows_by: flow::By,
}

/// Everything, sampled once a second.
impl Default for Config {
    fn default() -> Self {
        Config {
            interval_ns: 1_000_000_000,
            filter: None,
            llc_port: None,
            judgement: Judgement::default(),
            limits: Limits::default(),
            flows_by: flow::By::default(),
        }
    }
}

/// A monitor. Cloned, it stands still.
#[derive(Clone, Debug)]
pub struct Monitor {
    config: Config,
    load: Load,
    stations: Table<Station>,
    services: Table<Service>,
    connections: Table<Connection>,
    /// As they were when the last sample ended, and as they are.
    flows: [Flows; 2],
    exchanges: Exchanges,
    ring: Ring,
    trace: Trace,
    /// Of the running sample, in the histograms.
    slot: usize,
}

impl Monitor {
    /// One that has seen nothing.
    pub fn new(config: Config) -> Monitor {
        let limits = config.limits;
        Monitor {
            load: Load::new(config.interval_ns),
            stations: Table::new(limits.stations),
            services: Table::new(limits.services),
            connections: Table::new(limits.connections),
            flows: [(); 2].map(|()| Flows::new(config.flows_by, limits.flows)),
            exchanges: Exchanges::new(config.judgement),
            ring: Ring::default(),
            trace: Trace::new(limits.trace),
            slot: 0,
            config,
        }
    }

    /// Forgets everything that was counted and kept.
    pub fn reset(&mut self) {
        *self = Monitor::new(self.config.clone());
    }

    /// Looks through another filter from now on, and forgets what was counted through the last one.
    pub fn set_filter(&mut self, filter: Option<Filter>) {
        self.config.filter = filter;
        self.reset();
    }

    /// Sees a frame.
    pub fn add(&mut self, frame: &Captured<'_>) {
        let packet = Packet::read(frame, self.config.llc_port);
        self.advance(packet.at_ns);
        let count = Count::one(packet.length);
        let shown = self.config.filter.as_ref().is_none_or(|filter| filter.matches(&packet));
        self.load.add(count, shown);
        if !shown {
            return;
        }
        let Names { source, destination, services, connection, class } = Names::of(&packet);
        let (slot, at_ns) = (self.slot, packet.at_ns);
        for station in both(source, destination) {
            self.stations.add(station, slot, class, count, at_ns);
        }
        for service in both(Some(services.0), Some(services.1)) {
            self.services.add(service, slot, class, count, at_ns);
        }
        if let Some(connection) = connection {
            self.connections.add(connection, slot, class, count, at_ns);
        }
        if self.config.limits.flows > 0 {
            match connection {
                Some(between) => self.flows[1].add(between, flow::a_sent(&packet, &between, source), count),
                None => self.flows[1].add_other(count),
            }
        }
        self.exchanges.see(&packet);
        self.ring.see(&packet);
        self.trace.add(frame);
    }

    /// It is `now_ns`, nanoseconds since 1970: samples end though no frame comes.
    pub fn advance(&mut self, now_ns: u64) {
        let samples = self.load.advance(now_ns);
        if samples == 0 {
            return;
        }
        if self.config.limits.flows > 0 {
            self.flows[0] = self.flows[1].clone();
        }
        let silent_ns = now_ns.saturating_sub(SILENCE_NS);
        // After so many no histogram holds anything, nor does the last sample.
        for _ in 0..samples.min(WINDOW as u64 + 1) {
            self.slot = (self.slot + 1) % WINDOW;
            self.stations.close(self.slot, silent_ns);
            self.services.close(self.slot, silent_ns);
            self.connections.close(self.slot, silent_ns);
        }
        self.exchanges.advance(now_ns);
    }

    /// What it looks at.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Packets and bits per second.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// By station: what it sent or was sent.
    pub fn stations(&self) -> &Table<Station> {
        &self.stations
    }

    /// Packets to or from each service.
    pub fn services(&self) -> &Table<Service> {
        &self.services
    }

    /// By connection, both ways.
    pub fn connections(&self) -> &Table<Connection> {
        &self.connections
    }

    /// Flows as they were when the last sample ended, if [`Limits::flows`] of them are asked for; none are otherwise.
    pub fn flows(&self) -> &Flows {
        &self.flows[0]
    }

    /// The LLC exchanges.
    pub fn exchanges(&self) -> &Exchanges {
        &self.exchanges
    }

    /// The token of LLC's ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The last packets.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }
}

/// Both, or one if they are the same.
fn both<T: PartialEq>(a: Option<T>, b: Option<T>) -> impl Iterator<Item = T> {
    let b = if a == b { None } else { b };
    a.into_iter().chain(b)
}
