//! The paths of an exchange: simulated time, or the loopback's sockets; and ends that die.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use trunkline_arq::torture::{Tortured, Torturer};
use trunkline_arq::{Command, Config, ConnectionId, Event, EventKind, Node, Refusal};
use trunkline_endpoint::pair::{Counts, PEER_B, Pair};
use trunkline_endpoint::{Endpoint, Impairments, Input, Output, Peer, Port, Writable};
use trunkline_io::driver::{DriverEvent, peer_of};
use trunkline_io::{Clock, Driver};
use trunkline_run::StopFlag;
use trunkline_units::{Instant, Seed, Span};

use super::party::{Heard, Party};
use super::trial::{Death, Trial};

/// In simulated time nothing new for so long is a deadlock: at half of all frames lost each way, and three seconds from
/// one try to the next, chances are below 1e-24 that the path is at fault.
const DEADLOCK: Span = Span::from_s(600);
/// On sockets, where timeouts are short.
const STUCK: Span = Span::from_s(20);
/// An exchange on sockets takes no longer.
const LONGEST: Span = Span::from_s(60);
/// An end looks around at least so often.
const ROUND: Span = Span::from_ms(10);
/// Connections that an exchange takes at the most once an end has died: late frames may end another or two.
const MOST_CONNECTIONS: usize = 20;

/// What an exchange did.
#[derive(Clone, Debug, Default)]
pub struct Did {
    /// Messages that came.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the path did to the frames of both ends.
    pub path: Counts,
    /// What both ends counted, by name; in their last connection, where one has died.
    pub counters: BTreeMap<&'static str, u64>,
    /// Ends that died.
    pub deaths: u64,
}

impl Did {
    /// With what another did.
    pub fn add(&mut self, other: &Did) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.deaths += other.deaths;
        let (path, more) = (&mut self.path, other.path);
        path.sent += more.sent;
        path.dropped += more.dropped;
        path.duplicated += more.duplicated;
        path.corrupted += more.corrupted;
        path.reordered += more.reordered;
        for (name, count) in &other.counters {
            *self.counters.entry(name).or_default() += count;
        }
    }
}

/// What came of an exchange: nothing if it was stopped, or what went wrong.
pub type Outcome = Result<Option<Did>, String>;

/// The transport with its faults, which can lose its memory.
struct Mortal(Tortured<Node>);

enum Order<'a> {
    Node(Command<'a>),
    /// All is forgotten; this is what comes up.
    Die(Box<Node>),
}

impl Mortal {
    fn new(trial: &Trial, end: usize) -> Mortal {
        let faults = Seed(trial.seed).stream(&format!("faults {end}"));
        Mortal(Tortured::new(node(trial, end, "node"), Torturer::new(trial.faults[end], faults)))
    }
}

fn node(trial: &Trial, end: usize, name: &str) -> Node {
    let random = Seed(trial.seed).stream(&format!("{name} {end}"));
    let accept = (end == 1).then(|| trial.options[1].clone());
    Node::new(Config { port: Port(0), accept, max_connections: 4, random })
}

impl Endpoint for Mortal {
    type Command<'a> = Order<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Order<'_>>) -> Result<(), Refusal> {
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                self.0.handle(now, Input::Frame { port, peer, bytes, segment })
            }
            Input::Wake => self.0.handle(now, Input::Wake),
            Input::Command(Order::Node(command)) => self.0.handle(now, Input::Command(command)),
            Input::Command(Order::Die(node)) => {
                *self.0.inner_mut() = *node;
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        self.0.poll(now, writable, buffer)
    }
}

/// A user at one end, through one death and what follows.
struct Life<'a> {
    trial: &'a Trial,
    end: usize,
    /// Whom it opens connections to, if it is the one that does.
    peer: Option<Peer>,
    party: Party<'a>,
    death: Option<Death>,
    connections: usize,
    deaths: u64,
}

