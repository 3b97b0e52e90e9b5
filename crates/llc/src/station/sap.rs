//! A service access point: its queues and pending events.

use std::collections::VecDeque;

use trunkline_units::Instant;

use super::queue::PriorityQueues;
use crate::api::{Event, Received};
use crate::options::Options;
use crate::wire::{Address, GLOBAL_SAP};

/// Maximum pending TEST and XID responses; further ones are counted and dropped.
pub(super) const MAX_ANSWERS: usize = 64;

/// A received message.
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

#[derive(Debug, Default)]
pub(super) struct Sap {
    pub number: u8,
    pub options: Options,
    /// Messages ready for transmission.
    pub outbox: PriorityQueues<u32>,
    /// Received messages.
    pub inbox: PriorityQueues<u32>,
    /// Messages whose end is not yet reported, which also bounds the pending events.
    pub places: usize,
    /// Number of received messages.
    pub held: usize,
    /// Whether a sender was refused and waits for space.
    pub turned_away: bool,
    /// Whether the readable event is pending.
    pub readable: bool,
    pub news: VecDeque<Event>,
    /// Pending TEST and XID responses.
    pub heard: usize,
    /// Whether the SAP is scheduled for an event poll.
    pub listed: bool,
    /// Destination of the last TEST.
    pub tests: Option<Address>,
    pub test: Vec<u8>,
    /// Destination of the last XID.
    pub identifies: Option<Address>,
}

impl Sap {
    pub fn new(number: u8, options: &Options) -> Sap {
        Sap { number, options: options.clone(), ..Sap::default() }
    }

    /// Returns whether the send queue has space; if not, requests an event.
    #[inline]
    pub fn has_send_space(&mut self) -> bool {
        let has = self.places < usize::from(self.options.queue);
        self.turned_away |= !has;
        has
    }

    /// Returns whether the receive queue has space.
    #[inline]
    pub fn has_receive_space(&self) -> bool {
        self.held < usize::from(self.options.queue)
    }

    /// Returns whether the SAP is a member of a group.
    pub fn is_member(&self, group: u8) -> bool {
        group == GLOBAL_SAP || self.options.groups.contains(&group)
    }

    /// Returns whether events are pending.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.news.is_empty()
            || self.readable && self.held > 0
            || self.turned_away && self.places < usize::from(self.options.queue)
    }

    /// Returns the next event.
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
