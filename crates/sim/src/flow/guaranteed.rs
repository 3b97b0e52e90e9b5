//! Flows over the guaranteed transport. The protocol is the `arq` crate, with the same bytes as on sockets.

use std::collections::VecDeque;

use trunkline_arq::{
    Buffer, CloseReason, Command, Config, ConnectionId, Event, EventKind, Node, ReceiveStatus,
};
use trunkline_endpoint::{
    Destination, Endpoint as _, Idle, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable,
};
use trunkline_experiment::plan::Protocol;
use trunkline_run::guaranteed;
use trunkline_run::message::{HEADER, Header};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_units::Instant;

use super::{FlowConfig, FlowError, FlowOutput, Messages, Next, STREAM_BOUNDS, UDP_IP_HEADERS};
use crate::frame::{Content, Packet, PacketPool};
use crate::stages::{self, FrameTimes, StageTimes};

/// The channel of all messages.
const CHANNEL: u16 = 0;
/// The addresses of the two ends.
const PEERS: [Peer; 2] = [Peer::new(b"sender"), Peer::new(b"receiver")];
/// The token of all messages: the simulator needs none, because no other traffic reaches the ends.
const TOKEN: u32 = 0;

/// The ends of a connection over the guaranteed transport.
#[derive(Debug)]
pub struct GuaranteedFlow {
    pub messages: Messages,
    protocol: Protocol,
    ends: [GuaranteedEnd; 2],
    stage_times: StageTimes,
    /// Times of the last frame that arrived at the receiver.
    last_frame_times: FrameTimes,
    flow: u32,
    channels: [u16; 2],
    traffic_class: u8,
}

/// One end.
#[derive(Debug)]
struct GuaranteedEnd {
    node: Node,
    id: Option<ConnectionId>,
    to: Destination,
    /// Frames of a batch that wait for room, with their creation times.
    outgoing_frames: VecDeque<(Instant, Box<[u8]>)>,
    /// A message that the send buffer had no room for.
    pending_message: Option<Buffer>,
    readable: bool,
    closing: bool,
    close_reason: Option<CloseReason>,
    /// The message being received.
    message: Buffer,
}

impl GuaranteedEnd {
    /// Hands the pending message to the transport. Returns whether none is pending any more.
    fn send_pending(&mut self, now: Instant) -> bool {
        let (Some(id), Some(message)) = (self.id, &mut self.pending_message) else {
            return self.pending_message.is_none();
        };
        let sent =
            self.node.handle(now, Input::Command(Command::SendOwned { id, channel: CHANNEL, message }));
        if sent.is_ok() {
            self.pending_message = None;
        }
        sent.is_ok()
    }

    fn close(&mut self, now: Instant) {
        if let (Some(id), false) = (self.id, self.closing) {
            self.closing = true;
            // Refused only if the connection is closed already.
            let _ = self.node.handle(now, Input::Command(Command::Close { id }));
        }
    }

    /// Returns the next complete message.
    fn receive_message(&mut self, now: Instant) -> Option<Header> {
        let id = self.id?;
        loop {
            let mut status = ReceiveStatus::Empty;
            let take =
                Command::Receive { id, channel: CHANNEL, buffer: &mut self.message, status: &mut status };
            self.node.handle(now, Input::Command(take)).ok()?;
            match status {
                ReceiveStatus::Complete => {
                    let header = Header::decode(TOKEN, &self.message).ok();
                    self.message.clear();
                    return header;
                }
                ReceiveStatus::Partial => {}
                ReceiveStatus::Empty => {
                    self.readable = false;
                    return None;
                }
            }
        }
    }
}

/// Encodes a message whose payload is zeros: only the header is read.
fn encode_message(header: &Header) -> Buffer {
    let mut message = Buffer::with_capacity(header.length as usize);
    message.resize(header.length as usize, 0);
    if let Some(front) = message.first_chunk_mut::<HEADER>() {
        header.encode(TOKEN, front);
    }
    message
}

