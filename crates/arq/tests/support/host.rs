//! A node with a torturer and a narrow path behind it, a clock that can leap, and a plug that can be pulled.

use super::mtu_limit::Narrow;
use trunkline_arq::torture::{Faults, Tortured, Torturer};
use trunkline_arq::{Command, Event, Node, Refusal};
use trunkline_endpoint::pair::Counts;
use trunkline_endpoint::{Endpoint, Idle, Input, Output, Writable};
use trunkline_units::{Instant, Seed, Span};

pub struct Host {
    path: Narrow<Tortured<Node>>,
    /// How far its clock is ahead of everybody's.
    ahead: Span,
}

pub enum Order<'a> {
    Node(Command<'a>),
    /// All memory is lost; this is what comes up.
    Restart(Box<Node>),
    /// The clock leaps forward.
    Leap(Span),
}

impl Host {
    /// From each moment of `carries` on the path carries frames up to so long.
    pub fn new(node: Node, faults: Faults, carries: Vec<(Instant, usize)>, seed: u64, place: &str) -> Host {
        let torturer = Torturer::new(faults, Seed(seed).stream(place));
        Host { path: Narrow::new(Tortured::new(node, torturer), carries), ahead: Span::ZERO }
    }

    pub fn node(&self) -> &Node {
        self.path.inner().inner()
    }

    pub fn counts(&self) -> Counts {
        self.path.inner().counts()
    }
}

impl Endpoint for Host {
    type Command<'a> = Order<'a>;
    type Event = Event;
    type Refusal = Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, Order<'_>>) -> Result<(), Refusal> {
        let own = now + self.ahead;
        match input {
            Input::Frame { port, peer, bytes, segment } => {
                self.path.handle(own, Input::Frame { port, peer, bytes, segment })
            }
            Input::Wake => self.path.handle(own, Input::Wake),
            Input::Command(Order::Node(command)) => self.path.handle(own, Input::Command(command)),
            Input::Command(Order::Restart(node)) => {
                *self.path.inner_mut().inner_mut() = *node;
                Ok(())
            }
            Input::Command(Order::Leap(span)) => {
                self.ahead += span;
                Ok(())
            }
        }
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Event> {
        match self.path.poll(now + self.ahead, writable, buffer) {
            Output::Idle(Idle { deadline, reason }) => {
                Output::Idle(Idle { deadline: deadline.map(|at| at - self.ahead), reason })
            }
            other => other,
        }
    }
}
