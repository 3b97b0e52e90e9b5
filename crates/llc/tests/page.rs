//! The exchange printed in docs/wire.md is what stations say.

#[allow(dead_code, reason = "others need the rest")]
#[path = "support/hand.rs"]
mod hand;

use hand::{DrivenStation, at};
use trunkline_endpoint::Port;
use trunkline_llc::{Command, Config, Options};

/// Passes on what both say until they fall silent, and writes it down; the answer to be lost is identified by how many of its
/// kind went before.
fn exchange(ends: &mut [DrivenStation; 2], lost: Option<&[u8]>, said: &mut Vec<String>) {
    let mut lost = lost;
    loop {
        let mut silent = true;
        for from in [0, 1] {
            for frame in ends[from].receive() {
                silent = false;
                let octets: Vec<String> = frame.iter().map(|octet| format!("{octet:02x}")).collect();
                said.push(format!("{} → {}  {}", from + 1, 2 - from, octets.join(" ")));
                if lost == Some(&frame[..]) {
                    lost = None;
                } else {
                    ends[1 - from].give(from as u8 + 1, &frame);
                }
            }
        }
        if silent {
            return;
        }
    }
}

#[test]
fn documented_exchange_matches_the_stations() {
    let page = include_str!("../../../docs/wire.md");
    let (_, page) = page.split_once("### An exchange of LLC").expect("the section is there");
    let (_, page) = page.split_once("```text\n").expect("the exchange is there");
    let (page, _) = page.split_once("```").expect("it ends");
    let page: Vec<&str> = page.lines().map(|line| line.split("   ").next().unwrap_or_default()).collect();

    let mut ends = [1, 2].map(|number| DrivenStation::with(Config::new(Port(0), number)));
    let options = Options::acknowledged(5);
    ends[0].command(Command::Open { sap: 2, options: &options }).unwrap();
    ends[1].command(Command::Open { sap: 4, options: &options }).unwrap();
    let mut said = Vec::new();
    for (bytes, crc, lost) in
        [(b"a", false, None), (b"b", true, Some(&[5, 2, 5, 0xE7, 0x40][..])), (b"c", false, None)]
    {
        let options = Options { crc, ..options.clone() };
        ends[0].command(Command::Configure { sap: 2, options: &options }).unwrap();
        ends[1].command(Command::Configure { sap: 4, options: &options }).unwrap();
        ends[0].send(2, at(2, 4), bytes);
        exchange(&mut ends, lost, &mut said);
        if lost.is_some() {
            ends[0].wait(options.response_timeout);
            exchange(&mut ends, None, &mut said);
        }
        assert_eq!(ends[1].take(4).map(|(_, taken)| taken), Some(bytes.to_vec()));
    }
    assert_eq!(said, page);
}
