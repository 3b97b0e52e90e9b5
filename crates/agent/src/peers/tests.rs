//! Tests of the list of peers.

use proptest::prelude::*;

use super::*;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn controller(text: &str, key: u8) -> Peer {
    Peer::controller(name(text), Fingerprint::from_bytes([key; 32]), time(0))
}

fn agent(text: &str, key: u8) -> Peer {
    Peer::agent(name(text), Fingerprint::from_bytes([key; 32]), "lab7:7600".parse().unwrap(), time(0))
}

fn list(peers: &[Peer]) -> PeerList {
    let mut list = PeerList::default();
    for peer in peers {
        list.add(peer.clone(), time(0)).unwrap();
    }
    list
}

#[test]
fn names_are_restricted() {
    for text in ["a", "A-b_c.9", &"x".repeat(MAX_NAME)] {
        assert_eq!(text.parse::<Name>().map(String::from), Ok(text.to_owned()));
    }
    for wrong in ["", "a b", "a/b", "ä", "a\n", "a\0", &"x".repeat(MAX_NAME + 1)] {
        assert_eq!(wrong.parse::<Name>(), Err(InvalidName), "{wrong:?}");
    }
}

#[test]
fn a_host_name_becomes_a_name() {
    for (text, similar) in [("lab7.example", "lab7.example"), ("büro 7\n", "b-ro-7-"), ("x", "x")] {
        assert_eq!(Name::similar_to(text), Some(name(similar)));
    }
    assert_eq!(Name::similar_to(&"x".repeat(100)), Some(name(&"x".repeat(MAX_NAME))));
    for text in ["", "---", "ä"] {
        assert_eq!(Name::similar_to(text), None, "{text}");
    }
}

#[test]
fn names_and_keys_are_unique_within_a_role() {
    let mut list = list(&[controller("alice", 1), agent("alice", 1)]);
    assert_eq!(list.add(controller("alice", 2), time(0)), Err(ChangeError::NameInUse(name("alice"))));
    assert_eq!(list.add(controller("bob", 1), time(0)), Err(ChangeError::KeyInUse(name("alice"))));
    // Adding the same entry again renews it.
    list.add(Peer { expires: Some(time(9)), ..controller("alice", 1) }, time(0)).unwrap();
    assert_eq!(list.peers().len(), 2);
    assert_eq!(
        list.by_key(Role::Controller, Fingerprint::from_bytes([1; 32])).unwrap().expires,
        Some(time(9))
    );
}

#[test]
fn a_revoked_key_stays_revoked_and_its_name_is_free() {
    let mut list = list(&[controller("alice", 1), agent("alice", 2)]);
    let keys = [1, 2].map(|key| Fingerprint::from_bytes([key; 32]));
    assert_eq!(list.revoke(&name("alice"), time(5)), Ok(keys.to_vec()));
    assert_eq!(list.revoke(&name("alice"), time(6)), Err(ChangeError::AlreadyRevoked(name("alice"))));
    assert_eq!(list.revoke(&name("bob"), time(6)), Err(ChangeError::UnknownName(name("bob"))));
    assert_eq!(list.by_key(Role::Controller, keys[0]).unwrap().revoked, Some(time(5)));
    for other in ["alice", "bob"] {
        let result = list.add(controller(other, 1), time(6));
        assert_eq!(result, Err(ChangeError::KeyRevoked(name("alice"))));
    }
    list.add(controller("alice", 3), time(6)).unwrap();
    let found = list.by_name(Role::Controller, &name("alice"), time(6)).unwrap();
    assert_eq!(found.fingerprint, Fingerprint::from_bytes([3; 32]));
}

#[test]
fn an_expired_key_can_be_renewed() {
    let mut list = list(&[Peer { expires: Some(time(10)), ..controller("alice", 1) }]);
    assert_eq!(list.peers()[0].status(time(9)), Status::Active);
    assert_eq!(list.peers()[0].status(time(10)), Status::Expired);
    list.add(controller("alice", 1), time(10)).unwrap();
    assert_eq!(list.peers(), [controller("alice", 1)]);
}

