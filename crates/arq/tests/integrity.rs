//! How many damaged frames pass for whole ones, and that the receiver of a connection refuses the others.

use crate::support::damage::{Damage, accepted};
use crate::support::manual_pair::{HOP, ManualPair};
use trunkline_arq::{Check, Fec, Options};
use trunkline_units::Seed;

const COUNT: u64 = 100_000;

#[test]
fn a_cyclic_check_passes_no_damaged_frame() {
    // Of 10^5 a CRC of 32 bits passes one with a chance of 2e-5; of up to four flipped bits none ever.
    for check in [Check::Crc32c, Check::Crc64] {
        for damage in [Damage::Words, Damage::Bits, Damage::Swap, Damage::SwapHalves] {
            assert_eq!(accepted(check, damage, COUNT, 1), 0, "{check:?} {damage:?}");
        }
    }
}

#[test]
fn the_sum_of_1998_passes_words_that_changed_places() {
    assert_eq!(accepted(Check::Folded, Damage::Words, COUNT, 1), 0);
    let swaps = accepted(Check::Folded, Damage::Swap, COUNT, 1) as f64;
    // A swap that changes nothing is drawn again, so all are accepted but for a last one.
    assert!(swaps > 0.9 * COUNT as f64, "{swaps}");
    let halves = accepted(Check::Folded, Damage::SwapHalves, COUNT, 1) as f64 / COUNT as f64;
    assert!((0.2..0.9).contains(&halves), "{halves}: a carry more or less is seen");
}

#[test]
fn a_receiver_takes_no_damaged_frame() {
    for check in [Check::Crc32c, Check::Crc64, Check::Folded] {
        let mut hand = ManualPair::open(&Options { check, frame: 128, ..Options::default() });
        let message: Vec<u8> = (0..100).collect();
        hand.send(0, &message);
        let [frame] = &hand.outputs(0)[..] else { panic!("one frame") };
        hand.pass(HOP);
        let mut draw = Seed(4).stream("receiver");
        for number in 1..=10_000 {
            let mut damaged = frame.clone();
            // Its kind stays what it is: an acknowledgement that is damaged is another story.
            let at = 1 + draw.below(frame.len() as u64 - 1) as usize;
            damaged[at] ^= 1 + draw.below(255) as u8;
            hand.give(1, &[damaged]);
            assert_eq!(hand.statistics(1).bad_checksums, number, "{check:?}");
        }
        hand.give(1, std::slice::from_ref(frame));
        assert_eq!(hand.take(1), [message]);
    }
}

#[test]
fn a_receiver_takes_no_damaged_repair_frame_and_asks_for_none() {
    for check in [Check::Crc32c, Check::Crc64, Check::Folded] {
        let fec = Some(Fec { frames: 2, repairs: 1 });
        let mut hand = ManualPair::open(&Options { check, frame: 128, fec, ..Options::default() });
        let message: Vec<u8> = (0..150).collect();
        hand.send(0, &message);
        let [_, second, repair] = &hand.outputs(0)[..] else { panic!("two frames and one for both") };
        hand.pass(HOP);
        hand.give(1, std::slice::from_ref(second));
        let mut draw = Seed(4).stream("repair");
        for number in 1..=10_000 {
            let mut damaged = repair.clone();
            let at = 1 + draw.below(repair.len() as u64 - 1) as usize;
            damaged[at] ^= 1 + draw.below(255) as u8;
            let answers = hand.give(1, &[damaged]);
            assert_eq!((hand.statistics(1).bad_checksums, answers.len()), (number, 0), "{check:?}");
        }
        hand.give(1, std::slice::from_ref(repair));
        assert_eq!(hand.take(1), [message]);
        assert_eq!(hand.statistics(1).frames_rebuilt, 1);
    }
}
