//! One run of a connection: its ends, and what they measure.
//!
//! | module | what |
//! | --- | --- |
//! | [`bundled`] | messages over bundles |
//! | [`datagram`] | messages in datagrams: `udp` and `multicast`, requests and answers over them |
//! | [`fragment`] | messages longer than a packet |
//! | [`guaranteed`] | messages over the guaranteed transport, requests and answers over it |
//! | [`messages`] | messages over LLC, requests and answers over it |
//! | [`stream`] | messages in a TCP stream, requests and answers over it |
//! | [`way`] | where the time goes on the way of a guaranteed message |
//!
//! Both ends of a flow live in one value, so that a stream's message boundaries need not be bytes: TCP hands over
//! every byte once and in order, and which message a byte belongs to is known on both sides.

pub mod bundled;
pub mod datagram;
pub mod fragment;
pub mod guaranteed;
pub mod messages;
pub mod stream;
pub mod way;

use trunkline_endpoint::{Port, To};
use trunkline_experiment::plan::{self, Protocol};
use trunkline_run::Ledger;
use trunkline_run::assemble::Outcome;
use trunkline_run::bundle::Label;
use trunkline_run::message::{HEADER, Header, LARGEST};
use trunkline_traffic::source::{Bounds, Limit};
use trunkline_traffic::{Law, Pattern, Source, Variable};
use trunkline_units::{Instant, Seed, Span};

use crate::frame::{Frame, Kit, Packet};
use bundled::Bundled;
use datagram::Datagrams;
use guaranteed::Guaranteed;
use messages::{Messages, Sending};
use stream::Streams;

/// Bytes of IPv4 and UDP headers.
pub const UDP_IP: u32 = 28;
/// Bytes of an IPv4 header.
pub const IP: u32 = 20;
/// The longest message a datagram carries.
const LARGEST_DATAGRAM: u32 = 65_507;
/// An answer over datagrams that has not come by then is lost; the same as on sockets.
const UNANSWERED: Span = Span::from_s(1);
/// How long a receiver waits in silence for what is still under way once the sender has ended, beyond the delay of
/// the lines.
const LINGER: Span = Span::from_s(1);

/// Where an end stands. Side 0 of a flow is the sender, the others its receivers.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    /// Its station.
    pub station: u32,
    /// The station's interface towards the other side.
    pub port: Port,
    /// The medium at that interface, and its port.
    pub down: (u32, Port),
    /// Its place on the agenda.
    pub place: u32,
}

/// One run of one connection.
#[derive(Debug)]
pub struct Flow {
    /// Its index in the plan.
    pub connection: usize,
    /// Where its ends are.
    pub sides: Vec<Side>,
    start: Instant,
    work: Work,
    /// The receivers' hosts, in the order of the sides.
    hosts: Vec<String>,
    file_bytes: Option<u64>,
}

#[derive(Debug)]
enum Work {
    Datagrams(Box<Datagrams>),
    Streams(Box<Streams>),
    Guaranteed(Box<Guaranteed>),
    Messages(Box<Messages>),
    Bundled(Box<Bundled>),
}

/// What an end says.
#[derive(Debug)]
pub enum Said {
    /// Hand this to the station.
    Send {
        /// What.
        frame: Frame,
        /// If that is known: when there will be more, and nothing that happens until then changes that.
        resume: Option<Instant>,
    },
    /// Hand this to the LLC station.
    Message(Sending),
    /// Hand this to what bundles here.
    Bundle {
        /// What its connection's messages say of themselves.
        label: Label,
        /// What the message says of itself.
        header: Header,
    },
    /// Nothing more now.
    Idle {
        /// When to wake it.
        deadline: Option<Instant>,
        /// Whether it has something to send and waits for room.
        blocked: bool,
    },
}

