//! `trunkline agent`: the agent of this host, and one host of a live experiment.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::resource::{Resource, setrlimit};
use trunkline_live::limits::Limits;

use crate::failure::Failure;
use crate::flags::agents::Agent;

/// Memory that a run needs in any case, in bytes.
const MIN_MEMORY: u64 = 64 << 20;

/// Runs an agent.
pub fn agent(flags: &Agent) -> Result<(), Failure> {
    match &flags.host {
        Some(_) => serve_standard_input(&flags.host_limits),
        #[cfg(feature = "agents")]
        None => daemon::agent(flags),
        #[cfg(not(feature = "agents"))]
        None => Err(Failure::missing_feature("trunkline agent", "agents")),
    }
}

/// Runs one host over standard input. The controller, not the agent, handles Ctrl-C.
fn serve_standard_input(limits: &str) -> Result<(), Failure> {
    let limits: Limits =
        serde_json::from_str(limits).map_err(|e| Failure::input(format!("--limits: {e}")))?;
    if let Some(remote) = &limits.remote {
        // What a controller makes a run allocate ends that run, not the machine. Linux counts what is writable; FreeBSD has
        // no such limit, and its address space is not reserved as generously. macOS does not enforce any.
        #[cfg(target_os = "freebsd")]
        let memory = Resource::RLIMIT_VMEM;
        #[cfg(not(target_os = "freebsd"))]
        let memory = Resource::RLIMIT_DATA;
        let bytes = remote.memory.clamp(MIN_MEMORY, i64::MAX as u64) as nix::libc::rlim_t;
        let _ = setrlimit(memory, bytes, bytes);
    }
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(Failure::run)?;
    let stream = UnixStream::from(input);
    if stream.peer_addr().is_err() {
        return Err(Failure::input("standard input is not a socket; `trunkline run` starts `agent --stdio`"));
    }
    // A panic of an end is reported by the end. Any other must end the whole agent, or the controller would wait for it.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if !trunkline_live::agent::is_end() {
            std::process::abort()
        }
    }));
    trunkline_live::agent::serve(stream, &limits);
    Ok(())
}

#[cfg(feature = "agents")]
mod daemon {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use jiff::SignedDuration;
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use trunkline_agent::join_socket::{self, JoinSocket};
    use trunkline_agent::server::runs::RunOptions;
    use trunkline_agent::server::{Error, JoinIssuer, Log, MAX_CONNECTION_AGE, Options, Server};
    use trunkline_agent::{Address, JoinString, KeyStore, activation};

    use trunkline_live::Processes;
    use trunkline_live::limits::{Limits, RemoteLimits};
    use trunkline_units::Span;

    use crate::commands::converter::config;
    use crate::commands::keys::open_store;
    use crate::failure::{Failure, print, warn};
    use crate::flags::agents::{Agent, OwnerLimits};

    /// Maximum time of a run: a schedule of tests with pauses between them.
    const RUN_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

    /// Serves controllers until SIGINT or SIGTERM, or prints a join string of the agent that does.
    pub fn agent(flags: &Agent) -> Result<(), Failure> {
        let store = open_store(&flags.keys)?;
        if flags.join {
            let join = join_socket::request(&store).map_err(Failure::run)?;
            return print(&format!("{join}\n"));
        }
        // Before another file has the descriptor, if systemd passes none.
        let listener = activation::listener().map_err(Failure::run)?;
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::run)?;
        // Made first: if an agent has this key store, that is the cause to report, and not its address.
        let socket = JoinSocket::bind(&store).map_err(Failure::run)?;
        let server = bind(flags, store, listener)?;
        let stop = server.stop_handle();
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                stop.stop();
            }
        });
        let joins = server.join_issuer();
        if server.address().ip().is_loopback() && flags.address.is_none() {
            warn("only this machine reaches that address: for others, use --listen and --address");
        }
        let join = (!flags.no_join).then(|| issue(&joins)).transpose().map_err(of_server)?;
        warn(&format!("listening on {} with the key {}", server.address(), server.fingerprint()));
        if let Some(join) = join {
            print(&format!("{join}\n"))?;
        }
        socket.serve(move || issue(&joins).map_err(|error| error.to_string())).map_err(Failure::run)?;
        server.run().map_err(of_server)
    }

    fn bind(flags: &Agent, store: KeyStore, listener: Option<TcpListener>) -> Result<Server, Failure> {
        let address =
            flags.address.as_deref().map(str::parse::<Address>).transpose().map_err(Failure::input)?;
        let ns = i64::try_from(flags.join_lifetime.as_ns()).unwrap_or(i64::MAX);
        let options = Options {
            listen: flags.listen,
            address,
            join_lifetime: SignedDuration::from_nanos(ns),
            connection_age: MAX_CONNECTION_AGE,
        };
        let log: Log = Arc::new(warn);
        let runs = run_options(&config::complete(&flags.limits, flags.limits.config.as_deref())?)?;
        let server = match listener {
            Some(listener) => Server::from_listener(listener, store, options, Some(runs), log),
            None => Server::bind(store, options, Some(runs), log),
        };
        server.map_err(of_server)
    }

    /// Returns how runs are started, and what they may do.
    fn run_options(flags: &OwnerLimits) -> Result<RunOptions, Failure> {
        let duration = flags.max_duration.unwrap_or(Span::from_s(3600));
        let remote = RemoteLimits {
            rate_bps: flags.max_rate.unwrap_or(1_000_000_000),
            bytes: flags.max_bytes.unwrap_or(100_000_000_000),
            duration,
            ends: flags.max_ends.unwrap_or(512).into(),
            memory: flags.max_memory.unwrap_or(2 << 30),
            groups: flags.allow_groups.clone(),
            send_folder: flags.send_folder.clone(),
            receive_folder: flags.receive_folder.clone(),
        };
        let limits = Limits { remote: Some(remote), ports: flags.ports.clone() };
        let program = std::env::current_exe()
            .map_err(|e| Failure::run(format!("cannot find the path of this program: {e}")))?;
        Ok(RunOptions {
            launch: Box::new(Processes { program, limits }),
            max_runs: flags.max_runs.unwrap_or(8).into(),
            // A run may have several tests, one after the other.
            max_time: RUN_TIME,
        })
    }

    /// Issues a join string, with a line in the log.
    fn issue(joins: &JoinIssuer) -> Result<JoinString, Error> {
        let join = joins.issue()?;
        warn(&format!("issued a join string for {}, valid until {}", join.address(), join.expires()));
        Ok(join)
    }

    fn of_server(error: Error) -> Failure {
        match error {
            Error::AddressRequired(_) => Failure::input(error),
            error => Failure::run(error),
        }
    }
}
