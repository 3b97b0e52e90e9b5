//! Connection ids and keys from a seed, so that a simulated run can be repeated.

use std::sync::Arc;

use quinn_proto::{ConnectionId, ConnectionIdGenerator};
use ring::{hkdf, hmac};

/// Bytes of a connection id.
pub const ID_LENGTH: usize = 8;
/// Bytes of the id that a client selects for the server; at least 8 (RFC 9000 section 7.2).
const INITIAL_ID_LENGTH: usize = 20;

/// Derives all secrets of a node.
#[derive(Clone, Debug)]
pub struct Secrets(hmac::Key);

impl Secrets {
    pub fn new(seed: &[u8; 32]) -> Secrets {
        Secrets(hmac::Key::new(hmac::HMAC_SHA256, seed))
    }

    fn derive(&self, purpose: &[u8]) -> hmac::Tag {
        hmac::sign(&self.0, purpose)
    }

    /// Returns the key of stateless resets.
    pub fn reset_key(&self) -> Arc<hmac::Key> {
        Arc::new(hmac::Key::new(hmac::HMAC_SHA256, self.derive(b"reset").as_ref()))
    }

    /// Returns the key of address validation tokens.
    pub fn token_key(&self) -> Arc<hkdf::Prk> {
        Arc::new(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, self.derive(b"token").as_ref()))
    }

    /// Returns the seed of the random numbers of `quinn-proto`.
    pub fn seed(&self) -> [u8; 32] {
        let tag = self.derive(b"numbers");
        *tag.as_ref().first_chunk().expect("a SHA-256 tag has 32 bytes")
    }

    /// Returns the connection id that a client selects for the server.
    pub fn initial_id(&self) -> ConnectionId {
        ConnectionId::new(&self.derive(b"initial id").as_ref()[..INITIAL_ID_LENGTH])
    }

    /// Returns the generator of connection ids.
    pub fn ids(&self) -> Ids {
        Ids { secrets: self.clone(), number: 0 }
    }
}

/// Generates connection ids.
pub struct Ids {
    secrets: Secrets,
    number: u64,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.number += 1;
        ConnectionId::new(&self.secrets.derive(&self.number.to_be_bytes()).as_ref()[..ID_LENGTH])
    }

    fn cid_len(&self) -> usize {
        ID_LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}
