//! [`Central`]: the central converter (section 3.4.3.3 of the thesis).
//!
//! A message of level 1 or of a host is sent to the hosts that subscribe to it; a host's message also goes to the
//! level-1 converter that sends to its packet address. Each medium admits the messages, each receiver has a queue, and
//! the bundles leave in [`poll`](Endpoint::poll).
//!
//! | | format 1 (classic) | format 2 |
//! | --- | --- | --- |
//! | hosts | one bundle for all, with a bit per receiver | a session each ([`members`](crate::members)) |
//! | subscribers | a bit per host and address ([`interest`](crate::interest)) | ranges ([`ranges`](crate::ranges)) |
//! | level 1 | joins and leaves, refreshed (`level1_owners`) | assignments, confirmed ([`level1_peers`](crate::level1_peers)) |
//! | duplicates | only the owner of a packet address forwards it | sequence numbers ([`sequence`](crate::sequence)) |
//! | priority | by the address, in order | reliable, before ordinary messages |

mod classic;
mod format2;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::{Instant, Seed, Span};

use self::classic::ClassicCentral;
pub use self::format2::Format2Central;
pub use crate::api::{CentralCommand, CentralConfig, MAX_LEVEL1};
use crate::balance::Balance;
use crate::drops::{CountUnsent, DropCounts, DropReason};
use crate::interest::Interest;
use crate::refresh::AFTER_REFUSAL;
use crate::regulator::{Congestion, Regulator};
pub use crate::statistics::CentralStatistics;
use crate::wire::classic::{ClassicBundle, HOST_CONTROL, host_bit};

/// The central converter.
///
/// On the port [`LEVEL1`](Central::LEVEL1) a [`Peer`] is a converter number, two octets in big-endian order. On
/// [`HOSTS`](Central::HOSTS) it is always [`Peer::NONE`], since bundles go to all hosts; the mask of a bundle
/// identifies its sender. In format 2 bundles for one host or converter go to the peer from which its bundles come.
/// Until that peer has confirmed its session, it is sent at most three times the octets received from it.
///
/// **Congestion.** Two media have a congestion level. The level of the hosts' medium is reported to hosts and limits
/// the messages to them. The level of the wide area limits the messages to level 1. Level-1 converters receive the
/// higher of both levels, because their messages load both media.
///
/// **Control** messages are never dropped for congestion. Bundles leave both sides as [`Settings::timing`](crate::Settings::timing)
/// says.
///
/// **Restarts.** Format 1 (classic) has no acknowledgements. A converter [with refresh](Central::with_refresh)
/// repeats the joins of its level-1 converters: periodically, when one queries by sending level 3, and after a
/// [refusal](CentralCommand::Level1Refused). It makes a converter leave a group that the converter forwards
/// without owning it.
///
/// **Rebalancing.** A converter [with rebalancing](Central::with_rebalancing) moves packet addresses from the busiest
/// to the idlest level-1 converter, but never to one that has been silent for a round. Leaves are not confirmed, so
/// the new owner joins 100 ms after the request to the old one to leave. In between the packet address has no owner, and
/// messages of hosts to it leave by the new owner, which does not receive them itself.
///
/// Bounds: 65 bundles for each level-1 converter and 65 for the hosts. Further messages are dropped and
/// [counted](CentralStatistics). Control messages without room are sent with the next change of interest or level.
#[derive(Debug)]
pub struct Central {
    shared: Shared,
    format: CentralFormat,
}

#[derive(Debug)]
enum CentralFormat {
    Classic(Box<ClassicCentral>),
    Format2(Box<Format2Central>),
}

/// What both formats need: the media and the counters.
#[derive(Debug)]
struct Shared {
    config: CentralConfig,
    /// The hosts' medium, and the wide area.
    local: Regulator,
    wide_area: Regulator,
    statistics: CentralStatistics,
}

impl Shared {
    /// Returns the level and rate that hosts may send at.
    fn hosts_limit(&self) -> (u8, u32) {
        (self.local.level(), self.local.rate())
    }

    /// The same for level 1, which loads both media.
    fn level1_limit(&self) -> (u8, u32) {
        (self.local.level().max(self.wide_area.level()), self.local.rate().min(self.wide_area.rate()))
    }
}

/// Queues a message if its medium admits it.
fn queue(
    medium: &mut Regulator,
    priority: bool,
    octets: usize,
    push: impl FnOnce() -> bool,
) -> Result<(), DropReason> {
    if !medium.admits(priority, octets) {
        return Err(DropReason::Congestion);
    }
    push().then_some(()).ok_or(DropReason::Full)
}

/// Counts a message as sent or dropped.
fn count(sent: &mut u64, drops: &mut DropCounts, priority: bool, result: Result<(), DropReason>) {
    match result {
        Ok(()) => *sent += 1,
        Err(reason) => drops.count(reason, priority),
    }
}

