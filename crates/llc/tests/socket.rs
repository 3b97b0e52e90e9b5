//! Stations over UDP on the loopback and over a pair of Ethernet interfaces: one body for both. Ethernet needs root, and
//! its interfaces are in a network namespace of the test's thread, gone when it ends; without, it says so and skips.

#![allow(clippy::disallowed_methods, reason = "these tests run over real interfaces")]

use std::io;
use std::process::Command as Run;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use trunkline_io::must::skip;
use trunkline_llc::socket::{Error, Network, Sap, Settings, StationSocket};
use trunkline_llc::wire::{ALL, CommandStatus};
use trunkline_llc::{Address, Command, Event, Options, Outcome, Refusal, token};
use trunkline_units::Span;

const SECONDS: Option<Duration> = Some(Duration::from_secs(20));

/// Returns the network of a station by its index.
type NetworkOf = dyn Fn(usize) -> Network + Sync;

/// Runs a body over UDP, and over a bridge with an interface for each of four stations.
fn everywhere(body: impl Fn(&NetworkOf) + Sync) {
    static PORTS: AtomicU16 = AtomicU16::new(20_000);
    let port = PORTS.fetch_add(256, Ordering::Relaxed);
    body(&move |_| format!("udp:239.77.3.0:{port}").parse().unwrap());
    over_ethernet("true", body);
}

/// Runs a body over the bridge alone, after this was done to it.
fn over_ethernet(more: &str, body: impl Fn(&NetworkOf) + Sync) {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
                return skip(format_args!("no Ethernet, for no network namespace ({e})"));
            }
            let script = "set -e; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; \
                ip link add bridge type bridge; ip link set bridge up; for n in 0 1 2 3; do \
                ip link add at$n type veth peer name to$n; ip link set to$n master bridge; \
                ip link set to$n up; ip link set at$n up; done; \
                for n in 0 1 2 3; do for try in $(seq 500); do \
                ip -d link show to$n | grep -q 'state forwarding' && continue 2; sleep 0.02; done; exit 1; done";
            if !Run::new("sh").args(["-c", script]).status().is_ok_and(|status| status.success()) {
                return skip("no Ethernet, for no interfaces (is iproute2 installed?)");
            }
            assert!(Run::new("sh").args(["-c", more]).status().unwrap().success(), "{more}");
            body(&|n| format!("eth:at{n}").parse().unwrap());
        });
        done.join().expect("the body holds over Ethernet");
    });
}

fn attach(place: &NetworkOf, n: usize, settings: &Settings) -> StationSocket {
    StationSocket::to(&place(n), n as u8 + 1, settings).unwrap()
}

/// Stations 1 and 2, each with SAP 4 open.
fn pair(place: &NetworkOf, options: &Options) -> (Sap, Sap) {
    let [left, right] = [0, 1].map(|n| attach(place, n, &Settings::default()).open(4, options).unwrap());
    (left, right)
}

/// Acknowledged messages that are not tried again merely because the machine is busy.
fn sure(priority: u8) -> Options {
    Options { response_timeout: Span::from_s(2), ..Options::acknowledged(priority) }
}

const fn at(station: u8) -> Address {
    Address { sap: 4, station }
}

#[test]
fn acknowledged_messages_are_taken_once_and_in_order() {
    everywhere(|place| {
        let (left, right) = pair(place, &Options { crc: true, ..sure(5) });
        let reader = thread::spawn(move || {
            let mut message = Vec::new();
            for number in 0..500u32 {
                let received = right.receive_within(&mut message, SECONDS).unwrap();
                assert_eq!((received.from, received.priority, received.acknowledged), (at(1), 5, true));
                assert_eq!(message, number.to_be_bytes().repeat(1 + number as usize % 300));
            }
            assert!(matches!(right.try_receive(&mut message), Err(Error::NotYet)));
        });
        for number in 0..500u32 {
            let message = number.to_be_bytes().repeat(1 + number as usize % 300);
            assert_eq!(left.exchange(at(2), &message).unwrap().outcome, Outcome::Done);
        }
        reader.join().unwrap();
    });
}

