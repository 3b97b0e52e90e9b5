use super::*;
use trunkline_units::{Seed, Span};

const MSS: u32 = 100;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_ms(ms)
}

/// Returns a scoreboard with so many segments of 100 bytes in flight, sent a millisecond apart; the numbers wrap.
fn sent(base: Seq, segments: u32) -> Scoreboard {
    let mut board = Scoreboard::default();
    for n in 0..segments {
        board.sent(base + n * MSS, base + (n + 1) * MSS, at(n.into()));
    }
    board
}

fn sack(board: &mut Scoreboard, base: Seq, from: u32, to: u32) -> u32 {
    let mut delivery = Delivery::default();
    board.sack(base + from * MSS, base + to * MSS, &mut delivery);
    delivery.bytes
}

#[test]
fn three_segments_behind_a_missing_one_make_it_lost() {
    let base = Seq(u32::MAX - 450);
    let mut board = sent(base, 20);
    let mut losses = Losses::default();
    for to in 3..=4 {
        assert_eq!(sack(&mut board, base, 2, to), MSS);
        board.detect_losses(MSS, &mut losses);
        assert_eq!(losses.bytes, 0, "{to}");
    }
    assert_eq!(sack(&mut board, base, 2, 5), MSS);
    board.detect_losses(MSS, &mut losses);
    assert_eq!((losses.bytes, losses.sent_at), (2 * MSS, at(1)));
    assert_eq!((board.pipe(), board.awaiting()), (15 * MSS, 2 * MSS));
    assert_eq!(board.next_lost(MSS), Some((base, MSS)));
    board.retransmitted(base, base + MSS, at(100));
    assert_eq!((board.pipe(), board.awaiting()), (16 * MSS, MSS));
    // Both in one segment, but no more than is lost.
    assert_eq!(board.next_lost(5 * MSS), Some((base + MSS, MSS)));
    // Half of a segment: the record is split.
    board.retransmitted(base + MSS, base + MSS + 50, at(101));
    assert_eq!(board.next_lost(5 * MSS), Some((base + MSS + 50, 50)));
    board.check(base, base + 20 * MSS);
}

#[test]
fn retransmission_is_lost_once_later_data_arrives() {
    let base = Seq(7);
    let mut board = sent(base, 10);
    let mut losses = Losses::default();
    sack(&mut board, base, 1, 4);
    board.detect_losses(MSS, &mut losses);
    board.retransmitted(base, base + MSS, at(50));
    losses = Losses::default();
    board.detect_lost_retransmissions(at(50), &mut losses);
    assert_eq!(losses.bytes, 0);
    board.detect_lost_retransmissions(at(51), &mut losses);
    assert_eq!((losses.bytes, board.awaiting()), (MSS, MSS));
    assert_eq!(board.next_lost(MSS), Some((base, MSS)));
}

#[test]
fn discarded_blocks_are_forgotten_after_a_timeout() {
    let base = Seq(0);
    let mut board = sent(base, 10);
    sack(&mut board, base, 3, 6);
    let mut losses = Losses::default();
    board.lose_all(&mut losses);
    assert_eq!((board.pipe(), board.awaiting()), (0, 7 * MSS));
    let mut delivery = Delivery::default();
    board.acknowledge(base + 3 * MSS, &mut delivery);
    assert_eq!(delivery.bytes, 3 * MSS);
    // The peer acknowledges up to the block but not the block: it has discarded it.
    board.lose_all(&mut losses);
    assert_eq!(board.awaiting(), 7 * MSS);
    board.check(base + 3 * MSS, base + 10 * MSS);
}

