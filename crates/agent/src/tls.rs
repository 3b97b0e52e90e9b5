//! TLS configurations of both sides, and their errors.
//!
//! Both sides authenticate with their keys, over TLS 1.3 only. Sessions are not resumed and there is no early data,
//! because both would bypass the check of the key.
//!
//! The server decides on a client's key when it has verified the client's signature. So only the owner of a key can
//! find out whether it is trusted, and a log line about a key was caused by its owner. Every refusal sends the same
//! alert, `access_denied`; the cause is only in the server's log.

use std::fmt;
use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName,
    OtherError, ServerConfig, SignatureScheme,
};

use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::trust::{Refusal, RefusalCause, TrustedKeys};

/// The application protocol (RFC 7301).
const PROTOCOL: &[u8] = b"http/1.1";

/// Receives every refused key. It is called within the handshake and must not block.
pub type RefusalLog = Arc<dyn Fn(&Refusal) + Send + Sync>;

/// Returns the server name that a client passes to TLS. It is a constant that is neither sent nor checked: the agent
/// is identified by its key.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("trunkline.invalid").expect("a valid name")
}

/// Returns the fingerprint of the peer's key. It is `None` before the end of the handshake.
pub fn peer_fingerprint(connection: &CommonState) -> Option<Fingerprint> {
    Fingerprint::of_certificate(connection.peer_certificates()?.first()?).ok()
}

/// Returns the configuration of an agent. It decides by the list of peers as [`TrustedKeys::refresh`] has read it,
/// because a handshake must not block.
pub fn server_config(trusted: Arc<TrustedKeys>, log: RefusalLog) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let (certificate, key) = (trusted.identity().certificate().clone(), trusted.identity().private_key());
    let verifier = ClientVerifier { algorithms: provider.signature_verification_algorithms, trusted, log };
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider supports TLS 1.3");
    let builder = builder.with_client_cert_verifier(Arc::new(verifier));
    let mut config = builder.with_single_cert(vec![certificate], key).expect("the certificate has the key");
    config.alpn_protocols = vec![PROTOCOL.into()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config
}

/// Returns the configuration of a controller with the key `identity`, for the agent with the key `agent`.
pub fn client_config(identity: &Identity, agent: Fingerprint) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let mut config = client_config_builder(provider, agent)
        .with_client_auth_cert(vec![identity.certificate().clone()], identity.private_key())
        .expect("the certificate has the key");
    config.alpn_protocols = vec![PROTOCOL.into()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    config
}

fn client_config_builder(
    provider: Arc<CryptoProvider>,
    agent: Fingerprint,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let verifier = AgentVerifier { algorithms: provider.signature_verification_algorithms, agent };
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider supports TLS 1.3");
    builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
}

// --- The server's check of a client

struct ClientVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    trusted: Arc<TrustedKeys>,
    log: RefusalLog,
}

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientVerifier")
    }
}

/// The error of every refusal; rustls sends it as the alert `access_denied`.
const REFUSED: rustls::Error =
    rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);

impl ClientVerifier {
    /// Reports a refusal and returns its error.
    fn refuse(&self, fingerprint: Fingerprint, cause: RefusalCause) -> rustls::Error {
        (self.log)(&Refusal { fingerprint, cause });
        REFUSED
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    /// Only checks that the certificate has a key; [`verify_tls13_signature`](Self::verify_tls13_signature) decides.
    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Fingerprint::of_certificate(certificate).map_err(|_| REFUSED)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(REFUSED)
    }

    /// Checks the signature of the handshake and then the key. rustls calls it for every client, because a
    /// certificate is mandatory.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let fingerprint = Fingerprint::of_certificate(certificate).map_err(|_| REFUSED)?;
        let valid = verify_tls13_signature(message, certificate, signature, &self.algorithms)
            .map_err(|_| self.refuse(fingerprint, RefusalCause::NoPrivateKey))?;
        match self.trusted.admit_by_stored_list(fingerprint, Timestamp::now()) {
            Ok(_) => Ok(valid),
            Err(cause) => Err(self.refuse(fingerprint, cause)),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// --- The client's check of an agent

#[derive(Debug)]
struct AgentVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    agent: Fingerprint,
}

impl ServerCertVerifier for AgentVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (expected, actual) = (self.agent, Fingerprint::of_certificate(certificate)?);
        if actual == expected {
            return Ok(ServerCertVerified::assertion());
        }
        let error = ClientError::WrongKey { expected, actual };
        Err(CertificateError::Other(OtherError(Arc::new(error))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(REFUSED)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// --- Errors

/// Why a controller has no connection to an agent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// Another program answers at the agent's address, or the agent has a new key.
    #[error("the agent has the key {actual}, not {expected}: enrol again if its key was replaced")]
    WrongKey {
        /// The key from the list of peers or the join string.
        expected: Fingerprint,
        /// The key that it presented.
        actual: Fingerprint,
    },
    /// The agent presents the certificate but cannot sign with its key.
    #[error("the agent does not have the private key of its certificate")]
    NoPrivateKey,
    /// The agent refuses the client's key.
    #[error(
        "the agent refuses this key: it is unknown, revoked or expired there, or the join string was used; the agent's log has the cause"
    )]
    Refused,
    /// Another error of TLS.
    #[error("no TLS connection to the agent: {0}")]
    Tls(rustls::Error),
    /// An error of the connection below TLS.
    #[error("no connection to the agent: {0}")]
    Connection(io::ErrorKind),
}

impl From<rustls::Error> for ClientError {
    fn from(error: rustls::Error) -> ClientError {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
                let error = other.downcast_ref().cloned();
                let unknown = || rustls::Error::Other(OtherError(other.clone()));
                error.unwrap_or_else(|| ClientError::Tls(unknown()))
            }
            rustls::Error::InvalidCertificate(CertificateError::BadSignature) => ClientError::NoPrivateKey,
            rustls::Error::AlertReceived(AlertDescription::AccessDenied) => ClientError::Refused,
            error => ClientError::Tls(error),
        }
    }
}

/// In TLS 1.3 a client learns that it is refused when it reads, after its handshake has succeeded. So errors of reading
/// have the same causes as errors of connecting.
impl From<&io::Error> for ClientError {
    fn from(error: &io::Error) -> ClientError {
        match rustls_error(error) {
            Some(error) => error.into(),
            None => ClientError::Connection(error.kind()),
        }
    }
}

/// Why an agent has no connection to a client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ServerError {
    /// The client has no certificate.
    #[error("the client has no certificate")]
    NoCertificate,
    /// The client's key is refused; the [`RefusalLog`] has received the cause.
    #[error("the client's key is refused")]
    Refused,
    /// The client refuses the agent's key, or another error of TLS.
    #[error("no TLS connection to the client: {0}")]
    Tls(rustls::Error),
    /// An error of the connection below TLS.
    #[error("no connection to the client: {0}")]
    Connection(io::ErrorKind),
}

impl From<rustls::Error> for ServerError {
    fn from(error: rustls::Error) -> ServerError {
        match error {
            error if error == REFUSED => ServerError::Refused,
            rustls::Error::NoCertificatesPresented => ServerError::NoCertificate,
            error => ServerError::Tls(error),
        }
    }
}

impl From<&io::Error> for ServerError {
    fn from(error: &io::Error) -> ServerError {
        match rustls_error(error) {
            Some(error) => error.into(),
            None => ServerError::Connection(error.kind()),
        }
    }
}

/// Returns the error of TLS within an error of the operating system.
fn rustls_error(error: &io::Error) -> Option<rustls::Error> {
    error.get_ref()?.downcast_ref().cloned()
}

#[cfg(test)]
mod tests;
