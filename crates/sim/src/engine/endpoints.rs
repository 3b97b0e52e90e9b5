//! Packets to and from the endpoints of hosts: ends of flows, LLC stations and bundle workers.

use trunkline_endpoint::{Medium as _, Port};
use trunkline_run::message::MessageKind;
use trunkline_units::Instant;

use super::{Endpoint, Engine};
use crate::bundles::BundleOutput;
use crate::bundles::worker::BundleWorker;
use crate::explicit_rates::RateOutput;
use crate::flow::llc::LlcFlow;
use crate::flow::{FlowEnd, FlowOutput, Received, channel_of};
use crate::frame::{Content, Frame, Packet};
use crate::llc_stations::{LlcInterface, LlcOutput};
use crate::medium::Medium;

impl Engine {
    /// Delivers a frame from a host to one of its endpoints.
    #[inline(always)]
    pub(super) fn deliver(&mut self, h: u32, frame: Frame) {
        self.last_activity = self.now;
        let Some(packet) = frame.into_inner() else { return };
        let Some(number) = packet.flow else { return self.deliver_to_shared_endpoint(h, packet) };
        let polled_side = self.receive_at_end(h, number, &packet);
        self.packet_pool.recycle(packet);
        let Some(side) = polled_side else { return };
        self.drain_end(number, side);
        // The sender may be waiting for its peer to finish.
        if side > 0 && self.flows[number as usize].as_ref().is_some_and(|f| f.is_finished()) {
            self.drain_end(number, 0);
        }
    }

    /// Delivers a packet to an endpoint that serves many flows.
    #[inline(never)]
    pub(super) fn deliver_to_shared_endpoint(&mut self, h: u32, packet: Box<Packet>) {
        let (endpoint, has_endpoint) = match &packet.content {
            Content::Rm(cell) => {
                self.explicit_rates.receive(self.now, h, *cell);
                (Endpoint::RateAgent(h), true)
            }
            Content::Pdu { from, bytes, .. } => {
                self.llc_stations.receive(self.now, h, *from, bytes);
                (Endpoint::LlcStation(h), true)
            }
            _ => {
                let worker = self.bundle_workers.worker_mut(h);
                let received = worker.map(|worker| worker.receive(self.now, &packet));
                (Endpoint::BundleWorker(h), received.is_some())
            }
        };
        self.mix_hash(delivery(&packet, endpoint.hash_tag()));
        if has_endpoint {
            self.runnable.push_back(endpoint);
        }
        self.packet_pool.recycle(packet);
    }

    /// Delivers a packet to the end of its flow at a host. Returns the side of the flow if it must be polled.
    #[inline(always)]
    pub(super) fn receive_at_end(&mut self, h: u32, number: u32, packet: &Packet) -> Option<u32> {
        // `None`: a late packet of a flow that has finished.
        let flow = self.flows.get_mut(number as usize)?.as_mut()?;
        let side = match packet.is_reverse {
            true => 0,
            false if flow.ends.len() == 2 && flow.ends[1].host == h => 1,
            false => flow.ends.iter().skip(1).position(|end| end.host == h)? + 1,
        };
        let event = delivery(packet, number);
        // The body of `mix_hash`: the borrow of the flow prevents the call.
        let word = self.hash.rotate_left(23) ^ self.now.as_ps() ^ event;
        self.hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
        match flow.receive(self.now, side, packet, &mut self.packet_pool.scratch) {
            Received::Nothing => None,
            Received::Poll => Some(side as u32),
            Received::Wait(deadline) => {
                self.event_queue.set(flow.ends[side].node_id, deadline);
                None
            }
        }
    }

