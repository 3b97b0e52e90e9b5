//! Transfers of the kernel.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use trunkline_lab::{Host, Lab};
use trunkline_units::Seed;

use crate::cells::{Cell, plan};
use crate::{Outcome, Transfer, table};

const PORT: u16 = 5001;
/// Time between samples, as in the simulator.
const INTERVAL: Duration = Duration::from_millis(50);
/// Buffers that never limit a transfer: least, first and largest.
const BUFFERS: [(&str, &str); 2] =
    [("net/ipv4/tcp_rmem", "4096 131072 67108864"), ("net/ipv4/tcp_wmem", "4096 16384 67108864")];

/// An open connection and the bytes that have arrived.
struct Connection {
    sender: TcpStream,
    received: Arc<AtomicU64>,
}

/// Runs a transfer over each of these links at the same time, in one lab.
pub fn transfers(cells: &[&Cell], congestion: &str, seed: Seed, seconds: u64) -> Outcome<Vec<Transfer>> {
    let plan = plan(cells, "cubic", seconds)?;
    let lab = Lab::start(&plan, seed).map_err(|error| error.to_string())?;
    for host in lab.hosts() {
        for (name, value) in BUFFERS {
            host.namespace.set(name, value).map_err(|error| error.to_string())?;
        }
    }
    let mut transfers = Vec::new();
    thread::scope(|scope| {
        let all: Vec<_> = cells
            .iter()
            .map(|cell| {
                let host = |side: &str| lab.host(&format!("{side}{}", cell.number));
                let ends = host("a").zip(host("b")).ok_or("the lab has all hosts of its plan");
                scope.spawn(move || {
                    let (from, to) = ends?;
                    let connection =
                        connect(from, to, congestion).map_err(|error| format!("{}: {error}", cell.name()))?;
                    let done = transfer(connection, seconds).and_then(|transfer| {
                        Ok(Transfer { timeouts: from.namespace.run(|| counter("TCPTimeouts"))?, ..transfer })
                    });
                    done.map_err(|error| format!("{}: {error}", cell.name()))
                })
            })
            .collect();
        for thread in all {
            transfers.push(thread.join().map_err(|_| "a transfer panicked".to_owned()).and_then(|done| done));
        }
    });
    let report = lab.finish().map_err(|error| error.to_string())?;
    let late = |quantile: f64| report.lateness_ns.value_at_quantile(quantile) as f64 / 1e3;
    println!(
        "{congestion}, seed {}: {} links at once; {} packets, late by {:.0} us p50, {:.0} us p99, {:.0} us at most{}",
        seed.0,
        cells.len(),
        report.packets_out,
        late(0.5),
        late(0.99),
        late(1.0),
        if report.is_real_time { "" } else { "; without a real-time priority" },
    );
    transfers.into_iter().collect()
}

/// Opens a connection. The receiver has its own thread and reads until the sender closes.
fn connect(from: &Host, to: &Host, congestion: &str) -> io::Result<Connection> {
    let listener = to.namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)))?;
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    thread::spawn(move || {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            count.fetch_add(length as u64, Ordering::Relaxed);
        }
    });
    let peer = SocketAddr::from((to.address, PORT));
    let sender = from.namespace.run(|| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_tcp_congestion(congestion.as_bytes())?;
        socket.connect(&peer.into())?;
        Ok(TcpStream::from(socket))
    })?;
    Ok(Connection { sender, received })
}

/// Sends as fast as the kernel takes it, and samples the connection.
fn transfer(connection: Connection, seconds: u64) -> io::Result<Transfer> {
    let start = Instant::now();
    let end = Duration::from_secs(seconds);
    let mut writer = connection.sender.try_clone()?;
    let writing = thread::spawn(move || {
        let block = vec![0; 1 << 16];
        while start.elapsed() < end && writer.write_all(&block).is_ok() {}
    });
    let mut series = Vec::new();
    let (mut bytes, mut before) = (0, 0.0);
    loop {
        let next = INTERVAL * (series.len() as u32 + 1);
        thread::sleep(next.saturating_sub(start.elapsed()));
        let now = start.elapsed().as_secs_f64();
        let total = connection.received.load(Ordering::Relaxed);
        let info = tcp_info(&connection.sender)?;
        let window = f64::from(info.tcpi_snd_cwnd) * f64::from(info.tcpi_snd_mss);
        let bps = (total - bytes) as f64 * 8.0 / (now - before);
        series.push([now, bps, window, f64::from(info.tcpi_rtt), f64::from(info.tcpi_total_retrans)]);
        (bytes, before) = (total, now);
        if next >= end {
            break;
        }
    }
    // What is still queued is of no interest.
    connection.sender.shutdown(Shutdown::Both)?;
    let _ = writing.join();
    Ok(Transfer {
        goodput_bps: bytes as f64 * 8.0 / before,
        rtt_us: table::median(series.iter().map(|point| point[3]).collect()),
        retransmissions: series.last().map_or(0.0, |point| point[4]),
        timeouts: 0.0,
        series,
    })
}

/// Reads the state of a connection.
fn tcp_info(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    // SAFETY: all bits zero are a valid value of a struct of numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the struct, which lives through the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

/// Reads a counter of TCP in the namespace of this thread.
fn counter(name: &str) -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.chunks_exact(2).flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    let value = pairs.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("the kernel does not count {name}")))
}
