//! One repetition of one connection: prepares its ends, starts them, and collects their reports.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use trunkline_experiment::plan::{self, Protocol};
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_traffic::law::Law;
use trunkline_traffic::source::Limit;
use trunkline_traffic::{Pattern, Variable};
use trunkline_units::{Instant, Span};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::agent::{AgentEvent, EventRoute, random};
use super::start::{Participant, Start};
use super::{Controller, LossCause, RunError, STOP_TIMEOUT, uses_bundles};
use crate::consent::{RunId, RunKey};
use crate::launch::AgentClock;
use crate::locked;
use crate::wire::{
    self, AgentMessage, ControllerMessage, Cut, EndConsent, EndId, EndSpec, GivenConsent, MAX_REMOTE_MESSAGE,
    NeededConsent, Report, Role, has_answers,
};

/// How long ends may take to open, in addition to the timeouts of their sockets.
const OPEN_TIMEOUT: Span = Span::from_s(8);
/// How long messages in flight may take to arrive when a repetition is aborted.
const DRAIN_TIMEOUT: Span = Span::from_ms(1000);
/// How long receivers may take to report after the sender has ended.
const FINISH_TIMEOUT: Span = Span::from_s(60);
/// Time from the agreement on a start until the start, beyond the time that messages to agents take.
const LOCAL_LEAD: Span = Span::from_ms(2);
/// The same if an agent is on another machine. Requests need consent in the other direction, which takes longer.
const REMOTE_LEAD: Span = Span::from_ms(50);
const REQUEST_LEAD: Span = Span::from_ms(250);

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
    /// Where it opened.
    address: Option<SocketAddr>,
}

/// Executes one repetition of one connection.
pub(super) struct Repetition<'a, 'c> {
    controller: &'c Controller<'a>,
    connection: &'c plan::Connection,
    /// See [`EndSpec::repetition_name`].
    name: String,
    /// When the first message is due: after the connection's delay.
    start: Instant,
    /// Events of the ends, and where the listener threads send them.
    events: Receiver<AgentEvent>,
    event_sender: Sender<AgentEvent>,
    ends: BTreeMap<EndId, TrackedEnd>,
    /// The clocks of the agents on other machines when their ends were prepared, by host.
    clocks: BTreeMap<String, AgentClock>,
    /// Consent to the messages, and to the responses.
    consent: Option<[(RunId, RunKey); 2]>,
    outcome: RepetitionOutcome,
    /// The SHA-256 of the receiver's public key, over QUIC.
    receiver_key: Option<[u8; 32]>,
}

impl<'a, 'c> Repetition<'a, 'c> {
    pub fn new(controller: &'c Controller<'a>, connection: &'c plan::Connection, name: String) -> Self {
        let (event_sender, events) = mpsc::channel();
        let receivers = connection.to.iter().map(|s| (s.host.clone(), None)).collect();
        let outcome = RepetitionOutcome { receivers, ..RepetitionOutcome::default() };
        Repetition {
            controller,
            connection,
            name,
            start: Instant::ZERO,
            events,
            event_sender,
            ends: BTreeMap::new(),
            receiver_key: None,
            clocks: BTreeMap::new(),
            consent: None,
            outcome,
        }
    }

    /// Returns the outcome of a repetition that may not start.
    pub fn refuse(mut self, start: &Start, reason: String) -> RepetitionOutcome {
        // The others must not wait for it.
        drop(start.participant());
        self.outcome.start = start.origin();
        self.outcome.error = Some(reason);
        std::mem::take(&mut self.outcome)
    }

    /// Executes the repetition, even if parts of it fail.
    pub fn run(mut self, start: &Start) -> RepetitionOutcome {
        self.start = start.origin();
        if let Err(error) = self.execute(start.participant()) {
            self.outcome.error.get_or_insert(error.to_string());
        }
        self.outcome.start = self.start;
        self.note_addresses();
        self.outcome.delay_uncertainty = self.delay_uncertainty();
        std::mem::take(&mut self.outcome)
    }

