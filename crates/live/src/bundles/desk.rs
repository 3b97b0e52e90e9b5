//! What bundles at a host, on a thread that ends with the run: a converter, or the interface that all ends of a host share.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use trunkline_bundle::face::{
    CentralFace, CentralOptions, Figures, HostFace, HostOptions, Level1Face, Level1Options, Serve,
};
use trunkline_bundle::host::Refusal;
use trunkline_bundle::wide::alone::Caster;
use trunkline_experiment::plan::BundleFormat;
use trunkline_io::Clock;
use trunkline_run::Meter;
use trunkline_run::bundle::{self, Counts, Label};
use trunkline_run::message::{HEADER, Header, Kind, NotAHeader, Payload};
use trunkline_units::{Instant, Span};

use super::{Lines, Place, Post};
use crate::agent::Voice;
use crate::wire::Word;

/// How often it looks whether it is still wanted.
const LOOK: Span = Span::from_ms(50);
/// Octets, and messages, of all ends of a host that may wait to be taken by its interface; the next message is refused.
pub(crate) const OUTBOX: (usize, usize) = (4 << 20, 4_096);
/// Messages that may come before a receiver knows when its run began; the next are lost.
const EARLY: usize = 4_096;
/// Groups do not leave this machine.
const TTL: u8 = 1;

/// What bundles at a host. Its thread ends when it is [closed](Desk::close), or with the last handle.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Running>);

struct Running {
    place: Place,
    shared: Arc<Shared>,
    /// Of a host in the wide area, of the wide format: it numbers what all its ends send.
    caster: Mutex<Option<Caster>>,
    thread: Mutex<Option<JoinHandle<Counts>>>,
}

/// What the thread shares with the ends.
#[derive(Debug)]
struct Shared {
    leaving: AtomicBool,
    /// Rung when something stands in an outbox that was empty.
    bell: UnixStream,
    outbox: Mutex<Outbox>,
    /// Who hears, by the token of its messages.
    ears: Mutex<BTreeMap<u32, Ear>>,
}

#[derive(Debug, Default)]
struct Outbox {
    letters: VecDeque<Letter>,
    octets: usize,
}

#[derive(Debug)]
struct Letter {
    label: Label,
    body: Vec<u8>,
    tally: Arc<Tally>,
}

/// What became of a sender's messages.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Taken from the outbox.
    pub taken: AtomicU64,
    /// Of these not sent: the level of congestion was too high.
    pub congested: AtomicU64,
    /// Or there was no room.
    pub full: AtomicU64,
}

/// What a message proves to be.
pub(crate) enum Message {
    /// Of another connection.
    Others,
    /// Of this one, and not as it was sent.
    Damaged,
    /// Whole.
    Whole(Header),
}

impl Message {
    /// Looks at all behind the address.
    pub fn read(token: u32, payload: &Payload, bytes: &[u8]) -> Message {
        match Header::decode(token, bytes) {
            Err(NotAHeader::Stranger | NotAHeader::Short) => Message::Others,
            Ok(header)
                if header.kind == Kind::Pattern
                    && header.length as usize == bytes.len()
                    && payload.matches(0, &bytes[HEADER..]) =>
            {
                Message::Whole(header)
            }
            Ok(_) | Err(NotAHeader::Damaged) => Message::Damaged,
        }
    }

    /// Lets a meter count it.
    pub fn count(&self, meter: &mut Meter, at: Instant) {
        match self {
            Message::Others => {}
            Message::Damaged => meter.corrupted(),
            Message::Whole(header) => meter.arrive(header, at),
        }
    }
}

/// A receiver.
#[derive(Debug)]
struct Ear {
    payload: Payload,
    /// None before its run begins.
    meter: Option<Meter>,
    early: Vec<(Instant, Header)>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    /// Takes a message into the meter of whoever it is for.
    fn hear(&self, now: Instant, bytes: &[u8]) {
        let Some((token, _)) = Header::peek(bytes) else { return };
        let mut ears = locked(&self.ears);
        let Some(ear) = ears.get_mut(&token) else { return };
        let message = Message::read(token, &ear.payload, bytes);
        match (&mut ear.meter, &message) {
            (Some(meter), _) => message.count(meter, now),
            (None, Message::Whole(header)) if ear.early.len() < EARLY => ear.early.push((now, *header)),
            (None, _) => {}
        }
    }

