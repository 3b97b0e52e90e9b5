//! Ends against peers that do what no sender of a plan does.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use trunkline_experiment::{Source as Text, parse};
use trunkline_run::message::{Header, MessageKind};
use trunkline_stamp::{ClockReading, SenderOptions};
use trunkline_traffic::Variable;
use trunkline_units::Seed;

use super::*;
use crate::wire::{Cut, LineReader};

const TOKEN: u32 = 0x0001_0007;
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Time after which a datagram counts as unanswered.
const SILENCE: Duration = Duration::from_millis(200);

/// An end on its own thread, and what it reports.
struct End {
    control: Arc<EndControl>,
    reports: LineReader<UnixStream>,
}

impl End {
    fn new(spec: EndSpec, rate_bps: Option<u64>) -> End {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let services = Services {
            station: Err("none".into()),
            bundle_worker: None,
            consent: None,
            ports: None,
            rate_limit: rate_bps.map(RateLimit::new),
        };
        let control = prepare(spec, Clock::start(), AgentWriter::new(theirs), services);
        End { control, reports: LineReader::new(ours) }
    }

    /// Waits until the end is open, and starts it at once.
    fn open(&mut self) -> (SocketAddr, Option<[u8; 32]>) {
        let opened = match self.reports.read().unwrap() {
            Some(AgentMessage::Ready(_, address, key)) => (address, key),
            other => panic!("{other:?}"),
        };
        self.control.start(self.control.clock.now());
        opened
    }

    /// Returns why the end has failed.
    fn failure(mut self) -> String {
        match self.reports.read().unwrap() {
            Some(AgentMessage::Failed(_, cause, _)) => cause,
            other => panic!("{other:?}"),
        }
    }

    /// Stops the end, and returns what the receiver has measured.
    fn stop(mut self) -> Box<ReceiverReport> {
        self.control.stop();
        match self.reports.read().unwrap() {
            Some(AgentMessage::Done(_, Report::Receiver(report))) => report,
            other => panic!("{other:?}"),
        }
    }
}

/// Returns the protocol of a plan.
fn protocol(text: &str) -> Protocol {
    let text = format!(
        "experiment {{ connection c {{ xmt = a; rcv = b; protocol = {text}; test = cbr (messagesize = 100, period = 1 ms); duration = 1 s; }} }}"
    );
    let plan = parse(&Text { name: "test.ns", text: &text, folder: None }).plan.unwrap();
    plan.connections[0].protocol.clone()
}

fn request() -> Pattern {
    Pattern::Request { request_bytes: Variable::Constant(64.0), response_bytes: Variable::Constant(64.0) }
}

fn spec(protocol: Protocol, pattern: Pattern, role: Role) -> EndSpec {
    EndSpec {
        id: 1,
        repetition_name: "c".into(),
        token: TOKEN,
        seed: Seed(1),
        address: HOST,
        port: None,
        buffer: None,
        protocol,
        dscp: None,
        report_interval: None,
        pattern,
        role,
        peer_key: None,
        rate_controller: None,
        receiver: 0,
        consent: EndConsent::default(),
        epoch_ns: None,
        unix_epoch: Duration::ZERO,
        cut: Cut::default(),
    }
}

fn receiver(text: &str, pattern: Pattern) -> EndSpec {
    spec(protocol(text), pattern, Role::Receiver { file: None })
}

/// Returns a request that is only its header.
fn request_for(response_length: u32) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let header = Header { response_length, ..Header::pattern(0, Instant::ZERO, HEADER as u32) };
    header.encode(TOKEN, &mut bytes);
    bytes
}

