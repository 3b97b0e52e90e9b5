//! The explicit queue of a port of cells: a discipline, shaper, policer, trace or changes.

use trunkline_endpoint::{Bound, Capacity, LossCause, MediumCounters};
use trunkline_units::Instant;

use crate::atm::CellFrame;
use crate::atm::aal5::{self, Reassembly};
use crate::atm::cell::{CELL, Encapsulation, MAX_CELLS, MAX_PACKET, PAYLOAD, TRAILER};
use crate::atm::config::{Config, End};
use crate::atm::pacing::{Pacing, PacingUnit};
use crate::media::queue::port::{PortQueue, SentCell};
use crate::media::queue::{QueueCounters, QueueOptions};
use crate::media::{Framing, LineOptions, Segmentation};

/// What the explicit queue of a switch port contains; that of an adapter contains packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueUnit {
    /// Single cells, in order of arrival.
    Cells,
    /// Packets of this encapsulation. The port collects the cells of each channel, checks them as an adapter does, and queues
    /// the packet when its last cell has arrived, as switches that merge virtual channels do (Widjaja and Elwalid 1999).
    Packets(Encapsulation),
}

/// A cell of 53 bytes as a frame.
const SINGLE_CELL: Segmentation = Segmentation { overhead: 0, payload: CELL, unit: CELL, paced: CELL };

/// The queue of a port whose departures are not known when frames arrive. The discipline works on packets, or on cells; the line
/// always sends cells.
#[derive(Clone, Debug)]
pub(crate) struct CellPort<F> {
    pub(crate) queue: PortQueue<F>,
    pub(crate) segmentation: Segmentation,
    /// Whether it is the port of an adapter.
    is_adapter: bool,
    /// Packets that arrive at a switch port which queues packets.
    collected: Option<Reassembly>,
}

impl<F: CellFrame> CellPort<F> {
    /// Creates the empty queue of a port. An adapter has no pacing in slots.
    pub(crate) fn new(config: &Config, port: usize, unit: QueueUnit, options: QueueOptions) -> Self {
        let (bound, encapsulation, pacing) = match (config.ends[port], unit) {
            (End::Adapter { pacing, queue, encapsulation }, _) => (queue, Some(encapsulation), pacing),
            (End::SwitchPort { queue }, QueueUnit::Cells) => (queue, None, Pacing::None),
            (End::SwitchPort { queue }, QueueUnit::Packets(encapsulation)) => {
                // The bound counts cells.
                let capacity = match queue.capacity {
                    Capacity::Frames(cells) => Capacity::Bytes(cells.saturating_mul(CELL.into())),
                    other => other,
                };
                (Bound { capacity, ..queue }, Some(encapsulation), Pacing::None)
            }
        };
        let (pacing, paced) = match pacing {
            Pacing::Rate { rate, unit: PacingUnit::Payload } => (Some(rate), PAYLOAD),
            Pacing::Rate { rate, unit: PacingUnit::Cells } => (Some(rate), CELL),
            Pacing::None | Pacing::Slots { .. } => (None, CELL),
        };
        let segmentation = encapsulation.map_or(SINGLE_CELL, |encapsulation| Segmentation {
            overhead: encapsulation.bytes() + TRAILER,
            payload: PAYLOAD,
            unit: CELL,
            paced,
        });
        let line = LineOptions {
            rate: config.payload,
            framing: Framing::NONE,
            delay: config.delay,
            bound,
            pacing,
            impairments: config.impairments[port],
            queue: None,
        };
        let is_adapter = matches!(config.ends[port], End::Adapter { .. });
        CellPort {
            queue: PortQueue::with_cells(&line, options, Some(segmentation)),
            segmentation,
            is_adapter,
            collected: (!is_adapter && encapsulation.is_some()).then(Reassembly::default),
        }
    }

    /// Queues a packet, or takes a cell. Dropped frames are in [`PortQueue::dropped`].
    pub(crate) fn send(&mut self, now: Instant, frame: F, counters: &mut MediumCounters) {
        let (frame, cause, cells) = match (self.is_adapter, frame.as_cell()) {
            (true, None) => match self.carries(frame.length()) {
                true => return self.queue.send(now, frame, counters),
                false => (frame, LossCause::TooLong, 1),
            },
            (false, Some((index, count))) => match &mut self.collected {
                None => return self.queue.send(now, frame, counters),
                Some(collected) => {
                    let (channel, last) = (frame.channel(), index + 1 >= count);
                    let cell =
                        aal5::Cell { index, last, serial: frame.serial(), damaged: frame.is_damaged() };
                    let cells = u64::from(collected.cells(channel)) + 1;
                    match collected.add_cell(channel, &cell) {
                        None => return,
                        Some(true) => return self.queue.send(now, frame.into_packet(), counters),
                        Some(false) => (frame.into_packet(), LossCause::Incomplete, cells),
                    }
                }
            },
            // A kind of frame that the device cannot send.
            _ => (frame, LossCause::NoRoute, 1),
        };
        counters.other_losses += cells;
        self.queue.dropped.push((frame, cause));
    }

    /// Returns whether AAL5 can carry a packet.
    fn carries(&self, length: u32) -> bool {
        let with_header = length.saturating_add(self.segmentation.overhead - TRAILER);
        with_header <= MAX_PACKET && self.segmentation.cells(length) <= MAX_CELLS
    }

    /// Returns whether a packet of `length` bytes, or a cell at a switch port, fits.
    pub(crate) fn has_room(&self, length: u32) -> bool {
        // A byte is one cell at a switch port.
        self.queue.has_room(if self.is_adapter { length } else { 1 })
    }

    pub(crate) fn counters(&self) -> &QueueCounters {
        self.queue.counters()
    }
}

/// Returns the cells of a frame whose transmission has begun, with their transmissions.
pub(crate) fn cells_of<F: CellFrame>(frame: F, sent: &[SentCell]) -> impl Iterator<Item = (SentCell, F)> {
    let count = sent.len() as u16;
    let is_cell = frame.as_cell().is_some();
    let mut frame = Some(frame);
    sent.iter().zip(0..count).filter_map(move |(sent, index)| {
        let cell = match index + 1 < count {
            true => frame.as_ref()?.cell(index, count),
            false if is_cell => frame.take()?,
            false => frame.take()?.last_cell(index, count),
        };
        Some((*sent, cell))
    })
}
