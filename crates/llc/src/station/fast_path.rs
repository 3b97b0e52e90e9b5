//! The fast path. Usually a message is sent, or a frame arrives, when no other output or event is pending, so its
//! result is the next thing to be polled. Then the result is returned directly from the call: a datagram is not
//! stored, and an acknowledged message, an acknowledgement or an event enters no queue. Frames, counters and events
//! equal those of the slow path, [`Station::send`] or [`Station::take_from`] with polls; a test below compares both.
//!
//! A frame that equals the predicted one is not decoded: its result is known.

use trunkline_units::Instant;

use super::Station;
use super::effect::{Coming, Effect, checked, crc_of};
use crate::api::{Event, Outcome, Received, Refusal, Ticket};
use crate::wire::{
    AC0, Address, CRC, CommandStatus, Kind, MAX_INFORMATION, MAX_PRIORITY, NUMBER, POLL, Pdu, RESPONSE,
    ResponseStatus, Status,
};

/// The predicted next frame (header prediction, Jacobson, *Design Notes on Fast TCP*, 1990). It saves decoding and
/// lookups, so it must follow every change of the state that it was made from.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The response that ends an outstanding message.
    answer: Option<Answer>,
    /// The next command of the last receive sequence, valid while nothing else has changed that sequence.
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    station: u8,
    frame: [u8; ANSWER],
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    station: u8,
    /// Header without the information.
    head: [u8; 4],
    /// Its receive sequence.
    heard: u32,
}

impl Expected {
    /// Predicts the response to a command that was sent in this frame, if its sequence needs no resynchronization.
    #[inline]
    fn answer_to(&mut self, station: u8, frame: &[u8], slot: u32) {
        if let Some(head) = frame.first_chunk()
            && head[3] & POLL == 0
        {
            self.answer = Some(Answer { station, frame: answer_to(*head), slot });
        }
    }

    /// Removes the prediction if its message has ended.
    #[inline]
    pub fn forget_answer(&mut self) {
        self.answer = None;
    }

    /// Predicts the next command, which has the other sequence number.
    #[inline]
    pub fn command_after(&mut self, received: &Received, number: bool, heard: u32) {
        let head = [received.priority, received.to, received.from.sap, AC0 | if number { 0 } else { NUMBER }];
        self.command = Some(Command { station: received.from.station, head, heard });
    }
}

/// Length of a response.
const ANSWER: usize = 5;

/// Returns the response to an accepted command with this header without the poll bit.
#[inline]
fn answer_to([level, dsap, ssap, control]: [u8; 4]) -> [u8; ANSWER] {
    const OK: u8 = Status { command: CommandStatus::Ok, response: ResponseStatus::NotRequested }.octet();
    [level, ssap, dsap | RESPONSE, control ^ NUMBER, OK]
}

/// Result of sending a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// Queued; poll for output.
    Not,
    /// Sent in a frame of this length, or preceded by a resynchronization; waits for a response.
    Away(usize),
    /// Sent in a frame of this length and ended; no event follows.
    Done(usize),
}

/// Result of processing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastPathResult {
    pub what: FastPathOutput,
    /// Length of the response frame; 0: none.
    pub answer: usize,
    /// Whether there is output to poll.
    pub more: bool,
}

/// Direct output of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPathOutput {
    Nothing,
    /// An event.
    Event(Event),
    /// A message of this length behind the PDU header. It is not queued because its SAP is waited on;
    /// [`Station::last_delivered`] returns the rest.
    Message(usize),
}

impl Station {
    /// Returns the last directly delivered message without its content.
    #[cfg(feature = "sockets")]
    #[inline]
    pub(crate) fn last_delivered(&self) -> Received {
        self.handed
    }

