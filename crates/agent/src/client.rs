//! The controller's requests to an agent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::enrol::EnrolRequest;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::join::{JoinError, JoinString};
use crate::key_store::{self, KeyStore};
use crate::peers::{Name, Peer};
use crate::server::Description;
use crate::tls::{self, ClientError};

/// Time to resolve a host name, and for a request after its connection is open.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect to one address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of addresses of a host to try.
const MAX_ADDRESSES: usize = 8;
/// Maximum number of characters of an agent's version.
const MAX_VERSION: usize = 64;
/// Maximum length of an answer in octets.
const MAX_ANSWER: usize = 64 << 10;

/// Why a request to an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The join string is of no use.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The own key store cannot be used.
    #[error(transparent)]
    KeyStore(#[from] key_store::Error),
    /// The agent refuses the join string, and it has expired by this host's clock.
    #[error(
        "{address} refuses the join string, which expired at {expires}; the clock of this host is {now}: \
         get a new one from the agent"
    )]
    Expired {
        /// The address of the agent.
        address: Address,
        /// When it expired, by the agent's clock.
        expires: Timestamp,
        /// The time by this host's clock.
        now: Timestamp,
    },
    /// The host name has no address.
    #[error("{0}: the host name cannot be resolved: {1}")]
    Resolve(Address, String),
    /// No connection, or one of the keys is refused.
    #[error("{0}: {1}")]
    Connect(Address, ClientError),
    /// No answer in time.
    #[error("{0} does not answer")]
    Silent(Address),
    /// The agent refuses the request.
    #[error("{0} refuses: {1}")]
    Refused(Address, String),
    /// The answer is not one of an agent.
    #[error("{0} does not answer as an agent: {1}")]
    Answer(Address, String),
    /// An error of the operating system.
    #[error("cannot run: {0}")]
    System(io::Error),
}

impl Error {
    /// Returns whether the agent may have done what was requested.
    fn may_follow_success(&self) -> bool {
        matches!(
            self,
            Error::Silent(_)
                | Error::Answer(..)
                | Error::Connect(_, ClientError::Refused | ClientError::Connection(_))
        )
    }
}

/// Returns the name of this host as a name of a controller.
pub fn host_name() -> Option<Name> {
    let name = nix::unistd::gethostname().ok()?;
    Name::similar_to(&name.to_string_lossy())
}

/// Enrols the own key at the agent of a join string and adds the agent to the key store as `name`. The agent knows this
/// controller as `own_name`. Returns what the agent says of itself.
///
/// Only the agent decides whether the join string has expired, because the clock of this host may be wrong.
pub fn enrol(
    store: &KeyStore,
    join: &JoinString,
    name: Name,
    own_name: Name,
    now: Timestamp,
) -> Result<Description, Error> {
    let identity = store.identity()?;
    let request = EnrolRequest { name: own_name, fingerprint: identity.fingerprint() };
    let body = serde_json::to_vec(&request).expect("a name and a key");
    let (address, agent) = (join.address(), join.agent());
    let peer = Peer::agent(name, agent, address.clone(), now);
    // The join string has one use: find out before whether the agent can be added.
    store.peers()?.add(peer.clone(), now).map_err(key_store::Error::from)?;
    match send(address, agent, &join.identity(), Method::POST, "/v1/enrol", body) {
        Ok(_) => {
            store.add(peer, now)?;
            describe(address, agent, &identity)
        }
        // The answer to a successful enrolment may have been lost.
        Err(error) if error.may_follow_success() => match describe(address, agent, &identity) {
            Ok(description) if description.controller == request.name.to_string() => {
                store.add(peer, now)?;
                Ok(description)
            }
            _ if matches!(error, Error::Connect(_, ClientError::Refused)) && join.check(now).is_err() => {
                Err(Error::Expired {
                    address: address.clone(),
                    expires: join.expires(),
                    now: whole_seconds(now),
                })
            }
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Asks an agent to describe itself.
pub fn describe(address: &Address, agent: Fingerprint, identity: &Identity) -> Result<Description, Error> {
    let answer = send(address, agent, identity, Method::GET, "/v1/agent", Vec::new())?;
    parse_description(&answer).map_err(|reason| Error::Answer(address.clone(), one_line(&reason)))
}

/// Parses what an agent says of itself. Its texts are shown to the user, so they may contain only plain characters.
fn parse_description(text: &[u8]) -> Result<Description, String> {
    let description: Description = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    description.controller.parse::<Name>().map_err(|error| error.to_string())?;
    let version = &description.version;
    let is_plain = version.bytes().all(|c| c.is_ascii_graphic());
    if version.is_empty() || version.len() > MAX_VERSION || !is_plain {
        return Err("invalid version".into());
    }
    Ok(description)
}

/// Sends one request over its own connection; returns the body of the answer.
fn send(
    address: &Address,
    agent: Fingerprint,
    identity: &Identity,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_io().enable_time().build().map_err(Error::System)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "trunkline.invalid")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .expect("a valid request");
    let answer = async {
        let stream = connect(address).await?;
        let in_time = timeout(TIMEOUT, exchange(stream, address, agent, identity, request)).await;
        in_time.map_err(|_| Error::Silent(address.clone()))?
    };
    let result = runtime.block_on(answer);
    // A name that does not resolve in time must not delay the end.
    runtime.shutdown_background();
    let (status, bytes) = result?;
    if status.is_success() {
        return Ok(bytes);
    }
    let value = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
    let reason = value.as_ref().and_then(|value| value.get("error")?.as_str()).unwrap_or(status.as_str());
    Err(Error::Refused(address.clone(), one_line(reason)))
}

/// Returns the printable part of a text from another host.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(300).collect()
}

/// Connects to the first address of a host that accepts.
async fn connect(address: &Address) -> Result<TcpStream, Error> {
    let failed = |reason: &str| Error::Resolve(address.clone(), one_line(reason));
    let found = timeout(TIMEOUT, lookup_host((address.host(), address.port()))).await;
    let found = found.map_err(|_| failed("no answer in time"))?.map_err(|error| {
        let reason = error.to_string();
        failed(reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason))
    })?;
    connect_to_any(&in_turn(found.collect()), address).await
}

