//! The maximum delay of messages in a ring, and whether traffic contracts can be kept. Pure arithmetic in picoseconds.
//!
//! # What is bounded
//!
//! The delay of a message lasts from when the station has it to send until its last bit has been received and
//! delivered at the destination.
//!
//! # Assumptions
//!
//! - The ring is formed, its line carries a frame at a time and loses none, but for the tokens that are [allowed
//!   for](Network::lost), and no other traffic uses the line. Beyond [`Line::hop`] nothing waits for a processor.
//! - A priority without a target ([`Options::rotation_targets`]) sends only messages with a contract, and no station more
//!   often than the contract states. An acknowledged message has two contracts: its own and that of the response.
//! - Every station sends its most urgent message, of those the oldest, one a token. Background is what priorities
//!   with a target send, no longer than [`Station::max_background_octets`].
//! - As many stations at the most as a window invites ask to join in it, each in its slot.
//!
//! # One rotation
//!
//! A station is visited when it has the token and decides what to send. A visit of station *j* takes *x + o* at most:
//! *x* is the time of its frame on the line, zero without one, and *o* that of the token and a hop. Let *s(j)* be the
//! time of the longest frame that it may always send, *a(j)* of the longest with a target, both zero where there is
//! none, *f(j)* the larger of the two, and *T* the largest target of all.
//!
//! Take the visits from one of station *i* to its next: *v(0)* at *i*, *v(1)*, … *v(N)*, again at *i*. If no station sends
//! frames with a target, they take Σ *s(j) + o*. Otherwise let *q* be the last of *v(0)* … *v(N−1)* that sends one. It may only if
//! the token came round to it in less than *T*. That round ends with *v(0)* to *v(q)* and began with *N − q* visits more,
//! each at least *o* long: *v(q) − v(0) < T − (N − q)·o*. Also *v(q) − v(0)* is at most the sum of *f(j) + o* before *q*.
//! From then on there are *a(q)* and what always may. So
//!
//! ```text
//! R(i) = max( Σ (s + o),  max over q of  min(T − (N − q)·o, Σ before q (f + o)) + a(q) + o + Σ behind q (s + o) )
//! ```
//!
//! where no *q* counts if *T* is at most *N·o*: then no frame with a target is ever sent.
//!
//! This is the bound of the timed token (Johnson 1987 for FDDI: no rotation is longer than two targets), made
//! sharper by what one packet a token allows. To it come, once a rotation, the rest of the first station and a hop
//! by which its timer may be late; and a window with such a hop, once a rotation and once in [`Options::window_interval`] at
//! the most.
//!
//! # One message
//!
//! Let *m* be a message of station *i* with period *P*, and consider the last visit of *i* before which, once the
//! decision is made, no message at least as urgent as *m* waits there. From then on each visit of *i* sends such a
//! message, until *m* is sent at the *n*th. It lies within *W(n)* of the beginning, *n* rotations and their
//! windows. All *n* messages came within that time: *m* itself, *q* earlier ones of the same stream, and of each
//! other stream that is at least as urgent at most ⌈*W(n)* / *period*⌉. The smallest *n* that satisfies
//!
//! ```text
//! n = q + 1 + Σ ⌈W(n) / period⌉
//! ```
//!
//! bounds the wait of the *q*th by *W(n) − q·P*, since it came *q* periods after the beginning or later. The *q*
//! that are to be looked at end with the first that is sent before the next one comes: then nothing as urgent
//! waits. (That it does not suffice to look at the first is Davis and others 2007, on the same analysis for CAN.)
//! To the longest wait come the message's own time on the line and a hop.
//!
//! Each token that is [lost](Network::lost) adds [`Options::lost`] and each station that [dies](Network::dead) adds
//! [`Options::repair`] to *W*, with a hop each by which a timer may be late.

use thiserror::Error;
use trunkline_units::Span;

use crate::token::{Line, Options};
use crate::wire::{ALL, MAX_INFORMATION, MAX_PRIORITY};

/// A message that needs more visits than this counts as never sent.
const MAX_VISITS: u64 = 100_000;

/// A ring for which traffic contracts are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its line.
    pub line: Line,
    /// Options of the token.
    pub options: Options,
    /// Stations, in any order.
    pub stations: Vec<Station>,
    /// Tokens that may be lost while a message waits.
    pub lost: u32,
    /// Stations that may die while one message waits.
    pub dead: u32,
}

/// A station of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its number, 1 to 254.
    pub number: u8,
    /// Octets of the longest message that it sends without a contract at a priority with a target; `None` if it sends
    /// none.
    pub max_background_octets: Option<u32>,
}

/// A traffic contract: how often a station sends, and the deadline that the ring keeps in return. `--promise` of
/// `trunkline llc admit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficContract {
    /// The station.
    pub station: u8,
    /// Priority, 0 to 7.
    pub priority: u8,
    /// Octets of the longest message, including its checksum.
    pub octets: u32,
    /// Minimum time between two messages.
    pub period: Span,
    /// Deadline of each message.
    pub deadline: Span,
}

