//! CoDel (RFC 8289): drops at the head of the queue while the sojourn time stays above a target for an interval.

use trunkline_endpoint::{Ecn, Frame};
use trunkline_units::{Instant, Span};

use super::fifo::{Fifo, Queued};
use super::{Actions, Discipline};

/// Parameters of CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelOptions {
    /// Acceptable standing delay (section 4.3).
    pub target: Span,
    /// Time that the delay may exceed the target, on the order of a worst-case round trip (section 4.3).
    pub interval: Span,
    /// Whether frames of ECN-capable transports are marked instead of dropped (section 3.1).
    pub ecn: bool,
    /// Sojourn time above which every frame of an ECN-capable transport is marked, besides what the control law does; none:
    /// never. Not in RFC 8289: Linux and ns-3 have it for DCTCP.
    pub ce_threshold: Option<Span>,
}

/// The target and interval of RFC 8289 section 4.4; no ECN, no threshold.
impl Default for CoDelOptions {
    fn default() -> Self {
        CoDelOptions {
            target: Span::from_ms(5),
            interval: Span::from_ms(100),
            ecn: false,
            ce_threshold: None,
        }
    }
}

/// The state of the control law of one queue (section 5.2).
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// When the sojourn time will have been above the target for an interval.
    first_above: Option<Instant>,
    /// When the next frame is dropped, in the dropping state.
    drop_next: Instant,
    /// Drops since the dropping state was entered.
    count: u32,
    /// `count` when it was last entered.
    last_count: u32,
    is_dropping: bool,
    /// Length of the longest frame so far. With at most so much left the queue is not standing.
    longest: u32,
}

impl Control {
    /// Removes the next frame to send from a queue; drops or marks those that the control law selects, and marks those above
    /// the threshold.
    pub fn dequeue<F: Frame>(
        &mut self,
        options: &CoDelOptions,
        now: Instant,
        fifo: &mut Fifo<F>,
        actions: &mut Actions<F>,
    ) -> Option<Queued<F>> {
        let mut next = self.select(options, now, fifo, actions)?;
        let is_late = options.ce_threshold.is_some_and(|threshold| now.since(next.at) > threshold);
        if is_late && next.frame.ecn() != Ecn::Ce {
            actions.try_mark(&mut next.frame);
        }
        Some(next)
    }

    /// Removes the next frame to send, after those that the control law selects (section 5.5).
    fn select<F: Frame>(
        &mut self,
        options: &CoDelOptions,
        now: Instant,
        fifo: &mut Fifo<F>,
        actions: &mut Actions<F>,
    ) -> Option<Queued<F>> {
        let (mut next, mut is_above) = self.take(options, now, fifo);
        if self.is_dropping {
            self.is_dropping = is_above;
            while self.is_dropping && now >= self.drop_next {
                let mut victim = next?;
                self.count = self.count.saturating_add(1);
                if options.ecn && actions.try_mark(&mut victim.frame) {
                    self.drop_next = self.control_law(options, self.drop_next);
                    return Some(victim);
                }
                actions.dropped.push(victim.frame);
                (next, is_above) = self.take(options, now, fifo);
                self.is_dropping = is_above;
                if is_above {
                    self.drop_next = self.control_law(options, self.drop_next);
                }
            }
            return next;
        }
        if !is_above {
            return next;
        }
        let mut victim = next?;
        let is_marked = options.ecn && actions.try_mark(&mut victim.frame);
        if is_marked {
            next = Some(victim);
        } else {
            actions.dropped.push(victim.frame);
            (next, _) = self.take(options, now, fifo);
        }
        self.is_dropping = true;
        // If the queue stood recently, the rate that controlled it then is the first guess.
        let delta = self.count.saturating_sub(self.last_count);
        let is_recent = now.since(self.drop_next) < options.interval * 16;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.control_law(options, now);
        next
    }

    /// Removes the first frame; returns also whether the sojourn time has been above the target for an interval.
    fn take<F: Frame>(
        &mut self,
        options: &CoDelOptions,
        now: Instant,
        fifo: &mut Fifo<F>,
    ) -> (Option<Queued<F>>, bool) {
        let Some(first) = fifo.pop() else {
            self.first_above = None;
            return (None, false);
        };
        self.longest = self.longest.max(first.frame.length());
        if now.since(first.at) < options.target || fifo.bytes() <= u64::from(self.longest) {
            self.first_above = None;
            return (Some(first), false);
        }
        let first_above = *self.first_above.get_or_insert(now + options.interval);
        (Some(first), now >= first_above)
    }

    /// Returns the time of the next drop: an interval over the square root of the number of drops after `from`.
    fn control_law(&self, options: &CoDelOptions, from: Instant) -> Instant {
        let gap_ps = options.interval.as_ps() as f64 / libm::sqrt(f64::from(self.count.max(1)));
        from + Span::from_ps(gap_ps as u64)
    }
}

/// A queue that CoDel manages.
#[derive(Clone, Debug)]
pub struct CoDel<F> {
    options: CoDelOptions,
    fifo: Fifo<F>,
    control: Control,
}

impl<F> CoDel<F> {
    /// Creates an empty queue.
    pub fn new(options: CoDelOptions) -> Self {
        CoDel { options, fifo: Fifo::default(), control: Control::default() }
    }
}

impl<F: Frame> Discipline<F> for CoDel<F> {
    fn enqueue(&mut self, now: Instant, frame: F) {
        self.fifo.push(now, frame);
    }

    fn dequeue(&mut self, now: Instant, actions: &mut Actions<F>) -> Option<Queued<F>> {
        self.control.dequeue(&self.options, now, &mut self.fifo, actions)
    }

    fn frames(&self) -> u64 {
        self.fifo.frames()
    }
}
