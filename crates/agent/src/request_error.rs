//! Why a request to an agent failed.

use std::io;

use jiff::Timestamp;

use crate::address::Address;
use crate::join::JoinError;
use crate::key_store;
use crate::tls::ClientError;

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

/// Returns the printable part of a text from another host.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(300).collect()
}
