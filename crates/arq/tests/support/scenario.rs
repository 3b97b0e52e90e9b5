//! Two ends that talk as planned, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use trunkline_arq::{
    Buffer, CloseReason, Command, Config, ConnectionId, Event, EventKind, Node, Options, ReceiveStatus,
    Refusal,
};
use trunkline_endpoint::Port;
use trunkline_endpoint::pair::{Ended, PEER_B, Pair};
use trunkline_units::{Instant, Seed, Span, Stream};

use super::host::{Host, Order};
use super::plan::{Plan, Reader, Upset};

/// No new frame, message or event for so long is a deadlock: at half of all frames lost each way, and three seconds
/// from one try to the next, chances are below 1e-24 that the path is at fault.
const DEADLOCK: Span = Span::from_s(600);
/// What stands still without a deadline is given so many rounds.
const STILL: u32 = 2000;
/// Frames that both ends may send, all in all.
const MOST_FRAMES: u64 = 5_000_000;

/// One connection as one end has it.
struct Session {
    id: ConnectionId,
    open: bool,
    /// By channel: messages sent; messages received and, of the next, bytes.
    sent: BTreeMap<u16, u64>,
    got: BTreeMap<u16, (u64, usize)>,
    /// The beginning of a message of which a part was handed out.
    partial: BTreeMap<u16, Buffer>,
    /// Connections of the other end that this is not, for something that came is not theirs.
    not: BTreeSet<usize>,
    readable: BTreeSet<u16>,
    full: BTreeSet<u16>,
    closing: bool,
    finished: bool,
    closed: Option<CloseReason>,
    /// This end was restarted, or has forgotten it.
    gone: bool,
}

impl Session {
    fn new(id: ConnectionId) -> Session {
        Session {
            id,
            open: false,
            sent: BTreeMap::new(),
            got: BTreeMap::new(),
            partial: BTreeMap::new(),
            not: BTreeSet::new(),
            readable: BTreeSet::new(),
            full: BTreeSet::new(),
            closing: false,
            finished: false,
            closed: None,
            gone: false,
        }
    }
}

/// Where two ends talk: over a simulated path, or over sockets.
pub trait Stage {
    fn order(&mut self, end: usize, order: Order<'_>) -> Result<(), Refusal>;
    fn host(&self, end: usize) -> &Host;
    fn take_events(&mut self, end: usize) -> Vec<(Instant, Event)>;
    fn run(&mut self, span: Span) -> Ended;
    fn now(&self) -> Instant;
}

impl Stage for Pair<Host, Host> {
    fn order(&mut self, end: usize, order: Order<'_>) -> Result<(), Refusal> {
        if end == 0 { self.command_a(order) } else { self.command_b(order) }
    }

    fn host(&self, end: usize) -> &Host {
        if end == 0 { self.a() } else { self.b() }
    }

    fn take_events(&mut self, end: usize) -> Vec<(Instant, Event)> {
        if end == 0 { self.take_events_a() } else { self.take_events_b() }
    }

    fn run(&mut self, span: Span) -> Ended {
        Pair::run(self, span)
    }

    fn now(&self) -> Instant {
        Pair::now(self)
    }
}

/// The two ends of a plan.
pub fn hosts(plan: &Plan) -> [Host; 2] {
    [0, 1].map(|end| {
        let (node, place) = (node(plan, end, 0), ["path a", "path b"][end]);
        Host::new(node, plan.faults[end], plan.carries[end].clone(), plan.seed, place)
    })
}

struct ScenarioRun<'a, S> {
    plan: &'a Plan,
    stage: S,
    draw: Stream,
    sessions: [Vec<Session>; 2],
    left: [u64; 2],
    upset: Option<(Upset, usize)>,
    /// The session of the other end that must learn of it.
    bereaved: Option<(usize, usize)>,
    events: u64,
    progress: (u64, Instant, u32),
    restarts: u64,
}

/// What a run did, for a sum over many.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScenarioResult {
    pub messages: u64,
    pub frames: u64,
    pub sessions: u64,
    /// How often an end found that its path carries less than it did.
    pub shrunk: u64,
    /// Frames that were lost and rebuilt.
    pub rebuilt: u64,
}

