//! Segment arrival (`tcp_input`, `tcp_reass`).

use trunkline_congestion::{Acknowledgement, Bounds, Controller, SinceSent};
use trunkline_endpoint::Peer;
use trunkline_units::Instant;

use crate::Content;
use crate::segment::{ACK, FIN, HEADER, Header, Offer, PSH, Problem, RST, SYN, Seq};
use crate::tcp::{Reply, State, Tcp, pending_event};
use crate::time::OFF;

/// Duplicate acknowledgements that indicate a loss.
pub(crate) const DUPLICATE_ACK_THRESHOLD: u32 = 3;

/// MSS of a peer that sends no MSS option (RFC 1122, section 4.2.2.6).
const DEFAULT_MSS: u16 = 536;

/// Smallest accepted MSS.
const SMALLEST_MSS: u16 = 32;

impl<C: Content> Tcp<C> {
    /// Processes a received segment.
    #[inline(always)]
    pub(crate) fn process_segment(&mut self, now: Instant, peer: Peer, bytes: &[u8]) {
        self.counts.segments_received += 1;
        let (header, start) = match Header::parse(bytes) {
            Ok(parsed) => parsed,
            Err(problem) => return self.bad(problem),
        };
        let stranger = header.source != self.remote && self.remote != 0;
        if header.destination != self.options.local || stranger {
            return self.bad(Problem::Ports);
        }
        if self.state >= State::SynReceived {
            if self.extensions.is_none() {
                self.process_synchronized(now, header, &bytes[start..]);
            } else {
                self.note_ace(bytes);
                self.process_with_options(now, header, &bytes[HEADER..start], &bytes[start..]);
            }
        } else {
            self.note_ace(bytes);
            self.process_unsynchronized(now, peer, header, &bytes[HEADER..start], bytes.len() - start);
        }
    }

    #[cold]
    fn bad(&mut self, problem: Problem) {
        self.counts.bad_segments += 1;
        self.problem = problem;
        self.pending_events |= pending_event::BAD;
    }

    /// Answers a segment of no connection with a reset, unless it is a reset itself (RFC 793, section 3.4).
    #[cold]
    fn refuse(&mut self, peer: Peer, header: &Header, length: usize, problem: Problem) {
        self.bad(problem);
        if header.has(RST) {
            return;
        }
        let port = header.source;
        self.reply = Some(if header.has(ACK) {
            Reply { peer, port, seq: header.ack, ack: Seq(0), flags: RST }
        } else {
            let numbers = length as u32 + u32::from(header.has(SYN)) + u32::from(header.has(FIN));
            Reply { peer, port, seq: Seq(0), ack: header.seq + numbers, flags: RST | ACK }
        });
    }

    #[cold]
    fn process_unsynchronized(
        &mut self,
        now: Instant,
        peer: Peer,
        header: Header,
        options: &[u8],
        length: usize,
    ) {
        let asks = header.has(SYN) && !header.has(RST | ACK);
        match self.state {
            State::Listen if asks => self.accept_syn(now, peer, &header, options),
            State::SynSent => self.process_syn_reply(now, peer, &header, options, length),
            _ => self.refuse(peer, &header, length, Problem::Stray),
        }
    }

    /// Processes a SYN in the state LISTEN.
    fn accept_syn(&mut self, now: Instant, peer: Peer, header: &Header, options: &[u8]) {
        (self.peer, self.remote) = (peer, header.source);
        self.process_offer(now, header, Offer::parse(options));
        self.state = State::SynReceived;
        self.deadlines.give_up_or_departure =
            self.time.after(now, self.time.units_of(crate::expiry::CONNECT_TIMEOUT));
    }

    /// Processes the reply to a SYN, or a simultaneous open.
    fn process_syn_reply(
        &mut self,
        now: Instant,
        peer: Peer,
        header: &Header,
        options: &[u8],
        length: usize,
    ) {
        let acknowledges = header.has(ACK);
        if acknowledges && (header.ack != self.snd_max || self.snd_max == self.snd_una) {
            return self.refuse(peer, header, length, Problem::Unsent);
        }
        if header.has(RST) {
            return if acknowledges {
                self.end(pending_event::RESET | pending_event::CLOSED)
            } else {
                self.bad(Problem::Stray)
            };
        }
        if !header.has(SYN) {
            return self.bad(Problem::Stray);
        }
        self.deadlines.retransmit = OFF;
        self.process_offer(now, header, Offer::parse(options));
        if !acknowledges {
            self.state = State::SynReceived;
            return;
        }
        self.snd_una = header.ack;
        self.snd_nxt = header.ack;
        if std::mem::take(&mut self.timing) {
            self.rtt.sample(self.time.between(self.timed_at, now));
            if let Some(extensions) = &mut self.extensions {
                extensions.controller.on_handshake(now, now.since(self.timed_at));
            }
        }
        self.establish(header.seq, header.ack, u32::from(header.window));
    }

