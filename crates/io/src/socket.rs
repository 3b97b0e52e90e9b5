//! Opens UDP and TCP sockets with buffers, multicast groups and timeouts; errors name the address.
//!
//! What systems have in different ways, or not at all, is in `linux` and `bsd`, which have the same functions.

#[cfg(not(target_os = "linux"))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::{c_int, socklen_t};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockRef, Socket, Type};
use trunkline_units::{Size, Span};

#[cfg(not(target_os = "linux"))]
use bsd as system;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "linux")]
pub(crate) use linux::option_words;
pub use system::{BUFFER_PER_WINDOW, congestion, limit_window, set_multicast_all};
pub(crate) use system::{
    CAN_DISCONNECT, bind_device, can_segment, control, disconnect, enable_coalescing, enable_timestamps,
    is_bound_to_device, prepare_port, refused, report_ttl, segmentation, share_port,
};

/// What a control message says of a datagram or batch.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "not every system has all of them"))]
pub(crate) enum Control {
    /// The length of each datagram of a coalesced batch.
    SegmentLength(usize),
    /// When the kernel received it, as wall-clock time since 1970.
    Timestamp(Duration),
    /// Its TTL or hop limit.
    Ttl(u8),
}

/// An error while opening a socket.
#[derive(Debug, thiserror::Error)]
pub struct SocketError {
    /// The failed step.
    pub step: Step,
    /// The address used.
    pub address: SocketAddr,
    /// The system error.
    #[source]
    pub cause: io::Error,
}

/// A step of opening a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creating the socket or setting an option.
    Open,
    /// Binding the local address.
    Bind,
    /// Connecting to the peer.
    Connect,
    /// Joining a multicast group.
    Join,
    /// Selecting the congestion control algorithm.
    Congestion,
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ip, port) = (self.address.ip(), self.address.port());
        match (self.step, self.cause.kind()) {
            (Step::Bind, io::ErrorKind::AddrInUse) => write!(f, "port {port} on {ip} is in use"),
            (Step::Bind, io::ErrorKind::AddrNotAvailable) => {
                write!(f, "{ip} is not an address of this machine")
            }
            (Step::Bind, io::ErrorKind::PermissionDenied) => {
                write!(f, "port {port} on {ip} needs rights that this user lacks")
            }
            (Step::Connect, io::ErrorKind::TimedOut) => write!(f, "{ip} does not answer on port {port}"),
            (Step::Connect, io::ErrorKind::ConnectionRefused) => write!(f, "{ip} refuses port {port}"),
            (Step::Connect, io::ErrorKind::NetworkUnreachable) if ip.is_multicast() => write!(
                f,
                "group {ip} does not reach this interface (Linux has no IPv6 groups on the loopback: say where the host is)"
            ),
            (Step::Connect, io::ErrorKind::NetworkUnreachable) => write!(f, "there is no route to {ip}"),
            (Step::Join, _) => write!(f, "cannot join group {ip}: {}", self.cause),
            (Step::Congestion, _) => {
                write!(f, "this kernel does not offer that congestion control: {}", self.cause)
            }
            (step, _) => write!(f, "{step:?} of {} failed: {}", self.address, self.cause),
        }
    }
}

pub(crate) fn at(step: Step, address: SocketAddr) -> impl Fn(io::Error) -> SocketError {
    move |cause| SocketError { step, address, cause }
}

/// Options of a new socket.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Send buffer size; `None`: the system's default.
    pub send_buffer: Option<Size>,
    /// Receive buffer size; `None`: the system's default.
    pub receive_buffer: Option<Size>,
    /// Congestion control algorithm, by the kernel's name.
    pub congestion: Option<String>,
    /// Disables Nagle's algorithm.
    pub nodelay: bool,
    /// Differentiated services code point of sent packets, 0 to 63 (RFC 2474); `None`: the system's default.
    pub dscp: Option<u8>,
}

