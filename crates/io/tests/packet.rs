//! Packet sockets on a veth pair in a network namespace of the test's thread. Needs root; skipped without.

#![allow(clippy::disallowed_methods, reason = "these tests run over a real interface")]

use std::io;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use trunkline_io::must::skip;
use trunkline_io::packet::{self, Frame, Options, PacketSocket, Ring, Tag};
use trunkline_units::Span;

/// Runs `test` in a namespace with a veth pair `left` and `right`. Waits until both are up, because frames sent
/// before are lost.
fn with_veth_pair(test: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let done = scope.spawn(|| {
            if let Err(e) = unshare(CloneFlags::CLONE_NEWNET) {
                return skip(format_args!("no network namespace ({e})"));
            }
            let script = "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; \
                          ip link add left type veth peer name right && ip link set left up && ip link set right up && \
                          for try in $(seq 500); do test $(ip link show up | grep -c 'state UP') = 2 && exit; sleep 0.02; \
                          done; exit 1";
            let made = Command::new("sh").args(["-c", script]).status();
            if !made.is_ok_and(|s| s.success()) {
                return skip("no pair of interfaces (is iproute2 installed?)");
            }
            test();
        });
        done.join().expect("the test holds");
    });
}

const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Builds a frame with this type or length and an inline tag.
fn frame(tag: Option<Tag>, kind: u16, content: &[u8]) -> Vec<u8> {
    let tag = tag.map(Tag::octets);
    [&TO[..], &FROM, tag.as_ref().map_or(&[], |t| &t[..]), &kind.to_be_bytes(), content].concat()
}

/// Options to receive all frames.
fn everything() -> Options {
    Options { promiscuous: true, outgoing: true, ..Options::default() }
}

const PRIORITY_5: Tag = Tag { protocol: 0x8100, control: 5 << 13 };
const VLAN_7: Tag = Tag { protocol: 0x8100, control: 3 << 13 | 7 };

#[test]
fn frame_arrives_with_its_tag() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let right = PacketSocket::open("right", &everything()).unwrap();
        assert_eq!(left.hardware(), packet::ETHERNET);
        let mut buffer = [0; 2048];
        assert_eq!(right.try_receive(&mut buffer).unwrap(), None);
        for tag in [None, Some(PRIORITY_5), Some(VLAN_7)] {
            assert!(left.send(&frame(tag, 60, &[7; 60])).unwrap());
            assert!(right.wait(Span::from_s(5)).unwrap());
            let got = right.receive(&mut buffer).unwrap();
            let want = frame(None, 60, &[7; 60]);
            assert_eq!((got.bytes, got.original, got.tag, got.outgoing), (&want[..], want.len(), tag, false));
            assert!(got.at_ns > 1_600_000_000_000_000_000, "{}", got.at_ns);
        }
        // With and without timestamps.
        for timestamps in [true, false] {
            let right = PacketSocket::open("right", &Options { timestamps, ..everything() }).unwrap();
            for tag in [None, Some(PRIORITY_5), Some(VLAN_7)] {
                assert!(left.send(&frame(tag, 60, &[7; 60])).unwrap());
                let got = right.receive_tagged(&mut buffer, true).unwrap();
                assert_eq!(got, (frame(None, 60, &[7; 60]).len(), tag), "{timestamps}");
            }
        }
        assert_eq!((PRIORITY_5.priority(), PRIORITY_5.vlan()), (5, 0));
        assert_eq!((VLAN_7.priority(), VLAN_7.vlan()), (3, 7));
        // A socket does not receive its own frames; another socket on the same interface does.
        let beside = PacketSocket::open("left", &everything()).unwrap();
        let deaf = PacketSocket::open("left", &Options::default()).unwrap();
        left.send(&frame(None, 0x88B5, &[1; 50])).unwrap();
        assert!(beside.receive(&mut buffer).unwrap().outgoing);
        assert_eq!(left.try_receive(&mut buffer).unwrap(), None);
        assert_eq!(deaf.try_receive(&mut buffer).unwrap(), None);
    });
}

#[test]
fn truncated_frame_reports_its_length() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let mut options = everything();
        let right = PacketSocket::open("right", &options).unwrap();
        options.filter = packet::truncate_to(100);
        let snapped = PacketSocket::open("right", &options).unwrap();
        let long = frame(None, 0x88B5, &[3; 1000]);
        left.send(&long).unwrap();
        let mut small = [0; 64];
        let got = right.receive(&mut small).unwrap();
        assert_eq!((got.bytes, got.original), (&long[..64], 1014));
        let mut buffer = [0; 2048];
        let got = snapped.receive(&mut buffer).unwrap();
        assert_eq!((got.bytes, got.original), (&long[..100], 1014));
        assert_eq!(left.send(&[0; 13]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(left.send(&[0; 4000]).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    });
}

#[test]
fn llc_filter_passes_lengths_and_priorities() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let options = Options { promiscuous: true, filter: packet::llc_only(), ..Options::default() };
        let right = PacketSocket::open("right", &options).unwrap();
        let mut expected = Vec::new();
        for (kind, passes) in [(0x0800, false), (1500, true), (1501, false), (3, true), (0x88B5, false)] {
            for tag in [None, Some(PRIORITY_5)] {
                left.send(&frame(tag, kind, &[1; 46])).unwrap();
                if passes {
                    expected.push((kind, tag));
                }
            }
        }
        let mut buffer = [0; 2048];
        let mut got = Vec::new();
        while right.wait(Span::from_ms(200)).unwrap() {
            let frame = right.receive(&mut buffer).unwrap();
            got.push((u16::from_be_bytes([frame.bytes[12], frame.bytes[13]]), frame.tag));
        }
        assert_eq!(got, expected);
        assert_eq!(right.take_counters().unwrap().frames, 4);
        assert_eq!(right.take_counters().unwrap().frames, 0, "it counts anew");
    });
}

