//! A workload generator in place of a simulation, like the test host of 1997: a script of subscriptions and messages;
//! prints messages per second and delays.
//!
//! Each message contains the machine and host of its sender, the time, and a number per address. Messages of this
//! machine give delays; a gap in the numbers of a host and address is a loss, or precedes a subscription.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;
use trunkline_bundle::Settings;
use trunkline_bundle::host::{CommandError, MessageInfo, OutgoingMessage};
use trunkline_bundle::socket::HostSocket;
use trunkline_io::Clock;
use trunkline_record::Histogram;
use trunkline_units::{Instant, Seed, Span, Stream};

use super::config::reported;
use super::control::Control;
use super::rules::Ranges;
use crate::failure::{Failure, print};
use crate::flags::converter::{Host, deadline, rate, size, span};

/// Maximum number of streams whose next number is stored.
const MOST_STREAMS: usize = 1 << 20;
const MARK: [u8; 4] = *b"TKLW";
/// Messages sent between two receive calls.
const BURST: u64 = 1_000;
/// Time for messages in flight to arrive after the last one is sent.
const REST: Span = Span::from_s(1);
const SECOND: Span = Span::from_s(1);

/// The actions of a host, and their duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// In order of time.
    steps: Vec<Step>,
    /// `None`: until everything is sent, or forever if nothing is.
    time: Option<Span>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Step {
    at: Span,
    join: Vec<RangeInclusive<u32>>,
    leave: Vec<RangeInclusive<u32>>,
    send: Option<Send>,
}

/// Messages to addresses in turn, at a constant rate.
#[derive(Clone, Debug, PartialEq)]
struct Send {
    addresses: Vec<u32>,
    /// Priority, in addition to addresses that have it.
    priority: bool,
    /// Maximum wait of priority messages in a converter.
    within: Option<Span>,
    /// Messages per second.
    rate: u32,
    /// Length of a body in octets, uniform.
    size: RangeInclusive<usize>,
    /// Duration; `None`: to the end.
    time: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    time: Option<Text>,
    #[serde(default)]
    step: Vec<OneStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneStep {
    at: Option<Text>,
    join: Option<Ranges>,
    leave: Option<Ranges>,
    send: Option<OneSend>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneSend {
    addresses: Ranges,
    #[serde(default)]
    priority: bool,
    within: Option<Text>,
    rate: Option<Text>,
    size: Option<Text>,
    time: Option<Text>,
}

/// A number or text, as on the command line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Number(u64),
    Text(String),
}

impl Text {
    fn read<T>(this: &Option<Text>, how: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let read = |text: &str| how(text).map_err(|why| format!("`{text}`: {why}"));
        match this {
            None => Ok(None),
            Some(Text::Number(number)) => read(&number.to_string()).map(Some),
            Some(Text::Text(text)) => read(text).map(Some),
        }
    }
}

impl Script {
    /// Reads the script from a file or from flags; `None` if neither has one.
    pub fn of(flags: &Host, is_wide: bool) -> Result<Option<Script>, Failure> {
        let said = !flags.join.is_empty() || !flags.send.is_empty();
        if flags.dis.is_some() && (said || flags.script.is_some()) {
            return Err(Failure::input("a host speaks with programs (--dis) or plays a workload, not both"));
        }
        if said && flags.script.is_some() {
            return Err(Failure::input("what a script says --join and --send cannot say as well"));
        }
        if let Some(path) = &flags.script {
            let script = read(path, is_wide);
            let script = script.map_err(|why| Failure::input(format!("{}: {why}", path.display())))?;
            return Ok(Some(Script { time: flags.time.or(script.time), ..script }));
        }
        if !said {
            return Ok(None);
        }
        let send = Send {
            addresses: all_of(&flags.send).map_err(|why| Failure::input(format!("--send: {why}")))?,
            priority: flags.priority,
            within: flags.within,
            rate: flags.rate.unwrap_or(RATE),
            size: flags.size.clone().unwrap_or(SIZE),
            time: None,
        };
        let send = (!flags.send.is_empty()).then_some(send);
        let step = Step { at: Span::ZERO, join: flags.join.clone(), leave: Vec::new(), send };
        let script = Script { steps: vec![step], time: flags.time };
        script.check(is_wide).map_err(Failure::input)?;
        Ok(Some(script))
    }

