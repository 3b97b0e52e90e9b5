//! `trunkline llc wrap`: the end-to-end delay of messages by size and class.
//!
//! The delay of a message is from before the send call until the receive call returns on another thread. One message
//! is in flight at a time, so that it waits only for the network and the processors.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_io::Clock;
use trunkline_llc::socket::{Error, Sap};
use trunkline_llc::wire::{CRC, MAX_INFORMATION};
use trunkline_llc::{Address, Options, Outcome};
use trunkline_record::Histogram;
use trunkline_run::StopFlag;
use trunkline_units::{Instant, Span};

use super::figures::{self, Usage, Used};
use super::{ECHO, OWN, Pair, SINK, VERSION, persistent, settings, stopped};
use crate::failure::{Failure, print};
use crate::flags::llc::{PeerOptions, Wrap};

/// A datagram that has not arrived after this time is lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(500);
/// Interval between checks for the end.
const LOOK: Duration = Duration::from_millis(20);
/// Message size of the comparisons, as in the requirement of NASA.
const SIZE: u16 = 100;

/// Class, size and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    acknowledged: bool,
    crc: bool,
    size: u16,
    priority: u8,
}

/// The delays of one kind of message.
#[derive(Clone, Default)]
struct Row {
    delay: Histogram,
    lost: u64,
}

/// A received message.
struct Arrival {
    at: Instant,
    octets: u16,
    number: Option<u32>,
}

/// Returns the number of a message, if it is long enough: it identifies the sent message.
fn number(message: &[u8]) -> Option<u32> {
    message.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// Returns the arrival time of the message sent at `begun`. Late arrivals of earlier messages are skipped. A message
/// without a number is recognised by its size and by arriving after `begun`.
fn arrival(
    arrivals: &Receiver<Arrival>,
    clock: Clock,
    begun: Instant,
    size: u16,
    number: Option<u32>,
) -> Option<Instant> {
    loop {
        let left = Span::from(LOSS_TIMEOUT).as_ps().saturating_sub(clock.now().since(begun).as_ps());
        let one = arrivals.recv_timeout(Span::from_ps(left).into()).ok()?;
        if one.at >= begun && one.octets == size && one.number == number {
            return Some(one.at);
        }
    }
}

/// Two SAPs, and the messages received at the second.
struct Path<'a> {
    from: &'a Sap,
    to: Address,
    second: &'a Sap,
    arrivals: Receiver<Arrival>,
    clock: Clock,
    /// Number of numbered messages sent.
    sent: Cell<u32>,
}

/// Measures and prints the results.
pub fn wrap(flags: &Wrap, stop: &StopFlag) -> Result<(), Failure> {
    let settings = settings(&flags.local);
    let other = PeerOptions { with: None, second: flags.second.clone() };
    let pair = Pair::open(&flags.local, &other, &settings, stop)?;
    let clock = Clock::start();
    let station = pair.second.as_ref().expect("there is one without --with");
    let from = pair.own.open(OWN, &Options::default())?;
    let across = station.open(SINK, &Options::default())?;
    let within = pair.own.open(ECHO, &Options::default())?;
    let kinds = kinds(flags);
    let mut rows: Vec<(Kind, Row)> = kinds.iter().map(|kind| (*kind, Row::default())).collect();
    let over = AtomicBool::new(false);
    let (used, effects) = thread::scope(|scope| {
        let [across, within] =
            [&across, &within].map(|second| Path::begin(scope, &from, second, clock, &over));
        let measured = measure(flags, [&across, &within], &mut rows, stop);
        over.store(true, Ordering::Relaxed);
        measured
    })?;
    let lost_acknowledged =
        rows.iter().filter(|(kind, _)| kind.acknowledged).map(|(_, row)| row.lost).sum::<u64>();
    print(&if flags.json {
        as_json(flags, &rows, &used, &effects, stop.is_requested())
    } else {
        text(flags, &rows, &used, &effects)
    })?;
    match lost_acknowledged {
        _ if stop.is_requested() => Err(stopped()),
        0 => Ok(()),
        n => Err(Failure::run(format!("{n} acknowledged messages were lost"))),
    }
}

