//! The smallest endpoint that has priorities: a queue of eight levels, and messages that carry when they were given to it.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Idle, Input, Output, Peer, Port, Reason, Transmit, Writable};
use trunkline_llc::token::HasUrgency;
use trunkline_llc::wire::HEADER;
use trunkline_units::Instant;

/// Messages that wait at a priority.
const BOUND: usize = 64;
/// Octets of a stamp.
const STAMP: usize = 12;

#[derive(Debug, Default)]
pub struct Queue {
    levels: [VecDeque<(u8, u32, Stamp)>; 8],
    /// Which of them have something, a bit each.
    waiting: u8,
    flood: Option<(u8, u32)>,
    got: VecDeque<Taken>,
}

/// Of which flow, and when it was given to the queue.
pub type Stamp = (u32, Instant);

#[derive(Debug)]
pub enum Send<'a> {
    Message { to: u8, priority: u8, octets: u32, stamp: Stamp, full: &'a mut bool },
    Flood { to: u8, octets: u32 },
}

/// A message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub stamp: Stamp,
}

impl HasUrgency for Queue {
    fn urgency(&self) -> Option<u8> {
        self.waiting.checked_ilog2().map(|priority| priority as u8).or_else(|| self.flood.map(|_| 0))
    }
}

impl Endpoint for Queue {
    type Command<'a> = Send<'a>;
    type Event = Taken;
    type Refusal = ();

    fn handle(&mut self, _: Instant, input: Input<'_, Send<'_>>) -> Result<(), ()> {
        match input {
            Input::Frame { bytes, .. } => {
                let stamp = bytes.get(1 + HEADER..).and_then(|rest| rest.split_first_chunk::<STAMP>());
                if let (Some((stamp, _)), true) = (stamp, self.got.len() < BOUND) {
                    let flow = u32::from_be_bytes(stamp[..4].try_into().expect("four octets"));
                    let at = u64::from_be_bytes(stamp[4..].try_into().expect("eight octets"));
                    self.got.push_back(Taken { stamp: (flow, Instant::from_ps(at)) });
                }
            }
            Input::Command(Send::Flood { to, octets }) => self.flood = Some((to, octets)),
            Input::Command(Send::Message { to, priority, octets, stamp, full }) => {
                let level = &mut self.levels[usize::from(priority)];
                *full = level.len() >= BOUND;
                if *full {
                    return Err(());
                }
                level.push_back((to, octets, stamp));
                self.waiting |= 1 << priority;
            }
            Input::Wake => {}
        }
        Ok(())
    }

    fn poll(&mut self, _: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<Taken> {
        if let Some(got) = self.got.pop_front() {
            return Output::Event(got);
        }
        let Some(priority) = self.urgency() else {
            return Output::Idle(Idle { deadline: None, reason: Reason::Input });
        };
        if !writable.has(Port(0)) {
            return Output::Idle(Idle { deadline: None, reason: Reason::Port(Port(0)) });
        }
        let level = &mut self.levels[usize::from(priority)];
        let message = level.pop_front();
        if level.is_empty() {
            self.waiting &= !(1 << priority);
        }
        let flood = self.flood.map(|(to, octets)| (to, octets, (u32::MAX, Instant::ZERO)));
        let (to, octets, (flow, at)) = message.or(flood).expect("something is urgent");
        let length = 1 + HEADER + (octets as usize).max(STAMP);
        buffer[..length].fill(0);
        buffer[..4].copy_from_slice(&[priority, 2, 2, 3]);
        buffer[4..8].copy_from_slice(&flow.to_be_bytes());
        buffer[8..16].copy_from_slice(&at.as_ps().to_be_bytes());
        Output::Transmit(Transmit { port: Port(0), peer: Peer::new(&[to]), length, segment: None })
    }
}
