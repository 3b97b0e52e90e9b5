//! Flows over UDP datagrams.

use std::collections::VecDeque;

use trunkline_endpoint::Destination;
use trunkline_experiment::plan::Protocol;
use trunkline_run::credit::{CreditGrant, CreditWindow};
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::timeouts::{LINGER, RESPONSE_TIMEOUT};
use trunkline_traffic::source::Bounds;
use trunkline_units::{Instant, Span};

use super::fragment::{Fragmenter, Reassembler};
use super::{FlowConfig, FlowError, FlowOutput, IP_HEADER, Messages, Next, UDP_IP_HEADERS};
use crate::frame::{Content, Datagram, Packet, PacketPool};

/// The ends of a connection over datagrams.
#[derive(Debug)]
pub struct DatagramFlow {
    pub messages: Messages,
    fragmenter: Fragmenter,
    outgoing: Option<OutgoingDatagram>,
    response_reassembler: Reassembler,
    /// The sender neither waits for responses nor reads from a disk.
    is_open_loop: bool,
    receivers: Vec<Receiver>,
    linger: Span,
    /// The credits of the receiver, and the buffers that it grants.
    credits: Option<Box<(CreditWindow, CreditGrant)>>,
    /// Packets that were sent, received and lost; the difference is in flight.
    packets_sent: u64,
    packets_received: u64,
    packets_lost: u64,
    /// There is one receiver. The copies sent to a group are not counted.
    is_unicast: bool,
    /// How often the silence was extended because packets were in flight, and when it began.
    silence_extensions: u32,
    silent_since: Instant,
    /// When the source stops, even if it waits for room.
    send_deadline: Option<Instant>,
    source_ended: Option<Instant>,
    flow: u32,
    channel: u16,
    reverse_channel: u16,
    traffic_class: u8,
    to: Destination,
    reverse_to: Destination,
}

/// A message whose fragments are being sent.
#[derive(Clone, Copy, Debug)]
struct OutgoingDatagram {
    message: Datagram,
    next: u16,
}

/// Returns the datagram of a message before fragmentation.
#[inline(always)]
fn unfragmented(fragmenter: &Fragmenter, header: &Header) -> Datagram {
    Datagram {
        sequence: header.sequence,
        sent_at: header.sent_at,
        length: header.length,
        response_length: header.response_length,
        fragment: 0,
        fragments: fragmenter.count(header.length + UDP_IP_HEADERS - IP_HEADER),
        kind: header.kind,
    }
}

impl OutgoingDatagram {
    /// Returns the next fragment, its packet length, and whether it is the last.
    #[inline]
    fn packet(&mut self, fragmenter: &Fragmenter) -> (Datagram, u32, bool) {
        let d = Datagram { fragment: self.next, ..self.message };
        let length = fragmenter.length(d.length + UDP_IP_HEADERS - IP_HEADER, d.fragment, d.fragments);
        self.next += 1;
        (d, length, self.next == d.fragments)
    }
}

#[derive(Debug, Default)]
struct Receiver {
    reassembler: Reassembler,
    /// Messages that arrived while the responder was stalled.
    unread: VecDeque<Header>,
    /// Responses to send; more than one if requests were duplicated or do not wait for each other.
    responses: VecDeque<OutgoingDatagram>,
}

/// The lengths of messages with their header that fit into a datagram.
const BOUNDS: Bounds = Bounds::new(HEADER as u32, 65_507);
/// How long a late source may send after its time limit; the same as in [`Source`].
const GRACE: Span = Span::from_ms(10);
/// Maximum number of extensions of the silence: lost packets must not prevent the end of a run.
const MAX_SILENCE_EXTENSIONS: u32 = 100_000;
/// Maximum number of responses that wait to be sent.
const MAX_PENDING_RESPONSES: usize = 4_096;

