//! The messages of one end on their way to and from a QUIC connection.

use bytes::Bytes;
use trunkline_quic::{Command, Refusal};

use crate::deframe::{DeframeEvent, Deframer};
use crate::message::{HEADER, Header, HeaderError, MessageKind, PAYLOAD_PERIOD, Payload};

/// Maximum chunks of a command; a chunk of a payload has up to 64 KiB.
const MAX_CHUNKS: usize = 32;

/// Error of received messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// The connection refused the command.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A header is invalid: the stream cannot be read any further.
    #[error("corrupt header")]
    Header(HeaderError),
}

/// Writes messages to the streams in turn and finds their boundaries at the other end; or sends each as a datagram. The
/// message that is being sent is the only one in memory. `command` gives a command to the node.
#[derive(Debug)]
pub struct Messages {
    token: u32,
    payload: Payload,
    pattern: Bytes,
    is_datagrams: bool,
    streams: u32,
    /// The stream of the message being sent, and the next.
    stream: u32,
    next_stream: u32,
    /// The front of what remains of the message, and the part of its payload after that.
    chunks: Vec<Bytes>,
    offset: usize,
    end: usize,
    /// The part of the payload that may be handed over now ends here.
    permitted: usize,
    compare_every: u64,
    deframers: Vec<Deframer>,
}

impl Messages {
    /// Creates the messages of a connection with this token and payload over `streams`, or as datagrams. One in
    /// `compare_every` payloads is compared.
    pub fn new(
        token: u32,
        payload: Payload,
        streams: u32,
        is_datagrams: bool,
        compare_every: u64,
    ) -> Messages {
        let deframer = |_| Deframer::new(token, payload.clone(), compare_every);
        Messages {
            token,
            pattern: Bytes::copy_from_slice(payload.piece(0, PAYLOAD_PERIOD)),
            is_datagrams,
            streams,
            stream: 0,
            next_stream: 0,
            chunks: Vec::new(),
            offset: 0,
            end: 0,
            permitted: usize::MAX,
            compare_every,
            deframers: (0..streams).map(deframer).collect(),
            payload,
        }
    }

    /// Whether a message has not been handed over completely.
    #[inline]
    pub fn is_sending(&self) -> bool {
        !self.chunks.is_empty() || self.offset < self.end
    }

    /// Begins a message. None may be [being sent](Messages::is_sending).
    #[inline]
    pub fn begin(&mut self, header: &Header) {
        let mut bytes = [0; HEADER];
        header.encode(self.token, &mut bytes);
        self.begin_encoded(bytes.to_vec());
        (self.offset, self.end) = (0, header.length as usize - HEADER);
        self.permitted = usize::MAX;
    }

    /// Limits what may be handed over to the first `length` bytes of the message that was begun.
    pub fn permit(&mut self, length: usize) {
        self.permitted = length.saturating_sub(HEADER);
    }

    /// Whether each message is a datagram.
    pub fn is_datagrams(&self) -> bool {
        self.is_datagrams
    }

    /// Begins a message that is encoded already, such as a piece of a file.
    pub fn begin_encoded(&mut self, message: Vec<u8>) {
        debug_assert!(!self.is_sending(), "one message at a time");
        self.chunks.push(message.into());
        self.stream = self.next_stream;
        self.next_stream = (self.next_stream + 1) % self.streams;
    }

    /// Hands the message over as far as there is room. Returns whether it is complete, or all that is
    /// [permitted](Messages::permit).
    ///
    /// # Errors
    /// If the connection refuses it.
    #[inline]
    pub fn send(
        &mut self,
        mut command: impl FnMut(Command<'_>) -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        loop {
            let end = self.end.min(self.permitted);
            while self.offset < end && self.chunks.len() < MAX_CHUNKS {
                let start = self.offset % PAYLOAD_PERIOD;
                let length = (end - self.offset).min(PAYLOAD_PERIOD - start);
                self.chunks.push(self.pattern.slice(start..start + length));
                self.offset += length;
            }
            if self.chunks.is_empty() {
                return Ok(true);
            }
            if self.is_datagrams {
                let message = self.chunks.concat().into();
                let mut is_queued = false;
                command(Command::SendDatagram { message, is_queued: &mut is_queued })?;
                if !is_queued {
                    return Ok(false);
                }
                self.chunks.clear();
            } else {
                let mut written = 0;
                let (stream, chunks) = (self.stream, &mut self.chunks[..]);
                command(Command::Send { stream, chunks, written: &mut written })?;
                self.chunks.drain(..written);
                if !self.chunks.is_empty() {
                    return Ok(false);
                }
            }
        }
    }

