//! The list of peers: names, keys, expiry, revocation. It does no I/O.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::fingerprint::Fingerprint;

/// Maximum number of entries of a list, including revoked and expired ones.
pub const MAX_PEERS: usize = 1024;
/// Maximum number of characters of a name.
pub const MAX_NAME: usize = 64;
/// The version of the file format.
const VERSION: u32 = 1;

/// The name of a peer: up to [`MAX_NAME`] ASCII letters, digits, `-`, `_` and `.`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Name(String);

/// The text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {MAX_NAME} ASCII letters, digits, `-`, `_` and `.`")]
pub struct InvalidName;

impl Name {
    /// Returns the name most similar to a text: other characters become `-`, and it is cut to [`MAX_NAME`] characters.
    /// `None` if no letter or digit is left.
    pub fn similar_to(text: &str) -> Option<Name> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name: String = text.chars().map(|c| if is_valid(c) { c } else { '-' }).take(MAX_NAME).collect();
        name.contains(|c: char| c.is_ascii_alphanumeric()).then_some(Name(name))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Name, InvalidName> {
        let is_valid = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
        let is_name = (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(is_valid);
        if is_name { Ok(Name(text.into())) } else { Err(InvalidName) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Name, InvalidName> {
        text.parse()
    }
}

/// What a peer may do. One key may have an entry for each role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It may connect to this host's agent.
    Controller,
    /// This host's controller may connect to it.
    Agent,
}

/// Whether a peer is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is trusted.
    Active,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The name; unique among the active peers of a role.
    pub name: Name,
    /// What the peer may do.
    pub role: Role,
    /// The peer's key; unique among the peers of a role.
    pub fingerprint: Fingerprint,
    /// The address; agents have one, controllers do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Address>,
    /// When the peer was added.
    pub added: Timestamp,
    /// From when on the peer is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When the peer was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
}

impl Peer {
    /// Creates the entry of a controller.
    pub fn controller(name: Name, fingerprint: Fingerprint, added: Timestamp) -> Peer {
        Peer { name, role: Role::Controller, fingerprint, address: None, added, expires: None, revoked: None }
    }

    /// Creates the entry of an agent.
    pub fn agent(name: Name, fingerprint: Fingerprint, address: Address, added: Timestamp) -> Peer {
        let role = Role::Agent;
        Peer { name, role, fingerprint, address: Some(address), added, expires: None, revoked: None }
    }

    /// Returns whether the peer is trusted. A revoked peer stays revoked.
    pub fn status(&self, now: Timestamp) -> Status {
        match self {
            Peer { revoked: Some(_), .. } => Status::Revoked,
            Peer { expires: Some(expires), .. } if *expires <= now => Status::Expired,
            _ => Status::Active,
        }
    }
}

/// Why a file is not a list of peers.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The text is not JSON of this form.
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    /// The file was written by a later version.
    #[error("format version {0} is not supported; this program reads version {VERSION}")]
    Version(u32),
    /// The list is too long.
    #[error("more than {MAX_PEERS} peers")]
    TooManyPeers,
    /// A key has two entries with one role.
    #[error("two entries have the key {0}")]
    DuplicateKey(Fingerprint),
    /// An agent has no address.
    #[error("the agent `{0}` has no address")]
    AddressMissing(Name),
    /// A controller has an address, so its role may be wrong.
    #[error("the controller `{0}` has an address, which only agents have")]
    UnexpectedAddress(Name),
}

/// Why a list was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// An active peer has the name.
    #[error("the name `{0}` is in use: choose another or revoke it first")]
    NameInUse(Name),
    /// An active peer has the key.
    #[error("this key already has the name `{0}`")]
    KeyInUse(Name),
    /// The key was revoked.
    #[error("the key of `{0}` was revoked: generate a new key")]
    KeyRevoked(Name),
    /// The list is full of active peers.
    #[error("the list has {MAX_PEERS} active peers: revoke one first")]
    ListFull,
    /// No peer has the name.
    #[error("no peer has the name `{0}`")]
    UnknownName(Name),
    /// The peer was revoked before.
    #[error("`{0}` is already revoked")]
    AlreadyRevoked(Name),
}

