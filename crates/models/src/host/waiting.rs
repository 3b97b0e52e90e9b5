//! Packets that wait for a processor of a host.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::Bound;

/// Received packets and packets to send.
///
/// With a shared bound, received packets precede packets to send, as 4.3BSD's software interrupts precede its processes. With a
/// bound per channel the buffers are those of sockets, and the work that follows is that of the processes that read them: the
/// channels and the packets to send take turns, one packet each.
#[derive(Clone, Debug)]
pub(crate) struct WaitingPackets<J> {
    bound: Bound,
    /// Received packets by channel; with a shared bound all under one key. Bounded by the number of channels.
    received: BTreeMap<u16, Queue<J>>,
    to_send: VecDeque<J>,
    /// Channels with received packets in the order of their turns; `None` are the packets to send.
    turns: VecDeque<Option<u16>>,
    frames: u64,
    bytes: u64,
}

/// Received packets in order of arrival, with their lengths in bytes.
#[derive(Clone, Debug)]
struct Queue<J> {
    bound: Bound,
    jobs: VecDeque<(u32, J)>,
    bytes: u64,
}

impl<J> WaitingPackets<J> {
    pub(crate) fn new(bound: Bound) -> Self {
        let (received, to_send, turns) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        WaitingPackets { bound, received, to_send, turns, frames: 0, bytes: 0 }
    }

    /// Changes the capacity of one channel to `bytes`. With a shared bound it has no effect.
    pub(crate) fn set_channel_capacity(&mut self, channel: u16, bytes: u64) {
        if self.bound.per_channel {
            self.queue(channel).bound = Bound::bytes(bytes);
        }
    }

    fn queue(&mut self, key: u16) -> &mut Queue<J> {
        let bound = self.bound;
        self.received.entry(key).or_insert_with(|| Queue { bound, jobs: VecDeque::new(), bytes: 0 })
    }

    /// Returns the number of received packets and of their bytes.
    pub(crate) fn received(&self) -> (u64, u64) {
        (self.frames, self.bytes)
    }

    /// Adds a received packet of `length` bytes.
    ///
    /// # Errors
    /// The packet, if there is no space.
    pub(crate) fn add_received(&mut self, channel: u16, length: u32, job: J) -> Result<(), J> {
        let key = if self.bound.per_channel { channel } else { 0 };
        let queue = self.queue(key);
        if !queue.bound.fits(queue.jobs.len() as u64, queue.bytes, length) {
            return Err(job);
        }
        let is_first = queue.jobs.is_empty();
        queue.jobs.push_back((length, job));
        queue.bytes += u64::from(length);
        if is_first {
            self.turns.push_back(Some(key));
        }
        self.frames += 1;
        self.bytes += u64::from(length);
        Ok(())
    }

    /// Adds a packet to send. The caller bounds them.
    pub(crate) fn add_to_send(&mut self, job: J) {
        if self.to_send.is_empty() {
            self.turns.push_back(None);
        }
        self.to_send.push_back(job);
    }

    /// Removes the packet whose turn it is.
    pub(crate) fn take(&mut self) -> Option<J> {
        if !self.bound.per_channel && self.turns.len() > 1 && self.turns[0].is_none() {
            self.turns.swap(0, 1);
        }
        let turn = self.turns.pop_front()?;
        let (job, is_last) = match turn {
            None => (self.to_send.pop_front()?, self.to_send.is_empty()),
            Some(key) => {
                let queue = self.received.get_mut(&key)?;
                let (length, job) = queue.jobs.pop_front()?;
                queue.bytes -= u64::from(length);
                self.frames -= 1;
                self.bytes -= u64::from(length);
                (job, queue.jobs.is_empty())
            }
        };
        if !is_last {
            self.turns.push_back(turn);
        }
        Some(job)
    }
}
