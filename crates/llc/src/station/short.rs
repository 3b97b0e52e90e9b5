//! The short way. Mostly a message is sent, or a frame comes, when nothing else waits to leave or to be told, and so what
//! comes of it is what would be polled next. Then it is handed out within the call: a datagram is not kept at all, an
//! acknowledged message stands in no queue, nor does an acknowledgement or an event. What leaves, what is counted and what is
//! told is that of the long way, [`Station::send`] or [`Station::take_from`] and polls; a test below holds both to each
//! other.
//!
//! A frame that is octet for octet what was expected is not even read: what comes of it is known.

use trunkline_units::Instant;

use super::Station;
use super::line::{Coming, Effect, checked, crc_of};
use crate::talk::{Event, Outcome, Received, Refusal, Ticket};
use crate::wire::{
    AC0, Address, CRC, CommandStatus, HIGHEST, Kind, MAX_INFORMATION, NUMBER, POLL, Pdu, RESPONSE,
    ResponseStatus, Status,
};

/// What most probably comes next, octet for octet, as TCP predicts headers (Jacobson, *Design Notes on Fast TCP*, 1990). It
/// spares reading and asking what is known: that it is what it was made of.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The answer that ends a message that is under way.
    answer: Option<Answer>,
    /// The next command of the sequence that was heard last. Of that and its number, none else may have changed anything.
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
    /// All but the information.
    head: [u8; 4],
    /// What is remembered of its sequence.
    heard: u32,
}

impl Expected {
    /// A command left for a station in this frame: if there is no more to agree on, its answer will end the message.
    #[inline]
    fn answer_to(&mut self, station: u8, frame: &[u8], slot: u32) {
        if let Some(head) = frame.first_chunk()
            && head[3] & POLL == 0
        {
            self.answer = Some(Answer { station, frame: answer_to(*head), slot });
        }
    }

    /// A message has come to its end: it may be the one whose answer was expected.
    #[inline]
    pub fn forget_answer(&mut self) {
        self.answer = None;
    }

    /// A command was taken: the next has the other number.
    #[inline]
    pub fn command_after(&mut self, received: &Received, number: bool, heard: u32) {
        let head = [received.priority, received.to, received.from.sap, AC0 | if number { 0 } else { NUMBER }];
        self.command = Some(Command { station: received.from.station, head, heard });
    }
}

/// Octets of an answer.
const ANSWER: usize = 5;

/// The answer that a command with this head and without the poll bit has, if it is taken.
#[inline]
fn answer_to([level, dsap, ssap, control]: [u8; 4]) -> [u8; ANSWER] {
    const OK: u8 = Status { command: CommandStatus::Ok, response: ResponseStatus::NotRequested }.octet();
    [level, ssap, dsap | RESPONSE, control ^ NUMBER, OK]
}

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It waits, and something is to be polled.
    Not,
    /// It has left in a frame of so many octets, or what goes before it has, and waits for an answer.
    Away(usize),
    /// It has left in a frame of so many octets. That this was its end is told by no event.
    Done(usize),
}

/// What came of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handed {
    pub what: What,
    /// Octets of the frame that answers its station; 0: none.
    pub answer: usize,
    /// Something is to be polled.
    pub more: bool,
}

/// What is handed out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Nothing,
    /// Something to tell.
    Event(Event),
    /// A message of so many octets, behind the head of its PDU, that is not kept, since its SAP is wanted; so nothing is told
    /// of it. The rest says [`Station::handed`].
    Message(usize),
}

impl Station {
    /// The message that was handed out last, but for its bytes.
    #[cfg(feature = "sockets")]
    #[inline]
    pub(crate) fn handed(&self) -> Received {
        self.handed
    }