impl<'a> Life<'a> {
    fn new(trial: &'a Trial, end: usize, peer: Option<Peer>) -> Life<'a> {
        let death = trial.death.filter(|death| death.end == end);
        Life { trial, end, peer, party: Party::new(trial, end, None), death, connections: 0, deaths: 0 }
    }

    /// Begins anew, with a connection if it is the one that opens them.
    fn begin(&mut self, order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>) -> Result<(), String> {
        let mut own = None;
        if let Some(peer) = self.peer {
            let mut id = ConnectionId::default();
            let open = Command::Open { peer, options: &self.trial.options[self.end], id: &mut id };
            order(Order::Node(open)).map_err(|refusal| refusal.to_string())?;
            own = Some(id);
        }
        self.connections += 1;
        if self.connections > MOST_CONNECTIONS {
            return Err("connections end and end".into());
        }
        self.party = Party::new(self.trial, self.end, own);
        Ok(())
    }

    /// Hears of a connection; `dead`: one of the ends has died, so that connections may be lost.
    fn hear(
        &mut self,
        event: &Event,
        dead: bool,
        order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>,
    ) -> Result<(), String> {
        match self.party.hear(event)? {
            Heard::News => {}
            Heard::Lost(_) | Heard::Other if !dead => {
                return Err(format!("end {}: {:?} and nobody has died", self.end, event.kind));
            }
            // A peer that came back, before the one that it was is known to have gone.
            Heard::Other if self.peer.is_none() && matches!(event.kind, EventKind::Opened { .. }) => {
                self.begin(order)?;
                self.party.hear(event)?;
            }
            Heard::Other => {}
            Heard::Lost(_) => {
                order(Order::Node(Command::Forget { id: event.id }))
                    .map_err(|refusal| refusal.to_string())?;
                self.begin(order)?;
            }
        }
        Ok(())
    }

    /// Dies, if it is time; whether it did.
    fn die(&mut self, order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>) -> Result<bool, String> {
        let due =
            self.death.filter(|death| self.party.received().0 >= death.after && self.party.id().is_some());
        if due.is_none() || self.party.is_closing() {
            return Ok(false);
        }
        (self.death, self.deaths) = (None, 1);
        let node = Box::new(node(self.trial, self.end, "node that came back"));
        order(Order::Die(node)).map_err(|refusal| refusal.to_string())?;
        self.begin(order)?;
        Ok(true)
    }

    /// What this end did.
    fn did(&self, host: &Mortal) -> Did {
        let (messages, bytes) = self.party.received();
        let statistics = self.party.id().and_then(|id| host.0.inner().statistics(id)).unwrap_or_default();
        let (path, counters) = (host.0.counts(), statistics.counters().into());
        Did { messages, bytes, path, counters, deaths: self.deaths }
    }
}

/// A panic is a finding like any other.
fn caught(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Err(format!("it panicked: {text}"))
    })
}

/// In simulated time; the laws of endpoints are checked on the way.
pub fn in_memory(trial: &Trial, stop: &StopFlag) -> Outcome {
    caught(|| {
        let mut pair = Pair::new(Mortal::new(trial, 0), Mortal::new(trial, 1), Seed(trial.seed));
        let [there, back] = trial.rates.map(|rate| Impairments { rate, ..Impairments::default() });
        pair.impair(there, back);
        let (mut a, mut b) = (Life::new(trial, 0, Some(PEER_B)), Life::new(trial, 1, None));
        a.begin(&mut |order| pair.command_a(order))?;
        // Its own: that of the pair stands while all is quiet.
        let mut now = Instant::ZERO;
        let (mut progress, mut since, mut dead) = (0, now, false);
        while !(a.party.is_done() && b.party.is_done()) {
            if stop.is_requested() {
                return Ok(None);
            }
            for (_, event) in pair.take_events_a() {
                a.hear(&event, dead, &mut |order| pair.command_a(order))?;
            }
            for (_, event) in pair.take_events_b() {
                b.hear(&event, dead, &mut |order| pair.command_b(order))?;
            }
            // All that happened before it has been told.
            dead |= a.die(&mut |order| pair.command_a(order))?;
            dead |= b.die(&mut |order| pair.command_b(order))?;
            a.party.act(now, |command| pair.command_a(Order::Node(command)))?;
            b.party.act(now, |command| pair.command_b(Order::Node(command)))?;
            let frames = |did: Did| did.counters["frames_received"] + did.messages;
            let connections = (a.connections + b.connections) as u64;
            let moved = frames(a.did(pair.a())) + frames(b.did(pair.b())) + connections;
            if moved != progress {
                (progress, since) = (moved, now);
            } else if now.since(since) > DEADLOCK {
                return Err(format!("nothing has moved since {since}"));
            }
            let next = a.party.next().into_iter().chain(b.party.next()).min().unwrap_or(Instant::MAX);
            let span = next.since(now).clamp(Span::from_us(1), ROUND);
            pair.run(span);
            now += span;
        }
        let mut did = a.did(pair.a());
        did.add(&b.did(pair.b()));
        Ok(Some(did))
    })
}

