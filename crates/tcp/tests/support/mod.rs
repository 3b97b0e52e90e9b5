//! Helpers of the integration tests: two ends over a link, each with a user that sends and receives.

pub mod linux;
pub mod square_root;
pub mod wire;

use trunkline_endpoint::pair::{Ended, PEER_A, PEER_B};
use trunkline_endpoint::{Impairments, Pair};
use trunkline_tcp::{Bytes, Command, Options, Tcp};
use trunkline_units::{Seed, Span};

/// Returns the byte at `offset` of the stream of a direction.
pub fn pattern(direction: u8, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ direction
}

/// Returns matching options of both ends.
pub fn both(options: Options) -> (Options, Options) {
    let a = Options { local: 1, remote: 2, peer: PEER_B, initial_sequence: u32::MAX - 5_000, ..options };
    let b = Options { local: 2, remote: 0, peer: PEER_A, initial_sequence: u32::MAX - 20_000, ..options };
    (a, b)
}

/// A user that sends `total` bytes, closes, and checks the received data.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    direction: u8,
    pub total: u64,
    pub sent: u64,
    pub taken: u64,
    pub closed: bool,
}

impl User {
    pub fn new(direction: u8, total: u64) -> User {
        User { direction, total, sent: 0, taken: 0, closed: false }
    }

    /// Sends, receives and closes as far as `end` allows, with commands through `command`.
    pub fn act(&mut self, end: (u32, u32, bool), mut command: impl FnMut(Command<'_, Bytes>)) {
        let (room, readable, open) = end;
        let count = u64::from(room).min(self.total - self.sent);
        if count > 0 {
            let bytes: Vec<u8> = (self.sent..self.sent + count).map(|i| pattern(self.direction, i)).collect();
            command(Command::Send(&bytes[..]));
            self.sent += count;
        }
        if readable > 0 {
            let mut bytes = vec![0; readable as usize];
            command(Command::Take(&mut bytes[..]));
            for (offset, byte) in (self.taken..).zip(&bytes) {
                assert_eq!(*byte, pattern(1 - self.direction, offset), "byte {offset}");
            }
            self.taken += u64::from(readable);
        }
        if open && self.sent == self.total && !self.closed {
            command(Command::Close);
            self.closed = true;
        }
    }
}

/// Two ends during and after the handshake, and their users.
pub struct Connection {
    pub pair: Pair<Tcp<Bytes>, Tcp<Bytes>>,
    pub users: [User; 2],
    /// Interval between actions of the users.
    pub step: Span,
}

pub fn end(tcp: &Tcp<Bytes>) -> (u32, u32, bool) {
    (tcp.room(), tcp.readable(), tcp.is_open())
}

impl Connection {
    pub fn new(seed: u64, a: Options, b: Options, totals: [u64; 2], lines: [Impairments; 2]) -> Connection {
        let mut pair = Pair::new(Tcp::new(a), Tcp::new(b), Seed(seed));
        pair.impair(lines[0], lines[1]);
        pair.command_b(Command::Listen).unwrap();
        pair.command_a(Command::Connect).unwrap();
        let users = [User::new(0, totals[0]), User::new(1, totals[1])];
        Connection { pair, users, step: Span::from_ms(5) }
    }

    /// Lets the users act, then runs the link for `step`, or until nothing is left to do.
    pub fn step(&mut self) -> Ended {
        let (a, b) = (end(self.pair.a()), end(self.pair.b()));
        self.users[0].act(a, |command| self.pair.command_a(command).unwrap());
        self.users[1].act(b, |command| self.pair.command_b(command).unwrap());
        self.pair.run(self.step)
    }

    /// Returns whether everything has arrived in both directions.
    pub fn complete(&self) -> bool {
        let [a, b] = &self.users;
        a.closed && b.closed && a.taken == b.total && b.taken == a.total
    }

    /// Runs until everything has arrived and both ends have closed, at most for `limit`.
    pub fn finish(&mut self, limit: Span) -> bool {
        let until = self.pair.now() + limit;
        while self.pair.now() < until {
            let over = |tcp: &Tcp<Bytes>| tcp.is_closed() || tcp.state() == trunkline_tcp::State::TimeWait;
            if self.complete() && over(self.pair.a()) && over(self.pair.b()) {
                return true;
            }
            let before = (self.pair.now(), self.users.clone());
            if self.step() == Ended::Quiet && before == (self.pair.now(), self.users.clone()) {
                return false; // no deadline is left
            }
        }
        false
    }
}
