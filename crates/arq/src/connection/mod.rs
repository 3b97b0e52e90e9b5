//! An established connection: sender, receiver, and their interaction.
//!
//! | module | contents |
//! | --- | --- |
//! | [`acks`] | creation and processing of acknowledgements |
//! | [`frames`] | reception and transmission of frames |
//! | [`protection`] | checksum with a secret, or encryption |
//! | [`repair`] | forward error correction |
//! | [`timers`] | timers |
//! | [`path`] | path MTU discovery |
//! | [`search`] | search strategy of path MTU discovery |
//! | [`parts`] | frames in parts, when they exceed the path MTU |
//! | [`batch`] | fast path for batches of received frames |
//! | [`fast_path`] | fast path for single frames |

use std::collections::VecDeque;

use trunkline_congestion::Controller;
use trunkline_endpoint::{MAX_BATCH, MAX_SEGMENTS, Peer};
use trunkline_units::{Instant, Rate, Span};

use crate::options::{MAX_MESSAGE, Options};
use crate::receive::arrivals::Arrivals;
use crate::receive::{ReceiveStatus, Receiver};
use crate::rtt::RttEstimator;
use crate::send::Sender;
use crate::stages::{Meter, Stage, StageGroup, StageSampler};
use crate::statistics::Statistics;
use crate::wire::check::{Direction, OpenError};
use crate::wire::data;
use crate::wire::handshake::{Mode, TransportParameters};
use crate::{Buffer, CloseReason, EventKind, Refusal};

mod acks;
mod batch;
mod fast_path;
mod frames;
mod parts;
mod path;
mod protection;
mod repair;
mod search;
mod timers;

use acks::PendingAck;
pub(crate) use fast_path::FastPathOutcome;
use frames::RecentFrames;
use path::PathState;
use protection::FrameProtection;
use repair::FecState;
use search::{PathSearch, Probe};
use timers::{Timer, TimerTable};

/// Control messages, sent as chunks of the control channel: a type byte and its value.
pub(crate) mod control {
    /// Credit of the connection: total bytes that the peer may send on all channels, u64.
    pub const CREDIT: u8 = 1;
    /// Credit of a channel: channel u16, total bytes u64.
    pub const CHANNEL_CREDIT: u8 = 2;
    /// The sender has finished: no data follows this frame.
    pub const FINISH: u8 = 3;
}

/// With this many frames in flight, two full batches, data waits for a full batch, at most for this time.
const BUSY_IN_FLIGHT: u32 = 2 * MAX_SEGMENTS as u32;
const BUSY_COALESCE_DELAY: Span = Span::from_us(50);
/// Send buffer of automatic size of a channel; on a path with a longer round trip than `LONG_PATH` the larger one.
const SHORT_PATH_BUFFER: usize = 1 << 20;
const LONG_PATH_BUFFER: usize = 4 << 20;
const LONG_PATH: Span = Span::from_ms(1);
/// Later transmissions acknowledged before a frame is declared lost (RFC 5681 and RFC 9002), without forward error
/// correction and before reordering is detected.
const REORDERING_THRESHOLD: u64 = 3;

#[derive(Debug, Default)]
struct ClosingState {
    /// The application has closed the connection.
    requested: bool,
    /// The finish message was sent to the peer.
    finish_sent: bool,
    /// Number of the frame with the peer's finish message.
    peer_finish: Option<u64>,
    /// All frames of the peer up to `peer_finish` have arrived.
    peer_finished: bool,
}

