//! Exchanges over loopback sockets. No test depends on how long anything takes.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use trunkline_units::{Seed, Span, Stream as Random};

use super::*;
use crate::{Buffer, Check, Congestion, Mode, Options};

const LOOPBACK: &str = "127.0.0.1:0";
const SOON: Duration = Duration::from_millis(20);

fn pair(options: &Options, settings: &Settings) -> (Connection, Connection) {
    let listener = Listener::bind_with(LOOPBACK, options, settings).unwrap();
    let client = Connection::connect_with(listener.address(), options, settings).unwrap();
    (client, listener.accept().unwrap())
}

fn plain() -> (Connection, Connection) {
    pair(&Options::default(), &Settings::default())
}

/// Returns message `number` of a channel; its length and contents depend only on the arguments.
fn message(direction: usize, channel: u16, number: u64, longest: u64) -> Vec<u8> {
    let mut stream = Seed(number).stream(&format!("message {direction} {channel}"));
    let length = [20, 2000, longest, longest][stream.below(4) as usize];
    let length = stream.below(length);
    (0..length).map(|at| (at as u8).wrapping_add(number as u8).wrapping_mul(channel as u8 | 1)).collect()
}

fn draw_options(draw: &mut Random) -> Options {
    Options {
        mode: [Mode::Selective, Mode::Selective, Mode::GoBackN][draw.below(3) as usize],
        check: [Check::Crc32c, Check::Crc64, Check::None][draw.below(3) as usize],
        #[cfg(feature = "aead")]
        key: draw.chance(0.3).then(|| crate::PresharedKey::new(&[7; 32])),
        congestion: Congestion::ALL[draw.below(Congestion::ALL.len() as u64) as usize],
        window: 8 + draw.below(500) as u16,
        frame: [600, 1472, 8972, 20_000][draw.below(4) as usize],
        ack_every: 1 + draw.below(20) as u16,
        credit: 100_000 + draw.below(4 << 20) as u32,
        channel_credit: 50_000 + draw.below(1 << 20) as u32,
        send_buffer: 1 + draw.below(1 << 20) as usize,
        coalesce_delay: Span::from_us(if draw.chance(0.5) { draw.below(200) } else { 0 }),
        ..Options::default()
    }
}

/// Sends `count` messages of a direction on `channel`.
fn send(connection: &Connection, direction: usize, channel: u16, count: u64, longest: u64) {
    for number in 0..count {
        let bytes = message(direction, channel, number, longest);
        match number % 3 {
            0 => connection.send_buffer(channel, Buffer::from(&bytes[..])).unwrap(),
            _ => connection.send(channel, &bytes).unwrap(),
        }
    }
}

/// Receives `count` messages and compares every byte.
fn receive(connection: &Connection, direction: usize, channel: u16, count: u64, longest: u64) {
    for number in 0..count {
        let got = connection.recv(channel).unwrap();
        assert!(
            *got == message(direction, channel, number, longest),
            "message {number} of channel {channel}"
        );
    }
}

fn exchange(seed: u64) {
    let mut draw = Seed(seed).stream("exchange");
    let options = draw_options(&mut draw);
    println!("seed {seed} {options:?}");
    let longest = [100, 5000, 1 << 20][draw.below(3) as usize];
    let count = if longest > 10_000 { 6 } else { 100 };
    let (client, server) = pair(&options, &Settings::default());
    thread::scope(|scope| {
        for channel in [0, 7, 65_534] {
            for (direction, from, to) in [(0, &client, &server), (1, &server, &client)] {
                scope.spawn(move || send(from, direction, channel, count, longest));
                scope.spawn(move || receive(to, direction, channel, count, longest));
            }
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| client.close().unwrap());
        server.close().unwrap();
    });
    assert!(matches!(client.recv(0), Err(Error::Finished)));
    assert!(matches!(server.try_recv_any(), Err(Error::Finished)));
}

#[test]
fn messages_arrive_intact_once_and_in_order() {
    (0..if cfg!(feature = "soak") { 1000 } else { 16 }).for_each(exchange);
}

