//! Which keys an agent accepts now.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nix::time::{ClockId, clock_gettime};

use crate::address::Address;
use crate::enrol::{EnrolRequest, Enrolment, OneTimeKeyError};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::join::{JoinError, JoinString, Secret};
use crate::key_store::{self, FileVersion, KeyStore};
use crate::lock;
use crate::peers::{Name, Peer, PeerList, Role, Status};

/// How long a join string is valid unless the user requests another time.
pub const JOIN_LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// What a client may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is the controller with this name.
    Controller(Name),
    /// It has the one-time key: it may send one enrolment and nothing else.
    Enrolment,
}

/// Why a key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalCause {
    /// The key is not in the list of peers.
    #[error("it is unknown")]
    Unknown,
    /// The key was revoked.
    #[error("it was revoked (`{0}`)")]
    Revoked(Name),
    /// The key has expired.
    #[error("it has expired (`{0}`)")]
    Expired(Name),
    /// The one-time key is void.
    #[error(transparent)]
    OneTimeKey(#[from] OneTimeKeyError),
    /// The client presents the certificate but cannot sign with its key.
    #[error("the client does not have its private key")]
    NoPrivateKey,
    /// The list of peers cannot be read. All keys are refused, because a revocation could be missed.
    #[error("{0}")]
    KeyStore(String),
}

/// A refused key. Its text is one line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The key.
    pub fingerprint: Fingerprint,
    /// Why it is refused.
    pub cause: RefusalCause,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused the key {}: {}", self.fingerprint, self.cause)
    }
}

/// Why an enrolment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The client's key is not a valid one-time key.
    #[error("the enrolment is refused: {0}")]
    OneTimeKey(#[from] OneTimeKeyError),
    /// The request has the one-time key, which is in the join string, in place of the controller's key.
    #[error("the one-time key cannot be enrolled: send the controller's own key")]
    NotOwnKey,
    /// The controller cannot be added to the list.
    #[error(transparent)]
    KeyStore(#[from] key_store::Error),
}

/// The list of peers as read last.
#[derive(Debug)]
struct Cache {
    peers: PeerList,
    version: Option<FileVersion>,
    /// Whether the file would look different if it had changed since.
    is_settled: bool,
}

impl Cache {
    fn read(store: &KeyStore, now: Timestamp) -> Result<Cache, key_store::Error> {
        let (peers, version) = store.peers_with_version()?;
        // A missing file appears with a version, which is a visible difference.
        let is_settled = version.is_none_or(|version| version.is_settled(now));
        Ok(Cache { peers, version, is_settled })
    }
}

/// The keys that an agent accepts: the controllers in its key store, and the one-time key of a join string.
///
/// The list of peers is read again when its file has changed, so a revocation by another process applies to the next
/// decision.
#[derive(Debug)]
pub struct TrustedKeys {
    store: KeyStore,
    identity: Identity,
    /// The list, or why it cannot be read.
    cache: Mutex<Result<Cache, String>>,
    /// Locked while the list is read, so that an older list does not replace a later one.
    reading: Mutex<()>,
    enrolment: Mutex<Enrolment>,
}

/// Returns the time since this host was booted, including the time in which it was suspended.
fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map(Duration::from).expect("the system has this clock")
}

impl TrustedKeys {
    /// Reads the own key and the list of peers.
    pub fn new(store: KeyStore) -> Result<TrustedKeys, key_store::Error> {
        let identity = store.identity()?;
        let cache = Mutex::new(Ok(Cache::read(&store, Timestamp::MIN)?));
        Ok(TrustedKeys { store, identity, cache, reading: Mutex::default(), enrolment: Mutex::default() })
    }

    /// Returns the agent's own key.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the key store.
    pub fn store(&self) -> &KeyStore {
        &self.store
    }

    /// Issues a join string that is valid for `lifetime`, however the clock is set in the meantime; `now` is only for its
    /// text. The join string before becomes void.
    pub fn issue_join(
        &self,
        address: Address,
        lifetime: SignedDuration,
        now: Timestamp,
    ) -> Result<JoinString, JoinError> {
        let expires = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let join = JoinString::new(address, self.identity.fingerprint(), Secret::random()?, expires);
        let deadline = boot_time().saturating_add(lifetime.try_into().unwrap_or_default());
        lock(&self.enrolment).issue(join.identity().fingerprint(), deadline);
        Ok(join)
    }

    /// Makes the join string void.
    pub fn cancel_join(&self) {
        lock(&self.enrolment).cancel();
    }

    /// Decides on a client by its key, for each request. Reads the list of peers if it has changed, so it can block.
    pub fn admit(&self, fingerprint: Fingerprint, now: Timestamp) -> Result<Admission, RefusalCause> {
        self.refresh(now);
        self.admit_by_stored_list(fingerprint, now)
    }

    /// Decides on a client by its key and the list of peers as [`refresh`](Self::refresh) has read it. Does no I/O.
    pub fn admit_by_stored_list(
        &self,
        fingerprint: Fingerprint,
        now: Timestamp,
    ) -> Result<Admission, RefusalCause> {
        match lock(&self.enrolment).check(fingerprint, boot_time()) {
            Ok(()) => return Ok(Admission::Enrolment),
            Err(OneTimeKeyError::Unknown) => {}
            Err(cause) => return Err(cause.into()),
        }
        let cache = lock(&self.cache);
        let peers = cache.as_ref().map_err(|error| RefusalCause::KeyStore(error.clone()))?;
        let peer = peers.peers.by_key(Role::Controller, fingerprint).cloned();
        let peer = peer.ok_or(RefusalCause::Unknown)?;
        match peer.status(now) {
            Status::Active => Ok(Admission::Controller(peer.name)),
            Status::Expired => Err(RefusalCause::Expired(peer.name)),
            Status::Revoked => Err(RefusalCause::Revoked(peer.name)),
        }
    }

    /// Enrols a controller, requested by a client with the one-time key `one_time_key`. The one-time key is void
    /// afterwards, even if the controller cannot be added.
    pub fn enrol(
        &self,
        one_time_key: Fingerprint,
        request: &EnrolRequest,
        now: Timestamp,
    ) -> Result<(), EnrolError> {
        lock(&self.enrolment).redeem(one_time_key, boot_time())?;
        if request.fingerprint == one_time_key {
            return Err(EnrolError::NotOwnKey);
        }
        let controller = Peer::controller(request.name.clone(), request.fingerprint, now);
        Ok(self.store.add(controller, now)?)
    }

    /// Reads the list of peers if its file has changed. Can block.
    pub fn refresh(&self, now: Timestamp) {
        let _reading = lock(&self.reading);
        let is_current = |version: &Option<FileVersion>| {
            lock(&self.cache).as_ref().is_ok_and(|cache| cache.is_settled && cache.version == *version)
        };
        let cache = match self.store.peers_version() {
            Ok(version) if is_current(&version) => return,
            Ok(_) => Cache::read(&self.store, now),
            Err(error) => Err(error),
        };
        *lock(&self.cache) = cache.map_err(|error| error.to_string());
    }
}

#[cfg(test)]
mod tests;
