//! Whole runs: connections, programs and routers in a lab, beside the simulator.

use std::fs;
use std::process::{Command, Stdio};

use trunkline_experiment::{Source, parse};
use trunkline_lab::session::running;
use trunkline_lab::{Lab, LabBackend, Session};
use trunkline_record::Record;
use trunkline_run::{Backend, NoProgress, RunOptions, StopFlag};
use trunkline_sim::Sim;
use trunkline_units::Seed;

use crate::{HOLD, plan};

/// Runs an experiment on a backend; captures, received files and outputs of programs go to `out`.
pub fn run(backend: &mut dyn Backend, out: &std::path::Path, text: &str) -> Record {
    let parsed = parse(&Source { name: "lab", text, folder: None });
    let plan = parsed.plan.unwrap_or_else(|| panic!("{text}: {:?}", parsed.diagnostics));
    assert_eq!(backend.refuse(&plan), []);
    let options = RunOptions {
        seed: Seed(1996),
        text: text.into(),
        started_at: String::new(),
        folder: ".".into(),
        out: out.into(),
        stop: StopFlag::default(),
    };
    let mut record = backend.run(&plan, &options, &mut NoProgress);
    // How busy this machine is does not matter here.
    record.problems.retain(|problem| !problem.starts_with("packets were late"));
    record
}

/// The backend of tests, on which no test depends on what this machine carries.
pub fn lab() -> LabBackend {
    LabBackend { program: std::env::current_exe().unwrap(), trace: Vec::new(), overload: true }
}

/// What only the simulator applies is refused, and not left out.
pub fn what_only_the_simulator_applies_is_refused() {
    for (option, text) in [
        (
            "explicit_rate = erica",
            "a-s: no switch of the lab computes rates (`erica`); a controlling host does",
        ),
        ("admission = peak", ""),
        ("credits = 100", ""),
    ] {
        let network = "host a, b; switch s; link b - s (rate = 10 Mb/s, medium = atm); link a - s (rate = 10 Mb/s, medium = atm";
        let refusals = lab().refuse(&plan(&format!("{network}, {option});")));
        assert_eq!(
            refusals.iter().map(|refusal| refusal.text.as_str()).collect::<String>(),
            text,
            "{option}"
        );
    }
}

/// More packets than any machine carries are refused, unless the override is given; what waits for the links or for other
/// connections is not.
pub fn what_no_machine_carries_is_refused() {
    let network = |rate: &str| {
        format!("network {{ host a, b; switch s; link a - s (rate = {rate}); link s - b (rate = {rate}); }}")
    };
    let refusals = |network: &str, connections: &str, overload: bool| {
        let text = format!("experiment \"much\" {{ {network} {connections} }}");
        let plan =
            parse(&Source { name: "much", text: &text, folder: None }).plan.expect("a valid experiment");
        let lab = LabBackend { overload, ..lab() };
        lab.refuse(&plan).into_iter().map(|refusal| refusal.text).collect::<String>()
    };
    let full = "connection { xmt = a; rcv = b; protocol = tcp; test = full; duration = 1 s; }";
    let refused = refusals(&network("100 Gb/s"), full, false);
    assert!(
        refused.starts_with(
            "the connections ask the lab for about 15000000 packets/s, and this machine carries about "
        ),
        "{refused}"
    );
    assert!(refused.ends_with(": reduce rates, or run them anyway with --overload"), "{refused}");
    assert_eq!(refusals(&network("100 Gb/s"), full, true), "");
    assert_eq!(refusals(&network("1 Mb/s"), full, false), "");
    // Many that share a link carry no more than the link, and those one after the other no more than one of them.
    let many = |block: &str, protocol: &str| {
        let each =
            (0..100).map(|n| format!("connection c{n} {{ xmt = a; rcv = b; protocol = {protocol}; }}"));
        format!("{block} {{ {} }}", each.collect::<String>())
    };
    assert_eq!(
        refusals(&network("10 Mb/s"), &many("parallel", "tcp; test = full; duration = 1 s"), false),
        ""
    );
    let cbr = "udp; test = cbr (messagesize = 100, period = 200 us); duration = 1 s";
    assert_eq!(refusals(&network("100 Gb/s"), &many("serial", cbr), false), "");
    let refused = refusals(&network("100 Gb/s"), &many("parallel", &cbr.replace("200 us", "2 us")), false);
    assert!(refused.starts_with("the connections ask the lab for about 63000000 packets/s"), "{refused}");
}

