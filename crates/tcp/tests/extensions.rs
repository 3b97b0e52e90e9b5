//! Selective acknowledgement, NewReno, timestamps, ECN and other controllers.

use crate::support::wire::{DELAY, Outcome, Wire};
use crate::support::{both, bsd_timers, exchange};
use trunkline_endpoint::{Ecn, Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::segment::{ACK, CWR, ECE, EcnBytes, FIN, Header, RST, SegmentOptions};
use trunkline_tcp::{Algorithm, Command, EcnFeedback, Options, Timers};
use trunkline_units::{Rate, Seed, Span, Stream};

const MSS: u32 = 1_000;
const RTT: Span = Span::from_ms(50);

/// TCP of today: 1 MB buffers, exact timers with a minimum of 200 ms.
pub fn modern() -> Options {
    Options {
        mss: MSS as u16,
        send_buffer: 1 << 20,
        receive_buffer: 1 << 20,
        timers: Timers::Fine { floor: Span::from_ms(200) },
        congestion: Some(Algorithm::Reno),
        sack: true,
        initial_timeout: Some(Span::from_s(1)),
        ack_delay: Span::from_ms(40),
        ..Options::default()
    }
}

/// Sets of options: controller, selective acknowledgement, timestamps, ECN.
fn option_sets() -> Vec<Options> {
    let controllers = Algorithm::ALL.map(Some).into_iter().chain([None]);
    let mut sets = Vec::new();
    for congestion in controllers {
        for bits in 0..8 {
            let ecn = (bits & 4 > 0).then_some(match congestion {
                Some(Algorithm::Dctcp) => EcnFeedback::Exact,
                Some(Algorithm::Prague) => EcnFeedback::Accurate,
                _ => EcnFeedback::Classic,
            });
            sets.push(Options { congestion, sack: bits & 1 > 0, timestamps: bits & 2 > 0, ecn, ..modern() });
        }
    }
    sets
}

/// Draws what the sets leave open.
fn odd(stream: &mut Stream, set: Options) -> Options {
    let bsd = bsd_timers(stream);
    let floor = Span::from_ms(stream.below(300));
    Options {
        mss: 32 + stream.below(3_000) as u16,
        send_buffer: 1 + stream.below(60_000) as u32,
        receive_buffer: 1 + stream.below(200_000) as u32,
        scaling: stream.chance(0.7),
        timers: if stream.chance(0.7) { Timers::Fine { floor } } else { bsd },
        delayed_ack: stream.chance(0.7),
        nagle: stream.chance(0.7),
        initial_window: 1 + stream.below(20) as u16,
        linux: stream.chance(0.3),
        ..set
    }
}

/// One exchange in both directions between ends with these options, or one of them with those of 4.3BSD.
fn exchange_with(seed: u64, set: Options) {
    let mut stream = Seed(seed).stream("extensions");
    let plain = Options { congestion: None, sack: false, timestamps: false, ecn: None, ..set };
    let sets = match stream.below(6) {
        0 => [set, plain],
        1 => [plain, set],
        _ => [set, set],
    };
    let (a, _) = both(odd(&mut stream, sets[0]));
    let (_, b) = both(odd(&mut stream, sets[1]));
    exchange(seed, &mut stream, a, b);
}

/// At least 1,000 exchanges; `soak` has more.
#[test]
fn every_byte_arrives_with_every_set_of_options() {
    let sets = option_sets();
    let rounds = if cfg!(feature = "soak") { 1_000 } else { 25 };
    assert!(sets.len() * 25 >= 1_000);
    for round in 0..rounds {
        for (n, set) in sets.iter().enumerate() {
            exchange_with((round * sets.len() + n) as u64, *set);
        }
    }
}

/// Returns a path that loses the first transmission of these segments, numbered by their place in the stream.
fn lose(segments: &[u32]) -> impl FnMut(&crate::support::wire::DataSegment) -> Outcome + '_ {
    |segment| {
        let lost = !segment.again && segments.contains(&(segment.offset / MSS));
        if lost { Outcome::Drop } else { Outcome::Pass }
    }
}

/// Draws `count` of the segments `from..to`.
fn draw(seed: u64, count: usize, from: u32, to: u32) -> Vec<u32> {
    let mut stream = Seed(seed).stream("losses");
    let mut drawn = Vec::new();
    while drawn.len() < count {
        let segment = from + stream.below(u64::from(to - from)) as u32;
        if !drawn.contains(&segment) {
            drawn.push(segment);
        }
    }
    drawn
}

