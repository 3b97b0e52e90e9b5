//! [`Memberships`]: any number of multicast groups on one interface, received through one socket.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::socket::{self, SocketError, Step, at};

/// Default limit of groups per socket (`igmp_max_memberships`).
const MAX_PER_SOCKET: usize = 20;

/// Multicast groups joined on one interface. Each internal socket holds 20 memberships and receives nothing, so no
/// privileges or sysctl settings are needed. A socket of [`shared_port`] receives all groups joined on this machine;
/// its reader checks the [destination](crate::ports::Received::to).
#[derive(Debug)]
pub struct Memberships {
    index: u32,
    sockets: Vec<MembershipSocket>,
    /// Groups, with the index of the socket that joined each.
    groups: BTreeMap<Ipv4Addr, usize>,
}

#[derive(Debug)]
struct MembershipSocket {
    socket: Socket,
    joined: usize,
    limit: usize,
}

impl Memberships {
    /// Creates an empty set on the interface with this address; with an unspecified one, each group is joined on the interface
    /// to which it is routed.
    ///
    /// # Errors
    /// If no interface has the address.
    pub fn new(interface: Ipv4Addr) -> Result<Memberships, SocketError> {
        let index = socket::interface_index(IpAddr::V4(interface));
        if index == 0 && !interface.is_unspecified() {
            let fail = at(Step::Bind, (interface, 0).into());
            return Err(fail(io::ErrorKind::AddrNotAvailable.into()));
        }
        Ok(Memberships { index, sockets: Vec::new(), groups: BTreeMap::new() })
    }

    /// Returns the interface index; 0 if the routes choose interfaces.
    pub fn interface(&self) -> u32 {
        self.index
    }

    /// Returns whether a group is joined.
    #[inline]
    pub fn has(&self, group: Ipv4Addr) -> bool {
        self.groups.contains_key(&group)
    }

    /// Returns the number of joined groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns whether no group is joined.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Joins a group; does nothing if it is joined already.
    ///
    /// # Errors
    /// System errors.
    pub fn join(&mut self, group: Ipv4Addr) -> io::Result<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let on = InterfaceIndexOrAddress::Index(self.index);
        loop {
            let at = match self.sockets.iter().position(|holder| holder.joined < holder.limit) {
                Some(at) => at,
                None => {
                    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
                    self.sockets.push(MembershipSocket { socket, joined: 0, limit: MAX_PER_SOCKET });
                    self.sockets.len() - 1
                }
            };
            let holder = &mut self.sockets[at];
            match holder.socket.join_multicast_v4_n(&group, &on) {
                Ok(()) => {
                    holder.joined += 1;
                    self.groups.insert(group, at);
                    return Ok(());
                }
                // This system allows fewer memberships per socket.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) && holder.joined > 0 => {
                    holder.limit = holder.joined
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Leaves a group; does nothing if it is not joined.
    ///
    /// # Errors
    /// System errors; the group counts as left.
    pub fn leave(&mut self, group: Ipv4Addr) -> io::Result<()> {
        let Some(at) = self.groups.remove(&group) else { return Ok(()) };
        let holder = &mut self.sockets[at];
        holder.joined -= 1;
        holder.socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(self.index))
    }
}

/// Opens a socket that receives on `port` from all groups joined on this machine. It shares the port (`SO_REUSEADDR`
/// and `SO_REUSEPORT`): every sharing socket receives each multicast datagram; a unicast datagram reaches only one of
/// them.
///
/// # Errors
/// If the port is in use without sharing, or other system errors; [`io::ErrorKind::Unsupported`] on other systems than
/// Linux.
pub fn shared_port(port: u16, options: &socket::Options) -> Result<UdpSocket, SocketError> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let socket = socket::open(address, Type::DGRAM, Protocol::UDP, options)?;
    let fail = at(Step::Open, address);
    socket.set_reuse_address(true).map_err(&fail)?;
    socket.set_reuse_port(true).map_err(&fail)?;
    socket::set_multicast_all(&socket, true).map_err(&fail)?;
    socket.bind(&address.into()).map_err(at(Step::Bind, address))?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use crate::ports::Ports;
    use trunkline_endpoint::Segment;

    const PORT: u16 = 27_320;

    fn group(number: u16) -> Ipv4Addr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(239, 77, 100 + high, low)
    }

    #[test]
    fn one_socket_receives_many_groups_with_their_destinations() {
        let clock = Clock::start();
        let mut memberships = Memberships::new(Ipv4Addr::LOCALHOST).unwrap();
        (0..50).for_each(|number| memberships.join(group(number)).unwrap());
        memberships.join(group(0)).unwrap();
        assert_eq!((memberships.len(), memberships.sockets.len()), (50, 3));
        // Another program on this machine.
        let mut other = Memberships::new(Ipv4Addr::LOCALHOST).unwrap();
        other.join(group(200)).unwrap();
        let mut ports = Ports::new(clock).unwrap();
        // Both share the port and receive everything.
        let options = socket::Options::default();
        let hears = [(); 2].map(|()| ports.add(shared_port(PORT, &options).unwrap()).unwrap());
        let says = socket::multicast_sender(Ipv4Addr::LOCALHOST.into(), 1, &options);
        let says = says.unwrap();
        memberships.leave(group(1)).unwrap();
        memberships.leave(group(1)).unwrap();
        for number in [0u16, 1, 19, 20, 49, 50, 200] {
            says.send_to(&number.to_be_bytes(), (group(number), PORT)).unwrap();
        }
        for port in hears {
            let mut got = Vec::new();
            while got.len() < 5 {
                ports.wait(clock.now(), None).unwrap();
                ports
                    .receive(port, 32, |came, bytes| {
                        assert_eq!(came.interface, Some(memberships.interface()));
                        for bytes in Segment::frames(came.segment, bytes) {
                            got.push((came.to, u16::from_be_bytes([bytes[0], bytes[1]])));
                        }
                    })
                    .unwrap();
            }
            let sent = [0, 19, 20, 49, 200].map(|number| (Some(group(number).into()), number));
            assert_eq!(got, sent, "those that were joined, and where they were sent to");
        }
        memberships.join(group(300)).unwrap();
        assert_eq!((memberships.len(), memberships.sockets.len()), (50, 3), "what is free is used again");
    }

    #[test]
    fn unknown_interface_address_is_named() {
        let error = Memberships::new(Ipv4Addr::new(192, 0, 2, 1)).unwrap_err();
        assert_eq!(error.to_string(), "192.0.2.1 is not an address of this machine");
    }
}
