//! `trunkline run --on lab` and `trunkline lab`: networks of real kernels, which are gone when the command ends.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::command::{Ended, Running, TestDir, can, children, connection, is_gone, signal, within};

/// Two hosts behind a switch, one of them with a program.
const NETWORK: &str = "network {
    host screen; host server (program = \"echo serving; exec sleep 1000\"); switch s;
    link screen - s (rate = 10 Mb/s, delay = 2 ms); link s - server (rate = 10 Mb/s);
}";

fn experiment() -> String {
    format!(
        "experiment \"beside\" {{ {NETWORK} connection x {{
            xmt = screen; rcv = server; protocol = udp; test = cbr (messagesize = 400, period = 2 ms); messages = 200;
        }} }}"
    )
}

/// Whether this user may make a lab here.
fn has_labs() -> bool {
    can(&["unshare", "--net", "test", "-w", "/dev/net/tun"])
}

/// A folder whose labs no other test sees.
fn with_runtime(mut command: Command, dir: &TestDir) -> Command {
    command.env("XDG_RUNTIME_DIR", dir.path("."));
    command
}

fn execute(dir: &TestDir, arguments: &[&str]) -> Ended {
    dir.end(with_runtime(dir.trunkline(arguments), dir))
}

/// Opens a lab and waits until others can enter it.
fn open(dir: &TestDir) -> Running {
    dir.write("experiment.ns", format!("experiment \"open\" {{ {NETWORK} }}"));
    let mut lab = with_runtime(dir.trunkline(&["lab", "experiment.ns", "--out", "out"]), dir);
    lab.env_remove("SHELL");
    let lab = Running::start(lab);
    let is_listed = || execute(dir, &["lab", "list"]).out.starts_with("open (process ");
    within(Duration::from_secs(60), "a lab", is_listed);
    // The program of its host, too.
    let is_serving =
        || std::fs::read_to_string(dir.path("out/lab/server.txt")).is_ok_and(|t| t == "serving\n");
    within(Duration::from_secs(60), "a program", is_serving);
    lab
}

