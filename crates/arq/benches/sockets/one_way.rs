//! As much as goes one way, a core for each end.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use trunkline_arq::socket::{Connection, Listener};
use trunkline_arq::{Buffer, Options};
use trunkline_endpoint::Segment;
use trunkline_io::batch::{BatchReceiver, BatchSender};
use trunkline_io::datagrams::{BUFFER_SIZE, Datagrams};
use trunkline_io::socket;
use trunkline_units::{Size, Span};

use crate::contest::pin;

const WARM: Duration = Duration::from_millis(100);
const TIME: Duration = Duration::from_millis(400);
const FRAME: usize = 1472;

/// Messages that arrived within a time.
pub struct Rate {
    messages: u64,
    bytes: u64,
    time: Duration,
}

impl Rate {
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.time.as_secs_f64()
    }

    pub fn bps(&self) -> f64 {
        8.0 * self.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Counts what `next` gets, messages and bytes, once it is warm, until the time is up.
fn count(mut next: impl FnMut() -> (u64, u64)) -> Rate {
    let begin = Instant::now();
    while begin.elapsed() < WARM {
        next();
    }
    let begin = Instant::now();
    let mut rate = Rate { messages: 0, bytes: 0, time: Duration::ZERO };
    while rate.time < TIME {
        // The clock is not asked for each message.
        for _ in 0..64 {
            let (messages, bytes) = next();
            rate.messages += messages;
            rate.bytes += bytes;
        }
        rate.time = begin.elapsed();
    }
    rate
}

/// Runs a sender on core 0 until the receiver, on core 1, is done.
fn on_two_cores<T: Send>(sender: impl FnOnce(&AtomicBool) + Send, receiver: impl FnOnce() -> T + Send) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(0);
            sender(&stop);
        });
        let receiver = scope.spawn(|| {
            pin(1);
            let got = receiver();
            stop.store(true, Ordering::Relaxed);
            got
        });
        receiver.join().expect("the receiver ends")
    })
}

/// Bits a second of raw UDP with offload: frames of 1472 bytes, 44 a call.
pub fn udp() -> f64 {
    let size = Some(Size::from_bytes(4 << 20));
    let options = socket::Options { send_buffer: size, receive_buffer: size, ..socket::Options::default() };
    let open = || socket::udp("127.0.0.1:0".parse().expect("an address"), &options).expect("a socket");
    let (from, to) = (open(), open());
    let sender = BatchSender::new(from, to.local_addr().expect("an address")).expect("a socket");
    let mut receiver = BatchReceiver::new(to).expect("a socket");
    let batch = vec![7; FRAME * sender.capacity(FRAME)];
    let send = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            sender.send(&batch, FRAME).expect("it leaves");
        }
    };
    let receive = || {
        count(|| {
            let mut bytes = 0;
            receiver
                .receive(Span::from_ms(100), |batch| bytes += batch.bytes.len() as u64)
                .expect("it comes");
            (1, bytes)
        })
    };
    on_two_cores(send, receive).bps()
}

/// The same by [`Datagrams`], with a receiver that blocks instead of napping.
pub fn datagrams() -> f64 {
    let size = Some(Size::from_bytes(4 << 20));
    let options = socket::Options { send_buffer: size, receive_buffer: size, ..socket::Options::default() };
    let open = || Datagrams::bind("127.0.0.1:0".parse().expect("an address"), &options).expect("a socket");
    let (from, to) = (open(), open());
    let (at, batch) = (to.local(), vec![7; FRAME * 44]);
    let send = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            from.send(at, &batch, Segment::of(FRAME, batch.len())).expect("it leaves");
        }
    };
    let mut room = vec![0; BUFFER_SIZE];
    let receive =
        || count(|| (1, to.receive(&mut room, true).expect("it comes").map_or(0, |a| a.length as u64)));
    on_two_cores(send, receive).bps()
}

/// Bits a second of TCP, written in pieces of `size` and read as they come.
pub fn tcp(size: usize) -> f64 {
    let (mut from, mut to) = tcp_pair();
    let message = vec![7; size];
    let send = move |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) && from.write_all(&message).is_ok() {}
    };
    let mut room = vec![0; 256 << 10];
    let receive = move || count(|| (1, to.read(&mut room).expect("it comes") as u64));
    on_two_cores(send, receive).bps()
}

/// Bits a second of messages of `size` over TCP, each written with its length before it and read as a whole.
pub fn framed_tcp(size: usize) -> f64 {
    let (mut from, to) = tcp_pair();
    let message = vec![7; size];
    let send = move |stop: &AtomicBool| {
        let mut frame = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            frame.clear();
            frame.extend_from_slice(&(size as u32).to_be_bytes());
            frame.extend_from_slice(&message);
            if from.write_all(&frame).is_err() {
                return;
            }
        }
    };
    let mut to = BufReader::with_capacity(256 << 10, to);
    let mut room = Vec::new();
    let receive = move || {
        count(|| {
            let mut length = [0; 4];
            to.read_exact(&mut length).expect("it comes");
            room.resize(u32::from_be_bytes(length) as usize, 0);
            to.read_exact(&mut room).expect("it comes");
            (1, room.len() as u64)
        })
    };
    on_two_cores(send, receive).bps()
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let from = TcpStream::connect(listener.local_addr().expect("an address")).expect("loopback");
    (from, listener.accept().expect("it is there").0)
}

/// Ours. Each end's helper stays on its core.
pub fn ours(size: usize, options: &Options) -> Rate {
    let (at, address) = std::sync::mpsc::channel();
    let send = move |stop: &AtomicBool| {
        let address: std::net::SocketAddr = address.recv().expect("an address");
        let connection = Connection::connect(address, options).expect("loopback");
        let message = vec![7; size];
        while !stop.load(Ordering::Relaxed) && connection.send(0, &message).is_ok() {}
    };
    let receive = move || {
        let listener = Listener::bind("127.0.0.1:0", options).expect("a socket");
        at.send(listener.address()).expect("the sender waits");
        let connection = listener.accept().expect("a sender");
        let mut room = Buffer::new();
        count(|| {
            connection.recv_into(0, &mut room).expect("it comes");
            (1, room.len() as u64)
        })
    };
    on_two_cores(send, receive)
}
