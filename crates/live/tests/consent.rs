//! Consent to receive load: exchanges over a simulated faulty path, and forgeries.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use proptest::prelude::*;
use trunkline_live::consent::{
    CONSENT, ConsentRequester, ConsentResponder, Grant, GrantError, LENGTH, MAX_GRANTS, Refusal,
    RequesterSecret, RunId, RunKey,
};
use trunkline_units::{Instant, Seed, Span, Stream};

const RUN: RunId = RunId(*b"run 0001");
const KEY: RunKey = RunKey::new([1; 32]);
const SECRET: RequesterSecret = RequesterSecret::new([2; 32]);
/// The sender of load, which requests consent.
const SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 40_000);
/// The destination of the load.
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 5000);
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 5000);

const TRIES: u64 = 100_000;

type Datagram = [u8; LENGTH];

fn ms(n: u64) -> Instant {
    Instant::ZERO + Span::from_ms(n)
}

fn requester() -> ConsentRequester {
    ConsentRequester::new(RUN, &KEY, RECEIVER, &SECRET)
}

fn grant(run: RunId, key: RunKey) -> Grant {
    Grant { run, key, source: SENDER.ip(), expires_at: Instant::MAX }
}

fn responder() -> ConsentResponder {
    let mut responder = ConsentResponder::new();
    responder.grant(Instant::ZERO, grant(RUN, KEY)).expect("the table is empty");
    responder
}

/// Returns the number in a datagram, by the documented offset.
fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[16..24].try_into().expect("eight bytes"))
}

/// Polls a requester at its next deadline.
fn next_challenge(requester: &mut ConsentRequester) -> (Instant, Datagram) {
    let now = requester.next_deadline();
    let challenge = requester.poll(now).expect("a challenge is due");
    assert_eq!(requester.poll(now), None, "one at a time");
    (now, challenge)
}

// --- Exchanges over a faulty path

/// What a path does to each datagram of either direction.
#[derive(Clone, Copy)]
struct Faults {
    loss: f64,
    duplication: f64,
    min_delay: Span,
    max_delay: Span,
}

const IDEAL: Faults =
    Faults { loss: 0.0, duplication: 0.0, min_delay: Span::from_ms(1), max_delay: Span::from_ms(1) };

/// A requester, a responder and the path between them.
struct Exchange {
    now: Instant,
    requester: ConsentRequester,
    responder: ConsentResponder,
    faults: Faults,
    random: Stream,
    /// Datagrams on the path by arrival: to the responder or not, and contents.
    path: BinaryHeap<Reverse<(Instant, u64, bool, Datagram)>>,
    sequence: u64,
    sent_at: BTreeMap<u64, Instant>,
    answered: BTreeSet<u64>,
    /// When consent must end: after the last proven challenge.
    expires_at: Option<Instant>,
    without_consent: Span,
    challenges: u64,
    accepted: u64,
    refused: u64,
}

impl Exchange {
    fn new(seed: u64, faults: Faults) -> Exchange {
        Exchange {
            now: Instant::ZERO,
            requester: requester(),
            responder: responder(),
            faults,
            random: Seed(seed).stream("path"),
            path: BinaryHeap::new(),
            sequence: 0,
            sent_at: BTreeMap::new(),
            answered: BTreeSet::new(),
            expires_at: None,
            without_consent: Span::ZERO,
            challenges: 0,
            accepted: 0,
            refused: 0,
        }
    }

    fn transmit(&mut self, to_responder: bool, bytes: Datagram) {
        if self.random.chance(self.faults.loss) {
            return;
        }
        for _ in 0..1 + u32::from(self.random.chance(self.faults.duplication)) {
            let Faults { min_delay, max_delay, .. } = self.faults;
            let delay = min_delay + Span::from_ps(self.random.below((max_delay - min_delay).as_ps() + 1));
            self.sequence += 1;
            self.path.push(Reverse((self.now + delay, self.sequence, to_responder, bytes)));
        }
    }

