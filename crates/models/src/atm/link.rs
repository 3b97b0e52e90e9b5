//! A link of ATM cells: where cells and packets are queued, lost and reassembled.

use std::collections::VecDeque;

use trunkline_endpoint::{LossCause, Medium, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_units::{Instant, Span, Stream};

use crate::atm::CellFrame;
use crate::atm::aal5::{self, Reassembly};
use crate::atm::cell::CELL;
use crate::atm::config::{Config, End, Mode};
use crate::atm::fine::FineTime;
use crate::atm::port::{CellPort, QueueUnit, cells_of};
use crate::atm::queue::{CellQueue, PacketQueue};
use crate::atm::train::{Run, Train, append};
use crate::impairments::Impairments;
use crate::media::queue::port::{SentCell, Started};
use crate::media::queue::{QueueCounters, QueueOptions};

/// Maximum number of trains kept for reuse.
const MAX_SPARE: usize = 64;

/// A link that carries cells: two ports, full duplex.
///
/// **Adapters.** A packet is segmented into cells that leave as the pacer permits ([`End::Adapter`]). A packet that
/// does not fit into the queue is lost whole ([`LossCause::QueueFull`]), as is one that AAL5 cannot carry
/// ([`LossCause::TooLong`]). Cells received by an adapter are reassembled ([`aal5`]): a packet with a missing or
/// damaged cell is lost ([`LossCause::Incomplete`]) when its last cell arrives.
///
/// **Switch ports.** A cell that does not fit into the queue is lost ([`LossCause::QueueFull`]). Frames are delivered
/// as the far end forwarded them, each when its last bit has arrived.
///
/// **Computed departures.** Because cells do not overtake, a cell's departure and arrival are known when it is
/// queued. So a cell costs one event, and a cell to an adapter none unless it is the last or lost.
///
/// **Explicit queues.** [`CellLink::set_queue`] gives a port a discipline, shaper, policer, trace or changes. Its departures are
/// computed when the transmission of a packet begins, cell by cell, and its port takes cells, not trains.
///
/// **Counting.** [`MediumCounters`] count cells, also at adapters, as soon as their outcome is certain.
/// [`CellLink::reassembly_counters`] counts reassembled and failed packets.
///
/// **Conservation.** Except for cells consumed by an adapter, every packet is output once or reported lost. Cell by
/// cell that happens when the cell that carries it is lost, or with [`LossCause::Incomplete`]; every other lost cell is
/// reported too. As a train, lost cells are only counted, and the packet is lost once: with [`LossCause::Incomplete`]
/// at the adapter when its last surviving cell arrives, or on the link that loses its last remaining cells.
///
/// **Memory.** Cell by cell, a frame and 16 bytes per cell in flight; as a train, a frame and 240 bytes per packet,
/// or more where slot pacing divides it into many runs. The bounds of the ends and the delay limit the number;
/// immediate losses wait only for the next poll.
#[derive(Clone, Debug)]
pub struct CellLink<F> {
    directions: [Direction<F>; 2],
    /// Frames lost when they were sent, to be output.
    lost: VecDeque<(Port, F, LossCause)>,
    /// Reusable trains; a link with traffic in both directions allocates no new ones.
    train_pool: TrainPool,
    now: Instant,
    /// Time of the next output.
    next_output: Instant,
}

/// Reusable boxed trains.
#[derive(Clone, Debug, Default)]
#[expect(clippy::vec_box, reason = "a frame carries a box, and is given one back")]
struct TrainPool(Vec<Box<Train>>);

impl TrainPool {
    fn take(&mut self) -> Box<Train> {
        self.0.pop().unwrap_or_default()
    }

    fn recycle(&mut self, train: Box<Train>) {
        if self.0.len() < MAX_SPARE {
            self.0.push(train);
        }
    }
}

/// One direction.
#[derive(Clone, Debug)]
struct Direction<F> {
    sender: Sender<F>,
    /// Reassembly at the far end, if it is an adapter.
    reassembly: Option<Reassembly>,
    /// Transmission time of a cell.
    cell: FineTime,
    delay: Span,
    /// Whether only flights can be output: the line is perfect, and the sender does not wait.
    only_flights: bool,
    /// Whether a cell needs no further checks: `only_flights`, and the sender is a switch port.
    is_simple: bool,
    /// Whether packets cross as trains.
    uses_trains: bool,
    impairments: Option<Impairments>,
    stream: Stream,
    /// Frames in flight, by arrival.
    flights: VecDeque<Flight<F>>,
    /// Time of the next output: a flight, a reordered cell, or a notification.
    next_output: Instant,
    /// A reordered cell, and its latest arrival.
    held: Option<(Instant, F)>,
    /// When the waiting sender is to be notified, and the length of its frame.
    room_request: Option<(Instant, u32)>,
    /// Length of the frame that `has_room` last checked.
    refused_length: u32,
    /// Frames that the explicit queue dropped.
    dropped: Vec<(F, LossCause)>,
    counters: MediumCounters,
    /// Transmission time of all cells.
    busy: FineTime,
    /// Transmission time of the longest queue.
    longest: FineTime,
    /// Buffer for departures.
    runs: Vec<Run>,
}

/// The queue at the sending end.
#[derive(Clone, Debug)]
enum Sender<F> {
    Adapter(PacketQueue),
    SwitchPort(CellQueue),
    Explicit(Box<CellPort<F>>),
}

/// A frame that is queued or in flight.
#[derive(Clone, Debug)]
struct Flight<F> {
    /// When it is output.
    at: Instant,
    frame: F,
    /// Why it is output as lost.
    loss: Option<LossCause>,
}

impl<F: CellFrame> CellLink<F> {
    /// Creates an idle link. `streams` supply the impairments of cells sent from port 0 and port 1; a probability of
    /// zero draws nothing.
    pub fn new(config: &Config, streams: [Stream; 2]) -> Self {
        let [first, second] = streams;
        CellLink {
            directions: [Direction::new(config, 0, first), Direction::new(config, 1, second)],
            lost: VecDeque::new(),
            train_pool: TrainPool::default(),
            now: Instant::ZERO,
            next_output: Instant::MAX,
        }
    }

    /// Gives the sending side of `port` an explicit queue, whose stream draws the random numbers of the discipline. `config` is
    /// that of the link, and `unit` matters for a switch port. Call it before the first frame.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn set_queue(&mut self, config: &Config, port: Port, unit: QueueUnit, options: QueueOptions) {
        let direction = &mut self.directions[usize::from(port.0)];
        let queue = CellPort::new(config, usize::from(port.0), unit, options);
        direction.sender = Sender::Explicit(Box::new(queue));
        direction.update_shortcuts();
    }

    /// Returns the counters of the explicit queue at `port`, if there is one.
    pub fn queue_counters(&self, port: Port) -> Option<&QueueCounters> {
        match &self.directions[usize::from(port.0)].sender {
            Sender::Explicit(queue) => Some(queue.counters()),
            _ => None,
        }
    }

    /// Returns the reassembly counters of the adapter at `port`; zero for a switch port.
    pub fn reassembly_counters(&self, port: Port) -> aal5::ReassemblyCounters {
        let reassembly = &self.directions[usize::from(port.0 ^ 1)].reassembly;
        reassembly.as_ref().map(|reassembly| reassembly.counters).unwrap_or_default()
    }

    /// Returns whether the line from `port` has no impairments and no explicit queue.
    pub fn is_perfect(&self, port: Port) -> bool {
        let direction = &self.directions[usize::from(port.0)];
        direction.impairments.is_none() && !matches!(direction.sender, Sender::Explicit(_))
    }

    /// Adds to the delay of the line from `port`. Call it before the first frame.
    pub fn add_delay(&mut self, port: Port, by: Span) {
        self.directions[usize::from(port.0)].delay += by;
    }

    /// Queues a frame, as [`Medium::handle`] does.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) {
        self.now = now;
        self.queue_frame(port, frame);
    }

    /// Returns the time of the next output: at once if it is not in the future, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.next_output
    }

    /// Returns the next frame that has arrived by `now` with its port, if nothing else can be due: `handle` with a
    /// wake and one `poll` in one step.
    // Not inlined, so that the frame is moved in one piece.
    #[inline(never)]
    pub fn take_arrival(&mut self, now: Instant) -> Option<(Port, F)> {
        let only_flights =
            self.directions[0].only_flights && self.directions[1].only_flights && self.lost.is_empty();
        if self.next_output > now || !only_flights {
            return None;
        }
        let direction_index = usize::from(self.directions[1].next_output < self.directions[0].next_output);
        let direction = &mut self.directions[direction_index];
        direction.flights.front().filter(|first| first.at <= now && first.loss.is_none())?;
        let Flight { frame, .. } = direction.flights.pop_front()?;
        direction.update_next_output();
        self.now = now;
        self.next_output = self.directions[0].next_output.min(self.directions[1].next_output);
        Some((Port(direction_index as u16 ^ 1), frame))
    }

    /// Returns the output that is due.
    #[inline]
    fn poll_due(&mut self) -> MediumOutput<F> {
        if let Some((port, frame, cause)) = self.lost.pop_front() {
            self.update_next_output();
            return MediumOutput::Lost { port, frame, cause };
        }
        let direction_index = usize::from(self.directions[1].next_output < self.directions[0].next_output);
        let direction = &mut self.directions[direction_index];
        let has_arrived = direction.flights.front().is_some_and(|first| first.at <= self.now);
        if has_arrived && let Some(Flight { frame, loss, .. }) = direction.flights.pop_front() {
            direction.update_next_output();
            self.next_output = self.directions[0].next_output.min(self.directions[1].next_output);
            return match loss {
                None => MediumOutput::Transmit { port: Port(direction_index as u16 ^ 1), frame },
                Some(cause) => MediumOutput::Lost { port: Port(direction_index as u16), frame, cause },
            };
        }
        let has_room = direction.notify_sender(self.now);
        self.update_next_output();
        if has_room { MediumOutput::Room { port: Port(direction_index as u16) } } else { self.idle() }
    }

    /// Queues a frame; a cell on a simple line in one step.
    fn queue_frame(&mut self, port: Port, frame: F) {
        let direction = &mut self.directions[usize::from(port.0)];
        if !direction.is_simple || frame.as_cell().is_none() {
            return self.queue_any(port, frame);
        }
        match direction.queue_cell(self.now, frame.channel()) {
            Some(at) => {
                direction.arrive_at_end(at, frame);
                self.next_output = self.next_output.min(direction.next_output);
            }
            None => {
                self.lost.push_back((port, frame, LossCause::QueueFull));
                self.next_output = self.now;
            }
        }
    }

    /// Queues a frame of any kind, on a line of any kind.
    #[inline(never)]
    fn queue_any(&mut self, port: Port, frame: F) {
        let direction = &mut self.directions[usize::from(port.0)];
        if let Some((frame, cause)) = direction.queue_frame(self.now, frame, &mut self.train_pool) {
            self.lost.push_back((port, frame, cause));
        }
        self.take_dropped();
        self.update_next_output();
    }

    #[cold]
    fn release_waiting(&mut self) {
        for direction in &mut self.directions {
            direction.release_waiting(self.now);
            direction.run_queue(self.now);
        }
        self.take_dropped();
        self.update_next_output();
    }

    /// Takes the frames that explicit queues dropped.
    fn take_dropped(&mut self) {
        for (direction, port) in self.directions.iter_mut().zip([Port(0), Port(1)]) {
            self.lost.extend(direction.dropped.drain(..).map(|(frame, cause)| (port, frame, cause)));
        }
    }

    #[inline]
    fn update_next_output(&mut self) {
        self.next_output = self.directions[0].next_output.min(self.directions[1].next_output);
        if !self.lost.is_empty() {
            self.next_output = self.now;
        }
    }

    #[inline]
    fn idle(&self) -> MediumOutput<F> {
        MediumOutput::Idle { deadline: (self.next_output < Instant::MAX).then_some(self.next_output) }
    }
}

