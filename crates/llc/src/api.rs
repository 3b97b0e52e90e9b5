//! Commands and events of a station.

use thiserror::Error;
use trunkline_units::{Instant, Span};

use crate::options::Options;
use crate::wire::{Address, CommandStatus, MAX_INFORMATION};

/// Identifies a sent message. Never zero; reused after 2³² − 1 others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// Commands.
#[derive(Debug)]
pub enum Command<'a> {
    /// Opens a SAP: even, 2 to 254.
    Open {
        /// The SAP.
        sap: u8,
        /// Its options.
        options: &'a Options,
    },
    /// Changes the options of a SAP. Queued messages keep their priority and tries.
    Configure {
        /// The SAP.
        sap: u8,
        /// Its new options.
        options: &'a Options,
    },
    /// Closes a SAP. Queued messages are dropped without events.
    Close {
        /// The SAP.
        sap: u8,
    },
    /// Sends a message, acknowledged or not according to the SAP's options. Groups, broadcasts and the global SAP
    /// accept only unacknowledged messages.
    Send {
        /// Source SAP.
        sap: u8,
        /// Destination.
        to: Address,
        /// Content; copied.
        bytes: &'a [u8],
        /// Priority, if it differs from the SAP's options.
        priority: Option<u8>,
        /// Set to the ticket of the later [`Event::Sent`].
        ticket: &'a mut Ticket,
    },
    /// Takes the next message of a SAP, highest priority first.
    Take {
        /// The SAP.
        sap: u8,
        /// Replaced by the content.
        into: &'a mut Vec<u8>,
        /// Set if a message was queued.
        taken: &'a mut Option<Received>,
    },
    /// Asks a station or SAP to send these bytes back.
    Test {
        /// Source SAP.
        sap: u8,
        /// Destination; the null SAP addresses the station itself.
        to: Address,
        /// Content to be returned.
        bytes: &'a [u8],
    },
    /// Asks a station or SAP for its supported types (XID).
    Identify {
        /// Source SAP.
        sap: u8,
        /// Destination.
        to: Address,
    },
    /// Discards all messages queued for sending (`LLCreset` 'x') or receiving ('r').
    Reset {
        /// The SAP.
        sap: u8,
        /// Sending queue, reported as [`Outcome::Reset`]; else the receive queue.
        sending: bool,
    },
    /// Reports that the last frames of the previous poll were not sent. Datagrams among them end as
    /// [`Outcome::Failed`]; acknowledged messages behave as if lost. Comes before the next poll.
    Unsent {
        /// Number of frames; no more than were polled.
        frames: usize,
    },
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Source.
    pub from: Address,
    /// Destination SAP: this one, a group, or the global SAP.
    pub to: u8,
    /// Priority.
    pub priority: u8,
    /// Whether it was acknowledged.
    pub acknowledged: bool,
    /// Time of arrival.
    pub at: Instant,
}

/// Outcome of a sent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Sent (type 1), or acknowledged (type 3).
    Done,
    /// No try was answered.
    Unanswered,
    /// The peer refused it.
    Refused(CommandStatus),
    /// Its time limit passed.
    Late,
    /// Discarded by the user.
    Reset,
    /// The interface or the system refused it (type 1).
    Failed,
}

/// Events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An empty receive queue has become readable.
    Readable {
        /// The SAP.
        sap: u8,
    },
    /// A full send queue has space again.
    Writable {
        /// The SAP.
        sap: u8,
    },
    /// A sent message has ended.
    Sent {
        /// The SAP.
        sap: u8,
        /// The SAP.
        ticket: Ticket,
        /// Its outcome.
        outcome: Outcome,
        /// Number of transmissions; if it was never sent, of sequence resynchronizations.
        tries: u16,
        /// Time since the send call.
        took: Span,
    },
    /// A TEST response arrived.
    Tested {
        /// The SAP that asked.
        sap: u8,
        /// Source.
        from: Address,
        /// Octets returned.
        length: u16,
        /// Whether they equal the last TEST sent from this SAP.
        intact: bool,
    },
    /// An XID response arrived.
    Identified {
        /// The SAP that asked.
        sap: u8,
        /// Source.
        from: Address,
        /// Whether it supports types 1, 2 and 3.
        types: [bool; 3],
    },
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Invalid SAP number.
    #[error("a SAP is even, 2 to 254")]
    Invalid,
    /// The SAP is already open.
    #[error("the SAP is open already")]
    Duplicate,
    /// The maximum number of SAPs is open.
    #[error("no more SAPs may be open")]
    TooMany,
    /// The SAP is not open.
    #[error("the SAP is not open")]
    Closed,
    /// The send queue is full.
    #[error("as many messages wait as may")]
    Full,
    /// The message with its checksum exceeds a frame.
    #[error("a message has at most {MAX_INFORMATION} octets, its checksum among them")]
    TooLarge,
    /// A group cannot acknowledge; station number 0 is invalid.
    #[error("no such destination, or none that can acknowledge")]
    Destination,
    /// A priority is 0 to 7, a group odd, there is at least one try, and a queue holds at least one message.
    #[error("the options make no sense")]
    Options,
}
