//! Question and answer, wherever the scheduler puts the ends: how long it took, each time.

use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use trunkline_arq::socket::{Connection, Listener};
use trunkline_arq::{Buffer, Options};
use trunkline_io::socket;
use trunkline_units::Span;

use crate::spaces::{Side, Spaces};

const TIME: Duration = Duration::from_millis(2500);
const WARM: usize = 200;
const MESSAGE: [u8; 100] = [7; 100];

/// Microseconds, sorted.
fn measure(mut once: impl FnMut()) -> Vec<f64> {
    (0..WARM).for_each(|_| once());
    let begin = Instant::now();
    let mut took = Vec::with_capacity(1 << 18);
    while begin.elapsed() < TIME {
        let from = Instant::now();
        once();
        took.push(from.elapsed().as_nanos() as f64 * 1e-3);
    }
    took.sort_by(f64::total_cmp);
    took
}

/// Datagrams, for a line that loses none.
pub fn udp(spaces: &Spaces) -> Vec<f64> {
    let (at, address) = mpsc::channel();
    thread::scope(|scope| {
        spaces.spawn(scope, Side::East, move || {
            let server = UdpSocket::bind(Side::East.address()).expect("a socket");
            at.send(server.local_addr().expect("an address")).expect("the client waits");
            let mut room = [0; 2048];
            loop {
                let (length, from) = server.recv_from(&mut room).expect("a question");
                if length < MESSAGE.len() {
                    return;
                }
                server.send_to(&room[..length], from).expect("it leaves");
            }
        });
        let client = spaces.spawn(scope, Side::West, move || {
            let client = UdpSocket::bind(Side::West.address()).expect("a socket");
            client.connect(address.recv().expect("an address")).expect("a route");
            let mut room = [0; 2048];
            let took = measure(|| {
                client.send(&MESSAGE).expect("it leaves");
                client.recv(&mut room).expect("an answer");
            });
            client.send(&[0]).expect("it leaves");
            took
        });
        client.join().expect("the client ends")
    })
}

pub fn tcp(spaces: &Spaces) -> Vec<f64> {
    let (at, address) = mpsc::channel();
    let options = &socket::Options { nodelay: true, ..socket::Options::default() };
    let limit = Span::from_s(5);
    thread::scope(|scope| {
        spaces.spawn(scope, Side::East, move || {
            let listener = socket::tcp_listen(Side::East.address(), options).expect("a socket");
            at.send(listener.local_addr().expect("an address")).expect("the client waits");
            let stream = socket::tcp_accept(&listener, limit, options).expect("a client");
            let mut stream = stream.expect("in time");
            let mut room = MESSAGE;
            while stream.read_exact(&mut room).is_ok() {
                stream.write_all(&room).expect("it leaves");
            }
        });
        let client = spaces.spawn(scope, Side::West, move || {
            let to = address.recv().expect("an address");
            let local = Side::West.address();
            let mut client = socket::tcp_connect(local, to, limit, options).expect("a server");
            let mut room = MESSAGE;
            let took = measure(|| {
                client.write_all(&MESSAGE).expect("it leaves");
                client.read_exact(&mut room).expect("an answer");
            });
            client.shutdown(Shutdown::Both).expect("it is open");
            took
        });
        client.join().expect("the client ends")
    })
}

pub fn ours(spaces: &Spaces, options: &Options) -> Vec<f64> {
    let (at, address) = mpsc::channel();
    thread::scope(|scope| {
        spaces.spawn(scope, Side::East, move || {
            let listener = Listener::bind(Side::East.address(), options).expect("a socket");
            at.send(listener.address()).expect("the client waits");
            let client = listener.accept().expect("a client");
            let mut room = Buffer::new();
            while client.recv_into(0, &mut room).is_ok() {
                client.send(0, &room).expect("it leaves");
            }
            client.close().expect("both close");
        });
        let client = spaces.spawn(scope, Side::West, move || {
            let to = address.recv().expect("an address");
            let client = Connection::connect(to, options).expect("a server");
            let mut room = Buffer::new();
            let took = measure(|| {
                client.send(0, &MESSAGE).expect("it leaves");
                client.recv_into(0, &mut room).expect("an answer");
            });
            client.close().expect("both close");
            took
        });
        client.join().expect("the client ends")
    })
}
