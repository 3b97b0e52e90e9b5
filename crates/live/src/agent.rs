//! An agent serves one host: it opens ends when the controller requests them, runs each end on its own thread and
//! reports what the ends measure.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_io::usage::CpuTime;
use trunkline_io::{Clock, platform};
use trunkline_run::RateLimit;

use crate::bundles::BundleWorker;
use crate::consent::ConsentService;
use crate::end::{self, EndControl};
use crate::kernel_sampler::KernelSampler;
use crate::limits::{LimitError, Limits, OpenEnds};
use crate::locked;
use crate::station::Station;
use crate::wire::{AgentMessage, AgentWriter, ControllerMessage, EndId, EndSpec, LineReader};

/// Interval between heartbeats; each heartbeat also reports what the ends have measured so far.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// Maximum number of measurements of the kernel; a plan has one for each host.
const MAX_SAMPLERS: usize = 4;
/// Maximum interval between checks for new measurements, if an observer of the run wants to see them.
pub(crate) const REPORT_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Serves a controller until it requests a shutdown or closes the stream.
pub fn serve(stream: UnixStream, limits: &Limits) {
    let Ok(out) = stream.try_clone() else { return };
    let writer = AgentWriter::new(out);
    let ends: EndControls = Arc::default();
    let (interval_sender, intervals) = mpsc::channel::<Duration>();
    let heartbeat = {
        let (writer, ends) = (writer.clone(), Arc::downgrade(&ends));
        std::thread::spawn(move || {
            let mut interval = HEARTBEAT;
            while let Some(ends) = ends.upgrade() {
                writer.send(&AgentMessage::Alive);
                let controls: Vec<Arc<EndControl>> = locked(&ends).values().cloned().collect();
                drop(ends);
                controls.iter().for_each(|control| control.send_snapshot(&writer));
                match intervals.recv_timeout(interval) {
                    Ok(shorter) => interval = interval.min(shorter),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        })
    };
    let bundle_worker = execute(stream, &writer, &ends, (limits, &interval_sender));
    // The controller has disconnected or requested a shutdown: stop all ends.
    locked(&ends).values().for_each(|control| control.stop());
    drop(ends);
    if let Some(counters) = bundle_worker.and_then(|bundle_worker| bundle_worker.close()) {
        writer.send(&AgentMessage::Counters(counters));
    }
    let cpu_time = CpuTime::of_this_process();
    writer.send(&AgentMessage::CpuTime(cpu_time.user.as_s(), cpu_time.system.as_s()));
    drop((writer, interval_sender));
    let _ = heartbeat.join();
}

type EndControls = Arc<Mutex<BTreeMap<EndId, Arc<EndControl>>>>;

/// Executes the messages of the controller; returns the bundle worker if one was opened.
fn execute(
    stream: UnixStream,
    writer: &AgentWriter,
    ends: &EndControls,
    (limits, heartbeat): (&Limits, &mpsc::Sender<Duration>),
) -> Option<BundleWorker> {
    let rate_limit = limits.remote.as_ref().map(|remote| RateLimit::new(remote.rate_bps));
    let mut input = LineReader::new(stream);
    let mut clock = Clock::start();
    let mut station = Err("the host has none".to_owned());
    let (mut bundle_worker, mut consent, mut samplers) = (None, None, Vec::new());
    let mut has_hello = false;
    let find = |id: EndId| locked(ends).get(&id).cloned();
    while let Ok(Some(message)) = input.read::<ControllerMessage>() {
        match message {
            ControllerMessage::Hello { epoch_ns, station: config, bundles, consent_at, time } => {
                // Stations and converters send to others without their consent.
                let is_forbidden = limits.remote.is_some() && (config.is_some() || bundles.is_some());
                if std::mem::replace(&mut has_hello, true) || is_forbidden {
                    break;
                }
                clock = Clock::at(epoch_ns);
                let missing: Vec<String> = platform::missing().map(str::to_owned).collect();
                if !missing.is_empty() {
                    writer.send(&AgentMessage::Missing(missing));
                }
                if let Some(address) = consent_at {
                    let opened =
                        ConsentService::open(address, &limits.ports, time).map_err(|e| e.to_string());
                    consent = opened.as_ref().ok().cloned();
                    let address = opened.map(|service| service.address());
                    writer.send(&AgentMessage::ConsentAddress(address));
                }
                if let Some(config) = config {
                    station = Station::attach(&config, clock).map_err(|e| e.to_string());
                }
                if let Some(config) = bundles {
                    match BundleWorker::open(*config, clock, writer) {
                        Ok(open) => bundle_worker = Some(open),
                        Err(cause) => writer.send(&AgentMessage::ConverterFailed(cause.to_string())),
                    }
                }
            }
            ControllerMessage::Check(spec) => {
                let permitted = AgentMessage::Permitted(spec.id);
                let checked = limits.check(&spec);
                writer.send(&checked.map_or_else(|error| refusal(*spec, &error), |()| permitted));
            }
            ControllerMessage::Prepare(mut spec) => {
                let id = spec.id;
                let open = open_ends(ends);
                // The end before could no longer be stopped.
                if find(id).is_some_and(|control| !control.is_over()) {
                    break;
                }
                if let Err(error) = limits.restrict(&mut spec, open) {
                    writer.send(&refusal(*spec, &error));
                    continue;
                }
                if spec.report_interval.is_some() {
                    let _ = heartbeat.send(REPORT_CHECK_INTERVAL);
                }
                let clock = spec.epoch_ns.map_or(clock, Clock::at);
                let services = end::Services {
                    station: station.clone(),
                    bundle_worker: bundle_worker.clone(),
                    consent: consent.clone(),
                    ports: limits.ports.clone(),
                    rate_limit: rate_limit.clone(),
                };
                let control = end::prepare(*spec, clock, writer.clone(), services);
                let mut ends = locked(ends);
                // Remove ends that have reported: a long `repeat` opens many.
                ends.retain(|_, c| !c.is_over());
                ends.insert(id, control);
            }
            ControllerMessage::Measure(measure) => {
                match KernelSampler::start(measure, clock, writer.clone()) {
                    Ok(sampler) => samplers.push(sampler),
                    Err(_) => break, // without threads the agent is of no use
                }
                if samplers.len() > MAX_SAMPLERS {
                    break;
                }
            }
            ControllerMessage::Start(id, at) => find(id).into_iter().for_each(|c| c.start(at)),
            ControllerMessage::Finish(id, messages) => find(id).into_iter().for_each(|c| c.finish(messages)),
            ControllerMessage::Stop(id) => find(id).into_iter().for_each(|c| c.stop()),
            ControllerMessage::Shutdown => break,
        }
    }
    samplers.into_iter().for_each(KernelSampler::finish);
    bundle_worker
}

fn open_ends(ends: &EndControls) -> OpenEnds {
    let ends = locked(ends);
    let open = ends.values().filter(|control| !control.is_over());
    open.fold(OpenEnds::default(), |sum, control| OpenEnds {
        count: sum.count + 1,
        memory: sum.memory.saturating_add(control.memory()),
    })
}

/// Returns whether this thread runs an end: if it panics, the end has failed and reports it.
pub fn is_end() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with(end::THREAD_NAME))
}

/// Returns the name of the connection and the cause if this message of an agent to its controller refuses a test; for the
/// agent's log.
pub fn refused_test(message: &[u8]) -> Option<(String, String)> {
    if !message.starts_with(b"{\"Refused\"") {
        return None;
    }
    match serde_json::from_slice(message) {
        Ok(AgentMessage::Refused { connection, cause, .. }) => Some((connection, cause)),
        _ => None,
    }
}

fn refusal(spec: EndSpec, error: &LimitError) -> AgentMessage {
    AgentMessage::Refused { id: spec.id, connection: spec.repetition_name, cause: error.to_string() }
}
