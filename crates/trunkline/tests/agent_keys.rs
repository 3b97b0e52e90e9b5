//! `trunkline agent` and `trunkline keys`: enrolment, revocation, refused keys and join strings, with one line at both
//! ends; socket activation; curl and OpenSSL.

#![cfg(feature = "agents")]
#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::command::{Ended, Running, TestDir, can, repository, signal, within};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Limit for anything that happens promptly.
const SOON: Duration = Duration::from_secs(60);

/// An experiment that needs the agent `lab7`.
const EXPERIMENT: &str =
    "connection { xmt = a; rcv = b; protocol = udp; test = cbr (period = 10 ms); duration = 100 ms; }";

/// A running agent. Its key store is the folder `NAME`, its log the file `NAME.log`.
struct Agent<'a> {
    dir: &'a TestDir,
    name: &'a str,
    address: SocketAddr,
    /// Lines of the log that [`Agent::line`] has returned.
    read: usize,
    running: Running,
}

impl<'a> Agent<'a> {
    fn start(dir: &'a TestDir, name: &'a str, more: &[&str]) -> Agent<'a> {
        let mut arguments = vec!["agent", "--keys", name];
        if !more.contains(&"--listen") {
            arguments.extend(["--listen", "127.0.0.1:0"]);
        }
        arguments.extend(more);
        Agent::start_command(dir, name, dir.trunkline(&arguments))
    }

    fn start_command(dir: &'a TestDir, name: &'a str, mut command: Command) -> Agent<'a> {
        let [out, err] = ["out", "log"].map(|kind| {
            let path = dir.path(&format!("{name}.{kind}"));
            let _ = fs::remove_file(&path);
            fs::File::create_new(path).unwrap()
        });
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        let running = Running::with(command, out, err);
        let mut agent = Agent { dir, name, address: ([0, 0, 0, 0], 0).into(), read: 0, running };
        // With a join string there is a line before.
        let line = loop {
            let line = agent.line();
            if line.starts_with("listening on ") {
                break line;
            }
        };
        agent.address = line.split(' ').nth(2).unwrap().parse().unwrap();
        agent
    }

    /// Returns the next line of the log, without the name of the program and the address of the client.
    fn line(&mut self) -> String {
        let mut next = None;
        within(SOON, "a line of the log", || {
            let text = fs::read_to_string(self.dir.path(&format!("{}.log", self.name))).unwrap();
            let complete = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
            next = complete.lines().nth(self.read).map(str::to_owned);
            next.is_some()
        });
        self.read += 1;
        let line = next.unwrap();
        let line = line.strip_prefix("trunkline: ").unwrap_or_else(|| panic!("{line}"));
        match line.split_once(": ") {
            Some((client, rest)) if client.parse::<SocketAddr>().is_ok() => rest.to_owned(),
            _ => line.to_owned(),
        }
    }

    /// Returns the join string that the agent has printed, its only output.
    fn printed(&self) -> String {
        let mut text = String::new();
        within(SOON, "a join string", || {
            text = fs::read_to_string(self.dir.path(&format!("{}.out", self.name))).unwrap();
            text.ends_with('\n')
        });
        assert_eq!(text.lines().count(), 1, "{text}");
        text.trim_end().to_owned()
    }

    /// Requests a join string from the running agent.
    fn join(&mut self) -> String {
        let ended = self.dir.execute(&["agent", "--join", "--keys", self.name]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        assert!(self.line().starts_with("issued a join string for "));
        ended.out.trim_end().to_owned()
    }

    fn stop(self) -> Ended {
        signal(self.running.id(), Signal::SIGTERM);
        self.running.end()
    }
}

/// Enrols the controller `controller` at the agent `lab7`.
fn add(dir: &TestDir, join: &str, controller: &str) -> Ended {
    dir.execute(&["keys", "add", "lab7", join, "--as", controller, "--keys", controller])
}

/// Runs an experiment with the agent `lab7`.
fn run(dir: &TestDir, controller: &str) -> Ended {
    dir.run(EXPERIMENT, &["--at", "a=agent:lab7", "--keys", controller])
}

