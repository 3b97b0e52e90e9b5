//! Routes between hosts along the channels of ATM switches.
//!
//! Two kinds of text describe the topology. The text `link` of a port names the other end of its line (`DEVICE
//! port/NAME`, or only `DEVICE`). The text `cross` of a channel or path of an incoming port names the outgoing
//! channel or path (`vc/PORT/VPI.VCI`, `vp/PORT/VPI`). A line may be described at one end only.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use trunkline_counters::archive::Object;

use super::{json, tables_by_device};
use crate::query::{ApiError, Query};
use crate::readers::QueryContext;

/// Maximum number of switches of a route.
const MAX_HOPS: usize = 64;
/// Maximum number of routes.
const MAX_ROUTES: usize = 256;

/// The topology as the devices describe it.
#[derive(Debug, Default)]
struct Topology {
    /// The other end of each port: a device, and its port if known.
    links: BTreeMap<(String, String), (String, Option<String>)>,
    cross_connections: BTreeMap<(String, Object), Object>,
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
struct Route {
    hops: Vec<Hop>,
    /// Where and why the route ends before its destination.
    #[serde(rename = "ends")]
    end_reason: Option<String>,
}

#[derive(Serialize)]
struct Routes {
    from: String,
    to: String,
    #[serde(rename = "ways")]
    routes: Vec<Route>,
    more: bool,
}

/// Returns all channels from one device to another; if there are none, the channels that end elsewhere.
pub fn path(context: &QueryContext<'_>, query: &Query) -> Result<Vec<u8>, ApiError> {
    let (from, to) = (query.required("from")?, query.required("to")?);
    let mut topology = Topology::default();
    for device in tables_by_device(context)?.into_keys() {
        context.check_deadline()?;
        for text in context.reader.texts(&device)? {
            topology.add_text(&device, &text.object, &text.key, &text.text);
        }
    }
    topology.add_reverse_links();
    if !topology.contains(from) || !topology.contains(to) {
        let unknown = if topology.contains(from) { to } else { from };
        return Err(ApiError::NotFound(format!("no known line leads to `{unknown}`")));
    }
    let (mut routes, more) = topology.find_routes(from, to);
    if routes.iter().any(|route| route.end_reason.is_none()) {
        routes.retain(|route| route.end_reason.is_none());
    }
    json(&Routes { from: from.into(), to: to.into(), routes, more })
}

impl Topology {
    fn add_text(&mut self, device: &str, object: &str, key: &str, text: &str) {
        match (key, object.parse::<Object>()) {
            ("link", Ok(Object::Port(port))) => {
                if let Some(end) = parse_link(text) {
                    self.links.insert((device.into(), port), end);
                }
            }
            ("cross", Ok(from @ (Object::Channel { .. } | Object::Path { .. }))) => {
                if let Ok(to @ (Object::Channel { .. } | Object::Path { .. })) = text.parse() {
                    self.cross_connections.insert((device.into(), from), to);
                }
            }
            _ => {}
        }
    }

    /// Adds the reverse direction of lines that are described at one end only.
    fn add_reverse_links(&mut self) {
        let reverse = |((a, port), (b, far)): (&(String, String), &(String, Option<String>))| {
            Some(((b.clone(), far.clone()?), (a.clone(), Some(port.clone()))))
        };
        let back: Vec<_> = self.links.iter().filter_map(reverse).collect();
        back.into_iter().for_each(|(end, near)| {
            self.links.entry(end).or_insert(near);
        });
    }

    fn contains(&self, device: &str) -> bool {
        self.links.iter().any(|((near, _), (far, _))| near == device || far == device)
    }

    /// Returns the ports of other devices that a device is linked to.
    fn attached_ports(&self, device: &str) -> BTreeSet<(String, String)> {
        let entry = self.links.iter().filter(|((near, _), _)| near == device);
        let entry = entry.filter_map(|(_, (far, port))| Some((far.clone(), port.clone()?)));
        let theirs = self.links.iter().filter(|(_, (far, _))| far == device);
        entry.chain(theirs.map(|((near, port), _)| (near.clone(), port.clone()))).collect()
    }

    fn find_routes(&self, from: &str, to: &str) -> (Vec<Route>, bool) {
        let mut routes = Vec::new();
        for (device, port) in self.attached_ports(from) {
            if device == to {
                routes.push(Route { hops: Vec::new(), end_reason: None });
            }
            let starts = self
                .cross_connections
                .keys()
                .filter(|(at, object)| *at == device && object.port() == Some(&port));
            for (_, object) in starts {
                if routes.len() == MAX_ROUTES {
                    return (routes, true);
                }
                routes.push(self.follow(to, &device, object.clone()));
            }
        }
        (routes, false)
    }

