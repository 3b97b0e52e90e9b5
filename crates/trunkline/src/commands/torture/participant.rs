//! A user of the transport, and the oracle. Content is a counter, as in chapter 4 of the 1998 paper: each end sends
//! increasing words in messages of random sizes and compares received words with its own counter, so every byte has
//! one correct value.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_arq::{Buffer, CloseReason, Command, ConnectionId, Event, EventKind, ReceiveStatus, Refusal};
use trunkline_units::{Instant, Seed, Span, Stream};

use super::trial::Trial;

/// Distance between used channels.
const CHANNEL_STRIDE: u16 = 3277;
/// Messages that an end sends before it receives, in half duplex.
const MESSAGES_PER_TURN: u64 = 3;
/// Names of the ends.
const NAMES: [&str; 2] = ["a", "b"];

/// The content of one channel in one direction: the counter, and the sizes of its messages.
#[derive(Clone, Debug)]
struct Count {
    /// The sending end.
    from: usize,
    channel: u16,
    /// Number of messages so far.
    messages: u64,
    /// Number of bytes so far.
    bytes: u64,
    sizes: Stream,
}

impl Count {
    fn new(trial: &Trial, from: usize, channel: u16) -> Count {
        let name = match channel {
            0 => format!("sizes of {}", NAMES[from]),
            other => format!("sizes of {} on {other}", NAMES[from]),
        };
        Count { from, channel, messages: 0, bytes: 0, sizes: Seed(trial.seed).stream(&name) }
    }

    /// Returns the next message, of random length, possibly empty.
    fn next(&mut self, longest: u64) -> Vec<u8> {
        let length = self.sizes.below(longest + 1) >> self.sizes.below(12);
        let (from, channel) = (self.from, self.channel);
        let bytes = (self.bytes..self.bytes + length).map(|at| byte(from, channel, at)).collect();
        (self.messages, self.bytes) = (self.messages + 1, self.bytes + length);
        bytes
    }
}

/// Returns the byte at an offset of the data that an end sends on a channel: increasing 64-bit words, big endian,
/// with a different start for each end and channel.
fn byte(from: usize, channel: u16, at: u64) -> u8 {
    let word = (from as u64) << 62 | u64::from(channel) << 44 | (at / 8);
    word.to_be_bytes()[(at % 8) as usize]
}

/// The outcome of a valid event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The connection continues.
    Continue,
    /// The event belongs to another connection.
    Other,
    /// The connection ended unexpectedly.
    Lost,
}

/// The user at one end.
#[derive(Debug)]
pub struct Participant<'a> {
    trial: &'a Trial,
    end: usize,
    id: Option<ConnectionId>,
    random: Stream,
    sent: BTreeMap<u16, Count>,
    received_counts: BTreeMap<u16, Count>,
    /// The received part of the next message, by channel.
    partial: BTreeMap<u16, Buffer>,
    full: BTreeSet<u16>,
    readable: BTreeSet<u16>,
    open: bool,
    closing: bool,
    finished: bool,
    closed: bool,
    /// End of the pause before the next message.
    send_at: Instant,
    read_at: Instant,
}

