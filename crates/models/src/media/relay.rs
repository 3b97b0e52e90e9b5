//! A relay between sockets that emulates a link.

use std::collections::VecDeque;
use std::convert::Infallible;

use trunkline_endpoint::{
    Destination, Endpoint, Frame, Idle, Input, Medium as _, MediumCounters, MediumInput, MediumOutput,
    Output, Peer, Port, Reason, Segment, Transmit, Writable,
};
use trunkline_units::{Instant, Stream};

use crate::media::{LineOptions, Link};

/// Bytes of the headers of IPv4 and UDP, which a datagram has on a link.
const HEADERS: u32 = 28;
/// Most datagrams that wait for a port.
const MAX_OUTPUT: usize = 1024;

/// Flows of datagrams that cross one link. Each flow has two ports: `2n` faces its sender, `2n + 1` its receiver.
///
/// A datagram that arrives at one port of a flow leaves by the other, when the link has carried it: to the receiver, or to
/// the peer from which the sender's last datagram came. Until the first has come, answers are lost. The link loses datagrams
/// as its options say, and marks none.
///
/// **Memory.** The bounds and delays of the link limit the datagrams in it. Of those that it has carried, at most 1,024 wait
/// for ports to become writable; more are lost.
#[derive(Clone, Debug)]
pub struct Relay {
    link: Link<Datagram>,
    flows: Vec<RelayFlow>,
    /// Datagrams to send.
    output: VecDeque<(Port, Peer, Vec<u8>)>,
}

#[derive(Clone, Debug)]
struct RelayFlow {
    sender: Option<Peer>,
    receiver: Peer,
}

/// A datagram in the link.
#[derive(Clone, Debug)]
struct Datagram {
    flow: u16,
    bytes: Vec<u8>,
    is_damaged: bool,
}

impl Frame for Datagram {
    fn length(&self) -> u32 {
        self.bytes.len() as u32 + HEADERS
    }

    fn destination(&self) -> Destination {
        Destination::All
    }

    fn flow(&self) -> u64 {
        self.flow.into()
    }

    fn damage(&mut self) {
        self.is_damaged = true;
    }

    fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

impl Relay {
    /// Creates a relay without flows. `lines` are those from the senders and from the receivers.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(lines: [LineOptions; 2], streams: [Stream; 2]) -> Self {
        Relay { link: Link::new(lines, streams), flows: Vec::new(), output: VecDeque::new() }
    }

    /// Adds a flow to this receiver; returns its ports, that of the sender first.
    pub fn add_flow(&mut self, receiver: Peer) -> [Port; 2] {
        let port = 2 * self.flows.len() as u16;
        self.flows.push(RelayFlow { sender: None, receiver });
        [Port(port), Port(port + 1)]
    }

    /// Gives a flow, by its number from 0, to another receiver and to the sender that comes next.
    ///
    /// # Panics
    /// If there is no such flow.
    pub fn replace_flow(&mut self, number: usize, receiver: Peer) {
        self.flows[number] = RelayFlow { sender: None, receiver };
    }

    /// Returns the counters of the line from the senders (0) or from the receivers (1).
    pub fn counters(&self, direction: u16) -> &MediumCounters {
        self.link.counters(Port(direction))
    }
}

impl Relay {
    /// Takes the datagrams that the link has carried; returns its next deadline.
    fn take_arrivals(&mut self, now: Instant) -> Option<Instant> {
        loop {
            match self.link.poll(now) {
                // A damaged datagram fails its checksum at the receiver.
                MediumOutput::Transmit { port, frame } if !frame.is_damaged => {
                    let flow = &self.flows[usize::from(frame.flow)];
                    let peer = if port == Port(1) { Some(flow.receiver) } else { flow.sender };
                    if let Some(peer) = peer.filter(|_| self.output.len() < MAX_OUTPUT) {
                        self.output.push_back((Port(2 * frame.flow + port.0), peer, frame.bytes));
                    }
                }
                MediumOutput::Transmit { .. } | MediumOutput::Lost { .. } | MediumOutput::Room { .. } => {}
                MediumOutput::Idle { deadline } => return deadline,
            }
        }
    }
}

impl Endpoint for Relay {
    type Command<'a> = Infallible;
    type Event = Infallible;
    type Refusal = Infallible;