#[test]
fn any_channel_returns_all_messages_in_order() {
    let (client, server) = plain();
    let message =
        |number: u32| [&number.to_be_bytes()[..], &vec![7; (number as usize * 577) % 3000]].concat();
    thread::scope(|scope| {
        for channel in 0..20 {
            let client = &client;
            scope.spawn(move || (0..50).for_each(|number| client.send(channel, &message(number)).unwrap()));
        }
        // Two threads receive, each the messages of a channel in order.
        let receive = || (0..500).map(|_| server.recv_any().unwrap()).collect::<Vec<_>>();
        let receivers = [scope.spawn(receive), scope.spawn(receive)];
        let got = receivers.map(|receiver| receiver.join().unwrap());
        for channel in 0..20 {
            let of = |got: &[(u16, Buffer)]| {
                let of_channel = got.iter().filter(|(of, _)| *of == channel);
                of_channel
                    .map(|(_, bytes)| u32::from_be_bytes(*bytes.first_chunk().unwrap()))
                    .collect::<Vec<_>>()
            };
            let mut numbers = Vec::new();
            for part in got.iter().map(|got| of(got)) {
                assert!(part.is_sorted(), "channel {channel}: {part:?}");
                numbers.extend(part);
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..50).collect::<Vec<_>>(), "channel {channel}");
        }
        assert!(
            got.iter()
                .flatten()
                .all(|(_, bytes)| **bytes == message(u32::from_be_bytes(*bytes.first_chunk().unwrap())))
        );
    });
}

#[test]
fn a_slow_reader_blocks_the_sender_without_loss() {
    let options =
        Options { credit: 200_000, channel_credit: 100_000, send_buffer: 100_000, ..Options::default() };
    let (client, server) = pair(&options, &Settings::default());
    let message = vec![3; 10_000];
    let mut sent = 0u64;
    while client.send_timeout(5, &message, SOON).is_ok() {
        sent += 1;
        assert!(sent < 100, "no call reported a full channel");
    }
    assert!(matches!(client.try_send(5, &message), Err(Error::Full)));
    let mut whole = Buffer::from(&message[..]);
    assert!(matches!(client.try_send_buffer(5, &mut whole), Err(Error::Full)));
    assert_eq!(whole.len(), message.len(), "the message is unchanged");
    client.send_timeout(6, &message, SOON).expect("other channels are not blocked");
    client.finish().unwrap();
    for _ in 0..sent {
        assert_eq!(*server.recv(5).unwrap(), message);
    }
    assert!(matches!(server.recv(5), Err(Error::Finished)));
    assert_eq!(*server.recv(6).unwrap(), message);
}

#[test]
fn messages_without_a_waiting_reader_are_acknowledged() {
    let (client, server) = plain();
    client.send(1, b"anybody?").unwrap();
    // Neither end calls anything that waits for the socket.
    while client.statistics().unwrap().acks_received_forced == 0 {
        thread::yield_now();
    }
    assert_eq!(*server.try_recv(1).unwrap(), *b"anybody?");
}

#[test]
fn delayed_messages_are_sent_after_the_last_call() {
    // Nothing else would send them: there are no keep-alive probes, and acknowledged messages need no timer.
    let options =
        Options { coalesce_delay: Span::from_us(100), keep_alive: Span::ZERO, ..Options::default() };
    for count in (1..200).step_by(11) {
        let (client, server) = pair(&options, &Settings::default());
        for number in 0..count {
            client.send(0, &[number; 50]).unwrap();
        }
        for number in 0..count {
            let got = server.recv_timeout(0, Duration::from_secs(20)).unwrap();
            assert_eq!(*got, [number; 50]);
        }
    }
}

#[test]
fn non_blocking_calls_send_and_receive() {
    let (client, server) = plain();
    let mut got = 0;
    for number in 0..1000u32 {
        while client.try_send(0, &number.to_be_bytes()).is_err() {}
        let answer = loop {
            match server.try_recv(0) {
                Err(Error::NotYet) => {}
                answer => break answer.unwrap(),
            }
        };
        assert_eq!(*answer, number.to_be_bytes());
        got += 1;
    }
    assert_eq!(got, 1000);
    assert!(matches!(server.try_recv(0), Err(Error::NotYet)));
    assert!(matches!(server.try_recv_any(), Err(Error::NotYet)));
}

