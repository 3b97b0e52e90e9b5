//! [`Host`]: the endpoint between the central converter and the simulation of one host.

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Span};

use crate::api::HOST_CENTRAL_PORT;
pub use crate::api::{CommandError, HostCommand, HostEvent, OutgoingMessage};
use crate::bundler::Bundler;
use crate::drops::{CountUnsent, DropReason};
use crate::format2;
pub use crate::inbox::{INBOX_OCTETS, MessageInfo};
use crate::inbox::{Inbox, Sink};
use crate::level::{Level, MIN_LEVEL, ReportedLevel};
use crate::refresh::{AFTER_REFUSAL, Refresh};
use crate::settings::Settings;
pub use crate::statistics::HostStatistics;
use crate::wire::classic::{
    ADDRESS, CONTROL, ClassicBundle, ClassicControl, HOST_CONTROL, MAX_HOSTS, Source, host_bit,
};

/// The endpoint of a host.
///
/// Bounds: 65 bundles for the central converter and [`INBOX_OCTETS`] octets of messages for the simulation. Further
/// messages are dropped and [counted](HostStatistics::drops).
#[derive(Debug)]
pub struct Host(HostFormat);

#[derive(Debug)]
enum HostFormat {
    Classic(Box<ClassicHost>),
    Format2(Box<format2::host::Format2Host>),
}

/// The host in format 1 (classic).
#[derive(Debug)]
struct ClassicHost {
    settings: Settings,
    bit: u16,
    bundler: Bundler,
    level: ReportedLevel,
    allowed: u8,
    allowed_until: Instant,
    inbox: Inbox,
    /// The level last reported as an event.
    reported_level: u8,
    /// One bit per joined address, and per left address whose leave is repeated once.
    joined: Box<[u64]>,
    left: Box<[u64]>,
    refresh: Refresh,
    statistics: HostStatistics,
}

impl Host {
    /// The only port, to the central converter.
    pub const CENTRAL: Port = HOST_CENTRAL_PORT;

    /// Creates host `number`, from 1 on, at most 16 in format 1 (classic).
    ///
    /// # Panics
    /// Panics if the number is out of range.
    pub fn new(number: u8, settings: Settings) -> Host {
        Host::with_incarnation(number.into(), 0, settings)
    }

    /// Creates a host with an `incarnation`, for format 2. Each start needs a higher one, modulo 2³².
    ///
    /// # Panics
    /// Panics if the number is 0 or above the limit of the format.
    pub fn with_incarnation(number: u16, incarnation: u32, settings: Settings) -> Host {
        assert!(number > 0, "host numbers start at 1");
        Host(match settings.format2() {
            None => {
                assert!(number <= MAX_HOSTS.into(), "host numbers are 1 to {MAX_HOSTS}");
                HostFormat::Classic(Box::new(ClassicHost::new(number as u8, settings)))
            }
            Some(format2) => HostFormat::Format2(Box::new(format2::host::Format2Host::new(
                number,
                incarnation,
                &settings,
                format2,
            ))),
        })
    }

    /// Handles a datagram from the central converter and passes each message for this host to `each` at once, with
    /// its metadata and the body borrowed from the datagram. The messages bypass the inbox. Otherwise this equals
    /// handling a frame.
    pub fn receive(&mut self, now: Instant, datagram: &[u8], each: &mut impl FnMut(MessageInfo, &[u8])) {
        match &mut self.0 {
            HostFormat::Classic(classic) => classic.receive_bundle(now, datagram, each),
            HostFormat::Format2(format2) => format2.receive(now, datagram, each),
        }
    }

    /// Repeats the joins at this interval, since a restarted central converter has lost them; zero repeats them only
    /// after a refusal. Each leave is repeated once. Format 2 ignores this: it confirms changes.
    pub fn with_refresh(mut self, every: Span) -> Host {
        if let HostFormat::Classic(classic) = &mut self.0 {
            classic.refresh = Refresh::new(every);
            classic.level.expires = true;
        }
        self
    }

