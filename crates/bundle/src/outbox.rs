//! Messages and control for one receiver that wait for their bundle to leave.

use std::collections::VecDeque;
use std::sync::Arc;

use trunkline_units::{Instant, Span};

use crate::bundler::Timing;
use crate::reliable;
use crate::wire::format2::control::Control;
use crate::wire::format2::{
    BundleBuilder, ENTRY, HEADER, Header, MAX_MESSAGES, MIN_DATAGRAM, Message, NO_LIMIT, carried_octets,
    is_too_long,
};

/// Each endpoint sends to each of its peers at least this often.
pub const HELLO_INTERVAL: Span = Span::from_ms(250);
/// The largest number of full bundles of waiting messages, for each of the two classes.
pub const MAX_WAITING_BUNDLES: usize = 64;
/// The largest number of waiting messages in each class, since empty messages need memory, too.
const MAX_WAITING_MESSAGES: usize = 16_384;

/// A waiting message. Several outboxes share its body.
#[derive(Clone, Debug)]
pub struct QueuedMessage {
    /// The message address.
    pub address: u32,
    /// The original sender.
    pub source: u32,
    /// The incarnation of the sender.
    pub incarnation: u32,
    /// The sequence number.
    pub sequence: u32,
    /// The longest wait, in 10 µs.
    pub max_wait_10us: u16,
    /// Whether it has priority.
    pub priority: bool,
    /// The payload.
    pub body: Arc<[u8]>,
}

impl QueuedMessage {
    /// Copies a received message.
    pub fn from_message(message: &Message<'_>) -> QueuedMessage {
        let Message { address, source, incarnation, sequence, max_wait_10us, priority, body, .. } = *message;
        QueuedMessage { address, source, incarnation, sequence, max_wait_10us, priority, body: body.into() }
    }

    /// Returns the message as an entry of a bundle.
    pub fn message(&self, reliable: Option<u16>) -> Message<'_> {
        let QueuedMessage { address, source, incarnation, sequence, max_wait_10us, priority, ref body } =
            *self;
        Message { address, source, incarnation, sequence, max_wait_10us, priority, reliable, body }
    }

    /// Returns the octets that it needs in a bundle.
    pub fn octets(&self) -> usize {
        ENTRY + carried_octets(&self.body)
    }

    /// Returns when the message must leave, if it arrives now and the last bundle left at `last`.
    fn due(&self, timing: Timing, now: Instant, last: Option<Instant>) -> Instant {
        let due = timing.due(now, last, self.priority);
        match self.max_wait_10us {
            max_wait_10us if max_wait_10us < NO_LIMIT && self.priority => {
                due.min(now + Span::from_us(10) * u64::from(max_wait_10us))
            }
            _ => due,
        }
    }
}

/// The queue for one receiver: at most [`MAX_WAITING_BUNDLES`] bundles of messages of each class, and the messages of
/// a [`reliable::ReliableSender`].
///
/// A bundle leaves when it is full, when a message or control item in it is due, and at least every
/// [`HELLO_INTERVAL`]. Priority messages come first.
#[derive(Debug)]
pub struct Outbox {
    timing: Timing,
    builder: BundleBuilder,
    max_octets: usize,
    ordinary: MessageQueue,
    priority: MessageQueue,
    /// Reliable messages.
    pub reliable: reliable::ReliableSender<QueuedMessage>,
    /// Whether the session is established, so that reliable messages can be acknowledged.
    is_open: bool,
    /// When the last bundle with messages left.
    last_sent: Option<Instant>,
    /// When a control item or hello is due.
    control_due: Instant,
    ready: bool,
    /// Messages sent in this session.
    messages_sent: u32,
    admitted_octets: usize,
    /// The limits last sent, and when.
    sent_limit: Option<((u8, u32), Instant)>,
}

#[derive(Debug, Default)]
struct MessageQueue {
    messages: VecDeque<(Instant, QueuedMessage)>,
    octets: usize,
    /// The earliest deadline.
    due: Option<Instant>,
}

impl MessageQueue {
    fn push(&mut self, due: Instant, queued: QueuedMessage, capacity: usize) -> bool {
        let octets = queued.octets();
        let fits = self.octets + octets <= capacity && self.messages.len() < MAX_WAITING_MESSAGES;
        if fits {
            self.octets += octets;
            self.due = Some(self.due.map_or(due, |other| other.min(due)));
            self.messages.push_back((due, queued));
        }
        fits
    }

    /// Moves as many messages as fit into a bundle and returns their octets.
    fn drain_into(&mut self, builder: &mut BundleBuilder) -> usize {
        let before = self.octets;
        while let Some((_, queued)) = self.messages.front()
            && builder.push(&queued.message(None))
        {
            self.octets -= queued.octets();
            self.messages.pop_front();
        }
        // A later message may have an earlier deadline.
        self.due = self.messages.iter().map(|(due, _)| *due).min();
        before - self.octets
    }
}

