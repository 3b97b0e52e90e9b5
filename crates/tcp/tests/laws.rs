//! The contract of endpoints in every state of a connection.

use std::num::NonZeroU16;

use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_endpoint::laws::{Checked, check_laws, idle_costs_nothing};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Peer, Port, Segment, Writable, drain};
use trunkline_tcp::segment::{ACK, Header, Offer, SYN, Seq};
use trunkline_tcp::{Algorithm, Bytes, Command, Content, EcnFeedback, Options, Tcp, Timers};
use trunkline_units::{Instant, Seed, Span, Stream};

use SegmentBytes::{Blocks, Opaque};

const FINE: Timers = Timers::Fine { floor: Span::ZERO };

/// Both ports are 0, as in many malformed segments.
fn options(timers: Timers) -> Options {
    Options { timers, send_buffer: 3_000, receive_buffer: 3_000, mss: 500, ..Options::default() }
}

/// The same with the extensions of today.
fn extended(timers: Timers) -> Options {
    let congestion = Some(Algorithm::CUBIC);
    let ecn = Some(EcnFeedback::Classic);
    Options { congestion, sack: true, timestamps: true, ecn, ..options(timers) }
}

fn command(tcp: &mut Checked<Tcp<Bytes>>, now: Instant, stream: &mut Stream) {
    let size = stream.below(2_000) as usize;
    let mut bytes = vec![7; size];
    let command = match stream.below(12) {
        0..=1 => Command::Connect,
        2..=3 => Command::Listen,
        4..=7 => Command::Send(&bytes[..]),
        8..=9 => Command::Take(&mut bytes[..]),
        10 => Command::Close,
        _ => Command::Abort,
    };
    let _refused = tcp.handle(now, Input::Command(command));
}

#[test]
fn an_end_satisfies_the_contract() {
    for seed in 0..25 {
        check_laws(Seed(seed), || Tcp::new(options(Timers::default())), command);
        check_laws(Seed(seed), || Tcp::new(options(FINE)), command);
        check_laws(Seed(seed), || Tcp::new(extended(FINE)), command);
        let exact = Options { ecn: Some(EcnFeedback::Exact), timestamps: false, ..extended(FINE) };
        check_laws(Seed(seed), || Tcp::new(exact), command);
    }
}

fn give<C: Content>(tcp: &mut Tcp<C>, now: Instant, bytes: &[u8]) {
    tcp.handle(now, Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None }).unwrap();
}

/// Returns the segments that an end sends now.
fn sent<E: Endpoint>(tcp: &mut E, now: Instant) -> Vec<Vec<u8>> {
    struct Log(Vec<Vec<u8>>);
    impl<V> trunkline_endpoint::Sink<V> for Log {
        fn writable(&self) -> Writable<'_> {
            Writable::ALL
        }
        fn transmit(&mut self, transmit: &trunkline_endpoint::Transmit, bytes: &[u8]) {
            assert_eq!(transmit.segment, None);
            self.0.push(bytes.to_vec());
        }
        fn event(&mut self, _: V) {}
    }
    let (mut log, mut buffer) = (Log(Vec::new()), vec![0; MAX_BATCH]);
    drain(tcp, now, 1_000, &mut buffer, &mut log).expect("an end becomes idle");
    log.0
}

/// Returns two ends after the handshake.
fn connected<C: Content>(options: Options) -> (Tcp<C>, Tcp<C>) {
    let (mut a, mut b) = (Tcp::new(options), Tcp::new(options));
    let now = Instant::ZERO;
    a.handle(now, Input::Command(Command::Connect)).unwrap();
    b.handle(now, Input::Command(Command::Listen)).unwrap();
    for _ in 0..2 {
        sent(&mut a, now).iter().for_each(|bytes| give(&mut b, now, bytes));
        sent(&mut b, now).iter().for_each(|bytes| give(&mut a, now, bytes));
    }
    assert!(a.is_open() && b.is_open());
    (a, b)
}

