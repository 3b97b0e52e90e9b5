//! How connections open: greetings, cookies, strangers.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span, Stream};

use super::{Node, Opening, State};
use crate::connection::Connection;
use crate::options::Options;
use crate::talk::End;
use crate::wire::check::{Check, Way};
use crate::wire::open::{self, COOKIE_BYTES, Greeting, Reason, Terms};

/// Answers to strangers that may wait to leave. Strangers that find more get none.
const ANSWERS: usize = 64;
/// How long a cookie is good: this, and once more.
const COOKIE_LIFE: Span = Span::from_s(16);

/// What strangers must not guess.
#[derive(Debug)]
pub(super) struct Secrets {
    cookies: [u8; 16],
    numbers: [u8; 16],
    drawn: u64,
}

impl Secrets {
    pub fn draw(random: &mut Stream) -> Secrets {
        let mut key = || {
            let words = [random.bits(), random.bits()].map(u64::to_be_bytes);
            words.concat().try_into().expect("two words are sixteen bytes")
        };
        Secrets { cookies: key(), numbers: key(), drawn: 0 }
    }

    /// The number of a connection, which its peer is told: whoever has heard others cannot guess it, nor how cookies are made.
    pub fn number(&mut self) -> u64 {
        self.drawn += 1;
        let mut hasher = SipHasher24::new_with_key(&self.numbers);
        hasher.write(&self.drawn.to_be_bytes());
        hasher.finish128().h1
    }
}

impl Node {
    /// A frame of a peer without a connection, who may think that it has one.
    #[cold]
    pub(super) fn take_stray(&mut self, peer: Peer, frame: &[u8]) {
        self.strangers.frames += 1;
        if let Some(echo) = open::echo(frame) {
            self.answer(peer, Greeting::Unknown { echo });
        }
    }

    pub(super) fn answer(&mut self, peer: Peer, greeting: Greeting) {
        if self.answers.len() < ANSWERS {
            self.answers.push_back((peer, greeting));
        } else {
            self.strangers.unanswered += 1;
        }
    }

    #[cold]
    pub(super) fn take_greeting(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        match Greeting::read(frame) {
            Some(Greeting::Open { client, terms, cookie }) => {
                self.take_open(now, peer, client, &terms, &cookie, frame)
            }
            Some(Greeting::Cookie { client, cookie }) => {
                if let Some(opening) = self.opening(peer, client) {
                    // Only the first is hurried after: whoever sends others would make it hurry for ever.
                    if opening.cookie == [0; COOKIE_BYTES] {
                        (opening.at, opening.tries, opening.measures) = (now, 0, true);
                    } else if opening.cookie != cookie {
                        (opening.asked, opening.measures) = (None, false);
                    }
                    opening.cookie = cookie;
                }
            }
            Some(Greeting::Opened { client, server, terms }) => {
                self.take_opened(now, peer, (client, server), &terms, frame)
            }
            Some(Greeting::Refused { client, reason }) => {
                if let Some(opening) = self.opening(peer, client) {
                    opening.over = Some(match reason {
                        Reason::Full => End::RefusedFull,
                        Reason::Closed => End::RefusedClosed,
                        Reason::Terms => End::RefusedTerms,
                        Reason::Version => End::RefusedVersion,
                        Reason::Key => End::RefusedKey,
                    });
                }
            }
            Some(Greeting::Unknown { echo }) => {
                if let Some(&number) = self.peers.get(&peer)
                    && let State::Standing(connection) = &mut self.slots[number as usize].state
                {
                    connection.take_unknown(&echo);
                    self.wake_up(number);
                }
            }
            None => {
                self.strangers.frames += 1;
                if let Some(client) = Greeting::foreign(frame) {
                    self.answer(peer, Greeting::Refused { client, reason: Reason::Version });
                } else if let Some(client) = Greeting::unacceptable(frame) {
                    let reason = if self.config.accept.is_some() { Reason::Terms } else { Reason::Closed };
                    self.answer(peer, Greeting::Refused { client, reason });
                }
            }
        }
    }

    /// The opening that a server's answer belongs to.
    pub(super) fn opening(&mut self, peer: Peer, client: u64) -> Option<&mut Opening> {
        let number = *self.peers.get(&peer)?;
        self.wake_up(number);
        match &mut self.slots[number as usize].state {
            State::Opening(opening) if opening.client == client => Some(opening),
            _ => None,
        }
    }

