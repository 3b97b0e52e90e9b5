//! Text → [`Filter`].
//!
//! As in pcap, `not` binds most, `and` and `or` bind alike and group from the left, and a value that follows `and` or
//! `or` without words before it takes the words of the value before: `tcp port 80 or 443`.

use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use super::{Filter, Kind, Net, Side, TYPES, Test};
use crate::name::ip_protocol;
use crate::packet::{IPV4, IPV6, Mac, SCTP, TCP, UDP};

/// Why a text is no filter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BadFilter {
    /// It ends where a word is missing.
    #[error("filter: {0} is missing at the end")]
    Missing(&'static str),
    /// A word stands where another was expected.
    #[error("filter: `{0}` is not {1}")]
    Unexpected(String, &'static str),
    /// Of pcap's language, but not understood here.
    #[error(
        "filter: `{0}` is not understood here: write names such as host, net, port, proto, ether, vlan, sap"
    )]
    NotHere(String),
    /// More tests or parentheses than anybody writes.
    #[error("filter: more than {MOST_WORDS} words")]
    Long,
}

/// Most words of a filter: it is read by recursion.
const MOST_WORDS: usize = 500;

impl FromStr for Filter {
    type Err = BadFilter;

    fn from_str(text: &str) -> Result<Filter, BadFilter> {
        let words = words(text)?;
        let mut reader = Reader { words: &words, at: 0, before: None };
        let test = reader.expression()?;
        match reader.peek() {
            None => Ok(Filter { test }),
            Some(word) => Err(BadFilter::Unexpected(word.into(), "`and` or `or`")),
        }
    }
}

/// Words, parentheses and operators.
fn words(text: &str) -> Result<Vec<&str>, BadFilter> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' | '!' => 1,
            '&' | '|' => {
                let double = if first == '&' { "&&" } else { "||" };
                if !rest.starts_with(double) {
                    return Err(BadFilter::NotHere(first.into()));
                }
                2
            }
            '[' | ']' | '<' | '>' | '=' | '+' | '*' | '\\' => return Err(BadFilter::NotHere(first.into())),
            _ => rest.find(|c: char| c.is_whitespace() || "()!&|[]<>=+*\\".contains(c)).unwrap_or(rest.len()),
        };
        words.push(&rest[..length]);
        rest = rest[length..].trim_start();
        if words.len() > MOST_WORDS {
            return Err(BadFilter::Long);
        }
    }
    Ok(words)
}

struct Reader<'t> {
    words: &'t [&'t str],
    at: usize,
    /// The words before the last value.
    before: Option<Words>,
}

/// What stands before a value: `tcp src port`.
#[derive(Clone, Copy)]
struct Words {
    protocol: Option<Protocol>,
    side: Side,
    what: Qualifier,
}

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Ether,
    Type(u16),
    Ip(u8),
}

#[derive(Clone, Copy, PartialEq)]
enum Qualifier {
    Host,
    Net,
    Port,
    Range,
    Proto,
    Sap,
    Station,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self, wanted: &'static str) -> Result<&'t str, BadFilter> {
        let word = self.peek().ok_or(BadFilter::Missing(wanted))?;
        self.at += 1;
        Ok(word)
    }

    /// Takes the word if it is one of these.
    fn take(&mut self, words: &[&str]) -> bool {
        let there = self.peek().is_some_and(|word| words.contains(&word));
        self.at += usize::from(there);
        there
    }

    /// Terms joined by `and` and `or`, from the left.
    fn expression(&mut self) -> Result<Test, BadFilter> {
        let mut test = self.term()?;
        loop {
            if self.take(&["and", "&&"]) {
                test = Test::And(Box::new(test), Box::new(self.term()?));
            } else if self.take(&["or", "||"]) {
                test = Test::Or(Box::new(test), Box::new(self.term()?));
            } else {
                return Ok(test);
            }
        }
    }

