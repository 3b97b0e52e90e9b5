//! Messages in a TCP stream. The protocol is the `tcp` crate's, as it runs over a wire; only the payload is virtual.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint as _, Input, Output, Peer, Port, Reason, To, Writable};
use trunkline_experiment::plan::{Protocol, TcpTimers};
use trunkline_models::host::Disk;
use trunkline_record::Histogram;
use trunkline_run::ends::{Figures, ReceiverReport, SenderReport};
use trunkline_run::message::{HEADER, Header, Kind, LARGEST};
use trunkline_run::{Ledger, Meter};
use trunkline_tcp::{Command, Event, Options, Statistics, Tcp, Timers, Virtual, header_length};
use trunkline_traffic::Source;
use trunkline_traffic::source::{Bounds, Limit, Step};
use trunkline_units::{Instant, Size, Span};

use super::{Birth, IP, Recipe, Said, depart};
use crate::frame::{Content, Kit, Packet, TCP_HEADER};

/// Both socket buffers where the experiment says nothing: what Linux tunes them up to.
const UNSAID: Size = Size::from_bytes(4 << 20);
/// Bytes of a TCP header without options.
const TCP: u32 = 20;
/// What is read from or written to a disk at once.
const BLOCK: u32 = 64 << 10;
/// How often TCP is asked for its view, and how many answers are kept.
const SAMPLE_EVERY: Span = Span::from_ms(50);
const SAMPLES: usize = 2048;

/// The ends of a connection over TCP.
#[derive(Debug)]
pub struct Streams {
    recipe: Recipe,
    halves: [Half; 2],
    source: Option<Source>,
    ledger: Ledger,
    meter: Meter,
    sequence: u64,
    /// Requests: the one that is out, and the round trips so far.
    asking: Option<Asking>,
    disks: [Option<Disk>; 2],
    samples: Samples,
    trouble: Option<String>,
    over: bool,
    flow: u32,
    start: Instant,
}

#[derive(Debug, Default)]
struct Asking {
    waiting: Option<Instant>,
    rtt: Histogram,
    answers: u64,
    answer_bytes: u64,
}

/// One end.
#[derive(Debug)]
struct Half {
    tcp: Tcp<Virtual>,
    to: To,
    /// Bytes given to the stream so far, and of the message that is being written, those that are left.
    written: u64,
    left: u32,
    /// Where each message sent ends, and what its header says; the other end takes them off.
    boundaries: VecDeque<(u64, Header)>,
    /// Bytes taken from the stream.
    taken: u64,
    /// Until when the disk is busy.
    disk_until: Instant,
    /// The segment whose round trip is being measured: the byte behind it, and when it left.
    timed: Option<(u32, Instant)>,
    /// The byte behind the last that was ever sent.
    sent: u32,
    /// Whether something has happened since its user last read and wrote, and when the user goes on by itself.
    fresh: bool,
    next: Option<Instant>,
    /// Nothing more will be written.
    closing: bool,
    /// The other end has sent all it had, and it has arrived.
    finished: bool,
}

/// TCP's own view against time.
#[derive(Debug)]
struct Samples {
    kept: Vec<(f64, Figures)>,
    every: Span,
    next: Instant,
    rtt: Histogram,
    latest: Span,
}

impl Streams {
    pub(super) fn begin(birth: &Birth<'_>, start: Instant, limit: Limit) -> Result<Self, String> {
        let sender = options(birth, 0);
        let receiver = options(birth, 1);
        let half = |options: Options, to: To| Half {
            tcp: Tcp::new(options),
            to,
            written: 0,
            left: 0,
            boundaries: VecDeque::new(),
            taken: 0,
            disk_until: start,
            timed: None,
            sent: 0,
            fresh: true,
            next: None,
            closing: false,
            finished: false,
        };
        let mut halves = [half(sender, birth.to), half(receiver, birth.back)];
        let now = birth.now;
        let told = halves[1].tcp.handle(now, Input::Command(Command::Listen)).is_ok()
            && halves[0].tcp.handle(now, Input::Command(Command::Connect)).is_ok();
        debug_assert!(told, "new ends may open");
        let disk = |side: usize| birth.file_bytes.and(birth.disks[side]).map(Disk::new);
        Ok(Streams {
            recipe: Recipe {
                test: birth.plan.test.clone(),
                limit,
                seed: birth.seed,
                place: birth.place.clone(),
                earliest: start,
            },
            halves,
            source: None,
            ledger: Ledger::new(start),
            meter: Meter::new(start),
            sequence: 0,
            asking: birth.asks().then(Asking::default),
            disks: [disk(0), disk(1)],
            samples: Samples {
                kept: Vec::new(),
                every: SAMPLE_EVERY,
                next: Instant::ZERO,
                rtt: Histogram::default(),
                latest: Span::ZERO,
            },
            trouble: None,
            over: false,
            flow: birth.flow,
            start,
        })
    }

