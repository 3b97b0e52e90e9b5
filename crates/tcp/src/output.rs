//! Segment transmission (`tcp_output`).

use trunkline_congestion::Controller;
use trunkline_endpoint::{Ecn, Peer};
use trunkline_units::Instant;

use crate::Content;
use crate::expiry::CONNECT_TIMEOUT;
use crate::segment::{ACK, FIN, Header, Offer, PSH, SYN, Seq, set_ace};
use crate::tcp::{OutputCheck, State, Tcp};
use crate::time::OFF;

impl<C: Content> Tcp<C> {
    /// Sends the SYN.
    pub(crate) fn connect(&mut self, now: Instant) {
        self.state = State::SynSent;
        self.deadlines.give_up_or_departure = self.time.after(now, self.time.units_of(CONNECT_TIMEOUT));
        self.request_output();
    }

    /// Returns a header that acknowledges what has arrived.
    #[inline]
    fn header(&self, seq: Seq, flags: u8, window: u32) -> Header {
        let (source, destination) = (self.options.local, self.remote);
        Header { source, destination, seq, ack: self.rcv_nxt, flags, window: window as u16 }
    }

    /// Writes the pending reset, if any, and returns its length and destination.
    #[cold]
    pub(crate) fn write_reset(&mut self, buffer: &mut [u8]) -> Option<(usize, Peer)> {
        let reply = self.reply.take()?;
        let header = Header {
            source: self.options.local,
            destination: reply.port,
            seq: reply.seq,
            ack: reply.ack,
            flags: reply.flags,
            window: 0,
        };
        self.counts.segments_sent += 1;
        self.counts.acks_sent += 1;
        if let Some(extensions) = &mut self.extensions {
            extensions.sent_ecn = Ecn::NotEct;
        }
        Some((header.write(None, buffer), reply.peer))
    }

    /// Writes the next segment into `buffer`, if any may leave, and returns its length.
    #[inline(always)]
    pub(crate) fn output(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        if self.extensions.is_none() {
            self.output_as::<false>(now, buffer)
        } else {
            self.output_extended(now, buffer)
        }
    }

    #[inline(never)]
    fn output_extended(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.output_as::<true>(now, buffer)
    }

    /// Ends with extensions have a copy of everything below, so that those of 4.3BSD make no decision about them.
    #[inline(always)]
    fn output_as<const EXTENDED: bool>(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        if self.resend
            && let Some(length) = self.fast_retransmit(now, buffer)
        {
            return Some(length);
        }
        if EXTENDED && let Some(length) = self.write_early_ack(now, buffer) {
            return Some(length);
        }
        if self.state <= State::SynReceived {
            let looked = std::mem::replace(&mut self.output_check, OutputCheck::No) != OutputCheck::No;
            return (looked && self.state >= State::SynSent).then(|| self.send_syn(now, buffer));
        }
        if self.queued == 0 && matches!(self.state, State::Established | State::CloseWait) {
            return self.send_ack::<EXTENDED>(now, buffer);
        }
        let idle = match self.output_check {
            OutputCheck::No => return None,
            OutputCheck::Again { idle } => idle,
            OutputCheck::First => {
                let idle = self.snd_max == self.snd_una;
                if idle && self.time.between(self.last_received_at, now) >= self.rtt.rto() {
                    self.restart(now);
                }
                idle
            }
        };
        if EXTENDED {
            return self.send_next_extended(now, idle, buffer);
        }
        self.send_next::<false>(now, idle, buffer)
    }

    /// Starts slowly again: nothing in flight shows the rate of the path.
    #[cold]
    fn restart(&mut self, now: Instant) {
        match &mut self.extensions {
            None => self.net2.on_idle(now),
            Some(extensions) => extensions.controller.on_idle(now),
        }
    }

