//! The counters of a host, as a C struct.

use trunkline_bundle::drops::DropCounts;
use trunkline_bundle::socket::{HostSocket, Metrics, SocketDriver};

use crate::error::BundleError;

/// `struct bundle_figures`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CFigures {
    size: usize,
    received: u64,
    others: u64,
    sent: u64,
    bundles_received: u64,
    bundles_sent: u64,
    malformed: u64,
    dropped: u64,
    dropped_priority: u64,
    lost: u64,
    resent: u64,
    sessions: u64,
    silent: u64,
    wanted: u64,
    level: u64,
    saying: u64,
}

impl CFigures {
    pub(crate) fn from_socket(socket: &HostSocket) -> CFigures {
        let machine = socket.machine();
        let statistics = machine.statistics();
        let dropped = |priority| {
            DropCounts::REASONS.iter().map(|reason| statistics.drops.get(*reason, priority)).sum::<u64>()
        };
        CFigures {
            size: size_of::<CFigures>(),
            received: statistics.received,
            others: statistics.for_others,
            sent: statistics.sent,
            bundles_received: statistics.bundles_received,
            bundles_sent: statistics.bundles_sent,
            malformed: statistics.malformed,
            dropped: dropped(false),
            dropped_priority: dropped(true),
            lost: statistics.lost,
            resent: statistics.retransmissions,
            sessions: statistics.sessions,
            silent: statistics.central_timeouts,
            wanted: machine.joined() as u64,
            level: machine.level(socket.clock().now()).into(),
            saying: machine.has_pending().into(),
        }
    }

    /// Writes as many counters as the caller's struct holds.
    ///
    /// # Safety
    /// `to` must begin with its size and be writable for that many octets.
    pub(crate) unsafe fn write(&self, to: *mut CFigures) -> Result<(), BundleError> {
        // SAFETY: it begins with its size.
        let size = unsafe { (&raw const (*to).size).read() };
        if size < size_of::<usize>() + size_of::<u64>() {
            return Err(BundleError::argument("the size is too small for struct bundle_figures"));
        }
        let known = size.min(size_of::<CFigures>());
        let own = CFigures { size, ..*self };
        // SAFETY: this many octets are writable, and initialized, since the struct has no padding.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping((&raw const own).cast(), known) };
        Ok(())
    }
}

/// Returns all metrics in the Prometheus text format.
pub(crate) fn metrics_page(socket: &HostSocket) -> String {
    let mut figures = Metrics::default();
    socket.collect_metrics(&mut figures);
    figures.prometheus()
}
