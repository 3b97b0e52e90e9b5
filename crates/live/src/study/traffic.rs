//! Generates traffic over the loopback and measures the processor time that it takes.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trunkline_io::usage::thread_cpu_time;
use trunkline_io::{Clock, pace, socket as net_socket};
use trunkline_units::{Instant, Span};

/// Requested size of the receiver's buffer in bytes.
pub(super) const RECEIVE_BUFFER: usize = 1 << 20;
/// Wait after the last message.
const SETTLE_TIME: Duration = Duration::from_millis(30);
/// Marks the end of the traffic: shorter than any message.
const END_MARKER: [u8; 1] = [0];
/// Flushes any bundle.
const FLUSH_HORIZON: Span = Span::from_s(1);
/// Messages between two clock reads at full speed.
const MAX_BURST: u64 = 32;

/// Offered load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Messages a second; infinite: full speed.
    pub rate: f64,
    pub time: Span,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadResult {
    pub sent: u64,
    pub received: u64,
    /// Elapsed time from the first to the last message.
    pub wall: Span,
    /// Processor time of the thread that received.
    pub receiver: Span,
}

impl LoadResult {
    /// Returns the processor share of the receiver in percent.
    pub fn percent(&self) -> f64 {
        self.receiver.as_s() / self.wall.as_s() * 100.0
    }

    /// Returns the messages sent a second.
    pub fn sent_rate(&self) -> f64 {
        self.sent as f64 / self.wall.as_s()
    }

    /// Returns the messages received a second.
    pub fn received_rate(&self) -> f64 {
        self.received as f64 / self.wall.as_s()
    }

    /// Returns the share of lost messages.
    pub fn lost(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }
}

/// Pins the calling thread to one processor: senders to the first, receivers to the last.
pub(super) fn pin(first: bool) {
    let last = thread::available_parallelism().map_or(1, usize::from) - 1;
    // Without the permission the system selects the processor, and results vary more.
    pace::pin_to_processor(if first { 0 } else { last });
}

/// Sends with `send`, one call for each message, from one thread and receives on `socket` in another, for the
/// duration of the load. `send` may delay messages to bundle them: it is called with `None` at least every
/// `flush_interval`. `count` receives each datagram and returns the number of its messages.
///
/// # Errors
/// Returns the first error of the sender or the receiver.
pub(super) fn run(
    load: Load,
    flush_interval: Span,
    socket: &UdpSocket,
    mut send: impl FnMut(Instant, Option<u64>) -> io::Result<()> + Send,
    mut count: impl FnMut(&[u8]) -> u64 + Send,
) -> io::Result<LoadResult> {
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (ready, is_over) = (Barrier::new(2), AtomicBool::new(false));
    let address = socket.local_addr()?;
    let clock = Clock::start();
    thread::scope(|scope| {
        let receiver_thread = scope.spawn(|| {
            pin(false);
            let mut buffer = vec![0; 1 << 16];
            let mut received = 0;
            ready.wait();
            let before = thread_cpu_time();
            loop {
                match socket.recv(&mut buffer) {
                    Ok(1) => {
                        // Everything sent before the marker arrives before it, or never.
                        break Ok((received, thread_cpu_time() - before));
                    }
                    Ok(octets) => received += count(&buffer[..octets]),
                    Err(_) if is_over.load(Ordering::Relaxed) => {
                        break Ok((received, thread_cpu_time() - before));
                    }
                    Err(e) if net_socket::is_timeout(&e) => {}
                    Err(e) => break Err(e),
                }
            }
        });
        pin(true);
        pace::minimize_timer_slack();
        ready.wait();
        let started = clock.now();
        let sent = send_load(load, flush_interval, &clock, &mut send);
        let wall = clock.now().since(started);
        is_over.store(true, Ordering::Relaxed);
        thread::sleep(SETTLE_TIME);
        let sent = sent.and_then(|sent| send_end_marker(address).map(|()| sent));
        let (received, receiver) = receiver_thread.join().expect("it does not panic")?;
        Ok(LoadResult { sent: sent?, received, wall, receiver })
    })
}

/// Sends what is due until the time is over; returns the number of messages.
fn send_load(
    load: Load,
    flush_interval: Span,
    clock: &Clock,
    send: &mut impl FnMut(Instant, Option<u64>) -> io::Result<()>,
) -> io::Result<u64> {
    let mut sent = 0;
    let started = clock.now();
    loop {
        let now = clock.now();
        let elapsed = now.since(started);
        if elapsed >= load.time {
            // Flush delayed messages.
            send(now + FLUSH_HORIZON, None)?;
            return Ok(sent);
        }
        let due =
            if load.rate.is_finite() { (elapsed.as_s() * load.rate) as u64 + 1 } else { sent + MAX_BURST };
        // Limited, so that a sender that cannot reach the rate still ends in time.
        let burst = due.saturating_sub(sent).min(MAX_BURST);
        (sent..sent + burst).try_for_each(|number| send(now, Some(number)))?;
        sent += burst;
        send(now, None)?;
        if sent >= due && load.rate.is_finite() {
            let next = started + Span::from_seconds(sent as f64 / load.rate);
            thread::sleep(next.min(now + flush_interval).since(clock.now()).into());
        }
    }
}

