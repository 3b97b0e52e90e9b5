//! One end of a connection: its commands, events and state.
//!
//! # Where it differs from Net/2
//!
//! - Buffers are as large as they were asked to be, not rounded up to whole segments.
//! - What is received is acknowledged when two segments' worth of it is unacknowledged even if it is unread. The
//!   Berkeley code waits for the window update that taking it causes; who takes at once sees no difference.
//! - A reset must hit the next expected number exactly; elsewhere in the window it is answered with an
//!   acknowledgement, and so is a SYN (RFC 5961, sections 3 and 4).
//! - Payload and FIN on a SYN are not taken; they come again. A FIN ahead of its turn is remembered.
//! - Closing is closing one direction. There is no timer for a peer that never closes the other: abort it.
//! - There is no urgent data, no keep-alive, no cache of routes; a fast retransmission leaves the next segment to send
//!   where it is instead of going back and forth.
//! - A segment that answers an attempt to connect from nowhere is dropped, reset and not kept: one end is one
//!   connection, there is no backlog.

use trunkline_congestion::{Bounds, Controller, Net2};
use trunkline_endpoint::{
    Ecn, Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable,
};
use trunkline_units::Instant;

use crate::Options;
use crate::content::Content;
use crate::extensions::Extensions;
use crate::ranges::Ranges;
use crate::rtt::RoundTrip;
use crate::segment::{ACK, LARGEST_SCALE, Problem, RST, Seq};
use crate::statistics::{Gauges, Statistics};
use crate::time::{OFF, Time};

/// The endpoint's only port.
pub(crate) const PORT: Port = Port(0);

/// Maximum number of pending acknowledgements: one for each frame of a batch.
pub(crate) const MAX_PENDING_ACKS: u8 = trunkline_endpoint::MAX_SEGMENTS as u8;

/// State of a connection (RFC 793, section 3.2), in the order of the Berkeley code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No connection.
    Closed,
    /// Waiting for a SYN.
    Listen,
    /// SYN sent.
    SynSent,
    /// SYN received.
    SynReceived,
    /// Open in both directions.
    Established,
    /// The peer has closed.
    CloseWait,
    /// This end has closed.
    FinWait1,
    /// Both have closed simultaneously.
    Closing,
    /// Both have closed, the peer first.
    LastAck,
    /// This end has closed and its FIN is acknowledged.
    FinWait2,
    /// Both have closed, this end first; waits for old segments to expire.
    TimeWait,
}

/// Commands of the user.
#[derive(Debug)]
pub enum Command<'a, C: Content> {
    /// Opens the connection; valid once, on a new end.
    Connect,
    /// Waits for the peer to open the connection; valid once, on a new end.
    Listen,
    /// Sends all of this data, or is refused; see [`Tcp::room`].
    Send(C::Source<'a>),
    /// Receives as much data as this holds, or is refused; see [`Tcp::readable`].
    Take(C::Target<'a>),
    /// Closes the sending direction after all queued data. Before the connection is open, gives up.
    Close,
    /// Drops the connection and sends a reset.
    Abort,
}

/// Events. Repetitions before the event is polled are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is open.
    Connected,
    /// More data has arrived, and some of it is not yet taken.
    Readable,
    /// After a refused [`Command::Send`]: there is room for its data now.
    Writable,
    /// The peer has closed and all its data has arrived.
    Finished,
    /// An invalid segment was received, most recently for this reason.
    BadSegment(Problem),
    /// The peer has reset or refused the connection.
    Reset,
    /// The peer has not responded for too long.
    TimedOut,
    /// The connection has ended: both directions are closed and acknowledged, or it was dropped for a reason already
    /// reported, or aborted. Nothing follows.
    Closed,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The end has already been used for a connection.
    Used,
    /// The connection, or this direction of it, is not open.
    NotOpen,
    /// The buffer is full; [`Event::Writable`] follows.
    Full,
    /// The data is larger than the buffer.
    TooLarge,
    /// Less data has arrived.
    Short,
}

/// Pending events, one bit each, in the order in which they are reported.
pub(crate) mod pending_event {
    pub const CONNECTED: u8 = 1;
    pub const READABLE: u8 = 2;
    pub const WRITABLE: u8 = 4;
    pub const FINISHED: u8 = 8;
    pub const BAD: u8 = 16;
    pub const RESET: u8 = 32;
    pub const TIMED_OUT: u8 = 64;
    pub const CLOSED: u8 = 128;
}

