//! Paths of this machine's Linux in temporary network namespaces: a client, a router and a server, each on a thread
//! in a separate namespace.

use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use trunkline_arq::Options;
use trunkline_arq::socket::{Connection, Listener};

const INSIDE: &str = "TRUNKLINE_INSIDE_NAMESPACE";

/// Whether this is the process inside the namespace. If not, runs the test `name` there, or says why it cannot.
fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let can = |flags: &str| {
        let tried = Command::new("unshare").args([flags, "ip", "link", "add", "type", "veth"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let Some(flags) = ["-n", "-Urn"].into_iter().find(|flags| can(flags)) else {
        trunkline_io::must::skip("no network namespace, or no ip");
        return false;
    };
    let mut process = Command::new("unshare");
    let name = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    process.arg(flags).arg(std::env::current_exe().unwrap()).args([&name, "--exact", "--nocapture"]);
    let output = process.env(INSIDE, "1").output().unwrap();
    let (said, trouble) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{trouble}");
    assert!(said.contains("1 passed"), "the test did not run inside:\n{said}");
    false
}

/// A line of `sh`, in the network of the thread that calls.
fn sh(line: &str) {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Synchronises the threads step by step.
struct Step(Sender<String>, Receiver<String>);

impl Step {
    fn send(&self, what: &str) {
        self.0.send(what.into()).unwrap();
    }

    fn receive(&self) -> String {
        self.1.recv_timeout(Duration::from_secs(300)).unwrap()
    }
}

/// Runs `work` on a thread in a separate namespace, whose interface `name` leads to the router.
fn host(name: &'static str, work: impl FnOnce(&Step) + Send + 'static) -> (thread::JoinHandle<()>, Step) {
    let ((to_router, from_host), (to_host, from_router)) = (channel(), channel());
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let step = Step(to_router, from_router);
        step.send(&format!("/proc/{}/ns/net", gettid()));
        step.receive();
        let own = if name == "c" { 1 } else { 2 };
        sh(&format!(
            "ip link set lo up; ip addr add 10.77.{own}.2/24 dev {name}
             ip link set {name} mtu 9000 up; ip route add default via 10.77.{own}.1"
        ));
        step.send("up");
        work(&step);
    });
    (thread, Step(to_host, from_host))
}

fn options() -> Options {
    Options { probe_up_to: Some(8972), ..Options::default() }
}

#[test]
fn a_smaller_mtu_behind_a_router_loses_no_message() {
    if !inside("a_smaller_mtu_behind_a_router_loses_no_message") {
        return;
    }
    let message = |number: u32| -> Vec<u8> { (0..100_000).map(|at| (at * 7 + number) as u8).collect() };
    let (server, at_server) = host("s", move |router| {
        let listener = Listener::bind("10.77.2.2:7000", &options()).unwrap();
        router.send("listens");
        let client = listener.accept().unwrap();
        for number in 0..60 {
            assert!(*client.recv(0).unwrap() == message(number), "message {number}");
        }
        client.close().unwrap();
    });
    let (client, at_client) = host("c", move |router| {
        router.receive();
        let server = Connection::connect("10.77.2.2:7000", &options()).unwrap();
        while server.path_mtu().unwrap().max_frame < 8972 {
            let _ = server.recv_timeout(0, Duration::from_millis(10));
        }
        (0..20).for_each(|number| server.send(0, &message(number)).unwrap());
        router.send("grown");
        router.receive();
        (20..60).for_each(|number| server.send(0, &message(number)).unwrap());
        server.flush().unwrap();
        let path_mtu = server.path_mtu().unwrap();
        assert_eq!((path_mtu.max_frame, path_mtu.reductions), (1200, 1), "{path_mtu:?}");
        server.close().unwrap();
    });
    for (step, end, own) in [(&at_server, "s", 2), (&at_client, "c", 1)] {
        let network = step.receive();
        sh(&format!(
            "ip link add r{end} type veth peer name {end}; ip link set {end} netns {network}
             ip addr add 10.77.{own}.1/24 dev r{end}; ip link set r{end} mtu 9000 up"
        ));
        step.send("there it is");
        assert_eq!(step.receive(), "up");
    }
    sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    assert_eq!(at_server.receive(), "listens");
    at_client.send("go");
    assert_eq!(at_client.receive(), "grown");
    sh("ip link set rs mtu 1500");
    at_client.send("now");
    client.join().unwrap();
    server.join().unwrap();
}