#[test]
fn a_full_list_drops_only_keys_that_are_not_trusted() {
    let key = |index: usize| {
        let mut octets = [0; 32];
        octets[..8].copy_from_slice(&index.to_le_bytes());
        Fingerprint::from_bytes(octets)
    };
    let mut list = PeerList::default();
    for index in 0..MAX_PEERS {
        list.add(Peer::controller(name(&format!("c{index}")), key(index), time(0)), time(0)).unwrap();
    }
    let one_more = Peer::controller(name("one-more"), key(MAX_PEERS), time(0));
    assert_eq!(list.add(one_more.clone(), time(0)), Err(ChangeError::ListFull));
    list.revoke(&name("c7"), time(1)).unwrap();
    list.add(one_more, time(1)).unwrap();
    assert_eq!(list.peers().len(), MAX_PEERS);
    assert_eq!(list.by_key(Role::Controller, key(7)), None);
    assert!(list.to_json().len() < crate::key_store::MAX_FILE as usize);
    assert_eq!(PeerList::parse(list.to_json().as_bytes()).unwrap(), list);
}

#[test]
fn the_file_is_readable() {
    let peers = [
        Peer { expires: Some(time(1_800_000_000)), ..controller("alice", 1) },
        Peer { revoked: Some(time(1_700_000_000)), ..agent("lab7", 2) },
    ];
    let text = list(&peers).to_json();
    assert_eq!(PeerList::parse(text.as_bytes()).unwrap().peers(), peers);
    assert!(text.contains("\"expires\": \"2027-01-15T08:00:00Z\""), "{text}");
    assert!(text.contains("\"address\": \"lab7:7600\""), "{text}");
}

#[test]
fn damaged_files_have_a_cause() {
    let good = list(&[controller("alice", 1), agent("lab7", 2)]).to_json();
    let check = |text: &str, cause: &str| {
        let error = PeerList::parse(text.as_bytes()).expect_err(text).to_string();
        assert!(error.contains(cause) && !error.contains('\n'), "{error}");
    };
    check("", "EOF while parsing");
    check(&good[..good.len() / 2], "EOF while parsing");
    check("[]", "invalid");
    check(&good.replace("\"version\": 1", "\"version\": 2"), "format version 2 is not supported");
    check(&good.replace("alice", "al ice"), "a name has 1 to 64");
    check(&good.replace("0101", "01"), "a fingerprint has 64 hexadecimal digits");
    check(&good.replace("\"added\"", "\"revoke\""), "unknown field `revoke`");
    check(&good.replace("\"agent\"", "\"controller\""), "the controller `lab7` has an address");
    check(&good.replace("\"controller\"", "\"agent\""), "the agent `alice` has no address");
    check(&good.replace("lab7:7600", "lab7"), "an address is");
    check(&good.replace("1970-01-01T00:00:00Z", "yesterday"), "at line");
    let double = good.replace("\"lab7\"", "\"bob\"").replace("\"agent\"", "\"controller\"");
    let double = double.replace("      \"address\": \"lab7:7600\",\n", "").replace("02", "01");
    check(&double, "two entries have the key 0101");
}

proptest! {
    #[test]
    fn arbitrary_files_do_not_panic(text: Vec<u8>, cut in 0usize..1000, octet: u8) {
        let _ = PeerList::parse(&text);
        let mut damaged = list(&[controller("alice", 1), agent("lab7", 2)]).to_json().into_bytes();
        let at = cut % damaged.len();
        damaged[at] = octet;
        let _ = PeerList::parse(&damaged);
        let _ = PeerList::parse(&damaged[..at]);
    }

    #[test]
    fn arbitrary_json_does_not_panic(text in r#"[\[\]{}:,"a-z0-9 ]{0,80}"#, number: i64) {
        let _ = PeerList::parse(text.as_bytes());
        let added = format!(r#"{{"version":1,"peers":[{{"name":"a","role":"agent","added":{number},{text}}}]}}"#);
        let _ = PeerList::parse(added.as_bytes());
        let version = format!(r#"{{"version":{number},"peers":[{text}]}}"#);
        let _ = PeerList::parse(version.as_bytes());
    }
}
