//! The opening of a connection, and what is said outside of any.
//!
//! The first byte says which; those that belong to no connection yet are checked by CRC-32C with no secret.
//!
//! | first byte | frame | layout before the check |
//! | ---: | --- | --- |
//! | 1 | open | version u8, client u64, terms (22), cookie (16), \[proof (32)\] |
//! | 2 | cookie | version u8, client u64, cookie (16) |
//! | 3 | opened | version u8, client u64, server u64, terms (22), \[proof (32)\] |
//! | 4 | refused | version u8, client u64, reason u8 |
//! | 5 | unknown | the first 12 bytes and the last 4 of the frame that nobody knew |
//! | 6 | reset | reason u8; by the connection's check |
//! | 7 | probe | token u32, then anything; by the connection's check |
//! | 8 | heard | token u32, length of the probe u16; by the connection's check |
//!
//! A proof stands there if the terms' check is [`Check::Aead`]. It is not looked at here, see [`super::aead`].
//!
//! The server keeps nothing until a cookie has come back: a cookie is a keyed hash of the address it was sent to. An
//! open frame is longer than any answer to it, so nobody is hit harder through a server than directly.

use super::check::Check;
use super::get16;
use crate::options::{MAX_BLOCK, MAX_REPAIRS};

/// The version of the protocol.
pub const VERSION: u8 = 1;

/// First bytes.
pub const OPEN: u8 = 1;
/// See [`OPEN`].
pub const COOKIE: u8 = 2;
/// See [`OPEN`].
pub const OPENED: u8 = 3;
/// See [`OPEN`].
pub const REFUSED: u8 = 4;
/// See [`OPEN`].
pub const UNKNOWN: u8 = 5;
/// See [`OPEN`].
pub const RESET: u8 = 6;
/// See [`OPEN`].
pub const PROBE: u8 = 7;
/// See [`OPEN`].
pub const HEARD: u8 = 8;

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 16;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// Bytes of [`Terms`].
const TERMS: usize = 22;
/// In the last of them, above which the repair frames stand.
const PARTS: u8 = 1;

/// Bytes of an unknown frame, check included: no frame shorter than this is answered by one.
pub const UNKNOWN_BYTES: usize = 1 + 16 + 4;

/// How lost frames are made good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Only what is missing is sent again; what comes early is kept.
    #[default]
    Selective,
    /// The missing frame and all after it are sent again; what comes early is ignored. The mode of 1998.
    GoBackN,
    /// One frame in flight (section 2.1 of the 1998 paper).
    StopAndWait,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Selective, Mode::GoBackN, Mode::StopAndWait];

    const fn code(self) -> u8 {
        match self {
            Mode::Selective => 0,
            Mode::GoBackN => 1,
            Mode::StopAndWait => 2,
        }
    }
}

/// Forward error correction: so many repair frames for so many frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fec {
    /// Frames of a block, 1 to [`MAX_BLOCK`].
    pub frames: u8,
    /// Repair frames for each, 1 to [`MAX_REPAIRS`] and no more than frames. One is the
    /// exclusive or of the frames.
    pub repairs: u8,
}

impl Fec {
    /// With both numbers held within what they may be; none if the mode does not have it.
    pub(crate) fn within_bounds(self, mode: Mode) -> Option<Fec> {
        let frames = self.frames.clamp(1, MAX_BLOCK);
        let repairs = self.repairs.clamp(1, MAX_REPAIRS.min(frames));
        (mode == Mode::Selective).then_some(Fec { frames, repairs })
    }

    /// What holds between two ends: the lesser of both, if both want it.
    pub(crate) fn agreed(ours: Option<Fec>, theirs: Option<Fec>) -> Option<Fec> {
        let (ours, theirs) = (ours?, theirs?);
        Some(Fec { frames: ours.frames.min(theirs.frames), repairs: ours.repairs.min(theirs.repairs) })
    }

    /// Two bytes of zeros are none; one zero is none either.
    const fn of_codes(frames: u8, repairs: u8) -> Option<Fec> {
        if frames == 0 || repairs == 0 { None } else { Some(Fec { frames, repairs }) }
    }
}