#[test]
fn timeouts_expire() {
    let (client, server) = plain();
    assert!(matches!(client.recv_timeout(0, SOON), Err(Error::TimedOut)));
    assert!(matches!(client.recv_any_timeout(SOON), Err(Error::TimedOut)));
    // Another waiting thread that receives for all makes no difference.
    thread::scope(|scope| {
        let waits = scope.spawn(|| server.recv(1));
        for _ in 0..5 {
            assert!(matches!(server.recv_timeout(0, SOON), Err(Error::TimedOut)));
        }
        server.reset().unwrap();
        assert!(matches!(
            waits.join().unwrap(),
            Err(Error::Finished | Error::Closed(CloseReason::LocalReset))
        ));
    });
    let (client, _server) = plain();
    assert!(matches!(client.close_timeout(SOON), Err(Error::TimedOut)), "the other end stays");
    let listener = Listener::bind(LOOPBACK, &Options::default()).unwrap();
    assert!(matches!(listener.accept_timeout(SOON), Err(Error::TimedOut)));
}

#[test]
fn all_waiting_calls_return_when_the_connection_ends() {
    for by_peer in [false, true] {
        let (client, server) = plain();
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..4)
                .map(|channel| {
                    let server = &server;
                    scope.spawn(move || server.recv(channel))
                })
                .collect();
            if by_peer {
                client.reset().unwrap()
            } else {
                server.reset().unwrap()
            }
            for thread in waiting {
                let end = if by_peer { CloseReason::PeerReset } else { CloseReason::LocalReset };
                assert!(matches!(thread.join().unwrap(), Err(Error::Closed(why)) if why == end));
            }
        });
        let end = if by_peer { CloseReason::LocalReset } else { CloseReason::PeerReset };
        assert!(matches!(client.recv(0), Err(Error::Closed(why)) if why == end));
        assert!(matches!(client.send(0, b"too late"), Err(Error::Closed(why)) if why == end));
    }
}

#[test]
fn a_dropped_end_resets_and_a_finished_one_still_delivers() {
    let (client, server) = plain();
    client.send(0, b"lost or not").unwrap();
    drop(client);
    assert!(matches!(server.close(), Err(Error::Closed(CloseReason::PeerReset))));

    let (client, server) = plain();
    let big = vec![9; 1 << 20];
    client.send(0, &big).unwrap();
    client.finish().unwrap();
    assert!(matches!(client.send(0, b"more"), Err(Error::Refused(Refusal::Closed))));
    drop(client);
    assert_eq!(*server.recv(0).unwrap(), big);
    assert!(matches!(server.recv(0), Err(Error::Finished)));
    server.close().unwrap();
}

#[test]
fn a_restarted_peer_is_detected() {
    let quick = Options { keep_alive: Span::from_ms(20), ..Options::default() };
    let listener = Listener::bind(LOOPBACK, &quick).unwrap();
    let address = listener.address();
    let client = Connection::connect(address, &quick).unwrap();
    let server = listener.accept().unwrap();
    listener.kill();
    drop((listener, server));
    let again = loop {
        // Until the helper has released the port.
        match Listener::bind(address, &quick) {
            Ok(listener) => break listener,
            Err(_) => thread::yield_now(),
        }
    };
    assert!(matches!(client.recv(0), Err(Error::Closed(CloseReason::PeerRestarted))));
    let client = Connection::connect(address, &quick).unwrap();
    client.send(0, b"here again").unwrap();
    assert_eq!(*again.accept().unwrap().recv(0).unwrap(), *b"here again");
}

#[test]
fn a_dead_peer_is_detected() {
    let quick =
        Options { keep_alive: Span::from_ms(5), peer_timeout: Span::from_ms(50), ..Options::default() };
    let listener = Listener::bind(LOOPBACK, &quick).unwrap();
    let address = listener.address();
    let client = Connection::connect(address, &quick).unwrap();
    listener.kill();
    assert!(matches!(client.recv(0), Err(Error::Closed(CloseReason::PeerTimeout))));
    drop(client);
    assert!(matches!(
        Connection::connect(address, &quick),
        Err(Error::Closed(CloseReason::HandshakeTimeout))
    ));
}

#[cfg(feature = "aead")]
#[test]
fn another_key_is_an_error() {
    let with = |secret| Options { key: Some(crate::PresharedKey::new(&[secret; 32])), ..Options::default() };
    let listener = Listener::bind(LOOPBACK, &with(1)).unwrap();
    let refused = |options: &Options| match Connection::connect(listener.address(), options) {
        Err(Error::Closed(end)) => end,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the connection was accepted"),
    };
    assert_eq!(refused(&with(2)), CloseReason::RefusedKey);
    assert_eq!(refused(&Options::default()), CloseReason::RefusedParameters);
}