    /// Sends what stands in the outbox.
    fn post(&self, face: &mut HostFace) {
        let letters = std::mem::take(&mut *locked(&self.outbox)).letters;
        if letters.is_empty() {
            return;
        }
        for Letter { label, body, tally } in letters {
            match face.post(label.post(&body)) {
                Ok(()) => {}
                Err(Refusal::Congested(_)) => _ = tally.congested.fetch_add(1, Ordering::Relaxed),
                Err(_) => _ = tally.full.fetch_add(1, Ordering::Relaxed),
            }
            tally.taken.fetch_add(1, Ordering::Release);
        }
        face.flush();
    }
}

impl Desk {
    /// Opens what stands at a place, and lets it run.
    ///
    /// # Errors
    /// Why not, in one line.
    pub fn open(place: Place, clock: Clock, voice: &Voice) -> Result<Desk, String> {
        let failed = |e: &dyn std::fmt::Display| e.to_string();
        let (bell, ring) = UnixStream::pair().map_err(|e| failed(&e))?;
        [&bell, &ring].into_iter().try_for_each(|end| end.set_nonblocking(true)).map_err(|e| failed(&e))?;
        let shared = Arc::new(Shared {
            leaving: AtomicBool::new(false),
            bell: ring,
            outbox: Mutex::default(),
            ears: Mutex::default(),
        });
        let mut work = Work { shared: shared.clone(), clock, voice: voice.clone(), told: None };
        let Lines { base, port, .. } = place.lines;
        let lines = place.lines;
        let is_wide = place.format() == BundleFormat::Wide;
        // In the wide format hosts and level 1 are where their bundles come from.
        let own = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        let mut caster = None;
        let thread: Option<Box<dyn FnOnce() -> Counts + Send>> = match place.post.clone() {
            Post::Wide { works, at } => {
                caster = works.caster(at);
                None
            }
            Post::Central { central, wants } => {
                let config = central.config();
                let all = (0..central.level1.len() as u8).map(|at| lines.level1(at));
                let options = CentralOptions {
                    level1: if is_wide { Vec::new() } else { all.collect() },
                    hosts: if is_wide { Vec::new() } else { vec![lines.hosts()] },
                    ttl: TTL,
                    // As in the simulator: what was assigned stays, and so nothing is lost by that.
                    rebalance: Span::ZERO,
                    ..CentralOptions::on_loopback(config.settings, lines.hears_level1(), lines.hears_hosts())
                };
                let face = CentralFace::open(&CentralOptions { config, ..options }, clock)
                    .map_err(|e| failed(&e))?;
                Some(Box::new(move || work.central(face, &wants)))
            }
            Post::Level1 { at, number, works } => {
                let options = Level1Options {
                    settings: works.settings(),
                    number,
                    central: lines.hears_level1(),
                    listen: if is_wide { own } else { lines.level1(at) },
                    interface: Ipv4Addr::LOCALHOST,
                    base,
                    port,
                    ttl: TTL,
                };
                let face = Level1Face::open(&options, clock).map_err(|e| failed(&e))?;
                Some(Box::new(move || work.level1(face)))
            }
            Post::Host { number, works, wants } => {
                let (settings, central) = (works.settings(), lines.hears_hosts());
                let options = HostOptions {
                    listen: if is_wide { own } else { lines.hosts() },
                    ..HostOptions::on_loopback(settings, number, central)
                };
                let mut face = HostFace::open(&options, clock).map_err(|e| failed(&e))?;
                let at = face.watch(&bell).map_err(|e| failed(&e))?;
                Some(Box::new(move || work.host(face, (&bell, at), &wants)))
            }
        };
        let caster = Mutex::new(caster);
        let Some(thread) = thread else {
            return Ok(Desk(Arc::new(Running { place, shared, caster, thread: Mutex::new(None) })));
        };
        let builder = std::thread::Builder::new().name("bundles".into());
        let thread = builder.spawn(thread).map_err(|e| failed(&e))?;
        Ok(Desk(Arc::new(Running { place, shared, caster, thread: Mutex::new(Some(thread)) })))
    }