/// Returns the entries of a key store.
fn list(dir: &TestDir, keys: &str) -> Vec<Value> {
    let ended = dir.execute(&["keys", "list", "--json", "--keys", keys]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the fingerprint of a key store's own key.
fn fingerprint(dir: &TestDir, keys: &str) -> String {
    let ended = dir.execute(&["keys", "show", "--keys", keys]);
    assert!(ended.status == 0 && ended.out.len() == 65, "{ended:?}");
    ended.out.trim_end().to_owned()
}

#[test]
fn a_controller_enrols_and_is_revoked() {
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    // The join string is on standard input, so it is in no history of a shell.
    dir.write("join", format!("{}\n", agent.printed()));
    let mut command = dir.trunkline(&["keys", "add", "lab7", "-", "--as", "alice", "--keys", "alice"]);
    command.stdin(fs::File::open(dir.path("join")).unwrap());
    let ended = dir.end(command);
    let version = env!("CARGO_PKG_VERSION");
    let address = agent.address;
    let added = format!(
        "added the agent `lab7` at {address} (trunkline {version}), which knows this controller as `alice`\n"
    );
    assert_eq!((ended.status, ended.out, ended.err.as_str()), (0, added, ""));
    let key = fingerprint(&dir, "alice");
    assert_eq!(agent.line(), format!("enrolled the controller `alice` with the key {key}"));

    let [at_agent, at_alice] = ["agent", "alice"].map(|keys| list(&dir, keys));
    for (entries, name, role, fingerprint) in
        [(&at_agent, "alice", "controller", &key), (&at_alice, "lab7", "agent", &fingerprint(&dir, "agent"))]
    {
        assert_eq!(entries.len(), 1);
        let fields =
            ["name", "role", "state", "fingerprint"].map(|field| entries[0][field].as_str().unwrap());
        assert_eq!(fields, [name, role, "active", fingerprint]);
    }
    assert_eq!(at_alice[0]["address"], address.to_string());
    let table = dir.execute(&["keys", "list", "--keys", "agent"]).out;
    assert!(table.starts_with("NAME ") && table.contains("\nalice  controller  active "), "{table}");

    let revoked = dir.execute(&["keys", "revoke", "alice", "--keys", "agent"]);
    assert_eq!((revoked.status, revoked.out), (0, format!("revoked `alice` with the key {key}\n")));
    assert_eq!(list(&dir, "agent")[0]["state"], "revoked");
    run(&dir, "alice").assert_line(1, "the agent refuses this key: it is unknown, revoked or expired there");
    assert_eq!(agent.line(), format!("refused the key {key}: it was revoked (`alice`)"));
    // The key stays revoked, whatever join string it has.
    dir.execute(&["keys", "revoke", "lab7", "--keys", "alice"]);
    let join = agent.join();
    add(&dir, &join, "alice").assert_line(2, "the key of `lab7` was revoked: generate a new key");
    fs::remove_file(dir.path("alice/peers.json")).unwrap();
    add(&dir, &join, "alice").assert_line(1, "refuses: the key of `alice` was revoked: generate a new key");
    let line = agent.line();
    assert!(line.starts_with(&format!("did not enrol `alice` with the key {key}: the key of")), "{line}");
    dir.execute(&["keys", "revoke", "bob", "--keys", "agent"]).assert_line(2, "no peer has the name `bob`");
}

#[test]
fn a_check_warns_of_unknown_agents() {
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    let experiment =
        EXPERIMENT.replace("xmt = a;", "xmt = a; xmtcntl = \"agent:lab7\"; rcvcntl = \"agent:lab8\";");
    dir.write("experiment.ns", experiment);
    let check = || {
        let ended = dir.execute(&["check", "experiment.ns", "--keys", "controller"]);
        assert!(ended.status == 0 && ended.out.contains("xmtcntl = \"agent:lab7\""), "{ended:?}");
        ended.err
    };
    let err = check();
    assert!(
        err.contains("warning: this machine has no key store, so no agent `lab7`\n --> experiment.ns:1:20"),
        "{err}"
    );
    assert!(err.contains("no agent `lab8`") && !dir.path("controller").exists(), "{err}");
    add(&dir, &agent.join(), "controller");
    let err = check();
    assert!(err.contains("warning: the key store has no agent `lab8`: add it with"), "{err}");
    assert!(!err.contains("no agent `lab7`"), "{err}");
}

#[test]
fn an_unknown_key_is_refused() {
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    assert_eq!(add(&dir, &agent.printed(), "alice").status, 0);
    agent.line();
    // Mallory has the address and the key of the agent, but no key that it trusts.
    let key = fingerprint(&dir, "mallory");
    fs::copy(dir.path("alice/peers.json"), dir.path("mallory/peers.json")).unwrap();
    run(&dir, "mallory").assert_line(1, "the agent refuses this key");
    assert_eq!(agent.line(), format!("refused the key {key}: it is unknown"));
}

#[test]
fn a_join_string_has_one_use() {
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    let first = agent.printed();
    // Issuing another makes the first one void.
    let join = agent.join();
    add(&dir, &first, "alice").assert_line(1, "the agent refuses this key: it is unknown");
    assert!(agent.line().ends_with(": it is unknown"));
    assert!(agent.line().ends_with(&format!("{}: it is unknown", fingerprint(&dir, "alice"))));
    assert_eq!(add(&dir, &join, "alice").status, 0);
    agent.line();
    add(&dir, &join, "bob").assert_line(1, "or the join string was used; the agent's log has the cause");
    assert!(agent.line().ends_with(": its join string was already used"));
    assert_eq!(list(&dir, "bob"), [] as [Value; 0]);
}

#[test]
fn an_expired_join_string_is_refused() {
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &["--join-lifetime", "1ms"]);
    let ended = add(&dir, &agent.printed(), "alice");
    ended.assert_line(1, "refuses the join string, which expired at ");
    assert!(ended.err.contains("; the clock of this host is "), "{}", ended.err);
    assert!(agent.line().ends_with(": its join string has expired"));
}

#[test]
fn damaged_input_is_found_before_a_connection() {
    let dir = TestDir::new();
    let agent = Agent::start(&dir, "agent", &[]);
    let join = agent.printed();
    for (text, line) in [
        (&join[..join.len() - 7], "the join string is incomplete or has a typing error: copy it again"),
        (&join.replace("join1", "join2"), "cannot read this join string: use the agent's version"),
        ("lab7:7600", "not a join string: one begins with `trunkline-join1.`"),
        ("", "not a join string"),
    ] {
        add(&dir, text, "alice").assert_line(2, line);
    }
    for arguments in [&["add", "la b", &join][..], &["add", "lab7", &join, "--as", "ä"], &["revoke", "/"]] {
        dir.execute(&[&["keys"], arguments].concat()).assert_line(2, "a name has 1 to 64 ASCII letters");
    }
    assert_eq!(add(&dir, &join, "alice").status, 0);
    assert_eq!(
        agent.stop().err.lines().count(),
        4,
        "issued, a warning about the loopback, listening and enrolled"
    );
}

#[test]
fn another_agent_at_the_address_is_found() {
    let dir = TestDir::new();
    let agent = Agent::start(&dir, "agent", &[]);
    let (join, address) = (agent.printed(), agent.address.to_string());
    assert_eq!(agent.stop().status, 0);
    let mut other = Agent::start(&dir, "other", &["--listen", &address, "--no-join"]);
    let [expected, actual] = ["agent", "other"].map(|keys| fingerprint(&dir, keys));
    let line = format!("the agent has the key {actual}, not {expected}: enrol again if its key was replaced");
    add(&dir, &join, "alice").assert_line(1, &line);
    assert!(other.line().starts_with("no TLS connection to the client: received fatal alert"));
    assert_eq!(other.stop().status, 0);
    add(&dir, &join, "alice").assert_line(1, "no connection to the agent: connection refused");
}

#[test]
fn the_agent_stops_with_a_signal() {
    let dir = TestDir::new();
    for how in [Signal::SIGINT, Signal::SIGTERM] {
        let agent = Agent::start(&dir, "agent", &["--no-join"]);
        dir.execute(&["agent", "--listen", "127.0.0.1:0", "--keys", "agent"])
            .assert_line(1, "an agent with the keys in agent is running already");
        dir.execute(&["agent", "--listen", &agent.address.to_string(), "--keys", "second"])
            .assert_line(1, "cannot listen on");
        signal(agent.running.id(), how);
        let ended = agent.running.end();
        assert_eq!((ended.status, ended.out.as_str()), (0, ""));
        dir.execute(&["agent", "--join", "--keys", "agent"])
            .assert_line(1, "no agent with the keys in agent is running");
    }
    dir.execute(&["agent", "--listen", "0.0.0.0:0", "--keys", "agent"])
        .assert_line(2, "is no address that a controller can connect to: give one with --address");
    dir.execute(&["agent", "--address", "lab7", "--keys", "agent"])
        .assert_line(2, "an address is a host name");
}

/// A controller reaches an agent by the address that the agent was given, and not by the one that it listens on.
#[test]
fn the_join_string_has_the_address_of_the_flag() {
    let dir = TestDir::new();
    let agent = Agent::start(&dir, "agent", &["--address", "no-such-host.invalid:7600"]);
    let ended = add(&dir, &agent.printed(), "alice");
    ended.assert_line(1, "no-such-host.invalid:7600: the host name cannot be resolved: ");
}

/// The shell passes a listening socket as systemd does: descriptor 3, and the variables of sd_listen_fds(3).
#[test]
fn systemd_can_pass_the_socket() {
    let dir = TestDir::new();
    let command = |script: &str, stdin: Stdio| {
        let mut command = dir.shell(script, &["agent", "--keys", "agent"]);
        command.stdin(stdin);
        command
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let mut agent = Agent::start_command(&dir, "agent", command(script, OwnedFd::from(listener).into()));
    assert_eq!(agent.address, address);
    assert_eq!(add(&dir, &agent.printed(), "alice").status, 0);
    assert!(agent.line().starts_with("enrolled the controller `alice`"));
    assert_eq!(agent.stop().status, 0);

    for (script, line) in [
        ("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3</dev/null", "systemd passed no listening TCP socket: "),
        ("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" 3<&-", "systemd passed no listening TCP socket: EBADF"),
        ("LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"", "systemd passed 2 sockets"),
    ] {
        dir.end(command(script, Stdio::null())).assert_line(1, line);
    }
}

/// Returns the output of a program in the folder of the test.
fn output(dir: &TestDir, program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).current_dir(dir.path(".")).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn curl_is_a_controller() {
    if !can(&["curl", "--version"]) {
        return;
    }
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    assert_eq!(add(&dir, &agent.printed(), "alice").status, 0);
    agent.line();
    dir.write("alice.pem", dir.execute(&["keys", "show", "--certificate", "--keys", "alice"]).out);
    let pin = list(&dir, "alice")[0]["pin"].as_str().unwrap().to_owned();
    let url = format!("https://{}/v1/agent", agent.address);
    let base = ["-sS", "--max-time", "60", "--insecure", &url];
    let with_key = ["--cert", "alice.pem", "--key", "alice/key.pem"];
    let curl = |more: &[&str]| output(&dir, "curl", &[&base[..], more].concat());

    let out = curl(&[&with_key[..], &["--pinnedpubkey", &pin]].concat());
    let expected = format!("{{\"version\":\"{}\",\"controller\":\"alice\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&out.stdout), expected, "{out:?}");

    // --insecure does not disable the check of the agent's key, before the request.
    let other = "sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let out = curl(&[&with_key[..], &["--pinnedpubkey", other]].concat());
    assert!(out.status.code() == Some(90) && out.stdout.is_empty(), "{out:?}");

    for (arguments, line) in [
        (vec!["--pinnedpubkey", &pin], "the client has no certificate".to_owned()),
        (vec!["--cert", "bob.pem", "--key", "bob/key.pem"], {
            dir.write("bob.pem", dir.execute(&["keys", "show", "--certificate", "--keys", "bob"]).out);
            format!("refused the key {}: it is unknown", fingerprint(&dir, "bob"))
        }),
    ] {
        let out = curl(&arguments);
        assert!(!out.status.success() && out.stdout.is_empty(), "{out:?}");
        assert_eq!(agent.line(), line);
    }
}

/// A caller without a key receives the certificate, which is in every handshake, and an alert.
#[test]
fn openssl_without_a_key_learns_nothing() {
    if !can(&["openssl", "version"]) {
        return;
    }
    let dir = TestDir::new();
    let mut agent = Agent::start(&dir, "agent", &[]);
    let script = "(printf 'GET /v1/agent HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'; sleep 2) | \
                  timeout 60 openssl s_client -quiet -connect \"$0\"";
    let out = output(&dir, "sh", &["-c", script, &agent.address.to_string()]);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.stdout.is_empty() && err.contains("alert certificate required"), "{out:?}");
    // The names in the certificate are the same for every agent.
    let subjects: Vec<&str> = err.lines().filter(|line| line.starts_with("depth=")).collect();
    assert!(!subjects.is_empty() && subjects.iter().all(|line| *line == "depth=0 CN = trunkline"), "{err}");
    assert_eq!(agent.line(), "the client has no certificate");
    for version in ["-tls1_2", "-tls1_1"] {
        let out = output(&dir, "openssl", &["s_client", version, "-connect", &agent.address.to_string()]);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("no peer certificate available"), "{text}");
    }
}

/// The units are valid and stay restricted.
#[test]
fn the_systemd_units_are_valid() {
    if !can(&["systemd-analyze", "--version"]) {
        return;
    }
    let dir = TestDir::new();
    let program = env!("CARGO_BIN_EXE_trunkline");
    for name in ["trunkline-agent.service", "trunkline-agent.socket"] {
        let text = fs::read_to_string(repository("packaging").join(name)).unwrap();
        // The man page is not installed here.
        let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        dir.write(name, text.replace("/usr/local/bin/trunkline", program));
    }
    let out =
        output(&dir, "systemd-analyze", &["verify", "./trunkline-agent.service", "./trunkline-agent.socket"]);
    assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
    let security = ["security", "--offline=true", "--threshold=20", "./trunkline-agent.service"];
    let out = output(&dir, "systemd-analyze", &security);
    assert!(out.status.success(), "an exposure above 2.0: {out:?}");
    let unit = fs::read_to_string(dir.path("trunkline-agent.service")).unwrap();
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let arguments = command.strip_prefix(program).unwrap().replace("%H", "lab7");
    let arguments: Vec<&str> = arguments.split_whitespace().chain(["--help"]).collect();
    assert_eq!(dir.execute(&arguments).status, 0);
}
