//! The backend `lab`: the experiment's network on this machine, and the ends of its connections in it.
//!
//! The ends are those of the backend `live`: an agent process for each host, in the network namespace of its host. The
//! links, queues and switches between them are those of the simulator, with the same seed.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use trunkline_experiment::plan::{Plan, SourceRange};
use trunkline_io::kernel_counters;
use trunkline_live::{Admission, Launch, LaunchedAgent, Live};
use trunkline_record::Record;
use trunkline_run::backend::failed_record;
use trunkline_run::{Backend, ProgressObserver, Refusal, RunOptions, expect};
use trunkline_sim::network::records::{link_records, switch_records};
use trunkline_sim::network::topology::Topology;
use trunkline_sim::{capture, refuse_llc};
use trunkline_units::{Instant, Span};

use crate::admission::LabAdmission;
use crate::bundles;
use crate::capacity;
use crate::capture::CaptureOptions;
use crate::emulator::Report;
use crate::explicit_rates::{self, RateControllers};
use crate::group_routes::unreachable;
use crate::laboratory::{Lab, LabError};
use crate::namespace::Namespace;
use crate::processes::Processes;
use crate::programs::Programs;
use crate::session::Session;

/// The backend.
#[derive(Clone, Debug)]
pub struct LabBackend {
    /// The program whose command `agent --stdio NAME` is an agent.
    pub program: PathBuf,
    /// Names of links, their directions and hosts to capture as `NAME.pcapng` in the folder of the record.
    pub trace: Vec<String>,
    /// Whether to run what asks for more packets per second than this machine carries.
    pub overload: bool,
}

/// When 99 % of the packets are not later than this, what a lab measures is that of its links.
const MAX_LATE: Span = Span::from_ms(1);

/// Starts each agent as a process in the namespace of its host.
struct NamespaceAgents {
    program: PathBuf,
    namespaces: BTreeMap<String, Namespace>,
    /// `None` before the lab is started.
    processes: Option<Processes>,
}

impl Launch for NamespaceAgents {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        let namespace = self.namespaces.get(host).ok_or(io::ErrorKind::NotFound)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.program);
        command
            .args(["agent", "--stdio", host])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // Ctrl-C signals the whole process group of the terminal; only the controller handles it.
            .process_group(0);
        namespace.enter(&mut command);
        let child = self.processes.as_ref().ok_or(io::ErrorKind::NotFound)?.spawn(&mut command)?;
        Ok(LaunchedAgent { stream: ours, child: Some(child), remote: None })
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}

impl Backend for LabBackend {
    fn name(&self) -> &'static str {
        "lab"
    }

    fn refuse(&self, plan: &Plan) -> Vec<Refusal> {
        let Some(network) = &plan.network else {
            let text = LabError::NoNetwork.to_string();
            return vec![Refusal { location: SourceRange::default(), text }];
        };
        let topology = Topology::new(network);
        let unreachable = plan.connections.iter().filter_map(|c| {
            let text = format!("{}: {}", c.name, unreachable(c, &topology)?);
            Some(Refusal { location: c.protocol_location, text })
        });
        let mut refusals: Vec<Refusal> = unreachable.collect();
        refusals.extend(refuse_llc(plan, network));
        refusals.extend(explicit_rates::refuse(plan, &topology));
        refusals.extend(bundles::refuse(plan, network, &topology));
        let refused_captures = self.trace.iter().filter_map(|name| capture::refuse(name, network));
        refusals.extend(refused_captures.map(|text| Refusal { location: SourceRange::default(), text }));
        refusals.extend(self.live(None).refuse(plan));
        if refusals.is_empty() && !self.overload {
            let shortage = capacity::shortage(plan);
            refusals.extend(shortage.map(|text| Refusal { location: SourceRange::default(), text }));
        }
        refusals
    }

    fn planned_record(&self, plan: &Plan, options: &RunOptions) -> Record {
        self.live(None).planned_record(plan, options)
    }

    fn run(&mut self, plan: &Plan, options: &RunOptions, observer: &mut dyn ProgressObserver) -> Record {
        let (lab, session, programs) = match self.start(plan, options) {
            Ok(started) => started,
            Err(problem) => return failed_record(self.planned_record(plan, options), plan, problem),
        };
        let mut record = match RateControllers::start(plan, &lab) {
            Ok(controllers) => {
                let admission =
                    LabAdmission::new(plan, &lab).map(|links| Arc::new(links) as Arc<dyn Admission>);
                let live = self.live(Some(&lab)).with_rate_controllers(controllers.addresses.clone());
                live.with_admission(admission).run(plan, options, observer)
            }
            Err(error) => failed_record(self.planned_record(plan, options), plan, error.to_string()),
        };
        let failures =
            programs.finish(plan.connections.is_empty() && plan.measures.is_empty(), &options.stop);
        drop(session);
        add_kernel_counters(&mut record, &lab);
        let mut late = None;
        match lab.finish() {
            Ok(report) => {
                late = lateness_problem(&report);
                add_report(&mut record, plan, report);
            }
            Err(error) => record.problems.push(error.to_string()),
        }
        record.problems.extend(failures);
        record.partial |= !record.problems.is_empty();
        record.problems.extend(late);
        record.expectations = expect::evaluate(&plan.expectations, &record);
        record
    }
}

