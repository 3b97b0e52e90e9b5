//! The LLC station of a host, shared by all its ends. A thread dispatches received messages and the outcomes of sent
//! messages to the ends.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::Protocol;
use trunkline_io::Clock;
use trunkline_llc::socket::{Error, Network, ParseNetworkError, Sap, Settings, StationSocket};
use trunkline_llc::token;
use trunkline_llc::wire::{HEADER as PDU_HEADER, MAX_INFORMATION};
use trunkline_llc::{Address, Event, Outcome, Ticket};
use trunkline_run::llc;
use trunkline_run::message::HEADER;
use trunkline_run::reports::Metrics;
use trunkline_units::{Instant, Span};

use crate::locked;

/// Maximum length of a PDU in bytes.
pub(crate) const MAX_PDU: u32 = (MAX_INFORMATION + PDU_HEADER) as u32;
/// Connections that can fill their share of a SAP's queue; further connections share the space.
const CONNECTIONS_PER_SAP: u16 = 16;
/// Capacity of the event queue of an end. When it is full the station stops reading and reports that its buffer is
/// full to its peers.
const EVENT_QUEUE_LENGTH: usize = 1024;
/// How often the station's thread checks whether to stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Configuration of a host's station.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StationConfig {
    pub number: u8,
    pub stations: u8,
    /// The network, in the syntax of [`Network`].
    pub network: String,
    /// Whether stations send only when they hold the token.
    pub token: bool,
}

