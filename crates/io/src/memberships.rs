//! [`Memberships`]: very many multicast groups of one interface, heard through one socket.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

use crate::socket::{self, SocketError, Step};

/// Groups that the system lets a socket join unless it is told otherwise (`igmp_max_memberships`).
const A_HOLDER: usize = 20;

/// Groups that are joined on one interface by sockets which receive nothing: each holds 20, which asks for no rights and no
/// settings of the system. What comes is heard by a socket of [`hearing`], which gets all groups that anybody on this machine
/// has joined: who hears it looks [where it was sent to](crate::ports::Came::to).
#[derive(Debug)]
pub struct Memberships {
    index: u32,
    holders: Vec<Holder>,
    /// By which holder.
    groups: BTreeMap<Ipv4Addr, usize>,
}

#[derive(Debug)]
struct Holder {
    socket: Socket,
    held: usize,
    most: usize,
}

impl Memberships {
    /// None yet, on the interface that has this address.
    ///
    /// # Errors
    /// If no interface has it.
    pub fn new(interface: Ipv4Addr) -> Result<Memberships, SocketError> {
        let index = socket::interface_index(IpAddr::V4(interface));
        if index == 0 {
            let (step, address) = (Step::Bind, SocketAddr::from((interface, 0)));
            return Err(SocketError { step, address, cause: io::ErrorKind::AddrNotAvailable.into() });
        }
        Ok(Memberships { index, holders: Vec::new(), groups: BTreeMap::new() })
    }

    /// The interface, as the system numbers them.
    pub fn interface(&self) -> u32 {
        self.index
    }

    /// Whether a group is joined.
    #[inline]
    pub fn has(&self, group: Ipv4Addr) -> bool {
        self.groups.contains_key(&group)
    }

    /// How many groups are joined.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Joins a group, unless it is joined.
    ///
    /// # Errors
    /// What the system says.
    pub fn join(&mut self, group: Ipv4Addr) -> io::Result<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let on = InterfaceIndexOrAddress::Index(self.index);
        loop {
            let at = match self.holders.iter().position(|holder| holder.held < holder.most) {
                Some(at) => at,
                None => {
                    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
                    self.holders.push(Holder { socket, held: 0, most: A_HOLDER });
                    self.holders.len() - 1
                }
            };
            let holder = &mut self.holders[at];
            match holder.socket.join_multicast_v4_n(&group, &on) {
                Ok(()) => {
                    holder.held += 1;
                    self.groups.insert(group, at);
                    return Ok(());
                }
                // This system lets a socket join fewer.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) && holder.held > 0 => {
                    holder.most = holder.held
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Leaves a group, if it is joined.
    ///
    /// # Errors
    /// What the system says; it is not counted any more.
    pub fn leave(&mut self, group: Ipv4Addr) -> io::Result<()> {
        let Some(at) = self.groups.remove(&group) else { return Ok(()) };
        let holder = &mut self.holders[at];
        holder.held -= 1;
        holder.socket.leave_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(self.index))
    }
}

/// A socket that hears `port` for whatever groups are joined on this machine. It shares the port with all that share it
/// (`SO_REUSEADDR` and `SO_REUSEPORT`): each of them hears every message to a group; what is sent to an address of this
/// machine only one of them gets.
///
/// # Errors
/// If somebody has the port for himself, or what else the system says.
pub fn hearing(port: u16, options: &socket::Options) -> Result<UdpSocket, SocketError> {
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let failed = |step| move |cause| SocketError { step, address: address.into(), cause };
    let socket = socket::open(address.into(), Type::DGRAM, Protocol::UDP, options)?;
    socket.set_reuse_address(true).map_err(failed(Step::Open))?;
    socket.set_reuse_port(true).map_err(failed(Step::Open))?;
    socket.set_multicast_all_v4(true).map_err(failed(Step::Open))?;
    socket.bind(&address.into()).map_err(failed(Step::Bind))?;
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
    fn many_groups_are_heard_through_one_socket_and_told_apart() {
        let clock = Clock::start();
        let mut memberships = Memberships::new(Ipv4Addr::LOCALHOST).unwrap();
        (0..50).for_each(|number| memberships.join(group(number)).unwrap());
        memberships.join(group(0)).unwrap();
        assert_eq!((memberships.len(), memberships.holders.len()), (50, 3));
        // Somebody else on this machine.
        let mut other = Memberships::new(Ipv4Addr::LOCALHOST).unwrap();
        other.join(group(200)).unwrap();
        let mut ports = Ports::new(clock).unwrap();
        // Both share the port, and both hear everything.
        let options = socket::Options::default();
        let hears = [(); 2].map(|()| ports.add(hearing(PORT, &options).unwrap()).unwrap());
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
        assert_eq!((memberships.len(), memberships.holders.len()), (50, 3), "what is free is used again");
    }

    #[test]
    fn an_address_of_no_interface_is_named() {
        let error = Memberships::new(Ipv4Addr::new(192, 0, 2, 1)).unwrap_err();
        assert_eq!(error.to_string(), "192.0.2.1 is not an address of this machine");
    }
}
