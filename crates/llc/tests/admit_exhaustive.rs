//! The bound against every schedule of small rings: whatever stations choose to send at each visit, and whenever messages
//! come, nothing takes longer; and something takes nearly as long.
//!
//! The ring here is an independent model of a few lines: a visit takes the frame that is chosen, and the token. An octet takes a
//! picosecond.

use trunkline_llc::admit::{Network, Station, TrafficContract, delays, rotation};
use trunkline_llc::token::{Line, Options};
use trunkline_units::{Rate, Span};

const TOKEN: u64 = 46;
const WINDOW: u64 = 2 * TOKEN;

/// Frames that a station may choose, in octets with their head; zero: none such.
#[derive(Clone, Copy, Debug)]
struct Choice {
    urgent: u64,
    limited: u64,
}

fn network(choices: &[Choice], target: u64) -> Network {
    let line = Line {
        rate: Rate::from_bps(8_000_000_000_000),
        overhead: 0,
        smallest: 0,
        hop: Span::ZERO,
        switched: false,
    };
    let mut options = Options::for_line(&line, 8, 2_000);
    // One window at the most in what is looked at, of two slots.
    (options.window_interval, options.invited_per_window) = (Span::from_s(1), 1);
    assert_eq!(options.window().as_ps(), WINDOW);
    options.rotation_targets[..4].fill(Span::from_ps(target));
    let background = |choice: &Choice| (choice.limited > 0).then(|| choice.limited as u32 - 3);
    let station = |(at, choice): (usize, &Choice)| Station {
        number: at as u8 + 1,
        max_background_octets: background(choice),
    };
    Network { line, options, stations: choices.iter().enumerate().map(station).collect(), lost: 0, dead: 0 }
}

/// A partial schedule: the moments at which each visit began.
struct Schedules<'a> {
    choices: &'a [Choice],
    target: u64,
    visits: usize,
    came: Vec<u64>,
    longest: u64,
}

impl Schedules<'_> {
    /// All ways to go on from `now`.
    fn walk(&mut self, now: u64, windows: u32) {
        let (n, at) = (self.choices.len(), self.came.len());
        let rotation = at.checked_sub(n).map(|before| now - self.came[before]);
        self.longest = self.longest.max(rotation.unwrap_or(0));
        if at == self.visits {
            return;
        }
        let Choice { urgent, limited } = self.choices[at % n];
        self.came.push(now);
        // Before the first visits lies an idle rotation.
        let may = rotation.unwrap_or(now + (n - at.min(n)) as u64 * TOKEN) < self.target;
        for window in 0..=u32::from(at % n == 0).min(windows) {
            let decided = now + WINDOW * u64::from(window);
            for frame in [Some(0), Some(urgent), may.then_some(limited)].into_iter().flatten() {
                self.walk(decided + frame + TOKEN, windows - window);
            }
        }
        self.came.pop();
    }
}

#[test]
fn no_rotation_takes_longer() {
    let (mut reached, mut least) = (0, f64::MAX);
    for (urgents, limiteds) in [
        ([100, 100, 100], [0, 0, 0]),
        ([100, 100, 100], [400, 400, 400]),
        ([50, 200, 30], [300, 0, 500]),
        ([0, 0, 60], [700, 700, 0]),
        ([300, 10, 0], [200, 200, 200]),
    ] {
        for target in [100, 200, 350, 700, 3_000] {
            let choices: Vec<Choice> =
                urgents.iter().zip(limiteds).map(|(&urgent, limited)| Choice { urgent, limited }).collect();
            let network = network(&choices, target);
            let contract = |(at, choice): (usize, &Choice)| TrafficContract {
                station: at as u8 + 1,
                priority: 7,
                octets: choice.urgent as u32 - 3,
                period: Span::from_s(1),
                deadline: Span::MAX,
            };
            let urgent = choices.iter().enumerate().filter(|(_, choice)| choice.urgent > 0);
            let contracts: Vec<TrafficContract> = urgent.map(contract).collect();
            let bound = rotation(&network, &contracts).unwrap().as_ps();
            let mut all = Schedules { choices: &choices, target, visits: 8, came: Vec::new(), longest: 0 };
            all.walk(0, 1);
            assert!(all.longest <= bound, "{choices:?}, target {target}: {} of {bound}", all.longest);
            reached += u32::from(all.longest == bound);
            least = least.min(all.longest as f64 / bound as f64);
        }
    }
    // In three of five rings the bound is met to the picosecond; it is loose where few limited frames fill a target.
    assert!(reached >= 15 && least > 0.6, "{reached} reached, else {least} of the bound at the least");
}

