//! Connections over `llc` that share a station: a host has one, with one number and service access points by theirs.

use std::collections::BTreeMap;

use super::Context;
use crate::diagnostic::Diagnostic;
use crate::parse::shorten;
use crate::plan::{Connection, Protocol};

/// A station's number is an octet; 0 means none and 255 all stations (IEEE 802.2, as in AirNET).
const STATIONS: usize = 254;

/// What a service access point is by its options: all but the priority, which each message has.
fn point(protocol: &Protocol) -> Option<(u8, Protocol)> {
    let Protocol::Llc { sap, .. } = protocol else { return None };
    let mut point = protocol.clone();
    if let Protocol::Llc { priority, .. } = &mut point {
        *priority = 0;
    }
    Some((*sap, point))
}

/// Checks the connections over `llc` against each other.
pub(crate) fn check(cx: &mut Context<'_>, connections: &[Connection]) {
    let mut points: BTreeMap<(&str, u8), (&Connection, Protocol)> = BTreeMap::new();
    let mut hosts: Vec<&str> = Vec::new();
    let mut first: Option<(&Connection, bool)> = None;
    for c in connections {
        let (Some((sap, point)), Protocol::Llc { token, .. }) = (point(&c.protocol), &c.protocol) else {
            continue;
        };
        let &mut (before, with) = first.get_or_insert((c, *token));
        if with != *token {
            let message = "some stations would wait for a token and others not";
            let error = Diagnostic::error(c.protocol_location, message);
            let error = error.label("expected the same `token` in every connection over `llc`");
            cx.report(error.with(before.protocol_location, "the first is here"));
            return;
        }
        for host in c.ends().map(|end| end.host.as_str()) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
            let (other, known) = points.entry((host, sap)).or_insert((c, point.clone()));
            if *known != point {
                let message = format!("SAP {sap} of `{}` has other options already", shorten(host));
                let error = Diagnostic::error(c.protocol_location, message);
                let error = error.label("expected the same, but for the priority, or another `sap`");
                cx.report(error.with(other.protocol_location, "it was described here"));
                break;
            }
        }
        if hosts.len() > STATIONS {
            let error =
                Diagnostic::error(c.protocol_location, "there are more stations than numbers for them");
            cx.report(error.label(format!("expected at most {STATIONS} hosts with `llc`")));
            return;
        }
    }
}
