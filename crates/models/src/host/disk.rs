//! A disk as a serial server.

use trunkline_units::{Instant, Rate, Size};

/// A disk that serves reads and writes in order, at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    rate: Rate,
    free_at: Instant,
}

impl Disk {
    /// Creates an idle disk.
    pub const fn new(rate: Rate) -> Self {
        Disk { rate, free_at: Instant::ZERO }
    }

    /// Queues a read or write of `bytes` behind all others and returns when it is done.
    pub fn take(&mut self, now: Instant, bytes: u64) -> Instant {
        self.free_at = now.max(self.free_at) + self.rate.time_for(Size::from_bytes(bytes));
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_serves_one_after_the_other() {
        let mut disk = Disk::new(Rate::from_bps(8_000_000));
        let ms = |n: u64| Instant::from_ns(n * 1_000_000);
        assert_eq!(disk.take(ms(0), 1_000), ms(1));
        assert_eq!(disk.take(ms(0), 2_000), ms(3));
        assert_eq!(disk.take(ms(10), 1_000), ms(11));
    }
}