/// Orders addresses so that the IP versions alternate (RFC 8305, section 4).
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let pairs = std::iter::from_fn(|| {
        let pair = [first.next(), second.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().take(MAX_ADDRESSES).collect()
}

async fn connect_to_any(addresses: &[SocketAddr], host: &Address) -> Result<TcpStream, Error> {
    let mut failure = None;
    for address in addresses {
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            // The first error that says more than silence is reported.
            Ok(Err(error)) => failure = failure.or(Some(Error::Connect(host.clone(), (&error).into()))),
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(|| Error::Silent(host.clone())))
}

async fn exchange(
    stream: TcpStream,
    address: &Address,
    agent: Fingerprint,
    identity: &Identity,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Vec<u8>), Error> {
    let failed = |error: &io::Error| Error::Connect(address.clone(), error.into());
    let wrong = |error: &dyn std::fmt::Display| Error::Answer(address.clone(), one_line(&error.to_string()));
    let connector = TlsConnector::from(Arc::new(tls::client_config(identity, agent)));
    let stream = connector.connect(tls::server_name(), stream).await.map_err(|e| failed(&e))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| wrong(&error))?;
    let connection = tokio::spawn(connection);
    let answer = match sender.send_request(request).await {
        Ok(answer) => answer,
        // In TLS 1.3 the refusal of the own key arrives after the handshake: it is the connection's error.
        Err(error) => {
            let lost = connection.await.ok().and_then(Result::err).unwrap_or(error);
            let cause = std::error::Error::source(&lost).and_then(|cause| cause.downcast_ref::<io::Error>());
            return Err(cause.map_or_else(|| wrong(&lost), failed));
        }
    };
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| wrong(&error))?;
    Ok((status, body.to_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        runtime.unwrap().block_on(test)
    }

    #[test]
    fn ip_versions_alternate() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        for (given, expected) in [
            (&["[::1]:1", "[::2]:1", "1.1.1.1:1"][..], &["[::1]:1", "1.1.1.1:1", "[::2]:1"][..]),
            (&["1.1.1.1:1", "1.1.1.2:1", "[::1]:1"], &["1.1.1.1:1", "[::1]:1", "1.1.1.2:1"]),
            (&["1.1.1.1:1"], &["1.1.1.1:1"]),
            (&[], &[]),
        ] {
            assert_eq!(in_turn(addresses(given)), addresses(expected));
        }
        assert_eq!(in_turn(addresses(&["1.1.1.1:1"; 20])).len(), MAX_ADDRESSES);
    }

    #[test]
    fn a_silent_address_does_not_hide_the_next() {
        run(async {
            // The queue of this listener is full, so the kernel drops further requests to connect.
            let silent = TcpSocket::new_v4().unwrap();
            silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let silent = silent.listen(0).unwrap();
            let full = silent.local_addr().unwrap();
            let _queued = TcpStream::connect(full).await.unwrap();
            let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let host: Address = "lab7:1".parse().unwrap();
            let addresses = [full, open.local_addr().unwrap()];
            let stream = connect_to_any(&addresses, &host).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
            assert!(matches!(connect_to_any(&addresses[..1], &host).await, Err(Error::Silent(_))));
        });
    }

    #[test]
    fn an_unknown_host_is_reported() {
        let address: Address = "no-such-host.invalid:1".parse().unwrap();
        let error = run(connect(&address)).unwrap_err();
        assert!(matches!(&error, Error::Resolve(..)), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("no-such-host.invalid:1: the host name cannot be resolved: "), "{text}");
        assert!(!text.contains("failed to lookup"), "{text}");
    }

    #[test]
    fn descriptions_are_checked() {
        let good = r#"{"version":"0.1.0","controller":"alice"}"#;
        assert_eq!(parse_description(good.as_bytes()).unwrap().controller, "alice");
        let long = "9".repeat(MAX_VERSION + 1);
        for (from, to) in [
            ("alice", "al ice"),
            ("alice", "\\u001b[2J"),
            ("alice", ""),
            ("0.1.0", ""),
            ("0.1.0", "0.1\\n"),
            ("0.1.0", "\u{202e}1"),
            ("0.1.0", &long),
            ("version", "release"),
        ] {
            let text = good.replace(from, to);
            assert!(parse_description(text.as_bytes()).is_err(), "{text}");
        }
    }
}
