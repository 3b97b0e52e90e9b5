//! A site with all endpoints: a sender to groups, level 1, the central converter and a host.
//!
//! Level 1 and the central converter are at one end of the link and share a processor with the kernel thread of their
//! interface; the sender and the host are at the other end.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::fs;
use std::io::{self, PipeReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as Watch};

use trunkline_bundle::central::{self, Central};
use trunkline_bundle::host::MessageInfo;
use trunkline_bundle::level1;
use trunkline_bundle::socket::{
    CentralOptions, CentralSocket, HostOptions, HostSocket, Level1Options, Level1Socket, SocketDriver,
};
use trunkline_bundle::wire::format2::{BundleBuilder, DEFAULT_DATAGRAM, Header, Message, NO_LIMIT, Role};
use trunkline_bundle::{Format, Settings};
use trunkline_io::{Clock, socket};
use trunkline_units::{Instant, Span};

use crate::contest::pin;
use crate::link::{ADDRESSES, TestLink};
use crate::messages::{BODY, Samples, body, paced, with_large_send_buffer};

/// The processor of sender and host, and that of level 1 and central converter.
const OUTER_CPU: usize = 0;
const INNER_CPU: usize = 1;
/// The number of groups. Each message uses the first address of a group, or the second one with priority.
const GROUPS: u16 = 64;
const BASE: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 0);
/// The port of the groups, and the addresses of the endpoints.
const GROUP_PORT: u16 = 3456;
const LEVEL1: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3457);
const CENTRAL_FOR_LEVEL1: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3450);
const CENTRAL_FOR_HOSTS: SocketAddrV4 = SocketAddrV4::new(ADDRESSES[INNER_CPU], 3458);
const HOST: SocketAddrV4 = SocketAddrV4::new(ADDRESSES[OUTER_CPU], 3459);
/// Time for messages in flight.
const DRAIN_TIME: Duration = Duration::from_millis(100);
/// The longest time until the host has joined its groups.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The traffic.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Messages per second.
    pub rate: u32,
    pub time: Span,
    /// One of this many messages has priority; `None` for no priority messages.
    pub priority: Option<u64>,
    /// One of this many messages is sampled for its delay.
    pub sample_every: u64,
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    pub sent: u64,
    /// The time taken: longer than requested if the sender was too slow.
    pub time: Span,
    pub samples: Samples,
    /// Processor time of level 1, of the central converter, of the kernel thread of their interface, of the host, and
    /// of the kernel thread of its interface.
    pub cpu_times: [Span; 5],
    pub level1: level1::Level1Statistics,
    pub central: central::CentralStatistics,
}

impl Outcome {
    /// Returns the messages sent per second.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.time.as_s()
    }

    /// Returns the messages that the host missed.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.samples.messages)
    }

    /// Returns the messages that level 1 missed.
    pub fn not_received(&self) -> u64 {
        self.sent.saturating_sub(self.level1.received)
    }

    /// Returns the messages that level 1 and the central converter dropped and counted.
    pub fn dropped(&self) -> u64 {
        self.level1.drops.total() + self.central.drops_to_hosts.total()
    }
}

/// Returns the settings of a site in which odd addresses carry priority messages.
pub fn settings(format: Format, timing: trunkline_bundle::bundler::Timing) -> Settings {
    Settings { timing, pairs: true, max_bundle: 8_192, format, ..Settings::default() }
}

/// Runs a site with some traffic.
///
/// # Panics
/// Panics if the host cannot join its groups, or on a socket error.
pub fn run_traffic(link: &TestLink, settings: Settings, traffic: Traffic) -> Outcome {
    let clock = Clock::start();
    let tasks: [AtomicU32; 3] = Default::default();
    let joined = AtomicUsize::new(0);
    let (stop, stop_writer) = io::pipe().expect("a pipe");
    thread::scope(|scope| {
        let open = || stop.try_clone().expect("a pipe");
        let (for_level1, for_central, for_host) = (open(), open(), open());
        let central = link.spaces.spawn(scope, INNER_CPU, || {
            pin(INNER_CPU);
            let mut socket = CentralSocket::open(&central_options(settings), clock).expect("it opens");
            serve(&mut socket, &tasks[1], for_central, |socket| socket.turn(None)).expect("it serves");
            Central::statistics(socket.machine()).to_owned()
        });
        let level1 = link.spaces.spawn(scope, INNER_CPU, || {
            pin(INNER_CPU);
            let mut socket = Level1Socket::open(&level1_options(settings), clock).expect("it opens");
            serve(&mut socket, &tasks[0], for_level1, |socket| {
                let ready = socket.turn(None);
                joined.store(socket.machine().joined(), Ordering::Relaxed);
                ready
            })
            .expect("it serves");
            *socket.machine().statistics()
        });
        let host = link.spaces.spawn(scope, OUTER_CPU, || {
            pin(OUTER_CPU);
            let mut samples = Samples::new(clock, traffic.sample_every);
            let mut socket = HostSocket::open(&host_options(settings), clock).expect("it opens");
            (0..GROUPS).for_each(|group| {
                socket.join_range(address(group, false), address(group, true)).expect("there is room");
            });
            serve(&mut socket, &tasks[2], for_host, |socket| {
                socket.turn_with(None, |_: MessageInfo, body: &[u8]| samples.record(body))
            })
            .expect("it serves");
            samples
        });
        let since = Watch::now();
        while joined.load(Ordering::Relaxed) < usize::from(GROUPS) {
            assert!(since.elapsed() < JOIN_TIMEOUT, "level 1 did not join in time");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(DRAIN_TIME);
        let cpu_times = || {
            let [level1, central, host] = tasks.each_ref().map(|task| cpu_time(task.load(Ordering::Relaxed)));
            [level1, central, link.kernel_time(INNER_CPU), host, link.kernel_time(OUTER_CPU)]
        };
        let before = cpu_times();
        let sender = link.spaces.spawn(scope, OUTER_CPU, || send(settings.format, traffic, clock));
        let (sent, time) = sender.join().expect("who sends ends");
        thread::sleep(DRAIN_TIME);
        let after = cpu_times();
        drop(stop_writer);
        Outcome {
            sent,
            time,
            samples: host.join().expect("the host ends"),
            cpu_times: std::array::from_fn(|at| after[at] - before[at]),
            level1: level1.join().expect("level 1 ends"),
            central: central.join().expect("the central converter ends"),
        }
    })
}

/// Runs an endpoint until the other end of the pipe is closed.
fn serve<F: SocketDriver>(
    socket: &mut F,
    task: &AtomicU32,
    stop: PipeReader,
    mut turn: impl FnMut(&mut F) -> io::Result<trunkline_io::ports::Ready>,
) -> io::Result<()> {
    let stop = socket.watch(&stop)?;
    task.store(nix::unistd::gettid().as_raw() as u32, Ordering::Relaxed);
    while !turn(socket)?.watched(stop) {}
    Ok(())
}

/// Returns the processor time of a thread of this process, except for its current time slice.
fn cpu_time(task: u32) -> Span {
    let text = fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).expect("a thread of ours");
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Span::from_ns(ns.expect("the kernel reports the processor time"))
}

