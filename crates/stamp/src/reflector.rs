//! The reflecting end: one answer to each valid packet of an allowed source.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use trunkline_units::Span;

use crate::packet::{Key, PacketError, ReflectorPacket, SenderPacket, Transmission, base_length};
use crate::sources::{Excess, Limits, Network, Sources};
use crate::timestamp::{ClockReading, ErrorEstimate, Format, Timestamp};
use crate::tlv;

/// The assigned port of reflectors (RFC 8762 section 4.1).
pub const PORT: u16 = 862;

/// Options of a reflector.
#[derive(Clone, Debug)]
pub struct ReflectorOptions {
    /// The key of authenticated mode.
    pub key: Option<Key>,
    /// Format of the timestamps.
    pub format: Format,
    /// Whether answers are numbered in each session. A stateless reflector copies the sender's number.
    pub is_stateful: bool,
    /// Sources that receive answers; none other does.
    pub allow: Vec<Network>,
    /// The reflector's own port.
    pub port: u16,
    /// Maximum answers per second to one source.
    pub rate: u32,
    /// Maximum sessions.
    pub sessions: usize,
    /// Maximum sessions of one source.
    pub sessions_of_source: usize,
    /// A session without packets for this time is over. RFC 8762 leaves it open; TWAMP waits 900 s (REFWAIT, RFC 5357
    /// section 3.5).
    pub idle: Span,
}

/// Allows the loopback addresses.
impl Default for ReflectorOptions {
    fn default() -> ReflectorOptions {
        let loopback = [
            Network::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
            Network::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ];
        ReflectorOptions {
            key: None,
            format: Format::Ntp,
            is_stateful: true,
            allow: loopback.into_iter().flatten().collect(),
            port: PORT,
            rate: 10_000,
            sessions: 1_000,
            sessions_of_source: 100,
            idle: Span::from_s(900),
        }
    }
}

/// A received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Source of the datagram.
    pub from: SocketAddr,
    /// Its payload.
    pub bytes: &'a [u8],
    /// Its TTL or hop limit.
    pub ttl: u8,
    /// When it was received: wall-clock time since 1970.
    pub unix: Duration,
}

/// Why a datagram has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The source is not allowed.
    #[error("the source is not allowed")]
    Source,
    /// The source port is that of a reflector: two reflectors would answer each other without end.
    #[error("the source port is that of a reflector")]
    Reflector,
    /// The datagram is no valid packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// The maximum number of sessions is reached.
    #[error("too many sessions")]
    Sessions,
    /// The source exceeds its rate.
    #[error("the source exceeds its rate")]
    Rate,
}

/// Counts of answers, and of datagrams without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answers.
    pub reflected: u64,
    /// [`Refusal::Source`] and [`Refusal::Reflector`].
    pub not_allowed: u64,
    /// [`PacketError::Short`].
    pub short: u64,
    /// [`PacketError::Hmac`].
    pub forged: u64,
    /// [`Refusal::Sessions`].
    pub session_limit: u64,
    /// [`Refusal::Rate`].
    pub rate_limit: u64,
}

/// A reflector of any number of sessions.
///
/// An answer has as many octets as its request, and each request has at most one, so the reflector never amplifies.
#[derive(Debug)]
pub struct Reflector {
    options: ReflectorOptions,
    limits: Limits,
    sources: Sources,
    counts: Counts,
}

/// Share of a second by which a burst may be ahead of the maximum rate.
const BURST_PARTS: u64 = 10;

impl Reflector {
    /// Creates a reflector without sessions.
    pub fn new(options: ReflectorOptions) -> Reflector {
        let limits = Limits {
            interval: Span::from_s(1) / u64::from(options.rate.max(1)),
            tolerance: Span::from_s(1) / BURST_PARTS,
            sessions: options.sessions,
            sessions_of_source: options.sessions_of_source,
            idle: options.idle,
        };
        Reflector { options, limits, sources: Sources::default(), counts: Counts::default() }
    }

    /// Writes the answer to `request` into `buffer` and returns its length, that of the request. `now` is when the answer
    /// leaves.
    ///
    /// # Errors
    /// If the datagram has no answer.
    ///
    /// # Panics
    /// If `buffer` is shorter than a request that has an answer.
    pub fn reflect(
        &mut self,
        now: ClockReading,
        request: &Request<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Refusal> {
        let result = self.answer(now, request, buffer);
        let count = match result {
            Ok(_) => &mut self.counts.reflected,
            Err(Refusal::Source | Refusal::Reflector) => &mut self.counts.not_allowed,
            Err(Refusal::Packet(PacketError::Short)) => &mut self.counts.short,
            Err(Refusal::Packet(PacketError::Hmac)) => &mut self.counts.forged,
            Err(Refusal::Sessions) => &mut self.counts.session_limit,
            Err(Refusal::Rate) => &mut self.counts.rate_limit,
        };
        *count += 1;
        result
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the number of sessions.
    pub fn sessions(&self) -> usize {
        self.sources.sessions()
    }

    fn answer(
        &mut self,
        now: ClockReading,
        request: &Request<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Refusal> {
        let ReflectorOptions { key, format, .. } = &self.options;
        let (key, format) = (key.as_ref(), *format);
        // A socket for both families shows IPv4 addresses as IPv6 ones.
        let source = request.from.ip().to_canonical();
        if !self.options.allow.iter().any(|network| network.contains(source)) {
            return Err(Refusal::Source);
        }
        if [PORT, self.options.port].contains(&request.from.port()) {
            return Err(Refusal::Reflector);
        }
        let SenderPacket { sent, ssid } = SenderPacket::decode(request.bytes, key)?;
        let id = (request.from.port(), ssid);
        let number = self.sources.admit(now.at, &self.limits, source, id).map_err(|e| match e {
            Excess::Sessions => Refusal::Sessions,
            Excess::Rate => Refusal::Rate,
        })?;
        let sequence = if self.options.is_stateful { number } else { sent.sequence };
        let reflected = Transmission {
            sequence,
            timestamp: Timestamp::new(now.unix, format),
            error_estimate: ErrorEstimate::new(now.utc_error, format),
        };
        let received = Timestamp::new(request.unix, format);
        let (length, base) = (request.bytes.len(), base_length(key));
        let answer = &mut buffer[..length];
        ReflectorPacket { reflected, ssid, received, sent, ttl: request.ttl }.encode(answer, key);
        answer[base..].copy_from_slice(&request.bytes[base..]);
        tlv::flag(&mut answer[base..]);
        Ok(length)
    }
}
