//! Frames that can be cut into cells.

use trunkline_endpoint::Frame;

use crate::atm::Train;

/// A frame that is a packet, a cell, or a train of cells. It knows its packet: only the last cell carries it, and so
/// does a train.
///
/// A packet is what an adapter's station sends and is given. Between bare ports there are only cells and trains.
pub trait CellFrame: Frame {
    /// A cell of 53 bytes without payload, `index` (from 0) of the `count` cells of this packet, with the packet's
    /// channel, destination and priority. Never the last.
    #[must_use]
    fn cell(&self, index: u16, count: u16) -> Self;

    /// The last cell, also of 53 bytes: the packet itself goes with it.
    #[must_use]
    fn last_cell(self, index: u16, count: u16) -> Self;

    /// If it is a cell: its index, and how many the packet has.
    fn as_cell(&self) -> Option<(u16, u16)>;

    /// What all cells of a packet share and those of the packets around it do not: a number of the packet. It stands
    /// for AAL5's CRC-32, which finds out that cells of two packets were put together.
    fn serial(&self) -> u32;

    /// The packet that this last cell carries; a packet stays what it is.
    #[must_use]
    fn into_packet(self) -> Self;

    /// All cells of this packet as a train.
    #[must_use]
    fn into_train(self, train: Box<Train>) -> Self;

    /// If it is a train: takes the train out of it, which leaves the packet.
    fn take_train(&mut self) -> Option<Box<Train>>;
}