/// Whether output may be pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputCheck {
    /// No output.
    No,
    /// State has changed.
    First,
    /// A segment was sent and more may follow. As in the Berkeley code, which sends them in one loop, the idle state
    /// before the first one applies to all.
    Again {
        /// Whether everything was acknowledged before the first one.
        idle: bool,
    },
}

/// A pending reset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) peer: Peer,
    pub(crate) port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
}

/// Expiry of each timer, or [`OFF`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// Retransmission.
    pub(crate) retransmit: Instant,
    /// Window probe.
    pub(crate) persist: Instant,
    /// Delayed acknowledgement.
    pub(crate) acknowledge: Instant,
    /// Connection timeout, or the end of [`State::TimeWait`]. Between them, when the next paced segment may leave: one timer
    /// less to compare for each segment.
    pub(crate) give_up_or_departure: Instant,
}

impl Deadlines {
    pub(crate) const OFF: Deadlines =
        Deadlines { retransmit: OFF, persist: OFF, acknowledge: OFF, give_up_or_departure: OFF };

    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.retransmit.min(self.persist).min(self.acknowledge.min(self.give_up_or_departure))
    }
}

/// One end of a connection; see the [crate].
///
/// **Bounds.** At most [`Options::send_buffer`] bytes are unacknowledged; a `Send` beyond that is refused. At most
/// [`Options::receive_buffer`] bytes are unread, gaps included; data beyond them, and segments that would create more
/// than 4,096 separate ranges, are dropped without acknowledgement. One reset, and 64 acknowledgements of each kind, may be pending;
/// later ones are dropped.
///
/// **Demultiplexing.** Only ports are checked; the caller matches addresses.
#[derive(Debug)]
pub struct Tcp<C: Content> {
    // Names follow the Berkeley code where it has one.
    pub(crate) state: State,
    pub(crate) pending_events: u8,
    pub(crate) output_check: OutputCheck,
    pub(crate) pending_acks: u8,
    /// Probe the window, whatever its size.
    pub(crate) force: bool,
    /// Retransmit the first unacknowledged segment.
    pub(crate) resend: bool,
    pub(crate) fin_sent: bool,
    pub(crate) timing: bool,
    pub(crate) snd_scale: u8,
    pub(crate) rcv_scale: u8,
    /// Both ends offered window scaling.
    pub(crate) scaled: bool,
    pub(crate) remote: u16,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_max: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    pub(crate) net2: Net2,
    pub(crate) max_sndwnd: u32,
    pub(crate) maxseg: u32,
    /// Bytes in the send buffer, sent or not, from `snd_una` on.
    pub(crate) queued: u32,
    /// Size of the refused send; 0: none.
    pub(crate) refused: u32,
    pub(crate) rcv_nxt: Seq,
    pub(crate) rcv_adv: Seq,
    pub(crate) last_ack_sent: Seq,
    /// In-order unread bytes, up to `rcv_nxt`.
    pub(crate) readable: u32,
    pub(crate) dupacks: u32,
    pub(crate) timed_seq: Seq,
    /// When the timed segment was sent.
    pub(crate) timed_at: Instant,
    /// When the last segment was received.
    pub(crate) last_received_at: Instant,
    pub(crate) deadlines: Deadlines,
    pub(crate) time: Time,
    pub(crate) rtt: RoundTrip,
    pub(crate) ranges: Ranges,
    pub(crate) content: C,
    pub(crate) counts: Statistics,
    pub(crate) peer: Peer,
    /// End of the peer's data, once its FIN has arrived.
    pub(crate) end: Option<Seq>,
    pub(crate) reply: Option<Reply>,
    pub(crate) problem: Problem,
    pub(crate) passive: bool,
    pub(crate) used: bool,
    pub(crate) extensions: Option<Box<Extensions>>,
    pub(crate) options: Options,
}

/// Returns the smallest shift with which 16 bits express `window`.
fn scale_for(window: u32) -> u8 {
    (0..LARGEST_SCALE).find(|shift| window >> shift <= 0xffff).unwrap_or(LARGEST_SCALE)
}