    /// When the first message may have left: not before the connection was open.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Takes a segment.
    #[inline]
    pub fn arrive(&mut self, now: Instant, side: usize, packet: &Packet, scratch: &mut [u8]) {
        let Content::Segment(header) = &packet.content else { return };
        let whole = (packet.length - IP) as usize;
        scratch[..TCP_HEADER].copy_from_slice(header);
        let (port, peer, segment) = (Port(0), Peer::NONE, None);
        let input = Input::Frame { port, peer, bytes: &scratch[..whole], segment };
        self.halves[side].fresh = true;
        // Only a command can be refused.
        let _ = self.halves[side].tcp.handle(now, input);
        if side == 0
            && let Some(rtt) = self.halves[0].round_trip(now)
        {
            self.samples.rtt.record(rtt);
            self.samples.latest = rtt;
        }
    }

    /// Its deadline may have come.
    #[inline]
    pub fn wake(&mut self, now: Instant, side: usize) {
        self.halves[side].fresh = true;
        let _ = self.halves[side].tcp.handle(now, Input::Wake);
    }

    /// What an end has to say.
    #[inline(never)]
    pub fn poll(&mut self, now: Instant, side: usize, room: bool, kit: &mut Kit) -> Said {
        let writable = if room { Writable::ALL } else { Writable::NONE };
        loop {
            // A segment that leaves changes nothing for whoever reads and writes.
            if std::mem::take(&mut self.halves[side].fresh) {
                let taken = self.take(now, side);
                let fed = if side == 0 { self.feed(now) } else { self.write(now, 1) };
                self.halves[side].next = sooner(taken, fed);
            }
            let deadline = self.halves[side].next;
            match self.halves[side].tcp.poll(now, writable, &mut kit.scratch) {
                Output::Transmit(t) => {
                    if side == 0 {
                        self.halves[0].time(now, t.length, &kit.scratch);
                    }
                    let packet = self.segment(side, t.length, &kit.scratch);
                    return Said::Send { frame: kit.frame(packet), resume: None };
                }
                // Read before it was told.
                Output::Event(Event::Readable) => {}
                Output::Event(event) => {
                    self.halves[side].fresh = true;
                    self.hear(now, side, event);
                }
                Output::Idle(idle) => {
                    let blocked = matches!(idle.reason, Reason::Port(_));
                    return Said::Idle { deadline: sooner(deadline, idle.deadline), blocked };
                }
            }
        }
    }

    #[inline]
    fn segment(&self, side: usize, length: usize, scratch: &[u8]) -> Packet {
        let mut header = [0; TCP_HEADER];
        header.copy_from_slice(&scratch[..TCP_HEADER]);
        let content = Content::Segment(header);
        // Each direction is a virtual channel of its own.
        let channel = (self.flow as u16) << 1 | side as u16;
        Packet::new(content, length as u32 + IP, self.flow, channel, self.halves[side].to, side == 1)
    }

    fn hear(&mut self, now: Instant, side: usize, event: Event) {
        match event {
            Event::Connected if side == 0 => self.open(now),
            Event::Finished => {
                self.halves[side].finished = true;
                self.halves[1].closing |= side == 1;
            }
            Event::Reset => self.fail("the other end dropped the connection"),
            Event::TimedOut => self.fail("the other end did not answer; TCP gave up"),
            _ => {}
        }
        self.look();
    }

    fn fail(&mut self, why: &str) {
        self.trouble.get_or_insert_with(|| why.into());
        self.over = true;
    }

    /// Whether all has been sent and has arrived.
    fn look(&mut self) {
        let done = |half: &Half| half.finished && half.tcp.readable() == 0 || half.tcp.is_closed();
        self.over |= self.halves.iter().all(done);
    }

    fn open(&mut self, now: Instant) {
        let start = self.recipe.earliest.max(now);
        let bounds = Bounds { smallest: HEADER as u32, largest: LARGEST };
        let recipe = &self.recipe;
        match Source::new(&recipe.test, recipe.limit, bounds, start, recipe.seed, &recipe.place) {
            Ok(source) => self.source = Some(source),
            Err(e) => self.fail(&e.to_string()),
        }
        self.start = start;
        self.ledger = Ledger::new(start);
        self.meter = Meter::new(start);
        self.halves.iter_mut().for_each(|half| half.disk_until = start);
    }

