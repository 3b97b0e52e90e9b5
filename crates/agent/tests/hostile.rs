//! Thousands of requests that must not be accepted: malformed, oversized, replayed, cut, unauthorised.
//!
//! `make soak` sends 10,000 (feature `soak`).

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream as Stream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use trunkline_agent::server::runs::RunOptions;
use trunkline_agent::server::{MAX_CONNECTION_AGE, Options, Server};
use trunkline_agent::tls::{client_config, server_name};
use trunkline_agent::trust::JOIN_LIFETIME;
use trunkline_agent::{Fingerprint, Identity, KeyStore, client};
use trunkline_live::{Launch, LaunchedAgent, Threads};
use trunkline_units::Seed;

/// Number of requests.
const REQUESTS: usize = if cfg!(feature = "soak") { 10_000 } else { 600 };
/// Memory that the process may gain, in bytes.
const MAX_GROWTH: u64 = 48 << 20;
/// Time after which a request counts as unanswered.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Counts the runs that are started.
struct Counting(Arc<AtomicUsize>);

impl Launch for Counting {
    fn launch(&self, host: &str) -> io::Result<LaunchedAgent> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Threads.launch(host)
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Sends octets as they are, and returns what is answered before the end of the connection.
fn send_raw(address: SocketAddr, octets: &[u8]) -> Vec<u8> {
    let mut stream = Stream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // The server may close at any octet.
    let _ = stream.write_all(octets);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// Sends octets over TLS, and returns what is answered until the end of the connection.
async fn send_tls(address: SocketAddr, identity: &Identity, agent: Fingerprint, octets: &[u8]) -> Vec<u8> {
    send(address, identity, agent, octets, false).await
}

/// The same with an end of the request that is too early, if it is cut.
async fn send(
    address: SocketAddr,
    identity: &Identity,
    agent: Fingerprint,
    octets: &[u8],
    is_cut: bool,
) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(client_config(identity, agent)));
    let Ok(mut stream) = connector.connect(server_name(), stream).await else { return Vec::new() };
    let _ = stream.write_all(octets).await;
    let _ = stream.flush().await;
    if is_cut {
        let _ = stream.shutdown().await;
    }
    let mut answer = Vec::new();
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.expect("an answer or the end");
    answer
}

/// Records what a client sends to the agent, and passes it on.
fn record(address: SocketAddr) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap();
    let recorder = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = Stream::connect(address).unwrap();
        let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let answers = thread::spawn(move || {
            let _ = io::copy(&mut back, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Both);
        });
        let (mut recorded, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = client.read(&mut chunk) {
            recorded.extend_from_slice(&chunk[..length]);
            server.write_all(&chunk[..length]).unwrap();
        }
        let _ = server.shutdown(Shutdown::Write);
        answers.join().unwrap();
        recorded
    });
    (own, recorder)
}

