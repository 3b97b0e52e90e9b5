//! Frames at hosts: processing, the queues of interfaces, and who waits for them.

use std::collections::VecDeque;

use trunkline_endpoint::{Frame as _, MediumInput, Port};
use trunkline_models::host::{HostLossCause, Output};
use trunkline_units::Instant;

use super::{Endpoint, Engine};
use crate::frame::{Frame, Packet};

/// Frames and endpoints that wait for the interfaces of a host.
#[derive(Debug, Default)]
pub(super) struct HostQueue {
    /// For each interface, the frames that its queue had no room for, in order. A host drops none of them.
    pub(super) pending_frames: Vec<VecDeque<Frame>>,
    /// Endpoints that want to send, each with its interface, in FIFO order. The LLC station and the bundle worker come
    /// first: each sends for many flows.
    pub(super) waiting_senders: VecDeque<(Endpoint, Port)>,
}

impl Engine {
    /// Gives a frame to a host.
    #[inline(always)]
    pub(super) fn receive(&mut self, h: u32, port: Port, mut frame: Frame) {
        if let Some(tracer) = &mut self.tracer {
            tracer.capture_host(self.now, h, port, &frame);
        }
        let host = &mut self.network.hosts[h as usize].model;
        if host.has_no_costs() {
            if host.receive_without_costs(&frame) {
                self.deliver(h, frame);
            } else if frame.is_damaged() {
                self.drop_frame(frame);
            }
        } else {
            if let Some(times) = frame.times_mut() {
                times.arrived = self.now;
            }
            host.receive(self.now, port, frame);
            self.drain_host(h);
        }
    }

    pub(super) fn drain_host(&mut self, h: u32) {
        loop {
            match self.network.hosts[h as usize].model.poll(self.now) {
                Output::Transmit { port, frame } => self.send_or_queue(h, port, frame),
                Output::Forward { port, frame } => self.send_now(h, port, frame),
                Output::Deliver { frame, .. } => self.deliver(h, frame),
                Output::Lost { cause: HostLossCause::Foreign, .. } => {}
                Output::Lost { frame, .. } => self.drop_frame(frame),
                Output::Room => self.poll_waiting(h),
                Output::Idle { deadline } => {
                    let node_id = self.network.media.len() as u32 + h;
                    return self.event_queue.set(node_id, deadline.unwrap_or(Instant::MAX));
                }
            }
        }
    }

    /// Transmits a frame on an interface, or queues it until there is room: a host never drops its own packets.
    #[inline]
    pub(super) fn send_or_queue(&mut self, h: u32, port: Port, frame: Frame) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        let medium = &mut self.network.media[m as usize].medium;
        let pending = &mut self.host_queues[h as usize].pending_frames[port.0 as usize];
        let has_room = pending.is_empty() && medium.has_room(self.now, input, frame.length());
        // A source waits for the cell that brings its rate.
        if !has_room && frame.rm_cell().is_none() {
            pending.push_back(frame);
            medium.handle(self.now, MediumInput::RequestRoom { port: input });
            return self.drain_medium(m);
        }
        self.send_now(h, port, frame);
    }

    /// Transmits a frame on an interface that has room; of a router also one that is lost without room.
    #[inline]
    pub(super) fn send_now(&mut self, h: u32, port: Port, mut frame: Frame) {
        if let Some(times) = frame.times_mut() {
            times.sent = self.now;
        }
        if let Some(tracer) = &mut self.tracer {
            tracer.capture_host(self.now, h, port, &frame);
        }
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.transmit(m, input, frame);
    }

    /// Transmits queued frames and polls waiting senders, because an interface has room again.
    pub(super) fn on_interface_ready(&mut self, h: u32, port: Port) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        while let Some(frame) = self.host_queues[h as usize].pending_frames[port.0 as usize].pop_front() {
            let medium = &mut self.network.media[m as usize].medium;
            if !medium.has_room(self.now, input, frame.length()) {
                self.host_queues[h as usize].pending_frames[port.0 as usize].push_front(frame);
                return medium.handle(self.now, MediumInput::RequestRoom { port: input });
            }
            self.send_now(h, port, frame);
        }
        self.poll_waiting(h);
    }

    /// Polls the endpoints that wait at a host in FIFO order, each once, while there is room. An endpoint without room keeps
    /// its place: otherwise one that always has a frame would send again before it.
    pub(super) fn poll_waiting(&mut self, h: u32) {
        let mut index = 0;
        for _ in 0..self.host_queues[h as usize].waiting_senders.len() {
            let Some(&(endpoint, port)) = self.host_queues[h as usize].waiting_senders.get(index) else {
                return;
            };
            if !self.line_has_room(h, port) {
                self.request_room(h, port);
                index += 1;
            } else if !self.network.hosts[h as usize].model.has_room() {
                index += 1;
            } else {
                self.host_queues[h as usize].waiting_senders.remove(index);
                self.drain(endpoint);
            }
        }
    }

    /// Records the loss of a frame. Of the cells of a packet only the last carries the packet.
    pub(super) fn drop_frame(&mut self, frame: Frame) {
        self.last_activity = self.now;
        let Some(packet) = frame.into_inner() else { return };
        if let Some(number) = packet.flow
            && let Some(flow) = &mut self.flows[number as usize]
        {
            flow.record_loss(&packet);
        }
        self.packet_pool.recycle(packet);
    }

    /// Gives a packet to a host that has room for it.
    pub(super) fn send_packet(&mut self, h: u32, port: Port, packet: Packet) {
        let frame = self.packet_pool.new_frame(packet);
        let host = &mut self.network.hosts[h as usize].model;
        if host.has_no_costs() {
            host.send_without_costs();
            return self.send_now(h, port, frame);
        }
        let result = host.send(self.now, port, frame);
        debug_assert!(result.is_ok(), "room was checked above");
        self.drain_host(h);
    }

    /// Queues an endpoint until its host has room. `line_has_room` says whether only the processor is busy.
    #[cold]
    pub(super) fn wait_for_room(&mut self, h: u32, port: Port, sender: Endpoint, line_has_room: bool) {
        let waiting = &mut self.host_queues[h as usize].waiting_senders;
        if waiting.iter().any(|(endpoint, _)| *endpoint == sender) {
            return;
        }
        match sender {
            Endpoint::LlcStation(_) | Endpoint::BundleWorker(_) | Endpoint::RateAgent(_) => {
                waiting.push_front((sender, port));
            }
            Endpoint::End { .. } => waiting.push_back((sender, port)),
        }
        // The medium reports room on the line; the host reports room at the processor.
        if !line_has_room {
            self.request_room(h, port);
        }
    }

    /// Has the medium at an interface report when it has room.
    pub(super) fn request_room(&mut self, h: u32, port: Port) {
        let (m, input) = self.network.hosts[h as usize].medium_ports[port.0 as usize];
        self.network.media[m as usize].medium.handle(self.now, MediumInput::RequestRoom { port: input });
        self.drain_medium(m);
    }
}
