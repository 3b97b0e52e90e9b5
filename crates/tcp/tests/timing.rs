//! Times at which segments are sent, compared with ticks counted by hand. The test acts as the peer.

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::segment::{ACK, FIN, HEADER, Header, Offer, RST, SYN, Seq};
use trunkline_tcp::{Arithmetic, Command, Event, Options, State, Tcp, Timers, Virtual};
use trunkline_units::{Instant, Span};

/// Initial sequence number of the peer.
const PEER_ISN: u32 = 7_000;
const MSS: u32 = 1_000;

/// Fast ticks at 30, 230, 430 ms, …; slow ones at 100, 600, 1100 ms, ….
const BSD: Timers = Timers::Bsd { fast_phase: Span::from_ms(30), slow_phase: Span::from_ms(100) };

/// A sent segment: time in ms, sequence number relative to the SYN, payload length.
type Sent = (u64, u32, usize);

struct Harness {
    tcp: Tcp<Virtual>,
    now: Instant,
    sent: Vec<(u64, Header, usize)>,
    events: Vec<(u64, Event)>,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
    /// The window that the peer advertises.
    window: u16,
}

fn options(timers: Timers) -> Options {
    Options { timers, mss: MSS as u16, remote: 5, local: 4, initial_sequence: 0, ..Options::default() }
}

impl Harness {
    fn new(options: Options) -> Harness {
        Harness {
            tcp: Tcp::new(options),
            now: Instant::ZERO,
            sent: Vec::new(),
            events: Vec::new(),
            deadline: None,
            buffer: vec![0; MAX_BATCH],
            window: 30_000,
        }
    }

    /// Connects: the SYN is sent at 0 and is answered at 50 ms, within a tick. The smoothed round trip is then one
    /// tick and the timeout three.
    fn open(options: Options) -> Harness {
        let mut harness = Harness::new(options);
        harness.command(Command::Connect);
        harness.wait_until(50);
        harness.deliver(SYN | ACK, 0, 1, 0);
        assert_eq!(harness.tcp.state(), State::Established);
        harness.sent.clear();
        harness.events.clear();
        harness
    }

    fn drain(&mut self) {
        let ms = self.now.as_ns() / 1_000_000;
        loop {
            match self.tcp.poll(self.now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(t) => {
                    let (header, length) = Header::parse(&self.buffer[..t.length]).unwrap();
                    self.sent.push((ms, header, t.length - length));
                }
                Output::Event(event) => self.events.push((ms, event)),
                Output::Idle(idle) => break self.deadline = idle.deadline,
            }
        }
    }

    fn command(&mut self, command: Command<'_, Virtual>) {
        self.tcp.handle(self.now, Input::Command(command)).unwrap();
        self.drain();
    }

    /// Wakes the end at its deadlines until `ms`.
    fn wait_until(&mut self, ms: u64) {
        let until = Instant::ZERO + Span::from_ms(ms);
        while let Some(at) = self.deadline.filter(|at| *at <= until) {
            self.now = at;
            self.tcp.handle(at, Input::Wake).unwrap();
            self.drain();
        }
        self.now = until;
    }

    /// Delivers a segment of the peer, with numbers relative to the SYNs.
    fn deliver(&mut self, flags: u8, seq: u32, ack: u32, payload: usize) {
        let header = Header {
            source: 5,
            destination: 4,
            seq: Seq(PEER_ISN) + seq,
            ack: Seq(ack),
            flags,
            window: self.window,
        };
        let offer = (flags & SYN != 0).then_some(Offer { mss: Some(MSS as u16), ..Offer::default() });
        let mut bytes = vec![0; HEADER + 8];
        let length = header.write(offer, &mut bytes);
        bytes.resize(length + payload, 0);
        let bytes = &bytes[..];
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None };
        self.tcp.handle(self.now, input).unwrap();
        self.drain();
    }

    fn acknowledge(&mut self, ack: u32) {
        self.deliver(ACK, 1, ack, 0);
    }

    /// Returns the segments sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        self.sent.drain(..).map(|(ms, header, length)| (ms, header.seq.0, length)).collect()
    }
}