/// Station 1 of two with streams of messages, and a neighbour that sends whatever it likes.
struct Arrivals<'a> {
    choices: [Choice; 2],
    target: u64,
    /// First message, period, frame; the most urgent first. The last is the one that is looked at.
    streams: &'a [(u64, u64, u64)],
    longest: u64,
}

impl Arrivals<'_> {
    /// All ways to go on from a visit of station 1 at `now`; `sent` messages of each stream are gone, and `before` and
    /// `beside` are when it and its neighbour were last visited.
    fn walk(&mut self, now: u64, sent: &[u64; 3], before: u64, beside: u64, windows: u32, visits: u32) {
        if visits == 0 {
            return;
        }
        for window in 0..=windows.min(1) {
            let decided = now + WINDOW * u64::from(window);
            let waits = |at: &usize| self.streams[*at].0 + self.streams[*at].1 * sent[*at] <= decided;
            let (mut sent, mut frame) = (*sent, 0);
            if let Some(at) = (0..self.streams.len()).find(waits) {
                let (first, period, takes) = self.streams[at];
                if at == self.streams.len() - 1 {
                    self.longest = self.longest.max(decided + takes - (first + period * sent[at]));
                }
                sent[at] += 1;
                frame = takes;
            } else if now - before < self.target {
                frame = self.choices[0].limited;
            }
            let there = decided + frame + TOKEN;
            let Choice { urgent, limited } = self.choices[1];
            let may = there - beside < self.target;
            for frame in [Some(0), Some(urgent), may.then_some(limited)].into_iter().flatten() {
                self.walk(there + frame + TOKEN, &sent, now, there, windows - window, visits - 1);
            }
        }
    }
}

#[test]
fn no_message_waits_longer() {
    let (mut least, mut most): (f64, f64) = (f64::MAX, 0.0);
    let choices = [Choice { urgent: 0, limited: 150 }, Choice { urgent: 120, limited: 300 }];
    let cases: [&[(u64, u64)]; 5] = [
        &[(5_000, 80)],
        &[(1_500, 50), (4_000, 80)],
        &[(2_500, 50), (2_500, 50), (6_000, 100)],
        // Several messages of its stream are outstanding: the first is not the one that waits longest.
        &[(1_100, 100), (1_150, 100)],
        &[(800, 20), (3_500, 60)],
    ];
    for streams in cases {
        for target in [100, 400] {
            let network = network(&choices, target);
            let contract = |station, octets: u64, period| TrafficContract {
                station,
                priority: 7,
                octets: octets as u32 - 3,
                period: Span::from_ps(period),
                deadline: Span::MAX,
            };
            let mut contracts: Vec<TrafficContract> =
                streams.iter().map(|(period, frame)| contract(1, *frame, *period)).collect();
            contracts.push(contract(2, 120, 1_000_000));
            let Ok(bounds) = delays(&network, &contracts) else { panic!("{streams:?} has bounds") };
            let bound = bounds[streams.len() - 1].as_ps();
            let mut longest = 0;
            let steps: &[u64] = if streams.len() == 3 {
                &[1, 150, 300, 700]
            } else {
                &[0, 1, 47, 100, 200, 300, 400, 550, 700]
            };
            let offsets = (0..steps.len().pow(streams.len() as u32)).map(|code| {
                (0..streams.len()).map(move |at| steps[code / steps.len().pow(at as u32) % steps.len()])
            });
            for offsets in offsets {
                let streams: Vec<_> = streams
                    .iter()
                    .zip(offsets)
                    .map(|((period, frame), first)| (first, *period, *frame))
                    .collect();
                let mut all = Arrivals { choices, target, streams: &streams, longest: 0 };
                all.walk(2 * TOKEN, &[0; 3], 0, TOKEN, 1, 6);
                longest = longest.max(all.longest);
            }
            assert!(longest <= bound, "{streams:?}, target {target}: {longest} of {bound}");
            let share = longest as f64 / bound as f64;
            (least, most) = (least.min(share), most.max(share));
        }
    }
    // Nearly reached by one message; several rotations are not all as slow as one can be.
    assert!(least > 0.5 && most > 0.99, "{least} to {most}");
}
