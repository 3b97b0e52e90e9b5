//! A link of ATM cells with credits, cell by cell: what waits, what is sent, and what the credits permit.

use std::collections::VecDeque;

use trunkline_endpoint::{LossCause, Medium, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_units::{Instant, Rate, Span, Stream};

use crate::atm::CellFrame;
use crate::atm::aal5::{self, Reassembly};
use crate::atm::cell::CELL;
use crate::atm::config::{Config, End};
use crate::atm::credit_queue::{CreditQueue, Departure};
use crate::atm::credits::{CreditOptions, CreditReceiver, CreditSender};
use crate::atm::fine::FineTime;
use crate::impairments::Impairments;
use crate::media::queue::LinkChange;

/// A link that carries cells, full duplex, whose ends send data cells only as the credits permit ([`credits`]).
///
/// **Sending.** Every channel has a separate queue; those that have a cell and credit are served in turn, a cell at a
/// time. Cells without credit wait. Credit and check cells precede data and take a cell's time on the line.
///
/// **Switch ports.** A cell that arrives by a link with credits has a buffer in the switch
/// ([`CreditLink::send_reserved`]) and is never lost there. Other cells ([`Medium::handle`]) are lost when the queue is full
/// ([`LossCause::QueueFull`]). When a cell has left the switch, [`CreditLink::take_freed`] says so, and the link by which it
/// arrived must get [`CreditLink::release`].
///
/// **Adapters.** A packet that does not fit into the send queue is lost whole; its station asks
/// [`has_room`](Medium::has_room) first. The receiving adapter needs the buffer of a cell only until it has arrived.
///
/// **Rates.** [`CreditLink::set_rate`] limits the cells of a channel at an adapter: explicit rates. Then
/// [`CreditLink::limit_channels`] gives each channel a separate send queue, so that none waits behind a slower one.
///
/// Without [`CreditOptions`] it is a link as [`CellLink`](crate::atm::CellLink) with a separate queue for each channel, for
/// a switch that serves channels in turn or whose other links have credits, and for explicit rates. Duplication and reordering are ignored: credits
/// require that a line keeps its cells in order.
///
/// **Counting.** [`MediumCounters`] count data cells; `busy` includes the others, which [`CreditCounters`] count.
///
/// **Memory.** A frame per data cell queued or in flight; for each channel at most the window in the switch and a round
/// trip on the line. At most one credit and one check cell of each channel wait.
///
/// [`credits`]: crate::atm::credits
#[derive(Clone, Debug)]
pub struct CreditLink<F> {
    ends: [LinkEnd<F>; 2],
    /// Frames lost when they were sent, to be output.
    lost: VecDeque<(Port, F, LossCause)>,
    freed: VecDeque<(Port, u16)>,
    now: Instant,
}

/// Counters of the credits at one end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditCounters {
    /// Credit cells sent.
    pub credit_cells: u64,
    /// Check cells sent.
    pub check_cells: u64,
    /// Credit and check cells lost or damaged on the way from this end.
    pub lost: u64,
    /// Largest number of cells of one channel that arrived at this end and occupied buffers of its node.
    pub buffers_max: u64,
}

/// One end: the sending side of one direction, and the receiving side of the other.
#[derive(Clone, Debug)]
struct LinkEnd<F> {
    options: Option<CreditOptions>,
    queue: CreditQueue<F>,
    channels: Vec<ChannelState>,
    /// Credit and check cells to be sent.
    controls: VecDeque<Control>,
    /// The cell in transmission.
    transmission: Option<(Instant, Option<Departure>)>,
    /// Channels that wait for credit, by the time of their check cells.
    checks: VecDeque<(Instant, u16)>,
    /// Cells in flight to the other end.
    flights: VecDeque<Flight<F>>,
    is_adapter: bool,
    /// Reassembly of the packets that arrive, if it is an adapter.
    reassembly: Reassembly,
    cell: FineTime,
    delay: Span,
    impairments: Impairments,
    /// Changes to come, in order of time.
    changes: VecDeque<LinkChange>,
    /// Whether cells are sent; otherwise they wait.
    is_up: bool,
    stream: Stream,
    /// Length of the frame that `has_room` last checked.
    refused_length: u32,
    /// Length of the frame whose sender waits for room.
    room_request: Option<u32>,
    /// Packets in the send queue of each channel, if that is limited; whether a full one has become shorter.
    channel_limit: Option<usize>,
    channel_room: bool,
    busy: FineTime,
    counters: MediumCounters,
    credit_counters: CreditCounters,
}

