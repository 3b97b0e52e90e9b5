//! [`HostFace`]: the interface of a host to the central converter.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use trunkline_endpoint::{Endpoint, Input, Port, Segment};
use trunkline_io::ports::Ready;
use trunkline_io::{Clock, SocketError, socket};
use trunkline_units::{Instant, Span};

use super::dis::{Dis, DisOptions};
use super::engine::{Engine, Said};
use super::notices::{ANSWERS, Doubts, Kind, Notices, alone, is_central, silent, stranger};
use super::{Error, Figures, Serve, life, own};
use crate::host::{Command, From, Host, Post, Refusal};
use crate::regions::Regions;
use crate::settings::Settings;

/// Every so often what a host wants is told again.
pub const RETELLS: Span = Span::from_s(1);

/// Batches of bundles that it takes in a round: what they hold may wait.
const BUNDLES: usize = 16;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What all agree on.
    pub settings: Settings,
    /// Which host, from 1 on: up to 16 in the classic format.
    pub number: u16,
    /// Where the central converter hears hosts, and from where its bundles come: in the classic format from any port there.
    pub central: SocketAddrV4,
    /// Where bundles for hosts come: an address of this machine, or a broadcast or multicast address. In the wide format that
    /// is for bundles to all; those to this host come where it sends from, a port of its own on `interface`.
    pub listen: SocketAddrV4,
    /// The address of the interface on which a multicast address is joined.
    pub interface: Ipv4Addr,
    /// How often what it wants is told again.
    pub retell: Span,
    /// Plain DIS; none: messages are [taken](HostFace::take).
    pub dis: Option<DisOptions>,
}

/// A host's interface on its sockets: it sends from where it listens, so that the central converter knows who refuses.
///
/// What comes waits until it is [taken](HostFace::take), or goes to programs of DIS, or each [turn](HostFace::turn_with) has
/// it given to a closure straight from the datagram. Here are two hosts and a central converter of the wide format, on
/// free ports of the loopback, in one thread:
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddrV4};
/// use trunkline_bundle::face::{CentralFace, CentralOptions, HostFace, HostOptions, Serve};
/// use trunkline_bundle::{Format, Settings, Wide};
/// use trunkline_io::Clock;
/// use trunkline_units::{Instant, Span};
///
/// let clock = Clock::start();
/// let settings = Settings { format: Format::Wide(Wide::default()), ..Settings::default() };
/// let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
/// let mut central = CentralFace::open(&CentralOptions::on_loopback(settings, any, any), clock)?;
/// let mut host = |number| {
///     let options = HostOptions::on_loopback(settings, number, central.hears_hosts()?);
///     HostFace::open(&options, clock).map_err(Box::<dyn std::error::Error>::from)
/// };
/// let (mut one, mut two) = (host(1)?, host(2)?);
///
/// two.join_range(100_000, 100_999)?;
/// let (mut heard, mut said) = (Vec::new(), 0);
/// while heard.len() < 3 {
///     // Before the central converter knows what host 2 wants nobody does; what has priority waits until it is heard of.
///     if central.machine().statistics().control > 0 && said < 3 {
///         said += 1;
///         one.send(100_000 + said, b"a message")?;
///     }
///     let soon = Some(clock.now() + Span::from_ms(1));
///     central.turn(soon)?;
///     one.turn(soon)?;
///     two.turn_with(soon, |from, body| heard.push((from.address, from.source, body.to_vec())))?;
/// }
/// // Host 1 of site 1.
/// let source = 1 << 16 | 1;
/// assert_eq!(heard[0], (100_001, source, b"a message".to_vec()));
/// assert_eq!(heard.iter().map(|(address, ..)| *address).collect::<Vec<_>>(), [100_001, 100_002, 100_003]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostFace {
    engine: Engine<Host>,
    options: HostOptions,
    /// The socket of bundles to all, if that is another.
    all: Option<usize>,
    dis: Option<Dis>,
    hears: Hears,
    pub(super) regions: Regions,
    refused: u64,
    unsent: u64,
    echo: Echo,
    doubts: Doubts,
}