pub(crate) fn open(
    address: SocketAddr,
    kind: Type,
    protocol: Protocol,
    options: &Options,
) -> Result<Socket, SocketError> {
    let fail = at(Step::Open, address);
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol)).map_err(&fail)?;
    // The kernel may grant less; reports read the granted size back.
    let bytes = |size: Size| usize::try_from(size.as_bytes()).unwrap_or(usize::MAX).min(i32::MAX as usize);
    if let Some(size) = options.send_buffer {
        system::set_buffer(bytes(size), |bytes| socket.set_send_buffer_size(bytes)).map_err(&fail)?;
    } else if kind == Type::DGRAM {
        system::allow_long_datagrams(&socket).map_err(&fail)?;
    }
    if let Some(size) = options.receive_buffer {
        system::set_buffer(bytes(size), |bytes| socket.set_recv_buffer_size(bytes)).map_err(&fail)?;
    }
    if let Some(dscp) = options.dscp {
        // The two low bits of the field are those of ECN (RFC 3168 section 5).
        let traffic_class = u32::from(dscp) << 2;
        let set = match address {
            SocketAddr::V4(_) => socket.set_tos_v4(traffic_class),
            SocketAddr::V6(_) => socket.set_tclass_v6(traffic_class),
        };
        set.map_err(&fail)?;
    }
    Ok(socket)
}

/// Opens a socket at the fixed port if there is one, otherwise at the first free one of `ports`, otherwise at port 0, for
/// which the system selects a free port.
pub fn first_free<T>(
    fixed: Option<u16>,
    ports: Option<RangeInclusive<u16>>,
    mut open: impl FnMut(u16) -> Result<T, SocketError>,
) -> Result<T, SocketError> {
    let ports = ports.filter(|ports| fixed.is_none() && !ports.is_empty());
    let Some(ports) = ports else { return open(fixed.unwrap_or(0)) };
    let mut result = None;
    for port in ports {
        match open(port) {
            Err(e) if e.cause.kind() == io::ErrorKind::AddrInUse => result = Some(Err(e)),
            other => return other,
        }
    }
    result.expect("the range is not empty")
}

/// Returns whether packets of a socket to `peer` have a DSCP other than 0.
pub(crate) fn has_dscp(socket: &UdpSocket, peer: SocketAddr) -> bool {
    let socket = SockRef::from(socket);
    let traffic_class = match peer {
        SocketAddr::V4(_) => socket.tos_v4(),
        SocketAddr::V6(_) => socket.tclass_v6(),
    };
    traffic_class.is_ok_and(|traffic_class| traffic_class >> 2 != 0)
}

/// Binds a UDP socket to `local`; port 0 selects a free port.
pub fn udp(local: SocketAddr, options: &Options) -> Result<UdpSocket, SocketError> {
    let socket = open(local, Type::DGRAM, Protocol::UDP, options)?;
    socket.bind(&local.into()).map_err(at(Step::Bind, local))?;
    Ok(socket.into())
}

/// As [`udp`], but the socket keeps its port after a disconnect: Linux releases a port that it selected itself.
pub fn udp_to_connect(local: SocketAddr, options: &Options) -> Result<UdpSocket, SocketError> {
    let chosen = udp(local, options)?;
    if !CAN_DISCONNECT {
        return Ok(chosen);
    }
    let address = chosen.local_addr().map_err(at(Step::Open, local))?;
    // An explicitly requested port can be bound again while the first socket shares it.
    let socket = udp_sharing_port(&chosen, address, options)?;
    // Disconnect at once: copies inherited by child processes would receive datagrams sent to this port.
    disconnect(&chosen).map_err(at(Step::Open, address))?;
    Ok(socket)
}

