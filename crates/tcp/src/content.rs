//! What a stream is made of: bytes, or only their number.

use std::fmt::{self, Debug};

/// What a stream is made of. The machine keeps the numbers; this keeps what they count.
///
/// There are two queues, one to send from and one to receive into, each with the bound it was made with. The machine
/// never asks for more than was put in, and never puts in more than there is room for.
pub trait Content: Send + Debug {
    /// What is sent.
    type Source<'a>: Copy;
    /// Where what arrived goes.
    type Target<'a>;

    /// Empty queues with room for `send` and `receive` bytes.
    fn new(send: u32, receive: u32) -> Self;

    /// Bytes in `source`; [`u32::MAX`] for more.
    fn offered(source: Self::Source<'_>) -> u32;
    /// Bytes that fit into `target`; [`u32::MAX`] for more.
    fn wanted(target: &Self::Target<'_>) -> u32;

    /// Puts all of `source` into the queue to send, behind the `queued` bytes that are there.
    fn append(&mut self, queued: u32, source: Self::Source<'_>);
    /// Copies bytes of the queue to send, from `offset` on, until `payload` is full.
    fn copy(&self, offset: u32, payload: &mut [u8]);
    /// Forgets the first `count` bytes of the queue to send.
    fn forget(&mut self, count: u32);

    /// Keeps what arrived, `offset` bytes behind the first that was not taken.
    fn store(&mut self, offset: u32, payload: &[u8]);
    /// Takes the first bytes that arrived, until `target` is full.
    fn take(&mut self, target: Self::Target<'_>);
}

/// Real bytes, in two rings.
#[derive(Debug)]
pub struct Bytes {
    send: Ring,
    receive: Ring,
}

/// Only numbers: payload is neither read nor written, and of a buffer only the header is touched.
#[derive(Debug)]
pub struct Virtual;

struct Ring {
    bytes: Box<[u8]>,
    /// Where the first byte stands.
    start: usize,
}

/// Without the bytes: there may be very many.
impl Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring({} of {})", self.start, self.bytes.len())
    }
}

impl Ring {
    fn new(room: u32) -> Ring {
        Ring { bytes: vec![0; room as usize].into_boxed_slice(), start: 0 }
    }

    /// Where the byte `offset` behind the first stands.
    fn place(&self, offset: u32) -> usize {
        let at = self.start + offset as usize;
        if at < self.bytes.len() { at } else { at - self.bytes.len() }
    }

    fn write(&mut self, offset: u32, from: &[u8]) {
        let at = self.place(offset);
        let (first, rest) = from.split_at(from.len().min(self.bytes.len() - at));
        self.bytes[at..at + first.len()].copy_from_slice(first);
        self.bytes[..rest.len()].copy_from_slice(rest);
    }

    fn read(&self, offset: u32, into: &mut [u8]) {
        let at = self.place(offset);
        let (first, rest) = into.split_at_mut(into.len().min(self.bytes.len() - at));
        first.copy_from_slice(&self.bytes[at..at + first.len()]);
        rest.copy_from_slice(&self.bytes[..rest.len()]);
    }

    fn forget(&mut self, count: u32) {
        self.start = self.place(count);
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

    fn offered(source: &[u8]) -> u32 {
        count(source)
    }

    fn wanted(target: &&mut [u8]) -> u32 {
        count(target)
    }

    fn append(&mut self, queued: u32, source: &[u8]) {
        self.send.write(queued, source);
    }

    fn copy(&self, offset: u32, payload: &mut [u8]) {
        self.send.read(offset, payload);
    }

    fn forget(&mut self, count: u32) {
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
    fn offered(source: u32) -> u32 {
        source
    }

    #[inline]
    fn wanted(target: &u32) -> u32 {
        *target
    }

    #[inline]
    fn append(&mut self, _: u32, _: u32) {}

    #[inline]
    fn copy(&self, _: u32, _: &mut [u8]) {}

    #[inline]
    fn forget(&mut self, _: u32) {}

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
