//! Measures what sending and receiving a packet costs this machine, for the `host` line of a simulated network.
//!
//! | module | contents |
//! | --- | --- |
//! | [`rates`] | processor share by packet size and rate, and the load above which bundling pays |
//! | [`multicast`] | processor share of joined and of filtered multicast groups |
//! | `traffic` | traffic at a rate over the loopback, and idle loops |
//!
//! One thread sends a burst of UDP datagrams to itself over the loopback and receives it again, one message a system
//! call, and reads its own processor time around both. So nothing waits, wakes up or is lost, and the result is the
//! pure processing cost. Sizes are measured in alternating order, so that a temporary slowdown affects all alike. The
//! result is a line `packet + byte · size` through the medians over the rounds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde::Serialize;
use trunkline_io::socket::{self, Options};
use trunkline_io::usage::thread_cpu_time;
use trunkline_io::{Clock, SocketError};
use trunkline_units::{Size, Span};

pub mod multicast;
pub mod rates;
mod traffic;

use traffic::RECEIVE_BUFFER;

/// Message sizes in bytes: small ones determine the cost of a packet, large ones that of a byte. Each is one packet
/// on the loopback, whose MTU is 65,536.
pub const SIZES: [usize; 7] = [64, 512, 1400, 4096, 8192, 16_384, 32_768];

/// Costs that the study does not include.
pub const EXCLUDED: [&str; 2] = [
    "a card, its driver, DMA and interrupts; waking a receiver that sleeps",
    "on the receiver's account, the kernel's way in up to the socket: the loopback does it on the sender's",
];

/// Minimum number of rounds, whatever the budget: fewer give no useful median.
const MIN_ROUNDS: usize = 3;
/// Messages of one size in a round.
const MESSAGES_PER_ROUND: usize = 256;
/// Maximum messages and bytes of a burst: what stays in a processor's cache.
const MAX_BURST: usize = 64;
const MAX_BURST_BYTES: usize = 256 * 1024;
/// Generous estimate of what the kernel charges for a datagram in addition to its bytes.
const SKB_OVERHEAD: usize = 1024;
/// A datagram arrives over the loopback at once, or never.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum cost: the language counts picoseconds.
const MIN_COST_NS: f64 = 0.001;

/// Costs of sending and receiving. All are processor time of a thread, user and system, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostStudy {
    /// Processors this process may use.
    pub cpus: usize,
    /// Rounds; each measured every size once.
    pub rounds: usize,
    /// Messages sent and received in them.
    pub messages: u64,
    /// One point for each size.
    pub points: Vec<Point>,
    /// Line through the costs of sending.
    pub send: Line,
    /// Line through the costs of receiving.
    pub receive: Line,
    /// Cost of a packet: the mean of sending and receiving, as the language has one cost for both.
    pub packet_ns: f64,
    /// Cost of a byte, likewise.
    pub byte_ns: f64,
}

/// Messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes of a message.
    pub size_bytes: usize,
    /// Cost to send one.
    pub send: Cost,
    /// Cost to receive one.
    pub receive: Cost,
}

/// Cost of a message.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Median over the rounds.
    pub median_ns: f64,
    /// Half of the distance between the quartiles.
    pub spread_ns: f64,
}

/// `packet + byte · size`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Cost of a packet, independent of its size.
    pub packet_ns: f64,
    /// Cost of a byte.
    pub byte_ns: f64,
    /// Maximum relative error of the line at a measured size.
    pub residual: f64,
}

/// Error of a study.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The loopback refused a message.
    #[error("a message of {size} B over the loopback: {cause}")]
    Message {
        /// Length of the message.
        size: usize,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// A message was lost.
    #[error("a message of {size} B was lost on the loopback: this machine is too busy for a measurement")]
    Lost {
        /// Length of the message.
        size: usize,
    },
}

impl Line {
    /// Fits a line through `(size, cost)` by the Theil–Sen estimator: the median of all slopes, then the median of
    /// the residuals. One outlier in seven changes it little, unlike least squares.
    pub fn through(points: &[(f64, f64)]) -> Line {
        let slopes = points.iter().enumerate().flat_map(|(index, (x, y))| {
            points[index + 1..].iter().filter(move |(x2, _)| x2 != x).map(move |(x2, y2)| (y2 - y) / (x2 - x))
        });
        let byte_ns = median(slopes.collect()).max(MIN_COST_NS);
        let packet_ns = median(points.iter().map(|(x, y)| y - byte_ns * x).collect()).max(MIN_COST_NS);
        let mut line = Line { packet_ns, byte_ns, residual: 0.0 };
        let relative_error = |(x, y): &(f64, f64)| (line.cost_ns(*x) - y).abs() / y.max(MIN_COST_NS);
        line.residual = points.iter().map(relative_error).fold(0.0, f64::max);
        line
    }