/// An unnumbered control frame to send.
#[derive(Clone, Copy, Debug)]
enum PendingControl {
    KeepAlive,
    PathProbe(Probe),
    ProbeReply { token: u32, length: u16 },
    Reset,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub peer: Peer,
    /// Random numbers that identify the connection, drawn by client and server.
    pub client_id: u64,
    pub server_id: u64,
    pub options: Options,
    /// The peer's `ack_delay` and `ack_every`.
    peer_ack_delay: Span,
    peer_ack_every: u64,
    /// Negotiated window: maximum number of frames in flight and in the peer's reordering window.
    window: u64,
    /// Maximum length of a frame that is sent whole: the current path MTU.
    max_frame: usize,
    /// Length that every path carries. Less than `max_frame` only if the path is probed.
    base_frame: usize,
    /// Bytes of the check sequence at the end of a frame.
    check_length: usize,
    protection: FrameProtection,
    /// Path MTU discovery, if both ends agreed.
    path: Option<Box<PathState>>,
    /// Direction of the frames that this end sends.
    direction: Direction,
    pub sender: Sender,
    /// Number of frames in flight at which messages begin to be encoded on sending; [`u32::MAX`]: never.
    pre_encode_from: u32,
    /// The last batch if it was sent in place, without a copy: it lies in a frame buffer of the sender instead of the
    /// caller's buffer. Index of the frame buffer, and offset.
    pub in_place_batch: Option<(u32, usize)>,
    pub receiver: Receiver,
    arrivals: Arrivals,
    pub rtt: RttEstimator,
    controller: Box<dyn Controller>,
    /// New frames of the peer since the last report of an acknowledgement to the controller.
    peer_frames: u32,
    /// Limits of the controller: the window for data frames, no more than the negotiated window, and the pace.
    effective_window: u64,
    pace: Option<Rate>,
    pending_ack: PendingAck,
    timers: TimerTable,
    /// Timeouts since the last acknowledgement, including those that send tail loss probes.
    timeouts_in_a_row: u32,
    /// Doublings of the timeout since the last round-trip sample (Karn's algorithm, RFC 6298, 5.7): the
    /// acknowledgement of a retransmitted frame does not prove that the timeout was long enough. Go-back-N reverts one
    /// for a request that it serves meanwhile.
    backoff_exponent: u32,
    /// There was a timeout, and no round-trip sample since.
    is_rtt_uncertain: bool,
    /// Earliest time of the next transmission according to the pace.
    pace_at: Instant,
    /// Small messages wait until this time for others that share their frame.
    coalesce_until: Instant,
    /// A frame to retransmit as a tail loss probe.
    tail_probe: Option<u64>,
    /// The frame at which the last go-back-N retransmission started; none after a timeout.
    last_go_back: Option<u64>,
    /// When a damaged frame last triggered a negative acknowledgement.
    damaged_at: Option<Instant>,
    /// Later transmissions acknowledged before a frame is declared lost.
    reordering_threshold: u64,
    /// Frames declared lost by loss detection since the peer last reported duplicates.
    early_retransmissions: u32,
    /// Duplicates that the peer has reported, modulo 256.
    reported_duplicates: u8,
    /// The recovery from a loss ends when all frames before this number are acknowledged.
    recovery_end: Option<u64>,
    /// When the last frame of the peer arrived.
    last_activity: Instant,
    /// No authentic frame of the peer has arrived yet.
    unconfirmed: bool,
    /// Keep-alive probes and timeouts since the last frame of the peer.
    unanswered_probes: u32,
    pending_controls: VecDeque<PendingControl>,
    recent_frames: RecentFrames,
    /// Forward error correction, if both ends agreed.
    fec: Option<Box<FecState>>,
    closing: ClosingState,
    /// Whether fast paths apply: no forward error correction and no path MTU probing. Tests disable them.
    pub fast_path_enabled: bool,
    /// The connection has no timers any more.
    stopped: bool,
    /// Reason of the end, and whether it was reported; whether the end of the peer's data was reported.
    pub close_reason: Option<CloseReason>,
    close_reported: bool,
    finish_reported: bool,
    stage_sampler: StageSampler,
    pub statistics: Statistics,
}

