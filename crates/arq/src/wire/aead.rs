//! Encryption by a key that both ends have had before: AES-256-GCM, whose tag takes the place of the check.
//!
//! ```text
//! frame:    header, readable | chunks, encrypted | count u24 | tag (16)
//! opening:  open or opened frame | proof (32) | CRC-32C
//! ```
//!
//! The *count* is of transmissions, not of frames: one that is sent again may say something else in its header, so it
//! gets a nonce of its own. Every 2²⁴ transmissions the key changes. `docs/wire.md` says what is derived from what, and
//! how far this carries.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};

use super::check::{Check, Unopened, Way};
use super::open::PROOF_BYTES;
use super::{epoch, expand, get24, put24};

/// Bytes of a count on the wire, and of a tag.
const COUNT: usize = 3;
const TAG: usize = 16;
const BYTES: usize = Check::Aead.bytes();

/// Words of 64 counts that are remembered, and counts behind the last for which they are enough.
const WORDS: u64 = 256;
const REMEMBERED: u64 = (WORDS - 1) * 64;

/// A secret that both ends of a connection have had before it opens.
///
/// Connections get keys of their own from it and from the numbers that both ends draw. So [`Config::random`] must be
/// seeded by the system's randomness (sockets see to it): if both ends ever drew the same numbers again under the same
/// secret, the same keys would serve twice, and AES-GCM falls with that.
///
/// Debug does not print it. Who learns it can read what was recorded before.
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
pub struct PresharedKey(Arc<Derived>);

struct Derived {
    /// What keys of connections are derived from.
    root: hkdf::Prk,
    /// What proves that an end has the secret.
    proof: hmac::Key,
}

impl PresharedKey {
    /// The key with this secret: 32 bytes that are drawn at random and known to nobody else.
    pub fn new(secret: &[u8; 32]) -> PresharedKey {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"trunkline guaranteed 1").extract(secret);
        let proof = root.expand(&[b"opening"], hmac::HMAC_SHA256).expect("32 bytes are not too many").into();
        PresharedKey(Arc::new(Derived { root, proof }))
    }

    /// Writes the proof into a frame that opens a connection, which has room for it, and its check anew.
    ///
    /// # Panics
    /// If the frame is shorter than its proof and check.
    pub fn prove(&self, frame: &mut [u8]) {
        let (rest, proof, _) = proven(frame).expect("a frame with room for the proof");
        let (from, to) = (rest.len(), rest.len() + proof.len());
        let tag = hmac::sign(&self.0.proof, rest);
        frame[from..to].copy_from_slice(tag.as_ref());
        Check::Crc32c.seal(0, frame);
    }

    /// Whether a frame that opens a connection was made by somebody with the same secret.
    pub fn proves(&self, frame: &[u8]) -> bool {
        proven(frame).is_some_and(|(rest, proof, _)| hmac::verify(&self.0.proof, rest, proof).is_ok())
    }

    /// The key for transmissions of one `generation` that go `way`.
    fn derive(&self, ids: (u64, u64), way: Way, generation: u64) -> LessSafeKey {
        let way: &[u8] = match way {
            Way::Out => b"out",
            Way::Back => b"back",
        };
        let (client, server, generation) =
            (ids.0.to_be_bytes(), ids.1.to_be_bytes(), generation.to_be_bytes());
        let info: [&[u8]; 4] = [way, &client, &server, &generation];
        let key = self.0.root.expand(&info, &AES_256_GCM).expect("32 bytes are not too many");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

/// A frame that opens: what is proven, the proof, the check.
fn proven(frame: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (rest, check) = frame.split_at_checked(frame.len().checked_sub(Check::Crc32c.bytes())?)?;
    let (rest, proof) = rest.split_at_checked(rest.len().checked_sub(PROOF_BYTES)?)?;
    Some((rest, proof, check))
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(..)")
    }
}

