//! The contract of every endpoint.

use bytes::Bytes;
use trunkline_endpoint::Peer;
use trunkline_endpoint::laws::{Checked, check_laws, idle_costs_nothing};
use trunkline_endpoint::{Endpoint, Input};
use trunkline_quic::{Command, Node, Options, Randomness};
use trunkline_units::{Instant, Seed, Stream};

use crate::support::nodes;

fn act(node: &mut Checked<Node>, now: Instant, random: &mut Stream) {
    let mut written = 0;
    let mut is_queued = false;
    let mut consume = |_: &[u8]| {};
    let command = match random.below(7) {
        0 => Command::Connect { peer: Peer::new(&[random.below(3) as u8]) },
        1 => Command::Send { stream: 0, chunks: &mut [Bytes::from_static(b"data")], written: &mut written },
        2 => Command::SendDatagram { message: Bytes::from_static(b"data"), is_queued: &mut is_queued },
        3 => Command::Receive { stream: random.below(3) as u32, consume: &mut consume },
        4 => Command::ReceiveDatagrams { consume: &mut consume },
        5 => Command::Finish,
        _ => Command::Close,
    };
    let _ = node.handle(now, Input::Command(command));
}

#[test]
fn both_sides_keep_the_laws() {
    let options = Options { streams: 2, ..Options::default() };
    for seed in 0..20 {
        check_laws(Seed(seed), || nodes(options, Randomness::Fixed).0, act);
        check_laws(Seed(seed), || nodes(options, Randomness::Fixed).1, act);
    }
}

#[test]
fn polling_an_idle_node_costs_nothing() {
    let (mut client, mut server) = nodes(Options::default(), Randomness::Fixed);
    let count = |run: &mut dyn FnMut()| allocation_counter::measure(run).count_total;
    idle_costs_nothing(&mut server, Instant::ZERO, count);
    let peer = Peer::new(b"server");
    client.handle(Instant::ZERO, Input::Command(Command::Connect { peer })).unwrap();
    idle_costs_nothing(&mut client, Instant::ZERO, count);
}