    /// Returns the number of joined addresses. A pair counts once in format 1 (classic) and twice in format 2.
    pub fn joined(&self) -> usize {
        match &self.0 {
            HostFormat::Classic(classic) => {
                classic.joined.iter().map(|word| word.count_ones() as usize).sum()
            }
            HostFormat::Format2(format2) => format2.joined(),
        }
    }

    /// Returns whether the host has joined an address, or with pairs, its pair.
    pub fn has_joined(&self, address: u32) -> bool {
        match &self.0 {
            HostFormat::Classic(classic) => {
                u16::try_from(address).is_ok_and(|address| classic.has_joined(address))
            }
            HostFormat::Format2(format2) => format2.has_joined(address),
        }
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &HostStatistics {
        match &self.0 {
            HostFormat::Classic(classic) => &classic.statistics,
            HostFormat::Format2(format2) => format2.statistics(),
        }
    }

    /// Returns the congestion level that the central converter last sent, 3 to 6, unless it has expired.
    pub fn level(&self, now: Instant) -> u8 {
        match &self.0 {
            HostFormat::Classic(classic) => classic.level.current(now),
            HostFormat::Format2(format2) => format2.level(now),
        }
    }

    /// Returns whether anything waits to be sent or, in format 2, to be confirmed.
    pub fn has_pending(&self) -> bool {
        match &self.0 {
            HostFormat::Classic(classic) => {
                classic.bundler.is_ready() || classic.bundler.deadline().is_some()
            }
            HostFormat::Format2(format2) => format2.has_pending(),
        }
    }
}

impl ClassicHost {
    fn new(number: u8, settings: Settings) -> ClassicHost {
        ClassicHost {
            settings,
            bit: host_bit(number),
            bundler: Bundler::new(Some(Source::Host(number)), settings.max_bundle, settings.timing),
            level: ReportedLevel::NONE,
            allowed: 0,
            allowed_until: Instant::ZERO,
            inbox: Inbox::default(),
            reported_level: MIN_LEVEL,
            joined: vec![0; 65_536 / 64].into(),
            left: vec![0; 65_536 / 64].into(),
            refresh: Refresh::new(Span::ZERO),
            statistics: HostStatistics::default(),
        }
    }

    fn send_message(&mut self, now: Instant, message: &OutgoingMessage<'_>) -> Result<(), CommandError> {
        let address = u16::try_from(message.address).map_err(|_| CommandError::Format)?;
        if self.settings.is_priority(address) != (message.priority || message.max_wait.is_some()) {
            return Err(CommandError::Format);
        }
        self.send(now, address, message.max_wait, message.body)
    }

    fn send(
        &mut self,
        now: Instant,
        address: u16,
        max_wait: Option<Span>,
        body: &[u8],
    ) -> Result<(), CommandError> {
        let priority = self.settings.is_priority(address);
        let octets = ADDRESS + body.len();
        let refused = if octets == CONTROL || octets == HOST_CONTROL {
            Some((DropReason::Control, CommandError::Control(octets)))
        } else if octets + ADDRESS + 3 > self.settings.max_bundle {
            Some((DropReason::Unfit, CommandError::TooLong))
        } else {
            if now >= self.allowed_until {
                (self.allowed, self.allowed_until) = (0, now + self.settings.interval);
            }
            let level = self.level.current(now);
            (!Level::admit(level, &mut self.allowed, priority))
                .then_some((DropReason::Congestion, CommandError::Congested(level)))
        };
        if let Some((reason, refusal)) = refused {
            self.statistics.drops.count(reason, priority);
            return Err(refusal);
        }
        if !self.bundler.push_with_deadline(now, address, body, priority, max_wait) {
            self.statistics.drops.count(DropReason::Full, priority);
            return Err(CommandError::Full);
        }
        self.statistics.sent += 1;
        Ok(())
    }