    /// Whether nothing waits to leave or to be told.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.turns.some() | self.answers.some() == 0 && self.news.is_empty()
    }

    /// Sends a message, and writes its frame into `buffer` at once if nothing waits before it.
    #[inline]
    pub(crate) fn send_at_once(
        &mut self,
        now: Instant,
        number: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
        buffer: &mut [u8],
    ) -> Result<(Ticket, Left), Refusal> {
        if !self.is_quiet() {
            return Ok((self.send(now, number, to, bytes, priority)?, Left::Not));
        }
        let form @ (kind, level, crc) = self.admit(number, to, bytes, priority)?;
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
            return Ok((self.next_ticket(), Left::Done(length)));
        }
        let slot = self.keep(now, number, form, to, bytes);
        let ticket = self.messages[slot].ticket;
        if !self.join(slot) {
            return Ok((ticket, Left::Not));
        }
        self.answered &= !(1 << level);
        self.last = (0, 0);
        let length = self.put(now, slot, buffer);
        self.expected.answer_to(to.station, &buffer[..length], slot);
        Ok((ticket, Left::Away(length)))
    }

    /// What comes of a frame that is one that was expected.
    #[inline(always)]
    fn foresee(
        &mut self,
        now: Instant,
        station: u8,
        frame: &[u8],
        wanted: Option<u8>,
        buffer: &mut [u8],
    ) -> Option<Handed> {
        if let Some(answer) = self.expected.answer
            && answer.station == station
            && frame.try_into().is_ok_and(|frame: [u8; ANSWER]| frame == answer.frame)
        {
            self.statistics.received.ac_responses += 1;
            self.statistics.levels[usize::from(answer.frame[0] & HIGHEST)].received += 1;
            let what = self.end_at_once(now, answer.slot, Outcome::Done);
            return Some(Handed { what, answer: 0, more: !self.is_quiet() });
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
        let message = checked(sap.options.crc, information).filter(|_| sap.has_room())?;
        let heard = *heard;
        next[3] ^= NUMBER;
        self.statistics.received.ac += 1;
        self.statistics.sent.ac_responses += 1;
        let counts = &mut self.statistics.levels[usize::from(level & HIGHEST)];
        (counts.received, counts.sent) = (counts.received + 1, counts.sent + 1);
        buffer[..ANSWER].copy_from_slice(&answer_to(head));
        self.answered |= 1 << level;
        self.last = (0, 0);
        let from = Address { sap: ssap, station };
        let received = Received { from, to: dsap, priority: level, acknowledged: true, at: now };
        let coming = self.accept(heard, control & NUMBER != 0, received, Some(message), wanted);
        Some(Handed { what: what(dsap, coming), answer: ANSWER, more: false })
    }

    /// A frame of a station, 1 to 254. What comes of it is handed out at once if nothing waits before it, as is a message for
    /// the SAP that is `wanted`, if it is the only one there; an acknowledgement is written into `buffer`.
    #[inline]
    pub(crate) fn take_at_once(
        &mut self,
        now: Instant,
        station: u8,
        frame: &[u8],
        wanted: Option<u8>,
        buffer: &mut [u8],
    ) -> Handed {
        if !self.is_quiet() {
            self.take_from(now, station, frame);
            return Handed { what: What::Nothing, answer: 0, more: true };
        }
        if let Some(handed) = self.foresee(now, station, frame, wanted, buffer) {
            return handed;
        }
        let (what, answer) = match self.hear(now, station, frame, wanted) {
            Effect::Nothing => (What::Nothing, 0),
            Effect::Ends(slot, outcome) => (self.end_at_once(now, slot, outcome), 0),
            Effect::Comes(sap, coming) => (what(sap, coming), 0),
            Effect::Answers(answer, coming) => {
                self.answered |= 1 << answer.level;
                self.last = (0, 0);
                (what(answer.ssap, coming), self.write_acknowledgement(&answer, buffer))
            }
        };
        Handed { what, answer, more: !self.is_quiet() }
    }

    /// A message comes to its end, which is told now.
    #[inline(always)]
    fn end_at_once(&mut self, now: Instant, slot: u32, outcome: Outcome) -> What {
        let number = self.messages[slot].sap;
        let Some(event) = self.finish(now, slot, outcome) else { return What::Nothing };
        if let Some(sap) = self.saps[usize::from(number >> 1)].as_deref_mut() {
            sap.places -= 1;
            if sap.has_news() {
                self.list(number);
            }
        }
        What::Event(event)
    }
}

