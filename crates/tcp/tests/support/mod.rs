//! What the tests of the crate share: two ends over a link, each with a user that sends and receives.

#![allow(dead_code, reason = "no test uses all of it")]

use trunkline_endpoint::pair::{Ended, PEER_A, PEER_B};
use trunkline_endpoint::{Impairments, Pair};
use trunkline_tcp::{Bytes, Command, Options, Tcp};
use trunkline_units::{Seed, Span};

/// The byte at this place of the stream that goes this way.
pub fn pattern(way: u8, place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ way
}

/// The options of both ends, made to fit each other.
pub fn both(options: Options) -> (Options, Options) {
    let a = Options { local: 1, remote: 2, peer: PEER_B, initial_sequence: u32::MAX - 5_000, ..options };
    let b = Options { local: 2, remote: 0, peer: PEER_A, initial_sequence: u32::MAX - 20_000, ..options };
    (a, b)
}

/// A user that sends `total` bytes, closes, and checks the received data.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    way: u8,
    pub total: u64,
    pub sent: u64,
    pub taken: u64,
    pub closed: bool,
}

impl User {
    pub fn new(way: u8, total: u64) -> User {
        User { way, total, sent: 0, taken: 0, closed: false }
    }

    /// What it asks now of `end`, which `ask` gives a command.
    pub fn act(&mut self, end: (u32, u32, bool), mut ask: impl FnMut(Command<'_, Bytes>)) {
        let (room, readable, open) = end;
        let count = u64::from(room).min(self.total - self.sent);
        if count > 0 {
            let bytes: Vec<u8> = (self.sent..self.sent + count).map(|i| pattern(self.way, i)).collect();
            ask(Command::Send(&bytes[..]));
            self.sent += count;
        }
        if readable > 0 {
            let mut bytes = vec![0; readable as usize];
            ask(Command::Take(&mut bytes[..]));
            for (place, byte) in (self.taken..).zip(&bytes) {
                assert_eq!(*byte, pattern(1 - self.way, place), "byte {place}");
            }
            self.taken += u64::from(readable);
        }
        if open && self.sent == self.total && !self.closed {
            ask(Command::Close);
            self.closed = true;
        }
    }
}

/// Two ends that are being connected, and their users.
pub struct World {
    pub pair: Pair<Tcp<Bytes>, Tcp<Bytes>>,
    pub users: [User; 2],
    /// How often users act.
    pub step: Span,
}

pub fn end(tcp: &Tcp<Bytes>) -> (u32, u32, bool) {
    (tcp.room(), tcp.readable(), tcp.is_open())
}

impl World {
    pub fn new(seed: u64, a: Options, b: Options, totals: [u64; 2], lines: [Impairments; 2]) -> World {
        let mut pair = Pair::new(Tcp::new(a), Tcp::new(b), Seed(seed));
        pair.impair(lines[0], lines[1]);
        pair.command_b(Command::Listen).unwrap();
        pair.command_a(Command::Connect).unwrap();
        let users = [User::new(0, totals[0]), User::new(1, totals[1])];
        World { pair, users, step: Span::from_ms(5) }
    }

    /// Lets the users act, and `step` pass, or less if all falls quiet before.
    pub fn step(&mut self) -> Ended {
        let (a, b) = (end(self.pair.a()), end(self.pair.b()));
        self.users[0].act(a, |command| self.pair.command_a(command).unwrap());
        self.users[1].act(b, |command| self.pair.command_b(command).unwrap());
        self.pair.run(self.step)
    }

    /// Whether everything has arrived both ways.
    pub fn complete(&self) -> bool {
        let [a, b] = &self.users;
        a.closed && b.closed && a.taken == b.total && b.taken == a.total
    }

    /// Runs until everything has arrived and both ends know, at most for `limit`.
    pub fn finish(&mut self, limit: Span) -> bool {
        let until = self.pair.now() + limit;
        while self.pair.now() < until {
            let over = |tcp: &Tcp<Bytes>| tcp.is_closed() || tcp.state() == trunkline_tcp::State::TimeWait;
            if self.complete() && over(self.pair.a()) && over(self.pair.b()) {
                return true;
            }
            let before = (self.pair.now(), self.users.clone());
            if self.step() == Ended::Quiet && before == (self.pair.now(), self.users.clone()) {
                return false; // nothing will ever happen
            }
        }
        false
    }
}
