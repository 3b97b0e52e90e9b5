//! Tests of the handshake, with both ends in memory.

use std::io::{Read, Write};
use std::sync::Mutex;

use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls::{ClientConnection, ServerConnection};

use super::*;
use crate::key_store::KeyStore;
use crate::peers::Peer;
use crate::trust::Admission;

/// An agent with its log.
struct Agent {
    _folder: tempfile::TempDir,
    trusted: Arc<TrustedKeys>,
    config: Arc<ServerConfig>,
    log: Arc<Mutex<Vec<String>>>,
}

/// What both ends have after a handshake and one message in each direction.
#[derive(Debug)]
struct Outcome {
    client: Result<Vec<u8>, ClientError>,
    server: Result<Vec<u8>, ServerError>,
    /// The records from the server after its first flight.
    from_server: Vec<u8>,
    server_connection: ServerConnection,
}

impl Agent {
    fn new() -> Agent {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::open(&folder.path().join("keys")).unwrap();
        let trusted = Arc::new(TrustedKeys::new(store).unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let push = move |refusal: &Refusal| lines.lock().unwrap().push(refusal.to_string());
        let config = Arc::new(server_config(trusted.clone(), Arc::new(push)));
        Agent { _folder: folder, trusted, config, log }
    }

    fn fingerprint(&self) -> Fingerprint {
        self.trusted.identity().fingerprint()
    }

    fn add(&self, peer: Peer) {
        self.trusted.store().add(peer, Timestamp::UNIX_EPOCH).unwrap();
    }

    fn add_controller(&self, name: &str, identity: &Identity) {
        self.add(Peer::controller(name.parse().unwrap(), identity.fingerprint(), Timestamp::now()));
    }

    fn connect(&self, identity: &Identity) -> Outcome {
        self.connect_with(client_config(identity, self.fingerprint()))
    }

    /// Moves records between both ends until neither has more.
    fn connect_with(&self, config: ClientConfig) -> Outcome {
        self.trusted.refresh(Timestamp::now());
        let mut client = ClientConnection::new(Arc::new(config), server_name()).unwrap();
        let mut server = ServerConnection::new(self.config.clone()).unwrap();
        let (mut client_error, mut server_error) = (None, None);
        let mut flights = Vec::new();
        client.writer().write_all(b"request").unwrap();
        for _ in 0..8 {
            let mut records = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut records).unwrap();
            }
            let mut input = &records[..];
            while server_error.is_none() && !input.is_empty() {
                server.read_tls(&mut input).unwrap();
                server_error = server.process_new_packets().err();
            }
            if server_error.is_none() && !server.is_handshaking() && flights.len() == 1 {
                server.writer().write_all(b"answer").unwrap();
            }
            let mut records = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut records).unwrap();
            }
            let mut input = &records[..];
            while client_error.is_none() && !input.is_empty() {
                client.read_tls(&mut input).unwrap();
                client_error = client.process_new_packets().err();
            }
            flights.push(records);
        }
        let read = |reader: &mut dyn Read| {
            let mut octets = Vec::new();
            let _ = reader.read_to_end(&mut octets);
            octets
        };
        Outcome {
            client: client_error.map_or_else(|| Ok(read(&mut client.reader())), |error| Err(error.into())),
            server: server_error.map_or_else(|| Ok(read(&mut server.reader())), |error| Err(error.into())),
            from_server: flights.split_off(1).concat(),
            server_connection: server,
        }
    }

    /// Checks that a client is refused, that it receives nothing but an alert, and that the log has one line.
    fn check_refused(&self, outcome: &Outcome, fingerprint: Fingerprint, cause: &str) {
        assert_eq!(outcome.client, Err(ClientError::Refused));
        assert_eq!(outcome.server, Err(ServerError::Refused));
        assert_only_alert(&outcome.from_server);
        let lines = std::mem::take(&mut *self.log.lock().unwrap());
        assert_eq!(lines, [format!("refused the key {fingerprint}: {cause}")]);
    }
}

/// The server's second flight is one encrypted record: two octets of the alert, the type and the tag.
fn assert_only_alert(records: &[u8]) {
    let length = 2 + 1 + 16;
    assert_eq!(records.len(), 5 + length, "{records:?}");
    assert_eq!(records[..5], [0x17, 3, 3, 0, length as u8]);
}

