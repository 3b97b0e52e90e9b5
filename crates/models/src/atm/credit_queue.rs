//! The queues of the channels at the sending end of a link with credits, served in turn.

use std::collections::{BTreeSet, VecDeque};

use trunkline_endpoint::LossCause;
use trunkline_units::{Instant, Rate};

use crate::atm::CellFrame;
use crate::atm::cell::{CELL, Encapsulation, MAX_CELLS, MAX_PACKET, cells_of};
use crate::atm::config::End;
use crate::atm::fine::FineTime;
use crate::atm::pacing::{Pacer, Pacing};
use crate::atm::train::Run;
use crate::media::occupancy::Occupancy;

/// Queued packets of an adapter, or cells of a switch port, by channel.
#[derive(Clone, Debug)]
pub(crate) struct CreditQueue<F> {
    channels: Vec<Channel<F>>,
    /// Channels with a cell and credit, in the order in which they are served.
    ready: VecDeque<u16>,
    /// Channels with a cell and credit that wait for their rate, by the time at which they may send.
    paced: BTreeSet<(Instant, u16)>,
    /// The encapsulation of an adapter; a switch port has none.
    encapsulation: Option<Encapsulation>,
    occupancy: Occupancy,
    /// Number of cells that have not left.
    cells: u64,
    line: Pacer,
    pacing: Option<(Pacing, Pacer)>,
    /// Buffer for a departure.
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
struct Channel<F> {
    frames: VecDeque<Queued<F>>,
    is_ready: bool,
    pace: Option<ChannelPace>,
}

/// The rate of a channel.
#[derive(Clone, Copy, Debug)]
struct ChannelPace {
    /// Time between the starts of two cells; `None` for a rate of zero.
    gap: Option<FineTime>,
    /// Earliest start of the last cell by the rate; `None` before the first.
    last: Option<FineTime>,
    /// The time with which the channel is in [`CreditQueue::paced`].
    waits_until: Option<Instant>,
}

impl ChannelPace {
    /// Returns the earliest start of the next cell by the rate.
    fn earliest(&self) -> FineTime {
        match (self.gap, self.last) {
            (None, _) => FineTime::MAX,
            (Some(_), None) => FineTime::ZERO,
            (Some(gap), Some(last)) => last.plus(gap),
        }
    }
}

/// A packet of an adapter, or a cell of a switch port.
#[derive(Clone, Debug)]
struct Queued<F> {
    frame: F,
    cells: u16,
    /// Number of its cells that have been sent.
    sent: u16,
    /// Whether the cell has a buffer by the credits of another link.
    is_reserved: bool,
}

/// A cell in transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    pub(crate) channel: u16,
    /// Whether it is the last cell of its packet.
    pub(crate) is_last: bool,
    /// Bytes that it leaves free in the queue.
    frees: Option<u32>,
}

impl<F: CellFrame> CreditQueue<F> {
    pub(crate) fn new(payload: Rate, end: End) -> Self {
        let (pacing, bound, encapsulation) = match end {
            End::Adapter { pacing, queue, encapsulation } => (pacing, queue, Some(encapsulation)),
            End::SwitchPort { queue } => (Pacing::None, queue, None),
        };
        CreditQueue {
            channels: Vec::new(),
            ready: VecDeque::new(),
            paced: BTreeSet::new(),
            encapsulation,
            occupancy: Occupancy::new(bound),
            cells: 0,
            line: Pacer::new(payload, Pacing::None),
            pacing: (pacing != Pacing::None).then(|| (pacing, Pacer::new(payload, pacing))),
            runs: Vec::new(),
        }
    }

    /// Queues a packet or a cell. A refused one is returned with the cause and its number of cells.
    pub(crate) fn add(&mut self, frame: F, is_reserved: bool) -> Result<(), (F, LossCause, u64)> {
        let cells = match (self.encapsulation, frame.as_cell()) {
            (None, Some(_)) => 1,
            (Some(encapsulation), None) => {
                let cells = cells_of(frame.length(), encapsulation);
                if cells > MAX_CELLS || frame.length() + encapsulation.bytes() > MAX_PACKET {
                    return Err((frame, LossCause::TooLong, 1));
                }
                cells
            }
            // A kind of frame that the device cannot send.
            _ => return Err((frame, LossCause::NoRoute, 1)),
        };
        if !is_reserved && !self.occupancy.try_add(frame.channel(), cells * CELL) {
            return Err((frame, LossCause::QueueFull, u64::from(cells)));
        }
        self.cells += u64::from(cells);
        let queued = Queued { frame, cells: cells as u16, sent: 0, is_reserved };
        self.channel(queued.frame.channel()).frames.push_back(queued);
        Ok(())
    }

    fn channel(&mut self, channel: u16) -> &mut Channel<F> {
        let index = usize::from(channel);
        if index >= self.channels.len() {
            let empty = || Channel { frames: VecDeque::new(), is_ready: false, pace: None };
            self.channels.resize_with(index + 1, empty);
        }
        &mut self.channels[index]
    }

    /// Returns the number of queued packets of a channel, or cells at a switch port.
    pub(crate) fn frames(&self, channel: u16) -> usize {
        self.channels.get(usize::from(channel)).map_or(0, |channel| channel.frames.len())
    }

