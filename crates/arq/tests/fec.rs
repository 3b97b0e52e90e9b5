//! Forward error correction between two nodes: lost frames are rebuilt and counted, at the documented cost.

use crate::support::manual_pair::{HOP, ManualPair};
use trunkline_arq::wire::handshake::Handshake;
use trunkline_arq::wire::{KIND_ACK, KIND_CONTROL, KIND_REPAIR, kind};
use trunkline_arq::{Congestion, Fec, Mode, Options, Statistics};
use trunkline_units::{Seed, Span};

const FRAME: usize = 200;
/// Bytes of a message that a full frame carries: less than without, by what a repair frame has more of header.
const FULL: usize = FRAME - 12 - 4;

fn options(frames: u8, repairs: u8) -> Options {
    let fec = Some(Fec { frames, repairs });
    Options { frame: FRAME as u16, congestion: Congestion::Fixed, fec, ..Options::default() }
}

fn message(frames: usize) -> Vec<u8> {
    (0..frames * FULL).map(|at| (at * 7 + at / 256) as u8).collect()
}

/// What kinds of frames these are: `d` for data, `r` for repair, `a` for an acknowledgement.
fn kinds(frames: &[Vec<u8>]) -> String {
    let name = |frame: &Vec<u8>| match kind(frame[0]) {
        KIND_CONTROL => 'c',
        KIND_REPAIR => 'r',
        KIND_ACK => 'a',
        _ => 'd',
    };
    frames.iter().map(name).collect()
}

fn without(frames: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
    frames.iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, frame)| frame.clone()).collect()
}

#[test]
fn a_lost_frame_is_rebuilt_and_never_sent_again() {
    for lost in 0..4 {
        let mut hand = ManualPair::open(&options(4, 1));
        hand.send(0, &message(4));
        let said = hand.outputs(0);
        assert_eq!(kinds(&said), "ddddr");
        assert!(said.iter().all(|frame| frame.len() <= FRAME), "no frame is longer than was agreed upon");
        assert_eq!(said[4].len(), FRAME, "and none could be");
        hand.pass(HOP);
        let answers = hand.give(1, &without(&said, &[lost]));
        assert_eq!(hand.take(1), [message(4)], "before the sender hears of it");
        hand.give(0, &answers);
        hand.exchange();
        let [sent, came] = [0, 1].map(|end| hand.statistics(end));
        assert_eq!((sent.frames_resent, sent.repairs_sent), (0, 1));
        assert_eq!((came.frames_received, came.repairs_received, came.frames_rebuilt), (3, 1, 1));
        assert_eq!(hand.nodes[0].inner().in_flight(hand.ids[0]), Some(0), "it is acknowledged");
    }
}

#[test]
fn as_many_are_rebuilt_as_there_are_repair_frames_left() {
    // Frames 0 to 5, repair frames 6 to 8.
    for (lost, rebuilt) in [
        (&[0, 5][..], true),
        (&[1, 2, 3], true),
        (&[0, 1, 6], true),
        (&[2, 7, 8], true),
        (&[0, 1, 2, 3], false),
        (&[4, 5, 6, 7], false),
    ] {
        let mut hand = ManualPair::open(&options(6, 3));
        hand.send(0, &message(6));
        let said = hand.outputs(0);
        assert_eq!(kinds(&said), "ddddddrrr");
        hand.pass(HOP);
        hand.give(1, &without(&said, lost));
        assert_eq!(hand.take(1).len(), usize::from(rebuilt), "{lost:?}");
    }
}

#[test]
fn the_last_frame_is_rebuilt_after_a_short_silence() {
    let mut hand = ManualPair::open(&options(10, 2));
    hand.send(0, b"all there is");
    let lost = hand.outputs(0);
    assert_eq!(kinds(&lost), "d");
    let (before, said) = (hand.now, hand.wake(0));
    assert_eq!(kinds(&said), "r", "one, for a block of one");
    let round_trip = hand.nodes[0].inner().round_trip(hand.ids[0]).expect("it was measured");
    assert_eq!(hand.now.since(before), (round_trip / 4).max(Span::from_us(200)));
    hand.give(1, &said);
    assert_eq!(hand.take(1), [b"all there is".to_vec()]);
}