impl LabBackend {
    /// Returns the backend of the ends, on the hosts of a lab if it runs already.
    fn live(&self, lab: Option<&Lab>) -> Live {
        let hosts = || lab.into_iter().flat_map(Lab::hosts);
        let agents = NamespaceAgents {
            program: self.program.clone(),
            namespaces: hosts().map(|host| (host.name.clone(), host.namespace.clone())).collect(),
            processes: lab.map(|lab| lab.processes().clone()),
        };
        let addresses = hosts().map(|host| (host.name.clone(), IpAddr::V4(host.address)));
        Live::new(Box::new(agents), addresses.collect())
    }

    /// Starts the network of a plan and the programs of its hosts.
    fn start(&self, plan: &Plan, options: &RunOptions) -> Result<(Lab, Session, Programs), String> {
        let captures = CaptureOptions { names: self.trace.clone(), folder: options.out.clone() };
        let lab = Lab::start_captured(plan, options.seed, &captures).map_err(|error| error.to_string())?;
        let session = Session::start(&plan.name, &lab).map_err(|error| error.to_string())?;
        let programs =
            Programs::start(plan, &lab, &session, &options.out).map_err(|error| error.to_string())?;
        Ok((lab, session, programs))
    }
}

/// Adds the counters of the kernels of the hosts, which began with the lab. A kernel drops what does not fit its interface's queue.
fn add_kernel_counters(record: &mut Record, lab: &Lab) {
    for host in lab.hosts() {
        let read = || Ok([kernel_counters::interfaces(), kernel_counters::protocols()].concat());
        let described = record.hosts.iter_mut().find(|described| described.name == host.name);
        if let (Some(described), Ok(counters)) = (described, host.namespace.run(read)) {
            described.interfaces.extend(counters.into_iter().map(|(name, count)| (name, count as u64)));
        }
    }
}

/// Returns a line about packets that were too late for what was measured to be that of the links.
fn lateness_problem(report: &Report) -> Option<String> {
    let late = report.lateness_ns.value_at_quantile(0.99);
    (late > MAX_LATE.as_ns()).then(|| {
        format!(
            "packets were late: 1 % of {} by more than {:.1} ms; delays and rates are those of a machine that is too busy, not of the links",
            report.packets_out,
            late as f64 / 1e6
        )
    })
}

/// Adds what the media have counted and how late the emulator was.
fn add_report(record: &mut Record, plan: &Plan, report: Report) {
    if let (Some(network), Some(described)) = (&report.network, &plan.network) {
        let end = Instant::ZERO + report.duration;
        record.links = link_records(network, described, end);
        report.link_series.finish(network, end, &mut record.links);
        record.switches = switch_records(network);
    }
    if plan.connections.is_empty() && plan.measures.is_empty() {
        // The programs were all of it, and agents did nothing.
        record.duration_s = report.duration.as_s();
        record.hosts.iter_mut().for_each(|host| host.cpu_percent = 0.0);
    }
    let late = |quantile: f64| report.lateness_ns.value_at_quantile(quantile) as f64 / 1e3;
    let lateness = format!(
        "of {} packets: median {:.0} us, 99 % {:.0} us, largest {:.0} us{}",
        report.packets_out,
        late(0.5),
        late(0.99),
        report.lateness_ns.max() as f64 / 1e3,
        if report.is_real_time { "" } else { "; the system allowed no real-time priority" },
    );
    record.environment.insert("emulator_late".into(), lateness);
    if report.group_reports > 0 {
        let text = format!("{} packets of IGMP or MLD", report.group_reports);
        record.environment.insert("emulator_group_reports".into(), text);
    }
    let lost = report.unroutable + report.refused;
    if lost > 0 {
        let text = format!(
            "{} to no host of the network, {} refused by the kernel",
            report.unroutable, report.refused
        );
        record.environment.insert("emulator_lost".into(), text);
    }
    if report.capture_drops > 0 {
        let text = format!("{} packets: they came faster than they were written", report.capture_drops);
        record.environment.insert("captures_lost".into(), text);
    }
    record.problems.extend(report.capture_error.map(|error| error.to_string()));
}
