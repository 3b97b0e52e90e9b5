//! Flows over TCP. The protocol is the `tcp` crate, as on a real wire; only the payload is virtual.

use std::collections::VecDeque;

use trunkline_endpoint::{Destination, Ecn, Endpoint as _, Input, Output, Peer, Port, Reason, Writable};
use trunkline_experiment::plan::{Protocol, TcpController, TcpEcn, TcpTimers, TcpVariant};
use trunkline_models::host::{Disk, Phases};
use trunkline_record::Histogram;
use trunkline_run::message::Header;
use trunkline_run::reports::{Metrics, ReceiverReport, SenderReport};
use trunkline_run::samples::Samples;
use trunkline_tcp::segment::LONGEST_HEADER;
use trunkline_tcp::{
    Algorithm, Command, EcnFeedback, Event, Options, Statistics, Tcp, Timers, Virtual, header_length,
};
use trunkline_units::{Instant, Size, Span};

use super::{
    FlowConfig, FlowError, FlowOutput, IP_HEADER, Messages, Next, Received, STREAM_BOUNDS, channel_of,
    tcp_header,
};
use crate::frame::{Packet, PacketPool};

/// Default size of both socket buffers: the limit of Linux autotuning.
const DEFAULT_BUFFER: Size = Size::from_bytes(4 << 20);
/// How Linux grows the send buffer of a socket without a size (tcp_sndbuf_expand): twice the congestion window, with BBR three
/// times, at least ten segments, each of which counts as a power of two with the kernel's headers, plus its bookkeeping.
const LINUX_SEGMENT_HEADERS: u32 = 640;
const LINUX_SEGMENT_BOOKKEEPING: u32 = 256;
const LINUX_MIN_SEGMENTS: u32 = 10;
/// Bytes of a TCP header without options.
const MIN_TCP_HEADER: u32 = 20;
/// What a congestion controller of today brings along, as in Linux: minimum and initial retransmission timeout, initial window
/// in segments, maximum delay of an acknowledgement. 4.3BSD delays acknowledgements by up to 200 ms.
const TODAY_MIN_RTO: Span = Span::from_ms(200);
const TODAY_INITIAL_TIMEOUT: Span = Span::from_s(1);
const TODAY_INITIAL_WINDOW: u16 = 10;
const TODAY_ACK_DELAY: Span = Span::from_ms(40);
const BSD_ACK_DELAY: Span = Span::from_ms(200);
/// Bytes of one disk access.
const DISK_BLOCK: u32 = 64 << 10;

/// The ends of a connection over TCP.
#[derive(Debug)]
pub struct TcpFlow {
    pub messages: Messages,
    ends: [TcpEnd; 2],
    disks: [Option<Disk>; 2],
    samples: Samples,
    rtt: Histogram,
    latest_rtt: Span,
    flow: u32,
    traffic_class: u8,
    /// Segments have the options of today's TCP.
    has_extensions: bool,
    congestion: &'static str,
}

/// One end.
#[derive(Debug)]
struct TcpEnd {
    tcp: Tcp<Virtual>,
    to: Destination,
    /// Bytes written to the stream, and remaining bytes of the current message.
    written: u64,
    remaining: u32,
    /// Stream offset of the end of each message sent, with its header. The other end removes them.
    boundaries: VecDeque<(u64, Header)>,
    /// Bytes read from the stream.
    read: u64,
    disk_until: Instant,
    /// The limit of queued bytes, if the send buffer grows as that of Linux, and how often it holds the congestion window.
    grown_buffer: Option<(u32, u32)>,
    /// The segment whose round trip is being measured: the sequence number after it, and its send time.
    rtt_probe: Option<(u32, Instant)>,
    /// The sequence number after the last byte ever sent.
    highest_sent: u32,
    /// Whether anything has changed since the application last ran, other than a segment, and when it must run again.
    has_changed: bool,
    next_deadline: Option<Instant>,
    /// The application writes no more.
    closing: bool,
    /// All data of the other end has arrived.
    finished: bool,
}

