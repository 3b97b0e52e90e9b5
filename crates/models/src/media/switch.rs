//! A switch.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::{Arrival, Cause, Counters, Frame, Medium, Passage, Port, To};
use trunkline_units::{Instant, Span};

use crate::media::table::Table;

/// Options of a switch.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// Time from a frame's last received bit until it is queued at the output.
    pub latency: Span,
    /// Maximum number of frames inside during the latency; further frames are lost ([`Cause::Full`]).
    pub inside: u64,
    /// Whether it drops damaged frames ([`Cause::Damaged`]), as an IEEE 802.1D bridge does. A cell switch only checks
    /// headers.
    pub checks: bool,
}

/// No latency, 65,536 frames, and damaged frames pass.
impl Default for SwitchOptions {
    fn default() -> Self {
        SwitchOptions { latency: Span::ZERO, inside: 65_536, checks: false }
    }
}

/// A store-and-forward switch: looks up the output of each frame and forwards it after a fixed latency; without
/// latency, in the same instant.
///
/// It has no output queues: the buffer of an output is the [`Bound`](trunkline_endpoint::Bound) of the link or ring
/// at that port. Frames inside the switch are limited by [`SwitchOptions::inside`].
///
/// Forwarding tables are configured, not learnt. A frame to an unknown station or group is lost ([`Cause::NoRoute`]). A
/// frame to several ports is cloned. No frame leaves through its input port; such a frame is counted as
/// [filtered](Switch::filtered).
///
/// Its [`Counters`] count the frames received at each port; `busy` is zero.
#[derive(Clone, Debug)]
pub struct Switch<F> {
    options: SwitchOptions,
    table: Table,
    groups: BTreeMap<u32, Box<[Port]>>,
    /// Frames inside, oldest first, with departure time and input port.
    inside: VecDeque<(Instant, Port, F)>,
    /// Number of output ports considered for the oldest frame, if it goes to several.
    considered: usize,
    due: Instant,
    /// Frames dropped because the switch was full, not yet reported.
    refused: VecDeque<(Port, F)>,
    /// Ports that wait for space, and ports to notify.
    asked: Vec<Port>,
    granted: VecDeque<Port>,
    counters: Vec<Counters>,
    filtered: u64,
}

impl<F: Frame> Switch<F> {
    /// Creates a switch with `ports` ports and empty tables.
    pub fn new(ports: u16, options: SwitchOptions) -> Self {
        Switch {
            options,
            table: Table::default(),
            groups: BTreeMap::new(),
            inside: VecDeque::new(),
            considered: 0,
            due: Instant::ZERO,
            refused: VecDeque::new(),
            asked: Vec::new(),
            granted: VecDeque::new(),
            counters: vec![Counters::default(); usize::from(ports)],
            filtered: 0,
        }
    }

    /// Forwards frames to `station` through `port`.
    ///
    /// # Panics
    /// If there is no such port, or the station's number has more than 24 bits.
    pub fn station(&mut self, station: u32, port: Port) {
        assert!(usize::from(port.0) < self.counters.len(), "the switch has no {port:?}");
        self.table.set(station, port);
    }

