//! A link between two stations.

use trunkline_endpoint::{Arrival, Counters, Frame, Medium, Passage, Port};
use trunkline_units::{Instant, Span, Stream};

use crate::media::line::{Line, LineOptions, Outcome};

/// Point to point, full duplex: port 0 and port 1, a [`Line`] from each to the other.
#[derive(Clone, Debug)]
pub struct Link<F> {
    /// The line that leaves each port.
    lines: [Line<F>; 2],
}

impl<F: Frame> Link<F> {
    /// `lines[n]` is what leaves port `n`; `streams[n]` decides what that line does to its frames.
    ///
    /// # Panics
    /// If a rate is zero.
    pub fn new(lines: [LineOptions; 2], streams: [Stream; 2]) -> Self {
        let [a, b] = lines;
        let [of_a, of_b] = streams;
        Link { lines: [Line::new(a, of_a), Line::new(b, of_b)] }
    }

    /// Whether the line that leaves `port` does nothing bad to frames.
    pub fn is_perfect(&self, port: Port) -> bool {
        self.lines[usize::from(port.0)].is_perfect()
    }

    /// Makes everything that will leave `port` arrive later. To be called before the first frame comes.
    pub fn delay_more(&mut self, port: Port, by: Span) {
        self.line(port).delay_more(by);
    }

    /// Takes a frame, as [`Medium::handle`] does. When it arrives, if nothing but arrivals can come out of its line: then
    /// [`deadline`](Link::deadline) is that moment, or what it was if that is earlier.
    #[inline(always)]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) -> Option<Instant> {
        self.line(port).send(now, frame)
    }

    /// When there is something to say next: at once if that is not in the future, never at [`Instant::MAX`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        self.lines[0].deadline().min(self.lines[1].deadline())
    }

    /// The next frame that has arrived by `now`, and the port where, if nothing but arrivals can come out: what `handle`
    /// with a wake and one `poll` do, in one step.
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
