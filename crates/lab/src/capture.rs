//! Captures of a lab. The emulator copies packets into a bounded queue, and a thread writes the files, so a slow disk delays no
//! packet: those that do not fit are counted and missing in the file.
//!
//! The points and the files are those of [`trunkline_sim::capture`]. The link-layer header of a packet is made, because the
//! interfaces of a lab carry IP: host n has the MAC address `02:00:00:00:00:n`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use trunkline_endpoint::{Frame as _, Port};
use trunkline_io::Clock;
use trunkline_models::atm::CellFrame as _;
use trunkline_models::host::headers;
use trunkline_sim::capture::{self, CaptureError, CaptureFile, CapturePoints, IPV4, group_mac, link_header};
use trunkline_sim::network::Network;
use trunkline_sim::network::topology::Topology;
use trunkline_units::Instant;

use crate::ipv6;
use crate::packet::{Packet, destination_address, source_address};

/// The bounds of the queue.
const MAX_PACKETS: usize = 65_536;
const MAX_BYTES: usize = 64 << 20;
/// How often the thread looks into the queue, and how often it writes what it has. The emulator never has to wake it.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// EtherType of IPv6.
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Which captures a lab writes.
#[derive(Clone, Debug, Default)]
pub struct CaptureOptions {
    /// Names of links, their directions, hubs, rings and hosts; see [`capture::refuse`].
    pub names: Vec<String>,
    /// The folder of the files.
    pub folder: PathBuf,
}

/// A copied packet.
#[derive(Debug)]
struct Captured {
    capture: usize,
    interface: u16,
    at: Instant,
    channel: u16,
    is_ethernet: bool,
    bytes: Vec<u8>,
}

/// The end of the queue in the emulator.
#[derive(Debug)]
pub struct Captures {
    points: CapturePoints,
    queue: Queue,
}

#[derive(Debug)]
struct Queue {
    sender: SyncSender<Captured>,
    /// Bytes of the packets in the queue.
    bytes: Arc<AtomicUsize>,
    dropped: u64,
}

impl Captures {
    /// Captures a packet that a host sends or receives at an interface.
    pub fn at_host(&mut self, at: Instant, host: u32, port: Port, packet: &Packet) {
        if let Some(capture) = self.points.at_host(host) {
            self.queue.push(capture, port.0, at, packet);
        }
    }

    /// Captures a packet that leaves a medium at a port.
    pub fn at_medium(&mut self, at: Instant, medium: u32, port: Port, packet: &Packet) {
        let Captures { points, queue } = self;
        points.at_medium(medium, port, packet.serial(), |capture| queue.push(capture, 0, at, packet));
    }

    /// Returns how many packets did not fit into the queue.
    pub fn dropped(&self) -> u64 {
        self.queue.dropped
    }
}

impl Queue {
    fn push(&mut self, capture: usize, interface: u16, at: Instant, packet: &Packet) {
        let Some(bytes) = packet.captured() else { return };
        let length = bytes.len();
        let captured = Captured {
            capture,
            interface,
            at,
            channel: packet.channel(),
            is_ethernet: packet.is_ethernet(),
            bytes,
        };
        let has_room = self.bytes.fetch_add(length, Ordering::Relaxed) + length <= MAX_BYTES;
        if !has_room || self.sender.try_send(captured).is_err() {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
            self.dropped += 1;
        }
    }
}

/// The thread that writes the files. It ends when the [`Captures`] are dropped and the queue is empty.
#[derive(Debug)]
pub struct CaptureWriter(JoinHandle<Result<(), CaptureError>>);