impl<F: CellFrame> Medium<F> for CellLink<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        self.now = now;
        match input {
            MediumInput::Frame { port, frame } => self.queue_frame(port, frame),
            MediumInput::RequestRoom { port } => {
                self.directions[usize::from(port.0)].request_room(now);
                self.take_dropped();
                self.update_next_output();
            }
            MediumInput::Wake => {
                if !(self.directions[0].only_flights && self.directions[1].only_flights) {
                    self.release_waiting();
                }
            }
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        if self.next_output > self.now { self.idle() } else { self.poll_due() }
    }

    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        let direction = &mut self.directions[usize::from(port.0)];
        direction.refused_length = length;
        let has_room = direction.room_at(now, length) <= now;
        if !direction.only_flights {
            self.take_dropped();
            self.update_next_output();
        }
        has_room
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        &self.directions[usize::from(port.0)].counters
    }
}

impl<F: CellFrame> Direction<F> {
    fn new(config: &Config, port: usize, stream: Stream) -> Self {
        let sender = match config.ends[port] {
            End::Adapter { pacing, queue, encapsulation } => {
                Sender::Adapter(PacketQueue::new(config.payload, pacing, queue, encapsulation))
            }
            End::SwitchPort { queue } => Sender::SwitchPort(CellQueue::new(config.payload, queue)),
        };
        let impairments = config.impairments[port];
        // Trains can carry cells that stay in order.
        let keeps_order = impairments.duplicate <= 0.0 && impairments.reorder <= 0.0;
        let reassembly = matches!(config.ends[port ^ 1], End::Adapter { .. }).then(Reassembly::default);
        let mut direction = Direction {
            sender,
            cell: FineTime::for_bits(u64::from(CELL) * 8, config.payload),
            delay: config.delay,
            only_flights: true,
            is_simple: true,
            // With an adapter at the far end of a perfect line, single cells are not observable.
            uses_trains: keeps_order
                && (config.mode == Mode::Trains || (reassembly.is_some() && !impairments.any())),
            reassembly,
            impairments: impairments.any().then_some(impairments),
            stream,
            flights: VecDeque::new(),
            next_output: Instant::MAX,
            held: None,
            room_request: None,
            refused_length: 0,
            dropped: Vec::new(),
            counters: MediumCounters::default(),
            busy: FineTime::ZERO,
            longest: FineTime::ZERO,
            runs: Vec::new(),
        };
        direction.update_shortcuts();
        direction
    }

