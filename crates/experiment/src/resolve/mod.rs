//! Resolution, from the syntax tree to a [`Plan`]: finds names, fills defaults, converts units, and checks everything
//! that needs no run.
//!
//! | module | contents |
//! | --- | --- |
//! | [`options`] | options of all kinds, and readers of values by type |
//! | [`write`] | values as text |
//! | [`quantity`] | numbers with units, random variables |
//! | [`protocol`] | protocols and their options |
//! | [`pattern`] | tests and their options |
//! | [`replay`] | the test `replay`: recorded traffic |
//! | [`connection`] | connections of the 1996 dialect |
//! | [`admission`] | what a connection declares to links that admit connections |
//! | [`dscp`] | the DSCP of a connection |
//! | [`measure`] | what is measured of hosts |
//! | [`netspec3`] | the 1999 dialect |
//! | [`stations`] | connections over `llc` that share a station |
//! | [`bundles`] | connections over `bundle`, and the converters between their ends |
//! | [`network`] | nodes and links |
//! | [`queue`] | queue disciplines, shapers and policers of links |
//! | [`link_trace`] | traces that replace the rate of a link |
//! | [`changes`] | `at TIME set link …` |
//! | [`explicit_rate`] | who computes explicit rates on a link |
//! | [`topology`] | checks of the whole network: loops, rings, reachability |
//! | [`expect`] | expectations |

pub(crate) mod admission;
pub(crate) mod bundles;
pub(crate) mod changes;
pub(crate) mod connection;
pub(crate) mod dscp;
pub(crate) mod emulated;
pub(crate) mod expect;
pub(crate) mod explicit_rate;
pub(crate) mod link_trace;
pub(crate) mod measure;
pub(crate) mod netspec3;
pub(crate) mod network;
pub(crate) mod options;
pub(crate) mod pattern;
pub(crate) mod protocol;
pub(crate) mod quantity;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod stations;
pub(crate) mod topology;
pub(crate) mod write;

use std::collections::{BTreeMap, BTreeSet};

use trunkline_traffic::{Recording, RecordingRequest};
use trunkline_units::Span;

use crate::FileError;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::parse::shorten;
use crate::plan::{Block, Connection, Expectation, Measure, Network, NodeKind, Plan, SourceRange};
use crate::tree::{Declaration, Script, Statement, Value, Word};
use expect::Subjects;
use netspec3::Test;
use quantity::Dimension;

/// Reads the text of a file that the experiment names.
pub(crate) type Files<'a> = &'a dyn Fn(&str) -> Result<String, FileError>;

/// Reads the recorded traffic that the experiment names, or says in a clause why not.
pub(crate) type Recordings<'a> = &'a dyn Fn(&RecordingRequest) -> Result<Recording, String>;

/// The diagnostics and files that every reader needs.
pub(crate) struct Context<'a> {
    pub(crate) diagnostics: Diagnostics,
    pub(crate) files: Files<'a>,
    pub(crate) recordings: Recordings<'a>,
}

impl Context<'_> {
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Reports why a value cannot be read, and returns none in its place.
    pub(crate) fn refuse<T>(&mut self, diagnostic: Diagnostic) -> Option<T> {
        self.report(diagnostic);
        None
    }

    /// Calls [`Diagnostic::suggest`] with the names of the text, unless no further diagnostic is shown: there may be many.
    pub(crate) fn suggest<'n>(
        &self,
        error: Diagnostic,
        written: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Diagnostic {
        if self.diagnostics.flooded() { error } else { error.suggest(written, names) }
    }
}

/// Resolves a whole script. The plan is whole only if no error was reported.
pub(crate) fn plan(cx: &mut Context<'_>, script: &Script, stem: &str) -> Plan {
    let mut resolver = Resolver::default();
    resolver.read_tests(cx, &script.statements, &mut 0);
    resolver.partners = netspec3::pair(cx, &resolver.tests);
    let schedule = resolver.blocks(cx, &script.statements, Block::Parallel);
    let names = names(cx, &resolver.connections);
    let connections = std::mem::take(&mut resolver.connections).into_iter().zip(names);
    let connections: Vec<Connection> =
        connections.map(|((_, connection), name)| Connection { name, ..connection }).collect();
    stations::check(cx, &connections);
    let mut network = the_network(cx, &resolver.networks);
    changes::read(cx, &script.statements, network.as_mut());
    if let Some(network) = &network {
        topology::check_connections(cx, network, &connections);
        if cx.diagnostics.errors() == 0 {
            bundles::check(cx, network, &connections);
        }
    }
    let name = script.name.as_ref().map_or(stem, |name| &name.text).to_owned();
    let measures = measure::measures(cx, &script.statements);
    let hosts = hosts(network.as_ref(), &connections, &measures);
    let expectations = Vec::new();
    let mut plan = Plan { name, hosts, network, connections, schedule, measures, expectations };
    measure::check(cx, &plan);
    something_runs(cx, &plan);
    let subjects = expect::Subjects::of(&plan, &resolver.broken);
    plan.expectations = self::expectations(cx, &script.statements, &subjects);
    plan
}

