//! Queues at the sending end of a link.

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Room};
use trunkline_units::{Instant, Rate, Span};

use crate::atm::cell::{CELL, Encapsulation, LONGEST, MOST_CELLS, cells_of};
use crate::atm::fine::Fine;
use crate::atm::pacing::{Pacer, Pacing};
use crate::atm::train::{Run, append};

/// Converts a bound to cells; bytes are those of whole cells.
fn in_cells(bound: Bound) -> u64 {
    match bound.room {
        Room::Unbounded => u64::MAX,
        Room::Frames(cells) => cells,
        Room::Bytes(bytes) => bytes / u64::from(CELL),
    }
}

/// The output queue of a switch: cells leave back to back, and a cell that does not fit is lost.
///
/// Nothing is stored. The departure of a cell is known when it is queued; and because cells leave evenly, the queue
/// length follows from the time until the last departure.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    cell: Fine,
    /// Departure of the last accepted cell.
    free: Fine,
    /// Transmission time of a full queue; unlimited with per-channel bounds.
    limit: Fine,
    /// Transmission time of the longest queue so far; at most the limit.
    most: Fine,
    each: Option<ChannelQueues>,
}

/// Queues of each channel, with per-channel bounds: 40 bytes for each channel up to the highest used, and at most a
/// run per cell.
#[derive(Clone, Debug)]
struct ChannelQueues {
    bound: u64,
    /// Transmission time of a full channel.
    limit: Fine,
    channels: Vec<Channel>,
}

/// Departures of a channel's queued cells.
#[derive(Clone, Debug, Default)]
struct Channel {
    runs: VecDeque<Run>,
    cells: u64,
}

impl Cells {
    pub(crate) fn new(payload: Rate, bound: Bound) -> Self {
        let cell = Fine::time(u64::from(CELL) * 8, payload);
        let cells = in_cells(bound);
        let limit = cell.times(cells);
        let each = (bound.each_channel && bound.room != Room::Unbounded).then(|| ChannelQueues {
            bound: cells,
            limit,
            channels: Vec::new(),
        });
        let limit = if each.is_some() { Fine::MAX } else { limit };
        Cells { cell, free: Fine::ZERO, limit, most: Fine::ZERO, each }
    }

    /// Queues a cell at `at` and returns its departure; `None` if the queue is full.
    #[inline]
    pub(crate) fn take(&mut self, at: Instant, channel: u16) -> Option<Fine> {
        let fine = Fine::at(at);
        let left = self.begin(at).plus(self.cell);
        let backlog = left.minus(fine);
        if backlog > self.most && backlog > self.limit {
            return None;
        }
        if self.each.is_some() && !self.channel_takes(at, channel, left) {
            return None;
        }
        if backlog > self.most {
            self.grow(backlog);
        }
        self.free = left;
        Some(left)
    }

    #[inline(never)]
    fn channel_takes(&mut self, at: Instant, channel: u16, left: Fine) -> bool {
        let cell = Run { first: left, gap: self.cell, count: 1 };
        self.each.as_mut().is_none_or(|each| each.take(at, channel, cell))
    }

    /// Returns when a cell queued at `at` starts to leave. An arrival in the picosecond in which the line becomes
    /// idle follows without a gap.
    #[inline]
    fn begin(&self, at: Instant) -> Fine {
        if at > self.free.ceil() { Fine::at(at) } else { self.free }
    }

    /// Queues the cells of `run` as [`take`](Self::take) would one by one, and appends the departures of the accepted
    /// ones. Returns whether the last one was accepted.
    pub(crate) fn take_run(&mut self, run: &Run, channel: u16, out: &mut Vec<Run>) -> bool {
        let at = run.at(0);
        let limit = match &mut self.each {
            None => self.limit,
            Some(each) => match each.is_alone(at, channel, self.free, self.cell) {
                true => each.limit,
                false => return self.take_singly(run, channel, out),
            },
        };
        let Some((row, last)) = self.take_even(at, run, limit) else {
            return self.take_singly(run, channel, out);
        };
        if let Some(each) = &mut self.each {
            each.channels[usize::from(channel)].add(row);
        }
        append(out, row);
        last
    }

