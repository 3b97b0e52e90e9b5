//! What the media of a network have counted, as parts of a record.

use trunkline_endpoint::Port;
use trunkline_experiment::plan;
use trunkline_models::atm::{CellFrame, CreditLink};
use trunkline_models::media::queue::QueueCounters;
use trunkline_record::histogram::Histogram;
use trunkline_record::schema;
use trunkline_units::{Instant, Span};

use super::{Attachment, MediumNode, Network, queue};
use crate::medium::Medium;

/// Returns the links of the record: point-to-point links, and one entry per hub or ring.
pub fn link_records<F: CellFrame>(
    network: &Network<F>,
    plan: &plan::Network,
    end: Instant,
) -> Vec<schema::Link> {
    let duration = end.since(Instant::ZERO).as_s();
    let record = |medium_node: &MediumNode<F>| {
        let ports = || (0..medium_node.attachments.len() as u16).map(Port);
        let is_shared = matches!(medium_node.medium, Medium::Hub(_) | Medium::Ring(_));
        let mut link = schema::Link { name: medium_node.name.clone(), ..schema::Link::default() };
        let (mut dropped_queue, mut lost_line, mut damaged) = (0, 0, 0);
        for counters in ports().map(|port| medium_node.medium.counters(port)) {
            let busy = if duration > 0.0 { counters.busy.as_s() / duration } else { 0.0 };
            link.utilization =
                if is_shared { link.utilization + busy } else { f64::max(link.utilization, busy) };
            dropped_queue += counters.queue_drops;
            lost_line += counters.other_losses;
            damaged += counters.damaged;
            link.queue_max = link.queue_max.max(counters.queue_max);
        }
        // Frames sent after the last delivery do not count.
        link.utilization = link.utilization.min(1.0);
        link.dropped = dropped_queue + lost_line;
        (link.dropped_queue, link.lost_line, link.damaged) =
            (Some(dropped_queue), Some(lost_line), Some(damaged));
        match &medium_node.medium {
            Medium::Cells(cells) => {
                link.aal5_failed = Some(ports().map(|port| cells.reassembly_counters(port).failed).sum());
            }
            Medium::Credits(cells) => {
                link.aal5_failed = Some(ports().map(|port| cells.reassembly_counters(port).failed).sum());
                link.credits = cells.has_credits().then(|| credit_record(cells));
            }
            _ => {}
        }
        let planned = plan.links.iter().find(|planned| planned.name == medium_node.name);
        let queue = |port: Port| {
            let counters = match &medium_node.medium {
                Medium::Link(medium) => medium.queue_counters(port)?,
                Medium::Cells(medium) => medium.queue_counters(port)?,
                _ => return None,
            };
            let forwards = match medium_node.attachments[usize::from(port.0)] {
                Attachment::Host(host, _) => network.hosts[host as usize].model.is_router(),
                _ => true,
            };
            let discipline = queue::discipline_at(planned?, forwards).name();
            Some(queue_record(network.neighbor_name(medium_node, port), discipline, counters))
        };
        link.queues = ports().filter_map(queue).collect();
        link
    };
    network.transmission_media().map(record).collect()
}

/// Returns the record of the queue of `node` at its end of a link.
fn queue_record(node: &str, discipline: &str, counters: &QueueCounters) -> schema::LinkQueue {
    let mut sojourn = Histogram::default();
    for value in counters.sojourn_ns.iter_recorded() {
        sojourn.record_n(Span::from_ns(value.value_iterated_to()), value.count_at_value());
    }
    schema::LinkQueue {
        name: node.to_owned(),
        discipline: discipline.to_owned(),
        dropped_full: counters.dropped_full,
        dropped_early: counters.dropped_early,
        policed: counters.policed,
        marked: counters.marked,
        sojourn_us: sojourn.distribution_us(),
    }
}

/// Returns the credits of a link, of both directions together.
fn credit_record<F: CellFrame>(link: &CreditLink<F>) -> schema::Credits {
    let mut record = schema::Credits::default();
    for counters in [0, 1].map(|port| link.credit_counters(Port(port))) {
        record.credit_cells += counters.credit_cells;
        record.check_cells += counters.check_cells;
        record.lost += counters.lost;
        record.buffers_max = record.buffers_max.max(counters.buffers_max);
    }
    record
}

/// Returns the switches of the record with their losses.
pub fn switch_records<F: CellFrame>(network: &Network<F>) -> Vec<schema::Switch> {
    let record = |medium_node: &MediumNode<F>| {
        let Medium::Switch(switch) = &medium_node.medium else { return None };
        let mut record = schema::Switch { name: medium_node.name.clone(), ..schema::Switch::default() };
        for port in (0..medium_node.attachments.len() as u16).map(Port) {
            let counters = medium_node.medium.counters(port);
            record.dropped_full += counters.queue_drops;
            record.dropped_damaged += counters.other_losses;
        }
        record.dropped_no_route = switch.no_route();
        record.dropped_damaged -= record.dropped_no_route;
        Some(record)
    };
    network.media.iter().filter_map(record).collect()
}