#[test]
fn both_ends_know_each_other() {
    let agent = Agent::new();
    let alice = Identity::generate().unwrap();
    agent.add_controller("alice", &alice);
    let outcome = agent.connect(&alice);
    assert_eq!(outcome.client, Ok(b"answer".to_vec()));
    assert_eq!(outcome.server, Ok(b"request".to_vec()));
    assert_eq!(peer_fingerprint(&outcome.server_connection), Some(alice.fingerprint()));
    assert_eq!(outcome.server_connection.alpn_protocol(), Some(PROTOCOL));
    assert_eq!(outcome.server_connection.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    // Neither a ticket nor anything else but the answer: 6 octets, the type and the tag.
    assert_eq!(outcome.from_server.len(), 5 + 6 + 1 + 16);
    assert!(agent.log.lock().unwrap().is_empty());
}

#[test]
fn keys_that_are_not_trusted_are_refused() {
    let agent = Agent::new();
    let [unknown, expired, revoked, other_agent] =
        [1, 2, 3, 4].map(|octet| Identity::from_seed(&[octet; 32]));
    agent.add(Peer {
        expires: Some(Timestamp::from_second(1).unwrap()),
        ..Peer::controller("bob".parse().unwrap(), expired.fingerprint(), Timestamp::UNIX_EPOCH)
    });
    agent.add_controller("carol", &revoked);
    agent.trusted.store().revoke(&"carol".parse().unwrap(), Timestamp::now()).unwrap();
    let address = "lab8:7600".parse().unwrap();
    agent.add(Peer::agent("lab8".parse().unwrap(), other_agent.fingerprint(), address, Timestamp::now()));
    for (identity, cause) in [
        (unknown, "it is unknown"),
        (expired, "it has expired (`bob`)"),
        (revoked, "it was revoked (`carol`)"),
        (other_agent, "it is unknown"),
    ] {
        agent.check_refused(&agent.connect(&identity), identity.fingerprint(), cause);
    }
}

#[test]
fn a_revocation_applies_to_new_and_existing_connections() {
    let agent = Agent::new();
    let alice = Identity::generate().unwrap();
    agent.add_controller("alice", &alice);
    let existing = agent.connect(&alice);
    let admit = |outcome: &Outcome| {
        let fingerprint = peer_fingerprint(&outcome.server_connection).unwrap();
        agent.trusted.admit(fingerprint, Timestamp::now())
    };
    assert_eq!(admit(&existing), Ok(Admission::Controller("alice".parse().unwrap())));
    agent.trusted.store().revoke(&"alice".parse().unwrap(), Timestamp::now()).unwrap();
    assert_eq!(admit(&existing), Err(RefusalCause::Revoked("alice".parse().unwrap())));
    agent.check_refused(&agent.connect(&alice), alice.fingerprint(), "it was revoked (`alice`)");
}

#[test]
fn sessions_are_not_resumed() {
    let agent = Agent::new();
    let alice = Identity::generate().unwrap();
    agent.add_controller("alice", &alice);
    // A client that would store sessions.
    let mut config = client_config(&alice, agent.fingerprint());
    config.resumption = Resumption::in_memory_sessions(8);
    config.enable_early_data = true;
    for _ in 0..2 {
        let outcome = agent.connect_with(config.clone());
        assert_eq!(outcome.server, Ok(b"request".to_vec()));
        assert_eq!(outcome.server_connection.handshake_kind(), Some(rustls::HandshakeKind::Full));
    }
    agent.trusted.store().revoke(&"alice".parse().unwrap(), Timestamp::now()).unwrap();
    assert_eq!(agent.connect_with(config).server, Err(ServerError::Refused));
}

#[test]
fn a_client_without_a_certificate_receives_only_an_alert() {
    let agent = Agent::new();
    let builder = client_config_builder(Arc::new(ring::default_provider()), agent.fingerprint());
    let outcome = agent.connect_with(builder.with_no_client_auth());
    assert_eq!(outcome.server, Err(ServerError::NoCertificate));
    let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
    assert_eq!(outcome.client, Err(ClientError::Tls(alert)));
    assert_only_alert(&outcome.from_server);
}

/// Presents a certificate with any key.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesClientCert for Impostor {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl rustls::server::ResolvesServerCert for Impostor {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Combines the certificate of one identity with the key of another.
fn impostor(certificate: &Identity, key: &Identity) -> Arc<Impostor> {
    let key = any_supported_type(&key.private_key()).unwrap();
    Arc::new(Impostor(Arc::new(CertifiedKey::new(vec![certificate.certificate().clone()], key))))
}

#[test]
fn a_stolen_certificate_is_useless() {
    let agent = Agent::new();
    let [alice, mallory, unknown] = [1, 2, 3].map(|octet| Identity::from_seed(&[octet; 32]));
    agent.add_controller("alice", &alice);
    let outcomes = [&alice, &unknown].map(|certificate| {
        let builder = client_config_builder(Arc::new(ring::default_provider()), agent.fingerprint());
        let config = builder.with_client_cert_resolver(impostor(certificate, &mallory));
        let outcome = agent.connect_with(config);
        agent.check_refused(&outcome, certificate.fingerprint(), "the client does not have its private key");
        outcome
    });
    // The thief does not even learn whether the key is trusted.
    assert_eq!(outcomes[0].from_server.len(), outcomes[1].from_server.len());
    assert_eq!(outcomes[0].client, outcomes[1].client);
}

#[test]
fn an_agent_with_a_stolen_certificate_is_refused() {
    let mut agent = Agent::new();
    let alice = Identity::generate().unwrap();
    agent.add_controller("alice", &alice);
    let mut config = ServerConfig::clone(&agent.config);
    config.cert_resolver = impostor(agent.trusted.identity(), &Identity::generate().unwrap());
    agent.config = Arc::new(config);
    let outcome = agent.connect(&alice);
    assert_eq!(outcome.client, Err(ClientError::NoPrivateKey));
    assert!(matches!(outcome.server, Err(ServerError::Tls(rustls::Error::AlertReceived(_)))), "{outcome:?}");
}

#[test]
fn an_agent_with_another_key_is_refused() {
    let agent = Agent::new();
    let alice = Identity::generate().unwrap();
    agent.add_controller("alice", &alice);
    let expected = Identity::generate().unwrap().fingerprint();
    let outcome = agent.connect_with(client_config(&alice, expected));
    let error = ClientError::WrongKey { expected, actual: agent.fingerprint() };
    assert_eq!(outcome.client, Err(error));
    assert!(matches!(outcome.server, Err(ServerError::Tls(rustls::Error::AlertReceived(_)))), "{outcome:?}");
    // The client has sent neither its certificate nor its request.
    assert_eq!(peer_fingerprint(&outcome.server_connection), None);
}

#[test]
fn the_one_time_key_connects_until_it_is_used() {
    let agent = Agent::new();
    let now = Timestamp::now();
    let lifetime = crate::trust::JOIN_LIFETIME;
    let join = agent.trusted.issue_join("lab7:7600".parse().unwrap(), lifetime, now).unwrap();
    let one_time_key = join.identity();
    let outcome = agent.connect_with(client_config(&one_time_key, join.agent()));
    assert_eq!(outcome.server, Ok(b"request".to_vec()));
    let request = crate::enrol::EnrolRequest {
        name: "alice".parse().unwrap(),
        fingerprint: Identity::from_seed(&[1; 32]).fingerprint(),
    };
    let key = peer_fingerprint(&outcome.server_connection).unwrap();
    agent.trusted.enrol(key, &request, now).unwrap();
    assert_eq!(agent.connect(&Identity::from_seed(&[1; 32])).client, Ok(b"answer".to_vec()));
    let cause = "its join string was already used";
    agent.check_refused(&agent.connect(&one_time_key), one_time_key.fingerprint(), cause);
}

#[test]
fn an_expired_join_string_is_refused() {
    let agent = Agent::new();
    let lifetime = jiff::SignedDuration::ZERO;
    let join = agent.trusted.issue_join("lab7:7600".parse().unwrap(), lifetime, Timestamp::now()).unwrap();
    let key = join.identity();
    agent.check_refused(&agent.connect(&key), key.fingerprint(), "its join string has expired");
}

#[test]
fn a_key_of_another_algorithm_is_only_unknown() {
    let agent = Agent::new();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::default().self_signed(&pair).unwrap();
    let fingerprint = Fingerprint::of_certificate(certificate.der()).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(pair.serialize_der());
    let builder = client_config_builder(Arc::new(ring::default_provider()), agent.fingerprint());
    let config = builder.with_client_auth_cert(vec![certificate.der().clone()], key.into()).unwrap();
    agent.check_refused(&agent.connect_with(config.clone()), fingerprint, "it is unknown");
    agent.add(Peer::controller("openssl".parse().unwrap(), fingerprint, Timestamp::now()));
    assert_eq!(agent.connect_with(config).client, Ok(b"answer".to_vec()));
}

#[test]
fn errors_are_one_line() {
    let other = rustls::Error::Other(OtherError(Arc::new(io::Error::other("x"))));
    for error in [
        ClientError::Refused.to_string(),
        ClientError::NoPrivateKey.to_string(),
        ClientError::WrongKey {
            expected: Fingerprint::from_bytes([0; 32]),
            actual: Fingerprint::from_bytes([1; 32]),
        }
        .to_string(),
        ClientError::from(other.clone()).to_string(),
        ClientError::from(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(
            io::Error::other("x"),
        )))))
        .to_string(),
        ServerError::from(&io::Error::other(other)).to_string(),
        ServerError::from(&io::Error::from(io::ErrorKind::ConnectionReset)).to_string(),
    ] {
        assert!(!error.contains('\n') && !error.is_empty(), "{error}");
    }
}
