//! Ends over LLC: messages of a host's station, with a priority, acknowledged or not.

use std::net::SocketAddr;
use std::sync::mpsc::RecvTimeoutError;

use trunkline_io::Pacer;
use trunkline_record::Histogram;
use trunkline_run::ends::{ReceiverReport, SenderReport};
use trunkline_run::llc::{self, Ends};
use trunkline_run::message::{HEADER, Header, Kind};
use trunkline_run::{Ledger, Meter};
use trunkline_traffic::source::{Limit, Step};
use trunkline_traffic::{Pattern, Source};
use trunkline_units::{Instant, Span};

use super::request::{answer_to, lay};
use super::{Bench, Broken, EndError, LOOK};
use crate::station::{Line, News};
use crate::wire::Report;

/// How long it is waited for until all stations are in one ring.
const RING: Span = Span::from_s(20);
/// A station that says nothing of messages for so long will not.
const STUCK: Span = Span::from_s(20);
/// A request that nobody has answered by then is given up.
const UNANSWERED: Span = Span::from_s(1);
/// Before a message is due, a sender listens; from then on it watches the clock.
const WATCH: Span = Span::from_ms(1);

/// What the sending user knows.
struct Sender<'b> {
    bench: &'b mut Bench,
    line: Line,
    /// The peer's station.
    to: u8,
    ledger: Ledger,
    /// Messages whose end has not been told, and how many there may be.
    waiting: u16,
    most: u16,
    ends: Ends,
    rtt: Histogram,
    /// The request that waits for its answer.
    asked: Option<(u64, Instant)>,
    answers: u64,
    answer_bytes: u64,
    unanswered: u64,
    heard: Instant,
}

/// An end's line to its station, which has to be there.
fn line(bench: &Bench, answers: bool) -> Result<(Line, SocketAddr), EndError> {
    let station = bench.station.clone().map_err(EndError::Station)?;
    let number = station.number();
    let line = station.line(&bench.spec.protocol, bench.spec.token, answers).map_err(EndError::Station)?;
    // Where others have a port, a station has a number.
    Ok((line, SocketAddr::new(bench.spec.address, number.into())))
}

/// Sends whatever the pattern asks for.
pub(crate) fn send(mut bench: Bench, peer: SocketAddr, limit: Limit) -> Result<Report, Broken> {
    let (line, address) = line(&bench, true)?;
    let start = bench.ready(address)?;
    let start = await_ring(&bench, &line, start)?;
    let mut source = bench.source(start, limit, bench.largest())?;
    let most = llc::waiting(&bench.spec.pattern);
    let mut sender = Sender {
        to: peer.port() as u8,
        ledger: Ledger::new(start),
        bench: &mut bench,
        line,
        waiting: 0,
        most,
        ends: Ends::default(),
        rtt: Histogram::default(),
        asked: None,
        answers: 0,
        answer_bytes: 0,
        unanswered: 0,
        heard: start,
    };
    let result = sender.pump(&mut source);
    let mut report = SenderReport::whole(&sender.ledger, &source);
    report.rtt = sender.rtt.counts();
    report.counters = sender.ends.figures();
    report.counters.insert("llc_priority".into(), sender.line.priority.into());
    report.counters.extend(sender.line.station.figures());
    if sender.asks() {
        let counts = [
            ("answers", sender.answers),
            ("answer_bytes", sender.answer_bytes),
            ("unanswered", sender.unanswered),
        ];
        report.counters.extend(counts.map(|(name, count)| (name.to_string(), count as f64)));
    }
    report.cpu = bench.cpu();
    match result {
        Ok(()) => Ok(Report::Sender(Box::new(report))),
        Err(error) => Err(Broken { error, report: Some(Report::Sender(Box::new(report))) }),
    }
}

