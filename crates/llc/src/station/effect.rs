//! Results of a received frame, and the optional checksum of messages.

use crc_fast::{CrcAlgorithm, checksum};

use super::answers::Acknowledgement;
use crate::api::Outcome;
use crate::wire::CRC;

/// Returns the optional checksum of a message.
#[inline]
pub(super) fn crc_of(message: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, message) as u32
}

/// Returns the message in an information field without its checksum, if `crc`; `None` if the checksum fails.
#[inline]
pub(super) fn checked(crc: bool, information: &[u8]) -> Option<&[u8]> {
    if !crc {
        return Some(information);
    }
    let (message, check) = information.split_last_chunk::<CRC>()?;
    (u32::from_be_bytes(*check) == crc_of(message)).then_some(message)
}

/// Direct result of a frame, besides stored state.
#[derive(Clone, Copy)]
pub(super) enum Effect {
    Nothing,
    /// The message in this slot has ended.
    Ends(u32, Outcome),
    /// A SAP has received a message.
    Comes(u8, Coming),
    /// An acknowledgement, and what its SAP has received.
    Answers(Acknowledgement, Coming),
}

/// Counts a frame that has no other effect.
#[inline(always)]
pub(super) fn ignored(counter: &mut u64) -> Effect {
    *counter += 1;
    Effect::Nothing
}

/// What a SAP has received.
#[derive(Clone, Copy)]
pub(super) enum Coming {
    /// Nothing, or a message behind queued ones.
    Nothing,
    /// The first message of an empty queue.
    First,
    /// A message of this length that is not queued because a reader [waits](super::Station::process_frame) for it.
    #[cfg_attr(not(any(feature = "sockets", test)), expect(dead_code, reason = "only there it is wanted"))]
    Handed(u16),
}
