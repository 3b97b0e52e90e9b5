//! Bursts of segments, as Linux sends them: what it sends at once is a segment for its segmentation offload, of as many as a
//! millisecond of its pace carries, at least two. It waits for acknowledgements that permit a whole one (`tcp_tso_should_defer`).
//! The last of several segments has the flag PSH, at which the receiver acknowledges what its application has read.

use trunkline_units::{Instant, Rate, Size, Span};

use crate::Content;
use crate::extensions::{Extensions, Phase};
use crate::tcp::{OutputCheck, Tcp};

/// Binary logarithm of the part of a second of the pace that a burst carries (`sk_pacing_shift`), and its segments.
const PACE_SHIFT: u32 = 10;
const MIN_SEGMENTS: u64 = 2;
const MAX_SEGMENTS: u64 = 44;
/// The wait ends this long after the last segment left.
const MAX_WAIT: Span = Span::from_ms(1);
/// Pace as a percentage of the window in a round trip, in slow start and later.
const SLOW_START_PERCENT: u64 = 200;
const PERCENT: u64 = 120;

/// The segments that leave at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Burst {
    /// Those that have not left.
    pub(crate) remaining: u32,
    /// There were several at first.
    has_several: bool,
}

impl Extensions {
    /// Returns the segments of a burst.
    fn burst_segments(&self, mss: u32, smoothed: Span) -> u32 {
        let window = u64::from(self.window().max(self.scoreboard.pipe()));
        let is_slow_start =
            self.controller.threshold().is_some_and(|threshold| window < u64::from(threshold) / 2);
        let percent = if is_slow_start { SLOW_START_PERCENT } else { PERCENT };
        let pace = self.controller.pace().unwrap_or_else(|| {
            Rate::of(Size::from_bytes(window * percent / 100), smoothed.max(Span::from_us(1)))
        });
        let bytes = (pace.as_bps() / 8) >> PACE_SHIFT;
        (bytes / u64::from(mss)).clamp(MIN_SEGMENTS, MAX_SEGMENTS) as u32
    }
}

impl<C: Content> Tcp<C> {
    /// Returns whether new data waits until more may leave at once; otherwise a burst begins or continues.
    pub(crate) fn waits_for_burst(&mut self, now: Instant) -> bool {
        if !self.options.linux {
            return false;
        }
        let (mss, is_new_event) = (self.maxseg, self.output_check == OutputCheck::First);
        let smoothed = self.time.span(self.rtt.mean_eighths()) / 8;
        let sent = self.snd_max.since(self.snd_una);
        let unsent = self.queued.saturating_sub(sent);
        let peer_room = self.snd_wnd.saturating_sub(sent);
        let Some(e) = self.extensions.as_deref_mut() else { return false };
        if is_new_event {
            e.burst = Burst::default();
        }
        let window = e.window();
        let room = window.saturating_sub(e.pipe(mss)).min(peer_room);
        if e.burst.remaining > 0 || unsent == 0 || room < mss {
            return false;
        }
        let segments = e.burst_segments(mss, smoothed);
        let is_late = |at: Instant, wait: Span| now.since(at) > wait;
        // Of the smallest bursts a wait leaves one segment, which Linux sends at the end of its buffer, soon.
        let waits = e.phase == Phase::Open
            && u64::from(segments) > MIN_SEGMENTS
            && room < unsent.min(segments * mss).min(window.min(self.snd_wnd) / 3)
            && !is_late(e.scoreboard.last_sent_at(), MAX_WAIT)
            && e.scoreboard.first_sent_at().is_some_and(|first| is_late(first, smoothed / 2));
        if !waits {
            let count = segments.min(room / mss).min(unsent.div_ceil(mss));
            e.burst = Burst { remaining: count, has_several: count > 1 };
        }
        waits
    }

    /// Returns whether the next segment is the last of several that leave at once.
    pub(crate) fn ends_burst(&self) -> bool {
        let burst = self.extensions.as_deref().map_or(Burst::default(), |e| e.burst);
        burst.has_several && burst.remaining == 1 && self.snd_nxt == self.snd_max
    }
}
