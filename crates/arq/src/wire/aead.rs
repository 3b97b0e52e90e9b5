//! Encryption with a preshared key: AES-256-GCM, whose tag replaces the check.
//!
//! ```text
//! frame:    header, readable | chunks, encrypted | count u24 | tag (16)
//! opening:  open or opened frame | proof (32) | CRC-32C
//! ```
//!
//! The *count* is of transmissions, not of frames: a retransmission may have another header, so it needs another
//! nonce. The key changes every 2²⁴ transmissions. `docs/wire.md` specifies the key derivation and its limits.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};

use super::check::{Check, Direction, OpenError};
use super::handshake::PROOF_BYTES;
use super::{epoch, expand, get24, put24};

/// Bytes of a count on the wire, and of a tag.
const COUNT_BYTES: usize = 3;
const TAG_BYTES: usize = 16;
const TRAILER_BYTES: usize = Check::Aead.bytes();

/// Size of the replay window in words of 64 counts, and in counts before the last.
const WINDOW_WORDS: u64 = 256;
const WINDOW_COUNTS: u64 = (WINDOW_WORDS - 1) * 64;

/// A secret that both ends of a connection share in advance.
///
/// The keys of a connection are derived from the secret and the connection numbers that both ends draw. So
/// [`Config::random`] must be seeded by the system's randomness (sockets do this): if both ends drew the same numbers
/// again under the same secret, the same keys would be used twice, which breaks AES-GCM.
///
/// `Debug` does not print the secret. There is no forward secrecy: the secret also decrypts earlier recorded traffic.
///
/// ```
/// use trunkline_arq::{Options, PresharedKey};
///
/// let secret = [0x42; 32];            // of your own: 32 random bytes, and never a password
/// let options = Options { key: Some(PresharedKey::new(&secret)), ..Options::default() };
/// assert!(format!("{options:?}").contains("PresharedKey(..)"));
/// ```
///
/// [`Config::random`]: crate::Config::random
#[derive(Clone)]
pub struct PresharedKey(Arc<DerivedKeys>);

struct DerivedKeys {
    /// Root of the connection keys.
    root: hkdf::Prk,
    /// Key of the proofs in handshake frames.
    proof: hmac::Key,
}

