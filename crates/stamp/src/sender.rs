//! The sending end of a session: test packets out, samples of delay in.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_units::{Instant, Seed, Span};

use crate::losses::{LossTracker, Losses, extend};
use crate::packet::{Key, PacketError, ReflectorPacket, SenderPacket, Transmission, base_length};
use crate::timestamp::{ClockReading, ErrorEstimate, Format, Timestamp};
use crate::tlv;

/// Packets whose answers are recognized: an answer to an earlier one is [`Reception::Unknown`].
pub const WINDOW: usize = 1 << 16;
/// Maximum octets of a packet: the payload of UDP over IPv4.
pub const MAX_SIZE: usize = 65_507;

/// Options of a sender.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Session-sender identifier (RFC 8972 section 3); 0: none.
    pub ssid: u16,
    /// Octets of a packet; at least those of the mode, at most [`MAX_SIZE`].
    pub size: usize,
    /// Format of the timestamps.
    pub format: Format,
    /// The key of authenticated mode.
    pub key: Option<Key>,
    /// The reflector is known to be stateful. Otherwise this is found out when a packet is lost on the way to it.
    pub is_stateful: bool,
}

impl Default for SenderOptions {
    fn default() -> SenderOptions {
        SenderOptions { ssid: 0, size: 0, format: Format::Ntp, key: None, is_stateful: false }
    }
}

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// The first answer to a packet.
    Answer(Sample),
    /// Another answer to a packet that was answered.
    Duplicate,
    /// No answer to a packet of this session, or to one of long ago.
    Unknown,
}

/// Measurements of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of the packet, from 0.
    pub sequence: u64,
    /// Round-trip delay without the time in the reflector. `None` if the reflector claims a longer stay than the whole
    /// round trip, or a negative one.
    pub round_trip: Option<Span>,
    /// One-way delays; `None` unless both clocks are synchronized and both ends use the same format.
    pub one_way: Option<OneWay>,
    /// The answer to a later packet was received before.
    pub reordered: bool,
    /// TTL or hop limit with which the packet reached the reflector.
    pub ttl: u8,
}

/// One-way delays by synchronized clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// Delay to the reflector, ns; negative only within the uncertainty.
    pub forward_ns: i64,
    /// Delay from the reflector, ns.
    pub backward_ns: i64,
    /// Sum of the errors of both clocks, which bounds the error of both delays.
    pub uncertainty: Span,
}

/// Counts of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Packets with an answer.
    pub answered: u64,
    /// Further answers.
    pub duplicates: u64,
    /// Answers after the answer to a later packet (RFC 4737 section 3).
    pub reordered: u64,
    /// Datagrams that answer no packet of this session.
    pub unknown: u64,
    /// Answers whose HMAC was wrong.
    pub forged: u64,
    /// Answers with impossible times in the reflector.
    pub inconsistent: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    timestamp: Timestamp,
    /// The reflector's sequence number of the first answer.
    answer: Option<u32>,
}

/// The sender of a session. The caller sends what [`send`](Self::send) returns, and passes what is received to
/// [`receive`](Self::receive).
#[derive(Clone, Debug)]
pub struct Sender {
    options: SenderOptions,
    packet: Vec<u8>,
    sent: VecDeque<Sent>,
    counts: Counts,
    /// One more than the highest number of an answered packet.
    answered_next: u64,
    tracker: LossTracker,
}

impl Sender {
    /// Creates a sender that has not sent yet.
    pub fn new(options: SenderOptions) -> Sender {
        let tracker = LossTracker::new(options.is_stateful);
        let size = options.size;
        let counts = Counts::default();
        let mut sender =
            Sender { options, packet: Vec::new(), sent: VecDeque::new(), counts, answered_next: 0, tracker };
        sender.set_size(size);
        sender
    }

    /// Sets the octets of the next packets, within the bounds of [`SenderOptions::size`].
    pub fn set_size(&mut self, size: usize) {
        let base = base_length(self.options.key.as_ref());
        let size = size.clamp(base, MAX_SIZE);
        if self.packet.len() == size {
            return;
        }
        // RFC 8972 section 4.1 recommends pseudorandom padding, which no link compresses.
        let mut padding = Seed(self.options.ssid.into()).stream("stamp / padding");
        self.packet.resize(size, 0);
        self.packet[base..].fill_with(|| padding.bits() as u8);
        tlv::make_padding(&mut self.packet[base..]);
    }