/// So long after a bundle its refusal may come: the system tells one a second.
const REFUSES: Span = Span::from_ms(1_500);
/// So long one of the classic format may take to be there: until more is sent than its last refusal may be of.
const STARTS: Span = Span::from_s(4);

/// Whether somebody is there who answers nothing: what was sent was not refused.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    /// When a bundle left last, and the first that is known not to be refused by the last refusal.
    sent: Option<Instant>,
    first: Option<Instant>,
    refused: Option<Instant>,
    /// Whether one was not refused for as long as that may take, before a refusal.
    was_there: bool,
}

impl Echo {
    fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
        if self.is_behind_refusals(now) {
            self.first.get_or_insert(now);
        }
    }

    fn refused(&mut self, now: Instant) {
        // What was sent last, since a refusal may be read late.
        let known = |first| self.sent.is_some_and(|sent| sent >= first + REFUSES);
        self.was_there |= self.first.is_some_and(known);
        self.first = None;
        self.refused = Some(now);
    }

    fn is_behind_refusals(&self, sent: Instant) -> bool {
        self.refused.is_none_or(|refused| sent > refused + REFUSES)
    }

    /// Whether somebody is or was there; none: nothing was sent.
    fn is_heard(&self) -> Option<bool> {
        self.sent.map(|sent| self.was_there || self.is_behind_refusals(sent))
    }
}

/// Whom it hears.
#[derive(Debug)]
struct Hears {
    settings: Settings,
    central: SocketAddrV4,
    /// Bundles from others.
    strangers: u64,
    notices: Notices,
}

impl Hears {
    /// Whether a bundle is from the central converter.
    fn is_right(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        self.notices.look(&self.settings, from, bytes, false);
        let is_right = is_central(&self.settings, self.central, from);
        if !is_right {
            self.strangers += 1;
            self.notices.once(Kind::Stranger, || stranger(self.central, from));
        }
        is_right
    }
}

impl HostOptions {
    /// Without DIS, on a free port of the loopback.
    pub fn on_loopback(settings: Settings, number: u16, central: SocketAddrV4) -> HostOptions {
        let (listen, interface) = (SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), Ipv4Addr::LOCALHOST);
        HostOptions { settings, number, central, listen, interface, retell: RETELLS, dis: None }
    }
}

impl HostFace {
    /// Opens its socket.
    ///
    /// # Errors
    /// Why it did not open.
    pub fn open(options: &HostOptions, clock: Clock) -> Result<HostFace, Error> {
        let HostOptions { settings, listen: at, interface, .. } = options;
        let machine =
            Host::with_life(options.number, life(clock.unix()), *settings).retelling(options.retell);
        let mut engine = Engine::new(machine, clock)?;
        let has_two = settings.wide().is_some() && shared_on(*at.ip(), *interface).is_some();
        if has_two {
            engine.ports.add(own(SocketAddrV4::new(*interface, 0))?)?;
        }
        let hears = engine.ports.add(listen(*at, *interface)?)?;
        let dis = options.dis.as_ref();
        let dis = dis.map(|dis| Dis::open(dis, settings, *interface, &mut engine.ports)).transpose()?;
        let all = has_two.then_some(hears);
        let notices = Notices::default();
        let hears = Hears { settings: *settings, central: options.central, strangers: 0, notices };
        let (options, regions, echo) = (options.clone(), Regions::default(), Echo::default());
        let doubts = Doubts::default();
        Ok(HostFace { engine, options, all, dis, hears, regions, refused: 0, unsent: 0, echo, doubts })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Why not.
    pub fn send(&mut self, address: u32, body: &[u8]) -> Result<(), Refusal> {
        let priority = self.options.settings.is_priority(address);
        self.post(Post { address, priority, within: None, body })
    }

    /// Sends a message, with all that can be said of it.
    ///
    /// # Errors
    /// Why not.
    pub fn post(&mut self, post: Post<'_>) -> Result<(), Refusal> {
        self.engine.command(Command::Post(post))
    }

    /// Wants the messages with an address.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub fn join(&mut self, address: u32) -> Result<(), Refusal> {
        self.join_range(address, address)
    }

