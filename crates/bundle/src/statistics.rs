//! What the three endpoints count. Both formats share these types.

use trunkline_units::Span;

use crate::drops::DropCounts;
use crate::sequence::SequenceCounts;

/// The counters of a central converter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CentralStatistics {
    /// Bundles received.
    pub bundles_received: u64,
    /// Data messages received from level 1.
    pub from_level1: u64,
    /// Data messages received from hosts.
    pub from_hosts: u64,
    /// Messages sent to hosts: one per message in broadcast bundles, one per receiver in unicast bundles.
    pub to_hosts: u64,
    /// Messages sent to level 1.
    pub to_level1: u64,
    /// Bundles sent.
    pub bundles_sent: u64,
    /// Joins and drops received from hosts.
    pub control_messages: u64,
    /// Hosts whose interest was removed after a refusal.
    pub hosts_removed: u64,
    /// Joins sent to level 1 again.
    pub joins_refreshed: u64,
    /// Repeated requests to a level-1 converter to leave a packet address.
    pub stray_groups: u64,
    /// Malformed bundles, bundles of unknown senders, and invalid control messages.
    pub malformed: u64,
    /// Results of sequence checking. This field and all up to the drops belong to format 2.
    pub sequence: SequenceCounts,
    /// Messages in bundles from hosts and level 1 that were lost.
    pub lost: u64,
    /// Bundles of earlier incarnations, of hosts above the limit, and of later incarnations that have not confirmed
    /// their session.
    pub stale: u64,
    /// Messages of local hosts that returned from the wide area.
    pub looped_back: u64,
    /// Retransmissions to hosts.
    pub retransmissions: u64,
    /// Sessions started with hosts.
    pub hosts_joined: u64,
    /// Sessions with hosts that ended: by a bye, a timeout or a new incarnation.
    pub hosts_left: u64,
    /// Joins without room, and leaves that would have split a range without room.
    pub changes_refused: u64,
    /// Times that joins and leaves were deferred because the work budget was spent.
    pub changes_deferred: u64,
    /// Counters of the level-1 converters.
    pub level1: Level1PeerCounts,
    /// Dropped messages for hosts.
    pub drops_to_hosts: DropCounts,
    /// Dropped messages for level 1.
    pub drops_to_level1: DropCounts,
}

/// The counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Bundles received from the central converter.
    pub bundles_received: u64,
    /// Messages received for this host.
    pub received: u64,
    /// Messages received for other hosts, and ignored.
    pub for_others: u64,
    /// Messages sent.
    pub sent: u64,
    /// Bundles sent.
    pub bundles_sent: u64,
    /// Joins and leaves sent again.
    pub refreshed: u64,
    /// Malformed bundles and invalid control messages.
    pub malformed: u64,
    /// Results of sequence checking. This field and all up to the drops belong to format 2.
    pub sequence: SequenceCounts,
    /// Messages in bundles that were lost or late.
    pub lost: u64,
    /// The part of `lost` that was in broadcast bundles, whether or not the host had joined their addresses.
    pub broadcasts_lost: u64,
    /// Retransmissions to the central converter.
    pub retransmissions: u64,
    /// Sessions with the central converter: more than one after a restart or a timeout of either side.
    pub sessions: u64,
    /// Times that the central converter timed out.
    pub central_timeouts: u64,
    /// Bundles of an earlier session.
    pub stale: u64,
    /// Dropped messages: refused when sent, or without room in the inbox.
    pub drops: DropCounts,
}

/// The counters of a level-1 converter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level1Statistics {
    /// Messages received from the wide area.
    pub received: u64,
    /// Bundles received from the central converter.
    pub bundles_received: u64,
    /// Messages sent to the wide area.
    pub sent: u64,
    /// Bundles sent to the central converter.
    pub bundles_sent: u64,
    /// Malformed bundles and invalid control messages.
    pub malformed: u64,
    /// Messages of local hosts that returned from the wide area. This field and the next two belong to format 2.
    pub looped_back: u64,
    /// Bundles of an earlier session.
    pub stale: u64,
    /// Times that the central converter timed out.
    pub central_timeouts: u64,
    /// Dropped messages from the wide area.
    pub drops: DropCounts,
    /// Dropped messages for the wide area.
    pub drops_outgoing: DropCounts,
}

/// The counters of all level-1 converters at a central converter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level1PeerCounts {
    /// Sessions started.
    pub sessions_started: u64,
    /// Sessions that ended, by a timeout or a bye.
    pub sessions_ended: u64,
    /// Packet addresses that moved between converters while a host subscribed to them.
    pub moved: u64,
    /// The sum of the times that moving packet addresses had no owner.
    pub total_gap: Span,
    /// The longest of these times.
    pub longest_gap: Span,
}