/// What one end of a connection seals its frames with, and opens the other's. It has some four kilobytes, and room for the
/// longest frame that has come.
pub struct Cipher {
    key: PresharedKey,
    ids: (u64, u64),
    way: Way,
    /// Transmissions sealed, and the key of their generation.
    count: u64,
    sending: LessSafeKey,
    /// Counts that were opened.
    seen: Seen,
    /// The keys of two generations, by the generation's lowest bit: whatever the wire's 24 bits say, a count near the last
    /// is of one of two neighbours. So a forger makes nobody derive keys over and over.
    receiving: [(u64, LessSafeKey); 2],
    room: Vec<u8>,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Cipher {
    /// That of the end which sends `way`, of the connection between these two, client and server.
    pub fn new(key: &PresharedKey, ids: (u64, u64), way: Way) -> Box<Cipher> {
        let receiving = [0, 1].map(|generation| (generation, key.derive(ids, way.reverse(), generation)));
        Box::new(Cipher {
            sending: key.derive(ids, way, 0),
            key: key.clone(),
            ids,
            way,
            count: 0,
            seen: Seen::new(),
            receiving,
            room: Vec::new(),
        })
    }

    /// Counts both ends' transmissions from `count` on.
    pub(crate) fn count_from(&mut self, count: u64) {
        (self.count, self.seen.next) = (count, count);
        self.sending = self.key.derive(self.ids, self.way, epoch(count));
    }

    /// Encrypts `frame` but for the first `clear` bytes, and writes count and tag at its end. `acknowledged` is the epoch of
    /// the number that it acknowledges, else 0.
    ///
    /// # Panics
    /// If the frame is shorter than what is clear, count and tag.
    pub fn seal(&mut self, clear: usize, acknowledged: u64, frame: &mut [u8]) {
        let count = self.count;
        self.count += 1;
        if epoch(count) != epoch(count.saturating_sub(1)) {
            self.sending = self.key.derive(self.ids, self.way, epoch(count));
        }
        let (body, end) = frame.split_at_mut(frame.len() - BYTES);
        let (clear, hidden) = body.split_at_mut(clear);
        let nonce = nonce(count, acknowledged);
        #[cfg(test)]
        tests::note(self.ids, self.way, epoch(count), nonce.as_ref());
        let tag = self.sending.seal_in_place_separate_tag(nonce, Aad::from(clear), hidden);
        put24(end, count);
        end[COUNT..].copy_from_slice(tag.expect("a frame is not too long").as_ref());
    }

    /// What a frame that is all clear holds before its count and tag.
    pub fn open<'a>(&mut self, acknowledged: u64, frame: &'a [u8]) -> Result<&'a [u8], Unopened> {
        let (body, low, mut tag) = split(frame)?;
        self.unseal(low, acknowledged, body, &mut tag)?;
        Ok(body)
    }

    /// What a frame of which the first `clear` bytes are so holds before its count and tag, decrypted. To be given back to
    /// [`keep`](Cipher::keep).
    pub fn decrypt(&mut self, clear: usize, acknowledged: u64, frame: &[u8]) -> Result<Vec<u8>, Unopened> {
        let (body, low, tag) = split(frame)?;
        let readable = body.get(..clear).ok_or(Unopened::Damaged)?;
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend_from_slice(body);
        room.extend_from_slice(&tag);
        let opened = self.unseal(low, acknowledged, readable, &mut room[clear..]);
        room.truncate(body.len());
        match opened {
            Ok(()) => Ok(room),
            Err(why) => {
                self.keep(room);
                Err(why)
            }
        }
    }

    /// Takes the room of a decrypted frame back, for the next.
    pub fn keep(&mut self, room: Vec<u8>) {
        self.room = room;
    }

    /// Decrypts `hidden`, whose tag stands at its end, in its place.
    fn unseal(
        &mut self,
        low: u32,
        acknowledged: u64,
        clear: &[u8],
        hidden: &mut [u8],
    ) -> Result<(), Unopened> {
        let count = expand(low, self.seen.next);
        let generation = epoch(count);
        let known = &mut self.receiving[(generation & 1) as usize];
        if known.0 != generation {
            *known = (generation, self.key.derive(self.ids, self.way.reverse(), generation));
        }
        let opened = known.1.open_in_place(nonce(count, acknowledged), Aad::from(clear), hidden);
        opened.map_err(|_| Unopened::Damaged)?;
        if self.seen.note(count) { Ok(()) } else { Err(Unopened::Again) }
    }
}

/// A frame's parts: what stands before the count, the count's lowest 24 bits, the tag.
fn split(frame: &[u8]) -> Result<(&[u8], u32, [u8; TAG]), Unopened> {
    let (body, end) = frame.split_last_chunk::<BYTES>().ok_or(Unopened::Damaged)?;
    let (count, tag) = end.split_at(COUNT);
    Ok((body, get24(count), tag.try_into().map_err(|_| Unopened::Damaged)?))
}

/// No count serves twice under a key, so no nonce does. The epoch of what is acknowledged is in it because only 24 bits of
/// that are in the frame: of an old frame that was held back it must not be read as one of today's.
fn nonce(count: u64, acknowledged: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&(acknowledged as u32).to_be_bytes());
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Counts that have come, as far as they are remembered (RFC 6479).
struct Seen {
    /// One past the last.
    next: u64,
    /// A bit for each count, by its remainder.
    bits: Box<[u64]>,
}

impl Seen {
    fn new() -> Seen {
        Seen { next: 0, bits: vec![0; WORDS as usize].into() }
    }

    /// Notes a count; whether it is new.
    fn note(&mut self, count: u64) -> bool {
        let last = self.next.saturating_sub(1);
        if count >= self.next {
            let from = (last / 64 + 1).max((count / 64).saturating_sub(WORDS - 1));
            for word in from..=count / 64 {
                self.bits[(word % WORDS) as usize] = 0;
            }
            self.next = count + 1;
        } else if last - count > REMEMBERED {
            return false;
        }
        let (word, bit) = (&mut self.bits[(count / 64 % WORDS) as usize], 1 << (count % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests;
