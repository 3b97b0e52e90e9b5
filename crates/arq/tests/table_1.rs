//! Table 1 of the 1998 paper, cell by cell: what each end does when one frame, acknowledgement (*ack*) or negative
//! acknowledgement (*nack*) is damaged or lost, with more frames to follow and without. First as go-back-N, for which the
//! table was made; then with selective repeat, and what differs.

use crate::support::manual_pair::{HOP, ManualPair};
use trunkline_arq::wire::data::NACK as NEGATIVE;
use trunkline_arq::wire::{KIND_ACK, KIND_CONTROL, ack::Ack, kind};
use trunkline_arq::{Check, Congestion, Mode, Options, Statistics};

/// What happens to a frame on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FrameOutcome {
    Damaged,
    Lost,
}

use FrameOutcome::{Damaged, Lost};

const MORE: u8 = 5;

/// A sends to B, a message a frame, and B acknowledges each frame at once.
struct Script {
    hand: ManualPair,
    messages: Vec<Vec<u8>>,
    /// What A said to the messages.
    frames: Vec<Vec<u8>>,
}

impl Script {
    fn new(mode: Mode, count: u8) -> Script {
        let options = Options {
            mode,
            frame: 128,
            window: 16,
            ack_every: 1,
            congestion: Congestion::Fixed,
            ..Options::default()
        };
        let mut hand = ManualPair::open(&options);
        let messages: Vec<Vec<u8>> = (0..count).map(|n| vec![n; 100]).collect();
        messages.iter().for_each(|message| hand.send(0, message));
        let frames = hand.outputs(0);
        assert_eq!(numbers(&frames), (0..u32::from(count)).collect::<Vec<_>>(), "a message a frame");
        hand.pass(HOP);
        Script { hand, messages, frames }
    }

    /// Frames of A reach B; what B answers leaves at once, and is a hop away.
    fn at_b(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let answers = self.hand.give(1, frames);
        self.hand.pass(HOP);
        answers
    }

    fn at_a(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let answers = self.hand.give(0, frames);
        self.hand.pass(HOP);
        answers
    }

    /// What becomes of one frame on its way to an end, and what that end answers.
    fn suffer(&mut self, fate: FrameOutcome, end: usize, frame: &[u8]) -> Vec<Vec<u8>> {
        match fate {
            Lost => Vec::new(),
            Damaged => self.hand.give(end, &[damaged(frame)]),
        }
    }

    fn frame(&self, at: usize) -> Vec<Vec<u8>> {
        vec![self.frames[at].clone()]
    }

    fn from(&self, at: usize) -> Vec<Vec<u8>> {
        self.frames[at..].to_vec()
    }

    fn a(&self) -> Statistics {
        self.hand.statistics(0)
    }

    fn b(&self) -> Statistics {
        self.hand.statistics(1)
    }

    /// Everything has arrived, once and in order; both ends have fallen silent.
    fn is_over(&mut self) {
        assert_eq!(self.hand.take(1), self.messages);
        assert_eq!(self.hand.nodes[0].inner().in_flight(self.hand.ids[0]), Some(0));
        assert!(
            self.hand.outputs(0).is_empty() && self.hand.outputs(1).is_empty(),
            "no further action is taken"
        );
    }
}

fn acks(frames: &[Vec<u8>]) -> Vec<(u32, bool)> {
    frames.iter().map(|frame| ack(frame, Check::Crc32c).expect("an acknowledgement")).collect()
}

const ACK: bool = false;
const NACK: bool = true;

// --- frames

