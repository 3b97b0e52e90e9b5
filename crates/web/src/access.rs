//! Access control: host names and tokens.
//!
//! On loopback, all local users have access. The `Host` header must name this machine, which prevents access by pages
//! of other sites through DNS rebinding. On other addresses a token is required: in `Authorization: Bearer`, in a
//! cookie, or once in the URL, which the server then exchanges for the cookie.

use std::hint::black_box;
use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};

/// Minimum number of characters of a token.
pub const MIN_TOKEN_LENGTH: usize = 16;
/// Maximum number of characters of a token.
pub const MAX_TOKEN_LENGTH: usize = 256;

/// The secret for access: letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The text is not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} letters, digits, `-` and `_`")]
pub struct InvalidToken;

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Creates a token of 128 random bits.
    pub fn random() -> Result<Token, getrandom::Error> {
        let mut bits = [0u8; 16];
        getrandom::fill(&mut bits)?;
        Ok(Token(bits.iter().map(|octet| format!("{octet:02x}")).collect()))
    }

    /// Creates a token from text without surrounding white space.
    pub fn new(text: &str) -> Result<Token, InvalidToken> {
        let text = text.trim();
        let has_valid_characters = text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        let has_valid_length = (MIN_TOKEN_LENGTH..=MAX_TOKEN_LENGTH).contains(&text.len());
        if has_valid_characters && has_valid_length { Ok(Token(text.into())) } else { Err(InvalidToken) }
    }

    /// Returns the secret.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Returns whether `candidate` equals the token. The time does not depend on the position of a difference.
    pub fn matches(&self, candidate: &str) -> bool {
        let (expected, candidate) = (self.0.as_bytes(), candidate.as_bytes());
        let differ = expected.iter().zip(candidate).fold(0, |differ, (a, b)| black_box(differ | (a ^ b)));
        expected.len() == candidate.len() && differ == 0
    }
}

/// Decides on the access of requests.
#[derive(Debug)]
pub(crate) struct AccessControl {
    /// The address that the server listens on.
    pub address: IpAddr,
    /// The port of the server; it distinguishes the cookies of several servers on one machine.
    pub port: u16,
    /// The token, if one is required.
    pub token: Option<Token>,
}

/// The decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AccessDecision {
    /// Access is granted.
    Allow,
    /// Access is granted; store the token in a cookie.
    SetCookie,
    /// The `Host` header does not name this machine.
    WrongHost,
    /// A token is required.
    TokenRequired,
}

impl AccessControl {
    /// Checks a request by its headers and the token in its URL.
    pub fn check(&self, headers: &HeaderMap, candidate: Option<&str>) -> AccessDecision {
        if self.address.is_loopback() && !host(headers).is_some_and(|host| self.is_local_name(host)) {
            return AccessDecision::WrongHost;
        }
        let Some(token) = &self.token else { return AccessDecision::Allow };
        if candidate.is_some_and(|candidate| token.matches(candidate)) {
            return AccessDecision::SetCookie;
        }
        let is_authorized = bearer(headers)
            .into_iter()
            .chain(self.cookies(headers))
            .any(|candidate| token.matches(candidate));
        if is_authorized { AccessDecision::Allow } else { AccessDecision::TokenRequired }
    }

    /// Returns whether a `Host` header names this machine. Any port is accepted, because a tunnel has its own.
    fn is_local_name(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let address = name.parse::<IpAddr>();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|a| a.is_loopback() || a == self.address)
    }

    /// Returns the name of the cookie.
    pub fn cookie(&self) -> String {
        format!("trunkline-{}", self.port)
    }

    fn cookies<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = self.cookie();
        let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        all.flat_map(|value| value.split(';')).filter_map(move |cookie| {
            let (cookie_name, value) = cookie.trim().split_once('=')?;
            (cookie_name == name).then_some(value)
        })
    }
}

fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_is_itself_only() {
        let token = Token::new(" abcdefgh-ABCDEFGH_1\n").unwrap();
        assert!(token.matches("abcdefgh-ABCDEFGH_1"));
        for wrong in ["", "abcdefgh-ABCDEFGH_", "abcdefgh-ABCDEFGH_2", "abcdefgh-ABCDEFGH_11"] {
            assert!(!token.matches(wrong), "{wrong}");
        }
        for wrong in ["", "short", "white space in a token", "abcdefgh;abcdefgh", &"x".repeat(257)] {
            assert_eq!(Token::new(wrong), Err(InvalidToken), "{wrong}");
        }
        let random = Token::random().unwrap();
        assert_eq!(Token::new(random.secret()), Ok(random.clone()));
        assert_ne!(Token::random().unwrap(), random);
        assert!(!format!("{random:?}").contains(random.secret()));
    }

    #[test]
    fn on_loopback_only_this_machine_is_named() {
        let access = AccessControl { address: "127.0.0.1".parse().unwrap(), port: 1996, token: None };
        for host in ["localhost:1996", "LOCALHOST", "127.0.0.1:1996", "[::1]:80", "127.0.0.2:9"] {
            assert_eq!(access.check(&headers(&[("host", host)]), None), AccessDecision::Allow, "{host}");
        }
        for host in
            ["evil.example:1996", "localhost.evil.example", "192.0.2.1", "", "[", "127.0.0.1.evil.example"]
        {
            assert_eq!(access.check(&headers(&[("host", host)]), None), AccessDecision::WrongHost, "{host}");
        }
        assert_eq!(access.check(&headers(&[]), None), AccessDecision::WrongHost);
    }

    #[test]
    fn a_token_opens_by_header_cookie_or_address() {
        let token = Some(Token::new("0123456789abcdef").unwrap());
        let access = AccessControl { address: "192.0.2.1".parse().unwrap(), port: 80, token };
        let check = |all: &[(&'static str, &str)], candidate| access.check(&headers(all), candidate);
        let host = ("host", "monitor.example");
        assert_eq!(check(&[host], None), AccessDecision::TokenRequired);
        assert_eq!(check(&[host], Some("0123456789abcdee")), AccessDecision::TokenRequired);
        assert_eq!(check(&[host], Some("0123456789abcdef")), AccessDecision::SetCookie);
        assert_eq!(check(&[host, ("authorization", "Bearer 0123456789abcdef")], None), AccessDecision::Allow);
        assert_eq!(
            check(&[host, ("cookie", "a=b; trunkline-80=0123456789abcdef")], None),
            AccessDecision::Allow
        );
        assert_eq!(
            check(&[host, ("cookie", "trunkline-81=0123456789abcdef")], None),
            AccessDecision::TokenRequired
        );
    }
}
