//! The sender's side of consent.

use std::fmt;
use std::net::{SocketAddr, SocketAddrV6};

use hmac::Mac;
use trunkline_units::{Instant, Span};

use super::wire::{
    FinalizeBytes, HmacSha256, Kind, LENGTH, MacKeys, Message, Nonce, RunId, RunKey, Unverified, keyed,
};
use super::{CONSENT, Refusal};

/// Time between challenges, less or more 10 %.
const INTERVAL: Span = Span::from_ms(100);

/// Time between challenges if consent ends within [`URGENT_BELOW`]. With a loss of 20 % in each direction, 13 exchanges
/// before consent ends all fail with a probability of 0.36¹³ ≈ 2 · 10⁻⁶; four at [`INTERVAL`] with 2 %.
const URGENT_INTERVAL: Span = Span::from_ms(25);

const URGENT_BELOW: Span = Span::from_ms(350);

/// Time between challenges without consent, after [`MAX_UNANSWERED`] challenges without a proof: the destination has
/// not agreed to receive even these.
const UNANSWERED_INTERVAL: Span = Span::from_s(1);

const MAX_UNANSWERED: u32 = 30;

/// Stored challenges. A newer one replaces the oldest.
const OUTSTANDING: usize = 32;

/// A shorter interval would replace challenges that can still be proven.
const _: () = assert!(OUTSTANDING as u64 * (URGENT_INTERVAL.as_ps() / 10 * 9) > CONSENT.as_ps());

/// The secret from which a requester derives its nonces: 32 bytes from the random source of the system, new for each
/// requester and sent to no other process. Without it, the nonces cannot be predicted even with the key of the run.
#[derive(Clone)]
pub struct RequesterSecret([u8; 32]);

impl RequesterSecret {
    /// Creates a secret from random bytes.
    pub const fn new(bytes: [u8; 32]) -> RequesterSecret {
        RequesterSecret(bytes)
    }
}

/// Does not print the secret.
impl fmt::Debug for RequesterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequesterSecret(..)")
    }
}

#[derive(Clone, Copy)]
struct Challenge {
    number: u64,
    nonce: Nonce,
    sent_at: Instant,
    is_used: bool,
}

/// Requests consent from one destination for one run.
///
/// Call [`poll`](Self::poll) at [`next_deadline`](Self::next_deadline) until it returns `None`, and send what it
/// returns to the destination. Pass received datagrams to [`handle`](Self::handle). Send load only while
/// [`may_send`](Self::may_send) is true. Calls that are early or repeated change nothing. An instant before one that
/// was passed earlier counts as the earlier one.
///
/// The first challenge is due at once, then one about every 100 ms; every 25 ms while consent ends within 350 ms; and
/// one per second without consent after 30 challenges without a proof. Numbers start at 1, so a responder refuses a
/// second requester for the same grant.
pub struct ConsentRequester {
    run: RunId,
    keys: MacKeys,
    destination: SocketAddr,
    nonces: HmacSha256,
    /// The challenge `number` is at `number % OUTSTANDING`.
    outstanding: [Option<Challenge>; OUTSTANDING],
    last_number: u64,
    next_at: Instant,
    latest_now: Instant,
    expires_at: Option<Instant>,
    /// Challenges since the last accepted proof.
    unanswered: u32,
}

impl ConsentRequester {
    /// Creates a requester without consent.
    pub fn new(
        run: RunId,
        key: &RunKey,
        destination: SocketAddr,
        secret: &RequesterSecret,
    ) -> ConsentRequester {
        ConsentRequester {
            run,
            keys: MacKeys::new(key),
            destination: canonical(destination),
            nonces: keyed(&secret.0),
            outstanding: [None; OUTSTANDING],
            last_number: 0,
            next_at: Instant::ZERO,
            latest_now: Instant::ZERO,
            expires_at: None,
            unanswered: 0,
        }
    }