impl Connection {
    /// Creates a connection to `peer`, which has sent `peer_parameters`. This end sends frames in `direction`.
    pub fn new(
        now: Instant,
        peer: Peer,
        (client_id, server_id): (u64, u64),
        direction: Direction,
        options: Options,
        peer_parameters: &TransportParameters,
    ) -> Self {
        let window = if options.mode == Mode::StopAndWait {
            1
        } else {
            options.window.min(peer_parameters.window).max(1)
        };
        let initial_frame =
            usize::from(options.frame.min(peer_parameters.frame).max(crate::options::MIN_FRAME));
        let path = (options.probe_up_to.is_some() && peer_parameters.parts).then(|| {
            let max_frame =
                usize::from(options.max_receive_frame().min(peer_parameters.frame)).max(initial_frame);
            let max_body = usize::from(options.max_receive_frame()) - options.check.bytes();
            Box::new(PathState::new(PathSearch::new(now, initial_frame, max_frame), max_body))
        });
        let base_frame = path.as_ref().map_or(initial_frame, |path| path.search.base);
        let fec = FecState::negotiate(options.fec, peer_parameters.fec.filter(|_| !peer_parameters.parts));
        let chunk_capacity =
            base_frame - data::HEADER - options.check.bytes() - FecState::reserved_bytes(&fec);
        let mut timers = TimerTable::default();
        if !options.keep_alive.is_zero() {
            timers.set(Timer::KeepAlive, now + options.keep_alive);
        }
        let mut connection = Connection {
            peer,
            client_id,
            server_id,
            peer_ack_delay: Span::from_us(peer_parameters.ack_delay_us.into()),
            peer_ack_every: peer_parameters.ack_every.into(),
            window: window.into(),
            max_frame: initial_frame,
            base_frame,
            check_length: options.check.bytes(),
            protection: FrameProtection::new(&options, (client_id, server_id), direction),
            direction,
            sender: Sender::new(
                options.mode == Mode::Selective,
                peer_parameters.credit,
                peer_parameters.channel_credit,
                if options.send_buffer == 0 { SHORT_PATH_BUFFER } else { options.send_buffer },
                chunk_capacity,
            ),
            pre_encode_from: u32::MAX,
            in_place_batch: None,
            receiver: Receiver::new(options.credit, options.channel_credit, options.max_receive_frame()),
            arrivals: Arrivals::new(options.window),
            rtt: RttEstimator::new(options.timeout),
            controller: options.congestion.controller(
                window.into(),
                peer_parameters.ack_every.into(),
                // Random numbers that both ends have drawn; each direction has another seed.
                client_id.rotate_left(32) ^ server_id ^ direction as u64,
            ),
            peer_frames: 0,
            effective_window: 1,
            pace: None,
            pending_ack: PendingAck::default(),
            timers,
            timeouts_in_a_row: 0,
            backoff_exponent: 0,
            is_rtt_uncertain: false,
            pace_at: Instant::ZERO,
            coalesce_until: Instant::ZERO,
            tail_probe: None,
            last_go_back: None,
            damaged_at: None,
            reordering_threshold: FecState::reordering_threshold(&fec),
            early_retransmissions: 0,
            reported_duplicates: 0,
            recovery_end: None,
            last_activity: now,
            unconfirmed: true,
            unanswered_probes: 0,
            pending_controls: VecDeque::new(),
            recent_frames: RecentFrames::default(),
            fast_path_enabled: path.is_none() && fec.is_none(),
            fec,
            path,
            closing: ClosingState::default(),
            stopped: false,
            close_reason: None,
            close_reported: false,
            finish_reported: false,
            stage_sampler: StageSampler::default(),
            statistics: Statistics::default(),
            options,
        };
        connection.update_limits();
        connection
    }

    /// Sets the numbers of the first frame and of the first chunk of each channel.
    pub fn set_first_numbers(&mut self, (frame, chunk): (u64, u64)) {
        self.sender.set_first_numbers(frame, chunk);
        self.receiver.first_chunk = chunk;
        self.arrivals.set_first_number(frame);
        self.protection.set_first_number(frame);
    }

    /// Encodes messages into frames when they are sent while at least `in_flight` frames are in flight. Has no effect
    /// if frames are encrypted, protected by FEC, or limited by path MTU probes.
    pub fn enable_pre_encoding(&mut self, in_flight: u32) {
        if self.path.is_none() && self.fec.is_none() && !self.protection.is_encrypted() {
            self.pre_encode_from = in_flight;
            self.sender.enable_pre_encoding(self.max_frame, self.check_length);
        }
    }

    /// Returns the last batch, of `length` bytes, if it was sent in place.
    #[inline]
    pub fn in_place_bytes(&self, length: usize) -> Option<&[u8]> {
        let (buffer, at) = self.in_place_batch?;
        self.sender.frame_buffer(buffer).get(at..at + length)
    }

    /// Writes the proof of the preshared key into a handshake frame, if there is a key.
    pub fn prove(&self, frame: &mut [u8]) {
        if let Some(key) = &self.options.key {
            key.prove(frame);
        }
    }

    /// Returns whether a handshake frame has a valid proof, or no key is in use.
    pub fn is_proven(&self, frame: &[u8]) -> bool {
        self.options.key.as_ref().is_none_or(|key| key.proves(frame))
    }

    #[cold]
    fn count_rejected(&mut self, error: OpenError) {
        match error {
            OpenError::Damaged => self.statistics.bad_checksums += 1,
            OpenError::Replayed => self.statistics.duplicates += 1,
        }
    }

