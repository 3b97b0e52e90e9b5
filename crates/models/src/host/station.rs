//! A host's packet processing, in both directions, and what it loses: [`HostLossCause`] and [`HostCounters`].

use std::collections::VecDeque;

use trunkline_endpoint::{Destination, Frame, Port};
use trunkline_units::{Instant, Span};

use crate::atm::{Encapsulation, cells_of};
use crate::host::Costs;
use crate::host::filter::{Filter, FilterResult};
use crate::host::processors::{Finished, Processors};
use crate::host::routes::Routes;
use crate::host::server::Server;
use crate::host::waiting::WaitingPackets;

/// Maximum number of packets between their arrival and the end of their interrupt. Further packets are lost
/// ([`HostLossCause::BufferFull`]) without an interrupt.
pub const CARD_CAPACITY: usize = 256;

/// An output of a station.
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
    /// Transmit `frame`, which is another host's, on the medium at `port` if its queue has room; otherwise it is lost.
    Forward {
        /// The port.
        port: Port,
        /// The frame.
        frame: F,
    },
    /// A received frame was lost.
    Lost {
        /// The frame.
        frame: F,
        /// The cause.
        cause: HostLossCause,
    },
    /// A full send queue has space again.
    Room,
    /// No more output.
    Idle {
        /// Next deadline.
        deadline: Option<Instant>,
    },
}

/// Why a host lost or ignored a received frame; [`HostCounters`] count each cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostLossCause {
    /// The receive buffer ([`Costs::rx_buffer`]) was full after the interrupt was served, or the card was full
    /// ([`CARD_CAPACITY`]).
    BufferFull,
    /// The processor found it damaged.
    Damaged,
    /// A false positive of the card's hash filter, dropped by the processor.
    Unwanted,
    /// Addressed to another host: ignored by the card at no cost. Not an error.
    Foreign,
}

/// Counters of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Packets accepted from transports.
    pub sent: u64,
    /// Packets passed to media.
    pub transmitted: u64,
    /// Frames received and not ignored by the card.
    pub received: u64,
    /// Packets delivered to transports.
    pub delivered: u64,
    /// Packets forwarded to media, each copy counted.
    pub forwarded: u64,
    /// Packets lost because the receive buffer or the card was full.
    pub dropped_full: u64,
    /// Packets dropped because they were damaged in transit.
    pub dropped_damaged: u64,
    /// False positives of the multicast filter, dropped by the processor.
    pub unwanted: u64,
    /// Frames for other hosts, ignored by the card.
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
    is_outgoing: bool,
    /// Received for another host.
    is_forwarded: bool,
    /// A false positive of the multicast filter.
    is_unwanted: bool,
}

impl<F> Job<F> {
    fn transmit(self) -> Output<F> {
        let Job { port, frame, .. } = self;
        if self.is_forwarded { Output::Forward { port, frame } } else { Output::Transmit { port, frame } }
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
/// **Forwarding.** A router ([`Station::set_routes`]) receives packets for the hosts and groups of its [`Routes`] like
/// its own; after the protocol work each copy crosses the bus, is segmented on the card of its egress port, and is output
/// as [`Output::Forward`]. It does not count in [`Costs::send_queue`].
///
/// **Servers.** Each processor, the bus, and segmentation and reassembly of each interface serve one packet at a
/// time. The first processor serves all interrupts immediately and is preempted by them. Work prefers the other
/// processors; received packets precede packets to send, as 4.3BSD's software interrupts precede its processes. So a
/// flood of packets saturates the first processor, and packets beyond its capacity are lost after their interrupt was
/// served. With a receive buffer per channel, the work is that of the processes that read the sockets: the channels and the
/// packets to send take turns, one packet each, and interrupts stand for everything that precedes a process.
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
    has_no_costs: bool,
    cards: Vec<Card<F>>,
    filter: Filter,
    /// The forwarding table of a router.
    routes: Option<Box<Routes>>,
    processors: Processors<Job<F>>,
    bus: Server<Job<F>>,
    /// Packets that wait for a processor.
    waiting: WaitingPackets<Job<F>>,
    /// Number of received packets whose interrupt has not ended.
    on_card: usize,
    /// Number of packets from transports that have not been output, in `waiting` or behind it.
    in_send_path: u64,
    output: VecDeque<Output<F>>,
    now: Instant,
    /// Time of the next event, and its server.
    next_event: (Instant, NextServer),
    counters: HostCounters,
}

/// The servers of an interface.
#[derive(Clone, Debug)]
struct Card<F> {
    /// Encapsulation of packets in cells, on ATM.
    encapsulation: Option<Encapsulation>,
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
    /// Creates an idle station with a port for each interface; the encapsulation is that of packets in cells, on ATM.
    pub fn new(address: u32, costs: Costs, interfaces: &[Option<Encapsulation>]) -> Self {
        let card =
            |&encapsulation| Card { encapsulation, segmentation: Server::new(), reassembly: Server::new() };
        Station {
            address,
            has_no_costs: costs.are_none(),
            cards: interfaces.iter().map(card).collect(),
            filter: Filter::new(costs.mcast_filter),
            routes: None,
            processors: Processors::new(costs.cpus, costs.interrupt),
            bus: Server::new(),
            waiting: WaitingPackets::new(costs.rx_buffer),
            on_card: 0,
            in_send_path: 0,
            output: VecDeque::new(),
            now: Instant::ZERO,
            next_event: (Instant::MAX, NextServer::Bus),
            counters: HostCounters::default(),
            costs,
        }
    }