impl Central {
    /// The port to level 1.
    pub const LEVEL1: Port = Port(0);
    /// The port to hosts.
    pub const HOSTS: Port = Port(1);

    /// Creates a converter without subscribers. In format 2 its sessions are unpredictable without the `secret`, and
    /// each start needs a higher `incarnation`, modulo 2³².
    ///
    /// # Panics
    /// Panics if there is no level-1 converter, more than [`MAX_LEVEL1`], a duplicate number or the number 0.
    pub fn new(secret: Seed, incarnation: u32, config: CentralConfig) -> Central {
        let CentralConfig { settings, level1, .. } = &config;
        assert!(
            (1..=MAX_LEVEL1).contains(&level1.len()),
            "there must be 1 to {MAX_LEVEL1} level-1 converters"
        );
        assert!(
            level1.iter().enumerate().all(|(at, number)| *number > 0 && !level1[..at].contains(number)),
            "each level-1 converter needs a unique number above 0"
        );
        let format = match settings.format2() {
            None => CentralFormat::Classic(Box::new(ClassicCentral::new(&config))),
            Some(options) => {
                CentralFormat::Format2(Box::new(Format2Central::new(secret, incarnation, &config, options)))
            }
        };
        // Format 1 (classic) has levels only.
        let congestion = settings.format2().map_or(Congestion::Levels, |options| options.congestion);
        let (local, wide_area) =
            (Regulator::new(congestion, config.local), Regulator::new(congestion, config.wide_area));
        let shared = Shared { config, local, wide_area, statistics: CentralStatistics::default() };
        Central { shared, format }
    }

    /// Refreshes the joins of level 1 at this interval, and stops strays. Zero refreshes only after a query or a
    /// refusal. Format 2 ignores this: it confirms assignments.
    pub fn with_refresh(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.format {
            classic.level1.set_refresh(every);
        }
        self
    }

    /// Moves packet addresses from the busiest to the idlest level-1 converter at this interval; zero disables it.
    /// Use it together with [refresh](Central::with_refresh), which repeats lost leaves. Format 2 always rebalances.
    pub fn with_rebalancing(mut self, every: Span) -> Central {
        if let CentralFormat::Classic(classic) = &mut self.format {
            classic.level1.balance = Balance::new(every);
        }
        self
    }

    /// Returns the counters.
    pub fn statistics(&self) -> &CentralStatistics {
        &self.shared.statistics
    }

    /// Returns the congestion levels of the hosts' medium and of the wide area, 3 to 6.
    pub fn levels(&self) -> (u8, u8) {
        (self.shared.local.level(), self.shared.wide_area.level())
    }

    /// Returns the octets of ordinary messages per second that hosts and level-1 converters may send.
    pub fn rates(&self) -> (u32, u32) {
        (self.shared.hosts_limit().1, self.shared.level1_limit().1)
    }

    /// Returns whether a host subscribes to an address.
    pub fn is_subscribed(&self, host: u16, address: u32) -> bool {
        match &self.format {
            CentralFormat::Classic(classic) => {
                classic.level1.interest.hosts(address as u16) & host_bit(host as u8) != 0
            }
            CentralFormat::Format2(format2) => format2.segments().hosts(address).contains(&host),
        }
    }

    /// Returns subscribers and owners in format 1 (classic).
    pub fn subscriptions(&self) -> Option<&Interest> {
        match &self.format {
            CentralFormat::Classic(classic) => Some(&classic.level1.interest),
            CentralFormat::Format2(_) => None,
        }
    }

    /// Returns the state of format 2: hosts and level-1 converters.
    pub fn format2(&self) -> Option<&Format2Central> {
        match &self.format {
            CentralFormat::Classic(_) => None,
            CentralFormat::Format2(format2) => Some(format2),
        }
    }

    fn receive_bundle(&mut self, now: Instant, port: Port, peer: Peer, bytes: &[u8]) {
        let is_received = match &mut self.format {
            CentralFormat::Classic(classic) => classic.receive_bundle(&mut self.shared, now, port, bytes),
            CentralFormat::Format2(format2) => {
                format2.receive_bundle(&mut self.shared, now, port, peer, bytes)
            }
        };
        if is_received.is_none() {
            self.shared.statistics.malformed += 1;
        }
    }

    /// Handles everything that is due.
    fn handle_timers(&mut self, now: Instant) {
        self.shared.local.advance(now);
        self.shared.wide_area.advance(now);
        match &mut self.format {
            CentralFormat::Classic(classic) => classic.handle_timers(&mut self.shared, now),
            CentralFormat::Format2(format2) => format2.handle_timers(&mut self.shared, now),
        }
    }
}

