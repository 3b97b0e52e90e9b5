//! When segments leave, against ticks counted by hand. The other end is played by the test.

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::segment::{ACK, FIN, HEADER, Header, Offer, RST, SYN, Seq};
use trunkline_tcp::{Arithmetic, Command, Event, Options, State, Tcp, Timers, Virtual};
use trunkline_units::{Instant, Span};

/// First number of the played end.
const THEIRS: u32 = 7_000;
const MSS: u32 = 1_000;

/// Fast ticks at 30, 230, 430 ms, …; slow ones at 100, 600, 1100 ms, ….
const BSD: Timers = Timers::Bsd { fast_phase: Span::from_ms(30), slow_phase: Span::from_ms(100) };

/// A segment that left: when in ms, first number counted from the SYN, payload.
type Sent = (u64, u32, usize);

struct Stage {
    tcp: Tcp<Virtual>,
    now: Instant,
    sent: Vec<(u64, Header, usize)>,
    events: Vec<(u64, Event)>,
    deadline: Option<Instant>,
    buffer: Vec<u8>,
    /// What the played end says it takes.
    window: u16,
}

fn options(timers: Timers) -> Options {
    Options { timers, mss: MSS as u16, remote: 5, local: 4, initial_sequence: 0, ..Options::default() }
}

impl Stage {
    fn new(options: Options) -> Stage {
        Stage {
            tcp: Tcp::new(options),
            now: Instant::ZERO,
            sent: Vec::new(),
            events: Vec::new(),
            deadline: None,
            buffer: vec![0; MAX_BATCH],
            window: 30_000,
        }
    }

    /// Opened at once: the SYN leaves at 0 and is answered at 50 ms, within a tick. The smoothed round trip is then one
    /// tick and the timeout three.
    fn open(options: Options) -> Stage {
        let mut stage = Stage::new(options);
        stage.ask(Command::Connect);
        stage.wait_until(50);
        stage.give(SYN | ACK, 0, 1, 0);
        assert_eq!(stage.tcp.state(), State::Established);
        stage.sent.clear();
        stage.events.clear();
        stage
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

    fn ask(&mut self, command: Command<'_, Virtual>) {
        self.tcp.handle(self.now, Input::Command(command)).unwrap();
        self.drain();
    }

    /// Wakes it at its deadlines until `ms`, and not else.
    fn wait_until(&mut self, ms: u64) {
        let until = Instant::ZERO + Span::from_ms(ms);
        while let Some(at) = self.deadline.filter(|at| *at <= until) {
            self.now = at;
            self.tcp.handle(at, Input::Wake).unwrap();
            self.drain();
        }
        self.now = until;
    }

    /// A segment from the played end: numbers counted from the SYNs.
    fn give(&mut self, flags: u8, seq: u32, ack: u32, payload: usize) {
        let header = Header {
            source: 5,
            destination: 4,
            seq: Seq(THEIRS) + seq,
            ack: Seq(ack),
            flags,
            window: self.window,
        };
        let offer = (flags & SYN != 0).then_some(Offer { mss: Some(MSS as u16), scale: None });
        let mut bytes = vec![0; HEADER + 8];
        let length = header.write(offer, &mut bytes);
        bytes.resize(length + payload, 0);
        let bytes = &bytes[..];
        let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None };
        self.tcp.handle(self.now, input).unwrap();
        self.drain();
    }

    fn acknowledge(&mut self, ack: u32) {
        self.give(ACK, 1, ack, 0);
    }

    /// What left since the last call.
    fn left(&mut self) -> Vec<Sent> {
        self.sent.drain(..).map(|(ms, header, length)| (ms, header.seq.0, length)).collect()
    }
}

#[test]
fn a_syn_is_sent_again_after_6_24_seconds_and_given_up_after_75() {
    let mut stage = Stage::new(options(BSD));
    stage.ask(Command::Connect);
    stage.wait_until(200_000);
    // 12 ticks from 0: the twelfth is at 100 + 11 · 500; then 48 ticks; 150 ticks from 0 is the end.
    assert_eq!(stage.left(), [(0, 0, 0), (5_600, 0, 0), (29_600, 0, 0)]);
    assert_eq!(stage.events, [(74_600, Event::TimedOut), (74_600, Event::Closed)]);
    assert_eq!(stage.deadline, None);
}

