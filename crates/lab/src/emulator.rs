//! The thread that carries packets between the interfaces of hosts, in real time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;
use trunkline_endpoint::{Destination, MediumCounters, Port};
use trunkline_io::{Clock, Tun};
use trunkline_sim::capture::CaptureError;
use trunkline_sim::link_series::LinkSeries;
use trunkline_sim::network::Network;
use trunkline_units::{Instant, Span};

use crate::capture::Captures;
use crate::forwarding::Forwarding;
use crate::ipv6;
use crate::packet::{
    Packet, destination_address, is_group_report, station_destination, station_frame_length,
};
use crate::wait::{Waiter, processor_time};

/// Packets read from one interface before deliveries that have become due.
const BATCH: usize = 16;
/// Real-time priority of the thread, where the system allows it.
const PRIORITY: libc::c_int = 20;
/// How often the counts of the links are updated for readers.
const UPDATE_INTERVAL: Span = Span::from_ms(250);
/// Longest IP packet.
const MAX_PACKET: usize = 65_535;

/// The interface of a host.
#[derive(Debug)]
pub struct Interface {
    /// The device, whose kernel end is in the namespace of the host.
    pub tun: Tun,
    /// Number of the host, and its interface.
    pub at: (u32, Port),
    /// Longest packet, bytes.
    pub mtu: u32,
    /// The LLC station whose Ethernet frames it carries; IP packets without.
    pub station: Option<Station>,
}

/// The LLC station of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Its number, from 1.
    pub number: u8,
    /// Whether the medium is Ethernet, and not a ring.
    pub on_ethernet: bool,
}

impl Interface {
    fn key(&self) -> (u32, Port, bool) {
        (self.at.0, self.at.1, self.station.is_some())
    }
}

/// What an emulator has done.
#[derive(Debug)]
pub struct Report {
    /// From the arrival of a packet in the model to its delivery to the kernel, nanoseconds.
    pub lateness_ns: Histogram<u64>,
    /// Packets read from interfaces.
    pub packets_in: u64,
    /// Packets delivered to interfaces.
    pub packets_out: u64,
    /// Packets to addresses that no host has, or not of IP.
    pub unroutable: u64,
    /// Reports of kernels about their groups (IGMP, MLD), which no one needs: switches send groups to all.
    pub group_reports: u64,
    /// Packets that the kernel did not accept.
    pub refused: u64,
    /// Counters of each medium: its name and those of its two ends, or of its ports.
    pub media: Vec<(String, Vec<MediumCounters>)>,
    /// The media as they were at the end, with their queues and counters.
    pub network: Option<Network<Packet>>,
    /// The counters of link ends over time.
    pub link_series: LinkSeries,
    /// Packets that are missing in the captures, because their queue was full.
    pub capture_drops: u64,
    /// Why captures are incomplete: a file could not be written.
    pub capture_error: Option<CaptureError>,
    /// How long it ran.
    pub duration: Span,
    /// Processor time of its thread.
    pub processor_time: Span,
    /// Whether the thread had a real-time priority.
    pub is_real_time: bool,
}

/// Bytes of each medium by its first two ports.
type LinkBytes = Vec<(String, [u64; 2])>;

/// What the media of an emulator have carried, as of its last update.
#[derive(Clone, Debug)]
pub struct CarriedBytes(Arc<Mutex<LinkBytes>>);