/// Plays a plan over a simulated path; what went wrong, if anything.
pub fn play(plan: &Plan) -> Result<ScenarioResult, String> {
    let [a, b] = hosts(plan);
    let mut pair = Pair::new(a, b, Seed(plan.seed));
    pair.impair(plan.lines[0], plan.lines[1]);
    play_on(plan, pair)
}

/// Plays a plan; what went wrong, if anything.
pub fn play_on(plan: &Plan, stage: impl Stage) -> Result<ScenarioResult, String> {
    let played = catch_unwind(AssertUnwindSafe(|| ScenarioRun::new(plan, stage).play()));
    played.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or("a panic without words".into(), |text| (*text).into()),
    })
}

/// Plays a plan; if it fails, looks for a simpler one that does as well, and panics with both.
pub fn prove(plan: &Plan) -> ScenarioResult {
    let why = match play(plan) {
        Ok(did) => return did,
        Err(why) => why,
    };
    let (mut simplest, mut reason) = (plan.clone(), why.clone());
    let mut tries = 0;
    'simpler: loop {
        for simpler in simplest.simpler() {
            tries += 1;
            if tries > 1000 {
                break 'simpler;
            }
            if let Err(why) = play(&simpler) {
                (simplest, reason) = (simpler, why);
                continue 'simpler;
            }
        }
        break;
    }
    panic!("seed {}: {why}\n{plan:?}\n\nsimplest that fails: {reason}\n{simplest:?}", plan.seed);
}

/// The length of a message: follows from what it is, but not from its connection.
fn length(plan: &Plan, end: usize, channel: u16, number: u64) -> usize {
    let mut draw = Stream::clone(&Seed(number ^ u64::from(channel) << 32).stream(["a", "b"][end]));
    let least = u64::from(plan.readers[1 - end] == Reader::Both);
    let length = match draw.below(4) {
        0 => draw.below(20),
        1 => draw.below(200.min(plan.longest)),
        _ => draw.below(plan.longest),
    };
    length.max(least) as usize
}

/// Its content: follows from what it is and from the connection, as its sender counts them.
fn fill(end: usize, session: usize, channel: u16, number: u64, from: usize, into: &mut [u8]) {
    let key = (end as u64) << 60 | (session as u64) << 48 | u64::from(channel) << 32 | number;
    let key = (key ^ 0x5DEE_CE66).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for (at, byte) in (from..).zip(into) {
        let word = (key ^ (at / 8) as u64).wrapping_mul(0xD134_2543_DE82_EF95);
        *byte = (word >> (8 * (at % 8))) as u8;
    }
}

impl<'a, S: Stage> ScenarioRun<'a, S> {
    fn new(plan: &'a Plan, stage: S) -> Self {
        ScenarioRun {
            plan,
            stage,
            draw: Seed(plan.seed).stream("acts"),
            sessions: [Vec::new(), Vec::new()],
            left: plan.total,
            upset: plan.upset,
            bereaved: None,
            events: 0,
            progress: (0, Instant::ZERO, 0),
            restarts: 0,
        }
    }

    fn order(&mut self, end: usize, order: Order<'_>) -> Result<(), Refusal> {
        self.stage.order(end, order)
    }

    fn command(&mut self, end: usize, command: Command<'_>) -> Result<(), Refusal> {
        self.order(end, Order::Node(command))
    }

    fn host(&self, end: usize) -> &Host {
        self.stage.host(end)
    }

    fn open(&mut self) {
        let mut id = ConnectionId::default();
        let options: &Options = &self.plan.options[0];
        self.command(0, Command::Open { peer: PEER_B, options, id: &mut id })
            .expect("there is room for one more");
        self.sessions[0].push(Session::new(id));
    }

    fn play(mut self) -> ScenarioResult {
        self.open();
        let sum = self.plan.total[0] + self.plan.total[1];
        let upset_at = self.draw.below(sum + 1);
        let mut leaps: Vec<u64> = (0..self.plan.leaps).map(|_| self.draw.below(sum + 1)).collect();
        loop {
            let left = self.left[0] + self.left[1];
            if self.upset.is_some() && left <= upset_at {
                self.upset();
            }
            let due = leaps.iter().position(|at| left <= *at);
            if due.map(|due| leaps.swap_remove(due)).is_some() {
                let end = self.draw.below(2) as usize;
                let span = Span::from_s(3600 + self.draw.below(4 * 3600));
                let _ = self.order(end, Order::Leap(span));
            }
            self.send();
            let longest = if left > 0 { 50_000 } else { 200_000 };
            let span = Span::from_us(self.draw.below(longest));
            let ended = self.stage.run(span);
            self.listen();
            self.read();
            self.close();
            if self.is_done() {
                break;
            }
            self.check_progress(ended);
        }
        self.check()
    }

