//! A switch.

use std::collections::{BTreeMap, VecDeque};

use trunkline_endpoint::{
    Destination, Frame, LossCause, Medium, MediumCounters, MediumInput, MediumOutput, Port,
};
use trunkline_units::{Instant, Span};

use crate::media::table::Table;

/// Options of a switch.
#[derive(Clone, Debug)]
pub struct SwitchOptions {
    /// Time from a frame's last received bit until it is queued at the output.
    pub latency: Span,
    /// Maximum number of frames inside during the latency; further frames are lost ([`LossCause::QueueFull`]).
    pub max_inside: u64,
    /// Whether it drops damaged frames ([`LossCause::Damaged`]), as an IEEE 802.1D bridge does. A cell switch verifies
    /// headers only.
    pub drops_damaged: bool,
}

/// No latency, 65,536 frames, and damaged frames pass.
impl Default for SwitchOptions {
    fn default() -> Self {
        SwitchOptions { latency: Span::ZERO, max_inside: 65_536, drops_damaged: false }
    }
}

/// A store-and-forward switch: looks up the output of each frame and forwards it after a fixed latency; without
/// latency, in the same instant.
///
/// It has no output queues: the buffer of an output is the [`Bound`](trunkline_endpoint::Bound) of the link or ring
/// at that port. Frames inside the switch are limited by [`SwitchOptions::max_inside`].
///
/// Forwarding tables are configured, not learnt. A frame to an unknown station or group is lost
/// ([`LossCause::NoRoute`]). A frame to several ports is cloned. No frame leaves through its input port; such a frame
/// is counted as [filtered](Switch::filtered).
///
/// Its [`MediumCounters`] count the frames received at each port; `busy` is zero.
#[derive(Clone, Debug)]
pub struct Switch<F> {
    options: SwitchOptions,
    table: Table,
    groups: BTreeMap<u32, Box<[Port]>>,
    /// Frames inside, oldest first, with departure time and input port.
    inside: VecDeque<(Instant, Port, F)>,
    /// Index of the next destination port of the oldest frame, if it has several.
    next_index: usize,
    /// Time of the last wake: frames that leave later may not be polled yet.
    woken_at: Instant,
    /// Frames dropped because too many were inside, to be output as lost.
    dropped: VecDeque<(Port, F)>,
    /// Ports that wait for room.
    room_requests: Vec<Port>,
    /// Ports to notify of room.
    room_pending: VecDeque<Port>,
    counters: Vec<MediumCounters>,
    filtered: u64,
    no_route: u64,
}

impl<F: Frame> Switch<F> {
    /// Creates a switch with `ports` ports and empty tables.
    pub fn new(ports: u16, options: SwitchOptions) -> Self {
        Switch {
            options,
            table: Table::default(),
            groups: BTreeMap::new(),
            inside: VecDeque::new(),
            next_index: 0,
            woken_at: Instant::ZERO,
            dropped: VecDeque::new(),
            room_requests: Vec::new(),
            room_pending: VecDeque::new(),
            counters: vec![MediumCounters::default(); usize::from(ports)],
            filtered: 0,
            no_route: 0,
        }
    }

    /// Forwards frames to `station` through `port`.
    ///
    /// # Panics
    /// If there is no such port, or the station's number has more than 24 bits.
    pub fn add_station(&mut self, station: u32, port: Port) {
        assert!(usize::from(port.0) < self.counters.len(), "the switch has no {port:?}");
        self.table.set(station, port);
    }

