//! [`Host`]: between the central converter and the simulation of one host.

use thiserror::Error;
use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::drops::{Drops, Unsent, Why};
use crate::gather::Gather;
pub use crate::inbox::{From, WAITING};
use crate::inbox::{Inbox, Sink};
use crate::level::{LEAST, Level, Told};
use crate::retell::{REFUSED, Retell};
use crate::settings::Settings;
use crate::wide;
use crate::wire::classic::{ADDRESS, Bundle, CONTROL, Control, HOST_CONTROL, MOST_HOSTS, Source, bit};

/// The interface of a host.
///
/// Bounds: 65 bundles for the central converter, and [`WAITING`] octets of messages for the simulation. What finds no room
/// is dropped and [counted](Statistics::drops).
#[derive(Debug)]
pub struct Host(Machine);

#[derive(Debug)]
enum Machine {
    Classic(Box<Classic>),
    Wide(Box<wide::host::Machine>),
}

/// The machine of 1997.
#[derive(Debug)]
struct Classic {
    settings: Settings,
    bit: u16,
    gather: Gather,
    level: Told,
    allowed: u8,
    allowed_until: Instant,
    inbox: Inbox,
    /// Whether the level changed and that is to be told.
    told: u8,
    /// Addresses that it wants, a bit each; and those that it wants no more, which are told once more.
    joined: Box<[u64]>,
    left: Box<[u64]>,
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
    /// Wants none of these addresses, has said so, and says it once more soon: what it said may be lost. Those that it wants
    /// are left out. The wide format does that by itself.
    DropAgain {
        /// The first.
        first: u16,
        /// The last.
        last: u16,
    },
    /// Wants nothing any more. If that does not find room at once it is refused, and to be asked again.
    DropAll,
    /// The central converter refused a bundle: when it is back it knows nothing.
    Refused,
    /// Sends a message, with all that can be said of it.
    Post(Post<'a>),
    /// Wants the messages with these addresses. Of the wide format, as all below.
    JoinRange {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
    /// No more.
    DropRange {
        /// The first.
        first: u32,
        /// The last.
        last: u32,
    },
    /// It takes no more than so many ordinary messages a second; none: any.
    Saturate(Option<u32>),
    /// It ends, and says so.
    Bye,
    /// Takes the next message: the oldest, with what is known of it.
    Receive {
        /// Its body takes the place of what is there.
        into: &'a mut Vec<u8>,
        /// Set to what is known of it; none: there is no message.
        from: &'a mut Option<From>,
    },
}

/// A message and what can be said of it.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// To whom; up to 65,535 in the classic format.
    pub address: u32,
    /// Whether it has priority; in the classic format its address says that, and this is to be the same.
    pub priority: bool,
    /// How long it may wait in a converter at the most, whatever the settings say; only what has priority says so. The
    /// classic format tells nobody else.
    pub within: Option<Span>,
    /// All behind the address.
    pub body: &'a [u8],
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
    /// A range of addresses ends before it begins.
    #[error("a range of addresses that ends before it begins")]
    Range,
    /// The classic format has no such address or command.
    #[error("the classic format does not have that")]
    Format,
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
    /// Joins and drops told again.
    pub retold: u64,
    /// Bundles that were none, and control that makes no sense.
    pub malformed: u64,
    /// What the numbers of messages told; this and all up to drops of the wide format only.
    pub path: crate::path::Counts,
    /// Messages of bundles that did not come, or came late.
    pub lost: u64,
    /// Those of them that went to all hosts, whoever wanted them.
    pub lost_to_all: u64,
    /// Messages sent again, until they were acknowledged.
    pub repeated: u64,
    /// Sessions that the central converter gave: more than one if either restarted, or they lost each other.
    pub sessions: u64,
    /// Times that the central converter was silent for too long.
    pub lonely: u64,
    /// Bundles of an earlier session.
    pub stale: u64,
    /// Messages dropped: those refused when they were sent, and those that found no room when they came.
    pub drops: Drops,
}

impl Host {
    /// The one port, to the central converter.
    pub const CENTRAL: Port = Port(0);

    /// Host `number`, from 1 on: up to 16 in the classic format.
    ///
    /// # Panics
    /// If it has another number.
    pub fn new(number: u8, settings: Settings) -> Host {
        Host::with_life(number.into(), 0, settings)
    }

    /// The same in its `life`, and with any number: of the wide format, in which each start has a higher life (in a circle
    /// of 2³²).
    ///
    /// # Panics
    /// If it has number 0, or one that the format does not have.
    pub fn with_life(number: u16, life: u32, settings: Settings) -> Host {
        assert!(number > 0, "hosts have numbers from 1 on");
        Host(match settings.wide() {
            None => {
                assert!(number <= MOST_HOSTS.into(), "hosts are 1 to {MOST_HOSTS}");
                Machine::Classic(Box::new(Classic::new(number as u8, settings)))
            }
            Some(wide) => Machine::Wide(Box::new(wide::host::Machine::new(number, life, &settings, wide))),
        })
    }