/// A link with the same seed loses the same packets in both, and a router loses none.
pub fn a_lab_loses_what_the_simulator_loses() {
    let text = "experiment \"both\" { network {
            host a, b; host r (forward); link a - r (rate = 100 Mb/s, delay = 1 ms);
            link r - b (rate = 10 Mb/s, delay = 2 ms, loss = 0.1);
        }
        connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 500, period = 2 ms); messages = 500; }
    }";
    let folder = tempfile::tempdir().unwrap();
    let [sim, lab]: [Record; 2] =
        [run(&mut Sim::default(), folder.path(), text), run(&mut lab(), folder.path(), text)];
    assert_eq!(lab.problems, [""; 0]);
    let [s, l] = [&sim, &lab].map(|record| &record.connections[0]);
    assert_eq!(
        (l.messages_sent, l.lost, l.messages_received),
        (s.messages_sent, s.lost, s.messages_received)
    );
    assert!(l.lost > 20, "{}", l.lost);
    // Nothing arrives before it has been sent through both links.
    let [s, l] = [s, l].map(|x| x.delay_us.as_ref().unwrap().min);
    assert!(l >= s, "{l} us in the lab, {s} us in the simulator");
    let [s, l] = [&sim, &lab]
        .map(|record| record.links.iter().map(|link| (&link.name, link.lost_line)).collect::<Vec<_>>());
    assert_eq!(l, s);
    assert_eq!((sim.backend.as_str(), lab.backend.as_str()), ("sim", "lab"));
}

/// A router forwards what is for other hosts, and only that: the packets of a hub stay there.
pub fn a_router_on_a_hub_forwards_only_what_leaves_the_hub() {
    let text = "experiment \"hub\" { network {
            host a, b, c; host r, q (forward); hub h;
            link a - h; link b - h; link r - h; link q - h; link r - c (rate = 10 Mb/s);
        } serial {
            connection near { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 5 ms); messages = 50; }
            connection far { xmt = a; rcv = c; protocol = guaranteed; test = cbr (messagesize = 100, period = 5 ms); messages = 50; }
        } }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    assert_eq!(record.problems, [""; 0]);
    for c in &record.connections {
        assert_eq!((c.messages_received, c.lost, c.duplicated), (50, 0, 0), "{}", c.name);
    }
}

/// Routers forward groups of the plan to their members, as in the simulator.
pub fn routers_forward_groups() {
    let text = |ttl: u8| {
        format!(
            "experiment \"groups\" {{ network {{
                host a, b, c, d, e; host q, r (forward); switch s;
                link a - q (rate = 10 Mb/s); link q - s (rate = 10 Mb/s); link b - s (rate = 10 Mb/s);
                link s - r (rate = 10 Mb/s); link r - c (rate = 10 Mb/s); link r - d (rate = 10 Mb/s);
                link q - e (rate = 10 Mb/s);
            }}
            connection x {{ xmt = a; rcv = b, c; protocol = multicast (group = 239.1.1.1, ttl = {ttl}); test = cbr (messagesize = 500, period = 2 ms); messages = 200; }}
            connection y {{ xmt = c; rcv = a; protocol = multicast (group = 239.1.1.2, ttl = {ttl}); test = cbr (messagesize = 500, period = 2 ms); messages = 100; }}
            }}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let [sim, lab]: [Record; 2] =
        [run(&mut Sim::default(), folder.path(), &text(3)), run(&mut lab(), folder.path(), &text(3))];
    assert_eq!(lab.problems, [""; 0]);
    for (s, l) in sim.connections.iter().zip(&lab.connections) {
        assert_eq!((l.messages_received, l.lost, l.duplicated), (s.messages_received, 0, 0), "{}", l.name);
    }
    assert_eq!(lab.connections[0].messages_received, 400);
    // No host behind these links is a member.
    for name in ["r-d", "q-e"] {
        let link = lab.links.iter().find(|link| link.name == name).unwrap();
        assert!(link.ends.iter().all(|end| end.counts.last().unwrap().2 == 0), "{link:?}");
    }
    let parsed = parse(&Source { name: "lab", text: &text(2), folder: None });
    let refusals = self::lab().refuse(&parsed.plan.unwrap());
    assert_eq!(refusals[0].text, "x: with `ttl = 2` the kernel of the router `r` forwards nothing to c");
}

