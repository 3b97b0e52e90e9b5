//! The agent's HTTP server: one TLS port, JSON over HTTP/1.1.
//!
//! | request | who | answer |
//! | --- | --- | --- |
//! | `POST /v1/enrol` with an [`EnrolRequest`] | a client with the one-time key of a join string | 204; the connection closes |
//! | `/v1/runs` and below | an enrolled controller | see [`runs`] |
//! | `GET /v1/agent` | an enrolled controller | the program's version and the name under which the agent knows the controller |
//!
//! A key is checked in the handshake and again for each request, so that a revocation applies to open connections. An
//! error is `{"error": "…"}` with one line, and one line in the log.

mod counts;
mod log;
pub mod runs;

use std::future::poll_fn;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener as Listener};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
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
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use self::counts::Counts;
use self::log::LimitedLog;
pub use self::log::Log;
use self::runs::{RunOptions, Runs, supervise};
use crate::address::Address;
use crate::enrol::EnrolRequest;
use crate::fingerprint::Fingerprint;
use crate::join::{JoinError, JoinString};
use crate::key_store::{self, KeyStore};
use crate::tls::{self, ServerError};
use crate::trust::{Admission, EnrolError, Refusal, TrustedKeys};

/// Maximum number of connections of admitted clients; more are closed.
pub const MAX_CONNECTIONS: usize = 64;
/// Maximum number of connections with one key; more are closed. So one controller cannot keep others out.
pub const MAX_CONNECTIONS_PER_KEY: usize = 32;
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
pub const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The address in join strings; by default the one that is listened on.
    pub address: Option<Address>,
    /// How long join strings are valid.
    pub join_lifetime: SignedDuration,
    /// Maximum age of connections without a run, so that idle clients free their slots: [`MAX_CONNECTION_AGE`].
    pub connection_age: Duration,
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
    /// The task that accepts connections has failed.
    #[error("the server has ended because of an internal error")]
    Internal,
}

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// The version of the program.
    pub version: String,
    /// The name under which the agent knows the controller.
    pub controller: String,
}

/// A server that is bound to its address.
pub struct Server {
    listener: Listener,
    joins: JoinIssuer,
    state: Arc<ServerState>,
    stop: StopHandle,
}

/// Issues join strings of a server, from any thread.
#[derive(Clone, Debug)]
pub struct JoinIssuer {
    trusted: Arc<TrustedKeys>,
    listen: SocketAddr,
    address: Option<Address>,
    lifetime: SignedDuration,
}

impl JoinIssuer {
    /// Issues a join string. The one before becomes void.
    pub fn issue(&self) -> Result<JoinString, Error> {
        let address = match &self.address {
            Some(address) => address.clone(),
            None if self.listen.ip().is_unspecified() => return Err(Error::AddressRequired(self.listen)),
            // The text of a link-local address names an interface of this host.
            None => self.listen.to_string().parse().map_err(|_| Error::AddressRequired(self.listen))?,
        };
        Ok(self.trusted.issue_join(address, self.lifetime, Timestamp::now())?)
    }
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
    connection_age: Duration,
}

tokio::task_local! {
    /// The client of the connection that a task serves.
    static CLIENT: SocketAddr;
}

impl ServerState {
    /// Writes a line about the client of this task, which anyone can cause.
    fn log(&self, line: &str) {
        self.log.write(&with_client(line));
    }
}

/// Returns the line with the address of the client of this task.
fn with_client(line: &str) -> String {
    CLIENT.try_with(|client| format!("{client}: {line}")).unwrap_or_else(|_| line.to_owned())
}

impl Server {
    /// Opens the key store and binds the address.
    pub fn bind(
        store: KeyStore,
        options: Options,
        runs: Option<RunOptions>,
        log: Log,
    ) -> Result<Server, Error> {
        let error = |reason| Error::Listen { address: options.listen, reason };
        let listener = Listener::bind(options.listen).map_err(error)?;
        Server::from_listener(listener, store, options, runs, log)
    }