#[test]
fn what_has_arrived_by_then_costs_no_repair_frame() {
    let mut hand = ManualPair::open(&Options { ack_every: 1, ..options(10, 1) });
    hand.send(0, b"all there is");
    let said = hand.outputs(0);
    let answers = hand.give(1, &said);
    hand.give(0, &answers);
    hand.pass(Span::from_s(1));
    hand.exchange();
    assert_eq!(hand.statistics(0).repairs_sent, 0);
}

#[test]
fn repair_frames_are_a_share_of_data_and_one_a_silence() {
    let mut draw = Seed(9265).stream("share");
    for (frames, repairs) in [(1, 1), (4, 1), (5, 3), (20, 2), (64, 8)] {
        let mut hand = ManualPair::open(&Options { ack_every: 1, ..options(frames, repairs) });
        let mut silences = 0;
        for _ in 0..200 {
            hand.send(0, &message(1 + draw.below(30) as usize));
            if draw.chance(0.3) {
                silences += 1;
                hand.exchange();
                let said = hand.wake(0);
                let answers = hand.give(1, &said);
                hand.give(0, &answers);
                hand.exchange();
            }
        }
        hand.exchange();
        let Statistics { frames_sent, frames_resent, repairs_sent, .. } = hand.statistics(0);
        assert_eq!(frames_resent, 0);
        let most = frames_sent * u64::from(repairs) / u64::from(frames) + silences + 1;
        assert!(repairs_sent <= most, "{repairs_sent} for {frames_sent} and {silences} silences");
        assert!(repairs_sent > 0, "{frames}+{repairs}");
    }
}

#[test]
fn both_ends_must_want_it() {
    let (with, plain) = (options(4, 1), Options { fec: None, ..options(4, 1) });
    let go_back = Options { mode: Mode::GoBackN, ..with.clone() };
    for (client, server, wanted) in
        [(&with, &with, true), (&plain, &with, false), (&with, &plain, false), (&go_back, &with, false)]
    {
        let mut hand = ManualPair::between(client, server).opened();
        hand.send(0, &message(8));
        let said = hand.outputs(0);
        assert_eq!(kinds(&said).contains('r'), wanted);
        hand.give(1, &said);
        hand.exchange();
        assert_eq!(hand.take(1), [message(8)]);
        // Nor is a byte of a frame given up for it.
        let longest = said.iter().map(Vec::len).max();
        assert_eq!(longest, Some(FRAME));
    }
}

#[test]
fn an_end_that_probes_its_path_does_none() {
    let with = options(4, 1);
    let probes = Options { probe_up_to: Some(FRAME as u16), ..with.clone() };
    for (client, server) in [(&probes, &with), (&with, &probes), (&probes, &probes)] {
        let mut hand = ManualPair::between(client, server).opened();
        hand.send(0, &message(8));
        let said = hand.outputs(0);
        assert!(!kinds(&said).contains('r'));
        assert_eq!(said.iter().map(Vec::len).max(), Some(FRAME), "nor is a byte given up for it");
        hand.give(1, &said);
        hand.exchange();
        assert_eq!(hand.take(1), [message(8)]);
        assert_eq!(hand.statistics(0).repairs_sent, 0);
    }
    let Some(Handshake::Open { parameters, .. }) = Handshake::read(&question(&probes)) else {
        panic!("it opens")
    };
    assert_eq!((parameters.parts, parameters.fec), (true, None), "and does not offer it");
}

/// The first frame of an opening.
fn question(options: &Options) -> Vec<u8> {
    let mut hand = ManualPair::new(options);
    hand.outputs(0).remove(0)
}