    /// Sends the segments of an end over TCP that go straight to a link: a short form of [`poll_end`](Self::poll_end). Returns
    /// whether the end has no more to do now.
    #[inline(always)]
    fn send_segments(&mut self, number: u32, side: u32) -> bool {
        let Some(flow) = &mut self.flows[number as usize] else { return false };
        let FlowEnd { host: h, port, node_id, medium_port: (m, input) } = flow.ends[side as usize];
        let Some(tcp) = flow.tcp_mut() else { return false };
        let host = &mut self.network.hosts[h as usize].model;
        let Medium::Link(link) = &mut self.network.media[m as usize].medium else { return false };
        let is_direct = host.has_no_costs()
            && self.tracer.is_none()
            && self.host_queues[h as usize].pending_frames[port.0 as usize].is_empty();
        if !is_direct {
            return false;
        }
        let next = loop {
            let room = link.has_room(self.now, input, 1) && host.has_room();
            match tcp.poll_inlined(self.now, side as usize, room, &mut self.packet_pool) {
                FlowOutput::Send { frame, next_send } => {
                    host.send_without_costs();
                    let Some(arrives) = link.send(self.now, input, frame) else {
                        self.schedule_or_drain(m);
                        return false;
                    };
                    self.event_queue.set_earlier(m, arrives);
                    if let Some(next) = next_send {
                        break next;
                    }
                }
                FlowOutput::Idle { deadline, blocked: false } if !tcp.messages.finished => {
                    break deadline.unwrap_or(Instant::MAX);
                }
                _ => return false,
            }
        };
        self.event_queue.set(node_id, next);
        true
    }

    #[inline(never)]
    pub(super) fn drain_end(&mut self, number: u32, side: u32) {
        if self.send_segments(number, side) {
            return;
        }
        while self.poll_end(number, side) {}
    }