/// Why contracts are refused. A contract is identified by its index.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// A ring has stations, numbered 1 to 254, each once.
    #[error("a ring has stations, numbered 1 to 254, each once")]
    Stations,
    /// Its station is not in the ring.
    #[error("promise {contract}: station {station} is not in the ring")]
    UnknownStation {
        /// Index of the contract.
        contract: usize,
        /// The station.
        station: u8,
    },
    /// It is invalid: a priority is 0 to 7, a period is not zero, and a message fits into a frame.
    #[error("promise {contract} makes no sense")]
    InvalidContract {
        /// Index of the contract.
        contract: usize,
    },
    /// A background message does not fit into a frame.
    #[error("a message has at most {MAX_INFORMATION} octets: the background of station {station}")]
    Background {
        /// The station.
        station: u8,
    },
    /// The token would be resent needlessly.
    #[error("the patience of the ring must be {least} at least")]
    Patience {
        /// Required minimum.
        least: Span,
    },
    /// A response takes longer than its slot.
    #[error("the slot of the ring must be {least} at least")]
    Slot {
        /// Required minimum.
        least: Span,
    },
    /// A rotation may be so slow that this priority may not send.
    #[error(
        "promise {contract}: a rotation of {rotation} is not less than the target of its priority, {target}"
    )]
    Limited {
        /// Index of the contract.
        contract: usize,
        /// Longest rotation.
        rotation: Span,
        /// Target.
        target: Span,
    },
    /// The contracts exceed one packet per token.
    #[error("promise {contract}: the station has more to send than tokens come")]
    Overload {
        /// Index of the contract.
        contract: usize,
    },
    /// It may miss its deadline.
    #[error("promise {contract}: a message may take {delay}, promised is {deadline}")]
    Late {
        /// Index of the contract.
        contract: usize,
        /// The bound.
        delay: Span,
        /// Requested deadline.
        deadline: Span,
    },
}

/// Returns the maximum delay of each contract.
///
/// # Errors
/// The first contract that cannot be kept, with the reason.
pub fn admit(network: &Network, contracts: &[TrafficContract]) -> Result<Vec<Span>, Refusal> {
    let ring = Ring::new(network, contracts)?;
    let kept = |(contract, &TrafficContract { deadline, .. }): (usize, &TrafficContract)| {
        let delay = ring.delay(contract)?;
        if delay > deadline { Err(Refusal::Late { contract, delay, deadline }) } else { Ok(delay) }
    };
    contracts.iter().enumerate().map(kept).collect()
}

/// Returns the maximum delay of each contract, ignoring deadlines.
///
/// # Errors
/// Contracts that are invalid or have no bound.
pub fn delays(network: &Network, contracts: &[TrafficContract]) -> Result<Vec<Span>, Refusal> {
    let ring = Ring::new(network, contracts)?;
    (0..contracts.len()).map(|contract| ring.delay(contract)).collect()
}

/// Returns the longest rotation without losses, including a window and the idle hold.
///
/// # Errors
/// Invalid contracts.
pub fn rotation(network: &Network, contracts: &[TrafficContract]) -> Result<Span, Refusal> {
    let ring = Ring::new(network, contracts)?;
    Ok((0..ring.visits.len()).map(|at| ring.rotation(at)).max().unwrap_or_default()
        + ring.rest()
        + ring.window())
}

/// Longest visits of a station.
#[derive(Clone, Copy, Debug)]
struct Visit {
    number: u8,
    /// Time of the longest frame without a target.
    urgent: Span,
    /// Time of the longest frame with a target.
    limited: Span,
}

/// A ring with valid contracts.
struct Ring<'a> {
    network: &'a Network,
    contracts: &'a [TrafficContract],
    /// Visits in ring order.
    visits: Vec<Visit>,
    /// The longest frame.
    longest: Span,
}