#[test]
fn idle_ends_stay_idle() {
    let count = |run: &mut dyn FnMut()| allocation_counter::measure(run).count_total;
    for options in [options(Timers::default()), options(FINE), extended(FINE)] {
        idle_costs_nothing(&mut Tcp::<Bytes>::new(options), Instant::ZERO, count);
        let (mut a, mut b) = connected::<Bytes>(options);
        idle_costs_nothing(&mut a, Instant::ZERO, count);
        a.handle(Instant::ZERO, Input::Command(Command::Send(&[1; 2_000][..]))).unwrap();
        sent(&mut a, Instant::ZERO);
        for tcp in [&mut a, &mut b] {
            idle_costs_nothing(tcp, Instant::ZERO, count);
        }
    }
}

/// Options of a segment: any bytes, or blocks of selective acknowledgement relative to what this end has sent.
#[derive(Clone, Debug)]
enum SegmentBytes {
    Opaque(Vec<u8>),
    Blocks(Vec<(i64, i64)>),
}

impl SegmentBytes {
    fn encode(&self, ours: Seq) -> Vec<u8> {
        match self {
            Opaque(bytes) => bytes.clone(),
            Blocks(blocks) => {
                let mut bytes = vec![1, 1, 5, 2 + 8 * blocks.len() as u8];
                for (start, end) in blocks {
                    bytes.extend((ours.0.wrapping_add(*start as u32)).to_be_bytes());
                    bytes.extend((ours.0.wrapping_add(*end as u32)).to_be_bytes());
                }
                bytes
            }
        }
    }
}

/// An action of the test: a segment that is almost valid, a command, or time.
#[derive(Clone, Debug)]
enum Action {
    Segment { seq: i64, ack: i64, flags: u8, window: u16, options: SegmentBytes, payload: usize },
    Bytes(Vec<u8>),
    Batch { frame: u16, count: usize },
    Send(usize),
    Take,
    Close,
    Abort,
    Drain,
    Pass(u64),
}

fn small_offset() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -2i64..3, 4 => -4_000i64..4_000, 1 => any::<i32>().prop_map(i64::from)]
}

fn action() -> impl Strategy<Value = Action> {
    let flags =
        prop_oneof![6 => Just(ACK), 2 => Just(ACK | 1), 1 => Just(SYN), 1 => Just(4), 3 => any::<u8>()];
    let window = prop_oneof![Just(0), Just(1), Just(3_000), any::<u16>()];
    let block = (small_offset(), small_offset());
    let options = prop_oneof![
        5 => Just(Opaque(Vec::new())),
        4 => vec(block, 1..5).prop_map(Blocks),
        1 => vec(any::<u8>(), 0..41).prop_map(Opaque),
    ];
    let segment = (small_offset(), small_offset(), flags, window, options, 0usize..1_500).prop_map(
        |(seq, ack, flags, window, options, payload)| {
            let payload = if payload > 700 { 0 } else { payload };
            Action::Segment { seq, ack, flags, window, options, payload }
        },
    );
    prop_oneof![
        12 => segment,
        1 => vec(any::<u8>(), 0..80).prop_map(Action::Bytes),
        1 => (1u16..60, 1usize..64).prop_map(|(frame, count)| Action::Batch { frame, count }),
        3 => (0usize..3_500).prop_map(Action::Send),
        2 => Just(Action::Take),
        1 => Just(Action::Close),
        1 => Just(Action::Abort),
        6 => Just(Action::Drain),
        3 => (0u64..3_000).prop_map(Action::Pass),
    ]
}

