//! A link of ATM cells.

use std::collections::VecDeque;

use trunkline_endpoint::{Arrival, Bound, Cause, Counters, Medium, Passage, Port};
use trunkline_units::{Instant, Rate, Span, Stream};

use crate::atm::CellFrame;
use crate::atm::aal5::{self, Reassembly};
use crate::atm::cell::{CELL, Encapsulation};
use crate::atm::fine::Fine;
use crate::atm::pacing::Pacing;
use crate::atm::queue::{Cells, Packets};
use crate::atm::train::{Run, Train, append};

/// Maximum time that a reordered cell waits to be overtaken.
pub const OVERTAKEN_WITHIN: Span = Span::from_ms(1);

/// Maximum trains kept for reuse.
const SPARE: usize = 64;

/// Configuration of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Rate of whole cells ([`payload_rate`](crate::atm::payload_rate)); zero counts as 1 b/s.
    pub payload: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// The devices at port 0 and port 1.
    pub ends: [End; 2],
    /// Impairments of cells sent from port 0 and port 1.
    pub impairments: [Impairments; 2],
    /// Whether packets cross cell by cell or as trains.
    pub mode: Mode,
}

/// The device at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A host adapter: its station sends and receives packets. Segmentation and reassembly take no time here; the
    /// host model accounts for them.
    Adapter {
        /// Pacing of its cells.
        pacing: Pacing,
        /// Limit of its send queue: [`Room::Frames`](trunkline_endpoint::Room) counts packets, `Bytes` the 53 bytes
        /// of each cell. A packet counts in full until its last bit has left.
        queue: Bound,
        /// Encapsulation.
        encapsulation: Encapsulation,
    },
    /// A switch port: cells and trains.
    Bare {
        /// Limit of its queue in cells (`Bytes`: 53 each).
        queue: Bound,
    },
}

impl End {
    /// An adapter without pacing or loss, with LLC/SNAP.
    pub const ADAPTER: End =
        End::Adapter { pacing: Pacing::None, queue: Bound::NONE, encapsulation: Encapsulation::LlcSnap };
}

/// Impairments of cells: independent probabilities, 0 to 1. The default is a perfect line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Lost ([`Cause::Noise`]).
    pub loss: f64,
    /// Corruption: the CRC of its packet will fail.
    pub corrupt: f64,
    /// Duplication.
    pub duplicate: f64,
    /// Reordering: the cell arrives just after the next cell, or [`OVERTAKEN_WITHIN`] late if none comes.
    pub reorder: f64,
}

impl Impairments {
    fn are_none(&self) -> bool {
        *self == Impairments::default()
    }

    /// Returns whether cells stay in order, so that trains can carry them.
    fn keep_order(&self) -> bool {
        self.duplicate <= 0.0 && self.reorder <= 0.0
    }
}

/// How a packet crosses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Cell by cell: exact always.
    #[default]
    Cells,
    /// All its cells in one step; exact under the conditions of [`Train`]. A line that duplicates or reorders cells
    /// carries them one by one all the same.
    Trains,
}

/// A link that carries cells: two ports, full duplex.
///
/// **Adapters.** A packet is segmented into cells that leave as the pacer permits ([`End::Adapter`]). A packet that
/// does not fit into the queue is lost whole ([`Cause::Full`]), as is one that AAL5 cannot carry
/// ([`Cause::TooLong`]). Cells received by an adapter are reassembled ([`aal5`]): a packet with a missing or damaged
/// cell is lost ([`Cause::Incomplete`]) when its last cell arrives.
///
/// **Bare ports.** A cell that does not fit into the queue is lost ([`Cause::Full`]). Frames are delivered as the far
/// end forwarded them, each when its last bit has arrived.
///
/// **Computed departures.** Because cells do not overtake, a cell's departure and arrival are known when it is
/// queued. So a cell costs one event, and a cell to an adapter none unless it is the last or lost.
///
/// **Counting.** [`Counters`] count cells, also at adapters, as soon as their fate is certain;
/// [`backlog`](CellLink::backlog) returns how much of that is still to be sent. [`CellLink::aal5`] counts reassembled
/// packets.
///
/// **Conservation.** Except for cells consumed by an adapter, every packet is output once or reported lost. Cell by
/// cell that happens when the cell that carries it is lost, or with [`Cause::Incomplete`]; every other lost cell is
/// reported too. As a train, lost cells are only counted, and the packet is lost once: with [`Cause::Incomplete`] at
/// the adapter when its last surviving cell arrives, or where all its last cells are lost.
///
/// **Memory.** Cell by cell, a frame and 16 bytes per cell in flight; as a train, a frame and 240 bytes per packet,
/// or more where slot pacing divides it into many runs. The bounds of the ends and the delay limit the number;
/// immediate losses wait only for the next poll.
#[derive(Clone, Debug)]
pub struct CellLink<F> {
    directions: [Direction<F>; 2],
    /// Frames lost immediately.
    lost: VecDeque<(Port, F, Cause)>,
    /// Reusable trains; a link with traffic in both directions allocates no new ones.
    spare: TrainPool,
    now: Instant,
    /// Next deadline.
    due: Instant,
}