#[test]
fn one_listener_serves_a_bounded_number_of_connections() {
    let settings = Settings { max_connections: 3, ..Settings::default() };
    let listener = Listener::bind_with(LOOPBACK, &Options::default(), &settings).unwrap();
    let clients: Vec<_> =
        (0..3).map(|_| Connection::connect(listener.address(), &Options::default()).unwrap()).collect();
    let one_more = Connection::connect(listener.address(), &Options::default());
    assert!(matches!(one_more, Err(Error::Closed(CloseReason::RefusedFull))));
    let servers: Vec<_> = clients.iter().map(|_| listener.accept().unwrap()).collect();
    for server in &servers {
        let client =
            clients.iter().find(|client| server.peer().unwrap().port() == client.address().port()).unwrap();
        client.send(0, b"to you").unwrap();
        assert_eq!(*server.recv(0).unwrap(), *b"to you");
        assert_eq!(client.peer(), Some(listener.address()));
    }
    // Accepted connections outlive the listener.
    drop(listener);
    servers.iter().for_each(|server| server.send(3, b"still here").unwrap());
    clients.iter().for_each(|client| assert_eq!(*client.recv(3).unwrap(), *b"still here"));
}

#[test]
fn other_peers_connect_during_request_and_response_with_one() {
    for local in [LOOPBACK, "0.0.0.0:0"] {
        let options = Options::default();
        let listener = Listener::bind(local, &options).unwrap();
        let address = (std::net::Ipv4Addr::LOCALHOST, listener.address().port());
        // An idle machine needs a few hundred exchanges.
        const MANY: usize = 200_000;
        // Replies whether a separate socket receives from other peers.
        let answer = |to: &Connection| {
            to.recv(0).unwrap();
            let connected = listener.has_unconnected_socket();
            to.send(0, &[connected.into()]).unwrap();
            connected
        };
        let ask = |of: &Connection| {
            of.send(0, b"connected?").unwrap();
            of.recv(0).unwrap()[0] == 1
        };
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let first = listener.accept().unwrap();
                assert!((0..MANY).any(|_| answer(&first)), "never connected");
                let second = listener.accept().unwrap();
                assert!(!listener.has_unconnected_socket(), "a second peer connected");
                for _ in 0..100 {
                    assert!(!answer(&second) && !answer(&first));
                }
                second.close().unwrap();
                drop(second);
                assert!((0..MANY).any(|_| answer(&first)), "not connected again");
                first.close().unwrap();
            });
            let first = Connection::connect(address, &options).unwrap();
            assert!((0..MANY).any(|_| ask(&first)));
            let second = Connection::connect(address, &options).unwrap();
            for _ in 0..100 {
                assert!(!ask(&second) && !ask(&first));
            }
            second.close().unwrap();
            assert!((0..MANY).any(|_| ask(&first)));
            first.close().unwrap();
            server.join().unwrap();
        });
    }
}

#[test]
fn a_dropped_listener_resets_later_connections() {
    let listener = Listener::bind(LOOPBACK, &Options::default()).unwrap();
    let address = listener.address();
    let waits = Connection::connect(address, &Options::default()).unwrap();
    let stays = Connection::connect(address, &Options::default()).unwrap();
    let server = [listener.accept().unwrap(), listener.accept().unwrap()];
    let never = Connection::connect(address, &Options::default()).unwrap();
    drop(listener);
    assert!(matches!(never.recv(0), Err(Error::Closed(CloseReason::PeerReset))), "it was not accepted");
    let late = Connection::connect(address, &Options::default()).and_then(|late| late.recv(0));
    assert!(matches!(late, Err(Error::Closed(CloseReason::PeerReset))));
    for (number, server) in server.iter().enumerate() {
        server.send(0, &[number as u8]).unwrap();
    }
    let mut got = [*waits.recv(0).unwrap().first().unwrap(), *stays.recv(0).unwrap().first().unwrap()];
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
}

#[test]
fn long_frames_pass_without_fragmentation() {
    let options = Options { frame: 20_000, ..Options::default() };
    let settings = Settings { probe_mtu: true, ..Settings::default() };
    let (client, server) = pair(&options, &settings);
    let big = vec![4; 1_000_000];
    client.send(0, &big).unwrap();
    assert_eq!(*server.recv(0).unwrap(), big);
}

