//! Executes the schedule of a plan: for each repetition of a connection it prepares the ends, starts them at one instant
//! and collects their reports, even if some fail.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_experiment::Plan;
use trunkline_experiment::plan::{self, Block, Protocol};
use trunkline_io::{Clock, Pacer};
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::{RunOptions, StopFlag, llc};
use trunkline_traffic::law::Law;
use trunkline_traffic::source::Limit;
use trunkline_traffic::{Pattern, Variable, VariableError};
use trunkline_units::{Instant, Span};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bundles::{self, NodeRole, SubscriptionTotals};
use crate::launch::{ExitDescription, Launch};
use crate::locked;
use crate::observation::Observation;
use crate::station::StationConfig;
use crate::wire::{self, AgentMessage, ControllerMessage, EndId, EndSpec, LineReader, Report, Role};

/// An agent that sends no message for this long is lost.
const AGENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long ends may take to open, in addition to the timeouts of their sockets.
const OPEN_TIMEOUT: Span = Span::from_s(8);
/// How long ends may take to report after a stop.
const STOP_TIMEOUT: Span = Span::from_s(3);
/// How long messages in flight may take to arrive when a repetition is aborted.
const DRAIN_TIMEOUT: Span = Span::from_ms(1000);
/// How long receivers may take to report after the sender has ended.
const FINISH_TIMEOUT: Span = Span::from_s(60);
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
    #[error("host {0}: its agent cannot be started: {1}")]
    Start(String, io::Error),
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
    /// An end of this host did not open or report in time.
    #[error("host {0} does not answer")]
    Silent(String),
    /// A random variable of the connection is invalid.
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error("the connection has no receiver")]
    NoReceiver,
    /// An end was over before it was open.
    #[error("stopped before the start")]
    NotStarted,
    #[error("stopped on request")]
    Stopped,
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
}

/// An event for a repetition of a connection.
enum AgentEvent {
    Message(AgentMessage),
    Lost(String, LossCause),
}

type EventRoutes = Mutex<BTreeMap<EndId, EventRoute>>;

/// Where to send the events of an end.
struct EventRoute {
    agent: usize,
    /// Whether the connection needs the converters.
    needs_converters: bool,
    sender: Sender<AgentEvent>,
}

/// What an agent has reported about itself.
#[derive(Default)]
struct AgentStatus {
    cpu_time: Mutex<Option<(f64, f64)>>,
    /// Number of subscriptions that its converter has, once it has reported.
    known_subscriptions: Mutex<Option<u64>>,
    counters: Mutex<BTreeMap<String, u64>>,
}

/// Runs the agents of an experiment.
pub struct Controller<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    clock: Clock,
    agents: Vec<Agent>,
    routes: Arc<EventRoutes>,
    next_id: AtomicU32,
    outcomes: Vec<Mutex<Vec<RepetitionOutcome>>>,
    /// Outcomes so far.
    observation: Observation,
}

/// The agent of one host.
struct Agent {
    host: String,
    address: IpAddr,
    output: Mutex<UnixStream>,
    child: Mutex<Option<Child>>,
    failure: Arc<Mutex<Option<LossCause>>>,
    status: Arc<AgentStatus>,
    bundles: Option<bundles::BundleNode>,
    is_shutting_down: Arc<AtomicBool>,
}

