//! The controller's side of runs on agents: starts them, and carries their messages.
//!
//! A thread with its own runtime connects a run to the stream that `trunkline_live` reads and writes, as if the agent
//! were a process of this machine. It has two connections: for events, and for messages and exchanges of time.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream as Stream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout, timeout_at};
use trunkline_live::time_exchange::{TimeAnswer, TimeGrant, TimeRequester, monotonic_minus_raw_ns, raw_ns};
use trunkline_live::{AgentClock, Launch, LaunchedAgent, RemoteAgent};
use trunkline_units::Span;

use crate::address::Address;
use crate::connection::{Connection, broken, read};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::lock;
use crate::request_error::{Error, one_line};
use crate::server::runs::RunDescription;
use crate::time::RemoteClock;

/// Time for a connection with its handshake, and for a request.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Time to tell the agent that the run is over.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of exchanges of time before a run begins, and their interval.
const FIRST_EXCHANGES: usize = 8;
const FIRST_INTERVAL: Duration = Duration::from_millis(5);
/// Interval of the exchanges over UDP: two clocks may drift apart by 4 us in that time, and be slewed by 10 us.
const TIME_INTERVAL: Duration = Duration::from_millis(20);
/// Time to wait for an answer over UDP.
const TIME_LIMIT: Span = Span::from_ms(50);
/// Interval of the exchanges of time during a run. They also say that the controller is alive, and keep the connection open.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time to wait for the reason why an agent refuses messages.
const REASON_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a message of the run in octets.
const MAX_EVENT: usize = 64 << 20;

/// Where an agent is, and what key it has.
#[derive(Clone, Debug)]
pub struct RemoteHost {
    /// Its address.
    pub address: Address,
    /// Its key.
    pub fingerprint: Fingerprint,
}

/// Starts the agents of some hosts on other machines, and those of the others on this one.
pub struct RemoteAgents {
    /// The key of the controller.
    pub identity: Arc<Identity>,
    /// The hosts on other machines.
    pub hosts: BTreeMap<String, RemoteHost>,
    /// Starts the agents of all other hosts.
    pub local: Box<dyn Launch + Send + Sync>,
}

impl Launch for RemoteAgents {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        match self.hosts.get(host) {
            Some(remote) => launch(remote.clone(), self.identity.clone()).map_err(io::Error::other),
            None => self.local.launch(host),
        }
    }

    fn is_remote(&self, host: &str) -> bool {
        self.hosts.contains_key(host) || self.local.is_remote(host)
    }
}

/// A run on an agent.
struct RemoteRun {
    ends: (SocketAddr, SocketAddr),
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    clock: Mutex<RemoteClock>,
    failure: Mutex<Option<String>>,
    stop: Notify,
    is_over: AtomicBool,
}

impl RemoteAgent for RemoteRun {
    fn address(&self) -> IpAddr {
        self.ends.1.ip().to_canonical()
    }

    fn local_address(&self) -> IpAddr {
        self.ends.0.ip().to_canonical()
    }

    fn to_agent_clock(&self, monotonic_ns: u64) -> Option<AgentClock> {
        lock(&self.shared.clock).to_agent(monotonic_ns, raw_ns(), monotonic_minus_raw_ns())
    }

    fn exchange_time(&self, agent: SocketAddr, grant: &TimeGrant) {
        // Without this socket the exchanges over TLS remain.
        let Ok(mut requester) = TimeRequester::open(agent, grant) else { return };
        let shared = self.shared.clone();
        let mut exchange = move || -> bool {
            // A failed exchange is one that is lost: the agent needs later ones as a sign of life.
            if let Ok(Some((sent, received, answer))) = requester.exchange(TIME_LIMIT) {
                lock(&shared.clock).record(sent, received, &answer);
            }
            !shared.is_over.load(Ordering::Relaxed)
        };
        for _ in 0..FIRST_EXCHANGES {
            exchange();
            std::thread::sleep(FIRST_INTERVAL);
        }
        let go_on = move || {
            while exchange() {
                std::thread::sleep(TIME_INTERVAL);
            }
        };
        let thread = std::thread::Builder::new().name("time".into()).spawn(go_on);
        lock(&self.threads).extend(thread);
    }