/// Returns the ordinary or the priority address of a group.
fn address(group: u16, priority: bool) -> u32 {
    u32::from(group) * 32 + u32::from(priority)
}

/// Sends to the groups in turn; returns the number of messages and the time taken.
fn send(format: Format, traffic: Traffic, clock: Clock) -> (u64, Span) {
    pin(OUTER_CPU);
    let start = clock.now();
    let socket = socket::multicast_sender(ADDRESSES[OUTER_CPU].into(), 1, &socket::Options::default());
    let socket = with_large_send_buffer(socket.expect("it sends"));
    let mut builder = BundleBuilder::new(DEFAULT_DATAGRAM);
    let mut datagram = vec![0; DEFAULT_DATAGRAM];
    let (mut count, mut sequences) = (0u64, [[0u32; 2]; GROUPS as usize]);
    let sent = paced(traffic.rate, traffic.time, clock, |message| {
        let Some(now) = message else { return };
        let group = (count % u64::from(GROUPS)) as u16;
        let priority = traffic.priority.is_some_and(|every| count.is_multiple_of(every));
        let sequence = &mut sequences[usize::from(group)][usize::from(priority)];
        (count, *sequence) = (count + 1, *sequence + 1);
        let length = match format {
            Format::Classic => {
                datagram[..2].copy_from_slice(&(address(group, priority) as u16).to_be_bytes());
                datagram[2..BODY + 2].copy_from_slice(&body(now, priority));
                BODY + 2
            }
            Format::Format2(_) => {
                write_datagram(&mut builder, &mut datagram, now, group, *sequence, priority)
            }
        };
        let to = SocketAddrV4::new(Ipv4Addr::from_bits(BASE.to_bits() + u32::from(group)), GROUP_PORT);
        // A message that cannot be sent counts as lost.
        let _ = socket.send_to(&datagram[..length], to);
    });
    (sent, clock.now().since(start))
}

/// Writes a message of another site's host, as it crosses the wide area.
fn write_datagram(
    builder: &mut BundleBuilder,
    datagram: &mut [u8],
    now: Instant,
    group: u16,
    sequence: u32,
    priority: bool,
) -> usize {
    builder.push(&Message {
        address: address(group, priority),
        source: 2 << 16 | 1,
        incarnation: 1,
        sequence,
        max_wait_10us: NO_LIMIT,
        priority,
        reliable: None,
        body: &body(now, priority),
    });
    let header =
        Header { role: Role::Level1, number: 1, receiver: group, incarnation: 1, session: 0, sent_before: 0 };
    builder.finish(&header, datagram)
}

fn level1_options(settings: Settings) -> Level1Options {
    Level1Options {
        settings,
        number: 1,
        central: CENTRAL_FOR_LEVEL1,
        listen: LEVEL1,
        interface: ADDRESSES[INNER_CPU],
        base: BASE,
        port: GROUP_PORT,
        ttl: 1,
    }
}

fn central_options(settings: Settings) -> CentralOptions {
    let mut options = CentralOptions::on_loopback(settings, CENTRAL_FOR_LEVEL1, CENTRAL_FOR_HOSTS);
    options.level1 = vec![LEVEL1];
    options.hosts = settings.format2().map_or(vec![HOST], |_| Vec::new());
    options
}

fn host_options(settings: Settings) -> HostOptions {
    let mut options = HostOptions::on_loopback(settings, 1, CENTRAL_FOR_HOSTS);
    (options.listen, options.interface) = (HOST, ADDRESSES[OUTER_CPU]);
    options
}
