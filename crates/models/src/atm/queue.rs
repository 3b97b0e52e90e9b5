//! Output queues at the sending end of a link: of a switch port ([`CellQueue`]) and of an adapter ([`PacketQueue`]).

use std::collections::VecDeque;

use trunkline_endpoint::{Bound, Capacity};
use trunkline_units::{Instant, Rate};

use crate::atm::cell::{CELL, Encapsulation, MAX_CELLS, MAX_PACKET, cells_of};
use crate::atm::fine::FineTime;
use crate::atm::pacing::{Pacer, Pacing};
use crate::atm::train::{Run, append};
use crate::media::occupancy::Occupancy;

/// Returns the capacity of a queue in cells.
fn capacity_in_cells(bound: Bound) -> u64 {
    match bound.capacity {
        Capacity::Unbounded => u64::MAX,
        Capacity::Frames(cells) => cells,
        Capacity::Bytes(bytes) => bytes / u64::from(CELL),
    }
}

/// The output queue of a switch: cells leave back to back, and a cell that does not fit is lost.
///
/// Nothing is stored. The departure of a cell is known when it is queued. Because cells leave evenly spaced, the queue
/// length follows from the time until the last departure.
#[derive(Clone, Debug)]
pub(crate) struct CellQueue {
    /// Transmission time of a cell.
    cell: FineTime,
    /// Departure of the last accepted cell.
    free_at: FineTime,
    /// Transmission time of a full queue; unlimited with per-channel bounds.
    limit: FineTime,
    /// Transmission time of the longest queue so far; at most the limit.
    longest: FineTime,
    /// The queues of the channels, with per-channel bounds.
    channel_queues: Option<ChannelQueues>,
}

/// Queues of each channel, with per-channel bounds: 40 bytes for each channel up to the highest used, and at most a
/// run per cell.
#[derive(Clone, Debug)]
struct ChannelQueues {
    /// Maximum number of cells in a channel.
    max_cells: u64,
    /// Transmission time of a full channel.
    limit: FineTime,
    channels: Vec<Channel>,
}

/// Departures of a channel's queued cells.
#[derive(Clone, Debug, Default)]
struct Channel {
    runs: VecDeque<Run>,
    cells: u64,
}

impl CellQueue {
    pub(crate) fn new(payload: Rate, bound: Bound) -> Self {
        let cell = FineTime::for_bits(u64::from(CELL) * 8, payload);
        let cells = capacity_in_cells(bound);
        let limit = cell.times(cells);
        let is_per_channel = bound.per_channel && bound.capacity != Capacity::Unbounded;
        let channel_queues =
            is_per_channel.then(|| ChannelQueues { max_cells: cells, limit, channels: Vec::new() });
        let limit = if is_per_channel { FineTime::MAX } else { limit };
        CellQueue { cell, free_at: FineTime::ZERO, limit, longest: FineTime::ZERO, channel_queues }
    }

    /// Queues a cell at `at` and returns its departure; `None` if the queue is full.
    #[inline]
    pub(crate) fn add(&mut self, at: Instant, channel: u16) -> Option<FineTime> {
        let departure = self.begin(at).plus(self.cell);
        let backlog = departure.minus(FineTime::from_instant(at));
        if backlog > self.longest && backlog > self.limit {
            return None;
        }
        if self.channel_queues.is_some() && !self.add_to_channel(at, channel, departure) {
            return None;
        }
        if backlog > self.longest {
            self.grow(backlog);
        }
        self.free_at = departure;
        Some(departure)
    }

    #[inline(never)]
    fn add_to_channel(&mut self, at: Instant, channel: u16, departure: FineTime) -> bool {
        let cell = Run { first: departure, gap: self.cell, count: 1 };
        self.channel_queues.as_mut().is_none_or(|queues| queues.add(at, channel, cell))
    }

    /// Returns when the transmission of a cell queued at `at` begins. An arrival in the picosecond in which the line
    /// becomes idle follows without a gap.
    #[inline]
    fn begin(&self, at: Instant) -> FineTime {
        if at > self.free_at.ceil() { FineTime::from_instant(at) } else { self.free_at }
    }

    /// Queues the cells of `run` as [`add`](Self::add) would one by one, and appends the departures of the accepted
    /// ones. Returns whether the last one was accepted.
    pub(crate) fn add_run(&mut self, run: &Run, channel: u16, out: &mut Vec<Run>) -> bool {
        let at = run.at(0);
        let limit = match &mut self.channel_queues {
            None => self.limit,
            Some(queues) => match queues.is_alone(at, channel, self.free_at, self.cell) {
                true => queues.limit,
                false => return self.add_one_by_one(run, channel, out),
            },
        };
        let Some((departures, last)) = self.add_evenly(at, run, limit) else {
            return self.add_one_by_one(run, channel, out);
        };
        if let Some(queues) = &mut self.channel_queues {
            queues.channels[usize::from(channel)].add(departures);
        }
        append(out, departures);
        last
    }

