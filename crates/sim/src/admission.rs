//! Links that admit connections: what each has admitted, and what is measured on it.

use std::collections::BTreeMap;

use trunkline_endpoint::Port;
use trunkline_experiment::plan::{self, Amount, NodeKind};
use trunkline_models::atm::CellFrame;
use trunkline_models::atm::admission::{Descriptor, Line, Method, Refused};
use trunkline_models::atm::cell::CELL;
use trunkline_units::{Instant, Rate, Size, Span};

use crate::network::Network;
use crate::network::topology::Topology;

/// Shortest time over which the rate of a line is measured.
const WINDOW: Span = Span::from_ms(100);

/// The admitted connections of all links with `admission`.
#[derive(Debug, Default)]
pub struct Admissions {
    /// By medium and port.
    lines: BTreeMap<(u32, u16), AdmittingLine>,
}

#[derive(Debug)]
struct AdmittingLine {
    name: String,
    method: Method,
    line: Line,
    /// What the flows declare, by number.
    admitted: BTreeMap<u32, Descriptor>,
    /// Bytes sent until the last measurement, and its time.
    measured: (u64, Instant),
    rate: Rate,
    /// Declared mean rates of the flows that were admitted since.
    unmeasured_bps: u64,
}

/// A connection that a link refuses.
#[derive(Debug, thiserror::Error)]
#[error("link {link} refuses it: {reason}")]
pub struct AdmissionError {
    link: String,
    reason: Refused,
}

impl Admissions {
    /// Finds the links that admit connections.
    pub fn new<F: CellFrame>(topology: &Topology<'_>, network: &Network<F>) -> Self {
        let mut lines = BTreeMap::new();
        for link in &topology.network.links {
            let method = match link.admission {
                plan::Admission::None => continue,
                plan::Admission::Peak => Method::Peak,
                plan::Admission::Equivalent => Method::Equivalent,
                plan::Admission::Measured => Method::Measured,
            };
            let Some(medium) = network.media.iter().position(|medium| medium.name == link.name) else {
                continue;
            };
            for (port, node) in [(0, &link.a), (1, &link.b)] {
                let line = Line {
                    capacity: link.payload,
                    buffer: buffer(topology, node, link),
                    loss: link.admission_loss,
                };
                lines.insert(
                    (medium as u32, port),
                    AdmittingLine {
                        name: link.name.clone(),
                        method,
                        line,
                        admitted: BTreeMap::new(),
                        measured: (0, Instant::ZERO),
                        rate: Rate::default(),
                        unmeasured_bps: 0,
                    },
                );
            }
        }
        Admissions { lines }
    }

    /// Returns whether no link admits connections.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Asks all links on the way of a flow. A connection that declares nothing needs the whole of a link. `sent` returns the
    /// bytes that a medium has sent from a port.
    ///
    /// # Errors
    /// The first link that refuses; then no link has admitted it.
    pub fn request(
        &mut self,
        now: Instant,
        flow: u32,
        path: &[(u32, Port)],
        declared: Option<plan::Declared>,
        sent: impl Fn(u32, Port) -> u64,
    ) -> Result<(), AdmissionError> {
        let hops: Vec<(u32, u16)> = path.iter().map(|(medium, port)| (*medium, port.0)).collect();
        for hop in &hops {
            let Some(admitting) = self.lines.get_mut(hop) else { continue };
            admitting.measure(now, sent(hop.0, Port(hop.1)));
            let descriptor = admitting.descriptor(declared);
            let others: Vec<Descriptor> = admitting.admitted.values().copied().collect();
            let measured = Rate::from_bps(admitting.rate.as_bps() + admitting.unmeasured_bps);
            let result = admitting.line.admit(admitting.method, &others, descriptor, measured);
            result.map_err(|reason| AdmissionError { link: admitting.name.clone(), reason })?;
        }
        for hop in &hops {
            if let Some(admitting) = self.lines.get_mut(hop) {
                let descriptor = admitting.descriptor(declared);
                admitting.unmeasured_bps += descriptor.mean.as_bps();
                admitting.admitted.insert(flow, descriptor);
            }
        }
        Ok(())
    }

    /// Forgets a flow that has ended.
    pub fn release(&mut self, flow: u32) {
        self.lines.values_mut().for_each(|line| _ = line.admitted.remove(&flow));
    }
}

impl AdmittingLine {
    fn descriptor(&self, declared: Option<plan::Declared>) -> Descriptor {
        match declared {
            Some(plan::Declared { peak, mean, burst }) => Descriptor { peak, mean, burst },
            None => Descriptor { peak: self.line.capacity, mean: self.line.capacity, burst: Span::ZERO },
        }
    }

    /// Measures the rate since the last measurement, if that is long enough ago.
    fn measure(&mut self, now: Instant, sent: u64) {
        let (sent_before, at) = self.measured;
        let time = now.since(at);
        if time >= WINDOW {
            self.rate = Rate::of(Size::from_bytes(sent - sent_before), time);
            (self.measured, self.unmeasured_bps) = ((sent, now), 0);
        }
    }
}

/// Returns the buffer of a node for a link; a host has none that counts.
fn buffer(topology: &Topology<'_>, node: &str, link: &plan::Link) -> Size {
    let kind = topology.node(node).map(|node| &topology.network.nodes[node].kind);
    Size::from_bytes(match kind {
        Some(NodeKind::Switch { buffer: Amount::Cells(cells), .. }) => cells.saturating_mul(u64::from(CELL)),
        Some(NodeKind::Switch { buffer: Amount::Bytes(bytes), .. }) => *bytes,
        Some(NodeKind::Switch { buffer: Amount::Packets(packets), .. }) => {
            packets.saturating_mul(link.mtu.as_bytes())
        }
        _ => 0,
    })
}