#[test]
fn data_is_sent_again_on_slow_ticks_with_backoff() {
    let mut stage = Stage::open(options(BSD));
    stage.wait_until(60);
    stage.ask(Command::Send(10));
    stage.wait_until(60_000);
    // Three ticks: 100, 600, 1100 ms. Then 6, 12, 24, 48 ticks.
    let times: Vec<u64> = stage.left().into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(times, [60, 1_100, 4_100, 10_100, 22_100, 46_100]);
    assert_eq!(stage.tcp.statistics().timeouts, 5);
}

#[test]
fn without_ticks_it_is_sent_again_after_the_round_trip() {
    let mut stage = Stage::open(options(Timers::Fine { floor: Span::ZERO }));
    stage.wait_until(60);
    stage.ask(Command::Send(10));
    stage.wait_until(1_000);
    // The one round trip measured took 50 ms: three times that, then twice as long each time.
    let times: Vec<u64> = stage.left().into_iter().map(|(ms, ..)| ms).collect();
    assert_eq!(times, [60, 210, 510]);
}

#[test]
fn a_lone_segment_is_acknowledged_by_the_fast_timer() {
    let mut stage = Stage::open(options(BSD));
    for (arrives, acknowledged, seq) in [(250, 430, 1), (431, 630, 101), (829, 830, 201), (830, 1_030, 301)] {
        stage.wait_until(arrives);
        stage.give(ACK, seq, 1, 100);
        assert_eq!(stage.left(), []);
        stage.wait_until(acknowledged - 1);
        assert_eq!(stage.left(), []);
        // Armed for exactly that tick, so that there is no needless wakeup.
        assert_eq!(stage.deadline, Some(Instant::ZERO + Span::from_ms(acknowledged)));
        stage.wait_until(acknowledged);
        assert_eq!(stage.sent.pop().unwrap().1.ack, Seq(THEIRS + seq + 100));
        assert_eq!(stage.left(), []);
    }
    assert_eq!(stage.deadline, None, "nothing is armed: nothing wakes it");
}

#[test]
fn every_second_segment_is_acknowledged_at_once() {
    let mut stage = Stage::open(options(BSD));
    for i in 0..10 {
        stage.give(ACK, 1 + i * MSS, 1, MSS as usize);
        assert_eq!(stage.left().len() as u32, i % 2, "segment {i}");
    }
    let mut eager = Stage::open(Options { delayed_ack: false, ..options(BSD) });
    for i in 0..10 {
        eager.give(ACK, 1 + i * MSS, 1, MSS as usize);
        assert_eq!(eager.left().len(), 1, "segment {i}");
    }
}

#[test]
fn window_update_is_sent_after_two_segments_or_half_the_buffer() {
    for (receive_buffer, takes) in [(20_000, 2_000), (3_000, 1_500)] {
        let mut stage = Stage::open(Options { receive_buffer, ..options(BSD) });
        let mut seq = 1;
        while stage.tcp.readable() < receive_buffer {
            let length = MSS.min(receive_buffer - stage.tcp.readable());
            stage.give(ACK, seq, 1, length as usize);
            seq += length;
        }
        stage.wait_until(1_000);
        assert_eq!(stage.sent.last().unwrap().1.window, 0);
        stage.left();
        stage.ask(Command::Take(takes - 1));
        assert_eq!(stage.left(), [], "{receive_buffer}");
        stage.ask(Command::Take(1));
        let told = stage.sent.pop().unwrap().1.window;
        assert_eq!((u32::from(told), stage.left().len()), (takes, 0));
    }
}

