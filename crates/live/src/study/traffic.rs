//! Traffic of this machine to itself, and what it takes of the processors.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use trunkline_io::usage::thread_time;
use trunkline_io::{Clock, pace, socket as net_socket};
use trunkline_units::{Instant, Span};

/// Octets asked for the receiver's buffer.
pub(super) const ROOM: usize = 1 << 20;
/// What is awaited after the last message was sent.
const QUIET: Duration = Duration::from_millis(30);
/// The message that ends the traffic: shorter than any other.
const END: [u8; 1] = [0];
/// By then any bundle is due.
const LATER: Span = Span::from_s(1);
/// Messages between two looks at the clock by who sends as fast as it can.
const ROW: u64 = 32;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Messages a second; infinite: as fast as they go.
    pub rate: f64,
    /// For how long.
    pub time: Span,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// From the first to the last.
    pub wall: Span,
    /// Processor time of the thread that received.
    pub receiver: Span,
}

impl Took {
    /// The receiver's share of a processor, in percent.
    pub fn percent(&self) -> f64 {
        self.receiver.as_s() / self.wall.as_s() * 100.0
    }

    /// Messages a second that were sent.
    pub fn sent_rate(&self) -> f64 {
        self.sent as f64 / self.wall.as_s()
    }

    /// Messages a second that arrived.
    pub fn received_rate(&self) -> f64 {
        self.received as f64 / self.wall.as_s()
    }

    /// The share that was lost.
    pub fn lost(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }
}

/// Keeps the calling thread on one processor: the first for who sends, the last for who receives.
pub(super) fn pin(first: bool) {
    let last = thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut set = CpuSet::new();
    // Where that is not allowed the system chooses, which costs only steadiness.
    if set.set(if first { 0 } else { last }).is_ok() {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

/// Sends by `send`, one call for each message, from one thread, and receives on `socket` in another, until the time is
/// over and nothing comes any more. `send` may keep messages back for a bundle: it is called with `None` now and then, at
/// least each `pulse`. `take` gets each datagram and says how many messages it held.
///
/// # Errors
/// What the system says to who sends, or to who receives.
pub(super) fn run(
    load: Load,
    pulse: Span,
    socket: &UdpSocket,
    mut send: impl FnMut(Instant, Option<u64>) -> io::Result<()> + Send,
    mut take: impl FnMut(&[u8]) -> u64 + Send,
) -> io::Result<Took> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
    let ends_at = socket.local_addr()?;
    let clock = Clock::start();
    thread::scope(|scope| {
        let receives = scope.spawn(|| {
            pin(false);
            let mut room = vec![0; 1 << 16];
            let mut received = 0;
            ready.wait();
            let before = thread_time();
            loop {
                match socket.recv(&mut room) {
                    Ok(1) => {
                        // What was on its way before the end comes before it, or never.
                        break Ok((received, thread_time() - before));
                    }
                    Ok(octets) => received += take(&room[..octets]),
                    Err(_) if over.load(Ordering::Relaxed) => break Ok((received, thread_time() - before)),
                    Err(e) if net_socket::is_timeout(&e) => {}
                    Err(e) => break Err(e),
                }
            }
        });
        pin(true);
        pace::no_slack();
        ready.wait();
        let begun = clock.now();
        let sent = pour(load, pulse, &clock, &mut send);
        let wall = clock.now().since(begun);
        over.store(true, Ordering::Relaxed);
        thread::sleep(QUIET);
        let sent = sent.and_then(|sent| finish(ends_at).map(|()| sent));
        let (received, receiver) = receives.join().expect("it does not panic")?;
        Ok(Took { sent: sent?, received, wall, receiver })
    })
}

/// Sends as much as is due, until the time is over; how many.
fn pour(
    load: Load,
    pulse: Span,
    clock: &Clock,
    send: &mut impl FnMut(Instant, Option<u64>) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sent = 0;
    let begun = clock.now();
    loop {
        let now = clock.now();
        let passed = now.since(begun);
        if passed >= load.time {
            // What is kept back leaves now.
            send(now + LATER, None)?;
            return Ok(sent);
        }
        let due = if load.rate.is_finite() { (passed.as_s() * load.rate) as u64 + 1 } else { sent + ROW };
        // In rows, so that who cannot keep up still sees the end.
        let row = due.saturating_sub(sent).min(ROW);
        (sent..sent + row).try_for_each(|number| send(now, Some(number)))?;
        sent += row;
        send(now, None)?;
        if sent >= due && load.rate.is_finite() {
            let next = begun + Span::from_seconds(sent as f64 / load.rate);
            thread::sleep(next.min(now + pulse).since(clock.now()).into());
        }
    }
}

/// Tells the receiver that nothing comes any more.
fn finish(to: SocketAddr) -> io::Result<()> {
    let to = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, to.port()));
    UdpSocket::bind("127.0.0.1:0")?.send_to(&END, to).map(|_| ())
}

