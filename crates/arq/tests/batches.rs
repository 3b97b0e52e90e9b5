//! What is sent while much is in flight leaves in whole batches, and soon all the same.

use trunkline_arq::{Check, Command, Config, Congestion, ConnectionId, Node, Options};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_units::{Instant, Seed, Span};

const PORT: Port = Port(0);
const FRAME: u16 = 1472;
/// Frames of that length in a batch.
const BATCH: usize = MAX_BATCH / FRAME as usize;

/// A client whose peer has opened and says nothing more.
struct Deaf {
    client: Node,
    id: ConnectionId,
    buffer: Vec<u8>,
}

impl Deaf {
    fn new() -> Deaf {
        let options =
            Options { check: Check::None, congestion: Congestion::Fixed, window: 1024, ..Options::default() };
        let node = |accept, place| {
            Node::new(Config { port: PORT, accept, max_connections: 1, random: Seed(7).stream(place) })
        };
        let (mut client, mut server) = (node(None, "client"), node(Some(options.clone()), "server"));
        let mut id = ConnectionId::default();
        let open = Command::Open { peer: Peer::new(b"server"), options: &options, id: &mut id };
        client.handle(Instant::ZERO, Input::Command(open)).unwrap();
        let mut buffer = vec![0; MAX_BATCH];
        for _ in 0..3 {
            for (from, to, name) in [(0, 1, b"client"), (1, 0, b"server")] {
                let ends = [&mut client, &mut server];
                let [from, to] = if from < to { ends } else { [&mut server, &mut client] };
                loop {
                    match from.poll(Instant::ZERO, Writable::ALL, &mut buffer) {
                        Output::Transmit(t) => {
                            let (peer, bytes) = (Peer::new(name), &buffer[..t.length]);
                            let frame = Input::Frame { port: PORT, peer, bytes, segment: t.segment };
                            to.handle(Instant::ZERO, frame).unwrap();
                        }
                        Output::Event(_) => {}
                        Output::Idle(_) => break,
                    }
                }
            }
        }
        Deaf { client, id, buffer }
    }

    /// Sends a message of `size`, if any; the frames of each batch that leaves, and when the next would.
    fn step(&mut self, now: Instant, size: Option<usize>) -> (Vec<usize>, Option<Instant>) {
        if let Some(size) = size {
            let send = Command::Send { id: self.id, channel: 0, bytes: &vec![1; size] };
            self.client.handle(now, Input::Command(send)).unwrap();
        }
        let mut batches = Vec::new();
        loop {
            match self.client.poll(now, Writable::ALL, &mut self.buffer) {
                Output::Transmit(t) => {
                    batches.push(Segment::frames(t.segment, &self.buffer[..t.length]).count());
                }
                Output::Event(_) => {}
                Output::Idle(idle) => return (batches, idle.deadline),
            }
        }
    }
}

#[test]
fn in_full_flow_batches_are_whole() {
    let mut deaf = Deaf::new();
    let mut now = Instant::ZERO;
    while deaf.client.in_flight(deaf.id).is_none_or(|frames| frames < 128) {
        let (batches, _) = deaf.step(now, Some(8192));
        assert_eq!(batches, [6], "while little is in flight a message leaves at once");
        now += Span::from_us(3);
    }
    let mut left = Vec::new();
    for _ in 0..80 {
        left.extend(deaf.step(now, Some(8192)).0);
        now += Span::from_us(3);
    }
    // A frame that the end of a message leaves a little short ends its batch.
    let frames: usize = left.iter().sum();
    assert!(frames > 400 && frames * 10 >= left.len() * BATCH * 8, "{left:?}");
}

#[test]
fn what_does_not_fill_a_batch_leaves_soon() {
    let mut deaf = Deaf::new();
    let now = Instant::ZERO;
    while deaf.client.in_flight(deaf.id).is_none_or(|frames| frames < 128) {
        deaf.step(now, Some(8192));
    }
    let sent = now + Span::from_us(1);
    let (batches, deadline) = deaf.step(sent, Some(100));
    assert!(batches.is_empty(), "it waits for others: {batches:?}");
    let deadline = deadline.expect("not for ever");
    assert!(deadline > sent && deadline <= sent + Span::from_us(50), "{deadline:?}");
    deaf.client.handle(deadline, Input::Wake).unwrap();
    assert_eq!(deaf.step(deadline, None).0, [1]);
}