/// Returns the time from the first retransmission to the last, their number and the timeouts.
fn repair(options: Options, lost: &[u32]) -> (Span, u64, u64) {
    let mut wire = Wire::new(options, u64::from(400 * MSS), lose(lost));
    assert!(wire.run(Span::from_s(300)), "{lost:?}");
    let again: Vec<_> = wire.sent.iter().filter(|segment| segment.again).map(|segment| segment.at).collect();
    let statistics = wire.ends[0].statistics();
    (again.last().unwrap().since(again[0]), statistics.retransmitted_segments, statistics.timeouts)
}

/// A segment whose retransmissions are lost too has a whole timeout from its last retransmission on.
#[test]
fn a_retransmission_of_the_first_segment_restarts_the_timer() {
    let mut remaining = 3;
    let path = |segment: &crate::support::wire::DataSegment| {
        let lost = segment.offset / MSS == 200 && remaining > 0;
        remaining -= u32::from(lost);
        if lost { Outcome::Drop } else { Outcome::Pass }
    };
    // Three round trips are longer than the timeout, and two are not.
    let options = Options { timers: Timers::Fine { floor: Span::from_ms(70) }, ..modern() };
    let mut wire = Wire::new(options, u64::from(2_000 * MSS), path);
    assert!(wire.run(Span::from_s(300)));
    let statistics = wire.ends[0].statistics();
    assert_eq!((statistics.retransmitted_segments, statistics.timeouts), (3, 0));
}

#[test]
fn losses_of_a_window_are_repaired_in_about_a_round_trip() {
    for congestion in Algorithm::ALL {
        for seed in 0..20 {
            for count in [1, 3, 8, 20] {
                // Within the window of 160 segments that slow start has reached in the fifth round trip.
                let lost = draw(seed, count, 160, 300);
                let (time, retransmissions, timeouts) = repair(
                    Options {
                        congestion: Some(congestion),
                        timestamps: true,
                        mss: MSS as u16 + 12,
                        ..modern()
                    },
                    &lost,
                );
                assert_eq!(
                    (retransmissions, timeouts),
                    (count as u64, 0),
                    "{congestion:?}, seed {seed}: {lost:?}"
                );
                assert!(time < RTT + RTT / 2, "{congestion:?}, seed {seed}: {time} for {count}");
            }
        }
    }
}

/// RFC 6582: without selective acknowledgements each round trip repairs one loss, without a timeout.
#[test]
fn partial_acknowledgements_repair_a_loss_per_round_trip() {
    let lost = [170, 180, 190, 200];
    let (time, retransmissions, timeouts) = repair(Options { sack: false, ..modern() }, &lost);
    assert_eq!((retransmissions, timeouts), (4, 0));
    assert!(time > RTT * 2 && time < RTT * 7 / 2, "{time}");
    // 4.3BSD leaves recovery at the first partial acknowledgement and waits for its timer.
    let (_, _, timeouts) = repair(Options { sack: false, congestion: None, ..modern() }, &lost);
    assert!(timeouts > 0);
}

/// A lost retransmission is found by what was sent after it, without a timeout (RFC 8985).
#[test]
fn lost_retransmission_is_sent_again() {
    let mut drops = 0;
    let mut wire = Wire::new(modern(), u64::from(400 * MSS), |segment| {
        let lost = segment.offset / MSS == 170 && drops < 2;
        drops += u32::from(lost);
        if lost { Outcome::Drop } else { Outcome::Pass }
    });
    assert!(wire.run(Span::from_s(60)));
    let statistics = wire.ends[0].statistics();
    assert_eq!((statistics.retransmitted_segments, statistics.timeouts), (2, 0));
}

/// The whole window is lost: after the timeout slow start repairs it, and what arrived is not sent again.
#[test]
fn timeout_spares_what_was_acknowledged_selectively() {
    let mut wire = Wire::new(modern(), u64::from(100 * MSS), |segment| {
        // Of segments 30 to 69 only two arrive, too few for a fast retransmission.
        let lost = !segment.again
            && (30..70).contains(&(segment.offset / MSS))
            && ![50, 51].contains(&(segment.offset / MSS));
        let blocked =
            segment.offset / MSS >= 70 && segment.at < trunkline_units::Instant::ZERO + Span::from_ms(600);
        if lost || blocked { Outcome::Drop } else { Outcome::Pass }
    });
    assert!(wire.run(Span::from_s(60)));
    assert!(wire.ends[0].statistics().timeouts >= 1);
    let again =
        wire.sent.iter().filter(|segment| segment.again && [50, 51].contains(&(segment.offset / MSS)));
    assert_eq!(again.count(), 0);
}