/// A timed loop on each processor that runs only when nothing else does: what it does less is what others took, whoever
/// they are, the kernel included.
pub(super) struct Loops {
    over: Arc<AtomicBool>,
    turns: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<()>>,
    clock: Clock,
    /// Turns a second of all loops while nothing else runs.
    alone: f64,
    /// Whether others took much of the processors then: nothing can be told of what is left.
    crowded: bool,
}

/// Of the time of all processors the loops must have had so much before the traffic.
const FREE: f64 = 0.9;

impl Loops {
    /// Starts them, and looks for `time` how fast they turn.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(time: Span) -> io::Result<Loops> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let over = Arc::new(AtomicBool::new(false));
        let turns: Arc<[AtomicU64]> = (0..processors).map(|_| AtomicU64::new(0)).collect();
        // What a loop uses, in nanoseconds.
        let used: Arc<[AtomicU64]> = (0..processors).map(|_| AtomicU64::new(0)).collect();
        let one = |at: usize| {
            let (over, turns, used) = (over.clone(), turns.clone(), used.clone());
            thread::Builder::new().name("loop".into()).spawn(move || {
                let mut set = CpuSet::new();
                if set.set(at).is_ok() {
                    let _ = sched_setaffinity(Pid::from_raw(0), &set);
                }
                // Where it may not it would disturb what it is to measure.
                if pace::when_idle().is_err() {
                    return;
                }
                let mut x = 1u64;
                while !over.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        x = std::hint::black_box(x.wrapping_mul(3));
                    }
                    turns[at].fetch_add(1, Ordering::Relaxed);
                    used[at].store(thread_time().as_ns(), Ordering::Relaxed);
                }
            })
        };
        let threads = (0..processors).map(one).collect::<io::Result<Vec<_>>>()?;
        let mut loops = Loops { over, turns, threads, clock: Clock::start(), alone: 0.0, crowded: false };
        thread::sleep(Duration::from_millis(5));
        let all = || used.iter().map(|used| used.load(Ordering::Relaxed)).sum::<u64>();
        let (before, had) = (loops.mark(), all());
        thread::sleep(time.into());
        loops.alone = loops.rate(before);
        let passed = loops.clock.now().since(before.0).as_ns() * processors as u64;
        loops.crowded = ((all() - had) as f64) < passed as f64 * FREE;
        Ok(loops)
    }

    /// A moment, and the turns until then.
    pub fn mark(&self) -> (Instant, u64) {
        (self.clock.now(), self.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).sum())
    }

    fn rate(&self, (from, before): (Instant, u64)) -> f64 {
        let (now, turns) = self.mark();
        (turns - before) as f64 / now.since(from).as_s()
    }

    /// What was taken from them since, in percent of one processor; none if others already took much before.
    pub fn taken(&self, since: (Instant, u64)) -> Option<f64> {
        (!self.crowded)
            .then(|| (1.0 - self.rate(since) / self.alone.max(1.0)) * self.turns.len() as f64 * 100.0)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_comes_and_costs_something() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(socket.local_addr().unwrap()).unwrap();
        let load = Load { rate: 2_000.0, time: Span::from_ms(50) };
        let send = |_, number: Option<u64>| number.map_or(Ok(()), |_| from.send(&[7; 100]).map(|_| ()));
        let took = run(load, Span::from_ms(5), &socket, send, |bytes| u64::from(bytes == [7; 100])).unwrap();
        assert!(took.sent > 1 && took.sent <= 101, "{took:?}");
        assert_eq!(took.received, took.sent, "{took:?}");
        assert!(took.percent() > 0.0 && took.wall >= Span::from_ms(50), "{took:?}");
    }

    #[test]
    fn loops_turn_and_end() {
        let loops = Loops::start(Span::from_ms(10)).unwrap();
        let mark = loops.mark();
        thread::sleep(Duration::from_millis(10));
        // On a crowded machine they say nothing.
        assert!(
            loops
                .taken(mark)
                .is_none_or(|taken| taken.is_finite() && taken <= 100.0 * loops.turns.len() as f64)
        );
        assert!(loops.mark().1 > 0 || loops.crowded);
    }
}
