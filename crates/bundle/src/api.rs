//! The interface of the three endpoints: configuration, commands, events and errors.
//!
//! Both formats share these types. [`Central`](crate::Central), [`Host`](crate::Host) and [`Level1`](crate::Level1) use them.

use thiserror::Error;
use trunkline_units::Span;

use crate::inbox::MessageInfo;
use crate::level::Medium;
use crate::settings::Settings;

/// The largest number of level-1 converters at one central converter.
pub const MAX_LEVEL1: usize = 6;

/// The configuration of a central converter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CentralConfig {
    /// Settings that all endpoints of the site share.
    pub settings: Settings,
    /// The numbers of the level-1 converters, at most [`MAX_LEVEL1`]. Messages whose packet address has no owner
    /// leave by the first.
    pub level1: Vec<u16>,
    /// The largest host number, 1 to 16. Format 1 (classic) only.
    pub hosts: u8,
    /// The medium between hosts and central converter.
    pub local: Medium,
    /// The medium between central converter and level 1.
    pub wide_area: Medium,
}

/// A command to the central converter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CentralCommand {
    /// The host with this number refused a bundle: removes its interest.
    HostRefused(u8),
    /// The level-1 converter with this number refused a bundle: refreshes its joins, since it may have restarted.
    Level1Refused(u16),
}

/// A command to a host.
#[derive(Debug)]
pub enum HostCommand<'a> {
    /// Sends a message.
    Send(OutgoingMessage<'a>),
    /// Joins a range of addresses. In format 1 (classic) each address needs a control message; addresses of a range
    /// that are already joined are skipped, a single address never. [`CommandError::Full`] means that part of the
    /// range was joined: repeat the command. A range that ends before it begins is [`CommandError::Range`].
    Join {
        /// The first address.
        first: u32,
        /// The last address.
        last: u32,
    },
    /// Leaves a range of addresses, as [`Join`](HostCommand::Join) joins it. If format 1 (classic) has none of the
    /// range joined, it repeats the leave of all of it soon, since the first one may have been lost.
    Drop {
        /// The first address.
        first: u32,
        /// The last address.
        last: u32,
    },
    /// Leaves all addresses. [`CommandError::Full`] means that some are left to do: call it again.
    DropAll,
    /// The central converter refused a bundle: refreshes all joins, since it may have restarted.
    CentralRefused,
    /// Limits the ordinary messages that the host receives, per second; `None` removes the limit. Format 2 only.
    Saturate(Option<u32>),
    /// Announces that the host closes. Format 2 only.
    Bye,
    /// Takes the oldest received message.
    Receive {
        /// Receives the body; its previous contents are discarded.
        into: &'a mut Vec<u8>,
        /// Receives the metadata, or `None` if no message waits.
        from: &'a mut Option<MessageInfo>,
    },
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingMessage<'a> {
    /// The message address, at most 65,535 in format 1 (classic).
    pub address: u32,
    /// Whether the message has priority. In format 1 (classic) it must agree with the address.
    pub priority: bool,
    /// The longest wait in each converter, of a priority message; `None` uses the settings. Format 1 (classic)
    /// applies it only in this host.
    pub max_wait: Option<Span>,
    /// The message without its address.
    pub body: &'a [u8],
}

impl<'a> OutgoingMessage<'a> {
    /// Returns a message without a deadline, whose address decides its priority.
    pub fn new(settings: &Settings, address: u32, body: &'a [u8]) -> OutgoingMessage<'a> {
        OutgoingMessage { address, priority: settings.is_priority(address), max_wait: None, body }
    }
}

/// An event of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// A message arrived in an empty inbox.
    Readable,
    /// The congestion level changed to this value, 3 (none) to 6.
    Level(u8),
}

/// The reason why a command is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CommandError {
    /// The message has the length of a control message. The value is that length.
    #[error(
        "a classic message of {0} octets with its address would be taken for control; send one octet more"
    )]
    Control(usize),
    /// The message does not fit into a bundle.
    #[error("the message does not fit into a bundle")]
    TooLong,
    /// The congestion level admits no more ordinary messages in this interval.
    #[error("the network is congested, at level {0} of 3 to 6")]
    Congested(u8),
    /// A queue or table has no room.
    #[error("the queue is full")]
    Full,
    /// The range of addresses ends before it begins.
    #[error("the range of addresses ends before it begins")]
    Range,
    /// The format lacks this address or command.
    #[error("the classic format does not support this")]
    Format,
}

/// The largest number of messages that wait for the wide-area port of a level-1 converter.
pub const MAX_WAITING_MESSAGES: usize = 4_096;
