//! Memory has the bounds that the documents promise.

use crate::support::forge;
use crate::support::memory::{self, LocalPair};
use allocation_counter::measure;
use trunkline_arq::{Buffer, Command, Options, ReceiveStatus, Refusal};
use trunkline_endpoint::laws::idle_costs_nothing;
use trunkline_endpoint::{Endpoint, Input};

fn count_allocations(run: &mut dyn FnMut()) -> u64 {
    measure(run).count_total
}

#[test]
fn an_idle_node_costs_nothing() {
    idle_costs_nothing(&mut forge::server(10), trunkline_units::Instant::ZERO, count_allocations);
    let mut near = LocalPair::open(&Options::default());
    (0..100).for_each(|channel| near.send(0, channel, b"anything"));
    near.run();
    let (now, [a, b]) = (near.now, &mut near.nodes);
    idle_costs_nothing(a, now, count_allocations);
    idle_costs_nothing(b, now, count_allocations);
}

#[test]
fn an_idle_channel_takes_two_kibibytes_at_most() {
    let bytes = memory::of_idle_channels(1000);
    assert!(bytes.iter().all(|bytes| (1..=2048).contains(bytes)), "{bytes:?} bytes");
}

#[test]
fn all_channels_are_of_use() {
    let mut near = LocalPair::open(&Options::default());
    let mut got = 0;
    for channel in 0..65_535 {
        near.send(0, channel, &channel.to_be_bytes());
        if channel % 1000 == 999 {
            near.run();
            got += near.take(1).0;
        }
    }
    near.run();
    assert_eq!(got + near.take(1).0, 65_535);
    let refused = Command::Send { id: near.ids[0], channel: 65_535, bytes: b"one too many" };
    assert_eq!(near.nodes[0].handle(near.now, Input::Command(refused)), Err(Refusal::Channel));
}

#[test]
fn a_sender_that_floods_a_reader_who_never_reads_is_stopped() {
    let (credit, send_buffer) = (100_000, 50_000);
    for size in [0, 1, 100, 5000] {
        let options = Options { credit, channel_credit: credit, send_buffer, ..Options::default() };
        let mut near = LocalPair::open(&options);
        near.run();
        let message = vec![1; size];
        let grown = measure(|| {
            let mut last = 0;
            loop {
                let id = near.ids[0];
                let send = Command::Send { id, channel: 5, bytes: &message };
                match near.nodes[0].handle(near.now, Input::Command(send)) {
                    Ok(()) => continue,
                    Err(refusal) => assert_eq!(refusal, Refusal::Full),
                }
                near.run();
                let held = near.nodes[1].unread_bytes(near.ids[1], 5);
                assert!(held <= u64::from(credit), "{held}");
                if held == last {
                    break;
                }
                last = held;
            }
            assert!(last > u64::from(credit) * 9 / 10, "{last} of messages of {size}");
        });
        // What is held, half as much again in buffers to spare at either end, and what a connection has.
        assert!(grown.bytes_max < 600_000, "{} bytes of messages of {size}", grown.bytes_max);
    }
}

#[test]
fn unknown_peers_take_no_memory() {
    let (bare, with_a_friend) = memory::of_unknown_peers(20_000);
    assert!(bare.max(with_a_friend) < 200_000, "{bare} and {with_a_friend} bytes");
}

#[test]
fn a_long_message_takes_no_more_than_its_credit() {
    let most = memory::of_a_message(64 << 20);
    assert!(most < 40 << 20, "{most}");
}

#[test]
fn a_long_message_is_handed_over_and_out_as_it_is() {
    let mut near = LocalPair::open(&Options::default());
    let mut message = Buffer::with_capacity(900_000);
    message.resize(900_000, 7);
    let [a, b] = near.ids;
    let give = measure(|| near.command(0, Command::SendOwned { id: a, channel: 0, message: &mut message }));
    assert!(give.bytes_total < 4096 && message.is_empty(), "{give:?}");
    for _ in 0..100 {
        near.run();
    }
    let (mut into, mut taken) = (Buffer::new(), ReceiveStatus::Empty);
    let take = Command::Receive { id: b, channel: 0, buffer: &mut into, status: &mut taken };
    let get = measure(|| near.nodes[1].handle(near.now, Input::Command(take)).expect("it is there"));
    // Not a byte was allocated that it could have been copied to.
    assert!(get.bytes_total < 4096, "{get:?}");
    assert_eq!((taken, into.len(), into.as_ptr() as usize % 64), (ReceiveStatus::Complete, 900_000, 0));
}
