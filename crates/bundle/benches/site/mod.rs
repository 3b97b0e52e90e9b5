//! A site in which all converters work: one that sends to groups, level 1 and the central converter, and a host.
//!
//! Level 1 and the central converter are at one end of the line and on one processor, with the kernel's thread of their
//! interface; who sends and the host are at the other.

#![allow(dead_code, reason = "not every bench needs all of it")]

use std::fs;
use std::io::{self, PipeReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as Watch};

use trunkline_bundle::central::{self, Central};
use trunkline_bundle::face::{
    CentralFace, CentralOptions, HostFace, HostOptions, Level1Face, Level1Options, Serve,
};
use trunkline_bundle::host::From;
use trunkline_bundle::level1;
use trunkline_bundle::wire::wide::{Builder, Header, Message, NO_LIMIT, PATH, Role};
use trunkline_bundle::{Format, Settings};
use trunkline_io::{Clock, socket};
use trunkline_units::{Instant, Span};

use crate::contest::pin;
use crate::line::{ENDS, Line};
use crate::messages::{BODY, Noted, body, paced, without_waiting};

/// Who sends and the host; level 1 and the central converter.
const OUTSIDE: usize = 0;
const INSIDE: usize = 1;
/// Groups that messages are spread over: the first addresses of each, an even one and the odd one of its pair.
const GROUPS: u16 = 64;
const BASE: Ipv4Addr = Ipv4Addr::new(239, 77, 1, 0);
/// Ports: of the groups, of level 1, of the central converter for level 1 and for hosts, of the host.
const WIDE: u16 = 3456;
const LEVEL1: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3457);
const FOR_LEVEL1: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3450);
const FOR_HOSTS: SocketAddrV4 = SocketAddrV4::new(ENDS[INSIDE], 3458);
const HOST: SocketAddrV4 = SocketAddrV4::new(ENDS[OUTSIDE], 3459);
/// Until all has come that was on its way.
const AFTER: Duration = Duration::from_millis(100);
/// Until the host has what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Messages a second.
    pub rate: u32,
    pub time: Span,
    /// One of so many messages has priority; none: none has.
    pub priority: Option<u64>,
    /// Every so manieth message tells its delay.
    pub tells: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub sent: u64,
    /// How long that took: longer than asked where who sends had no time.
    pub time: Span,
    pub noted: Noted,
    /// Processor time of level 1, of the central converter, of the kernel for their interface, of the host, and of the
    /// kernel for its interface.
    pub used: [Span; 5],
    pub level1: level1::Statistics,
    pub central: central::Statistics,
}

impl Outcome {
    /// Messages a second that were sent.
    pub fn rate(&self) -> f64 {
        self.sent as f64 / self.time.as_s()
    }

    /// Messages that did not come.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.noted.messages)
    }

    /// Messages that never reached level 1.
    pub fn unheard(&self) -> u64 {
        self.sent.saturating_sub(self.level1.heard)
    }

    /// Messages that the machines of level 1 and of the central converter dropped, and counted.
    pub fn dropped(&self) -> u64 {
        self.level1.drops.total() + self.central.drops_to_hosts.total()
    }
}

/// Settings for a site, where odd addresses are those of priority messages.
pub fn settings(format: Format, timing: trunkline_bundle::gather::Timing) -> Settings {
    Settings { timing, pairs: true, longest: 8_192, format, ..Settings::default() }
}

