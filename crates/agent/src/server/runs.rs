//! The runs of an agent: each is a process `agent --stdio`, whose messages the server passes on.
//!
//! | request | phase | meaning |
//! | --- | --- | --- |
//! | `POST /v1/runs` | initialise | starts a run; answers with a [`RunDescription`] |
//! | `POST /v1/runs/ID/messages` | set up, open, run, finish, close, tear down | messages of the controller, one a line |
//! | `GET /v1/runs/ID/events` | open, run, report | messages of the run, as server-sent events |
//! | `POST /v1/runs/ID/time` | any | the agent's time, a [`TimeAnswer`] |
//! | `DELETE /v1/runs/ID` | kill | ends the run at once |
//!
//! The messages are those of `trunkline_live`, as between the processes of one machine: `Hello` sets up, `Prepare` opens
//! an end, `Start`, `Finish` and `Stop` run and close it, `Shutdown` tears down. The process checks them against the
//! limits of the agent's owner.
//!
//! A run ends when its controller sends nothing for 4 s, when its key is revoked, when the controller no longer
//! reads the events, or when its longest time is over. Its load has stopped before, because consent has ended.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Stream;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use futures_util::stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use trunkline_live::agent::refused_test;
use trunkline_live::time_exchange::{TimeAnswer, monotonic_minus_raw_ns, raw_ns};
use trunkline_live::{Launch, MAX_REMOTE_MESSAGES};

use super::{ServerState, error_response, json};
use crate::fingerprint::Fingerprint;
use crate::lock;
use crate::trust::Admission;

/// A run whose controller sends nothing for this long ends.
const LEASE: Duration = Duration::from_secs(4);
/// Interval of the checks of all runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum length of the messages of a request in octets.
pub(crate) const MAX_MESSAGES: usize = MAX_REMOTE_MESSAGES;
/// Maximum length of a message of a run in octets.
const MAX_EVENT: u64 = 64 << 20;
/// Time for the process of a run to accept messages.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a server needs for runs.
pub struct RunOptions {
    /// Starts the process of a run.
    pub launch: Box<dyn Launch + Send + Sync>,
    /// Maximum number of runs at a time.
    pub max_runs: usize,
    /// Maximum time of a run.
    pub max_time: Duration,
}

/// The answer to the start of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDescription {
    /// Identifies the run in further requests.
    pub run: String,
}

/// The runs of a server.
pub(crate) struct Runs {
    options: RunOptions,
    runs: Mutex<BTreeMap<String, Arc<Run>>>,
}

/// A run.
struct Run {
    /// The key of its controller; others may not use it.
    controller: Fingerprint,
    /// The name of the controller, for the log.
    name: String,
    started: Instant,
    last_request: Mutex<Instant>,
    child: Mutex<Option<Child>>,
    /// Closed at the end.
    stream: Stream,
    input: AsyncMutex<OwnedWriteHalf>,
    /// Taken by the request for events.
    output: Mutex<Option<OwnedReadHalf>>,
    /// Why the agent ended the run.
    end: Mutex<Option<String>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Run {
    /// Ends the process, or the thread.
    fn kill(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(mut child) = lock(&self.child).take() {
            let _ = child.kill();
            // A process may take its time to exit, in a system call; the server must not wait.
            std::thread::spawn(move || child.wait());
        }
    }

    /// Ends the run for this reason.
    fn end(&self, reason: String) {
        lock(&self.end).get_or_insert(reason);
        self.kill();
    }

    /// Returns whether the process has exited.
    fn has_exited(&self) -> bool {
        lock(&self.child).as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }
}

impl Runs {
    pub fn new(options: RunOptions) -> Runs {
        Runs { options, runs: Mutex::default() }
    }

    /// Starts a run.
    fn start(&self, controller: Fingerprint, name: String) -> Result<String, StartError> {
        let mut runs = lock(&self.runs);
        let of_controller = runs.values().filter(|run| run.controller == controller).count();
        // One controller cannot take all runs, if there are several.
        if of_controller >= self.options.max_runs.saturating_sub(1).max(1) && self.options.max_runs > 1 {
            return Err(StartError::TooMany(of_controller, name));
        }
        if runs.len() >= self.options.max_runs {
            let names: Vec<&str> = runs.values().map(|run| run.name.as_str()).collect();
            return Err(StartError::TooMany(self.options.max_runs, names.join(", ")));
        }
        let mut octets = [0; 8];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut octets)
            .map_err(|_| StartError::System(io::Error::other("no random numbers")))?;
        let id: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        let launched = self.options.launch.launch(&name).map_err(StartError::System)?;
        let (stream, input, output) = (|| {
            launched.stream.set_nonblocking(true)?;
            let stream = launched.stream.try_clone()?;
            let (output, input) = UnixStream::from_std(launched.stream)?.into_split();
            Ok((stream, input, output))
        })()
        .map_err(StartError::System)?;
        let now = Instant::now();
        let run = Run {
            controller,
            name,
            started: now,
            last_request: Mutex::new(now),
            child: Mutex::new(launched.child),
            stream,
            input: AsyncMutex::new(input),
            output: Mutex::new(Some(output)),
            end: Mutex::default(),
        };
        runs.insert(id.clone(), Arc::new(run));
        Ok(id)
    }

