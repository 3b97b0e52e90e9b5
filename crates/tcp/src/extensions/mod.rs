//! What 4.3BSD does not have: selective acknowledgement, timestamps, ECN, other congestion controllers.
//!
//! An end has this state only if its options ask for it, in a box, so that the others pay nothing.
//!
//! | module | contents |
//! | --- | --- |
//! | `scoreboard` | the segments in flight (RFC 6675) |
//! | `recovery` | acknowledgements, loss detection and recovery (RFC 6675, RFC 6582, RFC 6937), timeout |
//! | `probe` | tail loss probes (RFC 8985) |
//! | `rack` | loss detection by time (RFC 8985) |
//! | `rate` | delivery rate samples and departure times of paced segments |
//! | `accurate` | the counters of Accurate ECN (RFC 9768) |
//! | `bursts` | bursts of segments, as Linux sends them |
//! | `quick_ack` | when Linux acknowledges each segment |
//! | `receiver` | blocks to report, timestamps, ECN feedback; options of sent and received segments |

use std::collections::VecDeque;

use trunkline_congestion::{Algorithm, Bounds, Controller, Loss, MIN_RTT_WINDOW, WindowedMin};
use trunkline_endpoint::Ecn;
use trunkline_units::Instant;

use crate::options::{EcnFeedback, Options, Timers};
use crate::segment::{SegmentOptions, Seq};
use accurate::AccurateEcn;
use bursts::Burst;
use probe::Probe;
use quick_ack::QuickAck;
use rack::Rack;
use scoreboard::{Losses, Scoreboard};

pub(crate) mod accurate;
mod bursts;
pub(crate) mod probe;
mod quick_ack;
pub(crate) mod rack;
pub(crate) mod rate;
pub(crate) mod receiver;
pub(crate) mod recovery;
pub(crate) mod scoreboard;

/// Number of selective acknowledgement blocks that are reported first: the most recent (RFC 2018 section 4).
const RECENT_BLOCKS: usize = 4;

/// What the sender does about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is lost.
    Open,
    /// Losses are repaired until this number is acknowledged.
    Recovery { end: Seq },
    /// The same after a timeout: the window starts at one segment and grows.
    Timeout { end: Seq },
}

/// Proportional rate reduction (RFC 6937) with its slow start reduction bound: the window of fast recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RateReduction {
    /// Bytes in flight at the start (`RecoverFS`).
    flight: u32,
    /// Bytes delivered and sent since.
    delivered: u64,
    sent: u64,
    /// The window.
    window: u32,
}

impl RateReduction {
    fn start(flight: u32) -> RateReduction {
        RateReduction { flight: flight.max(1), ..RateReduction::default() }
    }

    /// Computes the window after an acknowledgement of `delivered` bytes. `target` is the reduced window.
    fn update(&mut self, delivered: u32, pipe: u32, target: u32, mss: u32) {
        self.delivered += u64::from(delivered);
        let more = if pipe > target {
            let share = (self.delivered * u64::from(target)).div_ceil(u64::from(self.flight));
            share.saturating_sub(self.sent)
        } else {
            let limit = self.delivered.saturating_sub(self.sent).max(u64::from(delivered)) + u64::from(mss);
            limit.min(u64::from(target - pipe))
        };
        // The first retransmission of a recovery leaves at once.
        let least = if self.sent == 0 { mss } else { 0 };
        self.window = pipe.saturating_add(u32::try_from(more).unwrap_or(u32::MAX).max(least));
    }
}

/// Timestamps of a connection (RFC 7323).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    /// Timestamp to echo (`TS.Recent`), and when it was received.
    pub(crate) recent: u32,
    pub(crate) recent_at: Instant,
}

/// State of the extensions.
#[derive(Debug)]
pub(crate) struct Extensions {
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) scoreboard: Scoreboard,
    pub(crate) phase: Phase,
    reduction: RateReduction,
    /// Both ends permit selective acknowledgements.
    pub(crate) sack: bool,
    /// Both ends send timestamps.
    pub(crate) timestamps: Option<Timestamps>,
    /// Both ends use ECN.
    pub(crate) ecn: Option<EcnFeedback>,
    /// Both ends use Accurate ECN.
    accurate: Option<AccurateEcn>,
    /// Options of the segment that is being processed, whether it reports congestion (ECE), and its field ACE.
    pub(crate) received: SegmentOptions,
    received_echo: bool,
    received_ace: u8,
    /// ECN field of the peer's SYN.
    syn_ecn: Ecn,
    /// ECN field of the frames that are received next, and of the last segment that was sent.
    pub(crate) received_ecn: Ecn,
    pub(crate) sent_ecn: Ecn,
    /// Congestion to report to the peer: until it confirms (RFC 3168), or while segments arrive marked (RFC 8257).
    congestion_seen: bool,
    /// Acknowledgements of what arrived before changes of `congestion_seen`, each with its value before (RFC 8257 section 3.2).
    pub(crate) early_acks: VecDeque<(Seq, bool)>,
    /// The next new segment confirms a reduction of the window (CWR).
    confirm_reduction: bool,
    /// Marks of data before this number have been answered.
    marks_answered: Option<Seq>,
    /// Starts of the blocks that grew last, the latest first.
    recent_blocks: [Option<Seq>; RECENT_BLOCKS],
    /// Duplicate acknowledgements without selective ones: each shows that a segment has left the network.
    duplicates: u32,
    /// Whether this recovery has retransmitted; until the first retransmission is acknowledged, its timestamp and start.
    retransmitted: bool,
    first_retransmission: Option<(u32, Seq)>,
    probe: Probe,
    rack: Rack,
    /// State of the decision to acknowledge each segment, as Linux makes it; none with other ends.
    pub(crate) quick_ack: Option<QuickAck>,
    /// The segments that leave at once, as in Linux; none with other ends.
    burst: Burst,
    /// The retransmission timer expired during the handshake.
    pub(crate) handshake_timeout: bool,
    /// When the next paced segment may leave.
    departure: Instant,
    /// Minimum round-trip time.
    min_rtt: WindowedMin,
}

