//! Flags of `trunkline agent` and `trunkline keys`.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use trunkline_units::Span;

use super::values::{long_span, rate, size};

/// The key store.
#[derive(Debug, Clone, Args)]
pub struct KeyDirectory {
    /// The key store, a folder that only you may read [default: trunkline/keys in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_KEYS", hide_env_values = true, value_hint = ValueHint::DirPath)]
    pub keys: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Agent {
    /// Address to listen on; port 0 selects a free port; ignored if systemd passes a socket
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7600")]
    pub listen: SocketAddr,
    /// Address at which controllers reach this agent, for join strings [default: the address listened on]
    #[arg(long, value_name = "HOST:PORT", value_hint = ValueHint::Hostname)]
    pub address: Option<String>,
    #[command(flatten)]
    pub keys: KeyDirectory,
    /// How long a join string is valid
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = long_span)]
    pub join_lifetime: Span,
    /// Do not print a join string
    #[arg(long)]
    pub no_join: bool,
    /// Print a new join string of the agent that runs with this key store; the one before becomes void
    #[arg(long, conflicts_with_all = ["listen", "address", "join_lifetime", "no_join"])]
    pub join: bool,
    #[command(flatten)]
    pub limits: OwnerLimits,
    /// Run one host of a live experiment over standard input, which must be a socket (internal)
    #[arg(long, hide = true, requires = "host")]
    pub stdio: bool,
    /// Name of the host, shown in process lists
    #[arg(hide = true, requires = "stdio")]
    pub host: Option<String>,
    /// What the owner of the host permits, as JSON (internal)
    #[arg(long = "limits", hide = true, requires = "stdio", value_name = "JSON", default_value = "{}")]
    pub host_limits: String,
}

/// What an agent permits. Each can also be a key of the file.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What controllers may do")]
pub struct OwnerLimits {
    /// Read these limits from a TOML file; each key is the name of a flag, without dashes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
    /// Rate of all messages that a run sends, without headers of lower layers [default: 1G]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub max_rate: Option<u64>,
    /// Message bytes that one end of a connection sends [default: 100GB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_bytes: Option<u64>,
    /// How long one end of a connection sends [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = long_span)]
    pub max_duration: Option<Span>,
    /// Open ends of connections of a run [default: 512]
    #[arg(long, value_name = "N")]
    pub max_ends: Option<u16>,
    /// Memory of the process of a run [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_memory: Option<u64>,
    /// Runs at a time; one controller has at most one less [default: 8]
    #[arg(long, value_name = "N")]
    pub max_runs: Option<u16>,
    /// Ports of receivers and of consent, for a firewall; at least one more than there are receivers [default: the
    /// system chooses]
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports)]
    pub ports: Option<RangeInclusive<u16>>,
    /// Permit messages to these multicast groups, e.g. 239.1.0.0/16 [default: none]
    #[arg(long = "allow-group", value_name = "NETWORK", value_parser = groups)]
    pub allow_groups: Vec<(IpAddr, u8)>,
    /// Folder with the files that `file` tests may send [default: none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub send_folder: Option<PathBuf>,
    /// Folder for the files that `file` tests receive [default: none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub receive_folder: Option<PathBuf>,
}

/// Parses a range of ports.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let expected = "expected a range of ports such as 20000-20100";
    let (first, last) = text.split_once('-').ok_or(expected)?;
    let parse = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = parse(first).zip(parse(last)).ok_or(expected)?;
    if first < last { Ok(first..=last) } else { Err(expected.into()) }
}

/// Parses a network of multicast groups.
fn groups(text: &str) -> Result<(IpAddr, u8), String> {
    let expected = "expected multicast groups such as 239.1.0.0/16";
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let address: IpAddr = address.parse().map_err(|_| expected)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { max } else { length.parse().map_err(|_| expected)? };
    // A shorter prefix would contain other addresses than groups.
    let min = if address.is_ipv4() { 4 } else { 8 };
    if address.is_multicast() && (min..=max).contains(&length) {
        Ok((address, length))
    } else {
        Err(expected.into())
    }
}

#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    pub action: KeysAction,
}

#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// Enrol at an agent with its join string, and add the agent to the key store
    ///
    /// Exit status: 0 on success, 1 if the agent does not answer or refuses, 2 if the input or the usage is wrong.
    Add {
        /// Name for the agent, with ASCII letters, digits, `-`, `_` and `.`
        name: String,
        /// The line that `trunkline agent` has printed; `-` reads it from standard input, which keeps it out of the
        /// history of the shell
        string: String,
        /// Name of this controller at the agent [default: the host name]
        #[arg(long = "as", value_name = "OWN_NAME")]
        own_name: Option<String>,
        #[command(flatten)]
        keys: KeyDirectory,
    },
    /// List the agents and controllers in the key store
    List {
        /// Print one JSON object per agent or controller
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        keys: KeyDirectory,
    },
    /// Revoke the agent and the controller with this name, at once and for ever
    Revoke {
        /// The name
        name: String,
        #[command(flatten)]
        keys: KeyDirectory,
    },
    /// Print the fingerprint of your own key: the SHA-256 of the public key
    Show {
        /// Print the certificate, as PEM, instead
        #[arg(long)]
        certificate: bool,
        #[command(flatten)]
        keys: KeyDirectory,
    },
}