    /// Wants them no more.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub fn leave(&mut self, address: u32) -> Result<(), Refusal> {
        self.leave_range(address, address)
    }

    /// Wants the messages with these addresses. In the classic format the central converter is told each address: of a range those
    /// that were not wanted yet, one alone in any case.
    ///
    /// # Errors
    /// [`Refusal::Full`]: what found room of a range in the classic format is wanted, and the rest can be asked for when that has
    /// [left](HostFace::flush), with the same range. Between two there is room for 16,575 addresses, if nothing else waits.
    /// [`Refusal::Format`]: the classic format does not have all of these addresses; none of them is wanted. [`Refusal::Range`].
    pub fn join_range(&mut self, first: u32, last: u32) -> Result<(), Refusal> {
        self.want(first, last, true)
    }

    /// Wants them no more. In the classic format, which acknowledges nothing, what is left is told once more within a second; and
    /// each time that a range is left again of which nothing is wanted.
    ///
    /// # Errors
    /// As [`HostFace::join_range`].
    pub fn leave_range(&mut self, first: u32, last: u32) -> Result<(), Refusal> {
        self.want(first, last, false)
    }

    fn want(&mut self, first: u32, last: u32, joins: bool) -> Result<(), Refusal> {
        let settings = self.options.settings;
        if settings.wide().is_some() {
            return self.engine.command(wish(&settings, first, last, joins)?);
        }
        // All of it or none.
        wish(&settings, last, last, joins)?;
        let mut changed = false;
        for one in first..=last {
            // What is so already takes no room from the rest, which may be asked for again and again until it finds some.
            if first == last || self.engine.machine.wants(one) != joins {
                self.engine.command(wish(&settings, one, one, joins)?)?;
                changed = true;
            }
        }
        match (u16::try_from(first), u16::try_from(last)) {
            (Ok(first), Ok(last)) if !joins && !changed => {
                self.engine.command(Command::DropAgain { first, last })
            }
            _ => Ok(()),
        }
    }

    /// Takes no more than so many ordinary messages a second from now on; none: any. Of the wide format.
    ///
    /// # Errors
    /// [`Refusal::Format`].
    pub fn saturate(&mut self, messages: Option<u32>) -> Result<(), Refusal> {
        self.engine.command(Command::Saturate(messages))
    }

    /// Takes the oldest message that came, with what is known of it.
    pub fn receive(&mut self, into: &mut Vec<u8>) -> Option<From> {
        let mut from = None;
        let receive = Command::Receive { into, from: &mut from };
        // It refuses none, and has nothing to say.
        let _ = self.engine.machine.handle(self.engine.clock.now(), Input::Command(receive));
        from
    }

    /// Takes the body of the oldest message that came; whether there was one.
    pub fn take(&mut self, into: &mut Vec<u8>) -> bool {
        self.receive(into).is_some()
    }

    /// What it agrees on with all others.
    pub fn settings(&self) -> &Settings {
        &self.options.settings
    }

    /// When it wants a [turn](Serve::turn) even if nothing comes; none: never. A message that was sent or wanted since the last
    /// turn, and did not [leave](HostFace::flush), wants one at once.
    pub fn deadline(&self) -> Option<Instant> {
        self.engine.deadline()
    }

    /// Whether the central converter was ever there, as far as that can be told: in the wide format, whether it gave a session. The
    /// classic one answers nothing: whether a bundle of it came, or something that was said was not refused.
    pub fn met_central(&self) -> bool {
        let statistics = self.engine.machine.statistics();
        if self.is_wide() {
            return statistics.sessions > 0;
        }
        statistics.bundles > 0 || self.echo.is_heard().unwrap_or(self.unsent == 0)
    }

    fn is_wide(&self) -> bool {
        self.options.settings.wide().is_some()
    }

    /// Its time.
    pub fn clock(&self) -> Clock {
        self.engine.clock
    }

    /// The machine, to ask it something.
    pub fn machine(&self) -> &Host {
        &self.engine.machine
    }

    /// A [turn](Serve::turn) in which each message that comes is given to `each` as soon as it is read, with what is known of it,
    /// and its body as it stands in the datagram: it is neither copied nor kept. So nothing can be taken, and programs of DIS
    /// get nothing. What waits to be taken from turns before goes first. All is counted as it is without.
    ///
    /// # Errors
    /// As a turn.
    pub fn turn_with(
        &mut self,
        until: Option<Instant>,
        mut each: impl FnMut(From, &[u8]),
    ) -> io::Result<Ready> {
        let mut body = Vec::new();
        while let Some(from) = self.receive(&mut body) {
            each(from, &body);
        }
        let ready = self.begin(until)?;
        for socket in self.sockets(ready) {
            let (machine, clock) = (&mut self.engine.machine, self.engine.clock);
            let (hears, mut now) = (&mut self.hears, None);
            self.engine.ports.receive(socket, BUNDLES, |came, bytes| {
                let now = *now.get_or_insert_with(|| clock.now());
                let bundles = Segment::frames(came.segment, bytes);
                bundles
                    .filter(|bytes| hears.is_right(came.from, bytes))
                    .for_each(|bytes| machine.hear(now, bytes, &mut each));
            })?;
        }
        self.hear_programs(ready)?;
        if let Some(dis) = &mut self.dis {
            dis.follow(&mut self.engine.machine, self.engine.clock.now());
        }
        self.doubt();
        self.flush();
        Ok(ready)
    }

    /// Waits, and finds out who refused.
    fn begin(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        const CENTRAL: Port = Host::CENTRAL;
        let until = until.into_iter().chain(self.doubts.deadline()).min();
        let ready = self.engine.wait(until)?;
        if ready.refused(usize::from(CENTRAL.0)) {
            let refused = self.engine.refusals(CENTRAL).count() as u64;
            self.refused += refused;
            if refused > 0 {
                self.echo.refused(self.engine.clock.now());
                // It refuses none.
                let _ = self.engine.command(Command::Refused);
            }
        }
        if let Some(all) = self.all.filter(|all| ready.refused(*all)) {
            // Nothing was sent from there; untaken it would wake this thread again and again.
            while self.engine.ports.refused(all).is_some() {}
        }
        Ok(ready)
    }

    /// Tells, when all that came was heard, whether nobody has answered for too long.
    fn doubt(&mut self) {
        if self.doubts.are_due(|| self.engine.clock.now()) && !self.met_central() {
            let flags = if self.is_wide() { "--central, --site" } else { "--central" };
            self.hears.notices.once(Kind::Alone, || alone(self.options.central, flags));
        }
        if self.engine.machine.statistics().lonely > 0 {
            self.hears.notices.once(Kind::Silent, || silent(self.options.central));
        }
    }

    /// The sockets on which bundles came.
    fn sockets(&self, ready: Ready) -> impl Iterator<Item = usize> + use<> {
        let all = [Some(usize::from(Host::CENTRAL.0)), self.all];
        all.into_iter().flatten().filter(move |socket| ready.has(*socket))
    }

    /// Takes what programs of DIS said.
    fn hear_programs(&mut self, ready: Ready) -> io::Result<()> {
        let Some(dis) = &mut self.dis else { return Ok(()) };
        for port in [dis.hears(), dis.says()] {
            while ready.refused(port) && self.engine.ports.refused(port).is_some() {
                self.refused += 1;
            }
        }
        if ready.has(dis.hears()) {
            dis.receive(&mut self.engine.ports, &mut self.engine.machine, self.engine.clock)?;
        }
        Ok(())
    }

    /// Lets what was said leave.
    pub fn flush(&mut self) {
        let patience = if self.is_wide() { ANSWERS } else { STARTS };
        let HostFace { engine, options, unsent, echo, doubts, .. } = self;
        let now = engine.clock.now();
        engine.drain(|ports, said| {
            let Said::Frame(transmit, bytes) = said else { return 0 };
            let sent = ports.send(usize::from(transmit.port.0), options.central.into(), bytes);
            *unsent += u64::from(!sent);
            if sent {
                echo.sent(now);
                doubts.asked(now, patience);
            }
            usize::from(!sent)
        });
    }
}

