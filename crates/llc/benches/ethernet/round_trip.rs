//! A message and its acknowledgement, both ends on one core: microseconds, the median of a round.

use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv, send};
use trunkline_io::packet::{self, PacketSocket};
use trunkline_llc::socket::{Settings, StationSocket};
use trunkline_llc::{Address, Options, Outcome};
use trunkline_units::Span;

use crate::SIZE;
use crate::contest::{median, pin, sorted};
use crate::network;
use crate::spaces::{DEVICE, Spaces};

const TIME: Duration = Duration::from_millis(60);
const WARM: usize = 300;
const PEER: Address = Address { sap: 4, station: 2 };

/// What each of many calls takes, in microseconds.
fn measure(time: Duration, mut once: impl FnMut()) -> Vec<f64> {
    (0..WARM).for_each(|_| once());
    let begin = Instant::now();
    let mut took = Vec::with_capacity(1 << 17);
    while begin.elapsed() < time {
        let from = Instant::now();
        once();
        took.push(from.elapsed().as_nanos() as f64 * 1e-3);
    }
    took
}

/// The frame of a message of ours, or of what answers it.
pub fn frame(from: u8, to: u8, octets: usize) -> Vec<u8> {
    let pdu = 3 + octets;
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x81, 0, 0, 0, (pdu >> 8) as u8, pdu as u8];
    frame.extend([4, 4, 3]);
    frame.resize(18 + pdu.max(46), 7);
    frame
}

/// A socket that takes what is for a station.
pub fn socket(station: u8) -> PacketSocket {
    let own = [2, 0, 0, 0, 0, station];
    let filter = packet::llc_to(own);
    let options = packet::Options {
        filter,
        address: Some(own),
        timestamps: false,
        receive_buffer: 1 << 20,
        ..packet::Options::default()
    };
    let socket = PacketSocket::open(DEVICE, &options).expect("a packet socket");
    // A frame that is lost ends the bench, and does not stop it for ever.
    socket.limit_waiting(Some(Span::from_s(10))).expect("it can be distinguished");
    socket
}

/// Two that do nothing but send and receive: frames as long as ours and as what answers them. With or without the tag,
/// which reports the priority.
pub fn raw(spaces: &Spaces, tagged: bool) -> f64 {
    let receive = |socket: &PacketSocket, room: &mut [u8]| match tagged {
        true => socket.receive_tagged(room, true).expect("a frame").0,
        false => recv(socket.as_raw_fd(), room, MsgFlags::empty()).expect("a frame"),
    };
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        spaces.spawn(scope, 1, || {
            pin(0);
            let socket = socket(2);
            let (answer, mut room) = (frame(2, 1, 1), [0; 2048]);
            ready.wait();
            loop {
                let got = receive(&socket, &mut room);
                // A frame of another length marks the end.
                if got != frame(1, 2, SIZE).len() - 4 {
                    return;
                }
                send(socket.as_raw_fd(), &answer, MsgFlags::empty()).expect("it leaves");
            }
        });
        let client = spaces.spawn(scope, 0, || {
            pin(0);
            let socket = socket(1);
            let (question, mut room) = (frame(1, 2, SIZE), [0; 2048]);
            ready.wait();
            let took = measure(TIME, || {
                send(socket.as_raw_fd(), &question, MsgFlags::empty()).expect("it leaves");
                receive(&socket, &mut room);
            });
            send(socket.as_raw_fd(), &frame(1, 2, SIZE + 1), MsgFlags::empty()).expect("it leaves");
            median(took.into_iter())
        });
        client.join().expect("the client ends")
    })
}

/// A message from user memory to user memory, and its acknowledgement.
pub fn ours(spaces: &Spaces) -> f64 {
    let settings = Settings::default();
    median(exchanges(spaces, &settings, TIME, 0).into_iter())
}

/// What exchanges of priority 7 take while so many SAPs of lower priorities of the same station send all the time.
fn exchanges(spaces: &Spaces, settings: &Settings, time: Duration, lower: u8) -> Vec<f64> {
    let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
    // A crowded receiver may miss many.
    let options = Options { tries: 1000, response_timeout: Span::from_ms(2), ..Options::acknowledged(7) };
    thread::scope(|scope| {
        spaces.spawn(scope, 1, || {
            pin(0);
            let station = StationSocket::to(&network(), PEER.station, settings).expect("a station");
            let sap = station.open(PEER.sap, &options).expect("it opens");
            ready.wait();
            let mut room = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let _ = sap.receive_within(&mut room, Some(Duration::from_millis(20)));
            }
        });
        let client = spaces.spawn(scope, 0, || {
            let station = StationSocket::to(&network(), 1, settings).expect("a station");
            let loads: Vec<_> = (0..lower)
                .map(|priority| {
                    let options = Options { priority, ..Options::default() };
                    let (sap, over) = (station.open(8 + 4 * priority, &options).expect("it opens"), &over);
                    scope.spawn(move || {
                        pin(1);
                        while !over.load(Ordering::Relaxed) {
                            sap.send(Address { sap: 0xF0, ..PEER }, &[7; SIZE]).expect("it leaves");
                        }
                    })
                })
                .collect();
            pin(0);
            let sap = station.open(4, &options).expect("it opens");
            ready.wait();
            let took = measure(time, || {
                let sent = sap.exchange(PEER, &[7; SIZE]).expect("it leaves");
                assert_eq!(sent.outcome, Outcome::Done);
            });
            over.store(true, Ordering::Relaxed);
            loads.into_iter().for_each(|load| load.join().expect("the load ends"));
            took
        });
        client.join().expect("the client ends")
    })
}

/// The tail of exchanges under load.
pub fn loaded(spaces: &Spaces) {
    let head = format!("exchange of {SIZE} octets at priority 7");
    println!("\n{head:<46}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}", "n", "p50 us", "p99", "p99.9", "max");
    for (name, lower) in [("nothing else", 0), ("seven lower priorities send all the time", 7)] {
        let took = sorted(exchanges(spaces, &Settings::default(), TIME * 50, lower).into_iter());
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(at);
        println!("  {name:<44}  {:>8}  {p50:>8.1}  {p99:>8.1}  {p999:>8.1}  {max:>8.1}", took.len());
    }
}
