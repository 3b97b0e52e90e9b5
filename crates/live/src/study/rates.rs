//! Processor share of a host that receives, by packet size and rate, and the load from which bundling pays (chapter 4 of
//! the thesis of 1997: sections 4.3 and 4.4).
//!
//! One thread sends datagrams over the loopback at a rate, another receives them, each on a processor of its own where
//! there are two. Told are the processor time of the thread that receives, and besides, in runs of their own, what a
//! timed loop on each processor lost: that counts both ends and the kernel between them. Sizes and rates take turns,
//! forth in one run and back in the next, so that a slow moment hits all alike.

use std::io;
use std::net::UdpSocket;

use serde::Serialize;
use trunkline_bundle::gather::{Gather, Timing};
use trunkline_bundle::wire::classic::{Bundle, bit};
use trunkline_io::socket::{self, Options};
use trunkline_units::{Instant, Size, Span};

use super::StudyError;
use super::traffic::{Load, Loops, ROOM, Took, run};

/// Bytes of a packet: those of tables 4-2 to 4-13.
pub const SIZES: [usize; 7] = [96, 128, 160, 256, 512, 1024, 2048];
/// Packets a second: those of the tables, and what today's machines reach beyond.
pub const RATES: [u32; 10] = [100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
/// Bytes of a message that is bundled: the thesis's typical one.
pub const MESSAGE: usize = 150;
/// Messages a second, plain and bundled.
pub const LOADS: [u32; 10] = [50, 100, 200, 400, 800, 1_600, 4_000, 10_000, 50_000, 200_000];
/// Octets of a bundle at the most, and how long it gathers.
pub const BUNDLE: usize = 8_192;
const GATHER: Span = Span::from_ms(5);
/// Bytes of the datagrams by which the loopback's limit is found.
pub const LARGEST: usize = 32_768;
/// A rate is reached if so much of it arrives.
const REACHED: f64 = 0.99;
/// Beyond a rate of which less arrived no higher one is tried.
const COLLAPSED: f64 = 0.8;
/// The shortest that a figure is measured.
const SHORTEST: Span = Span::from_ms(20);

/// What was measured: samples are run by run, none where it was not tried or did not reach the rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// How often everything was measured.
    pub runs: usize,
    /// Every size at every rate.
    pub cells: Vec<Cell>,
    /// Every size as fast as it goes.
    pub limits: Vec<Limit>,
    /// Bits of payload a second that arrive over the loopback in datagrams of [`LARGEST`] bytes.
    pub loopback_bps: Vec<f64>,
    /// Plain and bundled messages.
    pub bundling: Vec<Bundling>,
    /// Messages a second from which bundles cost the receiver less; none if they do nowhere, or everywhere.
    pub break_even_per_s: Option<f64>,
}

/// A size at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Bytes of a packet.
    pub size_bytes: usize,
    /// Packets a second.
    pub rate_per_s: u32,
    /// Of one processor, by the thread that receives.
    pub receiver_percent: Vec<Option<f64>>,
    /// Of one processor, by everything: what timed loops lost. None where the machine was busy before.
    pub taken_percent: Vec<Option<f64>>,
}

/// A size as fast as it goes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Bytes of a packet.
    pub size_bytes: usize,
    /// Packets a second that were sent.
    pub sent_per_s: Vec<f64>,
    /// And that arrived. Much less than were sent: there throughput collapses.
    pub received_per_s: Vec<f64>,
}

/// Messages of [`MESSAGE`] bytes at a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bundling {
    /// Messages a second.
    pub rate_per_s: u32,
    /// Share of a processor of who receives each in a datagram of its own.
    pub plain_percent: Vec<Option<f64>>,
    /// And in bundles.
    pub bundled_percent: Vec<Option<f64>>,
}

