//! Flows: the ends of one run of a connection, and their measurements.
//!
//! One value holds all ends of a flow, so the message boundaries of a stream need not be bytes: TCP delivers every
//! byte once and in order, and both ends know to which message a byte belongs.

pub mod bundle;
pub mod datagram;
pub mod fragment;
pub mod guaranteed;
pub mod llc;
#[cfg(feature = "quic")]
pub mod quic;
pub mod tcp;
pub mod tcp_header;

use trunkline_endpoint::{Destination, Port};
use trunkline_experiment::plan::{self, Protocol};
use trunkline_models::host::{Disk, Phases};
use trunkline_run::assemble::RepetitionOutcome;
use trunkline_run::bundle::MessageOptions;
use trunkline_run::message::{HEADER, Header, MAX_MESSAGE};
use trunkline_run::reports::{ReceiverReport, SenderReport};
use trunkline_run::{ReceiverMeter, Requester, Responder, Sender, SenderStep};
use trunkline_traffic::application::ReceivedItems;
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Law, Pattern, Source, SourceError, Variable, VariableError};
use trunkline_units::{Instant, Seed, Span};

use crate::frame::{Frame, Packet, PacketPool};
use bundle::BundleFlow;
use datagram::DatagramFlow;
use guaranteed::GuaranteedFlow;
use llc::{LlcFlow, LlcMessage};
#[cfg(feature = "quic")]
use quic::QuicFlow;
use tcp::TcpFlow;

/// Bytes of the headers of IPv4 and UDP.
pub const UDP_IP_HEADERS: u32 = 28;
/// Bytes of the IPv4 header.
pub const IP_HEADER: u32 = 20;
/// The lengths of messages with their header over a stream.
const STREAM_BOUNDS: Bounds = Bounds::new(HEADER as u32, MAX_MESSAGE);

/// One end of a flow: its location and its timer. Its index in the flow is its *side*: 0 is the sender, the others are
/// receivers.
#[derive(Clone, Copy, Debug)]
pub struct FlowEnd {
    pub host: u32,
    /// The host's interface towards the other end.
    pub port: Port,
    /// The medium at that interface and its port there.
    pub medium_port: (u32, Port),
    /// Its node in the event queue.
    pub node_id: u32,
}

/// One run of one connection.
#[derive(Debug)]
pub struct Flow {
    /// Index of the connection in the plan.
    pub connection: usize,
    /// Its ends: the sender, then the receivers.
    pub ends: Vec<FlowEnd>,
    transport: Transport,
    /// The hosts of the receivers, in the order of the ends.
    receiver_hosts: Vec<String>,
    file_bytes: Option<u64>,
}

#[derive(Debug)]
enum Transport {
    Datagram(Box<DatagramFlow>),
    Tcp(Box<TcpFlow>),
    Guaranteed(Box<GuaranteedFlow>),
    Llc(Box<LlcFlow>),
    Bundle(Box<BundleFlow>),
    #[cfg(feature = "quic")]
    Quic(Box<QuicFlow>),
}

/// The output of an end.
#[derive(Debug)]
pub enum FlowOutput {
    /// Send this frame. `next_send` is the end's next deadline, if it has nothing more to do now; [`Instant::MAX`]: none.
    Send { frame: Frame, next_send: Option<Instant> },
    /// Give this message to the LLC station.
    Llc(LlcMessage),
    /// Give this message to the bundle worker.
    Bundle { options: MessageOptions, header: Header },
    /// Nothing to do before the deadline. `blocked`: it needs room to send.
    Idle { deadline: Option<Instant>, blocked: bool },
}

/// What an end does next that has received a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing has changed.
    Nothing,
    /// It must be polled.
    Poll,
    /// It need not be polled before this deadline; [`Instant::MAX`]: none.
    Wait(Instant),
}

/// The configuration of a flow.
#[derive(Debug)]
pub struct FlowConfig<'a> {
    pub plan: &'a plan::Connection,
    /// Its index in the plan.
    pub connection: usize,
    /// Number of the flow; its frames carry it.
    pub flow: u32,
    pub now: Instant,
    /// Prefix of the names of its random streams.
    pub stream_name: String,
    /// Start time according to the schedule.
    pub origin: Instant,
    pub seed: Seed,
    /// Its ends: the sender, then the receivers.
    pub ends: Vec<FlowEnd>,
    /// Destination of the sender's frames.
    pub to: Destination,
    /// Destination of the receivers' frames.
    pub reverse_to: Destination,
    /// Path MTU, bytes of IP.
    pub mtu: u32,
    /// Sum of the delays of all links.
    pub longest_delay: Span,
    /// Disk rates at both ends, for files.
    pub disks: [Option<trunkline_units::Rate>; 2],
    /// Timer phases of the two hosts.
    pub timer_phases: [Phases; 2],
    /// Bytes of the file, if the test sends one.
    pub file_bytes: Option<u64>,
    /// Options of messages over bundles, and octets of the longest message.
    pub bundle_options: Option<(MessageOptions, u32)>,
}

