//! One end of a connection: what can be asked of it and what it reports.
//!
//! # Where it differs from Net/2
//!
//! - Buffers are as large as they were asked to be, not rounded up to whole segments.
//! - What is received is acknowledged when two segments' worth of it is unacknowledged even if nobody has taken it. The
//!   Berkeley code waits for the window update that taking it causes; who takes at once sees no difference.
//! - A reset must hit the next expected number exactly; elsewhere in the window it is answered with an
//!   acknowledgement, and so is a SYN (RFC 5961, sections 3 and 4).
//! - Payload and FIN on a SYN are not taken; they come again. A FIN ahead of its turn is remembered.
//! - Closing is closing one direction. There is no timer for a peer that never closes the other: abort it.
//! - There is no urgent data, no keep-alive, no cache of routes; a fast retransmission leaves the next segment to send
//!   where it is instead of going back and forth.
//! - A segment that answers an attempt to connect from nowhere is dropped, reset and not kept: one end is one
//!   connection, there is no backlog.

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Segment, Transmit, Writable};
use trunkline_units::Instant;

use crate::content::Content;
use crate::ranges::Ranges;
use crate::rtt::RoundTrip;
use crate::segment::{ACK, LARGEST_SCALE, Malformed, RST, Seq};
use crate::statistics::{Gauges, Statistics};
use crate::time::{OFF, Time};
use crate::{Arithmetic, Options};

/// The only port.
pub(crate) const PORT: Port = Port(0);

/// Most acknowledgements that wait to be sent: one for each frame of a batch.
const MOST_ACKS: u8 = trunkline_endpoint::MAX_SEGMENTS as u8;

/// Where a connection stands (RFC 793, section 3.2), in the order of the Berkeley code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Not yet, or no more.
    Closed,
    /// Waits for somebody.
    Listen,
    /// Has asked.
    SynSent,
    /// Was asked, or both asked at once.
    SynReceived,
    /// Open both ways.
    Established,
    /// The other end has finished.
    CloseWait,
    /// This end has finished.
    FinWait1,
    /// Both have, at the same time.
    Closing,
    /// Both have, the other end first.
    LastAck,
    /// This end has finished, and the other knows.
    FinWait2,
    /// Both have finished, this end first; what still wanders about dies out.
    TimeWait,
}

/// What its user may ask.
#[derive(Debug)]
pub enum Command<'a, C: Content> {
    /// Opens the connection. Once, from a new end.
    Connect,
    /// Waits for the other end to open it. Once, from a new end.
    Listen,
    /// Sends all of this, or is refused: see [`Tcp::room`].
    Send(C::Source<'a>),
    /// Takes as much as this holds, or is refused: see [`Tcp::readable`].
    Take(C::Target<'a>),
    /// Nothing more will be sent; what was sent still arrives, and the other direction stays open. Before the
    /// connection is open: gives up.
    Close,
    /// Drops the connection at once and tells the other end.
    Abort,
}

/// What it reports. What happens several times before it is asked is reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is open.
    Connected,
    /// More has arrived.
    Readable,
    /// After a refused [`Command::Send`]: there is room for what was refused.
    Writable,
    /// The other end has sent all it had, and all of it has arrived.
    Finished,
    /// A segment was no good; the last of them for this reason.
    BadSegment(Problem),
    /// The other end has dropped the connection, or refused it.
    Reset,
    /// The other end has not answered for too long.
    TimedOut,
    /// The connection has ended: all that was sent is acknowledged and the other end has finished, or it was dropped
    /// for a reason told before, or aborted. Nothing follows.
    Closed,
}

