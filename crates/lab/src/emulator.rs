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
use trunkline_sim::network::Network;
use trunkline_units::{Instant, Span};

use crate::forwarding::Forwarding;
use crate::packet::{Packet, destination_address, is_group_report};
use crate::wait::{Waiter, processor_time};

/// Packets read from one interface before deliveries that have become due.
const BATCH: usize = 16;
/// Real-time priority of the thread, where the system allows it.
const PRIORITY: libc::c_int = 20;
/// How often the counts of the links are updated for readers.
const UPDATE_INTERVAL: Span = Span::from_ms(250);
/// Longest IPv4 packet.
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
    /// Packets to addresses that no host has, or not of IPv4; those of IGMP have no receiver and do not count.
    pub unroutable: u64,
    /// Packets that the kernel did not accept.
    pub refused: u64,
    /// Counters of each medium: its name and those of its two ends, or of its ports.
    pub media: Vec<(String, Vec<MediumCounters>)>,
    /// The media as they were at the end, with their queues and counters.
    pub network: Option<Network<Packet>>,
    /// How long it ran.
    pub duration: Span,
    /// Processor time of its thread.
    pub processor_time: Span,
    /// Whether the thread had a real-time priority.
    pub is_real_time: bool,
}

/// Bytes of each medium by its first two ports.
type LinkBytes = Vec<(String, [u64; 2])>;

/// A running emulator. Dropping it stops it and removes the interfaces.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<AtomicBool>,
    carried: Arc<Mutex<LinkBytes>>,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Emulator {
    /// Starts to carry packets. `interfaces` are those of all hosts of the network, and `addresses` those of its hosts, in its
    /// order; `broadcast` is the address of all of them.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(
        network: Network<Packet>,
        interfaces: Vec<Interface>,
        addresses: &[Ipv4Addr],
        broadcast: Ipv4Addr,
    ) -> io::Result<Emulator> {
        let destinations = destinations(&network, addresses, broadcast);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let carried = Arc::new(Mutex::new(link_bytes(&network)));
        let updated = Arc::clone(&carried);
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let clock = Clock::start();
            Worker::new(network, interfaces, destinations, clock)?.run(&stopping, &updated)
        })?;
        Ok(Emulator { stop, carried, thread: Some(thread) })
    }

    /// Returns the bytes that each medium had carried at the last update.
    pub fn link_bytes(&self) -> LinkBytes {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
    /// Index of each interface by host and port.
    numbers: BTreeMap<(u32, Port), usize>,
    /// Numbers of the hosts by their addresses, and groups.
    destinations: BTreeMap<Ipv4Addr, Destination>,
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
        destinations: BTreeMap<Ipv4Addr, Destination>,
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
            refused: 0,
            media: Vec::new(),
            network: None,
            duration: Span::ZERO,
            processor_time: Span::ZERO,
            is_real_time: set_scheduler(libc::SCHED_FIFO, PRIORITY),
        };
        Ok(Worker {
            forwarding: Forwarding::new(network),
            readable: vec![true; interfaces.len()],
            blocked: vec![false; interfaces.len()],
            numbers: (0..).zip(&interfaces).map(|(number, interface)| (interface.at, number)).collect(),
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
        self.report.processor_time = processor_time();
        self.report.duration = self.clock.now().since(Instant::ZERO);
        self.report.network = Some(self.forwarding.into_network());
        Ok(self.report)
    }

    /// Reads a batch of packets from an interface; returns whether there may be more.
    fn read(&mut self, interface: usize) -> io::Result<bool> {
        let Interface { at: (number, port), mtu, .. } = self.interfaces[interface];
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
            let to = destination_address(bytes).and_then(|address| self.destinations.get(&address).copied());
            let Some(to) = to else {
                self.report.unroutable += u64::from(!is_group_report(bytes));
                continue;
            };
            self.serial = self.serial.wrapping_add(1);
            let packet = Packet::new(bytes.to_vec(), to, channel(number, to), self.serial);
            self.forwarding.send(now, number, port, packet);
        }
        Ok(true)
    }

    /// Delivers what has arrived by now.
    fn deliver(&mut self) -> io::Result<()> {
        self.forwarding.run(self.clock.now());
        while let Some(delivery) = self.forwarding.take_delivery() {
            let late = self.clock.now().since(delivery.at);
            // With auto-resize this cannot fail.
            let _ = self.report.lateness_ns.record(late.as_ns());
            let Some(bytes) = delivery.packet.into_bytes() else { continue };
            let interface = self.numbers[&(delivery.host, delivery.port)];
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
            self.blocked[self.numbers[&interface]] = false;
        }
        Ok(())
    }
}

/// Returns what is behind each address: hosts and groups.
fn destinations(
    network: &Network<Packet>,
    addresses: &[Ipv4Addr],
    broadcast: Ipv4Addr,
) -> BTreeMap<Ipv4Addr, Destination> {
    let hosts = (0..).zip(addresses).map(|(number, address)| (*address, Destination::Station(number)));
    let groups = network.groups.iter().filter_map(|(address, group)| match address {
        IpAddr::V4(address) => Some((*address, Destination::Group(*group))),
        IpAddr::V6(_) => None,
    });
    let all = [broadcast, Ipv4Addr::BROADCAST].map(|address| (address, Destination::All));
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
