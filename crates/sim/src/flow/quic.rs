//! Flows over QUIC. The protocol is the `quic` crate, with the same bytes as on sockets.

use std::collections::VecDeque;

use trunkline_endpoint::{
    Destination, Endpoint as _, Idle, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable,
};
use trunkline_experiment::plan::MAX_QUIC_DATAGRAM;
use trunkline_quic::options::MIN_MTU;
use trunkline_quic::{Command, Config, Event, Identity, Node, Randomness, Refusal, Role};
use trunkline_record::Histogram;
use trunkline_run::deframe::DeframeEvent;
use trunkline_run::message::{Header, Payload};
use trunkline_run::quic;
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::samples::Samples;
use trunkline_run::timeouts::RESPONSE_TIMEOUT;
use trunkline_traffic::Pattern;
use trunkline_traffic::source::Bounds;
use trunkline_units::Instant;

use super::{FlowConfig, FlowError, FlowOutput, Messages, Next, STREAM_BOUNDS, UDP_IP_HEADERS};
use crate::frame::{Content, Packet, PacketPool};

/// The addresses of the two ends.
const PEERS: [Peer; 2] = [Peer::new(b"sender"), Peer::new(b"receiver")];
/// The token of all messages: no other traffic reaches the ends.
const TOKEN: u32 = 0;

/// The ends of a connection over QUIC.
#[derive(Debug)]
pub struct QuicFlow {
    pub messages: Messages,
    ends: [QuicEnd; 2],
    samples: Samples,
    rtt: Histogram,
    flow: u32,
    channels: [u16; 2],
    traffic_class: u8,
    /// The longest UDP payload of the path. The sender knows at once that a longer one was lost.
    max_payload: usize,
}

/// One end.
#[derive(Debug)]
struct QuicEnd {
    node: Node,
    messages: quic::Messages,
    to: Destination,
    /// Packets of a batch that wait for room.
    outgoing: VecDeque<Box<[u8]>>,
    /// Whether the application writes no more, and whether all of it has arrived.
    is_finishing: bool,
    is_delivered: bool,
}

impl QuicEnd {
    /// Hands over the message being sent. Returns whether it is complete.
    fn send(&mut self, now: Instant) -> Result<bool, Refusal> {
        let node = &mut self.node;
        self.messages.send(|command| node.handle(now, Input::Command(command)))
    }

    fn finish(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.is_finishing, true) {
            // Refused only if the connection is closed already.
            let _ = self.node.handle(now, Input::Command(Command::Finish));
        }
    }
}