/// Numbers of earlier losses and blocks are forgotten before 2³¹ or 2³² bytes later they would mean something else.
#[test]
fn old_numbers_mean_nothing() {
    const GIB: u32 = 1 << 30;
    let (mut board, mut losses, mut delivery) = (sent(Seq(0), 10), Losses::default(), Delivery::default());
    sack(&mut board, Seq(0), 1, 4);
    board.detect_losses(MSS, &mut losses);
    board.retransmitted(Seq(0), Seq(MSS), at(20));
    board.sent(Seq(10 * MSS), Seq(GIB), at(30));
    board.acknowledge(Seq(10 * MSS), &mut delivery);
    board.sent(Seq(GIB), Seq(2 * GIB), at(40));
    board.acknowledge(Seq(GIB), &mut delivery);
    // Two losses on both sides of the distance at which comparisons with the first retransmission wrap.
    let base = Seq(2 * GIB);
    for n in 0..5 {
        board.sent(base + n * MSS, base + (n + 1) * MSS, at(50));
    }
    board.acknowledge(base, &mut delivery);
    sack(&mut board, base, 2, 5);
    board.detect_losses(MSS, &mut losses);
    assert_eq!(board.next_lost(MSS), Some((base, MSS)));
    // The block of before, once around.
    board.sent(base + 5 * MSS, Seq(3 * GIB), at(60));
    board.acknowledge(base + 5 * MSS, &mut delivery);
    board.sent(Seq(3 * GIB), Seq(0), at(70));
    board.acknowledge(Seq(3 * GIB), &mut delivery);
    for n in 0..4 {
        board.sent(Seq(n * MSS), Seq((n + 1) * MSS), at(80));
    }
    board.acknowledge(Seq(0), &mut delivery);
    assert_eq!(sack(&mut board, Seq(0), 1, 4), 3 * MSS);
}

/// Against a model with a state for each byte.
#[test]
fn counters_agree_with_a_model() {
    for seed in 0..300 {
        let mut stream = Seed(seed).stream("scoreboard");
        let base = Seq(stream.bits() as u32);
        let (mut board, mut una, mut max) = (Scoreboard::default(), 0u32, 0u32);
        let mut edges = vec![0];
        let mut sacked = vec![false; 40_000];
        for step in 0..200 {
            let now = at(step);
            match stream.below(7) {
                0..=2 => {
                    let length = 1 + stream.below(150) as u32;
                    board.sent(base + max, base + max + length, now);
                    max += length;
                    edges.push(max);
                }
                3 if max > una => {
                    let old = una;
                    una += stream.below(u64::from(max - una) + 1) as u32;
                    let mut delivery = Delivery::default();
                    let new = sacked[old as usize..una as usize].iter().filter(|s| !**s).count();
                    board.acknowledge(base + una, &mut delivery);
                    assert_eq!(delivery.bytes as usize, new, "seed {seed}");
                }
                4 | 5 if edges.len() > 2 => {
                    // Whole segments, in any order, again and again.
                    let first = stream.below(edges.len() as u64 - 1) as usize;
                    let last = (first + 1 + stream.below(5) as usize).min(edges.len() - 1);
                    let (start, end) = (edges[first].max(una), edges[last]);
                    if start < end && edges[first] >= una {
                        let mut delivery = Delivery::default();
                        board.sack(base + start, base + end, &mut delivery);
                        let new = sacked[start as usize..end as usize].iter().filter(|s| !**s).count();
                        sacked[start as usize..end as usize].fill(true);
                        assert_eq!(delivery.bytes as usize, new, "seed {seed}");
                    }
                }
                _ => {
                    let mut losses = Losses::default();
                    let (pipe, awaiting) = (board.pipe(), board.awaiting());
                    match stream.below(4) {
                        0 => board.lose_first(&mut losses),
                        1 => board.detect_lost_retransmissions(now, &mut losses),
                        _ => board.detect_losses(MSS, &mut losses),
                    }
                    assert_eq!(
                        (board.pipe() + losses.bytes, board.awaiting()),
                        (pipe, awaiting + losses.bytes)
                    );
                    if let Some((start, length)) = board.next_lost(120) {
                        let offset = start.since(base) as usize;
                        assert!(sacked[offset..offset + length as usize].iter().all(|s| !s), "seed {seed}");
                        board.retransmitted(start, start + length, now);
                    }
                }
            }
            board.check(base + una, base + max);
            let outstanding = sacked[una as usize..max as usize].iter().filter(|s| !**s).count() as u32;
            assert_eq!(board.pipe() + board.awaiting(), outstanding, "seed {seed}");
        }
    }
}
