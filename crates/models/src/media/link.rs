//! A link between two stations.

use trunkline_endpoint::{Arrival, Counters, Frame, Medium, Passage, Port};
use trunkline_units::{Instant, Span, Stream};

use crate::media::line::{Line, LineOptions, Outcome};

/// A full-duplex point-to-point link: ports 0 and 1, and a [`Line`] in each direction.
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
        let [of_a, of_b] = streams;
        Link { lines: [Line::new(a, of_a), Line::new(b, of_b)] }
    }

    /// Returns whether the line that leaves `port` has no impairments.
    pub fn is_perfect(&self, port: Port) -> bool {
        self.lines[usize::from(port.0)].is_perfect()
    }

    /// Adds to the delay of the line that leaves `port`. Call it before the first frame.
    pub fn delay_more(&mut self, port: Port, by: Span) {
        self.line(port).delay_more(by);
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
        self.lines[0].deadline().min(self.lines[1].deadline())
    }

    /// Returns the next frame that has arrived by `now` with its port, if only arrivals can be output: `handle` with
    /// a wake and one `poll` in one step.
    #[inline(always)]
    pub fn arrival(&mut self, now: Instant) -> Option<(Port, F)> {
        let [a, b] = &mut self.lines;
        if !(a.is_plain() && b.is_plain()) {
            return None;
        }
        let (line, port) = if b.ready() < a.ready() { (b, Port(0)) } else { (a, Port(1)) };
        Some((port, line.arrival(now)?))
    }

    #[inline]
    fn line(&mut self, port: Port) -> &mut Line<F> {
        &mut self.lines[usize::from(port.0)]
    }
}

impl<F: Frame> Medium<F> for Link<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: Arrival<F>) {
        match input {
            Arrival::Frame { port, frame } => {
                self.line(port).send(now, frame);
            }
            Arrival::Ask { port } => self.line(port).ask(now),
            Arrival::Wake => self.lines.iter_mut().for_each(|line| line.wake(now)),
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> Passage<F> {
        for (from, to) in [(0, 1), (1, 0)] {
            let port = Port(from);
            match self.lines[usize::from(from)].poll() {
                Some(Outcome::Arrived(frame)) => return Passage::Transmit { port: Port(to), frame },
                Some(Outcome::Lost(frame, cause)) => return Passage::Lost { port, frame, cause },
                Some(Outcome::Room) => return Passage::Room { port },
                None => {}
            }
        }
        let deadline = self.deadline();
        Passage::Idle { deadline: (deadline < Instant::MAX).then_some(deadline) }
    }

    #[inline(always)]
    fn room(&mut self, now: Instant, port: Port, length: u32) -> bool {
        self.line(port).room(now, length)
    }

    fn counters(&self, port: Port) -> &Counters {
        self.lines[usize::from(port.0)].counters()
    }
}
