//! The examples of `bindings/c` against Rust: datagrams to all, and messages made reliable by an alternating bit; over UDP and
//! over Ethernet, whole and with a fifth of the frames lost. Ethernet needs root, and its interfaces are in a network
//! namespace of the test's thread, gone when it ends; without, it says so and skips.
//!
//! What loses frames is a relay between two networks, by a seed for each direction.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use support::{Under, build_c, good, station};
use trunkline_io::Groups;
use trunkline_io::must::skip;
use trunkline_io::packet::{self, PacketSocket};
use trunkline_llc::socket::{Error, Sap, Settings, StationSocket};
use trunkline_llc::wire::ALL;
use trunkline_llc::{Address, Options};
use trunkline_units::Span;

/// Of this many frames one is lost.
const LOST: u64 = 5;
/// The socket of the examples.
const SOCKET: u8 = 2;
/// Messages, as by the examples; and fewer packets than may wait at a socket.
const MESSAGES: usize = 99;
const PACKETS: usize = 60;
const SECONDS: Option<Duration> = Some(Duration::from_secs(60));

/// Where stations 1 and 2 are.
struct Between<'a> {
    left: &'a str,
    right: &'a str,
    lossy: bool,
}

/// Frames that a relay lets through, of each direction: those whose turn of the stream is not a multiple of [`LOST`].
struct Luck(u64);

impl Luck {
    fn new(direction: usize) -> Luck {
        Luck(1990 + direction as u64)
    }

    /// By splitmix64.
    fn passes(&mut self) -> bool {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        !(mixed ^ (mixed >> 31)).is_multiple_of(LOST)
    }
}

/// How many of the first frames of a direction arrive.
fn survivors(between: &Between<'_>, direction: usize, frames: usize) -> usize {
    let mut luck = Luck::new(direction);
    (0..frames).filter(|_| luck.passes() || !between.lossy).count()
}

/// One side of a relay.
enum Side {
    /// The socket, the group of the station here, and its port.
    Udp(Groups, Ipv4Addr, u16),
    Ethernet(PacketSocket),
}

impl Side {
    fn limit_waiting(&self) {
        let limit = Span::from_ms(20);
        match self {
            Side::Udp(groups, ..) => groups.limit_waiting(limit).unwrap(),
            Side::Ethernet(socket) => socket.limit_waiting(Some(limit)).unwrap(),
        }
    }

    /// A frame from the station here, if one came.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut room = [0; 2048];
        match self {
            Side::Udp(groups, _, station) => {
                let (got, from) = groups.receive(&mut room, true).ok()?;
                (from == *station).then(|| room[..got].to_vec())
            }
            Side::Ethernet(socket) => {
                let frame = socket.receive(&mut room).ok()?;
                let mut bytes = frame.bytes.to_vec();
                if let Some(tag) = frame.tag {
                    bytes.splice(12..12, tag.octets());
                }
                Some(bytes)
            }
        }
    }

    fn send(&self, frame: &[u8]) {
        match self {
            Side::Udp(groups, station, _) => groups.send(*station, frame).unwrap(),
            Side::Ethernet(socket) => socket.send(frame).unwrap(),
        };
    }
}

/// Runs a body with a relay that loses frames between two sides.
fn relayed(sides: &[Side; 2], body: impl FnOnce()) {
    /// Lets the relay end also if the body fails.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for direction in [0, 1] {
            let (from, to, ended) = (&sides[direction], &sides[1 - direction], &ended);
            from.limit_waiting();
            scope.spawn(move || {
                let mut luck = Luck::new(direction);
                while !ended.load(Ordering::Relaxed) {
                    if let Some(frame) = from.receive()
                        && luck.passes()
                    {
                        to.send(&frame);
                    }
                }
            });
        }
        let _ends = Ends(&ended);
        body();
    });
}

/// Runs a body over UDP and Ethernet, whole and with losses.
fn everywhere(body: impl Fn(&Between<'_>) + Sync) {
    over_udp(&body);
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
                return skip(format_args!("no Ethernet, for no network namespace ({e})"));
            }
            over_ethernet(&body);
        });
        done.join().expect("the body holds over Ethernet");
    });
}

