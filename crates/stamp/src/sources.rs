//! The sources that a reflector answers: which networks, at which rate, with how many sessions.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use trunkline_units::{Instant, Span};

/// A network: the addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a network, such as 192.0.2.7, 192.0.2.0/24 or 2001:db8::/32")]
pub struct NetworkError;

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl Network {
    /// Creates the network of the addresses whose first `prefix` bits are those of `address`. `None` if the address has
    /// fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Network> {
        (prefix <= bits(address).1).then_some(Network { address, prefix })
    }

    /// Returns whether the network has this address.
    pub fn contains(self, address: IpAddr) -> bool {
        let ((own, width), (other, other_width)) = (bits(self.address), bits(address));
        width == other_width && (own ^ other).leading_zeros() >= u32::from(self.prefix)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let prefix = prefix.map_or(Ok(bits(address).1), |prefix| prefix.parse().map_err(|_| NetworkError))?;
        Network::new(address, prefix).ok_or(NetworkError)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A session of a source: its port and the sender's identifier (RFC 8972 section 3).
pub(crate) type SessionId = (u16, u16);

#[derive(Debug)]
struct Session {
    /// The next sequence number of the reflector.
    next: u32,
    last_at: Instant,
}

#[derive(Debug)]
struct Source {
    sessions: BTreeMap<SessionId, Session>,
    /// When the next answer is due at the maximum rate (GCRA, ITU-T I.371: theoretical arrival time).
    theoretical_at: Instant,
}

/// Limits of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time between answers to one source at the maximum rate.
    pub interval: Span,
    /// How far a burst may be ahead of that rate.
    pub tolerance: Span,
    /// Sessions of all sources.
    pub sessions: usize,
    /// Sessions of one source.
    pub sessions_of_source: usize,
    /// A session without packets for this time is over.
    pub idle: Span,
}

/// Why a packet has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    Sessions,
    Rate,
}

/// The sources with their sessions. A source without sessions is not stored.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    sources: BTreeMap<IpAddr, Source>,
    sessions: usize,
}

impl Sources {
    /// Counts a packet of a session; returns the sequence number of its answer.
    pub fn admit(
        &mut self,
        now: Instant,
        limits: &Limits,
        address: IpAddr,
        id: SessionId,
    ) -> Result<u32, Excess> {
        let is_known = |sources: &Sources| {
            sources.sources.get(&address).is_some_and(|source| source.sessions.contains_key(&id))
        };
        if !is_known(self) && !self.has_room(limits, address) {
            self.remove_idle(now, limits.idle);
            if !self.has_room(limits, address) {
                return Err(Excess::Sessions);
            }
        }
        let new = || Source { sessions: BTreeMap::new(), theoretical_at: Instant::ZERO };
        let source = self.sources.entry(address).or_insert_with(new);
        // A session begins even if the rate is exceeded, so that the source is stored with its rate.
        let known = source.sessions.len();
        let session = source.sessions.entry(id).or_insert(Session { next: 0, last_at: now });
        session.last_at = now;
        if source.theoretical_at.since(now) > limits.tolerance {
            self.sessions += source.sessions.len() - known;
            return Err(Excess::Rate);
        }
        source.theoretical_at = source.theoretical_at.max(now) + limits.interval;
        let number = session.next;
        session.next = number.wrapping_add(1);
        self.sessions += source.sessions.len() - known;
        Ok(number)
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions
    }

    fn has_room(&self, limits: &Limits, address: IpAddr) -> bool {
        let of_source = self.sources.get(&address).map_or(0, |source| source.sessions.len());
        self.sessions < limits.sessions && of_source < limits.sessions_of_source
    }

    fn remove_idle(&mut self, now: Instant, idle: Span) {
        self.sources.retain(|_, source| {
            source.sessions.retain(|_, session| now.since(session.last_at) < idle);
            // Without its sessions a source would also lose what it has used of its rate.
            !source.sessions.is_empty()
        });
        self.sessions = self.sources.values().map(|source| source.sessions.len()).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_only() {
        for (network, inside, outside) in [
            ("127.0.0.0/8", "127.255.0.1", "126.255.255.255"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.129/25", "192.0.2.255", "192.0.2.127"),
            ("0.0.0.0/0", "255.0.0.1", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::"),
            ("::1", "::1", "0.0.0.1"),
        ] {
            let parsed: Network = network.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} has {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} has not {outside}");
            assert_eq!(parsed.to_string().parse(), Ok(parsed));
        }
        for wrong in ["", "/", "192.0.2.0/33", "::/129", "192.0.2.0/-1", "host", "1.2.3.4/24/1"] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong}");
        }
    }
}
