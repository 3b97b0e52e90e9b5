//! The faces on real sockets, with a path between that loses, damages, repeats and reorders what they send: what arrives
//! is what was sent, once and in order, though connections take short ways where they can.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use trunkline_arq::socket::{Connection, Listener};
use trunkline_arq::torture::{Faults, Torturer};
use trunkline_arq::{Check, Congestion, Mode, Options};
use trunkline_io::Clock;
use trunkline_units::{Instant, Seed, Span, Stream};

const SEEDS: u64 = if cfg!(feature = "soak") { 300 } else { 8 };

/// What stands between a client, which takes it for the server, and the server.
struct Path {
    sockets: [UdpSocket; 2],
    client: Option<SocketAddr>,
    torturers: [Torturer; 2],
    /// Frames, by when they go on and in the order in which they came.
    held: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    came: u64,
}

impl Path {
    fn to(server: SocketAddr, seed: u64) -> Path {
        let sockets = [0, 1].map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        sockets[1].connect(server).unwrap();
        let faults = Faults {
            drop: 0.04,
            damage: 0.02,
            duplicate: 0.04,
            reorder: 0.04,
            late: Span::from_ms(1),
            jitter: Span::from_us(100),
            ..Faults::default()
        };
        let torturers = ["there", "back"].map(|way| Torturer::new(faults, Seed(seed).stream(way)));
        Path { sockets, client: None, torturers, held: BTreeMap::new(), came: 0 }
    }

    fn address(&self) -> SocketAddr {
        self.sockets[0].local_addr().unwrap()
    }

    fn run(mut self, ends: &AtomicBool) {
        let (clock, mut room) = (Clock::start(), vec![0; 1 << 16]);
        while !ends.load(Ordering::Relaxed) {
            let now = clock.now();
            for way in 0..2 {
                while let Ok((length, from)) = self.sockets[way].recv_from(&mut room) {
                    self.client = if way == 0 { Some(from) } else { self.client };
                    let Path { torturers, held, came, .. } = &mut self;
                    torturers[way].torture(now, &room[..length], |at, bytes| {
                        held.insert((at, *came), (way, bytes.to_vec()));
                        *came += 1;
                    });
                }
            }
            while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= clock.now()) {
                let (way, bytes) = entry.remove();
                // What finds no room is lost, as all else may be.
                let _ = match (way, self.client) {
                    (0, _) => self.sockets[1].send(&bytes),
                    (_, Some(client)) => self.sockets[0].send_to(&bytes, client),
                    (_, None) => Ok(0),
                };
            }
            let next = self.held.keys().next().map(|(at, _)| at.since(clock.now()));
            let pause = next.unwrap_or(Span::from_ms(5)).min(Span::from_ms(5));
            let mut fds =
                self.sockets.each_ref().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
            ppoll(&mut fds, Some(TimeSpec::from_duration(pause.into())), None).unwrap();
        }
    }
}

fn draw_options(draw: &mut Stream) -> Options {
    Options {
        mode: [Mode::Selective, Mode::Selective, Mode::GoBackN][draw.below(3) as usize],
        check: [Check::Crc32c, Check::Crc64][draw.below(2) as usize],
        #[cfg(feature = "aead")]
        key: draw.chance(0.3).then(|| trunkline_arq::PresharedKey::new(&[7; 32])),
        congestion: Congestion::ALL[draw.below(Congestion::ALL.len() as u64) as usize],
        window: 8 + draw.below(100) as u16,
        frame: [600, 1472, 8972][draw.below(3) as usize],
        ack_every: 1 + draw.below(20) as u16,
        ..Options::default()
    }
}

/// Runs `body` with every seed. The paths of several seeds wait at the same time.
fn for_seeds(body: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let seed @ 0..SEEDS = next.fetch_add(1, Ordering::Relaxed) {
                    body(seed);
                }
            });
        }
    });
}

/// Runs `body` with both ends of a connection over a path that is drawn, and how long messages are at the most.
fn over_faults(seed: u64, body: impl Fn(&Connection, &Connection, u64) + Sync) {
    let mut draw = Seed(seed).stream("faces");
    let options = draw_options(&mut draw);
    println!("seed {seed} {options:?}");
    let listener = Listener::bind("127.0.0.1:0", &options).unwrap();
    let path = Path::to(listener.address(), seed);
    let (address, ends) = (path.address(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| path.run(&ends));
        let done = scope.spawn(|| {
            let client = Connection::connect(address, &options).unwrap();
            let server = listener.accept().unwrap();
            // Going back for each tenth frame takes its time.
            let most = if options.mode == Mode::Selective { [60, 3_000, 30_000] } else { [20, 60, 500] };
            body(&client, &server, most[draw.below(3) as usize]);
            thread::scope(|scope| {
                scope.spawn(|| client.close().unwrap());
                server.close().unwrap();
            });
        });
        let done = done.join();
        ends.store(true, Ordering::Relaxed);
        assert!(done.is_ok(), "seed {seed}");
    });
}

/// The message that a channel carries as its `number`th one way.
fn message(way: usize, channel: u16, number: u64, longest: u64) -> Vec<u8> {
    let length = Seed(number).stream(&format!("message {way} {channel}")).below(longest);
    (0..length).map(|at| (at as u8).wrapping_add(number as u8).wrapping_mul(channel as u8 | 1)).collect()
}

#[test]
fn questions_and_answers_come_to_each_other() {
    for_seeds(|seed| {
        over_faults(seed, |client, server, longest| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    for number in 0..200 {
                        assert!(
                            *server.recv(0).unwrap() == message(0, 0, number, longest),
                            "question {number}"
                        );
                        server.send(0, &message(1, 0, number, longest)).unwrap();
                    }
                });
                for number in 0..200 {
                    client.send(0, &message(0, 0, number, longest)).unwrap();
                    assert!(*client.recv(0).unwrap() == message(1, 0, number, longest), "answer {number}");
                }
            });
        });
    });
}

#[test]
fn what_flows_both_ways_on_channels_arrives() {
    for_seeds(|seed| {
        over_faults(seed, |client, server, longest| {
            thread::scope(|scope| {
                for channel in [0, 7, 65_534] {
                    for (way, from, to) in [(0, client, server), (1, server, client)] {
                        scope.spawn(move || {
                            (0..50).for_each(|n| {
                                from.send(channel, &message(way, channel, n, longest)).unwrap()
                            });
                        });
                        scope.spawn(move || {
                            for n in 0..50 {
                                let got = to.recv(channel).unwrap();
                                assert!(
                                    *got == message(way, channel, n, longest),
                                    "{n} of channel {channel}"
                                );
                            }
                        });
                    }
                }
            });
        });
    });
}
