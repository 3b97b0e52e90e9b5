//! The house, kept: what ARCHITECTURE.md and the documents promise, checked against the tree.
//!
//! | what | test |
//! | --- | --- |
//! | who may use whom | [`the_arrows_hold`], [`machines_need_no_network_and_no_clock`] |
//! | what machines never do | [`machines_read_no_clock_and_open_no_socket`] |
//! | rooms a reader can find | [`every_crate_has_a_map_of_its_modules`], [`no_file_outgrows_its_room`] |
//! | documents that are true | everything below "documents" |

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Every room and the rooms it may use. A new crate is drawn in ARCHITECTURE.md and here, or the tests fail.
const ROOMS: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("traffic", &["units"]),
    ("endpoint", &["units"]),
    ("io", &["endpoint", "units"]),
    ("experiment", &["units", "traffic"]),
    ("record", &["units", "traffic"]),
    ("models", &["endpoint", "units"]),
    ("tcp", &["endpoint", "units"]),
    ("arq", &["endpoint", "units"]),
    ("llc", &["endpoint", "units"]),
    ("bundle", &["endpoint", "units"]),
    ("counters", &["record", "units"]),
    ("capture", &["llc", "io", "units"]),
    ("collector", &["counters", "io"]),
    ("capi-llc", &["llc", "io", "units"]),
    ("capi-bundle", &["bundle", "io", "units"]),
    ("run", &["units", "traffic", "endpoint", "arq", "llc", "bundle", "experiment", "record"]),
    (
        "sim",
        &[
            "run",
            "models",
            "tcp",
            "arq",
            "llc",
            "bundle",
            "units",
            "traffic",
            "endpoint",
            "experiment",
            "record",
        ],
    ),
    ("live", &["run", "io", "arq", "llc", "bundle", "units", "traffic", "endpoint", "experiment", "record"]),
    ("report", &["record"]),
    ("web", &["io", "counters", "units"]),
    (
        "trunkline",
        &[
            "units",
            "traffic",
            "endpoint",
            "io",
            "arq",
            "llc",
            "bundle",
            "experiment",
            "record",
            "run",
            "live",
            "sim",
            "report",
            "capture",
            "collector",
            "counters",
            "web",
        ],
    ),
];

/// The rooms that are told the time and never ask it.
const MACHINES: &[&str] = &[
    "units",
    "traffic",
    "endpoint",
    "models",
    "tcp",
    "arq",
    "llc",
    "bundle",
    "experiment",
    "record",
    "counters",
    "run",
    "sim",
    "report",
];

/// Machines that also stand on sockets by themselves, behind features that no other machine turns on: the folder in which
/// that happens.
const FACES: &[(&str, &str)] =
    &[("arq", "face"), ("llc", "face"), ("bundle", "face"), ("counters", "archive/postgres")];

/// What reads a clock, waits or talks to somebody.
const NEVER: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "thread::sleep",
    "UdpSocket",
    "UnixDatagram",
    "UnixStream",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "disallowed_methods",
    "disallowed_types",
];

/// Crates whose whole purpose a machine must not have.
const NEVER_USED: &[&str] = &["getrandom", "jiff", "quinn-udp", "rand", "signal-hook", "socket2", "tokio"];

/// Lines of code past which a file wants a second room.
const LONGEST_FILE: usize = 900;

/// The documents whose commands, links and examples must be true.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/analyse.md",
    "docs/archive.md",
    "docs/bundle-congestion.md",
    "docs/bundle-wire.md",
    "docs/bundle.md",
    "docs/counters.md",
    "docs/guaranteed.md",
    "docs/language.md",
    "docs/llc.md",
    "docs/monitor.md",
    "docs/record.md",
    "docs/reproduce.md",
    "docs/study.md",
    "docs/sweep.md",
    "docs/top.md",
    "docs/web.md",
    "docs/wire.md",
    "experiments/README.md",
];