impl TcpFlow {
    pub(super) fn new(config: &FlowConfig<'_>, start: Instant) -> Result<Self, FlowError> {
        let mut messages = Messages::new(config, start, STREAM_BOUNDS, config.requester(None))?;
        let sender = options(config, 0);
        let receiver = options(config, 1);
        let end = |options: Options, to: Destination| TcpEnd {
            tcp: Tcp::new(options),
            to,
            written: 0,
            remaining: 0,
            boundaries: VecDeque::new(),
            read: 0,
            disk_until: start,
            grown_buffer: windows_in_send_buffer(config).map(|windows| (0, windows)),
            rtt_probe: None,
            highest_sent: 0,
            has_changed: true,
            next_deadline: None,
            closing: false,
            finished: false,
        };
        let mut ends = [end(sender, config.to), end(receiver, config.reverse_to)];
        let now = config.now;
        let is_open = ends[1].tcp.handle(now, Input::Command(Command::Listen)).is_ok()
            && ends[0].tcp.handle(now, Input::Command(Command::Connect)).is_ok();
        debug_assert!(is_open, "new ends may open");
        Ok(TcpFlow {
            // TCP reads a block at a time, not a message.
            disks: [messages.disk.take(), config.disk(1)],
            messages,
            ends,
            samples: Samples::default(),
            rtt: Histogram::default(),
            latest_rtt: Span::ZERO,
            flow: config.flow,
            traffic_class: config.traffic_class(),
            has_extensions: sender.has_extensions(),
            congestion: controller(config).1,
        })
    }

    #[inline(never)]
    pub fn receive(&mut self, now: Instant, side: usize, packet: &Packet, scratch: &mut [u8]) -> Received {
        let whole = (packet.length - IP_HEADER) as usize;
        let header = scratch.first_chunk_mut().expect("the buffer holds the longest segment");
        if !tcp_header::write(&packet.content, packet.is_reverse, header) {
            return Received::Nothing;
        }
        self.ends[side].tcp.set_received_ecn(Ecn::from_bits(packet.traffic_class));
        let (port, peer, segment) = (Port(0), Peer::NONE, None);
        let input = Input::Frame { port, peer, bytes: &scratch[..whole], segment };
        // Only a command can be refused.
        let _ = self.ends[side].tcp.handle(now, input);
        if side == 0
            && let Some(rtt) = self.ends[0].finish_rtt_probe(now)
        {
            self.latest_rtt = rtt;
            if !self.has_exact_timers() {
                self.rtt.record(rtt);
            }
        }
        self.run_application(now, side);
        self.next_poll(side).map_or(Received::Poll, Received::Wait)
    }

    #[inline(never)]
    pub fn handle_deadline(&mut self, now: Instant, side: usize) {
        self.ends[side].has_changed = true;
        let _ = self.ends[side].tcp.handle(now, Input::Wake);
    }

    /// Lets the application of an end read what has arrived, and write.
    #[inline(always)]
    fn run_application(&mut self, now: Instant, side: usize) {
        let read_deadline = self.read_messages(now, side);
        let write_deadline = match side {
            0 => self.send_messages(now),
            _ if self.ends[1].remaining > 0 || self.ends[1].closing => self.write(now, 1),
            _ => None,
        };
        let end = &mut self.ends[side];
        (end.has_changed, end.next_deadline) = (false, earliest(read_deadline, write_deadline));
    }