    /// Runs until `end` and checks consent before and after each event.
    fn run(&mut self, end: Instant) {
        loop {
            let arrival = self.path.peek().map_or(Instant::MAX, |Reverse(next)| next.0);
            let next = arrival.min(self.requester.next_deadline()).min(end);
            self.without_consent += next.since(self.now.max(self.expires_at.unwrap_or(self.now)).min(next));
            self.check(next);
            self.now = next;
            if next >= end {
                return;
            }
            if let Some(challenge) = self.requester.poll(next) {
                self.challenges += 1;
                self.sent_at.insert(number(&challenge), next);
                self.transmit(true, challenge);
            }
            if arrival <= next {
                let Reverse((_, _, to_responder, bytes)) = self.path.pop().expect("it was seen");
                self.deliver(to_responder, bytes);
            }
            self.check(next);
        }
    }

    fn deliver(&mut self, to_responder: bool, bytes: Datagram) {
        let taken = if to_responder {
            self.responder.handle(self.now, SENDER, &bytes).map(|proof| {
                assert!(self.answered.insert(number(&bytes)), "a challenge is answered once");
                assert_eq!(number(&proof), number(&bytes));
                self.transmit(false, proof);
            })
        } else {
            self.requester.handle(self.now, RECEIVER, &bytes).map(|()| {
                self.accepted += 1;
                let sent_at = self.sent_at[&number(&bytes)];
                assert!(self.now.since(sent_at) <= CONSENT);
                self.expires_at = self.expires_at.max(Some(sent_at + CONSENT));
            })
        };
        self.refused += u64::from(taken.is_err());
    }

    fn check(&self, now: Instant) {
        assert_eq!(self.requester.expires_at(), self.expires_at);
        assert_eq!(self.requester.may_send(now), self.expires_at.is_some_and(|end| now < end));
    }
}

#[test]
fn consent_starts_after_one_round_trip_and_continues() {
    let mut exchange = Exchange::new(1, IDEAL);
    exchange.run(ms(2));
    assert!(!exchange.requester.may_send(ms(2) - Span::from_ps(1)));
    exchange.run(ms(60_000));
    assert_eq!(exchange.without_consent, Span::from_ms(2), "the first round trip");
    assert!((550..=670).contains(&exchange.challenges), "{} challenges", exchange.challenges);
    // The last challenge may be on its way.
    assert!(exchange.challenges - exchange.accepted <= 1);
    assert_eq!(exchange.refused, 0);
}

#[test]
fn consent_continues_with_a_fifth_lost_in_each_direction() {
    for delays in [[1, 20], [5, 60], [90, 110]] {
        for seed in 0..10 {
            let [min_delay, max_delay] = delays.map(Span::from_ms);
            let faults = Faults { loss: 0.2, duplication: 0.1, min_delay, max_delay };
            let mut exchange = Exchange::new(seed, faults);
            exchange.run(ms(5_000));
            assert!(exchange.requester.may_send(exchange.now), "seed {seed}");
            exchange.without_consent = Span::ZERO;
            exchange.run(ms(65_000));
            eprintln!(
                "delay {delays:?} ms, seed {seed}: {} challenges, {} accepted, {} without consent",
                exchange.challenges, exchange.accepted, exchange.without_consent
            );
            assert_eq!(exchange.without_consent, Span::ZERO, "{delays:?}, seed {seed}");
        }
    }
}

