//! The direction in which packets were lost, from the sequence numbers of a stateful reflector (RFC 8762 section 4.3).

/// Lost packets by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that did not reach the reflector.
    pub forward: u64,
    /// Answers that did not reach the sender.
    pub backward: u64,
    /// Packets after the last one that was answered: no answer says whether they reached the reflector.
    pub unknown: u64,
}

/// Tracks the sequence numbers of both ends.
///
/// A stateless reflector copies the sender's number, a stateful one counts what it reflects. Both look the same until a
/// packet is lost on the way to the reflector.
#[derive(Clone, Debug)]
pub(crate) struct LossTracker {
    is_stateful: bool,
    /// The reflector's number of the sender's packet 0, if nothing was lost before the first answer.
    base: Option<u32>,
    /// One more than the highest number of an answer, from the base.
    reflected_next: u64,
    /// One more than the highest number of an answered packet.
    answered_next: u64,
    /// Packets that the reflector received again.
    forward_duplicates: u64,
}

impl LossTracker {
    /// Creates a tracker; `is_stateful` if the reflector is known to count.
    pub fn new(is_stateful: bool) -> LossTracker {
        LossTracker { is_stateful, base: None, reflected_next: 0, answered_next: 0, forward_duplicates: 0 }
    }

    /// Records an answer to packet `sequence` with the number `reflected`. `earlier` is the number of an earlier answer to
    /// the same packet.
    pub fn record(&mut self, sequence: u64, reflected: u32, earlier: Option<u32>) {
        // A reflector that served this session before begins above 0: it cannot have reflected more than was sent.
        let offset = reflected.wrapping_sub(sequence as u32);
        let base = *self.base.get_or_insert(if (offset as i32) > 0 { offset } else { 0 });
        self.is_stateful |= offset != base;
        self.forward_duplicates += u64::from(earlier.is_some_and(|earlier| earlier != reflected));
        let number = extend(reflected.wrapping_sub(base), self.reflected_next);
        self.reflected_next = self.reflected_next.max(number.map_or(0, |number| number.saturating_add(1)));
        self.answered_next = self.answered_next.max(sequence + 1);
    }

    /// Returns the losses of `sent` packets of which `answered` were answered. `None` if packets were lost and the
    /// reflector may be stateless.
    pub fn losses(&self, sent: u64, answered: u64) -> Option<Losses> {
        let unknown = sent.saturating_sub(self.answered_next);
        if !self.is_stateful && answered < self.answered_next {
            return None;
        }
        let reflected = self.reflected_next.saturating_sub(self.forward_duplicates);
        let reached = if self.is_stateful { reflected.clamp(answered, self.answered_next) } else { answered };
        Some(Losses { forward: self.answered_next - reached, backward: reached - answered, unknown })
    }
}

/// Returns the number with the low 32 bits `low` that is nearest to `expected`; `None` if it would be negative.
pub fn extend(low: u32, expected: u64) -> Option<u64> {
    let distance = low.wrapping_sub(expected as u32) as i32;
    expected.checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records answers `(sequence, reflected)`, all to different packets.
    fn losses(is_stateful: bool, answers: &[(u64, u32)], sent: u64) -> Option<Losses> {
        let mut tracker = LossTracker::new(is_stateful);
        answers.iter().for_each(|(sequence, reflected)| tracker.record(*sequence, *reflected, None));
        tracker.losses(sent, answers.len() as u64)
    }

    #[test]
    fn losses_have_directions() {
        let expect = |forward, backward, unknown| Some(Losses { forward, backward, unknown });
        assert_eq!(losses(false, &[(0, 0), (1, 1)], 2), expect(0, 0, 0));
        // Packet 1 did not arrive; the answer to packet 3 was lost; after packet 4 there is no answer.
        assert_eq!(losses(false, &[(0, 0), (2, 1), (4, 3)], 7), expect(1, 1, 2));
        assert_eq!(losses(false, &[], 5), expect(0, 0, 5));
        // Out of order.
        assert_eq!(losses(false, &[(4, 3), (0, 0), (2, 1)], 5), expect(1, 1, 0));
    }

    #[test]
    fn a_stateless_reflector_shows_no_direction() {
        assert_eq!(losses(false, &[(0, 0), (2, 2)], 3), None);
        assert_eq!(losses(true, &[(0, 0), (2, 2)], 3), Some(Losses { backward: 1, ..Losses::default() }));
    }

    #[test]
    fn a_reflector_that_counts_from_elsewhere_is_aligned() {
        let start = 0x7fff_fffe_u32;
        let answers = |numbers: &[(u64, u32)]| -> Vec<(u64, u32)> {
            numbers.iter().map(|(sequence, n)| (*sequence, start.wrapping_add(*n))).collect()
        };
        let backward = answers(&[(0, 0), (2, 2), (3, 3)]);
        assert_eq!(losses(true, &backward, 4), Some(Losses { backward: 1, ..Losses::default() }));
        let forward = answers(&[(0, 0), (2, 1), (3, 2)]);
        assert_eq!(losses(false, &forward, 4), Some(Losses { forward: 1, ..Losses::default() }));
    }

    #[test]
    fn a_packet_that_arrives_twice_is_no_loss_less() {
        let mut tracker = LossTracker::new(true);
        tracker.record(0, 0, None);
        tracker.record(0, 1, Some(0));
        tracker.record(2, 2, None);
        assert_eq!(tracker.losses(3, 2), Some(Losses { forward: 1, ..Losses::default() }));
        // The same answer again was duplicated on the way back.
        tracker.record(2, 2, Some(2));
        assert_eq!(tracker.losses(3, 2), Some(Losses { forward: 1, ..Losses::default() }));
    }

    #[test]
    fn numbers_continue_after_32_bits() {
        assert_eq!(extend(0, u64::from(u32::MAX)), Some(1 << 32));
        assert_eq!(extend(u32::MAX, 1 << 32), Some(u64::from(u32::MAX)));
        assert_eq!(extend(u32::MAX, 0), None);
    }
}