    #[inline(never)]
    fn run_application_again(&mut self, now: Instant, side: usize) {
        self.run_application(now, side);
    }

    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, pool: &mut PacketPool) -> FlowOutput {
        self.poll_inlined(now, side, room, pool)
    }

    /// Like [`poll`](Self::poll), for a caller that has its own loop.
    #[inline(always)]
    pub fn poll_inlined(
        &mut self,
        now: Instant,
        side: usize,
        room: bool,
        pool: &mut PacketPool,
    ) -> FlowOutput {
        let writable = if room { Writable::ALL } else { Writable::NONE };
        loop {
            if self.ends[side].has_changed {
                self.run_application_again(now, side);
            }
            let deadline = self.ends[side].next_deadline;
            match self.ends[side].tcp.poll(now, writable, &mut pool.scratch) {
                Output::Transmit(t) => {
                    let header = pool.scratch.first_chunk().expect("the buffer holds the longest segment");
                    if side == 0 {
                        self.ends[0].start_rtt_probe(now, t.length, header);
                    }
                    let packet = self.make_packet(side, t.length, header);
                    let frame = pool.new_frame(packet);
                    return FlowOutput::Send { frame, next_send: self.next_poll(side) };
                }
                // The application has read the data already.
                Output::Event(Event::Readable) => {}
                Output::Event(event) => {
                    self.ends[side].has_changed = true;
                    self.handle_event(now, side, event);
                }
                Output::Idle(idle) => {
                    let blocked = matches!(idle.reason, Reason::Port(_));
                    return FlowOutput::Idle { deadline: earliest(deadline, idle.deadline), blocked };
                }
            }
        }
    }

    /// Returns when an end must be polled, if it has nothing more to do now. [`Instant::MAX`]: never, without an event.
    #[inline]
    fn next_poll(&self, side: usize) -> Option<Instant> {
        let end = &self.ends[side];
        let is_idle = !end.has_changed && !end.tcp.has_output() && !self.messages.finished;
        is_idle.then(|| earliest(end.next_deadline, end.tcp.deadline()).unwrap_or(Instant::MAX))
    }

    #[inline]
    fn make_packet(&self, side: usize, length: usize, header: &[u8; LONGEST_HEADER]) -> Packet {
        let (content, ecn) = (tcp_header::content(header), self.ends[side].tcp.sent_ecn());
        // Each direction has its own virtual channel.
        let channel = channel_of(self.flow, side as u16);
        Packet::new(content, length as u32 + IP_HEADER, self.flow, channel, self.ends[side].to, side == 1)
            .with_traffic_class(self.traffic_class | ecn.bits())
    }

    #[cold]
    #[inline(never)]
    fn handle_event(&mut self, now: Instant, side: usize, event: Event) {
        match event {
            Event::Connected if side == 0 => self.start_source(now),
            Event::Finished => {
                self.ends[side].finished = true;
                self.ends[1].closing |= side == 1;
            }
            Event::Reset => self.messages.fail("the peer reset the connection".into()),
            Event::TimedOut => self.messages.fail("the peer did not respond; TCP timed out".into()),
            _ => {}
        }
        self.update_finished();
    }

    /// Ends the run when all data has been sent and read.
    fn update_finished(&mut self) {
        let is_done = |end: &TcpEnd| end.finished && end.tcp.readable() == 0 || end.tcp.is_closed();
        self.messages.finished |= self.ends.iter().all(is_done);
    }

    fn start_source(&mut self, now: Instant) {
        self.messages.open(now);
        self.ends.iter_mut().for_each(|end| end.disk_until = self.messages.start);
    }

    /// Draws messages and writes them while there is room. Returns when to continue.
    #[inline(always)]
    fn send_messages(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.ends[0].remaining > 0 {
                let deadline = self.write(now, 0);
                if self.ends[0].remaining > 0 {
                    return deadline;
                }
            }
            if self.ends[0].room() == 0 || self.ends[0].closing {
                return self.write(now, 0);
            }
            match self.messages.next(now) {
                Next::Wait(until) => return until,
                Next::Done => self.ends[0].closing = true,
                Next::Send(header) => {
                    self.ends[0].queue_message(header);
                    self.sample(now);
                }
            }
        }
    }

    /// Writes the rest of a message, or closes. Returns when to continue.
    #[inline]
    fn write(&mut self, now: Instant, side: usize) -> Option<Instant> {
        let (end, disk) = (&mut self.ends[side], &mut self.disks[0]);
        let mut disk = disk.as_mut().filter(|_| side == 0);
        while end.remaining > 0 {
            let mut count = end.remaining.min(end.room());
            if let Some(disk) = &mut disk {
                if now < end.disk_until {
                    return Some(end.disk_until);
                }
                count = count.min(DISK_BLOCK);
                end.disk_until = disk.take(now, count.into());
            }
            if count == 0 || end.tcp.handle(now, Input::Command(Command::Send(count))).is_err() {
                return None;
            }
            end.remaining -= count;
            end.written += u64::from(count);
        }
        // Read all data before closing: a closed end delivers no more.
        if end.closing && end.tcp.readable() == 0 {
            // Refused if the connection is closed already.
            let _ = end.tcp.handle(now, Input::Command(Command::Close));
        }
        None
    }

    /// Reads arrived data and records complete messages. Returns when to continue.
    #[inline(always)]
    fn read_messages(&mut self, now: Instant, side: usize) -> Option<Instant> {
        let mut deadline = None;
        while self.ends[side].tcp.readable() > 0 {
            let end = &mut self.ends[side];
            let mut count = end.tcp.readable();
            if side == 1
                && let Some(until) = self.messages.responder.stalled_until(now)
            {
                deadline = Some(until);
                break;
            }
            if let Some(disk) = self.disks[1].as_mut().filter(|_| side == 1) {
                if now < end.disk_until {
                    deadline = Some(end.disk_until);
                    break;
                }
                count = count.min(DISK_BLOCK);
                end.disk_until = disk.take(now, count.into());
            }
            if end.tcp.handle(now, Input::Command(Command::Take(count))).is_err() {
                break;
            }
            end.read += u64::from(count);
            let read = end.read;
            while self.ends[1 - side].boundaries.front().is_some_and(|(end, _)| *end <= read) {
                if let Some((_, header)) = self.ends[1 - side].boundaries.pop_front() {
                    self.record_message(now, side, &header);
                }
            }
        }
        if self.ends[side].finished {
            self.update_finished();
        }
        deadline
    }

    #[inline(never)]
    fn record_message(&mut self, now: Instant, side: usize, header: &Header) {
        if side == 1 {
            let meter = &mut self.messages.receiver_meters[0];
            meter.record(header, now);
            if header.response_length > 0 {
                let received_bytes = meter.arrivals().bytes;
                self.ends[1].queue_message(self.messages.responder.respond(header, 0, received_bytes, now));
            }
        } else {
            self.messages.sender.record_response(header, now);
        }
    }

    fn has_exact_timers(&self) -> bool {
        matches!(self.ends[0].tcp.options().timers, Timers::Fine { .. })
    }

    #[inline]
    fn sample(&mut self, now: Instant) {
        if !self.samples.is_due(now) {
            return;
        }
        let gauges = self.ends[0].tcp.gauges();
        let mut rtt = self.latest_rtt;
        // As kernels report it; ticks are too coarse for it.
        if self.has_exact_timers() {
            rtt = gauges.smoothed_rtt;
            self.rtt.record(rtt);
        }
        let metrics = [
            ("cwnd_bytes", f64::from(gauges.cwnd)),
            ("rtt_us", rtt.as_us()),
            ("retransmissions", self.ends[0].tcp.statistics().retransmitted_segments as f64),
        ];
        let metrics = metrics.map(|(k, v)| (k.to_string(), v)).into();
        self.samples.record(self.messages.start, now, metrics);
    }

    pub(super) fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        let is_requester = self.messages.sender.is_requester();
        let (mut sender, mut receivers) = self.messages.into_reports();
        let [from, to] = &self.ends;
        sender.counters.extend(counters(from.tcp.statistics()));
        if self.has_extensions {
            let Statistics { tail_loss_probes, spurious_recoveries, marked_bytes, .. } =
                *from.tcp.statistics();
            sender.counters.insert("marked_bytes".into(), marked_bytes as f64);
            sender.counters.insert("tail_loss_probes".into(), tail_loss_probes as f64);
            sender.counters.insert("spurious_recoveries".into(), spurious_recoveries as f64);
        }
        sender.counters.insert("tcp_mss_bytes".into(), f64::from(from.tcp.gauges().mss));
        sender.counters.insert("sender_buffer_bytes".into(), f64::from(from.tcp.options().send_buffer));
        sender.samples.extend_from_slice(self.samples.points());
        if !is_requester {
            sender.rtt = self.rtt.counts();
        }
        sender.notes.insert("congestion".into(), self.congestion.into());
        let window = f64::from(to.tcp.options().receive_buffer);
        receivers[0].counters.insert("receiver_buffer_bytes".into(), window);
        receivers[0].counters.insert("acks_sent".into(), to.tcp.statistics().acks_sent as f64);
        receivers[0].counters.insert("out_of_order".into(), to.tcp.statistics().out_of_order as f64);
        (sender, receivers)
    }
}