    /// Draws messages and writes them, as far as there is room; when to go on.
    #[inline]
    fn feed(&mut self, now: Instant) -> Option<Instant> {
        loop {
            if self.halves[0].left > 0 {
                let deadline = self.write(now, 0);
                if self.halves[0].left > 0 {
                    return deadline;
                }
            }
            if self.halves[0].tcp.room() == 0 || self.halves[0].closing {
                return self.write(now, 0);
            }
            if self.asking.as_ref().is_some_and(|a| a.waiting.is_some()) {
                return None;
            }
            let source = self.source.as_mut()?;
            match source.next(now) {
                Step::Wait(until) => return Some(until),
                Step::Done => self.halves[0].closing = true,
                Step::Send(message) => {
                    depart(source, &mut self.ledger, &message, now);
                    let header = Header {
                        sequence: self.sequence,
                        sent: now,
                        length: message.size,
                        response: message.response,
                        kind: Kind::Pattern,
                    };
                    self.sequence += 1;
                    self.halves[0].begin(header);
                    if let Some(asking) = &mut self.asking {
                        asking.waiting = Some(now);
                    }
                    self.sample(now);
                }
            }
        }
    }

    /// Writes what is left of a message, or closes; when to go on.
    #[inline]
    fn write(&mut self, now: Instant, side: usize) -> Option<Instant> {
        let (half, disk) = (&mut self.halves[side], &mut self.disks[0]);
        let mut disk = disk.as_mut().filter(|_| side == 0);
        while half.left > 0 {
            let mut count = half.left.min(half.tcp.room());
            if let Some(disk) = &mut disk {
                if now < half.disk_until {
                    return Some(half.disk_until);
                }
                count = count.min(BLOCK);
                half.disk_until = disk.take(now, count.into());
            }
            if count == 0 || half.tcp.handle(now, Input::Command(Command::Send(count))).is_err() {
                return None;
            }
            half.left -= count;
            half.written += u64::from(count);
        }
        // What has arrived is taken first: a closed end gives nothing more.
        if half.closing && half.tcp.readable() == 0 {
            // Refused if it is closed already.
            let _ = half.tcp.handle(now, Input::Command(Command::Close));
        }
        None
    }

    /// Takes what has arrived and counts the messages that are whole; when to go on.
    #[inline]
    fn take(&mut self, now: Instant, side: usize) -> Option<Instant> {
        let mut deadline = None;
        while self.halves[side].tcp.readable() > 0 {
            let half = &mut self.halves[side];
            let mut count = half.tcp.readable();
            if let Some(disk) = self.disks[1].as_mut().filter(|_| side == 1) {
                if now < half.disk_until {
                    deadline = Some(half.disk_until);
                    break;
                }
                count = count.min(BLOCK);
                half.disk_until = disk.take(now, count.into());
            }
            if half.tcp.handle(now, Input::Command(Command::Take(count))).is_err() {
                break;
            }
            half.taken += u64::from(count);
            let taken = half.taken;
            while self.halves[1 - side].boundaries.front().is_some_and(|(end, _)| *end <= taken) {
                if let Some((_, header)) = self.halves[1 - side].boundaries.pop_front() {
                    self.arrived(now, side, &header);
                }
            }
        }
        if self.halves[side].finished {
            self.look();
        }
        deadline
    }

    fn arrived(&mut self, now: Instant, side: usize, header: &Header) {
        if side == 1 {
            self.meter.arrive(header, now);
            if header.response > 0 {
                let length = header.response.max(HEADER as u32);
                let sequence = header.sequence;
                self.halves[1].begin(Header { sequence, sent: now, length, response: 0, kind: Kind::Answer });
            }
        } else if let Some(asking) = &mut self.asking
            && let Some(asked) = asking.waiting.take()
        {
            asking.rtt.record(now.since(asked));
            asking.answers += 1;
            asking.answer_bytes += u64::from(header.length);
        }
    }

    #[inline]
    fn sample(&mut self, now: Instant) {
        if now < self.samples.next {
            return;
        }
        let gauges = self.halves[0].tcp.gauges();
        let figures = [
            ("cwnd_bytes", f64::from(gauges.cwnd)),
            ("rtt_us", self.samples.latest.as_us()),
            ("retransmissions", self.halves[0].tcp.statistics().retransmitted_segments as f64),
        ];
        let figures = figures.map(|(k, v)| (k.to_string(), v)).into();
        self.samples.take(now.since(self.start), now, figures);
    }