    fn term(&mut self) -> Result<Test, BadFilter> {
        if self.take(&["not", "!"]) {
            return Ok(Test::Not(Box::new(self.term()?)));
        }
        if self.take(&["("]) {
            let test = self.expression()?;
            return match self.next("`)`")? {
                ")" => Ok(test),
                word => Err(BadFilter::Unexpected(word.into(), "`and`, `or` or `)`")),
            };
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Result<Test, BadFilter> {
        let word = self.peek().ok_or(BadFilter::Missing("what to look for"))?;
        if let Some(before) = self.before
            && is_value(word)
        {
            return self.value(before);
        }
        self.before = None;
        if let Some(test) = self.alone(word)? {
            return Ok(test);
        }
        let protocol = self.protocol();
        if protocol == Some(Protocol::Ether) && self.take(&["broadcast"]) {
            return Ok(Test::Ether(Side::Destination, [255; 6]));
        }
        if self.take(&["multicast"]) {
            return match protocol {
                Some(Protocol::Ether) => Ok(Test::EtherGroup),
                Some(Protocol::Type(kind @ (IPV4 | IPV6))) => Ok(both(Test::Type(kind), Test::IpGroup)),
                _ => Err(BadFilter::Unexpected("multicast".into(), "a word after this protocol")),
            };
        }
        let side = self.side()?;
        let what = self.qualifier();
        let words = match (protocol, side, what) {
            (protocol, side, Some(what)) => Words { protocol, side: side.unwrap_or(Side::Either), what },
            // A protocol alone.
            (Some(Protocol::Type(kind)), None, None) => return Ok(Test::Type(kind)),
            (Some(Protocol::Ip(number)), None, None) => return Ok(of_protocol(number)),
            // `src 10.0.0.1` means a host.
            (protocol, Some(side), None) if self.peek().is_some_and(is_value) => {
                Words { protocol, side, what: Qualifier::Host }
            }
            (protocol, side, None) => {
                let wanted = if protocol.is_some() || side.is_some() {
                    "`host`, `net`, `port` or their like"
                } else {
                    "a word of the filter language"
                };
                return Err(match self.peek() {
                    Some(word) if WORDS_OF_PCAP.contains(&word) => BadFilter::NotHere(word.into()),
                    Some(word) => BadFilter::Unexpected(word.into(), wanted),
                    None => BadFilter::Missing(wanted),
                });
            }
        };
        self.before = Some(words);
        self.value(words)
    }

    /// Words that take no others before them.
    fn alone(&mut self, word: &str) -> Result<Option<Test>, BadFilter> {
        let at = self.at;
        self.at += 1;
        Ok(Some(match word {
            "token" => Test::Token,
            "broadcast" => Test::Ether(Side::Destination, [255; 6]),
            "multicast" => Test::EtherGroup,
            "priority" => Test::Priority(self.number("a priority, 0 to 7", 7)? as u8),
            "less" => Test::Less(self.number("a length", u32::MAX)?),
            "greater" => Test::Greater(self.number("a length", u32::MAX)?),
            "vlan" => match self.peek() {
                Some(word) if is_value(word) => {
                    Test::Vlan(Some(self.number("a VLAN, 0 to 4095", 4095)? as u16))
                }
                _ => Test::Vlan(None),
            },
            "llc" => Test::Llc(self.pdu()),
            _ => {
                self.at = at;
                return Ok(None);
            }
        }))
    }

    fn pdu(&mut self) -> Option<Kind> {
        let kind = match self.peek()? {
            "ui" => Kind::Ui,
            "xid" => Kind::Xid,
            "test" => Kind::Test,
            "ac" => Kind::Ac(None),
            "ac0" => Kind::Ac(Some(false)),
            "ac1" => Kind::Ac(Some(true)),
            "command" => Kind::Command,
            "response" => Kind::Response,
            _ => return None,
        };
        self.at += 1;
        Some(kind)
    }

    fn protocol(&mut self) -> Option<Protocol> {
        let word = self.peek()?;
        let types = || TYPES.iter().find(|(name, _)| *name == word).map(|(_, kind)| Protocol::Type(*kind));
        let protocol = match word {
            "ether" => Some(Protocol::Ether),
            "ah" | "esp" | "icmp" | "icmp6" | "igmp" | "sctp" | "tcp" | "udp" => {
                protocol_number(word).map(Protocol::Ip)
            }
            _ => types(),
        };
        self.at += usize::from(protocol.is_some());
        protocol
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn side(&mut self) -> Result<Option<Side>, BadFilter> {
        if self.take(&["dst"]) {
            return Ok(Some(Side::Destination));
        }
        if !self.take(&["src"]) {
            return Ok(None);
        }
        let (joint, other) = (self.peek(), self.words.get(self.at + 1).copied());
        let side = match (joint, other) {
            (Some("or" | "||"), Some("dst")) => Side::Either,
            (Some("and" | "&&"), Some("dst")) => Side::Both,
            _ => return Ok(Some(Side::Source)),
        };
        self.at += 2;
        Ok(Some(side))
    }

    fn qualifier(&mut self) -> Option<Qualifier> {
        let what = match self.peek()? {
            "host" => Qualifier::Host,
            "net" => Qualifier::Net,
            "port" => Qualifier::Port,
            "portrange" => Qualifier::Range,
            "proto" => Qualifier::Proto,
            "sap" => Qualifier::Sap,
            "station" => Qualifier::Station,
            _ => return None,
        };
        self.at += 1;
        Some(what)
    }

    fn value(&mut self, Words { protocol, side, what }: Words) -> Result<Test, BadFilter> {
        let of_type = |test| match protocol {
            Some(Protocol::Type(kind)) => both(Test::Type(kind), test),
            _ => test,
        };
        match (protocol, what) {
            (Some(Protocol::Ether), Qualifier::Host) => {
                let word = self.next("an Ethernet address")?;
                let mac = mac(word)
                    .ok_or_else(|| unexpected(word, "an Ethernet address such as 02:00:00:00:00:01"))?;
                Ok(Test::Ether(side, mac))
            }
            (Some(Protocol::Ether), Qualifier::Proto) => {
                let word = self.next("an Ethernet type")?;
                let named = TYPES.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
                let kind = named.or_else(|| number(word).and_then(|n| u16::try_from(n).ok()));
                kind.map(Test::Type).ok_or_else(|| unexpected(word, "an Ethernet type, such as ip or 0x88b5"))
            }
            (None | Some(Protocol::Type(_)), Qualifier::Host) => {
                let word = self.next("an address")?;
                let address: IpAddr =
                    word.parse().map_err(|_| unexpected(word, "an IP address (no names here)"))?;
                let bits = if address.is_ipv4() { 32 } else { 128 };
                Ok(of_type(Test::Net(side, Net { address, bits })))
            }
            (None | Some(Protocol::Type(_)), Qualifier::Net) => {
                let word = self.next("a network")?;
                let net = net(word).ok_or_else(|| unexpected(word, "a network such as 10.1.0.0/16"))?;
                Ok(of_type(Test::Net(side, net)))
            }
            (None | Some(Protocol::Type(IPV4 | IPV6)), Qualifier::Proto) => {
                let word = self.next("a protocol")?;
                let number =
                    protocol_number(word).or_else(|| number(word).and_then(|n| u8::try_from(n).ok()));
                let number = number.ok_or_else(|| unexpected(word, "a protocol of IP, such as udp or 17"))?;
                Ok(of_type(Test::Protocol(number)))
            }
            (None | Some(Protocol::Ip(TCP | UDP | SCTP)), Qualifier::Port | Qualifier::Range) => {
                let word = self.next("a port")?;
                let (low, high) = match word.split_once('-') {
                    Some((low, high)) if what == Qualifier::Range => (port(low), port(high)),
                    None => (port(word), port(word)),
                    _ => (None, None),
                };
                let Some((low, high)) = low.zip(high) else {
                    return Err(unexpected(word, "a port, 0 to 65535"));
                };
                let test = of_type(Test::Port(side, low.min(high), low.max(high)));
                Ok(match protocol {
                    Some(Protocol::Ip(number)) => both(Test::Protocol(number), test),
                    _ => test,
                })
            }
            (None, Qualifier::Sap) => Ok(Test::Sap(side, self.number("a SAP, 0 to 255", 255)? as u8)),
            (None, Qualifier::Station) => {
                Ok(Test::Station(side, self.number("a station, 1 to 255", 255)? as u8))
            }
            _ => {
                let word = self.words[self.at - 1];
                Err(unexpected(word, "a word after this protocol"))
            }
        }
    }

    fn number(&mut self, wanted: &'static str, most: u32) -> Result<u32, BadFilter> {
        let word = self.next(wanted)?;
        number(word).filter(|n| *n <= most).ok_or_else(|| unexpected(word, wanted))
    }
}

/// Words of pcap's language that a user may try.
const WORDS_OF_PCAP: [&str; 14] = [
    "gateway",
    "mask",
    "protochain",
    "inbound",
    "outbound",
    "ifname",
    "mpls",
    "pppoed",
    "pppoes",
    "wlan",
    "len",
    "decnet",
    "iso",
    "rarp",
];

fn unexpected(word: &str, wanted: &'static str) -> BadFilter {
    BadFilter::Unexpected(word.into(), wanted)
}

fn both(a: Test, b: Test) -> Test {
    Test::And(Box::new(a), Box::new(b))
}

/// A protocol as a word: pcap's `icmp` and `igmp` are IPv4's, `icmp6` is IPv6's.
fn of_protocol(number: u8) -> Test {
    match number {
        1 | 2 => both(Test::Type(IPV4), Test::Protocol(number)),
        58 => both(Test::Type(IPV6), Test::Protocol(number)),
        _ => Test::Protocol(number),
    }
}

/// What begins like an address or a number, and so is no word.
fn is_value(word: &str) -> bool {
    let hex = || {
        word.contains(':') && word.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '/' || c == '.')
    };
    word.starts_with(|c: char| c.is_ascii_digit()) || hex()
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn port(word: &str) -> Option<u16> {
    number(word).and_then(|n| u16::try_from(n).ok())
}

fn protocol_number(word: &str) -> Option<u8> {
    (0..=255).find(|n| ip_protocol(*n) == Some(word))
}

fn mac(word: &str) -> Option<Mac> {
    let mut octets = word.split(':');
    let mut mac = [0; 6];
    for octet in &mut mac {
        *octet = octets
            .next()
            .filter(|o| matches!(o.len(), 1 | 2))
            .and_then(|o| u8::from_str_radix(o, 16).ok())?;
    }
    octets.next().is_none().then_some(mac)
}

/// `10.0.0.0/8`, `10.1` (as pcap reads it: 10.1.0.0/16), `fe80::/10`.
fn net(word: &str) -> Option<Net> {
    let (address, bits) = match word.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (word, None),
    };
    if let Ok(address) = address.parse::<IpAddr>() {
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        let net = Net { address, bits };
        // As pcap: bits behind the mask are a mistake.
        return (bits <= all && net.masked() == address).then_some(net);
    }
    let mut octets = [0; 4];
    let given = address.split('.').collect::<Vec<_>>();
    if given.len() > 3 {
        return None;
    }
    for (octet, text) in octets.iter_mut().zip(&given) {
        *octet = text.parse().ok()?;
    }
    let net = Net { address: octets.into(), bits: bits.unwrap_or(8 * given.len() as u8) };
    (net.bits <= 32 && net.masked() == net.address).then_some(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: &str, b: &str) {
        let (a, b) = (a.parse::<Filter>().expect(a), b.parse::<Filter>().expect(b));
        assert_eq!(a, b);
    }

    #[test]
    fn it_groups_as_pcap_does() {
        same("tcp or udp and icmp", "(tcp or udp) and icmp");
        same("tcp and udp or icmp", "(tcp and udp) or icmp");
        same("not tcp or udp", "(not tcp) or udp");
        same("! tcp && ! (udp || arp)", "not tcp and not (udp or arp)");
        same("tcp port 80 or 443 and 8080", "(tcp port 80 or tcp port 443) and tcp port 8080");
        same("src host 10.0.0.1 or 10.0.0.2", "src 10.0.0.1 or src host 10.0.0.2");
        same("sap 4 or 6", "sap 4 or sap 6");
        same("net 10.1", "net 10.1.0.0/16");
        same("proto 0x11", "udp");
    }

    #[test]
    fn what_it_does_not_know_is_refused_in_a_line() {
        for (text, line) in [
            ("", "filter: what to look for is missing at the end"),
            ("tcp and", "filter: what to look for is missing at the end"),
            ("(tcp", "filter: `)` is missing at the end"),
            ("tcp udp", "filter: `udp` is not `and` or `or`"),
            ("tcp)", "filter: `)` is not `and` or `or`"),
            ("prot 6", "filter: `prot` is not a word of the filter language"),
            ("host example.org", "filter: `example.org` is not an IP address (no names here)"),
            ("net 10.0.0.1/8", "filter: `10.0.0.1/8` is not a network such as 10.1.0.0/16"),
            ("port 65536", "filter: `65536` is not a port, 0 to 65535"),
            ("port http", "filter: `http` is not a port, 0 to 65535"),
            ("priority 8", "filter: `8` is not a priority, 0 to 7"),
            ("sap 256", "filter: `256` is not a SAP, 0 to 255"),
            ("sap", "filter: a SAP, 0 to 255 is missing at the end"),
            ("arp port 1", "filter: `port` is not a word after this protocol"),
            ("ip port 1", "filter: `port` is not a word after this protocol"),
            ("icmp port 1", "filter: `port` is not a word after this protocol"),
        ] {
            assert_eq!(text.parse::<Filter>().expect_err(text).to_string(), line, "{text}");
        }
        for text in ["ip[0] & 1 = 0", "tcp & udp", "inbound", "len > 5", "ether gateway 1"] {
            let refused = text.parse::<Filter>().expect_err(text).to_string();
            assert!(
                refused.contains("is not understood here") && !refused.contains('\n'),
                "{text}: {refused}"
            );
        }
        assert_eq!("not ".repeat(501).parse::<Filter>(), Err(BadFilter::Long));
    }
}