/// Binds a second UDP socket to the address of `other`. Both set `SO_REUSEPORT` only for a moment, in which another
/// process of the same user that requests this port explicitly could share it.
pub(crate) fn udp_sharing_port(
    other: &UdpSocket,
    local: SocketAddr,
    options: &Options,
) -> Result<UdpSocket, SocketError> {
    let fail = at(Step::Open, local);
    let (first, second) = (SockRef::from(other), open(local, Type::DGRAM, Protocol::UDP, options)?);
    second.set_reuse_port(true).map_err(&fail)?;
    first.set_reuse_port(true).map_err(&fail)?;
    let bound = second.bind(&local.into()).map_err(at(Step::Bind, local));
    first.set_reuse_port(false).map_err(&fail)?;
    bound?;
    second.set_reuse_port(false).map_err(&fail)?;
    Ok(second.into())
}

/// Opens a UDP socket that receives `group` on the interface with address `interface`. Several sockets may share the
/// port; each receives every datagram.
pub fn multicast_receiver(
    group: SocketAddr,
    interface: IpAddr,
    options: &Options,
) -> Result<UdpSocket, SocketError> {
    let index = interface_index(interface);
    let mut group = group;
    if let SocketAddr::V6(v6) = &mut group {
        v6.set_scope_id(index); // the same group of a narrow scope is another one on each interface
    }
    let fail = at(Step::Join, group);
    let socket = open(group, Type::DGRAM, Protocol::UDP, options)?;
    share_port(&socket).map_err(&fail)?;
    // Bind to the group, so that unicast datagrams to the port are not received.
    socket.bind(&group.into()).map_err(at(Step::Bind, group))?;
    match group.ip() {
        IpAddr::V4(ip) => {
            let on = InterfaceIndexOrAddress::Index(index);
            socket.join_multicast_v4_n(&ip, &on).map_err(&fail)?;
            // Receive only groups joined by this socket.
            set_multicast_all(&socket, false).map_err(&fail)?;
        }
        IpAddr::V6(ip) => socket.join_multicast_v6(&ip, index).map_err(&fail)?,
    }
    Ok(socket.into())
}

/// Sends multicast datagrams of `socket` through the interface with address `interface`.
///
/// # Errors
/// If no interface has the address.
pub fn set_multicast_interface(socket: &UdpSocket, interface: Ipv4Addr) -> io::Result<()> {
    SockRef::from(socket).set_multicast_if_v4(&interface)
}

/// Opens a UDP socket bound to `local`, a multicast group or broadcast address, which several sockets may share; each
/// receives every datagram. Joins a group on the interface with address `interface`.
pub fn shared_receiver(
    local: SocketAddrV4,
    interface: Ipv4Addr,
    options: &Options,
) -> Result<UdpSocket, SocketError> {
    if local.ip().is_multicast() {
        return multicast_receiver(local.into(), interface.into(), options);
    }
    let fail = at(Step::Open, local.into());
    let socket = open(local.into(), Type::DGRAM, Protocol::UDP, options)?;
    share_port(&socket).map_err(&fail)?;
    socket.set_broadcast(true).map_err(&fail)?;
    socket.bind(&local.into()).map_err(at(Step::Bind, local.into()))?;
    Ok(socket.into())
}

/// Returns this machine's address on the network with this broadcast address; `None` if it is no broadcast address of
/// this machine.
pub fn broadcast_on(ip: Ipv4Addr) -> Option<Ipv4Addr> {
    if ip == Ipv4Addr::new(127, 255, 255, 255) {
        // Loopback also has this broadcast address, but does not list it.
        return Some(Ipv4Addr::LOCALHOST);
    }
    nix::ifaddrs::getifaddrs().ok()?.find_map(|entry| {
        let broadcast = entry.broadcast?.as_sockaddr_in()?.ip();
        (broadcast == ip).then(|| Some(entry.address?.as_sockaddr_in()?.ip()))?
    })
}