    /// Follows a channel from the port where it enters a device.
    fn follow(&self, to: &str, device: &str, object: Object) -> Route {
        let (mut hops, mut visited) = (Vec::new(), BTreeSet::new());
        let (mut device, mut enters) = (device.to_owned(), object);
        let end_reason = loop {
            if !visited.insert((device.clone(), enters.clone())) {
                break Some(format!("{device}: the route contains a loop"));
            }
            if hops.len() == MAX_HOPS {
                break Some(format!("{device}: more than {MAX_HOPS} switches"));
            }
            let Some(leaves) = self.cross_connect(&device, &enters) else {
                break Some(format!("{device}: no cross-connection is known for {enters}"));
            };
            hops.push(Hop { device: device.clone(), enters: enters.to_string(), leaves: leaves.to_string() });
            let port = leaves.port().unwrap_or_default().to_owned();
            match self.links.get(&(device.clone(), port.clone())) {
                Some((far, _)) if far == to => break None,
                Some((far, Some(port))) => (device, enters) = (far.clone(), move_to_port(&leaves, port)),
                Some((far, None)) => break Some(format!("{far}: the port is unknown")),
                None => break Some(format!("{device}: the other end of {port} is unknown")),
            }
        };
        Route { hops, end_reason }
    }

    /// Returns the outgoing channel or path. A channel is cross-connected by its own entry or with its virtual path.
    fn cross_connect(&self, device: &str, enters: &Object) -> Option<Object> {
        let entry =
            |enters: &Object| self.cross_connections.get(&(device.to_owned(), enters.clone())).cloned();
        match (entry(enters), enters) {
            (None, Object::Channel { port, vpi, vci }) => {
                let path = entry(&Object::Path { port: port.clone(), vpi: *vpi })?;
                let Object::Path { port, vpi } = path else { return None };
                Some(Object::Channel { port, vpi, vci: *vci })
            }
            (leaves, _) => leaves,
        }
    }
}

/// Parses `DEVICE port/NAME`, or only `DEVICE`.
fn parse_link(text: &str) -> Option<(String, Option<String>)> {
    let end = match text.split_once(" port/") {
        None => (text, None),
        Some((device, port)) => match format!("port/{port}").parse() {
            Ok(Object::Port(port)) => (device, Some(port)),
            _ => return None,
        },
    };
    (!end.0.is_empty()).then(|| (end.0.to_owned(), end.1))
}

/// Returns the same channel or path at the other end of its line.
fn move_to_port(object: &Object, to: &str) -> Object {
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

    fn topology(texts: &[(&str, &str, &str, &str)]) -> Topology {
        let mut topology = Topology::default();
        texts.iter().for_each(|(device, object, key, text)| topology.add_text(device, object, key, text));
        topology.add_reverse_links();
        topology
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
    fn a_channel_is_followed_to_its_end() {
        let mut all = LINES.to_vec();
        all.push(("s1", "vc/a/0.33", "cross", "vc/b/2.40"));
        all.push(("s2", "vp/x/2", "cross", "vp/y/7"));
        let topology = topology(&all);
        let hops = vec![hop("s1", "vc/a/0.33", "vc/b/2.40"), hop("s2", "vc/x/2.40", "vc/y/7.40")];
        assert_eq!(topology.find_routes("alice", "bob"), (vec![Route { hops, end_reason: None }], false));
        assert!(topology.contains("alice") && !topology.contains("carol"));
    }

    #[test]
    fn the_end_of_a_route_is_reported() {
        let routes = |more: &[(&'static str, &'static str, &'static str, &'static str)]| {
            let all: Vec<_> = LINES.iter().chain(more).copied().collect();
            let (routes, _) = topology(&all).find_routes("alice", "bob");
            routes
                .into_iter()
                .map(|route| (route.hops.len(), route.end_reason.unwrap_or_default()))
                .collect::<Vec<_>>()
        };
        assert_eq!(routes(&[]), []);
        let away = ("s1", "vc/a/0.33", "cross", "vc/b/0.33");
        assert_eq!(routes(&[away]), [(1, "s2: no cross-connection is known for vc/x/0.33".into())]);
        let lost = ("s1", "vc/a/0.33", "cross", "vc/c/0.33");
        assert_eq!(routes(&[lost]), [(1, "s1: the other end of c is unknown".into())]);
        let back = ("s2", "vc/x/0.33", "cross", "vc/x/0.34");
        let again = ("s1", "vc/b/0.34", "cross", "vc/b/0.33");
        assert_eq!(routes(&[away, back, again]), [(3, "s2: the route contains a loop".into())]);
    }

    #[test]
    fn invalid_links_and_cross_connections_are_ignored() {
        let odd = topology(&[
            ("s", "port/a", "link", ""),
            ("s", "port/a", "link", " port/b"),
            ("s", "port/a", "link", "t port/b/c"),
            ("s", "vc/a/0.1", "cross", "port/b"),
            ("s", "port/a", "cross", "vc/a/0.1"),
            ("s", "vc/a/0.1", "link", "t"),
        ]);
        assert!(odd.links.is_empty() && odd.cross_connections.is_empty(), "{odd:?}");
    }
}