/// Error of a host that cannot attach its station.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttachError {
    /// The network is not in the syntax of [`Network`].
    #[error(transparent)]
    Network(#[from] ParseNetworkError),
    #[error("station {0} at {1}: {2}")]
    Socket(u8, Network, Error),
    #[error(transparent)]
    Thread(#[from] io::Error),
}

/// An event for an end.
#[derive(Debug)]
pub(crate) enum StationEvent {
    /// A message was received at this instant from this station.
    Received(Instant, u8, Vec<u8>),
    /// A sent message has completed: outcome, number of transmissions and elapsed time.
    Sent(Outcome, u16, Span),
}

/// The station of a host. It closes with its last handle.
#[derive(Clone)]
pub(crate) struct Station(Arc<StationInner>);

struct StationInner {
    dispatcher: Arc<StationDispatcher>,
    config: StationConfig,
    is_closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The socket of a station, and where its events belong.
struct StationDispatcher {
    socket: StationSocket,
    routes: Mutex<Routes>,
}

/// Routes of events to ends.
#[derive(Default)]
struct Routes {
    saps: BTreeMap<u8, Sap>,
    /// The end that sent a message, by ticket.
    senders: BTreeMap<Ticket, SyncSender<StationEvent>>,
    /// The end that receives a message, by the token in its header and by whether it is a response.
    ends: BTreeMap<(u32, bool), SyncSender<StationEvent>>,
}

impl Drop for StationInner {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl StationDispatcher {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        locked(&self.routes)
    }

    /// Dispatches events of the station until it is closed.
    fn dispatch_events(&self, clock: Clock, is_closing: &AtomicBool) {
        while !is_closing.load(Ordering::Relaxed) {
            match self.socket.next_event(Some(STOP_CHECK_INTERVAL)) {
                Ok(Event::Readable { sap }) => self.deliver(sap, clock),
                Ok(Event::Sent { ticket, outcome, tries, took, .. }) => {
                    let sender = self.routes().senders.remove(&ticket);
                    // An end that has finished receives no events.
                    sender
                        .into_iter()
                        .for_each(|end| drop(end.send(StationEvent::Sent(outcome, tries, took))));
                }
                Ok(_) | Err(Error::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    /// Delivers the received messages of a SAP to the ends.
    fn deliver(&self, sap: u8, clock: Clock) {
        let Some(sap) = self.routes().saps.get(&sap).cloned() else { return };
        let mut bytes = Vec::new();
        while let Ok(received) = sap.try_receive(&mut bytes) {
            let (now, from) = (clock.now(), received.from.station);
            let end = message_route(&bytes).and_then(|route| self.routes().ends.get(&route).cloned());
            // No end matches: the message belongs to an earlier run or to another program.
            end.into_iter().for_each(|end| {
                drop(end.send(StationEvent::Received(now, from, std::mem::take(&mut bytes))))
            });
        }
    }
}

/// Returns the token of a message and whether it is a response.
fn message_route(bytes: &[u8]) -> Option<(u32, bool)> {
    let (token, header) = trunkline_run::message::Header::peek(bytes.get(..HEADER)?)?;
    Some((token, header.kind == trunkline_run::message::MessageKind::Response))
}

impl Station {
    /// Attaches the station of a host to its network.
    pub(crate) fn attach(config: &StationConfig, clock: Clock) -> Result<Station, AttachError> {
        let ring_options =
            || token::Options { highest_station: config.stations, ..token::Options::default() };
        let ring = config.token.then(ring_options);
        let socket_settings = Settings { ring, events: true, ..Settings::default() };
        let network: Network = config.network.parse()?;
        let socket = StationSocket::to(&network, config.number, &socket_settings)
            .map_err(|cause| AttachError::Socket(config.number, network, cause))?;
        let dispatcher = Arc::new(StationDispatcher { socket, routes: Mutex::default() });
        let is_closing = Arc::new(AtomicBool::new(false));
        let (thread_dispatcher, thread_closing) = (dispatcher.clone(), is_closing.clone());
        let thread = std::thread::Builder::new().name("station".into());
        let thread = thread.spawn(move || thread_dispatcher.dispatch_events(clock, &thread_closing))?;
        Ok(Station(Arc::new(StationInner {
            dispatcher,
            config: config.clone(),
            is_closing,
            thread: Some(thread),
        })))
    }

    pub(crate) fn number(&self) -> u8 {
        self.0.config.number
    }

    /// Returns whether the station can send: always without a token, otherwise once all stations are in the ring.
    pub(crate) fn is_ring_complete(&self) -> bool {
        !self.0.config.token
            || self.0.dispatcher.socket.members().count() == usize::from(self.0.config.stations)
    }

    /// Opens a handle for an end. The handle receives messages with this token that are responses, or that are not.
    pub(crate) fn open_handle(
        &self,
        protocol: &Protocol,
        token: u32,
        is_response: bool,
    ) -> Result<StationHandle, String> {
        let (sap, priority, options) =
            llc::options(protocol, CONNECTIONS_PER_SAP).ok_or("an end that is not for a station")?;
        let (event_sender, events) = mpsc::sync_channel(EVENT_QUEUE_LENGTH);
        let mut routes = self.0.dispatcher.routes();
        let opened = match routes.saps.get(&sap) {
            Some(opened) => opened.clone(),
            None => self.0.dispatcher.socket.open(sap, &options).map_err(|e| format!("SAP {sap}: {e}"))?,
        };
        routes.saps.insert(sap, opened.clone());
        routes.ends.insert((token, is_response), event_sender.clone());
        drop(routes);
        Ok(StationHandle {
            station: self.clone(),
            sap: opened,
            priority,
            route: (token, is_response),
            event_sender,
            events,
        })
    }

    /// Returns the token rotation times in microseconds, if there is a token.
    pub(crate) fn token_metrics(&self) -> Metrics {
        let ring = self.0.dispatcher.socket.ring();
        let mut metrics = Metrics::new();
        if self.0.config.token {
            let mean = ring.rotation_sum.as_s() * 1e6 / ring.rotations.max(1) as f64;
            metrics.insert("token_rotation_mean_us".into(), mean);
            metrics.insert("token_rotation_max_us".into(), ring.rotation_max.as_s() * 1e6);
        }
        metrics
    }
}

/// The handle that an end has to its host's station.
pub(crate) struct StationHandle {
    pub(crate) station: Station,
    sap: Sap,
    pub(crate) priority: u8,
    route: (u32, bool),
    event_sender: SyncSender<StationEvent>,
    pub(crate) events: Receiver<StationEvent>,
}

impl Drop for StationHandle {
    fn drop(&mut self) {
        self.station.0.dispatcher.routes().ends.remove(&self.route);
    }
}

impl StationHandle {
    /// Sends a message to the same SAP of a station. Returns false if the queue is full.
    pub(crate) fn send(&self, station: u8, bytes: &[u8]) -> Result<bool, Error> {
        let to = Address { sap: self.sap.number(), station };
        // The lock is held so that the outcome cannot be dispatched before the ticket is registered.
        let mut routes = self.station.0.dispatcher.routes();
        match self.sap.send_with(to, bytes, Some(self.priority), Some(Duration::ZERO)) {
            Ok(ticket) => {
                routes.senders.insert(ticket, self.event_sender.clone());
                Ok(true)
            }
            Err(Error::Full | Error::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
