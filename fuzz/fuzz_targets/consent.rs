//! Two ends of consent with datagrams, alterations, replays and pauses chosen by the input. Consent never lasts longer
//! than 500 ms after the last challenge that was answered, and a responder answers each challenge at most once.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run consent fuzz/corpus/consent fuzz/seeds/consent`

#![no_main]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use trunkline_live::consent::{
    CONSENT, ConsentRequester, ConsentResponder, Grant, LENGTH, RequesterSecret, RunId, RunKey,
};
use trunkline_units::{Instant, Span};

const RUN: RunId = RunId(*b"run 0001");
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 40_000);
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 5000);

/// Challenges and proofs that the fuzzer may deliver again.
const MAX_STORED: usize = 64;

type Datagram = [u8; LENGTH];

fuzz_target!(|bytes: &[u8]| {
    let key = RunKey::new([1; 32]);
    let mut requester = ConsentRequester::new(RUN, &key, RECEIVER, &RequesterSecret::new([2; 32]));
    let mut responder = ConsentResponder::new();
    let mut now = Instant::ZERO;
    // With the time of each challenge, and whether its proof was accepted.
    let mut challenges: Vec<(Instant, Datagram)> = Vec::new();
    let mut proofs: Vec<(Instant, bool, Datagram)> = Vec::new();
    let mut answered: Vec<Datagram> = Vec::new();
    let mut expires_at = None;
    let mut rest = bytes;
    // Each event is a byte for its kind, a byte for its amount, and for some a piece of the input.
    while let [kind, amount, argument @ ..] = rest {
        rest = argument;
        let index = usize::from(*amount);
        match kind % 8 {
            0 => {
                if let Some(challenge) = requester.poll(now)
                    && challenges.len() < MAX_STORED
                {
                    challenges.push((now, challenge));
                }
            }
            1 => now += Span::from_ms(index as u64),
            2 if !challenges.is_empty() => {
                let (sent_at, challenge) = challenges[index % challenges.len()];
                if let Ok(proof) = responder.handle(now, SENDER, &challenge) {
                    assert!(!answered.contains(&challenge), "a replay was answered");
                    answered.push(challenge);
                    proofs.push((sent_at, false, proof));
                }
            }
            3 if !proofs.is_empty() => {
                let index = index % proofs.len();
                let (sent_at, is_used, proof) = &mut proofs[index];
                if requester.handle(now, RECEIVER, proof).is_ok() {
                    assert!(!*is_used, "a proof was accepted twice");
                    *is_used = true;
                    expires_at = expires_at.max(Some(*sent_at + CONSENT));
                }
            }
            // One changed bit, the wrong address, or the wrong end.
            4 | 5 if !challenges.is_empty() => {
                let stored = challenges.iter().map(|(_, b)| b).chain(proofs.iter().map(|(_, _, b)| b));
                let stored: Vec<&Datagram> = stored.collect();
                let mut datagram = *stored[index % stored.len()];
                let from = if kind % 8 == 4 {
                    let bit =
                        argument.first().map_or(0, |bit| usize::from(*bit)) + 256 * usize::from(kind >> 7);
                    datagram[bit / 8 % LENGTH] ^= 1 << (bit % 8);
                    [SENDER, RECEIVER]
                } else {
                    [RECEIVER, SENDER]
                };
                assert!(responder.handle(now, from[0], &datagram).is_err());
                assert!(requester.handle(now, from[1], &datagram).is_err());
            }
            6 if *kind >= 128 => {
                let grant =
                    Grant { run: RUN, key: key.clone(), source: SENDER.ip(), expires_at: Instant::MAX };
                // A new grant must have a new key, so only the first is granted.
                if answered.is_empty() {
                    let _ = responder.grant(now, grant);
                }
            }
            6 => _ = responder.extend(now, RUN, now),
            _ => {
                let (piece, left) = argument.split_at(index.min(argument.len()));
                rest = left;
                // The fuzzer sees the operands of comparisons, so it may learn the right code of a message.
                let is_accepted = responder.handle(now, SENDER, piece).is_ok();
                if is_accepted || requester.handle(now, RECEIVER, piece).is_ok() {
                    assert_eq!(piece.len(), LENGTH);
                    return;
                }
            }
        }
        assert_eq!(requester.expires_at(), expires_at);
        assert_eq!(requester.may_send(now), expires_at.is_some_and(|end| now < end));
    }
});
