//! The sending side of a station on a shared medium.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Frame, LossCause, MediumCounters, MediumOutput, Port};
use trunkline_units::Span;

use crate::media::occupancy::Occupancy;

/// How full the queue of a station is, and what the station has sent.
#[derive(Clone, Debug)]
pub struct SendQueue {
    occupancy: Occupancy,
    /// Whether the station waits for room.
    pub room_requested: bool,
    /// Length of the frame that [`has_room`](Self::has_room) last refused.
    refused_length: u32,
    pub counters: MediumCounters,
}

impl SendQueue {
    pub fn new(bound: Bound) -> Self {
        SendQueue {
            occupancy: Occupancy::new(bound),
            room_requested: false,
            refused_length: 0,
            counters: MediumCounters::default(),
        }
    }

    /// Adds a frame, or returns why it is lost.
    pub fn add(&mut self, frame: &impl Frame, max_length: u32) -> Result<(), LossCause> {
        if frame.length() > max_length {
            self.counters.other_losses += 1;
            return Err(LossCause::TooLong);
        }
        if !self.occupancy.try_add(frame.channel(), frame.length()) {
            self.counters.queue_drops += 1;
            return Err(LossCause::QueueFull);
        }
        self.counters.queue_max = self.counters.queue_max.max(self.occupancy.bytes());
        Ok(())
    }

    /// Removes a frame. Returns whether the station waits for room that there is now.
    pub fn remove(&mut self, channel: u16, length: u32) -> bool {
        self.occupancy.remove(channel, length);
        let has_room = self.room_requested && self.occupancy.has_room(self.refused_length);
        self.room_requested &= !has_room;
        has_room
    }

    /// Counts a frame that has left.
    pub fn count(&mut self, length: u32, duration: Span) {
        self.counters.frames += 1;
        self.counters.bytes += u64::from(length);
        self.counters.busy += duration;
    }

    pub fn has_room(&mut self, length: u32) -> bool {
        let has_room = self.occupancy.has_room(length);
        if !has_room {
            self.refused_length = length;
        }
        has_room
    }

    /// Returns whether there is room for the refused frame already; otherwise [`remove`](Self::remove) reports it.
    pub fn request_room(&mut self) -> bool {
        let has_room = self.occupancy.has_room(self.refused_length);
        self.room_requested |= !has_room;
        has_room
    }
}

/// Losses of frames that were not queued, and notifications of room, to be output.
#[derive(Clone, Debug)]
pub struct PendingOutputs<F> {
    pub dropped: VecDeque<(Port, F, LossCause)>,
    /// Stations to notify of room.
    pub room: VecDeque<Port>,
}

impl<F> PendingOutputs<F> {
    pub fn new() -> Self {
        PendingOutputs { dropped: VecDeque::new(), room: VecDeque::new() }
    }

    /// Removes and returns the next output.
    #[inline]
    pub fn take(&mut self) -> Option<MediumOutput<F>> {
        if let Some((port, frame, cause)) = self.dropped.pop_front() {
            return Some(MediumOutput::Lost { port, frame, cause });
        }
        self.room.pop_front().map(|port| MediumOutput::Room { port })
    }
}