/// When the first message may leave: once all stations are in the ring, if there is a token.
fn await_ring(bench: &Bench, line: &Line, start: Instant) -> Result<Instant, EndError> {
    let patience = bench.clock.now().max(start) + RING;
    if line.station.is_whole() {
        return Ok(start);
    }
    while !line.station.is_whole() {
        if bench.control.stopped() {
            return Err(EndError::Stopped);
        }
        if bench.clock.now() >= patience {
            return Err(EndError::Station("its stations formed no ring".into()));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(start.max(bench.clock.now()))
}

impl Sender<'_> {
    fn asks(&self) -> bool {
        matches!(self.bench.spec.pattern, Pattern::Request { .. })
    }

    fn pump(&mut self, source: &mut Source) -> Result<(), EndError> {
        let (mut image, mut sequence) = (Vec::new(), 0);
        let mut pacer = Pacer::new(self.bench.clock);
        while !self.bench.control.stopped() {
            self.listen_now();
            let now = self.bench.clock.now();
            if self.is_held(now)? {
                self.listen(now + LOOK);
                continue;
            }
            let message = match source.next(now) {
                Step::Done => break,
                Step::Wait(until) if now + WATCH < until => {
                    self.listen((until - WATCH).min(now + LOOK));
                    continue;
                }
                Step::Wait(until) => {
                    pacer.wait(until, self.bench.control.stop_flag());
                    continue;
                }
                Step::Send(message) => message,
            };
            let (length, response) = (message.size, message.response);
            let header = Header { sequence, sent: now, length, response, kind: Kind::Pattern };
            lay(self.bench, &mut image, &header);
            while !self.line.send(self.to, &image).map_err(|e| EndError::Station(e.to_string()))? {
                // Others have filled the SAP.
                if self.bench.control.stopped() {
                    return Ok(());
                }
                self.listen(self.bench.clock.now() + WATCH);
            }
            (self.waiting, self.heard) = (self.waiting + 1, now);
            self.asked = self.asks().then_some((sequence, now));
            sequence += 1;
            self.ledger.depart(&message, now);
            if message.first {
                source.departed(now);
            }
            self.bench.copy_ledger(&self.ledger, now);
        }
        self.wait_for_ends()
    }

    /// Whether the next message has to wait for the end of one before.
    fn is_held(&mut self, now: Instant) -> Result<bool, EndError> {
        if let Some((_, asked)) = self.asked {
            if now.since(asked) < UNANSWERED {
                return Ok(true);
            }
            self.asked = None;
            self.unanswered += 1;
        }
        if self.waiting >= self.most && now.since(self.heard) >= STUCK {
            return Err(EndError::Station("it does not tell what became of its messages".into()));
        }
        Ok(self.waiting >= self.most)
    }

    /// Waits until the end of every message has been told, or none is for long.
    fn wait_for_ends(&mut self) -> Result<(), EndError> {
        while (self.waiting > 0 || self.asked.is_some()) && !self.bench.control.stopped() {
            let now = self.bench.clock.now();
            let patience = if self.waiting > 0 { STUCK } else { UNANSWERED };
            if now.since(self.heard) >= patience {
                self.unanswered += u64::from(self.asked.is_some());
                break;
            }
            self.listen(now + LOOK);
        }
        Ok(())
    }

    /// Hears what there is.
    fn listen_now(&mut self) {
        while let Ok(news) = self.line.news.try_recv() {
            self.hear(news);
        }
    }

    /// Hears something, or nothing until then.
    fn listen(&mut self, until: Instant) {
        let patience = until.since(self.bench.clock.now());
        if let Ok(news) = self.line.news.recv_timeout(patience.into()) {
            self.hear(news);
        }
    }

    fn hear(&mut self, news: News) {
        self.heard = self.bench.clock.now();
        match news {
            News::Ended(outcome, tries, took) => {
                self.waiting = self.waiting.saturating_sub(1);
                self.ends.count(outcome, tries);
                let answered = matches!(
                    self.bench.spec.protocol,
                    trunkline_experiment::plan::Protocol::Llc { r#type: 3, .. }
                );
                if answered && !self.asks() && outcome == trunkline_llc::Outcome::Done {
                    self.rtt.record(took);
                }
            }
            News::Came(at, _, bytes) => {
                let Ok(header) = Header::decode(self.bench.spec.token, &bytes) else { return };
                if let Some((_, asked)) = self.asked.take_if(|(sequence, _)| *sequence == header.sequence) {
                    self.rtt.record(at.since(asked));
                    self.answers += 1;
                    self.answer_bytes += u64::from(header.length);
                }
            }
        }
    }
}

/// Receives whatever comes, and answers what asks for it.
pub(crate) fn receive(mut bench: Bench) -> Result<Report, Broken> {
    let (line, address) = line(&bench, false)?;
    let start = bench.ready(address)?;
    let (mut meter, mut reply) = (Meter::new(start), Vec::new());
    while !bench.control.stopped() {
        let news = line.news.recv_timeout(LOOK.into());
        let now = bench.clock.now();
        match news {
            Ok(News::Came(at, from, bytes)) => match Header::decode(bench.spec.token, &bytes) {
                Ok(header) if is_intact(&bench, &header, &bytes) => {
                    meter.arrive(&header, at);
                    if header.response > 0 {
                        lay(&bench, &mut reply, &answer_to(&header, now));
                        let answer = line.send(from, &reply);
                        // One that finds no room is not sent, and not waited for any longer than any other.
                        answer.map_err(|e| EndError::Station(e.to_string()))?;
                    }
                }
                _ => meter.corrupted(),
            },
            Ok(News::Ended(..)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        bench.copy_meter(&meter, now);
        if bench.is_complete(&meter, now) {
            break;
        }
    }
    let mut report = ReceiverReport::of(&meter);
    report.cpu = bench.cpu();
    Ok(Report::Receiver(Box::new(report)))
}

fn is_intact(bench: &Bench, header: &Header, bytes: &[u8]) -> bool {
    header.length as usize == bytes.len() && bench.payload.matches(0, &bytes[HEADER..])
}
