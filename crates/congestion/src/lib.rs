//! Congestion controllers: how much may be in flight, and how fast it is sent.
//!
//! A [`Controller`] is a state machine behind one trait. It opens no socket and reads no clock; random numbers follow from a
//! seed that its creator gives. TCP and the guaranteed transport use the same controllers.
//!
//! Amounts are in the unit of the transport, whose segment length [`Bounds::segment`] is given when a controller is
//! created: TCP counts bytes with its maximum segment size as the segment, the guaranteed transport counts frames with a
//! segment of 1. Growth of less than a unit accumulates.
//!
//! | controller | window | pace |
//! | --- | --- | --- |
//! | [`Fixed`] | constant, as in the 1998 paper | none |
//! | [`Net2`] | 4.3BSD Reno in bytes, with the arithmetic of Net/2 or RFC 2581 | none |
//! | [`Reno`] | slow start, then one segment more per round trip; halved on loss (RFC 5681, RFC 3465) | none |
//! | [`Cubic`] | a cubic function of the time since the last reduction, by 0.3 (RFC 9438) | none |
//! | [`LinuxCubic`] | the same with the arithmetic and the slow start of Linux | none |
//! | [`Dctcp`] | reduced by half of the share of marked segments (RFC 8257) | none |
//! | [`Bbr`], [`Bbr3`] | twice the bandwidth-delay product; version 3 bounds it by the losses that it causes | measured delivery rate |
//! | [`Prague`] | as DCTCP, with less dependence on the round-trip time (draft-briscoe-iccrg-prague-congestion-control) | the window in a round trip |
//! | [`Paced`], after BBR | twice the bandwidth-delay product, plus frames awaiting delayed or aggregated acknowledgements | measured delivery rate |
//! | [`TcpFriendly`] | the lesser of `Paced` and CUBIC, whose window random loss does not reduce | as `Paced` |
//!
//! To add a controller, implement [`Controller`] in a file of this crate. A variant of [`Algorithm`] makes it an option of
//! TCP, and one of `Congestion` in `arq` an option of the guaranteed transport. The row "a congestion controller" in
//! ARCHITECTURE.md lists what makes it an option of the language.
//!
//! | module | contents |
//! | --- | --- |
//! | `fixed`, `net2`, `reno`, `cubic`, `dctcp`, `prague`, `bbr`, `paced` | the controllers |
//! | `hystart` | HyStart++, the end of slow start by delay (RFC 9406) |
//! | `linux_cubic`, `linux_hystart` | CUBIC and HyStart as Linux has them |
//! | `path`, `windowed_max` | for controllers that model the path: round trips, aggregation of acknowledgements, maxima |
//! | `windowed_min` | [`WindowedMin`]: a minimum over a time window |
//! | `line`, `tests` | a bottleneck link for tests; properties of all controllers |

use trunkline_units::{Instant, Rate, Span};

mod bbr;
mod cubic;
mod dctcp;
mod fixed;
mod hystart;
#[cfg(test)]
mod line;
mod linux_cubic;
mod linux_hystart;
mod net2;
mod paced;
mod path;
mod prague;
mod reno;
mod windowed_max;
mod windowed_min;

pub use bbr::{Bbr, Bbr3};
pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use fixed::Fixed;
pub use linux_cubic::LinuxCubic;
pub use net2::{Arithmetic, Net2};
pub use paced::{Paced, TcpFriendly};
pub use prague::Prague;
pub use reno::Reno;
pub use windowed_min::{MIN_RTT_WINDOW, WindowedMin};

/// A congestion controller. It determines the *limits* of a sender, [`window`](Controller::window) and
/// [`pace`](Controller::pace), from what happens to the sender's data.
///
/// An implementation writes `window`, `on_ack` and `on_lost`; see [`Reno`] for a short one. It overrides `pace` if it
/// paces, and the other reports if it uses them.
///
/// The transport calls
///
/// - `on_handshake` at most once, before all others;
/// - `on_sent` for each batch of sent data;
/// - `on_ack` for each acknowledgement of new data;
/// - `on_lost` for each detected loss, except of data that is lost because it became longer than the path MTU;
/// - `on_idle` before it sends again after an idle period, and `on_spurious` if losses were none; the guaranteed transport
///   reports neither.
///
/// It reads the limits at the start, after `on_handshake`, `on_lost`, `on_idle` and `on_spurious`, and after `on_ack` if
/// that returned true. So `on_sent` must not change them. With forward error correction both limits include the repair
/// frames.
pub trait Controller: Send + std::fmt::Debug {
    /// Returns the maximum amount in flight, at least one segment.
    fn window(&self) -> u32;

