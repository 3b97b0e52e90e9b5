//! How far the rates of a network are from the max–min shares, and after how many round trips.

use trunkline_units::{Instant, Rate, Seed, Span, Stream};

use crate::atm::abr::{Algorithm, FlowPath, Signalling, max_min_shares};

/// Rate of a bottleneck with the largest weight: the cells of OC-3c.
const LINE_BPS: u64 = 149_760_000;
/// Round trips after which the shares are compared.
pub const ROUND_TRIPS: u64 = 10;
/// Largest deviation of a rate from its share that counts as settled.
pub const TOLERANCE: f64 = 0.05;

/// Sources that share bottlenecks in a row. Each crosses some neighbouring ones; sources join together, then a third of
/// them leave and others join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Number of sources.
    pub sources: usize,
    /// Number of bottlenecks.
    pub bottlenecks: usize,
    /// Longest round trip of a source to its farthest bottleneck and back.
    pub round_trip: Span,
    /// Seed of the paths, demands and delays.
    pub seed: Seed,
}

/// The result of a [`Case`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Largest deviation of a rate from its max–min share [`ROUND_TRIPS`] after all sources had joined, as a fraction.
    pub joined: f64,
    /// The same after some had left and others had joined.
    pub changed: f64,
    /// Round trips after the later change until all rates stayed within the tolerance.
    pub settled_after: f64,
}

impl Case {
    /// Runs the case.
    pub fn run(&self, algorithm: Algorithm) -> Outcome {
        let mut stream = self.seed.stream("convergence");
        let lines: Vec<Rate> =
            (0..self.bottlenecks).map(|_| Rate::from_bps(draw_rate(&mut stream))).collect();
        let mut network = Signalling::new(algorithm, &lines, 0.0, self.seed.stream("loss"));
        let paths: Vec<FlowPath> = (0..self.sources).map(|_| self.draw_path(&mut stream)).collect();
        paths.iter().for_each(|path| _ = network.add_flow(path.clone()));
        let mut active: Vec<bool> = paths.iter().map(|_| stream.chance(0.8)).collect();
        let usable: Vec<Rate> = lines
            .iter()
            .map(|line| Rate::from_bps((line.as_bps() as f64 * algorithm.utilization()) as u64))
            .collect();
        let mut now = Instant::ZERO;
        (0..self.sources).filter(|flow| active[*flow]).for_each(|flow| network.start(now, flow as u32));
        let (joined, _) = self.settle(&mut network, &mut now, &paths, &active, &usable);
        for (flow, active) in active.iter_mut().enumerate() {
            if stream.chance(1.0 / 3.0) {
                *active = !*active;
                match *active {
                    true => network.start(now, flow as u32),
                    false => network.stop(now, flow as u32),
                }
            }
        }
        let (changed, settled_after) = self.settle(&mut network, &mut now, &paths, &active, &usable);
        Outcome { joined, changed, settled_after }
    }

    fn draw_path(&self, stream: &mut Stream) -> FlowPath {
        let first = stream.below(self.bottlenecks as u64);
        let count = 1 + stream.below(self.bottlenecks as u64 - first);
        // The last bottleneck is at most half a round trip away.
        let farthest = self.round_trip.as_ps() / 2;
        let access = stream.below(farthest / 2 + 1);
        let hop = (farthest - access) / self.bottlenecks as u64;
        let lines = (0..count).map(|n| ((first + n) as usize, Span::from_ps(access + n * hop)));
        let demand = if stream.chance(0.7) { LINE_BPS } else { 1_000_000 + stream.below(20_000_000) };
        FlowPath { demand: Rate::from_bps(demand), lines: lines.collect(), delay: self.round_trip / 2 }
    }