#[test]
fn a_message_to_all_reaches_all_but_its_sender() {
    everywhere(|place| {
        let stations: Vec<Sap> = (0..4)
            .map(|n| attach(place, n, &Settings::default()).open(4, &Options::default()).unwrap())
            .collect();
        stations[2].send(Address { sap: 4, station: ALL }, b"to all").unwrap();
        let mut message = Vec::new();
        for n in [0, 1, 3] {
            let received = stations[n].receive_within(&mut message, SECONDS).unwrap();
            assert_eq!((received.from, &message[..]), (at(3), &b"to all"[..]));
        }
        assert!(matches!(stations[2].try_receive(&mut message), Err(Error::NotYet)));
        // To oneself it goes like any other.
        stations[2].send(at(3), b"to me").unwrap();
        let received = stations[2].receive_within(&mut message, SECONDS).unwrap();
        assert_eq!((received.from, &message[..]), (at(3), &b"to me"[..]));
    });
}

#[test]
fn unread_messages_do_not_block_forever() {
    everywhere(|place| {
        let options = Options { tries: 3, response_timeout: Span::from_ms(5), ..Options::acknowledged(0) };
        let (left, _right) = pair(place, &options);
        let sent = left.exchange(at(9), b"absent").unwrap();
        assert_eq!((sent.outcome, sent.tries), (Outcome::Unanswered, 3));
        assert!(sent.took >= Span::from_ms(15));
        // A busy machine may let an answer wait.
        left.configure(&Options { response_timeout: Span::from_s(1), ..options.clone() }).unwrap();
        let sent = left.exchange(Address { sap: 6, station: 2 }, b"closed").unwrap();
        assert_eq!(sent.outcome, Outcome::Refused(CommandStatus::Unimplemented));
        left.configure(&Options { send_limit: Span::from_ms(8), ..options }).unwrap();
        assert_eq!(left.exchange(at(9), b"late").unwrap().outcome, Outcome::Late);
        assert!(matches!(left.ended(SECONDS), Err(Error::TimedOut)));
        assert!(matches!(left.receive_within(&mut Vec::new(), Some(Duration::ZERO)), Err(Error::TimedOut)));
    });
}

#[test]
fn stations_respond_without_calls() {
    everywhere(|place| {
        let (left, right) = pair(place, &Options::default());
        for length in [0, 1, 700, 1497] {
            let (tested, _) = left.test(at(2), &vec![7; length], SECONDS.unwrap()).unwrap();
            assert_eq!((tested.from, usize::from(tested.length), tested.intact), (at(2), length, true));
        }
        let station = Address { sap: 0, station: 2 };
        assert_eq!(left.identify(station, SECONDS.unwrap()).unwrap().0, (station, [true, false, true]));
        let nobody = left.test(at(9), b"", Duration::from_millis(20));
        assert!(matches!(nobody, Err(Error::TimedOut)));
        let statistics = right.station().statistics();
        assert_eq!((statistics.received.test, statistics.received.xid), (4, 1));
        assert_eq!(right.station().unsent(), 0);
    });
}

#[test]
fn many_threads_share_a_station() {
    everywhere(|place| {
        let stations = [0, 1].map(|n| attach(place, n, &Settings::default()));
        thread::scope(|scope| {
            for sap in [2, 4, 6, 8] {
                let [left, right] = [0, 1].map(|n| stations[n].open(sap, &sure(sap / 2)).unwrap());
                scope.spawn(move || {
                    for number in 0..100u8 {
                        let to = Address { sap, station: 2 };
                        assert_eq!(left.exchange(to, &[number]).unwrap().outcome, Outcome::Done);
                    }
                });
                scope.spawn(move || {
                    let mut message = Vec::new();
                    for number in 0..100u8 {
                        right.receive_within(&mut message, SECONDS).unwrap();
                        assert_eq!(message, [number]);
                    }
                });
            }
        });
    });
}

#[test]
fn batches_of_datagrams_arrive_as_they_left() {
    everywhere(|place| {
        let options = Options { queue: 64, ..Options::default() };
        let batching = Settings { batch: 16, ..Settings::default() };
        let left = attach(place, 0, &batching).open(4, &options).unwrap();
        let right = attach(place, 1, &Settings::default()).open(4, &options).unwrap();
        let mut message = Vec::new();
        for round in 0..50u8 {
            for number in 0..20u8 {
                left.send(at(2), &[round, number]).unwrap();
            }
            for number in 0..20u8 {
                right.receive_within(&mut message, SECONDS).unwrap();
                assert_eq!(message, [round, number]);
            }
        }
    });
}