    /// Returns how far behind the first unacknowledged byte the congestion window lets data be sent.
    #[inline]
    fn send_limit<const EXTENDED: bool>(&self) -> u32 {
        match self.extensions.as_ref().filter(|_| EXTENDED) {
            None => self.net2.window(),
            Some(extensions) => {
                let sent = self.snd_max.since(self.snd_una);
                let room = extensions.window().saturating_sub(extensions.pipe(self.maxseg));
                if extensions.scoreboard.is_full() { sent } else { sent.saturating_add(room) }
            }
        }
    }

    /// Writes a retransmission; see [`emit`](Self::emit).
    #[inline(never)]
    pub(crate) fn emit_again<const EXTENDED: bool>(
        &mut self,
        now: Instant,
        length: u32,
        fin: bool,
        buffer: &mut [u8],
    ) -> usize {
        self.emit::<EXTENDED>(now, length, fin, false, buffer)
    }

    /// Sends lost data first, then the next segment. `snd_nxt` stays behind all sent data.
    #[inline(always)]
    fn send_next_extended(&mut self, now: Instant, idle: bool, buffer: &mut [u8]) -> Option<usize> {
        if let Some(departure) = self.next_departure(now) {
            self.deadlines.give_up_or_departure = departure;
            return self.send_ack::<true>(now, buffer);
        }
        if let Some(sent) = self.retransmit_lost(now, buffer).or_else(|| self.write_probe(now, buffer)) {
            self.output_check = OutputCheck::Again { idle };
            return Some(sent);
        }
        let is_shut = self.snd_wnd == 0 && self.queued > 0;
        if is_shut && !self.force && self.extensions.as_ref().is_some_and(|e| e.scoreboard.pipe() > 0) {
            self.lose_all(now, false);
        }
        if is_shut && self.force {
            self.snd_nxt = self.snd_una;
        }
        if !is_shut && self.waits_for_burst(now) {
            return self.send_ack::<true>(now, buffer);
        }
        let sent = self.send_next::<true>(now, idle, buffer);
        self.snd_nxt = self.snd_max;
        if sent.is_some() {
            self.arm_loss_timer(now);
        }
        self.check_app_limited();
        sent
    }

    /// Writes a SYN, with an acknowledgement if the peer's sequence number is known.
    #[cold]
    fn send_syn(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let answers = self.state == State::SynReceived;
        let scaling = self.options.scaling && (!answers || self.scaled);
        let mut offer = Offer {
            mss: Some(self.options.mss),
            scale: scaling.then_some(self.rcv_scale),
            ..Offer::default()
        };
        let ace = self.extend_offer(now, answers, &mut offer);
        let window = self.receive_window().min(0xffff);
        let header = self.header(self.snd_una, if answers { SYN | ACK } else { SYN }, window);
        self.snd_nxt = self.snd_una + 1;
        if self.snd_max == self.snd_una {
            self.snd_max = self.snd_nxt;
            self.time_segment(now, self.snd_una);
        }
        if self.deadlines.retransmit == OFF {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
        }
        self.rcv_adv = self.rcv_nxt + window;
        self.last_ack_sent = self.rcv_nxt;
        self.pending_acks = 0;
        self.counts.segments_sent += 1;
        let length = header.write(Some(offer), buffer);
        set_ace(buffer, ace);
        length
    }

    /// Fast retransmission: sends the first unacknowledged segment and leaves `snd_nxt` unchanged.
    #[cold]
    fn fast_retransmit(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.resend = false;
        let next = self.snd_nxt;
        self.snd_nxt = self.snd_una;
        let length = self.queued.min(self.snd_wnd).min(self.maxseg);
        let fin = self.fin_sent && length == self.queued;
        let sent = (length > 0 || fin).then(|| self.emit_again::<false>(now, length, fin, buffer));
        if next.after(self.snd_nxt) {
            self.snd_nxt = next;
        }
        sent
    }

    /// Writes a bare acknowledgement if one is pending or the window has opened.
    #[inline]
    fn send_ack<const EXTENDED: bool>(&mut self, now: Instant, buffer: &mut [u8]) -> Option<usize> {
        self.output_check = OutputCheck::No;
        self.force = false;
        if self.pending_acks == 0 && !self.window_opened() {
            return None;
        }
        let window = self.window() >> self.rcv_scale;
        let length = self.write_header::<EXTENDED>(now, self.snd_max, ACK, window, 0, buffer);
        self.counts.segments_sent += 1;
        self.counts.acks_sent += 1;
        self.record_advertised_window(window);
        if self.pending_acks > 0 {
            self.output_check = OutputCheck::First;
        }
        Some(length)
    }

