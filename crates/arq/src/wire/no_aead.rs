//! Replaces encryption if the feature `aead` is disabled: a key type without values, so that no connection can be
//! configured to encrypt.

use super::check::{Direction, OpenError};

/// A preshared key; without the feature `aead` no key exists.
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

/// The cipher of a connection; without the feature `aead` none exists.
#[derive(Debug)]
pub enum Cipher {}

impl Cipher {
    /// Cannot be called.
    pub fn new(key: &PresharedKey, _: (u64, u64), _: Direction) -> Box<Cipher> {
        match *key {}
    }

    pub(crate) fn set_first_count(&mut self, _: u64) {
        match *self {}
    }

    /// Cannot be called.
    pub fn seal(&mut self, _: usize, _: u64, _: &mut [u8]) {
        match *self {}
    }

    /// Cannot be called.
    pub fn open<'a>(&mut self, _: u64, _: &'a [u8]) -> Result<&'a [u8], OpenError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn decrypt(&mut self, _: usize, _: u64, _: &[u8]) -> Result<Vec<u8>, OpenError> {
        match *self {}
    }

    /// Cannot be called.
    pub fn recycle(&mut self, _: Vec<u8>) {
        match *self {}
    }
}
