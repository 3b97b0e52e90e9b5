//! Where stations are: what a network is called.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use thiserror::Error;

use crate::wire::ALL;

/// The last port above which there is one for each station.
const MOST: u16 = u16::MAX - (ALL as u16 - 1);

/// A network of stations.
///
/// As text: `eth:IFNAME`, `udp:GROUP:PORT`, or `udp:GROUP:PORT@ADDRESS` for another interface than the loopback's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// The Ethernet of an interface; needs the right to open packet sockets (`CAP_NET_RAW`). Station *n* is
    /// `02:00:00:00:00:n` on it.
    Ethernet {
        /// The name of the interface.
        interface: String,
    },
    /// UDP multicast. What is for station *n* goes to the group whose last number is *n*, what is for all to the one that
    /// ends with 255, and comes from port `port` + *n*.
    Udp {
        /// A multicast group. Its last number does not matter.
        group: Ipv4Addr,
        /// Where all of them listen, up to 65,535 − 254.
        port: u16,
        /// The address of the interface that is used.
        interface: Ipv4Addr,
    },
}

impl Network {
    /// The group of a station, or of [all](ALL).
    pub(super) fn group(group: Ipv4Addr, station: u8) -> Ipv4Addr {
        let [a, b, c, _] = group.octets();
        Ipv4Addr::new(a, b, c, station)
    }
}

/// Why a text is no network.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoNetwork {
    /// It has another form.
    #[error("a network is eth:IFNAME, udp:GROUP:PORT or udp:GROUP:PORT@ADDRESS, not '{0}'")]
    Form(String),
    /// The address is none of a group.
    #[error("'{0}' is no IPv4 multicast group (224.0.0.0 to 239.255.255.255)")]
    Group(String),
    /// The port leaves no room for stations.
    #[error("'{0}' is no port from 1 to {most}: station n sends from n ports above", most = MOST)]
    Port(String),
    /// The address of the interface is none.
    #[error("'{0}' is no IPv4 address")]
    Address(String),
    /// The interface has no name that one could have.
    #[error("'{0}' is no name of an interface")]
    Interface(String),
}

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Network, NoNetwork> {
        let form = || NoNetwork::Form(text.into());
        match text.split_once(':').ok_or_else(form)? {
            ("eth", interface) => {
                let fits = (1..16).contains(&interface.len())
                    && !interface.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
                match fits {
                    true => Ok(Network::Ethernet { interface: interface.into() }),
                    false => Err(NoNetwork::Interface(interface.into())),
                }
            }
            ("udp", rest) => {
                let (place, interface) = match rest.split_once('@') {
                    Some((place, address)) => {
                        (place, address.parse().map_err(|_| NoNetwork::Address(address.into()))?)
                    }
                    None => (rest, Ipv4Addr::LOCALHOST),
                };
                let (group, port) = place.rsplit_once(':').ok_or_else(form)?;
                let of_group = group.parse().ok().filter(Ipv4Addr::is_multicast);
                let of_port = port.parse().ok().filter(|port| (1..=MOST).contains(port));
                Ok(Network::Udp {
                    group: of_group.ok_or_else(|| NoNetwork::Group(group.into()))?,
                    port: of_port.ok_or_else(|| NoNetwork::Port(port.into()))?,
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
        assert_eq!(error("lo"), NoNetwork::Form("lo".into()));
        assert_eq!(error("tcp:1.2.3.4:5"), NoNetwork::Form("tcp:1.2.3.4:5".into()));
        assert_eq!(error("udp:239.1.2.0"), NoNetwork::Form("udp:239.1.2.0".into()));
        assert_eq!(error("udp:10.1.2.0:5000"), NoNetwork::Group("10.1.2.0".into()));
        assert_eq!(error("udp:239.1.2.0:65282"), NoNetwork::Port("65282".into()));
        assert_eq!(error("udp:239.1.2.0:0"), NoNetwork::Port("0".into()));
        assert_eq!(error("udp:239.1.2.0:5000@eth0"), NoNetwork::Address("eth0".into()));
        for name in ["", "a name", "../x", "longer.than.fifteen"] {
            assert_eq!(error(&format!("eth:{name}")), NoNetwork::Interface(name.into()));
        }
    }
}
