//! How long frames may be on the path: probes that look for it, and what follows when it becomes less.
//!
//! A frame keeps its number, its chunks and their bytes as long as it lives. If the path no longer carries it whole it
//! leaves in [`parts`](super::parts); no user of either end notices.

use trunkline_units::{Instant, Span};

use super::parts::Parting;
use super::search::Search;
use super::{Connection, Errand, frames};
use crate::options::Mode;
use crate::receive::partials::Partials;
use crate::send::flight::{Missing, News};
use crate::statistics::Reach;

/// How much longer than a timeout an answer to a probe may take: it is long, and may wait behind a window of frames.
const LATER: u64 = 3;
/// When a probe that could not leave is tried again.
const SOON: Span = Span::from_s(1);

/// The path of a connection both of whose ends take frames in parts.
#[derive(Debug)]
pub(super) struct Path {
    pub search: Search,
    /// The frame that leaves in parts just now.
    pub parting: Option<Parting>,
    pub partials: Partials,
    probes: u64,
    answered: u64,
    shrunk: u64,
}

impl Path {
    pub fn new(search: Search, longest: usize) -> Path {
        let partials = Partials::new(longest);
        Path { search, parting: None, partials, probes: 0, answered: 0, shrunk: 0 }
    }
}

impl Connection {
    /// When the search for longer frames goes on.
    #[inline]
    pub(super) fn search_at(&self) -> Instant {
        self.path.as_ref().map_or(Instant::MAX, |path| path.search.at())
    }

    /// Sends the next probe, if its time has come.
    pub(super) fn search(&mut self, now: Instant) {
        let unheard = self.is_unheard();
        let patience = self.round_trip.timeout(self.peer_ack_delay) * LATER;
        let Some(path) = self.path.as_mut().filter(|path| path.search.at() <= now) else { return };
        let waits = self.errands.iter().any(|errand| matches!(errand, Errand::Search(_)));
        if unheard || waits || self.errands.len() >= frames::ERRANDS {
            return path.search.postpone(now + SOON);
        }
        if let Some(trial) = path.search.wake(now, patience) {
            path.probes += 1;
            self.errands.push_back(Errand::Search(trial));
        }
    }

    /// The peer heard a probe.
    pub(super) fn take_heard(&mut self, now: Instant, token: u32, length: u16) {
        if let Some(path) = &mut self.path
            && path.search.answered(now, token, length.into())
        {
            path.answered += 1;
            self.frame = path.search.carried();
        }
    }

    /// Frames have been acknowledged.
    #[inline]
    pub(super) fn note_arrived(&mut self, news: &News) {
        if let Some(path) = &mut self.path
            && path.search.is_long(news.longest.into())
        {
            path.search.arrived();
        }
    }

    /// Frames are lost though others have arrived. If all of them are long that is a sign.
    #[inline]
    pub(super) fn note_lost(&mut self, now: Instant, missing: &Missing) {
        if self.path.as_ref().is_some_and(|path| path.search.is_long(missing.shortest.into())) {
            self.suspect(now);
        }
    }

    /// Nothing has come for a timeout. If the peer would have answered anything but long frames that is a sign; whether
    /// it was the last that was needed.
    pub(super) fn note_silence(&mut self, now: Instant) -> bool {
        let Some(path) = &self.path else { return false };
        let mut lengths = self.sender.flights.lengths_in_flight();
        let sign = match self.options.mode {
            Mode::Selective => lengths.all(|length| path.search.is_long(length)),
            // What comes after the first one missing is not answered, long or short.
            Mode::GoBackN | Mode::StopAndWait => {
                lengths.next().is_some_and(|length| path.search.is_long(length))
            }
        };
        drop(lengths);
        sign && self.suspect(now)
    }

    /// A sign that long frames no longer arrive; whether it was the last that was needed. Then they are sent again, in
    /// parts. That they are lost says nothing of congestion, and no policy is told.
    fn suspect(&mut self, now: Instant) -> bool {
        let Some(path) = self.path.as_mut() else { return false };
        if !path.search.suspect(now) {
            return false;
        }
        path.shrunk += 1;
        self.frame = path.search.carried();
        let mut missing = Missing::default();
        match self.options.mode {
            Mode::Selective => self.sender.flights.lose_longer(self.frame, &mut missing),
            Mode::GoBackN | Mode::StopAndWait => self.sender.flights.lose_all(&mut missing),
        }
        self.statistics.lost += u64::from(missing.frames);
        (self.backoff, self.went_back) = (0, None);
        self.pace_at = self.pace_at.min(now);
        self.arm(now);
        true
    }

    /// How long frames are, and how that was found.
    pub fn reach(&self) -> Reach {
        let path = self.path.as_ref();
        Reach {
            frame: self.frame as u16,
            probes: path.map_or(0, |path| path.probes),
            answered: path.map_or(0, |path| path.answered),
            shrunk: path.map_or(0, |path| path.shrunk),
        }
    }
}
