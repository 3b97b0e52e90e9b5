//! Congestion policies: how many frames may be in flight, and how fast they are sent.
//!
//! | policy | window | pace |
//! | --- | --- | --- |
//! | [`Fixed`] | constant, as in the 1998 paper | none |
//! | [`Reno`] | slow start, then one frame more per round trip; halved on loss (RFC 5681, in frames) | none |
//! | [`Paced`], after BBR | twice the bandwidth-delay product, plus frames awaiting delayed or aggregated acknowledgements | measured delivery rate |
//!
//! To add a policy, implement [`Policy`] in a file of this folder, and add a variant to
//! [`Congestion`](crate::options::Congestion), its list `ALL` and its function `policy`. The row "a congestion policy"
//! in ARCHITECTURE.md lists what makes it an option of the language.

use trunkline_units::{Instant, Rate, Span};

mod fixed;
#[cfg(test)]
mod line;
mod paced;
mod reno;

pub use fixed::Fixed;
pub use paced::Paced;
pub use reno::Reno;

/// A congestion policy. It determines the *limits* of a sender, [`window`](Policy::window) and
/// [`pace`](Policy::pace), from what happens to the sender's frames.
///
/// An implementation writes `window`, `on_ack` and `on_lost`; see [`Reno`] for a short one. It overrides `pace` if it
/// paces, and `on_handshake` and `on_sent` if it uses their reports.
///
/// The connection calls
///
/// - `on_handshake` at most once, before all others;
/// - `on_sent` for each batch of sent frames, for each single frame of the fast path, and for each batch of parts of a
///   frame that is longer than the path MTU;
/// - `on_ack` for each acknowledgement of new frames;
/// - `on_lost` for each detected loss, except frames that are lost because they became longer than the path MTU.
///
/// It reads the limits at the start, after `on_handshake` and `on_lost`, and after `on_ack` if that returned true. So
/// `on_sent` must not change them. At most as many frames are in flight as the policy's window and the negotiated
/// window permit. With forward error correction both limits include the repair frames.
pub trait Policy: Send + std::fmt::Debug {
    /// Returns the maximum number of frames in flight, at least 1.
    fn window(&self) -> u32;

    /// Returns the pacing rate of the bytes that [`SentFrames::bytes`] counts, never 0; `None`: as fast as the window
    /// permits.
    fn pace(&self) -> Option<Rate> {
        None
    }

    /// Reports the round-trip time of the handshake. Later round trips may all include queueing at this end or the
    /// peer.
    fn on_handshake(&mut self, _now: Instant, _round_trip: Span) {}

    /// Reports sent frames. Must not change the limits.
    fn on_sent(&mut self, _sent: &SentFrames) {}

    /// Reports acknowledged frames; returns whether the limits may have changed.
    fn on_ack(&mut self, acked: &AckedFrames) -> bool;

    /// Reports lost frames. They will be retransmitted, or forward error correction has recovered them.
    fn on_lost(&mut self, lost: &LostFrames);
}

/// Sent frames.
#[derive(Clone, Copy, Debug)]
pub struct SentFrames {
    /// When they were sent.
    pub now: Instant,
    /// Number of frames; 0 for parts that do not complete their frame.
    pub frames: u32,
    /// Their bytes with frame header and check, without the headers of UDP and IP.
    pub bytes: u64,
    /// Frames in flight, including these.
    pub in_flight: u32,
}

/// Acknowledged frames.
#[derive(Clone, Copy, Debug)]
pub struct AckedFrames {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// Number of frames acknowledged for the first time. Frames that forward error correction rebuilt do not count, so it
    /// may be 0.
    pub frames: u32,
    /// Their bytes, as in [`SentFrames::bytes`].
    pub bytes: u64,
    /// Frames in flight before the acknowledgement.
    pub in_flight: u32,
    /// Measured round-trip time without the peer's acknowledgement delay; `None` if unknown.
    pub round_trip: Option<Span>,
    /// Delivery rate between the sending of the last of these frames and now (Cheng and Cardwell, delivery rate
    /// estimation); `None` if unknown.
    pub rate: Option<Rate>,
    /// Whether the application limits the rate: all its data is sent.
    pub app_limited: bool,
    /// New data frames received from the peer since the previous call of `on_ack`.
    pub peer_frames: u32,
    /// When the last of these frames was sent. A round trip is over at the acknowledgement of a frame that was sent after
    /// the acknowledgement that began it.
    pub sent_at: Instant,
}

/// Lost frames.
#[derive(Clone, Copy, Debug)]
pub struct LostFrames {
    /// When the loss was detected.
    pub now: Instant,
    /// Number of frames.
    pub frames: u32,
    /// Their bytes, as in [`SentFrames::bytes`]; an estimate for frames that forward error correction rebuilt.
    pub bytes: u64,
    /// When the last of them was sent. A policy that halves its window ignores losses of frames sent before it last
    /// did so.
    pub sent_at: Instant,
    /// Frames in flight before the loss was detected.
    pub in_flight: u32,
    /// Whether it was detected by a timeout (RFC 5681 section 3.1).
    pub timeout: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Congestion;
    use trunkline_units::{Seed, Stream};

    /// Draws any value, usually small.
    fn any(random: &mut Stream) -> u64 {
        random.bits() >> random.below(64)
    }

    fn any_instant(random: &mut Stream) -> Instant {
        Instant::from_ps(any(random))
    }

    #[test]
    fn window_and_pace_are_never_zero() {
        for seed in 0..300 {
            let mut random = Seed(seed).stream("anything");
            let max_window = (any(&mut random) as u32).max(1);
            let ack_every = any(&mut random) as u32;
            for mut policy in Congestion::ALL.map(|congestion| congestion.policy(max_window, ack_every)) {
                for _ in 0..200 {
                    let now = any_instant(&mut random);
                    let (frames, bytes) = (any(&mut random) as u32, any(&mut random));
                    let (in_flight, sent_at) = (any(&mut random) as u32, any_instant(&mut random));
                    let round_trip = random.chance(0.9).then(|| Span::from_ps(any(&mut random)));
                    let rate = random.chance(0.9).then(|| Rate::from_bps(any(&mut random)));
                    let (app_limited, timeout) = (random.chance(0.1), random.chance(0.1));
                    match random.below(3) {
                        0 => policy.on_sent(&SentFrames { now, frames, bytes, in_flight }),
                        1 => policy.on_lost(&LostFrames { now, frames, bytes, sent_at, in_flight, timeout }),
                        _ => {
                            let peer_frames = any(&mut random) as u32;
                            let limits = (policy.window(), policy.pace());
                            let may_change = policy.on_ack(&AckedFrames {
                                now,
                                frames,
                                bytes,
                                in_flight,
                                round_trip,
                                rate,
                                app_limited,
                                peer_frames,
                                sent_at,
                            });
                            assert!(may_change || limits == (policy.window(), policy.pace()), "{policy:?}");
                        }
                    }
                    assert!((1..=max_window).contains(&policy.window()), "seed {seed}: {policy:?}");
                    assert_ne!(policy.pace(), Some(Rate::from_bps(0)), "seed {seed}: {policy:?}");
                }
            }
        }
    }
}
