//! [`Host`]: between the central converter and the simulation of one host.

use std::collections::VecDeque;

use thiserror::Error;
use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::drops::{Drops, Why};
use crate::gather::Gather;
use crate::level::{LEAST, Level};
use crate::retell::{REFUSED, Retell};
use crate::settings::Settings;
use crate::wire::classic::{ADDRESS, Bundle, CONTROL, Control, HOST_CONTROL, Source, bit};

/// Octets of messages that may wait to be taken.
pub const WAITING: usize = 4 << 20;

/// The interface of a host.
///
/// Bounds: 65 bundles for the central converter, and [`WAITING`] octets of messages for the simulation. What finds no room
/// is dropped and [counted](Statistics::drops).
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    bit: u16,
    gather: Gather,
    level: u8,
    allowed: u8,
    allowed_until: Instant,
    inbox: VecDeque<Vec<u8>>,
    held: usize,
    spare: Vec<Vec<u8>>,
    /// Whether it is to be told that there are messages.
    readable: bool,
    /// Whether the level changed and that is to be told.
    told: u8,
    /// Addresses that it wants, a bit each.
    joined: Box<[u64]>,
    retell: Retell,
    statistics: Statistics,
}

/// What it is asked.
#[derive(Debug)]
pub enum Command<'a> {
    /// Sends a message.
    Send {
        /// To whom.
        address: u16,
        /// All behind the address.
        body: &'a [u8],
    },
    /// Wants the messages with an address.
    Join(u16),
    /// No more.
    Drop(u16),
    /// Wants nothing any more. If that does not find room at once it is refused, and to be asked again.
    DropAll,
    /// The central converter refused a bundle: when it is back it knows nothing.
    Refused,
    /// Takes the next message: the oldest.
    Take {
        /// Its body takes the place of what is there.
        into: &'a mut Vec<u8>,
        /// Set to whether there was one.
        taken: &'a mut bool,
    },
}

/// What it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message can be taken, where there was none.
    Readable,
    /// The level of congestion is now this, 3 (none) to 6.
    Level(u8),
}

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The format would take it for control.
    #[error(
        "a classic message of {0} octets with its address would be taken for control; send one octet more"
    )]
    Control(usize),
    /// It is longer than a bundle.
    #[error("the message does not fit into a bundle")]
    TooLong,
    /// The level of congestion lets no more ordinary messages go in this interval.
    #[error("the network is congested, at level {0} of 3 to 6")]
    Congested(u8),
    /// As many bundles wait as may.
    #[error("as many messages wait as may")]
    Full,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bundles from the central converter.
    pub bundles: u64,
    /// Messages for this host.
    pub received: u64,
    /// Messages for others, passed over.
    pub others: u64,
    /// Messages sent.
    pub sent: u64,
    /// Bundles sent.
    pub bundles_sent: u64,
    /// Joins told again.
    pub retold: u64,
    /// Bundles that were none, and control that makes no sense.
    pub malformed: u64,
    /// Messages dropped: those refused when they were sent, and those that found no room when they came.
    pub drops: Drops,
}

impl Host {
    /// The one port, to the central converter.
    pub const CENTRAL: Port = Port(0);

    /// Host `number`, 1 to 16.
    pub fn new(number: u8, settings: Settings) -> Host {
        Host {
            settings,
            bit: bit(number),
            gather: Gather::new(Some(Source::Host(number)), settings.longest, settings.timing),
            level: LEAST,
            allowed: 0,
            allowed_until: Instant::ZERO,
            inbox: VecDeque::new(),
            held: 0,
            spare: Vec::new(),
            readable: false,
            told: LEAST,
            joined: vec![0; 65_536 / 64].into(),
            retell: Retell::new(Span::ZERO),
            statistics: Statistics::default(),
        }
    }

    /// Tells again what it wants, every so often (zero: only after a refusal): a central converter that restarts has
    /// forgotten.
    pub fn retelling(mut self, every: Span) -> Host {
        self.retell = Retell::new(every);
        self
    }

