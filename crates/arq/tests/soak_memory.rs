//! Memory at full size.

use crate::support::memory;

#[test]
fn ten_thousand_channels_and_a_message_of_a_gibibyte() {
    let idle = memory::of_idle_channels(10_000);
    println!("an idle channel: {idle:?} bytes");
    assert!(idle.iter().all(|bytes| (1..=2048).contains(bytes)));
    let most = memory::of_a_message(1 << 30);
    println!("1 GiB: {most} bytes beside it");
    assert!(most < 40 << 20);
}

#[test]
fn ten_million_forged_packets_open_nothing_and_grow_no_memory() {
    let (bare, with_a_friend) = memory::of_unknown_peers(10_000_000);
    println!("forged packets: {bare} and {with_a_friend} bytes for a time");
    assert!(bare.max(with_a_friend) < 200_000);
}
