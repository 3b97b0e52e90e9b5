//! `trunkline llc test`: tests every function of a station.

use std::thread;
use std::time::Duration;

use serde_json::json;
use trunkline_llc::socket::{Error, Sap};
use trunkline_llc::wire::{ALL, CRC, CommandStatus, GLOBAL_SAP, MAX_INFORMATION, NULL_SAP};
use trunkline_llc::{Address, Event, Options, Outcome, Refusal};
use trunkline_run::StopFlag;
use trunkline_units::Span;

use super::serve::{Common, with_services};
use super::{
    CHECKED_ECHO, CHECKED_OWN, ECHO, GROUP, OWN, Pair, RESPONSE_TIMEOUT, SINK, VERSION, pause, persistent,
    settings, stopped,
};
use crate::failure::{Failure, print};
use crate::flags::llc::Test;

/// Time for an expected message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// A SAP that is closed on every station.
const CLOSED: u8 = 0x5c;
/// A spare SAP of this station.
const SPARE: u8 = 0x80;

/// Why a trial failed.
type Reason = Box<dyn std::error::Error + Send + Sync>;

/// The result of a trial: a remark, or the error.
type TrialResult = Result<String, Reason>;

/// A function of a station and its trial.
type Trial = (&'static str, fn(&Bench) -> TrialResult);

const TRIALS: &[Trial] = &[
    ("SAPs open; invalid requests are rejected", opens),
    ("TEST to the station is answered", |bench| tests(bench, NULL_SAP)),
    ("TEST to a SAP is answered", |bench| tests(bench, ECHO)),
    ("TEST to a group is answered by its members", groups),
    ("TEST to a closed SAP is not answered", closed_sap),
    ("XID: the station supports types 1 and 3", |bench| identifies(bench, NULL_SAP)),
    ("XID: a SAP supports types 1 and 3", |bench| identifies(bench, ECHO)),
    ("datagrams are echoed unchanged", |bench| echoes(bench, &bench.sap, ECHO, MAX_INFORMATION)),
    ("datagrams with a checksum", |bench| echoes(bench, &bench.checked, CHECKED_ECHO, MAX_INFORMATION - CRC)),
    ("datagrams to a group and to all stations", to_many),
    ("priorities are preserved", priorities),
    ("the highest priority is received first", highest_first),
    ("acknowledged messages are received once and in order", |bench| acknowledged(bench, false)),
    ("acknowledged messages with a checksum", |bench| acknowledged(bench, true)),
    ("a closed SAP refuses acknowledged messages", refuses),
    ("a message to an absent station fails after all tries", gives_up),
    ("a message fails at its time limit", late),
    ("a full queue is reported", full),
    ("a reset aborts queued messages", resets),
    ("a message to the own station", to_own_station),
    ("two SAPs send simultaneously", both),
];

/// The stations and SAPs of the trials.
struct Bench {
    pair: Pair,
    sap: Sap,
    checked: Sap,
    /// The number of an absent station.
    absent: Option<u8>,
}

/// Runs all trials.
pub fn test(flags: &Test, stop: &StopFlag) -> Result<(), Failure> {
    let settings = settings(&flags.local);
    let pair = Pair::open(&flags.local, &flags.other, &settings, stop)?;
    let common = pair.second.iter().map(Common::open).collect::<Result<Vec<_>, _>>()?;
    let found = with_services(&common, || try_all(pair, flags, stop))?;
    if flags.json {
        let one = |(what, found): &(&str, TrialResult)| {
            let said = found.as_ref().map_or_else(Reason::to_string, String::clone);
            json!({ "what": what, "ok": found.is_ok(), "said": said })
        };
        let whole = json!({
            "version": VERSION, "tool": "test", "network": flags.local.network.to_string(),
            "ok": found.iter().all(|(_, found)| found.is_ok()), "partial": found.len() < TRIALS.len(),
            "functions": found.iter().map(one).collect::<Vec<_>>(),
        });
        print(&format!("{whole:#}\n"))?;
    }
    match found.iter().filter(|(_, found)| found.is_err()).count() {
        0 if found.len() < TRIALS.len() => Err(stopped()),
        0 => Ok(()),
        failed => Err(Failure::run(format!("{failed} of {} functions failed", found.len()))),
    }
}

fn try_all(pair: Pair, flags: &Test, stop: &StopFlag) -> Result<Vec<(&'static str, TrialResult)>, Failure> {
    let open = |sap: u8, options: &Options| pair.own.open(sap, options);
    let (sap, checked) =
        (open(OWN, &Options::default())?, open(CHECKED_OWN, &Options { crc: true, ..Options::default() })?);
    // Search from the highest number, where stations are rare.
    let absent = (200..ALL).rev().filter(|n| *n != pair.other && *n != pair.own.number()).find(|&station| {
        sap.test(Address { sap: NULL_SAP, station }, b"", Duration::from_millis(100)).is_err()
    });
    let bench = Bench { pair, sap, checked, absent };
    if !flags.json {
        let (own, other) = (bench.pair.own.number(), bench.pair.other);
        print(&format!("station {own} with station {other} on {}\n\n", flags.local.network))?;
    }
    let mut all = Vec::new();
    for (what, trial) in TRIALS {
        if stop.is_requested() {
            break;
        }
        let found = bench.begin().and_then(|()| trial(&bench));
        if !flags.json {
            print(&match &found {
                Ok(text) if text.is_empty() => format!("ok      {what}\n"),
                Ok(text) => format!("ok      {what}: {text}\n"),
                Err(error) => format!("FAILED  {what}: {error}\n"),
            })?;
        }
        all.push((*what, found));
    }
    Ok(all)
}

fn require(condition: bool, error: impl FnOnce() -> String) -> Result<(), Reason> {
    if condition { Ok(()) } else { Err(error().into()) }
}

impl Bench {
    fn to(&self, sap: u8) -> Address {
        Address { sap, station: self.pair.other }
    }

    /// Resets both SAPs and discards pending messages.
    fn begin(&self) -> Result<(), Reason> {
        for (sap, crc) in [(&self.sap, false), (&self.checked, true)] {
            sap.configure(&Options { crc, queue: 256, ..Options::default() })?;
            while sap.try_receive(&mut Vec::new()).is_ok() {}
        }
        Ok(())
    }

    /// Sends a message and waits for its echo. Retries, because datagrams may be lost.
    fn echo(&self, sap: &Sap, to: Address, from: Address, bytes: &[u8], priority: u8) -> Result<(), Reason> {
        let mut message = Vec::new();
        for _ in 0..3 {
            sap.send_with(to, bytes, Some(priority), Some(MESSAGE_TIMEOUT))?;
            loop {
                match sap.receive_within(&mut message, Some(RESPONSE_TIMEOUT)) {
                    Ok(received) if received.from == from && message == bytes => {
                        let got = received.priority;
                        return require(got == priority, || {
                            format!("the echo has priority {got} instead of {priority}")
                        });
                    }
                    Ok(_) => {}
                    Err(Error::TimedOut) => break,
                    Err(e) => return Err(e.into()),
                }
            }
        }
        Err(format!("no echo of {} octets to {to}", bytes.len()).into())
    }

    fn absent(&self) -> Result<Address, Reason> {
        let station = self.absent.ok_or("all stations from 200 to 254 answer")?;
        Ok(Address { sap: ECHO, station })
    }
}

fn pattern(octets: usize) -> Vec<u8> {
    (0..octets).map(|n| (n * 7 + octets) as u8).collect()
}

fn opens(bench: &Bench) -> TrialResult {
    let own = &bench.pair.own;
    let spare = own.open(SPARE, &Options::default())?;
    let refused = |sap: u8, options: &Options| match own.open(sap, options) {
        Err(Error::Refused(refusal)) => Some(refusal),
        _ => None,
    };
    for (sap, options, expected) in [
        (SPARE, Options::default(), Refusal::Duplicate),
        (SPARE + 1, Options::default(), Refusal::Invalid),
        (NULL_SAP, Options::default(), Refusal::Invalid),
        (SPARE + 4, Options { tries: 0, ..Options::default() }, Refusal::Options),
    ] {
        let refused = refused(sap, &options);
        require(refused == Some(expected), || {
            format!("SAP {sap:#04x}: {refused:?} instead of {expected:?}")
        })?;
    }
    let long = spare.send(bench.to(ECHO), &pattern(MAX_INFORMATION + 1));
    require(matches!(long, Err(Error::Refused(Refusal::TooLarge))), || format!("too long: {long:?}"))?;
    drop(spare);
    own.open(SPARE, &Options::default())?;
    Ok(String::new())
}

fn tests(bench: &Bench, sap: u8) -> TrialResult {
    let mut slowest = Span::ZERO;
    for octets in [0, 1, 100, MAX_INFORMATION] {
        let (tested, took) = bench.sap.test(bench.to(sap), &pattern(octets), MESSAGE_TIMEOUT)?;
        let whole = tested.intact && usize::from(tested.length) == octets;
        require(whole && tested.from == bench.to(sap), || format!("{octets} octets: {tested:?}"))?;
        slowest = slowest.max(took);
    }
    Ok(format!("at most {:.0} us", slowest.as_us()))
}

fn groups(bench: &Bench) -> TrialResult {
    let (tested, _) = bench.sap.test(bench.to(GROUP), b"group", MESSAGE_TIMEOUT)?;
    require(tested.from == bench.to(ECHO) && tested.intact, || format!("{tested:?}"))?;
    let all = Address { sap: GLOBAL_SAP, station: ALL };
    let (first, _) = bench.sap.test(all, b"all", MESSAGE_TIMEOUT)?;
    let mut from = vec![first.from];
    while let Ok(Event::Tested { from: one, .. }) = bench.sap.next_answer(RESPONSE_TIMEOUT) {
        from.push(one);
    }
    require(from.contains(&bench.to(SINK)), || format!("SAPs that answered: {from:?}"))?;
    Ok(format!("all stations: {} SAPs", from.len()))
}

fn closed_sap(bench: &Bench) -> TrialResult {
    match bench.sap.test(bench.to(CLOSED), b"", RESPONSE_TIMEOUT) {
        Err(Error::TimedOut) => Ok(String::new()),
        other => Err(format!("{other:?}").into()),
    }
}

fn identifies(bench: &Bench, sap: u8) -> TrialResult {
    let ((from, types), _) = bench.sap.identify(bench.to(sap), MESSAGE_TIMEOUT)?;
    require(from == bench.to(sap) && types == [true, false, true], || format!("{from}: {types:?}"))?;
    Ok(String::new())
}

fn echoes(bench: &Bench, sap: &Sap, echo: u8, longest: usize) -> TrialResult {
    let sizes = [0, 1, 43, 44, 100, 1000, longest];
    for octets in sizes {
        bench.echo(sap, bench.to(echo), bench.to(echo), &pattern(octets), 0)?;
    }
    Ok(format!("0 to {longest} octets"))
}

fn to_many(bench: &Bench) -> TrialResult {
    for (sap, station) in [(GROUP, bench.pair.other), (GROUP, ALL), (GLOBAL_SAP, ALL)] {
        bench.echo(&bench.sap, Address { sap, station }, bench.to(ECHO), b"to many", 0)?;
    }
    Ok(String::new())
}

fn priorities(bench: &Bench) -> TrialResult {
    (0..8).try_for_each(|priority| {
        bench.echo(&bench.sap, bench.to(ECHO), bench.to(ECHO), &[priority], priority)
    })?;
    Ok(String::new())
}

fn highest_first(bench: &Bench) -> TrialResult {
    let own = Address { sap: CHECKED_OWN, station: bench.pair.own.number() };
    let spare = bench.pair.own.open(SPARE, &Options { crc: true, ..Options::default() })?;
    for priority in [3, 0, 7, 5, 1] {
        spare.send_with(own, &[priority], Some(priority), Some(MESSAGE_TIMEOUT))?;
    }
    // In a ring each message waits for the token.
    for _ in 0..1_000 {
        if bench.checked.readable() >= 5 {
            break;
        }
        pause(Duration::from_millis(5));
    }
    let (mut received, mut message) = (Vec::<u8>::new(), Vec::new());
    for _ in 0..5 {
        bench.checked.receive_within(&mut message, Some(MESSAGE_TIMEOUT))?;
        received.extend(message.first().copied());
    }
    require(received == [7, 5, 3, 1, 0], || format!("received in the order {received:?}"))?;
    Ok(String::new())
}

fn acknowledged(bench: &Bench, crc: bool) -> TrialResult {
    const MESSAGES: u32 = 200;
    let (sap, echo) = if crc { (&bench.checked, CHECKED_ECHO) } else { (&bench.sap, ECHO) };
    sap.configure(&Options { crc, queue: 256, ..persistent(5) })?;
    let mut tries = 0;
    for number in 0..MESSAGES {
        let sent = sap.exchange(bench.to(echo), &number.to_be_bytes())?;
        require(sent.outcome == Outcome::Done, || format!("message {number}: {:?}", sent.outcome))?;
        tries += u32::from(sent.tries);
    }
    // The echoes show which messages were received; echoes are datagrams and may be lost, but not duplicated or
    // reordered.
    let (mut before, mut message, mut echoes) = (None, Vec::new(), 0);
    while echoes < MESSAGES {
        match sap.receive_within(&mut message, Some(RESPONSE_TIMEOUT)) {
            Ok(_) => {}
            Err(Error::TimedOut) => break,
            Err(e) => return Err(e.into()),
        }
        let number =
            message[..].try_into().map(u32::from_be_bytes).map_err(|_| format!("echo of {message:?}"))?;
        require(before.is_none_or(|before| before < number), || {
            format!("{number} arrived after {before:?}")
        })?;
        (before, echoes) = (Some(number), echoes + 1);
    }
    require(echoes > 0, || "no echo".into())?;
    Ok(format!("{MESSAGES} messages, {tries} sent"))
}

fn refuses(bench: &Bench) -> TrialResult {
    bench.sap.configure(&persistent(5))?;
    match bench.sap.exchange(bench.to(CLOSED), b"closed")?.outcome {
        Outcome::Refused(CommandStatus::Unimplemented) => Ok("status 1".into()),
        other => Err(format!("{other:?}").into()),
    }
}

fn gives_up(bench: &Bench) -> TrialResult {
    let options = Options { tries: 4, response_timeout: Span::from_ms(5), ..Options::acknowledged(5) };
    bench.sap.configure(&options)?;
    let sent = bench.sap.exchange(bench.absent()?, b"nobody")?;
    require((sent.outcome, sent.tries) == (Outcome::Unanswered, 4), || format!("{sent:?}"))?;
    Ok(format!("4 tries in {:.0} ms", sent.took.as_us() / 1e3))
}

fn late(bench: &Bench) -> TrialResult {
    let (limit, timeout) = (Span::from_ms(20), Span::from_ms(500));
    bench.sap.configure(&Options {
        send_limit: limit,
        response_timeout: timeout,
        ..Options::acknowledged(5)
    })?;
    let sent = bench.sap.exchange(bench.absent()?, b"late")?;
    require(sent.outcome == Outcome::Late && sent.took >= limit, || format!("{sent:?}"))?;
    Ok(String::new())
}

fn full(bench: &Bench) -> TrialResult {
    let options = Options { queue: 2, response_timeout: Span::from_ms(30), ..Options::acknowledged(5) };
    bench.sap.configure(&options)?;
    let absent = bench.absent()?;
    let accepted = (0..3).map(|_| bench.sap.try_send(absent, b"full"));
    let accepted: Vec<bool> = accepted.map(|sent| !matches!(sent, Err(Error::Full))).collect();
    bench.sap.reset(true)?;
    require(accepted == [true, true, false], || {
        format!("three messages to a queue of two: accepted {accepted:?}")
    })?;
    Ok(String::new())
}

fn resets(bench: &Bench) -> TrialResult {
    let options = Options { response_timeout: Span::from_s(60), ..Options::acknowledged(5) };
    bench.sap.configure(&options)?;
    let ticket = bench.sap.start(bench.absent()?, b"never", None)?;
    bench.sap.reset(true)?;
    let sent = bench.sap.ended(Some(MESSAGE_TIMEOUT))?;
    require(sent.ticket == ticket && sent.outcome == Outcome::Reset, || format!("{sent:?}"))?;
    Ok(String::new())
}

fn to_own_station(bench: &Bench) -> TrialResult {
    let own = Address { sap: OWN, station: bench.pair.own.number() };
    bench.echo(&bench.sap, own, own, b"to the own station", 3)?;
    bench.sap.configure(&persistent(2))?;
    let sent = bench.sap.exchange(own, b"to the own station")?;
    require(sent.outcome == Outcome::Done, || format!("{sent:?}"))?;
    Ok(String::new())
}

fn both(bench: &Bench) -> TrialResult {
    const MESSAGES: u32 = 100;
    bench.sap.configure(&Options { queue: 256, ..persistent(6) })?;
    bench.checked.configure(&Options { crc: true, queue: 256, ..persistent(1) })?;
    thread::scope(|scope| {
        let threads = [(&bench.sap, ECHO), (&bench.checked, CHECKED_ECHO)].map(|(sap, echo)| {
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let outcome = sap.exchange(bench.to(echo), &number.to_be_bytes())?.outcome;
                    require(outcome == Outcome::Done, || {
                        format!("message {number} to {echo:#04x}: {outcome:?}")
                    })?;
                }
                Ok::<(), Reason>(())
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    Ok(String::new())
}
