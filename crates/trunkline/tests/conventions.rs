//! Rules of the source tree: what ARCHITECTURE.md and docs/glossary.md promise.
//!
//! | rule | test |
//! | --- | --- |
//! | which crate may use which | [`crates_use_only_what_the_architecture_allows`] |
//! | protocol and model crates do no I/O | [`sans_io_crates_depend_on_no_network`], [`sans_io_crates_read_no_clock`] |
//! | a reader finds the right file | [`every_crate_lists_its_modules`], [`files_are_short`], [`modules_have_no_circles`] |
//! | plain words | [`names_are_plain`], [`prose_is_plain`] |

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every crate and the crates it may use. Add a new crate here and to ARCHITECTURE.md.
const CRATES: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("traffic", &["units"]),
    ("endpoint", &["units"]),
    ("io", &["endpoint", "units"]),
    ("agent", &["live", "units"]),
    ("experiment", &["units", "traffic"]),
    ("record", &["units", "traffic"]),
    ("models", &["endpoint", "units"]),
    ("congestion", &["units"]),
    ("tcp", &["congestion", "endpoint", "units"]),
    ("arq", &["congestion", "endpoint", "units"]),
    ("llc", &["endpoint", "units"]),
    ("bundle", &["endpoint", "units"]),
    ("quic", &["endpoint", "units"]),
    ("stamp", &["units"]),
    ("counters", &["record", "units"]),
    ("capture", &["llc", "io", "units"]),
    ("collector", &["counters", "io"]),
    ("capi-llc", &["llc", "io", "units"]),
    ("capi-bundle", &["bundle", "io", "units"]),
    (
        "run",
        &["units", "traffic", "endpoint", "models", "arq", "llc", "quic", "bundle", "experiment", "record"],
    ),
    (
        "sim",
        &[
            "run",
            "models",
            "tcp",
            "arq",
            "llc",
            "quic",
            "bundle",
            "units",
            "traffic",
            "endpoint",
            "experiment",
            "record",
        ],
    ),
    (
        "live",
        &[
            "run",
            "models",
            "io",
            "arq",
            "llc",
            "quic",
            "bundle",
            "stamp",
            "units",
            "traffic",
            "endpoint",
            "experiment",
            "record",
        ],
    ),
    ("lab", &["live", "sim", "run", "record", "experiment", "models", "traffic", "endpoint", "io", "units"]),
    ("chart", &[]),
    ("report", &["chart", "record"]),
    ("reproduction", &["experiment", "record", "report", "units"]),
    ("schedule", &[]),
    ("web", &["chart", "io", "counters", "units"]),
    (
        "trunkline",
        &[
            "agent",
            "units",
            "traffic",
            "endpoint",
            "io",
            "arq",
            "llc",
            "bundle",
            "stamp",
            "experiment",
            "models",
            "record",
            "run",
            "live",
            "lab",
            "sim",
            "report",
            "reproduction",
            "schedule",
            "capture",
            "collector",
            "counters",
            "web",
        ],
    ),
];

/// Crates that take the time as an argument and do no I/O.
const SANS_IO: &[&str] = &[
    "units",
    "traffic",
    "endpoint",
    "models",
    "congestion",
    "tcp",
    "arq",
    "llc",
    "bundle",
    "quic",
    "stamp",
    "experiment",
    "record",
    "counters",
    "run",
    "sim",
    "report",
    "reproduction",
    "schedule",
];

/// Sans-I/O crates that also offer sockets behind a feature, with the folder that holds them.
const SOCKETS: &[(&str, &str)] =
    &[("arq", "socket"), ("llc", "socket"), ("bundle", "socket"), ("counters", "archive/postgres")];

/// Creates the origin of the instants that `quinn-proto` requires; only differences to it are used.
const ORIGIN: &str = "crates/quic/src/time.rs";

/// Source text that reads a clock, sleeps, or opens a socket.
const FORBIDDEN_CALLS: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
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

/// Dependencies that a sans-I/O crate must not have.
const FORBIDDEN_DEPENDENCIES: &[&str] =
    &["getrandom", "jiff", "quinn-udp", "rand", "signal-hook", "socket2", "tokio"];

/// Computes calendar times from an argument; [`FORBIDDEN_CALLS`] has its clock.
const CALENDAR: (&str, &str) = ("schedule", "jiff");

/// Maximum lines of code of a file, without blank lines and comments.
const MAX_LINES: usize = 800;

