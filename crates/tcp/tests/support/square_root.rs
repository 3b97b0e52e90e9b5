//! A bulk transfer over a line with periodic loss, compared with Mathis, Semke, Mahdavi and Ott (1997): the rate is
//! MSS / RTT · sqrt(3 / 2bp) if a share p of the segments is lost, one per window, and each acknowledgement covers b
//! segments.

use std::collections::VecDeque;

use trunkline_endpoint::{Endpoint, Input, MAX_BATCH, Output, Peer, Port, Writable};
use trunkline_tcp::{Arithmetic, Command, Event, Options, Statistics, Tcp, Timers, Virtual, header_length};
use trunkline_units::{Instant, Span};

pub const MSS: u32 = 1_000;
const ONE_WAY: Span = Span::from_ms(50);
/// Spacing of segments on the line: acknowledgements clock the sender, and a window takes a good part of a round trip.
const GAP: Span = Span::from_us(20);

/// Result of a transfer.
#[derive(Debug)]
pub struct Rate {
    /// Ratio of the goodput to the law.
    pub ratio_to_law: f64,
    pub timeouts: u64,
    pub fast_retransmits: u64,
}

struct Line {
    in_flight: VecDeque<(Instant, Vec<u8>, usize)>,
    free_at: Instant,
}

impl Line {
    fn new() -> Line {
        Line { in_flight: VecDeque::new(), free_at: Instant::ZERO }
    }

    /// Sends a segment of this length; only its header is copied.
    fn send(&mut self, now: Instant, header: &[u8], length: usize) {
        self.free_at = now.max(self.free_at) + GAP;
        self.in_flight.push_back((self.free_at + ONE_WAY, header.to_vec(), length));
    }

    fn next(&self) -> Option<Instant> {
        self.in_flight.front().map(|(at, ..)| *at)
    }
}

/// Drops every `interval`-th new segment. Measures `cycles` losses after the first `warm` ones.
pub fn measure(interval: u64, timers: Timers, delayed_ack: bool, warm: u64, cycles: u64) -> Rate {
    let buffer = 1 << 24;
    let options = Options {
        mss: MSS as u16,
        send_buffer: buffer,
        receive_buffer: buffer,
        arithmetic: Arithmetic::Rfc2581,
        initial_ssthresh: Some(2 * MSS),
        timers,
        delayed_ack,
        ..Options::default()
    };
    let mut ends = [
        Tcp::<Virtual>::new(Options { local: 1, remote: 2, ..options }),
        Tcp::<Virtual>::new(Options { local: 2, remote: 1, ..options }),
    ];
    let mut lines = [Line::new(), Line::new()];
    let mut deadlines = [None, None];
    let (mut now, mut space) = (Instant::ZERO, vec![0; MAX_BATCH]);
    let (mut new, mut highest, mut losses) = (0, 0, 0);
    let mut began = None;
    ends[1].handle(now, Input::Command(Command::Listen)).unwrap();
    ends[0].handle(now, Input::Command(Command::Connect)).unwrap();
    loop {
        for (i, end) in ends.iter_mut().enumerate() {
            deadlines[i] = loop {
                match end.poll(now, Writable::ALL, &mut space) {
                    Output::Transmit(t) => {
                        let header = header_length(&space[..t.length]);
                        let sent = end.statistics().bytes_sent - end.statistics().retransmitted_bytes;
                        if i == 0 && t.length > header && sent > highest {
                            (highest, new) = (sent, new + 1);
                            if new % interval == 0 {
                                losses += 1;
                                continue;
                            }
                        }
                        lines[i].send(now, &space[..header], t.length);
                    }
                    Output::Event(Event::Connected | Event::Writable) if i == 0 => {
                        while end.room() >= 64 * MSS {
                            end.handle(now, Input::Command(Command::Send(64 * MSS))).unwrap();
                        }
                        end.handle(now, Input::Command(Command::Send(64 * MSS))).unwrap_err();
                    }
                    Output::Event(Event::Readable) => {
                        end.handle(now, Input::Command(Command::Take(end.readable()))).unwrap();
                    }
                    Output::Event(_) => {}
                    Output::Idle(idle) => break idle.deadline,
                }
            };
        }
        if began.is_none() && losses >= warm {
            began = Some((now, ends[1].statistics().bytes_received));
        }
        if let (Some((at, bytes)), true) = (began, losses >= warm + cycles) {
            let seconds = now.since(at).as_s();
            let rate = (ends[1].statistics().bytes_received - bytes) as f64 / seconds;
            let (b, p) = (if delayed_ack { 2.0 } else { 1.0 }, 1.0 / interval as f64);
            let law = f64::from(MSS) / (2.0 * ONE_WAY.as_s()) * (3.0 / (2.0 * b * p)).sqrt();
            let Statistics { timeouts, fast_retransmits, .. } = *ends[0].statistics();
            return Rate { ratio_to_law: rate / law, timeouts, fast_retransmits };
        }
        let arrivals = lines.iter().filter_map(Line::next);
        now = arrivals.chain(deadlines.into_iter().flatten()).min().expect("a transfer continues");
        for i in [0, 1] {
            ends[i].handle(now, Input::Wake).unwrap();
            if lines[1 - i].next() == Some(now) {
                let (_, header, length) = lines[1 - i].in_flight.pop_front().unwrap();
                space[..header.len()].copy_from_slice(&header);
                let bytes = &space[..length];
                let input = Input::Frame { port: Port(0), peer: Peer::NONE, bytes, segment: None };
                ends[i].handle(now, input).unwrap();
            }
        }
    }
}