impl PresharedKey {
    /// Creates a key from a secret: 32 random bytes that no third party knows.
    pub fn new(secret: &[u8; 32]) -> PresharedKey {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"trunkline guaranteed 1").extract(secret);
        let proof = root.expand(&[b"opening"], hmac::HMAC_SHA256).expect("32 bytes are not too many").into();
        PresharedKey(Arc::new(DerivedKeys { root, proof }))
    }

    /// Writes the proof into a handshake frame that has space for it, and recomputes its check.
    ///
    /// # Panics
    /// If the frame is shorter than its proof and check.
    pub fn prove(&self, frame: &mut [u8]) {
        let (rest, proof, _) = split_proof(frame).expect("a frame with room for the proof");
        let (from, to) = (rest.len(), rest.len() + proof.len());
        let tag = hmac::sign(&self.0.proof, rest);
        frame[from..to].copy_from_slice(tag.as_ref());
        Check::Crc32c.seal(0, frame);
    }

    /// Returns whether a handshake frame was made with the same secret.
    pub fn proves(&self, frame: &[u8]) -> bool {
        split_proof(frame).is_some_and(|(rest, proof, _)| hmac::verify(&self.0.proof, rest, proof).is_ok())
    }

    /// Derives the key of one direction and `generation`.
    fn derive(&self, ids: (u64, u64), direction: Direction, generation: u64) -> LessSafeKey {
        let direction: &[u8] = match direction {
            Direction::ToServer => b"out",
            Direction::ToClient => b"back",
        };
        let (client, server, generation) =
            (ids.0.to_be_bytes(), ids.1.to_be_bytes(), generation.to_be_bytes());
        let info: [&[u8]; 4] = [direction, &client, &server, &generation];
        let key = self.0.root.expand(&info, &AES_256_GCM).expect("32 bytes are not too many");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

/// Splits a handshake frame into authenticated bytes, proof and check.
fn split_proof(frame: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (rest, check) = frame.split_at_checked(frame.len().checked_sub(Check::Crc32c.bytes())?)?;
    let (rest, proof) = rest.split_at_checked(rest.len().checked_sub(PROOF_BYTES)?)?;
    Some((rest, proof, check))
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

/// The cipher of one end of a connection. It uses about 4 KiB plus a buffer for the longest frame received.
pub struct Cipher {
    key: PresharedKey,
    ids: (u64, u64),
    direction: Direction,
    /// Number of sealed transmissions, and the current key.
    count: u64,
    sending: LessSafeKey,
    /// Received counts.
    replay_window: ReplayWindow,
    /// The keys of two generations, indexed by the lowest bit of the generation: a count near the last one belongs to
    /// one of two neighbouring generations. So a forger cannot cause repeated key derivations.
    receiving: [(u64, LessSafeKey); 2],
    scratch: Vec<u8>,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Cipher {
    /// Creates the cipher of the end that sends in `direction`; `ids` are the connection numbers of client and
    /// server.
    pub fn new(key: &PresharedKey, ids: (u64, u64), direction: Direction) -> Box<Cipher> {
        let receiving =
            [0, 1].map(|generation| (generation, key.derive(ids, direction.reverse(), generation)));
        Box::new(Cipher {
            sending: key.derive(ids, direction, 0),
            key: key.clone(),
            ids,
            direction,
            count: 0,
            replay_window: ReplayWindow::new(),
            receiving,
            scratch: Vec::new(),
        })
    }

    /// Sets the first count of both ends.
    pub(crate) fn set_first_count(&mut self, count: u64) {
        (self.count, self.replay_window.next) = (count, count);
        self.sending = self.key.derive(self.ids, self.direction, epoch(count));
    }

    /// Encrypts `frame` except the first `clear` bytes, and writes count and tag at its end. `acknowledged` is the
    /// epoch of the acknowledged number, otherwise 0.
    ///
    /// # Panics
    /// If the frame is shorter than the clear bytes, count and tag.
    pub fn seal(&mut self, clear: usize, acknowledged: u64, frame: &mut [u8]) {
        let count = self.count;
        self.count += 1;
        if epoch(count) != epoch(count.saturating_sub(1)) {
            self.sending = self.key.derive(self.ids, self.direction, epoch(count));
        }
        let (body, end) = frame.split_at_mut(frame.len() - TRAILER_BYTES);
        let (clear, hidden) = body.split_at_mut(clear);
        let nonce = nonce(count, acknowledged);
        #[cfg(test)]
        tests::record_nonce(self.ids, self.direction, epoch(count), nonce.as_ref());
        let tag = self.sending.seal_in_place_separate_tag(nonce, Aad::from(clear), hidden);
        put24(end, count);
        end[COUNT_BYTES..].copy_from_slice(tag.expect("a frame is not too long").as_ref());
    }

    /// Verifies an unencrypted frame and returns the bytes before its count and tag.
    pub fn open<'a>(&mut self, acknowledged: u64, frame: &'a [u8]) -> Result<&'a [u8], OpenError> {
        let (body, low, mut tag) = split_frame(frame)?;
        self.unseal(low, acknowledged, body, &mut tag)?;
        Ok(body)
    }

    /// Decrypts a frame whose first `clear` bytes are unencrypted; returns the bytes before its count and tag. Pass
    /// them to [`recycle`](Cipher::recycle) after use.
    pub fn decrypt(&mut self, clear: usize, acknowledged: u64, frame: &[u8]) -> Result<Vec<u8>, OpenError> {
        let (body, low, tag) = split_frame(frame)?;
        let readable = body.get(..clear).ok_or(OpenError::Damaged)?;
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.clear();
        buffer.extend_from_slice(body);
        buffer.extend_from_slice(&tag);
        let opened = self.unseal(low, acknowledged, readable, &mut buffer[clear..]);
        buffer.truncate(body.len());
        match opened {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.recycle(buffer);
                Err(error)
            }
        }
    }

    /// Takes back the buffer of a decrypted frame for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.scratch = buffer;
    }

    /// Decrypts `hidden`, which ends with its tag, in place.
    fn unseal(
        &mut self,
        low: u32,
        acknowledged: u64,
        clear: &[u8],
        hidden: &mut [u8],
    ) -> Result<(), OpenError> {
        let count = expand(low, self.replay_window.next);
        let generation = epoch(count);
        let receiving = &mut self.receiving[(generation & 1) as usize];
        if receiving.0 != generation {
            *receiving = (generation, self.key.derive(self.ids, self.direction.reverse(), generation));
        }
        let opened = receiving.1.open_in_place(nonce(count, acknowledged), Aad::from(clear), hidden);
        opened.map_err(|_| OpenError::Damaged)?;
        if self.replay_window.record(count) { Ok(()) } else { Err(OpenError::Replayed) }
    }
}

/// Splits a frame into the bytes before the count, the lowest 24 bits of the count, and the tag.
fn split_frame(frame: &[u8]) -> Result<(&[u8], u32, [u8; TAG_BYTES]), OpenError> {
    let (body, end) = frame.split_last_chunk::<TRAILER_BYTES>().ok_or(OpenError::Damaged)?;
    let (count, tag) = end.split_at(COUNT_BYTES);
    Ok((body, get24(count), tag.try_into().map_err(|_| OpenError::Damaged)?))
}

/// Returns the nonce of a transmission. No count is used twice under a key, so no nonce is. The nonce includes the
/// epoch of the acknowledged number because the frame has only its lowest 24 bits: an old, delayed frame must not
/// pass for a current one.
fn nonce(count: u64, acknowledged: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&(acknowledged as u32).to_be_bytes());
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Replay window (RFC 6479).
struct ReplayWindow {
    /// One past the highest count.
    next: u64,
    /// A bit for each count, indexed by its remainder.
    bits: Box<[u64]>,
}

impl ReplayWindow {
    fn new() -> ReplayWindow {
        ReplayWindow { next: 0, bits: vec![0; WINDOW_WORDS as usize].into() }
    }

    /// Records a count; returns whether it is new.
    fn record(&mut self, count: u64) -> bool {
        let last = self.next.saturating_sub(1);
        if count >= self.next {
            let from = (last / 64 + 1).max((count / 64).saturating_sub(WINDOW_WORDS - 1));
            for word in from..=count / 64 {
                self.bits[(word % WINDOW_WORDS) as usize] = 0;
            }
            self.next = count + 1;
        } else if last - count > WINDOW_COUNTS {
            return false;
        }
        let (word, bit) = (&mut self.bits[(count / 64 % WINDOW_WORDS) as usize], 1 << (count % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests;
