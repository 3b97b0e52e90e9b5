//! The state of an enrolment at the agent. It does no I/O.
//!
//! ```text
//!            issue                 redeem
//!  (none) ──────────► valid ─────────────────► used
//!                       └──── expires ───────► expired
//! ```
//!
//! One join string is valid at a time: issuing another makes the one before unknown. Times are times since the agent's
//! host was booted: setting its clock makes no join string valid again or void.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;
use crate::peers::Name;

/// What a controller sends with its one-time key, as JSON: `{"name": "alice", "fingerprint": "…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnrolRequest {
    /// The name of the controller, chosen by it.
    pub name: Name,
    /// The controller's own key.
    pub fingerprint: Fingerprint,
}

/// Why a one-time key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OneTimeKeyError {
    /// It is not the key of the join string issued last.
    #[error("it is not the key of a join string")]
    Unknown,
    /// It was used.
    #[error("its join string was already used")]
    Used,
    /// Its time is over.
    #[error("its join string has expired")]
    Expired,
}

#[derive(Debug)]
struct OneTimeKey {
    fingerprint: Fingerprint,
    expires: Duration,
    is_used: bool,
}

/// The one-time key of an agent.
#[derive(Debug, Default)]
pub struct Enrolment {
    key: Option<OneTimeKey>,
}

impl Enrolment {
    /// Makes a key valid for one enrolment before `expires`, in place of the key before.
    pub fn issue(&mut self, fingerprint: Fingerprint, expires: Duration) {
        self.key = Some(OneTimeKey { fingerprint, expires, is_used: false });
    }

    /// Makes the key void.
    pub fn cancel(&mut self) {
        self.key = None;
    }

    /// Returns whether a key may enrol now.
    pub fn check(&self, fingerprint: Fingerprint, now: Duration) -> Result<(), OneTimeKeyError> {
        match &self.key {
            Some(key) if key.fingerprint == fingerprint => match key {
                OneTimeKey { is_used: true, .. } => Err(OneTimeKeyError::Used),
                OneTimeKey { expires, .. } if *expires <= now => Err(OneTimeKeyError::Expired),
                _ => Ok(()),
            },
            _ => Err(OneTimeKeyError::Unknown),
        }
    }

    /// Uses a key. It succeeds once; afterwards the key is void, also if the enrolment fails later.
    pub fn redeem(&mut self, fingerprint: Fingerprint, now: Duration) -> Result<(), OneTimeKeyError> {
        self.check(fingerprint, now)?;
        if let Some(key) = &mut self.key {
            key.is_used = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    #[test]
    fn a_key_is_used_once_before_it_expires() {
        let [key, other] = [1, 2].map(|octet| Fingerprint::from_bytes([octet; 32]));
        let mut enrolment = Enrolment::default();
        assert_eq!(enrolment.redeem(key, time(0)), Err(OneTimeKeyError::Unknown));
        enrolment.issue(key, time(10));
        assert_eq!(enrolment.redeem(other, time(0)), Err(OneTimeKeyError::Unknown));
        assert_eq!(enrolment.redeem(key, time(10)), Err(OneTimeKeyError::Expired));
        assert_eq!(enrolment.check(key, time(9)), Ok(()));
        assert_eq!(enrolment.redeem(key, time(9)), Ok(()));
        assert_eq!(enrolment.redeem(key, time(9)), Err(OneTimeKeyError::Used));
        assert_eq!(enrolment.check(key, time(10)), Err(OneTimeKeyError::Used));
        enrolment.issue(other, time(20));
        assert_eq!(enrolment.check(key, time(9)), Err(OneTimeKeyError::Unknown));
        enrolment.cancel();
        assert_eq!(enrolment.check(other, time(9)), Err(OneTimeKeyError::Unknown));
    }

    #[test]
    fn requests_are_checked_when_they_are_parsed() {
        let request =
            EnrolRequest { name: "alice".parse().unwrap(), fingerprint: Fingerprint::from_bytes([1; 32]) };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<EnrolRequest>(&text).unwrap(), request);
        for wrong in [text.replace("alice", ""), text.replace("01", "x"), text.replace("name", "nam")] {
            assert!(serde_json::from_str::<EnrolRequest>(&wrong).is_err(), "{wrong}");
        }
    }
}