#[test]
fn waiting_thread_receives_messages_to_the_station_itself() {
    // Two threads that ask and answer within one station: nothing comes over the line. Looking only now and then, as often
    // as a call that receives ends by itself, takes minutes.
    const ROUNDS: u32 = 4_000;
    everywhere(|place| {
        let station = attach(place, 0, &Settings::default());
        let [asks, answers] = [4, 6].map(|sap| station.open(sap, &sure(3)).unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        let left = || Some(until.saturating_duration_since(Instant::now()));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut message = Vec::new();
                for _ in 0..ROUNDS {
                    let received = answers.receive_within(&mut message, left()).unwrap();
                    answers.send(received.from, &message).unwrap();
                }
            });
            let mut message = Vec::new();
            for round in 0..ROUNDS {
                asks.send(Address { sap: 6, station: 1 }, &round.to_be_bytes()).unwrap();
                asks.receive_within(&mut message, left()).unwrap();
                assert_eq!(message, round.to_be_bytes());
            }
        });
    });
}

#[test]
fn messages_that_leave_together_arrive_in_order() {
    everywhere(|place| {
        let options = Options { queue: 64, ..Options::default() };
        let left =
            attach(place, 0, &Settings { batch: 16, ..Settings::default() }).open(4, &options).unwrap();
        let right = attach(place, 1, &Settings::default()).open(4, &options).unwrap();
        let messages: Vec<Vec<u8>> =
            (0..40u8).map(|number| vec![number; 1 + usize::from(number / 20)]).collect();
        let mut message = Vec::new();
        for _ in 0..20 {
            assert_eq!(left.send_many(at(2), &messages).unwrap(), messages.len());
            for sent in &messages {
                right.receive_within(&mut message, SECONDS).unwrap();
                assert_eq!(message, *sent);
            }
        }
        // What there is no room for is not taken, and what makes no sense is refused.
        let more = vec![vec![0]; 100];
        assert_eq!(left.send_many(at(2), &more).unwrap(), 64);
        assert_eq!(left.send_many(at(2), &more[..0]).unwrap(), 0);
        let long = left.send_many(at(2), &[vec![0; 1498]]);
        assert!(matches!(long, Err(Error::Refused(Refusal::TooLarge))));
    });
}

#[test]
fn all_events_can_share_one_queue() {
    everywhere(|place| {
        let settings = Settings { events: true, ..Settings::default() };
        let left = attach(place, 0, &settings);
        let right = attach(place, 1, &settings);
        let sap = left.open(4, &sure(1)).unwrap();
        let other = right.open(4, &Options::default()).unwrap();
        let ticket = sap.send(at(2), b"message").unwrap();
        assert_eq!(right.next_event(SECONDS).unwrap(), Event::Readable { sap: 4 });
        match left.next_event(SECONDS).unwrap() {
            Event::Sent { sap: 4, ticket: ended, outcome: Outcome::Done, .. } => {
                assert_eq!(ended, ticket);
            }
            event => panic!("{event:?}"),
        }
        other.try_receive(&mut Vec::new()).unwrap();
        assert!(matches!(left.next_event(Some(Duration::from_millis(5))), Err(Error::TimedOut)));
    });
}

#[test]
fn who_waits_for_events_is_woken_by_the_calls_of_others() {
    everywhere(|place| {
        let settings = Settings { events: true, ..Settings::default() };
        let left = attach(place, 0, &settings);
        let sap = left.open(4, &Options::default()).unwrap();
        let wait = |patience| {
            let left = left.clone();
            thread::spawn(move || left.next_event(patience))
        };
        // Nothing comes from the line: only these calls can wake who waits.
        let waits = wait(SECONDS);
        let ticket = sap.send(at(2), b"left").unwrap();
        assert!(matches!(waits.join().unwrap(), Ok(Event::Sent { ticket: ended, .. }) if ended == ticket));
        let waits = wait(None);
        left.interrupt();
        assert!(matches!(waits.join().unwrap(), Err(Error::TimedOut)));
        // Let go with an end, the station can be attached again at once.
        drop(sap);
        for _ in 0..20 {
            left.clone().end();
            attach(place, 1, &settings).end();
        }
        left.end();
        attach(place, 0, &settings).end();
    });
}

