//! The thread that carries packets between the interfaces of hosts, in real time.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use hdrhistogram::Histogram;
use trunkline_endpoint::{Destination, MediumCounters, Port};
use trunkline_io::{Clock, Tun};
use trunkline_sim::network::Network;
use trunkline_units::Instant;

use crate::forwarding::Forwarding;
use crate::packet::{Packet, destination_address};
use crate::wait::Waiter;

/// Packets read from one interface before deliveries that have become due.
const BATCH: usize = 16;
/// Real-time priority of the thread, where the system allows it. The kernel stops a thread with such a priority for 50 ms of a
/// second in which it never sleeps, so a busy thread takes the highest of the other priorities.
const PRIORITY: libc::c_int = 20;
const BUSY_NICE: libc::c_int = -20;
/// Longest IPv4 packet.
const MAX_PACKET: usize = 65_535;

/// The interface of a host.
#[derive(Debug)]
pub struct Interface {
    /// The device, whose kernel end is in the namespace of the host.
    pub tun: Tun,
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Longest packet, bytes.
    pub mtu: u32,
}

/// What an emulator has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the arrival of a packet in the model to its delivery to the kernel, nanoseconds.
    pub lateness_ns: Histogram<u64>,
    /// Packets read from interfaces.
    pub packets_in: u64,
    /// Packets delivered to interfaces.
    pub packets_out: u64,
    /// Packets to addresses that no host has, or not of IPv4.
    pub unroutable: u64,
    /// Packets that the kernel did not accept.
    pub refused: u64,
    /// Counters of each medium: its name and those of its two ends, or of its ports.
    pub media: Vec<(String, Vec<MediumCounters>)>,
    /// Whether the thread ran at a real-time priority to the end.
    pub is_real_time: bool,
}

/// A running emulator. Dropping it stops it and removes the interfaces.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

impl Emulator {
    /// Starts to carry packets. `interfaces` are those of the hosts of the network, in its order.
    ///
    /// # Errors
    /// If there is no thread.
    pub fn start(network: Network<Packet>, interfaces: Vec<Interface>) -> io::Result<Emulator> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("emulator".into()).spawn(move || {
            let clock = Clock::start();
            Worker::new(network, interfaces, clock)?.run(&stopping)
        })?;
        Ok(Emulator { stop, thread: Some(thread) })
    }

    /// Stops the emulator and removes the interfaces.
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
}

impl Worker {
    fn new(network: Network<Packet>, interfaces: Vec<Interface>, clock: Clock) -> io::Result<Worker> {
        let waiter = Waiter::new(clock)?;
        let mut destinations = BTreeMap::from([(Ipv4Addr::BROADCAST, Destination::All)]);
        for (number, interface) in (0u32..).zip(&interfaces) {
            waiter.add(&interface.tun, number)?;
            destinations.insert(interface.address, Destination::Station(number));
        }
        for (address, group) in &network.groups {
            if let IpAddr::V4(address) = address {
                destinations.insert(*address, Destination::Group(*group));
            }
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
            is_real_time: set_scheduler(libc::SCHED_FIFO, PRIORITY),
        };
        Ok(Worker {
            forwarding: Forwarding::new(network),
            readable: vec![true; interfaces.len()],
            blocked: vec![false; interfaces.len()],
            interfaces,
            destinations,
            clock,
            waiter,
            buffer: vec![0; MAX_PACKET].into(),
            serial: 0,
            report,
        })
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<Report> {
        while !stop.load(Ordering::Relaxed) {
            let mut has_more = false;
            for host in 0..self.interfaces.len() {
                if self.readable[host] && !self.blocked[host] {
                    has_more |= self.read(host)?;
                }
            }
            self.deliver()?;
            if self.report.is_real_time && self.waiter.is_busy() {
                self.report.is_real_time = false;
                leave_real_time();
            }
            let until = if has_more { Instant::ZERO } else { self.forwarding.deadline() };
            let readable = &mut self.readable;
            self.waiter.wait(until, |host| readable[host as usize] = true)?;
            self.deliver()?;
        }
        self.report.media = media_counters(self.forwarding.network());
        Ok(self.report)
    }

    /// Reads a batch of packets from an interface; returns whether there may be more.
    fn read(&mut self, host: usize) -> io::Result<bool> {
        let number = host as u32;
        for _ in 0..BATCH {
            let now = self.clock.now();
            if !self.forwarding.has_room(now, number, self.interfaces[host].mtu) {
                self.blocked[host] = true;
                return Ok(false);
            }
            let Some(length) = self.interfaces[host].tun.read(&mut self.buffer)? else {
                self.readable[host] = false;
                return Ok(false);
            };
            self.report.packets_in += 1;
            let bytes = &self.buffer[..length];
            let to = destination_address(bytes).and_then(|address| self.destinations.get(&address).copied());
            let Some(to) = to else {
                self.report.unroutable += 1;
                continue;
            };
            self.serial = self.serial.wrapping_add(1);
            let packet = Packet::new(bytes.to_vec(), to, channel(number, to), self.serial);
            self.forwarding.send(now, number, packet);
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
            match self.interfaces[delivery.host as usize].tun.write(&bytes) {
                Ok(true) => self.report.packets_out += 1,
                Ok(false) => self.report.refused += 1,
                // The kernel refuses a packet that it cannot parse; that is no reason to stop.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => self.report.refused += 1,
                Err(error) => return Err(error),
            }
        }
        while let Some(host) = self.forwarding.take_ready() {
            self.blocked[host as usize] = false;
        }
        Ok(())
    }
}

/// Returns the virtual channel of packets of a host to a destination.
fn channel(from: u32, to: Destination) -> u16 {
    match to {
        Destination::Station(to) => (from << 8 | to & 0xff) as u16,
        Destination::Group(_) | Destination::All => from as u16,
    }
}

/// Changes how the calling thread is scheduled; returns whether the system allows it.
fn set_scheduler(policy: libc::c_int, priority: libc::c_int) -> bool {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter lives until the call returns, and 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// Gives the calling thread the highest priority that is not a real-time one.
fn leave_real_time() {
    set_scheduler(libc::SCHED_OTHER, 0);
    // SAFETY: the call has no pointers; 0 is the calling thread. If it fails, the thread has the priority of its process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, BUSY_NICE) };
}

fn media_counters(network: &Network<Packet>) -> Vec<(String, Vec<MediumCounters>)> {
    let counters = network.media.iter().map(|node| {
        let ports = (0..node.attachments.len() as u16).map(|port| node.medium.counters(Port(port)).clone());
        (node.name.clone(), ports.collect())
    });
    counters.collect()
}