    /// Requests a check of the ends on other machines. Ports that are not known yet are 0.
    pub fn request_checks(&mut self) -> Result<(), RunError> {
        self.create_consent()?;
        let (connection, controller) = (self.connection, self.controller);
        let limit = self.limit()?;
        let receiver = connection.to.first().ok_or(RunError::NoReceiver)?;
        let destination = match &connection.protocol {
            Protocol::Multicast { group, .. } => *group,
            protocol => address_for(protocol, controller.agent(&receiver.host).address),
        };
        let peer = SocketAddr::new(destination, receiver.port.unwrap_or(0));
        for (index, end) in connection.ends().enumerate() {
            if controller.agent(&end.host).remote.is_none() {
                continue;
            }
            // The sender is the first end.
            let (role, port, receiver) = match index.checked_sub(1) {
                None => (
                    Role::Sender { peer, limit, receivers: connection.to.len(), file: self.sent_file() },
                    None,
                    None,
                ),
                Some(index) => {
                    (Role::Receiver { file: self.received_file(&end.host) }, end.port, Some(index))
                }
            };
            let mut spec = self.spec(end, port, role, receiver)?;
            let message = ControllerMessage::Prepare(spec.clone());
            let length = wire::length(&message);
            if length > MAX_REMOTE_MESSAGE {
                return Err(RunError::TooLong { connection: connection.name.clone(), length });
            }
            // Recorded messages are checked by the longest.
            spec.pattern = spec.pattern.with_longest_message();
            controller.agent(&end.host).send(&ControllerMessage::Check(spec));
        }
        Ok(())
    }

    /// Waits until the agents have permitted all ends.
    ///
    /// # Errors
    /// If one is refused, or an agent is lost or silent.
    pub fn await_checks(&mut self) -> Result<(), RunError> {
        let deadline = self.controller.clock.now() + OPEN_TIMEOUT;
        while self.ends.values().any(|end| end.state != EndState::Over) {
            self.receive(deadline)?;
        }
        Ok(())
    }

    /// Executes the repetition. Returns the first error; what was reported before is retained.
    fn execute(&mut self, participant: Participant<'_>) -> Result<(), RunError> {
        let result = self.open().and_then(|(sender, delay)| {
            self.agree_on_start(participant, delay);
            self.run_ends(sender)
        });
        let Err(error) = result else { return Ok(()) };
        // A lost agent explains the error of the other end.
        Err(self.stop_all().unwrap_or(error))
    }

    /// Notes the addresses of ends on different machines: a firewall must let them pass.
    fn note_addresses(&mut self) {
        if self.consent.is_none() {
            return;
        }
        let address = |end: &TrackedEnd| Some(end.address?.to_string());
        let sender = self.ends.values().find(|e| e.receiver.is_none()).and_then(address);
        if let (Some(report), Some(address)) = (&mut self.outcome.sender, sender) {
            report.notes.insert("sender_address".into(), address);
        }
        for (index, (_, report)) in self.outcome.receivers.iter_mut().enumerate() {
            let receiver = self.ends.values().find(|e| e.receiver == Some(index)).and_then(address);
            if let (Some(report), Some(address)) = (report, receiver) {
                report.notes.insert("receiver_address".into(), address);
            }
        }
    }

    /// Waits until the connections that start together are open, and sets the start.
    fn agree_on_start(&mut self, participant: Participant<'_>, delay: Span) {
        let lead = match &self.connection.test {
            _ if self.consent.is_none() => LOCAL_LEAD,
            test if has_answers(&self.connection.protocol, test) => REQUEST_LEAD,
            _ => REMOTE_LEAD,
        };
        // A message takes half a round trip, which the bound of the clock contains.
        let bounds = self.clocks.values().map(|clock| clock.bound).max().unwrap_or(Span::ZERO);
        let now = self.controller.clock.now();
        let deadline = now + OPEN_TIMEOUT + OPEN_TIMEOUT;
        let may_wait =
            || !self.controller.stop_flag().is_requested() && self.controller.clock.now() < deadline;
        let start = participant.open(now + lead + bounds * 4, may_wait);
        let earliest = self.controller.clock.now() + LOCAL_LEAD;
        self.start = (start + delay).max(earliest);
    }