#[test]
fn a_message_longer_than_the_credit_is_assembled_up_to_the_limit() {
    let options = Options { credit: 100_000, channel_credit: 50_000, ..Options::default() };
    let settings = Settings { max_message: 1 << 20, ..Settings::default() };
    let (client, server) = pair(&options, &settings);
    let fits = vec![1; 1 << 20];
    thread::scope(|scope| {
        scope.spawn(|| client.send(0, &fits).unwrap());
        assert_eq!(*server.recv(0).unwrap(), fits);
    });
    let too_long = vec![1; (1 << 20) + 200_000];
    client.send(0, &too_long).unwrap();
    assert!(matches!(server.recv(0), Err(Error::TooLong)));
    assert!(matches!(client.recv(0), Err(Error::Closed(CloseReason::PeerReset))));
}

#[test]
fn a_stream_has_no_message_boundaries() {
    let (client, server) = plain();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for seed in 0..3 {
        let mut draw = Seed(seed).stream("stream");
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut draw, mut stream, mut at) = (Seed(seed).stream("writer"), client.stream(9), 0);
                while at < bytes.len() {
                    let most = (1 + draw.below(100_000) as usize).min(bytes.len() - at);
                    at += match draw.chance(0.5) {
                        true => stream.write(&bytes[at..at + most]).unwrap(),
                        false => stream.try_write(&bytes[at..at + most]).unwrap_or(0),
                    };
                }
            });
            let (mut stream, mut got) = (server.stream(9), Vec::new());
            while got.len() < bytes.len() {
                let mut into = vec![0; (1 + draw.below(100_000) as usize).min(bytes.len() - got.len())];
                let read = match draw.below(3) {
                    0 => stream.read(&mut into).unwrap(),
                    1 => stream.try_read(&mut into).unwrap_or(0),
                    _ => stream.try_read_exact(&mut into).map_or(0, |()| into.len()),
                };
                got.extend_from_slice(&into[..read]);
            }
            assert!(got == bytes, "seed {seed}");
        });
    }
    let mut stream = server.stream(2);
    client.stream(2).write_all(b"abc").unwrap();
    while !matches!(stream.try_read_exact(&mut [0; 4]), Err(Error::NotEnough(3))) {}
    client.finish().unwrap();
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 3);
    assert_eq!(rest, b"abc");
    assert!(matches!(stream.try_read(&mut [0; 1]), Err(Error::Finished)));
}

#[test]
fn handles_are_clone_send_and_sync() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Connection>();
    shared::<Listener>();
    shared::<Stream>();
}

#[test]
fn invalid_operations_are_refused() {
    let (client, _server) = plain();
    assert!(matches!(client.send(65_535, b""), Err(Error::Refused(Refusal::Channel))));
    assert!(matches!(Listener::bind("192.0.2.1:0", &Options::default()), Err(Error::System(_))));
    let taken = Listener::bind(LOOPBACK, &Options::default()).unwrap();
    assert!(matches!(Listener::bind(taken.address(), &Options::default()), Err(Error::System(_))));
    client.set_priority(3, 7).unwrap();
    assert!(client.round_trip().is_some_and(|span| !span.is_zero()) || client.statistics().is_some());
    let kind = std::io::Error::from(Error::Full).kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock);
}

#[test]
fn ipv6_works_where_available() {
    let Ok(listener) = Listener::bind("[::1]:0", &Options::default()) else { return };
    let client = Connection::connect(listener.address(), &Options::default()).unwrap();
    let server = listener.accept().unwrap();
    let big = vec![5; 300_000];
    client.send(0, &big).unwrap();
    assert_eq!(*server.recv(0).unwrap(), big);
    assert_eq!(server.peer().map(|peer| peer.port()), Some(client.address().port()));
}

#[test]
fn flushed_messages_have_arrived() {
    let (client, server) = plain();
    client.flush().expect("nothing was sent");
    let message = vec![8; 600_000];
    thread::scope(|scope| {
        // The waiting thread receives for all; the flushing thread follows.
        let waits = scope.spawn(|| client.recv(1).unwrap());
        for round in 0..20 {
            client.send(0, &message[..round * 30_000]).unwrap();
            client.send(7, b"on another channel").unwrap();
            client.flush().unwrap();
            assert_eq!(server.try_recv(0).unwrap().len(), round * 30_000);
            assert_eq!(*server.try_recv(7).unwrap(), *b"on another channel");
        }
        server.send(1, b"done").unwrap();
        assert_eq!(*waits.join().unwrap(), *b"done");
    });
    let mut stream = client.stream(2);
    stream.write_all(&message).unwrap();
    stream.flush().unwrap();
    let mut there = vec![0; message.len()];
    server.stream(2).try_read_exact(&mut there).unwrap();
    assert!(there == message);
}

