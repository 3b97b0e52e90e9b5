//! Hosts that are pinged: whether they respond, their round-trip time, and when they last responded.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use trunkline_counters::archive::{Object, SeriesName, SeriesSpec};
use trunkline_counters::counter::{RawValue, Timestamp, ValueKind};
use trunkline_io::icmp::{self, Echo};

use super::AnchoredClock;
use super::config::Ping;
use super::report::Context;
use super::table::{PollTimes, TableBuffer};
use crate::time::Schedule;

/// Number of series of a host: `responding`, `delay` and `seen`.
const WIDTH: usize = 3;

/// Receivers of echo replies, by host and sequence number.
type PendingReplies = BTreeMap<(IpAddr, u16), oneshot::Sender<Timestamp>>;

/// ICMP sockets, shared by all hosts.
#[derive(Clone, Debug)]
pub struct Pings {
    sockets: Vec<Arc<Socket>>,
}

#[derive(Debug)]
struct Socket {
    socket: UdpSocket,
    echo: Echo,
    pending: Mutex<PendingReplies>,
}

impl Pings {
    /// Opens a socket for each IP version in use.
    pub fn open(pings: &[Ping]) -> io::Result<Pings> {
        let mut sockets = Vec::new();
        for v6 in [false, true] {
            if pings.iter().any(|ping| ping.address.is_ipv6() == v6) {
                let (socket, echo) = icmp::open(v6)?;
                let socket = UdpSocket::from_std(socket)?;
                sockets.push(Arc::new(Socket { socket, echo, pending: Mutex::default() }));
            }
        }
        Ok(Pings { sockets })
    }

    /// Returns the number of tasks that receive echo replies.
    pub fn listener_count(&self) -> usize {
        self.sockets.len()
    }

    /// Starts the tasks that receive echo replies.
    pub fn spawn_listeners(&self, tasks: &mut JoinSet<()>, clock: AnchoredClock) {
        for socket in &self.sockets {
            let socket = socket.clone();
            tasks.spawn(async move { socket.listen(clock).await });
        }
    }

    /// Sends an echo request. Returns its time and a channel for the time of its reply; `None` if sending failed.
    async fn send(
        &self,
        to: IpAddr,
        number: u16,
        clock: AnchoredClock,
    ) -> Option<(Timestamp, oneshot::Receiver<Timestamp>)> {
        let socket = self.sockets.iter().find(|socket| socket.echo.is_v6() == to.is_ipv6())?;
        let (sender, answer) = oneshot::channel();
        socket.pending().insert((to, number), sender);
        let requested_at = clock.now();
        let request = socket.echo.request(number);
        let sent = socket.socket.send_to(&request, SocketAddr::new(to, 0)).await;
        sent.ok().map(|_| (requested_at, answer))
    }

    fn forget(&self, to: IpAddr, number: u16) {
        for socket in &self.sockets {
            socket.pending().remove(&(to, number));
        }
    }
}

impl Socket {
    fn pending(&self) -> MutexGuard<'_, PendingReplies> {
        self.pending.lock().expect("no thread panics while holding the lock")
    }

    async fn listen(&self, clock: AnchoredClock) {
        let mut buffer = [0; 2_048];
        loop {
            // An error concerns one unreachable host, which gets no reply.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let now = clock.now();
            if let Some(number) = self.echo.answer(&buffer[..length]) {
                let sender = self.pending().remove(&(from.ip(), number));
                let _ = sender.map(|sender| sender.send(now));
            }
        }
    }
}

/// Pings a host until the task is dropped; with `once`, once.
pub async fn run(ping: Ping, pings: Pings, context: Context, number: usize, phase: f64, once: bool) {
    let every = (ping.period, Some(std::time::Duration::ZERO));
    let mut table: TableBuffer<()> = TableBuffer::new(number, &ping.name, "host", every, WIDTH);
    let mut schedule = Schedule::new(context.clock.now(), ping.period, phase);
    let mut last_seen = None;
    for count in 0u32.. {
        if !once {
            context.clock.sleep_until(schedule.due()).await;
        }
        let due = if once { context.clock.now() } else { schedule.due() };
        let number = count as u16;
        let mut requested_at = context.clock.now();
        let mut answered_at = None;
        if let Some((sent_at, answer)) = pings.send(ping.address, number, context.clock).await {
            requested_at = sent_at;
            answered_at = tokio::time::timeout(ping.timeout, answer).await.ok().and_then(Result::ok);
        }
        pings.forget(ping.address, number);
        let now = context.clock.now();
        last_seen = answered_at.or(last_seen);
        if let Some(values) = table.row("host", (), |()| series()) {
            values[0] = Some(RawValue::from_gauge(answered_at.is_some().into()));
            let delay = answered_at.map(|answered_at| answered_at.duration_since(requested_at).as_nanos());
            values[1] = delay.map(|ns| RawValue::from_gauge(i64::try_from(ns).unwrap_or(i64::MAX)));
            values[2] = last_seen.map(|last_seen: Timestamp| RawValue::from_gauge(last_seen.0 / 1_000_000));
        }
        // Without a reply, the result is known when the timeout ends.
        let known_at =
            answered_at.unwrap_or(now).max(requested_at.saturating_add(std::time::Duration::from_nanos(1)));
        table.send(PollTimes { due, requested_at, answered_at: Some(known_at), uptime: None }, &context.sink);
        if once {
            return;
        }
        schedule.advance(now);
    }
}

fn series() -> Vec<SeriesSpec> {
    let gauge = |quantity: &str, unit: &str| {
        let name = SeriesName { object: Object::Host, direction: None, quantity: quantity.into() };
        SeriesSpec::new(name.to_string(), ValueKind::Gauge, unit)
    };
    vec![gauge("responding", ""), gauge("delay", "ns"), gauge("seen", "ms since 1970")]
}