    /// Returns the maximum error of the one-way delays if the ends are on machines with clocks of their own: what the
    /// offsets were uncertain by at the start, or differ by at the end.
    fn delay_uncertainty(&self) -> Option<Span> {
        let of_host = |(host, first): (&String, &AgentClock)| -> Option<Span> {
            let last = self.controller.agent_clock(host).ok()??;
            let moved = Span::from_ns(last.monotonic_ns.abs_diff(first.monotonic_ns));
            let has_stepped = last.steps != first.steps;
            (!has_stepped).then(|| first.bound.max(moved + last.bound))
        };
        if self.clocks.is_empty() {
            return None;
        }
        let spans: Option<Vec<Span>> = self.clocks.iter().map(of_host).collect();
        Some(spans.map_or(Span::MAX, |spans| spans.into_iter().fold(Span::ZERO, |sum, span| sum + span)))
    }

    /// Opens the receivers, then the sender; returns the sender's id and the delay of the first message.
    fn open(&mut self) -> Result<(EndId, Span), RunError> {
        let delay = self.draw(&self.connection.delay_s, "delay")?;
        let limit = self.limit()?;
        let connection = self.connection;
        self.create_consent()?;
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
        let file = self.sent_file();
        let role = Role::Sender { peer, limit, receivers: connection.to.len(), file };
        let sender = self.prepare(&connection.from, None, role, None)?;
        self.await_open(sender)?;
        Ok((sender, Span::from_seconds(delay)))
    }

    fn draw(&self, variable: &Variable, quantity: &str) -> Result<f64, RunError> {
        let mut stream = self.controller.options.seed.stream(&format!("{} / {quantity}", self.name));
        Ok(Law::new(variable.clone(), 0.0)?.sample(&mut stream))
    }

