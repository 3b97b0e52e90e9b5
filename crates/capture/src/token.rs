//! The token of LLC's ring: how long it takes to come round, and what went wrong with it.
//!
//! One ring is followed: that whose frames are seen. Over UDP a token for all is a datagram for each; copies count once.

use std::collections::BTreeMap;

use trunkline_llc::token::Members;
use trunkline_llc::token::frame::{Control, Key};

use crate::exchange::Times;
use crate::name::{Station, stations};
use crate::packet::Packet;

/// What was seen of the token.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// The newest pass, and to whom its first copy went.
    last: Option<(Key, Option<Station>)>,
    members: Members,
    passes: u64,
    repeats: u64,
    replaced: u64,
    rotation: Times,
    /// When each station last got the token, and its rotations. At most 254 stations.
    rotations: BTreeMap<u8, (u64, Times)>,
}

impl Ring {
    /// Sees a packet.
    pub fn see(&mut self, packet: &Packet<'_>) {
        let Some(Control::Token { token, to }) = packet.control() else { return };
        let first = stations(packet).1;
        if let Some((key, at)) = self.last {
            if key == token.key {
                self.repeats += u64::from(at == first);
                return;
            }
            // A station alone begins with generation 0; it is followed by the ring's first.
            let newer = token.key.is_newer(key) && token.key.generation != key.generation;
            self.replaced += u64::from(newer && key.generation != 0);
        }
        self.last = Some((token.key, first));
        self.members = token.members;
        self.passes += 1;
        let Some((at_ns, times)) = self.rotations.get_mut(&to) else {
            self.rotations.insert(to, (packet.at_ns, Times::default()));
            return;
        };
        let took_ns = packet.at_ns.saturating_sub(std::mem::replace(at_ns, packet.at_ns));
        times.add(took_ns);
        self.rotation.add(took_ns);
    }

    /// Tokens passed on, each counted once.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Retransmitted tokens, for which no successor was observed.
    pub fn repeats(&self) -> u64 {
        self.repeats
    }

    /// Tokens that replaced one that was lost.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Who is in the ring, by the last token.
    pub fn members(&self) -> Members {
        self.members
    }

    /// From a station's token to its next, over all stations.
    pub fn rotation(&self) -> Times {
        self.rotation
    }

    /// The same of each station.
    pub fn rotations(&self) -> impl Iterator<Item = (u8, Times)> + '_ {
        self.rotations.iter().map(|(station, (_, times))| (*station, *times))
    }
}