impl GuaranteedFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let protocol = &config.plan.protocol;
        let longest = config.mtu.saturating_sub(UDP_IP_HEADERS) as usize;
        let buffer = |side: usize| match side {
            0 => config.plan.from.buffer,
            _ => config.plan.to.first().and_then(|to| to.buffer),
        };
        let options = |side: usize| guaranteed::options(protocol, buffer(side), buffer(side), longest);
        let end = |side: usize, to: Destination| {
            let accept = if side == 1 { options(side) } else { None };
            let name = |purpose: &str| format!("{} / {purpose} {side}", config.stream_name);
            let random = config.seed.stream(&name("numbers"));
            let mut node = Node::new(Config { port: Port(0), accept, max_connections: 1, random });
            node.inject_faults(guaranteed::faults(protocol, config.seed.stream(&name("faults"))));
            GuaranteedEnd {
                node,
                id: None,
                to,
                outgoing_frames: VecDeque::new(),
                pending_message: None,
                readable: false,
                closing: false,
                close_reason: None,
                message: Buffer::new(),
            }
        };
        let mut ends = [end(0, config.to), end(1, config.reverse_to)];
        if let Some(options) = options(0) {
            let mut id = ConnectionId::default();
            let open = Command::Open { peer: PEERS[1], options: &options, id: &mut id };
            let opened = ends[0].node.handle(config.now, Input::Command(open));
            debug_assert!(opened.is_ok(), "the first connection of a node");
        }
        Ok(GuaranteedFlow {
            messages: Messages::new(config, start, STREAM_BOUNDS, config.requester(None))?,
            protocol: protocol.clone(),
            ends,
            stage_times: StageTimes::default(),
            last_frame_times: FrameTimes::new(start, start),
            flow: config.flow,
            channels: [config.channel(0), config.channel(1)],
            traffic_class: config.traffic_class(),
        })
    }

    #[inline(never)]
    pub fn receive(&mut self, now: Instant, side: usize, packet: &Packet) {
        let Content::Guaranteed(frame) = &packet.content else { return };
        let (times, bytes) = &**frame;
        if side == 1 {
            self.last_frame_times = *times;
        }
        let peer = PEERS[1 - side];
        // Only a command can be refused.
        let _ = self.ends[side].node.handle(now, Input::Frame { port: Port(0), peer, bytes, segment: None });
    }

    pub fn handle_deadline(&mut self, now: Instant, side: usize) {
        let _ = self.ends[side].node.handle(now, Input::Wake);
    }

    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, pool: &mut PacketPool) -> FlowOutput {
        loop {
            let next_run = self.run_application(now, side);
            if room && let Some((created, frame)) = self.ends[side].outgoing_frames.pop_front() {
                let packet = self.packet(side, FrameTimes::new(created, now), frame);
                return FlowOutput::Send { frame: pool.new_frame(packet), next_send: None };
            }
            let writable = room && self.ends[side].outgoing_frames.is_empty();
            let ports = if writable { Writable::ALL } else { Writable::NONE };
            let end = &mut self.ends[side];
            match end.node.poll(now, ports, &mut pool.scratch[..MAX_BATCH]) {
                Output::Transmit(t) => {
                    let frames = Segment::frames(t.segment, &pool.scratch[..t.length]);
                    end.outgoing_frames.extend(frames.map(|frame| (now, frame.into())));
                }
                Output::Event(Event { id, kind }) => self.handle_event(now, side, id, kind),
                Output::Idle(Idle { deadline, .. }) => {
                    let deadline = next_run.into_iter().chain(deadline).min();
                    // Poll again for frames when there is room.
                    return FlowOutput::Idle { deadline, blocked: !room };
                }
            }
        }
    }

    fn packet(&self, side: usize, times: FrameTimes, frame: Box<[u8]>) -> Packet {
        let length = frame.len() as u32 + UDP_IP_HEADERS;
        let (channel, to) = (self.channels[side], self.ends[side].to);
        let content = Content::Guaranteed(Box::new((times, frame)));
        Packet::new(content, length, self.flow, channel, to, side == 1).with_traffic_class(self.traffic_class)
    }

    fn handle_event(&mut self, now: Instant, side: usize, id: ConnectionId, kind: EventKind) {
        let end = &mut self.ends[side];
        match kind {
            EventKind::Opened { .. } => {
                end.id = Some(id);
                if side == 0 {
                    self.messages.open(now);
                }
            }
            EventKind::Readable { .. } => end.readable = true,
            EventKind::Writable { .. } => {}
            EventKind::Finished => end.close(now),
            EventKind::Closed { reason } => {
                end.close_reason = Some(reason);
                if reason != CloseReason::Completed {
                    self.messages.fail(reason.to_string());
                }
                self.messages.finished |= self.ends.iter().all(|end| end.close_reason.is_some());
            }
        }
    }

    /// Runs the application at an end: reads and writes messages. Returns when it must run again.
    fn run_application(&mut self, now: Instant, side: usize) -> Option<Instant> {
        while self.ends[side].readable
            && self.ends[side].pending_message.is_none()
            && let Some(header) = self.ends[side].receive_message(now)
        {
            if side == 1 {
                self.record_message(now, &header);
            } else {
                self.messages.sender.record_response(&header, now);
            }
        }
        if !self.ends[side].send_pending(now) || side == 1 {
            return None;
        }
        self.send_messages(now)
    }

    fn record_message(&mut self, now: Instant, header: &Header) {
        self.messages.receiver_meters[0].record(header, now);
        self.stage_times.record(&self.last_frame_times, header.sent_at, now);
        if header.response_length > 0 {
            self.ends[1].pending_message = Some(encode_message(&header.response(now, 0)));
            self.ends[1].send_pending(now);
        }
    }

    /// Draws messages and hands them over while there is room. Returns when to continue.
    fn send_messages(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.ends[0].closing {
                return None;
            }
            if now < self.messages.read_until {
                return Some(self.messages.read_until);
            }
            match self.messages.next(now) {
                Next::Wait(until) => return until,
                Next::Done => {
                    self.ends[0].close(now);
                    return None;
                }
                Next::Send(header) => self.ends[0].pending_message = Some(encode_message(&header)),
            }
            if !self.ends[0].send_pending(now) {
                return None;
            }
        }
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let (mut sender, mut receivers) = self.messages.into_reports();
        sender.notes.insert("stages".into(), stages::NOTE.into());
        receivers[0].stages = self.stage_times.stages();
        let counters = |end: &GuaranteedEnd, side| {
            let connection = end.id.map(|id| end.node.statistics(id).unwrap_or_default());
            guaranteed::counters(&self.protocol, connection, end.node.fault_counts(), side)
        };
        sender.counters.extend(counters(&self.ends[0], "sender"));
        receivers[0].counters.extend(counters(&self.ends[1], "receiver"));
        (sender, receivers)
    }
}
