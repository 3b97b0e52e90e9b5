//! Enrolment and connections over TCP on loopback, as the daemon and the controller have them: tokio-rustls on both
//! ends and HTTP written by hand.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trunkline_agent::enrol::EnrolRequest;
use trunkline_agent::tls::{
    ClientError, ServerError, client_config, peer_fingerprint, server_config, server_name,
};
use trunkline_agent::trust::JOIN_LIFETIME;
use trunkline_agent::{Admission, Fingerprint, Identity, JoinString, KeyStore, TrustedKeys};

/// Time after which a test fails instead of waiting.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An agent on a loopback port.
struct Agent {
    _folder: tempfile::TempDir,
    trusted: Arc<TrustedKeys>,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Agent {
    async fn start() -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::open(&folder.path().join("keys")).unwrap();
        let trusted = Arc::new(TrustedKeys::new(store).unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let push = move |line: String| lines.lock().unwrap().push(line);
        let refusals = push.clone();
        let config = server_config(trusted.clone(), Arc::new(move |refusal| refusals(refusal.to_string())));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (config, shared) = (Arc::new(config), trusted.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let served = timeout(TIMEOUT, serve(stream, config.clone(), &shared)).await.unwrap();
                match served {
                    Ok(()) | Err(ServerError::Refused) => {}
                    Err(error) => push(error.to_string()),
                }
            }
        });
        Agent { _folder: folder, trusted, address, log }
    }

    fn fingerprint(&self) -> Fingerprint {
        self.trusted.identity().fingerprint()
    }

    fn issue_join(&self) -> String {
        let address = self.address.to_string().parse().unwrap();
        self.trusted.issue_join(address, JOIN_LIFETIME, Timestamp::now()).unwrap().to_string()
    }

    /// Returns the lines logged since the last call. A connection is served before the next one is accepted, so lines
    /// of a finished connection are complete once another has finished.
    fn lines(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

/// Serves one connection with one request.
async fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    trusted: &TrustedKeys,
) -> Result<(), ServerError> {
    let acceptor = TlsAcceptor::from(config);
    let mut stream = match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((error, mut stream)) => {
            // Closing with unread data would reset the connection, and the alert could be lost.
            let _ = stream.shutdown().await;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            return Err((&error).into());
        }
    };
    let fingerprint = peer_fingerprint(stream.get_ref().1).expect("the handshake is complete");
    let mut request = Vec::new();
    stream.read_to_end(&mut request).await.map_err(|error| ServerError::from(&error))?;
    let request = String::from_utf8(request).unwrap();
    let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let now = Timestamp::now();
    let answer = match trusted.admit(fingerprint, now) {
        Ok(Admission::Enrolment) if request.starts_with("POST /enrol ") => {
            match trusted.enrol(fingerprint, &serde_json::from_str::<EnrolRequest>(body).unwrap(), now) {
                Ok(()) => "204 No Content".to_owned(),
                Err(error) => format!("409 {error}"),
            }
        }
        Ok(Admission::Enrolment) => "403 Forbidden".to_owned(),
        Ok(Admission::Controller(name)) => format!("200 {name}"),
        Err(cause) => format!("403 {cause}"),
    };
    let answer = format!("HTTP/1.1 {answer}\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.map_err(|error| ServerError::from(&error))?;
    stream.shutdown().await.map_err(|error| ServerError::from(&error))
}

/// Sends a request and returns the status line.
async fn exchange(
    address: SocketAddr,
    identity: &Identity,
    agent: Fingerprint,
    request: &str,
) -> Result<String, ClientError> {
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::new(client_config(identity, agent)));
        let mut stream = connector.connect(server_name(), stream).await?;
        // An agent that refuses the key may already have closed the connection; then reading has the cause.
        let written: io::Result<()> = async {
            stream.write_all(request.as_bytes()).await?;
            stream.shutdown().await
        }
        .await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        written?;
        Ok(answer)
    };
    let answer: io::Result<String> = timeout(TIMEOUT, connect).await.expect("the agent answers");
    let answer = answer.map_err(|error| ClientError::from(&error))?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