/// Number of flows whose virtual channels differ.
pub const MAX_CHANNEL_FLOWS: u32 = 1 << 14;

/// Returns a virtual channel of a flow, the same as that of the flow [`MAX_CHANNEL_FLOWS`] before it: 0 from the sender, 1 to
/// it, 2 and 3 the same for resource-management cells.
#[inline]
pub fn channel_of(flow: u32, direction: u16) -> u16 {
    (flow as u16) << 2 | direction
}

/// Error of a connection that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    #[error(transparent)]
    Variable(#[from] VariableError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("the plan has no bundle converter")]
    NoConverter,
    #[cfg(feature = "quic")]
    #[error("QUIC needs an MTU of 1228 B on all links (RFC 9000 section 14), and one has {0} B")]
    QuicMtu(u32),
}

/// The messages of a flow: their source, which starts when the connection is open, and the measurements of both ends.
#[derive(Debug)]
pub struct Messages {
    test: Pattern,
    limit: Limit,
    bounds: Bounds,
    seed: Seed,
    stream_name: String,
    pub sender: Sender,
    pub responder: Responder,
    pub receiver_meters: Vec<ReceiverMeter>,
    disk: Option<Disk>,
    /// When the disk has read the last message.
    read_until: Instant,
    /// The earliest time of the first message, which is not before the connection is open.
    pub start: Instant,
    error: Option<String>,
    pub finished: bool,
}

/// What a sender does next.
enum Next {
    Send(Header),
    Wait(Option<Instant>),
    Done,
}

impl Messages {
    /// Creates the messages of a flow that starts at `start` or later.
    fn new(
        config: &FlowConfig<'_>,
        start: Instant,
        bounds: Bounds,
        requester: Option<Requester>,
    ) -> Result<Self, FlowError> {
        let messages = Messages {
            test: config.plan.test.clone(),
            limit: config.limit()?,
            bounds,
            seed: config.seed,
            stream_name: config.stream_name.clone(),
            sender: Sender::new(start, requester),
            responder: Responder::new(&config.plan.test, start),
            receiver_meters: config.plan.to.iter().map(|_| ReceiverMeter::new(start)).collect(),
            disk: config.disk(0),
            read_until: start,
            start,
            error: None,
            finished: false,
        };
        messages.source(start)?;
        Ok(messages)
    }

    fn source(&self, start: Instant) -> Result<Source, SourceError> {
        Source::new(&self.test, self.limit, self.bounds, start, self.seed, &self.stream_name)
    }

    /// Starts the source: the connection is open.
    fn open(&mut self, now: Instant) {
        let start = self.start.max(now);
        match self.source(start) {
            Ok(source) => {
                (self.start, self.read_until) = (start, start);
                self.sender.start(source, start);
                self.responder = Responder::new(&self.test, start);
                let items = || ReceivedItems::new(&self.test, self.bounds, self.seed, &self.stream_name);
                self.receiver_meters.fill_with(|| {
                    let mut meter = ReceiverMeter::new(start);
                    meter.compare(items());
                    meter
                });
            }
            Err(e) => self.fail(e.to_string()),
        }
    }

    /// Whether the messages are those of a file.
    fn is_file(&self) -> bool {
        matches!(self.test, Pattern::File { .. })
    }

    fn fail(&mut self, reason: String) {
        self.error.get_or_insert(reason);
        self.finished = true;
    }

    /// Draws the next message, if it is due, and hands it over.
    #[inline]
    fn next(&mut self, now: Instant) -> Next {
        match self.sender.next(now) {
            SenderStep::Wait(until) => Next::Wait(until),
            SenderStep::Done => Next::Done,
            SenderStep::Send(message) => {
                if let Some(disk) = &mut self.disk {
                    self.read_until = disk.take(now, message.size.into());
                }
                Next::Send(self.sender.send(&message, now))
            }
        }
    }

