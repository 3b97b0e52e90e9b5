//! In the place of encryption where the feature `aead` is off: a key that nobody can have, so that no connection can be
//! told to encrypt and does not.

use super::check::{Unopened, Way};

/// A secret that both ends of a connection have had before it opens; there is none without the feature `aead`.
#[derive(Clone, Debug)]
pub enum PresharedKey {}

impl PresharedKey {
    /// Cannot be called.
    pub fn prove(&self, _: &mut [u8]) {
        match *self {}
    }

    /// Cannot be called.
    pub fn proves(&self, _: &[u8]) -> bool {
        match *self {}
    }
}

/// What seals and opens frames; there is none without the feature `aead`.
#[derive(Debug)]
pub enum Cipher {}

impl Cipher {
    /// Cannot be called.
    pub fn new(key: &PresharedKey, _: (u64, u64), _: Way) -> Box<Cipher> {
        match *key {}
    }

    pub(crate) fn count_from(&mut self, _: u64) {
        match *self {}
    }

    /// Cannot be called.
    pub fn seal(&mut self, _: usize, _: u64, _: &mut [u8]) {
        match *self {}
    }

    /// Cannot be called.
    pub fn open<'a>(&mut self, _: u64, _: &'a [u8]) -> Result<&'a [u8], Unopened> {
        match *self {}
    }

    /// Cannot be called.
    pub fn decrypt(&mut self, _: usize, _: u64, _: &[u8]) -> Result<Vec<u8>, Unopened> {
        match *self {}
    }

    /// Cannot be called.
    pub fn keep(&mut self, _: Vec<u8>) {
        match *self {}
    }
}
