//! The bundles of the wide area, which have a single message: for level-1 converters, and for senders without a
//! converter.

use std::collections::BTreeMap;

use crate::api::OutgoingMessage;
use crate::wire::format2::{self, Bundle, BundleBuilder, Header, Message, Role};

/// Returns the message of a wide-area datagram, or `None` if it is malformed.
pub fn read_single(datagram: &[u8]) -> Option<Message<'_>> {
    let bundle = Bundle::read(datagram).ok()?;
    let (header, message) = (bundle.header(), bundle.messages().next()?);
    let is_valid = header.role == Role::Level1 && header.receiver == format2::packet_address(message.address);
    (is_valid && bundle.count() == 1 && bundle.control().next().is_none()).then_some(message)
}

/// A sender to the wide area without converters: host 1 of a separate site.
#[derive(Debug)]
pub struct WideAreaSender {
    source: u32,
    incarnation: u32,
    /// The next sequence number, by packet address and priority.
    sequences: BTreeMap<(u16, bool), u32>,
    max_octets: usize,
    builder: BundleBuilder,
}

impl WideAreaSender {
    /// Creates a sender with a unique `site` number, an `incarnation` and datagrams of at most `max_octets` octets.
    pub fn new(site: u16, incarnation: u32, max_octets: usize) -> WideAreaSender {
        let source = u32::from(site) << 16 | 1;
        WideAreaSender {
            source,
            incarnation,
            sequences: BTreeMap::new(),
            max_octets,
            builder: BundleBuilder::new(max_octets),
        }
    }

    /// Returns the largest datagram in octets.
    pub fn max_octets(&self) -> usize {
        self.max_octets
    }

    /// Writes the datagram of a message, to be sent to the group of its packet address. Returns its length, or `None`
    /// if the message is too long.
    pub fn encode(&mut self, message: &OutgoingMessage<'_>, into: &mut [u8]) -> Option<usize> {
        let OutgoingMessage { address, priority, max_wait, body } = *message;
        if format2::is_too_long(body, self.max_octets) {
            return None;
        }
        let (to, incarnation) = (format2::packet_address(address), self.incarnation);
        let next = self.sequences.entry((to, priority)).or_default();
        let (source, sequence, max_wait_10us) = (self.source, *next, format2::encode_max_wait(max_wait));
        *next = next.wrapping_add(1);
        let encoded =
            Message { address, source, incarnation, sequence, max_wait_10us, priority, reliable: None, body };
        self.builder.push(&encoded);
        let header =
            Header { role: Role::Level1, number: 1, receiver: to, incarnation, session: 0, sent_before: 0 };
        Some(self.builder.finish(&header, into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_are_numbered_by_packet_address_and_class() {
        let mut sender = WideAreaSender::new(9, 3, 600);
        let mut datagram = vec![0; 600];
        let mut numbers = Vec::new();
        for (address, priority) in
            [(70_000, false), (70_001, false), (70_000, true), (8, false), (70_000, false)]
        {
            let post = OutgoingMessage { address, priority, max_wait: None, body: b"a message" };
            let length = sender.encode(&post, &mut datagram).unwrap();
            let message = read_single(&datagram[..length]).unwrap();
            assert_eq!(
                (message.address, message.priority, message.body),
                (address, priority, &b"a message"[..])
            );
            assert_eq!((message.source, message.incarnation), (9 << 16 | 1, 3));
            numbers.push(message.sequence);
        }
        assert_eq!(numbers, [0, 1, 0, 0, 2]);
        let max_octets = format2::max_body(600);
        let mut encode = |octets| {
            let body = vec![9; octets];
            sender.encode(
                &OutgoingMessage { address: 1, priority: false, max_wait: None, body: &body },
                &mut datagram,
            )
        };
        assert!(encode(max_octets).is_some_and(|length| length <= 600) && encode(max_octets + 1).is_none());
    }

    #[test]
    fn a_datagram_needs_exactly_one_message() {
        let mut sender = WideAreaSender::new(9, 3, 600);
        let mut datagram = vec![0; 600];
        let post = OutgoingMessage { address: 40, priority: false, max_wait: None, body: b"a message" };
        let length = sender.encode(&post, &mut datagram).unwrap();
        datagram[19] ^= 2;
        assert_eq!(read_single(&datagram[..length]), None, "for another packet address");
        datagram[19] ^= 2;
        assert!(read_single(&datagram[..length]).is_some() && read_single(&datagram[..length - 1]).is_none());
    }
}
