//! Faults of an agent or of the path to it.

use std::fmt;

use async_snmp::{Error, ErrorStatus};

/// Why a poll has no result, or an incomplete one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No datagram arrived.
    #[error("no answer")]
    Silent,
    /// All datagrams received were malformed.
    #[error("no valid answer: malformed datagrams received")]
    Garbage,
    /// All datagrams received had another source or request identifier, or were late.
    #[error("no valid answer: datagrams have another source or request identifier, or are late")]
    Stray,
    /// The agent returned an error status (RFC 3416, section 3).
    #[error("the agent refuses: {0}")]
    Status(String),
    /// Not even one value fits into a response of the agent.
    #[error("one value exceeds the maximum message size of the agent")]
    TooBig,
    /// Wrong keys, user, engine or time (RFC 3414, section 3.2).
    #[error("security: {0}")]
    Security(String),
    /// Object identifiers do not increase: a walk would never end.
    #[error("object identifiers below {0} do not increase")]
    Order(String),
    /// A table has more rows than the limit.
    #[error("more than {0} rows; the others are omitted")]
    Rows(usize),
    /// The period ended before the last answer.
    #[error("the period ended before the last answer")]
    Slow,
    /// The uptime decreased between two answers of a poll.
    #[error("the agent restarted during the poll")]
    Restarted,
    /// The request could not be sent.
    #[error("cannot send a request: {0}")]
    Network(String),
}

impl Fault {
    /// Returns the name of the fault in JSON.
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

    /// Converts an error of `async-snmp`; `None` for a timeout.
    pub(super) fn from_error(error: &Error) -> Option<Fault> {
        Some(match error {
            Error::Timeout { .. } | Error::ConstructionTimeout { .. } => return None,
            Error::Exchange { source, .. } => return Fault::from_error(source),
            Error::SharedOperation { source } => return Fault::from_error(source),
            Error::Snmp { status: ErrorStatus::TooBig, .. } | Error::OutboundMessageTooLarge { .. } => {
                Fault::TooBig
            }
            Error::Snmp { status, .. } => Fault::Status(one_line(status)),
            Error::Report { status, .. } => Fault::Security(one_line(status)),
            Error::Auth { .. } => Fault::Security("the answer is not authentic".into()),
            Error::Privacy(_) => Fault::Security(one_line(error)),
            Error::Decode(_) | Error::MalformedResponse { .. } | Error::ResponseShape { .. } => {
                Fault::Garbage
            }
            Error::Network { source, .. } => Fault::Network(source.to_string()),
            other => Fault::Network(one_line(other)),
        })
    }
}

/// Truncates a text that may contain octets from an agent to 200 characters without control characters.
fn one_line(text: &impl fmt::Display) -> String {
    text.to_string().chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
