//! Frames in shared flights behave like frames in separate flights.

use proptest::prelude::*;

use super::*;

const LENGTH: u16 = 100;
const BYTES: u32 = 90;

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u16),
    Ack(u64),
    /// Gap, and number of frames acknowledged after it.
    AckAfterGap(u64, u64),
    Retransmit,
    Resend(u64),
    DetectLost,
    LoseAll,
    LoseOne(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u16..20).prop_map(Step::Send),
        2 => (0u64..30).prop_map(Step::Ack),
        3 => (1u64..20, 1u64..20).prop_map(|(gap, count)| Step::AckAfterGap(gap, count)),
        3 => Just(Step::Retransmit),
        1 => (0u64..20).prop_map(Step::Resend),
        2 => Just(Step::DetectLost),
        1 => Just(Step::LoseAll),
        1 => (0u64..20).prop_map(Step::LoseOne),
    ]
}

/// Frames in flight with their bookkeeping: offset of the next frame, and bytes freed.
struct Model {
    flights: Flights,
    batched: bool,
    encoded: u32,
    popped: u32,
    freed: u32,
}

impl Model {
    fn new(batched: bool) -> Model {
        let mut flights = Flights::new(true);
        flights.set_first_number(7);
        Model { flights, batched, encoded: 0, popped: 0, freed: 0 }
    }

    fn send(&mut self, now: Instant, count: u16) {
        let batch = if self.batched { count } else { 1 };
        for _ in (0..count).step_by(batch.into()) {
            let (at, bytes) = (self.encoded * u32::from(LENGTH), u32::from(batch) * BYTES);
            let encoded =
                EncodedFrames { buffer: 0, offset: at, bytes, channel: 3, count: batch, length: LENGTH };
            self.flights.send_encoded(now, encoded, LENGTH - 8);
            self.encoded += u32::from(batch);
        }
    }

    fn resend(&mut self, now: Instant, number: u64) {
        self.flights.send(now, number, LENGTH.into());
        let stored = self.flights.get(number).unwrap().counts.in_flight;
        assert_eq!(stored, self.flights.in_flight(), "with the frame, once");
    }

    fn acknowledge(&mut self, cumulative: u64, summary: &mut AckSummary) {
        while let Some(content) = self.flights.pop_acknowledged(cumulative, summary) {
            let FrameContent::Encoded(encoded) = content else { panic!("all frames are encoded") };
            assert_eq!(encoded.offset, self.popped * u32::from(LENGTH), "in order, each once");
            self.popped += u32::from(encoded.count);
            self.freed += encoded.bytes;
        }
    }

    /// Executes one step; returns what it reports.
    fn execute(&mut self, now: Instant, step: Step) -> String {
        let (mut summary, mut lost, mut next) = (AckSummary::default(), LossSummary::default(), None);
        let (base, unsent) = (self.flights.base(), self.flights.unsent());
        match step {
            Step::Send(count) if !self.flights.has_lost() => self.send(now, count),
            Step::Send(_) => {}
            Step::Ack(count) => self.acknowledge((base + count).min(unsent), &mut summary),
            Step::AckAfterGap(gap, count) => {
                self.flights.acknowledge(base + gap, (base + gap + count).min(unsent), &mut summary);
            }
            Step::Retransmit => {
                if let Some(number) = self.flights.next_to_send() {
                    self.resend(now, number);
                }
            }
            Step::Resend(ahead) => {
                if self.flights.sent_at(base + ahead).is_some() {
                    self.resend(now, base + ahead);
                }
            }
            Step::DetectLost => {
                next = self.flights.detect_lost(now, 3, Span::from_us(40), &mut lost);
            }
            Step::LoseAll => self.flights.mark_all_lost(&mut lost),
            Step::LoseOne(ahead) => {
                if self.flights.sent_at(base + ahead).is_some() {
                    self.flights.mark_lost(base + ahead, &mut lost);
                }
            }
        }
        let rate = self.flights.update_delivery(now, &summary, Span::from_us(1), Span::from_us(20));
        format!("{summary:?} {lost:?} {next:?} {rate:?}")
    }

    fn frame_states(&self) -> Vec<(FlightState, u8, Option<Instant>, u32)> {
        let flights = &self.flights;
        let of = |number| {
            let flight = flights.get(number).unwrap();
            let FrameContent::Encoded(encoded) = &flight.content else { panic!("all frames are encoded") };
            let at = encoded.nth(number - flight.first).offset;
            (flight.state, flight.transmissions, flights.sent_at(number), at)
        };
        (flights.base()..flights.next()).map(of).collect()
    }
}

proptest! {
    #[test]
    fn shared_flights_behave_like_single_frames(steps in prop::collection::vec(step(), 1..120)) {
        let (mut batched, mut singles) = (Model::new(true), Model::new(false));
        for (time, step) in steps.into_iter().enumerate() {
            let now = Instant::from_ns(10_000 * (1 + time as u64));
            prop_assert_eq!(batched.execute(now, step), singles.execute(now, step), "{:?}", step);
            prop_assert_eq!(batched.frame_states(), singles.frame_states(), "{:?}", step);
            let of = |model: &Model| {
                let flights = &model.flights;
                (flights.in_flight(), flights.next_to_send(), flights.unsent(), flights.last_in_flight())
            };
            prop_assert_eq!(of(&batched), of(&singles), "{:?}", step);
            // Bytes are freed no earlier than their frames.
            prop_assert!(batched.freed <= singles.freed && singles.freed == BYTES * singles.popped);
            // There are at most as many flights as frames, and none leaks.
            let (flights, free) = (batched.flights.flights.len(), batched.flights.free_indices.len());
            prop_assert!(flights - free <= batched.flights.index_of.len());
        }
        let end = batched.flights.unsent();
        for model in [&mut batched, &mut singles] {
            model.acknowledge(end, &mut AckSummary::default());
            prop_assert!(model.flights.is_empty() && model.flights.in_flight() == 0);
            prop_assert_eq!(model.freed, BYTES * model.encoded);
            prop_assert_eq!(model.flights.flights.len(), model.flights.free_indices.len());
        }
    }
}