#[test]
fn consent_ends_after_a_revocation_or_a_cut() {
    for seed in 0..200 {
        let faults = Faults { loss: 0.1, duplication: 0.2, max_delay: Span::from_ms(80), ..IDEAL };
        let mut exchange = Exchange::new(seed, faults);
        let mut random = Seed(seed).stream("end");
        exchange.run(ms(1000) + Span::from_us(random.below(1_000_000)));
        let end = exchange.now;
        if seed % 2 == 0 {
            assert!(exchange.responder.extend(end, RUN, end));
        } else {
            exchange.faults.loss = 1.0;
            exchange.path.clear();
        }
        // Proofs that are on the path may still arrive, but extend consent from the time of their challenges.
        exchange.run(end + CONSENT + Span::from_ps(1));
        assert!(!exchange.requester.may_send(exchange.now), "seed {seed}");
        assert!(exchange.requester.expires_at() <= Some(end + CONSENT), "seed {seed}");
        exchange.run(end + Span::from_s(20));
        assert!(!exchange.requester.may_send(exchange.now), "seed {seed}");
    }
}

#[test]
fn consent_returns_with_the_path() {
    let mut exchange = Exchange::new(3, IDEAL);
    exchange.run(ms(1000));
    exchange.faults.loss = 1.0;
    exchange.run(ms(61_000));
    exchange.faults.loss = 0.0;
    exchange.run(ms(62_200));
    assert!(exchange.requester.may_send(exchange.now));
    exchange.without_consent = Span::ZERO;
    exchange.run(ms(80_000));
    assert_eq!(exchange.without_consent, Span::ZERO);
}

#[test]
fn unanswered_challenges_become_rare() {
    let mut exchange = Exchange::new(4, Faults { loss: 1.0, ..IDEAL });
    exchange.run(ms(103_000));
    assert!((120..=143).contains(&exchange.challenges), "{} challenges", exchange.challenges);
    assert_eq!(exchange.requester.expires_at(), None);
}

#[test]
fn a_late_caller_sends_no_burst() {
    let mut requester = requester();
    assert!(requester.poll(ms(10_000)).is_some());
    assert_eq!(requester.poll(ms(10_000)), None);
    assert!(requester.next_deadline() >= ms(10_090) && requester.next_deadline() <= ms(10_110));
    assert_eq!(requester.poll(Instant::MAX), None, "time has ended");
}

// --- The rules of a proof

#[test]
fn a_delayed_proof_extends_nothing_by_its_delay() {
    let late = Err(Refusal::Late);
    for (delay_ms, expected) in
        [(0, Ok(())), (300, Ok(())), (499, Ok(())), (500, Ok(())), (501, late), (5000, late)]
    {
        let (mut requester, mut responder) = (requester(), responder());
        let (sent_at, challenge) = next_challenge(&mut requester);
        let proof = responder.handle(sent_at, SENDER, &challenge).expect("it is granted");
        let now = sent_at + Span::from_ms(delay_ms);
        assert_eq!(requester.handle(now, RECEIVER, &proof), expected, "{delay_ms} ms");
        assert_eq!(requester.expires_at(), expected.is_ok().then_some(sent_at + CONSENT));
        assert_eq!(requester.may_send(now), delay_ms < 500, "{delay_ms} ms");
    }
}

#[test]
fn a_proof_is_accepted_once_and_an_earlier_one_shortens_nothing() {
    let (mut requester, mut responder) = (requester(), responder());
    let [first, second] = [(); 2].map(|()| {
        let (now, challenge) = next_challenge(&mut requester);
        (now, responder.handle(now, SENDER, &challenge).expect("it is granted"))
    });
    assert_eq!(requester.handle(second.0, RECEIVER, &second.1), Ok(()));
    assert_eq!(requester.handle(second.0, RECEIVER, &first.1), Ok(()));
    assert_eq!(requester.expires_at(), Some(second.0 + CONSENT));
    for proof in [first.1, second.1] {
        assert_eq!(requester.handle(second.0, RECEIVER, &proof), Err(Refusal::Replay));
    }
}

#[test]
fn a_proof_of_an_overwritten_challenge_is_refused() {
    let (mut requester, mut responder) = (requester(), responder());
    let (now, challenge) = next_challenge(&mut requester);
    let proof = responder.handle(now, SENDER, &challenge).expect("it is granted");
    for _ in 0..32 {
        next_challenge(&mut requester);
    }
    assert_eq!(requester.handle(now, RECEIVER, &proof), Err(Refusal::Unsolicited));
}