    /// Returns a run of this controller, and notes that the controller is alive.
    fn find(&self, id: &str, controller: Fingerprint) -> Option<Arc<Run>> {
        let run = lock(&self.runs).get(id).filter(|run| run.controller == controller).cloned()?;
        *lock(&run.last_request) = Instant::now();
        Some(run)
    }

    /// Returns whether a controller has a run.
    pub fn has_run_of(&self, controller: Fingerprint) -> bool {
        lock(&self.runs).values().any(|run| run.controller == controller)
    }

    fn remove(&self, id: &str) {
        lock(&self.runs).remove(id);
    }

    /// Ends all runs.
    pub fn end_all(&self, reason: &str) {
        let runs = std::mem::take(&mut *lock(&self.runs));
        runs.values().for_each(|run| run.end(reason.to_owned()));
    }
}

enum StartError {
    TooMany(usize, String),
    System(io::Error),
}

/// Ends runs whose time is over, whose controller is lost or no longer trusted, or whose process has exited.
pub(crate) async fn supervise(state: Arc<ServerState>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(runs) = &state.runs else { return };
        let current: Vec<(String, Arc<Run>)> =
            lock(&runs.runs).iter().map(|(id, run)| (id.clone(), run.clone())).collect();
        for (id, run) in current {
            let now = Instant::now();
            let reason = if run.has_exited() {
                // The events that are still unread end with the stream.
                runs.remove(&id);
                continue;
            } else if now.duration_since(*lock(&run.last_request)) > LEASE {
                format!("its controller has been silent for {} s", LEASE.as_secs())
            } else if now.duration_since(run.started) > runs.options.max_time {
                format!("the longest time of a run, {} s, is over", runs.options.max_time.as_secs())
            } else if let Err(cause) = state.trusted.admit(run.controller, Timestamp::now()) {
                format!("the key of its controller is refused: {cause}")
            } else {
                continue;
            };
            state.log.write_of(run.controller, &format!("ended run {id} of `{}`: {reason}", run.name));
            run.end(reason);
            runs.remove(&id);
        }
    }
}

/// The requests of runs.
pub(crate) fn router() -> Router<Arc<ServerState>> {
    Router::new()
        .route("/v1/runs", post(start))
        .route("/v1/runs/{run}/messages", post(messages).layer(DefaultBodyLimit::max(MAX_MESSAGES)))
        .route("/v1/runs/{run}/events", get(events))
        .route("/v1/runs/{run}/time", post(time))
        .route("/v1/runs/{run}", delete(kill))
}

/// Returns whether a request with this path has messages for a run.
pub(crate) fn has_messages(path: &str) -> bool {
    path.starts_with("/v1/runs/") && path.ends_with("/messages")
}

async fn start(
    State(state): State<Arc<ServerState>>,
    Extension(key): Extension<Fingerprint>,
    Extension(admission): Extension<Admission>,
    body: Bytes,
) -> Response {
    if !body.is_empty() {
        return error_response(StatusCode::BAD_REQUEST, "this request has no body");
    }
    let (Some(runs), Admission::Controller(name)) = (&state.runs, admission) else {
        return error_response(StatusCode::FORBIDDEN, "this agent runs no tests");
    };
    match runs.start(key, name.to_string()) {
        Ok(run) => {
            state.log.write_of(key, &format!("started run {run} of `{name}`"));
            json(StatusCode::CREATED, &RunDescription { run })
        }
        Err(StartError::TooMany(max, names)) => {
            let reason = format!("the agent permits {max} runs at a time, and has runs of: {names}");
            state.log.write_of(key, &format!("refused a run of `{name}`: {reason}"));
            error_response(StatusCode::TOO_MANY_REQUESTS, &reason)
        }
        Err(StartError::System(error)) => {
            state.log.write_of(key, &format!("cannot start a run of `{name}`: {error}"));
            error_response(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot start the run: {error}"))
        }
    }
}

/// Returns a run of this controller, or the answer that there is none.
fn find(state: &ServerState, id: &str, key: Fingerprint) -> Result<Arc<Run>, Box<Response>> {
    let run = state.runs.as_ref().and_then(|runs| runs.find(id, key));
    run.ok_or_else(|| {
        Box::new(error_response(StatusCode::NOT_FOUND, "this controller has no such run, or it has ended"))
    })
}

async fn messages(
    State(state): State<Arc<ServerState>>,
    Extension(key): Extension<Fingerprint>,
    Path(id): Path<String>,
    body: Body,
) -> Response {
    let run = match find(&state, &id, key) {
        Ok(run) => run,
        Err(answer) => return *answer,
    };
    // A run has the body of one request in memory.
    let mut input = run.input.lock().await;
    let Ok(body) = to_bytes(body, MAX_MESSAGES).await else {
        return error_response(StatusCode::BAD_REQUEST, "the body is too long or incomplete");
    };
    // The process ignores nothing: a line that is no message ends it.
    if !body.ends_with(b"\n") {
        return error_response(StatusCode::BAD_REQUEST, "each message is a line, with its end");
    }
    match timeout(WRITE_TIMEOUT, input.write_all(&body)).await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(_)) => error_response(StatusCode::GONE, "the run has ended"),
        // Part of a message may have been written.
        Err(_) => {
            run.end("its process accepts no messages".into());
            error_response(StatusCode::GONE, "the run accepts no messages and was ended")
        }
    }
}