impl Outbox {
    /// Creates an outbox with bundles of at most `max_octets` octets. The first bundle is due at once.
    pub fn new(max_octets: usize, timing: Timing, now: Instant) -> Outbox {
        Outbox {
            timing,
            builder: BundleBuilder::new(max_octets.max(MIN_DATAGRAM)),
            max_octets,
            ordinary: MessageQueue::default(),
            priority: MessageQueue::default(),
            reliable: reliable::ReliableSender::default(),
            is_open: false,
            last_sent: None,
            control_due: now,
            ready: false,
            messages_sent: 0,
            admitted_octets: 0,
            sent_limit: None,
        }
    }

    /// Queues a message, to be acknowledged if it is `reliable`; returns whether there was room.
    pub fn push(&mut self, now: Instant, queued: QueuedMessage, reliable: bool) -> bool {
        if is_too_long(&queued.body, self.max_octets) {
            return false;
        }
        let due = queued.due(self.timing, now, self.last_sent);
        let capacity = MAX_WAITING_BUNDLES * self.max_octets;
        let pushed = match (reliable, queued.priority) {
            (true, _) => self.reliable.push(queued, due),
            (false, true) => self.priority.push(due, queued, capacity),
            (false, false) => self.ordinary.push(due, queued, capacity),
        };
        self.update_ready(now);
        pushed
    }

    /// Returns the numbers of waiting ordinary messages and of waiting or unacknowledged priority messages.
    pub fn waiting(&self) -> (usize, usize) {
        (self.ordinary.messages.len(), self.priority.messages.len() + self.reliable.len())
    }

    /// Schedules control to be sent by this time.
    pub fn schedule_control(&mut self, at: Instant) {
        self.control_due = self.control_due.min(at);
    }

    /// Returns the limits if they changed or a hello is due. They are not repeated before, so that the longest
    /// message eventually gets a bundle for itself.
    pub fn take_limit(&mut self, now: Instant, level: u8, rate: u32) -> Option<Control<'static>> {
        let is_due =
            self.sent_limit.is_none_or(|(sent, at)| sent != (level, rate) || now >= at + HELLO_INTERVAL);
        if is_due {
            self.sent_limit = Some(((level, rate), now));
        }
        is_due.then_some(Control::Level { level, rate })
    }

    /// Starts a new session. Unacknowledged messages are sent again.
    pub fn restart(&mut self, now: Instant, open: bool) {
        (self.messages_sent, self.is_open, self.sent_limit) = (0, open, None);
        self.reliable.restart(now);
        self.update_ready(now);
    }

    /// Marks the session as established, so that reliable messages can leave.
    pub fn open(&mut self, now: Instant) {
        self.is_open = true;
        self.update_ready(now);
    }

    fn due(&self) -> Instant {
        let reliable = self.reliable.deadline().filter(|_| self.is_open);
        let dues = [self.ordinary.due, self.priority.due, reliable];
        dues.into_iter().flatten().min().map_or(self.control_due, |due| due.min(self.control_due))
    }

    /// Updates whether a bundle is due.
    pub fn update_ready(&mut self, now: Instant) {
        let full = self.ordinary.octets + self.priority.octets + HEADER >= self.max_octets
            || self.ordinary.messages.len() + self.priority.messages.len() >= MAX_MESSAGES;
        self.ready |= full || self.due() <= now;
    }

    /// Returns when a bundle becomes due, or `None` if one is due now.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.ready).then(|| self.due())
    }

    /// Returns whether a bundle is due.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the octets, with entries, of messages sent for the first time in the last bundle. They are already
    /// counted as admitted to the medium.
    pub fn admitted_octets(&self) -> usize {
        self.admitted_octets
    }

    /// Writes the next bundle: control, then priority messages, then ordinary ones. Sets `sent_before` in the header.
    /// Returns the length.
    pub fn write_bundle(
        &mut self,
        now: Instant,
        header: Header,
        write_control: impl FnOnce(&mut BundleBuilder),
        buffer: &mut [u8],
    ) -> usize {
        write_control(&mut self.builder);
        self.admitted_octets = self.priority.drain_into(&mut self.builder);
        if self.is_open {
            let (builder, admitted) = (&mut self.builder, &mut self.admitted_octets);
            self.reliable.send(now, |number, queued, first| {
                let pushed = builder.push(&queued.message(Some(number)));
                *admitted += if pushed && first { queued.octets() } else { 0 };
                pushed
            });
        }
        self.admitted_octets += self.ordinary.drain_into(&mut self.builder);
        let count = self.builder.count();
        if count > 0 {
            self.last_sent = Some(now);
        }
        self.control_due = now + HELLO_INTERVAL;
        let length = self.builder.finish(&Header { sent_before: self.messages_sent, ..header }, buffer);
        self.messages_sent = self.messages_sent.wrapping_add(count as u32);
        self.ready = false;
        self.update_ready(now);
        length
    }
}
