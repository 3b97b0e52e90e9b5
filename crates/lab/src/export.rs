//! The topology of a plan for containerlab.

use std::fmt::Write as _;

use trunkline_experiment::plan::{Link, Network, Node, NodeKind};

/// Returns the nodes and links of a network as a topology file of containerlab: hosts are Linux containers of `image`, and
/// switches and hubs are bridges. What containerlab cannot say is a comment: the rates, delays and losses of links, which its command
/// `tools netem set` sets on a running topology.
pub fn containerlab(name: &str, network: &Network, image: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let mut text = format!("name: {}\ntopology:\n  nodes:\n", quoted(&name));
    for node in &network.nodes {
        let _ = writeln!(text, "    {}:", quoted(&node.name));
        match &node.kind {
            NodeKind::Host(host) => {
                let _ = writeln!(text, "      kind: linux\n      image: {}", quoted(image));
                if host.forward {
                    text.push_str("      sysctls:\n        net.ipv4.ip_forward: 1\n");
                }
                if let Some(program) = &host.program {
                    let _ = writeln!(text, "      exec:\n        - {}", quoted(program));
                }
            }
            NodeKind::Converter { .. } => {
                let _ = writeln!(text, "      kind: linux\n      image: {}", quoted(image));
            }
            NodeKind::Switch { .. } | NodeKind::Hub { .. } | NodeKind::Ring { .. } => {
                text.push_str("      kind: bridge\n");
            }
        }
    }
    text.push_str("  links:\n");
    for link in &network.links {
        let ends = [&link.a, &link.b].map(|node| {
            let number = interface(network, node, link);
            let is_host = network.nodes.iter().any(|n| n.name == *node && is_container(n));
            // `eth0` of a container is its management interface.
            let interface = if is_host { format!("eth{}", number + 1) } else { format!("{node}-{number}") };
            quoted(&format!("{node}:{interface}"))
        });
        let _ = writeln!(text, "    # {}", properties(link));
        let _ = writeln!(text, "    - endpoints: [{}, {}]", ends[0], ends[1]);
        let _ = writeln!(text, "      mtu: {}", link.mtu.as_bytes());
    }
    text
}

fn is_container(node: &Node) -> bool {
    matches!(node.kind, NodeKind::Host(_) | NodeKind::Converter { .. })
}

/// Returns the number of a link among those of a node.
fn interface(network: &Network, node: &str, link: &Link) -> usize {
    let links = network.links.iter().filter(|other| other.a == node || other.b == node);
    links.take_while(|other| other.name != link.name).count()
}

fn properties(link: &Link) -> String {
    let mut text = format!("{}: {}, {} one way", link.name, link.rate, link.delay);
    for (name, share) in [("loss", link.loss), ("corruption", link.corrupt)] {
        if share > 0.0 {
            let _ = write!(text, ", {name} {share}");
        }
    }
    text
}

/// Returns a text as a double-quoted scalar of YAML, which has the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
