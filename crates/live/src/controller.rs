//! Executes the schedule of a plan: for each repetition of a connection it prepares the ends, starts them at one instant
//! and collects their reports, even if some fail.

//!
//! | module | contents |
//! | --- | --- |
//! | `agent` | an agent: its messages, its loss, its end |
//! | `repetition` | one repetition of one connection |
//! | `start` | the common start of connections that run in parallel |

mod agent;
mod repetition;
mod start;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitStatus;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_experiment::Plan;
use trunkline_experiment::plan::{self, Block, Protocol};
use trunkline_io::{Clock, Pacer};
use trunkline_record::schema::Measured;
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::{RunOptions, StopFlag, llc};
use trunkline_traffic::VariableError;
use trunkline_units::{Instant, Span};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::agent::{Agent, EventRoutes, Setup};
use self::repetition::Repetition;
use self::start::Start;
use crate::bundles::{self, NodeRole, SubscriptionTotals};
use crate::launch::{Admission, AgentClock, ExitDescription, Launch, STATION_INTERFACE};
use crate::locked;
use crate::observation::Observation;
use crate::station::StationConfig;
use crate::wire::{ControllerMessage, MAX_REMOTE_MESSAGE};

/// An agent that sends no message for this long is lost.
const AGENT_TIMEOUT: Duration = Duration::from_secs(4);
/// How long ends may take to report after a stop.
const STOP_TIMEOUT: Span = Span::from_s(3);
/// How long converters may take to have all subscriptions.
const SUBSCRIPTION_TIMEOUT: Span = Span::from_s(20);
/// Time from entering a block to its first message: time to open sockets, so that parallel connections start
/// together.
const START_DELAY: Span = Span::from_ms(20);
const START_DELAY_PER_CONNECTION: Span = Span::from_ms(1);

/// Error of a run or of one of its repetitions.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No agent serves the address that was assigned to a host.
    #[error("host {0} does not answer: {1} is not an address of this machine, and no agent serves it")]
    NotLocal(String, IpAddr),
    #[error("host {0}: its agent is not available: {1}")]
    Start(String, io::Error),
    /// The agent cannot exchange consent, which connections between hosts need.
    #[error("host {0}: {1}")]
    Consent(String, String),
    /// The agent reports an address of another host.
    #[error("host {0}: its agent reports the address {1} of another host")]
    ForeignAddress(String, SocketAddr),
    /// The offset of the agent's clock is not known, or no longer.
    #[error("host {0}: its clock is unknown: no time exchange with its agent succeeded")]
    Clock(String),
    /// The converters did not receive all subscriptions in time: addresses and groups that they have, and all.
    #[error(
        "after {SUBSCRIPTION_TIMEOUT} the converters have {} of {} subscribed addresses and {} of {} groups",
        .0[0], .1[0], .0[1], .1[1]
    )]
    Subscriptions([u64; 2], [u64; 2]),
    #[error("host {}: its agent {}", .0, ExitDescription(*.1))]
    Ended(String, ExitStatus),
    /// The agent of a host is lost, but its process has not ended.
    #[error("host {0} {1}")]
    Lost(String, LossCause),
    #[error("host {0}: {1}")]
    End(String, String),
    /// The agent of a host does not permit an end of a connection.
    #[error("{connection}: the agent of host {host} refuses it: {cause}")]
    Refused { connection: String, host: String, cause: String },
    /// The description of a connection is too long for an agent on another host: its length in bytes.
    #[error(
        "{connection}: its test has {:.1} MiB of recorded messages or values, and an agent on another host accepts {:.1} MiB",
        mib(*length), mib(MAX_REMOTE_MESSAGE)
    )]
    TooLong { connection: String, length: usize },
    /// An end of this host did not open or report in time.
    #[error("host {0} does not answer")]
    Silent(String),
    /// A random variable of the connection is invalid.
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error("the operating system has no random numbers")]
    Random,
    #[error("the connection has no receiver")]
    NoReceiver,
    /// An end was over before it was open.
    #[error("stopped before the start")]
    NotStarted,
    #[error("stopped on request")]
    Stopped,
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Cause of the loss of an agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LossCause {
    #[error("has disconnected")]
    Disconnected,
    #[error("does not answer: silent for {} s", AGENT_TIMEOUT.as_secs())]
    Silent,
    /// Its converter failed; without it the agent is of no use.
    #[error("cannot bundle: {0}")]
    Converter(String),
    /// The connection to an agent on another host ended for this reason.
    #[error("{0}")]
    Remote(String),
}