#[test]
fn a_frame_is_damaged_and_more_follow() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        let mut script = Script::new(mode, MORE);
        let first = script.at_b(&script.frame(0));
        assert_eq!(acks(&first), [(1, ACK)]);
        let nack = script.suffer(Damaged, 1, &script.frames[1].clone());
        assert_eq!(acks(&nack), [(1, NACK)], "B detects the error and sends a nack");
        let ignored = script.at_b(&script.from(2));
        assert_eq!(script.b().bad_checksums, 1);
        let resent = match mode {
            Mode::GoBackN => {
                assert!(ignored.is_empty(), "B ignores all others and does not ask again");
                let none = script.at_a(&first);
                assert!(none.is_empty());
                let resent = script.at_a(&nack);
                assert_eq!(numbers(&resent), [1, 2, 3, 4], "A sends it again, and all after it");
                resent
            }
            _ => {
                assert!(acks(&ignored).iter().all(|ack| *ack == (1, ACK)), "B keeps the others, and says so");
                let resent = script.at_a(&[first, nack, ignored].concat());
                assert_eq!(numbers(&resent), [1], "A sends it again, and it alone");
                resent
            }
        };
        let answers = script.at_b(&resent);
        script.at_a(&answers);
        let (a, b) = (script.a(), script.b());
        assert_eq!((a.timeouts, a.tail_probes, b.duplicates), (0, 0, 0));
        let ignored = if mode == Mode::GoBackN { 3 } else { 0 };
        assert_eq!((b.nacks_sent, b.framing_errors), if ignored > 0 { (1, 3) } else { (4, 0) });
        script.is_over();
    }
}

#[test]
fn a_frame_is_lost_and_more_follow() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        let mut script = Script::new(mode, MORE);
        let first = script.at_b(&script.frame(0));
        script.suffer(Lost, 1, &[]);
        let nack = script.at_b(&script.frame(2));
        let rest = script.at_b(&script.from(3));
        let resent = match mode {
            Mode::GoBackN => {
                assert_eq!(acks(&nack), [(1, NACK)], "B ignores the next and nacks the one that is missing");
                assert!(rest.is_empty(), "and ignores all until it comes");
                script.at_a(&[first, nack].concat())
            }
            _ => {
                let said = acks(&[nack.clone(), rest.clone()].concat());
                assert_eq!(said, [(1, ACK); 3], "B stores them, and reports the missing frame each time");
                script.at_a(&[first, nack, rest].concat())
            }
        };
        let all: &[u32] = if mode == Mode::GoBackN { &[1, 2, 3, 4] } else { &[1] };
        assert_eq!(numbers(&resent), all);
        let answers = script.at_b(&resent);
        script.at_a(&answers);
        let (a, b) = (script.a(), script.b());
        assert_eq!((a.timeouts, a.tail_probes, b.duplicates, b.bad_checksums), (0, 0, 0, 0));
        assert_eq!((b.nacks_sent, b.framing_errors), if mode == Mode::GoBackN { (1, 3) } else { (3, 0) });
        script.is_over();
    }
}

#[test]
fn a_frame_is_damaged_and_nothing_follows() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        let mut script = Script::new(mode, 1);
        let nack = script.suffer(Damaged, 1, &script.frames[0].clone());
        assert_eq!(acks(&nack), [(0, NACK)], "B detects the error and sends a nack");
        script.hand.pass(HOP);
        let resent = script.at_a(&nack);
        // Only one is in flight, so with selective repeat too it is known which was damaged.
        assert_eq!(numbers(&resent), [0], "A sends it again");
        let answers = script.at_b(&resent);
        assert_eq!(acks(&answers), [(1, ACK)]);
        script.at_a(&answers);
        let a = script.a();
        assert_eq!((a.frames_resent, a.timeouts, a.tail_probes), (1, 0, 0));
        script.is_over();
    }
}

#[test]
fn a_frame_is_lost_and_nothing_follows() {
    for mode in [Mode::GoBackN, Mode::Selective] {
        let mut script = Script::new(mode, 1);
        script.suffer(Lost, 1, &[]);
        assert!(script.hand.outputs(1).is_empty(), "B knows nothing");
        let resent = script.hand.wake(0);
        assert_eq!(numbers(&resent), [0], "A times out and sends it again");
        script.hand.pass(HOP);
        let answers = script.at_b(&resent);
        script.at_a(&answers);
        let (a, b) = (script.a(), script.b());
        // With selective repeat it first asks what became of it, by sending it again before the whole timeout.
        let (timeouts, probes) = if mode == Mode::GoBackN { (1, 0) } else { (0, 1) };
        assert_eq!((a.frames_resent, a.timeouts, a.tail_probes), (1, timeouts, probes));
        assert_eq!((b.nacks_sent, b.duplicates), (0, 0));
        script.is_over();
    }
}