    /// Returns whether no output or event is pending.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.turns.levels() | self.answers.levels() == 0 && self.news.is_empty()
    }

    /// Sends a message and writes its frame into `buffer` if nothing is queued before it.
    #[inline]
    pub(crate) fn send_fast(
        &mut self,
        now: Instant,
        number: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        buffer: &mut [u8],
    ) -> Result<(Ticket, SendResult), Refusal> {
        if !self.is_quiet() {
            return Ok((self.send(now, number, to, bytes, priority)?, SendResult::Not));
        }
        let form @ (kind, level, crc) = self.check_send(number, to, bytes, priority)?;
        if kind == Kind::Ui {
            let pdu =
                Pdu { dsap: to.sap, ssap: number, response: false, kind, poll: false, information: bytes };
            buffer[0] = level;
            let mut length = 1 + pdu.write(&mut buffer[1..]);
            if crc {
                buffer[length..length + CRC].copy_from_slice(&crc_of(bytes).to_be_bytes());
                length += CRC;
            }
            self.answered &= !(1 << level);
            self.last = (number, 1);
            self.count(kind, level);
            self.statistics.done += 1;
            return Ok((self.next_ticket(), SendResult::Done(length)));
        }
        let slot = self.store_message(now, number, form, to, bytes);
        let ticket = self.messages[slot].ticket;
        if !self.enter_sequence(slot) {
            return Ok((ticket, SendResult::Not));
        }
        self.answered &= !(1 << level);
        self.last = (0, 0);
        let length = self.put(now, slot, buffer);
        self.expected.answer_to(to.station, &buffer[..length], slot);
        Ok((ticket, SendResult::Away(length)))
    }

    /// Processes a predicted frame.
    #[inline(always)]
    fn predict(
        &mut self,
        now: Instant,
        station: u8,
        frame: &[u8],
        wanted: Option<u8>,
        buffer: &mut [u8],
    ) -> Option<FastPathResult> {
        if let Some(answer) = self.expected.answer
            && answer.station == station
            && frame.try_into().is_ok_and(|frame: [u8; ANSWER]| frame == answer.frame)
        {
            self.statistics.received.ac_responses += 1;
            self.statistics.levels[usize::from(answer.frame[0] & MAX_PRIORITY)].received += 1;
            let coming_output = self.end_fast(now, answer.slot, Outcome::Done);
            return Some(FastPathResult { what: coming_output, answer: 0, more: !self.is_quiet() });
        }
        let Some(Command { station: of, head: next, heard }) = &mut self.expected.command else {
            return None;
        };
        let (&head, information) = frame.split_first_chunk()?;
        if (*of, *next) != (station, head) || information.len() > MAX_INFORMATION {
            return None;
        }
        let [level, dsap, ssap, control] = head;
        let sap = self.saps[usize::from(dsap >> 1)].as_deref()?;
        let message = checked(sap.options.crc, information).filter(|_| sap.has_receive_space())?;
        let heard = *heard;
        next[3] ^= NUMBER;
        self.statistics.received.ac += 1;
        self.statistics.sent.ac_responses += 1;
        let counts = &mut self.statistics.levels[usize::from(level & MAX_PRIORITY)];
        (counts.received, counts.sent) = (counts.received + 1, counts.sent + 1);
        buffer[..ANSWER].copy_from_slice(&answer_to(head));
        self.answered |= 1 << level;
        self.last = (0, 0);
        let from = Address { sap: ssap, station };
        let received = Received { from, to: dsap, priority: level, acknowledged: true, at: now };
        let coming = self.accept(heard, control & NUMBER != 0, received, Some(message), wanted);
        Some(FastPathResult { what: to_output(dsap, coming), answer: ANSWER, more: false })
    }

    /// Processes a frame of a station, 1 to 254. Output is returned directly if nothing is queued before it, as is
    /// the only message of the SAP that is `wanted`; an acknowledgement is written into `buffer`.
    #[inline]
    pub(crate) fn receive_fast(
        &mut self,
        now: Instant,
        station: u8,
        frame: &[u8],
        wanted: Option<u8>,
        buffer: &mut [u8],
    ) -> FastPathResult {
        if !self.is_quiet() {
            self.take_from(now, station, frame);
            return FastPathResult { what: FastPathOutput::Nothing, answer: 0, more: true };
        }
        if let Some(handed) = self.predict(now, station, frame, wanted, buffer) {
            return handed;
        }
        let (what, answer) = match self.process_frame(now, station, frame, wanted) {
            Effect::Nothing => (FastPathOutput::Nothing, 0),
            Effect::Ends(slot, outcome) => (self.end_fast(now, slot, outcome), 0),
            Effect::Comes(sap, coming) => (to_output(sap, coming), 0),
            Effect::Answers(answer, coming) => {
                self.answered |= 1 << answer.level;
                self.last = (0, 0);
                (to_output(answer.ssap, coming), self.write_acknowledgement(&answer, buffer))
            }
        };
        FastPathResult { what, answer, more: !self.is_quiet() }
    }

    /// Ends a message and returns its event.
    #[inline(always)]
    fn end_fast(&mut self, now: Instant, slot: u32, outcome: Outcome) -> FastPathOutput {
        let number = self.messages[slot].sap;
        let Some(event) = self.finish(now, slot, outcome) else { return FastPathOutput::Nothing };
        if let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() {
            sap.places -= 1;
            if sap.has_events() {
                self.schedule_event_poll(number);
            }
        }
        FastPathOutput::Event(event)
    }
}

