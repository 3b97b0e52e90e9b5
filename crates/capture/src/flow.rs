//! Flows: who speaks with whom, counted each way from the one end that was seen sending first.

use std::collections::BTreeMap;
use std::fmt;

use crate::name::{Connection, Station};
use crate::packet::Packet;
use crate::table::Count;

/// What makes a flow of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Both stations, both ports or SAPs.
    #[default]
    Ports,
    /// Both stations, and the lower port of both.
    Service,
    /// Both stations.
    Stations,
}

/// A flow's name: the end that was seen sending first, then the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// Who, and over what.
    pub between: Connection,
    /// Whether end `a` sent first.
    pub a_first: bool,
}

/// What passed each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its name.
    pub name: Name,
    /// From the end that sent first.
    pub out: Count,
    /// To it.
    pub back: Count,
}

/// Flows in the order in which they were first seen, at most so many; all others together.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    by: By,
    limit: usize,
    index: BTreeMap<Connection, usize>,
    flows: Vec<Flow>,
    others: Count,
}

impl Flows {
    /// Creates an empty table of at most `limit` flows.
    pub fn new(by: By, limit: usize) -> Flows {
        Flows { by, limit, ..Flows::default() }
    }

    /// Counts a packet between two ends, which `a` has sent or has not.
    pub(crate) fn add(&mut self, between: Connection, a_sent: bool, count: Count) {
        let between = self.by.fold(between);
        let at = match self.index.get(&between) {
            Some(at) => *at,
            None if self.flows.len() >= self.limit => {
                self.others += count;
                return;
            }
            None => {
                let name = Name { between, a_first: a_sent };
                self.flows.push(Flow { name, out: Count::default(), back: Count::default() });
                self.index.insert(between, self.flows.len() - 1);
                self.flows.len() - 1
            }
        };
        let flow = &mut self.flows[at];
        *(if flow.name.a_first == a_sent { &mut flow.out } else { &mut flow.back }) += count;
    }

    /// Counts a packet that is of no flow.
    pub(crate) fn add_other(&mut self, count: Count) {
        self.others += count;
    }

    /// Returns the flows in order of their first packet.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Everything else.
    pub fn others(&self) -> Count {
        self.others
    }
}

impl By {
    /// Leaves out what does not matter.
    fn fold(self, between: Connection) -> Connection {
        let Connection { over, a, b } = between;
        let (pa, pb) = match self {
            By::Ports => (a.1, b.1),
            By::Stations => (0, 0),
            By::Service if a.1 <= b.1 => (a.1, 0),
            By::Service => (0, b.1),
        };
        // The ends keep the order of the packet's connection, which still identifies the sender.
        Connection { over, a: (a.0, pa), b: (b.0, pb) }
    }
}

/// `10.0.0.1:5001 > 10.0.0.2:80 tcp`; of ports that do not matter nothing.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Connection { over, a, b } = self.between;
        let (from, to) = if self.a_first { (a, b) } else { (b, a) };
        let end = |(station, port): (Station, u16)| {
            if port == 0 { station.to_string() } else { over.end(station, port) }
        };
        write!(f, "{} > {} {over}", end(from), end(to))
    }
}

/// Whether the first end of a packet's connection has sent it.
pub(crate) fn a_sent(packet: &Packet<'_>, between: &Connection, source: Option<Station>) -> bool {
    let ports = packet.llc.map(|llc| u16::from(llc.ssap)).or(packet.ports.map(|(from, _)| from));
    source.is_some_and(|source| between.a == (source, ports.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Over;

    fn between(a: (u8, u16), b: (u8, u16)) -> Connection {
        let end = |(n, port): (u8, u16)| (Station::Ip([10, 0, 0, n].into()), port);
        Connection { over: Over::Tcp, a: end(a), b: end(b) }
    }

    fn totals(flows: &Flows) -> Vec<(String, u64, u64)> {
        flows.flows().iter().map(|f| (f.name.to_string(), f.out.bytes, f.back.bytes)).collect()
    }

    #[test]
    fn flows_start_at_the_first_sender_and_are_bounded() {
        let mut flows = Flows::new(By::Ports, 2);
        flows.add(between((1, 80), (2, 5001)), false, Count::one(60));
        flows.add(between((1, 80), (2, 5001)), true, Count::one(1500));
        flows.add(between((1, 53), (2, 9)), true, Count::one(7));
        flows.add(between((1, 22), (2, 9)), true, Count::one(5));
        flows.add_other(Count::one(1));
        let want = [
            ("10.0.0.2:5001 > 10.0.0.1:80 tcp".to_owned(), 60, 1500),
            ("10.0.0.1:53 > 10.0.0.2:9 tcp".into(), 7, 0),
        ];
        assert_eq!(totals(&flows), want);
        assert_eq!(flows.others(), Count { packets: 2, bytes: 6 });
    }

    #[test]
    fn ports_that_do_not_matter_make_no_flows() {
        for (by, want) in
            [(By::Service, "10.0.0.2 > 10.0.0.1:80 tcp"), (By::Stations, "10.0.0.2 > 10.0.0.1 tcp")]
        {
            let mut flows = Flows::new(by, 9);
            for port in [5001, 5002, 5003] {
                flows.add(between((1, 80), (2, port)), false, Count::one(10));
                flows.add(between((1, 80), (2, port)), true, Count::one(1));
            }
            assert_eq!(totals(&flows), [(want.to_owned(), 30, 3)]);
        }
    }
}
