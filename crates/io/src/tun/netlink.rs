//! Requests to the kernel by netlink (`rtnetlink(7)`). Unlike the ioctls of interfaces they need no privileges outside of a user
//! namespace, and know the lifetimes of addresses.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Octets of the header of a message.
const HEADER: usize = 16;

/// Sets how many packets wait in the queue of an interface.
pub(super) fn set_queue_length(interface: &str, packets: u32) -> io::Result<()> {
    let link = [0, if_nametoindex(interface)?, 0, 0].map(u32::to_ne_bytes).concat();
    request(libc::RTM_SETLINK, 0, &[link, attribute(libc::IFLA_TXQLEN, &packets.to_ne_bytes())].concat())
}

/// Gives an interface an address. Its preferred lifetime is 0: glibc, unlike RFC 6724 section 2.1, would otherwise prefer it to one
/// of IPv4.
pub(super) fn add_address(interface: &str, address: Ipv6Addr, prefix: u8) -> io::Result<()> {
    let address = address.octets();
    let (preferred, valid) = (0, u32::MAX);
    let lifetimes = [preferred, valid, 0, 0].map(u32::to_ne_bytes).concat();
    let head = [libc::AF_INET6 as u8, prefix, libc::IFA_F_NODAD as u8, libc::RT_SCOPE_UNIVERSE];
    let body = [
        head.to_vec(),
        if_nametoindex(interface)?.to_ne_bytes().to_vec(),
        attribute(libc::IFA_LOCAL, &address),
        attribute(libc::IFA_ADDRESS, &address),
        attribute(libc::IFA_CACHEINFO, &lifetimes),
    ];
    request(libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body.concat())
}

/// Routes packets to addresses that begin with `prefix` bits of `to` through an interface.
pub(super) fn add_route(interface: &str, to: IpAddr, prefix: u8) -> io::Result<()> {
    let (family, address) = match to {
        IpAddr::V4(to) => (libc::AF_INET, to.octets().to_vec()),
        IpAddr::V6(to) => (libc::AF_INET6, to.octets().to_vec()),
    };
    let (table, scope) = (libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK);
    let head = [family as u8, prefix, 0, 0, table, libc::RTPROT_BOOT, scope, libc::RTN_UNICAST];
    let body = [
        head.to_vec(),
        0u32.to_ne_bytes().to_vec(),
        attribute(libc::RTA_DST, &address),
        attribute(libc::RTA_OIF, &if_nametoindex(interface)?.to_ne_bytes()),
    ];
    request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body.concat())
}

/// Returns an attribute, whose length is a multiple of 4.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    debug_assert!(value.len().is_multiple_of(4), "there is no padding");
    [&(value.len() as u16 + 4).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
}

/// Sends a request and waits for the acknowledgement.
fn request(kind: u16, flags: libc::c_int, body: &[u8]) -> io::Result<()> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16;
    let message = [
        &((HEADER + body.len()) as u32).to_ne_bytes()[..],
        &kind.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &1u32.to_ne_bytes(), // the number of the request
        &0u32.to_ne_bytes(),
        body,
    ];
    send(socket.as_raw_fd(), &message.concat(), MsgFlags::empty())?;
    // An error has a copy of the request behind it, which may be cut off.
    let mut answer = [0; 64];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    acknowledgement(&answer[..length])
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
}