    /// Records the peer's initial sequence number and options.
    fn process_offer(&mut self, now: Instant, header: &Header, offer: Offer) {
        self.rcv_nxt = header.seq + 1;
        self.rcv_adv = self.rcv_nxt;
        self.last_ack_sent = self.rcv_nxt;
        let mss = offer.mss.unwrap_or(DEFAULT_MSS).max(SMALLEST_MSS).min(self.options.mss);
        self.maxseg = u32::from(mss).min(self.options.send_buffer);
        self.scaled = self.options.scaling && offer.scale.is_some();
        if self.scaled {
            self.snd_scale = offer.scale.unwrap_or(0);
        } else {
            (self.snd_scale, self.rcv_scale) = (0, 0);
        }
        self.net2.set_bounds(Bounds::new(self.maxseg, 0xffff << self.snd_scale));
        self.negotiate_extensions(now, header, &offer);
        self.last_received_at = now;
        self.request_ack();
    }

    /// Enters the state ESTABLISHED.
    fn establish(&mut self, seq: Seq, ack: Seq, window: u32) {
        self.state = State::Established;
        self.deadlines.give_up_or_departure = OFF;
        self.pending_events |= pending_event::CONNECTED;
        self.update_send_window(seq, ack, window);
    }

    #[inline]
    fn update_send_window(&mut self, seq: Seq, ack: Seq, window: u32) {
        (self.snd_wl1, self.snd_wl2) = (seq, ack);
        if window != self.snd_wnd {
            self.snd_wnd = window;
            self.max_sndwnd = self.max_sndwnd.max(window);
            self.request_output();
        }
    }

    /// Processes a segment once the peer's sequence number is known.
    #[inline(always)]
    fn process_synchronized(&mut self, now: Instant, header: Header, payload: &[u8]) {
        self.last_received_at = now;
        if header.has(RST) {
            return self.process_reset(&header);
        }
        if self.is_expected(&header, payload) {
            (self.snd_wl1, self.dupacks) = (header.seq, 0);
            return self.receive(now, header.seq, false, payload);
        }
        self.process_in_window::<false>(now, header, payload);
    }

    /// Processes a segment that is not a reset. Both callers have a copy, so that the one of 4.3BSD stays short.
    #[inline(always)]
    pub(crate) fn process_in_window<const EXTENDED: bool>(
        &mut self,
        now: Instant,
        header: Header,
        payload: &[u8],
    ) {
        let Some((seq, fin, payload)) = self.trim(now, &header, payload) else { return };
        if !header.has(ACK) {
            return;
        }
        let ack = header.ack;
        if self.state == State::SynReceived {
            if ack != self.snd_max || self.snd_max == self.snd_una {
                return self.refuse(self.peer, &header, payload.len(), Problem::Unsent);
            }
            self.establish(seq, ack, 0);
        }
        let window = u32::from(header.window) << self.snd_scale;
        if ack.after(self.snd_max) {
            self.bad(Problem::Unsent);
            return self.request_ack();
        }
        if EXTENDED {
            self.process_ack_extended(now, ack, window, payload.is_empty() && !fin);
        } else if ack.after(self.snd_una) {
            self.process_new_ack(now, ack);
        } else {
            self.process_duplicate_ack(now, ack, window, payload.is_empty() && !fin);
        }
        if self.state == State::Closed {
            return;
        }
        let newer = self.snd_wl1.before(seq)
            || self.snd_wl1 == seq
                && (self.snd_wl2.before(ack) || self.snd_wl2 == ack && window > self.snd_wnd);
        if newer {
            self.update_send_window(seq, ack, window);
        }
        let listens = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if listens && (fin || !payload.is_empty()) {
            self.receive(now, seq, fin, payload);
            if EXTENDED && self.options.linux {
                self.acknowledge_quickly(now, payload.len() as u32, header.has(PSH));
            }
        }
    }

    /// Header prediction: returns whether a segment only carries the next payload of a one-way stream.
    #[inline]
    pub(crate) fn is_expected(&self, header: &Header, payload: &[u8]) -> bool {
        header.flags & (FIN | SYN | ACK) == ACK
            && header.seq == self.rcv_nxt
            && header.ack == self.snd_una
            && self.state == State::Established
            && u32::from(header.window) << self.snd_scale == self.snd_wnd
            && !payload.is_empty()
            && payload.len() <= self.receive_window() as usize
    }

