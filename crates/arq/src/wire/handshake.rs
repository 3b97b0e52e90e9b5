//! Handshake and control frames.
//!
//! The first byte selects the type. Frames without an established connection have a CRC-32C without a secret.
//!
//! | first byte | frame | layout before the check |
//! | ---: | --- | --- |
//! | 1 | open | version u8, client u64, parameters (22), cookie (16), \[proof (32)\] |
//! | 2 | cookie | version u8, client u64, cookie (16) |
//! | 3 | opened | version u8, client u64, server u64, parameters (22), \[proof (32)\] |
//! | 4 | refused | version u8, client u64, reason u8 |
//! | 5 | unknown | first 12 bytes and last 4 of the frame without a connection |
//! | 6 | reset | reason u8; check of the connection |
//! | 7 | probe | token u32, then anything; check of the connection |
//! | 8 | probe reply | token u32, length of the probe u16; check of the connection |
//!
//! *Client* and *server* are random numbers that identify the connection. The proof is present if the check in the
//! [parameters](TransportParameters) is [`Check::Aead`]; [`super::aead`] verifies it.
//!
//! The server stores nothing until a cookie has come back: a cookie is a keyed hash of the client's address. An open
//! frame is longer than any reply to it, so a server amplifies no attack.

use super::check::Check;
use super::get16;
use crate::limits::{MAX_BLOCK, MAX_REPAIRS};

/// Version of the protocol.
pub const VERSION: u8 = 1;

/// First byte of an open frame.
pub const OPEN: u8 = 1;
/// First byte of a cookie frame.
pub const COOKIE: u8 = 2;
/// First byte of an opened frame.
pub const OPENED: u8 = 3;
/// First byte of a refused frame.
pub const REFUSED: u8 = 4;
/// First byte of an unknown frame.
pub const UNKNOWN: u8 = 5;
/// First byte of a reset frame.
pub const RESET: u8 = 6;
/// First byte of a probe.
pub const PROBE: u8 = 7;
/// First byte of a probe reply.
pub const PROBE_REPLY: u8 = 8;

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// Bytes of [`TransportParameters`].
const PARAMETERS_BYTES: usize = 22;
/// Flag in the last byte of the parameters; the upper bits are the number of repair frames.
const PARTS_FLAG: u8 = 1;

/// Length of an unknown frame with its check: no shorter frame is answered by one.
pub const UNKNOWN_BYTES: usize = 1 + 16 + 4;

/// Retransmission mode, with its code on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mode {
    /// Selective repeat: only missing frames are retransmitted; the receiver stores early frames.
    #[default]
    Selective = 0,
    /// Go-back-N: the missing frame and all after it are retransmitted; the receiver drops early frames. The mode of
    /// the 1998 paper.
    GoBackN = 1,
    /// Stop-and-wait: one frame in flight (section 2.1 of the 1998 paper).
    StopAndWait = 2,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 3] = [Mode::Selective, Mode::GoBackN, Mode::StopAndWait];
}

/// Parameters of forward error correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fec {
    /// Frames per block, 1 to [`MAX_BLOCK`].
    pub frames: u8,
    /// Repair frames per block, 1 to [`MAX_REPAIRS`] and no more than `frames`. A single one is the exclusive or of
    /// the frames.
    pub repairs: u8,
}

impl Fec {
    /// Returns the parameters clamped to their ranges; none if the mode does not support FEC.
    pub(crate) fn clamped(self, mode: Mode) -> Option<Fec> {
        let frames = self.frames.clamp(1, MAX_BLOCK);
        let repairs = self.repairs.clamp(1, MAX_REPAIRS.min(frames));
        (mode == Mode::Selective).then_some(Fec { frames, repairs })
    }

    /// Returns the smaller parameters of both ends, if both support FEC.
    pub(crate) fn negotiate(own: Option<Fec>, peer: Option<Fec>) -> Option<Fec> {
        let (own, peer) = (own?, peer?);
        Some(Fec { frames: own.frames.min(peer.frames), repairs: own.repairs.min(peer.repairs) })
    }

    /// Decodes two bytes; a zero in either means no FEC.
    const fn from_codes(frames: u8, repairs: u8) -> Option<Fec> {
        if frames == 0 || repairs == 0 { None } else { Some(Fec { frames, repairs }) }
    }
}