    fn take_singly(&mut self, run: &Run, channel: u16, out: &mut Vec<Run>) -> bool {
        let (mut last, mut comes) = (false, run.first);
        for _ in 0..run.count {
            let left = self.take(comes.ceil(), channel);
            last = left.is_some();
            if let Some(first) = left {
                append(out, Run { first, gap: self.cell, count: 1 });
            }
            comes = comes.plus(run.gap);
        }
        last
    }

    /// Queues cells that obviously leave as one run; otherwise does nothing. Returns whether the last one was
    /// accepted.
    fn take_even(&mut self, at: Instant, run: &Run, limit: Fine) -> Option<(Run, bool)> {
        let begin = self.begin(at);
        let idle = begin == Fine::at(at);
        if limit < self.cell {
            return None;
        }
        if idle && run.count > 1 && run.gap.floor() > self.cell.plus(Fine::PS).floor() {
            // Each cell finds the line idle and leaves one cell time after its arrival.
            self.most = self.most.max(self.cell);
            self.free = Fine::at(run.last()).plus(self.cell);
            return Some((Run { first: run.first.plus(Fine::at(self.cell.ceil())), ..*run }, true));
        }
        if begin < run.first || (run.gap > self.cell && run.count > 1) {
            return None;
        }
        // From here on cells arrive no slower than they leave, and none after the line becomes idle.
        let steps = u64::from(run.count - 1);
        let first = begin.plus(self.cell);
        let backlog = first.minus(run.first).plus(self.cell.minus(run.gap).times(steps));
        let mut row = Run { first, gap: self.cell, count: run.count };
        if backlog <= limit {
            self.grow_even(&row, run, backlog);
            self.free = begin.plus(self.cell.times(steps + 1));
            return Some((row, true));
        }
        // With space for two cells the line stays busy while some are lost.
        if first < limit || limit < self.cell.times(2) {
            return None;
        }
        let last;
        (row.count, last) = fill(first.minus(limit), self.cell, run);
        if row.count == 0 || row.count == run.count {
            return None;
        }
        // A loss means that the queue was full.
        self.most = self.most.max(limit);
        self.free = begin.plus(self.cell.times(u64::from(row.count)));
        Some((row, last))
    }

    /// Updates the longest queue while `run` arrives and leaves as `row`; `backlog` is the maximum, up to a
    /// picosecond of rounding.
    fn grow_even(&mut self, row: &Run, run: &Run, backlog: Fine) {
        if backlog <= self.most {
            return;
        }
        if backlog.over(self.cell) == backlog.minus(Fine::PS).over(self.cell) {
            return self.grow(backlog);
        }
        let left = |k: u32| row.first.plus(row.gap.times(u64::from(k)));
        let found = (0..run.count).map(|k| left(k).minus(Fine::at(run.at(k)))).max();
        self.grow(found.unwrap_or_default());
    }

    #[cold]
    fn grow(&mut self, backlog: Fine) {
        self.most = self.most.max(self.cell.times(backlog.over(self.cell)));
    }

    /// Returns the transmission time of the longest queue.
    #[inline]
    pub(crate) fn most(&self) -> Fine {
        self.most
    }

    /// Length of the longest queue in cells.
    pub(crate) fn most_cells(&self) -> u64 {
        self.most.over(self.cell)
    }

    /// Returns the time until the line is idle.
    pub(crate) fn backlog(&self, now: Instant) -> Span {
        self.free.minus(Fine::at(now)).floor()
    }