    /// Makes the station a router.
    pub fn set_routes(&mut self, routes: Routes) {
        self.routes = Some(Box::new(routes));
        // Its packets do not pass straight through, even if they cost nothing.
        self.has_no_costs = false;
    }

    /// Returns the forwarding table of a router.
    pub fn routes_mut(&mut self) -> Option<&mut Routes> {
        self.routes.as_deref_mut()
    }

    /// Returns whether the station is a router.
    #[inline]
    pub fn is_router(&self) -> bool {
        self.routes.is_some()
    }

    /// Returns whether a frame that arrived at `port` is for this station, or a router forwards it.
    pub fn accepts(&self, port: Port, frame: &F) -> bool {
        self.filter(frame.destination()) != FilterResult::Ignored || self.is_forwarded(port, frame)
    }

    /// Returns whether a router forwards a frame that arrived at `ingress`.
    fn is_forwarded(&self, ingress: Port, frame: &F) -> bool {
        let mut routes = self.routes.iter();
        routes.any(|routes| routes.egress(frame.destination(), ingress).next().is_some())
    }

    /// Joins `group`. Joins are counted: the group is left after as many leaves.
    pub fn join(&mut self, group: u32) {
        self.filter.join(group);
    }

    /// Changes the receive buffer of a channel to `bytes`, if each channel has one.
    pub fn set_receive_buffer(&mut self, channel: u16, bytes: u64) {
        self.waiting.set_channel_capacity(channel, bytes);
    }

    /// Removes one join.
    pub fn leave(&mut self, group: u32) {
        self.filter.leave(group);
    }

    /// Returns whether [`send`](Self::send) accepts one more packet.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.in_send_path < self.costs.send_queue.max(1)
    }

    /// Returns whether all costs are zero: then packets pass straight through, and
    /// [`send_without_costs`](Self::send_without_costs) and [`receive_without_costs`](Self::receive_without_costs)
    /// replace `send` and `receive` without a poll.
    #[inline]
    pub fn has_no_costs(&self) -> bool {
        self.has_no_costs
    }

    /// Counts a packet that a station without costs sends; the caller transmits it.
    #[inline]
    pub fn send_without_costs(&mut self) {
        self.counters.sent += 1;
        self.counters.transmitted += 1;
    }

    /// Counts a frame that a station without costs receives; returns whether the caller is to deliver it.
    #[inline]
    pub fn receive_without_costs(&mut self, frame: &F) -> bool {
        match self.filter(frame.destination()) {
            FilterResult::Joined => {}
            FilterResult::FalsePositive => {
                self.counters.received += 1;
                self.counters.unwanted += 1;
                return false;
            }
            FilterResult::Ignored => {
                self.counters.foreign += 1;
                return false;
            }
        }
        self.counters.received += 1;
        if frame.is_damaged() {
            self.counters.dropped_damaged += 1;
            return false;
        }
        self.counters.delivered += 1;
        true
    }

