//! Messages one way: millions a second that leave.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use trunkline_llc::socket::{Settings, StationSocket};
use trunkline_llc::{Address, Options};

use crate::SIZE;
use crate::contest::pin;
use crate::network;
use crate::round_trip::{frame, socket};
use crate::spaces::Spaces;

const TIME: Duration = Duration::from_millis(300);
/// Calls between two looks at the clock.
const ROW: u64 = 256;

/// Receives the frames; returns how many a second `sender` sends, in millions. What it sends in a
/// call is `messages`.
fn against_taker(spaces: &Spaces, messages: u64, sender: impl FnOnce() -> Box<dyn FnMut()> + Send) -> f64 {
    let (ready, over) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        spaces.spawn(scope, 1, || {
            pin(1);
            let socket = socket(2);
            let mut room = [0; 2048];
            ready.wait();
            while !over.load(Ordering::Relaxed) {
                if socket.try_receive(&mut room).is_ok_and(|came| came.is_none()) {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        });
        let sender = spaces.spawn(scope, 0, || {
            pin(0);
            let mut once = sender();
            ready.wait();
            (0..ROW).for_each(|_| once());
            let (begin, mut calls) = (Instant::now(), 0);
            while begin.elapsed() < TIME {
                let row = ROW.div_ceil(messages);
                (0..row).for_each(|_| once());
                calls += row;
            }
            let rate = (calls * messages) as f64 / begin.elapsed().as_secs_f64();
            over.store(true, Ordering::Relaxed);
            rate * 1e-6
        });
        sender.join().expect("the sender ends")
    })
}

/// Frames that stand ready, `batch` of them in a call.
pub fn raw(spaces: &Spaces, batch: usize) -> f64 {
    against_taker(spaces, batch as u64, move || {
        let (socket, frame) = (socket(1), frame(1, 2, SIZE));
        if batch == 1 {
            return Box::new(move || assert!(socket.send(&frame).expect("it leaves")));
        }
        let frames = frame.repeat(batch);
        let ends: Vec<usize> = (1..=batch).map(|n| n * frame.len()).collect();
        Box::new(move || assert_eq!(socket.send_many(&frames, &ends).expect("they leave"), batch))
    })
}

/// Messages of a station.
pub fn ours(spaces: &Spaces, batch: usize) -> f64 {
    against_taker(spaces, batch as u64, move || {
        let settings = Settings { batch, ..Settings::default() };
        let station = StationSocket::to(&network(), 1, &settings).expect("a station");
        let sap = station.open(4, &Options { queue: 128, ..Options::default() }).expect("it opens");
        let to = Address { sap: 4, station: 2 };
        let message = [7; SIZE];
        if batch == 1 {
            return Box::new(move || {
                sap.send(to, &message).expect("it leaves");
            });
        }
        let messages = vec![message; batch];
        Box::new(move || assert_eq!(sap.send_many(to, &messages).expect("they leave"), batch))
    })
}
