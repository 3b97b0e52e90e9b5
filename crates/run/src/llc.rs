//! LLC in experiments: stations, their service access points (SAPs), and the traffic contracts of connections.
//!
//! A host with connections over `llc` is one station. Stations are numbered from 1 in the order of the plan's hosts. The
//! source and destination SAP of a connection have the same number.
//!
//! In a token ring, messages of the priorities 4 to 7 are the synchronous class: a station may always send them when it has
//! the token. Lower priorities are the asynchronous class. A traffic contract states size, period and deadline of
//! synchronous messages, from which the maximum delay follows.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_experiment::message_sizes;
use trunkline_experiment::plan::{Connection, Plan, Protocol};
use trunkline_llc::admit::{self, TrafficContract};
use trunkline_llc::wire::{CRC, HEADER, MAX_INFORMATION};
use trunkline_llc::{Options, Outcome};
use trunkline_traffic::{Burst, Pattern, Variable};
use trunkline_units::Span;

use crate::Refusal;
use crate::reports::Metrics;

/// Maximum number of messages of a paced connection whose outcome is unknown. Tests at full speed, files and requests hand
/// over one message at a time, as the programs of AirNET (1990) did.
pub const MAX_PENDING: u16 = 64;

/// Lowest priority of the synchronous class. Lower priorities send only if the token rotates fast enough.
pub const MIN_SYNCHRONOUS_PRIORITY: u8 = 4;

/// Returns the maximum number of pending messages of a connection.
pub fn max_pending(test: &Pattern) -> u16 {
    match test {
        Pattern::Full { .. } | Pattern::File { .. } => 1,
        test if test.has_responses() => 1,
        _ => MAX_PENDING,
    }
}

/// Returns the hosts that are stations; the first has number 1.
pub fn stations(plan: &Plan) -> Vec<&str> {
    let over_llc = plan.connections.iter().filter(|c| matches!(c.protocol, Protocol::Llc { .. }));
    let ends: BTreeSet<&str> = over_llc.flat_map(Connection::ends).map(|end| end.host.as_str()).collect();
    plan.hosts.iter().map(String::as_str).filter(|host| ends.contains(host)).collect()
}

/// Whether the stations of a plan use a token.
pub fn has_token(plan: &Plan) -> bool {
    plan.connections.iter().any(|c| matches!(c.protocol, Protocol::Llc { token: true, .. }))
}

/// Returns the SAP of a connection, the priority of its messages, and the options of a SAP that `connections` connections
/// share.
pub fn options(protocol: &Protocol, connections: u16) -> Option<(u8, u8, Options)> {
    let &Protocol::Llc { r#type, sap, priority, tries, timeout, crc, limit, .. } = protocol else {
        return None;
    };
    let options = Options {
        acknowledged: r#type == 3,
        crc,
        tries: u16::try_from(tries).unwrap_or(u16::MAX),
        response_timeout: timeout,
        send_limit: limit.unwrap_or(Span::ZERO),
        queue: MAX_PENDING.saturating_mul(connections),
        ..Options::default()
    };
    Some((sap, priority, options))
}

/// Returns the options of a host's service access points, by number. The queue of a SAP has room for the pending messages
/// of all its connections.
pub fn saps(plan: &Plan, host: &str) -> BTreeMap<u8, Options> {
    let mut saps = BTreeMap::new();
    for c in &plan.connections {
        let Some((sap, _, options)) = options(&c.protocol, 0) else { continue };
        if c.from.host != host && !c.to.iter().any(|to| to.host == host) {
            continue;
        }
        let options = saps.entry(sap).or_insert(options);
        options.queue = options.queue.saturating_add(MAX_PENDING);
    }
    saps
}

/// Returns the maximum length of the information field of a connection, including the checksum, octets.
pub fn max_information(c: &Connection) -> u32 {
    let checksum = if matches!(c.protocol, Protocol::Llc { crc: true, .. }) { CRC as u32 } else { 0 };
    message_sizes(&c.test).into_iter().map(|(_, size)| max_size(size)).max().unwrap_or(0) + checksum
}

