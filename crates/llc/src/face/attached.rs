//! A station on a network, for threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use trunkline_units::{Instant, Span};

use super::engine::Engine;
use super::shared::{Helper, Now, Shared, State, Told, Want};
use super::{Error, Network, Sent, Settings};
use crate::options::Options;
use crate::statistics::Statistics;
use crate::talk::{Command, Event, Outcome, Received, Refusal, Ticket};
use crate::token::{self, Members};
use crate::wire::{ALL, Address};

/// Ends of messages that a SAP keeps.
const ENDED: usize = 4096;

/// A station on a network.
///
/// Clones are the same station. When the last has gone, and the last [`Sap`], it leaves its ring, if it is in one, and the
/// network; messages that wait are lost.
#[derive(Clone)]
pub struct Attached(Arc<Handle>);

/// One that counts.
struct Handle(Arc<Shared>, Helper);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Attached {
    /// Attaches station `number`, 1 to 254, to a network.
    ///
    /// # Errors
    /// [`Error::Station`]; [`Error::System`] if there is no such interface or no right to use it, or, over UDP, if this
    /// machine has a station of that number on that network.
    pub fn to(network: &Network, number: u8, settings: &Settings) -> Result<Attached, Error> {
        if !(1..ALL).contains(&number) {
            return Err(Error::Station);
        }
        let (shared, helper) = Shared::open(network, number, settings)?;
        Ok(Attached(Arc::new(Handle(shared, helper))))
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.shared().number
    }

    /// Opens a service access point, even, 2 to 254.
    ///
    /// # Errors
    /// [`Error::Refused`]: invalid, open already, too many are, or the options make no sense.
    pub fn open(&self, sap: u8, options: &Options) -> Result<Sap, Error> {
        let shared = self.shared();
        shared.now(|state, now| {
            state.engine.command(now, Command::Open { sap, options })?;
            state.saps[usize::from(sap >> 1)] = Some(Box::default());
            Ok(())
        })?;
        Ok(Sap(Arc::new(Access { station: self.clone(), number: sap })))
    }

    /// What the station counted.
    pub fn statistics(&self) -> Statistics {
        *self.shared().lock().engine.station().statistics()
    }

    /// Frames that the interface or the system did not take.
    pub fn unsent(&self) -> u64 {
        self.shared().lock().unsent
    }

    /// Who is in its ring: nobody if it is in none.
    pub fn members(&self) -> Members {
        match &self.shared().lock().engine {
            Engine::Ring(ring) => ring.members(),
            Engine::Alone(_) => Members::default(),
        }
    }

    /// What its ring counted; all zeros without one.
    pub fn ring(&self) -> token::Statistics {
        match &self.shared().lock().engine {
            Engine::Ring(ring) => ring.statistics(),
            Engine::Alone(_) => token::Statistics::default(),
        }
    }

    /// The next event of its ring: never [`token::Event::Inner`]. Waits for it, not longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`] if the network fails.
    pub fn ring_event(&self, patience: Option<Duration>) -> Result<token::Event<()>, Error> {
        self.shared().until(patience, |state, _| state.ring.pop_front().ok_or(Error::NotYet))
    }

    /// The next event, with [`Settings::events`]. Waits for it, not longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], also when it is [interrupted](Attached::interrupt); [`Error::System`] if the network fails.
    pub fn next_event(&self, patience: Option<Duration>) -> Result<Event, Error> {
        self.shared().until(patience, |state, _| {
            if std::mem::take(&mut state.interrupted) {
                return Err(Error::TimedOut);
            }
            state.told.pop_front().ok_or(Error::NotYet)
        })
    }

    /// Ends the wait for the [next event](Attached::next_event), or else the next such wait.
    pub fn interrupt(&self) {
        // It refuses nothing.
        let _ = self.shared().now(|state, _| {
            state.interrupted = true;
            Ok(())
        });
    }

