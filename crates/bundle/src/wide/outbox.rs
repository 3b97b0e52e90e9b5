//! Messages gather until their bundle leaves.

use std::collections::VecDeque;
use std::sync::Arc;

use trunkline_units::{Instant, Span};

use super::HELLO;
use crate::gather::Timing;
use crate::reliable;
use crate::wire::wide::control::Control;
use crate::wire::wide::{
    Builder, ENTRY, HEADER, Header, LEAST_PATH, MOST_MESSAGES, Message, NO_LIMIT, carried, is_too_long,
};

/// Full bundles' worth of messages that may wait, of ordinary ones and as many of those with priority.
pub const WAITING: usize = 64;
/// Messages that may wait, of either: those without octets take room, too.
const MOST: usize = 16_384;

/// A message that waits, whose body several outboxes share.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// To whom.
    pub address: u32,
    /// Who sent it first.
    pub source: u32,
    /// The incarnation of that host.
    pub life: u32,
    /// Its number.
    pub sequence: u32,
    /// How long it may wait, in 10 µs.
    pub within: u16,
    /// Whether it has priority.
    pub priority: bool,
    /// What the simulation said.
    pub body: Arc<[u8]>,
}

impl Parcel {
    /// A message that came, with its body.
    pub fn of(message: &Message<'_>) -> Parcel {
        let Message { address, source, life, sequence, within, priority, body, .. } = *message;
        Parcel { address, source, life, sequence, within, priority, body: body.into() }
    }

    /// As it stands in a bundle.
    pub fn message(&self, reliable: Option<u16>) -> Message<'_> {
        let Parcel { address, source, life, sequence, within, priority, body } = self;
        let (address, source, life) = (*address, *source, *life);
        Message {
            address,
            source,
            life,
            sequence: *sequence,
            within: *within,
            priority: *priority,
            reliable,
            body,
        }
    }

    /// Octets that it takes in a bundle.
    pub fn octets(&self) -> usize {
        ENTRY + carried(&self.body)
    }

    /// When it is to leave, if it comes now and the last bundle left at `last`.
    fn due(&self, timing: Timing, now: Instant, last: Option<Instant>) -> Instant {
        let due = timing.due(now, last, self.priority);
        match self.within {
            within if within < NO_LIMIT && self.priority => {
                due.min(now + Span::from_us(10) * u64::from(within))
            }
            _ => due,
        }
    }
}

/// What leaves for one receiver. Room: [`WAITING`] bundles' worth of messages of each class, and what
/// [`reliable::Sender`] has.
///
/// A bundle leaves when it is full, when a message in it or something to be told must, and at least every [`HELLO`]. It
/// takes messages with priority first.
#[derive(Debug)]
pub struct Outbox {
    timing: Timing,
    builder: Builder,
    longest: usize,
    ordinary: Queue,
    urgent: Queue,
    /// Messages that are acknowledged.
    pub reliable: reliable::Sender<Parcel>,
    /// Whether there is a session in which something can be acknowledged.
    open: bool,
    /// When the last bundle with messages left.
    last: Option<Instant>,
    /// When something must be told, or a hello.
    tell: Instant,
    ready: bool,
    /// Messages sent in this session.
    before: u32,
    admitted: usize,
    /// The limit that was last told, and when.
    limit: Option<((u8, u32), Instant)>,
}

#[derive(Debug, Default)]
struct Queue {
    parcels: VecDeque<(Instant, Parcel)>,
    octets: usize,
    /// The earliest of them.
    due: Option<Instant>,
}

impl Queue {
    fn push(&mut self, due: Instant, parcel: Parcel, room: usize) -> bool {
        let octets = parcel.octets();
        let fits = self.octets + octets <= room && self.parcels.len() < MOST;
        if fits {
            self.octets += octets;
            self.due = Some(self.due.map_or(due, |other| other.min(due)));
            self.parcels.push_back((due, parcel));
        }
        fits
    }

    /// As many as there is room for.
    fn leave(&mut self, builder: &mut Builder) -> usize {
        let before = self.octets;
        while let Some((_, parcel)) = self.parcels.front()
            && builder.push(&parcel.message(None))
        {
            self.octets -= parcel.octets();
            self.parcels.pop_front();
        }
        // What is left came later, but may have less time.
        self.due = self.parcels.iter().map(|(due, _)| *due).min();
        before - self.octets
    }
}

