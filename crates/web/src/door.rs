//! Who may come in.
//!
//! On loopback everybody on this machine may, but no page of another site whose name was made to point here: the `Host`
//! that a browser names must be this machine (DNS rebinding). Beyond loopback a token is needed, by `Authorization:
//! Bearer`, by cookie, or once in the address, which is then exchanged for the cookie.

use std::hint::black_box;
use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST};

/// Fewest characters of a token.
pub const SHORTEST_TOKEN: usize = 16;
/// Most.
pub const LONGEST_TOKEN: usize = 256;

/// A secret that opens the page: letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token has {SHORTEST_TOKEN} to {LONGEST_TOKEN} letters, digits, `-` and `_`")]
pub struct NoToken;

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Of 128 random bits.
    pub fn random() -> Result<Token, getrandom::Error> {
        let mut bits = [0u8; 16];
        getrandom::fill(&mut bits)?;
        Ok(Token(bits.iter().map(|octet| format!("{octet:02x}")).collect()))
    }

    /// As somebody chose it; white space around it is left out.
    pub fn new(text: &str) -> Result<Token, NoToken> {
        let text = text.trim();
        let plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        let fits = (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&text.len());
        if plain && fits { Ok(Token(text.into())) } else { Err(NoToken) }
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether `said` is it, in a time that does not tell how much of it is right.
    pub fn is(&self, said: &str) -> bool {
        let (own, said) = (self.0.as_bytes(), said.as_bytes());
        let differ = own.iter().zip(said).fold(0, |differ, (a, b)| black_box(differ | (a ^ b)));
        own.len() == said.len() && differ == 0
    }
}

/// What keeps strangers out.
#[derive(Debug)]
pub(crate) struct Door {
    /// What the server listens on.
    pub address: IpAddr,
    /// Of the server; cookies of several servers of a machine are told apart by it.
    pub port: u16,
    /// The token, where one is needed.
    pub token: Option<Token>,
}

/// What the door says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Come in.
    Welcome,
    /// Come in, and keep the token as a cookie.
    Exchange,
    /// The page was asked for by a name that is not this machine's.
    Stranger,
    /// A token is needed.
    Closed,
}

impl Door {
    /// Judges a request by its headers and the token in its address.
    pub fn judge(&self, headers: &HeaderMap, said: Option<&str>) -> Verdict {
        if self.address.is_loopback() && !host(headers).is_some_and(|host| self.is_here(host)) {
            return Verdict::Stranger;
        }
        let Some(token) = &self.token else { return Verdict::Welcome };
        if said.is_some_and(|said| token.is(said)) {
            return Verdict::Exchange;
        }
        let known = bearer(headers).into_iter().chain(self.cookies(headers)).any(|said| token.is(said));
        if known { Verdict::Welcome } else { Verdict::Closed }
    }

    /// Whether a name in a browser's address line is this machine itself. Any port: a tunnel has one of its own.
    fn is_here(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let address = name.parse::<IpAddr>();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|a| a.is_loopback() || a == self.address)
    }

    /// The cookie's name.
    pub fn cookie(&self) -> String {
        format!("trunkline-{}", self.port)
    }

    fn cookies<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let name = self.cookie();
        let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        all.flat_map(|value| value.split(';')).filter_map(move |cookie| {
            let (found, value) = cookie.trim().split_once('=')?;
            (found == name).then_some(value)
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
        assert!(token.is("abcdefgh-ABCDEFGH_1"));
        for wrong in ["", "abcdefgh-ABCDEFGH_", "abcdefgh-ABCDEFGH_2", "abcdefgh-ABCDEFGH_11"] {
            assert!(!token.is(wrong), "{wrong}");
        }
        for wrong in ["", "short", "white space in a token", "abcdefgh;abcdefgh", &"x".repeat(257)] {
            assert_eq!(Token::new(wrong), Err(NoToken), "{wrong}");
        }
        let random = Token::random().unwrap();
        assert_eq!(Token::new(random.secret()), Ok(random.clone()));
        assert_ne!(Token::random().unwrap(), random);
        assert!(!format!("{random:?}").contains(random.secret()));
    }

    #[test]
    fn on_loopback_only_this_machine_is_named() {
        let door = Door { address: "127.0.0.1".parse().unwrap(), port: 1996, token: None };
        for host in ["localhost:1996", "LOCALHOST", "127.0.0.1:1996", "[::1]:80", "127.0.0.2:9"] {
            assert_eq!(door.judge(&headers(&[("host", host)]), None), Verdict::Welcome, "{host}");
        }
        for host in
            ["evil.example:1996", "localhost.evil.example", "192.0.2.1", "", "[", "127.0.0.1.evil.example"]
        {
            assert_eq!(door.judge(&headers(&[("host", host)]), None), Verdict::Stranger, "{host}");
        }
        assert_eq!(door.judge(&headers(&[]), None), Verdict::Stranger);
    }

    #[test]
    fn a_token_opens_by_header_cookie_or_address() {
        let token = Some(Token::new("0123456789abcdef").unwrap());
        let door = Door { address: "192.0.2.1".parse().unwrap(), port: 80, token };
        let judge = |all: &[(&'static str, &str)], said| door.judge(&headers(all), said);
        let host = ("host", "monitor.example");
        assert_eq!(judge(&[host], None), Verdict::Closed);
        assert_eq!(judge(&[host], Some("0123456789abcdee")), Verdict::Closed);
        assert_eq!(judge(&[host], Some("0123456789abcdef")), Verdict::Exchange);
        assert_eq!(judge(&[host, ("authorization", "Bearer 0123456789abcdef")], None), Verdict::Welcome);
        assert_eq!(judge(&[host, ("cookie", "a=b; trunkline-80=0123456789abcdef")], None), Verdict::Welcome);
        assert_eq!(judge(&[host, ("cookie", "trunkline-81=0123456789abcdef")], None), Verdict::Closed);
    }
}