    /// Reads what has arrived on a stream.
    ///
    /// # Errors
    /// If a header is invalid, or the connection refuses the command.
    pub fn receive(
        &mut self,
        stream: u32,
        command: impl FnOnce(Command<'_>) -> Result<(), Refusal>,
        mut on_event: impl FnMut(DeframeEvent<'_>),
    ) -> Result<(), ReceiveError> {
        let deframer = self.deframers.get_mut(stream as usize).ok_or(Refusal::UnknownStream)?;
        let mut result = Ok(());
        let mut consume = |bytes: &[u8]| {
            if result.is_ok() {
                result = deframer.feed(bytes, &mut on_event);
            }
        };
        command(Command::Receive { stream, consume: &mut consume })?;
        result.map_err(ReceiveError::Header)
    }

    /// Reads the datagrams that have arrived.
    ///
    /// # Errors
    /// If the connection refuses the command.
    pub fn receive_datagrams(
        &mut self,
        command: impl FnOnce(Command<'_>) -> Result<(), Refusal>,
        mut on_message: impl FnMut(Option<Header>),
    ) -> Result<(), ReceiveError> {
        let mut consume = |bytes: &[u8]| on_message(self.check(bytes));
        command(Command::ReceiveDatagrams { consume: &mut consume })?;
        Ok(())
    }

    /// Returns the header of an intact message.
    fn check(&self, message: &[u8]) -> Option<Header> {
        let header = Header::decode(self.token, message).ok()?;
        let (_, body) = message.split_first_chunk::<HEADER>()?;
        let is_compared = header.sequence.is_multiple_of(self.compare_every.max(1));
        let is_intact = header.length as usize == message.len()
            && header.kind != MessageKind::Checked
            && (!is_compared || self.payload.matches(0, body));
        is_intact.then_some(header)
    }

    /// Whether all streams are at a message boundary.
    pub fn is_at_boundary(&self) -> bool {
        self.deframers.iter().all(Deframer::is_at_boundary)
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::{Instant, Seed};

    use super::*;

    /// Accepts `room` bytes of a command and stores them.
    fn accept(command: Command<'_>, room: usize, streams: &mut [Vec<u8>]) {
        match command {
            Command::Send { stream, chunks, written } => {
                let mut left = room;
                for chunk in chunks {
                    let count = chunk.len().min(left);
                    streams[stream as usize].extend_from_slice(&chunk.split_to(count));
                    left -= count;
                    if !chunk.is_empty() {
                        break;
                    }
                    *written += 1;
                }
            }
            Command::Receive { stream, consume } => consume(&std::mem::take(&mut streams[stream as usize])),
            _ => unreachable!("only streams are used"),
        }
    }

    #[test]
    fn messages_of_all_sizes_pass_streams_in_turn() {
        let payload = Payload::new(Seed(1), "a-b");
        let mut ends = [(); 2].map(|()| Messages::new(7, payload.clone(), 3, false, 1));
        let mut streams = [const { Vec::new() }; 3];
        for (sequence, length) in (0..).zip([32, 33, 1000, 65_568, 65_569, 3_000_000]) {
            let header = Header::pattern(sequence, Instant::ZERO, length);
            ends[0].begin(&header);
            let mut calls = 0;
            while !ends[0]
                .send(|command| {
                    accept(command, 70_000, &mut streams);
                    Ok(())
                })
                .unwrap()
            {
                calls += 1;
            }
            assert!(
                calls >= length / 71_000 && streams.iter().map(Vec::len).sum::<usize>() == length as usize
            );
            let mut arrived = Vec::new();
            let receive = |command: Command<'_>| {
                accept(command, 0, &mut streams);
                Ok(())
            };
            ends[1]
                .receive(sequence as u32 % 3, receive, |event| match event {
                    DeframeEvent::Message { header, intact } => arrived.push((header, intact)),
                    DeframeEvent::Payload(_) => unreachable!(),
                })
                .unwrap();
            assert_eq!(arrived, [(header, true)]);
            assert!(ends[1].is_at_boundary());
        }
    }

    #[test]
    fn a_corrupt_stream_and_a_corrupt_datagram_are_refused() {
        let payload = Payload::new(Seed(1), "a-b");
        let mut messages = Messages::new(7, payload.clone(), 1, false, 1);
        let garbage = |command: Command<'_>| {
            let Command::Receive { consume, .. } = command else { unreachable!() };
            consume(&[0; 40]);
            Ok(())
        };
        let error = messages.receive(0, garbage, |_| panic!("no message"));
        assert_eq!(error, Err(ReceiveError::Header(HeaderError::UnknownToken)));

        let mut message = vec![0; 100];
        Header::pattern(0, Instant::ZERO, 100).encode(7, message.first_chunk_mut().unwrap());
        message[HEADER..].copy_from_slice(payload.piece(0, 100 - HEADER));
        let mut intact = Vec::new();
        for damage in [0, 1] {
            message[50] ^= damage;
            let one = |command: Command<'_>| {
                let Command::ReceiveDatagrams { consume } = command else { unreachable!() };
                consume(&message);
                Ok(())
            };
            messages.receive_datagrams(one, |header| intact.push(header.is_some())).unwrap();
        }
        assert_eq!(intact, [true, false]);
    }
}