    /// Runs for the round trips; returns the largest deviation then, and the round trips until it stayed small.
    fn settle(
        &self,
        network: &mut Signalling,
        now: &mut Instant,
        paths: &[FlowPath],
        active: &[bool],
        usable: &[Rate],
    ) -> (f64, f64) {
        let flows: Vec<usize> = (0..paths.len()).filter(|flow| active[*flow]).collect();
        let demands: Vec<(Rate, Vec<usize>)> = flows
            .iter()
            .map(|flow| (paths[*flow].demand, paths[*flow].lines.iter().map(|(line, _)| *line).collect()))
            .collect();
        let shares = max_min_shares(usable, &demands);
        let mut deviations = vec![0.0; paths.len()];
        let deviation = |network: &Signalling, at: usize| {
            (network.rate(flows[at] as u32).as_bps() as f64 / shares[at] - 1.0).abs()
        };
        (0..flows.len()).for_each(|at| deviations[flows[at]] = deviation(network, at));
        let mut outside = deviations.iter().filter(|deviation| **deviation > TOLERANCE).count();
        let (begin, end) = (*now, *now + self.round_trip * ROUND_TRIPS);
        let mut settled = begin;
        while network.deadline() <= end {
            *now = network.deadline();
            network.handle(*now);
            while let Some(flow) = network.take_changed() {
                let Ok(at) = flows.binary_search(&(flow as usize)) else { continue };
                let before = std::mem::replace(&mut deviations[flows[at]], deviation(network, at));
                outside -= usize::from(before > TOLERANCE);
                outside += usize::from(deviations[flows[at]] > TOLERANCE);
            }
            if outside > 0 {
                settled = *now;
            }
        }
        *now = end;
        (deviations.iter().copied().fold(0.0, f64::max), settled.since(begin).as_s() / self.round_trip.as_s())
    }
}

fn draw_rate(stream: &mut Stream) -> u64 {
    [LINE_BPS, LINE_BPS / 2, 40_704_000, LINE_BPS / 4 * 3][stream.below(4) as usize]
}

/// Returns the compared cases: 2 to 200 sources, 1 to 5 bottlenecks, 1 to 100 ms.
pub fn cases() -> impl Iterator<Item = Case> {
    let sources = [2, 5, 20, 60, 200];
    let round_trips = [1, 10, 36, 100];
    let all = sources.into_iter().flat_map(move |sources| {
        (1..=5).flat_map(move |bottlenecks| round_trips.map(|ms| (sources, bottlenecks, ms)))
    });
    all.enumerate().map(|(number, (sources, bottlenecks, ms))| Case {
        sources,
        bottlenecks,
        round_trip: Span::from_ms(ms),
        seed: Seed(number as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_reach_the_max_min_shares_in_ten_round_trips() {
        // `trunkline reproduce congestion` runs all of them.
        for case in cases().filter(|case| {
            case.sources <= 20 || case.bottlenecks == 5 && case.round_trip == Span::from_ms(36)
        }) {
            let outcome = case.run(Algorithm::Controllers);
            assert!(outcome.joined.max(outcome.changed) <= TOLERANCE, "{case:?}: {outcome:?}");
        }
    }

    #[test]
    fn lost_cells_only_delay_the_shares() {
        let lines = [100_000_000, 60_000_000].map(Rate::from_bps);
        for seed in 0..20 {
            let mut network = Signalling::new(Algorithm::Controllers, &lines, 0.3, Seed(seed).stream("loss"));
            let ms = Span::from_ms;
            for lines in [vec![(0, ms(1))], vec![(0, ms(1)), (1, ms(2))], vec![(1, ms(3))]] {
                let flow =
                    network.add_flow(FlowPath { demand: Rate::from_bps(LINE_BPS), lines, delay: ms(5) });
                network.start(Instant::ZERO, flow);
            }
            network.handle(Instant::ZERO + Span::from_s(20));
            let rates = [0, 1, 2].map(|flow| network.rate(flow).as_bps());
            assert_eq!(rates, [70_000_000, 30_000_000, 30_000_000], "seed {seed}");
            network.stop(Instant::ZERO + Span::from_s(20), 1);
            network.handle(Instant::ZERO + Span::from_s(40));
            let rates = [0, 1, 2].map(|flow| network.rate(flow).as_bps());
            assert_eq!(rates, [100_000_000, 0, 60_000_000], "seed {seed}");
        }
    }

    #[test]
    fn erica_comes_near_on_one_bottleneck() {
        let algorithm = Algorithm::Erica { utilization: 0.9, interval: Span::from_ms(1) };
        for seed in 0..10 {
            let case = Case { sources: 5, bottlenecks: 1, round_trip: Span::from_ms(10), seed: Seed(seed) };
            let outcome = case.run(algorithm);
            assert!(outcome.joined < 0.25, "{case:?}: {outcome:?}");
        }
    }
}
