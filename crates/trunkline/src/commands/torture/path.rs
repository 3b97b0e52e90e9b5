//! The paths of an exchange: simulated time, or the loopback's sockets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use trunkline_arq::torture::{Tortured, Torturer};
use trunkline_arq::{Command, Config, ConnectionId, Node};
use trunkline_endpoint::pair::{Counts, PEER_B, Pair};
use trunkline_endpoint::{Impairments, Peer, Port};
use trunkline_net::driver::{Turn, peer_of};
use trunkline_net::{Clock, Driver};
use trunkline_run::Stop;
use trunkline_units::{Instant, Seed, Span};

use super::party::Party;
use super::trial::Trial;

/// In simulated time nothing new for so long is a deadlock: at half of all frames lost each way, and three seconds from
/// one try to the next, chances are below 1e-24 that the path is at fault.
const DEADLOCK: Span = Span::from_s(600);
/// On sockets, where timeouts are short.
const STUCK: Span = Span::from_s(20);
/// An exchange on sockets takes no longer.
const LONGEST: Span = Span::from_s(60);
/// An end looks around at least so often.
const ROUND: Span = Span::from_ms(10);

/// What an exchange did.
#[derive(Clone, Debug, Default)]
pub struct Did {
    /// Messages that came.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What the path did to the frames of both ends.
    pub path: Counts,
    /// What both ends counted, by name.
    pub counters: BTreeMap<&'static str, u64>,
}

impl Did {
    /// With what another did.
    pub fn add(&mut self, other: &Did) {
        self.messages += other.messages;
        self.bytes += other.bytes;
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

    /// What one end did.
    fn of(party: &Party<'_>, host: &Tortured<Node>) -> Did {
        let (messages, bytes) = party.received();
        let statistics = party.id().and_then(|id| host.inner().statistics(id)).unwrap_or_default();
        Did { messages, bytes, path: host.counts(), counters: statistics.named().into() }
    }
}

/// What came of an exchange: nothing if it was stopped, or what went wrong.
pub type Outcome = Result<Option<Did>, String>;

fn host(trial: &Trial, end: usize) -> Tortured<Node> {
    let stream = |place: &str| Seed(trial.seed).stream(&format!("{place} {end}"));
    let accept = (end == 1).then(|| trial.options[1].clone());
    let node = Node::new(Config { port: Port(0), accept, connections: 1, random: stream("node") });
    Tortured::new(node, Torturer::new(trial.faults[end], stream("faults")))
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
pub fn in_memory(trial: &Trial, stop: &Stop) -> Outcome {
    caught(|| {
        let mut pair = Pair::new(host(trial, 0), host(trial, 1), Seed(trial.seed));
        let [there, back] = trial.rates.map(|rate| Impairments { rate, ..Impairments::default() });
        pair.impair(there, back);
        let mut id = ConnectionId::default();
        let open = Command::Open { peer: PEER_B, options: &trial.options[0], id: &mut id };
        pair.command_a(open).map_err(|refusal| refusal.to_string())?;
        let (mut a, mut b) = (Party::new(trial, 0, Some(id)), Party::new(trial, 1, None));
        // Its own: that of the pair stands while all is quiet.
        let mut now = Instant::ZERO;
        let (mut progress, mut since) = (0, now);
        while !(a.is_done() && b.is_done()) {
            if stop.asked() {
                return Ok(None);
            }
            pair.take_events_a().iter().try_for_each(|(_, event)| a.hear(event))?;
            pair.take_events_b().iter().try_for_each(|(_, event)| b.hear(event))?;
            a.act(now, |command| pair.command_a(command))?;
            b.act(now, |command| pair.command_b(command))?;
            let frames = |did: Did| did.counters["frames_received"] + did.messages;
            let moved = frames(Did::of(&a, pair.a())) + frames(Did::of(&b, pair.b()));
            if moved != progress {
                (progress, since) = (moved, now);
            } else if now.since(since) > DEADLOCK {
                return Err(format!("nothing has moved since {since}"));
            }
            let next = a.next().into_iter().chain(b.next()).min().unwrap_or(Instant::MAX);
            let span = next.since(now).clamp(Span::from_us(1), ROUND);
            pair.run(span);
            now += span;
        }
        let mut did = Did::of(&a, pair.a());
        did.add(&Did::of(&b, pair.b()));
        Ok(Some(did))
    })
}

/// Over two UDP sockets of 127.0.0.1, each driven by a thread.
pub fn on_loopback(trial: &Trial, stop: &Stop) -> Outcome {
    let clock = Clock::start();
    let driver = |end| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        Driver::new(host(trial, end), socket, clock)
    };
    let system = |e: std::io::Error| e.to_string();
    let (a, b) = (driver(0).map_err(system)?, driver(1).map_err(system)?);
    let peer = peer_of(b.socket().local_addr().map_err(system)?);
    // Ends that are done; far more if one has failed or was stopped.
    let done = AtomicUsize::new(0);
    let run = |end, driver, peer| {
        let outcome = caught(|| one_end(trial, end, driver, peer, clock, stop, &done));
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
    trial: &Trial,
    end: usize,
    mut driver: Driver<Tortured<Node>>,
    peer: Option<Peer>,
    clock: Clock,
    stop: &Stop,
    done: &AtomicUsize,
) -> Outcome {
    let mut own = None;
    if let Some(peer) = peer {
        let mut id = ConnectionId::default();
        let open = Command::Open { peer, options: &trial.options[end], id: &mut id };
        driver.command(open).map_err(|refusal| refusal.to_string())?;
        own = Some(id);
    }
    let mut party = Party::new(trial, end, own);
    let (mut told, mut progress, mut since) = (false, 0, clock.now());
    loop {
        let now = clock.now();
        party.act(now, |command| driver.command(command))?;
        if party.is_done() && !std::mem::replace(&mut told, true) {
            done.fetch_add(1, Ordering::Relaxed);
        }
        // Until then the other may need an answer.
        match done.load(Ordering::Relaxed) {
            2 if told => return Ok(Some(Did::of(&party, driver.endpoint()))),
            more if more >= 2 || stop.asked() => return Ok(None),
            _ => {}
        }
        let did = Did::of(&party, driver.endpoint());
        let moved = did.counters["frames_received"] + did.messages;
        if moved != progress {
            (progress, since) = (moved, now);
        }
        if (now.since(since) > STUCK && !told) || now > Instant::ZERO + LONGEST {
            return Err(format!("it took too long: {} of {} messages came", did.messages, trial.messages));
        }
        let until = party.next().unwrap_or(Instant::MAX).min(now + ROUND);
        match driver.run(Some(until)).map_err(|e| e.to_string())? {
            Turn::Event(event) => party.hear(&event)?,
            // A frame that the system refuses is one more that is lost.
            Turn::Trouble(_) | Turn::Until | Turn::Stopped => {}
        }
    }
}
