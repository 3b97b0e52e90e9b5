//! Frames grow to what the path carries, and shrink with it.

use crate::support::mtu_limit::Narrow;
use trunkline_arq::{
    Buffer, Command, Config, Congestion, ConnectionId, Event, EventKind, Mode, Node, Options, PathMtu,
    ReceiveStatus,
};
use trunkline_endpoint::pair::{Ended, PEER_B, Pair};
use trunkline_endpoint::{Impairments, Port};
use trunkline_units::{Instant, Rate, Seed, Span, Stream};

/// The most probes of a search: three of each of the longest, four usual and eleven other lengths.
const MOST_PROBES: u64 = 48;
/// Lengths that are not usual are found to within so many bytes.
const GRAIN: usize = 32;
const JUMBO: u16 = 8972;

const OFTEN: Span = Span::from_ms(300);
const SELDOM: Span = Span::from_s(2);

type Ends = Pair<Narrow<Node>, Narrow<Node>>;

/// Two ends of an open connection, and what the first has sent and the second taken.
struct OpenPair {
    ends: Ends,
    ids: [ConnectionId; 2],
    draw: Stream,
    sent: u64,
    taken: u64,
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_ms(ms)
}

fn probing(longest: u16) -> Options {
    Options { probe_up_to: Some(longest), ..Options::default() }
}

/// A message follows from its number.
fn message(number: u64, length: usize) -> Buffer {
    let mut message = Buffer::with_capacity(length);
    (0..length).for_each(|at| message.push((at as u64 ^ number.wrapping_mul(31)) as u8));
    message
}

impl OpenPair {
    fn open(options: [&Options; 2], carries: [Vec<(Instant, usize)>; 2], seed: u64) -> OpenPair {
        let [first, second] = carries;
        let node = |accept, place: &str, carries| {
            let random = Seed(seed).stream(place);
            Narrow::new(Node::new(Config { port: Port(0), accept, max_connections: 1, random }), carries)
        };
        let (a, b) = (node(None, "a", first), node(Some(options[1].clone()), "b", second));
        let mut ends = Pair::new(a, b, Seed(seed));
        let (delay, rate) = (Span::from_ms(5), Some(Rate::from_bps(100_000_000)));
        let line = Impairments { delay, rate, ..Impairments::default() };
        ends.impair(line, line);
        let mut id = ConnectionId::default();
        ends.command_a(Command::Open { peer: PEER_B, options: options[0], id: &mut id }).unwrap();
        let draw = Seed(seed).stream("messages");
        let mut talk = OpenPair { ends, ids: [id; 2], draw, sent: 0, taken: 0 };
        talk.run(Span::from_ms(40));
        talk
    }

    fn run(&mut self, span: Span) {
        assert_eq!(self.ends.run(span), Ended::Limit);
        let [a, b] = [self.ends.take_events_a(), self.ends.take_events_b()];
        for (end, (_, Event { id, kind: news })) in
            [(0, a), (1, b)].into_iter().flat_map(|(n, e)| e.into_iter().map(move |e| (n, e)))
        {
            match news {
                EventKind::Opened { .. } => self.ids[end] = id,
                EventKind::Closed { reason: end } => panic!("closed: {end}"),
                _ => {}
            }
        }
    }

    /// Sends a message every `pause`, more or less, for so long, and takes what comes.
    fn busy(&mut self, span: Span, pause: Span) {
        let until = self.ends.now() + span;
        while self.ends.now() < until {
            let length = [100, 5000, 60_000][self.draw.below(3) as usize];
            let mut message = message(self.sent, length);
            let id = self.ids[0];
            if self.ends.command_a(Command::SendOwned { id, channel: 3, message: &mut message }).is_ok() {
                self.sent += 1;
            }
            let pause = pause / 2 + Span::from_ps(self.draw.below(pause.as_ps()));
            self.run(pause);
            self.take();
        }
    }

    fn take(&mut self) {
        loop {
            let (id, mut into, mut taken) = (self.ids[1], Buffer::new(), ReceiveStatus::Empty);
            let take = Command::Receive { id, channel: 3, buffer: &mut into, status: &mut taken };
            self.ends.command_b(take).unwrap();
            if taken == ReceiveStatus::Empty {
                return;
            }
            assert_eq!(taken, ReceiveStatus::Complete);
            assert!(into == message(self.taken, into.len()), "message {}", self.taken);
            self.taken += 1;
        }
    }

    /// All that was sent arrives.
    fn finish(&mut self) {
        for _ in 0..100 {
            self.run(Span::from_ms(200));
            self.take();
        }
        assert_eq!(self.taken, self.sent);
        assert!(self.ends.a().inner().is_flushed(self.ids[0]));
    }

    fn path_mtu(&self) -> PathMtu {
        self.ends.a().inner().path_mtu(self.ids[0]).unwrap()
    }
}

#[test]
fn frames_grow_to_what_the_path_carries() {
    for seed in 0..20 {
        let mut draw = Seed(seed).stream("path");
        let longest = 1472 + draw.below(64_000) as u16;
        let carries = 1472 + draw.below(u64::from(longest) * 2 - 1472) as usize;
        let options = probing(longest);
        let mut talk = OpenPair::open([&options; 2], [vec![(at(0), carries)], vec![]], seed);
        talk.busy(Span::from_s(60), SELDOM);
        let PathMtu { max_frame: frame, probes_sent: probes, probes_answered: answered, reductions: shrunk } =
            talk.path_mtu();
        let most = carries.min(longest.into());
        let found = usize::from(frame) <= most && usize::from(frame) + GRAIN > most;
        assert!(found && shrunk == 0, "seed {seed}: {frame} of {most}, shrunk {shrunk}");
        assert!(probes <= MOST_PROBES && answered <= probes, "seed {seed}: {probes} probes");
        talk.finish();
        // No probe is a sign of congestion or of anything else that befalls data.
        let statistics = talk.ends.a().inner().statistics(talk.ids[0]).unwrap();
        assert_eq!((statistics.lost, statistics.timeouts), (0, 0), "seed {seed}");
        // The other way was searched for itself.
        let back = talk.ends.b().inner().path_mtu(talk.ids[1]).unwrap();
        assert_eq!((back.max_frame, back.probes_sent), (longest, 1), "seed {seed}");
    }
}