/// Reusable boxed trains.
#[derive(Clone, Debug, Default)]
#[expect(clippy::vec_box, reason = "a frame carries a box, and is given one back")]
struct TrainPool(Vec<Box<Train>>);

impl TrainPool {
    fn take(&mut self) -> Box<Train> {
        self.0.pop().unwrap_or_default()
    }

    fn keep(&mut self, train: Box<Train>) {
        if self.0.len() < SPARE {
            self.0.push(train);
        }
    }
}

/// One direction.
#[derive(Clone, Debug)]
struct Direction<F> {
    from: Sender,
    /// Reassembly at the far end, if it is an adapter.
    into: Option<Reassembly>,
    cell: Fine,
    delay: Span,
    /// Whether the line is perfect and no sender waits: only flights are due.
    quiet: bool,
    /// Whether cells pass through: quiet, and a bare port.
    plain: bool,
    trains: bool,
    impairments: Option<Impairments>,
    stream: Stream,
    /// Frames in flight, by arrival.
    flights: VecDeque<Flight<F>>,
    /// Next deadline of a flight, a reordered cell, or a notification.
    next: Instant,
    /// A reordered cell, and its latest arrival.
    held: Option<(Instant, F)>,
    /// When a waiting sender may be notified, and how much space it needs.
    asked: Option<(Instant, u32)>,
    /// Length of the last refused frame.
    refused: u32,
    counters: Counters,
    /// Transmission time of all cells.
    busy: Fine,
    /// Transmission time of the longest queue.
    most: Fine,
    runs: Vec<Run>,
}

#[derive(Clone, Debug)]
enum Sender {
    Adapter(Packets),
    Bare(Cells),
}

#[derive(Clone, Debug)]
struct Flight<F> {
    at: Instant,
    frame: F,
    lost: Option<Cause>,
}

impl<F: CellFrame> CellLink<F> {
    /// Creates an idle link. `streams` supply the impairments of cells sent from port 0 and port 1; a probability of
    /// zero draws nothing.
    pub fn new(config: &Config, streams: [Stream; 2]) -> Self {
        let [first, second] = streams;
        CellLink {
            directions: [Direction::new(config, 0, first), Direction::new(config, 1, second)],
            lost: VecDeque::new(),
            spare: TrainPool::default(),
            now: Instant::ZERO,
            due: Instant::MAX,
        }
    }

    /// Returns the reassembly counters of the adapter at `port`; zero for a bare port.
    pub fn aal5(&self, port: Port) -> aal5::Counters {
        let into = &self.directions[usize::from(port.0 ^ 1)].into;
        into.as_ref().map(|reassembly| reassembly.counters).unwrap_or_default()
    }

    /// Returns how long the line from `port` still needs for everything counted so far: cells at a bare port, whole
    /// packets at an adapter.
    pub fn backlog(&self, now: Instant, port: Port) -> Span {
        self.directions[usize::from(port.0)].backlog(now)
    }

    /// Returns whether the line from `port` has no impairments.
    pub fn is_perfect(&self, port: Port) -> bool {
        self.directions[usize::from(port.0)].impairments.is_none()
    }

