//! Handshakes: open frames, cookies, and unknown peers.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use trunkline_endpoint::Peer;
use trunkline_units::{Instant, Span, Stream};

use super::{Node, Opening, SlotState};
use crate::api::CloseReason;
use crate::connection::Connection;
use crate::options::Options;
use crate::wire::check::{Check, Direction};
use crate::wire::handshake::{self, COOKIE_BYTES, Handshake, RefusalReason, TransportParameters};

/// Maximum number of queued replies to unknown peers; further ones are dropped.
const MAX_PENDING_REPLIES: usize = 64;
/// A cookie is valid for one to two times this time.
const COOKIE_LIFETIME: Span = Span::from_s(16);

/// Secrets that peers must not be able to guess.
#[derive(Debug)]
pub(super) struct Secrets {
    cookie_key: [u8; 16],
    number_key: [u8; 16],
    numbers_drawn: u64,
}

impl Secrets {
    pub fn draw(random: &mut Stream) -> Secrets {
        let mut key = || {
            let words = [random.bits(), random.bits()].map(u64::to_be_bytes);
            words.concat().try_into().expect("two words are sixteen bytes")
        };
        Secrets { cookie_key: key(), number_key: key(), numbers_drawn: 0 }
    }

    /// Returns a new connection number. It is sent in the clear; knowing other numbers does not reveal it, or the key
    /// of the cookies.
    pub fn next_connection_number(&mut self) -> u64 {
        self.numbers_drawn += 1;
        let mut hasher = SipHasher24::new_with_key(&self.number_key);
        hasher.write(&self.numbers_drawn.to_be_bytes());
        hasher.finish128().h1
    }
}

impl Node {
    /// Processes a frame of a peer without a connection; the peer may have an old connection.
    #[cold]
    pub(super) fn receive_from_unknown_peer(&mut self, peer: Peer, frame: &[u8]) {
        self.unknown_peer_stats.frames += 1;
        if let Some(fingerprint) = handshake::fingerprint(frame) {
            self.queue_reply(peer, Handshake::Unknown { fingerprint });
        }
    }

    /// Queues a reply; drops it if too many are queued.
    pub(super) fn queue_reply(&mut self, peer: Peer, handshake: Handshake) {
        if self.replies.len() < MAX_PENDING_REPLIES {
            self.replies.push_back((peer, handshake));
        } else {
            self.unknown_peer_stats.unanswered += 1;
        }
    }

    fn refuse(&mut self, peer: Peer, client_id: u64, reason: RefusalReason) {
        self.queue_reply(peer, Handshake::Refused { client_id, reason });
    }

    #[cold]
    pub(super) fn receive_handshake(&mut self, now: Instant, peer: Peer, frame: &[u8]) {
        match Handshake::read(frame) {
            Some(Handshake::Open { client_id, parameters, cookie }) => {
                self.process_open(now, peer, client_id, &parameters, &cookie, frame)
            }
            Some(Handshake::Cookie { client_id, cookie }) => {
                if let Some(opening) = self.find_opening(peer, client_id) {
                    // Only the first cookie triggers an immediate attempt; otherwise a flood of cookies would trigger
                    // a flood of attempts.
                    if opening.cookie == [0; COOKIE_BYTES] {
                        (opening.next_attempt, opening.attempts, opening.can_measure_rtt) = (now, 0, true);
                    } else if opening.cookie != cookie {
                        (opening.sent_at, opening.can_measure_rtt) = (None, false);
                    }
                    opening.cookie = cookie;
                }
            }
            Some(Handshake::Opened { client_id, server_id, parameters }) => {
                self.process_opened(now, peer, (client_id, server_id), &parameters, frame)
            }
            Some(Handshake::Refused { client_id, reason }) => {
                if let Some(opening) = self.find_opening(peer, client_id) {
                    opening.close_reason = Some(match reason {
                        RefusalReason::Full => CloseReason::RefusedFull,
                        RefusalReason::Closed => CloseReason::RefusedClosed,
                        RefusalReason::Parameters => CloseReason::RefusedParameters,
                        RefusalReason::Version => CloseReason::RefusedVersion,
                        RefusalReason::Key => CloseReason::RefusedKey,
                    });
                }
            }
            Some(Handshake::Unknown { fingerprint }) => {
                if let Some(&slot_index) = self.peers.get(&peer)
                    && let SlotState::Established(connection) = &mut self.slots[slot_index as usize].state
                {
                    connection.process_unknown(&fingerprint);
                    self.mark_ready(slot_index);
                }
            }
            None => {
                self.unknown_peer_stats.frames += 1;
                if let Some((client_id, reason)) = Handshake::unreadable_open(frame) {
                    let is_closed = reason == RefusalReason::Parameters && self.config.accept.is_none();
                    self.refuse(peer, client_id, if is_closed { RefusalReason::Closed } else { reason });
                }
            }
        }
    }

