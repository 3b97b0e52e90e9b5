//! Ten million strangers.

#![cfg(feature = "soak")]

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/forge.rs"]
mod forge;

#[test]
fn ten_million_forged_packets_open_nothing() {
    let mut node = forge::server(10);
    forge::flood(&mut node, 10_000_000, 8);
    println!("{:?}", node.strangers());
}
