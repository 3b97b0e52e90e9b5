//! Sixteen stations in network namespaces of their own on a bridge, with a token: messages as NASA asked for in 1990, a
//! hundred a second of a hundred octets from each, while each copies a file to another.
//!
//! Here: nothing is lost or out of order, and the ring mends itself when a station is cut off and comes back. With the
//! feature `soak`, ten minutes (or `SOAK_SECONDS`) in which no message takes longer than the computed bound, but for those
//! in whose time a processor was late by more than the bound allows for a hop; such pauses are seen by a thread on each
//! processor that does nothing but look at the clock, and are printed.

#![allow(clippy::disallowed_methods, reason = "these tests run over real interfaces")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command as Run;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use trunkline_io::must::skip;
use trunkline_io::{Clock, Pacer};
use trunkline_llc::admit::{self, Network as Bounded, TrafficContract};
use trunkline_llc::socket::{Error, Network, Settings, StationSocket};
use trunkline_llc::token::{Line, Options as RingOptions};
use trunkline_llc::{Address, Options, Outcome};
use trunkline_units::{Instant, Rate, Span};

const STATIONS: u8 = 16;
const OCTETS: usize = 100;
const BACKGROUND: usize = 1400;
const PERIOD: Span = Span::from_ms(10);
/// What is promised of processors: a frame that has come is dealt with in this time.
const HOP: Span = Span::from_us(250);
/// SAPs of the messages and of the files.
const MESSAGES: u8 = 0x60;
const FILES: u8 = 0x64;
const LOOK: Option<Duration> = Some(Duration::from_millis(20));

/// The ring: background leaves only if the token came round in half a period.
fn ring() -> RingOptions {
    let mut options = RingOptions { highest_station: STATIONS, ..RingOptions::default() };
    options.rotation_targets[..4].fill(PERIOD / 2);
    options
}

/// The longest that a message may take.
fn bound() -> Span {
    // The copy that the kernel makes for each station is part of a hop; the line itself is memory.
    let line = Line { switched: true, ..Line::ethernet(Rate::from_bps(10_000_000_000), HOP) };
    let station = |number| admit::Station { number, max_background_octets: Some(BACKGROUND as u32) };
    let contract = |station| TrafficContract {
        station,
        priority: 7,
        octets: OCTETS as u32,
        period: PERIOD,
        deadline: Span::from_s(1),
    };
    let stations = (1..=STATIONS).map(station).collect();
    let network = Bounded { line, options: ring(), stations, lost: 0, dead: 0 };
    let contracts: Vec<TrafficContract> = (1..=STATIONS).map(contract).collect();
    admit::admit(&network, &contracts).expect("there is a bound").into_iter().max().unwrap_or_default()
}

#[test]
fn the_contracts_have_a_bound() {
    assert!(bound() < PERIOD * 2, "{}", bound());
}

/// Namespaces that go when this process does.
struct Spaces(Vec<File>);

/// What a shell says in a namespace, if it goes well.
fn sh(space: &File, script: &str) -> Result<String, String> {
    thread::scope(|scope| {
        let work = || {
            setns(space, CloneFlags::CLONE_NEWNET).map_err(|e| e.to_string())?;
            let out = Run::new("sh").args(["-ec", script]).output().map_err(|e| e.to_string())?;
            let said = String::from_utf8_lossy(if out.status.success() { &out.stdout } else { &out.stderr });
            if out.status.success() { Ok(said.into_owned()) } else { Err(format!("{script}: {said}")) }
        };
        scope.spawn(work).join().expect("no panic")
    })
}

