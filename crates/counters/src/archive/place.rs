//! Names of series: which port, channel, host or flow of a device, which way, and what is counted.
//!
//! ```text
//! port/eth0/in/octets            vp/atm0/3/out/cells        vc/atm0/0.33/in/cells
//! host/delay                     agent/uptime               flow/10.0.0.1:5001 > 10.0.0.2:80 tcp/out/packets
//! ```
//!
//! A name may hold any text of a device: `/`, `%` and control characters stand as `%` and two hexadecimal digits an octet.
//! Names of another shape are series all the same; they are of no known object.

use std::fmt::{self, Write};
use std::str::FromStr;

/// A part of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// Who answers for the device: its SNMP agent.
    Agent,
    /// The device as one that is pinged.
    Host,
    /// A port, by its name; numbers of ports change when a device starts anew.
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
    /// Who speaks with whom.
    Flow(String),
    /// A connection of an experiment.
    Connection(String),
    /// Anything else that was asked for.
    Other(String),
}

/// Which way, as the device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Into it.
    In,
    /// Out of it.
    Out,
}

impl Direction {
    /// The other one.
    pub fn reverse(self) -> Direction {
        match self {
            Direction::In => Direction::Out,
            Direction::Out => Direction::In,
        }
    }
}

/// What a series is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Of which part of its device.
    pub object: Object,
    /// Which way; none: neither, as the speed of a port.
    pub direction: Option<Direction>,
    /// What: `octets`, `packets`, `discards`, `cells`, `delay`.
    pub quantity: String,
}

/// A text that is no name of a [`Place`] or [`Object`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a part of a device")]
pub struct NoPlace;

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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.object)?;
        if let Some(direction) = self.direction {
            write!(f, "{direction}/")?;
        }
        write!(f, "{}", Escaped(&self.quantity))
    }
}

impl FromStr for Object {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Object, NoPlace> {
        match Object::begin(&text.split('/').collect::<Vec<_>>())? {
            (object, []) => Ok(object),
            _ => Err(NoPlace),
        }
    }
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Place, NoPlace> {
        let parts: Vec<&str> = text.split('/').collect();
        let (object, rest) = Object::begin(&parts)?;
        let (direction, quantity) = match rest {
            [quantity] => (None, quantity),
            ["in", quantity] => (Some(Direction::In), quantity),
            ["out", quantity] => (Some(Direction::Out), quantity),
            _ => return Err(NoPlace),
        };
        Ok(Place { object, direction, quantity: plain(quantity)? })
    }
}

impl Object {
    /// The object that parts of a name begin with, and the parts behind it.
    fn begin<'a, 'b>(parts: &'a [&'b str]) -> Result<(Object, &'a [&'b str]), NoPlace> {
        Ok(match parts {
            ["agent", rest @ ..] => (Object::Agent, rest),
            ["host", rest @ ..] => (Object::Host, rest),
            ["port", name, rest @ ..] => (Object::Port(plain(name)?), rest),
            ["vp", port, vpi, rest @ ..] => (Object::Path { port: plain(port)?, vpi: number(vpi)? }, rest),
            ["vc", port, channel, rest @ ..] => {
                let (vpi, vci) = channel.split_once('.').ok_or(NoPlace)?;
                (Object::Channel { port: plain(port)?, vpi: number(vpi)?, vci: number(vci)? }, rest)
            }
            ["flow", name, rest @ ..] => (Object::Flow(plain(name)?), rest),
            ["connection", name, rest @ ..] => (Object::Connection(plain(name)?), rest),
            ["other", name, rest @ ..] => (Object::Other(plain(name)?), rest),
            _ => return Err(NoPlace),
        })
    }

    /// The port that it is or lies on.
    pub fn port(&self) -> Option<&str> {
        match self {
            Object::Port(port) | Object::Path { port, .. } | Object::Channel { port, .. } => Some(port),
            _ => None,
        }
    }
}

/// A text whose separators and control characters are escaped.
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

/// A number as it is written: in no other way.
fn number(text: &str) -> Result<u16, NoPlace> {
    text.parse().ok().filter(|n: &u16| n.to_string() == text).ok_or(NoPlace)
}

/// What an escaped text stands for; only as [`Escaped`] writes it, so that a place has one name.
fn plain(text: &str) -> Result<String, NoPlace> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let digits = [rest.next().ok_or(NoPlace)?, rest.next().ok_or(NoPlace)?];
                let digits = str::from_utf8(&digits).map_err(|_| NoPlace)?;
                u8::from_str_radix(digits, 16).map_err(|_| NoPlace)?
            }
            octet => octet,
        });
    }
    let plain = String::from_utf8(octets).map_err(|_| NoPlace)?;
    if Escaped(&plain).to_string() == text { Ok(plain) } else { Err(NoPlace) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_as_the_table_says() {
        let port = |name: &str| Object::Port(name.into());
        let place =
            |object, direction, quantity: &str| Place { object, direction, quantity: quantity.into() };
        for (there, name) in [
            (place(port("eth0"), Some(Direction::In), "octets"), "port/eth0/in/octets"),
            (place(port("Gi0/1"), None, "speed"), "port/Gi0%2F1/speed"),
            (
                place(Object::Path { port: "a".into(), vpi: 3 }, Some(Direction::Out), "cells"),
                "vp/a/3/out/cells",
            ),
            (
                place(Object::Channel { port: "a".into(), vpi: 0, vci: 33 }, Some(Direction::In), "cells"),
                "vc/a/0.33/in/cells",
            ),
            (place(Object::Host, None, "delay"), "host/delay"),
            (place(port("a\n%ü"), None, "x"), "port/a%0A%25ü/x"),
        ] {
            assert_eq!((there.to_string().as_str(), name.parse()), (name, Ok(there)));
        }
        for name in
            ["", "port", "port/eth0", "port/eth0/in/a/b", "vc/a/0/in/cells", "vp/a/+3/x", "x/y", "port/%2f/x"]
        {
            assert_eq!(name.parse::<Place>(), Err(NoPlace), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_name_tells_its_place(name in any::<String>(), quantity in any::<String>(), way in 0..3, kind in 0..6, n: (u16, u16)) {
            let object = match kind {
                0 => Object::Port(name),
                1 => Object::Path { port: name, vpi: n.0 },
                2 => Object::Channel { port: name, vpi: n.0, vci: n.1 },
                3 => Object::Flow(name),
                4 => Object::Agent,
                _ => Object::Other(name),
            };
            let direction = [None, Some(Direction::In), Some(Direction::Out)][way as usize];
            let place = Place { object, direction, quantity };
            prop_assert_eq!(place.to_string().parse(), Ok(place.clone()));
            prop_assert_eq!(place.object.to_string().parse(), Ok(place.object));
        }

        #[test]
        fn a_place_has_one_name(text in "(port|vc|other|agent)(/[a-c%/.0-9]{0,6}){1,3}") {
            if let Ok(place) = text.parse::<Place>() {
                prop_assert_eq!(place.to_string(), text);
            }
        }
    }
}