    /// The newest connection of an end, if it stands.
    fn standing(&self, end: usize) -> Option<usize> {
        let last = self.sessions[end].len().checked_sub(1)?;
        let session = &self.sessions[end][last];
        (session.open && session.closed.is_none() && !session.gone).then_some(last)
    }

    fn send(&mut self) {
        for end in 0..2 {
            let Some(at) = self.standing(end) else { continue };
            for _ in 0..self.draw.below(10).min(self.left[end]) {
                let channel = (self.draw.below(self.plan.channels) * 3277) as u16;
                let hand_over = self.draw.chance(0.5);
                let Session { id, ref sent, ref full, .. } = self.sessions[end][at];
                if full.contains(&channel) {
                    continue;
                }
                let number = sent.get(&channel).copied().unwrap_or_default();
                if self.plan.priorities && number == 0 {
                    let priority = self.draw.below(10) as u8;
                    self.command(end, Command::Prioritize { id, channel, priority }).expect("it stands");
                }
                let mut bytes = Buffer::new();
                bytes.resize(length(self.plan, end, channel, number), 0);
                fill(end, at, channel, number, 0, &mut bytes);
                let given = match hand_over {
                    true => self.command(end, Command::SendOwned { id, channel, message: &mut bytes }),
                    false => self.command(end, Command::Send { id, channel, bytes: &bytes }),
                };
                let session = &mut self.sessions[end][at];
                match given {
                    Ok(()) => {
                        session.sent.insert(channel, number + 1);
                        self.left[end] -= 1;
                    }
                    Err(Refusal::Full) => {
                        session.full.insert(channel);
                    }
                    // Over, and the user does not know yet.
                    Err(Refusal::Closed) => break,
                    Err(other) => panic!("a message was refused: {other}"),
                }
            }
        }
    }

    fn listen(&mut self) {
        let events = [0, 1].map(|end| self.stage.take_events(end));
        for (end, events) in events.into_iter().enumerate() {
            for (_, Event { id, kind: news }) in events {
                self.events += 1;
                if let (EventKind::Opened { .. }, 1) = (news, end) {
                    self.sessions[end].push(Session::new(id));
                }
                // The newest with this number: a restarted node begins them anew.
                let of_id = self.sessions[end].iter_mut().rev().find(|s| s.id == id && !s.gone);
                let session = of_id.unwrap_or_else(|| panic!("{news:?} of an unknown connection"));
                assert!(session.closed.is_none(), "{news:?} after {:?}", session.closed);
                match news {
                    EventKind::Opened { .. } => assert!(!std::mem::replace(&mut session.open, true)),
                    EventKind::Readable { channel } => {
                        assert!(session.readable.insert(channel), "reported twice")
                    }
                    EventKind::Writable { channel } => {
                        assert!(session.full.remove(&channel), "it was not full")
                    }
                    EventKind::Finished => session.finished = true,
                    EventKind::Closed { reason: why } => self.closed(end, id, why),
                }
            }
        }
    }

    fn closed(&mut self, end: usize, id: ConnectionId, why: CloseReason) {
        let sessions = &mut self.sessions[end];
        let session = sessions.iter_mut().rev().find(|s| s.id == id && !s.gone).expect("looked up before");
        session.closed = Some(why);
        if why == CloseReason::Completed {
            assert!(session.finished && session.closing, "over before both have said so");
        } else if end == 0 {
            self.reopen();
        }
    }

    /// Forgets what is over at the first end, and opens another connection.
    fn reopen(&mut self) {
        self.restarts += 1;
        assert!(self.restarts < 20, "connections end and end: {:?}", self.sessions[0].last().unwrap().closed);
        self.read_rest(0);
        if self.draw.chance(0.5) {
            let last = self.sessions[0].last_mut().expect("one was opened");
            let id = last.id;
            if !std::mem::replace(&mut last.gone, true) {
                self.command(0, Command::Forget { id }).expect("it was there");
            }
        }
        self.open();
    }

