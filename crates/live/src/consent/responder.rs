//! The receiver's side of consent.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use trunkline_units::{Instant, Span};

use super::Refusal;
use super::wire::{Kind, LENGTH, MacKeys, RunId, RunKey, Unverified};

/// Maximum number of grants of a responder.
pub const MAX_GRANTS: usize = 1024;

/// Mean time between answers of a run, if there are more challenges.
const ANSWER_INTERVAL: Span = Span::from_ms(25);

/// How far answers may run ahead of the mean: ten at once, so at most 50 in any second.
const ANSWER_TOLERANCE: Span = Span::from_ms(225);

/// What a receiver agrees to.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The run. A responder has one grant for each.
    pub run: RunId,
    /// The key of the run. Never grant it again after the grant has ended: the responder no longer recognizes its old
    /// challenges.
    pub key: RunKey,
    /// The address from which challenges may come, from any port.
    pub source: IpAddr,
    /// When the grant ends.
    pub expires_at: Instant,
}

/// Why a grant was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The table is full.
    #[error("{MAX_GRANTS} runs have consent already")]
    Full,
    /// The run is granted already. Use [`ConsentResponder::extend`] to change its end.
    #[error("this run has consent already")]
    Duplicate,
    /// The end of the grant is in the past.
    #[error("the consent has expired already")]
    Expired,
}

struct Entry {
    keys: MacKeys,
    source: IpAddr,
    expires_at: Instant,
    last_number: u64,
    /// When the next answer is due at the mean rate (GCRA, ITU-T I.371: theoretical arrival time).
    theoretical_at: Instant,
}

/// Proves consent for the runs that a receiver of load has granted.
///
/// Pass received datagrams to [`handle`](Self::handle), and send what it returns to the address they came from. It
/// answers each challenge at most once, with as many bytes, and only the granted address, so it neither amplifies nor
/// reflects. An instant before one that was passed earlier counts as the earlier one.
#[derive(Default)]
pub struct ConsentResponder {
    grants: BTreeMap<RunId, Entry>,
    latest_now: Instant,
}

impl ConsentResponder {
    /// Creates a responder without grants.
    pub fn new() -> ConsentResponder {
        ConsentResponder::default()
    }

    /// Adds a grant, and removes grants that have expired.
    ///
    /// # Errors
    ///
    /// Fails if the table is full, the run is granted already, or the grant has expired.
    pub fn grant(&mut self, now: Instant, grant: Grant) -> Result<(), GrantError> {
        let now = self.advance(now);
        if grant.expires_at <= now {
            return Err(GrantError::Expired);
        }
        self.grants.retain(|_, entry| now < entry.expires_at);
        if self.grants.contains_key(&grant.run) {
            return Err(GrantError::Duplicate);
        }
        if self.grants.len() >= MAX_GRANTS {
            return Err(GrantError::Full);
        }
        let entry = Entry {
            keys: MacKeys::new(&grant.key),
            source: grant.source.to_canonical(),
            expires_at: grant.expires_at,
            last_number: 0,
            theoretical_at: Instant::ZERO,
        };
        self.grants.insert(grant.run, entry);
        Ok(())
    }

    /// Changes the end of a grant; returns false if there is no such grant, or it has expired. If it ends now, the sender
    /// stops within 500 ms.
    pub fn extend(&mut self, now: Instant, run: RunId, expires_at: Instant) -> bool {
        let now = self.advance(now);
        match self.grants.get_mut(&run) {
            Some(entry) if now < entry.expires_at => {
                entry.expires_at = expires_at;
                true
            }
            _ => false,
        }
    }

    /// Handles a received datagram of any length and content; returns the proof if it is a challenge to be answered.
    ///
    /// # Errors
    ///
    /// Fails with the cause if the datagram is not answered.
    pub fn handle(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<[u8; LENGTH], Refusal> {
        let now = self.advance(now);
        let challenge = Unverified::parse(bytes, Kind::Challenge)?;
        let entry = self.grants.get_mut(&challenge.run()).ok_or(Refusal::Run)?;
        if from.ip().to_canonical() != entry.source {
            return Err(Refusal::Source);
        }
        if entry.expires_at <= now {
            return Err(Refusal::Expired);
        }
        let message = challenge.verify(&entry.keys)?;
        // A recorded challenge with a spoofed source would direct the answer at the owner of that address.
        if message.number <= entry.last_number {
            return Err(Refusal::Replay);
        }
        if entry.theoretical_at > now + ANSWER_TOLERANCE {
            return Err(Refusal::Rate);
        }
        entry.theoretical_at = entry.theoretical_at.max(now) + ANSWER_INTERVAL;
        entry.last_number = message.number;
        Ok(message.encode(Kind::Proof, &entry.keys))
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.latest_now = self.latest_now.max(now);
        self.latest_now
    }
}

/// Leaves out the keys.
impl fmt::Debug for ConsentResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsentResponder").field("grants", &self.grants.keys()).finish_non_exhaustive()
    }
}