// --- acknowledgements

#[test]
fn an_ack_is_damaged_or_lost_and_more_follow() {
    for (mode, fate) in cases() {
        let mut script = Script::new(mode, MORE);
        let acks_sent = script.at_b(&script.frames.clone());
        assert_eq!(acks(&acks_sent), [1, 2, 3, 4, 5].map(|n| (n, ACK)));
        let nothing = script.suffer(fate, 0, &acks_sent[1]);
        assert!(nothing.is_empty(), "a damaged ack is ignored");
        let nothing = script.at_a(&[&acks_sent[..1], &acks_sent[2..]].concat());
        assert!(nothing.is_empty());
        let a = script.a();
        assert_eq!(a.bad_checksums, u64::from(fate == Damaged));
        assert_eq!((a.frames_resent, a.timeouts, a.nacks_sent), (0, 0, 0), "a later ack does its job");
        script.is_over();
    }
}

#[test]
fn all_acks_are_damaged_or_lost() {
    for (mode, fate) in cases() {
        let mut script = Script::new(mode, MORE);
        for ack in script.at_b(&script.frames.clone()) {
            assert!(script.suffer(fate, 0, &ack).is_empty());
        }
        let resent = script.hand.wake(0);
        // "A will timeout and retransmit the frame": go-back-N all of them, selective repeat the last to ask.
        let all: &[u32] = if mode == Mode::GoBackN { &[0, 1, 2, 3, 4] } else { &[4] };
        assert_eq!(numbers(&resent), all);
        script.hand.pass(HOP);
        let first = script.at_b(&resent[..1]);
        let nack = if mode == Mode::GoBackN { NACK } else { ACK };
        assert_eq!(acks(&first), [(5, nack)], "B ignores the copy; its answer implies that all has arrived");
        assert!(script.at_a(&first).is_empty());
        script.at_b(&resent[1..]);
        assert_eq!(script.b().duplicates, resent.len() as u64);
        script.is_over();
    }
}

#[test]
fn an_ack_is_damaged_or_lost_and_nothing_follows() {
    for (mode, fate) in cases() {
        let mut script = Script::new(mode, 1);
        let [ack] = &script.at_b(&script.frames.clone())[..] else { panic!("an ack") };
        assert!(script.suffer(fate, 0, ack).is_empty(), "a damaged ack is ignored");
        let resent = script.hand.wake(0);
        assert_eq!(numbers(&resent), [0], "A times out and sends the frame again");
        script.hand.pass(HOP);
        let answers = script.at_b(&resent);
        let nack = if mode == Mode::GoBackN { NACK } else { ACK };
        assert_eq!(acks(&answers), [(1, nack)], "B ignores the copy and sends a nack for the next frame");
        assert!(script.at_a(&answers).is_empty(), "nothing waits, so nothing more happens");
        let (a, b) = (script.a(), script.b());
        assert_eq!((a.frames_resent, b.duplicates, b.frames_received), (1, 1, 1));
        assert_eq!(a.timeouts + a.tail_probes, 1);
        script.is_over();
    }
}

// --- negative acknowledgements

