//! The HTTP server: connections, routes, response headers.

use std::net::{SocketAddr, TcpListener as Listener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use trunkline_counters::archive::{self, Location};

use super::access::{AccessControl, AccessDecision, Token};
use super::events::{self, Subscription};
use super::query::{ApiError, Query};
use super::readers::{MAX_READERS, Pool};
use super::{api, page};

/// Maximum number of connections; more wait in the listen queue.
pub const MAX_CONNECTIONS: usize = 128;
/// Maximum number of subscribers to events; more are refused.
pub const MAX_SUBSCRIBERS: usize = 32;
/// Maximum size of a request header in octets.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Timeout for a request header, and for an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum age of a connection, so that clients that do not read free their slot. Browsers reconnect.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);

/// All resources come from this server, and no other site may embed the page in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Options of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The archive of counters.
    pub archive: Location,
    /// The address to listen on. Addresses other than loopback require a token.
    pub listen: SocketAddr,
    /// The token for access.
    pub token: Option<Token>,
}

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not loopback and there is no token.
    #[error("{0} is reachable from other machines: a token is required")]
    TokenRequired(SocketAddr),
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] archive::Error),
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

/// A server that is bound to its address.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: SocketAddr,
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
#[derive(Debug)]
struct ServerState {
    access: AccessControl,
    pool: Arc<Pool>,
    subscriber_slots: Arc<Semaphore>,
}

impl Server {
    /// Opens the archive and binds the address.
    pub fn bind(options: &Options) -> Result<Server, Error> {
        if !options.listen.ip().is_loopback() && options.token.is_none() {
            return Err(Error::TokenRequired(options.listen));
        }
        let pool = Arc::new(Pool::new(&options.archive)?);
        let error = |reason| Error::Listen { address: options.listen, reason };
        let listener = Listener::bind(options.listen).map_err(error)?;
        listener.set_nonblocking(true).map_err(Error::System)?;
        let address = listener.local_addr().map_err(Error::System)?;
        let access =
            AccessControl { address: address.ip(), port: address.port(), token: options.token.clone() };
        let subscriber_slots = Arc::new(Semaphore::new(MAX_SUBSCRIBERS));
        let state = Arc::new(ServerState { access, pool, subscriber_slots });
        Ok(Server { listener, address, state, stop: StopHandle::default() })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a handle that stops the server.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Serves requests until the server is stopped. Requests in progress are aborted.
    pub fn run(self) -> Result<(), Error> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(MAX_READERS).build();
        let runtime = runtime.map_err(Error::System)?;
        let (state, listener, stop) = (self.state, self.listener, self.stop);
        let result = runtime.block_on(async {
            let listener = TcpListener::from_std(listener).map_err(Error::System)?;
            tokio::spawn(accept(listener, router(state)));
            stop.0.notified().await;
            Ok(())
        });
        runtime.shutdown_background();
        result
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    serve(stream, router).await;
                    drop(slot);
                });
            }
            // Usually the process is out of file descriptors; some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream, router: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)));
    // Errors of the connection need no handling.
    if timeout(MAX_CONNECTION_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(HEADER_TIMEOUT, connection).await;
    }
}

fn router(state: Arc<ServerState>) -> Router {
    let mut router = Router::new().route("/api/live", get(live));
    for (path, media, text) in page::ASSETS {
        router = router.route(path, get(([(header::CONTENT_TYPE, *media)], *text)));
    }
    for (path, known, media, answer) in api::ROUTES {
        let handler = move |State(state): State<Arc<ServerState>>, RawQuery(query)| async move {
            let query = Query::parse(query.as_deref().unwrap_or_default(), known)?;
            let body = state.pool.run(move |context| answer(context, &query)).await?;
            Ok::<_, ApiError>(([(header::CONTENT_TYPE, *media)], body))
        };
        router = router.route(path, get(handler));
    }
    let not_found = || async { error_response(StatusCode::NOT_FOUND, "not found") };
    let guard = from_fn_with_state(state.clone(), guard);
    router.fallback(not_found).layer(guard).with_state(state)
}

/// Checks the access of a request, and adds the headers of every response.
async fn guard(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let uri = request.uri();
    let token = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("token="));
    let mut response = match state.access.check(request.headers(), token) {
        AccessDecision::WrongHost => {
            error_response(StatusCode::MISDIRECTED_REQUEST, "unknown host name: use localhost")
        }
        AccessDecision::TokenRequired => {
            error_response(StatusCode::UNAUTHORIZED, "a token is required: open the link that contains it")
        }
        _ if is_cross_site(request.headers()) && uri.path().starts_with("/api/") => {
            error_response(StatusCode::FORBIDDEN, "requests from other sites are not allowed")
        }
        _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            error_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported")
        }
        AccessDecision::SetCookie => state.set_token_cookie(uri.path()),
        AccessDecision::Allow => next.run(request).await,
    };
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

impl ServerState {
    /// Redirects to the URL without the token and stores the token in a cookie.
    fn set_token_cookie(&self, path: &str) -> Response {
        let secret = self.access.token.as_ref().map_or("", Token::secret);
        let cookie =
            format!("{}={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000", self.access.cookie());
        // Redirect only to known paths, never to another site.
        let is_asset = page::ASSETS.iter().any(|(known, ..)| *known == path);
        let location = if is_asset { path } else { "/" }.to_owned();
        (StatusCode::SEE_OTHER, [(header::SET_COOKIE, cookie), (header::LOCATION, location)]).into_response()
    }
}

/// Subscribes to the new readings of series.
async fn live(
    State(state): State<Arc<ServerState>>,
    RawQuery(query): RawQuery,
) -> Result<impl IntoResponse, ApiError> {
    let series = Query::parse(query.as_deref().unwrap_or_default(), &["series"])?.series()?;
    let slot = state.subscriber_slots.clone().try_acquire_owned().map_err(|_| ApiError::Overloaded)?;
    let subscription = state.pool.run(move |context| Subscription::new(context, &series)).await?;
    Ok(events::respond(state.pool.clone(), subscription, slot))
}

/// Returns whether the browser reports a request by another site (W3C Fetch Metadata). Such a page could not read the
/// answer, but it could keep the server busy.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

/// Creates an error response in JSON.
fn error_response(status: StatusCode, why: &str) -> Response {
    let body = serde_json::json!({ "error": why }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self {
            ApiError::InvalidRequest(_) => StatusCode::BAD_REQUEST,
            ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::Overloaded | ApiError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Archive(_) | ApiError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error_response(status, &self.to_string())
    }
}
