//! The LLC station of a host: one for all its ends, which it tells what came for each and what became of what each sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_experiment::plan::Protocol;
use trunkline_io::Clock;
use trunkline_llc::face::{Attached, Error, Sap, Settings};
use trunkline_llc::token;
use trunkline_llc::wire::{HEADER as PDU_HEADER, MAX_INFORMATION};
use trunkline_llc::{Address, Event, Outcome, Ticket};
use trunkline_run::ends::Figures;
use trunkline_run::llc;
use trunkline_run::message::HEADER;
use trunkline_units::{Instant, Span};

/// Octets of the longest PDU.
pub(crate) const PDU: u32 = (MAX_INFORMATION + PDU_HEADER) as u32;
/// Connections that may have as much waiting in one SAP as they like; more wait for each other.
const CONNECTIONS: u16 = 16;
/// What may wait for an end to hear of it. Then the station waits, and its peers are told that there is no room.
const NEWS: usize = 1024;
/// How often a station looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// Which station a host is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Its number.
    pub number: u8,
    /// How many there are.
    pub stations: u8,
    /// Where they are, as [`trunkline_llc::face::Network`] reads it.
    pub network: String,
    /// Whether they send only with the token.
    pub token: bool,
}

/// What an end is told.
#[derive(Debug)]
pub(crate) enum News {
    /// A message came, then, from this station.
    Came(Instant, u8, Vec<u8>),
    /// A message that it sent has come to its end, after so many tries and so long.
    Ended(Outcome, u16, Span),
}

/// The station of a host. It goes with the last handle.
#[derive(Clone)]
pub(crate) struct Station(Arc<Running>);

struct Running {
    desk: Arc<Desk>,
    place: Place,
    leaving: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Desk {
    attached: Attached,
    names: Mutex<Names>,
}

/// Who is meant.
#[derive(Default)]
struct Names {
    saps: BTreeMap<u8, Sap>,
    /// Whose message it is, by the ticket.
    senders: BTreeMap<Ticket, SyncSender<News>>,
    /// Whose message it is, by the token in its header and whether it answers.
    ends: BTreeMap<(u32, bool), SyncSender<News>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.leaving.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Desk {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on what the station tells, until it is wanted no more.
    fn pass_on(&self, clock: Clock, leaving: &AtomicBool) {
        while !leaving.load(Ordering::Relaxed) {
            match self.attached.next_event(Some(LOOK)) {
                Ok(Event::Readable { sap }) => self.hand_out(sap, clock),
                Ok(Event::Sent { ticket, outcome, tries, took, .. }) => {
                    let sender = self.names().senders.remove(&ticket);
                    // An end that is over hears nothing.
                    sender.into_iter().for_each(|end| drop(end.send(News::Ended(outcome, tries, took))));
                }
                Ok(_) | Err(Error::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    fn hand_out(&self, sap: u8, clock: Clock) {
        let Some(sap) = self.names().saps.get(&sap).cloned() else { return };
        let mut bytes = Vec::new();
        while let Ok(received) = sap.try_receive(&mut bytes) {
            let (now, from) = (clock.now(), received.from.station);
            let end = who(&bytes).and_then(|who| self.names().ends.get(&who).cloned());
            // Nobody's: of a run that is over, or a stranger's.
            end.into_iter().for_each(|end| drop(end.send(News::Came(now, from, std::mem::take(&mut bytes)))));
        }
    }
}

/// The token of a message, and whether it answers.
fn who(bytes: &[u8]) -> Option<(u32, bool)> {
    let (token, header) = trunkline_run::message::Header::peek(bytes.get(..HEADER)?)?;
    Some((token, header.kind == trunkline_run::message::Kind::Answer))
}

impl Station {
    /// Attaches the station of a host.
    pub(crate) fn attach(place: &Place, clock: Clock) -> Result<Station, String> {
        let ring = || token::Options { highest: place.stations, ..token::Options::default() };
        let ring = place.token.then(ring);
        let settings = Settings { ring, events: true, ..Settings::default() };
        let network = place.network.parse().map_err(|e| format!("{e}"))?;
        let attached = Attached::to(&network, place.number, &settings)
            .map_err(|e| format!("station {} at {network}: {e}", place.number))?;
        let desk = Arc::new(Desk { attached, names: Mutex::default() });
        let leaving = Arc::new(AtomicBool::new(false));
        let (passing, until) = (desk.clone(), leaving.clone());
        let thread = std::thread::Builder::new().name("station".into());
        let thread = thread.spawn(move || passing.pass_on(clock, &until)).map_err(|e| e.to_string())?;
        Ok(Station(Arc::new(Running { desk, place: place.clone(), leaving, thread: Some(thread) })))
    }

    pub(crate) fn number(&self) -> u8 {
        self.0.place.number
    }

    /// Whether it may send: without a token always, with one when all are in the ring.
    pub(crate) fn is_whole(&self) -> bool {
        !self.0.place.token || self.0.desk.attached.members().count() == usize::from(self.0.place.stations)
    }

    /// An end's line to it: what comes with this token, answers or else what is no answer, is told there.
    pub(crate) fn line(&self, protocol: &Protocol, token: u32, answers: bool) -> Result<Line, String> {
        let (sap, priority, options) =
            llc::options(protocol, CONNECTIONS).ok_or("an end that is not for a station")?;
        let (told, news) = mpsc::sync_channel(NEWS);
        let mut names = self.0.desk.names();
        let open = match names.saps.get(&sap) {
            Some(open) => open.clone(),
            None => self.0.desk.attached.open(sap, &options).map_err(|e| format!("SAP {sap}: {e}"))?,
        };
        names.saps.insert(sap, open.clone());
        names.ends.insert((token, answers), told.clone());
        drop(names);
        Ok(Line { station: self.clone(), sap: open, priority, who: (token, answers), told, news })
    }

    /// How long the token took to come round, in us, if there is one.
    pub(crate) fn figures(&self) -> Figures {
        let ring = self.0.desk.attached.ring();
        let mut figures = Figures::new();
        if self.0.place.token {
            let mean = ring.rotation_sum.as_s() * 1e6 / ring.rotations.max(1) as f64;
            figures.insert("token_rotation_mean_us".into(), mean);
            figures.insert("token_rotation_max_us".into(), ring.rotation_max.as_s() * 1e6);
        }
        figures
    }
}

/// What an end has of its host's station.
pub(crate) struct Line {
    pub(crate) station: Station,
    sap: Sap,
    pub(crate) priority: u8,
    who: (u32, bool),
    told: SyncSender<News>,
    pub(crate) news: Receiver<News>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.station.0.desk.names().ends.remove(&self.who);
    }
}

impl Line {
    /// Sends a message to the same SAP of a station, if there is room; whether there was.
    pub(crate) fn send(&self, station: u8, bytes: &[u8]) -> Result<bool, Error> {
        let to = Address { sap: self.sap.number(), station };
        // Held, so that the end of the message is not told before it is known whose it is.
        let mut names = self.station.0.desk.names();
        match self.sap.send_with(to, bytes, Some(self.priority), Some(Duration::ZERO)) {
            Ok(ticket) => {
                names.senders.insert(ticket, self.told.clone());
                Ok(true)
            }
            Err(Error::Full | Error::TimedOut) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