#[derive(Clone, Copy, Debug, Default)]
struct ChannelState {
    sender: CreditSender,
    receiver: CreditReceiver,
    /// Whether a credit cell, a check cell waits to be sent.
    credit_queued: bool,
    check_queued: bool,
    /// Whether the channel is in [`LinkEnd::checks`].
    awaits_check: bool,
}

/// A credit or check cell that waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Credit(u16),
    Check(u16),
}

#[derive(Clone, Debug)]
struct Flight<F> {
    at: Instant,
    content: Content<F>,
    is_lost: bool,
}

/// What a cell on the line is.
#[derive(Clone, Debug)]
enum Content<F> {
    Data(F),
    /// Cells of the channel that have left the node that sent this.
    Credit {
        channel: u16,
        freed: u64,
    },
    /// Cells of the channel that the node has sent before this.
    Check {
        channel: u16,
        sent: u64,
    },
}

/// What happened at an end.
enum Step<F> {
    Nothing,
    /// A cell reached the other end.
    Arrival(Content<F>),
    Lost(F),
    /// A data cell has left the node.
    Freed(u16),
    Room,
}

impl<F: CellFrame> CreditLink<F> {
    /// Creates an idle link; `config.mode` is ignored. `streams` supply the impairments of cells sent from port 0 and
    /// port 1; a probability of zero draws nothing.
    pub fn new(config: &Config, options: Option<CreditOptions>, streams: [Stream; 2]) -> Self {
        let [first, second] = streams;
        CreditLink {
            ends: [LinkEnd::new(config, options, 0, first), LinkEnd::new(config, options, 1, second)],
            lost: VecDeque::new(),
            freed: VecDeque::new(),
            now: Instant::ZERO,
        }
    }

    /// Sets the changes of both directions, in order of time. A change applies to cells whose transmission begins at or after its
    /// time, also to credit and check cells. Call it before the first frame.
    pub fn set_changes(&mut self, changes: &[LinkChange]) {
        self.ends.iter_mut().for_each(|end| end.changes = changes.iter().copied().collect());
    }

    /// Returns whether the link has credits: then each data cell that it delivers to a switch must be
    /// [released](Self::release).
    pub fn has_credits(&self) -> bool {
        self.ends[0].options.is_some()
    }

    /// Queues a cell that already has a buffer in the switch at `port`.
    pub fn send_reserved(&mut self, now: Instant, port: Port, cell: F) {
        self.queue(now, port, cell, true);
    }

    /// Frees the buffer of a cell of `channel` that the link delivered at `port`: the cell has left the node there.
    pub fn release(&mut self, now: Instant, port: Port, channel: u16) {
        self.now = now;
        self.ends[usize::from(port.0)].free_cell(now, channel);
    }

    /// Limits the rate of the cells of a channel that leave `port`, headers included; zero stops them.
    pub fn set_rate(&mut self, now: Instant, port: Port, channel: u16, rate: Rate) {
        self.now = now;
        let end = &mut self.ends[usize::from(port.0)];
        end.queue.set_rate(now, channel, rate);
        end.transmit_next(now);
    }

    /// Gives each channel at the adapter of `port` a send queue of this many packets, in addition to the limit of the
    /// adapter. [`MediumOutput::Room`] then reports that the queue of some channel is no longer full.
    pub fn limit_channels(&mut self, port: Port, packets: usize) {
        self.ends[usize::from(port.0)].channel_limit = Some(packets.max(1));
    }

    /// Returns whether the send queue of a channel at `port` has room for a packet.
    pub fn channel_has_room(&self, port: Port, channel: u16) -> bool {
        let end = &self.ends[usize::from(port.0)];
        end.channel_limit.is_none_or(|limit| end.queue.frames(channel) < limit)
    }

    /// Returns the next data cell that has left the switch at a port, as that port and the cell's channel.
    pub fn take_freed(&mut self) -> Option<(Port, u16)> {
        self.freed.pop_front()
    }

    /// Returns the time of the next output or internal event; [`Instant::MAX`] for never.
    pub fn deadline(&self) -> Instant {
        if !self.lost.is_empty() || !self.freed.is_empty() {
            return self.now;
        }
        self.ends[0].next_event().min(self.ends[1].next_event())
    }