/// To want addresses or no longer, as the format says it: in the classic one an address alone.
pub(super) fn wish(
    settings: &Settings,
    first: u32,
    last: u32,
    joins: bool,
) -> Result<Command<'static>, Refusal> {
    let classic = |address| u16::try_from(address).map_err(|_| Refusal::Format);
    Ok(match (settings.wide(), joins) {
        (Some(_), true) => Command::JoinRange { first, last },
        (Some(_), false) => Command::DropRange { first, last },
        (None, _) if first != last => return Err(Refusal::Format),
        (None, true) => Command::Join(classic(first)?),
        (None, false) => Command::Drop(classic(first)?),
    })
}

/// A socket that hears what is sent to an address, alone or with others.
pub(super) fn listen(at: SocketAddrV4, interface: Ipv4Addr) -> Result<UdpSocket, SocketError> {
    match shared_on(*at.ip(), interface) {
        Some(on) => socket::shared_receiver(at, on, &super::options()),
        None => own(at),
    }
}

/// Whether an address is one that several may hear: broadcast or multicast.
pub fn is_shared(ip: Ipv4Addr) -> bool {
    shared_on(ip, Ipv4Addr::LOCALHOST).is_some()
}

/// The address of this machine by which one speaks to all who share a broadcast or multicast address; none if it is neither.
pub(super) fn shared_on(ip: Ipv4Addr, interface: Ipv4Addr) -> Option<Ipv4Addr> {
    match ip.is_multicast() || ip.is_broadcast() {
        true => Some(interface),
        false => socket::broadcast_on(ip),
    }
}