fn socket_to(peer: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((HOST, 0)).unwrap();
    socket.connect(peer).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Sends a datagram, and returns whether it is answered.
fn is_answered(socket: &UdpSocket, datagram: &[u8]) -> bool {
    socket.send(datagram).unwrap();
    socket.recv(&mut [0; 2048]).is_ok()
}

#[test]
fn a_long_response_leaves_in_pieces_at_the_limited_rate() {
    const RATE_BPS: u64 = 8_000_000;
    let mut end = End::new(receiver("tcp", request()), Some(RATE_BPS));
    let mut stream = TcpStream::connect(end.open().0).unwrap();
    let start = std::time::Instant::now();
    stream.write_all(&request_for(1 << 30)).unwrap();
    let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
    while bytes < 600_000 {
        let read = stream.read(&mut buffer).unwrap();
        if bytes == 0 {
            let header = Header::decode(TOKEN, &buffer[..read]).unwrap();
            assert_eq!((header.kind, header.length), (MessageKind::Response, 1 << 30));
        }
        bytes += read;
    }
    // Apart from a burst of 2 ms and a piece.
    let permitted = RATE_BPS as f64 / 8.0 * (start.elapsed().as_secs_f64() + 0.002) + RESPONSE_PIECE as f64;
    assert!(bytes as f64 <= permitted, "{bytes} B, {permitted} B are permitted");
    assert!(resident_bytes() < 200 << 20, "{} B", resident_bytes());
    assert_eq!(end.stop().arrivals.messages, 1);
}

/// Returns the resident memory of this process.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn a_requester_that_closes_before_its_responses_is_no_failure() {
    // At this rate the rest of the response would take a minute, for which the end must not wait.
    for rate_bps in [None, Some(8_000_000)] {
        let mut end = End::new(receiver("tcp", request()), rate_bps);
        let mut stream = TcpStream::connect(end.open().0).unwrap();
        stream.write_all(&request_for(64 << 20)).unwrap();
        // Unread bytes of a response make the system reset the connection.
        stream.read_exact(&mut [0; 1]).unwrap();
        drop(stream);
        match end.reports.read().unwrap() {
            Some(AgentMessage::Done(_, Report::Receiver(report))) => assert_eq!(report.arrivals.messages, 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stop_ends_a_responder_during_an_endless_request() {
    let mut end = End::new(receiver("tcp", request()), None);
    let mut stream = TcpStream::connect(end.open().0).unwrap();
    let mut endless = [0; HEADER];
    Header::pattern(1, Instant::ZERO, 1 << 30).encode(TOKEN, &mut endless);
    stream.write_all(&[request_for(64), endless].concat()).unwrap();
    stream.read_exact(&mut [0; 64]).unwrap();
    let sender = std::thread::spawn(move || {
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(end.stop().arrivals.messages, 1);
    sender.join().unwrap();
}

#[test]
fn a_transport_that_cannot_divide_responses_refuses_long_ones() {
    use trunkline_arq::socket::{Connection, Settings};
    let mut end = End::new(receiver("guaranteed", request()), Some(1_000_000_000));
    let peer = end.open().0;
    let (options, settings) = (trunkline_arq::Options::default(), Settings::default());
    let connection = Connection::connect_timeout(peer, &options, &settings, Duration::from_secs(5)).unwrap();
    connection.send(0, &request_for((1 << 20) + 1)).unwrap();
    assert_eq!(end.failure(), "a request asks for a response of 1048577 B, longer than this agent sends");
}

#[test]
fn a_responder_answers_one_source_only_and_no_impossible_request() {
    let mut end = End::new(receiver("udp", request()), None);
    let peer = end.open().0;
    let [first, second] = [(); 2].map(|()| socket_to(peer));
    assert!(!is_answered(&first, &request_for(1 << 30)));
    assert!(is_answered(&first, &request_for(64)));
    assert!(!is_answered(&second, &request_for(64)));
    assert!(is_answered(&first, &request_for(64)));
    let report = end.stop();
    assert_eq!(report.arrivals.corrupted, 1, "the impossible request");
}

#[test]
fn a_reflector_answers_one_source_only() {
    let mut end = End::new(receiver("stamp", Pattern::Full { size_bytes: Variable::Constant(64.0) }), None);
    let peer = end.open().0;
    let packet = |ssid: u16| {
        let options = SenderOptions { ssid, is_stateful: true, ..SenderOptions::default() };
        let now = ClockReading { at: Instant::ZERO, unix: Duration::from_secs(1), utc_error: None };
        trunkline_stamp::Sender::new(options).send(now).to_vec()
    };
    let [other, first, second] = [(); 3].map(|()| socket_to(peer));
    // Another session does not become this one.
    assert!(!is_answered(&other, &packet(TOKEN as u16 + 1)));
    assert!(is_answered(&first, &packet(TOKEN as u16)));
    assert!(!is_answered(&second, &packet(TOKEN as u16)));
    assert!(is_answered(&first, &packet(TOKEN as u16)));
    assert_eq!(end.stop().arrivals.unknown_peers, 2);
}

#[test]
fn an_end_that_panics_fails_with_what_it_had_measured() {
    let control = EndControl::new(1, Clock::start(), 0);
    let sent = SenderReport { messages: 7, ..SenderReport::default() };
    *locked(&control.snapshot) = Some(sent.into());
    let failure = catch(&control, || panic!("index {} of 3", 4)).unwrap_err();
    assert_eq!(failure.error.to_string(), "internal error: index 4 of 3");
    assert!(matches!(failure.report, Some(Report::Sender(report)) if report.messages == 7));
}

#[test]
#[cfg(feature = "quic")]
fn an_end_that_panics_reports_it_and_the_next_works() {
    let full = Pattern::Full { size_bytes: Variable::Constant(100.0) };
    for streams in [0, 1] {
        let mut to = End::new(receiver("quic", full.clone()), None);
        let (peer, peer_key) = to.open();
        let limit = Limit { messages: Some(3), ..Limit::default() };
        let role = Role::Sender { peer, limit, receivers: 1, file: None };
        let mut from = EndSpec { peer_key, ..spec(protocol("quic"), full.clone(), role) };
        let Protocol::Quic { streams: of_sender, .. } = &mut from.protocol else { unreachable!() };
        *of_sender = streams;
        let mut from = End::new(from, None);
        from.open();
        let last = from.reports.read().unwrap();
        match (streams, last) {
            // No plan has a connection without streams.
            (0, Some(AgentMessage::Failed(_, cause, _))) => {
                assert!(cause.starts_with("internal error: "), "{cause}");
            }
            (1, Some(AgentMessage::Done(_, Report::Sender(report)))) => assert_eq!(report.messages, 3),
            (_, other) => panic!("{streams} streams: {other:?}"),
        }
        assert!(from.control.is_over());
        to.control.stop();
    }
}