fn send_end_marker(to: SocketAddr) -> io::Result<()> {
    let to = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, to.port()));
    UdpSocket::bind("127.0.0.1:0")?.send_to(&END_MARKER, to).map(|_| ())
}

/// Low-priority loops, one on each processor, that measure how much processor time other work takes, including the
/// kernel.
pub(super) struct IdleLoops {
    is_over: Arc<AtomicBool>,
    iterations: Arc<[AtomicU64]>,
    threads: Vec<JoinHandle<()>>,
    clock: Clock,
    /// Iterations a second of all loops while nothing else runs.
    baseline_rate: f64,
    /// Whether the machine was busy during calibration; then the result is unknown.
    was_busy: bool,
}

/// Minimum share of all processors that the loops need during calibration.
const MIN_FREE_SHARE: f64 = 0.9;

impl IdleLoops {
    /// Starts the loops and calibrates them for `time`.
    ///
    /// # Errors
    /// Returns an error if a thread cannot start.
    pub fn start(time: Span) -> io::Result<IdleLoops> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let is_over = Arc::new(AtomicBool::new(false));
        let iterations: Arc<[AtomicU64]> = (0..processors).map(|_| AtomicU64::new(0)).collect();
        let cpu_times_ns: Arc<[AtomicU64]> = (0..processors).map(|_| AtomicU64::new(0)).collect();
        let spawn_loop = |processor: usize| {
            let (is_over, iterations, cpu_times_ns) =
                (is_over.clone(), iterations.clone(), cpu_times_ns.clone());
            thread::Builder::new().name("loop".into()).spawn(move || {
                pace::pin_to_processor(processor);
                // At normal priority it would disturb the measurement.
                if pace::set_idle_priority().is_err() {
                    return;
                }
                let mut x = 1u64;
                while !is_over.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        x = std::hint::black_box(x.wrapping_mul(3));
                    }
                    iterations[processor].fetch_add(1, Ordering::Relaxed);
                    cpu_times_ns[processor].store(thread_cpu_time().as_ns(), Ordering::Relaxed);
                }
            })
        };
        let threads = (0..processors).map(spawn_loop).collect::<io::Result<Vec<_>>>()?;
        let mut idle_loops = IdleLoops {
            is_over,
            iterations,
            threads,
            clock: Clock::start(),
            baseline_rate: 0.0,
            was_busy: false,
        };
        thread::sleep(Duration::from_millis(5));
        let total_cpu_time_ns = || cpu_times_ns.iter().map(|time| time.load(Ordering::Relaxed)).sum::<u64>();
        let (snapshot, cpu_time_before_ns) = (idle_loops.snapshot(), total_cpu_time_ns());
        thread::sleep(time.into());
        idle_loops.baseline_rate = idle_loops.rate_since(snapshot);
        let available_ns = idle_loops.clock.now().since(snapshot.0).as_ns() * processors as u64;
        let used_ns = total_cpu_time_ns() - cpu_time_before_ns;
        idle_loops.was_busy = (used_ns as f64) < available_ns as f64 * MIN_FREE_SHARE;
        Ok(idle_loops)
    }

    /// Returns the time and the iterations so far.
    pub fn snapshot(&self) -> (Instant, u64) {
        (self.clock.now(), self.iterations.iter().map(|iterations| iterations.load(Ordering::Relaxed)).sum())
    }

    /// Returns the iterations a second since a snapshot.
    fn rate_since(&self, (then, iterations_then): (Instant, u64)) -> f64 {
        let (now, iterations) = self.snapshot();
        (iterations - iterations_then) as f64 / now.since(then).as_s()
    }

    /// Returns the processor time that other work has taken since a snapshot, in percent of one processor; `None` if the
    /// machine was busy before.
    pub fn taken_percent(&self, snapshot: (Instant, u64)) -> Option<f64> {
        let processors = self.iterations.len() as f64;
        let free_share = || self.rate_since(snapshot) / self.baseline_rate.max(1.0);
        (!self.was_busy).then(|| (1.0 - free_share()) * processors * 100.0)
    }
}

impl Drop for IdleLoops {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_messages_arrive_and_cost_processor_time() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(socket.local_addr().unwrap()).unwrap();
        let load = Load { rate: 2_000.0, time: Span::from_ms(50) };
        let send = |_, number: Option<u64>| number.map_or(Ok(()), |_| from.send(&[7; 100]).map(|_| ()));
        let result =
            run(load, Span::from_ms(5), &socket, send, |bytes| u64::from(bytes == [7; 100])).unwrap();
        assert!(result.sent > 1 && result.sent <= 101, "{result:?}");
        assert_eq!(result.received, result.sent, "{result:?}");
        assert!(result.percent() > 0.0 && result.wall >= Span::from_ms(50), "{result:?}");
    }

    #[test]
    fn idle_loops_run_and_stop() {
        let idle_loops = IdleLoops::start(Span::from_ms(10)).unwrap();
        let snapshot = idle_loops.snapshot();
        thread::sleep(Duration::from_millis(10));
        // On a busy machine they return `None`.
        assert!(idle_loops.taken_percent(snapshot).is_none_or(|taken_percent| taken_percent.is_finite()
            && taken_percent <= 100.0 * idle_loops.iterations.len() as f64));
        assert!(idle_loops.snapshot().1 > 0 || idle_loops.was_busy);
    }
}
