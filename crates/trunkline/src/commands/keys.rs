//! `trunkline keys`: enrolment at agents, and the list of agents and controllers.

use std::io::Read;
use std::path::PathBuf;

use trunkline_agent::client::{self, Error};
use trunkline_agent::peers::Status;
use trunkline_agent::{JoinString, KeyStore, Name, Peer, Role, key_store};

use crate::archive::state_path;
use crate::failure::{Failure, print};
use crate::flags::agents::{KeyDirectory, KeysAction};

/// Maximum length of a join string on standard input, in octets.
const MAX_INPUT: u64 = 4096;

/// Runs a keys command.
pub fn keys(action: &KeysAction) -> Result<(), Failure> {
    match action {
        KeysAction::Add { name, string, own_name, keys } => add(name, string, own_name.as_deref(), keys),
        KeysAction::List { json, keys } => {
            let peers = open_store(keys)?.peers().map_err(Failure::run)?;
            let now = jiff::Timestamp::now();
            print(&if *json { lines(peers.peers(), now) } else { table(peers.peers(), now) })
        }
        KeysAction::Revoke { name, keys } => {
            let name: Name = name.parse().map_err(Failure::input)?;
            let revoked = open_store(keys)?.revoke(&name, jiff::Timestamp::now()).map_err(of_store)?;
            let line = |key: &_| format!("revoked `{name}` with the key {key}\n");
            print(&revoked.iter().map(line).collect::<String>())
        }
        KeysAction::Show { certificate, keys } => {
            let identity = open_store(keys)?.identity().map_err(Failure::run)?;
            let fingerprint = || format!("{}\n", identity.fingerprint());
            print(&if *certificate { identity.certificate_pem() } else { fingerprint() })
        }
    }
}

/// Opens the key store; creates the folder if there is none.
pub fn open_store(flags: &KeyDirectory) -> Result<KeyStore, Failure> {
    let directory =
        directory(flags).ok_or_else(|| Failure::input("no home folder for the keys: give --keys DIR"))?;
    KeyStore::open(&directory).map_err(Failure::run)
}

/// Opens the key store, if there is one.
pub fn open_existing_store(flags: &KeyDirectory) -> Result<Option<KeyStore>, Failure> {
    let directory = directory(flags).filter(|directory| directory.exists());
    directory.map(|directory| KeyStore::open(&directory).map_err(Failure::run)).transpose()
}

fn directory(flags: &KeyDirectory) -> Option<PathBuf> {
    flags.keys.clone().or_else(|| state_path("keys"))
}

fn of_store(error: key_store::Error) -> Failure {
    match error {
        key_store::Error::Change(reason) => Failure::input(reason),
        error => Failure::run(error),
    }
}

fn add(name: &str, string: &str, own_name: Option<&str>, keys: &KeyDirectory) -> Result<(), Failure> {
    let name: Name = name.parse().map_err(Failure::input)?;
    let own_name = match own_name {
        Some(text) => text.parse().map_err(Failure::input)?,
        None => {
            client::host_name().ok_or_else(|| Failure::input("this host has no name: give --as OWN_NAME"))?
        }
    };
    let mut input = String::new();
    if string == "-" {
        let read = std::io::stdin().lock().take(MAX_INPUT).read_to_string(&mut input);
        read.map_err(|error| Failure::input(format!("cannot read standard input: {error}")))?;
    }
    let join: JoinString = if string == "-" { &input } else { string }.parse().map_err(Failure::input)?;
    let store = open_store(keys)?;
    let agent = client::enrol(&store, &join, name.clone(), own_name, jiff::Timestamp::now());
    let agent = agent.map_err(|error| match error {
        Error::KeyStore(error) => of_store(error),
        error => Failure::run(error),
    })?;
    let (address, version, own_name) = (join.address(), agent.version, agent.controller);
    print(&format!(
        "added the agent `{name}` at {address} (trunkline {version}), which knows this controller as `{own_name}`\n"
    ))
}

fn state(peer: &Peer, now: jiff::Timestamp) -> &'static str {
    match peer.status(now) {
        Status::Active => "active",
        Status::Expired => "expired",
        Status::Revoked => "revoked",
    }
}

fn lines(peers: &[Peer], now: jiff::Timestamp) -> String {
    let line = |peer: &Peer| {
        let line = serde_json::json!({
            "name": peer.name, "role": peer.role, "address": peer.address, "state": state(peer, now),
            "added": peer.added.to_string(), "expires": peer.expires.map(|time| time.to_string()),
            "revoked": peer.revoked.map(|time| time.to_string()),
            "fingerprint": peer.fingerprint, "pin": peer.fingerprint.to_pin(),
        });
        format!("{line}\n")
    };
    peers.iter().map(line).collect()
}

fn table(peers: &[Peer], now: jiff::Timestamp) -> String {
    if peers.is_empty() {
        return "no keys\n".into();
    }
    let width = |of: &dyn Fn(&Peer) -> usize, least| peers.iter().map(of).max().unwrap_or(0).max(least);
    let address = |peer: &Peer| peer.address.as_ref().map_or(String::new(), ToString::to_string);
    let name_width = width(&|peer| peer.name.as_str().len(), 4);
    let address_width = width(&|peer| address(peer).len(), 7);
    let row = |name: &str, role: &str, state: &str, address: &str, added: &str, key: &str| {
        format!("{name:name_width$}  {role:10}  {state:7}  {address:address_width$}  {added:20}  {key}\n")
    };
    let mut text = row("NAME", "ROLE", "STATE", "ADDRESS", "ADDED", "KEY");
    for peer in peers {
        let role = match peer.role {
            Role::Agent => "agent",
            Role::Controller => "controller",
        };
        let added = peer.added.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let key = peer.fingerprint.to_string();
        text += &row(peer.name.as_str(), role, state(peer, now), &address(peer), &added, &key);
    }
    text
}
