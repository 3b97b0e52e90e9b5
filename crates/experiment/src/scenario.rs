//! The five measurement configurations of the AAI report (1996, section 2.3.1) as experiments.
//!
//! A configuration determines which hosts send to which; protocol, test and duration are the same for every
//! connection. "Full duplex" and "two-way" are two connections, one in each direction, at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::parse::shorten;
use crate::plan::Plan;
use crate::resolve::network::numbered;
use crate::token::{quoted, written};
use crate::{FileError, Severity, Source, parse_with};

/// Maximum number of connections: a mesh of 100 hosts has 9,900.
const MAX_CONNECTIONS: usize = 10_000;

/// Which hosts send to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// Point-to-point full-duplex: every pair of hosts, one pair after the other.
    Pairs,
    /// Three-site pair full-duplex: the first and second, third and fourth, fifth and sixth host, at the same time.
    ThreePairs,
    /// Switch-by-switch two-way full-duplex: the first host and each other host of its switch, at the same time.
    Switch,
    /// Two-way full-duplex: the first host and every other host of the network, at the same time.
    OneToAll,
    /// All-site full-duplex mesh: every host and every other host, at the same time.
    Mesh,
}

impl Configuration {
    /// Returns the name, which is also the default name of the experiment.
    pub fn name(self) -> &'static str {
        match self {
            Configuration::Pairs => "pairs",
            Configuration::ThreePairs => "three-pairs",
            Configuration::Switch => "switch",
            Configuration::OneToAll => "one-to-all",
            Configuration::Mesh => "mesh",
        }
    }

    /// Returns the title in the report.
    fn title(self) -> &'static str {
        match self {
            Configuration::Pairs => "Point-to-point full-duplex",
            Configuration::ThreePairs => "Three-site pair full-duplex",
            Configuration::Switch => "Switch-by-switch two-way full-duplex",
            Configuration::OneToAll => "Two-way full-duplex",
            Configuration::Mesh => "All-site full-duplex mesh",
        }
    }

    /// Returns the pairs of hosts by index, in groups; the groups run one after the other.
    fn groups(self, hosts: usize) -> Vec<Vec<[usize; 2]>> {
        let every_pair = || (0..hosts).flat_map(move |a| (a + 1..hosts).map(move |b| [a, b]));
        match self {
            Configuration::Pairs => every_pair().map(|pair| vec![pair]).collect(),
            Configuration::ThreePairs => vec![vec![[0, 1], [2, 3], [4, 5]]],
            Configuration::Switch | Configuration::OneToAll => vec![(1..hosts).map(|b| [0, b]).collect()],
            Configuration::Mesh => vec![every_pair().collect()],
        }
    }

    /// Returns the number of connections; hosts send in both directions.
    fn connections(self, hosts: usize) -> usize {
        match self {
            Configuration::Pairs | Configuration::Mesh => hosts.saturating_mul(hosts.saturating_sub(1)),
            Configuration::ThreePairs => 6,
            Configuration::Switch | Configuration::OneToAll => hosts.saturating_sub(1).saturating_mul(2),
        }
    }
}

/// What every connection carries, as the language writes it.
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    /// The value of `protocol`.
    pub protocol: &'a str,
    /// The value of `test`.
    pub test: &'a str,
    /// The value of `duration`.
    pub duration: &'a str,
}

/// The default: TCP at full speed for ten seconds.
impl Default for Traffic<'_> {
    fn default() -> Self {
        Traffic { protocol: "tcp", test: "full (messagesize = 64 kB)", duration: "10 s" }
    }
}

/// Why there is no such experiment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The configuration needs another number of hosts.
    #[error("`{configuration}` needs {expected} hosts, not {found}")]
    NumberOfHosts {
        /// Its name.
        configuration: &'static str,
        /// The number that it needs.
        expected: &'static str,
        /// The number given.
        found: usize,
    },
    /// There are too many connections.
    #[error("{0} connections are too many; the maximum is {MAX_CONNECTIONS}")]
    TooManyConnections(usize),
    /// A host is given twice.
    #[error("the host `{0}` is given twice")]
    DuplicateHost(String),
    /// The language takes no host of this name.
    #[error("`{0}` cannot be the name of a host")]
    HostName(String),
    /// The language refuses the protocol, the test or the duration.
    #[error("{0}")]
    Traffic(String),
}

/// Returns the text of an experiment with a named connection in both directions between the hosts of each pair.
pub fn scenario_text(
    configuration: Configuration,
    hosts: &[String],
    traffic: &Traffic<'_>,
) -> Result<String, ScenarioError> {
    check_hosts(configuration, hosts)?;
    let probe = write(Configuration::Pairs, &["a".into(), "b".into()], traffic);
    // Text that closes the connection and opens another one is not a value.
    match plan(&probe).map_err(ScenarioError::Traffic)?.connections.len() {
        2 => Ok(write(configuration, hosts, traffic)),
        _ => Err(ScenarioError::Traffic("expected one protocol, one test and one duration".into())),
    }
}

