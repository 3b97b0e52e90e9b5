//! Sources, controllers and switches of a network, and the resource-management cells between them.
//!
//! Cells take the propagation delay of their path and no bandwidth: there are a few for each source and round trip.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use trunkline_units::{Instant, Rate, Span, Stream};

use crate::atm::abr::erica_source::{cell_gap, initial_rate};
use crate::atm::abr::{Controller, Erica, Request, Source};

/// Interval at which sources repeat their requests to controllers.
pub const REPEAT: Span = Span::from_ms(500);
/// Time after which a controller forgets a silent source: ten requests are lost.
pub const LIFETIME: Span = Span::from_s(5);
/// Time for which a controller collects requests before it answers: each answer may cause further requests, and of many
/// sources that would be a flood.
pub const COLLECT: Span = Span::from_us(250);

/// How rates are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// A controlling host beside each line, which divides all of it.
    Controllers,
    /// ERICA in the switches.
    Erica {
        /// Share of each line to be used.
        utilization: f64,
        /// Averaging interval.
        interval: Span,
    },
}

impl Algorithm {
    /// Returns the share of each line that the sources get.
    pub fn utilization(self) -> f64 {
        match self {
            Algorithm::Erica { utilization, .. } => utilization,
            Algorithm::Controllers => 1.0,
        }
    }
}

/// A flow and the controlled lines that it crosses, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPath {
    /// The rate that it can use.
    pub demand: Rate,
    /// The lines, each with the delay from the source.
    pub lines: Vec<(usize, Span)>,
    /// Delay from the source to the destination.
    pub delay: Span,
}

/// A network of controlled lines as a state machine.
///
/// Flows are numbered in the order of [`add_flow`](Self::add_flow). [`handle`](Self::handle) at the
/// [`deadline`](Self::deadline) makes progress; [`take_changed`](Self::take_changed) then returns the flows with new rates.
#[derive(Clone, Debug)]
pub struct Signalling {
    algorithm: Algorithm,
    lines: Vec<Line>,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    /// Number of events so far: orders simultaneous ones.
    count: u64,
    changed: VecDeque<u32>,
    /// Probability that a cell is lost.
    loss: f64,
    stream: Stream,
}

#[derive(Clone, Debug)]
struct Line {
    controller: Controller,
    /// Whether the controller collects requests.
    is_collecting: bool,
    erica: Erica,
    /// Rates at which flows arrive.
    arriving: BTreeMap<u32, Rate>,
}

#[derive(Clone, Debug)]
struct Flow {
    path: FlowPath,
    source: Source,
    rate: Rate,
    is_active: bool,
    /// Number of starts and stops: cells of an earlier start are ignored.
    epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request arrives at a controller, its answer at the source; `hop` is the place of the line in the path.
    Request {
        flow: u32,
        hop: usize,
        limit: Option<Rate>,
    },
    Answer {
        flow: u32,
        hop: usize,
        rate: Rate,
        epoch: u32,
    },
    Collected {
        line: usize,
    },
    Repeat {
        flow: u32,
        epoch: u32,
    },
    /// With ERICA: a cell passes a line on its way there or back, and reaches its source.
    Forward {
        flow: u32,
        hop: usize,
        rate: Rate,
        epoch: u32,
    },
    Backward {
        flow: u32,
        hop: usize,
        rate: Rate,
        epoch: u32,
    },
    Received {
        flow: u32,
        rate: Rate,
        epoch: u32,
    },
    /// A source sends its next cell.
    Send {
        flow: u32,
        epoch: u32,
    },
    /// A new rate of a flow reaches a line.
    Arrival {
        flow: u32,
        line: usize,
        rate: Rate,
    },
    Interval {
        line: usize,
    },
}

impl Signalling {
    /// Creates a network of lines with these rates. Resource-management cells are lost with probability `loss`, which
    /// draws from `stream` unless it is zero.
    pub fn new(algorithm: Algorithm, lines: &[Rate], loss: f64, stream: Stream) -> Self {
        let line = |rate: &Rate| Line {
            controller: Controller::new(*rate, LIFETIME),
            is_collecting: false,
            erica: Erica::new(*rate, algorithm.utilization()),
            arriving: BTreeMap::new(),
        };
        let mut signalling = Signalling {
            algorithm,
            lines: lines.iter().map(line).collect(),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            changed: VecDeque::new(),
            loss,
            stream,
        };
        if let Algorithm::Erica { interval, .. } = algorithm {
            (0..lines.len())
                .for_each(|line| signalling.at(Instant::ZERO + interval, Event::Interval { line }));
        }
        signalling
    }

