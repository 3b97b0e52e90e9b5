//! A small SNMP v2c agent for any number of devices, on loopback addresses, that misbehaves on request.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Bound::{Excluded, Unbounded};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use trunkline_io::Clock;

/// A value in a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Integer(i32),
    Text(Vec<u8>),
    Counter32(u32),
    Gauge(u32),
    Ticks(u32),
    Counter64(u64),
    EndOfView,
    NoSuchObject,
}

/// The objects of an agent.
pub type Objects = BTreeMap<Vec<u32>, Value>;

/// How an agent misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Behavior {
    #[default]
    Good,
    /// Never answers.
    Dead,
    /// Answers every second request.
    Lossy,
    /// Answers with another request identifier.
    OtherNumber,
    /// Answers from another port.
    Elsewhere,
    /// Sends octets that are no SNMP message.
    Garbage,
    /// Always answers with the same object.
    Circle,
    /// Invents objects without end.
    Endless,
    /// Refuses answers with more than this number of objects as too big.
    TooBig(usize),
    /// Answers with this error status.
    Status(i32),
    /// Sends answers of nearly the maximum datagram size.
    Huge,
    /// Changes octets of its answers, different ones in each answer.
    Damaged,
    /// Truncates every answer to this number of objects.
    Cut(usize),
}

#[derive(Default)]
pub struct State {
    pub objects: Objects,
    pub behavior: Behavior,
    /// The clock by which uptime and counters grow; `None`: they are constant.
    pub clock: Option<Clock>,
    /// The last request.
    pub last_request: Vec<u8>,
}

/// Returns a value after `ms` milliseconds of growth.
fn later(value: &Value, ms: u64) -> Value {
    match value {
        Value::Ticks(n) if *n > 0 => Value::Ticks(n + (ms / 10) as u32),
        Value::Counter32(n) => Value::Counter32(n.wrapping_add(ms as u32)),
        Value::Counter64(n) => Value::Counter64(n + 97 * ms),
        other => other.clone(),
    }
}

/// Agents on one thread.
pub struct Agents {
    pub at: Vec<SocketAddr>,
    pub states: Vec<Arc<Mutex<State>>>,
    /// Number of requests received.
    pub requests: Arc<AtomicU64>,
    /// Processor time of the thread, ns.
    pub busy: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agents {
    /// Starts one agent at each address.
    pub fn start(at: &[String], states: Vec<Arc<Mutex<State>>>) -> Agents {
        let sockets: Vec<UdpSocket> = at.iter().map(|at| UdpSocket::bind(at).unwrap()).collect();
        let at = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
        let (requests, busy) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (states, requests, busy, stop) =
                (states.clone(), requests.clone(), busy.clone(), stop.clone());
            thread::spawn(move || serve(&sockets, &states, &requests, &busy, &stop))
        };
        Agents { at, states, requests, busy, stop, thread: Some(thread) }
    }

    /// Starts one agent with these objects.
    pub fn one(objects: Objects) -> Agents {
        let state = Arc::new(Mutex::new(State { objects, ..State::default() }));
        Agents::start(&["127.0.0.1:0".into()], vec![state])
    }

    pub fn set(&self, number: usize, change: impl FnOnce(&mut State)) {
        change(&mut self.states[number].lock().unwrap());
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    sockets: &[UdpSocket],
    states: &[Arc<Mutex<State>>],
    requests: &AtomicU64,
    busy: &AtomicU64,
    stop: &AtomicBool,
) {
    let elsewhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut buffer = [0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let mut fds: Vec<PollFd> =
            sockets.iter().map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::from(50u8)).unwrap();
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        for (at, _) in ready.iter().enumerate().filter(|(_, ready)| **ready) {
            let (length, from) = sockets[at].recv_from(&mut buffer).unwrap();
            let number = requests.fetch_add(1, Ordering::Relaxed);
            let mut state = states[at].lock().unwrap();
            state.last_request.clear();
            state.last_request.extend_from_slice(&buffer[..length]);
            let Some(answer) = answer(&buffer[..length], &state, number) else { continue };
            let by = if state.behavior == Behavior::Elsewhere { &elsewhere } else { &sockets[at] };
            let _ = by.send_to(&answer, from);
        }
        busy.store(trunkline_io::usage::thread_cpu_time().as_ns(), Ordering::Relaxed);
    }
}

