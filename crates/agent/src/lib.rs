//! Controllers and agents on other hosts: keys, enrolment, mutual TLS, and the agent's HTTP server.
//!
//! A controller asks an agent to run one side of a test connection. Both authenticate with their own keys, over
//! TLS 1.3, and recognise each other by the [fingerprint](Fingerprint) of the key. There is no certificate authority:
//! certificates only carry keys, and their names and dates have no meaning.
//!
//! An agent prints a [join string](JoinString); the controller reads it and is enrolled with one request:
//!
//! ```
//! use jiff::{SignedDuration, Timestamp};
//! use trunkline_agent::enrol::EnrolRequest;
//! use trunkline_agent::{Admission, JoinString, KeyStore, TrustedKeys};
//!
//! # let folder = tempfile::tempdir()?;
//! # let now = Timestamp::now();
//! // The agent opens its key store and issues a join string.
//! let trusted = TrustedKeys::new(KeyStore::open(&folder.path().join("agent"))?)?;
//! let join = trusted.issue_join("lab7.example:7600".parse()?, SignedDuration::from_hours(1), now)?;
//! let printed = join.to_string();
//!
//! // The controller connects with the one-time key of the join string and enrols its own key.
//! let controller = KeyStore::open(&folder.path().join("controller"))?;
//! let join: JoinString = printed.parse()?;
//! let one_time_key = join.identity();
//! let request = EnrolRequest { name: "alice".parse()?, fingerprint: controller.identity()?.fingerprint() };
//!
//! // The agent receives the request over the connection with the one-time key.
//! trusted.enrol(one_time_key.fingerprint(), &request, now)?;
//! assert_eq!(trusted.admit(request.fingerprint, now), Ok(Admission::Controller("alice".parse()?)));
//! assert!(trusted.admit(one_time_key.fingerprint(), now).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`fingerprint`](mod@fingerprint) | the SHA-256 of a public key |
//! | [`identity`] | a private key with its certificate |
//! | [`address`] | host and port of an agent |
//! | [`peers`] | the list of peers: names, keys, expiry, revocation; no I/O |
//! | [`key_store`] | the directory with the own key and the list of peers |
//! | [`join`] | the join string |
//! | [`enrol`] | the state of an enrolment at the agent; no I/O |
//! | [`trust`] | which keys an agent accepts now |
//! | [`tls`] | TLS configurations of both sides, and their errors |
//! | [`server`] | the agent's HTTP server |
//! | [`server::runs`] | the runs of an agent |
//! | [`join_socket`] | how a running agent gives another join string to its owner |
//! | [`activation`] | the listening socket that systemd passes |
//! | [`client`] | the controller's requests |
//! | `connection` | a connection to an agent, over which requests are sent |
//! | [`request_error`] | why a request failed |
//! | [`remote`] | the controller's side of runs |
//! | [`time`] | exchanges of time |

#![allow(clippy::disallowed_methods, reason = "agents run in real time")]

pub mod activation;
pub mod address;
pub mod client;
mod connection;
pub mod enrol;
pub mod fingerprint;
pub mod identity;
pub mod join;
pub mod join_socket;
pub mod key_store;
pub mod peers;
pub mod remote;
pub mod request_error;
pub mod server;
pub mod time;
pub mod tls;
pub mod trust;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use address::Address;
pub use enrol::Enrolment;
pub use fingerprint::Fingerprint;
pub use identity::Identity;
pub use join::JoinString;
pub use key_store::KeyStore;
pub use peers::{Name, Peer, PeerList, Role};
pub use trust::{Admission, Refusal, RefusalCause, TrustedKeys};

/// Locks a mutex. The data under all locks of this crate is valid after a panic: every change is a single assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
