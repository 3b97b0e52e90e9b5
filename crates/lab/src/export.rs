//! The topology of a plan for containerlab.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use trunkline_experiment::plan::{Link, Network, Node, NodeKind};

/// Longest name of an interface or a bridge of Linux, bytes.
const MAX_INTERFACE: usize = 15;

/// Returns the nodes and links of a network as a topology file of containerlab: hosts are Linux containers of `image`, and
/// switches and hubs are bridges. What containerlab cannot say is a comment: the rates, delays and losses of links, which its command
/// `tools netem set` sets on a running topology.
pub fn containerlab(name: &str, network: &Network, image: &str) -> String {
    let names = node_names(network);
    let interfaces = interface_names(network, &names);
    let mut text = format!("name: {}\ntopology:\n  nodes:\n", quoted(&valid(name).to_ascii_lowercase()));
    for node in &network.nodes {
        let name = &names[node.name.as_str()];
        if *name != node.name {
            let _ = writeln!(text, "    # {}", node.name);
        }
        let _ = writeln!(text, "    {}:", quoted(name));
        match &node.kind {
            NodeKind::Host(host) => {
                let _ = writeln!(text, "      kind: linux\n      image: {}", quoted(image));
                if host.forward {
                    text.push_str("      sysctls:\n        net.ipv4.ip_forward: 1\n");
                }
                if let Some(program) = &host.program {
                    let _ = writeln!(text, "      exec:\n        - {}", quoted(&command(program)));
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
    for (number, link) in network.links.iter().enumerate() {
        let ends = [&link.a, &link.b].map(|node| {
            let interface = &interfaces[&(number, node.as_str())];
            quoted(&format!("{}:{interface}", names[node.as_str()]))
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

/// Returns the name of each node: its own if containerlab accepts it. A bridge is an interface of the machine, whose names are
/// short.
fn node_names(network: &Network) -> BTreeMap<&str, String> {
    let mut used = BTreeSet::new();
    let name =
        |node: &Node, longest: usize, used: &mut BTreeSet<String>| unique(&valid(&node.name), longest, used);
    let (containers, bridges): (Vec<_>, Vec<_>) = network.nodes.iter().partition(|node| is_container(node));
    let bridges = bridges.into_iter().map(|node| (node, MAX_INTERFACE));
    let all = bridges.chain(containers.into_iter().map(|node| (node, usize::MAX)));
    all.map(|(node, longest)| (node.name.as_str(), name(node, longest, &mut used))).collect()
}

/// Returns the interface of each end of each link, by the number of the link and the node. `eth0` of a container is its
/// management interface; those of bridges are interfaces of the machine.
fn interface_names<'n>(
    network: &'n Network,
    names: &BTreeMap<&str, String>,
) -> BTreeMap<(usize, &'n str), String> {
    let mut used: BTreeSet<String> = names.values().cloned().collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut interfaces = BTreeMap::new();
    for (number, link) in network.links.iter().enumerate() {
        for node in [&link.a, &link.b] {
            let count = counts.entry(node).or_default();
            let is_host = network.nodes.iter().any(|n| n.name == *node && is_container(n));
            let interface = match is_host {
                true => format!("eth{}", *count + 1),
                false => unique(&format!("{}-{count}", names[node.as_str()]), MAX_INTERFACE, &mut used),
            };
            *count += 1;
            interfaces.insert((number, node.as_str()), interface);
        }
    }
    interfaces
}

/// Returns a name that begins with a letter or a digit and has only these, `-`, `.` and `_`.
fn valid(name: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let name: String = name.chars().map(|c| if is_valid(c) { c } else { '-' }).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "lab".to_owned() } else { name.to_owned() }
}

/// Returns an ASCII name of at most `longest` bytes that is not in use: a number replaces the end of one that is too long or in
/// use.
fn unique(name: &str, longest: usize, used: &mut BTreeSet<String>) -> String {
    let shortened = |number: usize| {
        let end = format!("_{number}");
        format!("{}{end}", &name[..name.len().min(longest - end.len())])
    };
    let unchanged = (name.len() <= longest).then(|| name.to_owned());
    let mut candidates = unchanged.into_iter().chain((1..).map(shortened));
    let name = candidates.find(|name| !used.contains(name)).expect("there are infinitely many numbers");
    used.insert(name.clone());
    name
}

/// Returns the line of `exec` that starts a program of a host. Such lines have no shell and must end, so a shell starts it in the
/// background; what it writes is in `/program.txt`. containerlab replaces variables and templates in the file before, in which
/// `$$` is a dollar sign.
fn command(program: &str) -> String {
    let script = format!("({program}\n) > /program.txt 2>&1 &");
    let words = format!("sh -c '{}'", script.replace('\'', r"'\''"));
    words.replace('$', "$$").replace("{{", r#"{{ "{{" }}"#)
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

#[cfg(test)]
mod tests {
    use trunkline_experiment::{Source, parse};

    use super::*;

    fn exported(network: &str) -> String {
        let text = format!(
            "experiment \"An office\" {{ network {{ {network} }} connection {{ xmt = a; rcv = b; protocol = udp; test = full; duration = 1 s; }} }}"
        );
        let parsed = parse(&Source { name: "x", text: &text, folder: None });
        let plan = parsed.plan.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics));
        containerlab(&plan.name, plan.network.as_ref().expect("the experiment has a network"), "alpine:3")
    }

    #[test]
    fn names_of_bridges_and_their_interfaces_are_short_and_differ() {
        let text = exported(
            "host a, b; switch a-switch-with-a-long-name-1, a-switch-with-a-long-name-2;
             link a - a-switch-with-a-long-name-1 (rate = 1 Mb/s);
             link a-switch-with-a-long-name-1 - a-switch-with-a-long-name-2 (rate = 1 Mb/s);
             link a-switch-with-a-long-name-2 - b (rate = 1 Mb/s);",
        );
        let lines: Vec<&str> =
            text.lines().filter(|line| line.contains("endpoints")).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                r#"- endpoints: ["a:eth1", "a-switch-with_1:a-switch-with_3"]"#,
                r#"- endpoints: ["a-switch-with_1:a-switch-with_4", "a-switch-with_2:a-switch-with_5"]"#,
                r#"- endpoints: ["a-switch-with_2:a-switch-with_6", "b:eth1"]"#,
            ]
        );
        assert!(
            text.contains(
                "    # a-switch-with-a-long-name-2\n    \"a-switch-with_2\":\n      kind: bridge\n"
            ),
            "{text}"
        );
        assert!(text.starts_with("name: \"an-office\"\n"), "{text}");
    }

    #[test]
    fn a_program_has_a_shell_and_is_left_as_it_is() {
        let line = command("x='$HOME'; echo $x && iperf3 -s > {{a}} # the server");
        let expected = r#"sh -c '(x='\''$$HOME'\''; echo $$x && iperf3 -s > {{ "{{" }}a}} # the server
) > /program.txt 2>&1 &'"#;
        assert_eq!(line, expected);
    }
}