#[test]
fn a_ring_forms_carries_messages_and_lets_stations_go() {
    everywhere(|place| {
        let settings = Settings { ring: Some(token::Options::default()), ..Settings::default() };
        let mut stations: Vec<Sap> =
            (0..4).map(|n| attach(place, n, &settings).open(4, &sure(6)).unwrap()).collect();
        let formed = |stations: &[Sap]| {
            let members = stations.iter().map(|sap| sap.station().number()).collect();
            stations.iter().all(|sap| sap.station().members() == members)
        };
        let wait = |stations: &[Sap]| {
            for _ in 0..4_000 {
                if formed(stations) {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
            panic!("{:?}", stations.iter().map(|sap| sap.station().members()).collect::<Vec<_>>());
        };
        wait(&stations);
        assert!(matches!(stations[0].station().ring_event(SECONDS), Ok(token::Event::Joined { .. })));
        let mut message = Vec::new();
        for number in 0..50u8 {
            let (from, to) = (usize::from(number % 4), usize::from(number + 1) % 4);
            let sent = stations[from].exchange(at(to as u8 + 1), &[number]).unwrap();
            assert_eq!(sent.outcome, Outcome::Done);
            stations[to].receive_within(&mut message, SECONDS).unwrap();
            assert_eq!(message, [number]);
        }
        assert!(stations[0].station().ring().tokens > 50);
        // One leaves, and the token never stays away for that.
        stations.remove(1);
        wait(&stations);
    });
}

#[test]
fn a_message_too_long_for_the_interface_is_lost_and_nothing_else() {
    over_ethernet("ip link set at0 mtu 600", |place| {
        let (left, right) = pair(place, &Options::default());
        let long = left.start(at(2), &[1; 1_400], None).unwrap();
        let short = left.start(at(2), b"short", None).unwrap();
        let mut message = Vec::new();
        right.receive_within(&mut message, SECONDS).unwrap();
        assert_eq!((&message[..], left.station().unsent()), (&b"short"[..], 1));
        // The event names the message.
        let ends = [(); 2].map(|()| left.ended(SECONDS).unwrap()).map(|sent| (sent.ticket, sent.outcome));
        assert_eq!(ends, [(long, Outcome::Failed), (short, Outcome::Done)]);
        assert_eq!(left.exchange(at(2), &[1; 1_400]).unwrap().outcome, Outcome::Failed);
        assert_eq!((left.station().statistics().done, left.waiting()), (1, 0));
    });
}

#[test]
fn send_failures_are_reported_with_and_without_the_event_queue() {
    over_ethernet("ip link set at0 mtu 600; ip link set at2 mtu 600", |place| {
        // In batches, of which the last messages are reported.
        let batches = Settings { batch: 8, ..Settings::default() };
        let left = attach(place, 0, &batches).open(4, &Options::default()).unwrap();
        assert_eq!(left.send_many(at(2), &[[1; 1_400]; 5]).unwrap(), 5);
        assert_eq!((left.station().unsent(), left.station().statistics().done), (5, 0));
        // In one row.
        let settings = Settings { events: true, ..Settings::default() };
        let station = attach(place, 2, &settings);
        let sap = station.open(4, &Options::default()).unwrap();
        for (octets, expected) in [(1_400, Outcome::Failed), (100, Outcome::Done)] {
            let sent = sap.send(at(2), &[1; 1_400][..octets]).unwrap();
            loop {
                if let Event::Sent { ticket, outcome, .. } = station.next_event(SECONDS).unwrap() {
                    assert_eq!((ticket, outcome), (sent, expected));
                    break;
                }
            }
        }
        // What is acknowledged is as if it had been lost.
        let lost = Options { tries: 2, response_timeout: Span::from_ms(5), ..Options::acknowledged(3) };
        let asks = left.station().open(6, &lost).unwrap();
        let right = attach(place, 1, &Settings::default()).open(4, &Options::default()).unwrap();
        assert_eq!(asks.exchange(at(2), b"agree").unwrap().outcome, Outcome::Done);
        let sent = asks.exchange(at(2), &[1; 1_400]).unwrap();
        assert_eq!((sent.outcome, sent.tries), (Outcome::Unanswered, 2));
        assert_eq!(right.readable(), 1);
    });
}

/// A line slower than the program: what is urgent waits for the few frames that the system has, and not for all that
/// another thread sends.
#[test]
fn what_is_urgent_is_not_behind_all_that_a_slow_line_has_been_given() {
    const SENT: usize = 80;
    over_ethernet("tc qdisc add dev at0 root tbf rate 2mbit burst 3k limit 1m", |place| {
        let (left, right) = pair(place, &Options { queue: 200, ..Options::default() });
        let came = AtomicUsize::new(0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut message, mut urgent) = (Vec::new(), None);
                for place in 0..=SENT {
                    right.receive_within(&mut message, SECONDS).unwrap();
                    if message == b"urgent" {
                        urgent = Some(place);
                    }
                    came.fetch_add(1, Ordering::Relaxed);
                }
                urgent.expect("it came")
            });
            let busy = scope.spawn(|| {
                for _ in 0..SENT {
                    left.send(at(2), &[0; 1_400]).unwrap();
                }
            });
            while came.load(Ordering::Relaxed) < 10 {
                thread::sleep(Duration::from_millis(1));
            }
            let before = came.load(Ordering::Relaxed);
            left.send_with(at(2), b"urgent", Some(7), SECONDS).unwrap();
            let place = reader.join().unwrap();
            assert!(place <= before + 12, "behind {} frames", place - before);
            busy.join().unwrap();
        });
    });
}