    /// Returns the slow start threshold; `None` if the controller has none.
    fn threshold(&self) -> Option<u32> {
        None
    }

    /// Returns the pacing rate of the bytes that [`Transmission::bytes`] counts, never 0; `None`: as fast as the window
    /// permits.
    fn pace(&self) -> Option<Rate> {
        None
    }

    /// Returns whether the window holds while losses are repaired. If not, TCP reduces the amount in flight to it in proportion
    /// to what arrives (RFC 6937).
    fn controls_recovery(&self) -> bool {
        false
    }

    /// Sets the slow start threshold of a new controller; unlimited otherwise. Ignored by a controller without one.
    fn set_threshold(&mut self, _amount: u32) {}

    /// Reports the round-trip time of the handshake. Later round trips may all include queueing at this end or the
    /// peer.
    fn on_handshake(&mut self, _now: Instant, _round_trip: Span) {}

    /// Reports sent data. Must not change the limits.
    fn on_sent(&mut self, _sent: &Transmission) {}

    /// Reports acknowledged data; returns whether the limits may have changed.
    fn on_ack(&mut self, acked: &Acknowledgement) -> bool;

    /// Reports lost data. It will be retransmitted, or forward error correction has recovered it.
    fn on_lost(&mut self, lost: &Loss);

    /// Reports that nothing was in flight for a retransmission timeout: the window says nothing about the path any more
    /// (RFC 5681 section 4.1).
    fn on_idle(&mut self, _now: Instant) {}

    /// Reports that the data of the last reported losses had arrived after all (RFC 9438 section 4.9).
    fn on_spurious(&mut self, _now: Instant) {}
}

/// Bounds of a window, in the unit of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Length of a full segment, at least 1.
    pub segment: u32,
    /// Initial window (RFC 6928: ten segments).
    pub initial: u32,
    /// Maximum window.
    pub max: u32,
}

/// Adds a sample to a smoothed round-trip time, which is zero without samples (RFC 6298 section 2).
fn smooth(smoothed: &mut Span, round_trip: Option<Span>) {
    if let Some(round_trip) = round_trip {
        *smoothed = match smoothed.is_zero() {
            true => round_trip,
            false => *smoothed - *smoothed / 8 + round_trip / 8,
        };
    }
}

impl Bounds {
    /// Returns bounds with an initial window of ten segments (RFC 6928).
    pub fn new(segment: u32, max: u32) -> Bounds {
        Bounds { segment, initial: segment.saturating_mul(10), max }
    }

    /// Returns the bounds with one segment, of at least 1, as the minimum of each window.
    fn valid(self) -> Bounds {
        let segment = self.segment.clamp(1, 1 << 30);
        let max = self.max.max(segment);
        Bounds { segment, max, initial: self.initial.clamp(segment, max) }
    }
}

/// Selects a controller that needs nothing but its bounds and works with any transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// [`Reno`].
    Reno,
    /// [`Reno::in_segments`].
    LinuxReno,
    /// [`Cubic`], with HyStart++ (RFC 9406) or without.
    Cubic {
        /// Whether slow start ends by HyStart++.
        hystart: bool,
        /// Whether it grows at least as fast as Reno would (RFC 9438 section 4.3).
        reno_friendly: bool,
    },
    /// [`LinuxCubic`].
    LinuxCubic,
    /// [`Dctcp`].
    Dctcp,
    /// [`Bbr`], version 1.
    Bbr {
        /// Seed of its random numbers.
        seed: u64,
    },
    /// [`Bbr3`], version 3.
    Bbr3 {
        /// Seed of its random numbers.
        seed: u64,
    },
    /// [`Prague`].
    Prague,
}

impl Algorithm {
    /// [`Cubic`] with the slow start of RFC 5681.
    pub const CUBIC: Algorithm = Algorithm::Cubic { hystart: false, reno_friendly: true };

    /// All algorithms.
    pub const ALL: [Algorithm; 9] = [
        Algorithm::Reno,
        Algorithm::LinuxReno,
        Algorithm::CUBIC,
        Algorithm::Cubic { hystart: true, reno_friendly: true },
        Algorithm::LinuxCubic,
        Algorithm::Dctcp,
        Algorithm::Prague,
        Algorithm::Bbr { seed: 1996 },
        Algorithm::Bbr3 { seed: 1996 },
    ];

