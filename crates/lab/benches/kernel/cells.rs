//! The links over which transfers are compared.

use trunkline_experiment::plan::Plan;
use trunkline_experiment::{Source, parse};

use crate::Outcome;

const RATES_MBPS: [u64; 4] = [5, 20, 50, 100];
const RTTS_MS: [u64; 3] = [10, 40, 100];
/// Buffers in bandwidth-delay products.
const BUFFERS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const LOSSES: [f64; 4] = [0.001, 0.005, 0.01, 0.02];
/// Bytes of a packet: no buffer is smaller than a few.
const PACKET: f64 = 1500.0;
const MIN_PACKETS: f64 = 5.0;

/// A link between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Names its hosts in a lab with several links.
    pub number: usize,
    pub mbps: u64,
    pub rtt_ms: u64,
    pub loss: f64,
    /// In bandwidth-delay products.
    pub buffer: f64,
}

/// Returns 24 links: every rate with every round-trip time, with and without loss, and with each buffer and loss in turn.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (r, mbps) in RATES_MBPS.into_iter().enumerate() {
        for (t, rtt_ms) in RTTS_MS.into_iter().enumerate() {
            let buffer = |shift: usize| BUFFERS[(r + t + shift) % BUFFERS.len()];
            for (loss, buffer) in [(0.0, buffer(0)), (LOSSES[(r + 2 * t) % LOSSES.len()], buffer(2))] {
                cells.push(Cell { number: cells.len(), mbps, rtt_ms, loss, buffer });
            }
        }
    }
    cells
}

impl Cell {
    /// Returns its properties as text.
    pub fn name(&self) -> String {
        let Cell { mbps, rtt_ms, loss, buffer, .. } = self;
        format!("{mbps} Mb/s {rtt_ms} ms {} % {buffer} BDP", loss * 100.0)
    }

    fn buffer_bytes(&self) -> u64 {
        let product = self.mbps as f64 * 1e6 / 8.0 * self.rtt_ms as f64 / 1e3;
        (self.buffer * product).max(MIN_PACKETS * PACKET) as u64
    }
}

/// Returns the experiment of a transfer over each of these links at once.
pub fn plan(cells: &[&Cell], congestion: &str, seconds: u64) -> Outcome<Plan> {
    let (mut network, mut connections) = (String::new(), String::new());
    for cell in cells {
        let Cell { number: n, mbps, rtt_ms, loss, .. } = cell;
        network += &format!(
            "host a{n}, b{n}; switch s{n} (buffer = {} B); link a{n} - s{n} (rate = 1 Gb/s);
             link s{n} - b{n} (rate = {mbps} Mb/s, delay = {} us, loss = {loss});\n",
            cell.buffer_bytes(),
            rtt_ms * 500,
        );
        connections += &format!(
            "connection c{n} {{ xmt = a{n}; rcv = b{n}; test = full (messagesize = 4096); duration = {seconds} s;
             protocol = tcp (congestion = {congestion}, window = 64 MiB); }}\n"
        );
    }
    let text = format!("experiment \"kernel\" {{ network {{ {network} }} parallel {{ {connections} }} }}");
    let parsed = parse(&Source { name: "kernel", text: &text, folder: None });
    parsed.plan.ok_or_else(|| format!("{:?} in {text}", parsed.diagnostics))
}
