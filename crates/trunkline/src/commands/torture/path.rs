//! The paths of an exchange: simulated time or loopback sockets; and ends that crash.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use trunkline_arq::torture::{Tortured, Torturer};
use trunkline_arq::{Command, Config, ConnectionId, Event, EventKind, Node, Refusal};
use trunkline_endpoint::pair::{Counts, PEER_B, Pair};
use trunkline_endpoint::{Endpoint, Impairments, Input, Output, Peer, Port, Writable};
use trunkline_io::peer::peer_of;
use trunkline_io::{Clock, EventLoop};
use trunkline_run::StopFlag;
use trunkline_units::{Instant, Seed, Span};

use super::participant::{EventOutcome, Participant};
use super::trial::{Death, Trial};

/// Time without progress that counts as a deadlock in simulated time: with half of all frames lost each way and three
/// seconds between retries, the path causes it with a probability below 1e-24.
const SIMULATED_STALL_LIMIT: Span = Span::from_s(600);
/// Time without progress that counts as a deadlock on sockets, where timeouts are short.
const STALL_LIMIT: Span = Span::from_s(20);
/// Time limit of an exchange on sockets.
const TIME_LIMIT: Span = Span::from_s(60);
/// Interval between checks of an end.
const CHECK_INTERVAL: Span = Span::from_ms(10);
/// Maximum number of connections of an exchange after a crash: late frames may end some.
const MAX_CONNECTIONS: usize = 20;

/// The result of an exchange.
#[derive(Clone, Debug, Default)]
pub struct ExchangeResult {
    /// Received messages.
    pub messages: u64,
    /// Received bytes.
    pub bytes: u64,
    /// Faults of both directions.
    pub path: Counts,
    /// Counters of both ends by name; after a crash those of the last connection.
    pub counters: BTreeMap<&'static str, u64>,
    /// Number of crashes.
    pub deaths: u64,
}