impl Endpoint for Central {
    type Command<'a> = CentralCommand;
    type Event = std::convert::Infallible;
    type Refusal = std::convert::Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, CentralCommand>) -> Result<(), Self::Refusal> {
        self.handle_timers(now);
        match (input, &mut self.format) {
            (Input::Frame { port, peer, bytes, segment }, _) => {
                Segment::frames(segment, bytes)
                    .for_each(|bundle| self.receive_bundle(now, port, peer, bundle));
            }
            (Input::Wake, CentralFormat::Classic(_)) => {}
            (Input::Wake, CentralFormat::Format2(_)) => return Ok(()),
            (Input::Command(CentralCommand::HostRefused(host)), CentralFormat::Classic(classic)) => {
                classic.remove_host(&mut self.shared, now, host);
            }
            (Input::Command(CentralCommand::HostRefused(host)), CentralFormat::Format2(format2)) => {
                format2.members.remove(host.into());
            }
            (Input::Command(CentralCommand::Level1Refused(number)), CentralFormat::Classic(classic)) => {
                if let Some(at) = classic.level1.position(number) {
                    classic.level1.refresh_at(at, now + AFTER_REFUSAL);
                }
            }
            // The converter times out, or returns.
            (Input::Command(CentralCommand::Level1Refused(_)), CentralFormat::Format2(_)) => {}
        }
        match &mut self.format {
            CentralFormat::Classic(classic) => {
                self.shared.statistics.joins_refreshed += classic.level1.send_refresh(now);
            }
            CentralFormat::Format2(_) => self.handle_timers(now),
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Self::Event> {
        if matches!(self.format, CentralFormat::Classic(_)) {
            // A due bundle leaves in the interval in which it is due.
            self.handle_timers(now);
        }
        let Central { shared, format } = self;
        for (port, is_writable) in [Central::HOSTS, Central::LEVEL1].map(|port| (port, writable.has(port))) {
            if !is_writable {
                continue;
            }
            let written = match (&mut *format, port) {
                (CentralFormat::Classic(classic), Central::HOSTS) => {
                    classic.bundler.write_next(now, buffer).map(|length| (Peer::NONE, length, 0))
                }
                (CentralFormat::Classic(classic), _) => {
                    classic.level1.write_bundle(now, buffer).map(|(peer, length)| (peer, length, 0))
                }
                (CentralFormat::Format2(format2), Central::HOSTS) => {
                    format2.write_host_bundle(shared, now, buffer)
                }
                (CentralFormat::Format2(format2), _) => {
                    format2.level1_peers.write_bundle(now, format2.incarnation, shared.level1_limit(), buffer)
                }
            };
            if let Some((peer, length, admitted)) = written {
                // It counts in the interval in which it leaves.
                let medium = if port == Central::HOSTS { &mut shared.local } else { &mut shared.wide_area };
                medium.carry(now, length, admitted);
                shared.statistics.bundles_sent += 1;
                return Output::Transmit(Transmit { port, peer, length, segment: None });
            }
        }
        let (for_hosts, for_level1, timer) = match format {
            CentralFormat::Classic(classic) => {
                let ClassicCentral { level1, bundler, .. } = &**classic;
                let timer = bundler.deadline().into_iter().chain(level1.deadline()).min();
                (bundler.is_ready(), level1.is_ready(), timer)
            }
            CentralFormat::Format2(format2) => {
                (format2.is_ready(), format2.level1_peers.is_ready(), format2.deadline())
            }
        };
        let reason = match (for_hosts, for_level1) {
            (true, _) => Reason::Port(Central::HOSTS),
            (false, true) => Reason::Port(Central::LEVEL1),
            (false, false) => Reason::Input,
        };
        let timers = [timer, shared.local.deadline(), shared.wide_area.deadline()];
        Output::Idle(Idle { deadline: timers.into_iter().flatten().min(), reason })
    }
}

impl CountUnsent for Central {
    fn count_unsent(&mut self, port: Port, frame: &[u8]) {
        let Shared { config, statistics, .. } = &mut self.shared;
        let CentralStatistics { drops_to_hosts, drops_to_level1, .. } = statistics;
        let is_for_hosts = port == Central::HOSTS;
        let drops = if is_for_hosts { drops_to_hosts } else { drops_to_level1 };
        let classic = match &self.format {
            CentralFormat::Format2(_) => return drops.count_unsent_bundle(frame),
            CentralFormat::Classic(classic) => classic,
        };
        let Ok(bundle) = ClassicBundle::read(frame) else { return };
        if !is_for_hosts {
            return drops.count_unsent_classic(&bundle, &config.settings);
        }
        // In bundles for hosts the address that shows the priority is gone. Control is counted as priority but is no
        // message.
        let control = bundle.messages().filter(|message| message.octets() == HOST_CONTROL).count();
        let urgent = classic.bundler.urgent_in_last();
        drops.add(DropReason::Unsent, true, urgent.saturating_sub(control) as u64);
        drops.add(DropReason::Unsent, false, bundle.count().saturating_sub(urgent) as u64);
    }
}
