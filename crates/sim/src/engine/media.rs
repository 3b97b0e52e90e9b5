//! Frames from medium to medium, and media that have something to do.

use trunkline_endpoint::{Frame as _, Medium as _, MediumInput, MediumOutput, Port};
use trunkline_models::atm::CellFrame as _;
use trunkline_units::Instant;

use super::Engine;
use crate::frame::Frame;
use crate::medium::Medium;
use crate::network::Attachment;

impl Engine {
    /// Handles the deadline of a medium. The fast path forwards arrivals of links and switches, and lets a link continue with
    /// its next arrivals. If something else is due, the medium is woken and polled through the general interface.
    #[inline(always)]
    pub(super) fn handle_medium_deadline(&mut self, m: u32) {
        while let Medium::Link(link) = &mut self.network.media[m as usize].medium
            && let Some((port, frame)) = link.take_arrival(self.now)
        {
            self.forward(m, port, frame);
            let Medium::Link(link) = &self.network.media[m as usize].medium else { return };
            let next = link.deadline();
            if next <= self.now {
                continue;
            }
            if next == Instant::MAX
                || next >= self.event_queue.earliest_except(m)
                || self.has_finished()
                || !self.runnable.is_empty()
            {
                return self.event_queue.set(m, next);
            }
            // No other node is due before the next arrival, so the event queue need not be searched.
            self.now = next;
            self.steps += 1;
        }
        while let Some(is_scheduled) = self.forward_arrival(m) {
            if is_scheduled {
                return;
            }
        }
        self.network.media[m as usize].medium.handle(self.now, MediumInput::Wake);
        self.drain_medium(m);
    }

    /// Forwards a frame that leaves a switch or a link of cells, if nothing else is due. Returns whether the medium has no
    /// more to do now.
    #[inline(never)]
    pub(super) fn forward_arrival(&mut self, m: u32) -> Option<bool> {
        let ((port, frame), next) = match &mut self.network.media[m as usize].medium {
            Medium::Cells(link) => (link.take_arrival(self.now)?, link.deadline()),
            Medium::Switch(switch) => (switch.take_departure(self.now)?, switch.deadline()),
            _ => return None,
        };
        let is_scheduled = self.schedule_medium_at(m, next);
        self.forward(m, port, frame);
        Some(is_scheduled)
    }

    /// Schedules the next deadline of a medium if it has no more to do now. Returns whether that is so.
    #[inline(always)]
    pub(super) fn schedule_medium(&mut self, m: u32) -> bool {
        let deadline = match &self.network.media[m as usize].medium {
            Medium::Link(link) => link.deadline(),
            Medium::Cells(link) => link.deadline(),
            Medium::Credits(link) => link.deadline(),
            Medium::Switch(switch) => switch.deadline(),
            Medium::Hub(_) | Medium::Ring(_) => self.now,
        };
        self.schedule_medium_at(m, deadline)
    }

    /// Like [`schedule_medium`](Self::schedule_medium), for a medium whose deadline is known.
    #[inline(always)]
    pub(super) fn schedule_medium_at(&mut self, m: u32, deadline: Instant) -> bool {
        let is_scheduled = deadline > self.now;
        if is_scheduled {
            self.event_queue.set(m, deadline);
        }
        is_scheduled
    }

    pub(super) fn drain_medium(&mut self, m: u32) {
        loop {
            match self.network.media[m as usize].medium.poll(self.now) {
                MediumOutput::Transmit { port, mut frame } => {
                    self.network.reserve_buffer(m, port, &frame);
                    if self.explicit_rates.is_active()
                        && let Some(cell) = frame.rm_cell_mut()
                    {
                        self.explicit_rates.pass_backward(self.now, m, port, cell);
                    }
                    self.forward_outlined(m, port, frame);
                }
                MediumOutput::Lost { frame, .. } => {
                    self.release_lost(m, &frame);
                    self.drop_frame(frame);
                }
                MediumOutput::Room { port } => {
                    if let Attachment::Host(h, port) =
                        self.network.media[m as usize].attachments[port.0 as usize]
                    {
                        self.on_interface_ready(h, port);
                    }
                }
                MediumOutput::Idle { deadline } => {
                    self.event_queue.set(m, deadline.unwrap_or(Instant::MAX));
                    return self.release_freed(m);
                }
            }
        }
    }

