//! Message buffers aligned to 64 bytes.

use std::fmt;
use std::ops::{Deref, DerefMut};

use aligned_vec::{AVec, ConstAlign};

/// A byte buffer aligned to 64 bytes, as in the transport of the 1998 paper (section 7). A message is passed to and
/// from the engine in such a buffer, and copied only into frames and out of frames.
#[derive(Clone, PartialEq, Eq)]
pub struct Buffer(AVec<u8, ConstAlign<64>>);

impl Buffer {
    /// Creates an empty buffer without an allocation.
    pub fn new() -> Self {
        Buffer(AVec::new(64))
    }

    /// Creates an empty buffer with a capacity of `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Buffer(AVec::with_capacity(64, bytes))
    }

    /// Returns the number of bytes that fit without a new allocation.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Appends `bytes`.
    #[inline]
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Replaces the contents with `bytes`.
    #[inline(always)]
    pub(crate) fn refill(&mut self, bytes: &[u8]) {
        if self.0.len() == bytes.len() {
            // The common case of request and response: equal lengths, no reallocation.
            self.0.copy_from_slice(bytes);
        } else {
            self.0.clear();
            self.0.extend_from_slice(bytes);
        }
    }

    /// Appends one byte.
    #[inline]
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Removes the contents and keeps the allocation.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Changes the length to `length`; new bytes have the value `value`.
    pub fn resize(&mut self, length: usize, value: u8) {
        self.0.resize(length, value);
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<&[u8]> for Buffer {
    /// Copies the bytes.
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Buffer::with_capacity(bytes.len());
        buffer.extend_from_slice(bytes);
        buffer
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_aligned_to_64_bytes() {
        for size in [1, 63, 64, 65, 1000, 100_000] {
            let mut buffer = Buffer::with_capacity(size);
            buffer.extend_from_slice(&vec![7; size]);
            assert_eq!(buffer.as_ptr() as usize % 64, 0);
            buffer.extend_from_slice(&vec![8; 3 * size]);
            assert_eq!(buffer.as_ptr() as usize % 64, 0, "after it grew");
            assert_eq!((buffer[0], buffer[size]), (7, 8));
        }
    }
}