/// Runs the agents of an experiment.
pub struct Controller<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    clock: Clock,
    /// The wall clock when the run began, as time since 1970.
    unix_epoch: Duration,
    agents: Vec<Agent>,
    routes: Arc<EventRoutes>,
    next_id: AtomicU32,
    outcomes: Vec<Mutex<Vec<RepetitionOutcome>>>,
    /// Outcomes so far.
    observation: Observation,
    /// The controllers of explicit rates that connections obey, by name.
    rate_controllers: BTreeMap<String, SocketAddr>,
    admission: Option<Arc<dyn Admission>>,
}

impl<'a> Controller<'a> {
    /// Starts an agent for each host and each converter.
    pub fn new(
        plan: &'a Plan,
        options: &'a RunOptions,
        addresses: &BTreeMap<String, IpAddr>,
        launch: &dyn Launch,
        clock: Clock,
    ) -> Result<Self, RunError> {
        let routes: Arc<EventRoutes> = Arc::default();
        let bundles = bundles::nodes_from_plan(plan, clock, launch.has_namespaces().then_some(addresses));
        // Converters first: a host that sends before its converter is open has to retransmit.
        let converters = bundles.iter().filter(|(_, node)| node.is_converter()).map(|(name, _)| name);
        let hosts = plan.hosts.iter().filter(|host| !converters.clone().any(|name| name == *host));
        let launched = converters.clone().chain(hosts).map(|host| {
            let launched = launch.launch(host).map_err(|cause| RunError::Start(host.clone(), cause))?;
            Ok((host, launched))
        });
        let launched: Vec<_> = launched.collect::<Result<_, RunError>>()?;
        // A host on this machine is reached from other hosts at the address that reaches their agents.
        let outside = launched.iter().find_map(|(_, agent)| Some(agent.remote.as_ref()?.local_address()));
        let agents = launched.into_iter().enumerate().map(|(index, (host, launched))| {
            let (node, assigned) = (bundles.get(host), addresses.get(host).copied());
            let address = match &launched.remote {
                Some(remote) => Some(remote.address()),
                None => assigned.or(node.map(bundles::BundleNode::address)).or(outside),
            };
            let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let station = station(plan, host, clock, launch.has_namespaces());
            let has_consent = outside.is_some();
            let setup = Setup { index, host, address, clock, station, bundles: node.cloned(), has_consent };
            Agent::new(launched, setup, &routes).map_err(|cause| RunError::Start(host.clone(), cause))
        });
        let agents: Vec<Agent> = agents.collect::<Result<_, _>>()?;
        agents.iter().try_for_each(Agent::start_time_exchange)?;
        let outcomes = plan.connections.iter().map(|_| Mutex::default()).collect();
        let (next_id, observation) = (AtomicU32::new(1), Observation::default());
        let unix_epoch = clock.unix().saturating_sub(clock.now().since(Instant::ZERO).into());
        Ok(Controller {
            plan,
            options,
            clock,
            unix_epoch,
            agents,
            routes,
            next_id,
            outcomes,
            observation,
            rate_controllers: BTreeMap::new(),
            admission: None,
        })
    }

    /// Lets ends report for an observer, at this interval if it requests reports.
    pub fn observe(mut self, interval: Option<Span>) -> Self {
        self.observation = Observation::new(interval);
        self
    }

    /// Lets the senders of connections obey controllers of explicit rates, by the name of the connection.
    #[must_use]
    pub fn limit_rates(mut self, controllers: BTreeMap<String, SocketAddr>) -> Self {
        self.rate_controllers = controllers;
        self
    }

    /// Asks before a repetition of a connection starts.
    #[must_use]
    pub fn admit(mut self, admission: Option<Arc<dyn Admission>>) -> Self {
        self.admission = admission;
        self
    }

    /// Returns the outcomes so far, for the observer.
    pub fn observation(&self) -> &Observation {
        &self.observation
    }

