//! Runs are what their frames would be, one by one.

use proptest::prelude::*;

use super::*;

const LENGTH: u16 = 100;
const BYTES: u32 = 90;

/// What happens to frames.
#[derive(Clone, Copy, Debug)]
enum Step {
    Leave(u16),
    Arrived(u64),
    /// Behind a gap of so many, so many.
    ArrivedBehind(u64, u64),
    Again,
    AgainUnasked(u64),
    Overtaken,
    LoseAll,
    LoseOne(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u16..20).prop_map(Step::Leave),
        2 => (0u64..30).prop_map(Step::Arrived),
        3 => (1u64..20, 1u64..20).prop_map(|(gap, count)| Step::ArrivedBehind(gap, count)),
        3 => Just(Step::Again),
        1 => (0u64..20).prop_map(Step::AgainUnasked),
        2 => Just(Step::Overtaken),
        1 => Just(Step::LoseAll),
        1 => (0u64..20).prop_map(Step::LoseOne),
    ]
}

/// Frames in flight, and what they left behind: where the next is to lie, and the bytes that were freed.
struct Way {
    flights: Flights,
    runs: bool,
    laid: u32,
    forgotten: u32,
    freed: u32,
}

impl Way {
    fn new(runs: bool) -> Way {
        let mut flights = Flights::new(true);
        flights.number_from(7);
        Way { flights, runs, laid: 0, forgotten: 0, freed: 0 }
    }

    fn leave(&mut self, now: Instant, count: u16) {
        let run = if self.runs { count } else { 1 };
        for _ in (0..count).step_by(run.into()) {
            let (at, bytes) = (self.laid * u32::from(LENGTH), u32::from(run) * BYTES);
            let laid = Laid { sheet: 0, at, bytes, channel: 3, count: run, length: LENGTH };
            self.flights.leave_run(now, laid, LENGTH - 8);
            self.laid += u32::from(run);
        }
    }

    fn forget(&mut self, cumulative: u64, news: &mut News) {
        while let Some(load) = self.flights.forget_first(cumulative, news) {
            let Load::Laid(laid) = load else { panic!("all were laid out") };
            assert_eq!(laid.at, self.forgotten * u32::from(LENGTH), "in order, each once");
            self.forgotten += u32::from(laid.count);
            self.freed += laid.bytes;
        }
    }

    /// What one step shows.
    fn take(&mut self, now: Instant, step: Step) -> String {
        let (mut news, mut missing, mut next) = (News::default(), Missing::default(), None);
        let (base, unsent) = (self.flights.base(), self.flights.unsent());
        match step {
            Step::Leave(count) if !self.flights.has_lost() => self.leave(now, count),
            Step::Leave(_) => {}
            Step::Arrived(count) => self.forget((base + count).min(unsent), &mut news),
            Step::ArrivedBehind(gap, count) => {
                self.flights.acknowledge(base + gap, (base + gap + count).min(unsent), &mut news);
            }
            Step::Again => {
                if let Some(number) = self.flights.due() {
                    self.flights.leave(now, number, LENGTH.into());
                }
            }
            Step::AgainUnasked(ahead) => {
                if self.flights.sent_at(base + ahead).is_some() {
                    self.flights.leave(now, base + ahead, LENGTH.into());
                }
            }
            Step::Overtaken => {
                next = self.flights.find_lost(now, 3, Span::from_us(40), &mut missing);
            }
            Step::LoseAll => self.flights.lose_all(&mut missing),
            Step::LoseOne(ahead) => self.flights.lose_one(base + ahead, &mut missing),
        }
        let rate = self.flights.take_stock(now, &news, Span::from_us(1), Span::from_us(20));
        format!("{news:?} {missing:?} {next:?} {rate:?}")
    }

    /// What is known of each frame.
    fn known(&self) -> Vec<(State, u8, Option<Instant>, u32)> {
        let flights = &self.flights;
        let of = |number| {
            let flight = flights.get(number).unwrap();
            let Load::Laid(laid) = &flight.load else { panic!("all were laid out") };
            let at = laid.after(number - flight.first).at;
            (flight.state, flight.transmissions, flights.sent_at(number), at)
        };
        (flights.base()..flights.next()).map(of).collect()
    }
}

proptest! {
    #[test]
    fn a_run_is_its_frames(steps in prop::collection::vec(step(), 1..120)) {
        let (mut runs, mut singles) = (Way::new(true), Way::new(false));
        for (time, step) in steps.into_iter().enumerate() {
            let now = Instant::from_ns(10_000 * (1 + time as u64));
            prop_assert_eq!(runs.take(now, step), singles.take(now, step), "{:?}", step);
            prop_assert_eq!(runs.known(), singles.known(), "{:?}", step);
            let of = |way: &Way| {
                let flights = &way.flights;
                (flights.in_flight(), flights.due(), flights.unsent(), flights.last_in_flight())
            };
            prop_assert_eq!(of(&runs), of(&singles), "{:?}", step);
            // Bytes are freed no sooner than their frames are forgotten.
            prop_assert!(runs.freed <= singles.freed && singles.freed == BYTES * singles.forgotten);
            // There is a record for no more than each frame, and none is lost.
            let (records, free) = (runs.flights.records.len(), runs.flights.free.len());
            prop_assert!(records - free <= runs.flights.ring.len());
        }
        let end = runs.flights.unsent();
        for way in [&mut runs, &mut singles] {
            way.forget(end, &mut News::default());
            prop_assert!(way.flights.is_empty() && way.flights.in_flight() == 0);
            prop_assert_eq!(way.freed, BYTES * way.laid);
            prop_assert_eq!(way.flights.records.len(), way.flights.free.len());
        }
    }
}
