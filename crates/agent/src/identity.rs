//! A private key with its certificate.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ED25519, PublicKeyData};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fingerprint::Fingerprint;

/// What precedes the 32 octets of the seed in the PKCS#8 form of an Ed25519 key (RFC 8410, section 7).
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The common name of every certificate. It says nothing about the host, because an agent sends its certificate to
/// clients that are not authenticated yet.
const COMMON_NAME: &str = "trunkline";

/// Octets per line of a PEM file (RFC 7468, section 2).
const PEM_LINE: usize = 64;

/// An Ed25519 key with a self-signed certificate that carries its public key.
pub struct Identity {
    key: PrivatePkcs8KeyDer<'static>,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
}

/// Why there is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The text is not PEM with a private key.
    #[error("not a private key in PEM")]
    Pem,
    /// The key is not an Ed25519 key in PKCS#8.
    #[error("not an Ed25519 key in PKCS#8")]
    Key,
    /// The operating system has no random numbers.
    #[error("cannot generate a key")]
    Generate,
}

impl Identity {
    /// Generates a random key.
    pub fn generate() -> Result<Identity, IdentityError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| IdentityError::Generate)?;
        Ok(Identity::from_seed(&seed))
    }

    /// Returns the identity of the key with this seed (RFC 8032, section 5.1.5). Equal seeds give equal keys.
    pub fn from_seed(seed: &[u8; 32]) -> Identity {
        let key = [&PKCS8_PREFIX[..], seed].concat();
        Identity::from_pkcs8(key).expect("every seed is a key")
    }

    /// Reads an Ed25519 key in PKCS#8, in DER.
    pub fn from_pkcs8(key: Vec<u8>) -> Result<Identity, IdentityError> {
        let pair = KeyPair::from_pkcs8_der_and_sign_algo(&key.into(), &PKCS_ED25519);
        Ok(Identity::new(&pair.map_err(|_| IdentityError::Key)?))
    }

    /// Reads an Ed25519 key in PKCS#8, in PEM.
    pub fn from_pem(text: &[u8]) -> Result<Identity, IdentityError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| IdentityError::Pem)?;
        Identity::from_pkcs8(key.secret_pkcs8_der().to_vec())
    }

    /// Returns the key in PKCS#8, in PEM, which `openssl pkey` reads.
    pub fn to_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_pkcs8_der())
    }

    /// Returns the certificate in PEM, which `curl --cert` reads.
    pub fn certificate_pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// Creates the certificate. The same key always gives the same certificate: dates and names are constants.
    fn new(pair: &KeyPair) -> Identity {
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, COMMON_NAME);
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = name;
        let certificate = parameters.self_signed(pair).expect("an Ed25519 key signs a certificate");
        Identity {
            key: pair.serialize_der().into(),
            certificate: certificate.der().clone(),
            fingerprint: Fingerprint::of_public_key(&pair.subject_public_key_info()),
        }
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Returns the certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns a copy of the private key.
    pub fn private_key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key().into()
    }
}

/// Returns DER as PEM (RFC 7468).
fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines = encoded.as_bytes().chunks(PEM_LINE).map(String::from_utf8_lossy);
    let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("-----BEGIN {label}-----\n{body}-----END {label}-----\n")
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_seed_is_a_key() {
        // RFC 8032, section 7.1, test 1: this seed has the public key d75a98….
        let seed: Fingerprint =
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60".parse().unwrap();
        let identity = Identity::from_seed(seed.as_bytes());
        let public_key: Fingerprint =
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".parse().unwrap();
        let prefix = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        let expected = Fingerprint::of_public_key(&[&prefix[..], public_key.as_bytes()].concat());
        assert_eq!(identity.fingerprint(), expected);
        assert_eq!(Fingerprint::of_certificate(identity.certificate()), Ok(expected));
    }

    #[test]
    fn a_key_survives_its_file() {
        let identity = Identity::generate().unwrap();
        let copy = Identity::from_pem(identity.to_pem().as_bytes()).unwrap();
        assert_eq!(copy.fingerprint(), identity.fingerprint());
        assert_eq!(copy.certificate(), identity.certificate());
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem().as_bytes());
        assert_eq!(&certificate.unwrap(), identity.certificate());
        assert_ne!(Identity::generate().unwrap().fingerprint(), identity.fingerprint());
        assert!(!format!("{identity:?}").contains("PRIVATE"));
    }

    #[test]
    fn other_files_are_not_keys() {
        let identity = Identity::from_seed(&[7; 32]);
        let text = identity.to_pem();
        for wrong in ["", "key", &text[..60], &text.replace("PRIVATE", "PUBLIC")] {
            assert_eq!(Identity::from_pem(wrong.as_bytes()).unwrap_err(), IdentityError::Pem, "{wrong}");
        }
        let other = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        assert_eq!(Identity::from_pkcs8(other.serialize_der()).unwrap_err(), IdentityError::Key);
    }

    proptest! {
        #[test]
        fn damaged_keys_do_not_panic(at in 0usize..200, octet: u8, text: Vec<u8>) {
            let _ = Identity::from_pem(&text);
            let _ = Identity::from_pkcs8(text);
            let mut damaged = Identity::from_seed(&[7; 32]).to_pem().into_bytes();
            let at = at % damaged.len();
            damaged[at] = octet;
            let _ = Identity::from_pem(&damaged);
            let _ = Identity::from_pem(&damaged[..at]);
        }
    }
}
