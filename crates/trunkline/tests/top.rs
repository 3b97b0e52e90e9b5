//! `trunkline top` with files, a real interface, and keys on a terminal.

#![allow(clippy::disallowed_methods, reason = "these tests watch a program that runs in real time")]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command::{Running, TestDir, can, within};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use trunkline_io::packet::{Options, PacketSocket};

/// Longer than any step on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A simulated run whose link carries 200 datagrams of 100 bytes, captured.
fn simulated(dir: &TestDir) {
    let text = "experiment { network { host a, b; link a - b (rate = 10 Mb/s, delay = 1 ms); }
                connection u { xmt = a; rcv = b; protocol = udp; messages = 200;
                               test = cbr (messagesize = 100, period = 20 ms); } }";
    let ended = dir.run(text, &["--on", "sim", "--trace", "a-b"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
}

/// The objects that `--json` printed.
fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

fn row<'a>(object: &'a Value, table: &str, name: &str) -> &'a Value {
    let rows = object[table]["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {}", object[table]))
}

#[test]
fn a_simulated_run_is_shown() {
    let dir = TestDir::new();
    simulated(&dir);
    let ended = dir.execute(&["top", "out", "--json", "--record", "load.csv"]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let objects = objects(&ended.out);
    let (end, samples) = objects.split_last().unwrap();
    assert_eq!(end["end"], true);
    // 200 datagrams, one every 20 ms: 50 a second, for four seconds; 14 + 20 + 8 octets of headers.
    assert_eq!(end["total"], serde_json::json!({ "packets": 200, "bytes": 200 * 142 }));
    let packets: Vec<u64> = samples.iter().map(|s| s["packets"].as_u64().unwrap()).collect();
    assert_eq!(packets, [50, 50, 50, 50]);
    assert_eq!(samples[1]["bits_per_s"], 50.0 * 142.0 * 8.0);
    assert_eq!(row(end, "stations", "10.0.0.1")["packets"], 200);
    assert_eq!(end["connections"]["count"], 1);
    let csv = fs::read_to_string(dir.path("load.csv")).unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|h| *h == name).unwrap();
    let rows: Vec<_> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == head.len()));
    let totals: Vec<&str> = rows.iter().map(|row| row[column("total_packets")]).collect();
    assert_eq!(totals, ["50", "100", "150", "200"]);

    let ended = dir.execute(&[
        "top",
        "out",
        "--plain",
        "--write",
        "kept.pcapng",
        "--events",
        "10",
        "udp",
        "port",
        "5001",
    ]);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(ended.out.contains("total 200 packets, 28.4 kB"), "{}", ended.out);
    assert!(ended.out.contains("udp 10.0.0.1:49152 - 10.0.0.2:5001"), "{}", ended.out);
    let again = dir.execute(&["top", "kept.pcapng", "--json"]);
    assert_eq!(objects_end(&again.out)["total"]["packets"], 10);
    dir.write("filter", "# what is not there\nhost 10.9.9.9\n  or host 10.9.9.8\n");
    let none = dir.execute(&["top", "out", "--json", "@filter"]);
    assert_eq!(objects_end(&none.out)["total"]["packets"], 0);
}

fn objects_end(text: &str) -> Value {
    objects(text).pop().expect("an object")
}

#[test]
fn errors_are_one_line() {
    let dir = TestDir::new();
    dir.write("file", "no capture at all");
    dir.execute(&["top", "nowhere0"]).assert_line(2, "`nowhere0` is neither an interface nor a file");
    dir.execute(&["top", "file"]).assert_line(1, "file: neither pcap nor pcapng");
    dir.execute(&["top", "."]).assert_line(2, "no captures in");
    dir.execute(&["top", "lo", "tcp", "prot", "80"]).assert_line(2, "filter: `prot` is not `and` or `or`");
    dir.write("web", "# only the web\ntcp and (port 80\n  or prot 443)\n");
    dir.execute(&["top", "lo", "@web"]).assert_line(2, "filter: `prot` is not a word");
    dir.execute(&["top", "lo", "@nowhere"]).assert_line(2, "nowhere: No such file");
    dir.execute(&["top", "lo", "host", "example.org"]).assert_line(2, "no names here");
    dir.execute(&["top", "lo", "--write", "file"]).assert_line(2, "file already exists");
    let deprived = ["setpriv", "--inh-caps=-net_raw", "--bounding-set=-net_raw"];
    if can(&[&deprived[..], &["true"]].concat()) {
        let mut command = Command::new(deprived[0]);
        command.args(&deprived[1..]).args([env!("CARGO_BIN_EXE_trunkline"), "top", "lo", "--duration", "1s"]);
        command.stdin(Stdio::null());
        dir.end(command).assert_line(1, "needs the right to open packet sockets (CAP_NET_RAW)");
    }
}