#[test]
fn a_syn_is_retransmitted_after_6_and_24_s_and_abandoned_after_75() {
    let mut harness = Harness::new(options(BSD));
    harness.command(Command::Connect);
    harness.wait_until(200_000);
    // 12 ticks from 0: the twelfth is at 100 + 11 · 500; then 48 ticks; 150 ticks from 0 is the end.
    assert_eq!(harness.sent(), [(0, 0, 0), (5_600, 0, 0), (29_600, 0, 0)]);
    assert_eq!(harness.events, [(74_600, Event::TimedOut), (74_600, Event::Closed)]);
    assert_eq!(harness.deadline, None);
}

#[test]
fn data_is_retransmitted_on_slow_ticks_with_backoff() {
    let mut harness = Harness::open(options(BSD));
    harness.wait_until(60);
    harness.command(Command::Send(10));
    harness.wait_until(60_000);
    // Three ticks: 100, 600, 1100 ms. Then 6, 12, 24, 48 ticks.
    let times: Vec<u64> = harness.sent().into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(times, [60, 1_100, 4_100, 10_100, 22_100, 46_100]);
    assert_eq!(harness.tcp.statistics().timeouts, 5);
}

#[test]
fn without_ticks_the_timeout_follows_the_round_trip() {
    let mut harness = Harness::open(options(Timers::Fine { floor: Span::ZERO }));
    harness.wait_until(60);
    harness.command(Command::Send(10));
    harness.wait_until(1_000);
    // The one round trip measured took 50 ms: three times that, then twice as long each time.
    let times: Vec<u64> = harness.sent().into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(times, [60, 210, 510]);
}

#[test]
fn a_lone_segment_is_acknowledged_by_the_fast_timer() {
    let mut harness = Harness::open(options(BSD));
    for (arrives, acknowledged, seq) in [(250, 430, 1), (431, 630, 101), (829, 830, 201), (830, 1_030, 301)] {
        harness.wait_until(arrives);
        harness.deliver(ACK, seq, 1, 100);
        assert_eq!(harness.sent(), []);
        harness.wait_until(acknowledged - 1);
        assert_eq!(harness.sent(), []);
        // The deadline is exactly that tick: no needless wakeup.
        assert_eq!(harness.deadline, Some(Instant::ZERO + Span::from_ms(acknowledged)));
        harness.wait_until(acknowledged);
        assert_eq!(harness.sent.pop().unwrap().1.ack, Seq(PEER_ISN + seq + 100));
        assert_eq!(harness.sent(), []);
    }
    assert_eq!(harness.deadline, None, "no timer is armed");
}

#[test]
fn every_second_segment_is_acknowledged_at_once() {
    let mut harness = Harness::open(options(BSD));
    for i in 0..10 {
        harness.deliver(ACK, 1 + i * MSS, 1, MSS as usize);
        assert_eq!(harness.sent().len() as u32, i % 2, "segment {i}");
    }
    let mut eager = Harness::open(Options { delayed_ack: false, ..options(BSD) });
    for i in 0..10 {
        eager.deliver(ACK, 1 + i * MSS, 1, MSS as usize);
        assert_eq!(eager.sent().len(), 1, "segment {i}");
    }
}

#[test]
fn window_update_is_sent_after_two_segments_or_half_the_buffer() {
    for (receive_buffer, takes) in [(20_000, 2_000), (3_000, 1_500)] {
        let mut harness = Harness::open(Options { receive_buffer, ..options(BSD) });
        let mut seq = 1;
        while harness.tcp.readable() < receive_buffer {
            let length = MSS.min(receive_buffer - harness.tcp.readable());
            harness.deliver(ACK, seq, 1, length as usize);
            seq += length;
        }
        harness.wait_until(1_000);
        assert_eq!(harness.sent.last().unwrap().1.window, 0);
        harness.sent();
        harness.command(Command::Take(takes - 1));
        assert_eq!(harness.sent(), [], "{receive_buffer}");
        harness.command(Command::Take(1));
        let told = harness.sent.pop().unwrap().1.window;
        assert_eq!((u32::from(told), harness.sent().len()), (takes, 0));
    }
}

