//! Video on demand by DASH: segments at the rates of a ladder, chosen from the throughput or from the playback buffer.

use std::collections::VecDeque;

use trunkline_units::{Instant, Span};

use super::definition::values::{constant, list};
use super::{Choice, Definition, Draws, Item, Model, Next, Outcome, Parameter, QuantityId, Unit, Variant};
use crate::Variable;

const BBA: &str = "Huang et al. 2014, SIGCOMM, section 4 (BBA-0)";

pub(super) static VIDEO: Definition = Definition {
    name: "video",
    summary: "A DASH client: requests one segment after the other at a bit rate of its ladder, which it adapts, and pauses while its playback buffer is full.",
    choice: Some(&Choice {
        name: "adaptation",
        variants: &[
            Variant {
                name: "throughput",
                meaning: "the highest rate below a share of the recent throughput",
                source: "harmonic mean: Jiang et al. 2012, CoNEXT (FESTIVE)",
                values: &[],
            },
            Variant {
                name: "buffer",
                meaning: "the rate is a function of the buffer: BBA-0",
                source: BBA,
                values: &[
                    ("maxBuffer", || constant(240.0)),
                    ("reservoir", || constant(90.0)),
                    ("cushion", || constant(126.0)),
                ],
            },
        ],
    }),
    parameters: &[
        Parameter::new(
            "ladder",
            "the bit rates, ascending",
            Unit::BitsPerSecond,
            || list(&[235e3, 375e3, 560e3, 750e3, 1050e3, 1750e3, 2350e3, 3000e3, 4300e3, 5800e3]),
            "Netflix 2015, \"Per-Title Encode Optimization\": the fixed ladder",
        )
        .list(),
        Parameter::new(
            "start",
            "bit rate of the first segment, one of the ladder",
            Unit::BitsPerSecond,
            || constant(235e3),
            "the lowest of the ladder: Huang et al. 2014",
        )
        .one_of("ladder"),
        Parameter::new(
            "segment",
            "video of a segment",
            Unit::Seconds,
            || constant(4.0),
            "Huang et al. 2014; 2 s to 10 s are common",
        )
        .at_most("maxBuffer"),
        Parameter::new(
            "variation",
            "bytes of a segment over its bit rate times its duration",
            Unit::Number,
            || Variable::Lognormal { mean: 1.0, sd: 0.15 },
            "a choice",
        )
        .with_mean(),
        Parameter::new("request", "a request", Unit::Bytes, || constant(350.0), "3GPP2 C.R1002-0 (2004)").constant(),
        Parameter::new(
            "maxBuffer",
            "video in a full buffer; the next request waits until a segment fits",
            Unit::Seconds,
            || constant(30.0),
            "a choice",
        )
        .constant(),
        Parameter::new(
            "startup",
            "video in the buffer when playing starts, at first and after a stall",
            Unit::Seconds,
            || constant(4.0),
            "a choice: a segment",
        )
        .at_most("maxBuffer"),
        Parameter::new(
            "history",
            "segments whose throughput counts",
            Unit::Count,
            || constant(3.0),
            "a choice; 20 in Jiang et al. 2012",
        )
        .constant(),
        Parameter::new(
            "safety",
            "share of the throughput that is used",
            Unit::Number,
            || constant(0.9),
            "dash.js; 0.85 in Jiang et al. 2012",
        )
        .constant(),
        Parameter::new(
            "reservoir",
            "buffer up to which the lowest rate is chosen",
            Unit::Seconds,
            || constant(0.0),
            BBA,
        )
        .constant(),
        Parameter::new(
            "cushion",
            "buffer above the reservoir over which the rate rises to the highest; 0: the rate follows the throughput",
            Unit::Seconds,
            || constant(0.0),
            BBA,
        )
        .constant(),
    ],
    max_outstanding: 1,
    needs_stream: true,
    start: |start, draws| Box::new(Video::new(start, draws)),
};

