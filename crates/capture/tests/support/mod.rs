//! Frames made by hand.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::Ipv4Addr;

use trunkline_capture::packet::{Captured, Link};
use trunkline_llc::Pdu;
use trunkline_llc::token::frame::{Control, MAX_FRAME};
use trunkline_llc::wire::Kind;

/// An Ethernet frame between stations, with a priority tag if it has a priority.
pub fn ethernet(from: u8, to: u8, priority: Option<u8>, kind: u16, content: &[u8]) -> Vec<u8> {
    let mac = |n| if n == 255 { [255; 6] } else { [2, 0, 0, 0, 0, n] };
    let mut frame = [mac(to), mac(from)].concat();
    if let Some(priority) = priority {
        frame.extend([0x81, 0x00, priority << 5, 0]);
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(content);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A PDU's octets.
pub fn pdu(dsap: u8, ssap: u8, kind: Kind, response: bool, information: &[u8]) -> Vec<u8> {
    let pdu = Pdu { dsap, ssap, response, kind, poll: false, information };
    let mut bytes = vec![0; pdu.length()];
    pdu.write(&mut bytes);
    bytes
}

/// A PDU in its frame.
pub fn llc(
    from: (u8, u8),
    to: (u8, u8),
    priority: u8,
    kind: Kind,
    response: bool,
    information: &[u8],
) -> Vec<u8> {
    let bytes = pdu(to.1, from.1, kind, response, information);
    ethernet(from.0, to.0, Some(priority), bytes.len() as u16, &bytes)
}

/// A frame of the ring.
pub fn control(from: u8, to: u8, control: Control) -> Vec<u8> {
    let mut bytes = [0; MAX_FRAME];
    let length = control.write(&mut bytes);
    ethernet(from, to, Some(7), length as u16 - 1, &bytes[1..length])
}

/// An IPv4 packet with TCP (6), UDP (17) or anything in it.
pub fn ipv4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut content = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    match protocol {
        6 => content.extend([0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x18, 1, 0, 0, 0, 0, 0]),
        17 => content.extend([((8 + payload.len()) as u16).to_be_bytes(), [0; 2]].concat()),
        _ => {}
    }
    content.extend(payload);
    let length = (20 + content.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(content);
    packet
}

/// Returns the packet as captured.
pub fn captured(at_ns: u64, bytes: &[u8]) -> Captured<'_> {
    Captured { link: Link::Ethernet, at_ns, bytes, original: bytes.len() as u32, tag: None }
}
