//! The guaranteed transport as experiments have it.
//!
//! [`options`] turns the plan's words into those of the transport, [`Faulty`] eats and alters frames just before they
//! leave, as chapter 4 of the 1998 paper did, and [`counters`] are the variables of its table 2.

use trunkline_arq::{Check, Command, Congestion, ConnectionId, Event, Fec, Mode, Node, Options, Refusal};
use trunkline_endpoint::{Endpoint, Input, Output, Segment, Transmit, Writable};
use trunkline_experiment::plan::{ArqCongestion, ArqMode, Checksum, Protocol};
use trunkline_units::{Instant, Size, Span, Stream};

use crate::ends::Figures;

/// The transport that a plan asks for, whose frames are at most `path` bytes; none if it asks for another protocol. The
/// buffers are those of the stations: what may wait to be sent, and to be taken.
pub fn options(
    protocol: &Protocol,
    send_buffer: Option<Size>,
    receive_buffer: Option<Size>,
    path: usize,
) -> Option<Options> {
    let &Protocol::Guaranteed {
        mode,
        window,
        frame,
        ack_every,
        timeout,
        adaptive,
        ack_delay,
        congestion,
        checksum,
        fec,
        ..
    } = protocol
    else {
        return None;
    };
    let mut options = Options {
        mode: match mode {
            ArqMode::Gobackn => Mode::GoBackN,
            ArqMode::Selective => Mode::Selective,
            ArqMode::Stopandwait => Mode::StopAndWait,
        },
        check: match checksum {
            Checksum::Crc32c => Check::Crc32c,
            Checksum::Crc64 => Check::Crc64,
            Checksum::Folded => Check::Folded,
            Checksum::None => Check::None,
        },
        congestion: match congestion {
            ArqCongestion::Fixed => Congestion::Fixed,
            ArqCongestion::Reno => Congestion::Reno,
            ArqCongestion::Paced => Congestion::Paced,
        },
        window: u16::try_from(window).unwrap_or(u16::MAX),
        frame: (frame.as_bytes() as usize).min(path) as u16,
        ack_every: u16::try_from(ack_every).unwrap_or(u16::MAX),
        ack_delay,
        fec: fec.map(|fec| Fec { frames: fec.frames, repairs: fec.repairs }),
        ..Options::default()
    };
    options.timeout.initial = timeout;
    options.timeout.ceiling = timeout;
    if !adaptive {
        (options.timeout.floor, options.timeout.granularity) = (timeout, Span::ZERO);
    }
    if let Some(buffer) = send_buffer {
        options.send_buffer = buffer.as_bytes() as usize;
    }
    if let Some(buffer) = receive_buffer {
        let bytes = u32::try_from(buffer.as_bytes()).unwrap_or(u32::MAX);
        (options.credit, options.channel_credit) = (bytes, bytes);
    }
    Some(options)
}

/// A node some of whose frames are eaten, or altered, just before they leave.
#[derive(Debug)]
pub struct Faulty {
    node: Node,
    drop: f64,
    alter: f64,
    stream: Stream,
    eaten: u64,
    altered: u64,
    /// Forward error correction is wanted.
    corrects: bool,
}

impl Faulty {
    /// `node` with the faults that the plan asks for, drawn from `stream`.
    pub fn new(node: Node, protocol: &Protocol, stream: Stream) -> Self {
        let (drop, alter, corrects) = match protocol {
            Protocol::Guaranteed { drop, alter, fec, .. } => (*drop, *alter, fec.is_some()),
            _ => (0.0, 0.0, false),
        };
        Faulty { node, drop, alter, stream, eaten: 0, altered: 0, corrects }
    }

    /// The node itself.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Does to the frames of a batch what is to be done; what is left of it, if anything is.
    fn spoil(&mut self, transmit: Transmit, buffer: &mut [u8]) -> Option<Transmit> {
        let length = transmit.segment.map_or(transmit.length, Segment::length).max(1);
        let (mut from, mut to) = (0, 0);
        while from < transmit.length {
            let end = (from + length).min(transmit.length);
            if self.drop > 0.0 && self.stream.chance(self.drop) {
                self.eaten += 1;
            } else {
                buffer.copy_within(from..end, to);
                if self.alter > 0.0 && self.stream.chance(self.alter) {
                    // The last byte is the checksum's.
                    buffer[to + end - from - 1] ^= 1;
                    self.altered += 1;
                }
                to += end - from;
            }
            from = end;
        }
        (to > 0).then(|| Transmit { length: to, segment: Segment::of(length, to), ..transmit })
    }
}

impl Endpoint for Faulty {
    type Command<'a> = Command<'a>;
    type Event = Event;
    type Refusal = Refusal;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_>>) -> Result<(), Refusal> {
        self.node.handle(now, input)
    }

    #[inline]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        loop {
            match self.node.poll(now, writable, buffer) {
                Output::Transmit(transmit) if self.drop > 0.0 || self.alter > 0.0 => {
                    if let Some(left) = self.spoil(transmit, buffer) {
                        return Output::Transmit(left);
                    }
                }
                output => return output,
            }
        }
    }
}

/// What one end counted, each name with `side_` before it.
pub fn counters(end: &Faulty, ids: &[ConnectionId], side: &str) -> Figures {
    let mut figures = Figures::new();
    for id in ids {
        let statistics = end.node.statistics(*id).unwrap_or_default();
        let repairs = statistics.named_repairs().into_iter().filter(|_| end.corrects);
        for (name, count) in statistics.named().into_iter().chain(repairs) {
            *figures.entry(format!("{side}_{name}")).or_default() += count as f64;
        }
    }
    figures.insert(format!("{side}_frames_eaten"), end.eaten as f64);
    figures.insert(format!("{side}_checksums_altered"), end.altered as f64);
    figures
}