    /// Returns the next challenge if it is due: `LENGTH` bytes for the destination.
    pub fn poll(&mut self, now: Instant) -> Option<[u8; LENGTH]> {
        let now = self.advance(now);
        // At the end of time, every challenge would be due.
        if now < self.next_at || now == Instant::MAX {
            return None;
        }
        let number = self.last_number.checked_add(1)?;
        let random = self.nonces.clone().chain_update(number.to_be_bytes()).finalize_bytes();
        let nonce: Nonce = std::array::from_fn(|i| random[i]);
        let jitter = u16::from_be_bytes([random[16], random[17]]);
        self.last_number = number;
        self.outstanding[slot(number)] = Some(Challenge { number, nonce, sent_at: now, is_used: false });
        self.unanswered = self.unanswered.saturating_add(1);
        // From now, not from the deadline: a late caller must not send the missed challenges in a burst.
        self.next_at = now + jittered(self.interval(now), jitter);
        Some(Message { run: self.run, number, nonce }.encode(Kind::Challenge, &self.keys))
    }

    /// Returns when the next challenge is due.
    pub fn next_deadline(&self) -> Instant {
        self.next_at
    }

    /// Handles a received datagram of any length and content. If it is a proof that is accepted, consent lasts until
    /// [`CONSENT`] after the challenge was sent, so a delayed proof extends it by no more.
    ///
    /// # Errors
    ///
    /// Fails with the cause if the datagram is refused.
    pub fn handle(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<(), Refusal> {
        let now = self.advance(now);
        let sent_at = self.accept(now, from, bytes)?;
        // Proofs of earlier challenges may arrive later.
        self.expires_at = self.expires_at.max(Some(sent_at + CONSENT));
        self.unanswered = 0;
        // After a long time without consent, the next challenge may be due after consent ends.
        self.next_at = self.next_at.min(now + INTERVAL);
        Ok(())
    }

    /// Returns whether the destination consents to load at this instant.
    pub fn may_send(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|end| now.max(self.latest_now) < end)
    }

    /// Returns when consent ends or ended; none before the first proof.
    pub fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    fn accept(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) -> Result<Instant, Refusal> {
        let proof = Unverified::parse(bytes, Kind::Proof)?;
        if canonical(from) != self.destination {
            return Err(Refusal::Source);
        }
        if proof.run() != self.run {
            return Err(Refusal::Run);
        }
        let proof = proof.verify(&self.keys)?;
        let challenge = self.outstanding[slot(proof.number)].as_mut();
        let challenge = challenge.filter(|c| c.number == proof.number && c.nonce == proof.nonce);
        let challenge = challenge.ok_or(Refusal::Unsolicited)?;
        if challenge.is_used {
            return Err(Refusal::Replay);
        }
        if now.since(challenge.sent_at) > CONSENT {
            return Err(Refusal::Late);
        }
        challenge.is_used = true;
        Ok(challenge.sent_at)
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.latest_now = self.latest_now.max(now);
        self.latest_now
    }

    fn interval(&self, now: Instant) -> Span {
        let remaining = self.expires_at.map_or(Span::ZERO, |end| end.since(now));
        match remaining {
            Span::ZERO if self.unanswered >= MAX_UNANSWERED => UNANSWERED_INTERVAL,
            Span::ZERO => INTERVAL,
            _ if remaining < URGENT_BELOW => URGENT_INTERVAL,
            _ => INTERVAL,
        }
    }
}

/// Leaves out the keys and the nonces.
impl fmt::Debug for ConsentRequester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsentRequester")
            .field("run", &self.run)
            .field("destination", &self.destination)
            .field("challenges", &self.last_number)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

fn slot(number: u64) -> usize {
    (number % OUTSTANDING as u64) as usize
}

/// Returns 0.9 to 1.1 times the interval, so that many requesters do not synchronize.
fn jittered(interval: Span, jitter: u16) -> Span {
    interval / 10 * 9 + interval / 5 * u64::from(jitter) / u64::from(u16::MAX)
}

/// Makes addresses comparable: a dual-stack socket returns IPv4 addresses mapped into IPv6, and the flow label may
/// vary. The scope stays, as link-local addresses need it.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_none() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into()
        }
        other => SocketAddr::new(other.ip().to_canonical(), other.port()),
    }
}