    /// Addresses that it wants; of a pair the even one.
    pub fn joined(&self) -> usize {
        self.joined.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// What it counted.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The level of congestion that the central converter last told, 3 to 6.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Whether something for the central converter has not left yet.
    pub fn is_saying(&self) -> bool {
        self.gather.is_ready() || self.gather.deadline().is_some()
    }

    fn send(&mut self, now: Instant, address: u16, body: &[u8]) -> Result<(), Refusal> {
        let priority = self.settings.is_priority(address);
        let octets = ADDRESS + body.len();
        let refused = if octets == CONTROL || octets == HOST_CONTROL {
            Some((Why::Control, Refusal::Control(octets)))
        } else if octets + ADDRESS + 3 > self.settings.longest {
            Some((Why::Unfit, Refusal::TooLong))
        } else {
            if now >= self.allowed_until {
                (self.allowed, self.allowed_until) = (0, now + crate::level::Medium::default().interval);
            }
            (!Level::admit(self.level, &mut self.allowed, priority))
                .then_some((Why::Congestion, Refusal::Congested(self.level)))
        };
        if let Some((why, refusal)) = refused {
            self.statistics.drops.count(why, priority);
            return Err(refusal);
        }
        if !self.gather.push(now, address, body, priority) {
            self.statistics.drops.count(Why::Full, priority);
            return Err(Refusal::Full);
        }
        self.statistics.sent += 1;
        Ok(())
    }

    /// Tells the central converter, and remembers what was told.
    fn join(&mut self, now: Instant, address: u16, joins: bool) -> Result<(), Refusal> {
        let control = if joins { Control::Join(address) } else { Control::Drop(address) };
        if !self.tell(now, control) {
            return Err(Refusal::Full);
        }
        let address = if self.settings.pairs { address & !1 } else { address };
        let (word, bit) = (&mut self.joined[usize::from(address / 64)], 1 << (address % 64));
        *word = if joins { *word | bit } else { *word & !bit };
        self.retell.keep(now);
        Ok(())
    }

    fn drop_all(&mut self, now: Instant) -> Result<(), Refusal> {
        while let Some(address) = next_of(&self.joined, 0) {
            self.join(now, address as u16, false)?;
        }
        Ok(())
    }

    fn tell(&mut self, now: Instant, control: Control) -> bool {
        let (address, body) = control.write();
        self.gather.push(now, address, &body, true)
    }

    /// Tells again what is due.
    fn retell(&mut self, now: Instant) {
        let Host { retell, joined, gather, statistics, .. } = self;
        retell.tell(
            now,
            |from| next_of(joined, from),
            |address| {
                let (address, body) = Control::Join(address as u16).write();
                // What finds no room is told the next time.
                statistics.retold += u64::from(gather.push(now, address, &body, true));
            },
        );
    }

    fn take_bundle(&mut self, bytes: &[u8]) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        self.statistics.bundles += 1;
        for message in bundle.messages() {
            if message.octets() == HOST_CONTROL {
                match Control::read_for_host(message) {
                    Some(Control::Level(level)) => self.level = level,
                    _ => self.statistics.malformed += 1,
                }
            } else if message.address & self.bit == 0 {
                self.statistics.others += 1;
            } else if self.held + message.body.len() > WAITING {
                // The address that said whether it has priority is gone.
                self.statistics.drops.count(Why::Full, false);
            } else {
                let mut kept = self.spare.pop().unwrap_or_default();
                kept.clear();
                kept.extend_from_slice(message.body);
                self.held += kept.len();
                self.readable |= self.inbox.is_empty();
                self.inbox.push_back(kept);
                self.statistics.received += 1;
            }
        }
    }

    fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(mut message) = self.inbox.pop_front() else { return false };
        self.held -= message.len();
        std::mem::swap(into, &mut message);
        if self.spare.len() < 1_024 {
            self.spare.push(message);
        }
        true
    }
}

/// The first bit from one on that is set.
fn next_of(words: &[u64], from: usize) -> Option<usize> {
    let rest = words.get(from / 64)? >> (from % 64);
    if rest != 0 {
        return Some(from + rest.trailing_zeros() as usize);
    }
    let at = from / 64 + 1;
    let behind = words[at..].iter().position(|word| *word != 0)?;
    Some((at + behind) * 64 + words[at + behind].trailing_zeros() as usize)
}

impl Endpoint for Host {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        match input {
            Input::Frame { port: Host::CENTRAL, bytes, segment, .. } => {
                Segment::frames(segment, bytes).for_each(|bundle| self.take_bundle(bundle));
                Ok(())
            }
            Input::Frame { .. } => {
                self.statistics.malformed += 1;
                Ok(())
            }
            Input::Wake => {
                self.retell(now);
                self.gather.roll(now);
                Ok(())
            }
            Input::Command(Command::Send { address, body }) => self.send(now, address, body),
            Input::Command(Command::Join(address)) => self.join(now, address, true),
            Input::Command(Command::Drop(address)) => self.join(now, address, false),
            Input::Command(Command::DropAll) => self.drop_all(now),
            Input::Command(Command::Refused) => {
                self.retell.anew(now + REFUSED);
                Ok(())
            }
            Input::Command(Command::Take { into, taken }) => {
                *taken = self.take(into);
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if std::mem::take(&mut self.readable) {
            return Output::Event(Event::Readable);
        }
        if self.told != self.level {
            self.told = self.level;
            return Output::Event(Event::Level(self.level));
        }
        if writable.has(Host::CENTRAL)
            && let Some(length) = self.gather.leave(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Host::CENTRAL, peer, length, segment: None });
        }
        let reason = if self.gather.is_ready() { Reason::Port(Host::CENTRAL) } else { Reason::Input };
        let deadline = self.gather.deadline().into_iter().chain(self.retell.deadline()).min();
        Output::Idle(Idle { deadline, reason })
    }
}
