//! An agent from the point of view of its controller.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_io::Clock;

use super::{AGENT_TIMEOUT, LossCause, RunError};
use crate::bundles;
use crate::consent::{RunId, RunKey};
use crate::kernel_sampler::Collected;
use crate::launch::{LaunchedAgent, RemoteAgent};
use crate::locked;
use crate::station::StationConfig;
use crate::time_exchange::TimeGrant;
use crate::wire::{self, AgentMessage, ControllerMessage, EndId, LineReader};

/// An event for a repetition of a connection.
pub(super) enum AgentEvent {
    Message(AgentMessage),
    Lost(String, LossCause),
}

pub(super) type EventRoutes = Mutex<BTreeMap<EndId, EventRoute>>;

/// Where to send the events of an end.
pub(super) struct EventRoute {
    pub agent: usize,
    /// Whether the connection needs the converters.
    pub needs_converters: bool,
    pub sender: Sender<AgentEvent>,
}

/// What an agent has reported about itself.
#[derive(Default)]
pub(super) struct AgentStatus {
    pub cpu_time: Mutex<Option<(f64, f64)>>,
    /// Number of subscriptions that its converter has, once it has reported.
    pub known_subscriptions: Mutex<Option<u64>>,
    pub counters: Mutex<BTreeMap<String, u64>>,
    pub measured: Mutex<Collected>,
    pub missing: Mutex<Vec<String>>,
    /// Where it exchanges consent, or why it cannot, once it has reported.
    consent_address: Mutex<Option<Result<SocketAddr, String>>>,
}

/// The agent of one host.
pub(super) struct Agent {
    pub host: String,
    pub address: IpAddr,
    output: Mutex<UnixStream>,
    child: Mutex<Option<Child>>,
    pub remote: Option<Arc<dyn RemoteAgent>>,
    time: Option<TimeGrant>,
    pub failure: Arc<Mutex<Option<LossCause>>>,
    pub status: Arc<AgentStatus>,
    pub bundles: Option<bundles::BundleNode>,
    is_shutting_down: Arc<AtomicBool>,
}

/// What an agent needs to know first.
pub(super) struct Setup<'a> {
    pub index: usize,
    pub host: &'a str,
    pub address: IpAddr,
    pub clock: Clock,
    pub station: Option<StationConfig>,
    pub bundles: Option<bundles::BundleNode>,
    /// Whether it exchanges consent.
    pub has_consent: bool,
}

/// No agent outlives its controller.
impl Drop for Agent {
    fn drop(&mut self) {
        self.terminate();
    }
}