fn answer(request: &[u8], state: &State, number: u64) -> Option<Vec<u8>> {
    let request = Request::read(request)?;
    let mut status = 0;
    let mut id = request.id.to_vec();
    match state.behavior {
        Behavior::Dead => return None,
        Behavior::Lossy if number.is_multiple_of(2) => return None,
        Behavior::Garbage => return Some(vec![0xff; 40]),
        Behavior::OtherNumber => *id.last_mut()? ^= 1,
        Behavior::Status(code) => status = code,
        _ => {}
    }
    let mut found: Vec<(Vec<u32>, Value)> = Vec::new();
    let next = |after: &[u32]| {
        let mut more = state.objects.range((Excluded(after.to_vec()), Unbounded));
        more.next().map_or((after.to_vec(), Value::EndOfView), |(o, v)| (o.clone(), v.clone()))
    };
    if request.kind == 0xa5 {
        let (single, rest) = request.objects.split_at(request.first.min(request.objects.len()));
        found.extend(single.iter().map(|o| next(o)));
        let mut cursors = rest.to_vec();
        for _ in 0..request.second {
            for cursor in &mut cursors {
                let (object, value) = match state.behavior {
                    Behavior::Circle if !cursor.is_empty() => {
                        ([&cursor[..cursor.len().min(11)], &[7]].concat(), Value::Counter32(1))
                    }
                    Behavior::Endless => {
                        let mut more = cursor.clone();
                        match more.len() {
                            ..=11 => more.push(1),
                            _ => *more.last_mut()? += 1,
                        }
                        (more, Value::Counter32(1))
                    }
                    _ => next(cursor),
                };
                *cursor = object.clone();
                found.push((object, value));
            }
        }
    } else {
        let get = |o: &Vec<u32>| (o.clone(), state.objects.get(o).cloned().unwrap_or(Value::NoSuchObject));
        found.extend(request.objects.iter().map(get));
    }
    match state.behavior {
        Behavior::TooBig(most) if found.len() > most => {
            (status, found) = (1, Vec::new());
        }
        Behavior::Cut(most) => found.truncate(most),
        Behavior::Huge => {
            if let Some((_, value)) = found.last_mut() {
                *value = Value::Text(vec![b'x'; 60_000]);
            }
        }
        _ => {}
    }
    if let Some(clock) = state.clock {
        let ms = clock.now().as_ns() / 1_000_000;
        found.iter_mut().for_each(|(_, value)| *value = later(value, ms));
    }
    let mut bindings = Vec::new();
    for (object, value) in &found {
        let mut pair = tlv(6, &oid(object));
        pair.extend(wire(value));
        bindings.extend(tlv(0x30, &pair));
    }
    let mut pdu = tlv(2, &id);
    pdu.extend(tlv(2, &[status as u8]));
    pdu.extend(tlv(2, &[u8::from(status != 0)]));
    pdu.extend(tlv(0x30, &bindings));
    let mut message = tlv(2, &[1]);
    message.extend(tlv(4, request.community));
    message.extend(tlv(0xa2, &pdu));
    let mut message = tlv(0x30, &message);
    if state.behavior == Behavior::Damaged {
        // The request identifier stays intact, so that the collector decodes the rest.
        let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for _ in 0..=number % 4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = 26 + state as usize % message.len().saturating_sub(26).max(1);
            if let Some(octet) = message.get_mut(at) {
                *octet = (state >> 32) as u8;
            }
        }
    }
    Some(message)
}

struct Request<'a> {
    community: &'a [u8],
    kind: u8,
    id: &'a [u8],
    first: usize,
    second: usize,
    objects: Vec<Vec<u32>>,
}

impl<'a> Request<'a> {
    fn read(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (_, message, _) = take(bytes)?;
        let (_, _, rest) = take(message)?;
        let (_, community, rest) = take(rest)?;
        let (kind, pdu, _) = take(rest)?;
        let (_, id, rest) = take(pdu)?;
        let (_, first, rest) = take(rest)?;
        let (_, second, rest) = take(rest)?;
        let (_, mut list, _) = take(rest)?;
        let mut objects = Vec::new();
        while !list.is_empty() {
            let (_, pair, rest) = take(list)?;
            objects.push(arcs(take(pair)?.1));
            list = rest;
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0usize, |n, b| n << 8 | usize::from(*b));
        Some(Request { community, kind, id, first: number(first), second: number(second), objects })
    }
}