    /// Sets the rate of a channel's cells; the time since its last cell counts.
    pub(crate) fn set_rate(&mut self, now: Instant, channel: u16, rate: Rate) {
        let state = self.channel(channel);
        let before = state.pace;
        state.pace = Some(ChannelPace {
            gap: (rate != Rate::default()).then(|| FineTime::for_bits(u64::from(CELL) * 8, rate)),
            last: before.and_then(|pace| pace.last),
            waits_until: None,
        });
        let was_ready = std::mem::take(&mut state.is_ready);
        let waited = before.and_then(|pace| pace.waits_until);
        if was_ready {
            self.ready.retain(|ready| *ready != channel);
        }
        if let Some(until) = waited {
            self.paced.remove(&(until, channel));
        }
        if was_ready || waited.is_some() {
            self.set_ready(now, channel);
        }
    }

    /// Sets the rate of the line for the cells whose transmission begins after this.
    pub(crate) fn set_line_rate(&mut self, payload: Rate) {
        self.line = self.line.continued(payload, Pacing::None);
        if let Some((pacing, pacer)) = &mut self.pacing {
            *pacer = pacer.continued(payload, *pacing);
        }
    }

    /// Returns the number of cells that have not left.
    pub(crate) fn cells(&self) -> u64 {
        self.cells
    }

    /// Returns whether a packet of `length` bytes, or a cell, fits.
    pub(crate) fn has_room(&self, length: u32) -> bool {
        let cells = self.encapsulation.map_or(1, |encapsulation| cells_of(length, encapsulation));
        self.occupancy.has_room(cells * CELL)
    }

    pub(crate) fn has_cells(&self, channel: u16) -> bool {
        self.channels.get(usize::from(channel)).is_some_and(|channel| !channel.frames.is_empty())
    }

    /// Adds a channel with a cell and credit to those that are served, once its rate permits.
    pub(crate) fn set_ready(&mut self, now: Instant, channel: u16) {
        let state = &mut self.channels[usize::from(channel)];
        if let Some(pace) = state.pace.as_mut().filter(|_| !state.is_ready) {
            let earliest = pace.earliest().ceil();
            if earliest > now {
                if pace.waits_until.is_none() {
                    pace.waits_until = Some(earliest);
                    self.paced.insert((earliest, channel));
                }
                return;
            }
        }
        if !std::mem::replace(&mut state.is_ready, true) {
            self.ready.push_back(channel);
        }
    }

    /// Serves the channels whose rates permit a cell now.
    fn release_paced(&mut self, now: Instant) {
        while let Some((at, channel)) = self.paced.first().copied()
            && at <= now
        {
            self.paced.remove(&(at, channel));
            if let Some(pace) = &mut self.channels[usize::from(channel)].pace {
                pace.waits_until = None;
            }
            self.set_ready(now, channel);
        }
    }

    /// Returns when the next cell may start on an idle line; never without a ready channel.
    pub(crate) fn ready_at(&self) -> Instant {
        let channel = match (self.ready.is_empty(), self.paced.first()) {
            (false, _) => Instant::ZERO,
            (true, Some((at, _))) => *at,
            (true, None) => return Instant::MAX,
        };
        channel.max(self.pacing.as_ref().map_or(&self.line, |(_, pacer)| pacer).earliest())
    }

    /// Takes the line for a cell that is not queued here; returns the end of its transmission.
    pub(crate) fn occupy_line(&mut self, now: Instant) -> Instant {
        self.runs.clear();
        self.line.schedule(now, 1, &mut self.runs);
        self.runs[0].last()
    }

    /// Takes the next cell of the next ready channel, if its pacing permits; returns it with the end of its transmission.
    /// The channel is no longer ready.
    pub(crate) fn next_cell(&mut self, now: Instant) -> Option<(Instant, F, Departure)> {
        if self.ready_at() > now {
            return None;
        }
        if !self.paced.is_empty() {
            self.release_paced(now);
        }
        let channel = self.ready.pop_front()?;
        let state = &mut self.channels[usize::from(channel)];
        state.is_ready = false;
        if let Some(pace) = &mut state.pace {
            // Up to a gap, the time for which a cell waits for the line does not slow down the channel.
            let (start, gap) = (FineTime::from_instant(now), pace.gap.unwrap_or(FineTime::ZERO));
            let due = pace.last.map_or(start, |last| last.plus(gap));
            pace.last = Some(if due.plus(gap) < start { start } else { due.min(start) });
        }
        let queued = state.frames.front_mut()?;
        queued.sent += 1;
        let is_last = queued.sent == queued.cells;
        let (index, cells, is_reserved) = (queued.sent - 1, queued.cells, queued.is_reserved);
        let cell = match (is_last, self.encapsulation.is_some()) {
            (false, _) => queued.frame.cell(index, cells),
            (true, false) => state.frames.pop_front()?.frame,
            (true, true) => state.frames.pop_front()?.frame.last_cell(index, cells),
        };
        self.runs.clear();
        let pacer = self.pacing.as_mut().map_or(&mut self.line, |(_, pacer)| pacer);
        pacer.schedule(now, 1, &mut self.runs);
        let frees = (is_last && !is_reserved).then_some(u32::from(cells) * CELL);
        Some((self.runs[0].last(), cell, Departure { channel, is_last, frees }))
    }

    /// Removes a cell that has left.
    pub(crate) fn depart(&mut self, departure: &Departure) {
        self.cells -= 1;
        if let Some(bytes) = departure.frees {
            self.occupancy.remove(departure.channel, bytes);
        }
    }
}