    /// Sends a join or leave and records it for the refresh.
    fn join(&mut self, now: Instant, address: u16, joins: bool) -> Result<(), CommandError> {
        let control = if joins { ClassicControl::Join(address) } else { ClassicControl::Drop(address) };
        if !self.send_control(now, control) {
            return Err(CommandError::Full);
        }
        let (word, bit) = self.bit_position(address);
        let (joined, left) = (&mut self.joined[word], &mut self.left[word]);
        (*joined, *left) = if joins { (*joined | bit, *left & !bit) } else { (*joined & !bit, *left | bit) };
        self.refresh.schedule(now);
        Ok(())
    }

    /// Schedules a second leave of these addresses, which are sent in batches. With pairs, any address stands for its
    /// pair.
    fn repeat_leave(&mut self, now: Instant, first: u16, last: u16) {
        for address in first..=last {
            let (word, bit) = self.bit_position(address);
            self.left[word] |= bit & !self.joined[word];
        }
        self.refresh.schedule_now(now);
    }

    fn has_joined(&self, address: u16) -> bool {
        let (word, bit) = self.bit_position(address);
        self.joined[word] & bit != 0
    }

    /// Returns the word and the bit of an address; of a pair, those of the even address.
    fn bit_position(&self, address: u16) -> (usize, u64) {
        let address = if self.settings.pairs { address & !1 } else { address };
        (usize::from(address / 64), 1 << (address % 64))
    }

    fn drop_all(&mut self, now: Instant) -> Result<(), CommandError> {
        while let Some(address) = next_set_bit(&self.joined, 0) {
            self.join(now, address as u16, false)?;
        }
        Ok(())
    }

    fn send_control(&mut self, now: Instant, control: ClassicControl) -> bool {
        let (address, body) = control.write();
        self.bundler.push_control(now, address, &body)
    }

    /// Sends the refreshes that are due.
    fn send_refresh(&mut self, now: Instant) {
        let ClassicHost { refresh, joined, left, bundler, statistics, .. } = self;
        let mut due = Vec::new();
        let next = |from| next_set_bit(joined, from).into_iter().chain(next_set_bit(left, from)).min();
        refresh.send_due(now, next, |address| due.push(address));
        for address in due {
            let (word, bit) = (address / 64, 1 << (address % 64));
            let joins = joined[word] & bit != 0;
            let of = address as u16;
            let (address, body) =
                if joins { ClassicControl::Join(of) } else { ClassicControl::Drop(of) }.write();
            // A refresh without room is sent in the next cycle.
            if bundler.push_control(now, address, &body) {
                statistics.refreshed += 1;
                left[word] &= !bit;
            }
        }
    }

    fn receive_bundle(&mut self, now: Instant, bytes: &[u8], sink: &mut impl Sink) {
        let Ok(bundle) = ClassicBundle::read(bytes) else { return self.statistics.malformed += 1 };
        self.statistics.bundles_received += 1;
        for message in bundle.messages() {
            if message.octets() == HOST_CONTROL {
                match ClassicControl::read_for_host(message) {
                    Some(ClassicControl::Level(level)) => self.level.update(now, level),
                    _ => self.statistics.malformed += 1,
                }
            } else if message.address & self.bit == 0 {
                self.statistics.for_others += 1;
            } else {
                // The address that shows the priority was replaced by the group.
                let from = MessageInfo { address: message.address.into(), ..MessageInfo::default() };
                match sink.push(from, message.body) {
                    true => self.statistics.received += 1,
                    false => self.statistics.drops.count(DropReason::Full, false),
                }
            }
        }
    }
}

/// Returns the first set bit at or after `from`.
fn next_set_bit(words: &[u64], from: usize) -> Option<usize> {
    let rest = words.get(from / 64)? >> (from % 64);
    if rest != 0 {
        return Some(from + rest.trailing_zeros() as usize);
    }
    let at = from / 64 + 1;
    let later = words[at..].iter().position(|word| *word != 0)?;
    Some((at + later) * 64 + words[at + later].trailing_zeros() as usize)
}

impl Endpoint for ClassicHost {
    type Command<'a> = HostCommand<'a>;
    type Event = HostEvent;
    type Refusal = CommandError;

