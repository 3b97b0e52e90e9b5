//! The channels of a connection that may have messages.

use std::collections::VecDeque;

/// Channels that may have messages, in round-robin order, each once.
#[derive(Debug, Default)]
pub struct Ready {
    queue: VecDeque<u16>,
    /// A bit for each queued channel.
    queued: Vec<u64>,
}

impl Ready {
    #[inline]
    pub fn push(&mut self, channel: u16) {
        let (word, bit) = (usize::from(channel / 64), 1 << (channel % 64));
        if word >= self.queued.len() {
            self.queued.resize(word + 1, 0);
        }
        if self.queued[word] & bit == 0 {
            self.queued[word] |= bit;
            self.queue.push_back(channel);
        }
    }

    #[inline]
    pub fn pop(&mut self) -> Option<u16> {
        let channel = self.queue.pop_front()?;
        self.queued[usize::from(channel / 64)] &= !(1 << (channel % 64));
        Some(channel)
    }
}
