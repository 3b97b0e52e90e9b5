//! Extracts messages from a byte stream.

use crc_fast::{CrcAlgorithm, Digest};

use crate::message::{HEADER, Header, HeaderError, MessageKind, Payload};

/// Splits a byte stream into measurement messages and compares their payloads as they arrive. Reads may end anywhere.
#[derive(Debug)]
pub struct Deframer {
    token: u32,
    payload: Payload,
    compare_every: u64,
    /// The header being received, or that of the current message.
    header_bytes: [u8; HEADER],
    /// Bytes of the header being received; 0 while a payload is received.
    header_length: usize,
    body: Option<MessageBody>,
}

/// The message whose payload is being received.
#[derive(Debug)]
struct MessageBody {
    header: Header,
    /// Payload bytes received so far.
    offset: usize,
    is_intact: bool,
    /// The checksum so far, of a message with foreign content.
    digest: Option<Digest>,
}

/// An event of a stream.
#[derive(Debug)]
pub enum DeframeEvent<'a> {
    /// Payload bytes of a message with foreign content, in order.
    Payload(&'a [u8]),
    /// A message is complete.
    Message {
        /// The header.
        header: Header,
        /// Whether the payload equals what was sent.
        intact: bool,
    },
}

impl Deframer {
    /// Creates a deframer for a connection. One in `compare_every` payloads is compared, because comparing takes a fifth of
    /// the time of receiving. Headers and foreign content are always checked.
    pub fn new(token: u32, payload: Payload, compare_every: u64) -> Self {
        Deframer {
            token,
            payload,
            compare_every: compare_every.max(1),
            header_bytes: [0; HEADER],
            header_length: 0,
            body: None,
        }
    }

    /// Whether the stream is at a message boundary.
    pub fn is_at_boundary(&self) -> bool {
        self.header_length == 0 && self.body.is_none()
    }

    /// Processes bytes and reports events. After a corrupt header the stream cannot be resynchronised.
    ///
    /// # Errors
    /// Returns why a header is invalid.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(DeframeEvent<'_>),
    ) -> Result<(), HeaderError> {
        while !bytes.is_empty() {
            match &mut self.body {
                None => {
                    let (start, rest) = bytes.split_at(bytes.len().min(HEADER - self.header_length));
                    self.header_bytes[self.header_length..self.header_length + start.len()]
                        .copy_from_slice(start);
                    self.header_length += start.len();
                    bytes = rest;
                    if self.header_length == HEADER {
                        self.start_message(&mut on_event)?;
                    }
                }
                Some(body) => {
                    let missing = body.header.length as usize - HEADER - body.offset;
                    let (piece, rest) = bytes.split_at(bytes.len().min(missing));
                    match &mut body.digest {
                        Some(digest) => {
                            digest.update(piece);
                            on_event(DeframeEvent::Payload(piece));
                        }
                        None if body.header.sequence % self.compare_every == 0 => {
                            body.is_intact &= self.payload.matches(body.offset, piece);
                        }
                        None => {}
                    }
                    body.offset += piece.len();
                    bytes = rest;
                    if piece.len() == missing {
                        self.finish_message(&mut on_event);
                    }
                }
            }
        }
        Ok(())
    }

    fn start_message(&mut self, on_event: &mut impl FnMut(DeframeEvent<'_>)) -> Result<(), HeaderError> {
        let header = Header::decode(self.token, &self.header_bytes)?;
        let digest = (header.kind == MessageKind::Checked).then(|| {
            let mut zeroed = self.header_bytes;
            zeroed[12..16].fill(0);
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            digest.update(&zeroed);
            digest
        });
        self.header_length = 0;
        self.body = Some(MessageBody { header, offset: 0, is_intact: true, digest });
        if header.length as usize == HEADER {
            self.finish_message(on_event);
        }
        Ok(())
    }

    fn finish_message(&mut self, on_event: &mut impl FnMut(DeframeEvent<'_>)) {
        let Some(body) = self.body.take() else { return };
        let is_checksum_valid =
            body.digest.is_none_or(|d| (d.finalize() as u32).to_be_bytes() == self.header_bytes[12..16]);
        on_event(DeframeEvent::Message { header: body.header, intact: body.is_intact && is_checksum_valid });
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
            let kind = if foreign { MessageKind::Checked } else { MessageKind::Pattern };
            let h = Header { sequence: i as u64, sent_at: Instant::ZERO, length, response_length: 0, kind };
            let mut message = vec![0; HEADER];
            message.extend((0..length as usize - HEADER).map(|k| payload.piece(k, 1)[0]));
            if foreign {
                h.encode_checked(5, &mut message);
            } else {
                h.encode(5, message.first_chunk_mut().unwrap());
            }
            bytes.extend(message);
        }
        bytes
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_read_sizes(
            sizes in proptest::collection::vec(32u32..5000, 1..20),
            cuts in proptest::collection::vec(1usize..3000, 1..40),
            foreign: bool,
            damage in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let payload = Payload::new(Seed(1), "a-b");
            let mut bytes = stream(&sizes, &payload, foreign);
            // Corrupt a payload byte.
            let mut start = 0;
            let position = damage.map(|d| d.index(bytes.len()));
            let mut damaged = None;
            for (i, size) in sizes.iter().enumerate() {
                if let Some(at) = position && (start + HEADER..start + *size as usize).contains(&at) {
                    bytes[at] ^= 0x40;
                    damaged = Some(i as u64);
                }
                start += *size as usize;
            }
            let mut deframer = Deframer::new(5, payload, 1);
            let mut events = Vec::new();
            let mut payload_bytes = 0;
            let mut rest = &bytes[..];
            for length in cuts.iter().cycle() {
                let (read, remaining) = rest.split_at(rest.len().min(*length));
                deframer.feed(read, |event| match event {
                    DeframeEvent::Message { header, intact } => events.push((header.sequence, header.length, intact)),
                    DeframeEvent::Payload(piece) => payload_bytes += piece.len(),
                }).unwrap();
                rest = remaining;
                if rest.is_empty() { break; }
            }
            let expected: Vec<_> = sizes.iter().enumerate().map(|(i, &s)| (i as u64, s, damaged != Some(i as u64))).collect();
            prop_assert_eq!(events, expected);
            prop_assert!(deframer.is_at_boundary());
            prop_assert_eq!(payload_bytes, if foreign { bytes.len() - sizes.len() * HEADER } else { 0 });
        }

        #[test]
        fn arbitrary_bytes_are_an_error_or_incomplete(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut d = Deframer::new(5, Payload::new(Seed(1), "x"), 1);
            let result = d.feed(&bytes, |_| panic!("no message has this check"));
            prop_assert_eq!(result.is_err(), bytes.len() >= HEADER);
        }
    }
}
