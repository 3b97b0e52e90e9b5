//! The agent's server on loopback, and a controller that enrols, asks and is refused.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use trunkline_agent::client::{self, Error};
use trunkline_agent::server::{
    Description, Log, MAX_BODY, MAX_CONNECTION_AGE, MAX_CONNECTIONS_PER_KEY, Options, Server, StopHandle,
};
use trunkline_agent::tls::{ClientError, client_config, server_name};
use trunkline_agent::trust::JOIN_LIFETIME;
use trunkline_agent::{Address, Fingerprint, Identity, JoinString, KeyStore, Name};

/// Time after which a test fails instead of waiting.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An agent on a loopback port.
struct Agent {
    folder: tempfile::TempDir,
    join: JoinString,
    address: SocketAddr,
    log: Receiver<String>,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<(), trunkline_agent::server::Error>>>,
}

impl Agent {
    fn start() -> Agent {
        Agent::start_with(None, Arc::new(|_| {}))
    }

    /// Starts an agent with this address in join strings. Its log goes to `more` too.
    fn start_with(address: Option<Address>, more: Log) -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::open(&folder.path().join("agent")).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let options =
            Options { listen, address, join_lifetime: JOIN_LIFETIME, connection_age: MAX_CONNECTION_AGE };
        let (lines, log) = mpsc::channel();
        let log_line = Arc::new(move |line: &str| {
            drop(lines.send(line.to_owned()));
            more(line);
        });
        let server = Server::bind(store, options, None, log_line).unwrap();
        let (address, stop, join) = (server.address(), server.stop_handle(), server.issue_join().unwrap());
        // As the agent prints it and the controller reads it.
        let join = join.to_string().parse().unwrap();
        let thread = thread::spawn(move || server.run());
        Agent { folder, join, address, log, stop, thread: Some(thread) }
    }

    /// Opens the key store of a controller.
    fn controller(&self, name: &str) -> KeyStore {
        KeyStore::open(&self.folder.path().join(name)).unwrap()
    }

    fn enrol(&self, store: &KeyStore, own_name: &str) -> Result<Description, Error> {
        client::enrol(store, &self.join, name("lab7"), name(own_name), Timestamp::now())
    }

    fn describe(&self, identity: &Identity) -> Result<Description, Error> {
        client::describe(self.join.address(), self.join.agent(), identity)
    }

    /// Revokes a controller, as another process would.
    fn revoke(&self, controller: &str) {
        self.controller("agent").revoke(&name(controller), Timestamp::now()).unwrap();
    }

    /// Returns the next line of the log, without the address of the client.
    fn line(&self) -> String {
        let line = self.log.recv_timeout(TIMEOUT).unwrap();
        let (client, rest) = line.split_once(": ").unwrap();
        assert!(client.parse::<SocketAddr>().is_ok_and(|client| client.ip().is_loopback()), "{line}");
        rest.to_owned()
    }

    async fn open(&self, identity: &Identity) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(client_config(identity, self.join.agent())));
        connector.connect(server_name(), stream).await.unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, None | Some(Ok(Ok(())))) || thread::panicking());
    }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn is_refused(result: Result<Description, Error>) -> bool {
    matches!(result, Err(Error::Connect(_, ClientError::Refused)))
}

/// Sends a request and returns the status and the rest of the answer's first read.
async fn exchange(stream: &mut TlsStream<TcpStream>, request: &str) -> io::Result<(u16, String)> {
    let mut room = vec![0; 1 << 16];
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read(&mut room).await
    };
    let length = timeout(TIMEOUT, exchange).await.expect("the agent answers")?;
    let answer = String::from_utf8_lossy(&room[..length]).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.unwrap_or(0), answer))
}

const GET: &str = "GET /v1/agent HTTP/1.1\r\nhost: lab7\r\n\r\n";

