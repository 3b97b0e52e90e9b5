//! Pacing of an adapter's cells.

use trunkline_units::{Instant, Rate};

use crate::atm::cell::{CELL, PAYLOAD};
use crate::atm::fine::FineTime;
use crate::atm::train::{Run, append};

/// How an adapter paces its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// No pacing: back to back.
    #[default]
    None,
    /// A cell starts no sooner after its predecessor than this rate allows.
    Rate {
        /// The rate.
        rate: Rate,
        /// What the rate counts.
        unit: PacingUnit,
    },
    /// i out of m: time is divided into cell slots from the start of the run, and of every `of` slots at most the
    /// first `send` may be used. A cell starts at the start of a slot. Because the pattern repeats, any `of`
    /// consecutive slots contain at most `send` cells.
    Slots {
        /// Slots that may be used; at least 1, at most `of`.
        send: u32,
        /// Slots of a period.
        of: u32,
    },
}

/// What a pacing rate counts. Tables 17 and 18 of the AAI report (docs/internals/reproduction.md) need one each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacingUnit {
    /// Whole cells, 53 bytes.
    #[default]
    Cells,
    /// Their 48 bytes of payload.
    Payload,
}

/// Computes the departures of cells.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Transmission time of a cell.
    cell: FineTime,
    /// Minimum time between the starts of two cells.
    gap: FineTime,
    /// Earliest start of the next cell.
    next: FineTime,
    slots: Option<Slots>,
}

#[derive(Clone, Debug)]
struct Slots {
    rate: Rate,
    send: u64,
    of: u64,
    /// Slot after the last used one.
    next: u64,
}

impl Pacer {
    pub(crate) fn new(payload: Rate, pacing: Pacing) -> Self {
        let bits = |bytes: u32| u64::from(bytes) * 8;
        let cell = FineTime::for_bits(bits(CELL), payload);
        let (gap, slots) = match pacing {
            Pacing::None => (cell, None),
            Pacing::Rate { rate, unit: PacingUnit::Cells } => (FineTime::for_bits(bits(CELL), rate), None),
            Pacing::Rate { rate, unit: PacingUnit::Payload } => {
                (FineTime::for_bits(bits(PAYLOAD), rate), None)
            }
            Pacing::Slots { send, of } => {
                let of = u64::from(of.max(1));
                (cell, Some(Slots { rate: payload, send: u64::from(send).clamp(1, of), of, next: 0 }))
            }
        };
        Pacer { cell, gap: gap.max(cell), next: FineTime::ZERO, slots }
    }

    /// Returns a pacer for another rate of the line, which continues after the last cell of this one.
    pub(crate) fn continued(&self, payload: Rate, pacing: Pacing) -> Self {
        Pacer { next: self.next, ..Pacer::new(payload, pacing) }
    }

    /// Queues `cells` cells that arrive now, and appends the times at which their last bits leave.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Instant, cells: u32, runs: &mut Vec<Run>) {
        let cell = self.cell;
        if let Some(slots) = &mut self.slots {
            return slots.schedule(now, cells, cell, runs);
        }
        // An arrival in the picosecond in which the line becomes idle follows without a gap.
        let begin = if now > self.next.ceil() { FineTime::from_instant(now) } else { self.next };
        self.next = begin.plus(self.gap.times(u64::from(cells)));
        append(runs, Run { first: begin.plus(cell), gap: self.gap, count: cells });
    }

    /// Returns when the next cell may start: a cell in slots is scheduled in advance, at any time.
    pub(crate) fn earliest(&self) -> Instant {
        if self.slots.is_some() { Instant::ZERO } else { self.next.ceil() }
    }
}

impl Slots {
    fn schedule(&mut self, now: Instant, cells: u32, cell: FineTime, runs: &mut Vec<Run>) {
        let mut remaining = u64::from(cells);
        self.next = self.next.max(self.slot_after(now));
        while remaining > 0 {
            let position = self.next % self.of;
            if position >= self.send {
                self.next += self.of - position;
                continue;
            }
            let (count, slots) = match self.send {
                1 => (remaining, self.of),
                send if send == self.of => (remaining, 1),
                send => (remaining.min(send - position), 1),
            };
            // The end of a slot is the start of the next.
            let first = FineTime::for_bits((self.next + 1) * u64::from(CELL * 8), self.rate);
            append(runs, Run { first, gap: cell.times(slots), count: count as u32 });
            self.next += (count - 1) * slots + 1;
            remaining -= count;
        }
    }

