//! Plain DIS between programs of a host and its interface.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, MAX_SEGMENTS, Segment};
use trunkline_io::{Clock, Ports, socket};
use trunkline_units::Instant;

use super::host::{listen, shared_on, wish};
use super::{Error, Figures};
use crate::host::{Command, Host, Post};
use crate::rules::{Following, Rules};
use crate::settings::Settings;
use crate::wire::dis::{Malformed, Pdu};
use crate::wire::wide::PATH;

/// Batches of datagrams that it takes in a round.
const DATAGRAMS: usize = 16;

/// How a host's interface speaks with programs.
#[derive(Clone, Debug)]
pub struct DisOptions {
    /// Where programs send to: an address of this host alone, or a broadcast or multicast address that all of them hear.
    pub listen: SocketAddrV4,
    /// Where what comes for them goes. None: to the broadcast or multicast address, or to who last spoke.
    pub to: Option<SocketAddrV4>,
    /// What goes where, and what is wanted.
    pub rules: Rules,
}

/// The side of the programs.
#[derive(Debug)]
pub(super) struct Dis {
    options: DisOptions,
    hears: usize,
    says: usize,
    /// Where its own PDUs come from, if it hears them too.
    own: Option<SocketAddr>,
    /// Who is to get what comes.
    to: Option<SocketAddr>,
    following: Following,
    /// What is always wanted and not joined yet, the last first; and what else is joined.
    always: Vec<RangeInclusive<u32>>,
    joined: BTreeSet<u32>,
    settings: Settings,
    /// Whether what is wanted may not be what is joined.
    changed: bool,
    message: Vec<u8>,
    run: Run,
    counts: Counts,
}

/// PDUs that leave together, a datagram each: those of one length in a row, and perhaps a shorter one behind them. At most a
/// batch of [`MAX_SEGMENTS`] and [`MAX_BATCH`] octets.
#[derive(Debug, Default)]
struct Run {
    bytes: Vec<u8>,
    length: usize,
    /// Whether they have priority, as an index of what is counted.
    class: usize,
}

impl Run {
    /// Adds a PDU; false if it cannot leave with those that are there.
    fn push(&mut self, pdu: &[u8], class: usize) -> bool {
        if self.bytes.is_empty() {
            (self.length, self.class) = (pdu.len(), class);
        }
        let whole = self.bytes.len().is_multiple_of(self.length) && pdu.len() <= self.length;
        let room = self.bytes.len() + pdu.len() <= MAX_BATCH.min(MAX_SEGMENTS * self.length);
        // Only what is a packet leaves together with others.
        let fits = self.bytes.is_empty() || whole && room && self.length <= PATH && self.class == class;
        if fits {
            self.bytes.extend_from_slice(pdu);
        }
        fits
    }

    /// Lets those that are there leave.
    fn leave(&mut self, ports: &Ports, says: usize, to: SocketAddr, counts: &mut Counts) {
        if self.bytes.is_empty() {
            return;
        }
        let said = ports.send_all(says, to, &self.bytes, self.length);
        counts.said += said as u64;
        counts.unsent[self.class] += (self.bytes.len().div_ceil(self.length) - said) as u64;
        self.bytes.clear();
    }
}

#[derive(Debug, Default)]
struct Counts {
    heard: u64,
    said: u64,
    own: u64,
    nowhere: u64,
    /// Ordinary ones, and those with priority.
    nobody: [u64; 2],
    unsent: [u64; 2],
    /// By way (from programs, from the converter), and by why.
    malformed: [[u64; 3]; 2],
}

const WAYS: [&str; 2] = ["from_programs", "to_programs"];
const WHY: [&str; 3] = ["short", "length", "long"];

impl Counts {
    fn malformed(&mut self, way: usize, why: Malformed) {
        let why = match why {
            Malformed::Short(_) => 0,
            Malformed::Length { .. } => 1,
            Malformed::Long(_) => 2,
        };
        self.malformed[way][why] += 1;
    }
}

