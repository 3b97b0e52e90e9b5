//! A user of the transport, and the oracle. Content is a counter, as in chapter 4 of the 1998 paper: each end sends
//! increasing words in messages of random sizes and compares received words with its own counter, so every byte has
//! one correct value.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_arq::{Buffer, CloseReason, Command, ConnectionId, Event, EventKind, ReceiveStatus, Refusal};
use trunkline_units::{Instant, Seed, Span, Stream};

use super::trial::Trial;

/// Distance between used channels.
const STRIDE: u16 = 3277;
/// Messages that an end sends before it receives, in half duplex.
const IN_A_ROW: u64 = 3;
/// Names of the ends.
const NAMES: [&str; 2] = ["a", "b"];

/// The counter of a channel and direction at one end.
#[derive(Clone, Debug)]
struct Count {
    /// Which end sends.
    from: usize,
    channel: u16,
    /// Whole messages.
    messages: u64,
    /// Their bytes.
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
    News,
    /// The event belongs to another connection.
    Other,
    /// The connection ended unexpectedly.
    Lost(CloseReason),
}

/// The user at one end.
#[derive(Debug)]
pub struct Participant<'a> {
    trial: &'a Trial,
    end: usize,
    id: Option<ConnectionId>,
    habits: Stream,
    sent: BTreeMap<u16, Count>,
    got: BTreeMap<u16, Count>,
    /// The received part of the next message, by channel.
    partial: BTreeMap<u16, Buffer>,
    full: BTreeSet<u16>,
    readable: BTreeSet<u16>,
    open: bool,
    closing: bool,
    finished: bool,
    over: bool,
    /// End of the pause before the next message.
    send_at: Instant,
    read_at: Instant,
}

impl<'a> Participant<'a> {
    /// Creates the user of end 0 or 1; `id` is the connection if it opened it.
    pub fn new(trial: &'a Trial, end: usize, id: Option<ConnectionId>) -> Participant<'a> {
        let channels = (0..trial.channels as u16).map(|number| number * STRIDE);
        let counts = |from| channels.clone().map(|at| (at, Count::new(trial, from, at))).collect();
        Participant {
            trial,
            end,
            id,
            habits: Seed(trial.seed).stream(&format!("habits of {}", NAMES[end])),
            sent: counts(end),
            got: counts(1 - end),
            partial: BTreeMap::new(),
            full: BTreeSet::new(),
            readable: BTreeSet::new(),
            open: false,
            closing: false,
            finished: false,
            over: false,
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
        (messages(&self.got), self.got.values().map(|count| count.bytes).sum())
    }

    /// Returns whether everything was sent and received and both ends have closed.
    pub fn is_done(&self) -> bool {
        self.over && messages(&self.got) == self.trial.messages
    }

    /// Returns whether everything was sent.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Formats an error of this end.
    fn wrong(&self, what: impl std::fmt::Display) -> String {
        format!("end {}: {what}", NAMES[self.end])
    }

    /// Handles an event.
    ///
    /// # Errors
    /// The event violates the contract.
    pub fn handle_event(&mut self, event: &Event) -> Result<EventOutcome, String> {
        if self.id.is_some_and(|id| id != event.id) {
            return Ok(EventOutcome::Other);
        }
        if self.over {
            return Err(self.wrong(format!("{:?} of a connection that is over", event.kind)));
        }
        match event.kind {
            EventKind::Opened { .. } => (self.id, self.open) = (Some(event.id), true),
            EventKind::Readable { channel } => _ = self.readable.insert(channel),
            EventKind::Writable { channel } => _ = self.full.remove(&channel),
            EventKind::Finished => self.finished = true,
            EventKind::Closed { reason: CloseReason::Completed } if self.finished && self.closing => {
                self.over = true
            }
            EventKind::Closed { reason: end } => return Ok(EventOutcome::Lost(end)),
        }
        Ok(EventOutcome::News)
    }

    /// Returns whether it may send now. In half duplex the ends take turns; in full duplex it always may.
    fn may_send(&self) -> bool {
        let Trial { half_duplex, messages: all, .. } = *self.trial;
        let (sent, got) = (messages(&self.sent), messages(&self.got));
        let begun = sent - sent % IN_A_ROW;
        let first = if self.end == 0 { begun } else { (begun + IN_A_ROW).min(all) };
        self.open && sent < all && (!half_duplex || got >= first)
    }

    fn may_read(&self) -> bool {
        !self.trial.half_duplex || !self.may_send()
    }

    /// Sends and takes messages as far as possible.
    ///
    /// # Errors
    /// A lost, duplicated, reordered or wrong message, or a refusal without reason.
    pub fn act(
        &mut self,
        now: Instant,
        mut command: impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<(), String> {
        let Some(id) = self.id else { return Ok(()) };
        while self.send(now, id, &mut command)? | self.take(now, id, &mut command)? {}
        if messages(&self.sent) == self.trial.messages && !self.closing {
            self.closing = true;
            match command(Command::Close { id }) {
                // The connection is closed; the event follows.
                Ok(()) | Err(Refusal::Closed) => {}
                Err(refusal) => return Err(self.wrong(refusal)),
            }
        }
        let (got, all) = (messages(&self.got), self.trial.messages);
        if self.over && self.readable.is_empty() && got < all {
            return Err(self.wrong(format!("{got} of {all} messages came")));
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
            several => open[self.habits.below(several as u64) as usize],
        };
        let mut sent = self.sent[&channel].clone();
        let bytes = sent.next(self.trial.longest);
        let given = if self.habits.chance(0.5) {
            command(Command::Send { id, channel, bytes: &bytes })
        } else {
            let mut message = Buffer::new();
            message.extend_from_slice(&bytes);
            command(Command::SendOwned { id, channel, message: &mut message })
        };
        match given {
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
            Err(refusal) => Err(self.wrong(refusal)),
        }
    }

    /// Takes a message if possible; returns whether it did.
    fn take(
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
        let mut taken = ReceiveStatus::Empty;
        let take = Command::Receive { id, channel, buffer: partial, status: &mut taken };
        command(take).map_err(|refusal| self.wrong(refusal))?;
        match taken {
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
        let came = self.partial.remove(&channel).unwrap_or_default();
        let (got, all, longest) = (messages(&self.got), self.trial.messages, self.trial.longest);
        let count = self.got.get_mut(&channel).filter(|_| got < all);
        let Some(count) = count else {
            let bytes = came.len();
            let what =
                format!("{got} messages have come, and one on channel {channel} of {bytes} bytes more");
            return Err(self.wrong(what));
        };
        let number = count.messages;
        let want = count.next(longest);
        if want.len() != came.len() {
            let (want, came) = (want.len(), came.len());
            let what = format!("message {number} of channel {channel} has {want} bytes, and {came} came");
            return Err(self.wrong(what));
        }
        match want.iter().zip(came.iter()).position(|(want, came)| want != came) {
            Some(at) => {
                Err(self.wrong(format!("byte {at} of message {number} of channel {channel} is wrong")))
            }
            None => Ok(()),
        }
    }

    /// Draws a pause: sometimes up to `longest`, mostly much shorter.
    fn pause(&mut self, often: f64, longest: Span) -> Span {
        let ps = self.habits.below(longest.as_ps()) >> self.habits.below(10);
        if self.habits.chance(often) { Span::from_ps(ps) } else { Span::ZERO }
    }
}

/// Returns the number of messages of all channels.
fn messages(counts: &BTreeMap<u16, Count>) -> u64 {
    counts.values().map(|count| count.messages).sum()
}