#[test]
fn a_path_that_becomes_shorter_loses_nothing() {
    let pairs = Congestion::ALL.into_iter().flat_map(|congestion| Mode::ALL.map(|mode| (mode, congestion)));
    for (seed, (mode, congestion)) in pairs.enumerate() {
        let options = Options { mode, congestion, window: 64, ..probing(JUMBO) };
        let carries = [vec![(at(0), 9000), (at(7_300), 1300 + 100 * seed), (at(100_000), 9000)], vec![]];
        let mut talk = OpenPair::open([&options; 2], carries, seed as u64);
        talk.busy(Span::from_s(7), OFTEN);
        assert_eq!(talk.path_mtu().max_frame, JUMBO, "seed {seed}");
        talk.busy(Span::from_s(20), OFTEN);
        let PathMtu { max_frame: frame, reductions: shrunk, .. } = talk.path_mtu();
        assert_eq!((frame, shrunk), (1200, 1), "seed {seed}: what is known to be carried");
        let (sent, taken) = (talk.sent, talk.taken);
        assert!(sent > 50 && taken + 3 >= sent, "seed {seed}: it continues, {taken} of {sent}");
        // It rests for a minute, finds what there is, and ten minutes later that there is more again.
        talk.busy(Span::from_s(100), SELDOM);
        let found = usize::from(talk.path_mtu().max_frame);
        let there = 1300 + 100 * seed;
        assert!(
            found <= there && found + GRAIN > there || found == usize::from(JUMBO),
            "seed {seed}: {found}"
        );
        talk.busy(Span::from_s(700), SELDOM);
        assert_eq!(talk.path_mtu().max_frame, JUMBO, "seed {seed}");
        talk.finish();
    }
}

#[test]
fn a_path_that_never_carried_the_first_frames_is_used_nevertheless() {
    for mode in [Mode::Selective, Mode::GoBackN, Mode::StopAndWait] {
        let options = Options { mode, frame: 4000, window: 32, ..probing(JUMBO) };
        let narrow = vec![(at(0), 1464)];
        let mut talk = OpenPair::open([&options; 2], [narrow.clone(), narrow], 9);
        talk.busy(Span::from_s(200), SELDOM);
        talk.finish();
        assert_eq!((talk.path_mtu().max_frame, talk.path_mtu().reductions), (1464, 1), "{mode:?}");
    }
}

#[test]
fn a_path_that_comes_and_goes_is_not_probed_all_the_time() {
    for seed in 0..3 {
        let mut draw = Seed(seed).stream("flaps");
        let mut now = 0;
        let flaps = (0..200).map(|n| {
            now += draw.below(8_000);
            (at(now), [9000, 1300][n % 2])
        });
        let options = probing(JUMBO);
        let mut talk = OpenPair::open([&options; 2], [flaps.collect(), vec![]], seed);
        let mut before = vec![0];
        for _ in 0..12 {
            talk.busy(Span::from_s(60), SELDOM);
            before.push(talk.path_mtu().probes_sent);
        }
        let most = before.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(most <= Some(MOST_PROBES) && talk.path_mtu().reductions > 5, "seed {seed}: {before:?}");
        talk.finish();
    }
}

#[test]
fn a_peer_without_path_mtu_discovery_gets_no_longer_frames() {
    let (plain, asks) = (Options::default(), probing(JUMBO));
    for options in [[&plain, &asks], [&asks, &plain], [&plain, &plain]] {
        let mut talk = OpenPair::open(options, [vec![], vec![]], 1);
        talk.busy(Span::from_s(5), OFTEN);
        assert_eq!(
            talk.path_mtu(),
            PathMtu { max_frame: 1472, probes_sent: 0, probes_answered: 0, reductions: 0 }
        );
        talk.finish();
    }
    let less = probing(3000);
    let mut talk = OpenPair::open([&asks, &less], [vec![], vec![]], 1);
    talk.busy(Span::from_s(5), OFTEN);
    assert_eq!((talk.path_mtu().max_frame, talk.path_mtu().probes_sent), (3000, 1), "the lesser of both");
}

#[test]
fn long_frames_leave_in_batches() {
    let options = Options { frame: JUMBO, congestion: Congestion::Fixed, ..Options::default() };
    for (options, frames) in [(options.clone(), 7), (Options { probe_up_to: Some(65_507), ..options }, 7)] {
        let mut talk = OpenPair::open([&options; 2], [vec![(at(0), 8972)], vec![]], 1);
        let id = talk.ids[0];
        let before = talk.ends.counts().0.sent;
        let mut message = message(0, 1 << 20);
        talk.ends.command_a(Command::SendOwned { id, channel: 3, message: &mut message }).unwrap();
        talk.run(Span::from_us(1));
        // The line takes a batch while it is free, and is not free again so soon.
        assert_eq!(talk.ends.counts().0.sent - before, frames);
    }
}