#[test]
fn a_controller_enrols_with_one_line() {
    let agent = Agent::start();
    let (alice, mallory) = (agent.controller("alice"), agent.controller("mallory"));
    let refused = |key: Fingerprint, cause| format!("refused the key {key}: {cause}");
    let key = |store: &KeyStore| store.identity().unwrap();

    assert!(is_refused(agent.describe(&key(&alice))), "before the enrolment");
    assert_eq!(agent.line(), refused(key(&alice).fingerprint(), "it is unknown"));
    let description = agent.enrol(&alice, "alice").unwrap();
    assert_eq!(description.controller, "alice");
    let enrolled = format!("enrolled the controller `alice` with the key {}", key(&alice).fingerprint());
    assert_eq!(agent.line(), enrolled);
    assert_eq!(agent.describe(&key(&alice)).unwrap(), description);
    let peers = alice.peers().unwrap();
    let lab7 = peers.by_name(trunkline_agent::Role::Agent, &name("lab7"), Timestamp::now()).unwrap();
    assert_eq!((lab7.fingerprint, lab7.address.as_ref()), (agent.join.agent(), Some(agent.join.address())));

    // The join string has one use, also for another controller.
    let error = agent.enrol(&mallory, "mallory").unwrap_err();
    assert!(matches!(error, Error::Connect(_, ClientError::Refused)), "{error}");
    let one_time_key = agent.join.identity().fingerprint();
    assert_eq!(agent.line(), refused(one_time_key, "its join string was already used"));
    assert_eq!(agent.line(), refused(key(&mallory).fingerprint(), "it is unknown"));
    assert!(
        mallory
            .peers()
            .unwrap()
            .by_name(trunkline_agent::Role::Agent, &name("lab7"), Timestamp::now())
            .is_none()
    );

    agent.revoke("alice");
    assert!(is_refused(agent.describe(&key(&alice))));
    assert_eq!(agent.line(), refused(key(&alice).fingerprint(), "it was revoked (`alice`)"));
}

#[test]
fn a_wrong_agent_receives_no_request() {
    let (agent, other) = (Agent::start(), Agent::start());
    let alice = agent.controller("alice");
    let address: Address = agent.address.to_string().parse().unwrap();
    let identity = agent.join.identity();
    let result = client::describe(&address, other.join.agent(), &identity);
    let (expected, actual) = (other.join.agent(), agent.join.agent());
    let wrong_key = |key: &ClientError| *key == ClientError::WrongKey { expected, actual };
    assert!(matches!(&result, Err(Error::Connect(_, key)) if wrong_key(key)), "{result:?}");
    assert!(agent.line().contains("no TLS connection to the client"));
    // The join string was not used.
    agent.enrol(&alice, "alice").unwrap();
}

#[test]
fn the_one_time_key_permits_only_an_enrolment() {
    let agent = Agent::start();
    let result = client::describe(agent.join.address(), agent.join.agent(), &agent.join.identity());
    assert!(
        matches!(&result, Err(Error::Refused(_, reason)) if reason.contains("only an enrolment")),
        "{result:?}"
    );
    let refused =
        "refused a request of the owner of a join string: 403: the one-time key permits only an enrolment";
    assert_eq!(agent.line(), refused);
    // It cannot be enrolled itself.
    let own = trunkline_agent::enrol::EnrolRequest {
        name: name("mallory"),
        fingerprint: agent.join.identity().fingerprint(),
    };
    let body = serde_json::to_string(&own).unwrap();
    let request =
        format!("POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let identity = agent.join.identity();
    run(async {
        let (status, answer) = exchange(&mut agent.open(&identity).await, &request).await.unwrap();
        assert!(status == 403 && answer.contains("cannot be enrolled"), "{answer}");
    });
    // That was its use.
    agent.enrol(&agent.controller("alice"), "alice").unwrap_err();
}

/// The join string is not used if the controller cannot add the agent.
#[test]
fn a_name_in_use_is_found_before_the_enrolment() {
    let (first, second) = (Agent::start(), Agent::start());
    let alice = first.controller("alice");
    first.enrol(&alice, "alice").unwrap();
    let error = second.enrol(&alice, "alice").unwrap_err();
    assert!(error.to_string().contains("the name `lab7` is in use"), "{error}");
    second.enrol(&second.controller("bob"), "bob").unwrap();
}

/// Connections without a handshake from one source keep no other client out, and are closed in the end.
#[test]
fn silent_clients_do_not_keep_controllers_out() {
    let agent = Agent::start();
    let alice = agent.controller("alice");
    agent.enrol(&alice, "alice").unwrap();
    // All of 127.0.0.0/8 is local: these come from 127.0.0.2.
    let silent: Vec<_> = (0..300)
        .map(|_| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            let source: SocketAddr = "127.0.0.2:0".parse().unwrap();
            socket.bind(&source.into()).unwrap();
            socket.connect(&agent.address.into()).unwrap();
            socket
        })
        .collect();
    assert_eq!(agent.describe(&alice.identity().unwrap()).unwrap().controller, "alice");
    assert!(agent.log.try_iter().any(|line| line.ends_with("too many handshakes from this source")));
    drop(silent);
}

