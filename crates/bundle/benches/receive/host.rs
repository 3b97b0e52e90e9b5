//! The receivers under test.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use trunkline_bundle::rules::Rules;
use trunkline_bundle::socket::host::REFRESH_INTERVAL;
use trunkline_bundle::socket::{DisOptions, HostOptions, HostSocket, SocketDriver};
use trunkline_bundle::wire::classic::{ClassicBundle, host_bit};
use trunkline_bundle::{Settings, host::MessageInfo};
use trunkline_endpoint::Segment;
use trunkline_io::ports::Received;
use trunkline_io::usage::thread_cpu_time;
use trunkline_io::{Clock, Ports, socket};
use trunkline_units::Span;

use crate::link::ADDRESSES;
use crate::messages::{BUFFER, Samples};
use crate::{GROUP, PORT};

/// The ports of the host and of its central converter.
pub const LISTEN: u16 = 3459;
pub const CENTRAL: u16 = 3458;
/// One of this many messages is sampled for its delay.
const SAMPLE_EVERY: u64 = 16;
/// The addresses to which a DIS program sends and on which it listens.
const PROGRAM_SENDS_TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3000);
const PROGRAM_RECEIVES_ON: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3001);

/// How messages are sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One datagram per message, one blocking call each.
    Plain,
    /// One datagram per message, received in batches.
    Batches,
    /// Bundles, one blocking call each; messages are only located.
    Bare,
    /// Bundles, with the callback of a host socket.
    Callback,
    /// Bundles, which a host socket passes to a DIS program, one PDU per datagram.
    Program,
}

/// The received messages and their cost.
pub struct Receipt {
    pub samples: Samples,
    /// Processor time of the receiving threads.
    pub threads: Span,
    /// Processor time of the kernel thread of the interface.
    pub kernel: Span,
}

/// Receives available messages, or waits for them.
type Step = Box<dyn FnMut(&mut Samples) -> io::Result<()>>;

/// Receives until stopped; `kernel` returns the processor time of the kernel thread.
pub fn receive(
    method: Method,
    clock: Clock,
    ready: &Barrier,
    stop: &AtomicBool,
    kernel: impl Fn() -> Span,
) -> io::Result<Receipt> {
    let mut samples = Samples::new(clock, SAMPLE_EVERY);
    let mut step: Step = match method {
        Method::Plain => {
            let (socket, mut buffer) = (with_large_buffer(group())?, [0; 2048]);
            Box::new(move |samples| {
                let octets = socket.recv(&mut buffer)?;
                record_plain(samples, &buffer[..octets]);
                Ok(())
            })
        }
        Method::Batches => {
            let mut ports = Ports::new(clock)?;
            ports.add(group())?;
            Box::new(move |samples| {
                ports.wait(clock.now(), None)?;
                ports.receive(0, usize::MAX, |received: &Received, bytes: &[u8]| {
                    Segment::frames(received.segment, bytes)
                        .for_each(|datagram| record_plain(samples, datagram));
                })
            })
        }
        Method::Bare => {
            let (socket, mut buffer) =
                (with_large_buffer(UdpSocket::bind((ADDRESSES[1], LISTEN))?)?, vec![0; 1 << 16]);
            Box::new(move |samples| {
                let octets = socket.recv(&mut buffer)?;
                let messages =
                    ClassicBundle::read(&buffer[..octets]).into_iter().flat_map(|bundle| bundle.messages());
                messages
                    .filter(|one| one.address & host_bit(1) != 0)
                    .for_each(|one| samples.record(one.body));
                Ok(())
            })
        }
        Method::Callback => {
            let mut host_socket = host_socket(clock, None);
            Box::new(move |samples| {
                host_socket.turn_with(None, |_: MessageInfo, body: &[u8]| samples.record(body)).map(|_| ())
            })
        }
        Method::Program => return program(samples, clock, ready, stop, kernel),
    };
    ready.wait();
    let (before, kernel_before) = (thread_cpu_time(), kernel());
    while !stop.load(Ordering::Relaxed) {
        step(&mut samples)?;
    }
    Ok(Receipt { samples, threads: thread_cpu_time() - before, kernel: kernel() - kernel_before })
}

/// Runs a program that receives one datagram per call, and a host socket that sends them.
fn program(
    mut samples: Samples,
    clock: Clock,
    ready: &Barrier,
    stop: &AtomicBool,
    kernel: impl Fn() -> Span,
) -> io::Result<Receipt> {
    let dis = DisOptions {
        listen: PROGRAM_SENDS_TO,
        destination: Some(PROGRAM_RECEIVES_ON),
        rules: Rules { subscribed: vec![0..=0], ..Rules::default() },
    };
    let mut host_socket = host_socket(clock, Some(dis));
    let socket = with_large_buffer(UdpSocket::bind(PROGRAM_RECEIVES_ON)?)?;
    let stop_program = AtomicBool::new(false);
    thread::scope(|scope| {
        let program = scope.spawn(|| {
            let mut buffer = [0; 2048];
            let before = thread_cpu_time();
            while !stop_program.load(Ordering::Relaxed) {
                let octets = socket.recv(&mut buffer)?;
                samples.record(&buffer[..octets]);
            }
            Ok::<_, io::Error>((samples, thread_cpu_time() - before))
        });
        ready.wait();
        let (before, kernel_before) = (thread_cpu_time(), kernel());
        while !stop.load(Ordering::Relaxed) {
            host_socket.turn(None)?;
        }
        let (own, kernel) = (thread_cpu_time() - before, kernel() - kernel_before);
        stop_program.store(true, Ordering::Relaxed);
        // The program waits for a datagram.
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(&[0], PROGRAM_RECEIVES_ON)?;
        let (samples, program) = program.join().expect("the program ends")?;
        Ok(Receipt { samples, threads: own + program, kernel })
    })
}

/// Returns a socket of a simulation that joined the group.
fn group() -> UdpSocket {
    let at = SocketAddrV4::new(GROUP, PORT).into();
    socket::multicast_receiver(at, ADDRESSES[1].into(), &socket::Options::default()).expect("it joins")
}

/// Sets the receive buffer to the size that a host socket requests.
fn with_large_buffer(socket: UdpSocket) -> io::Result<UdpSocket> {
    setsockopt(&socket, RcvBufForce, &BUFFER)?;
    Ok(socket)
}

fn record_plain(samples: &mut Samples, datagram: &[u8]) {
    samples.record(datagram.get(2..).unwrap_or_default());
}

/// Opens host 1, whose central converter is the sender.
fn host_socket(clock: Clock, dis: Option<DisOptions>) -> HostSocket {
    let options = HostOptions {
        settings: Settings::default(),
        number: 1,
        central: SocketAddrV4::new(ADDRESSES[0], CENTRAL),
        listen: SocketAddrV4::new(ADDRESSES[1], LISTEN),
        interface: ADDRESSES[1],
        refresh: REFRESH_INTERVAL,
        dis,
    };
    HostSocket::open(&options, clock).expect("it opens")
}