#[test]
fn each_wrong_proof_is_refused_with_its_cause() {
    let mut requester = requester();
    let (now, challenge) = next_challenge(&mut requester);
    let proof = responder().handle(now, SENDER, &challenge).expect("it is granted");
    let other = |run, key, secret| {
        let mut other = ConsentRequester::new(run, &key, RECEIVER, &secret);
        let mut responder = ConsentResponder::new();
        responder.grant(now, grant(run, key)).expect("the table is empty");
        responder.handle(now, SENDER, &other.poll(now).expect("due")).expect("it is granted")
    };
    let version = {
        let mut bytes = proof;
        bytes[4] = 2;
        bytes
    };
    let other_key = RunKey::new([9; 32]);
    let other_secret = RequesterSecret::new([9; 32]);
    let other_port = SocketAddr::new(RECEIVER.ip(), 5001);
    let other_address = SocketAddr::new(UNKNOWN.ip(), RECEIVER.port());
    for (cause, from, bytes) in [
        (Refusal::Malformed, RECEIVER, &proof[..LENGTH - 1]),
        (Refusal::Version, RECEIVER, &version[..]),
        (Refusal::Kind, RECEIVER, &challenge[..]),
        (Refusal::Source, other_port, &proof[..]),
        (Refusal::Source, other_address, &proof[..]),
        (Refusal::Source, SENDER, &proof[..]),
        (Refusal::Run, RECEIVER, &other(RunId([0; 8]), KEY, SECRET)),
        (Refusal::Mac, RECEIVER, &other(RUN, other_key, SECRET)),
        (Refusal::Unsolicited, RECEIVER, &other(RUN, KEY, other_secret)),
    ] {
        assert_eq!(requester.handle(now, from, bytes), Err(cause));
        assert!(!requester.may_send(now) && requester.expires_at().is_none());
    }
    assert_eq!(requester.handle(now, RECEIVER, &proof), Ok(()), "the refused ones used nothing up");
}

#[test]
fn addresses_are_compared_without_mapping_and_flow_label() {
    let mapped = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        v6 => v6,
    };
    let (mut requester, mut responder) = (requester(), responder());
    let (now, challenge) = next_challenge(&mut requester);
    let proof = responder.handle(now, mapped(SENDER), &challenge).expect("it is granted");
    assert_eq!(requester.handle(now, mapped(RECEIVER), &proof), Ok(()));

    let address =
        |flow, scope| SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 5000, flow, scope).into();
    let mut requester = ConsentRequester::new(RUN, &KEY, address(0, 2), &SECRET);
    let (now, challenge) = next_challenge(&mut requester);
    let proof = self::responder().handle(now, SENDER, &challenge).expect("it is granted");
    assert_eq!(requester.handle(now, address(0, 3), &proof), Err(Refusal::Source), "another link");
    assert_eq!(requester.handle(now, address(7, 2), &proof), Ok(()));
}

#[test]
fn earlier_times_count_as_the_latest() {
    let (mut requester, mut responder) = (requester(), responder());
    let (now, challenge) = next_challenge(&mut requester);
    let proof = responder.handle(now, SENDER, &challenge).expect("it is granted");
    assert_eq!(requester.poll(ms(1)), None);
    assert_eq!(requester.handle(now, RECEIVER, &proof), Ok(()));
    assert!(requester.poll(ms(700)).is_some());
    assert!(!requester.may_send(now), "consent has ended at 500 ms");
}

// --- The rules of a responder

#[test]
fn a_responder_answers_no_replay() {
    let (mut requester, mut responder) = (requester(), responder());
    let challenges: Vec<_> = (0..8).map(|_| next_challenge(&mut requester)).collect();
    let now = challenges[7].0;
    assert!(responder.handle(now, SENDER, &challenges[4].1).is_ok());
    for (_, challenge) in &challenges[..=4] {
        assert_eq!(responder.handle(now, SENDER, challenge), Err(Refusal::Replay));
    }
    assert!(responder.handle(now, SENDER, &challenges[5].1).is_ok());
}