impl TcpEnd {
    /// Returns the bytes that the send buffer has room for.
    #[inline]
    fn room(&mut self) -> u32 {
        let room = self.tcp.room();
        let Some((limit, windows)) = &mut self.grown_buffer else { return room };
        let gauges = self.tcp.gauges();
        let segment = (gauges.mss + LINUX_SEGMENT_HEADERS).next_power_of_two() + LINUX_SEGMENT_BOOKKEEPING;
        let segments = (gauges.cwnd / gauges.mss.max(1)).max(LINUX_MIN_SEGMENTS);
        *limit = segments.saturating_mul(*windows * segment).max(*limit);
        let queued = self.tcp.options().send_buffer - room;
        room.min(limit.saturating_sub(queued))
    }

    /// Starts to write a message.
    #[inline]
    fn queue_message(&mut self, header: Header) {
        let end = self.written + u64::from(self.remaining) + u64::from(header.length);
        self.boundaries.push_back((end, header));
        self.remaining += header.length;
    }
}

/// Round-trip times, one segment at a time and never of a retransmitted segment (Karn's algorithm, RFC 6298 section 3).
/// TCP's own estimate has a resolution of 500 ms.
impl TcpEnd {
    #[inline]
    fn start_rtt_probe(&mut self, now: Instant, length: usize, header: &[u8; LONGEST_HEADER]) {
        let payload = length.saturating_sub(header_length(header)) as u32;
        if payload == 0 {
            return;
        }
        let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let end =
            sequence.wrapping_sub(self.tcp.options().initial_sequence.wrapping_add(1)).wrapping_add(payload);
        // Sequence number arithmetic (RFC 793 section 3.3).
        let is_new = end.wrapping_sub(self.highest_sent) as i32 > 0;
        if is_new {
            self.highest_sent = end;
            self.rtt_probe.get_or_insert((end, now));
        } else {
            self.rtt_probe = None;
        }
    }