/// Measures everything `runs` times, in about `budget`; `progress` is told how much of all is done, 0 to 1.
///
/// # Errors
/// [`StudyError`] where the loopback does not carry what it should.
pub fn rates(runs: usize, budget: Span, mut progress: impl FnMut(f64)) -> Result<Rates, StudyError> {
    let steps = runs * (SIZES.len() * (2 * RATES.len() + 1) + 1 + 2 * LOADS.len());
    let time = (budget / steps as u64).max(SHORTEST);
    let mut done = 0;
    let mut step = || {
        done += 1;
        progress(done as f64 / steps as f64);
    };
    let none = || vec![None; runs];
    let mut found = Rates {
        runs,
        cells: Vec::new(),
        limits: Vec::new(),
        loopback_bps: Vec::new(),
        bundling: Vec::new(),
        break_even_per_s: None,
    };
    for size_bytes in SIZES {
        for rate_per_s in RATES {
            let (receiver_percent, taken_percent) = (none(), none());
            found.cells.push(Cell { size_bytes, rate_per_s, receiver_percent, taken_percent });
        }
        found.limits.push(Limit { size_bytes, sent_per_s: Vec::new(), received_per_s: Vec::new() });
    }
    for rate_per_s in LOADS {
        found.bundling.push(Bundling { rate_per_s, plain_percent: none(), bundled_percent: none() });
    }
    for at in 0..runs {
        let order = |count: usize| (0..count).map(move |n| if at % 2 == 0 { n } else { count - 1 - n });
        for size in order(SIZES.len()) {
            let cells = &mut found.cells[size * RATES.len()..][..RATES.len()];
            climb(cells, time, |cell| &mut cell.receiver_percent[at], None, &mut step)?;
            let loops = Loops::start(time).map_err(refused(0))?;
            climb(cells, time, |cell| &mut cell.taken_percent[at], Some(&loops), &mut step)?;
            drop(loops);
            let took = plain(f64::INFINITY, SIZES[size], time)?;
            found.limits[size].sent_per_s.push(took.sent_rate());
            found.limits[size].received_per_s.push(took.received_rate());
            step();
        }
        let took = plain(f64::INFINITY, LARGEST, time)?;
        found.loopback_bps.push(took.received_rate() * LARGEST as f64 * 8.0);
        step();
        for load in order(LOADS.len()) {
            let rate = f64::from(LOADS[load]);
            let percent = |took: Took| reached(&took, rate).then(|| took.percent());
            found.bundling[load].plain_percent[at] = percent(plain(rate, MESSAGE, time)?);
            step();
            found.bundling[load].bundled_percent[at] = percent(bundled(rate, time)?);
            step();
        }
    }
    found.break_even_per_s = break_even(&found.bundling);
    Ok(found)
}

/// One size at all rates, from the lowest on, until throughput collapses.
fn climb(
    cells: &mut [Cell],
    time: Span,
    sample: impl Fn(&mut Cell) -> &mut Option<f64>,
    loops: Option<&Loops>,
    step: &mut impl FnMut(),
) -> Result<(), StudyError> {
    let mut collapsed = false;
    for cell in cells {
        step();
        if collapsed {
            continue;
        }
        let rate = f64::from(cell.rate_per_s);
        let mark = loops.map(Loops::mark);
        let took = plain(rate, cell.size_bytes, time)?;
        collapsed = took.received_rate() < rate * COLLAPSED;
        if reached(&took, rate) {
            *sample(cell) = match loops.zip(mark) {
                Some((loops, mark)) => loops.taken(mark),
                None => Some(took.percent()),
            };
        }
    }
    Ok(())
}

/// Whether a rate was reached and all but all of it arrived.
fn reached(took: &Took, rate: f64) -> bool {
    took.received_rate() >= rate * REACHED && took.lost() <= 1.0 - REACHED
}

fn refused(size: usize) -> impl Fn(io::Error) -> StudyError {
    move |cause| StudyError::Message { size, cause }
}

