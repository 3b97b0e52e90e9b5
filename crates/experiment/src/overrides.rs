//! `--set OPTION=VALUE` and `--set NAME.OPTION=VALUE` on a plan.

use std::collections::BTreeMap;

use trunkline_traffic::{Pattern, Variable};

use crate::FileError;
use crate::diagnostic::{Diagnostics, Severity, nearest};
use crate::parse::{self, shorten};
use crate::plan::{Connection, Link, Network, Node, Plan, Protocol, SourceRange, Stop};
use crate::resolve::options::{Given, Visit, assign, names, optional, size};
use crate::resolve::quantity::{Dimension, variable};
use crate::resolve::{
    Context, bundles, changes, connection, dscp, network, pattern, protocol, stations, topology,
};
use crate::token;
use crate::tree::Value;

/// Why an override was refused. Everything written by a person is shortened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// No connection of any experiment has an option of this name.
    #[error("no connection has an option `{option}`{}", .help.as_ref().map_or(String::new(), |help| format!("; {help}")))]
    Unknown {
        /// As written.
        option: String,
        /// The nearest option there is, or whose option it is: a clause.
        help: Option<String>,
    },
    /// No connection of this plan has it.
    #[error("no connection of this experiment has the option `{option}`")]
    Unused {
        /// As written.
        option: String,
    },
    /// Nothing in this plan has the name before the dot.
    #[error("nothing in this experiment is called `{name}`{}", suggestion(.nearest.as_deref()))]
    Nobody {
        /// As written.
        name: String,
        /// The nearest name there is.
        nearest: Option<String>,
    },
    /// What has the name has no such option.
    #[error("{subject} has no option `{option}`{}", suggestion(*.nearest))]
    Lacks {
        /// What it is and its name: "switch `s`".
        subject: String,
        /// As written.
        option: String,
        /// The nearest option it has.
        nearest: Option<&'static str>,
    },
    /// Several have that name and that option.
    #[error(
        "a {} and a {} are called `{name}`, and both have `{option}`; give the {} another name",
        .kinds[0], .kinds[1], .kinds[0]
    )]
    Ambiguous {
        /// Their name.
        name: String,
        /// Their option.
        option: &'static str,
        /// What they are.
        kinds: [&'static str; 2],
    },
    /// The value does not fit; the sentence says what was expected.
    #[error("`{option}={value}`: {message}")]
    Value {
        /// As written.
        option: String,
        /// As written.
        value: String,
        /// What is wrong with it.
        message: String,
    },
    /// Each value fits, but not with the rest of the plan; the sentence says where and why.
    #[error("{0}")]
    Together(String),
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// The options every connection has.
const COMMON: &[&str] = &["duration", "bytes", "messages", "delay", "dscp", "xmtbuf", "rcvbuf"];
/// Longer keys name nothing: every dot is tried as the end of the name.
const LONGEST_KEY: usize = 1024;

/// Sets one option; see [`apply_overrides`].
///
/// # Errors
/// As [`apply_overrides`].
pub fn apply_override(plan: &mut Plan, key: &str, value: &str) -> Result<(), OverrideError> {
    apply_overrides(plan, [(key, value)])
}

/// Sets options to values written as in the language, one after the other; then the plan is checked again as a whole,
/// so that what only fits together may be given in any order.
///
/// A key is `OPTION`, meant for every connection that has it, or `NAME.OPTION` of a connection, link or node. Names
/// may hold dots: the longest that there is counts.
///
/// # Errors
/// [`OverrideError`] says what is wrong with which name, option or value. The plan is then as it was.
pub fn apply_overrides<'c>(
    plan: &mut Plan,
    changes: impl IntoIterator<Item = (&'c str, &'c str)>,
) -> Result<(), OverrideError> {
    let mut changed = plan.clone();
    let mut given = BTreeMap::new();
    for (key, value) in changes {
        apply_one(&mut changed, &mut given, key, value)?;
    }
    check_connections(&changed)?;
    if let (Some(new), Some(old)) = (&mut changed.network, &plan.network)
        && new != old
    {
        check_network(new, old, &given, &changed.connections)?;
    }
    if let Some(network) = &changed.network {
        fits(|cx| bundles::check(cx, network, &changed.connections)).map_err(OverrideError::Together)?;
    }
    *plan = changed;
    Ok(())
}