    /// Returns the pending handshake that a server's reply belongs to.
    pub(super) fn find_opening(&mut self, peer: Peer, client_id: u64) -> Option<&mut Opening> {
        let slot_index = *self.peers.get(&peer)?;
        self.mark_ready(slot_index);
        match &mut self.slots[slot_index as usize].state {
            SlotState::Opening(opening) if opening.client_id == client_id => Some(opening),
            _ => None,
        }
    }

    /// Processes the request of a client: checks it, answers it, and creates the connection once its cookie is valid.
    pub(super) fn process_open(
        &mut self,
        now: Instant,
        peer: Peer,
        client_id: u64,
        parameters: &TransportParameters,
        cookie: &[u8; COOKIE_BYTES],
        frame: &[u8],
    ) {
        let Some(accept) = &self.config.accept else {
            return self.refuse(peer, client_id, RefusalReason::Closed);
        };
        if let Some(&slot_index) = self.peers.get(&peer)
            && let SlotState::Established(connection) = &self.slots[slot_index as usize].state
            && connection.client_id == client_id
        {
            // The client missed the reply.
            self.slots[slot_index as usize].needs_opened_reply = true;
            return self.mark_ready(slot_index);
        }
        // No downgrade: without the key no peer gets a connection, whatever it proposes.
        let encrypted = parameters.check == Check::Aead;
        if encrypted != (accept.check == Check::Aead) || encrypted && accept.key.is_none() {
            return self.refuse(peer, client_id, RefusalReason::Parameters);
        }
        let period = now.as_ps() / COOKIE_LIFETIME.as_ps();
        let is_valid = |period: u64| self.make_cookie(peer, client_id, period) == *cookie;
        if !(is_valid(period) || period > 0 && is_valid(period - 1)) {
            self.unknown_peer_stats.forged += u64::from(*cookie != [0; COOKIE_BYTES]);
            self.unknown_peer_stats.cookies += 1;
            let cookie = self.make_cookie(peer, client_id, period);
            return self.queue_reply(peer, Handshake::Cookie { client_id, cookie });
        }
        if accept.key.as_ref().is_some_and(|key| !key.proves(frame)) {
            self.unknown_peer_stats.forged += 1;
            return self.refuse(peer, client_id, RefusalReason::Key);
        }
        let options = Options { mode: parameters.mode, check: parameters.check, ..accept.clone() }.clamped();
        let current = self.peers.get(&peer).copied();
        let mut reusable = None;
        if let Some(slot_index) = current {
            match &mut self.slots[slot_index as usize].state {
                // A peer without the key cannot replace an encrypted connection.
                SlotState::Established(connection) if !connection.is_proven(frame) => {
                    return self.refuse(peer, client_id, RefusalReason::Key);
                }
                SlotState::Established(connection) => {
                    connection.terminate(CloseReason::Replaced);
                    self.mark_ready(slot_index);
                }
                // Simultaneous open: the connection with the higher number wins; the other open frame is ignored.
                SlotState::Opening(opening) if opening.client_id > client_id => return,
                // A peer without the key cannot take over an encrypted handshake.
                SlotState::Opening(opening)
                    if opening.options.key.as_ref().is_some_and(|key| !key.proves(frame)) =>
                {
                    return self.refuse(peer, client_id, RefusalReason::Key);
                }
                SlotState::Opening(_) | SlotState::Free => reusable = Some(slot_index),
            }
        }
        if reusable.is_none() && self.connection_count() >= self.config.max_connections {
            // A replaced connection frees its slot after its event; the peer will try again.
            if current.is_none() {
                self.refuse(peer, client_id, RefusalReason::Full);
            }
            return;
        }
        let ids = (client_id, self.secrets.next_connection_number());
        let mut connection = Connection::new(now, peer, ids, Direction::ToClient, options, parameters);
        self.configure(&mut connection);
        let state = SlotState::Established(Box::new(connection));
        let slot_index = match reusable {
            Some(slot_index) => {
                self.slots[slot_index as usize].state = state;
                slot_index
            }
            None => self.insert(peer, state),
        };
        let slot = &mut self.slots[slot_index as usize];
        (slot.needs_opened_reply, slot.reports_opened) = (true, true);
        self.mark_ready(slot_index);
    }

