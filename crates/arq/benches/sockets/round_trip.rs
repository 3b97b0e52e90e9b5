//! Question and answer, both ends on one core: microseconds, the median of a round.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use trunkline_arq::socket::{Connection, Listener};
use trunkline_arq::{Buffer, Options};

use crate::contest::{median, pin};

const TIME: Duration = Duration::from_millis(60);
const WARM: usize = 300;

/// The median of what `once` takes.
fn measure(mut once: impl FnMut()) -> f64 {
    (0..WARM).for_each(|_| once());
    let begin = Instant::now();
    let mut took = Vec::with_capacity(1 << 17);
    while begin.elapsed() < TIME {
        let from = Instant::now();
        once();
        took.push(from.elapsed().as_nanos() as f64 * 1e-3);
    }
    median(took.into_iter())
}

/// Runs on a separate thread on core 0, unlike this one.
fn on_one_core(client: impl FnOnce() -> f64 + Send) -> f64 {
    let pinned = || {
        pin(0);
        client()
    };
    thread::scope(|scope| scope.spawn(pinned).join().expect("the client ends"))
}

pub fn udp(size: usize) -> f64 {
    on_one_core(|| {
        let server = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = server.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let mut room = [0; 65536];
            loop {
                let (length, from) = server.recv_from(&mut room).expect("a question");
                if length < 2 {
                    return;
                }
                server.send_to(&room[..length], from).expect("it leaves");
            }
        });
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.connect(address).expect("loopback");
        let (message, mut room) = (vec![7; size], [0; 65536]);
        let median = measure(|| {
            client.send(&message).expect("it leaves");
            client.recv(&mut room).expect("an answer");
        });
        client.send(&[0]).expect("it leaves");
        server.join().expect("the server ends");
        median
    })
}

pub fn tcp(size: usize) -> f64 {
    on_one_core(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.set_nodelay(true).expect("it is a TCP socket");
            let mut room = vec![0; size];
            while stream.read_exact(&mut room).is_ok() {
                stream.write_all(&room).expect("it leaves");
            }
        });
        let mut client = TcpStream::connect(address).expect("loopback");
        client.set_nodelay(true).expect("it is a TCP socket");
        let (message, mut room) = (vec![7; size], vec![0; size]);
        let median = measure(|| {
            client.write_all(&message).expect("it leaves");
            client.read_exact(&mut room).expect("an answer");
        });
        drop(client);
        server.join().expect("the server ends");
        median
    })
}

pub fn ours(size: usize, options: &Options) -> f64 {
    on_one_core(|| {
        let listener = Listener::bind("127.0.0.1:0", options).expect("a socket");
        let address = listener.address();
        let server = thread::spawn(move || {
            let client = listener.accept().expect("a client");
            let mut room = Buffer::new();
            while client.recv_into(0, &mut room).is_ok() {
                client.send(0, &room).expect("it leaves");
            }
            client.close().expect("both close");
        });
        let client = Connection::connect(address, options).expect("loopback");
        let (message, mut room) = (vec![7; size], Buffer::new());
        let median = measure(|| {
            client.send(0, &message).expect("it leaves");
            client.recv_into(0, &mut room).expect("an answer");
        });
        client.close().expect("both close");
        server.join().expect("the server ends");
        median
    })
}
