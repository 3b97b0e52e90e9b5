//! Messages that wait to be sent or acknowledged, and buffers to be used again.

use crate::Buffer;

/// Bytes of buffers kept to be used again; of those of a sender that has nothing under way; and of the largest. What is
/// more goes back to the system.
const POOL: usize = 2 << 20;
const IDLE: usize = 64 << 10;
const LARGEST: usize = 256 << 10;

/// Buffers that are used again, the last used first: it is still in the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    buffers: Vec<Buffer>,
    bytes: usize,
}

impl Pool {
    /// An empty buffer, with room for `bytes` if that was asked for.
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

    /// Keeps a buffer, if it is worth keeping.
    #[inline]
    pub fn give(&mut self, mut buffer: Buffer) {
        let room = buffer.capacity();
        if (1..=LARGEST).contains(&room) && self.bytes + room <= POOL {
            buffer.clear();
            self.bytes += room;
            self.buffers.push(buffer);
        }
    }

    /// Keeps what an idle sender may.
    #[inline(always)]
    pub fn shrink(&mut self) {
        if self.bytes > IDLE {
            self.shrink_now();
        }
    }

    fn shrink_now(&mut self) {
        while self.bytes > IDLE {
            self.bytes -= self.buffers.pop().map_or(self.bytes, |buffer| buffer.capacity());
        }
    }
}

/// What is kept of a channel's messages until all of it is acknowledged.
#[derive(Debug)]
pub(crate) struct Kept {
    pub bytes: Buffer,
    pub channel: u16,
    /// Small messages, each after its length.
    pub is_pack: bool,
    /// Pieces cut from it and not acknowledged.
    pub pieces: u32,
    /// All of it has been cut.
    pub cut: bool,
}

/// Numbers of what is kept.
pub(crate) type Place = u32;

/// Everything kept, in places that are used again.
#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: Vec<Kept>,
    free: Vec<Place>,
    /// A place with the pack that was last there alone, for the next.
    resting: Option<Place>,
}

impl Store {
    #[inline]
    pub fn keep(&mut self, bytes: Buffer, channel: u16, is_pack: bool) -> Place {
        let kept = Kept { bytes, channel, is_pack, pieces: 0, cut: false };
        match self.free.pop() {
            Some(place) => {
                self.kept[place as usize] = kept;
                place
            }
            None => {
                self.kept.push(kept);
                self.kept.len() as Place - 1
            }
        }
    }

    /// Keeps a copy of a pack that has been cut whole, in a buffer from the pool, with room for `room` bytes, or where the
    /// last such rests.
    #[inline(always)]
    pub fn keep_pack(&mut self, pack: &[u8], channel: u16, room: usize, pool: &mut Pool) -> Place {
        let place = match self.resting.take() {
            Some(place) => place,
            None => self.keep(pool.take(room), channel, true),
        };
        let kept = &mut self.kept[place as usize];
        kept.bytes.refill(pack);
        (kept.channel, kept.pieces, kept.cut) = (channel, 1, true);
        place
    }

    /// The only piece of a pack has been acknowledged, which stays where it is for [`keep_pack`](Store::keep_pack): its
    /// channel and its bytes. None, and nothing has changed, if it is none, or has to go.
    #[inline(always)]
    pub fn rest(&mut self, place: Place) -> Option<(u16, usize)> {
        let kept = &self.kept[place as usize];
        let rests = self.resting.is_none() && kept.is_pack && kept.pieces == 1 && kept.cut;
        // A large one, which the pool had from elsewhere, goes back there and shrinks with it.
        if !rests || kept.bytes.capacity() > IDLE {
            return None;
        }
        self.resting = Some(place);
        Some((kept.channel, kept.bytes.len()))
    }

    #[inline]
    pub fn get(&self, place: Place) -> &Kept {
        &self.kept[place as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, place: Place) -> &mut Kept {
        &mut self.kept[place as usize]
    }

    /// A piece has been acknowledged. What is left of it all, if that was the last: its channel and its bytes.
    #[inline]
    pub fn release(&mut self, place: Place) -> Option<(u16, Buffer)> {
        let kept = &mut self.kept[place as usize];
        kept.pieces -= 1;
        if kept.pieces > 0 || !kept.cut {
            return None;
        }
        self.free.push(place);
        Some((kept.channel, std::mem::take(&mut kept.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_keeps_so_many_bytes_and_an_idle_one_few() {
        let mut pool = Pool::default();
        for size in [8192, LARGEST, LARGEST + 1, 100].into_iter().cycle().take(4000) {
            pool.give(Buffer::with_capacity(size));
            let kept: usize = pool.buffers.iter().map(Buffer::capacity).sum();
            assert_eq!(kept, pool.bytes);
            assert!(kept <= POOL);
        }
        assert!(pool.bytes > POOL - LARGEST && pool.buffers.iter().all(|b| b.capacity() <= LARGEST));
        pool.shrink();
        assert!(pool.bytes <= IDLE);
        assert!(pool.take(50).is_empty() && pool.take(10 * LARGEST).capacity() >= 10 * LARGEST);
        assert_eq!(pool.bytes, pool.buffers.iter().map(Buffer::capacity).sum::<usize>());
    }
}