/// Folders whose words are not converted yet: they are exempt from the tests of names and prose. Remove each when it is done.
const PENDING: &[&str] = &[];

/// Files whose fields, parameters and variables are not converted yet, one path a line. To be done: remove a line, rename
/// what [`names_are_plain`] reports, and so on until the file is empty. The names of their items are checked already.
const PENDING_BINDINGS: &str = include_str!("conventions/pending_bindings.txt");

/// Items that are not renamed yet: file and name.
const PENDING_ITEMS: &[(&str, &str)] = &[("crates/experiment/src/tree.rs", "place")];

/// Circles between modules that are still to be removed.
const PENDING_CIRCLES: &[&str] = &[];

// --- The tree

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("the crate is in crates/").to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn document(name: &str) -> String {
    read(&root().join(name))
}

/// Returns every file below `folder` with one of these extensions, sorted.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the lines that are neither blank nor comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_code = |line: &str| !line.is_empty() && !line.starts_with("//");
    text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).filter(move |(_, line)| is_code(line))
}

/// Returns the folder of a crate.
fn folder(name: &str) -> PathBuf {
    match name.strip_prefix("capi-") {
        Some(library) => root().join("bindings/c").join(library),
        None => root().join("crates").join(name),
    }
}

// --- Dependencies

/// Returns a package's name without the common prefix.
fn short_name(package: &str) -> &str {
    package.strip_prefix("trunkline-").unwrap_or(package)
}

/// Returns the packages of the workspace by short name, without the fuzz targets, which use any crate.
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
    let named = packages.iter().map(|p| (short_name(p["name"].as_str().unwrap()).to_owned(), p.clone()));
    named.filter(|(name, _)| name != "fuzz").collect()
}

struct Dependency {
    name: String,
    is_dev: bool,
    is_optional: bool,
    features: usize,
}

fn dependencies(package: &Value) -> Vec<Dependency> {
    let list = package["dependencies"].as_array().expect("a list of dependencies");
    let one = |d: &Value| Dependency {
        name: d["name"].as_str().unwrap().to_owned(),
        is_dev: d["kind"] == "dev",
        is_optional: d["optional"] == true,
        features: d["features"].as_array().map_or(0, Vec::len),
    };
    list.iter().map(one).collect()
}

fn has_sockets(name: &str) -> bool {
    SOCKETS.iter().any(|(crate_name, _)| *crate_name == name)
}

/// Returns the crates that `name` may use, directly or through others.
fn reachable(name: &str) -> BTreeSet<&'static str> {
    let direct = CRATES.iter().find(|(crate_name, _)| *crate_name == name).map_or(&[][..], |(_, uses)| uses);
    direct.iter().flat_map(|used| reachable(used).into_iter().chain([*used])).collect()
}

#[test]
fn crates_use_only_what_the_architecture_allows() {
    let packages = packages();
    let listed: BTreeSet<&str> = CRATES.iter().map(|(name, _)| *name).collect();
    let built: BTreeSet<&str> = packages.keys().map(String::as_str).collect();
    assert_eq!(built, listed, "the crates of the workspace and the crates listed here");
    for (name, uses) in CRATES {
        for dependency in dependencies(&packages[*name]) {
            let used = short_name(&dependency.name);
            let is_ours = dependency.name.starts_with("trunkline");
            // Tests may use real sockets, and the command's tests build the C library.
            let allowed = match dependency.is_dev {
                true => {
                    used == "io"
                        || reachable(name).contains(used)
                        || (*name, used) == ("trunkline", "capi-bundle")
                }
                false => uses.contains(&used) || used == "io" && dependency.is_optional && has_sockets(name),
            };
            assert!(!is_ours || allowed, "`{name}` must not use `{used}`");
        }
    }
}

#[test]
fn sans_io_crates_depend_on_no_network() {
    let packages = packages();
    for name in SANS_IO {
        for Dependency { name: used, is_dev, is_optional, features } in dependencies(&packages[*name]) {
            let for_sockets = has_sockets(name) && (is_optional || is_dev);
            assert!(
                for_sockets
                    || (*name, used.as_str()) == CALENDAR
                    || !FORBIDDEN_DEPENDENCIES.contains(&used.as_str()),
                "`{name}` must not use `{used}`"
            );
            let plain = features == 0 || is_dev || !has_sockets(short_name(&used));
            assert!(plain, "`{name}` must not enable features of `{used}`");
        }
    }
}