/// An enrolment is logged even if the log is full.
#[test]
fn a_flood_hides_no_enrolment() {
    let agent = Agent::start();
    let mallory = Identity::generate().unwrap();
    for _ in 0..70 {
        assert!(is_refused(agent.describe(&mallory)));
    }
    agent.enrol(&agent.controller("alice"), "alice").unwrap();
    let lines: Vec<String> = agent.log.try_iter().collect();
    assert!(lines.last().unwrap().contains(": enrolled the controller `alice`"), "{lines:?}");
}

#[test]
fn a_revocation_ends_open_connections() {
    let agent = Agent::start();
    let alice = agent.controller("alice");
    agent.enrol(&alice, "alice").unwrap();
    run(async {
        let mut stream = agent.open(&alice.identity().unwrap()).await;
        assert_eq!(exchange(&mut stream, GET).await.unwrap().0, 200);
        assert_eq!(exchange(&mut stream, GET).await.unwrap().0, 200);
        agent.revoke("alice");
        let (status, answer) = exchange(&mut stream, GET).await.unwrap();
        assert!(status == 403 && answer.contains("no longer accepts"), "{answer}");
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0, "the agent closes the connection");
    });
}

#[test]
fn bad_requests_get_one_line_each() {
    let agent = Agent::start();
    let alice = agent.controller("alice");
    agent.enrol(&alice, "alice").unwrap();
    let identity = alice.identity().unwrap();
    let large_header = format!("GET /v1/agent HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let large_body =
        format!("POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", MAX_BODY + 1);
    let cases = [
        ("GET /v2/agent HTTP/1.1\r\nhost: x\r\n\r\n", 404, "not found"),
        ("DELETE /v1/agent HTTP/1.1\r\nhost: x\r\n\r\n", 405, "method not allowed"),
        // An enrolled key is refused before its body is read.
        (large_body.as_str(), 409, "this key is already enrolled"),
    ];
    agent.line();
    run(async {
        for (request, expected, reason) in cases {
            let mut stream = agent.open(&identity).await;
            let (status, answer) = exchange(&mut stream, request).await.unwrap();
            assert_eq!(status, expected, "{answer}");
            assert!(answer.ends_with(&format!("{{\"error\":\"{reason}\"}}")), "{answer}");
            assert_eq!(answer.contains("\r\nallow: GET"), expected == 405, "{answer}");
            assert_eq!(agent.line(), format!("refused a request of `alice`: {expected}: {reason}"));
        }
        let (status, answer) = exchange(&mut agent.open(&identity).await, "nonsense\r\n\r\n").await.unwrap();
        assert_eq!(status, 400, "{answer}");
        let line = agent.line();
        assert!(line.starts_with("no valid HTTP request: "), "{line}");
        // The agent closes the connection without reading all of it, so the answer may be lost.
        let answer = exchange(&mut agent.open(&identity).await, &large_header).await;
        assert!(answer.as_ref().is_ok_and(|(status, _)| *status == 431) || answer.is_err(), "{answer:?}");
    });
    assert_eq!(agent.describe(&identity).unwrap().controller, "alice");
}

/// Each receives the alert, although its request is unread. The log is limited.
#[test]
fn every_refused_client_receives_the_alert() {
    let agent = Agent::start();
    let mallory = Identity::generate().unwrap();
    run(async {
        let request = format!("POST / HTTP/1.1\r\n\r\n{}", "x".repeat(100_000));
        for _ in 0..100 {
            let mut stream = agent.open(&mallory).await;
            // A write may fail when the agent has closed; the alert is there all the same.
            let _ = stream.write_all(request.as_bytes()).await;
            let error = stream.read(&mut [0; 16]).await.expect_err("an alert");
            assert_eq!(ClientError::from(&error), ClientError::Refused);
        }
    });
    assert_eq!(agent.log.try_iter().count(), 60, "lines a minute");
}

#[test]
fn other_protocols_receive_no_http() {
    let agent = Agent::start();
    run(async {
        for request in [
            &b"GET / HTTP/1.1\r\nhost: lab7\r\n\r\n"[..],
            b"SSH-2.0-OpenSSH\r\n",
            &[0x16, 3, 1, 0, 0],
            &[0; 64],
        ] {
            let mut stream = TcpStream::connect(agent.address).await.unwrap();
            stream.write_all(request).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
            // At most one alert: type 21, version, length 2.
            assert!(answer.is_empty() || answer.len() == 7 && answer[0] == 21, "{answer:?}");
        }
    });
}

/// A body that is too long, malformed or late is refused with a line, and the join string can still be used.
#[test]
fn bad_enrolments_get_one_line_each() {
    let agent = Agent::start();
    let identity = agent.join.identity();
    let post = |length: usize, body: &str| {
        format!("POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")
    };
    let request = |name: &str| format!("{{\"name\":\"{name}\",\"fingerprint\":\"{}\"}}", "0".repeat(64));
    let check = async |request: String, expected: u16, reason: &str| {
        let (status, answer) = exchange(&mut agent.open(&identity).await, &request).await.unwrap();
        assert_eq!(status, expected, "{answer}");
        assert!(answer.contains("{\"error\":\"") && answer.contains(reason), "{answer}");
        let line = agent.line();
        let start = format!("refused a request of the owner of a join string: {expected}: ");
        assert!(line.starts_with(&start) && line.contains(reason), "{line}");
    };
    run(async {
        check(post(MAX_BODY + 1, ""), 413, "the body is longer than 65536 octets").await;
        let unannounced = format!(
            "POST /v1/enrol HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            MAX_BODY + 1,
            "x".repeat(MAX_BODY + 1)
        );
        check(unannounced, 413, "payload too large").await;
        check(post(2, "{}"), 400, "not an enrolment: missing field `name`").await;
        let body = request("al ice");
        check(post(body.len(), &body), 400, "not an enrolment: a name has 1 to 64").await;
        // The agent waits 10 s for the rest.
        check(post(100, "{"), 408, "the request did not arrive in time").await;
    });
    agent.enrol(&agent.controller("alice"), "alice").unwrap();
}

/// The name is in use at the agent: one line, although two functions could write it.
#[test]
fn an_enrolment_that_fails_is_logged_once() {
    let agent = Agent::start();
    let store = agent.controller("agent");
    let other = Identity::generate().unwrap().fingerprint();
    store
        .add(trunkline_agent::Peer::controller(name("alice"), other, Timestamp::now()), Timestamp::now())
        .unwrap();
    let error = agent.enrol(&agent.controller("alice"), "alice").unwrap_err().to_string();
    assert!(error.contains("refuses: the name `alice` is in use"), "{error}");
    let line = agent.line();
    assert!(line.starts_with("did not enrol `alice`") && line.contains("is in use"), "{line}");
    assert!(agent.log.try_recv().is_err());
}

/// The agent waits for another process that changes its key store, and the client leaves in the meantime.
#[test]
fn an_enrolment_is_logged_if_the_client_leaves() {
    let agent = Agent::start();
    let lock = std::fs::File::open(agent.folder.path().join("agent/lock")).unwrap();
    lock.lock().unwrap();
    let key = Identity::generate().unwrap().fingerprint();
    let body = format!("{{\"name\":\"alice\",\"fingerprint\":\"{key}\"}}");
    let request =
        format!("POST /v1/enrol HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let identity = agent.join.identity();
    run(async {
        let mut stream = agent.open(&identity).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        // The refusal of another request with the same key shows that the agent has the first one.
        let used = format!("refused the key {}: its join string was already used", identity.fingerprint());
        loop {
            let stream = TcpStream::connect(agent.address).await.unwrap();
            let connector = TlsConnector::from(Arc::new(client_config(&identity, agent.join.agent())));
            if let Ok(mut stream) = connector.connect(server_name(), stream).await {
                let _ = exchange(&mut stream, GET).await;
            }
            if agent.line() == used {
                break;
            }
        }
    });
    // The first connection is closed now.
    lock.unlock().unwrap();
    assert_eq!(agent.line(), format!("enrolled the controller `alice` with the key {key}"));
}

/// A client enrols over a path that fails just before it has the answer.
#[test]
fn a_lost_answer_does_not_lose_the_enrolment() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let agent = Agent::start_with(Some(path.clone()), Arc::new(|_| {}));
    let server = agent.address;
    let relays = thread::spawn(move || {
        [true, false].map(|is_cut| {
            let (client, _) = listener.accept().unwrap();
            relay(client, std::net::TcpStream::connect(server).unwrap(), is_cut)
        })
    });
    let description = agent.enrol(&agent.controller("alice"), "alice").unwrap();
    assert_eq!(description.controller, "alice");
    assert_eq!(relays.join().unwrap(), [true, false], "the first answer is lost");
    let peers = agent.controller("alice").peers().unwrap();
    assert_eq!(peers.peers()[0].address, Some(path));
}

/// Copies octets in both directions until one end closes. If `is_cut`, drops what the server sends after the handshake
/// and closes; returns whether it has dropped something.
fn relay(client: std::net::TcpStream, server: std::net::TcpStream, is_cut: bool) -> bool {
    let copy = |mut from: &std::net::TcpStream, mut to: &std::net::TcpStream, forward: &dyn Fn() -> bool| {
        let mut room = [0; 1 << 14];
        let mut is_dropped = false;
        while let Ok(length @ 1..) = from.read(&mut room) {
            is_dropped = !forward();
            if is_dropped || to.write_all(&room[..length]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
        is_dropped
    };
    // The server sends one flight; what follows the client's answer to it is after the handshake.
    let (is_first_flight_sent, is_handshake_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            copy(&client, &server, &|| {
                is_handshake_over.store(is_first_flight_sent.load(SeqCst), SeqCst);
                true
            })
        });
        copy(&server, &client, &|| {
            is_first_flight_sent.store(true, SeqCst);
            !(is_cut && is_handshake_over.load(SeqCst))
        })
    })
}

