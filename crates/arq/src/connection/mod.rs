//! One connection, once it stands: both halves, and what ties them together.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`acks`] | acknowledgements, as they come and as they go |
//! | [`frames`] | frames, as they come and as they go |
//! | [`guard`] | what tells its frames from all others |
//! | [`repair`] | forward error correction |
//! | [`timers`] | deadlines, and what happens at them |
//! | [`path`] | how long frames may be on the path, probed; what follows when it shrinks |
//! | [`search`] | which lengths to probe, and when |
//! | [`parts`] | frames in parts, where the path no longer carries them whole |
//! | [`run`] | many frames that come in one piece |
//! | [`short`] | the short way of a frame that comes or goes alone |

use std::collections::VecDeque;

use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Peer};
use trunkline_units::{Instant, Rate, Span};

use crate::congestion::Policy;
use crate::options::{MAX_MESSAGE, Options};
use crate::receive::arrivals::Arrivals;
use crate::receive::{Receiver, Taken};
use crate::rtt::RoundTrip;
use crate::send::Sender;
use crate::stages::{Meter, Of, Stage, Stages};
use crate::statistics::Statistics;
use crate::wire::check::{Unopened, Way};
use crate::wire::data;
use crate::wire::open::{Mode, Terms};
use crate::{Buffer, End, News, Refusal};

mod acks;
mod frames;
mod guard;
mod parts;
mod path;
mod repair;
mod run;
mod search;
mod short;
mod timers;

use acks::Owed;
use frames::Echoes;
use guard::Guard;
use path::Path;
use repair::Correction;
use search::{Search, Trial};
pub(crate) use short::Brought;

/// What the ends tell each other, as the content of the control channel's chunks: a byte that says what, and it.
pub(crate) mod control {
    /// Bytes that may be sent on all channels together, ever: u64.
    pub const CREDIT: u8 = 1;
    /// On one channel: u16, u64.
    pub const CHANNEL_CREDIT: u8 = 2;
    /// No more data comes after this frame.
    pub const FINISH: u8 = 3;
}

/// Frames in flight from which on what is to be sent waits for a batch, and how long at the most.
const BUSY: u32 = 2 * MAX_SEGMENTS as u32;
const BUSY_SHARE: Span = Span::from_us(50);
/// Out-of-order transmissions that pass before a frame is taken for lost (RFC 5681 and QUIC say 3).
const REORDERING: u64 = 3;

/// How the connection is coming to its end.
#[derive(Debug, Default)]
struct Closing {
    /// The user has nothing more to send.
    wanted: bool,
    /// The peer has been told so.
    told: bool,
    /// The frame with which the peer said so.
    peer: Option<u64>,
    /// All of the peer's frames up to that one have arrived.
    finished: bool,
}

/// A frame outside the count that is to leave.
#[derive(Clone, Copy, Debug)]
enum Errand {
    /// Whether the peer is there.
    Probe,
    /// Whether the path carries so much.
    Search(Trial),
    Heard {
        token: u32,
        length: u16,
    },
    Reset,
}

/// A connection that stands.
#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: Peer,
    pub client: u64,
    pub server: u64,
    /// What this end told the other when it opened.
    pub terms: Terms,
    options: Options,
    peer_ack_delay: Span,
    peer_ack_every: u64,
    /// Frames in flight and remembered by the peer, at the most.
    window: u64,
    /// Longest frame sent whole; and what every path of this connection carries, which is the same unless it probes.
    frame: usize,
    /// Bytes of the check at the end of each.
    tail: usize,
    guard: Guard,
    floor: usize,
    path: Option<Box<Path>>,
    way: Way,
    sender: Sender,
    /// Frames are laid out when their messages come, once so many are in flight; [`u32::MAX`]: never.
    lays_from: u32,
    /// Where the last batch lies, if that is a sheet: which, and where on it.
    pub placed: Option<(u32, usize)>,
    receiver: Receiver,
    arrivals: Arrivals,
    round_trip: RoundTrip,
    policy: Box<dyn Policy>,
    /// New frames of the peer since the policy was last told of an acknowledgement.
    came: u32,
    /// What the policy last said: frames in flight at the most, and how fast they may leave.
    allowed: u64,
    pace: Option<Rate>,
    owed: Owed,
    /// When what is in flight is sent again; [`Instant::MAX`]: never, here and below.
    retransmit_at: Instant,
    /// Timeouts in a row.
    backoff: u32,
    /// How often the timeout has doubled since a round trip was last measured (Karn's algorithm, RFC 6298 5.7): an
    /// acknowledgement of what was sent twice does not tell that the timeout was long enough.
    doubled: u32,
    /// When a frame will have been late enough to be lost.
    loss_at: Instant,
    /// The policy lets nothing leave before.
    pace_at: Instant,
    /// Small messages wait for others until then.
    hold_until: Instant,
    /// A frame that is sent again to learn what became of the last ones.
    probe: Option<u64>,
    /// The frame that was last asked for and sent again with all after it.
    went_back: Option<u64>,
    /// When a damaged frame last made this end ask for what is missing.
    damaged_at: Option<Instant>,
    reordering: u64,
    /// Frames sent again because others overtook them, since the peer last told of doubles.
    overtaken: u32,
    doubles_told: u8,
    /// What was found lost is made good once all before this number has arrived.
    repaired_at: Option<u64>,
    /// When a frame of the peer last came, how many questions have gone unanswered since, and when to ask next.
    heard: Instant,
    /// No frame of the peer has come that only it can have made.
    unheard: bool,
    unanswered: u32,
    ask_at: Instant,
    errands: VecDeque<Errand>,
    echoes: Echoes,
    /// If it was agreed upon.
    correction: Option<Box<Correction>>,
    closing: Closing,
    /// It may take short ways: there is no forward error correction, and the path is not probed.
    plain: bool,
    /// It has given up, and does nothing more by itself.
    resting: bool,
    /// Why it is over, and whether the user knows.
    over: Option<End>,
    told_over: bool,
    told_finished: bool,
    stages: Stages,
    pub statistics: Statistics,
}

