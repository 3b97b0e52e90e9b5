//! How much may be in flight, and how fast: the policies.
//!
//! | policy | window | pace |
//! | --- | --- | --- |
//! | [`Fixed`] | as many frames as it was told, as in 1998 | none |
//! | [`Reno`] | grows by slow start and one frame a round, halves on loss (RFC 5681, in frames) | none |
//! | [`Paced`] | twice what the measured rate and the least round trip hold, and what is acknowledged late | that rate |

use trunkline_units::{Instant, Rate, Span};

mod fixed;
#[cfg(test)]
mod line;
mod paced;
mod reno;

pub use fixed::Fixed;
pub use paced::Paced;
pub use reno::Reno;

/// Decides how many frames may be in flight and how fast they leave. A connection has one for what it sends.
///
/// The connection calls it once for each batch that it sends, each acknowledgement, and each time that it finds frames
/// lost; never for single frames. It holds to the smaller of [`window`](Policy::window) and the window agreed with the
/// peer.
pub trait Policy: Send + std::fmt::Debug {
    /// Frames that may be in flight, at least 1.
    fn window(&self) -> u32;

    /// How fast frames may leave, in bits per second of frames; none: as fast as the window lets them.
    fn pace(&self) -> Option<Rate>;

    /// The opening took a round trip, so long. Later ones may all have to wait: in what this end sends itself, or the
    /// peer.
    fn met(&mut self, _now: Instant, _round_trip: Span) {}

    /// Frames have just left.
    fn sent(&mut self, sent: &Sent);

    /// Frames have been acknowledged.
    fn acknowledged(&mut self, acked: &Acked);

    /// The same; whether what it allows may be other than before.
    fn reconsiders(&mut self, acked: &Acked) -> bool {
        self.acknowledged(acked);
        true
    }

    /// Frames are taken for lost. They will be sent again, or were rebuilt.
    fn lost(&mut self, lost: &Lost);
}

/// What a policy is told of frames that leave.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// When.
    pub now: Instant,
    /// How many.
    pub frames: u32,
    /// Their bytes, header included.
    pub bytes: u64,
    /// Frames in flight now, these included.
    pub in_flight: u32,
}

/// What a policy is told of frames that were acknowledged.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When.
    pub now: Instant,
    /// Frames acknowledged for the first time.
    pub frames: u32,
    /// Their bytes, header included.
    pub bytes: u64,
    /// Frames in flight before this.
    pub in_flight: u32,
    /// The round trip measured by it, the peer's delay taken off; none if it cannot be told.
    pub round_trip: Option<Span>,
    /// How fast bytes arrived at the peer between the sending of the last of these frames and now (Cheng and Cardwell,
    /// delivery rate estimation); none if it cannot be told.
    pub rate: Option<Rate>,
    /// Whether the sender had too little to send for that rate to be the path's.
    pub idle: bool,
    /// New frames of data that came from the peer since the last acknowledgement of its.
    pub came: u32,
    /// The first frame sent after this moment ends the round of these frames: when the last of them was sent.
    pub sent_at: Instant,
}

/// What a policy is told of loss.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When it was noticed.
    pub now: Instant,
    /// How many.
    pub frames: u32,
    /// Their bytes, header included.
    pub bytes: u64,
    /// When the last of them had been sent: a policy that halves does so once for all frames sent before it halved.
    pub sent_at: Instant,
    /// Frames in flight before they were found lost.
    pub in_flight: u32,
    /// Whether it was noticed only because nothing came for a whole timeout (RFC 5681 section 3.1).
    pub timeout: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::{Seed, Stream};

    /// Anything between nothing and everything, mostly small.
    fn any(random: &mut Stream) -> u64 {
        random.bits() >> random.below(64)
    }

    fn moment(random: &mut Stream) -> Instant {
        Instant::from_ps(any(random))
    }

    #[test]
    fn whatever_happens_a_policy_lets_something_leave() {
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
                        0 => policy.sent(&Sent { now, frames, bytes, in_flight }),
                        1 => policy.lost(&Lost { now, frames, bytes, sent_at, in_flight, timeout }),
                        _ => policy.acknowledged(&Acked {
                            now,
                            frames,
                            bytes,
                            in_flight,
                            round_trip,
                            rate,
                            idle,
                            came: any(&mut random) as u32,
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
