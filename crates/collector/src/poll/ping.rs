//! Hosts that are pinged: whether they respond, how soon, and when they last did.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use trunkline_counters::archive::{Object, Place, SeriesSpec};
use trunkline_counters::counter::{Kind, Moment, Raw};
use trunkline_io::icmp::{self, Echo};

use super::Time;
use super::collect::Context;
use super::config::Ping;
use super::sheet::{Sheet, When};
use super::time::Schedule;

/// Series of a host: whether it responds, its delay, when it was last seen.
const WIDTH: usize = 3;

/// Who waits for which number from which host.
type Waiting = Mutex<BTreeMap<(IpAddr, u16), oneshot::Sender<Moment>>>;

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
    pub fn listen(&self, tasks: &mut JoinSet<()>, time: Time) {
        for socket in &self.sockets {
            let socket = socket.clone();
            tasks.spawn(async move { socket.listen(time).await });
        }
    }

    /// Sends an echo request: when it left, and who will say when its answer came. None if it did not leave.
    async fn send(&self, to: IpAddr, number: u16, time: Time) -> Option<(Moment, oneshot::Receiver<Moment>)> {
        let socket = self.sockets.iter().find(|socket| socket.echo.is_v6() == to.is_ipv6())?;
        let (sender, answer) = oneshot::channel();
        socket.waiting.lock().expect("nobody panics with it").insert((to, number), sender);
        let asked = time.now();
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
    async fn listen(&self, time: Time) {
        let mut buffer = [0; 2_048];
        loop {
            // What comes as an error is of one host that cannot be reached; it has no answer.
            let Ok((length, from)) = self.socket.recv_from(&mut buffer).await else { continue };
            let now = time.now();
            if let Some(number) = self.echo.answer(&buffer[..length]) {
                let waits = self.waiting.lock().expect("nobody panics with it").remove(&(from.ip(), number));
                let _ = waits.map(|waits| waits.send(now));
            }
        }
    }
}

/// Pings a host until it is ended; with `once` once.
pub async fn run(ping: Ping, pings: Pings, context: Context, number: usize, share: f64, once: bool) {
    let every = (ping.period, Some(std::time::Duration::ZERO));
    let mut sheet: Sheet<()> = Sheet::new(number, &ping.name, "host", every, WIDTH);
    let mut schedule = Schedule::new(context.time.now(), ping.period, share);
    let mut seen = None;
    for count in 0u32.. {
        if !once {
            context.time.wait(schedule.due()).await;
        }
        let due = if once { context.time.now() } else { schedule.due() };
        let number = count as u16;
        let mut asked = context.time.now();
        let mut answered = None;
        if let Some((left, answer)) = pings.send(ping.address, number, context.time).await {
            asked = left;
            answered = tokio::time::timeout(ping.timeout, answer).await.ok().and_then(Result::ok);
        }
        pings.forget(ping.address, number);
        let now = context.time.now();
        seen = answered.or(seen);
        if let Some(values) = sheet.row("host", (), |()| series()) {
            values[0] = Some(Raw::gauge(answered.is_some().into()));
            let delay = answered.map(|answered| answered.since(asked).as_nanos());
            values[1] = delay.map(|ns| Raw::gauge(i64::try_from(ns).unwrap_or(i64::MAX)));
            values[2] = seen.map(|seen: Moment| Raw::gauge(seen.0 / 1_000_000));
        }
        // That there was no answer is known when nobody waits for one any more.
        let known = answered.unwrap_or(now).max(asked.after(std::time::Duration::from_nanos(1)));
        sheet.send(When { due, asked, answered: Some(known), uptime: None }, &context.sink);
        if once {
            return;
        }
        schedule.done(now);
    }
}

fn series() -> Vec<SeriesSpec> {
    let gauge = |quantity: &str, unit: &str| SeriesSpec {
        name: Place { object: Object::Host, direction: None, quantity: quantity.into() }.to_string(),
        kind: Kind::Gauge,
        unit: unit.into(),
        ceiling: None,
        mark: None,
    };
    vec![gauge("responding", ""), gauge("delay", "ns"), gauge("seen", "ms since 1970")]
}
