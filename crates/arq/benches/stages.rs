//! What it costs to measure where the time goes: the engine in memory, as in `engine`, so many messages and no more, for
//! to count instructions:
//!
//! ```sh
//! cargo bench -p trunkline-arq --bench stages --no-run
//! valgrind --tool=callgrind target/release/deps/stages-… 128 8192 4000   # one in 128, bytes, messages; 0: not measured
//! ```

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use std::sync::{Arc, Mutex};
use std::time::Instant as Wall;

use trunkline_arq::{
    Buffer, Command, Config, Congestion, ConnectionId, Event, EventKind, Meter, Node, Options, ReceiveStatus,
    Stage,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed, Span};

const PORT: Port = Port(0);
const PEERS: [Peer; 2] = [Peer::new(b"a"), Peer::new(b"b")];

/// By stage, how many and how long.
#[derive(Clone, Debug)]
struct Sums(Wall, Arc<Mutex<[(u64, Span); 6]>>);

impl Meter for Sums {
    fn now(&mut self) -> Instant {
        Instant::from_ns(self.0.elapsed().as_nanos() as u64)
    }

    fn record(&mut self, stage: Stage, time: Span) {
        let mut sums = self.1.lock().unwrap();
        let (count, sum) = &mut sums[stage as usize];
        *count += 1;
        *sum += time;
    }
}

struct Pair {
    nodes: [Node; 2],
    ids: [ConnectionId; 2],
    buffer: Vec<u8>,
    now: Instant,
}

impl Pair {
    fn new(options: &Options) -> Pair {
        let node = |accept, place| {
            Node::new(Config { port: PORT, accept, max_connections: 1, random: Seed(7).stream(place) })
        };
        let nodes = [node(None, "a"), node(Some(options.clone()), "b")];
        let mut pair =
            Pair { nodes, ids: [ConnectionId::default(); 2], buffer: vec![0; MAX_BATCH], now: Instant::ZERO };
        let mut id = ConnectionId::default();
        pair.command(0, Command::Open { peer: PEERS[1], options, id: &mut id });
        (0..10).for_each(|_| pair.turn());
        pair
    }

    fn command(&mut self, end: usize, command: Command<'_>) {
        self.nodes[end].handle(self.now, Input::Command(command)).unwrap();
    }

    /// Each end says what it has to say, once.
    fn turn(&mut self) {
        self.now += Span::from_us(10);
        for (end, peer) in PEERS.into_iter().enumerate() {
            let _ = self.nodes[end].handle(self.now, Input::Wake);
            loop {
                match self.nodes[end].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Transmit(t) => {
                        let bytes = &self.buffer[..t.length];
                        let frame = Input::Frame { port: PORT, peer, bytes, segment: t.segment };
                        self.nodes[1 - end].handle(self.now, frame).unwrap();
                        break;
                    }
                    Output::Event(Event { id, kind: EventKind::Opened { .. } }) => self.ids[end] = id,
                    Output::Event(_) => {}
                    Output::Idle(_) => break,
                }
            }
        }
    }
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let [every, bytes, messages] = numbers[..] else { return println!("every bytes messages") };
    let mut pair = Pair::new(&Options { congestion: Congestion::Fixed, window: 256, ..Options::default() });
    let sums = Sums(Wall::now(), Arc::default());
    if every > 0 {
        for end in 0..2 {
            let (id, meter) = (pair.ids[end], Box::new(sums.clone()));
            pair.command(end, Command::Measure { id, every: every as u32, meter });
        }
    }
    let message = vec![0x5A; bytes as usize];
    let (mut sent, mut got, mut into) = (0, 0, Buffer::with_capacity(bytes as usize));
    let [from, to] = pair.ids;
    while got < messages {
        for _ in 0..(65_536 / (bytes + 64)).max(1).min(messages - sent) {
            pair.command(0, Command::Send { id: from, channel: 0, bytes: &message });
            sent += 1;
        }
        pair.turn();
        loop {
            let mut taken = ReceiveStatus::Empty;
            into.clear();
            pair.command(1, Command::Receive { id: to, channel: 0, buffer: &mut into, status: &mut taken });
            got += u64::from(taken == ReceiveStatus::Complete);
            if taken == ReceiveStatus::Empty {
                break;
            }
        }
    }
    let frames = pair.nodes[0].statistics(from).unwrap_or_default().frames_sent;
    println!("{messages} messages of {bytes} bytes in {frames} frames");
    let stages = [Stage::CopyIn, Stage::Frame, Stage::Seal, Stage::Open, Stage::Join, Stage::CopyOut];
    for (stage, (count, sum)) in
        stages.iter().zip(*sums.1.lock().unwrap()).filter(|(_, (count, _))| *count > 0)
    {
        println!("{stage:?}: {count}, mean {:.0} ns", sum.as_ps() as f64 / 1e3 / count as f64);
    }
}