// --- the tree

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    crates.ancestors().nth(2).expect("the crate lies in crates/").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn document(name: &str) -> String {
    read(&root().join(name))
}

/// Every file below `folder` whose name ends in `.ext`.
fn files(folder: &Path, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|e| e == ext) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines that are code: neither blank nor a comment.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_code = |line: &str| !line.is_empty() && !line.starts_with("//");
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).filter(move |(_, line)| is_code(line))
}

/// The packages of the workspace by the name of their room.
fn packages() -> BTreeMap<String, Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().map(|p| (room(p["name"].as_str().unwrap()).to_owned(), p.clone())).collect()
}

/// `trunkline-io` lives in `io`; the command's own room is `trunkline`.
fn room(package: &str) -> &str {
    package.strip_prefix("trunkline-").unwrap_or(package)
}

/// Where a crate lives.
fn folder(name: &str) -> PathBuf {
    match name.strip_prefix("capi-") {
        Some(library) => root().join("bindings/c").join(library),
        None => root().join("crates").join(name),
    }
}

/// What a package depends on.
struct Dependency {
    name: String,
    /// Only its tests do.
    tests: bool,
    /// Only with a feature.
    optional: bool,
    features: usize,
}

fn dependencies(package: &Value) -> Vec<Dependency> {
    let list = package["dependencies"].as_array().expect("a list of dependencies");
    let one = |d: &Value| Dependency {
        name: d["name"].as_str().unwrap().to_owned(),
        tests: d["kind"] == "dev",
        optional: d["optional"] == true,
        features: d["features"].as_array().map_or(0, Vec::len),
    };
    list.iter().map(one).collect()
}

/// Whether a machine has a face, which a dependency may be for.
fn has_face(name: &str) -> bool {
    FACES.iter().any(|(machine, _)| *machine == name)
}

// --- the arrows

/// The rooms that can be reached from `name` by arrows.
fn reachable(name: &str) -> BTreeSet<&'static str> {
    let direct = ROOMS.iter().find(|(room, _)| *room == name).map_or(&[][..], |(_, uses)| uses);
    direct.iter().flat_map(|used| reachable(used).into_iter().chain([*used])).collect()
}

#[test]
fn the_arrows_hold() {
    let packages = packages();
    let drawn: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    let built: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    assert_eq!(built, drawn, "the crates of the workspace and the rooms drawn here");
    for (name, uses) in ROOMS {
        for dependency in dependencies(&packages[*name]) {
            let used = room(&dependency.name);
            let ours = dependency.name.starts_with("trunkline");
            // The tests of a protocol may talk to a real peer.
            let allowed = match dependency.tests {
                // And the library for C to the command's daemons.
                true => {
                    used == "io"
                        || reachable(name).contains(used)
                        || (*name, used) == ("trunkline", "capi-bundle")
                }
                false => uses.contains(&used) || used == "io" && dependency.optional && has_face(name),
            };
            assert!(!ours || allowed, "`{name}` must not use `{used}`");
        }
    }
}

#[test]
fn machines_need_no_network_and_no_clock() {
    let packages = packages();
    for name in MACHINES {
        for Dependency { name: used, tests, optional, features } in dependencies(&packages[*name]) {
            let for_face = has_face(name) && (optional || tests);
            assert!(for_face || !NEVER_USED.contains(&used.as_str()), "`{name}` must not use `{used}`");
            let bare = features == 0 || tests || !has_face(room(&used));
            assert!(bare, "`{name}` must not turn on features of `{used}`");
        }
    }
}

#[test]
fn machines_read_no_clock_and_open_no_socket() {
    for name in MACHINES {
        let source = root().join("crates").join(name).join("src");
        let face = FACES.iter().find(|(machine, _)| machine == name).map(|(_, folder)| source.join(folder));
        let machine = |file: &PathBuf| face.as_ref().is_none_or(|face| !file.starts_with(face));
        for file in files(&source, "rs").into_iter().filter(machine) {
            let text = read(&file);
            for (number, line) in code(&text) {
                let found = NEVER.iter().find(|never| line.contains(**never));
                assert_eq!(found, None, "{}:{number}: {line}", file.display());
            }
        }
    }
}

