//! Where the hosts of a live run are: on this machine, or on agents.

use std::collections::BTreeMap;

use trunkline_experiment::Plan;
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
    let controlled = plan.connections.iter().flat_map(|c| {
        let receivers = c.to.iter().map(|end| (&end.host, &c.rcvcntl));
        [(&c.from.host, &c.xmtcntl)].into_iter().chain(receivers)
    });
    for (host, control) in controlled {
        let Some(agent) = control.strip_prefix("agent:") else { continue };
        match agents.get(host) {
            Some(other) if other != agent => {
                return Err(Failure::input(format!("two agents control the host {host}: {other}, {agent}")));
            }
            _ => drop(agents.insert(host.clone(), agent.into())),
        }
    }
    Ok(agents)
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
    use trunkline_agent::peers::{Name, Role, Status};
    use trunkline_agent::remote::{RemoteAgents, RemoteHost};

    let store = super::keys::open_store(keys)?;
    let (peers, now) = (store.peers().map_err(Failure::run)?, jiff::Timestamp::now());
    let mut hosts = BTreeMap::new();
    for (host, agent) in agents {
        let name: Name = agent.parse().map_err(|e| Failure::input(format!("agent:{agent}: {e}")))?;
        let peer = peers.by_name(Role::Agent, &name, now);
        let peer = peer.ok_or_else(|| {
            let add = "add it with `trunkline keys add`";
            Failure::input(format!("the key store has no agent `{name}`: {add}"))
        })?;
        match peer.status(now) {
            Status::Active => {}
            Status::Expired => {
                return Err(Failure::input(format!("the key of the agent `{name}` has expired")));
            }
            Status::Revoked => return Err(Failure::input(format!("the agent `{name}` was revoked"))),
        }
        let address = peer.address.clone().expect("an agent in the key store has an address");
        hosts.insert(host.clone(), RemoteHost { address, fingerprint: peer.fingerprint });
    }
    let identity = std::sync::Arc::new(store.identity().map_err(Failure::run)?);
    Ok(Live::new(Box::new(RemoteAgents { identity, hosts, local }), addresses))
}