impl Outbox {
    /// Of bundles of at most `longest` octets, the first of which leaves at once.
    pub fn new(longest: usize, timing: Timing, now: Instant) -> Outbox {
        Outbox {
            timing,
            builder: Builder::new(longest.max(LEAST_PATH)),
            longest,
            ordinary: Queue::default(),
            urgent: Queue::default(),
            reliable: reliable::Sender::default(),
            open: false,
            last: None,
            tell: now,
            ready: false,
            before: 0,
            admitted: 0,
            limit: None,
        }
    }

    /// Whether there is a session.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Adds a message; whether there was room.
    pub fn push(&mut self, now: Instant, parcel: Parcel) -> bool {
        if is_too_long(&parcel.body, self.longest) {
            return false;
        }
        let due = parcel.due(self.timing, now, self.last);
        let queue = if parcel.priority { &mut self.urgent } else { &mut self.ordinary };
        let pushed = queue.push(due, parcel, WAITING * self.longest);
        self.roll(now);
        pushed
    }

    /// Adds a message that is acknowledged; whether there was room.
    pub fn push_reliable(&mut self, now: Instant, parcel: Parcel) -> bool {
        if is_too_long(&parcel.body, self.longest) {
            return false;
        }
        let due = parcel.due(self.timing, now, self.last);
        let pushed = self.reliable.push(parcel, due);
        self.roll(now);
        pushed
    }

    /// Messages that wait, or are not acknowledged: of ordinary ones, of those with priority.
    pub fn waiting(&self) -> (usize, usize) {
        (self.ordinary.parcels.len(), self.urgent.parcels.len() + self.reliable.len())
    }

    /// When bundles leave.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Something is to be told by then.
    pub fn tell_by(&mut self, at: Instant) {
        self.tell = self.tell.min(at);
    }

    /// The limit, if it is another than the one last told, or a hello is due. What is told is told once: so the longest
    /// message has a bundle for itself in the end.
    pub fn limit(&mut self, now: Instant, level: u8, rate: u32) -> Option<Control<'static>> {
        let news = self.limit.is_none_or(|(told, at)| told != (level, rate) || now >= at + HELLO);
        if news {
            self.limit = Some(((level, rate), now));
        }
        news.then_some(Control::Level { level, rate })
    }

    /// A new session: nothing was sent in it, and what was not acknowledged is sent anew.
    pub fn restart(&mut self, now: Instant, open: bool) {
        (self.before, self.open, self.limit) = (0, open, None);
        self.reliable.restart(now);
        self.roll(now);
    }

    /// The other is in the session: what is to be acknowledged may leave.
    pub fn open(&mut self, now: Instant) {
        self.open = true;
        self.roll(now);
    }

    fn due(&self) -> Instant {
        let reliable = self.reliable.deadline().filter(|_| self.open);
        let dues = [self.ordinary.due, self.urgent.due, reliable];
        dues.into_iter().flatten().min().map_or(self.tell, |due| due.min(self.tell))
    }

    /// Whether now there is something to send.
    pub fn roll(&mut self, now: Instant) {
        let full = self.ordinary.octets + self.urgent.octets + HEADER >= self.longest
            || self.ordinary.parcels.len() + self.urgent.parcels.len() >= MOST_MESSAGES;
        self.ready |= full || self.due() <= now;
    }

    /// When there will be something to send, if there is nothing now.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.ready).then(|| self.due())
    }

    /// Whether a bundle is to leave.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Octets, with their entries, of messages that left first with the last bundle: what was admitted to the medium.
    pub fn admitted(&self) -> usize {
        self.admitted
    }

    /// Writes the next bundle: what is told, then messages with priority, then others; how many octets. Its header lacks what
    /// went before.
    pub fn leave(
        &mut self,
        now: Instant,
        header: Header,
        tell: impl FnOnce(&mut Builder),
        buffer: &mut [u8],
    ) -> usize {
        tell(&mut self.builder);
        self.admitted = self.urgent.leave(&mut self.builder);
        if self.open {
            let (builder, admitted) = (&mut self.builder, &mut self.admitted);
            self.reliable.send(now, |number, parcel, first| {
                let left = builder.push(&parcel.message(Some(number)));
                *admitted += if left && first { parcel.octets() } else { 0 };
                left
            });
        }
        self.admitted += self.ordinary.leave(&mut self.builder);
        let count = self.builder.count();
        if count > 0 {
            self.last = Some(now);
        }
        self.tell = now + HELLO;
        let length = self.builder.finish(&Header { before: self.before, ..header }, buffer);
        self.before = self.before.wrapping_add(count as u32);
        self.ready = false;
        self.roll(now);
        length
    }
}
