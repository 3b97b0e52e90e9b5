//! A controller and agents on loopback ports, with TLS, consent and clocks.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use trunkline_agent::remote::{RemoteAgents, RemoteHost};
use trunkline_agent::server::runs::RunOptions;
use trunkline_agent::server::{Options, Server, StopHandle};
use trunkline_agent::trust::JOIN_LIFETIME;
use trunkline_agent::{KeyStore, Name, client};
use trunkline_experiment::{Plan, Source, parse};
use trunkline_live::limits::{Limits, RemoteLimits};
use trunkline_live::{Launch, LaunchedAgent, Live, Threads};
use trunkline_record::Record;
use trunkline_run::{Backend, NoProgress, StopFlag};
use trunkline_units::{Seed, Span};

/// Age of connections without a run. Connections of a run become older.
const AGE: Duration = Duration::from_millis(500);

/// Runs each agent's runs as threads, with limits.
struct LimitedThreads {
    limits: Limits,
    /// The streams to the threads, by which a test can end a run as if its process had died.
    streams: Arc<Mutex<Vec<UnixStream>>>,
}

impl Launch for LimitedThreads {
    fn launch(&self, _: &str) -> io::Result<LaunchedAgent> {
        let (ours, theirs) = UnixStream::pair()?;
        self.streams.lock().unwrap().push(theirs.try_clone()?);
        let limits = self.limits.clone();
        thread::spawn(move || trunkline_live::agent::serve(theirs, &limits));
        Ok(LaunchedAgent { stream: ours, child: None, remote: None })
    }
}

pub fn limits() -> RemoteLimits {
    RemoteLimits {
        rate_bps: 1_000_000_000,
        bytes: 1 << 30,
        duration: Span::from_s(20),
        ends: 100,
        memory: 1 << 30,
        groups: Vec::new(),
        send_folder: None,
        receive_folder: None,
    }
}

/// An agent on a loopback port that a controller has enrolled at.
pub struct Agent {
    pub address: SocketAddr,
    pub log: Arc<Mutex<Vec<String>>>,
    stop: StopHandle,
    thread: Option<JoinHandle<()>>,
    pub streams: Arc<Mutex<Vec<UnixStream>>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || thread::panicking());
    }
}

/// A controller and its agents.
pub struct Lab {
    pub folder: tempfile::TempDir,
    controller: KeyStore,
    pub agents: Vec<Agent>,
    hosts: BTreeMap<String, RemoteHost>,
}

impl Lab {
    pub fn new(hosts: &[&str], limits: &RemoteLimits) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let controller = KeyStore::open(&folder.path().join("controller")).unwrap();
        let mut lab = Lab { folder, controller, agents: Vec::new(), hosts: BTreeMap::new() };
        for host in hosts {
            lab.add(host, limits);
        }
        lab
    }

    fn add(&mut self, host: &str, limits: &RemoteLimits) {
        let store = KeyStore::open(&self.folder.path().join(host)).unwrap();
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            address: None,
            join_lifetime: JOIN_LIFETIME,
            connection_age: AGE,
        };
        let log = Arc::<Mutex<Vec<String>>>::default();
        let lines = log.clone();
        let log_line = Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
        let streams = Arc::<Mutex<Vec<UnixStream>>>::default();
        let launch = LimitedThreads {
            limits: Limits { remote: Some(limits.clone()), ports: None },
            streams: streams.clone(),
        };
        let runs = RunOptions { launch: Box::new(launch), max_runs: 3, max_time: Duration::from_secs(100) };
        let server = Server::bind(store, options, Some(runs), log_line).unwrap();
        let (address, stop, join) = (server.address(), server.stop_handle(), server.issue_join().unwrap());
        let thread = thread::spawn(move || server.run().unwrap());
        self.agents.push(Agent { address, log, stop, thread: Some(thread), streams });
        let name: Name = host.parse().unwrap();
        client::enrol(&self.controller, &join, name, "ctl".parse().unwrap(), Timestamp::now()).unwrap();
        let remote = RemoteHost { address: join.address().clone(), fingerprint: join.agent() };
        self.hosts.insert(host.to_owned(), remote);
    }

    fn backend(&self) -> Live {
        let identity = Arc::new(self.controller.identity().unwrap());
        let launch = RemoteAgents { identity, hosts: self.hosts.clone(), local: Box::new(Threads) };
        Live::new(Box::new(launch), BTreeMap::new())
    }

    pub fn run_with(&self, text: &str, stop: StopFlag) -> Record {
        self.run_plan(&plan(text), stop)
    }

    pub fn run_plan(&self, plan: &Plan, stop: StopFlag) -> Record {
        let mut live = self.backend();
        assert_eq!(live.refuse(plan), []);
        let options = trunkline_run::RunOptions {
            seed: Seed(1),
            started_at: String::new(),
            text: String::new(),
            folder: ".".into(),
            out: self.folder.path().join("out"),
            stop,
        };
        live.run(plan, &options, &mut NoProgress)
    }

    /// Waits until the second agent has started so many runs.
    pub fn await_runs(&self, count: usize) {
        while self.agents[1].streams.lock().unwrap().len() < count {
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn run(&self, text: &str) -> Record {
        self.run_with(text, StopFlag::default())
    }
}

pub fn plan(text: &str) -> Plan {
    let parsed = parse(&Source { name: "test.ns", text, folder: None });
    parsed.plan.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics))
}