#[derive(Debug)]
struct Video {
    request: QuantityId,
    variation: QuantityId,
    /// Bits per second, ascending.
    ladder: Vec<f64>,
    segment: Span,
    history: usize,
    safety: f64,
    /// Seconds.
    reservoir: f64,
    cushion: f64,
    /// When the next segment is requested; none while one is awaited.
    due: Option<Instant>,
    /// Index of the chosen rate.
    rung: usize,
    /// Throughput of the latest segments, bits per second.
    throughputs: VecDeque<f64>,
    playback: Playback,
    segments: u64,
    switches: u64,
    /// Sum of the bit rates of all segments.
    bit_rates: f64,
}

/// The playback buffer.
#[derive(Debug)]
struct Playback {
    /// Video in a full buffer, and when playing starts.
    capacity: Span,
    startup: Span,
    level: Span,
    /// When `level` was right.
    at: Instant,
    /// Whether video is shown, and since when not.
    is_playing: bool,
    paused_at: Instant,
    startup_delay: Option<Span>,
    stalls: u64,
    stall_time: Span,
}

impl Playback {
    fn new(capacity: Span, startup: Span, start: Instant) -> Playback {
        Playback {
            capacity,
            startup,
            level: Span::ZERO,
            at: start,
            is_playing: false,
            paused_at: start,
            startup_delay: None,
            stalls: 0,
            stall_time: Span::ZERO,
        }
    }

    /// Plays until `now`, unless the buffer runs empty before.
    fn play(&mut self, now: Instant) {
        if self.is_playing {
            let played = now.since(self.at);
            if played > self.level {
                (self.is_playing, self.paused_at) = (false, self.at + self.level);
                self.stalls += 1;
            }
            self.level = self.level - played.min(self.level);
        }
        self.at = now;
    }

    /// Adds a segment that arrived at `now`.
    fn add(&mut self, segment: Span, now: Instant) {
        self.play(now);
        self.level += segment;
        let is_full = self.level + segment > self.capacity;
        if !self.is_playing && (self.level >= self.startup || is_full) {
            self.is_playing = true;
            let pause = now.since(self.paused_at);
            match self.startup_delay {
                None => self.startup_delay = Some(pause),
                Some(_) => self.stall_time += pause,
            }
        }
    }

    /// Returns how long to wait until a segment fits.
    fn until_room(&self, segment: Span) -> Span {
        let needed = self.level + segment;
        needed - needed.min(self.capacity)
    }
}

impl Video {
    fn new(start: Instant, draws: &Draws) -> Video {
        let span = |name: &str| Span::from_seconds(draws.constant(name));
        let ladder = draws.list("ladder");
        let first = draws.constant("start");
        Video {
            request: draws.id("request"),
            variation: draws.id("variation"),
            rung: ladder.iter().position(|rate| *rate == first).unwrap_or(0),
            ladder,
            segment: span("segment"),
            history: draws.constant("history") as usize,
            safety: draws.constant("safety"),
            reservoir: draws.constant("reservoir"),
            cushion: draws.constant("cushion"),
            due: Some(start),
            throughputs: VecDeque::new(),
            playback: Playback::new(span("maxBuffer"), span("startup"), start),
            segments: 0,
            switches: 0,
            bit_rates: 0.0,
        }
    }

    /// Returns the bytes of a segment at the chosen rate, without variation.
    fn nominal_bytes(&self) -> f64 {
        self.ladder[self.rung] * self.segment.as_s() / 8.0
    }

    /// Returns the index of the rate of the next segment.
    fn choose(&self) -> usize {
        if self.cushion > 0.0 { self.choose_by_buffer() } else { self.choose_by_throughput() }
    }

    fn choose_by_throughput(&self) -> usize {
        let inverse: f64 = self.throughputs.iter().map(|bps| 1.0 / bps).sum();
        let usable = self.safety * self.throughputs.len() as f64 / inverse;
        self.ladder.partition_point(|rate| *rate <= usable).saturating_sub(1)
    }

