//! Links of a lab that admit connections, by the methods of the simulator. What is measured are the bytes that the emulator has
//! carried.

use std::sync::{Mutex, PoisonError};

use trunkline_endpoint::Port;
use trunkline_experiment::plan::Plan;
use trunkline_io::Clock;
use trunkline_live::Admission;
use trunkline_sim::admission::Admissions;
use trunkline_sim::network::Network;
use trunkline_sim::network::topology::Topology;

use crate::emulator::CarriedBytes;
use crate::laboratory::Lab;
use crate::packet::Packet;

/// The links of a run that admit connections.
#[derive(Debug)]
pub struct LabAdmission {
    admissions: Mutex<Admissions>,
    clock: Clock,
    carried: CarriedBytes,
    /// The names of the media.
    media: Vec<String>,
    /// Name of each connection, what it declares, and the media on the ways to its receivers.
    connections: Vec<AdmittedConnection>,
}

#[derive(Debug)]
struct AdmittedConnection {
    name: String,
    declared: Option<trunkline_experiment::plan::Declared>,
    paths: Vec<Vec<(u32, Port)>>,
}

impl LabAdmission {
    /// Finds the links that admit connections; `None` if there are none.
    pub fn new(plan: &Plan, lab: &Lab) -> Option<LabAdmission> {
        let described = plan.network.as_ref()?;
        let topology = Topology::new(described);
        let network: Network<Packet> = Network::build(plan, &topology, Default::default());
        let admissions = Admissions::new(&topology, &network);
        let connections = plan.connections.iter().map(|c| {
            let host = |name: &str| network.host_number(name);
            let path = |to| Some(network.media_between(&topology, host(&c.from.host)?, host(to)?));
            let paths = c.to.iter().filter_map(|to| path(&to.host)).collect();
            AdmittedConnection { name: c.name.clone(), declared: c.declared, paths }
        });
        (!admissions.is_empty()).then(|| LabAdmission {
            admissions: Mutex::new(admissions),
            clock: Clock::start(),
            carried: lab.carried_bytes(),
            media: network.media.iter().map(|medium| medium.name.clone()).collect(),
            connections: connections.collect(),
        })
    }

    fn connection(&self, name: &str) -> Option<(u32, &AdmittedConnection)> {
        (0..).zip(&self.connections).find(|(_, connection)| connection.name == name)
    }
}

impl Admission for LabAdmission {
    fn request(&self, connection: &str) -> Result<(), String> {
        let Some((number, connection)) = self.connection(connection) else { return Ok(()) };
        let carried = self.carried.get();
        let sent = |medium: u32, port: Port| {
            let name = &self.media[medium as usize];
            let bytes = carried.iter().find(|(other, _)| other == name).map(|(_, bytes)| bytes);
            bytes.and_then(|bytes| bytes.get(usize::from(port.0))).copied().unwrap_or(0)
        };
        let mut admissions = self.admissions.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &connection.paths {
            if let Err(error) = admissions.request(self.clock.now(), number, path, connection.declared, sent)
            {
                admissions.release(number);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    fn release(&self, connection: &str) {
        if let Some((number, _)) = self.connection(connection) {
            self.admissions.lock().unwrap_or_else(PoisonError::into_inner).release(number);
        }
    }
}
