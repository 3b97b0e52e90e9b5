//! A host's packet processing, in both directions.

use std::collections::VecDeque;

use trunkline_endpoint::{Frame, Port, To};
use trunkline_units::{Instant, Span};

use crate::host::filter::{Filter, Passes};
use crate::host::processors::{Finished, Processors};
use crate::host::server::Server;
use crate::host::{Costs, Interface};

/// Packets that a card holds until their interrupt is served. Further packets are lost ([`Cause::Full`]) without an
/// interrupt.
pub const CARD_CAPACITY: usize = 256;

/// Output of a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<F> {
    /// Transmit `frame` on the medium at `port`.
    Transmit {
        /// The port.
        port: Port,
        /// The frame.
        frame: F,
    },
    /// Deliver `frame` to its transport.
    Deliver {
        /// The port it arrived at.
        port: Port,
        /// The frame.
        frame: F,
    },
    /// A received frame was lost.
    Lost {
        /// The frame.
        frame: F,
        /// The cause.
        cause: Cause,
    },
    /// A full send queue has space again.
    Room,
    /// No more output.
    Idle {
        /// Next deadline.
        deadline: Option<Instant>,
    },
}

/// Why a frame was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The receive buffer was full after the interrupt was served, or the card was full.
    Full,
    /// The processor found it damaged.
    Damaged,
    /// A false positive of the card's hash filter, dropped by the processor.
    Unwanted,
    /// Addressed to another host: ignored by the card at no cost. Not an error.
    Foreign,
}

/// Counters of a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets accepted from transports.
    pub sent: u64,
    /// Packets passed to media.
    pub transmitted: u64,
    /// Frames received and not ignored by the card.
    pub received: u64,
    /// Packets delivered to transports.
    pub delivered: u64,
    /// Lost because a buffer was full.
    pub full: u64,
    /// Lost because damaged.
    pub damaged: u64,
    /// False positives dropped by the processor.
    pub unwanted: u64,
    /// Ignored by the card.
    pub foreign: u64,
    /// Interrupts started.
    pub interrupts: u64,
    /// Maximum packets in the receive buffer.
    pub waiting_max: u64,
    /// Maximum bytes in the receive buffer.
    pub waiting_bytes_max: u64,
}

/// A packet in process.
#[derive(Clone, Debug)]
struct Job<F> {
    frame: F,
    port: Port,
    leaves: bool,
    unwanted: bool,
}

impl<F> Job<F> {
    fn transmit(self) -> Output<F> {
        Output::Transmit { port: self.port, frame: self.frame }
    }
}

/// A host between its transports and its media.
///
/// **Sending.** Protocol work on a processor ([`Costs::cpu_packet`] and the bytes), then the bus, then segmentation
/// on the card, then [`Output::Transmit`]. At most [`Costs::send_queue`] packets are on this path; `send` refuses
/// more.
///
/// **Receiving.** Reassembly on the card, then the bus, then an interrupt on the first processor, then the receive
/// buffer ([`Costs::rx_buffer`]), then protocol work, then [`Output::Deliver`]. At most [`CARD_CAPACITY`] packets are
/// between arrival and the end of their interrupt; a packet counts in the receive buffer until its work starts.
///
/// **Servers.** Each processor, the bus, and segmentation and reassembly of each interface serve one packet at a
/// time. The first processor serves all interrupts immediately and is preempted by them. Work prefers the other
/// processors; received packets precede packets to send, as 4.3BSD's software interrupts precede its processes. So a
/// flood of packets saturates the first processor, and packets beyond its capacity are lost after their interrupt was
/// served.
///
/// **Conservation.** Every accepted frame is output or still in process.
///
/// The calls keep the contract of a [`Medium`](trunkline_endpoint::Medium): time never goes back,
/// [`wake`](Self::wake) at the deadline makes progress, an early wake does nothing; after every call the station is
/// polled until idle.
#[derive(Clone, Debug)]
pub struct Station<F> {
    address: u32,
    costs: Costs,
    /// Whether all costs are zero: packets pass straight through.
    free: bool,
    interfaces: Vec<Card<F>>,
    filter: Filter,
    processors: Processors<Job<F>>,
    bus: Server<Job<F>>,
    /// Receive buffer.
    received: VecDeque<Job<F>>,
    received_bytes: u64,
    /// Packets from transports that wait for a processor.
    sending: VecDeque<Job<F>>,
    /// Received packets up to the end of their interrupt.
    on_card: usize,
    /// Packets in the send path.
    leaving: u64,
    output: VecDeque<Output<F>>,
    now: Instant,
    /// Next event and its server.
    due: (Instant, NextServer),
    counters: Counters,
}

