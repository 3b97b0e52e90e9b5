//! Credits of datagrams over a socket: `udp (control = credit)`. The state machines are those of `trunkline_run::credit`.

use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};

use socket2::SockRef;
use trunkline_experiment::plan::Protocol;
use trunkline_io::socket;
use trunkline_run::credit::{CreditGrant, CreditWindow};
use trunkline_run::message::{HEADER, Header, MessageKind};
use trunkline_run::reports::{Metrics, SenderReport};
use trunkline_traffic::source::Limit;
use trunkline_units::{Instant, Size, Span};

use super::{EndContext, EndError, io_error};

/// Round trip that a sender expects: after two of them without credit it sends a check.
const ROUND_TRIP: Span = Span::from_ms(20);
/// Longest wait for a report in one call.
const WAIT: Span = Span::from_ms(5);
/// How long a late source may send after its time limit; the same as in `Source`.
const GRACE: Span = Span::from_ms(10);
/// Approximate cost of a packet in a receive buffer beyond its bytes.
pub(crate) const PACKET_COST: u64 = 1024;
/// Largest receive buffer that is requested.
const MAX_BUFFER: u64 = 64 << 20;

/// Returns the window of a connection with credits.
fn window(context: &EndContext) -> Option<u32> {
    match context.spec.protocol {
        Protocol::Udp { credit_window, .. } => credit_window,
        _ => None,
    }
}

/// Returns the receive buffer that holds a window of the longest messages, with the overhead of the kernel.
pub(crate) fn receive_buffer(context: &EndContext) -> Option<Size> {
    let message = u64::from(context.max_message()) + PACKET_COST;
    window(context).map(|window| Size::from_bytes((u64::from(window) * message * 2).min(MAX_BUFFER)))
}

/// The sending end.
pub(crate) struct SenderCredits {
    window: CreditWindow,
    /// When the source ends at the latest, if that is known.
    end: Option<Instant>,
}

impl SenderCredits {
    /// Creates the credits of a sender that starts at `start`; `None` without credits.
    pub fn new(context: &EndContext, start: Instant, limit: Limit) -> Option<Self> {
        let end = limit.time.map(|time| start + time + GRACE);
        Some(SenderCredits { window: CreditWindow::new(window(context)?, ROUND_TRIP), end })
    }

    /// Waits for credit. Returns the number of datagrams that may be sent; 0 if the source has ended or a stop is requested.
    pub fn wait(
        &mut self,
        context: &EndContext,
        socket: &UdpSocket,
        calls: &mut u64,
    ) -> Result<u64, EndError> {
        loop {
            let now = context.clock.now();
            if self.window.available() == 0 {
                read_progress(socket, context.spec.token, calls, |header| {
                    self.window.receive(now, header.sequence);
                });
            }
            if let Some(sent) = self.window.take_check(now) {
                *calls += 1;
                // Best effort: the next check has the same content.
                let _ = socket.send(&progress(context, sent, now));
            }
            let available = self.window.available();
            if available > 0 || context.control.is_stopped() || self.end.is_some_and(|end| now > end) {
                return Ok(available);
            }
            *calls += 1;
            socket::readable(socket, WAIT).map_err(io_error("waiting for credit"))?;
        }
    }

    /// Counts datagrams that were sent.
    pub fn record_sent(&mut self, now: Instant, count: u64) {
        (0..count).for_each(|_| self.window.record_sent(now));
    }

    /// Adds the counters to a report.
    pub fn add_to(&self, report: &mut SenderReport) {
        report.counters.insert("credit_checks".into(), self.window.checks() as f64);
    }
}

/// The receiving end; without credits it does nothing.
pub(crate) struct ReceiverCredits(Option<CreditGrant>);

impl ReceiverCredits {
    pub fn new(context: &EndContext) -> Self {
        ReceiverCredits(window(context).map(CreditGrant::new))
    }

    /// Handles a valid message. Returns whether it was a check of the sender.
    #[inline]
    pub fn receive(&mut self, header: &Header) -> bool {
        let Some(grant) = &mut self.0 else { return false };
        match header.kind {
            MessageKind::Progress => grant.receive_check(header.sequence),
            _ => grant.receive(header.sequence),
        }
        header.kind == MessageKind::Progress
    }

    /// Reports to the sender, if a report is due.
    #[inline]
    pub fn report(
        &mut self,
        context: &EndContext,
        socket: &UdpSocket,
        sender: Option<SocketAddr>,
        calls: &mut u64,
    ) {
        if let (Some(grant), Some(sender)) = (&mut self.0, sender)
            && let Some(freed) = grant.take_report()
        {
            *calls += 1;
            // Best effort: the next report makes a lost one good.
            let _ = socket.send_to(&progress(context, freed, context.clock.now()), sender);
        }
    }

    /// Adds the counters to those of a report.
    pub fn add_to(&self, counters: &mut Metrics) {
        if let Some(grant) = &self.0 {
            counters.insert("credit_reports".into(), grant.reports() as f64);
        }
    }
}

/// Returns a report or a check.
fn progress(context: &EndContext, number: u64, now: Instant) -> [u8; HEADER] {
    let mut message = [0; HEADER];
    let header = Header { kind: MessageKind::Progress, ..Header::pattern(number, now, HEADER as u32) };
    header.encode(context.spec.token, &mut message);
    message
}

/// Reads the progress messages that have arrived.
pub(crate) fn read_progress(
    socket: &UdpSocket,
    token: u32,
    calls: &mut u64,
    mut on_progress: impl FnMut(&Header),
) {
    let mut buffer = [MaybeUninit::new(0u8); HEADER];
    loop {
        *calls += 1;
        let Ok(length) = SockRef::from(socket).recv_with_flags(&mut buffer, nix::libc::MSG_DONTWAIT) else {
            return;
        };
        // SAFETY: every byte was initialised when the buffer was created; the kernel only overwrites.
        let bytes: [u8; HEADER] = buffer.map(|b| unsafe { b.assume_init() });
        if let Ok(header) = Header::decode(token, &bytes[..length.min(HEADER)])
            && header.kind == MessageKind::Progress
        {
            on_progress(&header);
        }
    }
}