async fn events(
    State(state): State<Arc<ServerState>>,
    Extension(key): Extension<Fingerprint>,
    Path(id): Path<String>,
) -> Response {
    let run = match find(&state, &id, key) {
        Ok(run) => run,
        Err(answer) => return *answer,
    };
    let Some(output) = lock(&run.output).take() else {
        return error_response(StatusCode::CONFLICT, "the events of this run are read already");
    };
    let reader = EventReader { id, run, state, lines: BufReader::new(output), is_over: false };
    let stream = stream::unfold(reader, |mut reader| async { Some((reader.next().await?, reader)) });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(stream)).into_response()
}

/// Reads the messages of a run. A controller that stops reading ends the run.
struct EventReader {
    id: String,
    run: Arc<Run>,
    state: Arc<ServerState>,
    lines: BufReader<OwnedReadHalf>,
    is_over: bool,
}

impl EventReader {
    /// Returns the next event: `data: ` with a message, or at the end `event: end` with the reason.
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        if self.is_over {
            return None;
        }
        let mut event = b"data: ".to_vec();
        let start = event.len();
        let read = (&mut self.lines).take(MAX_EVENT).read_until(b'\n', &mut event).await;
        if read.is_ok_and(|length| length > 0) && event.ends_with(b"\n") {
            self.log_refusal(&event[start..]);
            event.push(b'\n');
            return Some(Ok(event.into()));
        }
        event.truncate(start);
        self.is_over = true;
        self.state.runs.iter().for_each(|runs| runs.remove(&self.id));
        // A run that the agent has ended has its reason shortly before its stream closes.
        let reason = lock(&self.run.end).clone();
        let reason = serde_json::to_string(&reason).unwrap_or_default();
        Some(Ok(format!("event: end\ndata: {reason}\n\n").into()))
    }
}

impl EventReader {
    /// Writes a line to the log if this message refuses a test.
    fn log_refusal(&self, message: &[u8]) {
        if let Some((connection, cause)) = refused_test(message) {
            let line = format!("refused `{connection}` of `{}`: {cause}", self.run.name);
            self.state.log.write_of(self.run.controller, &line);
        }
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        if !self.is_over {
            let line = format!("ended a run of `{}`: its controller has left", self.run.name);
            self.state.log.write_of(self.run.controller, &line);
            self.run.end("its controller has left".into());
        }
    }
}

async fn time(
    State(state): State<Arc<ServerState>>,
    Extension(key): Extension<Fingerprint>,
    Path(id): Path<String>,
) -> Response {
    let received_ns = raw_ns();
    if let Err(answer) = find(&state, &id, key) {
        return *answer;
    }
    let monotonic_minus_raw_ns = monotonic_minus_raw_ns();
    json(StatusCode::OK, &TimeAnswer { received_ns, replied_ns: raw_ns(), monotonic_minus_raw_ns })
}

/// Ends a run. A run that has ended by itself needs no request, so there is no error without one.
async fn kill(
    State(state): State<Arc<ServerState>>,
    Extension(key): Extension<Fingerprint>,
    Path(id): Path<String>,
) -> Response {
    let run = state.runs.as_ref().and_then(|runs| runs.find(&id, key));
    if let (Some(run), Some(runs)) = (run, &state.runs) {
        run.end("its controller has ended it".into());
        runs.remove(&id);
    }
    StatusCode::NO_CONTENT.into_response()
}