/// Creates a pair of interfaces without other traffic.
const PAIR: &str = r#"
for kind in all default; do echo 1 >/proc/sys/net/ipv6/conf/$kind/disable_ipv6; done
ip link add left type veth peer name right
ip link set left up; ip link set right up
# What is sent before that is lost.
for try in $(seq 500); do [ $(ip link show up | grep -c 'state UP') = 2 ] && break; sleep 0.02; done
"#;

/// Runs `top` on one interface of a pair while sending through the other.
const WATCH: &str = r#"
"$@" &
monitor=$!
until grep -Eq ' 0003 +[0-9]+ +1 ' /proc/net/packet; do kill -0 $monitor; sleep 0.05; done
python3 send.py left
kill -INT $monitor
wait $monitor
"#;

/// Sends known frames, one per line: priority, destination, source, SAPs, control, length.
const SEND: &str = r#"
import socket, struct, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind((sys.argv[1], 0))
mac = lambda n: bytes([255] * 6) if n == 255 else bytes([2, 0, 0, 0, 0, n])
def llc(priority, source, ssap, destination, dsap, control, size):
    pdu = bytes([dsap, ssap, control]) + bytes(size)
    tag = struct.pack(">HH", 0x8100, priority << 13)
    out.send((mac(destination) + mac(source) + tag + struct.pack(">H", len(pdu)) + pdu).ljust(64, b"\0"))
for n in range(300):
    llc(5, 1, 4, 2, 6, 0x03, 100)
for n in range(100):
    llc(7, 1, 8, 3, 8, 0x67 if n % 2 == 0 else 0xE7, 50)
    if n % 10 == 0:
        llc(7, 1, 8, 3, 8, 0x67 if n % 2 == 0 else 0xE7, 50)
    if n < 90:
        llc(7, 3, 9, 1, 8, 0xE7 if n % 2 == 0 else 0x67, 1)
udp = struct.pack(">HHHH", 5000, 6000, 8 + 20, 0) + bytes(20)
ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
for n in range(500):
    out.send((mac(2) + mac(1) + b"\x08\x00" + ip + udp).ljust(60, b"\0"))
"#;

