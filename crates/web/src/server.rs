//! Who listens: connections, routes, headers of every answer.

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

use super::door::{Door, Token, Verdict};
use super::live::{self, Watch};
use super::pool::{Pool, READERS};
use super::query::{Query, Refused};
use super::{api, page};

/// Connections at the same time; more wait in the system's queue.
pub const MOST_CONNECTIONS: usize = 128;
/// Of them those that watch; more are refused.
pub const MOST_WATCHERS: usize = 32;
/// Most octets of a request's head.
const MOST_HEAD: usize = 16 * 1024;
/// How long a request's head may take, and a connection wait for the next one.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// How old a connection gets: who takes nothing of an answer holds no place for ever. Browsers connect again.
const LONGEST: Duration = Duration::from_secs(600);

/// Scripts, styles and answers come from here; nobody puts the page into a frame of theirs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What to serve, and to whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The archive of counters.
    pub archive: Location,
    /// Where to listen. Beyond loopback a token is needed.
    pub listen: SocketAddr,
    /// Opens the page.
    pub token: Option<Token>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Others could read everything.
    #[error("{0} can be reached by others: a token is needed")]
    Open(SocketAddr),
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {address}: {reason}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// The system refuses what every server needs.
    #[error("cannot serve: {0}")]
    System(std::io::Error),
}

/// A server that listens already.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: SocketAddr,
    house: Arc<House>,
    stop: Stop,
}

/// Ends a server, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// [`Server::run`] returns.
    pub fn stop(&self) {
        self.0.notify_one();
    }
}

/// What all connections share.
#[derive(Debug)]
struct House {
    door: Door,
    pool: Arc<Pool>,
    watchers: Arc<Semaphore>,
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;
type Reply = Response<Body>;

impl Server {
    /// Opens the archive and listens.
    pub fn bind(options: &Options) -> Result<Server, Error> {
        if !options.listen.ip().is_loopback() && options.token.is_none() {
            return Err(Error::Open(options.listen));
        }
        let pool = Arc::new(Pool::new(&options.archive)?);
        let refused = |reason| Error::Listen { address: options.listen, reason };
        let listener = Listener::bind(options.listen).map_err(refused)?;
        listener.set_nonblocking(true).map_err(Error::System)?;
        let address = listener.local_addr().map_err(Error::System)?;
        let door = Door { address: address.ip(), port: address.port(), token: options.token.clone() };
        let watchers = Arc::new(Semaphore::new(MOST_WATCHERS));
        let house = Arc::new(House { door, pool, watchers });
        Ok(Server { listener, address, house, stop: Stop::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What ends it.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped. What is under way then is broken off.
    pub fn run(self) -> Result<(), Error> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_io().enable_time().max_blocking_threads(READERS).build();
        let runtime = runtime.map_err(Error::System)?;
        let (house, listener, stop) = (self.house, self.listener, self.stop);
        let served = runtime.block_on(async {
            let listener = TcpListener::from_std(listener).map_err(Error::System)?;
            tokio::spawn(accept(listener, house));
            stop.0.notified().await;
            Ok(())
        });
        runtime.shutdown_background();
        served
    }
}

async fn accept(listener: TcpListener, house: Arc<House>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    while let Ok(place) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let house = house.clone();
                tokio::spawn(async move {
                    serve(stream, house).await;
                    drop(place);
                });
            }
            // Out of descriptors, mostly: some will be closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: TcpStream, house: Arc<House>) {
    let service = service_fn(|request: Request<Incoming>| {
        let house = house.clone();
        async move { Ok::<Reply, Infallible>(house.answer(&request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(MOST_HEAD);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    // Whoever breaks the connection off has their reasons.
    if timeout(LONGEST, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(HEAD_PATIENCE, connection).await;
    }
}

impl House {
    async fn answer<T>(&self, request: &Request<T>) -> Reply {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let said = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        let mut reply = match self.door.judge(request.headers(), said) {
            Verdict::Stranger => {
                refusal(StatusCode::MISDIRECTED_REQUEST, "this server is not called that: use localhost")
            }
            Verdict::Closed => refusal(StatusCode::UNAUTHORIZED, "a token is needed: open the link with it"),
            _ if is_foreign(request.headers()) && uri.path().starts_with("/api/") => {
                refusal(StatusCode::FORBIDDEN, "another site's page may not ask")
            }
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                refusal(StatusCode::METHOD_NOT_ALLOWED, "there is only something to read here")
            }
            Verdict::Exchange => self.exchange(uri.path()),
            Verdict::Welcome => self.route(uri.path(), query).await,
        };
        let headers = reply.headers_mut();
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
        reply
    }

    /// The token goes from the address, where others see it, into a cookie.
    fn exchange(&self, path: &str) -> Reply {
        let mut reply = plain(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
        let secret = self.door.token.as_ref().map_or("", Token::secret);
        let cookie =
            format!("{}={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=31536000", self.door.cookie());
        // Nothing else begins with one slash and is no place elsewhere.
        let known = page::ASSETS.iter().any(|asset| asset.path == path);
        let place = if known { path } else { "/" };
        for (name, value) in [(header::SET_COOKIE, cookie.as_str()), (header::LOCATION, place)] {
            if let Ok(value) = HeaderValue::from_str(value) {
                reply.headers_mut().insert(name, value);
            }
        }
        reply
    }

    async fn route(&self, path: &str, query: &str) -> Reply {
        if let Some(asset) = page::ASSETS.iter().find(|asset| asset.path == path) {
            return plain(StatusCode::OK, asset.media, Bytes::from_static(asset.text.as_bytes()));
        }
        if path == "/api/live" {
            return self.live(query).await.unwrap_or_else(|refused| refuse(&refused));
        }
        let Some((_, known, media, answer)) = api::QUESTIONS.iter().find(|(name, ..)| *name == path) else {
            return refusal(StatusCode::NOT_FOUND, "there is nothing here");
        };
        let answer = *answer;
        let answered = match Query::parse(query, known) {
            Ok(query) => self.pool.ask(move |asked| answer(asked, &query)).await,
            Err(refused) => Err(refused),
        };
        match answered {
            Ok(text) => plain(StatusCode::OK, media, text.into()),
            Err(refused) => refuse(&refused),
        }
    }

    async fn live(&self, query: &str) -> Result<Reply, Refused> {
        let series = Query::parse(query, &["series"])?.series()?;
        let place = self.watchers.clone().try_acquire_owned().map_err(|_| Refused::Busy)?;
        let watch = self.pool.ask(move |asked| Watch::new(asked, &series)).await?;
        let (sender, channel) = Channel::new(4);
        let pool = self.pool.clone();
        tokio::spawn(async move {
            live::tell(pool, watch, sender).await;
            drop(place);
        });
        let mut reply = Response::new(Either::Right(channel));
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        Ok(reply)
    }
}

/// Whether a browser says that a page of another site asks (W3C Fetch Metadata). It could not read the answer, but keep
/// the server busy.
fn is_foreign(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site")
}

fn plain(status: StatusCode, media: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Either::Left(Full::new(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    reply
}

/// One JSON error.
fn refusal(status: StatusCode, why: &str) -> Reply {
    plain(status, "application/json", serde_json::json!({ "error": why }).to_string().into())
}

fn refuse(refused: &Refused) -> Reply {
    let status = match refused {
        Refused::Bad(_) => StatusCode::BAD_REQUEST,
        Refused::None(_) => StatusCode::NOT_FOUND,
        Refused::Busy | Refused::Slow => StatusCode::SERVICE_UNAVAILABLE,
        Refused::Archive(_) | Refused::Lost => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refusal(status, &refused.to_string())
}