/// An end with `segments` segments under way, all sent at 60 ms.
fn under_way(segments: u32, options: Options) -> Stage {
    let mut stage = Stage::open(options);
    stage.wait_until(60);
    stage.ask(Command::Send(60 * MSS));
    let mut acknowledged = 1;
    while stage.tcp.gauges().in_flight < segments * MSS {
        acknowledged += MSS;
        stage.acknowledge(acknowledged);
    }
    stage.left();
    stage
}

#[test]
fn slow_start_adds_a_segment_for_each_acknowledgement() {
    let mut stage = Stage::open(options(BSD));
    stage.ask(Command::Send(40 * MSS));
    let mut acknowledged = 1;
    for round in [1, 2, 4, 8, 16] {
        assert_eq!(stage.left().len(), round);
        for _ in 0..round {
            acknowledged += MSS;
            stage.acknowledge(acknowledged);
        }
    }
}

#[test]
fn congestion_avoidance_adds_a_segment_for_each_window() {
    // Net/2 adds an eighth of one for each acknowledgement besides.
    for (arithmetic, eighths) in [(Arithmetic::Rfc2581, 0), (Arithmetic::Net2, 1)] {
        let mut stage =
            under_way(10, Options { initial_ssthresh: Some(5 * MSS), arithmetic, ..options(BSD) });
        let before = stage.tcp.gauges().cwnd;
        let (first, steps) = (1 + (60 * MSS - stage.tcp.unacknowledged()), before / MSS);
        for i in 1..=steps {
            stage.acknowledge(first + i * MSS);
        }
        let grown = stage.tcp.gauges().cwnd - before - eighths * steps * MSS / 8;
        // The window grows on the way, so each step is a little less than its share.
        assert!((800..=MSS).contains(&grown), "{arithmetic:?}: {grown}");
    }
}

#[test]
fn the_third_duplicate_sends_one_segment_again_and_recovery_goes_on() {
    let mut stage = under_way(12, options(BSD));
    let first = 1 + (60 * MSS - stage.tcp.unacknowledged());
    stage.acknowledge(first);
    stage.acknowledge(first);
    assert_eq!(stage.left(), []);
    stage.acknowledge(first);
    assert_eq!(stage.left(), [(60, first, MSS as usize)], "one segment, at once");
    let gauges = stage.tcp.gauges();
    assert_eq!((gauges.ssthresh, gauges.cwnd), (6 * MSS, 9 * MSS));
    // Each further one inflates the window; past what is under way something new leaves.
    for i in 4..=7 {
        stage.acknowledge(first);
        let expected = if i > 6 { vec![(60, first + 12 * MSS, MSS as usize)] } else { vec![] };
        assert_eq!(stage.left(), expected, "duplicate {i}");
    }
    assert_eq!(stage.tcp.gauges().cwnd, 13 * MSS);
    // The gap is filled: the window is what was left of it.
    stage.acknowledge(first + 13 * MSS);
    let cwnd = stage.tcp.gauges().cwnd;
    assert!((6 * MSS..=7 * MSS).contains(&cwnd), "{cwnd}");
    let statistics = stage.tcp.statistics();
    assert_eq!((statistics.fast_retransmits, statistics.timeouts), (1, 0));
    assert_eq!((statistics.duplicate_acks, statistics.retransmitted_segments), (7, 1));
}

#[test]
fn a_timeout_starts_slowly_and_sends_all_again() {
    let mut stage = under_way(8, options(BSD));
    let first = 1 + (60 * MSS - stage.tcp.unacknowledged());
    stage.wait_until(1_600); // the timer was set anew at 60 ms for three ticks at most
    assert_eq!(stage.left(), [(1_100, first, MSS as usize)]);
    let gauges = stage.tcp.gauges();
    assert_eq!((gauges.cwnd, gauges.ssthresh), (MSS, 4 * MSS));
    stage.acknowledge(first + MSS);
    let expected = [(1_600, first + MSS, MSS as usize), (1_600, first + 2 * MSS, MSS as usize)];
    assert_eq!(stage.left(), expected);
}

