//! A link that carries cells.

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

/// How long a reordered cell waits for another one to overtake it, at most.
pub const OVERTAKEN_WITHIN: Span = Span::from_ms(1);

/// Trains that a link keeps to be filled again.
const SPARE: usize = 64;

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// What the line carries of whole cells ([`payload_rate`](crate::atm::payload_rate)); zero is taken for 1 b/s.
    pub payload: Rate,
    /// How long a bit takes to the other end.
    pub delay: Span,
    /// What stands at port 0 and at port 1.
    pub ends: [End; 2],
    /// What happens to cells that leave by port 0, and by port 1.
    pub impairments: [Impairments; 2],
    /// Whether packets cross cell by cell.
    pub mode: Mode,
}

/// What stands at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A host's card: its station sends and is given packets. It cuts and joins in no time; what the card takes for it
    /// is the station's to count.
    Adapter {
        /// When its cells may leave.
        pacing: Pacing,
        /// What may wait to leave: [`Room::Frames`](trunkline_endpoint::Room) counts packets, `Bytes` the bytes of
        /// their cells, 53 each. A packet counts whole until its last bit has left.
        queue: Bound,
        /// What stands before its packets.
        encapsulation: Encapsulation,
    },
    /// A switch's port: cells and trains in and out.
    Bare {
        /// What may wait to leave, in cells (`Bytes`: 53 each).
        queue: Bound,
    },
}

impl End {
    /// A card that neither paces nor loses, with LLC/SNAP.
    pub const ADAPTER: End =
        End::Adapter { pacing: Pacing::None, queue: Bound::NONE, encapsulation: Encapsulation::LlcSnap };
}

/// What a line does to cells: shares, 0 to 1, of each cell for itself. The default is a perfect line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Lost ([`Cause::Noise`]).
    pub loss: f64,
    /// Damaged: its packet's check will fail.
    pub corrupt: f64,
    /// Arrives twice.
    pub duplicate: f64,
    /// Arrives right behind the next cell, or [`OVERTAKEN_WITHIN`] late if none comes before.
    pub reorder: f64,
}

impl Impairments {
    fn are_none(&self) -> bool {
        *self == Impairments::default()
    }

    /// Whether a train can tell what becomes of its cells.
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
    /// All its cells in one step; exact where [`Train`] says. A line that doubles or reorders cells carries them one
    /// by one all the same.
    Trains,
}

/// A link that carries cells: two ports, full duplex.
///
/// **Adapters.** A packet is cut into cells that leave as the pacer lets them ([`End::Adapter`]). One that finds no room
/// is lost whole ([`Cause::Full`]), and so is one that AAL5 cannot carry ([`Cause::TooLong`]). Cells that come to an
/// adapter are put together ([`aal5`]): a packet of which a cell is missing or damaged is lost
/// ([`Cause::Incomplete`]) when its last cell comes.
///
/// **Bare ports.** A cell that finds no room is lost ([`Cause::Full`]). The frames that come out are those that the far
/// end handed on, each at the moment when its last bit has arrived.
///
/// **Fused.** When a cell leaves and arrives is known when it comes, because nothing overtakes. So a cell costs one
/// event, and one on its way to an adapter none, unless it is the last or lost.
///
/// **Counting.** [`Counters`] count cells, at adapters too, each as soon as it is sure to leave or to be lost;
/// [`backlog`](CellLink::backlog) tells how much of that is still to come. [`CellLink::aal5`] counts packets put together.
///
/// **Nothing vanishes**, but for cells that an adapter has taken: every packet comes out once, or is said to be lost.
/// Cell by cell that is when the cell that carries it is lost, or with [`Cause::Incomplete`]; each other lost cell is
/// said as well. As a train, lost cells are only counted, and the packet itself is lost once, [`Cause::Incomplete`] at
/// the adapter when its last surviving cell comes; or where its last cells all are lost.
///
/// **Memory.** Cell by cell, a frame and 16 bytes for each cell between coming and arriving; as a train, a frame and 240
/// bytes for each packet, more where pacing in slots breaks it into many runs. How many there are the bounds of the
/// ends and the delay say; what is lost at once waits only for the next poll.
#[derive(Clone, Debug)]
pub struct CellLink<F> {
    directions: [Direction<F>; 2],
    /// Frames lost at once.
    lost: VecDeque<(Port, F, Cause)>,
    /// Trains to be filled again; a link that carries packets both ways makes no new ones.
    spare: Spare,
    now: Instant,
    /// When there is something to do.
    due: Instant,
}

/// Trains to be filled again, as frames carry them.
#[derive(Clone, Debug, Default)]
#[expect(clippy::vec_box, reason = "a frame carries a box, and is given one back")]
struct Spare(Vec<Box<Train>>);

