//! This machine's Linux at the other end, over a TUN device in a separate network namespace, with an impaired link between.
//!
//! The test runs itself once more inside the namespace, which goes when that process does.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command as Process;
use std::thread::JoinHandle;

use etherparse::{IpNumber, Ipv4Header, Ipv4HeaderSlice, TcpSlice};
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_io::{Clock, Tun};
use trunkline_tcp::{Bytes, Command, Event, Options, Problem, State, Tcp, checksum};
use trunkline_units::{Instant, Seed, Span, Stream};

const LINUX: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const OUR_PORT: u16 = 4_000;
const INSIDE: &str = "TRUNKLINE_INSIDE_NAMESPACE";

/// Limit of a transfer.
const LIMIT: Span = Span::from_s(600);

/// What the link does to packets of both directions, as probabilities.
#[derive(Clone, Copy, Debug)]
pub struct Impairment {
    pub seed: u64,
    pub loss: f64,
    pub duplicate: f64,
    /// Delays a packet, so that later ones overtake it.
    pub reorder: f64,
}

pub const NO_IMPAIRMENT: Impairment = Impairment { seed: 1, loss: 0.0, duplicate: 0.0, reorder: 0.0 };

/// Direction of the transfer; the sender opens the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Direction {
    ToLinux,
    FromLinux,
}

/// Returns the number of bytes to transfer: `TRUNKLINE_TCP_BYTES`, or this default.
pub fn size(by_default: u64) -> u64 {
    std::env::var("TRUNKLINE_TCP_BYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(by_default)
}

/// Returns whether this process runs inside the namespace. If not, runs the test `name` there, or skips it with a reason.
pub fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let can = |flags: &str| {
        let tried = Process::new("unshare").args([flags, "test", "-c", "/dev/net/tun"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let Some(flags) = ["-Urn", "-n"].into_iter().find(|flags| can(flags)) else {
        trunkline_io::must::skip("no network namespace, or no /dev/net/tun");
        return false;
    };
    let mut process = Process::new("unshare");
    process.arg(flags).arg(std::env::current_exe().unwrap()).args([name, "--exact", "--nocapture"]);
    let output = process.env(INSIDE, "1").output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "the test did not run inside:\n{stdout}");
    println!("{stdout}");
    false
}

fn pattern(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Writes or checks the first `total` bytes of the pattern.
struct Pattern {
    at: u64,
    total: u64,
    /// The next bytes, computed each time: a repeated buffer would hide errors by its length.
    bytes: Vec<u8>,
}

impl Pattern {
    fn new(total: u64) -> Pattern {
        Pattern { at: 0, total, bytes: Vec::new() }
    }

    fn next(&mut self, most: usize) -> &[u8] {
        let count = (self.total - self.at).min(most as u64);
        self.bytes.clear();
        self.bytes.extend((self.at..self.at + count).map(pattern));
        self.at += count;
        &self.bytes
    }

    fn check(&mut self, bytes: &[u8]) {
        let expected = self.next(bytes.len());
        assert!(bytes == expected, "wrong bytes before {}", self.at);
    }
}

/// The kernel's end, on a separate thread; reports completion.
fn linux(direction: Direction, total: u64, listener: Option<TcpListener>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut pattern = Pattern::new(total);
        match direction {
            Direction::ToLinux => {
                let (mut stream, _) = listener.unwrap().accept().unwrap();
                let mut buffer = vec![0; 1 << 16];
                loop {
                    match stream.read(&mut buffer).unwrap() {
                        0 => break,
                        n => pattern.check(&buffer[..n]),
                    }
                }
            }
            Direction::FromLinux => {
                let mut stream = TcpStream::connect(SocketAddr::from((OURS, OUR_PORT))).unwrap();
                while pattern.at < total {
                    stream.write_all(pattern.next(1 << 16)).unwrap();
                }
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "the other end closes without sending data");
            }
        }
        assert_eq!(pattern.at, total);
    })
}

/// One direction of the impaired link.
struct Line {
    impairment: Impairment,
    stream: Stream,
    held: BTreeMap<(Instant, u64), Vec<u8>>,
    count: u64,
}

impl Line {
    fn new(impairment: Impairment, name: &str) -> Line {
        Line { impairment, stream: Seed(impairment.seed).stream(name), held: BTreeMap::new(), count: 0 }
    }