    /// Ends it; what it counted, if it was there to count.
    pub fn close(&self) -> Option<Counts> {
        self.0.close()
    }

    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Puts a message into the outbox, if there is room.
    pub fn send(&self, label: Label, body: &[u8], tally: &Arc<Tally>) -> bool {
        let shared = &self.0.shared;
        let mut outbox = locked(&shared.outbox);
        let was_empty = outbox.letters.is_empty();
        if outbox.letters.len() >= OUTBOX.1 || outbox.octets + body.len() > OUTBOX.0 {
            return false;
        }
        outbox.octets += body.len();
        outbox.letters.push_back(Letter { label, body: body.to_vec(), tally: tally.clone() });
        drop(outbox);
        if was_empty {
            // A bell that takes no more rings already.
            let _ = (&shared.bell).write(&[0]);
        }
        true
    }

    /// Writes the datagram of a message into the wide area, in the wide format; how many octets. None: it is too long.
    pub fn cast(&self, label: &Label, body: &[u8], into: &mut [u8]) -> Option<usize> {
        locked(&self.0.caster).as_mut()?.cast(&label.post(body), into)
    }

    /// From now on messages with this token are heard.
    pub fn hear(&self, token: u32, payload: Payload) -> Hearing {
        locked(&self.0.shared.ears).insert(token, Ear { payload, meter: None, early: Vec::new() });
        Hearing { desk: self.clone(), token }
    }
}

impl Running {
    fn close(&self) -> Option<Counts> {
        self.shared.leaving.store(true, Ordering::Relaxed);
        let _ = (&self.shared.bell).write(&[0]);
        locked(&self.thread).take()?.join().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.close();
    }
}

/// That messages with a token are heard, until it is dropped.
pub(crate) struct Hearing {
    desk: Desk,
    token: u32,
}

impl Hearing {
    /// The run begins then.
    pub fn begin(&self, start: Instant) {
        if let Some(ear) = locked(&self.desk.0.shared.ears).get_mut(&self.token) {
            let mut meter = Meter::new(start);
            ear.early.drain(..).for_each(|(at, header)| meter.arrive(&header, at));
            ear.meter = Some(meter);
        }
    }

    /// Looks at what has come since it began.
    pub fn look<T>(&self, look: impl FnOnce(&Meter) -> T) -> Option<T> {
        let ears = locked(&self.desk.0.shared.ears);
        ears.get(&self.token)?.meter.as_ref().map(look)
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        locked(&self.desk.0.shared.ears).remove(&self.token);
    }
}

/// What the thread has at hand.
struct Work {
    shared: Arc<Shared>,
    clock: Clock,
    voice: Voice,
    /// What was said last of what is known here.
    told: Option<u64>,
}

impl Work {
    /// Lets a face turn until it is wanted no more; what it counted beside its machine.
    fn turns<F: Serve>(&mut self, face: &mut F, mut turn: impl FnMut(&mut Work, &mut F) -> io::Result<()>) {
        while !self.shared.is_leaving() {
            if let Err(e) = turn(self, face) {
                return self.voice.say(&Word::Unable(e.to_string()));
            }
        }
    }

    fn until(&self) -> Option<Instant> {
        Some(self.clock.now() + LOOK)
    }

    fn tell(&mut self, known: u64) {
        if self.told != Some(known) {
            self.told = Some(known);
            self.voice.say(&Word::Knows(known));
        }
    }

    fn central(&mut self, mut face: CentralFace, wants: &[(u16, u32)]) -> Counts {
        self.turns(&mut face, |work, face| {
            face.turn(work.until())?;
            if work.told != Some(wants.len() as u64) {
                let is_known = |(host, address): &&(u16, u32)| bundle::knows(face.machine(), *host, *address);
                work.tell(wants.iter().filter(is_known).count() as u64);
            }
            Ok(())
        });
        with_sockets(bundle::of_central(face.machine()), &face)
    }

    fn level1(&mut self, mut face: Level1Face) -> Counts {
        let (mut joins, mut joined) = (0, 0);
        self.turns(&mut face, |work, face| {
            face.turn(work.until())?;
            let now = face.memberships().len() as u64;
            joins += now.saturating_sub(joined);
            joined = now;
            work.tell(now);
            Ok(())
        });
        with_sockets(bundle::of_level1(face.machine(), self.clock.now(), joins, joined), &face)
    }