impl Extensions {
    pub(crate) fn new(options: &Options) -> Extensions {
        let mss = u32::from(options.mss);
        Extensions {
            controller: options.algorithm().controller(Bounds { segment: mss, initial: mss, max: mss }),
            scoreboard: Scoreboard::default(),
            phase: Phase::Open,
            reduction: RateReduction::default(),
            sack: options.sack,
            timestamps: None,
            ecn: None,
            accurate: None,
            received: SegmentOptions::default(),
            received_echo: false,
            received_ace: 0,
            syn_ecn: Ecn::NotEct,
            received_ecn: Ecn::NotEct,
            sent_ecn: Ecn::NotEct,
            congestion_seen: false,
            early_acks: VecDeque::new(),
            confirm_reduction: false,
            marks_answered: None,
            recent_blocks: [None; RECENT_BLOCKS],
            duplicates: 0,
            retransmitted: false,
            first_retransmission: None,
            probe: Probe::default(),
            rack: Rack::default(),
            quick_ack: options.linux.then(QuickAck::default),
            burst: Burst::default(),
            handshake_timeout: false,
            departure: Instant::ZERO,
            min_rtt: WindowedMin::new(MIN_RTT_WINDOW),
        }
    }

    /// Creates the controller after the handshake has set the segment size.
    pub(crate) fn negotiated(&mut self, options: &Options, segment: u32, max: u32) {
        // A lost SYN is a sign of congestion (RFC 5681 section 3.1).
        let segments = if self.handshake_timeout { 1 } else { options.initial_window };
        let initial = segment.saturating_mul(segments.into());
        let algorithm = match options.algorithm() {
            // It needs to know what is marked; without that it must behave as classic TCP (RFC 9331 section 4.3).
            Algorithm::Prague if self.accurate.is_none() => Algorithm::Reno,
            algorithm => algorithm,
        };
        self.controller = algorithm.controller(Bounds { segment, initial, max });
        if let Some(threshold) = options.initial_ssthresh {
            self.controller.set_threshold(threshold);
        }
        // Not of Prague: with its pace round trips are longer at the 99th percentile beside classic traffic.
        self.scoreboard.rate.is_measured =
            matches!(algorithm, Algorithm::Bbr { .. } | Algorithm::Bbr3 { .. });
        let has_exact_timers = matches!(options.timers, Timers::Fine { .. });
        self.rack.is_active = self.sack && options.congestion.is_some() && has_exact_timers;
    }

    /// Returns the congestion window, in bytes.
    #[inline]
    pub(crate) fn window(&self) -> u32 {
        match self.phase {
            Phase::Recovery { .. } if !self.controller.controls_recovery() => self.reduction.window,
            _ => self.controller.window(),
        }
    }

    /// Reports lost data to the controller.
    fn report_loss(&mut self, now: Instant, losses: Losses, in_flight: u32, timeout: bool) {
        let Losses { bytes: amount, sent_at, state } = losses;
        let since_sent = self.scoreboard.rate.on_lost(amount, state.as_ref());
        let bytes = amount.into();
        self.controller.on_lost(&Loss { now, amount, bytes, sent_at, in_flight, timeout, since_sent });
    }

    /// Returns the bytes in the network. Without selective acknowledgements each duplicate stands for a segment that has
    /// left it.
    #[inline]
    pub(crate) fn pipe(&self, mss: u32) -> u32 {
        let pipe = self.scoreboard.pipe();
        if self.sack { pipe } else { pipe.saturating_sub(self.duplicates.saturating_mul(mss)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    /// RFC 6937 section 4: while more is in flight than the reduced window, it sends in the proportion of both.
    #[test]
    fn rate_is_reduced_in_proportion() {
        for target in [70, 50, 25] {
            let (mut reduction, mut pipe, mut sent) = (RateReduction::start(100 * MSS), 100 * MSS, 0);
            // Each acknowledgement of a segment is processed before the answer is sent.
            for _ in 0..100 {
                pipe -= MSS;
                reduction.update(MSS, pipe, target * MSS, MSS);
                while reduction.window.saturating_sub(pipe) >= MSS {
                    (pipe, sent) = (pipe + MSS, sent + 1);
                    reduction.sent += u64::from(MSS);
                }
            }
            assert!((target - 1..=target + 1).contains(&sent), "{sent} sent instead of {target}");
            assert!((target - 1..=target + 1).contains(&(pipe / MSS)), "{pipe} in flight");
        }
    }

    /// Below the reduced window it grows as slow start does, and never beyond it.
    #[test]
    fn window_grows_to_the_target() {
        let mut reduction = RateReduction::start(100 * MSS);
        reduction.sent = 1;
        let mut pipe = 10 * MSS;
        for _ in 0..60 {
            reduction.update(MSS, pipe, 50 * MSS, MSS);
            assert!(reduction.window <= (50 * MSS).max(pipe), "{reduction:?}");
            let more = reduction.window - pipe;
            assert!(more <= 2 * MSS, "{reduction:?}");
            (pipe, reduction.sent) = (pipe + more, reduction.sent + u64::from(more));
        }
        assert_eq!(pipe, 50 * MSS);
    }
}