    fn take(&mut self, now: Instant, packet: &[u8]) {
        let Impairment { loss, duplicate, reorder, .. } = self.impairment;
        let copies = match self.stream.unit() {
            u if u < loss => 0,
            u if u < loss + duplicate => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let wait = if self.stream.chance(reorder) {
                Span::from_us(self.stream.below(3_000))
            } else {
                Span::ZERO
            };
            self.count += 1;
            self.held.insert((now + wait, self.count), packet.to_vec());
        }
    }

    fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        let first = self.held.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    fn next(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((at, _), _)| *at)
    }
}

/// Returns the segment in a packet from Linux to our end, or `None` for other packets. Asserts that both checksums are valid.
fn unwrap(packet: &[u8]) -> Option<&[u8]> {
    let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if header.protocol() != IpNumber::TCP || header.destination_addr() != OURS {
        return None;
    }
    assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
    let segment = &packet[header.slice().len()..usize::from(header.total_len())];
    assert!(checksum::verify(LINUX, OURS, segment));
    Some(segment)
}

/// Returns a packet with a segment from our end; checks its checksum with etherparse.
fn wrap(segment: &mut [u8]) -> Vec<u8> {
    checksum::fill(OURS, LINUX, segment);
    let read = TcpSlice::from_slice(segment).unwrap();
    assert_eq!(read.checksum(), read.calc_checksum_ipv4(OURS.octets(), LINUX.octets()).unwrap());
    let length = segment.len() as u16;
    let mut header = Ipv4Header::new(length, 64, IpNumber::TCP, OURS.octets(), LINUX.octets()).unwrap();
    header.header_checksum = header.calc_header_checksum();
    let mut packet = header.to_bytes().to_vec();
    packet.extend_from_slice(segment);
    packet
}

/// A pcap file of the raw IP packets that were exchanged.
pub struct Capture {
    file: Vec<u8>,
    /// Number of packets in it that our end sent.
    ours: usize,
}

impl Capture {
    fn new() -> Capture {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101u32] {
            file.extend(word.to_le_bytes());
        }
        Capture { file, ours: 0 }
    }

    fn add(&mut self, now: Instant, packet: &[u8], ours: bool) {
        if self.file.len() > 1 << 20 {
            return; // the beginning is enough
        }
        self.ours += usize::from(ours);
        let us = now.as_ns() / 1_000;
        for word in [us / 1_000_000, us % 1_000_000, packet.len() as u64, packet.len() as u64] {
            self.file.extend((word as u32).to_le_bytes());
        }
        self.file.extend(packet);
    }

    /// Asserts with tshark, if it is installed, that no packet is malformed and that our checksums are valid. Linux
    /// sometimes writes the checksum 0xffff instead of 0, which tshark rejects.
    fn check(&self) {
        let path = std::env::temp_dir().join(format!("trunkline-tcp-{}.pcap", std::process::id()));
        std::fs::write(&path, &self.file).unwrap();
        let run = |filter: &str| {
            let mut tshark = Process::new("tshark");
            tshark.arg("-r").arg(&path);
            for option in
                ["tcp.check_checksum:TRUE", "ip.check_checksum:TRUE", "tcp.desegment_tcp_streams:FALSE"]
            {
                tshark.args(["-o", option]);
            }
            tshark.args(["-Y", filter]).output()
        };
        let ours = format!("ip.src == {OURS} && ");
        let all = run(&(ours.clone() + "tcp.checksum.status == 1 && ip.checksum.status == 1"));
        let bad =
            run(&format!("_ws.malformed || {ours} (tcp.checksum.status == 0 || ip.checksum.status == 0)"));
        std::fs::remove_file(&path).unwrap();
        if let (Ok(all), Ok(bad)) = (all, bad) {
            assert!(all.status.success() && bad.status.success(), "{}", String::from_utf8_lossy(&bad.stderr));
            let seen = all.stdout.iter().filter(|byte| **byte == b'\n').count();
            println!("tshark: {seen} good packets of ours");
            assert!(seen == self.ours && bad.stdout.is_empty(), "{}", String::from_utf8_lossy(&bad.stdout));
        }
    }
}

/// The application at our end.
struct User {
    direction: Direction,
    pattern: Pattern,
    closed: bool,
}