impl Connection {
    /// A connection to `peer`, which said `theirs`; `terms` are what it was told.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        now: Instant,
        peer: Peer,
        (client, server): (u64, u64),
        way: Way,
        options: Options,
        terms: Terms,
        theirs: &Terms,
    ) -> Self {
        let window =
            if options.mode == Mode::StopAndWait { 1 } else { options.window.min(theirs.window).max(1) };
        let frame = usize::from(options.frame.min(theirs.frame).max(crate::options::MIN_FRAME));
        let most = usize::from(options.longest().min(theirs.frame)).max(frame);
        let path = (options.probe_up_to.is_some() && theirs.parts).then(|| {
            let longest = usize::from(options.longest()) - options.check.bytes();
            Box::new(Path::new(Search::new(now, frame, most), longest))
        });
        let floor = path.as_ref().map_or(frame, |path| path.search.floor());
        let correction = Correction::agreed(options.fec, theirs.fec.filter(|_| !theirs.parts));
        let room = floor - data::HEADER - options.check.bytes() - Correction::room(&correction);
        let selective = options.mode == Mode::Selective;
        let buffer = options.send_buffer;
        let ask_at = if options.keep_alive.is_zero() { Instant::MAX } else { now + options.keep_alive };
        let mut connection = Connection {
            peer,
            client,
            server,
            terms,
            peer_ack_delay: Span::from_us(theirs.ack_delay_us.into()),
            peer_ack_every: theirs.ack_every.into(),
            window: window.into(),
            frame,
            tail: options.check.bytes(),
            guard: Guard::new(&options, (client, server), way),
            floor,
            way,
            sender: Sender::new(selective, theirs.credit, theirs.channel_credit, buffer, room),
            lays_from: u32::MAX,
            placed: None,
            receiver: Receiver::new(options.credit, options.channel_credit, options.longest()),
            arrivals: Arrivals::new(options.window),
            round_trip: RoundTrip::new(options.timeout),
            policy: options.congestion.policy(window, theirs.ack_every),
            came: 0,
            allowed: 1,
            pace: None,
            owed: Owed::default(),
            retransmit_at: Instant::MAX,
            backoff: 0,
            doubled: 0,
            loss_at: Instant::MAX,
            pace_at: Instant::ZERO,
            hold_until: Instant::ZERO,
            probe: None,
            went_back: None,
            damaged_at: None,
            reordering: Correction::reordering(&correction),
            overtaken: 0,
            doubles_told: 0,
            repaired_at: None,
            heard: now,
            unheard: true,
            unanswered: 0,
            ask_at,
            errands: VecDeque::new(),
            echoes: Echoes::default(),
            plain: path.is_none() && correction.is_none(),
            correction,
            path,
            closing: Closing::default(),
            resting: false,
            over: None,
            told_over: false,
            told_finished: false,
            stages: Stages::default(),
            statistics: Statistics::default(),
            options,
        };
        connection.consult();
        connection
    }

    /// Its first frame, and the first chunk of each channel, have these numbers.
    pub fn number_from(&mut self, (frame, chunk): (u64, u64)) {
        self.sender.number_from(frame, chunk);
        self.receiver.number_from(chunk);
        self.arrivals.number_from(frame);
        self.guard.number_from(frame);
    }

    /// It takes long ways only, for tests of the short ones.
    pub fn take_ways(&mut self, long: bool) {
        self.plain &= !long;
    }

    /// Lays out frames when their messages come while at least `in_flight` are in flight, unless they are encrypted or
    /// protected and leave as something else, or their length may change.
    pub fn lay_frames(&mut self, in_flight: u32) {
        if self.path.is_none() && self.correction.is_none() && !self.guard.is_sealed() {
            self.lays_from = in_flight;
            self.sender.lay_frames(self.frame, self.options.check.bytes());
        }
    }

    /// The last batch, `length` bytes long, if it was not written into a buffer.
    #[inline]
    pub fn placed_bytes(&self, length: usize) -> Option<&[u8]> {
        let (sheet, at) = self.placed?;
        self.sender.sheet(sheet).get(at..at + length)
    }

    /// Proves to the peer, if that is needed, that this end wrote a frame which opens it.
    pub fn prove(&self, frame: &mut [u8]) {
        if let Some(key) = &self.options.key {
            key.prove(frame);
        }
    }

    /// Whether the peer wrote a frame which opens it, as far as can be known.
    pub fn is_proven(&self, frame: &[u8]) -> bool {
        self.options.key.as_ref().is_none_or(|key| key.proves(frame))
    }

    /// Counts a frame that was not taken.
    #[cold]
    fn refuse(&mut self, why: Unopened) {
        match why {
            Unopened::Damaged => self.statistics.bad_checksums += 1,
            Unopened::Again => self.statistics.doubles += 1,
        }
    }

    /// Its opening took a round trip, so long: what is lost first need not wait for the longest timeout.
    pub fn met(&mut self, now: Instant, round_trip: Span) {
        self.round_trip.sample(now, round_trip);
        self.policy.met(now, round_trip);
        self.consult();
    }

    /// Takes a copy of a message.
    #[inline]
    pub fn send(&mut self, now: Instant, channel: u16, bytes: &[u8]) -> Result<(), Refusal> {
        self.may_send(channel, bytes.len())?;
        self.hold(now);
        let began = self.stages.begin(Of::Sends);
        let flows = self.sender.flights.in_flight() >= self.lays_from && self.owed.frames == 0;
        self.sender.copy(channel, bytes, flows);
        self.stages.end(Stage::CopyIn, began);
        Ok(())
    }

    /// Takes a message itself.
    #[inline]
    pub fn hand_over(&mut self, now: Instant, channel: u16, message: &mut Buffer) -> Result<(), Refusal> {
        self.may_send(channel, message.len())?;
        self.hold(now);
        self.sender.hand_over(channel, std::mem::take(message));
        Ok(())
    }

    #[inline]
    fn may_send(&mut self, channel: u16, length: usize) -> Result<(), Refusal> {
        if self.over.is_some() || self.closing.wanted {
            return Err(Refusal::Closed);
        }
        if channel == data::CONTROL {
            return Err(Refusal::Channel);
        }
        if length > MAX_MESSAGE {
            return Err(Refusal::TooLong);
        }
        if self.sender.has_room(channel) { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Lets small messages wait for others, if frames are in flight that bring the connection back to life.
    #[inline]
    fn hold(&mut self, now: Instant) {
        if self.sender.waiting() == 0 && self.sender.flights.in_flight() > 0 {
            self.hold_until = now + self.share();
        }
    }

    /// How long what is less than [`enough`](Connection::enough) may wait for more.
    #[inline]
    fn share(&self) -> Span {
        if self.is_busy() { self.options.share.max(BUSY_SHARE) } else { self.options.share }
    }

    /// Bytes that need not wait for more: a frame, or, with so many in flight that nobody waits for one, a batch.
    #[inline]
    fn enough(&self) -> usize {
        let frames = if self.is_busy() { (MAX_BATCH / self.frame).clamp(1, MAX_SEGMENTS) } else { 1 };
        frames * self.room()
    }

    /// Whether at least two batches of the most frames are in flight.
    #[inline]
    pub fn is_busy(&self) -> bool {
        self.sender.flights.in_flight() >= BUSY
    }

    /// Gives the next message of a channel.
    #[inline]
    pub fn take(&mut self, channel: u16, into: &mut Buffer) -> Taken {
        let began = self.stages.begin(Of::Takes);
        let taken = self.receiver.take(channel, into);
        match taken {
            Taken::Nothing => self.stages.take_back(Of::Takes, began),
            Taken::Whole | Taken::Part => {
                self.stages.end(Stage::CopyOut, began);
                self.grant();
            }
        }
        taken
    }

    /// Copies what has arrived of a channel, without regard to its messages.
    pub fn read(&mut self, channel: u16, into: &mut [u8]) -> usize {
        let read = self.receiver.read(channel, into);
        self.grant();
        read
    }

    /// Bytes that could be read of a channel, and a little more.
    pub fn held(&self, channel: u16) -> u64 {
        self.receiver.held(channel)
    }

    /// How urgent a channel is.
    pub fn prioritize(&mut self, channel: u16, priority: u8) {
        self.sender.prioritize(channel, priority);
    }

    /// Tells the peer that it may send more, once that is worth it.
    #[inline(always)]
    fn grant(&mut self) {
        if self.receiver.may_grant() {
            self.tell_granted();
        }
    }

    fn tell_granted(&mut self) {
        if self.over.is_some() || self.closing.finished {
            return;
        }
        if let Some(limit) = self.receiver.grant() {
            let mut told = [control::CREDIT; 9];
            told[1..].copy_from_slice(&limit.to_be_bytes());
            self.sender.tell(&told);
        }
        while let Some((channel, limit)) = self.receiver.grant_channel() {
            let mut told = [control::CHANNEL_CREDIT; 11];
            told[1..3].copy_from_slice(&channel.to_be_bytes());
            told[3..].copy_from_slice(&limit.to_be_bytes());
            self.sender.tell(&told);
        }
    }

    /// Measures one in `every` message and frame.
    pub fn measure(&mut self, every: u32, meter: Box<dyn Meter>) {
        self.stages = Stages::new(meter, every);
    }

    /// The user has nothing more to send.
    pub fn close(&mut self) {
        self.closing.wanted = true;
        self.move_on();
    }

    /// The user wants no more of it.
    pub fn reset(&mut self) {
        if self.over.is_none() {
            self.errands.clear();
            self.errands.push_back(Errand::Reset);
            self.end(End::Here);
        }
    }

    /// Whether it is over, and why.
    pub fn over(&self) -> Option<End> {
        self.over
    }

    /// It is over.
    pub fn end(&mut self, end: End) {
        self.over.get_or_insert(end);
        if !self.is_active() {
            self.rest();
        }
    }

    /// Nothing more is done by itself.
    fn rest(&mut self) {
        self.resting = true;
        (self.retransmit_at, self.loss_at, self.ask_at) = (Instant::MAX, Instant::MAX, Instant::MAX);
        if let Some(path) = &mut self.path {
            path.search.stop();
        }
    }

    /// Whether it still sends. One that is done for its user may still have to say goodbye.
    #[inline]
    fn is_active(&self) -> bool {
        !self.resting && self.over.is_none_or(|end| end == End::Done && !self.sender.is_done())
    }

    /// Takes the next step towards the end, if all before it is done.
    fn move_on(&mut self) {
        if self.closing.wanted && !self.closing.told && self.sender.waiting() == 0 && self.over.is_none() {
            self.closing.told = true;
            self.sender.tell(&[control::FINISH]);
        }
        if let Some(last) = self.closing.peer
            && self.arrivals.next() > last
        {
            self.closing.finished = true;
        }
        if self.closing.told && self.closing.finished && self.sender.is_done() {
            // What the peer sends again because it missed an acknowledgement is still answered.
            self.end(End::Done);
        }
    }

    /// Something to tell the user.
    #[inline]
    pub fn news(&mut self) -> Option<News> {
        if let Some(channel) = self.receiver.take_readable() {
            return Some(News::Readable { channel });
        }
        // An acknowledgement that comes after the end eases nobody.
        if self.over.is_none()
            && let Some(channel) = self.sender.take_eased()
        {
            return Some(News::Writable { channel });
        }
        if self.closing.finished && !self.told_finished {
            self.told_finished = true;
            return Some(News::Finished);
        }
        // The last acknowledgement leaves before the user does.
        let owes = self.over == Some(End::Done) && self.owed.at != Instant::MAX;
        if let (Some(end), false, false) = (self.over, self.told_over, owes) {
            self.told_over = true;
            return Some(News::Closed { end });
        }
        None
    }

    /// How long a connection that is done answers a peer that missed the last acknowledgement.
    pub fn linger(&self) -> Span {
        self.round_trip.timeout(self.peer_ack_delay) * 4
    }

    /// Whether the peer has not yet shown that it knows the connection to stand: only a server can tell.
    pub fn is_unheard(&self) -> bool {
        self.unheard && self.way == Way::Back && self.over.is_none()
    }

    /// The smoothed round trip, once there is one.
    pub fn round_trip(&self) -> Option<Span> {
        self.round_trip.smoothed()
    }

    /// Whether everything it was given has been acknowledged.
    pub fn is_flushed(&self) -> bool {
        self.sender.is_done()
    }

    /// Frames in flight.
    pub fn in_flight(&self) -> u32 {
        self.sender.flights.in_flight()
    }
}
