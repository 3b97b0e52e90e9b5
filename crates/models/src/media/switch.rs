//! A switch.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::{Arrival, Cause, Counters, Frame, Medium, Passage, Port, To};
use trunkline_units::{Instant, Span};

use crate::media::table::Table;

/// What a switch is like.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// From a frame's last bit coming in to its standing in the output's queue.
    pub latency: Span,
    /// Frames that may be inside at once, during the latency. One more is lost ([`Cause::Full`]).
    pub inside: u64,
    /// Whether it checks frames and throws damaged ones away ([`Cause::Damaged`]), as a bridge of IEEE 802.1D
    /// does. A switch of cells looks at headers only.
    pub checks: bool,
}

/// No latency, 65,536 frames, and damaged frames pass.
impl Default for SwitchOptions {
    fn default() -> Self {
        SwitchOptions { latency: Span::ZERO, inside: 65_536, checks: false }
    }
}

/// Takes frames that have arrived whole, looks up where they go, and hands them on after a fixed latency;
/// without latency, in the same instant.
///
/// It has no output queue. A medium queues at its ports: the buffer of an output is the
/// [`Bound`](trunkline_endpoint::Bound) of the link or ring that stands there. What crosses the switch
/// meanwhile is bounded by [`SwitchOptions::inside`].
///
/// The ways are given, not learnt. A frame for a station or group that it does not know is lost
/// ([`Cause::NoWay`]). A frame for several ports is cloned. None goes back out of the port through which it
/// came: that is no error, it is only counted ([`Switch::filtered`]).
///
/// Its [`Counters`] are those of frames that came in through a port; nothing is `busy`.
#[derive(Clone, Debug)]
pub struct Switch<F> {
    options: SwitchOptions,
    table: Table,
    groups: BTreeMap<u32, Box<[Port]>>,
    /// Frames inside, oldest first: when each comes out, and whence it came.
    inside: VecDeque<(Instant, Port, F)>,
    /// How many ports the oldest has been considered for, if it goes to several.
    considered: usize,
    due: Instant,
    /// Lost for want of room and not yet told.
    refused: VecDeque<(Port, F)>,
    /// Ports that want to know when there is room, and those to tell.
    asked: Vec<Port>,
    granted: VecDeque<Port>,
    counters: Vec<Counters>,
    filtered: u64,
}

impl<F: Frame> Switch<F> {
    /// A switch with `ports` ports that knows nobody yet.
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

    /// Frames for `station` leave through `port`.
    ///
    /// # Panics
    /// If there is no such port, or the station's number has more than 24 bits.
    pub fn station(&mut self, station: u32, port: Port) {
        assert!(usize::from(port.0) < self.counters.len(), "the switch has no {port:?}");
        self.table.set(station, port);
    }

    /// Frames for `group` leave through each of `ports`.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn group(&mut self, group: u32, ports: &[Port]) {
        assert!(ports.iter().all(|port| usize::from(port.0) < self.counters.len()), "a port is missing");
        self.groups.insert(group, ports.into());
    }

    /// Where a frame that comes in at `port` now goes out, if it only passes: the switch takes no time, the frame is for
    /// one station, and nothing is wrong. It has then been counted, and `handle` need not be called.
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

    /// The oldest frame and where it goes, if it has been inside for long enough, is for one station, and nothing is
    /// wrong: what `handle` with a wake and one `poll` do, in one step.
    // Not inlined: then a frame is moved as a whole.
    #[inline(never)]
    pub fn exit(&mut self, now: Instant) -> Option<(Port, F)> {
        let (at, from, frame) = self.inside.front()?;
        let To::Station(station) = frame.to() else { return None };
        let passes = *at <= now && !(self.options.checks && frame.is_damaged());
        let out = self.table.get(station).filter(|out| passes && *out != *from)?;
        self.take().map(|frame| (out, frame))
    }

    /// How long frames are inside.
    pub fn latency(&self) -> Span {
        self.options.latency
    }

    /// Frames that may be inside at once.
    pub fn inside(&self) -> u64 {
        self.options.inside
    }

    /// Takes the latency away, for whoever has the lines to its ports take so much longer. To be called before the first
    /// frame comes.
    pub fn take_latency(&mut self) -> Span {
        std::mem::take(&mut self.options.latency)
    }

    /// Takes a frame, as [`Medium::handle`] does.
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

    /// When there is something to say next: at once if that lies in the past, never at [`Instant::MAX`].
    #[inline]
    pub fn deadline(&self) -> Instant {
        match self.refused.is_empty() && self.granted.is_empty() {
            true => self.inside.front().map_or(Instant::MAX, |(at, ..)| *at),
            false => Instant::ZERO,
        }
    }

    /// Frames that would have gone back where they came from, and nowhere else.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// The port that comes at place `at` in the list of those to which `to` leads.
    fn target(&self, to: To, at: usize) -> Option<Port> {
        match to {
            To::Station(station) => self.table.get(station).filter(|_| at == 0),
            To::Group(group) => self.groups.get(&group)?.get(at).copied(),
            To::All => u16::try_from(at).ok().map(Port).filter(|_| at < self.counters.len()),
        }
    }

    /// The next port from place `at` on that is not `from`, and its place.
    fn next_target(&self, to: To, from: Port, mut at: usize) -> Option<(usize, Port)> {
        loop {
            let port = self.target(to, at)?;
            if port != from {
                return Some((at, port));
            }
            at += 1;
        }
    }

    /// Takes the oldest frame out.
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

    /// Hands on the oldest frame, to the next port to which it goes. Nothing if it goes nowhere but back.
    #[inline]
    fn forward(&mut self) -> Option<Passage<F>> {
        let (_, from, frame) = self.inside.front()?;
        let (from, to) = (*from, frame.to());
        if self.options.checks && frame.is_damaged() {
            return self.lose(from, Cause::Damaged);
        }
        if let To::Station(station) = to {
            let Some(port) = self.table.get(station) else { return self.lose(from, Cause::NoWay) };
            let frame = self.take()?;
            if port == from {
                self.filtered += 1;
                return None;
            }
            return Some(Passage::Transmit { port, frame });
        }
        let Some((at, port)) = self.next_target(to, from, self.considered) else {
            if self.target(to, 0).is_none() {
                return self.lose(from, Cause::NoWay);
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