    /// Returns the reassembly counters of the adapter at `port`; zero for a switch port.
    pub fn reassembly_counters(&self, port: Port) -> aal5::ReassemblyCounters {
        self.ends[usize::from(port.0)].reassembly.counters
    }

    /// Returns the counters of the credits at `port`.
    pub fn credit_counters(&self, port: Port) -> CreditCounters {
        self.ends[usize::from(port.0)].credit_counters
    }

    fn queue(&mut self, now: Instant, port: Port, frame: F, is_reserved: bool) {
        self.now = now;
        if let Err((frame, cause)) = self.ends[usize::from(port.0)].enqueue(now, frame, is_reserved) {
            self.lost.push_back((port, frame, cause));
        }
    }

    /// Processes the arrival of a cell at an end; returns a frame for its node.
    fn arrive(&mut self, at: Instant, side: usize, content: Content<F>) -> Option<MediumOutput<F>> {
        let port = Port(side as u16);
        match content {
            Content::Credit { channel, freed } => self.ends[side].receive_credit(at, channel, freed),
            Content::Check { channel, sent } => {
                self.ends[side].channel(channel).receiver.receive_check(sent);
                self.ends[side].queue_control(at, Control::Credit(channel));
            }
            Content::Data(frame) => {
                self.ends[side].receive_cell(at, frame.channel());
                if !self.ends[side].is_adapter {
                    return Some(MediumOutput::Transmit { port, frame });
                }
                let (index, count) = frame.as_cell().unwrap_or((0, 1));
                let last = index >= count.saturating_sub(1);
                let cell = aal5::Cell { index, last, serial: frame.serial(), damaged: frame.is_damaged() };
                let valid = self.ends[side].reassembly.add_cell(frame.channel(), &cell)?;
                let frame = frame.into_packet();
                return Some(match valid {
                    true => MediumOutput::Transmit { port, frame },
                    false => {
                        MediumOutput::Lost { port: Port(port.0 ^ 1), frame, cause: LossCause::Incomplete }
                    }
                });
            }
        }
        None
    }
}

impl<F: CellFrame> Medium<F> for CreditLink<F> {
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        self.now = now;
        match input {
            MediumInput::Frame { port, frame } => self.queue(now, port, frame, false),
            MediumInput::RequestRoom { port } => {
                let end = &mut self.ends[usize::from(port.0)];
                end.room_request = Some(end.refused_length);
            }
            MediumInput::Wake => {}
        }
    }

    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        loop {
            if let Some((port, frame, cause)) = self.lost.pop_front() {
                return MediumOutput::Lost { port, frame, cause };
            }
            let [first, second] = [&self.ends[0], &self.ends[1]].map(LinkEnd::next_event);
            let (side, at) = if second < first { (1, second) } else { (0, first) };
            if at > self.now {
                return MediumOutput::Idle { deadline: (at < Instant::MAX).then_some(at) };
            }
            let port = Port(side as u16);
            match self.ends[side].step(at) {
                Step::Nothing => {}
                Step::Room => return MediumOutput::Room { port },
                Step::Freed(channel) => self.freed.push_back((port, channel)),
                Step::Lost(frame) => return MediumOutput::Lost { port, frame, cause: LossCause::LineError },
                Step::Arrival(content) => {
                    if let Some(output) = self.arrive(at, side ^ 1, content) {
                        return output;
                    }
                }
            }
        }
    }

    fn has_room(&mut self, _now: Instant, port: Port, length: u32) -> bool {
        let end = &mut self.ends[usize::from(port.0)];
        end.refused_length = length;
        end.queue.has_room(length)
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        &self.ends[usize::from(port.0)].counters
    }
}

impl<F: CellFrame> LinkEnd<F> {
    fn new(config: &Config, options: Option<CreditOptions>, port: usize, stream: Stream) -> Self {
        LinkEnd {
            options,
            queue: CreditQueue::new(config.payload, config.ends[port]),
            channels: Vec::new(),
            controls: VecDeque::new(),
            transmission: None,
            checks: VecDeque::new(),
            flights: VecDeque::new(),
            is_adapter: matches!(config.ends[port], End::Adapter { .. }),
            reassembly: Reassembly::default(),
            cell: FineTime::for_bits(u64::from(CELL) * 8, config.payload),
            delay: config.delay,
            impairments: in_order(config.impairments[port]),
            changes: VecDeque::new(),
            is_up: true,
            stream,
            refused_length: 0,
            room_request: None,
            channel_limit: None,
            channel_room: false,
            busy: FineTime::ZERO,
            counters: MediumCounters::default(),
            credit_counters: CreditCounters::default(),
        }
    }