#[test]
fn a_run_has_the_results_of_both_backends() {
    if !has_labs() {
        return;
    }
    let dir = TestDir::new();
    dir.write("experiment.ns", experiment());
    let arguments = ["run", "experiment.ns", "--on", "sim,lab", "--out", "out", "--no-archive"];
    let ended = execute(&dir, &arguments);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let read = |backend: &str| -> serde_json::Value {
        let text = std::fs::read(dir.path(&format!("out/{backend}/record.json"))).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    for backend in ["sim", "lab"] {
        let record = read(backend);
        assert_eq!(record["backend"], backend);
        let x = connection(&record, "x");
        assert_eq!((&x["messages_sent"], &x["lost"]), (&200.into(), &0.into()), "{backend}");
        // Nothing passes the link sooner than its delay.
        assert!(x["delay_us"]["min"].as_f64().unwrap() >= 2000.0, "{backend}: {}", x["delay_us"]);
    }
    assert!(read("lab")["environment"]["emulator_late"].is_string());
    assert_eq!(std::fs::read_to_string(dir.path("out/lab/server.txt")).unwrap(), "serving\n");
    assert_eq!(execute(&dir, &["lab", "list"]).out, "");
}

#[test]
fn a_host_is_entered_with_its_names_and_its_status_is_that_of_the_command() {
    if !has_labs() {
        return;
    }
    let dir = TestDir::new();
    let lab = open(&dir);
    let enter = |command: &str| execute(&dir, &["lab", "enter", "screen", "--", "sh", "-c", command]);
    let ended = enter("cat /etc/hosts /proc/net/dev; getent ahosts server; echo $TRUNKLINE_HOST; exit 7");
    assert_eq!((ended.status, ended.err.as_str()), (7, ""));
    for text in ["10.0.0.2\tserver\n", "fd00::2\tserver\n", " eth0:", "\nscreen\n"] {
        assert!(ended.out.contains(text), "{text:?} in {}", ended.out);
    }
    // Programs that take either family prefer IPv4.
    let first = |address: &str| ended.out.find(&format!("\n{address} ")).expect("both addresses");
    assert!(first("10.0.0.2") < first("fd00::2"), "{}", ended.out);
    assert!(!std::fs::read_to_string("/etc/hosts").unwrap().contains("10.0.0.2\tserver"));
    execute(&dir, &["lab", "enter", "nobody", "--", "true"]).assert_line(2, "no running lab");
    execute(&dir, &["lab", "enter", "screen", "--lab", "other", "--", "true"])
        .assert_line(2, "no running lab");
    execute(&dir, &["lab", "enter", "screen", "--", "/no/program"]).assert_line(1, "cannot run /no/program");
    signal(lab.id(), Signal::SIGINT);
    assert_eq!(lab.end().status, 0);
}

#[test]
fn an_interrupt_completes_captures() {
    if !has_labs() || !can(&["tshark", "--version"]) {
        return;
    }
    let dir = TestDir::new();
    dir.write("experiment.ns", format!("experiment \"captured\" {{ {NETWORK} }}"));
    let refused = execute(&dir, &["lab", "experiment.ns", "--trace", "screen-s:server"]);
    refused.assert_line(2, "`server` is no end of the link");
    let arguments = ["lab", "experiment.ns", "--out", "out", "--capture", "screen-s:screen,server"];
    let lab = Running::start(with_runtime(dir.trunkline(&arguments), &dir));
    let ping = ["lab", "enter", "screen", "--", "ping", "-q", "-c", "3", "-i", "0.01", "server"];
    within(Duration::from_secs(60), "a lab", || execute(&dir, &ping).status == 0);
    signal(lab.id(), Signal::SIGINT);
    assert_eq!(lab.end().status, 0);
    for (name, packets) in [("screen-s_screen", 3), ("server", 6)] {
        let file = dir.path(&format!("out/lab/{name}.pcapng"));
        let mut tshark = Command::new("tshark");
        let output = tshark.arg("-r").arg(file).args(["-Y", "icmp"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // All of the last three pings; there may have been others while the lab opened.
        assert!(output.status.success() && text.lines().count() >= packets, "{name}: {text}");
        assert_eq!(text.lines().count() % packets, 0, "{name}: {text}");
    }
}

#[test]
fn an_interrupt_removes_everything() {
    if !has_labs() {
        return;
    }
    let dir = TestDir::new();
    let lab = open(&dir);
    let programs = children(lab.id());
    // The one of the host, and the init of its namespace.
    assert_eq!(programs.len(), 2);
    signal(lab.id(), Signal::SIGINT);
    let ended = lab.end();
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(
        ended.out.contains("10.0.0.1     screen\n") && ended.out.contains("10.0.0.2     server\n"),
        "{ended:?}"
    );
    assert!(programs.iter().all(|program| is_gone(*program)));
    assert_eq!(execute(&dir, &["lab", "list"]).out, "");
    assert_eq!(std::fs::read_dir(dir.path("trunkline-labs")).unwrap().count(), 0);
}

/// What runs on the hosts of a lab ends with it: its programs, and a shell that was entered, with what they have started.
#[test]
fn a_killed_lab_takes_its_processes_along() {
    if !has_labs() {
        return;
    }
    let dir = TestDir::new();
    let lab = open(&dir);
    let programs = children(lab.id());
    let script = "echo $$ > entered; sleep 1000 & exec sleep 1000";
    let entered = with_runtime(dir.trunkline(&["lab", "enter", "screen", "--", "sh", "-c", script]), &dir);
    let entered = Running::start(entered);
    within(Duration::from_secs(60), "a shell", || dir.path("entered").exists());
    signal(lab.id(), Signal::SIGKILL);
    // As a shell reports SIGKILL.
    assert_eq!(entered.end().status, 128 + 9);
    within(Duration::from_secs(60), "their end", || programs.iter().all(|program| is_gone(*program)));
    assert_eq!(execute(&dir, &["lab", "list"]).out, "");
    assert_eq!(std::fs::read_dir(dir.path("trunkline-labs")).unwrap().count(), 0);
}

/// Needs no namespaces.
#[test]
fn an_exported_topology_has_the_nodes_and_links() {
    let dir = TestDir::new();
    dir.write("experiment.ns", experiment());
    let ended = dir.execute(&["lab", "export", "experiment.ns"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    if !can(&["python3", "-c", "import yaml"]) {
        return;
    }
    dir.write("topology.yml", &ended.out);
    let script = "import json, yaml; print(json.dumps(yaml.safe_load(open('topology.yml'))))";
    let mut python = Command::new("python3");
    let output = python.args(["-c", script]).current_dir(dir.path(".")).output().unwrap();
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["name"], "beside");
    let nodes = &read["topology"]["nodes"];
    assert_eq!((&nodes["screen"]["kind"], &nodes["s"]["kind"]), (&"linux".into(), &"bridge".into()));
    let line = "sh -c '(echo serving; exec sleep 1000\n) > /program.txt 2>&1 &'";
    assert_eq!(nodes["server"]["exec"], serde_json::json!([line]));
    let endpoints = |link: usize| read["topology"]["links"][link]["endpoints"].clone();
    assert_eq!(endpoints(0), serde_json::json!(["screen:eth1", "s:s-0"]));
    assert_eq!(endpoints(1), serde_json::json!(["s:s-1", "server:eth1"]));
}