// --- the rooms

#[test]
fn every_crate_has_a_map_of_its_modules() {
    for (name, _) in ROOMS {
        let source = folder(name).join("src");
        let main = [source.join("lib.rs"), source.join("main.rs")].into_iter().find(|p| p.exists());
        let main = main.unwrap_or_else(|| panic!("{name} has no root file"));
        let text = read(&main);
        let map: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(map.contains("//! | "), "{} has no map of its modules", main.display());
        for (number, line) in code(&text) {
            let module =
                line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
            let known =
                module.is_none_or(|m| map.contains(&format!("`{m}`")) || map.contains(&format!("(mod@{m})")));
            assert!(known, "{}:{number}: `{line}` is not on the map", main.display());
        }
    }
}

#[test]
fn no_file_outgrows_its_room() {
    for folder in ["crates", "fuzz/fuzz_targets"] {
        for file in files(&root().join(folder), "rs") {
            let lines = code(&read(&file)).count();
            assert!(lines <= LONGEST_FILE, "{}: {lines} lines of code", file.display());
        }
    }
}

#[test]
fn the_architecture_names_every_room() {
    let text = document("ARCHITECTURE.md");
    for (name, _) in ROOMS {
        assert!(text.contains(&format!("| `{name}` | ")), "ARCHITECTURE.md has no row for `{name}`");
    }
}

// --- documents

fn trunkline(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("trunkline starts");
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("trunkline ends")
}

fn assert_success(out: &Output, what: &str) {
    assert!(out.status.success(), "{what}: {}", String::from_utf8_lossy(&out.stderr));
}

/// The fenced blocks of a document that are marked `language`.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(mark) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            if mark == language {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

#[test]
fn every_experiment_checks_and_is_listed() {
    let list = document("experiments/README.md");
    let experiments = files(&root().join("experiments"), "ns");
    assert!(!experiments.is_empty());
    for path in experiments {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(list.contains(&format!("`{name}`")), "experiments/README.md does not list {name}");
        assert_success(&trunkline(&["check", &format!("experiments/{name}")], ""), &name);
    }
}

#[test]
fn experiments_in_the_documents_check() {
    let mut seen = 0;
    for name in DOCUMENTS {
        for text in blocks(&document(name), "ns") {
            assert_success(&trunkline(&["check", "-"], &text), &format!("{name}:\n{text}"));
            seen += 1;
        }
    }
    assert!(seen >= 5, "only {seen} examples");
}

/// The commands of a document's `sh` blocks, one a line, without comments.
fn commands(name: &str) -> Vec<String> {
    let blocks = blocks(&document(name), "sh").join("\n");
    let lines = blocks.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// What follows `trunkline` in a line of shell, up to a pipe or a redirection.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let run = line.strip_prefix("trunkline ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    Some(run.split_whitespace().take_while(|word| !matches!(*word, "|" | ">" | "&&" | "2>")).collect())
}

#[test]
fn flags_in_the_documents_exist() {
    let mut seen = 0;
    for name in DOCUMENTS {
        for line in commands(name) {
            let Some(mut words) = arguments(&line) else { continue };
            // Every word before it is read, and refused if it is unknown; then nothing is done.
            words.push("--help");
            assert_success(&trunkline(&words, ""), &format!("{name}: {line}"));
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} commands");
}

#[test]
fn make_targets_in_the_documents_exist() {
    let makefile = document("Makefile");
    for name in DOCUMENTS {
        for line in commands(name) {
            let Some(target) = line.strip_prefix("make ").and_then(|rest| rest.split(' ').next()) else {
                continue;
            };
            let rule = format!("\n{target}:");
            assert!(makefile.contains(&rule), "{name}: the Makefile has no `{target}`");
        }
    }
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    for name in DOCUMENTS {
        let folder = root().join(name).parent().expect("a document lies in a folder").to_owned();
        let text = document(name);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|t| !t.is_empty() && !t.contains("://")) {
            assert!(folder.join(target).exists(), "{name}: {target} is not there");
        }
    }
}