    /// Forwards frames to `group` through each of `ports`.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn set_group(&mut self, group: u32, ports: &[Port]) {
        assert!(ports.iter().all(|port| usize::from(port.0) < self.counters.len()), "a port is missing");
        self.groups.insert(group, ports.into());
    }

    /// Returns the output port of a frame received at `port` if it passes at once: no latency, one destination, no
    /// error. The frame is then counted, and `handle` need not be called.
    #[inline]
    pub fn forward_at_once(&mut self, port: Port, frame: &F) -> Option<Port> {
        let Destination::Station(station) = frame.destination() else { return None };
        let may_leave = self.options.latency.is_zero() && !(self.options.drops_damaged && frame.is_damaged());
        let out = self.table.get(station).filter(|out| may_leave && *out != port)?;
        let counters = self.counters.get_mut(usize::from(port.0))?;
        counters.frames += 1;
        counters.bytes += u64::from(frame.length());
        Some(out)
    }

    /// Returns the oldest frame and its output port if its latency has passed and it has one destination and no
    /// error: `handle` with a wake and one `poll` in one step.
    // Not inlined, so that the frame is moved in one piece.
    #[inline(never)]
    pub fn take_departure(&mut self, now: Instant) -> Option<(Port, F)> {
        let (at, from, frame) = self.inside.front()?;
        let Destination::Station(station) = frame.destination() else { return None };
        let may_leave = *at <= now && !(self.options.drops_damaged && frame.is_damaged());
        let out = self.table.get(station).filter(|out| may_leave && *out != *from)?;
        self.remove_oldest().map(|frame| (out, frame))
    }

    /// Returns the latency.
    pub fn latency(&self) -> Span {
        self.options.latency
    }

    /// Returns the maximum number of frames inside during the latency.
    pub fn max_inside(&self) -> u64 {
        self.options.max_inside
    }

    /// Removes and returns the latency, for a caller that adds it to the connected lines. Call it before the first
    /// frame.
    pub fn take_latency(&mut self) -> Span {
        std::mem::take(&mut self.options.latency)
    }

    /// Accepts a frame, as [`Medium::handle`] does.
    #[inline]
    pub fn send(&mut self, now: Instant, port: Port, frame: F) {
        let is_full = self.is_full();
        let counters = &mut self.counters[usize::from(port.0)];
        if is_full {
            counters.queue_drops += 1;
            self.dropped.push_back((port, frame));
            return;
        }
        counters.frames += 1;
        counters.bytes += u64::from(frame.length());
        if self.options.latency.is_zero() {
            self.woken_at = now;
        }
        self.inside.push_back((now + self.options.latency, port, frame));
    }

    /// Returns the time of the next output: at once if it is in the past, [`Instant::MAX`] for never.
    #[inline]
    pub fn deadline(&self) -> Instant {
        match self.dropped.is_empty() && self.room_pending.is_empty() {
            true => self.inside.front().map_or(Instant::MAX, |(at, ..)| *at),
            false => Instant::ZERO,
        }
    }

    /// Returns the number of frames without a route. With the damaged frames they are the `other_losses` of all ports.
    pub fn no_route(&self) -> u64 {
        self.no_route
    }

    /// Returns the number of frames whose only output was their input port. They are not lost: their destination is
    /// behind that port.
    pub fn filtered(&self) -> u64 {
        self.filtered
    }

    /// Returns one of the ports that lead to a destination.
    fn target(&self, to: Destination, index: usize) -> Option<Port> {
        match to {
            Destination::Station(station) if index == 0 => self.table.get(station),
            Destination::Station(_) => None,
            Destination::Group(group) => self.groups.get(&group)?.get(index).copied(),
            Destination::All => u16::try_from(index).ok().map(Port).filter(|_| index < self.counters.len()),
        }
    }

    /// Returns the next destination port, from an index on, that is not `from`; with its index.
    fn next_target(&self, to: Destination, from: Port, mut index: usize) -> Option<(usize, Port)> {
        loop {
            let port = self.target(to, index)?;
            if port != from {
                return Some((index, port));
            }
            index += 1;
        }
    }

    /// Removes the oldest frame, and notifies the ports that wait for room.
    #[inline]
    fn remove_oldest(&mut self) -> Option<F> {
        self.next_index = 0;
        if !self.room_requests.is_empty() {
            self.room_pending.extend(self.room_requests.drain(..));
        }
        self.inside.pop_front().map(|(_, _, frame)| frame)
    }

    /// Drops the oldest frame, which was received at `port`.
    fn drop_oldest(&mut self, port: Port, cause: LossCause) -> Option<MediumOutput<F>> {
        self.counters[usize::from(port.0)].other_losses += 1;
        self.no_route += u64::from(cause == LossCause::NoRoute);
        self.remove_oldest().map(|frame| MediumOutput::Lost { port, frame, cause })
    }

    /// Forwards the oldest frame to its next port; `None` if it has no other port than its input.
    #[inline]
    fn forward(&mut self) -> Option<MediumOutput<F>> {
        let (_, from, frame) = self.inside.front()?;
        let (from, to) = (*from, frame.destination());
        if self.options.drops_damaged && frame.is_damaged() {
            return self.drop_oldest(from, LossCause::Damaged);
        }
        let Some((index, port)) = self.next_target(to, from, self.next_index) else {
            if self.target(to, 0).is_none() {
                return self.drop_oldest(from, LossCause::NoRoute);
            }
            self.filtered += 1;
            self.remove_oldest();
            return None;
        };
        if self.next_target(to, from, index + 1).is_none() {
            return self.remove_oldest().map(|frame| MediumOutput::Transmit { port, frame });
        }
        self.next_index = index + 1;
        Some(MediumOutput::Transmit { port, frame: frame.clone() })
    }

    fn is_full(&self) -> bool {
        self.inside.len() as u64 >= self.options.max_inside
    }
}

impl<F: Frame> Medium<F> for Switch<F> {
    #[inline]
    fn handle(&mut self, now: Instant, input: MediumInput<F>) {
        match input {
            MediumInput::Frame { port, frame } => self.send(now, port, frame),
            MediumInput::RequestRoom { port } if !self.is_full() => self.room_pending.push_back(port),
            MediumInput::RequestRoom { port } => {
                if !self.room_requests.contains(&port) {
                    self.room_requests.push(port);
                }
            }
            MediumInput::Wake => self.woken_at = now,
        }
    }

    #[inline]
    fn poll(&mut self, _now: Instant) -> MediumOutput<F> {
        if let Some((port, frame)) = self.dropped.pop_front() {
            return MediumOutput::Lost { port, frame, cause: LossCause::QueueFull };
        }
        while self.inside.front().is_some_and(|(at, ..)| *at <= self.woken_at) {
            if let Some(output) = self.forward() {
                return output;
            }
        }
        if let Some(port) = self.room_pending.pop_front() {
            return MediumOutput::Room { port };
        }
        MediumOutput::Idle { deadline: self.inside.front().map(|(at, ..)| *at) }
    }

    fn has_room(&mut self, _now: Instant, _port: Port, _length: u32) -> bool {
        !self.is_full()
    }

    fn counters(&self, port: Port) -> &MediumCounters {
        &self.counters[usize::from(port.0)]
    }
}