    fn end(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.stop.notify_one();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn failure(&self) -> Option<String> {
        // The reason follows the end of the stream closely.
        let deadline = Instant::now() + Duration::from_millis(200);
        loop {
            let failure = lock(&self.shared.failure).clone();
            if failure.is_some() || Instant::now() > deadline {
                return failure;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Starts a run on an agent.
fn launch(host: RemoteHost, identity: Arc<Identity>) -> Result<LaunchedAgent, Error> {
    let (ours, theirs) = Stream::pair().map_err(Error::System)?;
    theirs.set_nonblocking(true).map_err(Error::System)?;
    let shared = Arc::new(Shared::default());
    let (started, result) = std::sync::mpsc::channel();
    let in_thread = shared.clone();
    let carry = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(Error::System(error)))),
        };
        runtime.block_on(async {
            let (run, stream) = match start(&host, &identity, &in_thread).await.and_then(|run| {
                let stream = UnixStream::from_std(theirs).map_err(Error::System)?;
                Ok((run, stream))
            }) {
                Ok(started) => started,
                Err(error) => return drop(started.send(Err(error))),
            };
            let ends = run.requests.ends;
            let path = run.path.clone();
            if started.send(Ok(ends)).is_ok() {
                run.carry(stream, &in_thread).await;
            }
            // The other connections may have requests in progress. Without this request the agent ends the run a
            // few seconds later.
            let end = async {
                let mut connection = Connection::open(&host.address, host.fingerprint, &identity).await?;
                connection.exchange(Method::DELETE, &path, Vec::new(), END_TIMEOUT).await
            };
            let _ = timeout(END_TIMEOUT, end).await;
        });
        // A name that is still being resolved must not delay the end.
        runtime.shutdown_background();
    };
    let thread =
        std::thread::Builder::new().name("remote agent".into()).spawn(carry).map_err(Error::System)?;
    let ends = result.recv().map_err(|error| Error::System(io::Error::other(error)))??;
    let remote = Arc::new(RemoteRun { ends, shared, threads: Mutex::new(vec![thread]) });
    Ok(LaunchedAgent { stream: ours, child: None, remote: Some(remote) })
}

/// The connections of a run.
struct Run {
    address: Address,
    path: String,
    requests: Connection,
    events: Response<Incoming>,
    /// Keeps the connection of the events open.
    _events: Connection,
}

/// Starts a run, opens its connections, and exchanges time until the clock is known.
async fn start(host: &RemoteHost, identity: &Identity, shared: &Shared) -> Result<Run, Error> {
    let RemoteHost { address, fingerprint } = host;
    let open = || async {
        let connection = timeout(TIMEOUT, Connection::open(address, *fingerprint, identity)).await;
        connection.map_err(|_| Error::Silent(address.clone()))?
    };
    let mut requests = open().await?;
    let answer = requests.exchange(Method::POST, "/v1/runs", Vec::new(), TIMEOUT).await?;
    let wrong = |error: serde_json::Error| Error::Answer(address.clone(), one_line(&error.to_string()));
    let RunDescription { run } = serde_json::from_slice(&answer).map_err(wrong)?;
    if run.len() > 64 || !run.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return Err(Error::Answer(address.clone(), "the run has no valid name".into()));
    }
    let path = format!("/v1/runs/{run}");
    let mut reader = open().await?;
    let events = timeout(TIMEOUT, reader.request(Method::GET, &format!("{path}/events"), Vec::new())).await;
    let events = events.map_err(|_| Error::Silent(address.clone()))??;
    if !events.status().is_success() {
        return Err(read(address, events).await.err().unwrap_or_else(|| Error::Silent(address.clone())));
    }
    for _ in 0..FIRST_EXCHANGES {
        exchange_time(&mut requests, &path, &shared.clock).await?;
        sleep(FIRST_INTERVAL).await;
    }
    Ok(Run { address: address.clone(), path, requests, events, _events: reader })
}

async fn exchange_time(
    connection: &mut Connection,
    path: &str,
    clock: &Mutex<RemoteClock>,
) -> Result<(), Error> {
    let sent = raw_ns();
    let answer = connection.exchange(Method::POST, &format!("{path}/time"), Vec::new(), TIMEOUT).await?;
    let received = raw_ns();
    // An agent that answers nonsense has no clock; the run then fails for that reason.
    if let Ok(answer) = serde_json::from_slice::<TimeAnswer>(&answer) {
        lock(clock).record(sent, received, &answer);
    }
    Ok(())
}

impl Run {
    /// Carries messages until the run ends or a stop is requested.
    async fn carry(self, stream: UnixStream, shared: &Shared) {
        let Run { address, path, mut requests, events, _events } = self;
        let (input, output) = stream.into_split();
        let result = tokio::select! {
            result = carry_requests(input, &mut requests, &path, &shared.clock) => result,
            result = carry_events(events, output, &address) => result,
            () = shared.stop.notified() => Ok(()),
        };
        if let Err(error) = &result {
            lock(&shared.failure).get_or_insert_with(|| error.to_string());
        }
    }
}