    fn into_reports(self) -> (SenderReport, Vec<ReceiverReport>) {
        (self.sender.report(), self.receiver_meters.iter().map(ReceiverReport::complete).collect())
    }
}

impl FlowConfig<'_> {
    /// Draws a number of the plan, once per run.
    fn draw(&self, variable: &Variable, name: &str) -> Result<f64, VariableError> {
        let mut stream = self.seed.stream(&format!("{} / {name}", self.stream_name));
        Ok(Law::new(variable.clone(), 0.0)?.sample(&mut stream))
    }

    fn limit(&self) -> Result<Limit, VariableError> {
        let mut limit = Limit::default();
        match &self.plan.stop {
            plan::Stop::DurationS(v) => limit.time = Some(Span::from_seconds(self.draw(v, "duration")?)),
            plan::Stop::Bytes(v) => limit.bytes = Some(self.draw(v, "bytes")?.round() as u64),
            plan::Stop::Messages(v) => limit.messages = Some(self.draw(v, "messages")?.round() as u64),
            plan::Stop::FileEnd => {}
        }
        // The end of the file also limits tests with other limits.
        if let Some(file) = self.file_in_messages() {
            limit.bytes = Some(limit.bytes.map_or(file, |bytes| bytes.min(file)));
        }
        Ok(limit)
    }

    /// Returns the bytes of the messages that carry the file, including their headers.
    fn file_in_messages(&self) -> Option<u64> {
        let file = self.file_bytes?;
        let header = HEADER as u64;
        let messages = match &self.plan.test {
            Pattern::File { size_bytes: Variable::Constant(size), .. } => {
                file.div_ceil((*size as u64).saturating_sub(header).max(1))
            }
            _ => 1,
        };
        Some(file + messages * header)
    }

    /// Returns the disk of an end, if the test sends a file.
    fn disk(&self, side: usize) -> Option<Disk> {
        self.file_bytes.and(self.disks[side]).map(Disk::new)
    }

    /// Returns the virtual channel of frames from the sender (0) or to it (1).
    fn channel(&self, side: u16) -> u16 {
        channel_of(self.flow, side)
    }

    /// Returns the octet of the IP header with the DSCP of its packets.
    fn traffic_class(&self) -> u8 {
        self.plan.dscp.unwrap_or_default() << 2
    }

    /// Returns the requester of a test with responses.
    fn requester(&self, timeout: Option<Span>) -> Option<Requester> {
        Requester::of_pattern(&self.plan.test, timeout, self.plan.to.len())
    }
}

impl Flow {
    /// Starts a run of a connection.
    ///
    /// # Errors
    /// Fails if the plan has an invalid random variable or pattern, or lacks a converter.
    pub fn new(config: FlowConfig<'_>) -> Result<Flow, FlowError> {
        let start = config.origin + Span::from_seconds(config.draw(&config.plan.delay_s, "delay")?);
        let transport = match config.plan.protocol {
            Protocol::Tcp { .. } => Transport::Tcp(Box::new(TcpFlow::new(&config, start)?)),
            Protocol::Guaranteed { .. } => {
                Transport::Guaranteed(Box::new(GuaranteedFlow::new(&config, start)?))
            }
            Protocol::Llc { .. } => Transport::Llc(Box::new(LlcFlow::new(&config, start)?)),
            Protocol::Bundle { .. } => Transport::Bundle(Box::new(BundleFlow::new(&config, start)?)),
            #[cfg(feature = "quic")]
            Protocol::Quic { .. } => Transport::Quic(Box::new(QuicFlow::new(&config, start)?)),
            _ => Transport::Datagram(Box::new(DatagramFlow::new(&config, start)?)),
        };
        Ok(Flow {
            connection: config.connection,
            ends: config.ends,
            transport,
            receiver_hosts: config.plan.to.iter().map(|s| s.host.clone()).collect(),
            file_bytes: config.file_bytes,
        })
    }

    /// Handles a packet that arrived at an end.
    // Only datagrams are inlined into the event loop: others take far more time.
    #[inline(always)]
    pub fn receive(&mut self, now: Instant, side: usize, packet: &Packet, scratch: &mut [u8]) -> Received {
        match &mut self.transport {
            Transport::Datagram(datagram) => match datagram.receive(now, side, packet) {
                true => Received::Poll,
                false => Received::Nothing,
            },
            Transport::Tcp(tcp) => tcp.receive(now, side, packet, scratch),
            Transport::Guaranteed(guaranteed) => {
                guaranteed.receive(now, side, packet);
                Received::Poll
            }
            #[cfg(feature = "quic")]
            Transport::Quic(quic) => {
                quic.receive(now, side, packet);
                Received::Poll
            }
            // The LLC station or bundle worker handles the packets and delivers messages.
            Transport::Llc(_) | Transport::Bundle(_) => Received::Nothing,
        }
    }