    /// Returns what the card does with a frame to this destination.
    #[inline(always)]
    fn filter(&self, to: Destination) -> FilterResult {
        match to {
            Destination::Group(group) => self.filter.filter(group),
            Destination::Station(station) if station != self.address => FilterResult::Ignored,
            Destination::Station(_) | Destination::All => FilterResult::Joined,
        }
    }

    /// Accepts a packet from a transport for `port`.
    ///
    /// # Errors
    /// The packet, if the send queue is full. [`Output::Room`] follows when there is space.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) -> Result<(), F> {
        if !self.has_no_costs {
            self.advance(now);
        }
        if !self.has_room() {
            return Err(frame);
        }
        self.in_send_path += 1;
        self.counters.sent += 1;
        if self.has_no_costs {
            self.output.push_back(Output::Transmit { port, frame });
        } else {
            let job = Job { frame, port, is_outgoing: true, is_forwarded: false, is_unwanted: false };
            self.waiting.add_to_send(job);
            self.assign_work(now);
        }
        Ok(())
    }

    /// Accepts a frame from the medium at `port`.
    #[inline]
    pub fn receive(&mut self, now: Instant, port: Port, frame: F) {
        let is_forwarded = self.is_forwarded(port, &frame);
        let is_unwanted = match self.filter(frame.destination()) {
            FilterResult::Joined => false,
            _ if is_forwarded => false,
            FilterResult::FalsePositive => true,
            FilterResult::Ignored => return self.lose(frame, HostLossCause::Foreign),
        };
        self.counters.received += 1;
        let job = Job { frame, port, is_outgoing: false, is_forwarded, is_unwanted };
        if self.has_no_costs {
            self.forward(now, &job);
            return self.finish_arrival(job);
        }
        self.advance(now);
        if self.on_card >= CARD_CAPACITY {
            return self.lose(job.frame, HostLossCause::BufferFull);
        }
        self.on_card += 1;
        self.reassemble(now, job);
        self.assign_work(now);
    }

    /// Wakes the station; its deadline may have passed.
    #[inline]
    pub fn wake(&mut self, now: Instant) {
        if now >= self.next_event.0 {
            self.advance(now);
        }
    }

    /// Returns the next output, until [`Output::Idle`].
    #[inline]
    pub fn poll(&mut self, _now: Instant) -> Output<F> {
        match self.output.pop_front() {
            Some(Output::Transmit { port, frame }) => {
                self.counters.transmitted += 1;
                if !self.has_room() {
                    self.output.push_back(Output::Room);
                }
                self.in_send_path -= 1;
                Output::Transmit { port, frame }
            }
            Some(output) => output,
            None => {
                Output::Idle { deadline: (self.next_event.0 < Instant::MAX).then_some(self.next_event.0) }
            }
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &HostCounters {
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
        while self.next_event.0 <= now {
            let (at, server) = self.next_event;
            self.step(at, server);
            self.assign_work(at);
        }
        self.now = now;
    }

    /// Assigns work to idle processors and finds the next event.
    fn assign_work(&mut self, now: Instant) {
        self.now = now;
        while let Some(processor) = self.processors.idle() {
            let Some(job) = self.waiting.take() else { break };
            let cost = if job.is_unwanted {
                self.costs.cpu_packet
            } else {
                self.costs.processing_time(job.frame.length())
            };
            self.processors.begin(processor, now, cost, job);
        }
        self.next_event = self.find_next_event();
    }

    /// Returns the time of the next event and its server.
    fn find_next_event(&self) -> (Instant, NextServer) {
        let mut next = (self.processors.next(), NextServer::Processor);
        let mut consider = |at: Instant, server: NextServer, wins_tie: bool| {
            if at < next.0 || (wins_tie && at == next.0 && at < Instant::MAX) {
                next = (at, server);
            }
        };
        consider(self.bus.next(), NextServer::Bus, true);
        for (number, card) in self.cards.iter().enumerate().rev() {
            consider(card.reassembly.next(), NextServer::Reassembly(number), true);
            consider(card.segmentation.next(), NextServer::Segmentation(number), false);
        }
        next
    }

    /// Advances a packet by one step.
    fn step(&mut self, now: Instant, server: NextServer) {
        match server {
            NextServer::Reassembly(number) => {
                let job = self.cards[number].reassembly.take();
                job.into_iter().for_each(|job| self.cross_bus(now, job));
            }
            NextServer::Bus => {
                let job = self.bus.take();
                job.into_iter().for_each(|job| self.leave_bus(now, job));
            }
            NextServer::Processor => match self.processors.finish(now) {
                Some(Finished::Interrupt(job)) => self.finish_interrupt(job),
                Some(Finished::Work(job)) if job.is_outgoing => self.cross_bus(now, job),
                Some(Finished::Work(job)) => {
                    self.forward(now, &job);
                    self.finish_arrival(job);
                }
                None => {}
            },
            NextServer::Segmentation(number) => {
                let job = self.cards[number].segmentation.take();
                self.output.extend(job.map(Job::transmit));
            }
        }
    }

    /// Returns the card of a packet and the time of its segmentation or reassembly; `None` if it takes no time.
    fn sar(&mut self, job: &Job<F>) -> Option<(&mut Card<F>, Span)> {
        let cell_cost = self.costs.sar_cell;
        let card = self.cards.get_mut(usize::from(job.port.0))?;
        let encapsulation = card.encapsulation.filter(|_| !cell_cost.is_zero())?;
        Some((card, cell_cost * u64::from(cells_of(job.frame.length(), encapsulation))))
    }

    fn reassemble(&mut self, now: Instant, job: Job<F>) {
        match self.sar(&job) {
            Some((card, cost)) => card.reassembly.add(now, cost, job),
            None => self.cross_bus(now, job),
        }
    }

    fn segment(&mut self, now: Instant, job: Job<F>) {
        match self.sar(&job) {
            Some((card, cost)) => card.segmentation.add(now, cost, job),
            None => self.output.push_back(job.transmit()),
        }
    }

    fn cross_bus(&mut self, now: Instant, job: Job<F>) {
        if self.costs.dma_byte.is_zero() {
            return self.leave_bus(now, job);
        }
        self.bus.add(now, self.costs.dma_byte * u64::from(job.frame.length()), job);
    }

    fn leave_bus(&mut self, now: Instant, job: Job<F>) {
        if job.is_outgoing {
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
        let (channel, length) = (job.frame.channel(), job.frame.length());
        if let Err(job) = self.waiting.add_received(channel, length, job) {
            return self.lose(job.frame, HostLossCause::BufferFull);
        }
        let (frames, bytes) = self.waiting.received();
        let counters = &mut self.counters;
        counters.waiting_max = counters.waiting_max.max(frames);
        counters.waiting_bytes_max = counters.waiting_bytes_max.max(bytes);
    }

    /// Sends the copies of a packet that a router forwards to the bus.
    #[inline]
    fn forward(&mut self, now: Instant, job: &Job<F>) {
        if !job.is_forwarded || job.frame.is_damaged() {
            return;
        }
        let routes = self.routes.take();
        let ports = routes.iter().flat_map(|routes| routes.egress(job.frame.destination(), job.port));
        for port in ports {
            self.counters.forwarded += 1;
            self.cross_bus(now, Job { frame: job.frame.clone(), port, is_outgoing: true, ..*job });
        }
        self.routes = routes;
    }

    /// Completes the reception of a packet.
    #[inline]
    fn finish_arrival(&mut self, job: Job<F>) {
        if job.is_forwarded
            && !job.frame.is_damaged()
            && self.filter(job.frame.destination()) != FilterResult::Joined
        {
            // Only the copies go on.
        } else if job.is_unwanted {
            self.lose(job.frame, HostLossCause::Unwanted);
        } else if job.frame.is_damaged() {
            self.lose(job.frame, HostLossCause::Damaged);
        } else {
            self.counters.delivered += 1;
            self.output.push_back(Output::Deliver { port: job.port, frame: job.frame });
        }
    }

    fn lose(&mut self, frame: F, cause: HostLossCause) {
        let counter = match cause {
            HostLossCause::BufferFull => &mut self.counters.dropped_full,
            HostLossCause::Damaged => &mut self.counters.dropped_damaged,
            HostLossCause::Unwanted => &mut self.counters.unwanted,
            HostLossCause::Foreign => &mut self.counters.foreign,
        };
        *counter += 1;
        self.output.push_back(Output::Lost { frame, cause });
    }
}
