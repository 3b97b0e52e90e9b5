//! Runs a plan's blocks: for each run of a connection, prepare the ends, start them at one moment, and gather what
//! they report, however they end.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trunkline_experiment::Plan;
use trunkline_experiment::plan::{self, Block, Protocol};
use trunkline_io::{Clock, Pacer};
use trunkline_run::assemble::Outcome;
use trunkline_run::{Order, Stop, llc};
use trunkline_traffic::Pattern;
use trunkline_traffic::law::Law;
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Span};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bundles::{self, Post, Wanted};
use crate::launch::{Ending, Launch};
use crate::station::Place;
use crate::wire::{self, End, EndId, Reader, Report, Role, Word};

/// An agent that has said nothing for this long does not answer.
const SILENCE: Duration = Duration::from_secs(5);
/// How long ends may take to open, beyond what their sockets wait for.
const OPENING: Span = Span::from_s(8);
/// How long ends may take to report once told to stop.
const STOPPING: Span = Span::from_s(3);
/// How long what is under way may take to arrive when a run is cut short.
const DRAINING: Span = Span::from_ms(1000);
/// How long receivers may take to report once told that the sender has ended.
const FINISHING: Span = Span::from_s(60);
/// How long converters may take to know what is wanted.
const SETTLING: Span = Span::from_s(20);
/// From the moment a block is entered to its first message: time to open sockets, so that what stands side by side
/// begins together.
const HEADSTART: Span = Span::from_ms(20);
const HEADSTART_EACH: Span = Span::from_ms(1);

/// What a run of a connection hears from its ends.
enum Heard {
    Word(Word),
    /// The agent of this host is gone; why.
    Gone(String, String),
}

type Mailboxes = Mutex<BTreeMap<EndId, Mailbox>>;

/// Where a run hears of one of its ends.
struct Mailbox {
    /// The end's agent.
    agent: usize,
    /// Whether the run needs the converters.
    bundled: bool,
    sender: Sender<Heard>,
}

/// What an agent said of itself.
#[derive(Default)]
struct Told {
    used: Mutex<Option<(f64, f64)>>,
    /// Of its converter, once that is there: how much it knows of what is wanted.
    knows: Mutex<Option<u64>>,
    counted: Mutex<BTreeMap<String, u64>>,
}

/// The agents of a run and the way to each.
pub struct Controller<'a> {
    plan: &'a Plan,
    order: &'a Order,
    clock: Clock,
    agents: Vec<Agent>,
    mailboxes: Arc<Mailboxes>,
    next_id: AtomicU32,
    outcomes: Vec<Mutex<Vec<Outcome>>>,
}

/// One host's agent.
struct Agent {
    host: String,
    address: IpAddr,
    orders: Mutex<UnixStream>,
    child: Mutex<Option<Child>>,
    gone: Arc<Mutex<Option<String>>>,
    told: Arc<Told>,
    /// What it has to do with bundles.
    bundles: Option<bundles::Place>,
    leaving: Arc<AtomicBool>,
}

