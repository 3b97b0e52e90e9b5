//! A link between two stations.

use trunkline_endpoint::{Frame, Medium, MediumCounters, MediumInput, MediumOutput, Port};
use trunkline_units::{Instant, Span, Stream};

use crate::media::line::{Line, LineOptions, LineOutput};
use crate::media::queue::QueueCounters;

/// A full-duplex point-to-point link: ports 0 and 1, and a line in each direction.
#[derive(Clone, Debug)]
pub struct Link<F> {
    /// The line that leaves each port.
    lines: [Line<F>; 2],
}

impl<F: Frame> Link<F> {
    /// Creates a link. `lines[n]` and `streams[n]` are the options and the impairment stream of the line that leaves
    /// port `n`.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(lines: [LineOptions; 2], streams: [Stream; 2]) -> Self {
        let [a, b] = lines;
        let [stream_a, stream_b] = streams;
        Link { lines: [Line::new(a, stream_a), Line::new(b, stream_b)] }
    }

    /// Returns whether the line that leaves `port` has no impairments and no explicit queue.
    pub fn is_perfect(&self, port: Port) -> bool {
        self.lines[usize::from(port.0)].is_perfect()
    }

    /// Returns the counters of the explicit queue at `port`, if there is one.
    pub fn queue_counters(&self, port: Port) -> Option<&QueueCounters> {
        self.lines[usize::from(port.0)].queue_counters()
    }

    /// Adds to the delay of the line that leaves `port`. Call it before the first frame.
    pub fn add_delay(&mut self, port: Port, by: Span) {
        self.line(port).add_delay(by);
    }

    /// Queues a frame, as [`Medium::handle`] does. Returns its arrival time if only arrivals can be output: then
    /// [`deadline`](Link::deadline) is that time, or an earlier one.
    #[inline(always)]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) -> Option<Instant> {
        self.line(port).send(now, frame)
    }

    /// Returns the time of the next output: at once if it is not in the future, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        let [a, b] = &self.lines;
        if a.has_only_arrivals() && b.has_only_arrivals() {
            return a.next_output().min(b.next_output());
        }
        a.deadline().min(b.deadline())
    }

    /// Returns the next frame that has arrived by `now` with its port, if only arrivals can be output: `handle` with
    /// a wake and one `poll` in one step.
    #[inline(always)]
    pub fn take_arrival(&mut self, now: Instant) -> Option<(Port, F)> {
        let [a, b] = &mut self.lines;
        if !(a.has_only_arrivals() && b.has_only_arrivals()) {
            return None;
        }
        let (line, port) = if b.next_output() < a.next_output() { (b, Port(0)) } else { (a, Port(1)) };
        Some((port, line.take_arrival(now)?))
    }

    /// # Panics
    /// If there is no such port.
    #[inline]
    fn line(&mut self, port: Port) -> &mut Line<F> {
        let [a, b] = &mut self.lines;
        match port {
            Port(0) => a,
            Port(1) => b,
            _ => panic!("a link has no {port:?}"),
        }
    }
}

impl<F: Frame> Medium<F> for Link<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        match input {
            MediumInput::Frame { port, frame } => {
                self.line(port).send(now, frame);
            }
            MediumInput::RequestRoom { port } => self.line(port).request_room(now),
            MediumInput::Wake => self.lines.iter_mut().for_each(|line| line.wake(now)),
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        for (from, to) in [(0, 1), (1, 0)] {
            let port = Port(from);
            match self.lines[usize::from(from)].poll() {
                Some(LineOutput::Arrived(frame)) => return MediumOutput::Transmit { port: Port(to), frame },
                Some(LineOutput::Lost(frame, cause)) => return MediumOutput::Lost { port, frame, cause },
                Some(LineOutput::Room) => return MediumOutput::Room { port },
                None => {}
            }
        }
        let deadline = self.deadline();
        MediumOutput::Idle { deadline: (deadline < Instant::MAX).then_some(deadline) }
    }

    #[inline(always)]
    fn has_room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.line(port).has_room(now, length)
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        self.lines[usize::from(port.0)].counters()
    }
}