/// Returns an end with `segments` segments in flight, all sent at 60 ms.
fn in_flight(segments: u32, options: Options) -> Harness {
    let mut harness = Harness::open(options);
    harness.wait_until(60);
    harness.command(Command::Send(60 * MSS));
    let mut acknowledged = 1;
    while harness.tcp.gauges().in_flight < segments * MSS {
        acknowledged += MSS;
        harness.acknowledge(acknowledged);
    }
    harness.sent();
    harness
}

#[test]
fn slow_start_adds_a_segment_for_each_acknowledgement() {
    let mut harness = Harness::open(options(BSD));
    harness.command(Command::Send(40 * MSS));
    let mut acknowledged = 1;
    for round in [1, 2, 4, 8, 16] {
        assert_eq!(harness.sent().len(), round);
        for _ in 0..round {
            acknowledged += MSS;
            harness.acknowledge(acknowledged);
        }
    }
}

#[test]
fn congestion_avoidance_adds_a_segment_for_each_window() {
    // Net/2 adds an eighth of one for each acknowledgement besides.
    for (arithmetic, eighths) in [(Arithmetic::Rfc2581, 0), (Arithmetic::Net2, 1)] {
        let mut harness =
            in_flight(10, Options { initial_ssthresh: Some(5 * MSS), arithmetic, ..options(BSD) });
        let before = harness.tcp.gauges().cwnd;
        let (first, steps) = (1 + (60 * MSS - harness.tcp.unacknowledged()), before / MSS);
        for i in 1..=steps {
            harness.acknowledge(first + i * MSS);
        }
        let grown = harness.tcp.gauges().cwnd - before - eighths * steps * MSS / 8;
        // The window grows on the way, so each step is a little less than its share.
        assert!((800..=MSS).contains(&grown), "{arithmetic:?}: {grown}");
    }
}

#[test]
fn the_third_duplicate_retransmits_one_segment_and_starts_recovery() {
    let mut harness = in_flight(12, options(BSD));
    let first = 1 + (60 * MSS - harness.tcp.unacknowledged());
    harness.acknowledge(first);
    harness.acknowledge(first);
    assert_eq!(harness.sent(), []);
    harness.acknowledge(first);
    assert_eq!(harness.sent(), [(60, first, MSS as usize)], "one segment, at once");
    let gauges = harness.tcp.gauges();
    assert_eq!((gauges.ssthresh, gauges.cwnd), (6 * MSS, 9 * MSS));
    // Each further duplicate inflates the window until it admits a new segment.
    for i in 4..=7 {
        harness.acknowledge(first);
        let expected = if i > 6 { vec![(60, first + 12 * MSS, MSS as usize)] } else { vec![] };
        assert_eq!(harness.sent(), expected, "duplicate {i}");
    }
    assert_eq!(harness.tcp.gauges().cwnd, 13 * MSS);
    // The gap is filled: the window deflates.
    harness.acknowledge(first + 13 * MSS);
    let cwnd = harness.tcp.gauges().cwnd;
    assert!((6 * MSS..=7 * MSS).contains(&cwnd), "{cwnd}");
    let statistics = harness.tcp.statistics();
    assert_eq!((statistics.fast_retransmits, statistics.timeouts), (1, 0));
    assert_eq!((statistics.duplicate_acks, statistics.retransmitted_segments), (7, 1));
}

#[test]
fn a_timeout_restarts_slow_start_and_retransmits_everything() {
    let mut harness = in_flight(8, options(BSD));
    let first = 1 + (60 * MSS - harness.tcp.unacknowledged());
    harness.wait_until(1_600); // the timer was set anew at 60 ms for three ticks at most
    assert_eq!(harness.sent(), [(1_100, first, MSS as usize)]);
    let gauges = harness.tcp.gauges();
    assert_eq!((gauges.cwnd, gauges.ssthresh), (MSS, 4 * MSS));
    harness.acknowledge(first + MSS);
    let expected = [(1_600, first + MSS, MSS as usize), (1_600, first + 2 * MSS, MSS as usize)];
    assert_eq!(harness.sent(), expected);
}