    /// Returns when there is space for a cell of any channel.
    pub(crate) fn room_at(&mut self, now: Instant) -> Instant {
        let limit = self.each.as_ref().map_or(self.limit, |each| each.limit);
        match &mut self.each {
            _ if limit < self.cell => Instant::MAX,
            None => self.free.plus(self.cell).minus(limit).ceil().max(now),
            Some(each) => each.room_at(now),
        }
    }
}

/// Returns how many cells of `run` are accepted, and whether the last one is. Each accepted cell delays the next by
/// `cell`. No cell finds the line idle.
fn fill(mut from: Fine, cell: Fine, run: &Run) -> (u32, bool) {
    let (mut count, mut comes, mut last) = (0, run.first, false);
    let mut earliest = from.ceil();
    for _ in 0..run.count {
        last = earliest <= comes.ceil();
        if last {
            from = from.plus(cell);
            earliest = from.ceil();
            count += 1;
        }
        comes = comes.plus(run.gap);
    }
    (count, last)
}

impl ChannelQueues {
    #[inline]
    fn take(&mut self, at: Instant, channel: u16, cell: Run) -> bool {
        let bound = self.bound;
        let channel = self.channel(channel);
        channel.remove_departed(at);
        if channel.cells >= bound {
            return false;
        }
        channel.add(cell);
        true
    }

    #[inline]
    fn channel(&mut self, channel: u16) -> &mut Channel {
        let channel = usize::from(channel);
        if channel >= self.channels.len() {
            self.channels.resize_with(channel + 1, Channel::default);
        }
        &mut self.channels[channel]
    }

    /// Returns whether no other channel has cells, so that the backlog of the line is that of the channel.
    fn is_alone(&mut self, at: Instant, channel: u16, free: Fine, cell: Fine) -> bool {
        let channel = self.channel(channel);
        channel.remove_departed(at);
        let backlog = free.minus(Fine::at(at));
        let all_of_it =
            |run: &Run| run.gap == cell && run.end() == free && backlog <= cell.times(u64::from(run.count));
        backlog == Fine::ZERO || (channel.runs.len() == 1 && channel.runs.front().is_some_and(all_of_it))
    }

    fn room_at(&mut self, now: Instant) -> Instant {
        let bound = self.bound;
        let room_at = |channel: &mut Channel| {
            channel.remove_departed(now);
            match channel.runs.front() {
                Some(run) if channel.cells >= bound => run.at(0),
                _ => now,
            }
        };
        self.channels.iter_mut().map(room_at).fold(now, Instant::max)
    }
}

impl Channel {
    #[inline]
    fn add(&mut self, run: Run) {
        self.cells += u64::from(run.count);
        match self.runs.back_mut() {
            Some(before) if before.goes_on(&run) => before.count += run.count,
            _ => self.runs.push_back(run),
        }
    }

    /// Removes departed cells.
    #[inline]
    fn remove_departed(&mut self, at: Instant) {
        let at = Fine::at(at);
        while let Some(run) = self.runs.front_mut() {
            if run.first > at {
                return;
            }
            let left = run.until(at);
            self.cells -= u64::from(left);
            if left < run.count {
                run.first = run.first.plus(run.gap.times(u64::from(left)));
                run.count -= left;
                return;
            }
            self.runs.pop_front();
        }
    }
}

/// The output queue of an adapter: packets wait for the pacer. A packet counts with all its cells until its last bit
/// has left; one that does not fit whole is refused.
#[derive(Clone, Debug)]
pub(crate) struct Packets {
    encapsulation: Encapsulation,
    pacer: Pacer,
    bound: Bound,
    waiting: VecDeque<Waiting>,
    sum: ChannelUse,
    /// Use of each channel, with per-channel bounds.
    channels: Vec<ChannelUse>,
    /// Length of the longest queue in cells.
    pub(crate) most: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Departure of its last bit.
    left: Instant,
    channel: u16,
    cells: u16,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChannelUse {
    packets: u64,
    cells: u64,
}

impl ChannelUse {
    /// A bound in frames counts packets, one in bytes the bytes of their cells.
    fn fits(&self, bound: Bound, cells: u32) -> bool {
        bound.fits(self.packets, self.cells * u64::from(CELL), cells * CELL)
    }

