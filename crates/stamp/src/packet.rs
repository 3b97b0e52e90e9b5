//! Test packets of both ends: 44 octets unauthenticated, 112 octets authenticated (RFC 8762 sections 4.2 and 4.3).
//!
//! ```text
//!                              sender         reflector
//!                           open  auth.     open  auth.
//! sequence number              0      0        0      0
//! timestamp                    4     16        4     16
//! error estimate              12     24       12     24
//! SSID (RFC 8972 section 3)   14     26       14     26
//! receive timestamp                           16     32
//! sender's sequence number                    24     48
//! sender's timestamp                          28     64
//! sender's error estimate                     36     72
//! sender's TTL                                40     80
//! HMAC                               96              96
//! ```
//!
//! All integers are big-endian, and all other octets are zero. Extensions or padding may follow.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::timestamp::{ErrorEstimate, Timestamp};

/// Octets of an unauthenticated packet without extensions.
pub const UNAUTHENTICATED: usize = 44;
/// Octets of an authenticated packet without extensions.
pub const AUTHENTICATED: usize = 112;
/// Where the HMAC of an authenticated packet begins.
const HMAC_AT: usize = 96;

/// Why bytes are not a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The datagram is shorter than a packet of the mode.
    #[error("the packet is too short")]
    Short,
    /// The HMAC is wrong: another key, or a changed packet.
    #[error("the HMAC is wrong")]
    Hmac,
}

/// The key of authenticated mode (RFC 8762 section 4.4): HMAC-SHA-256, truncated to 16 octets.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// Creates a key of any length.
    pub fn new(octets: &[u8]) -> Key {
        Key(Hmac::new_from_slice(octets).expect("HMAC accepts any length"))
    }
}

/// Does not print the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Octets of a packet of the mode without extensions.
pub fn base_length(key: Option<&Key>) -> usize {
    if key.is_some() { AUTHENTICATED } else { UNAUTHENTICATED }
}

/// Sequence number, time and error estimate of one end's transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// Sequence number.
    pub sequence: u32,
    /// When the packet was sent.
    pub timestamp: Timestamp,
    /// Error of the end's timestamps, and their format.
    pub error_estimate: ErrorEstimate,
}

/// The meaning of a sender's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderPacket {
    /// The sender's transmission.
    pub sent: Transmission,
    /// Session-sender identifier; 0: none.
    pub ssid: u16,
}

/// The meaning of a reflector's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The reflector's transmission.
    pub reflected: Transmission,
    /// The sender's identifier; 0 from a reflector that does not know RFC 8972.
    pub ssid: u16,
    /// When the reflector received the sender's packet, in the reflector's format.
    pub received: Timestamp,
    /// The sender's transmission, copied.
    pub sent: Transmission,
    /// TTL or hop limit with which the sender's packet arrived.
    pub ttl: u8,
}

/// Positions of the fields of both modes.
struct Layout {
    timestamp: usize,
    received: usize,
    sender_sequence: usize,
    sender_timestamp: usize,
    ttl: usize,
}

const OPEN: Layout =
    Layout { timestamp: 4, received: 16, sender_sequence: 24, sender_timestamp: 28, ttl: 40 };
const SEALED: Layout =
    Layout { timestamp: 16, received: 32, sender_sequence: 48, sender_timestamp: 64, ttl: 80 };

fn layout(key: Option<&Key>) -> &'static Layout {
    if key.is_some() { &SEALED } else { &OPEN }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Transmission {
    fn decode(bytes: &[u8], sequence_at: usize, timestamp_at: usize) -> Transmission {
        Transmission {
            sequence: u32::from_be_bytes(field(bytes, sequence_at)),
            timestamp: Timestamp(u64::from_be_bytes(field(bytes, timestamp_at))),
            error_estimate: ErrorEstimate::from_bits(u16::from_be_bytes(field(bytes, timestamp_at + 8))),
        }
    }

    fn encode(&self, bytes: &mut [u8], sequence_at: usize, timestamp_at: usize) {
        put(bytes, sequence_at, &self.sequence.to_be_bytes());
        put(bytes, timestamp_at, &self.timestamp.0.to_be_bytes());
        put(bytes, timestamp_at + 8, &self.error_estimate.to_bits().to_be_bytes());
    }
}

/// Checks the length, and the HMAC in constant time.
fn verify(bytes: &[u8], key: Option<&Key>) -> Result<(), PacketError> {
    if bytes.len() < base_length(key) {
        return Err(PacketError::Short);
    }
    let Some(Key(mac)) = key else { return Ok(()) };
    let mac = mac.clone().chain_update(&bytes[..HMAC_AT]);
    mac.verify_truncated_left(&bytes[HMAC_AT..AUTHENTICATED]).map_err(|_| PacketError::Hmac)
}

fn seal(bytes: &mut [u8], key: Option<&Key>) {
    if let Some(Key(mac)) = key {
        let code = mac.clone().chain_update(&bytes[..HMAC_AT]).finalize().into_bytes();
        put(bytes, HMAC_AT, &code[..AUTHENTICATED - HMAC_AT]);
    }
}

impl SenderPacket {
    /// Decodes a packet, authenticated if there is a key. Octets that must be zero are not checked, as RFC 8762 demands.
    ///
    /// # Errors
    /// If the packet is too short or its HMAC is wrong.
    pub fn decode(bytes: &[u8], key: Option<&Key>) -> Result<SenderPacket, PacketError> {
        verify(bytes, key)?;
        let at = layout(key).timestamp;
        let ssid = u16::from_be_bytes(field(bytes, at + 10));
        Ok(SenderPacket { sent: Transmission::decode(bytes, 0, at), ssid })
    }

    /// Encodes the packet into the first octets of `bytes`, authenticated if there is a key.
    ///
    /// # Panics
    /// If `bytes` is shorter than the [`base_length`].
    pub fn encode(&self, bytes: &mut [u8], key: Option<&Key>) {
        bytes[..base_length(key)].fill(0);
        let at = layout(key).timestamp;
        self.sent.encode(bytes, 0, at);
        put(bytes, at + 10, &self.ssid.to_be_bytes());
        seal(bytes, key);
    }
}

impl ReflectorPacket {
    /// Decodes a packet, authenticated if there is a key.
    ///
    /// # Errors
    /// If the packet is too short or its HMAC is wrong.
    pub fn decode(bytes: &[u8], key: Option<&Key>) -> Result<ReflectorPacket, PacketError> {
        verify(bytes, key)?;
        let at = layout(key);
        Ok(ReflectorPacket {
            reflected: Transmission::decode(bytes, 0, at.timestamp),
            ssid: u16::from_be_bytes(field(bytes, at.timestamp + 10)),
            received: Timestamp(u64::from_be_bytes(field(bytes, at.received))),
            sent: Transmission::decode(bytes, at.sender_sequence, at.sender_timestamp),
            ttl: bytes[at.ttl],
        })
    }

    /// Encodes the packet into the first octets of `bytes`, authenticated if there is a key.
    ///
    /// # Panics
    /// If `bytes` is shorter than the [`base_length`].
    pub fn encode(&self, bytes: &mut [u8], key: Option<&Key>) {
        bytes[..base_length(key)].fill(0);
        let at = layout(key);
        self.reflected.encode(bytes, 0, at.timestamp);
        put(bytes, at.timestamp + 10, &self.ssid.to_be_bytes());
        put(bytes, at.received, &self.received.0.to_be_bytes());
        self.sent.encode(bytes, at.sender_sequence, at.sender_timestamp);
        bytes[at.ttl] = self.ttl;
        seal(bytes, key);
    }
}