    /// Forwards frames to `group` through each of `ports`.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn group(&mut self, group: u32, ports: &[Port]) {
        assert!(ports.iter().all(|port| usize::from(port.0) < self.counters.len()), "a port is missing");
        self.groups.insert(group, ports.into());
    }

    /// Returns the output port of a frame received at `port` if it passes at once: no latency, one destination, no
    /// error. The frame is then counted, and `handle` need not be called.
    #[inline]
    pub fn direct(&mut self, port: Port, frame: &F) -> Option<Port> {
        let To::Station(station) = frame.to() else { return None };
        let passes = self.options.latency.is_zero() && !(self.options.checks && frame.is_damaged());
        let out = self.table.get(station).filter(|out| passes && *out != port)?;
        let counters = self.counters.get_mut(usize::from(port.0))?;
        counters.frames += 1;
        counters.bytes += u64::from(frame.length());
        Some(out)
    }

    /// Returns the oldest frame and its output port if its latency has passed and it has one destination and no
    /// error: `handle` with a wake and one `poll` in one step.
    // Not inlined, so that the frame is moved in one piece.
    #[inline(never)]
    pub fn exit(&mut self, now: Instant) -> Option<(Port, F)> {
        let (at, from, frame) = self.inside.front()?;
        let To::Station(station) = frame.to() else { return None };
        let passes = *at <= now && !(self.options.checks && frame.is_damaged());
        let out = self.table.get(station).filter(|out| passes && *out != *from)?;
        self.take().map(|frame| (out, frame))
    }

    /// Returns the latency.
    pub fn latency(&self) -> Span {
        self.options.latency
    }

    /// Maximum number of frames inside during the latency; further frames are lost ([`Cause::Full`]).
    pub fn inside(&self) -> u64 {
        self.options.inside
    }

    /// Removes and returns the latency, for a caller that adds it to the connected lines. Call it before the first
    /// frame.
    pub fn take_latency(&mut self) -> Span {
        std::mem::take(&mut self.options.latency)
    }

    /// Accepts a frame, as [`Medium::handle`] does.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) {
        let room = self.has_room();
        let counters = &mut self.counters[usize::from(port.0)];
        if !room {
            counters.full += 1;
            self.refused.push_back((port, frame));
            return;
        }
        counters.frames += 1;
        counters.bytes += u64::from(frame.length());
        if self.options.latency.is_zero() {
            self.due = now;
        }
        self.inside.push_back((now + self.options.latency, port, frame));
    }

    /// Returns the time of the next output: at once if it is in the past, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        match self.refused.is_empty() && self.granted.is_empty() {
            true => self.inside.front().map_or(Instant::MAX, |(at, ..)| *at),
            false => Instant::ZERO,
        }
    }

    /// Returns the number of frames whose only output was their input port.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// Returns the port at index `at` of the destinations of `to`.
    fn target(&self, to: To, at: usize) -> Option<Port> {
        match to {
            To::Station(station) => self.table.get(station).filter(|_| at == 0),
            To::Group(group) => self.groups.get(&group)?.get(at).copied(),
            To::All => u16::try_from(at).ok().map(Port).filter(|_| at < self.counters.len()),
        }
    }

    /// Returns the next destination port from index `at` on that is not `from`, with its index.
    fn next_target(&self, to: To, from: Port, mut at: usize) -> Option<(usize, Port)> {
        loop {
            let port = self.target(to, at)?;
            if port != from {
                return Some((at, port));
            }
            at += 1;
        }
    }

    /// Removes the oldest frame.
    #[inline]
    fn take(&mut self) -> Option<F> {
        self.considered = 0;
        if !self.asked.is_empty() {
            self.granted.extend(self.asked.drain(..));
        }
        self.inside.pop_front().map(|(_, _, frame)| frame)
    }

    fn lose(&mut self, port: Port, cause: Cause) -> Option<Passage<F>> {
        self.counters[usize::from(port.0)].lost += 1;
        self.take().map(|frame| Passage::Lost { port, frame, cause })
    }

    /// Forwards the oldest frame to its next port; `None` if it has no other port than its input.
    #[inline]
    fn forward(&mut self) -> Option<Passage<F>> {
        let (_, from, frame) = self.inside.front()?;
        let (from, to) = (*from, frame.to());
        if self.options.checks && frame.is_damaged() {
            return self.lose(from, Cause::Damaged);
        }
        if let To::Station(station) = to {
            let Some(port) = self.table.get(station) else { return self.lose(from, Cause::NoRoute) };
            let frame = self.take()?;
            if port == from {
                self.filtered += 1;
                return None;
            }
            return Some(Passage::Transmit { port, frame });
        }
        let Some((at, port)) = self.next_target(to, from, self.considered) else {
            if self.target(to, 0).is_none() {
                return self.lose(from, Cause::NoRoute);
            }
            self.filtered += 1;
            self.take();
            return None;
        };
        if self.next_target(to, from, at + 1).is_none() {
            return self.take().map(|frame| Passage::Transmit { port, frame });
        }
        self.considered = at + 1;
        Some(Passage::Transmit { port, frame: frame.clone() })
    }

    fn has_room(&self) -> bool {
        (self.inside.len() as u64) < self.options.inside
    }
}

impl<F: Frame> Medium<F> for Switch<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: Arrival<F>) {
        match input {
            Arrival::Frame { port, frame } => self.send(now, port, frame),
            Arrival::Ask { port } if self.has_room() => self.granted.push_back(port),
            Arrival::Ask { port } => {
                if !self.asked.contains(&port) {
                    self.asked.push(port);
                }
            }
            Arrival::Wake => self.due = now,
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> Passage<F> {
        if let Some((port, frame)) = self.refused.pop_front() {
            return Passage::Lost { port, frame, cause: Cause::Full };
        }
        while self.inside.front().is_some_and(|(at, ..)| *at <= self.due) {
            if let Some(passage) = self.forward() {
                return passage;
            }
        }
        if let Some(port) = self.granted.pop_front() {
            return Passage::Room { port };
        }
        Passage::Idle { deadline: self.inside.front().map(|(at, ..)| *at) }
    }

    fn room(&mut self, _now: Instant, _port: Port, _length: u32) -> bool {
        self.has_room()
    }

    fn counters(&self, port: Port) -> &Counters {
        &self.counters[usize::from(port.0)]
    }
}
