//! The agent's HTTP server: one TLS port, JSON over HTTP/1.1.
//!
//! | request | who | answer |
//! | --- | --- | --- |
//! | `POST /v1/enrol` with an [`EnrolRequest`] | a client with the one-time key of a join string | 204; the connection closes |
//! | `/v1/runs` and below | an enrolled controller | see [`runs`] |
//! | `GET /v1/agent` | an enrolled controller | the program's version and the name under which the agent knows the controller |
//!
//! A key is checked in the handshake and again for each request, so that a revocation applies to open connections. An
//! error is `{"error": "…"}` with one line.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener as Listener};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::address::Address;
use crate::enrol::EnrolRequest;
use crate::fingerprint::Fingerprint;
use crate::join::{JoinError, JoinString};
use crate::key_store::{self, KeyStore};
use crate::runs::{self, RunOptions, Runs, supervise};
use crate::tls::{self, ServerError};
use crate::trust::{Admission, EnrolError, Refusal, TrustedKeys};

/// Maximum number of connections of admitted clients; more are closed.
pub const MAX_CONNECTIONS: usize = 64;
/// Maximum number of handshakes; more wait in the listen queue.
const MAX_HANDSHAKES: usize = 256;
/// Maximum number of handshakes of one source, an IPv4 address or an IPv6 network of 64 bits; more are closed. So one
/// source cannot keep others out.
const MAX_HANDSHAKES_PER_SOURCE: usize = 8;
/// Maximum length of a request's body in octets.
pub const MAX_BODY: usize = 64 << 10;
/// Maximum length of a request's header in octets.
const MAX_HEADER: usize = 16 << 10;
/// Time for a handshake, for a request's header, and for its body and answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time to read what a refused client has sent.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Octets read from a refused client, so that it receives the alert.
const MAX_DRAINED: u64 = 1 << 20;
/// Maximum age of a connection, so that idle clients free their places.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// Maximum number of lines in the log for each minute: anyone who reaches the port can cause one.
const MAX_LINES_PER_MINUTE: usize = 60;

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The address in join strings; by default the one that is listened on.
    pub address: Option<Address>,
    /// How long join strings are valid.
    pub join_lifetime: SignedDuration,
}

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key store cannot be used.
    #[error(transparent)]
    KeyStore(#[from] key_store::Error),
    /// The join string cannot be made.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Controllers cannot reach the address that is listened on, so the join string needs another.
    #[error("{0} is no address that a controller can connect to: give one with --address")]
    AddressRequired(SocketAddr),
    /// The address is in use or not local.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason given by the system.
        reason: std::io::Error,
    },
    /// An error of the operating system.
    #[error("cannot serve: {0}")]
    System(std::io::Error),
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the program.
    pub version: String,
    /// The name under which the agent knows the controller.
    pub controller: String,
}

/// Receives one line for each refused client and each enrolment.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A server that is bound to its address.
pub struct Server {
    listener: Listener,
    address: SocketAddr,
    options: Options,
    state: Arc<ServerState>,
    stop: StopHandle,
}

/// Stops a server from any thread.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<Notify>);