/// What a flow is made of.
#[derive(Debug)]
pub struct Birth<'a> {
    /// The plan's entry.
    pub plan: &'a plan::Connection,
    /// Its index.
    pub connection: usize,
    /// The flow's number, which its frames carry.
    pub flow: u32,
    /// The time.
    pub now: Instant,
    /// Names its random streams.
    pub place: String,
    /// When its place in the schedule comes.
    pub origin: Instant,
    /// Seed of the run.
    pub seed: Seed,
    /// Where its ends are.
    pub sides: Vec<Side>,
    /// Whom the sender's frames are for.
    pub to: To,
    /// Whom a receiver's frames are for.
    pub back: To,
    /// Largest packet of the path, bytes of IP.
    pub mtu: u32,
    /// Sum of the delays of all lines.
    pub longest_delay: Span,
    /// Rate of the disks at both ends, for files.
    pub disks: [Option<trunkline_units::Rate>; 2],
    /// Timer phases of the two stations: fast, slow.
    pub phases: [(Span, Span); 2],
    /// Bytes of the file that is sent, if it is one.
    pub file_bytes: Option<u64>,
    /// What messages over bundles say of themselves, and octets of the longest.
    pub label: Option<(Label, u32)>,
}

/// What a source is made from, once the connection is open.
#[derive(Debug)]
struct Recipe {
    test: Pattern,
    limit: Limit,
    seed: Seed,
    place: String,
    earliest: Instant,
}