#[test]
fn a_zero_window_is_probed_from_5_s_to_60_s() {
    let mut harness = Harness::open(options(BSD));
    harness.window = 0;
    harness.wait_until(60);
    harness.command(Command::Send(1)); // tells it of nothing: the window is still open
    harness.acknowledge(2);
    harness.sent();
    harness.command(Command::Send(3 * MSS));
    assert_eq!(harness.sent(), []);
    for probe in [5_000, 10_000, 15_000, 23_000, 39_000, 71_000, 131_000, 191_000] {
        harness.wait_until(probe + 100);
        let left = harness.sent();
        assert_eq!(left.len(), 1, "{probe}: {left:?}");
        assert_eq!((left[0].1, left[0].2), (2, 1), "one byte beyond the window");
        assert!(left[0].0.abs_diff(probe) <= 500, "{left:?}");
        harness.acknowledge(2); // not taken
    }
    harness.window = 30_000;
    harness.acknowledge(2);
    assert_eq!(harness.sent()[0].1, 2);
    harness.acknowledge(2 + MSS);
    harness.acknowledge(2 + 3 * MSS);
    assert_eq!((harness.tcp.unacknowledged(), harness.deadline), (0, None));
}

#[test]
fn nagle_delays_small_segments_until_an_ack() {
    for (nagle, left) in [(true, 1), (false, 2)] {
        let mut harness = Harness::open(Options { nagle, ..options(BSD) });
        harness.command(Command::Send(10));
        harness.command(Command::Send(20));
        assert_eq!(harness.sent().len(), left);
        harness.acknowledge(11);
        assert_eq!(harness.sent().len(), 2 - left);
    }
}

#[test]
fn slow_start_restarts_after_an_idle_time() {
    let mut harness = in_flight(10, options(BSD));
    let all = 60 * MSS - harness.tcp.unacknowledged();
    let mut acknowledged = 1 + all;
    while harness.tcp.unacknowledged() > 0 {
        acknowledged += MSS;
        harness.acknowledge(acknowledged);
    }
    assert!(harness.tcp.gauges().cwnd > 10 * MSS);
    harness.sent();
    harness.wait_until(10_000);
    harness.command(Command::Send(10 * MSS));
    assert_eq!(harness.sent().len(), 1);
}

#[test]
fn only_the_exact_sequence_number_resets() {
    let mut harness = Harness::open(options(BSD));
    harness.deliver(RST, 100, 0, 0);
    assert_eq!(harness.sent().len(), 1, "in the window: answered");
    harness.deliver(RST, 70_000, 0, 0);
    harness.deliver(RST, 0, 0, 0);
    assert_eq!(harness.sent().len(), 0, "outside: ignored");
    harness.deliver(SYN, 100, 0, 0);
    assert_eq!(harness.sent().len(), 1);
    assert_eq!(harness.tcp.state(), State::Established);
    harness.deliver(RST, 1, 0, 0);
    assert_eq!(harness.tcp.state(), State::Closed);
}

#[test]
fn each_out_of_order_segment_is_acknowledged() {
    let mut harness = Harness::open(options(BSD));
    for i in [1, 3, 2, 4] {
        harness.deliver(ACK, 1 + i * MSS, 1, MSS as usize);
        let (_, header, length) = harness.sent.pop().unwrap();
        assert_eq!((header.ack, length, harness.sent.len()), (Seq(PEER_ISN + 1), 0, 0));
    }
    harness.deliver(ACK | FIN, 1 + 5 * MSS, 1, 0);
    assert!(!harness.tcp.is_finished());
    harness.sent();
    harness.deliver(ACK, 1, 1, MSS as usize);
    assert_eq!(harness.sent.pop().unwrap().1.ack, Seq(PEER_ISN + 2 + 5 * MSS));
    assert!(harness.tcp.is_finished());
    assert_eq!(harness.tcp.readable(), 5 * MSS);
    assert_eq!(harness.tcp.statistics().out_of_order, 5);
}