    /// Algorithm 1 of Huang et al. 2014.
    fn choose_by_buffer(&self) -> usize {
        let (level, highest) = (self.playback.level.as_s(), self.ladder.len() - 1);
        let (lowest_bps, highest_bps) = (self.ladder[0], self.ladder[highest]);
        let above = (level - self.reservoir) / self.cushion;
        if above <= 0.0 {
            return 0;
        }
        if above >= 1.0 {
            return highest;
        }
        let wanted = lowest_bps + above * (highest_bps - lowest_bps);
        let (lower, higher) = (self.rung.saturating_sub(1), (self.rung + 1).min(highest));
        if wanted >= self.ladder[higher] {
            self.ladder.partition_point(|rate| *rate < wanted).saturating_sub(1)
        } else if wanted <= self.ladder[lower] {
            self.ladder.partition_point(|rate| *rate <= wanted).min(highest)
        } else {
            self.rung
        }
    }
}

impl Model for Video {
    fn next(&mut self, draws: &mut Draws) -> Next {
        let Some(due) = self.due.take() else { return Next::Await };
        let item = Item::new(due, draws.size(self.request));
        let bytes = self.nominal_bytes() * draws.setting(self.variation);
        // Recorded as a share when it has arrived.
        let response = item.size.with_bytes(libm::round(bytes).clamp(1.0, f64::from(u32::MAX)) as u32);
        Next::Item(Item { response: Some(response), ..item })
    }

    fn feedback(&mut self, outcome: &Outcome, draws: &mut Draws) {
        let Some(bytes) = outcome.bytes else {
            self.due = Some(outcome.at);
            return;
        };
        draws.record(self.variation, f64::from(bytes) / self.nominal_bytes());
        self.segments += 1;
        self.bit_rates += self.ladder[self.rung];
        let seconds = outcome.at.since(outcome.sent_at).as_s().max(1e-9);
        self.throughputs.push_back(f64::from(bytes) * 8.0 / seconds);
        if self.throughputs.len() > self.history {
            self.throughputs.pop_front();
        }
        self.playback.add(self.segment, outcome.at);
        let rung = self.choose();
        self.switches += u64::from(rung != self.rung);
        self.rung = rung;
        self.due = Some(outcome.at + self.playback.until_room(self.segment));
    }

    fn gauges(&self) -> Vec<(&'static str, f64)> {
        vec![("bit_rate_bps", self.ladder[self.rung]), ("playback_buffer_s", self.playback.level.as_s())]
    }

    fn counters(&self) -> Vec<(&'static str, f64)> {
        let playback = &self.playback;
        let mut counters = vec![
            ("segments", self.segments as f64),
            ("switches", self.switches as f64),
            ("stalls", playback.stalls as f64),
            ("stall_time_us", playback.stall_time.as_us()),
        ];
        if self.segments > 0 {
            counters.push(("mean_bit_rate_bps", self.bit_rates / self.segments as f64));
        }
        counters.extend(playback.startup_delay.map(|delay| ("mean_startup_delay_us", delay.as_us())));
        counters
    }
}

#[cfg(test)]
mod tests {
    use trunkline_units::Seed;

    use super::super::Application;
    use super::*;

    /// Plays over a link of `bps(t)` with a round trip of 40 ms; returns the chosen rates with their times, and the counters.
    fn play(
        adaptation: &str,
        parameters: &[(&str, Variable)],
        seconds: u64,
        bps: impl Fn(f64) -> f64,
    ) -> (Vec<(f64, f64)>, std::collections::BTreeMap<&'static str, f64>) {
        let application = Application::named("video").unwrap();
        let parameters: Vec<_> =
            parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let mut draws = Draws::new(application, Some(adaptation), &parameters, Seed(3), "a-b").unwrap();
        let mut model = Video::new(Instant::ZERO, &draws);
        let mut rates = Vec::new();
        for request in 0.. {
            let Next::Item(item) = model.next(&mut draws) else { panic!("a request") };
            assert_eq!(model.next(&mut draws), Next::Await);
            if item.due >= Instant::ZERO + Span::from_s(seconds) {
                break;
            }
            rates.push((item.due.as_s(), model.ladder[model.rung]));
            let bytes = item.response.unwrap().bytes();
            let mut at = item.due + Span::from_ms(40);
            let mut bits = f64::from(bytes) * 8.0;
            while bits > 0.0 {
                bits -= bps(at.as_s()) * 0.001;
                at += Span::from_ms(1);
            }
            let outcome = Outcome {
                request,
                due: item.due,
                sent_at: item.due,
                at,
                bytes: Some(bytes),
                responded_at: at,
                received_bytes: 0,
            };
            model.feedback(&outcome, &mut draws);
        }
        (rates, model.counters().into_iter().collect())
    }