/// Sends the controller's messages to the agent, in order, and exchanges time in between.
async fn carry_requests(
    mut input: OwnedReadHalf,
    connection: &mut Connection,
    path: &str,
    clock: &Mutex<RemoteClock>,
) -> Result<(), Error> {
    let messages = format!("{path}/messages");
    let (mut lines, mut chunk) = (MessageLines::default(), vec![0; 64 << 10]);
    let mut next = tokio::time::Instant::now() + INTERVAL;
    loop {
        let result = match timeout_at(next, input.read(&mut chunk)).await {
            // The controller has closed its stream.
            Ok(Ok(0) | Err(_)) => return Ok(()),
            Ok(Ok(length)) => match lines.feed(&chunk[..length]) {
                Some(body) => connection.exchange(Method::POST, &messages, body, TIMEOUT).await.map(drop),
                None => continue,
            },
            Err(_) => {
                next += INTERVAL;
                exchange_time(connection, path, clock).await
            }
        };
        if let Err(error) = result {
            if matches!(error, Error::Refused(..)) {
                // If the run has ended, the events say why.
                sleep(REASON_TIMEOUT).await;
            }
            return Err(error);
        }
    }
}

/// The messages that are not complete yet.
#[derive(Default)]
struct MessageLines(Vec<u8>);

impl MessageLines {
    /// Adds bytes, and takes the lines that are whole for the body of a request; `None` if there are none.
    fn feed(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        // Only new bytes are searched: a long line arrives in many parts.
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map(|end| self.0.len() + end + 1);
        self.0.extend_from_slice(bytes);
        let rest = self.0.split_off(end?);
        Some(std::mem::replace(&mut self.0, rest))
    }
}

/// Passes the agent's events on.
async fn carry_events(
    events: Response<Incoming>,
    mut output: OwnedWriteHalf,
    address: &Address,
) -> Result<(), Error> {
    let mut body = events.into_body();
    let mut lines = EventLines::default();
    loop {
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(broken(address, &error)),
            None => return Err(Error::Lost(address.clone())),
        };
        let Ok(bytes) = frame.into_data() else { continue };
        lines.feed(&bytes);
        while let Some(event) =
            lines.next().map_err(|()| Error::Answer(address.clone(), "an event is too long".into()))?
        {
            match event {
                Event::Message(message) => {
                    // The controller has closed its stream: it needs no more events.
                    if output.write_all(&message).await.is_err() {
                        return Ok(());
                    }
                }
                Event::End(Some(reason)) => return Err(Error::Ended(address.clone(), one_line(&reason))),
                Event::End(None) => return Ok(()),
            }
        }
    }
}

/// A server-sent event.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// A message of the run, with its line end.
    Message(Vec<u8>),
    /// The end of the run, and its reason if the agent has ended it.
    End(Option<String>),
}

/// Splits a stream into events.
#[derive(Default)]
struct EventLines {
    buffer: Vec<u8>,
    /// How much of the buffer has no line end.
    searched: usize,
    is_end: bool,
}

impl EventLines {
    fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next event, if it is complete.
    fn next(&mut self) -> Result<Option<Event>, ()> {
        loop {
            let Some(at) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.buffer.len() > MAX_EVENT { Err(()) } else { Ok(None) };
            };
            let rest = self.buffer.split_off(self.searched + at + 1);
            let line = std::mem::replace(&mut self.buffer, rest);
            self.searched = 0;
            if line == b"event: end\n" {
                self.is_end = true;
            } else if let Some(data) = line.strip_prefix(b"data: ") {
                return Ok(Some(match self.is_end {
                    true => Event::End(serde_json::from_slice(data).unwrap_or_default()),
                    false => Event::Message(data.to_vec()),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_sent_when_their_lines_are_whole() {
        let text = b"\"Alive\"\n{\"a\":1}\n\"rest";
        for step in 1..=text.len() {
            let mut lines = MessageLines::default();
            let bodies: Vec<Vec<u8>> = text.chunks(step).filter_map(|piece| lines.feed(piece)).collect();
            assert!(bodies.iter().all(|body| body.ends_with(b"\n")), "pieces of {step} octets");
            assert_eq!((&bodies.concat()[..], &lines.0[..]), text.split_at(16), "pieces of {step} octets");
        }
    }

    #[test]
    fn events_are_split_at_any_boundary() {
        let text = b"data: {\"a\":1}\n\n: comment\n\ndata: \"b\"\n\nevent: end\ndata: \"because\"\n\n";
        for step in 1..text.len() {
            let mut lines = EventLines::default();
            let mut events = Vec::new();
            for piece in text.chunks(step) {
                lines.feed(piece);
                while let Some(event) = lines.next().unwrap() {
                    events.push(event);
                }
            }
            let message = |text: &str| Event::Message(text.as_bytes().to_vec());
            let end = Event::End(Some("because".into()));
            assert_eq!(events, [message("{\"a\":1}\n"), message("\"b\"\n"), end], "pieces of {step} octets");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = EventLines::default();
        lines.feed(&vec![b'x'; MAX_EVENT]);
        assert_eq!(lines.next(), Ok(None));
        lines.feed(b"xx");
        assert_eq!(lines.next(), Err(()));
    }
}