/// Returns an end in one of five states.
fn start(state: u8, options: Options) -> Tcp<Bytes> {
    let mut tcp = Tcp::new(options);
    match state {
        0 => {}
        1 => tcp.handle(Instant::ZERO, Input::Command(Command::Listen)).unwrap(),
        2 => tcp.handle(Instant::ZERO, Input::Command(Command::Connect)).unwrap(),
        _ => tcp = connected(options).0,
    }
    tcp
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Debug builds check the invariants of an end after every call.
    #[test]
    fn no_segment_violates_an_invariant(
        state in 0u8..5,
        fine: bool,
        extensions: bool,
        sack: bool,
        actions in vec(action(), 1..80),
    ) {
        let timers = if fine { FINE } else { Timers::default() };
        let o = if extensions { Options { timestamps: false, sack, ..extended(timers) } } else { options(timers) };
        let mut tcp = Checked::new(start(state, o));
        let (mut now, mut ours, mut theirs) = (Instant::ZERO, Seq(2), Seq(2));
        for action in actions {
            let (bytes, segment) = match action {
                Action::Segment { seq, ack, flags, window, options, payload } => {
                    let header = Header {
                        source: 0,
                        destination: 0,
                        seq: theirs + seq as u32,
                        ack: ours + ack as u32,
                        flags,
                        window,
                    };
                    let mut bytes = vec![0; 20];
                    header.write(None, &mut bytes);
                    bytes.extend(options.encode(ours));
                    bytes.resize(bytes.len().next_multiple_of(4), 0);
                    bytes[12] = (bytes.len() as u8 / 4) << 4;
                    bytes.resize(bytes.len() + payload, 1);
                    (bytes, None)
                }
                Action::Bytes(bytes) => (bytes, None),
                Action::Batch { frame, count } => {
                    let bytes = vec![0; usize::from(frame) * count];
                    let segment = (count > 1).then(|| Segment::new(NonZeroU16::new(frame).unwrap()));
                    (bytes, segment)
                }
                Action::Drain => {
                    for bytes in sent(&mut tcp, now) {
                        let (header, length) = Header::parse(&bytes).expect("an end sends valid segments");
                        let numbers = (bytes.len() - length) as u32 + u32::from(header.has(SYN));
                        ours = if header.has(4) { ours } else { header.seq + numbers };
                        theirs = if header.has(ACK) && !header.has(4) { header.ack } else { theirs };
                    }
                    continue;
                }
                Action::Pass(ms) => {
                    now += Span::from_ms(ms);
                    tcp.handle(now, Input::Wake).unwrap();
                    continue;
                }
                action => {
                    let (readable, data) = (tcp.inner().readable() as usize, vec![1; 3_500]);
                    let mut room = vec![0; readable];
                    let command = match action {
                        Action::Send(n) => Command::Send(&data[..n]),
                        Action::Take => Command::Take(&mut room[..]),
                        Action::Close => Command::Close,
                        _ => Command::Abort,
                    };
                    let _refused = tcp.handle(now, Input::Command(command));
                    continue;
                }
            };
            tcp.handle(now, Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment }).unwrap();
            let inner = tcp.inner();
            prop_assert!(inner.readable() <= o.receive_buffer && inner.unacknowledged() <= o.send_buffer);
            prop_assert!(inner.room() + inner.unacknowledged() <= o.send_buffer);
        }
        sent(&mut tcp, now);
    }
}

#[test]
fn a_syn_may_offer_anything() {
    for options_of_syn in [&[2, 4, 0, 0][..], &[2, 4, 0xff, 0xff], &[3, 3, 255, 0], &[2, 3, 1, 0], &[255; 40]]
    {
        let mut tcp = Tcp::<Bytes>::new(options(Timers::default()));
        tcp.handle(Instant::ZERO, Input::Command(Command::Listen)).unwrap();
        let mut bytes = vec![0; 20];
        Header { flags: SYN, window: 9, ..Header::default() }.write(None::<Offer>, &mut bytes);
        bytes.extend(options_of_syn);
        bytes[12] = (bytes.len() as u8 / 4) << 4;
        give(&mut tcp, Instant::ZERO, &bytes);
        assert_eq!(sent(&mut tcp, Instant::ZERO).len(), 1, "{options_of_syn:?}");
        assert!((32..=536).contains(&tcp.gauges().mss));
    }
}