/// RFC 3042: the first two duplicates send new segments, so that a small window has a third.
#[test]
fn limited_transmit_makes_the_third_duplicate() {
    for sack in [false, true] {
        // Three segments in flight: the first is lost.
        let options = Options { initial_window: 3, sack, ..modern() };
        let mut wire = Wire::new(options, u64::from(30 * MSS), lose(&[0]));
        assert!(wire.run(Span::from_s(60)));
        let statistics = wire.ends[0].statistics();
        assert_eq!((statistics.timeouts, statistics.fast_retransmits), (0, 1), "{sack}");
    }
}

#[test]
fn extensions_are_used_only_if_both_offer_them() {
    let all = Options { sack: true, timestamps: true, ecn: Some(EcnFeedback::Classic), ..modern() };
    let none = Options { sack: false, timestamps: false, ecn: None, ..modern() };
    for (a, b, used) in [(all, all, true), (all, none, false), (none, all, false)] {
        let mut wire = Wire::with(a, b, u64::from(100 * MSS), lose(&[20, 22, 24]));
        assert!(wire.run(Span::from_s(60)));
        assert_eq!(wire.answers.iter().any(|(_, options)| options.block_count > 0), used);
        assert_eq!(wire.answers.iter().all(|(_, options)| options.timestamps.is_some()), used);
        assert_eq!(wire.sent.iter().any(|segment| segment.ecn == Ecn::Ect0), used);
        let (syn, offer) = wire.offers[0];
        assert_eq!(
            (offer.sack_permitted, offer.timestamps.is_some(), syn.has(ECE)),
            (a.sack, a.timestamps, a.ecn.is_some())
        );
        // A segment and its options are no longer than the maximum.
        let most = if used { MSS - 12 } else { MSS };
        assert_eq!(wire.sent.iter().map(|segment| segment.length).max(), Some(most));
        assert_eq!(wire.sent.iter().filter(|segment| segment.again && segment.ecn != Ecn::NotEct).count(), 0);
    }
}

/// Without a lost segment, a mark reduces the window once, is repeated until it is confirmed, and no more.
#[test]
fn classic_marks_reduce_once_and_are_confirmed() {
    let options = Options { ecn: Some(EcnFeedback::Classic), congestion: Some(Algorithm::Reno), ..modern() };
    let mark = |segment: &crate::support::wire::DataSegment| {
        if segment.offset / MSS == 100 { Outcome::Mark } else { Outcome::Pass }
    };
    let mut wire = Wire::new(options, u64::from(1_000 * MSS), mark);
    assert!(wire.run(Span::from_s(60)));
    let confirmed: Vec<_> = wire.sent.iter().filter(|segment| segment.header.has(CWR)).collect();
    assert_eq!(confirmed.len(), 1);
    let echoes = wire.answers.iter().filter(|(header, _)| header.has(ECE)).count();
    assert!(echoes > 10, "{echoes} echoes for a round trip");
    assert_eq!(wire.ends[0].statistics().retransmitted_segments, 0);
    let ssthresh = wire.ends[0].gauges().ssthresh;
    assert!(ssthresh > 30 * MSS && ssthresh < 110 * MSS, "{ssthresh}");
    // The echoes end with the confirmation: the last answers have none.
    assert!(!wire.answers.last().unwrap().0.has(ECE));
}

/// RFC 8257 section 3.2: the receiver reports exactly the marked segments, in spite of delayed acknowledgements.
#[test]
fn exact_feedback_counts_marked_bytes() {
    let options = Options { ecn: Some(EcnFeedback::Exact), congestion: Some(Algorithm::Dctcp), ..modern() };
    let mark = |segment: &crate::support::wire::DataSegment| {
        if segment.number % 7 < 2 && segment.number > 20 { Outcome::Mark } else { Outcome::Pass }
    };
    let mut wire = Wire::new(options, u64::from(700 * MSS), mark);
    assert!(wire.run(Span::from_s(60)));
    let marked: u64 =
        wire.sent.iter().filter(|s| s.number % 7 < 2 && s.number > 20).map(|s| u64::from(s.length)).sum();
    let (mut last, mut echoed) = (None, 0u64);
    for (header, _) in &wire.answers {
        let advance = last.map_or(0, |last| header.ack.since(last));
        if header.has(ECE) {
            echoed += u64::from(advance);
        }
        last = Some(header.ack);
    }
    assert_eq!(echoed, marked);
}

