//! Frames that can be segmented into cells.

use trunkline_endpoint::Frame;

use crate::atm::Train;

/// A frame that is a packet, a cell, or a train of cells. Only the last cell and a train carry their packet.
///
/// Adapters exchange packets with their station. Between switch ports there are only cells and trains.
pub trait CellFrame: Frame {
    /// A cell of 53 bytes without payload, `index` (from 0) of the `count` cells of this packet, with the packet's
    /// channel, destination and priority. Never the last.
    #[must_use]
    fn cell(&self, index: u16, count: u16) -> Self;

    /// Creates the last cell of 53 bytes, which carries the packet.
    #[must_use]
    fn last_cell(self, index: u16, count: u16) -> Self;

    /// Returns a cell's index and the number of cells of its packet; `None` for other frames.
    fn as_cell(&self) -> Option<(u16, u16)>;

    /// Returns a number of the packet, shared by its cells and distinct from neighbouring packets. It stands for
    /// AAL5's CRC-32, which detects mixed packets.
    fn serial(&self) -> u32;

    /// Returns the packet of a last cell; a packet is returned unchanged.
    #[must_use]
    fn into_packet(self) -> Self;

    /// Converts a packet to a train of all its cells.
    #[must_use]
    fn into_train(self, train: Box<Train>) -> Self;

    /// Takes the train out of a frame, which leaves the packet; `None` for other frames.
    fn take_train(&mut self) -> Option<Box<Train>>;
}