/// `name` stands in the first column of a table of docs/record.md.
fn is_documented(text: &str, name: &str) -> bool {
    text.lines().any(|line| line.split(" | ").next().is_some_and(|cell| cell.contains(&format!("`{name}`"))))
}

#[test]
fn every_field_of_the_record_is_documented() {
    let text = document("docs/record.md");
    let schema = read(&root().join("crates/record/src/schema.rs"));
    let fields = schema.lines().filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": "));
    let fields: BTreeSet<&str> = fields.map(|(name, _)| name).filter(|name| !name.contains(' ')).collect();
    assert!(fields.len() > 60, "{fields:?}");
    // `more` is flattened: its names stand beside the others.
    for field in fields.into_iter().filter(|field| *field != "more") {
        assert!(is_documented(&text, field), "docs/record.md does not explain `{field}`");
    }
}

/// One short run with every kind of end, whose counters, notes and environment have names of their own.
#[test]
fn every_name_in_a_record_is_documented() {
    let text = document("docs/record.md");
    let pairs = [
        ("tcp", "full"),
        ("udp", "full"),
        ("udp", "poisson (rate = 1000 /s)"),
        ("udp", "request"),
        ("tcp", "request"),
        ("tcp", "file (path = \"LICENSE-MIT\")"),
        ("udp", "file (path = \"LICENSE-MIT\", messagesize = 500)"),
    ];
    let connections: String = pairs
        .iter()
        .map(|(protocol, test)| {
            let stop = if test.starts_with("file") { "" } else { "duration = 100 ms; " };
            format!("connection {{ xmt = a; rcv = b; protocol = {protocol}; test = {test}; {stop}}}\n")
        })
        .collect();
    let out = tempfile::tempdir().expect("a folder");
    let folder = out.path().to_str().expect("a plain name");
    let experiment =
        format!("experiment {{ network {{ host a, b; link a - b (rate = 1 Gb/s); }} {connections} }}");
    let done = trunkline(
        &["run", "-", "--json", "--no-archive", "--set", "delay=0 s", "--out", folder],
        &experiment,
    );
    assert_success(&done, "run");
    let record: Value = serde_json::from_slice(&done.stdout).expect("a record");
    let mut names: BTreeSet<&String> = record["environment"].as_object().expect("an object").keys().collect();
    for connection in record["connections"].as_array().expect("a list") {
        for field in ["counters", "notes"] {
            names.extend(connection[field].as_object().expect("an object").keys());
        }
        names.extend(
            connection["series"].as_array().unwrap().iter().flat_map(|p| p.as_object().unwrap().keys()),
        );
    }
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(is_documented(&text, name), "docs/record.md does not explain `{name}`");
    }
}

#[test]
fn the_header_in_the_documents_decodes() {
    use trunkline_run::message::{HEADER, Header, Kind, Payload};
    let blocks = blocks(&document("docs/wire.md"), "hex");
    let digits = blocks.concat().lines().map(|l| l.split('#').next().unwrap_or_default()).collect::<String>();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let message: Vec<u8> = digits.chunks(2).map(byte).collect();
    let header = Header::decode(0x4f87_5b98, &message).expect("a header");
    assert_eq!((header.sequence, header.length, header.response, header.kind), (0, 64, 0, Kind::Pattern));
    assert_eq!(header.sent.as_ps(), 22_915_086_000);
    let payload = Payload::new(trunkline_units::Seed(1996), "steady");
    assert!(payload.matches(0, &message[HEADER..]) && message.len() == 64);
}
