//! Tests of the directory and its files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;

/// The variable with the directory and the prefix of names for [`processes_take_turns`] in a child process.
const CHILD: &str = "TRUNKLINE_TEST_KEY_STORE";
/// Peers that each process adds.
const PEERS_EACH: usize = 25;

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn controller(name: &str) -> Peer {
    let fingerprint = Fingerprint::of_public_key(name.as_bytes());
    Peer::controller(name.parse().unwrap(), fingerprint, now())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Checks that an error is one line that names the file and the cause.
fn check<T>(result: Result<T, Error>, file: &Path, cause: &str) {
    let text = result.map(drop).unwrap_err().to_string();
    assert!(text.contains(&file.display().to_string()) && text.contains(cause), "{text}");
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn keys_and_peers_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("a/keys");
    let store = KeyStore::open(&directory).unwrap();
    assert_eq!(store.peers().unwrap(), PeerList::default());
    let identity = store.identity().unwrap();
    store.add(controller("alice"), now()).unwrap();
    store.add(controller("bob"), now()).unwrap();
    assert_eq!(store.revoke(&"bob".parse().unwrap(), now()).unwrap(), [controller("bob").fingerprint]);

    let again = KeyStore::open(&directory).unwrap();
    assert_eq!(again.identity().unwrap().fingerprint(), identity.fingerprint());
    let bob = Peer { revoked: Some(now()), ..controller("bob") };
    assert_eq!(again.peers().unwrap().peers(), [controller("alice"), bob]);

    assert_eq!(mode(&directory), 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
}

#[test]
fn a_refused_change_leaves_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = KeyStore::open(&folder.path().join("keys")).unwrap();
    store.add(controller("alice"), now()).unwrap();
    let before = store.peers_version().unwrap();
    let other = Peer { fingerprint: Fingerprint::from_bytes([1; 32]), ..controller("alice") };
    assert!(matches!(store.add(other, now()), Err(Error::Change(ChangeError::NameInUse(_)))));
    assert_eq!(store.peers_version().unwrap(), before);
}

#[test]
fn access_by_other_users_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let store = KeyStore::open(&directory).unwrap();
    store.identity().unwrap();
    store.add(controller("alice"), now()).unwrap();
    let (key, peers) = (directory.join(KEY_FILE), directory.join(PEERS_FILE));
    for wrong in [0o640, 0o604, 0o620, 0o602, 0o610] {
        set_mode(&key, wrong);
        check(store.identity(), &key, &format!("(mode {wrong:04o}): run chmod 0600"));
        set_mode(&peers, wrong);
        check(store.peers(), &peers, "run chmod 0600");
        check(store.add(controller("bob"), now()), &peers, "run chmod 0600");
    }
    set_mode(&key, 0o400);
    set_mode(&peers, 0o600);
    store.identity().unwrap();
    for wrong in [0o750, 0o705, 0o770, 0o711] {
        set_mode(&directory, wrong);
        check(KeyStore::open(&directory), &directory, &format!("(mode {wrong:04o}): run chmod 0700"));
    }
}

#[test]
fn files_of_another_user_are_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let store = KeyStore::open(&directory).unwrap();
    store.identity().unwrap();
    std::os::unix::fs::chown(directory.join(KEY_FILE), Some(1), None).unwrap();
    check(store.identity(), &directory.join(KEY_FILE), "belongs to another user (user id 1)");
    std::os::unix::fs::chown(&directory, Some(1), None).unwrap();
    check(KeyStore::open(&directory), &directory, "belongs to another user (user id 1)");
}