/// Programs know the names of the hosts; what they write is kept, and a failure of one is a failure of the run.
pub fn programs_run_on_their_hosts() {
    let text = |last: &str| {
        format!(
            "experiment \"programs\" {{ network {{
                host a (program = \"cat /etc/hosts; read -r line < /proc/net/route; echo $line\");
                host b (program = \"sleep 1000 & sleep 0.1; {last}\");
                link a - b (rate = 10 Mb/s);
            }} }}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), &text("exit 0"));
    assert_eq!((record.partial, record.problems), (false, Vec::new()));
    let output = fs::read_to_string(folder.path().join("a.txt")).unwrap();
    assert!(output.contains("10.0.0.2\tb\n") && output.contains("Iface"), "{output}");
    let record = run(&mut lab(), folder.path(), &text("echo it broke >&2; exit 3"));
    assert!(record.partial);
    assert_eq!(record.problems, ["host b: its program ended with exit status: 3: it broke"]);
}

/// A failure is reported also if the programs of other hosts still run when the connections have ended.
pub fn a_failed_program_is_reported_beside_one_that_runs() {
    let text = "experiment \"programs\" { network {
            host a (program = \"sleep 1000\"); host b (program = \"exit 3\"); link a - b (rate = 10 Mb/s);
        }
        connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 100, period = 10 ms); messages = 100; } }";
    let folder = tempfile::tempdir().unwrap();
    let record = run(&mut lab(), folder.path(), text);
    assert_eq!(record.problems, ["host b: its program ended with exit status: 3"]);
}

/// A host of a running lab can be entered by name from another process; a lab that was killed leaves nothing.
pub fn a_running_lab_is_entered_and_a_killed_one_is_forgotten() {
    let plan = plan("host a, b; link a - b (rate = 1 Mb/s);");
    let lab = Lab::start(&plan, Seed(1)).unwrap();
    let session = Session::start("first", &lab).unwrap();
    let names = fs::read_to_string(session.names()).unwrap();
    assert_eq!(
        names,
        "127.0.0.1\tlocalhost\n::1\tlocalhost\n10.0.0.1\ta\nfd00::1\ta\n10.0.0.2\tb\nfd00::2\tb\n"
    );
    let me = std::process::id();
    let of_this_process = || running().unwrap().into_iter().find(|lab| lab.pid == me);
    assert_eq!(of_this_process().unwrap().hosts.keys().collect::<Vec<_>>(), ["a", "b"]);
    // This program again, which holds a lab until it is killed.
    let mut other = Command::new(std::env::current_exe().unwrap());
    let folder = tempfile::tempdir().unwrap();
    other.arg(HOLD).current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut other = other.spawn().unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut line).unwrap();
    let pid = other.id();
    let find = || running().unwrap().into_iter().find(|lab| lab.pid == pid);
    assert_eq!(find().map(|lab| lab.name), Some("held".to_owned()));
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(find(), None);
    let folder = session.names().parent().unwrap().to_owned();
    drop(session);
    assert_eq!(of_this_process(), None);
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let of_them = |name: &&std::ffi::OsString| {
        [me, pid].iter().any(|pid| name.to_string_lossy().starts_with(&format!("{pid}.")))
    };
    assert_eq!(left.iter().filter(of_them).count(), 0, "{left:?}");
}

/// A kernel does not let UDP wait for its interface: what exceeds its queue is dropped, and counted.
pub fn what_a_host_cannot_send_is_counted() {
    let out = tempfile::tempdir().unwrap();
    let text = "experiment \"overload\" {
        network { host a, b; link a - b (rate = 100 Mb/s); }
        connection x { xmt = a; rcv = b; protocol = udp; test = cbr (messagesize = 60000, period = 1 ms); duration = 1 s; }
    }";
    let record = run(&mut lab(), out.path(), text);
    let host = record.hosts.iter().find(|host| host.name == "a").expect("a host");
    let x = &record.connections[0];
    assert!(x.lost > 0 && record.links[0].dropped_queue.unwrap_or_default() == 0, "{x:?}");
    assert!(host.interfaces["eth0.tx_dropped"] > 1000, "{:?}", host.interfaces);
}
