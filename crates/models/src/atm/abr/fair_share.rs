//! Max–min fair shares (Bertsekas, Gallager: Data Networks, section 6.5.2).

use trunkline_units::Rate;

/// Returns the level up to which sources with these limits can fill a link: each gets its limit or the level, whichever
/// is lower. `None` if all limits together fit, so that no source is held back. Rounded down to 1 b/s.
///
/// ```
/// use trunkline_models::atm::abr::water_level;
/// use trunkline_units::Rate;
/// let limits = [10, 40, 100].map(Rate::from_bps);
/// assert_eq!(water_level(Rate::from_bps(90), &limits), Some(Rate::from_bps(40)));
/// assert_eq!(water_level(Rate::from_bps(150), &limits), None);
/// ```
pub fn water_level(capacity: Rate, limits: &[Rate]) -> Option<Rate> {
    let mut sorted: Vec<u64> = limits.iter().map(|limit| limit.as_bps()).collect();
    sorted.sort_unstable();
    let mut left = capacity.as_bps();
    for (satisfied, limit) in sorted.iter().enumerate() {
        let level = left / (sorted.len() - satisfied) as u64;
        if *limit > level {
            return Some(Rate::from_bps(level));
        }
        left -= limit;
    }
    None
}

/// Returns the max–min fair rate of each flow in b/s. A flow is its demand and the numbers of the links that it crosses.
///
/// By progressive filling: all rates rise together; a flow stops when it has its demand or when a link that it crosses is
/// full.
pub fn max_min_shares(capacities: &[Rate], flows: &[(Rate, Vec<usize>)]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; flows.len()];
    let demand = |flow: usize| flows[flow].0.as_bps() as f64;
    loop {
        let rising: Vec<usize> = (0..flows.len()).filter(|flow| rates[*flow].is_none()).collect();
        if rising.is_empty() {
            return rates.into_iter().flatten().collect();
        }
        // The rate at which each link is full, if all its rising flows have the same.
        let fills_at = |link: usize| {
            let crosses = |flow: &usize| flows[*flow].1.contains(&link);
            let used: f64 = (0..flows.len()).filter(crosses).filter_map(|flow| rates[flow]).sum();
            let count = rising.iter().filter(|flow| crosses(flow)).count();
            (capacities[link].as_bps() as f64 - used).max(0.0) / count as f64
        };
        let levels: Vec<f64> = (0..capacities.len()).map(fills_at).collect();
        let limit = |flow: usize| flows[flow].1.iter().map(|link| levels[*link]).fold(demand(flow), f64::min);
        let lowest = rising.iter().map(|flow| limit(*flow)).fold(f64::INFINITY, f64::min);
        // Links that fill at the same rate may differ in the last digits.
        let stops = |flow: &usize| limit(*flow) <= lowest * (1.0 + 1e-12);
        rising.into_iter().filter(stops).for_each(|flow| rates[flow] = Some(lowest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn max_min_by_its_definition() {
        // A flow has its demand, or crosses a full link on which no flow has more.
        for seed in 0..300 {
            let mut stream = Seed(seed).stream("max-min");
            let capacities: Vec<Rate> = (0..1 + stream.below(5))
                .map(|_| Rate::from_bps(1_000_000 + stream.below(150_000_000)))
                .collect();
            let flows: Vec<(Rate, Vec<usize>)> = (0..1 + stream.below(30))
                .map(|_| {
                    let demand = Rate::from_bps(1_000 + stream.below(100_000_000));
                    let links = (0..capacities.len()).filter(|_| stream.chance(0.5)).collect();
                    (demand, links)
                })
                .collect();
            let rates = max_min_shares(&capacities, &flows);
            let load = |link: usize| -> f64 {
                flows
                    .iter()
                    .zip(&rates)
                    .filter(|(flow, _)| flow.1.contains(&link))
                    .map(|(_, rate)| rate)
                    .sum()
            };
            for ((demand, links), rate) in flows.iter().zip(&rates) {
                let has_demand = (demand.as_bps() as f64 - rate).abs() < 1e-3;
                let is_limited = links.iter().any(|link| {
                    let capacity = capacities[*link].as_bps() as f64;
                    let others = flows.iter().zip(&rates).filter(|(flow, _)| flow.1.contains(link));
                    let largest = others.map(|(_, rate)| *rate).fold(0.0, f64::max);
                    load(*link) >= capacity * (1.0 - 1e-9) && *rate >= largest * (1.0 - 1e-9)
                });
                assert!(has_demand || is_limited, "seed {seed}: {rate} of {demand:?} over {links:?}");
            }
            (0..capacities.len())
                .for_each(|link| assert!(load(link) <= capacities[link].as_bps() as f64 * (1.0 + 1e-9)));
        }
    }
}