/// What a name stands for: the place among its kind.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Connection(usize),
    Link(usize),
    Node(usize),
}

impl Subject {
    /// What it is, in the words of the language.
    fn kind(self, plan: &Plan) -> &'static str {
        match (self, &plan.network) {
            (Subject::Node(at), Some(network)) => network::keyword(&network.nodes[at].kind),
            (Subject::Link(_), _) => "link",
            _ => "connection",
        }
    }

    fn options(self, plan: &Plan) -> Vec<&'static str> {
        match (self, &plan.network) {
            (Subject::Node(at), Some(network)) => node_options(&network.nodes[at]),
            (Subject::Link(at), Some(network)) => link_options(&network.links[at]),
            (Subject::Connection(at), _) => {
                let Connection { protocol, test, .. } = &plan.connections[at];
                [COMMON, &protocol_options(protocol), &test_options(test)].concat()
            }
            (_, None) => Vec::new(),
        }
    }
}

/// Every name of the plan and what it stands for: connections, then links, then nodes.
fn subjects(plan: &Plan) -> BTreeMap<&str, Vec<Subject>> {
    let connections = plan.connections.iter().enumerate().map(|(i, c)| (&c.name, Subject::Connection(i)));
    let network = || plan.network.iter();
    let links = network().flat_map(|n| n.links.iter().enumerate()).map(|(i, l)| (&l.name, Subject::Link(i)));
    let nodes = network().flat_map(|n| n.nodes.iter().enumerate()).map(|(i, n)| (&n.name, Subject::Node(i)));
    let mut subjects: BTreeMap<&str, Vec<Subject>> = BTreeMap::new();
    for (name, subject) in connections.chain(links).chain(nodes) {
        subjects.entry(name).or_default().push(subject);
    }
    subjects
}

/// Of each link, by its place, the options that were overridden.
type Overridden = BTreeMap<usize, Given>;

fn apply_one(plan: &mut Plan, given: &mut Overridden, key: &str, value: &str) -> Result<(), OverrideError> {
    if let Some((subject, option)) = find(plan, key)? {
        return reading(key, value, |cx, value| match (subject, &mut plan.network) {
            (Subject::Connection(at), _) => {
                set(cx, &mut plan.connections[at], option, value);
            }
            (Subject::Node(at), Some(network)) => {
                network::present_node(&mut network.nodes[at].kind, &mut Visit::Set(cx, option, value));
            }
            (Subject::Link(at), Some(network)) => {
                network::present_link(&mut network.links[at], &mut Visit::Set(cx, option, value));
                given.entry(at).or_default().insert(option, SourceRange::default());
            }
            (_, None) => {}
        });
    }
    let known = known_options();
    if !known.contains(&key) {
        let nearest = nearest(key, known.iter().copied()).map(|name| format!("did you mean `{name}`?"));
        let help = nearest.or_else(|| owner(plan, key));
        return Err(OverrideError::Unknown { option: shorten(key), help });
    }
    let mut used = false;
    reading(key, value, |cx, value| {
        for connection in &mut plan.connections {
            used |= set(cx, connection, key, value);
        }
    })?;
    if used { Ok(()) } else { Err(OverrideError::Unused { option: key.into() }) }
}