    /// Adds to the delay of the line from `port`. Call it before the first frame.
    pub fn delay_more(&mut self, port: Port, by: Span) {
        self.directions[usize::from(port.0)].delay += by;
    }

    /// Queues a frame, as [`Medium::handle`] does.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) {
        self.now = now;
        self.take(port, frame);
    }

    /// Returns the time of the next output: at once if it is not in the future, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.due
    }

    /// Returns the next frame that has arrived by `now` with its port, if nothing else can be due: `handle` with a
    /// wake and one `poll` in one step.
    // Not inlined, so that the frame is moved in one piece.
    #[inline(never)]
    pub fn arrival(&mut self, now: Instant) -> Option<(Port, F)> {
        let quiet = self.directions[0].quiet && self.directions[1].quiet && self.lost.is_empty();
        if self.due > now || !quiet {
            return None;
        }
        let way = usize::from(self.directions[1].next < self.directions[0].next);
        let direction = &mut self.directions[way];
        direction.flights.front().filter(|first| first.at <= now && first.lost.is_none())?;
        let Flight { frame, .. } = direction.flights.pop_front()?;
        direction.find_next();
        self.now = now;
        self.due = self.directions[0].next.min(self.directions[1].next);
        Some((Port(way as u16 ^ 1), frame))
    }

    /// Returns the output that is due.
    #[inline]
    fn next_output(&mut self) -> Passage<F> {
        if let Some((port, frame, cause)) = self.lost.pop_front() {
            self.find_due();
            return Passage::Lost { port, frame, cause };
        }
        let way = usize::from(self.directions[1].next < self.directions[0].next);
        let direction = &mut self.directions[way];
        let due = direction.flights.front().is_some_and(|first| first.at <= self.now);
        if due && let Some(Flight { frame, lost, .. }) = direction.flights.pop_front() {
            direction.find_next();
            self.due = self.directions[0].next.min(self.directions[1].next);
            return match lost {
                None => Passage::Transmit { port: Port(way as u16 ^ 1), frame },
                Some(cause) => Passage::Lost { port: Port(way as u16), frame, cause },
            };
        }
        let told = direction.notify_sender(self.now);
        self.find_due();
        if told { Passage::Room { port: Port(way as u16) } } else { self.idle() }
    }

    fn take(&mut self, port: Port, frame: F) {
        let direction = &mut self.directions[usize::from(port.0)];
        if !direction.plain || frame.as_cell().is_none() {
            return self.take_any(port, frame);
        }
        match direction.pass(self.now, frame.channel()) {
            Some(at) => {
                direction.arrive_at_end(at, frame);
                self.due = self.due.min(direction.next);
            }
            None => {
                self.lost.push_back((port, frame, Cause::Full));
                self.due = self.now;
            }
        }
    }

    /// Queues any frame that is not a cell in transit.
    #[inline(never)]
    fn take_any(&mut self, port: Port, frame: F) {
        let direction = &mut self.directions[usize::from(port.0)];
        if let Some((frame, cause)) = direction.take(self.now, frame, &mut self.spare) {
            self.lost.push_back((port, frame, cause));
        }
        self.find_due();
    }

    #[cold]
    fn release(&mut self) {
        self.directions.iter_mut().for_each(|direction| direction.release(self.now));
        self.find_due();
    }

    #[inline]
    fn find_due(&mut self) {
        self.due = self.directions[0].next.min(self.directions[1].next);
        if !self.lost.is_empty() {
            self.due = self.now;
        }
    }

    #[inline]
    fn idle(&self) -> Passage<F> {
        Passage::Idle { deadline: (self.due < Instant::MAX).then_some(self.due) }
    }
}

impl<F: CellFrame> Medium<F> for CellLink<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: Arrival<F>) {
        self.now = now;
        match input {
            Arrival::Frame { port, frame } => self.take(port, frame),
            Arrival::Ask { port } => {
                self.directions[usize::from(port.0)].ask(now);
                self.find_due();
            }
            Arrival::Wake => {
                if !(self.directions[0].quiet && self.directions[1].quiet) {
                    self.release();
                }
            }
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> Passage<F> {
        if self.due > self.now { self.idle() } else { self.next_output() }
    }

    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        let direction = &mut self.directions[usize::from(port.0)];
        direction.refused = length;
        direction.room_at(now, length) <= now
    }