#[test]
fn an_opening_without_it_is_what_it_was() {
    let (with, without) = (question(&options(10, 2)), question(&Options { fec: None, ..options(10, 2) }));
    assert_eq!((&with[30..32], &without[30..32]), (&[10, 2 << 1][..], &[0, 0][..]));
    assert_eq!((&with[..30], &with[32..48]), (&without[..30], &without[32..48]));
    let Some(Handshake::Open { parameters, .. }) = Handshake::read(&with) else { panic!("it opens") };
    assert_eq!(parameters.fec, Some(Fec { frames: 10, repairs: 2 }));
}

#[test]
fn a_loss_that_was_rebuilt_halves_the_window_of_reno() {
    let mut sent = [0; 2];
    for (run, lost) in [&[][..], &[3]].into_iter().enumerate() {
        let mut hand = ManualPair::open(&Options { congestion: Congestion::Reno, ..options(10, 1) });
        hand.send(0, &message(500));
        let (mut said, mut lost) = (hand.outputs(0), lost);
        for _ in 0..4 {
            hand.pass(HOP);
            let answers = hand.give(1, &without(&said, lost));
            hand.pass(HOP);
            said = hand.give(0, &answers);
            sent[run] = kinds(&said).matches('d').count();
            lost = &[];
        }
        assert_eq!(hand.statistics(0).frames_resent, 0);
        assert_eq!(hand.statistics(1).frames_rebuilt, run as u64);
    }
    assert!(sent[1] * 3 < sent[0] * 2, "{} frames a round after a loss, {} without", sent[1], sent[0]);
}

#[test]
fn the_window_holds_repair_frames_too() {
    let mut hand = ManualPair::open(&Options { window: 110, ..options(10, 1) });
    hand.send(0, &message(500));
    let said = kinds(&hand.outputs(0));
    assert_eq!((said.matches('d').count(), said.matches('r').count()), (100, 10));
}

#[test]
fn a_frame_that_comes_after_it_was_rebuilt_is_a_double() {
    let mut hand = ManualPair::open(&options(4, 1));
    hand.send(0, &message(4));
    let said = hand.outputs(0);
    hand.give(1, &without(&said, &[2]));
    hand.give(1, &said[2..3]);
    let came = hand.statistics(1);
    assert_eq!((came.frames_rebuilt, came.duplicates, came.malformed), (1, 1, 0));
    assert_eq!(hand.take(1), [message(4)]);
}

#[test]
fn any_loss_is_made_good() {
    // One way only, whatever is lost: what cannot be rebuilt is sent again.
    for seed in 0..40 {
        let mut draw = Seed(seed).stream("loss");
        let options = options(1 + draw.below(20) as u8, 1 + draw.below(4) as u8);
        let mut hand = ManualPair::open(&options);
        let sizes: Vec<usize> = (0..20).map(|_| draw.below(3000) as usize).collect();
        let text = |number: usize| (0..sizes[number]).map(|at| (at * 31 + number) as u8).collect::<Vec<_>>();
        let (mut got, loss) = (Vec::new(), draw.unit() * 0.4);
        (0..sizes.len()).for_each(|number| hand.send(0, &text(number)));
        let mut said = [hand.outputs(0), hand.outputs(1)];
        for _ in 0..2000 {
            said.iter_mut().for_each(|said| said.retain(|_| !draw.chance(loss)));
            let [there, back] = said;
            hand.pass(HOP);
            let answers = hand.give(1, &there);
            said = [hand.give(0, &back), answers];
            (0..2).for_each(|end| said[end].extend(hand.wake(end)));
            got.extend(hand.take(1));
            if got.len() == sizes.len() {
                break;
            }
        }
        let whole = got == (0..sizes.len()).map(text).collect::<Vec<_>>();
        assert!(whole, "seed {seed}: {} messages, loss {loss}, {:?}", got.len(), hand.statistics(0));
        assert_eq!(hand.statistics(1).malformed, 0);
    }
}