/// Splits off a tag, its content, and the rest.
fn take(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..0x80 => (usize::from(short), rest),
        _ => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (long.iter().fold(0, |n, b| n << 8 | usize::from(*b)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        length @ 0..0x80 => out.push(length as u8),
        length => out.extend([0x83, (length >> 16) as u8, (length >> 8) as u8, length as u8]),
    }
    out.extend(content);
    out
}

fn oid(arcs: &[u32]) -> Vec<u8> {
    let mut out = vec![(arcs[0] * 40 + arcs.get(1).unwrap_or(&0)) as u8];
    for arc in arcs.iter().skip(2) {
        let parts: Vec<u8> = (0..5).map(|n| (arc >> (7 * n)) as u8 & 0x7f).collect();
        let most = parts.iter().rposition(|p| *p != 0).unwrap_or(0);
        out.extend((0..=most).rev().map(|n| parts[n] | if n > 0 { 0x80 } else { 0 }));
    }
    out
}

fn arcs(bytes: &[u8]) -> Vec<u32> {
    let Some((&first, rest)) = bytes.split_first() else { return Vec::new() };
    let mut arcs = vec![u32::from(first) / 40, u32::from(first) % 40];
    let mut arc = 0;
    for byte in rest {
        arc = arc << 7 | u32::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            arcs.push(std::mem::take(&mut arc));
        }
    }
    arcs
}

fn wire(value: &Value) -> Vec<u8> {
    let unsigned = |tag, n: u64| {
        let bytes = n.to_be_bytes();
        let zeros = bytes.iter().take(7).take_while(|b| **b == 0).count();
        let short = &bytes[zeros..];
        if short[0] & 0x80 != 0 { tlv(tag, &[&[0], short].concat()) } else { tlv(tag, short) }
    };
    match value {
        Value::Integer(n) => tlv(2, &n.to_be_bytes()),
        Value::Text(text) => tlv(4, text),
        Value::Counter32(n) => unsigned(0x41, u64::from(*n)),
        Value::Gauge(n) => unsigned(0x42, u64::from(*n)),
        Value::Ticks(n) => unsigned(0x43, u64::from(*n)),
        Value::Counter64(n) => unsigned(0x46, *n),
        Value::EndOfView => tlv(0x82, &[]),
        Value::NoSuchObject => tlv(0x80, &[]),
    }
}

/// `sysUpTime.0`.
pub const UPTIME: [u32; 9] = [1, 3, 6, 1, 2, 1, 1, 3, 0];

/// A switch with ports `eth1` and up. A counter is `1000 * port + column`.
pub fn switch(ports: u32) -> Objects {
    let mut objects = Objects::new();
    objects.insert(UPTIME.to_vec(), Value::Ticks(100_000));
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    for (scalar, content) in [(1, "a switch"), (4, "operator"), (5, "sw"), (6, "somewhere")] {
        objects.insert(vec![1, 3, 6, 1, 2, 1, 1, scalar, 0], text(content));
    }
    for port in 1..=ports {
        let mut plain =
            |column: u32, value| objects.insert(vec![1, 3, 6, 1, 2, 1, 2, 2, 1, column, port], value);
        plain(2, text(&format!("port number {port}")));
        plain(3, Value::Integer(6));
        plain(5, Value::Gauge(1_000_000_000));
        plain(7, Value::Integer(1));
        plain(8, Value::Integer(1));
        for column in [10, 11, 13, 14, 16, 17, 19, 20] {
            plain(column, Value::Counter32(1_000 * port + column));
        }
        let mut if_x_column =
            |column: u32, value| objects.insert(vec![1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column, port], value);
        if_x_column(1, text(&format!("eth{port}")));
        for column in 6..=13 {
            if_x_column(column, Value::Counter64(1_000 * u64::from(port) + u64::from(column)));
        }
        if_x_column(15, Value::Gauge(1_000));
        if_x_column(18, text(if port == 1 { "uplink" } else { "" }));
        if_x_column(19, Value::Ticks(0));
    }
    objects
}

/// Returns an object identifier in `ifXTable`.
pub fn if_x_column(column: u32, port: u32) -> Vec<u32> {
    vec![1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column, port]
}

/// Increases the uptime by `ticks` and all counters by `by`.
pub fn grow(objects: &mut Objects, ticks: u32, by: u32) {
    for (object, value) in objects.iter_mut() {
        match value {
            Value::Ticks(n) if object == &UPTIME => *n += ticks,
            Value::Counter32(n) => *n = n.wrapping_add(by),
            Value::Counter64(n) => *n += u64::from(by),
            _ => {}
        }
    }
}