/// What a key with a dot in it is about; none if it has no dot and so is about every connection.
fn find(plan: &Plan, key: &str) -> Result<Option<(Subject, &'static str)>, OverrideError> {
    let Some((before, _)) = key.rsplit_once('.') else { return Ok(None) };
    let subjects = subjects(plan);
    let dots = key.rmatch_indices('.').filter(|_| key.len() <= LONGEST_KEY);
    let found = dots
        .map(|(dot, _)| (&key[..dot], &key[dot + 1..]))
        .find_map(|(name, option)| subjects.get(name).map(|of| (name, option, of)));
    let Some((name, option, of)) = found else {
        let nearest = nearest(before, subjects.keys().copied()).map(str::to_owned);
        return Err(OverrideError::Nobody { name: shorten(before), nearest });
    };
    let has = |subject: &Subject| subject.options(plan).into_iter().find(|known| *known == option);
    let mut owners = of.iter().filter_map(|subject| has(subject).map(|option| (*subject, option)));
    match (owners.next(), owners.next()) {
        (Some((first, option)), Some((second, _))) => {
            let kinds = [first, second].map(|subject| subject.kind(plan));
            Err(OverrideError::Ambiguous { name: shorten(name), option, kinds })
        }
        (Some(found), None) => Ok(Some(found)),
        (None, _) => {
            let all = of.iter().flat_map(|subject| subject.options(plan));
            let nearest = nearest(option, all);
            let subject = format!("{} `{}`", of[0].kind(plan), shorten(name));
            Err(OverrideError::Lacks { subject, option: shorten(option), nearest })
        }
    }
}

/// Whose option it is, where a link or a node of this plan has it.
fn owner(plan: &Plan, option: &str) -> Option<String> {
    let network = plan.network.as_ref()?;
    let node = network.nodes.iter().find(|n| node_options(n).contains(&option)).map(|n| &n.name);
    let link = network.links.first().filter(|l| link_options(l).contains(&option)).map(|l| &l.name);
    node.or(link).map(|name| format!("say whose, such as `{}.{option}`", shorten(name)))
}

/// Reads a value and hands it on; what is wrong with it becomes the error.
fn reading(key: &str, value: &str, set: impl FnOnce(&mut Context<'_>, &Value)) -> Result<(), OverrideError> {
    let read_and_set = |cx: &mut Context<'_>| {
        let tokens = token::tokens(value, &mut cx.diagnostics);
        if let Some(read) = parse::value(value, &tokens, &mut cx.diagnostics) {
            set(cx, &read);
        }
    };
    let refuse = |message| OverrideError::Value { option: shorten(key), value: shorten(value), message };
    fits(read_and_set).map_err(refuse)
}

/// Makes a check without files; returns the first error that it reports, in one line.
fn fits(check: impl FnOnce(&mut Context<'_>)) -> Result<(), String> {
    let mut cx = Context {
        diagnostics: Diagnostics::default(),
        files: &|_| Err(FileError::CommandLine),
        recordings: &|_| Err(FileError::CommandLine.to_string()),
    };
    check(&mut cx);
    let error = cx.diagnostics.into_vec().into_iter().find(|d| d.severity == Severity::Error);
    error.map_or(Ok(()), |error| Err(error.line()))
}

// --- the whole plan again

fn check_connections(plan: &Plan) -> Result<(), OverrideError> {
    for c in &plan.connections {
        let test = pattern::conflict(&c.test, &c.protocol);
        let other =
            test.or_else(|| protocol::conflict(&c.protocol)).map(|(_, message, label)| (message, label));
        if let Some((message, label)) = other.or_else(|| dscp::conflict(c.dscp, &c.protocol)) {
            let name = shorten(&c.name);
            return Err(OverrideError::Together(format!("connection `{name}`: {message}; {label}")));
        }
    }
    fits(|cx| stations::check(cx, &plan.connections)).map_err(OverrideError::Together)
}

/// As if the text had said so: what follows from the overridden options follows again, and every check is made.
fn check_network(
    new: &mut Network,
    old: &Network,
    given: &Overridden,
    connections: &[Connection],
) -> Result<(), OverrideError> {
    let nodes: BTreeMap<_, _> = new.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
    for (at, link) in new.links.iter_mut().enumerate() {
        let nothing = Given::new();
        let follows = network::payload_follows(&old.links[at]);
        fits(|cx| network::settle(cx, &nodes, link, given.get(&at).unwrap_or(&nothing), follows)).map_err(
            |message| OverrideError::Together(format!("link `{}`: {message}", shorten(&link.name))),
        )?;
    }
    let check = |cx: &mut Context<'_>| {
        topology::check(cx, new);
        changes::check(cx, new);
        topology::check_connections(cx, new, connections);
    };
    fits(check).map_err(OverrideError::Together)
}

