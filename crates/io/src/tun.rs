//! A TUN device: a network interface whose other end is this process. Each call carries one IP packet.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libc::ifreq;
use nix::fcntl::{OFlag, open};
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, socket};
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
    nix::ioctl_write_ptr_bad!(add_route, libc::SIOCADDRT, super::RouteEntry);
    nix::ioctl_readwrite_bad!(get_flags, libc::SIOCGIFFLAGS, ifreq);
}

/// A non-blocking Linux TUN device without the packet information header. Dropping it removes the interface.
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
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(open("/dev/net/tun", flags, Mode::empty())?);
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
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
            request.ifr_ifru.ifru_mtu = i32::from(mtu);
            call::set_mtu(descriptor, &raw const request)?;
        }
        bring_up(&self.name)
    }

    /// Sets how many packets of the kernel wait to be read; further ones are lost. The kernel's default is 500.
    ///
    /// # Errors
    /// System errors.
    pub fn set_queue_length(&self, packets: u32) -> io::Result<()> {
        let index = if_nametoindex(self.name.as_str())?;
        // By netlink: the ioctl needs privileges outside of a user namespace too.
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        nix::sys::socket::send(socket.as_raw_fd(), &queue_length_request(index, packets), MsgFlags::empty())?;
        let mut answer = [0; 64];
        let length = nix::sys::socket::recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        acknowledgement(&answer[..length])
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

/// `struct rtentry` of Linux.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RouteEntry {
    pad1: libc::c_ulong,
    destination: libc::sockaddr,
    gateway: libc::sockaddr,
    mask: libc::sockaddr,
    flags: libc::c_ushort,
    pad2: libc::c_short,
    pad3: libc::c_ulong,
    pad4: *mut libc::c_void,
    metric: libc::c_short,
    device: *mut libc::c_char,
    mtu: libc::c_ulong,
    window: libc::c_ulong,
    initial_rtt: libc::c_ushort,
}

/// Routes packets to a host through the interface `name` of this thread's network namespace.
///
/// # Errors
/// If there is no such interface, or other system errors.
pub fn add_host_route(name: &str, host: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let mut device = std::ffi::CString::new(name)?.into_bytes_with_nul();
    let unspecified = socket_address(Ipv4Addr::UNSPECIFIED);
    let route = RouteEntry {
        pad1: 0,
        destination: socket_address(host),
        gateway: unspecified,
        mask: socket_address(Ipv4Addr::BROADCAST),
        flags: libc::RTF_UP | libc::RTF_HOST,
        pad2: 0,
        pad3: 0,
        pad4: std::ptr::null_mut(),
        metric: 0,
        device: device.as_mut_ptr().cast(),
        mtu: 0,
        window: 0,
        initial_rtt: 0,
    };
    // SAFETY: the route is whole, and the name that it points to lives until the call returns.
    unsafe { call::add_route(socket.as_raw_fd(), &raw const route)? };
    Ok(())
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

/// Returns the message that sets the queue length of an interface (`rtnetlink(7)`): header, `ifinfomsg`, one attribute.
fn queue_length_request(index: u32, packets: u32) -> [u8; 40] {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u32;
    let attribute = u32::from_ne_bytes({
        let ([a, b], [c, d]) = (8u16.to_ne_bytes(), libc::IFLA_TXQLEN.to_ne_bytes());
        [a, b, c, d]
    });
    let kind = u32::from_ne_bytes({
        let ([a, b], [c, d]) = (libc::RTM_SETLINK.to_ne_bytes(), (flags as u16).to_ne_bytes());
        [a, b, c, d]
    });
    let words = [40, kind, 1, 0, 0, index, 0, 0, attribute, packets];
    let mut message = [0; 40];
    for (to, word) in message.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

/// Reads the answer of netlink to a request that asks for one: a header with the type at byte 4, and an `nlmsgerr`, which begins
/// with the negated error, or 0.
fn acknowledgement(answer: &[u8]) -> io::Result<()> {
    let (kind, error) = match answer {
        [_, _, _, _, k0, k1, _, _, _, _, _, _, _, _, _, _, e0, e1, e2, e3, ..] => {
            (u16::from_ne_bytes([*k0, *k1]), i32::from_ne_bytes([*e0, *e1, *e2, *e3]))
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    match (i32::from(kind), error) {
        (libc::NLMSG_ERROR, 0) => Ok(()),
        (libc::NLMSG_ERROR, ..0) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
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
    fn an_answer_that_is_no_acknowledgement_is_an_error() {
        let answer = |kind: i32, error: i32| {
            let mut answer = [0; 36];
            answer[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
            answer[16..20].copy_from_slice(&error.to_ne_bytes());
            answer
        };
        assert!(acknowledgement(&answer(libc::NLMSG_ERROR, 0)).is_ok());
        let refused = acknowledgement(&answer(libc::NLMSG_ERROR, -libc::EPERM)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        for other in [&answer(libc::NLMSG_DONE, 0)[..], &answer(libc::NLMSG_ERROR, 0)[..19], &[]] {
            assert_eq!(acknowledgement(other).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert!(acknowledgement(&answer(libc::NLMSG_ERROR, i32::MIN)).is_err());
    }

    #[test]
    fn long_name_is_refused() {
        for name in ["0123456789abcdef", "a\0b"] {
            assert_eq!(Tun::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
