//! What is left of a lab.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use trunkline_lab::{Lab, LabError, Programs, Session};
use trunkline_units::Seed;

use crate::{HOLD, plan};

/// Labs that are started and killed.
const KILLS: u32 = if cfg!(feature = "soak") { 100 } else { 20 };
/// Processes `sleep` of a lab that is held: children, a grandchild, and one in another session.
const SLEEPS: usize = 5;
/// In the environment of a lab that is held, and so of all that it starts.
const MARK: &str = "TRUNKLINE_LAB_TEST";
/// After this a test fails. What it waits for takes milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the network namespaces of all processes and threads that this user sees.
fn namespaces() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(threads) = fs::read_dir(process.path().join("task")) else { continue };
        found.extend(threads.flatten().filter_map(|thread| {
            Some(fs::read_link(thread.path().join("ns/net")).ok()?.to_string_lossy().into_owned())
        }));
    }
    found
}

fn count(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Starts and ends leave no interface, descriptor, thread or namespace, also if a program still runs.
pub fn nothing_is_left() {
    let plan = plan("host a, b; switch s; link a - s (rate = 1 Mb/s); link b - s (rate = 1 Mb/s);");
    let count_all = || (count("/proc/self/fd"), count("/proc/self/task"), count("/sys/class/net"));
    let before = count_all();
    let mut numbers = BTreeSet::new();
    for round in 0..10 {
        let lab = Lab::start(&plan, Seed(round)).unwrap();
        numbers.extend(lab.hosts().iter().map(|host| host.namespace.number().unwrap()));
        let mut sleep = lab.host("a").unwrap().command("sleep");
        let mut sleep = sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let inside = fs::read_link(format!("/proc/{}/ns/net", sleep.id())).unwrap();
        assert_eq!(
            inside.to_string_lossy(),
            format!("net:[{}]", lab.host("a").unwrap().namespace.number().unwrap())
        );
        if round % 2 == 0 {
            drop(lab);
        } else {
            lab.finish().unwrap();
        }
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
    assert_eq!(count_all(), before);
    let left = namespaces();
    assert!(numbers.iter().all(|number| !left.contains(&format!("net:[{number}]"))), "{numbers:?} {left:?}");
    // A named namespace would be here.
    let named = Command::new("ip").args(["netns", "list"]).output();
    assert!(named.map_or(true, |output| output.stdout.is_empty()));
}

/// A lab that is killed at any time leaves no process, also not those that its programs started and that have left their
/// session, no namespace and no file.
pub fn killed_labs_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let limit = NamespaceLimit::set(15);
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let before = (count("/sys/class/net"), mounts());
    for round in 0..KILLS {
        let mark = format!("{}-{round}", std::process::id());
        let mut lab = start_lab(folder.path(), &mark);
        if round % 2 == 0 {
            wait_until("programs", || sleeping(&marked(&mark)) == SLEEPS);
        } else {
            // While it starts.
            sleep(Duration::from_millis(u64::from(round)));
        }
        lab.kill().unwrap();
        lab.wait().unwrap();
        wait_until("the end of all processes", || marked(&mark).is_empty());
    }
    // One that ends by itself removes the files of all.
    let mark = format!("{}-last", std::process::id());
    let mut lab = start_lab(folder.path(), &mark);
    wait_until("programs", || sleeping(&marked(&mark)) == SLEEPS);
    drop(lab.stdin.take());
    assert!(lab.wait().unwrap().success());
    assert_eq!(marked(&mark), [""; 0]);
    assert_eq!(count(&folder.path().join("trunkline-labs").to_string_lossy()), 0);
    assert_eq!((count("/sys/class/net"), mounts()), before);
    drop(limit);
}

/// Limits the network and process namespaces of this user namespace, so that those that are left would use them up. Only in the
/// user namespace of a test: root's is that of the machine.
struct NamespaceLimit(Vec<(String, String)>);

impl NamespaceLimit {
    fn set(limit: u32) -> NamespaceLimit {
        if std::env::var_os(crate::ORDINARY).is_none() {
            return NamespaceLimit(Vec::new());
        }
        let names = ["net", "pid"].map(|kind| format!("/proc/sys/user/max_{kind}_namespaces"));
        NamespaceLimit(names.map(|name| (name.clone(), replace(&name, &limit.to_string()))).into())
    }
}

impl Drop for NamespaceLimit {
    fn drop(&mut self) {
        for (name, before) in &self.0 {
            replace(name, before);
        }
    }
}

fn replace(name: &str, value: &str) -> String {
    let before = fs::read_to_string(name).unwrap();
    fs::write(name, value).unwrap();
    before
}

/// Starts this program again, which holds a lab until its standard input ends.
fn start_lab(folder: &Path, mark: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(HOLD).env(MARK, mark).env("XDG_RUNTIME_DIR", folder).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Returns the command lines of the processes with a mark.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}\0").into_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
        let environment = fs::read(process.path().join("environ")).ok()?;
        let is_marked = environment.windows(mark.len()).any(|part| part == mark);
        is_marked.then(|| fs::read_to_string(process.path().join("cmdline")).unwrap_or_default())
    });
    processes.collect()
}

fn sleeping(processes: &[String]) -> usize {
    processes.iter().filter(|line| line.starts_with("sleep\0")).count()
}

fn wait_until(condition: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "{condition}");
        sleep(Duration::from_millis(5));
    }
}

/// Holds a lab with programs until its standard input ends.
pub fn hold() {
    let plan = plan(
        "host a (program = \"sleep 1000 & sh -c 'sleep 1000 & sleep 1000'\");
         host b (program = \"(setsid sleep 1000 &); exec sleep 1000\"); link a - b (rate = 1 Mb/s);",
    );
    let start = Instant::now();
    let lab = loop {
        match Lab::start(&plan, Seed(1)) {
            Ok(lab) => break lab,
            // The kernel removes namespaces a while after their last process.
            Err(LabError::Namespace(_) | LabError::Processes(_)) if start.elapsed() < LIMIT => {}
            Err(error) => panic!("{error}"),
        }
    };
    let session = Session::start("held", &lab).unwrap();
    let out = std::env::current_dir().unwrap().join("out");
    let programs = Programs::start(&plan, &lab, &session, &out).unwrap();
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop((programs, session, lab));
}