    fn remove(&mut self, waiting: &Waiting) {
        self.packets -= 1;
        self.cells -= u64::from(waiting.cells);
    }
}

impl Packets {
    pub(crate) fn new(payload: Rate, pacing: Pacing, bound: Bound, encapsulation: Encapsulation) -> Self {
        Packets {
            encapsulation,
            pacer: Pacer::new(payload, pacing),
            bound,
            waiting: VecDeque::new(),
            sum: ChannelUse::default(),
            channels: Vec::new(),
            most: 0,
        }
    }

    /// Returns the number of cells of a packet; `None` if AAL5 cannot carry it.
    #[inline]
    pub(crate) fn cells(&self, length: u32) -> Option<u32> {
        let cells = cells_of(length, self.encapsulation);
        (cells <= MOST_CELLS && length.saturating_add(self.encapsulation.bytes()) <= LONGEST).then_some(cells)
    }

    /// Queues a packet of this many cells and appends their departures; returns false if the queue is full.
    pub(crate) fn take(&mut self, now: Instant, channel: u16, cells: u32, runs: &mut Vec<Run>) -> bool {
        self.forget(now);
        let sum = if self.bound.each_channel {
            let channel = usize::from(channel);
            if channel >= self.channels.len() {
                self.channels.resize(channel + 1, ChannelUse::default());
            }
            self.channels[channel]
        } else {
            self.sum
        };
        if !sum.fits(self.bound, cells) {
            return false;
        }
        self.pacer.leave(now, cells, runs);
        let left = runs.last().map_or(now, Run::last);
        self.waiting.push_back(Waiting { left, channel, cells: cells as u16 });
        self.sum.packets += 1;
        self.sum.cells += u64::from(cells);
        self.most = self.most.max(self.sum.cells);
        if self.bound.each_channel {
            let sum = &mut self.channels[usize::from(channel)];
            sum.packets += 1;
            sum.cells += u64::from(cells);
        }
        true
    }

    /// Removes departed packets.
    fn forget(&mut self, now: Instant) {
        while let Some(&waiting) = self.waiting.front().filter(|first| first.left <= now) {
            self.waiting.pop_front();
            self.sum.remove(&waiting);
            if self.bound.each_channel {
                self.channels[usize::from(waiting.channel)].remove(&waiting);
            }
        }
    }

    /// Returns the transmission time of all queued packets.
    pub(crate) fn backlog(&self, now: Instant) -> Span {
        let waiting = self.waiting.iter().filter(|waiting| waiting.left > now);
        self.pacer.cell().times(waiting.map(|waiting| u64::from(waiting.cells)).sum()).floor()
    }

    /// Returns when there is space for a packet of `length` in any channel without further arrivals.
    pub(crate) fn room_at(&mut self, now: Instant, length: u32) -> Instant {
        self.forget(now);
        let Some(cells) = self.cells(length) else { return Instant::MAX };
        if !self.bound.each_channel {
            return self.room_of(now, cells, self.sum, None);
        }
        let unused = self.room_of(now, cells, ChannelUse::default(), None);
        let channels = self.channels.iter().zip(0..=u16::MAX);
        channels
            .map(|(&sum, channel)| self.room_of(now, cells, sum, Some(channel)))
            .fold(unused, Instant::max)
    }

    fn room_of(&self, now: Instant, cells: u32, mut sum: ChannelUse, channel: Option<u16>) -> Instant {
        if sum.fits(self.bound, cells) {
            return now;
        }
        let of_it = self.waiting.iter().filter(|waiting| channel.is_none_or(|c| c == waiting.channel));
        for waiting in of_it {
            sum.remove(waiting);
            if sum.fits(self.bound, cells) {
                return waiting.left;
            }
        }
        Instant::MAX
    }
}
