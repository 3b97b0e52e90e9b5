//! One test body, two arms: the same echo machines over a simulated line and over real sockets.

use trunkline_endpoint::echo::{Client, Command, Config, Event, Server};
use trunkline_endpoint::pair::PEER_B;
use trunkline_endpoint::{Endpoint, Input, Output, Pair, Peer, Port, Writable};
use trunkline_io::Clock;
use trunkline_io::driver::{Driver, Turn, peer_of};
use trunkline_units::{Instant, Seed, Span};

/// Loses every so-many-th frame of what its endpoint sends; 0: none.
struct Losing<E> {
    inner: E,
    every: u64,
    sent: u64,
    lost: u64,
}

impl<E> Losing<E> {
    fn new(inner: E, every: u64) -> Self {
        Losing { inner, every, sent: 0, lost: 0 }
    }
}

impl<E: Endpoint> Endpoint for Losing<E> {
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

/// What came of a run.
struct Outcome {
    events: Vec<Event>,
    client_lost: u64,
    server_lost: u64,
    answered: u64,
}

/// Runs a client against a server until the client has no more to do. The numbers say what each end loses.
type Arm = fn(command: Command, client_loses: u64, server_loses: u64) -> Outcome;

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
    let client = Losing::new(client(PEER_B), client_loses);
    let mut pair = Pair::new(client, Losing::new(Server::new(), server_loses), Seed::default());
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
    let server = Losing::new(Server::new(), server_loses);
    let mut server = Driver::new(server, socket(), clock).unwrap();
    let address = server.socket().local_addr().unwrap();
    let stopper = server.stopper();
    let serving = std::thread::spawn(move || {
        while !matches!(server.run(None).unwrap(), Turn::Stopped) {}
        server
    });
    let client = Losing::new(client(peer_of(address)), client_loses);
    let mut client = Driver::new(client, socket(), clock).unwrap();
    client.command(command).unwrap();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(Event::Finished | Event::GaveUp { .. })) {
        match client.run(None).unwrap() {
            Turn::Event(event) => events.push(event),
            other => panic!("{other:?}"),
        }
    }
    stopper.stop();
    let server = serving.join().unwrap();
    Outcome {
        events,
        client_lost: client.endpoint().lost,
        server_lost: server.endpoint().lost,
        answered: server.endpoint().inner.answered(),
    }
}

const ARMS: [(&str, Arm); 2] = [("simulated", simulated), ("over sockets", over_sockets)];

/// Runs it, over sockets up to five times: a machine that stands still for as long as eight tries take gives up.
fn patiently((arm, run): (&str, Arm), command: Command, client_loses: u64, server_loses: u64) -> Outcome {
    let gave_up = |outcome: &Outcome| matches!(outcome.events.last(), Some(Event::GaveUp { .. }));
    let again = if arm == "simulated" { 0 } else { 4 };
    (0..again)
        .map(|_| run(command, client_loses, server_loses))
        .find(|outcome| !gave_up(outcome))
        .unwrap_or_else(|| run(command, client_loses, server_loses))
}

/// Every ping is answered, in order, and the last thing said is that it has finished. Returns how many
/// retransmissions that took.
fn all_answered(arm: &str, count: u32, outcome: &Outcome) -> u64 {
    let mut numbers = Vec::new();
    let mut again = 0;
    for event in &outcome.events {
        match event {
            Event::Answered { number, tries, .. } => {
                numbers.push(*number);
                again += u64::from(*tries) - 1;
            }
            // A retransmission that a slow machine made needless.
            Event::Stray { .. } | Event::Finished => {}
            other => panic!("{arm}: {other:?}"),
        }
    }
    assert!(numbers.into_iter().eq(0..count), "{arm}: {:?}", outcome.events);
    assert_eq!(outcome.events.last(), Some(&Event::Finished), "{arm}");
    again
}

#[test]
fn every_ping_is_answered_in_order() {
    for (arm, run) in ARMS {
        let outcome = patiently((arm, run), Command::Start { count: 100 }, 0, 0);
        all_answered(arm, 100, &outcome);
        assert!(outcome.answered >= 100, "{arm}");
    }
}

#[test]
fn every_third_frame_lost_each_way_costs_retransmissions_and_no_ping() {
    for (arm, run) in ARMS {
        let outcome = patiently((arm, run), Command::Start { count: 20 }, 3, 3);
        let again = all_answered(arm, 20, &outcome);
        // Each loss costs one; a slow machine may add some of its own, whose answers may be lost as well.
        assert!(outcome.client_lost >= 9 && outcome.server_lost >= 9, "{arm}");
        assert!(again >= 18 && again >= outcome.client_lost, "{arm}: {again} retransmissions");
    }
}

#[test]
fn a_peer_that_never_answers_is_given_up() {
    for (arm, run) in ARMS {
        let outcome = run(Command::Start { count: 3 }, 0, 1);
        assert_eq!(outcome.events, [Event::GaveUp { number: 0, tries: 8 }], "{arm}");
    }
}