/// Parameters that an end announces in the handshake, like the transport parameters of QUIC (RFC 9000 section 7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportParameters {
    /// Proposed by the client, decided by the server.
    pub mode: Mode,
    /// Proposed by the client, decided by the server.
    pub check: Check,
    /// Reordering window in frames.
    pub window: u16,
    /// Maximum length of received frames in bytes.
    pub frame: u16,
    /// Maximum delay of acknowledgements in µs.
    pub ack_delay_us: u32,
    /// Frames per acknowledgement.
    pub ack_every: u16,
    /// Initial credit of the connection in bytes.
    pub credit: u32,
    /// Initial credit of each channel in bytes.
    pub channel_credit: u32,
    /// Whether this end accepts long frames in [parts](super::part).
    pub parts: bool,
    /// Maximum FEC parameters in both directions; on the wire 7 bits of `repairs`.
    pub fec: Option<Fec>,
}

impl TransportParameters {
    fn read(bytes: &[u8; PARAMETERS_BYTES]) -> Option<TransportParameters> {
        let get32 = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(TransportParameters {
            mode: Mode::ALL.into_iter().find(|mode| *mode as u8 == bytes[0])?,
            check: Check::from_code(bytes[1])?,
            window: get16(&bytes[2..]),
            frame: get16(&bytes[4..]),
            ack_delay_us: get32(6),
            ack_every: get16(&bytes[10..]),
            credit: get32(12),
            channel_credit: get32(16),
            parts: bytes[21] & PARTS_FLAG != 0,
            fec: Fec::from_codes(bytes[20], bytes[21] >> 1),
        })
    }

    fn to_bytes(self) -> [u8; PARAMETERS_BYTES] {
        let mut bytes = [0; PARAMETERS_BYTES];
        bytes[0] = self.mode as u8;
        bytes[1] = self.check.code();
        bytes[2..4].copy_from_slice(&self.window.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.frame.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.ack_delay_us.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.ack_every.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.credit.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.channel_credit.to_be_bytes());
        bytes[21] = if self.parts { PARTS_FLAG } else { 0 };
        if let Some(Fec { frames, repairs }) = self.fec {
            bytes[20] = frames;
            bytes[21] |= repairs << 1;
        }
        bytes
    }

    /// Returns the length of the proof in frames with these parameters.
    fn proof_bytes(&self) -> usize {
        if self.check == Check::Aead { PROOF_BYTES } else { 0 }
    }

    /// Returns the bytes before the proof.
    fn strip_proof<'a>(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        rest.get(..rest.len().checked_sub(self.proof_bytes())?)
    }
}

/// Reason why a server refuses a connection, with its code on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefusalReason {
    /// The server has reached its maximum number of connections.
    Full = 1,
    /// The server does not accept the proposed parameters.
    Parameters = 2,
    /// The server uses another version.
    Version = 3,
    /// The server accepts no connections.
    Closed = 4,
    /// The server has another key.
    Key = 5,
}

impl RefusalReason {
    const ALL: [RefusalReason; 5] = [
        RefusalReason::Full,
        RefusalReason::Parameters,
        RefusalReason::Version,
        RefusalReason::Closed,
        RefusalReason::Key,
    ];
}

/// A frame without an established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Request of a client. A cookie of zeros means none.
    Open {
        /// Connection number of the client.
        client_id: u64,
        /// Parameters of the client, with the proposed mode and check.
        parameters: TransportParameters,
        /// Cookie of the server.
        cookie: [u8; COOKIE_BYTES],
    },
    /// The server verifies the client's address.
    Cookie {
        /// Connection number of the client.
        client_id: u64,
        /// To be returned by the client.
        cookie: [u8; COOKIE_BYTES],
    },
    /// The connection is established.
    Opened {
        /// Connection number of the client.
        client_id: u64,
        /// Connection number of the server.
        server_id: u64,
        /// Parameters of the server.
        parameters: TransportParameters,
    },
    /// The server refuses the connection.
    Refused {
        /// Connection number of the client.
        client_id: u64,
        /// Reason.
        reason: RefusalReason,
    },
    /// The sender of a frame has no connection here.
    Unknown {
        /// [Fingerprint](fingerprint) of that frame.
        fingerprint: [u8; 16],
    },
}

