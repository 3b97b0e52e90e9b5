//! A maximum over the latest slots of a window: cycles, round trips or spans of time.

/// The maximum of the samples in the current and the `SLOTS` − 1 previous slots; 0 without samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowedMax<const SLOTS: usize> {
    /// Maximum of each slot, the current one first.
    slots: [f64; SLOTS],
    max: f64,
}

impl<const SLOTS: usize> Default for WindowedMax<SLOTS> {
    fn default() -> Self {
        WindowedMax { slots: [0.0; SLOTS], max: 0.0 }
    }
}

impl<const SLOTS: usize> WindowedMax<SLOTS> {
    /// Adds a sample.
    #[inline]
    pub fn sample(&mut self, value: f64) {
        self.slots[0] = self.slots[0].max(value);
        self.max = self.max.max(value);
    }

    /// Begins a slot and forgets the oldest.
    pub fn advance(&mut self) {
        self.slots.rotate_right(1);
        self.slots[0] = 0.0;
        self.max = self.slots.iter().copied().fold(0.0, f64::max);
    }

    /// Begins a slot unless the current one has no samples yet.
    pub fn advance_used(&mut self) {
        if self.slots[0] > 0.0 {
            self.advance();
        }
    }

    /// Returns the maximum of the current slot.
    pub fn current(&self) -> f64 {
        self.slots[0]
    }

    /// Returns the maximum.
    #[inline]
    pub fn get(&self) -> f64 {
        self.max
    }
}
