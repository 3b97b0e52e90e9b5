//! LLC as experiments have it: which stations there are, their service access points, and what they promise.
//!
//! A host that is an end of a connection over `llc` is one station, whatever the number of its connections. Stations are
//! numbered from 1 in the order of the plan's hosts; a connection goes from a SAP to that with the same number.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_experiment::plan::{Connection, Plan, Protocol};
use trunkline_llc::admit::{self, Promise};
use trunkline_llc::wire::{CRC, HEADER, MAX_INFORMATION};
use trunkline_llc::{Options, Outcome};
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::Span;

use crate::Refusal;
use crate::ends::Figures;

/// Messages of a paced connection that may wait in its station, from the call until their end is told. At full speed, of
/// a file and of requests, the next is handed over when the last has come to its end, as the programs of 1990 did.
pub const WAITING: u16 = 64;

/// Priorities below send only if the token comes round quickly; these and those above always may.
pub const URGENT: u8 = 4;

/// How many messages of a connection may wait in its station.
pub fn waiting(test: &Pattern) -> u16 {
    match test {
        Pattern::Full { .. } | Pattern::File { .. } | Pattern::Request { .. } => 1,
        _ => WAITING,
    }
}

/// The hosts that are stations; the first is number 1.
pub fn stations(plan: &Plan) -> Vec<&str> {
    let over_llc = plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
    let ends: BTreeSet<&str> =
        over_llc.flat_map(|c| [&c.from].into_iter().chain(&c.to)).map(|end| end.host.as_str()).collect();
    plan.hosts.iter().map(String::as_str).filter(|host| ends.contains(host)).collect()
}

/// Whether the stations send only with the token.
pub fn has_token(plan: &Plan) -> bool {
    plan.connections.iter().any(|c| matches!(c.protocol, Protocol::Llc { token: true, .. }))
}

/// The SAP of a connection, the priority of its messages, and how the SAP behaves, with room for so many connections.
pub fn options(protocol: &Protocol, connections: u16) -> Option<(u8, u8, Options)> {
    let &Protocol::Llc { r#type, sap, priority, tries, timeout, crc, limit, .. } = protocol else {
        return None;
    };
    let options = Options {
        acknowledged: r#type == 3,
        crc,
        tries: u16::try_from(tries).unwrap_or(u16::MAX),
        patience: timeout,
        send_limit: limit.unwrap_or(Span::ZERO),
        queue: WAITING.saturating_mul(connections),
        ..Options::default()
    };
    Some((sap, priority, options))
}

/// The service access points of a host and how they behave, by number. What waits in one is the sum of what its
/// connections may have waiting, so that none of them finds no room because of another.
pub fn saps(plan: &Plan, host: &str) -> BTreeMap<u8, Options> {
    let mut saps = BTreeMap::new();
    for c in &plan.connections {
        let Some((sap, _, options)) = options(&c.protocol, 0) else { continue };
        if c.from.host != host && !c.to.iter().any(|to| to.host == host) {
            continue;
        }
        let options = saps.entry(sap).or_insert(options);
        options.queue = options.queue.saturating_add(WAITING);
    }
    saps
}

/// The most octets that a message of a connection takes in the information field, its checksum among them.
pub fn octets(c: &Connection) -> u32 {
    let check = if matches!(c.protocol, Protocol::Llc { crc: true, .. }) { CRC as u32 } else { 0 };
    sizes(&c.test).into_iter().map(largest).max().unwrap_or(0) + check
}

/// The longest message of a connection where a PDU has at most so many octets.
pub fn longest(protocol: &Protocol, pdu: u32) -> u32 {
    let check = if matches!(protocol, Protocol::Llc { crc: true, .. }) { CRC } else { 0 };
    pdu.saturating_sub((HEADER + check) as u32)
}

/// The longest message of a connection, if that is no random variable.
pub fn largest_message(c: &Connection) -> Option<u32> {
    let constant =
        |size: &Variable| if let Variable::Constant(size) = size { Some(*size as u32) } else { None };
    sizes(&c.test).into_iter().filter_map(constant).max()
}

