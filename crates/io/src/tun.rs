//! A TUN device: a network interface whose other end is this process. It carries IP packets, one a call.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

use libc::ifreq;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use trunkline_units::Instant;

use crate::Clock;

/// The calls to the system.
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

/// A TUN device of Linux, non-blocking, without the packet information header. It is gone when this is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

impl Tun {
    /// Makes the device `name` in the network namespace of this process; a name with `%d` is given the next free
    /// number. Needs the right to administer that namespace (`CAP_NET_ADMIN`).
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

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives this machine's end an address in a network of `prefix` bits and packets of at most `mtu` bytes, and takes
    /// the device up. Everything else in that network is then at the other end: here.
    ///
    /// # Errors
    /// If the prefix exceeds 32 bits, or what the system says.
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
            call::get_flags(descriptor, &raw mut request)?;
            request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as i16;
            call::set_flags(descriptor, &raw const request)?;
        }
        Ok(())
    }

    /// The next packet that the system sends through the device, at the start of `buffer`, and its length; none if
    /// none waits. What does not fit into `buffer` is cut off.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives the system a packet, as if it had arrived at the device; false if it takes none now, and then the packet
    /// is lost.
    ///
    /// # Errors
    /// What the system says, for example to what is no IP packet.
    pub fn write(&self, packet: &[u8]) -> io::Result<bool> {
        match (&self.file).write(packet) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until a packet can be read or it is `until`, for ever without; true for a packet.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&self, clock: Clock, until: Option<Instant>) -> io::Result<bool> {
        loop {
            let left = until.map(|at| at.since(clock.now()));
            // Rounded up: who is woken before the time would only wait again.
            let timeout = left.map(|left| {
                let ns = left.as_ps().div_ceil(1_000);
                TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
            });
            let mut descriptors = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut descriptors, timeout, None) {
                Ok(ready) => return Ok(ready > 0),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A request about the interface `name`, otherwise empty.
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

/// The address as the system has it in requests.
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
    fn a_name_that_does_not_fit_is_refused() {
        for name in ["0123456789abcdef", "a\0b"] {
            assert_eq!(Tun::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