    /// Adds an inactive flow and returns its number.
    pub fn add_flow(&mut self, path: FlowPath) -> u32 {
        let source = Source::new(path.demand, path.lines.len(), REPEAT);
        self.flows.push(Flow { path, source, rate: Rate::default(), is_active: false, epoch: 0 });
        self.flows.len() as u32 - 1
    }

    /// Starts a flow. With controllers its rate is 0 until all have answered.
    pub fn start(&mut self, now: Instant, flow: u32) {
        let state = &mut self.flows[flow as usize];
        state.is_active = true;
        state.epoch += 1;
        let epoch = state.epoch;
        if self.algorithm == Algorithm::Controllers {
            state.source.start(now);
            self.at(now + REPEAT, Event::Repeat { flow, epoch });
            return self.after_source(now, flow);
        }
        let initial = initial_rate(state.path.demand);
        self.set_rate(now, flow, initial);
        self.at(now, Event::Send { flow, epoch });
    }

    /// Stops a flow.
    pub fn stop(&mut self, now: Instant, flow: u32) {
        let state = &mut self.flows[flow as usize];
        state.is_active = false;
        state.epoch += 1;
        if self.algorithm == Algorithm::Controllers {
            state.source.stop();
            return self.after_source(now, flow);
        }
        self.set_rate(now, flow, Rate::default());
    }

    /// Returns the rate at which a flow may send now.
    pub fn rate(&self, flow: u32) -> Rate {
        self.flows[flow as usize].rate
    }

    /// Returns the next flow whose rate has changed.
    pub fn take_changed(&mut self) -> Option<u32> {
        self.changed.pop_front()
    }

    /// Returns the time of the next event; [`Instant::MAX`] for never.
    pub fn deadline(&self) -> Instant {
        self.events.peek().map_or(Instant::MAX, |Reverse((at, ..))| *at)
    }

