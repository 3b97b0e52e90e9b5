//! The hub, which resolves a contention in one step, against stations that work carrier by carrier, as the
//! processes of IEEE 802.3 clause 4.2.7 and 4.2.8 do.

use super::common;

use std::collections::{BTreeSet, VecDeque};

use common::{Log, Packet, Testbed, load};
use proptest::prelude::*;
use trunkline_endpoint::{Bound, Destination, LossCause, Medium, MediumOutput, Port};
use trunkline_models::media::{Hub, HubOptions};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// Events of one moment, in this order: a carrier that begins or ends in the picosecond of a start is too late for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ends,
    CarrierOff,
    GapOver,
    Try,
    CarrierOn,
    /// The last bit is received.
    Received,
}

#[derive(Default)]
struct Station {
    queue: VecDeque<Packet>,
    carriers: u32,
    /// When the current transmission began, and when it ends.
    sending: Option<(u64, u64)>,
    collided: bool,
    attempts: u32,
    backoff_until: u64,
    /// The deference process: busy or in the gap, which ends then.
    deferring: bool,
    was_sending: bool,
    gap: Option<(u64, u64)>,
    collisions: u64,
}

struct Reference {
    bit: u64,
    delay: u64,
    stations: Vec<Station>,
    streams: Vec<Stream>,
    events: BTreeSet<(u64, Event, usize, u32)>,
    serial: u32,
    /// What is on the medium.
    sent: Vec<(usize, Packet)>,
    outputs: Vec<Log>,
}

impl Reference {
    fn add(&mut self, at: u64, event: Event, station: usize) {
        self.serial += 1;
        self.events.insert((at, event, station, self.serial));
    }

    fn send(&mut self, at: u64, station: usize, packet: Packet) {
        self.until(at, false);
        self.stations[station].queue.push_back(packet);
        if self.stations[station].queue.len() == 1 {
            self.add(at, Event::Try, station);
        }
    }

    fn until(&mut self, end: u64, including: bool) {
        while let Some(first) =
            self.events.first().copied().filter(|e| e.0 < end || (including && e.0 == end))
        {
            self.events.pop_first();
            let (now, event, at, _) = first;
            match event {
                Event::Ends => self.ends(now, at),
                Event::CarrierOff => {
                    self.stations[at].carriers -= 1;
                    self.quiet(now, at);
                }
                Event::GapOver => self.gap_over(now, at),
                Event::Try => self.begin(now, at),
                Event::CarrierOn => self.carrier_on(now, at),
                Event::Received => self.receives(now, at),
            }
        }
    }

    /// Starts, if the station has a frame, is not backing off and does not defer.
    fn begin(&mut self, now: u64, at: usize) {
        let delay = self.delay;
        let station = &mut self.stations[at];
        let busy = station.deferring || station.sending.is_some() || station.backoff_until > now;
        if busy {
            return;
        }
        let Some(packet) = station.queue.front() else { return };
        let bits = u64::from(8 + (packet.length + 18).max(64)) * 8;
        station.sending = Some((now, now + bits * self.bit));
        station.collided = false;
        station.deferring = true;
        // It may have sensed a carrier in the very moment of its start.
        if station.carriers > 0 {
            self.collide(now, at);
        }
        let end = self.stations[at].sending.map_or(now, |(_, end)| end);
        self.add(end, Event::Ends, at);
        (0..self.stations.len()).filter(|other| *other != at).for_each(|other| {
            self.add(now + delay, Event::CarrierOn, other);
        });
    }

    fn carrier_on(&mut self, now: u64, at: usize) {
        let bit = self.bit;
        let station = &mut self.stations[at];
        station.carriers += 1;
        match station.gap {
            // First part of the gap: two thirds.
            Some((since, _)) if !station.was_sending && now < since + 64 * bit => station.gap = None,
            _ => {}
        }
        station.deferring = true;
        if station.sending.is_some() && !station.collided {
            let end = station.sending.map(|(_, end)| end);
            self.collide(now, at);
            // Its end has moved.
            self.events.retain(|e| !(e.1 == Event::Ends && e.2 == at && Some(e.0) == end));
            let end = self.stations[at].sending.map_or(now, |(_, end)| end);
            self.add(end, Event::Ends, at);
        }
    }

    fn collide(&mut self, now: u64, at: usize) {
        let station = &mut self.stations[at];
        station.collided = true;
        if let Some((begun, end)) = &mut station.sending {
            *end = now.max(*begun + 64 * self.bit) + 32 * self.bit;
        }
    }