    /// Updates `only_flights` and `is_simple`.
    fn update_shortcuts(&mut self) {
        let is_explicit = matches!(self.sender, Sender::Explicit(_));
        self.only_flights = self.impairments.is_none() && self.room_request.is_none() && !is_explicit;
        self.is_simple = self.only_flights && matches!(self.sender, Sender::SwitchPort(_));
    }

    /// Returns whether the waiting sender is to be notified now.
    #[cold]
    fn notify_sender(&mut self, now: Instant) -> bool {
        let is_due = self.room_request.take_if(|(at, _)| *at <= now).is_some();
        self.update_shortcuts();
        self.update_next_output();
        is_due
    }

    #[inline]
    fn update_next_output(&mut self) {
        self.next_output = self.flights.front().map_or(Instant::MAX, |flight| flight.at);
        if !self.only_flights {
            self.include_waiting();
        }
    }

    #[cold]
    fn include_waiting(&mut self) {
        let held = self.held.as_ref().map_or(Instant::MAX, |(at, _)| *at);
        let notification = self.room_request.map_or(Instant::MAX, |(at, _)| at);
        let queue = match &self.sender {
            Sender::Explicit(port) => port.queue.next_event(),
            _ => Instant::MAX,
        };
        self.next_output = self.next_output.min(held).min(notification).min(queue);
    }

