//! Messages in datagrams.

use trunkline_endpoint::To;
use trunkline_models::host::Disk;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Message, Step};
use trunkline_units::{Instant, Span};

use super::fragment::{Cutter, Gatherer};
use super::{Birth, LINGER, Said, UDP_IP, UNANSWERED, depart};
use crate::frame::{Content, Datagram, Kit, Packet};

/// The ends of a connection over datagrams.
#[derive(Debug)]
pub struct Datagrams {
    source: Source,
    ledger: Ledger,
    cutter: Cutter,
    outgoing: Option<Outgoing>,
    sequence: u64,
    asking: Option<Asking>,
    disk: Option<Disk>,
    /// It neither waits for answers nor reads from a disk.
    unhindered: bool,
    read_until: Instant,
    receivers: Vec<Receiver>,
    linger: Span,
    /// Packets that the sender has drawn, that receivers have got, and that are lost: what is left is under way.
    drawn: u64,
    landed: u64,
    lost: u64,
    /// Of a group nobody counts who should have got what.
    counts: bool,
    /// How often silence was borne because something was under way, and since when it counts.
    borne: u32,
    silent: Instant,
    /// When the source has nothing more to send, however long it waits for room.
    until: Option<Instant>,
    /// An answer that has not come by then is lost.
    unanswered: Span,
    /// When the source was done.
    done: Option<Instant>,
    over: bool,
    flow: u32,
    channel: u16,
    back_channel: u16,
    to: To,
    back: To,
}

/// A message whose fragments are leaving.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    message: Datagram,
    next: u16,
}

/// A message before it is cut.
#[inline(always)]
fn whole(cutter: &Cutter, header: &Header) -> Datagram {
    Datagram {
        sequence: header.sequence,
        sent: header.sent,
        size: header.length,
        response: header.response,
        fragment: 0,
        fragments: cutter.count(header.length + UDP_IP - super::IP),
        kind: header.kind,
    }
}

impl Outgoing {
    /// The next packet, and whether it was the last.
    #[inline]
    fn packet(&mut self, cutter: &Cutter) -> (Datagram, u32, bool) {
        let d = Datagram { fragment: self.next, ..self.message };
        let length = cutter.length(d.size + UDP_IP - super::IP, d.fragment, d.fragments);
        self.next += 1;
        (d, length, self.next == d.fragments)
    }
}

/// The asking side of requests: one in flight.
#[derive(Debug, Default)]
struct Asking {
    waiting: Option<(u64, Instant)>,
    gatherer: Gatherer,
    rtt: Histogram,
    answers: u64,
    answer_bytes: u64,
    unanswered: u64,
}

#[derive(Debug)]
struct Receiver {
    meter: Meter,
    gatherer: Gatherer,
    /// Answers on their way out; one, unless requests were doubled.
    answers: std::collections::VecDeque<Outgoing>,
}

/// How long after its time limit a source that is behind may still send, as [`Source`] has it.
const GRACE: Span = Span::from_ms(10);
/// How often silence is borne at the most: what never arrives must not keep a run from ending.
const MOST_BORNE: u32 = 100_000;
/// Answers that may wait to leave.
const ANSWERS: usize = 16;

impl Datagrams {
    pub(super) fn begin(birth: &Birth<'_>, start: Instant, source: Source) -> Self {
        let receiver = || Receiver {
            meter: Meter::new(start),
            gatherer: Gatherer::default(),
            answers: Default::default(),
        };
        Datagrams {
            source,
            ledger: Ledger::new(start),
            cutter: Cutter::new(birth.mtu),
            outgoing: None,
            sequence: 0,
            asking: birth.asks().then(Asking::default),
            disk: birth.file_bytes.and(birth.disks[0]).map(Disk::new),
            unhindered: !birth.asks() && birth.file_bytes.and(birth.disks[0]).is_none(),
            read_until: start,
            receivers: birth.plan.to.iter().map(|_| receiver()).collect(),
            linger: LINGER + birth.longest_delay * 2,
            drawn: 0,
            landed: 0,
            lost: 0,
            counts: birth.plan.to.len() == 1,
            borne: 0,
            silent: start,
            until: birth.limit().ok().and_then(|limit| limit.time).map(|time| start + time + GRACE),
            unanswered: UNANSWERED + birth.longest_delay * 2,
            done: None,
            over: false,
            flow: birth.flow,
            channel: birth.channel(0),
            back_channel: birth.channel(1),
            to: birth.to,
            back: birth.back,
        }
    }

