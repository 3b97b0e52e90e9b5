//! Helpers of the integration tests: two ends over a link, each with a user that sends and receives.

pub mod linux;
pub mod square_root;
pub mod wire;

use trunkline_endpoint::pair::{Ended, PEER_A, PEER_B};
use trunkline_endpoint::{Impairments, Pair};
use trunkline_tcp::{Bytes, Command, Event, Options, Tcp, Timers};
use trunkline_units::{Rate, Seed, Span, Stream};

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

/// Returns the impairments of a clean line.
pub fn line(ms: u64) -> Impairments {
    Impairments { delay: Span::from_ms(ms), ..Impairments::default() }
}

/// Returns random impairments.
fn bad_line(stream: &mut Stream) -> Impairments {
    let mut share = |most: f64| if stream.chance(0.5) { stream.unit() * most } else { 0.0 };
    let (drop, duplicate, reorder) = (share(0.1), share(0.1), share(0.2));
    Impairments {
        delay: Span::from_ms(1 + stream.below(40)),
        jitter: Span::from_us(stream.below(3_000)),
        drop,
        duplicate,
        reorder,
        late: Span::from_ms(stream.below(60)),
        rate: stream.chance(0.5).then(|| Rate::from_bps(200_000 + stream.below(20_000_000))),
        ..Impairments::default()
    }
}

/// Returns Berkeley timers with random phases.
pub fn bsd_timers(stream: &mut Stream) -> Timers {
    let mut phase = || Span::from_ms(stream.below(600));
    Timers::Bsd { fast_phase: phase(), slow_phase: phase() }
}

/// Exchanges random amounts over random lines until both ends have closed; checks that every byte arrives.
pub fn exchange(seed: u64, stream: &mut Stream, a: Options, b: Options) {
    let lines = [bad_line(stream), bad_line(stream)];
    // A window of a few bytes passes only a few bytes per probe.
    let small = |o: Options| o.send_buffer.min(2_000);
    let least = u64::from(small(a).min(small(b)).min(a.receive_buffer).min(b.receive_buffer));
    let totals = [stream.below(60 * least + 1), stream.below(30 * least + 1)];
    // Three lost SYNs would abort the connection; another test covers their timing.
    let mut world = Connection::new(seed, a, b, totals, [line(10), line(10)]);
    world.step = Span::from_ms(50);
    world.step();
    world.pair.impair(lines[0], lines[1]);
    assert!(
        world.finish(Span::from_s(20_000)),
        "seed {seed}: {:?} of {totals:?}\n{a:?}\n{b:?}\n{lines:?}\n{:?}\n{:?}\n{:?}",
        world.users,
        world.pair.counts(),
        world.pair.a(),
        world.pair.b()
    );
    let events = world.pair.take_events_a().into_iter().chain(world.pair.take_events_b());
    assert!(
        events.clone().all(|(_, event)| !matches!(event, Event::Reset | Event::TimedOut)),
        "seed {seed}: {a:?}\n{b:?}"
    );
    assert_eq!(events.filter(|(_, event)| *event == Event::Finished).count(), 2, "seed {seed}");
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