/// Why a segment was no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Shorter than a header.
    Short,
    /// Its header says that it is shorter than a header, or longer than the segment.
    Offset,
    /// Its ports are not those of this connection.
    Ports,
    /// It belongs to no connection: there is none yet, or no more, or it cannot open one.
    Stray,
    /// It acknowledges what was never sent.
    Unsent,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An end is one connection, and this one has been used.
    Used,
    /// The connection is not open yet, or this direction of it is closed already.
    NotOpen,
    /// There is no room for that now; [`Event::Writable`] tells when there is.
    Full,
    /// There never is room for that: it is larger than the buffer.
    TooLarge,
    /// Less has arrived.
    Short,
}

/// Events that wait, a bit each, in the order in which they are told.
pub(crate) mod wait {
    pub const CONNECTED: u8 = 1;
    pub const READABLE: u8 = 2;
    pub const WRITABLE: u8 = 4;
    pub const FINISHED: u8 = 8;
    pub const BAD: u8 = 16;
    pub const RESET: u8 = 32;
    pub const TIMED_OUT: u8 = 64;
    pub const CLOSED: u8 = 128;
}

/// Whether to look for something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing has changed.
    No,
    /// Something has.
    First,
    /// A segment has left and there may be more. Whether everything was acknowledged before the first of them counts
    /// for all of them, since the Berkeley code sends them in one go.
    Again {
        /// It was.
        idle: bool,
    },
}

/// A reset that waits to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub(crate) peer: Peer,
    pub(crate) port: u16,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: u8,
}

/// Timers: when each expires, or [`OFF`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alarms {
    /// Sends again.
    pub(crate) retransmit: Instant,
    /// Probes a shut window.
    pub(crate) persist: Instant,
    /// Acknowledges.
    pub(crate) acknowledge: Instant,
    /// Gives up connecting, or ends [`State::TimeWait`].
    pub(crate) patience: Instant,
}

impl Alarms {
    pub(crate) const OFF: Alarms = Alarms { retransmit: OFF, persist: OFF, acknowledge: OFF, patience: OFF };

    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.retransmit.min(self.persist).min(self.acknowledge.min(self.patience))
    }
}

/// One end of a connection; see the [crate].
///
/// **Bounds.** At most [`Options::send_buffer`] bytes wait to be acknowledged: a `Send` past that is refused. At most
/// [`Options::receive_buffer`] bytes wait to be taken, gaps included: what lies past them is thrown away and
/// acknowledged as not received, and so are segments that would make more than 4,096 separate ranges. One reset and 64
/// acknowledgements wait to be sent, later ones are dropped.
///
/// **Who belongs to it** the ports say. Addresses are for whoever drives it to tell apart.
#[derive(Debug)]
pub struct Tcp<C: Content> {
    // Names are those of the Berkeley code where it has one.
    pub(crate) state: State,
    pub(crate) waiting: u8,
    pub(crate) look: Look,
    pub(crate) acks_owed: u8,
    /// Probe the window, however small it is.
    pub(crate) force: bool,
    /// Send the first unacknowledged segment once more.
    pub(crate) resend: bool,
    pub(crate) fin_sent: bool,
    pub(crate) timing: bool,
    pub(crate) snd_scale: u8,
    pub(crate) rcv_scale: u8,
    /// Both ends offered to scale windows.
    pub(crate) scaled: bool,
    pub(crate) delayed_ack: bool,
    pub(crate) nagle: bool,
    pub(crate) net2: bool,
    pub(crate) local: u16,
    pub(crate) remote: u16,
    pub(crate) snd_una: Seq,
    pub(crate) snd_nxt: Seq,
    pub(crate) snd_max: Seq,
    pub(crate) snd_wnd: u32,
    pub(crate) snd_wl1: Seq,
    pub(crate) snd_wl2: Seq,
    pub(crate) snd_cwnd: u32,
    pub(crate) snd_ssthresh: u32,
    pub(crate) max_sndwnd: u32,
    pub(crate) maxseg: u32,
    /// Bytes in the send buffer, sent or not: `snd_una` is the number of the first.
    pub(crate) queued: u32,
    pub(crate) send_buffer: u32,
    /// A send of so many bytes was refused; 0: none was.
    pub(crate) refused: u32,
    pub(crate) rcv_nxt: Seq,
    pub(crate) rcv_adv: Seq,
    pub(crate) last_ack_sent: Seq,
    /// Bytes in order that were not taken: `rcv_nxt` is the number behind the last.
    pub(crate) readable: u32,
    pub(crate) receive_buffer: u32,
    pub(crate) dupacks: u32,
    pub(crate) timed_seq: Seq,
    /// When the timed segment was sent.
    pub(crate) timed_at: Instant,
    /// When a segment last came.
    pub(crate) heard_at: Instant,
    pub(crate) alarms: Alarms,
    pub(crate) time: Time,
    pub(crate) rtt: RoundTrip,
    pub(crate) ranges: Ranges,
    pub(crate) content: C,
    pub(crate) counts: Statistics,
    pub(crate) peer: Peer,
    /// Where the other end's data ends, once it has said so.
    pub(crate) end: Option<Seq>,
    pub(crate) reply: Option<Reply>,
    pub(crate) problem: Problem,
    pub(crate) passive: bool,
    pub(crate) used: bool,
    pub(crate) options: Options,
}