/// A path of 20 Mb/s without losses: each controller fills it, and the round trip is measured to the millisecond.
#[test]
fn every_controller_fills_a_path() {
    for congestion in Algorithm::ALL.map(Some).into_iter().chain([None]) {
        let options = Options { congestion, sack: congestion.is_some(), receive_buffer: 200_000, ..modern() };
        let mut wire = Wire::new(options, 10_000_000, |_| Outcome::Pass);
        wire.rate = Rate::from_bps(20_000_000);
        assert!(wire.run(Span::from_s(60)));
        let seconds = wire.now.as_s();
        assert!(seconds < 10_000_000.0 * 8.0 * 1.04 / 20e6 + 0.7, "{seconds} s with {congestion:?}");
        assert!(wire.ends[0].gauges().smoothed_rtt >= DELAY * 2);
    }
}

/// The idle period resets the window to the initial one (RFC 5681 section 4.1).
#[test]
fn idle_sender_restarts_with_the_initial_window() {
    let mut wire =
        Wire::new(Options { congestion: Some(Algorithm::CUBIC), ..modern() }, 300_000, |_| Outcome::Pass);
    assert!(wire.run(Span::from_s(60)));
    let before = wire.sent.len();
    assert!(wire.ends[0].gauges().cwnd > 20 * MSS);
    wire.now += Span::from_s(5);
    wire.total += 300_000;
    assert!(wire.run(Span::from_s(60)));
    let first = wire.sent[before].at;
    let burst = wire.sent[before..].iter().filter(|segment| segment.at == first).count();
    assert_eq!(burst, 10);
}

/// A late segment is taken for a lost one. Timestamps show that the original arrived, and the window is restored (RFC 3522).
#[test]
fn late_segment_costs_no_window() {
    for congestion in Algorithm::ALL {
        // Spaced by a rate, so that later segments arrive in between.
        let path = |segment: &crate::support::wire::DataSegment| {
            let is_late = segment.offset / 988 == 200 && !segment.again;
            if is_late { Outcome::Late(Span::from_ms(30)) } else { Outcome::Pass }
        };
        for (timestamps, spurious) in [(true, 1), (false, 0)] {
            let options =
                Options { congestion: Some(congestion), timestamps, receive_buffer: 100_000, ..modern() };
            let mut wire = Wire::new(options, 600_000, path);
            wire.rate = Rate::from_bps(10_000_000);
            assert!(wire.run(Span::from_s(60)));
            let statistics = wire.ends[0].statistics();
            assert_eq!(statistics.spurious_recoveries, spurious, "{congestion:?}: {statistics:?}");
            // BBR has no threshold, and HyStart sets one without a loss.
            let is_reduced = wire.ends[0].gauges().ssthresh < 100_000;
            let is_other =
                matches!(congestion, Algorithm::Bbr { .. } | Algorithm::Bbr3 { .. } | Algorithm::LinuxCubic);
            assert!(is_other || is_reduced != timestamps, "{congestion:?}: {:?}", wire.ends[0].gauges());
        }
    }
}