    /// Writes the next segment, if the windows, Nagle and silly window avoidance allow it. Both callers have a copy.
    #[inline(always)]
    fn send_next<const EXTENDED: bool>(
        &mut self,
        now: Instant,
        idle: bool,
        buffer: &mut [u8],
    ) -> Option<usize> {
        self.output_check = OutputCheck::No;
        let force = std::mem::take(&mut self.force);
        let mut window = self.snd_wnd.min(self.send_limit::<EXTENDED>());
        let shut = window == 0;
        if shut && !force && self.queued > 0 && self.snd_nxt != self.snd_una {
            // The window has shrunk below the data in flight: go back to its edge and probe.
            self.deadlines.retransmit = OFF;
            self.snd_nxt = self.snd_una;
        }
        if force && shut {
            window = 1;
        } else if force {
            self.deadlines.persist = OFF;
            self.rtt.reset_backoff();
        }
        let offset = self.snd_nxt.since(self.snd_una);
        let usable = self.queued.min(window).saturating_sub(offset);
        let segment = if EXTENDED { self.segment_size() } else { self.maxseg };
        let length = usable.min(segment);
        let last = offset + length >= self.queued;
        let finishing = matches!(self.state, State::FinWait1 | State::Closing | State::LastAck);
        let fin = finishing && last && !(force && shut && offset < self.queued);

        let old = self.snd_nxt.before(self.snd_max);
        let push = length > 0
            && (length == segment
                || (idle || !self.options.nagle) && last
                || force
                || length >= self.max_sndwnd / 2
                || old);
        if push
            || self.window_opened()
            || self.pending_acks > 0
            || fin && (!self.fin_sent || self.snd_nxt == self.snd_una)
        {
            let sent = self.emit::<EXTENDED>(now, length, fin, force, buffer);
            if usable > length || self.pending_acks > 0 {
                self.output_check = OutputCheck::Again { idle };
            }
            return Some(sent);
        }
        self.arm_window_probe(now);
        None
    }

    /// An acknowledgement does not replace the probe of the peer's window.
    #[cold]
    #[inline(never)]
    fn sent_without_data(&mut self, now: Instant) {
        self.arm_window_probe(now);
    }

    /// Arms the timer of window probes if data is queued and no timer is armed.
    #[inline(always)]
    fn arm_window_probe(&mut self, now: Instant) {
        if self.queued > 0 && self.deadlines.retransmit == OFF && self.deadlines.persist == OFF {
            self.rtt.reset_backoff();
            self.deadlines.persist = self.time.after(now, self.rtt.persist());
        }
    }

    /// Returns whether the window has opened by two segments or half the buffer since it was last advertised.
    #[inline]
    pub(crate) fn window_opened(&self) -> bool {
        let space = self.receive_window().min(0xffff << self.rcv_scale);
        let opened = space.saturating_sub(self.rcv_adv.since(self.rcv_nxt));
        opened > 0
            && (opened >= 2 * self.maxseg || 2 * u64::from(opened) >= u64::from(self.options.receive_buffer))
    }

    /// Returns the window to advertise: it never shrinks, and a silly window is advertised as zero.
    #[inline]
    fn window(&self) -> u32 {
        let advertised = self.rcv_adv.since(self.rcv_nxt);
        let space = self.receive_window();
        let silly = space < self.options.receive_buffer / 4 && space < self.maxseg;
        let window = if silly { 0 } else { space.min(0xffff << self.rcv_scale) };
        window.max(advertised)
    }