    fn counters(&self, port: Port) -> &Counters {
        &self.directions[usize::from(port.0)].counters
    }
}

impl<F: CellFrame> Direction<F> {
    fn new(config: &Config, port: usize, stream: Stream) -> Self {
        let from = match config.ends[port] {
            End::Adapter { pacing, queue, encapsulation } => {
                Sender::Adapter(Packets::new(config.payload, pacing, queue, encapsulation))
            }
            End::Bare { queue } => Sender::Bare(Cells::new(config.payload, queue)),
        };
        let impairments = config.impairments[port];
        let into = matches!(config.ends[port ^ 1], End::Adapter { .. }).then(Reassembly::default);
        let mut direction = Direction {
            from,
            cell: Fine::time(u64::from(CELL) * 8, config.payload),
            delay: config.delay,
            quiet: true,
            plain: true,
            // With an adapter at the far end of a perfect line, single cells are not observable.
            trains: impairments.keep_order()
                && (config.mode == Mode::Trains || (into.is_some() && impairments.are_none())),
            into,
            impairments: (!impairments.are_none()).then_some(impairments),
            stream,
            flights: VecDeque::new(),
            next: Instant::MAX,
            held: None,
            asked: None,
            refused: 0,
            counters: Counters::default(),
            busy: Fine::ZERO,
            most: Fine::ZERO,
            runs: Vec::new(),
        };
        direction.find_plain();
        direction
    }

    fn find_plain(&mut self) {
        self.quiet = self.impairments.is_none() && self.asked.is_none();
        self.plain = self.quiet && matches!(self.from, Sender::Bare(_));
    }

    /// Returns whether the waiting sender is to be notified now.
    #[cold]
    fn notify_sender(&mut self, now: Instant) -> bool {
        let told = self.asked.take_if(|(at, _)| *at <= now).is_some();
        self.find_plain();
        self.find_next();
        told
    }

    #[inline]
    fn find_next(&mut self) {
        self.next = self.flights.front().map_or(Instant::MAX, |flight| flight.at);
        if !self.quiet {
            self.consider_the_rest();
        }
    }

    #[cold]
    fn consider_the_rest(&mut self) {
        let held = self.held.as_ref().map_or(Instant::MAX, |(at, _)| *at);
        let asked = self.asked.map_or(Instant::MAX, |(at, _)| at);
        self.next = self.next.min(held).min(asked);
    }

    /// Adds a flight behind all others.
    #[inline]
    fn launch(&mut self, at: Instant, frame: F, lost: Option<Cause>) {
        self.next = self.next.min(at);
        self.flights.push_back(Flight { at, frame, lost });
    }

    /// Requests a notification when there is space for the refused frame.
    fn ask(&mut self, now: Instant) {
        let length = self.refused;
        self.asked = Some((self.room_at(now, length), length));
        self.find_plain();
        self.find_next();
    }

    /// Queues a frame at the sending end; returns a frame that is lost immediately.
    fn take(&mut self, now: Instant, mut frame: F, spare: &mut TrainPool) -> Option<(F, Cause)> {
        self.release(now);
        let lost = match (&mut self.from, frame.as_cell()) {
            (Sender::Bare(_), Some(_)) => match self.pass(now, frame.channel()) {
                Some(at) => {
                    self.carry(at, frame);
                    None
                }
                None => Some((frame, Cause::Full)),
            },
            (Sender::Adapter(_), None) => self.take_packet(now, frame, spare),
            (Sender::Bare(_), None) => match frame.take_train() {
                Some(train) => self.take_train(now, frame, train, spare),
                None => Some((frame, Cause::NoRoute)),
            },
            (Sender::Adapter(_), Some(_)) => Some((frame, Cause::NoRoute)),
        };
        if let Some((_, length)) = self.asked {
            self.asked = Some((self.room_at(now, length), length));
            self.find_next();
        }
        lost
    }

