//! A TUN or TAP device: a network interface whose other end is this process. Each call carries one IP packet, or one Ethernet
//! frame without its FCS.

mod group_routes;
mod netlink;

pub use group_routes::GroupRoutes;

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::ifreq;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags};
use nix::sys::stat::Mode;
use trunkline_units::{Instant, Span};

use crate::Clock;
use crate::socket::poll;

/// System calls.
mod call {
    #![allow(missing_docs, reason = "what the macro makes cannot be given any")]

    use libc::ifreq;

    nix::ioctl_write_ptr_bad!(set_interface, libc::TUNSETIFF, ifreq);
    nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, ifreq);
    nix::ioctl_write_ptr_bad!(set_mask, libc::SIOCSIFNETMASK, ifreq);
    nix::ioctl_write_ptr_bad!(set_mtu, libc::SIOCSIFMTU, ifreq);
    nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, ifreq);
    nix::ioctl_readwrite_bad!(get_flags, libc::SIOCGIFFLAGS, ifreq);
}

/// A non-blocking Linux TUN or TAP device without the packet information header. Dropping it removes the interface.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Creates the device `name` in this process's network namespace; `%d` in the name is replaced by the next free
    /// number. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// If the name has more than 15 bytes, the device exists, or the system refuses.
    pub fn open(name: &str) -> io::Result<Tun> {
        Tun::create(name, libc::IFF_TUN)
    }

    /// Creates the device `name` as [`Tun::open`] does, for Ethernet frames (TAP).
    ///
    /// # Errors
    /// Those of [`Tun::open`].
    pub fn open_ethernet(name: &str) -> io::Result<Tun> {
        Tun::create(name, libc::IFF_TAP)
    }

    fn create(name: &str, kind: libc::c_int) -> io::Result<Tun> {
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(open("/dev/net/tun", flags, Mode::empty())?);
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (kind | libc::IFF_NO_PI) as i16;
        // SAFETY: the descriptor is open and the request is whole; the call writes the name it gave into it.
        unsafe { call::set_interface(file.as_raw_fd(), &raw const request)? };
        let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect();
        Ok(Tun { file, name })
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Assigns the kernel's end an address with a prefix length and an MTU in bytes, and brings the interface up.
    /// This process plays all other hosts of that network.
    ///
    /// # Errors
    /// If the prefix exceeds 32 bits, or other system errors.
    pub fn set_up(&self, address: Ipv4Addr, prefix: u8, mtu: u16) -> io::Result<()> {
        let mask = match prefix {
            0 => 0,
            1..=32 => u32::MAX << (32 - prefix),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?; // any socket will do
        let descriptor = socket.as_raw_fd();
        let mut request = request(&self.name)?;
        // SAFETY: each request is whole and holds what its call reads; the socket is open throughout.
        unsafe {
            request.ifr_ifru.ifru_addr = socket_address(address);
            call::set_address(descriptor, &raw const request)?;
            request.ifr_ifru.ifru_netmask = socket_address(Ipv4Addr::from_bits(mask));
            call::set_mask(descriptor, &raw const request)?;
        }
        self.set_up_without_address(mtu)
    }

    /// Sets the MTU in bytes and brings the interface up.
    ///
    /// # Errors
    /// System errors.
    pub fn set_up_without_address(&self, mtu: u16) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?; // any socket will do
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_mtu = i32::from(mtu);
        // SAFETY: the request is whole and the socket is open.
        unsafe { call::set_mtu(socket.as_raw_fd(), &raw const request)? };
        bring_up(&self.name)
    }

    /// Sets how many packets of the kernel wait to be read; further ones are lost. The kernel's default is 500.
    ///
    /// # Errors
    /// System errors.
    pub fn set_queue_length(&self, packets: u32) -> io::Result<()> {
        netlink::set_queue_length(&self.name, packets)
    }

    /// Gives the kernel's end a second address, of IPv6, with a prefix length. The interface is up and its MTU at least 1,280
    /// bytes. Where a name has addresses of both families, programs prefer IPv4: the address is marked as deprecated.
    ///
    /// # Errors
    /// System errors.
    pub fn add_ipv6(&self, address: Ipv6Addr, prefix: u8) -> io::Result<()> {
        netlink::add_address(&self.name, address, prefix)
    }

    /// Reads the next packet into `buffer` and returns its length; `None` if none is queued. A longer packet is
    /// truncated.
    ///
    /// # Errors
    /// System errors.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Delivers a packet to the kernel as if it had arrived at the interface. Returns false if the kernel's queue is
    /// full and the packet is lost.
    ///
    /// # Errors
    /// System errors, for example for data that is not an IP packet.
    pub fn write(&self, packet: &[u8]) -> io::Result<bool> {
        match (&self.file).write(packet) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until a packet can be read or `until` has passed, forever without `until`; returns true for a packet.
    ///
    /// # Errors
    /// System errors.
    pub fn wait(&self, clock: Clock, until: Option<Instant>) -> io::Result<bool> {
        loop {
            let left = until.map(|at| at.since(clock.now()));
            if poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)], left)? {
                return Ok(true);
            }
            if left.is_some_and(Span::is_zero) {
                return Ok(false);
            }
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Routes packets to a host through the interface `name` of this thread's network namespace.
///
/// # Errors
/// If there is no such interface or there is such a route already, or other system errors.
pub fn add_host_route(name: &str, host: impl Into<IpAddr>) -> io::Result<()> {
    let host = host.into();
    let bits = if host.is_ipv4() { 32 } else { 128 };
    netlink::add_route(name, host, bits)
}

/// Routes packets to multicast groups of IPv4 through the interface `name` of this thread's network namespace, where the sender
/// does not choose one. For IPv6 each interface has such a route.
///
/// # Errors
/// As [`add_host_route`].
pub fn add_group_route(name: &str) -> io::Result<()> {
    netlink::add_route(name, Ipv4Addr::new(224, 0, 0, 0).into(), 4)
}

/// Brings the interface `name` of this thread's network namespace up.
///
/// # Errors
/// If there is none, or other system errors.
pub fn bring_up(name: &str) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut request = request(name)?;
    // SAFETY: the request is whole and holds what each call reads; the socket is open throughout.
    unsafe {
        call::get_flags(socket.as_raw_fd(), &raw mut request)?;
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        call::set_flags(socket.as_raw_fd(), &raw const request)?;
    }
    Ok(())
}

/// Returns an otherwise empty request for the interface `name`.
fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: an interface request is plain numbers and bytes, for which all zeros are values.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Converts an address to the form used in requests.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_refused() {
        for name in ["0123456789abcdef", "a\0b"] {
            assert_eq!(Tun::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