    fn channel(&mut self, channel: u16) -> &mut ChannelState {
        let index = usize::from(channel);
        if index >= self.channels.len() {
            self.channels.resize(index + 1, ChannelState::default());
        }
        &mut self.channels[index]
    }

    /// Returns the time of the next [`step`](Self::step).
    fn next_event(&self) -> Instant {
        let transmission = match &self.transmission {
            Some((at, _)) => *at,
            None if !self.is_up => Instant::MAX,
            // Without controls, only pacing delays a channel that has a cell and credit.
            None => self.queue.ready_at(),
        };
        let flight = self.flights.front().map_or(Instant::MAX, |flight| flight.at);
        let check = self.checks.front().map_or(Instant::MAX, |(at, _)| *at);
        let room = match self.room_request {
            _ if self.channel_room => Instant::ZERO,
            Some(length) if self.queue.has_room(length) => Instant::ZERO,
            _ => Instant::MAX,
        };
        let change = self.changes.front().map_or(Instant::MAX, |change| change.at);
        transmission.min(flight).min(check).min(room).min(change)
    }

    /// Applies the changes that are due.
    fn change(&mut self, now: Instant) {
        while let Some(change) = self.changes.front().filter(|change| change.at <= now).copied() {
            self.changes.pop_front();
            if let Some(rate) = change.rate {
                self.cell = FineTime::for_bits(u64::from(CELL) * 8, rate);
                self.queue.set_line_rate(rate);
            }
            self.delay = change.delay.unwrap_or(self.delay);
            self.is_up = change.is_up.unwrap_or(self.is_up);
            change.apply_to(&mut self.impairments);
            self.impairments = in_order(self.impairments);
        }
    }

    /// Processes the earliest event, which is due at `at`.
    fn step(&mut self, at: Instant) -> Step<F> {
        if std::mem::take(&mut self.channel_room) {
            return Step::Room;
        }
        if let Some(length) = self.room_request
            && self.queue.has_room(length)
        {
            self.room_request = None;
            return Step::Room;
        }
        if self.flights.front().is_some_and(|flight| flight.at <= at)
            && let Some(flight) = self.flights.pop_front()
        {
            return match flight.content {
                Content::Data(frame) if flight.is_lost => Step::Lost(frame),
                _ if flight.is_lost => Step::Nothing,
                content => Step::Arrival(content),
            };
        }
        if let Some((_, departure)) = self.transmission.take_if(|(end, _)| *end <= at) {
            let freed = departure.and_then(|departure| {
                self.queue.depart(&departure);
                (!self.is_adapter).then_some(departure.channel)
            });
            self.transmit_next(at);
            return freed.map_or(Step::Nothing, Step::Freed);
        }
        if self.checks.front().is_some_and(|(due, _)| *due <= at)
            && let Some((_, channel)) = self.checks.pop_front()
        {
            self.channel(channel).awaits_check = false;
            if self.queue.has_cells(channel) && !self.has_credit(channel) {
                self.queue_control(at, Control::Check(channel));
                self.await_check(at, channel);
            }
            return Step::Nothing;
        }
        self.transmit_next(at);
        Step::Nothing
    }

    fn has_credit(&mut self, channel: u16) -> bool {
        let Some(options) = self.options else { return true };
        self.channel(channel).sender.has_credit(&options)
    }

    /// Makes a channel ready to send if it has a cell and credit; without credit it waits for its check cell.
    fn update_ready(&mut self, now: Instant, channel: u16) {
        if !self.queue.has_cells(channel) {
            return;
        }
        match self.has_credit(channel) {
            true => self.queue.set_ready(now, channel),
            false => self.await_check(now, channel),
        }
    }

    fn await_check(&mut self, now: Instant, channel: u16) {
        let Some(options) = self.options else { return };
        if !std::mem::replace(&mut self.channel(channel).awaits_check, true) {
            self.checks.push_back((now + options.check_after, channel));
        }
    }

    fn enqueue(&mut self, now: Instant, frame: F, is_reserved: bool) -> Result<(), (F, LossCause)> {
        let channel = frame.channel();
        if let Err((frame, cause, cells)) = self.queue.add(frame, is_reserved) {
            match cause {
                LossCause::QueueFull => self.counters.queue_drops += cells,
                _ => self.counters.other_losses += cells,
            }
            return Err((frame, cause));
        }
        self.counters.queue_max = self.counters.queue_max.max(self.queue.cells() * u64::from(CELL));
        self.update_ready(now, channel);
        self.transmit_next(now);
        Ok(())
    }