    /// Queues a cell at a bare port; returns its arrival at the far end, if there is space.
    #[inline]
    fn pass(&mut self, now: Instant, channel: u16) -> Option<Instant> {
        let Sender::Bare(cells) = &mut self.from else { return None };
        let Some(left) = cells.take(now, channel) else {
            self.counters.full += 1;
            return None;
        };
        if cells.most() != self.most {
            self.most = cells.most();
            self.counters.queue_max = cells.most_cells() * u64::from(CELL);
        }
        self.count(1, self.cell);
        Some(left.ceil() + self.delay)
    }

    fn take_packet(&mut self, now: Instant, frame: F, spare: &mut TrainPool) -> Option<(F, Cause)> {
        let Sender::Adapter(packets) = &mut self.from else { return None };
        let Some(cells) = packets.cells(frame.length()) else {
            self.counters.lost += 1;
            return Some((frame, Cause::TooLong));
        };
        self.runs.clear();
        if !packets.take(now, frame.channel(), cells, &mut self.runs) {
            self.counters.full += u64::from(cells);
            return Some((frame, Cause::Full));
        }
        self.counters.queue_max = packets.most * u64::from(CELL);
        self.count(cells, self.cell.times(u64::from(cells)));
        let mut train = spare.take();
        train.reset(cells as u16);
        std::mem::swap(&mut train.runs, &mut self.runs);
        self.send_train(frame, train, spare)
    }

    fn take_train(
        &mut self,
        now: Instant,
        frame: F,
        mut train: Box<Train>,
        spare: &mut TrainPool,
    ) -> Option<(F, Cause)> {
        let Sender::Bare(cells) = &mut self.from else { return None };
        train.shift(now.since(train.first()));
        self.runs.clear();
        let came = train.cells();
        let mut last = false;
        for run in &train.runs {
            last = cells.take_run(run, frame.channel(), &mut self.runs);
        }
        self.counters.queue_max = cells.most_cells() * u64::from(CELL);
        let left: u32 = self.runs.iter().map(|run| run.count).sum();
        train.lost = train.count - left as u16;
        train.last_lost |= !last;
        std::mem::swap(&mut train.runs, &mut self.runs);
        self.counters.full += u64::from(came) - u64::from(left);
        self.count(left, self.cell.times(u64::from(left)));
        self.send_train(frame, train, spare)
    }

    #[inline]
    fn count(&mut self, cells: u32, busy: Fine) {
        self.counters.frames += u64::from(cells);
        self.counters.bytes += u64::from(cells * CELL);
        self.busy = self.busy.plus(busy);
        self.counters.busy = self.busy.floor();
    }

    /// Sends the cells of a packet over the line; the train holds their departures.
    fn send_train(
        &mut self,
        mut frame: F,
        mut train: Box<Train>,
        spare: &mut TrainPool,
    ) -> Option<(F, Cause)> {
        if train.runs.is_empty() {
            spare.keep(train);
            return Some((frame, Cause::Full));
        }
        train.shift(self.delay);
        if !self.trains {
            self.send_cells(frame, &train);
            spare.keep(train);
            return None;
        }
        let end = train.end();
        if let Some(impairments) = self.impairments {
            self.impair(&impairments, &mut frame, &mut train);
        }
        if train.runs.is_empty() {
            self.launch(end, frame, Some(Cause::Noise));
            spare.keep(train);
        } else if let Some(reassembly) = &mut self.into {
            let whole = train.lost == 0 && !frame.is_damaged();
            let good = reassembly.train(frame.channel(), u32::from(train.cells()), whole, !train.last_lost);
            let lost = (!good).then_some(Cause::Incomplete);
            self.launch(train.end(), frame, lost);
            spare.keep(train);
        } else {
            self.launch(train.first(), frame.into_train(train), None);
        }
        None
    }