    /// Appends a flight.
    #[inline]
    fn launch(&mut self, at: Instant, frame: F, loss: Option<LossCause>) {
        self.next_output = self.next_output.min(at);
        self.flights.push_back(Flight { at, frame, loss });
    }

    /// Requests a notification when there is room for the refused frame.
    fn request_room(&mut self, now: Instant) {
        let length = self.refused_length;
        self.room_request = Some((self.room_at(now, length), length));
        self.update_shortcuts();
        self.update_next_output();
    }

    /// Queues a frame at the sending end; returns a frame that is lost immediately.
    fn queue_frame(
        &mut self,
        now: Instant,
        mut frame: F,
        train_pool: &mut TrainPool,
    ) -> Option<(F, LossCause)> {
        self.release_waiting(now);
        let loss = match (&mut self.sender, frame.as_cell()) {
            (Sender::SwitchPort(_), Some(_)) => match self.queue_cell(now, frame.channel()) {
                Some(at) => {
                    self.carry(at, frame);
                    None
                }
                None => Some((frame, LossCause::QueueFull)),
            },
            (Sender::Adapter(_), None) => self.queue_packet(now, frame, train_pool),
            (Sender::SwitchPort(_), None) => match frame.take_train() {
                Some(train) => self.queue_train(now, frame, train, train_pool),
                None => self.refuse_kind(frame),
            },
            (Sender::Adapter(_), Some(_)) => self.refuse_kind(frame),
            (Sender::Explicit(port), _) => {
                port.send(now, frame, &mut self.counters);
                self.take_from_queue();
                None
            }
        };
        if let Some((_, length)) = self.room_request {
            self.room_request = Some((self.room_at(now, length), length));
            self.update_next_output();
        }
        loss
    }