/// The servers of an interface.
#[derive(Clone, Debug)]
struct Card<F> {
    interface: Interface,
    segmentation: Server<Job<F>>,
    reassembly: Server<Job<F>>,
}

/// Server of the next event; of several at one time the first one in this order.
#[derive(Clone, Copy, Debug)]
enum NextServer {
    Reassembly(usize),
    Bus,
    Processor,
    Segmentation(usize),
}

impl<F: Frame> Station<F> {
    /// Creates an idle station with a port for each interface.
    pub fn new(address: u32, costs: Costs, interfaces: &[Interface]) -> Self {
        let card = |&interface| Card { interface, segmentation: Server::new(), reassembly: Server::new() };
        Station {
            address,
            free: costs.are_none(),
            interfaces: interfaces.iter().map(card).collect(),
            filter: Filter::new(costs.mcast_filter),
            processors: Processors::new(costs.cpus, costs.interrupt),
            bus: Server::new(),
            received: VecDeque::new(),
            received_bytes: 0,
            sending: VecDeque::new(),
            on_card: 0,
            leaving: 0,
            output: VecDeque::new(),
            now: Instant::ZERO,
            due: (Instant::MAX, NextServer::Bus),
            counters: Counters::default(),
            costs,
        }
    }

    /// Joins `group`. Joins are counted: the group is left after as many leaves.
    pub fn join(&mut self, group: u32) {
        self.filter.join(group);
    }

    /// Removes one join.
    pub fn leave(&mut self, group: u32) {
        self.filter.leave(group);
    }

    /// Returns whether [`send`](Self::send) accepts one more.
    #[inline]
    pub fn room(&self) -> bool {
        self.leaving < self.costs.send_queue.max(1)
    }

    /// Returns whether all costs are zero: then packets pass straight through, and [`pass_out`](Self::pass_out) and
    /// [`pass_in`](Self::pass_in) replace `send` and `arrive` without a poll.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// Counts a packet sent by a station without costs.
    #[inline]
    pub fn pass_out(&mut self) {
        self.counters.sent += 1;
        self.counters.transmitted += 1;
    }

    /// Counts a frame received by a station without costs; returns whether it is delivered.
    #[inline]
    pub fn pass_in(&mut self, frame: &F) -> bool {
        let wanted = match frame.to() {
            To::Station(station) => station == self.address,
            To::All => true,
            To::Group(group) => match self.filter.passes(group) {
                Passes::Wanted => true,
                Passes::Not => false,
                Passes::Wrongly => {
                    self.counters.received += 1;
                    self.counters.unwanted += 1;
                    return false;
                }
            },
        };
        if !wanted {
            self.counters.foreign += 1;
            return false;
        }
        self.counters.received += 1;
        if frame.is_damaged() {
            self.counters.damaged += 1;
            return false;
        }
        self.counters.delivered += 1;
        true
    }