    /// Creates the controller.
    pub fn controller(self, bounds: Bounds) -> Box<dyn Controller> {
        match self {
            Algorithm::Reno => Box::new(Reno::new(bounds)),
            Algorithm::LinuxReno => Box::new(Reno::in_segments(bounds)),
            Algorithm::Cubic { hystart, reno_friendly } => {
                let cubic = if hystart { Cubic::with_hystart(bounds) } else { Cubic::new(bounds) };
                Box::new(if reno_friendly { cubic } else { cubic.without_reno_friendly_region() })
            }
            Algorithm::LinuxCubic => Box::new(LinuxCubic::new(bounds)),
            Algorithm::Dctcp => Box::new(Dctcp::new(bounds)),
            Algorithm::Prague => Box::new(Prague::new(bounds)),
            Algorithm::Bbr { seed } => Box::new(Bbr::new(bounds, seed)),
            Algorithm::Bbr3 { seed } => Box::new(Bbr3::new(bounds, seed)),
        }
    }
}

/// Sent data.
#[derive(Clone, Copy, Debug)]
pub struct Transmission {
    /// When it was sent.
    pub now: Instant,
    /// Its amount; 0 for parts that do not complete their frame.
    pub amount: u32,
    /// Its bytes. The guaranteed transport includes frame header and check, without the headers of UDP and IP.
    pub bytes: u64,
    /// Amount in flight, including this.
    pub in_flight: u32,
}

/// Acknowledged data.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledgement {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// Amount acknowledged for the first time. Frames that forward error correction rebuilt do not count, so it may be 0.
    pub amount: u32,
    /// Its bytes, as in [`Transmission::bytes`].
    pub bytes: u64,
    /// Of the amount, what the path has marked as having met congestion (RFC 3168), as far as the transport knows: with
    /// the feedback of RFC 3168 all or nothing.
    pub marked: u32,
    /// Amount in flight before the acknowledgement.
    pub in_flight: u32,
    /// Measured round-trip time without the peer's acknowledgement delay; `None` if unknown.
    pub round_trip: Option<Span>,
    /// Delivery rate between the sending of the last of this data and now (Cheng and Cardwell, delivery rate estimation);
    /// `None` if unknown.
    pub rate: Option<Rate>,
    /// Whether the application limits the rate. TCP knows it of the data that `rate` measures: while the data was in flight,
    /// the application had none for a window with room. The guaranteed transport knows whether all data is sent now.
    pub app_limited: bool,
    /// What has happened since the last of this data was sent.
    pub since_sent: SinceSent,
    /// Whether the transport repairs losses: the window must not grow (RFC 5681 section 3.2).
    pub in_recovery: bool,
    /// New data received from the peer since the previous call of `on_ack`.
    pub peer_amount: u32,
    /// When the last of this data was sent. A round trip is over at the acknowledgement of data that was sent after the
    /// acknowledgement that began it.
    pub sent_at: Instant,
}

/// What has happened between the sending of data and its report, and what was in flight then (draft-ietf-ccwg-bbr section
/// 4.1.2.1: `RS.delivered`, `RS.lost`, `RS.tx_in_flight`); all 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinceSent {
    /// Amount delivered since, including what is reported.
    pub delivered: u32,
    /// Amount lost since, including what is reported.
    pub lost: u32,
    /// Amount in flight when it was sent, including itself.
    pub in_flight: u32,
}

/// Lost data.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// When the loss was detected.
    pub now: Instant,
    /// Its amount.
    pub amount: u32,
    /// Its bytes, as in [`Transmission::bytes`]; an estimate for frames that forward error correction rebuilt.
    pub bytes: u64,
    /// When the last of it was sent. A controller that reduces its window ignores losses of data sent before it last did
    /// so.
    pub sent_at: Instant,
    /// Amount in flight before the loss was detected.
    pub in_flight: u32,
    /// Whether it was detected by a timeout (RFC 5681 section 3.1).
    pub timeout: bool,
    /// What has happened since the last of it was sent.
    pub since_sent: SinceSent,
}

/// Returns whether a sender uses its window, so that acknowledgements show that the path carries more: at least half of it
/// is in flight (RFC 9438 section 5.8 leaves the criterion open).
fn is_used(acked: &Acknowledgement, window: u32) -> bool {
    acked.in_flight >= window / 2
}

#[cfg(test)]
mod tests;
