//! The same echo endpoints over a simulated link and over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trunkline_endpoint::echo::{Client, Command, Config, Event, Server};
use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{Endpoint, Input, Output, Pair, Peer, Port, Writable};
use trunkline_io::peer::peer_of;
use trunkline_io::{Clock, EventLoop};
use trunkline_units::{Instant, Seed, Span};

/// Drops every n-th frame that its endpoint sends; 0: none.
struct Lossy<E> {
    inner: E,
    every: u64,
    sent: u64,
    lost: u64,
}

impl<E> Lossy<E> {
    fn new(inner: E, every: u64) -> Self {
        Lossy { inner, every, sent: 0, lost: 0 }
    }
}

impl<E: Endpoint> Endpoint for Lossy<E> {
    type Command<'a> = E::Command<'a>;
    type Event = E::Event;
    type Refusal = E::Refusal;

    fn handle(&mut self, now: Instant, input: Input<'_, E::Command<'_>>) -> Result<(), E::Refusal> {
        self.inner.handle(now, input)
    }

    fn poll(&mut self, now: Instant, writable: Writable<'_>, buffer: &mut [u8]) -> Output<E::Event> {
        loop {
            let output = self.inner.poll(now, writable, buffer);
            let Output::Transmit(_) = output else { return output };
            self.sent += 1;
            if self.every == 0 || !self.sent.is_multiple_of(self.every) {
                return output;
            }
            self.lost += 1;
        }
    }
}

/// Result of a run.
struct Outcome {
    events: Vec<Event>,
    client_lost: u64,
    server_lost: u64,
    answered: u64,
}

/// Runs a client against a server until the client has finished. The numbers give the drop intervals of each side.
type Backend = fn(command: Command, client_loses: u64, server_loses: u64) -> Outcome;

fn client(peer: Peer) -> Client {
    Client::new(Config {
        port: Port(0),
        peer,
        length: 100,
        interval: Span::from_us(500),
        timeout: Span::from_ms(20),
        tries: 8,
    })
}

fn simulated(command: Command, client_loses: u64, server_loses: u64) -> Outcome {
    let client = Lossy::new(client(PEER_B), client_loses);
    let mut pair = Pair::new(client, Lossy::new(Server::new(), server_loses), Seed::default());
    pair.command_a(command).unwrap();
    pair.run(Span::from_s(3600));
    Outcome {
        events: pair.take_events_a().into_iter().map(|(_, event)| event).collect(),
        client_lost: pair.a().lost,
        server_lost: pair.b().lost,
        answered: pair.b().inner.answered(),
    }
}

fn over_sockets(command: Command, client_loses: u64, server_loses: u64) -> Outcome {
    let clock = Clock::start();
    let socket = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = Lossy::new(Server::new(), server_loses);
    let mut server = EventLoop::over(server, socket(), clock).unwrap();
    let address = server.ports.socket(0).local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = is_over.clone();
    let serving = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            server.turn(Some(clock.now() + Span::from_ms(1)), |_| {}).unwrap();
        }
        server.endpoint
    });
    let client = Lossy::new(client(peer_of(address)), client_loses);
    let mut client = EventLoop::over(client, socket(), clock).unwrap();
    client.command(command).unwrap();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(Event::Finished | Event::GaveUp { .. })) {
        client.turn(None, |event| events.push(event)).unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let server = serving.join().unwrap();
    Outcome {
        events,
        client_lost: client.endpoint.lost,
        server_lost: server.lost,
        answered: server.inner.answered(),
    }
}

const BACKENDS: [(&str, Backend); 2] = [("simulated", simulated), ("over sockets", over_sockets)];

/// Runs a test body, over sockets up to five times: a machine that stalls for eight timeouts makes the client give
/// up.
fn with_retries(
    (backend, run): (&str, Backend),
    command: Command,
    client_loses: u64,
    server_loses: u64,
) -> Outcome {
    let gave_up = |outcome: &Outcome| matches!(outcome.events.last(), Some(Event::GaveUp { .. }));
    let again = if backend == "simulated" { 0 } else { 4 };
    (0..again)
        .map(|_| run(command, client_loses, server_loses))
        .find(|outcome| !gave_up(outcome))
        .unwrap_or_else(|| run(command, client_loses, server_loses))
}

/// Asserts that every ping is answered in order and that the client finishes last; returns the number of
/// retransmissions.
fn count_retransmissions(backend: &str, count: u32, outcome: &Outcome) -> u64 {
    let mut numbers = Vec::new();
    let mut again = 0;
    for event in &outcome.events {
        match event {
            Event::Answered { number, tries, .. } => {
                numbers.push(*number);
                again += u64::from(*tries) - 1;
            }
            // A needless retransmission on a slow machine.
            Event::Stray { .. } | Event::Finished => {}
            other => panic!("{backend}: {other:?}"),
        }
    }
    assert!(numbers.into_iter().eq(0..count), "{backend}: {:?}", outcome.events);
    assert_eq!(outcome.events.last(), Some(&Event::Finished), "{backend}");
    again
}

#[test]
fn every_ping_is_answered_in_order() {
    for (backend, run) in BACKENDS {
        let outcome = with_retries((backend, run), Command::Start { count: 100 }, 0, 0);
        count_retransmissions(backend, 100, &outcome);
        assert!(outcome.answered >= 100, "{backend}");
    }
}

#[test]
fn losing_every_third_frame_costs_only_retransmissions() {
    for (backend, run) in BACKENDS {
        let outcome = with_retries((backend, run), Command::Start { count: 20 }, 3, 3);
        let again = count_retransmissions(backend, 20, &outcome);
        // Each loss costs one retransmission; a slow machine may add its own, whose answers may be lost too.
        assert!(outcome.client_lost >= 9 && outcome.server_lost >= 9, "{backend}");
        assert!(again >= 18 && again >= outcome.client_lost, "{backend}: {again} retransmissions");
    }
}

#[test]
fn client_gives_up_on_a_silent_peer() {
    for (backend, run) in BACKENDS {
        let outcome = run(Command::Start { count: 3 }, 0, 1);
        assert_eq!(outcome.events, [Event::GaveUp { number: 0, tries: 8 }], "{backend}");
    }
}
