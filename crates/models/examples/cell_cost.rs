//! Sends packets through one or two links and prints the result: a workload for counting instructions.
//!
//! ```sh
//! cargo build --release -p trunkline-models --example cell_cost
//! for n in 1000 2000; do valgrind --tool=callgrind target/release/examples/cell_cost trains path $n; done
//! ```
//! The difference of the two counts, over the cells of 1000 packets (192 each) and the links that they crossed.

use trunkline_endpoint::{Bound, Capacity, Destination, Frame, Medium, MediumInput, MediumOutput, Port};
use trunkline_models::atm::{CellFrame, CellLink, Config, End, Impairments, Mode, Train};
use trunkline_units::{Instant, Rate, Seed, Span};

/// As large as a simulator's.
#[derive(Clone)]
struct Packet {
    train: Option<Box<Train>>,
    bytes: u32,
    serial: u32,
    cell: u16,
    cells: u16,
    damaged: bool,
    _content: [u64; 4],
}

impl Frame for Packet {
    #[inline]
    fn length(&self) -> u32 {
        if self.cells == 0 { self.bytes } else { 53 }
    }
    fn destination(&self) -> Destination {
        Destination::All
    }
    fn damage(&mut self) {
        self.damaged = true;
    }
    #[inline]
    fn is_damaged(&self) -> bool {
        self.damaged
    }
}

impl CellFrame for Packet {
    #[inline]
    fn cell(&self, cell: u16, cells: u16) -> Self {
        Packet { cell, cells, train: None, ..*self }
    }
    #[inline]
    fn last_cell(self, cell: u16, cells: u16) -> Self {
        Packet { cell, cells, ..self }
    }
    #[inline]
    fn as_cell(&self) -> Option<(u16, u16)> {
        (self.cells > 0).then_some((self.cell, self.cells))
    }
    #[inline]
    fn serial(&self) -> u32 {
        self.serial
    }
    #[inline]
    fn into_packet(self) -> Self {
        Packet { cell: 0, cells: 0, ..self }
    }
    #[inline]
    fn into_train(self, train: Box<Train>) -> Self {
        Packet { train: Some(train), ..self }
    }
    #[inline]
    fn take_train(&mut self) -> Option<Box<Train>> {
        self.train.take()
    }
}

const RIGHT: Port = Port(0);

fn link(mode: Mode, rate: u64, ends: [End; 2]) -> CellLink<Packet> {
    let payload = Rate::from_bps(rate);
    let impairments = [Impairments::default(); 2];
    let config = Config { payload, delay: Span::from_us(5), ends, impairments, mode };
    CellLink::new(&config, ["right", "left"].map(|name| Seed(1).stream(name)))
}

/// Cells through one link between switch ports, each when the one before has left.
fn single(count: u32) -> u64 {
    let switch_port = End::SwitchPort { queue: Bound::frames(256) };
    let mut link = link(Mode::Cells, 149_760_000, [switch_port; 2]);
    let packet =
        Packet { train: None, bytes: 9_180, serial: 0, cell: 0, cells: 0, damaged: false, _content: [0; 4] };
    let (mut now, mut arrived) = (Instant::ZERO, 0);
    for _ in 0..u64::from(count) * 192 {
        link.handle(now, MediumInput::Frame { port: RIGHT, frame: packet.cell(0, 2) });
        now = match link.poll(now) {
            MediumOutput::Idle { deadline: Some(at) } => at,
            _ => return 0,
        };
        link.handle(now, MediumInput::Wake);
        while let MediumOutput::Transmit { .. } = link.poll(now) {
            arrived += 1;
        }
    }
    arrived
}

/// Packets through an adapter's link and a switch's, 149.76 and `rate` Mb/s.
fn path(mode: Mode, rate: u64, queue: Bound, count: u32) -> u64 {
    let switch_port = End::SwitchPort { queue };
    let mut first = link(mode, 149_760_000, [End::ADAPTER, switch_port]);
    let mut second = link(mode, rate, [switch_port, End::ADAPTER]);
    let every = Span::from_ns(543_700);
    let (mut due, mut arrived) = ([None, None], 0);
    for serial in 0..count {
        let mut now = Instant::ZERO + every * u64::from(serial);
        let (train, bytes) = (None, 9_180);
        let frame = Packet { train, bytes, serial, cell: 0, cells: 0, damaged: false, _content: [0; 4] };
        first.handle(now, MediumInput::Frame { port: RIGHT, frame });
        let end = now + every;
        loop {
            loop {
                match first.poll(now) {
                    MediumOutput::Transmit { frame, .. } => {
                        second.handle(now, MediumInput::Frame { port: RIGHT, frame });
                    }
                    MediumOutput::Idle { deadline } => break due[0] = deadline,
                    _ => {}
                }
            }
            loop {
                match second.poll(now) {
                    MediumOutput::Transmit { .. } => arrived += 1,
                    MediumOutput::Idle { deadline } => break due[1] = deadline,
                    _ => {}
                }
            }
            let Some(next) = due.into_iter().flatten().min().filter(|at| *at < end) else { break };
            now = next;
            if due[0] == Some(now) {
                first.handle(now, MediumInput::Wake);
            }
            if due[1] == Some(now) {
                second.handle(now, MediumInput::Wake);
            }
        }
    }
    arrived
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let count = word(3).parse().unwrap_or(1_000);
    let mode = if word(1) == "trains" { Mode::Trains } else { Mode::Cells };
    let shared = Bound::frames(256);
    let each = Bound { capacity: Capacity::Frames(256), per_channel: true };
    let arrived = match word(2) {
        "single" => single(count),
        "path" => path(mode, 149_760_000, shared, count),
        "each" => path(mode, 149_760_000, each, count),
        "over" => path(mode, 100_000_000, shared, count),
        "over-each" => path(mode, 100_000_000, each, count),
        other => panic!("single, path, each, over or over-each, not {other:?}"),
    };
    println!("{arrived} arrived");
}