    /// Takes a packet; whether this end may have something to say to that.
    #[inline(always)]
    pub fn arrive(&mut self, now: Instant, side: usize, packet: &Packet) -> bool {
        let Content::Datagram(d) = &packet.content else { return false };
        match side.checked_sub(1) {
            None => {
                self.answered(now, d);
                true
            }
            Some(receiver) => {
                let Some(r) = self.receivers.get_mut(receiver) else { return false };
                self.landed += 1;
                if !r.gatherer.take(d) {
                    return false;
                }
                let (sequence, sent) = (d.sequence, d.sent);
                r.meter.arrive(
                    &Header { sequence, sent, length: d.size, response: d.response, kind: d.kind },
                    now,
                );
                if d.response > 0 && r.answers.len() < ANSWERS {
                    let length = d.response.max(HEADER as u32);
                    let answer = Header { sequence, sent: now, length, response: 0, kind: Kind::Answer };
                    r.answers.push_back(Outgoing { message: whole(&self.cutter, &answer), next: 0 });
                }
                if self.done.is_some() {
                    self.look(now);
                }
                d.response > 0 || self.over
            }
        }
    }

    fn answered(&mut self, now: Instant, d: &Datagram) {
        let Some(asking) = &mut self.asking else { return };
        if !asking.gatherer.take(d) {
            return;
        }
        // Else the answer to a request given up on.
        if let Some((_, asked)) = asking.waiting.take_if(|(sequence, _)| *sequence == d.sequence) {
            asking.rtt.record(now.since(asked));
            asking.answers += 1;
            asking.answer_bytes += u64::from(d.size);
        }
    }

    /// A packet of this flow is no more.
    pub fn lose(&mut self, packet: &Packet) {
        self.lost += u64::from(!packet.is_back);
    }

    /// Whether the run is over: all has come, or nothing has for a while and nothing is under way.
    fn look(&mut self, now: Instant) {
        let Some(done) = self.done else { return };
        if self.receivers.iter().all(|r| r.meter.arrivals().messages >= self.sequence) {
            self.over = true;
            return;
        }
        let last = self.receivers.iter().filter_map(|r| r.meter.arrivals().last).max();
        self.silent = self.silent.max(done).max(last.unwrap_or(done));
        if now.since(self.silent) >= self.linger {
            let under_way = self.counts && self.drawn > self.landed + self.lost;
            if under_way && self.borne < MOST_BORNE {
                (self.silent, self.borne) = (now, self.borne + 1);
            } else {
                self.over = true;
            }
        }
    }

