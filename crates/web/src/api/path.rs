//! From host to host, hop by hop, along the channels of ATM switches.
//!
//! Two kinds of text tell the way: of a port, `link` says what is at the other end of its line (`DEVICE port/NAME`, or only
//! `DEVICE`); of a channel or path of an incoming port, `cross` says as which channel or path it leaves
//! (`vc/PORT/VPI.VCI`, `vp/PORT/VPI`). A line may be told from one end only.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trunkline_counters::archive::Object;

use super::lists::words;
use super::{json, tables};
use crate::pool::Asked;
use crate::query::{Query, Refused};

/// Most switches on a way.
const MOST_HOPS: usize = 64;
/// Most ways that are followed.
const MOST_WAYS: usize = 256;

/// What devices say of their lines and crossings.
#[derive(Debug, Default)]
struct Net {
    /// What is at the other end of a port: a device, and its port where that is known.
    links: BTreeMap<(String, String), (String, Option<String>)>,
    crosses: BTreeMap<(String, Object), Object>,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Hop {
    device: String,
    #[serde(rename = "in")]
    enters: String,
    #[serde(rename = "out")]
    leaves: String,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Way {
    hops: Vec<Hop>,
    /// Where and why it ends before it is there.
    ends: Option<String>,
}

#[derive(Serialize)]
struct Ways {
    from: String,
    to: String,
    ways: Vec<Way>,
    more: bool,
}

/// Every channel that leads from one device to another; if there is none, those that lead away and end somewhere.
pub fn path(asked: &Asked<'_>, query: &Query) -> Result<Vec<u8>, Refused> {
    let (from, to) = (query.text("from")?, query.text("to")?);
    let devices: BTreeSet<String> = tables(asked)?.into_iter().map(|table| table.device).collect();
    let mut net = Net::default();
    for device in devices {
        asked.in_time()?;
        for text in words(asked, &device)? {
            net.learn(&device, &text.object, &text.key, &text.text);
        }
    }
    net.complete();
    if !net.knows(from) || !net.knows(to) {
        let who = if net.knows(from) { to } else { from };
        return Err(Refused::None(format!("no line is known to lead to `{who}`")));
    }
    let (mut ways, more) = net.ways(from, to);
    if ways.iter().any(|way| way.ends.is_none()) {
        ways.retain(|way| way.ends.is_none());
    }
    json(&Ways { from: from.into(), to: to.into(), ways, more })
}

impl Net {
    fn learn(&mut self, device: &str, object: &str, key: &str, text: &str) {
        match (key, object.parse::<Object>()) {
            ("link", Ok(Object::Port(port))) => {
                if let Some(end) = far_end(text) {
                    self.links.insert((device.into(), port), end);
                }
            }
            ("cross", Ok(from @ (Object::Channel { .. } | Object::Path { .. }))) => {
                if let Ok(to @ (Object::Channel { .. } | Object::Path { .. })) = text.parse() {
                    self.crosses.insert((device.into(), from), to);
                }
            }
            _ => {}
        }
    }

    /// A line has two ends, even if only one of them tells of it.
    fn complete(&mut self) {
        let there = |((a, port), (b, far)): (&(String, String), &(String, Option<String>))| {
            Some(((b.clone(), far.clone()?), (a.clone(), Some(port.clone()))))
        };
        let back: Vec<_> = self.links.iter().filter_map(there).collect();
        back.into_iter().for_each(|(end, near)| {
            self.links.entry(end).or_insert(near);
        });
    }

    fn knows(&self, device: &str) -> bool {
        self.links.iter().any(|((near, _), (far, _))| near == device || far == device)
    }

    /// Ports of other devices to which a device is linked.
    fn attached(&self, device: &str) -> BTreeSet<(String, String)> {
        let own = self.links.iter().filter(|((near, _), _)| near == device);
        let own = own.filter_map(|(_, (far, port))| Some((far.clone(), port.clone()?)));
        let theirs = self.links.iter().filter(|(_, (far, _))| far == device);
        own.chain(theirs.map(|((near, port), _)| (near.clone(), port.clone()))).collect()
    }

    fn ways(&self, from: &str, to: &str) -> (Vec<Way>, bool) {
        let mut ways = Vec::new();
        for (device, port) in self.attached(from) {
            if device == to {
                ways.push(Way { hops: Vec::new(), ends: None });
            }
            let starts = self.crosses.keys().filter(|(at, object)| *at == device && on(object, &port));
            for (_, object) in starts {
                if ways.len() == MOST_WAYS {
                    return (ways, true);
                }
                ways.push(self.follow(to, &device, object.clone()));
            }
        }
        (ways, false)
    }

    /// Follows one channel from the port at which it enters a device.
    fn follow(&self, to: &str, device: &str, object: Object) -> Way {
        let (mut hops, mut been) = (Vec::new(), BTreeSet::new());
        let (mut device, mut enters) = (device.to_owned(), object);
        let ends = loop {
            if !been.insert((device.clone(), enters.clone())) {
                break Some(format!("{device}: it comes by a second time"));
            }
            if hops.len() == MOST_HOPS {
                break Some(format!("{device}: more than {MOST_HOPS} switches"));
            }
            let Some(leaves) = self.cross(&device, &enters) else {
                break Some(format!("{device}: no cross-connection is known of {enters}"));
            };
            hops.push(Hop { device: device.clone(), enters: enters.to_string(), leaves: leaves.to_string() });
            let port = leaves.port().unwrap_or_default().to_owned();
            match self.links.get(&(device.clone(), port.clone())) {
                Some((far, _)) if far == to => break None,
                Some((far, Some(port))) => (device, enters) = (far.clone(), moved(&leaves, port)),
                Some((far, None)) => break Some(format!("{far}: at which of its ports is not known")),
                None => break Some(format!("{device}: what is at the other end of {port} is not known")),
            }
        };
        Way { hops, ends }
    }

    /// As what it leaves: a channel by a crossing of its own, or with the whole path that it lies in.
    fn cross(&self, device: &str, enters: &Object) -> Option<Object> {
        let own = self.crosses.get(&(device.to_owned(), enters.clone()));
        if let (None, Object::Channel { port, vpi, vci }) = (own, enters) {
            let path = Object::Path { port: port.clone(), vpi: *vpi };
            return match self.crosses.get(&(device.to_owned(), path))? {
                Object::Path { port, vpi } => {
                    Some(Object::Channel { port: port.clone(), vpi: *vpi, vci: *vci })
                }
                _ => None,
            };
        }
        own.cloned()
    }
}

/// `DEVICE port/NAME`, or only `DEVICE`.
fn far_end(text: &str) -> Option<(String, Option<String>)> {
    let end = match text.split_once(" port/") {
        None => (text, None),
        Some((device, port)) => match format!("port/{port}").parse() {
            Ok(Object::Port(port)) => (device, Some(port)),
            _ => return None,
        },
    };
    (!end.0.is_empty()).then(|| (end.0.to_owned(), end.1))
}

/// Whether a channel or path lies on a port.
fn on(object: &Object, port: &str) -> bool {
    object.port() == Some(port)
}

/// The same channel or path at the other end of its line.
fn moved(object: &Object, to: &str) -> Object {
    let port = to.to_owned();
    match object {
        Object::Channel { vpi, vci, .. } => Object::Channel { port, vpi: *vpi, vci: *vci },
        Object::Path { vpi, .. } => Object::Path { port, vpi: *vpi },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(texts: &[(&str, &str, &str, &str)]) -> Net {
        let mut net = Net::default();
        texts.iter().for_each(|(device, object, key, text)| net.learn(device, object, key, text));
        net.complete();
        net
    }

    fn hop(device: &str, enters: &str, leaves: &str) -> Hop {
        Hop { device: device.into(), enters: enters.into(), leaves: leaves.into() }
    }

    const LINES: [(&str, &str, &str, &str); 3] = [
        ("s1", "port/a", "link", "alice port/atm0"),
        ("s2", "port/x", "link", "s1 port/b"),
        ("s2", "port/y", "link", "bob"),
    ];

    #[test]
    fn a_channel_is_walked_to_its_end() {
        let mut all = LINES.to_vec();
        all.push(("s1", "vc/a/0.33", "cross", "vc/b/2.40"));
        all.push(("s2", "vp/x/2", "cross", "vp/y/7"));
        let net = net(&all);
        let hops = vec![hop("s1", "vc/a/0.33", "vc/b/2.40"), hop("s2", "vc/x/2.40", "vc/y/7.40")];
        assert_eq!(net.ways("alice", "bob"), (vec![Way { hops, ends: None }], false));
        assert!(net.knows("alice") && !net.knows("carol"));
    }

    #[test]
    fn where_it_ends_is_told() {
        let ways = |more: &[(&'static str, &'static str, &'static str, &'static str)]| {
            let all: Vec<_> = LINES.iter().chain(more).copied().collect();
            let (ways, _) = net(&all).ways("alice", "bob");
            ways.into_iter().map(|way| (way.hops.len(), way.ends.unwrap_or_default())).collect::<Vec<_>>()
        };
        assert_eq!(ways(&[]), []);
        let away = ("s1", "vc/a/0.33", "cross", "vc/b/0.33");
        assert_eq!(ways(&[away]), [(1, "s2: no cross-connection is known of vc/x/0.33".into())]);
        let lost = ("s1", "vc/a/0.33", "cross", "vc/c/0.33");
        assert_eq!(ways(&[lost]), [(1, "s1: what is at the other end of c is not known".into())]);
        let back = ("s2", "vc/x/0.33", "cross", "vc/x/0.34");
        let again = ("s1", "vc/b/0.34", "cross", "vc/b/0.33");
        assert_eq!(ways(&[away, back, again]), [(3, "s2: it comes by a second time".into())]);
    }

    #[test]
    fn what_is_no_line_and_no_crossing_is_left_out() {
        let odd = net(&[
            ("s", "port/a", "link", ""),
            ("s", "port/a", "link", " port/b"),
            ("s", "port/a", "link", "t port/b/c"),
            ("s", "vc/a/0.1", "cross", "port/b"),
            ("s", "port/a", "cross", "vc/a/0.1"),
            ("s", "vc/a/0.1", "link", "t"),
        ]);
        assert!(odd.links.is_empty() && odd.crosses.is_empty(), "{odd:?}");
    }
}