    fn ends(&mut self, now: u64, at: usize) {
        let delay = self.delay;
        let station = &mut self.stations[at];
        station.sending = None;
        station.was_sending = true;
        let collided = station.collided;
        let mut given_up = None;
        if collided {
            station.collisions += 1;
            station.attempts += 1;
            if station.attempts == 16 {
                given_up = station.queue.pop_front();
                station.attempts = 0;
            } else {
                let slots = self.streams[at].below(1 << station.attempts.min(10));
                station.backoff_until = now + slots * 512 * self.bit;
                let until = station.backoff_until;
                self.add(until, Event::Try, at);
            }
        } else {
            station.attempts = 0;
            let packet = station.queue.pop_front().expect("it sent a frame");
            self.sent.push((at, packet));
        }
        if let Some(frame) = given_up {
            let lost = MediumOutput::Lost { port: Port(at as u16), frame, cause: LossCause::Collisions };
            self.outputs.push((Instant::from_ps(now), lost));
        }
        for other in (0..self.stations.len()).filter(|other| *other != at) {
            self.add(now + delay, Event::CarrierOff, other);
        }
        if !collided {
            self.add(now + delay, Event::Received, at);
        }
        self.quiet(now, at);
    }

    /// Begins the gap if the station senses no carrier any more.
    fn quiet(&mut self, now: u64, at: usize) {
        let bit = self.bit;
        let station = &mut self.stations[at];
        if station.carriers == 0 && station.sending.is_none() && station.gap.is_none() {
            station.gap = Some((now, now + 96 * bit));
            self.add(now + 96 * bit, Event::GapOver, at);
        }
    }

    fn gap_over(&mut self, now: u64, at: usize) {
        let station = &mut self.stations[at];
        if station.gap.is_none_or(|(_, end)| end != now) {
            return;
        }
        (station.gap, station.deferring, station.was_sending) = (None, false, false);
        self.begin(now, at);
        let station = &mut self.stations[at];
        station.deferring |= station.carriers > 0;
    }

    fn receives(&mut self, now: u64, from: usize) {
        let (_, packet) = self.sent.remove(0);
        for port in (0..self.stations.len()).filter(|port| *port != from) {
            let frame = packet.clone();
            self.outputs
                .push((Instant::from_ps(now), MediumOutput::Transmit { port: Port(port as u16), frame }));
        }
    }
}

/// Sorts outputs, because the order of outputs at one moment may differ.
fn sorted(outputs: &[Log]) -> Vec<(Instant, String)> {
    let mut lines: Vec<_> = outputs.iter().map(|(at, output)| (*at, format!("{output:?}"))).collect();
    lines.sort();
    lines
}

proptest! {
    #[test]
    fn hub_and_reference_agree(seed in any::<u64>()) {
        let seed = Seed(seed);
        let mut draw = seed.stream("scene");
        let stations = 2 + draw.below(6) as u16;
        let rate = [10_000_000u64, 1_000_000][draw.below(2) as usize];
        let bit = 1_000_000_000_000 / rate;
        let delay = draw.below(257) * bit;
        let options = HubOptions { rate: Rate::from_bps(rate), delay: Span::from_ps(delay), max_length: 1500 };
        let gap = Span::from_ps(bit * (1 + draw.below(16_000)));
        let load = load(&mut draw, 150, stations, gap, |_| Destination::All);
        let streams: Vec<Stream> = (0..stations).map(|s| seed.stream(&format!("{s}"))).collect();

        let bounds = vec![Bound::NONE; usize::from(stations)];
        let mut testbed = Testbed::new(Hub::new(options, &bounds, streams.clone()));
        let mut reference = Reference {
            bit,
            delay,
            stations: (0..stations).map(|_| Station::default()).collect(),
            streams,
            events: BTreeSet::new(),
            serial: 0,
            sent: Vec::new(),
            outputs: Vec::new(),
        };
        for (at, port, packet) in &load {
            testbed.send(*at, *port, packet.clone());
            reference.send(at.as_ps(), usize::from(*port), packet.clone());
        }
        testbed.finish();
        reference.until(u64::MAX, true);
        prop_assert_eq!(sorted(&testbed.outputs), sorted(&reference.outputs));
        for (port, station) in reference.stations.iter().enumerate() {
            prop_assert_eq!(testbed.medium.counters(Port(port as u16)).collisions, station.collisions);
        }
    }
}
