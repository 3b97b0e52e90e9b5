//! `dscp = EF`: the differentiated services code point of the packets of a connection (RFC 2474).

use super::Context;
use super::options::plain;
use super::quantity::single;
use crate::diagnostic::{Diagnostic, nearest};
use crate::parse::shorten;
use crate::plan::Protocol;
use crate::tree::Value;

/// Names of code points: class selectors (RFC 2474), assured forwarding (RFC 2597), expedited forwarding (RFC 3246),
/// `VA` (voice admit, RFC 5865) and `LE` (lower effort, RFC 8622).
const NAMES: &[(&str, u8)] = &[
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

/// Returns the name of a code point, or its number if it has none.
pub fn dscp_text(dscp: u8) -> String {
    let name = NAMES.iter().find(|(_, number)| *number == dscp);
    name.map_or_else(|| dscp.to_string(), |(name, _)| (*name).to_owned())
}

/// Returns the code point of a name or number, as the language has it: `EF`, `46`.
pub fn dscp_of(text: &str) -> Option<u8> {
    let name = NAMES.iter().find(|(name, _)| *name == text);
    name.map(|(_, number)| *number).or_else(|| text.parse().ok().filter(|number| *number < 64))
}

/// Reads a name of a code point, or its number, 0 to 63.
pub(crate) fn dscp(cx: &mut Context<'_>, value: &Value) -> Option<u8> {
    let expected = "a DSCP, such as `EF` or `46`";
    let part = single(cx, value, expected)?;
    let written = plain(cx, part, expected)?;
    let dscp = dscp_of(written);
    if dscp.is_none() {
        let error = Diagnostic::error(value.location, format!("`{}` is no DSCP", shorten(written)));
        let error = error.label("expected a name such as `EF`, or a number from 0 to 63");
        let meant = nearest(written, NAMES.iter().map(|(name, _)| *name));
        cx.report(match meant {
            Some(name) => error.help(format!("did you mean `{name}`?")),
            None => error,
        });
    }
    dscp
}

/// Returns why the packets of a protocol cannot have a DSCP, and what was expected.
pub(crate) fn conflict(dscp: Option<u8>, protocol: &Protocol) -> Option<(String, String)> {
    let has_none = matches!(protocol, Protocol::Llc { .. } | Protocol::Bundle { .. });
    (dscp.is_some() && has_none).then(|| {
        let message = format!("the packets of `{}` have no DSCP of a connection", protocol.name());
        (message, "expected `dscp` only with `tcp`, `udp`, `multicast` or `guaranteed`".to_owned())
    })
}