    /// Lets the station go like a drop. If this is its last handle, and no [`Sap`] is left, it has left its ring and the
    /// network when this returns: within a second.
    pub fn end(self) {
        if let Some(mut handle) = Arc::into_inner(self.0) {
            let helper = handle.1.take();
            drop(handle);
            // If it panicked it has gone too.
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
/// Clones are the same one. When the last has gone it is closed: what waits in it is lost.
#[derive(Clone)]
pub struct Sap(Arc<Access>);

struct Access {
    station: Attached,
    number: u8,
}

impl Drop for Access {
    fn drop(&mut self) {
        let _ = self.station.shared().now(|state, now| {
            state.saps[usize::from(self.number >> 1)] = None;
            Ok(state.engine.command(now, Command::Close { sap: self.number })?)
        });
    }
}

/// The end of a message that left within the call that sent it, or was to.
fn at_once(ticket: Ticket, outcome: Outcome) -> Sent {
    Sent { ticket, outcome, tries: 1, took: Span::ZERO }
}

/// An answer to TEST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tested {
    /// From whom: the station and SAP that was asked, or a member of the group that was.
    pub from: Address,
    /// Octets that came back.
    pub length: u16,
    /// Whether they are those that were sent.
    pub intact: bool,
}

impl Sap {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.0.number
    }

    /// Its station.
    pub fn station(&self) -> &Attached {
        &self.0.station
    }

    /// Sends a message and does not ask what becomes of it. Waits for room.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is too large, or there is no such destination; [`Error::System`].
    #[inline]
    pub fn send(&self, to: Address, bytes: &[u8]) -> Result<Ticket, Error> {
        self.put(to, bytes, None, None, false)
    }

    /// The same, with another priority than the SAP's, not waiting longer than `patience`.
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

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// [`Error::Full`], and as [`send`](Sap::send).
    pub fn try_send(&self, to: Address, bytes: &[u8]) -> Result<Ticket, Error> {
        self.shared().once(|state, now| Ok(self.attempt(state, now, to, bytes, None)?.0))
    }

    /// Sends messages of which as many leave in one call of the system as [`Settings::batch`] says, and as are of one
    /// length. Waits for room for the first; how many were taken, from the first on.
    ///
    /// # Errors
    /// As [`send`](Sap::send), of the first.
    pub fn send_many<M: AsRef<[u8]>>(&self, to: Address, messages: &[M]) -> Result<usize, Error> {
        let Some((first, rest)) = messages.split_first() else { return Ok(0) };
        self.shared().until(None, |state, now| {
            // The first leaves with the others.
            state.touch();
            self.attempt(state, now, to, first.as_ref(), None)?;
            let more = |message: &M| self.attempt(state, now, to, message.as_ref(), None).is_ok();
            Ok(1 + rest.iter().map(more).take_while(|taken| *taken).count())
        })
    }

    /// Sends a message of which [`ended`](Sap::ended) will tell the end. Waits for room.
    ///
    /// # Errors
    /// As [`send`](Sap::send); [`Error::Refused`] with [`Refusal::Full`] if the ends of 4,096 messages were not asked for.
    pub fn start(&self, to: Address, bytes: &[u8], priority: Option<u8>) -> Result<Ticket, Error> {
        self.put(to, bytes, priority, None, true)
    }

    /// The end of the next message that was [started](Sap::start) here and has come to it.
    ///
    /// # Errors
    /// [`Error::TimedOut`], at once if none is under way; [`Error::System`] if the network fails.
    pub fn ended(&self, patience: Option<Duration>) -> Result<Sent, Error> {
        self.shared().until(patience, |state, _| {
            let told = self.told(state)?;
            match told.ended.pop_front() {
                Some(sent) => Ok(sent),
                None if told.wanted.is_empty() => Err(Error::TimedOut),
                None => Err(Error::NotYet),
            }
        })
    }

    /// Sends a message and waits for its end.
    ///
    /// # Errors
    /// As [`send`](Sap::send); [`Error::System`] if the network fails. That it was not delivered is no error but an
    /// [`Outcome`].
    #[inline]
    pub fn exchange(&self, to: Address, bytes: &[u8]) -> Result<Sent, Error> {
        let (mut sent, mut listed) = (None, false);
        self.shared().until(None, |state, now| {
            let ticket = match sent {
                Some(ticket) => ticket,
                None => {
                    let (ticket, outcome) = self.attempt(state, now, to, bytes, None)?;
                    if let Some(outcome) = outcome {
                        return Ok(at_once(ticket, outcome));
                    }
                    *sent.insert(ticket)
                }
            };
            let handed = state.handed_end(ticket);
            if listed {
                return self.listed(state, ticket, handed);
            }
            if handed.is_none() && !self.shared().will_be_handed(state, now) {
                self.told(state)?.awaited.push((ticket, None));
                listed = true;
            }
            state.want = Want::End(ticket);
            handed.ok_or(Error::NotYet)
        })
    }

    /// The end of a message that was listed as awaited, and no more is when it has come.
    #[cold]
    fn listed(&self, state: &mut State, ticket: Ticket, handed: Option<Sent>) -> Result<Sent, Error> {
        state.want = Want::End(ticket);
        let awaited = &mut self.told(state)?.awaited;
        let at = awaited.iter().position(|(of, _)| *of == ticket).ok_or(Error::NotYet)?;
        let end = handed.or(awaited[at].1).ok_or(Error::NotYet)?;
        awaited.swap_remove(at);
        Ok(end)
    }

    /// The next message, highest priority first; its bytes take the place of what is in `into`. Waits for it.
    ///
    /// # Errors
    /// [`Error::System`] if the network fails.
    #[inline]
    pub fn receive(&self, into: &mut Vec<u8>) -> Result<Received, Error> {
        self.receive_within(into, None)
    }

    /// The same, not waiting longer than `patience`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as [`receive`](Sap::receive).
    #[inline]
    pub fn receive_within(&self, into: &mut Vec<u8>, patience: Option<Duration>) -> Result<Received, Error> {
        self.shared().until(patience, |state, now| self.taken(state, now, into))
    }

    /// The next message, if one is there.
    ///
    /// # Errors
    /// [`Error::NotYet`].
    pub fn try_receive(&self, into: &mut Vec<u8>) -> Result<Received, Error> {
        self.shared().once(|state, now| self.taken(state, now, into))
    }

    /// Asks a station or SAP to send these bytes back (TEST), and waits for the answer; and how long it took. The null SAP
    /// asks the station. One question at a time.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if nobody answers; [`Error::Refused`] if the bytes are too many; [`Error::System`].
    pub fn test(&self, to: Address, bytes: &[u8], patience: Duration) -> Result<(Tested, Span), Error> {
        let begun = self.ask(Command::Test { sap: self.number(), to, bytes })?;
        self.answer(begun, patience, |event| match event {
            Event::Tested { from, length, intact, .. } => Some(Tested { from, length, intact }),
            _ => None,
        })
    }

    /// Asks a station or SAP which types of operation it speaks, 1, 2 and 3 (XID), and waits for the answer; and how long
    /// it took.
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

    /// One more answer to what was last asked, of a group or of all.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`].
    pub fn next_answer(&self, patience: Duration) -> Result<Event, Error> {
        self.shared()
            .until(Some(patience), |state, _| self.told(state)?.answers.pop_front().ok_or(Error::NotYet))
    }

    /// Gives any command to the station: [`Command::Configure`], [`Command::Reset`], and all others.
    ///
    /// # Errors
    /// What the station refuses.
    pub fn command(&self, command: Command<'_>) -> Result<(), Error> {
        self.shared().now(|state, now| Ok(state.engine.command(now, command)?))
    }

    /// Changes how it behaves from now on.
    ///
    /// # Errors
    /// [`Error::Refused`] if the options make no sense.
    pub fn configure(&self, options: &Options) -> Result<(), Error> {
        self.command(Command::Configure { sap: self.number(), options })
    }

    /// Gives up what waits to be sent, or to be taken.
    ///
    /// # Errors
    /// None that is known.
    pub fn reset(&self, sending: bool) -> Result<(), Error> {
        self.command(Command::Reset { sap: self.number(), sending })
    }

    /// Messages and questions that wait to leave, for an answer, or for their end to be told.
    pub fn waiting(&self) -> usize {
        self.shared().lock().engine.station().waiting(self.number())
    }

    /// Messages that wait to be taken.
    pub fn readable(&self) -> usize {
        self.shared().lock().engine.station().readable(self.number())
    }

    #[inline]
    fn shared(&self) -> &Shared {
        self.0.station.shared()
    }

    #[inline]
    fn told<'s>(&self, state: &'s mut State) -> Result<&'s mut Told, Error> {
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
        self.shared().until(patience, |state, now| {
            if wanted && self.told(state)?.ended.len() >= ENDED {
                return Err(Error::Refused(Refusal::Full));
            }
            let (ticket, outcome) = self.attempt(state, now, to, bytes, priority)?;
            if wanted {
                let told = self.told(state)?;
                match outcome {
                    Some(outcome) => told.ended.push_back(at_once(ticket, outcome)),
                    None => told.wanted.push_back(ticket),
                }
            }
            Ok(ticket)
        })
    }

    /// Sends a message if there is room; what became of it, if that is known.
    #[inline]
    fn attempt(
        &self,
        state: &mut State,
        now: &mut Now,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<(Ticket, Option<Outcome>), Error> {
        if state.has_too_much_to_tell() {
            return Err(Error::Full);
        }
        Ok(self.shared().send(state, now.get(), self.number(), to, bytes, priority)?)
    }

    #[inline]
    fn taken(&self, state: &mut State, now: &mut Now, into: &mut Vec<u8>) -> Result<Received, Error> {
        if let Some(received) = state.handed_message(into) {
            return Ok(received);
        }
        let taken = state.engine.message(now, self.number(), into)?;
        state.want = Want::Message(self.number());
        taken.ok_or(Error::NotYet)
    }

    fn ask(&self, command: Command<'_>) -> Result<Instant, Error> {
        self.shared().now(|state, now| {
            self.told(state)?.answers.clear();
            state.engine.command(now, command)?;
            Ok(now)
        })
    }

    fn answer<T>(
        &self,
        begun: Instant,
        patience: Duration,
        mut fits: impl FnMut(Event) -> Option<T>,
    ) -> Result<(T, Span), Error> {
        self.shared().until(Some(patience), |state, now| {
            let answers = &mut self.told(state)?.answers;
            while let Some(event) = answers.pop_front() {
                if let Some(answer) = fits(event) {
                    return Ok((answer, now.get().since(begun)));
                }
            }
            Err(Error::NotYet)
        })
    }
}
