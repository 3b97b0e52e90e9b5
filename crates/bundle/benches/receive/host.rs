//! Who receives, and looks at each message.

use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trunkline_bundle::Settings;
use trunkline_bundle::face::host::RETELLS;
use trunkline_bundle::face::{HostFace, HostOptions};
use trunkline_bundle::gather::Timing;
use trunkline_endpoint::Segment;
use trunkline_net::usage::thread_time;
use trunkline_net::{Clock, Ports};
use trunkline_units::Span;

use crate::{BODY, HOST, SENDER, Way};

/// Where the host listens, and where it takes its converter to be.
pub const LISTEN: u16 = 3459;
pub const CENTRAL: u16 = 3458;
/// How long it waits before it looks whether all is over.
const LOOK: Span = Span::from_ms(20);

/// What came, and what that cost.
pub struct Heard {
    pub messages: u64,
    pub thread: Span,
    pub kernel: Span,
}

/// Receives until it is over; `kernel` tells what the kernel has used.
pub fn receive(way: Way, ready: &Barrier, over: &AtomicBool, kernel: impl Fn() -> Span) -> Heard {
    let clock = Clock::start();
    let mut turn: Box<dyn FnMut() -> u64> = match way {
        Way::Plain => {
            let (socket, mut room) = (UdpSocket::bind((HOST, LISTEN)).expect("the port is free"), [0; 2048]);
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be told");
            Box::new(move || u64::from(socket.recv(&mut room).is_ok_and(|came| came == BODY + 2)))
        }
        Way::Batches => {
            let mut ports = Ports::new(clock).expect("the system waits");
            ports.add(UdpSocket::bind((HOST, LISTEN)).expect("the port is free")).expect("a socket");
            Box::new(move || {
                let now = clock.now();
                let mut came = 0;
                if ports.wait(now, Some(now + LOOK)).expect("the system waits").has(0) {
                    let take = |from: &trunkline_net::ports::Came, bytes: &[u8]| {
                        came += Segment::frames(from.segment, bytes).filter(|m| m.len() == BODY + 2).count()
                            as u64;
                    };
                    ports.receive(0, usize::MAX, take).expect("it receives");
                }
                came
            })
        }
        Way::Bundles => {
            let options = HostOptions {
                settings: Settings { timing: Timing::LEAST_PROCESSOR, ..Settings::default() },
                number: 1,
                central: SocketAddrV4::new(SENDER, CENTRAL),
                listen: SocketAddrV4::new(HOST, LISTEN),
                interface: HOST,
                retell: RETELLS,
                dis: None,
            };
            let mut face = HostFace::open(&options, clock).expect("it opens");
            Box::new(move || {
                let mut came = 0;
                let each = |_, message: &[u8]| came += u64::from(message.len() == BODY);
                face.turn_with(Some(clock.now() + LOOK), each).expect("it turns");
                came
            })
        }
    };
    ready.wait();
    let (before, kernel_before) = (thread_time(), kernel());
    let mut messages = 0;
    while !over.load(Ordering::Relaxed) {
        messages += turn();
    }
    Heard { messages, thread: thread_time() - before, kernel: kernel() - kernel_before }
}
