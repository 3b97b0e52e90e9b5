//! `trunkline llc load`: throughput by message size.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_io::{Clock, Pacer};
use trunkline_llc::socket::{Error, Sap, Settings, StationSocket};
use trunkline_llc::wire::{CRC, MAX_INFORMATION};
use trunkline_llc::{Address, Options, Outcome};
use trunkline_record::Histogram;
use trunkline_run::StopFlag;
use trunkline_units::{Rate, Size, Span};

use super::figures::{self, Usage, Used};
use super::serve::{Common, with_services};
use super::{
    CHECKED_OWN, CHECKED_SINK, COUNT, OWN, Pair, SINK, VERSION, pause, persistent, settings, stopped,
};
use crate::failure::{Failure, print};
use crate::flags::llc::Load;

/// Time for messages in flight to arrive.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Time for a reply of the counter service.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages between two clock readings, unless each message is timed.
const MESSAGES_PER_READING: u64 = 16;
/// Message size and maximum duration of the comparisons.
const SIZE: u16 = 128;
const COMPARISON_TIME: Span = Span::from_ms(500);

/// How messages are sent.
#[derive(Clone, Copy, Debug)]
struct Offer {
    size: u16,
    time: Span,
    messages: u64,
    rate: Option<u64>,
    batch: usize,
    mode: SendMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendMode {
    /// One call after the other.
    Plain,
    /// One call after the other, each timed.
    Timed,
    /// Each call waits for the end of the previous message.
    Completed,
    /// Each call polls for the end of the previous message.
    Polled,
}

/// The result.
struct Row {
    size: u16,
    sent: u64,
    /// Acknowledged messages that failed.
    failed: u64,
    received: u64,
    took: Span,
    used: Used,
    call: Histogram,
}

/// The sender and the receiver of a measurement.
struct Path<'a> {
    from: &'a Sap,
    to: Address,
    count: &'a Sap,
    clock: Clock,
    stop: &'a StopFlag,
    acknowledged: bool,
}

/// Measures and prints the results.
pub fn load(flags: &Load, stop: &StopFlag) -> Result<(), Failure> {
    let settings = Settings { batch: flags.batch.into(), ..settings(&flags.local) };
    let pair = Pair::open(&flags.local, &flags.other, &settings, stop)?;
    // Messages to the own station are counted there.
    let stations: Vec<&StationSocket> = pair.second.iter().chain([&pair.own]).collect();
    let common = stations.into_iter().map(Common::open).collect::<Result<Vec<_>, _>>()?;
    let (rows, effects) = with_services(&common, || measure(flags, &pair, stop))?;
    print(&if flags.json {
        as_json(flags, &rows, effects.as_ref(), stop.is_requested())
    } else {
        text(flags, &rows, effects.as_ref())
    })?;
    if stop.is_requested() { Err(stopped()) } else { Ok(()) }
}

/// The comparisons of section 5.2 of the 1990 report. The first one is the reference.
struct Effects {
    plain: Row,
    timed: Row,
    same: Row,
    completed: Row,
    polled: Row,
    measuring: Span,
}

fn measure(flags: &Load, pair: &Pair, stop: &StopFlag) -> Result<(Vec<Row>, Option<Effects>), Failure> {
    let own = if flags.crc { CHECKED_OWN } else { OWN };
    let sink = if flags.crc { CHECKED_SINK } else { SINK };
    let options = Options {
        acknowledged: flags.acknowledged,
        crc: flags.crc,
        queue: 256,
        ..persistent(flags.priority)
    };
    let from = pair.own.open(own, &options)?;
    // The SAP that requests the counts.
    let count = pair.own.open(COUNT_REQUESTS, &persistent(7))?;
    let to = |station: u8| Path {
        from: &from,
        to: Address { sap: sink, station },
        count: &count,
        clock: Clock::start(),
        stop,
        acknowledged: flags.acknowledged,
    };
    let (across, within) = (to(pair.other), to(pair.own.number()));
    let offer = |size: u16| Offer {
        size: if flags.crc { size.min((MAX_INFORMATION - CRC) as u16) } else { size },
        time: flags.duration,
        messages: flags.messages,
        rate: flags.rate,
        batch: flags.batch.into(),
        mode: SendMode::Plain,
    };
    let mut rows = Vec::new();
    for &size in &flags.size {
        if !stop.is_requested() {
            rows.push(across.run(&offer(size))?);
        }
    }
    if flags.plain || stop.is_requested() {
        return Ok((rows, None));
    }
    let offer = Offer { time: flags.duration.min(COMPARISON_TIME), rate: None, ..offer(SIZE) };
    let effects = Effects {
        plain: across.run(&offer)?,
        timed: across.run(&Offer { mode: SendMode::Timed, ..offer })?,
        same: within.run(&offer)?,
        completed: across.run(&Offer { mode: SendMode::Completed, ..offer })?,
        polled: across.run(&Offer { mode: SendMode::Polled, ..offer })?,
        measuring: figures::timing_cost(across.clock),
    };
    Ok((rows, Some(effects)))
}