    #[inline]
    fn finish_rtt_probe(&mut self, now: Instant) -> Option<Span> {
        let acknowledged = (self.written as u32).wrapping_sub(self.tcp.unacknowledged());
        let (_, at) = self.rtt_probe.take_if(|(end, _)| acknowledged.wrapping_sub(*end) as i32 >= 0)?;
        Some(now.since(at))
    }
}

#[inline]
fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn counters(s: &Statistics) -> Metrics {
    [
        ("packets_sent", s.segments_sent),
        ("data_segments_sent", s.data_segments_sent),
        ("packets_received", s.segments_received),
        ("retransmissions", s.retransmitted_segments),
        ("timeouts", s.timeouts),
        ("fast_retransmits", s.fast_retransmits),
        ("duplicate_acks", s.duplicate_acks),
    ]
    .map(|(name, count)| (name.to_string(), count as f64))
    .into()
}

/// Returns the congestion controller, and its name in the record.
fn controller(config: &FlowConfig<'_>) -> (TcpController, &'static str) {
    let controller = match &config.plan.protocol {
        Protocol::Tcp { congestion, .. } => TcpController::of(congestion.as_deref()),
        _ => None,
    };
    match controller.unwrap_or(TcpController::Bsd) {
        TcpController::Bsd => (TcpController::Bsd, "reno (4.3BSD)"),
        TcpController::NewReno => (TcpController::NewReno, "newreno"),
        TcpController::Cubic => (TcpController::Cubic, "cubic"),
        TcpController::Dctcp => (TcpController::Dctcp, "dctcp"),
        TcpController::Prague => (TcpController::Prague, "prague"),
        TcpController::Bbr => (TcpController::Bbr, "bbr"),
        TcpController::Bbr3 => (TcpController::Bbr3, "bbr3"),
    }
}

/// Returns how many congestion windows the send buffers hold, if they grow as those of Linux: with its variant, unless the plan
/// gives a size.
fn windows_in_send_buffer(config: &FlowConfig<'_>) -> Option<u32> {
    let Protocol::Tcp { window: None, extensions, .. } = &config.plan.protocol else { return None };
    let grows = extensions.variant == Some(TcpVariant::Linux) && config.plan.from.buffer.is_none();
    grows.then(|| match controller(config).0 {
        TcpController::Bbr | TcpController::Bbr3 => 3,
        _ => 2,
    })
}