    /// Processes a reset; only the exact sequence number is accepted (RFC 5961, section 3.2).
    #[cold]
    pub(crate) fn process_reset(&mut self, header: &Header) {
        let ahead = header.seq.since(self.rcv_nxt);
        if ahead > 0 {
            self.counts.outside_window += 1;
            if ahead < self.receive_window() {
                self.request_ack();
            }
            return;
        }
        match self.state {
            State::SynReceived if self.passive => self.listen(),
            State::TimeWait => self.end(0),
            _ => self.end(pending_event::RESET | pending_event::CLOSED),
        }
    }

    /// Trims a segment to the window. Returns the sequence number of its first byte, whether the FIN remains, and the
    /// remaining payload; `None` if the segment needs no further processing.
    #[inline]
    fn trim<'a>(
        &mut self,
        now: Instant,
        header: &Header,
        payload: &'a [u8],
    ) -> Option<(Seq, bool, &'a [u8])> {
        let (mut seq, mut payload, mut fin) = (header.seq, payload, header.has(FIN));
        let mut syn = header.has(SYN);
        if seq.before(self.rcv_nxt) {
            let mut old = self.rcv_nxt.since(seq);
            if syn {
                syn = false;
                seq = seq + 1;
                old -= 1;
            }
            let length = payload.len() as u32;
            if old > length || old == length && !fin {
                if fin && self.state == State::TimeWait {
                    self.enter_time_wait(now); // it has not heard that this end knows
                }
                if length > 0 {
                    self.counts.duplicate_segments += 1;
                }
                (fin, old) = (false, length);
                self.request_ack();
            }
            payload = &payload[old as usize..];
            seq = seq + old;
        }
        let behind = seq + payload.len() as u32;
        let space = self.receive_window();
        let edge = self.rcv_nxt + space;
        if behind.after(edge) {
            self.counts.outside_window += 1;
            self.request_ack();
            let beyond = behind.since(edge) as usize;
            let probe = space == 0 && seq == self.rcv_nxt;
            if beyond >= payload.len() && !probe {
                return None;
            }
            payload = &payload[..payload.len() - beyond];
            fin = false;
        }
        if syn {
            self.request_ack(); // RFC 5961, section 4.2
            return None;
        }
        Some((seq, fin, payload))
    }

    /// Processes an acknowledgement of no new data, which may be a duplicate that indicates a loss.
    fn process_duplicate_ack(&mut self, now: Instant, ack: Seq, window: u32, empty: bool) {
        if !empty || window != self.snd_wnd {
            self.dupacks = 0;
            return;
        }
        self.counts.duplicate_acks += 1;
        if self.deadlines.retransmit == OFF || ack != self.snd_una {
            self.dupacks = 0;
            return;
        }
        self.dupacks = self.dupacks.saturating_add(1);
        if self.dupacks == DUPLICATE_ACK_THRESHOLD {
            self.counts.fast_retransmits += 1;
            self.report_loss(now, false);
            self.timing = false;
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
            self.resend = true;
        } else if self.dupacks > DUPLICATE_ACK_THRESHOLD {
            // A segment has left the network: another may enter.
            self.net2.inflate();
            self.request_output();
        }
    }

    /// Processes an acknowledgement of new data.
    fn process_new_ack(&mut self, now: Instant, ack: Seq) {
        self.net2.deflate(self.dupacks);
        self.dupacks = 0;
        self.resend = false;
        if self.timing && ack.after(self.timed_seq) {
            self.timing = false;
            self.rtt.sample(self.time.between(self.timed_at, now));
            self.counts.round_trips += 1;
        }
        self.request_output();
        let amount = ack.since(self.snd_una);
        self.net2.on_ack(&Acknowledgement {
            now,
            amount,
            bytes: amount.into(),
            marked: 0,
            in_flight: self.snd_max.since(self.snd_una),
            round_trip: None,
            rate: None,
            app_limited: false,
            since_sent: SinceSent::default(),
            in_recovery: false,
            peer_amount: 0,
            sent_at: now,
        });
        self.acknowledge_sent(now, ack);
    }

    /// Rearms the retransmission timer and discards what the peer has acknowledged.
    #[inline(always)]
    pub(crate) fn acknowledge_sent(&mut self, now: Instant, ack: Seq) {
        if ack == self.snd_max {
            self.deadlines.retransmit = OFF;
        } else if self.deadlines.persist == OFF {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        }
        let acked = ack.since(self.snd_una);
        let bytes = acked.min(self.queued);
        let finished = self.fin_sent && acked > self.queued;
        self.content.discard(bytes);
        self.queued -= bytes;
        self.snd_wnd = self.snd_wnd.saturating_sub(bytes);
        self.snd_una = ack;
        if self.snd_nxt.before(ack) {
            self.snd_nxt = ack;
        }
        if self.refused > 0 && self.options.send_buffer - self.queued >= self.refused {
            self.refused = 0;
            self.pending_events |= pending_event::WRITABLE;
        }
        if finished {
            self.fin_acknowledged(now);
        }
    }

    fn fin_acknowledged(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.enter_time_wait(now),
            State::LastAck => self.end(pending_event::CLOSED),
            _ => {}
        }
    }

    /// Enters TIME-WAIT, which answers a retransmitted FIN.
    fn enter_time_wait(&mut self, now: Instant) {
        if self.state != State::TimeWait {
            self.state = State::TimeWait;
            self.pending_events |= pending_event::CLOSED;
        }
        self.deadlines.retransmit = OFF;
        self.deadlines.persist = OFF;
        self.deadlines.give_up_or_departure = self.time.after(now, self.time.units_of(self.options.linger));
    }

    /// Processes payload and FIN within the window.
    #[inline]
    pub(crate) fn receive(&mut self, now: Instant, seq: Seq, fin: bool, mut payload: &[u8]) {
        let behind = seq + payload.len() as u32;
        if let Some(end) = self.end {
            if behind.after(end) {
                // Ignore data beyond the FIN.
                let beyond = behind.since(end) as usize;
                payload = &payload[..payload.len().saturating_sub(beyond)];
            }
        } else if fin {
            self.end = Some(behind);
        }
        let behind = seq + payload.len() as u32;
        if seq != self.rcv_nxt {
            return self.store_out_of_order(now, seq, behind, payload);
        }
        if !payload.is_empty() {
            self.content.store(self.readable, payload);
            self.counts.data_segments_received += 1;
            if self.ranges.is_empty() {
                self.advance(behind);
                self.acknowledge(now);
            } else {
                let next = self.ranges.advance_from(behind);
                self.advance(next);
                self.pending_acks = 0; // duplicates that have not left yet tell nothing now
                self.request_ack();
            }
        }
        if self.end == Some(self.rcv_nxt) {
            self.process_fin(now);
        }
    }

    /// Stores an out-of-order segment and acknowledges it with the next expected number.
    fn store_out_of_order(&mut self, now: Instant, seq: Seq, behind: Seq, payload: &[u8]) {
        self.counts.out_of_order += 1;
        if !self.options.linux || !self.compress_ack(now) {
            self.request_another_ack();
        }
        if payload.is_empty() {
            return;
        }
        if self.ranges.insert(seq, behind) {
            if let Some(extensions) = &mut self.extensions {
                extensions.add_recent_block(seq, &self.ranges);
            }
            self.content.store(self.readable + seq.since(self.rcv_nxt), payload);
        } else {
            self.counts.out_of_order_dropped += 1;
        }
    }

    /// Advances the in-order edge of the received data to `next`.
    #[inline]
    fn advance(&mut self, next: Seq) {
        let count = next.since(self.rcv_nxt);
        self.rcv_nxt = next;
        self.readable += count;
        self.counts.bytes_received += u64::from(count);
        self.pending_events |= pending_event::READABLE;
        if self.rcv_adv.before(next) {
            self.rcv_adv = next;
        }
    }

    /// Acknowledges in-order data: at once, after two segments, or at the fast timer.
    #[inline]
    fn acknowledge(&mut self, now: Instant) {
        if !self.options.delayed_ack || self.rcv_nxt.since(self.last_ack_sent) >= 2 * self.maxseg {
            self.request_ack();
        } else if self.deadlines.acknowledge == OFF {
            self.deadlines.acknowledge = self.time.acknowledge_at(now);
        }
    }

    /// Processes the peer's FIN.
    fn process_fin(&mut self, now: Instant) {
        self.rcv_nxt = self.rcv_nxt + 1;
        if self.rcv_adv.before(self.rcv_nxt) {
            self.rcv_adv = self.rcv_nxt;
        }
        self.ranges.clear();
        self.request_ack();
        self.pending_events |= pending_event::FINISHED;
        match self.state {
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => self.state = State::CloseWait,
        }
    }
}
