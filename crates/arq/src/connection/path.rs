//! Path MTU discovery: probes, and the reaction to a smaller path MTU.
//!
//! A frame keeps its number, chunks and bytes until it is acknowledged. If it exceeds the path MTU, it is sent in
//! [`parts`](super::parts), invisibly to both applications.

use trunkline_units::{Instant, Span};

use super::parts::SplitFrame;
use super::search::PathSearch;
use super::{Connection, PendingControl, frames};
use crate::options::Mode;
use crate::receive::partials::PartialFrames;
use crate::send::flight::{AckSummary, LossSummary};
use crate::statistics::PathMtu;

/// Factor between the retransmission timeout and the timeout of a probe: a probe is a long frame and may wait behind a
/// window of others.
const PROBE_TIMEOUT_FACTOR: u64 = 3;
/// Delay before a probe that could not be sent is tried again.
const PROBE_RETRY: Span = Span::from_s(1);

/// Path state of a connection whose ends both accept frames in parts.
#[derive(Debug)]
pub(super) struct PathState {
    pub search: PathSearch,
    /// The frame that is being sent in parts.
    pub split_frame: Option<SplitFrame>,
    /// Received parts of incomplete frames.
    pub partials: PartialFrames,
    /// Counters; `max_frame` is that of the connection.
    counters: PathMtu,
}

impl PathState {
    /// Creates a state; received frames have at most `max_body` bytes without their check.
    pub fn new(search: PathSearch, max_body: usize) -> PathState {
        let (partials, counters) = (PartialFrames::new(max_body), PathMtu::default());
        PathState { search, split_frame: None, partials, counters }
    }
}

impl Connection {
    /// Returns the next deadline of the path MTU search.
    #[inline]
    pub(super) fn path_probe_at(&self) -> Instant {
        self.path.as_ref().map_or(Instant::MAX, |path| path.search.wake_at)
    }

    /// Queues the next path MTU probe if it is due.
    pub(super) fn probe_path(&mut self, now: Instant) {
        let is_unconfirmed = self.is_unconfirmed();
        let timeout = self.rtt.timeout(self.peer_ack_delay) * PROBE_TIMEOUT_FACTOR;
        let Some(path) = self.path.as_mut().filter(|path| path.search.wake_at <= now) else { return };
        let is_queued =
            self.pending_controls.iter().any(|control| matches!(control, PendingControl::PathProbe(_)));
        if is_unconfirmed || is_queued || self.pending_controls.len() >= frames::MAX_PENDING_CONTROLS {
            return path.search.wake_at = now + PROBE_RETRY;
        }
        if let Some(probe) = path.search.next_probe(now, timeout) {
            path.counters.probes_sent += 1;
            self.pending_controls.push_back(PendingControl::PathProbe(probe));
        }
    }

    pub(super) fn process_probe_reply(&mut self, now: Instant, token: u32, length: u16) {
        if let Some(path) = &mut self.path
            && path.search.on_reply(now, token, length.into())
        {
            path.counters.probes_answered += 1;
            self.max_frame = path.search.carried;
        }
    }

    /// Records whether long frames were acknowledged.
    #[inline]
    pub(super) fn record_acked_length(&mut self, summary: &AckSummary) {
        if let Some(path) = &mut self.path
            && path.search.is_long(summary.longest.into())
        {
            path.search.on_long_frame_acked();
        }
    }

    /// Checks a loss for signs of a black hole: all lost frames are long although others have arrived.
    #[inline]
    pub(super) fn check_lost_lengths(&mut self, now: Instant, lost: &LossSummary) {
        if self.path.as_ref().is_some_and(|path| path.search.is_long(lost.shortest.into())) {
            self.suspect_black_hole(now);
        }
    }

    /// Checks a timeout for signs of a black hole: only long frames were unanswered. Returns whether the path MTU was
    /// reduced.
    pub(super) fn check_unanswered_lengths(&mut self, now: Instant) -> bool {
        let Some(path) = &self.path else { return false };
        let mut lengths = self.sender.flights.lengths_in_flight();
        let only_long = match self.options.mode {
            Mode::Selective => lengths.all(|length| path.search.is_long(length)),
            // Frames after the first missing one are not acknowledged, long or short.
            Mode::GoBackN | Mode::StopAndWait => {
                lengths.next().is_some_and(|length| path.search.is_long(length))
            }
        };
        drop(lengths);
        only_long && self.suspect_black_hole(now)
    }

    /// Records a sign of a black hole. If the signs suffice, it reduces the path MTU, retransmits the long frames in
    /// parts, and returns true. Their loss is no sign of congestion, so the controller receives no report.
    fn suspect_black_hole(&mut self, now: Instant) -> bool {
        let Some(path) = self.path.as_mut() else { return false };
        if !path.search.on_black_hole_sign(now) {
            return false;
        }
        path.counters.reductions += 1;
        self.max_frame = path.search.carried;
        let mut lost = LossSummary::default();
        match self.options.mode {
            Mode::Selective => self.sender.flights.mark_longer_lost(self.max_frame, &mut lost),
            Mode::GoBackN | Mode::StopAndWait => self.sender.flights.mark_all_lost(&mut lost),
        }
        self.statistics.lost += u64::from(lost.frames);
        (self.timeouts_in_a_row, self.last_go_back) = (0, None);
        self.pace_at = self.pace_at.min(now);
        self.arm_retransmit_timer(now);
        true
    }

    /// Returns the path MTU and the counters of its discovery.
    pub fn path_mtu(&self) -> PathMtu {
        let counters = self.path.as_ref().map_or_else(PathMtu::default, |path| path.counters);
        PathMtu { max_frame: self.max_frame as u16, ..counters }
    }
}