    /// Polls an end once and handles its output. Returns whether there may be more.
    #[inline(always)]
    pub(super) fn poll_end(&mut self, number: u32, side: u32) -> bool {
        let Some(flow) = &mut self.flows[number as usize] else { return false };
        let FlowEnd { host: h, port, node_id, medium_port: (m, input) } = flow.ends[side as usize];
        let host = &mut self.network.hosts[h as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let now = self.now;
        let line_has_room = self.host_queues[h as usize].pending_frames[port.0 as usize].is_empty()
            && medium.has_room(now, input, 1);
        let room = line_has_room
            && host.model.has_room()
            && medium.channel_has_room(input, channel_of(number, side.min(1) as u16));
        match flow.poll(now, side as usize, room, &mut self.packet_pool) {
            FlowOutput::Send { frame, next_send } => {
                // First: what follows may poll the end again.
                if let Some(next_send) = next_send {
                    self.event_queue.set(node_id, next_send);
                }
                if host.model.has_no_costs() {
                    host.model.send_without_costs();
                    if let Some(tracer) = &mut self.tracer {
                        tracer.capture_host(now, h, port, &frame);
                    }
                    self.transmit(m, input, frame);
                } else {
                    let result = host.model.send(now, port, frame);
                    debug_assert!(result.is_ok(), "room was checked above");
                    self.drain_host(h);
                }
                next_send.is_none()
            }
            FlowOutput::Llc(message) => {
                self.llc_stations.send(now, h, (number, side), &message);
                self.runnable.push_back(Endpoint::LlcStation(h));
                true
            }
            FlowOutput::Bundle { options, header } => {
                if let Some(worker) = self.bundle_workers.worker_mut(h)
                    && let Err(reason) = worker.send(now, number, &options, &header)
                    && let Some(bundle) = flow.bundle_mut()
                {
                    bundle.record_refusal(reason);
                }
                self.runnable.push_back(Endpoint::BundleWorker(h));
                true
            }
            FlowOutput::Idle { deadline, blocked } => {
                let is_finished = flow.is_finished();
                self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                if blocked {
                    self.wait_for_room(h, port, Endpoint::End { flow: number, side }, line_has_room);
                }
                if is_finished && !self.finished.contains(&number) {
                    self.finished.push_back(number);
                }
                false
            }
        }
    }

    /// Returns whether an interface of a host has room for another frame.
    pub(super) fn line_has_room(&mut self, h: u32, port: Port) -> bool {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.host_queues[h as usize].pending_frames[port.0 as usize].is_empty()
            && self.network.media[m as usize].medium.has_room(self.now, input, 1)
    }

    /// Polls the LLC station of a host until it is idle.
    pub(super) fn drain_llc_station(&mut self, h: u32) {
        let Some(LlcInterface { port, node_id, .. }) = self.llc_stations.interface(h) else { return };
        let now = self.now;
        loop {
            let line_has_room = self.line_has_room(h, port);
            let room = line_has_room && self.network.hosts[h as usize].model.has_room();
            match self.llc_stations.poll(now, h, room, &mut self.packet_pool) {
                LlcOutput::Send(packet) => self.send_packet(h, port, packet),
                LlcOutput::Received { flow, header } => {
                    let side = u32::from(header.kind != MessageKind::Response);
                    self.update_llc_flow(flow, side, |flow| flow.receive(now, side as usize, &header));
                }
                LlcOutput::Sent { flow, side, report } => {
                    self.update_llc_flow(flow, side, |flow| flow.complete_send(now, side as usize, report));
                }
                LlcOutput::RingFormed => {
                    (0..self.next_flow())
                        .for_each(|flow| self.update_llc_flow(flow, 0, |flow| flow.start_source(now)));
                }
                LlcOutput::Idle { deadline, blocked } => {
                    self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                    if blocked {
                        self.wait_for_room(h, port, Endpoint::LlcStation(h), line_has_room);
                    }
                    return;
                }
            }
        }
    }

    /// Polls the agent of explicit rates at a host until it is idle.
    pub(super) fn drain_rate_agent(&mut self, h: u32) {
        loop {
            let room = self.network.hosts[h as usize].model.has_room();
            match self.explicit_rates.poll(h, room) {
                RateOutput::Send { port, packet } => self.send_packet(h, port, packet),
                RateOutput::SetRate { medium, port, channel, rate } => {
                    if let Medium::Credits(link) = &mut self.network.media[medium as usize].medium {
                        link.set_rate(self.now, port, channel, rate);
                        self.drain_medium(medium);
                    }
                }
                RateOutput::Idle { deadline, blocked } => {
                    self.event_queue.set(self.explicit_rates.node(h), deadline);
                    if let Some(port) = blocked {
                        self.wait_for_room(h, port, Endpoint::RateAgent(h), true);
                    }
                    return;
                }
            }
        }
    }

    /// Polls the bundle worker of a host until it is idle.
    pub(super) fn drain_bundle_worker(&mut self, h: u32) {
        let now = self.now;
        while let Some(worker) = self.bundle_workers.worker(h) {
            let node_id = worker.node_id;
            if let Some(port) = worker.next_egress() {
                let line_has_room = self.line_has_room(h, port);
                if line_has_room && self.network.hosts[h as usize].model.has_room() {
                    let packet = self.bundle_workers.worker_mut(h).and_then(BundleWorker::take_packet);
                    packet.into_iter().for_each(|packet| self.send_packet(h, port, packet));
                    continue;
                }
                self.wait_for_room(h, port, Endpoint::BundleWorker(h), line_has_room);
            }
            match self.bundle_workers.poll(now, h, &mut self.packet_pool) {
                BundleOutput::Outgoing => {}
                BundleOutput::Received { flow, header } => {
                    let Some(state) = self.flows.get_mut(flow as usize).and_then(Option::as_mut) else {
                        continue;
                    };
                    let receiver = state.ends.iter().skip(1).position(|end| end.host == h);
                    if let (Some(receiver), Some(bundle)) = (receiver, state.bundle_mut()) {
                        bundle.receive(now, receiver, &header);
                        if bundle.has_received_all() {
                            self.runnable.push_back(Endpoint::End { flow, side: 0 });
                        }
                    }
                }
                BundleOutput::Membership { group, joins } => {
                    let forwarders = self.bundle_workers.worker(h).map_or(&[][..], BundleWorker::forwarders);
                    self.network.set_membership(h, forwarders, group, joins);
                }
                BundleOutput::Ready => {
                    for flow in 0..self.next_flow() {
                        if let Some(bundle) =
                            self.flows[flow as usize].as_mut().and_then(|flow| flow.bundle_mut())
                        {
                            bundle.start_source(now);
                            self.runnable.push_back(Endpoint::End { flow, side: 0 });
                        }
                    }
                }
                BundleOutput::Idle { deadline } => {
                    return self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Updates a flow over LLC and schedules its ends for polling.
    pub(super) fn update_llc_flow(&mut self, flow: u32, side: u32, update: impl FnOnce(&mut LlcFlow)) {
        // `None`: a late message of a flow that has finished.
        let Some(state) = self.flows.get_mut(flow as usize).and_then(|f| f.as_mut()?.llc_mut()) else {
            return;
        };
        update(state);
        self.runnable.push_back(Endpoint::End { flow, side });
        if side > 0 && state.messages.finished {
            self.runnable.push_back(Endpoint::End { flow, side: 0 });
        }
    }
}

/// Returns the event of a delivered packet for the trace hash.
#[inline(always)]
fn delivery(packet: &Packet, hash_tag: u32) -> u64 {
    u64::from(packet.length) << 32 | u64::from(hash_tag)
}