    /// Returns the cost of a message of `size` bytes.
    pub fn cost_ns(&self, size: f64) -> f64 {
        self.packet_ns + self.byte_ns * size
    }
}

impl HostStudy {
    /// Returns the declaration to paste into `network { … }`.
    pub fn host_line(&self, name: &str) -> String {
        format!(
            "host {name} (cpu_packet = {} us, cpu_byte = {} ns, cpus = {});",
            three_digits(self.packet_ns / 1e3),
            three_digits(self.byte_ns),
            self.cpus
        )
    }
}

/// Measures for about `budget`; `progress` receives the elapsed time.
///
/// # Errors
/// Returns [`StudyError`] if the loopback fails.
pub fn host(budget: Span, mut progress: impl FnMut(Span)) -> Result<HostStudy, StudyError> {
    let pair = Pair::open()?;
    let clock = Clock::start();
    let mut samples: Vec<[Vec<f64>; 2]> = vec![Default::default(); SIZES.len()];
    let mut rounds = 0;
    // The first round warms caches and is discarded.
    pair.measure_round(false, |_, _| ())?;
    while rounds < MIN_ROUNDS || clock.now().since(Default::default()) < budget {
        pair.measure_round(rounds % 2 == 1, |index, costs| {
            samples[index].iter_mut().zip(costs).for_each(|(samples, cost)| samples.push(cost));
        })?;
        rounds += 1;
        progress(clock.now().since(Default::default()));
    }
    Ok(assemble(rounds, pair.messages_per_round() * rounds as u64, samples))
}

/// Computes the results from the samples by size, of sending and of receiving.
fn assemble(rounds: usize, messages: u64, samples: Vec<[Vec<f64>; 2]>) -> HostStudy {
    let point = |(size_bytes, [send, receive]): (usize, [Vec<f64>; 2])| Point {
        size_bytes,
        send: Cost::of(send),
        receive: Cost::of(receive),
    };
    let points: Vec<Point> = SIZES.into_iter().zip(samples).map(point).collect();
    let line = |cost: fn(&Point) -> Cost| {
        let medians: Vec<_> = points.iter().map(|p| (p.size_bytes as f64, cost(p).median_ns)).collect();
        Line::through(&medians)
    };
    let (send, receive) = (line(|p| p.send), line(|p| p.receive));
    HostStudy {
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        rounds,
        messages,
        packet_ns: (send.packet_ns + receive.packet_ns) / 2.0,
        byte_ns: (send.byte_ns + receive.byte_ns) / 2.0,
        points,
        send,
        receive,
    }
}

impl Cost {
    fn of(mut samples: Vec<f64>) -> Cost {
        samples.sort_by(f64::total_cmp);
        let quartile = |n: usize| samples[(samples.len() - 1) * n / 4];
        Cost { median_ns: quartile(2), spread_ns: (quartile(3) - quartile(1)) / 2.0 }
    }
}

fn message_error(size: usize) -> impl Fn(io::Error) -> StudyError {
    move |cause| StudyError::Message { size, cause }
}

/// Opens a sending socket, connected to a receiving one.
fn sockets() -> Result<(UdpSocket, UdpSocket), StudyError> {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let large_buffer =
        Options { receive_buffer: Some(Size::from_bytes(RECEIVE_BUFFER as u64)), ..Options::default() };
    let (from, to) = (socket::udp(local, &Options::default())?, socket::udp(local, &large_buffer)?);
    from.connect(to.local_addr().map_err(message_error(0))?).map_err(message_error(0))?;
    Ok((from, to))
}

/// Two connected sockets of one thread.
struct Pair {
    from: UdpSocket,
    to: UdpSocket,
    /// Bytes that fit into the receiver's buffer.
    buffer_bytes: usize,
    /// Cost of reading the processor time.
    clock_cost_ns: f64,
}