    /// Makes everything happen in the explicit queue that is due by `now`.
    fn run_queue(&mut self, now: Instant) {
        let Sender::Explicit(port) = &mut self.sender else { return };
        port.queue.run(now, &mut self.counters);
        if let Some((at, length)) = &mut self.room_request {
            *at = if port.has_room(*length) { now } else { Instant::MAX };
        }
        self.take_from_queue();
    }

    /// Sends the cells whose transmission has begun in the explicit queue, and takes the frames that it dropped.
    #[inline(never)]
    fn take_from_queue(&mut self) {
        let Sender::Explicit(port) = &mut self.sender else { return };
        self.dropped.append(&mut port.queue.dropped);
        let sent = std::mem::take(&mut port.queue.started_cells);
        let mut rest = &sent[..];
        let mut started = std::mem::take(&mut port.queue.started);
        for Started { frame, .. } in started.drain(..) {
            let Sender::Explicit(port) = &self.sender else { return };
            let (cells, others) = rest.split_at(port.segmentation.cells(frame.length()) as usize);
            rest = others;
            for (SentCell { arrives, impairments }, cell) in cells_of(frame, cells) {
                match impairments.any() {
                    true => self.carry_impaired(arrives, cell, &impairments),
                    false => self.carry_perfect(arrives, cell),
                }
            }
        }
        if let Sender::Explicit(port) = &mut self.sender {
            (port.queue.started, port.queue.started_cells) = (started, sent);
            port.queue.started_cells.clear();
        }
        self.update_next_output();
    }

    /// Loses a frame of a kind that the sender's device cannot send.
    #[cold]
    fn refuse_kind(&mut self, frame: F) -> Option<(F, LossCause)> {
        self.counters.other_losses += 1;
        Some((frame, LossCause::NoRoute))
    }

    /// Queues a cell at a switch port; returns its arrival at the far end; `None` if the queue is full.
    #[inline]
    fn queue_cell(&mut self, now: Instant, channel: u16) -> Option<Instant> {
        let Sender::SwitchPort(queue) = &mut self.sender else { return None };
        let Some(departure) = queue.add(now, channel) else {
            self.counters.queue_drops += 1;
            return None;
        };
        if queue.longest() != self.longest {
            self.longest = queue.longest();
            self.counters.queue_max = queue.longest_in_cells() * u64::from(CELL);
        }
        self.count(1, self.cell);
        Some(departure.ceil() + self.delay)
    }