/// Converts a received item of a SAP to direct output.
#[inline(always)]
fn to_output(sap: u8, coming: Coming) -> FastPathOutput {
    match coming {
        Coming::Nothing => FastPathOutput::Nothing,
        Coming::First => FastPathOutput::Event(Event::Readable { sap }),
        Coming::Handed(octets) => FastPathOutput::Message(octets.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_endpoint::{Endpoint, Input, Port};
    use trunkline_units::Span;

    use super::*;
    use crate::Options;
    use crate::api::Command;
    use crate::station::Config;
    use crate::wire::{ALL, GLOBAL_SAP};

    const SAPS: [u8; 4] = [2, 4, 6, 8];
    const ROOM: usize = 2048;

    /// Two stations with the same input: one that never uses the fast path, and one that uses it where possible.
    struct StationPair {
        long: Station,
        short: Station,
        now: Instant,
        /// The last acknowledged command and its destination.
        asked: Option<(u8, Vec<u8>)>,
        /// Uses of the fast path for sending and receiving.
        went: (usize, usize),
    }

    fn station() -> Station {
        let mut station = Station::new(Config { sequences: 3, ..Config::new(Port(0), 1) });
        let limited = Options {
            queue: 2,
            tries: 2,
            send_limit: Span::from_ms(3),
            crc: true,
            ..Options::acknowledged(2)
        };
        let all = [
            Options { groups: vec![0x11], ..Options::default() },
            Options { queue: 3, ..Options::acknowledged(5) },
            Options { queue: 2, crc: true, send_limit: Span::from_ms(3), priority: 5, ..Options::default() },
            limited,
        ];
        for (sap, options) in SAPS.into_iter().zip(&all) {
            station.open(sap, options).expect("it opens");
        }
        station
    }

    impl StationPair {
        /// Returns the next frame of the slow path.
        fn transmit(&mut self) -> (u8, Vec<u8>) {
            let mut room = [0; ROOM];
            let transmit = self.long.transmit(self.now, &mut room).expect("it leaves the long way, too");
            (transmit.peer.as_bytes()[0], room[..transmit.length].to_vec())
        }

        fn note(&mut self, to: u8, frame: &[u8]) {
            if frame[3] & 0x6F == 0x67 && frame[2] & 1 == 0 {
                self.asked = Some((to, frame.to_vec()));
            }
        }

        fn send(&mut self, sap: u8, to: Address, bytes: &[u8], priority: Option<u8>, fails: bool) {
            let mut room = [0; ROOM];
            let sent = self.short.send_fast(self.now, sap, to, bytes, priority, &mut room);
            let also = self.long.send(self.now, sap, to, bytes, priority);
            assert_eq!(sent.map(|(ticket, _)| ticket), also);
            let Ok((ticket, SendResult::Away(length) | SendResult::Done(length))) = sent else { return };
            self.went.0 += 1;
            assert_eq!(self.long.event(), None);
            assert_eq!(self.transmit(), (to.station, room[..length].to_vec()));
            self.note(to.station, &room[..length]);
            if fails {
                for station in [&mut self.short, &mut self.long] {
                    station.handle(self.now, Input::Command(Command::Unsent { frames: 1 })).unwrap();
                }
            }
            if matches!(sent, Ok((_, SendResult::Done(_)))) {
                let outcome = if fails { Outcome::Failed } else { Outcome::Done };
                let told = Event::Sent { sap, ticket, outcome, tries: 1, took: Span::ZERO };
                assert_eq!(self.long.event(), Some(told));
            }
        }

        fn take(&mut self, station: u8, frame: &[u8], wanted: Option<u8>) {
            let mut room = [0; ROOM];
            let handed = self.short.receive_fast(self.now, station, frame, wanted, &mut room);
            self.long.take_from(self.now, station, frame);
            match handed.what {
                FastPathOutput::Nothing => {}
                FastPathOutput::Event(event) => assert_eq!(self.long.event(), Some(event)),
                FastPathOutput::Message(octets) => {
                    let sap = wanted.expect("only awaited messages are delivered directly");
                    assert_eq!(self.long.event(), Some(Event::Readable { sap }));
                    let mut also = Vec::new();
                    assert_eq!(self.long.take(sap, &mut also), Ok(Some(self.short.handed)));
                    assert_eq!((&frame[4..][..octets], self.long.readable(sap)), (&also[..], 0));
                }
            }
            if handed.answer > 0 {
                assert_eq!(self.long.event(), None);
                assert_eq!(self.transmit(), (station, room[..handed.answer].to_vec()));
            }
            self.went.1 += usize::from(handed.what != FastPathOutput::Nothing || handed.answer > 0);
            assert_eq!(handed.more, !self.long.is_quiet());
        }

        /// Polls both stations once; returns whether they had output.
        fn poll(&mut self) -> bool {
            let event = self.long.event();
            assert_eq!(self.short.event(), event);
            if event.is_some() {
                return true;
            }
            let mut rooms = [[0; ROOM]; 2];
            let long = self.long.transmit(self.now, &mut rooms[0]);
            let short = self.short.transmit(self.now, &mut rooms[1]);
            assert_eq!((long, rooms[0]), (short, rooms[1]));
            if let Some(transmit) = long {
                self.note(transmit.peer.as_bytes()[0], &rooms[0][..transmit.length]);
            }
            long.is_some()
        }

        /// Compares the observable state of both stations.
        fn compare(&mut self) {
            let StationPair { long, short, .. } = self;
            assert_eq!(short.statistics(), long.statistics());
            assert_eq!((short.deadline(), short.sequences()), (long.deadline(), long.sequences()));
            for sap in SAPS {
                assert_eq!(
                    (short.waiting(sap), short.readable(sap)),
                    (long.waiting(sap), long.readable(sap))
                );
            }
        }

        fn step(&mut self, [what, a, b, c]: [u8; 4]) {
            let sap = SAPS[usize::from(a % 4)];
            let peer = 7 + c % 3;
            match what % 12 {
                0..4 => {
                    let to = match b % 8 {
                        0 => Address { sap: GLOBAL_SAP, station: ALL },
                        1 => Address { sap: 0, station: peer },
                        _ => Address { sap: 4 + 2 * (b % 2), station: peer },
                    };
                    let priority = (c & 0x30 == 0).then_some(c & 7);
                    self.send(sap, to, &[b; 300][..usize::from(b)], priority, c & 0xC0 == 0);
                }
                // A correct or slightly wrong response.
                4 | 5 => {
                    if let Some((to, mut frame)) = self.asked.take() {
                        (frame[1], frame[2]) = (frame[2], frame[1] | 1);
                        frame[3] ^= if c == 0 { 0 } else { 0x80 };
                        frame.truncate(4);
                        frame.push([0x40, 0x40, 0x40, 0x49, 0x41, 0x4F, 0x42, 0x40][usize::from(b % 8)]);
                        self.take(to, &frame, None);
                    }
                }
                6 | 7 => {
                    let control = [0x03, 0x67, 0xE7, 0x77, 0xF7, 0xF3, 0xBF, 0x00][usize::from(b % 8)];
                    let to = [sap, sap, sap, 0x11, GLOBAL_SAP, 0, 10][usize::from(b / 8 % 7)];
                    let from = 4 + u8::from(c & 0x40 != 0);
                    let frame = [c & 7, to, from, control, b, c];
                    let cut = if c & 0x38 == 0 { usize::from(a % 7) } else { 6 };
                    let wanted = (c & 0x80 == 0).then_some(SAPS[usize::from(c % 4)]);
                    self.take(peer, &frame[..cut.min(frame.len())], wanted);
                }
                8 => {
                    let mut got: [(Option<Received>, Vec<u8>); 2] = Default::default();
                    got[0].0 = self.long.take(sap, &mut got[0].1).unwrap();
                    got[1].0 = self.short.take(sap, &mut got[1].1).unwrap();
                    assert_eq!(got[0], got[1]);
                }
                9 => drop(self.poll()),
                10 => while self.poll() {},
                _ => {
                    self.now += Span::from_us(u64::from(b) * 100);
                    for station in [&mut self.short, &mut self.long] {
                        station.handle(self.now, Input::Wake).unwrap();
                    }
                }
            }
            self.compare();
        }
    }

    proptest! {
        #[test]
        fn the_fast_path_equals_the_general_path(steps in proptest::collection::vec(any::<[u8; 4]>(), 1..400)) {
            let mut two =
                StationPair { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
            for step in steps {
                two.step(step);
            }
            while two.poll() {}
            two.compare();
        }
    }

    #[test]
    fn a_message_taken_before_its_event_leaves_no_event() {
        let mut two =
            StationPair { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
        let to = Address { sap: 4, station: 9 };
        for station in [&mut two.short, &mut two.long] {
            station.send(two.now, 2, to, b"a datagram", None).unwrap();
        }
        assert!(two.poll(), "the datagram is transmitted");
        // Its event is pending, so the fast path does not apply.
        two.take(9, &[5, 2, 4, 0x03, 1], None);
        let mut content = Vec::new();
        for station in [&mut two.short, &mut two.long] {
            assert!(station.take(2, &mut content).unwrap().is_some());
        }
        while two.poll() {}
        two.take(9, &[5, 2, 4, 0x03, 2], None);
        // The second message was reported directly. Another event of the SAP must not report it again.
        for station in [&mut two.short, &mut two.long] {
            station.send(two.now, 2, to, b"a datagram", None).unwrap();
        }
        while two.poll() {}
        two.compare();
    }

    #[test]
    fn an_idle_station_uses_the_fast_path() {
        let mut two =
            StationPair { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
        let to = Address { sap: 4, station: 9 };
        two.send(2, to, b"a datagram", None, false);
        // The first acknowledged message is preceded by a resynchronization.
        two.send(4, to, b"acknowledged", None, false);
        two.take(9, &[5, 4, 5, 0xF7, 0x40], None);
        assert!(two.poll() && !two.poll());
        two.take(9, &[5, 4, 5, 0x67, 0x40], None);
        two.send(4, to, b"and again", None, false);
        two.take(9, &[5, 4, 5, 0xE7, 0x40], Some(4));
        // The awaited message is delivered directly only if no other is queued.
        two.take(9, &[5, 4, 4, 0x67, 1, 2, 3], Some(4));
        assert_eq!(two.short.readable(4), 0);
        two.take(9, &[5, 4, 4, 0xE7, 1, 2, 3], Some(2));
        two.take(9, &[5, 4, 4, 0x67, 1, 2, 3], Some(4));
        two.compare();
        assert_eq!((two.went, two.short.is_quiet()), ((3, 5), true));
        assert_eq!((two.short.statistics().done, two.short.readable(4)), (3, 2));
    }

    fn is_predicted(two: &mut StationPair, station: u8, frame: &[u8]) -> bool {
        let mut other = [0; ROOM];
        two.short.is_quiet() && two.short.predict(two.now, station, frame, Some(4), &mut other).is_some()
    }

    #[test]
    fn only_expected_frames_are_predicted() {
        let mut two =
            StationPair { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
        // Commands: the next one of the last receive sequence, while its SAP has space.
        two.take(9, &[5, 4, 4, 0x67, 1], Some(4));
        for (station, other) in [
            (9, [5, 4, 4, 0x67, 1]),
            (8, [5, 4, 4, 0xE7, 1]),
            (9, [6, 4, 4, 0xE7, 1]),
            (9, [5, 2, 4, 0xE7, 1]),
            (9, [5, 4, 6, 0xE7, 1]),
            (9, [5, 4, 4, 0xF7, 1]),
        ] {
            assert!(!is_predicted(&mut two, station, &other), "{other:x?}");
        }
        assert!(!is_predicted(&mut two, 9, &[5, 4, 4]));
        assert!(is_predicted(&mut two, 9, &[5, 4, 4, 0xE7, 1]));
        assert!(!is_predicted(&mut two, 9, &[5, 4, 4, 0xE7, 1]), "a double");
        assert!(is_predicted(&mut two, 9, &[5, 4, 4, 0x67, 1]));
        // SAP 8 has a checksum and a queue of two, and no reader waits.
        two.take(9, &[5, 8, 4, 0x67, 0, 0, 0, 0], None);
        assert!(!is_predicted(&mut two, 9, &[5, 8, 4, 0xE7, 1, 2, 3, 4]), "damaged");
        assert!(is_predicted(&mut two, 9, &[5, 8, 4, 0xE7, 0, 0, 0, 0]));
        assert!(!is_predicted(&mut two, 9, &[5, 8, 4, 0x67, 0, 0, 0, 0]), "there is no room");
        two.short.close(8).expect("it was open");
        assert!(!is_predicted(&mut two, 9, &[5, 8, 4, 0x67, 0, 0, 0, 0]), "the SAP is closed");
        // Answers: of a message that is under way, once a number is agreed on.
        let (to, mut room) = (Address { sap: 4, station: 9 }, [0; ROOM]);
        let mut send = |two: &mut StationPair| {
            two.short.send_fast(two.now, 4, to, b"a message", None, &mut room).expect("it leaves");
        };
        send(&mut two);
        assert!(!is_predicted(&mut two, 9, &[5, 4, 5, 0xF7, 0x40]), "an agreement is no answer");
        two.short.receive_fast(two.now, 9, &[5, 4, 5, 0xF7, 0x40], None, &mut [0; ROOM]);
        while two.short.event().is_some() || two.short.transmit(two.now, &mut [0; ROOM]).is_some() {}
        two.short.receive_fast(two.now, 9, &[5, 4, 5, 0x67, 0x40], None, &mut [0; ROOM]);
        send(&mut two);
        for (station, other) in
            [(8, [5, 4, 5, 0xE7, 0x40]), (9, [5, 4, 5, 0x67, 0x40]), (9, [5, 4, 5, 0xE7, 0x49])]
        {
            assert!(!is_predicted(&mut two, station, &other), "{other:x?}");
        }
        assert!(is_predicted(&mut two, 9, &[5, 4, 5, 0xE7, 0x40]));
        assert!(!is_predicted(&mut two, 9, &[5, 4, 5, 0xE7, 0x40]), "it has come to its end");
        send(&mut two);
        two.short.reset(two.now, 4, true).expect("it is open");
        while two.short.event().is_some() {}
        assert!(!is_predicted(&mut two, 9, &[5, 4, 5, 0x67, 0x40]), "it was given up");
    }
}