/// Returns the longest message of a connection for a maximum PDU length in octets.
pub fn max_message(protocol: &Protocol, pdu: u32) -> u32 {
    let checksum = if matches!(protocol, Protocol::Llc { crc: true, .. }) { CRC } else { 0 };
    pdu.saturating_sub((HEADER + checksum) as u32)
}

/// Returns the longest message of a connection, if its sizes are constant.
pub fn max_constant_message(c: &Connection) -> Option<u32> {
    let constant = |(_, size)| if let &Variable::Constant(size) = size { Some(size as u32) } else { None };
    message_sizes(&c.test).into_iter().filter_map(constant).max()
}

/// Returns the maximum of a size. Random sizes are limited to the length of a frame.
fn max_size(size: &Variable) -> u32 {
    match size {
        Variable::Constant(size) => *size as u32,
        _ => (MAX_INFORMATION - CRC) as u32,
    }
}

/// The stations of a plan with a token, and the traffic contracts of its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficContracts {
    /// Stations in the ring and their asynchronous traffic.
    pub stations: Vec<admit::Station>,
    /// The contracts, one for each message of a burst.
    pub contracts: Vec<TrafficContract>,
    /// For each contract the index of its connection.
    pub connections: Vec<usize>,
}

/// Returns the traffic contracts of the connections over `llc`. A connection of the synchronous class must be type 1 with
/// bursts of a constant size and period. Its deadline is its time limit, if it has one. All connections are assumed to run
/// at the same time.
///
/// # Errors
/// Returns the name of a connection of the synchronous class that has no contract: then no delay is bounded.
pub fn traffic_contracts(plan: &Plan) -> Result<TrafficContracts, &str> {
    let hosts = stations(plan);
    let number =
        |host: &str| hosts.iter().position(|other| *other == host).map_or(0, |index| index as u8 + 1);
    let station = |number| admit::Station { number, max_background_octets: None };
    let mut stations: Vec<admit::Station> = (1..=hosts.len() as u8).map(station).collect();
    let (mut contracts, mut connections) = (Vec::new(), Vec::new());
    for (index, c) in plan.connections.iter().enumerate() {
        let Protocol::Llc { r#type, priority, limit, .. } = c.protocol else { continue };
        let (octets, is_answered) = (max_information(c), r#type == 3 || c.test.has_responses());
        if priority < MIN_SYNCHRONOUS_PRIORITY {
            let answering_ends = c.to.iter().filter(|_| is_answered);
            for host in [&c.from].into_iter().chain(answering_ends).map(|end| number(&end.host)) {
                if let Some(station) = stations.iter_mut().find(|station| station.number == host) {
                    station.max_background_octets = station.max_background_octets.max(Some(octets));
                }
            }
            continue;
        }
        let count_and_period = match &c.test {
            Pattern::Cbr { burst, period_s } | Pattern::Burst { burst, period_s } => {
                constant_burst(burst, period_s)
            }
            _ => None,
        };
        let (count, period) = count_and_period.filter(|_| !is_answered).ok_or(c.name.as_str())?;
        let deadline = limit.unwrap_or(Span::MAX);
        let contract = TrafficContract { station: number(&c.from.host), priority, octets, period, deadline };
        contracts.extend(std::iter::repeat_n(contract, count));
        connections.extend(std::iter::repeat_n(index, count));
    }
    Ok(TrafficContracts { stations, contracts, connections })
}

/// Whether the delay of a connection is guaranteed: it is of the synchronous class and has a time limit.
pub fn has_guaranteed_limit(c: &Connection) -> bool {
    matches!(c.protocol, Protocol::Llc { token: true, priority, limit: Some(_), .. } if priority >= MIN_SYNCHRONOUS_PRIORITY)
}

/// Refuses a time limit if a connection of the synchronous class has no traffic contract.
pub fn refuse_limits(plan: &Plan) -> Option<Refusal> {
    let limited = plan.connections.iter().find(|c| has_guaranteed_limit(c))?;
    let name = traffic_contracts(plan).err()?;
    let text = format!(
        "{}: no limit can be promised with {name}: at priority {MIN_SYNCHRONOUS_PRIORITY} to 7 that needs `type = 1` and bursts of one size at one period",
        limited.name
    );
    Some(Refusal { location: limited.protocol_location, text })
}

/// Returns the messages per burst and the period, if both and the size are constant and a burst has at most 1,000 messages.
fn constant_burst(burst: &Burst, period_s: &Variable) -> Option<(usize, Span)> {
    match (&burst.size_bytes, &burst.count, period_s) {
        (Variable::Constant(_), Variable::Constant(count), Variable::Constant(period))
            if *count <= 1000.0 && *period > 0.0 =>
        {
            Some((*count as usize, Span::from_seconds(*period)))
        }
        _ => None,
    }
}

/// Counts of the outcomes of a connection's messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOutcomes {
    /// The message was sent, or acknowledged if the SAP is of type 3.
    pub done: u64,
    /// All attempts were unanswered.
    pub unanswered: u64,
    /// The peer refused the message.
    pub refused: u64,
    /// The time limit expired.
    pub expired: u64,
    /// The system or the interface refused the message.
    pub failed: u64,
    /// Total number of transmissions.
    pub tries: u64,
    /// Maximum number of transmissions of a message.
    pub tries_max: u64,
}

impl SendOutcomes {
    /// Records the outcome of a message.
    pub fn record(&mut self, outcome: Outcome, tries: u16) {
        match outcome {
            Outcome::Done => self.done += 1,
            Outcome::Unanswered => self.unanswered += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Late => self.expired += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Reset => {}
        }
        self.tries += u64::from(tries);
        self.tries_max = self.tries_max.max(tries.into());
    }

    /// Returns the counts by their names in the record.
    pub fn counters(&self) -> Metrics {
        let &SendOutcomes { done, unanswered, refused, expired, failed, tries, tries_max } = self;
        let counters = [
            ("llc_done", done),
            ("llc_unanswered", unanswered),
            ("llc_refused", refused),
            ("llc_late", expired),
            ("llc_failed", failed),
            ("llc_tries", tries),
            ("llc_tries_max", tries_max),
        ];
        counters.into_iter().map(|(name, count)| (name.to_owned(), count as f64)).collect()
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
        let saps_of_a = saps(&plan, "a");
        assert_eq!(saps_of_a.keys().copied().collect::<Vec<u8>>(), [4, 6]);
        assert_eq!((saps_of_a[&4].acknowledged, saps_of_a[&4].send_limit), (false, Span::from_ms(5)));
        assert_eq!((saps_of_a[&6].acknowledged, saps_of_a[&6].crc, saps_of_a[&6].tries), (true, true, 7));
        assert!(saps(&plan, "x").is_empty());
    }

    #[test]
    fn synchronous_connections_have_contracts_and_others_are_background() {
        let plan = plan(MIXED);
        let traffic = traffic_contracts(&plan).unwrap();
        let (period, deadline) = (Span::from_ms(10), Span::from_ms(5));
        let contract = TrafficContract { station: 2, priority: 6, octets: 100, period, deadline };
        assert_eq!((traffic.contracts, traffic.connections), (vec![contract; 2], vec![1, 1]));
        let background: Vec<_> = traffic.stations.iter().map(|s| s.max_background_octets).collect();
        assert_eq!(background, [Some(904), None, Some(904)]);
    }

    #[test]
    fn a_synchronous_connection_without_a_contract_is_named() {
        for test in ["full", "poisson (rate = 100 /s)", "cbr (messagesize = uniform(1, 9), period = 1 ms)"] {
            let plan = plan(&format!(
                "connection z {{ xmt = a; rcv = b; protocol = llc (priority = 4, token = on); test = {test}; }}"
            ));
            assert_eq!(traffic_contracts(&plan), Err("z"), "{test}");
        }
        let plan = plan(
            "connection z { xmt = a; rcv = b; protocol = llc (priority = 4, type = 3, token = on); test = cbr (period = 1 ms); }",
        );
        assert_eq!(traffic_contracts(&plan), Err("z"));
    }

    #[test]
    fn only_synchronous_connections_have_guaranteed_limits() {
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