    /// Returns how much the sender sends.
    fn limit(&self) -> Result<Limit, RunError> {
        Ok(match &self.connection.stop {
            plan::Stop::DurationS(v) => {
                Limit { time: Some(Span::from_seconds(self.draw(v, "duration")?)), ..Limit::default() }
            }
            plan::Stop::Bytes(v) => {
                Limit { bytes: Some(self.draw(v, "bytes")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::Messages(v) => {
                Limit { messages: Some(self.draw(v, "messages")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::FileEnd => Limit::default(),
        })
    }

    /// Creates the keys of the consent, if the connection needs it.
    fn create_consent(&mut self) -> Result<(), RunError> {
        if self.controller.needs_consent(self.connection) {
            let key = || -> std::io::Result<_> { Ok((RunId(random()?), RunKey::new(random()?))) };
            let keys = key().and_then(|one| Ok([one, key()?]));
            self.consent = Some(keys.map_err(|_| RunError::Random)?);
        }
        Ok(())
    }

    /// Returns the consent of an end: to messages in one direction, and to responses in the other.
    fn end_consent(&self, is_sender: bool) -> Result<EndConsent, RunError> {
        let Some([(run, key), (response_run, response_key)]) = self.consent.clone() else {
            return Ok(EndConsent::default());
        };
        let (from, to) = (&self.connection.from.host, &self.connection.to[0].host);
        let peer = self.controller.agent(if is_sender { to } else { from });
        let messages = (run, key);
        let has_answers = has_answers(&self.connection.protocol, &self.connection.test);
        let responses = has_answers.then_some((response_run, response_key));
        let (needs, gives) = match is_sender {
            true => (Some(messages), responses),
            false => (responses, Some(messages)),
        };
        let destination = peer.consent_address()?;
        let source = peer.address;
        Ok(EndConsent {
            needs: needs.map(|(run, key)| NeededConsent { destination, run, key }),
            gives: gives.map(|(run, key)| GivenConsent { source, run, key }),
        })
    }

    /// Returns the file that the sender sends.
    fn sent_file(&self) -> Option<PathBuf> {
        let Pattern::File { path, .. } = &self.connection.test else { return None };
        // An agent on another machine has its own folder.
        let is_remote = self.controller.agent(&self.connection.from.host).remote.is_some();
        Some(if is_remote { path.into() } else { self.controller.options.folder.join(path) })
    }

    /// Returns where a receiving host stores the file of the test.
    fn received_file(&self, host: &str) -> Option<PathBuf> {
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
        let spec = self.spec(end, port, role, receiver)?;
        let id = spec.id;
        self.controller.agent(&end.host).send(&ControllerMessage::Prepare(spec));
        Ok(id)
    }

    /// Returns the configuration of an end, which is tracked from now on.
    fn spec(
        &mut self,
        end: &plan::ConnectionEnd,
        port: Option<u16>,
        role: Role,
        receiver: Option<usize>,
    ) -> Result<Box<EndSpec>, RunError> {
        let controller = self.controller;
        let id = controller.next_id.fetch_add(1, Ordering::Relaxed);
        let index = controller.agents.iter().position(|a| a.host == end.host).expect("a host of the plan");
        let agent = &controller.agents[index];
        let needs_converters = uses_bundles(&self.connection.protocol);
        let route = EventRoute { agent: index, needs_converters, sender: self.event_sender.clone() };
        locked(&controller.routes).insert(id, route);
        self.ends.insert(
            id,
            TrackedEnd { host: end.host.clone(), receiver, state: EndState::Opening, address: None },
        );
        // Check after the route is registered: a loss from then on is an event.
        for agent in controller.converters(self.connection).chain([agent]) {
            let failure = locked(&agent.failure).clone();
            if let Some(cause) = failure {
                return Err(agent.loss(&cause));
            }
        }
        // Both ends on one host have one clock.
        let clock = match self.clocks.get(&end.host) {
            Some(clock) => Some(*clock),
            None => controller.agent_clock(&end.host)?,
        };
        self.clocks.extend(clock.map(|clock| (end.host.clone(), clock)));
        let consent = self.end_consent(receiver.is_none())?;
        let rate_controller = controller.rate_controllers.get(&self.connection.name).copied();
        Ok(Box::new(EndSpec {
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
            pattern: match receiver {
                None => self.connection.test.clone(),
                Some(_) => self.connection.test.without_messages(),
            },
            peer_key: self.receiver_key.filter(|_| receiver.is_none()),
            rate_controller: rate_controller.filter(|_| receiver.is_none()),
            role,
            receiver: receiver.unwrap_or(0) as u32,
            consent,
            epoch_ns: clock.map(|clock| clock.monotonic_ns),
            unix_epoch: controller.unix_epoch,
            cut: Cut::default(),
        }))
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
            AgentMessage::Ready(id, address, key) => {
                if let Some(end) = self.ends.get(&id).filter(|_| self.consent.is_some()) {
                    self.controller.agent(&end.host).own(address)?;
                }
                self.ends.get_mut(&id).into_iter().for_each(|end| end.address = Some(address));
                self.receiver_key = self.receiver_key.or(key);
                self.set_state(id, EndState::Open(address));
            }
            // An agent may send a snapshot after the final report: the final report stays.
            AgentMessage::Progress(id, _) if self.ends.get(&id).is_none_or(|e| e.state == EndState::Over) => {
            }
            AgentMessage::Progress(id, report) => self.store_report(id, report),
            AgentMessage::Done(id, report) => {
                self.store_report(id, report);
                self.set_state(id, EndState::Over);
            }
            AgentMessage::Permitted(id) => self.set_state(id, EndState::Over),
            AgentMessage::Refused { id, cause, .. } => {
                self.set_state(id, EndState::Over);
                let host = self.ends.get(&id).map_or("?", |e| e.host.as_str()).to_owned();
                return Err(RunError::Refused { connection: self.connection.name.clone(), host, cause });
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
            | AgentMessage::ConsentAddress(_)
            | AgentMessage::CpuTime(..)
            | AgentMessage::KnownSubscriptions(_)
            | AgentMessage::ConverterFailed(_)
            | AgentMessage::Counters(_)
            | AgentMessage::Measured(_)
            | AgentMessage::Missing(_) => {}
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
            let outcome = RepetitionOutcome { start: self.start, ..self.outcome.clone() };
            controller.observation.publish(index, outcome);
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

impl Drop for Repetition<'_, '_> {
    fn drop(&mut self) {
        let mut routes = locked(&self.controller.routes);
        self.ends.keys().for_each(|id| drop(routes.remove(id)));
    }
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