fn measure(
    flags: &Wrap,
    [across, within]: [&Path<'_>; 2],
    rows: &mut [(Kind, Row)],
    stop: &StopFlag,
) -> Result<(Used, Effects), Failure> {
    let before = Usage::now(across.clock);
    let turns = flags.messages.div_ceil(TURN);
    // Short turns, so that disturbances of the machine affect all kinds alike.
    for _ in 0..turns {
        for (kind, row) in &mut *rows {
            let left = u64::from(flags.messages) - row.delay.count() - row.lost;
            across.measure(*kind, left.min(u64::from(TURN)), row, stop)?;
        }
    }
    let used = Usage::now(across.clock).since(before);
    let kind = Kind { acknowledged: false, crc: false, size: SIZE, priority: 0 };
    let mut effects = Effects { measuring: figures::timing_cost(across.clock), ..Effects::default() };
    for _ in 0..turns {
        across.measure(kind, u64::from(TURN), &mut effects.other, stop)?;
        within.measure(kind, u64::from(TURN), &mut effects.same, stop)?;
        across.complete(&mut effects.signal, false, stop)?;
        across.complete(&mut effects.poll, true, stop)?;
    }
    Ok((used, effects))
}

/// Messages of one kind per turn.
const TURN: u32 = 50;

/// Returns the requested kinds. A size without room for its checksum is reduced accordingly.
fn kinds(flags: &Wrap) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (acknowledged, crc) in [(false, false), (true, false), (false, true), (true, true)] {
        for &size in &flags.size {
            let size = if crc { size.min((MAX_INFORMATION - CRC) as u16) } else { size };
            kinds.extend(flags.priority.iter().map(|&priority| Kind { acknowledged, crc, size, priority }));
        }
    }
    kinds.dedup();
    kinds
}

/// The effects that section 5.2 of the 1990 report examines.
#[derive(Default)]
struct Effects {
    other: Row,
    same: Row,
    signal: Row,
    poll: Row,
    measuring: Span,
}

impl<'a> Path<'a> {
    /// Starts a thread that receives at `second` until the end.
    fn begin<'scope>(
        scope: &'scope thread::Scope<'scope, '_>,
        from: &'a Sap,
        second: &'a Sap,
        clock: Clock,
        over: &'a AtomicBool,
    ) -> Path<'a>
    where
        'a: 'scope,
    {
        let (sender, arrivals) = mpsc::sync_channel(1024);
        scope.spawn(move || {
            let mut message = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match second.receive_within(&mut message, Some(LOOK)) {
                    // A full channel drops late messages.
                    Ok(_) => {
                        let at = clock.now();
                        let octets = message.len() as u16;
                        let _ = sender.try_send(Arrival { at, octets, number: number(&message) });
                    }
                    Err(Error::TimedOut) => {}
                    Err(_) => return,
                }
            }
        });
        let to = Address { sap: second.number(), station: second.station().number() };
        Path { from, to, second, arrivals, clock, sent: Cell::new(0) }
    }

    fn measure(&self, kind: Kind, messages: u64, row: &mut Row, stop: &StopFlag) -> Result<(), Failure> {
        let Kind { acknowledged, crc, size, priority } = kind;
        let options = Options { acknowledged, crc, ..persistent(priority) };
        self.from.configure(&options)?;
        self.second.configure(&options)?;
        let mut message: Vec<u8> = (0..size).map(|n| n as u8).collect();
        for _ in 0..messages {
            if stop.is_requested() {
                break;
            }
            self.sent.set(self.sent.get().wrapping_add(1));
            if let Some(octets) = message.first_chunk_mut() {
                *octets = self.sent.get().to_be_bytes();
            }
            while self.arrivals.try_recv().is_ok() {}
            let begun = self.clock.now();
            self.from.start(self.to, &message, None)?;
            match arrival(&self.arrivals, self.clock, begun, size, number(&message)) {
                Some(at) => row.delay.record(at.since(begun)),
                None => row.lost += 1,
            }
            let ended = self.from.ended(None)?;
            row.lost += u64::from(acknowledged && ended.outcome != Outcome::Done);
        }
        Ok(())
    }

    /// Sends acknowledged messages, each after the end of the previous one, which is awaited or polled for.
    fn complete(&self, row: &mut Row, polls: bool, stop: &StopFlag) -> Result<(), Failure> {
        let options = persistent(0);
        self.from.configure(&options)?;
        self.second.configure(&options)?;
        for _ in 0..TURN {
            if stop.is_requested() {
                break;
            }
            let begun = self.clock.now();
            self.from.start(self.to, &[7; SIZE as usize], None)?;
            let sent = loop {
                match self.from.ended(if polls { Some(Duration::ZERO) } else { None }) {
                    Ok(sent) => break sent,
                    Err(Error::TimedOut) => {}
                    Err(e) => return Err(e.into()),
                }
            };
            match sent.outcome {
                Outcome::Done => row.delay.record(self.clock.now().since(begun)),
                _ => row.lost += 1,
            }
            let _ = self.arrivals.recv_timeout(LOSS_TIMEOUT);
        }
        Ok(())
    }
}