fn pair() -> Result<(UdpSocket, UdpSocket), StudyError> {
    let local = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let wide = Options { receive_buffer: Some(Size::from_bytes(ROOM as u64)), ..Options::default() };
    let (from, to) = (socket::udp(local, &Options::default())?, socket::udp(local, &wide)?);
    from.connect(to.local_addr().map_err(refused(0))?).map_err(refused(0))?;
    Ok((from, to))
}

/// Packets of one size, each in a call of its own.
fn plain(rate: f64, size: usize, time: Span) -> Result<Took, StudyError> {
    let (from, to) = pair()?;
    let packet = vec![0x55; size];
    let send = |_, number: Option<u64>| match number {
        Some(_) => from.send(&packet).map(|_| ()),
        None => Ok(()),
    };
    run(Load { rate, time }, Span::MAX, &to, send, |_| 1).map_err(refused(size))
}

/// Messages in bundles: the receiver looks at each and calls nobody.
fn bundled(rate: f64, time: Span) -> Result<Took, StudyError> {
    let (from, to) = pair()?;
    let timing = Timing::Adaptive { ordinary: GATHER, priority: Span::ZERO, gap: None };
    let mut gather = Gather::new(None, BUNDLE, timing);
    let (message, mut buffer) = ([0x55; MESSAGE], vec![0; BUNDLE]);
    let mut leave = |gather: &mut Gather, now: Instant| {
        while let Some(octets) = gather.leave(now, &mut buffer) {
            from.send(&buffer[..octets])?;
        }
        Ok(())
    };
    let send = |now: Instant, number: Option<u64>| {
        match number {
            Some(_) => _ = gather.push(now, bit(1), &message, false),
            None => gather.roll(now),
        }
        leave(&mut gather, now)
    };
    let take = |bytes: &[u8]| {
        let wanted = |bundle: Bundle<'_>| {
            bundle.messages().filter(|message| message.address & bit(1) != 0).count() as u64
        };
        Bundle::read(bytes).map_or(0, wanted)
    };
    run(Load { rate, time }, Span::from_ms(1), &to, send, take).map_err(refused(MESSAGE))
}

/// Where the curves of plain and bundled messages cross, between two loads as on a line.
fn break_even(bundling: &[Bundling]) -> Option<f64> {
    let difference = |point: &Bundling| {
        let (plain, bundled) = (median(&point.plain_percent)?, median(&point.bundled_percent)?);
        Some((f64::from(point.rate_per_s), plain - bundled))
    };
    let known: Vec<(f64, f64)> = bundling.iter().filter_map(difference).collect();
    // The last crossing: below it the differences are those of a few packets.
    known.windows(2).rev().find(|pair| pair[0].1 <= 0.0 && pair[1].1 > 0.0).map(|pair| {
        let [(from, below), (to, above)] = [pair[0], pair[1]];
        from + (to - from) * -below / (above - below)
    })
}

fn median(samples: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = samples.iter().flatten().copied().collect();
    (!known.is_empty()).then(|| super::median(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate_per_s: u32, plain: f64, bundled: f64) -> Bundling {
        Bundling { rate_per_s, plain_percent: vec![Some(plain)], bundled_percent: vec![Some(bundled)] }
    }

    #[test]
    fn the_break_even_is_where_the_curves_cross() {
        let points = [point(100, 1.0, 2.0), point(200, 2.0, 2.0), point(400, 4.0, 2.0)];
        assert_eq!(break_even(&points), Some(200.0));
        assert_eq!(break_even(&points[..2]), None, "nowhere");
        assert_eq!(break_even(&points[2..]), None, "everywhere");
        let gap = [point(100, 1.0, 3.0), point(300, 5.0, 3.0)];
        assert_eq!(break_even(&gap), Some(200.0));
    }

    #[test]
    fn messages_come_plain_and_bundled() {
        for took in [plain(2_000.0, MESSAGE, SHORTEST), bundled(2_000.0, SHORTEST)] {
            let took = took.expect("the loopback carries them");
            assert!(took.received == took.sent && took.sent > 1, "{took:?}");
        }
    }
}
