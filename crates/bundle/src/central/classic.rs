//! The central converter in format 1 (classic).

use trunkline_endpoint::Port;
use trunkline_units::{Instant, Span};

use super::{Central, Shared, count, queue};
use crate::api::CentralConfig;
use crate::bundler::Bundler;
use crate::drops::DropReason;
use crate::level::MIN_LEVEL;
use crate::level1_owners::Level1Owners;
use crate::wire::classic::{
    CONTROL, ClassicBundle, ClassicControl, ClassicMessage, HOST_CONTROL, MAX_HOSTS, Source, host_bit,
    packet_address,
};

/// The time between two refreshes of a level above the lowest.
const LEVEL_REFRESH: Span = Span::from_ms(250);

/// The state in format 1 (classic).
#[derive(Debug)]
pub(super) struct ClassicCentral {
    pub level1: Level1Owners,
    /// Messages for the hosts.
    pub bundler: Bundler,
    /// The levels last sent to hosts and to level 1, and when.
    sent_to_hosts: (u8, Instant),
    sent_to_level1: (u8, Instant),
}

impl ClassicCentral {
    pub fn new(config: &CentralConfig) -> ClassicCentral {
        let CentralConfig { settings, level1, .. } = config;
        ClassicCentral {
            level1: Level1Owners::new(level1, settings.pairs, settings.max_bundle, settings.timing),
            bundler: Bundler::new(None, settings.max_bundle, settings.timing),
            sent_to_hosts: (MIN_LEVEL, Instant::ZERO),
            sent_to_level1: (MIN_LEVEL, Instant::ZERO),
        }
    }

    /// Handles a bundle; returns `None` if it is malformed.
    pub fn receive_bundle(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        port: Port,
        bytes: &[u8],
    ) -> Option<()> {
        let (source, bundle) = ClassicBundle::read_with_mask(bytes).ok()?;
        match (port, source) {
            (Central::LEVEL1, Source::Level1(number)) => {
                let at = self.level1.position(number)?;
                shared.wide_area.carry(now, bytes.len(), 0);
                shared.statistics.bundles_received += 1;
                self.level1.record_bundle(now, at, bundle.count());
                bundle.messages().for_each(|message| self.receive_from_level1(shared, now, at, message));
            }
            (Central::HOSTS, Source::Host(host)) if host <= shared.config.hosts.min(MAX_HOSTS) => {
                shared.local.carry(now, bytes.len(), 0);
                shared.statistics.bundles_received += 1;
                bundle.messages().for_each(|message| self.receive_from_host(shared, now, host, message));
            }
            _ => return None,
        }
        Some(())
    }

    fn receive_from_level1(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        at: usize,
        message: ClassicMessage<'_>,
    ) {
        if self.level1.refreshes() && is_query(message) {
            return self.level1.refresh_at(at, now);
        }
        shared.statistics.from_level1 += 1;
        let priority = shared.config.settings.is_priority(message.address);
        let drops = &mut shared.statistics.drops_to_hosts;
        if [CONTROL, HOST_CONTROL].contains(&message.octets()) {
            // A host would mistake one length for control, and the other is never valid.
            return drops.count(DropReason::Control, priority);
        }
        if !self.level1.forwards(now, at, packet_address(message.address)) {
            return drops.count(DropReason::NoReceiver, priority);
        }
        self.send_to_hosts(shared, now, message, self.level1.interest.hosts(message.address), priority);
    }

    fn receive_from_host(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        host: u8,
        message: ClassicMessage<'_>,
    ) {
        let statistics = &mut shared.statistics;
        if message.octets() == CONTROL {
            let joins = match ClassicControl::read(message) {
                Some(ClassicControl::Join(_)) => true,
                Some(ClassicControl::Drop(_)) => false,
                _ => return statistics.malformed += 1,
            };
            statistics.control_messages += 1;
            return self.level1.change_interest(now, host, message.address, joins);
        }
        statistics.from_hosts += 1;
        let priority = shared.config.settings.is_priority(message.address);
        if message.octets() == HOST_CONTROL {
            return statistics.drops_to_hosts.count(DropReason::Control, priority);
        }
        let group = self.level1.interest.hosts(message.address) & !host_bit(host);
        if group != 0 {
            self.send_to_hosts(shared, now, message, group, priority);
        }
        let Shared { wide_area, statistics, .. } = shared;
        let queued =
            queue(wide_area, priority, message.octets(), || self.level1.send(now, message, priority));
        count(&mut statistics.to_level1, &mut statistics.drops_to_level1, priority, queued);
    }

    /// Sends a message to a group of hosts, which replaces its address.
    fn send_to_hosts(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        message: ClassicMessage<'_>,
        group: u16,
        priority: bool,
    ) {
        let Shared { local, statistics, .. } = shared;
        let queued = match group {
            0 => Err(DropReason::NoReceiver),
            _ => queue(local, priority, message.octets(), || {
                self.bundler.push(now, group, message.body, priority, None)
            }),
        };
        count(&mut statistics.to_hosts, &mut statistics.drops_to_hosts, priority, queued);
    }

    /// Removes the interest of a host that refused a bundle.
    pub fn remove_host(&mut self, shared: &mut Shared, now: Instant, host: u8) {
        let joined: Vec<u16> = self.level1.interest.addresses_of(host).collect();
        shared.statistics.hosts_removed += u64::from(!joined.is_empty());
        joined.into_iter().for_each(|address| self.level1.change_interest(now, host, address, false));
    }

    pub fn handle_timers(&mut self, shared: &mut Shared, now: Instant) {
        self.level1.handle_timers(now);
        // A receiver may have missed the level or restarted.
        let refreshes = self.level1.refreshes();
        let needs_report = |level: u8, (sent, at): (u8, Instant)| {
            level != sent || refreshes && level > MIN_LEVEL && now >= at + LEVEL_REFRESH
        };
        let (level, _) = shared.hosts_limit();
        if needs_report(level, self.sent_to_hosts) && self.bundler.push_level_for_hosts(now, level) {
            self.sent_to_hosts = (level, now);
        }
        let (level, _) = shared.level1_limit();
        if needs_report(level, self.sent_to_level1) {
            self.sent_to_level1 = (level, now);
            self.level1.announce_to_all(now, ClassicControl::Level(level));
        }
        self.bundler.close_if_due(now);
        self.level1.close_if_due(now);
        shared.statistics.stray_groups = self.level1.stray_groups;
        shared.statistics.level1 = self.level1.balance.counts;
    }
}

/// Returns whether a level-1 converter asks for its joins: it sends its own level, 3.
fn is_query(message: ClassicMessage<'_>) -> bool {
    let (address, body) = ClassicControl::Level(MIN_LEVEL).write();
    message.address == address && message.body == body
}