    pub(super) fn take_open(
        &mut self,
        now: Instant,
        peer: Peer,
        client: u64,
        terms: &Terms,
        cookie: &[u8; COOKIE_BYTES],
        frame: &[u8],
    ) {
        let Some(accept) = &self.config.accept else {
            return self.answer(peer, Greeting::Refused { client, reason: Reason::Closed });
        };
        if let Some(&number) = self.peers.get(&peer)
            && let State::Standing(connection) = &self.slots[number as usize].state
            && connection.client == client
        {
            // It missed the answer.
            self.slots[number as usize].greet = true;
            return self.wake_up(number);
        }
        // Nobody is let in without the key because he offers less.
        let encrypted = terms.check == Check::Aead;
        if encrypted != (accept.check == Check::Aead) || encrypted && accept.key.is_none() {
            return self.answer(peer, Greeting::Refused { client, reason: Reason::Terms });
        }
        let bucket = now.as_ps() / COOKIE_LIFE.as_ps();
        let good = |bucket: u64| self.cookie(peer, client, bucket) == *cookie;
        if !(good(bucket) || bucket > 0 && good(bucket - 1)) {
            self.strangers.forged += u64::from(*cookie != [0; COOKIE_BYTES]);
            self.strangers.cookies += 1;
            let cookie = self.cookie(peer, client, bucket);
            return self.answer(peer, Greeting::Cookie { client, cookie });
        }
        if accept.key.as_ref().is_some_and(|key| !key.proves(frame)) {
            self.strangers.forged += 1;
            return self.answer(peer, Greeting::Refused { client, reason: Reason::Key });
        }
        let options = Options { mode: terms.mode, check: terms.check, ..accept.clone() }.within_bounds();
        let before = self.peers.get(&peer).copied();
        let mut own = None;
        if let Some(number) = before {
            match &mut self.slots[number as usize].state {
                // What this end opened with a key is not ended by somebody who has none.
                State::Standing(connection) if !connection.is_proven(frame) => {
                    return self.answer(peer, Greeting::Refused { client, reason: Reason::Key });
                }
                State::Standing(connection) => {
                    connection.end(End::Replaced);
                    self.wake_up(number);
                }
                // Both ends open at once: the lower number gives way. Its frame goes unanswered, for the other's counts.
                State::Opening(opening) if opening.client > client => return,
                // Nor is it what this end gets that asked for one with a key.
                State::Opening(opening)
                    if opening.options.key.as_ref().is_some_and(|key| !key.proves(frame)) =>
                {
                    return self.answer(peer, Greeting::Refused { client, reason: Reason::Key });
                }
                State::Opening(_) | State::Free => own = Some(number),
            }
        }
        if own.is_none() && self.connections() >= self.config.connections {
            // One that was replaced makes room once its user has heard of it; the peer will ask again.
            if before.is_none() {
                self.answer(peer, Greeting::Refused { client, reason: Reason::Full });
            }
            return;
        }
        let ids = (client, self.secrets.number());
        let ours = options.terms();
        let mut connection = Connection::new(now, peer, ids, Way::Back, options, ours, terms);
        connection.number_from(self.first);
        connection.take_ways(self.long_ways);
        if let Some(in_flight) = self.lays_from {
            connection.lay_frames(in_flight);
        }
        let state = State::Standing(Box::new(connection));
        let number = match own {
            Some(number) => {
                self.slots[number as usize].state = state;
                number
            }
            None => self.place(peer, state),
        };
        let slot = &mut self.slots[number as usize];
        (slot.greet, slot.opened) = (true, true);
        self.wake_up(number);
    }

    pub(super) fn take_opened(
        &mut self,
        now: Instant,
        peer: Peer,
        (client, server): (u64, u64),
        terms: &Terms,
        frame: &[u8],
    ) {
        let Some(opening) = self.opening(peer, client) else {
            return self.take_opened_again(peer, client, server, frame);
        };
        let options = &opening.options;
        if options.key.as_ref().is_some_and(|key| !key.proves(frame)) {
            // Whoever wrote it has no key; whoever has may still answer.
            self.strangers.forged += 1;
            return;
        }
        if (terms.mode, terms.check) != (options.mode, options.check) {
            opening.over = Some(End::RefusedTerms);
            return;
        }
        let (options, ours, asked) = (options.clone(), options.terms(), opening.asked);
        let mut connection = Connection::new(now, peer, (client, server), Way::Out, options, ours, terms);
        if let Some(asked) = asked {
            connection.met(now, now.since(asked));
        }
        connection.number_from(self.first);
        connection.take_ways(self.long_ways);
        if let Some(in_flight) = self.lays_from {
            connection.lay_frames(in_flight);
        }
        let Some(&number) = self.peers.get(&peer) else { return };
        let slot = &mut self.slots[number as usize];
        slot.state = State::Standing(Box::new(connection));
        slot.opened = true;
    }

    /// A cookie is good for as long as the peer's connection that stands now, if there is one: an old frame must not end
    /// a newer connection.
    pub(super) fn cookie(&self, peer: Peer, client: u64, bucket: u64) -> [u8; COOKIE_BYTES] {
        let standing = match self.peers.get(&peer).map(|&number| &self.slots[number as usize].state) {
            Some(State::Standing(connection)) => connection.server,
            _ => 0,
        };
        let mut hasher = SipHasher24::new_with_key(&self.secrets.cookies);
        hasher.write(&standing.to_be_bytes());
        hasher.write(&client.to_be_bytes());
        hasher.write(&bucket.to_be_bytes());
        hasher.write(peer.as_bytes());
        hasher.finish128().as_bytes()
    }

    /// A server says that a connection stands which does. If it is another one there, the server was restarted and took
    /// an old frame for a new client.
    pub(super) fn take_opened_again(&mut self, peer: Peer, client: u64, server: u64, frame: &[u8]) {
        let Some(&number) = self.peers.get(&peer) else { return };
        if let State::Standing(connection) = &mut self.slots[number as usize].state
            && connection.client == client
            && connection.server != server
            && connection.is_proven(frame)
        {
            connection.end(End::Forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn numbers_of_connections_are_none_of_what_the_secrets_came_from() {
        let mut random = Seed(1).stream("node");
        let mut known = random.clone();
        let mut secrets = Secrets::draw(&mut random);
        let known: Vec<u64> = (0..1000).map(|_| known.bits()).collect();
        let mut numbers: Vec<u64> = (0..1000).map(|_| secrets.number()).collect();
        assert!(numbers.iter().all(|number| !known.contains(number)));
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b), "none comes twice");
    }
}