fn check_hosts(configuration: Configuration, hosts: &[String]) -> Result<(), ScenarioError> {
    let (fits, expected) = match configuration {
        Configuration::ThreePairs => (hosts.len() == 6, "6"),
        _ => (hosts.len() >= 2, "at least 2"),
    };
    if !fits {
        let (configuration, found) = (configuration.name(), hosts.len());
        return Err(ScenarioError::NumberOfHosts { configuration, expected, found });
    }
    let connections = configuration.connections(hosts.len());
    if connections > MAX_CONNECTIONS {
        return Err(ScenarioError::TooManyConnections(connections));
    }
    let mut seen = BTreeSet::new();
    for host in hosts {
        if !seen.insert(host) {
            return Err(ScenarioError::DuplicateHost(shorten(host)));
        }
        let other = if host == "a" { "b" } else { "a" };
        let text = write(Configuration::Pairs, &[host.clone(), other.into()], &Traffic::default());
        let accepted = plan(&text).is_ok_and(|plan| plan.hosts == [host.as_str(), other]);
        if !accepted {
            return Err(ScenarioError::HostName(shorten(host)));
        }
    }
    Ok(())
}

/// Parses a text; the error is its first diagnostic in one line.
fn plan(text: &str) -> Result<Plan, String> {
    let parsed = parse_with(&Source { name: "scenario", text, folder: None }, &|_| Err(FileError::NoFolder));
    let error = parsed.diagnostics.iter().find(|d| d.severity == Severity::Error);
    parsed.plan.ok_or_else(|| error.map_or(String::new(), |error| error.line()))
}