    /// Starts the next transmission if the line is idle: of a credit or check cell, or of the next channel in turn.
    fn transmit_next(&mut self, now: Instant) {
        self.change(now);
        if self.transmission.is_some() || !self.is_up {
            return;
        }
        if let Some(control) = self.controls.pop_front() {
            let end = self.queue.occupy_line(now);
            let content = match control {
                Control::Credit(channel) => {
                    self.credit_counters.credit_cells += 1;
                    let state = self.channel(channel);
                    state.credit_queued = false;
                    Content::Credit { channel, freed: state.receiver.credit() }
                }
                Control::Check(channel) => {
                    self.credit_counters.check_cells += 1;
                    let state = self.channel(channel);
                    state.check_queued = false;
                    Content::Check { channel, sent: state.sender.check() }
                }
            };
            self.transmission = Some((end, None));
            return self.launch(end, content);
        }
        let Some((end, cell, departure)) = self.queue.next_cell(now) else { return };
        let channel = departure.channel;
        if let Some(limit) = self.channel_limit
            && departure.is_last
            && self.queue.frames(channel) + 1 == limit
        {
            self.channel_room = true;
        }
        self.counters.frames += 1;
        self.counters.bytes += u64::from(CELL);
        self.transmission = Some((end, Some(departure)));
        self.launch(end, Content::Data(cell));
        if let Some(options) = self.options
            && self.channel(channel).sender.count_cell(&options)
        {
            self.queue_control(now, Control::Check(channel));
        }
        self.update_ready(now, channel);
    }

    /// Puts a cell on the line whose transmission ends at `end`.
    fn launch(&mut self, end: Instant, mut content: Content<F>) {
        self.busy = self.busy.plus(self.cell);
        self.counters.busy = self.busy.floor();
        let impairments = Some(self.impairments).filter(Impairments::any);
        let outcome = impairments.map(|impairments| impairments.draw(&mut self.stream));
        let (mut is_lost, is_damaged) = outcome.map_or((false, false), |o| (o.lost, o.damaged));
        match &mut content {
            Content::Data(frame) => {
                self.counters.other_losses += u64::from(is_lost);
                if is_damaged && !is_lost {
                    self.counters.damaged += 1;
                    frame.damage();
                }
            }
            _ => {
                let loss = self.options.map_or(0.0, |options| options.loss);
                is_lost |= is_damaged || loss > 0.0 && self.stream.chance(loss);
                self.credit_counters.lost += u64::from(is_lost);
            }
        }
        // A cell never overtakes an earlier one, even if the delay fell.
        let earliest = self.flights.back().map_or(Instant::ZERO, |last| last.at);
        self.flights.push_back(Flight { at: earliest.max(end + self.delay), content, is_lost });
    }

    fn queue_control(&mut self, now: Instant, control: Control) {
        let is_queued = match control {
            Control::Credit(channel) => &mut self.channel(channel).credit_queued,
            Control::Check(channel) => &mut self.channel(channel).check_queued,
        };
        if !std::mem::replace(is_queued, true) {
            self.controls.push_back(control);
            self.transmit_next(now);
        }
    }

    fn receive_credit(&mut self, now: Instant, channel: u16, freed: u64) {
        self.channel(channel).sender.receive_credit(freed);
        self.update_ready(now, channel);
        self.transmit_next(now);
    }

    /// Counts a data cell that arrives here. An adapter needs its buffer no longer.
    fn receive_cell(&mut self, now: Instant, channel: u16) {
        if self.options.is_none() {
            return;
        }
        let buffers = self.channel(channel).receiver.receive_cell();
        self.credit_counters.buffers_max = self.credit_counters.buffers_max.max(buffers);
        if self.is_adapter {
            self.free_cell(now, channel);
        }
    }

    fn free_cell(&mut self, now: Instant, channel: u16) {
        let Some(options) = self.options else { return };
        if self.channel(channel).receiver.free_cell(&options) {
            self.queue_control(now, Control::Credit(channel));
        }
    }
}

/// Returns the impairments that keep cells in order.
fn in_order(impairments: Impairments) -> Impairments {
    let Impairments { loss, corrupt, .. } = impairments;
    Impairments { loss, corrupt, ..Impairments::default() }
}
