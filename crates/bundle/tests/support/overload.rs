//! More load than the hosts' medium carries: 10 Mb/s Ethernet, and messages of 150 octets from the wide area to three
//! hosts, 5 % with priority.

use trunkline_bundle::bundler::Timing;
use trunkline_bundle::host::{HostCommand, MessageInfo};
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Fanout, Format2};
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Instant, Seed, Span};

use crate::simulation::{ROOMY, Shared, Simulation};

/// The number of hosts.
const HOSTS: usize = 3;
/// Octets of a message with its entry and wrapper.
const MESSAGE: u64 = 24 + 12 + 150 + 6;
/// Capacity of the medium in octets per second: 10 Mb/s.
const RATE: u64 = 1_250_000;

/// The result.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Messages offered: ordinary and priority.
    pub offered: [u64; 2],
    /// Messages received by all hosts.
    pub arrived: [u64; 2],
    /// Messages dropped by converters, each once.
    pub dropped: [u64; 2],
    /// Ordinary broadcast messages that hosts report as lost, of all hosts.
    pub missed: u64,
    /// Frames that the medium lost.
    pub lost: u64,
    /// The utilization of the medium.
    pub used: f64,
    /// Delays of both classes, sorted.
    pub delays: [Vec<Span>; 2],
    /// When the announced limit changed.
    pub changes: Vec<Instant>,
    /// Observed levels.
    pub levels: Vec<u8>,
}

impl Outcome {
    /// Returns a quantile of the delays of a class.
    pub fn delay(&self, class: usize, share: f64) -> Span {
        let delays = &self.delays[class];
        delays
            .get(((delays.len() as f64 * share) as usize).min(delays.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

/// Ordinary messages wait 5 ms, one control interval.
const TIMING: Timing = Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::ZERO, gap: None };

/// Offers `load` times the capacity for `span`, with congestion control if given.
pub fn overload(load: f64, congestion: Option<Congestion>, span: Span) -> Outcome {
    let format2 = Format2 {
        fanout: Fanout::Broadcast,
        congestion: congestion.unwrap_or_default(),
        ..Format2::default()
    };
    let settings = Settings { timing: TIMING, format: Format::Format2(format2), ..Settings::default() };
    let medium = if congestion.is_some() { Medium::default() } else { ROOMY };
    let mut sim = Simulation::new(2, HOSTS as u16, settings, medium);
    sim.shared = Some(Shared::new(RATE, 16_000));
    sim.arrived = Some(Vec::new());
    sim.run(Span::from_ms(50));
    (0..HOSTS).for_each(|host| sim.command(host, HostCommand::Join { first: 0, last: 127 }).unwrap());
    sim.run(Span::from_ms(50));

    let mut draw = Seed(1997).stream("overload");
    let gap = Span::from_seconds(MESSAGE as f64 / (RATE as f64 * load)).as_ps();
    let (mut outcome, until) = (Outcome::default(), sim.now + span);
    let carried = sim.shared.as_ref().map_or(0, |shared| shared.carried);
    let mut limit = (3, u32::MAX);
    while sim.now < until {
        let priority = draw.chance(0.05);
        outcome.offered[usize::from(priority)] += 1;
        let mut body = sim.now.as_ps().to_be_bytes().to_vec();
        body.resize(150, 0xAB);
        sim.inject(draw.below(128) as u32, priority, &body);
        sim.run(Span::from_ps(draw.below(2 * gap)));
        let now = match congestion {
            Some(Congestion::Rates) => (3, sim.central().rates().0),
            _ => (sim.central().levels().0, u32::MAX),
        };
        if now != limit {
            outcome.changes.push(sim.now);
            limit = now;
        }
        outcome.levels.push(sim.central().levels().0);
    }
    let used = sim.shared.as_ref().map_or(0, |shared| shared.carried) - carried;
    outcome.used = used as f64 / (RATE as f64 * span.as_s());
    sim.run(Span::from_s(3));
    outcome.missed = (0..HOSTS).map(|host| sim.host(host).statistics().broadcasts_lost).sum();
    outcome.lost = sim.shared.as_ref().map_or(0, |shared| shared.lost);
    for ((_, MessageInfo { priority, .. }, body), at) in sim.received.iter().zip(sim.arrived.iter().flatten())
    {
        let class = usize::from(*priority);
        outcome.arrived[class] += 1;
        let sent = Instant::from_ps(u64::from_be_bytes(body[..8].try_into().unwrap()));
        outcome.delays[class].push(at.since(sent));
    }
    outcome.delays.iter_mut().for_each(|delays| delays.sort());
    for class in [false, true] {
        let level1: u64 = (0..2).map(|at| of_class(&sim.level1(at).statistics().drops, class)).sum();
        outcome.dropped[usize::from(class)] =
            level1 + of_class(&sim.central().statistics().drops_to_hosts, class);
    }
    outcome
}

fn of_class(drops: &trunkline_bundle::drops::DropCounts, priority: bool) -> u64 {
    trunkline_bundle::drops::DropCounts::REASONS.iter().map(|reason| drops.get(*reason, priority)).sum()
}
