//! Where the hosts of a live run are: on this machine, or on agents.

use std::collections::BTreeMap;

#[cfg(feature = "agents")]
use trunkline_agent::peers::{Name, Peer, PeerList, Role, Status};
#[cfg(feature = "agents")]
use trunkline_agent::remote::{RemoteAgents, RemoteHost};
use trunkline_experiment::plan::ConnectionEnd;
use trunkline_experiment::{Diagnostic, Plan};
use trunkline_live::{Live, Processes};

use crate::failure::Failure;
use crate::flags::agents::KeyDirectory;
use crate::flags::values::Placement;

/// Returns the backend of a live run. Hosts without a placement are on this machine, unless the experiment names an agent
/// that controls them (`xmtcntl = "agent:NAME"`).
pub fn live_backend(plan: &Plan, at: &[(String, Placement)], keys: &KeyDirectory) -> Result<Live, Failure> {
    let program = std::env::current_exe()
        .map_err(|e| Failure::run(format!("cannot find the path of this program: {e}")))?;
    let local = Box::new(Processes { program, limits: Default::default() });
    let (mut addresses, mut agents) = (BTreeMap::new(), controlling_agents(plan)?);
    for (host, placement) in at {
        match placement {
            Placement::Address(address) => {
                agents.remove(host);
                addresses.insert(host.clone(), *address);
            }
            Placement::Agent(agent) => {
                if !plan.hosts.contains(host) {
                    return Err(Failure::input(format!(
                        "--at {host}: the experiment has no host of that name"
                    )));
                }
                addresses.remove(host);
                agents.insert(host.clone(), agent.clone());
            }
        }
    }
    if agents.is_empty() {
        return Ok(Live::new(local, addresses));
    }
    remote_backend(local, addresses, &agents, keys)
}

/// Returns the agents that the experiment names, by the host that they control.
fn controlling_agents(plan: &Plan) -> Result<BTreeMap<String, String>, Failure> {
    let mut agents = BTreeMap::<String, String>::new();
    for (end, agent) in controlled_ends(plan) {
        match agents.get(&end.host) {
            Some(other) if other != agent => {
                let host = &end.host;
                return Err(Failure::input(format!("two agents control the host {host}: {other}, {agent}")));
            }
            _ => drop(agents.insert(end.host.clone(), agent.into())),
        }
    }
    Ok(agents)
}

/// Returns the ends that agents control, with the names of these agents.
fn controlled_ends(plan: &Plan) -> impl Iterator<Item = (&ConnectionEnd, &str)> {
    let ends = plan.connections.iter().flat_map(|c| {
        let receivers = c.to.iter().map(|end| (end, &c.rcvcntl));
        [(&c.from, &c.xmtcntl)].into_iter().chain(receivers)
    });
    ends.filter_map(|(end, control)| Some((end, control.strip_prefix("agent:")?)))
}

/// Returns a warning for each agent of the experiment that a run on this machine would refuse. The machine need not be the
/// controller, so it is no error.
#[cfg(feature = "agents")]
pub fn unknown_agents(plan: &Plan, keys: &KeyDirectory) -> Result<Vec<Diagnostic>, Failure> {
    if controlling_agents(plan)?.is_empty() {
        return Ok(Vec::new());
    }
    let store = super::keys::open_existing_store(keys)?;
    let peers = store.map(|store| store.peers().map_err(Failure::run)).transpose()?;
    let mut known = std::collections::BTreeSet::new();
    let warning = |(end, agent): (&ConnectionEnd, &str)| {
        let problem = match &peers {
            Some(peers) => find_agent(peers, agent).err()?,
            None => format!("this machine has no key store, so no agent `{agent}`"),
        };
        let label = format!("`agent:{agent}` controls this host");
        let help = "a run needs the key store of the controller; or place the host with `--at`";
        known
            .insert(agent.to_owned())
            .then(|| Diagnostic::warning(end.location, problem).label(label).help(help))
    };
    Ok(controlled_ends(plan).filter_map(warning).collect())
}

#[cfg(not(feature = "agents"))]
pub fn unknown_agents(plan: &Plan, _: &KeyDirectory) -> Result<Vec<Diagnostic>, Failure> {
    controlling_agents(plan).map(|_| Vec::new())
}

/// Returns an agent that may be used, or why there is none.
#[cfg(feature = "agents")]
fn find_agent<'a>(peers: &'a PeerList, agent: &str) -> Result<&'a Peer, String> {
    let name: Name = agent.parse().map_err(|e| format!("agent:{agent}: {e}"))?;
    let now = jiff::Timestamp::now();
    let peer = peers
        .by_name(Role::Agent, &name, now)
        .ok_or_else(|| format!("the key store has no agent `{name}`: add it with `trunkline keys add`"))?;
    match peer.status(now) {
        Status::Active => Ok(peer),
        Status::Expired => Err(format!("the key of the agent `{name}` has expired")),
        Status::Revoked => Err(format!("the agent `{name}` was revoked")),
    }
}

#[cfg(not(feature = "agents"))]
fn remote_backend(
    _: Box<Processes>,
    _: BTreeMap<String, std::net::IpAddr>,
    _: &BTreeMap<String, String>,
    _: &KeyDirectory,
) -> Result<Live, Failure> {
    Err(Failure::missing_feature("a run on agents", "agents"))
}

#[cfg(feature = "agents")]
fn remote_backend(
    local: Box<Processes>,
    addresses: BTreeMap<String, std::net::IpAddr>,
    agents: &BTreeMap<String, String>,
    keys: &KeyDirectory,
) -> Result<Live, Failure> {
    let store = super::keys::open_store(keys)?;
    let peers = store.peers().map_err(Failure::run)?;
    let mut hosts = BTreeMap::new();
    for (host, agent) in agents {
        let peer = find_agent(&peers, agent).map_err(Failure::input)?;
        let address = peer.address.clone().expect("an agent in the key store has an address");
        hosts.insert(host.clone(), RemoteHost { address, fingerprint: peer.fingerprint });
    }
    let identity = std::sync::Arc::new(store.identity().map_err(Failure::run)?);
    Ok(Live::new(Box::new(RemoteAgents { identity, hosts, local }), addresses))
}