fn write(configuration: Configuration, hosts: &[String], traffic: &Traffic<'_>) -> String {
    let groups = configuration.groups(hosts.len());
    let mut text = format!(
        "# {}: section 2.3.1 of the AAI report (1996).\nexperiment {} {{\n",
        configuration.title(),
        quoted(configuration.name())
    );
    let mut taken = BTreeMap::new();
    let serial = groups.len() > 1;
    if serial {
        text += "  serial {\n";
    }
    let indent = if serial { "    " } else { "  " };
    for group in groups {
        let _ = writeln!(text, "{indent}parallel {{");
        for [from, to] in group.into_iter().flat_map(|[a, b]| [[a, b], [b, a]]) {
            let (from, to) = (&hosts[from], &hosts[to]);
            // A name must not contain a slash.
            let name = numbered(&mut taken, &format!("{from}-{to}").replace('/', "_"));
            let _ = writeln!(
                text,
                "{indent}  connection {} {{\n\
                 {indent}    xmt = {}; rcv = {};\n\
                 {indent}    protocol = {};\n\
                 {indent}    test = {};\n\
                 {indent}    duration = {};\n\
                 {indent}  }}",
                written(&name),
                written(from),
                written(to),
                traffic.protocol,
                traffic.test,
                traffic.duration
            );
        }
        let _ = writeln!(text, "{indent}}}");
    }
    if serial {
        text += "  }\n";
    }
    text + "}\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Block, Stop};

    const ALL: [Configuration; 5] = [
        Configuration::Pairs,
        Configuration::ThreePairs,
        Configuration::Switch,
        Configuration::OneToAll,
        Configuration::Mesh,
    ];

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn text(configuration: Configuration, hosts: &[&str]) -> String {
        scenario_text(configuration, &names(hosts), &Traffic::default()).unwrap()
    }

    fn ends(plan: &Plan) -> Vec<(&str, &str)> {
        plan.connections.iter().map(|c| (c.from.host.as_str(), c.to[0].host.as_str())).collect()
    }

    #[test]
    fn every_configuration_has_its_connections() {
        let four = ["a", "b", "c", "d"];
        let both = |pairs: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
            pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
        };
        let pairs = both(&[("a", "b"), ("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]);
        for (configuration, hosts, expected) in [
            (Configuration::Pairs, &four[..], pairs.clone()),
            (Configuration::Mesh, &four, pairs),
            (Configuration::Switch, &four, both(&[("a", "b"), ("a", "c"), ("a", "d")])),
            (Configuration::OneToAll, &four, both(&[("a", "b"), ("a", "c"), ("a", "d")])),
            (
                Configuration::ThreePairs,
                &["a", "b", "c", "d", "e", "f"],
                both(&[("a", "b"), ("c", "d"), ("e", "f")]),
            ),
        ] {
            let plan = plan(&text(configuration, hosts)).unwrap();
            assert_eq!(ends(&plan), expected, "{configuration:?}");
            assert_eq!(plan.name, configuration.name());
            assert_eq!(plan.connections.len(), configuration.connections(hosts.len()));
            let in_parallel =
                Block::Parallel((0..plan.connections.len()).map(Block::Connection).collect::<Vec<_>>());
            assert_eq!(plan.schedule == in_parallel, configuration != Configuration::Pairs);
            if configuration == Configuration::Pairs {
                let pair =
                    |at: usize| Block::Parallel(vec![Block::Connection(at), Block::Connection(at + 1)]);
                assert_eq!(plan.schedule, Block::Serial((0..6).map(|at| pair(2 * at)).collect()));
            }
        }
        let pair = plan(&text(Configuration::Pairs, &["a", "b"])).unwrap();
        assert_eq!(pair.schedule, Block::Parallel(vec![Block::Connection(0), Block::Connection(1)]));
    }

    #[test]
    fn unusual_names_are_quoted_and_connections_have_different_names() {
        // Both a to b-c and a-b to c would be `a-b-c`.
        let hosts = ["a", "b-c", "a-b", "c", "x y", "fe80::1", "q\"\\", "s/t"];
        let plan = plan(&text(Configuration::Mesh, &hosts)).unwrap();
        assert_eq!(plan.hosts, hosts);
        let unique: BTreeSet<&String> = plan.connections.iter().map(|c| &c.name).collect();
        assert_eq!(unique.len(), 56);
    }

    #[test]
    fn the_traffic_is_that_of_every_connection() {
        let traffic =
            Traffic { protocol: "udp", test: "cbr (messagesize = 1 kB, period = 1 ms)", duration: "3s" };
        let text = scenario_text(Configuration::Mesh, &names(&["a", "b", "c"]), &traffic).unwrap();
        for connection in plan(&text).unwrap().connections {
            assert_eq!(connection.protocol.name(), "udp");
            assert_eq!(crate::test_name(&connection.test), "cbr");
            assert_eq!(connection.stop, Stop::DurationS(trunkline_traffic::Variable::Constant(3.0)));
        }
    }

    #[test]
    fn refusals_are_one_line() {
        let refusal = |configuration, hosts: &[&str], traffic: &Traffic<'_>| {
            scenario_text(configuration, &names(hosts), traffic).unwrap_err().to_string()
        };
        let default = Traffic::default();
        for (configuration, hosts, expected) in [
            (Configuration::Pairs, &["a"][..], "`pairs` needs at least 2 hosts, not 1"),
            (Configuration::ThreePairs, &["a", "b", "c"], "`three-pairs` needs 6 hosts, not 3"),
            (Configuration::Mesh, &["a", "b", "a"], "the host `a` is given twice"),
            (Configuration::Mesh, &["a", ""], "`` cannot be the name of a host"),
            (Configuration::Mesh, &["a", "x\ny"], "`x\ny` cannot be the name of a host"),
        ] {
            assert_eq!(refusal(configuration, hosts, &default), expected);
        }
        let many: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let error = scenario_text(Configuration::Mesh, &many, &default).unwrap_err();
        assert_eq!(error.to_string(), "39800 connections are too many; the maximum is 10000");
        let with = |protocol, test, duration| {
            refusal(Configuration::Mesh, &["a", "b"], &Traffic { protocol, test, duration })
        };
        assert!(with("tpc", "full", "1s").contains("did you mean `tcp`"), "{}", with("tpc", "full", "1s"));
        assert!(with("tcp", "fill", "1s").contains("full"), "{}", with("tcp", "fill", "1s"));
        assert!(!with("tcp", "full", "soon").is_empty());
        let second = "1 s; } connection { xmt = x; rcv = y; protocol = tcp; test = full";
        assert_eq!(with("tcp", "full", second), "expected one protocol, one test and one duration");
    }

    proptest! {
        /// Whatever the names of the hosts, the text parses, or one host is refused that the language cannot take.
        #[test]
        fn texts_parse_for_any_host_names(
            hosts in prop::collection::btree_set("[a-c.\\-_:/\"\\\\ 1-2é#{};%\\[\\]]{1,5}|10 ?s|fe80::[1-9]|\\PC{1,8}", 6)
                .prop_map(|hosts| hosts.into_iter().collect::<Vec<_>>())
                .prop_shuffle(),
            configuration in prop::sample::select(ALL.to_vec()),
        ) {
            let text = match scenario_text(configuration, &hosts, &Traffic::default()) {
                Ok(text) => text,
                Err(error) => {
                    prop_assert!(matches!(error, ScenarioError::HostName(_)), "{error}");
                    return Ok(());
                }
            };
            let plan = plan(&text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
            let expected: Vec<(&str, &str)> = configuration
                .groups(hosts.len())
                .concat()
                .into_iter()
                .flat_map(|[a, b]| [(a, b), (b, a)])
                .map(|(a, b)| (hosts[a].as_str(), hosts[b].as_str()))
                .collect();
            prop_assert_eq!(ends(&plan), expected);
            let unique: BTreeSet<&String> = plan.connections.iter().map(|c| &c.name).collect();
            prop_assert_eq!(unique.len(), plan.connections.len());
        }
    }
}
