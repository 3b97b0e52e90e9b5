//! Messages that wait until the simulation takes them.

use std::collections::VecDeque;

/// Octets of messages that may wait to be taken.
pub const WAITING: usize = 4 << 20;
/// Messages that may: those without octets take room, too.
const MOST: usize = 65_536;
/// Empty bodies that are kept to be filled again.
const SPARE: usize = 1_024;

/// What is known of a message that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct From {
    /// Its address; in the classic format its group, which is all that is left of it.
    pub address: u32,
    /// Who sent it: site in the upper half, host in the lower; 0 in the classic format.
    pub source: u32,
    /// Whether it had priority; never in the classic format.
    pub priority: bool,
}

/// Where messages go that came.
pub trait Sink {
    /// Has a message; whether there was room.
    fn push(&mut self, from: From, body: &[u8]) -> bool;

    /// Whether there is room for a message.
    fn has_room(&self, _body: &[u8]) -> bool {
        true
    }
}

/// Whoever takes each as it comes, straight from the datagram in which it did.
impl<F: FnMut(From, &[u8])> Sink for F {
    fn push(&mut self, from: From, body: &[u8]) -> bool {
        self(from, body);
        true
    }
}

impl Sink for Inbox {
    fn push(&mut self, from: From, body: &[u8]) -> bool {
        self.keep(from, body)
    }

    fn has_room(&self, body: &[u8]) -> bool {
        self.octets + body.len() <= WAITING && self.messages.len() < MOST
    }
}

/// Messages in the order in which they came. Room: [`WAITING`] octets.
#[derive(Debug, Default)]
pub struct Inbox {
    messages: VecDeque<(From, Vec<u8>)>,
    octets: usize,
    spare: Vec<Vec<u8>>,
    /// Whether it is to be told that there are messages.
    readable: bool,
}

impl Inbox {
    /// Keeps a message; whether there was room.
    pub fn keep(&mut self, from: From, body: &[u8]) -> bool {
        if !self.has_room(body) {
            return false;
        }
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(body);
        self.octets += kept.len();
        self.readable |= self.messages.is_empty();
        self.messages.push_back((from, kept));
        true
    }

    /// The oldest message, whose body takes the place of what is there.
    pub fn take(&mut self, into: &mut Vec<u8>) -> Option<From> {
        let (from, mut body) = self.messages.pop_front()?;
        self.octets -= body.len();
        std::mem::swap(into, &mut body);
        if self.spare.len() < SPARE {
            self.spare.push(body);
        }
        Some(from)
    }

    /// Octets that wait.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Whether there are messages where there were none, and that was not told.
    pub fn became_readable(&mut self) -> bool {
        std::mem::take(&mut self.readable)
    }
}
