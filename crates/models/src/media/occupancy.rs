//! Queue occupancy of a port against its bound.

use trunkline_endpoint::Bound;

/// Frames queued at a port, including the one in transmission.
#[derive(Clone, Debug)]
pub struct Occupancy {
    bound: Bound,
    all: Load,
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
    fn take(&mut self, length: u32) {
        self.frames -= 1;
        self.bytes -= u64::from(length);
    }
}

impl Occupancy {
    pub fn new(bound: Bound) -> Self {
        Occupancy { bound, all: Load::default(), channels: Vec::new() }
    }

    /// Adds a frame if it fits.
    #[inline]
    pub fn enter(&mut self, channel: u16, length: u32) -> bool {
        let enters = match self.bound.each_channel {
            true => self.enter_channel(channel, length),
            false => fits(self.bound, self.all, length),
        };
        if enters {
            self.all.add(length);
        }
        enters
    }

    #[inline(never)]
    fn enter_channel(&mut self, channel: u16, length: u32) -> bool {
        let load = self.channel(channel);
        let enters = fits(self.bound, self.channels[load], length);
        if enters {
            self.channels[load].add(length);
        }
        enters
    }

    /// Removes a frame.
    #[inline]
    pub fn leave(&mut self, channel: u16, length: u32) {
        self.all.take(length);
        if self.bound.each_channel {
            self.channels[usize::from(channel)].take(length);
        }
    }

    /// Returns whether a frame of `length` bytes fits, for any channel.
    #[inline]
    pub fn room(&self, length: u32) -> bool {
        match self.bound.each_channel {
            true => self.room_in_each(length),
            false => fits(self.bound, self.all, length),
        }
    }

    #[inline(never)]
    fn room_in_each(&self, length: u32) -> bool {
        // An unused channel is empty.
        fits(self.bound, Load::default(), length)
            && self.channels.iter().all(|load| fits(self.bound, *load, length))
    }

    /// Returns the queued bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.all.bytes
    }

    fn channel(&mut self, channel: u16) -> usize {
        let at = usize::from(channel);
        if at >= self.channels.len() {
            self.channels.resize(at + 1, Load::default());
        }
        at
    }
}

#[inline]
fn fits(bound: Bound, load: Load, length: u32) -> bool {
    bound.fits(load.frames, load.bytes, length)
}