fn enrol_request(identity: &Identity) -> String {
    let request = EnrolRequest { name: "alice".parse().unwrap(), fingerprint: identity.fingerprint() };
    let body = serde_json::to_string(&request).unwrap();
    format!("POST /enrol HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const GET: &str = "GET / HTTP/1.1\r\n\r\n";

#[tokio::test]
async fn a_controller_enrols_with_one_line() {
    let agent = Agent::start().await;
    let line = agent.issue_join();
    let alice = Identity::generate().unwrap();

    let join: JoinString = line.parse().unwrap();
    join.check(Timestamp::now()).unwrap();
    let address = join.address().to_string().parse().unwrap();
    let one_time_key = join.identity();
    let with_one_time_key = |request: String| {
        let (one_time_key, agent) = (&one_time_key, join.agent());
        async move { exchange(address, one_time_key, agent, &request).await }
    };

    // The own key is not accepted before, and the one-time key has no other use.
    assert_eq!(exchange(address, &alice, join.agent(), GET).await, Err(ClientError::Refused));
    assert_eq!(with_one_time_key(GET.into()).await, Ok("HTTP/1.1 403 Forbidden".into()));
    assert_eq!(with_one_time_key(enrol_request(&alice)).await, Ok("HTTP/1.1 204 No Content".into()));
    assert_eq!(exchange(address, &alice, join.agent(), GET).await, Ok("HTTP/1.1 200 alice".into()));

    // A second use fails, also with a request from another controller.
    let mallory = Identity::generate().unwrap();
    assert_eq!(with_one_time_key(enrol_request(&mallory)).await, Err(ClientError::Refused));
    assert_eq!(exchange(address, &mallory, join.agent(), GET).await, Err(ClientError::Refused));

    // Revocation, as by `trunkline keys revoke alice` in another process.
    let store = KeyStore::open(agent.trusted.store().directory()).unwrap();
    store.revoke(&"alice".parse().unwrap(), Timestamp::now()).unwrap();
    assert_eq!(exchange(address, &alice, join.agent(), GET).await, Err(ClientError::Refused));
    let unused = agent.issue_join().parse::<JoinString>().unwrap();
    assert!(exchange(address, &unused.identity(), join.agent(), GET).await.is_ok());

    let refused = |identity: &Identity, cause| format!("refused the key {}: {cause}", identity.fingerprint());
    let expected = [
        refused(&alice, "it is unknown"),
        refused(&one_time_key, "its join string was already used"),
        refused(&mallory, "it is unknown"),
        refused(&alice, "it was revoked (`alice`)"),
    ];
    assert_eq!(agent.lines(), expected);
}

#[tokio::test]
async fn a_wrong_agent_receives_no_request() {
    let agent = Agent::start().await;
    let join: JoinString = agent.issue_join().parse().unwrap();
    let alice = Identity::generate().unwrap();
    let expected = Identity::generate().unwrap().fingerprint();
    let result = exchange(agent.address, &join.identity(), expected, &enrol_request(&alice)).await;
    assert_eq!(result, Err(ClientError::WrongKey { expected, actual: agent.fingerprint() }));
    // The join string was not used.
    let result = exchange(agent.address, &join.identity(), join.agent(), &enrol_request(&alice)).await;
    assert_eq!(result, Ok("HTTP/1.1 204 No Content".into()));
    let lines = agent.lines();
    assert!(lines.len() == 1 && lines[0].starts_with("no TLS connection to the client: "), "{lines:?}");
}

/// Many clients that are refused: each receives the alert, although its request is unread.
#[tokio::test]
async fn every_refused_client_receives_the_alert() {
    let agent = Agent::start().await;
    let mallory = Identity::generate().unwrap();
    let request = format!("POST / HTTP/1.1\r\n\r\n{}", "x".repeat(100_000));
    for _ in 0..50 {
        let result = exchange(agent.address, &mallory, agent.fingerprint(), &request).await;
        assert_eq!(result, Err(ClientError::Refused));
    }
}

#[tokio::test]
async fn other_protocols_receive_no_http() {
    let agent = Agent::start().await;
    for request in
        [&b"GET / HTTP/1.1\r\nhost: lab7\r\n\r\n"[..], b"SSH-2.0-OpenSSH\r\n", &[0x16, 3, 1, 0, 0], &[0; 64]]
    {
        let mut stream = TcpStream::connect(agent.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        timeout(TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        // At most one alert: type 21, version, length 2.
        assert!(answer.is_empty() || answer.len() == 7 && answer[0] == 21, "{answer:?}");
    }
}