#[derive(Default)]
struct Resolver<'s> {
    /// All `test` blocks in the order of the text; none where one could not be read.
    tests: Vec<Option<Test>>,
    /// The partner of each test.
    partners: Vec<Option<usize>>,
    /// Number of tests that the schedule contains so far.
    passed: usize,
    connections: Vec<(Option<&'s Word>, Connection)>,
    /// Names of connections that could not be read, so that expectations about them are not reported as well.
    broken: Vec<Option<&'s Word>>,
    networks: Vec<(&'s [Declaration], SourceRange)>,
}

impl<'s> Resolver<'s> {
    /// Reads the `test` blocks, numbering the blocks of the script they stand in.
    fn read_tests(&mut self, cx: &mut Context<'_>, statements: &[Statement], blocks: &mut usize) {
        let here = *blocks;
        for statement in statements {
            match statement {
                Statement::Test { host, settings, location } => {
                    let test = netspec3::test(cx, host.as_ref(), settings, *location, here);
                    self.tests.push(test);
                }
                Statement::Serial(body, _)
                | Statement::Parallel(body, _)
                | Statement::Repeat { body, .. } => {
                    *blocks += 1;
                    self.read_tests(cx, body, blocks);
                }
                _ => {}
            }
        }
    }

    /// Returns the schedule of several statements; a single one needs no block around it.
    fn blocks(
        &mut self,
        cx: &mut Context<'_>,
        statements: &'s [Statement],
        order: fn(Vec<Block>) -> Block,
    ) -> Block {
        let mut blocks: Vec<Block> = statements.iter().filter_map(|s| self.block(cx, s)).collect();
        match blocks.pop() {
            Some(only) if blocks.is_empty() => only,
            Some(last) => {
                blocks.push(last);
                order(blocks)
            }
            None => Block::default(),
        }
    }

    fn block(&mut self, cx: &mut Context<'_>, statement: &'s Statement) -> Option<Block> {
        let (body, location) = match statement {
            Statement::Serial(body, location) | Statement::Parallel(body, location) => (body, location),
            Statement::Repeat { body, location, .. } => (body, location),
            Statement::Connection { name, settings, location } => {
                let Some(connection) = connection::connection(cx, settings, *location) else {
                    self.broken.push(name.as_ref());
                    return None;
                };
                return Some(self.add(name.as_ref(), connection));
            }
            Statement::Test { .. } => return self.test(cx),
            Statement::Network(declarations, location) => {
                self.networks.push((declarations, *location));
                return None;
            }
            Statement::Expect { .. } | Statement::Measure(_) | Statement::Change { .. } => return None,
        };
        if body.is_empty() {
            if cx.diagnostics.errors() == 0 {
                let warning = Diagnostic::warning(*location, "nothing stands in this block");
                cx.report(warning.label("expected a connection in it"));
            }
            return None;
        }
        let order = if matches!(statement, Statement::Serial(..)) { Block::Serial } else { Block::Parallel };
        let inner = self.blocks(cx, body, order);
        match statement {
            Statement::Repeat { count, every, .. } => repeat(cx, count, every.as_ref(), inner),
            _ if inner == Block::default() => None,
            _ => Some(inner),
        }
    }

    /// Returns the connection of the next test of the text, if that test sends.
    fn test(&mut self, cx: &mut Context<'_>) -> Option<Block> {
        let at = self.passed;
        self.passed += 1;
        let of = |at: usize| self.tests[at].as_ref();
        let Some((test, partner)) = of(at).zip(self.partners[at].and_then(of)) else {
            self.broken.push(None);
            return None;
        };
        let connection = netspec3::connection(cx, test, partner)?;
        Some(self.add(None, connection))
    }

    fn add(&mut self, name: Option<&'s Word>, connection: Connection) -> Block {
        self.connections.push((name, connection));
        Block::Connection(self.connections.len() - 1)
    }
}

fn repeat(cx: &mut Context<'_>, count: &Value, every: Option<&Value>, body: Block) -> Option<Block> {
    let count = options::integer(cx, count, 1..=1_000_000);
    let every = every.map_or(Some(0.0), |value| quantity::number(cx, value, Dimension::Duration));
    if body == Block::default() {
        return None;
    }
    Some(Block::Repeat { count: count?, every: Span::from_seconds(every?), body: Box::new(body) })
}

/// Returns the name of each connection: that of the text, otherwise `FROM-TO`, then `FROM-TO.2`.
fn names(cx: &mut Context<'_>, connections: &[(Option<&Word>, Connection)]) -> Vec<String> {
    let mut explicit: BTreeMap<&str, SourceRange> = BTreeMap::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for name in connections.iter().filter_map(|(name, _)| *name) {
        if name.text.is_empty() || name.text.contains('/') {
            let error = Diagnostic::error(name.location, "this is no name");
            cx.report(error.label("expected letters, digits, `.`, `_`, `-`"));
        }
        if let Some(first) = explicit.insert(&name.text, name.location) {
            let error = Diagnostic::error(
                name.location,
                format!("two connections are called `{}`", shorten(&name.text)),
            );
            cx.report(error.label("and again here").with(first, "it is first called so here"));
        }
        // Names of the text are taken before any is generated.
        taken.insert(name.text.clone(), 1);
    }
    let made_up = |connection: &Connection, taken: &mut BTreeMap<String, usize>| {
        let to = connection.to.first().map_or("", |to| &to.host);
        network::numbered(taken, &format!("{}-{to}", connection.from.host))
    };
    connections
        .iter()
        .map(|(name, connection)| {
            name.map_or_else(|| made_up(connection, &mut taken), |name| name.text.clone())
        })
        .collect()
}

/// Returns the network of the script; reports a second one.
fn the_network(cx: &mut Context<'_>, networks: &[(&[Declaration], SourceRange)]) -> Option<Network> {
    if let [(_, first), (_, second), ..] = networks {
        let error = Diagnostic::error(*second, "a second `network`").label("expected all of it in one block");
        cx.report(error.with(*first, "the first is here"));
    }
    networks.first().map(|(declarations, _)| network::network(cx, declarations))
}

/// Returns all hosts in order of first mention: those of the network, then the ends of the connections and the hosts
/// that control and report them, then those that are measured. Agents that control hosts are no hosts.
fn hosts(network: Option<&Network>, connections: &[Connection], measures: &[Measure]) -> Vec<String> {
    let declared = network.into_iter().flat_map(|n| &n.nodes);
    let declared = declared.filter(|n| matches!(n.kind, NodeKind::Host(_))).map(|n| &n.name);
    let used = connections.iter().flat_map(|c| {
        let ends = [&c.from.host].into_iter().chain(c.to.iter().map(|to| &to.host));
        let controls = [&c.xmtcntl, &c.rcvcntl, &c.rep].into_iter();
        ends.chain(controls.filter(|host| !host.starts_with("agent:")))
    });
    let measured = measures.iter().map(|measure| &measure.host);
    let mut seen = BTreeSet::new();
    let all = declared.chain(used).chain(measured);
    all.filter(|host| !host.is_empty() && seen.insert(*host)).cloned().collect()
}

/// Reports an experiment without connections and programs, unless an error was reported already. A network alone can be opened as
/// a lab.
fn something_runs(cx: &mut Context<'_>, plan: &Plan) {
    let program = |kind: &NodeKind| matches!(kind, NodeKind::Host(costs) if costs.program.is_some());
    let programs = plan.network.iter().flat_map(|n| &n.nodes).any(|n| program(&n.kind));
    if plan.connections.is_empty() && plan.measures.is_empty() && !programs && cx.diagnostics.errors() == 0 {
        let (nowhere, text) = (SourceRange::default(), "nothing happens in this experiment");
        let label = "expected at least one `connection { … }`";
        cx.report(match &plan.network {
            None => Diagnostic::error(nowhere, text).label(label),
            Some(_) => Diagnostic::warning(nowhere, text)
                .label(label)
                .help("`trunkline lab` opens a network without connections"),
        });
    }
}

/// Reads the expectations of all blocks, after all names are known.
fn expectations(cx: &mut Context<'_>, statements: &[Statement], subjects: &Subjects) -> Vec<Expectation> {
    let mut expectations = Vec::new();
    let mut left: Vec<&Statement> = statements.iter().rev().collect();
    while let Some(statement) = left.pop() {
        match statement {
            Statement::Serial(body, _) | Statement::Parallel(body, _) | Statement::Repeat { body, .. } => {
                left.extend(body.iter().rev());
            }
            Statement::Expect { path, relation, value, location } => {
                expectations.extend(expect::expectation(cx, subjects, path, relation, value, *location));
            }
            _ => {}
        }
    }
    expectations
}
