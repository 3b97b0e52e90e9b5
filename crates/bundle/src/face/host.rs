//! [`HostFace`]: the interface of a host to the central converter.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;

use trunkline_endpoint::{Endpoint, Input, Port};
use trunkline_net::ports::Ready;
use trunkline_net::{Clock, SocketError, socket};
use trunkline_units::{Instant, Span};

use super::dis::{Dis, DisOptions};
use super::engine::{Engine, Said};
use super::{Error, Figures, Serve, own};
use crate::host::{Command, Host, Refusal};
use crate::settings::Settings;

/// Every so often what a host wants is told again.
pub const RETELLS: Span = Span::from_s(1);

/// Batches of bundles that it takes in a round: what they hold may wait.
const BUNDLES: usize = 16;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// What all agree on.
    pub settings: Settings,
    /// Which host, 1 to 16.
    pub number: u8,
    /// Where the central converter hears hosts.
    pub central: SocketAddrV4,
    /// Where bundles for hosts come: an address of this machine, or a broadcast or multicast address.
    pub listen: SocketAddrV4,
    /// The address of the interface on which a multicast address is joined.
    pub interface: Ipv4Addr,
    /// How often what it wants is told again.
    pub retell: Span,
    /// Plain DIS; none: messages are [taken](HostFace::take).
    pub dis: Option<DisOptions>,
}

/// A host's interface on its sockets: it sends from where it listens, so that the central converter knows who refuses.
#[derive(Debug)]
pub struct HostFace {
    engine: Engine<Host>,
    options: HostOptions,
    dis: Option<Dis>,
    refused: u64,
    unsent: u64,
}

impl HostFace {
    /// Opens its socket.
    ///
    /// # Errors
    /// Why it did not open.
    pub fn open(options: &HostOptions, clock: Clock) -> Result<HostFace, Error> {
        let machine = Host::new(options.number, options.settings).retelling(options.retell);
        let mut engine = Engine::new(machine, clock)?;
        engine.ports.add(listen(options.listen, options.interface)?)?;
        let dis = options.dis.as_ref();
        let dis = dis.map(|dis| Dis::open(dis, options.interface, &mut engine.ports)).transpose()?;
        Ok(HostFace { engine, options: options.clone(), dis, refused: 0, unsent: 0 })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Why not.
    pub fn send(&mut self, address: u16, body: &[u8]) -> Result<(), Refusal> {
        self.engine.command(Command::Send { address, body })
    }

    /// Wants the messages with an address.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub fn join(&mut self, address: u16) -> Result<(), Refusal> {
        self.engine.command(Command::Join(address))
    }

    /// Wants them no more.
    ///
    /// # Errors
    /// [`Refusal::Full`].
    pub fn leave(&mut self, address: u16) -> Result<(), Refusal> {
        self.engine.command(Command::Drop(address))
    }

    /// Takes the body of the oldest message that came; whether there was one.
    pub fn take(&mut self, into: &mut Vec<u8>) -> bool {
        let mut taken = false;
        let take = Command::Take { into, taken: &mut taken };
        // It refuses none, and has nothing to say.
        let _ = self.engine.machine.handle(self.engine.clock.now(), Input::Command(take));
        taken
    }

    /// Its time.
    pub fn clock(&self) -> Clock {
        self.engine.clock
    }

    /// The machine, to ask it something.
    pub fn machine(&self) -> &Host {
        &self.engine.machine
    }

    /// Lets what was said leave.
    pub fn flush(&mut self) {
        let HostFace { engine, options, unsent, .. } = self;
        engine.drain(|ports, said| {
            if let Said::Frame(transmit, bytes) = said {
                let sent = ports.send(usize::from(transmit.port.0), options.central.into(), bytes);
                *unsent += u64::from(!sent);
            }
        });
    }
}