impl Pair {
    fn open() -> Result<Pair, StudyError> {
        let (from, to) = sockets()?;
        to.connect(from.local_addr().map_err(message_error(0))?).map_err(message_error(0))?;
        to.set_read_timeout(Some(RECEIVE_TIMEOUT)).map_err(message_error(0))?;
        let buffer_bytes = socket::granted_buffers(&to).1.as_bytes() as usize / 2;
        let clock_cost = (0..101).map(|_| {
            let before = thread_cpu_time();
            (thread_cpu_time() - before).as_ns() as f64
        });
        Ok(Pair { from, to, buffer_bytes, clock_cost_ns: median(clock_cost.collect()) })
    }

    /// Returns the number of messages of `size` in a burst, at least one.
    fn burst_length(&self, size: usize) -> usize {
        (self.buffer_bytes / (size + SKB_OVERHEAD)).min(MAX_BURST_BYTES / size).clamp(1, MAX_BURST)
    }

    /// Returns the number of bursts of messages of `size` in a round.
    fn bursts_per_round(&self, size: usize) -> usize {
        MESSAGES_PER_ROUND.div_ceil(self.burst_length(size))
    }

    fn messages_per_round(&self) -> u64 {
        SIZES.iter().map(|size| (self.burst_length(*size) * self.bursts_per_round(*size)) as u64).sum()
    }

    /// Measures every size once; `record` receives its index and the costs of sending and receiving a message in
    /// nanoseconds.
    fn measure_round(
        &self,
        is_descending: bool,
        mut record: impl FnMut(usize, [f64; 2]),
    ) -> Result<(), StudyError> {
        for step in 0..SIZES.len() {
            let index = if is_descending { SIZES.len() - 1 - step } else { step };
            record(index, self.measure_size(SIZES[index])?);
        }
        Ok(())
    }

    /// Returns the costs of sending and receiving a message of `size` in nanoseconds.
    fn measure_size(&self, size: usize) -> Result<[f64; 2], StudyError> {
        let mut buffer = vec![0x55; size];
        let (burst_length, bursts) = (self.burst_length(size), self.bursts_per_round(size));
        let mut cpu_times = [Span::ZERO; 2];
        for _ in 0..bursts {
            let start = thread_cpu_time();
            for _ in 0..burst_length {
                self.from.send(&buffer).map_err(message_error(size))?;
            }
            let after_sending = thread_cpu_time();
            for _ in 0..burst_length {
                self.receive(&mut buffer)?;
            }
            let after_receiving = thread_cpu_time();
            cpu_times[0] += after_sending - start;
            cpu_times[1] += after_receiving - after_sending;
        }
        let (clock_cost, messages) = (self.clock_cost_ns * bursts as f64, (burst_length * bursts) as f64);
        let per_message = |time: Span| (time.as_ns() as f64 - clock_cost).max(0.0) / messages;
        Ok(cpu_times.map(per_message))
    }