/// SAP from which counts are requested.
const COUNT_REQUESTS: u8 = 0x84;

impl Path<'_> {
    fn run(&self, offer: &Offer) -> Result<Row, Failure> {
        // Reset the counts.
        self.counted()?;
        let before = Usage::now(self.clock);
        let mut row = Row {
            size: offer.size,
            sent: 0,
            failed: 0,
            received: 0,
            took: Span::ZERO,
            used: before.since(before),
            call: Histogram::default(),
        };
        self.send(offer, &mut row)?;
        row.used = Usage::now(self.clock).since(before);
        row.took = row.used.took;
        pause(SETTLE_TIME);
        row.received = self.counted()?;
        Ok(row)
    }

    fn send(&self, offer: &Offer, row: &mut Row) -> Result<(), Failure> {
        let message: Vec<u8> = (0..offer.size).map(|n| n as u8).collect();
        let end = self.clock.now() + offer.time;
        let mut pacer = Pacer::new(self.clock);
        let begun = self.clock.now();
        while row.sent < offer.messages && !self.stop.is_requested() && self.clock.now() < end {
            let mut most = if offer.mode == SendMode::Timed { 1 } else { MESSAGES_PER_READING }
                .min(offer.messages - row.sent);
            if let Some(rate) = offer.rate {
                let due = begun
                    + Span::from_ps((u128::from(row.sent) * 1_000_000_000_000 / u128::from(rate)) as u64);
                if pacer.wait(due.min(end), self.stop.flag()) < due {
                    continue;
                }
                most = 1;
            }
            self.send_some(offer, &message, most, row)?;
        }
        Ok(())
    }

    /// Sends up to `most` messages.
    fn send_some(&self, offer: &Offer, message: &[u8], most: u64, row: &mut Row) -> Result<(), Failure> {
        let (from, to, acknowledged) = (self.from, self.to, self.acknowledged);
        match offer.mode {
            SendMode::Plain if !acknowledged && offer.batch > 1 && offer.rate.is_none() => {
                let messages = vec![message; offer.batch];
                row.sent += from.send_many(to, &messages)? as u64;
            }
            SendMode::Plain if !acknowledged => {
                for _ in 0..most {
                    from.send(to, message)?;
                }
                row.sent += most;
            }
            SendMode::Timed => {
                let before = self.clock.now();
                match acknowledged {
                    true => self.exchange(message, row)?,
                    false => {
                        from.send(to, message)?;
                        row.sent += 1;
                    }
                }
                row.call.record(self.clock.now().since(before));
            }
            SendMode::Plain | SendMode::Completed => {
                (0..most).try_for_each(|_| self.exchange(message, row))?
            }
            SendMode::Polled => {
                for _ in 0..most {
                    from.start(to, message, None)?;
                    row.sent += 1;
                    let ended = loop {
                        match from.ended(Some(Duration::ZERO)) {
                            Err(Error::TimedOut) => {}
                            other => break other?,
                        }
                    };
                    row.failed += u64::from(ended.outcome != Outcome::Done);
                }
            }
        }
        Ok(())
    }

    fn exchange(&self, message: &[u8], row: &mut Row) -> Result<(), Failure> {
        let sent = self.from.exchange(self.to, message)?;
        row.sent += 1;
        row.failed += u64::from(sent.outcome != Outcome::Done);
        Ok(())
    }

    /// Returns the sink's count since the last request.
    fn counted(&self) -> Result<u64, Failure> {
        let to = Address { sap: COUNT, station: self.to.station };
        let mut answer = Vec::new();
        for _ in 0..3 {
            while self.count.try_receive(&mut answer).is_ok() {}
            if self.count.exchange(to, &[self.from.number()])?.outcome != Outcome::Done {
                continue;
            }
            if self.count.receive_within(&mut answer, Some(COUNT_TIMEOUT)).is_ok()
                && let Some((messages, _)) = answer.split_first_chunk()
            {
                return Ok(u64::from_be_bytes(*messages));
            }
        }
        Err(Failure::run(format!("station {} does not report its counts", self.to.station)))
    }
}

