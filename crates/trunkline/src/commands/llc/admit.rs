//! `trunkline llc admit`: delay bounds of a token ring.

use serde_json::json;
use trunkline_llc::admit::{self, Network, Refusal, Station};
use trunkline_llc::token::{Line, Options};
use trunkline_llc::wire::HEADER;
use trunkline_units::Span;

use super::VERSION;
use crate::failure::{Failure, print};
use crate::flags::llc::{Admit, Promise};

/// Computes the bounds, or reports why there are none.
pub fn admit(flags: &Admit) -> Result<(), Failure> {
    let network = network(flags)?;
    let contracts = traffic_contracts(flags)?;
    let bounds = admit::admit(&network, &contracts);
    let rotation = admit::rotation(&network, &contracts).ok();
    let refused = bounds.as_ref().err().map(|refusal| reason(refusal, &contracts));
    print(&if flags.json {
        let delays = bounds.as_ref().map(|delays| {
            let one = |(p, delay): (&admit::TrafficContract, &Span)| {
                json!({
                    "station": p.station, "priority": p.priority, "octets": p.octets, "period_us": p.period.as_us(),
                    "deadline_us": p.deadline.as_us(), "delay_us": delay.as_us(),
                })
            };
            contracts.iter().zip(delays).map(one).collect::<Vec<_>>()
        });
        let whole = json!({
            "version": VERSION, "tool": "admit", "stations": network.stations.len(), "rate_bps": network.line.rate.as_bps(),
            "rotation_us": rotation.map(Span::as_us), "lost_us": network.options.lost().as_us(),
            "repair_us": network.options.repair().as_us(), "restart_us": network.options.restart().as_us(),
            "admitted": refused.is_none(), "refused": refused, "streams": delays.unwrap_or_default(),
        });
        format!("{whole:#}\n")
    } else {
        text(flags, &network, &contracts, bounds.as_deref().unwrap_or_default(), rotation)
    })?;
    refused.map_or(Ok(()), |reason| Err(Failure::run(reason)))
}

fn network(flags: &Admit) -> Result<Network, Failure> {
    let mut line = Line::ethernet(flags.rate, flags.hop);
    line.switched = flags.switched;
    let numbers = &flags.stations.0;
    let last = numbers.last().copied().unwrap_or(1);
    let octets = flags.promise.iter().map(|p| p.octets).chain(flags.background).max().unwrap_or_default();
    let mut options = match flags.programs {
        true => Options::default(),
        false => Options::for_line(&line, flags.highest.unwrap_or(last), 1 + HEADER + usize::from(octets)),
    };
    options.highest_station = flags.highest.unwrap_or(options.highest_station);
    options.invited_per_window = flags.invited.unwrap_or(options.invited_per_window);
    if options.highest_station < last {
        return Err(Failure::input(format!("--highest {} is below station {last}", options.highest_station)));
    }
    let max_background_octets = flags.background.map(u32::from);
    let stations = numbers.iter().map(|&number| Station { number, max_background_octets }).collect();
    Ok(Network { line, options, stations, lost: flags.lost, dead: flags.dead })
}

/// Returns the traffic contracts of all stations.
fn traffic_contracts(flags: &Admit) -> Result<Vec<admit::TrafficContract>, Failure> {
    let mut all = Vec::new();
    for &Promise { station, priority, octets, period, deadline } in &flags.promise {
        let of: Vec<u8> = station.map_or_else(|| flags.stations.0.clone(), |station| vec![station]);
        let octets = u32::from(octets);
        all.extend(of.into_iter().map(|station| admit::TrafficContract {
            station,
            priority,
            octets,
            period,
            deadline,
        }));
    }
    match all.len() {
        ..=MAX_CONTRACTS => Ok(all),
        n => Err(Failure::input(format!("{n} promises are too many; at most {MAX_CONTRACTS} are supported"))),
    }
}

/// Maximum number of contracts.
const MAX_CONTRACTS: usize = 4096;

/// Describes a refusal, with the contract itself instead of its index.
fn reason(refusal: &Refusal, contracts: &[admit::TrafficContract]) -> String {
    let of = match *refusal {
        Refusal::UnknownStation { contract, .. }
        | Refusal::InvalidContract { contract }
        | Refusal::Limited { contract, .. }
        | Refusal::Overload { contract }
        | Refusal::Late { contract, .. } => contracts.get(contract).map(|c| (contract, c)),
        _ => None,
    };
    let Some((index, c)) = of else { return format!("refused: {refusal}") };
    let named =
        format!("station {}, priority {}, {} octets every {}", c.station, c.priority, c.octets, c.period);
    let reason = refusal.to_string();
    let reason = reason.strip_prefix(&format!("promise {index}: ")).unwrap_or(&reason);
    format!("refused: {named}: {reason}")
}

fn text(
    flags: &Admit,
    network: &Network,
    contracts: &[admit::TrafficContract],
    delays: &[Span],
    rotation: Option<Span>,
) -> String {
    let Network { line, options, stations, .. } = network;
    let mut text = format!("ring of {} stations, {}, {} per hop\n\n", stations.len(), line.rate, line.hop);
    let mut row = |label: &str, span: Span| text += &format!("{label:<34}  {:>12.3} us\n", span.as_us());
    rotation.into_iter().for_each(|rotation| row("maximum token rotation time", rotation));
    row("recovery from a lost token", options.lost());
    row("recovery from a failed station", options.repair());
    row("recovery from several failed", options.restart());
    if let Some(octets) = flags.background {
        text += &format!("{:<34}  {octets:>12} octets\n", "background messages per station");
    }
    if !delays.is_empty() {
        text += &format!(
            "\n{:>7} {:>8} {:>7} {:>14} {:>14} {:>14}\n",
            "station", "priority", "octets", "period us", "deadline us", "bound us"
        );
    }
    let all: Vec<_> = contracts.iter().zip(delays).collect();
    // Equal contracts of adjacent stations share a row.
    for group in all.chunk_by(|(a, x), (b, y)| x == y && like(a, b)) {
        let ((p, delay), last) = (group[0], group[group.len() - 1].0.station);
        let station = if p.station == last { last.to_string() } else { format!("{}-{last}", p.station) };
        text += &format!(
            "{station:>7} {:>8} {:>7} {:>14.3} {:>14.3} {:>14.3}\n",
            p.priority,
            p.octets,
            p.period.as_us(),
            p.deadline.as_us(),
            delay.as_us()
        );
    }
    text
}

/// Returns whether `b` is the same contract of the next station.
fn like(a: &admit::TrafficContract, b: &admit::TrafficContract) -> bool {
    b.station == a.station + 1 && admit::TrafficContract { station: b.station, ..*a } == *b
}
