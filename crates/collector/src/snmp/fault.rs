//! What can be wrong with an agent or on the way.

use std::fmt;

use async_snmp::{Error, ErrorStatus};

/// Why a poll brought nothing, or not all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No datagram came.
    #[error("no answer")]
    Silent,
    /// Only datagrams came that are no SNMP.
    #[error("no answer that can be read")]
    Garbage,
    /// Only datagrams came that answer nothing that was asked: from elsewhere, with another number, too late.
    #[error("no answer to what was asked: what came is from elsewhere, of another request or too late")]
    Stray,
    /// The agent says that it cannot or will not (RFC 3416, section 3).
    #[error("the agent refuses: {0}")]
    Status(String),
    /// Not even one value fits what the agent may send.
    #[error("the agent finds one value too big")]
    TooBig,
    /// Keys, user, engine or time are not right (RFC 3414, section 3.2).
    #[error("security: {0}")]
    Security(String),
    /// Objects come in no increasing order: a walk would never end.
    #[error("objects below {0} come in no increasing order")]
    Order(String),
    /// A table has more rows than are taken.
    #[error("more than {0} rows; the others are left out")]
    Rows(usize),
    /// A period was over before all was told.
    #[error("not all was told within a period")]
    Slow,
    /// The uptime went back between two answers of a poll.
    #[error("the agent began anew while it was polled")]
    Restarted,
    /// Nothing could be sent.
    #[error("cannot ask: {0}")]
    Network(String),
}

impl Fault {
    /// Its name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Silent => "silent",
            Fault::Garbage => "garbage",
            Fault::Stray => "stray",
            Fault::Status(_) => "status",
            Fault::TooBig => "too-big",
            Fault::Security(_) => "security",
            Fault::Order(_) => "order",
            Fault::Rows(_) => "rows",
            Fault::Slow => "slow",
            Fault::Restarted => "restarted",
            Fault::Network(_) => "network",
        }
    }

    /// What an error of the crate below means; none if it is that time was over.
    pub(super) fn of(error: &Error) -> Option<Fault> {
        Some(match error {
            Error::Timeout { .. } | Error::ConstructionTimeout { .. } => return None,
            Error::Exchange { source, .. } => return Fault::of(source),
            Error::SharedOperation { source } => return Fault::of(source),
            Error::Snmp { status: ErrorStatus::TooBig, .. } | Error::OutboundMessageTooLarge { .. } => {
                Fault::TooBig
            }
            Error::Snmp { status, .. } => Fault::Status(plain(status)),
            Error::Report { status, .. } => Fault::Security(plain(status)),
            Error::Auth { .. } => Fault::Security("the answer is not authentic".into()),
            Error::Privacy(_) => Fault::Security(plain(error)),
            Error::Decode(_) | Error::MalformedResponse { .. } | Error::ResponseShape { .. } => {
                Fault::Garbage
            }
            Error::Network { source, .. } => Fault::Network(source.to_string()),
            other => Fault::Network(plain(other)),
        })
    }
}

/// At most a line of what an agent may have had a word in.
fn plain(text: &impl fmt::Display) -> String {
    text.to_string().chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