impl CaptureWriter {
    /// Opens the files and starts the thread. The hosts have these addresses, in the order of the network; the other is that of
    /// all of them. Timestamps are those of the machine's clock.
    ///
    /// # Errors
    /// If a file cannot be created.
    pub fn start(
        options: &CaptureOptions,
        (network, topology): (&Network<Packet>, &Topology<'_>),
        (addresses, broadcast): (&[Ipv4Addr], Ipv4Addr),
        clock: Clock,
    ) -> Result<(CaptureWriter, Captures), CaptureError> {
        let (points, files) = capture::open(&options.names, network, topology, &options.folder)?;
        let (sender, packets) = sync_channel(MAX_PACKETS);
        let bytes = Arc::<AtomicUsize>::default();
        let started_at = clock.unix().saturating_sub(since_start(clock.now()));
        let writer = Writer {
            files,
            packets,
            bytes: Arc::clone(&bytes),
            stations: stations(addresses, broadcast),
            started_at,
        };
        let thread = std::thread::Builder::new().name("captures".into()).spawn(move || writer.run());
        let thread = thread.map_err(|cause| CaptureError::Write(options.names.join(", "), cause))?;
        Ok((CaptureWriter(thread), Captures { points, queue: Queue { sender, bytes, dropped: 0 } }))
    }

    /// Waits until all packets are written.
    ///
    /// # Errors
    /// If a file could not be written; it ends with the last packet before.
    pub fn finish(self) -> Result<(), CaptureError> {
        self.0.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The state of the thread.
struct Writer {
    files: Vec<CaptureFile>,
    packets: Receiver<Captured>,
    bytes: Arc<AtomicUsize>,
    /// The MAC addresses of hosts, and of all of them.
    stations: BTreeMap<IpAddr, [u8; 6]>,
    /// Since 1970.
    started_at: Duration,
}

impl Writer {
    fn run(mut self) -> Result<(), CaptureError> {
        let mut buffer = Vec::new();
        let mut written = std::time::Instant::now();
        loop {
            let is_over = loop {
                match self.packets.try_recv() {
                    Ok(packet) => self.write(packet, &mut buffer)?,
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            if is_over || written.elapsed() >= WRITE_INTERVAL {
                self.files.iter_mut().try_for_each(CaptureFile::flush)?;
                written = std::time::Instant::now();
            }
            if is_over {
                return Ok(());
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    fn write(&mut self, packet: Captured, buffer: &mut Vec<u8>) -> Result<(), CaptureError> {
        let Captured { capture, interface, at, channel, is_ethernet, bytes } = packet;
        self.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
        buffer.clear();
        let file = &mut self.files[capture];
        if !is_ethernet {
            let unknown = Ipv4Addr::UNSPECIFIED.into();
            let from = source_address(&bytes).unwrap_or(unknown);
            let to = destination_address(&bytes).unwrap_or(unknown);
            let mac = |address| station_or_group_mac(&self.stations, address);
            let ethertype = if to.is_ipv6() { IPV6 } else { IPV4 };
            link_header(buffer, file.framing(interface), (mac(from), mac(to)), ethertype, channel);
        }
        buffer.extend_from_slice(&bytes);
        file.write(interface, self.started_at + since_start(at), buffer, buffer.len() as u32)
    }
}

fn since_start(at: Instant) -> Duration {
    Duration::from_nanos(at.as_ns())
}

/// Returns the MAC addresses of hosts by both addresses of each, and of all hosts.
fn stations(addresses: &[Ipv4Addr], broadcast: Ipv4Addr) -> BTreeMap<IpAddr, [u8; 6]> {
    let hosts = (1..).zip(addresses).flat_map(|(number, address)| {
        ipv6::both(*address).map(|address| (address, headers::station_mac(number)))
    });
    let all = [broadcast, Ipv4Addr::BROADCAST].map(|address| (IpAddr::V4(address), [0xff; 6]));
    hosts.chain(all).collect()
}

/// Returns the MAC address of a host, a group or all hosts.
fn station_or_group_mac(stations: &BTreeMap<IpAddr, [u8; 6]>, address: IpAddr) -> [u8; 6] {
    match address {
        IpAddr::V4(group) if group.is_multicast() => group_mac(group.octets()),
        IpAddr::V6(group) if group.is_multicast() => ipv6_group_mac(group),
        host => stations.get(&host).copied().unwrap_or_else(|| headers::station_mac(0)),
    }
}

/// Returns the MAC address of a group of IPv6 (RFC 2464 section 7).
fn ipv6_group_mac(group: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use trunkline_endpoint::Destination;

    use super::*;

    /// Pushes packets into a queue that nothing empties; returns how many were dropped.
    fn dropped(packets: usize, length: usize) -> u64 {
        let (sender, _packets) = sync_channel(MAX_PACKETS);
        let mut queue = Queue { sender, bytes: Arc::default(), dropped: 0 };
        let packet = Packet::ethernet(vec![0; length], Destination::All, length as u32, 1);
        (0..packets).for_each(|_| queue.push(0, 0, Instant::ZERO, &packet));
        assert!(queue.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
        queue.dropped
    }

    #[test]
    fn a_full_queue_drops() {
        assert_eq!(dropped(MAX_PACKETS + 5, 60), 5);
        assert_eq!(dropped(MAX_BYTES / 60_000 + 3, 60_000), 3);
    }

    #[test]
    fn hosts_and_groups_have_their_mac_addresses() {
        let stations = stations(&[[10, 0, 0, 1].into(), [10, 0, 0, 2].into()], [10, 0, 255, 255].into());
        let mac = |text: &str| station_or_group_mac(&stations, text.parse().expect("an address"));
        for host in ["10.0.0.2", "fd00::2"] {
            assert_eq!(mac(host), [2, 0, 0, 0, 0, 2]);
        }
        assert_eq!(mac("234.133.1.2"), [0x01, 0x00, 0x5e, 5, 1, 2]);
        assert_eq!(mac("ff02::1:ff00:7"), [0x33, 0x33, 0xff, 0, 0, 7]);
        for all in ["255.255.255.255", "10.0.255.255"] {
            assert_eq!(mac(all), [0xff; 6]);
        }
    }
}