impl<C: Content> Tcp<C> {
    /// Creates a closed end. Options outside their range are clamped.
    pub fn new(options: Options) -> Self {
        let o = options.within_bounds();
        let first = Seq(o.initial_sequence);
        let maxseg = u32::from(o.mss);
        Tcp {
            state: State::Closed,
            pending_events: 0,
            output_check: OutputCheck::No,
            pending_acks: 0,
            force: false,
            resend: false,
            fin_sent: false,
            timing: false,
            snd_scale: 0,
            rcv_scale: if o.scaling { scale_for(o.receive_buffer) } else { 0 },
            scaled: false,
            remote: o.remote,
            snd_una: first,
            snd_nxt: first,
            snd_max: first,
            snd_wnd: 0,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            net2: Net2::new(Bounds::new(maxseg, 0xffff), o.initial_ssthresh, o.arithmetic),
            max_sndwnd: 0,
            maxseg,
            queued: 0,
            refused: 0,
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            last_ack_sent: Seq(0),
            readable: 0,
            dupacks: 0,
            timed_seq: first,
            timed_at: Instant::ZERO,
            last_received_at: Instant::ZERO,
            deadlines: Deadlines::OFF,
            time: Time::new(o.timers, o.ack_delay),
            rtt: RoundTrip::new(o.timers, o.initial_timeout),
            ranges: Ranges::default(),
            content: C::new(o.send_buffer, o.receive_buffer),
            counts: Statistics::default(),
            peer: o.peer,
            end: None,
            reply: None,
            problem: Problem::Stray,
            passive: false,
            used: false,
            extensions: o.has_extensions().then(|| Box::new(Extensions::new(&o))),
            options: o,
        }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the state of the connection.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the bytes that [`Command::Send`] accepts now; 0 if the direction is not open.
    #[inline]
    pub fn room(&self) -> u32 {
        if self.may_send() { self.options.send_buffer - self.queued } else { 0 }
    }

    /// Returns the bytes that [`Command::Take`] can return now.
    #[inline]
    pub fn readable(&self) -> u32 {
        self.readable
    }

    /// Returns the sent bytes that are not acknowledged.
    #[inline]
    pub fn unacknowledged(&self) -> u32 {
        self.queued
    }

    /// Returns whether [`poll`](Endpoint::poll) would return an event or a segment, or would look for one.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.pending_events != 0 || self.is_output_due()
    }

    /// Returns whether there may be a segment to send.
    #[inline]
    fn is_output_due(&self) -> bool {
        self.output_check != OutputCheck::No || self.resend || self.reply.is_some()
    }