#[test]
fn a_shut_window_is_probed_from_5_s_to_60_s() {
    let mut stage = Stage::open(options(BSD));
    stage.window = 0;
    stage.wait_until(60);
    stage.ask(Command::Send(1)); // tells it of nothing: the window is still open
    stage.acknowledge(2);
    stage.left();
    stage.ask(Command::Send(3 * MSS));
    assert_eq!(stage.left(), []);
    for probe in [5_000, 10_000, 15_000, 23_000, 39_000, 71_000, 131_000, 191_000] {
        stage.wait_until(probe + 100);
        let left = stage.left();
        assert_eq!(left.len(), 1, "{probe}: {left:?}");
        assert_eq!((left[0].1, left[0].2), (2, 1), "one byte beyond the window");
        assert!(left[0].0.abs_diff(probe) <= 500, "{left:?}");
        stage.acknowledge(2); // not taken
    }
    stage.window = 30_000;
    stage.acknowledge(2);
    assert_eq!(stage.left()[0].1, 2);
    stage.acknowledge(2 + MSS);
    stage.acknowledge(2 + 3 * MSS);
    assert_eq!((stage.tcp.unacknowledged(), stage.deadline), (0, None));
}

#[test]
fn nagle_delays_small_segments_until_an_ack() {
    for (nagle, left) in [(true, 1), (false, 2)] {
        let mut stage = Stage::open(Options { nagle, ..options(BSD) });
        stage.ask(Command::Send(10));
        stage.ask(Command::Send(20));
        assert_eq!(stage.left().len(), left);
        stage.acknowledge(11);
        assert_eq!(stage.left().len(), 2 - left);
    }
}

#[test]
fn after_an_idle_time_it_starts_slowly_again() {
    let mut stage = under_way(10, options(BSD));
    let all = 60 * MSS - stage.tcp.unacknowledged();
    let mut acknowledged = 1 + all;
    while stage.tcp.unacknowledged() > 0 {
        acknowledged += MSS;
        stage.acknowledge(acknowledged);
    }
    assert!(stage.tcp.gauges().cwnd > 10 * MSS);
    stage.left();
    stage.wait_until(10_000);
    stage.ask(Command::Send(10 * MSS));
    assert_eq!(stage.left().len(), 1);
}

#[test]
fn only_the_exact_number_resets() {
    let mut stage = Stage::open(options(BSD));
    stage.give(RST, 100, 0, 0);
    assert_eq!(stage.left().len(), 1, "in the window: answered");
    stage.give(RST, 70_000, 0, 0);
    stage.give(RST, 0, 0, 0);
    assert_eq!(stage.left().len(), 0, "outside: ignored");
    stage.give(SYN, 100, 0, 0);
    assert_eq!(stage.left().len(), 1);
    assert_eq!(stage.tcp.state(), State::Established);
    stage.give(RST, 1, 0, 0);
    assert_eq!(stage.tcp.state(), State::Closed);
}

#[test]
fn each_out_of_order_segment_is_acknowledged() {
    let mut stage = Stage::open(options(BSD));
    for i in [1, 3, 2, 4] {
        stage.give(ACK, 1 + i * MSS, 1, MSS as usize);
        let (_, header, length) = stage.sent.pop().unwrap();
        assert_eq!((header.ack, length, stage.sent.len()), (Seq(THEIRS + 1), 0, 0));
    }
    stage.give(ACK | FIN, 1 + 5 * MSS, 1, 0);
    assert!(!stage.tcp.is_finished());
    stage.left();
    stage.give(ACK, 1, 1, MSS as usize);
    assert_eq!(stage.sent.pop().unwrap().1.ack, Seq(THEIRS + 2 + 5 * MSS));
    assert!(stage.tcp.is_finished());
    assert_eq!(stage.tcp.readable(), 5 * MSS);
    assert_eq!(stage.tcp.statistics().out_of_order, 5);
}