impl QuicFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let protocol = &config.plan.protocol;
        let max_payload = config.mtu.saturating_sub(UDP_IP_HEADERS) as usize;
        if max_payload < usize::from(MIN_MTU) {
            return Err(FlowError::QuicMtu(config.mtu));
        }
        let buffer = |side: usize| match side {
            0 => config.plan.from.buffer,
            _ => config.plan.to.first().and_then(|to| to.buffer),
        };
        let identity = Identity::fixed();
        let server = identity.fingerprint();
        let payload = Payload::new(config.seed, &config.stream_name);
        let is_datagrams = quic::uses_datagrams(protocol);
        let compare_every = if matches!(config.plan.test, Pattern::Full { .. }) { 16 } else { 1 };
        let end = |side: usize, role: Role, to: Destination| {
            let options = quic::options(protocol, buffer(side), buffer(side)).unwrap_or_default();
            let mut random = config.seed.stream(&format!("{} / numbers {side}", config.stream_name));
            let seed = std::array::from_fn(|_| random.bits() as u8);
            let port = Port(0);
            let node = Node::new(Config { port, options, role, randomness: Randomness::Fixed, seed });
            let streams = options.streams;
            let messages = quic::Messages::new(TOKEN, payload.clone(), streams, is_datagrams, compare_every);
            QuicEnd {
                node,
                messages,
                to,
                outgoing: VecDeque::new(),
                is_finishing: false,
                is_delivered: false,
            }
        };
        let mut ends = [
            end(0, Role::Client { server }, config.to),
            end(1, Role::Server { identity }, config.reverse_to),
        ];
        let connected = ends[0].node.handle(config.now, Input::Command(Command::Connect { peer: PEERS[1] }));
        debug_assert!(connected.is_ok(), "the first connection of a node");
        let timeout = is_datagrams.then(|| RESPONSE_TIMEOUT + config.longest_delay * 2);
        let bounds = match is_datagrams {
            true => Bounds::new(STREAM_BOUNDS.smallest, MAX_QUIC_DATAGRAM),
            false => STREAM_BOUNDS,
        };
        Ok(QuicFlow {
            messages: Messages::new(config, start, bounds, config.requester(timeout))?,
            ends,
            samples: Samples::default(),
            rtt: Histogram::default(),
            flow: config.flow,
            channels: [config.channel(0), config.channel(1)],
            traffic_class: config.traffic_class(),
            max_payload,
        })
    }

    #[inline(never)]
    pub fn receive(&mut self, now: Instant, side: usize, packet: &Packet) {
        let Content::Quic(bytes) = &packet.content else { return };
        let input = Input::Frame { port: Port(0), peer: PEERS[1 - side], bytes, segment: None };
        // Only a command can be refused.
        let _ = self.ends[side].node.handle(now, input);
    }

    #[inline(never)]
    pub fn handle_deadline(&mut self, now: Instant, side: usize) {
        let _ = self.ends[side].node.handle(now, Input::Wake);
    }

    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, pool: &mut PacketPool) -> FlowOutput {
        loop {
            let next_run = match side {
                0 => self.send_messages(now),
                _ => self.send_response(now),
            };
            if room && let Some(bytes) = self.ends[side].outgoing.pop_front() {
                return FlowOutput::Send { frame: pool.new_frame(self.packet(side, bytes)), next_send: None };
            }
            let is_writable = room && self.ends[side].outgoing.is_empty();
            let ports = if is_writable { Writable::ALL } else { Writable::NONE };
            let end = &mut self.ends[side];
            match end.node.poll(now, ports, &mut pool.scratch[..MAX_BATCH]) {
                Output::Transmit(t) => {
                    let frames = Segment::frames(t.segment, &pool.scratch[..t.length]);
                    let fitting = frames.filter(|frame| frame.len() <= self.max_payload);
                    end.outgoing.extend(fitting.map(Box::from));
                }
                Output::Event(event) => self.handle_event(now, side, event),
                Output::Idle(Idle { deadline, .. }) => {
                    let deadline = next_run.into_iter().chain(deadline).min();
                    // Poll again for packets when there is room.
                    return FlowOutput::Idle { deadline, blocked: !room };
                }
            }
        }
    }

    fn packet(&self, side: usize, bytes: Box<[u8]>) -> Packet {
        let length = bytes.len() as u32 + UDP_IP_HEADERS;
        let (channel, to) = (self.channels[side], self.ends[side].to);
        Packet::new(Content::Quic(bytes), length, self.flow, channel, to, side == 1)
            .with_traffic_class(self.traffic_class)
    }

    fn handle_event(&mut self, now: Instant, side: usize, event: Event) {
        match event {
            Event::Connected if side == 0 => self.messages.open(now),
            Event::Readable { stream } => self.read_stream(now, side, stream),
            Event::DatagramsReadable => self.read_datagrams(now, side),
            Event::Delivered => self.ends[side].is_delivered = true,
            Event::Closed(reason) => self.messages.fail(reason.to_string()),
            // The application continues in any case.
            Event::Connected | Event::Writable => {}
        }
        self.messages.finished |= self.ends[0].is_delivered && self.ends[1].node.has_received_all();
    }

    fn read_stream(&mut self, now: Instant, side: usize, stream: u32) {
        let QuicEnd { node, messages, .. } = &mut self.ends[side];
        let mut arrived = Vec::new();
        let command = |command: Command<'_>| node.handle(now, Input::Command(command));
        let result = messages.receive(stream, command, |event| match event {
            DeframeEvent::Message { header, intact } => arrived.push(intact.then_some(header)),
            DeframeEvent::Payload(_) => {}
        });
        if let Err(error) = result {
            self.messages.fail(error.to_string());
        }
        arrived.into_iter().for_each(|header| self.record_message(now, side, header));
    }

    fn read_datagrams(&mut self, now: Instant, side: usize) {
        let QuicEnd { node, messages, .. } = &mut self.ends[side];
        let mut arrived = Vec::new();
        let command = |command: Command<'_>| node.handle(now, Input::Command(command));
        let result = messages.receive_datagrams(command, |header| arrived.push(header));
        if let Err(error) = result {
            self.messages.fail(error.to_string());
        }
        arrived.into_iter().for_each(|header| self.record_message(now, side, header));
    }

    fn record_message(&mut self, now: Instant, side: usize, header: Option<Header>) {
        match (side, header) {
            (1, Some(header)) => {
                self.messages.receiver_meters[0].record(&header, now);
                let messages = &mut self.ends[1].messages;
                // A request that is not answered times out: only datagrams can arrive while a response waits.
                if header.response_length > 0 && !messages.is_sending() {
                    messages.begin(&header.response(now, 0));
                }
            }
            (1, None) => self.messages.receiver_meters[0].record_corrupted(),
            (_, Some(header)) => drop(self.messages.sender.record_response(&header, now)),
            _ => {}
        }
    }

    fn send_response(&mut self, now: Instant) -> Option<Instant> {
        if let Err(refusal) = self.ends[1].send(now) {
            self.messages.fail(refusal.to_string());
        }
        None
    }

    /// Draws messages and hands them over while there is room. Returns when to continue.
    fn send_messages(&mut self, now: Instant) -> Option<Instant> {
        if !self.ends[0].node.is_established() {
            return None;
        }
        loop {
            match self.ends[0].send(now) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(refusal) => {
                    self.messages.fail(refusal.to_string());
                    return None;
                }
            }
            if self.ends[0].is_finishing {
                return None;
            }
            if now < self.messages.read_until {
                return Some(self.messages.read_until);
            }
            match self.messages.next(now) {
                Next::Wait(until) => return until,
                Next::Done => {
                    self.ends[0].finish(now);
                    return None;
                }
                Next::Send(header) => self.ends[0].messages.begin(&header),
            }
            if self.samples.is_due(now)
                && let Some(statistics) = self.ends[0].node.statistics()
            {
                self.rtt.record(statistics.rtt);
                self.samples.record(self.messages.start, now, quic::metrics(&statistics));
            }
        }
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let is_requester = self.messages.sender.is_requester();
        let (mut sender, mut receivers) = self.messages.into_reports();
        let [from, to] = self.ends.map(|end| end.node.statistics().unwrap_or_default());
        sender.counters.extend(quic::sender_counters(&from));
        receivers[0].counters.extend(quic::receiver_counters(&to));
        sender.samples.extend_from_slice(self.samples.points());
        if !is_requester {
            sender.rtt = self.rtt.counts();
        }
        (sender, receivers)
    }
}
