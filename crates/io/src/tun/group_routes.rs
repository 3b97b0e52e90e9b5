//! Static multicast routes of the kernel (`MRT_*` of `linux/mroute.h`), as a multicast routing daemon sets them.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Socket, Type};

/// Most interfaces of a router (`MAXVIFS`).
const MAX_INTERFACES: usize = 32;
const MRT_INIT: libc::c_int = 200;
const MRT_ADD_VIF: libc::c_int = 202;
const MRT_ADD_MFC: libc::c_int = 204;
const VIFF_USE_IFINDEX: u8 = 8;

/// `struct vifctl`.
#[repr(C)]
struct Interface {
    number: u16,
    flags: u8,
    threshold: u8,
    rate_limit: libc::c_uint,
    index: libc::c_int,
    remote: [u8; 4],
}

/// `struct mfcctl`.
#[repr(C)]
struct Route {
    source: [u8; 4],
    group: [u8; 4],
    from: u16,
    /// For each interface the least TTL of what leaves there; 0 for nothing.
    thresholds: [u8; MAX_INTERFACES],
    counters: [libc::c_uint; 3],
    expire: libc::c_int,
}

/// The multicast routes of the kernel in a network namespace. They end when this is dropped.
#[derive(Debug)]
pub struct GroupRoutes {
    socket: Socket,
}

impl GroupRoutes {
    /// Makes the kernel of this thread's network namespace forward multicast between these interfaces, whose numbers are those of
    /// their places in the list.
    ///
    /// # Errors
    /// `InvalidInput` for more than 32 interfaces; `AddrInUse` if there is another multicast router; or other system errors.
    pub fn open(interfaces: &[String]) -> io::Result<GroupRoutes> {
        if interfaces.len() > MAX_INTERFACES {
            let text = format!("a kernel forwards groups between at most {MAX_INTERFACES} interfaces");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(libc::IPPROTO_IGMP.into()))?;
        let routes = GroupRoutes { socket };
        routes.set(MRT_INIT, &1 as &libc::c_int)?;
        for (number, name) in (0..).zip(interfaces) {
            let index = if_nametoindex(name.as_str())? as libc::c_int;
            let (flags, remote) = (VIFF_USE_IFINDEX, [0; 4]);
            let interface = Interface { number, flags, threshold: 1, rate_limit: 0, index, remote };
            routes.set(MRT_ADD_VIF, &interface)?;
        }
        Ok(routes)
    }

    /// Forwards what `source` sends to `group` from interface `from` to the interfaces `to`.
    ///
    /// # Errors
    /// System errors.
    pub fn add(&self, source: Ipv4Addr, group: Ipv4Addr, from: u16, to: &[u16]) -> io::Result<()> {
        let (source, group) = (source.octets(), group.octets());
        let mut thresholds = [0; MAX_INTERFACES];
        to.iter().for_each(|to| thresholds[usize::from(*to)] = 1);
        self.set(MRT_ADD_MFC, &Route { source, group, from, thresholds, counters: [0; 3], expire: 0 })
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the value lives until the call returns, and the length is its own; the kernel only reads it.
        let result = unsafe {
            let value = std::ptr::from_ref(value).cast();
            libc::setsockopt(self.socket.as_raw_fd(), libc::IPPROTO_IP, option, value, length)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