/// A socket that hears what is sent to an address, alone or with others.
pub(super) fn listen(at: SocketAddrV4, interface: Ipv4Addr) -> Result<UdpSocket, SocketError> {
    match shared_on(*at.ip(), interface) {
        Some(on) => socket::shared_receiver(at, on, &socket::Options::default()),
        None => own(at),
    }
}

/// The address of this machine by which one speaks to all who share a broadcast or multicast address; none if it is neither.
pub(super) fn shared_on(ip: Ipv4Addr, interface: Ipv4Addr) -> Option<Ipv4Addr> {
    match ip.is_multicast() || ip.is_broadcast() {
        true => Some(interface),
        false => socket::broadcast_on(ip),
    }
}

impl Serve for HostFace {
    fn watch(&mut self, thing: &impl AsFd) -> io::Result<usize> {
        self.engine.ports.watch(thing)
    }

    fn turn(&mut self, until: Option<Instant>) -> io::Result<Ready> {
        const CENTRAL: Port = Host::CENTRAL;
        let ready = self.engine.wait(until)?;
        if ready.refused(usize::from(CENTRAL.0)) {
            let refused = self.engine.refusals(CENTRAL).count() as u64;
            self.refused += refused;
            if refused > 0 {
                // It refuses none.
                let _ = self.engine.command(Command::Refused);
            }
        }
        if ready.has(usize::from(CENTRAL.0)) {
            self.engine.receive(CENTRAL, BUNDLES, |_, _| true)?;
        }
        if let Some(dis) = &mut self.dis {
            for port in [dis.hears(), dis.says()] {
                while ready.refused(port) && self.engine.ports.refused(port).is_some() {
                    self.refused += 1;
                }
            }
            if ready.has(dis.hears()) {
                dis.receive(&mut self.engine.ports, &mut self.engine.machine, self.engine.clock)?;
            }
            let now = self.engine.clock.now();
            dis.hand_over(&self.engine.ports, &mut self.engine.machine, now);
            dis.follow(&mut self.engine.machine, now);
        }
        self.flush();
        Ok(ready)
    }

    /// Wants nothing any more: nobody else tells the central converter so.
    fn end(&mut self) -> io::Result<()> {
        self.dis = None;
        while self.engine.command(Command::DropAll).is_err() {
            self.turn(None)?;
        }
        while self.engine.machine.is_saying() {
            self.turn(None)?;
        }
        Ok(())
    }

    fn bound(&self) -> String {
        let HostOptions { number, central, listen, .. } = &self.options;
        let at = self.engine.ports.socket(usize::from(Host::CENTRAL.0)).local_addr();
        let at = at.map_or_else(|_| listen.to_string(), |at| at.to_string());
        let dis = self.dis.as_ref().map(|dis| format!(", {}", dis.bound(&self.engine.ports)));
        format!("host {number} on {at}, central {central}{}", dis.unwrap_or_default())
    }

    fn figures(&self, into: &mut Figures) {
        let machine = &self.engine.machine;
        let s = machine.statistics();
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "from_central")], s.bundles);
        into.count(super::BUNDLES, super::OF_BUNDLES, &[("way", "to_central")], s.bundles_sent);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "received")], s.received);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "sent")], s.sent);
        into.count(super::MESSAGES, super::OF_MESSAGES, &[("way", "for_others")], s.others);
        into.count(super::MALFORMED, super::OF_MALFORMED, &[("way", "from_central")], s.malformed);
        into.drops("host", &s.drops);
        let what = "Joins told again to those who may have forgotten.";
        into.count("trunkline_converter_retold_total", what, &[], s.retold);
        super::of_system(into, self.refused, self.unsent);
        super::of_buffers(into, &self.engine.ports, &["central"]);
        into.gauge(super::LEVEL, super::OF_LEVEL, &[("side", "told")], machine.level().into());
        let what = "Message addresses that hosts want.";
        let host = self.options.number.to_string();
        into.gauge("trunkline_converter_wanted", what, &[("host", &host)], machine.joined() as u64);
        if let Some(dis) = &self.dis {
            dis.figures(into);
        }
    }
}