impl ExchangeResult {
    /// Adds the result of another exchange.
    pub fn add(&mut self, other: &ExchangeResult) {
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

/// The outcome of an exchange: `None` if it was stopped, or the error.
pub type Outcome = Result<Option<ExchangeResult>, String>;

/// The transport with faults, which can crash and lose its state.
struct CrashingNode(Tortured<Node>);

enum Order<'a> {
    Node(Command<'a>),
    /// Crash: replaces the node with this new one.
    Crash(Box<Node>),
}

impl CrashingNode {
    fn new(trial: &Trial, end: usize) -> CrashingNode {
        let faults = Seed(trial.seed).stream(&format!("faults {end}"));
        CrashingNode(Tortured::new(node(trial, end, "node"), Torturer::new(trial.faults[end], faults)))
    }
}

fn node(trial: &Trial, end: usize, name: &str) -> Node {
    let random = Seed(trial.seed).stream(&format!("{name} {end}"));
    let accept = (end == 1).then(|| trial.options[1].clone());
    Node::new(Config { port: Port(0), accept, max_connections: 4, random })
}

impl Endpoint for CrashingNode {
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
            Input::Command(Order::Crash(node)) => {
                *self.0.inner_mut() = *node;
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        self.0.poll(now, writable, buffer)
    }
}

/// A user at one end, before and after a crash.
struct End<'a> {
    trial: &'a Trial,
    end: usize,
    /// The peer to which it opens connections, if it is the client.
    peer: Option<Peer>,
    participant: Participant<'a>,
    death: Option<Death>,
    connections: usize,
    deaths: u64,
}

impl<'a> End<'a> {
    fn new(trial: &'a Trial, end: usize, peer: Option<Peer>) -> End<'a> {
        let death = trial.death.filter(|death| death.end == end);
        End {
            trial,
            end,
            peer,
            participant: Participant::new(trial, end, None),
            death,
            connections: 0,
            deaths: 0,
        }
    }

    /// Starts again; the client opens a connection.
    fn begin(&mut self, order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>) -> Result<(), String> {
        let mut own = None;
        if let Some(peer) = self.peer {
            let mut id = ConnectionId::default();
            let open = Command::Open { peer, options: &self.trial.options[self.end], id: &mut id };
            order(Order::Node(open)).map_err(|refusal| refusal.to_string())?;
            own = Some(id);
        }
        self.connections += 1;
        if self.connections > MAX_CONNECTIONS {
            return Err(format!("more than {MAX_CONNECTIONS} connections ended"));
        }
        self.participant = Participant::new(self.trial, self.end, own);
        Ok(())
    }

    /// Handles an event. `dead`: an end has crashed, so connections may be lost.
    fn handle_events(
        &mut self,
        event: &Event,
        dead: bool,
        order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>,
    ) -> Result<(), String> {
        match self.participant.handle_event(event)? {
            EventOutcome::Continue => {}
            EventOutcome::Lost | EventOutcome::Other if !dead => {
                return Err(format!("end {}: {:?} although no end has crashed", self.end, event.kind));
            }
            // A restarted peer, before its old connection has timed out.
            EventOutcome::Other if self.peer.is_none() && matches!(event.kind, EventKind::Opened { .. }) => {
                self.begin(order)?;
                self.participant.handle_event(event)?;
            }
            EventOutcome::Other => {}
            EventOutcome::Lost => {
                order(Order::Node(Command::Forget { id: event.id }))
                    .map_err(|refusal| refusal.to_string())?;
                self.begin(order)?;
            }
        }
        Ok(())
    }

    /// Crashes when it is time; returns whether it did.
    fn crash(&mut self, order: &mut impl FnMut(Order<'_>) -> Result<(), Refusal>) -> Result<bool, String> {
        let due = self
            .death
            .filter(|death| self.participant.received().0 >= death.after && self.participant.id().is_some());
        if due.is_none() || self.participant.is_closing() {
            return Ok(false);
        }
        (self.death, self.deaths) = (None, 1);
        let node = Box::new(node(self.trial, self.end, "node that came back"));
        order(Order::Crash(node)).map_err(|refusal| refusal.to_string())?;
        self.begin(order)?;
        Ok(true)
    }

    /// Returns the result of this end.
    fn result(&self, host: &CrashingNode) -> ExchangeResult {
        let (messages, bytes) = self.participant.received();
        let statistics =
            self.participant.id().and_then(|id| host.0.inner().statistics(id)).unwrap_or_default();
        let (path, counters) = (host.0.counts(), statistics.counters().into());
        ExchangeResult { messages, bytes, path, counters, deaths: self.deaths }
    }
}

/// Converts a panic into a failure.
fn caught(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("panic: {text}"))
    })
}

/// Runs an exchange in simulated time; checks the contract of endpoints.
pub fn in_memory(trial: &Trial, stop: &StopFlag) -> Outcome {
    caught(|| {
        let mut pair = Pair::new(CrashingNode::new(trial, 0), CrashingNode::new(trial, 1), Seed(trial.seed));
        let [there, back] = trial.rates.map(|rate| Impairments { rate, ..Impairments::default() });
        pair.impair(there, back);
        let (mut a, mut b) = (End::new(trial, 0, Some(PEER_B)), End::new(trial, 1, None));
        a.begin(&mut |order| pair.command_a(order))?;
        // A separate clock: the pair's clock stops while it is idle.
        let mut now = Instant::ZERO;
        let (mut progress, mut since, mut dead) = (0, now, false);
        while !(a.participant.is_done() && b.participant.is_done()) {
            if stop.is_requested() {
                return Ok(None);
            }
            for (_, event) in pair.take_events_a() {
                a.handle_events(&event, dead, &mut |order| pair.command_a(order))?;
            }
            for (_, event) in pair.take_events_b() {
                b.handle_events(&event, dead, &mut |order| pair.command_b(order))?;
            }
            // Earlier events have been handled.
            dead |= a.crash(&mut |order| pair.command_a(order))?;
            dead |= b.crash(&mut |order| pair.command_b(order))?;
            a.participant.act(now, |command| pair.command_a(Order::Node(command)))?;
            b.participant.act(now, |command| pair.command_b(Order::Node(command)))?;
            let frames = |result: ExchangeResult| result.counters["frames_received"] + result.messages;
            let connections = (a.connections + b.connections) as u64;
            let moved = frames(a.result(pair.a())) + frames(b.result(pair.b())) + connections;
            if moved != progress {
                (progress, since) = (moved, now);
            } else if now.since(since) > SIMULATED_STALL_LIMIT {
                return Err(format!("no progress since {since}"));
            }
            let next =
                a.participant.next().into_iter().chain(b.participant.next()).min().unwrap_or(Instant::MAX);
            let span = next.since(now).clamp(Span::from_us(1), CHECK_INTERVAL);
            pair.run(span);
            now += span;
        }
        let mut result = a.result(pair.a());
        result.add(&b.result(pair.b()));
        Ok(Some(result))
    })
}

