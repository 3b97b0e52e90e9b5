//! The controller's requests to an agent.

use std::time::Duration;

use hyper::Method;
use jiff::Timestamp;

use crate::address::Address;
use crate::connection::Connection;
use crate::enrol::EnrolRequest;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::join::JoinString;
use crate::key_store::{self, KeyStore};
use crate::peers::{Name, Peer};
pub use crate::request_error::Error;
use crate::request_error::one_line;
use crate::server::Description;
use crate::tls::ClientError;

/// Time for a request after its connection is open.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of characters of an agent's version.
const MAX_VERSION: usize = 64;

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
    let answer = async {
        let mut connection = Connection::open(address, agent, identity).await?;
        connection.exchange(method, path, body, TIMEOUT).await
    };
    let result = runtime.block_on(answer);
    // A name that does not resolve in time must not delay the end.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

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