impl Agent {
    pub fn new(launched: LaunchedAgent, setup: Setup<'_>, routes: &Arc<EventRoutes>) -> io::Result<Agent> {
        let Setup { index, host, address, clock, station, bundles, has_consent } = setup;
        let mut output = launched.stream.try_clone()?;
        launched.stream.set_read_timeout(Some(AGENT_TIMEOUT))?;
        output.set_write_timeout(Some(AGENT_TIMEOUT))?;
        let epoch_ns = match &launched.remote {
            Some(remote) => {
                let unknown = || io::Error::other("no time exchange succeeded");
                remote.to_agent_clock(clock.epoch_ns()).ok_or_else(unknown)?.monotonic_ns
            }
            None => clock.epoch_ns(),
        };
        let node = bundles.clone().map(Box::new);
        let consent_at = has_consent.then_some(address);
        let time = match &launched.remote {
            Some(remote) => {
                let (run, key) = (RunId(random()?), RunKey::new(random()?));
                Some(TimeGrant { run, key, source: remote.local_address() })
            }
            None => None,
        };
        let hello =
            ControllerMessage::Hello { epoch_ns, station, bundles: node, consent_at, time: time.clone() };
        wire::write(&mut output, &hello)?;
        let agent = Agent {
            host: host.into(),
            address,
            output: Mutex::new(output),
            child: Mutex::new(launched.child),
            remote: launched.remote,
            time,
            failure: Arc::default(),
            status: Arc::default(),
            bundles,
            is_shutting_down: Arc::default(),
        };
        let (failure, status, is_shutting_down) =
            (agent.failure.clone(), agent.status.clone(), agent.is_shutting_down.clone());
        let is_converter = agent.is_converter();
        let (host, routes, stream) = (agent.host.clone(), routes.clone(), launched.stream);
        let remote = agent.remote.clone();
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let cause = listen(stream, index, &routes, &status);
            let cause = remote.and_then(|remote| remote.failure()).map_or(cause, LossCause::Remote);
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

    /// Waits for the address at which the agent exchanges consent.
    pub fn consent_address(&self) -> Result<SocketAddr, RunError> {
        let deadline = std::time::Instant::now() + AGENT_TIMEOUT;
        loop {
            let address = locked(&self.status.consent_address).clone();
            if let Some(address) = address {
                let address = address.map_err(|cause| RunError::Consent(self.host.clone(), cause))?;
                return self.own(address);
            }
            let failure = locked(&self.failure).clone();
            if let Some(cause) = failure {
                return Err(self.loss(&cause));
            }
            if std::time::Instant::now() > deadline {
                return Err(RunError::Silent(self.host.clone()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the address if it is one of the agent's host: an agent must not direct the load of others elsewhere.
    pub fn own(&self, address: SocketAddr) -> Result<SocketAddr, RunError> {
        match address.ip().to_canonical() == self.address.to_canonical() {
            true => Ok(address),
            false => Err(RunError::ForeignAddress(self.host.clone(), address)),
        }
    }

    /// Exchanges time with an agent on another machine over UDP, too, which is more precise.
    pub fn start_time_exchange(&self) -> Result<(), RunError> {
        if let (Some(remote), Some(grant)) = (&self.remote, &self.time) {
            remote.exchange_time(self.consent_address()?, grant);
        }
        Ok(())
    }

    /// Requests a shutdown; the loss of the agent is expected from now on.
    pub fn shut_down(&self) {
        self.is_shutting_down.store(true, Ordering::Relaxed);
        self.send(&ControllerMessage::Shutdown);
    }

    pub fn is_converter(&self) -> bool {
        self.bundles.as_ref().is_some_and(bundles::BundleNode::is_converter)
    }

    /// Sends a message. If the agent is lost, its listener thread reports that.
    pub fn send(&self, message: &ControllerMessage) {
        let mut stream = locked(&self.output);
        let _ = wire::write(&mut *stream, message).and_then(|()| stream.flush());
    }

    /// Returns why the agent is lost, or how its process ended, if it has.
    pub fn loss(&self, cause: &LossCause) -> RunError {
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
    pub fn terminate(&self) {
        self.remote.iter().for_each(|remote| remote.end());
        if let Some(mut child) = locked(&self.child).take() {
            if locked(&self.status.cpu_time).is_none() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

/// Dispatches the messages of an agent until it is lost; returns the cause.
fn listen(stream: UnixStream, index: usize, routes: &EventRoutes, status: &AgentStatus) -> LossCause {
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
            AgentMessage::ConsentAddress(address) => *locked(&status.consent_address) = Some(address),
            AgentMessage::Measured(measured) => locked(&status.measured).add(measured),
            AgentMessage::Missing(missing) => *locked(&status.missing) = missing,
            AgentMessage::Counters(counts) => *locked(&status.counters) = counts,
            AgentMessage::ConverterFailed(cause) => return LossCause::Converter(cause),
            AgentMessage::Permitted(id)
            | AgentMessage::Refused { id, .. }
            | AgentMessage::Ready(id, ..)
            | AgentMessage::Progress(id, _)
            | AgentMessage::Done(id, _)
            | AgentMessage::Failed(id, ..) => {
                // An agent speaks for its own ends only.
                let of_agent = |route: &&EventRoute| route.agent == index;
                let sender = locked(routes).get(&id).filter(of_agent).map(|route| route.sender.clone());
                if let Some(sender) = sender {
                    let _ = sender.send(AgentEvent::Message(message));
                }
            }
        }
    }
}

/// Returns random octets of the operating system.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    getrandom::fill(&mut octets).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(octets)
}