/// What an end says of itself when a connection opens: how it is to be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The client's is proposed, the server's holds.
    pub mode: Mode,
    /// The client's is proposed, the server's holds.
    pub check: Check,
    /// Frames that this end remembers out of order.
    pub window: u16,
    /// Longest frame that this end takes, in bytes.
    pub frame: u16,
    /// How long this end may keep an acknowledgement back, in µs.
    pub ack_delay_us: u32,
    /// How many frames it may keep one back.
    pub ack_every: u16,
    /// Bytes of messages that this end takes at first, in all and on each channel.
    pub credit: u32,
    /// See `credit`.
    pub channel_credit: u32,
    /// This end takes long frames in [parts](super::part), if the path no longer carries them whole.
    pub parts: bool,
    /// Repair frames that this end sends at most, and takes; on the wire the lowest 7 bits of `repairs`.
    pub fec: Option<Fec>,
}

impl Terms {
    fn read(bytes: &[u8; TERMS]) -> Option<Terms> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Terms {
            mode: Mode::ALL.into_iter().find(|mode| mode.code() == bytes[0])?,
            check: Check::of_code(bytes[1])?,
            window: get16(&bytes[2..]),
            frame: get16(&bytes[4..]),
            ack_delay_us: word(6),
            ack_every: get16(&bytes[10..]),
            credit: word(12),
            channel_credit: word(16),
            parts: bytes[21] & PARTS != 0,
            fec: Fec::of_codes(bytes[20], bytes[21] >> 1),
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        bytes[..TERMS].fill(0);
        bytes[0] = self.mode.code();
        bytes[1] = self.check.code();
        bytes[2..4].copy_from_slice(&self.window.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.frame.to_be_bytes());
        bytes[6..10].copy_from_slice(&self.ack_delay_us.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.ack_every.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.credit.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.channel_credit.to_be_bytes());
        bytes[21] = if self.parts { PARTS } else { 0 };
        if let Some(Fec { frames, repairs }) = self.fec {
            bytes[20] = frames;
            bytes[21] |= repairs << 1;
        }
    }
}

/// Why a server takes nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It has as many connections as it may have.
    Full,
    /// It does not do what was proposed.
    Terms,
    /// It speaks another version.
    Version,
    /// It takes no connections.
    Closed,
    /// It has another key.
    Key,
}

impl Reason {
    const ALL: [Reason; 5] = [Reason::Full, Reason::Terms, Reason::Version, Reason::Closed, Reason::Key];

    const fn code(self) -> u8 {
        match self {
            Reason::Full => 1,
            Reason::Terms => 2,
            Reason::Version => 3,
            Reason::Closed => 4,
            Reason::Key => 5,
        }
    }
}

/// A frame outside of any connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// A client wants a connection. A cookie of zeros is none.
    Open {
        /// The number that it drew.
        client: u64,
        /// What it proposes.
        terms: Terms,
        /// What the server gave it.
        cookie: [u8; COOKIE_BYTES],
    },
    /// A server wants to see that the client is where it says.
    Cookie {
        /// The client's number.
        client: u64,
        /// To be brought back.
        cookie: [u8; COOKIE_BYTES],
    },
    /// The connection stands.
    Opened {
        /// The client's number.
        client: u64,
        /// The server's.
        server: u64,
        /// What holds.
        terms: Terms,
    },
    /// It does not.
    Refused {
        /// The client's number.
        client: u64,
        /// Why.
        reason: Reason,
    },
    /// Nobody here knows the sender of a frame.
    Unknown {
        /// The first 12 and the last 4 bytes of that frame.
        echo: [u8; 16],
    },
}

impl Greeting {
    /// Reads a frame; none if it is not one of these, or damaged.
    pub fn read(frame: &[u8]) -> Option<Greeting> {
        let body = Check::Crc32c.open(0, frame)?;
        let (&first, rest) = body.split_first()?;
        if first == UNKNOWN {
            return Some(Greeting::Unknown { echo: rest.try_into().ok()? });
        }
        let (&version, rest) = rest.split_first()?;
        let (client, rest) = rest.split_first_chunk::<8>()?;
        let client = u64::from_be_bytes(*client);
        if first == REFUSED {
            let &[code] = rest else { return None };
            let reason = Reason::ALL.into_iter().find(|reason| reason.code() == code)?;
            return Some(Greeting::Refused { client, reason });
        }
        if version != VERSION {
            return None;
        }
        match first {
            OPEN => {
                let (terms, rest) = rest.split_first_chunk::<TERMS>()?;
                let terms = Terms::read(terms)?;
                Some(Greeting::Open { client, terms, cookie: terms.before_proof(rest)?.try_into().ok()? })
            }
            COOKIE => Some(Greeting::Cookie { client, cookie: rest.try_into().ok()? }),
            OPENED => {
                let (server, rest) = rest.split_first_chunk::<8>()?;
                let (terms, rest) = rest.split_first_chunk::<TERMS>()?;
                let (server, terms) = (u64::from_be_bytes(*server), Terms::read(terms)?);
                terms.before_proof(rest)?.is_empty().then_some(Greeting::Opened { client, server, terms })
            }
            _ => None,
        }
    }