    /// Takes a datagram from the central converter and gives each message for this host to `each` at once: with what is known
    /// of it, and its body as it stands in the datagram. None of them waits to be taken. All else is as with a frame.
    pub fn hear(&mut self, now: Instant, datagram: &[u8], each: &mut impl FnMut(From, &[u8])) {
        match &mut self.0 {
            Machine::Classic(classic) => classic.take_bundle(now, datagram, each),
            Machine::Wide(wide) => wide.hear(now, datagram, each),
        }
    }

    /// Tells again what it wants, every so often (zero: only after a refusal): a central converter that restarts has
    /// forgotten. And once more what it wants no more: that may have been lost. The wide format does that by itself.
    pub fn retelling(mut self, every: Span) -> Host {
        if let Machine::Classic(classic) = &mut self.0 {
            classic.retell = Retell::new(every);
            classic.level.fades = true;
        }
        self
    }

    /// Addresses that it wants; of a pair the even one, and in the wide format both.
    pub fn joined(&self) -> usize {
        match &self.0 {
            Machine::Classic(classic) => classic.joined.iter().map(|word| word.count_ones() as usize).sum(),
            Machine::Wide(wide) => wide.joined(),
        }
    }

    /// Whether it wants the messages with an address; of a pair, whether it wants either.
    pub fn wants(&self, address: u32) -> bool {
        match &self.0 {
            Machine::Classic(classic) => u16::try_from(address).is_ok_and(|address| classic.wants(address)),
            Machine::Wide(wide) => wide.wants(address),
        }
    }

    /// What it counted.
    pub fn statistics(&self) -> &Statistics {
        match &self.0 {
            Machine::Classic(classic) => &classic.statistics,
            Machine::Wide(wide) => wide.statistics(),
        }
    }

    /// The level of congestion that the central converter told, 3 to 6, as far as that still holds.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.0 {
            Machine::Classic(classic) => classic.level.at(now),
            Machine::Wide(wide) => wide.level(now),
        }
    }

    /// Whether something for the central converter has not left yet, or in the wide format was not heard of.
    pub fn is_saying(&self) -> bool {
        match &self.0 {
            Machine::Classic(classic) => classic.gather.is_ready() || classic.gather.deadline().is_some(),
            Machine::Wide(wide) => wide.is_saying(),
        }
    }
}

impl Classic {
    fn new(number: u8, settings: Settings) -> Classic {
        Classic {
            settings,
            bit: bit(number),
            gather: Gather::new(Some(Source::Host(number)), settings.longest, settings.timing),
            level: Told::NONE,
            allowed: 0,
            allowed_until: Instant::ZERO,
            inbox: Inbox::default(),
            told: LEAST,
            joined: vec![0; 65_536 / 64].into(),
            left: vec![0; 65_536 / 64].into(),
            retell: Retell::new(Span::ZERO),
            statistics: Statistics::default(),
        }
    }

    fn post(&mut self, now: Instant, post: &Post<'_>) -> Result<(), Refusal> {
        let address = u16::try_from(post.address).map_err(|_| Refusal::Format)?;
        if self.settings.is_priority(address) != (post.priority || post.within.is_some()) {
            return Err(Refusal::Format);
        }
        self.send(now, address, post.within, post.body)
    }

