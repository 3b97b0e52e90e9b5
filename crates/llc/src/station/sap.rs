//! A service access point: what waits in it, and what it has to tell.

use std::collections::VecDeque;

use trunkline_units::Instant;

use super::queue::Levels;
use crate::options::Options;
use crate::talk::{Event, Received};
use crate::wire::{Address, GLOBAL_SAP};

/// Answers to its questions that may wait to be told. More are counted and forgotten.
pub(super) const HEARD: usize = 64;

/// A message that came.
#[derive(Debug)]
pub(super) struct Arrival {
    pub received: Received,
    pub bytes: Vec<u8>,
}

impl Default for Arrival {
    fn default() -> Self {
        let from = Address { sap: 0, station: 0 };
        let received = Received { from, to: 0, priority: 0, acknowledged: false, at: Instant::ZERO };
        Arrival { received, bytes: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Sap {
    pub number: u8,
    pub options: Options,
    /// Messages that may leave now.
    pub outbox: Levels<u32>,
    /// Messages that can be taken.
    pub inbox: Levels<u32>,
    /// Messages from the call until their end is told; so what waits to be told has a bound, too.
    pub places: usize,
    /// Messages in the inbox.
    pub held: usize,
    /// Somebody was turned away and is told when there is room.
    pub turned_away: bool,
    /// The inbox was empty before.
    pub readable: bool,
    pub news: VecDeque<Event>,
    /// Of the news, answers to questions.
    pub heard: usize,
    /// It stands in the line of those with news.
    pub listed: bool,
    /// Whom it last asked to send [`Sap::test`] back.
    pub tests: Option<Address>,
    pub test: Vec<u8>,
    /// Whom it last asked what it speaks.
    pub identifies: Option<Address>,
}

impl Sap {
    pub fn new(number: u8, options: &Options) -> Sap {
        Sap {
            number,
            options: options.clone(),
            outbox: Levels::default(),
            inbox: Levels::default(),
            places: 0,
            held: 0,
            turned_away: false,
            readable: false,
            news: VecDeque::new(),
            heard: 0,
            listed: false,
            tests: None,
            test: Vec::new(),
            identifies: None,
        }
    }

    /// Whether one more message may wait to leave. If not, there will be news when it may.
    #[inline]
    pub fn has_place(&mut self) -> bool {
        let has = self.places < usize::from(self.options.queue);
        self.turned_away |= !has;
        has
    }

    /// Whether one more message may wait to be taken.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.held < usize::from(self.options.queue)
    }

    /// Whether what is sent to this group is for it.
    pub fn is_member(&self, group: u8) -> bool {
        group == GLOBAL_SAP || self.options.groups.contains(&group)
    }

    /// Whether there is something to tell.
    #[inline]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
            || self.readable && self.held > 0
            || self.turned_away && self.places < usize::from(self.options.queue)
    }

    /// The next thing to tell.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        if let Some(event) = self.news.pop_front() {
            match event {
                Event::Sent { .. } => self.places -= 1,
                _ => self.heard -= 1,
            }
            return Some(event);
        }
        if std::mem::take(&mut self.readable) && self.held > 0 {
            return Some(Event::Readable { sap: self.number });
        }
        if self.turned_away && self.places < usize::from(self.options.queue) {
            self.turned_away = false;
            return Some(Event::Writable { sap: self.number });
        }
        None
    }
}