    /// Writes it at the start of `frame`, check included; how long it is. A proof is left to be written.
    pub fn write(&self, frame: &mut [u8]) -> usize {
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            frame[length..length + bytes.len()].copy_from_slice(bytes);
            length += bytes.len();
        };
        match self {
            Greeting::Open { client, terms, cookie } => {
                put(&[OPEN, VERSION]);
                put(&client.to_be_bytes());
                put(&terms.bytes());
                put(cookie);
                put(&[0; PROOF_BYTES][..terms.proof_bytes()]);
            }
            Greeting::Cookie { client, cookie } => {
                put(&[COOKIE, VERSION]);
                put(&client.to_be_bytes());
                put(cookie);
            }
            Greeting::Opened { client, server, terms } => {
                put(&[OPENED, VERSION]);
                put(&client.to_be_bytes());
                put(&server.to_be_bytes());
                put(&terms.bytes());
                put(&[0; PROOF_BYTES][..terms.proof_bytes()]);
            }
            Greeting::Refused { client, reason } => {
                put(&[REFUSED, VERSION]);
                put(&client.to_be_bytes());
                put(&[reason.code()]);
            }
            Greeting::Unknown { echo } => {
                put(&[UNKNOWN]);
                put(echo);
            }
        }
        let length = length + Check::Crc32c.bytes();
        Check::Crc32c.seal(0, &mut frame[..length]);
        length
    }

    /// The version that an open frame speaks, and its client, if it is another than ours.
    pub fn foreign(frame: &[u8]) -> Option<u64> {
        let body = Check::Crc32c.open(0, frame)?;
        match body {
            [OPEN, version, rest @ ..] if *version != VERSION => {
                rest.first_chunk::<8>().map(|client| u64::from_be_bytes(*client))
            }
            _ => None,
        }
    }

    /// The client of an open frame of our version whose mode or check nobody here knows.
    pub fn unacceptable(frame: &[u8]) -> Option<u64> {
        match Check::Crc32c.open(0, frame)? {
            [OPEN, VERSION, rest @ ..] => {
                let (client, rest) = rest.split_first_chunk::<8>()?;
                let (terms, cookie) = rest.split_first_chunk::<TERMS>()?;
                let unknown = cookie.len() == COOKIE_BYTES && Terms::read(terms).is_none();
                unknown.then_some(u64::from_be_bytes(*client))
            }
            _ => None,
        }
    }
}

impl Terms {
    /// Bytes of the proof that frames with these terms end in.
    fn proof_bytes(&self) -> usize {
        if self.check == Check::Aead { PROOF_BYTES } else { 0 }
    }

    /// What stands before the proof, if there must be one.
    fn before_proof<'a>(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        rest.get(..rest.len().checked_sub(self.proof_bytes())?)
    }

    fn bytes(&self) -> [u8; TERMS] {
        let mut bytes = [0; TERMS];
        self.write(&mut bytes);
        bytes
    }
}

