//! Packets through the media of a plan, as a state machine.
//!
//! Deadlines are handled in order of time and each with its own time, however late the caller is: a late call delays what is
//! delivered, and changes neither the rate of a link nor the delay of the next one.

use std::collections::{BTreeSet, VecDeque};

use trunkline_endpoint::{Frame as _, MediumInput, MediumOutput, Port};
use trunkline_models::atm::CellFrame as _;
use trunkline_sim::medium::Medium;
use trunkline_sim::network::{Attachment, Network};
use trunkline_units::Instant;

use crate::capture::Captures;
use crate::packet::Packet;

/// A packet that has arrived at a host.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Number of the host.
    pub host: u32,
    /// Its interface.
    pub port: Port,
    /// When its last bit has arrived.
    pub at: Instant,
    /// The packet.
    pub packet: Packet,
}

/// The media of a network and what is due in them.
#[derive(Debug)]
pub struct Forwarding {
    network: Network<Packet>,
    /// Deadline of each medium; [`Instant::MAX`] for none.
    deadlines: Vec<Instant>,
    /// The deadlines that are not `MAX`.
    queue: BTreeSet<(Instant, u32)>,
    /// Never goes back.
    now: Instant,
    /// Packets on their way from one medium to the next.
    in_transit: VecDeque<(u32, Port, Packet)>,
    delivered: VecDeque<Delivery>,
    /// Interfaces of hosts that have room again.
    ready: Vec<(u32, Port)>,
    /// Copies packets, if captures are requested.
    pub captures: Option<Captures>,
}

impl Forwarding {
    /// Creates the state of an idle network.
    pub fn new(network: Network<Packet>) -> Forwarding {
        Forwarding {
            deadlines: vec![Instant::MAX; network.media.len()],
            network,
            queue: BTreeSet::new(),
            now: Instant::ZERO,
            in_transit: VecDeque::new(),
            delivered: VecDeque::new(),
            ready: Vec::new(),
            captures: None,
        }
    }

    /// Returns the network.
    pub fn network(&self) -> &Network<Packet> {
        &self.network
    }

    /// Returns the network.
    pub fn into_network(self) -> Network<Packet> {
        self.network
    }

    /// Returns whether an interface of a host has room for a packet of `length` bytes. If not, [`Forwarding::take_ready`]
    /// reports it later.
    pub fn has_room(&mut self, now: Instant, host: u32, port: Port, length: u32) -> bool {
        self.run(now);
        let (m, port) = self.network.hosts[host as usize].medium_ports[usize::from(port.0)];
        let medium = &mut self.network.media[m as usize].medium;
        if medium.has_room(self.now, port, length) {
            return true;
        }
        medium.handle(self.now, MediumInput::RequestRoom { port });
        self.drain(m);
        false
    }

    /// Sends a packet from an interface of a host. The interface of a router drops it if it has no room.
    pub fn send(&mut self, now: Instant, host: u32, port: Port, packet: Packet) {
        self.run(now);
        if let Some(captures) = &mut self.captures {
            captures.at_host(self.now, host, port, &packet);
        }
        let (m, port) = self.network.hosts[host as usize].medium_ports[usize::from(port.0)];
        self.in_transit.push_back((m, port, packet));
        self.forward();
    }

    /// Handles every deadline up to `now`.
    pub fn run(&mut self, now: Instant) {
        while let Some(&(at, m)) = self.queue.first() {
            if at > now {
                break;
            }
            self.now = self.now.max(at);
            self.network.media[m as usize].medium.handle(self.now, MediumInput::Wake);
            self.drain(m);
            self.forward();
        }
        self.now = self.now.max(now);
    }

    /// Returns the next packet that has arrived at a host.
    pub fn take_delivery(&mut self) -> Option<Delivery> {
        self.delivered.pop_front()
    }

    /// Returns the next interface of a host that has room again.
    pub fn take_ready(&mut self) -> Option<(u32, Port)> {
        self.ready.pop()
    }

    /// Returns when [`Forwarding::run`] has something to do; [`Instant::MAX`] for never.
    pub fn deadline(&self) -> Instant {
        self.queue.first().map_or(Instant::MAX, |(at, _)| *at)
    }

    /// Gives every packet in transit to its next medium.
    fn forward(&mut self) {
        while let Some((m, port, packet)) = self.in_transit.pop_front() {
            let is_reserved = self.network.has_buffer(m, port, &packet);
            match &mut self.network.media[m as usize].medium {
                Medium::Credits(link) if is_reserved => link.send_reserved(self.now, port, packet),
                medium => medium.handle(self.now, MediumInput::Frame { port, frame: packet }),
            }
            self.drain(m);
        }
    }

    /// Takes all output of a medium.
    fn drain(&mut self, m: u32) {
        loop {
            match self.network.media[m as usize].medium.poll(self.now) {
                MediumOutput::Transmit { port, frame } => {
                    self.network.reserve_buffer(m, port, &frame);
                    self.pass_on(m, port, frame);
                }
                MediumOutput::Lost { frame, .. } => self.release_lost(m, &frame),
                MediumOutput::Room { port } => {
                    self.ready.extend(self.interface_at(m, port));
                }
                MediumOutput::Idle { deadline } => {
                    self.set_deadline(m, deadline.unwrap_or(Instant::MAX));
                    return self.release_freed(m);
                }
            }
        }
    }

