//! The occupancy of a port's queue, and its bound.

use trunkline_endpoint::Bound;

/// Frames queued at a port, including the one in transmission.
#[derive(Clone, Debug)]
pub struct Occupancy {
    bound: Bound,
    total: Load,
    /// Occupancy by channel, with per-channel bounds.
    channels: Vec<Load>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    frames: u64,
    bytes: u64,
}

impl Load {
    #[inline]
    fn add(&mut self, length: u32) {
        self.frames += 1;
        self.bytes += u64::from(length);
    }

    #[inline]
    fn remove(&mut self, length: u32) {
        self.frames -= 1;
        self.bytes -= u64::from(length);
    }
}

impl Occupancy {
    pub fn new(bound: Bound) -> Self {
        Occupancy { bound, total: Load::default(), channels: Vec::new() }
    }

    /// Adds a frame if it fits.
    #[inline]
    pub fn try_add(&mut self, channel: u16, length: u32) -> bool {
        let is_added = match self.bound.per_channel {
            true => self.try_add_to_channel(channel, length),
            false => fits(self.bound, self.total, length),
        };
        if is_added {
            self.total.add(length);
        }
        is_added
    }

    #[inline(never)]
    fn try_add_to_channel(&mut self, channel: u16, length: u32) -> bool {
        let index = self.channel_index(channel);
        let is_added = fits(self.bound, self.channels[index], length);
        if is_added {
            self.channels[index].add(length);
        }
        is_added
    }

    /// Removes a frame.
    #[inline]
    pub fn remove(&mut self, channel: u16, length: u32) {
        self.total.remove(length);
        if self.bound.per_channel {
            self.channels[usize::from(channel)].remove(length);
        }
    }

    /// Returns whether a frame of `length` bytes fits, for any channel.
    #[inline]
    pub fn has_room(&self, length: u32) -> bool {
        match self.bound.per_channel {
            true => self.has_room_in_each_channel(length),
            false => fits(self.bound, self.total, length),
        }
    }

    #[inline(never)]
    fn has_room_in_each_channel(&self, length: u32) -> bool {
        // An unused channel is empty.
        fits(self.bound, Load::default(), length)
            && self.channels.iter().all(|load| fits(self.bound, *load, length))
    }

    /// Returns whether the bound is that of each channel.
    pub fn is_per_channel(&self) -> bool {
        self.bound.per_channel
    }

    /// Returns the queued bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.total.bytes
    }

    fn channel_index(&mut self, channel: u16) -> usize {
        let index = usize::from(channel);
        if index >= self.channels.len() {
            self.channels.resize(index + 1, Load::default());
        }
        index
    }
}

#[inline]
fn fits(bound: Bound, load: Load, length: u32) -> bool {
    bound.fits(load.frames, load.bytes, length)
}