/// What tells a frame from every other: its first 12 and last 4 bytes. None if it is too short to be worth an answer.
#[inline]
pub fn echo(frame: &[u8]) -> Option<[u8; 16]> {
    if frame.len() < UNKNOWN_BYTES {
        return None;
    }
    let mut echo = [0; 16];
    echo[..12].copy_from_slice(frame.first_chunk::<12>()?);
    echo[12..].copy_from_slice(frame.last_chunk::<4>()?);
    Some(echo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let (mode, check) = (Mode::GoBackN, Check::Crc64);
        let (ack_delay_us, ack_every, credit, channel_credit) = (70_000, 3, 1 << 31, 1 << 20);
        let (parts, fec) = (true, Some(Fec { frames: 10, repairs: 2 }));
        let (window, frame) = (16, 9152);
        Terms { mode, check, window, frame, ack_delay_us, ack_every, credit, channel_credit, parts, fec }
    }

    fn greetings() -> [Greeting; 7] {
        let encrypted = Terms { check: Check::Aead, ..terms() };
        [
            Greeting::Open { client: u64::MAX - 1, terms: terms(), cookie: [9; 16] },
            Greeting::Cookie { client: 5, cookie: std::array::from_fn(|i| i as u8) },
            Greeting::Opened { client: 5, server: 6, terms: terms() },
            Greeting::Refused { client: 5, reason: Reason::Full },
            Greeting::Unknown { echo: [4; 16] },
            Greeting::Opened { client: 5, server: 6, terms: encrypted },
            Greeting::Open { client: 5, terms: encrypted, cookie: [9; 16] },
        ]
    }

    #[test]
    fn they_are_read_as_written_and_in_no_other_length() {
        for greeting in greetings() {
            let mut frame = [0; 200];
            let length = greeting.write(&mut frame);
            assert_eq!(Greeting::read(&frame[..length]), Some(greeting));
            for other in (0..200).filter(|other| *other != length) {
                assert_eq!(Greeting::read(&frame[..other]), None);
            }
        }
    }

    #[test]
    fn forward_error_correction_is_agreed_upon_by_both_or_not_at_all() {
        let fec = |frames, repairs| Some(Fec { frames, repairs });
        for (ours, theirs, agreed) in [
            (None, None, None),
            (fec(10, 1), None, None),
            (None, fec(10, 1), None),
            (fec(10, 2), fec(20, 1), fec(10, 1)),
            (fec(10, 2), fec(255, 255), fec(10, 2)),
            (fec(64, 8), fec(1, 255), fec(1, 8)),
        ] {
            assert_eq!(Fec::agreed(ours, theirs), agreed);
        }
        // An end that does not know it says, and looks at, nothing.
        assert_eq!((Fec::of_codes(0, 0), Fec::of_codes(7, 0)), (None, None));
        let last = |parts, fec| Terms { parts, fec, ..terms() }.bytes()[20..].to_vec();
        assert_eq!((last(false, None), last(true, None)), (vec![0, 0], vec![0, 1]));
        assert_eq!((last(false, fec(10, 2)), last(true, fec(64, 8))), (vec![10, 4], vec![64, 17]));
        assert_eq!(last(true, fec(255, 255)), [255, 255]);
        let bounds = |frames, repairs| Fec { frames, repairs }.within_bounds(Mode::Selective);
        assert_eq!((bounds(0, 0), bounds(255, 255), bounds(3, 8)), (fec(1, 1), fec(64, 8), fec(3, 3)));
        assert_eq!(Fec { frames: 10, repairs: 1 }.within_bounds(Mode::GoBackN), None);
    }

    #[test]
    fn no_answer_is_longer_than_the_question() {
        let length = |greeting: &Greeting| greeting.write(&mut [0; 200]);
        let [open, answers @ .., encrypted, open_encrypted] = greetings();
        assert!(answers.iter().all(|answer| length(answer) <= length(&open)));
        assert!(length(&encrypted) <= length(&open_encrypted));
        assert_eq!(length(&answers[3]), UNKNOWN_BYTES);
        assert!(echo(&[1; UNKNOWN_BYTES - 1]).is_none() && echo(&[1; UNKNOWN_BYTES]).is_some());
    }

    #[test]
    fn another_version_is_told() {
        let mut frame = [0; 200];
        let length = greetings()[0].write(&mut frame);
        frame[1] = 2;
        Check::Crc32c.seal(0, &mut frame[..length]);
        assert_eq!(Greeting::read(&frame[..length]), None);
        assert_eq!(Greeting::foreign(&frame[..length]), Some(u64::MAX - 1));
        assert_eq!(Greeting::unacceptable(&frame[..length]), None);
    }

    #[test]
    fn unknown_terms_are_told_from_rubbish() {
        let mut frame = [0; 200];
        let length = greetings()[0].write(&mut frame);
        assert_eq!(Greeting::unacceptable(&frame[..length]), None, "these are fine");
        // The mode and the check.
        for at in [10, 11] {
            let mut frame = frame;
            frame[at] = 200;
            assert_eq!(Greeting::unacceptable(&frame[..length]), None, "damaged");
            Check::Crc32c.seal(0, &mut frame[..length]);
            assert_eq!(Greeting::read(&frame[..length]), None);
            assert_eq!(Greeting::unacceptable(&frame[..length]), Some(u64::MAX - 1));
            for other in (0..200).filter(|other| *other != length) {
                if other >= 4 {
                    Check::Crc32c.seal(0, &mut frame[..other]);
                }
                assert_eq!(Greeting::unacceptable(&frame[..other]), None, "{other} bytes");
            }
        }
    }
}
