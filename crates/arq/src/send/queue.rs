//! Channels with data, in the order in which they send.

use std::collections::VecDeque;

/// Priorities 0 to 7 of channels, and one above for control messages.
pub(super) const PRIORITY_LEVELS: usize = 9;

/// Channels with data, by priority.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    levels: [VecDeque<u16>; PRIORITY_LEVELS],
    /// A bit for each level with channels.
    non_empty: u16,
}

impl SendQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.non_empty == 0
    }

    /// Returns whether several channels of a level have data.
    #[inline]
    pub fn is_shared(&self, level: usize) -> bool {
        self.levels[level].len() > 1
    }

    /// Returns the next channel and its level.
    #[inline]
    pub fn first(&self) -> Option<(usize, u16)> {
        let level = self.non_empty.checked_ilog2()? as usize;
        self.levels[level].front().map(|channel| (level, *channel))
    }

    /// Returns the channel and its level if it is the only one.
    #[inline]
    pub fn only_channel(&self) -> Option<(usize, u16)> {
        let first = self.first().filter(|_| self.non_empty.is_power_of_two());
        first.filter(|(level, _)| self.levels[*level].len() == 1)
    }

    /// Returns whether no channel other than `channel` has data.
    #[inline]
    pub fn has_no_other(&self, channel: u16) -> bool {
        self.is_empty() || self.only_channel().is_some_and(|(_, only)| only == channel)
    }

    #[inline]
    pub fn add(&mut self, level: usize, channel: u16) {
        self.levels[level].push_back(channel);
        self.non_empty |= 1 << level;
    }

    /// Ends the turn of the first channel of a level; it moves to the end of the queue if it has more data.
    #[inline]
    pub fn advance(&mut self, level: usize, has_more: bool) {
        let channels = &mut self.levels[level];
        if has_more && channels.len() == 1 {
            return;
        }
        let channel = channels.pop_front();
        if has_more {
            channels.extend(channel);
        } else if channels.is_empty() {
            self.non_empty &= !(1 << level);
        }
    }

    pub fn remove(&mut self, level: usize, channel: u16) {
        self.levels[level].retain(|other| *other != channel);
        if self.levels[level].is_empty() {
            self.non_empty &= !(1 << level);
        }
    }
}