#[test]
fn ring_and_socket_receive_the_same() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let right = PacketSocket::open("right", &everything()).unwrap();
        let mut ring = Ring::open("right", &everything(), 1 << 20).unwrap();
        assert_eq!(ring.take(|_| panic!("nothing was sent")), 0);
        let tags = [None, Some(PRIORITY_5), Some(VLAN_7)];
        for n in 0..100u16 {
            let content = vec![n as u8; 46 + usize::from(n) * 3];
            left.send(&frame(tags[usize::from(n) % 3], 0x88B5, &content)).unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 100 && ring.socket().wait(Span::from_s(5)).unwrap() {
            ring.take(|f| got.push((f.bytes.to_vec(), f.original, f.at_ns, f.tag, f.outgoing)));
        }
        let mut buffer = [0; 2048];
        for (n, (bytes, original, at_ns, tag, outgoing)) in got.iter().enumerate() {
            let want =
                right.try_receive(&mut buffer).unwrap().expect("the socket has each frame of the ring");
            let ring = Frame { bytes, original: *original, at_ns: *at_ns, tag: *tag, outgoing: *outgoing };
            assert_eq!(ring, want, "frame {n}");
        }
        assert_eq!(got.len(), 100);
        assert_eq!(
            ring.socket().take_counters().unwrap(),
            packet::PacketCounters { frames: 100, dropped: 0 }
        );
    });
}

#[test]
fn full_ring_counts_drops() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        // On the sending side, where frames are received before the call returns.
        let mut ring = Ring::open("left", &everything(), 0).unwrap();
        let sent = 2_000u32;
        for n in 0..sent {
            let content = [&n.to_be_bytes()[..], &[0; 1000]].concat();
            left.send(&frame(None, 0x88B5, &content)).unwrap();
        }
        let mut got = Vec::new();
        while ring.socket().wait(Span::from_ms(200)).unwrap() {
            ring.take(|f| got.push(u32::from_be_bytes(f.bytes[14..18].try_into().unwrap())));
        }
        let counted = ring.socket().take_counters().unwrap();
        assert_eq!((counted.frames, counted.frames - counted.dropped), (sent.into(), got.len() as u64));
        assert!(counted.dropped > 1_000, "two blocks of 256 KiB hold less than 500 such frames: {counted:?}");
        assert!(got.is_sorted() && got[0] == 0, "in order, from the first");
        // The ring has free blocks again.
        left.send(&frame(None, 0x88B5, &[9; 46])).unwrap();
        let mut after = 0;
        while ring.socket().wait(Span::from_ms(200)).unwrap() {
            after += ring.take(|f| assert_eq!(f.bytes[14], 9));
        }
        assert_eq!(after, 1);
    });
}

#[test]
fn missing_or_removed_interface_is_an_error() {
    with_veth_pair(|| {
        let open = |name| PacketSocket::open(name, &Options::default());
        assert_eq!(open("nowhere").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        let right = open("right").unwrap();
        let gone = Command::new("ip").args(["link", "del", "left"]).status().unwrap();
        assert!(gone.success());
        let mut buffer = [0; 64];
        let error = right.receive(&mut buffer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN), "{error}");
        assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
    });
}

#[test]
fn address_filter_passes_unicast_and_broadcast() {
    with_veth_pair(|| {
        let left = PacketSocket::open("left", &Options::default()).unwrap();
        let filter = packet::llc_to(TO);
        let right = PacketSocket::open("right", &Options { filter, address: Some(TO), ..Options::default() })
            .unwrap();
        let to = |address: [u8; 6], kind: u16, mark: u8| {
            [&address[..], &FROM, &kind.to_be_bytes(), &[mark; 46]].concat()
        };
        let frames = [
            (to(TO, 46, 1), true),
            (to([2, 0, 0, 0, 0, 3], 46, 2), false),
            (to([0xFF; 6], 46, 3), true),
            (to([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE], 46, 4), false),
            (to(TO, 0x0800, 5), false),
            (to([0xFF; 6], 0x0806, 6), false),
            (to([3, 0, 0, 0, 0, 2], 46, 7), false),
            (to(TO, 1500, 8), true),
        ];
        let all: Vec<u8> = frames.iter().flat_map(|(frame, _)| frame.clone()).collect();
        let ends: Vec<usize> = (1..=frames.len()).map(|n| n * frames[0].0.len()).collect();
        assert_eq!(left.send_many(&all, &ends).unwrap(), frames.len());
        let mut buffer = [0; 2048];
        let mut got: Vec<Vec<u8>> = Vec::new();
        while got.last() != Some(&frames[7].0) && right.wait(Span::from_s(20)).unwrap() {
            got.push(right.receive(&mut buffer).unwrap().bytes.to_vec());
        }
        let passed: Vec<Vec<u8>> =
            frames.into_iter().filter(|(_, passes)| *passes).map(|(frame, _)| frame).collect();
        assert_eq!(got, passed);
        right.limit_waiting(Some(Span::from_ms(5))).unwrap();
        assert_eq!(right.receive(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
}