/// Opens a UDP socket that sends to multicast groups through the interface with address `interface`; datagrams are
/// looped back to receivers on this machine.
pub fn multicast_sender(interface: IpAddr, ttl: u8, options: &Options) -> Result<UdpSocket, SocketError> {
    let local = SocketAddr::new(interface, 0);
    let fail = at(Step::Open, local);
    let socket = open(local, Type::DGRAM, Protocol::UDP, options)?;
    socket.bind(&local.into()).map_err(at(Step::Bind, local))?;
    match interface {
        IpAddr::V4(ip) => {
            socket.set_multicast_if_v4(&ip).map_err(&fail)?;
            socket.set_multicast_ttl_v4(u32::from(ttl)).map_err(&fail)?;
            socket.set_multicast_loop_v4(true).map_err(&fail)?;
        }
        IpAddr::V6(_) => {
            socket.set_multicast_if_v6(interface_index(interface)).map_err(&fail)?;
            socket.set_multicast_hops_v6(u32::from(ttl)).map_err(&fail)?;
            socket.set_multicast_loop_v6(true).map_err(&fail)?;
        }
    }
    Ok(socket.into())
}

pub(crate) fn interface_index(address: IpAddr) -> u32 {
    crate::usage::interface_of(address)
        .and_then(|name| nix::net::if_::if_nametoindex(name.as_str()).ok())
        .unwrap_or(0)
}

fn set_tcp_options(socket: &Socket, address: SocketAddr, options: &Options) -> Result<(), SocketError> {
    if let Some(name) = &options.congestion {
        system::set_congestion(socket, name).map_err(at(Step::Congestion, address))?;
    }
    socket.set_tcp_nodelay(options.nodelay).map_err(at(Step::Open, address))
}

/// Opens a TCP listener on `local`; accepted streams inherit its buffer sizes.
pub fn tcp_listen(local: SocketAddr, options: &Options) -> Result<TcpListener, SocketError> {
    let socket = open(local, Type::STREAM, Protocol::TCP, options)?;
    // Allows the next run to use the port while old connections are in TIME_WAIT.
    socket.set_reuse_address(true).map_err(at(Step::Open, local))?;
    socket.bind(&local.into()).map_err(at(Step::Bind, local))?;
    socket.listen(16).map_err(at(Step::Bind, local))?;
    Ok(socket.into())
}

/// Connects a TCP stream from `local` to `peer` within `limit`.
pub fn tcp_connect(
    local: SocketAddr,
    peer: SocketAddr,
    limit: Span,
    options: &Options,
) -> Result<TcpStream, SocketError> {
    let socket = open(local, Type::STREAM, Protocol::TCP, options)?;
    if local.port() != 0 {
        socket.set_reuse_address(true).map_err(at(Step::Open, local))?;
    }
    socket.bind(&local.into()).map_err(at(Step::Bind, local))?;
    set_tcp_options(&socket, peer, options)?;
    socket.connect_timeout(&peer.into(), limit.into()).map_err(at(Step::Connect, peer))?;
    Ok(socket.into())
}

/// Waits at most `limit` for a connection; `None` on timeout.
pub fn tcp_accept(listener: &TcpListener, limit: Span, options: &Options) -> io::Result<Option<TcpStream>> {
    if !readable(listener, limit)? {
        return Ok(None);
    }
    let (stream, peer) = listener.accept()?;
    set_tcp_options(&SockRef::from(&stream), peer, options).map_err(|e| e.cause)?;
    Ok(Some(stream))
}

/// Waits at most `limit` until the socket is readable or has an error; false on timeout.
pub fn readable(socket: &impl AsFd, limit: Span) -> io::Result<bool> {
    poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], Some(limit))
}

/// Waits at most `limit` until the socket is readable or writable, or has an error; false on timeout.
pub fn readable_or_writable(socket: &impl AsFd, limit: Span) -> io::Result<bool> {
    poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)], Some(limit))
}

/// Writes as many bytes as the system takes at once, without waiting.
pub fn write_now(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(stream).send_with_flags(bytes, libc::MSG_DONTWAIT)
}

