//! Hosts that are pinged: whether they respond, how soon, and when they last did.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use trunkline_counters::archive::{Object, SeriesName, SeriesSpec};
use trunkline_counters::counter::{RawValue, Timestamp, ValueKind};
use trunkline_io::icmp::{self, Echo};

use super::AnchoredClock;
use super::config::Ping;
use super::context::Context;
use super::table::{PollTimes, TableBuffer};
use crate::time::Schedule;

/// Series of a host: whether it responds, its delay, when it was last seen.
const WIDTH: usize = 3;

/// Who waits for which number from which host.
type Waiting = Mutex<BTreeMap<(IpAddr, u16), oneshot::Sender<Timestamp>>>;

/// Sockets to ping with, shared by all hosts.
#[derive(Clone, Debug)]
pub struct Pings {
    sockets: Vec<Arc<Socket>>,
}

#[derive(Debug)]
struct Socket {
    socket: UdpSocket,
    echo: Echo,
    waiting: Waiting,
}

impl Pings {
    /// Sockets for the kinds of addresses that there are.
    pub fn open(pings: &[Ping]) -> io::Result<Pings> {
        let mut sockets = Vec::new();
        for v6 in [false, true] {
            if pings.iter().any(|ping| ping.address.is_ipv6() == v6) {
                let (socket, echo) = icmp::open(v6)?;
                let socket = UdpSocket::from_std(socket)?;
                sockets.push(Arc::new(Socket { socket, echo, waiting: Waiting::default() }));
            }
        }
        Ok(Pings { sockets })
    }

    /// How many tasks listen for answers.
    pub fn listeners(&self) -> usize {
        self.sockets.len()
    }

    /// Starts them.
    pub fn listen(&self, tasks: &mut JoinSet<()>, clock: AnchoredClock) {
        for socket in &self.sockets {
            let socket = socket.clone();
            tasks.spawn(async move { socket.listen(clock).await });
        }
    }

    /// Sends an echo request: when it left, and who will say when its answer came. None if it did not leave.
    async fn send(
        &self,
        to: IpAddr,
        number: u16,
        clock: AnchoredClock,
    ) -> Option<(Timestamp, oneshot::Receiver<Timestamp>)> {
        let socket = self.sockets.iter().find(|socket| socket.echo.is_v6() == to.is_ipv6())?;
        let (sender, answer) = oneshot::channel();
        socket.waiting.lock().expect("nobody panics with it").insert((to, number), sender);
        let asked = clock.now();
        let request = socket.echo.request(number);
        let sent = socket.socket.send_to(&request, SocketAddr::new(to, 0)).await;
        sent.ok().map(|_| (asked, answer))
    }

    fn forget(&self, to: IpAddr, number: u16) {
        for socket in &self.sockets {
            socket.waiting.lock().expect("nobody panics with it").remove(&(to, number));
        }
    }
}

impl Socket {
    async fn listen(&self, clock: AnchoredClock) {
        let mut buffer = [0; 2_048];
        loop {
            // What comes as an error is of one host that cannot be reached; it has no answer.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let now = clock.now();
            if let Some(number) = self.echo.answer(&buffer[..length]) {
                let waits = self.waiting.lock().expect("nobody panics with it").remove(&(from.ip(), number));
                let _ = waits.map(|waits| waits.send(now));
            }
        }
    }
}

/// Pings a host until it is ended; with `once` once.
pub async fn run(ping: Ping, pings: Pings, context: Context, number: usize, phase: f64, once: bool) {
    let every = (ping.period, Some(std::time::Duration::ZERO));
    let mut table: TableBuffer<()> = TableBuffer::new(number, &ping.name, "host", every, WIDTH);
    let mut schedule = Schedule::new(context.clock.now(), ping.period, phase);
    let mut seen = None;
    for count in 0u32.. {
        if !once {
            context.clock.sleep_until(schedule.due()).await;
        }
        let due = if once { context.clock.now() } else { schedule.due() };
        let number = count as u16;
        let mut asked = context.clock.now();
        let mut answered = None;
        if let Some((left, answer)) = pings.send(ping.address, number, context.clock).await {
            asked = left;
            answered = tokio::time::timeout(ping.timeout, answer).await.ok().and_then(Result::ok);
        }
        pings.forget(ping.address, number);
        let now = context.clock.now();
        seen = answered.or(seen);
        if let Some(values) = table.row("host", (), |()| series()) {
            values[0] = Some(RawValue::from_gauge(answered.is_some().into()));
            let delay = answered.map(|answered| answered.duration_since(asked).as_nanos());
            values[1] = delay.map(|ns| RawValue::from_gauge(i64::try_from(ns).unwrap_or(i64::MAX)));
            values[2] = seen.map(|seen: Timestamp| RawValue::from_gauge(seen.0 / 1_000_000));
        }
        // That there was no answer is known when nobody waits for one any more.
        let known = answered.unwrap_or(now).max(asked.saturating_add(std::time::Duration::from_nanos(1)));
        table.send(
            PollTimes { due, requested_at: asked, answered_at: Some(known), uptime: None },
            &context.sink,
        );
        if once {
            return;
        }
        schedule.advance(now);
    }
}

fn series() -> Vec<SeriesSpec> {
    let gauge = |quantity: &str, unit: &str| SeriesSpec {
        name: SeriesName { object: Object::Host, direction: None, quantity: quantity.into() }.to_string(),
        kind: ValueKind::Gauge,
        unit: unit.into(),
        ceiling: None,
        discontinuity: None,
    };
    vec![gauge("responding", ""), gauge("delay", "ns"), gauge("seen", "ms since 1970")]
}