    /// Opens the key store and uses a socket that listens already, in place of the address in the options.
    pub fn from_listener(
        listener: Listener,
        store: KeyStore,
        options: Options,
        runs: Option<RunOptions>,
        log: Log,
    ) -> Result<Server, Error> {
        let trusted = Arc::new(TrustedKeys::new(store)?);
        listener.set_nonblocking(true).map_err(Error::System)?;
        let listen = listener.local_addr().map_err(Error::System)?;
        let Options { address, join_lifetime: lifetime, connection_age, .. } = options;
        let joins = JoinIssuer { trusted: trusted.clone(), listen, address, lifetime };
        let state = Arc::new(ServerState {
            trusted,
            log: LimitedLog::new(log),
            runs: runs.map(Runs::new),
            connection_age,
        });
        Ok(Server { listener, joins, state, stop: StopHandle::default() })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.joins.listen
    }

    /// Returns the fingerprint of the server's key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.state.trusted.identity().fingerprint()
    }

    /// Issues a join string.
    pub fn issue_join(&self) -> Result<JoinString, Error> {
        self.joins.issue()
    }

    /// Returns what issues join strings while the server runs.
    pub fn join_issuer(&self) -> JoinIssuer {
        self.joins.clone()
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
            let (mut accepting, mut stopped) =
                (tokio::spawn(accept(listener, state.clone())), pin!(stop.0.notified()));
            poll_fn(|context| match stopped.as_mut().poll(context) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => pin!(&mut accepting).poll(context).map(|_| Err(Error::Internal)),
            })
            .await
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
    let log: tls::RefusalLog = Arc::new(move |refusal: &Refusal| refusals.log(&refusal.to_string()));
    let acceptor = TlsAcceptor::from(Arc::new(tls::server_config(state.trusted.clone(), log)));
    let router = router(state.clone());
    let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
    let sources = Counts::new(MAX_HANDSHAKES_PER_SOURCE);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let keys = Counts::new(MAX_CONNECTIONS_PER_KEY);
    while let Ok(permit) = handshakes.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, client)) => {
                let Some(counted) = sources.enter(source(client.ip())) else {
                    state.log.write(&format!("{client}: too many handshakes from this source"));
                    continue;
                };
                let (acceptor, router, state) = (acceptor.clone(), router.clone(), state.clone());
                let (connections, keys) = (connections.clone(), keys.clone());
                let connection = async move {
                    let handshake = shake_hands(stream, acceptor, state.clone()).await;
                    drop((permit, counted));
                    let (stream, key) = match handshake {
                        Ok(authenticated) => authenticated,
                        // The refusal has been logged with the key.
                        Err(ServerError::Refused | ServerError::Connection(_)) => return,
                        Err(error) => return state.log(&error.to_string()),
                    };
                    match (connections.try_acquire(), keys.enter(key)) {
                        (Ok(_slot), Some(_counted)) => serve(stream, key, router, state).await,
                        (Err(_), _) => state.log("too many connections"),
                        (_, None) => state.log(&format!("too many connections with the key {key}")),
                    }
                };
                tokio::spawn(CLIENT.scope(client, connection));
            }
            // Usually the process is out of file descriptors; some will be closed.
            Err(error) => {
                state.log.write(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Returns the source of a client: an IPv4 address, or an IPv6 network of 64 bits.
fn source(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

async fn shake_hands(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    state: Arc<ServerState>,
) -> Result<(TlsStream<TcpStream>, Fingerprint), ServerError> {
    let timed_out = || ServerError::Connection(std::io::ErrorKind::TimedOut);
    let handshake = async {
        // The decision about the key is within the handshake and must not block.
        let _ = spawn_blocking(move || state.trusted.refresh(Timestamp::now())).await;
        acceptor.accept(stream).into_fallible().await
    };
    let handshake = timeout(TIMEOUT, handshake).await;
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

async fn serve(stream: TlsStream<TcpStream>, key: Fingerprint, router: Router, state: Arc<ServerState>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(TIMEOUT).max_buf_size(MAX_HEADER);
    let service = TowerToHyperService::new(router.layer(Extension(key)));
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    loop {
        match timeout(state.connection_age, connection.as_mut()).await {
            Ok(Err(error)) if error.is_parse() => state.log(&format!("no valid HTTP request: {error}")),
            // Other errors of the connection need no handling.
            Ok(_) => {}
            // A run keeps its connections, which may be idle for long; it has its own limit of time.
            Err(_) if state.runs.as_ref().is_some_and(|runs| runs.has_run_of(key)) => continue,
            Err(_) => {
                connection.as_mut().graceful_shutdown();
                let _ = timeout(TIMEOUT, connection).await;
            }
        }
        return;
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

/// Decides on each request by the client's key, and logs refusals and errors.
async fn admit(
    State(state): State<Arc<ServerState>>,
    Extension(client): Extension<Fingerprint>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_enrolment = request.uri().path() == "/v1/enrol";
    let trusted = state.clone();
    let admission = spawn_blocking(move || trusted.trusted.admit(client, Timestamp::now())).await;
    let requester = match &admission {
        Ok(Ok(Admission::Controller(name))) => format!("`{name}`"),
        _ => "the owner of a join string".into(),
    };
    let (mut response, is_last) = match admission {
        Ok(Ok(Admission::Enrolment)) if !is_enrolment => {
            (error_response(StatusCode::FORBIDDEN, "the one-time key permits only an enrolment"), true)
        }
        Ok(Ok(Admission::Controller(_))) if is_enrolment => {
            (error_response(StatusCode::CONFLICT, "this key is already enrolled"), true)
        }
        Ok(Ok(_)) if request.body().size_hint().lower() > max_body(request.uri().path()) => {
            let reason = format!("the body is longer than {} octets", max_body(request.uri().path()));
            (error_response(StatusCode::PAYLOAD_TOO_LARGE, &reason), true)
        }
        Ok(Ok(admission)) => {
            request.extensions_mut().insert(admission);
            match timeout(TIMEOUT, next.run(request)).await {
                Ok(response) => (with_json_error(response), is_enrolment),
                Err(_) => {
                    let reason = "the request did not arrive in time";
                    (error_response(StatusCode::REQUEST_TIMEOUT, reason), true)
                }
            }
        }
        Ok(Err(cause)) => {
            state.log(&Refusal { fingerprint: client, cause }.to_string());
            let reason = "the agent no longer accepts this key";
            (logged(error_response(StatusCode::FORBIDDEN, reason)), true)
        }
        Err(_) => (error_response(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"), true),
    };
    if let Some(Reason(reason)) = response.extensions().get() {
        state.log(&format!("refused a request of {requester}: {}: {reason}", response.status().as_u16()));
    }
    if is_last {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the maximum length of a request's body.
fn max_body(path: &str) -> u64 {
    if runs::has_messages(path) { runs::MAX_MESSAGES as u64 } else { MAX_BODY as u64 }
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
    let (stored, owner) = (state.clone(), with_client(""));
    // Waits for other processes that change the key store. The task ends, with its line, also if the client leaves.
    let result = spawn_blocking(move || {
        let result = stored.trusted.enrol(client, &request, Timestamp::now());
        let (name, key) = (&request.name, request.fingerprint);
        stored.log.write_always(&match &result {
            Ok(()) => format!("{owner}enrolled the controller `{name}` with the key {key}"),
            Err(error) => format!("{owner}did not enrol `{name}` with the key {key}: {error}"),
        });
        result
    });
    let (status, reason) = match result.await {
        Ok(Ok(())) => return StatusCode::NO_CONTENT.into_response(),
        Ok(Err(error @ EnrolError::KeyStore(_))) => (StatusCode::CONFLICT, error.to_string()),
        Ok(Err(error)) => (StatusCode::FORBIDDEN, error.to_string()),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the enrolment failed".into()),
    };
    logged(error_response(status, &reason))
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

/// Why a request failed, in the extensions of a response that is not logged yet.
#[derive(Clone)]
struct Reason(String);

pub(crate) fn error_response(status: StatusCode, reason: &str) -> Response {
    let mut response = json(status, &serde_json::json!({ "error": reason }));
    response.extensions_mut().insert(Reason(reason.into()));
    response
}

/// Returns a response that needs no further line in the log.
fn logged(mut response: Response) -> Response {
    response.extensions_mut().remove::<Reason>();
    response
}

/// Gives an error of the HTTP library, such as a wrong method, the body of all errors.
fn with_json_error(response: Response) -> Response {
    let (status, headers) = (response.status(), response.headers());
    let is_error = status.is_client_error() || status.is_server_error();
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_error || is_json {
        return response;
    }
    let allow = headers.get(header::ALLOW).cloned();
    let mut response = error_response(status, &status.canonical_reason().unwrap_or("error").to_lowercase());
    if let Some(methods) = allow {
        response.headers_mut().insert(header::ALLOW, methods);
    }
    response
}