impl Dis {
    /// Opens its sockets, behind those that are in `ports`.
    pub fn open(
        options: &DisOptions,
        settings: &Settings,
        interface: Ipv4Addr,
        ports: &mut Ports,
    ) -> Result<Dis, Error> {
        let at = options.listen;
        let hears = ports.add(listen(at, interface)?)?;
        // What it says to all it hears as well, and so says it from a port of its own.
        let by = shared_on(*at.ip(), interface);
        let says = match by {
            Some(by) => ports.add(socket::multicast_sender(by.into(), 1, &socket::Options::default())?)?,
            None => hears,
        };
        ports.socket(says).set_broadcast(true)?;
        let is_shared = by.is_some();
        if !is_shared && options.to.is_some_and(|to| to.ip().is_multicast()) {
            socket::multicast_by(ports.socket(says), interface)?;
        }
        let own = is_shared.then(|| ports.socket(says).local_addr()).transpose()?;
        let to = options.to.or(is_shared.then_some(at)).map(SocketAddr::V4);
        let (following, joined, message, run) = Default::default();
        let (options, counts) = (options.clone(), Counts::default());
        let (settings, changed) = (*settings, true);
        let wanted = options.rules.wanted.iter().rev().cloned();
        let always = match settings.wide() {
            Some(_) => wanted.collect(),
            None => wanted.flat_map(|range| range.rev().map(|one| one..=one)).collect(),
        };
        Ok(Dis {
            options,
            hears,
            says,
            own,
            to,
            following,
            always,
            joined,
            settings,
            changed,
            message,
            run,
            counts,
        })
    }

    /// Sockets, to ask what they found.
    pub fn hears(&self) -> usize {
        self.hears
    }

    pub fn says(&self) -> usize {
        self.says
    }

    /// Takes what programs said.
    pub fn receive(&mut self, ports: &mut Ports, host: &mut Host, clock: Clock) -> io::Result<()> {
        let Dis { options, own, to, following, settings, changed, counts, .. } = self;
        ports.receive(self.hears, DATAGRAMS, |came, bytes| {
            if Some(came.from) == *own {
                counts.own += 1;
                return;
            }
            let now = clock.now();
            for pdu in Segment::frames(came.segment, bytes).flat_map(Pdu::all) {
                let pdu = match pdu {
                    Ok(pdu) => pdu,
                    Err(why) => {
                        counts.malformed(0, why);
                        continue;
                    }
                };
                counts.heard += 1;
                if options.to.is_none() && own.is_none() {
                    // Who speaks DIS wants to hear it.
                    *to = Some(came.from);
                }
                *changed |= following.see(&options.rules, pdu);
                match options.rules.address(pdu) {
                    // What is refused is counted by the machine.
                    Some((address, priority, within)) => {
                        let priority = priority || settings.is_priority(address);
                        let within = within.filter(|_| priority);
                        let post = Post { address, priority, within, body: pdu.bytes() };
                        let _ = host.handle(now, Input::Command(Command::Post(post)));
                    }
                    None => counts.nowhere += 1,
                }
            }
        })
    }

    /// Hands over what came for programs: PDUs alone, each in a datagram.
    pub fn hand_over(&mut self, ports: &Ports, host: &mut Host, now: Instant) {
        let Dis { options, says, to, following, changed, message, run, counts, .. } = self;
        loop {
            let mut from = None;
            let receive = Command::Receive { into: message, from: &mut from };
            let _ = host.handle(now, Input::Command(receive));
            let Some(from) = from else { break };
            let class = usize::from(from.priority);
            for pdu in Pdu::all(message) {
                match (pdu, *to) {
                    (Err(why), _) => counts.malformed(1, why),
                    (Ok(pdu), to) => {
                        *changed |= following.see(&options.rules, pdu);
                        let Some(to) = to else {
                            counts.nobody[class] += 1;
                            continue;
                        };
                        if !run.push(pdu.bytes(), class) {
                            run.leave(ports, *says, to, counts);
                            run.push(pdu.bytes(), class);
                        }
                    }
                }
            }
        }
        if let Some(to) = *to {
            run.leave(ports, *says, to, counts);
        }
    }

