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
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::address::Address;
use crate::client::{Error, one_line};
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::tls;

/// Maximum length of an answer in octets.
const MAX_ANSWER: usize = 64 << 10;

/// An open connection.
pub(crate) struct Connection {
    address: Address,
    sender: SendRequest<Full<Bytes>>,
    /// Ends with the connection's error.
    driver: JoinHandle<Result<(), hyper::Error>>,
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
        let failed = |error: &io::Error| Error::Connect(address.clone(), error.into());
        let stream = TcpStream::connect((address.host(), address.port())).await.map_err(|e| failed(&e))?;
        // Requests are small and must not wait for each other.
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        let ends = stream.local_addr().and_then(|own| Ok((own, stream.peer_addr()?)));
        let ends = ends.map_err(|e| failed(&e))?;
        let connector = TlsConnector::from(Arc::new(tls::client_config(identity, agent)));
        let stream = connector.connect(tls::server_name(), stream).await.map_err(|e| failed(&e))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Error::Answer(address.clone(), one_line(&error.to_string())))?;
        Ok(Connection { address: address.clone(), sender, driver: tokio::spawn(connection), ends })
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
        let sent = match self.sender.ready().await {
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
                    None => Error::Answer(self.address.clone(), one_line(&lost.to_string())),
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
    let body = body.map_err(|error| Error::Answer(address.clone(), one_line(&error.to_string())))?;
    check(address, status, &body.to_bytes())
}

fn check(address: &Address, status: StatusCode, body: &Bytes) -> Result<Vec<u8>, Error> {
    if status.is_success() {
        return Ok(body.to_vec());
    }
    let value = serde_json::from_slice::<serde_json::Value>(body).ok();
    let reason = value.as_ref().and_then(|value| value.get("error")?.as_str()).unwrap_or(status.as_str());
    Err(Error::Refused(address.clone(), one_line(reason)))
}