    fn handle(&mut self, now: Instant, input: Input<'_, HostCommand<'_>>) -> Result<(), CommandError> {
        match input {
            Input::Frame { port: Host::CENTRAL, bytes, segment, .. } => {
                let mut inbox = std::mem::take(&mut self.inbox);
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, bundle, &mut inbox));
                self.inbox = inbox;
                Ok(())
            }
            Input::Frame { .. } => {
                self.statistics.malformed += 1;
                Ok(())
            }
            Input::Wake => {
                self.send_refresh(now);
                self.bundler.close_if_due(now);
                Ok(())
            }
            Input::Command(HostCommand::Send { address, body }) => self.send(now, address, None, body),
            Input::Command(HostCommand::Join(address)) => self.join(now, address, true),
            Input::Command(HostCommand::Drop(address)) => self.join(now, address, false),
            Input::Command(HostCommand::DropAgain { first, last }) => {
                self.repeat_leave(now, first, last);
                Ok(())
            }
            Input::Command(HostCommand::DropAll) => self.drop_all(now),
            Input::Command(HostCommand::CentralRefused) => {
                self.refresh.restart_at(now + AFTER_REFUSAL);
                Ok(())
            }
            Input::Command(HostCommand::Receive { into, from }) => {
                *from = self.inbox.pop(into);
                Ok(())
            }
            Input::Command(HostCommand::SendMessage(message)) => self.send_message(now, &message),
            Input::Command(
                HostCommand::JoinRange { .. }
                | HostCommand::DropRange { .. }
                | HostCommand::Saturate(_)
                | HostCommand::Bye,
            ) => Err(CommandError::Format),
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<HostEvent> {
        self.bundler.close_if_due(now);
        if self.inbox.became_readable() {
            return Output::Event(HostEvent::Readable);
        }
        if self.reported_level != self.level.current(now) {
            self.reported_level = self.level.current(now);
            return Output::Event(HostEvent::Level(self.reported_level));
        }
        if writable.has(Host::CENTRAL)
            && let Some(length) = self.bundler.write_next(now, buffer)
        {
            self.statistics.bundles_sent += 1;
            let peer = Peer::NONE;
            return Output::Transmit(Transmit { port: Host::CENTRAL, peer, length, segment: None });
        }
        let reason = if self.bundler.is_ready() { Reason::Port(Host::CENTRAL) } else { Reason::Input };
        let timers = [self.refresh.deadline(), self.level.deadline(now)];
        let deadline = self.bundler.deadline().into_iter().chain(timers.into_iter().flatten()).min();
        Output::Idle(Idle { deadline, reason })
    }
}

impl Endpoint for Host {
    type Command<'a> = HostCommand<'a>;
    type Event = HostEvent;
    type Refusal = CommandError;

    fn handle(&mut self, now: Instant, input: Input<'_, HostCommand<'_>>) -> Result<(), CommandError> {
        match &mut self.0 {
            HostFormat::Classic(classic) => classic.handle(now, input),
            HostFormat::Format2(format2) => format2.handle(now, input),
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<HostEvent> {
        match &mut self.0 {
            HostFormat::Classic(classic) => classic.poll(now, writable, buffer),
            HostFormat::Format2(format2) => format2.poll(now, writable, buffer),
        }
    }
}

impl CountUnsent for Host {
    fn count_unsent(&mut self, _: Port, frame: &[u8]) {
        match &mut self.0 {
            HostFormat::Classic(classic) => {
                let Ok((_, bundle)) = ClassicBundle::read_with_mask(frame) else { return };
                let is_priority = |address: u16| classic.settings.is_priority(address);
                classic.statistics.drops.count_unsent_classic(&bundle, is_priority);
            }
            HostFormat::Format2(format2) => format2.count_unsent(frame),
        }
    }
}
