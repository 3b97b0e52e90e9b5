//! The join string: one line that an agent prints and a controller reads to enrol.
//!
//! It is the prefix `trunkline-join1.` and these octets in URL-safe base64 without padding (RFC 4648, section 5):
//!
//! | octets | contents |
//! | --- | --- |
//! | 32 | fingerprint of the agent's key |
//! | 32 | secret of the one-time key |
//! | 8 | expiry in seconds since 1970, big-endian |
//! | any | address of the agent as text |
//! | 4 | checksum: the first octets of the SHA-256 of the prefix and all octets above |

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

use crate::address::Address;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;

/// What every join string begins with, before its version.
const PREFIX: &str = "trunkline-join";
/// The version with its separator.
const VERSION: &str = "1.";
/// Maximum number of characters of a join string.
pub const MAX_LENGTH: usize = 512;
/// Octets of the checksum.
const CHECKSUM: usize = 4;

/// The secret of a one-time key: 32 random octets.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Creates a secret from random numbers of the operating system.
    pub fn random() -> Result<Secret, JoinError> {
        let mut octets = [0; 32];
        SystemRandom::new().fill(&mut octets).map_err(|_| JoinError::Random)?;
        Ok(Secret(octets))
    }

    /// Creates a secret from its octets.
    pub fn from_bytes(octets: [u8; 32]) -> Secret {
        Secret(octets)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// What a controller needs to enrol at an agent. The text form contains the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinString {
    address: Address,
    agent: Fingerprint,
    secret: Secret,
    expires: Timestamp,
}

/// Why a join string cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// The text is something else.
    #[error("not a join string: one begins with `{PREFIX}{VERSION}`")]
    NotAJoinString,
    /// Another version of the program printed it.
    #[error("this version of the program cannot read this join string: use the agent's version")]
    Version,
    /// The checksum is wrong.
    #[error("the join string is incomplete or has a typing error: copy it again")]
    Damaged,
    /// The checksum is right, but the contents are not valid.
    #[error("the join string has invalid contents")]
    Contents,
    /// The time is over.
    #[error("the join string expired at {0}: get a new one from the agent")]
    Expired(Timestamp),
    /// The operating system has no random numbers.
    #[error("cannot generate a secret")]
    Random,
}

impl JoinString {
    /// Creates a join string. Its expiry has whole seconds.
    pub fn new(address: Address, agent: Fingerprint, secret: Secret, expires: Timestamp) -> JoinString {
        let expires = Timestamp::from_second(expires.as_second()).expect("a valid time without its fraction");
        JoinString { address, agent, secret, expires }
    }

    /// Returns the address of the agent.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the fingerprint of the agent's key.
    pub fn agent(&self) -> Fingerprint {
        self.agent
    }

    /// Returns from when on the agent refuses the one-time key.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Returns an error if the time is over by this host's clock. The agent decides by its own clock.
    pub fn check(&self, now: Timestamp) -> Result<(), JoinError> {
        if self.expires <= now { Err(JoinError::Expired(self.expires)) } else { Ok(()) }
    }

    /// Returns the one-time key. Its seed is derived from the secret with HKDF-SHA256 (RFC 5869), with the agent's
    /// fingerprint as salt, so that both ends derive the same key and a secret is of use at one agent only.
    pub fn identity(&self) -> Identity {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, self.agent.as_bytes());
        let key = salt.extract(&self.secret.0);
        let output = key.expand(&[b"trunkline join key 1"], hkdf::HKDF_SHA256);
        let mut seed = [0; 32];
        output.and_then(|output| output.fill(&mut seed)).expect("32 octets are within the limit of HKDF");
        Identity::from_seed(&seed)
    }
}

fn checksum(octets: &[u8]) -> [u8; CHECKSUM] {
    let hash = digest(&SHA256, &[PREFIX.as_bytes(), VERSION.as_bytes(), octets].concat());
    hash.as_ref()[..CHECKSUM].try_into().expect("four of 32 octets")
}

impl fmt::Display for JoinString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut octets = [&self.agent.as_bytes()[..], &self.secret.0].concat();
        octets.extend(self.expires.as_second().to_be_bytes());
        octets.extend(self.address.to_string().bytes());
        octets.extend(checksum(&octets));
        write!(f, "{PREFIX}{VERSION}{}", URL_SAFE_NO_PAD.encode(octets))
    }
}

impl FromStr for JoinString {
    type Err = JoinError;

    /// Parses a join string; surrounding white space is ignored.
    fn from_str(text: &str) -> Result<JoinString, JoinError> {
        let rest = text.trim().strip_prefix(PREFIX).ok_or(JoinError::NotAJoinString)?;
        let Some(encoded) = rest.strip_prefix(VERSION) else {
            let is_version = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
            let has_version = rest.split_once('.').is_some_and(|(version, _)| is_version(version));
            return Err(if has_version { JoinError::Version } else { JoinError::NotAJoinString });
        };
        if rest.len() > MAX_LENGTH {
            return Err(JoinError::Damaged);
        }
        let octets = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| JoinError::Damaged)?;
        let (octets, sum) = octets.split_last_chunk().ok_or(JoinError::Damaged)?;
        if checksum(octets) != *sum {
            return Err(JoinError::Damaged);
        }
        contents(octets).ok_or(JoinError::Contents)
    }
}

