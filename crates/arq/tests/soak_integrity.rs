//! A thousand million damaged frames for each check, fed to a receiver.

use std::thread;

use crate::support::damage;
use crate::support::damage::{Damage, accepted};
use crate::support::manual_pair::{ADDRESSES, ManualPair};
use trunkline_arq::{Check, Options, Statistics};
use trunkline_endpoint::{Endpoint, Input, Port};
use trunkline_units::Seed;

const COUNT: u64 = 1_000_000_000;
/// After so many the receiver may say what it has to.
const TURN: u64 = 1 << 16;

/// Of `count` damaged frames those that a receiver takes for its peer's.
fn taken(options: &Options, count: u64, seed: u64) -> u64 {
    let mut draw = Seed(seed).stream("damaged frames");
    let (mut taken, mut fed) = (0, 0);
    while fed < count {
        let mut hand = ManualPair::open(options);
        let message: Vec<u8> = (0..40 + draw.below(60)).map(|_| draw.bits() as u8).collect();
        hand.send(0, &message);
        let [frame] = &hand.outputs(0)[..] else { panic!("one frame") };
        let turn = TURN.min(count - fed);
        let mut damaged = frame.clone();
        for _ in 0..turn {
            // The first byte says what kind of frame it is: others have checks of their own.
            while damaged == *frame {
                damage::apply(&mut draw, Damage::Words, &mut damaged[1..]);
            }
            let (now, peer) = (hand.now, ADDRESSES[0]);
            let input = Input::Frame { port: Port(0), peer, bytes: &damaged, segment: None };
            hand.nodes[1].inner_mut(now).handle(now, input).expect("a frame is never refused");
            damaged.copy_from_slice(frame);
        }
        let Statistics { bad_checksums, .. } = hand.statistics(1);
        taken += turn - bad_checksums;
        fed += turn;
        if taken == 0 {
            hand.give(1, std::slice::from_ref(frame));
            assert_eq!(hand.take(1), [message]);
        }
    }
    taken
}

/// Frames with random words, of which 2⁻³² pass a check of 32 bits: 0.23 expected, more than six of them with a chance
/// of 1e-8.
#[test]
fn damaged_frames_pass_at_the_theoretical_rate() {
    let with = |check| Options { check, ..Options::default() };
    #[cfg_attr(not(feature = "aead"), allow(unused_mut))]
    let mut all = vec![
        (with(Check::Crc32c), COUNT, 6),
        (with(Check::Folded), COUNT, 6),
        (with(Check::Crc64), COUNT, 0),
    ];
    #[cfg(feature = "aead")]
    {
        let key = Some(trunkline_arq::PresharedKey::new(&[7; 32]));
        all.push((Options { key, ..Options::default() }, COUNT / 10, 0));
    }
    for (options, count, most) in all {
        let passed: u64 = thread::scope(|scope| {
            let half = |seed| {
                scope.spawn({
                    let options = &options;
                    move || taken(options, count / 2, seed)
                })
            };
            [half(1), half(2)].map(|half| half.join().expect("it counts")).iter().sum()
        });
        let name = if options.key.is_some() { Check::Aead } else { options.check };
        println!("{name:?}: {passed} of {count}");
        assert!(passed <= most, "{name:?}: {passed}");
    }
    for damage in [Damage::Swap, Damage::SwapHalves] {
        let count = COUNT / 100;
        println!("Folded, {damage:?}: {} of {count}", accepted(Check::Folded, damage, count, 3));
    }
}