impl<'a> Ring<'a> {
    fn new(network: &'a Network, contracts: &'a [TrafficContract]) -> Result<Ring<'a>, Refusal> {
        let Network { line, options, stations, .. } = network;
        let mut visits = Vec::with_capacity(stations.len());
        for station in stations {
            let octets = station.max_background_octets.unwrap_or(0);
            if octets as usize > MAX_INFORMATION {
                return Err(Refusal::Background { station: station.number });
            }
            let limited = station.max_background_octets.map_or(Span::ZERO, |octets| line.message(octets));
            visits.push(Visit { number: station.number, urgent: Span::ZERO, limited });
        }
        visits.sort_by_key(|visit| visit.number);
        let unique = visits.windows(2).all(|pair| pair[0].number < pair[1].number);
        if visits.is_empty() || !unique || visits.iter().any(|visit| [0, ALL].contains(&visit.number)) {
            return Err(Refusal::Stations);
        }
        for (at, contract) in contracts.iter().enumerate() {
            let &TrafficContract { station, priority, octets, period, .. } = contract;
            if priority > MAX_PRIORITY || period.is_zero() || octets as usize > MAX_INFORMATION {
                return Err(Refusal::InvalidContract { contract: at });
            }
            let visit = visits.iter_mut().find(|visit| visit.number == station);
            let visit = visit.ok_or(Refusal::UnknownStation { contract: at, station })?;
            let always = options.rotation_targets[usize::from(priority)] == Span::MAX;
            let frame = if always { &mut visit.urgent } else { &mut visit.limited };
            *frame = line.message(octets).max(*frame);
        }
        let longest = visits.iter().map(|visit| visit.urgent.max(visit.limited)).max().unwrap_or_default();
        let ring = Ring { network, contracts, visits, longest: longest.max(line.token()) };
        ring.timers()?;
        Ok(ring)
    }

    /// Checks that no timer expires in a healthy ring.
    fn timers(&self) -> Result<(), Refusal> {
        let options = &self.network.options;
        let slot = self.overhead();
        let patience = self.longest + slot * 2 + self.rest();
        if options.slot < slot {
            return Err(Refusal::Slot { least: slot });
        }
        if options.pass_timeout < patience {
            return Err(Refusal::Patience { least: patience });
        }
        Ok(())
    }

    /// Returns the duration of a visit without its frame.
    fn overhead(&self) -> Span {
        let line = &self.network.line;
        line.token() + line.hop + line.relay(self.longest)
    }

    /// Returns the longest idle hold of a rotation.
    fn rest(&self) -> Span {
        let Network { line, options, .. } = self.network;
        if options.idle_hold.is_zero() { Span::ZERO } else { options.idle_hold + line.hop }
    }

    fn window(&self) -> Span {
        self.network.options.window() + self.network.line.hop
    }

    /// Returns the longest time between visits of the station at index `from`, without idle hold and window.
    fn rotation(&self, from: usize) -> Span {
        let overhead = self.overhead();
        let limits = self.network.options.rotation_targets.iter().filter(|target| **target != Span::MAX);
        let target = limits.max().copied().unwrap_or_default();
        let mut urgent_behind: Span =
            self.visits.iter().fold(Span::ZERO, |sum, visit| sum + visit.urgent + overhead);
        let mut longest = urgent_behind;
        let mut before = Span::ZERO;
        let idle = overhead * self.visits.len() as u64;
        let mut round = idle;
        for visit in self.visits[from..].iter().chain(&self.visits[..from]) {
            urgent_behind -= visit.urgent + overhead;
            if !visit.limited.is_zero() && target > idle {
                longest = longest.max(before.min(target - round) + visit.limited + overhead + urgent_behind);
            }
            before += visit.urgent.max(visit.limited) + overhead;
            round -= overhead;
        }
        longest
    }

    /// Returns the longest time of `visits` further visits of a station that is visited every `rotation` at the
    /// latest.
    fn wait(&self, rotation: Span, visits: u64) -> Span {
        let Network { line, options, lost, dead, .. } = self.network;
        let repairs =
            (options.lost() + line.hop) * u64::from(*lost) + (options.repair() + line.hop) * u64::from(*dead);
        let busy = (rotation + self.rest()) * visits + repairs;
        let mut wait = busy;
        loop {
            let windows = wait
                .as_ps()
                .checked_div(options.window_interval.as_ps())
                .map_or(visits, |n| visits.min(n + 1));
            let longer = busy + self.window() * windows;
            if longer == wait {
                return wait;
            }
            wait = longer;
        }
    }

    fn delay(&self, at: usize) -> Result<Span, Refusal> {
        let TrafficContract { station, priority, octets, period, .. } = self.contracts[at];
        let place = self.visits.iter().position(|visit| visit.number == station).unwrap_or_default();
        let rotation = self.rotation(place);
        let target = self.network.options.rotation_targets[usize::from(priority)];
        let slowest = self.wait(rotation, 1);
        if target != Span::MAX && slowest >= target {
            return Err(Refusal::Limited { contract: at, rotation: slowest, target });
        }
        let others: Vec<Span> = self
            .contracts
            .iter()
            .enumerate()
            .filter(|(n, other)| *n != at && other.station == station && other.priority >= priority)
            .map(|(_, other)| other.period)
            .collect();
        let (mut longest, mut visits) = (Span::ZERO, 0);
        for earlier in 0u64.. {
            visits = visits.max(earlier + 1);
            let wait = loop {
                let wait = self.wait(rotation, visits);
                let more: u64 = others.iter().map(|other| wait.as_ps().div_ceil(other.as_ps())).sum();
                let needed = (earlier + 1).saturating_add(more);
                if needed > MAX_VISITS {
                    return Err(Refusal::Overload { contract: at });
                }
                if needed <= visits {
                    break wait;
                }
                visits = needed;
            };
            longest = longest.max(wait - period * earlier);
            if wait <= period * (earlier + 1) {
                break;
            }
        }
        let line = &self.network.line;
        Ok(longest + line.message(octets) + line.hop + line.relay(self.longest))
    }
}