    /// Returns the first slot that begins at `now` or later.
    fn slot_after(&self, now: Instant) -> u64 {
        let ps_of_slots = u128::from(CELL * 8) * 1_000_000_000_000;
        (u128::from(now.as_ps()) * u128::from(self.rate.as_bps().max(1))).div_ceil(ps_of_slots) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::{Seed, Span};

    /// Departures of cells of packets that arrive at random times, and the time of a cell.
    fn departures(pacing: Pacing, load: f64) -> (Vec<Instant>, Span) {
        let payload = Rate::from_bps(149_760_000);
        let mut pacer = Pacer::new(payload, pacing);
        let mut stream = Seed(5).stream("pacing");
        let (mut now, mut all) = (Instant::ZERO, Vec::new());
        for _ in 0..400 {
            let cells = 1 + stream.below(200) as u32;
            let mut runs = Vec::new();
            pacer.schedule(now, cells, &mut runs);
            assert_eq!(runs.iter().map(|run| run.count).sum::<u32>(), cells);
            let times = runs.iter().flat_map(|run| (0..run.count).map(|k| run.at(k)));
            let first = all.len();
            all.extend(times);
            assert!(all[first].since(now) >= pacer.cell.floor(), "no cell leaves before it has arrived");
            now += Span::from_seconds(f64::from(cells) * 2.83e-6 / load * 2.0 * stream.unit());
        }
        (all, pacer.cell.floor())
    }

    #[test]
    fn rate_is_reached_and_not_exceeded() {
        for (unit, bits) in [(PacingUnit::Cells, 424.0), (PacingUnit::Payload, 384.0)] {
            let rate = Rate::from_bps(70_000_000);
            let (times, _) = departures(Pacing::Rate { rate, unit }, 2.0);
            let gap = Span::from_seconds(bits / 70e6);
            assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) + Span::from_ps(1) >= gap));
            let mean = times[times.len() - 1].since(times[0]).as_s() / (times.len() - 1) as f64;
            assert!((mean / (bits / 70e6) - 1.0).abs() < 1e-6, "overloaded, it uses all it may: {mean}");
        }
    }

    #[test]
    fn i_out_of_m_slots() {
        for (send, of) in [(1, 1), (1, 4), (3, 4), (2, 7), (5, 3)] {
            for load in [0.05, 3.0] {
                let (times, cell) = departures(Pacing::Slots { send, of }, load);
                let send = send.min(of) as usize;
                // Slots end at whole multiples of the cell's time, and no m of them have more than i cells.
                let slots: Vec<u64> = times
                    .iter()
                    .map(|time| (u128::from(time.as_ps()) * 149_760_000 / 424_000_000_000_000) as u64)
                    .collect();
                assert!(slots.windows(2).all(|pair| pair[0] < pair[1]), "a slot for each cell");
                assert!(slots.windows(send + 1).all(|some| some[send] - some[0] >= u64::from(of)));
                assert!(slots.iter().all(|slot| (slot - 1) % u64::from(of) < send as u64));
                if load > 1.0 {
                    let used = times.len() as f64 * cell.as_s() / times[times.len() - 1].as_s();
                    assert!((used / (send as f64 / f64::from(of)) - 1.0).abs() < 0.01, "{used}");
                }
            }
        }
    }

    #[test]
    fn without_pacing_the_line_is_all_there_is() {
        let (free, cell) = departures(Pacing::None, 5.0);
        assert!(free.windows(2).all(|pair| pair[1].since(pair[0]) <= cell + Span::from_ps(1)));
        let (fast, _) =
            departures(Pacing::Rate { rate: Rate::from_bps(u64::MAX), unit: PacingUnit::Cells }, 5.0);
        assert_eq!(free, fast, "a pace past the line's rate does nothing");
    }
}