    /// Returns the flow over TCP, if it is one.
    #[inline(always)]
    pub fn tcp_mut(&mut self) -> Option<&mut TcpFlow> {
        match &mut self.transport {
            Transport::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Returns the flow over LLC, if it is one.
    #[inline]
    pub fn llc_mut(&mut self) -> Option<&mut LlcFlow> {
        match &mut self.transport {
            Transport::Llc(llc) => Some(llc),
            _ => None,
        }
    }

    /// Returns the flow over bundles, if it is one.
    #[inline]
    pub fn bundle_mut(&mut self) -> Option<&mut BundleFlow> {
        match &mut self.transport {
            Transport::Bundle(bundle) => Some(bundle),
            _ => None,
        }
    }

    /// Handles an expired deadline of an end.
    #[inline]
    pub fn handle_deadline(&mut self, now: Instant, side: usize) {
        match &mut self.transport {
            Transport::Datagram(_) | Transport::Llc(_) | Transport::Bundle(_) => {}
            Transport::Tcp(tcp) => tcp.handle_deadline(now, side),
            Transport::Guaranteed(guaranteed) => guaranteed.handle_deadline(now, side),
            #[cfg(feature = "quic")]
            Transport::Quic(quic) => quic.handle_deadline(now, side),
        }
    }

    pub fn record_loss(&mut self, packet: &Packet) {
        if let Transport::Datagram(datagram) = &mut self.transport {
            datagram.record_loss(packet);
        }
    }

    /// Polls an end for output. It sends only if its host has `room`.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, pool: &mut PacketPool) -> FlowOutput {
        match &mut self.transport {
            Transport::Datagram(datagram) => datagram.poll(now, side, room, pool),
            Transport::Tcp(tcp) => tcp.poll(now, side, room, pool),
            Transport::Guaranteed(guaranteed) => guaranteed.poll(now, side, room, pool),
            Transport::Llc(llc) => llc.poll(now, side),
            Transport::Bundle(bundle) => bundle.poll(now, side),
            #[cfg(feature = "quic")]
            Transport::Quic(quic) => quic.poll(now, side, room, pool),
        }
    }

    fn messages(&self) -> &Messages {
        match &self.transport {
            Transport::Datagram(datagram) => &datagram.messages,
            Transport::Tcp(tcp) => &tcp.messages,
            Transport::Guaranteed(guaranteed) => &guaranteed.messages,
            Transport::Llc(llc) => &llc.messages,
            Transport::Bundle(bundle) => &bundle.messages,
            #[cfg(feature = "quic")]
            Transport::Quic(quic) => &quic.messages,
        }
    }

    /// Returns the earliest time of the first message.
    pub fn start(&self) -> Instant {
        self.messages().start
    }

    /// Whether all messages have arrived or are lost.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.messages().finished
    }

    /// Returns the measurements of the ends. `abort_reason` says why the flow ended early.
    pub fn into_outcome(self, abort_reason: Option<String>) -> RepetitionOutcome {
        let start = self.messages().start;
        let error = abort_reason.or_else(|| self.messages().error.clone());
        let (mut sender, receivers) = match self.transport {
            Transport::Datagram(datagram) => datagram.into_reports(),
            Transport::Tcp(tcp) => tcp.into_reports(),
            Transport::Guaranteed(guaranteed) => guaranteed.into_reports(),
            Transport::Llc(llc) => llc.into_reports(),
            Transport::Bundle(bundle) => bundle.into_reports(),
            #[cfg(feature = "quic")]
            Transport::Quic(quic) => quic.into_reports(),
        };
        if let Some(bytes) = self.file_bytes {
            sender.counters.insert("file_bytes".into(), bytes as f64);
        }
        if sender.sending_time.is_zero() && sender.messages > 0 {
            // All messages were handed over at one instant: use the time until the last arrival.
            let last = receivers.iter().filter_map(|r| r.arrivals.last).max();
            sender.sending_time = last.map_or(Span::ZERO, |last| last.since(start));
        }
        let receivers = self.receiver_hosts.into_iter().zip(receivers.into_iter().map(Some)).collect();
        RepetitionOutcome { start, sender: Some(sender), receivers, error, delay_uncertainty: None }
    }
}