    /// Writes the header of a segment with so much payload; returns its length.
    #[inline]
    fn write_header<const EXTENDED: bool>(
        &mut self,
        now: Instant,
        seq: Seq,
        flags: u8,
        window: u32,
        payload: u32,
        buffer: &mut [u8],
    ) -> usize {
        let length = self.header(seq, flags, window).write(None, buffer);
        if EXTENDED { self.write_options(now, seq, payload, buffer) } else { length }
    }

    /// Writes the segment at `snd_nxt` and records its transmission.
    #[inline(always)]
    fn emit<const EXTENDED: bool>(
        &mut self,
        now: Instant,
        length: u32,
        fin: bool,
        force: bool,
        buffer: &mut [u8],
    ) -> usize {
        let offset = self.snd_nxt.since(self.snd_una);
        if fin && self.fin_sent && self.snd_nxt == self.snd_max {
            self.snd_nxt = self.snd_una + self.queued; // the FIN once more, under its old number
        }
        let persisting = self.deadlines.persist != OFF;
        let numbered = length > 0 || fin || persisting;
        let push = length > 0 && (offset + length == self.queued || EXTENDED && self.ends_burst());
        let window = self.window() >> self.rcv_scale;
        let seq = if numbered { self.snd_nxt } else { self.snd_max };
        let flags = ACK | if fin { FIN } else { 0 } | if push { PSH } else { 0 };
        let start = self.write_header::<EXTENDED>(now, seq, flags, window, length, buffer);
        let total = start + length as usize;
        if length > 0 {
            self.content.copy(offset, &mut buffer[start..total]);
        }
        let probe = force && persisting;
        self.count(length, fin, probe);
        self.sent::<EXTENDED>(now, length, fin, probe);

        self.record_advertised_window(window);
        if length > 0 {
            self.pending_acks = 0; // with data they would not count as duplicates
        } else {
            self.sent_without_data(now);
        }
        total
    }

    /// Records the acknowledgement and the window of a sent header.
    #[inline]
    fn record_advertised_window(&mut self, window: u32) {
        let edge = self.rcv_nxt + (window << self.rcv_scale);
        if edge.after(self.rcv_adv) {
            self.rcv_adv = edge;
        }
        self.last_ack_sent = self.rcv_nxt;
        self.deadlines.acknowledge = OFF;
        self.pending_acks = self.pending_acks.saturating_sub(1);
    }

    #[inline]
    fn count(&mut self, length: u32, fin: bool, probe: bool) {
        let counts = &mut self.counts;
        counts.segments_sent += 1;
        if length > 0 {
            counts.data_segments_sent += 1;
            counts.bytes_sent += u64::from(length);
            if probe {
                counts.probes += 1;
            } else if self.snd_nxt.before(self.snd_max) {
                counts.retransmitted_segments += 1;
                counts.retransmitted_bytes += u64::from(length);
            }
        } else if !fin {
            counts.acks_sent += 1;
        }
    }

    /// Records the transmission of sequence numbers: times them and arms the retransmission timer, except for probes.
    #[inline]
    fn sent<const EXTENDED: bool>(&mut self, now: Instant, length: u32, fin: bool, probe: bool) {
        let start = self.snd_nxt;
        let behind = start + length + u32::from(fin);
        self.fin_sent |= fin;
        let new = behind.after(self.snd_max);
        if new {
            let unsent = std::mem::replace(&mut self.snd_max, behind);
            if EXTENDED {
                self.record_sent(now, unsent, behind, probe);
            }
        }
        if probe {
            return;
        }
        self.snd_nxt = behind;
        if new && !EXTENDED {
            self.time_segment(now, start);
        }
        if self.deadlines.retransmit == OFF && self.snd_nxt != self.snd_una {
            self.deadlines.retransmit = self.time.after(now, self.rtt.rto());
            if self.deadlines.persist != OFF {
                self.deadlines.persist = OFF;
                self.rtt.reset_backoff();
            }
        }
    }

    /// Starts timing a segment unless one is being timed.
    #[inline]
    fn time_segment(&mut self, now: Instant, start: Seq) {
        if !self.timing {
            self.timing = true;
            self.timed_seq = start;
            self.timed_at = now;
        }
    }
}