#[test]
fn a_flush_ends_when_another_thread_receives_the_acknowledgement() {
    let (client, server) = plain();
    thread::scope(|scope| {
        scope.spawn(|| {
            while let Ok(question) = server.recv(0) {
                server.send(0, &question).unwrap();
            }
        });
        for round in 0..50 {
            let waits = scope.spawn(|| client.recv(0).unwrap());
            client.send(0, &[round]).unwrap();
            client.flush().unwrap();
            assert_eq!(*waits.join().unwrap(), [round]);
        }
        client.finish().unwrap();
    });
}

#[test]
fn a_flush_ends_at_its_timeout_or_with_the_connection() {
    let options = Options { credit: 100_000, channel_credit: 50_000, ..Options::default() };
    let (client, server) = pair(&options, &Settings::default());
    client.send(0, &[3; 200_000]).unwrap();
    assert!(matches!(client.flush_timeout(SOON), Err(Error::TimedOut)), "no reader receives it");
    thread::scope(|scope| {
        let flushes = scope.spawn(|| client.flush());
        assert_eq!(server.recv(0).unwrap().len(), 200_000);
        flushes.join().unwrap().expect("a reader has received it");
    });
    client.send(0, &[3; 200_000]).unwrap();
    thread::scope(|scope| {
        let flushes =
            [scope.spawn(|| client.flush()), scope.spawn(|| client.stream(4).flush().map_err(Error::System))];
        server.reset().unwrap();
        for flush in flushes {
            match flush.join().unwrap() {
                Err(Error::Closed(CloseReason::PeerReset)) => {}
                Err(Error::System(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(matches!(client.flush(), Err(Error::Closed(CloseReason::PeerReset))));
}

#[test]
fn received_buffers_are_aligned_to_64_bytes() {
    let (client, server) = plain();
    let mut again = Buffer::new();
    // All messages sent before the first receive fit the channel.
    let longest = (1 << 20) / 5;
    for (number, length) in [0, 1, 63, 64, 65, 700, 1000, 1460, 100_000, longest].into_iter().enumerate() {
        let message = vec![number as u8; length];
        for _ in 0..5 {
            client.send(3, &message).unwrap();
        }
        again.extend_from_slice(b"previous contents are discarded");
        server.recv_into(3, &mut again).unwrap();
        let got = [
            std::mem::take(&mut again),
            server.recv(3).unwrap(),
            server.recv_any().unwrap().1,
            server.recv_timeout(3, Duration::from_secs(60)).unwrap(),
            server.recv_any_timeout(Duration::from_secs(60)).unwrap().1,
        ];
        for got in got {
            assert!(
                *got == message && (got.as_ptr() as usize).is_multiple_of(64),
                "{length} bytes at {:p}",
                got.as_ptr()
            );
        }
    }
}

#[test]
fn frames_grow_to_the_path_mtu() {
    let big: Vec<u8> = (0..3_000_000u32).map(|at| (at >> 9) as u8).collect();
    let frames_of_a_message = || {
        let options = Options { probe_up_to: Some(65_507), ..Options::default() };
        let (client, server) = pair(&options, &Settings::default());
        while [&client, &server].iter().any(|end| end.path_mtu().unwrap().max_frame < 65_507) {
            assert!(matches!(server.recv_timeout(0, SOON), Err(Error::TimedOut)));
        }
        let before = client.statistics().unwrap().frames_sent;
        client.send(0, &big).unwrap();
        assert!(*server.recv(0).unwrap() == big);
        let frames = client.statistics().unwrap();
        frames.frames_sent - frames.frames_resent - before
    };
    // A receiver that the system suspends for long looks like a path that has lost its long frames.
    let frames: Vec<u64> = (0..3).map(|_| frames_of_a_message()).collect();
    assert!(frames.iter().any(|frames| *frames < 100), "{frames:?}");
}