    /// Queues a packet at an adapter.
    fn queue_packet(&mut self, now: Instant, frame: F, train_pool: &mut TrainPool) -> Option<(F, LossCause)> {
        let Sender::Adapter(queue) = &mut self.sender else { return None };
        let Some(cells) = queue.cells(frame.length()) else {
            self.counters.other_losses += 1;
            return Some((frame, LossCause::TooLong));
        };
        self.runs.clear();
        if !queue.add(now, frame.channel(), cells, &mut self.runs) {
            self.counters.queue_drops += u64::from(cells);
            return Some((frame, LossCause::QueueFull));
        }
        self.counters.queue_max = queue.longest;
        self.count(cells, self.cell.times(u64::from(cells)));
        let mut train = train_pool.take();
        train.reset(cells as u16);
        std::mem::swap(&mut train.runs, &mut self.runs);
        self.send_train(frame, train, train_pool)
    }

    /// Queues the cells of a train at a switch port.
    fn queue_train(
        &mut self,
        now: Instant,
        frame: F,
        mut train: Box<Train>,
        train_pool: &mut TrainPool,
    ) -> Option<(F, LossCause)> {
        let Sender::SwitchPort(queue) = &mut self.sender else { return None };
        train.shift(now.since(train.first()));
        self.runs.clear();
        let received = train.cells();
        let mut has_last = false;
        for run in &train.runs {
            has_last = queue.add_run(run, frame.channel(), &mut self.runs);
        }
        self.counters.queue_max = queue.longest_in_cells() * u64::from(CELL);
        let accepted: u32 = self.runs.iter().map(|run| run.count).sum();
        train.lost = train.count - accepted as u16;
        train.last_lost |= !has_last;
        std::mem::swap(&mut train.runs, &mut self.runs);
        self.counters.queue_drops += u64::from(received) - u64::from(accepted);
        self.count(accepted, self.cell.times(u64::from(accepted)));
        self.send_train(frame, train, train_pool)
    }

    #[inline]
    fn count(&mut self, cells: u32, busy: FineTime) {
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
        train_pool: &mut TrainPool,
    ) -> Option<(F, LossCause)> {
        if train.runs.is_empty() {
            train_pool.recycle(train);
            return Some((frame, LossCause::QueueFull));
        }
        train.shift(self.delay);
        if !self.uses_trains {
            self.send_cells(frame, &train);
            train_pool.recycle(train);
            return None;
        }
        let end = train.end();
        if let Some(impairments) = self.impairments {
            self.impair(&impairments, &mut frame, &mut train);
        }
        if train.runs.is_empty() {
            self.launch(end, frame, Some(LossCause::LineError));
            train_pool.recycle(train);
        } else if let Some(reassembly) = &mut self.reassembly {
            let complete = train.lost == 0 && !frame.is_damaged();
            let cells = u32::from(train.cells());
            let valid = reassembly.add_train(frame.channel(), cells, complete, !train.last_lost);
            let loss = (!valid).then_some(LossCause::Incomplete);
            self.launch(train.end(), frame, loss);
            train_pool.recycle(train);
        } else {
            self.launch(train.first(), frame.into_train(train), None);
        }
        None
    }

    /// Sends the cells of a packet one by one. If the last cell is missing, the packet is lost with the last
    /// remaining one.
    fn send_cells(&mut self, frame: F, train: &Train) {
        let (cells, count) = (train.cells(), train.count);
        // The last cell carries the packet.
        let without_packet = if train.last_lost { cells } else { cells - 1 };
        let mut arrivals = train.arrivals();
        for (index, at) in (0..without_packet).zip(&mut arrivals) {
            self.carry(at, frame.cell(index, count));
        }
        match arrivals.next() {
            Some(at) => self.carry(at, frame.last_cell(count - 1, count)),
            None => {
                self.launch(train.end(), frame, Some(LossCause::Incomplete));
            }
        }
    }