/// The least shift that makes 16 bits tell `window`.
fn scale_for(window: u32) -> u8 {
    (0..LARGEST_SCALE).find(|shift| window >> shift <= 0xffff).unwrap_or(LARGEST_SCALE)
}

impl<C: Content> Tcp<C> {
    /// A new end, closed. Numbers in `options` that are out of their range are moved to its nearer end.
    pub fn new(options: Options) -> Self {
        let o = options.within_bounds();
        let first = Seq(o.initial_sequence);
        let maxseg = u32::from(o.mss);
        Tcp {
            state: State::Closed,
            waiting: 0,
            look: Look::No,
            acks_owed: 0,
            force: false,
            resend: false,
            fin_sent: false,
            timing: false,
            snd_scale: 0,
            rcv_scale: if o.scaling { scale_for(o.receive_buffer) } else { 0 },
            scaled: false,
            delayed_ack: o.delayed_ack,
            nagle: o.nagle,
            net2: o.arithmetic == Arithmetic::Net2,
            local: o.local,
            remote: o.remote,
            snd_una: first,
            snd_nxt: first,
            snd_max: first,
            snd_wnd: 0,
            snd_wl1: Seq(0),
            snd_wl2: Seq(0),
            snd_cwnd: maxseg,
            snd_ssthresh: o.initial_ssthresh.unwrap_or(0xffff << LARGEST_SCALE),
            max_sndwnd: 0,
            maxseg,
            queued: 0,
            send_buffer: o.send_buffer,
            refused: 0,
            rcv_nxt: Seq(0),
            rcv_adv: Seq(0),
            last_ack_sent: Seq(0),
            readable: 0,
            receive_buffer: o.receive_buffer,
            dupacks: 0,
            timed_seq: first,
            timed_at: Instant::ZERO,
            heard_at: Instant::ZERO,
            alarms: Alarms::OFF,
            time: Time::new(o.timers),
            rtt: RoundTrip::new(o.timers),
            ranges: Ranges::default(),
            content: C::new(o.send_buffer, o.receive_buffer),
            counts: Statistics::default(),
            peer: o.peer,
            end: None,
            reply: None,
            problem: Problem::Stray,
            passive: false,
            used: false,
            options: o,
        }
    }

    /// What it was set to.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Where the connection stands.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Bytes that [`Command::Send`] takes now; 0 if it takes none because this direction is not open.
    #[inline]
    pub fn room(&self) -> u32 {
        if self.may_send() { self.send_buffer - self.queued } else { 0 }
    }

    /// Bytes that [`Command::Take`] gives now.
    #[inline]
    pub fn readable(&self) -> u32 {
        self.readable
    }

    /// Bytes given to [`Command::Send`] that are not acknowledged, sent or not.
    #[inline]
    pub fn unacknowledged(&self) -> u32 {
        self.queued
    }