/// Whatever becomes of the run, no agent is left behind.
impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ignores a panic of another thread: what it held is plain data.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Controller<'a> {
    /// Brings up an agent for each host, and for each converter.
    pub fn new(
        plan: &'a Plan,
        order: &'a Order,
        addresses: &BTreeMap<String, IpAddr>,
        launch: &dyn Launch,
        clock: Clock,
    ) -> Result<Self, String> {
        let mailboxes: Arc<Mailboxes> = Arc::default();
        let bundles = bundles::places(plan, clock);
        // First of all: who speaks to one that is not there yet has to say it again.
        let converters = bundles.iter().filter(|(_, place)| place.is_converter()).map(|(name, _)| name);
        let agents = converters
            .clone()
            .chain(plan.hosts.iter().filter(|host| !converters.clone().any(|name| name == *host)))
            .enumerate()
            .map(|(index, host)| {
                let place = bundles.get(host);
                let address = addresses.get(host).copied().or(place.map(bundles::Place::address));
                let address = address.unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
                let what = (clock, station(plan, host, clock), place.cloned());
                Agent::new((index, host), address, launch, what, &mailboxes)
                    .map_err(|e| format!("host {host}: its agent cannot be started: {e}"))
            })
            .collect::<Result<_, _>>()?;
        let outcomes = plan.connections.iter().map(|_| Mutex::default()).collect();
        Ok(Controller { plan, order, clock, agents, mailboxes, next_id: AtomicU32::new(1), outcomes })
    }

    /// Waits until the converters know what is wanted, and get it, or until told to stop.
    ///
    /// # Errors
    /// If they do not in time, or one of them is gone.
    pub fn settle(&self) -> Result<(), String> {
        let places = || self.agents.iter().filter_map(|a| Some((a, a.bundles.as_ref()?)));
        let wanted = Wanted::of(places().map(|(_, place)| place));
        // None while one of them is not there yet.
        let known = |of: fn(&Post) -> bool| -> Option<u64> {
            let of = places().filter(|(_, place)| of(&place.post));
            of.map(|(agent, _)| *locked(&agent.told.knows)).sum()
        };
        let deadline = self.clock.now() + SETTLING;
        while !self.stop().asked() {
            for (agent, _) in places() {
                let gone = locked(&agent.gone).clone();
                gone.map_or(Ok(()), |why| Err(agent.obituary(&why)))?;
            }
            let addresses = known(|post| matches!(post, Post::Central { .. }));
            let groups = known(|post| matches!(post, Post::Level1 { .. }));
            if (addresses, groups) == (Some(wanted.addresses), Some(wanted.groups)) {
                return Ok(());
            }
            if self.clock.now() > deadline {
                let (addresses, groups) = (addresses.unwrap_or(0), groups.unwrap_or(0));
                return Err(format!(
                    "after {SETTLING} the converters know of {addresses} of {} addresses that hosts want, and have \
                     {groups} of {} groups",
                    wanted.addresses, wanted.groups
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Runs the whole schedule.
    pub fn run(&self) {
        let origin = self.clock.now() + HEADSTART + HEADSTART_EACH * self.plan.connections.len() as u64;
        self.block(&self.plan.schedule, origin, 1);
    }

    fn stop(&self) -> &Stop {
        &self.order.stop
    }

    /// Runs a block whose first message may leave at `origin`. `round` tells the runs of a repeat apart.
    fn block(&self, block: &Block, origin: Instant, round: u32) {
        match block {
            _ if self.stop().asked() => {}
            Block::Serial(blocks) => {
                let mut origin = origin;
                for block in blocks {
                    self.block(block, origin, round);
                    origin = self.clock.now() + HEADSTART;
                }
            }
            Block::Parallel(blocks) => std::thread::scope(|scope| {
                for block in blocks {
                    scope.spawn(move || self.block(block, origin, round));
                }
            }),
            Block::Repeat { count, every, body } => {
                let mut next = origin;
                for i in 0..*count {
                    let origin = next.max(self.clock.now() + HEADSTART);
                    // Rounds of nested repeats are numbered through.
                    self.block(body, origin, (round - 1) * count + i + 1);
                    next += *every;
                    // Without its host a round cannot be: the next need not be waited for.
                    if i + 1 < *count && (self.is_orphaned(body) || !self.wait_until(next - HEADSTART)) {
                        return;
                    }
                }
            }
            Block::Connection(index) => {
                let outcome = self.connection(&self.plan.connections[*index], origin, round);
                locked(&self.outcomes[*index]).push(outcome);
            }
        }
    }

    /// Whether a host of this block is gone.
    fn is_orphaned(&self, block: &Block) -> bool {
        match block {
            Block::Serial(blocks) | Block::Parallel(blocks) => blocks.iter().any(|b| self.is_orphaned(b)),
            Block::Repeat { body, .. } => self.is_orphaned(body),
            Block::Connection(index) => {
                let c = &self.plan.connections[*index];
                let hosts = c.to.iter().chain([&c.from]).map(|s| self.agent(&s.host));
                let mut all = hosts.chain(self.converters(c));
                all.any(|agent| locked(&agent.gone).is_some())
            }
        }
    }

    /// Sleeps until then; false if told to stop.
    fn wait_until(&self, moment: Instant) -> bool {
        Pacer::new(self.clock).wait(moment, self.stop().flag());
        !self.stop().asked()
    }

    /// One run of one connection.
    fn connection(&self, connection: &plan::Connection, origin: Instant, round: u32) -> Outcome {
        let place =
            if round == 1 { connection.name.clone() } else { format!("{} / run {round}", connection.name) };
        let mut run = Run::new(self, connection, place, origin);
        let trouble = run.conduct();
        if let Err(trouble) = trouble {
            run.outcome.trouble.get_or_insert(trouble);
        }
        if run.outcome.trouble.is_none() && self.stop().asked() {
            run.outcome.trouble = Some("stopped on request".into());
        }
        run.outcome.start = run.start;
        let ids: Vec<EndId> = run.ends.keys().copied().collect();
        let mut boxes = locked(&self.mailboxes);
        ids.iter().for_each(|id| drop(boxes.remove(id)));
        drop(boxes);
        std::mem::take(&mut run.outcome)
    }

    fn agent(&self, host: &str) -> &Agent {
        self.agents.iter().find(|a| a.host == host).expect("every host of the plan has an agent")
    }

    /// The agents of the converters that a connection needs.
    fn converters(&self, c: &plan::Connection) -> impl Iterator<Item = &Agent> {
        let bundled = is_bundled(&c.protocol);
        self.agents.iter().filter(move |agent| bundled && agent.is_converter())
    }

    /// What bundles counted, by host and name.
    pub fn counted(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.agents.iter().map(|a| (a.host.clone(), locked(&a.told.counted).clone())).collect()
    }

    /// Where each host and converter is.
    pub fn addresses(&self) -> BTreeMap<String, IpAddr> {
        self.agents.iter().map(|a| (a.host.clone(), a.address)).collect()
    }

    /// What each connection came to.
    pub fn outcomes(&self) -> impl Iterator<Item = Vec<Outcome>> + '_ {
        self.outcomes.iter().map(|o| std::mem::take(&mut *locked(o)))
    }

    /// Sends the agents home and returns the processor time each used, by host.
    pub fn dismiss(&self) -> BTreeMap<String, f64> {
        for agent in &self.agents {
            agent.leaving.store(true, Ordering::Relaxed);
            agent.tell(&wire::Order::Bye);
        }
        let deadline = self.clock.now() + STOPPING;
        let waiting = |a: &Agent| locked(&a.told.used).is_none() && locked(&a.gone).is_none();
        while self.agents.iter().any(waiting) && self.clock.now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.agents.iter().for_each(Agent::end);
        let seconds = |a: &Agent| locked(&a.told.used).map_or(0.0, |(user, system)| user + system);
        self.agents.iter().map(|a| (a.host.clone(), seconds(a))).collect()
    }
}

impl Agent {
    fn new(
        (index, host): (usize, &str),
        address: IpAddr,
        launch: &dyn Launch,
        (clock, station, bundles): (Clock, Option<Place>, Option<bundles::Place>),
        mailboxes: &Arc<Mailboxes>,
    ) -> io::Result<Agent> {
        let launched = launch.launch(host)?;
        let mut orders = launched.stream.try_clone()?;
        let (epoch_ns, place) = (clock.epoch_ns(), bundles.clone().map(Box::new));
        wire::write(&mut orders, &wire::Order::Hello { epoch_ns, station, bundles: place })?;
        launched.stream.set_read_timeout(Some(SILENCE))?;
        orders.set_write_timeout(Some(SILENCE))?;
        let agent = Agent {
            host: host.into(),
            address,
            orders: Mutex::new(orders),
            child: Mutex::new(launched.child),
            gone: Arc::default(),
            told: Arc::default(),
            bundles,
            leaving: Arc::default(),
        };
        let (gone, told, leaving) = (agent.gone.clone(), agent.told.clone(), agent.leaving.clone());
        let carries = agent.is_converter();
        let (host, mailboxes, stream) = (agent.host.clone(), mailboxes.clone(), launched.stream);
        std::thread::Builder::new().name("listener".into()).spawn(move || {
            let why = listen(stream, &mailboxes, &told);
            *locked(&gone) = Some(why.clone());
            if !leaving.load(Ordering::Relaxed) {
                for mailbox in locked(&mailboxes).values() {
                    if mailbox.agent == index || carries && mailbox.bundled {
                        let _ = mailbox.sender.send(Heard::Gone(host.clone(), why.clone()));
                    }
                }
            }
        })?;
        Ok(agent)
    }

    /// Whether it carries for others.
    fn is_converter(&self) -> bool {
        self.bundles.as_ref().is_some_and(bundles::Place::is_converter)
    }

    /// Gives an order. If the agent is gone, its listener says so to whoever waits for it.
    fn tell(&self, order: &wire::Order) {
        let mut stream = locked(&self.orders);
        let _ = wire::write(&mut *stream, order).and_then(|()| stream.flush());
    }

    /// Why it is gone, with how its process ended if it has.
    fn obituary(&self, why: &str) -> String {
        let mut child = locked(&self.child);
        // Its stream closes a moment before its process can be asked how it ended.
        for _ in 0..50 {
            match child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => return format!("host {}: its agent {}", self.host, Ending(status)),
                Some(Ok(None)) if why == CLOSED => std::thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
        format!("host {} {why}", self.host)
    }

    fn end(&self) {
        if let Some(mut child) = locked(&self.child).take() {
            if locked(&self.told.used).is_none() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

const CLOSED: &str = "has gone away";

/// Passes on what an agent says until it falls silent; why it did.
fn listen(stream: UnixStream, mailboxes: &Mailboxes, told: &Told) -> String {
    let mut words = Reader::new(stream);
    loop {
        let word = match words.read::<Word>() {
            Ok(Some(word)) => word,
            Ok(None) => return CLOSED.into(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return format!("does not answer: silent for {} s", SILENCE.as_secs());
            }
            Err(_) => return CLOSED.into(),
        };
        let id = match &word {
            Word::Alive => continue,
            Word::Used(user, system) => {
                *locked(&told.used) = Some((*user, *system));
                continue;
            }
            Word::Knows(known) => {
                *locked(&told.knows) = Some(*known);
                continue;
            }
            Word::Counted(counts) => {
                *locked(&told.counted) = counts.clone();
                continue;
            }
            // What it should carry it does not: that is the end of it.
            Word::Unable(why) => return format!("cannot bundle: {why}"),
            Word::Ready(id, _) | Word::Progress(id, _) | Word::Done(id, _) | Word::Failed(id, _, _) => *id,
        };
        let to = locked(mailboxes).get(&id).map(|mailbox| mailbox.sender.clone());
        if let Some(mailbox) = to {
            let _ = mailbox.send(Heard::Word(word));
        }
    }
}

/// How far an end has come.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Opening,
    Open(SocketAddr),
    Over,
}

/// One end as its run sees it: the sender, or a receiver by its place in the list.
struct Tracked {
    host: String,
    receiver: Option<usize>,
    state: State,
}

/// One run of one connection under way.
struct Run<'a, 'c> {
    controller: &'c Controller<'a>,
    connection: &'c plan::Connection,
    place: String,
    origin: Instant,
    start: Instant,
    heard: Receiver<Heard>,
    mailbox: Sender<Heard>,
    ends: BTreeMap<EndId, Tracked>,
    outcome: Outcome,
}

impl<'a, 'c> Run<'a, 'c> {
    fn new(
        controller: &'c Controller<'a>,
        connection: &'c plan::Connection,
        place: String,
        origin: Instant,
    ) -> Self {
        let (mailbox, heard) = mpsc::channel();
        let receivers = connection.to.iter().map(|s| (s.host.clone(), None)).collect();
        let outcome = Outcome { receivers, ..Outcome::default() };
        Run {
            controller,
            connection,
            place,
            origin,
            start: origin,
            heard,
            mailbox,
            ends: BTreeMap::new(),
            outcome,
        }
    }

    /// From first order to last report. Whatever fails is said in one line; what was reported by then stays.
    fn conduct(&mut self) -> Result<(), String> {
        let Err(trouble) = self.open().and_then(|sender| self.work(sender)) else { return Ok(()) };
        // The death of an agent explains what the other end complained of.
        Err(self.stop_all().unwrap_or(trouble))
    }

    /// Opens receivers, then the sender, whose id it returns.
    fn open(&mut self) -> Result<EndId, String> {
        let draw = |v: &trunkline_traffic::Variable, what: &str| -> Result<f64, String> {
            let mut stream = self.controller.order.seed.stream(&format!("{} / {what}", self.place));
            Ok(Law::new(v.clone(), 0.0).map_err(|e| e.to_string())?.sample(&mut stream))
        };
        let delay = draw(&self.connection.delay_s, "delay")?;
        let limit = match &self.connection.stop {
            plan::Stop::DurationS(v) => {
                Limit { time: Some(Span::from_seconds(draw(v, "duration")?)), ..Limit::default() }
            }
            plan::Stop::Bytes(v) => {
                Limit { bytes: Some(draw(v, "bytes")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::Messages(v) => {
                Limit { messages: Some(draw(v, "messages")?.round() as u64), ..Limit::default() }
            }
            plan::Stop::FileEnd => Limit::default(),
        };
        let connection = self.connection;
        let mut peer = None;
        let mut port = None;
        for (i, station) in connection.to.iter().enumerate() {
            let role = Role::Receiver { file: self.file_to(&station.host) };
            let id = self.prepare(station, port.or(station.port), role, Some(i))?;
            let address = self.await_open(id)?;
            port = Some(address.port()); // the receivers of a group share its port
            peer.get_or_insert(address);
        }
        let peer = peer.ok_or("the connection has no receiver")?;
        let file = match &connection.test {
            Pattern::File { path, .. } => Some(self.controller.order.folder.join(path)),
            _ => None,
        };
        let sender = self.prepare(&connection.from, None, Role::Sender { peer, limit, file }, None)?;
        self.await_open(sender)?;
        let ready = self.controller.clock.now() + Span::from_ms(2);
        self.start = (self.origin + Span::from_seconds(delay)).max(ready);
        Ok(sender)
    }

    fn file_to(&self, host: &str) -> Option<std::path::PathBuf> {
        let Pattern::File { path, .. } = &self.connection.test else { return None };
        let name = std::path::Path::new(path).file_name()?.to_string_lossy().into_owned();
        let safe = |s: &str| s.replace(['/', '\0'], "_");
        Some(
            self.controller
                .order
                .out
                .join("files")
                .join(safe(&self.place))
                .join(safe(host))
                .join(safe(&name)),
        )
    }

    fn prepare(
        &mut self,
        station: &plan::Station,
        port: Option<u16>,
        role: Role,
        receiver: Option<usize>,
    ) -> Result<EndId, String> {
        let controller = self.controller;
        let id = controller.next_id.fetch_add(1, Ordering::Relaxed);
        let index =
            controller.agents.iter().position(|a| a.host == station.host).expect("a host of the plan");
        let agent = &controller.agents[index];
        let bundled = is_bundled(&self.connection.protocol);
        let mailbox = Mailbox { agent: index, bundled, sender: self.mailbox.clone() };
        locked(&controller.mailboxes).insert(id, mailbox);
        // After the mailbox is in place, so that a death cannot fall between.
        for agent in controller.converters(self.connection).chain([agent]) {
            let gone = locked(&agent.gone).clone();
            if let Some(why) = gone {
                return Err(agent.obituary(&why));
            }
        }
        self.ends.insert(id, Tracked { host: station.host.clone(), receiver, state: State::Opening });
        agent.tell(&wire::Order::Prepare(Box::new(End {
            id,
            place: self.place.clone(),
            token: xxh3_64_with_seed(self.place.as_bytes(), controller.clock.epoch_ns()) as u32,
            seed: controller.order.seed,
            address: address_for(&self.connection.protocol, agent.address),
            port,
            buffer: station.buffer,
            protocol: self.connection.protocol.clone(),
            pattern: self.connection.test.clone(),
            role,
        })));
        Ok(id)
    }

    fn await_open(&mut self, id: EndId) -> Result<SocketAddr, String> {
        let deadline = self.controller.clock.now() + OPENING;
        loop {
            match &self.ends[&id].state {
                State::Open(address) => return Ok(*address),
                State::Over => return Err("stopped before it began".into()),
                State::Opening => self.hear(deadline)?,
            }
        }
    }

    /// Starts everybody, waits for the sender, then for the receivers.
    fn work(&mut self, sender: EndId) -> Result<(), String> {
        let receivers: Vec<EndId> = self.ends.keys().copied().filter(|id| *id != sender).collect();
        for id in receivers.iter().chain([&sender]) {
            self.tell(*id, wire::Order::Start(*id, self.start));
        }
        while self.ends[&sender].state != State::Over {
            self.hear(Instant::MAX)?;
        }
        let sent = self.outcome.sender.as_ref().map_or(0, |s| s.messages);
        receivers.iter().for_each(|id| self.tell(*id, wire::Order::Finish(*id, sent)));
        let deadline = self.controller.clock.now() + FINISHING;
        while self.ends.values().any(|e| e.state != State::Over) {
            self.hear(deadline)?;
        }
        Ok(())
    }

    fn tell(&self, id: EndId, order: wire::Order) {
        self.controller.agent(&self.ends[&id].host).tell(&order);
    }

    /// Hears one word, or that there is trouble.
    fn hear(&mut self, deadline: Instant) -> Result<(), String> {
        match self.heard.recv_timeout(Duration::from_millis(50)) {
            Ok(Heard::Word(word)) => self.note(word)?,
            Ok(Heard::Gone(host, why)) => return Err(self.bury(&host, &why)),
            Err(_) => {}
        }
        let waiting = self.ends.values().find(|e| e.state != State::Over);
        match waiting {
            Some(_) if self.controller.stop().asked() => Err("stopped on request".into()),
            Some(end) if self.controller.clock.now() > deadline => {
                Err(format!("host {} does not answer", end.host))
            }
            _ => Ok(()),
        }
    }

    /// Takes in what an end says; its failure is the run's.
    fn note(&mut self, word: Word) -> Result<(), String> {
        match word {
            Word::Ready(id, address) => self.set(id, State::Open(address)),
            // An agent may pass on a copy while the end says its last word: the last word stays.
            Word::Progress(id, _) if self.ends.get(&id).is_none_or(|e| e.state == State::Over) => {}
            Word::Progress(id, report) => self.keep(id, report),
            Word::Done(id, report) => {
                self.keep(id, report);
                self.set(id, State::Over);
            }
            Word::Failed(id, why, report) => {
                if let Some(report) = report {
                    self.keep(id, report);
                }
                self.set(id, State::Over);
                let host = self.ends.get(&id).map_or("?", |e| e.host.as_str());
                return Err(format!("host {host}: {why}"));
            }
            Word::Alive | Word::Used(..) | Word::Knows(_) | Word::Unable(_) | Word::Counted(_) => {}
        }
        Ok(())
    }

    fn set(&mut self, id: EndId, state: State) {
        if let Some(end) = self.ends.get_mut(&id) {
            end.state = state;
        }
    }

    fn keep(&mut self, id: EndId, report: Report) {
        let receiver = self.ends.get(&id).and_then(|e| e.receiver);
        match (report, receiver) {
            (Report::Sender(s), None) => self.outcome.sender = Some(*s),
            (Report::Receiver(r), Some(i)) => self.outcome.receivers[i].1 = Some(*r),
            _ => {}
        }
    }

    /// Ends what is left, the sender first: what it has under way still arrives and is no loss. Gives the obituary
    /// of an agent that turns out to be gone.
    fn stop_all(&mut self) -> Option<String> {
        let now = self.controller.clock.now();
        let is_sender = |end: &Tracked| end.receiver.is_none();
        self.tell_each(is_sender, wire::Order::Stop);
        let mut death = self.gather(is_sender, now + STOPPING);
        if let Some(sent) = self.outcome.sender.as_ref().map(|s| s.messages) {
            self.tell_each(|_| true, |id| wire::Order::Finish(id, sent));
            death = death.or(self.gather(|_| true, self.controller.clock.now() + DRAINING));
        }
        self.tell_each(|_| true, wire::Order::Stop);
        death.or(self.gather(|_| true, self.controller.clock.now() + STOPPING))
    }

    /// Gives an order to each of these ends that is not over.
    fn tell_each(&self, which: impl Fn(&Tracked) -> bool, order: impl Fn(EndId) -> wire::Order) {
        let ends = self.ends.iter().filter(|(_, e)| e.state != State::Over && which(e));
        ends.for_each(|(id, _)| self.tell(*id, order(*id)));
    }

    /// Hears until these ends are over; the obituary of an agent that is gone.
    fn gather(&mut self, which: impl Fn(&Tracked) -> bool, deadline: Instant) -> Option<String> {
        let mut death = None;
        while self.ends.values().any(|e| e.state != State::Over && which(e))
            && self.controller.clock.now() < deadline
        {
            match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok(Heard::Word(word)) => drop(self.note(word)),
                Ok(Heard::Gone(host, why)) => death = Some(self.bury(&host, &why)),
                Err(_) => {}
            }
        }
        death
    }

    /// Nothing more comes from the ends of this host; why.
    fn bury(&mut self, host: &str, why: &str) -> String {
        self.ends.values_mut().filter(|e| e.host == host).for_each(|e| e.state = State::Over);
        self.controller.agent(host).obituary(why)
    }
}

/// Which LLC station a host is, if it is one. The stations of a run have groups of their own on the loopback, so that no
/// other run's hear them.
fn station(plan: &Plan, host: &str, clock: Clock) -> Option<Place> {
    let stations = llc::stations(plan);
    let number = stations.iter().position(|other| *other == host)? as u8 + 1;
    let [x, y, p, q, ..] = xxh3_64_with_seed(plan.name.as_bytes(), clock.epoch_ns()).to_be_bytes();
    // Below those that systems choose themselves.
    let port = 20_000 + u16::from_be_bytes([p, q]) % 12_000;
    let network = format!("udp:239.{x}.{y}.0:{port}");
    Some(Place { number, stations: stations.len() as u8, network, token: llc::has_token(plan) })
}

fn is_bundled(protocol: &Protocol) -> bool {
    matches!(protocol, Protocol::Bundle { .. })
}

/// A group of the other address family needs an address of that family; only loopback has both for sure.
fn address_for(protocol: &Protocol, address: IpAddr) -> IpAddr {
    match protocol {
        Protocol::Multicast { group, .. } if group.is_ipv6() && address.is_loopback() => {
            IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)
        }
        _ => address,
    }
}
