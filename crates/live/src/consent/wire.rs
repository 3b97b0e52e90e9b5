//! The two datagrams of consent, and the keys of a run. The parent module has the table of fields.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::Refusal;

/// Length of a challenge and of a proof in bytes.
pub const LENGTH: usize = 56;

const MAGIC: [u8; 4] = *b"TLCN";
const VERSION: u8 = 1;

const VERSION_AT: usize = 4;
const KIND_AT: usize = 5;
const RESERVED_AT: usize = 6;
const RUN_AT: usize = 8;
const NUMBER_AT: usize = 16;
const NONCE_AT: usize = 24;
const MAC_AT: usize = 40;

pub(super) type Nonce = [u8; 16];

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// The identifier of a run between one sender and one destination. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId(pub [u8; 8]);

/// The key of a run: 32 bytes from the random source of the system, known to sender and destination only.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunKey([u8; 32]);

impl RunKey {
    /// Creates a key from random bytes.
    pub const fn new(bytes: [u8; 32]) -> RunKey {
        RunKey(bytes)
    }

    /// Returns an HMAC with the key for another purpose: the first block of HKDF-Expand (RFC 5869, section 2.3).
    pub(crate) fn keyed(&self, purpose: &[u8]) -> HmacSha256 {
        keyed(&keyed(&self.0).chain_update(purpose).chain_update([1]).finalize_bytes())
    }

    /// Returns the key for a destination's port: with it, a proof also says at which port load is welcome. Both sides
    /// derive it from the port that they use, so consent for one port is none for another. Port 0 is for any port.
    pub fn for_port(&self, port: u16) -> RunKey {
        let mac = keyed(&self.0).chain_update(b"trunkline consent port").chain_update(port.to_be_bytes());
        RunKey(mac.finalize_bytes())
    }
}

/// Does not print the key.
impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey(..)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Challenge = 1,
    Proof = 2,
}

/// The keys of both kinds. HMAC states that have absorbed their key save two of four hash blocks per datagram.
#[derive(Clone)]
pub(super) struct MacKeys {
    challenge: HmacSha256,
    proof: HmacSha256,
}

impl MacKeys {
    pub fn new(key: &RunKey) -> MacKeys {
        MacKeys {
            challenge: key.keyed(b"trunkline consent challenge"),
            proof: key.keyed(b"trunkline consent proof"),
        }
    }

    fn of(&self, kind: Kind) -> &HmacSha256 {
        match kind {
            Kind::Challenge => &self.challenge,
            Kind::Proof => &self.proof,
        }
    }
}

/// Returns an HMAC state with this key.
pub(super) fn keyed(key: &[u8; 32]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC accepts any length")
}

/// Ends an HMAC with a plain array.
pub(super) trait FinalizeBytes {
    fn finalize_bytes(self) -> [u8; 32];
}

impl FinalizeBytes for HmacSha256 {
    fn finalize_bytes(self) -> [u8; 32] {
        self.finalize().into_bytes().into()
    }
}

/// The meaning of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub run: RunId,
    pub number: u64,
    pub nonce: Nonce,
}

impl Message {
    pub fn encode(&self, kind: Kind, keys: &MacKeys) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..VERSION_AT].copy_from_slice(&MAGIC);
        bytes[VERSION_AT] = VERSION;
        bytes[KIND_AT] = kind as u8;
        bytes[RUN_AT..NUMBER_AT].copy_from_slice(&self.run.0);
        bytes[NUMBER_AT..NONCE_AT].copy_from_slice(&self.number.to_be_bytes());
        bytes[NONCE_AT..MAC_AT].copy_from_slice(&self.nonce);
        let mac = keys.of(kind).clone().chain_update(&bytes[..MAC_AT]).finalize_bytes();
        bytes[MAC_AT..].copy_from_slice(&mac[..LENGTH - MAC_AT]);
        bytes
    }
}