/// Waits at most `limit`, without one possibly forever, for an event of a descriptor; false on timeout or a signal.
pub(crate) fn poll(descriptors: &mut [PollFd<'_>], limit: Option<Span>) -> io::Result<bool> {
    // Rounded up, to avoid an early wakeup.
    let limit = limit.map(|limit| Duration::from_nanos(limit.as_ps().div_ceil(1_000)));
    match system::wait(descriptors, limit) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the granted buffer sizes `(send, receive)` as the kernel counts them: with overhead, twice the requested
/// sizes.
pub fn granted_buffers(socket: &impl AsFd) -> (Size, Size) {
    let socket = SockRef::from(socket);
    let size = |bytes: io::Result<usize>| Size::from_bytes(bytes.unwrap_or(0) as u64);
    (size(socket.send_buffer_size()), size(socket.recv_buffer_size()))
}

/// Returns the number of datagrams dropped because the socket's buffer was full; `None` if the system does not report
/// it.
pub fn dropped(socket: &UdpSocket) -> Option<u64> {
    system::dropped(socket)
}

/// Allows fragmentation of datagrams to `peer`. Returns the longest datagram that needs no fragmentation; `None` if
/// `socket` is not connected.
pub fn allow_fragments(socket: &UdpSocket, peer: SocketAddr) -> io::Result<Option<usize>> {
    system::allow_fragments(socket, peer)
}

/// Makes the socket, bound to `local`, refuse datagrams longer than the interface MTU and ignore the path MTU cache,
/// so that the path can be probed.
pub fn forbid_fragments(socket: &UdpSocket, local: SocketAddr) -> io::Result<()> {
    system::forbid_fragments(socket, local)
}

/// Sets integer socket options.
fn set_options(socket: &UdpSocket, level: c_int, options: &[(c_int, c_int)]) -> io::Result<()> {
    options.iter().try_for_each(|(name, value)| set_option(socket, level, *name, value))
}

/// Sets a socket option of plain numbers.
pub(crate) fn set_option<T: Copy>(
    socket: &impl AsRawFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let (value, length): (*const T, _) = (value, size_of::<T>() as socklen_t);
    // SAFETY: the value is plain numbers that outlive the call, and its true size is passed.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length) };
    Errno::result(done)?;
    Ok(())
}

/// Limits blocking calls on `socket` to `limit`, so that a stop is noticed.
pub fn limit_blocking(socket: &impl AsFd, limit: Span) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_read_timeout(Some(limit.into()))?;
    socket.set_write_timeout(Some(limit.into()))
}

/// Returns whether an error only means that a timeout passed or a signal arrived.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

/// Returns whether a receive error concerns an earlier datagram, not the socket.
pub(crate) fn is_icmp_error(error: &io::Error) -> bool {
    // The errors that the kernel derives from ICMP messages, which anyone can send.
    let of_network = [
        Errno::EACCES,
        Errno::ECONNREFUSED,
        Errno::EHOSTDOWN,
        Errno::EHOSTUNREACH,
        Errno::EMSGSIZE,
        Errno::ENETUNREACH,
        #[cfg(target_os = "linux")]
        Errno::ENONET,
        Errno::ENOPROTOOPT,
        Errno::EOPNOTSUPP,
        Errno::EPROTO,
    ];
    error.raw_os_error().is_some_and(|raw| of_network.contains(&Errno::from_raw(raw)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_port_in_use() {
        let any = "127.0.0.1:0".parse().unwrap();
        let holder = udp(any, &Options::default()).unwrap();
        let taken = holder.local_addr().unwrap();
        let error = udp(taken, &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("port {} on 127.0.0.1 is in use", taken.port()));
        let listener = tcp_listen(any, &Options::default()).unwrap();
        let error = tcp_listen(listener.local_addr().unwrap(), &Options::default()).unwrap_err();
        assert!(error.to_string().ends_with("is in use"), "{error}");
    }

    #[test]
    fn error_names_foreign_address_and_refusal() {
        let foreign = "192.0.2.1:0".parse().unwrap();
        let error = udp(foreign, &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), "192.0.2.1 is not an address of this machine");
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        // Bound, so that no other process takes the port, but not listening.
        let silent = open(any, Type::STREAM, Protocol::TCP, &Options::default()).unwrap();
        silent.bind(&any.into()).unwrap();
        let closed = silent.local_addr().unwrap().as_socket().unwrap();
        let error = tcp_connect(any, closed, Span::from_s(1), &Options::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("127.0.0.1 refuses port {}", closed.port()));
        let odd = Options { congestion: Some("nonesuch".into()), ..Options::default() };
        let error = tcp_connect(any, closed, Span::from_s(1), &odd).unwrap_err();
        assert_eq!(error.step, Step::Congestion);
    }

    #[test]
    fn full_buffer_counts_drops() {
        let small = Options { receive_buffer: Some(Size::from_bytes(4096)), ..Options::default() };
        let receiver = udp("127.0.0.1:0".parse().unwrap(), &small).unwrap();
        let sender = udp("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
        assert_eq!(dropped(&receiver), Some(0));
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let got = (0..100).take_while(|_| receiver.recv(&mut [0; 1000]).is_ok()).count() as u64;
        assert_eq!(dropped(&receiver), Some(100 - got));
    }

    #[test]
    fn every_group_receiver_gets_each_datagram() {
        let (group, interface) = ("239.77.1.1:0".parse().unwrap(), "127.0.0.1".parse().unwrap());
        let first = multicast_receiver(group, interface, &Options::default()).unwrap();
        let at = first.local_addr().unwrap();
        let second = multicast_receiver(at, interface, &Options::default()).unwrap();
        let sender = multicast_sender(interface, 1, &Options::default()).unwrap();
        sender.send_to(b"hello", at).unwrap();
        for receiver in [&first, &second] {
            limit_blocking(receiver, Span::from_s(5)).unwrap();
            assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 5);
        }
    }

    #[test]
    fn every_broadcast_receiver_gets_each_datagram() {
        let all = Ipv4Addr::new(127, 255, 255, 255);
        assert_eq!(broadcast_on(all), Some(Ipv4Addr::LOCALHOST));
        assert_eq!(
            (broadcast_on(Ipv4Addr::LOCALHOST), broadcast_on(Ipv4Addr::new(198, 51, 100, 7))),
            (None, None)
        );
        let open = |port| {
            let at = SocketAddrV4::new(all, port);
            shared_receiver(at, Ipv4Addr::LOCALHOST, &Options::default()).unwrap()
        };
        let first = open(0);
        let second = open(first.local_addr().unwrap().port());
        let sender = multicast_sender(Ipv4Addr::LOCALHOST.into(), 1, &Options::default()).unwrap();
        sender.set_broadcast(true).unwrap();
        sender.send_to(b"hello", first.local_addr().unwrap()).unwrap();
        for receiver in [&first, &second] {
            limit_blocking(receiver, Span::from_s(5)).unwrap();
            assert_eq!(receiver.recv_from(&mut [0; 16]).unwrap(), (5, sender.local_addr().unwrap()));
        }
    }

    #[test]
    fn ipv6_group_is_bound_to_its_interface() {
        let interface = "::1".parse().unwrap();
        if UdpSocket::bind((interface, 0)).is_err() {
            return; // no IPv6 here
        }
        let receiver = multicast_receiver("[ff11::77]:0".parse().unwrap(), interface, &Options::default());
        let SocketAddr::V6(at) = receiver.unwrap().local_addr().unwrap() else { panic!("an IPv6 address") };
        assert_eq!(at.scope_id(), interface_index(interface));
    }
}