    /// Gives a frame to a link with credits.
    #[inline(never)]
    pub(super) fn transmit_by_credits(&mut self, m: u32, port: Port, frame: Frame) {
        let mut is_reserved = self.network.has_buffer(m, port, &frame);
        if self.explicit_rates.is_active() {
            let rm_cell = frame.rm_cell();
            self.explicit_rates.pass_forward(self.now, m, port, frame.channel(), rm_cell);
            // A source waits for its rate: the cell that brings it must not wait for room in the queue of a host.
            let attachments = &self.network.media[m as usize].attachments;
            let is_host = matches!(attachments[usize::from(port.0)], Attachment::Host(..));
            is_reserved |= rm_cell.is_some() && is_host;
        }
        let Medium::Credits(link) = &mut self.network.media[m as usize].medium else { return };
        match is_reserved {
            true => link.send_reserved(self.now, port, frame),
            false => link.handle(self.now, MediumInput::Frame { port, frame }),
        }
        self.drain_medium(m);
    }

    /// Frees the buffers of cells that have left a switch by a link, at the links by which they arrived.
    pub(super) fn release_freed(&mut self, m: u32) {
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
    pub(super) fn release_lost(&mut self, m: u32, frame: &Frame) {
        if frame.as_cell().is_some() && matches!(self.network.media[m as usize].medium, Medium::Switch(_)) {
            self.release_buffer(m, frame.channel());
        }
    }

    pub(super) fn release_buffer(&mut self, switch: u32, channel: u16) {
        if let Some((link, deadline)) = self.network.release_buffer(self.now, switch, channel) {
            self.event_queue.set(link, deadline);
        }
    }

    /// Like [`forward`](Self::forward), but not inlined: keeps the fast path of links small.
    #[inline(never)]
    pub(super) fn forward_outlined(&mut self, m: u32, port: Port, frame: Frame) {
        self.forward(m, port, frame);
    }

    /// Forwards a frame that leaves a medium at `port`, through switches without latency, to the node where it is queued next.
    #[inline(always)]
    pub(super) fn forward(&mut self, mut m: u32, mut port: Port, frame: Frame) {
        self.last_activity = self.now;
        let mut medium_node = &mut self.network.media[m as usize];
        loop {
            if let Some(tracer) = &mut self.tracer {
                tracer.capture_medium(self.now, m, port, &frame);
            }
            let (next, input) = match medium_node.attachments[port.0 as usize] {
                Attachment::Medium(next, input) => (next, input),
                Attachment::Host(h, port) => return self.receive(h, port, frame),
                Attachment::Unconnected => return,
            };
            medium_node = &mut self.network.media[next as usize];
            if let Medium::Switch(switch) = &mut medium_node.medium
                && let Some(out) = switch.forward_at_once(input, &frame)
            {
                (m, port) = (next, out);
                continue;
            }
            if let Medium::Link(link) = &mut medium_node.medium {
                return match link.send(self.now, input, frame) {
                    Some(arrives) => self.event_queue.set_earlier(next, arrives),
                    None => self.schedule_or_drain(next),
                };
            }
            return self.transmit(next, input, frame);
        }
    }

    /// Gives a frame to a medium. It leaves a link or a switch later, unless the queue was full.
    #[inline(always)]
    pub(super) fn transmit(&mut self, m: u32, port: Port, frame: Frame) {
        let now = self.now;
        match &mut self.network.media[m as usize].medium {
            Medium::Link(link) => {
                return match link.send(now, port, frame) {
                    Some(arrives) => self.event_queue.set_earlier(m, arrives),
                    None => self.schedule_or_drain(m),
                };
            }
            Medium::Cells(link) => link.send(now, port, frame),
            Medium::Switch(switch) => switch.send(now, port, frame),
            Medium::Credits(_) => return self.transmit_by_credits(m, port, frame),
            medium => medium.handle(now, MediumInput::Frame { port, frame }),
        }
        if !self.schedule_medium(m) {
            self.drain_medium(m);
        }
    }

    /// Schedules the next deadline of a medium, or polls it if it has more to do now.
    #[inline(never)]
    pub(super) fn schedule_or_drain(&mut self, m: u32) {
        if !self.schedule_medium(m) {
            self.drain_medium(m);
        }
    }
}