/// What a SAP has got, as it is handed out.
#[inline(always)]
fn what(sap: u8, coming: Coming) -> What {
    match coming {
        Coming::Nothing => What::Nothing,
        Coming::First => What::Event(Event::Readable { sap }),
        Coming::Handed(octets) => What::Message(octets.into()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trunkline_endpoint::{Endpoint, Input, Port};
    use trunkline_units::Span;

    use super::*;
    use crate::Options;
    use crate::station::Config;
    use crate::talk::Command;
    use crate::wire::{ALL, GLOBAL_SAP};

    const SAPS: [u8; 4] = [2, 4, 6, 8];
    const ROOM: usize = 2048;

    /// A station that always goes the long way, and one that goes the short way where it can.
    struct Two {
        long: Station,
        short: Station,
        now: Instant,
        /// The last acknowledged command that left, and to whom.
        asked: Option<(u8, Vec<u8>)>,
        /// How often there was a short way out, and in.
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

    impl Two {
        /// The next frame of the long way.
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
            let sent = self.short.send_at_once(self.now, sap, to, bytes, priority, &mut room);
            let also = self.long.send(self.now, sap, to, bytes, priority);
            assert_eq!(sent.map(|(ticket, _)| ticket), also);
            let Ok((ticket, Left::Away(length) | Left::Done(length))) = sent else { return };
            self.went.0 += 1;
            assert_eq!(self.long.event(), None);
            assert_eq!(self.transmit(), (to.station, room[..length].to_vec()));
            self.note(to.station, &room[..length]);
            if fails {
                for station in [&mut self.short, &mut self.long] {
                    station.handle(self.now, Input::Command(Command::Unsent { frames: 1 })).unwrap();
                }
            }
            if matches!(sent, Ok((_, Left::Done(_)))) {
                let outcome = if fails { Outcome::Failed } else { Outcome::Done };
                let told = Event::Sent { sap, ticket, outcome, tries: 1, took: Span::ZERO };
                assert_eq!(self.long.event(), Some(told));
            }
        }

        fn take(&mut self, station: u8, frame: &[u8], wanted: Option<u8>) {
            let mut room = [0; ROOM];
            let handed = self.short.take_at_once(self.now, station, frame, wanted, &mut room);
            self.long.take_from(self.now, station, frame);
            match handed.what {
                What::Nothing => {}
                What::Event(event) => assert_eq!(self.long.event(), Some(event)),
                What::Message(octets) => {
                    let sap = wanted.expect("nothing is handed out that nobody wants");
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
            self.went.1 += usize::from(handed.what != What::Nothing || handed.answer > 0);
            assert_eq!(handed.more, !self.long.is_quiet());
        }

        /// Polls both once; whether they said something.
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

        /// What can be seen of both.
        fn compare(&mut self) {
            let Two { long, short, .. } = self;
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
                // An answer to what was asked: right, or not quite.
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
        fn the_short_way_is_the_long_one(steps in proptest::collection::vec(any::<[u8; 4]>(), 1..400)) {
            let mut two =
                Two { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
            for step in steps {
                two.step(step);
            }
            while two.poll() {}
            two.compare();
        }
    }

    #[test]
    fn who_is_alone_goes_the_short_way() {
        let mut two =
            Two { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
        let to = Address { sap: 4, station: 9 };
        two.send(2, to, b"a datagram", None, false);
        // The first acknowledged message agrees on its number, which an answer ends; then it is its turn.
        two.send(4, to, b"acknowledged", None, false);
        two.take(9, &[5, 4, 5, 0xF7, 0x40], None);
        assert!(two.poll() && !two.poll());
        two.take(9, &[5, 4, 5, 0x67, 0x40], None);
        two.send(4, to, b"and again", None, false);
        two.take(9, &[5, 4, 5, 0xE7, 0x40], Some(4));
        // What is wanted is handed out, but not past what is there; else it is kept.
        two.take(9, &[5, 4, 4, 0x67, 1, 2, 3], Some(4));
        assert_eq!(two.short.readable(4), 0);
        two.take(9, &[5, 4, 4, 0xE7, 1, 2, 3], Some(2));
        two.take(9, &[5, 4, 4, 0x67, 1, 2, 3], Some(4));
        two.compare();
        assert_eq!((two.went, two.short.is_quiet()), ((3, 5), true));
        assert_eq!((two.short.statistics().done, two.short.readable(4)), (3, 2));
    }

    /// Whether this is foreseen by a station, which takes it the short way.
    fn foreseen(two: &mut Two, station: u8, frame: &[u8]) -> bool {
        let mut other = [0; ROOM];
        two.short.is_quiet() && two.short.foresee(two.now, station, frame, Some(4), &mut other).is_some()
    }

    #[test]
    fn only_what_was_expected_is_foreseen() {
        let mut two =
            Two { long: station(), short: station(), now: Instant::ZERO, asked: None, went: (0, 0) };
        // Commands: the next of the sequence heard last, while its SAP has room.
        two.take(9, &[5, 4, 4, 0x67, 1], Some(4));
        for (station, other) in [
            (9, [5, 4, 4, 0x67, 1]),
            (8, [5, 4, 4, 0xE7, 1]),
            (9, [6, 4, 4, 0xE7, 1]),
            (9, [5, 2, 4, 0xE7, 1]),
            (9, [5, 4, 6, 0xE7, 1]),
            (9, [5, 4, 4, 0xF7, 1]),
        ] {
            assert!(!foreseen(&mut two, station, &other), "{other:x?}");
        }
        assert!(!foreseen(&mut two, 9, &[5, 4, 4]));
        assert!(foreseen(&mut two, 9, &[5, 4, 4, 0xE7, 1]));
        assert!(!foreseen(&mut two, 9, &[5, 4, 4, 0xE7, 1]), "a double");
        assert!(foreseen(&mut two, 9, &[5, 4, 4, 0x67, 1]));
        // Of SAP 8 with a checksum and room for two, which nobody wants.
        two.take(9, &[5, 8, 4, 0x67, 0, 0, 0, 0], None);
        assert!(!foreseen(&mut two, 9, &[5, 8, 4, 0xE7, 1, 2, 3, 4]), "damaged");
        assert!(foreseen(&mut two, 9, &[5, 8, 4, 0xE7, 0, 0, 0, 0]));
        assert!(!foreseen(&mut two, 9, &[5, 8, 4, 0x67, 0, 0, 0, 0]), "there is no room");
        two.short.close(8).expect("it was open");
        assert!(!foreseen(&mut two, 9, &[5, 8, 4, 0x67, 0, 0, 0, 0]), "nobody is there");
        // Answers: of a message that is under way, once a number is agreed on.
        let (to, mut room) = (Address { sap: 4, station: 9 }, [0; ROOM]);
        let mut send = |two: &mut Two| {
            two.short.send_at_once(two.now, 4, to, b"a message", None, &mut room).expect("it leaves");
        };
        send(&mut two);
        assert!(!foreseen(&mut two, 9, &[5, 4, 5, 0xF7, 0x40]), "an agreement is no answer");
        two.short.take_at_once(two.now, 9, &[5, 4, 5, 0xF7, 0x40], None, &mut [0; ROOM]);
        while two.short.event().is_some() || two.short.transmit(two.now, &mut [0; ROOM]).is_some() {}
        two.short.take_at_once(two.now, 9, &[5, 4, 5, 0x67, 0x40], None, &mut [0; ROOM]);
        send(&mut two);
        for (station, other) in
            [(8, [5, 4, 5, 0xE7, 0x40]), (9, [5, 4, 5, 0x67, 0x40]), (9, [5, 4, 5, 0xE7, 0x49])]
        {
            assert!(!foreseen(&mut two, station, &other), "{other:x?}");
        }
        assert!(foreseen(&mut two, 9, &[5, 4, 5, 0xE7, 0x40]));
        assert!(!foreseen(&mut two, 9, &[5, 4, 5, 0xE7, 0x40]), "it has come to its end");
        send(&mut two);
        two.short.reset(two.now, 4, true).expect("it is open");
        while two.short.event().is_some() {}
        assert!(!foreseen(&mut two, 9, &[5, 4, 5, 0x67, 0x40]), "it was given up");
    }
}