impl Row {
    fn per_second(&self, messages: u64) -> f64 {
        messages as f64 / self.took.as_s().max(1e-9)
    }

    fn lost(&self) -> f64 {
        1.0 - self.received as f64 / self.sent.max(1) as f64
    }

    fn bits(&self, messages: u64) -> Rate {
        Rate::of(Size::from_bytes(messages * u64::from(self.size)), self.took)
    }

    fn text(&self, label: &str) -> String {
        let idle = self.used.idle.map_or("-".into(), figures::percent);
        format!(
            "{label:<16}{:>12.0}{:>16}{:>12.0}{:>16}{:>10}{:>10}{:>8.2}\n",
            self.per_second(self.sent),
            self.bits(self.sent).to_string(),
            self.per_second(self.received),
            self.bits(self.received).to_string(),
            figures::percent(self.lost()),
            idle,
            self.used.process,
        )
    }

    fn json(&self) -> Value {
        let mut value = self.used.json();
        value["octets"] = self.size.into();
        value["sent"] = self.sent.into();
        value["received"] = self.received.into();
        value["failed"] = self.failed.into();
        value["sent_per_s"] = self.per_second(self.sent).into();
        value["received_per_s"] = self.per_second(self.received).into();
        value["sent_bps"] = self.bits(self.sent).as_bps().into();
        value["received_bps"] = self.bits(self.received).as_bps().into();
        if self.call.count() > 0 {
            value["call_us"] = figures::distribution(&self.call);
        }
        value
    }
}

const HEAD: &str =
    "octets            sent msg/s            sent  recv. msg/s        received      lost      idle   cpus\n";

fn text(flags: &Load, rows: &[Row], effects: Option<&Effects>) -> String {
    let class = figures::class(flags.acknowledged, flags.crc);
    let mut text =
        format!("load on {}, class {class}, priority {}\n\n{HEAD}", flags.local.network, flags.priority);
    for row in rows {
        text += &row.text(&row.size.to_string());
    }
    let Some(Effects { plain, timed, same, completed, polled, measuring }) = effects else { return text };
    text += &format!("\n{} octets\n", plain.size);
    for (label, row) in [
        ("plain", plain),
        ("calls timed", timed),
        ("same station", same),
        ("signalled", completed),
        ("polled", polled),
    ] {
        text += &row.text(label);
    }
    let ratio = |a: &Row, b: &Row| a.per_second(a.sent) / b.per_second(b.sent).max(1e-9);
    text += &format!(
        "\ntiming each message: {:.3} us per message; rate ratio to untimed {:.2}\n",
        measuring.as_us(),
        ratio(timed, plain)
    );
    text += &format!("same station: rate ratio to another station {:.2}\n", ratio(same, plain));
    text + &format!("completion signalled: rate ratio to polling {:.2}\n", ratio(completed, polled))
}

fn as_json(flags: &Load, rows: &[Row], effects: Option<&Effects>, partial: bool) -> String {
    let effects = effects.map(|e| {
        json!({
            "plain": e.plain.json(), "timed": e.timed.json(), "same_station": e.same.json(),
            "completed": e.completed.json(), "polled": e.polled.json(), "measuring_us": e.measuring.as_us(),
        })
    });
    let whole = json!({
        "version": VERSION, "tool": "load", "network": flags.local.network.to_string(),
        "class": figures::class(flags.acknowledged, flags.crc), "priority": flags.priority, "batch": flags.batch,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(), "effects": effects, "partial": partial,
    });
    format!("{whole:#}\n")
}