/// Returns the TCP options of one end.
fn options(config: &FlowConfig<'_>, side: usize) -> Options {
    let Protocol::Tcp { window, nodelay, timers, delayed_ack, extensions, .. } = &config.plan.protocol else {
        return Options::default();
    };
    let station = if side == 0 { &config.plan.from } else { &config.plan.to[0] };
    // `buffer` applies to one end, `window` to both.
    let own_buffer = station.buffer.or(*window).unwrap_or(DEFAULT_BUFFER).as_bytes().min(1 << 30) as u32;
    let peer_buffer = window.unwrap_or(DEFAULT_BUFFER).as_bytes().min(1 << 30) as u32;
    let Phases { fast, slow } = config.timer_phases[side];
    let (controller, _) = controller(config);
    let linux = extensions.variant == Some(TcpVariant::Linux);
    let is_today = controller != TcpController::Bsd;
    let min_rto = extensions.min_rto.unwrap_or(if is_today { TODAY_MIN_RTO } else { Span::ZERO });
    let ecn = extensions.ecn.unwrap_or(match controller {
        TcpController::Dctcp => TcpEcn::On,
        TcpController::Prague => TcpEcn::Accurate,
        _ => TcpEcn::Off,
    });
    let random = |name: &str| config.seed.stream(&format!("{} / {name} {side}", config.stream_name)).bits();
    let seed = random("bbr");
    Options {
        local: tcp_header::PORTS[side],
        remote: tcp_header::PORTS[1 - side],
        // TCP limits the MSS further.
        mss: (config.mtu - IP_HEADER - MIN_TCP_HEADER).min(u32::from(u16::MAX)) as u16,
        send_buffer: if side == 0 { own_buffer } else { peer_buffer },
        receive_buffer: if side == 0 { peer_buffer } else { own_buffer },
        timers: match timers {
            TcpTimers::Bsd => Timers::Bsd { fast_phase: fast, slow_phase: slow },
            TcpTimers::Fine => Timers::Fine { floor: min_rto },
        },
        delayed_ack: *delayed_ack,
        nagle: !*nodelay,
        congestion: match controller {
            TcpController::Bsd => None,
            TcpController::NewReno if linux => Some(Algorithm::LinuxReno),
            TcpController::NewReno => Some(Algorithm::Reno),
            TcpController::Cubic if linux => Some(Algorithm::LinuxCubic),
            TcpController::Cubic => Some(Algorithm::Cubic {
                hystart: extensions.hystart.unwrap_or(true),
                reno_friendly: extensions.reno_friendly.unwrap_or(true),
            }),
            TcpController::Dctcp => Some(Algorithm::Dctcp),
            TcpController::Prague => Some(Algorithm::Prague),
            TcpController::Bbr => Some(Algorithm::Bbr { seed }),
            TcpController::Bbr3 => Some(Algorithm::Bbr3 { seed }),
        },
        linux,
        sack: extensions.sack.unwrap_or(is_today),
        timestamps: extensions.timestamps.unwrap_or(is_today),
        ecn: match ecn {
            TcpEcn::Off => None,
            TcpEcn::On if controller == TcpController::Dctcp => Some(EcnFeedback::Exact),
            TcpEcn::On => Some(EcnFeedback::Classic),
            TcpEcn::Accurate => Some(EcnFeedback::Accurate),
        },
        initial_window: extensions.initial_window.unwrap_or(if is_today { TODAY_INITIAL_WINDOW } else { 1 }),
        initial_ssthresh: extensions
            .initial_ssthresh
            .map(|size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX)),
        initial_timeout: is_today.then_some(TODAY_INITIAL_TIMEOUT),
        ack_delay: extensions.ack_delay.unwrap_or(if is_today { TODAY_ACK_DELAY } else { BSD_ACK_DELAY }),
        initial_sequence: random("isn") as u32,
        ..Options::default()
    }
}
