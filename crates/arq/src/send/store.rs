//! Stored messages that are unsent or unacknowledged, and a pool of buffers.

use crate::Buffer;

/// Limits of the pool in bytes: in total, of an idle sender, and of a single buffer. Buffers beyond the limits are
/// freed.
const MAX_POOL: usize = 2 << 20;
const MAX_IDLE_POOL: usize = 64 << 10;
const MAX_POOLED_BUFFER: usize = 256 << 10;

/// A pool of buffers, last in, first out: the last is still in the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl BufferPool {
    /// Returns an empty buffer with a capacity of at least `bytes`.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Buffer {
        if let Some(buffer) = self.buffers.pop() {
            self.bytes -= buffer.capacity();
            if buffer.capacity() >= bytes {
                return buffer;
            }
        }
        Buffer::with_capacity(bytes)
    }

    /// Puts a buffer back into the pool, within the limits.
    #[inline]
    pub fn put(&mut self, mut buffer: Buffer) {
        let capacity = buffer.capacity();
        if (1..=MAX_POOLED_BUFFER).contains(&capacity) && self.bytes + capacity <= MAX_POOL {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }

    /// Reduces the pool to the limit of an idle sender.
    #[inline(always)]
    pub fn shrink(&mut self) {
        if self.bytes > MAX_IDLE_POOL {
            self.shrink_now();
        }
    }

    fn shrink_now(&mut self) {
        while self.bytes > MAX_IDLE_POOL {
            self.bytes -= self.buffers.pop().map_or(self.bytes, |buffer| buffer.capacity());
        }
    }
}

/// Stored data of a channel until it is acknowledged.
#[derive(Debug)]
pub(crate) struct StoredMessages {
    pub bytes: Buffer,
    pub channel: u16,
    /// Several small messages, each with a length prefix.
    pub is_pack: bool,
    /// Unacknowledged chunks.
    pub pieces: u32,
    /// All of it was divided into chunks.
    pub fully_divided: bool,
}

/// Index in the store.
pub(crate) type StoreIndex = u32;

/// Storage of messages with reusable slots.
#[derive(Debug, Default)]
pub(crate) struct MessageStore {
    messages: Vec<StoredMessages>,
    free: Vec<StoreIndex>,
    /// An acknowledged pack whose slot and buffer are reused for the next.
    idle_pack: Option<StoreIndex>,
}

impl MessageStore {
    #[inline]
    pub fn insert(&mut self, bytes: Buffer, channel: u16, is_pack: bool) -> StoreIndex {
        let stored = StoredMessages { bytes, channel, is_pack, pieces: 0, fully_divided: false };
        match self.free.pop() {
            Some(index) => {
                self.messages[index as usize] = stored;
                index
            }
            None => {
                self.messages.push(stored);
                self.messages.len() as StoreIndex - 1
            }
        }
    }

    /// Stores a copy of a pack that is sent whole, in the slot of the idle pack or in a buffer from the pool
    /// with at least `capacity` bytes.
    #[inline(always)]
    pub fn insert_pack(
        &mut self,
        pack: &[u8],
        channel: u16,
        capacity: usize,
        pool: &mut BufferPool,
    ) -> StoreIndex {
        let index = match self.idle_pack.take() {
            Some(index) => index,
            None => self.insert(pool.take(capacity), channel, true),
        };
        let stored = &mut self.messages[index as usize];
        stored.bytes.refill(pack);
        (stored.channel, stored.pieces, stored.fully_divided) = (channel, 1, true);
        index
    }

    /// Retains an acknowledged pack as the idle pack, for [`insert_pack`](MessageStore::insert_pack); returns its
    /// channel and length. None, without an effect, if it is not a pack or must be released.
    #[inline(always)]
    pub fn retain_pack(&mut self, index: StoreIndex) -> Option<(u16, usize)> {
        let stored = &self.messages[index as usize];
        let can_retain =
            self.idle_pack.is_none() && stored.is_pack && stored.pieces == 1 && stored.fully_divided;
        // A large buffer goes back to the pool, which shrinks.
        if !can_retain || stored.bytes.capacity() > MAX_IDLE_POOL {
            return None;
        }
        self.idle_pack = Some(index);
        Some((stored.channel, stored.bytes.len()))
    }

    #[inline]
    pub fn get(&self, index: StoreIndex) -> &StoredMessages {
        &self.messages[index as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, index: StoreIndex) -> &mut StoredMessages {
        &mut self.messages[index as usize]
    }

    /// Records the acknowledgement of a piece. Returns channel and bytes if it was the last.
    #[inline]
    pub fn release(&mut self, index: StoreIndex) -> Option<(u16, Buffer)> {
        let stored = &mut self.messages[index as usize];
        stored.pieces -= 1;
        if stored.pieces > 0 || !stored.fully_divided {
            return None;
        }
        self.free.push(index);
        Some((stored.channel, std::mem::take(&mut stored.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_size_is_bounded() {
        let mut pool = BufferPool::default();
        for size in [8192, MAX_POOLED_BUFFER, MAX_POOLED_BUFFER + 1, 100].into_iter().cycle().take(4000) {
            pool.put(Buffer::with_capacity(size));
            let stored: usize = pool.buffers.iter().map(Buffer::capacity).sum();
            assert_eq!(stored, pool.bytes);
            assert!(stored <= MAX_POOL);
        }
        assert!(
            pool.bytes > MAX_POOL - MAX_POOLED_BUFFER
                && pool.buffers.iter().all(|b| b.capacity() <= MAX_POOLED_BUFFER)
        );
        pool.shrink();
        assert!(pool.bytes <= MAX_IDLE_POOL);
        assert!(
            pool.take(50).is_empty()
                && pool.take(10 * MAX_POOLED_BUFFER).capacity() >= 10 * MAX_POOLED_BUFFER
        );
        assert_eq!(pool.bytes, pool.buffers.iter().map(Buffer::capacity).sum::<usize>());
    }
}