    /// Rejects options that the format does not have.
    fn check(&self, is_wide: bool) -> Result<(), String> {
        if is_wide {
            return Ok(());
        }
        let sends = || self.steps.iter().filter_map(|step| step.send.as_ref());
        if sends().any(|send| send.priority) {
            return Err("priority is of the wide format; the classic one has --pairs".into());
        }
        let ranges = self.steps.iter().flat_map(|step| step.join.iter().chain(&step.leave));
        let highest = ranges.map(RangeInclusive::end).chain(sends().flat_map(|send| &send.addresses)).max();
        match highest {
            Some(highest) if *highest > u16::MAX.into() => Err(format!(
                "{highest} is an address of the wide format; those of the classic one end with 65535"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the maximum length of a body, in octets.
    pub fn longest(&self) -> Option<usize> {
        self.steps.iter().filter_map(|step| Some(*step.send.as_ref()?.size.end())).max()
    }

    /// Returns the end of the script, if it has one.
    fn ends(&self) -> Option<Span> {
        let ends = |step: &Step| step.send.as_ref().map(|send| Some(step.at + send.time?));
        let last: Option<Option<Span>> =
            self.steps.iter().filter_map(ends).reduce(|one, other| Some(one?.max(other?)));
        self.time.or_else(|| last.flatten().map(|last| last + REST))
    }
}

/// Default rate.
const RATE: u32 = 1_000;
const SIZE: RangeInclusive<usize> = 150..=150;

/// Maximum number of addresses of a sending action.
const MOST_ADDRESSES: u64 = 1 << 20;

/// Returns each address of the ranges.
fn all_of(ranges: &[RangeInclusive<u32>]) -> Result<Vec<u32>, String> {
    let count: u64 = ranges.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    match count <= MOST_ADDRESSES {
        true => Ok(ranges.iter().cloned().flatten().collect()),
        false => Err(format!("{count} addresses to send to are more than {MOST_ADDRESSES}")),
    }
}

fn read(path: &Path, is_wide: bool) -> Result<Script, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let script = parse(&text)?;
    script.check(is_wide)?;
    Ok(script)
}

pub fn parse(text: &str) -> Result<Script, String> {
    let file: File = toml::from_str(text).map_err(|e| reported(text, &e))?;
    let all = |ranges: &Option<Ranges>| ranges.as_ref().map_or(Ok(Vec::new()), Ranges::all);
    let mut steps = Vec::new();
    for (number, one) in (1..).zip(&file.step) {
        let mut step = || {
            let send = |send: &OneSend| {
                let addresses = all_of(&send.addresses.all()?)?;
                if addresses.is_empty() {
                    return Err("it sends to no address".to_owned());
                }
                Ok(Send {
                    addresses,
                    priority: send.priority,
                    within: Text::read(&send.within, deadline)?,
                    rate: Text::read(&send.rate, rate)?.unwrap_or(RATE),
                    size: Text::read(&send.size, size)?.unwrap_or(SIZE),
                    time: Text::read(&send.time, span)?,
                })
            };
            let send = one.send.as_ref().map(send).transpose()?;
            let at = Text::read(&one.at, span)?.unwrap_or(Span::ZERO);
            steps.push(Step { at, join: all(&one.join)?, leave: all(&one.leave)?, send });
            Ok(())
        };
        step().map_err(|why: String| format!("step {number}: {why}"))?;
    }
    steps.sort_by_key(|step| step.at);
    Ok(Script { steps, time: Text::read(&file.time, span)? })
}

/// Plays a script to its end, or until it is stopped.
pub fn play(
    script: &Script,
    face: &mut HostSocket,
    control: &mut Control,
    settings: Settings,
    host: u16,
    clock: Clock,
) -> Result<(), Failure> {
    let mut workload = Workload::new(script, settings, host, clock);
    loop {
        let until = workload.act(face, clock.now());
        let ready = face.turn_with(until, |from, body| workload.receive(from, body, clock));
        let ready = ready.map_err(Failure::run)?;
        if let Some(line) = workload.line(clock.now(), face.machine().level(clock.now())) {
            print(&line)?;
        }
        if control.serve(ready, face)? || workload.is_over(clock.now()) {
            return print(&workload.end(clock.now()));
        }
    }
}

struct Workload {
    settings: Settings,
    head: [u8; 10],
    begin: Instant,
    end: Option<Instant>,
    steps: Vec<Step>,
    /// Pending subscriptions and unsubscriptions; bounded by the script.
    wishes: VecDeque<(RangeInclusive<u32>, bool)>,
    sending: Vec<Sending>,
    sizes: Stream,
    /// Number of messages sent to an address, ordinary and with priority.
    numbers: BTreeMap<(u32, bool), u32>,
    body: Vec<u8>,
    /// Next expected number of each host and address, ordinary and with priority; at most [`MOST_STREAMS`].
    next: BTreeMap<(u32, u32, bool), u32>,
    printed: Instant,
    since: Counts,
    total: Counts,
}

struct Sending {
    what: Send,
    from: Instant,
    until: Option<Instant>,
    sent: u64,
}

/// Ordinary and priority messages.
#[derive(Default)]
struct Counts {
    sent: u64,
    refused: u64,
    received: u64,
    strange: u64,
    lost: u64,
    delays: [Histogram; 2],
}

impl Workload {
    fn new(script: &Script, settings: Settings, host: u16, clock: Clock) -> Workload {
        let begin = clock.now();
        let mut head = [0; 10];
        head[..4].copy_from_slice(&MARK);
        head[4..8].copy_from_slice(&machine());
        head[8..].copy_from_slice(&host.to_le_bytes());
        let mut steps = script.steps.clone();
        steps.reverse();
        Workload {
            settings,
            head,
            begin,
            end: script.ends().map(|span| begin + span),
            steps,
            wishes: VecDeque::new(),
            sending: Vec::new(),
            sizes: Seed::default().stream(&format!("host {host} / size")),
            numbers: BTreeMap::new(),
            body: Vec::new(),
            next: BTreeMap::new(),
            printed: begin,
            since: Counts::default(),
            total: Counts::default(),
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// Runs due actions; returns the time of the next one.
    fn act(&mut self, face: &mut HostSocket, now: Instant) -> Option<Instant> {
        while let Some(step) = self.steps.pop_if(|step| self.begin + step.at <= now) {
            self.begin_step(step);
        }
        self.wish(face);
        let mut next = self.steps.last().map(|step| self.begin + step.at);
        // Pending ranges have room after the next transmission.
        next = next.into_iter().chain((!self.wishes.is_empty()).then_some(now)).min();
        let mut sending = std::mem::take(&mut self.sending);
        for one in &mut sending {
            for _ in 0..BURST {
                if one.due() > now || one.is_over() {
                    break;
                }
                self.send(one, face, now);
            }
            next = next.into_iter().chain((!one.is_over()).then(|| one.due())).min();
        }
        sending.retain(|one| !one.is_over());
        self.sending = sending;
        face.flush();
        let line = self.printed + SECOND;
        next.into_iter().chain(self.end).chain([line]).min()
    }

    /// Subscribes and unsubscribes in order. In format 1 a range without room waits for the next turn; other refusals
    /// are counted.
    fn wish(&mut self, face: &mut HostSocket) {
        while let Some((range, joins)) = self.wishes.front() {
            let (first, last) = (*range.start(), *range.end());
            let asked = if *joins { face.join_range(first, last) } else { face.leave_range(first, last) };
            match asked {
                Err(CommandError::Full) if self.settings.format2().is_none() => return,
                asked => self.since.refused += u64::from(asked.is_err()),
            }
            self.wishes.pop_front();
        }
    }

    fn begin_step(&mut self, step: Step) {
        self.wishes.extend(step.join.into_iter().map(|range| (range, true)));
        self.wishes.extend(step.leave.into_iter().map(|range| (range, false)));
        if let Some(what) = step.send {
            let from = self.begin + step.at;
            let until = what.time.map(|time| from + time);
            self.sending.push(Sending { what, from, until, sent: 0 });
        }
    }

    fn send(&mut self, sending: &mut Sending, face: &mut HostSocket, now: Instant) {
        let Send { addresses, size, .. } = &sending.what;
        let address = addresses[(sending.sent % addresses.len() as u64) as usize];
        let more = self.sizes.below((size.end() - size.start() + 1) as u64) as usize;
        let priority = sending.what.priority || self.settings.is_priority(address);
        let number = self.numbers.entry((address, priority)).or_default();
        self.body.clear();
        self.body.extend_from_slice(&self.head);
        self.body.extend_from_slice(&(address as u16).to_be_bytes());
        self.body.extend_from_slice(&number.to_be_bytes());
        self.body.extend_from_slice(&monotonic(now, face).to_be_bytes());
        self.body.resize(size.start() + more, 0);
        sending.sent += 1;
        let within = sending.what.within.filter(|_| priority);
        match face.send_message(OutgoingMessage { address, priority, max_wait: within, body: &self.body }) {
            Ok(()) => {
                *number = number.wrapping_add(1);
                self.since.sent += 1;
            }
            Err(_) => self.since.refused += 1,
        }
    }

    /// Handles a received message. In format 1 the body contains the address.
    fn receive(&mut self, from: MessageInfo, body: &[u8], clock: Clock) {
        self.since.received += 1;
        let parts =
            body.split_first_chunk::<10>().and_then(|(head, rest)| Some((head, rest.first_chunk::<14>()?)));
        let Some((head, rest)) = parts.filter(|(head, _)| head[..4] == MARK && head[8..] != [0; 2]) else {
            self.since.strange += 1;
            return;
        };
        let said = u32::from(u16::from_be_bytes([rest[0], rest[1]]));
        let number = u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]);
        let host = u16::from_le_bytes([head[8], head[9]]);
        let (source, address, priority) = match self.settings.format2() {
            Some(_) => (from.source, from.address, from.priority),
            None => (host.into(), said, self.settings.is_priority(said)),
        };
        if head[..8] == self.head[..8] {
            let mut sent = [0; 8];
            sent.copy_from_slice(&rest[6..]);
            let now = clock.epoch_ns() + clock.now().since(Instant::ZERO).as_ns();
            let delay = Span::from_ns(now.saturating_sub(u64::from_be_bytes(sent)));
            self.since.delays[usize::from(priority)].record(delay);
        }
        let stream = (source, address, priority);
        if self.next.len() >= MOST_STREAMS && !self.next.contains_key(&stream) {
            return;
        }
        if let Some(next) = self.next.insert(stream, number.wrapping_add(1)) {
            // A number that goes back means a restarted host or a reordered message.
            let missing = number.wrapping_sub(next);
            self.since.lost += if missing < 1 << 31 { missing.into() } else { 0 };
        }
    }

    /// Returns the line of each second.
    fn line(&mut self, now: Instant, level: u8) -> Option<String> {
        if now < self.printed + SECOND {
            return None;
        }
        let took = now.since(self.printed);
        self.printed = now;
        let since = std::mem::take(&mut self.since);
        let line = format!("{:>5.0} s  {}  level {level}\n", now.since(self.begin).as_s(), since.text(took));
        self.total.add(since);
        Some(line)
    }

    /// Returns the totals.
    fn end(&mut self, now: Instant) -> String {
        self.total.add(std::mem::take(&mut self.since));
        let Counts { sent, refused, received, strange, lost, .. } = &self.total;
        let took = now.since(self.begin);
        let strange =
            if *strange > 0 { format!(", {strange} of them of another kind") } else { String::new() };
        format!(
            "total  {}\nsent {sent}, refused {refused}, received {received}{strange}, lost {lost} in {:.1} s\n",
            self.total.text(took),
            took.as_s()
        )
    }
}

/// The system's monotonic clock in nanoseconds, which all hosts of a machine have.
fn monotonic(now: Instant, face: &HostSocket) -> u64 {
    face.clock().epoch_ns() + now.since(Instant::ZERO).as_ns()
}

/// Returns an identifier of this machine until its next boot.
fn machine() -> [u8; 4] {
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        id.iter().filter_map(|c| (*c as char).to_digit(16)).map(|digit| digit as u8).collect();
    std::array::from_fn(|n| {
        digits.iter().skip(2 * n).step_by(8).fold(0, |all, digit| all << 4 ^ all >> 4 ^ digit)
    })
}

impl Sending {
    /// Returns the time of the next message.
    fn due(&self) -> Instant {
        let ps = u128::from(self.sent) * 1_000_000_000_000 / u128::from(self.what.rate);
        self.from + Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.due() >= until)
    }
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.sent += other.sent;
        self.refused += other.refused;
        self.received += other.received;
        self.strange += other.strange;
        self.lost += other.lost;
        self.delays.iter_mut().zip(&other.delays).for_each(|(all, some)| all.merge(some));
    }

    /// Formats messages per second and delays.
    fn text(&self, took: Span) -> String {
        let rate = |count: u64| count as f64 / took.as_s().max(1e-9);
        let mut text = format!("sent {:>8.0} /s  received {:>8.0} /s", rate(self.sent), rate(self.received));
        for (delays, name) in self.delays.iter().zip(["delay", "priority"]) {
            if let Some(of) = delays.distribution_us() {
                let [mean, middle, high] = [of.mean, of.p50, of.p99].map(|us| us / 1_000.0);
                text += &format!("  {name} {mean:.2} ms, p50 {middle:.2}, p99 {high:.2}");
            }
        }
        if self.lost + self.refused > 0 {
            text += &format!("  lost {}  refused {}", self.lost, self.refused);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use trunkline_bundle::socket::{HostOptions, SocketDriver};

    use super::*;

    #[test]
    fn a_script_of_all_there_is() {
        let script = parse(
            r#"
            [[step]]
            at = "2s"
            leave = [0, "64-66"]
            [[step]]
            join = "0-2"
            send = { addresses = [5, 7], rate = 4000, size = "100-200", time = "3s", within = "2ms" }
            "#,
        )
        .unwrap();
        let send = Send {
            addresses: vec![5, 7],
            priority: false,
            within: Some(Span::from_ms(2)),
            rate: 4_000,
            size: 100..=200,
            time: Some(Span::from_s(3)),
        };
        let first = Step { at: Span::ZERO, join: vec![0..=2], leave: vec![], send: Some(send) };
        let second = Step { at: Span::from_s(2), leave: vec![0..=0, 64..=66], ..Step::default() };
        assert_eq!(script.steps, [first.clone(), second]);
        assert_eq!(script.ends(), Some(Span::from_s(4)));
        assert_eq!(parse("time = '9s'").unwrap().ends(), Some(Span::from_s(9)));
        let endless = Script { steps: vec![Step { send: None, ..first }], time: None };
        assert_eq!(endless.ends(), None);
        assert_eq!(parse("[[step]]\nsend.addresses = 1").unwrap().ends(), None);
    }

    /// They do not fit into one turn.
    #[test]
    fn all_addresses_of_the_classic_format_are_joined_and_left() {
        let script = parse("step = [{ join = '0-65535' }]").unwrap();
        let settings = Settings::default();
        let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        let clock = Clock::start();
        let mut face = HostSocket::open(&HostOptions::on_loopback(settings, 3, nowhere), clock).unwrap();
        let mut workload = Workload::new(&script, settings, 3, clock);
        for joined in [65_536, 1] {
            for _ in 0..9 {
                let now = clock.now();
                let until = workload.act(&mut face, now).unwrap();
                assert!(workload.wishes.is_empty() || until <= now, "it does not wait for the rest");
                face.turn(Some(clock.now())).unwrap();
            }
            assert_eq!((face.machine().joined(), workload.since.refused), (joined, 0));
            workload.wishes.push_back((1..=65_535, false));
        }
    }

    #[test]
    fn invalid_scripts_are_errors_of_one_line() {
        for (text, why) in [
            ("\n[[step]]\ndo = 1", "line 3: unknown field `do`"),
            ("[[step]]\nsend = { addresses = [] }", "step 1: it sends to no address"),
            ("[[step]]\nsend = { addresses = 1, rate = 0 }", "step 1: `0`: expected"),
            ("[[step]]\nsend = { addresses = 1, size = 20 }", "step 1: `20`: expected"),
            ("[[step]]\nsend = { addresses = 1, size = 65501 }", "step 1: `65501`: expected"),
            ("[[step]]\nat = 'soon'", "step 1: `soon`: expected"),
            (
                "[[step]]\nsend = { addresses = '0-4294967295' }",
                "step 1: 4294967296 addresses to send to are",
            ),
            ("[[step]]\njoin = '9-'", "step 1: `9-` is no range"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.starts_with(why) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn messages_leave_at_their_rate() {
        let what =
            Send { addresses: vec![1], priority: false, within: None, rate: 3, size: SIZE, time: None };
        let from = Instant::ZERO + Span::from_s(5);
        let until = Some(from + Span::from_s(2));
        let mut sending = Sending { what, from, until, sent: 0 };
        let times: Vec<u64> = std::iter::from_fn(|| {
            let due = (!sending.is_over()).then(|| sending.due().since(from).as_ns() / 1_000_000);
            sending.sent += 1;
            due
        })
        .collect();
        assert_eq!(times, [0, 333, 666, 1_000, 1_333, 1_666]);
    }
}