impl Spare {
    fn take(&mut self) -> Box<Train> {
        self.0.pop().unwrap_or_default()
    }

    fn keep(&mut self, train: Box<Train>) {
        if self.0.len() < SPARE {
            self.0.push(train);
        }
    }
}

/// One way.
#[derive(Clone, Debug)]
struct Direction<F> {
    from: Sender,
    /// At the far end, if an adapter stands there.
    into: Option<Reassembly>,
    cell: Fine,
    delay: Span,
    /// The line is perfect, and nobody asked: nothing is due but flights.
    quiet: bool,
    /// Cells just pass: it is quiet, and a bare port.
    plain: bool,
    trains: bool,
    impairments: Option<Impairments>,
    stream: Stream,
    /// What is on its way, by arrival.
    flights: VecDeque<Flight<F>>,
    /// When the first of these is due: a flight, what was held, an answer.
    next: Instant,
    /// A cell that the next one overtakes, and when it arrives if none comes.
    held: Option<(Instant, F)>,
    /// When the station that asked may be told that there is room, and for how much it asked.
    asked: Option<(Instant, u32)>,
    /// For how much it last had no room.
    refused: u32,
    counters: Counters,
    /// The time for which cells were leaving.
    busy: Fine,
    /// How long the most cells take that were counted.
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
    /// A link, idle. `streams`: where the impairments of cells that leave by port 0 and by port 1 are drawn from; a
    /// share of zero draws nothing.
    pub fn new(config: &Config, streams: [Stream; 2]) -> Self {
        let [first, second] = streams;
        CellLink {
            directions: [Direction::new(config, 0, first), Direction::new(config, 1, second)],
            lost: VecDeque::new(),
            spare: Spare::default(),
            now: Instant::ZERO,
            due: Instant::MAX,
        }
    }

    /// What the adapter at `port` put together; nothing, if it is a bare one.
    pub fn aal5(&self, port: Port) -> aal5::Counters {
        let into = &self.directions[usize::from(port.0 ^ 1)].into;
        into.as_ref().map(|reassembly| reassembly.counters).unwrap_or_default()
    }

    /// How long the line out of `port` still needs for what was counted until now: for cells at a bare port, for whole
    /// packets at an adapter.
    pub fn backlog(&self, now: Instant, port: Port) -> Span {
        self.directions[usize::from(port.0)].backlog(now)
    }

    /// Whether the line that leaves `port` does nothing bad to cells.
    pub fn is_perfect(&self, port: Port) -> bool {
        self.directions[usize::from(port.0)].impairments.is_none()
    }

    /// Makes everything that will leave `port` arrive later. To be called before the first frame comes.
    pub fn delay_more(&mut self, port: Port, by: Span) {
        self.directions[usize::from(port.0)].delay += by;
    }