impl Spaces {
    /// One for each station, and the first with the bridge.
    fn new() -> Result<Spaces, String> {
        let new = || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| e.to_string())?;
            File::open("/proc/thread-self/ns/net").map_err(|e| e.to_string())
        };
        let space = || thread::scope(|scope| scope.spawn(new).join().expect("no panic"));
        let spaces = (0..=STATIONS).map(|_| space()).collect::<Result<Vec<File>, String>>()?;
        let quiet = "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6";
        sh(&spaces[0], &format!("{quiet}; ip link add bridge type bridge; ip link set bridge up"))?;
        for number in 1..=STATIONS {
            let space = &spaces[usize::from(number)];
            sh(space, quiet)?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), space.as_raw_fd());
            sh(
                &spaces[0],
                &format!(
                    "ip link add to{number} type veth peer name line netns {path}; ip link set to{number} master bridge; \
                     ip link set to{number} up"
                ),
            )?;
            sh(space, "ip link set line up")?;
        }
        // Links and ports take a moment.
        for number in 1..=STATIONS {
            let ready = format!(
                "for try in $(seq 500); do ip -d link show to{number} | grep -q 'state forwarding' && exit 0; sleep 0.02; \
                 done; exit 1"
            );
            sh(&spaces[0], &ready)?;
        }
        Ok(Spaces(spaces))
    }

    fn spawn<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        station: u8,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        scope.spawn(move || {
            setns(&self.0[usize::from(station)], CloneFlags::CLONE_NEWNET).expect("a namespace of ours");
            work()
        })
    }
}

/// What all share.
struct Course {
    clock: Clock,
    over: AtomicBool,
    stations: Vec<StationSocket>,
    /// How much each station has sent, once it sends no more.
    sent: Vec<AtomicU64>,
}

/// A message that came.
#[derive(Clone, Copy, Debug)]
struct Arrivals {
    from: u8,
    number: u64,
    sent: Instant,
    at: Instant,
}

/// What a station counted.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    copied: u64,
    failed: u64,
    came: Vec<Arrivals>,
}

impl Course {
    /// All stations in one ring.
    fn begin(spaces: &Spaces) -> Course {
        let settings = Settings { ring: Some(ring()), ..Settings::default() };
        let network = Network::Ethernet { interface: "line".into() };
        let attach = |number| {
            let attach = || StationSocket::to(&network, number, &settings).expect("a station");
            thread::scope(|scope| spaces.spawn(scope, number, attach).join().expect("no panic"))
        };
        let stations: Vec<StationSocket> = (1..=STATIONS).map(attach).collect();
        let sent = stations.iter().map(|_| AtomicU64::new(u64::MAX)).collect();
        let course = Course { clock: Clock::start(), over: AtomicBool::new(false), stations, sent };
        course.wait("a ring of all", || course.rings(STATIONS.into()));
        course
    }

    /// Whether all but those that are not members agree on so many members.
    fn rings(&self, members: u32) -> bool {
        self.stations.iter().filter(|station| station.members().count() as u32 == members).count()
            >= members as usize
    }

