//! The explicit queue of a link, from the plan.

use trunkline_experiment::plan::{self, Amount, Link, LinkChange, Medium, Queue, TracePoints};
use trunkline_models::media::queue::{
    self as models, CoDelOptions, DisciplineOptions, DrrOptions, DualPi2Options, FqCoDelOptions,
    Opportunities, PieOptions, QueueOptions, RateSteps, RedOptions, TokenRate, TraceOptions,
};
use trunkline_units::{Instant, Size, Stream};

/// Returns the discipline at one end of a link. A host that does not forward drops nothing that it sends: its senders wait for
/// room, and one that does not wait would never end.
pub fn discipline_at(link: &Link, forwards: bool) -> &Queue {
    match &link.queue {
        Some(queue) if forwards || !queue.is_active() => queue,
        _ => &Queue::DropTail,
    }
}

/// Returns the options of the queue at one end of a link; `None` if the line can compute departures when frames arrive.
pub fn options(link: &Link, forwards: bool, changes: &[LinkChange], stream: Stream) -> Option<QueueOptions> {
    let changes = changes_of(link, changes);
    let is_plain = link.queue.is_none() && link.shape.is_none() && link.police.is_none();
    if is_plain && link.trace.is_none() && changes.is_empty() {
        return None;
    }
    Some(QueueOptions {
        discipline: discipline(discipline_at(link, forwards)),
        shaper: link.shape.map(token_rate),
        policer: link.police.filter(|_| forwards).map(token_rate),
        trace: link.trace.as_ref().and_then(|trace| trace_options(&trace.points)),
        changes,
        stream,
    })
}

fn discipline(queue: &Queue) -> DisciplineOptions {
    match *queue {
        Queue::DropTail => DisciplineOptions::DropTail,
        Queue::Red { min, max, probability, weight, gentle, packet, ecn } => {
            DisciplineOptions::Red(RedOptions {
                min: count(min),
                max: count(max),
                counts_bytes: matches!(min, Amount::Bytes(_)),
                max_probability: probability,
                weight,
                is_gentle: gentle,
                mean_packet: bytes(packet),
                ecn,
            })
        }
        Queue::CoDel(codel) => DisciplineOptions::CoDel(codel_options(codel)),
        Queue::FqCodel { codel, flows, quantum } => DisciplineOptions::FqCoDel(FqCoDelOptions {
            codel: codel_options(codel),
            flows,
            quantum: bytes(quantum),
        }),
        Queue::Pie { target, update, alpha, beta, burst, ecn, max_ecn } => {
            DisciplineOptions::Pie(PieOptions { target, update, alpha, beta, burst, ecn, max_ecn })
        }
        Queue::DualPi2 { target, update, alpha, beta, coupling, threshold, range, classic } => {
            DisciplineOptions::DualPi2(DualPi2Options {
                target,
                update,
                alpha,
                beta,
                coupling,
                threshold,
                range,
                classic_share: classic,
            })
        }
        Queue::Priority => DisciplineOptions::Priority,
        Queue::Drr { quantum, ref weights } => {
            DisciplineOptions::Drr(DrrOptions { quantum: bytes(quantum), weights: weights.clone() })
        }
    }
}

fn codel_options(codel: plan::CoDel) -> CoDelOptions {
    let plan::CoDel { target, interval, ecn, ce_threshold } = codel;
    CoDelOptions { target, interval, ecn, ce_threshold }
}

fn count(amount: Amount) -> u64 {
    match amount {
        Amount::Bytes(count) | Amount::Cells(count) | Amount::Packets(count) => count,
    }
}

fn bytes(size: Size) -> u32 {
    u32::try_from(size.as_bytes()).unwrap_or(u32::MAX)
}

fn token_rate(limits: plan::TokenRate) -> TokenRate {
    TokenRate { rate: limits.rate, burst: limits.burst.as_bytes() }
}

/// The language checks that the times ascend and that the link can send at all.
fn trace_options(points: &TracePoints) -> Option<TraceOptions> {
    match points {
        TracePoints::Opportunities(times) => {
            Opportunities::new(times.clone()).map(TraceOptions::Opportunities)
        }
        TracePoints::Rates(steps) => RateSteps::new(steps.clone()).map(TraceOptions::Rate),
    }
}

/// Returns the changes of a link in order of time.
pub fn changes_of(link: &Link, changes: &[LinkChange]) -> Vec<models::LinkChange> {
    let own = changes.iter().filter(|change| change.link == link.name);
    own.map(|own| change(link, own)).collect()
}

/// Returns whether the ports of an ATM link have explicit queues, so that its cells are computed one by one.
pub fn needs_cells(link: &Link, changes: &[LinkChange]) -> bool {
    let is_changed = changes.iter().any(|change| change.link == link.name);
    link.medium == Medium::Atm && (link.queues_packets() || link.trace.is_some() || is_changed)
}

fn change(link: &Link, change: &LinkChange) -> models::LinkChange {
    models::LinkChange {
        at: Instant::ZERO + change.at,
        rate: change.rate.map(|rate| link.medium.payload(rate)),
        delay: change.delay,
        is_up: change.up,
        loss: change.loss,
        corrupt: change.corrupt,
        duplicate: change.duplicate,
        reorder: change.reorder,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};

    use super::*;

    #[test]
    fn the_rate_of_a_trace_in_the_language_is_that_of_the_models() {
        // The language cannot use the models, so both have the length of an opportunity.
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiment/tests/good");
        let text = "experiment \"t\" { network { host a, b; link a - b (trace = \"uplink.trace\"); }
             connection { xmt = a; rcv = b; protocol = udp; test = full; } }";
        let parsed = parse(&Source { name: "t", text, folder: Some(&folder) });
        let network = parsed.plan.and_then(|plan| plan.network).expect("a valid experiment");
        let link = &network.links[0];
        match link.trace.as_ref().and_then(|trace| trace_options(&trace.points)) {
            Some(TraceOptions::Opportunities(trace)) => assert_eq!(trace.mean_rate(), link.rate),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_of_the_language_are_those_of_the_models() {
        for (name, wanted) in [
            ("droptail", DisciplineOptions::DropTail),
            ("red", DisciplineOptions::Red(RedOptions::default())),
            ("codel", DisciplineOptions::CoDel(CoDelOptions::default())),
            ("fq-codel", DisciplineOptions::FqCoDel(FqCoDelOptions::default())),
            ("pie", DisciplineOptions::Pie(PieOptions::default())),
            ("dualpi2", DisciplineOptions::DualPi2(DualPi2Options::default())),
            ("priority", DisciplineOptions::Priority),
            ("drr", DisciplineOptions::Drr(DrrOptions::default())),
        ] {
            let text = format!(
                "experiment \"t\" {{ network {{ host a, b; link a - b (rate = 1 Mb/s, queue = {name}); }}
                 connection {{ xmt = a; rcv = b; protocol = udp; test = full; }} }}"
            );
            let parsed = parse(&Source { name: "t", text: &text, folder: None });
            let network = parsed.plan.and_then(|plan| plan.network);
            let network = network.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics));
            assert_eq!(discipline(discipline_at(&network.links[0], true)), wanted, "{name}");
        }
    }
}
