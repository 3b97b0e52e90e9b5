//! Congestion policies: how much may be in flight, and how fast it is sent.
//!
//! | policy | window | pace |
//! | --- | --- | --- |
//! | [`Fixed`] | constant, as in the 1998 paper | none |
//! | [`Reno`] | slow start, then one frame per round trip; halved on loss (RFC 5681, in frames) | none |
//! | [`Paced`] | twice the bandwidth-delay product, plus late acknowledgements | delivery rate |

use trunkline_units::{Instant, Rate, Span};

mod fixed;
#[cfg(test)]
mod line;
mod paced;
mod reno;

pub use fixed::Fixed;
pub use paced::Paced;
pub use reno::Reno;

/// A congestion policy: the window and the pace of a sender. To add one, implement this trait in a file of this
/// folder and add it to [`Congestion`](crate::options::Congestion).
///
/// The connection calls it for each sent batch, each acknowledgement, and each detected loss, never for single
/// frames. It respects the smaller of [`window`](Policy::window) and the negotiated window.
pub trait Policy: Send + std::fmt::Debug {
    /// Returns the maximum frames in flight, at least 1.
    fn window(&self) -> u32;

    /// Returns the pacing rate in bits per second of frames; `None`: as fast as the window permits.
    fn pace(&self) -> Option<Rate>;

    /// Reports the round-trip time of the handshake. Later round trips may all include queueing at this end or the
    /// peer.
    fn on_handshake(&mut self, _now: Instant, _round_trip: Span) {}

    /// Reports sent frames.
    fn on_sent(&mut self, sent: &SentFrames);

    /// Reports acknowledged frames.
    fn on_ack(&mut self, acked: &AckedFrames);

    /// Like [`on_ack`](Policy::on_ack); returns whether window or pace may have changed.
    fn on_ack_changes_limits(&mut self, acked: &AckedFrames) -> bool {
        self.on_ack(acked);
        true
    }

    /// Reports lost frames, which are retransmitted or were rebuilt.
    fn on_lost(&mut self, lost: &LostFrames);
}

/// Sent frames.
#[derive(Clone, Copy, Debug)]
pub struct SentFrames {
    /// Time of the event.
    pub now: Instant,
    /// Number of frames.
    pub frames: u32,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Frames in flight, including these.
    pub in_flight: u32,
}

/// Acknowledged frames.
#[derive(Clone, Copy, Debug)]
pub struct AckedFrames {
    /// Time of the event.
    pub now: Instant,
    /// Frames acknowledged for the first time.
    pub frames: u32,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Frames in flight before the acknowledgement.
    pub in_flight: u32,
    /// Measured round-trip time without the peer's delay; `None` if unknown.
    pub round_trip: Option<Span>,
    /// Delivery rate between the sending of the last of these frames and now (Cheng and Cardwell, delivery rate
    /// estimation); `None` if unknown.
    pub rate: Option<Rate>,
    /// Whether the rate is limited by the application.
    pub app_limited: bool,
    /// New data frames received since the peer's last acknowledgement.
    pub peer_frames: u32,
    /// When the last of these frames was sent; the first frame sent later ends their round.
    pub sent_at: Instant,
}

/// Lost frames.
#[derive(Clone, Copy, Debug)]
pub struct LostFrames {
    /// When the loss was detected.
    pub now: Instant,
    /// Number of frames.
    pub frames: u32,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// When the last of them was sent: a policy that halves its window does so once for all frames sent before.
    pub sent_at: Instant,
    /// Frames in flight before the loss was detected.
    pub in_flight: u32,
    /// Whether it was detected by a timeout (RFC 5681 section 3.1).
    pub timeout: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::{Seed, Stream};

    /// Draws any value, usually small.
    fn any(random: &mut Stream) -> u64 {
        random.bits() >> random.below(64)
    }

    fn moment(random: &mut Stream) -> Instant {
        Instant::from_ps(any(random))
    }

    #[test]
    fn window_and_pace_are_never_zero() {
        for seed in 0..300 {
            let mut random = Seed(seed).stream("anything");
            let most = (any(&mut random) as u32).max(1);
            let policies: [Box<dyn Policy>; 3] = [
                Box::new(Fixed::new(most)),
                Box::new(Reno::new(most)),
                Box::new(Paced::new(most, any(&mut random) as u32)),
            ];
            for mut policy in policies {
                for _ in 0..200 {
                    let now = moment(&mut random);
                    let (frames, bytes) = (any(&mut random) as u32, any(&mut random));
                    let (in_flight, sent_at) = (any(&mut random) as u32, moment(&mut random));
                    let round_trip = random.chance(0.9).then(|| Span::from_ps(any(&mut random)));
                    let rate = random.chance(0.9).then(|| Rate::from_bps(any(&mut random)));
                    let (idle, timeout) = (random.chance(0.1), random.chance(0.1));
                    match random.below(3) {
                        0 => policy.on_sent(&SentFrames { now, frames, bytes, in_flight }),
                        1 => policy.on_lost(&LostFrames { now, frames, bytes, sent_at, in_flight, timeout }),
                        _ => policy.on_ack(&AckedFrames {
                            now,
                            frames,
                            bytes,
                            in_flight,
                            round_trip,
                            rate,
                            app_limited: idle,
                            peer_frames: any(&mut random) as u32,
                            sent_at,
                        }),
                    }
                    assert!((1..=most).contains(&policy.window()), "seed {seed}: {policy:?}");
                    assert_ne!(policy.pace(), Some(Rate::from_bps(0)), "seed {seed}: {policy:?}");
                }
            }
        }
    }
}
