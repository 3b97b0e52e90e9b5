//! One connection of a node.

use bytes::Bytes;
use quinn_proto::{
    Connection, ConnectionEvent, ConnectionHandle, Dir, EndpointEvent, Event as QuinnEvent, ReadError,
    SendDatagramError, Side, StreamEvent, StreamId, Transmit, VarInt, WriteError,
};
use trunkline_units::{Instant, Span};

use crate::event::{CloseReason, Event, Refusal};
use crate::statistics::Statistics;
use crate::time::TimeBase;

/// A connection, its streams, and what it has to do.
pub(crate) struct Session {
    pub handle: ConnectionHandle,
    connection: Connection,
    clock: TimeBase,
    started: Instant,
    handshake: Option<Span>,
    /// Whether the endpoint has forgotten the connection.
    pub is_drained: bool,
    /// Whether `poll` may return events, and `transmit` packets.
    has_events: bool,
    /// Whether the peer has opened streams that are not accepted yet.
    has_opened: bool,
    pub has_output: bool,
    /// For each stream, whether the peer has ended it and everything was read.
    ended: Vec<bool>,
    /// Streams of which the peer has acknowledged everything.
    acknowledged: usize,
    /// Whether the streams are to be ended once all datagrams have left.
    is_finishing: bool,
    /// Free bytes of the empty buffer of outgoing datagrams.
    datagram_space: usize,
    /// Whether the peer has reset a stream, which is not reported yet.
    has_reset: bool,
    pub is_closed: bool,
}

impl Session {
    pub fn new(
        handle: ConnectionHandle,
        mut connection: Connection,
        streams: u32,
        clock: TimeBase,
        now: Instant,
    ) -> Session {
        let datagram_space = connection.datagrams().send_buffer_space();
        Session {
            handle,
            datagram_space,
            connection,
            clock,
            started: now,
            handshake: None,
            is_drained: false,
            has_events: true,
            has_opened: false,
            has_output: true,
            ended: vec![false; streams.max(1) as usize],
            acknowledged: 0,
            is_finishing: false,
            has_reset: false,
            is_closed: false,
        }
    }

    pub fn is_established(&self) -> bool {
        self.handshake.is_some()
    }