    fn read_rest(&mut self, end: usize) {
        let Some(last) = self.sessions[end].len().checked_sub(1) else { return };
        if self.sessions[end][last].open {
            for channel in std::mem::take(&mut self.sessions[end][last].readable) {
                while self.take(end, last, channel) {}
            }
        }
    }

    fn read(&mut self) {
        for end in 0..2 {
            let first = self.sessions[end].len().saturating_sub(2);
            for at in first..self.sessions[end].len() {
                let channels: Vec<u16> = self.sessions[end][at].readable.iter().copied().collect();
                for channel in channels {
                    let attention = self.plan.attention[end];
                    while !self.sessions[end][at].gone && self.draw.chance(attention) {
                        if !self.take(end, at, channel) {
                            self.sessions[end][at].readable.remove(&channel);
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Takes something of a channel; whether there may be more.
    fn take(&mut self, end: usize, at: usize, channel: u16) -> bool {
        let bytes = match self.plan.readers[end] {
            Reader::Messages => false,
            Reader::Bytes => true,
            // Of a message that is handed out in parts, each part as it began.
            Reader::Both => self.draw.chance(0.5) && !self.sessions[end][at].partial.contains_key(&channel),
        };
        let id = self.sessions[end][at].id;
        if bytes {
            let mut into = vec![0; 1 + self.draw.below(3000) as usize];
            let mut read = 0;
            self.command(end, Command::Read { id, channel, buffer: &mut into, read: &mut read })
                .expect("it is there");
            self.check_bytes(end, at, channel, &into[..read]);
            return read == into.len();
        }
        let mut into = self.sessions[end][at].partial.remove(&channel).unwrap_or_default();
        let mut taken = ReceiveStatus::Empty;
        let before = into.len();
        self.command(end, Command::Receive { id, channel, buffer: &mut into, status: &mut taken })
            .expect("it is there");
        match taken {
            ReceiveStatus::Empty => {
                assert_eq!(into.len(), before, "nothing is nothing");
                if before > 0 {
                    self.sessions[end][at].partial.insert(channel, into);
                }
                false
            }
            ReceiveStatus::Partial => {
                assert!(into.len() > before, "a part is something");
                self.sessions[end][at].partial.insert(channel, into);
                true
            }
            ReceiveStatus::Complete => {
                let (number, read) = self.sessions[end][at].got.get(&channel).copied().unwrap_or_default();
                let all = length(self.plan, 1 - end, channel, number);
                assert_eq!(read + into.len(), all, "the length of message {number} of channel {channel}");
                self.check_content(end, at, channel, (number, read), &into);
                self.sessions[end][at].got.insert(channel, (number + 1, 0));
                true
            }
        }
    }

    fn check_bytes(&mut self, end: usize, at: usize, channel: u16, mut bytes: &[u8]) {
        let (mut number, mut read) = self.sessions[end][at].got.get(&channel).copied().unwrap_or_default();
        let all = |number| length(self.plan, 1 - end, channel, number);
        while !bytes.is_empty() {
            let (own, rest) = bytes.split_at(bytes.len().min(all(number) - read));
            if !own.is_empty() {
                self.check_content(end, at, channel, (number, read), own);
            }
            (bytes, read) = (rest, read + own.len());
            if read == all(number) {
                (number, read) = (number + 1, 0);
            }
        }
        self.sessions[end][at].got.insert(channel, (number, read));
    }

    /// Checks that received messages were sent by one connection of the other end, always the same one.
    fn check_content(
        &mut self,
        end: usize,
        at: usize,
        channel: u16,
        (number, from): (u64, usize),
        bytes: &[u8],
    ) {
        let others = self.sessions[1 - end].len();
        let mut want = vec![0; bytes.len()];
        for other in 0..others {
            if !self.sessions[end][at].not.contains(&other) {
                fill(1 - end, other, channel, number, from, &mut want);
                let sent = self.sessions[1 - end][other].sent.get(&channel).copied().unwrap_or_default();
                if want != bytes || number >= sent {
                    self.sessions[end][at].not.insert(other);
                }
            }
        }
        let known = self.sessions[end][at].not.len() < others;
        assert!(known, "{} bytes at {from} of message {number} of channel {channel} are wrong", bytes.len());
    }

    fn close(&mut self) {
        for end in 0..2 {
            if let Some(at) = self.standing(end)
                && self.left[end] == 0
                && self.upset.is_none()
                && !self.sessions[end][at].closing
            {
                let id = self.sessions[end][at].id;
                match self.command(end, Command::Close { id }) {
                    Ok(()) | Err(Refusal::Closed) => self.sessions[end][at].closing = true,
                    Err(other) => panic!("it could not be closed: {other}"),
                }
            }
        }
    }

    fn upset(&mut self) {
        let Some((upset, end)) = self.upset else { return };
        if let Some(other) = self.standing(1 - end) {
            self.bereaved = Some((1 - end, other));
        }
        match upset {
            Upset::Restart => {
                self.restarts += 1;
                let node = Box::new(node(self.plan, end, self.restarts));
                self.order(end, Order::Restart(node)).expect("always possible");
                self.sessions[end].iter_mut().for_each(|session| session.gone = true);
                if end == 0 {
                    self.open();
                }
            }
            Upset::Reset => {
                let Some(at) = self.standing(end) else { return };
                let id = self.sessions[end][at].id;
                self.command(end, Command::Reset { id }).expect("it stands");
                if end == 1 {
                    // The peer learns the rest by probing.
                    self.sessions[end][at].gone = true;
                    self.command(end, Command::Forget { id }).expect("it stands");
                }
            }
        }
        self.upset = None;
    }

    fn is_done(&self) -> bool {
        let over = |session: &Session| session.gone || session.closed.is_some();
        let done =
            |session: &Session| session.closed == Some(CloseReason::Completed) && session.readable.is_empty();
        self.upset.is_none()
            && self.left == [0; 2]
            && self
                .sessions
                .iter()
                .all(|sessions| sessions.iter().all(over) && sessions.last().is_some_and(done))
    }

    fn check_progress(&mut self, ended: Ended) {
        let mut frames = 0;
        let mut taken = 0;
        for end in 0..2 {
            for session in &self.sessions[end] {
                let statistics = self.host(end).node().statistics(session.id).unwrap_or_default();
                frames += statistics.frames_received;
                taken += session.got.values().map(|(number, read)| number + *read as u64).sum::<u64>();
            }
        }
        let now = self.stage.now();
        let sum = frames + taken + self.events;
        let still = self.progress.2 + u32::from(ended == Ended::Quiet);
        if sum != self.progress.0 {
            self.progress = (sum, now, 0);
            return;
        }
        self.progress.2 = still;
        let stuck = now.since(self.progress.1) > DEADLOCK || still > STILL;
        assert!(!stuck, "nothing has moved since {}: {}", self.progress.1, self.statistics());
        let sent = self.host(0).counts().sent + self.host(1).counts().sent;
        assert!(sent < MOST_FRAMES, "{sent} frames: {}", self.statistics());
    }

    fn statistics(&self) -> String {
        let of = |end: usize| {
            let of = |s: &Session| format!("{:?} {:?}", s.closed, self.host(end).node().statistics(s.id));
            self.sessions[end].iter().map(of).collect::<Vec<_>>().join("\n")
        };
        format!("left {:?}\n{}\n--\n{}", self.left, of(0), of(1))
    }

    /// What holds when all is over.
    fn check(mut self) -> ScenarioResult {
        let [a, b] = [0, 1].map(|end| self.sessions[end].len() - 1);
        for (end, own, other) in [(0, a, b), (1, b, a)] {
            let session = &self.sessions[end][own];
            assert!(!session.not.contains(&other), "the last connections are one");
            assert!(session.finished);
            let sent = &self.sessions[1 - end][other].sent;
            for (&channel, &number) in sent {
                let (got, read) = session.got.get(&channel).copied().unwrap_or_default();
                let left =
                    (got..number).map(|number| length(self.plan, 1 - end, channel, number)).sum::<usize>();
                assert!(left == read, "channel {channel}: {got} messages and {read} bytes of {number}");
            }
        }
        if let Some((end, at)) = self.bereaved {
            let why = self.sessions[end][at].closed;
            // Silent: an open frame that came late made another connection of the one that its server had forgotten, and
            // the answer to the client was lost.
            let told = [
                CloseReason::PeerRestarted,
                CloseReason::Replaced,
                CloseReason::PeerReset,
                CloseReason::PeerTimeout,
                CloseReason::Completed,
            ];
            let told = why.is_some_and(|why| told.contains(&why));
            assert!(told, "an end that lost its peer received {why:?}");
        }
        let did = self.check_counts(a, b);
        for end in 0..2 {
            for at in 0..self.sessions[end].len() {
                let Session { id, gone, .. } = self.sessions[end][at];
                if !gone {
                    self.command(end, Command::Forget { id }).expect("it is known");
                }
            }
        }
        assert_eq!(self.stage.run(Span::from_s(24 * 3600)), Ended::Quiet, "what is forgotten does nothing");
        assert_eq!([0, 1].map(|end| self.host(end).node().connection_count()), [0, 0]);
        did
    }

    /// Both ends counted the same frames, and what the path did explains the rest.
    fn check_counts(&self, a: usize, b: usize) -> ScenarioResult {
        let of = |end: usize, at: usize| {
            self.host(end).node().statistics(self.sessions[end][at].id).expect("known")
        };
        for (end, own, other) in [(0, a, b), (1, b, a)] {
            let (s, r) = (of(end, own), of(1 - end, other));
            let path = self.host(end).counts();
            let doubled = path.duplicated;
            let context = || format!("{s:?}\n{r:?}\n{path:?}");
            // The last frames may be a close that no end waited for.
            let all = r.frames_received + r.frames_rebuilt;
            assert!(all <= s.frames_sent - s.frames_resent, "{}", context());
            // Each repair frame restores at least one frame.
            assert!(s.repairs_sent <= s.frames_sent - s.frames_resent, "{}", context());
            assert!(r.repairs_received <= s.repairs_sent + doubled, "{}", context());
            assert!(r.repairs_received > 0 || r.frames_rebuilt == 0, "{}", context());
            assert!(s.frames_resent <= s.lost + s.tail_probes, "each resend has a cause {}", context());
            // What was rebuilt may have been late, and come after all.
            assert!(r.duplicates <= s.frames_resent + doubled + r.frames_rebuilt, "{}", context());
            let all = r.frames_received + r.duplicates + r.framing_errors;
            assert!(all <= s.frames_sent + doubled, "{}", context());
            assert!(r.acks_received_forced <= s.acks_forced + doubled, "{}", context());
            assert!(r.acks_received_piggybacked <= s.acks_piggybacked + doubled, "{}", context());
            assert!(s.nacks_sent <= s.acks_forced + s.acks_piggybacked, "{}", context());
            assert!(r.nacks_received <= s.nacks_sent + doubled, "{}", context());
            assert_eq!(r.malformed, 0, "{}", context());
            if self.sessions[end].len() == 1 {
                assert!(r.bad_checksums <= 2 * path.corrupted, "{}", context());
            }
        }
        let messages = self.sessions.iter().flatten().flat_map(|session| session.sent.values()).sum();
        let frames = self.host(0).counts().sent + self.host(1).counts().sent;
        let reaches =
            [(0, a), (1, b)].map(|(end, at)| self.host(end).node().path_mtu(self.sessions[end][at].id));
        let shrunk = reaches.into_iter().flatten().map(|reach| reach.reductions).sum();
        let rebuilt = of(0, a).frames_rebuilt + of(1, b).frames_rebuilt;
        ScenarioResult { messages, frames, sessions: self.sessions[0].len() as u64, shrunk, rebuilt }
    }
}

fn node(plan: &Plan, end: usize, life: u64) -> Node {
    let accept = (end == 1).then(|| plan.options[1].clone());
    let random = Seed(plan.seed).stream(&format!("node {end} {life}"));
    let mut node = Node::new(Config { port: Port(0), accept, max_connections: 8, random });
    node.set_first_numbers(plan.first.0, plan.first.1);
    if let Some(in_flight) = plan.lays_from {
        node.enable_pre_encoding(in_flight);
    }
    node
}