impl Handshake {
    /// Decodes a frame with its check; none if it is damaged or of another type.
    pub fn read(frame: &[u8]) -> Option<Handshake> {
        let body = Check::Crc32c.open(0, frame)?;
        let (&first, rest) = body.split_first()?;
        if first == UNKNOWN {
            return Some(Handshake::Unknown { fingerprint: rest.try_into().ok()? });
        }
        let (&version, rest) = rest.split_first()?;
        let (client_id, rest) = rest.split_first_chunk::<8>()?;
        let client_id = u64::from_be_bytes(*client_id);
        if first == REFUSED {
            let &[code] = rest else { return None };
            let reason = RefusalReason::ALL.into_iter().find(|reason| *reason as u8 == code)?;
            return Some(Handshake::Refused { client_id, reason });
        }
        if version != VERSION {
            return None;
        }
        match first {
            OPEN => {
                let (parameters, rest) = rest.split_first_chunk::<PARAMETERS_BYTES>()?;
                let parameters = TransportParameters::read(parameters)?;
                Some(Handshake::Open {
                    client_id,
                    parameters,
                    cookie: parameters.strip_proof(rest)?.try_into().ok()?,
                })
            }
            COOKIE => Some(Handshake::Cookie { client_id, cookie: rest.try_into().ok()? }),
            OPENED => {
                let (server_id, rest) = rest.split_first_chunk::<8>()?;
                let (parameters, rest) = rest.split_first_chunk::<PARAMETERS_BYTES>()?;
                let (server_id, parameters) =
                    (u64::from_be_bytes(*server_id), TransportParameters::read(parameters)?);
                parameters.strip_proof(rest)?.is_empty().then_some(Handshake::Opened {
                    client_id,
                    server_id,
                    parameters,
                })
            }
            _ => None,
        }
    }