    /// Queues the cells of `run` one by one.
    fn add_one_by_one(&mut self, run: &Run, channel: u16, out: &mut Vec<Run>) -> bool {
        let (mut last, mut arrival) = (false, run.first);
        for _ in 0..run.count {
            let departure = self.add(arrival.ceil(), channel);
            last = departure.is_some();
            if let Some(first) = departure {
                append(out, Run { first, gap: self.cell, count: 1 });
            }
            arrival = arrival.plus(run.gap);
        }
        last
    }

    /// Queues the cells in one step if they clearly leave evenly spaced; otherwise does nothing. Returns the
    /// departures, and whether the last cell was accepted.
    fn add_evenly(&mut self, at: Instant, run: &Run, limit: FineTime) -> Option<(Run, bool)> {
        let begin = self.begin(at);
        let is_idle = begin == FineTime::from_instant(at);
        if limit < self.cell {
            return None;
        }
        if is_idle && run.count > 1 && run.gap.floor() > self.cell.plus(FineTime::PS).floor() {
            // Each cell finds the line idle and departs one cell time after its arrival.
            self.longest = self.longest.max(self.cell);
            self.free_at = FineTime::from_instant(run.last()).plus(self.cell);
            return Some((
                Run { first: run.first.plus(FineTime::from_instant(self.cell.ceil())), ..*run },
                true,
            ));
        }
        if begin < run.first || (run.gap > self.cell && run.count > 1) {
            return None;
        }
        // From here on cells arrive at least as fast as they leave, and none finds the line idle.
        let steps = u64::from(run.count - 1);
        let first = begin.plus(self.cell);
        let backlog = first.minus(run.first).plus(self.cell.minus(run.gap).times(steps));
        let mut departures = Run { first, gap: self.cell, count: run.count };
        if backlog <= limit {
            self.grow_even(&departures, run, backlog);
            self.free_at = begin.plus(self.cell.times(steps + 1));
            return Some((departures, true));
        }
        // With space for two cells the line stays busy while some are lost.
        if first < limit || limit < self.cell.times(2) {
            return None;
        }
        let last;
        (departures.count, last) = fill(first.minus(limit), self.cell, run);
        if departures.count == 0 || departures.count == run.count {
            return None;
        }
        // A loss means that the queue was full.
        self.longest = self.longest.max(limit);
        self.free_at = begin.plus(self.cell.times(u64::from(departures.count)));
        Some((departures, last))
    }

    /// Updates the longest queue while the cells of `run` arrive and leave; `backlog` is the maximum, up to a
    /// picosecond of rounding.
    fn grow_even(&mut self, departures: &Run, run: &Run, backlog: FineTime) {
        if backlog <= self.longest {
            return;
        }
        if backlog.div_ceil(self.cell) == backlog.minus(FineTime::PS).div_ceil(self.cell) {
            return self.grow(backlog);
        }
        let departure = |k: u32| departures.first.plus(departures.gap.times(u64::from(k)));
        let backlogs = (0..run.count).map(|k| departure(k).minus(FineTime::from_instant(run.at(k))));
        self.grow(backlogs.max().unwrap_or_default());
    }

    #[cold]
    fn grow(&mut self, backlog: FineTime) {
        self.longest = self.longest.max(self.cell.times(backlog.div_ceil(self.cell)));
    }

    /// Returns the transmission time of the longest queue.
    #[inline]
    pub(crate) fn longest(&self) -> FineTime {
        self.longest
    }

    /// Returns the length of the longest queue in cells.
    pub(crate) fn longest_in_cells(&self) -> u64 {
        self.longest.div_ceil(self.cell)
    }

    /// Returns when there is space for a cell of any channel.
    pub(crate) fn room_at(&mut self, now: Instant) -> Instant {
        let limit = self.channel_queues.as_ref().map_or(self.limit, |queues| queues.limit);
        match &mut self.channel_queues {
            _ if limit < self.cell => Instant::MAX,
            None => self.free_at.plus(self.cell).minus(limit).ceil().max(now),
            Some(queues) => queues.room_at(now),
        }
    }
}

/// Returns how many cells of `run` a full queue accepts, and whether the last one is accepted. A cell is accepted from
/// `room_at` on, which each accepted cell delays by `cell`. No cell finds the line idle.
fn fill(mut room_at: FineTime, cell: FineTime, run: &Run) -> (u32, bool) {
    let (mut count, mut arrival, mut last) = (0, run.first, false);
    let mut earliest = room_at.ceil();
    for _ in 0..run.count {
        last = earliest <= arrival.ceil();
        if last {
            room_at = room_at.plus(cell);
            earliest = room_at.ceil();
            count += 1;
        }
        arrival = arrival.plus(run.gap);
    }
    (count, last)
}