#[test]
fn each_frame_of_a_batch_is_acknowledged() {
    // Four segments behind a gap make four duplicate acknowledgements, however they are handed over.
    let mut stage = Stage::open(options(BSD));
    let mut bytes = Vec::new();
    for i in 1..=4 {
        let header = Header {
            source: 5,
            destination: 4,
            seq: Seq(THEIRS + 1 + i * MSS),
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
    stage.tcp.handle(stage.now, input).unwrap();
    stage.drain();
    assert_eq!(stage.left().len(), 4);
}

#[test]
fn time_wait_lasts_and_answers() {
    let mut stage = Stage::open(options(BSD));
    stage.wait_until(60);
    stage.ask(Command::Close);
    stage.acknowledge(2);
    stage.give(ACK | FIN, 1, 2, 0);
    assert_eq!(stage.tcp.state(), State::TimeWait);
    stage.wait_until(30_000);
    stage.left();
    stage.give(ACK | FIN, 1, 2, 0);
    assert_eq!(stage.left().len(), 1, "the acknowledgement was lost: once more");
    stage.wait_until(89_000);
    assert_eq!(stage.tcp.state(), State::TimeWait, "and from then on 60 s");
    stage.wait_until(91_000);
    assert!(stage.tcp.is_closed());
}

#[test]
fn silly_window_is_not_advertised() {
    let mut stage = Stage::open(Options { receive_buffer: 20_000, ..options(BSD) });
    for i in 0..20 {
        stage.give(ACK, 1 + i * MSS, 1, MSS as usize);
    }
    stage.wait_until(1_000);
    stage.ask(Command::Take(100));
    stage.left();
    // A peer that probes hears that there is no room, though the probe fits, and what it sends is not lost.
    stage.give(ACK, 1 + 20 * MSS, 1, 60);
    stage.wait_until(2_000);
    let (_, header, _) = stage.sent.pop().unwrap();
    assert_eq!((header.window, header.ack), (0, Seq(THEIRS + 1 + 20 * MSS + 60)));
    assert_eq!(stage.tcp.readable(), 19_960);
}

#[test]
fn what_was_sent_twice_is_not_timed() {
    let mut stage = Stage::open(options(BSD));
    stage.wait_until(60);
    stage.ask(Command::Send(10));
    stage.wait_until(1_200);
    assert_eq!(stage.left().len(), 2);
    stage.acknowledge(11);
    assert_eq!(stage.tcp.statistics().round_trips, 0);
    assert_eq!(stage.tcp.gauges().rto, Span::from_s(3), "and the timeout stays backed off");
    stage.ask(Command::Send(10));
    stage.acknowledge(21);
    assert_eq!(stage.tcp.statistics().round_trips, 1);
    assert!(stage.tcp.gauges().rto < Span::from_s(3));
}

#[test]
fn a_window_smaller_than_a_segment_is_used_by_halves() {
    let mut stage = Stage::new(options(BSD));
    stage.window = 800;
    stage.ask(Command::Connect);
    stage.wait_until(50);
    stage.give(SYN | ACK, 0, 1, 0);
    stage.left();
    stage.ask(Command::Send(2 * MSS));
    assert_eq!(stage.left(), [(50, 1, 800)], "else it would wait for the persist timer");
    stage.window = 300;
    stage.acknowledge(801);
    assert_eq!(stage.left(), [], "less than half of the largest window seen");
}

#[test]
fn the_last_byte_goes_into_a_shut_window_without_the_fin() {
    let mut stage = Stage::open(options(BSD));
    stage.window = 0;
    stage.wait_until(60);
    stage.ask(Command::Send(1));
    stage.acknowledge(2);
    stage.left();
    stage.ask(Command::Send(1));
    stage.ask(Command::Close);
    assert_eq!(stage.left(), []);
    stage.wait_until(6_000);
    let (_, header, length) = stage.sent.pop().unwrap();
    assert_eq!((header.has(FIN), length), (false, 1));
    // It was taken after all: now the FIN, which needs no room.
    stage.acknowledge(3);
    let (_, header, length) = stage.sent.pop().unwrap();
    assert_eq!((header.has(FIN), header.seq, length), (true, Seq(3), 0));
}
