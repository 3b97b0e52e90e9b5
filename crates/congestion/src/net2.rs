//! Reno in bytes, as in 4.3BSD.

use crate::{Acknowledgement, Bounds, Controller, Loss};

/// Two details in which systems of the Reno family differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Net/2: congestion avoidance adds an eighth of a segment to each step, and a window inflated by exactly three
    /// duplicate acknowledgements is not deflated.
    #[default]
    Net2,
    /// RFC 2581: neither.
    Rfc2581,
}

/// Duplicate acknowledgements that indicate a loss.
const DUPLICATE_ACK_THRESHOLD: u32 = 3;

/// Slow start threshold of a new connection in the Berkeley code: none.
const UNLIMITED: u32 = 0xffff << 14;

/// The congestion window of 4.3BSD Reno (Wright and Stevens, *TCP/IP Illustrated*, volume 2, sections 27.9 and 29.4): one
/// step for each acknowledgement, whatever it covers.
///
/// Fast recovery inflates this window, so a transport reports duplicate acknowledgements to [`inflate`](Net2::inflate) and
/// [`deflate`](Net2::deflate).
#[derive(Clone, Copy, Debug)]
pub struct Net2 {
    window: u32,
    threshold: u32,
    segment: u32,
    max: u32,
    arithmetic: Arithmetic,
}

/// Returns segment length and maximum window. The square of a segment has 32 bits.
fn valid(bounds: Bounds) -> (u32, u32) {
    let bounds = bounds.valid();
    (bounds.segment.min(0xffff), bounds.max)
}

impl Net2 {
    /// Creates a controller with a window of one segment. `threshold` is the initial slow start threshold; none: unlimited.
    pub fn new(bounds: Bounds, threshold: Option<u32>, arithmetic: Arithmetic) -> Net2 {
        let (segment, max) = valid(bounds);
        Net2 { window: segment, threshold: threshold.unwrap_or(UNLIMITED), segment, max, arithmetic }
    }

    /// Sets segment length and maximum window, which a handshake negotiates, and returns to a window of one segment. The
    /// slow start threshold stays.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        let (segment, max) = valid(bounds);
        (self.window, self.segment, self.max) = (segment, segment, max);
    }

    /// Inflates the window by one segment for a further duplicate acknowledgement: data has left the network.
    #[inline]
    pub fn inflate(&mut self) {
        self.window = self.window.saturating_add(self.segment);
    }

    /// Deflates the window at the end of fast recovery, after this many duplicate acknowledgements.
    #[inline]
    pub fn deflate(&mut self, duplicates: u32) {
        let enough = DUPLICATE_ACK_THRESHOLD + u32::from(self.is_net2());
        if duplicates >= enough && self.window > self.threshold {
            self.window = self.threshold;
        }
    }

    #[inline]
    fn is_net2(&self) -> bool {
        self.arithmetic == Arithmetic::Net2
    }
}

impl Controller for Net2 {
    #[inline]
    fn window(&self) -> u32 {
        self.window
    }

    #[inline]
    fn threshold(&self) -> Option<u32> {
        Some(self.threshold)
    }

    /// Opens the window: slow start or congestion avoidance. The caller need not make the report that it ignores.
    #[inline(always)]
    fn on_ack(&mut self, _: &Acknowledgement) -> bool {
        let (window, segment) = (self.window, self.segment);
        let step = if window > self.threshold {
            let step = segment * segment / window;
            if self.is_net2() { step + segment / 8 } else { step.max(1) }
        } else {
            segment
        };
        self.window = window.saturating_add(step).min(self.max);
        true
    }

    /// Sets the threshold to half of the flight size in whole segments, at least two. A loss without a timeout inflates the
    /// window by the three segments that the duplicate acknowledgements report.
    fn on_lost(&mut self, lost: &Loss) {
        let segments = lost.in_flight / 2 / self.segment;
        self.threshold = segments.max(2) * self.segment;
        self.window = match lost.timeout {
            true => self.segment,
            false => self.threshold + self.segment * DUPLICATE_ACK_THRESHOLD,
        };
    }

    fn on_idle(&mut self, _: trunkline_units::Instant) {
        self.window = self.segment;
    }
}
