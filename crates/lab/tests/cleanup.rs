//! What is left of a lab.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use trunkline_lab::Lab;
use trunkline_units::Seed;

use crate::plan;

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
