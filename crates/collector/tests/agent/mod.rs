//! A small SNMP v2c agent that says what it is told to say, on loopback addresses, for as many devices as wanted.

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

/// A value as it stands on the wire.
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

/// What an agent answers with.
pub type Objects = BTreeMap<Vec<u32>, Value>;

/// How an agent misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Manner {
    #[default]
    Good,
    /// It says nothing.
    Dead,
    /// It answers each second request.
    Lossy,
    /// Its answers have another number than the request.
    OtherNumber,
    /// Its answers come from another port.
    Elsewhere,
    /// It sends octets that are no SNMP.
    Garbage,
    /// It answers always with the same object.
    Circle,
    /// It makes up objects without end.
    Endless,
    /// It finds everything too big that has more than so many objects.
    TooBig(usize),
    /// It refuses with this error status.
    Status(i32),
    /// It sends as much as a datagram carries.
    Huge,
    /// Octets of its answers are changed, others from answer to answer.
    Damaged,
    /// It cuts every answer to so many objects.
    Cut(usize),
}

#[derive(Default)]
pub struct State {
    pub objects: Objects,
    pub manner: Manner,
    /// Since when uptime and counters grow by themselves.
    pub runs: Option<Clock>,
    /// The last request.
    pub heard: Vec<u8>,
}

/// A value so many milliseconds later.
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
    /// Requests that came.
    pub requests: Arc<AtomicU64>,
    /// Processor time of the thread, ns.
    pub busy: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agents {
    /// One at each address.
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

    /// One agent with these objects.
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
            state.heard.clear();
            state.heard.extend_from_slice(&buffer[..length]);
            let Some(answer) = answer(&buffer[..length], &state, number) else { continue };
            let by = if state.manner == Manner::Elsewhere { &elsewhere } else { &sockets[at] };
            let _ = by.send_to(&answer, from);
        }
        busy.store(trunkline_io::usage::thread_cpu_time().as_ns(), Ordering::Relaxed);
    }
}

fn answer(request: &[u8], state: &State, number: u64) -> Option<Vec<u8>> {
    let request = Request::read(request)?;
    let mut status = 0;
    let mut id = request.id.to_vec();
    match state.manner {
        Manner::Dead => return None,
        Manner::Lossy if number.is_multiple_of(2) => return None,
        Manner::Garbage => return Some(vec![0xff; 40]),
        Manner::OtherNumber => *id.last_mut()? ^= 1,
        Manner::Status(code) => status = code,
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
                let (object, value) = match state.manner {
                    Manner::Circle if !cursor.is_empty() => {
                        ([&cursor[..cursor.len().min(11)], &[7]].concat(), Value::Counter32(1))
                    }
                    Manner::Endless => {
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
    match state.manner {
        Manner::TooBig(most) if found.len() > most => {
            (status, found) = (1, Vec::new());
        }
        Manner::Cut(most) => found.truncate(most),
        Manner::Huge => {
            if let Some((_, value)) = found.last_mut() {
                *value = Value::Text(vec![b'x'; 60_000]);
            }
        }
        _ => {}
    }
    if let Some(clock) = state.runs {
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
    if state.manner == Manner::Damaged {
        // Its number stays whole, so that it is read at all.
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

/// A tag, what it holds, and the rest.
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
    let (held, rest) = rest.split_at_checked(length)?;
    Some((tag, held, rest))
}

fn tlv(tag: u8, held: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match held.len() {
        length @ 0..0x80 => out.push(length as u8),
        length => out.extend([0x83, (length >> 16) as u8, (length >> 8) as u8, length as u8]),
    }
    out.extend(held);
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

/// The object that says how long an agent has run.
pub const UPTIME: [u32; 9] = [1, 3, 6, 1, 2, 1, 1, 3, 0];

/// A switch with so many ports, `eth1` and on, whose octets are `1000 * port + column`.
pub fn switch(ports: u32) -> Objects {
    let mut objects = Objects::new();
    objects.insert(UPTIME.to_vec(), Value::Ticks(100_000));
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    for (scalar, said) in [(1, "a switch"), (4, "somebody"), (5, "sw"), (6, "somewhere")] {
        objects.insert(vec![1, 3, 6, 1, 2, 1, 1, scalar, 0], text(said));
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
        let mut wide =
            |column: u32, value| objects.insert(vec![1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column, port], value);
        wide(1, text(&format!("eth{port}")));
        for column in 6..=13 {
            wide(column, Value::Counter64(1_000 * u64::from(port) + u64::from(column)));
        }
        wide(15, Value::Gauge(1_000));
        wide(18, text(if port == 1 { "uplink" } else { "" }));
        wide(19, Value::Ticks(0));
    }
    objects
}

/// A column of the table of interfaces with 64 bits.
pub fn wide(column: u32, port: u32) -> Vec<u32> {
    vec![1, 3, 6, 1, 2, 1, 31, 1, 1, 1, column, port]
}

/// Lets uptime and all counters grow by so much.
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