    /// Returns when the first timer expires.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        let next = self.deadlines.next();
        (next != OFF).then_some(next)
    }

    /// Returns whether the connection is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state >= State::Established && self.state != State::TimeWait
    }

    /// Returns whether the connection has ended; false for a new end.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.used && self.state == State::Closed
    }

    /// Returns whether the peer has closed and all its data has arrived.
    #[inline]
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait)
    }

    /// Returns the counters.
    #[inline]
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// Returns the current state variables.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            cwnd: self.extensions.as_ref().map_or(self.net2.window(), |e| e.window()),
            ssthresh: self.controller().threshold().unwrap_or(u32::MAX),
            peer_window: self.snd_wnd,
            mss: self.maxseg,
            in_flight: self.snd_max.since(self.snd_una),
            smoothed_rtt: self.time.span(self.rtt.mean_eighths()) / 8,
            rto: self.time.span(self.rtt.rto()),
            duplicate_acks: self.dupacks,
        }
    }

    fn controller(&self) -> &dyn Controller {
        self.extensions.as_ref().map_or(&self.net2, |extensions| &*extensions.controller)
    }

    /// Sets the ECN field of the frames that are handled from now on, as the network layer has received them.
    pub fn set_received_ecn(&mut self, ecn: Ecn) {
        if let Some(extensions) = &mut self.extensions {
            extensions.received_ecn = ecn;
        }
    }

    /// Returns the ECN field that the network layer must give to the last segment that was polled.
    #[inline]
    pub fn sent_ecn(&self) -> Ecn {
        self.extensions.as_ref().map_or(Ecn::NotEct, |extensions| extensions.sent_ecn)
    }

    #[inline]
    fn may_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Requests a check for pending output.
    #[inline]
    pub(crate) fn request_output(&mut self) {
        if self.output_check == OutputCheck::No {
            self.output_check = OutputCheck::First;
        }
    }

    /// Requests an immediate acknowledgement.
    #[inline]
    pub(crate) fn request_ack(&mut self) {
        self.pending_acks = self.pending_acks.max(1);
        self.request_output();
    }

    /// Requests an additional acknowledgement, so that the peer can count duplicates.
    pub(crate) fn request_another_ack(&mut self) {
        self.pending_acks = (self.pending_acks + 1).min(MAX_PENDING_ACKS);
        self.request_output();
    }

    /// Returns the free space of the receive buffer: the window.
    #[inline]
    pub(crate) fn receive_window(&self) -> u32 {
        self.options.receive_buffer - self.readable
    }

    /// Ends the connection; received data can still be taken.
    pub(crate) fn end(&mut self, why: u8) {
        self.pending_events |= why;
        self.deadlines = Deadlines::OFF;
        self.state = State::Closed;
        (self.queued, self.refused, self.pending_acks) = (0, 0, 0);
        (self.force, self.resend, self.timing) = (false, false, false);
        self.snd_una = self.snd_max;
        self.snd_nxt = self.snd_max;
        self.output_check = OutputCheck::No;
        self.ranges.clear();
        if let Some(extensions) = &mut self.extensions {
            (extensions.scoreboard, extensions.early_acks) = Default::default();
        }
    }

    /// Queues a reset to the peer.
    pub(crate) fn reset_peer(&mut self) {
        if self.state >= State::SynReceived {
            let (seq, ack) = (self.snd_max, self.rcv_nxt);
            self.reply = Some(Reply { peer: self.peer, port: self.remote, seq, ack, flags: RST | ACK });
        }
    }

    /// Returns to LISTEN after a failed passive open.
    pub(crate) fn listen(&mut self) {
        let o = self.options;
        let first = Seq(o.initial_sequence);
        (self.snd_una, self.snd_nxt, self.snd_max) = (first, first, first);
        (self.remote, self.peer, self.maxseg) = (o.remote, o.peer, u32::from(o.mss));
        (self.snd_scale, self.scaled) = (0, false);
        self.rcv_scale = if o.scaling { scale_for(o.receive_buffer) } else { 0 };
        self.rtt = RoundTrip::new(o.timers, o.initial_timeout);
        self.net2.set_bounds(Bounds::new(self.maxseg, 0xffff));
        self.extensions = o.has_extensions().then(|| Box::new(Extensions::new(&o)));
        self.deadlines = Deadlines::OFF;
        (self.pending_acks, self.timing, self.dupacks) = (0, false, 0);
        self.output_check = OutputCheck::No;
        self.state = State::Listen;
    }

    #[inline(always)]
    fn command(&mut self, now: Instant, command: Command<'_, C>) -> Result<(), Refusal> {
        match command {
            Command::Connect => {
                self.use_up()?;
                self.connect(now);
            }
            Command::Listen => {
                self.use_up()?;
                self.passive = true;
                self.listen();
            }
            Command::Send(source) => self.send(source)?,
            Command::Take(target) => self.take(target)?,
            Command::Close => self.close()?,
            Command::Abort => {
                if self.state == State::Closed {
                    return Err(Refusal::NotOpen);
                }
                self.reset_peer();
                self.end(pending_event::CLOSED);
            }
        }
        Ok(())
    }

    fn use_up(&mut self) -> Result<(), Refusal> {
        if self.used {
            return Err(Refusal::Used);
        }
        self.used = true;
        Ok(())
    }

    #[inline]
    fn send(&mut self, source: C::Source<'_>) -> Result<(), Refusal> {
        let count = C::source_len(source);
        if !self.may_send() {
            return Err(Refusal::NotOpen);
        }
        if count > self.options.send_buffer {
            return Err(Refusal::TooLarge);
        }
        if count > self.options.send_buffer - self.queued {
            self.refused = count;
            return Err(Refusal::Full);
        }
        self.content.append(self.queued, source);
        self.queued += count;
        self.request_output();
        Ok(())
    }

    #[inline]
    fn take(&mut self, target: C::Target<'_>) -> Result<(), Refusal> {
        let count = C::target_len(&target);
        if count > self.readable {
            return Err(Refusal::Short);
        }
        self.content.take(target);
        self.readable -= count;
        if self.readable == 0 {
            self.pending_events &= !pending_event::READABLE;
        }
        if self.state >= State::Established && self.window_opened() {
            self.request_output();
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Listen | State::SynSent => self.end(pending_event::CLOSED),
            State::SynReceived => {
                self.reset_peer();
                self.end(pending_event::CLOSED);
            }
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return Err(Refusal::NotOpen),
        }
        self.refused = 0;
        if self.state != State::Closed {
            self.request_output();
        }
        Ok(())
    }

    /// Takes the first pending event.
    #[inline]
    fn event(&mut self) -> Option<Event> {
        if self.pending_events == 0 {
            return None;
        }
        let first = self.pending_events & self.pending_events.wrapping_neg();
        self.pending_events ^= first;
        Some(match first {
            pending_event::CONNECTED => Event::Connected,
            pending_event::READABLE => Event::Readable,
            pending_event::WRITABLE => Event::Writable,
            pending_event::FINISHED => Event::Finished,
            pending_event::BAD => Event::BadSegment(self.problem),
            pending_event::RESET => Event::Reset,
            pending_event::TIMED_OUT => Event::TimedOut,
            _ => Event::Closed,
        })
    }

    /// Checks the invariants.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let sent = self.snd_max.since(self.snd_una);
        assert!(self.snd_nxt.since(self.snd_una) <= sent, "{self:?}");
        let synchronized = self.state >= State::Established;
        // The FIN occupies a sequence number.
        assert!(!synchronized || sent <= self.queued + u32::from(self.fin_sent), "{self:?}");
        assert!(self.queued <= self.options.send_buffer && self.readable <= self.options.receive_buffer);
        assert!(self.net2.window() >= self.maxseg && self.maxseg >= 1 || self.extensions.is_some());
        if let Some(extensions) = self.extensions.as_ref().filter(|_| synchronized) {
            assert!(extensions.controller.window() >= self.maxseg, "{self:?}");
            extensions.scoreboard.check(self.snd_una, self.snd_max);
        }
        assert!(!synchronized || self.rcv_adv.since(self.rcv_nxt) <= self.receive_window(), "{self:?}");
        assert!(self.deadlines.retransmit == OFF || sent > 0, "{self:?}");
        assert!(self.deadlines.retransmit == OFF || self.deadlines.persist == OFF, "{self:?}");
        assert!(self.state > State::Listen || self.deadlines.next() == OFF, "{self:?}");
    }
}