impl<'a> Participant<'a> {
    /// Creates the user of end 0 or 1; `id` is the connection if it opened it.
    pub fn new(trial: &'a Trial, end: usize, id: Option<ConnectionId>) -> Participant<'a> {
        let channels = (0..trial.channels as u16).map(|number| number * CHANNEL_STRIDE);
        let counts = |from| channels.clone().map(|at| (at, Count::new(trial, from, at))).collect();
        Participant {
            trial,
            end,
            id,
            random: Seed(trial.seed).stream(&format!("habits of {}", NAMES[end])),
            sent: counts(end),
            received_counts: counts(1 - end),
            partial: BTreeMap::new(),
            full: BTreeSet::new(),
            readable: BTreeSet::new(),
            open: false,
            closing: false,
            finished: false,
            closed: false,
            send_at: Instant::ZERO,
            read_at: Instant::ZERO,
        }
    }

    /// Returns the connection, once it is known.
    pub fn id(&self) -> Option<ConnectionId> {
        self.id
    }

    /// Returns the number of correctly received messages and bytes.
    pub fn received(&self) -> (u64, u64) {
        (messages(&self.received_counts), self.received_counts.values().map(|count| count.bytes).sum())
    }

    /// Returns whether everything was sent and received and both ends have closed.
    pub fn is_done(&self) -> bool {
        self.closed && messages(&self.received_counts) == self.trial.messages
    }

    /// Returns whether everything was sent.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Formats an error of this end.
    fn error(&self, text: impl std::fmt::Display) -> String {
        format!("end {}: {text}", NAMES[self.end])
    }

    /// Handles an event.
    ///
    /// # Errors
    /// The event violates the contract.
    pub fn handle_event(&mut self, event: &Event) -> Result<EventOutcome, String> {
        if self.id.is_some_and(|id| id != event.id) {
            return Ok(EventOutcome::Other);
        }
        if self.closed {
            return Err(self.error(format!("{:?} after the connection was closed", event.kind)));
        }
        match event.kind {
            EventKind::Opened { .. } => (self.id, self.open) = (Some(event.id), true),
            EventKind::Readable { channel } => _ = self.readable.insert(channel),
            EventKind::Writable { channel } => _ = self.full.remove(&channel),
            EventKind::Finished => self.finished = true,
            EventKind::Closed { reason: CloseReason::Completed } if self.finished && self.closing => {
                self.closed = true
            }
            EventKind::Closed { .. } => return Ok(EventOutcome::Lost),
        }
        Ok(EventOutcome::Continue)
    }

    /// Returns whether it may send now. In half duplex the ends take turns; in full duplex it always may.
    fn may_send(&self) -> bool {
        let Trial { half_duplex, messages: all, .. } = *self.trial;
        let (sent, got) = (messages(&self.sent), messages(&self.received_counts));
        let begun = sent - sent % MESSAGES_PER_TURN;
        let first = if self.end == 0 { begun } else { (begun + MESSAGES_PER_TURN).min(all) };
        self.open && sent < all && (!half_duplex || got >= first)
    }

    fn may_read(&self) -> bool {
        !self.trial.half_duplex || !self.may_send()
    }

    /// Sends and receives messages as far as possible.
    ///
    /// # Errors
    /// A lost, duplicated, reordered or wrong message, or a refusal without reason.
    pub fn act(
        &mut self,
        now: Instant,
        mut command: impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<(), String> {
        let Some(id) = self.id else { return Ok(()) };
        while self.send(now, id, &mut command)? | self.receive(now, id, &mut command)? {}
        if messages(&self.sent) == self.trial.messages && !self.closing {
            self.closing = true;
            match command(Command::Close { id }) {
                // The connection is closed; the event follows.
                Ok(()) | Err(Refusal::Closed) => {}
                Err(refusal) => return Err(self.error(refusal)),
            }
        }
        let (got, all) = (messages(&self.received_counts), self.trial.messages);
        if self.closed && self.readable.is_empty() && got < all {
            return Err(self.error(format!("{got} of {all} messages arrived")));
        }
        Ok(())
    }

    /// Returns the time of the next action.
    pub fn next(&self) -> Option<Instant> {
        let send = (self.may_send() && self.full.len() < self.sent.len()).then_some(self.send_at);
        let read = (self.may_read() && !self.readable.is_empty()).then_some(self.read_at);
        send.into_iter().chain(read).min()
    }

    /// Sends a message if possible; returns whether it did.
    fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &mut impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<bool, String> {
        if now < self.send_at || !self.may_send() {
            return Ok(false);
        }
        let open: Vec<u16> =
            self.sent.keys().copied().filter(|channel| !self.full.contains(channel)).collect();
        let channel = match open.len() {
            0 => return Ok(false),
            1 => open[0],
            several => open[self.random.below(several as u64) as usize],
        };
        let mut sent = self.sent[&channel].clone();
        let bytes = sent.next(self.trial.longest);
        let result = if self.random.chance(0.5) {
            command(Command::Send { id, channel, bytes: &bytes })
        } else {
            let mut message = Buffer::new();
            message.extend_from_slice(&bytes);
            command(Command::SendOwned { id, channel, message: &mut message })
        };
        match result {
            Ok(()) => {
                self.sent.insert(channel, sent);
                self.send_at = now + self.pause(0.3, self.trial.pause);
                Ok(true)
            }
            Err(Refusal::Full) => {
                self.full.insert(channel);
                Ok(false)
            }
            // The connection is closed; the event follows.
            Err(Refusal::Closed) => {
                self.open = false;
                Ok(false)
            }
            Err(refusal) => Err(self.error(refusal)),
        }
    }

    /// Receives a message if possible; returns whether it did.
    fn receive(
        &mut self,
        now: Instant,
        id: ConnectionId,
        command: &mut impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<bool, String> {
        if now < self.read_at || !self.may_read() {
            return Ok(false);
        }
        let Some(&channel) = self.readable.first() else { return Ok(false) };
        let partial = self.partial.entry(channel).or_default();
        let mut status = ReceiveStatus::Empty;
        let receive = Command::Receive { id, channel, buffer: partial, status: &mut status };
        command(receive).map_err(|refusal| self.error(refusal))?;
        match status {
            ReceiveStatus::Empty => _ = self.readable.remove(&channel),
            ReceiveStatus::Partial => {}
            ReceiveStatus::Complete => {
                self.check(channel)?;
                self.read_at = now + self.pause(1.0, self.trial.reading[self.end]);
            }
        }
        Ok(true)
    }

    /// Checks that a message is the next of its channel and complete.
    fn check(&mut self, channel: u16) -> Result<(), String> {
        let message = self.partial.remove(&channel).unwrap_or_default();
        let (got, all, longest) = (messages(&self.received_counts), self.trial.messages, self.trial.longest);
        let count = self.received_counts.get_mut(&channel).filter(|_| got < all);
        let Some(count) = count else {
            let bytes = message.len();
            let text =
                format!("a message of {bytes} bytes on channel {channel} arrived after all {got} messages");
            return Err(self.error(text));
        };
        let number = count.messages;
        let expected = count.next(longest);
        if expected.len() != message.len() {
            let (expected, got) = (expected.len(), message.len());
            let text = format!("message {number} of channel {channel} has {got} bytes instead of {expected}");
            return Err(self.error(text));
        }
        match expected.iter().zip(message.iter()).position(|(expected, got)| expected != got) {
            Some(at) => {
                Err(self.error(format!("byte {at} of message {number} of channel {channel} is wrong")))
            }
            None => Ok(()),
        }
    }

    /// Draws a pause: sometimes up to `longest`, mostly much shorter.
    fn pause(&mut self, often: f64, longest: Span) -> Span {
        let ps = self.random.below(longest.as_ps()) >> self.random.below(10);
        if self.random.chance(often) { Span::from_ps(ps) } else { Span::ZERO }
    }
}

/// Returns the number of messages of all channels.
fn messages(counts: &BTreeMap<u16, Count>) -> u64 {
    counts.values().map(|count| count.messages).sum()
}
