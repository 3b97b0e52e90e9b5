//! Messages out of a byte stream.

use crc_fast::{CrcAlgorithm, Digest};

use crate::message::{HEADER, Header, Kind, NotAHeader, Payload};

/// Cuts a byte stream into test messages, however the reads fall, and compares their payloads as they come.
#[derive(Debug)]
pub struct Deframer {
    token: u32,
    payload: Payload,
    every: u64,
    front: [u8; HEADER],
    have: usize,
    body: Option<Body>,
}

/// The message whose payload is coming in.
#[derive(Debug)]
struct Body {
    header: Header,
    offset: usize,
    intact: bool,
    check: Option<Digest>,
}

/// What a stream holds.
#[derive(Debug)]
pub enum Part<'a> {
    /// Payload bytes of a message with foreign content, in order.
    Piece(&'a [u8]),
    /// A message is complete.
    Message {
        /// Its header.
        header: Header,
        /// Whether its payload is what was sent.
        intact: bool,
    },
}

impl Deframer {
    /// For a connection's token and payload. Of every `every`-th message the payload is compared, of the others the
    /// header only: comparing costs a fifth of what receiving does. Foreign content is always checked.
    pub fn new(token: u32, payload: Payload, every: u64) -> Self {
        Deframer { token, payload, every: every.max(1), front: [0; HEADER], have: 0, body: None }
    }

    /// Whether the stream stands between two messages.
    pub fn is_between(&self) -> bool {
        self.have == 0 && self.body.is_none()
    }

    /// Takes what was read and hands on what it holds. A damaged header loses the stream: nothing after it can be
    /// told apart.
    pub fn feed(&mut self, mut bytes: &[u8], mut part: impl FnMut(Part<'_>)) -> Result<(), NotAHeader> {
        while !bytes.is_empty() {
            match &mut self.body {
                None => {
                    let (front, rest) = bytes.split_at(bytes.len().min(HEADER - self.have));
                    self.front[self.have..self.have + front.len()].copy_from_slice(front);
                    self.have += front.len();
                    bytes = rest;
                    if self.have == HEADER {
                        self.begin(&mut part)?;
                    }
                }
                Some(body) => {
                    let wanted = body.header.length as usize - HEADER - body.offset;
                    let (piece, rest) = bytes.split_at(bytes.len().min(wanted));
                    match &mut body.check {
                        Some(check) => {
                            check.update(piece);
                            part(Part::Piece(piece));
                        }
                        None if body.header.sequence % self.every == 0 => {
                            body.intact &= self.payload.matches(body.offset, piece);
                        }
                        None => {}
                    }
                    body.offset += piece.len();
                    bytes = rest;
                    if piece.len() == wanted {
                        self.finish(&mut part);
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, part: &mut impl FnMut(Part<'_>)) -> Result<(), NotAHeader> {
        let header = Header::decode(self.token, &self.front)?;
        let check = (header.kind == Kind::Checked).then(|| {
            let mut zeroed = self.front;
            zeroed[12..16].fill(0);
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            digest.update(&zeroed);
            digest
        });
        self.have = 0;
        self.body = Some(Body { header, offset: 0, intact: true, check });
        if header.length as usize == HEADER {
            self.finish(part);
        }
        Ok(())
    }

    fn finish(&mut self, part: &mut impl FnMut(Part<'_>)) {
        let Some(body) = self.body.take() else { return };
        let checked = body.check.is_none_or(|c| (c.finalize() as u32).to_be_bytes() == self.front[12..16]);
        part(Part::Message { header: body.header, intact: body.intact && checked });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_units::{Instant, Seed};

    use super::*;

    fn stream(sizes: &[u32], payload: &Payload, foreign: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, &length) in sizes.iter().enumerate() {
            let kind = if foreign { Kind::Checked } else { Kind::Pattern };
            let h = Header { sequence: i as u64, sent: Instant::ZERO, length, response: 0, kind };
            let body: Vec<u8> = (0..length as usize - HEADER).map(|k| payload.piece(k, 1)[0]).collect();
            let mut front = [0; HEADER];
            if foreign {
                h.encode_checked(5, &body, &mut front)
            } else {
                h.encode(5, &mut front)
            }
            bytes.extend(front);
            bytes.extend(body);
        }
        bytes
    }

    proptest! {
        #[test]
        fn however_the_reads_fall_the_messages_are_the_same(
            sizes in proptest::collection::vec(32u32..5000, 1..20),
            cuts in proptest::collection::vec(1usize..3000, 1..40),
            foreign: bool,
            damage in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let payload = Payload::new(Seed(1), "a-b");
            let mut bytes = stream(&sizes, &payload, foreign);
            // Damage a payload byte, if there is one where it falls.
            let mut at = 0;
            let hit = damage.map(|d| d.index(bytes.len()));
            let mut damaged = None;
            for (i, s) in sizes.iter().enumerate() {
                if let Some(h) = hit && (at + HEADER..at + *s as usize).contains(&h) {
                    bytes[h] ^= 0x40;
                    damaged = Some(i as u64);
                }
                at += *s as usize;
            }
            let mut deframer = Deframer::new(5, payload, 1);
            let mut got = Vec::new();
            let mut pieces = 0;
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                let (front, back) = rest.split_at(rest.len().min(*cut));
                deframer.feed(front, |p| match p {
                    Part::Message { header, intact } => got.push((header.sequence, header.length, intact)),
                    Part::Piece(p) => pieces += p.len(),
                }).unwrap();
                rest = back;
                if rest.is_empty() { break; }
            }
            let want: Vec<_> = sizes.iter().enumerate().map(|(i, &s)| (i as u64, s, damaged != Some(i as u64))).collect();
            prop_assert_eq!(got, want);
            prop_assert!(deframer.is_between());
            prop_assert_eq!(pieces, if foreign { bytes.len() - sizes.len() * HEADER } else { 0 });
        }

        #[test]
        fn garbage_ends_in_an_error_or_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut d = Deframer::new(5, Payload::new(Seed(1), "x"), 1);
            let result = d.feed(&bytes, |_| panic!("no message has this check"));
            prop_assert_eq!(result.is_err(), bytes.len() >= HEADER);
        }
    }
}