impl Birth<'_> {
    /// One number of the plan that is drawn once a run.
    fn draw(&self, variable: &Variable, what: &str) -> Result<f64, String> {
        let mut stream = self.seed.stream(&format!("{} / {what}", self.place));
        Ok(Law::new(variable.clone(), 0.0).map_err(|e| e.to_string())?.sample(&mut stream))
    }

    fn limit(&self) -> Result<Limit, String> {
        Ok(match &self.plan.stop {
            plan::Stop::DurationS(v) => {
                Limit { time: Some(Span::from_seconds(self.draw(v, "duration")?)), ..Limit::default() }
            }
            plan::Stop::Bytes(v) => {
                Limit { bytes: Some(self.draw(v, "bytes")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::Messages(v) => {
                Limit { messages: Some(self.draw(v, "messages")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::FileEnd => Limit::default(),
        })
        .map(|limit: Limit| match self.file_in_messages() {
            // A file ends where it ends, whatever else was asked.
            Some(file) => Limit { bytes: Some(limit.bytes.map_or(file, |bytes| bytes.min(file))), ..limit },
            None => limit,
        })
    }

    /// Bytes of the messages that carry the file: each has a header.
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

    fn source(&self, start: Instant, largest: u32) -> Result<Source, String> {
        let bounds = Bounds { smallest: HEADER as u32, largest };
        Source::new(&self.plan.test, self.limit()?, bounds, start, self.seed, &self.place)
            .map_err(|e| e.to_string())
    }

    /// The virtual channel of frames from the sender (0) and to it (1): each flow has two of its own.
    fn channel(&self, side: u16) -> u16 {
        (self.flow as u16) << 1 | side
    }

    fn asks(&self) -> bool {
        matches!(self.plan.test, Pattern::Request { .. })
    }
}

impl Flow {
    /// Begins a run.
    ///
    /// # Errors
    /// What of its random variables is no law, in a line.
    pub fn begin(birth: Birth<'_>) -> Result<Flow, String> {
        let start = birth.origin + Span::from_seconds(birth.draw(&birth.plan.delay_s, "delay")?);
        let work = match birth.plan.protocol {
            Protocol::Tcp { .. } => {
                // The source begins when the connection is open; that there can be one is checked now.
                birth.source(start, LARGEST)?;
                Work::Streams(Box::new(Streams::begin(&birth, start, birth.limit()?)?))
            }
            Protocol::Guaranteed { .. } => {
                birth.source(start, LARGEST)?;
                Work::Guaranteed(Box::new(Guaranteed::begin(&birth, start, birth.limit()?)))
            }
            Protocol::Llc { .. } => {
                birth.source(start, LARGEST)?;
                Work::Messages(Box::new(Messages::begin(&birth, start, birth.limit()?)))
            }
            Protocol::Bundle { .. } => {
                birth.source(start, LARGEST_DATAGRAM)?;
                let label = birth.label.ok_or("nothing bundles")?;
                Work::Bundled(Box::new(Bundled::begin(&birth, start, birth.limit()?, label)))
            }
            _ => Work::Datagrams(Box::new(Datagrams::begin(
                &birth,
                start,
                birth.source(start, LARGEST_DATAGRAM)?,
            ))),
        };
        Ok(Flow {
            connection: birth.connection,
            sides: birth.sides,
            start,
            work,
            hosts: birth.plan.to.iter().map(|s| s.host.clone()).collect(),
            file_bytes: birth.file_bytes,
        })
    }

    /// Gives a packet to an end; whether it may have something to say to that.
    #[inline]
    pub fn arrive(&mut self, now: Instant, side: usize, packet: &Packet, scratch: &mut [u8]) -> bool {
        match &mut self.work {
            Work::Datagrams(d) => d.arrive(now, side, packet),
            Work::Streams(s) => {
                s.arrive(now, side, packet, scratch);
                true
            }
            Work::Guaranteed(g) => {
                g.arrive(now, side, packet);
                true
            }
            // A station takes its packets, and hands over messages.
            Work::Messages(_) | Work::Bundled(_) => false,
        }
    }

    /// What runs over LLC.
    #[inline]
    pub fn messages(&mut self) -> Option<&mut Messages> {
        match &mut self.work {
            Work::Messages(m) => Some(m),
            _ => None,
        }
    }

    /// What runs over bundles.
    #[inline]
    pub fn bundled(&mut self) -> Option<&mut Bundled> {
        match &mut self.work {
            Work::Bundled(b) => Some(b),
            _ => None,
        }
    }

    /// Tells an end that its deadline may have come.
    #[inline]
    pub fn wake(&mut self, now: Instant, side: usize) {
        match &mut self.work {
            Work::Datagrams(_) | Work::Messages(_) | Work::Bundled(_) => {}
            Work::Streams(s) => s.wake(now, side),
            Work::Guaranteed(g) => g.wake(now, side),
        }
    }

    /// Tells it that a packet of it is no more.
    pub fn lose(&mut self, packet: &Packet) {
        match &mut self.work {
            Work::Datagrams(d) => d.lose(packet),
            Work::Streams(_) | Work::Guaranteed(_) | Work::Messages(_) | Work::Bundled(_) => {}
        }
    }

    /// What an end has to say. It sends only if its station has `room`.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, kit: &mut Kit) -> Said {
        match &mut self.work {
            Work::Datagrams(d) => d.poll(now, side, room, kit),
            Work::Streams(s) => s.poll(now, side, room, kit),
            Work::Guaranteed(g) => g.poll(now, side, room, kit),
            Work::Messages(m) => m.poll(now, side),
            Work::Bundled(b) => b.poll(now, side),
        }
    }

    /// Whether everything has been sent and has arrived, or will not any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        match &self.work {
            Work::Datagrams(d) => d.is_over(),
            Work::Streams(s) => s.is_over(),
            Work::Guaranteed(g) => g.is_over(),
            Work::Messages(m) => m.is_over(),
            Work::Bundled(b) => b.is_over(),
        }
    }

    /// What its ends measured; with `cut`, the reason why it ended early.
    pub fn outcome(self, cut: Option<String>) -> Outcome {
        let start = match &self.work {
            Work::Datagrams(_) => self.start,
            Work::Streams(s) => s.start(),
            Work::Guaranteed(g) => g.start(),
            Work::Messages(m) => m.start(),
            Work::Bundled(b) => b.start(),
        };
        let (mut sender, receivers, trouble) = match self.work {
            Work::Datagrams(d) => d.reports(),
            Work::Streams(s) => s.reports(),
            Work::Guaranteed(g) => g.reports(),
            Work::Messages(m) => m.reports(),
            Work::Bundled(b) => b.reports(),
        };
        if let Some(bytes) = self.file_bytes {
            sender.counters.insert("file_bytes".into(), bytes as f64);
        }
        if sender.active.is_zero() && sender.messages > 0 {
            // All of it was handed over in one moment: its rate is that at which it arrived.
            let last = receivers.iter().filter_map(|r| r.arrivals.last).max();
            sender.active = last.map_or(Span::ZERO, |last| last.since(start));
        }
        let receivers = self.hosts.into_iter().zip(receivers.into_iter().map(Some)).collect();
        Outcome { start, sender: Some(sender), receivers, trouble: cut.or(trouble) }
    }
}

/// Counts a message that leaves.
#[inline(always)]
fn depart(
    source: &mut Source,
    ledger: &mut Ledger,
    message: &trunkline_traffic::source::Message,
    now: Instant,
) {
    ledger.depart(message, now);
    if message.first {
        source.departed(now);
    }
}