#[test]
fn every_frame_of_an_interface_is_counted() {
    if !can(&["unshare", "-n", "ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]) {
        return;
    }
    let dir = TestDir::new();
    dir.write("send.py", SEND);
    let watch = ["top", "right", "--json", "--deadline", "1s", "--write", "kept.pcapng"];
    let ended = dir.end(dir.unshared("-n", &[PAIR, WATCH].concat(), &watch));
    assert_eq!((ended.status, ended.err.as_str()), (0, ""), "{}", ended.out);
    let end = objects_end(&ended.out);
    let (ui, ac, answers, udp) = (300, 110, 90, 500);
    let bytes = ui * (18 + 103) + ac * (18 + 53) + answers * 64 + udp * 62;
    assert_eq!(end["kernel"], serde_json::json!({ "frames": ui + ac + answers + udp, "dropped": 0 }));
    assert_eq!(end["total"], serde_json::json!({ "packets": ui + ac + answers + udp, "bytes": bytes }));
    for (table, name, packets) in [
        ("stations", "station 1", ui + ac + answers),
        ("stations", "station 2", ui),
        ("stations", "station 3", ac + answers),
        ("stations", "10.0.0.2", udp),
        ("services", "sap 4", ui),
        ("services", "sap 8", ac + answers),
        ("services", "udp 5000", udp),
        ("connections", "llc 1.4 - 2.6", ui),
        ("connections", "udp 10.0.0.1:5000 - 10.0.0.2:6000", udp),
    ] {
        assert_eq!(row(&end, table, name)["packets"], packets, "{name}");
    }
    let priorities: Vec<u64> =
        end["priorities"].as_array().unwrap().iter().map(|p| p["packets"].as_u64().unwrap()).collect();
    assert_eq!(priorities, [0, 0, 0, 0, 0, ui, 0, ac + answers]);
    let llc = &end["llc"];
    // The last ten commands have no response; the last of them may not be counted as unanswered yet.
    assert_eq!((&llc["messages"], &llc["repeats"]), (&100.into(), &10.into()));
    assert_eq!(llc["answers"]["count"], 90);
    let unanswered = llc["unanswered"].as_u64().unwrap();
    assert!((9..=10).contains(&unanswered), "{unanswered}");
    let again = dir.execute(&["top", "kept.pcapng", "--json", "priority", "7"]);
    assert_eq!(objects_end(&again.out)["total"]["packets"], ac + answers, "the trace keeps tags");
}

#[test]
fn the_filter_and_the_end_of_an_interface() {
    if !can(&["unshare", "-n", "ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]) {
        return;
    }
    let dir = TestDir::new();
    dir.write("send.py", SEND);
    let script = WATCH.replace("kill -INT $monitor", "sleep 1; ip link del left");
    let watch = ["top", "right", "--json", "sap", "4", "or", "udp", "and", "host", "10.0.0.2"];
    let ended = dir.end(dir.unshared("-n", &[PAIR, &script].concat(), &watch));
    ended.assert_line(1, "right: the interface is gone");
    let end = objects_end(&ended.out);
    // From the left: (sap 4 or udp) and host 10.0.0.2.
    assert_eq!(end["total"]["packets"], 500);
    assert_eq!(end["stations"]["count"], 2);
}

/// A separate terminal, initially 80 by 24, that runs `top` and then prints its exit status.
struct Screen {
    socket: PathBuf,
}

impl Screen {
    fn open(dir: &TestDir, arguments: &str) -> Screen {
        Screen::behind(&[], dir, arguments)
    }

    /// Opens a terminal in the namespaces that `first` creates.
    fn behind(first: &[&str], dir: &TestDir, arguments: &str) -> Screen {
        let screen = Screen { socket: dir.path("tmux") };
        let program = env!("CARGO_BIN_EXE_trunkline");
        let shell = format!(
            "cd '{}'; '{program}' top {arguments}; echo status $? $(stty -a | grep -o -- '-*icanon'); sleep 1000",
            dir.path("").display()
        );
        let session = ["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &shell];
        screen.output(&[first, &["tmux"]].concat(), &session);
        screen
    }

    fn tmux(&self, words: &[&str]) -> String {
        self.output(&["tmux"], words)
    }

    fn output(&self, program: &[&str], words: &[&str]) -> String {
        let mut command = Command::new(program[0]);
        let out = command.args(&program[1..]).arg("-S").arg(&self.socket).args(words).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Replaces the input line with a text and presses Enter.
    fn type_line(&self, text: &str) {
        self.keys(&["DC"]);
        self.tmux(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows all of these texts, and returns it.
    fn shows(&self, words: &[&str]) -> String {
        let mut text = String::new();
        let until = std::time::Instant::now() + SOON;
        loop {
            text.clone_from(&self.text());
            if words.iter().all(|word| text.contains(word)) {
                return text;
            }
            assert!(std::time::Instant::now() < until, "{words:?} on this screen?\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The monitor.
    fn monitor(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.trim())).unwrap();
        Pid::from_raw(children.split_whitespace().next().expect("the monitor runs").parse().unwrap())
    }

    /// Asserts that the program has exited and the terminal is restored.
    fn is_restored(&self) {
        let text = self.shows(&["status 0 icanon"]);
        assert!(!text.contains("trunkline top"), "{text}");
        assert_eq!(self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).trim(), "0 1");
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

#[test]
fn the_screen_by_its_keys() {
    if !can(&["tmux", "-V"]) {
        return;
    }
    let dir = TestDir::new();
    simulated(&dir);
    let screen = Screen::open(&dir, "out/sim/a-b.pcapng");
    let text = screen.shows(&["trunkline top", "ended", "10.0.0.1", "udp 5001", "q quit"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("total 200") && text.contains("28.4 kB"), "{text}");
    assert!(text.contains('█'), "a bar: {text}");

    screen.keys(&["?"]);
    screen.shows(&["keys", "pause the display"]);
    screen.keys(&["x"]);
    screen.keys(&["s"]);
    screen.shows(&["sorted by packets/s"]);
    screen.keys(&["p"]);
    screen.shows(&["PAUSED"]);
    screen.keys(&["p"]);
    screen.keys(&["4"]);
    screen.shows(&["connection (1)", "udp 10.0.0.1:49152"]);
    screen.keys(&["5"]);
    screen.shows(&["priority 7", "token: 0 stations", "token rotation: none"]);
    screen.keys(&["Tab"]);
    screen.shows(&["station (2)"]);

    screen.keys(&["t"]);
    let text = screen.shows(&["49152 > 5001", "IP        10.0.0.1 > 10.0.0.2, udp 17", "     200 "]);
    assert!(text.contains("0000  "), "octets: {text}");
    screen.keys(&["Home"]);
    screen.shows(&["       1 ", "PAUSED"]);
    screen.keys(&["w"]);
    screen.type_line("written.pcapng");
    screen.shows(&["200 packets written to written.pcapng"]);
    assert!(fs::read(dir.path("written.pcapng")).unwrap().starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]));
    screen.keys(&["w"]);
    screen.type_line("written.pcapng");
    screen.shows(&["written.pcapng: File exists"]);

    screen.keys(&["t", "f"]);
    screen.type_line("udp prot 5001");
    screen.shows(&["`prot` is not `and` or `or`"]);
    screen.type_line("udp port 5001");
    screen.shows(&["filter `udp port 5001`: 0 of 0", "counters reset"]);
    screen.keys(&["r"]);

    screen.tmux(&["resize-window", "-x", "120", "-y", "40"]);
    within(SOON, "the wider screen", || screen.text().lines().any(|line| line.chars().count() > 100));
    screen.tmux(&["resize-window", "-x", "30", "-y", "6"]);
    screen.shows(&["trunkline top"]);
    screen.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    screen.shows(&["counters reset", "filter `udp port 5001`"]);
    screen.keys(&["q"]);
    screen.is_restored();
}

#[test]
fn a_signal_restores_the_terminal() {
    if !can(&["tmux", "-V"]) {
        return;
    }
    let dir = TestDir::new();
    simulated(&dir);
    let screen = Screen::open(&dir, "out/sim/a-b.pcapng --write kept.pcapng");
    screen.shows(&["trunkline top", "10.0.0.1"]);
    crate::command::signal(screen.monitor(), Signal::SIGTERM);
    screen.is_restored();
    assert!(dir.path("kept.pcapng").exists(), "what was asked for is written");
}

#[test]
fn top_exits_when_its_terminal_is_lost_and_completes_the_record() {
    let dir = TestDir::new();
    simulated(&dir);
    // It is not the controlling terminal, so no signal reports its loss.
    let size = nix::pty::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let nix::pty::OpenptyResult { master, slave } = nix::pty::openpty(Some(&size), None).unwrap();
    // The program itself must not keep it open.
    fcntl(&master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    let keep = ["--record", "load.csv", "--write", "kept.pcapng", "--events", "50"];
    let mut command = dir.trunkline(&[&["top", "out/sim/a-b.pcapng"], &keep[..]].concat());
    command.env("TERM", "xterm-256color").stdin(slave.try_clone().unwrap());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    let running = Running::with(command, tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let (mut seen, mut master) = (Vec::new(), File::from(master));
    while !String::from_utf8_lossy(&seen).contains("ended") {
        let mut news = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut news, 60_000u16), Ok(1), "{}", String::from_utf8_lossy(&seen));
        let mut part = [0; 4096];
        let length = master.read(&mut part).expect("the screen is drawn");
        seen.extend(&part[..length]);
    }
    drop(master);
    assert_eq!(running.end().status, 0, "it ends quietly");
    assert_eq!(fs::read_to_string(dir.path("load.csv")).unwrap().lines().count(), 1 + 4);
    let again = dir.execute(&["top", "kept.pcapng", "--json"]);
    assert_eq!((again.status, objects_end(&again.out)["total"]["packets"].as_u64()), (0, Some(50)));
}

#[test]
fn the_screen_of_an_interface_until_its_window_is_closed() {
    if !can(&["tmux", "-V"]) || !can(&["unshare", "-n", "ip", "link", "add", "left", "type", "veth"]) {
        return;
    }
    let dir = TestDir::new();
    dir.write("send.py", SEND);
    let inside = [PAIR, "exec \"$@\""].concat();
    let keep = "--record load.csv --graph load.svg --write kept.pcapng";
    // Samples are long, so that bars stay while the test reads the screen.
    let screen = Screen::behind(
        &["unshare", "-n", "sh", "-ec", &inside, "sh"],
        &dir,
        &format!("right --interval 10s --deadline 1s {keep}"),
    );
    let send = || {
        let line = format!("cd '{}'; exec python3 send.py left", dir.path("").display());
        screen.tmux(&["new-window", "-d", &line]);
    };
    screen.shows(&["trunkline top  right", "kernel     frames 0  dropped 0", "q quit"]);
    send();
    screen.shows(&["kernel     frames 1,000  dropped 0", "total 1,000", "station 1", "10.0.0.2"]);
    // A bar of two colours: half of what station 1 has is acknowledged, half is not.
    let coloured = screen.tmux(&["capture-pane", "-e", "-p"]);
    let bar = coloured.lines().find(|line| line.contains("station 1")).unwrap();
    // Yellow and light red, in either escape sequence.
    let has = |short: &str, long: &str| {
        bar.contains(&format!("\x1b[{short}m█")) || bar.contains(&format!("\x1b[{long}m█"))
    };
    assert!(has("33", "38;5;3") && has("91", "38;5;9"), "{bar:?}");
    screen.keys(&["3"]);
    screen.shows(&["service (", "sap 4", "sap 8", "udp 5000"]);
    screen.keys(&["4"]);
    screen.shows(&["llc 1.4 - 2.6", "udp 10.0.0.1:5000 - 10.0.0.2:6000"]);
    screen.keys(&["5"]);
    screen.shows(&["messages 100  repeats 10, most tries 2", "priority 7           200", "1.8 > 3.8, 7"]);
    screen.keys(&["t"]);
    screen.shows(&["5000 > 6000", "   1000 "]);
    screen.keys(&["f"]);
    screen.type_line("sap 4 and priority 5");
    screen.shows(&["filter `sap 4 and priority 5`: 0 of 0"]);
    send();
    screen.shows(&["frames 2,000  dropped 0", "filter `sap 4 and priority 5`: 300 of 1,000"]);
    screen.shows(&["4 > 6  UI", "Tag       8100, priority 5, VLAN 0"]);
    let monitor = screen.monitor();
    screen.tmux(&["kill-server"]);
    within(SOON, "the monitor to end", || crate::command::is_gone(monitor));
    let again = dir.execute(&["top", "kept.pcapng", "--json"]);
    assert_eq!((again.status, objects_end(&again.out)["total"]["packets"].as_u64()), (0, Some(300)));
    let csv = fs::read_to_string(dir.path("load.csv")).unwrap();
    assert!(csv.ends_with('\n') && csv.lines().last().unwrap().contains(",1300,"), "{csv}");
    let svg = fs::read_to_string(dir.path("load.svg")).unwrap();
    assert!(
        svg.contains("1,300 packets") && svg.contains("the kernel received 2,000 frames and dropped 0"),
        "{svg}"
    );
}

#[test]
fn every_frame_of_a_flood_is_counted() {
    const FRAMES: u64 = 100_000;
    if !can(&["unshare", "-n", "ip", "link", "add", "left", "type", "veth"]) {
        return;
    }
    // A namespace of this thread, which ends with it.
    let flood = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("sh").args(["-ec", PAIR]).status().unwrap().success());
        let dir = TestDir::new();
        // The buffer holds all of them.
        let monitor = Running::start(dir.trunkline(&["top", "right", "--json", "--buffer", "128"]));
        within(SOON, "the monitor to receive", || {
            let text = fs::read_to_string("/proc/thread-self/net/packet").unwrap();
            // Of all protocols, and running.
            let of = |line: &str| line.split_whitespace().skip(3).map(str::to_owned).collect::<Vec<_>>();
            text.lines().map(of).any(|words| words[0] == "0003" && words[2] == "1")
        });
        // Count received packets; some may stay in the backlog of the kernel for long.
        let probe =
            PacketSocket::open("right", &Options { promiscuous: true, ..Options::default() }).unwrap();
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let mut frame = [0; 100];
        frame[..17].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0, 86, 6, 4, 3]);
        let mut sent = 0;
        while sent < FRAMES {
            frame[11] = 1 + (sent % 16) as u8;
            sent += u64::from(left.send(&frame).unwrap());
        }
        let mut came = 0;
        within(SOON, "all frames to come through", || {
            came += probe.take_counters().unwrap().frames;
            came == FRAMES
        });
        crate::command::signal(monitor.id(), Signal::SIGINT);
        let ended = monitor.end();
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        let end = objects_end(&ended.out);
        assert_eq!(end["kernel"], serde_json::json!({ "frames": FRAMES, "dropped": 0 }));
        assert_eq!(end["total"], serde_json::json!({ "packets": FRAMES, "bytes": FRAMES * 100 }));
        assert_eq!(row(&end, "stations", "station 16")["packets"], FRAMES / 16);
        assert_eq!(row(&end, "services", "sap 4")["packets"], FRAMES);
    });
    flood.join().unwrap();
}