#[test]
fn a_responder_answers_the_granted_address_until_the_grant_ends() {
    let mut requester = requester();
    let mut responder = ConsentResponder::new();
    let (_, challenge) = next_challenge(&mut requester);
    assert_eq!(responder.handle(ms(0), SENDER, &challenge), Err(Refusal::Run));
    let until = |end| Grant { expires_at: ms(end), ..grant(RUN, KEY) };
    assert_eq!(responder.grant(ms(100), until(100)), Err(GrantError::Expired));
    responder.grant(ms(100), until(1000)).expect("the table is empty");
    assert_eq!(responder.grant(ms(100), until(2000)), Err(GrantError::Duplicate));
    assert_eq!(responder.handle(ms(100), UNKNOWN, &challenge), Err(Refusal::Source));
    let other_port = SocketAddr::new(SENDER.ip(), 1);
    assert!(responder.handle(ms(999), other_port, &challenge).is_ok());
    assert!(responder.extend(ms(999), RUN, ms(1500)));
    let (_, challenge) = next_challenge(&mut requester);
    assert!(responder.handle(ms(1499), SENDER, &challenge).is_ok());
    let (_, challenge) = next_challenge(&mut requester);
    assert_eq!(responder.handle(ms(1500), SENDER, &challenge), Err(Refusal::Expired));
    assert!(!responder.extend(ms(1500), RUN, ms(9000)), "an expired grant does not return");
}

#[test]
fn a_full_table_refuses_grants_until_some_end() {
    let mut responder = ConsentResponder::new();
    let run = |n: usize| RunId((n as u64).to_be_bytes());
    for n in 0..MAX_GRANTS {
        let expires_at = ms(if n < 10 { 500 } else { 1000 });
        responder.grant(ms(0), Grant { expires_at, ..grant(run(n), KEY) }).expect("it is not full");
    }
    assert_eq!(responder.grant(ms(499), grant(RUN, KEY)), Err(GrantError::Full));
    for n in 0..10 {
        responder.grant(ms(500), grant(run(n), KEY)).expect("ten have expired");
    }
    assert_eq!(responder.grant(ms(500), grant(RUN, KEY)), Err(GrantError::Full));
}

#[test]
fn a_responder_limits_its_rate() {
    // The same number of challenges at once, and at ten times the allowed rate.
    for step in [Span::ZERO, Span::from_ms(2)] {
        let (mut requester, mut responder) = (requester(), responder());
        let challenges: Vec<_> = (0..1000).map(|_| next_challenge(&mut requester).1).collect();
        let mut answered_at = Vec::new();
        for (n, challenge) in challenges.iter().enumerate() {
            let now = ms(1) + step * n as u64;
            match responder.handle(now, SENDER, challenge) {
                Ok(_) => answered_at.push(now),
                Err(cause) => assert_eq!(cause, Refusal::Rate),
            }
        }
        assert_eq!(answered_at.len(), if step.is_zero() { 10 } else { 10 + 1998 / 25 });
        for (n, start) in answered_at.iter().enumerate() {
            let within = answered_at[n..].iter().take_while(|at| at.since(*start) <= Span::from_s(1)).count();
            assert!(within <= 50, "{within} answers in a second");
        }
    }
}

// --- Forgeries

/// Honest exchanges, and what an attacker makes of their datagrams.
struct Attack {
    random: Stream,
    now: Instant,
    requester: ConsentRequester,
    responder: ConsentResponder,
    /// Outstanding proofs, which the attacker has before the requester.
    fresh: Vec<Datagram>,
    /// Challenges that the responder has not seen.
    unseen: Vec<Datagram>,
    /// Proofs that were accepted, or are too late.
    old: Vec<Datagram>,
    challenges: Vec<Datagram>,
    /// Valid in other runs, with other keys, nonces or numbers: challenges and proofs.
    others: [Vec<Datagram>; 2],
    /// Both ends of another exchange with the same key, but other nonces.
    other_ends: (ConsentRequester, ConsentResponder),
    /// Its proofs of the numbers that are outstanding.
    other_nonces: Vec<Datagram>,
}