    fn wait(&self, what: &str, so: impl Fn() -> bool) {
        for _ in 0..12_000 {
            if so() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let members: Vec<_> = self.stations.iter().map(|station| station.members().count()).collect();
        panic!("waited for {what}: {members:?}");
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Traffic of all stations, until `meanwhile` is done; by station.
    fn run(&self, meanwhile: impl FnOnce()) -> Vec<Tally> {
        let urgent = Options { priority: 7, queue: 4096, ..Options::default() };
        let files = Options { tries: 1000, response_timeout: Span::from_ms(50), ..Options::acknowledged(0) };
        // All are open before the first sends, and until the last has taken: a SAP that is closed drops what waits.
        let open = |station: &StationSocket| {
            let messages = station.open(MESSAGES, &urgent).expect("it opens");
            (station.number(), messages, station.open(FILES, &files).expect("it opens"))
        };
        let saps: Vec<_> = self.stations.iter().map(open).collect();
        thread::scope(|scope| {
            let threads: Vec<_> = saps
                .iter()
                .map(|(number, messages, files)| {
                    let (number, messages, files) = (*number, messages.clone(), files.clone());
                    let next = number % STATIONS + 1;
                    let sender = messages.clone();
                    let sends = scope.spawn(move || {
                        let mut pacer = Pacer::new(self.clock);
                        let begun = self.clock.now() + PERIOD * u64::from(number) / u64::from(STATIONS);
                        let (mut sent, mut message) = (0u64, [number; OCTETS]);
                        while !self.is_over() {
                            pacer.wait(begun + PERIOD * sent, &self.over);
                            message[..8].copy_from_slice(&sent.to_be_bytes());
                            message[8..16].copy_from_slice(&self.clock.now().as_ps().to_be_bytes());
                            sender
                                .send(Address { sap: MESSAGES, station: next }, &message)
                                .expect("it leaves");
                            sent += 1;
                        }
                        self.sent[usize::from(number) - 1].store(sent, Ordering::Relaxed);
                        sent
                    });
                    let takes = scope.spawn(move || {
                        let (mut came, mut message) = (Vec::new(), Vec::new());
                        // What was sent last is waited for, on a busy machine for some time.
                        let mut quiet = 0;
                        let all = || {
                            self.sent[usize::from((number + STATIONS - 2) % STATIONS)].load(Ordering::Relaxed)
                        };
                        while !self.is_over() || quiet < 150 && (came.len() as u64) < all() {
                            match messages.receive_within(&mut message, LOOK) {
                                Ok(received) => {
                                    let at = self.clock.now();
                                    let field =
                                        |at: usize| message[at..at + 8].try_into().map(u64::from_be_bytes);
                                    let (number, sent) =
                                        (field(0).expect("8 octets"), field(8).expect("8 octets"));
                                    let from = received.from.station;
                                    came.push(Arrivals { from, number, sent: Instant::from_ps(sent), at });
                                    quiet = 0;
                                }
                                Err(Error::TimedOut) => quiet += 1,
                                Err(e) => panic!("station {number}: {e}"),
                            }
                        }
                        came
                    });
                    let copier = files.clone();
                    let copies = scope.spawn(move || {
                        let to = Address { sap: FILES, station: (number + 4) % STATIONS + 1 };
                        let (mut copied, mut failed) = (0, 0);
                        while !self.is_over() {
                            match copier.exchange(to, &[number; BACKGROUND]).expect("it leaves").outcome {
                                Outcome::Done => copied += 1,
                                _ => failed += 1,
                            }
                        }
                        (copied, failed)
                    });
                    scope.spawn(move || {
                        let mut message = Vec::new();
                        while !self.is_over() {
                            let _ = files.receive_within(&mut message, LOOK);
                        }
                    });
                    (sends, takes, copies)
                })
                .collect();
            meanwhile();
            self.over.store(true, Ordering::Relaxed);
            let ended = threads.into_iter().map(|(sends, takes, copies)| {
                let (copied, failed) = copies.join().expect("no panic");
                let (sent, came) = (sends.join().expect("no panic"), takes.join().expect("no panic"));
                Tally { sent, copied, failed, came }
            });
            ended.collect()
        })
    }
}

/// Each message of `station` came once and in order, all of them unless some may be missing.
fn assert_in_order(tallies: &[Tally], station: u8, may_miss: bool) {
    let next = usize::from(station % STATIONS);
    let came = &tallies[next].came;
    assert!(came.iter().all(|came| came.from == station));
    let numbers: Vec<u64> = came.iter().map(|came| came.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "station {station}: {numbers:?}");
    let sent = tallies[usize::from(station) - 1].sent;
    assert!(may_miss || numbers.len() as u64 == sent, "station {station}: {} of {sent}", numbers.len());
}

fn spaces() -> Option<Spaces> {
    Spaces::new().inspect_err(|why| skip(format_args!("{why} (it needs root and iproute2)"))).ok()
}

#[test]
fn sixteen_stations_lose_nothing_and_mend_their_ring() {
    let Some(spaces) = spaces() else { return };
    let course = Course::begin(&spaces);
    let tallies = course.run(|| {
        thread::sleep(Duration::from_secs(1));
        sh(&spaces.0[usize::from(STATIONS)], "ip link set line down").expect("it goes down");
        course.wait("a ring without the last", || course.rings(u32::from(STATIONS) - 1));
        thread::sleep(Duration::from_millis(300));
        sh(&spaces.0[usize::from(STATIONS)], "ip link set line up").expect("it comes up");
        course.wait("a ring of all again", || course.rings(STATIONS.into()));
        thread::sleep(Duration::from_millis(500));
    });
    // What the last one sent, and what was sent to it, may be missing.
    for station in 1..=STATIONS {
        assert_in_order(&tallies, station, station >= STATIONS - 1);
    }
    let rings: Vec<_> = course.stations.iter().map(StationSocket::ring).collect();
    assert!(rings.iter().any(|ring| ring.died > 0), "a station found it dead");
    assert!(tallies.iter().all(|tally| tally.sent > 50), "all sent");
    assert!(tallies.iter().filter(|tally| tally.copied > 0).count() >= 10, "files are copied besides");
}

/// What a thread saw that only looked at the clock: from when to when its processor was not there.
type Pause = (Instant, Instant);

/// Looks at the clock on one processor until it is over.
fn watch(course: &Course, processor: usize, pauses: &Mutex<Vec<Pause>>) {
    let mut set = nix::sched::CpuSet::new();
    set.set(processor).expect("a small number");
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).expect("this processor is there");
    trunkline_io::pace::minimize_timer_slack();
    let nap = Duration::from_micros(100);
    let mut before = course.clock.now();
    while !course.is_over() {
        thread::sleep(nap);
        let now = course.clock.now();
        if now.since(before) > HOP + Span::from_us(100) {
            pauses.lock().expect("no panic").push((before, now));
        }
        before = now;
    }
}

/// Runs it and returns: messages, the longest, those over the bound within and outside pauses.
#[allow(dead_code, reason = "the long test uses it")]
fn measure(seconds: u64) -> (usize, usize) {
    let Some(spaces) = spaces() else { return (0, 0) };
    let course = Course::begin(&spaces);
    let (bound, pauses) = (bound(), Mutex::new(Vec::new()));
    let before: Vec<_> = course.stations.iter().map(StationSocket::ring).collect();
    let tallies = thread::scope(|scope| {
        for processor in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (course, pauses) = (&course, &pauses);
            scope.spawn(move || watch(course, processor, pauses));
        }
        course.run(|| thread::sleep(Duration::from_secs(seconds)))
    });
    let pauses = pauses.into_inner().expect("no panic");
    let mut delays: Vec<Span> =
        tallies.iter().flat_map(|tally| &tally.came).map(|came| came.at.since(came.sent)).collect();
    delays.sort_unstable();
    let at = |share: f64| {
        delays.get(((delays.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or_default()
    };
    let over: Vec<Arrivals> = tallies
        .iter()
        .flat_map(|tally| &tally.came)
        .filter(|came| came.at.since(came.sent) > bound)
        .copied()
        .collect();
    let paused = |came: &Arrivals| pauses.iter().any(|(from, to)| *from < came.at && came.sent < *to);
    let unexcused: Vec<&Arrivals> = over.iter().filter(|came| !paused(came)).collect();
    let sum = |one: fn(&Tally) -> u64| tallies.iter().map(one).sum::<u64>();
    let (sent, copied, failed) = (sum(|t| t.sent), sum(|t| t.copied), sum(|t| t.failed));
    println!(
        "{sent} messages sent, {} came, {copied} packets of files and {failed} that failed; bound {bound}\n\
         delay p50 {}, p99 {}, p99.9 {}, longest {}\n{} over the bound, {} of them outside pauses",
        delays.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        over.len(),
        unexcused.len()
    );
    let total: Span = pauses.iter().fold(Span::ZERO, |sum, (from, to)| sum + to.since(*from));
    let longest = pauses.iter().map(|(from, to)| to.since(*from)).max().unwrap_or_default();
    println!(
        "{} pauses of a processor longer than {HOP}, {total} together, the longest {longest}",
        pauses.len()
    );
    for came in &unexcused {
        println!("over: {came:?}, {}", came.at.since(came.sent));
    }
    for (station, before) in course.stations.iter().zip(&before) {
        let ring = station.ring();
        let rotations = (ring.rotations - before.rotations).max(1);
        println!(
            "station {}: {} tokens, a rotation {} in the mean, longest {}; resent {}, died {}, claimed {}, withheld {}",
            station.number(),
            ring.tokens - before.tokens,
            (ring.rotation_sum - before.rotation_sum) / rotations,
            ring.rotation_max,
            ring.resent,
            ring.died,
            ring.claimed,
            ring.withheld
        );
    }
    (over.len(), unexcused.len())
}

#[cfg(feature = "soak")]
#[test]
fn no_message_is_over_its_bound_outside_pauses() {
    let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    assert_eq!(measure(seconds).1, 0, "messages over the bound though no processor paused");
}
