//! Who receives, and looks at each message.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use trunkline_bundle::face::host::RETELLS;
use trunkline_bundle::face::{DisOptions, HostFace, HostOptions, Serve};
use trunkline_bundle::rules::Rules;
use trunkline_bundle::wire::classic::{Bundle, bit};
use trunkline_bundle::{Settings, host::From};
use trunkline_endpoint::Segment;
use trunkline_io::ports::Came;
use trunkline_io::usage::thread_time;
use trunkline_io::{Clock, Ports, socket};
use trunkline_units::Span;

use crate::line::ENDS;
use crate::messages::{BUFFER, Noted};
use crate::{GROUP, PORT};

/// Where the host listens, and where it takes its converter to be.
pub const LISTEN: u16 = 3459;
pub const CENTRAL: u16 = 3458;
/// Every so manieth message tells its delay.
const TELLS: u64 = 16;
/// Where programs of DIS send to and listen.
const SAYS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3000);
const HEARS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3001);

/// How messages come, and how they are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A datagram each, a blocking call for each.
    Plain,
    /// A datagram each, taken by batches.
    Batches,
    /// Bundles, a blocking call for each, and no more done than to find the messages.
    Bare,
    /// Bundles, by the closure of a host's interface.
    Face,
    /// Bundles, which a host's interface gives to a program of DIS, a PDU a datagram.
    Program,
}

/// What came, and what that cost.
pub struct Heard {
    pub noted: Noted,
    /// Processor time of those who received.
    pub threads: Span,
    /// Of the kernel for the interface.
    pub kernel: Span,
}

/// Takes what has come, or waits for it.
type Turn = Box<dyn FnMut(&mut Noted) -> io::Result<()>>;

/// Receives until it is over; `kernel` tells what the kernel has used.
pub fn receive(
    way: Way,
    clock: Clock,
    ready: &Barrier,
    over: &AtomicBool,
    kernel: impl Fn() -> Span,
) -> io::Result<Heard> {
    let mut noted = Noted::new(clock, TELLS);
    let mut turn: Turn = match way {
        Way::Plain => {
            let (socket, mut room) = (roomy(group())?, [0; 2048]);
            Box::new(move |noted| {
                let octets = socket.recv(&mut room)?;
                note_plain(noted, &room[..octets]);
                Ok(())
            })
        }
        Way::Batches => {
            let mut ports = Ports::new(clock)?;
            ports.add(group())?;
            Box::new(move |noted| {
                ports.wait(clock.now(), None)?;
                ports.receive(0, usize::MAX, |came: &Came, bytes: &[u8]| {
                    Segment::frames(came.segment, bytes).for_each(|datagram| note_plain(noted, datagram));
                })
            })
        }
        Way::Bare => {
            let (socket, mut room) = (roomy(UdpSocket::bind((ENDS[1], LISTEN))?)?, vec![0; 1 << 16]);
            Box::new(move |noted| {
                let octets = socket.recv(&mut room)?;
                let messages = Bundle::read(&room[..octets]).into_iter().flat_map(|bundle| bundle.messages());
                messages.filter(|one| one.address & bit(1) != 0).for_each(|one| noted.note(one.body));
                Ok(())
            })
        }
        Way::Face => {
            let mut face = face(clock, None);
            Box::new(move |noted| face.turn_with(None, |_: From, body: &[u8]| noted.note(body)).map(|_| ()))
        }
        Way::Program => return program(noted, clock, ready, over, kernel),
    };
    ready.wait();
    let (before, kernel_before) = (thread_time(), kernel());
    while !over.load(Ordering::Relaxed) {
        turn(&mut noted)?;
    }
    Ok(Heard { noted, threads: thread_time() - before, kernel: kernel() - kernel_before })
}

/// A program that takes a datagram a call, and a host's interface that gives it those.
fn program(
    mut noted: Noted,
    clock: Clock,
    ready: &Barrier,
    over: &AtomicBool,
    kernel: impl Fn() -> Span,
) -> io::Result<Heard> {
    let dis = DisOptions {
        listen: SAYS,
        to: Some(HEARS),
        rules: Rules { wanted: vec![0..=0], ..Rules::default() },
    };
    let mut face = face(clock, Some(dis));
    let socket = roomy(UdpSocket::bind(HEARS)?)?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let program = scope.spawn(|| {
            let mut room = [0; 2048];
            let before = thread_time();
            while !ends.load(Ordering::Relaxed) {
                let octets = socket.recv(&mut room)?;
                noted.note(&room[..octets]);
            }
            Ok::<_, io::Error>((noted, thread_time() - before))
        });
        ready.wait();
        let (before, kernel_before) = (thread_time(), kernel());
        while !over.load(Ordering::Relaxed) {
            face.turn(None)?;
        }
        let (own, kernel) = (thread_time() - before, kernel() - kernel_before);
        ends.store(true, Ordering::Relaxed);
        // It waits for something.
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(&[0], HEARS)?;
        let (noted, program) = program.join().expect("the program ends")?;
        Ok(Heard { noted, threads: own + program, kernel })
    })
}

/// The socket of a simulation: in the group.
fn group() -> UdpSocket {
    let at = SocketAddrV4::new(GROUP, PORT).into();
    socket::multicast_receiver(at, ENDS[1].into(), &socket::Options::default()).expect("it joins")
}

/// With as much room as a host's interface asks for.
fn roomy(socket: UdpSocket) -> io::Result<UdpSocket> {
    setsockopt(&socket, RcvBufForce, &BUFFER)?;
    Ok(socket)
}

fn note_plain(noted: &mut Noted, datagram: &[u8]) {
    noted.note(datagram.get(2..).unwrap_or_default());
}

/// The interface of host 1, whose central converter is where the messages come from.
fn face(clock: Clock, dis: Option<DisOptions>) -> HostFace {
    let options = HostOptions {
        settings: Settings::default(),
        number: 1,
        central: SocketAddrV4::new(ENDS[0], CENTRAL),
        listen: SocketAddrV4::new(ENDS[1], LISTEN),
        interface: ENDS[1],
        retell: RETELLS,
        dis,
    };
    HostFace::open(&options, clock).expect("it opens")
}