impl CarriedBytes {
    /// Returns the bytes that each medium has sent from its first two ports.
    pub fn get(&self) -> LinkBytes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running emulator. Dropping it stops it and removes the interfaces.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<AtomicBool>,
    carried: CarriedBytes,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Emulator {
    /// Starts to carry packets at time 0 of the clock. `interfaces` are those of all hosts of the network, and `addresses`
    /// those of its hosts, in its order; `broadcast` is the address of all of them.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(
        network: Network<Packet>,
        interfaces: Vec<Interface>,
        addresses: &[Ipv4Addr],
        broadcast: Ipv4Addr,
        (clock, captures): (Clock, Option<Captures>),
    ) -> io::Result<Emulator> {
        let destinations = destinations(&network, addresses, broadcast);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let carried = Arc::new(Mutex::new(link_bytes(&network)));
        let updated = Arc::clone(&carried);
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let mut worker = Worker::new(network, interfaces, destinations, clock)?;
            worker.forwarding.captures = captures;
            worker.run(&stopping, &updated)
        })?;
        Ok(Emulator { stop, carried: CarriedBytes(carried), thread: Some(thread) })
    }

    /// Returns a reader of the bytes that each medium has carried.
    pub fn carried(&self) -> CarriedBytes {
        self.carried.clone()
    }

    /// Returns whether the thread still runs.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the emulator, removes the interfaces, and returns what it did.
    ///
    /// # Errors
    /// System errors that ended the emulator before.
    pub fn finish(mut self) -> io::Result<Report> {
        self.join().unwrap_or_else(|| Err(io::ErrorKind::NotConnected.into()))
    }

    fn join(&mut self) -> Option<io::Result<Report>> {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.take()?.join();
        Some(result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// The state of the thread.
struct Worker {
    forwarding: Forwarding,
    interfaces: Vec<Interface>,
    /// Index of each interface by host, port and whether it is that of an LLC station.
    numbers: BTreeMap<(u32, Port, bool), usize>,
    /// Numbers of the hosts of the LLC stations, in the order of the stations.
    stations: Vec<u32>,
    /// Numbers of the hosts by their addresses, and groups of the plan.
    destinations: BTreeMap<IpAddr, Destination>,
    clock: Clock,
    waiter: Waiter,
    /// Whether an interface may have packets to read, and whether it waits for room.
    readable: Vec<bool>,
    blocked: Vec<bool>,
    buffer: Box<[u8]>,
    serial: u32,
    report: Report,
    /// Keeps the processors awake.
    _latency: Option<File>,
}

impl Worker {
    fn new(
        network: Network<Packet>,
        interfaces: Vec<Interface>,
        destinations: BTreeMap<IpAddr, Destination>,
        clock: Clock,
    ) -> io::Result<Worker> {
        let waiter = Waiter::new(clock)?;
        for (number, interface) in (0u32..).zip(&interfaces) {
            waiter.add(&interface.tun, number)?;
        }
        let mut lateness_ns = Histogram::new_with_bounds(1, 1 << 16, 3).expect("constant bounds are valid");
        lateness_ns.auto(true);
        let report = Report {
            lateness_ns,
            packets_in: 0,
            packets_out: 0,
            unroutable: 0,
            group_reports: 0,
            refused: 0,
            media: Vec::new(),
            network: None,
            link_series: LinkSeries::new(&network),
            capture_drops: 0,
            capture_error: None,
            duration: Span::ZERO,
            processor_time: Span::ZERO,
            is_real_time: set_scheduler(libc::SCHED_FIFO, PRIORITY),
        };
        Ok(Worker {
            forwarding: Forwarding::new(network),
            readable: vec![true; interfaces.len()],
            blocked: vec![false; interfaces.len()],
            numbers: (0..).zip(&interfaces).map(|(number, interface)| (interface.key(), number)).collect(),
            stations: station_hosts(&interfaces),
            interfaces,
            destinations,
            clock,
            waiter,
            buffer: vec![0; MAX_PACKET].into(),
            serial: 0,
            report,
            _latency: keep_processors_awake(),
        })
    }

    fn run(mut self, stop: &AtomicBool, carried: &Mutex<LinkBytes>) -> io::Result<Report> {
        let (mut updated, mut counted) = (Instant::ZERO, 0);
        while !stop.load(Ordering::Relaxed) {
            if self.clock.now().since(updated) >= UPDATE_INTERVAL {
                updated = self.clock.now();
                self.report.link_series.sample_if_due(self.forwarding.network(), updated);
                // A reader that holds the lock reads older counts the next time.
                if let Ok(mut carried) = carried.try_lock() {
                    *carried = link_bytes(self.forwarding.network());
                }
            }
            let mut has_more = false;
            for interface in 0..self.interfaces.len() {
                if self.readable[interface] && !self.blocked[interface] {
                    has_more |= self.read(interface)?;
                    // What has become due meanwhile does not wait for the other interfaces.
                    self.deliver()?;
                }
            }
            let packets = self.report.packets_in + self.report.packets_out;
            self.waiter.count(packets - counted);
            counted = packets;
            let until = if has_more { Instant::ZERO } else { self.forwarding.deadline() };
            let readable = &mut self.readable;
            self.waiter.wait(until, |interface| readable[interface as usize] = true)?;
            self.deliver()?;
        }
        self.report.media = media_counters(self.forwarding.network());
        self.report.capture_drops = self.forwarding.captures.take().map_or(0, |captures| captures.dropped());
        self.report.processor_time = processor_time();
        self.report.duration = self.clock.now().since(Instant::ZERO);
        self.report.network = Some(self.forwarding.into_network());
        Ok(self.report)
    }

    /// Reads a batch of packets from an interface; returns whether there may be more.
    fn read(&mut self, interface: usize) -> io::Result<bool> {
        let Interface { at: (number, port), mtu, station, .. } = self.interfaces[interface];
        let drops = self.forwarding.network().hosts[number as usize].model.is_router();
        for _ in 0..BATCH {
            let now = self.clock.now();
            if !drops && !self.forwarding.has_room(now, number, port, mtu) {
                self.blocked[interface] = true;
                return Ok(false);
            }
            let Some(length) = self.interfaces[interface].tun.read(&mut self.buffer)? else {
                self.readable[interface] = false;
                return Ok(false);
            };
            self.report.packets_in += 1;
            let bytes = &self.buffer[..length];
            if let Some(station) = station {
                let Some(to) = station_destination(bytes, &self.stations) else {
                    self.report.unroutable += 1;
                    continue;
                };
                let length = station_frame_length(bytes, station.on_ethernet);
                self.serial = self.serial.wrapping_add(1);
                let packet = Packet::ethernet(bytes.to_vec(), to, length, self.serial);
                self.forwarding.send(now, number, port, packet);
                continue;
            }
            if is_group_report(bytes) {
                self.report.group_reports += 1;
                continue;
            }
            let to = destination_address(bytes).and_then(|address| self.destination(address));
            let Some(to) = to else {
                self.report.unroutable += 1;
                continue;
            };
            self.serial = self.serial.wrapping_add(1);
            let packet = Packet::new(bytes.to_vec(), to, channel(number, to), self.serial);
            self.forwarding.send(now, number, port, packet);
        }
        Ok(true)
    }

    /// Returns what is behind an address. A group that is not in the plan is that of a program: all stations on its side of the
    /// routers receive it, and their kernels filter it.
    fn destination(&self, address: IpAddr) -> Option<Destination> {
        let of_program = || address.is_multicast().then_some(Destination::All);
        self.destinations.get(&address).copied().or_else(of_program)
    }

    /// Delivers what has arrived by now.
    fn deliver(&mut self) -> io::Result<()> {
        self.forwarding.run(self.clock.now());
        while let Some(delivery) = self.forwarding.take_delivery() {
            let late = self.clock.now().since(delivery.at);
            // With auto-resize this cannot fail.
            let _ = self.report.lateness_ns.record(late.as_ns());
            let key = (delivery.host, delivery.port, delivery.packet.is_ethernet());
            // A frame to all stations reaches hosts without a station.
            let Some(&interface) = self.numbers.get(&key) else { continue };
            let Some(bytes) = delivery.packet.into_bytes() else { continue };
            match self.interfaces[interface].tun.write(&bytes) {
                Ok(true) => self.report.packets_out += 1,
                Ok(false) => self.report.refused += 1,
                // The kernel refuses a packet that it cannot parse, and any while its interface is down.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EIO)) => {
                    self.report.refused += 1;
                }
                Err(error) => return Err(error),
            }
        }
        while let Some(interface) = self.forwarding.take_ready() {
            let (host, port) = interface;
            for number in
                [false, true].into_iter().filter_map(|is_station| self.numbers.get(&(host, port, is_station)))
            {
                self.blocked[*number] = false;
            }
        }
        Ok(())
    }
}

/// Returns the numbers of the hosts of the LLC stations, in the order of the stations.
fn station_hosts(interfaces: &[Interface]) -> Vec<u32> {
    let stations =
        interfaces.iter().filter_map(|interface| Some((interface.station?.number, interface.at.0)));
    stations.collect::<BTreeMap<u8, u32>>().into_values().collect()
}

/// Returns what is behind each address: hosts and groups.
fn destinations(
    network: &Network<Packet>,
    addresses: &[Ipv4Addr],
    broadcast: Ipv4Addr,
) -> BTreeMap<IpAddr, Destination> {
    let hosts = (0..).zip(addresses).flat_map(|(number, address)| {
        ipv6::both(*address).map(|address| (address, Destination::Station(number)))
    });
    let groups = network.groups.iter().map(|(address, group)| (*address, Destination::Group(*group)));
    let all = [broadcast, Ipv4Addr::BROADCAST].map(|address| (IpAddr::V4(address), Destination::All));
    hosts.chain(groups).chain(all).collect()
}

/// Returns the virtual channel of packets of a host to a destination.
fn channel(from: u32, to: Destination) -> u16 {
    match to {
        Destination::Station(to) => (from << 8 | to & 0xff) as u16,
        Destination::Group(_) | Destination::All => from as u16,
    }
}

/// Asks the kernel for processors that wake at once, until the file is closed (`Documentation/power/pm_qos_interface.rst`). Waking
/// one that sleeps takes tens of microseconds, and a packet wakes the emulator and its receiver. `None` if only root may ask.
fn keep_processors_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Changes how the calling thread is scheduled; returns whether the system allows it.
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> bool {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter lives until the call returns, and 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

fn link_bytes(network: &Network<Packet>) -> LinkBytes {
    let media = network.transmission_media().map(|node| {
        let bytes = [0, 1].map(|port| node.medium.counters(Port(port)).bytes);
        (node.name.clone(), bytes)
    });
    media.collect()
}

fn media_counters(network: &Network<Packet>) -> Vec<(String, Vec<MediumCounters>)> {
    let counters = network.media.iter().map(|node| {
        let ports = (0..node.attachments.len() as u16).map(|port| node.medium.counters(Port(port)).clone());
        (node.name.clone(), ports.collect())
    });
    counters.collect()
}