    /// Waits until the converters have all subscriptions, or until a stop is requested.
    ///
    /// # Errors
    /// If they do not have them in time, or if one of the agents is lost.
    pub fn await_subscriptions(&self) -> Result<(), RunError> {
        let nodes = || self.agents.iter().filter_map(|a| Some((a, a.bundles.as_ref()?)));
        let total = SubscriptionTotals::from_plan(nodes().map(|(_, node)| node));
        // `None` while one of the converters has not reported.
        let known_subscriptions = |has_role: fn(&NodeRole) -> bool| -> Option<u64> {
            let converters = nodes().filter(|(_, node)| has_role(&node.role));
            converters.map(|(agent, _)| *locked(&agent.status.known_subscriptions)).sum()
        };
        let deadline = self.clock.now() + SUBSCRIPTION_TIMEOUT;
        while !self.stop_flag().is_requested() {
            for (agent, _) in nodes() {
                let failure = locked(&agent.failure).clone();
                failure.map_or(Ok(()), |cause| Err(agent.loss(&cause)))?;
            }
            let addresses = known_subscriptions(|role| matches!(role, NodeRole::Central { .. }));
            let groups = known_subscriptions(|role| matches!(role, NodeRole::Level1 { .. }));
            if (addresses, groups) == (Some(total.addresses), Some(total.groups)) {
                return Ok(());
            }
            if self.clock.now() > deadline {
                let known = [addresses, groups].map(|count| count.unwrap_or(0));
                return Err(RunError::Subscriptions(known, [total.addresses, total.groups]));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Lets the agents on other machines compare all connections with the limits of their owners, so that a refusal ends the
    /// run before one of its ends opens.
    ///
    /// # Errors
    /// The first refusal, or the loss of an agent.
    pub fn check_limits(&self) -> Result<(), RunError> {
        let has_limits = |c: &&plan::Connection| c.ends().any(|end| self.agent(&end.host).remote.is_some());
        let connections = self.plan.connections.iter().filter(has_limits);
        let mut checks: Vec<_> = connections.map(|c| Repetition::new(self, c, c.name.clone())).collect();
        checks.iter_mut().try_for_each(Repetition::request_checks)?;
        checks.iter_mut().try_for_each(Repetition::await_checks)
    }

    /// Executes the whole schedule, and measures hosts at least as long as the plan says.
    pub fn run(&self) {
        let start = self.clock.now();
        for measure in &self.plan.measures {
            self.agent(&measure.host).send(&ControllerMessage::Measure(measure.clone()));
        }
        let origin =
            self.clock.now() + START_DELAY + START_DELAY_PER_CONNECTION * self.plan.connections.len() as u64;
        self.execute_block(&self.plan.schedule, &Start::new(&self.plan.schedule, origin), 1);
        if let Some(duration) = self.plan.measures.iter().filter_map(|measure| measure.duration).max() {
            self.wait_until(start + duration);
        }
    }

    fn stop_flag(&self) -> &StopFlag {
        &self.options.stop
    }

    /// Executes a block. `repetition` numbers the repetitions of a `repeat` from 1.
    fn execute_block(&self, block: &Block, start: &Start, repetition: u32) {
        match block {
            _ if self.stop_flag().is_requested() => {}
            Block::Serial(blocks) => {
                for (i, block) in blocks.iter().enumerate() {
                    match i {
                        0 => self.execute_block(block, start, repetition),
                        _ => {
                            let start = Start::new(block, self.clock.now() + START_DELAY);
                            self.execute_block(block, &start, repetition);
                        }
                    }
                }
            }
            Block::Parallel(blocks) => std::thread::scope(|scope| {
                for block in blocks {
                    scope.spawn(move || self.execute_block(block, start, repetition));
                }
            }),
            Block::Repeat { count, every, body } => {
                let mut next = start.origin();
                for i in 0..*count {
                    // Repetitions of nested repeats are numbered consecutively.
                    let number = (repetition - 1) * count + i + 1;
                    match i {
                        0 => self.execute_block(body, start, number),
                        _ => {
                            let origin = next.max(self.clock.now() + START_DELAY);
                            self.execute_block(body, &Start::new(body, origin), number);
                        }
                    }
                    next += *every;
                    // A block that has lost a host cannot run again; do not wait for the next repetition.
                    if i + 1 < *count && (self.has_lost_host(body) || !self.wait_until(next - START_DELAY)) {
                        return;
                    }
                }
            }
            Block::Connection(index) => {
                let outcome = self.execute_connection(&self.plan.connections[*index], start, repetition);
                locked(&self.outcomes[*index]).push(outcome);
            }
        }
    }

    /// Returns whether an agent that this block needs is lost.
    fn has_lost_host(&self, block: &Block) -> bool {
        match block {
            Block::Serial(blocks) | Block::Parallel(blocks) => blocks.iter().any(|b| self.has_lost_host(b)),
            Block::Repeat { body, .. } => self.has_lost_host(body),
            Block::Connection(index) => {
                let c = &self.plan.connections[*index];
                let hosts = c.to.iter().chain([&c.from]).map(|s| self.agent(&s.host));
                let mut agents = hosts.chain(self.converters(c));
                agents.any(|agent| locked(&agent.failure).is_some())
            }
        }
    }

    /// Sleeps until `moment`; returns false if a stop was requested.
    fn wait_until(&self, moment: Instant) -> bool {
        Pacer::new(self.clock).wait(moment, self.stop_flag().flag());
        !self.stop_flag().is_requested()
    }

    /// Executes one repetition of one connection.
    fn execute_connection(
        &self,
        connection: &plan::Connection,
        start: &Start,
        repetition: u32,
    ) -> RepetitionOutcome {
        let name = match repetition {
            1 => connection.name.clone(),
            n => format!("{} / run {n}", connection.name),
        };
        let repetition = Repetition::new(self, connection, name);
        let admitted = self.admission.as_ref().map_or(Ok(()), |links| links.request(&connection.name));
        let mut outcome = match admitted {
            Ok(()) => repetition.run(start),
            Err(reason) => return repetition.refuse(start, reason),
        };
        if let Some(links) = &self.admission {
            links.release(&connection.name);
        }
        if outcome.error.is_none() && self.stop_flag().is_requested() {
            outcome.error = Some(RunError::Stopped.to_string());
        }
        outcome
    }

    /// Returns whether the ends of these hosts need consent: one of them is another machine.
    fn needs_consent(&self, c: &plan::Connection) -> bool {
        let is_remote = |end: &plan::ConnectionEnd| self.agent(&end.host).remote.is_some();
        !matches!(c.protocol, Protocol::Multicast { .. }) && c.ends().any(is_remote)
    }

    fn agent(&self, host: &str) -> &Agent {
        self.agents.iter().find(|a| a.host == host).expect("every host of the plan has an agent")
    }

    /// Returns when the run began by the clock of a host's agent; `None` if the host is this machine.
    fn agent_clock(&self, host: &str) -> Result<Option<AgentClock>, RunError> {
        let Some(remote) = &self.agent(host).remote else { return Ok(None) };
        let clock = remote.to_agent_clock(self.clock.epoch_ns());
        Ok(Some(clock.ok_or_else(|| RunError::Clock(host.into()))?))
    }

    /// Returns the agents of the converters that a connection needs.
    fn converters(&self, c: &plan::Connection) -> impl Iterator<Item = &Agent> {
        let needs_converters = uses_bundles(&c.protocol);
        self.agents.iter().filter(move |agent| needs_converters && agent.is_converter())
    }

    /// Returns the counters of converters and host interfaces, by host and name.
    pub fn counters(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.agents.iter().map(|a| (a.host.clone(), locked(&a.status.counters).clone())).collect()
    }

    /// Returns what was measured of each host.
    pub fn measured(&self) -> BTreeMap<String, Measured> {
        let of_agent = |a: &Agent| Some((a.host.clone(), locked(&a.status.measured).measured()?));
        self.agents.iter().filter_map(of_agent).collect()
    }

    /// Returns the measures that each host lacks.
    pub fn missing(&self) -> BTreeMap<String, Vec<String>> {
        self.agents.iter().map(|a| (a.host.clone(), locked(&a.status.missing).clone())).collect()
    }

    /// Returns the address of each host and converter.
    pub fn addresses(&self) -> BTreeMap<String, IpAddr> {
        self.agents.iter().map(|a| (a.host.clone(), a.address)).collect()
    }

    /// Returns the outcomes of each connection's repetitions.
    pub fn outcomes(&self) -> impl Iterator<Item = Vec<RepetitionOutcome>> + '_ {
        self.outcomes.iter().map(|o| std::mem::take(&mut *locked(o)))
    }

    /// Shuts down the agents and returns the processor time of each in seconds, by host.
    pub fn shut_down(&self) -> BTreeMap<String, f64> {
        for agent in &self.agents {
            agent.shut_down();
        }
        let deadline = self.clock.now() + STOP_TIMEOUT;
        let waiting = |a: &Agent| locked(&a.status.cpu_time).is_none() && locked(&a.failure).is_none();
        while self.agents.iter().any(waiting) && self.clock.now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.agents.iter().for_each(Agent::terminate);
        let cpu_seconds = |a: &Agent| locked(&a.status.cpu_time).map_or(0.0, |(user, system)| user + system);
        self.agents.iter().map(|a| (a.host.clone(), cpu_seconds(a))).collect()
    }
}

/// Returns the station of a host, if it has one, at the interface of its namespace or on the loopback. There the stations of a run have
/// their own groups, so that concurrent runs do not receive each other's frames.
fn station(plan: &Plan, host: &str, clock: Clock, has_namespace: bool) -> Option<StationConfig> {
    let stations = llc::stations(plan);
    let number = stations.iter().position(|other| *other == host)? as u8 + 1;
    let [x, y, p, q, ..] = xxh3_64_with_seed(plan.name.as_bytes(), clock.epoch_ns()).to_be_bytes();
    // Below the system's range of ephemeral ports.
    let port = 20_000 + u16::from_be_bytes([p, q]) % 12_000;
    let network = match has_namespace {
        true => format!("eth:{STATION_INTERFACE}"),
        false => format!("udp:239.{x}.{y}.0:{port}"),
    };
    Some(StationConfig { number, stations: stations.len() as u8, network, token: llc::has_token(plan) })
}

fn uses_bundles(protocol: &Protocol) -> bool {
    matches!(protocol, Protocol::Bundle { .. })
}