    fn send(&mut self, now: Instant, address: u16, within: Option<Span>, body: &[u8]) -> Result<(), Refusal> {
        let priority = self.settings.is_priority(address);
        let octets = ADDRESS + body.len();
        let refused = if octets == CONTROL || octets == HOST_CONTROL {
            Some((Why::Control, Refusal::Control(octets)))
        } else if octets + ADDRESS + 3 > self.settings.longest {
            Some((Why::Unfit, Refusal::TooLong))
        } else {
            if now >= self.allowed_until {
                (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
            }
            let level = self.level.at(now);
            (!Level::admit(level, &mut self.allowed, priority))
                .then_some((Why::Congestion, Refusal::Congested(level)))
        };
        if let Some((why, refusal)) = refused {
            self.statistics.drops.count(why, priority);
            return Err(refusal);
        }
        if !self.gather.push_within(now, address, body, priority, within) {
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
        let (word, bit) = self.bit_of(address);
        let (joined, left) = (&mut self.joined[word], &mut self.left[word]);
        (*joined, *left) = if joins { (*joined | bit, *left & !bit) } else { (*joined & !bit, *left | bit) };
        self.retell.keep(now);
        Ok(())
    }

    /// Tells once more, a handful at a time, that it does not want these; of a pair whichever is named.
    fn leave_again(&mut self, now: Instant, first: u16, last: u16) {
        for address in first..=last {
            let (word, bit) = self.bit_of(address);
            self.left[word] |= bit & !self.joined[word];
        }
        self.retell.soon(now);
    }

    fn wants(&self, address: u16) -> bool {
        let (word, bit) = self.bit_of(address);
        self.joined[word] & bit != 0
    }

    /// The word of an address in what is joined, and its bit there; of a pair those of the even one.
    fn bit_of(&self, address: u16) -> (usize, u64) {
        let address = if self.settings.pairs { address & !1 } else { address };
        (usize::from(address / 64), 1 << (address % 64))
    }

    fn drop_all(&mut self, now: Instant) -> Result<(), Refusal> {
        while let Some(address) = next_of(&self.joined, 0) {
            self.join(now, address as u16, false)?;
        }
        Ok(())
    }

    fn tell(&mut self, now: Instant, control: Control) -> bool {
        let (address, body) = control.write();
        self.gather.tell(now, address, &body)
    }

    /// Tells again what is due.
    fn retell(&mut self, now: Instant) {
        let Classic { retell, joined, left, gather, statistics, .. } = self;
        let mut due = Vec::new();
        let next = |from| next_of(joined, from).into_iter().chain(next_of(left, from)).min();
        retell.tell(now, next, |address| due.push(address));
        for address in due {
            let (word, bit) = (address / 64, 1 << (address % 64));
            let joins = joined[word] & bit != 0;
            let of = address as u16;
            let (address, body) = if joins { Control::Join(of) } else { Control::Drop(of) }.write();
            // What finds no room is told the next time.
            if gather.tell(now, address, &body) {
                statistics.retold += 1;
                left[word] &= !bit;
            }
        }
    }

    fn take_bundle(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) {
        let Ok(bundle) = Bundle::read(bytes) else { return self.statistics.malformed += 1 };
        self.statistics.bundles += 1;
        for message in bundle.messages() {
            if message.octets() == HOST_CONTROL {
                match Control::read_for_host(message) {
                    Some(Control::Level(level)) => self.level.hear(now, level),
                    _ => self.statistics.malformed += 1,
                }
            } else if message.address & self.bit == 0 {
                self.statistics.others += 1;
            } else {
                // The address that said whether it has priority is gone.
                let from = From { address: message.address.into(), ..From::default() };
                match sink.push(from, message.body) {
                    true => self.statistics.received += 1,
                    false => self.statistics.drops.count(Why::Full, false),
                }
            }
        }
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

impl Endpoint for Classic {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        match input {
            Input::Frame { port: Host::CENTRAL, bytes, segment, .. } => {
                let mut inbox = std::mem::take(&mut self.inbox);
                Segment::frames(segment, bytes).for_each(|bundle| self.take_bundle(now, bundle, &mut inbox));
                self.inbox = inbox;
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
            Input::Command(Command::Send { address, body }) => self.send(now, address, None, body),
            Input::Command(Command::Join(address)) => self.join(now, address, true),
            Input::Command(Command::Drop(address)) => self.join(now, address, false),
            Input::Command(Command::DropAgain { first, last }) => {
                self.leave_again(now, first, last);
                Ok(())
            }
            Input::Command(Command::DropAll) => self.drop_all(now),
            Input::Command(Command::Refused) => {
                self.retell.anew(now + REFUSED);
                Ok(())
            }
            Input::Command(Command::Receive { into, from }) => {
                *from = self.inbox.take(into);
                Ok(())
            }
            Input::Command(Command::Post(post)) => self.post(now, &post),
            Input::Command(
                Command::JoinRange { .. } | Command::DropRange { .. } | Command::Saturate(_) | Command::Bye,
            ) => Err(Refusal::Format),
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        self.gather.roll(now);
        if self.inbox.became_readable() {
            return Output::Event(Event::Readable);
        }
        if self.told != self.level.at(now) {
            self.told = self.level.at(now);
            return Output::Event(Event::Level(self.told));
        }
        if writable.has(Host::CENTRAL)
            && let Some(length) = self.gather.leave(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Host::CENTRAL, peer, length, segment: None });
        }
        let reason = if self.gather.is_ready() { Reason::Port(Host::CENTRAL) } else { Reason::Input };
        let others = [self.retell.deadline(), self.level.deadline(now)];
        let deadline = self.gather.deadline().into_iter().chain(others.into_iter().flatten()).min();
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Host {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.handle(now, input),
            Machine::Wide(wide) => wide.handle(now, input),
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        match &mut self.0 {
            Machine::Classic(classic) => classic.poll(now, writable, buffer),
            Machine::Wide(wide) => wide.poll(now, writable, buffer),
        }
    }
}

impl Unsent for Host {
    fn unsent(&mut self, _: Port, frame: &[u8]) {
        match &mut self.0 {
            Machine::Classic(classic) => {
                let Ok((_, bundle)) = Bundle::read_with_mask(frame) else { return };
                let is_priority = |address: u16| classic.settings.is_priority(address);
                classic.statistics.drops.unsent_classic(&bundle, is_priority);
            }
            Machine::Wide(wide) => wide.unsent(frame),
        }
    }
}
