//! Stream data: stored bytes, or only their number.

use std::fmt::{self, Debug};

/// Storage of a stream's data. The protocol keeps the sequence numbers; this stores the bytes they count.
///
/// There is a send queue and a receive queue, each with a fixed capacity. The protocol never reads more than was
/// stored, and never stores more than fits.
pub trait Content: Send + Debug {
    /// Data to send.
    type Source<'a>: Copy;
    /// Destination of received data.
    type Target<'a>;

    /// Creates empty queues with capacities of `send` and `receive` bytes.
    fn new(send: u32, receive: u32) -> Self;

    /// Returns the length of `source`; [`u32::MAX`] for more.
    fn source_len(source: Self::Source<'_>) -> u32;
    /// Returns the capacity of `target`; [`u32::MAX`] for more.
    fn target_len(target: &Self::Target<'_>) -> u32;

    /// Appends `source` to the send queue, which holds `queued` bytes.
    fn append(&mut self, queued: u32, source: Self::Source<'_>);
    /// Copies bytes of the send queue from `offset` on into `payload`.
    fn copy(&self, offset: u32, payload: &mut [u8]);
    /// Discards the first `count` bytes of the send queue.
    fn discard(&mut self, count: u32);

    /// Stores received bytes, `offset` bytes behind the first unread one.
    fn store(&mut self, offset: u32, payload: &[u8]);
    /// Moves the first received bytes into `target` until it is full.
    fn take(&mut self, target: Self::Target<'_>);
}

/// Real bytes, in two ring buffers.
#[derive(Debug)]
pub struct Bytes {
    send: Ring,
    receive: Ring,
}

/// Counts bytes only: payload is neither read nor written, so only headers of a buffer are touched.
#[derive(Debug)]
pub struct Virtual;

struct Ring {
    bytes: Box<[u8]>,
    /// Index of the first byte.
    start: usize,
}

/// Omits the bytes.
impl Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} of {})", self.start, self.bytes.len())
    }
}

impl Ring {
    fn new(room: u32) -> Ring {
        Ring { bytes: vec![0; room as usize].into_boxed_slice(), start: 0 }
    }

    /// Returns the index of the byte at `offset`.
    fn index(&self, offset: u32) -> usize {
        let at = self.start + offset as usize;
        if at < self.bytes.len() { at } else { at - self.bytes.len() }
    }

    fn write(&mut self, offset: u32, from: &[u8]) {
        let at = self.index(offset);
        let (first, rest) = from.split_at(from.len().min(self.bytes.len() - at));
        self.bytes[at..at + first.len()].copy_from_slice(first);
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    fn read(&self, offset: u32, into: &mut [u8]) {
        let at = self.index(offset);
        let (first, rest) = into.split_at_mut(into.len().min(self.bytes.len() - at));
        first.copy_from_slice(&self.bytes[at..at + first.len()]);
        rest.copy_from_slice(&self.bytes[..rest.len()]);
    }

    fn forget(&mut self, count: u32) {
        self.start = self.index(count);
    }
}

fn count(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

impl Content for Bytes {
    type Source<'a> = &'a [u8];
    type Target<'a> = &'a mut [u8];

    fn new(send: u32, receive: u32) -> Self {
        Bytes { send: Ring::new(send), receive: Ring::new(receive) }
    }

    fn source_len(source: &[u8]) -> u32 {
        count(source)
    }

    fn target_len(target: &&mut [u8]) -> u32 {
        count(target)
    }

    fn append(&mut self, queued: u32, source: &[u8]) {
        self.send.write(queued, source);
    }

    fn copy(&self, offset: u32, payload: &mut [u8]) {
        self.send.read(offset, payload);
    }

    fn discard(&mut self, count: u32) {
        self.send.forget(count);
    }

    fn store(&mut self, offset: u32, payload: &[u8]) {
        self.receive.write(offset, payload);
    }

    fn take(&mut self, target: &mut [u8]) {
        self.receive.read(0, target);
        self.receive.forget(count(target));
    }
}

impl Content for Virtual {
    type Source<'a> = u32;
    type Target<'a> = u32;

    fn new(_: u32, _: u32) -> Self {
        Virtual
    }

    #[inline]
    fn source_len(source: u32) -> u32 {
        source
    }

    #[inline]
    fn target_len(target: &u32) -> u32 {
        *target
    }

    #[inline]
    fn append(&mut self, _: u32, _: u32) {}

    #[inline]
    fn copy(&self, _: u32, _: &mut [u8]) {}

    #[inline]
    fn discard(&mut self, _: u32) {}

    #[inline]
    fn store(&mut self, _: u32, _: &[u8]) {}

    #[inline]
    fn take(&mut self, _: u32) {}
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use trunkline_units::Seed;

    use super::*;

    #[test]
    fn a_ring_is_a_queue() {
        let mut stream = Seed(3).stream("ring");
        let mut ring = Ring::new(7);
        let mut queue = VecDeque::new();
        for _ in 0..2_000 {
            let new: Vec<u8> =
                (0..stream.below(8 - queue.len() as u64)).map(|_| stream.bits() as u8).collect();
            ring.write(queue.len() as u32, &new);
            queue.extend(&new);
            let offset = stream.below(queue.len() as u64 + 1) as u32;
            let mut seen = vec![0; queue.len() - offset as usize];
            ring.read(offset, &mut seen);
            assert!(seen.iter().eq(queue.range(offset as usize..)));
            let gone = stream.below(queue.len() as u64 + 1) as u32;
            ring.forget(gone);
            queue.drain(..gone as usize);
        }
    }

    #[test]
    fn what_comes_out_of_order_is_put_in_its_place() {
        let mut bytes = Bytes::new(1, 8);
        bytes.store(4, b"45");
        bytes.store(0, b"0123");
        let mut taken = [0; 6];
        bytes.take(&mut taken);
        assert_eq!(&taken, b"012345");
        bytes.store(3, b"9abcd");
        bytes.store(0, b"678");
        let mut taken = [0; 8];
        bytes.take(&mut taken);
        assert_eq!(&taken, b"6789abcd");
    }
}
