//! Host and port of an agent.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Maximum length of a host name in octets (RFC 1035, section 2.3.4).
const MAX_HOST: usize = 253;

/// A host name or IP address with a port: `lab7.example:7600`, `192.0.2.7:7600`, `[2001:db8::7]:7600`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Address {
    host: String,
    port: u16,
}

/// The text is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address is a host name or an IP address and a port, such as `lab7.example:7600` or `[::1]:7600`")]
pub struct InvalidAddress;

impl Address {
    /// Returns the host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, which is not 0.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Returns whether the text is a host name (RFC 1123, section 2.1). A name that ends in digits would be a mistyped
/// IP address.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let has_valid_characters = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        (1..=63).contains(&label.len())
            && has_valid_characters
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_HOST
        && text.split('.').all(is_label)
        && !(text.contains('.') && last.bytes().all(|c| c.is_ascii_digit()))
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Address, InvalidAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(InvalidAddress)?;
        let has_only_digits = port.bytes().all(|c| c.is_ascii_digit());
        let port = port.parse().ok().filter(|port| has_only_digits && *port != 0).ok_or(InvalidAddress)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(host) => host.parse::<Ipv6Addr>().map_err(|_| InvalidAddress)?.to_string(),
            None if host.parse::<Ipv4Addr>().is_ok() || is_host_name(host) => host.to_owned(),
            None => return Err(InvalidAddress),
        };
        Ok(Address { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = InvalidAddress;

    fn try_from(text: String) -> Result<Address, InvalidAddress> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_with_ports() {
        for text in ["lab7:1", "lab7.example:7600", "192.0.2.7:65535", "[2001:db8::7]:7600", "7:7600"] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.into()));
        }
        for wrong in [
            "",
            "lab7",
            ":7600",
            "lab7:",
            "lab7:0",
            "lab7:+1",
            "lab7:65536",
            "192.0.2.256:1",
            "2001:db8::7:7600",
            "[lab7]:1",
            "a..b:1",
            "-a:1",
            "a b:1",
            "ä:1",
            &format!("{}:1", "a".repeat(64)),
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(InvalidAddress), "{wrong}");
        }
    }
}