    /// Whether the run is over.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn reports(self) -> (SenderReport, Vec<ReceiverReport>, Option<String>) {
        let mut sender = match &self.source {
            Some(source) => SenderReport::whole(&self.ledger, source),
            None => SenderReport::so_far(&self.ledger),
        };
        let [from, to] = &self.halves;
        sender.counters = counters(from.tcp.statistics());
        sender.counters.insert("tcp_mss_bytes".into(), f64::from(from.tcp.gauges().mss));
        sender.counters.insert("sender_buffer_bytes".into(), f64::from(from.tcp.options().send_buffer));
        sender.samples = self.samples.kept;
        sender.rtt = self.samples.rtt.counts();
        sender.notes.insert("congestion".into(), "reno (4.3BSD)".into());
        if let Some(asking) = &self.asking {
            sender.rtt = asking.rtt.counts();
            sender.counters.insert("answers".into(), asking.answers as f64);
            sender.counters.insert("answer_bytes".into(), asking.answer_bytes as f64);
        }
        let mut receiver = ReceiverReport::of(&self.meter);
        let window = f64::from(to.tcp.options().receive_buffer);
        receiver.counters.insert("receiver_buffer_bytes".into(), window);
        receiver.counters.insert("acks_sent".into(), to.tcp.statistics().acks_sent as f64);
        receiver.counters.insert("out_of_order".into(), to.tcp.statistics().out_of_order as f64);
        (sender, vec![receiver], self.trouble)
    }
}

impl Half {
    /// Begins to write a message.
    #[inline]
    fn begin(&mut self, header: Header) {
        let end = self.written + u64::from(self.left) + u64::from(header.length);
        self.boundaries.push_back((end, header));
        self.left += header.length;
    }
}

/// Round trips, one segment at a time and never one that was sent twice (Karn). TCP's own estimate counts ticks of half
/// a second.
impl Half {
    #[inline]
    fn time(&mut self, now: Instant, length: usize, segment: &[u8]) {
        let payload = length.saturating_sub(header_length(segment)) as u32;
        let Some(sequence) = segment.get(4..8).filter(|_| payload > 0) else { return };
        let sequence = u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]);
        let end =
            sequence.wrapping_sub(self.tcp.options().initial_sequence.wrapping_add(1)).wrapping_add(payload);
        // Behind the last: half of the numbers lie ahead, half behind.
        let is_new = end.wrapping_sub(self.sent) as i32 > 0;
        if is_new {
            self.sent = end;
            self.timed.get_or_insert((end, now));
        } else {
            self.timed = None;
        }
    }

    #[inline]
    fn round_trip(&mut self, now: Instant) -> Option<Span> {
        let acknowledged = (self.written as u32).wrapping_sub(self.tcp.unacknowledged());
        let (_, at) = self.timed.take_if(|(end, _)| acknowledged.wrapping_sub(*end) as i32 >= 0)?;
        Some(now.since(at))
    }
}

impl Samples {
    #[cold]
    fn take(&mut self, since: Span, now: Instant, figures: Figures) {
        self.next = now + self.every;
        self.kept.push((since.as_s(), figures));
        if self.kept.len() == SAMPLES {
            // Long runs keep every second answer, and ask half as often.
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every = self.every * 2;
        }
    }
}

#[inline]
fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn counters(s: &Statistics) -> Figures {
    [
        ("packets_sent", s.segments_sent),
        ("data_segments_sent", s.data_segments_sent),
        ("packets_received", s.segments_received),
        ("retransmissions", s.retransmitted_segments),
        ("timeouts", s.timeouts),
        ("fast_retransmits", s.fast_retransmits),
        ("duplicate_acks", s.duplicate_acks),
    ]
    .map(|(name, count)| (name.to_string(), count as f64))
    .into()
}

/// What one end's TCP is set to.
fn options(birth: &Birth<'_>, side: usize) -> Options {
    let Protocol::Tcp { window, nodelay, timers, delayed_ack, .. } = &birth.plan.protocol else {
        return Options::default();
    };
    let station = if side == 0 { &birth.plan.from } else { &birth.plan.to[0] };
    // A buffer at one end, a window at both.
    let own = station.buffer.or(*window).unwrap_or(UNSAID).as_bytes().min(1 << 30) as u32;
    let other = window.unwrap_or(UNSAID).as_bytes().min(1 << 30) as u32;
    let (fast_phase, slow_phase) = birth.phases[side];
    Options {
        // Both ends of a flow know whom they talk to; ports only make captures readable.
        local: if side == 0 { 49_152 } else { 5_001 },
        remote: if side == 0 { 5_001 } else { 49_152 },
        // TCP bounds it by what a frame of its own may hold.
        mss: (birth.mtu - IP - TCP).min(u32::from(u16::MAX)) as u16,
        send_buffer: if side == 0 { own } else { other },
        receive_buffer: if side == 0 { other } else { own },
        timers: match timers {
            TcpTimers::Bsd => Timers::Bsd { fast_phase, slow_phase },
            TcpTimers::Fine => Timers::Fine { floor: Span::ZERO },
        },
        delayed_ack: *delayed_ack,
        nagle: !*nodelay,
        initial_sequence: birth.seed.stream(&format!("{} / isn {side}", birth.place)).bits() as u32,
        ..Options::default()
    }
}
