//! Two ends over a path of constant delay that loses and marks chosen segments of the first end.

use std::collections::{BTreeMap, BTreeSet};

use trunkline_endpoint::{Ecn, Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::segment::{Header, Offer, SYN, SegmentOptions, ace};
use trunkline_tcp::{Command, Options, State, Tcp, Virtual};
use trunkline_units::{Instant, Rate, Size, Span};

use super::both;

/// One-way delay.
pub const DELAY: Span = Span::from_ms(25);

/// What the path does to a segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Pass,
    Drop,
    /// Delays it further.
    Late(Span),
    /// Marks it, if it says that it may be.
    Mark,
}

/// A segment with data that the first end has sent.
#[derive(Clone, Copy, Debug)]
pub struct DataSegment {
    pub at: Instant,
    /// Stream offset of the first byte.
    pub offset: u32,
    pub length: u32,
    /// It was sent before.
    pub again: bool,
    pub header: Header,
    pub ecn: Ecn,
    /// Number of the transmission, from 0.
    pub number: u64,
}

pub struct Wire<'a> {
    pub ends: [Tcp<Virtual>; 2],
    pub now: Instant,
    pub sent: Vec<DataSegment>,
    /// Segments of the second end: header, options.
    pub answers: Vec<(Header, SegmentOptions)>,
    pub offers: Vec<(Header, Offer)>,
    /// Fields ACE of all segments of both ends, SYNs included.
    pub ace: [Vec<u8>; 2],
    pub total: u64,
    pub received: u64,
    outcome: Box<dyn FnMut(&DataSegment) -> Outcome + 'a>,
    /// Rate of the path from the first end; its queue is unlimited.
    pub rate: Rate,
    busy_until: Instant,
    crossing: BTreeMap<(Instant, u64), (usize, Vec<u8>, Ecn)>,
    count: u64,
    seen: BTreeSet<u32>,
    written: u64,
    buffer: Vec<u8>,
}

impl<'a> Wire<'a> {
    pub fn new(options: Options, total: u64, outcome: impl FnMut(&DataSegment) -> Outcome + 'a) -> Wire<'a> {
        Wire::with(options, options, total, outcome)
    }

    pub fn with(
        a: Options,
        b: Options,
        total: u64,
        outcome: impl FnMut(&DataSegment) -> Outcome + 'a,
    ) -> Wire<'a> {
        let mut ends = [Tcp::new(both(a).0), Tcp::new(both(b).1)];
        ends[1].handle(Instant::ZERO, Input::Command(Command::Listen)).unwrap();
        ends[0].handle(Instant::ZERO, Input::Command(Command::Connect)).unwrap();
        Wire {
            ends,
            now: Instant::ZERO,
            sent: Vec::new(),
            answers: Vec::new(),
            offers: Vec::new(),
            ace: [Vec::new(), Vec::new()],
            total,
            received: 0,
            outcome: Box::new(outcome),
            rate: Rate::from_bps(u64::MAX),
            busy_until: Instant::ZERO,
            crossing: BTreeMap::new(),
            count: 0,
            seen: BTreeSet::new(),
            written: 0,
            buffer: vec![0; MAX_BATCH],
        }
    }

    /// Sends and receives everything that is possible now; returns the next deadline.
    fn drain(&mut self) -> Option<Instant> {
        let mut next = None;
        for i in 0..2 {
            if i == 0 && self.ends[0].state() == State::Established {
                let room = u64::from(self.ends[0].room()).min(self.total - self.written);
                if room > 0 {
                    self.ends[0].handle(self.now, Input::Command(Command::Send(room as u32))).unwrap();
                    self.written += room;
                }
            }
            let readable = self.ends[i].readable();
            self.ends[i].handle(self.now, Input::Command(Command::Take(readable))).unwrap();
            self.received += if i == 1 { u64::from(readable) } else { 0 };
            loop {
                match self.ends[i].poll(self.now, Writable::ALL, &mut self.buffer) {
                    Output::Transmit(t) => self.transmit(i, t.length),
                    Output::Event(_) => {}
                    Output::Idle(idle) => {
                        next = [next, idle.deadline].into_iter().flatten().min();
                        break;
                    }
                }
            }
        }
        next
    }

    fn transmit(&mut self, from: usize, length: usize) {
        let bytes = self.buffer[..length].to_vec();
        let (header, start) = Header::parse(&bytes).unwrap();
        let mut ecn = self.ends[from].sent_ecn();
        self.ace[from].push(ace(&bytes));
        if header.has(SYN) {
            self.offers.push((header, Offer::parse(&bytes[20..start])));
        } else if from == 1 {
            self.answers.push((header, SegmentOptions::parse(&bytes[20..start])));
        }
        let (mut leaves_at, mut late) = (self.now, Span::ZERO);
        if from == 0 && length > start {
            let offset = header.seq.0.wrapping_sub(self.ends[0].options().initial_sequence + 1);
            let segment = DataSegment {
                at: self.now,
                offset,
                length: (length - start) as u32,
                again: !self.seen.insert(offset),
                header,
                ecn,
                number: self.sent.len() as u64,
            };
            self.sent.push(segment);
            match (self.outcome)(&segment) {
                Outcome::Drop => return,
                Outcome::Mark if ecn.is_capable() => ecn = Ecn::Ce,
                Outcome::Late(span) => late = span,
                Outcome::Mark | Outcome::Pass => {}
            }
            self.busy_until =
                self.busy_until.max(self.now) + self.rate.time_for(Size::from_bytes(length as u64 + 20));
            leaves_at = self.busy_until;
        }
        self.count += 1;
        self.crossing.insert((leaves_at + DELAY + late, self.count), (1 - from, bytes, ecn));
    }

    /// Runs until everything has arrived and is acknowledged; returns false after `limit`.
    pub fn run(&mut self, limit: Span) -> bool {
        let until = self.now + limit;
        while self.now < until {
            let deadline = self.drain();
            if self.received == self.total && self.ends[0].unacknowledged() == 0 && self.written == self.total
            {
                return true;
            }
            let arrival = self.crossing.first_key_value().map(|((at, _), _)| *at);
            let Some(next) = [deadline, arrival].into_iter().flatten().min() else { return false };
            self.now = next.max(self.now);
            for end in &mut self.ends {
                end.handle(self.now, Input::Wake).unwrap();
            }
            while let Some(entry) = self.crossing.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, bytes, ecn) = entry.remove();
                self.ends[to].set_received_ecn(ecn);
                let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes: &bytes, segment: None };
                self.ends[to].handle(self.now, input).unwrap();
                self.drain();
            }
        }
        false
    }
}
