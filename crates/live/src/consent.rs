//! Consent to receive load: a destination proves, on the data path and for one run, that it agrees to what an agent
//! sends, and repeats the proof as long as it agrees.
//!
//! An agent sends what a controller requests, and the destination may be any address. So an agent sends load only
//! while [`ConsentRequester::may_send`] is true. RFC 7675 does the same for WebRTC with STUN; its consent lasts 30 s,
//! this one [`CONSENT`] (500 ms).
//!
//! ```text
//!  sender of load: ConsentRequester  ── challenge: number, nonce ──►  receiver of load: ConsentResponder
//!                                    ◄── proof: the same values ───
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `wire` | the two datagrams, and the keys of a run |
//! | `requester` | [`ConsentRequester`]: one per destination and run |
//! | `responder` | [`ConsentResponder`]: the runs that a receiver has granted |
//! | `service` | both machines on the UDP socket of an agent |
//!
//! Both machines do no I/O: the caller passes the time, the datagrams and the randomness.
//!
//! # Datagrams
//!
//! A challenge and a proof have the same length, [`LENGTH`] (56 bytes), so an answer is never longer than its
//! question. Numbers are in network byte order.
//!
//! | offset | length | field |
//! | --- | --- | --- |
//! | 0 | 4 | magic: `TLCN` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | kind: 1 challenge, 2 proof |
//! | 6 | 2 | reserved: 0; other values are refused |
//! | 8 | 8 | run |
//! | 16 | 8 | number of the challenge: the first is 1, each later one is higher |
//! | 24 | 16 | nonce |
//! | 40 | 16 | HMAC-SHA-256 over bytes 0 to 39, its first 16 bytes (RFC 2104, section 5) |
//!
//! The HMAC of each kind has its own key, derived from the key of the run: the first block of HKDF-Expand (RFC 5869,
//! section 2.3) with the info `trunkline consent challenge` or `trunkline consent proof`.
//!
//! # What the caller must do
//!
//! - Issue a new run and key for each pair of sender and destination. A party that knows the key can prove consent for
//!   every destination with this key whose nonces it sees.
//! - Call `may_send` before each send call, and pass at most a few milliseconds of load to the kernel in one call.
//! - Pass a monotonic time that includes suspension (Linux: `CLOCK_BOOTTIME`), or consent outlives it.
//! - Send challenges from the address that sends the load, to the address that receives it, and derive the keys with
//!   [`RunKey::for_port`] from the port that receives it. An agent has one consent port for all transports, so neither
//!   TCP nor the guaranteed transport has to carry foreign datagrams.

#![deny(clippy::disallowed_methods, reason = "time is an argument here, unlike in the rest of the crate")]

mod requester;
mod responder;
#[allow(clippy::disallowed_methods, reason = "the service runs in real time")]
mod service;
mod wire;

use trunkline_units::Span;

pub use requester::{ConsentRequester, RequesterSecret};
pub use responder::{ConsentResponder, Grant, GrantError, MAX_GRANTS};
pub(crate) use service::{CONTROLLER_SILENCE, Consent, ConsentService, Lapse, ServiceError};
pub use wire::{LENGTH, RunId, RunKey};

/// How long consent lasts after its challenge was sent.
pub const CONSENT: Span = Span::from_ms(500);

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// The length, the magic or the reserved bytes are wrong.
    Malformed,
    /// The version is not 1.
    Version,
    /// The kind is not a challenge at the responder, or not a proof at the requester.
    Kind,
    /// The run is not granted, or is not the requester's.
    Run,
    /// The datagram is from another address, or at the requester from another port.
    Source,
    /// The HMAC is wrong.
    Mac,
    /// The grant has expired (responder).
    Expired,
    /// The nonce was already used (requester), or the number is not above the last answered number (responder).
    Replay,
    /// The number or nonce is not outstanding (requester).
    Unsolicited,
    /// The challenge was sent more than [`CONSENT`] ago (requester).
    Late,
    /// The run has too many challenges (responder).
    Rate,
}