    /// Takes a frame, as [`Medium::handle`] does.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) {
        self.now = now;
        self.take(port, frame);
    }

    /// When there is something to say next: at once if that is not in the future, never at [`Instant::MAX`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.due
    }

    /// The next frame that has arrived by `now`, and the port where, if nothing else can be due: what `handle` with a wake
    /// and one `poll` do, in one step.
    // Not inlined: then a frame is moved as a whole.
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

    /// What there is to say when something is due.
    #[inline]
    fn say(&mut self) -> Passage<F> {
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
        let told = direction.tell(self.now);
        self.find_due();
        if told { Passage::Room { port: Port(way as u16) } } else { self.idle() }
    }

    fn take(&mut self, port: Port, frame: F) {
        let direction = &mut self.directions[usize::from(port.0)];
        if !direction.plain || frame.as_cell().is_none() {
            return self.take_slowly(port, frame);
        }
        match direction.pass(self.now, frame.channel()) {
            Some(at) => {
                direction.land(at, frame);
                self.due = self.due.min(direction.next);
            }
            None => {
                self.lost.push_back((port, frame, Cause::Full));
                self.due = self.now;
            }
        }
    }

    /// Takes anything but a cell that just passes.
    #[inline(never)]
    fn take_slowly(&mut self, port: Port, frame: F) {
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
        if self.due > self.now { self.idle() } else { self.say() }
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
            // To an adapter at the other end of a perfect line there is nothing to see of single cells.
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

    /// Whether the station that asked is to be told now.
    #[cold]
    fn tell(&mut self, now: Instant) -> bool {
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

    /// Something is on its way, behind all that is.
    #[inline]
    fn fly(&mut self, at: Instant, frame: F, lost: Option<Cause>) {
        self.next = self.next.min(at);
        self.flights.push_back(Flight { at, frame, lost });
    }

    /// Its station wants to know when there is room for what there was none for.
    fn ask(&mut self, now: Instant) {
        let length = self.refused;
        self.asked = Some((self.room_at(now, length), length));
        self.find_plain();
        self.find_next();
    }

    /// Takes a frame that comes to the sending end; back comes one that is lost at once.
    fn take(&mut self, now: Instant, mut frame: F, spare: &mut Spare) -> Option<(F, Cause)> {
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
                None => Some((frame, Cause::NoWay)),
            },
            (Sender::Adapter(_), Some(_)) => Some((frame, Cause::NoWay)),
        };
        if let Some((_, length)) = self.asked {
            self.asked = Some((self.room_at(now, length), length));
            self.find_next();
        }
        lost
    }

    /// A cell comes to a bare port: when it reaches the far end, if there is room.
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

    fn take_packet(&mut self, now: Instant, frame: F, spare: &mut Spare) -> Option<(F, Cause)> {
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
        self.send_on(frame, train, spare)
    }

    fn take_train(
        &mut self,
        now: Instant,
        frame: F,
        mut train: Box<Train>,
        spare: &mut Spare,
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
        self.send_on(frame, train, spare)
    }

    #[inline]
    fn count(&mut self, cells: u32, busy: Fine) {
        self.counters.frames += u64::from(cells);
        self.counters.bytes += u64::from(cells * CELL);
        self.busy = self.busy.plus(busy);
        self.counters.busy = self.busy.floor();
    }

    /// Sends the cells of a packet over the line; the train says when they have left.
    fn send_on(&mut self, mut frame: F, mut train: Box<Train>, spare: &mut Spare) -> Option<(F, Cause)> {
        if train.runs.is_empty() {
            spare.keep(train);
            return Some((frame, Cause::Full));
        }
        train.shift(self.delay);
        if !self.trains {
            self.send_apart(frame, &train);
            spare.keep(train);
            return None;
        }
        let end = train.end();
        if let Some(impairments) = self.impairments {
            self.impair(&impairments, &mut frame, &mut train);
        }
        if train.runs.is_empty() {
            self.fly(end, frame, Some(Cause::Noise));
            spare.keep(train);
        } else if let Some(reassembly) = &mut self.into {
            let whole = train.lost == 0 && !frame.is_damaged();
            let good = reassembly.train(frame.channel(), u32::from(train.cells()), whole, !train.last_lost);
            let lost = (!good).then_some(Cause::Incomplete);
            self.fly(train.end(), frame, lost);
            spare.keep(train);
        } else {
            self.fly(train.first(), frame.into_train(train), None);
        }
        None
    }

    /// Sends the cells of a packet one by one. If the last one is missing the packet is lost with the last that is
    /// there.
    fn send_apart(&mut self, frame: F, train: &Train) {
        let (cells, count) = (train.cells(), train.count);
        let single = if train.last_lost { cells } else { cells - 1 };
        let mut arrivals = train.arrivals();
        for (index, at) in (0..single).zip(&mut arrivals) {
            self.carry(at, frame.cell(index, count));
        }
        match arrivals.next() {
            Some(at) => self.carry(at, frame.last_cell(count - 1, count)),
            None => {
                self.fly(train.end(), frame, Some(Cause::Incomplete));
            }
        }
    }

    /// What the line does to the cells of a train.
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

    /// Takes a cell over the line, which it reaches the end of at `at`.
    #[inline]
    fn carry(&mut self, at: Instant, frame: F) {
        match self.impairments {
            None => self.land(at, frame),
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
            return self.fly(at, frame, Some(Cause::Noise));
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
            self.land(at, frame.clone());
        }
        self.land(at, frame);
        if let Some((_, held)) = self.held.take() {
            self.counters.reordered += 1;
            self.land(at, held);
            self.find_next();
        }
    }

    /// If nothing has overtaken the cell that was held until `now`, it arrives.
    #[inline]
    fn release(&mut self, now: Instant) {
        if let Some((at, frame)) = self.held.take_if(|(at, _)| *at <= now) {
            self.land(at, frame);
            self.find_next();
        }
    }

    /// A cell arrives at the far end.
    #[inline]
    fn land(&mut self, at: Instant, frame: F) {
        let Some(reassembly) = &mut self.into else {
            return self.fly(at, frame, None);
        };
        let (index, count) = frame.as_cell().unwrap_or((0, 1));
        let last = index >= count.saturating_sub(1);
        let cell = aal5::Cell { index, last, serial: frame.serial(), damaged: frame.is_damaged() };
        if let Some(good) = reassembly.cell(frame.channel(), &cell) {
            let lost = (!good).then_some(Cause::Incomplete);
            self.fly(at, frame.into_packet(), lost);
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

/// True with probability `share`; nothing is drawn for a share of zero.
#[inline]
fn draw(stream: &mut Stream, share: f64) -> bool {
    share > 0.0 && stream.chance(share)
}
