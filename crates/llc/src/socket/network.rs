//! Names of networks.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use thiserror::Error;

use crate::wire::ALL;

/// Highest base port that leaves a port for every station.
const MAX_BASE_PORT: u16 = u16::MAX - (ALL as u16 - 1);

/// A network of stations.
///
/// Text form: `eth:IFNAME`, `udp:GROUP:PORT`, or `udp:GROUP:PORT@ADDRESS` for an interface other than loopback.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// The Ethernet of an interface; needs `CAP_NET_RAW`. Station *n* has the address `02:00:00:00:00:n`.
    Ethernet {
        /// Name of the interface.
        interface: String,
    },
    /// UDP multicast. Frames to station *n* go to the group whose last octet is *n*, broadcasts to the one that ends
    /// with 255; station *n* sends from port `port` + *n*.
    Udp {
        /// A multicast group; its last octet is ignored.
        group: Ipv4Addr,
        /// Port on which all stations listen, up to 65,535 − 254.
        port: u16,
        /// Address of the interface.
        interface: Ipv4Addr,
    },
}

impl Network {
    pub(super) fn group(group: Ipv4Addr, station: u8) -> Ipv4Addr {
        let [a, b, c, _] = group.octets();
        Ipv4Addr::new(a, b, c, station)
    }
}

/// Why a text does not name a network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ParseNetworkError {
    /// Unknown form.
    #[error("a network is eth:IFNAME, udp:GROUP:PORT or udp:GROUP:PORT@ADDRESS, not '{0}'")]
    Form(String),
    /// Not a multicast address.
    #[error("'{0}' is no IPv4 multicast group (224.0.0.0 to 239.255.255.255)")]
    Group(String),
    /// Invalid port.
    #[error("'{0}' is no port from 1 to {most}: station n sends from n ports above", most = MAX_BASE_PORT)]
    Port(String),
    /// Invalid interface address.
    #[error("'{0}' is no IPv4 address")]
    Address(String),
    /// Invalid interface name.
    #[error("'{0}' is no name of an interface")]
    Interface(String),
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Network, ParseNetworkError> {
        let form = || ParseNetworkError::Form(text.into());
        match text.split_once(':').ok_or_else(form)? {
            ("eth", interface) => {
                let fits = (1..16).contains(&interface.len())
                    && !interface.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
                match fits {
                    true => Ok(Network::Ethernet { interface: interface.into() }),
                    false => Err(ParseNetworkError::Interface(interface.into())),
                }
            }
            ("udp", rest) => {
                let (place, interface) = match rest.split_once('@') {
                    Some((place, address)) => {
                        (place, address.parse().map_err(|_| ParseNetworkError::Address(address.into()))?)
                    }
                    None => (rest, Ipv4Addr::LOCALHOST),
                };
                let (group, port) = place.rsplit_once(':').ok_or_else(form)?;
                let of_group = group.parse().ok().filter(Ipv4Addr::is_multicast);
                let of_port = port.parse().ok().filter(|port| (1..=MAX_BASE_PORT).contains(port));
                Ok(Network::Udp {
                    group: of_group.ok_or_else(|| ParseNetworkError::Group(group.into()))?,
                    port: of_port.ok_or_else(|| ParseNetworkError::Port(port.into()))?,
                    interface,
                })
            }
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Ethernet { interface } => write!(f, "eth:{interface}"),
            Network::Udp { group, port, interface: Ipv4Addr::LOCALHOST } => write!(f, "udp:{group}:{port}"),
            Network::Udp { group, port, interface } => write!(f, "udp:{group}:{port}@{interface}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_written() {
        for text in ["eth:lo", "eth:enp0s31f6", "udp:239.1.2.0:5000", "udp:224.0.0.9:65281@10.0.0.1"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<Network>().unwrap_err();
        assert_eq!(error("lo"), ParseNetworkError::Form("lo".into()));
        assert_eq!(error("tcp:1.2.3.4:5"), ParseNetworkError::Form("tcp:1.2.3.4:5".into()));
        assert_eq!(error("udp:239.1.2.0"), ParseNetworkError::Form("udp:239.1.2.0".into()));
        assert_eq!(error("udp:10.1.2.0:5000"), ParseNetworkError::Group("10.1.2.0".into()));
        assert_eq!(error("udp:239.1.2.0:65282"), ParseNetworkError::Port("65282".into()));
        assert_eq!(error("udp:239.1.2.0:0"), ParseNetworkError::Port("0".into()));
        assert_eq!(error("udp:239.1.2.0:5000@eth0"), ParseNetworkError::Address("eth0".into()));
        for name in ["", "a name", "../x", "longer.than.fifteen"] {
            assert_eq!(error(&format!("eth:{name}")), ParseNetworkError::Interface(name.into()));
        }
    }
}
