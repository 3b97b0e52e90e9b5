//! The controller's requests to an agent.

use std::io;
use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;
use tokio::time::timeout;

use crate::address::Address;
use crate::connection::Connection;
use crate::enrol::EnrolRequest;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::join::{JoinError, JoinString};
use crate::key_store::{self, KeyStore};
use crate::peers::{Name, Peer};
use crate::server::Description;
use crate::tls::ClientError;

/// Time for a request, with its connection.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a request to an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The join string is of no use.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The own key store cannot be used.
    #[error(transparent)]
    KeyStore(#[from] key_store::Error),
    /// No connection, or one of the keys is refused.
    #[error("{0}: {1}")]
    Connect(Address, ClientError),
    /// No answer in time.
    #[error("{0} does not answer")]
    Silent(Address),
    /// The connection ended.
    #[error("{0} has closed the connection")]
    Lost(Address),
    /// The agent has ended the run.
    #[error("{0} has ended the run: {1}")]
    Ended(Address, String),
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

/// Enrols the own key at the agent of a join string and adds the agent to the key store as `name`. The agent knows this
/// controller as `own_name`. Returns what the agent says of itself.
pub fn enrol(
    store: &KeyStore,
    join: &JoinString,
    name: Name,
    own_name: Name,
    now: Timestamp,
) -> Result<Description, Error> {
    join.check(now)?;
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
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// Asks an agent to describe itself.
pub fn describe(address: &Address, agent: Fingerprint, identity: &Identity) -> Result<Description, Error> {
    let answer = send(address, agent, identity, Method::GET, "/v1/agent", Vec::new())?;
    serde_json::from_slice(&answer)
        .map_err(|error| Error::Answer(address.clone(), one_line(&error.to_string())))
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
    let answer = async {
        let mut connection = Connection::open(address, agent, identity).await?;
        connection.exchange(method, path, body, TIMEOUT).await
    };
    let result = runtime.block_on(async { timeout(TIMEOUT, answer).await });
    // A name that does not resolve in time must not delay the end.
    runtime.shutdown_background();
    result.map_err(|_| Error::Silent(address.clone()))?
}

/// Returns the printable part of a text from another host.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(300).collect()
}
