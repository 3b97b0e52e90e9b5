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

use super::config::toml_error;
use super::control::Control;
use super::rules::Ranges;
use crate::failure::{Failure, print};
use crate::flags::converter::{Host, deadline, rate, size, span};

/// Maximum number of streams whose next number is stored.
const MAX_STREAMS: usize = 1 << 20;
/// First octets of each message.
const MARK: [u8; 4] = *b"TKLW";
/// Messages sent between two receive calls.
const BURST: u64 = 1_000;
/// Time for messages in flight to arrive after the last one is sent.
const SETTLE_TIME: Span = Span::from_s(1);
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
    fn read<T>(this: &Option<Text>, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        let read = |text: &str| parse(text).map_err(|error| format!("`{text}`: {error}"));
        match this {
            None => Ok(None),
            Some(Text::Number(number)) => read(&number.to_string()).map(Some),
            Some(Text::Text(text)) => read(text).map(Some),
        }
    }
}

impl Script {
    /// Reads the script from a file or from flags; `None` if neither has one.
    pub fn from_flags(flags: &Host, is_wide: bool) -> Result<Option<Script>, Failure> {
        let has_actions = !flags.join.is_empty() || !flags.send.is_empty();
        if flags.dis.is_some() && (has_actions || flags.script.is_some()) {
            return Err(Failure::input("--dis and a workload cannot be combined"));
        }
        if has_actions && flags.script.is_some() {
            return Err(Failure::input("--script cannot be combined with --join or --send"));
        }
        if let Some(path) = &flags.script {
            let script = read(path, is_wide);
            let script = script.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
            return Ok(Some(Script { time: flags.time.or(script.time), ..script }));
        }
        if !has_actions {
            return Ok(None);
        }
        let send = Send {
            addresses: all_of(&flags.send).map_err(|error| Failure::input(format!("--send: {error}")))?,
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
            return Err("priority needs --format wide; the classic format has --pairs".into());
        }
        let ranges = self.steps.iter().flat_map(|step| step.join.iter().chain(&step.leave));
        let highest = ranges.map(RangeInclusive::end).chain(sends().flat_map(|send| &send.addresses)).max();
        match highest {
            Some(highest) if *highest > u16::MAX.into() => {
                Err(format!("address {highest} needs --format wide; the classic format ends at 65535"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the maximum length of a body, in octets.
    pub fn longest(&self) -> Option<usize> {
        self.steps.iter().filter_map(|step| Some(*step.send.as_ref()?.size.end())).max()
    }

    /// Returns the end of the script, if it has one.
    fn end(&self) -> Option<Span> {
        let step_end = |step: &Step| step.send.as_ref().map(|send| Some(step.at + send.time?));
        let last: Option<Option<Span>> =
            self.steps.iter().filter_map(step_end).reduce(|one, other| Some(one?.max(other?)));
        self.time.or_else(|| last.flatten().map(|last| last + SETTLE_TIME))
    }
}

/// Default rate.
const RATE: u32 = 1_000;
const SIZE: RangeInclusive<usize> = 150..=150;

/// Maximum number of addresses of a sending action.
const MAX_ADDRESSES: u64 = 1 << 20;

/// Returns each address of the ranges.
fn all_of(ranges: &[RangeInclusive<u32>]) -> Result<Vec<u32>, String> {
    let count: u64 = ranges.iter().map(|range| u64::from(range.end() - range.start()) + 1).sum();
    match count <= MAX_ADDRESSES {
        true => Ok(ranges.iter().cloned().flatten().collect()),
        false => Err(format!("{count} addresses to send to; at most {MAX_ADDRESSES} are supported")),
    }
}

fn read(path: &Path, is_wide: bool) -> Result<Script, String> {
    let text = fs::read_to_string(path).map_err(|e| e.to_string())?;
    let script = parse(&text)?;
    script.check(is_wide)?;
    Ok(script)
}

pub fn parse(text: &str) -> Result<Script, String> {
    let file: File = toml::from_str(text).map_err(|e| toml_error(text, &e))?;
    let all = |ranges: &Option<Ranges>| ranges.as_ref().map_or(Ok(Vec::new()), Ranges::all);
    let mut steps = Vec::new();
    for (number, one) in (1..).zip(&file.step) {
        let mut step = || {
            let send = |send: &OneSend| {
                let addresses = all_of(&send.addresses.all()?)?;
                if addresses.is_empty() {
                    return Err("`send` has no address".to_owned());
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
        step().map_err(|error: String| format!("step {number}: {error}"))?;
    }
    steps.sort_by_key(|step| step.at);
    Ok(Script { steps, time: Text::read(&file.time, span)? })
}

/// Plays a script to its end, or until it is stopped.
pub fn play(
    script: &Script,
    socket: &mut HostSocket,
    control: &mut Control,
    settings: Settings,
    host: u16,
    clock: Clock,
) -> Result<(), Failure> {
    let mut workload = Workload::new(script, settings, host, clock);
    loop {
        let until = workload.act(socket, clock.now());
        let ready = socket.turn_with(until, |from, body| workload.receive(from, body, clock));
        let ready = ready.map_err(Failure::run)?;
        if let Some(line) = workload.line(clock.now(), socket.machine().level(clock.now())) {
            print(&line)?;
        }
        if control.serve(ready, socket)? || workload.is_over(clock.now()) {
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
    pending: VecDeque<(RangeInclusive<u32>, bool)>,
    sending: Vec<Sending>,
    sizes: Stream,
    /// Number of messages sent to an address, ordinary and with priority.
    numbers: BTreeMap<(u32, bool), u32>,
    body: Vec<u8>,
    /// Next expected number of each host and address, ordinary and with priority; at most [`MAX_STREAMS`].
    next: BTreeMap<(u32, u32, bool), u32>,
    printed: Instant,
    since: Counts,
    total: Counts,
}

struct Sending {
    action: Send,
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
    unknown: u64,
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
            end: script.end().map(|span| begin + span),
            steps,
            pending: VecDeque::new(),
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
    fn act(&mut self, socket: &mut HostSocket, now: Instant) -> Option<Instant> {
        while let Some(step) = self.steps.pop_if(|step| self.begin + step.at <= now) {
            self.begin_step(step);
        }
        self.update_subscriptions(socket);
        let mut next = self.steps.last().map(|step| self.begin + step.at);
        // Pending ranges are tried again after the next transmission.
        next = next.into_iter().chain((!self.pending.is_empty()).then_some(now)).min();
        let mut sending = std::mem::take(&mut self.sending);
        for one in &mut sending {
            for _ in 0..BURST {
                if one.due() > now || one.is_over() {
                    break;
                }
                self.send(one, socket, now);
            }
            next = next.into_iter().chain((!one.is_over()).then(|| one.due())).min();
        }
        sending.retain(|one| !one.is_over());
        self.sending = sending;
        socket.flush();
        let line = self.printed + SECOND;
        next.into_iter().chain(self.end).chain([line]).min()
    }

    /// Subscribes and unsubscribes in order. In format 1 a range that finds a full queue waits for the next turn;
    /// other refusals are counted.
    fn update_subscriptions(&mut self, socket: &mut HostSocket) {
        while let Some((range, joins)) = self.pending.front() {
            let (first, last) = (*range.start(), *range.end());
            let result =
                if *joins { socket.join_range(first, last) } else { socket.leave_range(first, last) };
            match result {
                Err(CommandError::Full) if self.settings.format2().is_none() => return,
                result => self.since.refused += u64::from(result.is_err()),
            }
            self.pending.pop_front();
        }
    }

    fn begin_step(&mut self, step: Step) {
        self.pending.extend(step.join.into_iter().map(|range| (range, true)));
        self.pending.extend(step.leave.into_iter().map(|range| (range, false)));
        if let Some(action) = step.send {
            let from = self.begin + step.at;
            let until = action.time.map(|time| from + time);
            self.sending.push(Sending { action, from, until, sent: 0 });
        }
    }

    fn send(&mut self, sending: &mut Sending, socket: &mut HostSocket, now: Instant) {
        let Send { addresses, size, .. } = &sending.action;
        let address = addresses[(sending.sent % addresses.len() as u64) as usize];
        let more = self.sizes.below((size.end() - size.start() + 1) as u64) as usize;
        let priority = sending.action.priority || self.settings.is_priority(address);
        let number = self.numbers.entry((address, priority)).or_default();
        self.body.clear();
        self.body.extend_from_slice(&self.head);
        self.body.extend_from_slice(&(address as u16).to_be_bytes());
        self.body.extend_from_slice(&number.to_be_bytes());
        self.body.extend_from_slice(&monotonic(now, socket).to_be_bytes());
        self.body.resize(size.start() + more, 0);
        sending.sent += 1;
        let within = sending.action.within.filter(|_| priority);
        match socket.send_message(OutgoingMessage { address, priority, max_wait: within, body: &self.body }) {
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
            self.since.unknown += 1;
            return;
        };
        let body_address = u32::from(u16::from_be_bytes([rest[0], rest[1]]));
        let number = u32::from_be_bytes([rest[2], rest[3], rest[4], rest[5]]);
        let host = u16::from_le_bytes([head[8], head[9]]);
        let (source, address, priority) = match self.settings.format2() {
            Some(_) => (from.source, from.address, from.priority),
            None => (host.into(), body_address, self.settings.is_priority(body_address)),
        };
        if head[..8] == self.head[..8] {
            let mut sent = [0; 8];
            sent.copy_from_slice(&rest[6..]);
            let now = clock.epoch_ns() + clock.now().since(Instant::ZERO).as_ns();
            let delay = Span::from_ns(now.saturating_sub(u64::from_be_bytes(sent)));
            self.since.delays[usize::from(priority)].record(delay);
        }
        let stream = (source, address, priority);
        if self.next.len() >= MAX_STREAMS && !self.next.contains_key(&stream) {
            return;
        }
        if let Some(next) = self.next.insert(stream, number.wrapping_add(1)) {
            // A number that goes back means a restarted host or a reordered message.
            let missing = number.wrapping_sub(next);
            self.since.lost += if missing < 1 << 31 { missing.into() } else { 0 };
        }
    }

    /// Returns the line of the last second, if it is due.
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
        let Counts { sent, refused, received, unknown, lost, .. } = &self.total;
        let took = now.since(self.begin);
        let unknown =
            if *unknown > 0 { format!(", {unknown} of them not from a workload") } else { String::new() };
        format!(
            "total  {}\nsent {sent}, refused {refused}, received {received}{unknown}, lost {lost} in {:.1} s\n",
            self.total.text(took),
            took.as_s()
        )
    }
}

/// Returns the system's monotonic clock in nanoseconds, which all hosts of a machine share.
fn monotonic(now: Instant, socket: &HostSocket) -> u64 {
    socket.clock().epoch_ns() + now.since(Instant::ZERO).as_ns()
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
        let ps = u128::from(self.sent) * 1_000_000_000_000 / u128::from(self.action.rate);
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
        self.unknown += other.unknown;
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
    fn a_script_with_all_keys_is_parsed() {
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
        assert_eq!(script.end(), Some(Span::from_s(4)));
        assert_eq!(parse("time = '9s'").unwrap().end(), Some(Span::from_s(9)));
        let endless = Script { steps: vec![Step { send: None, ..first }], time: None };
        assert_eq!(endless.end(), None);
        assert_eq!(parse("[[step]]\nsend.addresses = 1").unwrap().end(), None);
    }

    /// All addresses do not fit into one turn.
    #[test]
    fn all_addresses_of_format_1_can_be_joined_and_left() {
        let script = parse("step = [{ join = '0-65535' }]").unwrap();
        let settings = Settings::default();
        let nowhere = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9);
        let clock = Clock::start();
        let mut socket = HostSocket::open(&HostOptions::on_loopback(settings, 3, nowhere), clock).unwrap();
        let mut workload = Workload::new(&script, settings, 3, clock);
        for joined in [65_536, 1] {
            for _ in 0..9 {
                let now = clock.now();
                let until = workload.act(&mut socket, now).unwrap();
                assert!(
                    workload.pending.is_empty() || until <= now,
                    "pending ranges must be tried again at once"
                );
                socket.turn(Some(clock.now())).unwrap();
            }
            assert_eq!((socket.machine().joined(), workload.since.refused), (joined, 0));
            workload.pending.push_back((1..=65_535, false));
        }
    }

    #[test]
    fn invalid_scripts_are_errors_of_one_line() {
        for (text, expected) in [
            ("\n[[step]]\ndo = 1", "line 3: unknown field `do`"),
            ("[[step]]\nsend = { addresses = [] }", "step 1: `send` has no address"),
            ("[[step]]\nsend = { addresses = 1, rate = 0 }", "step 1: `0`: expected"),
            ("[[step]]\nsend = { addresses = 1, size = 20 }", "step 1: `20`: expected"),
            ("[[step]]\nsend = { addresses = 1, size = 65501 }", "step 1: `65501`: expected"),
            ("[[step]]\nat = 'soon'", "step 1: `soon`: expected"),
            (
                "[[step]]\nsend = { addresses = '0-4294967295' }",
                "step 1: 4294967296 addresses to send to; at most",
            ),
            ("[[step]]\njoin = '9-'", "step 1: `9-` is not a range"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn messages_are_sent_at_their_rate() {
        let action =
            Send { addresses: vec![1], priority: false, within: None, rate: 3, size: SIZE, time: None };
        let from = Instant::ZERO + Span::from_s(5);
        let until = Some(from + Span::from_s(2));
        let mut sending = Sending { action, from, until, sent: 0 };
        let times: Vec<u64> = std::iter::from_fn(|| {
            let due = (!sending.is_over()).then(|| sending.due().since(from).as_ns() / 1_000_000);
            sending.sent += 1;
            due
        })
        .collect();
        assert_eq!(times, [0, 333, 666, 1_000, 1_333, 1_666]);
    }
}
