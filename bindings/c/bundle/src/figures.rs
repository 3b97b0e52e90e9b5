//! What a host counted, as C has it.

use trunkline_bundle::drops::Drops;
use trunkline_bundle::face::{Figures, HostFace, Serve};

use crate::words::Failure;

/// The figures, as C has them.
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
    pub(crate) fn of(face: &HostFace) -> CFigures {
        let machine = face.machine();
        let counted = machine.statistics();
        let dropped =
            |priority| Drops::REASONS.iter().map(|why| counted.drops.get(*why, priority)).sum::<u64>();
        CFigures {
            size: size_of::<CFigures>(),
            received: counted.received,
            others: counted.others,
            sent: counted.sent,
            bundles_received: counted.bundles,
            bundles_sent: counted.bundles_sent,
            malformed: counted.malformed,
            dropped: dropped(false),
            dropped_priority: dropped(true),
            lost: counted.lost,
            resent: counted.repeated,
            sessions: counted.sessions,
            silent: counted.lonely,
            wanted: machine.joined() as u64,
            level: machine.level(face.clock().now()).into(),
            saying: machine.is_saying().into(),
        }
    }

    /// Writes as many of them as there is room for.
    ///
    /// # Safety
    /// `to` begins with its size, and as many octets of it can be written.
    pub(crate) unsafe fn write(&self, to: *mut CFigures) -> Result<(), Failure> {
        // SAFETY: it begins with its size.
        let size = unsafe { (&raw const (*to).size).read() };
        if size < size_of::<usize>() + size_of::<u64>() {
            return Err(Failure::argument("the size is that of no figures"));
        }
        let known = size.min(size_of::<CFigures>());
        let own = CFigures { size, ..*self };
        // SAFETY: so many octets can be written, and read, as there is nothing between the fields.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping((&raw const own).cast(), known) };
        Ok(())
    }
}

/// All that it counted, for Prometheus.
pub(crate) fn page(face: &HostFace) -> String {
    let mut figures = Figures::default();
    face.figures(&mut figures);
    figures.prometheus()
}