    /// Joins and leaves until the host wants what it is to want. What finds no room is told the next time.
    pub fn follow(&mut self, host: &mut Host, now: Instant) {
        if !self.changed {
            return;
        }
        let settings = self.settings;
        let mut want = |first, last, joins| {
            let command = wish(&settings, first, last, joins).map(Input::Command);
            command.and_then(|command| host.handle(now, command)).is_ok()
        };
        while self.always.pop_if(|range| want(*range.start(), *range.end(), true)).is_some() {}
        let wanted = self.following.wanted(&self.options.rules);
        let leaves: Vec<u32> = self.joined.difference(&wanted).copied().collect();
        let joins: Vec<u32> = wanted.difference(&self.joined).copied().collect();
        for address in joins {
            if want(address, address, true) {
                self.joined.insert(address);
            }
        }
        for address in leaves {
            if want(address, address, false) {
                self.joined.remove(&address);
            }
        }
        self.changed = self.joined != wanted || !self.always.is_empty();
    }

    pub fn bound(&self, ports: &Ports) -> String {
        let at = ports.socket(self.hears).local_addr();
        let at = at.map_or_else(|_| self.options.listen.to_string(), |at| at.to_string());
        match self.options.to {
            Some(to) => format!("DIS on {at}, to {to}"),
            None if self.own.is_some() => format!("DIS on {at} both ways"),
            None => format!("DIS on {at}, to who last spoke"),
        }
    }

    pub fn figures(&self, into: &mut Figures) {
        const PDUS: &str = "trunkline_converter_pdus_total";
        let (what, counts) = ("PDUs of plain DIS, by their way.", &self.counts);
        into.count(PDUS, what, &[("way", WAYS[0])], counts.heard);
        into.count(PDUS, what, &[("way", WAYS[1])], counts.said);
        for (way, malformed) in WAYS.iter().zip(&counts.malformed) {
            for (why, count) in WHY.iter().zip(malformed) {
                let what = "PDUs that are too short, whose length lies, or that are too long.";
                let labels = [("way", *way), ("why", *why)];
                into.count("trunkline_converter_pdus_malformed_total", what, &labels, *count);
            }
        }
        let what = "PDUs that went nowhere: a rule dropped them, or no program had spoken yet, or the system would not.";
        // What a rule drops has no address, and so no priority.
        let dropped = [("rule", [counts.nowhere, 0]), ("nobody", counts.nobody), ("unsent", counts.unsent)];
        for (why, [ordinary, priority]) in dropped {
            for (class, count) in [("ordinary", ordinary), ("priority", priority)] {
                let labels = [("why", why), ("priority", class)];
                into.count("trunkline_converter_pdus_dropped_total", what, &labels, count);
            }
        }
        let what = "Datagrams of its own that it heard.";
        into.count("trunkline_converter_pdus_own_total", what, &[], counts.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_together_is_of_one_length_but_for_a_shorter_end() {
        // Lengths of PDUs, and after how many of them the run is full.
        for (lengths, fit) in [
            (vec![150, 150, 150], 3),
            (vec![150, 20, 150], 2),
            (vec![150, 20, 20], 2),
            (vec![20, 150], 1),
            (vec![150; 100], MAX_SEGMENTS),
            (vec![PATH; 100], MAX_BATCH / PATH),
            (vec![PATH + 1, PATH + 1], 1),
        ] {
            let mut run = Run::default();
            let taken = lengths.iter().take_while(|length| run.push(&vec![1; **length], 0)).count();
            assert_eq!(taken, fit, "{:?}", &lengths[..2]);
        }
    }
}