/// A peer that takes its window back has lost nothing: when it opens again, an acknowledgement of the first transmission does not
/// restore the window of an earlier loss.
#[test]
fn reopened_window_undoes_no_loss() {
    let options = Options { timestamps: true, mss: MSS as u16 + 12, ..modern() };
    let mut wire = Wire::new(options, u64::from(300 * MSS), lose(&[200]));
    assert!(wire.run(Span::from_s(60)));
    let (mut now, before) = (wire.now, wire.ends[0].gauges().ssthresh);
    let (last, _) = *wire.answers.last().unwrap();
    let (end, mut buffer) = (&mut wire.ends[0], vec![0; MAX_BATCH]);
    end.handle(now, Input::Command(Command::Send(5 * MSS))).unwrap();
    // Each step: how much is acknowledged, the window, and the number of segments that follow.
    let sent_at = (now.as_ns() / 1_000_000) as u32;
    for (acked, window, segments) in
        [(0, last.window, 5), (1, 0, 0), (1, last.window, 4), (2, last.window, 0)]
    {
        let header = Header { ack: last.ack + acked * MSS, window, ..last };
        let mut bytes = vec![0; 60];
        header.write(None, &mut bytes);
        let timestamps = Some(((now.as_ns() / 1_000_000) as u32, sent_at));
        let length = SegmentOptions { timestamps, ..SegmentOptions::default() }.write(&mut bytes);
        bytes.truncate(length);
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
        end.handle(now, input).unwrap();
        let count = std::iter::from_fn(|| match end.poll(now, Writable::ALL, &mut buffer) {
            Output::Transmit(_) => Some(()),
            _ => None,
        });
        assert_eq!(count.count(), segments, "{acked} {window}");
        now += Span::from_ms(10);
    }
    assert_eq!((end.statistics().spurious_recoveries, end.gauges().ssthresh), (0, before));
}

/// PAWS (RFC 7323 section 5): a segment with an older timestamp is an old duplicate, wherever its numbers are.
#[test]
fn segment_with_an_older_timestamp_is_dropped() {
    let mut wire = Wire::new(Options { timestamps: true, ..modern() }, 50_000, |_| Outcome::Pass);
    assert!(wire.run(Span::from_s(60)));
    let next = wire.sent.last().map(|last| last.header.seq + last.length).unwrap();
    let mut now = wire.now;
    let mut give = |timestamps: Option<(u32, u32)>| {
        now += Span::from_ms(1);
        let header = Header { seq: next, ..wire.sent[0].header };
        let mut bytes = vec![0; 60];
        header.write(None, &mut bytes);
        let length = SegmentOptions { timestamps, ..SegmentOptions::default() }.write(&mut bytes);
        bytes.resize(length + 10, 0);
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
        wire.ends[1].handle(now, input).unwrap();
        (wire.ends[1].readable(), wire.ends[1].statistics().outside_window)
    };
    let recent = (wire.now.as_ns() / 1_000_000) as u32;
    assert_eq!(give(Some((1, 0))), (0, 1));
    assert_eq!(give(None), (0, 2), "every segment must have one");
    assert_eq!(give(Some((recent, 0))), (10, 2));
}

/// RFC 8985 section 7: the last segments are lost, and a probe finds it without a timeout.
#[test]
fn losses_at_the_end_are_repaired_without_a_timeout() {
    for (lost, timestamps) in [(2, false), (2, true), (3, false), (3, true), (10, true)] {
        let first = 100 - lost;
        let options = Options { timestamps, mss: MSS as u16 + if timestamps { 12 } else { 0 }, ..modern() };
        let mut wire = Wire::new(options, u64::from(100 * MSS), |segment| {
            let is_lost = segment.offset / MSS >= first && !segment.again;
            if is_lost { Outcome::Drop } else { Outcome::Pass }
        });
        assert!(wire.run(Span::from_s(60)));
        let statistics = wire.ends[0].statistics();
        assert_eq!((statistics.tail_loss_probes, statistics.timeouts), (1, 0), "{lost}: {statistics:?}");
        assert_eq!(statistics.retransmitted_segments, u64::from(lost), "{statistics:?}");
    }
}

/// A probe that repaired a loss does not hide it: the window is reduced at the next acknowledgement of later data. After a
/// probe that was not needed it is not.
#[test]
fn repaired_tail_reduces_the_window() {
    for is_lost in [true, false] {
        // A single segment is probed after two round trips and 200 ms, so the minimum timeout is longer here.
        let options = Options { timers: Timers::Fine { floor: Span::from_s(1) }, ..modern() };
        let mut wire = Wire::new(options, u64::from(101 * MSS), |segment| {
            let is_last = segment.offset / MSS == 100 && !segment.again;
            match is_last {
                true if is_lost => Outcome::Drop,
                // It arrives 10 ms behind the probe.
                true => Outcome::Late(Span::from_ms(310)),
                false => Outcome::Pass,
            }
        });
        assert!(wire.run(Span::from_s(60)));
        wire.total += u64::from(20 * MSS);
        assert!(wire.run(Span::from_s(60)));
        let statistics = *wire.ends[0].statistics();
        assert_eq!((statistics.tail_loss_probes, statistics.timeouts), (1, 0), "{is_lost}: {statistics:?}");
        let ssthresh = wire.ends[0].gauges().ssthresh;
        assert_eq!(ssthresh < 200 * MSS, is_lost, "{is_lost}: {:?} {statistics:?}", wire.ends[0].gauges());
    }
}