    /// Writes the frame with its check at the start of `frame`; returns its length. The space of the proof is left
    /// zero.
    pub fn write(&self, frame: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            frame[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        match self {
            Handshake::Open { client_id, parameters, cookie } => {
                put(&[OPEN, VERSION]);
                put(&client_id.to_be_bytes());
                put(&parameters.to_bytes());
                put(cookie);
                put(&[0; PROOF_BYTES][..parameters.proof_bytes()]);
            }
            Handshake::Cookie { client_id, cookie } => {
                put(&[COOKIE, VERSION]);
                put(&client_id.to_be_bytes());
                put(cookie);
            }
            Handshake::Opened { client_id, server_id, parameters } => {
                put(&[OPENED, VERSION]);
                put(&client_id.to_be_bytes());
                put(&server_id.to_be_bytes());
                put(&parameters.to_bytes());
                put(&[0; PROOF_BYTES][..parameters.proof_bytes()]);
            }
            Handshake::Refused { client_id, reason } => {
                put(&[REFUSED, VERSION]);
                put(&client_id.to_be_bytes());
                put(&[*reason as u8]);
            }
            Handshake::Unknown { fingerprint } => {
                put(&[UNKNOWN]);
                put(fingerprint);
            }
        }
        let length = length + Check::Crc32c.bytes();
        Check::Crc32c.seal(0, &mut frame[..length]);
        length
    }

    /// Returns the connection number of the client in an open frame that cannot be read, and the reason to refuse it:
    /// another version, or an unknown mode or check.
    pub fn unreadable_open(frame: &[u8]) -> Option<(u64, RefusalReason)> {
        let [OPEN, version, rest @ ..] = Check::Crc32c.open(0, frame)? else { return None };
        let (client_id, rest) = rest.split_first_chunk::<8>()?;
        let client_id = u64::from_be_bytes(*client_id);
        if *version != VERSION {
            return Some((client_id, RefusalReason::Version));
        }
        let (parameters, cookie) = rest.split_first_chunk::<PARAMETERS_BYTES>()?;
        let unknown = cookie.len() == COOKIE_BYTES && TransportParameters::read(parameters).is_none();
        unknown.then_some((client_id, RefusalReason::Parameters))
    }
}

/// Returns the fingerprint of a frame, its first 12 and last 4 bytes. None if it is too short to be answered.
#[inline]
pub fn fingerprint(frame: &[u8]) -> Option<[u8; 16]> {
    if frame.len() < UNKNOWN_BYTES {
        return None;
    }
    let mut fingerprint = [0; 16];
    fingerprint[..12].copy_from_slice(frame.first_chunk::<12>()?);
    fingerprint[12..].copy_from_slice(frame.last_chunk::<4>()?);
    Some(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> TransportParameters {
        TransportParameters {
            mode: Mode::GoBackN,
            check: Check::Crc64,
            window: 16,
            frame: 9152,
            ack_delay_us: 70_000,
            ack_every: 3,
            credit: 1 << 31,
            channel_credit: 1 << 20,
            parts: true,
            fec: Some(Fec { frames: 10, repairs: 2 }),
        }
    }

    fn handshakes() -> [Handshake; 7] {
        let encrypted = TransportParameters { check: Check::Aead, ..parameters() };
        [
            Handshake::Open { client_id: u64::MAX - 1, parameters: parameters(), cookie: [9; 16] },
            Handshake::Cookie { client_id: 5, cookie: std::array::from_fn(|i| i as u8) },
            Handshake::Opened { client_id: 5, server_id: 6, parameters: parameters() },
            Handshake::Refused { client_id: 5, reason: RefusalReason::Full },
            Handshake::Unknown { fingerprint: [4; 16] },
            Handshake::Opened { client_id: 5, server_id: 6, parameters: encrypted },
            Handshake::Open { client_id: 5, parameters: encrypted, cookie: [9; 16] },
        ]
    }

    #[test]
    fn handshakes_round_trip_in_their_exact_length() {
        for handshake in handshakes() {
            let mut frame = [0; 200];
            let length = handshake.write(&mut frame);
            assert_eq!(Handshake::read(&frame[..length]), Some(handshake));
            for other in (0..200).filter(|other| *other != length) {
                assert_eq!(Handshake::read(&frame[..other]), None);
            }
        }
    }

    #[test]
    fn fec_is_negotiated() {
        let fec = |frames, repairs| Some(Fec { frames, repairs });
        for (own, peer, agreed) in [
            (None, None, None),
            (fec(10, 1), None, None),
            (None, fec(10, 1), None),
            (fec(10, 2), fec(20, 1), fec(10, 1)),
            (fec(10, 2), fec(255, 255), fec(10, 2)),
            (fec(64, 8), fec(1, 255), fec(1, 8)),
        ] {
            assert_eq!(Fec::negotiate(own, peer), agreed);
        }
        // An end without FEC sends zeros and ignores these bytes.
        assert_eq!((Fec::from_codes(0, 0), Fec::from_codes(7, 0)), (None, None));
        let last = |parts, fec| TransportParameters { parts, fec, ..parameters() }.to_bytes()[20..].to_vec();
        assert_eq!((last(false, None), last(true, None)), (vec![0, 0], vec![0, 1]));
        assert_eq!((last(false, fec(10, 2)), last(true, fec(64, 8))), (vec![10, 4], vec![64, 17]));
        assert_eq!(last(true, fec(255, 255)), [255, 255]);
        let bounds = |frames, repairs| Fec { frames, repairs }.clamped(Mode::Selective);
        assert_eq!((bounds(0, 0), bounds(255, 255), bounds(3, 8)), (fec(1, 1), fec(64, 8), fec(3, 3)));
        assert_eq!(Fec { frames: 10, repairs: 1 }.clamped(Mode::GoBackN), None);
    }

    #[test]
    fn replies_are_no_longer_than_requests() {
        let length = |handshake: &Handshake| handshake.write(&mut [0; 200]);
        let [open, answers @ .., encrypted, open_encrypted] = handshakes();
        assert!(answers.iter().all(|answer| length(answer) <= length(&open)));
        assert!(length(&encrypted) <= length(&open_encrypted));
        assert_eq!(length(&answers[3]), UNKNOWN_BYTES);
        assert!(fingerprint(&[1; UNKNOWN_BYTES - 1]).is_none() && fingerprint(&[1; UNKNOWN_BYTES]).is_some());
    }

    #[test]
    fn other_version_is_reported() {
        let mut frame = [0; 200];
        let length = handshakes()[0].write(&mut frame);
        frame[1] = 2;
        Check::Crc32c.seal(0, &mut frame[..length]);
        assert_eq!(Handshake::read(&frame[..length]), None);
        let refusal = (u64::MAX - 1, RefusalReason::Version);
        assert_eq!(Handshake::unreadable_open(&frame[..length]), Some(refusal));
    }

    #[test]
    fn unknown_parameters_are_distinguished_from_garbage() {
        let mut frame = [0; 200];
        let length = handshakes()[0].write(&mut frame);
        assert_eq!(Handshake::unreadable_open(&frame[..length]), None, "valid parameters");
        // Offsets of the mode and the check.
        for at in [10, 11] {
            let mut frame = frame;
            frame[at] = 200;
            assert_eq!(Handshake::unreadable_open(&frame[..length]), None, "damaged");
            Check::Crc32c.seal(0, &mut frame[..length]);
            assert_eq!(Handshake::read(&frame[..length]), None);
            let refusal = (u64::MAX - 1, RefusalReason::Parameters);
            assert_eq!(Handshake::unreadable_open(&frame[..length]), Some(refusal));
            for other in (0..200).filter(|other| *other != length) {
                if other >= 4 {
                    Check::Crc32c.seal(0, &mut frame[..other]);
                }
                assert_eq!(Handshake::unreadable_open(&frame[..other]), None, "{other} bytes");
            }
        }
    }
}
