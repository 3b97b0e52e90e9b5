//! Documents that tell the truth: examples that compile, flags, targets and links that exist, fields that are explained.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

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

/// Returns every file below `folder` with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The documents whose commands, links and examples are checked: all of them.
fn documents() -> Vec<String> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "experiments/README.md"].map(String::from).into();
    for file in files(&root().join("docs"), "md") {
        names.push(file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
    }
    names
}

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
            if mark.split(' ').next() == Some(language) {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

#[test]
fn every_experiment_checks_and_is_listed() {
    let list = document("experiments/README.md");
    let folder = root().join("experiments");
    let experiments = files(&folder, "ns");
    assert!(!experiments.is_empty());
    for path in experiments {
        let name = path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned();
        assert!(list.contains(&format!("`{name}`")), "experiments/README.md does not list {name}");
        assert_success(&trunkline(&["check", &format!("experiments/{name}")], ""), &name);
    }
}

#[test]
fn experiments_in_the_documents_check() {
    let mut seen = 0;
    for name in documents() {
        for text in blocks(&document(name.as_str()), "ns") {
            assert_success(&trunkline(&["check", "-"], &text), &format!("{name}:\n{text}"));
            seen += 1;
        }
    }
    assert!(seen >= 5, "only {seen} examples");
}

/// The commands of a document's `sh` blocks, one a line, without comments.
fn commands(name: &str) -> Vec<String> {
    let text = document(name);
    let blocks = [blocks(&text, "sh"), blocks(&text, "console")].concat().join("\n");
    let lines = blocks.lines().map(|line| line.split(" #").next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// What follows `trunkline` in a line of shell, up to a pipe, a redirection or the command of another program.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let run = line.strip_prefix("trunkline ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
    Some(
        run.split_whitespace()
            .take_while(|word| !word.starts_with(['|', '>', '&']) && !matches!(*word, "2>" | "--"))
            .collect(),
    )
}

#[test]
fn flags_in_the_documents_exist() {
    let mut seen = 0;
    for name in documents() {
        for line in commands(&name) {
            let Some(mut words) = arguments(&line) else { continue };
            // Every word before it is read, and refused if it is unknown; then nothing is done.
            words.push("--help");
            assert_success(&trunkline(&words, ""), &format!("{name}: {line}"));
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} commands");
}

/// Runs the pages of `docs/start` and `docs/how-to` as a reader would: a block marked with a file name becomes that file,
/// then every `sh` block runs in the same folder. `console` blocks need other machines or never end, and are not run.
#[test]
fn pages_for_beginners_run() {
    let mut ran = 0;
    for name in
        documents().iter().filter(|name| name.starts_with("docs/start/") || name.starts_with("docs/how-to/"))
    {
        let folder = tempfile::tempdir().expect("a folder");
        let text = document(name);
        let mut script = String::from("trunkline() { \"$TRUNKLINE\" \"$@\"; }\n");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```") else { continue };
            let block: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            match info.split_once(' ') {
                Some((_, file)) => std::fs::write(folder.path().join(file), block.join("\n")).unwrap(),
                None if info == "sh" => script.push_str(&(block.join("\n") + "\n")),
                None => {}
            }
        }
        if script.lines().count() == 1 {
            continue;
        }
        std::os::unix::fs::symlink(root().join("experiments"), folder.path().join("experiments")).unwrap();
        let out = Command::new("timeout")
            .args(["120", "sh", "-eu", "-c", &script])
            .env("TRUNKLINE", env!("CARGO_BIN_EXE_trunkline"))
            .env("HOME", folder.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("TRUNKLINE_ARCHIVE")
            .current_dir(folder.path())
            .output()
            .expect("sh runs");
        assert!(out.status.success(), "{name}:\n{script}\n{}", String::from_utf8_lossy(&out.stderr));
        ran += 1;
    }
    assert!(ran >= 8, "only {ran} pages");
}

#[test]
fn the_book_lists_every_page() {
    let summary = document("docs/SUMMARY.md");
    for name in documents().iter().filter_map(|name| name.strip_prefix("docs/")) {
        let listed =
            name == "SUMMARY.md" || summary.contains(&format!("({name})")) || name.starts_with("decisions/0");
        assert!(listed, "docs/SUMMARY.md does not list {name}");
    }
    let readme = document("README.md").lines().count();
    assert!(readme <= 150, "README.md has {readme} lines");
}

/// `docs/reference/cli.md` is what `--help` prints. `BLESS=1` writes it anew.
#[test]
fn the_command_reference_is_the_help() {
    fn add(page: &mut String, command: &[&str]) {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let out = trunkline(&arguments, "");
        assert_success(&out, &command.join(" "));
        let help = String::from_utf8(out.stdout).expect("text");
        let level = "#".repeat(2 + command.len().min(2));
        let title = [&["trunkline"][..], command].concat().join(" ");
        page.push_str(&format!("{level} {title}\n\n```text\n{}\n```\n\n", help.trim_end()));
        let commands = help.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        for line in commands.unwrap_or_default().lines() {
            let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next()).unwrap_or_default();
            if !name.is_empty() && name != "help" {
                add(page, &[command, &[name]].concat());
            }
        }
    }
    let mut page = String::from("# Commands\n\nThe output of `--help` for every command.\n\n");
    add(&mut page, &[]);
    let page = page.trim_end().to_owned() + "\n";
    let path = root().join("docs/reference/cli.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(read(&path), page, "BLESS=1 cargo test -p trunkline --features full --test main documents::");
}

#[test]
fn make_targets_in_the_documents_exist() {
    let makefile = document("Makefile");
    for name in documents() {
        for line in commands(&name) {
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
    for name in documents() {
        let folder = root().join(&name).parent().expect("a document lies in a folder").to_owned();
        let text = document(&name);
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
    let mut fields = BTreeSet::new();
    let mut renamed = None;
    for line in schema.lines().map(str::trim) {
        if line.starts_with("#[serde(") {
            renamed = line.split_once("rename = \"").and_then(|(_, rest)| rest.split('"').next());
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(": ")) {
            let name = renamed.take().unwrap_or(name);
            (!name.contains(' ')).then(|| fields.insert(name));
        }
    }
    assert!(fields.len() > 60, "{fields:?}");
    // `extra` is flattened: its names appear beside the others.
    for field in fields.into_iter().filter(|field| *field != "extra") {
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
        #[cfg(feature = "quic")]
        ("quic", "full"),
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
    use trunkline_run::message::{HEADER, Header, MessageKind, Payload};
    let blocks = blocks(&document("docs/wire.md"), "hex");
    let digits = blocks.concat().lines().map(|l| l.split('#').next().unwrap_or_default()).collect::<String>();
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let message: Vec<u8> = digits.chunks(2).map(byte).collect();
    let header = Header::decode(0x4f87_5b98, &message).expect("a header");
    assert_eq!(
        (header.sequence, header.length, header.response_length, header.kind),
        (0, 64, 0, MessageKind::Pattern)
    );
    assert_eq!(header.sent_at.as_ps(), 22_915_086_000);
    let payload = Payload::new(trunkline_units::Seed(1996), "steady");
    assert!(payload.matches(0, &message[HEADER..]) && message.len() == 64);
}