/// The end that one call waits for is no other's.
#[test]
fn an_exchange_and_who_asks_for_ends_do_not_take_each_others() {
    everywhere(|place| {
        let (left, _right) = pair(place, &Options { queue: 200, ..sure(2) });
        thread::scope(|scope| {
            let exchanges = scope.spawn(|| (0..60).all(|_| left.exchange(at(2), b"a").is_ok()));
            for _ in 0..60 {
                left.start(at(2), b"b", None).unwrap();
                assert_eq!(left.ended(SECONDS).unwrap().outcome, Outcome::Done);
            }
            assert!(exchanges.join().unwrap());
        });
    });
}

#[test]
fn nonblocking_caller_receives() {
    everywhere(|place| {
        let settings = Settings::default();
        let [left, right] = [0, 1].map(|n| attach(place, n, &settings).open(4, &Options::default()).unwrap());
        left.send(at(2), b"heard").unwrap();
        let mut message = Vec::new();
        let until = Instant::now() + SECONDS.unwrap();
        while right.receive_within(&mut message, Some(Duration::ZERO)).is_err() {
            assert!(Instant::now() < until, "it is not heard");
        }
    });
}

#[test]
fn what_cannot_be_is_refused() {
    let network: Network = "udp:239.77.3.0:47500".parse().unwrap();
    for number in [0, ALL] {
        assert!(matches!(StationSocket::to(&network, number, &Settings::default()), Err(Error::Station)));
    }
    let first = StationSocket::to(&network, 7, &Settings::default()).unwrap();
    match StationSocket::to(&network, 7, &Settings::default()).err() {
        Some(Error::System(e)) => assert_eq!(e.kind(), io::ErrorKind::AddrInUse),
        other => panic!("{other:?}"),
    }
    let nowhere = Network::Ethernet { interface: "nosuch0".into() };
    assert!(matches!(StationSocket::to(&nowhere, 1, &Settings::default()), Err(Error::System(_))));
    let refused = |sap: u8, options: &Options| match first.open(sap, options) {
        Err(Error::Refused(refusal)) => Some(refusal),
        _ => None,
    };
    let options = Options::default();
    assert_eq!(refused(3, &options), Some(Refusal::Invalid));
    let sap = first.open(4, &options).unwrap();
    assert_eq!(refused(4, &options), Some(Refusal::Duplicate));
    assert_eq!(refused(6, &Options { tries: 0, ..options.clone() }), Some(Refusal::Options));
    let large = sap.send(at(1), &[0; 1498]);
    assert!(matches!(large, Err(Error::Refused(Refusal::TooLarge))));
    // Closed with its last handle, it can be opened again; so can the station.
    drop(sap);
    drop(first.open(4, &options).unwrap());
    let closed = first.open(6, &options).unwrap();
    closed.command(Command::Close { sap: 6 }).unwrap();
    assert!(matches!(closed.send(at(1), b""), Err(Error::Refused(Refusal::Closed))));
    drop((closed, first));
    for _ in 0..1_000 {
        if StationSocket::to(&network, 7, &Settings::default()).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("the station is still there");
}