const STORED: usize = 64;

fn store(into: &mut Vec<Datagram>, bytes: Datagram) {
    if into.len() == STORED {
        into.remove(0);
    }
    into.push(bytes);
}

impl Attack {
    fn new(seed: u64) -> Attack {
        let mut others = [Vec::new(), Vec::new()];
        let other_keys = [
            (RunId(*b"run 0002"), KEY, SECRET, true),
            (RUN, RunKey::new([3; 32]), SECRET, true),
            (RUN, RunKey::new([0; 32]), SECRET, true),
            // The responder answers any nonce with the key of the run.
            (RUN, KEY, RequesterSecret::new([4; 32]), false),
        ];
        for (run, key, secret, is_forged_challenge) in other_keys {
            let mut requester = ConsentRequester::new(run, &key, RECEIVER, &secret);
            let mut responder = ConsentResponder::new();
            responder.grant(Instant::ZERO, grant(run, key.clone())).expect("the table is empty");
            for _ in 0..16 {
                let (now, challenge) = next_challenge(&mut requester);
                others[1].push(responder.handle(now, SENDER, &challenge).expect("it is granted"));
                if is_forged_challenge {
                    others[0].push(challenge);
                }
            }
        }
        Attack {
            random: Seed(seed).stream("attack"),
            now: Instant::ZERO,
            requester: requester(),
            responder: responder(),
            fresh: Vec::new(),
            unseen: Vec::new(),
            old: Vec::new(),
            challenges: Vec::new(),
            others,
            other_ends: (
                ConsentRequester::new(RUN, &KEY, RECEIVER, &RequesterSecret::new([5; 32])),
                responder(),
            ),
            other_nonces: Vec::new(),
        }
    }

    /// Continues the honest exchange by some challenges. In every other period, no proof arrives and consent ends.
    fn advance(&mut self, has_consent: bool) {
        self.old.append(&mut self.fresh);
        self.old.drain(..self.old.len().saturating_sub(STORED));
        // Proofs that were not delivered are late from now on.
        self.now += Span::from_s(1);
        self.other_nonces.clear();
        for n in 0..4 {
            let (at, other) = next_challenge(&mut self.other_ends.0);
            let other = self.other_ends.1.handle(at, SENDER, &other).expect("it is granted");
            self.other_nonces.push(other);
            self.now = self.now.max(self.requester.next_deadline());
            let challenge = self.requester.poll(self.now).expect("it is due");
            if n == 3 {
                self.unseen = vec![challenge];
                break;
            }
            let proof = self.responder.handle(self.now, SENDER, &challenge).expect("it is granted");
            store(&mut self.challenges, challenge);
            if n == 0 && has_consent {
                assert_eq!(self.requester.handle(self.now, RECEIVER, &proof), Ok(()));
                store(&mut self.old, proof);
            } else {
                self.fresh.push(proof);
            }
        }
        assert_eq!(self.requester.may_send(self.now), has_consent);
    }

    fn pick(&mut self, from: fn(&Attack) -> &Vec<Datagram>) -> Datagram {
        let length = from(self).len() as u64;
        let index = self.random.below(length) as usize;
        from(self)[index]
    }

    fn random_bytes(&mut self) -> Vec<u8> {
        let length = if self.random.chance(0.7) { LENGTH as u64 } else { self.random.below(200) };
        let mut bytes: Vec<u8> = (0..length).map(|_| self.random.bits() as u8).collect();
        // With some correct fields in front.
        let template = if self.random.chance(0.5) { self.fresh[0] } else { self.unseen[0] };
        let correct = [0, 4, 8, 16, 24, 40, 55][self.random.below(7) as usize].min(bytes.len());
        bytes[..correct].copy_from_slice(&template[..correct]);
        // The last byte alone is right once in 256 tries.
        if bytes == template {
            bytes[LENGTH - 1] ^= 1;
        }
        bytes
    }