    fn handle(&mut self, now: Instant, input: Input<'_, Infallible>) -> Result<(), Infallible> {
        match input {
            Input::Command(never) => match never {},
            Input::Wake => self.link.handle(now, MediumInput::Wake),
            Input::Frame { port, peer, bytes, segment } => {
                let Some(flow) = self.flows.get_mut(usize::from(port.0 / 2)) else { return Ok(()) };
                let direction = Port(port.0 % 2);
                if direction == Port(0) {
                    flow.sender = Some(peer);
                }
                for bytes in Segment::frames(segment, bytes) {
                    let frame = Datagram { flow: port.0 / 2, bytes: bytes.to_vec(), is_damaged: false };
                    self.link.handle(now, MediumInput::Frame { port: direction, frame });
                }
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Infallible> {
        let deadline = self.take_arrivals(now);
        let Some(first) = self.output.front().map(|(port, ..)| *port) else {
            let reason = if deadline.is_some() { Reason::Time } else { Reason::Input };
            return Output::Idle(Idle { deadline, reason });
        };
        let ready = self.output.iter().position(|(port, ..)| writable.has(*port));
        match ready.and_then(|at| self.output.remove(at)) {
            Some((port, peer, bytes)) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Output::Transmit(Transmit { port, peer, length: bytes.len(), segment: None })
            }
            None => Output::Idle(Idle { deadline, reason: Reason::Port(first) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_endpoint::laws::check_laws;
    use trunkline_endpoint::{Bound, MAX_BATCH};
    use trunkline_units::{Rate, Seed, Span};

    use super::*;
    use crate::media::Impairments;

    fn relay(impairments: Impairments) -> Relay {
        let line = LineOptions {
            rate: Rate::from_bps(1_000_000),
            delay: Span::from_ms(3),
            bound: Bound::frames(4),
            impairments,
            ..LineOptions::default()
        };
        Relay::new([line.clone(), line], ["there", "back"].map(|name| Seed(1).stream(name)))
    }

    #[test]
    fn it_satisfies_the_laws_of_endpoints() {
        for seed in 0..20 {
            let make = || {
                let mut relay = relay(Impairments { loss: 0.1, ..Impairments::default() });
                relay.add_flow(Peer::new(&[7]));
                relay
            };
            check_laws(Seed(seed), make, |_, _, _| {});
        }
    }

    #[test]
    fn datagrams_cross_at_the_rate_of_the_link_and_answers_find_their_sender() {
        let mut relay = relay(Impairments::default());
        let (receivers, senders) = ([Peer::new(&[1]), Peer::new(&[2])], [Peer::new(&[8]), Peer::new(&[9])]);
        let ports = receivers.map(|receiver| relay.add_flow(receiver));
        let mut now = Instant::ZERO;
        for (flow, sender) in senders.into_iter().enumerate() {
            let frames = vec![flow as u8; 3 * 100];
            let segment = Segment::of(100, frames.len());
            let input = Input::Frame { port: ports[flow][0], peer: sender, bytes: &frames, segment };
            relay.handle(now, input).unwrap();
        }
        let (mut buffer, mut sent) = (vec![0; MAX_BATCH], Vec::new());
        while let Output::Idle(Idle { deadline: Some(at), .. }) = loop {
            match relay.poll(now, Writable::ALL, &mut buffer) {
                Output::Transmit(transmit) => sent.push((now, transmit.port, transmit.peer, buffer[0])),
                output => break output,
            }
        } {
            now = at;
            relay.handle(now, Input::Wake).unwrap();
        }
        // Of six the queue holds four. A frame has 28 bytes of headers, and 38 of Ethernet.
        let frame = Span::from_us((100 + 28 + 38) * 8);
        let at = |n| Instant::ZERO + frame * n + Span::from_ms(3);
        let expected = [(1, 0), (2, 0), (3, 0), (4, 1)]
            .map(|(n, flow)| (at(n), ports[flow][1], receivers[flow], flow as u8));
        assert_eq!(sent, expected);
        assert_eq!(relay.counters(0).queue_drops, 2);
        let answer = Input::Frame { port: ports[1][1], peer: receivers[1], bytes: &[5], segment: None };
        relay.handle(now, answer).unwrap();
        relay.handle(now + Span::from_s(1), Input::Wake).unwrap();
        match relay.poll(now + Span::from_s(1), Writable::ALL, &mut buffer) {
            Output::Transmit(transmit) => {
                assert_eq!((transmit.port, transmit.peer), (ports[1][0], senders[1]))
            }
            other => panic!("{other:?}"),
        }
    }
}