#[test]
fn each_frame_of_a_batch_is_acknowledged() {
    // Four segments behind a gap make four duplicate acknowledgements, in one call or in four.
    let mut harness = Harness::open(options(BSD));
    let mut bytes = Vec::new();
    for i in 1..=4 {
        let header = Header {
            source: 5,
            destination: 4,
            seq: Seq(PEER_ISN + 1 + i * MSS),
            ack: Seq(1),
            flags: ACK,
            window: 30_000,
        };
        let mut segment = vec![0; HEADER + MSS as usize];
        header.write(None, &mut segment);
        bytes.extend(segment);
    }
    let segment = trunkline_endpoint::Segment::of(HEADER + MSS as usize, bytes.len());
    let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment };
    harness.tcp.handle(harness.now, input).unwrap();
    harness.drain();
    assert_eq!(harness.sent().len(), 4);
}

#[test]
fn time_wait_lasts_and_answers() {
    let mut harness = Harness::open(options(BSD));
    harness.wait_until(60);
    harness.command(Command::Close);
    harness.acknowledge(2);
    harness.deliver(ACK | FIN, 1, 2, 0);
    assert_eq!(harness.tcp.state(), State::TimeWait);
    harness.wait_until(30_000);
    harness.sent();
    harness.deliver(ACK | FIN, 1, 2, 0);
    assert_eq!(harness.sent().len(), 1, "the acknowledgement was lost: once more");
    harness.wait_until(89_000);
    assert_eq!(harness.tcp.state(), State::TimeWait, "and from then on 60 s");
    harness.wait_until(91_000);
    assert!(harness.tcp.is_closed());
}

#[test]
fn silly_window_is_not_advertised() {
    let mut harness = Harness::open(Options { receive_buffer: 20_000, ..options(BSD) });
    for i in 0..20 {
        harness.deliver(ACK, 1 + i * MSS, 1, MSS as usize);
    }
    harness.wait_until(1_000);
    harness.command(Command::Take(100));
    harness.sent();
    // A probe is answered with a zero window although it fits, and its byte is not lost.
    harness.deliver(ACK, 1 + 20 * MSS, 1, 60);
    harness.wait_until(2_000);
    let (_, header, _) = harness.sent.pop().unwrap();
    assert_eq!((header.window, header.ack), (0, Seq(PEER_ISN + 1 + 20 * MSS + 60)));
    assert_eq!(harness.tcp.readable(), 19_960);
}

#[test]
fn a_retransmitted_segment_is_not_timed() {
    let mut harness = Harness::open(options(BSD));
    harness.wait_until(60);
    harness.command(Command::Send(10));
    harness.wait_until(1_200);
    assert_eq!(harness.sent().len(), 2);
    harness.acknowledge(11);
    assert_eq!(harness.tcp.statistics().round_trips, 0);
    assert_eq!(harness.tcp.gauges().rto, Span::from_s(3), "and the timeout stays backed off");
    harness.command(Command::Send(10));
    harness.acknowledge(21);
    assert_eq!(harness.tcp.statistics().round_trips, 1);
    assert!(harness.tcp.gauges().rto < Span::from_s(3));
}

#[test]
fn a_window_smaller_than_a_segment_is_used_in_halves() {
    let mut harness = Harness::new(options(BSD));
    harness.window = 800;
    harness.command(Command::Connect);
    harness.wait_until(50);
    harness.deliver(SYN | ACK, 0, 1, 0);
    harness.sent();
    harness.command(Command::Send(2 * MSS));
    assert_eq!(harness.sent(), [(50, 1, 800)], "not delayed until the persist timer");
    harness.window = 300;
    harness.acknowledge(801);
    assert_eq!(harness.sent(), [], "less than half of the largest window seen");
}

#[test]
fn the_last_byte_goes_into_a_zero_window_without_the_fin() {
    let mut harness = Harness::open(options(BSD));
    harness.window = 0;
    harness.wait_until(60);
    harness.command(Command::Send(1));
    harness.acknowledge(2);
    harness.sent();
    harness.command(Command::Send(1));
    harness.command(Command::Close);
    assert_eq!(harness.sent(), []);
    harness.wait_until(6_000);
    let (_, header, length) = harness.sent.pop().unwrap();
    assert_eq!((header.has(FIN), length), (false, 1));
    // The byte is acknowledged; the FIN needs no window.
    harness.acknowledge(3);
    let (_, header, length) = harness.sent.pop().unwrap();
    assert_eq!((header.has(FIN), header.seq, length), (true, Seq(3), 0));
}