    /// Whether the connection has been opened and has not ended.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state >= State::Established && self.state != State::TimeWait
    }

    /// Whether the connection has ended and nothing of it is left; a new end is not closed in this sense.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.used && self.state == State::Closed
    }

    /// Whether the other end has sent all it had and all of it has arrived.
    #[inline]
    pub fn is_finished(&self) -> bool {
        matches!(self.state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait)
    }

    /// What it has counted.
    #[inline]
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// How it stands.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            cwnd: self.snd_cwnd,
            ssthresh: self.snd_ssthresh,
            peer_window: self.snd_wnd,
            mss: self.maxseg,
            in_flight: self.snd_max.since(self.snd_una),
            smoothed_rtt: self.time.span(self.rtt.mean_eighths()) / 8,
            rto: self.time.span(self.rtt.rto()),
            duplicate_acks: self.dupacks,
        }
    }

    #[inline]
    fn may_send(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Something may have to be sent.
    #[inline]
    pub(crate) fn look(&mut self) {
        if self.look == Look::No {
            self.look = Look::First;
        }
    }

    /// An acknowledgement leaves at once.
    #[inline]
    pub(crate) fn owe_ack(&mut self) {
        self.acks_owed = self.acks_owed.max(1);
        self.look();
    }

    /// One more acknowledgement leaves, so that the other end can count them.
    pub(crate) fn owe_another_ack(&mut self) {
        self.acks_owed = (self.acks_owed + 1).min(MOST_ACKS);
        self.look();
    }

    /// Room in the receive buffer: the window.
    #[inline]
    pub(crate) fn space(&self) -> u32 {
        self.receive_buffer - self.readable
    }

    /// The connection is no more; what has arrived can still be taken.
    pub(crate) fn end(&mut self, why: u8) {
        self.waiting |= why;
        self.alarms = Alarms::OFF;
        self.state = State::Closed;
        (self.queued, self.refused, self.acks_owed) = (0, 0, 0);
        (self.force, self.resend, self.timing) = (false, false, false);
        self.snd_una = self.snd_max;
        self.snd_nxt = self.snd_max;
        self.look = Look::No;
        self.ranges.clear();
    }

    /// Tells the other end that the connection is no more.
    pub(crate) fn reset_peer(&mut self) {
        if self.state >= State::SynReceived {
            let (seq, ack) = (self.snd_max, self.rcv_nxt);
            self.reply = Some(Reply { peer: self.peer, port: self.remote, seq, ack, flags: RST | ACK });
        }
    }

    /// Back to waiting for somebody, as if nobody had come.
    pub(crate) fn listen(&mut self) {
        let o = self.options;
        let first = Seq(o.initial_sequence);
        (self.snd_una, self.snd_nxt, self.snd_max) = (first, first, first);
        (self.remote, self.peer, self.maxseg) = (o.remote, o.peer, u32::from(o.mss));
        (self.snd_cwnd, self.snd_scale, self.scaled) = (self.maxseg, 0, false);
        self.rcv_scale = if o.scaling { scale_for(o.receive_buffer) } else { 0 };
        self.rtt = RoundTrip::new(o.timers);
        self.alarms = Alarms::OFF;
        (self.acks_owed, self.timing, self.dupacks) = (0, false, 0);
        self.look = Look::No;
        self.state = State::Listen;
    }

    #[inline]
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
                self.end(wait::CLOSED);
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
        let count = C::offered(source);
        if !self.may_send() {
            return Err(Refusal::NotOpen);
        }
        if count > self.send_buffer {
            return Err(Refusal::TooLarge);
        }
        if count > self.send_buffer - self.queued {
            self.refused = count;
            return Err(Refusal::Full);
        }
        self.content.append(self.queued, source);
        self.queued += count;
        self.look();
        Ok(())
    }

    #[inline]
    fn take(&mut self, target: C::Target<'_>) -> Result<(), Refusal> {
        let count = C::wanted(&target);
        if count > self.readable {
            return Err(Refusal::Short);
        }
        self.content.take(target);
        self.readable -= count;
        if self.state >= State::Established && self.window_opened() {
            self.look();
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        match self.state {
            State::Listen | State::SynSent => self.end(wait::CLOSED),
            State::SynReceived => {
                self.reset_peer();
                self.end(wait::CLOSED);
            }
            State::Established => self.state = State::FinWait1,
            State::CloseWait => self.state = State::LastAck,
            _ => return Err(Refusal::NotOpen),
        }
        self.refused = 0;
        if self.state != State::Closed {
            self.look();
        }
        Ok(())
    }

    /// Takes the first event that waits.
    #[inline]
    fn event(&mut self) -> Option<Event> {
        if self.waiting == 0 {
            return None;
        }
        let first = self.waiting & self.waiting.wrapping_neg();
        self.waiting ^= first;
        Some(match first {
            wait::CONNECTED => Event::Connected,
            wait::READABLE => Event::Readable,
            wait::WRITABLE => Event::Writable,
            wait::FINISHED => Event::Finished,
            wait::BAD => Event::BadSegment(self.problem),
            wait::RESET => Event::Reset,
            wait::TIMED_OUT => Event::TimedOut,
            _ => Event::Closed,
        })
    }

    /// What must hold whatever the other end does.
    #[cfg(debug_assertions)]
    fn check(&self) {
        let sent = self.snd_max.since(self.snd_una);
        assert!(self.snd_nxt.since(self.snd_una) <= sent, "{self:?}");
        let synchronized = self.state >= State::Established;
        // The FIN takes a number too.
        assert!(!synchronized || sent <= self.queued + u32::from(self.fin_sent), "{self:?}");
        assert!(self.queued <= self.send_buffer && self.readable <= self.receive_buffer);
        assert!(self.snd_cwnd >= self.maxseg && self.maxseg >= 1);
        assert!(!synchronized || self.rcv_adv.since(self.rcv_nxt) <= self.space(), "{self:?}");
        assert!(self.alarms.retransmit == OFF || sent > 0, "{self:?}");
        assert!(self.alarms.retransmit == OFF || self.alarms.persist == OFF, "{self:?}");
        assert!(self.state > State::Listen || self.alarms.next() == OFF, "{self:?}");
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Problem {
        match malformed {
            Malformed::Short => Problem::Short,
            Malformed::Offset => Problem::Offset,
        }
    }
}

impl<C: Content> Endpoint for Tcp<C> {
    type Command<'a> = Command<'a, C>;
    type Event = Event;
    type Refusal = Refusal;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_, Command<'_, C>>) -> Result<(), Refusal> {
        // Ties go to the timer: what comes with a tick comes after it.
        if self.alarms.next() <= now {
            self.expire(now);
        }
        let result = match input {
            Input::Frame { peer, bytes, segment, .. } => {
                match segment {
                    None => self.arrive(now, peer, bytes),
                    Some(_) => {
                        Segment::frames(segment, bytes).for_each(|frame| self.arrive(now, peer, frame))
                    }
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

    #[inline]
    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        if let Some(event) = self.event() {
            return Output::Event(event);
        }
        let mut reason = Reason::Input;
        if self.look != Look::No || self.resend || self.reply.is_some() {
            if !writable.has(PORT) {
                reason = Reason::Port(PORT);
            } else if let Some((length, peer)) = self.answer(buffer) {
                return Output::Transmit(Transmit { port: PORT, peer, length, segment: None });
            } else if let Some(length) = self.output(now, buffer) {
                #[cfg(debug_assertions)]
                self.check();
                return Output::Transmit(Transmit { port: PORT, peer: self.peer, length, segment: None });
            }
        }
        let next = self.alarms.next();
        Output::Idle(Idle { deadline: (next != OFF).then_some(next), reason })
    }
}