/// A segment with data and blocks is no longer than the maximum.
#[test]
fn blocks_take_room_from_data() {
    let mut wire = Wire::new(Options { timestamps: true, ..modern() }, 50_000, |_| Outcome::Pass);
    assert!(wire.run(Span::from_s(60)));
    let next = wire.sent.last().map(|last| last.header.seq + last.length).unwrap();
    let now = wire.now + Span::from_ms(1);
    for gap in 1..5 {
        let header = Header { seq: next + gap * 2_000, ..wire.sent[0].header };
        let mut bytes = vec![0; 60];
        header.write(None, &mut bytes);
        let timestamps = Some(((now.as_ns() / 1_000_000) as u32, 0));
        let length = SegmentOptions { timestamps, ..SegmentOptions::default() }.write(&mut bytes);
        bytes.resize(length + 10, 0);
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
        wire.ends[1].handle(now, input).unwrap();
    }
    wire.ends[1].handle(now, Input::Command(Command::Send(9_000))).unwrap();
    let (mut buffer, mut blocks, mut full) = (vec![0; MAX_BATCH], 0, 0);
    while let Output::Transmit(t) = wire.ends[1].poll(now, Writable::ALL, &mut buffer) {
        let (_, start) = Header::parse(&buffer[..t.length]).unwrap();
        if t.length > start {
            blocks += SegmentOptions::parse(&buffer[20..start]).block_count;
            full += u32::from(t.length == 20 + MSS as usize);
            assert!(t.length <= 20 + MSS as usize, "{}", t.length);
        }
    }
    assert!(blocks >= 9 && full >= 8, "{blocks} blocks, {full} full segments");
}

/// What is lost is not taken for late, although a recovery begins while retransmissions of the one before are in flight: the
/// echoed timestamp of those is older than the new recovery.
#[test]
fn lost_segments_are_not_late() {
    let mut without_timeout = 0;
    for congestion in Algorithm::ALL {
        for seed in 0..20 {
            let lost = draw(seed, 8, 200, 600);
            let options = Options {
                congestion: Some(congestion),
                timestamps: true,
                mss: MSS as u16 + 12,
                receive_buffer: 200_000,
                ..modern()
            };
            let mut wire = Wire::new(options, u64::from(800 * MSS), lose(&lost));
            wire.rate = Rate::from_bps(10_000_000);
            assert!(wire.run(Span::from_s(60)));
            let statistics = wire.ends[0].statistics();
            // A timeout while a retransmission is in flight is spurious indeed.
            let spurious = if statistics.timeouts == 0 { statistics.spurious_recoveries } else { 0 };
            assert_eq!(spurious, 0, "{congestion:?}, seed {seed}: {statistics:?}");
            without_timeout += u32::from(statistics.timeouts == 0);
        }
    }
    assert!(without_timeout >= 60, "{without_timeout} of 80");
}

