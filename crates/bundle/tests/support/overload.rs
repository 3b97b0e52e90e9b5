//! More than the hosts' medium carries: 10 Mb/s Ethernet, 150-octet messages from the wide area to three hosts, a twentieth of
//! them with priority.

use trunkline_bundle::gather::Timing;
use trunkline_bundle::host::{Command, From};
use trunkline_bundle::level::Medium;
use trunkline_bundle::regulator::Congestion;
use trunkline_bundle::settings::{Spread, Wide};
use trunkline_bundle::{Format, Settings};
use trunkline_units::{Instant, Seed, Span};

use crate::world::{ROOMY, Shared, World};

/// Hosts.
const HOSTS: usize = 3;
/// Octets of a message with its entry and wrapper.
const MESSAGE: u64 = 24 + 12 + 150 + 6;
/// What the medium carries: 10 Mb/s.
const RATE: u64 = 1_250_000;

/// What became of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Messages offered: ordinary ones, those with priority.
    pub offered: [u64; 2],
    /// Messages that arrived, of all hosts together.
    pub arrived: [u64; 2],
    /// Dropped by converters, each once.
    pub dropped: [u64; 2],
    /// Ordinary messages to all that hosts say did not come, of all hosts together.
    pub missed: u64,
    /// Frames that the medium lost.
    pub lost: u64,
    /// Share of the medium that was used.
    pub used: f64,
    /// Delays of both, sorted.
    pub delays: [Vec<Span>; 2],
    /// When the limit that is told changed.
    pub changes: Vec<Instant>,
    /// Levels seen.
    pub levels: Vec<u8>,
}

impl Outcome {
    /// Delay below which that share of both together lies.
    pub fn delay(&self, class: usize, share: f64) -> Span {
        let delays = &self.delays[class];
        delays
            .get(((delays.len() as f64 * share) as usize).min(delays.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }
}

/// Ordinary messages wait for 5 ms, one interval of control.
const TIMING: Timing = Timing::Adaptive { ordinary: Span::from_ms(5), priority: Span::ZERO, gap: None };

/// So many times what the medium carries, for so long; without control if there is none.
pub fn overload(load: f64, congestion: Option<Congestion>, span: Span) -> Outcome {
    let wide = Wide { spread: Spread::All, congestion: congestion.unwrap_or_default(), ..Wide::default() };
    let settings = Settings { timing: TIMING, format: Format::Wide(wide), ..Settings::default() };
    let medium = if congestion.is_some() { Medium::default() } else { ROOMY };
    let mut world = World::new(2, HOSTS as u16, settings, medium);
    world.shared = Some(Shared::new(RATE, 16_000));
    world.arrived = Some(Vec::new());
    world.run(Span::from_ms(50));
    (0..HOSTS).for_each(|host| world.command(host, Command::JoinRange { first: 0, last: 127 }).unwrap());
    world.run(Span::from_ms(50));

    let mut draw = Seed(1997).stream("overload");
    let gap = Span::from_seconds(MESSAGE as f64 / (RATE as f64 * load)).as_ps();
    let (mut outcome, until) = (Outcome::default(), world.now + span);
    let carried = world.shared.as_ref().map_or(0, |shared| shared.carried);
    let mut limit = (3, u32::MAX);
    while world.now < until {
        let priority = draw.chance(0.05);
        outcome.offered[usize::from(priority)] += 1;
        let mut body = world.now.as_ps().to_be_bytes().to_vec();
        body.resize(150, 0xAB);
        world.hear(draw.below(128) as u32, priority, &body);
        world.run(Span::from_ps(draw.below(2 * gap)));
        let central = world.central().wide().expect("it speaks wide");
        let now = match congestion {
            Some(Congestion::Rates) => (3, central.rates().0),
            _ => (world.central().levels().0, u32::MAX),
        };
        if now != limit {
            outcome.changes.push(world.now);
            limit = now;
        }
        outcome.levels.push(world.central().levels().0);
    }
    let used = world.shared.as_ref().map_or(0, |shared| shared.carried) - carried;
    outcome.used = used as f64 / (RATE as f64 * span.as_s());
    world.run(Span::from_s(3));
    outcome.missed = (0..HOSTS).map(|host| world.host(host).statistics().lost_to_all).sum();
    outcome.lost = world.shared.as_ref().map_or(0, |shared| shared.lost);
    for ((_, From { priority, .. }, body), at) in world.got.iter().zip(world.arrived.iter().flatten()) {
        let class = usize::from(*priority);
        outcome.arrived[class] += 1;
        let sent = Instant::from_ps(u64::from_be_bytes(body[..8].try_into().unwrap()));
        outcome.delays[class].push(at.since(sent));
    }
    outcome.delays.iter_mut().for_each(|delays| delays.sort());
    for class in [false, true] {
        let level1: u64 = (0..2).map(|at| of_class(&world.level1(at).statistics().drops, class)).sum();
        outcome.dropped[usize::from(class)] =
            level1 + of_class(&world.central().statistics().drops_to_hosts, class);
    }
    outcome
}

fn of_class(drops: &trunkline_bundle::drops::Drops, priority: bool) -> u64 {
    trunkline_bundle::drops::Drops::REASONS.iter().map(|why| drops.get(*why, priority)).sum()
}