impl DatagramFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let requester = config.requester(Some(RESPONSE_TIMEOUT + config.longest_delay * 2));
        let mut messages = Messages::new(config, start, BOUNDS, requester)?;
        messages.open(start);
        let credits = match config.plan.protocol {
            Protocol::Udp { credit_window: Some(window), .. } => {
                let sender = CreditWindow::new(window, config.longest_delay * 2);
                Some(Box::new((sender, CreditGrant::new(window))))
            }
            _ => None,
        };
        Ok(DatagramFlow {
            fragmenter: Fragmenter::new(config.mtu),
            outgoing: None,
            response_reassembler: Reassembler::default(),
            is_open_loop: !messages.sender.is_requester() && messages.disk.is_none() && credits.is_none(),
            credits,
            receivers: config.plan.to.iter().map(|_| Receiver::default()).collect(),
            linger: LINGER + config.longest_delay * 2,
            packets_sent: 0,
            packets_received: 0,
            packets_lost: 0,
            is_unicast: config.plan.to.len() == 1,
            silence_extensions: 0,
            silent_since: start,
            send_deadline: messages.limit.time.map(|time| start + time + GRACE),
            source_ended: None,
            flow: config.flow,
            channel: config.channel(0),
            reverse_channel: config.channel(1),
            traffic_class: config.traffic_class(),
            to: config.to,
            reverse_to: config.reverse_to,
            messages,
        })
    }

    /// Handles a packet. Returns whether the end must be polled.
    #[inline(always)]
    pub fn receive(&mut self, now: Instant, side: usize, packet: &Packet) -> bool {
        let Content::Datagram(d) = &packet.content else { return false };
        if d.kind == MessageKind::Progress {
            return self.receive_credit(now, side, d.sequence);
        }
        match side.checked_sub(1) {
            None => {
                self.record_response(now, d);
                true
            }
            Some(receiver) => {
                let Some(r) = self.receivers.get_mut(receiver) else { return false };
                self.packets_received += 1;
                if !r.reassembler.accept(d.sequence, d.fragment, d.fragments) {
                    return false;
                }
                let header = d.header();
                if self.messages.responder.stalled_until(now).is_some()
                    && r.unread.len() < MAX_PENDING_RESPONSES
                {
                    r.unread.push_back(header);
                    return true;
                }
                self.read(now, receiver, &header);
                let is_report_due = self.credits.as_mut().is_some_and(|credits| {
                    credits.1.receive(header.sequence);
                    credits.1.is_report_due()
                });
                if self.source_ended.is_some() {
                    self.update_finished(now);
                }
                d.response_length > 0 || self.messages.finished || is_report_due
            }
        }
    }

    /// Handles a report of the receiver, or a check of the sender.
    #[cold]
    fn receive_credit(&mut self, now: Instant, side: usize, number: u64) -> bool {
        self.packets_received += u64::from(side > 0);
        match (&mut self.credits, side) {
            (Some(credits), 0) => credits.0.receive(now, number),
            (Some(credits), _) => credits.1.receive_check(number),
            (None, _) => return false,
        }
        true
    }

    /// Returns the packet of a report of the receiver, or of a check of the sender, if one is due and has room.
    #[cold]
    fn take_credit_packet(&mut self, now: Instant, side: usize) -> Option<Packet> {
        let credits = self.credits.as_mut()?;
        let sequence = if side == 0 { credits.0.take_check(now) } else { credits.1.take_report() }?;
        self.packets_sent += u64::from(side == 0);
        let header = Header { kind: MessageKind::Progress, ..Header::pattern(sequence, now, HEADER as u32) };
        let content = Content::Datagram(unfragmented(&self.fragmenter, &header));
        let (channel, to) =
            if side == 0 { (self.channel, self.to) } else { (self.reverse_channel, self.reverse_to) };
        let packet = Packet::new(content, HEADER as u32 + UDP_IP_HEADERS, self.flow, channel, to, side > 0);
        Some(packet.with_traffic_class(self.traffic_class))
    }

    /// Records a message at a receiver, and responds to a request.
    #[inline(always)]
    fn read(&mut self, now: Instant, receiver: usize, header: &Header) {
        let meter = &mut self.messages.receiver_meters[receiver];
        meter.record(header, now);
        let responses = &mut self.receivers[receiver].responses;
        if header.response_length > 0 && responses.len() < MAX_PENDING_RESPONSES {
            let response =
                self.messages.responder.respond(header, receiver as u32, meter.arrivals().bytes, now);
            let message = unfragmented(&self.fragmenter, &response);
            responses.push_back(OutgoingDatagram { message, next: 0 });
        }
    }

    fn record_response(&mut self, now: Instant, d: &Datagram) {
        if self.messages.sender.is_requester()
            && self.response_reassembler.accept(d.sequence, d.fragment, d.fragments)
        {
            self.messages.sender.record_response(&d.header(), now);
        }
    }

    /// Records the loss of a packet in the network or in a host.
    pub fn record_loss(&mut self, packet: &Packet) {
        self.packets_lost += u64::from(!packet.is_reverse);
    }

    /// Ends the run if all messages have arrived, or after a silence with nothing in flight.
    fn update_finished(&mut self, now: Instant) {
        let Some(done) = self.source_ended else { return };
        let meters = &self.messages.receiver_meters;
        if meters.iter().all(|meter| meter.arrivals().is_complete(self.messages.sender.sent())) {
            self.messages.finished = true;
            return;
        }
        let last = meters.iter().filter_map(|meter| meter.arrivals().last).max();
        self.silent_since = self.silent_since.max(done).max(last.unwrap_or(done));
        if now.since(self.silent_since) >= self.linger {
            let is_in_flight =
                self.is_unicast && self.packets_sent > self.packets_received + self.packets_lost;
            if is_in_flight && self.silence_extensions < MAX_SILENCE_EXTENSIONS {
                (self.silent_since, self.silence_extensions) = (now, self.silence_extensions + 1);
            } else {
                self.messages.finished = true;
            }
        }
    }

    #[inline(always)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, pool: &mut PacketPool) -> FlowOutput {
        if self.credits.is_some()
            && room
            && let Some(packet) = self.take_credit_packet(now, side)
        {
            return FlowOutput::Send { frame: pool.new_frame(packet), next_send: None };
        }
        match side.checked_sub(1) {
            None if self.outgoing.is_none() => self.send(now, room, pool),
            None => self.send_fragment(now, room, pool),
            Some(receiver) => self.send_response(now, receiver, room, pool),
        }
    }

    /// Sends the first packet of the next message.
    #[inline(always)]
    fn send(&mut self, now: Instant, room: bool, pool: &mut PacketPool) -> FlowOutput {
        let datagram = match self.next_datagram(now, room) {
            Ok(datagram) => datagram,
            Err(idle) => return idle,
        };
        if datagram.fragments > 1 {
            self.outgoing = Some(OutgoingDatagram { message: datagram, next: 0 });
            return self.send_fragment(now, room, pool);
        }
        let (content, length) = (Content::Datagram(datagram), datagram.length + UDP_IP_HEADERS);
        let packet = Packet::new(content, length, self.flow, self.channel, self.to, false)
            .with_traffic_class(self.traffic_class);
        FlowOutput::Send { frame: pool.new_frame(packet), next_send: self.next_send(now) }
    }

    #[inline(never)]
    fn send_fragment(&mut self, now: Instant, room: bool, pool: &mut PacketPool) -> FlowOutput {
        let Some(outgoing) = self.outgoing.as_mut().filter(|_| room) else {
            return FlowOutput::Idle { deadline: None, blocked: true };
        };
        let (datagram, length, last) = outgoing.packet(&self.fragmenter);
        if last {
            self.outgoing = None;
        }
        let next_send = if last { self.next_send(now) } else { None };
        let content = Content::Datagram(datagram);
        let packet = Packet::new(content, length, self.flow, self.channel, self.to, false)
            .with_traffic_class(self.traffic_class);
        FlowOutput::Send { frame: pool.new_frame(packet), next_send }
    }

    /// Returns the time of the next message, if it depends on the source only.
    #[inline(always)]
    fn next_send(&self, now: Instant) -> Option<Instant> {
        if self.is_open_loop { self.messages.sender.due_after(now) } else { None }
    }

    /// Draws the next message, if it is due and its first packet has room. Otherwise returns the output of the poll.
    #[inline(always)]
    fn next_datagram(&mut self, now: Instant, room: bool) -> Result<Datagram, FlowOutput> {
        if room
            && self.is_open_loop
            && let Some(header) = self.messages.sender.send_on_time(now)
        {
            return Ok(self.make_datagram(&header));
        }
        self.next_datagram_slow(now, room)
    }

    /// Like [`next_datagram`](Self::next_datagram), for all sources, with requests and disks.
    #[inline(never)]
    fn next_datagram_slow(&mut self, now: Instant, room: bool) -> Result<Datagram, FlowOutput> {
        let wait = |until| Err(FlowOutput::Idle { deadline: Some(until), blocked: false });
        if self.source_ended.is_some() {
            return Err(self.linger(now));
        }
        if self.messages.sender.awaits_response(now) {
            return Err(FlowOutput::Idle {
                deadline: self.messages.sender.response_deadline(),
                blocked: false,
            });
        }
        if now < self.messages.read_until {
            return wait(self.messages.read_until);
        }
        if let Some(credits) = self.credits.as_ref().filter(|credits| credits.0.available() == 0) {
            // Without credit it waits for a report, as it would for room. A source that has ended is noticed then.
            let check = credits.0.deadline().filter(|_| room);
            let end = self.send_deadline.map(|until| until + Span::from_ps(1));
            if end.is_none_or(|end| now < end) {
                let deadline = check.into_iter().chain(end).min();
                return Err(FlowOutput::Idle { deadline, blocked: !room });
            }
        }
        if !room {
            // The time of the next message is known without drawing it.
            if let Some(until) = self.messages.sender.due_after(now) {
                return wait(until);
            }
            // A source at full speed always has a message: draw it when there is room.
            if self.send_deadline.is_none_or(|until| now <= until) {
                let deadline = self.send_deadline.map(|until| until + Span::from_ps(1));
                return Err(FlowOutput::Idle { deadline, blocked: true });
            }
        }
        match self.messages.next(now) {
            Next::Wait(deadline) => Err(FlowOutput::Idle { deadline, blocked: false }),
            Next::Done => {
                self.source_ended = Some(now);
                Err(self.linger(now))
            }
            Next::Send(header) => Ok(self.make_datagram(&header)),
        }
    }

    /// Creates the datagram of a message.
    #[inline(always)]
    fn make_datagram(&mut self, header: &Header) -> Datagram {
        if let Some(credits) = &mut self.credits {
            credits.0.record_sent(header.sent_at);
        }
        let datagram = unfragmented(&self.fragmenter, header);
        self.packets_sent += u64::from(datagram.fragments);
        datagram
    }

    /// Waits for outstanding packets after the end of the source.
    #[cold]
    fn linger(&mut self, now: Instant) -> FlowOutput {
        self.update_finished(now);
        let deadline = (!self.messages.finished).then_some(self.silent_since + self.linger);
        FlowOutput::Idle { deadline, blocked: false }
    }

    #[inline(never)]
    fn send_response(
        &mut self,
        now: Instant,
        receiver: usize,
        room: bool,
        pool: &mut PacketPool,
    ) -> FlowOutput {
        if !self.receivers[receiver].unread.is_empty() {
            if let Some(until) = self.messages.responder.stalled_until(now) {
                return FlowOutput::Idle { deadline: Some(until), blocked: false };
            }
            while let Some(header) = self.receivers[receiver].unread.pop_front() {
                self.read(now, receiver, &header);
            }
        }
        let responses = &mut self.receivers[receiver].responses;
        let Some(response) = responses.front_mut() else {
            let has_report = self.credits.as_ref().is_some_and(|credits| credits.1.is_report_due());
            return FlowOutput::Idle { deadline: None, blocked: has_report && !room };
        };
        if !room {
            return FlowOutput::Idle { deadline: None, blocked: true };
        }
        let (datagram, length, last) = response.packet(&self.fragmenter);
        if last {
            responses.pop_front();
        }
        let content = Content::Datagram(datagram);
        let packet = Packet::new(content, length, self.flow, self.reverse_channel, self.reverse_to, true)
            .with_traffic_class(self.traffic_class);
        FlowOutput::Send { frame: pool.new_frame(packet), next_send: None }
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let is_file = self.messages.is_file();
        let (mut sender, mut receivers) = self.messages.into_reports();
        if let Some(credits) = &self.credits {
            sender.counters.insert("credit_checks".into(), credits.0.checks() as f64);
            receivers[0].counters.insert("credit_reports".into(), credits.1.reports() as f64);
        }
        for (report, receiver) in receivers.iter_mut().zip(&self.receivers) {
            if is_file {
                report.check_file(sender.messages);
            }
            if receiver.reassembler.abandoned > 0 {
                report.counters.insert("reassembly_given_up".into(), receiver.reassembler.abandoned as f64);
            }
        }
        (sender, receivers)
    }
}