/// Has a site carry some traffic.
///
/// # Panics
/// If it does not come about.
pub fn carry(line: &Line, settings: Settings, traffic: Traffic) -> Outcome {
    let clock = Clock::start();
    let tasks: [AtomicU32; 3] = Default::default();
    let joined = AtomicUsize::new(0);
    let (over, ends) = io::pipe().expect("a pipe");
    thread::scope(|scope| {
        let open = || over.try_clone().expect("a pipe");
        let (for_level1, for_central, for_host) = (open(), open(), open());
        let central = line.spaces.spawn(scope, INSIDE, || {
            pin(INSIDE);
            let mut face = CentralFace::open(&central_options(settings), clock).expect("it opens");
            serve(&mut face, &tasks[1], for_central, |face| face.turn(None)).expect("it serves");
            Central::statistics(face.machine()).to_owned()
        });
        let level1 = line.spaces.spawn(scope, INSIDE, || {
            pin(INSIDE);
            let mut face = Level1Face::open(&level1_options(settings), clock).expect("it opens");
            serve(&mut face, &tasks[0], for_level1, |face| {
                let ready = face.turn(None);
                joined.store(face.machine().joined(), Ordering::Relaxed);
                ready
            })
            .expect("it serves");
            *face.machine().statistics()
        });
        let host = line.spaces.spawn(scope, OUTSIDE, || {
            pin(OUTSIDE);
            let mut noted = Noted::new(clock, traffic.tells);
            let mut face = HostFace::open(&host_options(settings), clock).expect("it opens");
            (0..GROUPS).for_each(|group| {
                face.join_range(address(group, false), address(group, true)).expect("there is room");
            });
            serve(&mut face, &tasks[2], for_host, |face| {
                face.turn_with(None, |_: From, body: &[u8]| noted.note(body))
            })
            .expect("it serves");
            noted
        });
        let since = Watch::now();
        while joined.load(Ordering::Relaxed) < usize::from(GROUPS) {
            assert!(since.elapsed() < PATIENCE, "level 1 is not told to join");
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(AFTER);
        let used = || {
            let [level1, central, host] = tasks.each_ref().map(|task| used_by(task.load(Ordering::Relaxed)));
            [level1, central, line.kernel_time(INSIDE), host, line.kernel_time(OUTSIDE)]
        };
        let before = used();
        let sends = line.spaces.spawn(scope, OUTSIDE, || send(settings.format, traffic, clock));
        let (sent, time) = sends.join().expect("who sends ends");
        thread::sleep(AFTER);
        let after = used();
        drop(ends);
        Outcome {
            sent,
            time,
            noted: host.join().expect("the host ends"),
            used: std::array::from_fn(|at| after[at] - before[at]),
            level1: level1.join().expect("level 1 ends"),
            central: central.join().expect("the central converter ends"),
        }
    })
}

/// Has a face serve on the processor of its end until the pipe's other end is closed.
fn serve<F: Serve>(
    face: &mut F,
    task: &AtomicU32,
    over: PipeReader,
    mut turn: impl FnMut(&mut F) -> io::Result<trunkline_io::ports::Ready>,
) -> io::Result<()> {
    let over = face.watch(&over)?;
    task.store(nix::unistd::gettid().as_raw() as u32, Ordering::Relaxed);
    while !turn(face)?.watched(over) {}
    Ok(())
}

/// What a thread of this process has used, but for the slice of time that it is in.
fn used_by(task: u32) -> Span {
    let text = fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).expect("a thread of ours");
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Span::from_ns(ns.expect("the kernel says what a thread has used"))
}

/// The ordinary address of a group, or that of priority messages.
fn address(group: u16, priority: bool) -> u32 {
    u32::from(group) * 32 + u32::from(priority)
}

/// Sends to the groups in turns; how many messages, and how long it took.
fn send(format: Format, traffic: Traffic, clock: Clock) -> (u64, Span) {
    pin(OUTSIDE);
    let begun = clock.now();
    let socket = socket::multicast_sender(ENDS[OUTSIDE].into(), 1, &socket::Options::default());
    let socket = without_waiting(socket.expect("it sends"));
    let mut builder = Builder::new(PATH);
    let mut datagram = vec![0; PATH];
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
            Format::Wide(_) => datagram_of(&mut builder, &mut datagram, now, group, *sequence, priority),
        };
        let to = SocketAddrV4::new(Ipv4Addr::from_bits(BASE.to_bits() + u32::from(group)), WIDE);
        // What cannot leave is lost, and missed.
        let _ = socket.send_to(&datagram[..length], to);
    });
    (sent, clock.now().since(begun))
}

/// A message of another site's host as it crosses the wide area.
fn datagram_of(
    builder: &mut Builder,
    datagram: &mut [u8],
    now: Instant,
    group: u16,
    sequence: u32,
    priority: bool,
) -> usize {
    builder.push(&Message {
        address: address(group, priority),
        source: 2 << 16 | 1,
        life: 1,
        sequence,
        within: NO_LIMIT,
        priority,
        reliable: None,
        body: &body(now, priority),
    });
    let header = Header { role: Role::Level1, number: 1, to: group, life: 1, session: 0, before: 0 };
    builder.finish(&header, datagram)
}

fn level1_options(settings: Settings) -> Level1Options {
    Level1Options {
        settings,
        number: 1,
        central: FOR_LEVEL1,
        listen: LEVEL1,
        interface: ENDS[INSIDE],
        base: BASE,
        port: WIDE,
        ttl: 1,
    }
}

fn central_options(settings: Settings) -> CentralOptions {
    let mut options = CentralOptions::on_loopback(settings, FOR_LEVEL1, FOR_HOSTS);
    options.level1 = vec![LEVEL1];
    options.hosts = settings.wide().map_or(vec![HOST], |_| Vec::new());
    options
}

fn host_options(settings: Settings) -> HostOptions {
    let mut options = HostOptions::on_loopback(settings, 1, FOR_HOSTS);
    (options.listen, options.interface) = (HOST, ENDS[OUTSIDE]);
    options
}