/// The message sizes of a test.
fn sizes(test: &Pattern) -> Vec<&Variable> {
    match test {
        Pattern::Full { size_bytes }
        | Pattern::Poisson { size_bytes, .. }
        | Pattern::Stairs { size_bytes, .. }
        | Pattern::File { size_bytes, .. } => vec![size_bytes],
        Pattern::Cbr { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Burst { burst: Burst { size_bytes, .. }, .. }
        | Pattern::Random { burst: Burst { size_bytes, .. }, .. } => vec![size_bytes],
        Pattern::Request { request_bytes, response_bytes } => vec![request_bytes, response_bytes],
        Pattern::Application { .. } => Vec::new(),
    }
}

/// The largest that a size may be. Draws of a law are cut to what a frame holds.
fn largest(size: &Variable) -> u32 {
    match size {
        Variable::Constant(size) => *size as u32,
        _ => (MAX_INFORMATION - CRC) as u32,
    }
}

/// What the stations of a plan do with the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// Who is in the ring, and what they send besides.
    pub stations: Vec<admit::Station>,
    /// What is promised.
    pub promises: Vec<Promise>,
    /// Of each promise, the connection that makes it.
    pub connections: Vec<usize>,
}

/// What the connections over `llc` promise, if there is a token and all that always may send says how often: type 1,
/// bursts of one size at one period. A message is promised within the time limit of its connection, if it has one. All
/// connections are taken to run at the same time.
///
/// # Errors
/// The name of a connection that may always send and promises nothing: then no delay has a bound.
pub fn promises(plan: &Plan) -> Result<Promises, &str> {
    let hosts = stations(plan);
    let number = |host: &str| hosts.iter().position(|other| *other == host).map_or(0, |at| at as u8 + 1);
    let station = |at| admit::Station { number: at, background: None };
    let mut stations: Vec<admit::Station> = (1..=hosts.len() as u8).map(station).collect();
    let (mut promises, mut connections) = (Vec::new(), Vec::new());
    for (index, c) in plan.connections.iter().enumerate() {
        let Protocol::Llc { r#type, priority, limit, .. } = c.protocol else { continue };
        let (octets, answers) = (octets(c), r#type == 3 || matches!(c.test, Pattern::Request { .. }));
        if priority < URGENT {
            let answering = c.to.iter().filter(|_| answers);
            for host in [&c.from].into_iter().chain(answering).map(|end| number(&end.host)) {
                if let Some(station) = stations.iter_mut().find(|station| station.number == host) {
                    station.background = station.background.max(Some(octets));
                }
            }
            continue;
        }
        let regular = match &c.test {
            Pattern::Cbr { burst, period_s } | Pattern::Burst { burst, period_s } => regular(burst, period_s),
            _ => None,
        };
        let (count, period) = regular.filter(|_| !answers).ok_or(c.name.as_str())?;
        let deadline = limit.unwrap_or(Span::MAX);
        let promise = Promise { station: number(&c.from.host), priority, octets, period, deadline };
        promises.extend(std::iter::repeat_n(promise, count));
        connections.extend(std::iter::repeat_n(index, count));
    }
    Ok(Promises { stations, promises, connections })
}

/// Whether a connection is promised its delay: it always may send, and has a time limit.
pub fn is_limited(c: &Connection) -> bool {
    matches!(c.protocol, Protocol::Llc { token: true, priority, limit: Some(_), .. } if priority >= URGENT)
}

/// Why no time limit of a plan with a token can be promised, if it has one: a connection that always may send
/// promises nothing.
pub fn refuse_limits(plan: &Plan) -> Option<Refusal> {
    let limited = plan.connections.iter().find(|c| is_limited(c))?;
    let name = promises(plan).err()?;
    let text = format!(
        "{}: no limit can be promised with {name}: at priority {URGENT} to 7 that needs `type = 1` and bursts of one size at one period",
        limited.name
    );
    Some(Refusal { place: limited.asks.protocol, text })
}

/// Messages of a burst, and the time from burst to burst, if both are always the same. Of more than a thousand nobody can
/// promise anything.
fn regular(burst: &Burst, period_s: &Variable) -> Option<(usize, Span)> {
    match (&burst.size_bytes, &burst.count, period_s) {
        (Variable::Constant(_), Variable::Constant(count), Variable::Constant(period))
            if *count <= 1000.0 && *period > 0.0 =>
        {
            Some((*count as usize, Span::from_seconds(*period)))
        }
        _ => None,
    }
}

/// What became of the messages of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// They left, or were answered well.
    pub done: u64,
    /// Every try went unanswered.
    pub unanswered: u64,
    /// The peer could not take them.
    pub refused: u64,
    /// They took longer than they may.
    pub late: u64,
    /// The system or the interface did not take them.
    pub failed: u64,
    /// Times they were sent, all together.
    pub tries: u64,
    /// Times one was sent, at the most.
    pub tries_max: u64,
}

impl Ends {
    /// Counts one.
    pub fn count(&mut self, outcome: Outcome, tries: u16) {
        match outcome {
            Outcome::Done => self.done += 1,
            Outcome::Unanswered => self.unanswered += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Late => self.late += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Reset => {}
        }
        self.tries += u64::from(tries);
        self.tries_max = self.tries_max.max(tries.into());
    }

    /// By name.
    pub fn figures(&self) -> Figures {
        let &Ends { done, unanswered, refused, late, failed, tries, tries_max } = self;
        let all = [
            ("done", done),
            ("unanswered", unanswered),
            ("refused", refused),
            ("late", late),
            ("failed", failed),
            ("tries", tries),
            ("tries_max", tries_max),
        ];
        all.into_iter().map(|(name, count)| (format!("llc_{name}"), count as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};

    use super::*;

    fn plan(connections: &str) -> Plan {
        let text = format!("experiment {{ parallel {{ {connections} }} }}");
        let parsed = parse(&Source { name: "test", text: &text, folder: None });
        parsed.plan.unwrap_or_else(|| panic!("{text}\n{:?}", parsed.diagnostics))
    }

    const MIXED: &str = "
        connection u { xmt = x; rcv = a; protocol = udp; test = full; }
        connection p { xmt = c; rcv = a; protocol = llc (priority = 6, token = on, limit = 5 ms); test = cbr (messagesize = 100:2, period = 10 ms); }
        connection q { xmt = a; rcv = b; protocol = llc (priority = 2, type = 3, crc = on, sap = 6, token = on, tries = 7); test = full (messagesize = 900); }";

    #[test]
    fn hosts_are_numbered_in_the_order_of_the_plan() {
        let plan = plan(MIXED);
        assert_eq!(plan.hosts, ["x", "a", "c", "b"]);
        assert_eq!(stations(&plan), ["a", "c", "b"]);
        assert!(has_token(&plan));
        let of_a = saps(&plan, "a");
        assert_eq!(of_a.keys().copied().collect::<Vec<u8>>(), [4, 6]);
        assert_eq!((of_a[&4].acknowledged, of_a[&4].send_limit), (false, Span::from_ms(5)));
        assert_eq!((of_a[&6].acknowledged, of_a[&6].crc, of_a[&6].tries), (true, true, 7));
        assert!(saps(&plan, "x").is_empty());
    }

    #[test]
    fn promises_are_what_is_urgent_and_background_the_rest() {
        let plan = plan(MIXED);
        let promised = promises(&plan).unwrap();
        let (period, deadline) = (Span::from_ms(10), Span::from_ms(5));
        let promise = Promise { station: 2, priority: 6, octets: 100, period, deadline };
        assert_eq!((promised.promises, promised.connections), (vec![promise; 2], vec![1, 1]));
        let background: Vec<_> = promised.stations.iter().map(|s| s.background).collect();
        assert_eq!(background, [Some(904), None, Some(904)]);
    }

    #[test]
    fn who_promises_nothing_and_always_may_is_named() {
        for test in ["full", "poisson (rate = 100 /s)", "cbr (messagesize = uniform(1, 9), period = 1 ms)"] {
            let plan = plan(&format!(
                "connection z {{ xmt = a; rcv = b; protocol = llc (priority = 4, token = on); test = {test}; }}"
            ));
            assert_eq!(promises(&plan), Err("z"), "{test}");
        }
        let plan = plan(
            "connection z { xmt = a; rcv = b; protocol = llc (priority = 4, type = 3, token = on); test = cbr (period = 1 ms); }",
        );
        assert_eq!(promises(&plan), Err("z"));
    }

    #[test]
    fn a_limit_is_promised_to_what_always_may_send_only() {
        let full =
            "connection z { xmt = b; rcv = a; protocol = llc (priority = 6, token = on); test = full; }";
        let beside = |priority, limit| {
            plan(&format!(
                "parallel {{ connection x {{ xmt = a; rcv = b; protocol = llc (sap = 6, priority = {priority}, token = on, limit = {limit});
                   test = cbr (period = 1 s); }} {full} }}"
            ))
        };
        let refusal = refuse_limits(&beside(4, "1 s")).unwrap();
        assert!(refusal.text.starts_with("x: no limit can be promised with z: "), "{refusal:?}");
        assert_eq!(refuse_limits(&beside(3, "1 s")), None);
        assert_eq!(refuse_limits(&beside(4, "none")), None);
        assert_eq!(refuse_limits(&plan(MIXED)), None);
    }
}