/// Readable when something came for a [turn](Serve::turn): for a wait of one's own, until its [deadline](HostFace::deadline).
impl AsFd for HostFace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.engine.ports.as_fd()
    }
}

impl Serve for HostFace {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.engine.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        let ready = self.begin(until)?;
        for socket in self.sockets(ready) {
            let hears = &mut self.hears;
            self.engine
                .receive_by(Host::CENTRAL, socket, BUNDLES, |came, bytes| hears.is_right(came.from, bytes))?;
        }
        self.hear_programs(ready)?;
        if let Some(dis) = &mut self.dis {
            let now = self.engine.clock.now();
            dis.hand_over(&self.engine.ports, &mut self.engine.machine, now);
            dis.follow(&mut self.engine.machine, now);
        }
        self.doubt();
        self.flush();
        Ok(ready)
    }

    /// Wants nothing any more: nobody else tells the central converter so. In the wide format it also says that it ends, once
    /// what it said is heard; if it is not soon, nobody is there to hear it.
    fn end(&mut self) -> io::Result<()> {
        self.dis = None;
        if self.is_wide() {
            let until = self.engine.clock.now() + crate::wide::LONELY;
            while self.engine.machine.is_saying() && self.engine.clock.now() < until {
                self.turn(Some(until))?;
            }
            // It refuses none.
            let _ = self.engine.command(Command::Bye);
            self.flush();
            return Ok(());
        }
        while self.engine.command(Command::DropAll).is_err() {
            self.turn(None)?;
        }
        while self.engine.machine.is_saying() {
            self.turn(None)?;
        }
        Ok(())
    }

    fn bound(&self) -> String {
        let HostOptions { number, central, listen, .. } = &self.options;
        let at = self.engine.ports.socket(usize::from(Host::CENTRAL.0)).local_addr();
        let at = at.map_or_else(|_| listen.to_string(), |at| at.to_string());
        let dis = self.dis.as_ref().map(|dis| format!(", {}", dis.bound(&self.engine.ports)));
        format!("host {number} on {at}, central {central}{}", dis.unwrap_or_default())
    }

    fn notice(&mut self) -> Option<String> {
        self.hears.notices.take()
    }

    fn figures(&self, into: &mut Figures) {
        let machine = &self.engine.machine;
        let s = machine.statistics();
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "from_central")], s.bundles);
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "to_central")], s.bundles_sent);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "received")], s.received);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "sent")], s.sent);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "for_others")], s.others);
        into.count(super::MALFORMED, super::OF_MALFORMED, &[("way", "from_central")], s.malformed);
        into.count(super::STRANGERS, super::OF_STRANGERS, &[], self.hears.strangers);
        into.drops("host", &s.drops);
        let what = "Joins and drops told again to those who may have forgotten.";
        into.count("trunkline_converter_retold_total", what, &[], s.retold);
        super::of_system(into, self.refused, self.unsent);
        super::of_buffers(into, &self.engine.ports, &["central"]);
        into.gauge(
            super::LEVEL,
            super::OF_LEVEL,
            &[("side", "told")],
            machine.level(self.engine.clock.now()).into(),
        );
        let what = "Message addresses that hosts want.";
        let host = self.options.number.to_string();
        into.gauge("trunkline_converter_wanted", what, &[("host", &host)], machine.joined() as u64);
        if self.is_wide() {
            into.count(super::SESSIONS, super::OF_SESSIONS, &[("of", "central")], s.sessions);
            into.count(super::SILENT, super::OF_SILENT, &[("of", "central")], s.lonely);
            into.count(super::LOST, super::OF_LOST, &[("from", "central")], s.lost);
            into.count(super::RESENT, super::OF_RESENT, &[], s.repeated);
            super::of_numbers(into, &s.path, s.stale);
        }
        if let Some(dis) = &self.dis {
            dis.figures(into);
        }
        super::of_gathering(into, &self.engine.ports, &["central"], self.options.interface);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is known in the end of a host that sends at these times and is refused at those, in milliseconds.
    fn heard(sent: &[u64], refused: &[u64]) -> Option<bool> {
        let at = |ms: u64| Instant::ZERO + Span::from_ms(ms);
        let mut events: Vec<(u64, bool)> = sent.iter().map(|ms| (*ms, false)).collect();
        events.extend(refused.iter().map(|ms| (*ms, true)));
        events.sort_unstable();
        let mut echo = Echo::default();
        for (ms, refused) in events {
            if refused { echo.refused(at(ms)) } else { echo.sent(at(ms)) }
        }
        echo.is_heard()
    }

    #[test]
    fn who_answers_nothing_was_there_if_what_was_sent_was_once_not_refused() {
        let often: Vec<u64> = (0..50).map(|n| n * 100).collect();
        assert_eq!(heard(&[], &[]), None);
        assert_eq!(heard(&often, &[]), Some(true));
        assert_eq!(heard(&[0], &[2_000]), Some(false), "a refusal that was read late");
        assert_eq!(heard(&often, &[1, 1_001, 2_001, 3_001, 4_001]), Some(false));
        assert_eq!(heard(&often, &[1, 1_001]), Some(true), "it started later");
        assert_eq!(heard(&often, &[4_001]), Some(true), "it ended before the host");
        assert_eq!(heard(&often, &[1, 4_001]), Some(true), "it started later and ended before the host");
        assert_eq!(heard(&[0, 5_000, 10_000], &[1, 5_001, 10_001]), Some(false), "seldom, and each refused");
    }
}