impl User {
    fn act(&mut self, tcp: &mut Tcp<Bytes>, now: Instant) {
        let handle = |tcp: &mut Tcp<Bytes>, command: Command<'_, Bytes>| {
            tcp.handle(now, Input::Command(command)).expect("a command that fits is accepted");
        };
        let room = tcp.room() as usize;
        if self.direction == Direction::ToLinux && room > 0 && self.pattern.at < self.pattern.total {
            handle(tcp, Command::Send(self.pattern.next(room)));
        }
        let readable = tcp.readable() as usize;
        if readable > 0 {
            let mut bytes = vec![0; readable];
            handle(tcp, Command::Take(&mut bytes[..]));
            self.pattern.check(&bytes);
        }
        let done = match self.direction {
            Direction::ToLinux => tcp.is_open() && self.pattern.at == self.pattern.total,
            Direction::FromLinux => tcp.is_finished(),
        };
        if done && !self.closed {
            handle(tcp, Command::Close);
            self.closed = true;
        }
    }
}

/// Transfers `total` bytes in one direction; panics if other bytes arrive.
pub fn transfer(direction: Direction, total: u64, options: Options, impairment: Impairment) {
    let tun = Tun::open("trunk%d").unwrap();
    tun.set_up(LINUX, 24, 1_500).unwrap();
    let listener = (direction == Direction::ToLinux).then(|| TcpListener::bind((LINUX, 0)).unwrap());
    let remote = listener.as_ref().map_or(0, |l| l.local_addr().unwrap().port());
    let mut tcp = Tcp::<Bytes>::new(Options { local: OUR_PORT, remote, mss: 1_460, ..options });
    let clock = Clock::start();
    let opening = if direction == Direction::ToLinux { Command::Connect } else { Command::Listen };
    tcp.handle(clock.now(), Input::Command(opening)).unwrap();
    let linux = linux(direction, total, listener);
    let mut user = User { direction, pattern: Pattern::new(total), closed: false };
    let mut lines = [Line::new(impairment, "to linux"), Line::new(impairment, "from linux")];
    let (mut buffer, mut capture) = (vec![0; MAX_BATCH], Capture::new());
    while !(linux.is_finished() && matches!(tcp.state(), State::Closed | State::TimeWait)) {
        let now = clock.now();
        assert!(now < Instant::ZERO + LIMIT, "no progress: {tcp:?}");
        tcp.handle(now, Input::Wake).unwrap();
        for _ in 0..64 {
            let Some(length) = tun.read(&mut buffer).unwrap() else { break };
            if unwrap(&buffer[..length]).is_some() {
                capture.add(now, &buffer[..length], false);
                lines[1].take(now, &buffer[..length]);
            }
        }
        while let Some(packet) = lines[1].due(now) {
            let bytes = unwrap(&packet).unwrap();
            tcp.handle(now, Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None }).unwrap();
            user.act(&mut tcp, now);
        }
        user.act(&mut tcp, now);
        let deadline = loop {
            match tcp.poll(now, Writable::ALL, &mut buffer) {
                Output::Transmit(t) => {
                    let packet = wrap(&mut buffer[..t.length]);
                    capture.add(now, &packet, true);
                    lines[0].take(now, &packet);
                }
                Output::Event(event) => {
                    let bad = matches!(event, Event::Reset | Event::TimedOut | Event::BadSegment(_));
                    // Delayed or duplicated segments may arrive after the end.
                    let is_delayed_copy =
                        matches!(event, Event::BadSegment(Problem::Stray)) && tcp.state() == State::Closed;
                    assert!(!bad || is_delayed_copy && user.closed, "{event:?}: {tcp:?}");
                }
                Output::Idle(idle) => break idle.deadline,
            }
        };
        while let Some(packet) = lines[0].due(now) {
            tun.write(&packet).unwrap();
        }
        // The end of the other thread does not wake this one.
        let look = now + Span::from_ms(20);
        let next = [deadline, lines[0].next(), lines[1].next(), Some(look)].into_iter().flatten().min();
        tun.wait(clock, next).unwrap();
    }
    linux.join().unwrap();
    assert_eq!(user.pattern.at, total);
    println!("{direction:?}, {impairment:?}: {total} bytes in {}: {:?}", clock.now(), tcp.statistics());
    capture.check();
}