// --- connections

/// Every option that some protocol or test has.
fn known_options() -> Vec<&'static str> {
    let protocols = protocol::PROTOCOLS.iter().filter_map(|name| protocol::default(name));
    let tests = pattern::tests().filter_map(|name| pattern::default(name, None));
    let mut known = COMMON.to_vec();
    known.extend(protocols.flat_map(|p| protocol_options(&p)));
    known.extend(tests.flat_map(|t| test_options(&t)));
    known.sort_unstable();
    known.dedup();
    known
}

fn protocol_options(protocol: &Protocol) -> Vec<&'static str> {
    names(|v| protocol::present(&mut protocol.clone(), v))
}

fn test_options(test: &Pattern) -> Vec<&'static str> {
    names(|v| pattern::present(&mut test.clone(), v))
}

fn node_options(node: &Node) -> Vec<&'static str> {
    names(|v| network::present_node(&mut node.kind.clone(), v))
}

fn link_options(link: &Link) -> Vec<&'static str> {
    names(|v| network::present_link(&mut link.clone(), v))
}

/// Sets the option in one connection; false if it has none of this name.
fn set(cx: &mut Context<'_>, connection: &mut Connection, option: &str, value: &Value) -> bool {
    if COMMON.contains(&option) {
        set_common(cx, connection, option, value);
        return true;
    }
    let in_test = test_options(&connection.test).contains(&option);
    if in_test {
        pattern::present(&mut connection.test, &mut Visit::Set(cx, option, value));
        stairs_last(connection, option);
    }
    let timers = protocol::usual_timers(&connection.protocol);
    protocol::present(&mut connection.protocol, &mut Visit::Set(cx, option, value));
    if option == "congestion" && protocol::usual_timers(&connection.protocol) != timers {
        protocol::set_timers(&mut connection.protocol);
    }
    in_test || protocol_options(&connection.protocol).contains(&option)
}

/// Other steps take another time, unless a duration of their own was random.
fn stairs_last(connection: &mut Connection, option: &str) {
    if let Pattern::Stairs { rates_bps, hold_s: Variable::Constant(hold), .. } = &connection.test
        && matches!(option, "rates" | "hold")
        && matches!(connection.stop, Stop::DurationS(Variable::Constant(_)))
    {
        connection.stop = Stop::DurationS(Variable::Constant(hold * rates_bps.len() as f64));
    }
}