    /// Accepts a packet from a transport for `port`.
    ///
    /// # Errors
    /// The packet, if the send queue is full. [`Output::Room`] follows when there is space.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) -> Result<(), F> {
        if !self.free {
            self.advance(now);
        }
        if !self.room() {
            return Err(frame);
        }
        self.leaving += 1;
        self.counters.sent += 1;
        if self.free {
            self.output.push_back(Output::Transmit { port, frame });
        } else {
            self.sending.push_back(Job { frame, port, leaves: true, unwanted: false });
            self.proceed(now);
        }
        Ok(())
    }

    /// Accepts a frame from the medium at `port`.
    #[inline]
    pub fn arrive(&mut self, now: Instant, port: Port, frame: F) {
        let unwanted = match frame.to() {
            To::Station(station) if station == self.address => false,
            To::All => false,
            To::Station(_) => return self.lose(frame, Cause::Foreign),
            To::Group(group) => match self.filter.passes(group) {
                Passes::Wanted => false,
                Passes::Wrongly => true,
                Passes::Not => return self.lose(frame, Cause::Foreign),
            },
        };
        self.counters.received += 1;
        let job = Job { frame, port, leaves: false, unwanted };
        if self.free {
            return self.finish_arrival(job);
        }
        self.advance(now);
        if self.on_card >= CARD_CAPACITY {
            return self.lose(job.frame, Cause::Full);
        }
        self.on_card += 1;
        self.reassemble(now, job);
        self.proceed(now);
    }

    /// Wakes the station; its deadline may have passed.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        if now >= self.due.0 {
            self.advance(now);
        }
    }

    /// Returns the next output, until [`Output::Idle`].
    #[inline]
    pub fn poll(&mut self, _now: Instant) -> Output<F> {
        match self.output.pop_front() {
            Some(Output::Transmit { port, frame }) => {
                self.counters.transmitted += 1;
                if !self.room() {
                    self.output.push_back(Output::Room);
                }
                self.leaving -= 1;
                Output::Transmit { port, frame }
            }
            Some(output) => output,
            None => Output::Idle { deadline: (self.due.0 < Instant::MAX).then_some(self.due.0) },
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the processor time used so far by all processors.
    pub fn busy(&self) -> Span {
        self.processors.used(self.now)
    }

    /// Returns the processor time used until `now`, which is not before the last call.
    pub fn busy_at(&self, now: Instant) -> Span {
        self.processors.used(now.max(self.now))
    }

    /// Processes everything due until `now`, in order of time.
    fn advance(&mut self, now: Instant) {
        while self.due.0 <= now {
            let (at, place) = self.due;
            self.step(at, place);
            self.proceed(at);
        }
        self.now = now;
    }

    /// Assigns work to idle processors and finds the next event.
    fn proceed(&mut self, now: Instant) {
        self.now = now;
        while let Some(processor) = self.processors.idle() {
            let Some(job) = self.next_work() else { break };
            let cost = if job.unwanted { self.costs.cpu_packet } else { self.costs.work(job.frame.length()) };
            self.processors.begin(processor, now, cost, job);
        }
        self.due = self.next();
    }

    fn next_work(&mut self) -> Option<Job<F>> {
        let Some(job) = self.received.pop_front() else { return self.sending.pop_front() };
        self.received_bytes -= u64::from(job.frame.length());
        Some(job)
    }

    /// Next event and its server.
    fn next(&self) -> (Instant, NextServer) {
        let mut next = (self.processors.next(), NextServer::Processor);
        let mut consider = |at: Instant, place: NextServer, before: bool| {
            if at < next.0 || (before && at == next.0 && at < Instant::MAX) {
                next = (at, place);
            }
        };
        consider(self.bus.next(), NextServer::Bus, true);
        for (number, card) in self.interfaces.iter().enumerate().rev() {
            consider(card.reassembly.next(), NextServer::Reassembly(number), true);
            consider(card.segmentation.next(), NextServer::Segmentation(number), false);
        }
        next
    }

    /// Advances a packet by one step.
    fn step(&mut self, now: Instant, place: NextServer) {
        match place {
            NextServer::Reassembly(number) => {
                let job = self.interfaces[number].reassembly.take();
                job.into_iter().for_each(|job| self.cross_bus(now, job));
            }
            NextServer::Bus => {
                let job = self.bus.take();
                job.into_iter().for_each(|job| self.leave_bus(now, job));
            }
            NextServer::Processor => match self.processors.finish(now) {
                Some(Finished::Interrupt(job)) => self.finish_interrupt(job),
                Some(Finished::Work(job)) if job.leaves => self.cross_bus(now, job),
                Some(Finished::Work(job)) => self.finish_arrival(job),
                None => {}
            },
            NextServer::Segmentation(number) => {
                let job = self.interfaces[number].segmentation.take();
                self.output.extend(job.map(Job::transmit));
            }
        }
    }

    /// Returns the card's server for a packet and its service time; `None` if it takes no time.
    fn sar(&mut self, job: &Job<F>) -> Option<(&mut Card<F>, Span)> {
        let cell = self.costs.sar_cell;
        let card = self.interfaces.get_mut(usize::from(job.port.0))?;
        let cells = card.interface.cells.filter(|_| !cell.is_zero())?;
        Some((card, cell * u64::from(cells(job.frame.length()))))
    }

    fn reassemble(&mut self, now: Instant, job: Job<F>) {
        match self.sar(&job) {
            Some((card, cost)) => card.reassembly.give(now, cost, job),
            None => self.cross_bus(now, job),
        }
    }

    fn segment(&mut self, now: Instant, job: Job<F>) {
        match self.sar(&job) {
            Some((card, cost)) => card.segmentation.give(now, cost, job),
            None => self.output.push_back(job.transmit()),
        }
    }

    fn cross_bus(&mut self, now: Instant, job: Job<F>) {
        if self.costs.dma_byte.is_zero() {
            return self.leave_bus(now, job);
        }
        self.bus.give(now, self.costs.dma_byte * u64::from(job.frame.length()), job);
    }

    fn leave_bus(&mut self, now: Instant, job: Job<F>) {
        if job.leaves {
            return self.segment(now, job);
        }
        self.counters.interrupts += 1;
        if self.costs.interrupt.is_zero() {
            return self.finish_interrupt(job);
        }
        self.processors.interrupt(now, job);
    }

    /// Moves a packet to the receive buffer after its interrupt, if there is space.
    fn finish_interrupt(&mut self, job: Job<F>) {
        self.on_card -= 1;
        let bound = self.costs.rx_buffer;
        let (mut frames, mut bytes) = (self.received.len() as u64, self.received_bytes);
        if bound.each_channel {
            let channel = job.frame.channel();
            let same = self.received.iter().filter(|other| other.frame.channel() == channel);
            (frames, bytes) =
                same.fold((0, 0), |(n, sum), other| (n + 1, sum + u64::from(other.frame.length())));
        }
        if !bound.fits(frames, bytes, job.frame.length()) {
            return self.lose(job.frame, Cause::Full);
        }
        self.received_bytes += u64::from(job.frame.length());
        self.received.push_back(job);
        let counters = &mut self.counters;
        counters.waiting_max = counters.waiting_max.max(self.received.len() as u64);
        counters.waiting_bytes_max = counters.waiting_bytes_max.max(self.received_bytes);
    }

    /// Completes the reception of a packet.
    #[inline]
    fn finish_arrival(&mut self, job: Job<F>) {
        if job.unwanted {
            self.lose(job.frame, Cause::Unwanted);
        } else if job.frame.is_damaged() {
            self.lose(job.frame, Cause::Damaged);
        } else {
            self.counters.delivered += 1;
            self.output.push_back(Output::Deliver { port: job.port, frame: job.frame });
        }
    }

    fn lose(&mut self, frame: F, cause: Cause) {
        let counter = match cause {
            Cause::Full => &mut self.counters.full,
            Cause::Damaged => &mut self.counters.damaged,
            Cause::Unwanted => &mut self.counters.unwanted,
            Cause::Foreign => &mut self.counters.foreign,
        };
        *counter += 1;
        self.output.push_back(Output::Lost { frame, cause });
    }
}
