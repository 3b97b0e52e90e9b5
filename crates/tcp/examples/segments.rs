//! What a data segment costs: two ends with nothing between them pass the number of segments given.
//!
//! The slope between two run lengths is instructions for each data segment with its share of acknowledgements and with
//! the commands and events of both users, payload left out:
//!
//! ```sh
//! cargo build --release -p trunkline-tcp --example segments
//! for n in 100000 200000; do valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/segments $n; done
//! ```
//!
//! With `lossy` behind the number every 200th data segment is lost; with `every` each is acknowledged.

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::{Command, Event, Options, Tcp, Virtual};
use trunkline_units::Instant;

fn give(tcp: &mut Tcp<Virtual>, now: Instant, bytes: &[u8]) {
    let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None };
    tcp.handle(now, input).expect("a frame is never refused");
}

fn ask(tcp: &mut Tcp<Virtual>, now: Instant, command: Command<'_, Virtual>) {
    let _full = tcp.handle(now, Input::Command(command));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let wanted: u64 = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let has = |word: &str| arguments.iter().any(|a| a == word);
    let (lossy, delayed_ack) = (has("lossy"), !has("every"));
    let options = Options { mss: 9_140, delayed_ack, ..Options::default() };
    let mut a = Tcp::<Virtual>::new(Options { local: 1, remote: 2, ..options });
    let mut b = Tcp::<Virtual>::new(Options { local: 2, remote: 1, ..options });
    let (mut now, mut buffer) = (Instant::ZERO, vec![0; MAX_BATCH]);
    ask(&mut b, now, Command::Listen);
    ask(&mut a, now, Command::Connect);
    let done = |a: &Tcp<Virtual>| a.statistics().data_segments_sent >= wanted;
    while !done(&a) {
        let (a_waits, b_waits, before) = loop {
            let sent = a.statistics().segments_sent + b.statistics().segments_sent;
            let a_waits = loop {
                match a.poll(now, Writable::ALL, &mut buffer) {
                    Output::Transmit(t) => {
                        if !lossy || a.statistics().data_segments_sent % 200 != 199 {
                            give(&mut b, now, &buffer[..t.length]);
                            break None;
                        }
                    }
                    Output::Event(Event::Connected | Event::Writable) => {
                        // The last is refused: so it hears when there is room.
                        while a.handle(now, Input::Command(Command::Send(9_140))).is_ok() {}
                    }
                    Output::Event(_) => {}
                    Output::Idle(idle) => break idle.deadline,
                }
            };
            let b_waits = loop {
                match b.poll(now, Writable::ALL, &mut buffer) {
                    Output::Transmit(t) => give(&mut a, now, &buffer[..t.length]),
                    Output::Event(Event::Readable) => {
                        let count = b.readable();
                        ask(&mut b, now, Command::Take(count));
                    }
                    Output::Event(_) => {}
                    Output::Idle(idle) => break idle.deadline,
                }
            };
            if done(&a) || sent == a.statistics().segments_sent + b.statistics().segments_sent {
                break (a_waits, b_waits, now);
            }
        };
        now = a_waits.into_iter().chain(b_waits).min().unwrap_or(now);
        assert!(now > before || done(&a), "time passes");
        a.handle(now, Input::Wake).expect("a wake is never refused");
        b.handle(now, Input::Wake).expect("a wake is never refused");
    }
    println!("{:?}\n{:?}", a.statistics(), b.statistics());
}