/// Parses the octets before the checksum.
fn contents(octets: &[u8]) -> Option<JoinString> {
    let (agent, octets) = octets.split_first_chunk()?;
    let (secret, octets) = octets.split_first_chunk()?;
    let (expires, address) = octets.split_first_chunk()?;
    Some(JoinString {
        address: std::str::from_utf8(address).ok()?.parse().ok()?,
        agent: Fingerprint::from_bytes(*agent),
        secret: Secret(*secret),
        expires: Timestamp::from_second(i64::from_be_bytes(*expires)).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn example() -> JoinString {
        let expires = Timestamp::from_second(1_800_000_000).unwrap();
        JoinString::new(
            "lab7.example:7600".parse().unwrap(),
            Fingerprint::from_bytes([1; 32]),
            Secret([2; 32]),
            expires,
        )
    }

    #[test]
    fn the_format_stays() {
        let text = "trunkline-join1.AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQECAgICAgICAgICAgICAgICAgICAgICAgIC\
                    AgICAgICAgAAAABrSdIAbGFiNy5leGFtcGxlOjc2MDA";
        assert!(example().to_string().starts_with(text), "{}", example());
        assert_eq!(example().to_string().parse(), Ok(example()));
        assert_eq!(format!("  {}\n", example()).parse(), Ok(example()));
        assert!(!format!("{:?}", example()).contains("2, 2"));
        // Computed with Python's hmac and OpenSSL.
        let key = "d5681513dd339391b267a2244296aac06978ec82887274375b14e3828c94d57a";
        assert_eq!(example().identity().fingerprint().to_string(), key);
    }

    #[test]
    fn the_one_time_key_depends_on_secret_and_agent() {
        let join = example();
        let key = |join: &JoinString| join.identity().fingerprint();
        assert_eq!(key(&join), key(&join.to_string().parse().unwrap()));
        assert_ne!(key(&join), key(&JoinString { secret: Secret([3; 32]), ..join.clone() }));
        assert_ne!(key(&join), key(&JoinString { agent: Fingerprint::from_bytes([3; 32]), ..join.clone() }));
        assert_ne!(Secret::random().unwrap(), Secret::random().unwrap());
    }

    #[test]
    fn other_texts_are_not_damaged_join_strings() {
        for text in
            ["", "lab7:7600", "trunkline-join", "trunkline-join.", "trunkline-joinx.AAAA", "ssh-ed25519 AAAA"]
        {
            assert_eq!(text.parse::<JoinString>(), Err(JoinError::NotAJoinString), "{text}");
        }
        for text in ["trunkline-join2.AAAA", "trunkline-join10."] {
            assert_eq!(text.parse::<JoinString>(), Err(JoinError::Version), "{text}");
        }
        let long = format!("trunkline-join1.{}", "A".repeat(10_000));
        for text in ["trunkline-join1.", "trunkline-join1.AA AA", "trunkline-join1.AAAA", &long] {
            assert_eq!(text.parse::<JoinString>(), Err(JoinError::Damaged), "{text}");
        }
    }

    #[test]
    fn contents_are_checked_after_the_checksum() {
        let octets = [&[0; 72][..], b"no address"].concat();
        for octets in [&octets[..], &[0xff; 90], &[]] {
            let text = URL_SAFE_NO_PAD.encode([octets, &checksum(octets)].concat());
            assert_eq!(format!("trunkline-join1.{text}").parse::<JoinString>(), Err(JoinError::Contents));
        }
    }

    #[test]
    fn the_time_is_limited() {
        let join = example();
        let before = Timestamp::from_second(1_799_999_999).unwrap();
        assert_eq!(join.check(before), Ok(()));
        assert_eq!(join.check(join.expires()), Err(JoinError::Expired(join.expires())));
    }

    proptest! {
        #[test]
        fn every_typing_error_is_found(at: prop::sample::Index, c in "[A-Za-z0-9_. -]", is_lost: bool) {
            let text = example().to_string();
            let at = PREFIX.len() + VERSION.len() + at.index(text.len() - PREFIX.len() - VERSION.len());
            let damaged = format!("{}{}{}", &text[..at], if is_lost { "" } else { &c }, &text[at + 1..]);
            prop_assume!(damaged != text);
            prop_assert_eq!(damaged.parse::<JoinString>(), Err(JoinError::Damaged));
        }

        #[test]
        fn arbitrary_texts_do_not_panic(text: String, octets: Vec<u8>) {
            let _ = text.parse::<JoinString>();
            let _ = format!("trunkline-join1.{text}").parse::<JoinString>();
            let valid = URL_SAFE_NO_PAD.encode([&octets[..], &checksum(&octets)].concat());
            let _ = format!("trunkline-join1.{valid}").parse::<JoinString>();
        }

        #[test]
        fn join_strings_round_trip(host in "[a-z]{1,20}", port in 1u16.., octets: [u8; 32], second in 0i64..200_000_000_000) {
            let address = format!("{host}:{port}").parse().unwrap();
            let expires = Timestamp::from_second(second).unwrap();
            let join = JoinString::new(address, Fingerprint::from_bytes(octets), Secret(octets), expires);
            prop_assert!(!join.to_string().contains(char::is_whitespace));
            prop_assert_eq!(join.to_string().parse(), Ok(join));
        }
    }
}
