//! What a packet costs the thread that carries it: at a TUN device with one system call a packet, and at a veth pair by a packet
//! socket with many packets a call.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, recvmmsg, sendmmsg, socket,
};
use nix::time::{ClockId, clock_gettime};
use trunkline_io::Tun;
use trunkline_lab::Namespace;

use crate::packets::Holder;
use crate::{Outcome, run};

/// Packets of a round, fewer than any queue holds, and rounds.
const PACKETS: usize = 400;
const ROUNDS: usize = 200;
/// Bytes of a datagram; with its headers it is as long as the MTU.
const LENGTH: usize = 1472;
const BATCH: usize = 64;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Processor time of the calling thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A device to read packets of a kernel from and write packets to it.
trait Device {
    /// Reads packets until there are none; returns how many.
    fn read_all(&mut self) -> io::Result<usize>;
    /// Writes the packet that was read last so many times.
    fn write(&mut self, count: usize) -> io::Result<()>;
}

/// Prints the processor time of a packet that is read, and of one that is delivered to a kernel, which handles it in the same
/// call.
pub fn interfaces() -> Outcome<()> {
    println!("\ndevice                     read    write");
    let namespace = Namespace::new().map_err(|error| error.to_string())?;
    let tun = namespace.run(|| {
        let tun = Tun::open("tun0")?;
        tun.set_up(ADDRESS, 24, 1500)?;
        Ok(tun)
    });
    let tun = tun.map_err(|error| format!("TUN: {error}"))?;
    measure("TUN", &namespace, &mut TunDevice { tun, buffer: vec![0; 2048] })?;
    let [host, outside] =
        [Namespace::new(), Namespace::new()].map(|namespace| namespace.map_err(|error| error.to_string()));
    let (host, outside) = (host?, outside?);
    let holder = Holder::start(&outside)?;
    let script = format!(
        "ip link add veth0 type veth peer name veth1 netns {}; ip address add {ADDRESS}/24 dev veth0; ip link set veth0 up;
         ip neigh add {PEER} lladdr 02:00:00:00:00:02 dev veth0; ip link set veth0 arp off",
        holder.0.id()
    );
    run(host.command("sh").args(["-ec", &script]))?;
    run(outside.command("sh").args(["-ec", "ip link set veth1 address 02:00:00:00:00:02 up"]))?;
    let mut packet = outside.run(PacketDevice::open).map_err(|error| format!("packet socket: {error}"))?;
    measure("veth and packet socket", &host, &mut packet)
}

fn measure(name: &str, host: &Namespace, device: &mut impl Device) -> Outcome<()> {
    let error = |error: io::Error| format!("{name}: {error}");
    let sender = host.run(|| UdpSocket::bind((ADDRESS, 9))).map_err(error)?;
    let (mut reading, mut writing, mut read) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..ROUNDS {
        for _ in 0..PACKETS {
            sender.send_to(&[0; LENGTH], (PEER, 9)).map_err(error)?;
        }
        let before = processor_time();
        read += device.read_all().map_err(error)?;
        let between = processor_time();
        device.write(PACKETS).map_err(error)?;
        (reading, writing) = (reading + (between - before), writing + (processor_time() - between));
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(200) {}
    }
    println!(
        "{name:22} {:6.0} ns {:6.0} ns   ({read} packets read)",
        reading.as_nanos() as f64 / read.max(1) as f64,
        writing.as_nanos() as f64 / (PACKETS * ROUNDS) as f64
    );
    Ok(())
}

struct TunDevice {
    tun: Tun,
    buffer: Vec<u8>,
}

impl Device for TunDevice {
    fn read_all(&mut self) -> io::Result<usize> {
        let mut count = 0;
        while self.tun.read(&mut self.buffer)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    fn write(&mut self, count: usize) -> io::Result<()> {
        let packet = &self.buffer[..LENGTH + 28];
        (0..count).try_for_each(|_| self.tun.write(packet).map(drop))
    }
}

struct PacketDevice {
    socket: OwnedFd,
    buffers: Vec<Vec<u8>>,
}

impl PacketDevice {
    fn open() -> io::Result<PacketDevice> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None)?;
        nix::sys::socket::setsockopt(&socket.as_fd(), nix::sys::socket::sockopt::RcvBuf, &(16 << 20))?;
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_IP as u16).to_be(),
            sll_ifindex: if_nametoindex("veth1")? as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address has this length and lives through the call.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if bound != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PacketDevice { socket, buffers: vec![vec![0; 2048]; BATCH] })
    }
}

impl Device for PacketDevice {
    fn read_all(&mut self) -> io::Result<usize> {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
        let mut total = 0;
        loop {
            let mut slices: Vec<_> =
                self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
            let received = recvmmsg(
                self.socket.as_raw_fd(),
                &mut headers,
                slices.iter_mut(),
                MsgFlags::MSG_DONTWAIT,
                None,
            );
            match received {
                Ok(messages) => total += messages.count(),
                Err(nix::errno::Errno::EAGAIN) => return Ok(total),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, count: usize) -> io::Result<()> {
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
        let frame = &self.buffers[0][..LENGTH + 28 + 14];
        let addresses = vec![None; BATCH];
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            let slices: Vec<_> = (0..batch).map(|_| [IoSlice::new(frame)]).collect();
            let sent = sendmmsg(
                self.socket.as_raw_fd(),
                &mut headers,
                &slices,
                &addresses[..batch],
                [],
                MsgFlags::MSG_DONTWAIT,
            )?;
            left -= sent.count().max(1).min(left);
        }
        Ok(())
    }
}
