//! As much as crosses, one way or both at once.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use trunkline_arq::socket::{Connection, Error, Listener};
use trunkline_arq::{Options, Statistics};
use trunkline_io::socket;
use trunkline_units::{Size, Span};

use crate::spaces::{Side, Spaces};

const WARM: Duration = Duration::from_millis(500);
const TIME: Duration = Duration::from_millis(2500);
/// How long a call may wait before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(500);
/// A datagram on an Ethernet, without the headers of IP and UDP.
const FRAME: usize = 1472;
const MESSAGE: usize = 8192;

/// The result: message bits per second, both directions together, and the counters of our transport.
#[derive(Clone, Copy, Default)]
pub struct Goodput {
    pub bps: f64,
    pub west: Statistics,
    pub east: Statistics,
}

/// Receivers that still measure. All go on until there is none.
struct Measuring(AtomicUsize);

impl Measuring {
    fn goes_on(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Measures what `next` gets, in bytes, if something came in time; bits a second. From one arrival to another: so
    /// a message counts as long as it took.
    fn measure(&self, mut next: impl FnMut() -> Option<usize>) -> f64 {
        let mut until = |moment: Instant| {
            let mut bytes = 0;
            while Instant::now() < moment {
                bytes += next().unwrap_or(0);
            }
            bytes
        };
        until(Instant::now() + WARM);
        let from = Instant::now();
        let bytes = until(from + TIME);
        let bps = 8.0 * bytes as f64 / from.elapsed().as_secs_f64();
        self.0.fetch_sub(1, Ordering::Relaxed);
        while self.goes_on() {
            next();
        }
        bps
    }
}

/// None if it only took too long, or all is over and the other end saw it first.
fn in_time(done: io::Result<usize>, measuring: &Measuring) -> Option<usize> {
    match done {
        Ok(bytes) => Some(bytes),
        Err(error) if socket::is_timeout(&error) || !measuring.goes_on() => None,
        Err(error) => panic!("{error}"),
    }
}

/// The directions of a run, by where they begin.
fn ways(both: bool) -> &'static [Side] {
    if both { &[Side::West, Side::East] } else { &[Side::West] }
}

fn other(side: Side) -> Side {
    if side == Side::West { Side::East } else { Side::West }
}

/// Datagrams as fast as the system takes them, a call each; the line drops what is too much.
pub fn udp(spaces: &Spaces, both: bool) -> Goodput {
    let measuring = &Measuring(AtomicUsize::new(ways(both).len()));
    let size = Some(Size::from_bytes(4 << 20));
    let options = socket::Options { send_buffer: size, receive_buffer: size, ..socket::Options::default() };
    let open = move |side: Side| {
        let socket = socket::udp(side.address(), &options).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket
    };
    let send = move |socket: UdpSocket, to: SocketAddr| {
        while measuring.goes_on() {
            // What the line drops the system may tell, or not.
            let _ = socket.send_to(&[7; FRAME], to);
        }
    };
    let receive = move |socket: UdpSocket| {
        let mut room = [0; FRAME];
        measuring.measure(|| in_time(socket.recv(&mut room), measuring))
    };
    thread::scope(|scope| {
        let receivers = ways(both).iter().map(|&from| {
            let (at, address) = mpsc::channel();
            let (here, there) = (open.clone(), open.clone());
            spaces.spawn(scope, from, move || send(here(from), address.recv().expect("an address")));
            spaces.spawn(scope, other(from), move || {
                let socket = there(other(from));
                at.send(socket.local_addr().expect("an address")).expect("the sender waits");
                receive(socket)
            })
        });
        let receivers: Vec<_> = receivers.collect();
        let bps = receivers.into_iter().map(|receiver| receiver.join().expect("it ends")).sum();
        Goodput { bps, ..Goodput::default() }
    })
}

/// The kernel's TCP, by a congestion control of its.
pub fn tcp(spaces: &Spaces, both: bool, congestion: &str) -> Goodput {
    let measuring = &Measuring(AtomicUsize::new(ways(both).len()));
    let options = &socket::Options { congestion: Some(congestion.into()), ..socket::Options::default() };
    let limit = Span::from_s(5);
    let work = move |stream: &TcpStream, sends: bool, receives: bool| {
        socket::limit_blocking(stream, PATIENCE.into()).expect("not zero");
        let send = || {
            // A message of which a part was written is not to be begun again.
            let (message, mut from) = ([7; MESSAGE], 0);
            while measuring.goes_on() {
                from += in_time((&*stream).write(&message[from..]), measuring).unwrap_or(0);
                from %= MESSAGE;
            }
        };
        let receive = || {
            let mut room = vec![0; 256 << 10];
            measuring.measure(|| in_time((&*stream).read(&mut room), measuring))
        };
        let bps = thread::scope(|scope| {
            sends.then(|| scope.spawn(send));
            if receives { receive() } else { 0.0 }
        });
        let _ = stream.shutdown(Shutdown::Both);
        bps
    };
    let (at, address) = mpsc::channel();
    thread::scope(|scope| {
        let east = spaces.spawn(scope, Side::East, move || {
            let listener = socket::tcp_listen(Side::East.address(), options).expect("a socket");
            at.send(listener.local_addr().expect("an address")).expect("the client waits");
            let stream = socket::tcp_accept(&listener, limit, options).expect("a client").expect("in time");
            work(&stream, both, true)
        });
        let west = spaces.spawn(scope, Side::West, move || {
            let to = address.recv().expect("an address");
            let local = Side::West.address();
            let stream = socket::tcp_connect(local, to, limit, options).expect("a server");
            work(&stream, true, both)
        });
        let bps = east.join().expect("it ends") + west.join().expect("it ends");
        Goodput { bps, ..Goodput::default() }
    })
}

/// Ours.
pub fn ours(spaces: &Spaces, both: bool, options: &Options) -> Goodput {
    let measuring = &Measuring(AtomicUsize::new(ways(both).len()));
    let work = move |connection: Connection, sends: bool, receives: bool| {
        let send = || {
            while measuring.goes_on() {
                match connection.send_timeout(0, &[7; MESSAGE], PATIENCE) {
                    Ok(()) | Err(Error::TimedOut) => {}
                    // All is over, and the other end saw it first.
                    Err(_) if !measuring.goes_on() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let next = || match connection.recv_timeout(0, PATIENCE) {
            Ok(message) => Some(message.len()),
            Err(Error::TimedOut) => None,
            Err(_) if !measuring.goes_on() => None,
            Err(error) => panic!("{error}"),
        };
        let bps = thread::scope(|scope| {
            sends.then(|| scope.spawn(send));
            if receives { measuring.measure(next) } else { 0.0 }
        });
        (bps, connection.statistics().unwrap_or_default())
    };
    let (at, address) = mpsc::channel();
    thread::scope(|scope| {
        let east = spaces.spawn(scope, Side::East, move || {
            let listener = Listener::bind(Side::East.address(), options).expect("a socket");
            at.send(listener.address()).expect("the client waits");
            work(listener.accept().expect("a client"), both, true)
        });
        let west = spaces.spawn(scope, Side::West, move || {
            let to = address.recv().expect("an address");
            work(Connection::connect(to, options).expect("a server"), true, both)
        });
        let (to_east, east) = east.join().expect("it ends");
        let (to_west, west) = west.join().expect("it ends");
        Goodput { bps: to_east + to_west, west, east }
    })
}
