//! A station on a network, shared by threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trunkline_io::shared_loop::Call;
use trunkline_units::{Instant, Span};

use super::engine::{Engine, WaitTarget};
use super::shared::{self, SapEvents, Shared, StationService};
use super::{Error, Network, Sent, Settings};
use crate::api::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::options::Options;
use crate::statistics::Statistics;
use crate::token::{self, Members};
use crate::wire::{ALL, Address};

/// Maximum unread message ends of a SAP.
const ENDED: usize = 4096;

/// A station on a network.
///
/// Clones refer to the same station. When the last clone and the last [`Sap`] are dropped, the station leaves its
/// ring, if any, and the network; queued messages are lost.
#[derive(Clone)]
pub struct StationSocket(Arc<Handle>);

/// A counted handle.
struct Handle(Arc<Shared>, Option<thread::JoinHandle<()>>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.run(|state, now| state.close(now));
    }
}

impl StationSocket {
    /// Attaches station `number`, 1 to 254, to a network.
    ///
    /// # Errors
    /// [`Error::Station`]; [`Error::System`] if the interface does not exist or may not be used, or, over UDP, if
    /// this machine already has a station of that number on that network.
    pub fn to(network: &Network, number: u8, settings: &Settings) -> Result<StationSocket, Error> {
        if !(1..ALL).contains(&number) {
            return Err(Error::Station);
        }
        let (shared, helper) = shared::open(network, number, settings)?;
        Ok(StationSocket(Arc::new(Handle(shared, Some(helper)))))
    }

    /// Returns the number.
    pub fn number(&self) -> u8 {
        self.shared().lock().service.number
    }

    /// Opens a service access point, even, 2 to 254.
    ///
    /// # Errors
    /// [`Error::Refused`]: invalid number, already open, too many open SAPs, or invalid options.
    pub fn open(&self, sap: u8, options: &Options) -> Result<Sap, Error> {
        self.shared().run(|state, now| {
            state.command(now, Command::Open { sap, options })?;
            state.saps[usize::from(sap >> 1)] = Some(Box::default());
            Ok::<(), Error>(())
        })?;
        Ok(Sap(Arc::new(Access { station: self.clone(), number: sap })))
    }

    /// Returns the station's counters.
    pub fn statistics(&self) -> Statistics {
        *self.shared().lock().service.engine.station().statistics()
    }

    /// Returns the number of frames that the interface or the system refused.
    pub fn unsent(&self) -> u64 {
        self.shared().lock().service.unsent
    }

    /// Returns the members of its ring; empty without a ring.
    pub fn members(&self) -> Members {
        match &self.shared().lock().service.engine {
            Engine::Ring(ring) => ring.members(),
            Engine::Alone(_) => Members::default(),
        }
    }

    /// Returns the counters of its ring; all zero without a ring.
    pub fn ring(&self) -> token::Statistics {
        match &self.shared().lock().service.engine {
            Engine::Ring(ring) => ring.statistics(),
            Engine::Alone(_) => token::Statistics::default(),
        }
    }

