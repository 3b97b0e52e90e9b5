//! The SHA-256 of a public key, which identifies a peer.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use serde::{Deserialize, Serialize};

/// The SHA-256 of a SubjectPublicKeyInfo in DER (RFC 5280, section 4.1), as in RFC 7469. Its text form has 64
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint([u8; 32]);

/// The text is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint has 64 hexadecimal digits")]
pub struct InvalidFingerprint;

impl Fingerprint {
    /// Returns the fingerprint of a public key, a SubjectPublicKeyInfo in DER.
    pub fn of_public_key(public_key: &[u8]) -> Fingerprint {
        let hash = digest(&SHA256, public_key);
        Fingerprint(hash.as_ref().try_into().expect("SHA-256 has 32 octets"))
    }

    /// Returns the fingerprint of a certificate's public key, or an error if the certificate is malformed.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
        let public_key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Fingerprint::of_public_key(&public_key))
    }

    /// Creates a fingerprint from its 32 octets.
    pub fn from_bytes(octets: [u8; 32]) -> Fingerprint {
        Fingerprint(octets)
    }

    /// Returns the fingerprint as `curl --pinnedpubkey` reads it: `sha256//` and the octets in base64.
    pub fn to_pin(&self) -> String {
        format!("sha256//{}", STANDARD.encode(self.0))
    }

    /// Returns the 32 octets.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, InvalidFingerprint> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(InvalidFingerprint);
        }
        let digit = |c: u8| (c as char).to_digit(16).ok_or(InvalidFingerprint);
        let mut octets = [0; 32];
        for (octet, [high, low]) in octets.iter_mut().zip(pairs) {
            *octet = (digit(*high)? << 4 | digit(*low)?) as u8;
        }
        Ok(Fingerprint(octets))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> String {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = InvalidFingerprint;

    fn try_from(text: String) -> Result<Fingerprint, InvalidFingerprint> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_round_trips() {
        let fingerprint = Fingerprint::of_public_key(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text.to_uppercase().parse(), Ok(fingerprint));
        assert_eq!(fingerprint.to_pin(), "sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        for wrong in ["", &text[1..], &text[2..], &format!("{text}0"), &format!("{text}00"), &"g".repeat(64)]
        {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(InvalidFingerprint), "{wrong}");
        }
    }
}