    /// Processes the answer of a server: the connection is established.
    pub(super) fn process_opened(
        &mut self,
        now: Instant,
        peer: Peer,
        (client_id, server_id): (u64, u64),
        parameters: &TransportParameters,
        frame: &[u8],
    ) {
        let Some(opening) = self.find_opening(peer, client_id) else {
            return self.process_repeated_opened(peer, client_id, server_id, frame);
        };
        let options = &opening.options;
        if options.key.as_ref().is_some_and(|key| !key.proves(frame)) {
            // The sender of this frame has no key; the true server may still reply.
            self.unknown_peer_stats.forged += 1;
            return;
        }
        if (parameters.mode, parameters.check) != (options.mode, options.check) {
            opening.close_reason = Some(CloseReason::RefusedParameters);
            return;
        }
        let (options, sent_at) = (options.clone(), opening.sent_at);
        let ids = (client_id, server_id);
        let mut connection = Connection::new(now, peer, ids, Direction::ToServer, options, parameters);
        if let Some(sent_at) = sent_at {
            connection.record_handshake(now, now.since(sent_at));
        }
        self.configure(&mut connection);
        let Some(&slot_index) = self.peers.get(&peer) else { return };
        let slot = &mut self.slots[slot_index as usize];
        slot.state = SlotState::Established(Box::new(connection));
        slot.reports_opened = true;
    }

    /// Applies the settings of the node to a new connection.
    fn configure(&self, connection: &mut Connection) {
        connection.set_first_numbers(self.first_numbers);
        connection.fast_path_enabled &= !self.fast_path_disabled;
        if let Some(in_flight) = self.pre_encode_from {
            connection.enable_pre_encoding(in_flight);
        }
    }

    /// Returns the cookie of a handshake in a period of [`COOKIE_LIFETIME`]. It depends on the peer's current
    /// connection, if any: an old open frame must not end a newer connection.
    pub(super) fn make_cookie(&self, peer: Peer, client_id: u64, period: u64) -> [u8; COOKIE_BYTES] {
        let current = self.peers.get(&peer).map(|&slot_index| &self.slots[slot_index as usize].state);
        let current_server_id = match current {
            Some(SlotState::Established(connection)) => connection.server_id,
            _ => 0,
        };
        let mut hasher = SipHasher24::new_with_key(&self.secrets.cookie_key);
        hasher.write(&current_server_id.to_be_bytes());
        hasher.write(&client_id.to_be_bytes());
        hasher.write(&period.to_be_bytes());
        hasher.write(peer.as_bytes());
        hasher.finish128().as_bytes()
    }

    /// Processes an opened frame for an established connection. If the server's number differs, the server was
    /// restarted and took an old open frame for a new client.
    pub(super) fn process_repeated_opened(
        &mut self,
        peer: Peer,
        client_id: u64,
        server_id: u64,
        frame: &[u8],
    ) {
        let Some(&slot_index) = self.peers.get(&peer) else { return };
        if let SlotState::Established(connection) = &mut self.slots[slot_index as usize].state
            && connection.client_id == client_id
            && connection.server_id != server_id
            && connection.is_proven(frame)
        {
            connection.terminate(CloseReason::PeerRestarted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_units::Seed;

    #[test]
    fn connection_numbers_do_not_reveal_secrets() {
        let mut random = Seed(1).stream("node");
        let mut known = random.clone();
        let mut secrets = Secrets::draw(&mut random);
        let known: Vec<u64> = (0..1000).map(|_| known.bits()).collect();
        let mut numbers: Vec<u64> = (0..1000).map(|_| secrets.next_connection_number()).collect();
        assert!(numbers.iter().all(|number| !known.contains(number)));
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b), "no number repeats");
    }
}