/// Over two UDP sockets of 127.0.0.1, each driven by a thread.
pub fn on_loopback(trial: &Trial, stop: &StopFlag) -> Outcome {
    let clock = Clock::start();
    let driver = |end| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        Driver::new(Mortal::new(trial, end), socket, clock)
    };
    let system = |e: std::io::Error| e.to_string();
    let (a, b) = (driver(0).map_err(system)?, driver(1).map_err(system)?);
    let peer = peer_of(b.socket().local_addr().map_err(system)?);
    // Ends that are done; far more if one has failed or was stopped.
    let (done, dead) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = |end, driver, peer| {
        let outcome = caught(|| one_end(Life::new(trial, end, peer), driver, clock, stop, &done, &dead));
        done.fetch_add(if matches!(outcome, Ok(Some(_))) { 0 } else { 2 }, Ordering::Relaxed);
        outcome
    };
    let [a, b] = thread::scope(|scope| {
        let ends = [scope.spawn(|| run(0, a, Some(peer))), scope.spawn(|| run(1, b, None))];
        ends.map(|end| end.join().unwrap_or_else(|_| Err("a thread died".into())))
    });
    // If one end fails, the other only stops.
    match (a?, b?) {
        (Some(mut a), Some(b)) => {
            a.add(&b);
            Ok(Some(a))
        }
        _ => Ok(None),
    }
}

/// One end until both are done; nothing if it was stopped or the other failed.
fn one_end(
    mut life: Life<'_>,
    mut driver: Driver<Mortal>,
    clock: Clock,
    stop: &StopFlag,
    done: &AtomicUsize,
    dead: &AtomicBool,
) -> Outcome {
    if life.peer.is_some() {
        life.begin(&mut |order| driver.command(order))?;
    }
    let (mut told, mut progress, mut since) = (false, 0, clock.now());
    loop {
        let now = clock.now();
        // Said first: the other may learn of it at once.
        if life.death.is_some() {
            dead.store(true, Ordering::Relaxed);
        }
        life.die(&mut |order| driver.command(order))?;
        life.party.act(now, |command| driver.command(Order::Node(command)))?;
        if life.party.is_done() && !std::mem::replace(&mut told, true) {
            done.fetch_add(1, Ordering::Relaxed);
        }
        // Until then the other may need an answer.
        match done.load(Ordering::Relaxed) {
            2 if told => return Ok(Some(life.did(driver.endpoint()))),
            more if more >= 2 || stop.is_requested() => return Ok(None),
            _ => {}
        }
        let did = life.did(driver.endpoint());
        let moved = did.counters["frames_received"] + did.messages + life.connections as u64;
        if moved != progress {
            (progress, since) = (moved, now);
        }
        if (now.since(since) > STUCK && !told) || now > Instant::ZERO + LONGEST {
            let (came, all) = (did.messages, life.trial.messages);
            return Err(format!("it took too long: {came} of {all} messages came"));
        }
        let until = life.party.next().unwrap_or(Instant::MAX).min(now + ROUND);
        match driver.run(Some(until)).map_err(|e| e.to_string())? {
            DriverEvent::Endpoint(event) => {
                life.hear(&event, dead.load(Ordering::Relaxed), &mut |order| driver.command(order))?;
            }
            // A frame that the system refuses is one more that is lost.
            DriverEvent::SendFailed(_) | DriverEvent::Deadline | DriverEvent::Stopped => {}
        }
    }
}