#[test]
fn sans_io_crates_read_no_clock() {
    for name in SANS_IO {
        let source = folder(name).join("src");
        let sockets = SOCKETS.iter().find(|(crate_name, _)| crate_name == name).map(|(_, f)| source.join(f));
        let is_sans_io = |file: &PathBuf| {
            sockets.as_ref().is_none_or(|folder| !file.starts_with(folder)) && *file != root().join(ORIGIN)
        };
        for file in files(&source, &["rs"]).into_iter().filter(is_sans_io) {
            for (number, line) in code(&read(&file)) {
                let found = FORBIDDEN_CALLS.iter().find(|call| line.contains(**call));
                assert_eq!(found, None, "{}:{number}: {line}", file.display());
            }
        }
    }
}

// --- Layout

#[test]
fn every_crate_lists_its_modules() {
    for (name, _) in CRATES {
        let source = folder(name).join("src");
        let main = [source.join("lib.rs"), source.join("main.rs")].into_iter().find(|p| p.exists());
        let main = main.unwrap_or_else(|| panic!("{name} has no root file"));
        let text = read(&main);
        let map: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        assert!(map.contains("//! | "), "{} has no table of its modules", main.display());
        for (number, line) in code(&text) {
            let module =
                line.trim_start_matches("pub ").strip_prefix("mod ").and_then(|m| m.strip_suffix(';'));
            let listed =
                module.is_none_or(|m| map.contains(&format!("`{m}`")) || map.contains(&format!("(mod@{m})")));
            assert!(listed, "{}:{number}: `{line}` is not in the table", main.display());
        }
    }
}

#[test]
fn files_are_short() {
    for folder in ["crates", "bindings/c", "fuzz/fuzz_targets"] {
        for file in files(&root().join(folder), &["rs"]) {
            let text = read(&file);
            let lines = code(&text).count();
            let has_reason = text.contains("//! This file is long because ");
            assert!(lines <= MAX_LINES || has_reason, "{}: {lines} lines of code", file.display());
        }
    }
}

#[test]
fn the_architecture_lists_every_crate() {
    let text = document("ARCHITECTURE.md");
    for (name, _) in CRATES {
        assert!(text.contains(&format!("| `{name}` | ")), "ARCHITECTURE.md has no row for `{name}`");
    }
}

/// The module path of a file within its crate: `src/a/b.rs` and `src/a/b/mod.rs` are `a::b`.
fn module_path(source: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(source).expect("below src").with_extension("");
    let mut parts: Vec<String> =
        relative.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts.join("::")
}

/// Splits `a::{b, c::{d, e}}` into `a::b`, `a::c::d` and `a::c::e`.
fn expand(path: &str) -> Vec<String> {
    let Some(open) = path.find('{') else { return vec![path.trim().to_owned()] };
    let (prefix, inner) = (&path[..open], path[open + 1..].trim_end().trim_end_matches('}'));
    let inner = &path[open + 1..path.rfind('}').unwrap_or(open + 1 + inner.len())];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .flat_map(|part| expand(&format!("{prefix}{}", part.trim())))
        .collect()
}

/// Returns the modules of the same crate that a file imports, as absolute paths. Test modules are left out.
fn imports(text: &str, module: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line
            .split_once("use ")
            .filter(|(before, _)| matches!(*before, "" | "pub " | "pub(crate) " | "pub(super) "))
        else {
            continue;
        };
        let mut statement = rest.1.to_owned();
        while !statement.contains(';') {
            let Some(next) = lines.next() else { break };
            statement.push_str(next.trim());
        }
        for path in expand(statement.trim_end_matches(';')) {
            let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
            let mut parts = path.split("::").peekable();
            match parts.peek() {
                Some(&"crate") => base.clear(),
                Some(&"super" | &"self") => {}
                _ => continue,
            }
            while let Some(&part) = parts.peek() {
                match part {
                    "crate" | "self" => {}
                    "super" => drop(base.pop()),
                    _ => break,
                }
                parts.next();
            }
            let absolute: Vec<&str> = base.into_iter().chain(parts).collect();
            found.push(absolute.join("::"));
        }
    }
    found
}

