//! What tells the frames of a connection from all others: a sum and a secret word, or encryption.

use crate::options::Options;
use crate::wire::aead::Cipher;
use crate::wire::check::{Check, Key, Unopened, Way};
use crate::wire::data::{ACK, HEADER, PIGGYBACK};
use crate::wire::repair::REPAIR_HEADER;
use crate::wire::{epoch, expand, get24, part};

/// How frames are sealed and opened. The bytes at their end are [`Check::bytes`] of either.
#[derive(Debug)]
pub(super) enum Guard {
    Sum { check: Check, own: Word, peers: Word },
    Sealed(Box<Cipher>),
}

/// The word that the frames of one direction are known by, worked out once an epoch.
#[derive(Debug)]
pub(super) struct Word {
    key: Key,
    way: Way,
    epoch: u64,
    secret: u64,
}

impl Word {
    fn new(key: Key, way: Way) -> Word {
        Word { key, way, epoch: 0, secret: key.secret(way, 0) }
    }

    /// Of an epoch.
    #[inline(always)]
    fn of(&mut self, epoch: u64) -> u64 {
        if epoch != self.epoch {
            (self.epoch, self.secret) = (epoch, self.key.secret(self.way, epoch));
        }
        self.secret
    }
}

impl Guard {
    /// Of the end that sends `way`, of the connection between these two, client and server.
    pub fn new(options: &Options, ids: (u64, u64), way: Way) -> Guard {
        match &options.key {
            Some(key) => Guard::Sealed(Cipher::new(key, ids, way)),
            None => {
                let key = Key::of(ids.0, ids.1);
                Guard::Sum {
                    check: options.check,
                    own: Word::new(key, way),
                    peers: Word::new(key, way.reverse()),
                }
            }
        }
    }

    /// Both ends' first frames have this number.
    pub fn number_from(&mut self, frame: u64) {
        if let Guard::Sealed(cipher) = self {
            cipher.count_from(frame);
        }
    }

    #[inline]
    pub fn is_sealed(&self) -> bool {
        matches!(self, Guard::Sealed(_))
    }

    /// Seals a frame of which nothing is to be hidden: an acknowledgement, with the epoch of what it acknowledges, or an
    /// errand, with 0.
    #[inline]
    pub fn seal(&mut self, epoch: u64, frame: &mut [u8]) {
        match self {
            Guard::Sum { check, own, .. } => check.seal(own.of(epoch), frame),
            Guard::Sealed(cipher) => cipher.seal(frame.len() - Check::Aead.bytes(), epoch, frame),
        }
    }

    /// What such a frame holds before its check.
    #[inline(always)]
    pub fn open<'a>(&mut self, epoch: u64, frame: &'a [u8]) -> Result<&'a [u8], Unopened> {
        match self {
            Guard::Sum { check, peers, .. } => check.open(peers.of(epoch), frame).ok_or(Unopened::Damaged),
            Guard::Sealed(cipher) => cipher.open(epoch, frame),
        }
    }

    /// The check of the peer's numbered frames of an epoch, and its secret, if they are not encrypted.
    #[inline]
    pub fn sum(&mut self, epoch: u64) -> Option<(Check, u64)> {
        match self {
            Guard::Sum { check, peers, .. } => Some((*check, peers.of(epoch))),
            Guard::Sealed(_) => None,
        }
    }

    /// Seals the numbered frame `number`, which acknowledges all before `acknowledged`.
    #[inline(always)]
    pub fn seal_numbered(&mut self, number: u64, acknowledged: Option<u64>, frame: &mut [u8]) {
        match self {
            Guard::Sum { check, own, .. } => check.seal(own.of(epoch(number)), frame),
            Guard::Sealed(cipher) => cipher.seal(clear(frame), acknowledged.map_or(0, epoch), frame),
        }
    }

    /// Seals numbered frames that lie side by side, each `length` bytes long, from `number` on; none acknowledges anything.
    #[inline]
    pub fn seal_run(&mut self, number: u64, frames: &mut [u8], length: usize) {
        let end = number + (frames.len() / length) as u64;
        match self {
            Guard::Sum { check, own, .. } if epoch(number) == epoch(end) => {
                check.seal_each(own.of(epoch(number)), frames, length);
            }
            _ => {
                let frames = frames.chunks_exact_mut(length);
                frames.zip(number..).for_each(|(frame, number)| self.seal_numbered(number, None, frame));
            }
        }
    }

    /// Decrypts a numbered frame, whose acknowledged number is near `near`. What it held is to be given back to
    /// [`keep`](Guard::keep).
    pub fn decrypt(&mut self, near: u64, frame: &[u8]) -> Result<Vec<u8>, Unopened> {
        let Guard::Sealed(cipher) = self else { return Err(Unopened::Damaged) };
        let clear = clear(frame);
        let acknowledged = match frame.get(HEADER..clear) {
            Some(low) if !low.is_empty() => epoch(expand(get24(low), near)),
            _ => 0,
        };
        cipher.decrypt(clear, acknowledged, frame)
    }

    /// Seals a part of the frame `number`.
    pub fn seal_part(&mut self, number: u64, frame: &mut [u8]) {
        match self {
            Guard::Sum { check, own, .. } => check.seal(own.of(epoch(number)), frame),
            Guard::Sealed(cipher) => cipher.seal(part::HEADER, 0, frame),
        }
    }

    /// Decrypts a part of a frame; as [`decrypt`](Guard::decrypt).
    pub fn decrypt_part(&mut self, frame: &[u8]) -> Result<Vec<u8>, Unopened> {
        let Guard::Sealed(cipher) = self else { return Err(Unopened::Damaged) };
        cipher.decrypt(part::HEADER, 0, frame)
    }

    /// Seals a repair frame of the block from `first` on.
    pub fn seal_repair(&mut self, first: u64, frame: &mut [u8]) {
        match self {
            Guard::Sum { check, own, .. } => check.seal(own.of(epoch(first)), frame),
            Guard::Sealed(cipher) => cipher.seal(REPAIR_HEADER, 0, frame),
        }
    }

    /// Decrypts a repair frame; as [`decrypt`](Guard::decrypt).
    pub fn decrypt_repair(&mut self, frame: &[u8]) -> Result<Vec<u8>, Unopened> {
        let Guard::Sealed(cipher) = self else { return Err(Unopened::Damaged) };
        cipher.decrypt(REPAIR_HEADER, 0, frame)
    }

    pub fn keep(&mut self, body: Vec<u8>) {
        if let Guard::Sealed(cipher) = self {
            cipher.keep(body);
        }
    }
}

/// Bytes of a numbered frame that all may read: what stands before its chunks.
fn clear(frame: &[u8]) -> usize {
    HEADER + if frame[0] & ACK == 0 { 0 } else { PIGGYBACK }
}