/// Runs an exchange over two UDP sockets of 127.0.0.1, each on a thread.
pub fn on_loopback(trial: &Trial, stop: &StopFlag) -> Outcome {
    let clock = Clock::start();
    let event_loop = |end| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        EventLoop::over(CrashingNode::new(trial, end), socket, clock)
    };
    let system = |e: std::io::Error| e.to_string();
    let (a, b) = (event_loop(0).map_err(system)?, event_loop(1).map_err(system)?);
    let peer = peer_of(b.ports.socket(0).local_addr().map_err(system)?);
    // Number of finished ends; a large value after a failure or a stop.
    let (done, dead) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = |end, event_loop, peer| {
        let outcome = caught(|| one_end(End::new(trial, end, peer), event_loop, clock, stop, &done, &dead));
        done.fetch_add(if matches!(outcome, Ok(Some(_))) { 0 } else { 2 }, Ordering::Relaxed);
        outcome
    };
    let [a, b] = thread::scope(|scope| {
        let ends = [scope.spawn(|| run(0, a, Some(peer))), scope.spawn(|| run(1, b, None))];
        ends.map(|end| end.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    });
    // If one end fails, the other one stops.
    match (a?, b?) {
        (Some(mut a), Some(b)) => {
            a.add(&b);
            Ok(Some(a))
        }
        _ => Ok(None),
    }
}

/// Runs one end until both are done; `None` if it was stopped or the other end failed.
fn one_end(
    mut end: End<'_>,
    mut event_loop: EventLoop<CrashingNode>,
    clock: Clock,
    stop: &StopFlag,
    done: &AtomicUsize,
    dead: &AtomicBool,
) -> Outcome {
    if end.peer.is_some() {
        end.begin(&mut |order| event_loop.command(order))?;
    }
    let (mut is_done, mut progress, mut since) = (false, 0, clock.now());
    loop {
        let now = clock.now();
        // Set the flag first: the other end may notice immediately.
        if end.death.is_some() {
            dead.store(true, Ordering::Relaxed);
        }
        end.crash(&mut |order| event_loop.command(order))?;
        end.participant.act(now, |command| event_loop.command(Order::Node(command)))?;
        if end.participant.is_done() && !std::mem::replace(&mut is_done, true) {
            done.fetch_add(1, Ordering::Relaxed);
        }
        // Until both are done the other end may need replies.
        match done.load(Ordering::Relaxed) {
            2 if is_done => return Ok(Some(end.result(&event_loop.endpoint))),
            more if more >= 2 || stop.is_requested() => return Ok(None),
            _ => {}
        }
        let result = end.result(&event_loop.endpoint);
        let moved = result.counters["frames_received"] + result.messages + end.connections as u64;
        if moved != progress {
            (progress, since) = (moved, now);
        }
        if (now.since(since) > STALL_LIMIT && !is_done) || now > Instant::ZERO + TIME_LIMIT {
            let (received, all) = (result.messages, end.trial.messages);
            return Err(format!("timeout: {received} of {all} messages arrived"));
        }
        let until = end.participant.next().unwrap_or(Instant::MAX).min(now + CHECK_INTERVAL);
        let mut events = Vec::new();
        event_loop.turn(Some(until), |event| events.push(event)).map_err(|e| e.to_string())?;
        for event in events {
            let is_dead = dead.load(Ordering::Relaxed);
            end.handle_events(&event, is_dead, &mut |order| event_loop.command(order))?;
        }
    }
}