    /// Sends the cells of a packet one by one. If the last cell is missing, the packet is lost with the last
    /// remaining one.
    fn send_cells(&mut self, frame: F, train: &Train) {
        let (cells, count) = (train.cells(), train.count);
        let single = if train.last_lost { cells } else { cells - 1 };
        let mut arrivals = train.arrivals();
        for (index, at) in (0..single).zip(&mut arrivals) {
            self.carry(at, frame.cell(index, count));
        }
        match arrivals.next() {
            Some(at) => self.carry(at, frame.last_cell(count - 1, count)),
            None => {
                self.launch(train.end(), frame, Some(Cause::Incomplete));
            }
        }
    }

    /// Applies the impairments to the cells of a train.
    fn impair(&mut self, impairments: &Impairments, frame: &mut F, train: &mut Train) {
        self.runs.clear();
        let mut last = false;
        for run in &train.runs {
            for k in 0..run.count {
                last = !draw(&mut self.stream, impairments.loss);
                let damaged = draw(&mut self.stream, impairments.corrupt);
                if !last {
                    self.counters.lost += 1;
                    train.lost += 1;
                    continue;
                }
                if damaged {
                    frame.damage();
                    self.counters.damaged += 1;
                }
                let first = run.first.plus(run.gap.times(u64::from(k)));
                append(&mut self.runs, Run { first, gap: run.gap, count: 1 });
            }
        }
        train.last_lost |= !last;
        std::mem::swap(&mut train.runs, &mut self.runs);
    }

    /// Carries a cell, which reaches the end of the line at `at`.
    #[inline]
    fn carry(&mut self, at: Instant, frame: F) {
        match self.impairments {
            None => self.arrive_at_end(at, frame),
            Some(impairments) => self.carry_badly(at, frame, &impairments),
        }
    }

    fn carry_badly(&mut self, at: Instant, mut frame: F, impairments: &Impairments) {
        self.release(at);
        let lost = draw(&mut self.stream, impairments.loss);
        let damaged = draw(&mut self.stream, impairments.corrupt);
        let doubled = draw(&mut self.stream, impairments.duplicate);
        let late = draw(&mut self.stream, impairments.reorder);
        if lost {
            self.counters.lost += 1;
            return self.launch(at, frame, Some(Cause::Noise));
        }
        if damaged {
            self.counters.damaged += 1;
            frame.damage();
        }
        if late && self.held.is_none() {
            self.held = Some((at + OVERTAKEN_WITHIN, frame));
            return self.find_next();
        }
        if doubled {
            self.counters.doubled += 1;
            self.arrive_at_end(at, frame.clone());
        }
        self.arrive_at_end(at, frame);
        if let Some((_, held)) = self.held.take() {
            self.counters.reordered += 1;
            self.arrive_at_end(at, held);
            self.find_next();
        }
    }

    /// Delivers the reordered cell if none has overtaken it by `now`.
    #[inline]
    fn release(&mut self, now: Instant) {
        if let Some((at, frame)) = self.held.take_if(|(at, _)| *at <= now) {
            self.arrive_at_end(at, frame);
            self.find_next();
        }
    }

    /// Processes the arrival of a cell at the far end.
    #[inline]
    fn arrive_at_end(&mut self, at: Instant, frame: F) {
        let Some(reassembly) = &mut self.into else {
            return self.launch(at, frame, None);
        };
        let (index, count) = frame.as_cell().unwrap_or((0, 1));
        let last = index >= count.saturating_sub(1);
        let cell = aal5::Cell { index, last, serial: frame.serial(), damaged: frame.is_damaged() };
        if let Some(good) = reassembly.cell(frame.channel(), &cell) {
            let lost = (!good).then_some(Cause::Incomplete);
            self.launch(at, frame.into_packet(), lost);
        }
    }

    fn room_at(&mut self, now: Instant, length: u32) -> Instant {
        match &mut self.from {
            Sender::Adapter(packets) => packets.room_at(now, length),
            Sender::Bare(cells) => cells.room_at(now),
        }
    }

    fn backlog(&self, now: Instant) -> Span {
        match &self.from {
            Sender::Adapter(packets) => packets.backlog(now),
            Sender::Bare(cells) => cells.backlog(now),
        }
    }
}

/// Returns true with probability `share`; a probability of zero draws nothing.
#[inline]
fn draw(stream: &mut Stream, share: f64) -> bool {
    share > 0.0 && stream.chance(share)
}
