//! The least a round trip can cost: two processes, blocking calls, nothing measured but the time.
//!
//! This program starts itself twice, as [`SERVE`] and as [`PING`], so that the ends are as far apart as the agents of
//! two hosts are.

use std::env;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::peers::{self, PINNED, Server};
use crate::statistics::quantile;

/// First argument of the end that answers; then the transport and its port.
pub const SERVE: &str = "serve-ping-pong";
/// First argument of the end that asks; then the transport, the port and for how many seconds.
pub const PING: &str = "ping-pong";

/// Bytes of a request and of a response.
const SIZE: usize = 64;

/// Median and 99th percentile of the round trip in microseconds, both ends on one processor.
pub fn run(transport: &str, seconds: u64) -> Outcome<[f64; 2]> {
    let program = env::current_exe().map_err(|e| format!("ping-pong: {e}"))?;
    let program = program.to_str().ok_or("ping-pong: a path that is no text")?;
    let (port, seconds) = (peers::free_port()?.to_string(), seconds.to_string());
    let with = |rest: &[&str]| [&PINNED[..], &[program], rest].concat().join("\n");
    let serve = with(&[SERVE, transport, &port]);
    let _server = Server::start(&serve.lines().collect::<Vec<_>>())?;
    let ping = with(&[PING, transport, &port, &seconds]);
    let reply = peers::run(&ping.lines().collect::<Vec<_>>())?;
    let numbers: Vec<f64> = reply.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("ping-pong: cannot read `{reply}`"))
}

/// Answers everything.
pub fn serve(arguments: &[String]) -> Outcome<()> {
    let (transport, address) = parse(arguments)?;
    let mut bytes = [0; SIZE];
    let why = match transport {
        "udp" => UdpSocket::bind(address).and_then(|socket| {
            loop {
                let (length, from) = socket.recv_from(&mut bytes)?;
                socket.send_to(&bytes[..length], from)?;
            }
        }),
        _ => TcpListener::bind(address).and_then(|listener| {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            loop {
                stream.read_exact(&mut bytes)?;
                stream.write_all(&bytes)?;
            }
        }),
    };
    why.map_err(|e: io::Error| format!("ping-pong: {e}"))
}

/// Asks for some seconds, and prints the median and the 99th percentile of the round trips in microseconds.
pub fn ping(arguments: &[String]) -> Outcome<()> {
    let (transport, address) = parse(arguments)?;
    let seconds = arguments.get(2).and_then(|s| s.parse().ok()).ok_or("ping-pong: no seconds")?;
    let trips = match transport {
        "udp" => UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| {
            socket.connect(address)?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?; // a datagram may be lost
            trips(seconds, |bytes| socket.send(bytes).and_then(|_| socket.recv(bytes)).map(drop))
        }),
        _ => TcpStream::connect(address).and_then(|mut stream| {
            stream.set_nodelay(true)?;
            trips(seconds, |bytes| stream.write_all(bytes).and_then(|()| stream.read_exact(bytes)))
        }),
    };
    let trips = trips.map_err(|e| format!("ping-pong: {e}"))?;
    println!("{} {}", quantile(&trips, 0.5), quantile(&trips, 0.99));
    Ok(())
}

/// How long each trip took, in microseconds.
fn trips(seconds: u64, mut once: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<Vec<f64>> {
    let (begin, mut bytes) = (Instant::now(), [0; SIZE]);
    let mut trips = Vec::with_capacity(1 << 20);
    let mut before = begin;
    while before - begin < Duration::from_secs(seconds) {
        once(&mut bytes)?;
        let after = Instant::now();
        trips.push((after - before).as_nanos() as f64 / 1e3);
        before = after;
    }
    Ok(trips)
}

/// Parses the transport and the address.
fn parse(arguments: &[String]) -> Outcome<(&str, SocketAddrV4)> {
    let [transport, port, ..] = arguments else { return Err("ping-pong: no transport and port".into()) };
    let port = port.parse().map_err(|_| format!("ping-pong: `{port}` is no port"))?;
    Ok((transport, SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)))
}
