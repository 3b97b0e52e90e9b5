//! What a station is asked, and what it tells.

use thiserror::Error;
use trunkline_units::{Instant, Span};

use crate::options::Options;
use crate::wire::{Address, CommandStatus, MAX_INFORMATION};

/// Names a message that was sent, to its sender. Never zero; used again after 2³² − 1 others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u32);

/// What a station is asked.
#[derive(Debug)]
pub enum Command<'a> {
    /// Opens a SAP: even, 2 to 254.
    Open {
        /// Which.
        sap: u8,
        /// How it behaves.
        options: &'a Options,
    },
    /// Changes how a SAP behaves. What waits already keeps its priority and tries.
    Configure {
        /// Which.
        sap: u8,
        /// How it behaves from now on.
        options: &'a Options,
    },
    /// Closes a SAP. What waits in it is dropped; nothing is told of it.
    Close {
        /// Which.
        sap: u8,
    },
    /// Sends a message, acknowledged or not as the SAP's options say. To a group, a broadcast or the global SAP only
    /// unacknowledged.
    Send {
        /// From which SAP.
        sap: u8,
        /// To whom.
        to: Address,
        /// Copied.
        bytes: &'a [u8],
        /// Other than the options'.
        priority: Option<u8>,
        /// Set to what [`Event::Sent`] will say.
        ticket: &'a mut Ticket,
    },
    /// Takes the next message of a SAP, highest priority first.
    Take {
        /// Of which.
        sap: u8,
        /// Its bytes take the place of what is there.
        into: &'a mut Vec<u8>,
        /// Set if there was one.
        taken: &'a mut Option<Received>,
    },
    /// Asks a station or SAP to send these bytes back.
    Test {
        /// From which SAP.
        sap: u8,
        /// Whom; the null SAP asks the station.
        to: Address,
        /// What is to come back.
        bytes: &'a [u8],
    },
    /// Asks a station or SAP what it speaks.
    Identify {
        /// From which SAP.
        sap: u8,
        /// Whom.
        to: Address,
    },
    /// Gives up everything that waits to be sent (`LLCreset` 'x') or taken ('r').
    Reset {
        /// Of which.
        sap: u8,
        /// What is to be sent, told as [`Outcome::Reset`]; or what is to be taken.
        sending: bool,
    },
    /// Frames of what was just polled did not leave: those at its end. Datagrams among them are told as
    /// [`Outcome::Failed`]; what is acknowledged is as if it had been lost on its way. Comes before the next poll.
    Unsent {
        /// How many; no more than there were.
        frames: usize,
    },
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// From whom.
    pub from: Address,
    /// To which SAP it was sent: this one, a group, or everybody's.
    pub to: u8,
    /// With which priority.
    pub priority: u8,
    /// Whether its sender got an acknowledgement.
    pub acknowledged: bool,
    /// When it came.
    pub at: Instant,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It left (type 1), or was answered well (type 3).
    Done,
    /// Every try went unanswered.
    Unanswered,
    /// The peer answered that it cannot take it.
    Refused(CommandStatus),
    /// It took longer than it may.
    Late,
    /// The user gave it up.
    Reset,
    /// The interface or the system did not take it (type 1).
    Failed,
}

/// What a station tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message is there that can be taken, where there was none.
    Readable {
        /// Where.
        sap: u8,
    },
    /// A SAP that was full takes messages again.
    Writable {
        /// Which.
        sap: u8,
    },
    /// A message has come to its end.
    Sent {
        /// Of which SAP.
        sap: u8,
        /// Which.
        ticket: Ticket,
        /// What became of it.
        outcome: Outcome,
        /// How often it was sent; if it never could be, how often its station was asked which number it expects.
        tries: u16,
        /// From the call until now.
        took: Span,
    },
    /// A TEST came back.
    Tested {
        /// To which SAP.
        sap: u8,
        /// From whom.
        from: Address,
        /// Octets that came back.
        length: u16,
        /// Whether they are those of the last TEST sent from this SAP.
        intact: bool,
    },
    /// An XID was answered.
    Identified {
        /// To which SAP.
        sap: u8,
        /// From whom.
        from: Address,
        /// Whether it speaks type 1, 2 and 3.
        types: [bool; 3],
    },
}

/// Why a station refuses a command.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// No SAP that can be opened has this number.
    #[error("a SAP is even, 2 to 254")]
    Invalid,
    /// It is open.
    #[error("the SAP is open already")]
    Duplicate,
    /// As many are open as may be.
    #[error("no more SAPs may be open")]
    TooMany,
    /// It is not open.
    #[error("the SAP is not open")]
    Closed,
    /// As many messages wait as may.
    #[error("as many messages wait as may")]
    Full,
    /// A message, with its checksum, has more octets than a frame holds.
    #[error("a message has at most {MAX_INFORMATION} octets, its checksum among them")]
    TooLarge,
    /// Nobody acknowledges for a group; and no station has the number 0.
    #[error("no such destination, or none that can acknowledge")]
    Destination,
    /// A priority is 0 to 7, a group odd, there is at least one try, and a queue holds at least one message.
    #[error("the options make no sense")]
    Options,
}