/// No agent outlives its controller.
impl Drop for Agent {
    fn drop(&mut self) {
        self.terminate();
    }
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
        let bundles = bundles::nodes_from_plan(plan, clock);
        // Converters first: a host that sends before its converter is open has to retransmit.
        let converters = bundles.iter().filter(|(_, node)| node.is_converter()).map(|(name, _)| name);
        let agents = converters
            .clone()
            .chain(plan.hosts.iter().filter(|host| !converters.clone().any(|name| name == *host)))
            .enumerate()
            .map(|(index, host)| {
                let node = bundles.get(host);
                let address = addresses.get(host).copied().or(node.map(bundles::BundleNode::address));
                let address = address.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
                let setup = (clock, station(plan, host, clock), node.cloned());
                Agent::new((index, host), address, launch, setup, &routes)
                    .map_err(|cause| RunError::Start(host.clone(), cause))
            })
            .collect::<Result<_, _>>()?;
        let outcomes = plan.connections.iter().map(|_| Mutex::default()).collect();
        let (next_id, observation) = (AtomicU32::new(1), Observation::default());
        Ok(Controller { plan, options, clock, agents, routes, next_id, outcomes, observation })
    }

    /// Lets ends report for an observer, at this interval if it requests reports.
    pub fn observe(mut self, interval: Option<Span>) -> Self {
        self.observation = Observation::new(interval);
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

    /// Executes the whole schedule.
    pub fn run(&self) {
        let origin =
            self.clock.now() + START_DELAY + START_DELAY_PER_CONNECTION * self.plan.connections.len() as u64;
        self.execute_block(&self.plan.schedule, origin, 1);
    }

    fn stop_flag(&self) -> &StopFlag {
        &self.options.stop
    }

    /// Executes a block whose first message may be sent at `origin`. `repetition` numbers the repetitions of a `repeat`
    /// from 1.
    fn execute_block(&self, block: &Block, origin: Instant, repetition: u32) {
        match block {
            _ if self.stop_flag().is_requested() => {}
            Block::Serial(blocks) => {
                let mut origin = origin;
                for block in blocks {
                    self.execute_block(block, origin, repetition);
                    origin = self.clock.now() + START_DELAY;
                }
            }
            Block::Parallel(blocks) => std::thread::scope(|scope| {
                for block in blocks {
                    scope.spawn(move || self.execute_block(block, origin, repetition));
                }
            }),
            Block::Repeat { count, every, body } => {
                let mut next = origin;
                for i in 0..*count {
                    let origin = next.max(self.clock.now() + START_DELAY);
                    // Repetitions of nested repeats are numbered consecutively.
                    self.execute_block(body, origin, (repetition - 1) * count + i + 1);
                    next += *every;
                    // A block that has lost a host cannot run again; do not wait for the next repetition.
                    if i + 1 < *count && (self.has_lost_host(body) || !self.wait_until(next - START_DELAY)) {
                        return;
                    }
                }
            }
            Block::Connection(index) => {
                let outcome = self.execute_connection(&self.plan.connections[*index], origin, repetition);
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
        origin: Instant,
        repetition: u32,
    ) -> RepetitionOutcome {
        let name = match repetition {
            1 => connection.name.clone(),
            n => format!("{} / run {n}", connection.name),
        };
        let mut repetition = Repetition::new(self, connection, name, origin);
        if let Err(error) = repetition.execute() {
            repetition.outcome.error.get_or_insert(error.to_string());
        }
        if repetition.outcome.error.is_none() && self.stop_flag().is_requested() {
            repetition.outcome.error = Some(RunError::Stopped.to_string());
        }
        repetition.outcome.start = repetition.start;
        let mut routes = locked(&self.routes);
        repetition.ends.keys().for_each(|id| drop(routes.remove(id)));
        drop(routes);
        repetition.outcome
    }

    fn agent(&self, host: &str) -> &Agent {
        self.agents.iter().find(|a| a.host == host).expect("every host of the plan has an agent")
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
            agent.is_shutting_down.store(true, Ordering::Relaxed);
            agent.send(&ControllerMessage::Shutdown);
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

impl Agent {
    fn new(
        (index, host): (usize, &str),
        address: IpAddr,
        launch: &dyn Launch,
        (clock, station, bundles): (Clock, Option<StationConfig>, Option<bundles::BundleNode>),
        routes: &Arc<EventRoutes>,
    ) -> io::Result<Agent> {
        let launched = launch.launch(host)?;
        let mut output = launched.stream.try_clone()?;
        let (epoch_ns, node) = (clock.epoch_ns(), bundles.clone().map(Box::new));
        wire::write(&mut output, &ControllerMessage::Hello { epoch_ns, station, bundles: node })?;
        launched.stream.set_read_timeout(Some(AGENT_TIMEOUT))?;
        output.set_write_timeout(Some(AGENT_TIMEOUT))?;
        let agent = Agent {
            host: host.into(),
            address,
            output: Mutex::new(output),
            child: Mutex::new(launched.child),
            failure: Arc::default(),
            status: Arc::default(),
            bundles,
            is_shutting_down: Arc::default(),
        };
        let (failure, status, is_shutting_down) =
            (agent.failure.clone(), agent.status.clone(), agent.is_shutting_down.clone());
        let is_converter = agent.is_converter();
        let (host, routes, stream) = (agent.host.clone(), routes.clone(), launched.stream);
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let cause = listen(stream, &routes, &status);
            *locked(&failure) = Some(cause.clone());
            if !is_shutting_down.load(Ordering::Relaxed) {
                for route in locked(&routes).values() {
                    if route.agent == index || is_converter && route.needs_converters {
                        let _ = route.sender.send(AgentEvent::Lost(host.clone(), cause.clone()));
                    }
                }
            }
        })?;
        Ok(agent)
    }

    fn is_converter(&self) -> bool {
        self.bundles.as_ref().is_some_and(bundles::BundleNode::is_converter)
    }

    /// Sends a message. If the agent is lost, its listener thread reports that.
    fn send(&self, message: &ControllerMessage) {
        let mut stream = locked(&self.output);
        let _ = wire::write(&mut *stream, message).and_then(|()| stream.flush());
    }

    /// Returns why the agent is lost, or how its process ended, if it has.
    fn loss(&self, cause: &LossCause) -> RunError {
        let mut child = locked(&self.child);
        // The stream closes shortly before the exit status of the process is available.
        for _ in 0..50 {
            match child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => return RunError::Ended(self.host.clone(), status),
                Some(Ok(None)) if *cause == LossCause::Disconnected => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => break,
            }
        }
        RunError::Lost(self.host.clone(), cause.clone())
    }

    /// Waits for the process of the agent to end; kills it if it has not reported its processor time.
    fn terminate(&self) {
        if let Some(mut child) = locked(&self.child).take() {
            if locked(&self.status.cpu_time).is_none() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

/// Dispatches the messages of an agent until it is lost; returns the cause.
fn listen(stream: UnixStream, routes: &EventRoutes, status: &AgentStatus) -> LossCause {
    let mut reader = LineReader::new(stream);
    loop {
        let message = match reader.read::<AgentMessage>() {
            Ok(Some(message)) => message,
            Ok(None) => return LossCause::Disconnected,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return LossCause::Silent;
            }
            Err(_) => return LossCause::Disconnected,
        };
        match message {
            AgentMessage::Alive => {}
            AgentMessage::CpuTime(user, system) => *locked(&status.cpu_time) = Some((user, system)),
            AgentMessage::KnownSubscriptions(known) => *locked(&status.known_subscriptions) = Some(known),
            AgentMessage::Counters(counts) => *locked(&status.counters) = counts,
            AgentMessage::ConverterFailed(cause) => return LossCause::Converter(cause),
            AgentMessage::Ready(id, _)
            | AgentMessage::Progress(id, _)
            | AgentMessage::Done(id, _)
            | AgentMessage::Failed(id, ..) => {
                let sender = locked(routes).get(&id).map(|route| route.sender.clone());
                if let Some(sender) = sender {
                    let _ = sender.send(AgentEvent::Message(message));
                }
            }
        }
    }
}

/// State of an end.
#[derive(Debug, PartialEq, Eq)]
enum EndState {
    Opening,
    Open(SocketAddr),
    Over,
}

/// An end from the point of view of its repetition.
struct TrackedEnd {
    host: String,
    /// Index among the receivers; `None` for the sender.
    receiver: Option<usize>,
    state: EndState,
}

/// Executes one repetition of one connection.
struct Repetition<'a, 'c> {
    controller: &'c Controller<'a>,
    connection: &'c plan::Connection,
    /// See [`EndSpec::repetition_name`].
    name: String,
    /// When the block begins.
    origin: Instant,
    /// When the first message is due: after the connection's delay.
    start: Instant,
    /// Events of the ends, and where the listener threads send them.
    events: Receiver<AgentEvent>,
    event_sender: Sender<AgentEvent>,
    ends: BTreeMap<EndId, TrackedEnd>,
    outcome: RepetitionOutcome,
}

impl<'a, 'c> Repetition<'a, 'c> {
    fn new(
        controller: &'c Controller<'a>,
        connection: &'c plan::Connection,
        name: String,
        origin: Instant,
    ) -> Self {
        let (event_sender, events) = mpsc::channel();
        let receivers = connection.to.iter().map(|s| (s.host.clone(), None)).collect();
        let outcome = RepetitionOutcome { receivers, ..RepetitionOutcome::default() };
        Repetition {
            controller,
            connection,
            name,
            origin,
            start: origin,
            events,
            event_sender,
            ends: BTreeMap::new(),
            outcome,
        }
    }

    /// Executes the repetition. Returns the first error; what was reported before is retained.
    fn execute(&mut self) -> Result<(), RunError> {
        let Err(error) = self.open().and_then(|sender| self.run_ends(sender)) else { return Ok(()) };
        // A lost agent explains the error of the other end.
        Err(self.stop_all().unwrap_or(error))
    }

    /// Opens the receivers, then the sender; returns the sender's id.
    fn open(&mut self) -> Result<EndId, RunError> {
        let draw = |variable: &Variable, quantity: &str| -> Result<f64, RunError> {
            let mut stream = self.controller.options.seed.stream(&format!("{} / {quantity}", self.name));
            Ok(Law::new(variable.clone(), 0.0)?.sample(&mut stream))
        };
        let delay = draw(&self.connection.delay_s, "delay")?;
        let limit = match &self.connection.stop {
            plan::Stop::DurationS(v) => {
                Limit { time: Some(Span::from_seconds(draw(v, "duration")?)), ..Limit::default() }
            }
            plan::Stop::Bytes(v) => {
                Limit { bytes: Some(draw(v, "bytes")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::Messages(v) => {
                Limit { messages: Some(draw(v, "messages")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::FileEnd => Limit::default(),
        };
        let connection = self.connection;
        let mut peer = None;
        let mut port = None;
        for (i, station) in connection.to.iter().enumerate() {
            let role = Role::Receiver { file: self.received_file(&station.host) };
            let id = self.prepare(station, port.or(station.port), role, Some(i))?;
            let address = self.await_open(id)?;
            port = Some(address.port()); // the receivers of a group share its port
            peer.get_or_insert(address);
        }
        let peer = peer.ok_or(RunError::NoReceiver)?;
        let file = match &connection.test {
            Pattern::File { path, .. } => Some(self.controller.options.folder.join(path)),
            _ => None,
        };
        let sender = self.prepare(&connection.from, None, Role::Sender { peer, limit, file }, None)?;
        self.await_open(sender)?;
        let earliest = self.controller.clock.now() + Span::from_ms(2);
        self.start = (self.origin + Span::from_seconds(delay)).max(earliest);
        Ok(sender)
    }

    /// Returns where a receiving host stores the file of the test.
    fn received_file(&self, host: &str) -> Option<std::path::PathBuf> {
        let Pattern::File { path, .. } = &self.connection.test else { return None };
        let file_name = std::path::Path::new(path).file_name()?.to_string_lossy().into_owned();
        let safe = |s: &str| s.replace(['/', '\0'], "_");
        let folder = self.controller.options.out.join("files").join(safe(&self.name)).join(safe(host));
        Some(folder.join(safe(&file_name)))
    }

    /// Requests an end from the agent of its host.
    fn prepare(
        &mut self,
        end: &plan::ConnectionEnd,
        port: Option<u16>,
        role: Role,
        receiver: Option<usize>,
    ) -> Result<EndId, RunError> {
        let controller = self.controller;
        let id = controller.next_id.fetch_add(1, Ordering::Relaxed);
        let index = controller.agents.iter().position(|a| a.host == end.host).expect("a host of the plan");
        let agent = &controller.agents[index];
        let needs_converters = uses_bundles(&self.connection.protocol);
        let route = EventRoute { agent: index, needs_converters, sender: self.event_sender.clone() };
        locked(&controller.routes).insert(id, route);
        // Check after the route is registered: a loss from then on is an event.
        for agent in controller.converters(self.connection).chain([agent]) {
            let failure = locked(&agent.failure).clone();
            if let Some(cause) = failure {
                return Err(agent.loss(&cause));
            }
        }
        self.ends.insert(id, TrackedEnd { host: end.host.clone(), receiver, state: EndState::Opening });
        agent.send(&ControllerMessage::Prepare(Box::new(EndSpec {
            id,
            repetition_name: self.name.clone(),
            token: xxh3_64_with_seed(self.name.as_bytes(), controller.clock.epoch_ns()) as u32,
            seed: controller.options.seed,
            address: address_for(&self.connection.protocol, agent.address),
            port,
            buffer: end.buffer,
            protocol: self.connection.protocol.clone(),
            dscp: self.connection.dscp,
            report_interval: controller.observation.interval(),
            pattern: self.connection.test.clone(),
            role,
        })));
        Ok(id)
    }

    fn await_open(&mut self, id: EndId) -> Result<SocketAddr, RunError> {
        let deadline = self.controller.clock.now() + OPEN_TIMEOUT;
        loop {
            match &self.ends[&id].state {
                EndState::Open(address) => return Ok(*address),
                EndState::Over => return Err(RunError::NotStarted),
                EndState::Opening => self.receive(deadline)?,
            }
        }
    }

    /// Starts all ends, waits for the sender, then for the receivers.
    fn run_ends(&mut self, sender: EndId) -> Result<(), RunError> {
        let receivers: Vec<EndId> = self.ends.keys().copied().filter(|id| *id != sender).collect();
        for id in receivers.iter().chain([&sender]) {
            self.send(*id, ControllerMessage::Start(*id, self.start));
        }
        while self.ends[&sender].state != EndState::Over {
            self.receive(Instant::MAX)?;
        }
        let sent = self.outcome.sender.as_ref().map_or(0, |s| s.messages);
        receivers.iter().for_each(|id| self.send(*id, ControllerMessage::Finish(*id, sent)));
        let deadline = self.controller.clock.now() + FINISH_TIMEOUT;
        while self.ends.values().any(|e| e.state != EndState::Over) {
            self.receive(deadline)?;
        }
        Ok(())
    }

    fn send(&self, id: EndId, message: ControllerMessage) {
        self.controller.agent(&self.ends[&id].host).send(&message);
    }

    /// Receives one event; returns an error if an end or its agent failed.
    fn receive(&mut self, deadline: Instant) -> Result<(), RunError> {
        match self.events.recv_timeout(Duration::from_millis(50)) {
            Ok(AgentEvent::Message(message)) => self.handle_message(message)?,
            Ok(AgentEvent::Lost(host, cause)) => return Err(self.mark_lost(&host, &cause)),
            Err(_) => {}
        }
        let waiting = self.ends.values().find(|e| e.state != EndState::Over);
        match waiting {
            Some(_) if self.controller.stop_flag().is_requested() => Err(RunError::Stopped),
            Some(end) if self.controller.clock.now() > deadline => Err(RunError::Silent(end.host.clone())),
            _ => Ok(()),
        }
    }

    /// Handles a message of an end; a failed end fails the repetition.
    fn handle_message(&mut self, message: AgentMessage) -> Result<(), RunError> {
        match message {
            AgentMessage::Ready(id, address) => self.set_state(id, EndState::Open(address)),
            // An agent may send a snapshot after the final report: the final report stays.
            AgentMessage::Progress(id, _) if self.ends.get(&id).is_none_or(|e| e.state == EndState::Over) => {
            }
            AgentMessage::Progress(id, report) => self.store_report(id, report),
            AgentMessage::Done(id, report) => {
                self.store_report(id, report);
                self.set_state(id, EndState::Over);
            }
            AgentMessage::Failed(id, cause, report) => {
                if let Some(report) = report {
                    self.store_report(id, report);
                }
                self.set_state(id, EndState::Over);
                let host = self.ends.get(&id).map_or("?", |e| e.host.as_str());
                return Err(RunError::End(host.into(), cause));
            }
            AgentMessage::Alive
            | AgentMessage::CpuTime(..)
            | AgentMessage::KnownSubscriptions(_)
            | AgentMessage::ConverterFailed(_)
            | AgentMessage::Counters(_) => {}
        }
        Ok(())
    }

    fn set_state(&mut self, id: EndId, state: EndState) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.state = state;
        }
    }

    fn store_report(&mut self, id: EndId, report: Report) {
        let receiver = self.ends.get(&id).and_then(|e| e.receiver);
        match (report, receiver) {
            (Report::Sender(s), None) => self.outcome.sender = Some(*s),
            (Report::Receiver(r), Some(i)) => self.outcome.receivers[i].1 = Some(*r),
            _ => {}
        }
        let controller = self.controller;
        if controller.observation.interval().is_some() {
            let is_this = |c: &plan::Connection| c.name == self.connection.name;
            let index =
                controller.plan.connections.iter().position(is_this).expect("a connection of the plan");
            controller
                .observation
                .publish(index, RepetitionOutcome { start: self.start, ..self.outcome.clone() });
        }
    }

    /// Stops the remaining ends, the sender first: its messages in flight still arrive and are not lost. Returns the
    /// cause if an agent is lost.
    fn stop_all(&mut self) -> Option<RunError> {
        let now = self.controller.clock.now();
        let is_sender = |end: &TrackedEnd| end.receiver.is_none();
        self.send_each(is_sender, ControllerMessage::Stop);
        let mut failure = self.await_ends(is_sender, now + STOP_TIMEOUT);
        if let Some(sent) = self.outcome.sender.as_ref().map(|s| s.messages) {
            self.send_each(|_| true, |id| ControllerMessage::Finish(id, sent));
            failure = failure.or(self.await_ends(|_| true, self.controller.clock.now() + DRAIN_TIMEOUT));
        }
        self.send_each(|_| true, ControllerMessage::Stop);
        failure.or(self.await_ends(|_| true, self.controller.clock.now() + STOP_TIMEOUT))
    }

    /// Sends a message to each selected end that is not over.
    fn send_each(
        &self,
        is_selected: impl Fn(&TrackedEnd) -> bool,
        message: impl Fn(EndId) -> ControllerMessage,
    ) {
        let ends = self.ends.iter().filter(|(_, e)| e.state != EndState::Over && is_selected(e));
        ends.for_each(|(id, _)| self.send(*id, message(*id)));
    }

    /// Receives events until the selected ends are over; returns the cause if an agent is lost.
    fn await_ends(
        &mut self,
        is_selected: impl Fn(&TrackedEnd) -> bool,
        deadline: Instant,
    ) -> Option<RunError> {
        let mut failure = None;
        while self.ends.values().any(|e| e.state != EndState::Over && is_selected(e))
            && self.controller.clock.now() < deadline
        {
            match self.events.recv_timeout(Duration::from_millis(50)) {
                Ok(AgentEvent::Message(message)) => drop(self.handle_message(message)),
                Ok(AgentEvent::Lost(host, cause)) => failure = Some(self.mark_lost(&host, &cause)),
                Err(_) => {}
            }
        }
        failure
    }

    /// Marks all ends of a host as over; returns why the agent is lost.
    fn mark_lost(&mut self, host: &str, cause: &LossCause) -> RunError {
        self.ends.values_mut().filter(|e| e.host == host).for_each(|e| e.state = EndState::Over);
        self.controller.agent(host).loss(cause)
    }
}

/// Returns the station of a host, if it has one. The stations of a run have their own groups on the loopback, so that
/// concurrent runs do not receive each other's frames.
fn station(plan: &Plan, host: &str, clock: Clock) -> Option<StationConfig> {
    let stations = llc::stations(plan);
    let number = stations.iter().position(|other| *other == host)? as u8 + 1;
    let [x, y, p, q, ..] = xxh3_64_with_seed(plan.name.as_bytes(), clock.epoch_ns()).to_be_bytes();
    // Below the system's range of ephemeral ports.
    let port = 20_000 + u16::from_be_bytes([p, q]) % 12_000;
    let network = format!("udp:239.{x}.{y}.0:{port}");
    Some(StationConfig { number, stations: stations.len() as u8, network, token: llc::has_token(plan) })
}

fn uses_bundles(protocol: &Protocol) -> bool {
    matches!(protocol, Protocol::Bundle { .. })
}

/// Returns the local address for a protocol. A group of the other address family needs an address of that family;
/// only the loopback has both for sure.
fn address_for(protocol: &Protocol, address: IpAddr) -> IpAddr {
    match protocol {
        Protocol::Multicast { group, .. } if group.is_ipv6() && address.is_loopback() => {
            IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)
        }
        _ => address,
    }
}