    /// Records the round-trip time of the handshake, so that an early loss need not wait for the initial timeout.
    pub fn record_handshake(&mut self, now: Instant, round_trip: Span) {
        self.rtt.sample(now, round_trip);
        self.controller.on_handshake(now, round_trip);
        self.update_limits();
    }

    /// Sends a copy of a message.
    #[inline]
    pub fn send(&mut self, now: Instant, channel: u16, bytes: &[u8]) -> Result<(), Refusal> {
        self.check_send(channel, bytes.len())?;
        self.start_coalescing(now);
        let started = self.stage_sampler.begin(StageGroup::Sends);
        let encode_now =
            self.sender.flights.in_flight() >= self.pre_encode_from && self.pending_ack.frames == 0;
        self.sender.queue_copy(channel, bytes, encode_now);
        self.stage_sampler.end(Stage::CopyIn, started);
        Ok(())
    }

    /// Sends a message without a copy.
    #[inline]
    pub fn send_owned(&mut self, now: Instant, channel: u16, message: &mut Buffer) -> Result<(), Refusal> {
        self.check_send(channel, message.len())?;
        self.start_coalescing(now);
        self.sender.queue_owned(channel, std::mem::take(message));
        Ok(())
    }

    #[inline]
    fn check_send(&mut self, channel: u16, length: usize) -> Result<(), Refusal> {
        if self.close_reason.is_some() || self.closing.requested {
            return Err(Refusal::Closed);
        }
        if channel == data::CONTROL {
            return Err(Refusal::Channel);
        }
        if length > MAX_MESSAGE {
            return Err(Refusal::TooLong);
        }
        if self.sender.has_room(channel) || self.grow_send_buffer() { Ok(()) } else { Err(Refusal::Full) }
    }

    /// Enlarges a send buffer of automatic size for a long path; returns whether it did.
    #[cold]
    fn grow_send_buffer(&mut self) -> bool {
        let grows = self.options.send_buffer == 0
            && self.sender.send_buffer < LONG_PATH_BUFFER
            && self.rtt.min().is_some_and(|min_rtt| min_rtt > LONG_PATH);
        if grows {
            self.sender.send_buffer = LONG_PATH_BUFFER;
        }
        grows
    }

    /// Starts to delay small messages if frames are in flight whose acknowledgement will wake the connection.
    #[inline]
    fn start_coalescing(&mut self, now: Instant) {
        if self.sender.unsent_bytes() == 0 && self.sender.flights.in_flight() > 0 {
            self.coalesce_until = now + self.coalesce_delay();
        }
    }

    /// Returns how long less than [`coalesce_threshold`](Connection::coalesce_threshold) bytes may wait for more.
    #[inline]
    fn coalesce_delay(&self) -> Span {
        if self.is_busy() {
            self.options.coalesce_delay.max(BUSY_COALESCE_DELAY)
        } else {
            self.options.coalesce_delay
        }
    }

    /// Returns the number of bytes that need not wait for more: a frame, or a batch if many frames are in flight.
    #[inline]
    fn coalesce_threshold(&self) -> usize {
        let frames = if self.is_busy() { (MAX_BATCH / self.max_frame).clamp(1, MAX_SEGMENTS) } else { 1 };
        frames * self.chunk_capacity()
    }

    /// Returns whether at least two full batches are in flight.
    #[inline]
    fn is_busy(&self) -> bool {
        self.sender.flights.in_flight() >= BUSY_IN_FLIGHT
    }

    /// Returns the next message of a channel.
    #[inline]
    pub fn receive(&mut self, channel: u16, into: &mut Buffer) -> ReceiveStatus {
        let started = self.stage_sampler.begin(StageGroup::Receives);
        let status = self.receiver.take_message(channel, into);
        match status {
            ReceiveStatus::Empty => self.stage_sampler.cancel(StageGroup::Receives, started),
            ReceiveStatus::Complete | ReceiveStatus::Partial => {
                self.stage_sampler.end(Stage::CopyOut, started);
                self.grant_credit();
            }
        }
        status
    }

    /// Copies the data of a channel as a byte stream; returns the number of bytes.
    pub fn read(&mut self, channel: u16, into: &mut [u8]) -> usize {
        let read = self.receiver.read(channel, into);
        self.grant_credit();
        read
    }