/// A module may use its own submodules and they may use it; otherwise modules that use each other belong together or
/// share a third module below both.
#[test]
fn modules_have_no_circles() {
    let mut circles = Vec::new();
    for (name, _) in CRATES {
        let source = folder(name).join("src");
        let modules: BTreeMap<String, PathBuf> =
            files(&source, &["rs"]).into_iter().map(|file| (module_path(&source, &file), file)).collect();
        let resolve = |path: &str| {
            let mut path = path;
            loop {
                if modules.contains_key(path) {
                    return path.to_owned();
                }
                match path.rsplit_once("::") {
                    Some((parent, _)) => path = parent,
                    None => return String::new(),
                }
            }
        };
        let is_within =
            |inner: &str, outer: &str| outer.is_empty() || inner.starts_with(&format!("{outer}::"));
        let graph: BTreeMap<&str, BTreeSet<String>> = modules
            .iter()
            .map(|(module, file)| {
                let imported = imports(&read(file), module);
                let used = imported.iter().map(|path| resolve(path));
                let apart = used
                    .filter(|used| used != module && !is_within(used, module) && !is_within(module, used));
                (module.as_str(), apart.collect())
            })
            .collect();
        for (module, uses) in &graph {
            for used in uses {
                let back = graph.get(used.as_str()).is_some_and(|back| back.contains(*module));
                if back && *module < used.as_str() {
                    circles.push(format!("{name}: `{module}` and `{used}` use each other"));
                }
            }
        }
    }
    circles.retain(|circle| !PENDING_CIRCLES.contains(&circle.as_str()));
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

// --- Words

/// The rows of a table in docs/glossary.md below this heading: first and second column.
fn glossary(heading: &str) -> Vec<(String, String)> {
    let text = document("docs/glossary.md");
    let section =
        text.split(&format!("## {heading}\n")).nth(1).unwrap_or_else(|| panic!("no section {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).skip(1);
    let cells = rows.filter_map(|row| {
        let mut cells =
            row.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`').to_owned());
        Some((cells.next()?, cells.next()?))
    });
    cells.collect()
}

/// Returns whether the tests of names and prose read this file: not the fixtures of earlier versions.
fn is_converted(file: &Path) -> bool {
    let exempt = PENDING.iter().chain(&["crates/trunkline/tests/compatibility"]);
    !exempt.into_iter().any(|folder| file.starts_with(root().join(folder)))
}

/// Splits an identifier into lower-case words: `HostSocket2` and `host_socket2` are `host`, `socket2`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c == '-' {
            words.push(String::new());
            continue;
        }
        if c.is_uppercase() && words.last().is_some_and(|word| word.chars().any(char::is_lowercase)) {
            words.push(String::new());
        }
        words.last_mut().expect("never empty").extend(c.to_lowercase());
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the name that a line of code defines, if any.
fn defined_name(line: &str) -> Option<&str> {
    const KEYWORDS: [&str; 8] = ["struct", "enum", "trait", "type", "fn", "mod", "const", "static"];
    let mut tokens = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|token| !token.is_empty());
    let mut before = tokens
        .by_ref()
        .take_while(|token| !KEYWORDS.contains(token) || *token == "const" && line.contains("const fn"));
    let is_definition = before.all(|token| {
        matches!(token, "pub" | "crate" | "super" | "in" | "unsafe" | "async" | "extern" | "C" | "const")
    });
    if !is_definition {
        return None;
    }
    tokens.next()
}

/// Removes string literals and a trailing comment from a line of code.
fn without_texts(line: &str) -> String {
    let is_text = |at: usize| at % 2 == 1;
    let unescaped = line.replace("\\\"", "");
    let parts = unescaped.split('"').enumerate().map(|(at, part)| if is_text(at) { "" } else { part });
    let code: String = parts.collect();
    code.split(" //").next().unwrap_or_default().to_owned()
}

/// Returns the names that a line of code binds: fields and parameters (`name: `), and variables (`let name`). A simple
/// scanner: it also returns the fields of struct literals and patterns.
fn bound_names(line: &str) -> Vec<String> {
    let line = without_texts(line);
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let is_variable = |name: &str| name.starts_with(|c: char| c.is_lowercase() || c == '_');
    let mut names = Vec::new();
    for (at, _) in line.match_indices(':') {
        let (before, after) = (&line[..at], &line[at + 1..]);
        let start = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        let is_path = after.starts_with(':') || before[..start].ends_with([':', '.']);
        if !is_path && is_variable(&before[start..]) && (after.is_empty() || after.starts_with(' ')) {
            names.push(before[start..].to_owned());
        }
    }
    if let Some((before, pattern)) = line.split_once("let ")
        && !before.ends_with(is_name)
    {
        let pattern = pattern.split(['=', ';']).next().unwrap_or_default();
        let pattern = pattern.split(": ").next().unwrap_or_default();
        let tokens = pattern.split_inclusive(|c| !is_name(c));
        let variables = tokens.filter(|token| !token.ends_with(['(', '{', '<']));
        let variables = variables.map(|token| token.trim_end_matches(|c| !is_name(c)));
        names.extend(variables.filter(|name| is_variable(name)).map(str::to_owned));
    }
    names.retain(|name| !["mut", "ref", "self", "else", "_"].contains(&name.as_str()));
    names.sort();
    names.dedup();
    names
}

#[test]
fn bound_names_are_found() {
    for (line, names) in [
        ("pub heard: bool,", vec!["heard"]),
        ("fn f(mut got: &str, (a, b): (u8, u8)) -> Kept {", vec!["got"]),
        ("let (asked, mut held) = (0.0, 0.0);", vec!["asked", "held"]),
        ("let Some((_, news)) = x.y else { return };", vec!["news"]),
        ("if let Step::Wait { until, .. } = what.why() {", vec!["until"]),
        ("let plain = std::mem::take(&mut self.place); // heard: no", vec!["plain"]),
        ("write(\"heard: {x}\", [Outcome::Kept, a::b])", vec![]),
        ("let got: Vec<u8> = Vec::new();", vec!["got"]),
    ] {
        assert_eq!(bound_names(line), names, "{line}");
    }
}

#[test]
fn names_are_plain() {
    let banned_words = glossary("Words that no name contains");
    let banned_names = glossary("Names that no item has");
    assert!(banned_words.len() > 20 && banned_names.len() > 10, "{banned_words:?}, {banned_names:?}");
    let pending: BTreeSet<PathBuf> = PENDING_BINDINGS.lines().map(|line| root().join(line)).collect();
    let mut wrong = Vec::new();
    for folder in ["crates", "bindings/c", "fuzz/fuzz_targets", "benches"] {
        for file in files(&root().join(folder), &["rs"]).into_iter().filter(|file| is_converted(file)) {
            let location = file.strip_prefix(root()).unwrap().display();
            for (number, line) in code(&read(&file)) {
                let is_pending = |item: &&str| {
                    PENDING_ITEMS.iter().any(|(path, name)| file.ends_with(path) && name == item)
                };
                let item = defined_name(line).filter(|item| !is_pending(item));
                let mut names: Vec<String> = item.map(str::to_owned).into_iter().collect();
                if !pending.contains(&file) {
                    names.extend(bound_names(line));
                }
                for name in names {
                    let by_name = banned_names.iter().filter(|(banned, _)| *banned == name);
                    let words = words(&name);
                    let by_word = banned_words.iter().filter(|(banned, _)| words.contains(banned));
                    for (_, instead) in by_name.chain(by_word) {
                        wrong.push(format!("{location}:{number}: `{name}`; use {instead}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} names:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn prose_is_plain() {
    let banned = glossary("Phrases that no text contains");
    assert!(banned.len() > 10, "{banned:?}");
    let mut wrong = Vec::new();
    let mut check = |file: &Path, number: usize, text: &str| {
        let padded =
            format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '\'', " "));
        for (phrase, instead) in &banned {
            if padded.contains(&format!(" {phrase} ")) {
                let place = file.strip_prefix(root()).unwrap().display();
                wrong.push(format!("{place}:{number}: \"{phrase}\": {}; use {instead}", text.trim()));
            }
        }
    };
    for folder in ["crates", "bindings/c", "fuzz/fuzz_targets", "benches"] {
        for file in files(&root().join(folder), &["rs", "h", "c", "js", "py"])
            .into_iter()
            .filter(|file| is_converted(file))
        {
            for (number, line) in read(&file).lines().enumerate() {
                let is_comment =
                    ["//", "*", "#", "/*"].iter().any(|mark| line.trim_start().starts_with(mark));
                // A single word in quotes is a name that others rely on: of a JSON field, a label, a random stream.
                let quoted = line.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
                let quoted = quoted.collect::<Vec<_>>().join(" | ");
                check(&file, number + 1, if is_comment { line } else { &quoted });
            }
        }
    }
    for file in files(&root(), &["md"]) {
        let is_ours = !file.components().any(|part| part.as_os_str() == "target");
        if is_ours && is_converted(&file) && !file.ends_with("docs/glossary.md") {
            // Inline code is exempt: a page must be able to name identifiers that others rely on.
            for (number, line) in read(&file).lines().enumerate() {
                let prose: Vec<&str> = line.split('`').step_by(2).collect();
                check(&file, number + 1, &prose.join("`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}
