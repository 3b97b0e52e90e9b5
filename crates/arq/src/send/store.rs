//! Messages that wait to be sent or acknowledged, and buffers to be used again.

use crate::Buffer;

/// Buffers kept to be used again, and the largest of them. What is larger goes back to the system.
const POOL: usize = 64;
const LARGEST: usize = 256 << 10;

/// Buffers that are used again.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    buffers: Vec<Buffer>,
}

impl Pool {
    /// An empty buffer, with room for `bytes` if that was asked for.
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Buffer {
        match self.buffers.pop() {
            Some(buffer) if buffer.capacity() >= bytes => buffer,
            _ => Buffer::with_capacity(bytes),
        }
    }

    /// Keeps a buffer, if it is worth keeping.
    #[inline]
    pub fn give(&mut self, mut buffer: Buffer) {
        if self.buffers.len() < POOL && (1..=LARGEST).contains(&buffer.capacity()) {
            buffer.clear();
            self.buffers.push(buffer);
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