    /// Processes all events until `now`.
    pub fn handle(&mut self, now: Instant) {
        while self.deadline() <= now {
            if let Some(Reverse((at, _, event))) = self.events.pop() {
                self.process(at, event);
            }
        }
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    /// Sends a cell that arrives after `delay`, unless it is lost.
    fn send(&mut self, now: Instant, delay: Span, event: Event) {
        if !(self.loss > 0.0 && self.stream.chance(self.loss)) {
            self.at(now + delay, event);
        }
    }

    fn set_rate(&mut self, now: Instant, flow: u32, rate: Rate) {
        let state = &mut self.flows[flow as usize];
        if state.rate == rate {
            return;
        }
        state.rate = rate;
        self.changed.push_back(flow);
        if self.algorithm != Algorithm::Controllers {
            for (line, delay) in self.flows[flow as usize].path.lines.clone() {
                self.at(now + delay, Event::Arrival { flow, line, rate });
            }
        }
    }

    fn process(&mut self, now: Instant, event: Event) {
        let is_current = |this: &Self, flow: u32, epoch: u32| this.flows[flow as usize].epoch == epoch;
        match event {
            Event::Request { flow, hop, limit } => {
                let (line, _) = self.flows[flow as usize].path.lines[hop];
                let request = limit.map_or(Request::Leave, |limit| Request::Active { limit });
                self.lines[line].controller.receive(now, flow, request);
                if !std::mem::replace(&mut self.lines[line].is_collecting, true) {
                    self.at(now + COLLECT, Event::Collected { line });
                }
            }
            Event::Collected { line } => {
                self.lines[line].is_collecting = false;
                self.after_controller(now, line);
            }
            Event::Answer { flow, hop, rate, epoch } if is_current(self, flow, epoch) => {
                self.flows[flow as usize].source.receive(hop, rate);
                self.after_source(now, flow);
            }
            Event::Repeat { flow, epoch } if is_current(self, flow, epoch) => {
                let source = &mut self.flows[flow as usize].source;
                source.wake(now);
                let next = source.deadline();
                self.at(next, Event::Repeat { flow, epoch });
                self.after_source(now, flow);
            }
            Event::Forward { flow, hop, rate, epoch } if is_current(self, flow, epoch) => {
                let path = &self.flows[flow as usize].path;
                let (line, delay) = path.lines[hop];
                let next = path.lines.get(hop + 1).map(|(_, next)| *next - delay);
                let back = (path.delay - delay) * 2;
                let demand = path.demand;
                self.lines[line].erica.receive_forward(flow, rate);
                match next {
                    Some(delay) => self.at(now + delay, Event::Forward { flow, hop: hop + 1, rate, epoch }),
                    None => self.send(now, back, Event::Backward { flow, hop, rate: demand, epoch }),
                }
            }
            Event::Backward { flow, hop, rate, epoch } if is_current(self, flow, epoch) => {
                let path = &self.flows[flow as usize].path;
                let (line, delay) = path.lines[hop];
                let before = hop.checked_sub(1).map(|before| (before, delay - path.lines[before].1));
                let rate = self.lines[line].erica.receive_backward(flow, rate);
                match before {
                    Some((hop, delay)) => self.at(now + delay, Event::Backward { flow, hop, rate, epoch }),
                    None => self.at(now + delay, Event::Received { flow, rate, epoch }),
                }
            }
            Event::Received { flow, rate, epoch } if is_current(self, flow, epoch) => {
                self.set_rate(now, flow, rate);
            }
            Event::Send { flow, epoch } if is_current(self, flow, epoch) => self.send_cell(now, flow, epoch),
            Event::Arrival { flow, line, rate } => {
                if rate == Rate::default() {
                    self.lines[line].arriving.remove(&flow);
                    self.lines[line].erica.remove(flow);
                } else {
                    self.lines[line].arriving.insert(flow, rate);
                }
            }
            Event::Interval { line } => {
                let Line { arriving, erica, .. } = &mut self.lines[line];
                let load = Rate::from_bps(arriving.values().map(|rate| rate.as_bps()).sum());
                erica.end_interval(load, arriving.len());
                if let Algorithm::Erica { interval, .. } = self.algorithm {
                    self.at(now + interval, Event::Interval { line });
                }
            }
            // A cell of an earlier start.
            _ => {}
        }
    }

    /// Sends a resource-management cell with the current rate, and schedules the next.
    fn send_cell(&mut self, now: Instant, flow: u32, epoch: u32) {
        let Algorithm::Erica { interval, .. } = self.algorithm else { return };
        let Flow { path, rate, .. } = &self.flows[flow as usize];
        let (first, rate) = (path.lines.first().map(|(_, delay)| *delay), *rate);
        self.at(now + cell_gap(rate, interval), Event::Send { flow, epoch });
        if let Some(delay) = first {
            self.send(now, delay, Event::Forward { flow, hop: 0, rate, epoch });
        }
    }

    /// Sends the answers of a controller.
    fn after_controller(&mut self, now: Instant, line: usize) {
        while let Some((flow, rate)) = self.lines[line].controller.poll() {
            let state = &self.flows[flow as usize];
            let epoch = state.epoch;
            if let Some(hop) = state.path.lines.iter().position(|(other, _)| *other == line) {
                self.send(now, state.path.lines[hop].1, Event::Answer { flow, hop, rate, epoch });
            }
        }
    }

    /// Sends the requests of a source and sets its rate.
    fn after_source(&mut self, now: Instant, flow: u32) {
        while let Some((hop, request)) = self.flows[flow as usize].source.poll() {
            let limit = match request {
                Request::Active { limit } => Some(limit),
                Request::Leave => None,
            };
            let delay = self.flows[flow as usize].path.lines[hop].1;
            self.send(now, delay, Event::Request { flow, hop, limit });
        }
        let rate = self.flows[flow as usize].source.rate();
        self.set_rate(now, flow, rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn a_source_that_starts_again_and_again_repeats_its_requests_once() {
        let lines = [Rate::from_bps(100_000_000)];
        let mut network = Signalling::new(Algorithm::Controllers, &lines, 0.0, Seed(1).stream("loss"));
        let path = FlowPath { demand: lines[0], lines: vec![(0, Span::from_ms(1))], delay: Span::from_ms(2) };
        let flow = network.add_flow(path);
        for n in 0..100 {
            let now = Instant::ZERO + Span::from_ms(2 * n);
            network.start(now, flow);
            network.stop(now + Span::from_ms(1), flow);
            network.handle(now + Span::from_ms(1));
        }
        network.start(Instant::ZERO + Span::from_s(1), flow);
        network.handle(Instant::ZERO + Span::from_s(3));
        assert!(network.events.len() < 5, "{} events wait", network.events.len());
        assert_eq!(network.rate(flow), lines[0]);
    }
}
