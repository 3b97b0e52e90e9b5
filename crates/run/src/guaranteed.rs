//! The guaranteed transport in experiments.
//!
//! [`options`] and [`faults`] translate a plan, and [`counters`] returns the variables of table 2 of Guaranteed ATM (1998).

use trunkline_arq::{Check, Congestion, FaultCounts, Faults, Fec, Mode, Options, Statistics};
use trunkline_experiment::plan::{ArqCongestion, ArqMode, Checksum, Protocol};
use trunkline_units::{Size, Span, Stream};

use crate::reports::Metrics;

/// The send buffer of a plan that sets none; more than that of the crate, for simulated paths of any length.
const DEFAULT_SEND_BUFFER: usize = 4 << 20;

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
            ArqCongestion::Cubic => Congestion::Cubic,
            ArqCongestion::Paced => Congestion::Paced,
            ArqCongestion::TcpFriendly => Congestion::TcpFriendly,
            ArqCongestion::Bbr => Congestion::Bbr,
            ArqCongestion::Bbr3 => Congestion::Bbr3,
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
    options.send_buffer = send_buffer.map_or(DEFAULT_SEND_BUFFER, |buffer| buffer.as_bytes() as usize);
    if let Some(buffer) = receive_buffer {
        let bytes = u32::try_from(buffer.as_bytes()).unwrap_or(u32::MAX);
        (options.credit, options.channel_credit) = (bytes, bytes);
    }
    Some(options)
}

/// Returns the faults that a plan injects, with random numbers from `random`.
pub fn faults(protocol: &Protocol, random: Stream) -> Faults {
    let (drop, alter) = match protocol {
        Protocol::Guaranteed { drop, alter, .. } => (*drop, *alter),
        _ => (0.0, 0.0),
    };
    Faults { drop, alter, random }
}

/// Returns the counters of one end, with the prefix `SIDE_`: of its connections, and of the faults that it injected.
pub fn counters(
    protocol: &Protocol,
    connections: impl IntoIterator<Item = Statistics>,
    faults: FaultCounts,
    side: &str,
) -> Metrics {
    let has_fec = matches!(protocol, Protocol::Guaranteed { fec: Some(_), .. });
    let mut counters = Metrics::new();
    for statistics in connections {
        let repairs = statistics.repair_counters().into_iter().filter(|_| has_fec);
        for (name, count) in statistics.counters().into_iter().chain(repairs) {
            *counters.entry(format!("{side}_{name}")).or_default() += count as f64;
        }
    }
    counters.insert(format!("{side}_frames_eaten"), faults.dropped as f64);
    counters.insert(format!("{side}_checksums_altered"), faults.altered as f64);
    counters
}
