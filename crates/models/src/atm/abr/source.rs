//! A source that sends at the rate its controllers allow (AAI report, section 2.5.2).

use std::collections::VecDeque;

use trunkline_units::{Instant, Rate, Span};

use crate::atm::abr::Request;

/// A source and the controllers of the lines that it crosses, numbered from 0.
///
/// It sends at the lowest rate that any controller allows it, and at nothing until all have answered. It reports to each
/// controller what the others allow it, so that the controller can give the rest to others; whenever that changes, and at
/// intervals, in case a cell is lost.
///
/// Several bottlenecks agree on max–min shares in one round trip for each: a controller's level is never below its equal
/// share, so the line with the lowest equal share has its final level at once. Its sources report that to the others, which
/// then have the next lowest, and so on.
#[derive(Clone, Debug)]
pub struct Source {
    demand: Rate,
    interval: Span,
    /// The rate that each controller allows.
    allowed: Vec<Option<Rate>>,
    /// The limit in the last request to each controller.
    sent: Vec<Option<Rate>>,
    requests: VecDeque<(usize, Request)>,
    /// When all requests are repeated; never if it is not active.
    repeat_at: Instant,
}

impl Source {
    /// Creates an inactive source that repeats its requests at this interval.
    pub fn new(demand: Rate, controllers: usize, interval: Span) -> Self {
        Source {
            demand,
            interval,
            allowed: vec![None; controllers],
            sent: vec![None; controllers],
            requests: VecDeque::new(),
            repeat_at: Instant::MAX,
        }
    }

    /// Announces the source to all controllers.
    pub fn start(&mut self, now: Instant) {
        self.allowed.fill(None);
        self.repeat(now);
    }

    /// Reports to all controllers that the source ends.
    pub fn stop(&mut self) {
        self.repeat_at = Instant::MAX;
        self.allowed.fill(None);
        self.requests.clear();
        self.requests.extend((0..self.allowed.len()).map(|controller| (controller, Request::Leave)));
    }

    /// Handles the answer of a controller; ignored if the source is not active.
    pub fn receive(&mut self, controller: usize, rate: Rate) {
        if self.is_active()
            && let Some(allowed) = self.allowed.get_mut(controller)
        {
            *allowed = Some(rate);
            self.update_requests();
        }
    }

    /// Repeats the requests, if the deadline has passed.
    pub fn wake(&mut self, now: Instant) {
        if now >= self.repeat_at {
            self.repeat(now);
        }
    }

    /// Returns when to call [`wake`](Self::wake); [`Instant::MAX`] for never.
    pub fn deadline(&self) -> Instant {
        self.repeat_at
    }

    /// Returns the next request to a controller.
    pub fn poll(&mut self) -> Option<(usize, Request)> {
        self.requests.pop_front()
    }

    /// Returns the rate at which it may send.
    pub fn rate(&self) -> Rate {
        match self.is_active() {
            true => {
                self.allowed.iter().map(|allowed| allowed.unwrap_or_default()).fold(self.demand, Rate::min)
            }
            false => Rate::default(),
        }
    }

    fn is_active(&self) -> bool {
        self.repeat_at < Instant::MAX
    }

    /// Returns what a controller need not exceed: the demand, and what the others allow.
    fn limit(&self, controller: usize) -> Rate {
        let others = self.allowed.iter().enumerate().filter(|(other, _)| *other != controller);
        others.filter_map(|(_, allowed)| *allowed).fold(self.demand, Rate::min)
    }

    fn repeat(&mut self, now: Instant) {
        self.repeat_at = now + self.interval;
        self.sent.fill(None);
        self.update_requests();
    }

    fn update_requests(&mut self) {
        for controller in 0..self.allowed.len() {
            let limit = self.limit(controller);
            if self.sent[controller] != Some(limit) {
                self.sent[controller] = Some(limit);
                self.requests.retain(|(other, _)| *other != controller);
                self.requests.push_back((controller, Request::Active { limit }));
            }
        }
    }
}