fn over_udp(body: &(impl Fn(&Between<'_>) + Sync)) {
    static PORTS: AtomicU16 = AtomicU16::new(26_000);
    let [direct, left, right] = [0; 3].map(|_| PORTS.fetch_add(256, Ordering::Relaxed));
    let networks = [direct, left, right].map(|port| format!("udp:239.77.6.0:{port}"));
    body(&Between { left: &networks[0], right: &networks[0], lossy: false });
    // On the left the relay stands for station 2, on the right for station 1.
    let side = |port: u16, stands_for: u8, station: u8| {
        let group = |station| Ipv4Addr::new(239, 77, 6, station);
        let heard = [group(stands_for), group(ALL)];
        let source = port + u16::from(stands_for);
        let groups = Groups::open(Ipv4Addr::LOCALHOST, port, source, &heard, 1 << 20, 0).unwrap();
        Side::Udp(groups, group(station), port + u16::from(station))
    };
    relayed(&[side(left, 2, 1), side(right, 1, 2)], || {
        body(&Between { left: &networks[1], right: &networks[2], lossy: true });
    });
}

/// In a namespace of the thread's own.
fn over_ethernet(body: &(impl Fn(&Between<'_>) + Sync)) {
    let script = "set -e; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; \
        ip link add direct0 type veth peer name direct1; \
        for n in 0 1; do ip link add at$n type veth peer name to$n; \
        ip link set direct$n up; ip link set at$n up; ip link set to$n up; done; \
        for try in $(seq 500); do [ $(ip link show up | grep -c 'state UP') = 6 ] && exit; sleep 0.02; done; exit 1";
    if !Command::new("sh").args(["-c", script]).status().is_ok_and(|status| status.success()) {
        return skip("no Ethernet, for no interfaces (is iproute2 installed?)");
    }
    body(&Between { left: "eth:direct0", right: "eth:direct1", lossy: false });
    let side = |interface| {
        let options = packet::Options {
            promiscuous: true,
            filter: packet::llc_only(),
            receive_buffer: 1 << 20,
            ..packet::Options::default()
        };
        Side::Ethernet(PacketSocket::open(interface, &options).unwrap())
    };
    relayed(&[side("to0"), side("to1")], || {
        body(&Between { left: "eth:at0", right: "eth:at1", lossy: true });
    });
}

/// The programs in C.
struct Programs {
    broadcast: PathBuf,
    listen: PathBuf,
    send: PathBuf,
    receive: PathBuf,
}

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| Programs {
        broadcast: build_c("examples/broadcast.c", "broadcast"),
        listen: build_c("tests/listen.c", "listen"),
        send: build_c("examples/reliable_send.c", "reliable_send"),
        receive: build_c("examples/reliable_receive.c", "reliable_receive"),
    })
}

/// A program that receives; it has said that it is ready.
struct Receiver(Child, BufReader<std::process::ChildStdout>);

impl Receiver {
    fn start(mut command: Command) -> Receiver {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Receiver(child, out)
    }

    /// What it printed until its end, a good one.
    fn lines(mut self) -> Vec<String> {
        let mut text = String::new();
        self.1.read_to_string(&mut text).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        text.lines().map(str::to_owned).collect()
    }
}

/// Station `number` of Rust, with the examples' socket.
fn rust(network: &str, number: u8) -> Sap {
    let station = StationSocket::to(&network.parse().unwrap(), number, &Settings::default()).unwrap();
    station.open(SOCKET, &Options { queue: 1024, ..Options::default() }).unwrap()
}

fn texts() -> Vec<String> {
    (1..=MESSAGES).map(|n| format!("message {n}")).collect()
}

/// What `reliable_send` does.
fn send_reliably(sap: &Sap, station: u8, texts: &[String]) {
    let mut answer = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let number = 1 - (n % 2) as u8;
        let mut message = [0; 101];
        message[0] = number;
        message[1..=text.len()].copy_from_slice(text.as_bytes());
        let answered = (0..100).any(|_| {
            sap.send(Address { sap: SOCKET, station }, &message).unwrap();
            loop {
                match sap.receive_within(&mut answer, Some(Duration::from_millis(50))) {
                    Ok(received) if received.from.station == station && answer == [number] => break true,
                    Ok(_) => {}
                    Err(Error::TimedOut) => break false,
                    Err(e) => panic!("{e}"),
                }
            }
        });
        assert!(answered, "{text}");
    }
}

/// Receives like `reliable_receive`, and keeps answering after the last message until no request arrives.
fn receive_reliably(sap: &Sap, count: usize) -> Vec<String> {
    let (mut texts, mut number, mut message) = (Vec::new(), 0, Vec::new());
    loop {
        let patience = if texts.len() < count { SECONDS } else { Some(Duration::from_secs(2)) };
        match sap.receive_within(&mut message, patience) {
            Ok(received) => {
                assert_eq!(message.len(), 101);
                if message[0] != number {
                    number = message[0];
                    let text = message[1..].split(|octet| *octet == 0).next().unwrap();
                    texts.push(String::from_utf8(text.to_vec()).unwrap());
                }
                sap.send(received.from, &message[..1]).unwrap();
            }
            Err(Error::TimedOut) => return texts,
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn datagrams_from_c_reach_rust() {
    everywhere(|between| {
        let expected = survivors(between, 0, PACKETS);
        let right = rust(between.right, 2);
        let mut command = station(&programs().broadcast, Under::Nothing, between.left, 1);
        good(command.args([PACKETS.to_string(), "1000".into()]));
        let mut packet = Vec::new();
        for _ in 0..expected {
            let received = right.receive_within(&mut packet, SECONDS).unwrap();
            assert_eq!(received.from, Address { sap: SOCKET, station: 1 });
            assert_eq!((packet.len(), packet.iter().all(|octet| *octet == b'.')), (1000, true));
        }
        let more = right.receive_within(&mut packet, Some(Duration::from_millis(50)));
        assert!(matches!(more, Err(Error::TimedOut)));
    });
}

#[test]
fn datagrams_from_rust_reach_c() {
    everywhere(|between| {
        let expected = survivors(between, 1, PACKETS);
        let mut command = station(&programs().listen, Under::Nothing, between.left, 1);
        command.arg(expected.to_string());
        let receiver = Receiver::start(command);
        let sap = rust(between.right, 2);
        for _ in 0..PACKETS {
            sap.send(Address { sap: SOCKET, station: ALL }, &[b'.'; 1000]).unwrap();
        }
        assert_eq!(receiver.lines(), vec!["1000 octets from socket 2 of station 2"; expected]);
    });
}

#[test]
fn messages_from_c_reach_rust_once_and_in_order() {
    everywhere(|between| {
        let right = rust(between.right, 2);
        let taken = thread::spawn(move || receive_reliably(&right, MESSAGES));
        let said = good(station(&programs().send, Under::Nothing, between.left, 1).arg("2"));
        assert_eq!(said, "99 messages delivered\n");
        assert_eq!(taken.join().unwrap(), texts());
    });
}

#[test]
fn messages_from_rust_reach_c_once_and_in_order() {
    everywhere(|between| {
        let receiver = Receiver::start(station(&programs().receive, Under::Nothing, between.left, 1));
        send_reliably(&rust(between.right, 2), 1, &texts());
        assert_eq!(receiver.lines(), texts());
    });
}

#[test]
fn the_examples_speak_to_each_other_and_leave_no_memory_behind() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    over_udp(&|between: &Between<'_>| {
        RUNS.fetch_add(1, Ordering::Relaxed);
        let receiver = Receiver::start(station(&programs().receive, Under::Valgrind, between.right, 2));
        good(station(&programs().send, Under::Valgrind, between.left, 1).arg("2"));
        assert_eq!(receiver.lines(), texts());
    });
    assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    good(&mut station(&programs().broadcast, Under::Valgrind, "udp:239.77.6.0:30000", 1));
}