    /// Applies the impairments to the cells of a train.
    fn impair(&mut self, impairments: &Impairments, frame: &mut F, train: &mut Train) {
        self.runs.clear();
        let mut has_last = false;
        for run in &train.runs {
            for k in 0..run.count {
                let outcome = impairments.draw(&mut self.stream);
                has_last = !outcome.lost;
                if outcome.lost {
                    self.counters.other_losses += 1;
                    train.lost += 1;
                    continue;
                }
                if outcome.damaged {
                    frame.damage();
                    self.counters.damaged += 1;
                }
                let first = run.first.plus(run.gap.times(u64::from(k)));
                append(&mut self.runs, Run { first, gap: run.gap, count: 1 });
            }
        }
        train.last_lost |= !has_last;
        std::mem::swap(&mut train.runs, &mut self.runs);
    }

    /// Carries a cell, which reaches the end of the line at `at`.
    #[inline]
    fn carry(&mut self, at: Instant, frame: F) {
        match self.impairments {
            None => self.arrive_at_end(at, frame),
            Some(impairments) => self.carry_impaired(at, frame, &impairments),
        }
    }

    /// Carries a cell without impairments on a line that may have had some.
    fn carry_perfect(&mut self, at: Instant, frame: F) {
        self.release_waiting(at);
        self.arrive_at_end(at, frame);
        self.release_overtaken(at);
    }

    fn carry_impaired(&mut self, at: Instant, mut frame: F, impairments: &Impairments) {
        self.release_waiting(at);
        let outcome = impairments.draw(&mut self.stream);
        if outcome.lost {
            self.counters.other_losses += 1;
            return self.launch(at, frame, Some(LossCause::LineError));
        }
        if outcome.damaged {
            self.counters.damaged += 1;
            frame.damage();
        }
        if outcome.reordered && self.held.is_none() {
            self.held = Some((at + impairments.hold, frame));
            return self.update_next_output();
        }
        if outcome.duplicated {
            self.counters.duplicated += 1;
            self.arrive_at_end(at, frame.clone());
        }
        self.arrive_at_end(at, frame);
        self.release_overtaken(at);
    }

    /// Delivers the reordered cell, which a later one has overtaken.
    #[inline]
    fn release_overtaken(&mut self, at: Instant) {
        if let Some((_, held)) = self.held.take() {
            self.counters.reordered += 1;
            self.arrive_at_end(at, held);
            self.update_next_output();
        }
    }

    /// Delivers the reordered cell if none has overtaken it by `now`.
    #[inline]
    fn release_waiting(&mut self, now: Instant) {
        if let Some((at, frame)) = self.held.take_if(|(at, _)| *at <= now) {
            self.arrive_at_end(at, frame);
            self.update_next_output();
        }
    }

    /// Processes the arrival of a cell at the far end.
    #[inline]
    fn arrive_at_end(&mut self, at: Instant, frame: F) {
        let Some(reassembly) = &mut self.reassembly else {
            return self.launch(at, frame, None);
        };
        let (index, count) = frame.as_cell().unwrap_or((0, 1));
        let last = index >= count.saturating_sub(1);
        let cell = aal5::Cell { index, last, serial: frame.serial(), damaged: frame.is_damaged() };
        if let Some(valid) = reassembly.add_cell(frame.channel(), &cell) {
            let loss = (!valid).then_some(LossCause::Incomplete);
            self.launch(at, frame.into_packet(), loss);
        }
    }

    fn room_at(&mut self, now: Instant, length: u32) -> Instant {
        match &mut self.sender {
            Sender::Adapter(queue) => queue.room_at(now, length),
            Sender::SwitchPort(queue) => queue.room_at(now),
            Sender::Explicit(_) => {
                self.run_queue(now);
                let Sender::Explicit(port) = &self.sender else { return now };
                if port.has_room(length) { now } else { Instant::MAX }
            }
        }
    }
}
