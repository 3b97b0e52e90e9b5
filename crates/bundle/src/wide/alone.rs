//! A message alone in its bundle, as it crosses the wide area: for converters of level 1, and for who is there without one.

use std::collections::BTreeMap;

use crate::host::Post;
use crate::wire::wide::{self, Builder, Bundle, Header, Message, Role};

/// The message of a datagram of the wide area; none if that is no such datagram.
pub fn read(datagram: &[u8]) -> Option<Message<'_>> {
    let bundle = Bundle::read(datagram).ok()?;
    let (header, message) = (bundle.header(), bundle.messages().next()?);
    let is_so = header.role == Role::Level1 && header.to == wide::packet_of(message.address);
    (is_so && bundle.count() == 1 && bundle.control().next().is_none()).then_some(message)
}

/// Who sends messages to the wide area without converters: host 1 of a site of its own.
#[derive(Debug)]
pub struct Caster {
    source: u32,
    life: u32,
    /// The number of the next message, by packet address and whether it has priority.
    next: BTreeMap<(u16, bool), u32>,
    longest: usize,
    builder: Builder,
}

impl Caster {
    /// Of a site that nobody else is, in its `life`, with datagrams of at most `longest` octets.
    pub fn new(site: u16, life: u32, longest: usize) -> Caster {
        let source = u32::from(site) << 16 | 1;
        Caster { source, life, next: BTreeMap::new(), longest, builder: Builder::new(longest) }
    }

    /// Most octets of a datagram.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Writes a message's datagram, which has the packet address's multicast address; how many octets. None: it is too long.
    pub fn cast(&mut self, post: &Post<'_>, into: &mut [u8]) -> Option<usize> {
        let Post { address, priority, within, body } = *post;
        if wide::is_too_long(body, self.longest) {
            return None;
        }
        let (to, life) = (wide::packet_of(address), self.life);
        let next = self.next.entry((to, priority)).or_default();
        let (source, sequence, within) = (self.source, *next, wide::within(within));
        *next = next.wrapping_add(1);
        let message = Message { address, source, life, sequence, within, priority, reliable: None, body };
        self.builder.push(&message);
        let header = Header { role: Role::Level1, number: 1, to, life, session: 0, before: 0 };
        Some(self.builder.finish(&header, into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cast_is_read_and_numbered_by_packet_address_and_class() {
        let mut caster = Caster::new(9, 3, 600);
        let mut datagram = vec![0; 600];
        let mut numbers = Vec::new();
        for (address, priority) in
            [(70_000, false), (70_001, false), (70_000, true), (8, false), (70_000, false)]
        {
            let post = Post { address, priority, within: None, body: b"a message" };
            let length = caster.cast(&post, &mut datagram).unwrap();
            let message = read(&datagram[..length]).unwrap();
            assert_eq!(
                (message.address, message.priority, message.body),
                (address, priority, &b"a message"[..])
            );
            assert_eq!((message.source, message.life), (9 << 16 | 1, 3));
            numbers.push(message.sequence);
        }
        assert_eq!(numbers, [0, 1, 0, 0, 2]);
        let longest = wide::longest_body(600);
        let mut cast = |octets| {
            let body = vec![9; octets];
            caster.cast(&Post { address: 1, priority: false, within: None, body: &body }, &mut datagram)
        };
        assert!(cast(longest).is_some_and(|length| length <= 600) && cast(longest + 1).is_none());
    }

    #[test]
    fn what_is_not_alone_is_none() {
        let mut caster = Caster::new(9, 3, 600);
        let mut datagram = vec![0; 600];
        let post = Post { address: 40, priority: false, within: None, body: b"a message" };
        let length = caster.cast(&post, &mut datagram).unwrap();
        datagram[19] ^= 2;
        assert_eq!(read(&datagram[..length]), None, "to another packet address");
        datagram[19] ^= 2;
        assert!(read(&datagram[..length]).is_some() && read(&datagram[..length - 1]).is_none());
    }
}
