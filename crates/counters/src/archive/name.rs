//! Names of series: a part of a device, a direction and a quantity.
//!
//! ```text
//! port/eth0/in/octets            vp/atm0/3/out/cells        vc/atm0/0.33/in/cells
//! host/delay                     agent/uptime               flow/10.0.0.1:5001 > 10.0.0.2:80 tcp/out/packets
//! ```
//!
//! Names can contain any text of a device: `/`, `%` and control characters are percent-encoded. Names of another form
//! are valid series without a known object.

use std::fmt::{self, Write};
use std::str::FromStr;

/// A part of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The SNMP agent of the device.
    Agent,
    /// The device as the target of a ping.
    Host,
    /// A port, by name. Port numbers may change when a device restarts.
    Port(String),
    /// An ATM virtual path of a port.
    Path {
        /// The port's name.
        port: String,
        /// VPI.
        vpi: u16,
    },
    /// An ATM virtual channel of a port.
    Channel {
        /// The port's name.
        port: String,
        /// VPI.
        vpi: u16,
        /// VCI.
        vci: u16,
    },
    /// A flow of packets, by its addresses and ports.
    Flow(String),
    /// A connection of an experiment.
    Connection(String),
    /// Any other polled object.
    Other(String),
}

/// The direction, seen from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Into the device.
    In,
    /// Out of the device.
    Out,
}

/// The parsed name of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesName {
    /// The part of the device.
    pub object: Object,
    /// The direction; `None` for quantities without one, such as the speed of a port.
    pub direction: Option<Direction>,
    /// The quantity: `octets`, `packets`, `discards`, `cells`, `delay`.
    pub quantity: String,
}

/// The text is not the name of a series or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a series or an object")]
pub struct InvalidName;

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Agent => f.write_str("agent"),
            Object::Host => f.write_str("host"),
            Object::Port(name) => write!(f, "port/{}", Escaped(name)),
            Object::Path { port, vpi } => write!(f, "vp/{}/{vpi}", Escaped(port)),
            Object::Channel { port, vpi, vci } => write!(f, "vc/{}/{vpi}.{vci}", Escaped(port)),
            Object::Flow(name) => write!(f, "flow/{}", Escaped(name)),
            Object::Connection(name) => write!(f, "connection/{}", Escaped(name)),
            Object::Other(name) => write!(f, "other/{}", Escaped(name)),
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::In => "in",
            Direction::Out => "out",
        })
    }
}

impl fmt::Display for SeriesName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.object)?;
        if let Some(direction) = self.direction {
            write!(f, "{direction}/")?;
        }
        write!(f, "{}", Escaped(&self.quantity))
    }
}

impl FromStr for Object {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Object, InvalidName> {
        match Object::split_prefix(&text.split('/').collect::<Vec<_>>())? {
            (object, []) => Ok(object),
            _ => Err(InvalidName),
        }
    }
}

impl FromStr for SeriesName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<SeriesName, InvalidName> {
        let parts: Vec<&str> = text.split('/').collect();
        let (object, rest) = Object::split_prefix(&parts)?;
        let (direction, quantity) = match rest {
            [quantity] => (None, quantity),
            ["in", quantity] => (Some(Direction::In), quantity),
            ["out", quantity] => (Some(Direction::Out), quantity),
            _ => return Err(InvalidName),
        };
        Ok(SeriesName { object, direction, quantity: unescape(quantity)? })
    }
}