/// RFC 9768 section 3.1: Accurate ECN is used if both ends ask for it, otherwise ECN as in RFC 3168.
#[test]
fn accurate_ecn_is_negotiated() {
    let end = |ecn| Options { ecn, congestion: Some(Algorithm::Prague), ..modern() };
    let [none, classic, exact, accurate] =
        [None, Some(EcnFeedback::Classic), Some(EcnFeedback::Exact), Some(EcnFeedback::Accurate)].map(end);
    for (a, b, syns, first, field) in [
        // The answer and the first acknowledgement report the ECN field of the SYNs; then the count begins at 5.
        (accurate, accurate, [0b111, 0b010], Some(0b010), Ecn::Ect1),
        (accurate, classic, [0b111, 0b001], None, Ecn::Ect0),
        (accurate, exact, [0b111, 0b001], None, Ecn::Ect0),
        (classic, accurate, [0b011, 0b001], None, Ecn::Ect0),
        (exact, accurate, [0b011, 0b001], None, Ecn::Ect0),
        (accurate, none, [0b111, 0], None, Ecn::NotEct),
        (none, accurate, [0, 0], None, Ecn::NotEct),
    ] {
        let mark = |segment: &crate::support::wire::DataSegment| {
            if segment.number == 15 { Outcome::Mark } else { Outcome::Pass }
        };
        let mut wire = Wire::with(a, b, u64::from(100 * MSS), mark);
        assert!(wire.run(Span::from_s(60)));
        assert_eq!([wire.ace[0][0], wire.ace[1][0]], syns, "{:?} {:?}", a.ecn, b.ecn);
        assert!(wire.sent.iter().all(|segment| segment.ecn == field), "{:?} {:?}", a.ecn, b.ecn);
        let [client, server] = [&wire.ace[0][1..], &wire.ace[1][1..]];
        match first {
            Some(first) => {
                assert_eq!((client[0], server[0]), (first, 5));
                assert!(client[1..].iter().all(|ace| *ace == 5));
                assert_eq!(server.last(), Some(&6));
            }
            None => assert!(client.iter().all(|ace| ace & 4 == 0)),
        }
        let is_capable = field != Ecn::NotEct;
        assert_eq!(wire.ends[0].statistics().marked_bytes > 0, is_capable, "{:?} {:?}", a.ecn, b.ecn);
        let bytes = wire.answers.last().unwrap().1.ecn_bytes;
        let expected = EcnBytes { ect0: None, ce: Some(MSS), ect1: Some(99 * MSS + 1) };
        assert_eq!(bytes, first.map(|_| expected));
    }
}

/// The sender learns of every marked byte once, although segments are lost and acknowledgements delayed.
#[test]
fn accurate_feedback_counts_marked_bytes() {
    for (timestamps, lost) in [(false, &[][..]), (true, &[]), (true, &[150, 155, 160, 300])] {
        let options = Options {
            ecn: Some(EcnFeedback::Accurate),
            congestion: Some(Algorithm::Prague),
            timestamps,
            mss: MSS as u16 + if timestamps { 12 } else { 0 },
            ..modern()
        };
        let is_marked = |number: u64| number % 7 < 2 && number > 20;
        let mut wire = Wire::new(options, u64::from(700 * MSS), |segment| {
            let is_lost = lost.contains(&(segment.offset / MSS)) && !segment.again;
            match is_lost {
                true => Outcome::Drop,
                false if is_marked(segment.number) => Outcome::Mark,
                false => Outcome::Pass,
            }
        });
        assert!(wire.run(Span::from_s(60)));
        let is_seen = |s: &&crate::support::wire::DataSegment| {
            is_marked(s.number) && s.ecn.is_capable() && (s.again || !lost.contains(&(s.offset / MSS)))
        };
        let marked: u64 = wire.sent.iter().filter(is_seen).map(|s| u64::from(s.length)).sum();
        let statistics = wire.ends[0].statistics();
        assert_eq!((statistics.marked_bytes, statistics.timeouts), (marked, 0), "{lost:?}");
        assert!(wire.sent.iter().all(|s| s.ecn == if s.again { Ecn::NotEct } else { Ecn::Ect1 }));
    }
}

/// Gives a segment to the second end without polling it, as when several arrive together.
fn give(wire: &mut Wire<'_>, offset: u32, length: usize, ecn: Ecn) {
    let last = *wire.sent.last().unwrap();
    let header = Header { seq: last.header.seq + last.length + offset, ..last.header };
    let mut bytes = vec![0; 20 + length];
    header.write(None, &mut bytes);
    wire.ends[1].set_received_ecn(ecn);
    let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
    wire.ends[1].handle(wire.now, input).unwrap();
}

/// RFC 8257 section 3.2: each change of the marks is acknowledged by itself, even if several segments arrive together.
#[test]
fn each_change_of_the_marks_is_acknowledged() {
    let options = Options { ecn: Some(EcnFeedback::Exact), congestion: Some(Algorithm::Dctcp), ..modern() };
    let mut wire = Wire::new(options, u64::from(100 * MSS), |_| Outcome::Pass);
    assert!(wire.run(Span::from_s(60)));
    let next = wire.sent.last().map(|last| last.header.seq + last.length).unwrap();
    for (n, ecn) in [Ecn::Ect0, Ecn::Ce, Ecn::Ect0, Ecn::Ce].into_iter().enumerate() {
        give(&mut wire, n as u32 * 100, 100, ecn);
    }
    wire.now += Span::from_ms(40);
    wire.ends[1].handle(wire.now, Input::Wake).unwrap();
    let mut buffer = vec![0; MAX_BATCH];
    let mut answers = Vec::new();
    loop {
        match wire.ends[1].poll(wire.now, Writable::ALL, &mut buffer) {
            Output::Transmit(_) => {
                let (header, _) = Header::parse(&buffer).unwrap();
                answers.push((header.ack.since(next), header.has(ECE)));
            }
            Output::Event(_) => {}
            Output::Idle(_) => break,
        }
    }
    assert_eq!(answers, [(100, false), (200, true), (300, false), (400, true)]);
}

