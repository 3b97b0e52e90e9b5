//! Packets per second through one emulated link, beside a bare veth pair.

use std::process::{Child, Command, Stdio};

use trunkline_lab::Namespace;

use crate::{Outcome, ends, iperf3, lateness, run, start};

/// Bytes of a datagram: small, so that packets count and not bytes.
const LENGTH: &str = "100";

/// Datagrams that arrive in a second, if they are sent as fast as possible.
pub fn packets() -> Outcome<()> {
    println!("\npath             sent/s    received/s");
    let lab = start("host a, b; link a - b (rate = 10 Gb/s);")?;
    let (a, b) = ends(&lab)?;
    let rates = flood(b.command("iperf3"), &|| a.command("iperf3"), &b.address.to_string())?;
    let report = lab.finish().map_err(|error| error.to_string())?;
    println!("emulated link  {:8.0}  {:12.0}   {}", rates[0], rates[1], lateness(&report));
    let [a, b] =
        [Namespace::new(), Namespace::new()].map(|namespace| namespace.map_err(|error| error.to_string()));
    let (a, b) = (a?, b?);
    let holder = Holder::start(&b)?;
    let script = format!(
        "ip link add veth0 type veth peer name veth1 netns {} && ip address add 10.0.0.1/24 dev veth0 && ip link set veth0 up",
        holder.0.id()
    );
    run(a.command("sh").args(["-ec", &script]))?;
    run(b.command("sh").args(["-ec", "ip address add 10.0.0.2/24 dev veth1 && ip link set veth1 up"]))?;
    let rates = flood(b.command("iperf3"), &|| a.command("iperf3"), "10.0.0.2")?;
    println!("bare veth pair {:8.0}  {:12.0}", rates[0], rates[1]);
    Ok(())
}

fn flood(server: Command, client: &dyn Fn() -> Command, address: &str) -> Outcome<[f64; 2]> {
    let json = iperf3(server, client, &["-u", "-b", "0", "-l", LENGTH, "-t", "3", "-c", address])?;
    let sum = &json["end"]["sum"];
    let field = |name: &str| sum[name].as_f64().unwrap_or_default();
    let (packets, seconds) = (field("packets"), field("seconds"));
    Ok([packets / seconds, (packets - field("lost_packets")) / seconds])
}

/// A process that only is in a namespace, so that `ip` can name it.
pub struct Holder(pub Child);

impl Holder {
    pub fn start(namespace: &Namespace) -> Outcome<Holder> {
        let mut command = namespace.command("sleep");
        let child = command.arg("1000").stdin(Stdio::null()).spawn();
        child.map(Holder).map_err(|error| format!("sleep: {error}"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
