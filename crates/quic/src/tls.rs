//! The key of a server, and the TLS configurations of both ends.
//!
//! A server has a key and a self-signed certificate for it. The client receives the [`Fingerprint`] of the key by
//! another way and accepts no other key, whatever the rest of the certificate contains.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup,
    WebPkiSupportedAlgorithms, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, NamedGroup, ServerConfig, SignatureScheme,
};

/// The application protocol (RFC 7301).
const PROTOCOL: &[u8] = b"trunkline";
/// The server name in TLS and in the certificate. It is not checked: the server is identified by its key.
pub(crate) const SERVER_NAME: &str = "trunkline.invalid";
/// An Ed25519 private key in PKCS #8, up to its 32 bytes (RFC 8410 section 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Where TLS takes random numbers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// The operating system.
    System,
    /// Constants: every handshake has the same bytes and protects nothing. For simulations only.
    Fixed,
}

impl Randomness {
    fn provider(self) -> CryptoProvider {
        let provider = rustls::crypto::ring::default_provider();
        match self {
            Randomness::System => provider,
            Randomness::Fixed => {
                CryptoProvider { kx_groups: vec![&FixedKeyExchange], secure_random: &FixedRandom, ..provider }
            }
        }
    }
}

/// The SHA-256 of the public key of a server (its SubjectPublicKeyInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of the key in a certificate; none if it is not one.
    fn of(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        let hash = digest(&SHA256, &parsed.subject_public_key_info());
        Some(Fingerprint(*hash.as_ref().first_chunk()?))
    }
}

/// The key of a server and its certificate.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    fingerprint: Fingerprint,
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        let Identity { certificate, key, fingerprint } = self;
        Identity { certificate: certificate.clone(), key: key.clone_key(), fingerprint: *fingerprint }
    }
}

impl Identity {
    /// Returns the identity with this Ed25519 private key. The caller draws it from a secure source.
    pub fn with_key(secret: &[u8; 32]) -> Identity {
        let key = PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], secret].concat());
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&key, &rcgen::PKCS_ED25519);
        let pair = pair.expect("every 32 bytes are an Ed25519 key");
        let mut parameters = rcgen::CertificateParams::new([SERVER_NAME.to_owned()]).expect("a valid name");
        // The default is a hash of the key, whose encoding may be a byte shorter.
        parameters.serial_number = Some(1.into());
        let certificate = parameters.self_signed(&pair).expect("the key can sign").der().clone();
        let fingerprint = Fingerprint::of(&certificate).expect("a certificate has a key");
        Identity { certificate, key, fingerprint }
    }

    /// Returns an identity whose key is public. For simulations only.
    pub fn fixed() -> Identity {
        Identity::with_key(&[7; 32])
    }

    /// Returns the fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Returns the configuration of a server. Sessions are not resumed and there is no early data.
pub(crate) fn server_config(identity: &Identity, randomness: Randomness) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(Arc::new(randomness.provider()));
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider supports TLS 1.3");
    let key = PrivateKeyDer::Pkcs8(identity.key.clone_key());
    let builder = builder.with_no_client_auth();
    let config = builder.with_single_cert(vec![identity.certificate.clone()], key);
    let mut config = config.expect("the certificate has the key");
    config.alpn_protocols = vec![PROTOCOL.into()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// Returns the configuration of a client that accepts one key.
pub(crate) fn client_config(server: Fingerprint, randomness: Randomness) -> ClientConfig {
    let provider = randomness.provider();
    let verifier = Verifier { algorithms: provider.signature_verification_algorithms, server };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&TLS13]).expect("the provider supports TLS 1.3");
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.into()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config
}

/// Accepts one key of a server.
#[derive(Debug)]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    server: Fingerprint,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match Fingerprint::of(end_entity) {
            Some(fingerprint) if fingerprint == self.server => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC uses TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// --- Constants instead of random numbers

#[derive(Debug)]
struct FixedRandom;

impl SecureRandom for FixedRandom {
    fn fill(&self, buffer: &mut [u8]) -> Result<(), GetRandomFailed> {
        buffer.fill(0x5a);
        Ok(())
    }
}

/// A key exchange with the lengths of X25519 and a constant result.
#[derive(Debug)]
struct FixedKeyExchange;

impl SupportedKxGroup for FixedKeyExchange {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(FixedKeyExchange))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

impl ActiveKeyExchange for FixedKeyExchange {
    fn complete(self: Box<Self>, _peer_key: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&[0x5a; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &[0x5a; 32]
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_have_one_length() {
        let lengths = [1, 0x7f, 0x80, 0xff].map(|byte| Identity::with_key(&[byte; 32]).certificate.len());
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
        assert_ne!(Identity::fixed().fingerprint(), Identity::with_key(&[8; 32]).fingerprint());
        assert_eq!(Identity::fixed().certificate, Identity::fixed().certificate);
    }
}
