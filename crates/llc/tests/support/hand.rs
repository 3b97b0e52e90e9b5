//! A manually driven station: its input, and every octet of its output. Every call is held against the laws.

use trunkline_endpoint::laws::Checked;
use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Segment, Writable};
use trunkline_llc::api::Received;
use trunkline_llc::{Address, Command, Config, Event, Options, Refusal, Station, Ticket};
use trunkline_units::{Instant, Span};

pub const OWN: u8 = 1;

pub struct DrivenStation {
    pub station: Checked<Station>,
    pub now: Instant,
    pub events: Vec<Event>,
    buffer: Vec<u8>,
}

/// A SAP of a station.
pub fn at(station: u8, sap: u8) -> Address {
    Address { sap, station }
}

impl DrivenStation {
    pub fn new() -> DrivenStation {
        DrivenStation::with(Config::new(Port(0), OWN))
    }

    pub fn with(config: Config) -> DrivenStation {
        let station = Checked::new(Station::new(config));
        DrivenStation { station, now: Instant::ZERO, events: Vec::new(), buffer: vec![0; MAX_BATCH] }
    }

    /// A station with these SAPs, that behave alike.
    pub fn open(saps: &[u8], options: &Options) -> DrivenStation {
        let mut hand = DrivenStation::new();
        for &sap in saps {
            hand.command(Command::Open { sap, options }).expect("it opens");
        }
        hand
    }

    pub fn command(&mut self, command: Command<'_>) -> Result<(), Refusal> {
        self.station.handle(self.now, Input::Command(command))
    }

    pub fn try_send(
        &mut self,
        sap: u8,
        to: Address,
        bytes: &[u8],
        priority: Option<u8>,
    ) -> Result<Ticket, Refusal> {
        let mut ticket = Ticket::default();
        self.command(Command::Send { sap, to, bytes, priority, ticket: &mut ticket })?;
        Ok(ticket)
    }

    pub fn send(&mut self, sap: u8, to: Address, bytes: &[u8]) -> Ticket {
        self.try_send(sap, to, bytes, None).expect("there is room")
    }

    pub fn take(&mut self, sap: u8) -> Option<(Received, Vec<u8>)> {
        let (mut into, mut taken) = (vec![99], None);
        self.command(Command::Take { sap, into: &mut into, taken: &mut taken }).expect("it is open");
        taken.map(|received| (received, into))
    }

    /// A frame from a station.
    pub fn give(&mut self, from: u8, bytes: &[u8]) {
        let peer = Peer::new(&[from]);
        let frame = Input::Frame { port: Port(0), peer, bytes, segment: None };
        self.station.handle(self.now, frame).expect("only commands are refused");
    }

    /// The next frame or batch, to whom; events on the way are kept.
    pub fn frame(&mut self) -> Option<(u8, Vec<Vec<u8>>)> {
        loop {
            match self.station.poll(self.now, Writable::ALL, &mut self.buffer) {
                Output::Event(event) => self.events.push(event),
                Output::Idle(_) => return None,
                Output::Transmit(t) => {
                    let frames = Segment::frames(t.segment, &self.buffer[..t.length]).map(<[u8]>::to_vec);
                    return Some((t.peer.as_bytes()[0], frames.collect()));
                }
            }
        }
    }

    /// All frames that it has to send now.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.frame()).take(100_000).flat_map(|(_, frames)| frames).collect()
    }

    /// Returns all its events; frames are lost.
    pub fn events(&mut self) -> Vec<Event> {
        self.receive();
        std::mem::take(&mut self.events)
    }

    pub fn wait(&mut self, span: Span) {
        self.now += span;
        self.station.handle(self.now, Input::Wake).expect("only commands are refused");
    }

    /// When it wants to be woken.
    pub fn deadline(&mut self) -> Option<Instant> {
        self.receive();
        match self.station.poll(self.now, Writable::NONE, &mut self.buffer) {
            Output::Idle(idle) => idle.deadline,
            other => panic!("{other:?}"),
        }
    }
}