impl ChannelQueues {
    #[inline]
    fn add(&mut self, at: Instant, channel: u16, cell: Run) -> bool {
        let max_cells = self.max_cells;
        let channel = self.channel(channel);
        channel.remove_departed(at);
        if channel.cells >= max_cells {
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
    fn is_alone(&mut self, at: Instant, channel: u16, free_at: FineTime, cell: FineTime) -> bool {
        let channel = self.channel(channel);
        channel.remove_departed(at);
        let backlog = free_at.minus(FineTime::from_instant(at));
        let is_backlog = |run: &Run| {
            run.gap == cell && run.end() == free_at && backlog <= cell.times(u64::from(run.count))
        };
        backlog == FineTime::ZERO || (channel.runs.len() == 1 && channel.runs.front().is_some_and(is_backlog))
    }

    fn room_at(&mut self, now: Instant) -> Instant {
        let max_cells = self.max_cells;
        let room_at = |channel: &mut Channel| {
            channel.remove_departed(now);
            match channel.runs.front() {
                Some(run) if channel.cells >= max_cells => run.at(0),
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
            Some(before) if before.is_continued_by(&run) => before.count += run.count,
            _ => self.runs.push_back(run),
        }
    }

    /// Removes departed cells.
    #[inline]
    fn remove_departed(&mut self, at: Instant) {
        let at = FineTime::from_instant(at);
        while let Some(run) = self.runs.front_mut() {
            if run.first > at {
                return;
            }
            let departed = run.arrived_by(at);
            self.cells -= u64::from(departed);
            if departed < run.count {
                run.first = run.first.plus(run.gap.times(u64::from(departed)));
                run.count -= departed;
                return;
            }
            self.runs.pop_front();
        }
    }
}

/// The output queue of an adapter: packets wait for the pacer. A packet counts with all its cells until its last bit
/// has left; one that does not fit whole is refused.
#[derive(Clone, Debug)]
pub(crate) struct PacketQueue {
    encapsulation: Encapsulation,
    pacer: Pacer,
    /// A bound in frames counts packets, one in bytes the bytes of their cells.
    occupancy: Occupancy,
    /// Packets that have not left, in order of departure.
    queued: VecDeque<QueuedPacket>,
    /// Bytes of the cells in the longest queue.
    pub(crate) longest: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedPacket {
    /// Departure of its last bit.
    departs: Instant,
    channel: u16,
    /// Bytes of its cells.
    bytes: u32,
}

impl PacketQueue {
    pub(crate) fn new(payload: Rate, pacing: Pacing, bound: Bound, encapsulation: Encapsulation) -> Self {
        PacketQueue {
            encapsulation,
            pacer: Pacer::new(payload, pacing),
            occupancy: Occupancy::new(bound),
            queued: VecDeque::new(),
            longest: 0,
        }
    }

    /// Returns the number of cells of a packet; `None` if AAL5 cannot carry it.
    #[inline]
    pub(crate) fn cells(&self, length: u32) -> Option<u32> {
        let cells = cells_of(length, self.encapsulation);
        (cells <= MAX_CELLS && length.saturating_add(self.encapsulation.bytes()) <= MAX_PACKET)
            .then_some(cells)
    }

    /// Queues a packet of this many cells and appends their departures; returns false if the queue is full.
    pub(crate) fn add(&mut self, now: Instant, channel: u16, cells: u32, runs: &mut Vec<Run>) -> bool {
        self.remove_departed(now);
        let bytes = cells * CELL;
        if !self.occupancy.try_add(channel, bytes) {
            return false;
        }
        self.pacer.schedule(now, cells, runs);
        let departs = runs.last().map_or(now, Run::last);
        self.queued.push_back(QueuedPacket { departs, channel, bytes });
        self.longest = self.longest.max(self.occupancy.bytes());
        true
    }

    /// Removes departed packets.
    fn remove_departed(&mut self, now: Instant) {
        while let Some(packet) = self.queued.front().filter(|first| first.departs <= now) {
            self.occupancy.remove(packet.channel, packet.bytes);
            self.queued.pop_front();
        }
    }

    /// Returns when there is space for a packet of `length` in any channel without further arrivals.
    pub(crate) fn room_at(&mut self, now: Instant, length: u32) -> Instant {
        self.remove_departed(now);
        let Some(cells) = self.cells(length) else { return Instant::MAX };
        if self.occupancy.has_room(cells * CELL) {
            return now;
        }
        let mut occupancy = self.occupancy.clone();
        let makes_room = |packet: &&QueuedPacket| {
            occupancy.remove(packet.channel, packet.bytes);
            occupancy.has_room(cells * CELL)
        };
        self.queued.iter().find(makes_room).map_or(Instant::MAX, |packet| packet.departs)
    }
}