/// A datagram of the expected kind whose HMAC is not verified yet.
#[derive(Clone, Copy)]
pub(super) struct Unverified<'a> {
    bytes: &'a [u8; LENGTH],
    kind: Kind,
}

impl<'a> Unverified<'a> {
    pub fn parse(bytes: &'a [u8], kind: Kind) -> Result<Unverified<'a>, Refusal> {
        let bytes: &[u8; LENGTH] = bytes.try_into().map_err(|_| Refusal::Malformed)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(Refusal::Malformed);
        }
        if bytes[VERSION_AT] != VERSION {
            return Err(Refusal::Version);
        }
        if bytes[RESERVED_AT..RUN_AT] != [0, 0] {
            return Err(Refusal::Malformed);
        }
        if bytes[KIND_AT] != kind as u8 {
            return Err(Refusal::Kind);
        }
        Ok(Unverified { bytes, kind })
    }

    pub fn run(&self) -> RunId {
        RunId(self.field(RUN_AT))
    }

    /// Verifies the HMAC in constant time.
    pub fn verify(&self, keys: &MacKeys) -> Result<Message, Refusal> {
        let mac = keys.of(self.kind).clone().chain_update(&self.bytes[..MAC_AT]);
        mac.verify_truncated_left(&self.bytes[MAC_AT..]).map_err(|_| Refusal::Mac)?;
        let number = u64::from_be_bytes(self.field(NUMBER_AT));
        Ok(Message { run: self.run(), number, nonce: self.field(NONCE_AT) })
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.bytes[at + i])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed with Python's `hmac` and `hashlib`.
    #[test]
    fn datagrams_agree_with_another_implementation() {
        let keys = MacKeys::new(&RunKey::new(std::array::from_fn(|i| i as u8)));
        let message = Message { run: RunId(*b"run 0001"), number: 0x0102_0304, nonce: *b"sixteen bytes ok" };
        let challenge = "544c434e0101000072756e203030303100000000010203047369787465656e206279746573206f6b";
        let proof = challenge.replacen("0101", "0102", 1);
        assert_eq!(
            hex(&message.encode(Kind::Challenge, &keys)),
            format!("{challenge}a25f34176bfae8587b7b93d29d9594ba")
        );
        assert_eq!(
            hex(&message.encode(Kind::Proof, &keys)),
            format!("{proof}581263b0bae3eab5a5605953351e2fd3")
        );
    }

    #[test]
    fn each_field_is_checked_and_returned() {
        let keys = MacKeys::new(&RunKey::new([7; 32]));
        let message = Message { run: RunId([1; 8]), number: u64::MAX, nonce: [2; 16] };
        let valid = message.encode(Kind::Challenge, &keys);
        let read = |bytes: &[u8], kind| Unverified::parse(bytes, kind).and_then(|d| d.verify(&keys));
        assert_eq!(read(&valid, Kind::Challenge), Ok(message));
        assert_eq!(read(&valid, Kind::Proof), Err(Refusal::Kind));
        for length in (0..LENGTH).chain([LENGTH + 1, 2 * LENGTH]) {
            let bytes: Vec<u8> = valid.iter().copied().cycle().take(length).collect();
            assert_eq!(read(&bytes, Kind::Challenge), Err(Refusal::Malformed), "{length} bytes");
        }
        for at in 0..LENGTH {
            for bit in 0..8 {
                let mut bytes = valid;
                bytes[at] ^= 1 << bit;
                let expected = match at {
                    0..VERSION_AT | RESERVED_AT..RUN_AT => Refusal::Malformed,
                    VERSION_AT => Refusal::Version,
                    KIND_AT => Refusal::Kind,
                    _ => Refusal::Mac,
                };
                assert_eq!(read(&bytes, Kind::Challenge), Err(expected), "byte {at}, bit {bit}");
            }
        }
        // A challenge whose kind is changed is no proof: the keys differ.
        let mut bytes = valid;
        bytes[KIND_AT] = Kind::Proof as u8;
        assert_eq!(read(&bytes, Kind::Proof), Err(Refusal::Mac));
    }
}
