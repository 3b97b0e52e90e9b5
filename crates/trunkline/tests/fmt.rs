//! `trunkline fmt` from outside.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::command::TestDir;

const LOOSE: &str = "connection{xmt=a ;rcv = b;\n# why\nprotocol=udp; test = full;duration=1s;}";
const FORMATTED: &str =
    "connection { xmt = a; rcv = b;\n  # why\n  protocol = udp; test = full; duration = 1s; }\n";

#[test]
fn files_are_formatted_in_place() {
    let dir = TestDir::new();
    dir.write("loose.ns", LOOSE);
    dir.write("formatted.ns", FORMATTED);
    fs::set_permissions(dir.path("loose.ns"), fs::Permissions::from_mode(0o600)).expect("permissions");
    symlink("loose.ns", dir.path("link.ns")).expect("a link");
    let check = dir.execute(&["fmt", "--check", "link.ns", "formatted.ns"]);
    assert_eq!((check.status, check.out.as_str()), (1, "link.ns\n"));
    assert_eq!(fs::read_to_string(dir.path("loose.ns")).expect("text"), LOOSE, "--check changes no file");
    let before = dir.execute(&["check", "loose.ns"]).out;
    let ended = dir.execute(&["fmt", "link.ns", "formatted.ns"]);
    assert_eq!((ended.status, ended.out.as_str(), ended.err.as_str()), (0, "", ""));
    assert_eq!(fs::read_to_string(dir.path("loose.ns")).expect("text"), FORMATTED);
    assert!(dir.path("link.ns").is_symlink());
    let mode = fs::metadata(dir.path("loose.ns")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(dir.execute(&["check", "loose.ns"]).out, before, "the plan is the same");
    assert_eq!(dir.execute(&["fmt", "--check", "loose.ns"]).status, 0);
}

#[test]
fn a_text_with_an_error_stays_and_the_others_are_formatted() {
    let dir = TestDir::new();
    let broken = "connection { xmt = \"a; }\n";
    dir.write("broken.ns", broken);
    dir.write("loose.ns", LOOSE);
    let ended = dir.execute(&["fmt", "broken.ns", "nowhere.ns", "loose.ns"]);
    assert_eq!(ended.status, 2);
    assert!(
        ended.err.contains("this string never ends") && ended.err.contains("cannot read nowhere.ns"),
        "{}",
        ended.err
    );
    assert_eq!(fs::read_to_string(dir.path("broken.ns")).expect("text"), broken);
    assert_eq!(fs::read_to_string(dir.path("loose.ns")).expect("text"), FORMATTED);
}

/// The examples look as the program formats them, except the three that the AAI report prints.
#[test]
fn the_experiments_of_the_project_are_formatted() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|extension| extension == "ns")).collect();
    let printed = ["figure-08-blast.ns", "figure-09-cbr.ns", "figure-10-random.ns"];
    let names = files.iter().map(|path| path.to_str().expect("text"));
    let mut words = vec!["fmt", "--check"];
    words.extend(names.filter(|name| !printed.iter().any(|printed| name.ends_with(printed))));
    let ended = TestDir::new().execute(&words);
    assert_eq!((ended.status, ended.out.as_str()), (0, ""));
}