fn set_common(cx: &mut Context<'_>, connection: &mut Connection, option: &str, value: &Value) {
    match option {
        "dscp" => assign(&mut connection.dscp, optional(cx, value, "none", dscp::dscp)),
        "delay" => assign(&mut connection.delay_s, variable(cx, value, Dimension::Delay)),
        "xmtbuf" => assign(&mut connection.from.buffer, optional(cx, value, "auto", size)),
        "rcvbuf" => {
            if let Some(buffer) = optional(cx, value, "auto", size) {
                connection.to.iter_mut().for_each(|to| to.buffer = buffer);
            }
        }
        stop => assign(&mut connection.stop, connection::read_stop(cx, stop, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Setting, Statement};
    use crate::{Source, parse_with, plan_text};

    fn parse(text: &str) -> Plan {
        let source = Source { name: "test.ns", text, folder: None };
        let parsed = parse_with(&source, &|_| Ok("1\n2\n".into()));
        parsed.plan.unwrap_or_else(|| panic!("{}", crate::render(&source, &parsed.diagnostics, false)))
    }

    /// Returns every option of a printed plan as `NAME.OPTION` with its printed value.
    fn printed_options(plan: &Plan, text: &str) -> Vec<(String, String)> {
        let mut diagnostics = Diagnostics::default();
        let tokens = token::tokens(text, &mut diagnostics);
        let mut left = parse::script(text, &tokens, &mut diagnostics).statements;
        let mut found = Vec::new();
        let mut add = |name: &str, settings: &[Setting]| {
            for setting in settings {
                let (key, location) = (setting.key.as_ref().expect("a key"), setting.values[0].location);
                found.push((format!("{name}.{}", key.text), text[location.start..location.end].to_owned()));
            }
        };
        while let Some(statement) = left.pop() {
            match statement {
                Statement::Serial(body, _) | Statement::Parallel(body, _) => left.extend(body),
                Statement::Repeat { body, .. } => left.extend(body),
                Statement::Network(declarations, _) => {
                    let mut links = plan.network.iter().flat_map(|n| &n.links);
                    for declaration in declarations {
                        let link =
                            (declaration.keyword.text == "link").then(|| links.next().expect("a link"));
                        let name = link.map_or(&declaration.names[0].text, |link| &link.name);
                        add(name, &declaration.arguments);
                    }
                }
                Statement::Connection { name: Some(name), settings, .. } => {
                    for setting in settings {
                        let key = setting.key.as_ref().map_or("", |key| &key.text);
                        match (key, &setting.values[0].parts[0].arguments) {
                            ("protocol" | "test" | "xmt", Some(arguments)) => add(&name.text, arguments),
                            ("dscp" | "delay" | "duration" | "bytes" | "messages", _) => {
                                add(&name.text, &[setting])
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    #[test]
    fn an_option_set_to_what_it_is_changes_nothing() {
        let plan = parse(include_str!("../tests/good/everything.ns"));
        let printed = plan_text(&plan);
        let (hash, mut names) = (plan.hash(), std::collections::BTreeSet::new());
        for (key, value) in printed_options(&plan, &printed) {
            let model = ["keystroke", "line", "videoconference.rate"].iter().any(|n| key.ends_with(n));
            if value.contains("empirical") || model || value.starts_with("4000000") {
                continue; // no files on the command line; no parameters of application models
            }
            let mut changed = plan.clone();
            apply_override(&mut changed, &key, &value).unwrap_or_else(|e| panic!("{key} = {value}: {e}"));
            assert_eq!(changed.hash(), hash, "{key} = {value}");
            names.extend(key.rsplit_once('.').map(|(_, option)| option.to_owned()));
        }
        assert!(names.len() > 60, "only {}: {names:?}", names.len());
    }

    #[test]
    fn a_changed_network_prints_as_what_it_is() {
        let plan = parse(include_str!("../tests/good/everything.ns"));
        for (key, value, shown) in [
            ("a.cpu_packet", "250us", "cpu_packet = 250 us"),
            ("::2.rx_buffer", "120 cells", "rx_buffer = 120 cells"),
            ("w.program", "\"true\"", "program = \"true\""),
            ("w.program", "none", "program = none"),
            ("s.buffer", "257 cells", "buffer = 257 cells"),
            ("h.delay", "1us", "delay = 1 us"),
            ("r.token_loss", "1e-3", "token_loss = 0.001"),
            ("c2.timers", "classic", "format = wide, timers = classic"),
            ("c2.interrupt", "3us", "interrupt = 3 us"),
            ("b-s.delay", "7ms", "delay = 7 ms"),
            ("b-s.pacing", "2:9", "pacing = 2:9"),
            ("f-s.pacing", "1Mb/s", "pacing = 1 Mb/s"),
            ("f-s.pacing", "none", "pacing = none"),
            ("t-u.medium", "atm", "medium = atm"),
            ("f-s.rate", "155Mb/s", "rate = 155 Mb/s, payload = 149.76 Mb/s"),
            ("s-t.rate", "3Mb/s", "rate = 3 Mb/s, payload = 1.9 Mb/s"),
            ("h.rate", "5Mb/s", "rate = 5 Mb/s, payload = 5 Mb/s"),
            ("g-x-u.2.loss", "0.25", "loss = 0.25"),
            ("many words.ttl", "9", "ttl = 9"),
            ("a-b.2.delay", "3s", "delay = 3 s"),
            ("a-b.2.dscp", "EF", "dscp = EF"),
        ] {
            let mut changed = plan.clone();
            apply_override(&mut changed, key, value).unwrap_or_else(|e| panic!("{key}={value}: {e}"));
            assert_ne!(changed.hash(), plan.hash(), "{key}={value}");
            let printed = plan_text(&changed);
            assert!(printed.contains(shown), "{key}={value}: {shown} in\n{printed}");
            assert_eq!(parse(&printed).hash(), changed.hash(), "{key}={value}\n{printed}");
        }
    }

    const SMALL: &str = "experiment {
        network {
            host a, b, a.b; switch s (buffer = 2000 B); hub h; ring r;
            link a - s (rate = 155 Mb/s, medium = atm, mtu = 9180 B, cells = each);
            link b - s (rate = 10 Mb/s);
            link a.b - s (rate = 1 Mb/s); link h - s;
        }
        connection a-s { xmt = a; rcv = b; protocol = tcp; test = full; }
        connection x { xmt = a; rcv = b; protocol = guaranteed; test = full; }
        connection y { xmt = a; rcv = b; protocol = udp; test = random (minPeriod = 2 ms, maxPeriod = 4 ms); }
    }";

    fn set(changes: &[(&str, &str)]) -> Result<Plan, String> {
        let mut plan = parse(SMALL);
        let before = plan.clone();
        let done = apply_overrides(&mut plan, changes.iter().copied());
        assert!(done.is_ok() || plan == before, "a refused override changed the plan: {changes:?}");
        done.map(|()| plan).map_err(|error| error.to_string())
    }

    #[test]
    fn refusals_name_what_is_wrong() {
        for (key, value, wanted) in [
            ("a-x.delay", "1ms", "nothing in this experiment is called `a-x`; did you mean `a-s`?"),
            ("nowhere.delay", "1ms", "nothing in this experiment is called `nowhere`"),
            (".delay", "1ms", "nothing in this experiment is called ``"),
            ("s.bufer", "1kB", "switch `s` has no option `bufer`; did you mean `buffer`?"),
            ("s.", "1kB", "switch `s` has no option ``"),
            ("a.b.rate", "1Mb/s", "host `a.b` has no option `rate`"),
            ("x.nodelay", "on", "connection `x` has no option `nodelay`"),
            ("a-s.delay", "1ms", "a connection and a link are called `a-s`, and both have `delay`"),
            ("buffer", "1kB", "no connection has an option `buffer`; say whose, such as `s.buffer`"),
            ("loss", "0.1", "no connection has an option `loss`; say whose, such as `a-s.loss`"),
            ("b-s.delay", "5", "`b-s.delay=5`: this time needs its unit"),
            ("b-s.rate", "0", "this is zero"),
            ("b-s.loss", "2", "2 is no share"),
            ("b-s.rate", "1Mb/s, 2Mb/s", "expected the end of the value"),
            ("b.cpus", "0", "0 is out of range"),
            ("s.buffer", "1400 B", "link `b-s`: the buffer of `s` (1400 B) never holds a packet"),
            ("s.buffer", "0 cells", "this is zero"),
            ("b-s.mtu", "3000 B", "link `b-s`: the buffer of `s` (2000 B) never holds a packet"),
            ("b-s.payload", "11Mb/s", "link `b-s`: the payload exceeds the line rate"),
            ("b-s.cells", "each", "link `b-s`: only ATM has cells; expected `medium = atm`"),
            ("b-s.pacing", "3:8", "link `b-s`: only ATM has cell slots"),
            ("b-s.credits", "5", "link `b-s`: credits flow per virtual channel"),
            ("h-s.rate", "5Mb/s", "link `h-s`: `h` is shared at 10 Mb/s"),
            ("h-s.medium", "atm", "link `h-s`: the stations of `h` have their own framing"),
            ("x.window", "2", "connection `x`: an acknowledgement would come after the window is full"),
            ("y.messagesize", "70000", "connection `y`: a message of 70000 bytes"),
            (
                "x.messagesize",
                "1073741825",
                "a message of 1073741825 bytes is longer than guaranteed delivery",
            ),
            ("minPeriod", "5ms", "connection `y`: the longest period is shorter than the shortest"),
        ] {
            let error = set(&[(key, value)]).expect_err(key);
            let found = error.contains(wanted) || error.contains(&wanted.replace("their own", "its own"));
            assert!(found && !error.contains('\n'), "{key}={value}: {error}");
        }
        let long = ".".repeat(100_000);
        assert!(set(&[(&long, "1")]).expect_err("dots").len() < 300);
    }

    #[test]
    fn what_only_fits_together_may_come_in_any_order() {
        for pair in [
            [("s.buffer", "4kB"), ("b-s.mtu", "3000 B")],
            [("b-s.cells", "each"), ("b-s.medium", "atm")],
            [("minPeriod", "5ms"), ("maxPeriod", "8ms")],
            [("h.rate", "5Mb/s"), ("h-s.rate", "5Mb/s")],
        ] {
            let [first, second] = pair;
            let there = set(&[first, second]).unwrap_or_else(|e| panic!("{pair:?}: {e}"));
            assert_eq!(Ok(there.hash()), set(&[second, first]).map(|plan| plan.hash()), "{pair:?}");
        }
        // The later of two counts.
        let twice = set(&[("b-s.rate", "0.5 Mb/s"), ("b-s.rate", "2 Mb/s")]).expect("fits");
        assert_eq!(twice.hash(), set(&[("b-s.rate", "2 Mb/s")]).expect("fits").hash());
        assert_eq!(twice.network.expect("one").links[1].payload.as_bps(), 2_000_000);
    }

    #[test]
    fn one_name_is_one_thing() {
        let network = |key, value| set(&[(key, value)]).expect(key).network.expect("a network");
        // The longest name: the host `a.b`, not the host `a`.
        let changed = network("a.b.cpus", "3");
        let cpus = |name: &str| match &changed.nodes.iter().find(|n| n.name == name).expect("a node").kind {
            crate::plan::NodeKind::Host(costs) => costs.cpus,
            _ => 0,
        };
        assert_eq!((cpus("a.b"), cpus("a")), (3, 1));
        // Only the link has a loss, only the connection a window.
        assert_eq!(network("a-s.loss", "0.5").links[0].loss, 0.5);
        let window = set(&[("a-s.window", "64kB")]).expect("fits");
        assert!(format!("{:?}", window.connections[0].protocol).contains("64000"));
        // Off ATM the modes of its cells are gone.
        let off = set(&[("s.buffer", "64kB"), ("a-s.medium", "ppp")]).expect("fits");
        assert_eq!(parse(&plan_text(&off)).hash(), off.hash());
    }

    /// A controller of another kind brings its timers along, in both directions; one of the same kind leaves them.
    #[test]
    fn timers_follow_the_controller() {
        let timers = |options: &str, changes: &[(&str, &str)]| {
            let text = format!(
                "experiment {{ connection {{ xmt = a; rcv = b; protocol = tcp ({options}); test = full; }} }}"
            );
            let mut plan = parse(&text);
            apply_overrides(&mut plan, changes.iter().copied()).expect("they fit");
            match plan.connections[0].protocol {
                Protocol::Tcp { timers, .. } => timers,
                _ => panic!("not TCP"),
            }
        };
        use crate::plan::TcpTimers::{Bsd, Fine};
        for (options, changes, expected) in [
            ("", &[("congestion", "cubic")][..], Fine),
            ("congestion = cubic", &[("congestion", "reno")], Bsd),
            ("congestion = prague", &[("congestion", "auto")], Bsd),
            ("congestion = cubic, timers = bsd", &[("congestion", "dctcp")], Bsd),
            ("timers = fine", &[("congestion", "auto")], Fine),
            ("", &[("congestion", "cubic"), ("timers", "bsd")], Bsd),
            ("", &[("congestion", "cubic"), ("congestion", "reno")], Bsd),
        ] {
            assert_eq!(timers(options, changes), expected, "{options} {changes:?}");
        }
    }
}
