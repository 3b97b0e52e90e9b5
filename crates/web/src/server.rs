//! The HTTP server: connections, routes, response headers.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as Listener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
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

type Body = Either<Full<Bytes>, Channel<Bytes>>;
type Reply = Response<Body>;

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
            tokio::spawn(accept(listener, state));
            stop.0.notified().await;
            Ok(())
        });
        runtime.shutdown_background();
        result
    }
}

async fn accept(listener: TcpListener, state: Arc<ServerState>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(slot) = slots.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    serve(stream, state).await;
                    drop(slot);
                });
            }
            // Usually the process is out of file descriptors; some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream, state: Arc<ServerState>) {
    let service = service_fn(|request: Request<Incoming>| {
        let state = state.clone();
        async move { Ok::<Reply, Infallible>(state.respond(&request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER_BYTES);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Errors of the connection need no handling.
    if timeout(MAX_CONNECTION_AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(HEADER_TIMEOUT, connection).await;
    }
}

impl ServerState {
    async fn respond<T>(&self, request: &Request<T>) -> Reply {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let token = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        let mut reply = match self.access.check(request.headers(), token) {
            AccessDecision::WrongHost => {
                error_response(StatusCode::MISDIRECTED_REQUEST, "unknown host name: use localhost")
            }
            AccessDecision::TokenRequired => error_response(
                StatusCode::UNAUTHORIZED,
                "a token is required: open the link that contains it",
            ),
            _ if is_cross_site(request.headers()) && uri.path().starts_with("/api/") => {
                error_response(StatusCode::FORBIDDEN, "requests from other sites are not allowed")
            }
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                error_response(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported")
            }
            AccessDecision::SetCookie => self.set_token_cookie(uri.path()),
            AccessDecision::Allow => self.route(uri.path(), query).await,
        };
        let headers = reply.headers_mut();
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
        reply
    }

    /// Redirects to the URL without the token and stores the token in a cookie.
    fn set_token_cookie(&self, path: &str) -> Reply {
        let mut reply = response(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
        let secret = self.access.token.as_ref().map_or("", Token::secret);
        let cookie =
            format!("{}={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000", self.access.cookie());
        // Redirect only to known paths, never to another site.
        let known = page::ASSETS.iter().any(|asset| asset.path == path);
        let slot = if known { path } else { "/" };
        for (name, value) in [(header::SET_COOKIE, cookie.as_str()), (header::LOCATION, slot)] {
            if let Ok(value) = HeaderValue::from_str(value) {
                reply.headers_mut().insert(name, value);
            }
        }
        reply
    }

    async fn route(&self, path: &str, query: &str) -> Reply {
        if let Some(asset) = page::ASSETS.iter().find(|asset| asset.path == path) {
            return response(StatusCode::OK, asset.content_type, Bytes::from_static(asset.body.as_bytes()));
        }
        if path == "/api/live" {
            return self.live(query).await.unwrap_or_else(|error| api_error_response(&error));
        }
        let Some((_, known, media, answer)) = api::ROUTES.iter().find(|(name, ..)| *name == path) else {
            return error_response(StatusCode::NOT_FOUND, "not found");
        };
        let answer = *answer;
        let answered = match Query::parse(query, known) {
            Ok(query) => self.pool.run(move |context| answer(context, &query)).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(text) => response(StatusCode::OK, media, text.into()),
            Err(error) => api_error_response(&error),
        }
    }

    async fn live(&self, query: &str) -> Result<Reply, ApiError> {
        let series = Query::parse(query, &["series"])?.series()?;
        let slot = self.subscriber_slots.clone().try_acquire_owned().map_err(|_| ApiError::Overloaded)?;
        let subscription = self.pool.run(move |context| Subscription::new(context, &series)).await?;
        let (sender, channel) = Channel::new(4);
        let pool = self.pool.clone();
        tokio::spawn(async move {
            events::send_events(pool, subscription, sender).await;
            drop(slot);
        });
        let mut reply = Response::new(Either::Right(channel));
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(reply)
    }
}

/// Returns whether the browser reports a request by another site (W3C Fetch Metadata). Such a page could not read the
/// answer, but it could keep the server busy.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

fn response(status: StatusCode, media: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Either::Left(Full::new(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    reply
}

/// Creates an error response in JSON.
fn error_response(status: StatusCode, why: &str) -> Reply {
    response(status, "application/json", serde_json::json!({ "error": why }).to_string().into())
}

fn api_error_response(error: &ApiError) -> Reply {
    let status = match error {
        ApiError::InvalidRequest(_) => StatusCode::BAD_REQUEST,
        ApiError::NotFound(_) => StatusCode::NOT_FOUND,
        ApiError::Overloaded | ApiError::Timeout => StatusCode::SERVICE_UNAVAILABLE,
        ApiError::Archive(_) | ApiError::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error_response(status, &error.to_string())
}