    /// Grants the peer more credit once the amount is worth a message.
    #[inline(always)]
    fn grant_credit(&mut self) {
        if self.receiver.needs_grant() {
            self.send_credit();
        }
    }

    fn send_credit(&mut self) {
        if self.close_reason.is_some() || self.closing.peer_finished {
            return;
        }
        if let Some(limit) = self.receiver.grant() {
            let mut message = [control::CREDIT; 9];
            message[1..].copy_from_slice(&limit.to_be_bytes());
            self.sender.send_control(&message);
        }
        while let Some((channel, limit)) = self.receiver.grant_channel() {
            let mut message = [control::CHANNEL_CREDIT; 11];
            message[1..3].copy_from_slice(&channel.to_be_bytes());
            message[3..].copy_from_slice(&limit.to_be_bytes());
            self.sender.send_control(&message);
        }
    }

    /// Measures the stages of one in `every` messages and frames.
    pub fn set_meter(&mut self, every: u32, meter: Box<dyn Meter>) {
        self.stage_sampler = StageSampler::new(meter, every);
    }

    /// Starts the closing handshake: no more messages are accepted for sending.
    pub fn close(&mut self) {
        self.closing.requested = true;
        self.advance_closing();
    }

    pub fn reset(&mut self) {
        if self.close_reason.is_none() {
            self.reset_because(CloseReason::LocalReset);
        }
    }

    fn reset_because(&mut self, reason: CloseReason) {
        self.pending_controls.clear();
        self.pending_controls.push_back(PendingControl::Reset);
        self.terminate(reason);
    }

    /// Ends the connection. The first reason counts.
    pub fn terminate(&mut self, reason: CloseReason) {
        self.close_reason.get_or_insert(reason);
        if !self.is_active() {
            self.stop();
        }
    }

    /// Stops all timers but that of the owed acknowledgement.
    fn stop(&mut self) {
        self.stopped = true;
        for timer in [Timer::Retransmit, Timer::Loss, Timer::KeepAlive] {
            self.timers.stop(timer);
        }
        if let Some(path) = &mut self.path {
            path.search.wake_at = Instant::MAX;
        }
    }

    /// Returns whether the connection still sends. A completed connection may still have to send its last
    /// acknowledgements.
    #[inline]
    fn is_active(&self) -> bool {
        !self.stopped
            && self
                .close_reason
                .is_none_or(|reason| reason == CloseReason::Completed && !self.sender.is_done())
    }

    fn advance_closing(&mut self) {
        if self.closing.requested
            && !self.closing.finish_sent
            && self.sender.unsent_bytes() == 0
            && self.close_reason.is_none()
        {
            self.closing.finish_sent = true;
            self.sender.send_control(&[control::FINISH]);
        }
        if let Some(last) = self.closing.peer_finish
            && self.arrivals.next() > last
        {
            self.closing.peer_finished = true;
        }
        if self.closing.finish_sent && self.closing.peer_finished && self.sender.is_done() {
            // Frames that the peer retransmits because of a lost acknowledgement are still answered.
            self.terminate(CloseReason::Completed);
        }
    }

    #[inline]
    pub fn next_event(&mut self) -> Option<EventKind> {
        if let Some(channel) = self.receiver.readable.pop_front() {
            return Some(EventKind::Readable { channel });
        }
        // Once the connection has ended, an acknowledgement no longer makes a channel writable.
        if self.close_reason.is_none()
            && let Some(channel) = self.sender.writable.pop_front()
        {
            return Some(EventKind::Writable { channel });
        }
        if self.closing.peer_finished && !self.finish_reported {
            self.finish_reported = true;
            return Some(EventKind::Finished);
        }
        // The last acknowledgement leaves before the end is reported.
        let ack_due = self.close_reason == Some(CloseReason::Completed) && self.timers.is_set(Timer::Ack);
        if let (Some(reason), false, false) = (self.close_reason, self.close_reported, ack_due) {
            self.close_reported = true;
            return Some(EventKind::Closed { reason });
        }
        None
    }

    /// Returns how long a completed connection answers a peer that missed the last acknowledgement.
    pub fn linger_time(&self) -> Span {
        self.rtt.timeout(self.peer_ack_delay) * 4
    }

    /// Returns whether the client has not confirmed the connection yet; always false at the client.
    pub fn is_unconfirmed(&self) -> bool {
        self.unconfirmed && self.direction == Direction::ToClient && self.close_reason.is_none()
    }
}
