//! Tests of the decisions of an agent.

use super::*;

fn setup() -> (tempfile::TempDir, TrustedKeys, KeyStore) {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("keys");
    let trusted = TrustedKeys::new(KeyStore::open(&directory).unwrap()).unwrap();
    let other_process = KeyStore::open(&directory).unwrap();
    (folder, trusted, other_process)
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn key(octet: u8) -> Fingerprint {
    Fingerprint::from_bytes([octet; 32])
}

#[test]
fn changes_by_other_processes_apply_at_once() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    assert_eq!(trusted.admit(key(1), now), Err(RefusalCause::Unknown));
    for round in 0..50 {
        let alice = name(&format!("alice{round}"));
        store.add(Peer::controller(alice.clone(), key(round), now), now).unwrap();
        assert_eq!(trusted.admit(key(round), now), Ok(Admission::Controller(alice.clone())));
        store.revoke(&alice, now).unwrap();
        assert_eq!(trusted.admit(key(round), now), Err(RefusalCause::Revoked(alice)));
    }
}

#[test]
fn a_settled_list_is_not_read_again() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    store.add(Peer::controller(name("alice"), key(1), now), now).unwrap();
    let later = now + SignedDuration::from_secs(10);
    for time in [now, later] {
        assert!(trusted.admit(key(1), time).is_ok());
        assert_eq!(lock(&trusted.cache).as_ref().unwrap().is_settled, time == later);
    }
    // A stored list that differs from the file shows that the file is not read.
    lock(&trusted.cache).as_mut().unwrap().peers = PeerList::default();
    assert_eq!(trusted.admit(key(1), later), Err(RefusalCause::Unknown));
    store.add(Peer::controller(name("bob"), key(2), now), now).unwrap();
    assert!(trusted.admit(key(1), later).is_ok());
}

#[test]
fn agents_are_not_controllers() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    store.add(Peer::agent(name("lab7"), key(1), "lab7:7600".parse().unwrap(), now), now).unwrap();
    assert_eq!(trusted.admit(key(1), now), Err(RefusalCause::Unknown));
}

#[test]
fn a_damaged_list_refuses_all() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    store.add(Peer::controller(name("alice"), key(1), now), now).unwrap();
    assert!(trusted.admit(key(1), now).is_ok());
    std::fs::write(store.directory().join("peers.json"), "{").unwrap();
    let Err(RefusalCause::KeyStore(text)) = trusted.admit(key(1), now) else { panic!("the key is admitted") };
    assert!(text.contains("peers.json is damaged: EOF"), "{text}");
    std::fs::remove_file(store.directory().join("peers.json")).unwrap();
    assert_eq!(trusted.admit(key(1), now), Err(RefusalCause::Unknown));
}

#[test]
fn an_enrolment_needs_the_one_time_key() {
    let (_folder, trusted, _) = setup();
    let now = Timestamp::now();
    let request = |text, octet| EnrolRequest { name: name(text), fingerprint: key(octet) };
    let issue = || {
        let join = trusted.issue_join("lab7:7600".parse().unwrap(), JOIN_LIFETIME, now).unwrap();
        join.identity().fingerprint()
    };
    assert!(matches!(
        trusted.enrol(key(9), &request("alice", 1), now),
        Err(EnrolError::OneTimeKey(OneTimeKeyError::Unknown))
    ));
    let one_time_key = issue();
    assert_eq!(trusted.admit(one_time_key, now), Ok(Admission::Enrolment));
    trusted.enrol(one_time_key, &request("alice", 1), now).unwrap();
    assert_eq!(trusted.admit(one_time_key, now), Err(OneTimeKeyError::Used.into()));
    assert_eq!(trusted.admit(key(1), now), Ok(Admission::Controller(name("alice"))));
    // A controller is not enough.
    assert!(trusted.enrol(key(1), &request("bob", 2), now).is_err());

    // A failed enrolment makes the key void too.
    let one_time_key = issue();
    let error = trusted.enrol(one_time_key, &request("alice", 2), now).unwrap_err().to_string();
    assert!(error.contains("the name `alice` is in use"), "{error}");
    assert_eq!(trusted.admit(one_time_key, now), Err(OneTimeKeyError::Used.into()));

    // The one-time key would be in the list as long as the join string is in the history of a shell.
    let one_time_key = issue();
    let request = EnrolRequest { name: name("bob"), fingerprint: one_time_key };
    assert!(matches!(trusted.enrol(one_time_key, &request, now), Err(EnrolError::NotOwnKey)));
    assert_eq!(trusted.admit(one_time_key, now), Err(OneTimeKeyError::Used.into()));
    let one_time_key = issue();
    let another = issue();
    assert_eq!(trusted.admit(one_time_key, now), Err(RefusalCause::Unknown));
    trusted.cancel_join();
    assert_eq!(trusted.admit(another, now), Err(RefusalCause::Unknown));
}

#[test]
fn the_clock_does_not_change_how_long_a_join_string_is_valid() {
    let (_folder, trusted, _) = setup();
    let year = SignedDuration::from_hours(365 * 24);
    let issue = |lifetime, now| {
        let join = trusted.issue_join("lab7:7600".parse().unwrap(), lifetime, now).unwrap();
        join.identity().fingerprint()
    };
    let now = Timestamp::now();
    for clock in [now - year, now, now + year] {
        let one_time_key = issue(JOIN_LIFETIME, clock);
        for later in [now - year, now, now + year] {
            assert_eq!(trusted.admit(one_time_key, later), Ok(Admission::Enrolment), "{clock} {later}");
        }
        for lifetime in [SignedDuration::ZERO, -JOIN_LIFETIME] {
            let one_time_key = issue(lifetime, clock);
            assert_eq!(trusted.admit(one_time_key, now - year), Err(OneTimeKeyError::Expired.into()));
        }
    }
}

/// A decision within a handshake does no I/O.
#[test]
fn the_stored_list_is_used_until_it_is_refreshed() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    store.add(Peer::controller(name("alice"), key(1), now), now).unwrap();
    assert_eq!(trusted.admit_by_stored_list(key(1), now), Err(RefusalCause::Unknown));
    trusted.refresh(now);
    assert!(trusted.admit_by_stored_list(key(1), now).is_ok());
}

#[test]
fn only_one_of_many_enrols() {
    let (_folder, trusted, store) = setup();
    let now = Timestamp::now();
    let join = trusted.issue_join("lab7:7600".parse().unwrap(), JOIN_LIFETIME, now).unwrap();
    let one_time_key = join.identity().fingerprint();
    let enrolled = std::thread::scope(|scope| {
        let enrol = |index: u8| {
            let request = EnrolRequest { name: name(&format!("c{index}")), fingerprint: key(index) };
            trusted.enrol(one_time_key, &request, now).is_ok()
        };
        let threads: Vec<_> = (0..8).map(|index| scope.spawn(move || enrol(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
    });
    assert_eq!((enrolled, store.peers().unwrap().peers().len()), (1, 1));
}

#[test]
fn refusals_are_one_line() {
    let refusal = Refusal { fingerprint: key(0xab), cause: RefusalCause::Revoked(name("alice")) };
    let expected = format!("refused the key {}: it was revoked (`alice`)", "ab".repeat(32));
    assert_eq!(refusal.to_string(), expected);
}