impl<C: Content> Endpoint for Tcp<C> {
    type Command<'a> = Command<'a, C>;
    type Event = Event;
    type Refusal = Refusal;

    // Inlined, so that a command costs no more than its own case, and a segment no more than a caller needs of it.
    #[inline(always)]
    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_, C>>) -> Result<(), Refusal> {
        // A segment that arrives with a tick is processed after the tick.
        if self.deadlines.next() <= now {
            self.expire(now);
        }
        let result = match input {
            Input::Frame { peer, bytes, segment, .. } => {
                match segment {
                    None => self.process_segment(now, peer, bytes),
                    Some(_) => Segment::frames(segment, bytes)
                        .for_each(|frame| self.process_segment(now, peer, frame)),
                }
                Ok(())
            }
            Input::Command(command) => self.command(now, command),
            Input::Wake => Ok(()),
        };
        #[cfg(debug_assertions)]
        self.check();
        result
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if let Some(event) = self.event() {
            return Output::Event(event);
        }
        let mut reason = Reason::Input;
        if self.is_output_due() {
            if !writable.has(PORT) {
                reason = Reason::Port(PORT);
            } else if self.reply.is_some()
                && let Some((length, peer)) = self.write_reset(buffer)
            {
                return Output::Transmit(Transmit { port: PORT, peer, length, segment: None });
            } else if let Some(length) = self.output(now, buffer) {
                #[cfg(debug_assertions)]
                self.check();
                return Output::Transmit(Transmit { port: PORT, peer: self.peer, length, segment: None });
            }
        }
        Output::Idle(Idle { deadline: self.deadline(), reason })
    }
}