    /// What an end has to say.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, kit: &mut Kit) -> Said {
        match side.checked_sub(1) {
            None if self.outgoing.is_none() => self.send(now, room, kit),
            None => self.go_on(now, room, kit),
            Some(receiver) => self.answer(receiver, room, kit),
        }
    }

    /// The first packet of the next message.
    #[inline(always)]
    fn send(&mut self, now: Instant, room: bool, kit: &mut Kit) -> Said {
        let datagram = match self.draw(now, room) {
            Ok(datagram) => datagram,
            Err(idle) => return idle,
        };
        if datagram.fragments > 1 {
            self.outgoing = Some(Outgoing { message: datagram, next: 0 });
            return self.go_on(now, room, kit);
        }
        let (content, length) = (Content::Datagram(datagram), datagram.size + UDP_IP);
        let packet = Packet::new(content, length, self.flow, self.channel, self.to, false);
        Said::Send { frame: kit.frame(packet), resume: self.resume(now) }
    }

    /// The next fragment.
    #[inline(never)]
    fn go_on(&mut self, now: Instant, room: bool, kit: &mut Kit) -> Said {
        let Some(outgoing) = self.outgoing.as_mut().filter(|_| room) else {
            return Said::Idle { deadline: None, blocked: true };
        };
        let (datagram, length, last) = outgoing.packet(&self.cutter);
        if last {
            self.outgoing = None;
        }
        let resume = if last { self.resume(now) } else { None };
        let content = Content::Datagram(datagram);
        let packet = Packet::new(content, length, self.flow, self.channel, self.to, false);
        Said::Send { frame: kit.frame(packet), resume }
    }

    /// When the sender goes on after a message, if only its source has a say in that.
    #[inline(always)]
    fn resume(&self, now: Instant) -> Option<Instant> {
        match self.asking.is_none() && self.disk.is_none() {
            true => self.source.due_after(now),
            false => None,
        }
    }

    /// Draws the next message, if it is due and there is room for its first packet; else what to say.
    #[inline(always)]
    fn draw(&mut self, now: Instant, room: bool) -> Result<Datagram, Said> {
        if room
            && self.unhindered
            && let Some(message) = self.source.on_time(now)
        {
            self.ledger.depart(&message, now);
            return Ok(self.number(&message, now));
        }
        self.draw_any(now, room)
    }

    /// As [`draw`](Self::draw), whatever the source and the disk are.
    #[inline(never)]
    fn draw_any(&mut self, now: Instant, room: bool) -> Result<Datagram, Said> {
        let wait = |until| Err(Said::Idle { deadline: Some(until), blocked: false });
        if self.done.is_some() {
            return Err(self.rest(now));
        }
        if let Some(asking) = &mut self.asking
            && let Some((_, asked)) = asking.waiting
        {
            if now < asked + self.unanswered {
                return wait(asked + self.unanswered);
            }
            asking.waiting = None;
            asking.unanswered += 1;
        }
        if now < self.read_until {
            return wait(self.read_until);
        }
        if !room {
            // When the next is due is known without drawing it.
            if let Some(until) = self.source.due_after(now) {
                return wait(until);
            }
            // A source at full speed always has a message: it is drawn when there is room for it.
            if self.until.is_none_or(|until| now <= until) {
                let deadline = self.until.map(|until| until + Span::from_ps(1));
                return Err(Said::Idle { deadline, blocked: true });
            }
        }
        match self.source.next(now) {
            Step::Wait(until) => wait(until),
            Step::Done => {
                self.done = Some(now);
                Err(self.rest(now))
            }
            Step::Send(message) => {
                depart(&mut self.source, &mut self.ledger, &message, now);
                if let Some(asking) = &mut self.asking {
                    asking.waiting = Some((self.sequence, now));
                }
                if let Some(disk) = &mut self.disk {
                    self.read_until = disk.take(now, message.size.into());
                }
                Ok(self.number(&message, now))
            }
        }
    }

    /// The datagram of the next message.
    #[inline(always)]
    fn number(&mut self, message: &Message, now: Instant) -> Datagram {
        let (sequence, length, response) = (self.sequence, message.size, message.response);
        let header = Header { sequence, sent: now, length, response, kind: Kind::Pattern };
        self.sequence += 1;
        let datagram = whole(&self.cutter, &header);
        self.drawn += u64::from(datagram.fragments);
        datagram
    }

    /// The sender is done: only silence is waited for.
    #[cold]
    fn rest(&mut self, now: Instant) -> Said {
        self.look(now);
        let deadline = (!self.over).then_some(self.silent + self.linger);
        Said::Idle { deadline, blocked: false }
    }

    #[inline(never)]
    fn answer(&mut self, receiver: usize, room: bool, kit: &mut Kit) -> Said {
        let answers = &mut self.receivers[receiver].answers;
        let Some(answer) = answers.front_mut() else { return Said::Idle { deadline: None, blocked: false } };
        if !room {
            return Said::Idle { deadline: None, blocked: true };
        }
        let (datagram, length, last) = answer.packet(&self.cutter);
        if last {
            answers.pop_front();
        }
        let content = Content::Datagram(datagram);
        let packet = Packet::new(content, length, self.flow, self.back_channel, self.back, true);
        Said::Send { frame: kit.frame(packet), resume: None }
    }

    /// Whether the run is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn reports(self) -> (SenderReport, Vec<ReceiverReport>, Option<String>) {
        let mut sender = SenderReport::whole(&self.ledger, &self.source);
        if let Some(asking) = &self.asking {
            sender.rtt = asking.rtt.counts();
            let counts = [
                ("answers", asking.answers),
                ("answer_bytes", asking.answer_bytes),
                ("unanswered", asking.unanswered),
            ];
            sender.counters.extend(counts.map(|(k, v)| (k.to_string(), v as f64)));
        }
        let report = |r: &Receiver| {
            let mut report = ReceiverReport::of(&r.meter);
            if r.gatherer.given_up > 0 {
                report.counters.insert("reassembly_given_up".into(), r.gatherer.given_up as f64);
            }
            report
        };
        (sender, self.receivers.iter().map(report).collect(), None)
    }
}
