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
    let promises = promises(flags)?;
    let bounds = admit::admit(&network, &promises);
    let rotation = admit::rotation(&network, &promises).ok();
    let refused = bounds.as_ref().err().map(|refusal| reason(refusal, &promises));
    print(&if flags.json {
        let delays = bounds.as_ref().map(|delays| {
            let one = |(p, delay): (&admit::Promise, &Span)| {
                json!({
                    "station": p.station, "priority": p.priority, "octets": p.octets, "period_us": p.period.as_us(),
                    "deadline_us": p.deadline.as_us(), "delay_us": delay.as_us(),
                })
            };
            promises.iter().zip(delays).map(one).collect::<Vec<_>>()
        });
        let whole = json!({
            "version": VERSION, "tool": "admit", "stations": network.stations.len(), "rate_bps": network.line.rate.as_bps(),
            "rotation_us": rotation.map(Span::as_us), "lost_us": network.options.lost().as_us(),
            "repair_us": network.options.repair().as_us(), "restart_us": network.options.restart().as_us(),
            "admitted": refused.is_none(), "refused": refused, "streams": delays.unwrap_or_default(),
        });
        format!("{whole:#}\n")
    } else {
        text(flags, &network, &promises, bounds.as_deref().unwrap_or_default(), rotation)
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
    let background = flags.background.map(u32::from);
    let stations = numbers.iter().map(|&number| Station { number, background }).collect();
    Ok(Network { line, options, stations, lost: flags.lost, dead: flags.dead })
}

/// Returns the promises of all stations.
fn promises(flags: &Admit) -> Result<Vec<admit::Promise>, Failure> {
    let mut all = Vec::new();
    for &Promise { station, priority, octets, period, deadline } in &flags.promise {
        let of: Vec<u8> = station.map_or_else(|| flags.stations.0.clone(), |station| vec![station]);
        let octets = u32::from(octets);
        all.extend(of.into_iter().map(|station| admit::Promise {
            station,
            priority,
            octets,
            period,
            deadline,
        }));
    }
    match all.len() {
        ..=MAX_PROMISES => Ok(all),
        n => Err(Failure::input(format!("{n} promises are too many; at most {MAX_PROMISES} are supported"))),
    }
}

/// Maximum number of promises.
const MAX_PROMISES: usize = 4096;

/// Describes a refusal, with the promise itself instead of its index.
fn reason(refusal: &Refusal, promises: &[admit::Promise]) -> String {
    let of = match *refusal {
        Refusal::UnknownStation { promise, .. }
        | Refusal::InvalidPromise { promise }
        | Refusal::Limited { promise, .. }
        | Refusal::Overload { promise }
        | Refusal::Late { promise, .. } => promises.get(promise).map(|p| (promise, p)),
        _ => None,
    };
    let Some((at, p)) = of else { return format!("refused: {refusal}") };
    let named =
        format!("station {}, priority {}, {} octets every {}", p.station, p.priority, p.octets, p.period);
    let reason = refusal.to_string();
    let reason = reason.strip_prefix(&format!("promise {at}: ")).unwrap_or(&reason);
    format!("refused: {named}: {reason}")
}

fn text(
    flags: &Admit,
    network: &Network,
    promises: &[admit::Promise],
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
    let all: Vec<_> = promises.iter().zip(delays).collect();
    // Equal promises of adjacent stations share a row.
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

/// Returns whether `b` is the same promise of the next station.
fn like(a: &admit::Promise, b: &admit::Promise) -> bool {
    b.station == a.station + 1 && admit::Promise { station: b.station, ..*a } == *b
}
