//! The engine alone: two nodes in memory, on one thread, no sockets.
//!
//! `cargo bench -p trunkline-arq --bench engine` prints Gb/s of messages and messages a second, by size and check; with
//! `--features aead` encrypted as well.

#![allow(clippy::disallowed_methods, reason = "a bench measures time")]

use std::time::{Duration, Instant as Wall};

use trunkline_arq::{
    Buffer, Check, Command, Config, Congestion, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus,
};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_units::{Instant, Seed};

const PORT: Port = Port(0);
const A: Peer = Peer::new(b"a");
const B: Peer = Peer::new(b"b");

struct Run {
    nodes: [Node; 2],
    buffer: Vec<u8>,
    start: Wall,
    ids: [ConnectionId; 2],
    readable: bool,
}

impl Run {
    fn new(options: &Options) -> Run {
        let node = |accept, place| {
            Node::new(Config { port: PORT, accept, max_connections: 4, random: Seed(7).stream(place) })
        };
        let mut nodes = [node(None, "a"), node(Some(options.clone()), "b")];
        let mut id = ConnectionId::default();
        nodes[0]
            .handle(Instant::ZERO, Input::Command(Command::Open { peer: B, options, id: &mut id }))
            .unwrap();
        let ids = [id, ConnectionId::default()];
        let mut run = Run { nodes, buffer: vec![0; MAX_BATCH], start: Wall::now(), ids, readable: false };
        (0..10).for_each(|_| run.turn());
        run
    }

    fn now(&self) -> Instant {
        Instant::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    /// Each end says what it has to say, once.
    fn turn(&mut self) {
        for end in 0..2 {
            let now = self.now();
            let _ = self.nodes[end].handle(now, Input::Wake);
            let from = [A, B][end];
            loop {
                match self.nodes[end].poll(now, Writable::ALL, &mut self.buffer) {
                    Output::Transmit(t) => {
                        let bytes = &self.buffer[..t.length];
                        let frame = Input::Frame { port: PORT, peer: from, bytes, segment: t.segment };
                        self.nodes[1 - end].handle(now, frame).unwrap();
                        break;
                    }
                    Output::Event(Event { id, kind: news }) => match news {
                        EventKind::Opened { .. } => self.ids[end] = id,
                        EventKind::Readable { .. } => self.readable = true,
                        EventKind::Closed { reason: end } => panic!("{end}"),
                        _ => {}
                    },
                    Output::Idle(_) => break,
                }
            }
        }
    }

    /// Messages a second of `size` bytes.
    fn rate(&mut self, size: usize, hand_over: bool, time: Duration) -> f64 {
        let message = vec![0x5A; size];
        let (mut got, mut into, mut spare) = (0u64, Buffer::with_capacity(size), Vec::<Buffer>::new());
        let begin = Wall::now();
        while begin.elapsed() < time {
            for _ in 0..32 {
                let now = Instant::from_ns(self.start.elapsed().as_nanos() as u64);
                for _ in 0..(64 * 1024 / (size + 64)).max(1) {
                    let sent = if hand_over {
                        let mut message = spare.pop().unwrap_or_else(|| Buffer::from(&message[..]));
                        self.nodes[0].handle(
                            now,
                            Input::Command(Command::SendOwned {
                                id: self.ids[0],
                                channel: 0,
                                message: &mut message,
                            }),
                        )
                    } else {
                        let send = Command::Send { id: self.ids[0], channel: 0, bytes: &message };
                        self.nodes[0].handle(now, Input::Command(send))
                    };
                    if sent.is_err() {
                        break;
                    }
                }
                self.turn();
                if self.readable {
                    loop {
                        let mut taken = ReceiveStatus::Empty;
                        into.clear();
                        let take = Command::Receive {
                            id: self.ids[1],
                            channel: 0,
                            buffer: &mut into,
                            status: &mut taken,
                        };
                        self.nodes[1].handle(now, Input::Command(take)).unwrap();
                        match taken {
                            ReceiveStatus::Complete => got += 1,
                            ReceiveStatus::Partial => unreachable!("messages are short"),
                            ReceiveStatus::Empty => break,
                        }
                        if hand_over {
                            spare.push(std::mem::take(&mut into));
                        }
                    }
                    self.readable = false;
                }
            }
        }
        got as f64 / begin.elapsed().as_secs_f64()
    }
}

fn main() {
    println!("{:>7}  {:>6}  {:>6}  {:>12}  {:>8}", "bytes", "check", "how", "messages/s", "Gb/s");
    #[cfg(feature = "aead")]
    let checks = [Check::None, Check::Crc32c, Check::Crc64, Check::Aead];
    #[cfg(not(feature = "aead"))]
    let checks = [Check::None, Check::Crc32c, Check::Crc64];
    for size in [64, 1024, 8192, 65_536] {
        for check in checks {
            for hand_over in [false, true] {
                let congestion = Congestion::Fixed;
                #[cfg(feature = "aead")]
                let key = (check == Check::Aead).then(|| trunkline_arq::PresharedKey::new(&[7; 32]));
                #[cfg(not(feature = "aead"))]
                let key = None;
                let options = Options { check, key, congestion, window: 256, ..Options::default() };
                let mut run = Run::new(&options);
                run.rate(size, hand_over, Duration::from_millis(100));
                let rate = run.rate(size, hand_over, Duration::from_millis(400));
                let how = if hand_over { "hand" } else { "copy" };
                let check = format!("{check:?}").to_lowercase();
                println!("{size:>7}  {check:>6}  {how:>6}  {rate:>12.0}  {:>8.2}", rate * size as f64 * 8e-9);
            }
        }
    }
}