/// RFC 3168 section 6.1: a reset and a window probe are not capable of ECN, although the last data was.
#[test]
fn resets_and_probes_are_not_capable() {
    for (ecn, congestion) in
        [(EcnFeedback::Classic, Algorithm::Reno), (EcnFeedback::Accurate, Algorithm::Prague)]
    {
        let options = Options { ecn: Some(ecn), congestion: Some(congestion), ..modern() };
        let mut wire = Wire::new(options, u64::from(100 * MSS), |_| Outcome::Pass);
        assert!(wire.run(Span::from_s(60)));
        assert!(wire.ends[0].sent_ecn().is_capable());
        let (last, _) = *wire.answers.last().unwrap();
        let (now, end, mut buffer) = (wire.now, &mut wire.ends[0], vec![0; MAX_BATCH]);
        let mut sent = |end: &mut trunkline_tcp::Tcp<_>, now| loop {
            match end.poll(now, Writable::ALL, &mut buffer) {
                Output::Transmit(_) => return Some(Header::parse(&buffer).unwrap().0),
                Output::Event(_) => {}
                Output::Idle(_) => return None,
            }
        };
        // The peer acknowledges a segment and closes its window.
        end.handle(now, Input::Command(Command::Send(MSS))).unwrap();
        assert!(sent(end, now).is_some());
        let mut bytes = vec![0; 20];
        Header { window: 0, flags: ACK, ack: last.ack + MSS, ..last }.write(None, &mut bytes);
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
        end.handle(now, input).unwrap();
        end.handle(now, Input::Command(Command::Send(5 * MSS))).unwrap();
        assert!(end.sent_ecn().is_capable());
        assert_eq!(sent(end, now), None);
        let later = now + Span::from_s(10);
        end.handle(later, Input::Wake).unwrap();
        assert!(sent(end, later).is_some());
        assert_eq!((end.statistics().probes, end.sent_ecn()), (1, Ecn::NotEct), "{ecn:?}");

        let mut wire = Wire::new(options, u64::from(100 * MSS), |_| Outcome::Pass);
        assert!(wire.run(Span::from_s(60)));
        let (now, end) = (wire.now, &mut wire.ends[0]);
        end.handle(now, Input::Command(Command::Abort)).unwrap();
        assert!(sent(end, now).is_some_and(|header| header.has(RST)));
        assert_eq!(end.sent_ecn(), Ecn::NotEct, "{ecn:?}");
    }
}

/// An end that has to acknowledge while it waits for the peer's window still probes it: the update of the window may be lost.
#[test]
fn acknowledgement_does_not_replace_the_probe() {
    for sack in [false, true] {
        let options = Options { sack, congestion: sack.then_some(Algorithm::Reno), ..modern() };
        let mut wire = Wire::new(options, u64::from(100 * MSS), |_| Outcome::Pass);
        assert!(wire.run(Span::from_s(60)));
        let (last, _) = *wire.answers.last().unwrap();
        let (now, end, mut buffer) = (wire.now, &mut wire.ends[0], vec![0; MAX_BATCH]);
        end.handle(now, Input::Command(Command::Send(MSS))).unwrap();
        while !matches!(end.poll(now, Writable::ALL, &mut buffer), Output::Idle(_)) {}
        // More data is queued when the peer closes window and connection at once.
        end.handle(now, Input::Command(Command::Send(100 * MSS))).unwrap();
        let mut bytes = vec![0; 20];
        Header { window: 0, flags: ACK | FIN, ack: last.ack + MSS, ..last }.write(None, &mut bytes);
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
        end.handle(now, input).unwrap();
        let deadline = loop {
            if let Output::Idle(idle) = end.poll(now, Writable::ALL, &mut buffer) {
                break idle.deadline;
            }
        };
        assert!(deadline.is_some(), "{sack}");
    }
}