#[test]
fn damaged_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let store = KeyStore::open(&directory).unwrap();
    store.add(controller("alice"), now()).unwrap();
    let pem = store.identity().unwrap().to_pem();
    let (key, peers) = (directory.join(KEY_FILE), directory.join(PEERS_FILE));

    let not_ed25519 = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (contents, cause) in [
        ("", "is damaged: not a private key in PEM"),
        (&pem[..pem.len() / 2], "is damaged: not a private key in PEM"),
        (not_ed25519, "is damaged: not an Ed25519 key in PKCS#8"),
    ] {
        fs::write(&key, contents).unwrap();
        check(store.identity(), &key, cause);
        assert_eq!(fs::read(&key).unwrap(), contents.as_bytes(), "a damaged key is not replaced");
    }
    for (contents, cause) in [
        (&b""[..], "is damaged: EOF while parsing"),
        (b"{\"version\": 1, \"peers\": [{}]}", "is damaged: missing field `name`"),
        (b"\xff\xfe", "is damaged: expected value"),
        (&vec![b' '; MAX_FILE as usize + 1], "is damaged: larger than"),
    ] {
        fs::write(&peers, contents).unwrap();
        check(store.peers(), &peers, cause);
        check(store.add(controller("bob"), now()), &peers, cause);
    }
    fs::remove_file(&key).unwrap();
    fs::create_dir(&key).unwrap();
    check(store.identity(), &key, "is not a regular file");
    fs::remove_file(&peers).unwrap();
    nix::unistd::mkfifo(&peers, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    check(store.peers(), &peers, "is not a regular file");

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    check(KeyStore::open(&file), &file, "is not a directory");
    check(KeyStore::open(&file.join("keys")), &file.join("keys"), "cannot create");
}

#[test]
fn a_stopped_writer_does_not_stop_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = KeyStore::open(&folder.path().join("keys")).unwrap();
    let lock = store.lock().unwrap();
    check(
        store.add(controller("alice"), now()),
        &store.directory().join(LOCK_FILE),
        "another process has locked",
    );
    drop(lock);
    store.add(controller("alice"), now()).unwrap();
}

#[test]
fn an_open_file_does_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = KeyStore::open(&folder.path().join("keys")).unwrap();
    store.add(controller("alice"), now()).unwrap();
    let before = store.peers().unwrap();
    let mut opened = File::open(store.directory().join(PEERS_FILE)).unwrap();
    store.add(controller("bob"), now()).unwrap();
    let mut text = Vec::new();
    opened.read_to_end(&mut text).unwrap();
    assert_eq!(PeerList::parse(&text).unwrap(), before);
}

#[test]
fn files_of_a_killed_writer_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let store = KeyStore::open(&directory).unwrap();
    store.add(controller("alice"), now()).unwrap();
    let unfinished = directory.join(".new-abc");
    fs::write(&unfinished, "{\"version\"").unwrap();
    assert_eq!(store.peers().unwrap().peers().len(), 1);
    store.add(controller("bob"), now()).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(store.peers().unwrap().peers().len(), 2);
}

/// Repeats a change while others have the lock, which is not fair, for longer than a change waits on a busy machine.
fn until_unlocked<T>(change: impl Fn() -> Result<T, Error>) -> T {
    loop {
        match change() {
            Err(Error::Locked { .. }) => {}
            result => return result.unwrap(),
        }
    }
}

/// Runs itself as child processes, which add peers and generate the key at the same time, while this process reads.
#[test]
fn processes_take_turns() {
    let add_all = |directory: &Path, prefix: &str| {
        let store = KeyStore::open(directory).unwrap();
        let fingerprint = until_unlocked(|| store.identity()).fingerprint();
        for index in 0..PEERS_EACH {
            until_unlocked(|| store.add(controller(&format!("{prefix}{index}")), now()));
        }
        fingerprint
    };
    if let Some(value) = std::env::var_os(CHILD) {
        let value = value.into_string().unwrap();
        let (directory, prefix) = value.split_once('|').unwrap();
        // The parent compares the keys.
        println!("key {}", add_all(Path::new(directory), prefix));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let children = ["a", "b", "c"].map(|prefix| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "key_store::tests::processes_take_turns", "--nocapture"]);
        command.env(CHILD, format!("{}|{prefix}", directory.display()));
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    });
    // Readers need no lock.
    let store = KeyStore::open(&directory).unwrap();
    let fingerprint = std::thread::scope(|scope| {
        let writer = scope.spawn(|| add_all(&directory, "d"));
        let mut count = 0;
        while !writer.is_finished() {
            let length = store.peers().unwrap().peers().len();
            assert!(length >= count);
            count = length;
        }
        writer.join().unwrap()
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(&format!("key {fingerprint}")), "{text}");
    }
    assert_eq!(store.peers().unwrap().peers().len(), 4 * PEERS_EACH);
    // No temporary file is left: the key, the list and the lock.
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
}