/// Merges the rows of one name.
fn merge_by<T: PartialEq + Copy>(rows: &[(Kind, Row)], of: impl Fn(&Kind) -> T) -> Vec<(T, Row)> {
    let mut all: Vec<(T, Row)> = Vec::new();
    for (kind, row) in rows {
        let of = of(kind);
        let at = all.iter().position(|(other, _)| *other == of).unwrap_or_else(|| {
            all.push((of, Row::default()));
            all.len() - 1
        });
        all[at].1.delay.merge(&row.delay);
        all[at].1.lost += row.lost;
    }
    all
}

/// Returns the ratio of two medians, or `None` if either was not measured.
fn ratio(of: &Row, by: &Row) -> Option<f64> {
    Some(median(of)? / median(by)?)
}

fn median(row: &Row) -> Option<f64> {
    row.delay.distribution_us().map(|d| d.p50)
}

fn text(flags: &Wrap, rows: &[(Kind, Row)], used: &Used, effects: &Effects) -> String {
    let line = |row: &Row| format!("{}{:>8}\n", figures::columns(&row.delay), row.lost);
    let heads = figures::heads();
    let mut text =
        format!("end-to-end delay on {}, from user memory to user memory\n\n", flags.local.network);
    text += &format!("{:<10}{:>8}{heads}{:>8}\n", "class", "octets", "lost");
    for ((class, size), row) in
        merge_by(rows, |kind| (figures::class(kind.acknowledged, kind.crc), kind.size))
    {
        text += &format!("{class:<10}{size:>8}{}", line(&row));
    }
    text += &format!("\n{:<18}{heads}{:>8}\n", "priority", "lost");
    for (priority, row) in merge_by(rows, |kind| kind.priority) {
        text += &format!("{priority:<18}{}", line(&row));
    }
    let Effects { other, same, signal, poll, measuring } = effects;
    text += &format!("\n{:<18}{heads}{:>8}\n", format!("{SIZE} octets"), "lost");
    for (label, row) in [
        ("another station", other),
        ("the same station", same),
        ("ACK, signalled", signal),
        ("ACK, polled", poll),
    ] {
        text += &format!("{label:<18}{}", line(row));
    }
    text += &format!("\n{}", used.text());
    let format_ratio =
        |ratio: Option<f64>| ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
    let share = median(other).map(|median| figures::percent(measuring.as_us() / median));
    text += &format!(
        "timing: {:.3} us per message, {} of the delay\n",
        measuring.as_us(),
        share.as_deref().unwrap_or("-")
    );
    text += &format!("same station: delay ratio to another station {}\n", format_ratio(ratio(same, other)));
    text += &format!("completion signalled: delay ratio to polling {}\n", format_ratio(ratio(signal, poll)));
    text
}

fn as_json(flags: &Wrap, rows: &[(Kind, Row)], used: &Used, effects: &Effects, partial: bool) -> String {
    let row = |row: &Row| json!({ "lost": row.lost, "delay_us": figures::distribution(&row.delay) });
    let one = |(kind, of): &(Kind, Row)| {
        let mut value = row(of);
        let Kind { acknowledged, crc, size, priority } = *kind;
        value["class"] = figures::class(acknowledged, crc).into();
        (value["octets"], value["priority"]) = (size.into(), priority.into());
        value
    };
    let whole = json!({
        "version": VERSION, "tool": "wrap", "network": flags.local.network.to_string(), "messages": flags.messages,
        "partial": partial,
        "rows": rows.iter().map(one).collect::<Vec<Value>>(),
        "processors": used.json(),
        "effects": {
            "octets": SIZE, "another_station": row(&effects.other), "same_station": row(&effects.same),
            "signalled": row(&effects.signal), "polled": row(&effects.poll), "measuring_us": effects.measuring.as_us(),
        },
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_arrival_does_not_match_the_next_message() {
        let clock = Clock::start();
        let early = clock.now();
        let begun = early + Span::from_ms(1);
        let at = |ms: u64| begun + Span::from_ms(ms);
        let match_arrival = |arrivals: &[(Instant, u16, Option<u32>)], size, number| {
            let (sender, receiver) = mpsc::sync_channel(8);
            for &(at, octets, number) in arrivals {
                sender.send(Arrival { at, octets, number }).unwrap();
            }
            drop(sender);
            arrival(&receiver, clock, begun, size, number)
        };
        let late = (at(1), 100, Some(6));
        assert_eq!(match_arrival(&[late, (at(2), 100, Some(7))], 100, Some(7)), Some(at(2)));
        assert_eq!(match_arrival(&[late], 100, Some(7)), None);
        // A message of two octets has no number.
        let before = (early, 2, None);
        assert_eq!(match_arrival(&[before, (at(1), 0, None), (at(2), 2, None)], 2, None), Some(at(2)));
        assert_eq!([&b"abc"[..], &[0, 0, 1, 2, 3]].map(number), [None, Some(258)]);
    }
}