    /// Returns the next packet, which counts as sent at `now`.
    pub fn send(&mut self, now: ClockReading) -> &[u8] {
        let timestamp = Timestamp::new(now.unix, self.options.format);
        let sequence = self.counts.sent as u32;
        let error_estimate = ErrorEstimate::new(now.utc_error, self.options.format);
        let sent = Transmission { sequence, timestamp, error_estimate };
        SenderPacket { sent, ssid: self.options.ssid }.encode(&mut self.packet, self.options.key.as_ref());
        if self.sent.len() == WINDOW {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { at: now.at, timestamp, answer: None });
        self.counts.sent += 1;
        &self.packet
    }

    /// Takes a datagram that was received at `now`.
    ///
    /// # Errors
    /// If the datagram is too short, or its HMAC is wrong.
    pub fn receive(&mut self, now: ClockReading, bytes: &[u8]) -> Result<Reception, PacketError> {
        let packet = match ReflectorPacket::decode(bytes, self.options.key.as_ref()) {
            Ok(packet) => packet,
            Err(error) => {
                match error {
                    PacketError::Short => self.counts.unknown += 1,
                    PacketError::Hmac => self.counts.forged += 1,
                }
                return Err(error);
            }
        };
        let Some((sequence, sent)) = self.find(&packet) else {
            self.counts.unknown += 1;
            return Ok(Reception::Unknown);
        };
        let (at, earlier) = (sent.at, sent.answer);
        let number = packet.reflected.sequence;
        sent.answer.get_or_insert(number);
        self.tracker.record(sequence, number, earlier);
        if earlier.is_some() {
            self.counts.duplicates += 1;
            return Ok(Reception::Duplicate);
        }
        let reordered = sequence < self.answered_next;
        self.answered_next = self.answered_next.max(sequence + 1);
        let round_trip = round_trip(now, at, &packet);
        self.counts.answered += 1;
        self.counts.reordered += u64::from(reordered);
        self.counts.inconsistent += u64::from(round_trip.is_none());
        let one_way = self.one_way(now, &packet);
        Ok(Reception::Answer(Sample { sequence, round_trip, one_way, reordered, ttl: packet.ttl }))
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the losses by direction, once no more answers are expected. `None` if packets were lost and the reflector
    /// may be stateless.
    pub fn losses(&self) -> Option<Losses> {
        self.tracker.losses(self.counts.sent, self.counts.answered)
    }

    /// Finds the packet that was answered. The copied timestamp must be the one that was sent, which a sender that does not
    /// see the path cannot guess.
    fn find(&mut self, packet: &ReflectorPacket) -> Option<(u64, &mut Sent)> {
        let is_own = [0, self.options.ssid].contains(&packet.ssid);
        let sequence = extend(packet.sent.sequence, self.counts.sent).filter(|_| is_own)?;
        let first = self.counts.sent - self.sent.len() as u64;
        let index = usize::try_from(sequence.checked_sub(first)?).ok()?;
        let sent = self.sent.get_mut(index).filter(|sent| sent.timestamp == packet.sent.timestamp)?;
        Some((sequence, sent))
    }

    fn one_way(&self, now: ClockReading, packet: &ReflectorPacket) -> Option<OneWay> {
        let estimate = packet.reflected.error_estimate;
        let uncertainty = now.utc_error? + estimate.utc_error()?;
        let format = self.options.format;
        if estimate.format != format {
            return None;
        }
        let time = |timestamp: Timestamp| timestamp.unix(format, now.unix);
        Some(OneWay {
            forward_ns: difference_ns(time(packet.received)?, time(packet.sent.timestamp)?),
            backward_ns: difference_ns(now.unix, time(packet.reflected.timestamp)?),
            uncertainty,
        })
    }
}

fn round_trip(now: ClockReading, sent_at: Instant, packet: &ReflectorPacket) -> Option<Span> {
    let format = packet.reflected.error_estimate.format;
    let received = packet.received.unix(format, now.unix)?;
    let stay = Span::from(packet.reflected.timestamp.unix(format, now.unix)?.checked_sub(received)?);
    let total = now.at.since(sent_at);
    (stay <= total).then(|| total - stay)
}

fn difference_ns(later: Duration, earlier: Duration) -> i64 {
    let ns = |duration: Duration| i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX);
    let difference = ns(later).saturating_sub(ns(earlier));
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}