    fn receive(&self, buffer: &mut [u8]) -> Result<(), StudyError> {
        let size = buffer.len();
        let received = loop {
            match self.to.recv(buffer) {
                // Interrupted by a signal.
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        match received {
            Ok(length) if length == size => Ok(()),
            Ok(_) => Err(StudyError::Lost { size }),
            Err(e) if socket::is_timeout(&e) => Err(StudyError::Lost { size }),
            Err(cause) => Err(StudyError::Message { size, cause }),
        }
    }
}

/// Returns the median, or 0 for an empty list.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Formats with three significant digits, down to thousandths.
fn three_digits(value: f64) -> String {
    let decimals = (2 - value.max(MIN_COST_NS).log10().floor() as i32).clamp(0, 3) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_experiment::plan::{HostCosts, NodeKind};
    use trunkline_experiment::{Source, parse, render};

    fn points(cost: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        SIZES.iter().map(|size| (*size as f64, cost(*size as f64))).collect()
    }

    #[test]
    fn a_line_is_robust_against_one_outlier() {
        let exact = points(|size| 1800.0 + 0.11 * size);
        for outlier in 0..=SIZES.len() {
            let mut points = exact.clone();
            // The last iteration leaves all points unchanged.
            if let Some((_, cost)) = points.get_mut(outlier) {
                *cost *= 3.0;
            }
            let line = Line::through(&points);
            assert!((line.packet_ns - 1800.0).abs() < 40.0, "{outlier}: {line:?}");
            assert!((line.byte_ns - 0.11).abs() < 0.03, "{outlier}: {line:?}");
            assert_eq!(line.residual > 0.5, outlier < SIZES.len(), "{outlier}: {line:?}");
        }
        let line = Line::through(&exact);
        assert!((line.packet_ns - 1800.0).abs() < 1e-6 && (line.byte_ns - 0.11).abs() < 1e-9, "{line:?}");
        assert!(line.residual < 1e-9);
    }

    #[test]
    fn a_cost_is_always_positive() {
        for line in [
            Line::through(&points(|size| 10_000.0 - 0.2 * size)),
            Line::through(&[]),
            Line::through(&[(64.0, 0.0)]),
        ] {
            assert!(line.packet_ns > 0.0 && line.byte_ns > 0.0 && line.residual.is_finite(), "{line:?}");
        }
    }

    #[test]
    fn spread_is_half_the_interquartile_range() {
        let cost = Cost::of(vec![9.0, 1.0, 2.0, 3.0, 1000.0]);
        assert_eq!(cost, Cost { median_ns: 3.0, spread_ns: 3.5 });
    }

    fn costs(line: &str) -> HostCosts {
        let text = format!(
            "experiment {{ network {{ {line} host b; link this - b (rate = 1 Gb/s); }}
             connection {{ xmt = this; rcv = b; protocol = udp; test = full; }} }}"
        );
        let source = Source { name: "study.ns", text: &text, folder: None };
        let parsed = parse(&source);
        let plan = parsed.plan.unwrap_or_else(|| panic!("{}", render(&source, &parsed.diagnostics, false)));
        let mut nodes = plan.network.expect("a network").nodes;
        match nodes.swap_remove(0).kind {
            NodeKind::Host(costs) => costs,
            other => panic!("{other:?} is no host"),
        }
    }

    #[test]
    fn the_host_line_contains_the_measured_costs() {
        let study = |packet_ns, byte_ns| HostStudy {
            cpus: 2,
            rounds: 0,
            messages: 0,
            points: Vec::new(),
            send: Line { packet_ns, byte_ns, residual: 0.0 },
            receive: Line { packet_ns, byte_ns, residual: 0.0 },
            packet_ns,
            byte_ns,
        };
        assert_eq!(
            study(1834.0, 0.1125).host_line("this"),
            "host this (cpu_packet = 1.83 us, cpu_byte = 0.113 ns, cpus = 2);"
        );
        for (packet_ns, byte_ns) in [(1834.0, 0.1125), (123_456.0, 20.0), (7.0, 0.001), (99.96, 99.96)] {
            let costs = costs(&study(packet_ns, byte_ns).host_line("this"));
            // Half of the last printed digit, which is at least a thousandth.
            let is_near = |span: Span, ns: f64, thousandth: f64| {
                (span.as_ps() as f64 / 1e3 - ns).abs() <= (ns * 0.005).max(thousandth / 2.0) + 1e-9
            };
            assert!(is_near(costs.cpu_packet, packet_ns, 1.0), "{packet_ns}: {costs:?}");
            assert!(is_near(costs.cpu_byte, byte_ns, 0.001), "{byte_ns}: {costs:?}");
            assert_eq!(costs.cpus, 2);
        }
    }

    #[test]
    fn this_machine_is_measured() {
        let mut reported = Vec::new();
        let study =
            host(Span::from_ms(20), |elapsed| reported.push(elapsed)).expect("the loopback carries messages");
        assert!(study.rounds >= MIN_ROUNDS && reported.len() == study.rounds);
        assert!(reported.is_sorted());
        assert_eq!(study.points.len(), SIZES.len());
        let lines = [study.send, study.receive];
        assert!(lines.iter().all(|l| l.residual.is_finite() && l.residual >= 0.0), "{lines:?}");
        let of_lines = lines.iter().flat_map(|l| [l.packet_ns, l.byte_ns]);
        let of_points = study.points.iter().flat_map(|p| [p.send.median_ns, p.receive.median_ns]);
        for cost_ns in of_lines.chain(of_points) {
            assert!(cost_ns.is_finite() && cost_ns > 0.0, "{study:#?}");
        }
        assert!(study.messages >= (study.rounds * SIZES.len() * MESSAGES_PER_ROUND) as u64);
        let costs = costs(&study.host_line("this"));
        assert!(!costs.cpu_packet.is_zero() && !costs.cpu_byte.is_zero() && costs.cpus >= 1, "{costs:?}");
    }
}
