//! Many links at once, and many hosts that start and end.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use trunkline_endpoint::Port;
use trunkline_lab::{Host, Lab};
use trunkline_units::Seed;

use crate::{Outcome, lateness, plan};

/// Links of 10 Mb/s that carry packets at once.
const LINKS: [usize; 4] = [50, 100, 150, 200];
/// How long they do.
const TIME: Duration = Duration::from_secs(4);
/// Rate of a link, and of what a frame of 1,500 bytes has in addition: preamble, header, check sequence and gap.
const RATE_BPS: f64 = 10e6;
const FRAMING: u64 = 38;
/// Payload of a datagram that is as long as the MTU.
const DATAGRAM: usize = 1472;
/// How often the TCP connections are written to and read from.
const ROUND: Duration = Duration::from_millis(2);
/// Datagrams are sent at this part of the rate.
const LOAD: f64 = 0.98;

/// Hosts that start and end, and how often.
const HOSTS: usize = 20;
const STARTS: usize = 10;

/// How late packets are when many links carry as much as they can: first with TCP of the kernel, then with datagrams at a
/// constant rate. Senders and receivers run on the same processors.
pub fn links() -> Outcome<()> {
    println!("\nlinks  senders   packets/s   rate of the frames   processors: emulator, all, idle");
    for (name, send) in [("TCP", tcp as Send), ("UDP", udp as Send)] {
        for count in LINKS {
            let lab = start(count)?;
            let pairs: Vec<(&Host, &Host)> = lab.hosts().chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
            let before = (Instant::now(), processor_time(), idle_time());
            send(&pairs).map_err(|error| format!("{name} over {count} links: {error}"))?;
            let (elapsed, used) = (before.0.elapsed().as_secs_f64(), processor_time() - before.1);
            let idle = (idle_time() - before.2) / elapsed;
            let report = lab.finish().map_err(|error| error.to_string())?;
            let ports = report.media.iter().map(|(_, ports)| &ports[usize::from(Port(0).0)]);
            let bits: u64 = ports.map(|port| (port.bytes + port.frames * FRAMING) * 8).sum();
            println!(
                "{count:5}  {name:7} {:11.0}  {:15.1} %    {:8.2} {:5.2} {idle:5.2}             {}{}",
                report.packets_in as f64 / elapsed,
                bits as f64 / TIME.as_secs_f64() / RATE_BPS / count as f64 * 100.0,
                report.processor_time.as_s() / report.duration.as_s(),
                used.as_secs_f64() / elapsed,
                lateness(&report),
                if report.is_real_time { "" } else { "; no real-time priority" },
            );
        }
    }
    Ok(())
}

/// Sends from the first to the second host of each pair for a while.
type Send = fn(&[(&Host, &Host)]) -> io::Result<()>;

fn start(links: usize) -> Outcome<Lab> {
    let hosts: Vec<String> = (0..links).map(|n| format!("a{n}, b{n}")).collect();
    let links: Vec<String> =
        (0..links).map(|n| format!("link a{n} - b{n} (rate = 10 Mb/s, delay = 5 ms);")).collect();
    let plan = plan(&format!("host {}; {}", hosts.join(", "), links.concat()), "a0", "b0")?;
    Lab::start(&plan, Seed(1)).map_err(|error| error.to_string())
}

/// As fast as the kernel takes it, with CUBIC. One thread writes to all and reads from all once in a while: a receiver that the
/// kernel wakes for each packet costs more than the packet.
fn tcp(pairs: &[(&Host, &Host)]) -> io::Result<()> {
    let mut streams = Vec::new();
    for (a, b) in pairs {
        let listener = b.namespace.run(|| TcpListener::bind((b.address, 5001)))?;
        let to = SocketAddr::from((b.address, 5001));
        let sender = a.namespace.run(|| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.set_tcp_congestion(b"cubic")?;
            socket.connect(&to.into())?;
            Ok(TcpStream::from(socket))
        })?;
        let receiver = listener.accept()?.0;
        sender.set_nonblocking(true)?;
        receiver.set_nonblocking(true)?;
        streams.push((sender, receiver));
    }
    let start = Instant::now();
    let (block, mut buffer) = ([0; 1 << 16], [0; 1 << 16]);
    while start.elapsed() < TIME {
        for (sender, receiver) in &mut streams {
            // Neither waits; what does not fit waits until the next round.
            let _ = sender.write(&block);
            let _ = receiver.read(&mut buffer);
        }
        thread::sleep(ROUND);
    }
    Ok(())
}

/// At nearly the rate of the link: one thread sends the datagrams of all, and one receives them.
fn udp(pairs: &[(&Host, &Host)]) -> io::Result<()> {
    let mut sockets = Vec::new();
    for (a, b) in pairs {
        let receiver = b.namespace.run(|| UdpSocket::bind((b.address, 5001)))?;
        // The kernel drops what its buffer cannot take; no one reads.
        let sender = a.namespace.run(|| UdpSocket::bind((a.address, 5001)))?;
        sockets.push((sender, receiver, SocketAddr::from((b.address, 5001))));
    }
    let frame_bits = (DATAGRAM as u64 + 28 + FRAMING) as f64 * 8.0;
    let interval = Duration::from_secs_f64(frame_bits / RATE_BPS / LOAD / pairs.len() as f64);
    let start = Instant::now();
    let payload = [0; DATAGRAM];
    for number in 0u32.. {
        let at = interval * number;
        if at >= TIME {
            break;
        }
        thread::sleep(at.saturating_sub(start.elapsed()));
        let (sender, _, to) = &sockets[number as usize % sockets.len()];
        sender.send_to(&payload, to)?;
    }
    Ok(())
}

/// Processor time of this process, and so of the kernel's work for it.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Seconds for which the processors of this machine had nothing to do, summed: what is left of them other programs have used.
fn idle_time() -> f64 {
    // `cpu  user nice system idle …` in hundredths of a second.
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    text.split_whitespace().nth(4).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0) / 100.0
}

/// How long a lab of 20 hosts takes to start and to end.
pub fn starts() -> Outcome<()> {
    let hosts: Vec<String> = (0..HOSTS).map(|n| format!("a{n}")).collect();
    let links: Vec<String> = hosts.iter().map(|host| format!("link {host} - s (rate = 100 Mb/s);")).collect();
    let plan = plan(&format!("host {}; switch s; {}", hosts.join(", "), links.concat()), "a0", "a1")?;
    println!("\n{HOSTS} hosts, {STARTS} times   median   largest");
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let before = Instant::now();
        let lab = Lab::start(&plan, Seed(1)).map_err(|error| error.to_string())?;
        starts.push(before.elapsed());
        let before = Instant::now();
        lab.finish().map_err(|error| error.to_string())?;
        ends.push(before.elapsed());
    }
    for (name, mut times) in [("start", starts), ("end", ends)] {
        times.sort();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{name:18} {:7.1} ms {:6.1} ms", ms(times[STARTS / 2]), ms(times[STARTS - 1]));
    }
    Ok(())
}