impl Object {
    /// Parses the object at the beginning of a name and returns the remaining parts.
    fn split_prefix<'a, 'b>(parts: &'a [&'b str]) -> Result<(Object, &'a [&'b str]), InvalidName> {
        Ok(match parts {
            ["agent", rest @ ..] => (Object::Agent, rest),
            ["host", rest @ ..] => (Object::Host, rest),
            ["port", name, rest @ ..] => (Object::Port(unescape(name)?), rest),
            ["vp", port, vpi, rest @ ..] => {
                (Object::Path { port: unescape(port)?, vpi: parse_number(vpi)? }, rest)
            }
            ["vc", port, channel, rest @ ..] => {
                let (vpi, vci) = channel.split_once('.').ok_or(InvalidName)?;
                (
                    Object::Channel {
                        port: unescape(port)?,
                        vpi: parse_number(vpi)?,
                        vci: parse_number(vci)?,
                    },
                    rest,
                )
            }
            ["flow", name, rest @ ..] => (Object::Flow(unescape(name)?), rest),
            ["connection", name, rest @ ..] => (Object::Connection(unescape(name)?), rest),
            ["other", name, rest @ ..] => (Object::Other(unescape(name)?), rest),
            _ => return Err(InvalidName),
        })
    }

    /// Returns the port of the object, if any.
    pub fn port(&self) -> Option<&str> {
        match self {
            Object::Port(port) | Object::Path { port, .. } | Object::Channel { port, .. } => Some(port),
            _ => None,
        }
    }
}

/// Prints a text with percent-encoded separators and control characters.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c == '/' || c == '%' || c.is_control() {
                let mut octets = [0; 4];
                c.encode_utf8(&mut octets).bytes().try_for_each(|octet| write!(f, "%{octet:02X}"))?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Parses a number in its canonical form.
fn parse_number(text: &str) -> Result<u16, InvalidName> {
    text.parse().ok().filter(|n: &u16| n.to_string() == text).ok_or(InvalidName)
}

/// Decodes a percent-encoded text. Accepts only the canonical encoding, so that every object has one name.
fn unescape(text: &str) -> Result<String, InvalidName> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let digits = [rest.next().ok_or(InvalidName)?, rest.next().ok_or(InvalidName)?];
                let digits = str::from_utf8(&digits).map_err(|_| InvalidName)?;
                u8::from_str_radix(digits, 16).map_err(|_| InvalidName)?
            }
            octet => octet,
        });
    }
    let plain = String::from_utf8(octets).map_err(|_| InvalidName)?;
    if Escaped(&plain).to_string() == text { Ok(plain) } else { Err(InvalidName) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        let port = |name: &str| Object::Port(name.into());
        let name =
            |object, direction, quantity: &str| SeriesName { object, direction, quantity: quantity.into() };
        for (parsed, name) in [
            (name(port("eth0"), Some(Direction::In), "octets"), "port/eth0/in/octets"),
            (name(port("Gi0/1"), None, "speed"), "port/Gi0%2F1/speed"),
            (
                name(Object::Path { port: "a".into(), vpi: 3 }, Some(Direction::Out), "cells"),
                "vp/a/3/out/cells",
            ),
            (
                name(Object::Channel { port: "a".into(), vpi: 0, vci: 33 }, Some(Direction::In), "cells"),
                "vc/a/0.33/in/cells",
            ),
            (name(Object::Host, None, "delay"), "host/delay"),
            (name(port("a\n%ü"), None, "x"), "port/a%0A%25ü/x"),
        ] {
            assert_eq!((parsed.to_string().as_str(), name.parse()), (name, Ok(parsed)));
        }
        for name in
            ["", "port", "port/eth0", "port/eth0/in/a/b", "vc/a/0/in/cells", "vp/a/+3/x", "x/y", "port/%2f/x"]
        {
            assert_eq!(name.parse::<SeriesName>(), Err(InvalidName), "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_round_trips(name in any::<String>(), quantity in any::<String>(), direction_index in 0..3, kind in 0..6, n: (u16, u16)) {
            let object = match kind {
                0 => Object::Port(name),
                1 => Object::Path { port: name, vpi: n.0 },
                2 => Object::Channel { port: name, vpi: n.0, vci: n.1 },
                3 => Object::Flow(name),
                4 => Object::Agent,
                _ => Object::Other(name),
            };
            let direction = [None, Some(Direction::In), Some(Direction::Out)][direction_index as usize];
            let name = SeriesName { object, direction, quantity };
            prop_assert_eq!(name.to_string().parse(), Ok(name.clone()));
            prop_assert_eq!(name.object.to_string().parse(), Ok(name.object));
        }

        #[test]
        fn every_name_has_one_spelling(text in "(port|vc|other|agent)(/[a-c%/.0-9]{0,6}){1,3}") {
            if let Ok(name) = text.parse::<SeriesName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