    /// Waits at most `patience` for the next event of its ring; never [`token::Event::Inner`].
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`] if the network fails.
    pub fn ring_event(&self, patience: Option<Duration>) -> Result<token::Event<()>, Error> {
        self.shared().until(patience, |state, _| state.ring.pop_front().ok_or(Error::NotYet))
    }

    /// Waits at most `patience` for the next event; needs [`Settings::events`].
    ///
    /// # Errors
    /// [`Error::TimedOut`], also when [interrupted](StationSocket::interrupt); [`Error::System`] if the network
    /// fails.
    pub fn next_event(&self, patience: Option<Duration>) -> Result<Event, Error> {
        self.shared().until(patience, |state, _| {
            if std::mem::take(&mut state.interrupted) {
                return Err(Error::TimedOut);
            }
            state.event_queue.pop_front().ok_or(Error::NotYet)
        })
    }

    /// Ends the current wait for the [next event](StationSocket::next_event), or else the next such wait.
    pub fn interrupt(&self) {
        self.shared().run(|state, _| {
            state.mark_changed();
            state.interrupted = true;
        });
    }

    /// Drops the station. If this is its last handle and no [`Sap`] is left, it has left its ring and the network on
    /// return, within a second.
    pub fn end(self) {
        if let Some(mut handle) = Arc::into_inner(self.0) {
            let helper = handle.1.take();
            drop(handle);
            // A panicked helper has also ended.
            let _ = helper.map(thread::JoinHandle::join);
        }
    }

    #[inline]
    fn shared(&self) -> &Shared {
        &self.0.0
    }
}

/// A service access point.
///
/// Clones refer to the same SAP. When the last one is dropped, the SAP is closed and its queued messages are lost.
#[derive(Clone)]
pub struct Sap(Arc<Access>);

struct Access {
    station: StationSocket,
    number: u8,
}

impl Drop for Access {
    fn drop(&mut self) {
        let _ = self.station.shared().run(|state, now| {
            state.saps[usize::from(self.number >> 1)] = None;
            state.command(now, Command::Close { sap: self.number })
        });
    }
}

/// Returns the end of a message that was sent within the call.
fn sent_immediately(ticket: Ticket, outcome: Outcome) -> Sent {
    Sent { ticket, outcome, tries: 1, took: Span::ZERO }
}

/// A TEST response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tested {
    /// Source: the addressed station and SAP, or a member of the addressed group.
    pub from: Address,
    /// Octets returned.
    pub length: u16,
    /// Whether they equal the sent ones.
    pub intact: bool,
}

impl Sap {
    /// Returns the number.
    pub fn number(&self) -> u8 {
        self.0.number
    }

    /// Returns the station.
    pub fn station(&self) -> &StationSocket {
        &self.0.station
    }

    /// Sends a message without reporting its outcome. Blocks while the queue is full.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is too large or the destination is invalid; [`Error::System`].
    #[inline]
    pub fn send(&self, to: Address, bytes: &[u8]) -> Result<Ticket, Error> {
        self.put(to, bytes, None, None, false)
    }

    /// As [`send`](Sap::send), with a different priority, waiting at most `patience`.
    ///
    /// # Errors
    /// As [`send`](Sap::send), and [`Error::TimedOut`].
    pub fn send_with(
        &self,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        patience: Option<Duration>,
    ) -> Result<Ticket, Error> {
        self.put(to, bytes, priority, patience, false)
    }

    /// Sends a message if the queue has space.
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Sap::send).
    pub fn try_send(&self, to: Address, bytes: &[u8]) -> Result<Ticket, Error> {
        self.shared().try_twice(|state, call| Ok(self.attempt(state, call.now, to, bytes, None)?.0))
    }

    /// Sends messages, up to [`Settings::batch`] of equal length per system call. Blocks while the queue is full;
    /// returns how many were accepted, from the first on.
    ///
    /// # Errors
    /// As [`send`](Sap::send), for the first message.
    pub fn send_many<M: AsRef<[u8]>>(&self, to: Address, messages: &[M]) -> Result<usize, Error> {
        let Some((first, rest)) = messages.split_first() else { return Ok(0) };
        self.shared().until(None, |state, call| {
            // The first message is sent with the others.
            state.mark_output();
            self.attempt(state, call.now, to, first.as_ref(), None)?;
            let more = |message: &M| self.attempt(state, call.now, to, message.as_ref(), None).is_ok();
            Ok(1 + rest.iter().map(more).take_while(|taken| *taken).count())
        })
    }

    /// Sends a message whose outcome [`ended`](Sap::ended) reports. Blocks while the queue is full.
    ///
    /// # Errors
    /// As [`send`](Sap::send); [`Error::Refused`] with [`Refusal::Full`] if 4,096 outcomes are unread.
    pub fn start(&self, to: Address, bytes: &[u8], priority: Option<u8>) -> Result<Ticket, Error> {
        self.put(to, bytes, priority, None, true)
    }

    /// Waits for the outcome of the next message [started](Sap::start) here.
    ///
    /// # Errors
    /// [`Error::TimedOut`], at once if none is outstanding; [`Error::System`] if the network fails.
    pub fn ended(&self, patience: Option<Duration>) -> Result<Sent, Error> {
        self.shared().until(patience, |state, _| {
            let sap_events = self.sap_events(state)?;
            match sap_events.ended.pop_front() {
                Some(sent) => Ok(sent),
                None if sap_events.wanted.is_empty() => Err(Error::TimedOut),
                None => Err(Error::NotYet),
            }
        })
    }

    /// Sends a message and waits for its outcome.
    ///
    /// # Errors
    /// As [`send`](Sap::send); [`Error::System`] if the network fails. A message that is not delivered is an
    /// [`Outcome`], not an error.
    #[inline]
    pub fn exchange(&self, to: Address, bytes: &[u8]) -> Result<Sent, Error> {
        let (mut sent, mut listed) = (None, false);
        self.shared().until(None, |state, call| {
            let ticket = match sent {
                Some(ticket) => ticket,
                None => {
                    let (ticket, outcome) = self.attempt(state, call.now, to, bytes, None)?;
                    if let Some(outcome) = outcome {
                        return Ok(sent_immediately(ticket, outcome));
                    }
                    *sent.insert(ticket)
                }
            };
            let handed = state.take_delivered_end(ticket);
            if listed {
                return self.listed(state, call, ticket, handed);
            }
            if handed.is_none() && !state.will_receive(call) {
                self.sap_events(state)?.awaited.push((ticket, None));
                listed = true;
            }
            call.target = Some(WaitTarget::End(ticket));
            handed.ok_or(Error::NotYet)
        })
    }

    /// Takes the outcome of an awaited message, if it has arrived.
    #[cold]
    fn listed(
        &self,
        state: &mut StationService,
        call: &mut Call<WaitTarget>,
        ticket: Ticket,
        handed: Option<Sent>,
    ) -> Result<Sent, Error> {
        call.target = Some(WaitTarget::End(ticket));
        let awaited = &mut self.sap_events(state)?.awaited;
        let at = awaited.iter().position(|(of, _)| *of == ticket).ok_or(Error::NotYet)?;
        let end = handed.or(awaited[at].1).ok_or(Error::NotYet)?;
        awaited.swap_remove(at);
        Ok(end)
    }

    /// Waits for the next message, highest priority first, and replaces the content of `into`.
    ///
    /// # Errors
    /// [`Error::System`] if the network fails.
    #[inline]
    pub fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Error> {
        self.receive_within(into, None)
    }

    /// As [`receive`](Sap::receive), waiting at most `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`receive`](Sap::receive).
    #[inline]
    pub fn receive_within(&self, into: &mut Vec<u8>, patience: Option<Duration>) -> Result<Received, Error> {
        self.shared().until(patience, |state, call| self.taken(state, call, into))
    }

    /// Returns the next message if one is queued.
    ///
    /// # Errors
    /// [`Error::NotYet`].
    pub fn try_receive(&self, into: &mut Vec<u8>) -> Result<Received, Error> {
        self.shared().try_twice(|state, call| self.taken(state, call, into))
    }

    /// Sends a TEST with these bytes and waits for a response; returns it with the elapsed time. The null SAP
    /// addresses the station. One TEST or XID at a time.
    ///
    /// # Errors
    /// [`Error::TimedOut`] without a response; [`Error::Refused`] if there are too many bytes; [`Error::System`].
    pub fn test(&self, to: Address, bytes: &[u8], patience: Duration) -> Result<(Tested, Span), Error> {
        let begun = self.ask(Command::Test { sap: self.number(), to, bytes })?;
        self.answer(begun, patience, |event| match event {
            Event::Tested { from, length, intact, .. } => Some(Tested { from, length, intact }),
            _ => None,
        })
    }

    /// Sends an XID and waits for a response: which of types 1, 2 and 3 the station or SAP supports, with the elapsed
    /// time.
    ///
    /// # Errors
    /// As [`test`](Sap::test).
    pub fn identify(&self, to: Address, patience: Duration) -> Result<((Address, [bool; 3]), Span), Error> {
        let begun = self.ask(Command::Identify { sap: self.number(), to })?;
        self.answer(begun, patience, |event| match event {
            Event::Identified { from, types, .. } => Some((from, types)),
            _ => None,
        })
    }

    /// Waits for a further response to the last TEST or XID to a group or to all stations.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`].
    pub fn next_answer(&self, patience: Duration) -> Result<Event, Error> {
        self.shared().until(Some(patience), |state, _| {
            self.sap_events(state)?.answers.pop_front().ok_or(Error::NotYet)
        })
    }

    /// Passes any command to the station, such as [`Command::Configure`] or [`Command::Reset`].
    ///
    /// # Errors
    /// The station's refusal.
    pub fn command(&self, command: Command<'_>) -> Result<(), Error> {
        self.shared().run(|state, now| state.command(now, command))
    }

    /// Changes the options of the SAP.
    ///
    /// # Errors
    /// [`Error::Refused`] if the options are invalid.
    pub fn configure(&self, options: &Options) -> Result<(), Error> {
        self.command(Command::Configure { sap: self.number(), options })
    }

    /// Discards the messages queued for sending or receiving.
    ///
    /// # Errors
    /// None known.
    pub fn reset(&self, sending: bool) -> Result<(), Error> {
        self.command(Command::Reset { sap: self.number(), sending })
    }

    /// Returns the number of messages that are queued, unanswered, or ended with an unread outcome.
    pub fn waiting(&self) -> usize {
        self.shared().lock().service.engine.station().waiting(self.number())
    }

    /// Returns the number of received messages.
    pub fn readable(&self) -> usize {
        self.shared().lock().service.engine.station().readable(self.number())
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.0.station.shared()
    }

    #[inline]
    fn sap_events<'s>(&self, state: &'s mut StationService) -> Result<&'s mut SapEvents, Error> {
        state.saps[usize::from(self.number() >> 1)].as_deref_mut().ok_or(Error::Refused(Refusal::Closed))
    }

    #[inline]
    fn put(
        &self,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        patience: Option<Duration>,
        wanted: bool,
    ) -> Result<Ticket, Error> {
        self.shared().until(patience, |state, call| {
            if wanted && self.sap_events(state)?.ended.len() >= ENDED {
                return Err(Error::Refused(Refusal::Full));
            }
            let (ticket, outcome) = self.attempt(state, call.now, to, bytes, priority)?;
            if wanted {
                let sap_events = self.sap_events(state)?;
                match outcome {
                    Some(outcome) => sap_events.ended.push_back(sent_immediately(ticket, outcome)),
                    None => sap_events.wanted.push_back(ticket),
                }
            }
            Ok(ticket)
        })
    }

    /// Sends a message if the queue has space; returns its outcome if known.
    #[inline]
    fn attempt(
        &self,
        state: &mut StationService,
        now: Instant,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Ticket, Option<Outcome>), Error> {
        if state.event_queue_is_full() {
            return Err(Error::Full);
        }
        Ok(state.send(self.shared().link(), now, self.number(), to, bytes, priority)?)
    }

    #[inline]
    fn taken(
        &self,
        state: &mut StationService,
        call: &mut Call<WaitTarget>,
        into: &mut Vec<u8>,
    ) -> Result<Received, Error> {
        if let Some(received) = state.take_delivered_message(into) {
            return Ok(received);
        }
        let taken = state.engine.message(call.now, self.number(), into)?;
        call.target = Some(WaitTarget::Message(self.number()));
        taken.ok_or(Error::NotYet)
    }

    fn ask(&self, command: Command<'_>) -> Result<Instant, Error> {
        self.shared().run(|state, now| {
            self.sap_events(state)?.answers.clear();
            state.command(now, command)?;
            Ok(now)
        })
    }

    fn answer<T>(
        &self,
        begun: Instant,
        patience: Duration,
        mut fits: impl FnMut(Event) -> Option<T>,
    ) -> Result<(T, Span), Error> {
        self.shared().until(Some(patience), |state, call| {
            let answers = &mut self.sap_events(state)?.answers;
            while let Some(event) = answers.pop_front() {
                if let Some(answer) = fits(event) {
                    return Ok((answer, call.now.since(begun)));
                }
            }
            Err(Error::NotYet)
        })
    }
}