    /// Flips one to three different bits.
    fn flipped(&mut self, mut bytes: Datagram) -> Vec<u8> {
        let mut bits = BTreeSet::new();
        for _ in 0..1 + self.random.below(3) {
            bits.insert(self.random.below(8 * LENGTH as u64) as usize);
        }
        bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
        bytes.to_vec()
    }

    /// Returns a forged proof and the address that it comes from.
    fn proof(&mut self) -> (SocketAddr, Vec<u8>) {
        let bytes = match self.random.below(9) {
            0 => self.random_bytes(),
            1 => {
                let fresh = self.pick(|a| &a.fresh);
                self.flipped(fresh)
            }
            2 => self.pick(|a| &a.others[1]).to_vec(),
            3 => self.pick(|a| &a.old).to_vec(),
            // A challenge of the same key as proof; also with the kind of a proof.
            4 => {
                let mut bytes =
                    if self.random.chance(0.5) { self.unseen[0] } else { self.pick(|a| &a.challenges) };
                bytes[5] = 1 + self.random.below(2) as u8;
                bytes.to_vec()
            }
            // The number and nonce of an outstanding challenge, and the HMAC of another proof.
            5 => {
                let (mut bytes, other) = (self.pick(|a| &a.fresh), self.pick(|a| &a.old));
                bytes[40..].copy_from_slice(&other[40..]);
                bytes.to_vec()
            }
            6 => self.pick(|a| &a.other_nonces).to_vec(),
            7 => {
                let port = RECEIVER.port() ^ (1 << self.random.below(16));
                return (SocketAddr::new(RECEIVER.ip(), port), self.pick(|a| &a.fresh).to_vec());
            }
            _ => {
                let address = Ipv4Addr::from(0xc000_0202_u32 ^ (1 << self.random.below(32)));
                return (SocketAddr::new(address.into(), RECEIVER.port()), self.pick(|a| &a.fresh).to_vec());
            }
        };
        (RECEIVER, bytes)
    }

    /// Returns a forged challenge and the address that it comes from.
    fn challenge(&mut self) -> (SocketAddr, Vec<u8>) {
        let bytes = match self.random.below(6) {
            0 => self.random_bytes(),
            1 => {
                let unseen = self.unseen[0];
                self.flipped(unseen)
            }
            2 => self.pick(|a| &a.others[0]).to_vec(),
            3 => self.pick(|a| &a.challenges).to_vec(),
            4 => {
                let mut bytes = self.pick(|a| &a.fresh);
                bytes[5] = 1 + self.random.below(2) as u8;
                bytes.to_vec()
            }
            _ => {
                let address = Ipv4Addr::from(0xc000_0201_u32 ^ (1 << self.random.below(32)));
                return (SocketAddr::new(address.into(), SENDER.port()), self.unseen[0].to_vec());
            }
        };
        (SENDER, bytes)
    }
}