    /// Whether the peer has ended all streams and everything was read.
    pub fn has_received_all(&self) -> bool {
        self.ended.iter().all(|ended| *ended)
    }

    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.connection, self.handshake)
    }

    /// Returns when a timer expires; none of a drained connection.
    pub fn deadline(&mut self) -> Option<Instant> {
        let deadline = self.connection.poll_timeout().filter(|_| !self.is_drained)?;
        Some(self.clock.instant(deadline))
    }

    pub fn wake(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.connection.handle_timeout(self.clock.std_instant(now));
            self.touch();
        }
    }

    pub fn handle(&mut self, event: ConnectionEvent) {
        self.connection.handle_event(event);
        self.touch();
    }

    fn touch(&mut self) {
        (self.has_events, self.has_output) = (true, true);
    }

    /// Returns an event for the endpoint.
    pub fn endpoint_event(&mut self) -> Option<EndpointEvent> {
        let event = self.connection.poll_endpoint_events().filter(|_| !self.is_drained)?;
        self.is_drained = event.is_drained();
        Some(event)
    }

    /// Returns packets to send, in `packets`.
    pub fn transmit(&mut self, now: Instant, segments: usize, packets: &mut Vec<u8>) -> Option<Transmit> {
        self.end_streams();
        let transmit = self.connection.poll_transmit(self.clock.std_instant(now), segments, packets);
        self.has_output = transmit.is_some();
        // Sending makes room for datagrams, which is an event.
        self.has_events = true;
        transmit
    }

    /// Returns the largest packet that can be sent.
    pub fn mtu(&self) -> usize {
        usize::from(self.connection.current_mtu()).max(1)
    }

    /// Returns the next event.
    pub fn event(&mut self, now: Instant) -> Option<Event> {
        if !self.has_events {
            return None;
        }
        if std::mem::take(&mut self.has_reset) {
            return Some(Event::Closed(CloseReason::Failed("the peer reset a stream".to_owned())));
        }
        loop {
            // One event announces all streams that a packet has opened.
            while self.has_opened {
                let opened = self.connection.streams().accept(Dir::Bi);
                self.has_opened = opened.is_some();
                if let Some(id) = opened.filter(|id| (id.index() as usize) < self.ended.len()) {
                    return Some(Event::Readable { stream: id.index() as u32 });
                }
            }
            let Some(event) = self.connection.poll() else { break };
            match event {
                QuinnEvent::Connected => {
                    if self.open_streams() {
                        self.handshake = Some(now.since(self.started));
                        return Some(Event::Connected);
                    }
                    self.is_closed = true;
                    let text = "the peer permits fewer streams".to_owned();
                    return Some(Event::Closed(CloseReason::Failed(text)));
                }
                QuinnEvent::ConnectionLost { reason } => {
                    self.is_closed = true;
                    return Some(Event::Closed(reason.into()));
                }
                QuinnEvent::Stream(StreamEvent::Readable { id }) => {
                    return Some(Event::Readable { stream: id.index() as u32 });
                }
                QuinnEvent::Stream(StreamEvent::Writable { .. }) | QuinnEvent::DatagramsUnblocked => {
                    return Some(Event::Writable);
                }
                QuinnEvent::Stream(StreamEvent::Finished { .. }) => {
                    self.acknowledged += 1;
                    if self.acknowledged == self.ended.len() {
                        return Some(Event::Delivered);
                    }
                }
                QuinnEvent::Stream(StreamEvent::Stopped { .. }) => {
                    let text = "the peer accepts no more data".to_owned();
                    return Some(Event::Closed(CloseReason::Failed(text)));
                }
                QuinnEvent::DatagramReceived => return Some(Event::DatagramsReadable),
                QuinnEvent::Stream(StreamEvent::Opened { .. }) => self.has_opened = true,
                QuinnEvent::HandshakeDataReady | QuinnEvent::Stream(StreamEvent::Available { .. }) => {}
            }
        }
        self.has_events = false;
        None
    }

    /// Opens the streams of a client. Returns false if the peer permits fewer.
    fn open_streams(&mut self) -> bool {
        self.connection.side() == Side::Server
            || (0..self.ended.len()).all(|_| self.connection.streams().open(Dir::Bi).is_some())
    }

    fn stream(&self, stream: u32) -> Result<StreamId, Refusal> {
        match (stream as usize) < self.ended.len() {
            true => Ok(StreamId::new(Side::Client, Dir::Bi, stream.into())),
            false => Err(Refusal::UnknownStream),
        }
    }

    /// Writes chunks to a stream; returns how many are written completely. Of a partly written chunk only the rest stays.
    pub fn write(&mut self, stream: u32, chunks: &mut [Bytes]) -> Result<usize, Refusal> {
        let id = self.stream(stream)?;
        self.has_output = true;
        let mut complete = 0;
        // Only a refused write requests an event when there is room again.
        while complete < chunks.len() {
            match self.connection.send_stream(id).write_chunks(&mut chunks[complete..]) {
                Ok(written) => complete += written.chunks,
                Err(WriteError::Blocked) => break,
                Err(_) => return Err(Refusal::Ended),
            }
        }
        Ok(complete)
    }

    /// Queues a datagram; returns false if there is no room.
    pub fn send_datagram(&mut self, message: Bytes) -> Result<bool, Refusal> {
        match self.connection.datagrams().send(message, false) {
            Ok(()) => {
                self.has_output = true;
                Ok(true)
            }
            Err(SendDatagramError::Blocked(_)) => Ok(false),
            Err(SendDatagramError::TooLarge) => Err(Refusal::TooLong),
            Err(_) => Err(Refusal::Ended),
        }
    }

    /// Passes what has arrived on a stream to `consume`. The rest of a stream that the peer has reset (RFC 9000 section 3.2) never
    /// arrives, so the connection is closed, which is an event.
    pub fn read(&mut self, now: Instant, stream: u32, consume: &mut dyn FnMut(&[u8])) -> Result<(), Refusal> {
        let id = self.stream(stream)?;
        let mut received = self.connection.recv_stream(id);
        let Ok(mut chunks) = received.read(true) else { return Ok(()) };
        let mut is_reset = false;
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => consume(&chunk.bytes),
                Ok(None) => {
                    self.ended[stream as usize] = true;
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(ReadError::Reset(_)) => {
                    is_reset = true;
                    break;
                }
            }
        }
        self.has_output |= chunks.finalize().should_transmit();
        if is_reset && !self.is_closed {
            self.has_reset = true;
            self.close(now);
        }
        Ok(())
    }

    /// Returns a datagram that has arrived.
    pub fn datagram(&mut self) -> Option<Bytes> {
        self.connection.datagrams().recv()
    }

    /// Ends all streams, after the datagrams.
    pub fn finish(&mut self) {
        self.is_finishing = true;
        self.touch();
    }

    fn end_streams(&mut self) {
        // Stream frames could overtake a datagram that did not fit into a packet.
        if !self.is_finishing || self.connection.datagrams().send_buffer_space() < self.datagram_space {
            return;
        }
        self.is_finishing = false;
        for stream in 0..self.ended.len() as u64 {
            // Refused only if the stream has ended already.
            let _ = self.connection.send_stream(StreamId::new(Side::Client, Dir::Bi, stream)).finish();
        }
    }

    /// Resets a stream.
    #[cfg(test)]
    pub fn reset(&mut self, stream: u32) {
        let id = self.stream(stream).expect("a stream of the connection");
        self.connection.send_stream(id).reset(VarInt::from_u32(7)).expect("an open stream");
        self.touch();
    }

    pub fn close(&mut self, now: Instant) {
        self.connection.close(self.clock.std_instant(now), VarInt::from_u32(0), Bytes::new());
        self.is_closed = true;
        self.touch();
    }
}
