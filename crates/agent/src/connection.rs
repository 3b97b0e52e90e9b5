//! A connection of a controller to an agent: HTTP/1.1 over mutual TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::request_error::{Error, one_line};
use crate::tls;

/// Maximum length of an answer in octets.
const MAX_ANSWER: usize = 64 << 10;
/// Time to resolve a host name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to connect to one address of a host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time to authenticate.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of addresses of a host to try.
const MAX_ADDRESSES: usize = 8;

/// An open connection.
pub(crate) struct Connection {
    address: Address,
    sender: SendRequest<Full<Bytes>>,
    /// Ends with the connection's error.
    driver: JoinHandle<Result<(), hyper::Error>>,
    /// Whether there was no request yet.
    is_new: bool,
    /// The own address and that of the agent.
    pub ends: (SocketAddr, SocketAddr),
}

impl Connection {
    /// Connects and authenticates both sides.
    pub async fn open(
        address: &Address,
        agent: Fingerprint,
        identity: &Identity,
    ) -> Result<Connection, Error> {
        let stream = connect(address).await?;
        timeout(HANDSHAKE_TIMEOUT, Connection::shake_hands(stream, address, agent, identity))
            .await
            .map_err(|_| Error::Silent(address.clone()))?
    }

    async fn shake_hands(
        stream: TcpStream,
        address: &Address,
        agent: Fingerprint,
        identity: &Identity,
    ) -> Result<Connection, Error> {
        let failed = |error: &io::Error| Error::Connect(address.clone(), error.into());
        // Requests are small and must not wait for each other.
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        let ends = stream.local_addr().and_then(|own| Ok((own, stream.peer_addr()?)));
        let ends = ends.map_err(|e| failed(&e))?;
        let connector = TlsConnector::from(Arc::new(tls::client_config(identity, agent)));
        let stream = connector.connect(tls::server_name(), stream).await.map_err(|e| failed(&e))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Error::Answer(address.clone(), one_line(&error.to_string())))?;
        Ok(Connection {
            address: address.clone(),
            sender,
            driver: tokio::spawn(connection),
            is_new: true,
            ends,
        })
    }

    /// Sends a request; returns the answer with its body unread.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>, Error> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "trunkline.invalid")
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .expect("a valid request");
        // The first request must not wait: a connection that is refused while it is idle has no error.
        let ready = if std::mem::take(&mut self.is_new) { Ok(()) } else { self.sender.ready().await };
        let sent = match ready {
            Ok(()) => self.sender.send_request(request).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(answer) => Ok(answer),
            // In TLS 1.3 the refusal of the own key arrives after the handshake: it is the connection's error.
            Err(error) => {
                let lost = (&mut self.driver).await.ok().and_then(Result::err).unwrap_or(error);
                let cause =
                    std::error::Error::source(&lost).and_then(|cause| cause.downcast_ref::<io::Error>());
                Err(match cause {
                    Some(cause) => Error::Connect(self.address.clone(), cause.into()),
                    None => broken(&self.address, &lost),
                })
            }
        }
    }

    /// Sends a request and reads the answer, in this time; returns its body if the agent agrees.
    pub async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<Vec<u8>, Error> {
        let address = self.address.clone();
        let answer = async {
            let answer = self.request(method, path, body).await?;
            read(&address, answer).await
        };
        timeout(limit, answer).await.map_err(|_| Error::Silent(address.clone()))?
    }
}

/// Reads an answer; returns its body if the agent agrees.
pub(crate) async fn read(address: &Address, answer: Response<Incoming>) -> Result<Vec<u8>, Error> {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => broken(address, &error),
        Err(error) => Error::Answer(address.clone(), one_line(&error.to_string())),
    })?;
    check(address, status, &body.to_bytes())
}

/// Returns the error of a connection that ended in a request or an answer.
pub(crate) fn broken(address: &Address, error: &hyper::Error) -> Error {
    if error.is_parse() || error.is_user() {
        return Error::Answer(address.clone(), one_line(&error.to_string()));
    }
    Error::Lost(address.clone())
}

fn check(address: &Address, status: StatusCode, body: &Bytes) -> Result<Vec<u8>, Error> {
    if status.is_success() {
        return Ok(body.to_vec());
    }
    let value = serde_json::from_slice::<serde_json::Value>(body).ok();
    let reason = value.as_ref().and_then(|value| value.get("error")?.as_str()).unwrap_or(status.as_str());
    Err(Error::Refused(address.clone(), one_line(reason)))
}

/// Connects to the first address of a host that accepts.
async fn connect(address: &Address) -> Result<TcpStream, Error> {
    let failed = |reason: &str| Error::Resolve(address.clone(), one_line(reason));
    let found = timeout(RESOLVE_TIMEOUT, lookup_host((address.host(), address.port()))).await;
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
}
