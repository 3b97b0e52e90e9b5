//! Received messages that wait for the simulation.

use std::collections::VecDeque;

/// The largest number of octets that may wait.
pub const INBOX_OCTETS: usize = 4 << 20;
/// The largest number of messages that may wait, since empty messages need memory, too.
const MAX_MESSAGES: usize = 65_536;
/// The largest number of empty buffers retained for reuse.
const MAX_SPARE: usize = 1_024;

/// The metadata of a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageInfo {
    /// The message address; in format 1 (classic) the group, one bit per receiving host.
    pub address: u32,
    /// The sender: site in the upper half, host in the lower. Always 0 in format 1 (classic).
    pub source: u32,
    /// Whether it has priority. Always false in format 1 (classic).
    pub priority: bool,
}

/// A destination of received messages.
pub trait Sink {
    /// Accepts a message; returns whether there was room.
    fn push(&mut self, from: MessageInfo, body: &[u8]) -> bool;

    /// Returns whether there is room for a message.
    fn has_room(&self, _body: &[u8]) -> bool {
        true
    }
}

/// A callback takes each message from its datagram as it arrives.
impl<F: FnMut(MessageInfo, &[u8])> Sink for F {
    fn push(&mut self, from: MessageInfo, body: &[u8]) -> bool {
        self(from, body);
        true
    }
}

impl Sink for Inbox {
    fn push(&mut self, from: MessageInfo, body: &[u8]) -> bool {
        if !self.has_room(body) {
            return false;
        }
        let mut stored = self.spare.pop().unwrap_or_default();
        stored.clear();
        stored.extend_from_slice(body);
        self.octets += stored.len();
        self.readable |= self.messages.is_empty();
        self.messages.push_back((from, stored));
        true
    }

    fn has_room(&self, body: &[u8]) -> bool {
        self.octets + body.len() <= INBOX_OCTETS && self.messages.len() < MAX_MESSAGES
    }
}

/// Messages in order of arrival, at most [`INBOX_OCTETS`] octets.
#[derive(Debug, Default)]
pub struct Inbox {
    messages: VecDeque<(MessageInfo, Vec<u8>)>,
    octets: usize,
    spare: Vec<Vec<u8>>,
    /// Whether a readable event is due.
    readable: bool,
}

impl Inbox {
    /// Takes the oldest message and replaces the contents of `into` by its body.
    pub fn pop(&mut self, into: &mut Vec<u8>) -> Option<MessageInfo> {
        let (from, mut body) = self.messages.pop_front()?;
        self.octets -= body.len();
        std::mem::swap(into, &mut body);
        if self.spare.len() < MAX_SPARE {
            self.spare.push(body);
        }
        Some(from)
    }

    /// Returns once whether a message arrived in the empty inbox.
    pub fn became_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }
}