#[test]
fn nothing_hostile_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let store = |name: &str| KeyStore::open(&folder.path().join(name)).unwrap();
    let options = Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        address: None,
        join_lifetime: JOIN_LIFETIME,
        connection_age: MAX_CONNECTION_AGE,
    };
    let (launched, lines) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<usize>>::default());
    let launch = Box::new(Counting(launched.clone()));
    let runs = RunOptions { launch, max_runs: 4, max_time: Duration::from_secs(600) };
    let counted = lines.clone();
    let log = Arc::new(move |_: &str| *counted.lock().unwrap() += 1);
    let server = Server::bind(store("agent"), options, Some(runs), log).unwrap();
    let (address, stop, join) = (server.address(), server.stop_handle(), server.issue_join().unwrap());
    let thread = thread::spawn(move || server.run());
    let (alice, lab7) = ("alice".parse().unwrap(), "lab7".parse().unwrap());
    client::enrol(&store("alice"), &join, lab7, alice, Timestamp::now()).unwrap();
    let (known, foreign) = (store("alice").identity().unwrap(), Identity::generate().unwrap());
    let agent = join.agent();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();

    // A valid request that starts a run, recorded on the way.
    let valid = b"POST /v1/runs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (recorder, recorded) = record(address);
    let answer = runtime.block_on(send_tls(recorder, &known, agent, valid));
    assert!(answer.starts_with(b"HTTP/1.1 201"), "{}", String::from_utf8_lossy(&answer));
    let recorded = recorded.join().unwrap();
    assert_eq!(launched.load(Ordering::Relaxed), 1);

    let mut random = Seed(7).stream("hostile");
    let octets = |random: &mut trunkline_units::Stream, length: u64| -> Vec<u8> {
        (0..length).map(|_| random.below(256) as u8).collect()
    };
    let request = |method: &str, path: &str, body: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    };
    let mut before = 0;
    for number in 0..REQUESTS {
        // The first requests fill caches and pools.
        if number == REQUESTS / 5 {
            before = resident_bytes();
        }
        let answer = match number % 12 {
            // Octets that are no TLS, and TLS that is cut or altered.
            0 => {
                let length = 1 + random.below(2000);
                send_raw(address, &octets(&mut random, length))
            }
            1 => send_raw(address, &recorded),
            2 => send_raw(address, &recorded[..random.below(recorded.len() as u64) as usize]),
            3 => {
                let mut altered = recorded.clone();
                altered[random.below(recorded.len() as u64) as usize] ^= 1 << random.below(8);
                send_raw(address, &altered)
            }
            4 => send_raw(address, valid),
            // A key that is not enrolled.
            5 | 6 => {
                let answer = runtime.block_on(send_tls(address, &foreign, agent, valid));
                assert_eq!(answer, b"", "a foreign key learns nothing");
                continue;
            }
            // A trusted key with requests that make no sense.
            7 => {
                let length = 1 + random.below(3000);
                let noise = octets(&mut random, length);
                runtime.block_on(send(address, &known, agent, &noise, true))
            }
            8 => {
                let long = "x".repeat(70 << 10);
                let all = [
                    request("POST", "/v1/enrol", &long),
                    request("GET", &format!("/v1/{long}"), ""),
                    request("PUT", "/v1/runs", ""),
                    request("POST", "/v1/enrol", "{\"name\":\"x\",\"fingerprint\":\"00\"}"),
                    b"POST /v1/runs HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n"
                        .to_vec(),
                    b"POST /v1/runs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
                ];
                runtime.block_on(send_tls(address, &known, agent, &all[random.below(6) as usize]))
            }
            9 => {
                // Runs that are not this controller's, or that do not exist.
                let id: String = octets(&mut random, 8).iter().map(|octet| format!("{octet:02x}")).collect();
                let all = [
                    request("POST", &format!("/v1/runs/{id}/messages"), "\"Shutdown\"\n"),
                    request("GET", &format!("/v1/runs/{id}/events"), ""),
                    request("POST", &format!("/v1/runs/{id}/time"), ""),
                    request("GET", &format!("/v1/runs/../{id}"), ""),
                ];
                runtime.block_on(send_tls(address, &known, agent, &all[random.below(4) as usize]))
            }
            10 => {
                // The client leaves in the middle of its request.
                let cut = &request("POST", "/v1/enrol", &"y".repeat(1000))[..random.below(1000) as usize];
                runtime.block_on(send(address, &known, agent, cut, true))
            }
            _ => {
                // The join string was used.
                let body = "{\"name\":\"eve\",\"fingerprint\":\"".to_owned()
                    + &foreign.fingerprint().to_string()
                    + "\"}";
                runtime.block_on(send_tls(
                    address,
                    &join.identity(),
                    agent,
                    &request("POST", "/v1/enrol", &body),
                ))
            }
        };
        let status = answer.get(..10).unwrap_or_default();
        assert!(!status.starts_with(b"HTTP/1.1 2"), "{number}: {}", String::from_utf8_lossy(&answer));
    }
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < MAX_GROWTH, "{growth} bytes");
    assert_eq!(launched.load(Ordering::Relaxed), 1, "no run but the first was started");
    let peers = store("agent").peers().unwrap();
    assert_eq!(peers.peers().len(), 1, "only alice is enrolled");
    assert!(client::describe(join.address(), agent, &known).is_ok(), "the agent still serves");
    println!(
        "{REQUESTS} hostile requests: none accepted, {growth} bytes of memory, {} lines",
        lines.lock().unwrap()
    );
    stop.stop();
    thread.join().unwrap().unwrap();
}