/// A key has up to 16 connections, so that one controller leaves room for others.
#[test]
fn the_connections_of_a_key_are_limited() {
    let agent = Agent::start();
    let (alice, bob) = (agent.controller("alice"), Identity::generate().unwrap());
    agent.enrol(&alice, "alice").unwrap();
    agent
        .controller("agent")
        .add(
            trunkline_agent::Peer::controller(name("bob"), bob.fingerprint(), Timestamp::now()),
            Timestamp::now(),
        )
        .unwrap();
    agent.line();
    let identity = alice.identity().unwrap();
    run(async {
        let mut streams = Vec::new();
        // On a busy machine the first ones may be idle for so long that the agent closes them.
        loop {
            let mut stream = agent.open(&identity).await;
            match exchange(&mut stream, GET).await {
                Ok((status, _)) => assert_eq!(status, 200),
                Err(_) => break,
            }
            streams.push(stream);
        }
        assert!(streams.len() >= MAX_CONNECTIONS_PER_KEY, "{}", streams.len());
        assert_eq!(agent.line(), format!("too many connections with the key {}", identity.fingerprint()));
        assert_eq!(exchange(&mut agent.open(&bob).await, GET).await.unwrap().0, 200);
        drop(streams);
        // The agent notices soon that they are closed.
        while exchange(&mut agent.open(&identity).await, GET).await.is_err() {}
    });
}

