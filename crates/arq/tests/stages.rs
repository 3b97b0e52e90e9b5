//! A connection that is measured: what is counted, and that nothing else changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use trunkline_arq::{
    Buffer, Command, Config, ConnectionId, EventKind, Meter, Node, Options, ReceiveStatus, Stage, Statistics,
};
use trunkline_endpoint::pair::{PEER_B, Pair};
use trunkline_endpoint::{Impairments, Port};
use trunkline_units::{Instant, Seed, Span};

const MESSAGES: u64 = 500;

/// A clock that advances by a nanosecond per reading, and the number of measurements by stage.
#[derive(Clone, Debug, Default)]
struct Ticks(Arc<Mutex<(u64, BTreeMap<Stage, u64>)>>);

impl Meter for Ticks {
    fn now(&mut self) -> Instant {
        let mut ticks = self.0.lock().unwrap();
        ticks.0 += 1;
        Instant::from_ns(ticks.0)
    }

    fn record(&mut self, stage: Stage, time: Span) {
        assert_eq!(time, Span::from_ns(1), "{stage:?}");
        *self.0.lock().unwrap().1.entry(stage).or_default() += 1;
    }
}

/// Sends messages over a path that loses some; what both ends counted, when it was over, what was measured.
fn exchange(every: Option<u32>) -> (Vec<Statistics>, Instant, [Ticks; 2]) {
    let node = |accept, place: &str| {
        Node::new(Config { port: Port(0), accept, max_connections: 1, random: Seed(3).stream(place) })
    };
    let options = Options::default();
    let mut pair = Pair::new(node(None, "a"), node(Some(options.clone()), "b"), Seed(3));
    let line = Impairments { delay: Span::from_ms(1), drop: 0.02, ..Impairments::default() };
    pair.impair(line, line);
    let mut id = ConnectionId::default();
    pair.command_a(Command::Open { peer: PEER_B, options: &options, id: &mut id }).unwrap();
    let mut peer = None;
    while peer.is_none() {
        pair.run(Span::from_ms(100));
        let opened = |(_, e): &(Instant, trunkline_arq::Event)| {
            matches!(e.kind, EventKind::Opened { .. }).then_some(e.id)
        };
        peer = pair.take_events_b().iter().find_map(opened);
    }
    let peer = peer.unwrap();
    let ticks = [Ticks::default(), Ticks::default()];
    if let Some(every) = every {
        let meter = |end: usize| Box::new(ticks[end].clone());
        pair.command_a(Command::Measure { id, every, meter: meter(0) }).unwrap();
        pair.command_b(Command::Measure { id: peer, every, meter: meter(1) }).unwrap();
    }
    for number in 0..MESSAGES {
        let bytes = vec![number as u8; 10 + 29 * number as usize % 5000];
        pair.command_a(Command::Send { id, channel: 0, bytes: &bytes }).unwrap();
    }
    let (mut into, mut got) = (Buffer::new(), 0);
    while got < MESSAGES {
        pair.run(Span::from_ms(1));
        let mut taken = ReceiveStatus::Empty;
        pair.command_b(Command::Receive { id: peer, channel: 0, buffer: &mut into, status: &mut taken })
            .unwrap();
        got += u64::from(taken == ReceiveStatus::Complete);
        into.clear();
    }
    let counted = vec![pair.a().statistics(id).unwrap(), pair.b().statistics(peer).unwrap()];
    (counted, pair.now(), ticks)
}

#[test]
fn stages_are_counted_as_frames_and_messages_are() {
    for every in [1, 7, 64] {
        let (counted, _, ticks) = exchange(Some(every));
        let every = u64::from(every);
        let of = |end: usize, stage| ticks[end].0.lock().unwrap().1.get(&stage).copied().unwrap_or(0);
        let sent = counted[0].frames_sent / every;
        assert_eq!(
            [of(0, Stage::CopyIn), of(0, Stage::Frame), of(0, Stage::Seal)],
            [MESSAGES / every, sent, sent]
        );
        let came = (counted[1].frames_received + counted[1].duplicates) / every;
        assert_eq!([of(1, Stage::Open), of(1, Stage::CopyOut)], [came, MESSAGES / every]);
        // Of what had come before nothing is put together.
        assert!((1..=came).contains(&of(1, Stage::Join)), "one in {every}");
    }
}

#[test]
fn what_is_measured_goes_as_it_would() {
    let (plain, measured) = (exchange(None), exchange(Some(1)));
    assert_eq!((plain.0, plain.1), (measured.0, measured.1));
    assert!(plain.2.iter().all(|ticks| ticks.0.lock().unwrap().0 == 0), "no clock was read");
}