/// The peers of this host, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList {
    peers: Vec<Peer>,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    peers: Vec<Peer>,
}

/// The version of a file, read first because other versions may have other fields.
#[derive(Deserialize)]
struct FileVersion {
    version: u32,
}

impl PeerList {
    /// Parses a file.
    pub fn parse(text: &[u8]) -> Result<PeerList, ParseError> {
        let FileVersion { version } = serde_json::from_slice(text)?;
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        let File { peers, .. } = serde_json::from_slice(text)?;
        if peers.len() > MAX_PEERS {
            return Err(ParseError::TooManyPeers);
        }
        let mut keys = BTreeSet::new();
        for peer in &peers {
            match (peer.role, &peer.address) {
                (Role::Agent, None) => return Err(ParseError::AddressMissing(peer.name.clone())),
                (Role::Controller, Some(_)) => return Err(ParseError::UnexpectedAddress(peer.name.clone())),
                _ if !keys.insert((peer.role, peer.fingerprint)) => {
                    return Err(ParseError::DuplicateKey(peer.fingerprint));
                }
                _ => {}
            }
        }
        Ok(PeerList { peers })
    }

    /// Returns the contents of a file.
    pub fn to_json(&self) -> String {
        let file = File { version: VERSION, peers: self.peers.clone() };
        let mut text = serde_json::to_string_pretty(&file).expect("a list of peers is JSON");
        text.push('\n');
        text
    }

    /// Returns all entries in the order in which they were added.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Returns the entry of a key, which may be expired or revoked.
    pub fn by_key(&self, role: Role, fingerprint: Fingerprint) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.role == role && peer.fingerprint == fingerprint)
    }

    /// Returns the entry of a name: the active one, otherwise the one added last.
    pub fn by_name(&self, role: Role, name: &Name, now: Timestamp) -> Option<&Peer> {
        let named = self.peers.iter().filter(|peer| peer.role == role && peer.name == *name);
        named.max_by_key(|peer| peer.status(now) == Status::Active)
    }

    /// Adds a peer. An active peer with the same name and key is replaced, and an expired one with the same key. If the
    /// list is full, the oldest revoked or expired entry is removed; its key is then unknown.
    pub fn add(&mut self, peer: Peer, now: Timestamp) -> Result<(), ChangeError> {
        let mut replaced = None;
        for (index, other) in self.peers.iter().enumerate().filter(|(_, other)| other.role == peer.role) {
            let is_same_key = other.fingerprint == peer.fingerprint;
            let is_same_name = other.name == peer.name;
            match other.status(now) {
                Status::Revoked if is_same_key => return Err(ChangeError::KeyRevoked(other.name.clone())),
                Status::Active if is_same_key && !is_same_name => {
                    return Err(ChangeError::KeyInUse(other.name.clone()));
                }
                Status::Active if is_same_name && !is_same_key => {
                    return Err(ChangeError::NameInUse(peer.name));
                }
                Status::Active | Status::Expired if is_same_key => replaced = Some(index),
                _ => {}
            }
        }
        let is_full = self.peers.len() >= MAX_PEERS;
        let oldest = || self.peers.iter().position(|other| other.status(now) != Status::Active);
        if let Some(index) = replaced.or_else(|| is_full.then(oldest).flatten()) {
            self.peers.remove(index);
        } else if is_full {
            return Err(ChangeError::ListFull);
        }
        self.peers.push(peer);
        Ok(())
    }

    /// Revokes every peer with this name, in both roles, and returns their keys.
    pub fn revoke(&mut self, name: &Name, now: Timestamp) -> Result<Vec<Fingerprint>, ChangeError> {
        if !self.peers.iter().any(|peer| peer.name == *name) {
            return Err(ChangeError::UnknownName(name.clone()));
        }
        let named = self.peers.iter_mut().filter(|peer| peer.name == *name && peer.revoked.is_none());
        let revoked = named.map(|peer| {
            peer.revoked = Some(now);
            peer.fingerprint
        });
        let revoked: Vec<Fingerprint> = revoked.collect();
        if revoked.is_empty() { Err(ChangeError::AlreadyRevoked(name.clone())) } else { Ok(revoked) }
    }
}

#[cfg(test)]
mod tests;