#[test]
fn a_host_name_is_tried_in_both_ip_versions() {
    let agent = Agent::start();
    let alice = agent.controller("alice");
    agent.enrol(&alice, "alice").unwrap();
    let address: Address = format!("localhost:{}", agent.address.port()).parse().unwrap();
    let description = client::describe(&address, agent.join.agent(), &alice.identity().unwrap()).unwrap();
    assert_eq!(description.controller, "alice");
}

/// This host's clock is two hours fast: the agent, whose clock counts, accepts. After the use, the error names both times.
#[test]
fn only_the_agent_decides_whether_a_join_string_has_expired() {
    let agent = Agent::start();
    let fast = Timestamp::now() + jiff::SignedDuration::from_hours(2);
    client::enrol(&agent.controller("alice"), &agent.join, name("lab7"), name("alice"), fast).unwrap();
    let bob = client::enrol(&agent.controller("bob"), &agent.join, name("lab7"), name("bob"), fast);
    let error = bob.unwrap_err().to_string();
    assert!(
        error.contains(&format!("which expired at {}; the clock of this host is ", agent.join.expires())),
        "{error}"
    );
}

#[test]
fn a_server_that_fails_ends() {
    let panic = |line: &str| assert!(!line.contains("too many handshakes"), "a panic of this test");
    let mut agent = Agent::start_with(None, Arc::new(panic));
    let silent: Vec<_> = (0..9).map(|_| std::net::TcpStream::connect(agent.address).unwrap()).collect();
    let result = agent.thread.take().unwrap().join().unwrap();
    assert!(matches!(result, Err(trunkline_agent::server::Error::Internal)), "{result:?}");
    drop(silent);
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    runtime.unwrap().block_on(test);
}