    /// Passes a packet from the port of a medium to what is attached to it.
    fn pass_on(&mut self, m: u32, port: Port, packet: Packet) {
        if let Some(captures) = &mut self.captures {
            captures.at_medium(self.now, m, port, &packet);
        }
        match self.network.media[m as usize].attachments[usize::from(port.0)] {
            Attachment::Medium(next, input) => self.in_transit.push_back((next, input, packet)),
            Attachment::Host(host, port) => {
                if let Some(captures) = &mut self.captures {
                    captures.at_host(self.now, host, port, &packet);
                }
                // On a shared medium a router must not forward what is for another station there.
                let station = &self.network.hosts[host as usize].model;
                if !station.is_router() || station.accepts(port, &packet) {
                    self.delivered.push_back(Delivery { host, port, at: self.now, packet });
                }
            }
            Attachment::Unconnected => {}
        }
    }

    fn interface_at(&self, m: u32, port: Port) -> Option<(u32, Port)> {
        match self.network.media[m as usize].attachments.get(usize::from(port.0)) {
            Some(Attachment::Host(host, port)) => Some((*host, *port)),
            _ => None,
        }
    }

    fn set_deadline(&mut self, m: u32, at: Instant) {
        let before = std::mem::replace(&mut self.deadlines[m as usize], at);
        if before == at {
            return;
        }
        if before != Instant::MAX {
            self.queue.remove(&(before, m));
        }
        if at != Instant::MAX {
            self.queue.insert((at, m));
        }
    }

    /// Frees the buffers of cells that have left a switch by a link, at the links by which they arrived.
    fn release_freed(&mut self, m: u32) {
        while let Medium::Credits(link) = &mut self.network.media[m as usize].medium
            && let Some((port, channel)) = link.take_freed()
        {
            if let Attachment::Medium(switch, _) =
                self.network.media[m as usize].attachments[usize::from(port.0)]
            {
                self.release_buffer(switch, channel);
            }
        }
    }

    /// Frees the buffer of a cell that a switch has lost.
    fn release_lost(&mut self, m: u32, packet: &Packet) {
        if packet.as_cell().is_some() && matches!(self.network.media[m as usize].medium, Medium::Switch(_)) {
            self.release_buffer(m, packet.channel());
        }
    }

    fn release_buffer(&mut self, switch: u32, channel: u16) {
        if let Some((link, deadline)) = self.network.release_buffer(self.now, switch, channel) {
            self.set_deadline(link, deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_endpoint::Destination;
    use trunkline_experiment::{Source, parse};
    use trunkline_sim::network::topology::Topology;
    use trunkline_units::{Seed, Span};

    use super::*;

    const LENGTH: usize = 962;

    fn forwarding(network: &str) -> Forwarding {
        let text = format!(
            "experiment \"f\" {{ network {{ {network} }} connection {{ xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; }} }}"
        );
        let plan = parse(&Source { name: "f", text: &text, folder: None }).plan.expect("a valid experiment");
        let topology = Topology::new(plan.network.as_ref().expect("the experiment has a network"));
        Forwarding::new(Network::build(&plan, &topology, Seed(1)))
    }

    /// A packet to host `b` whose frame has 1,000 bytes.
    fn packet(serial: u32) -> Packet {
        let mut bytes = vec![0; LENGTH];
        bytes[0] = 0x45;
        Packet::new(bytes, Destination::Station(1), 0, serial)
    }

    fn deliveries(forwarding: &mut Forwarding) -> Vec<(u32, Instant)> {
        std::iter::from_fn(|| forwarding.take_delivery())
            .map(|delivery| (delivery.host, delivery.at))
            .collect()
    }

    /// Each packet takes 1 ms on each link of 8 Mb/s, and 10 ms on the second.
    #[test]
    fn a_late_call_changes_no_arrival() {
        let network =
            "host a, b; switch s; link a - s (rate = 8 Mb/s); link s - b (rate = 8 Mb/s, delay = 10 ms);";
        let send = |forwarding: &mut Forwarding| {
            (0..10).for_each(|serial| forwarding.send(Instant::ZERO, 0, Port(0), packet(serial)));
        };
        let expected: Vec<_> = (0..10).map(|n| (1, Instant::ZERO + Span::from_ms(12 + n))).collect();
        let mut on_time = forwarding(network);
        send(&mut on_time);
        let mut seen = Vec::new();
        while on_time.deadline() < Instant::MAX {
            on_time.run(on_time.deadline());
            seen.extend(deliveries(&mut on_time));
        }
        assert_eq!(seen, expected);
        let mut late = forwarding(network);
        send(&mut late);
        late.run(Instant::ZERO + Span::from_s(1));
        assert_eq!(deliveries(&mut late), expected);
        // The next packet starts when it is sent.
        late.send(Instant::ZERO + Span::from_s(2), 0, Port(0), packet(10));
        late.run(Instant::ZERO + Span::from_s(3));
        assert_eq!(deliveries(&mut late), [(1, Instant::ZERO + Span::from_ms(2_012))]);
    }

    #[test]
    fn a_full_interface_is_ready_after_a_departure() {
        let mut forwarding = forwarding("host a, b; link a - b (rate = 8 Mb/s);");
        let mut sent = 0;
        while forwarding.has_room(Instant::ZERO, 0, Port(0), LENGTH as u32) {
            forwarding.send(Instant::ZERO, 0, Port(0), packet(sent));
            sent += 1;
            assert!(sent < 10_000, "the queue of a host is bounded");
        }
        assert_eq!(forwarding.take_ready(), None);
        forwarding.run(Instant::ZERO + Span::from_ms(1));
        assert_eq!((forwarding.take_ready(), forwarding.take_ready()), (Some((0, Port(0))), None));
        assert!(forwarding.has_room(Instant::ZERO + Span::from_ms(1), 0, Port(0), LENGTH as u32));
        // Nothing was lost.
        forwarding.run(Instant::ZERO + Span::from_s(100));
        assert_eq!(deliveries(&mut forwarding).len() as u32, sent);
    }
}