    fn host(&mut self, mut face: HostFace, (bell, at): (&UnixStream, usize), wants: &[u32]) -> Counts {
        let mut wants = wants.iter().peekable();
        self.turns(&mut face, |work, face| {
            // Those that find no room wait for the next turn.
            while wants.next_if(|address| face.join(**address).is_ok()).is_some() {}
            let (shared, clock) = (&work.shared, work.clock);
            let ready = face.turn_with(work.until(), |_, body| shared.hear(clock.now(), body))?;
            if ready.watched(at) {
                let mut rung = [0; 64];
                while (&mut &*bell).read(&mut rung).is_ok_and(|n| n == rung.len()) {}
            }
            shared.post(face);
            Ok(())
        });
        with_sockets(bundle::of_host(face.machine(), self.clock.now()), &face)
    }
}

/// Beside what a machine counted, what became of datagrams at its sockets.
fn with_sockets(mut counts: Counts, face: &impl Serve) -> Counts {
    let mut figures = Figures::default();
    face.figures(&mut figures);
    for (name, of) in [
        ("overflow", "trunkline_converter_overflow_total"),
        ("refused", "trunkline_converter_refused_total"),
        ("unsent", "trunkline_converter_unsent_total"),
    ] {
        counts.insert(format!("bundle.{name}"), figures.total(of));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_experiment::plan::BundleTimers;
    use trunkline_run::bundle::Works;
    use trunkline_units::Seed;

    /// One whose thread never takes anything.
    fn idle() -> (Desk, UnixStream) {
        let (ring, bell) = UnixStream::pair().unwrap();
        ring.set_nonblocking(true).unwrap();
        let shared = Shared {
            leaving: AtomicBool::new(false),
            bell: ring,
            outbox: Mutex::default(),
            ears: Mutex::default(),
        };
        let lines = Lines { site: Ipv4Addr::LOCALHOST, base: Ipv4Addr::new(239, 1, 0, 0), port: 20_000 };
        let (format, timers, deadlines) = (BundleFormat::Classic, BundleTimers::Classic, Default::default());
        let works = Works { format, timers, deadlines, path: 1_472 };
        let place = Place { lines, post: Post::Wide { works, at: 0 } };
        let (shared, caster) = (Arc::new(shared), Mutex::new(None));
        (Desk(Arc::new(Running { place, shared, caster, thread: Mutex::new(None) })), bell)
    }

    #[test]
    fn an_outbox_that_is_full_takes_no_more() {
        let tally = Arc::<Tally>::default();
        let most_of = |octets: usize| {
            let (desk, mut bell) = idle();
            let label = Label { address: 7, priority: true, within: None };
            let taken = (0..10_000).take_while(|_| desk.send(label, &vec![0; octets], &tally)).count();
            drop(desk);
            // Rung once, and once more at the end.
            let mut rung = Vec::new();
            bell.read_to_end(&mut rung).unwrap();
            assert_eq!(rung.len(), 2);
            taken
        };
        assert_eq!((most_of(100), most_of(65_500)), (OUTBOX.1, OUTBOX.0 / 65_500));
    }

    #[test]
    fn what_comes_before_a_run_begins_is_kept_for_it_as_far_as_there_is_room() {
        let (desk, _bell) = idle();
        let payload = Payload::new(Seed(1), "a");
        let message = |token: u32, sequence: u64| {
            let header =
                Header { sequence, sent: Instant::ZERO, length: 40, response: 0, kind: Kind::Pattern };
            let mut bytes = [&[0; HEADER][..], payload.piece(0, 8)].concat();
            header.encode(token, bytes.first_chunk_mut().unwrap());
            bytes
        };
        let hearing = desk.hear(5, payload.clone());
        let shared = &desk.0.shared;
        let early = EARLY as u64 + 10;
        (0..early).for_each(|n| shared.hear(Instant::ZERO, &message(5, n)));
        assert!(hearing.look(|_| ()).is_none());
        hearing.begin(Instant::ZERO);
        // One after that, another's, and one that was damaged.
        shared.hear(Instant::ZERO, &message(5, early));
        shared.hear(Instant::ZERO, &message(6, 0));
        let mut damaged = message(5, early + 1);
        damaged[HEADER + 3] ^= 1;
        shared.hear(Instant::ZERO, &damaged);
        let arrivals = hearing.look(|meter| *meter.arrivals()).unwrap();
        assert_eq!((arrivals.messages, arrivals.corrupted, arrivals.strangers), (EARLY as u64 + 1, 1, 0));
        drop(hearing);
        assert!(locked(&shared.ears).is_empty());
    }
}