fn check_forgeries(seed: u64, tries: u64) {
    let mut attack = Attack::new(seed);
    attack.advance(true);
    let mut has_consent = true;
    // By the end that refused: the requester or not.
    let mut refusals: BTreeMap<(bool, Refusal), u64> = BTreeMap::new();
    for n in 0..tries {
        if n % 50 == 49 {
            has_consent = n % 100 == 99;
            attack.advance(has_consent);
        }
        let expires_at = attack.requester.expires_at();
        let proofs = n % 4 != 3;
        let (from, bytes) = if proofs { attack.proof() } else { attack.challenge() };
        let taken = match proofs {
            true => attack.requester.handle(attack.now, from, &bytes),
            false => attack.responder.handle(attack.now, from, &bytes).map(drop),
        };
        let Err(cause) = taken else { panic!("seed {seed}, try {n}: {bytes:02x?} from {from}") };
        *refusals.entry((proofs, cause)).or_default() += 1;
        assert_eq!(attack.requester.expires_at(), expires_at, "seed {seed}, try {n}");
        assert_eq!(attack.requester.may_send(attack.now), has_consent, "seed {seed}, try {n}");
    }
    eprintln!("{refusals:?}");
    use Refusal::{Kind, Late, Mac, Malformed, Replay, Run, Source, Unsolicited, Version};
    let by_both = [Malformed, Version, Kind, Run, Source, Mac, Replay];
    for expected in by_both.map(|cause| (false, cause)) {
        assert!(refusals.contains_key(&expected), "{expected:?}");
    }
    for expected in by_both.into_iter().chain([Unsolicited, Late]).map(|cause| (true, cause)) {
        assert!(refusals.contains_key(&expected), "{expected:?}");
    }
    // The honest exchange still works.
    attack.advance(true);
}

#[test]
fn forgeries_and_replays_open_nothing() {
    check_forgeries(1, TRIES);
}

#[cfg(feature = "soak")]
#[test]
fn soak_forgeries_and_replays_open_nothing() {
    for seed in 0..10 {
        check_forgeries(100 + seed, 1_000_000);
    }
}

// --- Hostile bytes

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        Just(SENDER),
        Just(RECEIVER),
        any::<(u32, u16)>().prop_map(|(ip, port)| SocketAddr::new(Ipv4Addr::from(ip).into(), port)),
        any::<(u128, u16)>().prop_map(|(ip, port)| SocketAddr::new(Ipv6Addr::from(ip).into(), port)),
    ]
}

/// Any bytes, often with the length and the first fields of a datagram.
fn any_datagram() -> impl Strategy<Value = Vec<u8>> {
    let header = (any::<[u8; LENGTH]>(), 0..3u8, any::<bool>()).prop_map(|(mut bytes, kind, is_run)| {
        bytes[..8].copy_from_slice(&[b'T', b'L', b'C', b'N', 1, kind, 0, 0]);
        if is_run {
            bytes[8..16].copy_from_slice(&RUN.0);
        }
        bytes.to_vec()
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), any::<[u8; LENGTH]>().prop_map(Vec::from), header]
}

proptest! {
    #[test]
    fn any_bytes_at_any_time_change_nothing(
        inputs in prop::collection::vec((any::<u64>(), any_address(), any_datagram()), 1..40),
    ) {
        let (mut requester, mut responder) = (requester(), responder());
        for (ps, from, bytes) in &inputs {
            let now = Instant::from_ps(*ps);
            requester.poll(now);
            prop_assert!(requester.handle(now, *from, bytes).is_err());
            prop_assert!(responder.handle(now, *from, bytes).is_err());
            prop_assert!(!requester.may_send(now));
        }
    }

    #[test]
    fn challenges_are_apart_at_any_pace(steps_us in prop::collection::vec(0..300_000u64, 1..200), answer in any::<u64>()) {
        let (mut requester, mut responder) = (requester(), responder());
        let (mut now, mut last) = (Instant::ZERO, None);
        for (n, step) in steps_us.iter().enumerate() {
            now += Span::from_us(*step);
            if let Some(challenge) = requester.poll(now) {
                if let Some(last) = last.replace(now) {
                    prop_assert!(now.since(last) >= Span::from_us(22_500));
                }
                if answer >> (n % 64) & 1 == 1 && let Ok(proof) = responder.handle(now, SENDER, &challenge) {
                    prop_assert_eq!(requester.handle(now, RECEIVER, &proof), Ok(()));
                    prop_assert!(requester.may_send(now));
                }
            }
            prop_assert!(requester.next_deadline() > now && requester.next_deadline() <= now + Span::from_ms(1100));
        }
    }
}