    fn between(rates: &[(f64, f64)], from: f64, to: f64) -> Vec<f64> {
        rates.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, rate)| *rate).collect()
    }

    #[test]
    fn the_bit_rate_on_a_link_that_halves_settles_at_the_rung_below_the_usable_throughput() {
        // 0.9 of 6 Mb/s is 5.4 Mb/s: 4.3 Mb/s. 0.9 of 3 Mb/s is 2.7 Mb/s: 2.35 Mb/s.
        let (rates, counters) = play("throughput", &[], 600, |t| if t < 300.0 { 6e6 } else { 3e6 });
        assert!(between(&rates, 30.0, 300.0).iter().all(|rate| *rate == 4.3e6), "{rates:?}");
        assert!(between(&rates, 330.0, 600.0).iter().all(|rate| *rate == 2.35e6), "{rates:?}");
        assert_eq!((counters["stalls"], counters["stall_time_us"]), (0.0, 0.0));
        let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / rates.len() as f64;
        assert!((counters["mean_bit_rate_bps"] / mean - 1.0).abs() < 1e-9);
        // The first segment: 4 s of 235 kb/s at 6 Mb/s, and a round trip.
        let first = 4.0 * 235e3 / 6e6 + 0.04;
        assert!((counters["mean_startup_delay_us"] / 1e6 / first - 1.0).abs() < 0.3, "{counters:?}");
    }

    #[test]
    fn the_buffer_decides_in_bba_0() {
        let (rates, counters) = play("buffer", &[], 3_000, |t| if t < 1_500.0 { 6e6 } else { 3e6 });
        // The lowest rate up to 90 s of video.
        assert!(between(&rates, 0.0, 3.0).iter().all(|rate| *rate == 235e3));
        // The buffer makes the mean rate that of the link; the rate stays between its two neighbours.
        assert!(between(&rates, 600.0, 1_500.0).iter().all(|r| [4.3e6, 5.8e6].contains(r)), "{rates:?}");
        let late = between(&rates, 2_200.0, 3_000.0);
        assert!(late.iter().all(|r| [2.35e6, 3e6, 4.3e6].contains(r)), "{late:?}");
        let mean = late.iter().sum::<f64>() / late.len() as f64;
        assert!((mean / 3e6 - 1.0).abs() < 0.1, "{mean}");
        assert_eq!(counters["stalls"], 0.0);
    }

    #[test]
    fn a_link_below_the_ladder_stalls_for_the_time_that_is_missing() {
        let parameters = [("variation", Variable::Constant(1.0))];
        let (rates, counters) = play("throughput", &parameters, 1_000, |_| 200e3);
        assert!(rates.iter().all(|(_, rate)| *rate == 235e3));
        // 4 s of video need 4.74 s: of 1000 s, 1000 · (1 − 4 / 4.74) are stalls.
        let expected = 1_000.0 * (1.0 - 4.0 / (4.0 * 235.0 / 200.0 + 0.04));
        assert!((counters["stall_time_us"] / 1e6 / expected - 1.0).abs() < 0.02, "{counters:?} {expected}");
        assert!((counters["stalls"] - counters["segments"] + 1.0).abs() <= 1.0, "{counters:?}");
        assert_eq!(counters["switches"], 0.0);
    }
}
