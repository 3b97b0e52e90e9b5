//! The guaranteed transport in experiments.
//!
//! [`options`] translates a plan's options, [`FaultInjector`] drops and alters frames just before they are sent, as in
//! chapter 4 of Guaranteed ATM (1998), and [`counters`] returns the variables of its table 2.

use trunkline_arq::{Check, Command, Congestion, ConnectionId, Event, Fec, Mode, Node, Options, Refusal};
use trunkline_endpoint::{Endpoint, Input, Output, Segment, Transmit, Writable};
use trunkline_experiment::plan::{ArqCongestion, ArqMode, Checksum, Protocol};
use trunkline_units::{Instant, Size, Span, Stream};

use crate::reports::Metrics;

/// Returns the options of the guaranteed transport for a plan, with frames of at most `path_mtu` bytes; `None` for another
/// protocol. The buffers are those of the hosts.
pub fn options(
    protocol: &Protocol,
    send_buffer: Option<Size>,
    receive_buffer: Option<Size>,
    path_mtu: usize,
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
        frame: (frame.as_bytes() as usize).min(path_mtu) as u16,
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

/// A node of the transport that drops or alters some frames just before they are sent.
#[derive(Debug)]
pub struct FaultInjector {
    node: Node,
    drop_probability: f64,
    alter_probability: f64,
    stream: Stream,
    dropped: u64,
    altered: u64,
    /// Whether forward error correction is enabled.
    has_fec: bool,
}

impl FaultInjector {
    /// Wraps `node` with the faults that the plan requests, drawn from `stream`.
    pub fn new(node: Node, protocol: &Protocol, stream: Stream) -> Self {
        let (drop_probability, alter_probability, has_fec) = match protocol {
            Protocol::Guaranteed { drop, alter, fec, .. } => (*drop, *alter, fec.is_some()),
            _ => (0.0, 0.0, false),
        };
        FaultInjector { node, drop_probability, alter_probability, stream, dropped: 0, altered: 0, has_fec }
    }

    /// Returns the node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Drops and alters frames of a batch. Returns the rest of the batch, unless it is empty.
    fn inject_faults(&mut self, transmit: Transmit, buffer: &mut [u8]) -> Option<Transmit> {
        let length = transmit.segment.map_or(transmit.length, Segment::length).max(1);
        let (mut from, mut to) = (0, 0);
        while from < transmit.length {
            let end = (from + length).min(transmit.length);
            if self.drop_probability > 0.0 && self.stream.chance(self.drop_probability) {
                self.dropped += 1;
            } else {
                buffer.copy_within(from..end, to);
                if self.alter_probability > 0.0 && self.stream.chance(self.alter_probability) {
                    // The last byte belongs to the checksum.
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

impl Endpoint for FaultInjector {
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
                Output::Transmit(transmit) if self.drop_probability > 0.0 || self.alter_probability > 0.0 => {
                    if let Some(rest) = self.inject_faults(transmit, buffer) {
                        return Output::Transmit(rest);
                    }
                }
                output => return output,
            }
        }
    }
}

/// Returns the counters of one end, with the prefix `SIDE_`.
pub fn counters(end: &FaultInjector, ids: &[ConnectionId], side: &str) -> Metrics {
    let mut counters = Metrics::new();
    for id in ids {
        let statistics = end.node.statistics(*id).unwrap_or_default();
        let repairs = statistics.repair_counters().into_iter().filter(|_| end.has_fec);
        for (name, count) in statistics.counters().into_iter().chain(repairs) {
            *counters.entry(format!("{side}_{name}")).or_default() += count as f64;
        }
    }
    counters.insert(format!("{side}_frames_eaten"), end.dropped as f64);
    counters.insert(format!("{side}_checksums_altered"), end.altered as f64);
    counters
}
