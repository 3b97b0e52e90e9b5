//! Frame protection: a checksum with a secret, or encryption.

use std::borrow::Cow;

use crate::options::Options;
use crate::wire::aead::Cipher;
use crate::wire::check::{Check, ChecksumKey, Direction, OpenError};
use crate::wire::data::{ACK, HEADER, PIGGYBACK};
use crate::wire::{epoch, expand, get24};

/// Seals and opens frames. The trailer has [`Check::bytes`] bytes.
#[derive(Debug)]
pub(super) enum FrameProtection {
    /// With the secrets of the frames of this end and of the peer.
    Checksum {
        check: Check,
        own: ChecksumSecret,
        peer: ChecksumSecret,
    },
    Encrypted(Box<Cipher>),
}

/// The secret of the checksums of one direction, computed once per epoch.
#[derive(Debug)]
pub(super) struct ChecksumSecret {
    key: ChecksumKey,
    direction: Direction,
    epoch: u64,
    secret: u64,
}

impl ChecksumSecret {
    fn new(key: ChecksumKey, direction: Direction) -> ChecksumSecret {
        ChecksumSecret { key, direction, epoch: 0, secret: key.secret(direction, 0) }
    }

    #[inline(always)]
    fn for_epoch(&mut self, epoch: u64) -> u64 {
        if epoch != self.epoch {
            (self.epoch, self.secret) = (epoch, self.key.secret(self.direction, epoch));
        }
        self.secret
    }
}

impl FrameProtection {
    /// Creates the protection of the end that sends in `direction`; `ids` are the connection numbers of client and
    /// server.
    pub fn new(options: &Options, ids: (u64, u64), direction: Direction) -> FrameProtection {
        match &options.key {
            Some(key) => FrameProtection::Encrypted(Cipher::new(key, ids, direction)),
            None => {
                let key = ChecksumKey::new(ids.0, ids.1);
                FrameProtection::Checksum {
                    check: options.check,
                    own: ChecksumSecret::new(key, direction),
                    peer: ChecksumSecret::new(key, direction.reverse()),
                }
            }
        }
    }

    /// Sets the number of the first frame of both ends.
    pub fn set_first_number(&mut self, frame: u64) {
        if let FrameProtection::Encrypted(cipher) = self {
            cipher.set_first_count(frame);
        }
    }

    #[inline]
    pub fn is_encrypted(&self) -> bool {
        matches!(self, FrameProtection::Encrypted(_))
    }

    /// Seals a frame without encrypted contents: an acknowledgement, with the epoch of the acknowledged number, or a
    /// control frame, with epoch 0.
    #[inline]
    pub fn seal(&mut self, epoch: u64, frame: &mut [u8]) {
        match self {
            FrameProtection::Checksum { check, own, .. } => check.seal(own.for_epoch(epoch), frame),
            FrameProtection::Encrypted(cipher) => {
                cipher.seal(frame.len() - Check::Aead.bytes(), epoch, frame)
            }
        }
    }

    /// Verifies such a frame and returns its contents without the check.
    #[inline(always)]
    pub fn open<'a>(&mut self, epoch: u64, frame: &'a [u8]) -> Result<&'a [u8], OpenError> {
        match self {
            FrameProtection::Checksum { check, peer, .. } => {
                check.open(peer.for_epoch(epoch), frame).ok_or(OpenError::Damaged)
            }
            FrameProtection::Encrypted(cipher) => cipher.open(epoch, frame),
        }
    }

    /// Returns the check and the secret of the peer's frames of an epoch, if they are not encrypted.
    #[inline]
    pub fn checksum(&mut self, epoch: u64) -> Option<(Check, u64)> {
        match self {
            FrameProtection::Checksum { check, peer, .. } => Some((*check, peer.for_epoch(epoch))),
            FrameProtection::Encrypted(_) => None,
        }
    }

    /// Seals the numbered frame `number`, which acknowledges all frames before `acknowledged`.
    #[inline(always)]
    pub fn seal_numbered(&mut self, number: u64, acknowledged: Option<u64>, frame: &mut [u8]) {
        match self {
            FrameProtection::Checksum { check, own, .. } => check.seal(own.for_epoch(epoch(number)), frame),
            FrameProtection::Encrypted(cipher) => {
                cipher.seal(clear_length(frame), acknowledged.map_or(0, epoch), frame)
            }
        }
    }

    /// Seals contiguous numbered frames of `length` bytes each, starting at `number`, without acknowledgements.
    #[inline]
    pub fn seal_batch(&mut self, number: u64, frames: &mut [u8], length: usize) {
        let end = number + (frames.len() / length) as u64;
        match self {
            FrameProtection::Checksum { check, own, .. } if epoch(number) == epoch(end) => {
                check.seal_each(own.for_epoch(epoch(number)), frames, length);
            }
            _ => {
                let frames = frames.chunks_exact_mut(length);
                frames.zip(number..).for_each(|(frame, number)| self.seal_numbered(number, None, frame));
            }
        }
    }

    /// Verifies or decrypts the numbered frame `number`, whose acknowledged number is near `near`. Return the contents
    /// to [`recycle`](FrameProtection::recycle) after use.
    #[inline]
    pub fn open_numbered<'a>(
        &mut self,
        number: u64,
        near: u64,
        frame: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, OpenError> {
        let FrameProtection::Encrypted(cipher) = self else {
            return self.open(epoch(number), frame).map(Cow::Borrowed);
        };
        let clear = clear_length(frame);
        let acknowledged = match frame.get(HEADER..clear) {
            Some(low) if !low.is_empty() => epoch(expand(get24(low), near)),
            _ => 0,
        };
        cipher.decrypt(clear, acknowledged, frame).map(Cow::Owned)
    }

    /// Seals a part or a repair frame, with the number and the length of its header, which stays readable.
    pub fn seal_body(&mut self, number: u64, header: usize, frame: &mut [u8]) {
        match self {
            FrameProtection::Checksum { check, own, .. } => check.seal(own.for_epoch(epoch(number)), frame),
            FrameProtection::Encrypted(cipher) => cipher.seal(header, 0, frame),
        }
    }

    /// Verifies or decrypts such a frame, like [`open_numbered`](FrameProtection::open_numbered).
    pub fn open_body<'a>(
        &mut self,
        number: u64,
        header: usize,
        frame: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, OpenError> {
        match self {
            FrameProtection::Checksum { .. } => self.open(epoch(number), frame).map(Cow::Borrowed),
            FrameProtection::Encrypted(cipher) => cipher.decrypt(header, 0, frame).map(Cow::Owned),
        }
    }

    /// Takes back the buffer of decrypted contents for reuse.
    #[inline]
    pub fn recycle(&mut self, body: Cow<'_, [u8]>) {
        if let (FrameProtection::Encrypted(cipher), Cow::Owned(body)) = (self, body) {
            cipher.recycle(body);
        }
    }
}

/// Returns the length of the unencrypted header of a numbered frame.
fn clear_length(frame: &[u8]) -> usize {
    HEADER + if frame[0] & ACK == 0 { 0 } else { PIGGYBACK }
}