impl StopHandle {
    /// Makes [`Server::run`] return.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

/// The state shared by all connections.
pub(crate) struct ServerState {
    pub trusted: Arc<TrustedKeys>,
    pub log: LimitedLog,
    pub runs: Option<Runs>,
}

impl Server {
    /// Opens the key store and binds the address.
    pub fn bind(
        store: KeyStore,
        options: Options,
        runs: Option<RunOptions>,
        log: Log,
    ) -> Result<Server, Error> {
        let trusted = Arc::new(TrustedKeys::new(store)?);
        let error = |reason| Error::Listen { address: options.listen, reason };
        let listener = Listener::bind(options.listen).map_err(error)?;
        listener.set_nonblocking(true).map_err(Error::System)?;
        let address = listener.local_addr().map_err(Error::System)?;
        let state = Arc::new(ServerState { trusted, log: LimitedLog::new(log), runs: runs.map(Runs::new) });
        Ok(Server { listener, address, options, state, stop: StopHandle::default() })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Issues a join string.
    pub fn issue_join(&self) -> Result<JoinString, Error> {
        let address = match &self.options.address {
            Some(address) => address.clone(),
            None if self.address.ip().is_unspecified() => return Err(Error::AddressRequired(self.address)),
            // The text of a link-local address names an interface of this host.
            None => self.address.to_string().parse().map_err(|_| Error::AddressRequired(self.address))?,
        };
        Ok(self.state.trusted.issue_join(address, self.options.join_lifetime, Timestamp::now())?)
    }

    /// Returns a handle that stops the server.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Serves requests until the server is stopped. Requests in progress are aborted.
    pub fn run(self) -> Result<(), Error> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(4).build();
        let runtime = runtime.map_err(Error::System)?;
        let (state, listener, stop) = (self.state, self.listener, self.stop);
        let result = runtime.block_on(async {
            let listener = TcpListener::from_std(listener).map_err(Error::System)?;
            tokio::spawn(supervise(state.clone()));
            tokio::spawn(accept(listener, state.clone()));
            stop.0.notified().await;
            Ok(())
        });
        if let Some(runs) = &state.runs {
            runs.end_all("the agent was stopped");
        }
        runtime.shutdown_background();
        result
    }
}

async fn accept(listener: TcpListener, state: Arc<ServerState>) {
    let refusals = state.clone();
    let log: tls::RefusalLog = Arc::new(move |refusal: &Refusal| refusals.log.write(&refusal.to_string()));
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(state.trusted.clone(), log)));
    let router = router(state.clone());
    let (handshakes, sources) = (Arc::new(Semaphore::new(MAX_HANDSHAKES)), Sources::default());
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = handshakes.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, client)) => {
                let Some(source) = sources.enter(client.ip()) else {
                    state.log.write(&format!("{client}: too many handshakes from this source"));
                    continue;
                };
                let (acceptor, router, state) = (acceptor.clone(), router.clone(), state.clone());
                let connections = connections.clone();
                tokio::spawn(async move {
                    let stream = shake_hands(stream, acceptor).await;
                    drop((permit, source));
                    match (stream, connections.try_acquire()) {
                        (Ok((stream, key)), Ok(_slot)) => serve(stream, key, router).await,
                        (Ok(_), Err(_)) => state.log.write(&format!("{client}: too many connections")),
                        // The refusal has been logged with the key.
                        (Err(ServerError::Refused | ServerError::Connection(_)), _) => {}
                        (Err(error), _) => state.log.write(&format!("{client}: {error}")),
                    }
                });
            }
            // Usually the process is out of file descriptors; some will be closed.
            Err(error) => {
                state.log.write(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Number of handshakes of each source.
#[derive(Clone, Debug, Default)]
struct Sources(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A handshake that counts.
struct Entered {
    sources: Sources,
    source: IpAddr,
}

impl Sources {
    /// Counts a handshake until the returned value is dropped; `None` if the source has too many.
    fn enter(&self, client: IpAddr) -> Option<Entered> {
        let source = match client.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
            address => address,
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= MAX_HANDSHAKES_PER_SOURCE {
            return None;
        }
        *count += 1;
        Some(Entered { sources: self.clone(), source })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.sources.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: TlsAcceptor,
) -> Result<(TlsStream<TcpStream>, Fingerprint), ServerError> {
    let timed_out = || ServerError::Connection(std::io::ErrorKind::TimedOut);
    let handshake = timeout(TIMEOUT, acceptor.accept(stream).into_fallible()).await;
    match handshake.map_err(|_| timed_out())? {
        Ok(stream) => {
            let key = tls::peer_fingerprint(stream.get_ref().1).ok_or(ServerError::NoCertificate)?;
            Ok((stream, key))
        }
        Err((error, mut stream)) => {
            // Closing with unread data would reset the connection, and the alert could be lost.
            let drain = async {
                let _ = stream.shutdown().await;
                let _ = tokio::io::copy(&mut (&mut stream).take(MAX_DRAINED), &mut tokio::io::sink()).await;
            };
            let _ = timeout(DRAIN_TIMEOUT, drain).await;
            Err((&error).into())
        }
    }
}

async fn serve(stream: TlsStream<TcpStream>, key: Fingerprint, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(TIMEOUT).max_buf_size(MAX_HEADER);
    let service = TowerToHyperService::new(router.layer(Extension(key)));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Errors of the connection need no handling.
    if timeout(MAX_CONNECTION_AGE, connection.as_mut()).await.is_err() {
        // The request in progress may be for the events of a run, which has its own limit of time.
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

fn router(state: Arc<ServerState>) -> Router {
    let not_found = || async { error_response(StatusCode::NOT_FOUND, "not found") };
    Router::new()
        .route("/v1/enrol", post(enrol))
        .route("/v1/agent", get(describe))
        .merge(runs::router())
        .fallback(not_found)
        .layer(from_fn_with_state(state.clone(), admit))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

/// Decides on each request by the client's key.
async fn admit(
    State(state): State<Arc<ServerState>>,
    Extension(client): Extension<Fingerprint>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_enrolment = request.uri().path() == "/v1/enrol";
    let mut response = match state.trusted.admit(client, Timestamp::now()) {
        Ok(Admission::Enrolment) if !is_enrolment => {
            error_response(StatusCode::FORBIDDEN, "the one-time key permits only an enrolment")
        }
        Ok(Admission::Controller(_)) if is_enrolment => {
            error_response(StatusCode::CONFLICT, "this key is already enrolled")
        }
        Ok(admission) => {
            request.extensions_mut().insert(admission);
            let in_time = timeout(TIMEOUT, next.run(request)).await;
            let is_late = in_time.is_err();
            let mut response = in_time.unwrap_or_else(|_| {
                error_response(StatusCode::REQUEST_TIMEOUT, "the request did not arrive in time")
            });
            if is_enrolment || is_late {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
        Err(cause) => {
            state.log.write(&Refusal { fingerprint: client, cause }.to_string());
            error_response(StatusCode::FORBIDDEN, "the agent no longer accepts this key")
        }
    };
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn enrol(
    State(state): State<Arc<ServerState>>,
    Extension(client): Extension<Fingerprint>,
    body: Bytes,
) -> Response {
    let request: EnrolRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return error_response(StatusCode::BAD_REQUEST, &format!("not an enrolment: {error}")),
    };
    let stored = state.clone();
    // Waits for other processes that change the key store. The task ends, with its line, also if the client leaves.
    let result = tokio::task::spawn_blocking(move || {
        let result = stored.trusted.enrol(client, &request, Timestamp::now());
        let (name, key) = (&request.name, request.fingerprint);
        stored.log.write_always(&match &result {
            Ok(()) => format!("enrolled the controller `{name}` with the key {key}"),
            Err(error) => format!("did not enrol `{name}` with the key {key}: {error}"),
        });
        result
    });
    match result.await {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error @ EnrolError::KeyStore(_))) => error_response(StatusCode::CONFLICT, &error.to_string()),
        Ok(Err(error)) => error_response(StatusCode::FORBIDDEN, &error.to_string()),
        Err(_) => error_response(StatusCode::INTERNAL_SERVER_ERROR, "the enrolment failed"),
    }
}

async fn describe(Extension(admission): Extension<Admission>) -> Response {
    let Admission::Controller(name) = admission else { return StatusCode::FORBIDDEN.into_response() };
    let description =
        Description { version: env!("CARGO_PKG_VERSION").to_owned(), controller: name.to_string() };
    json(StatusCode::OK, &description)
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub(crate) fn error_response(status: StatusCode, reason: &str) -> Response {
    json(status, &serde_json::json!({ "error": reason }))
}

/// A log that drops lines when there are too many, and says so with the next line.
pub(crate) struct LimitedLog {
    log: Log,
    /// When the last lines were written, and how many were dropped since.
    recent: Mutex<(VecDeque<Instant>, u64)>,
}

impl LimitedLog {
    fn new(log: Log) -> LimitedLog {
        LimitedLog { log, recent: Mutex::default() }
    }

    /// Writes a line that only the owner of a trusted or one-time key can cause.
    pub fn write_always(&self, line: &str) {
        (self.log)(line);
    }

    /// Writes a line that anyone can cause.
    fn write(&self, line: &str) {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, dropped) = &mut *recent;
        while times.front().is_some_and(|time| now.duration_since(*time) >= Duration::from_secs(60)) {
            times.pop_front();
        }
        if times.len() >= MAX_LINES_PER_MINUTE {
            *dropped += 1;
            return;
        }
        times.push_back(now);
        if let dropped @ 1.. = std::mem::take(dropped) {
            (self.log)(&format!("{dropped} more lines were not logged"));
        }
        (self.log)(line);
    }
}