#[test]
fn a_nack_is_damaged_or_lost_and_more_follow() {
    for (mode, fate) in cases() {
        let mut script = Script::new(mode, MORE);
        let first = script.at_b(&script.frame(0));
        let nack = script.at_b(&script.frame(2));
        assert!(script.suffer(fate, 0, &nack[0]).is_empty(), "a damaged nack is ignored");
        let rest = script.at_b(&script.from(3));
        let resent = match mode {
            Mode::GoBackN => {
                assert!(rest.is_empty());
                assert!(script.at_a(&first).is_empty());
                let resent = script.hand.wake(0);
                assert_eq!(
                    numbers(&resent),
                    [1, 2, 3, 4],
                    "A times out, sends the frame again and all after it"
                );
                assert_eq!(script.a().timeouts, 1);
                resent
            }
            _ => {
                // The next ACK reports the same, so no timeout is needed.
                let resent = script.at_a(&[first, rest].concat());
                assert_eq!(numbers(&resent), [1]);
                assert_eq!((script.a().timeouts, script.a().tail_probes), (0, 0));
                resent
            }
        };
        script.hand.pass(HOP);
        let answers = script.at_b(&resent);
        script.at_a(&answers);
        assert_eq!(script.a().bad_checksums, u64::from(fate == Damaged));
        assert_eq!(script.b().duplicates, 0);
        script.is_over();
    }
}

#[test]
fn a_nack_is_damaged_or_lost_and_nothing_follows() {
    for (mode, fate) in cases() {
        let mut script = Script::new(mode, 1);
        let [nack] = &script.suffer(Damaged, 1, &script.frames[0].clone())[..] else { panic!("a nack") };
        assert!(script.suffer(fate, 0, nack).is_empty(), "a damaged nack is ignored");
        let resent = script.hand.wake(0);
        assert_eq!(numbers(&resent), [0], "A times out and sends that frame again");
        script.hand.pass(HOP);
        let answers = script.at_b(&resent);
        assert_eq!(acks(&answers), [(1, ACK)]);
        script.at_a(&answers);
        let a = script.a();
        assert_eq!((a.frames_resent, a.timeouts + a.tail_probes, script.b().duplicates), (1, 1, 0));
        script.is_over();
    }
}

fn cases() -> Vec<(Mode, FrameOutcome)> {
    let modes = [Mode::GoBackN, Mode::Selective];
    modes.into_iter().flat_map(|mode| [(mode, Damaged), (mode, Lost)]).collect()
}

fn damaged(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    // Not in the first byte, where it might become another kind of frame.
    let at = frame.len() - 2;
    frame[at] ^= 0x10;
    frame
}

/// An acknowledgement alone: what it acknowledges, and whether it is a negative one.
fn ack(frame: &[u8], check: Check) -> Option<(u32, bool)> {
    let ack = Ack::read(&frame[..frame.len() - check.bytes()])?;
    Some((ack.acknowledged, frame[0] & NEGATIVE != 0))
}

/// The numbers of frames that carry data.
fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    let data = frames.iter().filter(|f| ![KIND_ACK, KIND_CONTROL].contains(&kind(f[0])));
    data.map(|f| u32::from_be_bytes([0, f[1], f[2], f[3]])).collect()
}

// --- beyond the table

/// After a timeout everything in flight has been sent twice, so the minimum round-trip time may be that of a path which
/// was slower; requests are served nevertheless.
#[test]
fn requests_after_a_timeout_are_served_on_a_path_that_became_faster() {
    let mut script = Script::new(Mode::GoBackN, MORE);
    let mut frames = script.hand.wake(0);
    assert_eq!(numbers(&frames), [0, 1, 2, 3, 4], "nothing was acknowledged");
    for first in 0..3 {
        script.hand.pass(HOP / 10);
        let answers = script.hand.give(1, &[frames[0].clone(), frames[2].clone()]);
        let request = answers.last().expect("a request").clone();
        assert_eq!(acks(std::slice::from_ref(&request)), [(first + 1, NACK)], "B misses a frame");
        script.hand.pass(HOP / 10);
        frames = script.hand.give(0, &[request]);
        assert_eq!(numbers(&frames), (first + 1..5).collect::<Vec<_>>(), "A goes back");
    }
    let answers = script.at_b(&frames);
    script.at_a(&answers);
    assert_eq!((script.a().timeouts, script.b().duplicates), (1, 0));
    script.is_over();
}
